"""Everything in docs/public-verdict.md that has a figure, and its picture, made by running the command on the page:

`python -m tools.public_verdict` writes them. README.md gets the command and the first lines of its output.
"""

import contextlib
import csv
import io
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scipy.special import fdtri

from parity.cli.main import main as parity
from parity.judging.evaluations.document_types import EvaluatedRunDocument, EvaluationDocument, IntervalDocument
from parity.report.evaluation_facts import AGAINST_MARGIN, Cells, share, steps_words
from parity.report.evaluations import markdown_table
from parity.wording import count, interval_words, percent, signed
from tools.reason_table import rewritten

ROOT = Path(__file__).parents[1]
README, PAGE, PICTURE = ROOT / "README.md", ROOT / "docs" / "public-verdict.md", ROOT / "docs" / "images" / "public-verdict.svg"
EXAMPLE = Path("examples") / "llama31-8b"
COMMAND = """\
parity compare examples/llama31-8b/curves.csv --arm-by precision --run-by system,run \\
  --step samples --loss eval_loss_nats --baseline FP8 --recipe FP8=fp8_current --recipe NVFP4=nvfp4_no_rht \\
  --cluster system --target 3.3 --tokens-per-step 8192 --times examples/llama31-8b/times.csv"""
WITHOUT_CLUSTERS = COMMAND.replace("--cluster system ", "")
README_LINES = 10  # of the output: the answer and the table of what was compared

Row = Mapping[str, str]


def run(command: str) -> str:
    """What a command of the page prints, run in this process from the root of the checkout."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(ROOT), contextlib.suppress(SystemExit):
        parity(shlex.split(command.replace("\\\n", " "))[1:])
    return printed.getvalue()


def judged(command: str, keep: Callable[[Row], bool] = lambda row: True) -> EvaluationDocument:
    """The document of a command of the page; `keep` chooses rows of the example's two tables."""
    with tempfile.TemporaryDirectory() as folder:
        for table in ("curves.csv", "times.csv"):
            rows = [row for row in table_rows(table) if keep(row)]
            with Path(folder, table).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        (document,) = json.loads(run(f"{command.replace(str(EXAMPLE), folder)} --json"))["verdicts"]
    return document  # type: ignore[no-any-return]


