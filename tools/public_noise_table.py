"""Write parity/judging/noise/public.csv from a folder of published reruns: `python -m
tools.public_noise_table FOLDER`.

FOLDER/groups.csv: group,runs,steps,mean_loss_nats,sd_nats,... with groups `track3/NAME` and
`records/TRACK` of one 124 M model. The two sets become two families, because their spreads differ;
their scripts train in BF16, some with an FP8 head, and round to nearest. FOLDER/families.csv:
family,...,precision,varies,group,runs,mean_loss,sd,unit,source,licence with groups of other models.
How they round follows from their precision, where that is known; how they start and end is
`CLASSES`, read from the sources. Only numbers are taken. Names that repeat get a number, in the
order of the file.
"""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from parity.judging.noise.noise_table import COLUMNS
from parity.judging.noise.public_table import PUBLIC

SMALL = {
    "unit": "nats",
    "rounding": "nearest",
    "start": "scratch",
    "schedule": "finished",
    "varies": "seed and GPU nondeterminism, as each script has it",
    "source": "github.com/KellerJordan/modded-nanogpt @f411b3d346aa",
    "licence": "MIT",
}
# Start and schedule by the beginning of the family's name. MLPerf stops a run at a target loss,
# long before its schedule ends.
CLASSES: Mapping[str, tuple[str, str]] = {
    "modded-nanogpt-medium": ("scratch", "finished"),
    "ParamGolf": ("scratch", "finished"),
    "Llama3.1-8B": ("scratch", "decaying"),
    "Llama3.1-405B": ("checkpoint", "warm-up"),
    "GPT3-175B": ("checkpoint", ""),
    "Llama2-70B-LoRA": ("fine-tune", ""),
}
# words in a precision that does not say how its runs round
UNRESOLVED = ("mixed", "not resolved", "INT8", "binary", "ternary")


def public_csv(groups: str, families: str) -> str:
    """The table in its documented shape, from the texts of both files. Raises KeyError where a
    column is missing.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_small(groups))
    writer.writerows(_others(families))
    return text.getvalue()


def _small(groups: str) -> Iterator[Mapping[str, str]]:
    rows = list(csv.DictReader(io.StringIO(groups)))
    for row, name in zip(rows, _numbered([row["group"] for row in rows]), strict=True):
        family, _, group = name.partition("/")
        numbers = {"runs": row["runs"], "mean_loss": row["mean_loss_nats"], "sd": row["sd_nats"]}
        yield {"family": f"modded-nanogpt-124M/{family}", "group": group, **numbers, **SMALL}


def _others(families: str) -> Iterator[Mapping[str, str]]:
    rows = list(csv.DictReader(io.StringIO(families)))
    for row, name in zip(
        rows, _numbered([f"{row['family']}\n{row['group']}" for row in rows]), strict=True
    ):
        start, schedule = next(
            words for beginning, words in CLASSES.items() if row["family"].startswith(beginning)
        )
        classes = {"rounding": _rounding(row["precision"]), "start": start, "schedule": schedule}
        yield {
            **{column: row[column] for column in COLUMNS if column in row},
            "group": name.partition("\n")[2],
            **classes,
        }


def _numbered(names: list[str]) -> Iterator[str]:
    times, seen = Counter(names), Counter[str]()
    for name in names:
        seen[name] += 1
        yield f"{name}/{seen[name]:03}" if times[name] > 1 else name


def _rounding(precision: str) -> str:
    if any(word in precision for word in UNRESOLVED):
        return ""
    return "stochastic" if precision.startswith("NVFP4") else "nearest"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    texts = ((folder / name).read_text(encoding="utf-8") for name in ("groups.csv", "families.csv"))
    PUBLIC.write_text(public_csv(*texts), encoding="utf-8")
