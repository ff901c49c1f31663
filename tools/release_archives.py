"""Whether the wheel and the source distribution hold what they should: the two packages, the same
files in both, and no import of what an installation lacks.

Run by `python -m tools.release_check TAG FILE...`.
"""

from __future__ import annotations

import ast
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

PACKAGES = ("parity", "parity_lab")
IMPORTED_AS = {"mlflow-skinny": "mlflow", "pyyaml": "yaml"}
"""Distributions whose package has another name."""
HOSTS = {"lightning", "pytest", "pytorch_lightning", "transformers"}
"""Whoever calls a plug-in has them: no installation of ours needs them."""
STUBS = {"_typeshed"}
"""Type checkers alone import it."""
REQUIRED = ("parity/SKILL.md", "parity/cli/__init__.py", "parity/py.typed")
BESIDE_PACKAGES = {
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
}


def archive_problems(wheel: Path, sdist: Path, project: Mapping[str, object]) -> list[str]:
    """What is wrong with the two files, one sentence each. `project` is pyproject.toml's table."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    about = next(
        (name for name in files if PurePosixPath(name).match("*.dist-info/METADATA")), None
    )
    if about is None:
        return [f"{wheel.name} has no METADATA; expected a wheel"]
    folder = PurePosixPath(about).parent
    metadata = Parser().parsestr(files.pop(about).decode())
    packaged = {name: content for name, content in files.items() if _top(name) in PACKAGES}
    expected = {*REQUIRED, f"{folder}/licenses/LICENSE", f"{folder}/entry_points.txt"}
    return [
        *(f"{wheel.name} lacks {name}" for name in sorted(expected - files.keys())),
        *(
            f"{wheel.name} has {name}; expected files of {' and '.join(PACKAGES)} alone"
            for name in sorted(files.keys() - packaged.keys())
            if _top(name) != str(folder)
        ),
        *_metadata_problems(wheel.name, metadata, project),
        *_imports_that_fail(wheel.name, packaged, metadata),
        *_sdist_problems(sdist, packaged),
    ]


def _top(name: str) -> str:
    return PurePosixPath(name).parts[0]


def _metadata_problems(
    wheel: str, metadata: Message, project: Mapping[str, object]
) -> Iterator[str]:
    for field, key in (
        ("Name", "name"),
        ("Version", "version"),
        ("Requires-Python", "requires-python"),
        ("License-Expression", "license"),
    ):
        if metadata[field] != project[key]:
            yield (
                f"{wheel} has {field} {metadata[field]}; expected {project[key]}, as in "
                "pyproject.toml"
            )
    if metadata["Description-Content-Type"] != "text/markdown" or not metadata.get_payload():
        yield f"{wheel} has no description in Markdown; expected README.md"
    for url in metadata.get_all("Project-URL", []):
        if not url.partition(", ")[2].startswith("https://"):
            yield f"{wheel} has the URL {url}; expected https"


def _imports_that_fail(
    wheel: str, packaged: Mapping[str, bytes], metadata: Message
) -> Iterator[str]:
    needs = {Requirement(line).name.lower() for line in metadata.get_all("Requires-Dist", [])}
    importable = {IMPORTED_AS.get(name, name) for name in needs}
    importable |= HOSTS | STUBS | sys.stdlib_module_names
    modules = {
        ".".join(PurePosixPath(name).with_suffix("").parts).removesuffix(".__init__"): content
        for name, content in packaged.items()
        if name.endswith(".py")
    }
    for module, content in modules.items():
        for imported in sorted(_imports(content, module)):
            package = imported.partition(".")[0]
            is_there = _is_ours(imported, modules) if package in PACKAGES else package in importable
            if not is_there:
                yield f"{wheel}: {module} imports {imported}, which an installation does not have"


def _is_ours(imported: str, modules: Mapping[str, bytes]) -> bool:
    """Whether it is a module, or a name that its module's text has."""
    module, _, name = imported.rpartition(".")
    return imported in modules or (
        re.search(rf"\b{name}\b".encode(), modules.get(module, b"")) is not None
    )


def _imports(content: bytes, name: str) -> set[str]:
    """What a module imports anywhere in it, by full names; of `from a import b` it is `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(content, name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _sdist_problems(sdist: Path, packaged: Mapping[str, bytes]) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        names = {
            str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
            for member in archive.getmembers()
            if member.isfile()
        }
    expected = packaged.keys() | BESIDE_PACKAGES
    yield from (f"{sdist.name} lacks {name}" for name in sorted(expected - names))
    yield from (
        f"{sdist.name} has {name}, which neither the wheel has nor a build needs"
        for name in sorted(names - expected)
    )
