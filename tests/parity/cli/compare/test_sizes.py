"""Tables of final losses, one an arm and size of the model: each size is a pair of numbers with an
end of its own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.gate.exit_codes import EXIT_CODES

Run = Callable[..., tuple[int, str, str]]

# From QuEST (IST-DASLab/QuEST at c295afda, for_plots/runs_for_scaling.json, MIT): one run each, the
# same seeds.
QUEST = """arm,model_millions,params,tokens,step,seed,data_seed,lr,loss
int4_wa_hadamard_trust,30,30482560,749993984,2861,0,1337,0.0012,3.4617701
int4_wa_hadamard_trust,30,30482560,1499987968,5722,0,1337,0.0012,3.3523614
bf16,30,30482560,2999975936,11444,0,1337,0.0012,3.2071400
int4_wa_hadamard_trust,30,30482560,2999975936,11444,0,1337,0.0012,3.2721152
int8_wa_hadamard_trust,30,30482560,2999975936,11444,0,1337,0.0012,3.2089119
bf16,100,102777856,9999745024,38146,0,1337,0.0006,2.8859582
int4_wa_hadamard_trust,100,102777856,9999745024,38146,0,1337,0.0006,2.9476781
int8_wa_hadamard_trust,100,102777856,9999745024,38146,0,1337,0.0006,2.8879514
bf16,800,822151168,79999795200,305175,0,1337,7.5e-05,2.4609768
int4_wa_hadamard_trust,800,822151168,79999795200,305175,0,1337,7.5e-05,2.4949801
"""
BY_SIZE = ("--arm-by", "arm", "--size-by", "params,tokens", "--baseline", "bf16")
STATED = (
    *(
        "--schedule",
        "decayed",
        "--recipe",
        "bf16=bf16",
        "--recipe",
        "int4_wa_hadamard_trust=other:int4",
    ),
    *("--rounding", "int4_wa_hadamard_trust=nearest"),
)
NUMBERS = "model,params,precision,final_loss\na,30M,bf16,3.2071400\na,30M,int4,3.2721152\nb,800M,bf16,2.4609768\nb,800M,int4,2.494980\n"  # noqa: E501
NUMBER_OPTIONS = (
    "--arm-by",
    "precision",
    "--size-by",
    "params",
    "--baseline",
    "bf16",
    "--loss",
    "final_loss",
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def written(text: str) -> str:
        path = tmp_path / "sizes.csv"
        path.write_text(text)
        return str(path)

    return written


def judged(run: Run, *arguments: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    code, out, err = run("compare", *arguments, "--json")
    return (
        code,
        {document["candidate"]["name"]: document for document in json.loads(out)["verdicts"]},
        err,
    )


def refusal(run: Run, *arguments: str) -> str:
    code, out, err = run("compare", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def test_a_table_of_sizes_is_refused_with_what_reads_it(
    write: Callable[[str], str], run: Run
) -> None:
    for text, options in ((QUEST, BY_SIZE), (NUMBERS, NUMBER_OPTIONS)):
        file = write(text)
        said = refusal(run, file)
        assert f"`parity compare {file} {' '.join(options)}`" in said
        assert run("compare", file, *options)[0] in (EXIT_CODES["fail"], EXIT_CODES["inconclusive"])


def test_each_size_is_answered_as_if_it_were_alone(write: Callable[[str], str], run: Run) -> None:
    file = write(QUEST)
    code, documents, left_out = judged(run, file, *BY_SIZE, *STATED)
    assert code == EXIT_CODES["fail"]
    names = {
        "params=30482560, tokens=2999975936": ["int4_wa_hadamard_trust", "int8_wa_hadamard_trust"],
        "params=102777856, tokens=9999745024": ["int4_wa_hadamard_trust", "int8_wa_hadamard_trust"],
        "params=822151168, tokens=79999795200": ["int4_wa_hadamard_trust"],
    }
    assert [*documents] == [f"{arm} ({size})" for size, arms in names.items() for arm in arms]
    for size, arms in names.items():
        where = [word for one in size.split(", ") for word in ("--where", one)]
        alone = judged(
            run,
            file,
            "--arm-by",
            "arm",
            "--baseline",
            "bf16",
            "--loss-is",
            "validation",
            *where,
            *STATED,
        )[1]
        for arm in arms:
            document = documents[f"{arm} ({size})"]
            assert {key: document[key] for key in ("verdict", "codes", "gap", "as_of")} == {
                key: alone[arm][key] for key in ("verdict", "codes", "gap", "as_of")
            }
            assert [len(document[side]["runs"]) for side in ("baseline", "candidate")] == [1, 1]
    verdicts = {name: document["verdict"] for name, document in documents.items()}
    assert {verdict for name, verdict in verdicts.items() if name.startswith("int4")} == {"fail"}
    assert "fail" not in {verdict for name, verdict in verdicts.items() if name.startswith("int8")}
    assert left_out.count("\n") == 1
    assert "tokens=749993984" in left_out


def test_without_steps_a_size_is_a_pair_of_typed_numbers(
    write: Callable[[str], str], run: Run
) -> None:
    code, documents, err = judged(run, write(NUMBERS), *NUMBER_OPTIONS)
    assert (code, err) == (EXIT_CODES["inconclusive"], "")
    for size, numbers in (
        ("30M", ("bf16=3.2071400", "int4=3.2721152")),
        ("800M", ("bf16=2.4609768", "int4=2.494980")),
    ):
        typed = judged(run, *numbers)[1]["int4"]
        document = documents[f"int4 (params={size})"]
        assert "NUMBERS_ALONE" in document["codes"]
        assert {key: document[key] for key in ("verdict", "codes", "gap")} == {
            key: typed[key] for key in ("verdict", "codes", "gap")
        }


def test_runs_of_one_size_are_reruns_and_those_of_two_never(
    write: Callable[[str], str], run: Run
) -> None:
    rows = [
        "params,seed,arm,loss",
        *(
            f"{size},{seed},{arm},{3 - size / 100 + seed / 1000}"
            for size in (30, 60)
            for seed in range(3)
            for arm in "ab"
        ),
    ]
    file = write("\n".join(rows) + "\n")
    options = ("--arm-by", "arm", "--baseline", "a")
    documents = judged(run, file, *options, "--size-by", "params", "--run-by", "seed")[1]
    assert [len(document["candidate"]["runs"]) for document in documents.values()] == [3, 3]
    said = refusal(run, file, *options, "--run-by", "params,seed", "--loss-is", "validation")
    assert "the column 'params' names the size of a model" in said
    assert said.endswith("--size-by params\n")


def test_sizes_in_one_run_are_refused(write: Callable[[str], str], run: Run) -> None:
    said = refusal(run, write(QUEST), "--arm-by", "arm", "--baseline", "bf16")
    assert "has 3 values in the column 'model_millions'" in said
    assert "--size-by model_millions" in said


@pytest.mark.parametrize(
    ("line", "column", "options", "words"),
    [
        (
            "bf16,30M,3.2\n",
            "params",
            (),
            (
                "bf16 has two losses at params=30M (lines 2 and 6); expected the final one of each "
                "run; they differ"
            ),
        ),
        ("bf16,30M,3.25\n", "params", (), "in nothing but the loss: remove one of them"),
        ("bf16,,3.25\n", "params", (), "line 6: the column 'params' is empty"),
        ("fp8,60M,x\n", "params", (), "line 6: 'x' in the column 'final_loss'"),
        ("fp8,60M,2\n", "size", (), "no column 'size' for the size"),
        ("fp8,60M,2\n", "precision", (), "was given for the size and for something else"),
        ("fp8,60M,2\n", "params,", (), "expected one or several columns such as params,tokens"),
        (
            "fp8,60M,2\n",
            "params",
            ("--planned-steps", "9"),
            "--planned-steps is not used with --size-by",
        ),
        ("fp8,60M,2\n", "params", ("--at", "9"), "--at is not used with --size-by"),
        (
            "fp8,30M,2\n",
            "params",
            ("--bundle", "out.zip"),
            "--bundle holds the comparison at one size",
        ),
        (
            "fp8,30M,2\n",
            "params",
            ("--open",),
            "--open holds the comparison at one size",
        ),
        (
            "fp8,60M,2\n",
            "params",
            ("--where", "params=60M", "--baseline", "fp8"),
            "has one value, 'fp8'",
        ),
    ],
)
def test_what_is_no_table_of_sizes_is_refused(
    line: str,
    column: str,
    options: tuple[str, ...],
    words: str,
    write: Callable[[str], str],
    run: Run,
) -> None:
    file = write(
        "precision,params,final_loss\nbf16,30M,3.2\nint4,30M,3.3\nbf16,800M,2.5\nint4,800M,2.6\n"
        + line
    )
    said = refusal(
        run,
        file,
        "--arm-by",
        "precision",
        "--baseline",
        "bf16",
        "--loss",
        "final_loss",
        "--size-by",
        column,
        *options,
    )
    assert words in said


def test_more_than_the_size_that_differs_is_named(write: Callable[[str], str], run: Run) -> None:
    file = write(QUEST)
    said = refusal(run, file, "--arm-by", "arm", "--baseline", "bf16", "--size-by", "params")
    assert said.endswith("name what else makes a size: --size-by params,tokens\n")
    curve = write(
        "arm,params,step,loss\n"
        + "".join(f"{arm},30M,{step},2.5\n" for arm in "ab" for step in (1, 2))
    )
    said = refusal(run, curve, "--arm-by", "arm", "--baseline", "a", "--size-by", "params")
    assert said.endswith("--where params=30M\n")
    file = write("arm,params,seed,loss\na,30M,1,2.5\na,30M,2,2.5\nb,30M,1,2.5\n")
    assert refusal(run, file, "--arm-by", "arm", "--baseline", "a", "--size-by", "params").endswith(
        "--run-by seed\n"
    )


def test_the_steps_of_a_curve_are_no_sizes(write: Callable[[str], str], run: Run) -> None:
    file = write(
        "arm,step,loss\n" + "".join(f"{arm},{step},2.5\n" for arm in "ab" for step in range(101))
    )
    said = refusal(run, file, "--arm-by", "arm", "--baseline", "a", "--size-by", "step")
    assert "'step' has 101 values; expected at most 100 sizes" in said


def test_an_arm_that_is_missing_at_a_size_is_left_out_and_said(
    write: Callable[[str], str], run: Run
) -> None:
    text = NUMBERS + "c,2B,int4,2.25\nd,3B,bf16,2.125\n"
    _, documents, err = judged(run, write(text), *NUMBER_OPTIONS)
    assert [*documents] == ["int4 (params=30M)", "int4 (params=800M)"]
    assert (
        err == "parity: left out where bf16 or every other arm is missing: params=2B; params=3B\n"
    )
    apart = write("params,precision,final_loss\n1,bf16,3\n2,int4,2\n")
    assert "no size has bf16 and another arm: params=1; params=2" in refusal(
        run, apart, *NUMBER_OPTIONS
    )


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [("2.494980", "nan", "NONFINITE_CAND"), ("2.4609768", "inf", "BASELINE_INVALID")],
)
def test_a_run_that_diverged_decides_its_own_size_alone(
    before: str, after: str, code: str, write: Callable[[str], str], run: Run
) -> None:
    honest = judged(run, write(NUMBERS), *NUMBER_OPTIONS)[1]
    _, documents, _ = judged(run, write(NUMBERS.replace(before, after)), *NUMBER_OPTIONS)
    assert documents["int4 (params=800M)"]["codes"][0] == code
    assert documents["int4 (params=30M)"] == honest["int4 (params=30M)"]
