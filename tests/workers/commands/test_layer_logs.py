"""What a launcher's trainer leaves of its debug tool, recorded at its end."""

import numpy as np
import pytest
from sqlalchemy import select

from server.database.metrics import store
from server.database.tables import Attempt
from tests.workers.commands.conftest import LOOP, head_of
from tests.workers.commands.schedulers import Stepping
from tests.workers.commands.submissions import all_ended

LOGS = "nvdlfw_inspect_statistics_logs"
REPORTS = f'{{path = "metrics.jsonl", layers = "{LOGS}"}}'
COLUMN = "layers.0.fc1/gradient nvfp4/underflow_share"
# two ranks, of which the second loses more
WRITES = f"""
    folder = Path(asked["out"]) / "{LOGS}"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"nvdlfw_inspect_globalrank-{{rank}}.log").write_text("".join(
            f"INFO - layers.0.fc1_gradient_nvfp4_underflows% iteration={{step:06d}} "
            f"value={{1 + rank}}\\n"
            for step in range(0, steps, 10)
        ))
"""
TOLD = LOOP.replace("    with (Path(", WRITES + "    with (Path(", 1)


def _layers(service, run_id):
    with service.database.read() as session:
        return store.read(session, run_id, "layers")


def _run_ids(service):
    return [run.id for run in service.job().runs]


def _notes(service):
    with service.database.read() as session:
        return [note for note in session.scalars(select(Attempt.message)) if note]


def test_the_worst_rank_is_recorded_at_each_logged_step(stack, base, repository):
    service = stack(reports=REPORTS)
    service.submit(base, head_of(repository.commit({"train/loop.py": TOLD})))
    runs = {run.arm.name: run for run in (service.train(), service.train())}
    assert {run.state for run in runs.values()} == {"finished"}
    steps, columns = _layers(service, runs["head"].id)
    assert steps.tolist() == list(range(0, 60, 10))
    assert {name: np.unique(values).tolist() for name, values in columns.items()} == {
        COLUMN: [0.02]
    }
    assert len(_layers(service, runs["base"].id)[0]) == 0
    assert _notes(service) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (TOLD.replace("value={1 + rank}", "value=high"), "expected a number"),
        (TOLD.replace("underflows%", "mean"), "neither underflow nor noise"),
        (
            LOOP.replace(
                "    with (Path(",
                f"    (Path(asked['out']) / '{LOGS}').symlink_to('/etc')\n    with (Path(",
                1,
            ),
            "is a link or no file",
        ),
        (
            LOOP.replace(
                "    with (Path(",
                f"    (Path(asked['out']) / '{LOGS}').write_text('x')\n    with (Path(",
                1,
            ),
            "expected a folder of logs",
        ),
    ],
)
def test_logs_that_cannot_be_read_are_a_note_and_the_run_is_finished(
    stack, base, repository, script, why
):
    service = stack(reports=REPORTS)
    service.submit(base, head_of(repository.commit({"train/loop.py": script})))
    runs = {run.arm.name: run for run in (service.train(), service.train())}
    assert {run.state for run in runs.values()} == {"finished"}
    (note,) = _notes(service)
    assert "statistics by layer are not recorded" in note
    assert why in note


def test_a_trainer_that_fails_leaves_them_too(stack, base, repository):
    broken = TOLD.replace(
        "            log.write(", "            assert step < 30\n            log.write("
    )
    service = stack(reports=REPORTS)
    service.submit(base, head_of(repository.commit({"train/loop.py": broken})))
    runs = {run.arm.name: run for run in (service.train(), service.train())}
    assert (runs["head"].state, runs["head"].code) == ("failed", "TRAINER_FAILED")
    assert len(_layers(service, runs["head"].id)[0]) == 6


def test_a_trainer_on_a_cluster_leaves_them_in_its_folder(on_slurm, base, repository):
    service = on_slurm(reports=REPORTS)
    service.submit(base, head_of(repository.commit({"train/loop.py": TOLD})))
    Stepping(service).until(all_ended(service))
    runs = {run.arm.name: run for run in map(service.run, _run_ids(service))}
    steps, columns = _layers(service, runs["head"].id)
    assert steps.tolist() == list(range(0, 60, 10))
    assert list(columns) == [COLUMN]
