"""Fill a server of any version over REST: what a team leaves in a record in a week."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import numpy as np

JSON = Mapping[str, Any]
EXTERNAL: JSON = {
    "name": "my own trainer",
    "engine": "external",
    "layer_policy": "all_linears",
    "schedule": {"steps": 400, "warmup_steps": 10},
    "baseline": {"recipe": "fp8_current", "replicates": 2},
    "candidates": [{"recipe": "nvfp4", "replicates": 2}],
}
EMULATED: JSON = {
    "name": "small and emulated",
    "engine": "emulated",
    "layer_policy": "mlp_only",
    "seed": 0,
    "model": {"preset": "llama3-0.3m"},
    "data": {
        "source": "parity_docs",
        "sequence_length": 32,
        "batch_size": 2,
        "validation_fraction": 0.05,
    },
    "keep_checkpoints": [120],
    "schedule": {"steps": 200, "learning_rate": 4.0e-3, "warmup_steps": 20, "final_fraction": 0.1},
    "baseline": {"recipe": "bf16"},
    "candidates": [{"recipe": "fp8_current"}],
}
LONG: JSON = {
    **EMULATED,
    "name": "in training",
    "schedule": {**EMULATED["schedule"], "steps": 4_000},
}
POLICY = {"margin": "1.0 %"}
ACTIVE = ("queued", "running", "judging", "cancelling")


class Filler:
    """A client of one server; `made` has the id of each thing by what it is, `refused` the words
    with which this version refused one.
    """

    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=f"{url}/api/v1", timeout=60.0)
        self.made: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def __enter__(self) -> Filler:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        """A JSON document of the server."""
        return self._http.get(path).raise_for_status().json()

    def send(self, what: str, path: str, body: JSON, method: str = "POST") -> dict[str, Any]:
        """Make one thing; empty where this version refuses it."""
        reply = self._http.request(method, path, json=body, headers={"Idempotency-Key": what})
        if reply.is_error:
            self.refused[what] = f"{reply.status_code} {reply.text[:300]}"
            return {}
        document = reply.json() if reply.content else {}
        found: dict[str, Any] = document if isinstance(document, dict) else {}
        self.made[what] = str(found.get("id", ""))
        return found

    def submit(self, what: str, job: JSON, **fields: Any) -> str:
        """The id of a new job."""
        body = {"job": job, "policy": POLICY, **fields}
        return str(self.send(what, "/jobs", body).get("id", ""))

    def train(self, job: str, steps: int, *, finish: bool) -> None:
        """Send the first steps of every run of an external job; the candidate ends 0.01 nats
        higher, and runs of one seed read the same batches.
        """
        for number, run in enumerate(self.get(f"/jobs/{job}/runs")):
            path, what = f"/runs/{run['id']}", f"{run['arm']} {run['replicate']} of {job}"
            attached = self.send(f"attach {what}", f"{path}:attach", {"manifest": {"os": "linux"}})
            gap = 0.01 if run["arm"] == "nvfp4" else 0.0
            step, run_noise = np.arange(steps), np.random.default_rng(100 + number)
            batches = np.random.default_rng(run["seed"]).normal(0, 0.02, steps)
            level = 2.0 + gap + run_noise.normal(0, 0.001)
            noise = batches + run_noise.normal(0, 0.003, steps)
            loss = (level + 3.0 * np.exp(-step / 60) + noise).tolist()
            attempt = attached.get("attempt", 1)
            self.send(
                f"steps {what}",
                f"{path}/steps?attempt={attempt}",
                {"steps": step.tolist(), "columns": {"loss": loss, "grad_norm": loss}},
            )
            if finish:
                ended = {"attempt": attempt, "outcome": "finished"}
                self.send(f"finish {what}", f"{path}:finish", ended)

    def wait(self, job: str, happened: Callable[[JSON], bool], seconds: float = 600.0) -> JSON:
        """A job's document once it is as asked."""
        end = time.monotonic() + seconds
        while not happened(document := self.get(f"/jobs/{job}")):
            if time.monotonic() > end:
                state = f"{document['name']} is {document['status']}"
                raise TimeoutError(f"{state}: {self.get(f'/jobs/{job}/runs')}")
            time.sleep(0.2)
        return dict(document)


def fill(filler: Filler) -> None:
    """Make everything that a record can hold; the last job is still in training."""
    done = filler.submit("finished external job", EXTERNAL, tags=["nightly", "b200"])
    filler.train(done, 400, finish=True)
    filler.wait(done, lambda job: job["status"] not in ACTIVE)
    filler.send("note", f"/jobs/{done}/notes", {"text": "an odd spike at step 12"})
    filler.send("tags", f"/jobs/{done}/tags", {"tags": ["kept"]}, "PUT")
    signed = {"candidate": "nvfp4", "reason": "one bad node", "days": 30}
    filler.send("sign-off", f"/jobs/{done}/sign-offs", signed)
    promoted = {"name": "nightly", "job": done, "reason": "the first"}
    filler.send("baseline", "/baselines", promoted)
    loss = [8.0 + 0.01 * (step % 3) for step in range(20)]
    run = {"steps": [*range(1, 21)], "loss": loss, "recipe": "bf16"}
    filler.send("golden", "/goldens/llama/versions", {"run": run, "reason": "the first"})
    filler.train(
        filler.submit("running external job", {**EXTERNAL, "name": "half way"}), 300, finish=False
    )
    stated = filler.submit(
        "external job with a statement",
        {**EXTERNAL, "name": "stated", "candidates": [{"recipe": "other:mine"}]},
    )
    filler.train(stated, 300, finish=True)
    filler.wait(stated, lambda job: job["status"] not in ACTIVE)
    filler.send("statement", f"/jobs/{stated}/statements", {"family": "any-decoder"})
    run = {"label": "seed 0", "seed": 0, "steps": [300, 400], "loss": [2.2, 2.1]}
    losses = {"baseline": [run], "candidates": {"nvfp4": [{**run, "loss": [2.3, 2.2]}]}}
    filler.send("held-out losses", "/jobs:evaluations", {**losses, "name": "v", "policy": POLICY})
    filler.send("token", "/tokens", {"name": "ci", "scopes": ["submit"], "days": 30})
    question = {"job": {**EXTERNAL, "name": "of a gate"}, "policy": POLICY}
    filler.send(
        "question of a gate",
        "/jobs:gate",
        {**question, "revision": "abc", "max_age_days": 30, "fresh": False},
    )
    # nothing passes such a margin, and what passed can't be healed
    narrow = {"margin": "0.01 %"}
    trained = filler.submit("finished emulated job", EMULATED, policy=narrow)
    filler.wait(trained, lambda job: job["status"] not in ACTIVE)
    analysed = filler.send("analysis", f"/jobs/{trained}/why", {"fork_steps": 4, "anyway": True})
    if analysed:
        filler.wait(analysed["job"], lambda job: job["status"] not in ACTIVE)
    healed = filler.send("healing", f"/jobs/{trained}/heal", {})
    if healed:
        filler.wait(healed["job"], lambda job: job["status"] not in ACTIVE)
    running = filler.submit("running emulated job", LONG)
    filler.wait(running, lambda job: bool(job["share_done"] > 0.15))


if __name__ == "__main__":
    with Filler(sys.argv[1]) as filled:
        fill(filled)
    print(json.dumps({"made": filled.made, "refused": filled.refused}))
