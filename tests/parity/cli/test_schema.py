"""What a command prints with --json is as `parity schema` says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click import Context
from typer.main import get_command

from parity.cli.application import app
from parity.cli.gate.report import document
from parity.cli.printed_documents import NOT_PRINTED, printed_documents, schemas_of
from parity.cli.schema import schema_names
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from tests.parity.cards.cases import CASES
from tests.parity.cli.schemas import check, schema

Run = Callable[..., tuple[int, str, str]]
CHECKOUT = Path(__file__).parents[3]
WITH_HELP_ALL = ("compare", "verify", "card")
OPTIONS = ("--recipe", "fp8=fp8", "--planned-steps", "1500", "--schedule", "decayed")


@pytest.mark.parametrize("name", schema_names())
def test_each_schema_is_one(name: str, run: Run) -> None:
    code, out, _ = run("schema", name)
    assert (code, json.loads(out)) == (0, schema(name))
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_without_a_name_the_schemas_are_listed_with_what_prints_them(run: Run) -> None:
    code, out, _ = run("schema")
    listed = dict(line.split("\t") for line in out.splitlines())
    assert (code, list(listed)) == (0, schema_names())
    assert listed["queued-job"] == "parity submit, parity again"
    assert listed["job-file"] == "a job file, such as parity.yaml"


def _printing(command: Any, ctx: Any, words: str = "") -> Iterator[str]:
    """Every command below one that has --json, as it is called."""
    if any("--json" in parameter.opts for parameter in command.params):
        yield words
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        below = command.get_command(ctx, name)
        yield from _printing(below, ctx, f"{words} {name}".lstrip())


def _all_printing() -> list[str]:
    command = get_command(app)
    return list(_printing(command, Context(command)))


def test_the_commands_that_print_json_are_found() -> None:
    assert {"compare", "golden check", "runs fail", "why"} <= set(_all_printing())
    assert not {"schema", "skill", "noise export"} & set(_all_printing())


@pytest.mark.parametrize("command", _all_printing())
def test_each_command_that_prints_json_has_a_schema_and_its_help_names_it(
    command: str, run: Run
) -> None:
    names = schemas_of(command)
    assert names, f"parity/cli/printed_documents.py has no schema of `parity {command} --json`"
    helped = run(*command.split(), "--help-all" if command in WITH_HELP_ALL else "--help")[1]
    assert f"[parity schema {'|'.join(names)}]" in " ".join(helped.split()).replace("- ", "-")


@pytest.mark.parametrize("name", printed_documents())
def test_each_form_of_the_table_is_a_command_that_prints_json(name: str) -> None:
    printing = _all_printing()
    for form in printed_documents()[name]:
        assert any(f"{form} ".startswith(f"{command} ") for command in printing), form


def test_no_schema_is_left_over() -> None:
    found = {file.stem for package in ("parity", "parity_lab") for file in _folder(package)}
    assert found == {*printed_documents(), *NOT_PRINTED}
    assert not printed_documents().keys() & NOT_PRINTED.keys()


def test_each_schema_is_held_against_a_document_in_some_test() -> None:
    texts = [file.read_text("utf-8") for file in (CHECKOUT / "tests").rglob("*.py")]
    call = re.compile(r'\b(?:check|printed)\(\s*"([a-z-]+)"')
    checked = {name for text in texts for name in call.findall(text)}
    assert printed_documents().keys() - checked == set()


def _folder(package: str) -> list[Path]:
    return list((CHECKOUT / package / "schemas").iterdir())


def test_an_unknown_schema_is_refused_with_those_that_exist(run: Run) -> None:
    code, out, err = run("schema", "verdikt")
    assert (code, out) == (2, "")
    assert "card, card-check" in err
    assert "did you mean verdict?" in err


def test_reports_cards_and_their_checks(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    bundle, card = str(tmp_path / "evidence.zip"), str(tmp_path / "card.yaml")
    runs = (files["fp8"], files["mxfp8"], files["nvfp4"])
    report = json.loads(run("compare", *runs, *OPTIONS, "--json", "--bundle", bundle)[1])
    check("report", report)
    for verdict in report["verdicts"]:
        check("verdict", verdict)
    check("card", json.loads(run("card", bundle, "--json")[1]))
    run("card", bundle, "--to", card)
    for evidence in ((), (bundle,), runs):
        check("card-check", json.loads(run("verify", card, *evidence, "--json")[1]))
    check("bundle-check", json.loads(run("verify", bundle, "--json")[1]))


@pytest.mark.parametrize("name", CASES)
def test_verdicts_and_the_outcome_of_a_gate(name: str) -> None:
    documents = CASES[name]().documents()
    for verdict in documents:
        check("verdict", json.loads(json.dumps(verdict)))
    if name != "held-out losses":  # no gate takes these
        outcome = GateOutcome(result="fail", revision="4f2a9d17", verdicts=documents)
        check("gate", json.loads(json.dumps(document(outcome, GateRules()))))


def test_a_gate_without_a_verdict() -> None:
    outcome = GateOutcome(result="infrastructure", revision="4f2a9d17", trouble="no worker")
    check("gate", json.loads(json.dumps(document(outcome, GateRules()))))


def test_plans_and_goldens(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check("plan", json.loads(run("plan", "--planned-steps", "10000", "--json")[1]))
    examples = CHECKOUT / "examples" / "golden"
    golden = str(tmp_path / "tiny.golden.jsonl")
    run("golden", "update", golden, str(examples / "old.csv"), "--recipe", "bf16")
    for run_file in ("old.csv", "new.csv", "worse.csv"):
        check(
            "golden",
            json.loads(run("golden", "check", str(examples / run_file), golden, "--json")[1]),
        )


def test_a_key_that_no_schema_names_is_noticed(files: dict[str, str], run: Run) -> None:
    report = json.loads(run("compare", files["fp8"], files["mxfp8"], *OPTIONS, "--json")[1])
    report["verdicts"][0]["margin"]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        check("report", report)
