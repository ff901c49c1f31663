"""The engine against a process that plays a recorded MaxText: told in full, or ended with a code
and a sentence.
"""

import contextlib
import gzip
import json
import re
import sys
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from training.engines import maxtext, maxtext_failures
from training.engines.maxtext_process import meeting_place
from training.environment.maxtext_errors import MaxTextError, MetricsGapError
from training.environment.processes import Processes, WrapperError
from training.provenance import trainer_facts
from training.spec import ArmSpec, Data
from training.step_values import DivergedError

ALONE = (1,)  # one device on one node
DATA = Path(__file__).parents[2] / "data"
CRASHES = {"PLAY_FAULT": "crashes:40"}
LOSSES = [
    json.loads(line)["learning/lm_loss"]
    for line in gzip.decompress((DATA / "maxtext_session.jsonl.gz").read_bytes()).splitlines()
]


@pytest.fixture
def train(spec, environment, tmp_path):
    """A function that trains the run; returns what it told, its notes, and what it raised."""

    def run(recorded=0, silence_seconds=60.0, changed=spec, stop_after=None, **play):
        place = maxtext.MaxTextPlace(
            folder=tmp_path / "run",
            slices=ALONE,
            resume_at_most=recorded,
            stop_after=stop_after,
            silence_seconds=silence_seconds,
        )
        steps, notes = [], []
        try:
            steps.extend(
                maxtext.train(changed, place, environment=environment | play, note=notes.append)
            )
        except (MaxTextError, DivergedError) as error:
            return steps, notes, error
        return steps, notes, None

    return run


@pytest.fixture
def evaluated(spec):
    """The run with two evaluations, of the checkpoints 40 and 80."""
    return replace(
        spec,
        schedule=replace(spec.schedule, validation_every=40),
        maxtext=replace(spec.maxtext, eval_path="/data/held_out.parquet"),
    )


@pytest.fixture
def together(job):
    """A run that two processes train."""
    options = replace(job().maxtext, hardware="gpu_multiprocess", implementation="te")
    return next(
        job(devices=2, maxtext=options, candidates=(ArmSpec(recipe="fp8_current"),)).runs()
    )[1]


def test_a_run_is_reported_in_full_while_it_trains(train):
    steps, notes, error = train(PLAY_SPEED="0.05")
    assert error is None
    assert notes == []
    assert [step.step for step in steps] == list(range(85))
    assert [step.lm_loss for step in steps] == LOSSES


def test_a_run_that_stops_early_is_complete_there_and_not_evaluated(train, evaluated):
    steps, notes, error = train(changed=evaluated, stop_after=50)
    assert (error, notes) == (None, [])
    assert [step.lm_loss for step in steps] == LOSSES[:50]


def test_a_run_that_stops_early_says_which_steps_it_lost_and_resumes(train):
    _, _, error = train(stop_after=50, PLAY_FAULT="loses:44")
    assert isinstance(error, MetricsGapError)
    again, _, error = train(stop_after=50, recorded=41)
    assert error is None
    assert again[-1].step == 49
    _, _, error = train(stop_after=50, PLAY_FAULT="ends:30")
    assert "after step 29 of 50" in str(error)


def test_an_evaluating_maxtext_loses_steps_and_says_which(train):
    stats, _, error = train(PLAY_FAULT="evaluates:20", PLAY_SPEED="0.05")
    steps = {step.step for step in stats}
    assert isinstance(error, MetricsGapError)
    assert "it was emptied" in str(error)
    lost = set(range(85)) - steps
    assert lost
    assert f"lost {len(lost)} steps" in str(error)


@pytest.mark.parametrize(
    ("fault", "code", "message", "transient"),
    [
        (
            "crashes:0",
            "MAXTEXT_CRASHED",
            "before its first step: ValueError: the recipe asks for what is not there; the last",
            False,
        ),
        ("crashes:40", "MAXTEXT_CRASHED", "status 1 after step 39 of 85", True),
        (
            "memory:40",
            "OUT_OF_MEMORY",
            "ran out of memory after step 39.*reduce data.batch_size",
            False,
        ),
        ("killed:40", "MAXTEXT_CRASHED", "killed by signal 9 .*if memory ran out", True),
        (
            "ends:40",
            "MAXTEXT_ENDED_EARLY",
            r"status 0 after step 39 of 85; did its data end\?. The run is judged as of its last",
            False,
        ),
        (
            "exhausts:40",
            "MAXTEXT_ENDED_EARLY",
            "You may have run out of training data.*or plan fewer steps; the last 50 lines of its",
            False,
        ),
        ("exhausts:0", "MAXTEXT_CRASHED", "status 0 before its first step: You may have", False),
        ("reads:40", "MAXTEXT_CRASHED", "stopped after step 39 of 85: `next.*OSError", True),
        ("reads:0", "MAXTEXT_CRASHED", "stopped before its first step: `next.*OSError", False),
        ("terminates:40", "MAXTEXT_CRASHED", "told to stop after step 39 of 85: Job rece", True),
        ("garbage:40", "METRICS_GARBAGE", "not a record", False),
        ("contradicts:40", "METRICS_GARBAGE", "step 40 has lm_loss 1.5", False),
        ("loses:40", "METRICS_GAP", "lost 3 steps that were trained: 40-42", False),
        (
            "stops:40",
            "METRICS_STOPPED",
            "ends at step 39, and MaxText's log also shows 40-84",
            False,
        ),
    ],
)
def test_what_goes_wrong_has_a_code_and_a_sentence(train, fault, code, message, transient):
    steps, _, error = train(PLAY_FAULT=fault)
    assert error.code == code
    assert error.transient is transient
    assert re.search(message, str(error), re.DOTALL)
    assert [step.lm_loss for step in steps if step.step < int(fault.split(":")[1])] == LOSSES[
        : int(fault.split(":")[1])
    ]


