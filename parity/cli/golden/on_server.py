"""Goldens that a server keeps: `server:NAME` in place of a golden's file. The server judges; this
reads the run and prints.
"""

from collections.abc import Iterator, Sequence

from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Client, Document
from parity.comparing.arms import read_one
from parity.golden.check import RunFacts
from parity.golden.sent_run import sent_run
from parity.golden.update import Request
from parity.golden.words import acceptance, is_acceptable, percent_words
from parity.wording import count, minus

PREFIX = "server:"
COLUMNS = ("golden", "recipe", "steps", "answer", "taken", "by", "reason")


def is_kept(golden: str) -> bool:
    """Whether a word names a golden that a server keeps."""
    return golden.startswith(PREFIX)


def name_and_version(golden: str) -> tuple[str, int | None]:
    """The name and the version of `server:NAME[@VERSION]`. Raises UsageError."""
    name, mark, number = golden.removeprefix(PREFIX).partition("@")
    if not name or (mark and not (number.isdecimal() and int(number))):
        raise UsageError(f"{golden!r} names no golden; expected server:NAME or server:NAME@VERSION")
    return name, int(number) if mark else None


def refuse_files(goldens: Sequence[str]) -> None:
    """Raise UsageError where goldens of a server and files are mixed."""
    for golden in goldens:
        if not is_kept(golden):
            raise UsageError(
                f"{golden} is a file and {next(filter(is_kept, goldens))} is kept by a server; "
                "expected goldens of one place"
            )


def checked(
    client: Client,
    goldens: Sequence[str],
    run: str,
    facts: RunFacts,
    *,
    changed: str | None,
    fork: int | None,
) -> Document:
    """The server's answer about a run: the document of a check."""
    for golden in goldens:
        name_and_version(golden)
    names = [golden.removeprefix(PREFIX) for golden in goldens]
    body = {"goldens": names, **_stated(run, facts, changed, fork)}
    found: Document = client.check_golden(body)["check"]
    if is_acceptable(found["answer"]):
        name = name_and_version(goldens[0])[0]
        found["next"] = acceptance(f'parity golden update {PREFIX}{name} {run} --reason "…"')
    return found


def taken(
    client: Client,
    golden: str,
    run: str,
    facts: RunFacts,
    request: Request,
    *,
    changed: str | None,
    fork: int | None,
) -> Document:
    """What became of a run that is to be the next version of a golden."""
    name, version = name_and_version(golden)
    if version is not None:
        raise UsageError(f"{golden} names a version, which never changes; expected {PREFIX}{name}")
    body = {
        "reason": request.reason,
        "accept": request.accept,
        "every": request.every,
        "commit": request.commit,
        **_stated(run, facts, changed, fork),
    }
    return client.take_golden(name, body)


def update_lines(taken: Document) -> list[str]:
    """A run that was taken as a golden, in a line."""
    if not taken["written"]:
        return ["identical: the golden stays as it is"]
    golden = taken["golden"]
    line = f"{called(golden)} written: {golden['steps']:,} steps, {golden['recipe']}"
    if golden["answer"] is not None:
        line += (
            f"; {golden['answer']}, gap {percent_words(golden['gap_pct'])}, sum of gaps since the "
            f"last accepted one {percent_words(golden['taken_pct'])}"
        )
    return [minus(line)]


def golden_lines(golden: Document) -> Iterator[str]:
    """A golden of a server: one sentence, then its versions, newest first."""
    yield (
        f"{called(golden)}: {golden['recipe']}, {count(golden['steps'], 'step')}, "
        f"{golden['first_step']:,} to {golden['last_step']:,}{_removed_words(golden)}"
    )
    for name in ("container", "hardware", "data"):
        if golden[name] is not None:
            yield f"  {name}: {golden[name]}"
    if golden["random"]:
        yield f"  random: {', '.join(golden['random'])}"
    for version in golden["history"]:
        answer = _answer_words(version)
        yield minus(
            f"  {version['taken_at'][:10]} version {version['version']} {answer} by "
            f"{version['taken_by']}: {version['reason']}{_removed_words(version)}"
        )


def row(version: Document) -> tuple[str, ...]:
    """A version in a list."""
    return (
        f"{version['name']}@{version['version']}",
        version["recipe"],
        f"{version['steps']:,}",
        "removed" if version["removed_at"] else _answer_words(version),
        version["taken_at"][:10],
        version["taken_by"],
        version["reason"],
    )


def called(golden: Document) -> str:
    """A golden and its version."""
    return f"{PREFIX}{golden['name']}@{golden['version']}"


def _stated(run: str, facts: RunFacts, changed: str | None, fork: int | None) -> Document:
    return {
        "run": sent_run(read_one(run, "run", facts.columns)),
        "recipe": facts.recipe,
        "random": list(facts.random),
        "container": facts.container,
        "hardware": facts.hardware,
        "data": facts.data,
        "changed": changed,
        "fork": fork,
    }


def _answer_words(version: Document) -> str:
    if version["answer"] is None:
        return "written"
    accepted = ", accepted" if version["accepted"] else ""
    return f"{version['answer']}, {version['gap_pct']:+.2f} %{accepted}"


def _removed_words(version: Document) -> str:
    if version["removed_at"] is None:
        return ""
    return (
        f"; removed {version['removed_at'][:10]} by {version['removed_by']}: "
        f"{version['remove_reason']}"
    )
