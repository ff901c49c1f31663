"""One stack of processes for each state folder."""

import os

import pytest

from workers.standalone.stack import StackRefusedError, _only_one


@pytest.fixture
def settings(usual_settings, tmp_path):
    return usual_settings.model_copy(update={"state_dir": tmp_path})


def test_a_second_stack_is_refused_with_the_process_and_the_page_of_the_first(settings):
    with _only_one(settings), pytest.raises(StackRefusedError) as refused, _only_one(settings):
        pass
    assert f"process {os.getpid()}, http://" in str(refused.value)
    with _only_one(settings):
        pass


def test_one_that_has_not_written_its_process_yet_is_just_starting(settings):
    with _only_one(settings):
        (settings.state_dir / "lock").write_text("")
        with pytest.raises(StackRefusedError, match="just starting"), _only_one(settings):
            pass
