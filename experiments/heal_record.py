"""The runs of `experiments.heal` on record: one line of heal.jsonl each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.heal_cases import Size
from training.spec import RunSpec

RECORD = Path(__file__).with_name("heal.jsonl")
Key = tuple[str, str, str, int, int]
"""Size, arm, switch (empty without one), seed and replicate of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealRecord:
    """One finished run: what trained, and the loss (nats) of each step from `first` on. Those
    before are the candidate's.
    """

    size: str
    arm: str
    then: str
    seed: int
    replicate: int
    first: int
    losses: list[float]
    code: str
    device: str

    @property
    def key(self) -> Key:
        """What no two records share."""
        return self.size, self.arm, self.then, self.seed, self.replicate


def key_of(size: Size, spec: RunSpec) -> Key:
    """The key of the record of a run."""
    then = spec.then.arm_name.removeprefix(".") if spec.then else ""
    return size.name, spec.label, then, spec.seed, spec.replicate


def records() -> Iterator[HealRecord]:
    """The runs on record."""
    if RECORD.exists():
        for line in RECORD.read_text(encoding="utf-8").splitlines():
            yield HealRecord(**json.loads(line))
