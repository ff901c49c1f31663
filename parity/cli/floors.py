"""The commands for tables of reruns, from which run floors are borrowed: list, show, export those of a server, import into it."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from parity.canonical_json import json_value
from parity.cli.connection import Asked, Connection
from parity.cli.inputs import expected_family
from parity.cli.options import Json, argument, flag, flat, option
from parity.cli.terminal.help import Group
from parity.cli.terminal.output import UsageError
from parity.comparing.reruns import read_rerun_table, rerun_table
from parity.judging.curve import ROUNDINGS, Rounding
from parity.judging.floors.between import FamilyNoise, evidence_families
from parity.judging.floors.groups import ANY_DECODER, Family, Floors, RerunGroup
from parity.judging.floors.lending import Lender, find_lender
from parity.judging.floors.listing import FamilyRow, any_decoder_rows, family_rows, outliers_of
from parity.wording import count, percent

app = typer.Typer(
    name="floors",
    help="Show tables of reruns: how much runs of one recipe differ, by family. `compare --family` borrows from them.",
    cls=Group,
    epilog="parity floors show modded-nanogpt-124M/track3",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_HOW = {False: "jobs with `replicates` make them", True: "`parity floors import FILE` imports a table"}
_File = Annotated[str | None, argument("[FILE]", "Table of reruns (CSV). [default: the public one of this package]")]
_Family = Annotated[str, argument("FAMILY", "Name of a family, as `parity floors list` prints it.")]


@app.command("list", epilog="parity floors list")
@flat
def index(file: _File = None, *, out: Json) -> int:
    """List the families of a table with their run noise, then any-decoder."""
    floors = read_rerun_table(file)
    documents = [*(_family_document(floors, family) for family in floors.families.values()), _general_document(floors)]
    rows = map(_family_cells, (*family_rows(floors), *any_decoder_rows(floors)))
    return out.show_rows(documents, ("family", "rounding", "groups", "runs", "tau, of the loss", "df", "note"), rows)


@app.command(epilog="parity floors show modded-nanogpt-124M/track3")
@flat
def show(name: _Family, file: _File = None, *, out: Json) -> int:
    """Show a family: its pooled run noise, each group's with its 95 % interval, and the outliers."""
    floors = read_rerun_table(file)
    if name == ANY_DECODER:
        return _show_general(floors, out)
    family = floors.families.get(name)
    if family is None:
        raise UsageError(f"the table has no family {name!r}; {expected_family(name, floors, file)}")
    if not out.as_json:
        _print_floors(name, _lenders(floors, family))
        for line in (*family.problems, *(f"group {group!r}: reruns equal bit for bit, not used" for group in family.bit_equal)):
            print(line, file=sys.stderr)
    outliers = outliers_of(floors, name)
    rows = (_group_row(group, outliers) for group in family.groups)
    return out.show_rows(_family_document(floors, family), ("group", "runs", "loss", "tau, of the loss", "95 % interval", "note"), rows)


@app.command(epilog="parity floors export --anonymous")
@flat
def export(
    anonymous: bool = flag("--anonymous", "Number families and groups, and leave out where they are from."),
    imported: bool = flag("--imported", "Print the reruns that were imported, not those of the server's jobs."),
    *,
    at: Connection,
) -> int:
    """Print the reruns that a server has on record as a table (CSV)."""
    with at.client() as client:
        text = client.floors("imported" if imported else "record")
    if len(text.splitlines()) < 2:
        print(f"no reruns {'imported' if imported else 'on record'} yet; {_HOW[imported]}", file=sys.stderr)
        return 0
    floors = rerun_table(text, f"the table of {at.server}")
    print((anonymized(floors) if anonymous else floors).csv(), end="")
    return 0


@app.command("import", epilog="parity floors import floors.csv --family my-700M")
@flat
def import_table(
    file: Annotated[str, argument("FILE", "Table of reruns (CSV), as `parity floors export` prints it.")],
    family: str | None = option(None, "Import only this family. [default: all of the table]", "NAME"),
    *,
    at: Asked,
) -> int:
    """Import a table of reruns into a server, for jobs that name one of its families (`family:` in the job file).

    Imports all or nothing; groups that were imported before change nothing.
    """
    table = read_rerun_table(file)
    if family is not None and family not in table.families:
        raise UsageError(f"--family is {family!r}, which the table does not have; {expected_family(family, table, file, general=False)}")
    with at.client() as client:
        done = client.import_floors(table.csv(), family)
    known = f", {count(done['known_groups'], 'group')} known before" if done["known_groups"] else ""
    return at.show(done, [f"{count(done['new_groups'], 'new group')}{known}: {', '.join(done['families'])}"])


