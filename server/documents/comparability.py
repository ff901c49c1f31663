"""Whether the gaps of several jobs can be compared: the facts in which the jobs must agree, each by
the word that names it where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.database.tables import Job

_LAYERS = ("layer_policy", "keep_first", "keep_last", "projections")
_LABEL_FIELDS = ("name", "replicates")
# Parts of the policy that do not change what is measured, or that have a word of their own.
_FREE_POLICY_FIELDS = ("margin", "profile", "looks", "question", "early_stop")


def facts(job: Job, judge: str | None) -> dict[str, Any]:
    """What was compared and how, without the candidate; `judge` is the version that gave the
    verdicts. What is unknown is left out.
    """
    spec: dict[str, Any] = job.spec
    optional: dict[str, Any] = {
        "judge": judge,
        "hardware": job.device_class and [job.device_class, job.devices],
    }
    return {
        "engine": job.engine,
        "model": (spec.get("model"), spec.get("family"), spec.get("maxtext")),
        "data": spec.get("data"),
        "schedule": spec.get("schedule"),
        "layers": [spec.get(key) for key in _LAYERS],
        "baseline": arithmetic(spec["baseline"]),
        "question": spec.get("question"),
        "policy": {
            key: value for key, value in job.policy.items() if key not in _FREE_POLICY_FIELDS
        },
        "margin": (job.policy.get("margin"), job.policy.get("profile")),
        **{name: value for name, value in optional.items() if value is not None},
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The words of the facts, known of both, in which two jobs differ; empty where their gaps can
    be compared.
    """
    return [name for name, value in first.items() if name in second and second[name] != value]


def arithmetic(requested: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's recipe with its switches and overrides, whatever the arm is called."""
    return {key: value for key, value in requested.items() if key not in _LABEL_FIELDS}
