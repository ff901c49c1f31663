import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.noise.contradiction import RunSpread, agreement
from parity.judging.noise.family_spread import FamilyNoise

NOISE = FamilyNoise(
    share=0.0004, df=15.0, estimated_df=30.0, groups=10, runs=100, outliers=(), levels=(2.0, 2.0)
)


def test_without_reruns_the_family_counts_in_full() -> None:
    agreed = agreement(RunSpread(squares=0.0, df=0), NOISE)
    assert (agreed.p, agreed.weight, agreed.ratio, agreed.contradicted) == (1.0, 1.0, None, False)


def test_p_is_the_tail_of_f() -> None:
    from scipy.stats import f

    agreed = agreement(RunSpread(squares=8.0, df=4), NOISE)
    assert agreed.p == pytest.approx(f.sf(2.0, 4, 15.0))
    assert agreed.ratio == pytest.approx(math.sqrt(2.0))


@given(st.integers(1, 20), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_noisier_runs_never_give_the_family_more_weight(df: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    quiet, noisy = (
        agreement(RunSpread(squares=low, df=df), NOISE),
        agreement(RunSpread(squares=high, df=df), NOISE),
    )
    assert noisy.weight <= quiet.weight <= 1.0
    assert noisy.contradicted or not quiet.contradicted


@given(st.integers(1, 20), st.floats(0.01, 50.0))
def test_the_weight_is_continuous(df: int, squares: float) -> None:
    near = agreement(RunSpread(squares=squares * (1 + 1e-9), df=df), NOISE)
    assert near.weight == pytest.approx(
        agreement(RunSpread(squares=squares, df=df), NOISE).weight, abs=1e-6
    )


def test_infinite_spread_leaves_nothing() -> None:
    assert agreement(RunSpread(squares=math.inf, df=3), NOISE).weight == 0.0
