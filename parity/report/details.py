"""The lines below the table: reasons, facts and advice of each candidate."""

from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

from parity.report.evaluation_tables import notes
from parity.report.facts import facts
from parity.report.view import EvaluationView, View

NEXT = "next"  # the name of a detail that advises


class Detail(NamedTuple):
    """A line of a report's details: the code of a reason with its sentence, or the name of a fact
    with its words.
    """

    name: str
    words: str
    is_code: bool = False


def details(views: Sequence[View]) -> list[list[Detail]]:
    """Reasons, facts and advice of each candidate; a sentence of an earlier candidate's reasons or
    advice is "as for NAME". Of evaluations reasons, notes and advice.
    """
    first: dict[str, str] = {}

    def once(sentence: str, name: str) -> str:
        owner = first.setdefault(sentence, name)
        return sentence if owner == name else f"as for {owner}"

    listed = []
    for view in views:
        if isinstance(view, EvaluationView):  # its sentences name their own runs
            listed.append([line for part in evaluation_details(view) for line in part])
            continue
        name = view.candidate.name
        reasons = [
            Detail(reason["code"], once(reason["sentence"], name), is_code=True)
            for reason in view.reasons
        ]
        advice = dict.fromkeys(once(sentence, name) for sentence in view.advice)
        listed.append(
            [
                *reasons,
                *starmap(Detail, facts(view)),
                *(Detail(NEXT, sentence) for sentence in advice),
            ]
        )
    return listed


def evaluation_details(
    view: EvaluationView,
) -> tuple[list[Detail], list[Detail], list[Detail]]:
    """The reasons, the notes and the advice."""
    reasons = [Detail(reason["code"], reason["sentence"], is_code=True) for reason in view.reasons]
    return (
        reasons,
        list(starmap(Detail, notes(view))),
        [Detail(NEXT, sentence) for sentence in view.advice],
    )
