"""parity.Run against a real server, over a real socket: outages, kills and second trainers
included.
"""

import dataclasses
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import parity
from parity import cli
from parity.client.rest import Client
from parity.client.run import RunError
from server.database.metrics import store
from server.database.tables import Attempt
from server.database.tables import Run as RunRow
from server.jobs.submit import submit_job
from training.spec import ArmSpec

pytestmark = pytest.mark.filterwarnings("error")

FAST = {"flush_seconds": 0.05, "finish_seconds": 20.0}


@pytest.fixture
def run(database, make_job):
    """The id of a run that awaits its trainer."""
    spec = make_job(
        100,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        return submit_job(session, spec, parity.policy_from_mapping({"margin": "1%"})).runs[0].id


def _read(database, run, kind="train"):
    with database.read() as session:
        return store.read(session, run, kind)


def _state(database, run):
    with database.read() as session:
        row = session.get_one(RunRow, run)
        return row.state, row.attempt_number, row.code


class _JaxLike:
    """An array that is read late, as a jax array is."""

    def __init__(self, value):
        self._value = value

    def block_until_ready(self):
        return self

    def __float__(self):
        if self._value is None:
            raise RuntimeError("Array has been deleted")
        return self._value


def test_a_script_logs_and_everything_arrives(served, database, run, tmp_path):
    losses = [3.0, math.nan, math.inf, np.float32(0.1), np.array(2.5), _JaxLike(1.5), 1]
    with parity.Run(
        run,
        server=served,
        recipe="fp8_current",
        manifest={"gpu": 8},
        folder=tmp_path,
        strict=True,
        **FAST,
    ) as logger:
        for step, loss in enumerate(losses):
            logger.log(step=step, loss=loss, grad_norm=0.5, tokens=None)
        logger.log(step=3, validation_loss=2.0)
        logger.log(step=4, loss=None, validation_loss=2.1)
        logger.log(np.int64(7), loss=1.0, validation_loss=1.9)
        logger.log(step=8, loss=None)
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(9))
    assert columns["lm_loss"].tobytes() == np.array([*map(float, losses), 1.0, math.nan]).tobytes()
    assert columns["grad_norm"][:7].tolist() == [0.5] * 7
    assert math.isnan(columns["grad_norm"][7])
    steps, validation = _read(database, run, "validation")
    assert (steps.tolist(), validation["loss"].tolist()) == ([3, 4, 7], [2.0, 2.1, 1.9])
    assert _state(database, run) == ("finished", 1, None)
    with database.read() as session:
        manifest = session.get_one(RunRow, run).manifest
    assert manifest["gpu"] == "8"
    assert manifest["version.python"] == sys.version.split()[0]
    assert not list((tmp_path / run).glob("*.jsonl"))


LAYER_ROWS = "layer,operand,step,snr_db\nlayers.0.fc1,grad,0,12\nlayers.0.fc1,grad,2,11\n"


def test_statistics_by_layer_are_sent_when_the_run_ends(served, database, run, tmp_path):
    """The file is written while the run trains; an outage before its end sends it later."""
    layers = tmp_path / "layers.csv"
    with parity.Run(
        run, server=served, folder=tmp_path, strict=True, layers=layers, **FAST
    ) as logger:
        logger.log(step=0, loss=2.0)
        layers.write_text(LAYER_ROWS)
        logger.log(step=2, loss=1.9)
    steps, columns = _read(database, run, "layers")
    assert steps.tolist() == [0, 2]
    assert {name: values.tolist() for name, values in columns.items()} == {
        "layers.0.fc1/grad/snr_db": [12.0, 11.0]
    }
    assert _state(database, run)[0] == "finished"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (None, "no such file; check the path"),
        ("layer,operand,snr_db\nlayers.0.fc1,grad,good\n", "row 2: snr_db is 'good'"),
        ("layer,operand,snr_db\nfc 1,grad,9\n", "fc 1/grad/snr_db"),  # the server refuses it
    ],
)
def test_a_run_whose_statistics_cannot_be_sent_ends_all_the_same(
    served, database, run, tmp_path, caplog, rows, why
):
    layers = tmp_path / "layers.csv"
    if rows is not None:
        layers.write_text(rows)
    with parity.Run(
        run, server=served, folder=tmp_path, strict=True, layers=layers, **FAST
    ) as logger:
        logger.log(step=0, loss=2.0)
    assert why in caplog.text
    assert _state(database, run)[0] == "finished"
    assert len(_read(database, run, "layers")[0]) == 0


