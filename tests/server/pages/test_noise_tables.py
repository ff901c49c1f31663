"""The page of run-to-run noise: families on record, shipped and public ones, and one family's
groups as a plot.
"""

import pytest
from playwright.sync_api import Page, expect

from parity.judging.noise.emulated_table import DEMO
from parity.judging.noise.noise_table import COLUMNS, read_noise_table
from server.jobs.imported_noise import import_noise_table

LOOKS = ["light"]


@pytest.fixture
def family(record_reruns) -> str:
    """The family of two concluded jobs with reruns."""
    record_reruns(1, steps=300, replicates=3)
    return record_reruns(2, steps=300, replicates=3)


def test_from_the_list_of_families_to_the_groups_of_one(page: Page, family):
    page.goto("/noise-tables")
    rows = page.get_by_role("region", name="Families").get_by_role("row")
    expect(rows.filter(has_text="on record here")).to_have_count(2)
    expect(rows.filter(has_text="modded-nanogpt-124M/track3")).to_contain_text("0.034 %")
    expect(rows.filter(has_text="any-decoder")).to_have_count(2)
    page.get_by_role("link", name=family).first.click()
    groups = page.get_by_role("region", name="Groups")
    expect(groups.get_by_role("img")).to_have_count(6)
    expect(page.locator(".message")).to_contain_text("degrees of freedom; expected 1.5")


def test_a_public_family_names_its_outliers_and_any_decoder_its_families(page: Page):
    page.goto("/noise-tables?family=modded-nanogpt-124M/records")
    expect(page.get_by_role("region", name="Groups").get_by_text("outlier")).to_have_count(4)
    page.goto("/noise-tables?family=any-decoder")
    expect(page.get_by_role("region", name="Groups").get_by_role("img")).to_have_count(7)
    expect(page.locator("main")).to_contain_text("of 7 families")


def test_the_reruns_that_ship_with_the_engine_say_who_uses_them(page: Page):
    page.goto("/noise-tables")
    rows = (
        page.get_by_role("region", name="Families")
        .get_by_role("row")
        .filter(has_text="ships with engine emulated")
    )
    expect(rows).to_have_count(4)
    rows.get_by_role("link", name=DEMO).first.click()
    expect(page.locator("main")).to_contain_text("fewer than 10 million parameters")
    expect(page.locator("main")).to_contain_text("Rounding stochastic:")


def test_a_family_that_is_not_usable_says_why(page: Page):
    page.goto("/noise-tables?family=GPT3-175B-C4-ckpt%2B1.2BT-BF16")
    expect(page.locator(".message")).to_contain_text("2 usable groups")


def test_the_table_over_rest_is_what_compare_reads(api, family):
    answer = api.get("/api/v1/noise-tables")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/csv")
    assert answer.text.splitlines()[0] == ",".join(COLUMNS)
    assert [len(one.groups) for one in read_noise_table(answer.text).families.values()] == [6]
    assert api.get("/noise-tables", params={"family": "nobody"}).status_code == 404


ROWS = [
    f"my-700M,g{number},5,2.73,{0.001 + 0.0001 * number},nearest,our runs,internal"
    for number in range(4)
]
TABLE = "\n".join(["family,group,runs,mean_loss,sd,rounding,source,licence", *ROWS])


def test_an_imported_family_is_marked_with_its_importer_source_and_licence(page: Page, database):
    with database.write() as session:
        import_noise_table(session, TABLE, None, "local")
    page.goto("/noise-tables")
    row = page.get_by_role("region", name="Families").get_by_role("row").filter(has_text="my-700M")
    expect(row).to_contain_text("imported; used by jobs that name it")
    row.get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("Imported: nobody here has seen these runs")
    groups = page.get_by_role("region", name="Groups")
    expect(
        groups.get_by_text("by this machine; source: our runs; licence: internal")
    ).to_have_count(4)


def test_a_table_is_imported_over_rest_and_read_back_apart_from_the_record(api, family):
    answer = api.post("/api/v1/noise-tables", json={"table": TABLE})
    assert (answer.status_code, answer.json()) == (
        201,
        {"families": ["my-700M"], "new_groups": 4, "known_groups": 0},
    )
    assert (
        api.post("/api/v1/noise-tables", json={"table": TABLE, "family": None}).json()[
            "known_groups"
        ]
        == 4
    )
    assert (
        len(read_noise_table(api.get("/api/v1/noise-tables", params={"of": "imported"}).text).rows)
        == 4
    )
    assert "my-700M" not in api.get("/api/v1/noise-tables").text
    bad = api.post("/api/v1/noise-tables", json={"table": TABLE, "family": "other"})
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/table")
    mine = api.get("/api/v1/noise-tables").text
    assert api.post("/api/v1/noise-tables", json={"table": mine}).status_code == 409
