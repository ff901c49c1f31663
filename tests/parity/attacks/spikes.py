"""Spikes, NaN and absurd losses that hide a gap, or go unsaid."""

import numpy as np

from tests.parity.attacks.case import Attack, Build, Case, Runs, margin_of, raised, with_loss
from tests.parity.attacks.end_of_run import half_a_margin, spike_before_the_end

HIDES = (
    "SPIKES_HIDE_GAP",
    "UNSTABLE",
    "CANDIDATE_UNSTABLE",
    "GAP_EXCEEDS_MARGIN",
    "CI_STRADDLES_MARGIN",
    "GAP_GROWING",
    "DIVERGED",
)
SAID = ("SPIKES_MASKED",)


def worse_in(start: float, stop: float, margins: float, throughout: float = 0.0) -> Build:
    """Worse by so many margins inside the window."""
    return lambda runs: Case(
        base=[runs[0]], cand=[raised(raised(runs[1], 0.0, throughout), start, margins, stop)]
    )


def spikes(count: int, width: int, margins: float, throughout: float = 0.0) -> Build:
    """Equal spikes, evenly spread over the window but for its end."""

    def build(runs: Runs) -> Case:
        run = raised(runs[1], 0.0, throughout)
        loss, n = run.loss.copy(), len(run.loss)
        for start in np.linspace(0.81 * n, 0.97 * n, count).astype(int):
            loss[start : start + width] += margins * margin_of(runs[1])
        return Case(base=[runs[0]], cand=[with_loss(run, loss)])

    return build


def set_to(value: float, count: int, place: float = 0.9) -> Build:
    """So many losses of the window set to a value."""

    def build(runs: Runs) -> Case:
        loss = runs[1].loss.copy()
        start = round(place * (len(loss) - 1))
        loss[start : start + count] = value
        return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])

    return build


def baseline_spikes_too(runs: Runs) -> Case:
    """Spikes of the baseline pull the raw gap down as far as those of the candidate lift it."""
    case = spikes(4, 8, 12.0)(runs)
    loss, n = runs[0].loss.copy(), len(runs[0].loss)
    for start in np.linspace(0.83 * n, 0.95 * n, 4).astype(int):
        loss[start : start + 8] += 12.0 * margin_of(runs[0])
    return Case(base=[with_loss(runs[0], loss)], cand=case.cand)


NAN = float("nan")
TWIN = {
    "twin": "one spike of 8 steps, over 30 steps before the end",
    "honest": spike_before_the_end,
}
QUIET = {"twin": "0.4 margins worse throughout", "honest": half_a_margin}

ATTACKS = (
    Attack(
        what="5 margins worse over a quarter of the window",
        build=worse_in(0.84, 0.89, 5),
        codes=HIDES,
        **QUIET,
    ),
    Attack(
        what="12 margins worse over 9 % of the window",
        build=worse_in(0.86, 0.878, 12),
        codes=HIDES,
        **TWIN,
    ),
    Attack(
        what="0.6 margins worse, and 8 more over 6 % of the window",
        build=worse_in(0.86, 0.872, 8, 0.6),
        codes=HIDES,
        **TWIN,
    ),
    Attack(what="six spikes of 20 steps", build=spikes(6, 20, 30), codes=HIDES, **TWIN),
    Attack(
        what="four spikes of 8 steps of 12 margins", build=spikes(4, 8, 12), codes=HIDES, **TWIN
    ),
    Attack(
        what="the same, and as many spikes of the baseline",
        build=baseline_spikes_too,
        codes=HIDES,
        **TWIN,
    ),
    Attack(
        what="three spikes of one step of 10 margins",
        build=spikes(3, 1, 10),
        codes=SAID,
        may_pass=True,
        **TWIN,
    ),
    Attack(
        what="one loss of 100,000 nats in the window",
        build=set_to(1e5, 1),
        codes=(*HIDES, "SPIKES_MASKED"),
        **TWIN,
    ),
    Attack(
        what="three losses of 10^9 nats in the window",
        build=set_to(1e9, 3),
        codes=("NONFINITE_DROPPED",),
        may_pass=True,
    ),
    Attack(
        what="three NaN in the window",
        build=set_to(NAN, 3),
        codes=("NONFINITE_DROPPED",),
        may_pass=True,
    ),
    Attack(what="ten NaN in a row in the window", build=set_to(NAN, 10), codes=("NONFINITE_CAND",)),
    Attack(
        what="an infinite loss before the window",
        build=set_to(np.inf, 1, 0.3),
        codes=("NONFINITE_DROPPED",),
        may_pass=True,
    ),
    Attack(what="NaN at the last step", build=set_to(NAN, 1, 1.0), codes=("NONFINITE_CAND",)),
)
