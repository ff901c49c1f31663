"""A candidate that is judged against another candidate."""

import dataclasses
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.canonical_json import json_value
from parity.judging.bundles.read_bundle import EvidenceError, case_of
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.decision import FAIL, PASS
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge
from parity.report.verdict_gap import verdict_gap

MakeRun = Callable[..., Curve]
SEEDS = (0, 1, 2)
STEPS = 2000


def at(revision: str, **further: str) -> dict[str, str]:
    return {
        "code_digest": f"digest-{revision}",
        "repository_revision": revision,
        "device_class": "h100",
        "data_digest": "d",
        **further,
    }


def arm(
    make_run: MakeRun,
    revision: str,
    *,
    own: int = 0,
    seeds: tuple[int, ...] = SEEDS,
    **options: Any,
) -> list[Curve]:
    """Runs of one seed and batch order each; arms with equal `own` are equal bit for bit."""
    context = options.pop("context", None) or at(revision)
    return [
        make_run(
            seed=100 * own + seed + 1, batch_seed=seed, context=context, recipe="bf16", **options
        )
        for seed in seeds
    ]


def seeded(runs: list[Curve]) -> list[Curve]:
    return [dataclasses.replace(run, seed=seed) for seed, run in enumerate(runs)]


@pytest.fixture
def base(make_run: MakeRun) -> list[Curve]:
    return seeded(arm(make_run, "base"))


def changed(run: Curve, loss: np.ndarray | None = None, **context: str) -> Curve:
    values = run.loss if loss is None else loss
    return curve_from_arrays(
        run.steps[: len(values)],
        values,
        label=run.label,
        seed=run.seed,
        recipe=run.recipe,
        rounding=run.rounding,
        context={**run.context, **context},
    )


@pytest.fixture
def case(make_run: MakeRun, base: list[Curve], one_percent: Policy) -> Case:
    """Base, a head that is worse by 0.6 nats, and nvfp4 at that head, level with it."""
    head = seeded(arm(make_run, "head", own=1, gap=0.6))
    nvfp4 = [
        make_run(
            seed=300 + seed,
            batch_seed=seed,
            gap=0.6,
            context=at("head"),
            recipe="nvfp4",
            rounding=None,
        )
        for seed in SEEDS
    ]
    return Case(
        baseline=base,
        candidates={"head": head, "head-nvfp4": seeded(nvfp4)},
        policy=one_percent,
        planned_steps=STEPS,
        baseline_name="base",
        controls=[make_run(seed=500, batch_seed=0, context=at("base"), recipe="bf16")],
        compares={"head": "revision"},
        against={"head-nvfp4": "head"},
    )


def test_a_recipe_at_head_is_judged_against_head(case: Case) -> None:
    head, nvfp4 = case.documents()
    assert [document["baseline"]["name"] for document in (head, nvfp4)] == ["base", "head"]
    assert [document["verdict"] for document in (head, nvfp4)] == [FAIL, PASS]
    assert nvfp4["baseline"]["recipe"] == "bf16"
    assert "compares" not in nvfp4
    assert (len(head["inputs"]["controls"]), len(nvfp4["inputs"]["controls"])) == (1, 0)
    assert nvfp4["other_candidates"] == []  # the one other candidate is what it was judged against
    gap = verdict_gap(nvfp4, case)
    assert abs(float(gap.mean[-1])) < 0.05


def test_a_bundle_judges_to_the_same_documents(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    assert verify(str(path)).differences == ()
    read = case_of(str(path))
    assert isinstance(read, Case)
    assert (read.compares, read.against) == (case.compares, case.against)
    assert json_value(read.documents()) == json_value(case.documents())
    plain = dataclasses.replace(case, compares={}, against={})
    path.write_bytes(bundle_bytes(plain, plain.documents()))
    assert b'"against"' not in bundle_manifest(path)
    assert b'"compares"' not in bundle_manifest(path)


def bundle_manifest(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("manifest.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compares", ["head"]),
        ("compares", {"head": "engine"}),
        ("compares", {"head": ["revision"]}),
        ("compares", {"nobody": "revision"}),
        ("compares", {"head-nvfp4": "revision"}),  # its recipe is another one
        ("against", {"head-nvfp4": 3}),
        ("against", {"head-nvfp4": "base"}),
        ("against", {"head-nvfp4": "head-nvfp4"}),
        ("against", "head"),
    ],
)
def test_a_bundle_that_compares_nonsense_is_refused(
    key: str, value: Any, case: Case, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    forged = dataclasses.replace(case, **{key: value})
    path.write_bytes(bundle_bytes(forged, case.documents()))
    with pytest.raises(EvidenceError):
        verify(str(path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compares": {"heads": "revision"}}, "'heads'"),
        ({"compares": {"head": "code"}}, "'code'"),
        ({"compares": {"head-nvfp4": "revision"}}, "bf16, nvfp4"),
        ({"against": {"head": "base"}}, "'base'"),
        ({"against": {"nobody": "head"}}, "'nobody'"),
        ({"against": {"head": "head"}}, "circle"),
        ({"against": {"head": "head-nvfp4", "head-nvfp4": "head"}}, "circle"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    options: dict[str, Any], words: str, case: Case
) -> None:
    with pytest.raises(ValueError, match=words):
        judge(
            case.baseline,
            case.candidates,
            case.policy,
            planned_steps=STEPS,
            baseline_name="base",
            **options,
        )


def test_an_arm_may_be_judged_against_one_that_is_judged_against_a_third(
    case: Case, make_run: MakeRun
) -> None:
    later = [changed(run, **at("next")) for run in case.candidates["head-nvfp4"]]
    chain = dataclasses.replace(
        case,
        candidates={**case.candidates, "next": later},
        compares={"head": "revision", "next": "revision"},
        against={"head-nvfp4": "head", "next": "head-nvfp4"},
    )
    last = chain.documents()[-1]
    assert (last["baseline"]["name"], last["codes"][0], last["multiplicity"]["candidates"]) == (
        "head-nvfp4",
        "IDENTICAL",
        3,
    )
