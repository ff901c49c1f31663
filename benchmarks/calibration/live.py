"""L1 to L7: the live rules (harm, futility, forecast) over whole paths of 37 looks.

Simulated pairs are means of 80 blocks: gap = the recipes' gap + candidate's offset - baseline's
offset + step noise. Losses are shares of the loss (level 1); margin 1 % unless said. Noise: `FP8`
both arms assumed at 0.09 %, as they are; `NVFP4` the candidate at 0.135 %, as one that rounds
stochastically; `noisy` ones are assumed alike, but 0.12 and 0.18 % in truth, as in the noisiest
known group of 124 M.

Processes of the offset: `model` has the declared correlations; `early` is an Ornstein-Uhlenbeck
process (time constant 15 % of the plan) frozen at 60 %; `walk` a random walk frozen at 70 %;
`restless` an Ornstein-Uhlenbeck process that moves until the end, which the rules do not expect.
Public runs: the seven reruns of tests/data (3 independent pairs), and 96 emulated runs of
experiments/run_floor.jsonl.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.marks import MarkedFigure, share
from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.judging.live.offsets import correlation, spread
from parity.judging.live.pair_sums import BLOCKS, PairProgress, begin, observe
from parity.judging.live.prediction import Prediction, predict
from parity.judging.live.rules import ENDED_BY, FIRST_FORECAST, FORECAST_EVERY, state_of
from parity.judging.live.run_noise import LiveArm
from parity.judging.policy import Policy, policy_from_mapping
from parity.readers import read_runs

ROOT = Path(__file__).parents[2]
LOOKS = range(FIRST_FORECAST, BLOCKS + 1, FORECAST_EVERY)
ASSUMED = 0.0009  # of the loss: a finished run that rounds to nearest
STEP_SD = 0.0038 / 3.34 / np.sqrt(19)  # of a block mean: 19 of 1,530 steps
NEAREST, STOCHASTIC = LiveArm(rounding="nearest"), LiveArm(rounding="stochastic")
MARGINS = {text: policy_from_mapping({"margin": text}) for text in ("1.0%", "0.5%", "0.25%")}
MARGIN = MARGINS["1.0%"]
AT = (np.arange(BLOCKS) + 0.5) / BLOCKS
Process = Callable[[np.random.Generator, int], FloatArray]
TRANSIENTS: dict[str, FloatArray] = {
    "exponential, 10 % of the plan": np.exp(-AT / 0.1),
    "exponential, 20 %": np.exp(-AT / 0.2),
    "exponential, 40 %": np.exp(-AT / 0.4),
    "linear to the end": 1.0 - AT,
    "linear to half": np.maximum(0.0, 1.0 - 2.0 * AT),
    "half a cosine to the end": 0.5 * (1.0 + np.cos(np.pi * AT)),
    "square root": 1.0 - np.sqrt(AT),
}


@frozen
class Noises:
    """True run-to-run noise of both arms (shares of the loss), and what is said of them."""

    name: str
    true: tuple[float, float]
    arms: tuple[LiveArm, LiveArm]


FP8 = Noises(name="FP8", true=(ASSUMED, ASSUMED), arms=(NEAREST, NEAREST))
NOISY = Noises(name="noisy FP8", true=(0.0012, 0.0012), arms=(NEAREST, NEAREST))
NVFP4 = Noises(name="NVFP4", true=(ASSUMED, 1.5 * ASSUMED), arms=(NEAREST, STOCHASTIC))
NOISY_NVFP4 = Noises(name="noisy NVFP4", true=(0.0012, 0.0018), arms=(NEAREST, STOCHASTIC))
BEYOND_ASSUMED = (NOISY, NOISY_NVFP4)
EVERY = (FP8, NOISY, NVFP4, NOISY_NVFP4)


def ornstein(rng: np.random.Generator, count: int, time: float) -> FloatArray:
    """Unit Ornstein-Uhlenbeck paths (count, 80) with a time constant as a share of the plan."""
    keep = np.exp(-1.0 / BLOCKS / time)
    path = np.empty((count, BLOCKS))
    path[:, 0] = rng.normal(size=count)
    for block in range(1, BLOCKS):
        path[:, block] = keep * path[:, block - 1] + np.sqrt(1.0 - keep**2) * rng.normal(size=count)
    return path


def model(rng: np.random.Generator, count: int) -> FloatArray:
    """Offsets as the rules assume: correlation and spread of the trailing window at each block, and
    what is left moves at its own time.
    """
    # 0.9: a window's centre
    r, q = (
        np.array([curve(min(1.0, share / 0.9)) for share in AT]) for curve in (correlation, spread)
    )
    final = rng.normal(size=(count, 1))
    offsets: FloatArray = q * (r * final + np.sqrt(1.0 - r**2) * ornstein(rng, count, 0.15))
    return offsets


def early(rng: np.random.Generator, count: int) -> FloatArray:
    """Decided at 60 % of the plan."""
    path = ornstein(rng, count, 0.15)
    frozen = int(0.6 * BLOCKS)
    path[:, frozen:] = path[:, frozen - 1 : frozen]
    return path


def walk(rng: np.random.Generator, count: int) -> FloatArray:
    """A random walk that is decided at 70 % of the plan."""
    until = int(0.7 * BLOCKS)
    path = np.cumsum(rng.normal(size=(count, BLOCKS)) / np.sqrt(until), axis=1)
    path[:, until:] = path[:, until - 1 : until]
    return path


def restless(rng: np.random.Generator, count: int) -> FloatArray:
    """Never decided."""
    return ornstein(rng, count, 0.15)


PROCESSES: dict[str, Process] = {"model": model, "early": early, "walk": walk, "restless": restless}


def paths(
    rng: np.random.Generator, count: int, noises: Noises, process: Process, gap: FloatArray | float
) -> FloatArray:
    """Block means (count, 80) of the gap, a share of the loss."""
    offsets = noises.true[1] * process(rng, count) - noises.true[0] * process(rng, count)
    return gap + offsets + STEP_SD * rng.normal(size=(count, BLOCKS))


def final(path: FloatArray) -> FloatArray:
    """The mean of the registered window (...,) of block means (..., 80)."""
    means: FloatArray = path[..., -BLOCKS // 5 :].mean(axis=-1)
    return means


def pair(path: FloatArray, level: FloatArray | None = None) -> PairProgress:
    """A pair's state at the planned end from its block means (80,), one step a block."""
    baseline = np.ones(BLOCKS) if level is None else level
    return PairProgress(
        planned_steps=BLOCKS,
        origin=0,
        last_step=BLOCKS - 1,
        counts=(1,) * BLOCKS,
        gaps=tuple(path.tolist()),
        baselines=tuple(baseline.tolist()),
    )


