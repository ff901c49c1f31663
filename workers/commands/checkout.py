"""The files of a commit: fetched into a mirror, looked up by its full id on a listed ref, and
written from git's objects alone.

    mirror     a bare repository a URL, in the worker's state folder, under one lock: two slots
               never fetch into it at once
    listed     after a fetch the commit has to be on a ref that the launcher lists, so that a fork's
               commit is no branch's
    manifest   the files below the launcher's `paths`: mode, object id, path; its SHA-256 decides
               whether two commits train the same
    written    each object as git stores it: no hook, filter, LFS, submodule or attribute of the
               repository can run or change a byte

A contributor controls everything in the repository, so no command of git that reads its attributes
or configuration is used on it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from parity.frozen import frozen
from workers.commands.launchers import Launcher, allows

_REFS = "refs/parity"  # where the mirror keeps what it fetched, under the names of the repository
_FETCH_SECONDS, _READ_SECONDS = 900.0, 120.0
_DAY_SECONDS = 86_400.0
_MOST_FILES, _MOST_BYTES = 200_000, 4 * 2**30
_LINK, _EXECUTABLE, _SUBMODULE = "120000", "100755", "160000"
_LONGEST_MESSAGE = 500


class CheckoutError(Exception):
    """A commit that cannot be had; `code` is the run's, `transient` whether another attempt may
    have it.
    """

    def __init__(self, code: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.code, self.transient = code, transient


@frozen
class File:
    """One file of a commit: its mode, the id of its object, and its path."""

    mode: str
    object_id: str
    path: str


@frozen
class CommitTree:
    """The files that decide a training, and the digest of their list."""

    files: tuple[File, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of modes, object ids and paths: equal digests are equal files."""
        return hashlib.sha256(
            "".join(f"{file.mode} {file.object_id}\t{file.path}\0" for file in self.files).encode()
        ).hexdigest()


def find(launcher: Launcher, revision: str, folder: Path) -> tuple[Path, CommitTree]:
    """The mirror that has a commit, and the commit's files; `folder` holds the mirrors.

    Raises CheckoutError: REPOSITORY_UNREACHABLE (transient), REVISION_NOT_FOUND, CHECKOUT_REFUSED.
    """
    mirror = folder / f"{hashlib.sha256(launcher.repository.encode()).hexdigest()[:24]}.git"
    git = _Git(launcher, mirror)
    with _locked(mirror):
        if not (mirror / "HEAD").exists():
            git.run("init", "--quiet", "--bare", str(mirror), seconds=_READ_SECONDS, inside=False)
        if not _is_listed(git, launcher, revision):
            _fetch(git, launcher)
        if not _is_listed(git, launcher, revision):
            expected = (
                f"a commit on {' or '.join(launcher.refs)}; push it there, or let the worker's "
                "operator list its ref"
            )
            raise CheckoutError(
                "REVISION_NOT_FOUND",
                f"commit {revision} is not on record in {shown(launcher)}, expected {expected}",
            )
        return mirror, _tree(git, launcher, revision)


def remove_unused(folder: Path, days: float) -> list[str]:
    """Remove the mirrors in which no run looked for a commit for so many days; the names of those
    that went. One in use is left.
    """
    removed = []
    for lock in sorted(folder.glob("*.lock")):
        mirror = lock.with_suffix(".git")
        with suppress(OSError), lock.open("r+") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The lock stays: another worker may wait for it, and one that was removed would be a
            # second one.
            if (
                mirror.is_dir()
                and time.time() - os.fstat(lock_file.fileno()).st_mtime > days * _DAY_SECONDS
            ):
                shutil.rmtree(mirror)
                removed.append(mirror.name)
    return removed


