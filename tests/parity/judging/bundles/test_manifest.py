"""A manifest that somebody forged: each part that is no case is refused by its place, in one short
line.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.judging.bundles.read_bundle import EvidenceError, case_of
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy
from parity.judging.secondary.accuracy import TaskResult

Manifest = dict[str, Any]


@pytest.fixture
def forged(
    tmp_path: Path, make_run: Callable[..., Curve], one_percent: Policy
) -> Callable[[Callable[[Manifest], object]], str]:
    """A bundle whose manifest was changed."""
    case = Case(
        baseline=[make_run(n=400, seed=1, context={"engine": "e"}), make_run(n=400, seed=2)],
        candidates={"one": [make_run(n=400, seed=3)], "two": [make_run(n=400, seed=4)]},
        policy=one_percent,
        planned_steps=400,
        baseline_name="base",
        layer_snr_db={"one": {("layers.0", "weight"): 20.0}},
        short_reruns={"one": [make_run(n=200, seed=5)]},
        evaluations={
            name: {"t": TaskResult(correct=1, items=2, by_item={"a": True, "b": False})}
            for name in ("base", "one")
        },
    )

    def forge(change: Callable[[Manifest], object], member: str = "manifest.json") -> str:
        path = tmp_path / "x.zip"
        path.write_bytes(bundle_bytes(case, case.documents()))
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        content = json.loads(files[member])
        change(content)
        files[member] = json.dumps(content).encode()
        if member != "manifest.json":
            manifest = json.loads(files["manifest.json"])
            manifest["sha256"][member] = hashlib.sha256(files[member]).hexdigest()
            files["manifest.json"] = json.dumps(manifest).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return str(path)

    return forge


def refused(path: str) -> str:
    with pytest.raises(EvidenceError) as error:
        verify(path)
    line = str(error.value)
    assert line.isascii()
    assert "\n" not in line
    assert len(line) < 700
    return line


def test_names_of_earlier_judges_are_read(forged: Callable[..., str]) -> None:
    """They wrote `criteria` with `gates` and run floors, and the role of a short rerun as
    `noise`.
    """
    earlier = {
        "checks": "gates",
        "run_noise_df": "run_floor_df",
        "run_noise_evidence": "run_floor_evidence",
        "baseline_run_noise": "baseline_run_floor",
        "candidate_run_noise": "candidate_run_floor",
    }

    def rename(manifest: Manifest) -> None:
        manifest["criteria"] = {
            earlier.get(key, key): value for key, value in manifest.pop("policy").items()
        }
        manifest["criteria"] |= {
            "run_floor_df": 7.0,
            "gates": ["loss", "spikes"],
            "baseline_run_floor": "0.1%",
        }
        manifest["arms"][-1]["role"] = "noise"

    case = case_of(forged(rename))
    assert isinstance(case, Case)
    assert (case.policy.run_noise_df, case.policy.checks, str(case.policy.baseline_run_noise)) == (
        7.0,
        ("loss", "spikes"),
        "0.1 %",
    )
    assert [len(runs) for runs in case.short_reruns.values()] == [1]


def test_an_untouched_bundle_is_identical(forged: Callable[..., str]) -> None:
    assert verify(forged(lambda _: None)).differences == ()


def test_as_many_short_reruns_as_the_judge_takes_verify(
    tmp_path: Path, make_run: Callable[..., Curve], one_percent: Policy
) -> None:
    case = Case(
        baseline=[make_run(n=400, seed=1)],
        candidates={"one": [make_run(n=400, seed=3)]},
        policy=one_percent,
        planned_steps=400,
        baseline_name="base",
        short_reruns={
            name: [make_run(n=200, seed=first + number) for number in range(16)]
            for name, first in (("base", 10), ("one", 30))
        },
    )
    path = tmp_path / "x.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    assert verify(str(path)).differences == ()


def first_run(manifest: Manifest) -> Manifest:
    run: Manifest = manifest["arms"][0]["runs"][0]
    return run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(arms={}), "arms is {}"),
        (lambda m: m.update(arms=[7]), "arms[0] is 7"),
        (
            lambda m: m.update(arms=[{"role": "baseline", "name": "x", "runs": "abc"}]),
            "arms[0].runs is 'abc'",
        ),
        (lambda m: m["arms"].insert(0, m["arms"].pop(1)), "arms[0].role is 'candidate'"),
        (
            lambda m: m["arms"].append(m["arms"][-1] | {"runs": []}),
            "expected another name for each short_rerun arm",
        ),
        (lambda m: m["arms"][-1].update(name="three"), "short reruns are given for 'three'"),
        (
            lambda m: m["arms"][-1].update(runs=17 * m["arms"][-1]["runs"]),
            "17 short reruns; expected at most 16 per arm",
        ),
        (
            lambda m: m["arms"].extend(
                [{"role": "short_rerun", "name": str(i), "runs": []} for i in range(200)]
            ),
            "at most 64 candidates",
        ),
        (lambda m: m["arms"][1].update(role="baseline"), "arms[1].role is 'baseline'"),
        (lambda m: m["arms"][1].update(role="referee"), "arms[1].role is 'referee'"),
        (lambda m: m["arms"][2].update(name="one"), "arms[2].name is 'one' again"),
        (lambda m: m["arms"][1].update(name=5), "arms[1].name is 5"),
        (
            lambda m: m["arms"].extend(
                [{"role": "candidate", "name": str(i), "runs": []} for i in range(70)]
            ),
            "at most 64 candidates",
        ),
        (lambda m: m["arms"][1]["runs"].extend(m["arms"][1]["runs"] * 300), "256 runs"),
        (lambda m: m["arms"][1]["runs"].extend(m["arms"][1]["runs"]), "named once"),
        (lambda m: m["arms"][1]["runs"].append(None), "runs[1] is None"),
        (lambda m: first_run(m).update(seed="0"), "seed is '0'"),
        (lambda m: first_run(m).update(seed=True), "seed is True"),
        (lambda m: first_run(m).update(seed=10**400), "401 digits"),
        (lambda m: first_run(m).update(seed=0.5), "seed is 0.5"),
        (lambda m: first_run(m).update(label={"a": 1}), "label is"),
        (lambda m: first_run(m).update(context=[]), "context is []"),
        (
            lambda m: first_run(m).update(context={"engine": {"x": "y" * 9999}}),
            "expected texts in context",
        ),
        (lambda m: first_run(m).update(notes=[["x"]]), "expected texts in context and notes"),
        (lambda m: first_run(m).update(duplicates=-1), "duplicates is -1"),
        (lambda m: first_run(m).update(duplicates=float("nan")), "holds NaN"),
        (lambda m: first_run(m).update(rounding="up"), "rounding is 'up'"),
        (lambda m: first_run(m).update(rounding=["up"]), "rounding"),
        (lambda m: first_run(m).update(arrays={}), "steps"),
        (lambda m: first_run(m)["arrays"].update(loss="nowhere.npy"), "named once"),
        (lambda m: first_run(m)["arrays"].update(loss=["x"]), "named once"),
        (lambda m: first_run(m)["arrays"].update(loss="verdict.json"), "not a NumPy array"),
        (
            lambda m: first_run(m)["arrays"].update(
                steps=first_run(m)["arrays"]["loss"], loss=first_run(m)["arrays"]["steps"]
            ),
            "whole number",
        ),
        (lambda m: m.update(planned_steps="400"), "planned_steps is '400'"),
        (lambda m: m.update(planned_steps=True), "planned_steps is True"),
        (lambda m: m.update(planned_steps=0), "planned_steps"),
        (lambda m: m.update(planned_steps=-(2**62)), "planned_steps"),
        (lambda m: m.update(assume_complete="yes"), "assume_complete is 'yes'"),
        (lambda m: m.update(assume_complete=1), "assume_complete is 1"),
        (lambda m: m.update(layer_policy=["x"]), "layer_policy is"),
        (lambda m: m.update(layer_snr_db=[]), "layer_snr_db is []"),
        (lambda m: m["layer_snr_db"].update(one=[["a", "b", "loud"]]), "loud"),
        (lambda m: m["layer_snr_db"].update(one=[["a"]]), "unpack"),
        (
            lambda m: m["layer_snr_db"].update(one=[["a", "b", "c", "d", 1.0]]),
            "expected at most 4 values",
        ),
        (lambda m: m.update(policy=None), "policy"),
        (lambda m: m["policy"].update(confidence=-1.0), "confidence"),
        (lambda m: m["policy"].update(run_noise_df=-4.0), "run_noise_df"),
        (lambda m: m["policy"].update(baseline_run_noise=-0.001), "baseline_run_noise"),
        (lambda m: m["policy"].update(margin="x" * 100_000), "margin"),
        (lambda m: m["policy"].update(window_fraction=1e300), "window_fraction"),
        (lambda m: m.pop("planned_steps"), "planned_steps"),
    ],
)
def test_a_forged_part_is_named(
    change: Callable[[Manifest], object], words: str, forged: Callable[..., str]
) -> None:
    assert words in refused(forged(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e["base"].update(t=5), "evaluations['base'] is 5"),
        (lambda e: e["base"]["t"].update(correct=-1), "-1 correct of 2"),
        (lambda e: e["base"]["t"].update(items=0), "of 0 items"),
        (lambda e: e["base"]["t"].update(items=2.0), "items is 2.0"),
        (lambda e: e["base"]["t"].update(correct=2), "results by item say otherwise"),
        (lambda e: e["base"]["t"].update(by_item={"a": 1, "b": 0}), "by_item holds other values"),
        (lambda e: e["base"]["t"].update(by_item=["a"]), "by_item is"),
        (lambda e: e.pop("base"), "expected base"),
    ],
)
def test_forged_evaluations_are_named(
    change: Callable[[Manifest], object], words: str, forged: Callable[..., str]
) -> None:
    assert words in refused(forged(change, "evaluations.json"))


def test_a_deep_or_endless_evaluation_is_refused(forged: Callable[..., str]) -> None:
    path = forged(lambda _: None)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["evaluations.json"] = b"[" * 100_000
    manifest = json.loads(files["manifest.json"])
    manifest["sha256"]["evaluations.json"] = hashlib.sha256(files["evaluations.json"]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert "nested too deeply" in refused(path)


@pytest.mark.parametrize(
    "value", [-1.0, 10**18, "x" * 100_000, [[[]]], {"variance": -1e308}, None, 2**63]
)
def test_a_forged_number_of_a_verdict_is_one_short_difference(
    value: object, forged: Callable[..., str]
) -> None:
    """A negative variance, or anything else, where the recomputation has a number."""
    lines = verify(
        forged(
            lambda document: document["verdicts"][0]["se_parts"].update(run=value), "verdict.json"
        )
    ).differences
    assert len(lines) == 1
    assert lines[0].startswith("verdicts[0].se_parts.run: ")
    assert len(lines[0]) < 200


def test_differences_without_end_are_cut(forged: Callable[..., str]) -> None:
    def many(document: Manifest) -> None:
        document["verdicts"][0].update({f"extra {number}": "x" * 200 for number in range(3000)})

    assert len(verify(forged(many, "verdict.json")).differences) == 1000


def test_steps_out_of_range_are_refused(forged: Callable[..., str]) -> None:
    """Steps are whole numbers from 0 to 2^53, also in a bundle."""
    path = forged(lambda _: None)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = json.loads(files["manifest.json"])["arms"][0]["runs"][0]["arrays"]["steps"]
    for step in (2**53 + 1, -1):
        head, steps = files[name][:-3200], np.frombuffer(files[name][-3200:], "<i8").copy()
        steps[-1] = step
        files[name] = head + steps.tobytes()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in files.items():
                archive.writestr(member, data)
        assert f"step {step}" in refused(path)
