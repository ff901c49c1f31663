"""`parity.assert_golden`: a test that fails unless a run kept its numerics."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from parity.golden.check import Check, RunFacts, check_golden, read_goldens
from parity.golden.formats import document, text_lines

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""The file of a golden, or the files of several, which are reruns of one."""


def assert_golden(
    golden: Paths,
    run: Any,
    *,
    recipe: str | None = None,
    changed: str | None = None,
    fork: int | None = None,
    random: Sequence[str] = (),
    container: str | None = None,
    hardware: str | None = None,
    data: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Check:
    """Fail unless a run of the golden's own recipe is identical to it, or differs by numerics only.

    `golden` is a golden's file, as `parity golden update` writes it, or several, of reruns. `run`
    is a path or source (text that `parity golden check` takes), a data frame, a dict of arrays such
    as {"step": ..., "loss": ...}, an array of losses, or a `Curve`. `recipe`, if it is stated, must
    be the golden's. `changed` is what changed ("code", "container", "hardware", "resume"), `fork`
    the last step before a resume, `random` what draws random numbers, such as ["dropout"], which
    allows more of the first loss. `container`, `hardware` and `data` (a digest) are those of the
    run; another digest than the golden's is an answer by itself. `columns` maps quantities to names
    of columns.

    Raises AssertionError with the answer, ValueError for what cannot be compared, and TypeError for
    data of another kind.
    """
    __tracebackhide__ = True
    facts = stated_facts(recipe, random, container, hardware, data, columns)
    result = check_golden(read_goldens(paths_of(golden)), run, facts, changed=changed, fork=fork)
    refuse_change(result)
    return result


def paths_of(golden: Paths) -> list[str]:
    """The paths of one golden or of several."""
    if isinstance(golden, (str, os.PathLike)):
        return [os.fspath(golden)]
    return [os.fspath(path) for path in golden]


def stated_facts(
    recipe: str | None = None,
    random: Sequence[str] = (),
    container: str | None = None,
    hardware: str | None = None,
    data: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> RunFacts:
    """What a call states of a run."""
    return RunFacts(
        recipe=recipe,
        random=tuple(random),
        container=container,
        hardware=hardware,
        data=data,
        columns=columns or {},
    )


def refuse_change(result: Check) -> None:
    """Raise AssertionError, with the answer in words, unless the run is fine."""
    __tracebackhide__ = True
    if not result.is_fine:
        raise AssertionError("\n".join(text_lines(document(result))))
