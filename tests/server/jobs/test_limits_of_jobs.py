"""How much one job, project, token or remark may have: each limit at its value, and one beyond."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from parity.judging.noise.noise_table import COLUMNS
from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import JobNote, new_id
from server.errors import ConflictError, InvalidError, NotFoundError, ServiceError, TooManyError
from server.jobs import (
    added_runs,
    again,
    answers,
    baselines,
    external,
    imported_noise,
    ledger,
    noise_tables,
    notes,
    pinned_question,
    projects,
    sign_offs,
    submission_limits,
    submit,
)
from server.jobs import tags as job_tags
from training.spec import ArmSpec, ShortReruns

POLICY = policy_from_mapping({"margin": "1%"})


def is_refused(call: Callable[..., object], *given: Any, **named: Any) -> bool:
    try:
        call(*given, **named)
    except (InvalidError, ConflictError, TooManyError):
        return True
    return False


@pytest.mark.parametrize(("most", "refused"), [(9, False), (8, True)])
def test_a_job_has_as_many_runs_as_is_set_its_short_reruns_too(make_job, settings, most, refused):
    """Two arms with one and four runs, and two short reruns each."""
    job = make_job(
        candidates=(ArmSpec(recipe="nvfp4", replicates=4),),
        short_reruns=ShortReruns(runs=2),
    )
    limited = settings.model_copy(update={"max_runs_per_job": most})
    assert is_refused(submission_limits.check_size, limited, job) == refused


@pytest.mark.parametrize(("steps", "refused"), [(2000, False), (2001, True)])
def test_a_run_has_as_many_steps_as_is_set(make_job, settings, steps, refused):
    limited = settings.model_copy(update={"max_steps": 2000})
    assert is_refused(submission_limits.check_size, limited, make_job(steps)) == refused


@pytest.mark.parametrize(("most", "refused"), [(2, False), (1, True)])
def test_a_sender_has_as_many_queued_runs_as_is_set(database, make_job, settings, most, refused):
    limited = settings.model_copy(update={"max_queued_runs": most})
    with database.write() as session:
        submit.submit_job(session, make_job(), POLICY, "me")
        submit.submit_job(session, make_job(name="theirs"), POLICY, "they")
        assert is_refused(submission_limits.check_queue, session, limited, "me") == refused


def test_a_project_has_as_many_runs_as_is_set(database, settings):
    limited = settings.model_copy(update={"max_runs_per_job": 2})
    with database.write() as session:
        asked = [
            is_refused(
                projects.run_of,
                session,
                limited,
                projects.RunRequest(project="p", arm="a"),
                "me",
                None,
            )
            for _ in range(3)
        ]
    assert asked == [False, False, True]


@pytest.mark.parametrize(("runs", "refused"), [(63, False), (64, True)])
def test_an_arm_gets_up_to_64_runs(runs, refused):
    open_run = SimpleNamespace(state="queued", code=None)
    arms = [SimpleNamespace(runs=[open_run] * number) for number in (1, runs)]
    job = SimpleNamespace(status="queued", is_judged=True, looked_at=None, named=None, arms=arms)
    job.runs = [run for arm in arms for run in arm.runs]
    assert (added_runs.refusal(job) is not None) == refused


@pytest.mark.parametrize("more", [0, 1])
def test_the_note_of_a_new_job_has_3000_characters_of_the_change(more):
    note = again.origin_note("j", {"a": "x" * (3000 - len('{"a": ""}') + more)})
    assert (" ..." in note) == bool(more)
    assert ('"}' in note) == (not more)


@pytest.mark.parametrize(("number", "named"), [(5, 5), (6, 6)])
def test_five_earlier_answers_are_named_and_the_others_counted(monkeypatch, number, named):
    others = [SimpleNamespace(number=at) for at in range(number)]
    monkeypatch.setattr(ledger, "same_question", lambda *_: others)
    monkeypatch.setattr(answers, "_words", lambda job: f"job {job.number}")
    found = answers.earlier_answers(None, SimpleNamespace())
    assert found[:5] == [f"job {at}" for at in range(5)]
    assert (len(found), "job 5" in found) == (named, False)


@pytest.mark.parametrize(
    ("name", "reason", "days", "refused"),
    [
        ("x" * 64, "why", 3650, False),
        ("x" * 65, "why", 3650, True),
        ("x", "w" * 1000, None, False),
        ("x", "w" * 1001, None, True),
        ("x", "", None, True),
        ("x", "why", 1e-9, False),
        ("x", "why", 0, True),
        ("x", "why", 3650.1, True),
    ],
)
def test_a_promotion_is_within_its_limits(database, name, reason, days, refused):
    """One that is within them fails later: the job does not exist."""
    with database.write() as session, pytest.raises(ServiceError) as failed:
        baselines.promote(session, name, "j", None, reason, "me", days)
    assert isinstance(failed.value, InvalidError) == refused
    assert isinstance(failed.value, NotFoundError) == (not refused)


@pytest.mark.parametrize(("new", "refused"), [(10, False), (11, True)])
def test_a_run_has_1000_columns_over_all_batches(monkeypatch, new, refused):
    monkeypatch.setattr(store, "names", lambda *_: [f"c{at}" for at in range(990)])
    columns = {f"n{at}": None for at in range(new)} | {"c0": None}
    assert (
        is_refused(external._check_columns, None, "r", "train", columns, external._MOST_COLUMNS)
        == refused
    )


@pytest.mark.parametrize("more", [0, 1])
def test_the_manifests_of_a_run_have_262_144_characters_together(more):
    old = {"a": "x" * 1000}
    new = {"b": "x" * (262_144 - 1000 - 2 + more)}
    assert is_refused(external._merged, old, new, begun=True) == bool(more)
    assert not is_refused(external._merged, old, new, begun=False)


def test_eight_values_of_a_fact_stay_and_of_nine_the_first_and_last_four():
    eight, nine = ([str(at) for at in range(number)] for number in (8, 9))
    assert external._some(eight) == eight
    assert external._some(nine) == ["0", "1", "2", "3", "…", "5", "6", "7", "8"]


def test_of_a_family_on_record_the_newest_hundred_groups_count(
    database, record_reruns, monkeypatch
):
    assert noise_tables.MOST_GROUPS == 100
    for rerun in (1, 2, 3):
        record_reruns(rerun)
    with database.read() as session:
        newest_first = noise_tables.noise_table_on_record(session).rows
        for most in (len(newest_first), len(newest_first) - 1):
            monkeypatch.setattr(noise_tables, "MOST_GROUPS", most)
            assert noise_tables.noise_table_on_record(session).rows == newest_first[:most]


@pytest.mark.parametrize(("size", "refused"), [(1000, False), (1001, True)])
def test_a_cell_of_an_imported_table_has_1000_characters(size, refused):
    cells = {"family": "f", "group": "g", "runs": "5", "mean_loss": "1.4", "sd": "0.001"}
    cells |= {"unit": "nats", "source": "s" * size}
    table = f"{','.join(COLUMNS)}\n{','.join(cells.get(column, '') for column in COLUMNS)}"
    assert is_refused(imported_noise._read, table) == refused


def test_a_hundred_characters_of_a_pinned_value_are_shown():
    hundred, more = (pinned_question._shown("x" * size) for size in (100, 101))
    assert (hundred, more) == ("x" * 100, "x" * 99 + "…")


@pytest.mark.parametrize(("number", "refused"), [(20, False), (21, True)])
def test_a_job_has_twenty_tags(number, refused):
    """The same word twice is one."""
    tags = [f"t{at}" for at in range(number)]
    assert is_refused(job_tags.checked_tags, [*tags, "t0"]) == refused


@pytest.mark.parametrize(("size", "refused"), [(64, False), (65, True)])
def test_a_tag_has_64_characters(size, refused):
    assert is_refused(job_tags.checked_tags, ["x" * size]) == refused


@pytest.mark.parametrize(("size", "refused"), [(200, False), (201, True)])
def test_a_branch_has_200_characters(size, refused):
    assert is_refused(job_tags.checked_branch, "x" * size) == refused


def test_a_text_is_measured_without_the_blanks_around_it():
    refused = [
        is_refused(notes.plain_text, "it", f" {'x' * size}\r\n", 20, 10) for size in (9, 10, 20, 21)
    ]
    assert refused == [True, False, False, True]


def test_a_job_has_500_notes(database, make_job):
    with database.write() as session:
        job = submit.submit_job(session, make_job(), POLICY)
        job.notes += [
            JobNote(id=new_id("n"), job_id=job.id, who="me", text="x", created_at=1.0)
            for _ in range(499)
        ]
        session.flush()
        asked = [is_refused(notes.add_note, session, job.id, "me", "one") for _ in range(2)]
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("days", "refused"),
    [(0, True), (1e-9, False), (90, False), (90.001, True), (float("nan"), True)],
)
def test_a_sign_off_holds_for_up_to_90_days(database, make_job, days, refused):
    """One of a job without a verdict fails later."""
    with database.write() as session:
        job = submit.submit_job(session, make_job(), POLICY)
        with pytest.raises(ServiceError) as failed:
            sign_offs.sign_off(session, job.id, "nvfp4", "me", "x" * 10, days)
    assert isinstance(failed.value, InvalidError) == refused
