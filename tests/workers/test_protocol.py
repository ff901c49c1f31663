"""The messages between supervisor and child have the fields of what they carry."""

import dataclasses
from typing import get_args

from training.statistics import StepStats
from workers import protocol


def test_a_step_message_has_the_fields_of_a_step():
    assert protocol.StepValues.__annotations__.keys() == {field.name for field in dataclasses.fields(StepStats)}


def test_every_message_has_a_kind_of_its_own():
    kinds = [message.__annotations__["kind"] for message in get_args(protocol.Message)]
    assert len({str(kind) for kind in kinds}) == len(kinds) == 10
