"""The gallery of public verdicts: examples/public judged, and all that follows from it.

`python -m tools.public_verdicts` writes the parts of docs/public-verdicts.md and README.md, the
pictures, the packaged page of the server and the evidence bundle. `--judge` judges every set, a
line an answer, and exits with 1 where one is not allowed by examples/public/expected.csv; `--check`
also says which of the files do not follow.
"""

import contextlib
import csv
import functools
import io
import json
import math
import re
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from parity.cli import main as parity
from parity.judging.gap.interval import t_quantile
from parity.report.facts import Cells, share
from parity.report.text import markdown_table
from parity.report.words import MARKS
from parity.structure import canonical_json, frozen
from parity.wording import interval_words, likely, minus, signed
from tools.reason_table import rewritten

ROOT = Path(__file__).parents[1]
SETS = ROOT / "examples" / "public"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "public-verdicts.md"
IMAGES = ROOT / "docs" / "images"
PLOT, LADDERS, PICTURE = (
    IMAGES / "public-verdicts.svg",
    IMAGES / "public-ladders.svg",
    IMAGES / "public-verdict.svg",
)
PACKAGED = ROOT / "server" / "pages" / "public.json"
FIRST = "examples/public/gb200-continued"  # the set of README.md
SYSTEMS = "examples/public/llama31-8b"  # the set of many runs on several systems
BUNDLE = ROOT / SYSTEMS / "nvfp4.zip"
INSTALL = """\
python3 -m venv /tmp/parity && /tmp/parity/bin/pip install .
export PATH=/tmp/parity/bin:$PATH"""
NOT_VERIFIED = "Not verified by MLCommons."
LARGE, SMALL = 20e9, 1e9  # parameters
SCALES = ("below 1 B", "1 to 20 B", "above 20 B")
FAMILIES = {"nvfp4": "NVFP4", "mxfp8": "MXFP8", "mxfp4": "MXFP4", "fp8": "FP8"}
WARM = 200  # steps of a log before its speed counts


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
class Answer:
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


def run(command: str) -> str:
    """What a command prints, run in this process from the root of the checkout."""
    printed = io.StringIO()
    aside = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(aside),
        contextlib.chdir(ROOT),
        contextlib.suppress(SystemExit),
    ):
        parity(shlex.split(command.replace("\\\n", " "))[1:])
    return printed.getvalue()


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
def answers() -> tuple[Answer, ...]:
    """Every question, judged from its folder."""
    return tuple(
        answer for one in sets() for question in one.questions for answer in judged(one, question)
    )


def judged(one: Set, question: str) -> Iterator[Answer]:
    """The answers to a question: one, or one a size."""
    file = f"{one.file}{f':{question}' if question else ''}"
    for document in json.loads(run(f"parity compare {file} --json"))["verdicts"]:
        size = re.search(r"model_millions=(\d+)", document["candidate"]["name"])
        yield Answer(
            of=one, question=question, size=f"{size[1]} M" if size else "", document=document
        )


def facts(one: Set, question: str) -> list[Mapping[str, str]]:
    """The rows of a question's table."""
    with (SETS / one.name / one.questions[question]["runs"]).open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


# What is said of an answer.


def gap_words(answer: Answer) -> str:
    """The gap with its interval, % of the loss."""
    mean, lo, hi = (100.0 * answer.gap[key] / answer.level for key in ("mean", "lo", "hi"))
    return minus(f"{signed(mean, 2)} % ({interval_words(lo, hi, 2)})")


def as_of(answer: Answer) -> str:
    """The point of the training at which the verdict holds."""
    document = answer.document
    if "AS_OF" not in document["codes"]:
        return "the end"
    return (
        document["as_of"]["words"]
        if document.get("as_of")
        else f"step {document['window']['last']:,}"
    )