@pytest.mark.parametrize(
    ("fault", "code", "message", "transient"),
    [
        ("no parameters", "MAXTEXT_CRASHED", "wrote no checkpoint of step 0", False),
        (
            "parameters crash",
            "MAXTEXT_CRASHED",
            "while it made the parameters of step 0: ValueError: no such recipe; the last",
            False,
        ),
        (
            "parameters hang",
            "MAXTEXT_HUNG",
            "wrote nothing for 2 s while it made the parameters of step 0 and was killed",
            True,
        ),
    ],
)
def test_parameters_of_step_0_that_are_not_made_are_an_error(
    train, fault, code, message, transient
):
    steps, _, error = train(silence_seconds=2.0 if transient else 60.0, PLAY_FAULT=fault)
    assert steps == []
    assert (error.code, error.transient) == (code, transient)
    assert message in str(error)


def test_a_diverged_run_is_reported_up_to_its_nan(train):
    steps, _, error = train(PLAY_FAULT="diverges:40")
    assert (error.code, error.step) == ("DIVERGED", 40)
    assert [step.lm_loss for step in steps[:40]] == LOSSES[:40]
    assert steps[40].lm_loss != steps[40].lm_loss


def test_a_hanging_process_is_killed_and_named(train):
    steps, _, error = train(silence_seconds=4.0, PLAY_FAULT="hangs:10")
    assert len(steps) == 10
    assert (error.code, error.transient) == ("MAXTEXT_HUNG", True)
    assert "after step 9 of 85 and was killed as hung" in str(error)
    assert "completed step: 9," in str(error)


def test_a_hanging_evaluation_is_killed_and_the_training_stays_reported(train, evaluated):
    steps, _, error = train(changed=evaluated, silence_seconds=5.0, PLAY_FAULT="evaluation hangs")
    assert [step.lm_loss for step in steps] == LOSSES
    assert (error.code, error.transient) == ("MAXTEXT_HUNG", False)
    assert "while it evaluated step 40 and was killed as hung" in str(error)
    assert "restored the checkpoint" in str(error)


def test_an_evaluation_that_a_crash_broke_off_is_made_by_the_next_attempt(
    evaluated, environment, tmp_path
):
    run = tmp_path / "run"
    (run / "run" / "checkpoints" / "80" / "items").mkdir(parents=True)
    (run / "evaluation" / "checkpoints" / "40" / "items").mkdir(parents=True)
    heard = []
    place = maxtext.MaxTextPlace(folder=run, slices=ALONE, resume_at_most=85)
    steps = maxtext.train(
        evaluated, place, environment=environment, validated=lambda step, _: heard.append(step)
    )
    assert [step.step for step in steps] == [81, 82, 83, 84]
    assert heard == [40, 80]


def test_of_several_processes_one_reports_and_the_others_take_part(together, environment, tmp_path):
    by_process = [
        list(maxtext.train(together, _part(tmp_path, number), environment=environment))
        for number in range(2)
    ]
    assert [len(steps) for steps in by_process] == [85, 0]
    for name in ("maxtext.log", "maxtext-1.log"):
        log = (tmp_path / name).read_text()
        assert "JAX_COORDINATOR_ADDRESS=first:8476" in log
        assert log.count("completed step:") == 85


@pytest.mark.parametrize(
    ("seen", "own"),
    [({"CUDA_VISIBLE_DEVICES": "3"}, {"JAX_LOCAL_DEVICE_IDS": "0"})]
    + [({"CUDA_VISIBLE_DEVICES": seen}, {}) for seen in ("", "0,1")]
    + [({}, {})]
    + [({"CUDA_VISIBLE_DEVICES": "3", "JAX_LOCAL_DEVICE_IDS": "1"}, {"JAX_LOCAL_DEVICE_IDS": "1"})],
)
def test_a_process_that_sees_one_gpu_takes_that_one(seen, own):
    process = Processes(number=1, count=2, coordinator="first:8476")
    met = meeting_place(seen, process, "gpu_multiprocess")
    assert met == seen | own | {"JAX_COORDINATOR_ADDRESS": "first:8476"}


