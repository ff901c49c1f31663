"""Known-bad input in real curves must never pass, whether it comes through `judge` or through
`parity compare`; each says why.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.judging.curves.curve import Curve
from parity.judging.gap import interval
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

PLAN = 1750
POLICY = policy_from_mapping({"schedule": "decayed", "margin": "1%"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What both entries are given."""

    base: list[Curve]
    cand: list[Curve]
    planned: int | None = PLAN
    stated: bool = True
    engines: tuple[str, str] = ("maxtext", "maxtext")
    controls: list[Curve] = field(default_factory=list)


def with_loss(run: Curve, loss: np.ndarray) -> Curve:
    return curve_from_arrays(run.steps, loss)


def kept(run: Curve, keep: Any) -> Curve:
    return curve_from_arrays(run.steps[keep], run.loss[keep])


def nan_at(run: Curve, where: Any) -> Curve:
    loss = run.loss.copy()
    loss[where] = np.nan
    return with_loss(run, loss)


def sampled(run: Curve) -> Curve:
    """1,500 points of 1,750, as a dashboard's export keeps them, the last one among them."""
    return kept(
        run,
        np.append(
            np.sort(np.random.default_rng(0).choice(PLAN - 1, 1499, replace=False)), PLAN - 1
        ),
    )


def other_order(run: Curve) -> Curve:
    """The same loss with the batches of its last fifth in another order."""
    loss, late = run.loss.copy(), 4 * PLAN // 5
    loss[late:] = np.random.default_rng(0).permutation(loss[late:])
    return with_loss(run, loss)


def smooth(loss: np.ndarray) -> np.ndarray:
    """Means of the last hundred steps."""
    return np.convolve(np.pad(loss, (99, 0), "edge"), np.ones(100) / 100, "valid")


MUTANTS: dict[str, tuple[Callable[[Curve, Curve], Pair], str, str]] = {
    "downsampled": (lambda a, b: Pair(base=[a], cand=[sampled(b)]), "inconclusive", "DOWNSAMPLED"),
    "thinned to every 40th step": (
        lambda a, b: Pair(base=[a], cand=[kept(b, slice(None, None, 40))]),
        "inconclusive",
        "TOO_FEW_STEPS",
    ),
    "2 % NaN": (
        lambda a, b: Pair(base=[a], cand=[nan_at(b, slice(None, None, 50))]),
        "fail",
        "NONFINITE_CAND",
    ),
    "NaN at the end": (lambda a, b: Pair(base=[a], cand=[nan_at(b, -1)]), "fail", "NONFINITE_CAND"),
    "NaN in the baseline": (
        lambda a, b: Pair(base=[nan_at(a, -1)], cand=[b]),
        "inconclusive",
        "BASELINE_INVALID",
    ),
    "another data order": (
        lambda a, b: Pair(base=[a], cand=[other_order(b)]),
        "inconclusive",
        "DATA_ORDER_MISMATCH",
    ),
    "data one step late": (
        lambda a, b: Pair(base=[a], cand=[with_loss(b, np.roll(b.loss, 1))]),
        "inconclusive",
        "STEPS_SHIFTED",
    ),
    "a shortened candidate": (
        lambda a, b: Pair(base=[a], cand=[kept(b, slice(0, 1225))]),
        "inconclusive",
        "AS_OF",
    ),
    "a shortened baseline": (
        lambda a, b: Pair(base=[kept(a, slice(0, 1225))], cand=[b]),
        "inconclusive",
        "AS_OF",
    ),
    "shortened, no plan": (
        lambda a, b: Pair(base=[a], cand=[kept(b, slice(0, 1225))], planned=None),
        "inconclusive",
        "AS_OF",
    ),
    "both cut at one step": (
        lambda a, b: Pair(base=[kept(a, slice(0, 1312))], cand=[kept(b, slice(0, 1312))]),
        "inconclusive",
        "AS_OF",
    ),
    "both cut at one step, no plan": (
        lambda a, b: Pair(
            base=[kept(a, slice(0, 1312))],
            cand=[kept(b, slice(0, 1312))],
            planned=None,
            stated=False,
        ),
        "inconclusive",
        "AS_OF",
    ),
    "suspiciously better": (
        lambda a, b: Pair(base=[a], cand=[with_loss(b, 0.9 * b.loss)]),
        "inconclusive",
        "BETTER_THAN_BASELINE",
    ),
    "constant +2 %": (
        lambda a, b: Pair(base=[a], cand=[with_loss(b, 1.02 * b.loss)]),
        "fail",
        "GAP_EXCEEDS_MARGIN",
    ),
    "mixed engines": (
        lambda a, b: Pair(base=[a], cand=[b], engines=("maxtext", "torchtitan")),
        "inconclusive",
        "CONFOUNDED",
    ),
    "smoothed in one arm": (
        lambda a, b: Pair(base=[a], cand=[with_loss(b, smooth(b.loss))]),
        "inconclusive",
        "ARM_AVERAGED",
    ),
    "smoothed": (
        lambda a, b: Pair(base=[with_loss(a, smooth(a.loss))], cand=[with_loss(b, smooth(b.loss))]),
        "inconclusive",
        "SMOOTHED",
    ),
    "rounded to one decimal": (
        lambda a, b: Pair(
            base=[with_loss(a, a.loss.round(1))], cand=[with_loss(b, b.loss.round(1))]
        ),
        "inconclusive",
        "ROUNDED",
    ),
}


