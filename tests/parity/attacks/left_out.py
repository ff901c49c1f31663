"""What a log leaves out, and what was read from it: points that one arm lacks, forks, other
quantities, lines that were not read.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, margin_of, raised, with_loss
from tests.parity.attacks.logs import cand_is


def spiking(run: Curve, share: float) -> tuple[Curve, np.ndarray]:
    """The run with spikes of 20 margins at a share of its steps, and where they are."""
    rng = np.random.default_rng(0)
    at = rng.choice(len(run.loss), round(share * len(run.loss)), replace=False)
    loss = run.loss.copy()
    loss[at] += 20.0 * margin_of(run)
    return with_loss(run, loss), at


def without_its_spikes(run: Curve) -> Curve:
    """A run whose logger skipped the steps at which it spiked."""
    spiked, at = spiking(run, 0.08)
    return kept(spiked, np.setdiff1d(np.arange(len(run.loss)), at))


def with_lines_lost(run: Curve) -> Curve:
    """A run that lost one line in a thousand."""
    lost = np.random.default_rng(1).random(len(run.loss)) < 0.001
    lost[[0, -1]] = False
    return kept(run, ~lost)


def without(run: Curve, begin: float, end: float) -> Curve:
    """A run without the points of a stretch, shares of its length."""
    at = np.arange(len(run.loss)) / len(run.loss)
    return kept(run, (at < begin) | (at >= end))


def from_share(share: float) -> object:
    """A log that begins late."""
    return lambda run: kept(run, slice(round(share * len(run.loss)), None))


def both_late(share: float, *, fork: bool) -> Build:
    """Two logs that begin late; the candidate's is a fork of the baseline, or a run of its own."""

    def build(runs: Runs) -> Case:
        begin = round(share * len(runs[0].loss))
        since = np.maximum(np.arange(len(runs[0].loss)) - begin, 0)
        parted = -np.expm1(-since / 150.0) if fork else 1.0
        cand = with_loss(runs[1], runs[0].loss + parted * (runs[1].loss - runs[0].loss))
        return Case(
            base=[kept(runs[0], slice(begin, None))],
            cand=[kept(cand, slice(begin, None))],
            options={"planned_steps": 1750},
        )

    return build


def with_a_term(margins: float, worse: float) -> Build:
    """A baseline whose loss has a further term of so many margins, and a candidate that is worse by
    so many.
    """
    return lambda runs: Case(
        base=[with_loss(runs[0], runs[0].loss + margins * margin_of(runs[0]))],
        cand=[raised(runs[1], 0.1, worse)],
    )


def recorded(base: Mapping[str, str], cand: Mapping[str, str], **policy: str) -> Build:
    """The pair with what readers recorded of both."""

    def build(runs: Runs) -> Case:
        (left, right) = (
            dataclasses.replace(run, context=facts)
            for run, facts in zip(runs[:2], (base, cand), strict=True)
        )
        return Case(base=[left], cand=[right], policy={"margin": "1%", **policy})

    return build


def sparse(every: int, rows: str) -> Build:
    """A candidate that is logged less often, in a source with so many rows without a loss; the
    baseline is logged at each step.
    """
    return lambda runs: Case(
        base=[runs[0]],
        cand=[
            dataclasses.replace(
                kept(runs[1], slice(0, None, every)),
                context={"steps_without_loss": rows} if rows else {},
            )
        ],
    )


def in_another_order(run: Curve) -> Curve:
    """The run with its batch noise in another order."""
    trend = np.convolve(np.pad(run.loss, 25, mode="edge"), np.ones(51) / 51, mode="valid")
    return curve_from_arrays(
        run.steps,
        trend + np.random.default_rng(0).permutation(run.loss - trend),
        rounding=run.rounding,
    )


def stated_order(change: object) -> Build:
    """A pair whose order of data is stated."""
    return lambda runs: Case(
        base=[runs[0]],
        cand=[change(runs[1])],  # type: ignore[operator]
        policy={"margin": "1%", "pairing": "stated"},
    )


