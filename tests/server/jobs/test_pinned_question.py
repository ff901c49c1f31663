"""A pinned question: each field that a pull request changes is refused and named, or is free; and
each honest spelling is the same.
"""

import dataclasses
import json
from dataclasses import fields, is_dataclass, replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.policy import policy_from_mapping
from server.jobs.baselines import BaselineChoice
from server.jobs.pinned_fields import FREE, PARTS, PINNED_NAMES, choice
from server.jobs.pinned_question import (
    AskedQuestion,
    PinnedFileError,
    asked_by,
    differences,
    digest_of,
    read_question,
)
from training.command import Command
from training.environment.maxtext_options import MaxTextOptions
from training.later_recipe import LaterRecipe
from training.overrides import Override
from training.spec import ArmSpec, Data, JobSpec, Model, Projections, Schedule, ShortReruns
from training.switches import Switches

ARM = ArmSpec(
    recipe="nvfp4",
    name="nvfp4",
    replicates=2,
    overrides=(Override(recipe="bf16", blocks=(0,)),),
    switches=Switches(rht=False),
    then=LaterRecipe(recipe="bf16", from_step=380),
)
JOB = JobSpec(
    name="pull-request",
    baseline=ArmSpec(recipe="fp8_current", replicates=2),
    candidates=(ARM, ArmSpec(recipe="mxfp8", replicates=2)),
    schedule=Schedule(steps=400),
    short_reruns=ShortReruns(),
    family="a family",
    seed=3,
)
POLICY = policy_from_mapping({"margin": "1%", "looks": 2, "checks": ["loss", "grad_norm"]})
ASKED = AskedQuestion(
    spec=JOB,
    policy=POLICY,
    baseline=BaselineChoice(name="main", version=3),
    max_run_seconds=60.0,
    max_age_days=7.0,
)
BASE, HEAD, OTHER = "a" * 40, "b" * 40, "c" * 40


def forced(value, name, other):
    """A copy with another value of one field, whatever the rules of its class say."""
    made = object.__new__(type(value))
    for field in fields(value):
        object.__setattr__(made, field.name, getattr(value, field.name))
    object.__setattr__(made, name, other)
    return made


# Where each part stands in the question, as a path from it.
PLACES = {
    "job": ("spec",),
    "arm": ("spec", "candidates", 0),
    "switches": ("spec", "candidates", 0, "switches"),
    "then": ("spec", "candidates", 0, "then"),
    "overrides": ("spec", "candidates", 0, "overrides", 0),
    "model": ("spec", "model"),
    "data": ("spec", "data"),
    "schedule": ("spec", "schedule"),
    "projections": ("spec", "projections"),
    "maxtext": ("spec", "maxtext"),
    "short_reruns": ("spec", "short_reruns"),
    "policy": ("policy",),
    "baseline": ("baseline",),
}
FIELDS = [(part, field.name) for part in PLACES for field in fields(PARTS[part])]


def changed(whole, place, name, make):
    """The question with another value at a place."""
    if not place:
        return forced(whole, name, make(getattr(whole, name)))
    step, *rest = place
    if isinstance(step, int):
        return tuple(
            changed(each, rest, name, make) if number == step else each
            for number, each in enumerate(whole)
        )
    return forced(whole, step, changed(getattr(whole, step), rest, name, make))


