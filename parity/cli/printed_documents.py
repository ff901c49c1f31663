"""Which document each command prints with --json, by the name of its JSON Schema.

This is the only place that says so: `parity schema`, the help of each command and the tests read
it.
"""

from collections.abc import Mapping, Sequence

from parity.extensions import lab

PRINTED: Mapping[str, Sequence[str]] = {
    "baseline": ("baseline show", "baseline promote", "baseline control", "baseline expire"),
    "baseline-diff": ("baseline diff",),
    "baseline-list": ("baseline list",),
    "bundle-check": ("verify BUNDLE",),
    "calibration": ("calibrate",),
    "cancelled-job": ("cancel",),
    "card": ("card",),
    "card-check": ("verify CARD",),
    "convergence": ("mlperf",),
    "document-counts": ("preflight --job FILE (of engine maxtext)",),
    "gate": ("gate",),
    "golden": ("golden check", "golden update (of a run that was not taken)"),
    "golden-file": ("golden show GOLDEN",),
    "golden-list": ("golden list",),
    "golden-taken": ("golden update server:NAME",),
    "golden-update": ("golden update GOLDEN",),
    "golden-version": ("golden show server:NAME", "golden remove"),
    "imported-runs": ("import",),
    "job": ("status JOB",),
    "job-list": ("status",),
    "job-needs": ("doctor --job FILE",),
    "job-runs": ("add-run",),
    "matrix": ("matrix",),
    "noise-family": ("noise show",),
    "noise-import": ("noise import",),
    "noise-list": ("noise list",),
    "plan": ("plan",),
    "preflight": ("preflight",),
    "queued-job": ("submit", "again"),
    "remarks": ("tag", "note", "sign-off", "new-question"),
    "report": (
        "compare",
        "watch",
        "report",
        "submit --watch",
        "again --watch",
        "runs state",
        "runs judge",
        "runs conclude",
    ),
    "run": ("runs fail",),
    "sent-spools": ("resend",),
    "trend": ("trend",),
    "worker-list": ("doctor",),
}
"""By schema the commands that print such a document, as they are called."""

NOT_PRINTED: Mapping[str, str] = {
    "golden-card": "the YAML that `parity golden check --card` writes",
    "job-file": "a job file, such as parity.yaml",
    "verdict": "one of the `verdicts` in report, job and gate",
}
"""Schemas of what no command prints alone: where it is found."""


def printed_documents() -> Mapping[str, Sequence[str]]:
    """`PRINTED`, with what the commands of the lab print."""
    return {**PRINTED, **lab().documents}


def schemas_of(command: str) -> list[str]:
    """The schemas of what a command (`golden check`) prints with --json, in alphabetical order."""
    return sorted(
        name
        for name, forms in printed_documents().items()
        if any(form == command or form.startswith(f"{command} ") for form in forms)
    )
