"""Which run-to-run noise an arm may borrow from a family, what its own runs leave of the loan, and
the lists that show it.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import ROUNDINGS, FloatArray, Rounding
from parity.judging.noise.noise_table import (
    ANY_DECODER,
    EMULATED,
    MAX_DF,
    MIN_FAMILY_DF,
    MIN_GROUPS,
    ONE_SIDED,
    Family,
    FamilyFloor,
    NoiseTable,
    RerunGroup,
    drawn_in,
    fit_emulated,
    fit_family,
    inverse_trigamma,
    jackknife_se,
    log_bias,
    log_variances,
    moments,
)
from parity.judging.policy import STOCHASTIC_FACTOR
from parity.structure import frozen
from parity.wording import count, percent

# How much families differ, and so what run-to-run noise a model that belongs to none of them starts
# from: the family `any-decoder`.
#
# per family f, with its groups' e_g, t_g (`model`) and their variance between groups v_f = max(0,
# v):
#     e_f = sum w_g e_g, w_g ~ 1/(t_g + v_f), t_f = 1/sum 1/(t_g + v_f)      the family's log
#       variance, and its error's variance
# v   = max(0, var(e_f) - mean t_f)                                          between families
#     (Hedges 1983), each counting once
# m   = mean e_f
# V   = v + t(F - 1, 95 %) se + median v_f + var(e_f)/F                    se of v by the jackknife
#     over the F families
# d0  = 2 trigamma^-1(V), at most 30;  ln s0^2 = m + digamma(d0/2) - ln(d0/2)
# stochastic rounding: 1.5 s0
#
# Evidence are families of decoders that were trained from scratch to the end of their schedule,
# rounding to nearest, with at least 8 degrees of freedom. A noisy family is not drawn in, because
# that is what a user may have. A quiet one is, to 2.5 standard deviations below the median: a
# family of nearly equal reruns would make d0, and with it s0, collapse. Below 1.5 degrees of
# freedom nothing is lent. Where the schedule is not at its end, runs of one model differ 4 to 20
# times as much (0.17 to 1.3 % of the loss at 8B): nothing is lent there.
#
# 1.5 is more than what rounding stochastically adds at 8B between runs of different seeds, 1.15 (p
# = 0.46). Between emulated reruns of one seed at 0.3 to 1M parameters it is 1.79 (1.26 to 2.54).
#
# Can fail: few families are on record, all below 1B parameters and several of one code base. A
# model unlike them is covered only as far as the heavy tail (2 to 3 degrees of freedom) reaches,
# and one run per arm can't contradict it. Sources: Hedges 1983 (variance between studies); Smyth
# 2004; docs/design/noise.md#any-decoder.

MIN_FAMILIES = 4
MIN_DF = 1.5
_BOUND = 0.95  # one-sided


@frozen
class FamilyNoise:
    """One family that counts here: its groups, its log variance e_f with the variance t_f of that,
    and v_f between its groups.
    """

    name: str
    groups: tuple[RerunGroup, ...]
    log_variance: float
    error: float
    within: float

    @property
    def share(self) -> float:
        """The family's run-to-run noise as a share of the loss."""
        return math.exp(self.log_variance / 2.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval, from the normal distribution of the logarithm."""
        reach = float(special.ndtri(ONE_SIDED)) * math.sqrt(self.error) / 2.0
        return self.share * math.exp(-reach), self.share * math.exp(reach)


def evidence_families(noise_table: NoiseTable) -> tuple[FamilyNoise, ...]:
    """The families of the table that count here, with their groups that do; a family with an
    unusable row does not count.
    """
    families = [family for family in noise_table.families.values() if not family.problems]
    counted = {
        family.name: tuple(
            g
            for g in family.groups
            if (g.start, g.schedule, g.rounding) == ("scratch", "finished", "nearest")
        )
        for family in families
    }
    return tuple(
        _noise(name, groups)
        for name, groups in counted.items()
        if sum(group.df for group in groups) >= MIN_FAMILY_DF
    )


def fit_between(noise_table: NoiseTable, rounding: Rounding) -> FamilyFloor:
    """Fit the families of the table. Raises ValueError with fewer than 4 that count."""
    families = evidence_families(noise_table)
    if len(families) < MIN_FAMILIES:
        raise ValueError(
            f"{count(len(families), 'family', 'families')} of decoders trained from scratch to the "
            f"end of their schedule, rounding to nearest, with {MIN_FAMILY_DF} degrees of freedom; "
            f"expected at least {MIN_FAMILIES}, to see how far families differ"
        )
    given, errors, within = np.array(
        [(family.log_variance, family.error, family.within) for family in families]
    ).T
    logs = np.maximum(given, drawn_in(given, errors))
    between = _between(logs, errors)
    bound = between + float(special.stdtrit(len(logs) - 1, _BOUND)) * jackknife_se(
        logs, errors, _between
    )
    df = min(
        2.0
        * inverse_trigamma(
            bound + float(np.median(within)) + float(np.var(logs, ddof=1)) / len(logs)
        ),
        MAX_DF,
    )
    if df < MIN_DF:
        raise ValueError(
            f"its {len(families)} families differ too much ({df:.2f} degrees of freedom; expected "
            f"{MIN_DF})"
        )
    share = math.exp((float(logs.mean()) + log_bias(df)) / 2.0)
    every = [group for family in families for group in family.groups]
    return FamilyFloor(
        share=share * (STOCHASTIC_FACTOR if rounding == "stochastic" else 1.0),
        df=df,
        estimated_df=2.0 * inverse_trigamma(between),
        groups=len(every),
        runs=sum(group.runs for group in every),
        outliers=(),
        levels=None,
        families=len(families),
    )


def _between(logs: FloatArray, errors: FloatArray) -> float:
    return max(0.0, float(np.var(logs, ddof=1)) - float(errors.mean()))


def _noise(name: str, groups: tuple[RerunGroup, ...]) -> FamilyNoise:
    logs, errors = log_variances(
        sorted(groups, key=lambda group: (group.share, group.df, group.group))
    )
    within = 0.0
    if len(groups) >= MIN_GROUPS:
        logs = drawn_in(logs, errors)
        within = max(0.0, moments(logs, errors)[1])
    weights = 1.0 / (errors + within)
    total = float(weights.sum())
    return FamilyNoise(
        name=name,
        groups=groups,
        log_variance=float(weights @ logs) / total,
        error=1.0 / total,
        within=within,
    )


# How far a comparison's own runs contradict the family whose run-to-run noise it borrows, and what
# is left of the loan.
#
# p = P(F(d, df_lent) >= s_own^2/s0^2) s_own: spread of the own runs on d degrees of freedom; no own
# reruns: p = 1 weight = min(1, p / 0.2) 1: the family counts in full; the conflict is named below p
# = 0.05 tau0^2 = weight s0^2 + (1 - weight) wide^2 wide: the largest of the assumed floor, s0 and
# s_own df = weight df_lent + (1 - weight) df_assumed
#
# Continuous in s_own, so no run decides alone whether the family counts. Only noisier runs
# contradict: quieter ones leave the floor of the family, which is then too wide. With a weight of 0
# the arm is back at what it has without a family, and never below its own spread, so that an arm
# with a single run does not keep the quiet family that its partner's reruns refute.
#
# Can fail: one run per arm shows no spread, so nothing can contradict the family then. Below p =
# 0.2 the own spread counts in the prior and as data. 0.2 was chosen so that pairs of 2 to 5 times
# the family's floor, with 5 runs in an arm, are covered in 90 %; two runs per arm reach 86 %
# (benchmarks/calibration.py, F4). Idea: robust mixture priors (Schmidli et al. 2014).

FULL_FROM, NAMED_BELOW = 0.2, 0.05  # p


@frozen
class Spread:
    """Squares of own runs about their means, as multiples of the variance that the lent floor
    expects, on `df` degrees of freedom.
    """

    squares: float
    df: float

    @property
    def ratio(self) -> float | None:
        """s_own^2 / s0^2; None without own reruns."""
        if not self.df:
            return None
        return self.squares / self.df

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(squares=self.squares + other.squares, df=self.df + other.df)


@frozen
class Agreement:
    """How the own runs fit the family: p, the family's weight (0 to 1), and the own spread over
    that of the family; None without reruns.
    """

    p: float
    weight: float
    ratio: float | None

    @property
    def contradicted(self) -> bool:
        """Whether the own runs are noisier than the family explains."""
        return self.p < NAMED_BELOW


def agreement(own: Spread, floor: FamilyFloor) -> Agreement:
    """Compare the spread of the own runs with the family's floor."""
    if own.ratio is None:
        return Agreement(p=1.0, weight=1.0, ratio=None)
    p = float(special.fdtrc(own.df, floor.df, own.ratio)) if math.isfinite(own.ratio) else 0.0
    return Agreement(p=p, weight=min(1.0, p / FULL_FROM), ratio=math.sqrt(own.ratio))


# Which floor an arm may borrow: that of the groups in the family it names that round as the arm
# does, or the reason why it gets none.
#
# A family is only ever used for the arm that names it. `any-decoder` names no family: a decoder
# trained from scratch to the end of its schedule that has none on record (`noise_table.between`).
# Jobs of engine emulated borrow without naming a family (`noise_table.emulated`). An arm whose
# rounding is not on record counts as stochastic, as everywhere.

LEAST_SHARE = 1e-4  # of the loss; the least that a public family lends is 0.028 %


@frozen
class Lender:
    """The family that an arm named, and the floor of its groups that round as the arm does; without
    a floor, `refused` has the reason.
    """

    family: str
    floor: FamilyFloor | None
    bit_equal: int = 0
    refused: str = ""

    @property
    def name(self) -> str:
        """The family in words; `any-decoder` with the families that it rests on."""
        if self.floor and self.floor.families:
            return f"{self.family} ({self.floor.families} families)"
        return self.family

    @property
    def needs_finished(self) -> bool:
        """Whether what it lends holds only for runs that finished their schedule."""
        return self.floor is not None and (self.floor.families > 0 or self.family in EMULATED)


@frozen
class Loan:
    """A family's floor as one arm uses it: weighted by how the comparison's own runs agree
    with it.
    """

    lender: Lender
    floor: FamilyFloor
    agreement: Agreement

    @property
    def is_data(self) -> bool:
        """Whether the floor was measured on runs of the arm's own family; what other families have
        is an assumption.
        """
        return not self.floor.families

    @property
    def df(self) -> float:
        """Degrees of freedom that count as data of other runs."""
        if not self.is_data:
            return 0.0
        return self.agreement.weight * self.floor.df


def between_families(*lenders: Lender | None) -> bool:
    """Whether all of them lend the one estimate of `noise_table.between`; two arms that do are
    wrong together, however each rounds.
    """
    return all(
        lender is not None and lender.floor is not None and lender.floor.families > 0
        for lender in lenders
    )


class Lenders:
    """The lenders of a comparison by arm; each family is fitted once. Raises ValueError where a
    family is named without a table.
    """

    def __init__(self, noise_table: NoiseTable | None, families: Mapping[str, str]) -> None:
        if families and noise_table is None:
            raise ValueError(
                f"families are {dict(families)} without a noise table; expected the table to "
                "borrow from"
            )
        self._noise_table = noise_table
        self._families = families
        self._fitted: dict[tuple[str, Rounding], Lender] = {}

    def of(self, arm: str, rounding: Rounding) -> Lender | None:
        """The lender of an arm that rounds so; None where the arm names no family."""
        family = self._families.get(arm)
        if family is None or self._noise_table is None:
            return None
        if (family, rounding) not in self._fitted:
            self._fitted[family, rounding] = find_lender(self._noise_table, family, rounding)
        return self._fitted[family, rounding]


def find_lender(noise_table: NoiseTable, name: str, rounding: Rounding) -> Lender:
    """What the family lends to an arm of that rounding; a refusal has its reason."""
    if name == ANY_DECODER:
        try:
            return Lender(family=name, floor=fit_between(noise_table, rounding))
        except ValueError as error:
            return refused(name, str(error))
    family = noise_table.families.get(name)
    if family is None:
        return refused(name, "the noise table has no family of this name")
    if family.problems:
        if len(family.problems) > 1:
            more = f", and {count(len(family.problems) - 1, 'more row')} like it"
        else:
            more = ""
        return refused(name, f"a row of it is not usable ({family.problems[0]}{more})")
    groups = [group for group in family.groups if group.rounding == rounding]
    if not groups:
        return refused(
            name,
            _nothing_of(
                rounding, {group.rounding for group in family.groups}, len(family.bit_equal)
            ),
        )
    try:
        floor = fit_emulated(name, groups) if name in EMULATED else fit_family(groups)
    except ValueError as error:
        return refused(name, f"{error} (rounding {rounding})")
    if floor.df < MIN_DF:
        return refused(
            name,
            f"its {floor.groups} groups show too little of how far groups differ ({floor.df:.2f} "
            f"degrees of freedom; expected {MIN_DF})",
        )
    if floor.share < LEAST_SHARE:
        return refused(
            name,
            f"its floor is {percent(floor.share)} of the loss, below {percent(LEAST_SHARE)}: no "
            "family on record comes near that",
        )
    return Lender(family=name, floor=floor, bit_equal=len(family.bit_equal))


def refused(name: str, reason: str) -> Lender:
    """A family that lends nothing, with the reason."""
    return Lender(family=name, floor=None, refused=reason)


def _nothing_of(rounding: Rounding, others: set[Rounding | None], bit_equal: int) -> str:
    if not others:
        return (
            f"all its reruns are equal bit for bit ({count(bit_equal, 'group')}), which shows no "
            "run-to-run noise"
        )
    stated = sorted(word for word in others if word)
    if stated:
        have = f"its groups round {' or '.join(stated)}"
    else:
        have = "it is not stated how its groups round"
    return f"it has no group with {rounding} rounding, as the arm has or is taken to have; {have}"


# Rows of lists that show families of reruns: one row per family and class of rounding, with what it
# lends or why it lends nothing.


@frozen
class FamilyRow:
    """A family's groups of one class of rounding (None: not stated); without a `floor`, `refused`
    says why they lend nothing.
    """

    name: str
    rounding: Rounding | None
    groups: int
    runs: int
    floor: FamilyFloor | None
    refused: str


def family_rows(noise_table: NoiseTable) -> list[FamilyRow]:
    """The rows of all families of a table, in order of their names."""
    return [
        row for family in noise_table.families.values() for row in _of_family(noise_table, family)
    ]


def any_decoder_rows(noise_table: NoiseTable) -> list[FamilyRow]:
    """What a table says of the level between families (`between`), per class of rounding."""
    rows = []
    for rounding in ROUNDINGS:
        lender = find_lender(noise_table, ANY_DECODER, rounding)
        groups, runs = (lender.floor.groups, lender.floor.runs) if lender.floor else (0, 0)
        rows.append(
            FamilyRow(
                name=ANY_DECODER,
                rounding=rounding,
                groups=groups,
                runs=runs,
                floor=lender.floor,
                refused=lender.refused,
            )
        )
    return rows


def outliers_of(noise_table: NoiseTable, name: str) -> set[str]:
    """The names of the groups of a family that were drawn in, of any class of rounding."""
    lent = (find_lender(noise_table, name, rounding).floor for rounding in ROUNDINGS)
    return {outlier for floor in lent if floor is not None for outlier in floor.outliers}


def _of_family(noise_table: NoiseTable, family: Family) -> Iterator[FamilyRow]:
    classes: list[Rounding | None] = [
        one for one in (*ROUNDINGS, None) if any(group.rounding == one for group in family.groups)
    ]
    for rounding in classes or [None]:
        groups = [group for group in family.groups if group.rounding == rounding]
        lender = find_lender(noise_table, family.name, rounding) if rounding else None
        yield FamilyRow(
            name=family.name,
            rounding=rounding,
            groups=len(groups),
            runs=sum(group.runs for group in groups),
            floor=lender.floor if lender else None,
            refused=lender.refused if lender else _why_nothing(family),
        )


def _why_nothing(family: Family) -> str:
    """Why groups that do not state their rounding, or none at all, lend nothing."""
    if family.problems:
        return family.problems[0]
    if family.groups:
        return "it is not stated how its groups round"
    return "all its groups are equal bit for bit"
