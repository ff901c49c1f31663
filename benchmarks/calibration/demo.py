"""Is the demo's verdict right with any seed? Judges the runs of experiments/demo_floor.jsonl as
examples/demo.yaml does.

    python -m benchmarks.calibration.demo

D1 the demo of each seed: its replicates, two an arm; of NVFP4 every two of its three
D2 each pair of seeds, one run an arm and seed
D3 make demo QUICK=1: each single pair of FP8 and MXFP8
D4 calculated: the share of seeds with which the demo is right, where each run has its own offset,
as large as the borrowed noise and larger,
   and where a seed's gap is that of all its replicates, so that two of them do not average it
D5 what is borrowed: its size with 95 % limits, what replicates alone show, whether seeds add to it
(F test), and without each seed

Right: MXFP8 passes and NVFP4 fails. Run-to-run noise is borrowed from the shipped reruns, which
hold the seeds that are judged: D5 shows how far each of them moves it. Can fail: 30 further seeds
are as likely to be unlike these as the number of recorded seeds allows; D4 rests on normal offsets.
Each line has a figure, its mark, and ok or MISS (exit code 1).
"""

import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

from benchmarks.marks import MarkedFigure, share
from parity.judging.curves.curve import Curve, FloatArray, Rounding, curve_from_arrays
from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import Prior, arm_noise, run_term
from parity.judging.noise.emulated_table import DEMO, emulated_noise_table
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.recipes import rounds_to_nearest
from tools.tables.emulated_noise import late_means, spreads

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "experiments" / "demo_floor.jsonl"
JOB = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text(encoding="utf-8"))
BASELINE, WITHIN, BEYOND = "fp8_current", "mxfp8", "nvfp4"
EXPECTED = {WITHIN: "pass", BEYOND: "fail"}
TARGET = 29 / 30
CHANCE_SHARE = 0.025  # of pairs without a gap lie above a 95 % interval
SIMULATED = 5000
Runs = dict[str, dict[int, list[Curve]]]
Gaps = dict[str, FloatArray]


def read() -> tuple[list[dict], Runs]:
    """The records, and the curves by recipe and seed, with the learning rates of the demo's
    schedule.
    """
    records = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    schedule = JOB["job"]["schedule"]
    steps, warm, end = schedule["steps"], schedule["warmup_steps"], schedule["final_fraction"]
    t = np.arange(steps)
    decay = end + (1 - end) * 0.5 * (1 + np.cos(np.pi * np.clip((t - warm) / (steps - warm), 0, 1)))
    rates = schedule["learning_rate"] * np.minimum(1, (t + 1) / warm) * decay
    runs: Runs = {}
    for one in records:
        recipe = one["recipe"]
        curve = curve_from_arrays(
            t,
            one["losses"],
            columns={"learning_rate": rates},
            seed=one["seed"],
            replicate=one["replicate"],
            recipe=recipe,
            rounding=rounding_of(recipe),
        )
        runs.setdefault(recipe, {}).setdefault(one["seed"], []).append(curve)
    return records, runs


def verdicts(
    base: Sequence[Curve], candidates: dict[str, Sequence[Curve]], policy: Policy
) -> dict[str, Verdict]:
    """The verdicts by candidate, as the service judges a job."""
    judged = judge(
        base,
        candidates,
        policy,
        planned_steps=JOB["job"]["schedule"]["steps"],
        layer_policy=JOB["job"]["layer_policy"],
        baseline_name=BASELINE,
        noise_table=emulated_noise_table().only({DEMO}),
        families=dict.fromkeys((BASELINE, *candidates), DEMO),
    )
    return {verdict.candidate: verdict for verdict in judged}


def is_right(judged: dict[str, Verdict]) -> bool:
    """Whether the demo says what is so."""
    return all(verdict.verdict == EXPECTED[name] for name, verdict in judged.items())


def lies_right(judged: dict[str, Verdict]) -> bool:
    """Whether the intervals of the gaps alone say it."""
    sides = {}
    for name, verdict in judged.items():
        lo, hi = verdict.gap.bounds(verdict.measurements.confidence)
        sides[name] = (
            "pass" if hi < verdict.margin.nats else "fail" if lo > verdict.margin.nats else "open"
        )
    return all(side == EXPECTED[name] for name, side in sides.items())


def counted(what: str, outcomes: Sequence[tuple[str, bool]]) -> MarkedFigure:
    """How many were right; the others by name."""
    right = sum(ok for _, ok in outcomes)
    wrong = (
        f" (not: {', '.join(name for name, ok in outcomes if not ok)})"
        if right < len(outcomes)
        else ""
    )
    return MarkedFigure(
        what=what,
        value=f"{right} of {len(outcomes)}{wrong}",
        mark=">= 29 of 30",
        ok=right >= TARGET * len(outcomes),
    )