def write(launcher: Launcher, mirror: Path, tree: CommitTree, target: Path) -> None:
    """Write the files of a commit into an empty folder. Raises CheckoutError, CHECKOUT_REFUSED, for
    a link out of it.
    """
    git, total = _Git(launcher, mirror), 0
    with git.objects() as read:
        for file in tree.files:
            content = read(file.object_id)
            total += len(content)
            if total > _MOST_BYTES:
                raise CheckoutError(
                    "CHECKOUT_REFUSED",
                    f"the files take more than {_MOST_BYTES:,} bytes; list the launcher's paths",
                )
            place = target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.mode == _LINK:
                _check_link(file, content)
                place.symlink_to(os.fsdecode(content))
                continue
            # O_EXCL: never through a link that an earlier entry of the same tree made.
            descriptor = os.open(
                place,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
                0o755 if file.mode == _EXECUTABLE else 0o644,
            )
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)


def changes(tree: CommitTree, target: Path) -> list[str]:
    """The paths of written files that are no longer as they were; files that a trainer added beside
    them do not count.
    """
    return [
        file.path
        for file in tree.files
        if file.mode != _LINK and not _is_as_written(file, target / file.path)
    ]


def shown(launcher: Launcher) -> str:
    """The repository without what stands before its host, which may be a password."""
    scheme, separator, rest = launcher.repository.partition("://")
    if separator:
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"
    return launcher.repository


def _is_as_written(file: File, place: Path) -> bool:
    try:
        content = place.read_bytes() if not place.is_symlink() else b""
    except OSError:
        return False
    hashed = hashlib.sha1(usedforsecurity=False) if len(file.object_id) == 40 else hashlib.sha256()
    hashed.update(b"blob %d\0" % len(content) + content)
    return hashed.hexdigest() == file.object_id


def _check_link(file: File, content: bytes) -> None:
    inside = PurePosixPath(file.path).parent
    target = PurePosixPath(os.fsdecode(content))
    depth = len(inside.parts)
    for part in target.parts:
        depth += -1 if part == ".." else int(part != ".")
        if depth < 0 or target.is_absolute():
            raise CheckoutError(
                "CHECKOUT_REFUSED",
                f"{file.path} is a link to {str(target)!r:.100}, expected one that stays in the "
                "repository",
            )


def _is_listed(git: "_Git", launcher: Launcher, revision: str) -> bool:
    """Whether the mirror has a commit, on a ref that the launcher lists."""
    if git.status("cat-file", "-e", f"{revision}^{{commit}}"):
        return False
    names = git.run(
        "for-each-ref",
        "--format=%(refname)",
        f"--contains={revision}",
        _REFS,
        seconds=_READ_SECONDS,
    ).decode()
    return any(allows(launcher, name.replace(_REFS, "refs", 1)) for name in names.splitlines())


def _fetch(git: "_Git", launcher: Launcher) -> None:
    refspecs = [f"+{ref}:{ref.replace('refs', _REFS, 1)}" for ref in launcher.refs]
    git.run(
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--",
        launcher.repository,
        *refspecs,
        seconds=_FETCH_SECONDS,
    )


def _tree(git: "_Git", launcher: Launcher, revision: str) -> CommitTree:
    """The files below the launcher's paths. Raises CheckoutError where there are none, too many, or
    a submodule.
    """
    paths = () if launcher.paths == (".",) else launcher.paths
    listed = git.run(
        "ls-tree", "-r", "-z", "--full-tree", revision, "--", *paths, seconds=_READ_SECONDS
    )
    files = []
    for entry in listed.split(b"\0")[:-1]:
        facts, _, path = os.fsdecode(entry).partition("\t")
        mode, _, object_id = facts.split(" ")
        if mode == _SUBMODULE:
            raise CheckoutError(
                "CHECKOUT_REFUSED",
                f"{path} is a submodule, expected files; list the launcher's paths without it",
            )
        parts = PurePosixPath(path).parts
        if ".." in parts or path.startswith("/") or ".git" in parts:
            raise CheckoutError(
                "CHECKOUT_REFUSED", f"{path!r:.100} is no path below the repository"
            )
        files.append(File(mode=mode, object_id=object_id, path=path))
    if not files:
        raise CheckoutError(
            "REVISION_NOT_FOUND",
            f"commit {revision} has no file in {', '.join(launcher.paths)}, the launcher's paths",
        )
    if len(files) > _MOST_FILES:
        raise CheckoutError(
            "CHECKOUT_REFUSED",
            f"commit {revision} has {len(files):,} files, expected at most {_MOST_FILES:,}",
        )
    return CommitTree(files=tuple(files))


