"""`--arm-by`: tables of many runs in `compare` and `calibrate`, and one line for bad usage."""

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.cli.runs.finished_runs import runs_of_table
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.curve import curve_from_arrays
from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus

Run = Callable[..., tuple[int, str, str]]

EVALUATED = (
    "--arm-by",
    "precision",
    "--run-by",
    "system,run",
    "--step",
    "samples",
    "--loss",
    "eval_loss_nats",
    "--baseline",
    "FP8",
)
SYSTEMS = {"FP8": ("s1", "s2"), "NVFP4": ("s1", "s3", "s4")}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Evaluations of two arms on several systems with the times of each run, and training curves of
    three arms with two seeds each.
    """
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(3)
    rows, times = (
        ["system,accelerator,precision,run,seed,samples,eval_loss_nats"],
        ["system,precision,run,minutes_to_target,ms_per_sequence"],
    )
    for arm, systems in SYSTEMS.items():
        for system in systems:
            for number in range(4):
                own, worse = rng.normal(0, 0.006), 0.027 if arm == "NVFP4" else 0.0
                for point in range(1, 14):
                    loss = 3.0 + 2.0 * point**-0.5 + own + worse + rng.normal(0, 0.002)
                    rows.append(
                        f"{system},8xB200,{arm},{number},{100 + number},{12288 * point},{loss:.6f}"
                    )
                times.append(
                    f"{system},{arm},{number},{90 + number - 400 * worse:.2f},{30 + number / 10}"
                )
    curves = ["arm,seed,step,loss"]
    t = np.arange(1500)
    batches = [rng.normal(0, 0.06, 1500) for _ in range(2)]
    for arm, gap in (("fp8", 0.0), ("mxfp8", -0.002), ("bad", 0.05)):
        for seed in range(2):
            loss = 1.38 + 3.5 * np.exp(-t / 80) + batches[seed] + gap + rng.normal(0, 0.01, 1500)
            curves += [
                f"{arm},{seed},{step},{value:.6f}" for step, value in zip(t, loss, strict=True)
            ]
    paths = {}
    for name, lines in (
        ("evaluations", rows),
        ("times", times),
        ("short_times", times[:-2]),
        ("curves", curves),
    ):
        paths[name] = str(folder / f"{name}.csv")
        Path(paths[name]).write_text("\n".join(lines) + "\n")
    return paths


def documents(run: Run, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, err = run("compare", *arguments, "--json")
    assert err == ""
    return code, json.loads(out)["verdicts"]


def test_evaluations_of_one_table_are_compared(tables: dict[str, str], run: Run) -> None:
    code, (document,) = documents(run, tables["evaluations"], *EVALUATED)
    assert code == EXIT_CODES["inconclusive"]
    assert (document["schema"], document["baseline"]["name"], document["candidate"]["name"]) == (
        "parity.evaluations/1",
        "FP8",
        "NVFP4",
    )
    assert (len(document["baseline"]["runs"]), len(document["candidate"]["runs"])) == (8, 12)
    assert (document["as_of"]["points"], document["as_of"]["tokens"]) == (
        [135168, 147456, 159744],
        None,
    )
    assert document["gap"]["over_runs"]["mean"] == pytest.approx(0.027, abs=0.01)
    assert (document["gap"]["over_clusters"], document["gap"]["pairs"], document["target"]) == (
        None,
        None,
        None,
    )


def test_the_kind_of_the_losses_is_named_or_stated_and_never_counted(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    """Ten points an arm are a training curve unless somebody says otherwise, and a hundred and one
    are held-out losses if they say so.
    """
    rows = Path(tables["evaluations"]).read_text().replace("eval_loss_nats", "loss")
    (tmp_path / "few.csv").write_text(rows)
    words = [word.replace("eval_loss_nats", "loss") for word in EVALUATED]
    _, (training,) = documents(run, str(tmp_path / "few.csv"), *words)
    _, (held_out,) = documents(run, str(tmp_path / "few.csv"), *words, "--loss-is", "validation")
    _, (named,) = documents(run, tables["evaluations"], *EVALUATED)
    _, (stated,) = documents(run, tables["evaluations"], *EVALUATED, "--loss-is", "training")
    assert [one["schema"] for one in (training, held_out, named, stated)] == [
        "parity.verdict/1", "parity.evaluations/1", "parity.evaluations/1", "parity.verdict/1",
    ]  # fmt: skip
    assert held_out["gap"] == named["gap"]
    long = "arm,run,step,val_loss\n" + "".join(
        f"{arm},0,{step},{2 + arm / 100}\n" for arm in (0, 1) for step in range(1, 202)
    )
    (tmp_path / "many.csv").write_text(long)
    _, (many,) = documents(
        run, str(tmp_path / "many.csv"), "--arm-by", "arm", "--run-by", "run", "--loss", "val_loss", "--baseline", "0"  # noqa: E501
    )  # fmt: skip
    assert many["schema"] == "parity.evaluations/1"


def test_held_out_losses_of_files_are_judged_as_those_of_a_table(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    for arm, loss in (("bf16", 2.6843), ("int4", 2.7400)):
        (tmp_path / f"{arm}.csv").write_text(f"step,val_loss\n9000,{loss}\n")
    files = [str(tmp_path / f"{arm}.csv") for arm in ("bf16", "int4")]
    stated = ("--recipe", "bf16=bf16", "--rounding", "int4=nearest", "--schedule", "decayed")
    code, (document,) = documents(run, *files, "--column", "loss=val_loss", *stated)
    assert (code, document["verdict"], document["schema"]) == (
        EXIT_CODES["fail"],
        "fail",
        "parity.evaluations/1",
    )
    code, _, err = run("compare", *files, "--column", "loss=val_loss", "--control", files[0])
    assert (code, "--control needs training curves" in err) == (2, True)


def test_rows_are_selected(tables: dict[str, str], run: Run) -> None:
    selected = ("--where", "system=s1", "--where", "system=s3")
    _, (document,) = documents(
        run, tables["evaluations"], *EVALUATED, *selected, "--times", tables["times"]
    )
    assert (len(document["baseline"]["runs"]), len(document["candidate"]["runs"])) == (4, 8)


def test_every_option_of_evaluations_counts(tables: dict[str, str], run: Run) -> None:
    words = (
        "--cluster system --at 98304,110592 --target 3.6 --tokens-per-step 8192 --pair-by seed "
        "--planned-steps 159744"
    )
    recipes = ("--recipe", "FP8=fp8_current", "--recipe", "NVFP4=nvfp4_no_rht")
    _, (document,) = documents(
        run, tables["evaluations"], *EVALUATED, *words.split(), *recipes, "--times", tables["times"]
    )
    assert (document["as_of"]["points"], document["as_of"]["tokens"]) == (
        [98304, 110592],
        110592 * 8192,
    )
    assert (
        document["gap"]["over_clusters"]["baseline"],
        document["gap"]["over_clusters"]["candidate"],
    ) == (2, 3)
    assert document["gap"]["pairs"] is not None
    assert (document["target"]["nats"], document["planned_steps"]) == (3.6, 159744)
    assert (document["baseline"]["recipe"], document["candidate"]["recipe"]) == (
        "fp8_current",
        "nvfp4_no_rht",
    )
    # from the table of curves
    assert [speed["hardware"] for speed in document["speed"]] == ["8xB200"]
    assert document["speed"][0]["net"]["value"] == pytest.approx(91.5 / 80.7, abs=0.001)


def test_a_context_that_differs_is_on_record(tables: dict[str, str], run: Run) -> None:
    stated = ("--context", "FP8:image=a", "--context", "NVFP4:image=b")
    _, (document,) = documents(run, tables["evaluations"], *EVALUATED, *stated)
    assert {ground["key"]: ground["confounded"] for ground in document["grounds"]} == {
        "image": True,
        "system": False,
    }
    assert "CONFOUNDED" in document["codes"]


def test_a_bundle_of_evaluations_is_verified(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    bundle = str(tmp_path / "bundle.zip")
    documents(run, tables["evaluations"], *EVALUATED, "--cluster", "system", "--bundle", bundle)
    assert run("verify", bundle)[0] == 0


def test_evaluations_have_every_kind_of_report(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    pytest.importorskip("matplotlib")
    figure, junit = tmp_path / "gap.svg", tmp_path / "junit.xml"
    code, text, _ = run(
        "compare", tables["evaluations"], *EVALUATED, "--figure", str(figure), "--junit", str(junit)
    )
    assert code == EXIT_CODES["inconclusive"]
    assert " ".join(text.split()).startswith(
        "◇ INCONCLUSIVE No loss beyond the margin as of step 159,744 (mean of 3 points); too early "
        "to switch. As of step 159,744 "
    )
    report = json.loads(run("compare", tables["evaluations"], *EVALUATED, "--json")[1])
    told = words(view_of(report["verdicts"][0]))
    assert told.line in html.unescape(figure.read_text(encoding="utf-8"))
    assert told.lead in html.unescape(junit.read_text(encoding="utf-8"))
    _, markdown, _ = run("compare", tables["evaluations"], *EVALUATED, "--markdown")
    assert markdown.startswith(f"### ◇ INCONCLUSIVE: {told.lead}")
    page = tmp_path / "page.html"
    assert run("compare", tables["evaluations"], *EVALUATED, "--html", str(page))[0] == code
    shown = html.unescape(page.read_text(encoding="utf-8"))
    assert told.lead in shown
    assert minus(told.interval) in shown


CURVES = (
    "--arm-by",
    "arm",
    "--run-by",
    "seed",
    "--baseline",
    "fp8",
    "--planned-steps",
    "1500",
    "--schedule",
    "decayed",
    "--rounding",
    "bad=nearest",
)
RECIPES = ("--recipe", "fp8=fp8_current", "--recipe", "mxfp8=mxfp8")


def test_training_curves_of_one_table_are_judged_as_those_of_files(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    code, judged = documents(run, tables["curves"], *CURVES, *RECIPES, "--pair-by", "seed")
    assert code == EXIT_CODES["fail"]
    assert [(document["candidate"]["name"], document["verdict"]) for document in judged] == [
        ("mxfp8", "pass"),
        ("bad", "fail"),
    ]
    files: dict[str, list[str]] = {}
    for line in Path(tables["curves"]).read_text().splitlines()[1:]:
        arm, seed, rest = line.split(",", 2)
        files.setdefault(f"{arm}{seed}", ["step,loss"]).append(rest)
    for name, lines in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    path = {name: str(tmp_path / f"{name}.csv") for name in files}
    _, of_files = documents(
        run, f"fp8={path['fp80']}", f"mxfp8={path['mxfp80']}", "--baseline-run", path["fp81"], "--candidate-run", f"mxfp8={path['mxfp81']}",  # noqa: E501
        "--seeds", "0,1", "--planned-steps", "1500", "--schedule", "decayed", *RECIPES,
    )  # fmt: skip
    # The table has another candidate, which shares the error: only the confidence of the interval
    # differs.
    shared = ("lo", "hi", "confidence", "deciding")
    gaps = [
        {key: value for key, value in one["gap"].items() if key not in shared}
        for one in (of_files[0], judged[0])
    ]
    assert gaps[0] == gaps[1]
    assert of_files[0]["codes"] == judged[0]["codes"]


def test_without_pairs_curves_of_two_seeds_are_paired_by_their_batches(
    tables: dict[str, str], run: Run
) -> None:
    code, judged = documents(run, tables["curves"], *CURVES, *RECIPES)
    assert code == EXIT_CODES["fail"]
    assert [(each["verdict"], each["pairing"]["by"]) for each in judged] == [
        ("pass", "batches"),
        ("fail", "batches"),
    ]


def test_a_table_of_one_run_an_arm_needs_no_column_of_runs(
    tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    """As a table, as its two arms by name, and as two files: the same verdict."""
    header, *rows = Path(tables["curves"]).read_text().splitlines()
    own = [row for row in rows if row.split(",")[1] == "0" and not row.startswith("mxfp8")]
    table = tmp_path / "one.csv"
    table.write_text("\n".join([header, *own]) + "\n")
    for arm in ("fp8", "bad"):
        lines = [",".join(row.split(",")[2:]) for row in own if row.startswith(f"{arm},")]
        (tmp_path / f"{arm}.csv").write_text("\n".join(["step,loss", *lines]) + "\n")
    plan = ("--planned-steps", "1500")
    code, (of_table,) = documents(run, str(table), "--arm-by", "arm", "--baseline", "fp8", *plan)
    _, (of_arms,) = documents(run, f"{table}:fp8", f"{table}:bad", *plan)
    _, (of_files,) = documents(run, str(tmp_path / "fp8.csv"), str(tmp_path / "bad.csv"), *plan)
    assert code == EXIT_CODES["fail"]
    assert of_table["gap"] == of_arms["gap"] == of_files["gap"]
    records = [dict(zip(header.split(","), row.split(","), strict=True)) for row in own]
    records_file = tmp_path / "one.jsonl"
    records_file.write_text(
        "".join(
            json.dumps({**row, "step": int(row["step"]), "loss": float(row["loss"])}) + "\n"
            for row in records
        )
    )
    _, (of_lines,) = documents(run, f"{records_file}:fp8", f"{records_file}:bad", *plan)
    assert of_lines["gap"] == of_files["gap"]


def test_a_table_alone_is_refused_with_the_options_that_read_it(
    tables: dict[str, str], run: Run
) -> None:
    code, _, err = run("compare", tables["curves"])
    assert code == EXIT_CODES["usage"]
    call = err.partition("`parity compare ")[2].partition("`")[0]
    assert call == f"{tables['curves']} --arm-by arm --run-by seed --baseline fp8"
    assert {
        document["verdict"]
        for document in documents(run, *call.split(), "--planned-steps", "1500")[1]
    } >= {"fail"}


def test_runs_of_several_machines_are_proposed_by_both(tables: dict[str, str], run: Run) -> None:
    code, _, err = run("compare", tables["evaluations"])
    assert code == EXIT_CODES["usage"]
    call = err.partition("`parity compare ")[2].partition("`")[0]
    assert (
        call.partition(" ")[2]
        == "--arm-by precision --run-by system,run --baseline FP8 --step samples --loss "
        "eval_loss_nats"
    )
    assert run("compare", *call.split())[0] != EXIT_CODES["usage"]


def test_an_arm_of_several_runs_is_no_run(tables: dict[str, str], run: Run) -> None:
    code, _, err = run(
        "compare", f"{tables['curves']}:fp8", f"{tables['curves']}:bad", "--planned-steps", "1500"
    )
    assert code == EXIT_CODES["usage"]
    assert "repeat a step with another loss" in err


def test_calibrate_reads_the_runs_of_one_arm(tables: dict[str, str], run: Run) -> None:
    code, out, _ = run(
        "calibrate",
        tables["evaluations"],
        *EVALUATED[:-2],
        "--arm",
        "FP8",
        "--margin",
        "1%",
        "--json",
    )
    calibration = json.loads(out)
    assert (code, calibration["runs"]) == (0, 8)
    assert calibration["tau"]["value"] == pytest.approx(0.006, abs=0.004)


BAD = {
    "no run-by": (
        "{evaluations} --arm-by precision --baseline FP8 --step samples --loss eval_loss_nats",
        "name what tells runs apart with --run-by, such as --run-by run",
    ),
    "no baseline": (
        "{table} --arm-by precision --run-by system,run",
        "--baseline is missing; expected one of the arms FP8, NVFP4",
    ),
    "baseline": (
        "{table} --arm-by precision --run-by system,run --baseline FP9",
        "--baseline is 'FP9'; expected one of the arms FP8, NVFP4",
    ),
    "two files": ("{times} {evaluated}", "2 files with --arm-by"),
    "no such column": (
        "{table} --arm-by precison --run-by run --baseline FP8",
        "no column 'precison' for the arm",
    ),
    "runs not apart": (
        "{table} --arm-by precision --run-by run --baseline FP8",
        "twice (lines 2 and 54); expected one row per run and step",
    ),
    "run-by": (
        "{table} --arm-by precision --run-by system,, --baseline FP8",
        "--run-by is 'system,,'",
    ),
    "step alone": ("{evaluations} {times} --step samples", "--step needs --arm-by"),
    "target alone": ("{evaluations} {times} --target 0", "--target needs --arm-by"),
    "baseline run": (
        "{evaluated} --baseline-run x.csv",
        "--baseline-run names a file, but with --arm-by",
    ),
    "candidate run": ("{evaluated} --candidate-run NVFP4=x.csv", "--candidate-run names a file"),
    "control": ("{evaluated} --control x.csv", "--control names a file"),
    "short rerun": ("{evaluated} --short-rerun a=x.csv", "--short-rerun names a file"),
    "column": ("{evaluated} --column loss=x", "--column is not used with --arm-by"),
    "seeds": (
        "{evaluated} --seeds 1,2",
        "--seeds is not used with --arm-by; name the column of the seed with --pair-by",
    ),
    "recipe": (
        "{evaluated} --recipe NVFP=nvfp4",
        "--recipe NVFP: no such run; did you mean NVFP4?",
    ),
    "rounding": ("{evaluated} --rounding x=nearest", "--rounding x: no such run"),
    "context": ("{evaluated} --context x:image=y", "--context x: no such run"),
    "where": ("{evaluated} --where system", "--where is 'system'; expected COLUMN=VALUE"),
    "where no row": (
        "{evaluated} --where system=s9",
        "no row has system=s9; the column has 's1', 's2', 's3', 's4'",
    ),
    "where no column": ("{evaluated} --where sistem=s1", "no column 'sistem' for --where"),
    "loss is": (
        "{evaluated} --loss-is validated",
        "--loss-is is 'validated'; expected training or validation; did you mean validation?",
    ),
    "loss unit": ("{evaluated} --loss-unit mse", "--loss-unit is 'mse'"),
    "cluster": ("{evaluated} --cluster sistem", "no column 'sistem' for the cluster"),
    "cluster in a run": (
        "{evaluated} --cluster eval_loss_nats",
        "'eval_loss_nats' was given for the loss and for the cluster",
    ),
    "at": ("{evaluated} --at 10k", "--at is '10k'; expected one or several steps"),
    "at no evaluation": ("{evaluated} --at 5", "not every run has an evaluation at 5"),
    "target": ("{evaluated} --target nan", "--target is nan; expected a positive number"),
    "tokens": (
        "{evaluated} --tokens-per-step 0",
        "--tokens-per-step is 0.0; expected a positive number",
    ),
    "check": ("{evaluated} --check spikes", "--check needs training curves"),
    "accuracy": ("{evaluated} --accuracy-margin 0.5", "--accuracy-margin needs training curves"),
    "snr": ("{evaluated} --layer-snr x.csv", "--layer-snr needs training curves"),
    "family": ("{evaluated} --family f", "--family needs training curves"),
    "noise_table": ("{evaluated} --noise-table x.csv", "--noise-table needs training curves"),
    "worth": ("{evaluated} --full-run-hours 10", "--full-run-hours needs training curves"),
    "policy": ("{evaluated} --policy {policy}", "the policy's checks are spikes"),
    "no times": ("{evaluated} --times {evaluations}", "no column of times"),
    "times of fewer runs": (
        "{evaluated} --times {short_times}",
        "no row for a run of the curves: s4/2 of NVFP4 and 1 more",
    ),
    "times of other runs": (
        "{evaluated} --times {other_times}",
        "a run that the curves do not have: s9/0 of FP8",
    ),
    "stdin twice": (
        "- --arm-by precision --run-by run --baseline FP8 --times -",
        "stdin can be read only once",
    ),
    "cluster of curves": (
        "{curves} {of_curves} --cluster seed",
        "--cluster needs losses of held-out data",
    ),
    "times of curves": (
        "{curves} {of_curves} --times {times}",
        "--times needs losses of held-out data",
    ),
    "both forms": ("{evaluated} --markdown", "exclude each other"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_usage_is_one_line_and_exit_code_2(
    case: str, tables: dict[str, str], tmp_path: Path, run: Run
) -> None:
    (tmp_path / "policy.yaml").write_text("policy: {margin: 1%, checks: [loss, spikes]}\n")
    (tmp_path / "other.csv").write_text(Path(tables["times"]).read_text() + "s9,FP8,0,90,30\n")
    evaluated = " ".join((tables["evaluations"], *EVALUATED))
    words, message = BAD[case]
    places = {
        "table": f"{tables['evaluations']} --step samples --loss eval_loss_nats",
        "of_curves": " ".join(CURVES),
        "evaluated": evaluated,
    }
    more = {"policy": str(tmp_path / "policy.yaml"), "other_times": str(tmp_path / "other.csv")}
    code, out, err = run("compare", *words.format(**tables, **places, **more).split(), "--json")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("calibrate {evaluations} --arm FP8", "--arm needs --arm-by"),
        (
            (
                "calibrate {evaluations} --arm-by precision --run-by system,run --step samples "
                "--loss eval_loss_nats"
            ),
            "--arm is missing",
        ),
        (
            "calibrate {evaluations} --arm-by precision --run-by run --arm FP8 --column loss=x",
            "--column is not used with --arm-by",
        ),
        ("import {evaluations} --job j", "--job needs --arm-by"),
        ("import {evaluations} --arm-by precision --run-by run", "--job is missing"),
        (
            "import {evaluations} --arm-by precision --run-by run --as-run r",
            "--as-run is not used with --arm-by",
        ),
        (
            "import {evaluations} --arm-by precision --run-by run --job j --recipe nvfp4",
            "--recipe is not used with --arm-by",
        ),
    ],
)
def test_bad_usage_of_calibrate_and_import(
    words: str, message: str, tables: dict[str, str], run: Run
) -> None:
    code, out, err = run(*words.format(**tables).split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def job_of(**arms: int) -> dict[str, Any]:
    """A job's document with so many runs in each arm, in the reverse order of their numbers."""
    return {
        "id": "j1",
        "arms": [
            {
                "name": name,
                "runs": [
                    {"id": f"{name}-{number}", "seed": 0, "replicate": number}
                    for number in reversed(range(runs))
                ],
            }
            for name, runs in arms.items()
        ],
    }