def looks(
    path: PairProgress, arms: tuple[LiveArm, LiveArm], policy: Policy = MARGIN, last: int = BLOCKS
) -> Iterator[Prediction]:
    """The predictions at all looks up to a block."""
    for block in LOOKS:
        if (
            block <= last
            and (made := predict([(path.until(block), block == BLOCKS)], 1, arms, policy))
            is not None
        ):
            yield made


def alarm(
    path: PairProgress,
    arms: tuple[LiveArm, LiveArm],
    policy: Policy = MARGIN,
    last: int = BLOCKS - 1,
) -> float | None:
    """The share of the plan at which a rule stops the pair first, before its end; None where none
    does.
    """
    return next(
        (made.share for made in looks(path, arms, policy, last) if state_of(made) in ENDED_BY), None
    )


def alarms(
    made: FloatArray, noises: Noises, policy: Policy = MARGIN, last: int = BLOCKS - 1
) -> list[float]:
    """The shares of the plan at which paths (count, 80) are stopped."""
    stops = [alarm(pair(path), noises.arms, policy, last) for path in made]
    return [at for at in stops if at is not None]


def public_pairs() -> list[PairProgress]:
    """The 42 ordered pairs of the seven public reruns."""
    runs = read_runs(str(ROOT / "tests" / "data" / "nanogpt_reruns.npz"))
    return [
        observe(begin(1750), base.steps, base.loss, cand.loss)
        for base, cand in itertools.permutations(runs, 2)
    ]


def emulated() -> dict[tuple[str, str], FloatArray]:
    """The means of 40 parts of each emulated run (runs, 40) by cell and recipe, nats; groups of at
    least 12 runs.
    """
    runs: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for line in (ROOT / "experiments" / "run_floor.jsonl").read_text().splitlines():
        record = json.loads(line)
        runs[record["cell"], record["recipe"]].append(record["part_means"])
    return {key: np.array(parts) for key, parts in runs.items() if len(parts) >= 12}


