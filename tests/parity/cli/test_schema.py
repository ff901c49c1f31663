"""What a command prints with --json is as `parity schema` says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from parity.cli.gate.report import document
from parity.cli.schema import schema_names
from parity.gate.outcome import GateOutcome
from parity.gate.rules import GateRules
from tests.parity.cards.cases import CASES
from tests.parity.cli.schemas import check, schema

Run = Callable[..., tuple[int, str, str]]
OPTIONS = ("--recipe", "fp8=fp8", "--planned-steps", "1500", "--schedule", "decayed")


@pytest.mark.parametrize("name", schema_names())
def test_each_schema_is_one(name: str, run: Run) -> None:
    code, out, _ = run("schema", name)
    assert (code, json.loads(out)) == (0, schema(name))
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_without_a_name_the_schemas_are_listed(run: Run) -> None:
    assert run("schema")[:2] == (0, "\n".join(schema_names()) + "\n")


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
    examples = Path(__file__).parents[3] / "examples" / "golden"
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
