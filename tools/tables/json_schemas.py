"""The JSON Schemas that `parity schema` prints, from the typed documents of the code."""

import dataclasses
import json
import re
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import FloatSchema
from typing_extensions import TypedDict

from parity.cards.card import Card
from parity.cards.golden_card import GoldenCard
from parity.cli.cards.verify_card import CardCheckDocument
from parity.cli.doctor import JobNeeds
from parity.cli.jobs.commands import AddedRuns, CancelledJob, QueuedJob
from parity.cli.noise import AnyNoiseDocument
from parity.cli.runs.imports import ImportedRun
from parity.cli.runs.resend import SentSpool
from parity.cli.verify import BundleCheckDocument
from parity.comparing.convergence_document import ConvergenceDocument
from parity.design.calibrate import Calibration
from parity.design.plan import Plan
from parity.gate.gate_document import GateReportDocument
from parity.golden.golden_document import (
    GoldenCheckDocument,
    GoldenFileDocument,
    GoldenUpdateDocument,
)
from parity.judging.case import AnyDocument
from parity.report.formats.json_text import ReportDocument
from parity_lab.answer import AnalysisAnswer
from parity_lab.healing_answer import HealingAnswer
from parity_lab.server.ablations import AblationsDocument
from parity_lab.server.documents import AnalysisDocument, AnalysisPlan
from parity_lab.server.healing_documents import HealingDocument, HealingPlan
from server.api.goldens import GoldenTakenDocument
from server.api.runs import RunRecord
from server.api.service.job_schema import job_file_schema
from server.documents.baselines import BaselineDiff, BaselineDocument, BaselineSummary
from server.documents.goldens import GoldenDocument, GoldenSummary
from server.documents.job_lists.summaries import JobSummary
from server.documents.jobs import JobDocument
from server.documents.matrix import Matrix
from server.documents.remarks import Remarks
from server.documents.trend import Trend
from server.documents.workers import WorkerDocument
from server.jobs.imported_noise import Import
from tools.tables.generated import ROOT, GeneratedTable
from training.preflight.documents import DocumentsReport, PreflightReport

FOLDER = ROOT / "parity" / "schemas"
LAB_FOLDER = ROOT / "parity_lab" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: Mapping[str, Any] = {
    "baseline": BaselineDocument,
    "baseline-diff": BaselineDiff,
    "baseline-list": list[BaselineSummary],
    "bundle-check": BundleCheckDocument,
    "calibration": Calibration,
    "cancelled-job": CancelledJob,
    "card": Card,
    "card-check": CardCheckDocument,
    "convergence": ConvergenceDocument,
    "document-counts": DocumentsReport,
    "gate": GateReportDocument,
    "golden": GoldenCheckDocument,
    "golden-card": GoldenCard,
    "golden-file": GoldenFileDocument,
    "golden-list": list[GoldenSummary],
    "golden-taken": GoldenTakenDocument,
    "golden-update": GoldenUpdateDocument,
    "golden-version": GoldenDocument,
    "imported-runs": list[ImportedRun],
    "job": JobDocument,
    "job-list": list[JobSummary],
    "job-needs": JobNeeds,
    "job-runs": AddedRuns,
    "matrix": Matrix,
    "noise-family": AnyNoiseDocument,
    "noise-import": Import,
    "noise-list": list[AnyNoiseDocument],
    "plan": Plan,
    "preflight": PreflightReport,
    "queued-job": QueuedJob,
    "remarks": Remarks,
    "report": ReportDocument,
    "run": RunRecord,
    "sent-spools": list[SentSpool],
    "trend": Trend,
    "verdict": AnyDocument,
    "worker-list": list[WorkerDocument],
}
LAB_DOCUMENTS: Mapping[str, Any] = {
    "ablations": AblationsDocument,
    "analysis": AnalysisDocument,
    "analysis-plan": AnalysisPlan,
    "healing": HealingDocument,
    "healing-plan": HealingPlan,
}
_FIRST_LINES = dict.fromkeys(("schema", "engine_version"), "string")
# What a command adds to a document that it prints.
_ADDED: Mapping[str, Mapping[str, str]] = {
    "calibration": _FIRST_LINES,
    "plan": {
        **_FIRST_LINES,
        **dict.fromkeys(("headline", "advice", "note"), "string"),
        "wanted_power": "number",
    },
}
# What a field holds that the server hands on as it is stored: its own type says no more than that
# it is an object.
_STORED: Mapping[Any, Mapping[str, Any]] = {
    AnalysisDocument: {"answer": AnalysisAnswer | None},
    GoldenTakenDocument: {"check": GoldenCheckDocument | None},
    HealingDocument: {"answer": HealingAnswer},
    JobDocument: {"verdicts": list[AnyDocument]},
}


