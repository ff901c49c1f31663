"""The path of a verdict: its last point is the verdict, its noise the verdict's, and no verdict
makes it fail.
"""

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.canonical_json import canonical_json
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import PathPointDocument, VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import POINTS_TO_FAIL, policy_from_mapping
from parity.judging.verdict.path import FEWEST, POINTS, evaluation_path_of, path_of, some_of
from parity.judging.verdict.sign_offs import sha256_of
from parity.judging.verdict.verdict import Verdict, judge
from tests.conftest import some

MakeRun = Callable[..., Curve]
POLICY = {"schedule": "decayed", "margin": "1.0%"}


def ends(point: PathPointDocument) -> tuple[float, float, float]:
    return point["mean"], point["lo"], point["hi"]


def check(verdict: Verdict, document: VerdictDocument) -> list[PathPointDocument]:
    """The path of a verdict, after all that holds for every path."""
    path = path_of(verdict)
    json.dumps(path, allow_nan=False)
    gap = document["gap"]
    if gap is None or document["window"]["n"] < POINTS_TO_FAIL:
        assert path == []
        return path
    assert ends(path[-1]) == (gap["mean"], gap["lo"], gap["hi"])
    steps = [point["step"] for point in path]
    assert steps == sorted(set(steps))
    assert len(path) <= POINTS
    assert document["window"]["first"] <= steps[-1] <= document["window"]["last"]
    return path


@pytest.mark.parametrize("gap", [0.0, 0.04])
@pytest.mark.parametrize("points", [300, 1500])
def test_a_point_is_the_verdict_on_the_cut_runs_with_the_noise_of_the_whole(
    make_run: MakeRun, gap: float, points: int
) -> None:
    base, cand = make_run(points), make_run(points, seed=2, gap=gap)
    (verdict,) = judge([base], {"c": [cand]}, policy_from_mapping(POLICY), planned_steps=points)
    document = verdict.document()
    share = document["tau"]["baseline"]["rel"]  # type: ignore[index]
    stated = policy_from_mapping(
        {
            **POLICY,
            **dict.fromkeys(("baseline_run_noise", "candidate_run_noise"), f"{100 * share:.17g}%"),
        }
    )
    path = check(verdict, document)
    assert len(path) == POINTS
    for point in path[::6]:
        end = point["step"] + 1
        first, second = (
            curve_from_arrays(run.steps[:end], run.loss[:end], rounding="nearest")
            for run in (base, cand)
        )
        again = judge([first], {"c": [second]}, stated, planned_steps=points)[0].document()["gap"]
        assert again is not None
        assert ends(point) == pytest.approx((again["mean"], again["lo"], again["hi"]), abs=1e-9)


def test_the_window_is_the_decay_phase_where_the_rate_decays_inside_it(make_run: MakeRun) -> None:
    rate = np.minimum(1.0, np.linspace(10.0, 0.0, 2000))
    runs = [
        curve_from_arrays(run.steps, run.loss, columns={"learning_rate": rate})
        for run in (make_run(), make_run(seed=2, gap=0.01))
    ]
    (verdict,) = judge(
        [runs[0]], {"c": [runs[1]]}, policy_from_mapping({"margin": "1%"}), planned_steps=2000
    )
    document = verdict.document()
    assert "decay phase" in document["window"]["rule"]
    path = check(verdict, document)
    late = next(point for point in path if point["step"] > 1900)
    first = int(np.argmax(rate < 0.999))
    part = slice(first, late["step"] + 1)
    assert late["mean"] == pytest.approx(
        float((runs[1].loss - runs[0].loss)[part].mean()), abs=1e-9
    )


def of_seeds(
    make_run: MakeRun, number: int, gap: float, first: int, points: int = 1500
) -> list[Curve]:
    return [
        dataclasses.replace(
            make_run(points, seed=first + seed, batch_seed=seed, gap=gap, offset_sd=0.002),
            seed=seed,
        )
        for seed in range(number)
    ]


