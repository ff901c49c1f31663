"""Kubernetes, by its own `kubectl`: a Job from the operator's template, suspended until it is
released. The Job's name is our key, so the server itself refuses a second one.
"""

import json
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from workers.commands.schedulers import (
    SCRIPT,
    JobRefusedError,
    JobState,
    ScheduledJob,
    SchedulerUnreachableError,
    called,
    sentence,
)

_MANAGED = {"app.kubernetes.io/managed-by": "parity"}
_KEY = "parity-key"
# In what kubectl says where the cluster may take the job later: the quota is used up, or its API is
# away or too busy.
_FULL = "exceeded quota"
_AWAY = (
    *(
        "connection",
        "unable to connect",
        "unable to handle",
        "timeout",
        "timed out",
        "no route",
        "no such host",
        "eof",
    ),
    *(
        "too many requests",
        "serviceunavailable",
        "internalerror",
        "etcd",
        "unauthorized",
        "certificate",
        "try again",
    ),
)


class Kubernetes:
    """A namespace of a cluster; `options` are the launcher's: the Job's `manifest`, and how kubectl
    finds the cluster.
    """

    keeps_ended, forgets = True, False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._manifest = options["manifest"]
        where = {
            name: options[name] for name in ("kubeconfig", "context", "namespace") if options[name]
        }
        self._where = tuple(f"--{name}={value}" for name, value in where.items())
        self.place = " ".join(("kubernetes", *self._where))

    def submit(self, key: str, folder: Path) -> str:
        """Create the suspended Job of a folder's script; returns its name."""
        manifest = deepcopy(self._manifest)
        metadata, spec = manifest.setdefault("metadata", {}), manifest["spec"]
        metadata["name"] = key
        spec["suspend"] = True
        for labelled in (metadata, spec["template"].setdefault("metadata", {})):
            labelled["labels"] = {**labelled.get("labels", {}), **_MANAGED, _KEY: key}
        spec["template"]["spec"]["containers"][0]["command"] = ["/bin/sh", str(folder / SCRIPT)]
        status, _, errors = self._called(
            "create", "--validate=false", "--filename=-", stdin=json.dumps(manifest)
        )
        if status and "AlreadyExists" not in errors:
            _check_reachable(errors)
            raise JobRefusedError(f"Kubernetes did not take the job: {sentence(errors)}")
        return key

    def jobs(self, key: str = "") -> list[ScheduledJob]:
        """Our Jobs with their pods, or the one of a name."""
        labels = _MANAGED | ({_KEY: key} if key else {})
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        status, out, errors = self._called(
            "get", "jobs,pods", f"--selector={selector}", "--output=json"
        )
        if status:
            raise SchedulerUnreachableError(f"kubectl: {sentence(errors or out)}")
        try:
            items = [
                item
                for item in json.loads(out)["items"]
                if _KEY in item["metadata"].get("labels", {})
            ]
        except (ValueError, KeyError, TypeError):
            raise SchedulerUnreachableError(
                f"kubectl: its answer is not a list of Jobs: {sentence(out)[:100]}"
            ) from None
        pods: dict[str, list[Mapping[str, Any]]] = {}
        for item in sorted(
            items, key=lambda item: str(item["metadata"].get("creationTimestamp", ""))
        ):
            if item["kind"] == "Pod":
                pods.setdefault(item["metadata"]["labels"][_KEY], []).append(item)
        return [
            _job(item, pods.get(item["metadata"]["name"], ()))
            for item in items
            if item["kind"] == "Job"
        ]

    def release(self, job_id: str) -> None:
        """Let a suspended Job start."""
        status, _, errors = self._called(
            "patch", "job", job_id, "--type=merge", '--patch={"spec": {"suspend": false}}'
        )
        if status:
            _check_reachable(errors)

    def cancel(self, job_id: str) -> None:
        """Delete a Job with its pods."""
        status, _, errors = self._called(
            "delete", "job", job_id, "--ignore-not-found", "--wait=false", "--cascade=background"
        )
        if status:
            _check_reachable(errors)

    def _called(self, *command: str, stdin: str = "") -> tuple[int, str, str]:
        pod_variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("KUBERNETES_SERVICE_")
        }
        return called(
            ("kubectl", *self._where, "--request-timeout=30s", *command), stdin, pod_variables
        )


def _check_reachable(errors: str) -> None:
    said = sentence(errors)
    is_full = _FULL in errors.lower()
    if is_full or any(word in errors.lower() for word in _AWAY):
        raise SchedulerUnreachableError(f"kubectl: {said}", is_full=is_full)


def _job(item: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> ScheduledJob:
    name = item["metadata"]["name"]
    state, said = _state(item, pods)
    return ScheduledJob(id=name, key=name, state=state, said=said)


def _state(item: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> tuple[JobState, str]:
    """The state of a Job and why, from its conditions and its newest pod."""
    for condition in item.get("status", {}).get("conditions", ()):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return "ended", _state_with_reason(condition["type"], condition)
    if item["spec"].get("suspend"):
        return "held", "Suspended"
    if not pods:
        return "waiting", "Pending (no pod yet)"
    status = pods[-1].get("status", {})
    phase = status.get("phase", "Pending")
    if phase == "Running":
        return "running", phase
    waits = [
        container["state"]["waiting"]
        for container in status.get("containerStatuses", ())
        if "waiting" in container.get("state", {})
    ]
    unmet = [
        condition
        for condition in status.get("conditions", ())
        if condition.get("status") == "False"
    ]
    return "waiting", _state_with_reason(phase, (*waits, *unmet, {})[0])


def _state_with_reason(word: str, why: Mapping[str, Any]) -> str:
    parts = [str(why[name]) for name in ("reason", "message") if why.get(name)]
    if parts:
        return f"{word} ({': '.join(parts)[:300]})"
    return word
