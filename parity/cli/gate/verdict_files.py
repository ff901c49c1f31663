"""A gate without a server: its verdicts are the output of `parity compare --json`."""

import sys
from pathlib import Path

from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.comparing.policy_file import read_yaml
from parity.gate.outcome import FILES, GateOutcome, result_of
from parity.inert import inert_value
from parity.judging.bundles.strict_json import JsonError, parse_json
from parity.judging.decision import WORST_FIRST
from parity.judging.document_types import VerdictDocument
from parity.report.formats.markdown import markdown_sections
from parity.report.view import view_of, views_of
from parity.report.words import words

SCHEMA = "parity.verdict/1"
STDIN = "-"
_EXPECTED = "expected the output of `parity compare … --json`"


def gate_file(path: str) -> Document:
    """The content of a file of which only the part `gate:` counts."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: has no keys; expected a file with `gate:`")
    return content


def judged_files(path: str, revision: str) -> GateOutcome:
    """The outcome for the verdicts in a file, or on stdin. UsageError if it holds anything else."""
    name = "stdin" if path == STDIN else path
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
        content = inert_value(parse_json(text.encode()))
    except JsonError as error:
        raise UsageError(f"{name}: {error}; {_EXPECTED}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            why = (error.strerror or "cannot be read").lower()
        else:
            why = "is not JSON"
        raise UsageError(f"{name}: {why}; {_EXPECTED}") from None
    verdicts = content.get("verdicts") if isinstance(content, dict) else None
    if (
        not isinstance(verdicts, list)
        or not verdicts
        or not all(_is_verdict(verdict) for verdict in verdicts)
    ):
        raise UsageError(f"{name}: holds no verdicts of schema {SCHEMA}; {_EXPECTED}")
    try:
        markdown_sections(views_of(verdicts))
        for verdict in verdicts:
            words(view_of(verdict))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(f"{name}: a verdict is not whole ({error!r:.60}); {_EXPECTED}") from None
    return GateOutcome(
        result=result_of(verdicts), revision=revision, verdicts=verdicts, source=FILES
    )


def _is_verdict(document: VerdictDocument) -> bool:
    return (
        isinstance(document, dict)
        and document.get("schema") == SCHEMA
        and document.get("verdict") in WORST_FIRST
    )
