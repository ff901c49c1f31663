"""Documents with a known truth: training verdicts of each kind, and comparisons of evaluations of
13 points a run, a falling loss, runs that differ by an offset.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.path import with_evaluation_paths
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
STEPS = np.arange(1, 14) * 12_288


def evaluated(name: str, number: int, gap: float, systems: int) -> Curve:
    """One run of an arm: a power law, an offset of its own, a fifth as much noise, and the offset
    of its system.
    """
    rng = np.random.default_rng((len(name), number, 7))
    system = number % systems
    offset = 0.006 * rng.normal() + 0.004 * (-1) ** system
    loss = 2.5 + 60.0 * STEPS**-0.36 + gap + offset + 0.002 * rng.normal(size=len(STEPS))
    return curve_from_arrays(
        STEPS,
        loss,
        label=f"{name}-{number}",
        seed=number,
        recipe=name,
        context={"system": f"maker/{name}-{system}", "hall": name},
    )


@pytest.fixture
def compared() -> Callable[..., EvaluationDocument]:
    """A function that compares runs of fp8_current with runs of nvfp4: how many of each, the gap,
    how the candidate's runs are changed, whether the document has its path, and options of the
    case.
    """

    def compare(
        runs: tuple[int, int] = (6, 8),
        gap: float = 0.027,
        timed: bool = False,
        names: tuple[str, str] = ("FP8", "NVFP4"),
        change: Callable[[Curve], Curve] = lambda run: run,
        margin: str = "1 %",
        has_path: bool = False,
        **options: object,
    ) -> EvaluationDocument:
        arms = [
            [evaluated(recipe, number, own, systems) for number in range(count)]
            for recipe, count, own, systems in (
                ("fp8_current", runs[0], 0.0, 2),
                ("nvfp4", runs[1], gap, 4),
            )
        ]
        times = [
            RunTimes(
                arm=name,
                run=run.label,
                hardware="8 boards" if int(run.seed) % 2 else "4 boards",
                step_seconds=pace + 1e-4 * int(run.seed),
                seconds_to_target=60.0 * (pace * 2_700 + int(run.seed)),
            )
            for name, arm, pace in zip(names, arms, (0.035, 0.029), strict=True)
            for run in arm
        ]
        case = EvaluationCase(
            baseline=arms[0],
            candidates={names[1]: [change(run) for run in arms[1]]},
            policy=policy_from_mapping({"schedule": "decayed", "margin": margin}),
            baseline_name=names[0],
            times=times if timed else (),
            **options,  # type: ignore[arg-type]
        )
        documents = case.documents()
        return with_evaluation_paths(case, documents)[0] if has_path else documents[0]

    return compare


@pytest.fixture
def documents(make_run: MakeRun, judge_pair: JudgePair) -> dict[str, Any]:
    """A training verdict of each kind, by name."""
    base = [make_run(seed=1, recipe="fp8_current"), make_run(seed=9, recipe="fp8_current")]

    def document(cand: list[Curve], **options: object) -> dict[str, Any]:
        return dict(judge_pair(base, cand, baseline_name="FP8", **options).document())

    return {
        "pass": document([make_run(seed=2), make_run(seed=3)]),
        "fail": document([make_run(seed=2, gap=0.05), make_run(seed=3, gap=0.05)]),
        "straddle": document([make_run(seed=2, gap=0.0265), make_run(seed=3, gap=0.0265)]),
        "nan": document([curve_from_arrays(range(2000), [float("nan")] * 2000)]),
        "empty": document([curve_from_arrays([], [])]),
        "better": document([make_run(seed=2, gap=-0.08), make_run(seed=3, gap=-0.08)]),
    }
