"""A plan and an answer in lines of text, as the command line prints them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.wording import age_in_words, count, interval_words, percent, signed
from parity_lab.analysis import label
from parity_lab.answer import DECIMALS
from parity_lab.replay import NOT_IN_PRECISION

NO_VERDICT = (
    "This ranks causes; it is no verdict. Confirm a change by a job of its own, which the judge "
    "reads."
)
NO_CAUSE_NEXT = (
    "Longer forks (--fork-steps) or an earlier checkpoint (--step) can show more; ablation runs "
    "(--ablation) show the whole gap."
)
NO_PRECISION_NEXT = (
    "Look for what else than its specification decided that run (data, checkpoint, code, machine), "
    "and train it again."
)
NO_REPLAY_NEXT = "Train the job again, with its checkpoints, and ask again."
_SHOWN = 5


def nats(estimate: Mapping[str, float]) -> str:
    """An estimate with its interval."""
    interval = interval_words(estimate["low"], estimate["high"], DECIMALS)
    return f"{signed(estimate['value'], DECIMALS)} ({interval})"


def nats_words(gap: float, low: float, high: float) -> str:
    """A gap with its interval: "+0.0120 nats (+0.0080 to +0.0160)"."""
    return f"{signed(gap, DECIMALS)} nats ({interval_words(low, high, DECIMALS)})"


def gap_words(gap: Mapping[str, Any]) -> str:
    """The gap of the full runs and their verdict."""
    if gap["gap"] is None or gap["low"] is None or gap["high"] is None:
        return f"not measured, {gap['verdict']}"
    return (
        f"{nats({'value': gap['gap'], 'low': gap['low'], 'high': gap['high']})} nats, "
        f"{gap['verdict']}"
    )


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What an analysis measures and what it costs."""
    off = "the baseline's arithmetic" if plan["against"] == "baseline" else "bf16"
    yield (
        f"{plan['candidate']} of {plan['explains_name']} ({plan['explains']}); a GEMM that is off "
        f"has {off}"
    )
    yield f"gap of the full runs: {gap_words(plan['gap'])}"
    parents = count(len(plan["parents"]), "run")
    units = count(len(plan["gemms"]), "GEMM")
    where = f"at step {plan['fork_step']:,} of {parents} of the {plan['origin']}"
    yield f"measures: {units} {where}, by forks of {plan['fork_steps']} steps"
    replayed = plan.get("replays") or ()
    if replayed:
        steps = sum(replay["steps"] for replay in replayed)
        yield (
            f"first: {steps:,} recorded steps of "
            f"{count(len({replay['run'] for replay in replayed}), 'run')} are trained again and "
            "compared"
        )
    share = percent(plan["steps_for_one"] / plan["pair_steps"])
    time = f"; about {age_in_words(plan['seconds'])}" if plan["seconds"] is not None else ""
    yield (
        f"cost: about {plan['steps_for_one']:,.0f} steps to find one GEMM, {share} of a pair's "
        f"{plan['pair_steps']:,}{time}; "
        f"at least {plan['least_steps']:,.0f}, at most {plan['most_steps']:,.0f}"
    )
    if plan["smallest_effect"] is not None:
        yield (
            f"sees: effects of one GEMM from about {plan['smallest_effect']:.4f} nats on, if forks "
            "vary an eighth as much as reruns"
        )
    if len(plan["parents"]) < 3:
        yield f"note: {parents} kept the checkpoint; 3 or more say more about other runs than these"


