"""The level between families, which a model of no family starts from."""

import math
import statistics

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import digamma, polygamma
from scipy.stats import t as student

from parity.judging.noise.any_decoder import evidence_families, fit_between
from parity.judging.noise.family_spread import MAX_DF
from parity.judging.noise.noise_source import between_families, find_noise_source
from parity.judging.noise.noise_table import COLUMNS, NoiseTable, NoiseTableError, read_noise_table
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import STOCHASTIC_FACTOR
from tests.conftest import some

Table = dict[str, list[tuple[float, int]]]
QUIET: Table = {
    "a": [(3e-4, 12)],
    "b": [(5e-4, 9), (4e-4, 9), (6e-4, 20)],
    "c": [(9e-4, 6), (8e-4, 6)],
    "d": [(4e-4, 30)],
    "e": [(7e-4, 11), (2e-4, 5), (5e-4, 5), (6e-4, 5)],
}
tables = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.lists(
        st.tuples(st.floats(3e-4, 9e-4), st.integers(9, 40)), min_size=1, max_size=5, unique=True
    ),
    min_size=4,
)


def noise_table_of(table: Table, scale: float = 1.0, **columns: str) -> NoiseTable:
    lines = [",".join(COLUMNS)]
    for family, groups in table.items():
        for number, (share, runs) in enumerate(groups):
            cells = {
                "family": family,
                "group": f"g{number}",
                "runs": runs,
                "mean_loss": 2.0,
                "sd": repr(2.0 * scale * share),
                "unit": "nats",
            }
            cells |= {"rounding": "nearest", "start": "scratch", "schedule": "finished"} | columns
            lines.append(",".join(str(cells.get(column, "")) for column in COLUMNS))
    return read_noise_table("\n".join(lines))


def slow_fit(table: Table) -> tuple[float, float]:
    """The formulas of the head, with loops and bisection: share and df for rounding to nearest."""

    def inverse_trigamma(value: float) -> float:
        low, high = 1e-9, 1e12
        for _ in range(400):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if float(polygamma(1, middle)) > value else (low, middle)
        return low

    def family(groups: list[tuple[float, int]]) -> tuple[float, float, float]:
        errors = [float(polygamma(1, (runs - 1) / 2)) for _, runs in groups]
        logs = [
            2 * math.log(share) - float(digamma((runs - 1) / 2)) + math.log((runs - 1) / 2)
            for share, runs in groups
        ]
        within = 0.0
        if len(groups) >= 3:
            centre = statistics.median(logs)
            spread = max(
                0.0,
                (1.482602218505602 * statistics.median(abs(log - centre) for log in logs)) ** 2
                - statistics.median(errors),
            )
            reach = [2.5 * math.sqrt(spread + error) for error in errors]
            logs = [
                min(max(log, centre - far), centre + far)
                for log, far in zip(logs, reach, strict=True)
            ]
            weights = [1 / error / sum(1 / other for other in errors) for error in errors]
            mean = sum(weight * log for weight, log in zip(weights, logs, strict=True))
            above = sum(
                weight * (log - mean) ** 2 - weight * (1 - weight) * error
                for weight, log, error in zip(weights, logs, errors, strict=True)
            )
            within = max(0.0, above / (1 - sum(weight**2 for weight in weights)))
        weights = [1 / (error + within) for error in errors]
        return (
            sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights),
            1 / sum(weights),
            within,
        )

    def between(fitted: list[tuple[float, float, float]]) -> float:
        return max(
            0.0,
            statistics.variance(log for log, _, _ in fitted)
            - statistics.mean(error for _, error, _ in fitted),
        )

    fitted = [family(groups) for groups in table.values()]
    n = len(fitted)
    centre = statistics.median(log for log, _, _ in fitted)
    mad = 1.482602218505602 * statistics.median(abs(log - centre) for log, _, _ in fitted)
    between_all = max(0.0, mad**2 - statistics.median(error for _, error, _ in fitted))
    fitted = [
        (max(log, centre - 2.5 * math.sqrt(between_all + error)), error, w)
        for log, error, w in fitted
    ]
    without = [between(fitted[:index] + fitted[index + 1 :]) for index in range(n)]
    se = math.sqrt((n - 1) / n * sum((one - statistics.mean(without)) ** 2 for one in without))
    logs = [log for log, _, _ in fitted]
    total = (
        between(fitted)
        + student.ppf(0.95, n - 1) * se
        + statistics.median(w for _, _, w in fitted)
        + statistics.variance(logs) / n
    )
    df = min(2 * inverse_trigamma(total), MAX_DF)
    return math.exp((statistics.mean(logs) + float(digamma(df / 2)) - math.log(df / 2)) / 2), df


