"""What the readers recorded of the arms' losses: what they are, of which base, and what was left
out of a source that may be a record.
"""

import shlex
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import (
    LAST_LINE_CUT,
    LINES_UNREAD,
    LOSS_BASE,
    LOSS_MEANING,
    LOSS_NAME,
    LOSSES_NOT_FINITE,
    OTHER_LOSSES,
    SAID_NOT_FINITE,
    SECOND_LOSSES,
    STEPS_WITHOUT_LOSS,
    Curve,
)
from parity.wording import count

TRAINING_LOSS, LOSS_OF_ALL_TERMS = "training loss", "total loss"
LANGUAGE_MODEL_LOSS, CROSS_ENTROPY = "language-model loss", "cross-entropy"
HELD_OUT_LOSS = "held-out loss"
_ALIKE = (
    frozenset((TRAINING_LOSS, LOSS_OF_ALL_TERMS)),
    frozenset((TRAINING_LOSS, CROSS_ENTROPY)),
    frozenset((LANGUAGE_MODEL_LOSS, CROSS_ENTROPY)),
)
"""Meanings that may be one quantity; a language-model loss is called so where the training loss has
further terms.
"""

_NOT_FINITE_OF_BASELINE = 2  # times as many: batches without a domain give NaN in both arms
# of a run's points, and lines: as few are lost where processes write into one line
UNREAD_SHARE, UNREAD_LINES = 0.001, 3
_LINES_A_LOSS = 3  # that a trainer prints, or a table has, about one loss that is not finite
# of one arm's points up to the other's last, which the other lacks where its rows have no loss
OTHER_POINTS_SHARE = 0.1


