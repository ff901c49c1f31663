"""Do the tests notice a small mistake? `python -m tools.mutants AREA[,AREA] --count N --seed SEED`.

Draws N mutations of the modules under the areas, each with the same chance, and runs the tests of
the changed module against each one, in copies of the tracked files: the checkout stays as it is.
A module's tests are the files that mirror it, the files beside those that import it, and at most
three that tests/mutant_tests.toml names. The tests run without a mistake first; a file that fails
then is left out. tests/equivalent_mutants.toml lists what no test can see.
"""

import argparse
import ast
import functools
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.mutations import Mutation, mutations

ROOT = Path(__file__).parents[1]
EQUIVALENTS, FURTHER = "tests/equivalent_mutants.toml", "tests/mutant_tests.toml"
MOST_FURTHER = 3
# A run with a mistake may take this many times as long as without, and a start besides.
TIMES, START_SECONDS = 3.0, 40.0
# The share of the mutants, without the equivalent ones, that the tests must kill.
LEAST_KILLED = 0.9
KILLED, SURVIVED, EQUIVALENT, UNDECIDED = "killed", "survived", "equivalent", "undecided"
# Read, not written, by tests: linked into the copies.
INSTALLED = (".venv", "node_modules")


@dataclass(frozen=True)
class Mutant:
    """A mutation of one module."""

    module: str
    text: str  # of the line where it begins
    mutation: Mutation

    def __str__(self) -> str:
        return (
            f"{self.module}:{self.mutation.line}  {self.mutation.change[:100]}  in  "
            f"{self.text[:100]}"
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, and the test that killed it or why it is undecided."""

    status: str
    why: str = ""


def mutants(root: Path, modules: Iterable[str]) -> list[Mutant]:
    """All mutants of the modules, in order."""
    found = []
    for module in modules:
        source = (root / module).read_bytes()
        lines = [line.decode().strip() for line in source.splitlines()]
        found += [Mutant(module, lines[each.line - 1], each) for each in mutations(source)]
    return found


def modules_of(root: Path, areas: Iterable[str]) -> list[str]:
    """The modules under the areas, which are folders or modules; ValueError if an area has none."""
    found = set()
    for area in areas:
        path = root / area
        paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not paths:
            raise ValueError(f"no module under {area!r}; expected a folder or a module of {root}")
        found.update(path.relative_to(root).as_posix() for path in paths)
    return sorted(found)


def drawn(root: Path, areas: Iterable[str], count: int, seed: str) -> list[Mutant]:
    """Different mutants of the areas: the same ones for the same seed and sources."""
    every = mutants(root, modules_of(root, areas))
    random.Random(seed).shuffle(every)  # noqa: S311
    kept: list[Mutant] = []
    for mutant in every:
        if len(kept) == count:
            break
        if mutant.mutation.parses((root / mutant.module).read_bytes()):
            kept.append(mutant)
    return sorted(kept, key=lambda mutant: (mutant.module, mutant.mutation))


def equivalents(root: Path) -> dict[tuple[str, str, str], str]:
    """The argument for each listed mutant; ValueError if an entry fits no place or lacks its
    argument.
    """
    path = root / EQUIVALENTS
    entries = (
        tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []) if path.exists() else []
    )
    found = {}
    for entry in entries:
        module, line, change = entry["module"], entry["line"], entry["change"]
        places = mutants(root, [module]) if (root / module).exists() else []
        if (module, line, change) not in map(_place, places):
            raise ValueError(
                f"{EQUIVALENTS}: {module} has no {change!r} in a line {line!r}; correct or drop "
                "the entry"
            )
        if not entry.get("why"):
            raise ValueError(f"{EQUIVALENTS}: {change!r} in {line!r} of {module} lacks `why`")
        found[module, line, change] = str(entry["why"])
    return found


def _place(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.module, mutant.text, mutant.mutation.change


def tests_of(root: Path, module: str) -> list[str]:
    """The test files of a module, in the order in which they run: its mirror, those that import it
    from the smallest, the named ones.
    """
    path = Path("tests") / module.removesuffix("/__init__.py").removesuffix(".py")
    folder = root / path.parent
    mirrors = [folder / f"test_{path.name}.py", *sorted((root / path).glob("test_*.py"))]
    beside = sorted(folder.glob("test_*.py"), key=lambda file: (file.stat().st_size, file))
    name = ".".join(path.parts[1:])
    importing = [file for file in beside if name in _imported(file)]
    table = root / FURTHER
    named = (
        tomllib.loads(table.read_text(encoding="utf-8")).get(module, []) if table.exists() else []
    )
    if len(named) > MOST_FURTHER or not all((root / file).exists() for file in named):
        raise ValueError(
            f"{FURTHER}: {module} names {named}; expected at most {MOST_FURTHER} files that exist"
        )
    files = (
        [file for file in mirrors if file.exists()] + importing + [root / file for file in named]
    )
    return list(dict.fromkeys(file.relative_to(root).as_posix() for file in files))


@functools.cache
def _imported(file: Path) -> frozenset[str]:
    """The modules that a file imports, and what it imports from them: that may be a module too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


class Copy:
    """A copy of the tracked files in which one run of tests at a time may break what it likes."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.temporary = root, folder / "c", folder / "t"
        listed = subprocess.run(
            ["git", "ls-files", "-z"],  # noqa: S607
            cwd=root,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.folder / name)
        for name in INSTALLED:
            if (root / name).exists():
                (self.folder / name).symlink_to(root / name)

    def run(
        self, arguments: Sequence[str], seconds: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run pytest on the copy; TimeoutExpired once the time is over, when all that it started is
        gone.
        """
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TMPDIR": str(self.temporary)}
        self.temporary.mkdir()
        command = [
            *_isolated(self.root),
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        try:
            return subprocess.run(
                command, cwd=self.folder, env=environment, timeout=seconds, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",  # noqa: E501
            )  # fmt: skip
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def judge(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> Outcome:
        """Run the tests with the mistake until the first fails."""
        path = self.folder / mutant.module
        source = path.read_bytes()
        try:
            self._write(path, mutant.mutation.applied(source))
            ended = self.run(["-x", *tests], seconds)
        except subprocess.TimeoutExpired:
            return Outcome(UNDECIDED, f"no answer after {seconds:.0f} s")
        finally:
            self._write(path, source)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
        return (
            Outcome(KILLED, failed[1] if failed else "the tests do not start")
            if ended.returncode
            else Outcome(SURVIVED)
        )

    @staticmethod
    def _write(path: Path, source: bytes) -> None:
        """Write a module; what was compiled of it goes, since its age alone may not show that it is
        another.
        """
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(source)


@functools.cache
def _isolated(root: Path) -> tuple[str, ...]:
    """What gives a command its own processes, all ended with it, and the checkout read-only; ()
    where the kernel refuses.
    """
    user = ("--user", "--map-current-user", "--keep-caps") if os.getuid() else ()
    script = 'mount --bind -o ro "$0" "$0" && { "$@"; exit $?; }'
    command = (
        "unshare",
        *user,
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
        str(root),
    )
    works = (
        shutil.which("unshare")
        and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    )
    return command if works else ()


# A mistake in what such a module does could end or delete what is not the test's own.
_DANGEROUS = re.compile(rb"\bkill|\bterminate\(|rmtree|unlink")


def seconds_without(copy: Copy, tests: Sequence[str]) -> dict[str, float]:
    """How long each test file takes without a mistake; a file that fails is not in it."""
    if not tests:
        return {}
    report = copy.folder.parent / "report.xml"
    copy.run(
        [
            "--continue-on-collection-errors",
            "-o",
            "junit_family=xunit1",
            f"--junitxml={report}",
            *tests,
        ]
    )
    seconds: Counter[str] = Counter()
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        file = case.get("file") or case.get("name", "").replace(".", "/") + ".py"
        seconds[file] += float(case.get("time", 0))  # type: ignore[assignment]
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(file)
    return {file: taken for file, taken in seconds.items() if file not in failed}


def judged(root: Path, chosen: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, Outcome]]:
    """What becomes of each mutant, as it is known; prints the test files that fail without a
    mistake.
    """
    listed = equivalents(root)
    for mutant in chosen:
        if _place(mutant) in listed:
            yield mutant, Outcome(EQUIVALENT, listed[_place(mutant)])
    rest = [mutant for mutant in chosen if _place(mutant) not in listed]
    tests = {module: tests_of(root, module) for module in {mutant.module for mutant in rest}}
    with (
        tempfile.TemporaryDirectory(prefix="m-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(jobs) as threads,
    ):
        copies = [Copy(root, Path(folder) / str(number)) for number in range(jobs)]
        files = sorted({file for some in tests.values() for file in some})
        seconds: dict[str, float] = {}
        for part in threads.map(
            seconds_without, copies, (files[number::jobs] for number in range(jobs))
        ):
            seconds |= part
        for file in files:
            if file not in seconds:
                print(f"unusable   {file} fails without a mistake", flush=True)
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> tuple[Mutant, Outcome]:
            usable = [file for file in tests[mutant.module] if file in seconds]
            if not usable:
                return mutant, Outcome(SURVIVED, "no test file mirrors or imports the module")
            if not _isolated(root) and _DANGEROUS.search((root / mutant.module).read_bytes()):
                return mutant, Outcome(
                    UNDECIDED,
                    "the module ends processes or deletes files, and unshare does not work here",
                )
            copy = free.get()
            try:
                return mutant, copy.judge(
                    mutant, usable, TIMES * sum(map(seconds.__getitem__, usable)) + START_SECONDS
                )
            finally:
                free.put(copy)

        yield from threads.map(judge, rest)


def summary(outcomes: Mapping[str, int]) -> str:
    """The totals in a line."""
    return ", ".join(
        f"{outcomes.get(status, 0)} {status}"
        for status in (KILLED, SURVIVED, EQUIVALENT, UNDECIDED)
    )


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Do the tests notice a small mistake?")
    parser.add_argument("areas", help="folders or modules, separated by commas")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", default="67")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only",
        default="",
        help="of the drawn ones, those whose MODULE:LINE is here, separated by commas",
    )
    parser.add_argument(
        "--list", action="store_true", help="print what is drawn and its tests, and run none"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """The exit code: 0 if enough mutants are killed."""
    given = _arguments(arguments)
    chosen = drawn(root, given.areas.split(","), given.count, given.seed)
    if given.only:
        wanted = given.only.split(",")
        chosen = [
            mutant for mutant in chosen if f"{mutant.module}:{mutant.mutation.line}" in wanted
        ]
    if given.list:
        for mutant in chosen:
            print(mutant, "\n    ", *tests_of(root, mutant.module))
        return 0
    counts: Counter[str] = Counter()
    places: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant, outcome in judged(root, chosen, given.jobs):
        counts[outcome.status] += 1
        places[outcome.status].append(mutant)
        print(f"{outcome.status:10} {mutant}  {outcome.why}".rstrip(), flush=True)
    print(f"\n{given.areas}, seed {given.seed}, {len(chosen)} mutants: {summary(counts)}")
    for status in (SURVIVED, UNDECIDED):
        for mutant in places[status]:
            print(f"{status}: {mutant}")
    return int(counts[KILLED] < LEAST_KILLED * (len(chosen) - counts[EQUIVALENT]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
