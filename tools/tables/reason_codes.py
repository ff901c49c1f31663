"""The reason codes in docs/codes.md, made from the judge's own entries."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from parity.judging import codes
from parity.judging.codes import ReasonCode
from parity.judging.evaluations import precedence as evaluations
from parity.judging.precedence import CHECKS, ROWS, WARNINGS, table
from parity.judging.verdict.checks import apply_checks, checks
from tools.tables.generated import DOCS, GeneratedTable


def reason_codes() -> str:
    """The codes in the order in which the judge looks at them, then each with its meaning and what
    to do, by name, then the warnings.
    """
    deciding = [(state, entry) for state, entry in table() if state]
    order = [
        f"{place}. [`{entry.code}`](#{entry.code.lower()}): {state}"
        for place, (state, entry) in enumerate(deciding, 1)
    ]
    warnings = [("a warning", entry) for state, entry in table() if not state]
    parts = [
        "\n".join(order),
        "## Codes that decide",
        *_described(deciding),
        "## Warnings",
        *_described(warnings),
    ]
    return "\n\n".join(parts)


def rules_of_codes() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The rules of each code by file, those of training first, then those of held-out losses."""
    rules: list[tuple[ReasonCode, Callable[..., object]]] = [
        *((row.code, row.rule) for row in ROWS),
        *((entry, checks) for pair in CHECKS.values() for entry in pair),
        (codes.VALIDATION_LOSS_WORSE, apply_checks),
        *WARNINGS,
        *((row.code, row.rule) for row in evaluations.ROWS),
        *evaluations.WARNINGS,
    ]
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry, rule in rules:
        names = places[entry.code][rule.__module__.replace(".", "/") + ".py"]
        if rule.__name__ not in names:
            names.append(rule.__name__)
    return places


def _described(entries: Iterable[tuple[str, ReasonCode]]) -> Iterator[str]:
    """One section a code, by name."""
    places = rules_of_codes()
    for state, entry in sorted(entries, key=lambda row: row[1].code):
        yield f"### {entry.code}"
        yield f"**{state[:1].upper()}{state[1:]}**: {entry.meaning}."
        job_step = f" *A server's job:* {entry.next_step_of_job}" if entry.next_step_of_job else ""
        yield f"*What to do:* {entry.what_to_do}{job_step}"
        rules = (
            f"`{file}` ({', '.join(f'`{name}`' for name in names)})"
            for file, names in places[entry.code].items()
        )
        yield f"*Its rule:* {', '.join(rules)}"


TABLE = GeneratedTable(
    name="reason_codes", parts={DOCS / "codes.md": {"reason codes": reason_codes}}
)
