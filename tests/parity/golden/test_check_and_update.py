"""Checks and updates of goldens in Python: recipes, facts, acceptance and history."""

import numpy as np
import pytest

import parity
from parity.golden.asserting import assert_golden
from parity.golden.check import RunFacts, check_golden, read_goldens
from parity.golden.formats import document, junit, markdown, text_lines
from parity.golden.golden_file import GoldenError, GoldenUpdate, read_golden
from parity.golden.update import (
    NotAcceptedError,
    Request,
    taken_gaps,
    update_golden,
)
from parity.judging.curves.curve import RECORDED_RECIPE
from parity.recipes import RecipeError
from tests.parity.golden.curves import GOLDEN, HONEST, curve

BF16 = RunFacts(recipe="bf16")
RAMP = np.minimum(1.0, np.arange(100) / 60.0)


def request(reason="image 26.06", **more) -> Request:
    return Request(reason=reason, date="2026-05-06", **more)


@pytest.fixture
def path(tmp_path) -> str:
    """The file of a golden of GOLDEN, in bf16."""
    name = str(tmp_path / "llama.golden.jsonl")
    update_golden(name, curve(GOLDEN), BF16, request(None, commit="abc"))
    return name


def checked(path, run, facts=BF16, **more):
    return check_golden(read_goldens([path]), run, facts, **more)


def test_a_run_is_fine_or_fails_the_test(path):
    assert parity.assert_golden is assert_golden
    result = assert_golden(path, {"step": np.arange(1, 101), "loss": HONEST})
    assert (result.answer, result.exit_code, result.recipe) == ("numerics only", 0, "bf16")
    with pytest.raises(AssertionError, match="WORSE"):
        assert_golden(path, curve(HONEST * (1.0 + 0.01 * RAMP)))
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(result)
    assert assert_golden([path], curve(HONEST)).answer == "numerics only"


@pytest.mark.parametrize(
    ("loss", "answer", "code"),
    [
        (GOLDEN, "identical", 0),
        (HONEST, "numerics only", 0),
        (HONEST * (1.0 + 0.01 * RAMP), "worse", 1),
        (HONEST * (1.0 - 0.01 * RAMP), "better", 1),
        (HONEST + 0.01 * (np.arange(100) < 3), "set-up changed", 1),
        (HONEST[:90], "cannot tell", 3),
    ],
)
def test_every_surface_says_the_same(path, loss, answer, code):
    result = checked(path, curve(loss, label="new"))
    assert (result.answer, result.exit_code) == (answer, code)
    text = "\n".join(text_lines(document(result)))
    assert answer.upper() in text.splitlines()[0]
    assert len(text.splitlines()) <= 9
    for said in (text, markdown(document(result)), junit(document(result)), str(document(result))):
        assert "another precision" in said or said == junit(document(result))
        assert answer in said.lower()
    assert document(result)["exit_code"] == code
    assert ("<failure" in junit(document(result))) is (code == 1)
    assert ("<error" in junit(document(result))) is (code == 3)


def test_steps_behind_the_golden_are_counted_and_not_judged(path):
    longer = np.concatenate([HONEST, np.full(20, 99.0)])
    for loss, more in ((longer, 20), (HONEST, 0)):
        result = checked(path, curve(loss))
        assert (result.answer, document(result)["unjudged_steps"]) == ("numerics only", more)
        assert ("20 steps behind" in "\n".join(text_lines(document(result)))) is (more > 0)


def test_another_recipe_is_refused_whoever_shows_it(path):
    other = "`parity compare` compares recipes"
    for run, facts in (
        (curve(HONEST), RunFacts(recipe="nvfp4")),
        (curve(HONEST, recipe="mxfp8"), RunFacts()),
        (curve(HONEST, recipe="mxfp8"), BF16),
        (curve(HONEST, context={RECORDED_RECIPE: "nvfp4"}), BF16),
        (curve(HONEST, label="llama-nvfp4"), RunFacts()),
    ):
        with pytest.raises(GoldenError, match=other):
            checked(path, run, facts)
    for run, facts in (
        (curve(HONEST), RunFacts()),
        (curve(HONEST, recipe="bf16"), RunFacts()),
        (curve(HONEST, label="llama-bf16"), RunFacts()),
        (curve(HONEST, label="llama-nvfp4"), BF16),  # the statement counts more than a name
    ):
        assert checked(path, run, facts).answer == "numerics only"
    with pytest.raises(RecipeError):
        checked(path, curve(HONEST), RunFacts(recipe="bf61"))


def test_a_golden_needs_a_recipe(tmp_path):
    name = str(tmp_path / "new.golden.jsonl")
    with pytest.raises(GoldenError, match="states the recipe"):
        update_golden(name, curve(GOLDEN), RunFacts(), request(), option="--recipe")
    with pytest.raises(GoldenError, match="expected one recipe"):
        update_golden(name, curve(GOLDEN, recipe="fp8"), BF16, request())
    written = update_golden(name, curve(GOLDEN, recipe="fp8"), RunFacts(), request())
    assert (written.golden.recipe, written.check) == ("fp8", None)


