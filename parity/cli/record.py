"""The commands for what a server keeps: named baselines, and noise tables from which run-to-run
noise is borrowed.
"""

import sys
from collections.abc import Collection, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.canonical_json import json_value, picked
from parity.cli.connection import Asked, Connection
from parity.cli.inputs import expected_family
from parity.cli.options import Json, argument, flag, flat, option
from parity.cli.output import WIDTH, print_json, table_of
from parity.cli.terminal import OUTPUT, Group, UsageError
from parity.client.rest import Document
from parity.comparing.noise_tables import read_rerun_table, rerun_table
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.curve import ROUNDINGS, Rounding
from parity.judging.noise.family_prior import evidence_families
from parity.judging.noise.lending import Lender, find_lender
from parity.judging.noise.listing import FamilyRow, any_decoder_rows, family_rows, outliers_of
from parity.judging.noise.noise_table import ANY_DECODER, Family, NoiseTable, RerunGroup
from parity.wording import age_in_words, count, percent

# The commands for named baselines, which a server keeps: list, show, promote, control, expire,
# diff.

baselines = typer.Typer(
    name="baseline",
    help="Manage named baselines: train once, promote with a reason, and use by name in job files "
    "(`baseline: {name: fp8}`).",
    cls=Group,
    epilog="parity baseline promote fp8 j0000000000001 --reason 'first release'",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Which = Annotated[
    str, argument("NAME[@VERSION]", "Name of a baseline; without a version the newest one.")
]
_Name = Annotated[str, argument("NAME", "1 to 64 letters, digits, '_', '.' or '-'.")]
_Job = Annotated[str, argument("JOB", "Id of the job whose arm becomes the baseline.")]
_VERSION = "Version"  # the title of its options
_Reason = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=_VERSION,
        help="State the reason; it is kept with the user and the time.",
    ),
]


@baselines.command("list", epilog="parity baseline list")
@flat
def index(
    name: Annotated[str | None, argument("[NAME]", "List only versions of this name.")] = None,
    *,
    at: Asked,
) -> int:
    """List the fifty newest versions; in a pipe, one per line."""
    with at.client() as client:
        versions = client.baselines(name)["items"]
    if not versions and not at.as_json:
        print(
            "no baseline yet; `parity baseline promote NAME JOB --reason TEXT` makes one of a "
            "finished job",
            file=sys.stderr,
        )
        return 0
    return at.show_rows(
        versions,
        ("baseline", "recipe", "runs + controls", "promoted", "by", "expires"),
        map(_row, versions),
    )


@baselines.command(epilog="parity baseline show fp8")
@flat
def show(which: _Which, at: Asked) -> int:
    """Show one version: its runs and their age, its run-to-run noise, its history, and the workers
    whose software has changed since.
    """
    name, version = _parsed(which)
    with at.client() as client:
        return _show(client.baseline(name, version), at)


@baselines.command(epilog="parity baseline promote fp8 j0000000000001 --reason 'first release'")
@flat
def promote(
    name: _Name,
    job: _Job,
    reason: _Reason,
    arm: str | None = option(
        None, "Use this arm of the job. [default: its baseline]", "NAME", rich_help_panel=_VERSION
    ),
    days: float | None = option(
        None,
        "Let the version expire after DAYS. [default: never]",
        "DAYS",
        rich_help_panel=_VERSION,
    ),
    *,
    at: Asked,
) -> int:
    """Make the finished runs of a job's arm the next version of a baseline; every run must be
    complete and must not have diverged.
    """
    with at.client() as client:
        return _show(client.promote(name, job, reason, arm=arm, days=days), at)


@baselines.command(epilog="parity baseline control fp8 j0000000000002 --reason 'four reruns'")
@flat
def control(
    which: _Which,
    runs_of: Annotated[
        str, argument("JOB|RUN", "Id of a job with reruns of the baseline, or of one run.")
    ],
    reason: _Reason,
    at: Asked,
) -> int:
    """Attach reruns to a version: later jobs use their measured run-to-run noise instead of an
    assumed one.
    """
    name, version = _parsed(which)
    with at.client() as client:
        return _show(
            client.attach_controls(
                name, version or client.baseline(name)["version"], runs_of, reason
            ),
            at,
        )