def emulated_pairs(parts: FloatArray) -> list[PairProgress]:
    """All ordered pairs of a group's runs."""
    return [
        pair(np.repeat(cand - base, 2), np.repeat(base, 2))
        for base, cand in itertools.permutations(parts, 2)
    ]


def measured_arms(parts: FloatArray) -> tuple[LiveArm, LiveArm]:
    """Both arms with the group's own late means, as if its run-to-run noise had been measured on
    them.
    """
    late = tuple(parts[:, -8:].mean(axis=1).tolist())
    arm = LiveArm(rounding="nearest", means=late, seeds=(0,) * len(late))
    return arm, arm


def l1(quick: bool) -> Iterator[MarkedFigure]:
    """Pairs whose true gap is 0 are not stopped: public reruns, emulated reruns, and simulated ones
    over the whole path.
    """
    pairs = public_pairs()
    for text, policy in MARGINS.items():
        count = sum(alarm(progress, (NEAREST, NEAREST), policy) is not None for progress in pairs)
        yield MarkedFigure(
            what=f"A/A, 7 public reruns, margin {text}: stopped of {len(pairs)} ordered pairs (3 "
            "independent)",
            value=str(count),
            mark="0" if text != "0.25%" else "reported",
            ok=count == 0 or text == "0.25%",
        )
    stopped = total = 0
    for (_, recipe), parts in emulated().items():
        arms = (NEAREST, NEAREST) if recipe != "nvfp4" else (STOCHASTIC, STOCHASTIC)
        several = emulated_pairs(parts[:6] if quick else parts)
        stopped += sum(alarm(progress, arms) is not None for progress in several)
        total += len(several)
    yield MarkedFigure(
        what="A/A, emulated reruns, noise assumed (0.09, 0.135 %; in truth 0.15 to 0.43 %), of "
        f"{total} ordered pairs (36 independent)",
        value=f"{stopped} ({share(stopped / total)})",
        mark="<= 1 %",
        ok=stopped <= 0.01 * total,
    )
    count = 200 if quick else 1000
    for noises, (name, process) in itertools.product(EVERY, PROCESSES.items()):
        rng = np.random.default_rng(1)
        rate = len(alarms(paths(rng, count, noises, process, 0.0), noises)) / count
        yield MarkedFigure(
            what=f"A/A simulated, {noises.name}, {name}",
            value=share(rate),
            mark="<= 1 %",
            ok=rate <= 0.01,
        )


def l2(quick: bool) -> Iterator[MarkedFigure]:
    """Transients of 2 margins that decay to 0 are not stopped."""
    count = 100 if quick else 400
    for noises, (name, shape) in itertools.product(EVERY, TRANSIENTS.items()):
        made = paths(np.random.default_rng(2), count, noises, model, 0.02 * shape)
        stops = alarms(made, noises)
        rate = len(stops) / count
        at = f", median at {share(float(np.median(stops)))} of the plan" if stops else ""
        mark = "reported" if noises in BEYOND_ASSUMED else "<= 1 %"
        yield MarkedFigure(
            what=f"+2 margins, {name}, {noises.name}: stopped",
            value=share(rate) + at,
            mark=mark,
            ok=rate <= 0.01 or noises in BEYOND_ASSUMED,
        )


def l3(quick: bool) -> Iterator[MarkedFigure]:
    """Gaps that come late are seen before the end."""
    count = 100 if quick else 400
    for noises, begins in itertools.product((FP8, NVFP4), (0.4, 0.6, 0.7)):
        ramp = 0.02 * np.clip((AT - begins) / (0.9 - begins), 0.0, 1.0)
        made = paths(np.random.default_rng(3), count, noises, model, ramp)
        seen = len(alarms(made, noises)) / count
        ends = [list(looks(pair(path), noises.arms))[-1] for path in made]
        never = sum(state_of(last) != "on_course" for last in ends) / count
        yield MarkedFigure(
            what=f"ramp from {share(begins)} to 2 margins at 90 %, {noises.name}: stopped before "
            "the end",
            value=f"{share(seen)}, not on course at the end {share(never)}",
            mark="100 % not on course at the end" if noises is NVFP4 else ">= 95 % stopped",
            ok=(never == 1.0) if noises is NVFP4 else seen >= 0.95,
        )


