"""A healing in lines of text, as the command line prints its plan and its answer."""

from collections.abc import Iterator, Mapping
from typing import Any

from parity.wording import count, percent, short_percent, signed
from parity_lab.answer import DECIMALS
from parity_lab.answer_lines import gap_words, nats
from parity_lab.healing_answer import net_speedup

NO_VERDICT_YET = (
    "This is no pass: no gate takes it. The verdict of a job of its own, which trains the switch "
    "from step 0, is one."
)
SHARED_START = (
    "A fork shares its steps before the switch with the candidate's runs, so every look has their "
    "seeds and their luck; other seeds are the job's own verdict."
)


def healing_plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What a healing looks at and what it costs."""
    scope = "" if plan["gemms"] == "all" else ", for its forward products alone"
    yield (
        f"{plan['candidate']} of {plan['heals_name']} ({plan['heals']}), then {plan['recipe']} to "
        f"the end{scope}"
    )
    yield f"gap of the full runs: {gap_words(plan['gap'])}{_margin_words(plan['margin'])}"
    steps = ", ".join(f"{step:,}" for step in plan["steps"])
    yield (
        f"looks: at most {plan['most_looks']} of the switches at {steps} of {plan['run_steps']:,} "
        f"steps, each by forks of {count(len(plan['parents']), 'run')}"
    )
    yield (
        f"error: each look has that of one verdict divided by {len(plan['steps'])}, the number of "
        "kept steps"
    )
    yield (
        f"cost: {_cost(plan['least_steps'], plan['least_device_hours'])} for the first look, at "
        f"most {_cost(plan['most_steps'], plan['most_device_hours'])}"
    )


def healing_lines(document: Mapping[str, Any], speedup: float | None = None) -> Iterator[str]:
    """What a healing found so far. `speedup`: how much faster than the baseline the candidate
    trains, where that was not measured.
    """
    plan, answer = document["plan"], document["answer"]
    yield lead(plan, answer)
    for look in answer["looks"]:
        yield f"  from step {look['step']:,} ({percent(look['share'])}): {_look_words(look)}"
    if not answer["looks"]:
        yield "  no look has ended yet"
    yield (
        f"  from the end (100 %), the candidate: {gap_words(plan['gap'])}"
        f"{_margin_words(plan['margin'])}"
    )
    yield from remarks(document, speedup)
    yield f"cost: {answer['steps_spent']:,.0f} steps of training"
    proposal = document["proposal"]
    if proposal is not None:
        yield f"next: {proposal['label']}: add to the candidate in the job file: {proposal['line']}"
    yield NO_VERDICT_YET


def remarks(document: Mapping[str, Any], speedup: float | None = None) -> Iterator[str]:
    """What the answer does not say, its net speedup, and the checkpoints to keep next time."""
    plan, answer = document["plan"], document["answer"]
    yield from _limits(plan, answer)
    yield from _speed_lines(plan, answer, speedup)
    yield f"not known: {SHARED_START}"
    if answer["switch"] is None and answer["complete"] and answer["keep"]:
        yield f"next: {keep_words(answer)}"


def lead(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    candidate, then = plan["candidate"], _then_words(plan)
    switch = answer["switch"]
    so_far = "" if answer["complete"] else "so far: "
    if switch is not None:
        look = next(row for row in answer["looks"] if row["step"] == switch)
        ends = ""
        if look["gap"] is not None:
            side = "above" if look["gap"] >= 0 else "below"
            ends = f": it ends {abs(look['gap']):.4f} nats {side} {plan['baseline']}"
            if answer["margin_share"] is not None and look["gap"] >= 0:
                ends += f", {percent(answer['margin_share'])} of the margin"
        return (
            f"{so_far}{candidate} may be used to step {switch:,} of {plan['run_steps']:,} "
            f"({percent(answer['share'])}), then {then}{ends}"
        )
    if answer["outcome"] == "none":
        first = plan["steps"][0]
        return (
            f"{so_far}{then} from step {first:,} ({percent(first / plan['run_steps'])}), the "
            f"earliest kept one, does not heal {candidate}"
        )
    return f"{so_far}inconclusive: no switch of {candidate} to {then} is known to pass"


def keep_words(answer: Mapping[str, Any]) -> str:
    """The checkpoints that would bring the answer closer, as the line of a job file."""
    return (
        f"add keep_checkpoints: {answer['keep']} to the job file and train it again, for a switch "
        "between those looked at"
    )


def _limits(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """What the answer does not say."""
    if answer["switch"] is not None and answer["complete"]:
        until = answer["until"]
        if until < plan["run_steps"]:
            look = next(row for row in answer["looks"] if row["step"] == until)
            state = "fails" if look["verdict"] == "fail" else "is open"
            between = "" if answer["untested"] else "; no checkpoint between the two was kept"
            yield f"the switch at step {until:,} {state}{between}"
    if answer["outcome"] == "open" and answer["looks"]:
        look = answer["looks"][0]
        yield f"why the switch at step {look['step']:,} is open: {look['sentence']}"
    estimate = answer.get("estimate")  # an answer of an earlier version has none
    if answer["outcome"] == "open" and estimate is not None:
        yield (
            f"estimate: by the gaps alone, the switch at step {estimate:,} "
            f"({percent(estimate / plan['run_steps'])}) is the latest kept one within the margin; "
            "no look shows it, so more runs of both arms have to"
        )
    if answer["is_stopped"]:
        untested = ", ".join(f"{step:,}" for step in answer["untested"])
        yield f"stopped: the largest cost was reached before the switches at {untested}"
    for pair in answer["contradictions"]:
        yield (
            f"the switch at step {pair['earlier']:,} has a larger gap than the later one at "
            f"{pair['later']:,}, so a later switch may pass that was not looked at"
        )


def _speed_lines(
    plan: Mapping[str, Any], answer: Mapping[str, Any], stated: float | None
) -> Iterator[str]:
    if answer["share"] is None:
        return
    speedup, source = (plan["speedup"], "measured") if stated is None else (stated, "stated")
    share = percent(answer["share"])
    if speedup is None:
        yield (
            f"speed: {share} of the steps are trained with {plan['candidate']}; --speedup X, how "
            "much faster than the baseline it trains, gives the net speedup"
        )
        return
    yield (
        f"speed: {net_speedup(answer['share'], speedup):.2f} x the baseline net of the healed "
        f"share, by {speedup:g} x ({source}) for {share} of the steps"
    )


def _then_words(plan: Mapping[str, Any]) -> str:
    recipe: str = plan["recipe"]
    return recipe if plan["gemms"] == "all" else f"{recipe} in the forward products"


def _look_words(look: Mapping[str, Any]) -> str:
    """The gap of a look with its interval at the level that decided, and its verdict."""
    if look["gap"] is None:
        return f"{look['verdict']} ({look['code']}), its gap was not measured"
    estimate = {"value": look["gap"], "low": look["low"], "high": look["high"]}
    return f"{nats(estimate)} nats at {short_percent(look['level'])}, {look['verdict']}"


def _margin_words(margin: float | None) -> str:
    return "" if margin is None else f", margin {signed(margin, DECIMALS)}"


def _cost(steps: float, hours: float | None) -> str:
    in_hours = "" if hours is None else f" ({hours:.2g} device hours)"
    return f"{steps:,.0f} steps{in_hours}"
