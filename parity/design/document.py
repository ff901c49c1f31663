"""A plan as the JSON that the command line prints and the API returns."""

from typing import Any

from parity.canonical_json import json_value
from parity.design import sentences
from parity.design.plan import Plan
from parity.design.search import WANTED_POWER


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON-able values, with its sentences; gaps and errors are in its `unit`."""
    words = {"headline": sentences.headline(plan), "advice": sentences.advice(plan)}
    words["note"] = f"{sentences.errors(plan)} {sentences.early_stops(plan)} {sentences.looks(plan)} {sentences.stops(plan)}".rstrip()
    return {**json_value(plan), **words, "wanted_power": WANTED_POWER}