def l4(quick: bool) -> Iterator[MarkedFigure]:
    """Constant gaps are stopped early, and what that saves."""
    count = 100 if quick else 400
    for noises, margins in itertools.product(EVERY, (1.0, 1.5, 2.0, 3.0, 5.0)):
        stops = alarms(
            paths(np.random.default_rng(4), count, noises, model, 0.01 * margins), noises
        )
        first_half = sum(at < 0.5 for at in stops) / count
        saved = sum(1.0 - at for at in stops) / count
        median = f", median at {share(float(np.median(stops)))}" if stops else ""
        mark, ok = "reported", True
        if margins == 2.0 and noises not in BEYOND_ASSUMED:
            mark, ok = ">= 80 %", first_half >= 0.80
        if margins == 3.0 and noises not in BEYOND_ASSUMED:
            mark, ok = ">= 95 %, >= 40 % saved", first_half >= 0.95 and saved >= 0.40
        yield MarkedFigure(
            what=f"constant gap of {margins:g} margins, {noises.name}: stopped before half",
            value=f"{share(first_half)}{median}, candidate's steps saved {share(saved)}",
            mark=mark,
            ok=ok,
        )


def coverage(
    made: list[tuple[PairProgress, float]], arms: tuple[LiveArm, LiveArm]
) -> tuple[float, float]:
    """How often the 90 % forecast holds the final gap at looks from half of the plan to 97.5 %, and
    at those before half.
    """
    late: list[bool] = []
    early_looks: list[bool] = []
    for path, truth in made:
        for prediction in looks(path, arms, last=BLOCKS - 1):
            level = prediction.below(truth)
            (late if prediction.share >= 0.5 else early_looks).append(0.05 <= level <= 0.95)
    return float(np.mean(late)), float(np.mean(early_looks))