def runs_words(answer: Answer) -> str:
    """The runs of both arms, and their systems where these are on record."""
    document, rows = answer.document, facts(answer.of, answer.question)
    stated = answer.of.questions[answer.question]
    numbers, places = [], []
    for arm in ("baseline", "candidate"):
        runs, name = document[arm]["runs"], document[arm]["name"]
        numbers.append(str(runs if isinstance(runs, int) else len(runs)))
        kept = (
            row
            for row in rows
            if "system" in row
            and row[stated["arm_by"]] == name
            and _is_in(row, stated.get("where", {}))
        )
        places.append(str(len({row["system"] for row in kept})))
    systems_words = f", {' + '.join(places)} systems" if places != ["0", "0"] else ""
    return f"{' + '.join(numbers)} runs{systems_words}"


def _is_in(row: Mapping[str, str], where: Mapping[str, Any]) -> bool:
    """Whether `where` of the file keeps a row, arms apart."""
    return all(
        row[column] == str(value) for column, value in where.items() if not isinstance(value, list)
    )


def tokens_words(answer: Answer) -> str:
    """What the gap costs in tokens to the target."""
    tax = (answer.document.get("target") or {}).get("tax")
    return (
        minus(f"{share(tax['estimate'])} ({share(tax['lo'])} to {share(tax['hi'])})")
        if tax
        else "–"
    )


def speed_words(answer: Answer) -> str:
    """The speed: net of the tokens on equal hardware, or that of a step as the log prints it."""
    if answer.document.get("speed"):
        speed = answer.document["speed"][0]
        return f"{speed['net']['value']:.2f} x net (step {speed['step']['value']:.2f} x)"
    rows = facts(answer.of, answer.question)
    if "tokens_per_s_per_gpu" not in rows[0]:
        return "–"
    base, cand = (
        statistics.median(
            float(row["tokens_per_s_per_gpu"])
            for row in rows
            if row["arm"] == name and int(row["step"]) >= WARM
        )
        for name in (answer.document["baseline"]["name"], answer.candidate)
    )
    return f"step {cand / base:.2f} x"


def rests(answer: Answer) -> str:
    """What the interval rests on."""
    strip = {fact["name"]: fact for fact in answer.document["words"]["strip"]}
    noise, why = strip["Run-to-run noise"]["value"].lower(), strip["Evidence"]["why"]
    return minus(f"run-to-run noise {noise}; {why}")


def family(answer: Answer) -> str:
    """The kind of the candidate's recipe."""
    recipe = str(answer.document["candidate"]["recipe"]).removeprefix("other:")
    return next(
        (shown for start, shown in FAMILIES.items() if recipe.startswith(start)), recipe.upper()
    )


def parameters(answer: Answer) -> float:
    """The model's parameters."""
    return (
        1e6 * float(answer.size.partition(" ")[0])
        if answer.size
        else float(answer.of.about["parameters"])
    )


def scale(answer: Answer) -> str:
    """The class of the model's size."""
    number = parameters(answer)
    return SCALES[0] if number < SMALL else SCALES[2] if number > LARGE else SCALES[1]


def chip(answer: Answer) -> str:
    """The verdict with its mark."""
    state = answer.document["verdict"]
    return f"{MARKS[state]} {answer.word}"


def label(answer: Answer) -> str:
    """Model and candidate in a few words."""
    name = (
        {"int4": "INT4", "fp4": "FP4", "int8": "INT8"}.get(answer.question, answer.candidate)
        if answer.size
        else answer.candidate
    )
    model = (
        f"{answer.size} decoder"
        if answer.size
        else answer.of.about["model"].partition(",")[0].partition(" (")[0]
    )
    stated = answer.document["margin"]["rel"]
    margin = "" if stated is None or math.isclose(stated, 0.01) else f", margin {100 * stated:g} %"
    return f"{model}: {name}{margin}"


def ordered() -> list[Answer]:
    """The answers by recipe, and by scale in each."""
    kinds = [*FAMILIES.values()]
    return sorted(
        answers(),
        key=lambda each: (
            kinds.index(family(each)) if family(each) in kinds else 9,
            family(each),
            -parameters(each),
        ),
    )


# Expected answers.


