"""Logs that do not say what they seem to: units, step numbers, other data, the same file twice,
holes, validation, rates.
"""

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
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
    return curve_from_arrays(
        run.steps, run.loss, rounding=run.rounding, columns={"validation_loss": values}
    )


def validation(worse: float) -> Build:
    """Validation losses on both arms, the candidate's worse."""
    return lambda runs: Case(base=[validated(runs[0], 0.0)], cand=[validated(runs[1], worse)])


def cut(share: float, which: str) -> Build:
    """One arm's log, or both, cut before the planned end, where the candidate is 5 margins
    worse.
    """

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
    return Case(
        base=[kept(runs[0], slice(0, n))],
        cand=[kept(runs[1], slice(0, n))],
        options={},
        policy={"margin": "1%", "schedule": "unstated"},
    )


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
    """An arm whose rounding is as given: where it is not, the run-to-run noise that is assumed is
    wider than 0.3 % of the loss.
    """

    def build(runs: Runs) -> Case:
        cand = curve_from_arrays(runs[1].steps, runs[1].loss, rounding=rounding)  # type: ignore[arg-type]
        return Case(base=[runs[0]], cand=[cand], policy={"margin": "0.8%" if rounding else "0.3%"})

    return build


def cosine(run: Curve, steps: int, peak: float = 1e-3) -> Curve:
    """The run with the learning rate of a cosine over so many steps."""
    rate = 0.5 * peak * (1.0 + np.cos(np.pi * np.minimum(run.steps / steps, 1.0)))
    return curve_from_arrays(
        run.steps, run.loss, rounding=run.rounding, columns={"learning_rate": rate}
    )


def cosines(steps: int, peak: float) -> Build:
    """Both arms under a cosine over so many steps, the candidate with a peak of its own."""
    return lambda runs: Case(base=[cosine(runs[0], steps)], cand=[cosine(runs[1], steps, peak)])


def short_plan(margins: float) -> Build:
    """A plan of 1,700 of the 1,750 steps, the candidate worse after it."""
    return lambda runs: Case(
        base=[runs[0]],
        cand=[raised(runs[1], 1701 / 1750, margins)],
        options={"planned_steps": 1700},
    )


def hole(start: float, stop: float) -> Build:
    """A candidate without the steps where it is 9 margins worse."""

    def build(runs: Runs) -> Case:
        worse = raised(runs[1], start, 9.0, stop)
        at = np.arange(len(worse.loss)) / len(worse.loss)
        return Case(base=[runs[0]], cand=[kept(worse, (at < start) | (at >= stop))])

    return build