def anonymized(floors: Floors) -> Floors:
    """The table with numbered families and groups, without the columns that say where they are from."""
    families = {name: f"family-{number}" for number, name in enumerate(dict.fromkeys(row["family"] for row in floors.rows), 1)}
    hidden = {"varies": "", "source": "", "licence": ""}
    rows = ({**row, **hidden, "family": families[row["family"]], "group": f"g{number}"} for number, row in enumerate(floors.rows, 1))
    return Floors(tuple(rows))


def _show_general(floors: Floors, out: Json) -> int:
    if not out.as_json:
        _print_floors(ANY_DECODER, _general_lenders(floors))
    rows = [
        (family.name, str(len(family.groups)), f"{sum(group.runs for group in family.groups):,}", *_noise_cells(family))
        for family in evidence_families(floors)
    ]
    return out.show_rows(_general_document(floors), ("family", "groups", "runs", "tau, of the loss", "95 % interval"), rows)


def _lenders(floors: Floors, family: Family) -> list[tuple[Rounding, Lender]]:
    """What the family lends to an arm of each class of rounding that its groups have."""
    have = {group.rounding for group in family.groups}
    return [(rounding, find_lender(floors, family.name, rounding)) for rounding in ROUNDINGS if rounding in have]


def _general_lenders(floors: Floors) -> list[tuple[Rounding, Lender]]:
    return [(rounding, find_lender(floors, ANY_DECODER, rounding)) for rounding in ROUNDINGS]


def _family_cells(row: FamilyRow) -> tuple[str, ...]:
    head = (row.name, row.rounding or "not stated", f"{row.groups:,}", f"{row.runs:,}")
    if row.floor is None:
        return (*head, "", "", row.refused)
    outliers = len(row.floor.outliers)
    return (*head, percent(row.floor.share), f"{row.floor.df:.1f}", count(outliers, "outlier") if outliers else "")


def _noise_cells(family: FamilyNoise) -> tuple[str, str]:
    low, high = family.interval
    return percent(family.share), f"{percent(low)} to {percent(high)}"


def _print_floors(name: str, lent: Sequence[tuple[Rounding, Lender]]) -> None:
    for rounding, lender in lent:
        print(f"{name}, rounding {rounding}: {_floor_words(lender)}", file=sys.stderr if not sys.stdout.isatty() else sys.stdout)


def _floor_words(lender: Lender) -> str:
    if lender.floor is None:
        return f"lends nothing: {lender.refused}"
    floor = lender.floor
    return f"{percent(floor.share)} of the loss, worth {floor.df:.1f} degrees of freedom ({floor.groups} groups, {floor.runs:,} runs)"


def _group_row(group: RerunGroup, outliers: set[str]) -> tuple[str, ...]:
    low, high = group.interval
    note = "outlier" if group.group in outliers else ""
    return group.group, str(group.runs), f"{group.mean_loss:.4f}", percent(group.share), f"{percent(low)} to {percent(high)}", note


def _family_document(floors: Floors, family: Family) -> Any:
    outliers = outliers_of(floors, family.name)
    same = ("group", "runs", "mean_loss", "sd", "interval", "rounding", "varies", "source", "licence")
    groups = [
        {**{name: getattr(group, name) for name in same}, "rel": group.share, "outlier": group.group in outliers} for group in family.groups
    ]
    document = _lends(family.name, _lenders(floors, family)) | {"groups": groups}
    return json_value(document | {"bit_equal": family.bit_equal, "problems": family.problems})


def _general_document(floors: Floors) -> Any:
    families = [
        {
            "family": family.name,
            "groups": len(family.groups),
            "runs": sum(group.runs for group in family.groups),
            "rel": family.share,
            "interval": family.interval,
        }
        for family in evidence_families(floors)
    ]
    return json_value(_lends(ANY_DECODER, _general_lenders(floors)) | {"families": families})


def _lends(name: str, lent: Sequence[tuple[Rounding, Lender]]) -> dict[str, object]:
    """What a family lends, by class of rounding."""
    lends = [{"rounding": rounding, "refused": lender.refused or None, "floor": lender.floor} for rounding, lender in lent]
    return {"family": name, "lends": lends}