@functools.cache
def expected() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """What a sober reader allows, by set and question."""
    with (SETS / "expected.csv").open(encoding="utf-8", newline="") as file:
        return {(row["set"], row["question"]): row for row in csv.DictReader(file)}


def holds(answer: Answer) -> bool:
    """Whether an answer is allowed and rests on none of the codes that must not decide."""
    row = expected()[answer.of.name, answer.question]
    return answer.word in row["allowed"].split("|") and answer.document["codes"][0] not in row[
        "never_by"
    ].split("|")


# The parts of the page.


def table() -> str:
    """All questions; one that is asked at several sizes is one row."""
    head = (
        "model: candidate",
        "verdict",
        "gap, % of the loss",
        "tokens",
        "speed",
        "runs",
        "rests on",
        "as of",
    )
    rows: list[Cells] = [head]
    for group in grouped():
        each = group[-1]
        verdict, gap = chip(each), gap_words(each)
        if len(group) > 1:
            verdict += f" at all {len(group)} sizes"
            gap = "; ".join(f"{one.size} {gap_words(one).partition(' (')[0]}" for one in group)
        said = (
            verdict,
            gap,
            tokens_words(each),
            speed_words(each),
            runs_words(each),
            rests(each),
            as_of(each),
        )
        rows.append(
            (
                f"[{label(each)}](#{each.of.name})",
                *(re.sub(r"(?<=\d) (?=[%x])", "&nbsp;", words) for words in said),
            )
        )
    good, of = sum(map(holds, answers())), len(answers())
    return (
        f"{markdown_table(rows)}\n\n{len(sets())} sets, {len(grouped())} questions, {of} answers; "
        f"{good} of {of} are among those that "
        "[a sober reader allowed](../examples/public/expected.csv)."
    )


def grouped() -> list[list[Answer]]:
    """The answers by question, those of several sizes from the smallest on. A question has one
    verdict, or ValueError.
    """
    groups: dict[tuple[str, str], list[Answer]] = {}
    for each in ordered():
        groups.setdefault((each.of.name, each.question), []).insert(0, each)
    for (name, question), group in groups.items():
        if len({each.word for each in group}) > 1:
            raise ValueError(
                f"{name} {question} has several verdicts; expected one a question, or rows of "
                "their own in the table"
            )
    return list(groups.values())


def sections() -> str:
    """One section a set, in the verdict's words."""
    parts = []
    for one in sets():
        about = one.about
        lines = [
            f"### {one.name}",
            "",
            f"**{about['title']}.** {about['trained']}; {about['hardware']}.",
        ]
        lines[-1] += f" {NOT_VERIFIED}" if about.get("mlperf") else ""
        lines += [""]
        for group in (each for each in grouped() if each[0].of.name == one.name):
            each, told = group[-1], group[-1].document["words"]
            if len(group) > 1:
                sizes = "; ".join(f"{size.size} {gap_words(size)}" for size in group)
                lines.append(
                    f"- **{chip(each)}** (`{each.document['codes'][0]}`) "
                    f"{label(each).partition(': ')[2]}, at each size: {sizes}."
                )
            else:
                lines.append(
                    minus(
                        f"- **{chip(each)}** (`{each.document['codes'][0]}`) {told['lead']} "
                        f"{told['measure']} {told['interval']}"
                    )
                )
        lines += [
            "",
            f"Source: {about['source']}; {about['licence']}. Precision {about['precision']}.",
        ]
        lines[-1] += f" Differences: {'; '.join(about['differs'])}."
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


@frozen
class Ladder:
    """A recipe at several sizes: parameters, gaps in % of the loss, and the line through them with
    what one more run may show.
    """

    name: str
    sizes: Sequence[float]
    gaps: Sequence[float]
    slope: tuple[float, float]

    def predicted(self, size: float) -> tuple[float, float]:
        """The 95 % prediction interval of one more run at a size inside the ladder."""
        if not min(self.sizes) <= size <= max(self.sizes):
            raise ValueError(
                f"size is {size:g}; expected one between {min(self.sizes):g} and "
                f"{max(self.sizes):g}"
            )
        x, y = np.log10(self.sizes), np.array(self.gaps)
        slope, start = np.polyfit(x, y, 1)
        left = y - slope * x - start
        spread = math.sqrt(float(left @ left) / (len(x) - 2))
        at = math.log10(size)
        reach = spread * math.sqrt(
            1 + 1 / len(x) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
        )
        middle, half = slope * at + start, t_quantile(0.95, len(x) - 2) * reach
        return float(middle - half), float(middle + half)


