from collections.abc import Callable

import pytest

from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import (
    COLUMNS,
    MAX_GROUPS,
    NoiseTable,
    NoiseTableError,
    read_noise_table,
)
from parity.judging.noise.public_table import public_noise_table

MakeTable = Callable[..., NoiseTable]
GOOD = [("a", 5, 0.001), ("b", 5, 0.0012), ("c", 6, 0.0009)]


def test_a_good_table(make_table: MakeTable) -> None:
    family = make_table(GOOD).families["f"]
    assert [(group.group, group.runs, group.df, group.share) for group in family.groups] == [
        ("a", 5, 4, 0.0005),
        ("b", 5, 4, 0.0006),
        ("c", 6, 5, 0.00045),
    ]
    assert (family.bit_equal, family.problems) == ((), ())


@pytest.mark.parametrize(
    ("row", "columns", "words"),
    [
        (("x", 5, -0.001), {}, ("sd", "'-0.001'")),
        (("x", 5, "nan"), {}, ("sd", "'nan'")),
        (("x", 5, "inf"), {}, ("sd", "'inf'")),
        (("x", 5, "1_0"), {}, ("sd", "'1_0'")),
        (("x", 5, ""), {}, ("sd", "''")),
        (("x", 5, 0.3), {}, ("sd", "tenth")),
        (("x", 1, 0.001), {}, ("runs", "'1'")),
        (("x", 2.5, 0.001), {}, ("runs", "'2.5'")),
        (("x", "nan", 0.001), {}, ("runs", "'nan'")),
        (("x", 5, 0.001), {"mean_loss": "0"}, ("mean_loss", "'0'")),
        (("x", 5, 0.001), {"unit": "bits"}, ("unit", "'bits'")),
        (("x", 5, 0.001), {"rounding": "up"}, ("rounding", "'up'")),
        (("", 5, 0.001), {}, ("name",)),
        (("a", 5, 0.002), {}, ("two rows", "'a'")),
    ],
)
def test_one_bad_row_makes_its_family_unusable_and_is_one_line(
    make_table: MakeTable, row: tuple[object, ...], columns: dict[str, str], words: tuple[str, ...]
) -> None:
    noise_table = NoiseTable((*make_table(GOOD).rows, *make_table([row], **columns).rows))
    (problem,) = noise_table.families["f"].problems
    assert all(word in problem for word in words)
    assert "\n" not in problem
    noise_source = find_noise_source(noise_table, "f", "nearest")
    assert noise_source.noise is None
    assert problem in noise_source.refused


def test_a_row_that_is_repeated_counts_once(make_table: MakeTable) -> None:
    twice = NoiseTable(make_table(GOOD).rows * 2)
    assert twice.families["f"] == make_table(GOOD).families["f"]


def test_reruns_equal_bit_for_bit_are_no_group(make_table: MakeTable) -> None:
    family = make_table([*GOOD, ("same", 8, 0)]).families["f"]
    assert family.bit_equal == ("same",)
    assert [group.group for group in family.groups] == ["a", "b", "c"]
    noise_source = find_noise_source(make_table([*GOOD, ("same", 8, 0)]), "f", "nearest")
    assert noise_source.bit_equal == 1
    assert noise_source.noise == find_noise_source(make_table(GOOD), "f", "nearest").noise


def test_a_family_of_zero_variance_is_not_usable(make_table: MakeTable) -> None:
    noise_source = find_noise_source(make_table([("a", 5, 0), ("b", 9, 0.0)]), "f", "nearest")
    assert noise_source.noise is None
    assert "bit for bit" in noise_source.refused


@pytest.mark.parametrize(
    ("name", "rounding", "rows", "word"),
    [
        ("g", "nearest", GOOD, "no family"),
        ("f", "stochastic", GOOD, "stochastic rounding"),
        ("f", "nearest", GOOD[:1], "1 usable group;"),
        ("f", "nearest", [("a", 2, 0.001), ("b", 3, 0.001), ("c", 3, 0.002)], "5 degrees"),
        ("f", "nearest", [("a", 5, 1e-6), ("b", 5, 1e-3), ("c", 5, 1e-1)], "too little"),
    ],
)
def test_what_is_not_usable_says_why(
    make_table: MakeTable, name: str, rounding: str, rows: list[tuple[object, ...]], word: str
) -> None:
    noise_source = find_noise_source(make_table(rows), name, rounding)
    assert noise_source.noise is None
    assert word in noise_source.refused


def test_a_group_whose_rounding_is_not_stated_is_not_used(make_table: MakeTable) -> None:
    noise_table = make_table(GOOD, rounding="")
    assert not noise_table.families["f"].problems
    assert {
        find_noise_source(noise_table, "f", rounding).noise
        for rounding in ("nearest", "stochastic")
    } == {None}


def test_both_published_shapes_are_read() -> None:
    old = "family,group,runs,steps,mean_loss_nats,sd_nats,corr_with_final_at_25,corr_50,corr_75,corr_90\nf,a,5,10,2.0,0.001,,,,\n"  # noqa: E501
    new = "family,params_millions,tokens_millions,precision,varies,group,runs,mean_loss,sd,unit,source,licence\n"  # noqa: E501
    new += "f,1,2,BF16,seed,a,5,2.0,0.001,nats,s,MIT\n"
    assert (
        read_noise_table(old).families["f"].groups[0].sd
        == read_noise_table(new).families["f"].groups[0].sd
        == 0.001
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no row"),
        ("family,group,runs,mean_loss,sd\n", "no row"),
        ("family,group,runs,mean_loss\nf,a,5,2.0\n", "no column sd"),
        ("family,group,runs,mean_loss,sd,std\nf,a,5,2.0,0.1,1\n", "'std'"),
        ("family,group,runs,mean_loss,sd,sd_nats\nf,a,5,2.0,0.1,1\n", "sd 2 times"),
        ("family,group,runs,mean_loss,sd\nf,a,5,2.0\n", "4 cells"),
        ("family,group,runs,mean_loss,sd\n,a,5,2.0,0.1\n", "family ''"),
        ('family,group,runs,mean_loss,sd\n"f\nx",a,5,2.0,0.1\n', "printable"),
        ('family,group,runs,mean_loss,sd\n"f"x,a,5,2.0,0.1\n', "CSV"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(text: str, word: str) -> None:
    with pytest.raises(NoiseTableError) as error:
        read_noise_table(text)
    assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_too_many_groups_are_refused(make_table: MakeTable) -> None:
    noise_table = make_table([(f"g{number}", 5, 0.001) for number in range(MAX_GROUPS + 1)])
    assert find_noise_source(noise_table, "f", "nearest").noise is None


def test_a_table_survives_its_csv_and_a_selection(make_table: MakeTable) -> None:
    noise_table = make_table([*GOOD, ("comma and \u00e9", 5, 0.001)], varies='"a, b"')
    assert read_noise_table(noise_table.csv()) == noise_table
    assert noise_table.only({"f"}) == noise_table
    assert noise_table.only({"g"}).rows == ()
    assert noise_table.csv().splitlines()[0] == ",".join(COLUMNS)


def test_the_public_table_is_usable_and_every_row_has_source_and_licence() -> None:
    families = public_noise_table().families
    groups = [group for family in families.values() for group in family.groups]
    assert (len(families), len(groups), sum(group.runs for group in groups)) == (24, 339, 3873)
    assert all(group.source and group.licence and group.start for group in groups)
    assert not any(family.problems or family.bit_equal for family in families.values())
