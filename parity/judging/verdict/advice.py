"""What to do next, with numbers: which runs or steps would decide, what can pass at all, and what
to try after a fail.

h(K, n) = t sqrt(tau_A^2/K_A + tau_B^2/K_B + SE_within^2 n0/n)      decides where h < |margin - gap|
MDE     = margin - h: the largest gap that this design can still pass

Runs or steps that are added make a further look, so h has the t of the next look's level
(`multiplicity`); where no look is left, that of the first look of a new question.

More steps shrink only the last term, and so do more of the same steps in the log. Can fail: it
assumes that run-to-run noise stays as it is now, and that the batch noise of neighbouring steps is
independent; where each logged value is the mean of the steps since the last one, logging every step
adds nothing.
"""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.codes import (
    AS_OF,
    BY_CODE,
    CANDIDATE_UNSTABLE,
    CI_STRADDLES_MARGIN,
    CONFOUNDED,
    DIVERGED,
    NONFINITE_CAND,
    ROUNDED,
    SMOOTHED,
)
from parity.judging.curves.context import ENGINE, PARAMETERS, RECIPE
from parity.judging.curves.curve import Curve
from parity.judging.curves.step_noise import StandardError
from parity.judging.curves.window import ends_early
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, Decision
from parity.judging.document_types import STOPPED, VerdictDocument
from parity.judging.gap.interval import Interval, interval
from parity.judging.gap.window_statistics import MIN_MEASURED_DF, WindowStatistics
from parity.judging.measurements import Measurements
from parity.judging.noise.arm_noise import ArmNoise, RunTerm, run_term
from parity.judging.recipe_changes import (
    Change,
    changes_after_fail,
    is_in_bf16,
    words_after_fail,
)
from parity.judging.rules.comparability import difference_words
from parity.judging.statements.offer import Offer, offer_words
from parity.judging.verdict.layer_statistics import LayerSnr, worst_layers
from parity.wording import count, nats_decimals

_END_KEYS = ("planned_steps", "schedule")

MAX_ADDED_RUNS = 16
TOO_FEW, NO_MARGIN = "TOO_FEW_STEPS", "MARGIN_UNDETERMINED"
NO_LOOK_LEFT = (
    "Adding them to this question would be a further look, and none is left: judging again until "
    "it is decided raises false passes. "
    "A policy that registers its looks before the first one (looks: 2) may add runs."
)
_NEW_QUESTION = (
    "A job with another policy asks a new question, which an operator registers first: parity "
    "new-question JOB --reason TEXT."
)
SLOPE_NEEDED = (
    "Give a finished run of the baseline on 25 to 50 % of its steps, state the slope of the loss "
    '("5% tokens at 0.2 nats"), '
    "or choose a margin in percent or nats."
)
# What is next where arms of one recipe differ in revision or environment.
_BISECT = {
    "revision": "Look at the first step where the arms diverge, and bisect the commits between "
    "the two revisions.",
    "environment": "Look at the first step where the arms diverge, and change one part of the "
    "environment at a time.",
}
_ONE_RECIPE_STEPS = {
    "CONFOUNDED": "Train all runs on the same engine, device class and data, with equal "
    "parameters, so that only the {compares} differs.",
    "BETTER_THAN_BASELINE": "Look for what changed in data, model, loss or evaluation; a gain "
    "that is meant is for a person to accept.",
    "BETTER_THAN_NOISE": "Look for what changed in data, model, loss or evaluation, unless this "
    "gain is meant.",
}
_COMMAND = "command"  # the engine whose recipes are what a launcher calls by these names
_LAUNCHER_WORDS = (
    "Look at the first step where the arms diverge, then train a recipe of the launcher that keeps "
    "the first and last blocks in bf16."
)
_WARNINGS_WITHOUT_STEP = (ROUNDED.code, SMOOTHED.code)  # a warning of these asks for nothing
_COMPARE_REST = (
    "compare software, kernels, data order and initial weights at the first step where the arms "
    "diverge."
)
_BROKEN: Mapping[str, str] = {
    NONFINITE_CAND.code: "Look at the first step with NaN or infinity: its batch, its gradient "
    "norm and its learning rate.",
    DIVERGED.code: "Look at the step from which the losses part, or lower the learning rate; more "
    "steps will not help.",
    CANDIDATE_UNSTABLE.code: "Look at batch and gradient norm where the spikes start, or lower the "
    "learning rate.",
}
"""After a fail by something else than the gap, of a candidate whose recipe is not on record."""
MOST_NAMED = 4  # facts in which arms differ, that a next step names
STEP_FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@frozen
class Advice:
    """Sentences, and the numbers in them: runs to add per arm, steps to add, the smallest margin
    that would pass (`margin_to_pass`), the smallest decidable gap. The first sentences are those of
    `offers`.
    """

    sentences: tuple[str, ...]
    add_baseline_runs: int | None = None
    add_candidate_runs: int | None = None
    add_steps: int | None = None
    margin_to_pass: float | None = None
    minimum_detectable_gap: float | None = None
    offers: tuple[Offer, ...] = ()


