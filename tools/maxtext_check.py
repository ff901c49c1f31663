"""`make test-maxtext`: real MaxText on this machine's processors, through the whole service.

    python -m tools.maxtext_check PYTHON [--steps N]     # PYTHON has what locks/maxtext.lock names

What it checks: every key that we tell MaxText is in its base.yml; a job of bf16 against MaxText's
own fp8, two replicates an arm, is trained through REST, queue, worker and record to a verdict; the
runs' manifests agree in everything but the arm's own; all four begin with the same parameters;
replicates have the same first loss and part afterwards; no step is missing; a checkpoint on the way
is evaluated. The exit status is 0 where all of it holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter
from rich.console import Console

from parity.cli.jobs import watching
from parity.client.rest import Client
from parity.report.formats.terminal import render_text
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job
from server.settings import CHECKOUT, Settings
from training.engines import maxtext_command
from training.environment.maxtext_errors import MaxTextError
from training.environment.maxtext_installed import VARIABLE, installed
from training.spec import ArmSpec, Data, JobSpec
from workers.standalone import stack
from workers.standalone.processes import StartError


class MaxTextCheckError(Exception):
    """Something is not as it must be."""


def main() -> int:
    """Run the check; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.maxtext_check", description="Real MaxText through the whole service."
    )
    parser.add_argument("python", help="a Python with MaxText")
    parser.add_argument("--steps", type=int, default=300, help="steps of each run (300)")
    options = parser.parse_args()
    console = Console(stderr=True)
    # A Python of a virtual environment is a link that must not be followed.
    os.environ[VARIABLE] = str(Path(options.python).absolute())
    with tempfile.TemporaryDirectory(prefix="parity-maxtext-") as folder:
        subprocess.run(
            [os.environ[VARIABLE], CHECKOUT / "tools" / "maxtext_data.py", folder], check=True
        )
        job = _job(Path(folder), options.steps)
        _check_keys(job)
        settings = Settings(state_dir=Path(folder) / "state", port=8399)
        os.environ["PARITY_STATE_DIR"], os.environ["PARITY_PORT"] = (
            str(settings.state_dir),
            str(settings.port),
        )
        os.environ["PARITY_DATA_ROOTS"] = json.dumps([folder])
        with (
            stack.running(settings, console) as keeper,
            Client(f"http://{settings.host}:{settings.port}") as client,
        ):
            submitted = client.submit(job, {"margin": "2.0%"})
            document = watching.follow(client, submitted["id"], console, check=keeper.check)
            if document["status"] != "concluded":
                raise MaxTextCheckError(
                    f"the job ended as {document['status']}: {document['message']}"
                )
            Console().print(render_text(document["verdicts"]))
            _check_runs(
                settings, submitted["id"], options.steps, job["schedule"]["validation_every"]
            )
    sys.stdout.write("MaxText: all as it must be\n")
    return 0


def _job(folder: Path, steps: int) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(
        (CHECKOUT / "examples" / "maxtext-cpu.yaml").read_text(encoding="utf-8")
    )["job"]
    content["data"]["path"] = str(folder / "train.parquet")
    content["maxtext"]["tokenizer_path"] = str(folder / "spm.model")
    content["schedule"] |= {"steps": steps, "validation_every": steps * 2 // 3}
    content["maxtext"] |= {"eval_path": content["data"]["path"], "eval_steps": 5}
    return content


def _check_keys(content: dict[str, Any]) -> None:
    """Every key of our command is one of MaxText's, whichever source of data it is for."""
    maxtext = installed(os.environ)
    defaults = yaml.safe_load(Path(maxtext.base_yml).read_text(encoding="utf-8"))
    job = TypeAdapter(JobSpec).validate_python(content)
    for source in ("grain", "hf", "tfds"):
        values = {field.name: getattr(job, field.name) for field in fields(job)}
        # which the others can't do; what it adds is grain's
        schedule = replace(job.schedule, validation_every=0)
        values |= {
            "data": Data(source=source, path="x"),
            "baseline": ArmSpec(recipe="bf16"),
            "schedule": schedule,
        }
        for _, run in JobSpec(**values).runs():
            environment = {"JAX_COMPILATION_CACHE_DIR": "cache"}
            launch = maxtext_command.Launch(
                spec=run,
                maxtext=maxtext,
                environment=environment,
                folder=Path("run"),
                slices=(1,),
            )
            # which states the schedule's length, too
            stopped = maxtext_command.train_command(launch, run.schedule.steps - 1)
            command = stopped + maxtext_command.evaluation_command(launch, 1)
            unknown = {
                argument.split("=", 1)[0] for argument in command if "=" in argument
            } - defaults.keys()
            if unknown:
                raise MaxTextCheckError(
                    f"MaxText {maxtext.versions['maxtext']} has no {', '.join(sorted(unknown))}"
                )


def _check_runs(settings: Settings, job_id: str, steps: int, evaluated: int) -> None:
    database = Database(settings.database)
    with database.read() as session:
        runs = session.get_one(Job, job_id).runs
        curves, manifests = {}, []
        for run in runs:
            recorded, columns = store.read(session, run.id, "train", ["lm_loss", "param_norm"])
            if run.state != "finished" or recorded.tolist() != list(range(steps)):
                raise MaxTextCheckError(
                    f"run {run.arm.name} {run.replicate} is {run.state} with {len(recorded)} of "
                    f"{steps} steps: {run.message}"
                )
            at, held_out = store.read(session, run.id, "validation", ["loss"])
            if at.tolist() != [evaluated] or not held_out["loss"][0] < columns["lm_loss"][0]:
                raise MaxTextCheckError(
                    f"run {run.arm.name} {run.replicate} has held-out losses {held_out['loss']} "
                    f"after {at}, expected one"
                )
            curves[run.arm.name, run.replicate] = columns
            manifests.append(
                {
                    name: value
                    for name, value in (run.manifest or {}).items()
                    if not name.startswith("maxtext.arm.")
                }
            )
    database.close()
    if any(manifest != manifests[0] for manifest in manifests):
        raise MaxTextCheckError("the manifests differ in more than the arm's own")
    # The learning rate of step 0 is 0, so the norm after it is that of the parameters at step 0.
    norms = {float(columns["param_norm"][0]) for columns in curves.values()}
    if len(norms) != 1:
        raise MaxTextCheckError(f"the runs begin with other parameters: norms {sorted(norms)}")
    for arm in {arm for arm, _ in curves}:
        if curves[arm, 0]["lm_loss"][0] != curves[arm, 1]["lm_loss"][0]:
            raise MaxTextCheckError(
                f"the replicates of {arm} begin with other parameters: their first losses differ"
            )
        if (curves[arm, 0]["lm_loss"] == curves[arm, 1]["lm_loss"]).all():
            raise MaxTextCheckError(f"the replicates of {arm} are one run twice")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (MaxTextCheckError, MaxTextError, stack.StackRefusedError, StartError) as error:
        sys.stderr.write(f"failed: {error}\n")
        sys.exit(1)
