"""A comparison of evaluations in words: the rows of its tables."""

from collections.abc import Mapping, Sequence

from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report.number_words import ends_words
from parity.report.view import EvaluationView
from parity.wording import DECIMALS, TOKEN_UNITS, count, interval_words, level_percent, signed

MARGIN_SIDES: Mapping[str | None, str] = {
    "WITHIN_MARGIN": "within the margin",
    "GAP_EXCEEDS_MARGIN": "above the margin",
    "CI_STRADDLES_MARGIN": "straddles the margin",
    "BETTER_THAN_BASELINE": "better by more than the margin",
}
Cells = tuple[str, ...]


def point_words(view: EvaluationView, before: str) -> str:
    """The points compared, after `before`; empty where there are none."""
    if not view.document["as_of"]:
        return ""
    return f"{before}{view.point}"


def comparison_rows(view: EvaluationView) -> list[Cells]:
    """A heading and one row each for the gap over runs and over clusters, the token tax, and step
    and net speed on each hardware.
    """
    document = view.document
    rows: list[Cells] = [
        ("", "value", f"{level_percent(document['gap']['confidence'])} CI", "over")
    ]
    for interval, side in zip(view.intervals, _sides(document), strict=True):
        rows.append(
            (
                "gap, nats",
                signed(interval.mean, view.decimals),
                ends_words(view, interval),
                f"{interval.unit}: {side}",
            )
        )
    if target := document["target"]:
        name, tax = f"token tax to {target['nats']:g}", target["tax"]
        if tax is None:
            rows.append((name, "unknown", "", "each arm needs 2 runs that reach it"))
        else:
            rows.append(
                (
                    name,
                    share(tax["estimate"]),
                    f"{share(tax['lo'])} to {share(tax['hi'])}",
                    count(_runs(view), "run"),
                )
            )
    at = f" to {target['nats']:g}" if target else " to the target"
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        runs = (
            f"{speed['runs'][0]} and {count(speed['runs'][1], 'run')} on "
            f"{f'hardware {number}' if several else 'equal hardware'}"
        )
        for name, key in (("step speed", "step"), (f"net speed{at}", "net")):
            if ratio := speed[key]:
                rows.append(
                    (
                        name,
                        f"{ratio['value']:.3f} x",
                        f"{ratio['lo']:.3f} to {ratio['hi']:.3f}",
                        runs,
                    )
                )
    return rows


def _sides(document: EvaluationDocument) -> list[str]:
    """Where the interval over runs and the one over clusters lie; "no margin" without one."""
    gap = document["gap"]
    intervals = [interval for interval in (gap["over_runs"], gap["over_clusters"]) if interval]
    return [MARGIN_SIDES.get(interval["against_margin"], "no margin") for interval in intervals]


def _runs(view: EvaluationView) -> int:
    return view.baseline.runs + view.candidate.runs


def share(value: float) -> str:
    """A share with its sign: "+9.2 %"."""
    return f"{signed(100.0 * value, 1)} %"


def evaluation_tables(view: EvaluationView) -> list[Sequence[Cells]]:
    """The tables that have a row."""
    return [rows for rows in (comparison_rows(view), arm_rows(view)) if len(rows) > 1]


def arm_rows(view: EvaluationView) -> list[Cells]:
    """A heading and the rows that set the two arms side by side; rows without a value in either arm
    are left out.
    """
    baseline, candidate = (_arm_cells(view, number) for number in (0, 1))
    rows = [
        (name, words, candidate[name])
        for name, words in baseline.items()
        if words or candidate[name]
    ]
    return [("", view.baseline.name, view.candidate.name), *rows]


def _arm_cells(view: EvaluationView, number: int) -> dict[str, str]:
    """What is known of the baseline (0) or the candidate (1), by name; "" for what is not."""
    document = view.document
    arm = document["candidate" if number else "baseline"]
    spread, mean, runs, over, target = (
        arm["spread"],
        arm["mean"],
        len(arm["runs"]),
        document["gap"]["over_clusters"],
        document["target"],
    )
    clusters = (
        f" in {count(len({run['cluster'] for run in arm['runs']}), over['key'])}" if over else ""
    )
    cells = {
        "recipe": arm["recipe"] or "",
        "runs": f"{runs}{clusters}",
        f"loss{point_words(view, ' at ')}, nats": f"{mean:.{DECIMALS}f}"
        if isinstance(mean, float)
        else "",
        "spread of runs": _nats_and_share(spread["sd"], spread["rel"]) if spread else "",
        f"its {level_percent(document['gap']['confidence'])} CI": (
            f"{spread['lo']:.{DECIMALS}f} to {spread['hi']:.{DECIMALS}f}" if spread else ""
        ),
        "assumed for one run": _nats_and_share(spread["assumed_rel"] * mean, spread["assumed_rel"])
        if spread and mean
        else "",
    }
    if target:
        needed = target["candidate_samples"] if number else target["baseline_samples"]
        cells[f"reaches {target['nats']:g} at"] = steps_words(view, needed)
        cells[f"runs seen to reach {target['nats']:g}"] = f"{target['reached'][number]} of {runs}"
    return cells


def _nats_and_share(nats: float, rel: float) -> str:
    return f"{nats:.{DECIMALS}f} ({100.0 * rel:.2f} %)"


def notes(view: EvaluationView) -> list[tuple[str, str]]:
    """What the tables have no room for: what was read, the gap at all common points, and which
    hardware the speeds were taken on.
    """
    document, runs = view.document, _runs(view)
    noted = []
    for note in document["notes"]:
        some = "" if note["runs"] == runs else f"{count(note['runs'], 'run')} of {runs}: "
        noted.append(("input", f"{some}{note['note']}"))
    if (curve := document["curve"]) and len(curve["steps"]) > 1:
        ends = interval_words(min(curve["gap"]), max(curve["gap"]), DECIMALS)
        noted.append((f"gap at all {len(curve['steps'])} common points", f"{ends} nats"))
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        noted.append((f"hardware {number}" if several else "hardware", str(speed["hardware"])))
    return noted


def token_unit(tokens: float) -> tuple[float, str]:
    """The unit in which a number of tokens is written: its size and its letter, such as 1e9 and
    "B".
    """
    return next(((size, letter) for size, letter in TOKEN_UNITS if tokens >= size), (1.0, ""))


def steps_words(view: EvaluationView, steps: float | None) -> str:
    """A point between evaluations: "1.29 B tokens" where a step's tokens are known, else "step
    157,105"; empty for None.
    """
    if steps is None:
        return ""
    tokens = view.tokens_per_step
    if tokens is None:
        return f"step {steps:,.0f}"
    size, letter = token_unit(steps * tokens)
    return f"{steps * tokens / size:.{2 if letter else 0}f} {letter}".rstrip() + " tokens"
