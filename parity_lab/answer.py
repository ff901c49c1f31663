"""The answer of an analysis as a document: the parts of the effect with intervals, what is named,
and what stays unexplained.

replay        whether the runs on record follow from their specifications; nothing is named where
              they do not, or nobody knows
named         the smallest causes, each with what switching it off gains and what it costs alone
interaction   what switching all m named clusters off gains, minus the sum of what switching each
              off gains: (1 - m) U - W + sum W_i
unexplained   what is left of the effect with all of them off: W - E

with U the forks with everything on, E off, W_i without the cluster i and W without all named ones
(`parity_lab.effects.contrast`). The effect is the sum of the named parts, their interaction and
what is unexplained.

The effect is that of everything on after the checkpoint, not the gap of the full runs: what
builds up before the checkpoint is not in the weights. The sign of an effect is reported, and
naming is two-sided: weights that have adapted to a fault may end worse without it.
"""

import math
from typing import Any, TypedDict

import numpy as np

from parity.wording import count, signed
from parity_lab.analysis import (
    Results,
    Search,
    arm_losses,
    checked,
    gradient_batches,
    instant_rows,
    search,
    steps_spent,
)
from parity_lab.analysis_plan import Setup
from parity_lab.effects import Ends, contrast, effect
from parity_lab.estimates import Estimate, estimate
from parity_lab.gradient_error import SUMS, gradient_error
from parity_lab.replay import RatesDiffer, ReplayCheck, Replayed
from parity_lab.split import split

DECIMALS = 4
CONFIDENCE = 0.95


class ForkEstimateDocument(TypedDict):
    """A value in nats with its 95 % interval."""

    value: float
    low: float
    high: float


class ClusterDocument(TypedDict):
    """Units that were tested together, by falling weight. `adjusted` is the p-value with familywise
    control.
    """

    gemms: list[str]
    without: ForkEstimateDocument
    alone: ForkEstimateDocument
    p: float
    adjusted: float
    is_cause: bool


class ForkNoiseDocument(TypedDict):
    """The standard deviation (nats) between forks that differ in random numbers only, with all
    GEMMs on and with all off.

    What it rests on is that of the larger one, which counts for the forks between them.
    """

    on: float
    off: float
    df: float
    parents: int
    enough: bool


class PartDocument(TypedDict):
    """The forward part of one GEMM, or what switching an ingredient off gains; an ingredient has no
    `alone`.
    """

    name: str
    without: ForkEstimateDocument
    alone: ForkEstimateDocument | None


class InstantDocument(TypedDict):
    """The loss that each GEMM costs at once, on the same weights and held-out batches."""

    whole: ForkEstimateDocument
    gemms: list[PartDocument]
    ingredients: list[PartDocument]
    unexplained_without: ForkEstimateDocument
    unexplained_alone: ForkEstimateDocument


class GradientDocument(TypedDict):
    """How far a GEMM alone (name `all`: all of them) moves the gradient of the weights from that of
    bf16.

    `error` is the relative error with its interval, `systematic` the part of it that does not
    average out over rounding seeds.
    """

    name: str
    error: ForkEstimateDocument
    systematic: float
    cosine: float


class ReplayedDocument(TypedDict):
    """The `compared` steps of a run from step `first` on, trained again: the first step that
    `departs` from the record, `by` how much.
    """

    run: str
    arm: str
    first: int
    compared: int
    state: str
    departs: int | None
    by: float | None
    missing: str | None


class ReplayDocument(TypedDict):
    """Whether the runs on record follow from their specifications: not planned (an analysis of an
    earlier version), pending, reproduced, differs (with the `code` NOT_IN_PRECISION) or unchecked
    (NOT_REPLAYED). `sentence` says so with the run and the step.
    """

    outcome: str
    code: str | None
    sentence: str
    replays: list[ReplayedDocument]


class AnalysisAnswer(TypedDict):
    """What an analysis has measured so far; parts that are not complete are null. `effect` is
    everything on minus everything off, by forks.

    `interaction` is null where fewer than two clusters are named. The effect is the sum of what
    switching each named cluster off gains, of the interaction, and of what is `unexplained`.

    `untested` are parts of causes that were not tested: `stopped` says whether the largest cost was
    reached. Where `replay` has a code, nothing else was measured.
    """

    replay: ReplayDocument
    complete: bool
    steps_spent: float
    effect: ForkEstimateDocument | None
    noise: ForkNoiseDocument | None
    named: list[ClusterDocument]
    tested: list[ClusterDocument]
    untested: list[list[str]]
    interaction: ForkEstimateDocument | None
    unexplained: ForkEstimateDocument | None
    stopped: bool
    instant: InstantDocument | None
    gradients: list[GradientDocument] | None