def test_a_spool_that_is_sent_later_takes_its_statistics_along(
    served, database, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with parity.Run(None, folder="spool", offline="night", layers="layers.csv", **FAST) as logger:
        logger.log(step=0, loss=2.0)
    (tmp_path / "layers.csv").write_text(LAYER_ROWS)
    monkeypatch.chdir("/")
    call = ["resend", str(tmp_path / "spool"), "--as-run", run, "--server", served]
    with pytest.raises(SystemExit) as ended:
        cli.main(call)
    assert ended.value.code == 0
    assert _read(database, run, "layers")[0].tolist() == [0, 2]
    assert _state(database, run)[0] == "finished"


def test_an_outage_loses_nothing(served, database, run, tmp_path, monkeypatch):
    """The server is away at first and breaks off twice in the middle; even an answer that was lost
    is no loss.
    """
    from parity.client import recorder
    from parity.client.rest import ClientError, UnreachableError

    monkeypatch.setattr(
        recorder, "PAUSES", dataclasses.replace(recorder.PAUSES, first_seconds=0.02)
    )
    append, attach, calls = Client.append, Client.attach, []

    def flaky(call):
        def once_in_a_while(self, *arguments, **more):
            calls.append(call.__name__)
            if len(calls) % 3 == 1:
                raise UnreachableError("the cable is out")
            answer = call(self, *arguments, **more)
            if len(calls) % 3 == 2:
                raise ClientError(503, "served, but the answer was lost", retry_after=0.01)
            return answer

        return once_in_a_while

    monkeypatch.setattr(Client, "append", flaky(append))
    monkeypatch.setattr(Client, "attach", flaky(attach))
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        for step in range(100):
            logger.log(step=step, loss=1.0 / (step + 1))
            time.sleep(0.004)
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(100))
    assert columns["lm_loss"].tolist() == [1.0 / (step + 1) for step in range(100)]
    assert len(calls) >= 6  # an attach and an append, each of which fails twice


def test_the_end_of_a_run_does_not_sit_out_a_long_pause(
    served, database, run, tmp_path, monkeypatch, caplog
):
    """A server that was away for long is asked rarely; when the run ends, it is asked at once, and
    then every few seconds.
    """
    from parity.client import recorder
    from parity.client.rest import UnreachableError

    monkeypatch.setattr(
        recorder,
        "PAUSES",
        dataclasses.replace(recorder.PAUSES, first_seconds=600.0, longest_seconds=600.0),
    )
    monkeypatch.setattr(recorder, "_CLOSING_SECONDS", 0.05)
    attach, tries = Client.attach, []

    def lost(self, *arguments, **more):
        tries.append(arguments)
        if len(tries) < 4:
            raise UnreachableError("the cable is out")
        return attach(self, *arguments, **more)

    monkeypatch.setattr(Client, "attach", lost)
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        logger.log(step=0, loss=1.0)
        while "saved locally" not in caplog.text:
            time.sleep(0.01)
    assert len(tries) == 4
    assert _read(database, run)[0].tolist() == [0]
    assert "the server is still away" in caplog.text


_SCRIPT = """
import sys, time, parity
run = parity.Run(sys.argv[1], server=sys.argv[2], folder=sys.argv[3], flush_seconds=0.05)
for step in range(int(sys.argv[4]), int(sys.argv[6]) + 1):
    run.log(step=step, loss=float(sys.argv[5]))
time.sleep(120)
"""


def _killed(run, server, folder, first, loss, last):
    """A training process that is killed when the steps that it logged, up to `last`, are on disk;
    that step.
    """

    def on_disk():
        return sum(path.read_text().count(f'"step": {last}}}') for path in folder.rglob("*.jsonl"))

    before, deadline = on_disk(), time.monotonic() + 60
    script = [
        sys.executable,
        "-c",
        _SCRIPT,
        run,
        server,
        str(folder),
        str(first),
        str(loss),
        str(last),
    ]
    with subprocess.Popen(script) as process:
        while on_disk() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert on_disk() > before
    return last


