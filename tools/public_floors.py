"""Write parity/judging/floors/public.csv from a folder of published reruns: `python -m tools.public_floors FOLDER`.

FOLDER has groups.csv: group,runs,steps,mean_loss_nats,sd_nats,... with groups `track3/NAME` and `records/TRACK`. Only numbers are taken.
The two sets become two families, because their spreads differ; their scripts train in BF16, some with an FP8 head, and round to nearest.
Names that repeat get a number, in the order of the file.
"""

import csv
import io
import sys
from collections import Counter
from pathlib import Path

from parity.judging.floors.groups import COLUMNS, NATS
from parity.judging.floors.public import PUBLIC

MODEL = "modded-nanogpt-124M"
SOURCE = "github.com/KellerJordan/modded-nanogpt @f411b3d346aa"
LICENCE = "MIT"
VARIES = "seed and GPU nondeterminism, as each script has it"


def public_csv(groups: str) -> str:
    """The table in its documented shape, from the text of groups.csv. Raises KeyError where a column is missing."""
    rows = list(csv.DictReader(io.StringIO(groups)))
    times = Counter(row["group"] for row in rows)
    seen: Counter[str] = Counter()
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        name = row["group"]
        seen[name] += 1
        family, _, group = name.partition("/")
        writer.writerow(
            {
                "family": f"{MODEL}/{family}",
                "group": f"{group}/{seen[name]:03}" if times[name] > 1 else group,
                "runs": row["runs"],
                "mean_loss": row["mean_loss_nats"],
                "sd": row["sd_nats"],
                "unit": NATS,
                "rounding": "nearest",
                "varies": VARIES,
                "source": SOURCE,
                "licence": LICENCE,
            }
        )
    return text.getvalue()


if __name__ == "__main__":
    PUBLIC.write_text(public_csv((Path(sys.argv[1]) / "groups.csv").read_text(encoding="utf-8")), encoding="utf-8")
