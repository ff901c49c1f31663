"""A plan in sentences: the answer first, then what it rests on and what would decide."""

from parity.design.experiment import cost_words, device_hours, early_words, run_steps, runs_words
from parity.design.plan import NATS, Plan, PlannedNoise
from parity.design.search import MAX_RUNS, WANTED_POWER
from parity.judging.noise.noise_table import ANY_DECODER
from parity.wording import count, level_percent, percent


def headline(plan: Plan) -> str:
    """What the design, or the best one inside the budget, can decide."""
    chance, needed = f"{100 * plan.pass_chance_by_the_end:.0f} %", f"{100 * WANTED_POWER:.0f} %"
    runs, verb = runs_words(plan.design), "decide" if plan.decides else "cannot decide"
    if plan.budget is None:
        looks = f", judged in up to {len(plan.looks)} looks," if plan.looks else ""
        subject = f"{runs}{looks} {verb} a margin of {margin_words(plan)}:"
    else:
        subject = (
            f"{plan.budget} {verb} a margin of {margin_words(plan)}: the "
            f"{'cheapest' if plan.decides else 'best'} plan inside is {runs};"
        )
    if plan.looks:
        chance = f"{chance} probability by look {len(plan.looks)}"
    else:
        chance = f"{chance} probability"
    if plan.decides:
        return f"{subject} a true gap of 0 passes with {chance}."
    if plan.no_pass:
        return f"{subject} a pass is impossible, because {plan.no_pass}."
    line = f"{subject} a true gap of 0 passes with {chance}, and {needed} are needed."
    if plan.smallest_margin is None:
        return line
    smallest = share_words(plan, plan.smallest_margin)
    return (
        f"{line} {'At the first look they' if plan.looks else 'They'} decide a margin of "
        f"{share_words(plan, plan.smallest_margin, 3) if smallest == margin_words(plan) else smallest}."  # noqa: E501
    )


def advice(plan: Plan) -> str:
    """A denser log where that is enough; else the cheapest design that decides, if it is not the
    planned one, or what to do instead.
    """
    if plan.every_step_decides:
        return (
            "The same runs decide if they log every step instead of every "
            f"{plan.design.log_every:,}."
        )
    if plan.cheapest is None:
        return (
            f"No design of up to {MAX_RUNS} runs per arm decides: state a wider margin, or measure "
            "and declare the run-to-run noise."
        )
    cheapest = f"{runs_words(plan.cheapest)}, {cost_words(plan.cheapest)}"
    if plan.looks:
        return f"The cheapest plan that decides at its first look: {cheapest}."
    if not plan.decides:
        return f"The cheapest plan with {100 * WANTED_POWER:.0f} % power: {cheapest}."
    if run_steps(plan.cheapest) < plan.run_steps:
        return f"A cheaper one decides too: {cheapest}."
    return "No cheaper plan decides."


def cost(plan: Plan) -> str:
    """What the design costs."""
    return f"Cost: {cost_words(plan.design)}."


def noise(plan: Plan) -> str:
    """The run-to-run noise that is planned with, by arm, and why a family that was named is not
    used.
    """
    baseline, candidate = plan.run_noise
    if len({(arm.share, arm.basis, arm.family_unused) for arm in plan.run_noise}) == 1:
        words = f"Run-to-run noise: {_noise_words(baseline)}, in both arms."
    else:
        words = (
            f"Run-to-run noise: baseline {_noise_words(baseline)}; candidate "
            f"{_noise_words(candidate)}."
        )
    unused = [
        f" The {arm.arm} does not borrow: {arm.family_unused}."
        for arm in plan.run_noise
        if arm.family_unused
    ]
    if any(arm.basis.startswith(f"assumed as in {ANY_DECODER}") for arm in plan.run_noise):
        unused.append(
            f" {ANY_DECODER} holds only for runs that finish their schedule and log the learning "
            "rate."
        )
    return f"{words} Noisier runs are decided less often, and wrongly more often.{''.join(unused)}"


def errors(plan: Plan) -> str:
    """The half-width, and which part of the error more steps and more runs shrink."""
    half, within, run = (
        amount(plan, value) for value in (plan.half_width, plan.within_se, plan.run_se)
    )
    return (
        f"The interval reaches {half} to each side. More steps shrink only the within-pair error "
        f"({within}); the between-run error ({run}) needs runs."
    )


