"""The commands `noise …` for noise tables, from which run-to-run noise is borrowed."""

import sys
from collections.abc import Collection
from typing import Annotated, TypeAlias, TypedDict

import typer

from parity.cli.connection import ServerConnection, ServerQuery
from parity.cli.terminal.help import Group
from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import argument, flag, flat, option
from parity.cli.terminal.shared_options import Json
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.noise_tables import expected_family, read_rerun_table, rerun_table
from parity.judging.curves.curve import ROUNDINGS, Rounding
from parity.judging.noise.any_decoder import evidence_families
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.listing import FamilyRow, any_decoder_rows, family_rows, outliers_of
from parity.judging.noise.noise_source import NoiseSource, find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, Family, NoiseTable, RerunGroup
from parity.wording import count, percent

noise = typer.Typer(
    name="noise",
    help="Show noise tables: how much runs of one recipe differ, by family. `compare --family` "
    "borrows from them.",
    cls=Group,
    epilog="parity noise show modded-nanogpt-124M/track3",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_HOW = {
    False: "jobs with `replicates` make them",
    True: "`parity noise import FILE` imports a table",
}
_File = Annotated[
    str | None, argument("[FILE]", "Noise table (CSV). [default: the public one of this package]")
]
_Family = Annotated[str, argument("FAMILY", "Name of a family, as `parity noise list` prints it.")]


class BorrowedNoiseDocument(TypedDict):
    """What an arm of that rounding can borrow from a family: its noise (shares of the loss), or why
    there is none.
    """

    rounding: Rounding
    refused: str | None
    noise: FamilyNoise | None


class RerunGroupDocument(TypedDict):
    """Reruns of one configuration: their mean loss with its standard deviation `sd`, nats, and that
    as a share of the loss, `rel`, with its 95 % `interval`. An `outlier` was drawn in.
    """

    group: str
    runs: int
    mean_loss: float
    sd: float
    interval: tuple[float, float]
    rounding: Rounding | None
    varies: str
    source: str
    licence: str
    rel: float
    outlier: bool


class NoiseFamilyDocument(TypedDict):
    """A family of a noise table: what can be borrowed from it by class of rounding, its groups, the
    names of the groups whose reruns are equal bit for bit, and a line for each unusable row.
    """

    family: str
    by_rounding: list[BorrowedNoiseDocument]
    groups: list[RerunGroupDocument]
    bit_equal: list[str]
    problems: list[str]


class EvidenceFamilyDocument(TypedDict):
    """A family that any-decoder rests on: its noise as a share of the loss, with its 95 %
    interval.
    """

    family: str
    groups: int
    runs: int
    rel: float
    interval: tuple[float, float]


class AnyDecoderDocument(TypedDict):
    """The noise between families, `any-decoder`, by class of rounding, and the families that it
    rests on.
    """

    family: str
    by_rounding: list[BorrowedNoiseDocument]
    families: list[EvidenceFamilyDocument]


AnyNoiseDocument: TypeAlias = NoiseFamilyDocument | AnyDecoderDocument


@noise.command("list", epilog="parity noise list")
@flat
def list_families(file: _File = None, *, out: Json) -> int:
    """List a table's families with their noise, then any-decoder."""
    noise_table = read_rerun_table(file)
    documents: list[AnyNoiseDocument] = [
        *(_family_document(noise_table, family) for family in noise_table.families.values()),
        _general_document(noise_table),
    ]
    rows = map(_family_cells, (*family_rows(noise_table), *any_decoder_rows(noise_table)))
    return out.show_rows(
        documents, ("family", "rounding", "groups", "runs", "tau, of the loss", "df", "note"), rows
    )


@noise.command("show", epilog="parity noise show modded-nanogpt-124M/track3")
@flat
def show_family(name: _Family, file: _File = None, *, out: Json) -> int:
    """Show a family: its pooled run-to-run noise, each group's with its 95 % interval, and the
    outliers.
    """
    noise_table = read_rerun_table(file)
    if name == ANY_DECODER:
        return _show_general(noise_table, out)
    family = noise_table.families.get(name)
    if family is None:
        raise UsageError(
            f"the table has no family {name!r}; {expected_family(name, noise_table, file)}"
        )
    if not out.as_json:
        _print_family(noise_table, name)
        for line in (
            *family.problems,
            *(f"group {group!r}: reruns equal bit for bit, not used" for group in family.bit_equal),
        ):
            print(line, file=sys.stderr)
    outliers = outliers_of(noise_table, name)
    rows = (_group_row(group, outliers) for group in family.groups)
    return out.show_rows(
        _family_document(noise_table, family),
        ("group", "runs", "loss", "tau, of the loss", "95 % interval", "note"),
        rows,
    )


@noise.command(epilog="parity noise export --anonymous")
@flat
def export(
    anonymous: bool = flag(
        "--anonymous",
        "Number families and groups, and leave out where they are from.",
        rich_help_panel=OUTPUT,
    ),
    imported: bool = flag(
        "--imported",
        "Print the reruns that were imported, not those of the server's jobs.",
        rich_help_panel=OUTPUT,
    ),
    *,
    at: ServerConnection,
) -> int:
    """Print the reruns that a server has on record as a table (CSV)."""
    with at.client() as client:
        text = client.noise_table("imported" if imported else "record")
    if len(text.splitlines()) < 2:
        print(
            f"no reruns {'imported' if imported else 'on record'} yet; {_HOW[imported]}",
            file=sys.stderr,
        )
        return 0
    noise_table = rerun_table(text, f"the table of {at.server}")
    print((anonymized(noise_table) if anonymous else noise_table).csv(), end="")
    return 0


@noise.command("import", epilog="parity noise import noise.csv --family my-700M")
@flat
def import_table(
    file: Annotated[
        str, argument("FILE", "Noise table (CSV), as `parity noise export` prints it.")
    ],
    family: str | None = option(
        None,
        "Import only this family. [default: all of the table]",
        "NAME",
        rich_help_panel="Import",
    ),
    *,
    at: ServerQuery,
) -> int:
    """Import a noise table into a server, for jobs that name one of its families (`family:` in the
    job file).

    Imports all or nothing; groups that were imported before change nothing.
    """
    table = read_rerun_table(file)
    if family is not None and family not in table.families:
        raise UsageError(
            f"--family is {family!r}, which the table does not have; "
            f"{expected_family(family, table, file, general=False)}"
        )
    with at.client() as client:
        done = client.import_noise_table(table.csv(), family)
    known_groups = (
        f", {count(done['known_groups'], 'group')} known before" if done["known_groups"] else ""
    )
    return at.show(
        done,
        [f"{count(done['new_groups'], 'new group')}{known_groups}: {', '.join(done['families'])}"],
    )


def anonymized(noise_table: NoiseTable) -> NoiseTable:
    """The table with numbered families and groups, without the columns that say where they are
    from.
    """
    families = {
        name: f"family-{number}"
        for number, name in enumerate(dict.fromkeys(row["family"] for row in noise_table.rows), 1)
    }
    hidden = {"varies": "", "source": "", "licence": ""}
    rows = (
        {**row, **hidden, "family": families[row["family"]], "group": f"g{number}"}
        for number, row in enumerate(noise_table.rows, 1)
    )
    return NoiseTable(tuple(rows))


def _show_general(noise_table: NoiseTable, out: Json) -> int:
    if not out.as_json:
        _print_family(noise_table, ANY_DECODER)
    rows = [
        (
            family.name,
            str(len(family.groups)),
            f"{sum(group.runs for group in family.groups):,}",
            percent(family.share),
            _percent_range(family.interval),
        )
        for family in evidence_families(noise_table)
    ]
    return out.show_rows(
        _general_document(noise_table),
        ("family", "groups", "runs", "tau, of the loss", "95 % interval"),
        rows,
    )


def _family_cells(row: FamilyRow) -> tuple[str, ...]:
    head = (row.name, row.rounding or "not stated", f"{row.groups:,}", f"{row.runs:,}")
    if row.noise is None:
        return (*head, "", "", row.refused)
    outliers = len(row.noise.outliers)
    return (
        *head,
        percent(row.noise.share),
        f"{row.noise.df:.1f}",
        count(outliers, "outlier") if outliers else "",
    )


def _percent_range(interval: tuple[float, float]) -> str:
    return f"{percent(interval[0])} to {percent(interval[1])}"


def _print_family(noise_table: NoiseTable, name: str) -> None:
    for rounding, noise_source in _noise_sources(noise_table, name):
        print(
            f"{name}, rounding {rounding}: {_noise_words(noise_source)}",
            file=sys.stderr if not sys.stdout.isatty() else sys.stdout,
        )


def _noise_sources(noise_table: NoiseTable, name: str) -> list[tuple[Rounding, NoiseSource]]:
    """What an arm of each class of rounding can borrow that the groups of the family have; of
    any-decoder one of any class.
    """
    have: Collection[Rounding | None] = ROUNDINGS
    if name != ANY_DECODER:
        have = {group.rounding for group in noise_table.families[name].groups}
    return [
        (rounding, find_noise_source(noise_table, name, rounding))
        for rounding in ROUNDINGS
        if rounding in have
    ]


def _noise_words(noise_source: NoiseSource) -> str:
    if noise_source.noise is None:
        return f"not usable: {noise_source.refused}"
    noise = noise_source.noise
    return (
        f"{percent(noise.share)} of the loss, worth {noise.df:.1f} degrees of freedom "
        f"({noise.groups} groups, {noise.runs:,} runs)"
    )


def _group_row(group: RerunGroup, outliers: set[str]) -> tuple[str, ...]:
    note = "outlier" if group.group in outliers else ""
    return (
        group.group,
        str(group.runs),
        f"{group.mean_loss:.4f}",
        percent(group.share),
        _percent_range(group.interval),
        note,
    )


def _family_document(noise_table: NoiseTable, family: Family) -> NoiseFamilyDocument:
    outliers = outliers_of(noise_table, family.name)
    return NoiseFamilyDocument(
        family=family.name,
        by_rounding=_by_rounding(noise_table, family.name),
        groups=[
            RerunGroupDocument(
                group=group.group,
                runs=group.runs,
                mean_loss=group.mean_loss,
                sd=group.sd,
                interval=group.interval,
                rounding=group.rounding,
                varies=group.varies,
                source=group.source,
                licence=group.licence,
                rel=group.share,
                outlier=group.group in outliers,
            )
            for group in family.groups
        ],
        bit_equal=list(family.bit_equal),
        problems=list(family.problems),
    )


def _general_document(noise_table: NoiseTable) -> AnyDecoderDocument:
    return AnyDecoderDocument(
        family=ANY_DECODER,
        by_rounding=_by_rounding(noise_table, ANY_DECODER),
        families=[
            EvidenceFamilyDocument(
                family=family.name,
                groups=len(family.groups),
                runs=sum(group.runs for group in family.groups),
                rel=family.share,
                interval=family.interval,
            )
            for family in evidence_families(noise_table)
        ],
    )


def _by_rounding(noise_table: NoiseTable, name: str) -> list[BorrowedNoiseDocument]:
    """What can be borrowed from a family, by class of rounding."""
    return [
        BorrowedNoiseDocument(
            rounding=rounding,
            refused=noise_source.refused or None,
            noise=noise_source.noise,
        )
        for rounding, noise_source in _noise_sources(noise_table, name)
    ]
