"""Groups of reruns by family, the tables that ship, and what a family's groups say about the
run-to-run noise of one more group.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import FloatArray, Rounding
from parity.structure import frozen, shown
from parity.wording import count

# Groups of reruns by family, and the table (CSV) that holds them: the evidence from which
# run-to-run noise is borrowed.
#
# One row per group:
# `family,group,runs,mean_loss,sd,unit,rounding,start,schedule,varies,source,licence`. `sd` is the
# standard deviation over the group's runs of their final loss, in nats as `mean_loss`. `rounding`
# is how the runs round gradients, nearest or stochastic; a group without it lends to nobody.
# `start` is scratch, checkpoint or fine-tune, `schedule` the learning rate's at the end of the
# runs: finished, decaying, constant or warm-up; the level between families needs both (`between`),
# and an empty cell is unknown. Read, too: `mean_loss_nats` and `sd_nats` instead of `mean_loss` and
# `sd`, and columns that are not used (`UNUSED`).
#
# A row that is not usable makes its whole family unusable, because the row may be the noisy one.
# Rows with equal numbers are one group: the same runs under another name. Can fail: what is not in
# the table. Who names a family claims that model shape, data, batch, length (within a factor) and
# engine are like those of its groups; only a loss that is more than a tenth away from theirs shows
# that they are not.

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
                "its group may lend"
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


# The table of public reruns that ships with the package; only used for an arm that names one of its
# families.

PUBLIC = Path(__file__).with_name("public.csv")


@cache
def public_noise_table() -> NoiseTable:
    """The table, written by tools/public_noise_table.py."""
    return read_noise_table(PUBLIC.read_text(encoding="utf-8"))


# How much the groups of a family differ, and so what a further group's run-to-run noise is expected
# to be: s_g^2 ~ s0^2 F(d_g, d0).
#
# e_g = ln s_g^2 - digamma(d_g/2) + ln(d_g/2), t_g = trigamma(d_g/2) unbiased for the group's log
# variance, and its error's variance v = (sum w_g (e_g - m)^2 - sum w_g (1 - w_g) t_g) / (1 - sum
# w_g^2) w_g ~ 1/t_g with sum 1, m = sum w_g e_g d0 = 2 trigamma^-1(v), ln s0^2 = m + digamma(d0/2)
# - ln(d0/2) v <= 0: d0 infinite, ln s0^2 = m bound = min(2 trigamma^-1(v + t(G - 1, 97.5 %) se),
# 30) se of v by the jackknife over the G groups df lent = 1/(1/bound + 1/sum d_g) s0 itself is only
# known on sum d_g
#
# Before that each e_g is drawn in to median -+ 2.5 sqrt(v' + t_g), v' from the median absolute
# deviation: one broken or mislabelled group must not set the family's floor. Those groups are named
# as outliers. s is a share of the loss.
#
# Can fail: the next group is unlike the recorded ones, whatever their number; hence the bound on
# d0, which is never the estimate itself. Drawing in is not corrected for, so on simulated families
# the bound lies below the true d0 in 86 to 88 % instead of 97.5 %. Sources: Smyth 2004 (moments);
# DerSimonian and Laird 1986 (weights); Phipson et al. 2016 (robustness, there by other quantiles).

MIN_GROUPS = 3  # the jackknife needs two after leaving one out
MAX_DF = 30.0
MIN_FAMILY_DF = 8
REACH = 2.5  # standard deviations
LEVEL_REACH = 0.1  # of the loss; twice the tokens lower it by some 5 %
_MAD_TO_SD = 1.4826
ONE_SIDED = 0.975


@frozen
class FamilyFloor:
    """What groups of one family and class of rounding say of a further group: the floor as a share
    of the loss, worth `df`.

    `estimated_df` is d0 without its bound. `outliers` are the names of the groups that were drawn
    in, `levels` the smallest and the largest mean loss of the groups in nats; None: any loss will
    do. `families` counts the families of a floor between families (`between`) and is 0 for that of
    one.
    """

    share: float
    df: float
    estimated_df: float
    groups: int
    runs: int
    outliers: tuple[str, ...]
    levels: tuple[float, float] | None
    families: int = 0

    def is_near(self, level: float) -> bool:
        """Whether a loss is within a tenth of those of the groups: far from them it is another
        model, other data or another length.
        """
        if self.levels is None:
            return True
        return (1.0 - LEVEL_REACH) * self.levels[0] <= level <= (1.0 + LEVEL_REACH) * self.levels[1]


def fit_family(groups: Sequence[RerunGroup], *, one_level: bool = True) -> FamilyFloor:
    """Fit the groups of a family; without `one_level` their losses may differ, and the floor is
    lent at any loss.

    Raises ValueError with fewer than 3 groups, 8 degrees of freedom in all, or losses too far
    apart.
    """
    if len(groups) < MIN_GROUPS:
        raise ValueError(
            f"{count(len(groups), 'usable group')}; expected at least {MIN_GROUPS}, to see how far "
            "groups differ"
        )
    levels = _levels(groups)
    if one_level and (1.0 - LEVEL_REACH) * levels[1] > (1.0 + LEVEL_REACH) * levels[0]:
        raise ValueError(
            f"its groups end at losses of {levels[0]:.3g} to {levels[1]:.3g} nats; expected losses "
            "within a tenth of a common one"
        )
    total = sum(group.df for group in groups)
    if total < MIN_FAMILY_DF:
        raise ValueError(
            f"{count(total, 'degree')} of freedom in all groups; expected at least {MIN_FAMILY_DF}"
        )
    ordered = sorted(groups, key=lambda group: (group.share, group.df, group.group))
    logs, errors = log_variances(ordered)
    kept = drawn_in(logs, errors)
    mean, between = moments(kept, errors)
    estimated = 2.0 * inverse_trigamma(between)
    se = jackknife_se(kept, errors, lambda *left: moments(*left)[1])
    bound = 2.0 * inverse_trigamma(
        between + float(special.stdtrit(len(ordered) - 1, ONE_SIDED)) * se
    )
    return FamilyFloor(
        share=math.exp((mean + log_bias(estimated)) / 2.0),
        df=1.0 / (1.0 / min(bound, MAX_DF) + 1.0 / total),
        estimated_df=estimated,
        groups=len(ordered),
        runs=sum(group.runs for group in ordered),
        levels=levels if one_level else None,
        outliers=tuple(
            sorted(
                group.group
                for group, log, value in zip(ordered, logs, kept, strict=True)
                if log != value
            )
        ),
    )


def _levels(groups: Sequence[RerunGroup]) -> tuple[float, float]:
    losses = [group.mean_loss for group in groups]
    return min(losses), max(losses)


def inverse_trigamma(value: float) -> float:
    """x > 0 with trigamma(x) = value, by Newton's method; infinite at or below 0."""
    if value <= 0.0:
        return math.inf
    if value > 1e7:
        return 1.0 / math.sqrt(value)
    if value < 1e-6:
        return 1.0 / value
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        change = trigamma * (1.0 - trigamma / value) / float(special.polygamma(2, x))
        x += change
        if abs(change) < 1e-13 * x:
            break
    return x


