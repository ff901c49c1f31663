"""E1: 25 questions about 16 public sets, each one call of `parity compare`, and the answers that
are allowed.

Run: python -m benchmarks.calibration.expected [FOLDER], the folder with expected.csv (default:
`marks.PUBLIC_RUNS`), whose public_pairs/README.md has the sets and their sources. Prints one line a
call: what was answered and on which code, what is allowed, ok or MISS. A row of several sizes or
arms is one call each; it holds where all of its calls do.
"""

import contextlib
import csv
import dataclasses
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.marks import PUBLIC_RUNS, MarkedFigure
from parity.cli import main
from parity.frozen import frozen

Row = Mapping[str, str]

HELD_OUT = ("--loss-is", "validation")
# what a user types of each table, in addition to arms, recipes, margin and schedule
OPTIONS: Mapping[str, Sequence[str]] = {
    "nanogpt_fp8_down_projection": ("--run-by", "run", *HELD_OUT),
    "curves": (
        "--run-by",
        "system,run",
        "--step",
        "samples",
        "--loss",
        "eval_loss_nats",
        "--cluster",
        "system",
    ),
    "llama31_8b_continued": ("--run-by", "arm", "--planned-steps", "763", "--start", "loaded"),
    "llama3_8b_scratch_eager": ("--run-by", "arm", "--planned-steps", "763"),
    "llama3_8b_scratch_graph": ("--run-by", "arm", "--planned-steps", "763"),
    "deepseek_v3_16b": ("--run-by", "arm", "--planned-steps", "382"),
    "llama2_70b_lora": ("--run-by", "system,run", *HELD_OUT, "--start", "loaded"),
    "llama31_405b_evals": ("--run-by", "system,run", *HELD_OUT),
    "marin_moe_mxfp8": ("--run-by", "run", *HELD_OUT),
    "llama31_8b_160b_train_tail": ("--run-by", "run"),
    "llama31_8b_160b_validation": ("--run-by", "run", *HELD_OUT),
    "nemotron_h_8b_fp4": ("--run-by", "run", *HELD_OUT),
    "rtx6000_277m": ("--run-by", "run"),
    "flux1_mxfp8": (
        "--run-by",
        "system,run",
        "--step",
        "samples",
        *HELD_OUT,
        "--loss-unit",
        "other",
    ),
    "gpt3_175b": (
        "--run-by",
        "round,system,run",
        "--step",
        "samples",
        *HELD_OUT,
        "--start",
        "loaded",
    ),
    "quest_qat_sizes": ("--run-by", "seed", *HELD_OUT),
    "llama31_8b_mi355x": ("--run-by", "run", "--step", "evaluation", *HELD_OUT),
}
# quantizes the forward pass alone, so that no gradient is rounded stochastically
NEAREST = ("quest_qat_sizes",)
BASELINE_RECIPES = {"bf16": "bf16", "bf16_down": "bf16", "fp8": "fp8"}
SELECTIONS: Mapping[str, Sequence[str]] = {
    "": (),
    "align by evaluation": (),
    "batch=2048": ("--where", "batch=2048"),
}


@frozen
class ExpectedAnswer:
    """One call: its candidate and selection, the answer, and the deciding code with the gap in %
    where there is one.
    """

    candidate: str
    selection: str
    got: str
    code: str
    gap: str


def answers(folder: Path, row: Row) -> Iterator[ExpectedAnswer]:
    """The answer to each call of a row."""
    table = folder / row["file"]
    cells = list(csv.DictReader(table.open(newline="")))
    arm_by = "precision" if "precision" in cells[0] else "arm"
    arms = list(dict.fromkeys(cell[arm_by] for cell in cells))
    every = (
        [arm for arm in arms if arm != row["baseline"]]
        if row["candidate"] == "each other arm"
        else [row["candidate"]]
    )
    for candidate in every:
        for selection in selections(row, cells, candidate):
            yield ask(table, row, candidate, ("--arm-by", arm_by, *selection))


def selections(row: Row, cells: Sequence[Row], candidate: str) -> Iterator[Sequence[str]]:
    """The options that select the rows of each call."""
    if row["where"] != "same size and tokens":
        yield SELECTIONS[row["where"]]
        return
    sizes = [
        {(cell["model_millions"], cell["tokens"]) for cell in cells if cell["arm"] == arm}
        for arm in (row["baseline"], candidate)
    ]
    for millions, tokens in sorted(sizes[0] & sizes[1], key=lambda size: float(size[0])):
        yield "--where", f"model_millions={millions}", "--where", f"tokens={tokens}"