def test_runs_of_a_table_are_those_of_a_job_in_order() -> None:
    curves = [
        curve_from_arrays(
            [1, 2], [3.0, 2.0], label=f"r{number}", context={"system": "s", "image": "a"}
        )
        for number in range(2)
    ]
    finished = runs_of_table("t.csv", {"fp8": curves}, job_of(fp8=2, nvfp4=1), {"image": "b"})
    assert [(each.run, each.file, each.context) for each in finished] == [
        (f"fp8-{number}", f"t.csv, run r{number} of fp8", {"system": "s", "image": "b"})
        for number in range(2)
    ]
    with pytest.raises(
        UsageError, match="job j1 has no arm 'fp8'; expected arms called FP8; did you mean FP8"
    ):
        runs_of_table("t.csv", {"fp8": curves}, job_of(FP8=2), {})
    with pytest.raises(UsageError, match="fp8 has 2 runs, but job j1 has 3"):
        runs_of_table("t.csv", {"fp8": curves}, job_of(fp8=3), {})
    noisy = job_of(fp8=3)
    noisy["arms"][0]["short_reruns"] = [{"id": "n"}]
    with pytest.raises(UsageError, match="import the 1 rerun that stops early with --as-run"):
        runs_of_table("t.csv", {"fp8": curves}, noisy, {})