def answer_lines(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """What an analysis found so far."""
    yield f"gap of the full runs: {gap_words(plan['gap'])}"
    yield from _replay_lines(plan, answer)
    if (answer.get("replay") or {}).get("code"):
        yield f"cost: {answer['steps_spent']:,.0f} steps"
        return
    effect = answer["effect"]
    if effect is None:
        yield (
            f"{answer['steps_spent']:,.0f} of at most {plan['most_steps']:,.0f} steps are done; "
            "the forks have no result yet"
        )
    else:
        yield from _fork_lines(plan, answer, effect)
    if answer["instant"] is not None:
        yield from _instant_lines(answer["instant"])
    if answer["gradients"]:
        yield _gradient_line(answer["gradients"])
    yield (
        f"cost: {answer['steps_spent']:,.0f} steps, "
        f"{percent(answer['steps_spent'] / plan['pair_steps'])} of a pair's"
    )
    yield NO_VERDICT


def _replay_lines(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    replay = answer.get("replay")  # an answer of an earlier version has none
    if not replay:
        return
    if replay["code"]:
        for difference in plan.get("differences", ()):
            yield (
                f"differs on record: {difference['key']}: {difference['baseline']} in the "
                f"baseline, {difference['other']} in the candidate"
            )
        if not plan.get("differences"):
            yield "on record the arms differ only in precision"
    yield f"replay: {replay['sentence']}"
    if replay["code"]:
        yield (
            "named: none. "
            f"{NO_PRECISION_NEXT if replay['code'] == NOT_IN_PRECISION else NO_REPLAY_NEXT}"
        )


def ablation_lines(ablation: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a gap by the user's own ablation runs."""
    yield (
        f"{ablation['candidate']} of {ablation['job_name']} ({ablation['job']}), by ablation "
        "runs: a part is its gap minus that of the ablation"
    )
    yield f"gap of the full runs: {gap_words(ablation['gap'])}"
    replicates = count(ablation["pairs"], "replicate")
    yield (
        f"whole: {ablation['candidate']} minus {ablation['baseline']}: {nats(ablation['whole'])} "
        f"nats, over {replicates} of every arm"
    )
    for part in ablation["parts"]:
        yield f"  {part['name']}: gains {nats(part['part'])}, leaves {nats(part['left'])}"
    yield (
        f"sum of the parts: {nats(ablation['total'])}; unexplained: {nats(ablation['unexplained'])}"
    )
    if ablation["assumed"]:
        yield f"note: {assumed_words(ablation['assumed'])}"
    for sentence in ablation["left_out"]:
        yield f"left out: {sentence}"
    yield f"not measured: {ablation['cannot']}"
    yield NO_VERDICT


def assumed_words(arms: Sequence[str]) -> str:
    """That the run-to-run noise of these arms is not measured."""
    return (
        f"{', '.join(arms)} {'has' if len(arms) == 1 else 'have'} one run, so the run-to-run noise "
        "in these intervals is an assumption; train 2 or more replicates per arm"
    )


def _fork_lines(
    plan: Mapping[str, Any], answer: Mapping[str, Any], effect: Mapping[str, float]
) -> Iterator[str]:
    yield (
        f"effect at step {plan['fork_step']:,}: with all GEMMs on the loss is {nats(effect)} nats "
        f"higher after {plan['fork_steps']} steps"
    )
    gap = plan["gap"]["gap"]
    if gap and answer["named"]:
        yield (
            f"  {percent(effect['value'] / gap)} of the gap; the rest built up before this "
            "checkpoint, or takes longer to show"
        )
    for part in answer["named"]:
        yield (
            f"named: {label(part['gemms'])}: alone it costs {nats(part['alone'])}, switching it "
            f"off gains {nats(part['without'])}"
        )
        if len(part["gemms"]) > 2:
            yield f"  GEMMs: {', '.join(part['gemms'])}"
    if not answer["named"]:
        yield f"named: none; the effect cannot be told from the noise of forks. {NO_CAUSE_NEXT}"
    else:
        if answer.get("interaction"):  # an answer of an earlier version has none
            yield (
                f"interaction: {nats(answer['interaction'])}: what switching all of them off "
                "gains, minus the sum of these gains"
            )
        if answer["unexplained"]:
            yield f"unexplained at the checkpoint: {nats(answer['unexplained'])}"
    for units in answer["untested"]:
        yield (
            f"not tested{', the largest cost was reached' if answer['stopped'] else ' yet'}: "
            f"{label(units)}"
        )
    if answer["stopped"] and not answer["untested"]:
        yield (
            "stopped: the largest cost was reached before more forks could tell parts of what is "
            "named apart"
        )
    noise = answer["noise"]
    sizes = f"{noise['on']:.5f} nats with all GEMMs on, {noise['off']:.5f} with all off"
    yield (
        f"noise of forks: {sizes}; {noise['df']:.0f} degrees of freedom, "
        f"{count(noise['parents'], 'run')}"
    )


def _instant_lines(instant: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"forward pass at once: the quantized loss is {nats(instant['whole'])} nats higher on the "
        "same weights"
    )
    parts: Sequence[Mapping[str, Any]] = sorted(
        instant["gemms"], key=lambda part: -abs(part["without"]["value"])
    )[:_SHOWN]
    for part in (*parts, *instant["ingredients"]):
        if part["without"]["value"]:
            yield f"  without {part['name']}: {nats(part['without'])} less"
    yield f"  unexplained by single GEMMs: {nats(instant['unexplained_without'])}"


def _gradient_line(gradients: Sequence[Mapping[str, Any]]) -> str:
    whole, *units = gradients
    largest = sorted(units, key=lambda unit: -unit["error"]["value"])[:_SHOWN]
    parts = ", ".join(f"{unit['name']} {percent(unit['error']['value'])}" for unit in largest)
    return (
        f"error of the gradient against bf16: {percent(whole['error']['value'])} in all; largest "
        f"alone: {parts}"
    )
