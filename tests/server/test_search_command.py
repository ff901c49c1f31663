"""`parity search` against a real server: cost and guarantee first, then the confirmed assignment as
a job file; errors are one line.
"""

import json
import threading
import time

import pytest
import yaml

from parity import cli
from parity.cli import watching
from parity.client.rest import UnreachableError
from parity_lab.server.tables import Search
from tests.server.played import GAPS, make_base, play_step


@pytest.fixture
def parity(served, capsys):
    """A function that runs the command line; the exit code, what it printed, and the errors."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def file(tmp_path):
    """A function that writes a file with `search:`; its path."""

    def write(**section):
        path = tmp_path / "parity.yaml"
        path.write_text(yaml.safe_dump({"search": section}))
        return str(path)

    return write


def worked_on(database, confirmed=None):
    """Give every step of the one search its results as it is queued, in another thread; the
    server's own thread queues the next.
    """

    def work():
        done = 0
        for _ in range(1200):
            with database.read() as session:
                search = session.query(Search).first()
                number, state = (len(search.steps), search.state) if search else (0, "running")
                own = search.id if search else ""
            if state != "running":
                return
            if number > done:
                play_step(database, own, GAPS, confirmed)
                done = number
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_the_plan_comes_first_and_the_confirmed_assignment_last(parity, database, file, tmp_path):
    path = file(base=make_base(database), pairs=4)
    code, out, _ = parity("search", path, "--plan")
    assert code == 0
    assert "space: 8 assignments of 3 switches: 0.mlp.fprop, 0.mlp.dgrad, 0.mlp.wgrad" in out
    assert "cost: 2,904 to 24,904 steps" in out
    assert "is at most 2.5 %" in out
    code, out, err = parity("search", path)  # nobody to ask
    assert (code, out) == (2, "")
    assert "add --yes" in err

    thread = worked_on(database)
    made = tmp_path / "assignment.yaml"
    code, out, err = parity("search", path, "--yes", "--output", str(made))
    thread.join()
    assert code == 0, err
    assert "confirmed: assignment 110, 1.39 times" in out
    assert "pass: gap" in out
    assert "MaxText: cannot express" in out
    assert "cost: 2,904" in err
    content = yaml.safe_load(made.read_text())
    (candidate,) = content["job"]["candidates"]
    assert candidate["overrides"][0]["gemms"] == ["wgrad"]
    with database.read() as session:
        own = session.query(Search).one().id
    code, out, _ = parity("search", own, "--json")
    assert code == 0
    assert json.loads(out)["assignment"] == "110"
    code, out, _ = parity("search", own, "--cancel")  # it has ended
    assert (code, out.split()) == (0, [own, "found"])
    code, _, err = parity("search", str(made))
    assert code == 2
    assert "`search:` is missing" in err


def test_a_search_without_an_assignment_exits_as_inconclusive(parity, database, file):
    thread = worked_on(database, confirmed=(0.03, 0.03, 0.03))
    code, out, _ = parity("search", file(base=make_base(database), pairs=4), "--yes")
    thread.join()
    assert code == 3
    assert "no assignment: " in out


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"base": "j1", "pair": 4}, "unknown key search.pair"),
        ({"base": "j1"}, "j1"),
        ({"pairs": 3}, "`job:` is missing"),
    ],
)
def test_what_cannot_be_searched_is_one_line(parity, file, section, why):
    code, out, err = parity("search", file(**section), "--yes")
    assert code != 0
    assert out == ""
    assert why in err


def test_a_server_that_is_gone_while_a_search_is_followed_is_one_line_with_the_way_back(
    parity, database, file, monkeypatch
):
    def gone(*_words):
        raise UnreachableError("no answer")

    monkeypatch.setattr(watching, "poll", gone)
    code, _, err = parity("search", file(base=make_base(database), pairs=4), "--yes")
    with database.read() as session:
        own = session.query(Search).one().id
    assert code == 4
    assert err.splitlines()[-1].endswith(f"follow it: parity search {own}")
