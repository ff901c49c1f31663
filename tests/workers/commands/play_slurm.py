"""What Slurm does for us, on this machine: jobs in a file, started as processes in groups of their own.

play_slurm.py FOLDER PROGRAM ARGUMENT ...     PROGRAM: sbatch, squeue, scontrol or scancel; FOLDER has the jobs

A file `down` in the folder makes it unreachable, `full` leaves released jobs in the queue. In partition `limited` no job is taken until
there is a file `unlimited`. `scontrol requeue ID` takes a job from its node and starts it again. Every call is a line of `calls`.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(sys.argv[1])
OVER = ("COMPLETED", "FAILED", "CANCELLED", "PREEMPTED")


def main():
    program, arguments = sys.argv[2], sys.argv[3:]
    with (HOME / "calls").open("a") as calls:
        calls.write(json.dumps([program, *arguments]) + "\n")
    if (HOME / "down").exists():
        sys.exit(f"{program}: error: Unable to contact slurm controller (connect failure)")
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = HOME / "jobs.json"
        jobs = json.loads(file.read_text()) if file.exists() else {}
        try:
            {"sbatch": sbatch, "squeue": squeue, "scontrol": scontrol, "scancel": scancel}[program](jobs, arguments)
        finally:
            part = HOME / "jobs.part"
            part.write_text(json.dumps(jobs))
            part.replace(file)


def sbatch(jobs, arguments):
    options = dict(each.removeprefix("--").partition("=")[::2] for each in arguments[:-1])
    (HOME / "environment").write_text(json.dumps(dict(os.environ)))
    if options.get("partition") == "nowhere":
        sys.exit("sbatch: error: Batch job submission failed: Invalid partition name specified")
    if options.get("partition") == "limited" and not (HOME / "unlimited").exists():
        sys.exit("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
    assert options["export"] == "NIL"
    job_id = str(1 + max(map(int, jobs), default=0))
    reason = "JobHeldUser" if "hold" in options else "None"
    jobs[job_id] = {
        "name": options["job-name"],
        "state": "PENDING",
        "reason": reason,
        "script": arguments[-1],
        "out": options["output"],
        "restarts": 0,
        "pid": 0,
    }
    print(job_id)


def squeue(jobs, arguments):
    assert "--states=all" in arguments
    name = next((each.partition("=")[2] for each in arguments if each.startswith("--name=")), None)
    for job_id, job in jobs.items():
        refresh(job_id, job)
        if name in (None, job["name"]):
            print(job_id, job["state"], job["reason"], job["name"], sep="|")


def scontrol(jobs, arguments):
    what, job_id = arguments
    if job_id not in jobs:
        sys.exit("slurm_update error: Invalid job id specified")
    job = jobs[job_id]
    if what == "requeue":
        end(job)
        job["restarts"] += 1
        start(job_id, job)
    elif job["state"] == "PENDING":
        start(job_id, job)


def scancel(jobs, arguments):
    job = jobs.get(arguments[0])
    if job is not None and job["state"] not in OVER:
        end(job)
        job["state"], job["reason"] = "CANCELLED", "None"


def start(job_id, job):
    if (HOME / "full").exists():
        job["state"], job["reason"] = "PENDING", "Resources"
        return
    own = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job_id, "SLURM_RESTART_COUNT": str(job["restarts"])}
    (HOME / f"status.{job_id}").unlink(missing_ok=True)
    command = f'sh "{job["script"]}"; echo $? > "{HOME}/status.{job_id}"'
    with Path(job["out"]).open("ab") as out:
        process = subprocess.Popen(
            ["sh", "-c", command], env=own, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
    job["state"], job["reason"], job["pid"] = "RUNNING", "None", process.pid


def refresh(job_id, job):
    status = HOME / f"status.{job_id}"
    if job["state"] == "RUNNING" and status.exists():
        job["state"] = "COMPLETED" if status.read_text().strip() == "0" else "FAILED"


def end(job):
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            if job["pid"]:
                os.killpg(job["pid"], how)
        deadline = time.monotonic() + 5
        while job["pid"] and time.monotonic() < deadline and any_of(job["pid"]):
            time.sleep(0.02)


def any_of(group):
    """Whether a process of a group lives; what has ended and is waited for does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False


if __name__ == "__main__":
    main()
