"""A comparison of evaluations in words: the answer in one line, and the rows of its tables."""

from collections.abc import Mapping
from itertools import starmap

from parity.judging.evaluations.document_types import EvaluationDocument, IntervalDocument
from parity.report.facts import NEXT, Detail
from parity.report.headline import pair_words, what_decided
from parity.wording import TABLE_DECIMALS, count, interval_words, level_percent, signed

AGAINST_MARGIN: Mapping[str | None, str] = {
    "WITHIN_MARGIN": "within the margin",
    "GAP_EXCEEDS_MARGIN": "above the margin",
    "CI_STRADDLES_MARGIN": "straddles the margin",
    "BETTER_THAN_BASELINE": "better by more than the margin",
}
_TOKEN_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))

Cells = tuple[str, ...]


def answer(document: EvaluationDocument) -> str:
    """The verdict in one line: as of which point, gap with interval, margin, what decided; both intervals where they decide otherwise."""
    decided = what_decided(document, _gap_words(document), TABLE_DECIMALS)
    return f"{document['verdict'].upper()}: {pair_words(document)}{point_words(document, ' as of ')}: {decided}."


def point_words(document: EvaluationDocument, before: str) -> str:
    """The points compared, after `before`; empty where there are none."""
    as_of = document["as_of"]
    if not as_of:
        return ""
    several = len(as_of["points"])
    return f"{before}{as_of['words']}{f' (mean of {several} points)' if several > 1 else ''}"


def _gap_words(document: EvaluationDocument) -> str:
    """The judged gap with its interval; both intervals where they decide otherwise; what there is where none can be judged."""
    judged, intervals = document["gap"]["judged"], _intervals(document)
    if not intervals:
        base, cand = document["baseline"]["mean"], document["candidate"]["mean"]
        if isinstance(base, float) and isinstance(cand, float):
            return f"gap {signed(cand - base, TABLE_DECIMALS)} nats without an interval"
        return "no gap measured"
    confidence = level_percent(document["gap"]["confidence"])
    if len({interval["against_margin"] for interval, _ in intervals}) == 1:
        interval, unit = intervals[-1]
        unknown = "; over clusters unknown" if judged is None else ""
        return f"gap {signed(interval['mean'], TABLE_DECIMALS)} nats ({confidence} CI {_ends(interval)} over {unit}{unknown})"
    (runs, runs_unit), (clusters, clusters_unit) = intervals
    return (
        f"gap {signed(runs['mean'], TABLE_DECIMALS)} nats over {runs_unit} ({confidence} CI {_ends(runs)}: {_side(runs)}) "
        f"and {signed(clusters['mean'], TABLE_DECIMALS)} over {clusters_unit} ({_ends(clusters)}: {_side(clusters)})"
    )


def _side(interval: IntervalDocument) -> str:
    """Where an interval lies, in words; "no margin" without one."""
    return AGAINST_MARGIN.get(interval["against_margin"], "no margin")


def _intervals(document: EvaluationDocument) -> list[tuple[IntervalDocument, str]]:
    """The gap over runs and over clusters, each with what it counts; the judged one last."""
    gap, intervals = document["gap"], []
    if gap["over_runs"]:
        pairs = gap["pairs"]
        counted = count(_runs(document), "run") if pairs is None else count(pairs, "pair of runs", "pairs of runs")
        intervals.append((gap["over_runs"], counted))
    if over := gap["over_clusters"]:
        number = over["baseline"] if over["crossed"] else over["baseline"] + over["candidate"]
        intervals.append((over, count(number, over["key"])))
    return intervals


def _runs(document: EvaluationDocument) -> int:
    return len(document["baseline"]["runs"]) + len(document["candidate"]["runs"])


def _ends(interval: IntervalDocument) -> str:
    return interval_words(interval["lo"], interval["hi"], TABLE_DECIMALS)


def comparison_rows(document: EvaluationDocument) -> list[Cells]:
    """A heading and one row each for the gap over runs and over clusters, the token tax, and step and net speed on each hardware."""
    rows: list[Cells] = [("", "value", f"{level_percent(document['gap']['confidence'])} CI", "over")]
    for interval, unit in _intervals(document):
        rows.append(("gap, nats", signed(interval["mean"], TABLE_DECIMALS), _ends(interval), f"{unit}: {_side(interval)}"))
    if target := document["target"]:
        name, tax = f"token tax to {target['nats']:g}", target["tax"]
        if tax is None:
            rows.append((name, "unknown", "", "each arm needs 2 runs that reach it"))
        else:
            rows.append((name, share(tax["estimate"]), f"{share(tax['lo'])} to {share(tax['hi'])}", count(_runs(document), "run")))
    at = f" to {target['nats']:g}" if target else " to the target"
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        runs = f"{speed['runs'][0]} and {count(speed['runs'][1], 'run')} on {f'hardware {number}' if several else 'equal hardware'}"
        for name, key in (("step speed", "step"), (f"net speed{at}", "net")):
            if ratio := speed[key]:
                rows.append((name, f"{ratio['value']:.3f} x", f"{ratio['lo']:.3f} to {ratio['hi']:.3f}", runs))
    return rows


