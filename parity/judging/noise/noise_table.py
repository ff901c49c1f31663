"""Groups of reruns by family, and the table (CSV) that holds them: the evidence from which
run-to-run noise is borrowed.

One row per group:
`family,group,runs,mean_loss,sd,unit,rounding,start,schedule,varies,source,licence`. `sd` is the
standard deviation over the group's runs of their final loss, in nats as `mean_loss`. `rounding` is
how the runs round gradients, nearest or stochastic; a group without it is not used. `start` is
scratch, checkpoint or fine-tune, `schedule` the learning rate's at the end of the runs: finished,
decaying, constant or warm-up; the level between families needs both (`between`), and an empty cell
is unknown. Read, too: `mean_loss_nats` and `sd_nats` instead of `mean_loss` and `sd`, and columns
that are not used (`UNUSED`).

A row that is not usable makes its whole family unusable, because the row may be the noisy one. Rows
with equal numbers are one group: the same runs under another name. Can fail: what is not in the
table. Who names a family claims that model shape, data, batch, length (within a factor) and engine
are like those of its groups; only a loss that is more than a tenth away from theirs shows that they
are not.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import Rounding
from parity.typed_json import shown

COLUMNS = (
    "family",
    "group",
    "runs",
    "mean_loss",
    "sd",
    "unit",
    "rounding",
    "start",
    "schedule",
    "varies",
    "source",
    "licence",
)
NEEDED = ("family", "group", "runs", "mean_loss", "sd")
RENAMED: Mapping[str, str] = {"mean_loss_nats": "mean_loss", "sd_nats": "sd"}
_CORRELATIONS = ("corr_with_final_at_25", "corr_50", "corr_75", "corr_90")
UNUSED = ("params_millions", "tokens_millions", "precision", "steps", *_CORRELATIONS)
NATS = "nats"
# names the level between families, so no family of a table is called so
ANY_DECODER = "any-decoder"
Start = Literal["scratch", "checkpoint", "fine-tune"]
ScheduleAtEnd = Literal["finished", "decaying", "constant", "warm-up"]
# of a table, and of a family: the model costs the square of the latter
MAX_ROWS, MAX_GROUPS = 10_000, 1_000
MAX_RUNS = 1_000_000
MAX_SHARE = 0.1  # of the loss: a larger spread is a broken run, or not in nats
MIN_SHARE = 1e-9  # of the loss: below the spacing of float32
MAX_LOSS = 1e6
MAX_BYTES = 8 << 20
MAX_NAME = 200
_LONGEST_NUMBER = 60

Row = Mapping[str, str]


class NoiseTableError(ValueError):
    """A noise table that can't be read at all; the message is one line with what was expected."""


