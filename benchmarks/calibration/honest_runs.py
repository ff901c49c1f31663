"""R1 to R5: are honest runs accused, and are bad ones found? Orders of a window,
single runs, pairing, copies, batches.

The synthetic seeds are like a byte-level trainer's: loss 2.08, 1,000 steps, batch noise 0.16 nats,
two runs of one seed 0.02 nats apart at a step and 0.05 % of the loss on average, seeds 0.01 nats.
AA7: seven public reruns (tests/data); other public runs are read where `marks.PUBLIC_RUNS` has
them.
"""

import csv
import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from benchmarks.marks import PUBLIC_RUNS, MarkedFigure, share
from parity.judging.curves.alignment import align
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import is_proven_somewhere
from parity.judging.curves.independence import dependence, resemblance
from parity.judging.curves.unstated_seeds import pair_by_batches
from parity.judging.evaluations.measured import measure
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_runs

LEVEL, STEPS, BATCH_SD, PAIR_SD, TAU, SEED_SD = 2.08, 1000, 0.16, 0.02, 0.0005, 0.01
MARGIN, BLOCK = 0.01 * LEVEL, 20
POLICY = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
ACCUSATIONS = {
    "RUN_ABOVE_MARGIN",
    "REPLICATES_IDENTICAL",
    "ARMS_IDENTICAL",
    "DATA_ORDER_MISMATCH",
    "SEEDS_UNSTATED",
    "ARM_AVERAGED",
}
RERUNS = Path(__file__).parents[2] / "tests" / "data" / "nanogpt_reruns.npz"
EVERY = (1, 5, 10, 16)
Losses = list[np.ndarray]


def seeds(rng: np.random.Generator, count: int = 3) -> tuple[Losses, Losses]:
    """The losses of one run a seed in both arms, without any gap."""
    t = np.arange(STEPS)
    law = LEVEL + 3.4 * np.exp(-t / 60) + 0.3 * np.exp(-t / 300)
    arms: tuple[Losses, Losses] = ([], [])
    for _ in range(count):
        batches = rng.normal(0, BATCH_SD, STEPS) + rng.normal(0, SEED_SD)
        for arm in arms:
            arm.append(
                law + batches + TAU * LEVEL * rng.normal() + rng.normal(0, PAIR_SD / 2**0.5, STEPS)
            )
    return arms


def reordered(rng: np.random.Generator, losses: Losses) -> Losses:
    """The runs with the blocks of their window in another order, the same for all."""
    first = STEPS * 4 // 5
    blocks = np.arange(first, STEPS).reshape(-1, BLOCK)
    at = np.concatenate([np.arange(first), blocks[rng.permutation(len(blocks))].ravel()])
    return [loss[at] for loss in losses]


def curves(rng: np.random.Generator, losses: Losses, every: int, *, stated: bool) -> list[Curve]:
    """Runs that are logged at every `every`-th step; those whose seeds are not stated come in any
    order.
    """
    at = np.arange((len(losses[0]) - 1) % every, len(losses[0]), every)
    order = range(len(losses)) if stated else rng.permutation(len(losses)).tolist()
    return [
        curve_from_arrays(
            at, losses[k][at], label=f"{k}", rounding="nearest", **({"seed": k} if stated else {})
        )
        for k in order
    ]


def judged(base: Sequence[Curve], cand: Sequence[Curve], planned: int = STEPS) -> Verdict:
    """The verdict at 1 %, the schedule finished as stated."""
    return judge(base, {"candidate": cand}, POLICY, planned_steps=planned)[0]


def r1(quick: bool) -> Iterator[MarkedFigure]:
    """Three honest seeds an arm, orders of the window's blocks; and the same with one run two
    margins worse.
    """
    for every, stated in itertools.product(EVERY, (True, False)):
        count, states, accused, wrong = 20 if quick else 100, Counter[str](), Counter[str](), 0
        for number in range(count):
            rng = np.random.default_rng((number, every))
            arms = seeds(rng)
            order = np.random.default_rng(number)
            base, cand = (reordered(np.random.default_rng(number), arm) for arm in arms)
            runs = (
                curves(order, base, every, stated=stated),
                curves(order, cand, every, stated=stated),
            )
            verdict = judged(*runs)
            states[verdict.verdict] += 1
            accused.update(ACCUSATIONS & set(verdict.codes))
            broken = [
                dataclasses.replace(run, loss=run.loss + 2.0 * MARGIN * (run.label == "1"))
                for run in runs[1]
            ]
            wrong += judged(runs[0], broken).verdict == "pass"
        few = STEPS // 5 // every < 40  # points; decision_checks.md has 93 to 96 % there
        least, most = (0.88, 0.02) if few else (0.95, 0.0)
        what = f"{STEPS // 5 // every} points, seeds {'stated' if stated else 'not stated'}"
        value = (
            f"pass {share(states['pass'] / count)}, fail {states['fail']}, accused {dict(accused)}"
        )
        ok = (
            states["pass"] >= least * count
            and not states["fail"]
            and sum(accused.values()) <= most * count
        )
        yield MarkedFigure(
            what=what,
            value=value,
            mark=f"pass >= {share(least)}, no fail, accused <= {share(most)}",
            ok=ok,
        )
        yield MarkedFigure(
            what=f"{what}, one run +2 margins",
            value=f"pass {share(wrong / count)}",
            mark="<= 10 %",
            ok=wrong <= 0.1 * count,
        )


