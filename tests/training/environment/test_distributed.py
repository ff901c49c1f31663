"""Which of a wrapper's processes this is."""

import pytest

from training.environment.processes import ALONE, Processes, WrapperError, joined, processes


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
