"""`parity golden check --card`, and `parity verify` of what it wrote."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.parity.cli.schemas import check

Run = Callable[..., tuple[int, str, str]]
EXAMPLES = Path(__file__).parents[4] / "examples" / "golden"
OLD, NEW, WORSE = (str(EXAMPLES / f"{name}.csv") for name in ("old", "new", "worse"))


@pytest.fixture
def golden(tmp_path: Path, run: Run) -> str:
    path = str(tmp_path / "tiny.golden.jsonl")
    run("golden", "update", path, OLD, "--recipe", "bf16", "--container", "26.04")
    return path


@pytest.mark.parametrize(("checked", "other", "code"), [(NEW, WORSE, 0), (WORSE, NEW, 1)])
def test_a_check_is_made_again_with_what_was_stated(
    checked: str, other: str, code: int, golden: str, tmp_path: Path, run: Run
) -> None:
    card = str(tmp_path / "card.yaml")
    stated = ("--changed", "container", "--container", "26.06")
    assert run("golden", "check", checked, golden, *stated, "--card", card)[0] == code
    check("golden-card", yaml.safe_load(Path(card).read_text("utf-8")))
    for written in (card, str(tmp_path / "card.md")):
        assert run("verify", written, checked, golden)[0] == 0
        assert run("verify", written, other, golden)[0] == 1
        assert run("verify", written)[0] == 3
    document = json.loads(run("verify", card, golden, checked, "--json")[1])
    check("card-check", document)
    assert (document["result"], document["made_by_judge"]) == ("verified", None)


def test_what_was_stated_of_the_run_is_not_verified(golden: str, tmp_path: Path, run: Run) -> None:
    card = tmp_path / "card.yaml"
    stated = ("--changed", "container", "--container", "26.06", "--hardware", "H100")
    run("golden", "check", NEW, golden, *stated, "--card", str(card))
    card.write_text(card.read_text().replace("26.06", "26.07, checked by NVIDIA"))
    document = json.loads(run("verify", str(card), NEW, golden, "--json")[1])
    places = {line.partition(": ")[0] for line in document["not_verified"]}
    assert places == {"parity", "changed", "container", "hardware"}
    assert not places & {*document["verified"]}
    assert {"recipe", "run_sha256", "answer"} <= {*document["verified"]}


@pytest.mark.parametrize("runs", [(), (NEW,)])
def test_an_option_beside_a_golden_card_is_refused(
    runs: tuple[str, ...], golden: str, tmp_path: Path, run: Run
) -> None:
    """But for the names of columns, which the card does not have."""
    card = str(tmp_path / "card.yaml")
    run("golden", "check", NEW, golden, "--card", card)
    files = (*runs, golden) if runs else ()
    code, _, err = run("verify", card, *files, "--margin", "1%")
    assert (code, "--margin is not used" in err) == (2, True)
    named = run("verify", card, *files, "--column", "loss=loss")[0]
    assert named == (0 if runs else 2)


def test_a_card_of_a_servers_golden_needs_its_file(golden: str, tmp_path: Path, run: Run) -> None:
    card = str(tmp_path / "card.yaml")
    code, _, err = run("golden", "check", NEW, "server:tiny", "--card", card)
    assert (code, "needs the file of the golden" in err) == (2, True)
    run("golden", "check", NEW, golden, "--card", card)
    code, _, err = run("verify", card, NEW, "server:tiny")
    assert (code, "a server's golden" in err) == (2, True)
    assert run("golden", "check", NEW, golden, "--card", "card.md")[0] == 2
