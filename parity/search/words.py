"""A search in lines of text, as the command line prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.search.exports import export_lines
from parity.wording import age_in_words, count, interval_words, signed

_SHOWN = 8


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What a search runs, costs and guarantees."""
    yield f"{plan['candidate']} of {plan['base_name']} ({plan['base']}): {plan['candidate_speed']:.2f} times the baseline's speed per step"
    names = ", ".join(each["name"] for each in plan["switches"])
    yield f"space: {2 ** len(plan['switches']):,} policies of {count(len(plan['switches']), 'switch', 'switches')}: {names}"
    source = switches_words(plan)
    if source:
        yield f"switches: {source}"
    parents = count(len(plan["parents"]), "baseline run")
    yield f"forks: {plan['fork_steps']} steps from step {plan['fork_step']:,} of {parents}; at most {count(plan['pilots'], 'pilot run')}"
    yield (
        f"confirmation: {count(plan['pairs'], 'fresh pair')} at {100 * plan['confidence']:.4g} %, at most {plan['confirmations']} times; "
        f"aims at gaps up to {plan['target']:.4f} nats, which pass with 95 % power (margin {plan['margin']:.4f})"
    )
    time = f"; the most takes about {age_in_words(plan['seconds'])} on one device" if plan["seconds"] is not None else ""
    yield f"cost: {plan['least_steps']:,.0f} to {plan['most_steps']:,.0f} steps; a pair of full runs has {plan['pair_steps']:,}{time}"
    yield f"guarantee: {plan['guarantee']} It counts for one search on this question, and is as good as the judge's interval."


def switches_words(plan: Mapping[str, Any]) -> str:
    """Where the switches come from; empty for a search that did not record it."""
    source = plan.get("switches_from")  # a server of an older version has none
    if source == "analysis":
        return f"what analysis {plan['analysis']} named, then the other blocks"
    if source == "default":
        return f"attention and MLP by GEMM; no analysis of {plan['base']} names a part (`parity why {plan['base']}` makes one)"
    return "as named in search.switches" if source == "request" else ""


def step_line(step: Mapping[str, Any]) -> str:
    """A step in one line."""
    what = step["policies"][0] if len(step["policies"]) == 1 else count(len(step["policies"]), "policy", "policies")
    return f"step {step['number']}: {step['kind']} of {what}, {step['cost']:,.0f} steps, {step['status']}" + (
        f": {step['outcome']}" if step["outcome"] else ""
    )


def answer_lines(search: Mapping[str, Any]) -> Iterator[str]:
    """How a search ended."""
    if search["policy"] is None:
        yield f"no policy: {search['message']}"
    else:
        own = next(each for each in search["policies"] if each["policy"] == search["policy"])
        back = ", ".join(own["takes_back"]) or "nothing"
        yield f"confirmed: policy {own['policy']}, {search['speed']:.2f} times the baseline's speed per step; takes back {back}"
        last = next(step for step in reversed(search["steps"]) if step["kind"] == "confirmation")
        yield f"{last['outcome']}; job {last['job']}"
    yield f"{search['steps_spent']:,.0f} steps spent in {count(len(search['steps']), 'step')}"
    for each in search["policies"][:_SHOWN]:
        gap = f"{signed(each['gap'], 4)} nats ({interval_words(each['low'], each['high'], 4)})"
        yield f"  {each['policy']}  {each['speed']:.2f}x  {gap}  {each['state']}"
    if search["policy"] is not None:
        candidate = search["job"]["candidates"][0]
        yield from export_lines(candidate["recipe"], candidate.get("overrides", ()))
    yield f"guarantee: {search['plan']['guarantee']}"
