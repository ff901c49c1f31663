"""The figures of docs/public-verdict.md, its picture and its evidence bundle, made by the command on that page.

`python -m tools.public_verdict` writes them. README.md gets the command and the first lines of its output.
"""

import contextlib
import csv
import functools
import io
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.special import fdtri

from parity.cli import main as parity
from parity.report.facts import AGAINST_MARGIN, Cells, share, steps_words
from parity.report.text import markdown_table
from parity.wording import count, interval_words, percent, signed
from tools.reason_table import rewritten

ROOT = Path(__file__).parents[1]
README, PAGE, PICTURE = ROOT / "README.md", ROOT / "docs" / "public-verdict.md", ROOT / "docs" / "images" / "public-verdict.svg"
EXAMPLE = "examples/llama31-8b"
BUNDLE = ROOT / EXAMPLE / "nvfp4.zip"
COMMAND = f"""\
parity compare {EXAMPLE}/curves.csv --times {EXAMPLE}/times.csv --arm-by precision --run-by system,run \\
  --step samples --loss eval_loss_nats --baseline FP8 --recipe FP8=fp8_current --recipe NVFP4=nvfp4_no_rht \\
  --cluster system --target 3.3 --tokens-per-step 8192"""
README_LINES = 5  # of the output: the sentences
INSTALL = "python3 -m venv /tmp/parity && /tmp/parity/bin/pip install . && export PATH=/tmp/parity/bin:$PATH"

Row = Mapping[str, str]
Keep = Callable[[Row], bool]


def run(command: str) -> str:
    """What a command of the page prints, run in this process from the root of the checkout."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(ROOT), contextlib.suppress(SystemExit):
        parity(shlex.split(command.replace("\\\n", " "))[1:])
    return printed.getvalue()


@functools.cache
def judged(keep: Keep | None = None) -> Any:
    """The document that the page's command gives; `keep` chooses rows of the example's two tables."""
    with tempfile.TemporaryDirectory() as folder:
        for table in ("curves.csv", "times.csv"):
            rows = [row for row in table_rows(table) if keep is None or keep(row)]
            with Path(folder, table).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        return json.loads(run(f"{COMMAND.replace(EXAMPLE, folder)} --json"))["verdicts"][0]


def table_rows(table: str) -> list[Row]:
    """The rows of one of the example's tables."""
    with (ROOT / EXAMPLE / table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def systems() -> dict[str, tuple[str, str]]:
    """Each system's precision and a short name: its accelerator, with a letter where several systems of one precision have it."""
    kinds = {row["system"]: (row["precision"], accelerator(row["accelerator"])) for row in table_rows("times.csv")}
    named = {}
    for system, (precision, kind) in kinds.items():
        alike = sorted(other for other, own in kinds.items() if own == (precision, kind))
        named[system] = precision, f"{kind} ({'abcdef'[alike.index(system)]})" if len(alike) > 1 else kind
    return named


def accelerator(words: str) -> str:
    """ "8 x B200" of "1x8 NVIDIA Blackwell GPU (B200-SXM-180GB)"."""
    nodes, _, each = words.partition(" ")[0].partition("x")
    return f"{int(nodes) * int(each)} x {words.partition('(')[2].partition('-')[0].rstrip(')')}"


@functools.cache
def output() -> str:
    """What the page's command prints."""
    return run(f"{COMMAND} -v")


def command_and_output() -> str:
    """The command, and what it prints."""
    return f"```sh\n{COMMAND} -v\n```\n\n```\n{output()}```"


def first_lines() -> str:
    """How to install the command line, the command, and the lines of its output that answer."""
    told = "\n".join(run(COMMAND).splitlines()[:README_LINES])
    return f"```sh\n{INSTALL}\n{COMMAND}\n```\n\n```\n{told}\n```"


def answers() -> str:
    """The questions that people ask, and what these runs answer."""
    document = judged()
    over_runs, over = document["gap"]["over_runs"], document["gap"]["over_clusters"]
    margin, target, speed = document["margin"], document["target"], document["speed"][0]
    tax, hardware = target["tax"], accelerator(speed["hardware"])
    rows: list[Cells] = [("question", "answer of these runs")]
    rows.append(
        (f"Is NVFP4 worse at {document['as_of']['words']}?", f"{yes(over['lo'] > 0.0)}: {gap_words(over)}, {100.0 * over['rel']:+.2f} %")
    )
    for interval, unit in ((over_runs, "runs"), (over, "systems")):
        words = f"{AGAINST_MARGIN[interval['against_margin']]}: {interval_words(interval['lo'], interval['hi'], 4)} nats"
        rows.append((f"By less than {margin['nats']:.4f} nats ({percent(margin['rel'])}), judged over {unit}?", words))
    rows.append(
        (
            f"How many more tokens until the loss is {target['nats']:g}?",
            f"{share(tax['estimate'])} ({share(tax['lo'])} to {share(tax['hi'])})",
        )
    )
    rows.append((f"How much faster is a step on {hardware}?", ratio_words(speed["step"])))
    rows.append((f"How much sooner is the loss {target['nats']:g} there?", ratio_words(speed["net"])))
    rows.append(("Does NVFP4 pass?", f"no: {document['verdict']}, `{document['codes'][0]}`"))
    return markdown_table(rows)


def yes(holds: bool) -> str:
    """A word for whether something holds."""
    return "yes" if holds else "not shown"


def gap_words(interval: Mapping[str, float]) -> str:
    """A gap with its interval."""
    return f"{signed(interval['mean'], 4)} nats ({interval_words(interval['lo'], interval['hi'], 4)})"


def ratio_words(ratio: Mapping[str, float]) -> str:
    """A ratio of speeds with its interval."""
    return f"{ratio['value']:.3f} x ({ratio['lo']:.3f} to {ratio['hi']:.3f})"


def system_table() -> str:
    """One row per system: runs, loss, spread, tokens and minutes to the target."""
    document, named = judged(), systems()
    source = {row["system"]: row["precision_from"] for row in table_rows("curves.csv")}
    rows: list[Cells] = [("precision", "system", "known from", "runs", "mean loss", "spread", "tokens to 3.3", "minutes to 3.3")]
    for arm in (document["baseline"], document["candidate"]):
        for system in sorted({run["cluster"] for run in arm["runs"]}, key=lambda name: named[name]):
            runs = [run for run in arm["runs"] if run["cluster"] == system]
            rows.append((*named[system], source[system], str(len(runs)), *_of_runs(document, runs)))
    return markdown_table(rows)


def _of_runs(document: Any, runs: Sequence[Any]) -> Cells:
    losses = [run["loss"] for run in runs]
    mean = sum(losses) / len(losses)
    spread = math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1))
    samples = math.exp(sum(math.log(run["samples_to_target"]) for run in runs) / len(runs))
    minutes = sum(run["times"]["seconds_to_target"] for run in runs) / 60.0 / len(runs)
    return f"{mean:.4f}", f"{spread:.4f}", steps_words(document, samples).removesuffix(" tokens"), f"{minutes:.1f}"


