"""The one answer of a job, a comparison or a gate: the state of its candidates together, with the
lead, measure, interval and next step that every surface shows.

One candidate has its verdict's words. Of several the state is the worst; the lead says who fails,
who may be used and who is open, and the rest is of the candidate that decides the state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parity.report.candidates import BEST_FIRST, deciding, safest_first, state_of_all
from parity.report.sign_off_words import Accepted, accepted_lead
from parity.report.strip import StripItem
from parity.report.view import View
from parity.report.words import Words, has_one_recipe, measure_of, next_step, words

LONGEST_LEAD = 90  # characters of the lead of several candidates
MOST_PASSES = 2  # of many, that the lead names


def answer_words(
    views: Sequence[View], cost: StripItem | None = None, accepted: Accepted | None = None
) -> Words:
    """The answer of at least one candidate in words; `cost` is what the check cost, where somebody
    counts it, `accepted` has the sign-offs that hold.
    """
    if len(views) == 1:
        said = words(views[0], cost)
        sign_off = (accepted or {}).get(views[0].candidate.name)
        if sign_off is None:
            return said
        lead = accepted_lead(sign_off["candidate"], sign_off["expires_at"])
        return replace(said, lead=lead)
    deciding_view = deciding(views)
    said = words(deciding_view, cost)
    advised = advising(views)
    return Words(
        verdict=state_of_all(views),
        lead=lead_of_all(views),
        measure=measure_of(deciding_view, named=True),
        interval=said.interval,
        next=f"{advised.candidate.title}: {next_step(advised)}" if advised else "",
        why=said.why,
        strip=said.strip,
        next_open=_next_of_open(views),
    )


def _next_of_open(views: Sequence[View]) -> str:
    """What to do about the candidates that are open where one that fails decides: the step of the
    nearest to a decision.
    """
    undecided = [view for view in views if view.state == "inconclusive"]
    if not undecided or state_of_all(views) == "inconclusive":
        return ""
    nearest = deciding(undecided)
    step, name = next_step(nearest), nearest.candidate.title
    if not step:
        return ""
    if len(undecided) == 1:
        return f"{name}, which is open: {step}"
    return f"{name}, of the {len(undecided)} that are open the nearest to a decision: {step}"


def advising(views: Sequence[View]) -> View | None:
    """The candidate whose next step is told of several: the one that decides the state, else the
    safest one that has a step.
    """
    first = [deciding(views), *safest_first(views)]
    return next((view for view in first if next_step(view)), None)


def lead_of_all(views: Sequence[View]) -> str:
    """Who fails, who may be used and who is open, in one line of at most 90 characters; where the
    names do not fit, how many.
    """
    ordered = safest_first(views)
    mixed = len({view.baseline.name for view in views}) > 1
    names: dict[str, list[str]] = {state: [] for state in BEST_FIRST}
    for view in ordered:
        names[view.state].append(view.pair if mixed else view.candidate.title)
    passing = [view for view in ordered if view.state == "pass"]
    return lead_of_names(names, _usable(passing, names["pass"]))


def lead_of_names(names: Mapping[str, Sequence[str]], usable: str | None = None) -> str:
    """The lead of candidates whose names are given by state; `usable` says of those that pass what
    they may be used for.
    """
    passes = _sentence(names.get("pass", ()), "passes", "pass") if usable is None else usable
    sentences = (
        _sentence(names.get("fail", ()), "fails", "fail"),
        passes,
        _sentence(names.get("inconclusive", ()), "is open", "are open"),
    )
    named = " ".join(sentence for sentence in sentences if sentence)
    if len(named) <= LONGEST_LEAD:
        return named
    counts = {state: len(listed) for state, listed in names.items()}
    if 0 < counts.get("pass", 0) <= MOST_PASSES:
        others = _counts(sum(counts.values()), {**counts, "pass": 0})
        shorter = " ".join(part for part in (others, passes) if part)
        if len(shorter) <= LONGEST_LEAD:
            return shorter
    return _counts(sum(counts.values()), counts)


def _counts(candidates: int, counts: Mapping[str, int]) -> str:
    """ "17 of 30 fail, 11 are open, 2 pass."; "" where nothing is counted."""
    verbs = {"fail": ("fails", "fail"), "inconclusive": ("is open", "are open")}
    verbs["pass"] = ("passes", "pass")
    parts = [
        (counts.get(state, 0), verb[counts.get(state, 0) != 1]) for state, verb in verbs.items()
    ]
    counted = [(number, verb) for number, verb in parts if number]
    if not counted:
        return ""
    (first, verb), *others = counted
    if first == candidates:
        return f"All {candidates} {verb}."
    rest = "".join(f", {number} {verb}" for number, verb in others)
    return f"{first} of {candidates} {verb}{rest}."


def _usable(passing: Sequence[View], names: Sequence[str]) -> str:
    """Which candidates may be used: "You may switch to a or b."; "" where none passes."""
    if not passing:
        return ""
    if any(has_one_recipe(view) for view in passing):
        return _sentence(names, "passes", "pass")
    early = next((view for view in passing if not view.finished), None)
    if early:
        return f"As of {early.point} you may switch to {_joined(names, 'or')}."
    return f"You may switch to {_joined(names, 'or')}."


def _sentence(names: Sequence[str], one: str, several: str) -> str:
    if not names:
        return ""
    return f"{_joined(names, 'and')} {one if len(names) == 1 else several}."


def _joined(names: Sequence[str], last: str) -> str:
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end
