"""`parity.compare` and `parity.assert_parity`: the verdicts of the command line, from every kind of
data, and clear refusals.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.judging.policy import PolicyError

POLICY: dict[str, Any] = {
    "schedule": "decayed",
    "margin": "1%",
    "planned_steps": 1500,
    "rounding": "nearest",
}


def _as_dict(frame):
    return {name: frame[name].tolist() for name in frame}


@pytest.mark.parametrize(
    "kind",
    [
        lambda frame: frame,
        _as_dict,
        lambda frame: frame["loss"].to_numpy(),
        lambda frame: parity.curve_from_arrays(frame["step"], frame["loss"]),
        lambda frame: [frame],
    ],
    ids=["frame", "dict", "array", "curve", "list"],
)
def test_every_kind_of_data_gives_the_same_verdict(kind, frames):
    expected = parity.compare(frames["fp8"], frames["nvfp4"], **POLICY)
    result = parity.compare(kind(frames["fp8"]), kind(frames["nvfp4"]), **POLICY)
    assert (result.verdict, result.gap, result.interval, result.margin) == (
        "fail",
        expected.gap,
        expected.interval,
        expected.margin,
    )


def test_files_give_the_document_of_the_command_line(frames, tmp_path, capsys):
    paths = []
    for name in ("fp8", "again", "nvfp4"):
        paths.append(str(tmp_path / f"{name}.csv"))
        frames[name].to_csv(paths[-1], index=False)
    recipes = {"baseline": "fp8_current", "nvfp4": "nvfp4"}
    options = {
        "margin": "1%",
        "planned_steps": 1500,
        "recipe": recipes,
        "family": "any-decoder",
        "context": {"engine": "x"},
    }
    result = parity.compare([paths[0], tmp_path / "again.csv"], paths[2], **options)
    call = [
        "compare",
        paths[0],
        paths[2],
        "--baseline-run",
        paths[1],
        "--recipe",
        "fp8=fp8_current",
        "--recipe",
        "nvfp4=nvfp4",
    ]
    call += [
        "--margin",
        "1%",
        "--planned-steps",
        "1500",
        "--family",
        "any-decoder",
        "--context",
        "fp8:engine=x",
    ]
    with pytest.raises(SystemExit):
        main([*call, "--context", "nvfp4:engine=x", "--json"])
    assert result.to_dict() == json.loads(capsys.readouterr().out)["verdicts"][0]


def test_without_a_plan_nothing_passes(frames):
    assert (
        parity.compare(frames["fp8"], frames["mxfp8"], margin="1%", rounding="nearest").verdict
        == "inconclusive"
    )
    assert (
        parity.compare(
            frames["fp8"], frames["mxfp8"], margin="1%", rounding="nearest", assume_complete=True
        ).verdict
        == "inconclusive"
    )
    assert (
        parity.compare(
            frames["fp8"], frames["mxfp8"], margin="1%", rounding="nearest", schedule="decayed"
        ).verdict
        == "pass"
    )


def test_numbers_of_numpy_are_whole_numbers_too(frames):
    steps = frames["fp8"]["step"].max() + 1
    assert (
        parity.compare(
            frames["fp8"],
            frames["mxfp8"],
            **{**POLICY, "planned_steps": steps, "seeds": np.array([3])},
        ).verdict
        == "pass"
    )


def test_a_policy_may_be_an_object_keys_or_a_file(frames, tmp_path):
    (tmp_path / "parity.yaml").write_text("policy: {margin: 2 %, min_points: 250}\n")
    arms = frames["fp8"], frames["mxfp8"]
    for policy in (
        parity.Policy(margin="2%", min_points=250),
        {"margin": "2%", "min_points": 250},
        tmp_path / "parity.yaml",
    ):
        result = parity.compare(*arms, policy=policy, planned_steps=1500)
        assert result.case.policy == parity.Policy(margin="2%", min_points=250)
        over = parity.compare(*arms, policy=policy, margin="1%", planned_steps=1500)
        assert over.case.policy == parity.Policy(margin="1%", min_points=250)
    assert parity.compare(*arms, planned_steps=1500).case.policy.profile == "nvfp4"


@pytest.mark.parametrize("margin", ["1", 1, 0.01, "0.01"])
def test_a_margin_without_a_unit_is_refused_everywhere(margin, frames):
    arms = frames["fp8"], frames["nvfp4"]
    for call in (
        lambda: parity.Policy(margin=margin),
        lambda: parity.compare(*arms, margin=margin),
        lambda: parity.compare(*arms, policy={"margin": margin}),
    ):
        with pytest.raises(PolicyError, match="unit"):
            call()


def test_controls_and_short_reruns_measure_the_noise_of_an_arm(frames):
    arms = frames["fp8"], frames["edge"]
    control = parity.compare(*arms, **POLICY, controls=frames["again"])
    assert [len(control.document["inputs"][side]) for side in ("controls", "baseline")] == [1, 1]
    noise = parity.compare(*arms, **POLICY, short_reruns={"baseline": [frames["again"].head(900)]})
    assert len(noise.document["inputs"]["short_reruns"]["baseline"]) == 1


REFUSED = [
    ({"planned_steps": 0}, ValueError, "planned_steps"),
    ({"planned_steps": True}, ValueError, "planned_steps"),
    ({"planned_steps": 1500.0}, ValueError, "planned_steps"),
    ({"assume_complete": True}, ValueError, "exclude each other"),
    ({"planned_steps": None, "assume_complete": "no"}, ValueError, "True or False"),
    ({"seeds": "0"}, TypeError, "list of whole numbers"),
    ({"seeds": [0.5]}, TypeError, "list of whole numbers"),
    ({"margin": "2 percent"}, PolicyError, "positive amount"),
    ({"margin": None, "profile": "nvpf4"}, PolicyError, "one of"),
    ({"policy": 3}, TypeError, "policy"),
    ({"policy": "/nowhere.yaml"}, ValueError, "no such file"),
    ({"checks": "spikes"}, TypeError, "list of names"),
    ({"checks": ["spike"]}, PolicyError, "checks"),
    ({"recipe": "nvpf4"}, ValueError, "did you mean nvfp4"),
    ({"recipe": 4}, TypeError, "recipe"),
    ({"recipe": {"candidat": "nvfp4"}}, ValueError, "did you mean candidate"),
    ({"recipe": "nvfp4"}, ValueError, "rounds stochastically"),
    ({"rounding": "neerest"}, ValueError, "did you mean nearest"),
    ({"rounding": {"candidate": 1}}, TypeError, "rounding"),
    ({"context": {"candidate": 1}}, TypeError, "context"),
    ({"seeds": [0, 1]}, ValueError, "2 seeds for 1 run"),
    ({"noise_table": "noise.csv"}, ValueError, "without family"),
    ({"family": "nope"}, ValueError, "expected one of the"),
    ({"parameters": "8"}, ValueError, "did you mean 8B"),
    ({"noise_table": "/nowhere.csv", "family": "any-decoder"}, ValueError, "cannot be read"),
    ({"noise_table": 3, "family": "any-decoder"}, TypeError, "noise_table"),
    ({"names": ("a", "a")}, ValueError, "different names"),
    ({"short_reruns": []}, TypeError, "short_reruns"),
    ({"columns": {"loss": "los"}}, ValueError, "no column 'los'"),
]


@pytest.mark.parametrize(("options", "kind", "words"), REFUSED, ids=lambda value: str(value)[:50])
def test_wrong_options_are_refused_with_what_was_expected(options, kind, words, frames):
    with pytest.raises(kind, match=words):
        parity.compare(frames["fp8"], frames["nvfp4"], **{**POLICY, **options})


@pytest.mark.parametrize("name", ["grad_norm", "tokens", "step_time"])
def test_a_column_of_another_quantity_is_not_read_as_the_loss(name, frames, tmp_path):
    both = [frames[arm].assign(**{name: frames[arm]["loss"]}) for arm in ("fp8", "mxfp8")]
    files = [str(tmp_path / f"{number}.csv") for number in range(2)]
    for frame, file in zip(both, files, strict=True):
        frame.to_csv(file, index=False)
    for runs in (both, files):
        with pytest.raises(ValueError, match="was named for the loss, and is that of"):
            parity.compare(*runs, **POLICY, columns={"loss": name})
        assert parity.compare(*runs, **POLICY, columns={"loss": "loss"}).verdict == "pass"


def test_the_same_file_is_not_compared_with_itself(frames, tmp_path):
    path = str(tmp_path / "fp8.csv")
    frames["fp8"].to_csv(path, index=False)
    for base, candidate in ((path, path), ([path, path], frames["nvfp4"])):
        with pytest.raises(ValueError, match="given twice"):
            parity.compare(base, candidate, **POLICY)


def test_runs_in_other_units_are_refused(frames):
    tokens = frames["nvfp4"].assign(step=frames["nvfp4"]["step"] * 524_288)
    with pytest.raises(ValueError, match="one unit"):
        parity.compare(frames["fp8"], tokens, **POLICY)


def test_assert_parity_fails_on_fail_and_on_inconclusive(frames):
    assert parity.assert_parity(frames["fp8"], frames["mxfp8"], **POLICY).verdict == "pass"
    with pytest.raises(AssertionError, match="GAP_EXCEEDS_MARGIN"):
        parity.assert_parity(frames["fp8"], frames["nvfp4"], **POLICY, allow_inconclusive=True)
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        parity.assert_parity(frames["fp8"], frames["edge"], **POLICY)
    assert (
        parity.assert_parity(
            frames["fp8"], frames["edge"], **POLICY, allow_inconclusive=True
        ).verdict
        == "inconclusive"
    )
    # Runs that could not be compared are never accepted.
    for candidate in (
        {"step": np.array([]), "loss": np.array([])},
        frames["fp8"],
        frames["edge"].head(20),
    ):
        assert parity.compare(frames["fp8"], candidate, **POLICY).verdict == "inconclusive"
        with pytest.raises(AssertionError, match="allow_inconclusive does not apply"):
            parity.assert_parity(frames["fp8"], candidate, **POLICY, allow_inconclusive=True)
    with pytest.raises(TypeError, match="allow_inconclusive"):
        parity.assert_parity(frames["fp8"], frames["nvfp4"], **POLICY, allow_inconclusive="fail")


def test_nan_is_data(frames):
    broken = frames["mxfp8"].copy()
    broken.loc[1200:, "loss"] = np.nan
    assert parity.compare(frames["fp8"], broken, **POLICY).verdict == "fail"


def test_the_plan_that_the_sources_state_counts_where_nothing_else_is_stated(frames):
    def arm(frame, planned):
        run = parity.curve_from_arrays(frame["step"], frame["loss"], rounding="nearest")
        return dataclasses.replace(run, context={"planned_steps": planned} if planned else {})

    def plan(*planned, **stated):
        runs = (
            arm(frames[name], each) for name, each in zip(("fp8", "again"), planned, strict=True)
        )
        return parity.compare(*runs, margin="1%", **stated).document["params"]

    assert (plan("1500", None)["planned_steps"], plan("1500", None)["plan"]) == (1500, "declared")
    assert (
        plan("3000", "3000")["planned_steps"],
        plan("3000", "3000", planned_steps=1500)["planned_steps"],
    ) == (3000, 1500)
    assert plan("3000", "1500")["plan"] == "unknown"
    assert plan("3000", "3000", assume_complete=True)["plan"] == "assumed complete"


def test_a_stated_recipe_of_another_precision_than_the_record_passes_nothing(frames):
    base = parity.curve_from_arrays(frames["fp8"]["step"], frames["fp8"]["loss"], recipe="fp8")
    cand = parity.curve_from_arrays(frames["again"]["step"], frames["again"]["loss"], recipe="bf16")
    swapped = parity.compare(
        base,
        cand,
        schedule="decayed",
        margin="1%",
        planned_steps=1500,
        recipe={"candidate": "mxfp8"},
    )
    assert (swapped.verdict, swapped.document["codes"][0]) == (
        "inconclusive",
        "RECIPE_CONTRADICTED",
    )
    same = dataclasses.replace(cand, recipe="fp8_current")
    assert (
        parity.compare(
            base,
            same,
            schedule="decayed",
            margin="1%",
            planned_steps=1500,
            recipe={"candidate": "mxfp8"},
        ).verdict
        == "pass"
    )