def by_judge(pair: Pair) -> tuple[str, str, list[float] | None]:
    arms = [
        [
            curve_from_arrays(run.steps, run.loss, replicate=number, context={"engine": engine})
            for number, run in enumerate(runs)
        ]
        for runs, engine in zip((pair.base, pair.cand), pair.engines, strict=True)
    ]
    policy = POLICY if pair.stated else policy_from_mapping({"margin": "1%"})
    (verdict,) = judge(
        arms[0], {"cand": arms[1]}, policy, planned_steps=pair.planned, controls=pair.controls
    )
    document = verdict.document()
    return verdict.verdict, verdict.codes[0], document["gap"]["ci95"] if document["gap"] else None


def by_command(
    pair: Pair, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str, list[float] | None]:
    def written(run: Curve, name: str) -> str:
        path = folder / f"{name}.csv"
        path.write_text(
            "step,loss\n"
            + "".join(
                f"{step},{loss!r}\n"
                for step, loss in zip(run.steps.tolist(), run.loss.tolist(), strict=True)
            )
        )
        return str(path)

    base, cand = (
        [written(run, f"{name}{i}") for i, run in enumerate(runs)]
        for name, runs in (("b", pair.base), ("c", pair.cand))
    )
    arguments = ["compare", f"base={base[0]}", f"cand={cand[0]}", "--margin", "1%", "--json"]
    arguments += ["--rounding", "base=nearest", "--rounding", "cand=nearest"]
    arguments += [part for file in base[1:] for part in ("--baseline-run", file)]
    arguments += [part for file in cand[1:] for part in ("--candidate-run", f"cand={file}")]
    arguments += [
        part for i, run in enumerate(pair.controls) for part in ("--control", written(run, f"x{i}"))
    ]
    arguments += [
        part
        for name, engine in zip(("base", "cand"), pair.engines, strict=True)
        for part in ("--context", f"{name}:engine={engine}")
    ]
    arguments += ["--planned-steps", str(pair.planned)] if pair.planned else []
    arguments += ["--schedule", "decayed"] if pair.stated else []
    with pytest.raises(SystemExit) as left:
        main(arguments)
    (entry,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert left.value.code == {"pass": 0, "fail": 1, "inconclusive": 3}[entry["verdict"]]
    return entry["verdict"], entry["codes"][0], entry["gap"]["ci95"] if entry["gap"] else None


def test_the_pair_itself_passes(
    reruns: tuple[Curve, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(base=[reruns[0]], cand=[reruns[1]])
    assert by_judge(pair)[:2] == ("pass", "WITHIN_MARGIN")
    assert by_command(pair, tmp_path, capsys)[:2] == ("pass", "WITHIN_MARGIN")


@pytest.mark.parametrize("name", list(MUTANTS))
def test_no_mutant_passes(
    name: str, reruns: tuple[Curve, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, state, code = MUTANTS[name]
    pair = make(reruns[0], reruns[1])
    assert by_judge(pair)[:2] == (state, code)
    assert by_command(pair, tmp_path, capsys)[:2] == (state, code)


def test_one_run_listed_eight_times_changes_nothing(
    reruns: tuple[Curve, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = Pair(base=[reruns[0]], cand=[reruns[1]])
    often = Pair(base=[reruns[0]] * 8, cand=[reruns[1]] * 8, controls=[reruns[0]] * 3)
    assert by_judge(often) == by_judge(once)
    assert by_command(often, tmp_path, capsys) == by_command(once, tmp_path, capsys)


def test_one_run_in_several_formats_changes_nothing(
    reruns: tuple[Curve, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def copies(run: Curve) -> list[Curve]:
        return [
            run,
            with_loss(run, run.loss.astype(np.float32)),
            with_loss(run, run.loss.round(5)),
            kept(run, slice(None, None, 1)),
        ]

    once = Pair(base=[reruns[0]], cand=[reruns[1]])
    often = Pair(base=copies(reruns[0]), cand=copies(reruns[1]), controls=copies(reruns[0])[1:])
    assert by_judge(often) == by_judge(once)
    assert by_command(often, tmp_path, capsys) == by_command(once, tmp_path, capsys)


def rejected(reruns: tuple[Curve, ...]) -> float:
    """Share of the ordered pairs of reruns whose interval does not hold 0."""
    pairs = list(itertools.permutations(reruns, 2))
    bounds = [
        judge([base], {"c": [cand]}, POLICY, planned_steps=PLAN)[0].gap.bounds(0.95)
        for base, cand in pairs
    ]
    return sum(not lo <= 0.0 <= hi for lo, hi in bounds) / len(pairs)


def test_a5_the_guard_sees_a_judge_without_its_between_run_term(
    reruns: tuple[Curve, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rejected(reruns) < 0.15
    whole = interval.interval
    monkeypatch.setattr(
        "parity.judging.gap.window_statistics.interval",
        lambda mean, within, run: whole(mean, within, dataclasses.replace(run, variance=0.0)),
    )
    assert rejected(reruns) > 0.7


def test_a_better_candidate_whose_batches_agree_only_in_part_read_other_data(make_run, judge_pair):
    """As NVFP4 of a set on GB200, whose noise correlates 0.65 with the baseline's and which is 5 %
    better.
    """
    base, same = make_run(), make_run(seed=2, gap=-0.2)
    rng = np.random.default_rng(5)
    mixed = curve_from_arrays(
        same.steps, same.loss + rng.normal(0.0, 0.085, len(same.loss)), rounding="nearest"
    )
    other, honest = judge_pair(base, mixed), judge_pair(base, same)
    assert 0.5 < other.measurements.r_pair < 0.9
    assert other.codes[0] == "DATA_ORDER_MISMATCH"
    assert honest.codes[0] == "BETTER_THAN_BASELINE"
    level = judge_pair(base, curve_from_arrays(mixed.steps, mixed.loss + 0.2, rounding="nearest"))
    assert level.verdict == "pass"
    assert "PAIRING_WEAK" in level.codes
