"""Rates on runs of the project's own trainer: honest reruns and resumes, faults by their true gap,
and faults that are planted into long runs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.golden import killed
from benchmarks.golden.public_pairs import Pair
from benchmarks.golden.resume_faults import HONEST_RESUMES, RESUME_FAULTS
from benchmarks.golden.trained import (
    RECIPES,
    START_FAULTS,
    corpus,
    saved_run,
    scaled_gradients,
    spec_of,
    trained,
)
from parity.golden.answers import ANSWERS, FINE, Answer
from parity.golden.check import RunFacts, check_restart
from parity.golden.measured import Change, ComparisonFacts
from parity.golden.rule import judge
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.recipes import rounds_to_nearest

SEEDS, FAULTY_SEEDS, REPLICATES = range(5), range(3), range(1, 5)
GAPS = ((0.0, 0.3), (0.3, 1.0), (1.0, 2.0), (2.0, np.inf))
PARTS = 4  # of a batch, whose gradients are added up
GOLDENS = 5  # of a recipe that rounds stochastically: reruns, which show the noise of the test


def honest_reruns(recipes: Sequence[str] = RECIPES) -> Iterator[list[str]]:
    """A row per recipe: 20 reruns from weights that were moved by one part in a million."""
    yield ["recipe", "goldens", "reruns", *ANSWERS]
    text = corpus()
    for recipe in recipes:
        answers: Counter[Answer] = Counter()
        goldens = 1 if rounds_to_nearest(recipe) else GOLDENS
        for seed in SEEDS:
            spec = spec_of(recipe, seed)
            reruns = [
                trained(replace(spec, replicate=number), text)
                for number in range(goldens + len(REPLICATES))
            ]
            for run in reruns[goldens:]:
                line, _ = judge(reruns[:goldens], run, ComparisonFacts(recipe=recipe))
                answers[line.answer] += 1
        yield [recipe, str(goldens), str(answers.total()), *_counts(answers)]


def trained_faults(recipe: str = "bf16") -> Iterator[list[str]]:
    """A row per true gap at the end: faults from the first step, by the loss alone and by all that
    is recorded.
    """
    yield ["true gap", "judged by", "runs", *ANSWERS]
    text = corpus()
    found = []
    for seed in FAULTY_SEEDS:
        golden = trained(spec_of(recipe, seed), text)
        for change in START_FAULTS.values():
            run = trained(spec_of(recipe, seed, schedule=change), text)
            found.append((_true_gap(golden, run), golden, run))
    for low, high in GAPS:
        some = [(golden, run) for gap, golden, run in found if low <= abs(gap) < high]
        for kind, judged in (
            ("loss", [(golden, _loss_alone(run)) for golden, run in some]),
            ("all", some),
        ):
            answers = Counter(
                judge([golden], run, ComparisonFacts(recipe=recipe))[0].answer
                for golden, run in judged
            )
            yield [f"{low:g} to {high:g} %", kind, str(len(some)), *_counts(answers)]


def resumes(recipe: str) -> Iterator[list[str]]:
    """A row per resume, honest and with a fault: its true gaps and answers, for three seeds."""
    yield ["resume", "true gaps, %", "by the loss alone", "by all that is recorded"]
    text = corpus()
    saved = [saved_run(spec_of(recipe, seed), text) for seed in FAULTY_SEEDS]
    stated = ComparisonFacts(recipe=recipe, changed=_RESUME)
    for name, resume in {**HONEST_RESUMES, **RESUME_FAULTS}.items():
        gaps, by_loss, by_all = [], [], []
        for one in saved:
            run = resume(one, text)
            gaps.append(f"{_true_gap(one.curve, run):+.2f}")
            by_loss.append(_said([one.curve], _loss_alone(run), stated))
            by_all.append(_said([one.curve], run, stated))
        yield [name, ", ".join(gaps), _together(by_loss), _together(by_all)]


def killed_resumes() -> Iterator[list[str]]:
    """A row per resume of a process that was killed, for three seeds: against the golden of an
    uninterrupted run, and by the steps that the log repeats alone.
    """
    yield ["resume after SIGKILL", "by the loss alone", "by all", "by the repeated steps alone"]
    text = corpus()
    goldens = [trained(spec_of("bf16", seed), text) for seed in FAULTY_SEEDS]
    for fault in killed.FAULTS:
        by_loss, by_all, by_itself = [], [], []
        for seed, golden in zip(FAULTY_SEEDS, goldens, strict=True):
            log, saved = killed.killed_log(seed, fault)
            stated = ComparisonFacts(recipe="bf16", changed=_RESUME, saved=saved)
            by_loss.append(_said([_loss_alone(golden)], killed.loss_alone(log), stated))
            by_all.append(_said([golden], log, stated))
            alone = check_restart(log, RunFacts(recipe="bf16")).words
            by_itself.append(
                alone.answer if alone.answer in FINE else f"{alone.answer} ({alone.line})"
            )
        yield [fault, *map(_together, (by_loss, by_all, by_itself))]


def accumulated() -> Iterator[list[str]]:
    """A row per way to add up the gradients of four parts of a batch, against the whole batch."""
    yield ["gradients of four parts", "true gaps, %", "by the loss alone", "by all"]
    text = corpus()
    for name, scale in (("averaged", 1.0), ("summed", float(PARTS))):
        gaps, by_loss, by_all = [], [], []
        for seed in FAULTY_SEEDS:
            golden = trained(spec_of("bf16", seed), text)
            spec = replace(spec_of("bf16", seed), gradient_accumulation=PARTS)
            with scaled_gradients(scale):
                run = trained(spec, text)
            stated = ComparisonFacts(recipe="bf16")
            gaps.append(f"{_true_gap(golden, run):+.2f}")
            by_loss.append(_said([golden], _loss_alone(run), stated))
            by_all.append(_said([golden], run, stated))
        yield [name, ", ".join(gaps), _together(by_loss), _together(by_all)]


def long_pairs(steps: int, seeds: Sequence[int], sequences: int) -> list[Pair]:
    """Honest pairs of long bf16 runs into which faults are planted; `sequences` are those of a
    batch.
    """
    text = corpus()
    pairs = []
    for seed in seeds:
        spec = spec_of("bf16", seed, steps)
        spec = replace(spec, data=replace(spec.data, batch_size=sequences))
        golden, *runs = (trained(replace(spec, replicate=number), text) for number in range(3))
        pairs += [
            Pair(
                golden=_loss_alone(golden),
                run=_loss_alone(run),
                test=f"seed {seed}",
                family="trained",
                group="rerun",
                part="trained",
                random=False,
                recipe="bf16",
            )
            for run in runs
        ]
    return pairs


_RESUME: Change = "resume"


def _said(goldens: Sequence[Curve], run: Curve, stated: ComparisonFacts) -> str:
    line, _ = judge(goldens, run, stated)
    return line.answer if line.answer in FINE else f"{line.answer} ({line.name})"


def _together(answers: Sequence[str]) -> str:
    """Answers with how often each was given, where they differ."""
    counts = Counter(answers)
    if len(counts) == 1:
        return answers[0]
    return ", ".join(f"{number} {answer}" for answer, number in counts.items())


def _true_gap(golden: Curve, run: Curve) -> float:
    """The difference of the means over the last fifth of the steps that both have, %."""
    steps = np.intersect1d(golden.steps, run.steps)
    late = steps[-max(4, len(steps) // 5) :]
    means = [float(one.loss[np.isin(one.steps, late)].mean()) for one in (golden, run)]
    return 100.0 * (means[1] / means[0] - 1.0)


def _loss_alone(curve: Curve) -> Curve:
    return curve_from_arrays(curve.steps, curve.loss, recipe=curve.recipe)


def _counts(answers: Counter[Answer]) -> list[str]:
    return [str(answers[answer]) for answer in ANSWERS]
