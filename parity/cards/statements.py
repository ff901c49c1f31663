"""What a case rests on because somebody stated it, and who did."""

from collections.abc import Iterator, Sequence

from parity.cards.card import CardStatement
from parity.judging.case import AnyCase, Case
from parity.judging.curves.context import ENGINE
from parity.judging.curves.curve import PLANNED_STEPS, Curve
from parity.judging.document_types import STATED_LATER

_POLICY_STATEMENTS = {
    "schedule": "unstated",
    "start": "unstated",
    "pairing": "paired",
    "loss_unit": "nats",
}
# Trainers of the service, which record what they did; of others a person states it.
_RECORDING_ENGINES = frozenset({"emulated", "maxtext", "transformer_engine"})


_LONGEST_NAME = 100


def is_author(name: str) -> bool:
    """Whether a text can be the name of who made a statement: one line that no list of statements
    ends in, so that it reads as no further one.
    """
    return (
        0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and name == name.strip()
        and ";" not in name
    )


def statements_of(case: AnyCase, by: str | None) -> list[CardStatement]:
    """The statements that a case rests on, `by` being whoever made those that no note names."""
    noted = list(dict.fromkeys(_noted(case)))
    facts = {(statement.fact, statement.arm) for statement in noted}
    stated = (
        CardStatement(fact=fact, arm=arm, value=value, by=by)
        for fact, arm, value in (*_case_statements(case), *_arm_statements(case))
        if (fact, arm) not in facts
    )
    return [*noted, *stated]


def _noted(case: AnyCase) -> Iterator[CardStatement]:
    """What the owner of a job stated, as the notes of its runs name it."""
    for _, _, runs in case.arms():
        for run in runs:
            for note in run.notes:
                if note.startswith(STATED_LATER):
                    what, _, by = note.removeprefix(STATED_LATER).rpartition(", by ")
                    head, _, value = what.partition(": ")
                    fact, _, arm = head.partition(" of ")
                    yield CardStatement(
                        fact=fact.replace(" ", "_"), arm=arm or None, value=value, by=by
                    )


def _case_statements(case: AnyCase) -> Iterator[tuple[str, None, str]]:
    runs = [run for _, _, arm_runs in case.arms() for run in arm_runs]
    planned = case.planned_steps
    if planned is not None and not _is_recorded(runs, PLANNED_STEPS, str(planned)):
        yield "planned_steps", None, str(planned)
    for key, unstated in _POLICY_STATEMENTS.items():
        if (value := getattr(case.policy, key)) != unstated:
            yield key, None, value
    if isinstance(case, Case):
        if case.assume_complete:
            yield "assume_complete", None, "true"
        if case.layer_policy is not None:
            yield "layer_policy", None, case.layer_policy
    else:
        yield "pairs", None, "by seed" if case.paired else "none"
        for fact in ("cluster", "target", "tokens_per_step"):
            if (value := getattr(case, fact)) is not None:
                yield fact, None, str(value)


def _arm_statements(case: AnyCase) -> Iterator[tuple[str, str, str]]:
    """The recipe and rounding of each arm that no trainer of the service recorded, and the family
    from which it borrows.
    """
    for role, name, runs in case.arms():
        if role not in ("baseline", "candidate") or not runs:
            continue
        if runs[0].context.get(ENGINE) not in _RECORDING_ENGINES:
            if runs[0].recipe is not None:
                yield "recipe", name, runs[0].recipe
            if runs[0].rounding is not None:
                yield "rounding", name, runs[0].rounding
        if isinstance(case, Case) and name in case.families:
            yield "family", name, case.families[name]


def _is_recorded(runs: Sequence[Curve], key: str, value: str) -> bool:
    """Whether the context of every run has a fact, or a trainer of the service ran all of them."""
    return all(
        run.context.get(key) == value or run.context.get(ENGINE) in _RECORDING_ENGINES
        for run in runs
    )
