import html
import io
import json
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from parity.judging.criteria import Criteria
from parity.judging.curve import Curve, curve_from_arrays
from parity.judging.verdict import Verdict
from parity.report.facts import facts
from parity.report.headline import answer, headline
from parity.report.page import job_report
from parity.report.text import render_json, render_markdown, render_text

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


@pytest.fixture
def documents(make_run: MakeRun, judge_pair: JudgePair) -> dict[str, dict]:
    base = [make_run(seed=1, recipe="fp8_current"), make_run(seed=9, recipe="fp8_current")]

    def document(cand: list[Curve], **options: object) -> dict:
        return dict(judge_pair(base, cand, baseline_name="FP8", layer_policy="mlp_only", **options).document())

    return {
        "pass": document([make_run(seed=2), make_run(seed=3)]),
        "fail": document([make_run(seed=2, gap=0.05), make_run(seed=3, gap=0.05)]),
        "straddle": document([make_run(seed=2, gap=0.0265), make_run(seed=3, gap=0.0265)]),
        "nan": document([curve_from_arrays(range(2000), [float("nan")] * 2000)]),
        "assumed": document([make_run(seed=2)]),
    }


NUMBER = r"[+-]\d\.\d{3}"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "pass",
            (
                rf"^PASS: cand is within 1\.0 % of FP8: gap {NUMBER} nats \(95 % CI {NUMBER} to {NUMBER}; -?\d\.\d\d x step noise\), "
                r"margin 0\.027\. 2 runs per arm, layer policy mlp_only\. "
                r"Run noise rests mostly on an assumption: 2 degrees of freedom measured, 4 needed\.$"
            ),
        ),
        (
            "fail",
            (
                rf"^FAIL: cand ends 0\.050 nats above FP8 \(95 % CI {NUMBER} to {NUMBER}; 0\.\d\d x step noise\), "
                r"beyond the margin of 0\.027 \(1\.0 % of 2\.681\)\. 2 runs per arm, layer policy mlp_only\. "
                r"Run noise rests mostly on an assumption: 2 degrees of freedom measured, 4 needed\.$"
            ),
        ),
        (
            "straddle",
            (
                rf"^INCONCLUSIVE: cand against FP8: The interval \({NUMBER} to {NUMBER}\) straddles the margin of 0\.027 nats\. "
                rf"Gap {NUMBER} nats \(.* x step noise\)\. Chance of parity \d\d %\. Layer policy mlp_only\. "
            ),
        ),
        ("nan", r"^FAIL: cand has 2,000 NaN or infinite losses from step 0 on, and a run ends in one\. Layer policy mlp_only\.$"),
        ("assumed", r"Run noise was assumed \(0\.09 % of the loss for cand\), not measured"),
    ],
)
def test_headlines(name: str, pattern: str, documents: dict[str, dict]) -> None:
    assert re.search(pattern, headline(documents[name])), headline(documents[name])


@pytest.mark.parametrize(("chance", "words"), [(0.004, "<3 %"), (0.031, "3 %"), (0.618, "62 %"), (0.966, "97 %"), (0.9999, ">97 %")])
def test_the_chance_of_parity_of_an_open_verdict_ends_at_3_and_97_percent(chance: float, words: str, documents: dict[str, dict]) -> None:
    document = {**documents["straddle"], "chance_of_parity": chance}
    assert f"chance of parity {words};" in answer(document)
    assert f"Chance of parity {words}." in headline(document)
    assert any(words in value and "equally likely beforehand" in value for name, value in facts(document) if name == "chance of parity")


def test_a_decided_verdict_has_no_chance_of_parity(documents: dict[str, dict]) -> None:
    assert 0.3 < documents["straddle"]["chance_of_parity"] < 0.9
    assert not any("chance_of_parity" in documents[name] for name in ("pass", "fail", "nan", "assumed"))


def test_a_headline_survives_the_network(documents: dict[str, dict]) -> None:
    for document in documents.values():
        assert headline(json.loads(json.dumps(document))) == headline(document)


def test_json_is_canonical_and_safe(documents: dict[str, dict]) -> None:
    text = render_json(list(documents.values()))
    assert text == render_json([json.loads(json.dumps(document)) for document in documents.values()])
    report = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(report) == {"schema", "engine_version", "verdicts"}
    assert len(report["verdicts"]) == len(documents)
    for key in (
        "verdict",
        "codes",
        "margin",
        "gap",
        "profile",
        "se_parts",
        "tau",
        "noise",
        "window",
        "convergence",
        "drift",
        "spikes",
        "inputs",
    ):
        assert key in report["verdicts"][0]


def test_text_has_80_columns_and_every_reason(documents: dict[str, dict]) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(render_text(list(documents.values())))
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for document in documents.values():
        for reason in document["reasons"]:
            assert reason["code"] in text


def test_markdown_is_a_table_that_names_cannot_break(make_run: MakeRun, one_percent: Criteria) -> None:
    from parity.judging.verdict import judge

    (verdict,) = judge([make_run()], {"a|b<script>\nc": [make_run(seed=2)]}, one_percent, planned_steps=2000)
    text = render_markdown([verdict.document()])
    assert "<script>" not in text
    row = next(line for line in text.splitlines() if line.startswith("| a"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert text.startswith("● **PASS**:")


def test_nothing_measured_is_reported_as_such(judge_pair: JudgePair, make_run: MakeRun) -> None:
    document = judge_pair(make_run(), curve_from_arrays([], [])).document()
    assert headline(document).startswith("INCONCLUSIVE: cand against run1: Run 1 of cand has no steps.")
    assert document["gap"] is None
    assert "none" in render_markdown([document])


def test_the_answer_is_one_line_with_gap_interval_margin_and_what_decided(documents: dict[str, dict]) -> None:
    for name, document in documents.items():
        line = answer(document)
        assert line.startswith(f"{document['verdict'].upper()}: cand against FP8: "), name
        assert f"; decided by {document['codes'][0]}: " in line
        assert "\n" not in line
        if document["gap"]:
            assert re.search(rf"gap {NUMBER} nats \(95 % CI {NUMBER} to {NUMBER}\), margin 0\.027 \(1\.0 %\)", line)
    assert "no gap measured" in answer(documents["nan"])
    assert answer({**documents["pass"], "codes": ["CODE_OF_ANOTHER_JUDGE"]}).endswith("; decided by CODE_OF_ANOTHER_JUDGE.")


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_nothing_is_said_twice_and_the_answers_come_first(form: str, documents: dict[str, dict]) -> None:
    cases = [{**document, "candidate": {**document["candidate"], "name": name}} for name, document in documents.items()]
    forms: dict[str, Callable[..., str]] = {"text": _as_text, "markdown": render_markdown, "html": _as_page}
    rendered = forms[form](cases)
    whole = " ".join(html.unescape(rendered).split())
    sentences = {reason["sentence"] for document in cases for reason in document["reasons"]}
    sentences |= {sentence for document in cases for sentence in document["advice"]["sentences"]}
    for sentence in sentences:
        assert whole.count(" ".join(sentence.split())) == 1, sentence
    places = [whole.index(part) for part in ("pass against FP8", "assumed against FP8", "gap, nats", cases[0]["reasons"][0]["sentence"])]
    assert places == sorted(places)


def _as_text(cases: list[dict]) -> str:
    written = io.StringIO()
    Console(width=80, file=written).print(render_text(cases))
    return written.getvalue()


def _as_page(cases: list[dict]) -> str:
    job = {"id": "j1", "name": "mine", "finished_at": "now", "verdicts": cases, "criteria": {}, "spec": {}}
    return job_report(job, "http://host/jobs/j1")