def advise(
    measurements: Measurements,
    decision: Decision,
    layer_policy: str | None,
    layer_snr_db: LayerSnr | None,
    offers: Sequence[Offer] = (),
    margin_to_pass: float | None = None,
) -> Advice:
    """Advice for one decided comparison: what can be stated for nothing (`offers`) before what has
    to be given or trained. `layer_snr_db` is the candidate's quantization SNR by (layer, operand),
    dB, where measured.
    """
    advice = _without_offers(
        measurements, decision, layer_policy, layer_snr_db, _asks_for_the_end(offers)
    )
    first = [offer_words(offer, job=measurements.multiplicity.registered) for offer in offers]
    sentences = (*first, *advice.sentences)
    if measurements.multiplicity.registered and decision.state != PASS and _ask_anew(sentences):
        sentences = (*sentences, _NEW_QUESTION)
    return dataclasses.replace(
        advice,
        offers=tuple(offers),
        sentences=sentences,
        margin_to_pass=margin_to_pass,
    )


def _ask_anew(sentences: Sequence[str]) -> bool:
    """Whether a step needs another policy than the question has, or another question."""
    return any("policy" in sentence or "new question" in sentence for sentence in sentences)


def _asks_for_the_end(offers: Sequence[Offer]) -> bool:
    return any(one.key in _END_KEYS for offer in offers for one in offer.statements)


def _without_offers(
    measurements: Measurements,
    decision: Decision,
    layer_policy: str | None,
    layer_snr_db: LayerSnr | None,
    end_is_asked: bool,
) -> Advice:
    """What to do apart from statements; `end_is_asked`: one of those is that the schedule ended."""
    statistics = measurements.statistics
    if statistics is None or statistics.margin is None:
        return Advice(
            sentences=_steps_by_code(
                measurements, decision, layer_policy, layer_snr_db, end_is_asked
            )
        )
    detectable = statistics.margin.nats - statistics.interval.half_width(*measurements.levels)
    straddles = decision.deciding.code == CI_STRADDLES_MARGIN.code
    if not straddles or _only_the_end_decides(measurements, decision, statistics):
        sentences = _steps_by_code(measurements, decision, layer_policy, layer_snr_db, end_is_asked)
        if decision.state == INCONCLUSIVE:
            sentences = (*_rest_of_log(measurements), *sentences)
        return Advice(sentences=sentences, minimum_detectable_gap=detectable)
    runs, steps, stride = (
        runs_that_decide(measurements, statistics),
        steps_that_decide(measurements, statistics),
        sparse_log_that_decides(measurements, statistics),
    )
    no_look = (
        () if measurements.multiplicity.left or not any((runs, steps, stride)) else (NO_LOOK_LEFT,)
    )
    return Advice(
        sentences=(
            *_rest_of_log(measurements),
            *_denser_log(stride),
            _straddle_sentence(measurements, runs, steps, stride, end_is_asked),
            *no_look,
            *_about_noise(measurements, decision),
        ),
        add_baseline_runs=runs[0] if runs else None,
        add_candidate_runs=runs[1] if runs else None,
        add_steps=steps,
        minimum_detectable_gap=detectable,
    )


def _only_the_end_decides(
    measurements: Measurements, decision: Decision, statistics: WindowStatistics
) -> bool:
    """Whether more runs would leave a gap that is below the margin open, because it is as of a
    point.
    """
    is_below = statistics.margin is not None and statistics.interval.mean < statistics.margin.nats
    return AS_OF.code in decision.codes and measurements.policy.as_of != "accept" and is_below