def less(name, value):
    """Another value of a field, in the direction that asks for less."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {True: False, False: True, None: "another"}.get(value, f"{value}x")
    if isinstance(value, int | float):
        return value - 1 if name == "replicates" else value + 1
    if is_dataclass(value):
        first = fields(value)[0].name
        return forced(value, first, 2 * getattr(value, first) if name == "margin" else "another")
    return (*value[:-1],) if value else ("another",)


@pytest.mark.parametrize(("part", "name"), FIELDS, ids=[".".join(each) for each in FIELDS])
def test_a_change_of_any_field_is_refused_and_named_or_is_free(part, name):
    asked = changed(ASKED, PLACES[part], name, lambda value: less(name, value))
    told = differences(ASKED, asked)
    if choice(part, name).kind in ("free", "base and head"):
        assert told == []
        return
    if (part, name) == ("policy", "profile"):
        assert told == []  # the stated margin, which is the smaller, decides
        return
    assert len(told) >= 1
    assert name in told[0] or name in ("candidates", "baseline")
    assert all("\n" not in each for each in told)


@pytest.mark.parametrize(
    ("part", "name"),
    [each for each in FIELDS if choice(*each).kind not in ("free", "base and head")],
)
def test_the_digest_differs_with_each_field_that_is_pinned(part, name):
    asked = changed(ASKED, PLACES[part], name, lambda value: less(name, value))
    assert digest_of(asked) != digest_of(ASKED)


def test_each_part_of_a_question_is_tried():
    # tests/server/jobs/test_gate_attacks.py
    own_requests = {"statement", "attach", "add_run", "project"}
    assert {*PLACES, "command"} == {*PARTS} - own_requests
    assert {*FREE} | {*PINNED_NAMES} == {*PARTS, "request"}


@pytest.mark.parametrize(
    ("part", "name", "more"),
    [
        ("arm", "replicates", 3),
        ("policy", "margin", policy_from_mapping({"margin": "0.5%"}).margin),
        ("policy", "looks", 1),
        ("policy", "checks", ("loss", "grad_norm", "spikes")),
        ("policy", "profile", "fp8-grade"),
    ],
)
def test_asking_for_more_is_no_difference(part, name, more):
    asked = changed(ASKED, PLACES[part], name, lambda _: more)
    assert differences(ASKED, asked) == []
    assert differences(ASKED, asked, allowed=()) != []  # where the operator allows nothing


@pytest.mark.parametrize(
    ("seconds", "days", "words"), [(30.0, 7.0, "max_run_seconds"), (60.0, 8.0, "at most 7")]
)
def test_the_request_around_the_job_is_pinned_too(seconds, days, words):
    assert (
        words in differences(ASKED, replace(ASKED, max_run_seconds=seconds, max_age_days=days))[0]
    )
    assert differences(ASKED, replace(ASKED, max_age_days=1.0)) == []


def test_a_candidate_cannot_be_left_out_added_or_swapped():
    first, second = JOB.candidates
    for candidates in ((first,), (first, second, ArmSpec(recipe="bf16")), (second, first)):
        assert differences(ASKED, replace(ASKED, spec=replace(JOB, candidates=candidates)))


def test_nats_are_not_surely_less_than_a_share():
    asked = replace(
        ASKED, policy=replace(POLICY, margin=policy_from_mapping({"margin": "0.0001 nats"}).margin)
    )
    assert "expected at most 1 %" in differences(ASKED, asked)[0]


def test_a_profile_whose_margin_is_measured_stays():
    pinned = replace(ASKED, policy=policy_from_mapping({"profile": "noise-floor"}))
    assert differences(pinned, replace(pinned, policy=policy_from_mapping({"margin": "5%"})))
    assert not differences(
        pinned,
        replace(pinned, policy=policy_from_mapping({"margin": "5%", "profile": "noise-floor"})),
    )


def write(folder, **content):
    path = folder / "model.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_defaults_presets_and_the_order_of_keys_are_no_difference(tmp_path):
    job = {
        "name": "x",
        "baseline": {"recipe": "bf16"},
        "candidates": [{"recipe": "nvfp4"}],
        "model": {"preset": "llama3-1m"},
    }
    pinned = read_question(write(tmp_path, job=job, policy={"margin": "1 %"}))
    spelled = read_question(
        write(
            tmp_path,
            job=JobSpec(**_objects(job)).document() | {"engine": "emulated"},
            policy={"margin": "1.0%"},
        )
    )
    assert differences(pinned, spelled) == []
    assert digest_of(pinned) == digest_of(spelled)


def _objects(job):
    return {
        "name": job["name"],
        "baseline": ArmSpec(**job["baseline"]),
        "candidates": tuple(ArmSpec(**each) for each in job["candidates"]),
        "model": Model(**job["model"]),
    }


def command_job(first, second, third, **command):
    return JobSpec(
        name="x",
        engine="command",
        command=Command(launcher="loop", **command),
        schedule=Schedule(steps=1000, warmup_steps=0),
        baseline=ArmSpec(recipe="bf16", revision=first, name="base"),
        candidates=(
            ArmSpec(recipe="bf16", revision=second, name="head"),
            ArmSpec(recipe="nvfp4", revision=third, name="q"),
        ),
    )


@pytest.fixture
def by_words(tmp_path):
    """The question of a file with the words base and head for its commits."""
    job = json.loads(
        json.dumps(command_job(BASE, HEAD, HEAD, parameters={"a": 1, "b": 2}).document())
        .replace(BASE, "base")
        .replace(HEAD, "head")
    )
    return read_question(write(tmp_path, job=job, policy={"margin": "1%"}))


@pytest.mark.parametrize(
    ("commits", "same"),
    [((BASE, HEAD, HEAD), True), ((HEAD, OTHER, OTHER), True), ((BASE, HEAD, BASE), False)],
)
def test_commits_have_the_roles_of_the_file(by_words, commits, same):
    asked = replace(by_words, spec=command_job(*commits, parameters={"b": 2, "a": 1}))
    assert (differences(by_words, asked) == []) is same
    assert (digest_of(by_words) == digest_of(asked)) is same


def test_base_is_not_head(by_words):
    spec = command_job(BASE, HEAD, HEAD, parameters={"a": 1, "b": 2})
    same = forced(spec, "candidates", tuple(replace(arm, revision=BASE) for arm in spec.candidates))
    assert any(
        "expected base and head" in each
        for each in differences(by_words, replace(by_words, spec=same))
    )


@pytest.mark.parametrize("parameters", [{"a": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "rate": 0.0}])
def test_the_launchers_parameters_are_pinned(by_words, parameters):
    assert (
        "job.command.parameters"
        in differences(
            by_words, replace(by_words, spec=command_job(BASE, HEAD, HEAD, parameters=parameters))
        )[0]
    )


def test_a_default_that_is_stated_of_a_users_own_run_is_a_statement():
    job = replace(
        JOB,
        engine="external",
        short_reruns=None,
        candidates=(ArmSpec(recipe="nvfp4"),),
        schedule=Schedule(),
    )
    sent = {"name": "x", "engine": "external"}
    pinned, same = (
        asked_by(job, POLICY, sent, None),
        asked_by(job, POLICY, {**sent, "name": "y"}, None),
    )
    assert differences(pinned, same) == []
    told = differences(pinned, asked_by(job, POLICY, {**sent, "schedule": {"steps": 1500}}, None))
    assert told == ["job.schedule.steps is stated, and the pinned file leaves it out; leave it out"]
    assert differences(asked_by(job, POLICY, {**sent, "data": {"batch_size": 8}}, None), same)


@pytest.mark.parametrize(
    "content",
    [
        {"job": {"name": "x"}, "policy": {"margin": "1%"}},
        {
            "job": {
                "name": "x",
                "baseline": {"recipe": "bf16"},
                "candidates": [{"recipe": "nvfp5"}],
            },
            "policy": {"margin": "1%"},
        },
        {"job": {}, "policy": {"margin": "1"}},
        {"policy": {"margin": "1%"}},
        {"job": {}, "policy": {}, "jobs": {}},
        {
            "job": {
                "name": "x",
                "baseline": {"recipe": "bf16"},
                "candidates": [{"recipe": "nvfp4"}],
            },
            "policy": {"margin": "1%"},
            "gate": 7,
        },
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    with pytest.raises(PinnedFileError, match=r"model\.yaml"):
        read_question(write(tmp_path, **content))
    with pytest.raises(PinnedFileError, match="nothing"):
        read_question(tmp_path / "nothing.yaml")


@given(st.sampled_from(FIELDS), st.sampled_from(FIELDS))
def test_a_difference_stays_whatever_else_changes(first, second):
    """Two changes are refused wherever one of them is: nothing a contributor adds hides another
    change.
    """

    def with_change(asked, part, name):
        return changed(asked, PLACES[part], name, lambda value: less(name, value))

    one = with_change(ASKED, *first)
    if not differences(ASKED, one) or first == second or _inside(first, second):
        return
    assert differences(ASKED, with_change(one, *second))


def _inside(first, second):
    """Whether the second change replaces or reverts the value that holds the first one, or the
    other way round.
    """
    return {first[1], second[1]} & {
        "candidates",
        "switches",
        "overrides",
        "model",
        "data",
        "schedule",
        "projections",
        "maxtext",
        "short_reruns",
    }


def test_values_are_shown_on_one_line_and_short():
    asked = replace(ASKED, spec=forced(JOB, "family", "a\x1b[31m\n" + "b" * 1000))
    (told,) = differences(ASKED, asked)
    assert len(told) < 300
    assert told.isprintable()


def test_what_is_imported_here_is_what_a_question_has():
    kinds = {
        type(each) for each in (JOB.model, JOB.data, JOB.schedule, JOB.projections, JOB.maxtext)
    }
    assert kinds == {Model, Data, Schedule, Projections, MaxTextOptions}
    assert {field.name for field in dataclasses.fields(AskedQuestion)} >= {
        "spec",
        "policy",
        "baseline",
    }


def test_what_is_stated_of_own_runs_is_compared_only_where_both_are_of_own_runs():
    """Elsewhere the engine differs, which is said once and not for each fact."""
    stated = {"data": {"order": "same"}, "rounding": "nearest"}
    of_own = replace(ASKED, stated=stated)
    assert differences(ASKED, of_own) == differences(of_own, ASKED) == []
    assert len(differences(of_own, replace(ASKED, stated={"rounding": "nearest"}))) == 1
    assert len(differences(replace(ASKED, stated={}), of_own)) == 2
