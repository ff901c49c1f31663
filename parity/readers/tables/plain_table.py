"""Tables as people and programs write them, as plain ones: a line of names, and a line a row.

    Markdown, boxes     rows between bars, below names and a line of dashes; text around it is left
                        out, but a second table is refused
    comments            lines that begin with # before the names; the last one holds the names where
                        the rows have none; those among the rows that are no row themselves
    sep=;               the line by which a spreadsheet is told what separates the cells
    several headers     names in groups become "group/name"; a line of units is left out

Lines that are left out become empty, so that a line's number stays what it is.
"""

import re
from collections.abc import Sequence

from parity.readers.columns.names import LOSS, STEP, has_known
from parity.readers.columns.number import MISSING, is_number
from parity.readers.errors import ReadError
from parity.readers.logs.lines.said import says_not_finite
from parity.readers.tables.delimited import delimiter_of, fields

_LOOKED_AT = 1 << 16  # characters of a text without bars; a table begins in them
_BARS = str.maketrans({"│": "|", "┃": "|", "║": "|"})
_DASHES = re.compile(r"[\s|+:=\-┏━┳┓┡╇┩├┼┤└┴┘┌┬┐─╔═╦╗╠╬╣╚╩╝╒╤╕╞╪╡╘╧╛]*")
_MARKS = re.compile(r"[*`]+")
_UNIT = re.compile(r"[\[(][^\[\]()]*[\])]")
_NUMERAL = re.compile(r"[-+]?[.,]?\d|[-+]?(?:nan|inf)", re.IGNORECASE)
_LOSS_WORD = re.compile("loss", re.IGNORECASE)
_AS_COMMAS = str.maketrans("\t|", ",,")
_MOST_HEADERS = 3


def plain_table(text: str, source: str) -> str:
    """The text as a plain table; as it is where it is one, or no table. Raises ReadError for two
    tables between bars.
    """
    drawn = _without_bars(text, source)
    if drawn is not None:
        return drawn
    return _without_remarks(_with_one_header(text))


def rows_that_say(text: str) -> int:
    """How many lines of a table below its names say that a loss was NaN or infinite: in remarks, or
    in a cell of words.
    """
    names = text.find("\n")
    if (first := _LOSS_WORD.search(text, max(names, 0))) is None:
        return 0  # as in most tables
    lines = text[text.rfind("\n", 0, first.start()) + 1 :].splitlines()
    has_cells = delimiter_of(text[:names]) is not None
    return sum(
        says_not_finite(line.translate(_AS_COMMAS))
        for line in lines
        if has_cells or line.startswith("#")
    )


def _without_bars(text: str, source: str) -> str | None:
    """The rows between bars, separated by tabs; None for a text without such a table."""
    if not any(bar in text for bar in "|│┃║"):
        return None
    lines = text.translate(_BARS).split("\n")
    first = next((at for at in range(len(lines) - 1) if _is_header(lines, at)), None)
    if first is None:
        return None
    width = len(_cells(lines[first]))
    rows = [""] * len(lines)
    rows[first] = "\t".join(_cells(lines[first]))
    ended = False
    for at in range(first + 1, len(lines)):
        line = lines[at].strip()
        if line and _DASHES.fullmatch(line):
            continue
        if "|" not in line:
            ended = True
        elif ended:
            raise ReadError(
                f"{source}, line {at + 1}: a second table begins here, behind that of line "
                f"{first + 1}; expected one; keep one of them in the file"
            )
        else:
            cells = _cells(line)
            if len(cells) != width:
                raise ReadError(
                    f"{source}, line {at + 1}: {len(cells)} cells; expected {width}, as in line "
                    f"{first + 1}"
                )
            rows[at] = "\t".join(cells)
    return "\n".join(rows)


def _is_header(lines: Sequence[str], at: int) -> bool:
    """Whether a line has the names of a table: bars, words, and a line of dashes below."""
    below = lines[at + 1].strip()
    if "|" not in lines[at] or "--" not in below.translate({ord(sign): "-" for sign in "─━═="}):
        return False
    cells = _cells(lines[at])
    return (
        _DASHES.fullmatch(below) is not None
        and len(cells) > 1
        and not any(is_number(cell) for cell in cells)
        and not _DASHES.fullmatch(lines[at].strip())
    )


def _cells(line: str) -> list[str]:
    plain = line.strip().removeprefix("|").removesuffix("|")
    return [_MARKS.sub("", cell).strip().replace("\t", " ") for cell in plain.split("|")]


def _with_one_header(text: str) -> str:
    """The text with one line of names, the first that is not empty."""
    head = text[:_LOOKED_AT].split("\n")
    lines = [line.rstrip("\r") for line in (head[:-1] if len(text) > _LOOKED_AT else head)]
    begin = at = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    if at < len(lines) and re.fullmatch(r"sep=.", lines[at].strip()):
        at += 1
    comment = ""
    while at < len(lines) and lines[at].lstrip().startswith("#"):
        comment = lines[at].lstrip().lstrip("#").strip()
        at += 1
    if at >= len(lines) or not lines[at].strip():
        return text
    delimiter = delimiter_of(lines[at])
    names = fields(lines[at], delimiter)
    if all(map(is_number, names)):
        named = fields(comment, delimiter)
        return _with_names(text, lines, begin, at, named if len(named) == len(names) else ())
    names, end = _joined_names(lines, at, names, delimiter)
    if end == begin + 1:
        return text
    return _with_names(text, lines, begin, end, names)


def _joined_names(
    lines: Sequence[str], at: int, names: list[str], delimiter: str | None
) -> tuple[list[str], int]:
    """The names of one line or more, and where the rows begin; a line behind names of a step and a
    loss is one of units, or no header.
    """
    joined, end = names, at + 1
    is_whole = has_known(names, STEP) and has_known(names, LOSS)
    while end < min(len(lines), at + _MOST_HEADERS):
        further = fields(lines[end], delimiter)
        if len(further) != len(names) or not _are_words(further):
            break
        if not all(not name or _UNIT.fullmatch(name) for name in further):
            if is_whole:
                return names, at + 1
            joined = ["/".join(filter(None, pair)) for pair in zip(joined, further, strict=True)]
        end += 1
    if end < len(lines) and any(map(_NUMERAL.match, fields(lines[end], delimiter))):
        return joined, end
    return names, at + 1


def _without_remarks(text: str) -> str:
    """The text without remarks among its rows: lines that begin with # and hold no row."""
    if "\n#" not in text:
        return text
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    delimiter = delimiter_of(first)
    width = len(fields(first, delimiter))
    return "\n".join(
        "" if line.startswith("#") and len(fields(line, delimiter)) != width else line
        for line in lines
    )


def _with_names(text: str, lines: Sequence[str], begin: int, end: int, names: Sequence[str]) -> str:
    """The text with names in place of some lines, or nothing; the next line shows what separates
    them.
    """
    if begin == end:
        return text
    sign = (delimiter_of(lines[end]) if end < len(lines) else None) or " "
    header = sign.join(f'"{name}"' if sign in name and sign != " " else name for name in names)
    rest = "\n".join(text.split("\n", end)[end:])
    return "\n" * (end - 1) + f"{header}\n{rest}"


def _are_words(cells: Sequence[str]) -> bool:
    """Whether cells hold no number and no word for a missing value, as further names do."""
    return any(cells) and not any(
        _NUMERAL.match(cell) or (cell and cell.lower() in MISSING) for cell in cells
    )