def test_a_killed_script_is_resumed_by_the_next(served, database, run, tmp_path):
    _killed(run, served, tmp_path, 0, 1.0, 40)
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        for step in range(30, 100):
            logger.log(step=step, loss=2.0)
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(100))
    assert columns["lm_loss"].tolist() == [1.0] * 30 + [2.0] * 70
    assert _state(database, run)[:2] == ("finished", 2)
    with database.read() as session:
        first = session.get_one(Attempt, (run, 1))
        assert (first.state, first.message) == ("crashed", "the process ended without a word")


def test_what_was_logged_without_a_server_is_resent(served, database, run, tmp_path, capsys):
    away = "http://127.0.0.1:9"
    last = _killed(run, away, tmp_path, 0, 1.0, 20)
    assert _state(database, run)[0] == "awaiting_data"
    with pytest.raises(SystemExit) as ended:
        cli.main(["resend", str(tmp_path), "--server", served])
    assert ended.value.code == 0, capsys.readouterr().err
    steps = _read(database, run)[0].tolist()
    assert steps[:21] == list(range(21))
    assert steps[-1] == last
    assert _state(database, run) == ("awaiting_data", 1, "TRAINER_BROKE_OFF")
    # A spool that is older than another machine's attempt must not take the run over.
    _killed(run, away, tmp_path, 0, 5.0, 5)
    with parity.Run(
        run, server=served, folder=tmp_path / "elsewhere", strict=True, **FAST
    ) as logger:
        logger.log(step=50, loss=2.0)
        time.sleep(0.3)
        with pytest.raises(SystemExit) as ended:
            cli.main(["resend", str(tmp_path / run), "--server", served])
        assert ended.value.code == 4
        assert "a newer trainer has taken over" in capsys.readouterr().err
    assert 5.0 not in _read(database, run)[1]["lm_loss"]
    assert len(list((tmp_path / run).glob("*.refused"))) == 1


def test_going_back_to_a_checkpoint_is_a_new_attempt(served, database, run, tmp_path):
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        for first, loss in ((0, 1.0), (5, 2.0), (3, 3.0)):
            for step in range(first, 10):
                logger.log(step=step, loss=loss)
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(10))
    assert columns["lm_loss"].tolist() == [1.0] * 3 + [3.0] * 7
    assert _state(database, run)[:2] == ("finished", 3)


def test_a_second_trainer_takes_over_and_the_first_complains_once(
    served, database, run, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, "parity")
    first = parity.Run(run, server=served, folder=tmp_path / "a", **FAST)
    first.log(step=0, loss=1.0)
    while _state(database, run)[1] < 1:
        time.sleep(0.02)
    with parity.Run(run, server=served, folder=tmp_path / "b", strict=True, **FAST) as second:
        second.log(step=0, loss=2.0)
        while _state(database, run)[1] < 2:
            time.sleep(0.02)
        for step in range(1, 4):
            first.log(step=step, loss=1.0)
            time.sleep(0.1)
        first.finish()
    assert _read(database, run)[1]["lm_loss"].tolist() == [2.0]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2  # while it logged, and at its end
    assert "attempt 2 has taken over" in messages[0]


@pytest.mark.parametrize("steps", [range(1, 101), range(101), range(1, 103)])
def test_a_trainer_that_counts_from_1_or_logs_its_end_once_more_is_whole(
    served, database, run, tmp_path, caplog, steps
):
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        for step in steps:
            logger.log(step=step, loss=1.0 / (step + 1))
    assert _read(database, run)[0].tolist() == list(steps)
    assert _state(database, run) == ("finished", 1, None)
    assert not caplog.messages
    assert not [*(tmp_path / run).glob("*.jsonl"), *(tmp_path / run).glob("*.refused")]


