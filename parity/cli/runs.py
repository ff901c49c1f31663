"""The commands for runs that users train: resend what a script could not send, import what was
logged elsewhere, state what is known.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.canonical_json import picked
from parity.cli import watching
from parity.cli.connection import Asked, AskedForVerdicts, JobId
from parity.cli.inputs import pairs, pattern_option, stated_columns
from parity.cli.options import Follow, Options, argument, flag, flat, option, refuse, repeatable
from parity.cli.output import print_json
from parity.cli.run_tables import NEEDS_ARM_BY, NO_COLUMN, Table, read_table
from parity.cli.terminal import ARMS, SERVER, TABLE, Group, UsageError
from parity.client import spool
from parity.client.delivery import Delivery
from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import may_be_accepted_later
from parity.client.spool import SpoolError
from parity.client.whole_run import send_run
from parity.frozen import frozen
from parity.gate.exit_codes import EXIT_CODES, exit_code
from parity.judging.curves.curve import Completeness, Curve
from parity.judging.curves.outside_plan import last_recorded
from parity.readers import read_run
from parity.wording import count, did_you_mean

# Finished runs from files, for the runs of a job that the user trained: read, and proved complete.


@frozen
class FinishedRun:
    """A curve to import: the id of its run, the file as messages name it, and what it ran on."""

    run: str
    file: str
    curve: Curve
    context: Mapping[str, str]


def runs_of_table(
    file: str, arms: Mapping[str, Sequence[Curve]], job: Document, facts: Mapping[str, str]
) -> list[FinishedRun]:
    """The runs of a table as runs of a job: arms by their names, each arm's runs in order, one for
    each run that the job awaits.

    Raises UsageError where the job has no such arm, or another number of runs in it.
    """
    awaited = {
        arm["name"]: sorted(arm["runs"], key=lambda run: (run["seed"], run["replicate"]))
        for arm in job["arms"]
    }
    finished = []
    for name, curves in arms.items():
        if name not in awaited:
            known = ", ".join(awaited)
            raise UsageError(
                f"{file}: job {job['id']} has no arm {name!r}; expected arms called "
                f"{known}{did_you_mean(name, awaited)}"
            )
        if len(curves) != len(awaited[name]):
            raise UsageError(
                f"{file}: {name} has {count(len(curves), 'run')}, but job {job['id']} has "
                f"{len(awaited[name])} in that arm; "
                f"expected one run of the table for each run of the job{_noise_words(job, name)}"
            )
        for run, curve in zip(awaited[name], curves, strict=True):
            finished.append(
                FinishedRun(
                    run=run["id"],
                    file=f"{file}, run {curve.label} of {name}",
                    curve=curve,
                    context={**curve.context, **facts},
                )
            )
    return finished


def _noise_words(job: Document, name: str) -> str:
    """How to import the short reruns of an arm, "" where it has none."""
    noise = next(len(arm.get("short_reruns", ())) for arm in job["arms"] if arm["name"] == name)
    if not noise:
        return ""
    return (
        f"; import the {count(noise, 'rerun')} that {'stops' if noise == 1 else 'stop'} early with "
        "--as-run"
    )


def why_incomplete(curve: Completeness, planned_steps: int | None) -> str | None:
    """Why a curve is incomplete, or None. `planned_steps` is the planned length of the run, None
    where nobody has stated it.
    """
    first, last, stride = curve.first, curve.last, curve.stride
    if first is None or last is None or stride is None:
        return f"it has {curve.count} steps, expected two at least"
    if curve.gaps:
        expected = (last - first) // stride + 1
        return (
            f"{expected - curve.count} of {expected} steps are missing between step {first} and "
            f"{last}, in {curve.gaps} gaps"
        )
    if first > stride:
        return f"it begins at step {first}, expected the beginning: 0 to {stride}"
    if planned_steps is not None and last + stride < planned_steps:
        return f"it ends at step {last}, but this run takes {planned_steps} steps"
    if planned_steps is not None and last > last_recorded(planned_steps):
        return (
            f"it goes on to step {last}, but this run takes {planned_steps} steps; none after "
            f"{last_recorded(planned_steps)} is recorded"
        )
    return None


def refuse_other_run(
    finished: FinishedRun, awaited: Document, recipe: str | None, seeds: dict[int, int]
) -> None:
    """Raise UsageError where a run's config contradicts the run of the job that it is imported as.

    `recipe` is that of an option, which counts more; `seeds` collects the config's seed by the
    job's.
    """
    own, seed = recipe or finished.curve.recipe, finished.curve.seed
    if own not in (None, awaited["recipe"]):
        raise UsageError(
            f"{finished.file}: its recipe is {own}, but run {finished.run} is to train "
            f"{awaited['recipe']}; nothing was imported: name "
            "another run, or state the recipe with --recipe"
        )
    if seed and seeds.setdefault(awaited["seed"], seed) != seed:
        raise UsageError(
            f"{finished.file}: its config states seed {seed}, and that of a run before it "
            f"{seeds[awaited['seed']]}, but both have seed {awaited['seed']} in the job, so they "
            "should have read the same data; nothing was imported"
        )


# The commands for runs that users train: resend steps that a script could not send, import runs
# that were logged elsewhere.

app = typer.Typer()


@app.command(epilog="parity resend parity-spool")
@flat
def resend(
    paths: Annotated[
        list[str], argument("SPOOL...", "Spool files of parity.Run, or folders with them.")
    ],
    server: str | None = option(
        None,
        "Address of the server. [default: the one in the spool]",
        "URL",
        envvar="PARITY_URL",
        rich_help_panel=SERVER,
    ),
    *,
    at: Annotated[Asked, ("token", "as_json")],
    as_run: str | None = option(
        None,
        "Id of the run that steps logged without a run belong to.",
        "RUN",
        rich_help_panel=ARMS,
    ),
) -> int:
    """Send the steps that training scripts logged with parity.Run and could not send; spools of
    running processes are skipped.
    """
    sent = []
    tried = refused = unnamed = 0
    spools = list(_spools(paths))
    if as_run is not None:
        _refuse_other_runs(spools, as_run)
    for path in spools:
        tried += 1
        try:
            with spool.lock(path) as is_left:
                if not is_left and not (path in map(Path, paths) and spool.is_whole(path)):
                    print(
                        f"parity: {path}: skipped: in use by a running process, or owned by "
                        "another user",
                        file=sys.stderr,
                    )
                    continue
                header = spool.read_header(path)
                if not (header["run"] or as_run or header.get("project")):
                    unnamed += 1
                    again = f"`parity resend {path.parent} --as-run RUN`"
                    print(
                        f"parity: {path}: not sent: it was recorded without a run; name its run "
                        f"with {again}",
                        file=sys.stderr,
                    )
                    continue
                with Client(server or header["server"], at.token) as client:
                    delivery = Delivery(path, client, run=as_run)
                    delivery.send_rest()
                    run = (
                        delivery.sent_to or f"project {header.get('project')}, nothing was logged,"
                    )
        except SpoolError as error:
            raise UsageError(str(error)) from None
        except ClientError as error:
            refused += 1
            if may_be_accepted_later(error):
                kept = f"{error}; the spool is kept as it is: send it again later"
            else:
                kept = delivery.set_aside(error)
            print(f"parity: {path}: {kept}", file=sys.stderr)
        else:
            sent.append(
                {
                    "run": run,
                    "spool": str(path),
                    "attempt": delivery.attempt_number,
                    "unreadable_lines": delivery.unreadable,
                }
            )
            _print_sent(run, delivery, at)
    if not tried:
        print(f"parity: {_nothing_to_send(paths)}", file=sys.stderr)
    if at.as_json:
        print_json(sent)
    if refused:
        return EXIT_CODES["infrastructure"]
    return EXIT_CODES["usage"] if unnamed else EXIT_CODES["pass"]


def _print_sent(run: str, delivery: Delivery, at: Asked) -> None:
    if not at.as_json:
        lost = f", but {delivery.unreadable} lines could not be read" if delivery.unreadable else ""
        print(f"{run} {delivery.path} sent as attempt {delivery.attempt_number}{lost}")
    if delivery.left_out:
        print(f"parity: {delivery.path}: {delivery.left_out}", file=sys.stderr)


class Import(Options, panel=ARMS):
    """What is stated of finished runs."""

    as_run: list[str] = repeatable(
        "Id of the run that a file holds; once per file, in the same order.", "RUN"
    )
    job: str | None = option(
        None,
        "Id of the job whose arms and runs the table holds, instead of --as-run.",
        "JOB",
        rich_help_panel=TABLE,
    )
    column: list[str] = repeatable(
        "Name the column of step, loss, grad_norm, ...; repeatable. [default: well-known names]",
        "[FILE:]QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()
    context: list[str] = repeatable(
        "State what the runs ran on; arms that differ cannot pass. Repeatable.", "KEY=VALUE"
    )
    recipe: str | None = option(
        None, "State the recipe of these runs; it must be the arm's.", "RECIPE"
    )
    allow_incomplete: bool = flag(
        "--allow-incomplete", "Import runs that have gaps, or lack their beginning or end."
    )


@app.command(
    name="import", epilog="parity import baseline.csv nvfp4.csv --as-run RUN1 --as-run RUN2"
)
@flat
def import_runs(
    files: Annotated[
        list[str],
        argument(
            "FILE...",
            "Finished runs: CSV, JSON lines, logs, Parquet, TensorBoard, or a tracker's "
            "(mlflow:RUN_ID).",
        ),
    ],
    stated: Import,
    table: Annotated[Table, ("arm_by", "run_by", "step", "loss")],
    at: Asked,
) -> int:
    """Record finished runs of a job with engine external. Each must be complete: every step of its
    stride, from first to last.
    """
    imported = []
    facts = pairs(stated.context, "--context")
    arms: Mapping[str, Sequence[Curve]] = {}
    finished: list[FinishedRun] = []
    if table.arm_by is None:
        refuse(table.given() | stated.given("job"), NEEDS_ARM_BY)
        finished = _runs_of_files(files, stated, facts)
    else:
        refuse(stated.given("as_run"), "is not used with --arm-by; name the job with --job")
        refuse(stated.given("column", "pattern"), NO_COLUMN)
        refuse(
            stated.given("recipe"),
            "is not used with --arm-by; the job states the recipe of each arm",
        )
        if stated.job is None:
            raise UsageError(
                "--job is missing; expected the id of the job whose arms the table holds"
            )
        arms = read_table(files, table)
    seeds: dict[int, int] = {}
    with at.client() as client:
        if stated.job is not None:
            finished = runs_of_table(files[0], arms, client.job(stated.job), facts)
        for each in finished:
            awaited = client.run(each.run)
            missing = why_incomplete(each.curve.completeness, awaited["planned_steps"])
            if missing and not stated.allow_incomplete:
                raise UsageError(
                    f"{each.file}: {missing}; import the whole run, or use --allow-incomplete "
                    "(then it cannot pass)"
                )
            refuse_other_run(each, awaited, stated.recipe, seeds)
        for each in finished:
            file, run, curve = each.file, each.run, each.curve
            if different := send_run(
                client, run, curve, each.context, stated.recipe or curve.recipe, curve.rounding
            ):
                raise UnreachableError(
                    f"{file}: {different}; the run is not finished: import it again"
                )
            steps = curve.completeness
            counts = picked(steps, "first", "last", "stride", "gaps", "duplicates")
            imported.append(
                {
                    "run": run,
                    "file": file,
                    "steps": steps.count,
                    **counts,
                    "notes": list(curve.notes),
                }
            )
            if at.as_json:
                continue
            print(
                f"{run} {file}: {steps.count} steps, {steps.first} to {steps.last}, stride "
                f"{steps.stride}, {steps.gaps} gaps, {steps.duplicates} steps logged again"
            )
            for note in curve.notes:
                print(f"  {note}", file=sys.stderr)
    if at.as_json:
        print_json(imported)
    return EXIT_CODES["pass"]


runs = typer.Typer(
    name="runs",
    help="Judge the runs of a job that you train, and state what no record holds of them.",
    cls=Group,
    epilog="parity runs state j0000000000001 --rounding nvfp4=nearest",
    rich_markup_mode=None,
)


class Facts(Options, panel=ARMS):
    """What an owner states of external runs."""

    recipe: list[str] = repeatable("State the recipe of an arm. Repeatable.", "ARM=RECIPE")
    rounding: list[str] = repeatable(
        "State how an arm rounds gradients, stochastic or nearest. Repeatable.", "ARM=HOW"
    )
    seeds: list[str] = repeatable(
        "State the seed of each run of an arm, in order. Repeatable.", "ARM=S,S,..."
    )
    planned_steps: int | None = option(None, "State the planned length of a run.", "N")
    tokens_per_step: int | None = option(None, "State the tokens that a step trains on.", "N")
    family: str | None = option(
        None,
        "Name the family of reruns whose run-to-run noise all arms borrow (`parity noise list`).",
        "NAME",
    )

    def request(self) -> dict[str, Any]:
        """The facts that are stated, as the server takes them."""
        seeds = {
            arm: [_seed(arm, each) for each in own.split(",")]
            for arm, own in pairs(self.seeds, "--seeds").items()
        }
        by_arm = {
            "recipe": pairs(self.recipe, "--recipe"),
            "rounding": pairs(self.rounding, "--rounding"),
            "seeds": seeds,
        }
        of_job = picked(self, "planned_steps", "tokens_per_step", "family")
        return {fact: value for fact, value in (by_arm | of_job).items() if value not in (None, {})}


@runs.command(
    "state", epilog="parity runs state j0000000000001 --rounding nvfp4=nearest --planned-steps 1500"
)
@flat
def state(job: JobId, stated: Facts, at: AskedForVerdicts) -> int:
    """State what no record holds of a job's external runs, before they end or after, and print how
    they are judged with it.

    Nothing on record is overwritten. After the job's end its recorded verdict stays, and each
    further statement of the same fact counts as a further look at the question. Needs the token
    that submitted the job, or scope admin.
    """
    request = stated.request()
    if not request:
        raise UsageError(
            "nothing is stated; give --recipe, --rounding, --seeds, --planned-steps, "
            "--tokens-per-step or --family"
        )
    with at.client() as client:
        remarks = client.state(job, request)
        document = client.job(job)
        is_whole = len(document["arms"]) > 1 and all(
            any(run["state"] == "finished" for run in arm["runs"]) for arm in document["arms"]
        )
        verdicts = client.rejudge(job)["verdicts"] if is_whole and not document["is_open"] else []
    for each in remarks["statements"]:
        of = f" of {each['arm']}" if each["arm"] else ""
        print(
            f"stated: {each['fact']}{of} {each['value']}, by {each['who']}, {each['created_at']}",
            file=sys.stderr,
        )
    if not is_whole:
        print("The job is judged with it once each arm has a finished run.", file=sys.stderr)
    elif document["is_open"]:
        print(
            f"`parity runs judge {job}` judges with it, which is a look at the question of this "
            "project.",
            file=sys.stderr,
        )
    at.show_verdicts(verdicts)
    return EXIT_CODES["pass"]


@runs.command("judge", epilog="parity runs judge j0000000000001")
@flat
def judge_now(job: JobId, at: AskedForVerdicts) -> int:
    """Print how a job's finished runs are judged as of now; no verdict is recorded.

    Of an open project each judging with other runs or statements counts as a look, so its owner
    alone may ask. Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    with at.client() as client:
        verdicts = client.rejudge(job)["verdicts"]
    at.show_verdicts(verdicts)
    return exit_code(verdicts)


