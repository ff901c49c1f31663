"""What the API server of Kubernetes, its scheduler and its nodes do for us, on this machine: Jobs
whose pods are processes.

play_kubernetes.py FOLDER     writes its port to FOLDER/port, and its Jobs to FOLDER/jobs.json after
                              every change

A file `down` in the folder makes it answer 503, `full` leaves pods unscheduled. POST /again/NAME
takes a Job's pod from its node and starts another one. It speaks as much as `kubectl` needs:
discovery, create, get with a selector, patch, delete.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

HOME = Path(sys.argv[1])
VERBS = ["create", "delete", "get", "list", "patch"]
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "batch",
                "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
            }
        ],
    },
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": VERBS,
            }
        ],
    },
    "/apis/batch/v1": {
        "kind": "APIResourceList",
        "groupVersion": "batch/v1",
        "resources": [
            {
                "name": "jobs",
                "singularName": "job",
                "namespaced": True,
                "kind": "Job",
                "verbs": VERBS,
            }
        ],
    },
}
jobs: dict[str, dict] = {}
pods: dict[str, dict] = {}
lock = threading.RLock()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        path, query = self._asked()
        if path in DISCOVERY:
            return self._answer(200, DISCOVERY[path])
        with lock:
            refresh()
            kind, _, name = path.partition("/namespaces/ml/")[2].partition("/")
            found = {"jobs": jobs, "pods": pods}.get(kind, {})
            if name:
                return (
                    self._answer(200, found[name])
                    if name in found
                    else self._refuse(404, "NotFound", name)
                )
            labels = dict(
                label.split("=")
                for label in query.get("labelSelector", [""])[0].split(",")
                if label
            )
            items = [
                item
                for item in found.values()
                if labels.items() <= item["metadata"].get("labels", {}).items()
            ]
            version = "batch/v1" if kind == "jobs" else "v1"
            return self._answer(
                200,
                {
                    "kind": f"{kind[:-1].capitalize()}List",
                    "apiVersion": version,
                    "metadata": {},
                    "items": items,
                },
            )

    def do_POST(self):
        path, _ = self._asked()
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        with lock:
            if path.startswith("/again/"):
                end(pods[path.rpartition("/")[2]])
                start(path.rpartition("/")[2])
                return self._answer(200, {})
            name = body["metadata"]["name"]
            if name in jobs:
                return self._refuse(409, "AlreadyExists", name)
            if body["spec"]["template"]["spec"].get("priorityClassName") == "nowhere":
                return self._refuse(403, "Forbidden", name)
            jobs[name] = {"apiVersion": "batch/v1", **body, "status": {}}
            write({"created": name})
            return self._answer(201, jobs[name])

    def do_PATCH(self):
        path, _ = self._asked()
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = path.rpartition("/")[2]
        with lock:
            if name not in jobs:
                return self._refuse(404, "NotFound", name)
            was = jobs[name]["spec"].get("suspend")
            jobs[name]["spec"] |= patch["spec"]
            if was and not jobs[name]["spec"]["suspend"]:
                start(name)
            return self._answer(200, jobs[name])

    def do_DELETE(self):
        path, _ = self._asked()
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        name = path.rpartition("/")[2]
        with lock:
            if name not in jobs:
                return self._refuse(404, "NotFound", name)
            if name in pods:
                end(pods.pop(name))
            del jobs[name]
            return self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _asked(self):
        parts = urlsplit(self.path)
        if (HOME / "down").exists():
            self._refuse(503, "ServiceUnavailable", "everything")
            raise ConnectionAbortedError
        return parts.path, parse_qs(parts.query)

    def _refuse(self, status, reason, name):
        what = f'jobs.batch "{name}": {reason}'
        self._answer(
            status,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "message": what,
                "reason": reason,
                "code": status,
            },
        )

    def _answer(self, status, content):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def start(name):
    job = jobs[name]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    metadata = {
        "name": name,
        "labels": job["spec"]["template"]["metadata"]["labels"],
        "creationTimestamp": stamp,
    }
    pod = pods[name] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": {"phase": "Pending"},
        "pid": 0,
    }
    if (HOME / "full").exists():
        why = {
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **why}]
        return
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    process = subprocess.Popen(
        command, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,  # noqa: E501
        start_new_session=True, cwd="/",
    )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()
    pod["status"], pod["pid"] = {"phase": "Running"}, process.pid
    write({"started": name})


def refresh():
    for name, pod in pods.items():
        if pod["status"]["phase"] == "Running" and not any_of(pod["pid"]):
            pod["status"]["phase"] = "Succeeded"
            jobs[name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


def end(pod):
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            if pod["pid"]:
                os.killpg(pod["pid"], how)
        deadline = time.monotonic() + 5
        while pod["pid"] and time.monotonic() < deadline and any_of(pod["pid"]):
            time.sleep(0.02)


def any_of(group):
    """Whether a process of a group lives."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False


def write(event):
    with (HOME / "events").open("a") as events:
        events.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    part = HOME / "port.part"
    part.write_text(str(server.server_address[1]))
    part.replace(HOME / "port")
    server.serve_forever()