def r2(quick: bool) -> Iterator[MarkedFigure]:
    """Single runs: honest sets of which one is named, and one of three at two margins that is; with
    its pair, and without.
    """
    count = 20 if quick else 100
    for every, paired in itertools.product(EVERY, (True, False)):
        named, found = 0, 0
        for number in range(count):
            rng = np.random.default_rng((number, every, 2))
            arms = seeds(rng, 3 if paired else 4)
            base = curves(rng, arms[0][:3], every, stated=True)
            cand = curves(rng, arms[1], every, stated=True)
            broken = [
                dataclasses.replace(run, loss=run.loss + 2.0 * MARGIN * (run is cand[-1]))
                for run in cand
            ]
            named += "RUN_ABOVE_MARGIN" in judged(base, cand).codes
            found += "RUN_ABOVE_MARGIN" in judged(base, broken).codes
        # 12 points: 50 to 98 % by the noise within a pair
        least = (0.85 if every < 16 else 0.45) if paired else 0.0
        what = f"{STEPS // 5 // every} points, {'its pair' if paired else 'no own pair'}"
        value = f"honest {named}, found {share(found / count)}"
        yield MarkedFigure(
            what=what,
            value=value,
            mark=f"0, >= {share(least)}",
            ok=not named and found >= least * count,
        )
    runs = [dataclasses.replace(run, rounding="nearest") for run in read_runs(str(RERUNS))]
    named, found, total = 0, 0, 0
    for chosen in list(itertools.combinations(range(7), 3))[:: 5 if quick else 1]:
        base, cand = (
            [run for k, run in enumerate(runs) if k not in chosen],
            [runs[k] for k in chosen],
        )
        margin = 0.01 * float(cand[0].loss[-350:].mean())
        broken = [*cand[:2], dataclasses.replace(cand[2], loss=cand[2].loss + 2.0 * margin)]
        named += "RUN_ABOVE_MARGIN" in judged(base, cand, 1750).codes
        found += "RUN_ABOVE_MARGIN" in judged(base, broken, 1750).codes
        total += 1
    yield MarkedFigure(
        what="AA7, three against four",
        value=f"honest {named}, found {share(found / total)}",
        mark="0, all",
        ok=not named and found == total,
    )