def _about_noise(measurements: Measurements, decision: Decision) -> list[str]:
    """What is wrong with the noise on which the number of runs to add rests."""
    entries = [BY_CODE[code] for code in decision.codes]
    steps = (
        entry.next_for(job=measurements.multiplicity.registered)
        for entry in entries
        if entry.about_run_noise
    )
    return [step for step in steps if step is not None]


def predicted(
    gap: Interval,
    noises: tuple[ArmNoise, ArmNoise],
    add_baseline: int,
    add_candidate: int,
    step_factor: float,
) -> Interval:
    """The interval as it would be with runs added to each arm (seeds added to both where there are
    several) and a longer window.
    """
    run = gap.run
    if run.seeds > 1:
        seeds = run.seeds + max(add_baseline, add_candidate)
        term = RunTerm(
            variance=run.variance * run.seeds / seeds, df=run.df + seeds - run.seeds, seeds=seeds
        )
    else:
        baseline, candidate = (
            dataclasses.replace(
                noise,
                runs=noise.runs + added,
                df=noise.df + added,
                measured_df=noise.measured_df + added,
            )
            for noise, added in zip(noises, (add_baseline, add_candidate), strict=True)
        )
        term = run_term(baseline, candidate)
    within = StandardError(value=gap.within.value / step_factor**0.5, df=gap.within.df)
    return interval(gap.mean, within, term)


def _decides(measurements: Measurements, statistics: WindowStatistics, got: Interval) -> bool:
    distance = abs(statistics.margin.nats - got.mean) if statistics.margin else 0.0
    return got.half_width(*measurements.levels) < distance


def runs_that_decide(
    measurements: Measurements, statistics: WindowStatistics
) -> tuple[int, int] | None:
    """The fewest runs to add (baseline, candidate) so that the interval would leave the margin;
    None up to 16 in all.
    """
    for total in range(1, MAX_ADDED_RUNS + 1):
        if statistics.interval.run.seeds > 1:
            splits = [(total, total)]
        else:
            splits = [(total - candidate, candidate) for candidate in range(total, -1, -1)]
        widths = {
            split: predicted(statistics.interval, statistics.noises, *split, 1.0)
            for split in splits
        }
        best = min(splits, key=lambda split: widths[split].half_width(*measurements.levels))
        if _decides(measurements, statistics, widths[best]):
            return best
    return None


def steps_that_decide(measurements: Measurements, statistics: WindowStatistics) -> int | None:
    """Planned steps to add so that the interval would leave the margin; None where longer training
    can't do it.
    """
    for factor in STEP_FACTORS:
        if _decides(
            measurements,
            statistics,
            predicted(statistics.interval, statistics.noises, 0, 0, factor),
        ):
            return round((factor - 1.0) * measurements.window.planned_steps)
    return None


def sparse_log_that_decides(measurements: Measurements, statistics: WindowStatistics) -> int | None:
    """The log's interval in steps if a log of every step would leave the margin; None where it has
    every step, or that can't do it.
    """
    stride = max(run.completeness.stride or 1 for run in measurements.arms.runs)
    if stride > 1 and _decides(
        measurements, statistics, predicted(statistics.interval, statistics.noises, 0, 0, stride)
    ):
        return stride
    return None


def _straddle_sentence(
    measurements: Measurements,
    runs: tuple[int, int] | None,
    steps: int | None,
    stride: int | None,
    end_is_asked: bool,
) -> str:
    seeds = measurements.statistics is not None and measurements.statistics.interval.run.seeds > 1
    if runs is None and steps is None and stride is None:
        return (
            f"The gap is so near the margin that {MAX_ADDED_RUNS} more runs would not decide it: "
            "treat the recipes as at the margin. A margin that is chosen now decides nothing."
        )
    options = []
    if runs is not None:
        words = (
            count(runs[0], "more seed") + " in both arms"
            if seeds
            else _runs_words(measurements, runs)
        )
        options.append((sum(runs) * measurements.window.planned_steps, "add", words))
    if stride is not None:
        words = (
            "runs that log every step instead of every "
            f"{stride:,}{_cost(measurements.arms.runs[0], len(measurements.arms.runs))}"
        )
        options.append(
            (len(measurements.arms.runs) * measurements.window.planned_steps, "train", words)
        )
    if steps is not None:
        options.append(_longer(measurements, steps))
    if measurements.schedule.finished:
        without = "; more steps won't help."
    elif measurements.window.unreached or (
        measurements.window.plan == "unknown" and not end_is_asked
    ):
        without = "; or train on to the end of the schedule."
    else:
        without = "."
    tail = without if steps is None and stride is None else "."
    options.sort()  # the cheapest first, in steps to train
    if not measurements.multiplicity.left:
        return (
            f"Ask a new question that has {' or '.join(what for _, _, what in options)} from its "
            f"start{tail}"
        )
    words = " or ".join(f"{verb} {what}" for _, verb, what in options)
    look = f"(look {measurements.multiplicity.look + 1} of {measurements.multiplicity.looks})"
    return f"{words[0].upper()}{words[1:]} to decide {look}{tail}"


