"""Taking a run as the golden: with a reason, and only after an answer that needs nobody, or that a
person accepts by its name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.comparing.arms import read_one
from parity.frozen import frozen
from parity.golden.answers import ANSWERS, FINE, Answer
from parity.golden.check import Check, RunFacts, check_golden, run_facts, stated_change
from parity.golden.golden_file import (
    Golden,
    GoldenError,
    GoldenUpdate,
    golden_of,
    read_golden,
    write_golden,
)
from parity.golden.level import LIMIT_PCT
from parity.golden.recipes import first_recipe
from parity.golden.words import percent_words
from parity.judging.curves.curve import DATA_DIGEST, Curve
from parity.wording import count, did_you_mean

MOST_REASON = 500
FIRST_REASON = "first golden"


class NotAcceptedError(Exception):
    """A golden that was not written, because its answer needs a person; `check` has the answer."""

    def __init__(self, message: str, check: Check) -> None:
        super().__init__(message)
        self.check = check


@frozen
class Request:
    """An update as it is asked for: its `reason`, the `date` (YYYY-MM-DD), the `commit` if one is
    known, the answer that the person accepts, and which steps to keep (`every`).
    """

    reason: str | None
    date: str
    commit: str | None = None
    accept: str | None = None
    every: int = 1


@frozen(eq=False)
class Written:
    """What became of an update: the golden, the check that it passed (None for a first one), and
    whether the file was written.
    """

    golden: Golden
    check: Check | None
    is_written: bool


def update_golden(
    path: str,
    run: Any,
    facts: RunFacts,
    request: Request,
    *,
    changed: str | None = None,
    fork: int | None = None,
    option: str = "recipe",
) -> Written:
    """Write a run as the golden of a path: the first one, or the next after a check.

    Raises what `taken_golden` does, and GoldenError for a file that cannot be read or written.
    """
    before = read_golden(path) if Path(path).exists() else None
    curve = read_one(run, "run", facts.columns)
    written = taken_golden(before, curve, facts, request, changed=changed, fork=fork, option=option)
    if written.is_written:
        write_golden(path, written.golden)
    return written


def taken_golden(
    before: Golden | None,
    curve: Curve,
    facts: RunFacts,
    request: Request,
    *,
    changed: str | None = None,
    fork: int | None = None,
    option: str = "recipe",
) -> Written:
    """A run as the golden: the first one, or the next after a check by the one `before`.

    Raises NotAcceptedError where the answer, or the sum of the gaps that were taken since a person
    last accepted one, is not accepted; GoldenError for a reason or an answer that is missing or
    wrong, and for a run that is judged behind a resume alone: its first steps would become the
    golden unseen; and what `check_golden` raises.
    """
    accept = stated_answer(request.accept)
    if stated_change(changed, fork) == "resume":
        raise GoldenError(
            "the run is stated as one after a resume, of which only the steps behind it are "
            "judged; expected a whole run for a golden: leave out the resume and its fork"
        )
    if before is None:
        recipe = first_recipe(curve, facts.recipe, option)
        reason = stated_reason(request.reason or FIRST_REASON)
        entry = GoldenUpdate(
            date=request.date, answer=None, gap_pct=0.0, reason=reason, commit=request.commit
        )
        golden = _golden(curve, recipe, facts, request, None, (entry,))
        return Written(golden=golden, check=None, is_written=True)
    check = check_golden([before], curve, facts, changed=changed, fork=fork, option=option)
    if check.answer == "identical" and not _says_more(facts, before):
        return Written(golden=before, check=check, is_written=False)
    reason = stated_reason(request.reason)
    gap = check.measured.gap_pct if check.words.rows else 0.0
    accepted = _check_acceptance(check, before, gap, accept)
    entry = GoldenUpdate(
        date=request.date,
        answer=check.answer,
        gap_pct=round(gap, 4),
        reason=reason,
        commit=request.commit,
        accepted=accepted,
    )
    golden = _golden(curve, check.recipe, facts, request, before, (*before.updates, entry))
    return Written(golden=golden, check=check, is_written=True)


def taken_gaps(updates: Sequence[GoldenUpdate]) -> float:
    """The sum of the gaps, in % of the loss, that updates took over since a person last accepted
    one.
    """
    total = 0.0
    for update in updates:
        total = 0.0 if update.accepted else total + update.gap_pct
    return total


def stated_answer(accept: str | None) -> Answer | None:
    """The answer that a person accepts. Raises GoldenError for another word."""
    for answer in ANSWERS:
        if accept == answer:
            return answer
    if accept is None:
        return None
    refused = ", ".join(repr(answer) for answer in ANSWERS if answer not in FINE)
    raise GoldenError(
        f"accept is {accept!r}; expected one of {refused}{did_you_mean(accept, ANSWERS)}"
    )


def stated_reason(reason: str | None) -> str:
    """The reason of an update, on one line. Raises GoldenError where there is none."""
    text = " ".join((reason or "").split())
    if not text or len(text) > MOST_REASON:
        raise GoldenError(
            f"the reason has {count(len(text), 'character')}; expected 1 to {MOST_REASON}, such as "
            "'image 26.06'"
        )
    return text


def _check_acceptance(check: Check, before: Golden, gap: float, accept: Answer | None) -> bool:
    """Whether a person accepted the answer; NotAcceptedError where one has to and did not."""
    if accept == check.answer and not check.is_fine:
        return True
    if not check.is_fine:
        raise NotAcceptedError(
            f"the golden stays as it is: {check.answer}; to take this run all the same: --accept "
            f"{check.answer!r}",
            check,
        )
    total = taken_gaps(before.updates) + gap
    if abs(total) <= LIMIT_PCT:
        return False
    answer: Answer = "worse" if total > 0.0 else "better"
    if accept == answer:
        return True
    raise NotAcceptedError(
        f"the golden stays as it is: with this run the gaps that were taken sum to "
        f"{percent_words(total)} (limit {LIMIT_PCT:g} %); to take them all the same: --accept "
        f"{answer!r}",
        check,
    )


def _golden(
    curve: Curve,
    recipe: str,
    facts: RunFacts,
    request: Request,
    before: Golden | None,
    updates: tuple[GoldenUpdate, ...],
) -> Golden:
    """The golden of a run; what is not stated of it is as before."""
    return golden_of(
        curve,
        f"run {curve.label}",
        recipe,
        request.every,
        random=facts.random or (before.random if before else ()),
        container=facts.container or (before.container if before else None),
        hardware=facts.hardware or (before.hardware if before else None),
        data=facts.data or curve.context.get(DATA_DIGEST) or (before.data if before else None),
        facts={**(before.facts if before else {}), **run_facts(curve)},
        updates=updates,
    )


def _says_more(facts: RunFacts, golden: Golden) -> bool:
    """Whether something is stated of the run that its golden does not have."""
    return any(
        getattr(facts, name) not in (None, (), getattr(golden, name))
        for name in ("random", "container", "hardware", "data")
    )
