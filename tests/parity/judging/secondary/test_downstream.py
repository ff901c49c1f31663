"""Downstream accuracy from files to the report: both file kinds, both forms, and an error for
everything else.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from parity.cli import main
from parity.judging.bundles.verification import verify
from parity.judging.curves.curve import Curve
from parity.judging.document_types import TaskDocument
from parity.judging.policy import policy_from_mapping
from parity.judging.secondary.accuracy import (
    AccuracyGap,
    EvaluationError,
    TaskResult,
    accuracy_gap,
    paired_accuracy,
)
from parity.judging.secondary.tasks import compare_tasks, public_choices
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers.errors import ReadError
from parity.readers.secondary.accuracy import read_accuracy


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_all_forms_say_the_same(tmp_path: Path) -> None:
    rows = written(
        tmp_path, "a.csv", "task,item,correct\narc,x,1\narc,y,false\narc,z,True\narc,w,0\n"
    )
    counts = written(tmp_path, "b.csv", "task,accuracy,n\narc,0.5,4\n")
    correct = written(tmp_path, "c.csv", "task, correct, n\narc, 2, 4\n")
    listed = written(tmp_path, "d.json", '{"arc": [1, false, true, 0]}')
    mapped = written(tmp_path, "e.json", '{"arc": {"accuracy": 0.5, "n": 4}}')
    objects = written(tmp_path, "f.json", '[{"task": "arc", "correct": 2, "n": 4}]')
    for name in (rows, counts, correct, listed, mapped, objects):
        result = read_accuracy(name)["arc"]
        assert (result.correct, result.items) == (2, 4)
    assert read_accuracy(rows)["arc"].by_item == {"x": True, "y": False, "z": True, "w": False}
    assert not read_accuracy(counts)["arc"].by_item


def with_run_noise(items: AccuracyGap) -> tuple[float, float]:
    """The slow formula: the items' interval and t(4) x 0.4 x sqrt 2 points in quadrature."""
    run = 2.7764451 * 0.4 * 2**0.5
    return (
        100 * items.gap - ((100 * (items.gap - items.lo)) ** 2 + run**2) ** 0.5,
        100 * items.gap + ((100 * (items.hi - items.gap)) ** 2 + run**2) ** 0.5,
    )


def test_items_are_paired_by_name_and_counts_are_two_proportions() -> None:
    rng = np.random.default_rng(0)
    base = {str(i): bool(v) for i, v in enumerate(rng.random(500) < 0.7)}
    cand = {key: base[key] ^ bool(rng.random() < 0.05) for key in reversed(base)}
    arms = [TaskResult(correct=sum(arm.values()), items=500, by_item=arm) for arm in (base, cand)]
    (paired,) = compare_tasks({"arc": arms[0]}, {"arc": arms[1], "other": arms[1]}, 1.5, 0.95)
    expected = paired_accuracy(list(base.values()), [cand[key] for key in base])
    assert (paired["lo_points"], paired["hi_points"]) == pytest.approx(with_run_noise(expected))
    assert paired["paired"]
    counts = TaskResult(correct=arms[1].correct, items=500)
    (loose,) = compare_tasks({"arc": arms[0]}, {"arc": counts}, 1.5, 0.95)
    wide = accuracy_gap((arms[0].correct, 500), (arms[1].correct, 500))
    assert (loose["lo_points"], loose["hi_points"]) == pytest.approx(with_run_noise(wide))
    assert not loose["paired"]


# Llama 3.1 8B, 160 B tokens: loss in % over BF16's, MMLU, HellaSwag (MrHuff/mfu-fp4-training at
# 1f7b1b1d, MIT)
LLAMA_160B = {
    "bf16": (0.0, 0.2864, 0.6750),
    "nvfp4_localcta_sr": (1.2, 0.2554, 0.6632),
    "nvfp4_localcta_h16": (1.8, 0.2374, 0.6508),
    "nvfp4_localcta_mxfp4_hybrid": (4.4, 0.2516, 0.6294),
    "mxfp4_sr": (6.7, 0.2594, 0.6039),
    "mxfp4_sr_h32": (-0.3, 0.2547, 0.6882),
    "operand_h16_hybrid": (1.6, 0.2440, 0.6647),
    "operand_h32_hybrid": (1.4, 0.2381, 0.6680),
    "nvfp4_v5_sr": (1.3, 0.2738, 0.6581),
    "te_nvfp4_last4_bf16": (0.3, 0.2645, 0.6697),
    "te_nvfp4": (0.4, 0.2519, 0.6662),
}