def _rest_of_log(measurements: Measurements) -> tuple[str, ...]:
    """The rest of a log that ends before the other arm's, before runs that would be trained on. A
    service has recorded all that there is.
    """
    if measurements.multiplicity.registered:
        return ()
    ends = [
        (
            max((int(run.steps[-1]) for run in arm.runs if len(run.steps)), default=0),
            max((run.completeness.stride or 1 for run in arm.runs), default=1),
            arm.name,
        )
        for arm in measurements.arms.both
    ]
    (last, stride, name), (end, other_stride, other) = sorted(ends)
    if not ends_early(last, end, max(stride, other_stride), end):
        return ()
    sentence = (
        f"Give the rest of {name}'s log, if it exists: it ends at step {last:,}, {other}'s at "
        f"{end:,}."
    )
    return (sentence,)


def _denser_log(stride: int | None) -> tuple[str, ...]:
    """A log that may exist already, before runs that would write it."""
    if stride is None:
        return ()
    sentence = (
        f"Does a log of every step exist, where this one has every {stride:,}? Then give it in "
        "both arms: this would decide."
    )
    return (sentence,)


def _longer(measurements: Measurements, steps: int) -> tuple[int, str, str]:
    """Steps to train in all, and words: runs whose schedule has ended have to be trained again, on
    a longer one.
    """
    runs, planned = measurements.arms.runs, measurements.window.planned_steps
    if not measurements.schedule.finished:
        return (
            len(runs) * steps,
            "train",
            f"{steps:,} more steps{_cost(runs[0], len(runs) * steps / planned)}",
        )
    share = len(runs) * (planned + steps) / planned
    return (
        len(runs) * (planned + steps),
        "train",
        f"runs that are {steps:,} steps longer{_cost(runs[0], share)}",
    )


def _runs_words(measurements: Measurements, runs: tuple[int, int]) -> str:
    sides = ((runs[1], measurements.arms.candidate), (runs[0], measurements.arms.baseline))
    return " and ".join(
        f"{count(added, f'more {arm.name} run')}{_cost(arm.runs[0], added)}"
        for added, arm in sides
        if added
    )


def _cost(run: Curve, runs: float) -> str:
    """What `runs` of this length cost, in words; "" where the step times are not on record."""
    seconds = np.asarray(run.columns.get("step_seconds", ()), dtype=np.float64)
    hours = float(seconds[np.isfinite(seconds)].sum()) / 3600.0
    if not hours:
        return ""
    devices = run.context.get("devices", "")
    if devices.isdecimal() and int(devices) > 1:
        return f" (about {runs * hours * int(devices):.3g} device hours)"
    return f" (about {runs * hours:.3g} hours of training)"