@pytest.mark.parametrize("pairing", ["paired", "unpaired"])
@pytest.mark.parametrize("number", [2, 5])
def test_the_run_noise_is_that_of_the_verdict_at_every_point(
    make_run: MakeRun, number: int, pairing: str
) -> None:
    policy = policy_from_mapping({**POLICY, "pairing": pairing})
    (verdict,) = judge(
        of_seeds(make_run, number, 0.0, 10),
        {"c": of_seeds(make_run, number, 0.01, 30)},
        policy,
        planned_steps=1500,
    )
    document = verdict.document()
    path = check(verdict, document)
    run = document["se_parts"]["run"] * 2.0  # type: ignore[index]
    for point in path[len(path) // 2 :]:  # the loss falls by a few percent there
        assert point["hi"] - point["lo"] > run
        widths = [each["hi"] - each["lo"] for each in (point, path[-1])]
        assert widths[0] / widths[1] == pytest.approx(1.0, abs=0.25 if pairing == "paired" else 0.6)


def test_one_broken_run_makes_no_jump_at_the_end(make_run: MakeRun) -> None:
    """The ends that capping runs gives, too, are on the way what they are at the end."""
    cand = of_seeds(make_run, 4, 0.0, 30)
    cand[0] = dataclasses.replace(cand[0], loss=cand[0].loss + 0.2)
    (verdict,) = judge(
        of_seeds(make_run, 4, 0.0, 10), {"c": cand}, policy_from_mapping(POLICY), planned_steps=1500
    )
    path = check(verdict, verdict.document())
    assert ends(path[-2]) == pytest.approx(ends(path[-1]), abs=0.004)
    document = verdict.document()
    plain = verdict.measurements.statistics.interval.half_width(*verdict.measurements.levels)  # type: ignore[union-attr]
    assert document["gap"]["mean"] - document["gap"]["lo"] < plain  # type: ignore[index]


def test_a_verdict_without_a_gap_or_with_a_handful_of_points_has_none(make_run: MakeRun) -> None:
    for points in (0, 1, 7, 30):
        short = [
            curve_from_arrays(run.steps[:points], run.loss[:points])
            for run in (make_run(), make_run(seed=2))
        ]
        (verdict,) = judge(
            [short[0]], {"c": [short[1]]}, policy_from_mapping(POLICY), assume_complete=True
        )
        assert check(verdict, verdict.document()) == []


def test_as_many_points_as_there_are(make_run: MakeRun) -> None:
    (verdict,) = judge(
        [make_run(60)], {"c": [make_run(60, seed=2)]}, policy_from_mapping(POLICY), planned_steps=60
    )
    assert [point["step"] for point in check(verdict, verdict.document())] == list(range(37, 60))


@given(st.lists(st.integers(0, 2**53), min_size=1, max_size=300, unique=True).map(sorted))
def test_some_steps_have_both_ends_and_are_enough(steps: list[int]) -> None:
    chosen = some_of(np.array(steps)).tolist()
    assert set(chosen) <= set(steps)
    assert chosen == sorted(set(chosen))
    assert min(len(steps), FEWEST) <= len(chosen) <= POINTS + 1
    assert chosen[-1] == steps[-1]


def test_an_uneven_log_is_thinned_by_number() -> None:
    steps = np.append(np.arange(200), [10_000, 10**6])
    assert len(some_of(steps)) >= FEWEST


losses = st.one_of(
    st.floats(-5, 50),
    st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, 1e300, -1e300, 1e6]),
)
series = st.lists(st.tuples(st.integers(0, 300), losses), max_size=300)
run_sets = st.lists(
    st.tuples(series, st.one_of(st.none(), st.integers(0, 2))), min_size=1, max_size=3
)


