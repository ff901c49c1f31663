"""The table of attacks in docs/attacks.md, made by running them all: `python -m tools.attack_table`
(some minutes).

Raises AssertionError where an attack gets a pass in error, or an honest twin none.
"""

from collections import Counter
from pathlib import Path

from parity.readers import read_runs
from tests.parity.attacks.case import Attack, Runs
from tests.parity.attacks.catalogue import TOPICS
from tests.parity.attacks.pairs import groups

ROOT = Path(__file__).parents[1]
PAGE, RERUNS = ROOT / "docs" / "attacks.md", ROOT / "tests" / "data" / "nanogpt_reruns.npz"
BEGIN, END = "<!-- attacks: written by tools/attack_table.py -->", "<!-- end of attacks -->"


def attack_table(orders: list[Runs]) -> str:
    """One row per attack: what is done, how the judge answers over all pairs, and the honest twin
    that passes.
    """
    rows = [
        "| attack | answer | most frequent reason | honest twin that passes |",
        "|---|---|---|---|",
    ]
    for topic, attacks in TOPICS.items():
        rows.append(f"| **{topic}** | | | |")
        rows += [_row(attack, orders) for attack in attacks]
    return "\n".join(rows)


def _row(attack: Attack, orders: list[Runs]) -> str:
    verdicts = [attack.build(runs).judged() for runs in orders]
    if not attack.may_pass and any(verdict.verdict == "pass" for verdict in verdicts):
        raise AssertionError(f"an attack passes: {attack.what}")
    if any(attack.honest(runs).judged().verdict != "pass" for runs in orders):
        raise AssertionError(f"an honest twin does not pass: {attack.twin}")
    states = Counter(verdict.verdict for verdict in verdicts)
    reasons = Counter(
        next(code for code in verdict.codes if code in attack.codes) for verdict in verdicts
    )
    answer = ", ".join(f"{state} {number}" for state, number in states.most_common())
    return f"| {attack.what} | {answer} | `{reasons.most_common(1)[0][0]}` | {attack.twin} |"


def main() -> None:
    """Rewrite the table in the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(
        f"{before}{BEGIN}\n{attack_table(groups(read_runs(str(RERUNS))))}\n{END}{after}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