def table_rows(table: str) -> list[Row]:
    """The rows of one of the example's tables."""
    with (ROOT / EXAMPLE / table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def systems() -> dict[str, tuple[str, str]]:
    """Each system's precision and a name without its owner: its accelerator, numbered where one precision ran on it twice."""
    kinds = {row["system"]: (row["precision"], row["accelerator"].partition("(")[2].partition("-")[0].rstrip(")")) for row in table_rows("times.csv")}
    named = {}
    for system, (precision, accelerator) in kinds.items():
        alike = sorted(other for other, kind in kinds.items() if kind == (precision, accelerator))
        named[system] = precision, f"{accelerator} ({'ab'[alike.index(system)]})" if len(alike) > 1 else accelerator
    return named


def command_and_output() -> str:
    """The command, and what it prints."""
    return f"```sh\n{COMMAND}\n```\n\n```\n{run(COMMAND)}```"


def first_lines() -> str:
    """The command, and the lines of its output down to the first table."""
    lines = run(COMMAND).splitlines()[:README_LINES]
    return f"```sh\n{COMMAND}\n```\n\n```\n" + "\n".join(lines) + "\n```"


def answers() -> str:
    """The questions that people ask, and what these runs answer."""
    document = judged(COMMAND)
    gap, target, margin, (speed,) = document["gap"], document["target"], document["margin"], document["speed"]
    over_runs, over = gap["over_runs"], gap["over_clusters"]
    assert over_runs and over and target and target["tax"] and margin
    tax, step, net = target["tax"], speed["step"], speed["net"]
    rows: list[Cells] = [("question", "answer of these runs")]
    at = document["as_of"]["words"] if document["as_of"] else ""
    rows.append((f"Is NVFP4 worse at {at}?", f"{yes(over['lo'] > 0.0)}: {signed(over['mean'], 4)} nats, {100 * over['rel']:+.2f} %"))
    rows.append((f"By less than {percent(margin['rel'])}, over runs?", f"{yes(over_runs['hi'] < margin['nats'])}: {ends(over_runs)}"))
    rows.append((f"By less than {percent(margin['rel'])}, over systems?", f"{AGAINST_MARGIN[over['against_margin']]}: {ends(over)}"))
    rows.append((f"How many more tokens to {target['nats']:g}?", f"{share(tax['estimate'])} ({share(tax['lo'])} to {share(tax['hi'])})"))
    hardware = speed["hardware"].partition(" ")[0].replace("x", " x ") + " B200"
    rows.append((f"How much faster is a step on {hardware.partition(' x ')[2].replace(' ', ' x ')}?", ratio_words(step)))
    rows.append((f"How much sooner is {target['nats']:g} reached there?", ratio_words(net)))
    rows.append(("Is this a pass of NVFP4?", f"no: {document['verdict']}, `{document['codes'][0]}`"))
    return markdown_table(rows)


def yes(holds: bool) -> str:
    """A word for whether something holds."""
    return "yes" if holds else "no"


def ends(interval: IntervalDocument) -> str:
    """An interval in nats."""
    return f"{interval_words(interval['lo'], interval['hi'], 4)} nats"


def ratio_words(ratio: Mapping[str, float]) -> str:
    """A ratio of speeds with its interval."""
    return f"{ratio['value']:.3f} x ({ratio['lo']:.3f} to {ratio['hi']:.3f})"


def system_table() -> str:
    """One row per system: runs, loss, spread, tokens and minutes to the target."""
    document, named = judged(COMMAND), systems()
    source = {row["system"]: row["precision_from"] for row in table_rows("curves.csv")}
    rows: list[Cells] = [("precision", "system", "precision known from", "runs", "mean loss", "spread", "tokens to 3.3", "minutes to 3.3")]
    for arm in (document["baseline"], document["candidate"]):
        for system in sorted({str(run["cluster"]) for run in arm["runs"]}, key=lambda name: named[name]):
            runs = [run for run in arm["runs"] if run["cluster"] == system]
            rows.append((*named[system], source[system], str(len(runs)), *_of_runs(document, runs)))
    return markdown_table(rows)


def _of_runs(document: EvaluationDocument, runs: Sequence[EvaluatedRunDocument]) -> Cells:
    losses = [run["loss"] for run in runs]
    mean = sum(losses) / len(losses)
    spread = math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1))
    samples = math.exp(sum(math.log(run["samples_to_target"] or 0.0) for run in runs) / len(runs))
    minutes = sum((run["times"] or {})["seconds_to_target"] / 60.0 for run in runs) / len(runs)  # type: ignore[typeddict-item,operator]
    return f"{mean:.4f}", f"{spread:.4f}", steps_words(document, samples).removesuffix(" tokens"), f"{minutes:.1f}"


def spread_table() -> str:
    """The spread of each arm's runs beside what the judge would have assumed, and the ratio of the two arms' spreads."""
    document = judged(COMMAND)
    rows: list[Cells] = [("", "runs", "spread measured", "its 95 % interval", "assumed for a single run", "measured / assumed")]
    arms = document["baseline"], document["candidate"]
    for arm in arms:
        spread, mean = arm["spread"], arm["mean"]
        assert spread and mean
        measured = f"{100 * spread['rel']:.2f} %", f"{100 * spread['lo'] / mean:.2f} to {100 * spread['hi'] / mean:.2f} %"
        assumed = f"{100 * spread['assumed_rel']:.2f} %", f"{spread['rel'] / spread['assumed_rel']:.1f}"
        rows.append((arm["name"], str(len(arm["runs"])), *measured, *assumed))
    return f"{markdown_table(rows)}\n\nNVFP4's spread is {_spread_ratio(document)} of FP8's."


def _spread_ratio(document: EvaluationDocument) -> str:
    """The ratio of the arms' standard deviations with the 95 % interval of the F distribution."""
    base, cand = document["baseline"], document["candidate"]
    assert base["spread"] and cand["spread"]
    ratio, df = cand["spread"]["sd"] / base["spread"]["sd"], (len(cand["runs"]) - 1, len(base["runs"]) - 1)
    lo, hi = (ratio / math.sqrt(float(fdtri(*df, tail))) for tail in (0.975, 0.025))
    return f"{ratio:.2f} times ({lo:.2f} to {hi:.2f})"