def test_digests_and_recorded_facts_decide(path):
    update_golden(
        path,
        curve(HONEST, context={"learning_rate": "0.001", "micro_batch_size": "4"}),
        RunFacts(data="sha256:a"),
        request(),
    )
    assert checked(path, curve(GOLDEN + 1e-4), RunFacts(data="sha256:b")).answer == "data changed"
    assert checked(path, curve(GOLDEN + 1e-4), RunFacts(data="sha256:a")).is_fine
    assert checked(path, curve(GOLDEN + 1e-4)).is_fine
    for context, is_fine in (
        ({"learning_rate": "0.001", "micro_batch_size": "8"}, True),
        ({"learning_rate": "0.002"}, False),
    ):
        result = checked(path, curve(GOLDEN + 1e-4, context=context))
        assert result.is_fine is is_fine


def test_wrong_statements_are_refused(path):
    for changed, fork in (("containers", None), ("container", 50)):
        with pytest.raises(GoldenError, match="changed"):
            checked(path, curve(HONEST), changed=changed, fork=fork)
    assert checked(path, curve(HONEST), fork=50).measured.first_step == 51
    with pytest.raises(GoldenError, match="goldens were given"):
        read_goldens([])


def test_goldens_of_other_steps_are_no_reruns(path, tmp_path):
    other = str(tmp_path / "other.golden.jsonl")
    update_golden(other, curve(GOLDEN, first_step=500), BF16, request())
    with pytest.raises(GoldenError, match="in common"):
        read_goldens([path, other])


def test_an_update_keeps_its_reason_and_the_answer(path):
    written = update_golden(path, curve(HONEST), RunFacts(container="26.06"), request(commit="def"))
    assert written.is_written
    first, second = read_golden(path).updates
    assert (first.answer, first.commit) == (None, "abc")
    assert (second.answer, second.reason, second.commit) == ("numerics only", "image 26.06", "def")
    assert read_golden(path).container == "26.06"


def test_an_identical_run_writes_nothing_unless_it_says_more(path):
    before = read_golden(path)
    assert not update_golden(path, curve(GOLDEN), BF16, request()).is_written
    assert read_golden(path).updates == before.updates
    assert update_golden(path, curve(GOLDEN), RunFacts(hardware="b200"), request()).is_written
    assert not update_golden(path, curve(GOLDEN), RunFacts(hardware="b200"), request()).is_written


def test_what_needs_a_person_is_written_only_if_that_answer_is_accepted(path):
    worse = curve(HONEST * (1.0 + 0.01 * RAMP))
    for accept in (None, "better", "data changed"):
        with pytest.raises(NotAcceptedError) as caught:
            update_golden(path, worse, BF16, request(accept=accept))
        assert caught.value.check.answer == "worse"
    assert len(read_golden(path).updates) == 1
    update_golden(path, worse, BF16, request(accept="worse"))
    assert read_golden(path).updates[-1].accepted
    with pytest.raises(GoldenError, match="did you mean worse"):
        update_golden(path, worse, BF16, request(accept="wors"))
    for reason in (None, "  ", "x" * 501):
        with pytest.raises(GoldenError, match="reason"):
            update_golden(path, curve(HONEST), BF16, request(reason))


def test_many_small_drifts_are_summed(path):
    """Each is 0.2 %, below the limit of 0.3 %; the second makes 0.4 %."""
    loss = HONEST * (1.0 + 0.002 * RAMP)
    update_golden(path, curve(loss), BF16, request())
    assert taken_gaps(read_golden(path).updates) == pytest.approx(0.2, abs=0.01)
    loss = loss * (1.0 + 0.002 * RAMP)
    with pytest.raises(NotAcceptedError, match="sum to"):
        update_golden(path, curve(loss), BF16, request())
    back = HONEST * (1.0 + 0.0005 * RAMP)  # and back again is no drift
    update_golden(path, curve(back), BF16, request())
    assert taken_gaps(read_golden(path).updates) == pytest.approx(0.05, abs=0.01)
    update_golden(path, curve(loss), BF16, request(accept="worse"))
    assert taken_gaps(read_golden(path).updates) == 0.0


def test_only_gaps_behind_the_last_acceptance_are_summed():
    def entry(gap, accepted=False):
        return GoldenUpdate(date="d", answer="worse", gap_pct=gap, reason="r", accepted=accepted)

    assert taken_gaps([entry(0.1), entry(1.0, True), entry(0.2), entry(-0.05)]) == pytest.approx(
        0.15
    )
    assert taken_gaps([]) == 0.0
