"""No attack gets a pass in error, whichever real pair it is made on; each honest twin passes.

An attack is made on two of the pairs, or on nine where tests are thorough, other ones for each
attack; `python -m tools.tables attacks` makes all of them on all.
"""

import pytest

from parity.judging.curves.curve import Curve
from tests.conftest import THOROUGH
from tests.parity.attacks.case import Attack, Runs
from tests.parity.attacks.catalogue import ATTACKS
from tests.parity.attacks.pairs import groups

SOME = 9 if THOROUGH else 2


def _some(attack: Attack, reruns: tuple[Curve, ...]) -> list[tuple[int, Runs]]:
    """The orders that an attack is made on, by number; over all attacks each has its turn."""
    orders, place = groups(reruns), ATTACKS.index(attack)
    return [
        (number, orders[number])
        for number in sorted((SOME * place + turn) % len(orders) for turn in range(SOME))
    ]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.what)
def test_an_attack_gets_no_pass_and_is_named(attack: Attack, reruns: tuple[Curve, ...]) -> None:
    for number, runs in _some(attack, reruns):
        verdict = attack.build(runs).judged()
        assert attack.may_pass or verdict.verdict != "pass", (number, verdict.codes)
        assert set(attack.codes) & set(verdict.codes), (number, verdict.verdict, verdict.codes)


@pytest.mark.parametrize(
    "attack", {attack.twin: attack for attack in ATTACKS}.values(), ids=lambda attack: attack.twin
)
def test_the_honest_twin_passes(attack: Attack, reruns: tuple[Curve, ...]) -> None:
    for number, runs in _some(attack, reruns):
        verdict = attack.honest(runs).judged()
        assert verdict.verdict == "pass", (
            number,
            verdict.codes,
            [reason.sentence for reason in (verdict.decision.deciding, *verdict.decision.others)],
        )


def test_there_are_enough_attacks_and_each_has_a_name_of_its_own() -> None:
    assert len(ATTACKS) >= 80
    assert len({attack.what for attack in ATTACKS}) == len(ATTACKS)
