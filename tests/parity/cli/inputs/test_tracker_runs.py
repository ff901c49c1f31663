"""Runs of trackers on the command line: what their configs state is used, shown, overridden, and
refused where it contradicts itself.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from parity.cli.runs.finished_runs import FinishedRun, refuse_other_run
from parity.cli.terminal.wrong_calls import UsageError
from parity.readers import read_run
from parity.readers.errors import ReadError, UnreachableSourceError
from parity.readers.files.text import read_text
from parity.readers.tables.growing_table import GrowingTable
from parity.readers.trackers import sources
from parity.readers.trackers.run import TrackerRun

Run = Callable[..., tuple[int, str, str]]
FAMILY = "modded-nanogpt-124M/track3"


@pytest.fixture
def config(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Configs by run, filled by a test; a run mlflow:NAME has the losses of the file NAME."""
    configs: dict[str, dict[str, Any]] = {
        "fp8": {"recipe": "fp8_current"},
        "mxfp8": {"recipe": "mxfp8"},
        "fp8_again": {"recipe": "fp8_current"},
    }

    def read(source: str, path: str, wanted: Mapping[str, str]) -> TrackerRun:
        if path == "gone":
            raise UnreachableSourceError(f"{source}: does not answer")
        if path not in files:
            raise ReadError(f"{source}: no such run")
        columns = GrowingTable(source, wanted).read(read_text(files[path]))
        return TrackerRun(columns=columns, config=configs.get(path, {}))

    monkeypatch.setattr(sources, "SOURCES", {"mlflow:": read})
    return configs


BOTH = (
    "mlflow:fp8",
    "mlflow:mxfp8",
    "--planned-steps",
    "1500",
    "--schedule",
    "decayed",
    "--margin",
    "1%",
)


def verdict(out: str) -> dict[str, Any]:
    (document,) = json.loads(out)["verdicts"]
    return document


def test_the_config_states_the_recipe_and_the_report_shows_it(config, run: Run) -> None:
    code, out, _ = run("compare", *BOTH, "-v")
    assert code == 0
    assert "from the run's config: recipe mxfp8" in " ".join(out.split())
    document = verdict(run("compare", *BOTH, "--json")[1])
    assert [document[arm]["recipe"] for arm in ("baseline", "candidate")] == [
        "fp8_current",
        "mxfp8",
    ]


def test_options_count_more_than_the_config(config, run: Run) -> None:
    document = verdict(run("compare", *BOTH, "--recipe", "mxfp8=other:mine", "--json")[1])
    assert document["candidate"]["recipe"] == "other:mine"
    assert (
        verdict(run("compare", *BOTH, "--rounding", "mxfp8=stochastic", "--json")[1])["gap"]["hi"]
        > document["gap"]["lo"]
    )


def test_a_word_that_is_no_recipe_gets_the_larger_noise(config, run: Run) -> None:
    known = verdict(run("compare", *BOTH, "--json")[1])
    config["mxfp8"]["recipe"] = "MXFP8"
    unknown = verdict(run("compare", *BOTH, "--json")[1])
    assert unknown["candidate"]["recipe"] is None
    assert unknown["gap"]["hi"] > known["gap"]["hi"]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("learning_rate", (1e-3, 2e-3)),
        ("global_batch_size", (512, 256)),
        ("parity_family", ("a", "b")),
    ],
)
def test_arms_whose_configs_contradict_each_other_do_not_pass(
    key: str, values: tuple[Any, Any], config, run: Run
) -> None:
    config["fp8"][key], config["mxfp8"][key] = values
    code, out, _ = run("compare", *BOTH, "--json")
    assert code == 3
    assert "CONFOUNDED" in verdict(out)["codes"]


def test_arms_of_other_seeds_do_not_pass_unless_the_seeds_are_stated(config, run: Run) -> None:
    config["fp8"]["seed"], config["mxfp8"]["seed"] = 1, 2
    code, out, _ = run("compare", *BOTH, "--json")
    assert (code, verdict(out)["codes"][0]) == (3, "DATA_ORDER_MISMATCH")
    assert run("compare", *BOTH, "--seeds", "1")[0] == 0
    config["mxfp8"]["seed"] = "1"
    assert run("compare", *BOTH)[0] == 0


def test_runs_of_one_arm_with_two_recipes_are_refused(config, run: Run) -> None:
    config["fp8_again"]["recipe"] = "bf16"
    code, out, err = run("compare", *BOTH, "--baseline-run", "mlflow:fp8_again")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "bf16 and fp8_current" in err
    assert run("calibrate", "mlflow:fp8", "mlflow:fp8_again")[0] == 2
    assert (
        run("compare", *BOTH, "--baseline-run", "mlflow:fp8_again", "--recipe", "fp8=fp8_current")[
            0
        ]
        != 2
    )


