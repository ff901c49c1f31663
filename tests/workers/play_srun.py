"""What srun does for us: starts so many copies of a command, numbered by its variables, the first
with our input; all end with one.

play_srun.py COUNT COMMAND ...
"""

import os
import signal
import subprocess
import sys
import time

count, command = int(sys.argv[1]), sys.argv[2:]
tasks = [
    subprocess.Popen(
        command,
        env={**os.environ, "SLURM_PROCID": str(number), "SLURM_NTASKS": str(count)},
        stdin=None if number == 0 else subprocess.DEVNULL,
    )
    for number in range(count)
]


def end(status):
    for task in tasks:
        task.kill()
        task.wait()
    sys.exit(status)


ended: list[int] = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(143))
while any(task.poll() is None for task in tasks):
    time.sleep(0.02)
    failed = ended + [task.returncode for task in tasks if task.returncode]
    if failed:
        sys.stderr.write(f"srun: error: step CANCELLED, status {failed[0]}\n")
        end(failed[0])
sys.stderr.write("srun: step COMPLETED\n")
