"""Which comparisons are one job of a server: each field of what was compared in its turn.

What is sent makes another key, or a push that corrects it would get the job of before.
"""

import dataclasses

import numpy as np
import pytest

import parity
from parity.comparing import push
from parity.comparing.statements import InputError
from parity.judging.case import Case
from parity.judging.curves.curve import Curve, Replaced
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.policy import Amount, Policy
from tests.changed import indifferent

STEPS = np.arange(40)


def _case(**changes):
    run = {"step": STEPS, "loss": 3.0 - STEPS / 100}
    case = parity.compare(run, run | {"loss": run["loss"] + 0.01}, planned_steps=40).case
    return dataclasses.replace(case, **changes)


CASE = _case()
RUN = CASE.baseline[0]


def _sent(case):
    """The job that is submitted."""
    push.check_pushable(case)
    names = push.job_arm_names([case.baseline_name or "baseline", *case.candidates])
    return push._job(case, names)


def _key(case):
    return push._key(_sent(case), case.policy.document(), case)


def _runs(case):
    """What is sent with each run."""
    sent = (push._columns, push._manifest, push._recipe)
    runs = [run for _, _, runs in case.arms() for run in runs]
    return [[run.digest(), run.rounding, *(of(run) for of in sent)] for run in runs]


def _with(**columns):
    """The comparison with another baseline run."""
    return dataclasses.replace(CASE, baseline=[dataclasses.replace(RUN, **columns)])


def _seeded(seed):
    return [dataclasses.replace(run, seed=seed) for run in CASE.candidates["candidate"]]


# Another value of each field of a run, and whether it is sent.
RUN_FIELDS = {
    "steps": (RUN.steps * 2, True),
    "loss": (RUN.loss + 1e-12, True),
    "columns": ({"learning_rate": RUN.loss}, True),
    "context": ({**RUN.context, "engine": "other"}, True),
    "rounding": ("nearest", True),
    "recipe": ("nvfp4", True),
    "completeness": (dataclasses.replace(RUN.completeness, duplicates=1), False),
    "label": ("other", False),
    "seed": (1, False),  # a job has one
    "seed_stated": (not RUN.seed_stated, False),
    "replicate": (1, False),  # the server numbers them
    "notes": (("a note",), False),
    "replaced": (Replaced(steps=RUN.steps[:1], loss=RUN.loss[:1]), False),
}


@pytest.mark.parametrize("name", [own.name for own in dataclasses.fields(Curve)])
def test_each_field_of_a_run_that_is_sent_makes_another_job(name):
    value, is_sent = RUN_FIELDS[name]
    if name == "seed":
        case = dataclasses.replace(_with(seed=1), candidates={"candidate": _seeded(1)})
    else:
        case = _with(**{name: value})
    assert (_runs(case) != _runs(CASE)) == is_sent
    assert (_key(case) != _key(CASE)) == is_sent


@pytest.mark.parametrize("role", ["baseline", "candidate"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_corrected_rounding_of_either_arm_makes_another_job(role, rounding):
    if role == "baseline":
        corrected = _with(rounding=rounding)
    else:
        runs = [dataclasses.replace(run, rounding=rounding) for run in CASE.candidates["candidate"]]
        corrected = dataclasses.replace(CASE, candidates={"candidate": runs})
    assert _key(corrected) != _key(CASE)


def test_a_known_word_and_a_users_own_are_two_jobs():
    """`fp8` rounds to nearest by its definition; `other:fp8` may do anything."""
    known, own = _with(recipe="fp8"), _with(recipe="other:fp8")
    assert [_sent(case)["baseline"]["recipe"] for case in (known, own)] == ["fp8", "other:fp8"]
    assert _key(known) != _key(own)


def test_each_column_and_each_fact_makes_another_job():
    cases = [
        CASE,
        _with(columns={"learning_rate": RUN.loss}),
        _with(columns={"learning_rate": 2 * RUN.loss}),
        _with(columns={"validation_loss": RUN.loss}),
        _with(context={**RUN.context, "data_digest": "a"}),
        _with(context={**RUN.context, "data_digest": "b"}),
    ]
    assert len({_key(case) for case in cases}) == len(cases)


MORE = CASE.candidates["candidate"]
REFUSED = {"controls": [RUN], "shorter": [RUN], "short_reruns": {"x": [RUN]}, "evaluations": {1: 2}}
CASE_FIELDS = {
    "baseline": [dataclasses.replace(RUN, loss=RUN.loss + 1.0)],
    "candidates": {"candidate": [*MORE, *MORE]},
    "policy": Policy(margin=Amount(value=0.5, unit="nats")),
    "planned_steps": 41,
    "baseline_name": "other",
    "families": dict.fromkeys(("baseline", "candidate"), "any-decoder"),
    "layer_snr_db": {"candidate": {("fc1", "gradient nvfp4", "underflow_share"): 0.3}},
}
# The server finds each by itself, or has no use for it.
NOT_SENT = {
    "assume_complete": True,
    "layer_policy": "mlp_only",
    "noise_table": NoiseTable(()),
    "multiplicity": Multiplicity(looks=2),
    "compares": {"candidate": "commit"},
    "against": {"candidate": "baseline"},
}


@pytest.mark.parametrize("name", [own.name for own in dataclasses.fields(Case)])
def test_each_part_of_a_comparison_is_sent_refused_or_not_needed(name):
    if name in REFUSED:
        with pytest.raises(InputError, match="cannot be sent"):
            push.check_pushable(_case(**{name: REFUSED[name]}))
        return
    case = _case(**{name: (CASE_FIELDS | NOT_SENT)[name]})
    assert (_key(case) != _key(CASE)) == (name in CASE_FIELDS)


def test_names_of_arms_and_the_order_of_candidates_make_another_job():
    one, other = (dict.fromkeys(names, MORE) for names in ("ab", "ba"))
    renamed = _case(candidates={"renamed": MORE})
    cases = [CASE, renamed, _case(candidates=one), _case(candidates=other)]
    assert len({_key(case) for case in cases}) == len(cases)


@pytest.mark.parametrize("margin", ["1%", "5% tokens at 0.2 nats"])
def test_each_field_of_a_policy_makes_another_job(margin):
    policy = Policy(margin=margin)
    equal = indifferent(policy, lambda policy: _key(_case(policy=policy)))
    assert equal == ({"margin.slope"} if margin == "1%" else set())  # of tokens alone


def test_another_version_makes_another_job(monkeypatch):
    before = _key(CASE)
    monkeypatch.setattr(push, "VERSION", "another")
    assert _key(CASE) != before


def test_the_same_comparison_makes_the_same_job():
    assert _key(_case()) == _key(CASE)


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (["mxfp8"], "mxfp8 against fp8"),
        (["mxfp8", "my nvfp4"], "mxfp8, my nvfp4 against fp8"),
        (["a\nb"], "a_b against fp8"),
    ],
)
def test_a_pushed_job_is_called_by_its_arms(names, title):
    assert push.job_title(names, "fp8") == title


def test_the_name_of_many_arms_has_whole_names_and_how_many_others():
    names = [f"candidate{number:02d}" for number in range(30)]
    title = push.job_title(names, "fp8")
    assert 150 < len(title) <= 200
    shown, others = title.removesuffix(" others against fp8").split(" and ")
    assert shown.split(", ") == names[: 30 - int(others)]
    assert len(push.job_title(["x" * 500, "y" * 500], "z" * 500)) <= 200