def answer(setup: Setup, results: Results) -> AnalysisAnswer:
    """What these results say. Raises ValueError for forks that are equal or not finite."""
    replays = checked(setup, results)
    forks = search(setup, {} if replays.ends_it else results)
    instant, gradients = _instant(setup, results), _gradients(setup, results)
    tested = _tested(forks)
    return {
        "replay": replay_document(setup, replays),
        "complete": replays.ends_it
        or (not forks.pending and instant is not None and gradients is not None),
        "steps_spent": steps_spent(setup, results),
        "effect": estimate_document(forks.effects[forks.tree.units].without)
        if forks.ends
        else None,
        "noise": _noise(forks.ends) if forks.ends else None,
        "named": [part for part in tested if tuple(part["gemms"]) in forks.guilt.named],
        "tested": tested,
        "untested": [list(cluster) for cluster in forks.guilt.untested],
        "interaction": _interaction(setup, results, forks),
        "unexplained": _unexplained(forks),
        "stopped": forks.stopped,
        "instant": instant,
        "gradients": gradients,
    }


def replay_document(setup: Setup, check: ReplayCheck) -> ReplayDocument:
    """What the replays say."""
    return {
        "outcome": check.outcome,
        "code": check.code,
        "sentence": sentence(check, setup.rates),
        "replays": [
            {
                "run": replayed.replay.run,
                "arm": replayed.replay.arm,
                "first": replayed.replay.first,
                "compared": replayed.result["compared"],
                "state": replayed.state,
                "departs": replayed.result["departs"],
                "by": replayed.result["by"],
                "missing": replayed.result["missing"],
            }
            for replayed in check.replayed
        ],
    }


def rates_sentence(rates: RatesDiffer) -> str:
    """That learning rates on record explain a gap which no precision does."""
    values = f"{rates.baseline:.6g} in the baseline, {rates.candidate:.6g} in the candidate"
    return (
        f"not in the precision of these GEMMs: from step {rates.step:,} on the learning rates on "
        f"record differ ({values})"
    )


def sentence(check: ReplayCheck, rates: RatesDiffer | None = None) -> str:
    """What the replays say, with the run and the step."""
    if rates is not None:
        return rates_sentence(rates)
    if check.outcome == "not planned":
        return (
            "no run was replayed: the analysis is of an earlier version, and a cause outside of "
            "the GEMMs is not excluded"
        )
    if check.outcome == "pending":
        return f"{count(len(check.replayed), 'replay')} done so far; they come before anything else"
    last = check.replayed[-1]
    if check.outcome == "differs":
        return (
            f"not in the precision of these GEMMs: trained again, {_run_words(last)} does not "
            f"follow its record: {departure(last)}"
        )
    if check.outcome == "unchecked":
        missing = next(
            (replayed for replayed in check.replayed if replayed.state == "missing"), None
        )
        if missing is None:
            noisy_one = next(
                replayed for replayed in check.replayed if replayed.state == "within noise"
            )
            remedy = (
                "which hides causes; ask on the machine and with the versions that trained it, or "
                "accept that with --anyway"
            )
            return (
                f"nothing is named, because {_run_words(noisy_one)} follows its record within "
                f"the noise of reruns only, {remedy}"
            )
        why = missing.result["missing"]
        return (
            f"nothing is named, because {_run_words(missing)} could not be replayed from step "
            f"{missing.replay.first:,}: {why}"
        )
    noisy = sum(replayed.state == "within noise" for replayed in check.replayed)
    how = "bit for bit"
    if noisy:
        how = (
            f"within the noise of reruns (which hides small causes) in {noisy} of "
            f"{len(check.replayed)} replays, else bit for bit"
        )
    runs = {replayed.replay.run for replayed in check.replayed}
    return (
        f"trained again, {count(len(runs), 'run')} follow their record {how} ({_coverage(check)})"
    )


def departure(replayed: Replayed) -> str:
    """Where a replay leaves the record, and how far."""
    result = replayed.result
    if result["by"] is None:
        return f"its loss at step {result['departs']:,} is not finite now"
    return (
        f"at step {result['departs']:,} the loss on record is {signed(result['by'], DECIMALS)} "
        "nats from it"
    )


