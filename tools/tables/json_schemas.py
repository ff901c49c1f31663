"""The JSON Schemas that `parity schema` prints, from the typed documents of the code."""

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
from parity.cli.verify import BundleCheckDocument
from parity.comparing.convergence_document import ConvergenceDocument
from parity.design.plan import Plan
from parity.gate.gate_document import GateReportDocument
from parity.golden.golden_document import GoldenCheckDocument
from parity.judging.case import AnyDocument
from parity.report.formats.json_text import ReportDocument
from server.api.service.job_schema import job_file_schema
from server.documents.jobs import JobDocument
from tools.tables.generated import ROOT, GeneratedTable

FOLDER = ROOT / "parity" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: Mapping[str, Any] = {
    "bundle-check": BundleCheckDocument,
    "card": Card,
    "card-check": CardCheckDocument,
    "convergence": ConvergenceDocument,
    "gate": GateReportDocument,
    "golden": GoldenCheckDocument,
    "golden-card": GoldenCard,
    "job": JobDocument,
    "plan": Plan,
    "report": ReportDocument,
    "verdict": AnyDocument,
}
# What a command adds to a document that it prints.
_ADDED: Mapping[str, Mapping[str, str]] = {
    "plan": {
        **dict.fromkeys(("schema", "engine_version", "headline", "advice", "note"), "string"),
        "wanted_power": "number",
    }
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
        described = TypeAdapter(_readable(DOCUMENTS[name])).json_schema(
            mode="serialization", schema_generator=_Schemas
        )
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
    other.
    """
    if is_typeddict(hint):
        return _typed_dict(hint)
    if not (parts := get_args(hint)) or get_origin(hint) is None:
        return hint
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(map(_readable, parts))]  # noqa: UP007
    if any(isinstance(part, str) for part in parts):  # Literal
        return hint
    return get_origin(hint)[tuple(map(_readable, parts))]


@cache
def _typed_dict(kind: Any) -> Any:
    fields = {name: _readable(hint) for name, hint in get_type_hints(kind).items()}
    made = TypedDict(  # type: ignore[misc]
        kind.__name__,
        {
            name: hint if name in kind.__required_keys__ else NotRequired[hint]
            for name, hint in fields.items()
        },
    )
    made.__doc__ = kind.__doc__
    return made


def _written(name: str) -> Callable[[], str]:
    return lambda: schema_text(name)


TABLE = GeneratedTable(
    name="json_schemas",
    files={FOLDER / f"{name}.json": _written(name) for name in sorted({*DOCUMENTS, "job-file"})},
)
