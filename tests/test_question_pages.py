"""docs/fallback.md, docs/frameworks.md and docs/gradient-format.md: each command exits as the page
says, and what they claim of the other logs holds. tests/tools/tables/test_catalogue.py compares
the outputs.
"""

import json
import re
import shutil

import pytest
import yaml
from pydantic import TypeAdapter

from parity.cli import main as parity
from server.settings import CHECKOUT
from tests.documentation import run_by
from tools.tables.questions import EXAMPLES, FOLDER, PAGES
from training.spec import JobSpec

MOST_WORDS = 400
RECIPES = ["--recipe", "bf16=bf16", "--recipe", "nvfp4=nvfp4", "--planned-steps", "200"]


def typed(command, capsys):
    """A command's exit code and what it prints."""
    with pytest.raises(SystemExit) as ended:
        parity(command)
    return ended.value.code or 0, capsys.readouterr().out


@pytest.mark.parametrize("folder", ["fallback", "frameworks", "gradients"])
def test_each_command_exits_as_the_page_says(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(FOLDER / folder, tmp_path / folder))
    for name, example in EXAMPLES.items():
        if example.folder == folder:
            words = example.command.replace("\\\n", " ").split()[1:]
            assert (name, typed(words, capsys)[0]) == (name, example.code)


def test_every_block_of_the_pages_is_an_example_or_the_plan(capsys):
    blocks = [block for page in PAGES for block in run_by(f"docs/{page}.md", __file__)]
    others = [
        block
        for block in blocks
        if block.text.rstrip("\n") not in {example.command for example in EXAMPLES.values()}
    ]
    assert [block.page for block in others] == ["docs/gradient-format.md"]
    code, printed = typed(others[0].commands[0].split()[1:], capsys)
    assert code == 0
    assert "decide a margin of 0.5 %" in " ".join(printed.split())


def against_bf16(log, monkeypatch, capsys):
    """The document of a log that is said to be nvfp4."""
    monkeypatch.chdir(FOLDER / "fallback")
    _, printed = typed(["compare", "bf16.csv", f"nvfp4={log}", *RECIPES, "--json"], capsys)
    (document,) = json.loads(printed)["verdicts"]
    return document


def test_a_run_in_bf16_is_named_and_one_in_nvfp4_is_not(monkeypatch, capsys):
    fell_back = against_bf16("fell-back.csv", monkeypatch, capsys)
    assert fell_back["codes"][0] == "ARMS_IDENTICAL"
    assert fell_back["words"]["lead"].endswith("one file twice, or a fallback?")
    honest = against_bf16("nvfp4.csv", monkeypatch, capsys)
    assert not {"ARMS_IDENTICAL", "TREATMENT_UNSHOWN"} & set(honest["codes"])
    assert "fall" not in honest["words"]["lead"]


def test_a_run_that_goes_on_in_nvfp4_begins_with_the_loss_of_bf16(tmp_path, monkeypatch, capsys):
    bf16, nvfp4 = (
        (FOLDER / "fallback" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        for name in ("bf16.csv", "nvfp4.csv")
    )
    later = tmp_path / "later.csv"
    later.write_text("".join(bf16[:6] + nvfp4[6:]), encoding="utf-8")
    document = against_bf16(later, monkeypatch, capsys)
    assert document["codes"][0] == "TREATMENT_UNSHOWN"
    assert document["words"]["lead"].endswith("did it fall back?")


def test_a_rerun_ends_as_far_from_its_golden_as_a_partial_fallback(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(FOLDER / "fallback", tmp_path / "logs"))
    golden = "nvfp4.golden.jsonl"
    typed(["golden", "update", golden, "nvfp4.csv", "--recipe", "nvfp4"], capsys)
    printed = (
        typed(["golden", "check", f"{log}.csv", golden, "--json"], capsys)[1]
        for log in ("nvfp4-again", "two-blocks")
    )
    again, partial = (json.loads(text)["measured"]["gap_pct"] for text in printed)
    assert again == pytest.approx(partial, abs=0.1)


def test_the_job_of_the_page_is_one():
    (block,) = run_by("docs/gradient-format.md", __file__, "yaml")
    job = TypeAdapter(JobSpec).validate_python(yaml.safe_load(block.text)["job"])
    assert {arm.label for arm, _ in job.runs()} == {"mxfp8", "mxfp8+gradient_format=e5m2"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short(page):
    text = (CHECKOUT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    assert len(prose.split()) <= MOST_WORDS