def _run_words(replayed: Replayed) -> str:
    return f"run {replayed.replay.run} of the {replayed.replay.arm}"


def _coverage(check: ReplayCheck) -> str:
    """The steps that were replayed, with the number of runs."""
    spans: dict[tuple[int, int], int] = {}
    for replayed in check.replayed:
        span = (replayed.replay.first, replayed.replay.first + replayed.result["compared"])
        spans[span] = spans.get(span, 0) + 1
    return "; ".join(
        f"steps {first:,} to {end:,} of {count(runs, 'run')}"
        for (first, end), runs in sorted(spans.items())
    )


def estimate_document(estimate: Estimate) -> ForkEstimateDocument:
    """An estimate with its interval."""
    low, high = estimate.bounds(CONFIDENCE)
    return {"value": estimate.value, "low": low, "high": high}


def _tested(forks: Search) -> list[ClusterDocument]:
    return [
        {
            "gemms": list(tested.cluster),
            "without": estimate_document(forks.effects[tested.cluster].without),
            "alone": estimate_document(forks.effects[tested.cluster].alone),
            "p": tested.p,
            "adjusted": tested.adjusted,
            "is_cause": tested.guilty,
        }
        for tested in forks.guilt.tested
    ]


def _noise(ends: Ends) -> ForkNoiseDocument:
    larger = ends.noise
    on, off = ends.on.noise.sd, ends.off.noise.sd
    return {
        "on": on,
        "off": off,
        "df": larger.df,
        "parents": larger.parents,
        "enough": larger.is_enough,
    }


def _interaction(setup: Setup, results: Results, forks: Search) -> ForkEstimateDocument | None:
    if forks.ends is None or forks.rest is None or len(forks.guilt.named) < 2:
        return None
    losses = (
        arm_losses(setup, results, forks.tree, "without", cluster, setup.noise_draws)
        for cluster in forks.guilt.named
    )
    arms = [(1.0, forks.ends.between(loss)) for loss in losses]
    return estimate_document(
        contrast([(1.0 - len(arms), forks.ends.on), (-1.0, forks.rest), *arms])
    )


def _unexplained(forks: Search) -> ForkEstimateDocument | None:
    if forks.ends is None or forks.rest is None:
        return None
    if forks.rest is forks.ends.off:  # everything is named: nothing is left
        return {"value": 0.0, "low": 0.0, "high": 0.0}
    return estimate_document(effect(forks.rest, forks.ends.off))


def _instant(setup: Setup, results: Results) -> InstantDocument | None:
    rows = {row.key.removeprefix("instant/"): results.get(row.key) for row in instant_rows(setup)}
    losses = {
        name: np.asarray(values, np.float64) for name, values in rows.items() if values is not None
    }
    if len(losses) < len(rows):
        return None
    units = split(losses, setup.units)
    gains = {name: estimate(losses["on"] - losses[f"without {name}"]) for name in setup.ingredients}
    return {
        "whole": estimate_document(units.whole),
        "gemms": [
            {
                "name": name,
                "without": estimate_document(part.without),
                "alone": estimate_document(part.alone),
            }
            for name, part in units.parts.items()
        ],
        "ingredients": [
            {"name": name, "without": estimate_document(gain), "alone": None}
            for name, gain in gains.items()
        ],
        "unexplained_without": estimate_document(units.unexplained_without),
        "unexplained_alone": estimate_document(units.unexplained_alone),
    }


def _gradients(setup: Setup, results: Results) -> list[GradientDocument] | None:
    batches: list[Any] = [results.get(row.key) for row in gradient_batches(setup)]
    if any(batch is None for batch in batches):
        return None
    documents: list[GradientDocument] = []
    for name in ("all", *setup.units) if batches else ():
        sums = np.array([batch[name] for batch in batches], np.float64).reshape(
            len(batches), 1, len(SUMS)
        )
        error = gradient_error(sums)
        low, high = error.squared_error.bounds(CONFIDENCE)
        estimate: ForkEstimateDocument = {
            "value": error.relative_error,
            "low": math.sqrt(max(0.0, low)),
            "high": math.sqrt(max(0.0, high)),
        }
        documents.append(
            {
                "name": name,
                "error": estimate,
                "systematic": error.systematic,
                "cosine": error.cosine,
            }
        )
    return documents
