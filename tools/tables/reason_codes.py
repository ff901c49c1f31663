"""The reason codes in docs/codes.md, made from the judge's own entries."""

from collections.abc import Iterable, Iterator

from parity.judging.codes import ReasonCode
from parity.judging.precedence import table
from tools.tables.generated import DOCS, ROOT, GeneratedTable
from tools.tables.rule_places import (
    measured_by,
    numbers_in_words,
    places_in_words,
    rules_of_codes,
)


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


def _described(entries: Iterable[tuple[str, ReasonCode]]) -> Iterator[str]:
    """One section a code, by name."""
    rules = rules_of_codes()
    for state, entry in sorted(entries, key=lambda row: row[1].code):
        yield f"### {entry.code}"
        yield f"**{state[:1].upper()}{state[1:]}**: {entry.meaning}."
        job_step = f" *A server's job:* {entry.next_step_of_job}" if entry.next_step_of_job else ""
        yield f"*What to do:* {entry.what_to_do}{job_step}"
        yield f"*Its rule:* {places_in_words(rules[entry.code])}"
        functions = [function for rule in rules[entry.code] for function in measured_by(rule)]
        if functions:
            yield f"*Measured in:* {places_in_words(functions)}"
        if numbers := numbers_in_words(rules[entry.code]):
            yield f"*Its numbers:* {numbers}"


def what_codes_demand() -> str:
    """Each code with what to do, by name, for those that read no page."""
    return "\n".join(
        f"- `{entry.code}`: {entry.what_to_do or 'nothing.'}"
        for _, entry in sorted(table(), key=lambda row: row[1].code)
    )


TABLE = GeneratedTable(
    name="reason_codes",
    parts={
        DOCS / "codes.md": {"reason codes": reason_codes},
        ROOT / "parity" / "SKILL.md": {"what codes demand": what_codes_demand},
    },
)