def early_stops(plan: Plan) -> str:
    """Whether these reruns that stop early are worth their cost, with the half-width that they
    reach and that of full runs for it; those of the cheapest plan are: full runs cost more.
    """
    both = plan.early_stops
    named = early_words(both.design)
    is_one = both.design.short_reruns == 1
    if both.design == plan.cheapest:
        return (
            f"{named} {'pays' if is_one else 'pay'} here: no full runs for "
            f"{run_steps(both.design):,} run-steps decide."
        )
    pays = both.half_width < both.replicates_half_width
    if pays:
        verb = "pays" if is_one else "pay"
    else:
        verb = "does not pay" if is_one else "do not pay"
    early, full = (
        f"{runs_words(design)} reach {amount(plan, half)} to each side ({run_steps(design):,} "
        "run-steps)"
        for design, half in (
            (both.design, both.half_width),
            (both.replicates, both.replicates_half_width),
        )
    )
    return f"{named} {verb} here: {early}, {full}."


def looks(plan: Plan) -> str:
    """What further looks decide and cost, and how many candidates share the error; "" where there
    is one look and one candidate.
    """
    first = plan.design
    level = level_percent(plan.confidence)
    if first.candidates > 1:
        shared = f"{first.candidates} candidates share the error: each interval is at {level}."
    else:
        shared = ""
    if not plan.looks:
        return shared
    if plan.no_pass:
        return shared
    last = plan.looks[-1]
    hours = f" ({device_hours(last.gpu_hours)})" if last.gpu_hours is not None else ""
    levels = ", ".join(level_percent(look.confidence) for look in plan.looks)
    steps = ", ".join(f"{100 * look.passed:.0f} % by look {look.look}" for look in plan.looks)
    words = (
        f"The looks are at {levels}, with one more run per arm after each that leaves it open: a "
        f"true gap of 0 passes with {steps}"
    )
    return f"{shared} {words}, for {last.run_steps:,.0f} run-steps{hours} on average.".strip()


def stops(plan: Plan) -> str:
    """What stopping candidates that will fail or are futile saves; "" where the policy only
    advises.
    """
    if not plan.stops:
        return ""
    rows = []
    for row in plan.stops:
        hours = f", {device_hours(row.saved_gpu_hours)}" if row.saved_gpu_hours is not None else ""
        gap = "no gap" if row.gap_in_margins == 0.0 else f"{row.gap_in_margins:g} x margin"
        rows.append(
            f"{gap}: stopped in {100 * row.stopped:.0f} %, {row.saved_run_steps:,.0f} steps{hours} "
            "saved on average"
        )
    return f"With early_stop: stop, a candidate with a constant gap: {'; '.join(rows)}."


def one_line(plan: Plan) -> str:
    """The answer for a job before it trains, without a full stop."""
    design = plan.design
    one = design.baseline_runs == design.candidate_runs == 1
    runs = (
        "one run per arm" if one else f"{design.baseline_runs} against {design.candidate_runs} runs"
    )
    noisiest = max(plan.run_noise, key=lambda arm: arm.share)
    basis = noisiest.basis.partition(" ")[0]
    conditions = (
        f"margin {margin_words(plan)}, {runs}, {basis} run-to-run noise {percent(noisiest.share)}"
    )
    conditions += f", {early_words(design)}" if design.short_reruns else ""
    conditions += f", {count(design.controls, 'control')}" if design.controls else ""
    conditions += f", {design.candidates} candidates" if design.candidates > 1 else ""
    if plan.no_pass:
        return f"This job cannot pass: {plan.no_pass} ({conditions})"
    end_chance = (
        f", {100 * plan.looks[-1].passed:.0f} % by look {len(plan.looks)}" if plan.looks else ""
    )
    return (
        f"Chance to pass if it is as good as the baseline: {100 * plan.pass_chance:.0f} "
        f"%{end_chance} ({conditions})"
    )


def margin_words(plan: Plan) -> str:
    """The margin as a share of the loss, and in nats where the loss is known."""
    return share_words(plan, plan.margin)


def share_words(plan: Plan, value: float, digits: int = 2) -> str:
    """A difference as a share of the loss, with the nats where the loss is known: "1.0 % (0.0390
    nats)".
    """
    share = percent(value / (plan.design.level or 1.0), digits)
    if plan.unit == NATS:
        return f"{share} ({value:.4f} nats)"
    return share


def amount(plan: Plan, value: float) -> str:
    """A difference in the plan's unit."""
    if plan.unit == NATS:
        return f"{value:.4f} nats"
    return f"{percent(value)} of the loss"


def _noise_words(noise: PlannedNoise) -> str:
    return f"{percent(noise.share)} of the loss, {noise.basis}"
