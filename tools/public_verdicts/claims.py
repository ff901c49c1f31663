"""Published numbers, each asked as two numbers."""

import csv
import json
from collections.abc import Mapping

from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from parity.wording import interval_words, likely, minus, signed
from tools.public_verdicts.sets import SETS
from tools.tables.printed import run


def claim_table() -> str:
    """Published numbers, each asked as two numbers."""
    rows: list[Cells] = [
        ("work", "what it reports", "two numbers", "what they show at a margin of 1 %")
    ]
    with (SETS / "claims.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            level = f" ({row['level']})" if row["level"] else ""
            numbers = f"`{row['numbers']}`{level}" if row["numbers"] else "none"
            rows.append(
                (
                    f"{row['work']}: {row['scale']} ({row['source']})",
                    row["claim"],
                    numbers,
                    claim_answer(row),
                )
            )
    return markdown_table(rows)


def claim_answer(row: Mapping[str, str]) -> str:
    """What two numbers answer, in words that hold whoever wrote them."""
    if not row["numbers"]:
        return (
            "Published without the losses, of which a margin is a share, so it cannot be asked. "
            "The logs would answer."
        )
    tokens = f" --tokens {row['tokens']}" if row["tokens"] else ""
    recipes = "".join(
        f" --recipe {name}={name}" for name in ("mxfp4",) if f"{name}=" in row["numbers"]
    )
    (document,) = json.loads(
        run(f"parity compare {row['numbers']}{tokens}{recipes} --margin 1% --json")
    )["verdicts"]
    gap, margin = document["gap"]["judged"], document["margin"]["nats"]
    words = minus(
        f"{signed(gap['mean'])} nats ({interval_words(gap['lo'], gap['hi'])}), margin {margin:.4f}"
    )
    if document["verdict"] == "fail":
        return f"Above the margin, as of these numbers: {words}."
    return (
        f"Inconclusive: {words}; chance of parity {likely(document['chance_of_parity'])}. One run "
        "an arm was reported; its logs would say more."
    )