def test_mmlu_at_chance_fails_nobody_and_what_costs_4_percent_fails() -> None:
    """HellaSwag has 10,042 items and ARC's other tasks few; MMLU at 24 to 29 % is guessing among 4
    choices.
    """
    base = LLAMA_160B["bf16"]

    def compared(arm: str) -> dict[str, TaskDocument]:
        results = [
            {
                "mmlu": TaskResult(correct=round(14_042 * mmlu), items=14_042),
                "hellaswag": TaskResult(correct=round(10_042 * hellaswag), items=10_042),
            }
            for _, mmlu, hellaswag in (base, LLAMA_160B[arm])
        ]
        return {gap["task"]: gap for gap in compare_tasks(results[0], results[1], 2.0, 0.95)}

    failed = []
    for arm, (loss, _, _) in LLAMA_160B.items():
        tasks = compared(arm)
        assert (tasks["mmlu"]["at_chance"], tasks["mmlu"]["state"], tasks["mmlu"]["chance"]) == (
            True,
            "inconclusive",
            0.25,
        )
        assert "at chance" in tasks["mmlu"]["sentence"]
        if tasks["hellaswag"]["state"] == "fail":
            failed.append(loss)
    assert sorted(failed) == [4.4, 6.7]


@pytest.mark.parametrize(
    ("task", "choices"),
    [
        ("mmlu", 4),
        ("MMLU_acc", 4),
        ("mmlu_pro, 5 shots", 10),
        ("arc_challenge acc_norm, 25 shots", 4),
        ("arc-easy", 4),
        ("winogrande_acc", 2),
        ("piqa", 2),
        ("boolq", 2),
        ("gsm8k exact_match, 8 shots", 0),
        ("commonsense_qa", 5),
        ("truthfulqa_mc1", None),
        ("bbh", None),
        ("archive", None),
        ("", None),
    ],
)
def test_public_tasks_are_known_by_their_first_words(task: str, choices: int | None) -> None:
    assert public_choices(task) == choices


def test_an_unknown_task_fails_nobody_until_its_choices_are_stated() -> None:
    def state(choices: int | None, base: int = 7000) -> tuple[str, bool]:
        arms = [
            {"ours": TaskResult(correct=correct, items=10_000, choices=choices)}
            for correct in (base, base - 1000)
        ]
        (gap,) = compare_tasks(arms[0], arms[1], 2.0, 0.95)
        return gap["state"], gap["at_chance"]

    assert state(None) == ("inconclusive", False)
    assert state(4) == ("fail", False)
    assert state(0) == ("fail", False)
    assert state(2, base=5400) == ("inconclusive", True)
    assert state(2, base=5600) == ("fail", False)
    with pytest.raises(ValueError, match="the arms state 2 and 4 choices"):
        compare_tasks(
            {"x": TaskResult(correct=1, items=2, choices=2)},
            {"x": TaskResult(correct=1, items=2, choices=4)},
            2.0,
            0.95,
        )
    with pytest.raises(EvaluationError, match="choices is 1"):
        TaskResult(correct=1, items=2, choices=1)


def test_choices_are_read_from_every_form(tmp_path: Path) -> None:
    for number, text in enumerate(
        (
            "task,accuracy,n,choices\nours,0.5,4,3\n",
            "task,item,correct,choices\nours,x,1,3\nours,y,0,3\n",
            '{"ours": {"accuracy": 0.5, "n": 4, "choices": 3}}',
        )
    ):
        assert (
            read_accuracy(
                written(tmp_path, f"{number}.{'json' if text[0] == '{' else 'csv'}", text)
            )["ours"].choices
            == 3
        )
    with pytest.raises(ReadError, match="choices is 1; expected the choices of an item"):
        read_accuracy(written(tmp_path, "bad.csv", "task,accuracy,n,choices\nours,0.5,4,1\n"))