class _Schemas(GenerateJsonSchema):
    """Numbers that are not finite are text in JSON, and the title of a field is its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def float_schema(self, schema: FloatSchema) -> dict[str, Any]:
        number = super().float_schema(schema)
        return {"anyOf": [number, {"enum": ["nan", "inf", "-inf"]}]}


def schema_text(name: str) -> str:
    """The JSON Schema of a document as text."""
    if name == "job-file":
        schema = job_file_schema()
    else:
        described = TypeAdapter(_readable({**DOCUMENTS, **LAB_DOCUMENTS}[name])).json_schema(
            mode="serialization", schema_generator=_Schemas
        )
        described.pop("title", None)
        schema = {"$schema": DRAFT, "title": name, **described}
        for key, kind in _ADDED.get(name, {}).items():
            schema["properties"][key] = {"type": kind}
            schema["required"].append(key)
    return json.dumps(_on_one_line(schema), indent=1, ensure_ascii=False) + "\n"


def _on_one_line(schema: Any) -> Any:
    """A schema whose descriptions have no line ends but between paragraphs."""
    if isinstance(schema, dict):
        return {
            key: re.sub(r"(?<!\n)\n(?!\n)", " ", value)
            if key == "description" and isinstance(value, str)
            else _on_one_line(value)
            for key, value in schema.items()
        }
    return [_on_one_line(item) for item in schema] if isinstance(schema, list) else schema


def _readable(hint: Any) -> Any:
    """A type whose TypedDicts are those of typing_extensions: before Python 3.12 pydantic reads no
    other. So are its dataclasses that hold one.
    """
    if is_typeddict(hint):
        return _typed_dict(hint, hint.__required_keys__)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        if hint in _STORED or any(_readable(hints[name]) != hints[name] for name in _fields(hint)):
            return _typed_dict(hint, frozenset(_fields(hint)))
        return hint
    if not (parts := get_args(hint)) or get_origin(hint) is None:
        return hint
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(map(_readable, parts))]  # noqa: UP007
    if any(isinstance(part, str) for part in parts):  # Literal
        return hint
    return get_origin(hint)[tuple(map(_readable, parts))]


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


@cache
def _typed_dict(kind: Any, required: frozenset[str]) -> Any:
    hints: dict[str, Any] = {**get_type_hints(kind), **_STORED.get(kind, {})}
    names = _fields(kind) if dataclasses.is_dataclass(kind) else hints
    fields = {name: _readable(hints[name]) for name in names}
    made = TypedDict(  # type: ignore[misc]
        kind.__name__,
        {name: hint if name in required else NotRequired[hint] for name, hint in fields.items()},
    )
    made.__doc__ = kind.__doc__
    return made


def _written(name: str) -> Callable[[], str]:
    return lambda: schema_text(name)


TABLE = GeneratedTable(
    name="json_schemas",
    files={
        folder / f"{name}.json": _written(name)
        for folder, names in ((FOLDER, {*DOCUMENTS, "job-file"}), (LAB_FOLDER, LAB_DOCUMENTS))
        for name in sorted(names)
    },
)