def share(value: float) -> str:
    """A share with its sign: "+9.2 %"."""
    return f"{signed(100.0 * value, 1)} %"


def arm_rows(document: EvaluationDocument) -> list[Cells]:
    """A heading and the rows that set the two arms side by side; rows without a value in either arm are left out."""
    baseline, candidate = (_arm_cells(document, number) for number in (0, 1))
    rows = [(name, words, candidate[name]) for name, words in baseline.items() if words or candidate[name]]
    return [("", document["baseline"]["name"], document["candidate"]["name"]), *rows]


def _arm_cells(document: EvaluationDocument, number: int) -> dict[str, str]:
    """What is known of the baseline (0) or the candidate (1), by name; "" for what is not."""
    arm = document["candidate" if number else "baseline"]
    spread, mean, runs, over, target = arm["spread"], arm["mean"], len(arm["runs"]), document["gap"]["over_clusters"], document["target"]
    clusters = f" in {count(len({run['cluster'] for run in arm['runs']}), over['key'])}" if over else ""
    cells = {
        "recipe": arm["recipe"] or "",
        "runs": f"{runs}{clusters}",
        f"loss{point_words(document, ' at ')}, nats": f"{mean:.{TABLE_DECIMALS}f}" if isinstance(mean, float) else "",
        "spread of runs": _nats_and_share(spread["sd"], spread["rel"]) if spread else "",
        f"its {level_percent(document['gap']['confidence'])} CI": (
            f"{spread['lo']:.{TABLE_DECIMALS}f} to {spread['hi']:.{TABLE_DECIMALS}f}" if spread else ""
        ),
        "assumed for one run": _nats_and_share(spread["assumed_rel"] * mean, spread["assumed_rel"]) if spread and mean else "",
    }
    if target:
        needed = target["candidate_samples"] if number else target["baseline_samples"]
        cells[f"reaches {target['nats']:g} at"] = steps_words(document, needed)
        cells[f"runs seen to reach {target['nats']:g}"] = f"{target['reached'][number]} of {runs}"
    return cells


def _nats_and_share(nats: float, rel: float) -> str:
    return f"{nats:.{TABLE_DECIMALS}f} ({100.0 * rel:.2f} %)"


def notes(document: EvaluationDocument) -> list[tuple[str, str]]:
    """What the tables have no room for: what was read, the gap at all common points, and which hardware the speeds were taken on."""
    runs = _runs(document)
    noted = []
    for note in document["notes"]:
        some = "" if note["runs"] == runs else f"{count(note['runs'], 'run')} of {runs}: "
        noted.append(("input", f"{some}{note['note']}"))
    if (curve := document["curve"]) and len(curve["steps"]) > 1:
        ends = interval_words(min(curve["gap"]), max(curve["gap"]), TABLE_DECIMALS)
        noted.append((f"gap at all {len(curve['steps'])} common points", f"{ends} nats"))
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        noted.append((f"hardware {number}" if several else "hardware", str(speed["hardware"])))
    return noted


def tokens_per_step(document: EvaluationDocument) -> float | None:
    """Tokens a step, where the document knows them."""
    as_of = document["as_of"]
    return as_of["tokens"] / as_of["points"][-1] if as_of and as_of["tokens"] and as_of["points"][-1] else None


def token_unit(tokens: float) -> tuple[float, str]:
    """The unit in which a number of tokens is written: its size and its letter, such as 1e9 and "B"."""
    return next(((size, letter) for size, letter in _TOKEN_UNITS if tokens >= size), (1.0, ""))


def steps_words(document: EvaluationDocument, steps: float | None) -> str:
    """A point between evaluations: "1.29 B tokens" where a step's tokens are known, else "step 157,105"; empty for None."""
    if steps is None:
        return ""
    each = tokens_per_step(document)
    if each is None:
        return f"step {steps:,.0f}"
    size, letter = token_unit(steps * each)
    return f"{steps * each / size:.{2 if letter else 0}f} {letter}".rstrip() + " tokens"


def details(document: EvaluationDocument) -> tuple[list[Detail], list[Detail], list[Detail]]:
    """The reasons, the notes and the advice."""
    reasons = [Detail(reason["code"], reason["sentence"], is_code=True) for reason in document["reasons"]]
    return reasons, list(starmap(Detail, notes(document))), [Detail(NEXT, sentence) for sentence in document["advice"]["sentences"]]
