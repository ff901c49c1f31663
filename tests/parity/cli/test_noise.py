"""Run-to-run noise that `compare` borrows from a noise table, and the commands that show such
tables.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.judging.noise.public_table import public_noise_table
from tests.parity.cli.schemas import check

Run = Callable[..., tuple[int, str, str]]
TRACK3 = "modded-nanogpt-124M/track3"
HEAD = "family,group,runs,mean_loss,sd,unit,rounding"
ROWS = [f"tiny,g{number},8,1.4,{0.0006 + 0.0001 * number},nats,nearest" for number in range(5)]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    def write(*rows: str) -> str:
        path = tmp_path / "noise.csv"
        path.write_text("\n".join([HEAD, *(rows or ROWS)]) + "\n")
        return str(path)

    return write


@pytest.fixture
def compare(files: dict[str, str], run: Run) -> Callable[..., tuple[int, str, str]]:
    def call(*options: str) -> tuple[int, str, str]:
        pair = (
            "fp8=" + files["fp8"],
            "mxfp8=" + files["mxfp8"],
            "--recipe",
            "fp8=fp8",
            "--recipe",
            "mxfp8=mxfp8",
        )
        return run("compare", *pair, "--planned-steps", "1500", "--schedule", "decayed", *options)

    return call


def test_a_family_of_a_table_gives_the_run_noise(
    compare: Run, run: Run, table: Callable[..., str], tmp_path: Path
) -> None:
    bundle = str(tmp_path / "out.zip")
    code, out, _ = compare(
        "--family", "tiny", "--noise-table", table(), "--bundle", bundle, "--json"
    )
    document = json.loads(out)["verdicts"][0]
    assert code == 0
    assert "RUN_NOISE_BORROWED" in document["codes"]
    assert document["tau"]["baseline"]["borrowed"]["family"] == "tiny"
    assert run("verify", bundle)[0] == 0


def test_the_text_says_that_run_noise_is_borrowed(compare: Run, table: Callable[..., str]) -> None:
    _, out, _ = compare("--family", "tiny", "--noise-table", table())
    assert "Run-to-run noise Borrowed: " in " ".join(out.split())


def test_the_public_table_is_used_for_models_like_its_own_alone(compare: Run) -> None:
    document = json.loads(compare("--family", TRACK3, "--json")[1])["verdicts"][0]
    assert "FAMILY_UNUSED" in document["codes"]
    assert "3.27" in next(
        reason["sentence"] for reason in document["reasons"] if reason["code"] == "FAMILY_UNUSED"
    )


def test_a_family_for_one_arm(compare: Run, table: Callable[..., str]) -> None:
    document = json.loads(compare("--family", "mxfp8=tiny", "--noise-table", table(), "--json")[1])[
        "verdicts"
    ][0]
    assert "borrowed" not in document["tau"]["baseline"]
    assert document["tau"]["candidate"]["borrowed"]["groups"] == 5


@pytest.mark.parametrize(
    ("rows", "family"),
    [([*ROWS, "tiny,bad,4,1.4,-1,nats,nearest"], "tiny"), (ROWS[:1], "tiny")],
)
def test_a_family_without_use_is_named_and_the_verdict_stands(
    compare: Run, table: Callable[..., str], rows: list[str], family: str
) -> None:
    code, out, _ = compare("--family", family, "--noise-table", table(*rows), "--json")
    plain_code, plain, _ = compare("--json")
    document, without = json.loads(out)["verdicts"][0], json.loads(plain)["verdicts"][0]
    assert (code, document["gap"]) == (plain_code, without["gap"])
    assert set(document["codes"]) - set(without["codes"]) == {"FAMILY_UNUSED"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--noise-table", "x.csv"), ("--family",)),
        (("--family", "nope"), ("'nope'", "parity noise list")),
        (("--family", "fp9=tiny"), ("fp9: no such run", "fp8")),
        (("--family", "fp8="), ("'fp8='",)),
        (("--family", "a", "--family", "fp8=b"), ("'a'", "'b'", "fp8")),
        (
            ("--family", "a", "--noise-table", "/nowhere/x.csv"),
            ("/nowhere/x.csv", "cannot be read"),
        ),
    ],
)
def test_wrong_calls_are_one_line(
    compare: Run, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    code, out, err = compare(*options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEAD + ",std\n" + ROWS[0] + ",1\n", "\x00"])
def test_a_file_that_is_no_table_is_one_line(
    compare: Run, run: Run, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    for code, out, err in (
        compare("--family", "a", "--noise-table", str(path)),
        run("noise", "list", str(path)),
    ):
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert str(path) in err


def test_list_has_a_line_per_family(run: Run, table: Callable[..., str]) -> None:
    code, out, _ = run("noise", "list")
    lines = [line.split("\t")[:4] for line in out.splitlines()]
    assert (code, len(lines)) == (0, 26)
    assert [TRACK3, "nearest", "41", "519"] in lines
    assert [line[:2] for line in lines[-2:]] == [
        ["any-decoder", "stochastic"],
        ["any-decoder", "nearest"],
    ]
    _, out, _ = run(
        "noise", "list", table(*ROWS, "zero,a,5,1.4,0,nats,nearest", "who,a,5,1.4,0.001,nats,")
    )
    lines = [line.split("\t") for line in out.splitlines()]
    assert [(line[0], line[1]) for line in lines[:-2]] == [
        ("tiny", "nearest"),
        ("who", "not stated"),
        ("zero", "not stated"),
    ]
    family, general = documents = json.loads(run("noise", "list", table(), "--json")[1])
    check("noise-list", documents)
    check("noise-list", json.loads(run("noise", "list", "--json")[1]))
    assert family["by_rounding"][0]["noise"]["groups"] == 5
    assert (general["family"], general["by_rounding"][0]["noise"]) == ("any-decoder", None)


def test_show_any_decoder_has_a_line_per_family_that_counts(
    run: Run, table: Callable[..., str]
) -> None:
    code, out, err = run("noise", "show", "any-decoder")
    assert (code, len(out.splitlines())) == (0, 7)
    assert "stochastic: 0.059 %" in err
    document = json.loads(run("noise", "show", "any-decoder", "--json")[1])
    check("noise-family", document)
    assert len(document["families"]) == 7
    assert "at least 4" in run("noise", "show", "any-decoder", table())[2]


def test_show_names_the_outliers(run: Run, table: Callable[..., str]) -> None:
    wild = "tiny,wild,8,1.4,0.05,nats,nearest"
    code, out, _ = run("noise", "show", "tiny", table(*ROWS, wild))
    assert code == 0
    assert [line.split("\t")[-1] for line in out.splitlines()] == ["", "", "", "", "", "outlier"]
    document = json.loads(run("noise", "show", "tiny", table(*ROWS, wild), "--json")[1])
    check("noise-family", document)
    groups = document["groups"]
    assert [group["group"] for group in groups if group["outlier"]] == ["wild"]
    assert all(group["interval"][0] < group["rel"] < group["interval"][1] for group in groups)
    assert run("noise", "show", "tinny", table())[0] == 2


def test_an_unknown_family_names_the_nearest_and_not_all(run: Run) -> None:
    code, out, err = run("noise", "show", "modded-nanogpt-124M/track")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert TRACK3 in err
    assert 1 <= sum(name in err for name in public_noise_table().families) <= 3
    assert run("noise", "show", "quite another")[2].count("did you mean") == 0


def test_the_families_of_a_small_table_are_named(run: Run, table: Callable[..., str]) -> None:
    code, _, err = run("noise", "show", "huge", table())
    assert code == 2
    assert "expected tiny or any-decoder" in err
