import re

from tests.parity.attacks.catalogue import ATTACKS
from tools.tables.generated import DOCS

PAGE = DOCS / "attacks.md"


def test_the_page_has_a_row_for_every_attack_and_shows_a_pass_only_where_one_is_allowed() -> None:
    """The answers themselves are tested in tests/parity/attacks; `python -m tools.tables attacks`
    writes the rows.
    """
    table = re.search(
        r"<!-- attacks: .*? -->\n(.*)<!-- end of attacks -->",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert table is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]
    ]
    answers = {what: answer for what, answer, _, _ in rows if not what.startswith("**")}
    assert list(answers) == [attack.what for attack in ATTACKS]
    for attack in ATTACKS:
        assert attack.may_pass or "pass" not in answers[attack.what]
