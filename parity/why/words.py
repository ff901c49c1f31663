"""A plan and an answer in lines of text, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.why.search import label
from parity.wording import age_in_words, count, interval_words, percent, signed

NO_VERDICT = "This ranks causes; it is no verdict. Confirm a change by a job of its own, which the judge reads."
IF_NONE_IS_NAMED = (
    "Longer forks (--fork-steps) or an earlier checkpoint (--step) can show more; ablation runs (--ablation) show the whole gap."
)
_SHOWN = 5
_DECIMALS = 4


def nats(own: Mapping[str, float]) -> str:
    """An estimate with its interval."""
    return f"{signed(own['value'], _DECIMALS)} ({interval_words(own['low'], own['high'], _DECIMALS)})"


def gap_words(gap: Mapping[str, Any]) -> str:
    """The gap of the full runs and their verdict."""
    if gap["gap"] is None or gap["low"] is None or gap["high"] is None:
        return f"not measured, {gap['verdict']}"
    return f"{nats({'value': gap['gap'], 'low': gap['low'], 'high': gap['high']})} nats, {gap['verdict']}"


def off_words(plan: Mapping[str, Any]) -> str:
    """What a unit has that is off."""
    return "the baseline's arithmetic" if plan["against"] == "baseline" else "bf16"


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What an analysis measures and what it costs."""
    yield f"{plan['candidate']} of {plan['explains_name']} ({plan['explains']}); a unit that is off has {off_words(plan)}"
    yield f"gap of the full runs: {gap_words(plan['gap'])}"
    parents = count(len(plan["parents"]), "run")
    units = count(len(plan["units"]), "unit")
    where = f"at step {plan['fork_step']:,} of {parents} of the {plan['origin']}"
    yield f"measures: {units} (GEMM of a layer) {where}, by forks of {plan['fork_steps']} steps"
    share = percent(plan["steps_for_one"] / plan["pair_steps"])
    time = f"; about {age_in_words(plan['seconds'])}" if plan["seconds"] is not None else ""
    yield (
        f"cost: about {plan['steps_for_one']:,.0f} steps to find one unit, {share} of a pair's {plan['pair_steps']:,}{time}; "
        f"at least {plan['least_steps']:,.0f}, at most {plan['most_steps']:,.0f}"
    )
    if plan["smallest_effect"] is not None:
        yield f"sees: effects of one unit from about {plan['smallest_effect']:.4f} nats on, if forks vary an eighth as much as reruns"
    if len(plan["parents"]) < 3:
        yield f"note: {parents} kept the checkpoint; 3 or more say more about other runs than these"


def answer_lines(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """What an analysis found so far."""
    yield f"gap of the full runs: {gap_words(plan['gap'])}"
    effect = answer["effect"]
    if effect is None:
        yield f"{answer['steps_spent']:,.0f} of at most {plan['most_steps']:,.0f} steps are done; the forks have no result yet"
    else:
        yield from _fork_lines(plan, answer, effect)
    if answer["instant"] is not None:
        yield from _instant_lines(answer["instant"])
    if answer["gradients"]:
        yield _gradient_line(answer["gradients"])
    yield f"cost: {answer['steps_spent']:,.0f} steps, {percent(answer['steps_spent'] / plan['pair_steps'])} of a pair's"
    yield NO_VERDICT


def ablation_lines(own: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a gap by the user's own ablation runs."""
    yield f"{own['candidate']} of {own['job_name']} ({own['job']}), by ablation runs: a part is its gap minus that of the ablation"
    yield f"gap of the full runs: {gap_words(own['gap'])}"
    replicates = count(own["pairs"], "replicate")
    yield f"whole: {own['candidate']} minus {own['baseline']}: {nats(own['whole'])} nats, over {replicates} of every arm"
    for each in own["parts"]:
        yield f"  {each['name']}: gains {nats(each['part'])}, leaves {nats(each['left'])}"
    yield f"sum of the parts: {nats(own['total'])}; unexplained: {nats(own['unexplained'])}"
    if own["assumed"]:
        yield f"note: {assumed_words(own['assumed'])}"
    for each in own["left_out"]:
        yield f"left out: {each}"
    yield f"not measured: {own['cannot']}"
    yield NO_VERDICT


def assumed_words(arms: Sequence[str]) -> str:
    """That the run noise of these arms is not measured."""
    return (
        f"{', '.join(arms)} {'has' if len(arms) == 1 else 'have'} one run, so the run noise in these intervals is an assumption; "
        "train 2 or more replicates per arm"
    )


def _fork_lines(plan: Mapping[str, Any], answer: Mapping[str, Any], effect: Mapping[str, float]) -> Iterator[str]:
    yield f"effect at step {plan['fork_step']:,}: with all units on the loss is {nats(effect)} nats higher after {plan['fork_steps']} steps"
    gap = plan["gap"]["gap"]
    if gap and answer["named"]:
        yield f"  {percent(effect['value'] / gap)} of the gap; the rest built up before this checkpoint, or takes longer to show"
    for each in answer["named"]:
        yield f"named: {label(each['units'])}: alone it costs {nats(each['alone'])}, switching it off gains {nats(each['without'])}"
        if len(each["units"]) > 2:
            yield f"  units: {', '.join(each['units'])}"
    if not answer["named"]:
        yield f"named: none; the effect cannot be told from the noise of forks. {IF_NONE_IS_NAMED}"
    else:
        if answer.get("interaction"):  # an answer of an earlier version has none
            yield f"interaction: {nats(answer['interaction'])}: what switching all of them off gains, minus the sum of these gains"
        if answer["unexplained"]:
            yield f"unexplained at the checkpoint: {nats(answer['unexplained'])}"
    for units in answer["untested"]:
        yield f"not tested{', the largest cost was reached' if answer['stopped'] else ' yet'}: {label(units)}"
    if answer["stopped"] and not answer["untested"]:
        yield "stopped: the largest cost was reached before more forks could tell parts of what is named apart"
    noise = answer["noise"]
    sizes = f"{noise['on']:.5f} nats with all units on, {noise['off']:.5f} with all off"
    yield f"noise of forks: {sizes}; {noise['df']:.0f} degrees of freedom, {count(noise['parents'], 'run')}"


def _instant_lines(instant: Mapping[str, Any]) -> Iterator[str]:
    yield f"forward pass at once: the quantized loss is {nats(instant['whole'])} nats higher on the same weights"
    parts: Sequence[Mapping[str, Any]] = sorted(instant["units"], key=lambda part: -abs(part["without"]["value"]))[:_SHOWN]
    for part in (*parts, *instant["ingredients"]):
        if part["without"]["value"]:
            yield f"  without {part['name']}: {nats(part['without'])} less"
    yield f"  unexplained by single units: {nats(instant['unexplained_without'])}"


def _gradient_line(gradients: Sequence[Mapping[str, Any]]) -> str:
    whole, *units = gradients
    largest = sorted(units, key=lambda each: -each["error"]["value"])[:_SHOWN]
    parts = ", ".join(f"{each['name']} {percent(each['error']['value'])}" for each in largest)
    return f"error of the gradient against bf16: {percent(whole['error']['value'])} in all; largest alone: {parts}"
