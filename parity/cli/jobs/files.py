"""Job files: what `parity.yaml` contains, and the options that replace parts of it."""

from __future__ import annotations

from collections.abc import Mapping

from parity.cli.terminal.output import UsageError
from parity.client.rest import Document
from parity.comparing.policy import read_yaml
from parity.wording import did_you_mean

_JOB_KEYS = ("job", "criteria", "baseline", "gate", "tags", "search")
UNSENDABLE = "contains a value that JSON cannot hold, such as a date or .inf; quote dates and use finite numbers"


def job_file(path: str) -> Document:
    """The content of `parity.yaml`; the server checks the part below `job:`."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is not a job file; expected the keys `job:` and `criteria:`")
    unknown = sorted(str(key) for key in content.keys() - set(_JOB_KEYS))
    if unknown:
        raise UsageError(
            f"{path}: unknown key {unknown[0]!r}; expected {', '.join(_JOB_KEYS[:-1])} or search{did_you_mean(unknown[0], _JOB_KEYS)}"
        )
    if not isinstance(content.get("baseline") or {}, dict):
        raise UsageError(f"{path}: `baseline:` is {content['baseline']!r}; expected a mapping such as baseline: {{name: fp8}}")
    for key in ("job", "criteria"):
        if not isinstance(content.get(key), dict):
            raise UsageError(f"{path}: `{key}:` is missing or has no keys below it; compare with examples/demo.yaml")
    return content


def baseline_of(content: Document, reuse: bool | None) -> Document | None:
    """The file's `baseline:`, overridden by the option; None if neither is given."""
    baseline = dict(content.get("baseline") or {})
    return baseline | ({} if reuse is None else {"reuse": reuse}) or None


def with_noise(content: Document, runs: int | None, stop_at: float | None) -> Document:
    """The job file with the options in place of its `noise:`; the server checks the values."""
    if runs is None and stop_at is None:
        return content
    job = dict(content["job"])
    noise = job.pop("noise", None)
    if runs == 0 or (runs is None and not isinstance(noise, Mapping)):
        if stop_at is not None:
            raise UsageError(f"--stop-at is {stop_at:g}, but the job has no reruns that stop early; state their number with --noise-runs")
        return {**content, "job": job}
    stated = {"runs": runs, "stop_at": stop_at}
    return {
        **content,
        "job": job
        | {
            "noise": (dict(noise) if isinstance(noise, Mapping) else {})
            | {name: value for name, value in stated.items() if value is not None}
        },
    }
