"""The JSON Schema of `parity.yaml`. It is built in the server, the only package that imports both the job and the criteria."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter

from parity import Criteria
from parity.cli.gating.policy import MAX_AGE_DAYS, GatePolicy
from parity.extensions import lab
from server.jobs.baselines import BaselineChoice
from server.records import frozen
from server.remarks.tags import MOST_TAGS, TAG
from training.spec import JobSpec


@frozen
class JobFile:
    """`parity.yaml`: the job for the server, the policy that judges it, the baseline that it names, how CI gates on it, its tags, and what
    `parity search` searches."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "title": "parity.yaml"}

    job: JobSpec
    criteria: Criteria
    baseline: BaselineChoice | None = None
    gate: GatePolicy | None = None
    search: dict[str, Any] | None = None
    tags: Annotated[list[Annotated[str, Field(pattern=TAG)]], Field(max_length=MOST_TAGS)] | None = None


# In a file, an amount is text or a number of nats, not the judge's object.
_AMOUNT = {
    "description": 'a share of the baseline\'s loss ("1.0 %") or nats ("0.014 nats", 0.014)',
    "anyOf": [{"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*(%|nats?)?\s*$"}, {"type": "number", "exclusiveMinimum": 0}],
}


def job_file_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `parity.yaml`."""
    schema = TypeAdapter(JobFile).json_schema()
    if (kinds := lab().part("kinds")) is not None:
        own = TypeAdapter(kinds.SearchOfFile | None).json_schema()
        schema["$defs"] = dict(sorted((schema["$defs"] | own.pop("$defs")).items()))
        schema["properties"]["search"] = own | {"default": None}
    schema["$defs"]["Amount"] = _AMOUNT
    for policy in ("Criteria", "GatePolicy"):
        schema["$defs"][policy]["additionalProperties"] = False
    schema["$defs"]["GatePolicy"]["properties"]["max_age_days"] |= {"minimum": 0, "maximum": MAX_AGE_DAYS}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
