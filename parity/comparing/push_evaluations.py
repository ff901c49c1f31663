"""A comparison of held-out losses, recorded on a server: a job of engine evaluations, sent in one
request with all losses of every run.

The server judges by itself, and the same comparison makes the same job.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from parity.canonical_json import json_value
from parity.client.rest import Client
from parity.comparing.push import LONGEST_TITLE, Pushed, job_arm_names, job_title
from parity.comparing.statements import InputError
from parity.judging.curves.curve import Curve
from parity.judging.evaluations.case import EvaluationCase
from parity.version import VERSION
from parity.wording import cut

_SUFFIX = ", held-out losses"


def check_one_size(cases: Sequence[EvaluationCase]) -> None:
    """Raise InputError for the comparisons at several sizes, of which each is a question."""
    if len(cases) > 1:
        raise InputError(
            f"--push records one comparison, and these are {len(cases)}, one a size; choose one "
            "size with --where"
        )


def push_evaluations(client: Client, case: EvaluationCase) -> Pushed:
    """Send all losses of a case; the job with the server's verdicts.

    Raises ClientError where the server refuses it, UnreachableError without an answer: the same
    call may be made again.
    """
    names = job_arm_names([case.baseline_name, *case.candidates])
    body = _body(case, names)
    # in the order of the arms, which is part of what the server records
    digest = hashlib.sha256(json.dumps([VERSION, body], allow_nan=False).encode()).hexdigest()
    job = client.push_evaluations(body, key=f"push-{digest}")
    own = {sent: name for name, sent in names.items()}
    verdicts = {own[verdict["candidate"]["name"]]: verdict for verdict in job["verdicts"]}
    return Pushed(job=job["id"], page=client.page(job["id"]), verdicts=verdicts)


def _body(case: EvaluationCase, names: Mapping[str, str]) -> dict[str, Any]:
    # the curves of the same arms have the title alone: a badge or a trend by name is of one of both
    title = job_title([*case.candidates], case.baseline_name)
    return {
        "name": cut(title, LONGEST_TITLE - len(_SUFFIX)) + _SUFFIX,
        "baseline_name": names[case.baseline_name],
        "baseline": [_run(run) for run in case.baseline],
        "candidates": {
            names[name]: [_run(run) for run in runs] for name, runs in case.candidates.items()
        },
        "policy": case.policy.document(),
        "paired": case.paired,
        "cluster": case.cluster,
        "at": list(case.at),
        "target": case.target,
        "tokens_per_step": case.tokens_per_step,
        "planned_steps": case.planned_steps,
        "look": case.multiplicity.look if case.multiplicity else 1,
        "times": [{**asdict(times), "arm": names[times.arm]} for times in case.times],
    }


def _run(run: Curve) -> Any:
    body = {
        "steps": run.steps,
        "loss": run.loss,
        "columns": run.columns,
        "label": run.label or None,
        "seed": run.seed if run.seed_stated else None,
        "replicate": run.replicate,
        "recipe": run.recipe,
        "rounding": run.rounding,
        "context": run.context,
        "notes": run.notes,
    }
    return json_value(body)  # which spells a number that is not finite
