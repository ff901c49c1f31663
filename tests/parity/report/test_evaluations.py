import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report.evaluation_tables import arm_rows, comparison_rows, steps_words, token_unit
from parity.report.formats.junit import NOT_OF_EVALUATIONS, render_junit
from parity.report.formats.markdown import render_markdown
from parity.report.formats.terminal import plain_text
from parity.report.view import evaluation_view, view_of
from parity.report.words import words
from parity.wording import minus

Compare = Callable[..., EvaluationDocument]
CLUSTERED = {"cluster": "system", "target": 3.34, "tokens_per_step": 8192.0, "timed": True}
NUMBER = r"[+-]\d\.\d{4}"


def _text(document: EvaluationDocument) -> str:
    return plain_text([document], verbose=True)


def _rows(rows: list[tuple[str, ...]]) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in rows}


def test_what_cannot_be_measured_is_said_and_never_a_number(compared: Compare) -> None:
    assert "95 % interval" in words(view_of(compared(runs=(1, 3)))).interval
    one_system = compared(runs=(2, 2), cluster="hall")
    assert one_system["codes"][0] == "CLUSTERS_UNUSABLE"
    assert one_system["reasons"][0]["sentence"] in words(view_of(one_system)).interval


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            lambda run: dataclasses.replace(run, loss=np.full(len(run.loss), np.nan)),
            "NONFINITE_CAND",
        ),
        (lambda run: dataclasses.replace(run, steps=run.steps + 1000), "NO_COMMON_STEPS"),
        (lambda run: dataclasses.replace(run, loss=run.loss / math.log(2.0)), "LOSS_SCALED"),
    ],
    ids=["NaN", "other steps", "bits"],
)
def test_runs_that_cannot_be_compared_are_reported(
    change: Callable[[Curve], Curve], code: str, compared: Compare
) -> None:
    document = compared(**CLUSTERED, change=change)
    assert document["codes"][0] == code
    for text in (_text(document), render_markdown([document]), render_junit([document])):
        assert code in text
        assert "nan" not in text
    assert words(view_of(document)).measure == document["reasons"][0]["sentence"]


def test_the_rows_compare_quality_tax_and_speed(compared: Compare) -> None:
    document = compared(**CLUSTERED)
    names = [row[0] for row in comparison_rows(evaluation_view(document))]
    assert names == [
        "",
        "gap, nats",
        "gap, nats",
        "token tax to 3.34",
        *["step speed", "net speed to 3.34"] * 2,
    ]
    tax = document["target"] and document["target"]["tax"]
    assert tax
    assert comparison_rows(evaluation_view(document))[3][1:3] == (
        f"{100 * tax['estimate']:+.1f} %",
        f"{100 * tax['lo']:+.1f} % to {100 * tax['hi']:+.1f} %",
    )
    assert [row[0] for row in comparison_rows(evaluation_view(compared()))] == ["", "gap, nats"]


def test_the_arms_stand_side_by_side(compared: Compare) -> None:
    document = compared(**CLUSTERED)
    rows = _rows(arm_rows(evaluation_view(document)))
    assert rows["runs"] == ["6 in 2 systems", "8 in 4 systems"]
    assert rows["recipe"] == ["fp8_current", "nvfp4"]
    assert rows["assumed for one run"][0].endswith("(0.09 %)")
    assert rows["assumed for one run"][1].endswith("(0.14 %)")
    assert rows["runs seen to reach 3.34"][0] == "6 of 6"
    for arm, loss in zip(
        (document["baseline"], document["candidate"]),
        rows["loss at 1.3 B tokens (mean of 3 points), nats"],
        strict=True,
    ):
        assert f"{arm['mean']:.4f}" == loss
    alone = _rows(arm_rows(evaluation_view(compared(runs=(1, 3)))))
    assert alone["spread of runs"][0] == ""
    assert not any(name.startswith("reaches") for name in alone)


def test_a_target_that_too_few_runs_reach_has_no_tax(compared: Compare) -> None:
    document = compared(target=1.0)
    assert _rows(comparison_rows(evaluation_view(document)))["token tax to 1"][0] == "unknown"
    assert _rows(arm_rows(evaluation_view(document)))["runs seen to reach 1"] == [
        "0 of 6",
        "0 of 8",
    ]


def test_points_are_named_in_tokens_where_these_are_known(compared: Compare) -> None:
    assert (
        steps_words(evaluation_view(compared(tokens_per_step=8192.0)), 157_105.3) == "1.29 B tokens"
    )
    assert steps_words(evaluation_view(compared()), 157_105.3) == "step 157,105"
    assert steps_words(evaluation_view(compared()), None) == ""
    assert [token_unit(tokens) for tokens in (12.0, 3e7, 2e12)] == [
        (1.0, ""),
        (1e6, "M"),
        (1e12, "T"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        CLUSTERED,
        {"runs": (1, 3)},
        {"runs": (3, 3), "target": 1.0},
        {"names": ("b" * 60, "c" * 60)},
    ],
)
def test_text_has_80_columns_every_reason_and_nothing_twice(
    options: dict[str, object], compared: Compare
) -> None:
    document = compared(**options)
    text = _text(document)
    assert max(map(len, text.splitlines())) <= 80
    whole = " ".join(text.split())
    sentences = [reason["sentence"] for reason in document["reasons"]] + document["advice"][
        "sentences"
    ]
    for sentence in sentences:
        if max(map(len, sentence.split())) < 60:
            assert whole.count(minus(" ".join(sentence.split()))) >= 1, sentence
    assert all(reason["code"] in whole for reason in document["reasons"])
    assert text == _text(json.loads(json.dumps(document)))


def test_markdown_holds_the_same_and_names_cannot_break_it(compared: Compare) -> None:
    document = compared(**CLUSTERED, names=("FP8", "a|b<script>\nc"))
    text = render_markdown([document])
    assert text.startswith("### ◇ INCONCLUSIVE: Do not decide on a&#124;b&lt;script&gt; c yet.")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4, 5}
    for reason in document["reasons"]:
        assert f"- `{reason['code']}` " in text


def test_junit_skips_what_evaluations_cannot_show(compared: Compare) -> None:
    document = compared(**CLUSTERED)
    root = ElementTree.fromstring(render_junit([document]))  # noqa: S314
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert all(cases[name].find("skipped") is not None for name in NOT_OF_EVALUATIONS)
    error = next(case.find("error") for case in cases.values() if case.find("error") is not None)
    assert error is not None
    assert str(error.get("message")).startswith(f"{document['codes'][0]}: ")
    values = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert values["lead"] == words(view_of(document)).lead
    assert values["interval"] == words(view_of(document)).interval
    assert values["gap_nats"] == str(
        document["gap"]["judged"] and document["gap"]["judged"]["mean"]
    )
