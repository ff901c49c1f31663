"""Which noise an arm may borrow: that of the groups in the family it names that round as the arm
does, or the reason why it gets none.

A family is only ever used for the arm that names it. `any-decoder` names no family: a decoder
trained from scratch to the end of its schedule that has none on record (`noise_table.between`).
Jobs of engine emulated borrow without naming a family (`noise_table.emulated`). An arm whose
rounding is not on record counts as stochastic, as everywhere.
"""

from collections.abc import Mapping

from parity.frozen import frozen
from parity.judging.curves.curve import Rounding
from parity.judging.noise.any_decoder import MIN_DF, fit_between
from parity.judging.noise.contradiction import Agreement
from parity.judging.noise.emulated_table import EMULATED, fit_emulated
from parity.judging.noise.family_spread import FamilyNoise, fit_family
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable
from parity.wording import count, percent

LEAST_SHARE = 1e-4  # of the loss; the least of a public family is 0.028 %


@frozen
class NoiseSource:
    """The family that an arm named, and the noise of its groups that round as the arm does; without
    noise, `refused` has the reason.
    """

    family: str
    noise: FamilyNoise | None
    bit_equal: int = 0
    refused: str = ""

    @property
    def name(self) -> str:
        """The family in words; `any-decoder` with the families that it rests on."""
        if self.noise and self.noise.families:
            return f"{self.family} ({self.noise.families} families)"
        return self.family

    @property
    def needs_finished(self) -> bool:
        """Whether its noise holds only for runs that finished their schedule."""
        return self.noise is not None and (self.noise.families > 0 or self.family in EMULATED)


@frozen
class BorrowedNoise:
    """A family's noise as one arm uses it: weighted by how the comparison's own runs agree
    with it.
    """

    noise_source: NoiseSource
    noise: FamilyNoise
    agreement: Agreement

    @property
    def is_data(self) -> bool:
        """Whether the noise was measured on runs of the arm's own family; what other families have
        is an assumption.
        """
        return not self.noise.families

    @property
    def df(self) -> float:
        """Degrees of freedom that count as data of other runs."""
        if not self.is_data:
            return 0.0
        return self.agreement.weight * self.noise.df


def between_families(*noise_sources: NoiseSource | None) -> bool:
    """Whether all of them are the one estimate of `any_decoder`; two arms that borrow it are
    wrong together, however each rounds.
    """
    return all(
        noise_source is not None
        and noise_source.noise is not None
        and noise_source.noise.families > 0
        for noise_source in noise_sources
    )


class NoiseFamilies:
    """The families of a comparison by arm; each is fitted once. Raises ValueError where a family is
    named without a table.
    """

    def __init__(self, noise_table: NoiseTable | None, families: Mapping[str, str]) -> None:
        if families and noise_table is None:
            raise ValueError(
                f"families are {dict(families)} without a noise table; expected the table to "
                "borrow from"
            )
        self._noise_table = noise_table
        self._families = families
        self._fitted: dict[tuple[str, Rounding], NoiseSource] = {}

    def of(self, arm: str, rounding: Rounding) -> NoiseSource | None:
        """What an arm that rounds so can borrow; None where the arm names no family."""
        family = self._families.get(arm)
        if family is None or self._noise_table is None:
            return None
        if (family, rounding) not in self._fitted:
            self._fitted[family, rounding] = find_noise_source(self._noise_table, family, rounding)
        return self._fitted[family, rounding]


def find_noise_source(noise_table: NoiseTable, name: str, rounding: Rounding) -> NoiseSource:
    """What an arm of that rounding can borrow from the family; a refusal has its reason."""
    if name == ANY_DECODER:
        try:
            return NoiseSource(family=name, noise=fit_between(noise_table, rounding))
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
        noise = fit_emulated(name, groups) if name in EMULATED else fit_family(groups)
    except ValueError as error:
        return refused(name, f"{error} (rounding {rounding})")
    if noise.df < MIN_DF:
        return refused(
            name,
            f"its {noise.groups} groups show too little of how far groups differ ({noise.df:.2f} "
            f"degrees of freedom; expected {MIN_DF})",
        )
    if noise.share < LEAST_SHARE:
        return refused(
            name,
            f"its noise is {percent(noise.share)} of the loss, below {percent(LEAST_SHARE)}: no "
            "family on record comes near that",
        )
    return NoiseSource(family=name, noise=noise, bit_equal=len(family.bit_equal))


def refused(name: str, reason: str) -> NoiseSource:
    """A family from which nothing can be borrowed, with the reason."""
    return NoiseSource(family=name, noise=None, refused=reason)


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