def r3(quick: bool) -> Iterator[MarkedFigure]:
    """Pairing by batches: how many sets are paired, and wrong claims; synthetic seeds, AA7 made
    into seeds, and reruns of one order.
    """
    count = 40 if quick else 200
    for n in (13, 25, 50, 100, 1000):
        paired, wrong, alike = 0, 0, 0
        for number in range(count):
            rng = np.random.default_rng((number, n, 3))
            at = np.linspace(0, STEPS - 1, n).astype(int)
            base, cand = (
                [curve_from_arrays(at, loss[at], label=str(k)) for k, loss in enumerate(arm)]
                for arm in seeds(rng)
            )
            cand = [cand[k] for k in rng.permutation(3)]
            found = pair_by_batches(base, cand, STEPS)
            paired += found.by == "batches"
            wrong += any(
                base[pair.baseline].label != cand[pair.candidate].label for pair in found.pairs
            )
            alike += found.by == "one order"
        value = f"paired {share(paired / count)}, wrong {wrong}, called one order {alike}"
        yield MarkedFigure(
            what=f"synthetic, {n} points",
            value=value,
            mark="0 wrong, one order <= 0.5 %",
            ok=not wrong and alike <= 0.005 * count,
        )
    losses = np.array([run.loss for run in read_runs(str(RERUNS))])
    mean = losses.mean(axis=0)
    late = np.arange(len(mean)) >= 100
    # without the batches, of which an average over some steps would keep a part
    trend = mean.copy()
    trend[late] = np.polynomial.Polynomial.fit(np.log(np.arange(len(mean))[late]), mean[late], 8)(
        np.log(np.arange(len(mean))[late])
    )
    for factor, n in itertools.product((1.0, 0.1, 0.03), (13, 25, 50, 100, 1000)):
        paired, wrong, alike, one = 0, 0, 0, 0
        for number in range(count):
            rng = np.random.default_rng((number, n, 4))
            chosen, at = rng.permutation(7)[:6], np.linspace(100, 1749, n).astype(int)
            noise = [
                trend + factor * np.roll(mean - trend, int(shift))
                for shift in rng.choice(np.arange(50, 1700, 10), 3, replace=False)
            ]
            offsets = losses[chosen] - mean
            base, cand = (
                [
                    curve_from_arrays(at, (noise[k] + offsets[k + side])[at], label=str(k))
                    for k in range(3)
                ]
                for side in (0, 3)
            )
            cand = [cand[k] for k in rng.permutation(3)]
            found = pair_by_batches(base, cand, 1750)
            paired += found.by == "batches"
            wrong += any(
                base[pair.baseline].label != cand[pair.candidate].label for pair in found.pairs
            )
            alike += found.by == "one order"
            reruns = [curve_from_arrays(at, loss[at]) for loss in losses[chosen]]
            one += pair_by_batches(reruns[:3], reruns[3:], 1750).by == "one order"
        value = (
            f"paired {share(paired / count)}, wrong {wrong}, called one order {alike}; reruns seen "
            f"as one order {share(one / count)}"
        )
        ok = not wrong and alike <= 0.005 * count and one == count
        yield MarkedFigure(
            what=f"AA7, noise x {factor:g}, {n} points",
            value=value,
            mark="0 wrong, one order <= 0.5 %; reruns 100 %",
            ok=ok,
        )


def public_sets() -> Iterator[tuple[str, list[Curve]]]:
    """Runs of the public sets that are at hand, by set."""
    yield "AA7", read_runs(str(RERUNS))
    if (PUBLIC_RUNS / "curves").exists():
        yield "15B", read_runs(str(PUBLIC_RUNS / "curves" / "megatron_gpt3_15b.npz"))[:2]
    for name, at in (
        ("gpt3_175b", "samples"),
        ("flux1_mxfp8", "samples"),
        ("llama2_70b_lora", "step"),
        ("nanogpt_fp8_down_projection", "step"),
        ("llama31_405b_train", "step"),
    ):
        path = PUBLIC_RUNS / "public_pairs" / f"{name}.csv"
        if not path.exists():
            continue
        points: dict[str, dict[int, float]] = defaultdict(dict)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = "/".join(
                    row[part]
                    for part in ("arm", "batch", "round", "system", "run", "seed")
                    if part in row
                )
                points[key][int(float(row[at]))] = float(row["loss"])
        yield (
            name,
            [
                curve_from_arrays(sorted(run), [run[step] for step in sorted(run)], label=key)
                for key, run in points.items()
            ],
        )


def printed(runs: Sequence[Curve], decimals: int, every: int) -> list[Curve]:
    """The runs rounded to `decimals`, thinned to every `every`-th point, with their last one."""
    rounded = []
    for run in runs:
        at = slice((len(run.steps) - 1) % every, None, every)
        rounded.append(
            curve_from_arrays(run.steps[at], run.loss[at].round(decimals), label=run.label)
        )
    return rounded


