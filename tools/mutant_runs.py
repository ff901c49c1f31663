"""Runs tests against mutants, in copies of the tracked files: the checkout stays as it is.

The tests run without a mistake first. A file that fails then is left out, and how long each takes
is kept in build/mutant_seconds.json for as long as neither it nor the sources change.
"""

import functools
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.mutations import Mutation

SECONDS = "build/mutant_seconds.json"
# A run with a mistake may take this many times as long as without, and a start besides.
TIMES, START_SECONDS = 3.0, 40.0
# Tests read these and change nothing in them: the copies have links.
INSTALLED = (".venv", "node_modules")
_FAILED = 1  # pytest's exit code
# A mistake in what such a module does could end or delete what is not the test's own.
_DANGEROUS = re.compile(rb"\bkill|\bterminate\(|rmtree|unlink")
# What is written to the checkout, $0, goes to a layer in memory and ends with the command.
_PROTECTED = """
set -e
mkdir "$1"; mount -t tmpfs none "$1"; mkdir "$1/new" "$1/work"
mount -t overlay none -o "lowerdir=$0,upperdir=$1/new,workdir=$1/work" "$0"
cd "$2"; shift 2; set +e
"$@"; exit $?
"""


@dataclass(frozen=True)
class Mutant:
    """A mutation of one module."""

    module: str
    source: bytes
    mutation: Mutation

    @property
    def place(self) -> str:
        """Where it is: MODULE:LINE."""
        return f"{self.module}:{self.mutation.line}"

    def __str__(self) -> str:
        return f"{self.place}  {self.mutation.change[:100]}  in  {self.mutation.statement[:100]}"


@dataclass(frozen=True)
class MutantOutcome:
    """What became of a mutant, and the test that killed it or why none did."""

    status: str
    why: str = ""


class CheckoutCopy:
    """A copy of the tracked files, in which one run of tests at a time may do what it likes."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.temporary = root, folder / "c", folder / "t"
        for name in _tracked(root):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.folder / name)
        for name in INSTALLED:
            if (root / name).exists():
                (self.folder / name).symlink_to(root / name)

    def run(self, arguments: Sequence[str], seconds: float | None = None) -> tuple[int, str]:
        """The exit code and the output of pytest; TimeoutExpired once the time is over, and what it
        started is ended with it.
        """
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TMPDIR": str(self.temporary)}
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        alone = _alone(self.root)
        if alone:
            alone = (*alone, str(self.temporary / "checkout"), str(self.folder))
        ended = subprocess.run(
            [*alone, *pytest, *arguments],
            cwd=self.folder, env=environment, timeout=seconds, check=False, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return ended.returncode, ended.stdout

    def judge(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> MutantOutcome:
        """Run the tests with the mistake until the first fails, and that one without it."""
        path = self.folder / mutant.module
        try:
            self._write(path, mutant.mutation.applied(mutant.source))
            code, output = self.run(["-x", *tests], seconds)
        except subprocess.TimeoutExpired:
            return MutantOutcome("undecided", f"no answer after {seconds:.0f} s")
        finally:
            self._write(path, mutant.source)
        if not code:
            return MutantOutcome("survived")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        if not failed:
            return MutantOutcome("killed", "the tests do not start")
        try:
            again, _ = self.run([failed[1]], seconds)
        except subprocess.TimeoutExpired:
            again = _FAILED
        if again == _FAILED:
            return MutantOutcome("undecided", f"{failed[1]} fails without the mistake too")
        return MutantOutcome("killed", failed[1])

    @staticmethod
    def _write(path: Path, source: bytes) -> None:
        """Write a module, and drop what was compiled of it: its age may not show the change."""
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(source)


def _tracked(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (root / name).is_file()]


@functools.cache
def _alone(root: Path) -> tuple[str, ...]:
    """What gives a command processes of its own that end with it, and a checkout that it cannot
    change: it takes an unused path and the folder in which the command runs. Nothing where the
    kernel refuses.
    """
    user = ("--user", "--map-current-user", "--keep-caps") if os.getuid() else ()
    unshared = ("unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    command = ("setpriv", "--pdeathsig", "KILL", *unshared, "sh", "-c", _PROTECTED, str(root))
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        return ()
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            [*command, f"{folder}/checkout", folder, "true"], check=False, capture_output=True
        )
    return () if tried.returncode else command


def _seconds_of(copy: CheckoutCopy, tests: Sequence[str]) -> dict[str, float | None]:
    """How long each test file takes without a mistake; None if it fails."""
    if not tests:
        return {}
    report = copy.folder.parent / "report.xml"
    options = ["--continue-on-collection-errors", "-o", "junit_family=xunit1"]
    _, output = copy.run([*options, f"--junitxml={report}", *tests])
    if not report.exists():
        raise RuntimeError(f"pytest wrote no report:\n{output[-2000:]}")
    seconds: defaultdict[str, float] = defaultdict(float)
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        file = case.get("file") or case.get("name", "").replace(".", "/") + ".py"
        seconds[file] += float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(file)
    return {
        file: seconds[file] if file in seconds and file not in failed else None for file in tests
    }


def _measured(root: Path, copies: Sequence[CheckoutCopy], tests: Sequence[str]) -> dict[str, float]:
    """How long each test file that passes takes; what was measured before is not run again."""
    sources = hashlib.sha256()
    for name in _tracked(root):
        if name.endswith(".py") and not name.startswith(("tests/", "tools/")):
            sources.update((root / name).read_bytes())
    key = {
        file: hashlib.sha256(sources.digest() + (root / file).read_bytes()).hexdigest()
        for file in tests
    }
    path = root / SECONDS
    seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    rest = [file for file in tests if key[file] not in seconds]
    with ThreadPoolExecutor(len(copies)) as threads:
        parts = [rest[number :: len(copies)] for number in range(len(copies))]
        for part in threads.map(_seconds_of, copies, parts):
            seconds.update({key[file]: took for file, took in part.items() if took is not None})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(seconds))
    return {file: seconds[key[file]] for file in tests if key[file] in seconds}


def judged(
    root: Path, tests: Mapping[Mutant, Sequence[str]], jobs: int
) -> Iterator[tuple[Mutant, MutantOutcome]]:
    """What becomes of each mutant; prints the test files that fail without a mistake."""
    with (
        tempfile.TemporaryDirectory(prefix="m-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(jobs) as threads,
    ):
        copies = [CheckoutCopy(root, Path(folder) / str(number)) for number in range(jobs)]
        files = sorted({file for some in tests.values() for file in some})
        seconds = _measured(root, copies, files)
        for file in files:
            if file not in seconds:
                print(f"unusable   {file} fails without a mistake", flush=True)
        free: queue.SimpleQueue[CheckoutCopy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> MutantOutcome:
            usable = [file for file in tests[mutant] if file in seconds]
            if not usable:
                return MutantOutcome("survived", "no test file mirrors or imports the module")
            if not _alone(root) and _DANGEROUS.search(mutant.source):
                why = "it may end processes or delete files, and `unshare` is refused here"
                return MutantOutcome("undecided", why)
            copy = free.get()
            try:
                limit = TIMES * sum(seconds[file] for file in usable) + START_SECONDS
                return copy.judge(mutant, usable, limit)
            finally:
                free.put(copy)

        yield from zip(tests, threads.map(judge, tests), strict=True)
