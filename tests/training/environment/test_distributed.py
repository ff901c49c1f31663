"""Which of a wrapper's processes this is."""

import os
import socket
import subprocess
import sys

import pytest

from training.environment.processes import (
    ALONE,
    Processes,
    WrapperError,
    joined,
    local_devices,
    processes,
)

# Joins the other process, and prints the GPUs that jax would take of those that it sees.
JOIN = """
import os
from jax._src import xla_bridge
from training.environment.processes import joined, processes

with joined(processes(os.environ)):
    print(xla_bridge.CUDA_VISIBLE_DEVICES.value)
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ALONE),
        ({"SLURM_PROCID": "3"}, ALONE),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, Processes(number=3, count=8)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, Processes(number=0, count=2)),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "PARITY_COORDINATOR": "a:1"},
            Processes(number=1, count=2, coordinator="a:1"),
        ),
        ({"JOB_COMPLETION_INDEX": "1", "PARITY_PROCESSES": "4"}, Processes(number=1, count=4)),
        (
            {
                "PARITY_PROCESS_ID": "1",
                "PARITY_PROCESSES": "2",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
            },
            Processes(number=1, count=2),
        ),
    ],
)
def test_the_wrappers_variables_say_it(environment, expected):
    process = processes(environment)
    assert process == expected
    assert process.is_first == (process.number == 0)


@pytest.mark.parametrize(
    ("number", "count"), [("2", "2"), ("-1", "2"), ("x", "2"), ("0", ""), ("0", "0")]
)
def test_what_makes_no_sense_is_refused(number, count):
    with pytest.raises(
        WrapperError, match=f"SLURM_PROCID is '{number}' and SLURM_NTASKS is '{count}'"
    ):
        processes({"SLURM_PROCID": number, "SLURM_NTASKS": count})


def test_a_process_that_is_alone_joins_nobody():
    with joined(ALONE):
        pass


@pytest.mark.parametrize(
    ("environment", "taken"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5ebe9f43"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "3", "JAX_LOCAL_DEVICE_IDS": "0"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({}, None),
    ],
)
def test_a_process_that_sees_one_gpu_takes_that_one(environment, taken):
    assert local_devices(environment) == taken


@pytest.mark.parametrize(("seen", "taken"), [(["0", "1"], ["0", "0"]), (["0,1"] * 2, ["0", "1"])])
def test_tasks_of_slurm_take_gpus_that_they_see(seen, taken):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", JOIN],
            env=os.environ
            | {
                "JAX_PLATFORMS": "cpu",
                "PARITY_COORDINATOR": coordinator,
                "SLURM_JOB_ID": "1",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURM_NTASKS": "2",
                "SLURM_PROCID": str(number),
                "SLURM_LOCALID": str(number),
                "CUDA_VISIBLE_DEVICES": gpus,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, gpus in enumerate(seen)
    ]
    assert [task.communicate(timeout=120)[0].strip() for task in tasks] == taken
