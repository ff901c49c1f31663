"""Of several processes the first tells which one failed first, and why."""

import json
import threading
import time

import pytest

from training.engines import maxtext_failures
from training.engines.maxtext_failures import reported, write
from training.environment.maxtext_errors import (
    AbortedError,
    CrashedError,
    HungError,
    TooLittleMemoryError,
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(maxtext_failures, "WAIT_SECONDS", 0.4)


@pytest.mark.parametrize(
    "error",
    [CrashedError("was killed", transient=True), TooLittleMemoryError("has too little memory")],
)
def test_what_another_process_wrote_is_raised_with_its_code(tmp_path, error):
    with (  # noqa: PT012
        pytest.raises(type(error), match=f"process 3: {error}") as raised,
        reported(tmp_path, 4) as look,
    ):
        look()
        write(tmp_path, 3, error)
        look()
    assert (raised.value.code, raised.value.transient) == (error.code, error.transient)


def test_the_first_of_several_failures_is_told(tmp_path):
    with (  # noqa: PT012
        pytest.raises(CrashedError, match="process 3: first"),
        reported(tmp_path, 4) as look,
    ):
        write(tmp_path, 3, CrashedError("first"))
        write(tmp_path, 1, CrashedError("second"))
        look()


def test_an_abort_is_the_failure_that_led_to_it(tmp_path):
    late = threading.Timer(0.2, write, (tmp_path, 3, CrashedError("was killed")))
    with (  # noqa: PT012
        pytest.raises(CrashedError, match="process 3: was killed"),
        reported(tmp_path, 4),
    ):
        late.start()
        raise AbortedError("was killed by signal 6")


@pytest.mark.parametrize("error", [AbortedError("signal 6"), CrashedError("status 1")])
@pytest.mark.parametrize("processes", [1, 4])
def test_a_crash_of_its_own_stays_where_no_other_process_failed(tmp_path, error, processes):
    write(tmp_path, 2, AbortedError("signal 6"))
    with pytest.raises(type(error), match=str(error)), reported(tmp_path, processes):
        raise error


def test_failures_of_an_earlier_attempt_are_over(tmp_path):
    write(tmp_path, 3, CrashedError("was killed"))
    with reported(tmp_path, 4) as look:
        look()


def test_one_process_alone_has_no_others(tmp_path):
    later = {"at": time.time() + 60, "code": "MAXTEXT_CRASHED", "message": "", "transient": True}
    (tmp_path / "failure-1.json").write_text(json.dumps(later))
    with reported(tmp_path, 1) as look:
        look()


def test_other_errors_are_the_first_processs_own(tmp_path):
    with (  # noqa: PT012
        pytest.raises(HungError),
        reported(tmp_path, 4),
    ):
        write(tmp_path, 3, CrashedError("was killed"))
        raise HungError("wrote nothing")
