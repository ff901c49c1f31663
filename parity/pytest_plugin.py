"""A pytest plugin for tests in a training repository: the fixture `assert_parity`.

The fixture is `parity.assert_parity`. It also notes each verdict in the JUnit report (as
properties) and in the summary of the run. Until a test uses it, nothing of the judge is imported.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parity.comparing.comparison import Comparison

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


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line per comparison."""
    lines = config.stash.get(_VERDICTS, [])
    if lines:
        terminalreporter.section("parity")
        for line in lines:
            terminalreporter.line(line)
