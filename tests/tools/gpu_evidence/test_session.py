"""What a session does with its steps: each ends in one result, whatever happens to it."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from tests.tools.gpu_evidence.conftest import step
from tools.gpu_evidence.budget import SessionBudget
from tools.gpu_evidence.steps import Step, StepSize
from tools.gpu_evidence.summary import MOST_LINES

SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(3600)"


class Clock:
    """A clock that runs only when the test moves it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def outcomes(folder):
    """Outcome and reason by step, from the files."""
    written = [json.loads(path.read_text()) for path in sorted(folder.path.glob("*.json"))]
    return {result["step"]: (result["outcome"], result["reason"]) for result in written}


def result_of(folder, name):
    return json.loads(next(folder.path.glob(f"*-{name}.json")).read_text())


def test_every_step_ends_in_a_result_with_the_machine_and_the_command(session):
    made, folder = session(step("fine", "print('a figure')"))
    assert made.run() == 0
    assert outcomes(folder) == {"device": ("done", ""), "fine": ("done", "")}
    fine = result_of(folder, "fine")
    assert fine["machine"] == {
        "device": "NVIDIA H200",
        "driver": "580.1",
        "versions": {"python": "3.12.3", "jax": "0.11.2"},
    }
    assert fine["command"][:2] == [sys.executable, "-c"]
    assert fine["facts"]["lines"] == ["a figure"]
    assert not fine["rehearsal"]


def test_a_failure_keeps_its_first_fifty_lines_and_the_next_step_is_begun(session):
    made, folder = session(
        step("broken", "print('\\n'.join(map(str, range(80))))\nraise SystemExit(4)"), step("next")
    )
    assert made.run() == 1
    broken = result_of(folder, "broken")
    assert broken["first_lines"] == [str(line) for line in range(50)]
    assert broken["reason"] == "status 4: 79"
    assert outcomes(folder)["next"] == ("done", "")


def test_a_status_that_means_a_refusal_is_no_failure(session):
    made, folder = session(
        step("refused", "print('no torch here')\nraise SystemExit(2)", refusal=2),
        step("bar", "raise SystemExit(1)", fine=(0, 1)),
    )
    assert made.run() == 0
    assert outcomes(folder) == {
        "device": ("done", ""),
        "refused": ("not begun", "status 2: no torch here"),
        "bar": ("done", ""),
    }


def test_without_its_device_nothing_else_begins(session):
    made, folder = session(step("pair", "raise SystemExit('it was begun')"))
    made._steps = (step("device", "print('jax sees no GPU')\nraise SystemExit(2)"), made._steps[1])
    assert made.run() == 2
    assert outcomes(folder) == {
        "device": ("failed", "status 2: jax sees no GPU"),
        "pair": ("not begun", "there is no such device; see the first step"),
    }


def test_what_cannot_end_in_the_time_that_is_left_is_not_begun(session):
    made, folder = session(
        step("long", "raise SystemExit('it was begun')", seconds=601),
        step("short", seconds=500),
        budget=SessionBudget(10, Clock()),
    )
    assert made.run() == 0
    assert outcomes(folder) == {
        "device": ("done", ""),
        "long": ("not begun", "it needs 601 s, and 570 s are left"),
        "short": ("done", ""),
    }


def test_the_largest_size_that_fits_is_run(session):
    sizes = tuple(
        StepSize(seconds=seconds, arguments=(str(seconds),)) for seconds in (700, 400, 300)
    )
    chosen = Step(
        name="pair", module=("-c", "import sys; print(sys.argv[1:])"), sizes=sizes, facts="lines"
    )
    made, folder = session(chosen, budget=SessionBudget(10, Clock()))
    assert made.run() == 0
    assert result_of(folder, "pair")["facts"]["lines"] == ["['400']"]