def measured(runs: Runs, policy: Policy) -> Iterator[MarkedFigure]:
    """D1 to D3."""
    whole = [
        seed
        for seed in runs[BEYOND]
        if all(len(runs[recipe].get(seed, ())) >= 2 for recipe in runs)
    ]
    outcomes = []
    for seed in whole:
        for chosen in itertools.combinations(runs[BEYOND][seed], 2):
            judged = verdicts(
                runs[BASELINE][seed][:2], {WITHIN: runs[WITHIN][seed][:2], BEYOND: chosen}, policy
            )
            name = f"{seed} with {chosen[0].replicate} and {chosen[1].replicate}: " + " ".join(
                v.verdict for v in judged.values()
            )
            outcomes.append((name, is_right(judged)))
    yield counted(f"D1 demos of {len(whole)} seeds", outcomes)

    seeds = [seed for seed in runs[BEYOND] if all(runs[recipe].get(seed) for recipe in runs)]
    outcomes, intervals = [], []
    for pair in itertools.combinations(seeds, 2):
        first = {recipe: [runs[recipe][seed][0] for seed in pair] for recipe in runs}
        judged = verdicts(first[BASELINE], {WITHIN: first[WITHIN], BEYOND: first[BEYOND]}, policy)
        words = ", ".join(f"{verdict.verdict} by {verdict.codes[0]}" for verdict in judged.values())
        outcomes.append((f"{pair} {words}", is_right(judged)))
        intervals.append((f"{pair}", lies_right(judged)))
    yield counted(f"D2 pairs of {len(seeds)} seeds", outcomes)
    yield counted("D2 the same by their intervals alone", intervals)

    outcomes, accused = [], 0
    for seed in seeds:
        for base, cand in itertools.product(runs[BASELINE][seed], runs[WITHIN][seed]):
            judged = verdicts([base], {WITHIN: [cand]}, policy)
            accused += (
                judged[WITHIN].verdict == "fail" or "BETTER_THAN_NOISE" in judged[WITHIN].codes
            )
            outcomes.append(
                (
                    f"{seed} with {base.replicate} and {cand.replicate}: {judged[WITHIN].verdict}",
                    is_right(judged),
                )
            )
    line = counted("D3 QUICK: pairs of FP8 and MXFP8 that pass", outcomes)
    yield MarkedFigure(
        what=line.what, value=line.value, mark="shown: one pair shows no run-to-run noise", ok=True
    )
    most = int(stats.binom.ppf(0.99, len(outcomes), CHANCE_SHARE))
    what = "D3 that fail, or are said to be better than noise explains"
    yield MarkedFigure(
        what=what, value=str(accused), mark=f"<= {most}: 2.5 % by chance", ok=accused <= most
    )


def calculated(runs: Runs, policy: Policy) -> Iterator[MarkedFigure]:
    """D4: demos of many seeds, whose gaps and run offsets are drawn as measured; all as shares of
    the loss.
    """
    late = {
        recipe: {
            seed: np.array([late_mean(run) for run in seed_runs])
            for seed, seed_runs in seeds.items()
        }
        for recipe, seeds in runs.items()
    }
    level = float(np.mean([means.mean() for means in late[BASELINE].values()]))
    gaps = {recipe: gap_over_seeds(late, recipe) / level for recipe in (WITHIN, BEYOND)}
    within = {recipe: within_error(runs, recipe) / level for recipe in gaps}
    sds = ", ".join(
        f"{recipe} {100 * gap.mean():+.2f} % (sd {100 * gap.std(ddof=1):.2f}, {len(gap)} seeds)"
        for recipe, gap in gaps.items()
    )
    yield MarkedFigure(
        what=f"D4 gaps of one seed at a loss of {level:.3f}", value=sds, mark="shown", ok=True
    )
    rng = np.random.default_rng(0)
    for times in (1.0, 1.25, 1.5):
        right = sum(
            drawn_right(drawn_runs(gaps, times, rng), within, policy, rng) for _ in range(SIMULATED)
        )
        what = (
            "D4 demos that are right, each run with its own offset, "
            f"{times:g} times the borrowed noise"
        )
        is_mark = times == 1.0
        yield MarkedFigure(
            what=what,
            value=share(right / SIMULATED),
            mark=">= 29 of 30" if is_mark else "shown",
            ok=not is_mark or right >= TARGET * SIMULATED,
        )
    right = sum(drawn_right(drawn_seed(gaps, rng), within, policy, rng) for _ in range(SIMULATED))
    what = "D4 demos that are right, one gap for all replicates of a seed"
    yield MarkedFigure(
        what=what,
        value=share(right / SIMULATED),
        mark=">= 29 of 30",
        ok=right >= TARGET * SIMULATED,
    )


def drawn_runs(gaps: Gaps, times: float, rng: np.random.Generator) -> Gaps:
    """Levels (2,) of two runs an arm, as shares of the baseline's loss."""
    borrowed = {
        rounding: find_noise_source(emulated_noise_table(), DEMO, rounding).noise.share
        for rounding in ("nearest", "stochastic")
    }
    means = {BASELINE: 0.0, **{recipe: gap.mean() for recipe, gap in gaps.items()}}
    return {
        recipe: mean + times * borrowed[rounding_of(recipe)] * rng.normal(size=2)
        for recipe, mean in means.items()
    }


