"""A pytest plugin for tests in a training repository: the fixtures `assert_parity` and
`assert_golden`, and options that take the runs of a test session as their goldens.

The fixtures are `parity.assert_parity` and `parity.assert_golden`. They also note each answer in
the JUnit report (as properties) and in the summary of the run. Until a test uses one, nothing of
the judge is imported.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parity.comparing.comparison import Comparison
    from parity.golden.asserting import Paths
    from parity.golden.check import Check, RunFacts
    from parity.golden.update import Written

_VERDICTS = pytest.StashKey[list[str]]()


@pytest.fixture
def assert_parity(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> "Callable[..., Comparison]":
    """`parity.assert_parity`, whose verdicts are noted in the JUnit report and in the summary."""
    from parity.comparing.compare import compare, refuse_worse  # noqa: PLC0415

    def check(
        base: Any, candidate: Any, *, allow_inconclusive: bool = False, **options: Any
    ) -> "Comparison":
        __tracebackhide__ = True
        result = compare(base, candidate, **options)
        for name, value in (
            ("verdict", result.verdict),
            ("gap_nats", result.gap),
            ("margin_nats", result.margin),
            ("code", result.reasons[0].code),
        ):
            record_property(f"parity.{name}", value)
        request.config.stash.setdefault(_VERDICTS, []).append(
            f"{request.node.nodeid}: {' '.join(repr(result).splitlines()[:2])}"
        )
        refuse_worse(result, allow_inconclusive=allow_inconclusive)
        return result

    return check


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of goldens."""
    group = parser.getgroup("parity")
    group.addoption(
        "--update-goldens",
        metavar="REASON",
        help="take the run of each assert_golden as its golden, with this reason, where it is "
        "identical or differs by numerics only",
    )
    group.addoption(
        "--accept-golden",
        metavar="ANSWER",
        help="with --update-goldens: take runs although their answer is ANSWER, such as worse",
    )


@pytest.fixture
def assert_golden(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> "Callable[..., Check | None]":
    """`parity.assert_golden`, whose answers are noted in the JUnit report and in the summary; with
    `--update-goldens` it writes the golden. None for a first golden, which nothing was compared
    with.
    """
    from parity.golden.asserting import (  # noqa: PLC0415
        paths_of,
        refuse_change,
        stated_facts,
    )
    from parity.golden.check import check_golden, read_goldens  # noqa: PLC0415
    from parity.golden.formats import headline  # noqa: PLC0415

    def noted(answer: str, line: str) -> None:
        record_property("parity.golden", answer)
        request.config.stash.setdefault(_VERDICTS, []).append(f"{request.node.nodeid}: {line}")

    def check(
        golden: "Paths",
        run: Any,
        *,
        changed: str | None = None,
        fork: int | None = None,
        **facts: Any,
    ) -> "Check | None":
        __tracebackhide__ = True
        paths, stated = paths_of(golden), stated_facts(**facts)
        if reason := request.config.getoption("--update-goldens"):
            written = _updated(request.config, paths, run, stated, reason, changed, fork)
            noted("updated" if written.is_written else "identical", f"{paths[0]}: {reason}")
            return written.check
        result = check_golden(read_goldens(paths), run, stated, changed=changed, fork=fork)
        noted(result.answer, headline(result))
        refuse_change(result)
        return result

    return check


def _updated(
    config: pytest.Config,
    paths: list[str],
    run: Any,
    stated: "RunFacts",
    reason: str,
    changed: str | None,
    fork: int | None,
) -> "Written":
    """Take a run as its golden; AssertionError, with the answer, where that needs a person."""
    __tracebackhide__ = True
    from parity.cli.git import git  # noqa: PLC0415
    from parity.golden.formats import document, text_lines  # noqa: PLC0415
    from parity.golden.golden_file import GoldenError  # noqa: PLC0415
    from parity.golden.update import NotAcceptedError, Request, update_golden  # noqa: PLC0415

    if len(paths) > 1:
        raise GoldenError(
            f"--update-goldens writes one golden, but a test has {len(paths)}, {', '.join(paths)}; "
            "write each with `parity golden update`"
        )
    asked = Request(
        reason=reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=git(Path(paths[0]), "rev-parse", "--short", "HEAD").strip() or None,
        accept=config.getoption("--accept-golden"),
    )
    try:
        return update_golden(paths[0], run, stated, asked, changed=changed, fork=fork)
    except NotAcceptedError as error:
        lines = [
            *text_lines(document(error.check)),
            str(error).replace("--accept ", "--accept-golden "),
        ]
        raise AssertionError("\n".join(lines)) from None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line per comparison or check."""
    lines = config.stash.get(_VERDICTS, [])
    if lines:
        terminalreporter.section("parity")
        for line in lines:
            terminalreporter.line(line)