def test_a_step_that_hangs_is_killed_at_its_limit_and_its_facts_are_kept(session):
    hangs = "import sys, time\nopen(sys.argv[-1], 'w').write('{\"found\": 1}')\ntime.sleep(3600)"
    made, folder = session(step("hangs", hangs, limit=3.0, facts="file"), step("next"))
    assert made.run() == 1
    assert outcomes(folder)["hangs"] == ("failed", "it ran 3 s, its limit, and was killed")
    assert result_of(folder, "hangs")["facts"] == {"found": 1}
    assert outcomes(folder)["next"] == ("done", "")


def test_steps_run_beside_one_in_the_background_and_those_that_measure_wait_for_it(
    session, tmp_path
):
    mark = tmp_path / "mark"
    waits = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.02)"
    made, folder = session(
        step("pair", waits, background=True),
        step("beside", f"open({str(mark)!r}, 'w')"),
        step("speeds", alone=True),
    )
    assert made.run() == 0
    assert [result.step for result in folder.results] == ["device", "beside", "pair", "speeds"]


def test_a_measurement_is_not_begun_beside_what_does_not_end(session):
    clock = Clock()
    made, folder = session(
        step("pair", SLEEP, background=True),
        step("speeds", alone=True, seconds=500),
        budget=SessionBudget(10, clock),
    )
    # 470 s are left, in which it cannot end
    threading.Timer(1.0, lambda: setattr(clock, "now", 100.0)).start()
    threading.Timer(4.0, lambda: setattr(clock, "now", 600.0)).start()
    assert made.run() == 1
    assert outcomes(folder)["speeds"] == (
        "not begun",
        "pair still runs, beside which no speed can be measured",
    )
    assert outcomes(folder)["pair"] == ("failed", "the time of the session was over")


def test_a_patient_step_begins_beside_the_other_when_it_can_only_just_end(session):
    clock = Clock()
    made, folder = session(
        step("pair", SLEEP, background=True),
        step("te_pair", patient=True, seconds=480),
        budget=SessionBudget(10, clock),
    )
    threading.Timer(1.0, lambda: setattr(clock, "now", 80.0)).start()  # 490 s are left
    threading.Timer(6.0, lambda: setattr(clock, "now", 600.0)).start()
    assert made.run() == 1
    assert outcomes(folder)["te_pair"] == ("done", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_ends_what_runs_and_lists_the_rest(session, number, capsys):
    made, folder = session(
        step("first"), step("pair", SLEEP, background=True), step("long", SLEEP), step("never")
    )

    def interrupt():
        log = folder.path / "long.log"
        while not (log.exists() and log.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    assert made.run() == 128 + number
    reason = f"{number.name} ended the session"
    assert outcomes(folder) == {
        "device": ("done", ""),
        "first": ("done", ""),
        "long": ("failed", reason),
        "pair": ("failed", reason),
        "never": ("not begun", reason),
    }
    text = (folder.path / "summary.txt").read_text()
    assert text.startswith(f"GPU evidence: cut by {number.name}")
    assert text in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_rehearsal_says_so_everywhere(session):
    made, folder = session(step("fine"), rehearsal=True)
    assert made.run() == 0
    assert all(json.loads(path.read_text())["rehearsal"] for path in folder.path.glob("*.json"))
    assert "REHEARSAL" in (folder.path / "summary.txt").read_text()


def test_the_summary_has_forty_lines_at_most(session):
    wordy = "print('\\n'.join(f'figure {number}' for number in range(9)))"
    made, folder = session(*(step(f"step-{number}", wordy) for number in range(30)))
    assert made.run() == 0
    lines = (folder.path / "summary.txt").read_text().splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-1] == f"... {3 + 30 * 5 - MOST_LINES + 1} more lines are in the JSON files"


def test_no_step_sees_a_processor_that_jax_could_train_on(session):
    made, folder = session(
        step(
            "platform",
            "import os; print(os.environ['JAX_PLATFORMS'], [n for n in os.environ if "
            "n.startswith('PARITY_')])",
        )
    )
    assert made.run() == 0
    assert result_of(folder, "platform")["facts"]["lines"] == ["cuda []"]