def late_logs(runs: Runs) -> Case:
    """Logs without the first 30 %, where the candidate was 5 margins worse."""
    n = round(0.3 * len(runs[0].loss))
    return Case(
        base=[kept(runs[0], slice(n, None))],
        cand=[kept(raised(runs[1], 0.0, 5.0, 0.3), slice(n, None))],
    )


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
    Attack(
        what="the candidate's losses in bits",
        build=cand_is(lambda run: with_loss(run, run.loss / LN2)),
        codes=UNITS,
        **SMALL,
    ),
    Attack(
        what="the baseline's losses in bits",
        build=base_is(lambda run: with_loss(run, run.loss / LN2)),
        codes=UNITS,
        **SMALL,
    ),
    Attack(
        what="losses in log 10",
        build=cand_is(lambda run: with_loss(run, run.loss / np.log(10.0))),
        codes=UNITS,
        **SMALL,
    ),
    Attack(
        what="losses summed over 4 parts",
        build=cand_is(lambda run: with_loss(run, 4.0 * run.loss)),
        codes=UNITS,
        **SMALL,
    ),
    Attack(
        what="steps from 0 against steps from 1",
        build=cand_is(lambda run: steps_as(run, run.steps - 1)),
        codes=SHIFTED,
    ),
    Attack(
        what="steps 2 ahead", build=cand_is(lambda run: steps_as(run, run.steps + 2)), codes=SHIFTED
    ),
    Attack(
        what="the baseline's steps from 0",
        build=base_is(lambda run: steps_as(run, run.steps - 1)),
        codes=SHIFTED,
    ),
    Attack(
        what="steps in tokens",
        build=cand_is(lambda run: steps_as(run, run.steps * 524_288)),
        codes=SCALED,
    ),
    Attack(
        what="steps in samples",
        build=base_is(lambda run: steps_as(run, run.steps * 512)),
        codes=SCALED,
    ),
    Attack(
        what="steps in thousandths",
        build=cand_is(lambda run: steps_as(run, run.steps * 1000)),
        codes=SCALED,
    ),
    Attack(
        what="other batches over the last half",
        build=cand_is(lambda run: reordered(run, 0.5)),
        codes=ORDER,
    ),
    Attack(
        what="other batches over the whole run",
        build=cand_is(lambda run: reordered(run, 1.0)),
        codes=ORDER,
    ),
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
        what="a candidate averaged with weight 0.99",
        build=cand_is(lambda run: ema(run, 0.99)),
        codes=("SMOOTHED", "DATA_ORDER_MISMATCH"),
    ),
    Attack(
        what="one file given twice", build=again(lambda run: with_loss(run, run.loss)), codes=SAME
    ),
    Attack(
        what="the baseline again with 3 decimals",
        build=again(lambda run: with_loss(run, run.loss.round(3))),
        codes=SAME,
    ),
    Attack(
        what="the baseline again with 2 decimals",
        build=again(lambda run: with_loss(run, run.loss.round(2))),
        codes=SAME,
    ),
    Attack(
        what="the baseline again as float16",
        build=again(lambda run: with_loss(run, run.loss.astype(np.float16).astype(float))),
        codes=SAME,
    ),
    Attack(
        what="the baseline again, moved by 0.2 margins",
        build=again(lambda run: raised(run, 0.0, 0.2)),
        codes=SAME,
    ),
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
            codes=("AS_OF",),
            **PLAN,
        )
        for share, which in (
            (0.955, "candidate"),
            (0.955, "baseline"),
            (0.75, "both"),
            (0.94, "baseline"),
            (0.97, "candidate"),
        )
    ),
    Attack(what="both cut at 75 %, no plan", build=no_plan, codes=("AS_OF",), **PLAN),
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
    Attack(
        what="0.8 margins better",
        build=cand_is(lambda run: raised(run, 0.0, -0.8)),
        codes=("BETTER_THAN_NOISE",),
        may_pass=True,
    ),
    Attack(
        what="1.3 margins better",
        build=cand_is(lambda run: raised(run, 0.0, -1.3)),
        codes=("BETTER_THAN_BASELINE",),
    ),
    Attack(
        what="10 % better",
        build=cand_is(lambda run: with_loss(run, 0.9 * run.loss)),
        codes=("BETTER_THAN_BASELINE",),
    ),
    Attack(
        what="half the learning rate in the candidate",
        build=cosines(1750, 5e-4),
        codes=("LEARNING_RATES_DIFFER",),
        twin="one complete cosine",
        honest=cosines(1750, 1e-3),
    ),
    *(
        Attack(
            what=f"both runs cut at {100 * 1750 / steps:.0f} % of a cosine, said to be complete",
            build=cosines(steps, 1e-3),
            codes=("AS_OF",),
            twin="one complete cosine",
            honest=cosines(1750, 1e-3),
        )
        for steps in (2692, 2188, 1944)
    ),
    Attack(
        what="worse by 10 margins after the stated plan",
        build=short_plan(10.0),
        codes=("BEYOND_PLAN",),
        twin="the same plan",
        honest=short_plan(0.0),
    ),
    Attack(
        what="a hole in the log where the candidate is worse",
        build=hole(0.85, 0.86),
        codes=("DOWNSAMPLED",),
    ),
    Attack(what="logs that start late", build=late_logs, codes=("LOG_STARTS_LATE",), may_pass=True),
    Attack(what="arms on different engines", build=other_context, codes=("CONFOUNDED",)),
    Attack(
        what="a candidate whose rounding is not on record, at a margin of 0.3 %",
        build=stated(None),
        codes=("CI_STRADDLES_MARGIN",),
        twin="nearest rounding on record",
        honest=stated("nearest"),
    ),
)