def test_processes_without_gpus_meet_as_maxtext_does_on_processors():
    process = Processes(number=1, count=2, coordinator="first:8476")
    assert meeting_place({"HOME": "/"}, process, "cpu") == {
        "HOME": "/",
        "JAX_COORDINATOR_ADDRESS": "first",
        "JAX_PROCESS_COUNT": "2",
        "PROCESSES_IN_JOB": "2",
        "JOB_INDEX": "0",
        "JOB_COMPLETION_INDEX": "1",
    }


def test_processes_that_trained_together_evaluate_together(evaluated, environment, tmp_path):
    run = replace(evaluated, devices=2)
    told, others = [], []

    def first():
        place = _part(tmp_path, 0)
        for _ in maxtext.train(
            run, place, environment=environment, validated=lambda step, _: told.append(step)
        ):
            pass

    def second():
        others.extend(maxtext.train(run, _part(tmp_path, 1), environment=environment))

    (tmp_path / "to-evaluate.json").write_text("[7]")  # of an earlier attempt
    threads = [threading.Thread(target=part) for part in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (told, others) == ([40, 80], [])
    # its last log is that of an evaluation
    assert "completed step:" not in (tmp_path / "maxtext-1.log").read_text()


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        (
            {},
            {"coordinator": ""},
            "PARITY_COORDINATOR is '', expected host:port of the first of 2 processes of MaxText",
        ),
        (
            {"hardware": "gpu"},
            {},
            "maxtext.hardware is gpu, expected gpu_multiprocess: the wrapper started 2 processes",
        ),
    ],
)
def test_processes_that_could_not_train_together_are_refused(
    together, environment, tmp_path, changes, place, message
):
    run = replace(together, maxtext=replace(together.maxtext, **changes))
    with pytest.raises(WrapperError, match=message):
        next(maxtext.train(run, _part(tmp_path, 1, **place), environment=environment))


def test_a_process_that_only_takes_part_ends_with_its_maxtext(
    together, environment, tmp_path, monkeypatch
):
    monkeypatch.setattr(maxtext_failures, "WAIT_SECONDS", 0.0)
    with pytest.raises(MaxTextError, match=r"status 1 .*\(log .*maxtext-1\.log\)") as raised:
        next(maxtext.train(together, _part(tmp_path, 1), environment=environment | CRASHES))
    assert raised.value.transient


def test_the_first_process_tells_which_other_failed(together, environment, tmp_path):
    told = environment | {"PLAY_SPEED": "1.0"}

    def take_part():
        with contextlib.suppress(MaxTextError):
            next(maxtext.train(together, _part(tmp_path, 1), environment=environment | CRASHES))

    steps = maxtext.train(together, _part(tmp_path, 0), environment=told)
    next(steps)
    other = threading.Thread(target=take_part)
    other.start()
    with pytest.raises(MaxTextError, match=r"process 1: MaxText ended with status 1"):
        deque(steps, maxlen=0)
    other.join()


def _part(folder, number, coordinator="first:8476"):
    return maxtext.MaxTextPlace(
        folder=folder,
        slices=ALONE,
        processes=Processes(number=number, count=2, coordinator=coordinator),
    )


def test_a_run_goes_on_after_the_newest_checkpoint_that_the_record_covers(train, tmp_path):
    checkpoints = tmp_path / "run" / "run" / "checkpoints"
    for step in (10, 20, 30):
        (checkpoints / str(step)).mkdir(parents=True)
    steps, _, error = train(recorded=25)
    assert error is None
    assert [step.step for step in steps] == list(range(21, 85))
    assert sorted(folder.name for folder in checkpoints.iterdir()) == ["10", "20"]


def test_data_whose_place_is_not_saved_is_trained_anew(train, spec, tmp_path):
    checkpoint = tmp_path / "run" / "run" / "checkpoints" / "10"
    checkpoint.mkdir(parents=True)
    steps, _, error = train(recorded=50, changed=replace(spec, data=Data(source="hf", path="c4")))
    assert error is None
    assert steps[0].step == 0
    assert not checkpoint.exists()


