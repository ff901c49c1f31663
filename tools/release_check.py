"""Whether a tag can be released: tag, pyproject.toml and CHANGELOG.md have one version, and nothing
waits under "Unreleased".

python -m tools.release_check v0.1.0     # exit status 0, or 1 and a line for each problem
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "Unreleased"


def problems(tag: str, pyproject: str, changelog: str) -> list[str]:
    """What keeps a tag from being released, one sentence each, given the texts of the two files."""
    version = tomllib.loads(pyproject)["project"]["version"]
    sections = {
        title.split()[0].strip("[]"): body
        for title, body in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    }
    wrong = []
    if tag != f"v{version}":
        wrong.append(
            f"the tag is {tag}, but pyproject.toml has version {version}; expected v{version}"
        )
    if not sections.get(version, "").strip():
        wrong.append(
            f"CHANGELOG.md has no entries under `## {version}`; move those of `## {UNRELEASED}` "
            "there"
        )
    elif sections.get(UNRELEASED, "").strip():
        wrong.append(
            f"CHANGELOG.md has entries under `## {UNRELEASED}`; expected none, because {version} "
            "would contain them"
        )
    return wrong


def main() -> int:
    """Check the tag in the first argument; the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m tools.release_check TAG\n")
        return 1
    texts = [
        (ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md")
    ]
    wrong = problems(sys.argv[1], *texts)
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
