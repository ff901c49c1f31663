"""Whether one worker follows hundreds of submitted runs: its memory, its queries of the scheduler,
and how soon a line is on record.

    python benchmarks/submitted.py --runs 300

The scheduler's programs are stand-ins of a few lines, and this process writes what the trainers of
all jobs would write, a line a run every two seconds: two cores hold no 300 trainers. The worker is
the real one, in a process of its own, on SQLite, with the default settings. Marks: less than 1 GiB,
at most one query a period, every line on record within 5 s.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from alembic import command
from marks import Line
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database.sessions import Database
from server.database.tables import Run, Submission
from server.jobs.submit import JobSubmission as Wanted
from server.jobs.submit import submit_registered
from server.readiness import alembic_config
from server.settings import CHECKOUT, Settings
from training.command import Command
from training.spec import ArmSpec, JobSpec, Schedule
from workers.commands.launchers import read_launchers

STEPS, LINE_SECONDS = 100_000, 2.0
_REPLICATES = 50  # of an arm; a job has two arms
MOST_BYTES, MOST_SECONDS = 2**30, 5.0
PROGRAMS = {
    "sbatch": 'n=$(($(cat "$HOME_OF/next" 2>/dev/null || echo 0) + 1)); echo $n > "$HOME_OF/next"; '
    "echo $n\n"
    "for each; do case $each in --job-name=*) name=${each#*=};; esac; done; echo "
    '"$n|RUNNING|None|$name" >> "$HOME_OF/jobs"',
    "squeue": 'for each; do case $each in --name=*) grep -F "${each#*=}" "$HOME_OF/jobs"; exit 0;; '
    "esac; done\n"
    'echo >> "$HOME_OF/queries"; cat "$HOME_OF/jobs"',
    "scontrol": "exit 0",
    "scancel": "exit 0",
}
WORKER = """
import signal, threading
from server.settings import Settings
from workers.runtime import Runtime
runtime, over = Runtime(Settings()), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
runtime.start()
over.wait()
runtime.stop()
runtime.sign_off()
"""


def main() -> int:
    """Submit, follow for a while, and print the figures with their marks; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="a multiple of 100")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = _prepared(folder, options.runs)
        database = Database(settings.database)
        environment = os.environ | {
            "PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"])),
            "PARITY_STATE_DIR": str(settings.state_dir),
            "PARITY_CAPABILITY": "command",
            "PARITY_LAUNCHERS": str(folder / "launchers.toml"),
        }
        with (folder / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER],
                cwd=CHECKOUT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            lines = _measured(
                folder,
                database,
                psutil.Process(worker.pid),
                options.runs,
                options.seconds,
                settings.reconcile_seconds,
            )
        finally:
            worker.kill()
            worker.wait()
            database.close()
    for line in lines:
        print(f"{line.what}: {line.value} (mark: {line.mark}) {'ok' if line.ok else 'MISS'}")
    return 0 if all(line.ok for line in lines) else 1