def test_the_manifest_proves_that_arms_differ_in_quantization_alone(job, environment):
    manifests = [maxtext.manifest(run, ALONE, environment) for _, run in job().runs()]
    common = [
        {name: value for name, value in manifest.items() if not name.startswith("maxtext.arm.")}
        for manifest in manifests
    ]
    assert all(facts == common[0] for facts in common)
    assert (
        manifests[0]["maxtext.arm.bf16"]
        == "quantization= remat_policy=full first_parameters=loaded"
    )
    assert (
        manifests[2]["maxtext.arm.fp8_delayed"]
        == "quantization=fp8 remat_policy=full first_parameters=drawn"
    )
    assert common[0]["maxtext.version.maxtext"] == "0.2.5"
    other = job(maxtext=replace(job().maxtext, packing=False))
    assert (
        maxtext.manifest(next(other.runs())[1], ALONE, environment)["maxtext.command_sha256"]
        != common[0]["maxtext.command_sha256"]
    )


def test_what_a_worker_registers_changes_with_its_maxtext(tmp_path):
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("maxtext-0.2.5", "jax-0.12.0.1", "requests-2.0"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    facts = trainer_facts({"PARITY_MAXTEXT_PYTHON": str(tmp_path / "bin" / "python")})
    versions = {
        name: value for name, value in facts.items() if name.startswith("version.maxtext-python.")
    }
    assert versions == {
        "version.maxtext-python.maxtext": "0.2.5",
        "version.maxtext-python.jax": "0.12.0.1",
    }


def test_other_data_has_another_digest(spec, tmp_path):
    before = maxtext.data_digest(spec)
    (tmp_path / "train.parquet").write_bytes(b"others")
    assert maxtext.data_digest(spec) != before


def test_a_digest_says_whether_it_was_made_from_names_alone(spec, monkeypatch):
    assert re.fullmatch("[0-9a-f]{64}", maxtext.data_digest(spec))
    bucket = replace(spec, data=replace(spec.data, path="gs://bucket/c4/*.array_record"))
    assert re.fullmatch("named:[0-9a-f]{64}", maxtext.data_digest(bucket))
    monkeypatch.setattr(maxtext, "_HASHED_BYTES", 0)
    assert re.fullmatch("named:[0-9a-f]{64}", maxtext.data_digest(spec))


@pytest.mark.parametrize(
    ("environment", "code", "message"),
    [
        ({}, "MAXTEXT_NOT_INSTALLED", "PARITY_MAXTEXT_PYTHON is not set on this worker"),
        (
            {"PARITY_MAXTEXT_PYTHON": "/no/python"},
            "MAXTEXT_NOT_INSTALLED",
            "expected a Python that starts: .*No such file",
        ),
        (
            {"PARITY_MAXTEXT_PYTHON": "/bin/false"},
            "MAXTEXT_NOT_INSTALLED",
            "'/bin/false', expected .* starts: it ended with status 1$",
        ),
        (
            {"PARITY_MAXTEXT_PYTHON": "/bin/echo"},
            "MAXTEXT_NOT_INSTALLED",
            "'/bin/echo', expected .* starts: it did not list",
        ),
    ],
)
def test_a_worker_without_maxtext_says_so(spec, environment, code, message):
    with pytest.raises(MaxTextError, match=message) as raised:
        maxtext.manifest(spec, ALONE, environment)
    assert raised.value.code == code


def test_a_python_without_maxtext_and_a_wrong_version_are_refused(
    spec, tmp_path, player, monkeypatch
):
    with pytest.raises(MaxTextError, match="has no package maxtext"):
        maxtext.manifest(spec, ALONE, {"PARITY_MAXTEXT_PYTHON": sys.executable})
    monkeypatch.setenv("PLAY_VERSION", "0.1.1")
    old = tmp_path / "old"
    old.symlink_to(player)
    with pytest.raises(
        MaxTextError, match=r"has MaxText 0\.1\.1, expected 0\.2\.x from 0\.2\.5 on"
    ):
        maxtext.manifest(spec, ALONE, {"PARITY_MAXTEXT_PYTHON": str(old)})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            Data(source="grain", path="/no/such/*.parquet"),
            {},
            r"data\.path is '/no/such/\*\.parquet', .* on this worker; there is none",
        ),
        (
            Data(source="grain", path="train.parquet"),
            {},
            r"data\.path is 'train\.parquet', expected an absolute path",
        ),
        (
            Data(source="grain", path="gs://bucket/x"),
            {"eval_path": "x.parquet"},
            r"maxtext\.eval_path is 'x\.parquet', expected an abs",
        ),
        (
            Data(source="hf", path="parquet"),
            {"hf_train_files": "/no/such.parquet"},
            r"hf_train_files is '/no/such\.parquet', expected",
        ),
    ],
)
def test_data_that_is_not_there_is_named(job, environment, data, options, message):
    run = next(job(data=data, maxtext=replace(job().maxtext, **options)).runs())[1]
    with pytest.raises(MaxTextError, match=message) as raised:
        maxtext.manifest(run, ALONE, environment)
    assert raised.value.code == "DATA_NOT_FOUND"
