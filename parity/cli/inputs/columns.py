"""Names of columns by quantity, and the patterns of a log's lines, as options state them."""

from collections.abc import Mapping, Sequence

from parity.cli.terminal.options import repeatable
from parity.cli.terminal.wrong_calls import UsageError
from parity.frozen import frozen
from parity.readers.columns.names import HELD_OUT_LOSS, LOSS, QUANTITIES
from parity.readers.logs.pattern import PATTERN, compiled_patterns
from parity.readers.run_names import split_name
from parity.wording import did_you_mean


def pattern_option() -> list[str]:
    """The option of the pattern of a log's lines, which is kept among the names of columns."""
    return repeatable(
        "Find step and loss in each line of a log by a regular expression with groups of these "
        "names, or of others such as "
        "validation_loss; repeatable. [default: a number behind step or iter, and one behind loss]",
        "REGEX",
    )


@frozen
class ColumnNames:
    """Names of columns by quantity, as --column states them: for every file (key ""), or for one
    arm or file, which counts more.
    """

    by_place: Mapping[str, Mapping[str, str]]
    is_held_out: bool = False
    """Whether a person states that the losses are held-out."""

    def of(self, *places: str) -> dict[str, str]:
        """The names for a file; `places` are its arm and the file itself."""
        names: dict[str, str] = {}
        for place in ("", *places):
            names |= self.by_place.get(place, {})
        if self.is_held_out and not {LOSS, PATTERN} & names.keys():
            names[LOSS] = HELD_OUT_LOSS
        return names

    def of_run(self, arm: str, file: str) -> dict[str, str]:
        """The names for a file of an arm, which --column may name with or without the run in it."""
        return self.of(arm, *places(file))

    def losses(self) -> set[str | None]:
        """The columns that were named for the loss, of any file."""
        return {names.get(LOSS) for names in self.by_place.values()}

    def refuse_unknown(self, places: Sequence[str]) -> None:
        """Raise UsageError if a name is for an arm or a file that is not there."""
        for place in self.by_place:
            if place and place not in places:
                shown = ", ".join(dict.fromkeys(places))
                raise UsageError(
                    f"--column: no arm or file is called {place!r}; there are "
                    f"{shown}{did_you_mean(place, places)}"
                )


def stated_columns(items: Sequence[str], patterns: Sequence[str] = ()) -> ColumnNames:
    """[WHERE:]QUANTITY=NAME items, WHERE an arm or a file, and the patterns of logs; QUANTITY may
    be `pattern`, for a pattern in one place.

    UsageError for another shape, an unknown quantity, one given twice, or a pattern that is not
    valid.
    """
    by_place: dict[str, dict[str, str]] = {}
    if patterns:
        by_place[""] = {PATTERN: "\n".join(patterns)}
    for item in items:
        left, _, name = item.partition("=")
        place, _, quantity = left.rpartition(":")
        if not name or not quantity:
            raise UsageError(
                f"--column is {item!r}; expected QUANTITY=NAME such as loss=train/loss, or "
                "WHERE:QUANTITY=NAME"
            )
        if quantity not in (*QUANTITIES, PATTERN):
            raise UsageError(
                f"--column is {item!r}; expected QUANTITY=NAME or WHERE:QUANTITY=NAME, with "
                f"QUANTITY one of {', '.join(QUANTITIES)}"
                f"{did_you_mean(quantity, QUANTITIES)}"
            )
        if quantity in by_place.setdefault(place, {}):
            raise UsageError(
                f"--column names {left} twice, {by_place[place][quantity]!r} and {name!r}; "
                "expected one column"
            )
        by_place[place][quantity] = name
    for names in by_place.values():
        if PATTERN in names:
            compiled_patterns(names[PATTERN], "--pattern")
    return ColumnNames(by_place=by_place)


def places(file: str) -> tuple[str, str]:
    """How --column may name a run's file: without and with the run in it."""
    return split_name(file)[0], file
