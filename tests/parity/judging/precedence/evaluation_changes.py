"""What is done to two arms of held-out losses so that a rule of their decision holds, by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.judging.precedence.evaluation_pair import MARGIN, STEPS, EvaluationPair, arm

Change = Callable[[EvaluationPair], None]
CHANGES: dict[str, Change] = {}


def change(name: str) -> Callable[[Change], Change]:
    """Register what is done under its name."""

    def register(edit: Change) -> Change:
        CHANGES[name] = edit
        return edit

    return register


def _rebuilt(curve: Curve, steps: np.ndarray, loss: np.ndarray, **changes: Any) -> Curve:
    known = {
        "label": curve.label,
        "seed": curve.seed,
        "recipe": curve.recipe,
        "rounding": curve.rounding,
        "context": curve.context,
        "rolled_back": curve.completeness.rolled_back,
    }
    return curve_from_arrays(steps, loss, **(known | changes))


def _losses(name: str, edit: Callable[[np.ndarray], np.ndarray], *arms: str) -> None:
    """A change of the losses of all runs of some arms."""

    def apply(pair: EvaluationPair) -> None:
        for which in arms:
            runs = getattr(pair, which)
            changed = [_rebuilt(curve, curve.steps, edit(curve.loss.copy())) for curve in runs]
            setattr(pair, which, changed)

    CHANGES[name] = apply


def _policy(name: str, **policy: object) -> None:
    def apply(pair: EvaluationPair) -> None:
        pair.policy |= policy

    CHANGES[name] = apply


def _facts(name: str, base: dict[str, str], cand: dict[str, str]) -> None:
    def apply(pair: EvaluationPair) -> None:
        for which, facts in (("base", base), ("cand", cand)):
            runs = getattr(pair, which)
            known = [
                dataclasses.replace(curve, context={**curve.context, **facts}) for curve in runs
            ]
            setattr(pair, which, known)

    CHANGES[name] = apply


def _late(size: float, points: int) -> Callable[[np.ndarray], np.ndarray]:
    """Worse by a number of margins at a point before the last, counted from the end."""

    def edit(loss: np.ndarray) -> np.ndarray:
        if len(loss) > points:
            loss[-1 - points] += size * MARGIN
        return loss

    return edit


def _growing(first: float, last: float) -> Callable[[np.ndarray], np.ndarray]:
    """Worse by a number of margins up to the last fifth, and by another at the end."""

    def edit(loss: np.ndarray) -> np.ndarray:
        late = len(loss) // 5
        gap = np.concatenate([np.full(len(loss) - late, first), np.linspace(first, last, late)])
        return loss + MARGIN * gap

    return edit


def _rounded(decimals: int, noise: float) -> Callable[[np.ndarray], np.ndarray]:
    """Printed losses of runs that are apart by more than their digits."""

    def edit(loss: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(np.frombuffer(loss[:1].tobytes(), np.uint32))
        return (loss + rng.normal(0.0, noise, len(loss))).round(decimals)

    return edit


def _rising(loss: np.ndarray) -> np.ndarray:
    return loss[::-1].copy()


def _nan(place: int) -> Callable[[np.ndarray], np.ndarray]:
    def edit(loss: np.ndarray) -> np.ndarray:
        loss[place:] = np.nan
        return loss

    return edit


_losses("candidate 2 % worse", lambda loss: loss + 2.0 * MARGIN, "cand")
_losses("candidate at the margin", lambda loss: loss + MARGIN, "cand")
_losses("candidate 3 % better", lambda loss: loss - 3.0 * MARGIN, "cand")
_losses("candidate's losses in bits", lambda loss: loss * 1.4427, "cand")
_losses("candidate's last loss is NaN", _nan(-1), "cand")
_losses("candidate's losses are all NaN", _nan(0), "cand")
_losses("baseline's last loss is NaN", _nan(-1), "base")
_losses("candidate bumps two points before the end", _late(1.4, 2), "cand")
_losses("losses rise as accuracies do", _rising, "base", "cand")
_losses("gap grows beyond the margin", _growing(-0.9, 1.1), "cand")
_losses("gap grows to 0.7 margins", _growing(-0.2, 0.7), "cand")
_losses("losses of hundred nats", lambda loss: 40.0 * loss, "base", "cand")
_losses("losses below zero", lambda loss: loss - 8.0, "base", "cand")
_losses("losses with two decimals", _rounded(2, 0.02), "base", "cand")
_losses("losses with one decimal", _rounded(1, 0.1), "base", "cand")
_policy("assumed noise is rejected", assumed_noise="reject")
_policy("margin of 8 %", margin="8%")
_policy("margin of 4 %", margin="4%")
_policy("margin of the noise floor", margin=None, profile="noise-floor")
_policy("loss of another kind", loss_unit="other")
_policy("schedule not stated", schedule="unstated")
_policy("as of a point is accepted", as_of="accept")
_facts("other data", {"data_digest": "a" * 64}, {"data_digest": "b" * 64})
_facts("one system an arm", {"system": "a"}, {"system": "b"})
_facts("small model", {"parameters": "4000000"}, {"parameters": "4000000"})
_facts("candidate recorded another recipe", {}, {"recorded_recipe": "bf16"})


@change("one run an arm")
def _(pair: EvaluationPair) -> None:
    pair.base, pair.cand = pair.base[:1], pair.cand[:1]


@change("one run an arm of a small model")
def _(pair: EvaluationPair) -> None:
    CHANGES["one run an arm"](pair)
    CHANGES["small model"](pair)


@change("one run an arm of another kind of loss")
def _(pair: EvaluationPair) -> None:
    CHANGES["one run an arm"](pair)
    CHANGES["loss of another kind"](pair)


@change("one run an arm, whose assumed noise is rejected")
def _(pair: EvaluationPair) -> None:
    CHANGES["one run an arm"](pair)
    CHANGES["assumed noise is rejected"](pair)


@change("two runs an arm")
def _(pair: EvaluationPair) -> None:
    pair.base, pair.cand = pair.base[:2], pair.cand[:2]


@change("six runs of the baseline")
def _(pair: EvaluationPair) -> None:
    pair.base = [*pair.base, *arm(7, 8, 9)]


@change("candidate evaluates at other steps")
def _(pair: EvaluationPair) -> None:
    pair.cand = [_rebuilt(curve, curve.steps * 3 + 100_000, curve.loss) for curve in pair.cand]


@change("runs are paired, without a common seed")
def _(pair: EvaluationPair) -> None:
    pair.options["paired"] = True


@change("runs are paired, one of the candidate without a partner")
def _(pair: EvaluationPair) -> None:
    pair.options["paired"] = True
    pair.cand = [
        dataclasses.replace(curve, seed=pair.base[min(place, len(pair.base) - 1)].seed)
        for place, curve in enumerate(pair.cand)
    ]
    pair.cand = [*pair.cand, *arm(17)]


@change("clusters of one system an arm")
def _(pair: EvaluationPair) -> None:
    pair.options["cluster"] = "system"
    for which, system in (("base", "a"), ("cand", "b")):
        runs = getattr(pair, which)
        placed = [
            dataclasses.replace(curve, context={**curve.context, "system": system})
            for curve in runs
        ]
        setattr(pair, which, placed)


@change("candidate's run is a copy of the baseline's")
def _(pair: EvaluationPair) -> None:
    base = pair.base[0]
    pair.cand = [_rebuilt(pair.cand[0], base.steps, base.loss + 0.002), *pair.cand[1:]]


@change("candidate's run begins as the baseline's")
def _(pair: EvaluationPair) -> None:
    base, cand = pair.base[0], pair.cand[0]
    loss = cand.loss.copy()
    loss[: len(loss) // 2] = base.loss[: len(loss) // 2]
    pair.cand = [_rebuilt(cand, cand.steps, loss), *pair.cand[1:]]


@change("a run lacks two late evaluations")
def _(pair: EvaluationPair) -> None:
    cand = pair.cand[0]
    keep = ~np.isin(cand.steps, (1_700, 1_800))
    pair.cand = [_rebuilt(cand, cand.steps[keep], cand.loss[keep]), *pair.cand[1:]]


@change("plan of 1,500 steps")
def _(pair: EvaluationPair) -> None:
    pair.options["planned_steps"] = 1_500


@change("candidate went back from a rise")
def _(pair: EvaluationPair) -> None:
    pair.cand = [
        dataclasses.replace(
            curve, completeness=dataclasses.replace(curve.completeness, rolled_back=0.6)
        )
        for curve in pair.cand
    ]


@change("losses are typed numbers")
def _(pair: EvaluationPair) -> None:
    for which in ("base", "cand"):
        curve = getattr(pair, which)[0]
        last = _rebuilt(curve, curve.steps[-1:], curve.loss[-1:])
        printed = {"printed_step": np.full(1, 1e-4)}
        setattr(pair, which, [dataclasses.replace(last, columns=printed)])


@change("other points are declared")
def _(pair: EvaluationPair) -> None:
    pair.options["at"] = (int(STEPS[9]),)
