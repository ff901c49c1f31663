"""What the looks of a healing say so far, as the record, the API and the pages keep it."""

from collections.abc import Sequence
from typing import TypedDict

from parity_lab.healing import (
    Contradiction,
    HealingSetup,
    Look,
    Outcome,
    estimated_switch,
    found,
    next_switch,
    steps_spent,
    steps_to_keep,
)


class SwitchLookDocument(TypedDict):
    """A look: the verdict on the switch at a step, which is this `share` of the run's steps."""

    step: int
    share: float
    verdict: str
    gap: float | None
    low: float | None
    high: float | None
    level: float | None
    code: str
    sentence: str


class HealingAnswer(TypedDict):
    """`switch`: the latest step from which the safer recipe suffices, `share` that of the run's
    steps before it; None where none passes. `until`: the earliest step after it that does not pass.
    `margin_share`: its gap as a share of the margin. `estimate`: the latest kept step whose gap is
    expected below the margin, noise left aside; None where there is none. `looks` are in the order
    of their steps.

    `complete`: no look follows. `untested`: kept steps that could still change the answer.
    `contradictions`: pairs of switches of which the earlier one has the larger gap. `keep`: steps
    whose checkpoints would bring the answer closer. `steps_spent`: in steps of training.
    """

    outcome: Outcome
    switch: int | None
    share: float | None
    margin_share: float | None
    estimate: int | None
    until: int
    complete: bool
    is_stopped: bool
    looks: list[SwitchLookDocument]
    untested: list[int]
    contradictions: list[Contradiction]
    keep: list[int]
    steps_spent: float


def healing_answer(setup: HealingSetup, looks: Sequence[Look]) -> HealingAnswer:
    """The answer of these looks."""
    said = found(setup, looks)
    named = next((look for look in looks if look.step == said.switch), None)
    margin_share = None
    if named is not None and named.gap is not None and setup.margin:
        margin_share = named.gap / setup.margin
    return HealingAnswer(
        outcome=said.outcome,
        switch=said.switch,
        share=None if said.switch is None else said.switch / setup.run_steps,
        margin_share=margin_share,
        estimate=estimated_switch(setup, looks),
        until=said.until,
        complete=next_switch(setup, looks) is None,
        is_stopped=said.is_stopped,
        looks=[_look_document(setup, look) for look in sorted(looks, key=lambda look: look.step)],
        untested=list(said.untested),
        contradictions=list(said.contradictions),
        keep=steps_to_keep(setup, looks),
        steps_spent=steps_spent(setup, looks),
    )


def net_speedup(share: float, speedup: float) -> float:
    """How much faster than the baseline a run is whose first `share` of steps has this speedup, and
    whose rest is as fast as the baseline.
    """
    return 1.0 / (share / speedup + 1.0 - share)


def _look_document(setup: HealingSetup, look: Look) -> SwitchLookDocument:
    return SwitchLookDocument(
        step=look.step,
        share=look.step / setup.run_steps,
        verdict=look.verdict,
        gap=look.gap,
        low=look.low,
        high=look.high,
        level=look.level,
        code=look.code,
        sentence=look.sentence,
    )