@settings(max_examples=some(120), deadline=None)
@given(
    run_sets,
    run_sets,
    st.one_of(st.none(), st.integers(1, 400)),
    st.sampled_from(["paired", "unpaired"]),
)
def test_no_verdict_makes_its_path_fail(base, cand, planned: int | None, pairing: str) -> None:
    """Hostile logs: NaN, steps out of order and twice, gaps, one point, other lengths, no seeds, no
    common step.
    """
    arms = [
        [
            curve_from_arrays(
                [step for step, _ in rows],
                [loss for _, loss in rows],
                seed=seed,
                rounding="nearest",
            )
            for rows, seed in arm
        ]
        for arm in (base, cand)
    ]
    policy = policy_from_mapping({**POLICY, "pairing": pairing})
    for controls, noise in (((), None), (arms[0][:1], {"c": arms[1][:2]})):
        (verdict,) = judge(
            arms[0],
            {"c": arms[1]},
            policy,
            planned_steps=planned,
            controls=controls,
            short_reruns=noise,
        )
        check(verdict, verdict.document())


@settings(max_examples=some(60), deadline=None)
@given(st.data())
def test_no_plausible_verdict_makes_its_path_fail(make_run: MakeRun, data: st.DataObject) -> None:
    """Runs as trainings log them, damaged: these have a gap, so the whole way is computed."""
    points = data.draw(st.sampled_from([40, 90, 260, 700]))

    def run(seed: int, arm: int) -> Curve:
        whole = make_run(points, seed=10 * arm + seed, batch_seed=seed, gap=0.01 * arm)
        keep = slice(
            data.draw(st.integers(0, points // 10)),
            data.draw(st.integers(points // 2, points)),
            data.draw(st.integers(1, 3)),
        )
        steps, loss = whole.steps[keep], whole.loss[keep].copy()
        for at in data.draw(st.lists(st.integers(0, len(loss) - 1), max_size=4)):
            loss[at] = data.draw(st.sampled_from([np.nan, np.inf, 9.0, 1e5, -1.0, 0.0]))
        if data.draw(st.booleans()):  # a rollback
            back = len(steps) // 2
            steps, loss = (
                np.append(steps, steps[back : back + 5]),
                np.append(loss, loss[back : back + 5] + 1.0),
            )
        return curve_from_arrays(
            steps, loss, seed=data.draw(st.sampled_from([None, seed])), rounding="nearest"
        )

    arms = [[run(seed, arm) for seed in range(data.draw(st.integers(1, 3)))] for arm in (0, 1)]
    policy = policy_from_mapping(
        {**POLICY, "pairing": data.draw(st.sampled_from(["paired", "unpaired"]))}
    )
    (verdict,) = judge(arms[0], {"c": arms[1]}, policy, planned_steps=points)
    check(verdict, verdict.document())


def test_a_digest_and_a_bundle_are_the_same_with_and_without_a_path(make_run: MakeRun) -> None:
    case = Case(
        baseline=[make_run(500)],
        candidates={"c": [make_run(500, seed=2)]},
        policy=policy_from_mapping(POLICY),
        planned_steps=500,
        baseline_name="b",
    )
    (verdict,) = case.verdicts()
    (document,) = case.documents()
    assert "path" not in document
    shown: VerdictDocument = {**document, "path": path_of(verdict), "chances": None}
    assert sha256_of(json.loads(canonical_json(shown))) == sha256_of(document)
    assert bundle_bytes(case, [shown]) == bundle_bytes(case, [document])
    changed: VerdictDocument = {**shown, "profile": "another"}
    assert sha256_of(changed) != sha256_of(document)


STEPS = np.arange(1, 31) * 100
SYSTEMS = "abcd"


def evaluated(seed: int, runs: int, gap: float = 0.0, points: int = 30) -> list[Curve]:
    rng = np.random.default_rng(seed)
    law = 3.0 + 2.0 * np.exp(-STEPS[:points] / 800.0)
    return [
        curve_from_arrays(
            STEPS[:points],
            law + gap + rng.normal(0, 0.004) + rng.normal(0, 0.001, points),
            label=f"{seed}-{number}",
            seed=number,
            context={"system": SYSTEMS[number % 4]},
        )
        for number in range(runs)
    ]


def comparison(base: list[Curve], cand: list[Curve], **asked: object) -> EvaluationCase:
    return EvaluationCase(
        baseline=base,
        candidates={"c": cand},
        policy=policy_from_mapping(POLICY),
        baseline_name="b",
        planned_steps=3000,
        **asked,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"paired": True},
        {"cluster": "system"},
        {"at": (3000,)},
        {"at": (2900, 3000)},
        {"at": (2000,)},
    ],
)
@pytest.mark.parametrize("runs", [(1, 1), (4, 1), (6, 8)])
def test_the_path_of_evaluations_ends_in_the_gaps_of_the_document(
    asked: dict[str, object], runs: tuple[int, int]
) -> None:
    case = comparison(evaluated(1, runs[0]), evaluated(2, runs[1], 0.02), **asked)
    gap = case.documents()[0]["gap"]
    path = evaluation_path_of(case, "c")
    for key in ("over_runs", "over_clusters"):
        own, points = gap[key], path[key]  # type: ignore[literal-required]
        if own is None:
            assert points == []
            continue
        assert ends(points[-1]) == (own["mean"], own["lo"], own["hi"])
        last = max(asked.get("at", (3000,)))  # type: ignore[type-var, call-overload]
        assert [point["step"] for point in points] == [
            step for step in STEPS.tolist() if step <= last
        ]
    assert path["over_runs"]


def test_a_point_of_evaluations_is_the_gap_there_with_the_noise_of_the_verdict() -> None:
    base, cand = evaluated(1, 6), evaluated(2, 8, 0.02)
    case = comparison(base, cand, at=(3000,))
    document = case.documents()[0]["gap"]["over_runs"]
    assert document is not None
    point = evaluation_path_of(case, "c")["over_runs"][9]
    level = np.mean([run.loss[9] for run in base])
    assert point["step"] == STEPS[9]
    assert point["mean"] == pytest.approx(np.mean([run.loss[9] for run in cand]) - level, abs=1e-12)
    share = level / np.mean([run.loss[-1] for run in base])
    plain = (case.measured("c")[0].over_runs or pytest.fail("no gap")).half_width(0.95)
    assert max(point["hi"] - point["mean"], point["mean"] - point["lo"]) <= share * plain + 1e-9
    assert point["hi"] - point["lo"] == pytest.approx(
        share * (document["hi"] - document["lo"]), rel=0.4
    )


evaluations = st.lists(
    st.tuples(st.integers(0, 60), losses.filter(lambda loss: not 0.0 < abs(loss) < 1e-6)),
    max_size=40,
)
evaluated_sets = st.lists(
    st.tuples(evaluations, st.one_of(st.none(), st.integers(0, 2))), min_size=1, max_size=3
)


@settings(max_examples=some(60), deadline=None)
@given(
    evaluated_sets,
    evaluated_sets,
    st.booleans(),
    st.sampled_from([None, "system"]),
    st.sampled_from(["1%", "0.01 nats"]),
)
def test_no_comparison_of_evaluations_makes_its_path_fail(
    base, cand, paired: bool, cluster: str | None, margin: str
) -> None:
    arms = [
        [
            curve_from_arrays(
                [s for s, _ in rows],
                [loss for _, loss in rows],
                seed=seed,
                label=str(n),
                context={"system": SYSTEMS[n]},
            )
            for n, (rows, seed) in enumerate(arm)
        ]
        for arm in (base, cand)
    ]
    case = EvaluationCase(
        baseline=arms[0],
        candidates={"c": arms[1]},
        policy=policy_from_mapping({"margin": margin}),
        baseline_name="b",
        paired=paired,
        cluster=cluster,
    )
    (document,) = case.documents()
    path = evaluation_path_of(case, "c")
    json.dumps(path, allow_nan=False)
    for key in ("over_runs", "over_clusters"):
        own, points = document["gap"][key], path[key]  # type: ignore[literal-required]
        if points:
            assert ends(points[-1]) == (own["mean"], own["lo"], own["hi"])
        else:
            assert own is None or not all(np.isfinite(float(own[end])) for end in ("lo", "hi"))