def ladder(name: str, points: Sequence[tuple[float, float]]) -> Ladder:
    """The ladder through (parameters, gap in %)."""
    sizes, gaps = zip(*sorted(points), strict=True)
    x, y = np.log10(sizes), np.array(gaps)
    slope, start = np.polyfit(x, y, 1)
    left = y - slope * x - start
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    half = t_quantile(0.95, len(x) - 2) * error
    return Ladder(
        name=name, sizes=sizes, gaps=gaps, slope=(float(slope - half), float(slope + half))
    )


@functools.cache
def ladders() -> tuple[Ladder, ...]:
    """Every recipe at three sizes and more of one series of runs."""
    found = []
    for question in ("int4", "fp4", "int8"):
        points = [
            (parameters(each), 100.0 * each.gap["mean"] / each.level)
            for each in answers()
            if each.size and each.question == question
        ]
        found.append(ladder(f"QuEST {question.upper()}", points))
    with (SETS / "rtx6000-277m" / "sizes.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "slack4"]
    losses = {(row["params"], row["arm"]): float(row["loss"]) for row in rows}
    points = [
        (float(size), 100.0 * (losses[size, "fp8"] / loss - 1.0))
        for (size, arm), loss in losses.items()
        if arm == "bf16"
    ]
    return (*found, ladder("workstation FP8", points))


def ladder_table() -> str:
    """The gap by size."""
    rows: list[Cells] = [
        (
            "recipe",
            "sizes",
            "gap from the smallest to the largest",
            "change for ten times the size",
            "one more run at the largest",
        )
    ]
    for each in ladders():
        ends = f"{signed(each.gaps[0], 2)} to {signed(each.gaps[-1], 2)} %"
        sizes = f"{len(each.sizes)}, {each.sizes[0] / 1e6:.0f} to {each.sizes[-1] / 1e6:.0f} M"
        change = f"{interval_words(*each.slope, 2)} points"
        rows.append(
            (
                each.name,
                sizes,
                ends,
                change,
                f"{interval_words(*each.predicted(each.sizes[-1]), 2)} %",
            )
        )
    return minus(markdown_table(rows))


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
        f"Open: {words}; chance of parity {likely(document['chance_of_parity'])}. One run an arm "
        "was reported; its logs would say more."
    )


# The set of README.md, and that of several systems.


def first_lines() -> str:
    """How to install the command line, the command, and the lines of its output that answer: each
    candidate's, above its interval.
    """
    command = f"parity compare {FIRST}/parity.yaml"
    paragraphs = run(command).split("\n\n")
    told = "\n\n".join(
        text
        for text in paragraphs
        if any(mark in text for mark in MARKS.values()) and "95 % interval" in text
    )
    return f"```sh\n{INSTALL}\n{command}\n```\n\n```\n{told}\n```"


