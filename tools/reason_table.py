"""The reason codes in docs/codes.md, made from the judge's own entries: `python -m
tools.reason_table` writes them.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from parity.judging.decision import ReasonCode
from parity.judging.reasons import table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "codes.md"
BEGIN, END = (
    "<!-- reason codes: written by tools/reason_table.py -->",
    "<!-- end of reason codes -->",
)
# Remedies of the codes whose next step the judge computes from the measurements, or leaves out.
REMEDIES: Mapping[str, str] = {
    "NONFINITE_CAND": "Look at the first step with NaN: lower the learning rate, or keep the "
    "layers that overflow in bf16.",
    "DIVERGED": "Keep the first or last blocks in bf16, or lower the learning rate; more steps "
    "will not help.",
    "CANDIDATE_UNSTABLE": "Keep the layers where the spikes start in bf16, or lower the learning "
    "rate.",
    "GAP_EXCEEDS_MARGIN": "Follow the report's advice: which layers or steps to keep in bf16, "
    "cheapest first.",
    "ENDS_ABOVE_MARGIN": "Look at the gap's chart over the last steps: the candidate gets worse "
    "late, often as the learning rate decays.",
    "STEPS_MISSING": "Look for what the missing steps have in common: a logger may leave out what "
    "it cannot write, such as NaN.",
    "SMOOTHED": "Export the raw losses, without a moving average.",
    "ROUNDED": "Log the loss with more digits.",
    "RUN_NOISE_ASSUMED": "Add replicates or controls, so that the run-to-run noise is measured.",
    "RUN_NOISE_BORROWED": "Check that the family is like your runs: model shape, data, batch, "
    "length, engine. Replicates replace it.",
    "IDENTICAL": "Nothing.",
    "WITHIN_MARGIN": "Nothing.",
    "CI_STRADDLES_MARGIN": "Follow the report's advice: it has the number of runs or steps that "
    "would decide.",
    "VALIDATION_LOSS_FAILS": "Treat it like a gap in the training loss: keep more layers or steps "
    "in bf16.",
    "SPIKES_MASKED": "Look at the spikes in the chart; `checks: [loss, spikes]` makes them decide.",
    "PAIRING_UNPROVEN": "Check the data digests on record: the losses do not look like the same "
    "batches.",
    "PAIRING_WEAK": "Check that both arms read the same batches; a noisy candidate can also cause "
    "this.",
    "WINDOW_SENSITIVE": "Read the gap over the other windows in the report before you rely on the "
    "verdict.",
    "RUNS_UNPAIRED": "Train the missing runs, so that every seed is in both arms.",
    "CONTROLS_LEFT_OUT": "Use reruns of the baseline as controls: same specification, seed and "
    "manifest.",
    "RUNS_TRUNCATED": "Nothing for the gap; train all runs to one length if you want it later in "
    "the training.",
    "SCHEDULE_STATED": "Log the learning rate: then the end of the schedule is on record.",
    "LEARNING_RATE_IN_ONE_ARM": "Record the learning rate in both arms, or name its column with "
    "--column learning_rate=NAME.",
}


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
    for state, entry in sorted(entries, key=lambda row: row[1].code):
        yield f"### {entry.code}"
        yield f"**{state[:1].upper()}{state[1:]}**: {entry.meaning}."
        of_job = f" *A server's job:* {entry.next_step_of_job}" if entry.next_step_of_job else ""
        yield f"*What to do:* {entry.next_step or REMEDIES[entry.code]}{of_job}"


def rewritten(page: str, rows: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with the rows between two marks; ValueError if it does not have both."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not closing:
        raise ValueError(f"the page has no {begin!r} and {end!r}; expected both, in this order")
    return f"{before}{begin}\n{rows}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), reason_codes()), encoding="utf-8")
