"""The set of many runs on several systems: its gap without each of them."""

import csv
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from parity.wording import interval_words, minus, signed
from tools.public_verdicts.sets import facts, sets
from tools.tables.generated import DOCS, ROOT
from tools.tables.printed import run

SYSTEMS = "examples/public/llama31-8b"
BUNDLE = ROOT / SYSTEMS / "nvfp4.zip"
PICTURE = DOCS / "images" / "public-verdict.svg"


def interval_table() -> str:
    """The gap over runs and over systems, of all and without each system in turn."""
    rows: list[Cells] = [("without", "runs", "over runs, nats", "over systems, nats")]
    for system, precision in (("", ""), *systems().items()):
        document = without(system)
        over, clusters = document["gap"]["over_runs"], document["gap"]["over_clusters"]
        number = f"{len(document['baseline']['runs'])} + {len(document['candidate']['runs'])}"
        cells = [
            f"{signed(interval['mean'])} ({interval_words(interval['lo'], interval['hi'])})"
            for interval in (over, clusters)
        ]
        rows.append((f"{precision} on {system}" if system else "none", number, *cells))
    return minus(markdown_table(rows))


@functools.cache
def without(system: str) -> Any:
    """The verdict on the set of several systems without one of them."""
    one = next(one_set for one_set in sets() if one_set.file.startswith(SYSTEMS + "/"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("curves.csv", "times.csv"):
            with (ROOT / SYSTEMS / name).open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["system"] != system]
            with Path(folder, name).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        question = {"compare": one.questions["one-percent"], "policy": {"margin": "1 %"}}
        Path(folder, "parity.yaml").write_text(yaml.safe_dump(question), encoding="utf-8")
        return json.loads(run(f"parity compare {folder}/parity.yaml --json"))["verdicts"][0]


def systems() -> dict[str, str]:
    """The systems of that set, with their precision."""
    one = next(one_set for one_set in sets() if one_set.file.startswith(SYSTEMS + "/"))
    return dict(sorted((row["system"], row["precision"]) for row in facts(one, "one-percent")))