def spread_table() -> str:
    """The spread of each arm's runs and what the judge would have assumed, and the ratio of the two arms' spreads."""
    document = judged()
    arms = document["baseline"], document["candidate"]
    rows: list[Cells] = [("", "runs", "spread measured", "its 95 % interval", "assumed for a single run", "measured / assumed")]
    for arm in arms:
        spread, mean = arm["spread"], arm["mean"]
        measured = f"{100 * spread['rel']:.2f} %", f"{100 * spread['lo'] / mean:.2f} to {100 * spread['hi'] / mean:.2f} %"
        assumed = f"{100 * spread['assumed_rel']:.2f} %", f"{spread['rel'] / spread['assumed_rel']:.1f}"
        rows.append((arm["name"], str(len(arm["runs"])), *measured, *assumed))
    base, cand = arms
    ratio, df = cand["spread"]["sd"] / base["spread"]["sd"], (len(cand["runs"]) - 1, len(base["runs"]) - 1)
    lo, hi = (ratio / math.sqrt(float(fdtri(*df, tail))) for tail in (0.975, 0.025))
    return (
        f"{markdown_table(rows)}\n\nNVFP4's spread is {ratio:.2f} times FP8's (95 % interval of the F distribution {lo:.2f} to {hi:.2f})."
    )


def interval_table() -> str:
    """The gap over runs and over systems: of all runs, on equal hardware, and without each system in turn."""
    kept: dict[str, Keep | None] = {"all": None, "only 8 x B200": lambda row: accelerator(row["accelerator"]) == "8 x B200"}
    for system, (precision, name) in sorted(systems().items(), key=lambda item: item[1]):
        kept[f"without {precision} on {name}"] = other_than(system)
    rows: list[Cells] = [("runs", "FP8, NVFP4", "over runs", "systems", "over systems", "degrees of freedom")]
    for name, keep in kept.items():
        document = judged(keep)
        over = document["gap"]["over_clusters"]
        runs = f"{len(document['baseline']['runs'])}, {len(document['candidate']['runs'])}"
        clusters = (f"{over['baseline']}, {over['candidate']}", gap_words(over), f"{over['df']:g}") if over else ("", "", "")
        rows.append((name, runs, gap_words(document["gap"]["over_runs"]), *clusters))
    return f"{markdown_table(rows)}\n\nThe margin is {judged()['margin']['nats']:.4f} nats."