def test_a_family_of_the_table_is_taken_as_if_an_option_named_it_and_another_one_is_not(
    config, run: Run
) -> None:
    for arm in ("fp8", "mxfp8"):
        config[arm]["parity_family"] = "not-in-the-table"
    plain = verdict(run("compare", *BOTH, "--json")[1])
    for arm in ("fp8", "mxfp8"):
        config[arm]["parity_family"] = FAMILY
    by_config = verdict(run("compare", *BOTH, "--json")[1])
    by_option = verdict(run("compare", *BOTH, "--family", FAMILY, "--json")[1])
    # a family of other losses is refused whoever names it
    assert "FAMILY_UNUSED" in by_config["codes"]
    assert (by_config["codes"], by_config["tau"]) == (by_option["codes"], by_option["tau"])
    assert "FAMILY_UNUSED" not in plain["codes"]


@pytest.mark.parametrize(("name", "code"), [("mlflow:gone", 4), ("mlflow:none", 2)])
def test_what_cannot_be_read_leaves_nothing_behind(
    name: str, code: int, config, run: Run, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        (
            "compare",
            "mlflow:fp8",
            name,
            "--planned-steps",
            "1500",
            "--junit",
            "out.xml",
            "--bundle",
            "out.zip",
        ),
        ("calibrate", "mlflow:fp8", name),
        ("plan", "--planned-steps", "1500", "--like", name),
        (
            "import",
            "mlflow:fp8",
            name,
            "--as-run",
            "a",
            "--as-run",
            "b",
            "--server",
            "http://127.0.0.1:9",
        ),
    ):
        status, out, err = run(*line)
        assert (status, out, len(err.splitlines())) == (code, "", 1), line
    assert not list(tmp_path.iterdir())


def test_a_table_of_many_runs_is_no_tracker(config, run: Run) -> None:
    code, _, err = run(
        "compare", "mlflow:fp8", "--arm-by", "arm", "--run-by", "run", "--baseline", "fp8"
    )
    assert code == 2
    assert "is one run of a tracker" in err


def test_columns_and_files_next_to_a_tracker(config, files: dict[str, str], run: Run) -> None:
    assert (
        run("compare", *BOTH, "--column", "mlflow:fp8:loss=loss", "--column", "mxfp8:step=step")[0]
        == 0
    )
    code, _, err = run("compare", *BOTH, "--column", "mlflow:fp8:loss=ce")
    assert (code, "no column 'ce' for loss" in err) == (2, True)
    assert (
        run(
            "compare",
            files["fp8"],
            "b=mlflow:mxfp8",
            "--planned-steps",
            "1500",
            "--schedule",
            "decayed",
            "--recipe",
            "fp8=fp8",
        )[0]
        == 0
    )


def test_a_plan_takes_what_a_run_says_and_options_override_it(config, run: Run) -> None:
    config["fp8"] |= {"step_seconds": 2.0, "parity_family": FAMILY}
    line = ("plan", "--planned-steps", "1500", "--candidate-recipe", "mxfp8", "--json")
    _, out, err = run(*line, "--like", "mlflow:fp8")
    assert (
        "From fp8: loss 1.383, recipe fp8_current, family modded-nanogpt-124M/track3, seconds per "
        "step 2." in err
    )
    stated = ("--baseline-recipe", "fp8_current", "--family", FAMILY, "--step-seconds", "2")
    design = json.loads(out)["design"]
    losses = ("--level", str(design["level"]), "--pair-sd", str(design["pair_sd"]))
    assert json.loads(out) == json.loads(run(*line, *stated, *losses)[1])
    other = json.loads(
        run(*line, "--like", "mlflow:fp8", "--level", "2.5", "--step-seconds", "1")[1]
    )
    assert (other["design"]["level"], other["design"]["step_seconds"]) == (2.5, 1.0)
    assert run("plan", "--planned-steps", "1500", "--column", "loss=x")[0] == 2


def test_an_import_refuses_a_run_that_the_job_does_not_await(config) -> None:
    config["fp8"]["seed"], config["mxfp8"]["seed"] = 1, 2
    fp8, mxfp8 = (
        FinishedRun(run=name, file=f"mlflow:{name}", curve=read_run(f"mlflow:{name}"), context={})
        for name in ("fp8", "mxfp8")
    )
    seeds: dict[int, int] = {}
    refuse_other_run(fp8, {"recipe": "fp8_current", "seed": 0}, None, seeds)
    with pytest.raises(UsageError, match="its recipe is mxfp8, but run mxfp8 is to train nvfp4"):
        refuse_other_run(mxfp8, {"recipe": "nvfp4", "seed": 1}, None, seeds)
    with pytest.raises(UsageError, match="states seed 2, and that of a run before it 1"):
        refuse_other_run(mxfp8, {"recipe": "mxfp8", "seed": 0}, None, seeds)
    refuse_other_run(mxfp8, {"recipe": "other:mine", "seed": 1}, "other:mine", seeds)
