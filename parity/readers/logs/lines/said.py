"""Lines in which a trainer says in words that a loss was not finite: it stopped, or left a batch
out, and may print no step with that loss, or one with a finite mean of the others.
Signs in place of a number that no field holds say it, too; "-" and "?" may say that there is none.
"""

import re

from parity.readers.columns.names import HELD_OUT
from parity.readers.columns.not_finite_columns import field_says_not_finite

_NOT_FINITE = r"(?:nan|nans|inf|infinite|infinity|non[- ]?finite|not finite)"
_LOSS = r"\bloss(?:es)?\b(?![ _-]?scal)"
_BETWEEN = r"[^\d|,;{}\n]{0,60}"  # words alone: in a row of numbers each has its own name
_SIGNS = r"(?:\*{2,}|∞|#(?:num|value|div/0)!|overflow|undefined)"
_NO_NUMBER = r"(?:nans?|non[- ]?finite|not finite)"  # infinite gradients lower the scale of a loss
_STEP = r"(?:step|iteration|iter|batch|update)(?:es|s)?"
_LEFT_OUT = r"(?:skipped|skipping|dropped|dropping|discarded|discarding)"
_SAID = re.compile(
    rf"{_LOSS}{_BETWEEN}\b{_NOT_FINITE}\b|\b{_NOT_FINITE}\b{_BETWEEN}{_LOSS}"
    rf"|{_LOSS}['\"]?\s{{0,9}}[:=]?\s{{0,9}}{_SIGNS}"
    # a step was left out
    rf"|\b{_NO_NUMBER}\b[^\d|;{{}}\n]{{0,40}}\b{_STEP} (?:was |is )?{_LEFT_OUT}\b"
    rf"|\b{_NO_NUMBER}\b[^\d|;{{}}\n]{{0,40}}\b{_LEFT_OUT} (?:the |this )?{_STEP}\b"
    rf"|\b{_STEP} (?:#?\d{{1,15}} )?(?:was |is )?{_LEFT_OUT}\b[^\d|;{{}}\n]{{0,40}}\b{_NO_NUMBER}\b"
    rf"|\b{_LEFT_OUT} {_STEP}\b(?: \d{{1,15}})?[^\d|;{{}}\n]{{0,40}}\b{_NO_NUMBER}\b"
    r"|\bnans? (?:was |were )?(?:detected|encountered|found) (?:in|during) (?:the )?"
    r"(?:forward|step)"
    rf"|\bfloatingpointerror\b[^\d|;{{}}\n]{{0,40}}\b{_NO_NUMBER}\b"
    rf"|\b(?:reason|cause|error|status)['\"]?\s?[:=]\s?['\"]?{_NO_NUMBER}\b(?! (?:grad|norm))",
    re.IGNORECASE,
)
_BESIDE_LOSS = re.compile(
    # not "grad_norm nan loss 2.5"
    rf"{_LOSS}{_BETWEEN}\b{_NOT_FINITE}\b"
    rf"|\b{_NOT_FINITE}\b{_BETWEEN}{_LOSS}(?!\s{{0,9}}[:=]?\s{{0,9}}[-+]?\d{{0,9}}\.\d)"
    rf"|\b{_NOT_FINITE} (?:in|on|at) \d{{1,9}}(?: of |/)\d{{1,9}} (?:ranks|gpus|workers|processes)"
    rf"|\blosses\b[\s:=\[(]{{1,5}}[-+\d.e, /;]{{1,400}}\b{_NOT_FINITE}\b"
    rf"|\bloss\s?\[[-+\d.e, /;]{{1,400}}\b{_NOT_FINITE}\b"
    rf"|\braw\s?[:=]\s?{_NOT_FINITE}\b",
    re.IGNORECASE,
)
"""What says so on a line with a finite loss, which may be the mean of the others."""
_MARKS = ("nan", "inf", "finite", "**", "∞", "#", "overflow", "undefined")
"""One of them is in each line that says so, in lower case: faster than to search each."""
_DENIED = re.compile(
    r"\b(?:no|without|zero|if|when|whether|on|for|checks?|checking|(?:to|will|would|may|can)\s\w+)"
    rf"\s(?:a\s|any\s)?{_NOT_FINITE}\b"
    rf"|\b(?:not|never|isn't|wasn't)(?:\s(?:a|any|be|been|became|become|was|were))?\s{_NOT_FINITE}\b"
    rf"|\b(?:skip|ignore|check|stop|raise|abort|detect|allow|handle|filter|drop|mask)"
    rf"(?: on| for)? {_NOT_FINITE} loss(?:es)?\s?['\"]?\s?[:=]"
    rf"|\b{_NOT_FINITE}[^|,;]{{0,30}}[:=]\s?['\"]?(?:false|no|none|off|never)\b"
    rf"|\b{_NOT_FINITE} loss(?:es)? (?:will|would|may|can|must|should|are)\b"
    rf"|\b{_NOT_FINITE}(?: loss)?(?:\W{_NOT_FINITE})? "
    r"(?:guard|check|checks|checker|detection|detector|filter|policy|handling|watchdog)\b"
    r"|\bnan to num\b"
    r"|\bscal(?:e|er|ing)\b.*\bgrad|\bgrad.*\bscal(?:e|er|ing)\b",
    re.IGNORECASE,
)
"""What may be said of losses that are finite, or of what would be done."""
_FIELD = re.compile(
    r"(?<![\w./-])['\"]?(?P<name>[A-Za-z][\w./-]{2,60})['\"]?\s?[:=]\s?"
    r"(?P<value>true|false|\d{1,15})\b(?![.\d])",
    re.IGNORECASE,
)
"""A field with a number or a flag."""
_NONE = re.compile(r"(?<![\d.:-])(?<!\brank )(?<!\bgpu )(?<!\bnode )0(?![\d.:-])")
_NEAR = 24  # characters around the words, in which they are counted


def says_not_finite(line: str) -> bool:
    """Whether a line without a training loss says that one was NaN or infinite."""
    return bool(_says(_SAID, line))


def says_beside_loss(line: str) -> bool | None:
    """Whether a line with a finite training loss says that another one was NaN or infinite; None
    where no other digits could say so.
    """
    return _says(_BESIDE_LOSS, line)


def _is_about_nan(name: str) -> bool:
    """Whether the name of a field has several words, one of which says that a number is none."""
    return any(mark in name.lower() for mark in ("nan", "finite", "inf")) and not name.isalpha()


def _says(words: re.Pattern[str], line: str) -> bool | None:
    """Whether a line says that a loss was not finite, False where it says so of none."""
    plain = line.lower().replace("_", " ")
    if not any(mark in plain for mark in _MARKS):
        return None
    fields = [field for field in _FIELD.finditer(line) if _is_about_nan(field["name"])]
    if any(field_says_not_finite(field["name"], field["value"]) for field in fields):
        return True
    for field in fields:  # a name is no prose, such as "non_nan_loss=9"
        plain = plain.replace(field[0].lower().replace("_", " "), " ")
    said = words.search(plain)
    if said is None:
        return False if fields else None
    if _DENIED.search(plain) is not None:
        return False
    none = _NONE.search(plain, max(0, said.start() - _NEAR))
    has_none = none is not None and none.start() < said.end() + _NEAR
    return not has_none and not HELD_OUT & set(re.findall("[a-z]+", plain))