def ask(table: Path, row: Row, candidate: str, table_options: Sequence[str]) -> ExpectedAnswer:
    """One call of `parity compare`."""
    baseline, arm_by = row["baseline"], table_options[1]
    arguments = [
        *(
            "compare",
            str(table),
            *table_options,
            "--where",
            f"{arm_by}={baseline}",
            "--where",
            f"{arm_by}={candidate}",
        ),
        *OPTIONS[table.stem],
        *(
            "--baseline",
            baseline,
            "--margin",
            row["margin"],
            "--recipe",
            f"{baseline}={BASELINE_RECIPES[baseline.lower()]}",
        ),
        *("--recipe", f"{candidate}={row['recipe_of_candidate']}", "--json"),
        *(("--rounding", f"{candidate}=nearest") if table.stem in NEAREST else ()),
        *(("--schedule", "decayed") if row["schedule"] == "decayed" else ()),
    ]
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(SystemExit),
    ):
        main(arguments)
    selection = " ".join(word for word in table_options[2:] if word != "--where")
    if not out.getvalue():
        return ExpectedAnswer(
            candidate=candidate,
            selection=selection,
            got="refused",
            code=err.getvalue().strip()[-150:],
            gap="",
        )
    (document,) = json.loads(out.getvalue())["verdicts"]
    gap = document["gap"]["judged"] if "judged" in (document["gap"] or {}) else document["gap"]
    level = document["baseline"].get("mean") or document["baseline"].get("level")
    words = (
        "{:+.2f} ({:+.2f} to {:+.2f})".format(
            *(100 * gap[key] / level for key in ("mean", "lo", "hi"))
        )
        if gap and level
        else ""
    )
    return ExpectedAnswer(
        candidate=candidate,
        selection=selection,
        got=word(document["verdict"], document["codes"]),
        code=document["codes"][0],
        gap=words,
    )


def word(verdict: str, codes: Sequence[str]) -> str:
    """The verdict, a pass that only the point of the training holds back as such."""
    return "pass as of" if verdict == "inconclusive" and codes[0] == "AS_OF" else verdict


def holds(answer: ExpectedAnswer, row: Row) -> bool:
    """Whether an answer is allowed and rests on none of the codes that must not decide."""
    return answer.got in row["allowed"].split("|") and answer.code not in row["never_by"].split("|")


def lines(folder: Path) -> Iterator[MarkedFigure]:
    """Every call of every row, then how many rows hold and which passes and fails are not
    allowed.
    """
    with (folder / "expected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    right = 0
    decided = []
    for row in rows:
        made = list(answers(folder, row))
        right += all(holds(answer, row) for answer in made)
        for answer in made:
            never = f", never {row['never_by']}" if row["never_by"] else ""
            ok = holds(answer, row)
            what = f"{row['set']} {answer.candidate} {answer.selection} {row['margin']}"
            if not ok and answer.got in ("pass", "fail"):
                decided.append(what)
            yield MarkedFigure(
                what=what,
                value=f"{answer.got} {answer.code} {answer.gap}",
                mark=f"{row['allowed']}{never}",
                ok=ok,
            )
    yield MarkedFigure(
        what="rows that hold",
        value=f"{right} of {len(rows)}",
        mark="all but one",
        ok=right >= len(rows) - 1,
    )
    yield MarkedFigure(
        what="passes and fails that are not allowed",
        value=", ".join(decided) or "none",
        mark="none",
        ok=not decided,
    )


def e1(_quick: bool) -> Iterator[MarkedFigure]:
    """The questions where the data is at hand; one call that is not allowed is no miss of its own,
    one decision that is not is.
    """
    if (PUBLIC_RUNS / "expected.csv").is_file():
        *calls, rows, decided = lines(PUBLIC_RUNS)
        yield from (
            dataclasses.replace(
                line, mark=f"{line.mark}{'' if line.ok else ' (does not hold)'}", ok=True
            )
            for line in calls
        )
        yield from (rows, decided)


CHECKS = {"E1": e1}

if __name__ == "__main__":
    for line in lines(Path(sys.argv[1]) if len(sys.argv) > 1 else PUBLIC_RUNS):
        print(
            f"{line.what:75} {line.value:65} {line.mark:60} {'ok' if line.ok else 'MISS'}",
            flush=True,
        )