def log_variances(groups: Sequence[RerunGroup]) -> tuple[FloatArray, FloatArray]:
    """e_g and t_g of groups, (n,) each."""
    half_df = np.array([group.df for group in groups]) / 2.0
    logs: FloatArray = (
        2.0 * np.log([group.share for group in groups]) - special.psi(half_df) + np.log(half_df)
    )
    errors: FloatArray = special.polygamma(1, half_df)
    return logs, errors


def drawn_in(logs: FloatArray, errors: FloatArray) -> FloatArray:
    """e_g (n,), each within 2.5 standard deviations of their median."""
    centre = float(np.median(logs))
    between = max(
        0.0, (_MAD_TO_SD * float(np.median(np.abs(logs - centre)))) ** 2 - float(np.median(errors))
    )
    reach = REACH * np.sqrt(between + errors)
    return np.clip(logs, centre - reach, centre + reach)


def moments(logs: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """m and v; v may be negative."""
    weights = 1.0 / errors
    weights /= weights.sum()
    mean = float(weights @ logs)
    within = float(weights @ ((1.0 - weights) * errors))
    return mean, (float(weights @ (logs - mean) ** 2) - within) / (1.0 - float(weights @ weights))


def jackknife_se(
    logs: FloatArray, errors: FloatArray, estimate: Callable[[FloatArray, FloatArray], float]
) -> float:
    """The standard error of an estimate from (n,) logs and errors, by leaving each out in turn."""
    n = len(logs)
    left_out = np.array(
        [estimate(np.delete(logs, index), np.delete(errors, index)) for index in range(n)]
    )
    return math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))


def log_bias(df: float) -> float:
    """digamma(df/2) - ln(df/2)."""
    if math.isinf(df):
        return 0.0
    return float(special.psi(df / 2.0)) - math.log(df / 2.0)


# Reruns of the emulated engine's own small models, and what they lend to jobs of that engine that
# nobody told where to borrow.
#
# DEMO    reruns of one specification, that of examples/demo.yaml, over seeds and replicates
#         (tools/emulated_noise_table.py): of the recipes
#   that
#         round alike one group, with the variance of one run of a seed of its own
#         s0^2 = sum d_g s_g^2 / sum d_g, df = sum d_g       groups of one set-up: there is nothing
#           between them to estimate
# SMALL   reruns of other sizes, lengths and texts, each group of one such set-up and one recipe,
#         with the demo's as some of them:
#         `model.fit_family` over the groups, whatever their losses
#
# Only for models of fewer than LARGEST parameters whose schedule finished. Can fail: a set-up that
# is unlike the recorded ones (0.3 to 3 M parameters, 500 to 4,500 steps), and another processor,
# whose sums have another order; all were trained on one class of CPU. Left out of the groups of
# SMALL, pairs of each of them are covered in 93 % or more, 99 % on average
# (tests/parity/judging/test_emulated.py).

TABLE = Path(__file__).with_name("emulated.csv")
DEMO, SMALL = "emulated small models/demo", "emulated small models/other sizes"
EMULATED = frozenset({DEMO, SMALL})
LARGEST = 10_000_000  # parameters; larger ones are no small models any more


@cache
def emulated_noise_table() -> NoiseTable:
    """The table, written by tools/emulated_noise_table.py."""
    return read_noise_table(TABLE.read_text(encoding="utf-8"))


def fit_emulated(name: str, groups: Sequence[RerunGroup]) -> FamilyFloor:
    """What the groups of DEMO or SMALL that round alike lend. Raises ValueError where they are too
    few.
    """
    if name == SMALL:
        return fit_family(groups, one_level=False)
    df = sum(group.df for group in groups)
    if df < MIN_FAMILY_DF:
        raise ValueError(
            f"{count(df, 'degree')} of freedom in all groups; expected at least {MIN_FAMILY_DF}"
        )
    return FamilyFloor(
        share=math.sqrt(sum(group.df * group.share**2 for group in groups) / df),
        df=min(float(df), MAX_DF),
        estimated_df=math.inf,
        groups=len(groups),
        runs=sum(group.runs for group in groups),
        outliers=(),
        levels=_levels(groups),
    )