def _prepared(folder: Path, runs: int) -> Settings:
    """A record with one job of `runs` runs, a repository, a launcher and the stand-ins."""
    for part in ("bin", "state", "model", "slurm"):
        (folder / part).mkdir()
    (folder / "slurm" / "jobs").touch()
    for program, text in PROGRAMS.items():
        path = folder / "bin" / program
        path.write_text(
            f'#!/bin/sh\nHOME_OF="{folder}/slurm"\nexec 9> "$HOME_OF/lock"; flock 9\n{text}\n'
        )
        path.chmod(0o755)
    git = [
        "git",
        "-C",
        str(folder / "model"),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
    ]
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    (folder / "model" / "train.py").write_text("")
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=a"], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (folder / "launchers.toml").write_text(
        f'[launcher.loop]\nrepository = "{folder}/model"\ncommand = ["python3", '
        '"train.py"]\nrecipes = {bf16 = [], nvfp4 = []}\n'
        'reports = {path = "metrics.jsonl"}\nscheduler = "slurm"\ndevice_class = "a CPU"\n'
    )
    proofs = folder / "state" / "launchers"
    proofs.mkdir()
    (proofs / read_launchers(folder / "launchers.toml")["loop"].digest).touch()
    settings = Settings(state_dir=folder / "state")
    command.upgrade(alembic_config(settings.database), "head")
    arms = [
        ArmSpec(recipe=recipe, revision=commit, name=recipe, replicates=_REPLICATES)
        for recipe in ("bf16", "nvfp4")
    ]
    spec = JobSpec(
        name="many",
        engine="command",
        command=Command(launcher="loop"),
        schedule=Schedule(steps=STEPS, warmup_steps=0),
        baseline=arms[0],
        candidates=(arms[1],),
    )
    database = Database(settings.database)
    for number in range(runs // (2 * _REPLICATES)):
        policy = policy_from_mapping({"margin": "1.0%", "question": f"job {number}"})
        with database.write() as session:
            submit_registered(session, Wanted(spec=spec, policy=policy, revision="r"), "someone")
    database.close()
    return settings


def _measured(
    folder: Path,
    database: Database,
    worker: psutil.Process,
    runs: int,
    seconds: float,
    period: float,
) -> list[Line]:
    began = time.monotonic()
    while len(places := _released(database)) < runs:
        if time.monotonic() - began > 1800 or worker.status() == psutil.STATUS_ZOMBIE:
            raise SystemExit(
                f"{len(places)} of {runs} runs were submitted: "
                f"{(folder / 'worker.log').read_text()[-2000:]}"
            )
        time.sleep(1.0)
    took = time.monotonic() - began
    logs = {}
    for run_id, place in places.items():
        (place / "started.0").write_text(f"1 {time.time():.0f} host 1\n")
        (place / "output.0").mkdir()
        (place / "stdout.0").touch()
        logs[run_id] = (place / "output.0" / "metrics.jsonl").open("w", buffering=1)
    queries = _queries(folder)
    written: dict[str, list[float]] = {run_id: [] for run_id in logs}
    worst, most_bytes, began = 0.0, 0, time.monotonic()
    turn = 0
    while time.monotonic() - began < seconds:
        # not all at once
        some = [run_id for number, run_id in enumerate(logs) if number % 4 == turn % 4]
        for run_id in some:
            step = len(written[run_id])
            logs[run_id].write(f'{{"step": {step}, "loss": {5.0 - step / 1e5}}}\n')
            written[run_id].append(time.monotonic())
        turn += 1
        with database.read() as session:
            done = {
                row.id: row.steps_done for row in session.execute(select(Run.id, Run.steps_done))
            }
        now = time.monotonic()
        if now - began > 15.0:  # all of them are open by then
            worst = max(
                worst,
                *(
                    now - times[done[run_id]]
                    for run_id, times in written.items()
                    if done[run_id] < len(times)
                ),
                0.0,
            )
        most_bytes = max(most_bytes, worker.memory_info().rss)
        time.sleep(max(0.0, began + turn * LINE_SECONDS / 4 - time.monotonic()))
    asked, periods = _queries(folder) - queries, (time.monotonic() - began) / period
    for log in logs.values():
        log.close()
    lines = sum(map(len, written.values()))
    return [
        Line(what="runs submitted", value=f"{runs} in {took:.0f} s", mark="all", ok=True),
        Line(
            what="memory",
            value=f"{most_bytes / 2**20:.0f} MiB",
            mark="1 GiB",
            ok=most_bytes < MOST_BYTES,
        ),
        Line(
            what="queries",
            value=f"{asked} in {periods:.1f} periods",
            mark="one a period",
            ok=asked <= periods + 1,
        ),
        Line(
            what=f"the longest that one of {lines:,} lines waited",
            value=f"{worst:.1f} s",
            mark="5 s",
            ok=worst < MOST_SECONDS,
        ),
    ]


def _released(database: Database) -> dict[str, Path]:
    with database.read() as session:
        rows = session.execute(
            select(Submission.run_id, Submission.folder).where(Submission.state == "released")
        )
        return {run_id: Path(folder) for run_id, folder in rows}


def _queries(folder: Path) -> int:
    path = folder / "slurm" / "queries"
    return len(path.read_text().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
