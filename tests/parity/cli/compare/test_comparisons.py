"""`parity compare parity.yaml`: comparisons that a file keeps below `compare:`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

Run = Callable[..., tuple[int, str, str]]
STATED = {
    "recipe": {"fp8": "fp8_current", "mxfp8": "mxfp8", "nvfp4": "nvfp4"},
    "planned_steps": 1500,
    "schedule": "decayed",
}


@pytest.fixture
def kept(tmp_path: Path, files: dict[str, str]) -> Callable[..., str]:
    """A function that writes a file with a comparison; the curves lie beside it."""
    for name in ("fp8", "mxfp8", "nvfp4"):
        (tmp_path / f"{name}.csv").write_text(Path(files[name]).read_text())

    def write(compare: object, **more: object) -> str:
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump({"compare": compare, **more}))
        return str(path)

    return write


def of(*names: str) -> dict[str, object]:
    """A comparison of these arms."""
    recipes = {name: STATED["recipe"][name] for name in names}  # type: ignore[index]
    return {"runs": [f"{name}.csv" for name in names], **STATED, "recipe": recipes}


def typed(files: dict[str, str], *names: str) -> tuple[str, ...]:
    """The same as it is typed."""
    recipes = [
        word
        for name, recipe in STATED["recipe"].items()  # type: ignore[attr-defined]
        if name in names
        for word in ("--recipe", f"{name}={recipe}")
    ]
    return (
        *(files[name] for name in names),
        *recipes,
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--json",
    )


def test_a_kept_comparison_is_the_typed_one(
    kept: Callable[..., str], files: dict[str, str], run: Run
) -> None:
    file = kept(of("fp8", "mxfp8", "nvfp4"), policy={"margin": "1 %"})
    code, out, _ = run("compare", file, "--json")
    assert (code, json.loads(out)) == (
        1,
        json.loads(run("compare", *typed(files, "fp8", "mxfp8", "nvfp4"), "--margin", "1 %")[1]),
    )


def test_what_is_typed_counts_more(
    kept: Callable[..., str], files: dict[str, str], run: Run
) -> None:
    file = kept({**of("fp8", "nvfp4"), "margin": "1 %"})
    assert run("compare", file)[0] == 1
    code, out, _ = run("compare", file, "--json", "--margin", "5 %")
    assert (code, json.loads(out)) == (
        0,
        json.loads(run("compare", *typed(files, "fp8", "nvfp4"), "--margin", "5 %")[1]),
    )


def test_a_policy_of_its_own_counts_more_than_that_of_the_file(
    kept: Callable[..., str], tmp_path: Path, run: Run
) -> None:
    (tmp_path / "strict.yaml").write_text('policy: {margin: "0.25%"}')
    file = kept(
        {"own": of("fp8", "mxfp8") | {"policy": "strict.yaml"}, "shared": of("fp8", "mxfp8")},
        policy={"margin": "1%"},
    )
    margins = {}
    for name in ("own", "shared"):
        (verdict,) = json.loads(run("compare", f"{file}:{name}", "--json")[1])["verdicts"]
        margins[name] = verdict["margin"]["rel"]
    assert margins == pytest.approx({"own": 0.0025, "shared": 0.01})


def test_several_are_judged_one_by_one(kept: Callable[..., str], run: Run) -> None:
    file = kept({"a": of("fp8", "mxfp8"), "b": of("fp8", "nvfp4")}, policy={"margin": "1 %"})
    code, out, _ = run("compare", file, "--json")
    both = json.loads(out)["verdicts"]
    assert (code, [each["verdict"] for each in both]) == (1, ["pass", "fail"])
    for name, verdict in zip("ab", both, strict=True):
        assert json.loads(run("compare", f"{file}:{name}", "--json")[1])["verdicts"] == [verdict]
    text = run("compare", file)[1]
    assert [line for line in text.splitlines() if line in ("a:", "b:")] == ["a:", "b:"]


def test_numbers_and_a_table_are_kept_too(
    kept: Callable[..., str], tmp_path: Path, run: Run
) -> None:
    assert (
        run(
            "compare", kept({"runs": ["bf16=2.242", "fp8=2.276"], "tokens": 23e9, "margin": "1 %"})
        )[0]
        == 3
    )
    (tmp_path / "runs.csv").write_text(
        "arm,run,step,val_loss\n"
        + "".join(f"{arm},{run},9,2.{run}\n" for arm in "ab" for run in (1, 2))
    )
    table = {
        "runs": "runs.csv",
        "arm_by": "arm",
        "run_by": "run",
        "loss": "val_loss",
        "baseline": "a",
        "where": {"arm": ["a", "b"]},
    }
    assert run("compare", kept(table))[0] == 3


@pytest.mark.parametrize(
    ("compare", "words"),
    [
        ({}, "has no comparison"),
        ({"a": {"margin": "1 %"}}, "compare.a: has no runs"),
        ({**of("fp8", "nvfp4"), "plannedsteps": 3}, "unknown key 'plannedsteps'"),
        ({**of("fp8", "nvfp4"), "planned_steps": "many"}, "expected a whole number"),
        ({**of("fp8", "nvfp4"), "margin": {"a": 1}}, "expected a text"),
        ({**of("fp8", "nvfp4"), "recipe": 3.5}, "NAME=RECIPE"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    compare: object, words: str, kept: Callable[..., str], run: Run
) -> None:
    code, out, err = run("compare", kept(compare))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_the_file_of_the_page_is_judged(kept: Callable[..., str], tmp_path: Path, run: Run) -> None:
    kept({})  # the curves lie beside it
    page = (Path(__file__).parents[4] / "docs" / "job-file.md").read_text(encoding="utf-8")
    block = page[page.index("```yaml\ncompare:") :].partition("\n")[2].partition("```")[0]
    (tmp_path / "page.yaml").write_text(block)
    assert run("compare", str(tmp_path / "page.yaml"))[0] == 1


def test_a_name_that_is_not_there_and_one_report_of_several_are_refused(
    kept: Callable[..., str], run: Run
) -> None:
    file = kept({"a": of("fp8", "mxfp8"), "b": of("fp8", "nvfp4")})
    for arguments, words in (
        ((f"{file}:c",), "expected one of a, b"),
        ((file, "--html", "x.html"), f"{file}:a or {file}:b"),
    ):
        code, _, err = run("compare", *arguments)
        assert code == 2
        assert words in err
