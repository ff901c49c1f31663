"""Logs that do not say what they seem to: units, step numbers, other data, the same file twice, holes, validation, rates."""

import numpy as np

from parity import Curve, curve_from_arrays
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, margin_of, raised, with_loss
from tests.parity.attacks.copies import ema, forked
from tests.parity.attacks.end_of_run import half_a_margin

LN2 = float(np.log(2.0))


def cand_is(change: object) -> Build:
    """A candidate that is the second run, changed."""
    return lambda runs: Case(base=[runs[0]], cand=[change(runs[1])])  # type: ignore[operator]


def base_is(change: object) -> Build:
    """A baseline that is the first run, changed."""
    return lambda runs: Case(base=[change(runs[0])], cand=[runs[1]])  # type: ignore[operator]


def again(change: object) -> Build:
    """A candidate that is the baseline's run again, changed."""
    return lambda runs: Case(base=[runs[0]], cand=[change(runs[0])])  # type: ignore[operator]


def steps_as(run: Curve, steps: np.ndarray) -> Curve:
    """The run with other step numbers."""
    return curve_from_arrays(steps, run.loss, rounding=run.rounding)


def reordered(run: Curve, share: float) -> Curve:
    """The run with a late share of its batch noise in another order."""
    loss, n = run.loss.copy(), round((1.0 - share) * len(run.loss))
    trend = np.convolve(np.pad(loss, 25, mode="edge"), np.ones(51) / 51, mode="valid")
    noise = loss[n:] - trend[n:]
    loss[n:] = trend[n:] + np.random.default_rng(0).permutation(noise)
    return with_loss(run, loss)


def validated(run: Curve, worse: float) -> Curve:
    """The run with a validation loss every 25 steps, worse by so many margins."""
    values = np.where(run.steps % 25 == 0, run.loss + worse * margin_of(run), np.nan)
    return curve_from_arrays(run.steps, run.loss, rounding=run.rounding, columns={"validation_loss": values})


def validation(worse: float) -> Build:
    """Validation losses on both arms, the candidate's worse."""
    return lambda runs: Case(base=[validated(runs[0], 0.0)], cand=[validated(runs[1], worse)])


def cut(share: float, which: str) -> Build:
    """One arm's log, or both, cut before the planned end, where the candidate is 5 margins worse."""

    def build(runs: Runs) -> Case:
        n = round(share * len(runs[0].loss))
        base, cand = runs[0], raised(runs[1], share, 5.0)
        return Case(
            base=[kept(base, slice(0, n)) if which in ("baseline", "both") else base],
            cand=[kept(cand, slice(0, n)) if which in ("candidate", "both") else cand],
            options={"planned_steps": len(runs[0].loss)},
        )

    return build


def no_plan(runs: Runs) -> Case:
    """Both arms cut at three quarters, and nobody says how long they were meant to be."""
    n = round(0.75 * len(runs[0].loss))
    return Case(base=[kept(runs[0], slice(0, n))], cand=[kept(runs[1], slice(0, n))], options={})


def planned(runs: Runs) -> Case:
    """The pair with its plan."""
    return Case(base=[runs[0]], cand=[runs[1]], options={"planned_steps": len(runs[0].loss)})


def other_context(runs: Runs) -> Case:
    """Arms on different engines."""
    base, cand = (
        curve_from_arrays(run.steps, run.loss, rounding="nearest", context={"engine": engine})
        for run, engine in zip(runs[:2], ("maxtext", "external"), strict=True)
    )
    return Case(base=[base], cand=[cand])


def stated(rounding: str | None) -> Build:
    """A margin of 0.5 %, and an arm whose rounding is as given."""

    def build(runs: Runs) -> Case:
        cand = curve_from_arrays(runs[1].steps, runs[1].loss, rounding=rounding)  # type: ignore[arg-type]
        return Case(base=[runs[0]], cand=[cand], policy={"margin": "0.5%"})

    return build


UNITS, SHIFTED, SCALED, ORDER = (
    ("LOSS_SCALED",),
    ("STEPS_SHIFTED",),
    ("STEPS_SCALED", "NO_COMMON_STEPS"),
    ("DATA_ORDER_MISMATCH", "ROUNDED"),
)
SAME = ("ARMS_IDENTICAL",)
PLAN = {"twin": "the pair with its plan", "honest": planned}
SMALL = {"twin": "0.4 margins worse throughout", "honest": half_a_margin}