@baselines.command(epilog="parity baseline expire fp8@1 --reason 'new data'")
@flat
def expire(
    which: Annotated[str, argument("NAME@VERSION", "Version to end.")],
    reason: _Reason,
    at: Asked,
) -> int:
    """End a version now: later jobs cannot use it; earlier verdicts stay."""
    name, version = _parsed(which)
    if version is None:
        raise UsageError(f"{which!r} has no version; expected NAME@VERSION such as {name}@1")
    with at.client() as client:
        return _show(client.expire(name, version, reason), at)


@baselines.command(epilog="parity baseline diff fp8@1 fp8@2")
@flat
def diff(
    which: _Which,
    other: Annotated[str, argument("NAME[@VERSION]|JOB", "Another version, or a job's id.")],
    at: Asked,
) -> int:
    """Compare specification and environment of a baseline with another version or a job.

    Exits 0 if nothing differs, 1 if something does.
    """
    name, version = _parsed(which)
    with at.client() as client:
        difference = client.baseline_diff(name, version or client.baseline(name)["version"], other)
    differs = difference["specification"] or difference["environment"]
    if at.as_json:
        print_json(difference)
    else:
        console = Console(width=WIDTH, highlight=False, markup=False)
        for part in ("specification", "environment"):
            if difference[part]:
                rows = [
                    (
                        one["key"],
                        *(value or "not stated" for value in (one["baseline"], one["other"])),
                    )
                    for one in difference[part]
                ]
                console.print(table_of((part, difference["baseline"], difference["other"]), rows))
        if not difference["told"]:
            console.print(
                f"no run of {difference['other']} has begun, so its environment is unknown"
            )
        elif not differs:
            console.print(
                f"nothing differs between {difference['baseline']} and {difference['other']}"
            )
    if differs:
        return EXIT_CODES["fail"]
    return EXIT_CODES["pass"]


def _row(version: Document) -> tuple[str, ...]:
    until = "expired" if version["expired"] else (version["expires_at"] or "never")[:10]
    runs = f"{version['runs']} + {version['controls']}"
    return (
        _called(version),
        version["recipe"],
        runs,
        version["promoted_at"][:10],
        version["promoted_by"],
        until,
    )


def _show(document: Document, at: Asked) -> int:
    return at.show(document, _version_lines(document))


def _version_lines(document: Document) -> Iterator[str]:
    """A version: one sentence first, then runs, noise, history, and workers whose software
    differs.
    """
    until = "does not expire"
    if document["expires_at"]:
        until = f"{'expired' if document['expired'] else 'expires'} {document['expires_at'][:10]}"
    yield (
        f"{_called(document)}: {document['recipe']} (engine {document['engine']}), "
        f"{count(document['runs'], 'run')} of job "
        f"{document['job']}, {count(document['controls'], 'control')}; {until}"
    )
    for run in document["members"]:
        if run["age_seconds"] is None:
            age = ""
        else:
            age = f", trained {age_in_words(run['age_seconds'])} ago"
        yield f"  {run['role']} replicate {run['replicate']}: {run['run']}{age}"
    yield f"  {_noise_words(document['noise'])}"
    for entry in document["audit"]:
        yield f"  {entry['at'][:16]} {entry['kind']} by {entry['who']}: {entry['reason']}"
    for line in document["workers"]:
        yield f"  differs: {line}"


def _noise_words(noise: Document | None) -> str:
    if noise is None:
        return "run-to-run noise: unknown, because its runs have no step in common in the window"
    tau = (
        f"run-to-run noise: {noise['tau_nats']:.4f} nats ({percent(noise['tau_rel'])} of the loss)"
    )
    if noise["measured"] is None:
        return f"{tau}, assumed: attach controls to measure it"
    reruns = (
        f"its reruns give {noise['measured']:.4f} ({count(noise['measured_df'], 'degree')} of "
        "freedom)"
    )
    return f"{tau}; {reruns}, the prior {noise['prior_nats']:.4f}"


def _called(document: Document) -> str:
    return f"{document['name']}@{document['version']}"


def _parsed(which: str) -> tuple[str, int | None]:
    name, mark, number = which.partition("@")
    if not name or (mark and not (number.isdecimal() and int(number))):
        raise UsageError(
            f"{which!r} is not the name of a baseline; expected NAME or NAME@VERSION such as fp8@1"
        )
    return name, int(number) if mark else None


