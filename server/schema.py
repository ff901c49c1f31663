"""The JSON Schema of `parity.yaml`: made here, in the only room that sees the job and the criteria."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter

from training.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """`parity.yaml`: the job for the server, the policy that judges it, and how CI gates on it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "title": "parity.yaml"}

    job: JobSpec
    criteria: Mapping[str, Any]
    gate: Mapping[str, Any] | None = None


def job_file_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `parity.yaml`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(JobFile).json_schema()}