LM, TRAINING, TOTAL = (
    {"loss_name": name, "loss_meaning": meaning}
    for name, meaning in (
        ("lm loss", "language-model loss"),
        ("loss", "training loss"),
        ("total_loss", "total loss"),
    )
)
ATTACKS = (
    Attack(
        what="spikes of 20 margins at 8 % of the steps, whose rows are dropped",
        build=cand_is(without_its_spikes),
        codes=("POINTS_IN_ONE_ARM",),
        twin="one line in a thousand lost",
        honest=cand_is(with_lines_lost),
    ),
    Attack(
        what="the last 2.3 % of the window missing in the candidate alone",
        build=cand_is(lambda run: without(run, 0.9955, 1.0)),
        codes=("POINTS_IN_ONE_ARM",),
        twin="the last two points missing in the candidate alone",
        honest=cand_is(lambda run: kept(run, slice(0, -2))),
    ),
    Attack(
        what="2 % of the window missing in the candidate alone",
        build=cand_is(lambda run: without(run, 0.9, 0.904)),
        codes=("POINTS_IN_ONE_ARM",),
        twin="the same points missing in both arms",
        honest=lambda runs: Case(
            base=[without(runs[0], 0.9, 0.904)], cand=[without(runs[1], 0.9, 0.904)]
        ),
    ),
    Attack(
        what="8 % of the run missing before the window in the candidate alone",
        build=cand_is(lambda run: without(run, 0.5, 0.58)),
        codes=("POINTS_IN_ONE_ARM",),
        twin="the same points missing in both arms",
        honest=lambda runs: Case(
            base=[without(runs[0], 0.5, 0.58)], cand=[without(runs[1], 0.5, 0.58)]
        ),
    ),
    Attack(
        what="8 % of the run missing before the window in the baseline alone",
        build=lambda runs: Case(base=[without(runs[0], 0.2, 0.28)], cand=[runs[1]]),
        codes=("POINTS_IN_ONE_ARM",),
        twin="3 % missing there, as where a run was resumed",
        honest=lambda runs: Case(base=[without(runs[0], 0.2, 0.23)], cand=[runs[1]]),
    ),
    Attack(
        what="a candidate's log that begins at 79 % of the plan",
        build=cand_is(from_share(0.79)),
        codes=("LOG_STARTS_LATE",),
        twin="a candidate's log that begins at 40 % of the plan",
        honest=cand_is(from_share(0.4)),
    ),
    Attack(
        what="a candidate's log that begins in the window",
        build=cand_is(from_share(0.85)),
        codes=("LOG_STARTS_LATE",),
    ),
    Attack(
        what="a fork at 75 % of the plan, both logs trimmed to it",
        build=both_late(0.75, fork=True),
        codes=("LOG_STARTS_LATE",),
        twin="a pair of its own, both logs trimmed to 40 %",
        honest=both_late(0.4, fork=False),
    ),
    Attack(
        what="a fork at 40 % of the plan, both logs trimmed to it",
        build=both_late(0.4, fork=True),
        codes=("LOG_STARTS_LATE",),
    ),
    Attack(
        what="a term of 3 margins in the baseline's loss, and a candidate that is 2.7 margins "
        "worse",
        build=with_a_term(3.0, 2.7),
        codes=("START_OFFSET",),
        twin="a term of a quarter of a margin in the baseline's loss",
        honest=with_a_term(0.25, 0.0),
    ),
    Attack(
        what="a training loss against a language-model loss",
        build=recorded(TRAINING, LM),
        codes=("LOSSES_DIFFER",),
        twin="two columns of one meaning",
        honest=recorded(TRAINING, {**TRAINING, "loss_name": "train/loss"}),
    ),
    Attack(
        what="a total loss against a language-model loss",
        build=recorded(LM, TOTAL),
        codes=("LOSSES_DIFFER",),
        twin="a loss and a total loss, which may be one",
        honest=recorded(TRAINING, TOTAL),
    ),
    Attack(
        what="a file with a second training loss, which differs from the one that was read",
        build=recorded(TRAINING, {**TRAINING, "second_losses": "train_loss"}),
        codes=("LOSSES_DIFFER",),
        twin="a file with a further column that could be the loss",
        honest=recorded(TRAINING, {**TRAINING, "other_losses": "train_loss"}),
    ),
    Attack(
        what="a held-out loss that is NaN, while the training loss is finite",
        build=recorded(TRAINING, {**TRAINING, "losses_not_finite": "8 held-out val_loss"}),
        codes=("NONFINITE_DROPPED",),
        twin="a held-out loss that is NaN in both arms",
        honest=recorded(
            {**TRAINING, "losses_not_finite": "8 held-out val_loss"},
            {**TRAINING, "losses_not_finite": "8 held-out val_loss"},
        ),
    ),
    Attack(
        what="losses in bits in both arms, as their perplexities show",
        build=recorded({"loss_base": "2"}, {"loss_base": "2"}),
        codes=("LOSS_NOT_NATS",),
        twin="losses in nats, as their perplexities show",
        honest=recorded({"loss_base": "e"}, {"loss_base": "e"}),
    ),
    Attack(
        what="a log of which 1 % of the lines were not read",
        build=recorded({}, {"lines_unread": "18"}),
        codes=("LINES_UNREAD",),
        twin="a log of which two lines were not read",
        honest=recorded({}, {"lines_unread": "2"}),
    ),
    Attack(
        what="three of four losses blank in the candidate's file",
        build=sparse(4, "1312"),
        codes=("LOSSES_NOT_LOGGED",),
        twin="a candidate that logs every fourth step",
        honest=sparse(4, ""),
    ),
    Attack(
        what="other data whose order is stated to be equal",
        build=stated_order(in_another_order),
        codes=("DATA_ORDER_MISMATCH",),
        twin="equal data whose order is stated, too",
        honest=stated_order(lambda run: run),
    ),
)
