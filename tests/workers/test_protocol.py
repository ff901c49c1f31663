"""The messages between supervisor and child have the fields of what they carry."""

import json
from typing import get_args

import pytest

from training.overrides import Override
from training.spec import ArmSpec, JobSpec
from training.switches import Switches
from workers import child, protocol

OVERRIDES = (
    Override(
        blocks=(0, "last 2"), projections=("down",), gemms=("wgrad",), recipe="bf16", from_step=800
    ),
    Override(blocks=("1",), switches=Switches(rht=False)),
)


def test_every_message_has_a_kind_of_its_own():
    kinds = [message.__annotations__["kind"] for message in get_args(protocol.Message)]
    assert len({str(kind) for kind in kinds}) == len(kinds) == 11


@pytest.mark.parametrize("overrides", [(), OVERRIDES])
def test_a_specification_arrives_as_it_was_sent(overrides):
    job = JobSpec(
        name="job",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4", overrides=overrides),),
    )
    for _, spec in job.runs():
        assert child._spec(json.loads(json.dumps(spec.document()))) == spec
