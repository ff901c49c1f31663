"""docs/launchers.md and examples/launchers: the file of launchers is read, the job is accepted, and
the gate fills in whole ids.
"""

import re
from dataclasses import fields

import pytest
import yaml
from pydantic import TypeAdapter

from parity.cli.gate import commits
from parity.cli.terminal.wrong_calls import UsageError
from server.settings import CHECKOUT
from training.spec import JobSpec
from workers.commands.launchers import Launcher, read_launchers

PAGE = (CHECKOUT / "docs" / "launchers.md").read_text(encoding="utf-8")
EXAMPLES = CHECKOUT / "examples" / "launchers"
BASE, HEAD = "a" * 40, "b" * 40


def _block(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_launcher_of_the_page_is_that_of_the_example_and_fits_its_trainer(tmp_path):
    (tmp_path / "launchers.toml").write_text(_block("toml"))
    shown, whole = (
        read_launchers(path)["loop"]
        for path in (tmp_path / "launchers.toml", EXAMPLES / "launchers.toml")
    )
    assert {
        name: getattr(shown, name)
        for name in ("command", "recipes", "parameters", "reports", "pinned", "paths")
    } == {
        name: getattr(whole, name)
        for name in ("command", "recipes", "parameters", "reports", "pinned", "paths")
    }
    trainer = (EXAMPLES / "train.py").read_text(encoding="utf-8")
    options = set(re.findall(r'\("(\w+)", \w+, ', trainer))
    asked = {
        argument.partition("=")[0].removeprefix("--")
        for argument in (*whole.command, *whole.recipes["f32"].arguments)
        if "--" in argument
    }
    assert asked <= options
    compile(trainer, "train.py", "exec")


def test_the_launcher_of_the_page_goes_to_a_cluster_with_the_keys_that_the_page_adds(tmp_path):
    first, on_a_cluster = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "launchers.toml").write_text(first + on_a_cluster)
    loop = read_launchers(tmp_path / "launchers.toml")["loop"]
    assert (loop.scheduler, loop.slurm.options[0], loop.document()["scheduler"]) == (
        "slurm",
        "--partition=gpu",
        "slurm",
    )


def test_every_key_of_a_launcher_has_a_row():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Keys of a launcher")[2], re.MULTILINE)
    assert rows == [
        name
        for name in dict.fromkeys(rows)
        if name in {service.name for service in fields(Launcher)}
    ]
    assert {*rows} == {service.name for service in fields(Launcher)} - {"name", "digest"}


@pytest.fixture
def pull_request(tmp_path, monkeypatch):
    """GitHub's event of a pull request."""
    event = tmp_path / "event.json"
    event.write_text(
        f'{{"pull_request": {{"base": {{"sha": "{BASE}"}}, "head": {{"sha": "{HEAD}"}}}}}}'
    )
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    monkeypatch.setenv("GITHUB_SHA", "c" * 40)


def test_the_job_of_the_page_is_that_of_the_example_and_asks_two_questions(pull_request):
    file = EXAMPLES / "parity.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert yaml.safe_load(_block("yaml")) == content
    filled, revision = commits.job_with_commits(
        str(file), content, {"base": None, "head": None}, None
    )
    job = TypeAdapter(JobSpec).validate_python(filled["job"])
    assert revision == HEAD
    assert [arm.revision for arm in job.arms] == [BASE, HEAD, HEAD]
    assert job.comparisons() == {"head": ("base", "revision"), "head-bf16": ("head", "recipe")}
    launcher = read_launchers(EXAMPLES / "launchers.toml")["loop"]
    assert all(launcher.check(run) == {"layers": "4"} for _, run in job.runs())


def test_options_count_more_than_the_event_and_a_commit_that_nobody_names_is_asked_for(
    pull_request, monkeypatch, tmp_path
):
    content = {
        "job": {
            "engine": "command",
            "baseline": {"revision": "base"},
            "candidates": [{"revision": "head"}, {"revision": "d" * 40}],
        }
    }
    filled, revision = commits.job_with_commits(
        "p.yaml", content, {"base": "e" * 40, "head": None}, "mine"
    )
    assert [
        filled["job"]["baseline"]["revision"],
        *(arm["revision"] for arm in filled["job"]["candidates"]),
    ] == ["e" * 40, HEAD, "d" * 40]
    assert revision == "mine"
    monkeypatch.delenv("GITHUB_EVENT_PATH")
    with pytest.raises(UsageError, match="--base"):
        commits.job_with_commits(
            str(tmp_path / "p.yaml"), content, {"base": None, "head": HEAD}, None
        )
    with pytest.raises(UsageError, match="engine: command"):
        commits.job_with_commits(
            "p.yaml", {"job": {"engine": "emulated"}}, {"base": BASE, "head": None}, None
        )
    assert (
        commits.job_with_commits("p.yaml", {"job": {}}, {"base": None, "head": None}, None) is None
    )


@pytest.mark.parametrize(
    ("revisions", "refused"),
    [
        (("base", "head"), None),
        (("base", "head", "head"), None),
        (("base", "base", "head"), None),  # another recipe at base, then that recipe at head
        (("head", "head"), None),  # recipes at head, no question of revisions
        (("base", "c" * 40), HEAD),  # a good commit in place of head
        (("c" * 40, "head"), "c" * 40),  # head against a commit that is broken, too
        (("base", "c" * 40, "head"), "c" * 40),  # in steps, each within the margin
        (("head", "base", "head"), HEAD),  # the other way round
    ],
)
def test_a_job_file_that_trains_other_commits_than_the_pull_requests_is_told(
    pull_request, revisions, refused
):
    first, *others = ({"revision": revision} for revision in revisions)
    none = {"base": None, "head": None}
    filled, _ = commits.job_with_commits(
        "p.yaml",
        {"job": {"engine": "command", "baseline": first, "candidates": others}},
        none,
        None,
    )
    sentence = commits.foreign_commits(filled["job"], none)
    assert sentence is None if refused is None else refused in sentence


def test_without_a_pull_request_a_job_file_names_the_commits_that_it_likes(monkeypatch):
    monkeypatch.delenv("GITHUB_EVENT_PATH", raising=False)
    job = {
        "engine": "command",
        "baseline": {"revision": "c" * 40},
        "candidates": [{"revision": "d" * 40}],
    }
    assert commits.foreign_commits(job, {"base": None, "head": None}) is None
    assert "d" * 40 not in commits.foreign_commits(job, {"base": None, "head": HEAD})
    assert commits.foreign_commits({"engine": "emulated"}, {"base": None, "head": HEAD}) is None
