"""Which fields make another comparison, question, fingerprint, family, place of data or request.

A gate's answer is reused for an equal comparison, a curve for an equal fingerprint. Every field of
a specification has its turn, new ones too. One that may change an answer changes the key; the
others are listed here with the reason.
"""

import dataclasses

import pytest

from parity.judging.noise.noise_table import NoiseTable
from parity.judging.policy import Amount, Policy, policy_from_mapping
from server.database.tables import Baseline, Job, Run
from server.jobs import ledger, noise_tables, submit
from server.jobs.baselines import BaselineChoice, NamedBaseline
from server.jobs.data_digests import place_of
from server.jobs.fingerprint import external_fingerprint, fingerprint_of
from server.jobs.submit import JobLabels, JobSubmission, Order, arm_rows, config_hash
from server.json_digest import digest
from tests.changed import called, changed, indifferent, leaves
from training.command import Command
from training.overrides import Override
from training.spec import TRAINER_FIELDS, ArmSpec, Data, JobSpec, Model, Schedule, ShortReruns

RULE = Override(recipe="bf16", projections=("down",))
SPECS = {
    "emulated": JobSpec(
        name="job",
        baseline=ArmSpec(recipe="fp8_current", overrides=(RULE,)),
        candidates=(ArmSpec(recipe="nvfp4", overrides=(RULE,)),),
        data=Data(source="text", path="/a/corpus"),
        short_reruns=ShortReruns(),
    ),
    "command": JobSpec(
        name="job",
        engine="command",
        command=Command(launcher="ours"),
        baseline=ArmSpec(recipe="bf16", name="base", revision="a" * 40),
        candidates=(ArmSpec(recipe="bf16", name="head", revision="b" * 40),),
        schedule=Schedule(warmup_steps=0),
    ),
}
OWN = JobSpec(
    name="job",
    engine="external",
    baseline=ArmSpec(recipe="fp8_current"),
    candidates=(ArmSpec(recipe="nvfp4"),),
)
RUNS = {name: next(run for _, run in spec.runs()) for name, spec in SPECS.items()}
POLICY = Policy(margin=Amount(value=0.01, unit="relative"))
# Which model, data and step a trainer of somebody else's has, it knows alone.
ITS_OWN = {*TRAINER_FIELDS, "schedule"}
STATED = {"schedule.steps", "schedule.warmup_steps"}


def _of_no_engine(engine, value):
    """The fields that a value of this engine has not, which no key may read."""
    names = [called(path) for path in leaves(value)]
    if engine != "command":
        return {"command"}
    return {name for name in names if name.partition(".")[0] in ITS_OWN and name not in STATED}


engines = pytest.mark.parametrize("engine", SPECS)


@engines
def test_each_field_of_a_job_makes_another_comparison(engine):
    spec = SPECS[engine]
    equal = indifferent(spec, lambda spec: config_hash(spec, POLICY, "r"))
    assert equal == _of_no_engine(engine, spec)


@pytest.mark.parametrize("margin", ["1%", "5% tokens at 0.2 nats"])
def test_each_field_of_a_policy_makes_another_comparison(margin):
    policy = policy_from_mapping({"margin": margin})
    equal = indifferent(policy, lambda policy: config_hash(SPECS["emulated"], policy, "r"))
    assert equal == ({"margin.slope"} if margin == "1%" else set())  # of tokens alone


def test_a_preset_is_a_short_form_and_makes_no_other_comparison():
    preset = dataclasses.replace(SPECS["emulated"], model=Model(preset="llama3-20m"))
    again = dataclasses.replace(preset, model=Model(**dataclasses.asdict(preset.model)))
    assert config_hash(preset, POLICY, "r") == config_hash(again, POLICY, "r")


def test_revision_judge_baseline_controls_and_groups_make_another_comparison(monkeypatch):
    spec = SPECS["emulated"]

    def named(version, *controls):
        return NamedBaseline(baseline=Baseline(id=version), runs={}, controls=controls)

    def table(sd):
        return NoiseTable(({"family": "f", "sd": sd},))

    keys = [
        config_hash(spec, POLICY, "r"),
        config_hash(spec, POLICY, "s"),
        config_hash(spec, POLICY, "r", named("b1")),
        config_hash(spec, POLICY, "r", named("b2")),
        config_hash(spec, POLICY, "r", named("b1", "r1")),
        config_hash(spec, POLICY, "r", named("b1", "r2")),
        config_hash(spec, POLICY, "r", None, table("0.1")),
        config_hash(spec, POLICY, "r", None, table("0.2")),
    ]
    monkeypatch.setattr(submit, "JUDGE_VERSION", "another")
    assert len({*keys, config_hash(spec, POLICY, "r")}) == len(keys) + 1