def test_a_task_at_chance_leaves_the_gate_open(
    arms: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        written(tmp_path, f"{name}.csv", f"task,accuracy,n\nmmlu,{share},14042\n")
        for name, share in (("b", 0.286), ("c", 0.237))
    ]
    options = ("--evaluation", f"fp8={files[0]}", "--evaluation", f"nvfp4={files[1]}")
    assert compare(capsys, *arms, *options)[0] == 0
    code, out, _ = compare(capsys, *arms, *options, "--check", "accuracy", "--json")
    assert (code, json.loads(out)["verdicts"][0]["codes"][0]) == (3, "ACCURACY_OPEN")


BAD = [
    ("", "the file is empty"),
    ("a,b\n1,2\n", "no task"),
    ("task,correct\n", "no results"),
    ("task,correct\narc,maybe\n", "correct is 'maybe'"),
    # found by fuzzing: a quoted name over several lines
    ('task,correct\n"a,1\na,[0{\n', "correct is None"),
    ("task,accuracy\narc,0.7\n", "correct is None"),
    ("task,accuracy,n\narc,71,100\n", "expected a share from 0 to 1"),
    ("task,accuracy,n\narc,x,100\n", "accuracy is 'x'; expected a number"),
    ("task,accuracy,n\narc,0.7,0\n", "n is 0"),
    ("task,correct,n\narc,5,4\n", "5 correct of 4"),
    ("task,accuracy,n\narc,0.7,10\narc,0.7,10\n", "a second row with counts"),
    ("task,item,correct\narc,x,1\narc,x,0\n", "item 'x' occurs twice"),
    ("{not json", "not valid JSON"),
    ('{"arc": 0.7}', "expected one object"),
    ("[1, 2]", "expected one object"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_bad_files_are_one_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=says.replace("(", r"\(")) as error:
        read_accuracy(written(tmp_path, "bad.csv", text))
    assert "bad.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_in_common_is_an_error() -> None:
    one, two = (
        TaskResult(correct=1, items=1, by_item={"a": True}),
        TaskResult(correct=1, items=1, by_item={"b": True}),
    )
    with pytest.raises(ValueError, match="no task in common: arc and mmlu"):
        compare_tasks({"arc": one}, {"mmlu": one}, 1.0, 0.95)
    with pytest.raises(ValueError, match="item 'a' is in one file only"):
        compare_tasks({"arc": one}, {"arc": two}, 1.0, 0.95)


def compare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["compare", *arguments])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


@pytest.fixture
def arms(tmp_path: Path) -> list[str]:
    """Two equally good runs of 1,500 steps."""
    rng, t = np.random.default_rng(0), np.arange(1500)
    batch, names = rng.normal(0, 0.06, 1500), []
    for name in ("fp8", "nvfp4"):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + rng.normal(0, 0.01, 1500)
        names.append(
            written(
                tmp_path,
                f"{name}.csv",
                "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in zip(t, loss, strict=True)),
            )
        )
    return [
        *names,
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--rounding",
        "fp8=nearest",
        "--rounding",
        "nvfp4=nearest",
    ]


@pytest.fixture
def evaluated(arms: list[str], tmp_path: Path) -> list[str]:
    """The arms with a candidate that lost ten points of accuracy."""
    base = written(tmp_path, "base.csv", "task,accuracy,n\narc,0.70,10000\nmmlu,0.50,10000\n")
    cand = written(tmp_path, "cand.csv", "task,accuracy,n\narc,0.60,10000\nmmlu,0.50,10000\n")
    return [*arms, "--evaluation", f"fp8={base}", "--evaluation", f"nvfp4={cand}"]


