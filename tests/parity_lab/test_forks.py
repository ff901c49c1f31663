"""A plan of forks says what is lacking, what it costs, and what each arm lost."""

import pytest

from parity_lab.effects import ForkArm, effect, fork_noise
from parity_lab.forks import ForkPlan, fork_plan_from, planned_forks
from parity_lab.replay import Replay
from tests.parity_lab.simulated import bit_equal

ARMS, PARENTS = ("all", "none"), ("r1", "r2", "r3")
REPLAY = Replay(run="r1", arm="baseline", first=0, steps=32)
PLAN = ForkPlan(
    parents=PARENTS,
    fork_step=600,
    fork_steps=40,
    forks=planned_forks(ARMS, PARENTS, 4),
    replays=(REPLAY,),
)


def results(gap: float) -> dict[str, object]:
    """The replay, and forks of which those of the first arm are worse by a gap in nats."""
    losses = {
        fork.key: 1.4 + 0.001 * (fork.draw % 3) + gap * (fork.arm == "all") for fork in PLAN.forks
    }
    return {REPLAY.key: bit_equal(32), **losses}


def test_no_two_arms_share_random_numbers_and_no_two_forks_a_key():
    assert len({fork.key for fork in PLAN.forks}) == len(PLAN.forks) == 2 * 3 * 4
    draws = {arm: {fork.draw for fork in PLAN.forks if fork.arm == arm} for arm in ARMS}
    assert draws["all"].isdisjoint(draws["none"])
    assert {len(fork_draws) for fork_draws in draws.values()} == {4}
    more = planned_forks(ARMS, PARENTS, 5)
    assert more[: len(PLAN.forks)] == PLAN.forks  # further forks leave the first as they are


def test_its_document_is_read_again():
    assert fork_plan_from(PLAN.document()) == PLAN


def test_what_lacks_is_asked_for_and_what_is_there_is_counted():
    assert PLAN.checked({}).pending is not None
    assert PLAN.most_steps == 32 + 40 * 24
    whole = results(0.01)
    assert PLAN.pending(whole) == ()
    assert PLAN.steps_spent(whole) == PLAN.most_steps
    last = PLAN.forks[-1]
    del whole[last.key]
    assert PLAN.pending(whole) == (last,)
    assert PLAN.steps_spent(whole) == PLAN.most_steps - 40
    assert len(PLAN.losses(whole, last.arm)[last.parent]) == 3


def test_a_run_that_does_not_follow_its_record_leaves_nothing_to_fork():
    departs = bit_equal(32) | {"departs": 3, "by": 0.1}
    assert PLAN.pending({REPLAY.key: departs}) == ()
    assert PLAN.checked({REPLAY.key: departs}).ends_it


@pytest.mark.parametrize("gap", [0.0, 0.02])
def test_the_losses_of_two_arms_give_their_effect(gap):
    everything, nothing = (PLAN.losses(results(gap), arm) for arm in ARMS)
    noise = fork_noise([everything, nothing])
    estimated = effect(ForkArm(forks=everything, noise=noise), ForkArm(forks=nothing, noise=noise))
    low, high = estimated.bounds(0.95)
    assert low <= gap <= high
    assert noise.parents == len(PARENTS)