# Looks at an equal question are counted together, so no field may make it another one that changes
# no answer.
NO_OTHER_QUESTION = {
    "name": "what it is called",
    "seed": "other runs of the same comparison",
    "gradient_accumulation": "time for memory",
    "remat": "time for memory",
    "short_reruns": "how its noise is measured",
    "family": "how its noise is known",
    "keep_checkpoints": "what is kept",
    "candidates": "each candidate has a question of its own",
    "baseline.name": "what it is called",
    "baseline.replicates": "how many runs there are",
    "candidates.0.name": "what it is called",
    "candidates.0.replicates": "how many runs there are",
    "schedule.validation_every": "what is recorded",
    "schedule.statistics_every": "what is recorded",
    "schedule.gradients_every": "what is recorded",
}


def _job(spec, policy=POLICY, **columns):
    job = Job(spec=spec.document(), engine=spec.engine, policy=policy.document(), submitted_by="me")
    job.name = spec.name
    job.arms = arm_rows(spec)
    for name, value in columns.items():
        setattr(job, name, value)
    return job


def _question(spec, policy=POLICY, **columns):
    job = _job(spec, policy, **columns)
    return digest(ledger._question(job, job.arms[1]))


@engines
def test_each_field_of_a_job_that_changes_losses_makes_another_question(engine):
    spec = SPECS[engine]
    equal = indifferent(spec, lambda spec: _question(spec) if spec.candidates else "none")
    of_reruns = {f"short_reruns.{own.name}" for own in dataclasses.fields(ShortReruns)}
    listed = {*NO_OTHER_QUESTION, *of_reruns} - {"candidates"}
    there = {*map(called, leaves(spec))}
    assert equal == listed & there | _of_no_engine(engine, spec)


def test_a_candidate_beside_it_makes_no_other_question():
    spec = SPECS["emulated"]
    more = dataclasses.replace(spec.candidates[0], name="more")
    both = dataclasses.replace(spec, candidates=(*spec.candidates, more))
    assert _question(both) == _question(spec)


def test_of_a_policy_the_name_of_the_question_makes_another_one():
    names = {called(path) for path in leaves(POLICY)}
    equal = indifferent(POLICY, lambda policy: _question(SPECS["emulated"], policy))
    assert names - equal == {"question"}


def test_a_path_and_a_name_have_one_spelling_each():
    spec = SPECS["emulated"]
    for path in ("/a//corpus", "/a/./corpus", "/b/../a/corpus"):
        data = dataclasses.replace(spec.data, path=path)
        assert _question(dataclasses.replace(spec, data=data)) == _question(spec)
    named = policy_from_mapping({"margin": "1%", "question": "driver 2"})
    hidden = policy_from_mapping({"margin": "1%", "question": "driver\u00a0\u200b 2"})
    assert _question(spec, named) == _question(spec, hidden)


def test_a_word_for_the_code_is_part_of_a_question_where_the_code_has_no_other_name():
    for spec, is_equal in ((SPECS["emulated"], True), (SPECS["command"], True), (OWN, False)):
        assert (_question(spec, revision="a") == _question(spec, revision="b")) == is_equal
        assert _question(spec, baseline_id="b1") != _question(spec)


def test_what_a_user_trains_without_a_name_is_a_question_of_who_trains_it():
    def scope(repository=None, word="", **columns):
        return ledger._scope(_job(OWN, changed_word(word), **columns), repository)

    def changed_word(word):
        return dataclasses.replace(POLICY, question=word)

    ways = [scope(), scope(submitted_by="you"), scope(name="other"), scope("a/b"), scope("a/c")]
    assert len({str(each) for each in ways}) == len(ways)
    assert scope(word="driver 2") == scope(word="driver 2", submitted_by="you") == {}
    assert ledger._scope(_job(SPECS["emulated"]), "a/b") == {}


@engines
def test_each_field_of_a_run_makes_another_fingerprint(engine):
    run = RUNS[engine]
    equal = indifferent(run, lambda run: fingerprint_of(run, {}))
    # Of a launcher's trainer the digest of its files is what counts, and not the commit.
    own = {"emulated": {"revision", "environment"}, "command": {"revision"}}
    assert equal == _of_no_engine(engine, run) | own[engine]


@engines
def test_each_recorded_fact_makes_another_fingerprint(engine):
    def key(**facts):
        return fingerprint_of(RUNS[engine], facts)

    assert len({key(), key(jax="1"), key(jax="2"), key(numpy="1")}) == 4
    assert (key(code_revision="a") == key(code_revision="b")) == (engine == "command")