def test_as_advice_it_is_reported_and_the_verdict_does_not_change(
    evaluated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = compare(capsys, *evaluated, "--json")
    document = json.loads(out)["verdicts"][0]
    assert (code, document["verdict"]) == (0, "pass")
    assert (document["downstream"][0]["state"], document["downstream"][0]["margin_points"]) == (
        "fail",
        2.0,
    )
    assert [check["role"] for check in document["checks"] if check["name"] == "accuracy"] == [
        "advises"
    ]
    assert "arc 60.0 % against 70.0 %: −10.0 points" in " ".join(
        compare(capsys, *evaluated, "-v")[1].split()
    )


@pytest.mark.parametrize(
    ("points", "code", "first"),
    [
        ("1", 1, "ACCURACY_FAILS"),
        ("10", 3, "ACCURACY_OPEN"),
        ("20", 0, "WITHIN_MARGIN"),
        ("0.5", 1, "ACCURACY_FAILS"),
    ],
)
def test_as_a_gate_it_decides_and_the_bundle_proves_it(
    points: str,
    code: int,
    first: str,
    evaluated: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = str(tmp_path / "out.zip")
    exit_code, out, _ = compare(
        capsys,
        *evaluated,
        "--check",
        "accuracy",
        "--accuracy-margin",
        points,
        "--json",
        "--bundle",
        bundle,
    )
    assert (exit_code, json.loads(out)["verdicts"][0]["codes"][0]) == (code, first)
    with pytest.raises(SystemExit) as left:
        main(["verify", bundle])
    assert left.value.code == 0
    policy = written(
        tmp_path,
        "parity.yaml",
        "policy: {margin: 1.0%, schedule: decayed, checks: [loss, accuracy], "
        f"accuracy_margin_points: {points}}}",
    )
    markdown = compare(capsys, *evaluated, "--policy", policy, "--markdown")
    assert (markdown[0], "check accuracy" in markdown[1]) == (code, True)


def test_a_changed_result_in_the_bundle_is_caught(
    evaluated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "out.zip"
    compare(capsys, *evaluated, "--bundle", str(bundle))
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["evaluations.json"] = files["evaluations.json"].replace(b"6000", b"7000")
    manifest = json.loads(files["manifest.json"])
    manifest["sha256"]["evaluations.json"] = hashlib.sha256(files["evaluations.json"]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert any("downstream[0].candidate" in line for line in verify(str(bundle)).differences)


def test_a_gate_without_evaluations_leaves_the_verdict_open(
    arms: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = compare(capsys, *arms, "--check", "accuracy", "--json")
    assert (code, json.loads(out)["verdicts"][0]["codes"][0]) == (3, "ACCURACY_OPEN")


def test_judge_takes_results_by_arm_and_refuses_what_it_cannot_compare(
    make_run: Callable[..., Curve],
) -> None:
    policy = policy_from_mapping(
        {"schedule": "decayed", "margin": "1%", "checks": ["loss", "accuracy"]}
    )
    arc, worse = ({"arc": TaskResult(correct=correct, items=10_000)} for correct in (7000, 6000))

    def judged(
        results: Mapping[str, Mapping[str, TaskResult]], names: tuple[str, str] = ("b", "c")
    ) -> Verdict:
        options = {"planned_steps": 2000, "baseline_name": names[0], "evaluations": results}
        return judge([make_run()], {names[1]: [make_run(seed=2)]}, policy, **options)[0]

    assert judged({"b": arc, "c": worse}).codes[0] == "ACCURACY_FAILS"
    assert judged({"b": worse, "c": arc}).verdict == "pass"
    for results, names, says in (
        ({"b": arc}, ("b", "c"), "expected b and at least one of c"),
        ({"c": arc}, ("b", "c"), "expected b and at least one of c"),
        ({"b": arc, "x": arc}, ("b", "c"), "an evaluation was given for 'x'; the arms are b, c"),
        (
            {"b": arc, "c": {"mmlu": arc["arc"]}},
            ("b", "c"),
            "evaluations of b and c: no task in common",
        ),
        ({"b": arc}, ("b", "b"), "both named 'b'"),
    ):
        with pytest.raises(EvaluationError, match=says):
            judged(results, names)
    with pytest.raises(EvaluationError, match="5 correct of 4"):
        TaskResult(correct=5, items=4)
    with pytest.raises(EvaluationError, match="say otherwise"):
        TaskResult(correct=2, items=2, by_item={"x": True, "y": False})


@pytest.mark.parametrize(
    ("names", "extra", "says"),
    [
        (["fp8"], [], "expected fp8 and at least one of nvfp4"),
        (["nvfp4"], [], "expected fp8 and at least one of nvfp4"),
        (["fp8", "other"], [], "--evaluation other: no such run; the runs are called fp8, nvfp4"),
        (["fp8", "nvfp4"], ["--accuracy-margin", "0"], "--accuracy-margin is 0.0"),
        ([], ["--check", "speed"], "--check is 'speed'"),
    ],
)
def test_usage_errors(
    names: list[str],
    extra: list[str],
    says: str,
    arms: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path, "base.csv", "task,accuracy,n\narc,0.70,10000\n")
    options = [part for name in names for part in ("--evaluation", f"{name}={file}")]
    code, out, err = compare(capsys, *arms, *options, *extra)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
