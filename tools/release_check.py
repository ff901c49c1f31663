"""Whether a tag can be released: tag, pyproject.toml and CHANGELOG.md have one version, nothing
waits under "Unreleased", and the built files hold what they should.

python -m tools.release_check v0.1.0             # exit status 0, or 1 and a line for each problem
python -m tools.release_check v0.1.0 dist/*      # the wheel and the source distribution too
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from tools.release_archives import archive_problems

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


def built_problems(files: list[Path], pyproject: str) -> list[str]:
    """What is wrong with the built files; expected are one wheel and one source distribution."""
    wheels = [file for file in files if file.suffix == ".whl"]
    sdists = [file for file in files if file.name.endswith(".tar.gz")]
    if (len(wheels), len(sdists), len(files)) != (1, 1, 2):
        names = ", ".join(file.name for file in files)
        return [f"the built files are {names}; expected one .whl and one .tar.gz"]
    return archive_problems(wheels[0], sdists[0], tomllib.loads(pyproject)["project"])


def main() -> int:
    """Check the tag in the first argument, and the files after it; the exit status."""
    if len(sys.argv) < 2:
        sys.stderr.write("usage: python -m tools.release_check TAG [WHEEL SDIST]\n")
        return 1
    texts = [
        (ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md")
    ]
    wrong = problems(sys.argv[1], *texts)
    if len(sys.argv) > 2:
        wrong += built_problems([Path(name) for name in sys.argv[2:]], texts[0])
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