def test_each_fact_of_a_users_own_run_makes_another_fingerprint():
    def key(manifest, of=OWN, **columns):
        job = _job(of)
        run = Run(seed=0, replicate=0)
        run.job, run.arm = job, job.arms[1]
        for name, value in columns.items():
            setattr(run, name, value)
        return external_fingerprint(run, manifest)

    first = key({"a": "1"})
    others = [
        key({"a": "2"}),
        key({"b": "1"}),
        key({"a": "1"}, seed=1),
        key({"a": "1"}, replicate=1),
        key({"a": "1"}, arm=_job(OWN).arms[0]),
        key({"a": "1"}, of=changed(OWN, ("schedule", "steps"))),
    ]
    assert len({first, *others}) == 1 + len(others)
    assert key({"a": "1"}) == first


# A job borrows the noise of reruns of an equal family.
NO_OTHER_FAMILY = {"name", "seed", "short_reruns", "family", "keep_checkpoints"}
READ_ONLY = {f"schedule.{each}_every" for each in ("validation", "statistics", "gradients")}


def _but_arms(spec):
    """The fields of a job that neither its family nor its weights have."""
    none = NO_OTHER_FAMILY | {"baseline", "candidates"}
    return {name for name in map(called, leaves(spec)) if name.partition(".")[0] in none}


@engines
def test_each_field_of_a_job_but_its_arms_makes_another_family(engine):
    spec = SPECS[engine]
    equal = indifferent(spec, lambda spec: noise_tables._specification_family(_job(spec)))
    assert equal == _but_arms(spec) | _of_no_engine(engine, spec)


def test_reruns_that_ship_are_those_of_equal_weights():
    spec = SPECS["emulated"]
    equal = indifferent(spec, lambda spec: noise_tables._weights_of(spec.document()))
    assert equal == _but_arms(spec) | {"command"} | READ_ONLY


@pytest.mark.parametrize("fact", ["data_digest", "device_class"])
def test_other_data_and_another_device_make_another_family(fact):
    def family(**facts):
        job = _job(SPECS["emulated"])
        manifest = {"data_digest": "d", "device_class": "cpu", "jax": "1"} | facts
        job.runs = [Run(state="finished", manifest=manifest)]
        return noise_tables.family_of(job)

    assert family() == family(jax="2")
    assert family() != family(**{fact: "other"})
    assert family(**{fact: None}) is None


def test_data_have_one_place_whatever_reads_them():
    run = RUNS["emulated"]
    equal = indifferent(run, place_of)
    assert {*map(called, leaves(run))} - equal == {"data.source", "data.path"}


def test_data_of_maxtext_are_all_that_its_digest_covers():
    run = dataclasses.replace(RUNS["emulated"])
    object.__setattr__(run, "engine", "maxtext")
    read = {f"maxtext.{name}" for name in ("tokenizer_path", "eval_path", "hf_train_files")}
    of_data = {f"data.{own.name}" for own in dataclasses.fields(Data)}
    assert {*map(called, leaves(run))} - indifferent(run, place_of) == read | of_data | {"engine"}


# A request that is sent again under its idempotency key must be the same.
WANTED = JobSubmission(
    spec=SPECS["emulated"], policy=POLICY, choice=BaselineChoice(name="fp8"), sent={"a": 1}
)
OTHERS = {
    "spec": changed(SPECS["emulated"], ("seed",)),
    "policy": changed(POLICY, ("looks",)),
    "order": Order(priority=1),
    "revision": "other",
    "choice": BaselineChoice(name="other"),
    "labels": JobLabels(tags=["other"]),
    "sent": {"a": 2},
    "repository": "a/b",
    "by_gate": True,
}
NO_OTHER_REQUEST = {
    "labels": "it is found by them",
    "sent": "the specification has it, but for the length of a user's own runs",
    "repository": "of the token, which has the key",
    "by_gate": "of the address",
}


@pytest.mark.parametrize("name", [own.name for own in dataclasses.fields(JobSubmission)])
def test_each_part_of_a_request_makes_another_one(name):
    other = dataclasses.replace(WANTED, **{name: OTHERS[name]})
    is_equal = submit._body_digest(other) == submit._body_digest(WANTED)
    assert is_equal == (name in NO_OTHER_REQUEST)


def test_each_option_of_an_order_makes_another_request():
    def key(order):
        return submit._body_digest(dataclasses.replace(WANTED, order=order))

    assert indifferent(Order(), key) == set()


def test_another_version_of_a_baseline_makes_another_request():
    other = dataclasses.replace(WANTED, choice=BaselineChoice(name="fp8", version=2))
    assert submit._body_digest(other) != submit._body_digest(WANTED)


def test_a_length_that_nobody_stated_makes_another_comparison_of_a_users_own_runs():
    unstated = dataclasses.replace(WANTED, spec=OWN, sent={"schedule": {}})
    stated = dataclasses.replace(unstated, sent={"schedule": {"steps": 1500}})
    assert submit._body_digest(unstated) != submit._body_digest(stated)
    ours = [dataclasses.replace(each, spec=WANTED.spec) for each in (unstated, stated)]
    assert submit._body_digest(ours[0]) == submit._body_digest(ours[1])