ATTACKS = (
    Attack(what="the candidate's losses in bits", build=cand_is(lambda run: with_loss(run, run.loss / LN2)), codes=UNITS, **SMALL),
    Attack(what="the baseline's losses in bits", build=base_is(lambda run: with_loss(run, run.loss / LN2)), codes=UNITS, **SMALL),
    Attack(what="losses in log 10", build=cand_is(lambda run: with_loss(run, run.loss / np.log(10.0))), codes=UNITS, **SMALL),
    Attack(what="losses summed over 4 parts", build=cand_is(lambda run: with_loss(run, 4.0 * run.loss)), codes=UNITS, **SMALL),
    Attack(what="steps from 0 against steps from 1", build=cand_is(lambda run: steps_as(run, run.steps - 1)), codes=SHIFTED),
    Attack(what="steps 2 ahead", build=cand_is(lambda run: steps_as(run, run.steps + 2)), codes=SHIFTED),
    Attack(what="the baseline's steps from 0", build=base_is(lambda run: steps_as(run, run.steps - 1)), codes=SHIFTED),
    Attack(what="steps in tokens", build=cand_is(lambda run: steps_as(run, run.steps * 524_288)), codes=SCALED),
    Attack(what="steps in samples", build=base_is(lambda run: steps_as(run, run.steps * 512)), codes=SCALED),
    Attack(what="steps in thousandths", build=cand_is(lambda run: steps_as(run, run.steps * 1000)), codes=SCALED),
    Attack(what="other batches over the last half", build=cand_is(lambda run: reordered(run, 0.5)), codes=ORDER),
    Attack(what="other batches over the whole run", build=cand_is(lambda run: reordered(run, 1.0)), codes=ORDER),
    Attack(
        what="losses with one decimal",
        build=cand_is(lambda run: with_loss(run, run.loss.round(1))),
        codes=("ROUNDED", "DATA_ORDER_MISMATCH"),
    ),
    Attack(
        what="whole-number losses",
        build=cand_is(lambda run: with_loss(run, run.loss.round(0))),
        codes=("ROUNDED", "DATA_ORDER_MISMATCH", "SMOOTHED", "CI_STRADDLES_MARGIN", "UNSTABLE"),
    ),
    Attack(
        what="a candidate averaged with weight 0.99", build=cand_is(lambda run: ema(run, 0.99)), codes=("SMOOTHED", "DATA_ORDER_MISMATCH")
    ),
    Attack(what="one file given twice", build=again(lambda run: with_loss(run, run.loss)), codes=SAME),
    Attack(what="the baseline again with 3 decimals", build=again(lambda run: with_loss(run, run.loss.round(3))), codes=SAME),
    Attack(what="the baseline again with 2 decimals", build=again(lambda run: with_loss(run, run.loss.round(2))), codes=SAME),
    Attack(
        what="the baseline again as float16", build=again(lambda run: with_loss(run, run.loss.astype(np.float16).astype(float))), codes=SAME
    ),
    Attack(what="the baseline again, moved by 0.2 margins", build=again(lambda run: raised(run, 0.0, 0.2)), codes=SAME),
    Attack(
        what="the baseline again, every second step",
        build=again(lambda run: kept(run, slice(1, None, 2))),
        codes=(*SAME, "TOO_FEW_STEPS", "DOWNSAMPLED"),
    ),
    Attack(
        what="a candidate forked from the baseline at 80 %",
        build=lambda runs: Case(base=[runs[0]], cand=[forked(runs[0], runs[1], 0.8)]),
        codes=("ARMS_IDENTICAL", "ARMS_SHARE_START"),
    ),
    *(
        Attack(
            what=f"{which} cut at {100 * share:g} %, the candidate 5 margins worse after it",
            build=cut(share, which),
            codes=("INCOMPLETE",),
            **PLAN,
        )
        for share, which in ((0.955, "candidate"), (0.955, "baseline"), (0.75, "both"), (0.94, "baseline"), (0.97, "candidate"))
    ),
    Attack(what="both cut at 75 %, no plan", build=no_plan, codes=("PLAN_UNKNOWN",), **PLAN),
    Attack(
        what="validation loss 3 margins worse",
        build=validation(3.0),
        codes=("VALIDATION_LOSS_WORSE",),
        twin="validation loss equal",
        honest=validation(0.0),
    ),
    Attack(
        what="validation loss 1.6 margins worse",
        build=validation(1.6),
        codes=("VALIDATION_LOSS_WORSE",),
        twin="validation loss equal",
        honest=validation(0.0),
    ),
    Attack(what="0.8 margins better", build=cand_is(lambda run: raised(run, 0.0, -0.8)), codes=("BETTER_THAN_NOISE",), may_pass=True),
    Attack(what="1.3 margins better", build=cand_is(lambda run: raised(run, 0.0, -1.3)), codes=("BETTER_THAN_BASELINE",)),
    Attack(what="10 % better", build=cand_is(lambda run: with_loss(run, 0.9 * run.loss)), codes=("BETTER_THAN_BASELINE",)),
    Attack(what="arms on different engines", build=other_context, codes=("CONFOUNDED",)),
    Attack(
        what="a candidate whose rounding is not on record, at a margin of 0.5 %",
        build=stated(None),
        codes=("CI_STRADDLES_MARGIN",),
        twin="nearest rounding on record",
        honest=stated("nearest"),
    ),
)
