"""What may be released: one version in tag, package and CHANGELOG."""

import pytest

from tools.release_check import ROOT, problems

PYPROJECT = '[project]\nversion = "0.2.0"\n'
CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- a thing\n\n## "
    "0.1.0\n\n- first\n"
)


def test_a_version_that_is_the_same_everywhere_may_go():
    assert problems("v0.2.0", PYPROJECT, CHANGELOG) == []


@pytest.mark.parametrize(
    ("tag", "changelog", "words"),
    [
        ("v0.2.1", CHANGELOG, "expected v0.2.0"),
        ("0.2.0", CHANGELOG, "expected v0.2.0"),
        (
            "v0.2.0",
            CHANGELOG.replace("## 0.2.0 (2026-12-01)", "## 0.1.9"),
            "no entries under `## 0.2.0`",
        ),
        (
            "v0.2.0",
            CHANGELOG.replace("### Added\n\n- a thing\n", ""),
            "no entries under `## 0.2.0`",
        ),
        (
            "v0.2.0",
            CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- forgotten\n"),
            "under `## Unreleased`",
        ),
    ],
)
def test_anything_else_is_refused(tag, changelog, words):
    (problem,) = problems(tag, PYPROJECT, changelog)
    assert words in problem


def test_the_files_of_this_checkout_are_read():
    wrong = problems(
        "v9.9.9", *((ROOT / name).read_text() for name in ("pyproject.toml", "CHANGELOG.md"))
    )
    assert "v9.9.9" in wrong[0]
