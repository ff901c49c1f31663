"""Candidates against each other: few in a list, many in a matrix, with one pair in full."""

from playwright.sync_api import Page, expect

from server.pages.job.pairs import pair_table, turned

LOOKS = ["light"]
ABC = ["a", "b", "c"]


def _verdict(name: str, **peers: float) -> dict:
    return {
        "candidate": {"name": name},
        "other_candidates": [
            {"name": peer, "gap": gap, "lo": gap - 0.002, "hi": gap + 0.002}
            for peer, gap in peers.items()
        ],
    }


def _cells(table) -> dict[str, list[str]]:
    return {name: [pair and pair.sign for pair in pairs] for name, pairs in table.rows}


def test_the_candidate_of_a_row_is_judged_against_those_that_come_before_it():
    verdicts = [_verdict("a"), _verdict("b", a=0.01), _verdict("c", a=0.001, b=-0.009)]
    table = pair_table(verdicts, ABC)
    assert _cells(table) == {"b": ["\u25b2"], "c": ["\u00b7", "\u25bc"]}
    assert not table.is_matrix
    assert (table.chosen.row, table.chosen.column) == ("b", "a")


def test_a_pair_is_the_same_whichever_of_the_two_the_judge_names_first():
    verdicts = [_verdict("a", b=-0.01), _verdict("b")]
    [pair] = pair_table(verdicts, ["a", "b"]).pairs
    assert (pair.row, pair.column, pair.gap, pair.state) == ("b", "a", 0.01, "worse")
    assert (round(pair.lo, 6), round(pair.hi, 6)) == (0.008, 0.012)
    assert turned(turned(pair)) == pair


def test_a_chosen_pair_has_the_order_in_which_it_was_chosen():
    verdicts = [_verdict("a"), _verdict("b", a=0.01)]
    assert pair_table(verdicts, ["a", "b"], "a", "b").chosen.state == "better"
    assert pair_table(verdicts, ["a", "b"], "b", "a").chosen.state == "worse"
    assert pair_table(verdicts, ["a", "b"], "a", "a").chosen is None


def test_two_that_were_not_compared_leave_their_cell_empty():
    assert pair_table([_verdict("a"), _verdict("b")], ["a", "b"]) is None
    table = pair_table([_verdict("a"), _verdict("b", a=0.01), _verdict("c", b=0.01)], ABC)
    assert _cells(table)["c"] == [None, "\u25b2"]


def test_a_cell_and_the_fields_choose_the_pair_that_is_shown(page: Page, many_judged):
    page.goto(f"/jobs/{many_judged}/compare")
    shown = page.locator("#pair")
    expect(shown).to_contain_text("c11 is worse than c00: +0.04")
    row = page.locator(".pairs tbody tr", has=page.get_by_role("rowheader", name="c03"))
    row.locator("td").nth(1).click()
    expect(shown).to_contain_text("c03 cannot be told from c01: +0.00")
    expect(page).to_have_url(f"/jobs/{many_judged}/compare?first=c03&second=c01")
    page.locator("[name=first]").select_option("c00")
    page.locator("[name=second]").select_option("c11")
    expect(shown).to_contain_text("c00 is better than c11: \u22120.04")
    told = shown.inner_text()
    page.reload()
    expect(shown).to_have_text(told)


def test_the_matrix_takes_the_place_of_a_long_list(api, many_judged):
    page = api.get(f"/jobs/{many_judged}/compare").text
    assert page.count('class="worse"') + page.count('class="alike"') == 66
    assert " against c" not in page.partition('id="pairs"')[2]
