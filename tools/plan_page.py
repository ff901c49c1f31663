"""The outputs and the table of runs in docs/plan.md: `python -m tools.plan_page` writes them."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from parity.report.facts import Cells
from parity.report.text import markdown_table
from tools.public_verdicts import run
from tools.reason_table import rewritten

PAGE = Path(__file__).parents[1] / "docs" / "plan.md"
TABLE = "examples/planning/noise.csv"
PAIR = (
    "parity plan --planned-steps 10000 \\\n  --baseline-recipe fp8_current --candidate-recipe "
    "nvfp4 \\\n  --step-seconds 5 --devices 8"
)
COMMANDS: Mapping[str, str] = {
    "assumed": PAIR,
    "own family": f"{PAIR} \\\n  --noise-table {TABLE} --family my-8B \\\n  --margin 0.5% "
    '--budget "500 hours"',
}
MARGINS = ("1%", "0.5%", "0.25%")
CANDIDATES = ("mxfp8", "nvfp4")


def example(name: str) -> str:
    """A command of the page and what it prints."""
    lines = "\n".join(line.rstrip() for line in run(COMMANDS[name]).rstrip("\n").splitlines())
    return f"```sh\n{COMMANDS[name]}\n```\n\n```\n{lines}\n```"


def cheapest(margin: str, candidate: str) -> tuple[int, int]:
    """Baseline and candidate runs of the cheapest plan that decides the margin against FP8, for
    10,000 steps and assumed noise.
    """
    plan = json.loads(
        run(
            f"parity plan --planned-steps 10000 --margin {margin} --baseline-recipe fp8_current "
            f"--candidate-recipe {candidate} --json"
        )
    )
    design = plan["design"] if plan["decides"] else plan["cheapest"]
    return design["baseline_runs"], design["candidate_runs"]


def runs_table() -> str:
    """The cheapest runs by margin and candidate."""
    rows: list[Cells] = [
        ("margin, of the loss", *(f"FP8 against {candidate.upper()}" for candidate in CANDIDATES))
    ]
    for margin in MARGINS:
        numbers = (cheapest(margin, candidate) for candidate in CANDIDATES)
        rows.append(
            (
                margin.replace("%", " %"),
                *(f"{baseline} + {other} runs" for baseline, other in numbers),
            )
        )
    return markdown_table(rows)


PARTS: Mapping[str, Callable[[], str]] = {
    **{name: functools.partial(example, name) for name in COMMANDS},
    "runs": runs_table,
}


def written(page: str) -> str:
    """The page with all its parts made again; ValueError if it lacks the marks of one."""
    for name, part in PARTS.items():
        page = rewritten(
            page,
            part(),
            (f"<!-- {name}: written by tools/plan_page.py -->", f"<!-- end of {name} -->"),
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
