"""Which floor an arm may borrow: that of the groups in the family it names that round as the arm does, or the reason why it gets none.

A family is only ever used for the arm that names it. `any-decoder` names no family: a decoder trained from scratch to the end of its
schedule that has none on record (`floors.between`). Jobs of engine emulated borrow without naming a family (`floors.emulated`). An arm
whose rounding is not on record counts as stochastic, as everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parity.judging.curve import Rounding
from parity.judging.floors.between import MIN_DF, fit_between
from parity.judging.floors.conflict import Agreement
from parity.judging.floors.emulated import EMULATED, fit_emulated
from parity.judging.floors.groups import ANY_DECODER, Floors
from parity.judging.floors.model import FamilyFloor, fit_family
from parity.wording import count, percent

LEAST_SHARE = 1e-4  # of the loss; the least that a public family lends is 0.028 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """The family that an arm named, and the floor of its groups that round as the arm does; without a floor, `refused` has the reason."""

    family: str
    floor: FamilyFloor | None
    bit_equal: int = 0
    refused: str = ""

    @property
    def name(self) -> str:
        """The family in words; `any-decoder` with the families that it rests on."""
        return f"{self.family} ({self.floor.families} families)" if self.floor and self.floor.families else self.family

    @property
    def needs_finished(self) -> bool:
        """Whether what it lends holds only for runs that finished their schedule."""
        return self.floor is not None and (self.floor.families > 0 or self.family in EMULATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """A family's floor as one arm uses it: weighted by how the comparison's own runs agree with it."""

    lender: Lender
    floor: FamilyFloor
    agreement: Agreement

    @property
    def is_data(self) -> bool:
        """Whether the floor was measured on runs of the arm's own family; what other families have is an assumption."""
        return not self.floor.families

    @property
    def df(self) -> float:
        """Degrees of freedom that count as data of other runs."""
        return self.agreement.weight * self.floor.df if self.is_data else 0.0


def between_families(*lenders: Lender | None) -> bool:
    """Whether all of them lend the one estimate of `floors.between`; two arms that do are wrong together, however each rounds."""
    return all(lender is not None and lender.floor is not None and lender.floor.families > 0 for lender in lenders)


class Lenders:
    """The lenders of a comparison by arm; each family is fitted once. Raises ValueError where a family is named without a table."""

    def __init__(self, floors: Floors | None, families: Mapping[str, str]) -> None:
        if families and floors is None:
            raise ValueError(f"families are {dict(families)} without floors; expected a table of floors to borrow from")
        self._floors = floors
        self._families = families
        self._fitted: dict[tuple[str, Rounding], Lender] = {}

    def of(self, arm: str, rounding: Rounding) -> Lender | None:
        """The lender of an arm that rounds so; None where the arm names no family."""
        family = self._families.get(arm)
        if family is None or self._floors is None:
            return None
        if (family, rounding) not in self._fitted:
            self._fitted[family, rounding] = find_lender(self._floors, family, rounding)
        return self._fitted[family, rounding]


def find_lender(floors: Floors, name: str, rounding: Rounding) -> Lender:
    """What the family lends to an arm of that rounding; a refusal has its reason."""
    if name == ANY_DECODER:
        return _of_no_family(floors, rounding)
    family = floors.families.get(name)
    if family is None:
        return _refused(name, "the floors table has no family of this name")
    if family.problems:
        more = f", and {count(len(family.problems) - 1, 'more row')} like it" if len(family.problems) > 1 else ""
        return _refused(name, f"a row of it is not usable ({family.problems[0]}{more})")
    groups = [group for group in family.groups if group.rounding == rounding]
    if not groups:
        return _refused(name, _nothing_of(rounding, {group.rounding for group in family.groups}, len(family.bit_equal)))
    try:
        floor = fit_emulated(name, groups) if name in EMULATED else fit_family(groups)
    except ValueError as error:
        return _refused(name, f"{error} (rounding {rounding})")
    if floor.df < MIN_DF:
        return _refused(
            name,
            f"its {floor.groups} groups show too little of how far groups differ ({floor.df:.2f} degrees of freedom; expected {MIN_DF})",
        )
    if floor.share < LEAST_SHARE:
        return _refused(
            name, f"its floor is {percent(floor.share)} of the loss, below {percent(LEAST_SHARE)}: no family on record comes near that"
        )
    return Lender(family=name, floor=floor, bit_equal=len(family.bit_equal))


def _of_no_family(floors: Floors, rounding: Rounding) -> Lender:
    try:
        return Lender(family=ANY_DECODER, floor=fit_between(floors, rounding))
    except ValueError as error:
        return _refused(ANY_DECODER, str(error))


def _refused(name: str, reason: str) -> Lender:
    return Lender(family=name, floor=None, refused=reason)


def _nothing_of(rounding: Rounding, others: set[Rounding | None], bit_equal: int) -> str:
    if not others:
        return f"all its reruns are equal bit for bit ({count(bit_equal, 'group')}), which shows no run noise"
    stated = sorted(word for word in others if word)
    have = f"its groups round {' or '.join(stated)}" if stated else "it is not stated how its groups round"
    return f"it has no group with {rounding} rounding, as the arm has or is taken to have; {have}"