@pytest.mark.parametrize("strict", [False, True])
def test_a_log_for_a_longer_plan_is_kept_and_its_run_ends(
    served, database, run, tmp_path, caplog, strict
):
    logger = parity.Run(run, server=served, folder=tmp_path, strict=strict, **FAST)
    for step in range(200):
        logger.log(step=step, loss=1.0 / (step + 1), validation_loss=2.0)
    if strict:
        with pytest.raises(RunError, match="plan is 100 steps"):
            logger.finish()
    else:
        logger.finish()
        assert len(caplog.messages) == 2  # when it began, and at the end
        assert all("step 126" in message for message in caplog.messages)
    (kept,) = (tmp_path / run).glob("*.refused")
    assert len(kept.read_text().splitlines()) == 1 + 200 + 1
    assert not [*(tmp_path / run).glob("*.jsonl"), *(tmp_path / run).glob("*.sent")]
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(126))
    assert columns["lm_loss"].tolist() == [1.0 / (step + 1) for step in range(126)]
    assert _read(database, run, "validation")[0].tolist() == list(range(126))
    assert _state(database, run) == ("finished", 1, "STEPS_ABOVE_PLAN")


def test_an_error_of_the_script_leaves_the_run_open(served, database, run, tmp_path):
    def train():
        with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
            logger.log(step=0, loss=1.0)
            logger.log(step=1, loss=1 / 0)

    with pytest.raises(ZeroDivisionError):
        train()
    assert _state(database, run) == ("awaiting_data", 1, "TRAINER_BROKE_OFF")


def test_mistakes_are_logged_once_and_raised_only_when_strict(
    served, database, run, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, "parity")
    bad = [
        {"step": 0},
        {"step": 0, "grad_norm": 1.0},
        {"step": -1, "loss": 1.0},
        {"step": 0.5, "loss": 1.0},
        {"step": 0, "loss": "low"},
        {"step": 0, "loss": [1.0, 2.0]},
        {"step": 0, "loss": 1.0, "a b": 1.0},
        {"step": 0, "loss": 1.0, **{f"value_{index}": 1.0 for index in range(70)}},
    ]
    with parity.Run(run, server=served, folder=tmp_path, **FAST) as logger:
        for values in bad:
            logger.log(**values)
        logger.log(step=0, loss=_JaxLike(None))
        logger.log(step=1, loss=1.0)
        logger.log(step=1, loss=1.0)
    assert _read(database, run)[0].tolist() == [1]
    assert len(caplog.records) == 2
    strict = parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST)
    for values in bad:
        with pytest.raises(RunError):
            strict.log(**values)
    with pytest.raises(RunError, match="has ended"):
        strict.finish()
    with pytest.raises(RunError, match="expected the id of a run"):
        parity.Run("mine", strict=True)


class _Broken:
    def __float__(self):
        raise RuntimeError("a tensor with 2 elements cannot be converted to a scalar")