# The commands for noise tables, from which run-to-run noise is borrowed: list, show, export those
# of a server, import into it.

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


@noise.command("list", epilog="parity noise list")
@flat
def list_families(file: _File = None, *, out: Json) -> int:
    """List a table's families with their noise, then any-decoder."""
    noise_table = read_rerun_table(file)
    documents = [
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
    at: Connection,
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
    at: Asked,
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
    known = f", {count(done['known_groups'], 'group')} known before" if done["known_groups"] else ""
    return at.show(
        done, [f"{count(done['new_groups'], 'new group')}{known}: {', '.join(done['families'])}"]
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
            _between(family.interval),
        )
        for family in evidence_families(noise_table)
    ]
    return out.show_rows(
        _general_document(noise_table),
        ("family", "groups", "runs", "tau, of the loss", "95 % interval"),
        rows,
    )


def _lenders(noise_table: NoiseTable, name: str) -> list[tuple[Rounding, Lender]]:
    """What a family lends to an arm of each class of rounding that its groups have; any-decoder to
    one of any class.
    """
    have: Collection[Rounding | None] = ROUNDINGS
    if name != ANY_DECODER:
        have = {group.rounding for group in noise_table.families[name].groups}
    return [
        (rounding, find_lender(noise_table, name, rounding))
        for rounding in ROUNDINGS
        if rounding in have
    ]


def _family_cells(row: FamilyRow) -> tuple[str, ...]:
    head = (row.name, row.rounding or "not stated", f"{row.groups:,}", f"{row.runs:,}")
    if row.floor is None:
        return (*head, "", "", row.refused)
    outliers = len(row.floor.outliers)
    return (
        *head,
        percent(row.floor.share),
        f"{row.floor.df:.1f}",
        count(outliers, "outlier") if outliers else "",
    )


def _between(interval: tuple[float, float]) -> str:
    return f"{percent(interval[0])} to {percent(interval[1])}"


def _print_family(noise_table: NoiseTable, name: str) -> None:
    for rounding, lender in _lenders(noise_table, name):
        print(
            f"{name}, rounding {rounding}: {_floor_words(lender)}",
            file=sys.stderr if not sys.stdout.isatty() else sys.stdout,
        )


def _floor_words(lender: Lender) -> str:
    if lender.floor is None:
        return f"lends nothing: {lender.refused}"
    floor = lender.floor
    return (
        f"{percent(floor.share)} of the loss, worth {floor.df:.1f} degrees of freedom "
        f"({floor.groups} groups, {floor.runs:,} runs)"
    )


def _group_row(group: RerunGroup, outliers: set[str]) -> tuple[str, ...]:
    note = "outlier" if group.group in outliers else ""
    return (
        group.group,
        str(group.runs),
        f"{group.mean_loss:.4f}",
        percent(group.share),
        _between(group.interval),
        note,
    )


def _family_document(noise_table: NoiseTable, family: Family) -> Any:
    outliers = outliers_of(noise_table, family.name)
    same = (
        "group",
        "runs",
        "mean_loss",
        "sd",
        "interval",
        "rounding",
        "varies",
        "source",
        "licence",
    )
    groups = [
        {**picked(group, *same), "rel": group.share, "outlier": group.group in outliers}
        for group in family.groups
    ]
    document = _lends(noise_table, family.name) | {"groups": groups}
    return json_value(document | {"bit_equal": family.bit_equal, "problems": family.problems})


def _general_document(noise_table: NoiseTable) -> Any:
    families = [
        {
            "family": family.name,
            "groups": len(family.groups),
            "runs": sum(group.runs for group in family.groups),
            "rel": family.share,
            "interval": family.interval,
        }
        for family in evidence_families(noise_table)
    ]
    return json_value(_lends(noise_table, ANY_DECODER) | {"families": families})


def _lends(noise_table: NoiseTable, name: str) -> dict[str, object]:
    """What a family lends, by class of rounding."""
    lent = _lenders(noise_table, name)
    return {
        "family": name,
        "lends": [
            {"rounding": rounding, "refused": lender.refused or None, "floor": lender.floor}
            for rounding, lender in lent
        ],
    }
