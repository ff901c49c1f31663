"""Do the tests notice a small mistake? `python -m tools.mutants AREA[,AREA] --count N --seed SEED`.

Draws N mutations of the modules under the areas, each with the same chance, and runs the tests of
the changed module against each, in copies of the checkout (tools/mutant_runs.py). A module's tests
are the files that mirror it, the files in the same folder that import it, and at most three that
tests/mutant_tests.toml names. tests/equivalent_mutants.toml lists what no test can see.
"""

import argparse
import ast
import functools
import hashlib
import itertools
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.mutant_runs import Mutant, MutantOutcome, judged
from tools.mutations import mutations

ROOT = Path(__file__).parents[1]
EQUIVALENTS, FURTHER = "tests/equivalent_mutants.toml", "tests/mutant_tests.toml"
MOST_FURTHER = 3
# The share of the mutants, without the equivalent ones, that the tests must kill.
LEAST_KILLED = 0.9
STATUSES = ("killed", "survived", "equivalent", "undecided")


def mutants(root: Path, modules: Iterable[str]) -> list[Mutant]:
    """All mutants of the modules, in order."""
    sources = {module: (root / module).read_bytes() for module in modules}
    return [
        Mutant(module, source, mutation)
        for module, source in sources.items()
        for mutation in mutations(source)
    ]


def modules_of(root: Path, areas: Iterable[str]) -> list[str]:
    """The modules under the areas, which are folders or modules; ValueError if an area has none."""
    found: set[str] = set()
    for area in areas:
        path = root / area
        paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not paths:
            raise ValueError(f"no module under {area!r}; expected a folder or a module of {root}")
        found.update(path.relative_to(root).as_posix() for path in paths)
    return sorted(found)


def drawn(root: Path, areas: Iterable[str], count: int, seed: str) -> list[Mutant]:
    """Different mutants of the areas: those whose digests with the seed are the smallest, so that
    a change elsewhere in the sources leaves the others as they are.
    """
    every = mutants(root, modules_of(root, areas))
    every.sort(key=lambda mutant: hashlib.sha256(repr((seed, _place(mutant))).encode()).digest())
    fitting = (mutant for mutant in every if mutant.mutation.parses(mutant.source))
    chosen = itertools.islice(fitting, count)
    return sorted(chosen, key=lambda mutant: (mutant.module, mutant.mutation))


def equivalents(root: Path) -> dict[tuple[str, str, str], str]:
    """The argument for each listed mutant; ValueError if an entry fits no place or has none."""
    found = {}
    for entry in _table(root / EQUIVALENTS).get("mutant", []):
        module, line, change = entry["module"], entry["line"], entry["change"]
        places = mutants(root, [module]) if (root / module).exists() else []
        if (module, line, change) not in map(_place, places):
            raise ValueError(
                f"{EQUIVALENTS}: {module} has no {change!r} in a statement {line!r}; "
                "correct or drop the entry"
            )
        if not entry.get("why"):
            raise ValueError(f"{EQUIVALENTS}: {change!r} in {line!r} of {module} lacks `why`")
        found[module, line, change] = str(entry["why"])
    return found


def _place(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.module, mutant.mutation.statement, mutant.mutation.change


def _table(path: Path) -> dict[str, list[dict[str, str]]]:
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def files_that_test(root: Path, module: str) -> list[str]:
    """The test files of a module in the order in which they run: those that mirror it, those next
    to them that import it, the smallest first, and the named ones. Where there is neither of the
    first two, those that import it below the next folder up that has one.
    """
    path = Path("tests") / module.removesuffix("/__init__.py").removesuffix(".py")
    folder, name = root / path.parent, ".".join(path.parts[1:])
    mirrors = [folder / f"test_{path.name}.py", *sorted((root / path).glob("test_*.py"))]
    mirrors = [file for file in mirrors if file.exists()]
    importing = [file for file in folder.glob("test_*.py") if name in _imported(file)]
    while not mirrors and not importing and folder != root / "tests":
        folder = folder.parent
        importing = [file for file in folder.rglob("test_*.py") if name in _imported(file)]
    importing.sort(key=lambda file: (file.stat().st_size, file))
    named = [root / str(file) for file in _table(root / FURTHER).get(module, [])]
    if len(named) > MOST_FURTHER or not all(file.exists() for file in named):
        raise ValueError(f"{FURTHER}: {module}: expected at most {MOST_FURTHER} files that exist")
    files = dict.fromkeys([*mirrors, *importing, *named])
    return [file.relative_to(root).as_posix() for file in files]


@functools.cache
def _imported(file: Path) -> frozenset[str]:
    """The modules that a file imports, and what it imports from them, which may be modules too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """The exit code: 0 if enough of the drawn mutants are killed."""
    parser = argparse.ArgumentParser(description="Do the tests notice a small mistake?")
    parser.add_argument("areas", help="folders or modules, separated by commas")
    parser.add_argument("--count", type=int, default=20, help="how many mutants are drawn")
    parser.add_argument("--seed", default="67")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at the same time")
    parser.add_argument("--only", help="of the drawn ones: MODULE:LINE, separated by commas")
    parser.add_argument("--list", action="store_true", help="print what is drawn, and its tests")
    options = parser.parse_args(arguments)
    chosen = drawn(root, options.areas.split(","), options.count, options.seed)
    if options.only:
        chosen = [mutant for mutant in chosen if mutant.place in options.only.split(",")]
    if options.list:
        for mutant in chosen:
            print(mutant, *files_that_test(root, mutant.module), sep="\n    ")
        return 0
    listed = equivalents(root)
    equivalent = [mutant for mutant in chosen if _place(mutant) in listed]
    rest = [mutant for mutant in chosen if mutant not in equivalent]
    tests = {mutant: files_that_test(root, mutant.module) for mutant in rest}
    found: defaultdict[str, list[Mutant]] = defaultdict(list)
    argued = (
        (mutant, MutantOutcome("equivalent", listed[_place(mutant)])) for mutant in equivalent
    )
    for mutant, outcome in itertools.chain(argued, judged(root, tests, options.jobs)):
        found[outcome.status].append(mutant)
        print(f"{outcome.status:10} {mutant}  {outcome.why}".rstrip(), flush=True)
    totals = ", ".join(f"{len(found[status])} {status}" for status in STATUSES)
    print(f"\n{options.areas}, seed {options.seed}, {len(chosen)} mutants: {totals}")
    for status in ("survived", "undecided"):
        for mutant in found[status]:
            print(f"{status}: {mutant}")
    return int(len(found["killed"]) < LEAST_KILLED * (len(chosen) - len(equivalent)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