@settings(max_examples=some(40))
@given(tables)
def test_it_is_the_slow_formula(table: Table) -> None:
    share, df = slow_fit(table)
    assume(df > 1.5)
    noise = fit_between(noise_table_of(table), "nearest")
    assert (noise.share, noise.df) == pytest.approx((share, df), rel=1e-4)


@settings(max_examples=some(40))
@given(tables, st.floats(0.1, 10.0))
def test_noisier_families_throughout_have_noise_that_is_wider_by_as_much(
    table: Table, scale: float
) -> None:
    assume(slow_fit(table)[1] > 1.5)
    noise, scaled = (
        fit_between(noise_table_of(table, factor), "nearest") for factor in (1.0, scale)
    )
    assert (scaled.share, scaled.df) == pytest.approx((scale * noise.share, noise.df), rel=1e-6)


def test_stochastic_rounding_widens_and_the_number_of_families_is_said() -> None:
    nearest, stochastic = (
        fit_between(noise_table_of(QUIET), rounding) for rounding in ("nearest", "stochastic")
    )
    assert stochastic.share == STOCHASTIC_FACTOR * nearest.share
    assert (nearest.families, nearest.groups, nearest.runs) == (5, 11, 118)
    assert nearest.is_near(0.01)
    assert nearest.is_near(12.0)


@pytest.mark.parametrize(
    "columns",
    [
        {"schedule": "decaying"},
        {"schedule": ""},
        {"start": "checkpoint"},
        {"start": ""},
        {"rounding": "stochastic"},
        {"rounding": ""},
    ],
)
def test_groups_of_another_class_do_not_count(columns: dict[str, str]) -> None:
    other = noise_table_of({"z": [(0.02, 30)] * 3}, **columns)
    both = NoiseTable(noise_table_of(QUIET).rows + other.rows)
    assert [family.name for family in evidence_families(both)] == list(QUIET)
    assert fit_between(both, "nearest") == fit_between(noise_table_of(QUIET), "nearest")


def test_a_family_of_few_degrees_of_freedom_or_with_a_bad_row_does_not_count() -> None:
    names = [
        family.name
        for family in evidence_families(
            noise_table_of(
                {**QUIET, "few": [(1e-3, 5), (1e-3, 4)], "bad": [(1e-3, 30), (-1.0, 30)]}
            )
        )
    ]
    assert names == list(QUIET)


def test_too_few_families_are_not_usable() -> None:
    three = noise_table_of({name: QUIET[name] for name in "abc"})
    with pytest.raises(ValueError, match="3 families"):
        fit_between(three, "nearest")
    noise_source = find_noise_source(three, "any-decoder", "nearest")
    assert noise_source.noise is None
    assert "at least 4" in noise_source.refused
    assert not between_families(noise_source, noise_source)


def test_no_family_may_have_its_name() -> None:
    with pytest.raises(NoiseTableError, match="any-decoder"):
        noise_table_of({"any-decoder": [(1e-3, 9)]})


@pytest.mark.parametrize(("column", "word"), [("start", "fresh"), ("schedule", "done")])
def test_an_unknown_word_makes_the_family_unusable(column: str, word: str) -> None:
    (problem, *_) = noise_table_of(QUIET, **{column: word}).families["a"].problems
    assert f"{column} is '{word}'" in problem


def test_of_the_public_table_seven_families_count() -> None:
    families = evidence_families(public_noise_table())
    assert [round(100 * family.share, 3) for family in families] == [
        0.070,
        0.053,
        0.061,
        0.086,
        0.040,
        0.034,
        0.028,
    ]
    assert all(low < family.share < high for family in families for low, high in [family.interval])


@pytest.mark.parametrize("sd", [3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-8])
def test_a_family_of_nearly_equal_reruns_does_not_narrow_the_level(sd: float) -> None:
    usual = fit_between(public_noise_table(), "nearest")
    quiet = noise_table_of({"quiet": [(sd, 10), (1.1 * sd, 10), (0.9 * sd, 10)]})
    noise_source = find_noise_source(
        NoiseTable(public_noise_table().rows + quiet.rows), "any-decoder", "nearest"
    )
    reach = (
        student.ppf(0.975, noise_source.noise.df) * noise_source.noise.share
        if noise_source.noise
        else math.inf
    )
    assert reach >= 0.9 * student.ppf(0.975, usual.df) * usual.share


def test_families_that_differ_by_orders_of_magnitude_are_not_usable() -> None:
    shares = (1e-3, 1e-5, 1e-7, 1e-8)
    noise_table = noise_table_of(
        {name: [(share, 30)] for name, share in zip("abcd", shares, strict=True)}
    )
    noise_source = find_noise_source(noise_table, "any-decoder", "nearest")
    assert noise_source.noise is None
    assert "differ too much" in noise_source.refused
