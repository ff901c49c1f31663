"""What a family must have to be usable, and at which p the own runs take how much of it back."""

import math

import pytest
from scipy.stats import f as fisher

from parity.judging.noise.any_decoder import fit_between
from parity.judging.noise.contradiction import RunSpread, agreement
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import NoiseTable, read_noise_table

NOISE = FamilyNoise(
    share=0.001,
    df=6.0,
    estimated_df=6.0,
    groups=4,
    runs=20,
    outliers=(),
    levels=None,
)


def ratio_at(p: float, df: float) -> float:
    """The ratio of variances that the family exceeds with this probability."""
    return float(fisher.isf(p, df, NOISE.df))


@pytest.mark.parametrize(
    ("p", "weight"), [(0.9, 1.0), (0.201, 1.0), (0.199, 0.995), (0.1, 0.5), (0.01, 0.05)]
)
def test_a_family_counts_in_full_from_a_p_of_a_fifth_on(p: float, weight: float) -> None:
    made = agreement(RunSpread(squares=4.0 * ratio_at(p, 4.0), df=4.0), NOISE)
    assert made.p == pytest.approx(p, rel=1e-6)
    assert made.weight == pytest.approx(weight, rel=1e-6)


@pytest.mark.parametrize(("p", "named"), [(0.0501, False), (0.0499, True)])
def test_a_family_is_contradicted_below_a_p_of_a_twentieth(p: float, named: bool) -> None:
    made = agreement(RunSpread(squares=4.0 * ratio_at(p, 4.0), df=4.0), NOISE)
    assert made.contradicted == named


def test_without_own_reruns_nothing_contradicts() -> None:
    made = agreement(RunSpread(squares=0.0, df=0), NOISE)
    assert (made.p, made.weight, made.ratio) == (1.0, 1.0, None)
    assert agreement(RunSpread(squares=math.inf, df=2), NOISE).weight == 0.0


@pytest.mark.parametrize(("share", "usable"), [(0.99e-4, False), (1.01e-4, True)])
def test_a_family_is_usable_from_a_hundredth_of_a_percent_of_the_loss_on(
    share: float, usable: bool
) -> None:
    """The noise of groups of one spread is that spread."""
    lines = ["family,group,runs,mean_loss,sd,unit,rounding"]
    for number in range(30):
        level = 2.0 + 0.001 * number
        lines.append(f"f,g{number},200,{level!r},{share * level!r},nats,nearest")
    noise_source = find_noise_source(read_noise_table("\n".join(lines)), "f", "nearest")
    assert (noise_source.noise is not None) == usable, noise_source.refused
    assert not usable or noise_source.noise.share == pytest.approx(share, rel=0.01)


def families(number: int, spread: float = 1.0) -> NoiseTable:
    """Families of one group of 9 runs each, whose noise differs by so many times from one to the
    next."""
    lines = ["family,group,runs,mean_loss,sd,unit,rounding,start,schedule"]
    for one in range(number):
        sd = 2.0 * 5e-4 * spread ** (one - (number - 1) / 2)
        lines.append(f"f{one},g,9,2.0,{sd!r},nats,nearest,scratch,finished")
    return read_noise_table("\n".join(lines))


@pytest.mark.parametrize(("number", "fits"), [(3, False), (4, True)])
def test_the_level_between_families_needs_four(number: int, fits: bool) -> None:
    table = families(number)
    if fits:
        assert fit_between(table, "nearest").families == 4
    else:
        with pytest.raises(ValueError, match="at least 4"):
            fit_between(table, "nearest")


def test_families_that_differ_too_much_are_not_usable() -> None:
    """Below one and a half degrees of freedom."""
    borrowed, refused = [], []
    for spread in (1.38, 1.39, 1.40, 1.41, 1.42, 1.43, 1.44):
        try:
            borrowed.append(fit_between(families(5, spread), "nearest").df)
        except ValueError as error:
            refused.append(float(str(error).partition("(")[2].partition(" ")[0]))
    assert 1.5 <= min(borrowed) < 1.56
    assert 1.44 < max(refused) <= 1.5
