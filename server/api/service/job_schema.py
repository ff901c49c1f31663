"""The JSON Schema of `parity.yaml`, and its route.

The schema is built in the server, the only package that imports both the job and the policy.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field, TypeAdapter

from parity.frozen import frozen
from parity.gate.rules import MAX_AGE_DAYS, GateRules
from parity.judging.policy import Policy
from server.jobs.baselines import BaselineChoice
from server.jobs.tags import MOST_TAGS, TAG
from training.spec import JobSpec

router = APIRouter()


@frozen
class JobFile:
    """`parity.yaml`: the job for the server, the policy that judges it, the baseline that it names,
    how CI gates on it, and its tags.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "title": "parity.yaml"}

    job: JobSpec
    policy: Policy
    baseline: BaselineChoice | None = None
    gate: GateRules | None = None
    tags: (
        Annotated[list[Annotated[str, Field(pattern=TAG)]], Field(max_length=MOST_TAGS)] | None
    ) = None


# In a file, an amount is text or a number of nats, not the judge's object.
_AMOUNT = {
    "description": 'a share of the baseline\'s loss ("1.0 %") or nats ("0.014 nats", 0.014)',
    "anyOf": [
        {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*(%|nats?)?\s*$"},
        {"type": "number", "exclusiveMinimum": 0},
    ],
}


def job_file_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `parity.yaml`."""
    schema = TypeAdapter(JobFile).json_schema()
    schema["$defs"]["Amount"] = _AMOUNT
    for part in ("Policy", "GateRules"):
        schema["$defs"][part]["additionalProperties"] = False
    schema["$defs"]["GateRules"]["properties"]["max_age_days"] |= {
        "minimum": 0,
        "maximum": MAX_AGE_DAYS,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@router.get("/api/v1/schemas/parity.json", tags=["jobs"])
def schema() -> Mapping[str, Any]:
    """JSON Schema of `parity.yaml`."""
    return job_file_schema()