@functools.cache
def other_than(system: str) -> Keep:
    """Keeps the rows of all other systems; one function per system, so that `judged` remembers its document."""
    return lambda row: row["system"] != system


def sceptic_figures() -> str:
    """The figures that a sceptic asks for, a line each."""
    document, timed = judged(), table_rows("times.csv")
    curve, speed = document["curve"], document["speed"][0]
    grid, last = curve["steps"][1] - curve["steps"][0], curve["steps"][-1]
    expected = speed["step"]["value"] / (1.0 + document["target"]["tax"]["estimate"])
    ends = sorted(int(row["samples_at_end"]) for row in timed)
    sources = {row["system"]: row["precision_from"] for row in table_rows("curves.csv")}
    logged = sum(source == "log" for source in sources.values())
    equal = sorted({(row["precision"], row["system"]) for row in timed if row["accelerator"] == speed["hardware"]})
    machines = " and ".join(f"{count(sum(precision == arm for precision, _ in equal), 'system')} in {arm}" for arm in ("FP8", "NVFP4"))
    least, most = (signed(end(curve["gap"]), 4) for end in (min, max))
    net, apart = speed["net"]["value"], [f"{nats:.4f}" for nats in _between_systems(document)]
    lines = [f"The gap lies between {least} and {most} nats at all {len(curve['steps'])} evaluations."]
    lines.append(f"The simultaneous band excludes 0 at {sum(lo > 0.0 for lo in curve['lo'])} of them.")
    lines.append(
        f"Means of systems with one precision have a standard deviation of {apart[0]} nats; the spread of runs alone would give {apart[1]}."
    )
    lines.append(f"Runs were evaluated every {grid:,} samples, {percent(grid / last)} of the way to the point compared.")
    lines.append(f"They ended after {ends[0]:,} to {ends[-1]:,} samples, at the first evaluation at or below the target.")
    lines.append(f"The speeds come from {machines}.")
    lines.append(f"Step speed divided by the ratio of tokens is {expected:.3f} x; measured from start to target it is {net:.3f} x.")
    lines.append(f"{logged} of {len(sources)} systems printed their precision; that of the others is known from configuration files.")
    return "\n".join(f"- {line}" for line in lines)


def _between_systems(document: Any) -> tuple[float, float]:
    """Standard deviation of the systems' mean losses around their arm's, pooled, and what the runs' spread inside them would give; nats."""
    between, inside, df = 0.0, 0.0, [0, 0]
    per_system = 0
    for arm in (document["baseline"], document["candidate"]):
        groups = [[run["loss"] for run in arm["runs"] if run["cluster"] == name] for name in {run["cluster"] for run in arm["runs"]}]
        means = [sum(group) / len(group) for group in groups]
        between += sum((mean - sum(means) / len(means)) ** 2 for mean in means)
        inside += sum((loss - mean) ** 2 for group, mean in zip(groups, means, strict=True) for loss in group)
        df = [df[0] + len(groups) - 1, df[1] + sum(map(len, groups)) - len(groups)]
        per_system = len(groups[0])
    return math.sqrt(between / df[0]), math.sqrt(inside / df[1] / per_system)


PARTS: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    PAGE: {
        "answers": answers,
        "command and output": command_and_output,
        "systems": system_table,
        "spread": spread_table,
        "intervals": interval_table,
        "figures": sceptic_figures,
    },
    README: {"first example": first_lines},
}


def written(path: Path, page: str) -> str:
    """The page with all its parts made again; ValueError if it lacks the marks of one."""
    for name, part in PARTS[path].items():
        page = rewritten(page, part(), (f"<!-- {name}: written by tools/public_verdict.py -->", f"<!-- end of {name} -->"))
    return page


def main() -> None:
    """Write all parts, the picture and the evidence bundle again."""
    for path in PARTS:
        path.write_text(written(path, path.read_text(encoding="utf-8")), encoding="utf-8")
    run(f"{COMMAND} --figure {PICTURE.relative_to(ROOT)} --bundle {BUNDLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