def different_meanings(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that arms, by name and runs, were read from columns of two quantities, or of two
    names although one has both; None where they may be one.
    """
    read = [(name, run) for name, runs in arms for run in runs if LOSS_MEANING in run.context]
    for index, (name, run) in enumerate(read):
        for other, other_run in read[:index]:
            columns = run.context[LOSS_NAME], other_run.context[LOSS_NAME]
            meanings = run.context[LOSS_MEANING], other_run.context[LOSS_MEANING]
            if len({*meanings}) > 1 and frozenset(meanings) not in _ALIKE:
                return (
                    f"{other} was read from {columns[1]!r}, a {meanings[1]}, and {name} from "
                    f"{columns[0]!r}, a {meanings[0]}: two quantities."
                )
            for arm, has, wanted in ((name, run, columns[1]), (other, other_run, columns[0])):
                if len({*map(str.casefold, columns)}) > 1 and wanted.casefold() in _other_losses(
                    has
                ):
                    option = shlex.quote(f"{arm}:loss={wanted}")
                    return (
                        f"{other} was read from {columns[1]!r} and {name} from {columns[0]!r}, "
                        f"though the file of {arm} has {wanted!r}, too: these may be two "
                        f"quantities. --column {option} reads that one."
                    )
    return None


def second_loss(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that the file of an arm has a second training loss, which differs from the one
    that was read, or is not finite.
    """
    for name, runs in arms:
        for run in runs:
            if second := run.context.get(SECOND_LOSSES, "").split("\n")[0]:
                read = run.context[LOSS_NAME]
                sentence = (
                    f"{name} was read from {read!r}, and its file has {second!r}, too, which "
                    "differs from it or is NaN: the training loss may have gone on there. "
                    f"--column {shlex.quote(f'{name}:loss={read}')} keeps the one that was read"
                )
                if second.casefold() not in _other_losses(run):
                    return f"{sentence}."
                other = shlex.quote(f"{name}:loss={second}")
                return f"{sentence}, --column {other} reads the other."
    return None


def _other_losses(run: Curve) -> Sequence[str]:
    return run.context.get(OTHER_LOSSES, "").casefold().split("\n")


def in_bits(runs: Sequence[Curve]) -> Curve | None:
    """A run whose losses are logarithms to base 2, by the perplexities in its source
    or the name of its column.
    """
    return next((run for run in runs if run.context.get(LOSS_BASE) == "2"), None)


def unread_lines(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that a log of an arm has more than a trace of lines that were not read, and look
    like those that were.
    """
    for name, runs in arms:
        for run in runs:
            unread = _number(run, LINES_UNREAD)
            if unread >= max(UNREAD_LINES, UNREAD_SHARE * len(run.steps)):
                return (
                    f"{count(unread, 'line')} in a log of {name} look like the {len(run.steps):,} "
                    "that were read, and were not read."
                )
    return None


def said_not_finite(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that a file says in words, or counts, that more losses were not finite than
    were read from it.
    """
    for name, runs in arms:
        for run in runs:
            lines = _number(run, SAID_NOT_FINITE)
            read = int((~np.isfinite(run.loss)).sum())
            if lines > _LINES_A_LOSS * read:
                steps = f"only {count(read, 'step')}" if read else "no step"
                return (
                    f"{count(lines, 'record')} of {name} {'say' if lines > 1 else 'says'} that a "
                    f"loss was NaN or infinite, and {steps} {'have' if read > 1 else 'has'} such a "
                    "loss."
                )
    return None


def losses_not_finite(
    baseline: tuple[str, Sequence[Curve]], candidate: tuple[str, Sequence[Curve]]
) -> str | None:
    """The sentence that another loss of the candidate, such as a held-out one, is NaN or infinite
    where its training loss is finite, at more points than that of the baseline by far.
    """
    usual: dict[str, int] = {}
    for run in baseline[1]:
        for loss, number, _ in _numbers_not_finite(run):
            usual[loss] = max(number, usual.get(loss, 0))
    for run in candidate[1]:
        for loss, number, kind in _numbers_not_finite(run):
            if number > _NOT_FINITE_OF_BASELINE * usual.get(loss, 0):
                return (
                    f"The {kind} loss {loss!r} of {candidate[0]} is NaN or infinite at "
                    f"{count(number, 'point')} where {run.context.get(LOSS_NAME, 'its loss')!r}, "
                    "which was read, is finite."
                )
    return None


def _numbers_not_finite(run: Curve) -> list[tuple[str, int, str]]:
    """Losses that are not finite: name in lower case, at how many points, and kind."""
    lines = run.context.get(LOSSES_NOT_FINITE, "").casefold().split("\n")
    parts = [line.split(" ", 2) for line in lines]
    return [
        (part[2], int(part[0]), part[1]) for part in parts if len(part) == 3 and part[0].isdecimal()
    ]


def cut_last_line(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that the file of a run ends in half a line, whose loss may be any, where a run
    of the other arm goes on to later steps or ends in half a line, too.
    """
    for (name, runs), (_, others) in (tuple(arms), tuple(reversed(arms))):
        for run in runs:
            if LAST_LINE_CUT in run.context and any(_may_go_on(other, run) for other in others):
                return (
                    f"The file of {name} ends in half a line, whose loss may be any: how the run "
                    "ended is not known."
                )
    return None


def _may_go_on(other: Curve, run: Curve) -> bool:
    last = int(run.steps[-1]) if len(run.steps) else -1
    return LAST_LINE_CUT in other.context or bool((other.steps > last).any())


def without_losses(arms: Sequence[tuple[str, Sequence[Curve]]]) -> str | None:
    """The sentence that the source of an arm has rows without a loss, and the other arm has losses
    at steps that it lacks.
    """
    for (name, runs), (other, others) in (tuple(arms), tuple(reversed(arms))):
        for run in runs:
            rows = _number(run, STEPS_WITHOUT_LOSS)
            if rows and any(_lacks(run, than) for than in others):
                return (
                    f"{count(rows, 'row')} of {name} have values of training and no loss, at steps "
                    f"at which {other} has one."
                )
    return None


def _lacks(run: Curve, other: Curve) -> bool:
    if len(run.steps):
        shared = other.steps[: int(np.searchsorted(other.steps, run.steps[-1], side="right"))]
    else:
        shared = other.steps
    return (
        bool(len(shared))
        and float(np.isin(shared, run.steps, invert=True).mean()) > OTHER_POINTS_SHARE
    )


def _number(run: Curve, key: str) -> int:
    text = run.context.get(key, "")
    return int(text) if text.isdecimal() else 0