def _steps_by_code(
    measurements: Measurements,
    decision: Decision,
    layer_policy: str | None,
    layer_snr_db: LayerSnr | None,
    end_is_asked: bool,
) -> tuple[str, ...]:
    job = measurements.multiplicity.registered
    # a check failed, not the loss
    if (
        decision.state == FAIL
        and (step := BY_CODE[decision.deciding.code].next_for(job=job)) is not None
    ):
        return (step,)
    if decision.state == FAIL:
        entries = (BY_CODE[code] for code in decision.codes if measurements.compares == RECIPE)
        confounds = sorted(
            (entry for entry in entries if entry.explains_a_fail),
            key=lambda entry: entry is CONFOUNDED,
        )
        causes = [step for entry in confounds if (step := entry.next_for(job=job)) is not None]
        if causes:  # no layer is blamed while another cause is on record
            return tuple(causes)
        return (
            _step_after_fail(measurements, decision.deciding.code, layer_policy),
            *worst_layers(layer_snr_db or {}),
            *_state_recipe(measurements),
        )
    steps = (
        {code: BY_CODE[code].next_for(job=job) for code in decision.codes}
        | _fitting(measurements, decision, end_is_asked)
        | _steps_after_a_stop(measurements, decision)
    )
    sentences = [step for step in steps.values() if step is not None]
    deciding = BY_CODE[decision.deciding.code]
    if (
        decision.state == INCONCLUSIVE
        and deciding.code in _WARNINGS_WITHOUT_STEP
        and deciding.remedy
    ):
        sentences.insert(0, deciding.remedy)
    statistics = measurements.statistics
    if decision.state == PASS and "RUN_NOISE_ASSUMED" in decision.codes:
        sentences += _state_size(measurements)
    if (
        decision.deciding.code == "RUN_NOISE_ASSUMED"
        and statistics is not None
        and statistics.margin is not None
    ):
        margin = statistics.margin.nats
        passing = max(margin - statistics.interval.half_width(*measurements.levels), 0.0)
        sentences.append(_measure_noise(measurements, statistics))
        sentences.append(
            f"With the noise assumed, a true gap up to {passing:.{nats_decimals(margin)}f} nats "
            "can pass."
        )
        sentences += _state_size(measurements)
    return tuple(dict.fromkeys(sentences))


def _fitting(measurements: Measurements, decision: Decision, end_is_asked: bool) -> dict[str, str]:
    """The next steps that depend on what was given already, by code."""
    found = {}
    differing = [difference_words(measurements, entry) for entry in measurements.differing_context]
    if decision.deciding.code == CONFOUNDED.code and 0 < len(differing) <= MOST_NAMED:
        found[CONFOUNDED.code] = (
            f"Train both arms with the same {' and '.join(differing)}, so that only the "
            f"{measurements.compares} differs."
        )
    if AS_OF.code in decision.codes:
        found[AS_OF.code] = _finish(measurements, end_is_asked)
    if measurements.compares != RECIPE:
        found |= {
            code: words.format(compares=measurements.compares)
            for code, words in _ONE_RECIPE_STEPS.items()
            if code in decision.codes
        }
    if (
        NO_MARGIN in decision.codes
        and measurements.policy.margin is not None
        and measurements.policy.margin.unit == "tokens"
    ):
        found[NO_MARGIN] = SLOPE_NEEDED
    strides = {run.completeness.stride for run in measurements.arms.runs if run.completeness.stride}
    if TOO_FEW in decision.codes and len(strides) > 1:
        every = " and ".join(f"{stride:,}" for stride in sorted(strides))
        found[TOO_FEW] = (
            f"Log both arms at the same steps: their intervals are {every} steps, and only common "
            "steps count."
        )
    return found


def _finish(measurements: Measurements, end_is_asked: bool) -> str:
    """How a training that is not finished, or not known to be, gets a verdict at its end."""
    until = f"Until then read the gap as of step {measurements.schedule.step:,}."
    if measurements.window.unreached:
        return (
            f"Train every run to its planned last step, {measurements.window.at_plan.last:,}. "
            f"{until}"
        )
    if end_is_asked:
        return f"Else train to the end of the schedule and log the learning rate. {until}"
    if measurements.window.plan == "unknown":
        plan = "" if measurements.multiplicity.registered else ", and state its planned length"
        return (
            "Train every run to the end of its schedule with the learning rate in the log"
            f"{plan}. {until}"
        )
    what = f"The runs are at the end of their plan, but {measurements.schedule.why}."
    if measurements.policy.as_of == "accept" and measurements.policy.schedule != "decayed":
        how = (
            "schedule: decayed in the policy"
            if measurements.multiplicity.registered
            else "--schedule decayed"
        )
        return f"{what} Log the learning rate, or state that it had decayed ({how})."
    return (
        f"{what} Train with a schedule that ends within the plan and log the learning rate, or "
        "accept an answer as of this step (as_of: accept in the policy)."
    )


