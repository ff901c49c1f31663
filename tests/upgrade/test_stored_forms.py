"""No stored form changes without a record of its former version that is upgraded and opened."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from server.settings import CHECKOUT
from tests.faults.matrix import git
from tests.upgrade.commits import COMMITS

Read = Callable[[str], str]
"""The text of a file of a checkout; of a folder the names in it, a line each."""

STORED = Path(__file__).parent / "stored_forms.toml"
VERSIONS: dict[str, list[str]] = tomllib.loads(STORED.read_text(encoding="utf-8"))
MIGRATIONS = "migrations/versions"
PLACES = {
    "job file": ("training/spec.py", r"^SPEC_VERSION = (\d+)$"),
    "judge": ("parity/version.py", r'^JUDGE_VERSION = "(.+)"$'),
    "bundle": ("parity/judging/bundles/write_bundle.py", r'^BUNDLE_SCHEMA = "(.+)"$'),
    "verdict": ("parity/judging/verdict/document.py", r'^VERDICT_SCHEMA = "(.+)"$'),
    "evaluations": ("parity/judging/evaluations/document.py", r'^EVALUATION_SCHEMA = "(.+)"$'),
    "card": ("parity/cards/card.py", r'^    schema: Literal\["(.+)"\]$'),
    "golden": ("parity/golden/formats.py", r'^SCHEMA = "(.+)"$'),
}

EARLIER_FILES = {"parity/judging/bundles/write_bundle.py": "parity/judging/bundles/evidence.py"}
"""Where older commits have what a file says now."""


def version(form: str, read: Read) -> str:
    """The version of a form in a checkout."""
    if form == "migration":
        return max(re.findall(r"^(\d{4})_\w+\.py$", read(MIGRATIONS), re.MULTILINE))
    file, pattern = PLACES[form]
    (found,) = re.findall(pattern, read(file), re.MULTILINE)
    return str(found)


def here(path: str) -> str:
    place = CHECKOUT / path
    if place.is_dir():
        return "\n".join(entry.name for entry in place.iterdir())
    return place.read_text(encoding="utf-8")


def at(commit: str) -> Read:
    def read(path: str) -> str:
        shown = git("show", f"{commit}:{path}")
        if shown.returncode and path in EARLIER_FILES:
            shown = git("show", f"{commit}:{EARLIER_FILES[path]}")
        assert shown.returncode == 0, shown.stderr
        return shown.stdout.decode()

    return read


@pytest.mark.parametrize("form", VERSIONS)
def test_the_newest_version_on_the_list_is_that_of_the_code(form: str) -> None:
    assert VERSIONS[form][-1] == version(form, here), f"add the new version to {STORED.name}"


def test_every_place_is_on_the_list() -> None:
    assert set(VERSIONS) == {"migration", *PLACES}
    assert all(len(set(versions)) == len(versions) for versions in VERSIONS.values())


@pytest.mark.parametrize("form", VERSIONS)
def test_a_record_of_each_former_version_is_upgraded(form: str) -> None:
    for commit in COMMITS.values():
        if git("cat-file", "-e", commit).returncode:
            pytest.skip(f"this checkout has no history with {commit}")
    upgraded = {version(form, at(commit)) for commit in COMMITS.values()}
    assert set(VERSIONS[form][:-1]) <= upgraded, "add the commit before the change to commits.py"
    assert upgraded <= set(VERSIONS[form])