def interval_table() -> str:
    """The gap over runs and over systems: of all runs, on equal hardware, and without each system in turn."""
    named = systems()
    chosen: list[tuple[str, Callable[[Row], bool]]] = [("all", lambda row: True)]
    chosen.append(("only B200", lambda row: "B200-" in row["accelerator"]))
    for system, (precision, name) in sorted(named.items(), key=lambda item: item[1]):
        chosen.append((f"without {precision} on {name}", lambda row, left_out=system: row["system"] != left_out))  # type: ignore[misc]
    rows: list[Cells] = [("runs", "FP8, NVFP4", "gap, nats", "over runs", "systems", "gap, nats", "over systems", "degrees of freedom")]
    for name, keep in chosen:
        document = judged(COMMAND, keep)
        over_runs, over = document["gap"]["over_runs"], document["gap"]["over_clusters"]
        assert over_runs
        runs = f"{len(document['baseline']['runs'])}, {len(document['candidate']['runs'])}"
        row = [name, runs, signed(over_runs["mean"], 4), interval_words(over_runs["lo"], over_runs["hi"], 4)]
        if over:
            row += [f"{over['baseline']}, {over['candidate']}", signed(over["mean"], 4), interval_words(over["lo"], over["hi"], 4), f"{over['df']:g}"]
        rows.append((*row, *[""] * (len(rows[0]) - len(row))))
    margin = document["margin"]
    return markdown_table(rows) + (f"\n\nThe margin is {margin['nats']:.4f} nats." if margin else "")


def sceptic_figures() -> str:
    """The figures that a sceptic asks for, a line each."""
    document, rows = judged(COMMAND), table_rows("curves.csv")
    curve, target, (speed,) = document["curve"], document["target"], document["speed"]
    assert curve and target and target["tax"] and target["baseline_samples"]
    grid, last = curve["steps"][1] - curve["steps"][0], curve["steps"][-1]
    expected = speed["step"]["value"] / (1.0 + target["tax"]["estimate"])
    ends_at = sorted({int(row["samples_at_end"]) for row in table_rows("times.csv")})
    excluding = sum(1 for lo in curve["lo"] if lo > 0.0)
    sources = {row["system"]: row["precision_from"] for row in rows}
    return "\n".join(
        [
            f"- The gap lies between {signed(min(curve['gap']), 4)} and {signed(max(curve['gap']), 4)} nats at all {len(curve['steps'])} "
            f"evaluations; the simultaneous band excludes 0 at {excluding} of them.",
            f"- Runs were evaluated every {grid:,} samples ({percent(grid / last)} of the way to the point compared) and ended after "
            f"{ends_at[0]:,} to {ends_at[-1]:,} samples, at the first evaluation at or below the target.",
            f"- Step speed divided by the tokens needed gives {expected:.3f} x; measured from start to target it is "
            f"{speed['net']['value']:.3f} x. The minutes count whole evaluations, the tokens are interpolated between them.",
            f"- The speeds compare {count(speed['runs'][0], 'run')} with {count(speed['runs'][1], 'run')} on {_machines(speed['hardware'])}.",
            f"- The precision of {sum(source == 'log' for source in sources.values())} of {len(sources)} systems was printed by their runs; "
            "that of the others is known from the submitters' configuration files.",
        ]
    )


def _machines(hardware: str) -> str:
    """How many systems of each arm have this hardware."""
    named = systems()
    counts = {
        precision: len({row["system"] for row in table_rows("times.csv") if row["accelerator"] == hardware and named[row["system"]][0] == precision})
        for precision in ("FP8", "NVFP4")
    }
    return " and ".join(f"{count(number, 'system')} in {precision}" for precision, number in counts.items())


PARTS: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    PAGE: {
        "command and output": command_and_output,
        "answers": answers,
        "systems": system_table,
        "spread": spread_table,
        "intervals": interval_table,
        "figures": sceptic_figures,
    },
    README: {"first example": first_lines},
}


def written(path: Path, page: str) -> str:
    """The page with all its parts made again; ValueError if one lacks its marks."""
    for name, part in PARTS[path].items():
        page = rewritten(page, part(), (f"<!-- {name}: written by tools/public_verdict.py -->", f"<!-- end of {name} -->"))
    return page


def main() -> None:
    """Rewrite the parts and draw the picture."""
    for path in PARTS:
        path.write_text(written(path, path.read_text(encoding="utf-8")), encoding="utf-8")
    run(f"{COMMAND} --figure {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