@contextmanager
def _locked(mirror: Path) -> Iterator[None]:
    """Hold the lock of a mirror, as long as its process lives."""
    mirror.parent.mkdir(parents=True, exist_ok=True)
    with mirror.with_suffix(".lock").open("a") as lock:
        deadline = time.monotonic() + _FETCH_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise CheckoutError(
                    "REPOSITORY_UNREACHABLE",
                    f"the mirror {mirror} was locked for {_FETCH_SECONDS:g} s",
                    transient=True,
                )
            time.sleep(0.1)
        os.utime(lock.fileno())  # when the mirror was last used
        yield


class _Git:
    """git on a mirror, with an environment of its own: no configuration, prompt, hook or helper of
    anybody else's.
    """

    def __init__(self, launcher: Launcher, mirror: Path) -> None:
        self._launcher, self._mirror = launcher, mirror
        scheme = launcher.repository.partition("://")[0] if "://" in launcher.repository else ""
        protocols = {
            "": "file:ssh",
            "http": "http",
            "https": "https",
            "ssh": "ssh",
            "git": "git",
            "file": "file",
        }
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(mirror.parent),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": launcher.git_config or os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
            "GIT_ALLOW_PROTOCOL": protocols.get(scheme, "none"),
            "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
            "GIT_HTTP_LOW_SPEED_TIME": "60",
        }

    def run(self, *arguments: str, seconds: float, inside: bool = True) -> bytes:
        """The output of a command. Raises CheckoutError, REPOSITORY_UNREACHABLE, where it fails or
        takes too long.
        """
        try:
            done = subprocess.run(
                self._command(*arguments, inside=inside),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._unreachable(f"git {arguments[0]} did not end in {seconds:g} s") from None
        except FileNotFoundError:
            raise CheckoutError("CHECKOUT_REFUSED", "git is not installed on this worker") from None
        if done.returncode:
            said = (
                done.stderr.decode(errors="replace")
                .replace(self._launcher.repository, shown(self._launcher))
                .strip()
            )
            raise self._unreachable(
                f"git {arguments[0]} ended with status {done.returncode}: "
                f"{said[-_LONGEST_MESSAGE:]}"
            )
        return done.stdout

    def status(self, *arguments: str) -> int:
        """The exit status of a command that only asks."""
        command = self._command(*arguments, inside=True)
        done = subprocess.run(
            command,
            env=self._environment,
            timeout=_READ_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        return done.returncode

    @contextmanager
    def objects(self) -> "Iterator[_Reader]":
        """Reads objects by their ids, one after another, from one process."""
        command = self._command("cat-file", "--batch", inside=True)
        with subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield _Reader(process)
            finally:
                process.kill()

    def _command(self, *arguments: str, inside: bool) -> Sequence[str]:
        place = ("--git-dir", str(self._mirror)) if inside else ()
        return [
            "git",
            "-c",
            f"core.hooksPath={os.devnull}",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "gc.auto=0",
            *place,
            *arguments,
        ]

    def _unreachable(self, why: str) -> CheckoutError:
        return CheckoutError(
            "REPOSITORY_UNREACHABLE", f"{shown(self._launcher)}: {why}", transient=True
        )


class _Reader:
    """The contents of objects, from a `git cat-file --batch`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, object_id: str) -> bytes:
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: PT018, S101
        self._process.stdin.write(f"{object_id}\n".encode())
        self._process.stdin.flush()
        head = self._process.stdout.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise CheckoutError(
                "REPOSITORY_UNREACHABLE",
                f"git has no file {object_id}: {b' '.join(head)!r}",
                transient=True,
            )
        content = self._process.stdout.read(int(head[2]) + 1)
        return content[:-1]
