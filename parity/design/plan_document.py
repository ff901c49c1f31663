"""A plan as the JSON that the command line prints and the API returns."""

from typing import Any

from parity.canonical_json import json_value
from parity.design.plan import Plan
from parity.design.plan_words import advice, early_stops, errors, headline, looks, stops
from parity.design.search import WANTED_POWER


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON-able values, with its sentences; gaps and errors are in its `unit`."""
    words = {"headline": headline(plan), "advice": advice(plan)}
    words["note"] = f"{errors(plan)} {early_stops(plan)} {looks(plan)} {stops(plan)}".rstrip()
    return {**json_value(plan), **words, "wanted_power": WANTED_POWER}
