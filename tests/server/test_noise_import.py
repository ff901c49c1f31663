"""`parity noise import` and a job that names the imported family, against a real server."""

import json

import pytest
import yaml

from parity import cli
from tests.parity.cli.schemas import check

ROWS = [
    f"{name},g{number},5,2.73,{0.001 + 0.0001 * number},nearest,our runs"
    for name in ("my-700M", "theirs")
    for number in range(4)
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "noise.csv"
    path.write_text("\n".join(["family,group,runs,mean_loss,sd,rounding,source", *ROWS]) + "\n")
    return str(path)


@pytest.fixture
def parity(served, capsys):
    """A function that runs the command line; exit code, stdout and stderr."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_a_family_is_imported_exported_and_named_by_a_job(parity, table, tmp_path, request_body):
    assert parity("noise", "export", "--imported")[1] == ""
    assert parity("noise", "import", table, "--family", "my-700M")[:2] == (
        0,
        "4 new groups: my-700M\n",
    )
    document = json.loads(parity("noise", "import", table, "--json")[1])
    check("noise-import", document)
    assert document == {
        "families": ["my-700M", "theirs"], "new_groups": 4, "known_groups": 4,
    }  # fmt: skip
    assert (
        parity("noise", "import", table)[1]
        == "0 new groups, 8 groups known before: my-700M, theirs\n"
    )
    assert len(parity("noise", "export", "--imported")[1].splitlines()) == 9
    assert parity("noise", "export")[1] == ""
    job, arms = tmp_path / "parity.yaml", {"candidates": [{"recipe": "mxfp8"}]}
    for family, code, words in (
        ("my-700M", 0, "borrowed run-to-run noise"),
        ("my-70M", 2, "job.family is 'my-70M'"),
    ):
        job.write_text(
            yaml.safe_dump(request_body | {"job": request_body["job"] | arms | {"family": family}})
        )
        status, _, err = parity("submit", str(job))
        lines = 1 if code else 5  # chances, memory, disk, the missing worker, and the look
        assert (status, words in err, err.count("\n")) == (code, True, lines)


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("/nowhere.csv", (), "cannot be read"),
        (None, ("--family", "my-70M"), "expected my-700M or theirs"),
    ],
)
def test_wrong_calls_are_one_line(parity, table, file, options, words):
    code, out, err = parity("noise", "import", file or table, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_bad_table_is_one_line_of_the_server(parity, table, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("family,group,runs,mean_loss,sd,rounding\nmine,g,5,1.4,-1,nearest\n")
    code, out, err = parity("noise", "import", str(bad))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "sd is '-1'" in err