@runs.command("conclude", epilog="parity runs conclude j0000000000001")
@flat
def conclude(job: JobId, following: Follow, at: AskedForVerdicts) -> int:
    """Close a project of parity.Run, which takes no further run then, and print its recorded
    verdict.

    A job that failed with JUDGE_FAILED is judged again, for a token of scope admin. Exits with the
    worst verdict: 1 fail, 3 inconclusive, 0 pass. Needs the token that made the project, or scope
    admin.
    """
    with at.client() as client:
        client.conclude(job)
        with watching.goes_on("job", watch=f"parity watch {job}", end=f"parity cancel {job}"):
            document = watching.follow(client, job, following.progress(), following.timeout)
    at.show_verdicts(document["verdicts"])
    return exit_code(document["verdicts"])


@runs.command("fail", epilog="parity runs fail r0000000000001 --reason 'out of memory at step 900'")
@flat
def fail(
    run: Annotated[str, argument("RUN", "Id of the run, as `parity status JOB` prints it.")],
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel="Failure",
            help="State the reason; it is kept with the run.",
        ),
    ],
    at: Asked,
) -> int:
    """End a run that will not go on as failed: it is not judged, and the verdict notes that it was
    left out.
    """
    with at.client() as client:
        known = client.run(run)
        manifest = {
            name: value for name, value in (known["manifest"] or {}).items() if name != "engine"
        }
        if known["state"] == "running":
            attempt_number = known["attempt"]
        else:
            attempt_number = client.attach(run, manifest)["attempt"]
        ended = client.finish(run, attempt_number, "failed", reason)
    return at.show(ended, [f"{run} {ended['state']}"])


