"""What to do to an honest run, or to what is recorded of it, so that a line of the rule holds.

A change is a function of a `Case`; several can be made to one case, so that two lines hold at once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from parity.golden.measured import ComparisonFacts
from parity.golden.rule import LINES, RuleLine, judge
from parity.judging.curves.curve import Curve
from tests.parity.golden.curves import BATCH, GOLDEN, HONEST, TREND, curve, losses


@dataclasses.dataclass(frozen=True)
class Case:
    """A golden's and a run's losses at their first steps, their gradient norms and learning rates,
    what is stated, the losses of further goldens, and the steps that the run's log lacks.
    """

    golden: np.ndarray = field(default_factory=lambda: GOLDEN)
    run: np.ndarray = field(default_factory=lambda: HONEST)
    run_first_step: int = 1
    norm_factor: np.ndarray = field(default_factory=lambda: np.ones(100))
    rate_factor: np.ndarray = field(default_factory=lambda: np.ones(100))
    stated: ComparisonFacts = field(default_factory=ComparisonFacts)
    further: tuple[np.ndarray, ...] = ()
    missing: tuple[int, ...] = ()

    def curves(self) -> tuple[Curve, Curve]:
        """Both curves."""
        norms = np.exp(np.random.default_rng(5).normal(0.0, 0.1, 100))
        rates = np.linspace(1e-3, 1e-4, 100)
        golden = {"grad_norm": norms, "learning_rate": rates}
        run = {"grad_norm": norms * self.norm_factor, "learning_rate": rates * self.rate_factor}
        n, m = len(self.golden), len(self.run)
        return (
            curve(self.golden, columns={name: values[:n] for name, values in golden.items()}),
            curve(
                self.run,
                self.run_first_step,
                columns={name: values[:m] for name, values in run.items()},
                missing=self.missing,
            ),
        )

    def judged(self, lines: tuple[RuleLine, ...] = LINES) -> tuple[str, str]:
        """Name and answer of the line that decides."""
        golden, run = self.curves()
        line, _ = judge([golden, *map(curve, self.further)], run, self.stated, lines)
        return line.name, line.answer


Change = Callable[[Case], Case]


def runs(function: Callable[[np.ndarray], np.ndarray]) -> Change:
    """A change of the run's losses."""
    return lambda case: dataclasses.replace(case, run=function(case.run))


def states(**changes: object) -> Change:
    """A change of what is stated."""
    return lambda case: dataclasses.replace(
        case, stated=dataclasses.replace(case.stated, **changes)
    )


def at_row(row: int, value: float) -> Change:
    """Another loss in one row."""

    def put(run: np.ndarray) -> np.ndarray:
        changed = run.copy()
        changed[row] = value
        return changed

    return runs(put)


def spiked(run: np.ndarray) -> np.ndarray:
    return run * (1.0 + 0.05 * (np.arange(len(run)) == 50))


def dipped(run: np.ndarray) -> np.ndarray:
    return run * (1.0 - 0.05 * (np.arange(len(run)) == 40))


def noisy(case: Case) -> Case:
    """Batches of a hundred times the noise, of which the run has a fifth of its own: the level is
    known to some per cent only.
    """
    draw = np.random.default_rng(3)
    batch, own = draw.normal(0.0, 0.25, 25), draw.normal(0.0, 0.05, 25)
    own[0] = 0.0
    own[-5:] -= own[-5:].mean()
    golden = 8.0 * np.exp(batch)
    return dataclasses.replace(case, golden=golden, run=golden * np.exp(own))


def came_back(run: np.ndarray) -> np.ndarray:
    """1.1 % above over the middle half, too wide for a spike, and equal at the end."""
    rows = np.arange(len(run))
    return run * (1.0 + 0.011 * ((rows >= 25) & (rows < 75)))


def other_batches(run: np.ndarray) -> np.ndarray:
    return run * losses(len(run), seed=9) / TREND[: len(run)] / (GOLDEN / TREND)[: len(run)]


def partly_other(run: np.ndarray) -> np.ndarray:
    """Other batches in half of the rows, after the same start."""
    rows = np.random.default_rng(3).random(len(run)) < 0.5
    rows[0] = False
    return np.where(rows, other_batches(run), run)


