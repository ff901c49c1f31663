"""A comparison that was made here, recorded on a server: a job of engine external with every run,
and the page of its verdict.

The same comparison makes the same job: its key is the digest of the job, the policy and the series.
What broke off half-way is completed by pushing again. The server judges by itself; where its
verdict is another one than that made here, the caller is told.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.canonical_json import canonical_json
from parity.client.rest import Client, ClientError, UnreachableError
from parity.client.whole_run import send_run
from parity.comparing.statements import InputError
from parity.frozen import frozen
from parity.judging.case import AnyDocument, Case
from parity.judging.curves.curve import Curve, series_digest
from parity.judging.verdict.layer_statistics import LayerColumns
from parity.recipes import OTHER, RECIPES, UNSTATED
from parity.version import VERSION
from parity.wording import count, cut

_LONGEST_NAME, LONGEST_TITLE = 64, 200
_ENGINE = "engine"  # in the manifest of a run the server writes it
_WAIT_SECONDS, _LOOK_SECONDS = 60.0, 0.2
_ENDED = ("concluded", "failed", "cancelled")


@frozen
class Pushed:
    """The job on the server: its id, the address of its page, and the server's verdict on each
    candidate (none while it is not there).
    """

    job: str
    page: str
    verdicts: Mapping[str, AnyDocument]


def check_pushable(case: Case) -> None:
    """Raise InputError where a job cannot hold the comparison, so that the server would judge
    something else.
    """
    if case.planned_steps is None:
        raise InputError(
            "the planned length is not stated, which a job needs; expected --planned-steps"
        )
    named = (
        ("--control", case.controls),
        ("--shorter-baseline", case.shorter),
        ("--short-rerun", case.short_reruns),
        ("--evaluation", case.evaluations),
    )
    for option, value in named:
        if value:
            raise InputError(
                f"{option} cannot be sent with --push; leave it out, or submit a job with engine "
                "external"
            )
    seeds = {run.seed for _, _, runs in case.arms() for run in runs}
    if len(seeds) > 1:
        raise InputError(
            f"the runs have {count(len(seeds), 'seed')}, and all runs of a job share one; leave "
            "--seeds out, or push one seed"
        )
    families = set(case.families.values())
    if families and (len(families) > 1 or len(case.families) <= len(case.candidates)):
        raise InputError(
            "--family differs between the arms, and a job has one family; give one NAME for all "
            "arms, or push without it"
        )


def push(client: Client, case: Case, layers: Mapping[str, LayerColumns] | None = None) -> Pushed:
    """Send every run of the case and wait for the server's verdict. `layers` are statistics by
    layer, by candidate; they go with its first run, of which the server reads them.

    Raises InputError where the case is not a job, ClientError and UnreachableError with what was
    sent and how to go on.
    """
    check_pushable(case)
    names = job_arm_names([case.baseline_name or "baseline", *case.candidates])
    spec = _job(case, names)
    policy = case.policy.document()
    job = _submitted(client, spec, policy, _key(spec, policy, case))
    runs = _matched(job, case, names)
    sent = sum(state == "finished" for _, state, _, _ in runs)
    unsent = dict(layers or {})
    try:
        for run, state, curve, arm in runs:
            table = unsent.pop(arm, None)
            if state != "finished":
                if different := send_run(
                    client,
                    run,
                    curve,
                    _manifest(curve),
                    _recipe(curve),
                    curve.rounding,
                    None if table is None else _at_its_end(table, curve),
                ):
                    raise UnreachableError(different)
                sent += 1
        document = _concluded(client, job["id"])
    except (ClientError, UnreachableError) as error:
        left = (
            f"{error}; {sent} of {len(runs)} runs are in job {job['id']}; run the same command "
            "again to send the rest"
        )
        if isinstance(error, ClientError):
            raise ClientError(error.status, left, error.kind, error.retry_after) from None
        raise UnreachableError(left) from None
    arm_names = {sent_as: name for name, sent_as in names.items()}
    verdicts = {
        arm_names.get(verdict["candidate"]["name"], verdict["candidate"]["name"]): verdict
        for verdict in document["verdicts"]
    }
    return Pushed(job=job["id"], page=client.page(job["id"]), verdicts=verdicts)


def job_arm_names(arms: Sequence[str]) -> dict[str, str]:
    """The names under which a job can have the arms, by name: letters, digits, `_`, `.` and `-`, at
    most 64, no two alike.
    """
    names: dict[str, str] = {}
    for number, arm in enumerate(arms, 1):
        plain = (
            "".join(letter if letter.isalnum() or letter in "_.-" else "_" for letter in arm)[
                :_LONGEST_NAME
            ]
            or f"arm{number}"
        )
        others = (f"{plain[: _LONGEST_NAME - 3]}-{at}" for at in range(number, 2 * number))
        names[arm] = next(name for name in (plain, *others) if name not in names.values())
    return names


def _job(case: Case, names: Mapping[str, str]) -> dict[str, Any]:
    arms = [
        {"name": names[name], "recipe": _recipe(runs[0]), "replicates": len(runs)}
        for name, runs in (
            (case.baseline_name or "baseline", case.baseline),
            *case.candidates.items(),
        )
    ]
    spec: dict[str, Any] = {
        "name": job_title([*case.candidates], case.baseline_name or "baseline"),
        "engine": "external",
        "schedule": {"steps": case.planned_steps, "warmup_steps": 0},
        "baseline": arms[0],
        "candidates": arms[1:],
    }
    if case.families:
        spec["family"] = next(iter(case.families.values()))
    return spec


def job_title(candidates: Sequence[str], baseline: str) -> str:
    """The job's name, "mxfp8, nvfp4 and 28 others against fp8": whole names of candidates as far as
    they fit, and the number of the others.
    """
    names = [
        "".join(letter if letter.isprintable() else "_" for letter in name)
        for name in (*candidates, baseline)
    ]
    *names, against = [cut(name, _LONGEST_NAME) for name in names]
    for shown in range(len(names), 0, -1):
        others = len(names) - shown
        first = ", ".join(names[:shown]) + (f" and {count(others, 'other')}" if others else "")
        if len(title := f"{first} against {against}") <= LONGEST_TITLE:
            break
    return title


def _recipe(run: Curve) -> str:
    """The recipe as a job has it: a known word, else the user's own word as `other:NAME`, which is
    never taken for a known one.
    """
    recipe = run.recipe
    if recipe is None:
        return UNSTATED
    if recipe.startswith(OTHER) or recipe in RECIPES:
        return recipe
    return f"{OTHER}{recipe}"


def _manifest(run: Curve) -> dict[str, str]:
    return {
        ("trainer_engine" if key == _ENGINE else key): value for key, value in run.context.items()
    }


def _key(spec: Mapping[str, Any], policy: Mapping[str, Any], case: Case) -> str:
    series = [
        [run.digest(), _columns(run), _manifest(run), run.rounding]
        for _, _, runs in case.arms()
        for run in runs
    ]
    layers = {
        name: [[*column, value] for column, value in sorted(statistics.items())]
        for name, statistics in case.layer_snr_db.items()
        if statistics
    }
    pushed = canonical_json([VERSION, spec, policy, series, *([layers] if layers else [])])
    return f"push-{hashlib.sha256(pushed.encode()).hexdigest()}"


def _columns(run: Curve) -> dict[str, str]:
    """The digest of each further column, which the judge reads too: learning rate, validation loss,
    gradient norm, times.
    """
    return {name: series_digest(run.steps, values) for name, values in run.columns.items()}


def _submitted(
    client: Client, spec: Mapping[str, Any], policy: Mapping[str, Any], key: str
) -> dict[str, Any]:
    """The job of this key; another one in place of one that failed or was cancelled."""
    while True:
        job = client.job(client.submit(spec, policy, key=key)["id"])
        if job["status"] not in ("failed", "cancelled"):
            return job
        key = f"push-{hashlib.sha256((key + job['id']).encode()).hexdigest()}"


def _matched(
    job: Mapping[str, Any], case: Case, names: Mapping[str, str]
) -> list[tuple[str, str, Curve, str]]:
    """Id and state of each run of the job, with its curve and the name of its arm."""
    arms = {
        arm["name"]: sorted(arm["runs"], key=lambda run: run["replicate"]) for arm in job["arms"]
    }
    matched = []
    for name, curves in (
        (case.baseline_name or "baseline", case.baseline),
        *case.candidates.items(),
    ):
        for run, curve in zip(arms[names[name]], curves, strict=True):
            matched.append((run["id"], run["state"], curve, name))
    return matched


def _at_its_end(table: LayerColumns, curve: Curve) -> LayerColumns:
    """Statistics of which no step is known (`read_layer_table` says 0), at the last step."""
    if table.steps.tolist() != [0]:
        return table
    return LayerColumns(steps=curve.steps[-1:].astype(np.int64), columns=table.columns)


def _concluded(client: Client, job_id: str) -> dict[str, Any]:
    """The job once it has ended; UnreachableError where it does not within a minute."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        document = client.job(job_id)
        if document["status"] in _ENDED:
            return document
        if time.monotonic() > until:
            raise UnreachableError(
                f"the server has not judged job {job_id} yet: `parity watch {job_id}` waits for it"
            )
        time.sleep(_LOOK_SECONDS)
