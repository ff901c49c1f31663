"""The table of attacks in docs/attacks.md, made by running them all, which takes some minutes.

Raises AssertionError where an attack gets a pass in error, or an honest twin none.
"""

from collections import Counter

from parity.readers import read_runs
from tests.parity.attacks.case import Attack, Runs
from tests.parity.attacks.catalogue import TOPICS
from tests.parity.attacks.pairs import groups
from tools.tables.generated import DOCS, ROOT, GeneratedTable

RERUNS = ROOT / "tests" / "data" / "nanogpt_reruns.npz"


def attack_table() -> str:
    """One row per attack: what is done, how the judge answers over all pairs, and the honest twin
    that passes.
    """
    orders = groups(read_runs(str(RERUNS)))
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


TABLE = GeneratedTable(
    name="attacks", parts={DOCS / "attacks.md": {"attacks": attack_table}}, slow=True
)
