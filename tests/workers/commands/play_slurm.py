"""What Slurm does for us, on this machine: jobs in a file, started as processes in groups of their
own.

play_slurm.py FOLDER PROGRAM ARGUMENT ...     PROGRAM: sbatch, squeue, scontrol or scancel; FOLDER
  has the jobs

A file `down` in the folder makes it unreachable, `full` leaves released jobs in the queue. In
partition `limited` no job is taken until there is a file `unlimited`. `scontrol requeue ID` takes a
job from its node and starts it again. `calls` has every call.

Tests call it hundreds of times, so it imports nothing that takes longer than its start.
"""

import fcntl
import marshal
import os
import sys
import time

HOME = sys.argv[1]
TERMINATE, KILL = 15, 9
OVER = ("COMPLETED", "FAILED", "CANCELLED", "PREEMPTED")


def main():
    program, arguments = sys.argv[2], sys.argv[3:]
    with open(f"{HOME}/lock", "w") as lock:  # noqa: PTH123
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(f"{HOME}/calls", "ab") as calls:  # noqa: PTH123
            marshal.dump([program, *arguments], calls)
        if is_there("down"):
            sys.exit(f"{program}: error: Unable to contact slurm controller (connect failure)")
        jobs = {}
        if is_there("jobs"):
            with open(f"{HOME}/jobs", "rb") as file:  # noqa: PTH123
                jobs = marshal.load(file)  # noqa: S302
        try:
            {"sbatch": sbatch, "squeue": squeue, "scontrol": scontrol, "scancel": scancel}[program](
                jobs, arguments
            )
        finally:
            with open(f"{HOME}/jobs.part", "wb") as part:  # noqa: PTH123
                marshal.dump(jobs, part)
            os.replace(f"{HOME}/jobs.part", f"{HOME}/jobs")  # noqa: PTH105


def is_there(name):
    return os.path.exists(f"{HOME}/{name}")  # noqa: PTH110


def sbatch(jobs, arguments):
    options = dict(option.removeprefix("--").partition("=")[::2] for option in arguments[:-1])
    with open(f"{HOME}/environment", "w") as file:  # noqa: PTH123
        file.write(repr(dict(os.environ)))
    if options.get("partition") == "nowhere":
        sys.exit("sbatch: error: Batch job submission failed: Invalid partition name specified")
    if options.get("partition") == "limited" and not is_there("unlimited"):
        sys.exit(
            "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: "
            "Job violates accounting/QOS policy"
        )
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
    name = next(
        (option.partition("=")[2] for option in arguments if option.startswith("--name=")), None
    )
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
    import subprocess

    if is_there("full"):
        job["state"], job["reason"] = "PENDING", "Resources"
        return
    variables = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": job_id,
        "SLURM_RESTART_COUNT": str(job["restarts"]),
    }
    if is_there(f"status.{job_id}"):
        os.unlink(f"{HOME}/status.{job_id}")  # noqa: PTH108
    command = f'sh "{job["script"]}"; echo $? > "{HOME}/status.{job_id}"'
    with open(job["out"], "ab") as out:  # noqa: PTH123
        process = subprocess.Popen(
            ["sh", "-c", command],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    job["state"], job["reason"], job["pid"] = "RUNNING", "None", process.pid


def refresh(job_id, job):
    if job["state"] == "RUNNING" and is_there(f"status.{job_id}"):
        with open(f"{HOME}/status.{job_id}") as file:  # noqa: PTH123
            status = file.read().strip()
        job["state"] = "COMPLETED" if status == "0" else "FAILED"


def end(job):
    for how in (TERMINATE, KILL):
        try:
            if job["pid"]:
                os.killpg(job["pid"], how)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 5
        while job["pid"] and time.monotonic() < deadline and any_of(job["pid"]):
            time.sleep(0.02)


def any_of(group):
    """Whether a process of a group lives; what has ended and is waited for does not."""
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat") as stat:  # noqa: PTH123
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


if __name__ == "__main__":
    main()