def _seed(arm: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise UsageError(
            f"--seeds {arm} has {text.strip()!r:.40}; expected whole numbers from 0, separated by "
            "commas"
        )
    return int(text)


def _runs_of_files(files: list[str], stated: Import, facts: Mapping[str, str]) -> list[FinishedRun]:
    """The runs that files hold, one each; raises UsageError where --as-run does not name as many
    runs.
    """
    as_run = stated.as_run
    if not as_run:
        raise UsageError(
            "--as-run is missing; expected the id of the run in each file, or --arm-by and --job "
            "for a table of many runs"
        )
    if len(as_run) != len(files):
        raise UsageError(
            f"{count(len(files), 'file')} but {len(as_run)} x --as-run; expected one for each "
            "file, in the same order"
        )
    columns = stated_columns(stated.column, stated.pattern)
    columns.refuse_unknown(files)
    return [
        FinishedRun(run=run, file=file, curve=curve, context={**curve.context, **facts})
        for run, file in zip(as_run, files, strict=True)
        for curve in [read_run(file, columns=columns.of(file), recipe=stated.recipe)]
    ]


def _spools(paths: list[str]) -> Iterator[Path]:
    """The files, oldest first below each folder; a refused spool is only tried again when it is
    named itself.
    """
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob(f"*{spool.SUFFIX}"), key=lambda each: each.name)
        elif not path.exists():
            raise UsageError(
                f"{path}: no such file or folder; expected a spool, such as the folder parity-spool"
            )
        elif path.suffix == spool.REFUSED:
            yield path.rename(path.with_suffix(spool.SUFFIX))
        else:
            yield path


def _refuse_other_runs(spools: list[Path], as_run: str) -> None:
    """Raise UsageError unless all spools were recorded without a run, in one folder, with one
    recipe: they become one run.
    """
    headers = {path: spool.read_header(path) for path in spools}
    for path, header in headers.items():
        if header["run"]:
            raise UsageError(
                f"{path}: was recorded for run {header['run']}; expected steps without a run, "
                f"because of --as-run {as_run}"
            )
    for what, values in (
        ("folders", {str(path.parent) for path in spools}),
        ("recipes", {str(h["recipe"]) for h in headers.values()}),
    ):
        if len(values) > 1:
            raise UsageError(
                f"the spools are of {len(values)} {what} ({', '.join(sorted(values))}); expected "
                "those of one run"
            )


def _nothing_to_send(folders: list[str]) -> str:
    """The line for folders without a spool, and how to send those that a server has refused."""
    left = sorted(path for folder in folders for path in Path(folder).rglob(f"*{spool.REFUSED}"))
    if left:
        again = (
            f"; {count(len(left), 'spool')} that the server refused: `parity resend {left[0]}` "
            "tries one again"
        )
    else:
        again = ""
    return f"{', '.join(folders)}: nothing to send{again}"
