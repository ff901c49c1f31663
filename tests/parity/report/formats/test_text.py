import html
import json
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict
from parity.report.answer import answer_words
from parity.report.formats.json_text import render_json
from parity.report.formats.markdown import render_markdown
from parity.report.formats.terminal import plain_text, render_text
from parity.report.view import views_of
from parity.wording import minus

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


@pytest.fixture
def documents(make_run: MakeRun, judge_pair: JudgePair) -> dict[str, dict]:
    base = [make_run(seed=1, recipe="fp8_current"), make_run(seed=9, recipe="fp8_current")]

    def document(cand: list[Curve], **options: object) -> dict:
        return dict(
            judge_pair(
                base, cand, baseline_name="FP8", layer_policy="mlp_only", **options
            ).document()
        )

    return {
        "pass": document([make_run(seed=2), make_run(seed=3)]),
        "fail": document([make_run(seed=2, gap=0.05), make_run(seed=3, gap=0.05)]),
        "straddle": document([make_run(seed=2, gap=0.0265), make_run(seed=3, gap=0.0265)]),
        "nan": document([curve_from_arrays(range(2000), [float("nan")] * 2000)]),
        "assumed": document([make_run(seed=2)]),
    }


def test_json_is_canonical_and_safe(documents: dict[str, dict]) -> None:
    text = render_json(list(documents.values()))
    assert text == render_json(
        [json.loads(json.dumps(document)) for document in documents.values()]
    )
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
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(render_text(list(documents.values()), verbose=True))
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for document in documents.values():
        for reason in document["reasons"]:
            assert reason["code"] in text


def test_markdown_is_a_table_that_names_cannot_break(
    make_run: MakeRun, one_percent: Policy
) -> None:
    from parity.judging.verdict.verdict import judge

    (verdict,) = judge(
        [make_run()], {"a|b<script>\nc": [make_run(seed=2)]}, one_percent, planned_steps=2000
    )
    text = render_markdown([verdict.document()])
    assert text.startswith("### ● PASS: You may switch to a&#124;b&lt;script&gt; c.")
    fence = text.index("```")
    assert "a|b<" not in text[:fence]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}


@pytest.mark.parametrize(
    ("form", "begins"), [("text", "gap, nats"), ("markdown", "reasons and numbers")]
)
def test_the_answer_comes_first_and_no_detail_is_said_twice(
    form: str, begins: str, documents: dict[str, dict]
) -> None:
    cases = [
        {**document, "candidate": {**document["candidate"], "name": name}}
        for name, document in documents.items()
    ]
    forms: dict[str, Callable[..., str]] = {"text": _as_text, "markdown": render_markdown}
    whole = " ".join(html.unescape(forms[form](cases)).split())
    answer, _, below = whole.partition(begins)
    sentences = {reason["sentence"] for document in cases for reason in document["reasons"]}
    sentences |= {sentence for document in cases for sentence in document["advice"]["sentences"]}
    for sentence in sentences:
        assert below.count(minus(" ".join(sentence.split()))) == 1, sentence
    said = answer_words(views_of(cases))
    places = [
        answer.index(minus(" ".join(part.split())))
        for part in (said.lead, said.measure, said.interval)
        if part
    ]
    assert places == sorted(places)


def _as_text(cases: list[dict]) -> str:
    return plain_text(cases, verbose=True)
