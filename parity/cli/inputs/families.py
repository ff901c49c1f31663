"""The families of a noise table that options name, and what the arms can borrow from them."""

from collections.abc import Sequence

from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.case import check_arm
from parity.comparing.noise_tables import check_families, read_rerun_table
from parity.comparing.statements import check_noise_table
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.noise.public_table import public_noise_table


def stated_families(items: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The family by arm, from NAME for every arm or ARM=NAME for one; UsageError for an unknown
    arm, or an arm that gets two.
    """
    families: dict[str, str] = {}
    for item in items:
        arm, mark, family = item.partition("=")
        if not mark:
            arms, family = tuple(names), item
        else:
            check_arm(arm, names, "--family")
            arms = (arm,)
        if not family:
            raise UsageError(
                f"--family is {item!r}; expected NAME or ARM=NAME with the name of a family "
                "(`parity noise list`)"
            )
        for one in arms:
            if families.setdefault(one, family) != family:
                raise UsageError(
                    f"--family names {families[one]!r} and {family!r} for {one}; expected one "
                    "family per arm"
                )
    return families


def known_family(name: str | None) -> list[str]:
    """A family that a run's config states, as --family would be given, if the public table
    has it.
    """
    if name is not None and name in public_noise_table().families:
        return [name]
    return []


def stated_noise_families(
    items: Sequence[str], file: str | None, names: Sequence[str]
) -> NoiseFamilies:
    """What the arms may borrow in a plan; InputError for a family that the table does not have, and
    for a table without a family.
    """
    check_noise_table(file, "--noise-table", items, "--family")
    families = stated_families(items, names)
    table = read_rerun_table(file) if families else None
    if table is not None:
        check_families(families, table, "--family", file)
    return NoiseFamilies(table, families)