def test_a_value_that_cannot_be_read_never_reaches_the_training(
    served, database, run, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("parity.client.recorder.describe_environment", lambda: 1 / 0)
    (tmp_path / run / "0-1.jsonl").mkdir(parents=True)  # what can't be opened is left alone
    with parity.Run(run, server=served, folder=tmp_path, **FAST) as logger:
        for step, loss in enumerate((1.0, _Broken(), 10**400, {}, 2.0)):
            logger.log(step=step, loss=loss)
    assert _read(database, run)[0].tolist() == [0, 4]
    assert "with 2 elements" in caplog.text
    assert "versions and revision are not recorded: ZeroDivisionError" in caplog.text


def test_a_run_that_can_not_begin_lets_the_training_begin(run, monkeypatch, caplog):
    def no_thread(*_arguments, **_more):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("parity.client.run.Recorder", no_thread)
    for bad in (parity.Run(run), parity.Run(run, manifest=[1]), parity.Run(5)):
        bad.log(step=0, loss=1.0)
        bad.finish()
    assert "can't start new thread" in caplog.text
    with pytest.raises(RunError, match="can't start new thread"):
        parity.Run(run, strict=True)


def test_a_full_disk_only_delays(served, database, run, tmp_path, monkeypatch):
    from parity.client import recorder

    monkeypatch.setattr(recorder, "_DISK_SECONDS", 0.02)
    write, full = os.write, []

    def half(file, content):
        if content.startswith(b'{"lm_loss"') and len(full) < 4:
            full.append(1)
            if len(full) % 2:
                return write(file, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return write(file, content)

    monkeypatch.setattr(os, "write", half)
    with parity.Run(run, server=served, folder=tmp_path, **FAST) as logger:
        for step in range(50):
            logger.log(step=step, lm_loss=1.0)
    assert full
    assert _read(database, run)[0].tolist() == list(range(50))


def test_a_spool_with_a_torn_line_is_sent_up_to_it(served, database, run, tmp_path, caplog):
    folder = tmp_path / run
    folder.mkdir()
    header = {"parity_spool": 1, "run": run, "server": served, "recipe": None, "manifest": {}}
    lines = [
        json.dumps(header),
        '{"step": 0, "loss": NaN}',
        "\x00\x00garbage",
        "5",
        '{"step": 1, "loss": 1.0}',
        '{"step": 2, "lo',
    ]
    (folder / "1-1.jsonl").write_text("\n".join(lines))
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        logger.log(step=2, loss=1.0)
    assert _read(database, run)[0].tolist() == [0, 1, 2]
    assert "2 lines could not be read" in caplog.text


_FORKS = """
import os, sys, warnings, parity
warnings.simplefilter("ignore")  # Python's own about forks beside threads, which is what is looked at
with parity.Run(sys.argv[1], server=sys.argv[2], folder=sys.argv[3], strict=True) as run:
    run.log(step=0, loss=1.0)
    if os.fork() == 0:
        run.log(step=1, loss=1.0)
        run.finish()
        sys.exit(0)
    os.wait()
    run.log(step=2, loss=1.0)
"""  # noqa: E501


def test_a_forked_child_logs_nothing(served, database, run, tmp_path):
    subprocess.run(
        [sys.executable, "-c", _FORKS, run, served, str(tmp_path)], check=True, timeout=60
    )
    assert _read(database, run)[0].tolist() == [0, 2]
    assert _state(database, run)[0] == "finished"


def _parity(words):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return ended.value.code


def _offline(folder, name, losses, recipe="fp8_current", first=0):
    with parity.Run(
        offline=name, folder=folder, recipe=recipe, server="http://127.0.0.1:9"
    ) as logger:
        for step, loss in enumerate(losses, first):
            logger.log(step=step, loss=loss)
        logger.flush()
        if first == 0:
            raise KeyboardInterrupt


def test_steps_without_a_run_are_sent_to_the_one_that_is_named(
    served, database, run, tmp_path, monkeypatch, capsys
):
    """Two attempts of one training: the first broke off, the second began at its checkpoint and
    logged two steps again.
    """
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.delenv("PARITY_RUN", raising=False)
    with pytest.raises(KeyboardInterrupt):
        _offline(tmp_path, "fp8", [3.0, 2.0, 9.0, 9.0])
    _offline(tmp_path, "fp8", [1.0, math.nan, 0.5], first=2)
    folder = tmp_path / "unnamed-fp8"
    assert _parity(["resend", str(tmp_path)]) == 2
    assert "--as-run" in capsys.readouterr().err
    assert _parity(["resend", str(folder), "--as-run", run]) == 0
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(5))
    assert columns["lm_loss"].tobytes() == np.array([3.0, 2.0, 1.0, math.nan, 0.5]).tobytes()
    assert _state(database, run) == ("finished", 2, None)
    assert not list(folder.glob("*.jsonl"))


@pytest.mark.parametrize(
    ("name", "recipe", "words"),
    [
        ("other", "fp8_current", "2 folders"),
        ("fp8", "nvfp4", "2 recipes"),
        (None, None, "was recorded for run"),
    ],
)
def test_spools_that_are_not_one_run_are_not_sent_as_one(
    run, tmp_path, capsys, name, recipe, words
):
    _offline(tmp_path, "fp8", [1.0], first=1)
    if name is None:
        parity.Run(run, folder=tmp_path, server="http://127.0.0.1:9", finish_seconds=0.3).finish()
    else:
        _offline(tmp_path, name, [1.0], recipe, first=1)
    assert _parity(["resend", str(tmp_path), "--as-run", run]) == 2
    assert words in capsys.readouterr().err


def test_a_name_that_is_no_folder_records_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("PARITY_RUN", raising=False)
    parity.Run(offline="../fp8", folder=tmp_path).log(step=0, loss=1.0)
    assert "offline is '../fp8'" in caplog.text
    assert not list(tmp_path.iterdir())
