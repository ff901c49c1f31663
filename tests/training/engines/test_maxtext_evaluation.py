"""The summary of an evaluation in a metrics_file: found, or named as missing."""

import math
from pathlib import Path

import pytest

from training.engines.maxtext_evaluation import summary
from training.environment.maxtext_errors import EvaluationFailedError

BATCHES = Path(__file__).parents[2] / "data" / "maxtext_eval_truncates.jsonl"


def test_the_summary_is_the_record_that_is_no_batch(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(
        '{"eval/avg_loss": 9.0, "step": 0.0}\n{"learning/loss": 1.0, "step": 81.0}\n'
    )
    with pytest.raises(
        EvaluationFailedError,
        match=r"no summary of an evaluation into .*metrics\.jsonl; does maxtext\.eval_path have",
    ):
        summary(metrics)
    with metrics.open("a") as file:
        file.write('{"eval/avg_loss": NaN, "eval/total_loss": NaN, "step": 81.0}\n')
    assert math.isnan(summary(metrics))
    assert summary(BATCHES) == pytest.approx(4.278, abs=0.001)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\x00",
        b"{",
        b"7",
        b'{"eval/total_loss": 1.0}',
        b'{"eval/total_loss": 1, "eval/avg_loss": "x"}',
    ],
)
def test_garbage_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(line + b"\n")
    with pytest.raises(
        EvaluationFailedError,
        match=r"metrics\.jsonl has the line b.*, expected a JSON object of an evaluation",
    ) as raised:
        summary(tmp_path / "metrics.jsonl")
    assert raised.value.code == "MAXTEXT_EVALUATION"