def assumed(rng: np.random.Generator, tau: float) -> tuple[list[PairProgress], float]:
    """A pair as the rules assume it at every look, and its final gap: the blocks of each window
    that a look reads have one offset.
    """
    shares = np.array([block / BLOCKS for block in LOOKS])
    r, q = (np.array([curve(share) for share in shares]) for curve in (correlation, spread))
    moving = ornstein(rng, 1, 0.15)[0][np.array(LOOKS) - 1]
    end = rng.normal()
    offsets = np.sqrt(2.0) * tau * q * (r * end + np.sqrt(1.0 - r**2) * moving)
    noise = STEP_SD * rng.normal(size=BLOCKS)
    made = []
    for block, offset in zip(LOOKS, offsets, strict=True):
        before = np.interp(0.6 * block, LOOKS, offsets)
        path = np.where(np.arange(BLOCKS) < round(0.7 * block), before, offset) + noise
        made.append(pair(path).until(block))
    return made[:-1], float(np.sqrt(2.0) * tau * end + noise[-BLOCKS // 5 :].mean())


def l5(quick: bool) -> Iterator[MarkedFigure]:
    """The 90 % forecast from half of the plan on."""
    count = 100 if quick else 400
    slack = 0.02 * quick
    rng = np.random.default_rng(5)
    late_hits: list[bool] = []
    early_hits: list[bool] = []
    for _ in range(count):
        made, truth = assumed(rng, ASSUMED * float(np.sqrt(4.0 / rng.chisquare(4.0))))
        for path in made:
            prediction = predict([(path, False)], 1, (NEAREST, NEAREST), MARGIN)
            if prediction is not None:
                (late_hits if prediction.share >= 0.5 else early_hits).append(
                    0.05 <= prediction.below(truth) <= 0.95
                )
    late, soon = float(np.mean(late_hits)), float(np.mean(early_hits))
    yield MarkedFigure(
        what="90 % forecast, tau drawn from the assumed noise, offsets as assumed: covers from "
        "half on",
        value=f"{share(late)} (before half {share(soon)})",
        mark="87 to 93 %",
        ok=0.87 - slack <= late <= 0.93 + slack,
    )
    for name, process in PROCESSES.items():
        several = []
        for _ in range(count):
            tau = ASSUMED * float(np.sqrt(4.0 / rng.chisquare(4.0)))
            path = paths(
                rng, 1, Noises(name="drawn", true=(tau, tau), arms=(NEAREST, NEAREST)), process, 0.0
            )[0]
            several.append((pair(path), float(final(path))))
        late, soon = coverage(several, (NEAREST, NEAREST))
        yield MarkedFigure(
            what=f"the same, offsets {name}",
            value=f"{share(late)} (before half {share(soon)})",
            mark="reported",
            ok=True,
        )
    totals = []
    for parts in emulated().values():
        group_rows = emulated_pairs(parts[:6] if quick else parts)
        truths = [
            (progress, float(np.array(progress.gaps)[-16:].mean())) for progress in group_rows
        ]
        totals.append(coverage(truths, measured_arms(parts)))
    late, soon = (float(np.mean(column)) for column in zip(*totals, strict=True))
    percentages = ", ".join(f"{100 * one:.0f}" for one, _ in totals)
    yield MarkedFigure(
        what="the same, emulated reruns with measured noise, 8 groups",
        value=f"{share(late)} (before half {share(soon)}; groups {percentages})",
        mark="87 to 93 %",
        ok=0.87 - slack <= late <= 0.93 + slack,
    )
    public = [
        (progress, float((np.array(progress.gaps) / np.array(progress.counts))[-16:].mean()))
        for progress in public_pairs()
    ]
    late, soon = coverage(public, (NEAREST, NEAREST))
    yield MarkedFigure(
        what="the same, 42 pairs of 7 public reruns",
        value=f"{share(late)} (before half {share(soon)})",
        mark="reported",
        ok=True,
    )


def l6(quick: bool) -> Iterator[MarkedFigure]:
    """Of the pairs that were stopped as futile, how many would have passed; true gaps drawn around
    the margin.
    """
    count = 400 if quick else 2000
    for noises, (name, process) in itertools.product((FP8, NVFP4), PROCESSES.items()):
        rng = np.random.default_rng(6)
        gaps = rng.uniform(0.0, 0.02, (count, 1))
        wrong = stopped = passing = 0
        for path in paths(rng, count, noises, process, gaps):
            made = list(looks(pair(path), noises.arms))
            would_pass = made[-1].passes > 0.5
            at = next((look.share for look in made[:-1] if state_of(look) in ENDED_BY), None)
            passing += would_pass
            stopped += at is not None
            wrong += would_pass and at is not None
        yield MarkedFigure(
            what=f"gaps of 0 to 2 margins, {noises.name}, {name}: stopped although it would have "
            "passed",
            value=f"{share(wrong / count)} of all ({stopped} stopped, {passing} pass of {count})",
            mark="<= 1 %" if name != "restless" else "reported",
            ok=wrong / count <= 0.01 or name == "restless",
        )


def l7(quick: bool) -> Iterator[MarkedFigure]:
    """What stops save: steps of candidates whose true gaps are spread as wide as two margins, and
    in replays of emulated runs.
    """
    count = 200 if quick else 1000
    for noises in (FP8, NVFP4):
        rng = np.random.default_rng(7)
        gaps = 0.01 * np.abs(rng.normal(size=(count, 1)) * 2.0)
        stops = alarms(paths(rng, count, noises, model, gaps), noises)
        yield MarkedFigure(
            what=f"gaps of |N(0, 2)| margins, {noises.name}: candidate's steps saved",
            value=f"{share(sum(1.0 - at for at in stops) / count)} ({share(len(stops) / count)} "
            "stopped)",
            mark="reported",
            ok=True,
        )
    groups = emulated()
    for cell in sorted({cell for cell, _ in groups}):
        base, cand = groups[cell, "fp8_current"], groups[cell, "nvfp4"]
        runs = range(0, len(base), 3 if quick else 1)
        pairs = [
            pair(np.repeat(cand[j] - base[i], 2), np.repeat(base[i], 2))
            for i, j in itertools.product(runs, runs)
        ]
        ends = [
            at for progress in pairs if (at := alarm(progress, (NEAREST, STOCHASTIC))) is not None
        ]
        gap = float(cand[:, -8:].mean() / base[:, -8:].mean() - 1.0)
        yield MarkedFigure(
            what=f"replayed: emulated FP8 against NVFP4, {cell}, gap {share(gap)}: candidate's "
            "steps saved",
            value=f"{share(sum(1.0 - at for at in ends) / len(pairs))} "
            f"({share(len(ends) / len(pairs))} of {len(pairs)} pairs stopped)",
            mark="reported",
            ok=True,
        )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    "L1": l1,
    "L2": l2,
    "L3": l3,
    "L4": l4,
    "L5": l5,
    "L6": l6,
    "L7": l7,
}