def half_other(run: np.ndarray) -> np.ndarray:
    """Random numbers of its own, 0.4 of the batches' noise, and 0.5 % above at the end."""
    own = np.random.default_rng(4).normal(0.0, 0.4 * BATCH, len(run))
    own[0] = 0.0
    return run * np.exp(own) * (1.0 + 0.005 * np.linspace(0.0, 1.0, len(run)))


def drifted(run: np.ndarray) -> np.ndarray:
    return run * (1.0 + 0.01 * np.linspace(0.0, 1.0, len(run)))


def improved(run: np.ndarray) -> np.ndarray:
    return run * (1.0 - 0.01 * np.linspace(0.0, 1.0, len(run)))


def shifted(run: np.ndarray) -> np.ndarray:
    return TREND * np.roll(run / TREND, 1)


def broke(run: np.ndarray) -> np.ndarray:
    """Four times the noise from step 2 on, and 5 % above at the end."""
    own = np.random.default_rng(6).normal(0.0, 4.0 * BATCH, len(run))
    own[0] = 0.0
    return run * np.exp(own) * (1.0 + 0.05 * np.linspace(0.0, 1.0, len(run)))


def first_off(run: np.ndarray) -> np.ndarray:
    return run + 0.01 * (np.arange(len(run)) < 3)


def norms_from(row: int) -> Change:
    return lambda case: dataclasses.replace(
        case, norm_factor=np.where(np.arange(100) >= row, 1.5, 1.0)
    )


CHANGES: Mapping[tuple[str, str], Change] = {
    ("losses", "worse"): at_row(3, np.nan),
    ("steps", "cannot tell"): runs(lambda run: run[:7]),
    ("end", "cannot tell"): runs(lambda run: run[:60]),
    ("missing steps", "cannot tell"): lambda case: dataclasses.replace(case, missing=(30, 31, 32)),
    ("identical", "identical"): lambda case: dataclasses.replace(
        case, run=case.golden[: len(case.run)] + 1e-5
    ),
    ("fork", "cannot tell"): lambda case: states(changed="resume")(
        runs(lambda run: run + 1e-5 * (np.arange(len(run)) == 0))(case)
    ),
    ("steps judged", "cannot tell"): states(changed="resume", saved=93),
    ("data hash", "data changed"): states(golden_data="sha256:a", run_data="sha256:b"),
    ("recorded facts", "set-up changed"): states(
        golden_facts={"batch_size": "32"}, run_facts={"batch_size": "64"}
    ),
    ("learning rate", "set-up changed"): lambda case: dataclasses.replace(
        case, rate_factor=np.where(np.arange(100) >= 10, 1.1, 1.0)
    ),
    ("goldens", "cannot tell"): lambda case: dataclasses.replace(
        case, further=(other_batches(GOLDEN),)
    ),
    ("shift", "set-up changed"): runs(shifted),
    ("broken", "worse"): runs(broke),
    ("batches", "data changed"): runs(other_batches),
    ("order", "set-up changed"): lambda case: states(golden_data="sha256:a", run_data="sha256:a")(
        runs(other_batches)(case)
    ),
    ("noise", "cannot tell"): runs(partly_other),
    ("first loss", "set-up changed"): runs(first_off),
    ("first gradient norm", "set-up changed"): norms_from(0),
    ("first updates", "set-up changed"): lambda case: states(changed="resume", saved=40)(
        runs(lambda run: run + 0.05 * np.isin(np.arange(len(run)), (42, 43)))(case)
    ),
    ("spike", "worse"): runs(spiked),
    ("level near its limit", "cannot tell"): runs(half_other),
    ("level", "worse"): runs(drifted),
    ("level", "better"): runs(improved),
    ("dip", "better"): runs(dipped),
    ("earlier level", "cannot tell"): runs(came_back),
    ("gradient norm", "set-up changed"): norms_from(1),
    ("level's error", "cannot tell"): noisy,
    ("all", "numerics only"): lambda case: case,
}
"""By name and answer of the line."""
