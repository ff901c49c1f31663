"""Lines that say of what those below them are: "=== validation ===", "[dev set]", "-- train --"."""

import re

from parity.readers.columns.names import HELD_OUT

_TRAINING = ("train", "training")
_HELD_OUT = (*HELD_OUT, "validating", "evaluating", "testing", "holdout")
_MARK = re.compile(
    rf"[^\w\n]{{0,20}}(?:(?:begin|start|starting|running|run|on|the|phase|stage|mode)\W{{1,3}}){{0,3}}"
    rf"(?P<of>{'|'.join(sorted((*_HELD_OUT, *_TRAINING), key=len, reverse=True))})"
    r"(?:\W{1,3}(?:set|split|phase|stage|mode|loop|data|results?|metrics|begins?|starts?|started))?"
    r"[^\w\n]{0,20}",
    re.IGNORECASE,
)
_LONGEST = 80  # characters


def is_section_held_out(line: str) -> bool | None:
    """Whether the lines below one are those of an evaluation, not of the training; None for a line
    that says nothing of others.
    """
    if len(line) > _LONGEST or (mark := _MARK.fullmatch(line)) is None:
        return None
    return mark["of"].lower() not in _TRAINING
