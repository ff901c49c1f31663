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


class GoldenUpdateEntry(TypedDict):
    """An update of a golden: its day, what the check by the golden before it answered (null for the
    first one), the gap in % of the loss, and whether a person accepted it.
    """

    date: str
    answer: str | None
    gap_pct: float
    reason: str
    commit: str | None
    accepted: bool


class GoldenFileDocument(TypedDict):
    """A golden in a file: what is on record of its run, its steps, the sum of the gaps in % that
    were taken since a person last accepted one, and its history, oldest first.
    """

    recipe: str
    random: list[str]
    container: str | None
    hardware: str | None
    data: str | None
    facts: dict[str, str]
    steps: int
    first_step: int
    last_step: int
    taken_pct: float
    updates: list[GoldenUpdateEntry]


class GoldenUpdateDocument(TypedDict):
    """A run that was taken as the golden in a file: whether the file was written, its check by the
    golden before (null for a first one), and the sum of the gaps in % that were taken since a
    person last accepted one.
    """

    written: bool
    golden: str
    check: GoldenCheckDocument | None
    taken_pct: float