@frozen
class RerunGroup:
    """Reruns of one configuration: `runs` of them, their mean loss and its standard deviation over
    runs in nats, and where that is from.
    """

    family: str
    group: str
    runs: int
    mean_loss: float
    sd: float
    rounding: Rounding | None
    start: Start | None = None
    schedule: ScheduleAtEnd | None = None
    varies: str
    source: str
    licence: str

    @property
    def df(self) -> int:
        """Degrees of freedom of the standard deviation."""
        return self.runs - 1

    @property
    def share(self) -> float:
        """The standard deviation as a share of the loss."""
        return self.sd / self.mean_loss

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `share`, by chi-squared."""
        low, high = (
            self.share * math.sqrt(self.df / float(special.chdtri(self.df, tail)))
            for tail in (0.025, 0.975)
        )
        return low, high


@frozen
class Family:
    """One family of a table: its groups in order of their names, groups of reruns that are equal
    bit for bit, and one line per bad row.
    """

    name: str
    groups: tuple[RerunGroup, ...]
    bit_equal: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class NoiseTable:
    """A noise table: its rows as text, by column of `COLUMNS`."""

    rows: tuple[Row, ...]

    @cached_property
    def families(self) -> Mapping[str, Family]:
        """The families by name, in order of their names."""
        by_name: dict[str, list[Row]] = {}
        for row in self.rows:
            by_name.setdefault(row["family"], []).append(row)
        return {name: _family(name, by_name[name]) for name in sorted(by_name)}

    def only(self, names: set[str]) -> "NoiseTable":
        """The rows of these families; `any-decoder` rests on all that state a start and a
        schedule.
        """
        if ANY_DECODER in names:
            names = names | {row["family"] for row in self.rows if row["start"] and row["schedule"]}
        return NoiseTable(tuple(row for row in self.rows if row["family"] in names))

    def csv(self) -> str:
        """The table as CSV in its documented shape; `read_noise_table` gives the same table
        back.
        """
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def read_noise_table(text: str) -> NoiseTable:
    """Read a table. Raises NoiseTableError where it has no header, a column that is missing or
    unknown, no row, or a row of another length.
    """
    if len(text) > MAX_BYTES:
        raise NoiseTableError(
            f"the noise table has {len(text):,} characters; expected at most {MAX_BYTES:,}"
        )
    try:
        records = [
            record
            for record in csv.reader(
                io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True
            )
            if record
        ]
    except csv.Error as error:
        raise NoiseTableError(
            f"the noise table is not readable as CSV ({error}); expected a header and one row per "
            "group"
        ) from None
    if len(records) < 2:
        raise NoiseTableError(
            f"the noise table has no row; expected a header with {', '.join(COLUMNS)} and one row "
            "per group"
        )
    if len(records) - 1 > MAX_ROWS:
        raise NoiseTableError(
            f"the noise table has {len(records) - 1:,} rows; expected at most {MAX_ROWS:,}"
        )
    names = [RENAMED.get(name.strip(), name.strip()) for name in records[0]]
    _check_header(names)
    rows = []
    for number, record in enumerate(records[1:], 1):
        if len(record) != len(names):
            raise NoiseTableError(
                f"row {number} of the noise table has {len(record)} cells; expected {len(names)}, "
                "as its header"
            )
        cells = dict(zip(names, (cell.strip() for cell in record), strict=True))
        if (
            not cells["family"]
            or not cells["family"].isprintable()
            or len(cells["family"]) > MAX_NAME
        ):
            problem = f"row {number} of the noise table has the family {shown(cells['family'])}"
            raise NoiseTableError(
                f"{problem}; expected 1 to {MAX_NAME} printable characters, the name under which "
                "jobs borrow from its group"
            )
        if cells["family"] == ANY_DECODER:
            raise NoiseTableError(
                f"row {number} of the noise table has the family {ANY_DECODER}; expected another "
                "name, this one means no family"
            )
        rows.append({name: cells.get(name, "") for name in COLUMNS})
    return NoiseTable(tuple(rows))


def _check_header(names: list[str]) -> None:
    for name, times in Counter(names).items():
        if name not in COLUMNS and name not in UNUSED:
            raise NoiseTableError(
                f"the noise table has a column {shown(name)}; expected the columns "
                f"{', '.join(COLUMNS)}"
            )
        if times > 1:
            raise NoiseTableError(
                f"the noise table has the column {name} {times} times; expected it once"
            )
    if missing := [name for name in NEEDED if name not in names]:
        raise NoiseTableError(
            f"the noise table has no column {', '.join(missing)}; expected the columns "
            f"{', '.join(COLUMNS)}"
        )


def _family(name: str, rows: list[Row]) -> Family:
    groups: dict[str, RerunGroup] = {}
    problems = []
    for row in rows:
        group = _group(row)
        if isinstance(group, str):
            problems.append(f"group {shown(row['group'])}: {group}")
        elif group.group in groups and groups[group.group] != group:
            problems.append(
                f"group {shown(group.group)}: two rows with other values; expected one row per "
                "group"
            )
        else:
            groups[group.group] = group
    ordered = list(
        {
            (g.runs, g.mean_loss, g.sd, g.rounding): g
            for g in (groups[key] for key in sorted(groups, reverse=True))
        }.values()
    )[::-1]
    if len(ordered) > MAX_GROUPS:
        problems.append(f"{len(ordered):,} groups; expected at most {MAX_GROUPS:,} in a family")
    return Family(
        name=name,
        groups=tuple(group for group in ordered if group.sd > 0.0),
        bit_equal=tuple(group.group for group in ordered if group.sd == 0.0),
        problems=tuple(problems),
    )


def _group(row: Row) -> RerunGroup | str:
    """The group of a row, or what is wrong with it."""
    runs, mean, sd = (_number(row[name]) for name in ("runs", "mean_loss", "sd"))
    wrong = (
        (
            not row["group"] or len(row["group"]) > MAX_NAME,
            f"the name has {len(row['group'])} characters; expected 1 to {MAX_NAME}",
        ),
        (
            not (2 <= runs <= MAX_RUNS and runs == int(runs)),
            f"runs is {shown(row['runs'])}; expected a whole number of at least 2",
        ),
        (
            not 0.0 < mean <= MAX_LOSS,
            f"mean_loss is {shown(row['mean_loss'])}; expected a positive number of nats",
        ),
        (not 0.0 <= sd < math.inf, f"sd is {shown(row['sd'])}; expected nats, 0 or more"),
        (
            row["unit"] not in ("", NATS),
            f"unit is {shown(row['unit'])}; expected {NATS}, as in every row",
        ),
        (
            0.0 < sd < MIN_SHARE * mean,
            (
                f"sd is {shown(row['sd'])} at a loss of {shown(row['mean_loss'])}; expected 0 or "
                f"at least {MIN_SHARE:g} of the loss"
            ),
        ),
        (
            sd > MAX_SHARE * mean,
            (
                f"sd is {shown(row['sd'])} at a loss of {shown(row['mean_loss'])}; expected at "
                "most a tenth of the loss, both in nats"
            ),
        ),
        *(
            (
                row[name] not in ("", *get_args(words)),
                f"{name} is {shown(row[name])}; expected {' or '.join(get_args(words))}",
            )
            for name, words in (
                ("rounding", Rounding),
                ("start", Start),
                ("schedule", ScheduleAtEnd),
            )
        ),
    )
    for holds, what in wrong:
        if holds:
            return what
    words: dict[str, Any] = {
        name: row[name] for name in ("family", "group", "varies", "source", "licence")
    }
    words |= {name: row[name] or None for name in ("rounding", "start", "schedule")}
    return RerunGroup(runs=int(runs), mean_loss=mean, sd=sd, **words)


def _number(text: str) -> float:
    """A cell as a number; NaN, which no check lets pass, for anything else."""
    try:
        if len(text) <= _LONGEST_NUMBER and "_" not in text:
            return float(text)
        return math.nan
    except ValueError:
        return math.nan
