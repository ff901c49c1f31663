"""The sets of examples/public, and every question of theirs, judged from its folder."""

import csv
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from parity.frozen import frozen
from tools.tables.generated import ROOT
from tools.tables.printed import run

SETS = ROOT / "examples" / "public"


@frozen
class Set:
    """A folder of the gallery: what is known of it, and its questions by name ("" of the only
    one).
    """

    name: str
    about: Mapping[str, Any]
    questions: Mapping[str, Mapping[str, Any]]

    @property
    def file(self) -> str:
        """The file that says how it is judged, from the root of the checkout."""
        return f"examples/public/{self.name}/parity.yaml"


@frozen
class SetAnswer:
    """A judged question: `size` is the model's where the question has several, `document` the
    verdict.
    """

    of: Set
    question: str
    size: str
    document: Any

    @property
    def candidate(self) -> str:
        """The candidate's name without the size."""
        return str(self.document["candidate"]["name"]).partition(" (")[0]

    @property
    def place(self) -> str:
        """The file and question, as `parity compare` takes them."""
        return f"{self.of.file}{f':{self.question}' if self.question else ''}"

    @property
    def word(self) -> str:
        """The verdict; `pass as of` where only the point of the training holds a pass back."""
        return (
            "pass as of" if self.document["codes"][0] == "AS_OF" else str(self.document["verdict"])
        )

    @property
    def gap(self) -> Any:
        """The judged gap with its interval, nats."""
        gap = self.document["gap"]
        return gap.get("judged", gap)

    @property
    def level(self) -> float:
        """The baseline's loss."""
        base = self.document["baseline"]
        return float(base["level"] if "level" in base else base["mean"])


@functools.cache
def sets() -> tuple[Set, ...]:
    """Every set whose facts are here."""
    found = []
    for file in sorted(SETS.glob("*/parity.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        compare = content["compare"]
        found.append(
            Set(
                name=file.parent.name,
                about=content["about"],
                questions={"": compare} if "runs" in compare else compare,
            )
        )
    return tuple(found)


@functools.cache
def answers() -> tuple[SetAnswer, ...]:
    """Every question, judged from its folder."""
    return tuple(
        answer for one in sets() for question in one.questions for answer in judged(one, question)
    )


def judged(one: Set, question: str) -> Iterator[SetAnswer]:
    """The answers to a question: one, or one a size."""
    file = f"{one.file}{f':{question}' if question else ''}"
    for document in json.loads(run(f"parity compare {file} --json"))["verdicts"]:
        size = re.search(r"model_millions=(\d+)", document["candidate"]["name"])
        yield SetAnswer(
            of=one, question=question, size=f"{size[1]} M" if size else "", document=document
        )


def facts(one: Set, question: str) -> list[Mapping[str, str]]:
    """The rows of a question's table."""
    with (SETS / one.name / one.questions[question]["runs"]).open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))