def drawn_seed(gaps: Gaps, rng: np.random.Generator) -> Gaps:
    """The same where only seeds differ: the gap of one new seed."""
    return {BASELINE: np.zeros(2)} | {
        recipe: np.full(
            2, gap.mean() + gap.std(ddof=1) * math.sqrt(1.0 + 1.0 / len(gap)) * rng.normal()
        )
        for recipe, gap in gaps.items()
    }


def drawn_right(
    levels: Gaps, within: dict[str, float], policy: Policy, rng: np.random.Generator
) -> bool:
    """Whether the judge decides one demo rightly, from levels (2,) of its arms as shares of the
    loss.
    """
    confidence, margin = (
        Multiplicity(looks=policy.looks, candidates=2).confidence(policy.confidence),
        policy.margin.nats(1.0),
    )
    for recipe in (WITHIN, BEYOND):
        borrowed = {
            one: find_noise_source(emulated_noise_table(), DEMO, rounding_of(one)).noise
            for one in (BASELINE, recipe)
        }
        priors = [
            Prior(tau=noise.share, df=noise.df, basis=f"{noise.share}")
            for noise in borrowed.values()
        ]
        noises = [
            arm_noise(prior, levels[one], [0, 0])
            for one, prior in zip(borrowed, priors, strict=True)
        ]
        gap = float(levels[recipe].mean() - levels[BASELINE].mean()) + within[recipe] * rng.normal()
        lo, hi = interval(
            gap, StandardError(value=within[recipe], df=12.0), run_term(*noises)
        ).bounds(confidence)
        if not (hi < margin if recipe == WITHIN else lo > margin):
            return False
    return True


def rounding_of(recipe: str) -> Rounding:
    """How a recipe of the demo rounds."""
    return "nearest" if rounds_to_nearest(recipe) else "stochastic"


def noise(records: Sequence[dict]) -> Iterator[MarkedFigure]:
    """D5."""
    seeds = sorted({one["seed"] for one in records})
    late, *without = (
        late_means("\n".join(json.dumps(one) for one in records if one["seed"] != left_out))
        for left_out in (None, *seeds)
    )
    left = [spreads(some) for some in without]
    for recipe, spread in spreads(late).items():
        level = float(np.mean([np.mean(means) for means in late[recipe].values()]))
        df, share_of_loss = spread.df, 100 * math.sqrt(spread.variance) / level
        low, high = (
            share_of_loss * math.sqrt(df / stats.chi2.ppf(tail, df)) for tail in (0.975, 0.025)
        )
        value = f"{share_of_loss:.3f} % of the loss ({low:.3f} to {high:.3f}; df {df})"
        yield MarkedFigure(what=f"D5 one run of {recipe}", value=value, mark="shown", ok=True)
        value = (
            f"{100 * math.sqrt(spread.replicates) / level:.3f} % between replicates; seeds do "
            f"nothing: p = {spread.seeds_chance:.2g}"
        )
        yield MarkedFigure(what=f"D5 {recipe}", value=value, mark="shown", ok=True)
        others = [100 * math.sqrt(some[recipe].variance) / level for some in left]
        yield MarkedFigure(
            what=f"D5 {recipe}, without one of {len(seeds)} seeds",
            value=f"{min(others):.3f} to {max(others):.3f} %",
            mark="shown",
            ok=True,
        )


def late_mean(run: Curve) -> float:
    """The mean loss in the judge's window, the last fifth."""
    return float(run.loss[-len(run.loss) // 5 :].mean())


def gap_over_seeds(late: dict[str, dict[int, np.ndarray]], recipe: str) -> np.ndarray:
    """The gaps of a recipe to the baseline, one a seed, in nats."""
    both = [seed for seed in late[recipe] if seed in late[BASELINE]]
    return np.array([late[recipe][seed].mean() - late[BASELINE][seed].mean() for seed in both])


def within_error(runs: Runs, recipe: str) -> float:
    """The standard error of the mean gap inside pairs of arms of two runs, nats."""
    errors = []
    for seed, seed_runs in runs[recipe].items():
        if len(seed_runs) > 1 and len(runs[BASELINE].get(seed, ())) > 1:
            gap = np.mean([run.loss for run in seed_runs[:2]], axis=0) - np.mean(
                [run.loss for run in runs[BASELINE][seed][:2]], axis=0
            )
            late = gap[-len(gap) // 5 :]
            errors.append(late.std(ddof=1) / math.sqrt(len(late)))
    return float(np.median(errors))


def main() -> int:
    """Print the lines."""
    records, runs = read()
    policy = policy_from_mapping(JOB["policy"])
    missed = False
    for line in itertools.chain(measured(runs, policy), calculated(runs, policy), noise(records)):
        print(f"{line.what}: {line.value} [{line.mark}] {'ok' if line.ok else 'MISS'}", flush=True)
        missed |= not line.ok
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