def r4(quick: bool) -> Iterator[MarkedFigure]:
    """Copies: honest pairs that are accused, and copies that are found."""
    for name, runs in public_sets():
        pairs, accused, equal, alike = 0, 0, Counter[int](), 0
        for decimals, every in itertools.product(
            (7, 6, 5, 4, 3, 2, 1), (1,) if len(runs[0].steps) < 500 else (1, 5, 10, 50)
        ):
            some = printed(runs, decimals, every)
            half = len(some) // 2
            if len(some[0].steps) <= 100 and decimals >= 4:
                measured = measure(
                    some[:half],
                    some[half:],
                    POLICY,
                    confidence=0.95,
                    planned_steps=None,
                    paired=False,
                    cluster=None,
                    at=(),
                )
                alike += len(measured.copies) + (measured.arms_alike is not None)
            for left, right in itertools.combinations(some[:20] if quick else some, 2):
                doubt = dependence(left, right)
                pairs += decimals == 7 and every == 1
                words = resemblance(left, right) or ""
                accused += (doubt is not None and doubt[0] == "copy") or (
                    words != "" and not words.startswith("equal at every step")
                )
                equal[decimals] += doubt is not None and doubt[0] == "equal"
        value = (
            f"{pairs:,} pairs, accused {accused}, as evaluations {alike}, equal as printed "
            f"{dict(+equal)} (by decimals)"
        )
        yield MarkedFigure(
            what=f"{name}, 7 to 1 decimals", value=value, mark="0 accused", ok=not accused + alike
        )
    runs = read_runs(str(RERUNS))
    for every in (1, 10, 60):
        at = slice(1749 % every, None, every)
        thinned = [curve_from_arrays(run.steps[at], run.loss[at], label=run.label) for run in runs]
        for what, copy in COPIES.items():
            found = [
                len(independent_runs([run, _with(run, copy(run.loss, k))])[1])
                for k, run in enumerate(thinned)
            ]
            few = every == 60
            hard = few and what.startswith("noise")
            least = 0 if hard else len(found)
            yield MarkedFigure(
                what=f"{what}, {len(thinned[0].steps)} points",
                value=f"found {sum(found)} of {len(found)}",
                mark="printed" if hard else "all",
                ok=sum(found) >= least,
            )
        blends = [
            independent_runs([a, b, _with(c, 0.5 * (a.loss + b.loss))])[1]
            for a, b, c in itertools.permutations(thinned[:4], 3)
        ]
        hit = sum(map(len, blends))
        yield MarkedFigure(
            what=f"a blend, {len(thinned[0].steps)} points",
            value=f"found {hit} of {len(blends)}",
            mark="all, but of 29",
            ok=hit == len(blends) or every == 60,
        )


def _with(run: Curve, loss: np.ndarray) -> Curve:
    return curve_from_arrays(run.steps, loss, label="copy")


def _ema(loss: np.ndarray, weight: float) -> np.ndarray:
    return lfilter([1.0 - weight], [1.0, -weight], loss, zi=[weight * loss[0]])[0]  # type: ignore[no-any-return]


def _bfloat16(loss: np.ndarray) -> np.ndarray:
    bits = loss.astype(np.float32).view(np.uint32)
    return (
        ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000)
        .astype(np.uint32)
        .view(np.float32)
        .astype(float)
    )


COPIES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "exact": lambda loss, _: loss.copy(),
    "3 decimals": lambda loss, _: loss.round(3),
    "bfloat16": lambda loss, _: _bfloat16(loss),
    "scaled by 1.002": lambda loss, _: 1.002 * loss,
    "moved by 0.002": lambda loss, _: loss + 0.002,
    "average of weight 0.6": lambda loss, _: _ema(loss, 0.6),
    "average of weight 0.9": lambda loss, _: _ema(loss, 0.9),
    "means of 3": lambda loss, _: np.convolve(
        np.pad(loss, 1, mode="edge"), np.ones(3) / 3, mode="valid"
    ),
    "0.0002 nats at one step": lambda loss, _: (
        loss + 2e-4 * (np.arange(len(loss)) == len(loss) // 2)
    ),
    "a ramp of 0.01 nats": lambda loss, _: loss + np.linspace(0.0, 0.01, len(loss)),
    "noise of 0.0001 nats": lambda loss, k: (
        loss + np.random.default_rng(k).normal(0.0, 1e-4, len(loss))
    ),
    "noise of 0.001 nats": lambda loss, k: (
        loss + np.random.default_rng(k).normal(0.0, 1e-3, len(loss))
    ),
}


def r5(quick: bool) -> Iterator[MarkedFigure]:
    """Rule 9: a candidate that broke late is recognised by its batches, other batches never are."""
    count, recognised, claimed = 100 if quick else 1200, 0, 0
    for number in range(count):
        rng = np.random.default_rng((number, 5))
        first, other = seeds(rng, 1), seeds(rng, 1)
        late = np.arange(STEPS) >= rng.uniform(0.5, 0.9) * STEPS
        broken = first[1][0] + late * (0.3 + rng.normal(0.0, 0.5, STEPS))
        recognised += is_proven_somewhere(
            align(*([curve_from_arrays(np.arange(STEPS), loss)] for loss in (first[0][0], broken)))
        )
        claimed += is_proven_somewhere(
            align(*([curve_from_arrays(np.arange(STEPS), arm[0])] for arm in (first[0], other[1])))
        )
    yield MarkedFigure(
        what="broken late, recognised",
        value=f"{recognised} of {count}",
        mark="all",
        ok=recognised == count,
    )
    yield MarkedFigure(
        what="other batches, recognised", value=f"{claimed} of {count}", mark="0", ok=not claimed
    )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    "R1": r1,
    "R2": r2,
    "R3": r3,
    "R4": r4,
    "R5": r5,
}
