"""The cases behind docs/evidence.md, from the record of `experiments.why`.

counted  a fault that the judge fails, with a margin of 1 %, from three full runs of each arm
seen     the mean of its full runs minus the baseline's, by replicate, differs from 0 at 95 %. The
         noise is pooled over all faults:
         s^2 = mean variance within a fault's pairs, df = sum of (pairs - 1). Of faults without an
         effect one in twenty is seen
right    at least one cluster is named, and all units that are named are planted ones
wider    what is named contains a planted unit and others next to it
wrong    a cluster without any planted unit is named
SNR      the unit that alone moves the gradient farthest from that of bf16 is a planted one; or the
         unit whose error is the largest
         multiple of its error without the fault (from the healthy case at the same checkpoints)
covers   the interval of the unexplained part contains the truth: exactly 0 where all planted units
         are named, because without them
         candidate and baseline are equal bit for bit; otherwise that of further forks, with their
         own error
Limits are Clopper-Pearson, 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from parity_lab.estimates import Estimate

Line = Mapping[str, Any]
_Z = 1.96


def table(lines: Sequence[Line], recipe_lines: Sequence[Line]) -> Iterator[str]:
    """Lines of Markdown, from the planted and healthy cases and from those of really different
    recipes.
    """
    models = list(dict.fromkeys(line["settings"] for line in lines))
    effects = {
        fault: effect
        for model in models
        for fault, effect in full_effects(
            [line for line in lines if line["settings"] == model]
        ).items()
    }
    answers = [line for line in lines if line["kind"] == "answer"]
    verdicts = [line for line in lines if line["kind"] == "verdict"]
    failed = {_fault(line) for line in verdicts if line["verdict"] == "fail"}
    resolved = {
        _fault(line)
        for line in verdicts
        if line["gap"] and (line["gap"][1] > 0 or line["gap"][2] < 0)
    }
    yield from _effect_rows(effects, failed)
    yield ""
    planted = [line for line in answers if line["gemms"]]
    counted = [line for line in planted if _fault(line) in failed]
    others = [line for line in planted if _fault(line) not in failed]
    yield from _naming_rows(
        counted,
        {
            "not failed, gap above or below 0": [
                line for line in others if _fault(line) in resolved
            ],
            "not failed, gap can be 0": [line for line in others if _fault(line) not in resolved],
        },
        answers,
    )
    yield ""
    yield from _other_rows(counted, planted, answers)
    yield from _recipe_rows(recipe_lines)


def share(count: int, total: int) -> str:
    """A count with its Clopper-Pearson limits (95 %): "38 of 40 (83 to 99 %)"."""
    low = stats.beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{count} of {total} ({100 * low:.0f} to {100 * high:.0f} %)"


def full_effects(lines: Sequence[Line]) -> Mapping[Any, Estimate]:
    """The effect of each fault and seed on full runs, in nats."""
    runs = [line for line in lines if line["kind"] == "run"]
    baseline = {
        (line["seed"], line["replicate"]): line["late_mean"] for line in runs if not line["gemms"]
    }
    pairs: dict[Any, list[float]] = {}
    for line in runs:
        if line["gemms"]:
            pairs.setdefault(_fault(line), []).append(
                line["late_mean"] - baseline[line["seed"], line["replicate"]]
            )
    several = [values for values in pairs.values() if len(values) > 1]
    df = sum(len(values) - 1 for values in several)
    sd = (
        math.sqrt(sum(float(np.var(values, ddof=1)) * (len(values) - 1) for values in several) / df)
        if df
        else math.nan
    )
    return {
        fault: Estimate(value=float(np.mean(values)), se=sd / math.sqrt(len(values)), df=float(df))
        for fault, values in pairs.items()
    }


def is_seen(effect: Estimate) -> bool:
    """Whether the full runs show the fault."""
    low, high = effect.bounds(0.95)
    return low > 0 or high < 0


def outcome(line: Line) -> str:
    """How an answer about a planted fault came out: right, wider, wrong or none."""
    planted = set(line["gemms"])
    if not line["named"]:
        return "none"
    if any(planted.isdisjoint(cluster) for cluster in line["named"]):
        return "wrong"
    return "right" if all(planted.issuperset(cluster) for cluster in line["named"]) else "wider"


def covers(line: Line, truths: Mapping[str, Line]) -> bool | None:
    """Whether the interval of the unexplained part contains the truth; None if there is none."""
    named = {unit for cluster in line["named"] for unit in cluster}
    truth = (
        {"unexplained": 0.0, "se": 0.0}
        if line["gemms"] and set(line["gemms"]) <= named
        else truths.get(line["case"])
    )
    interval = line["unexplained"]
    # all units are named: that cannot miss
    if not named or truth is None or interval is None or interval["low"] == interval["high"]:
        return None
    half = math.hypot((interval["high"] - interval["low"]) / 2, _Z * truth["se"])
    return bool(abs(interval["value"] - truth["unexplained"]) <= half)


def _fault(line: Line) -> tuple[str, tuple[str, ...], int]:
    return line["fault"], tuple(line["gemms"]), line["seed"]


def _effect_rows(effects: Mapping[Any, Estimate], failed: Collection[Any]) -> Iterator[str]:
    yield (
        "| fault | GEMMs | tried | seen | failed by the judge | effect on full runs, nats: median "
        "(least to most) |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    groups: dict[tuple[str, int], list[Any]] = {}
    for fault in effects:
        groups.setdefault((fault[0], len(fault[1])), []).append(fault)
    for (kind, count), faults in groups.items():
        values = [effects[fault].value for fault in faults]
        spread = f"{np.median(values):+.3f} ({min(values):+.3f} to {max(values):+.3f})"
        seen = sum(is_seen(effects[fault]) for fault in faults)
        fails = sum(fault in failed for fault in faults)
        yield f"| {kind} | {count} | {len(faults)} | {seen} | {fails} | {spread} |"


def _naming_rows(
    counted: Sequence[Line], others: Mapping[str, Sequence[Line]], answers: Sequence[Line]
) -> Iterator[str]:
    yield (
        "| fault | cases | right | wider | none | wrong | lowest SNR is right | largest fall of "
        "SNR is right |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind in dict.fromkeys(line["fault"] for line in counted):
        fault_lines = [line for line in counted if line["fault"] == kind]
        ranked = [_ranking(line, answers) for line in fault_lines]
        hits = f"{_hits(ranked, 0)} | {_hits(ranked, 1)}"
        yield f"| {kind} | {len(fault_lines)} | {_outcomes(fault_lines)} | {hits} |"
    models = list(dict.fromkeys(line["settings"] for line in counted))
    groups = [
        (model.split()[0], [line for line in counted if line["settings"] == model])
        for model in models
        if len(models) > 1
    ]
    for name, group_lines in (*groups, ("all", counted), *others.items()):
        if group_lines:
            ranked = [_ranking(line, answers) for line in group_lines]
            numbers = " | ".join(
                share(
                    sum(outcome(line) == kind_of_outcome for line in group_lines), len(group_lines)
                )
                for kind_of_outcome in ("right", "wider", "none", "wrong")
            )
            shares = f"{_shares(ranked, 0)} | {_shares(ranked, 1)}"
            yield f"| {name} | {len(group_lines)} | {numbers} | {shares} |"


def _outcomes(group_lines: Sequence[Line]) -> str:
    return " | ".join(
        str(sum(outcome(line) == kind_of_outcome for line in group_lines))
        for kind_of_outcome in ("right", "wider", "none", "wrong")
    )


def _ranking(line: Line, answers: Sequence[Line]) -> tuple[bool | None, bool | None]:
    """Whether each ranking by SNR puts a planted unit first."""
    errors = {unit: value for unit, value in line["gradient_errors"].items() if unit != "all"}
    if not errors:
        return None, None
    largest = max(errors, key=lambda unit: errors[unit])
    same = (
        other
        for other in answers
        if not other["gemms"] and (other["seed"], other["step"]) == (line["seed"], line["step"])
    )
    before = next((other["gradient_errors"] for other in same), None)
    grown = max(errors, key=lambda unit: errors[unit] / before[unit]) if before else None
    return largest in line["gemms"], None if grown is None else grown in line["gemms"]


def _hits(ranked: Sequence[tuple[bool | None, ...]], at: int) -> str:
    return (
        f"{sum(row[at] is True for row in ranked)} of {sum(row[at] is not None for row in ranked)}"
    )


def _shares(ranked: Sequence[tuple[bool | None, ...]], at: int) -> str:
    recorded = [row[at] for row in ranked if row[at] is not None]
    return share(sum(map(bool, recorded)), len(recorded)) if recorded else "none"


def _other_rows(
    counted: Sequence[Line], planted: Sequence[Line], answers: Sequence[Line]
) -> Iterator[str]:
    yield "| measured | result |"
    yield "| --- | --- |"
    double = [line for line in counted if len(line["gemms"]) == 2]
    if double:
        both = sum(
            set(line["gemms"]) <= {unit for cluster in line["named"] for unit in cluster}
            for line in double
        )
        yield f"| counted faults in two GEMMs: both are named | {share(both, len(double))} |"
    healthy = [line for line in answers if not line["gemms"]]
    if healthy:
        yield (
            "| healthy cases in which a unit is named | "
            f"{share(sum(bool(line['named']) for line in healthy), len(healthy))} |"
        )
    hits = [hit for hit in (covers(line, {}) for line in planted) if hit is not None]
    if hits:
        yield (
            "| interval of the unexplained part covers, where all planted units are named (truth "
            f"0) | {share(sum(hits), len(hits))} |"
        )
    single = [line for line in planted if len(line["gemms"]) == 1]
    several = [line for line in planted if len(line["gemms"]) > 1]
    for what, own_lines in (
        ("a fault in one GEMM", single),
        ("in several", several),
        ("healthy", healthy),
    ):
        if own_lines:
            steps = [line["steps_spent"] for line in own_lines]
            yield (
                f"| cost in steps of training, {what}: median (least to most) | "
                f"{_span(steps, ',.0f')} |"
            )


def _recipe_rows(lines: Sequence[Line]) -> Iterator[str]:
    answers = [line for line in lines if line["kind"] == "answer"]
    truths = {line["case"]: line for line in lines if line["kind"] == "truth"}
    hits = [hit for hit in (covers(line, truths) for line in answers) if hit is not None]
    if not hits:
        return
    yield (
        "| really different recipes: a unit is named | "
        f"{share(sum(bool(line['named']) for line in answers), len(answers))} |"
    )
    yield (
        "| really different recipes: the interval of the unexplained part covers that of further "
        f"forks | {share(sum(hits), len(hits))} |"
    )
    shares = [
        line["unexplained"]["value"] / line["effect"]["value"] for line in answers if line["named"]
    ]
    yield (
        "| really different recipes: unexplained, as a share of the effect: median (least to "
        f"most) | {_span(shares, '.0%')} |"
    )
    steps = [line["steps_spent"] for line in answers]
    yield (
        "| really different recipes: cost in steps of training: median (least to most) | "
        f"{_span(steps, ',.0f')} |"
    )


def _span(values: Sequence[float], form: str) -> str:
    return f"{np.median(values):{form}} ({min(values):{form}} to {max(values):{form}})".replace(
        "%", " %"
    )
