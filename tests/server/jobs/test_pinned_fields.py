"""Every field of what a gate can send has an entry: pinned, or free with the reason why it can't
help a worse candidate.
"""

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from server.api.gate import GateRequest
from server.jobs import pinned_fields
from server.jobs.pinned_fields import FREE, PARTS, PINNED_NAMES, REQUEST, choice

OWN_PARTS = {"job", "policy", "baseline"}
CLASSES = {**PARTS, REQUEST: GateRequest}


def entries(part):
    return {*FREE.get(part, ()), *PINNED_NAMES[part]}


@pytest.mark.parametrize("part", CLASSES)
def test_each_field_has_one_entry_and_a_new_one_needs_one(part):
    names = {field.name for field in fields(CLASSES[part])} - (
        OWN_PARTS if part == REQUEST else set()
    )
    assert entries(part) == names
    assert not {*FREE.get(part, ())} & PINNED_NAMES[part]


def test_a_new_part_of_a_job_needs_entries():
    """Each dataclass that a specification is made of, found by its annotations, is one of the
    parts.
    """
    found, left = set(), [PARTS["job"]]
    while left:
        kind = left.pop()
        found.add(kind)
        for hint in get_type_hints(kind).values():
            nested = [
                each
                for each in (hint, *get_args(hint))
                if isinstance(each, type) and is_dataclass(each)
            ]
            left += [each for each in nested if each not in found]
    assert found <= {*PARTS.values()}


def test_a_free_field_says_why_and_what_is_not_listed_is_pinned():
    assert all(
        len(each.reason) > 5 and each.kind != "pinned"
        for names in FREE.values()
        for each in names.values()
    )
    assert (
        choice("schedule", "learning_rate").kind
        == choice("a new part", "a new field").kind
        == "pinned"
    )
    assert {*FREE, *PINNED_NAMES} == {*CLASSES}
    assert pinned_fields.free_names()[0] == "job.name"
