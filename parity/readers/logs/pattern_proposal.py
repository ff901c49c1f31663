"""The pattern that an error proposes for a log that nothing else reads: of the lines that differ in
their numbers alone, those that are most; in them a whole number that rises, and a loss.
"""

import re
from collections.abc import Sequence
from itertools import islice

from parity.readers.columns.names import KNOWN_NAMES, LOSS, STEP
from parity.readers.curve.curve import curve_of
from parity.readers.curve.plausibility import LARGEST_LOSS
from parity.readers.errors import ReadError
from parity.readers.logs.lines.line import LONGEST, numbered_lines
from parity.readers.logs.pattern import PATTERN, PatternLog
from parity.readers.logs.printed_line import read_line

_LOOKED_AT = 5000  # lines
_NUMBER = re.compile(r"(?<![\d.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?|\bnan\b", re.IGNORECASE)
_LAST_WORD = re.compile(r"\S{0,24}\s*$")
_LOSSES = re.compile(r"loss|nll|xent|\bce\b|cross", re.IGNORECASE)
_OTHERS = re.compile(
    r"val|eval|test|\blr\b|rate|norm|time|\bdt\b|sec|epoch|acc|ppl|perpl|mfu|mem|tok|scale|aux|best",
    re.IGNORECASE,
)
"""Words before a number that is not the training loss."""
_MEANS = re.compile(r"avg|avr|mean|ema|smooth|running", re.IGNORECASE)
"""Words before a loss that is not that of one step."""
_BAR_OF_MEANS = re.compile(r"\] data=\d{1,15}/\d{1,15} loss=\S{1,40}±")
"""The progress bar of ggml-opt (llama.cpp, ggml/src/ggml-opt.cpp): data points instead of steps,
and the mean loss of an epoch so far.
"""
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")


def is_bar_of_means(text: str) -> bool:
    """Whether a log has a progress bar whose loss is the mean of its epoch so far."""
    return _BAR_OF_MEANS.search(text) is not None


def proposed_pattern(text: str, source: str, *, of_means: bool = False) -> str | None:
    """The pattern of a log, found from its own lines and tried on them; None where no two
    lines have a step and what may be a loss: that of one step, or its running mean (`of_means`).
    """
    alike: dict[str, list[str]] = {}
    for _, line in islice(numbered_lines(text), _LOOKED_AT):
        shown = line[:LONGEST].rstrip()
        if len(_NUMBER.findall(shown)) > 1:
            alike.setdefault(re.sub(r"\s+", "", _NUMBER.sub("0", shown)), []).append(shown)
    for group in sorted(alike.values(), key=len, reverse=True):
        if (
            len(group) > 1
            and (pattern := _pattern_of(group, of_means=of_means)) is not None
            and _reads(pattern, text, source)
        ):
            return pattern
    return None


def patterns_of_two(text: str, line: str, source: str) -> list[str]:
    """The patterns that read the first and the second number of a loss, of a log in which it has
    two as in one of its lines; those alone that were tried on it.
    """
    numbers = [*_NUMBER.finditer(line)]
    record = read_line(line)
    if record is None or record.second_loss is None:
        return []
    places = record.places or {}
    begins = {name: place.start for name, place in places.items()}
    step = next((at for at, number in enumerate(numbers) if number.start() == begins.get(STEP)), -1)
    loss = next(
        (
            at
            for at, number in enumerate(numbers)
            for name in KNOWN_NAMES[LOSS]
            if number.start() == begins.get(name)
        ),
        -1,
    )
    second = next(
        (at for at, number in enumerate(numbers) if number.start() == record.second_loss.start), -1
    )
    if min(step, loss, second) < 0:
        return []
    counted, value = rf"(?P<{STEP}>[\d,]+)", r"[\w.+-]*\w"
    patterns = []
    for groups in (
        {step: counted, loss: f"(?P<{LOSS}>{value})"},
        # behind the first one: the words before both may be the same
        {step: counted, loss: value, second: f"(?P<{LOSS}>{value})"},
    ):
        parts = [_word_before(line, numbers, at) + part for at, part in sorted(groups.items())]
        patterns.append(".*?".join(parts))
    return [pattern for pattern in patterns if _reads(pattern, text, source)]


def _reads(pattern: str, text: str, source: str) -> bool:
    """Whether a pattern reads a run, and no line that looks like one of it is left out."""
    try:
        columns = PatternLog(source, {PATTERN: pattern}).read(text)
        curve_of(columns, source, label=source, stated=True)
    except ReadError:
        return False
    return columns.unread == 0


def _pattern_of(lines: Sequence[str], *, of_means: bool) -> str | None:
    """A pattern for lines that differ in their numbers alone."""
    # the matches of each number, over the lines
    columns = [*zip(*(_NUMBER.finditer(line) for line in lines), strict=True)]
    first = [matches[0] for matches in columns]
    texts = [[match[0] for match in matches] for matches in columns]
    numbers = [[float(text.replace(",", "")) for text in column] for column in texts]
    steps = [
        at
        for at, values in enumerate(numbers)
        if all(text.replace(",", "").isdigit() for text in texts[at])
        and values == sorted(values)
        and len(set(values)) == len(values)
    ]
    losses = [
        at
        for at, values in enumerate(numbers)
        if any("." in text for text in texts[at])
        and max(values) <= LARGEST_LOSS
        and len(set(values)) > 1
        and not _OTHERS.search(_name(lines[0], first, at))
        and bool(_MEANS.search(_name(lines[0], first, at))) == of_means
    ]
    named = [at for at in losses if _LOSSES.search(_name(lines[0], first, at))]
    # of several without a name none is proposed: the wrong one could pass
    if not steps or not (named or len(losses) == 1):
        return None
    step, loss = steps[0], (named or losses)[0]
    whole = r"[\d,]+" if any("," in text for text in texts[step]) else r"\d+"
    number = r"\S+" if _ends_word(lines[0], first[loss]) else r"[\w.+-]+"
    groups = {step: f"(?P<{STEP}>{whole})", loss: f"(?P<{LOSS}>{number})"}
    pattern = ".*?".join(
        _word_before(lines[0], first, at) + group for at, group in sorted(groups.items())
    )
    matches = [re.search(pattern, line) for line in lines]
    is_found = all(
        match is not None and match[STEP] == text
        for match, text in zip(matches, texts[step], strict=True)
    )
    return pattern if is_found else None


def _name(line: str, numbers: Sequence[re.Match[str]], at: int) -> str:
    """What stands between a number and the one before it: its name."""
    return line[numbers[at - 1].end() if at else 0 : numbers[at].start()]


def _word_before(line: str, numbers: Sequence[re.Match[str]], at: int) -> str:
    """The last word before a number, as a pattern."""
    match = _LAST_WORD.search(_name(line, numbers, at))
    escaped = _SPECIAL.sub(r"\\\1", match[0]) if match else ""
    plain = escaped.rstrip()
    if plain and plain[-1].isalnum():
        blanks = r"\s+" if plain != escaped else ""
    else:
        blanks = r"\s*"
    # numbers of other widths are aligned by blanks
    return re.sub(r"\s{2,}", r"\\s+", plain) + blanks


def _ends_word(line: str, number: re.Match[str]) -> bool:
    return number.end() == len(line) or line[number.end()].isspace()
