"""Rows of lists that show families of reruns: one row per family and class of rounding, with its
noise or why it has none.
"""

from collections.abc import Iterator

from parity.frozen import frozen
from parity.judging.curves.curve import ROUNDINGS, Rounding
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, Family, NoiseTable


@frozen
class FamilyRow:
    """A family's groups of one class of rounding (None: not stated); without `noise`, `refused`
    says why.
    """

    name: str
    rounding: Rounding | None
    groups: int
    runs: int
    noise: FamilyNoise | None
    refused: str


def family_rows(noise_table: NoiseTable) -> list[FamilyRow]:
    """The rows of all families of a table, in order of their names."""
    return [
        row for family in noise_table.families.values() for row in _family_rows(noise_table, family)
    ]


def any_decoder_rows(noise_table: NoiseTable) -> list[FamilyRow]:
    """What a table says of the level between families (`between`), per class of rounding."""
    rows = []
    for rounding in ROUNDINGS:
        noise_source = find_noise_source(noise_table, ANY_DECODER, rounding)
        groups, runs = (
            (noise_source.noise.groups, noise_source.noise.runs) if noise_source.noise else (0, 0)
        )
        rows.append(
            FamilyRow(
                name=ANY_DECODER,
                rounding=rounding,
                groups=groups,
                runs=runs,
                noise=noise_source.noise,
                refused=noise_source.refused,
            )
        )
    return rows


def outliers_of(noise_table: NoiseTable, name: str) -> set[str]:
    """The names of the groups of a family that were drawn in, of any class of rounding."""
    family_noise = (find_noise_source(noise_table, name, rounding).noise for rounding in ROUNDINGS)
    return {outlier for noise in family_noise if noise is not None for outlier in noise.outliers}


def _family_rows(noise_table: NoiseTable, family: Family) -> Iterator[FamilyRow]:
    classes: list[Rounding | None] = [
        one for one in (*ROUNDINGS, None) if any(group.rounding == one for group in family.groups)
    ]
    for rounding in classes or [None]:
        groups = [group for group in family.groups if group.rounding == rounding]
        noise_source = find_noise_source(noise_table, family.name, rounding) if rounding else None
        yield FamilyRow(
            name=family.name,
            rounding=rounding,
            groups=len(groups),
            runs=sum(group.runs for group in groups),
            noise=noise_source.noise if noise_source else None,
            refused=noise_source.refused if noise_source else _why_nothing(family),
        )


def _why_nothing(family: Family) -> str:
    """Why nothing can be borrowed from groups that do not state their rounding, or from none."""
    if family.problems:
        return family.problems[0]
    if family.groups:
        return "it is not stated how its groups round"
    return "all its groups are equal bit for bit"
