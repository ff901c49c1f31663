"""The JSON form of a golden check, field by field."""

from typing import TypedDict

from parity.golden.answers import Answer
from parity.golden.measured import Change


class GoldenRowDocument(TypedDict):
    """One measurement in words: its name, its value and its limit."""

    name: str
    value: str
    limit: str


class GoldenMeasuredDocument(TypedDict, total=False):
    """What was measured, all of it or nothing: first losses in nats, gaps and the largest excursion
    in % of the loss, the batches' agreement, and ratios of gradient norms by name.
    """

    first_loss_nats: float
    first_loss_limit_nats: float
    batch_q: float
    batch_r: float | None
    gap_pct: float
    gap_limit_pct: float
    gap_rows: int
    gap_first_step: int
    largest_pct: float
    largest_limit_pct: float
    largest_step: int
    norm_ratios: dict[str, float]


class GoldenCheckDocument(TypedDict):
    """What `golden check --json` prints, schema parity.golden/1: the answer with the sentence and
    line that say why, what was compared, and what was measured.
    """

    schema: str
    answer: Answer
    headline: str
    line: str
    sentence: str
    next: str
    scope: str
    exit_code: int
    recipe: str
    goldens: list[str]
    run: str
    compared: str
    rows: list[GoldenRowDocument]
    changed: Change | None
    first_step: int
    steps: int
    unjudged_steps: int
    measured: GoldenMeasuredDocument