def _steps_after_a_stop(measurements: Measurements, decision: Decision) -> dict[str, str]:
    """What to do about runs that are not finished because the live rules stopped them, by code."""
    why = next(
        (
            note.removeprefix(STOPPED)
            for run in measurements.arms.runs
            for note in run.notes
            if note.startswith(STOPPED)
        ),
        None,
    )
    if why is None or AS_OF.code not in decision.codes:
        return {}
    words = f"Training on is not needed: the policy stops runs early, and {why.rstrip('.')}."
    return {
        AS_OF.code: f"{words} For a verdict at the planned end, submit the candidate with "
        "early_stop: advise."
    }


def _step_after_fail(measurements: Measurements, code: str, layer_policy: str | None) -> str:
    """The next experiments in order of cost, without those that the candidate's stated recipe has
    made already; of layers only where a quantized candidate fails against another recipe.
    """
    if measurements.compares != RECIPE:
        return _BISECT[measurements.compares]
    recipe = (measurements.arms.candidate.recipe or "").lower()
    if recipe and measurements.arms.baseline.recipe == measurements.arms.candidate.recipe:
        return f"Both arms train with {measurements.arms.candidate.recipe}: {_COMPARE_REST}"
    if is_in_bf16(recipe):
        return f"{measurements.arms.candidate.name} computes in {recipe}: {_COMPARE_REST}"
    if code in _BROKEN:
        return (BY_CODE[code].remedy or _BROKEN[code]) if recipe else _BROKEN[code]
    if any(run.context.get(ENGINE) == _COMMAND for run in measurements.arms.candidate.runs):
        return _LAUNCHER_WORDS
    if not recipe:
        return "Look at the first step where the arms diverge."
    return words_after_fail(recipe, layer_policy)


def named_change(document: VerdictDocument, layer_policy: str | None) -> Change | None:
    """What the first step after a fail of recipes changes; None where that step is another, because
    a check failed, the arms differ in more than the recipe or not in it, the candidate broke, or
    nothing is left to try.
    """
    entries = [BY_CODE[code] for code in document["codes"] if code in BY_CODE]
    if any(
        entry.next_for(job=True) is not None and (entry.explains_a_fail or entry is entries[0])
        for entry in entries
    ):
        return None
    recipe = document["candidate"]["recipe"]
    by_itself = entries[0].code in (NONFINITE_CAND.code, CANDIDATE_UNSTABLE.code)
    if not recipe or recipe == document["baseline"]["recipe"] or by_itself:
        return None
    return next(iter(changes_after_fail(recipe, layer_policy)), None)


def _state_recipe(measurements: Measurements) -> tuple[str, ...]:
    """What is missing for advice that fits the recipe; an arm's name says nothing about it."""
    arm = measurements.arms.candidate
    if arm.recipe is not None:
        return ()
    if measurements.multiplicity.registered:
        how = "in the job file"
    else:
        how = f"--recipe {shlex.quote(arm.name + '=RECIPE')}"
    return (
        f"The recipe of {arm.name} is not on record: state it ({how}) for a step that fits it.",
    )


def _state_size(measurements: Measurements) -> tuple[str, ...]:
    """What is missing on record of the model, by whose size its run-to-run noise may be assumed."""
    if measurements.multiplicity.registered or all(
        PARAMETERS in run.context for run in measurements.arms.runs
    ):
        return ()
    return (
        (
            "Has the model 10 million parameters or more? Then add its size, such as "
            "`--parameters 8B`: the assumed noise rests on it."
        ),
    )


def _measure_noise(measurements: Measurements, statistics: WindowStatistics) -> str:
    """Which arms need further runs before their noise is measured."""
    missing = math.ceil(MIN_MEASURED_DF - statistics.measured_df - statistics.early_df)
    if statistics.interval.run.seeds > 1:
        return f"Add {count(missing, 'seed')} to both arms to measure the run-to-run noise."
    bare = [
        arm.name
        for arm, noise in zip(measurements.arms.both, statistics.noises, strict=True)
        if not noise.has_reruns
    ]
    if not bare:
        return (
            f"Add {count(missing, 'replicate')} to either arm to measure the run-to-run noise on "
            f"{MIN_MEASURED_DF} degrees of freedom."
        )
    number = count(max(missing, len(bare)), "replicate")
    in_all = "in all, " if len(bare) > 1 else ""
    return (
        f"Add {number} of {' and '.join(bare)} ({in_all}same seed and data, another replicate "
        "number) to measure the run-to-run noise."
    )
