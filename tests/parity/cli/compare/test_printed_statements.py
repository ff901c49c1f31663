"""Each statement that an open verdict asks for is typed as it is printed, on files: the answer is
what was promised.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from parity.judging.document_types import StatementKey
from tests.parity.cli.compare.test_next_command import command_of
from tests.parity.judging.precedence.changes import CHANGES
from tests.parity.judging.precedence.pair import STEPS, Pair

Run = Callable[..., tuple[int, str, str]]
CODES = {"pass": 0, "inconclusive": 3}
NAMED = ("--planned-steps", str(STEPS))
DECAYED = (*NAMED, "--schedule", "decayed")
COLUMNS = ("--column", "base:loss=total_loss", "--column", "cand:loss=lm_loss")
NEAREST = ("--rounding", "base=nearest", "--rounding", "cand=nearest")


def _as_it_is(_pair: Pair) -> None:
    """An honest pair."""


def _named(*, base: str, cand: str) -> Callable[[Pair], None]:
    def rename(pair: Pair) -> None:
        pair.names = (base, cand)

    return rename


@dataclasses.dataclass(frozen=True)
class Case:
    """What is done to an honest pair, what is typed with it, and the columns of its losses."""

    made: Callable[[Pair], None]
    options: Sequence[str]
    margin: str = "1%"
    columns: tuple[str, str] = ("loss", "loss")


CASES: dict[StatementKey, Case] = {
    "planned_steps": Case(_as_it_is, NEAREST),
    "schedule": Case(_as_it_is, (*NAMED, *NEAREST)),
    "rounding": Case(_as_it_is, DECAYED, "0.36%"),
    "recipe": Case(_named(base="fp8", cand="mxfp8"), DECAYED, "0.36%"),
    "pairing": Case(CHANGES["batches so large that no part shows them"], (*DECAYED, *NEAREST)),
    "loss_is": Case(_as_it_is, (*DECAYED, *NEAREST, *COLUMNS), columns=("total_loss", "lm_loss")),
}
# the tests in tests/parity/judging/verdict that carry out the others
ELSEWHERE = {
    "loss_unit": "test_free_statements.py",
    "start": "test_next_step_of_each_code.py",
    "seeds": "test_free_statements.py",
    "start_precision": "test_next_step_of_each_code.py",
}


def test_each_statement_has_a_case() -> None:
    assert {*get_args(StatementKey)} == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("key", CASES)
def test_the_printed_command_keeps_its_promise(key: StatementKey, run: Run, tmp_path: Path) -> None:
    case, pair = CASES[key], Pair()
    case.made(pair)
    words = ["compare"]
    rates = 1e-3 * (0.505 + 0.495 * np.cos(np.pi * (np.arange(STEPS) + 1) / STEPS))
    for name, (curve,), column in zip(
        pair.names, (pair.base, pair.cand), case.columns, strict=True
    ):
        lines = [f"step,{column}" + (",learning_rate" if key == "planned_steps" else "")]
        for step, loss, rate in zip(curve.steps, curve.loss, rates, strict=True):
            more = f",{rate:.9g}" if key == "planned_steps" else ""
            lines.append(f"{step},{loss:.6f}{more}")
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        words.append(f"{name}={path}")
    words += ["--margin", case.margin, *case.options]
    code, out, err = run(*words)
    assert code == 3, out + err
    said = " ".join(run(*words, "-v")[1].split())
    promised = "pass" if "this would be a pass" in said else "inconclusive"
    assert promised == "pass" or "this would stay inconclusive" in said, said
    command = command_of(out)
    assert command[: len(words)] == words
    assert f"--{key.replace('_', '-')}" in command[len(words) :]
    code, out, _ = run(*command)
    assert code == CODES[promised], out
