"""The row of a verdict in a table of candidates."""

from parity.report.number_words import ends_words, mean_words
from parity.report.view import View
from parity.wording import signed

SUMMARY = ("candidate", "gap, nats", "interval", "gap", "margin", "verdict")


def summary_row(view: View) -> tuple[str, ...]:
    """The cells of one candidate, in the order of `SUMMARY`."""
    gap, margin = view.recorded_gap, view.margin
    return (
        view.candidate.title,
        mean_words(view),
        ends_words(view, gap) if gap else "none",
        f"{signed(100 * gap.rel, 2)} %" if gap and gap.rel is not None else "none",
        f"{margin['nats']:.{view.decimals}f}" if margin else "none",
        view.state,
    )
