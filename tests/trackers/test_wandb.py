"""Runs of W&B: offline runs that its package writes, and its API against a stand-in for the server
(not the hosted service).
"""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError, SeveralRunsError, UnreachableSourceError
from tests.trackers.conftest import CONFIG, NAN_STEP, STEPS, check_curve, loss
from tests.trackers.wandb_stand_in import KEY, StandIn

pytest.importorskip("wandb")

OFFLINE = """
    import sys
    import wandb
    sys.path.insert(0, {root!r})
    from tests.trackers.conftest import CONFIG, STEPS, loss
    with wandb.init(project="llm", id="whole", config={{}}) as run:
        run.config.update(CONFIG)
        for step in range(STEPS):
            run.log({{"train/loss": loss(step), "train/global_step": step, "text": "x" * 40, "nested": {{"a": {{"b": 1}}}}}})
            if step % 100 == 0:
                run.log({{"eval/loss": 3.0, "train/global_step": step}})
    with wandb.init(project="llm", id="own step") as run:
        for step in range(50):
            run.log({{"loss": 3.0 - step / 100}}, step=10 * step)
"""  # noqa: E501
KILLED = """
    import os, signal, sys, time
    import wandb
    run = wandb.init(project="llm", id="killed")
    for step in range(400):
        run.log({"loss": 3.0 - step / 1000, "text": "x" * 200}, step=step)
    time.sleep(2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(script, folder):
    environment = os.environ | {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
    }
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wandb")
    written = write(OFFLINE.format(root=str(Path(__file__).parents[2])), folder)
    assert written.returncode == 0, written.stderr
    return folder / "wandb"


def test_an_offline_run_is_read_whole(offline):
    (file,) = offline.glob("offline-run-*/run-whole.wandb")
    assert file.stat().st_size > 4 * 32 * 1024  # several blocks
    for name in (file, file.parent, f"{offline}:whole"):
        curve = read_run(str(name))
        check_curve(curve)
        assert "the run is finished" in curve.notes
        assert curve.label == "whole" or curve.label == "run-whole"


def test_the_folder_of_all_runs_needs_a_name(offline):
    with pytest.raises(SeveralRunsError, match="2 runs") as refused:
        read_run(str(offline))
    assert set(refused.value.names) == {f"{offline}:whole", f"{offline}:own step"}
    curve = read_run(f"{offline}:own step")
    assert curve.steps.tolist() == list(range(0, 500, 10))
    assert (
        "step is the tracker's own counter '_step': the run logged no step of its own"
        in curve.notes
    )


def test_a_killed_run_is_read_up_to_its_last_record_and_says_so(tmp_path):
    write(KILLED, tmp_path)
    curve = read_run(str(tmp_path / "wandb"))
    assert 0 < len(curve.steps) <= 400
    assert curve.completeness.gaps == 0
    assert any("its process was killed, or still writes" in note for note in curve.notes)


def test_a_package_reads_the_same_records(offline):
    """W&B's own sync reads the file that we read; its rows are counted by the package's message
    classes.
    """
    from wandb.proto import wandb_internal_pb2

    from parity.readers.trackers import wandb_file

    (file,) = offline.glob("offline-run-*/run-whole.wandb")
    rows = []
    for record in wandb_file._records(file.read_bytes(), file, []):
        message = wandb_internal_pb2.Record.FromString(record)
        if message.WhichOneof("record_type") == "history":
            rows.append(message.history.step.num)
    assert rows == list(range(STEPS + STEPS // 100))


def history():
    rows = []
    for step in range(STEPS):
        value = loss(step)
        rows.append(
            {
                "_step": len(rows),
                "train/loss": value
                if abs(value) < 1e300
                else {"nan": "NaN", "inf": "Infinity"}[repr(value)],
            }
        )
        rows[-1] |= {"train/global_step": step, "_timestamp": 1.7e9 + step, "_runtime": step}
        if step % 100 == 0:
            rows.append({"_step": len(rows), "eval/loss": 3.0, "train/global_step": step})
    return rows


def stand_in(monkeypatch, tmp_path, **options):
    """A process of its own for each server: W&B's package keeps the address and the key of its
    first call.
    """
    server = StandIn(options.pop("rows", history()), CONFIG, **options)
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    return server


def compare(*arguments):
    line = [sys.executable, "-m", "parity", "compare", *arguments]
    done = subprocess.run(
        line, check=False, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    return (
        done.returncode,
        done.stdout,
        [text for text in done.stderr.splitlines() if text.startswith("parity:")],
    )


def test_the_api_reads_a_run_whole_and_never_samples(monkeypatch, tmp_path):
    server = stand_in(monkeypatch, tmp_path)
    check_read(server)
    assert sum("HistoryPage" in query for query in server.queries) == 2  # 1,212 rows
    server.close()


def test_the_api_reads_the_parquet_file_of_a_finished_run(monkeypatch, tmp_path):
    server = stand_in(monkeypatch, tmp_path, parquet=parquet(NAN_STEP))
    check_read(server)
    server.close()
    server = stand_in(monkeypatch, tmp_path, parquet=parquet(None))
    status, _, (line,) = compare("wandb:team/llm/r1", "other=wandb:team/llm/r1")
    server.close()
    assert (status, "W&B returned 1,199 of 1,200 values of 'train/loss'" in line) == (2, True)


def parquet(nan_step):
    """W&B's export of the history: missing values are null; without `nan_step` the NaN is lost,
    too.
    """
    import pyarrow
    from pyarrow.parquet import write_table

    rows = history()
    names = sorted({name for row in rows for name in row} - {"_step"})
    values = {
        name: [None if (value := row.get(name)) is None else float(value) for row in rows]
        for name in names
    }
    if nan_step is None:
        values["train/loss"] = [None if value != value else value for value in values["train/loss"]]
    columns = {"_step": pyarrow.array([row["_step"] for row in rows], pyarrow.int64())}
    sink = pyarrow.BufferOutputStream()
    write_table(
        pyarrow.table(
            columns | {name: pyarrow.array(values[name], pyarrow.float64()) for name in names}
        ),
        sink,
    )
    return sink.getvalue().to_pybytes()


def check_read(server):
    """A process of its own reads the run; nothing that it sent may ask for a sample."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.trackers import conftest; from "
        "parity.readers import read_run; "
    )
    line = [
        sys.executable,
        "-c",
        script + "conftest.check_curve(read_run('wandb:team/llm/r1'))",
        str(Path(__file__).parents[2]),
    ]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert server.queries
    assert not [
        query for query in server.queries if re.search("sampledHistory", query, re.IGNORECASE)
    ]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"state": "running"}, 2, "the run is running"),
        ({"state": "crashed", "lost": 1}, 2, "W&B returned 1,198 of 1,200 values"),
        ({"rows": []}, 2, "history is empty"),
        ({"counted": False}, 2, "does not say how many rows"),
        ({"grows": True}, 2, "changed while it was read"),
        ({"status": 429}, 4, "HTTP 429"),
        ({"status": 503}, 4, "HTTP 503"),
        ({"status": 401}, 2, "refuses the key"),
    ],
)
def test_what_is_no_whole_run_is_one_line(monkeypatch, tmp_path, options, code, words):
    server = stand_in(monkeypatch, tmp_path, **options)
    status, out, lines = compare("wandb:team/llm/r1", "other=wandb:team/llm/r1")
    server.close()
    assert (status, out, len(lines)) == (code, "", 1)
    assert words in lines[0]


def test_an_unknown_run_a_missing_key_and_a_dead_server(monkeypatch, tmp_path):
    server = stand_in(monkeypatch, tmp_path)
    status, _, (line,) = compare("wandb:team/llm/none", "wandb:team/llm/r1")
    assert (status, "no such run" in line) == (2, True)
    monkeypatch.delenv("WANDB_API_KEY")
    status, _, (line,) = compare("wandb:team/llm/r1", "other=wandb:team/llm/r1")
    assert (status, "wandb login" in line) == (2, True)
    server.close()
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    status, _, (line,) = compare("wandb:team/llm/r1", "other=wandb:team/llm/r1")
    assert (status, "does not answer" in line) == (4, True)


def test_a_damaged_file_is_refused(offline, tmp_path):
    (file,) = offline.glob("offline-run-*/run-whole.wandb")
    copy = tmp_path / "run-whole.wandb"
    shutil.copy(file, copy)
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 1
    copy.write_bytes(data)
    with pytest.raises(ReadError, match="damaged at byte") as refused:
        read_run(str(copy))
    assert not isinstance(refused.value, UnreachableSourceError)