@functools.cache
def without(system: str) -> Any:
    """The verdict on the set of several systems without one of them."""
    one = next(each for each in sets() if each.file.startswith(SYSTEMS + "/"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("curves.csv", "times.csv"):
            with (ROOT / SYSTEMS / name).open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["system"] != system]
            with Path(folder, name).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        kept = {"compare": one.questions["one-percent"], "policy": {"margin": "1 %"}}
        Path(folder, "parity.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
        return json.loads(run(f"parity compare {folder}/parity.yaml --json"))["verdicts"][0]


def systems() -> dict[str, str]:
    """The systems of that set, with their precision."""
    one = next(each for each in sets() if each.file.startswith(SYSTEMS + "/"))
    return dict(sorted((row["system"], row["precision"]) for row in facts(one, "one-percent")))


def interval_table() -> str:
    """The gap over runs and over systems, of all and without each system in turn."""
    rows: list[Cells] = [("without", "runs", "over runs, nats", "over systems, nats")]
    for system, precision in (("", ""), *systems().items()):
        document = without(system)
        over, clusters = document["gap"]["over_runs"], document["gap"]["over_clusters"]
        number = f"{len(document['baseline']['runs'])} + {len(document['candidate']['runs'])}"
        cells = [
            f"{signed(each['mean'])} ({interval_words(each['lo'], each['hi'])})"
            for each in (over, clusters)
        ]
        rows.append((f"{precision} on {system}" if system else "none", number, *cells))
    return minus(markdown_table(rows))


# Pictures: SVG with both colour schemes, which no page has to know.

_STYLE = """\
<style>
svg { font: 11px system-ui, sans-serif; --ink: #1b1b1b; --quiet: #5c5c5c; --paper: #fff; }
svg { --pass: #00704f; --fail: #b04200; --inconclusive: #96437a; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8e8e8; --quiet: #a9a9a9; --paper: #16181d; --pass: #46d0a6; --fail: #ff9a57; --inconclusive: #eaa9cd; }
}
.paper { fill: var(--paper); }
text { fill: var(--ink); stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }
.quiet { fill: var(--quiet); }
.zero, .edge { stroke: var(--quiet); }
.edge { stroke-dasharray: 4 3; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
.inconclusive { color: var(--inconclusive); }
.ladder { color: var(--quiet); }
.whisker { stroke: currentcolor; stroke-width: 2; fill: none; }
.mark { fill: currentcolor; stroke: currentcolor; stroke-width: 2; }
.hollow { fill: var(--paper); }
.band { fill: currentcolor; opacity: 0.14; stroke: none; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
</style>"""  # noqa: E501
_WIDTH, _ROW, _PAD = 440, 34, 14
_LOW, _HIGH = -4.0, 8.0  # margins


def _svg(height: float, title: str, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" '
        f'width="{_WIDTH}" height="{height:g}" role="img">'
    )
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            _STYLE,
            '<rect class="paper" width="100%" height="100%"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _x(margins: float) -> float:
    return round(
        _PAD + (_WIDTH - 2 * _PAD) * (min(_HIGH, max(_LOW, margins)) - _LOW) / (_HIGH - _LOW), 1
    )


def _mark(state: str, x: float, y: float) -> str:
    if state == "pass":
        return f'<circle class="mark" cx="{x}" cy="{y}" r="4"/>'
    if state == "fail":
        return f'<rect class="mark" x="{x - 4:g}" y="{y - 4}" width="8" height="8"/>'
    return f'<path class="mark hollow" d="M{x} {y - 5}l5 5l-5 5l-5 -5z"/>'


def in_margins(answer: Answer) -> tuple[float, float, float]:
    """The gap and its interval in margins."""
    margin = answer.document["margin"]["nats"]
    mean, lo, hi = (answer.gap[key] / margin for key in ("mean", "lo", "hi"))
    return mean, lo, hi


def plot() -> str:
    """All answers on one axis, in margins."""
    shown = ordered()
    bottom = 40 + _ROW * len(shown)
    body = [
        f'<text class="middle quiet" x="{_x(at)}" y="18">{word}</text>'
        for at, word in ((0.0, "0"), (1.0, "margin"), (4.0, "4"), (8.0, "8"), (-4.0, "−4"))
    ]
    for place, each in enumerate(shown):
        mean, lo, hi = in_margins(each)
        top, y, state = 38 + _ROW * place, 60 + _ROW * place, each.document["verdict"]
        arrows = [f"M{_x(_LOW) + 6} {y - 4}l-6 4l6 4"] if lo < _LOW else []
        arrows += [f"M{_x(_HIGH) - 6} {y - 4}l6 4l-6 4"] if hi > _HIGH else []
        # The lines stop at the words, which they would cross.
        lines = ((look, _x(at)) for look, at in (("zero", 0.0), ("edge", 1.0)))
        body += [
            f'<line class="{look}" x1="{x}" x2="{x}" y1="{y - 10}" y2="{y + 8}"/>'
            for look, x in lines
        ]
        body.append(
            f'<text x="{_PAD}" y="{top + 8}">{escape(label(each))} <tspan '
            f'class="quiet">{each.of.name}</tspan></text>'
        )
        body.append(
            f'<text class="end quiet" x="{_WIDTH - _PAD}" '
            f'y="{top + 8}">{escape(gap_words(each).partition(" (")[0])}</text>'
        )
        body.append(
            f'<g class="{state}"><path class="whisker" d="M{_x(lo)} '
            f'{y}H{_x(hi)}{"".join(arrows)}"/>'
        )
        body.append(f"{_mark(state, _x(mean), y) if _LOW <= mean <= _HIGH else ''}</g>")
    return _svg(
        bottom + 10,
        f"The gaps of {len(shown)} public comparisons with their intervals, in margins",
        body,
    )


def ladder_plot() -> str:
    """The gap by size, each recipe in a panel of its own."""
    body, height = [], 132
    for place, each in enumerate(ladders()):
        top = 10 + height * place
        grid = [
            10.0**power
            for power in np.linspace(math.log10(each.sizes[0]), math.log10(each.sizes[-1]), 20)
        ]
        grid[0], grid[-1] = each.sizes[0], each.sizes[-1]
        bands = [each.predicted(size) for size in grid]
        values = [0.0, *each.gaps, *(end for band in bands for end in band)]
        low, high = min(values), max(values)

        def at(
            size: float,
            value: float,
            of: tuple[float, float, float, Ladder] = (top, low, high, each),
        ) -> tuple[float, float]:
            above, least, most, shown = of
            share_x = math.log10(size / shown.sizes[0]) / math.log10(
                shown.sizes[-1] / shown.sizes[0]
            )
            return round(60 + (_WIDTH - 90) * share_x, 1), round(
                above + 22 + 78 * (most - value) / (most - least), 1
            )

        upper = [at(size, band[1]) for size, band in zip(grid, bands, strict=True)]
        lower = [at(size, band[0]) for size, band in zip(grid, bands, strict=True)]
        outline = "L".join(f"{x} {y}" for x, y in [*upper, *reversed(lower)])
        zero = at(each.sizes[0], 0.0)[1]
        body.append(
            f'<text x="{_PAD}" y="{top + 10}">{escape(each.name)}: gap, % of the loss; band: one '
            "more run, 95 %</text>"
        )
        body.append(
            f'<g class="ladder"><path class="band" d="M{outline}z"/></g>'
            f'<line class="zero" x1="60" x2="{_WIDTH - 30}" y1="{zero}" y2="{zero}"/>'
        )
        body += [
            '<text class="end quiet" x="54" '
            f'y="{at(each.sizes[0], value)[1] + 4}">{minus(signed(value, 1))}</text>'
            for value in (low, high)
        ]
        body += [
            f'<circle class="mark ladder" cx="{x}" cy="{y}" r="3"/>'
            for x, y in map(at, each.sizes, each.gaps)
        ]
        for size in (each.sizes[0], each.sizes[-1]):
            body.append(
                f'<text class="middle quiet" x="{at(size, 0.0)[0]}" '
                f'y="{top + 116}">{size / 1e6:.0f} M</text>'
            )
    return _svg(
        height * len(ladders()) + 14, "The gap by model size with what one more run may show", body
    )


# The page of the server.


def screen(answer: Answer) -> str:
    """The first screen of the verdict's page, without what needs a script."""
    with tempfile.TemporaryDirectory() as folder:
        file, where = f"{folder}/page.html", ""
        if answer.size:
            kept = answer.of.questions[answer.question]["where"]["arm"]
            where = (
                "".join(f" --where arm={arm}" for arm in kept)
                + f" --where model_millions={answer.size.partition(' ')[0]}"
            )
        run(f"parity compare {answer.place}{where} --html {file}")
        page = Path(file).read_text(encoding="utf-8")
    drawn = page[page.index('<div class="screen">') : page.index('<section class="more"')]
    drawn = re.sub(
        r'<script type="application/json" class="points">.*?</script>', "", drawn, flags=re.DOTALL
    )
    drawn = drawn.replace(
        " Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run.", ""
    ).replace(' tabindex="0" role', " role")
    for part in ("Answer", "Next"):  # several screens stand on one page
        drawn = drawn.replace(
            f'aria-label="{part}"', f'aria-label="{part}: {escape(label(answer))}"'
        )
    return re.sub(r"\(model_millions=(\d+), tokens=\d+\)", r"(\1 M)", drawn) + "</div>"


def packaged() -> str:
    """All that the server's page shows, as JSON."""
    largest = {(each.of.name, each.question): each for each in sorted(answers(), key=parameters)}
    rows = [
        {
            "set": each.of.name,
            "question": each.question,
            "label": label(each),
            "family": family(each),
            "scale": scale(each),
            "verdict": each.document["verdict"],
            "word": each.word,
            "code": each.document["codes"][0],
            "when": "at the end" if as_of(each) == "the end" else f"as of {as_of(each)}",
            "gap": gap_words(each),
            "margins": [round(value, 3) for value in in_margins(each)],
            "runs": runs_words(each),
            "tokens": tokens_words(each),
            "speed": speed_words(each),
            "rests": rests(each),
            "screen": screen(each) if largest[each.of.name, each.question] is each else "",
        }
        for each in ordered()
    ]
    about = {
        one.name: {key: value for key, value in one.about.items() if key != "parameters"}
        for one in sets()
    }
    return canonical_json(
        {
            "judge": answers()[0].document["engine_version"],
            "scales": SCALES,
            "sets": about,
            "answers": rows,
        }
    )


# Writing and checking.

PARTS: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    PAGE: {
        "table": table,
        "ladders": ladder_table,
        "claims": claim_table,
        "sets": sections,
        "intervals": interval_table,
    },
    README: {"first example": first_lines},
}
FILES: Mapping[Path, Callable[[], str]] = {PLOT: plot, LADDERS: ladder_plot, PACKAGED: packaged}


def written(path: Path) -> str:
    """What a file holds if it follows from the sets; ValueError if a page lacks the marks of a
    part.
    """
    if path in FILES:
        return FILES[path]()
    page = path.read_text(encoding="utf-8")
    for name, part in PARTS[path].items():
        page = rewritten(
            page,
            part(),
            (f"<!-- {name}: written by tools/public_verdicts.py -->", f"<!-- end of {name} -->"),
        )
    return page


def judge() -> int:
    """One line an answer; 1 where one is not allowed."""
    for each in answers():
        name = f"{each.of.name} {each.question} {each.size}".strip()
        allowed = expected()[each.of.name, each.question]["allowed"]
        print(
            f"{name:45} {each.word:13} {each.document['codes'][0]:22} {allowed:26} "
            f"{'ok' if holds(each) else 'MISS'}"
        )
    return int(not all(map(holds, answers())))


def check() -> int:
    """One line for each file that does not follow; 1 where there is one."""
    different = [
        path
        for path in (*PARTS, *FILES)
        if not path.is_file() or written(path) != path.read_text(encoding="utf-8")
    ]
    for path in different:
        print(
            f"{path.relative_to(ROOT)} does not follow from the sets; run python -m "
            "tools.public_verdicts"
        )
    return int(bool(different))


def main() -> int:
    """Write everything again, or check it."""
    if sys.argv[1:] in (["--judge"], ["--check"]):
        return max(judge(), check() if sys.argv[1] == "--check" else 0)
    for path in (*PARTS, *FILES):
        path.write_text(written(path), encoding="utf-8")
    question = f"{SYSTEMS}/parity.yaml:one-percent"
    run(
        f"parity compare {question} --figure {PICTURE.relative_to(ROOT)} --bundle "
        f"{BUNDLE.relative_to(ROOT)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
