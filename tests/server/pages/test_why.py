"""The page of an analysis in a real browser: the named unit, the waterfall, the heat map, and its
links.
"""

import html
import re

from playwright.sync_api import Page, expect

from parity_lab.server.analyses import WhyRequest, submit_analysis
from server.jobs.conclude import conclude
from tests.server.analyses import make_ablated, make_explained, measured

LOOKS = ["light"]
NAMED = "0.down.wgrad"


def test_an_analysis_from_its_plan_to_its_answer(page: Page, database):
    explained = make_explained(database)
    page.goto(f"/jobs/{explained}")
    expect(page.locator(".explain").first).to_contain_text(
        f"parity why {explained} --candidate planted"
    )
    with database.write() as session:
        analysis = submit_analysis(session, explained, WhyRequest())[0].id
    page.goto(f"/jobs/{analysis}")
    expect(page).to_have_url(f"/jobs/{analysis}/why")
    expect(page.locator("#main")).to_contain_text("The forks have no result yet")
    measured(database, analysis, {NAMED: 0.02})
    conclude(database, analysis)
    # the page refreshes itself
    expect(page.locator(".headline")).to_contain_text(
        f"{NAMED}: switching it off gains", timeout=60_000
    )
    expect(page.get_by_role("img", name=NAMED).first).to_be_visible()
    cell = page.locator(".heat-map td", has_text="◆")
    expect(cell).to_have_count(1)
    assert "named" in (cell.get_attribute("title") or "")
    page.goto(f"/jobs/{explained}/why")
    expect(page).to_have_url(f"/jobs/{analysis}/why")
    page.goto(f"/jobs/{explained}")
    expect(page.locator(".explain a").first).to_have_attribute("href", f"/jobs/{explained}/why")


def test_an_analysis_without_a_guilty_unit_says_so(page: Page, database):
    with database.write() as session:
        analysis = submit_analysis(session, make_explained(database), WhyRequest())[0].id
    measured(database, analysis, {})
    conclude(database, analysis)
    page.goto(f"/jobs/{analysis}/why")
    expect(page.locator(".headline")).to_contain_text("No GEMM is named")
    expect(page.locator("#main")).to_contain_text("--fork-steps")


def test_a_record_that_is_not_followed_says_where_and_names_nothing(page: Page, database):
    explained = make_explained(database, rate=1.3e-3)
    with database.write() as session:
        analysis = submit_analysis(session, explained, WhyRequest(anyway=True))[0].id
    measured(database, analysis, {NAMED: 0.02})
    conclude(database, analysis)
    page.goto(f"/jobs/{analysis}/why")
    expect(page.locator(".headline")).to_contain_text("Not in the precision of these GEMMs")
    expect(page.locator("#main li")).to_contain_text(
        "learning rate at step 0: 0.001 in the baseline, 0.0013 in the candidate"
    )
    expect(page.locator(".heat-map")).to_have_count(0)


def test_the_units_of_a_named_group_are_listed(page: Page, database):
    with database.write() as session:
        question = WhyRequest(budget=6620)  # not enough to tell the three apart
        analysis = submit_analysis(session, make_explained(database), question)[0].id
    group = ("0.down.dgrad", "0.down.fprop", "0.down.wgrad")
    measured(database, analysis, dict.fromkeys(group, 0.0006))
    conclude(database, analysis)
    page.goto(f"/jobs/{analysis}/why")
    units = page.locator("details", has=page.get_by_text("The 3 GEMMs of"))
    units.locator("summary").click()
    for name in group:
        expect(units.locator("p")).to_contain_text(name)


def test_units_that_act_together_have_an_interaction(page: Page, database):
    with database.write() as session:
        analysis = submit_analysis(session, make_explained(database), WhyRequest())[0].id
    measured(
        database, analysis, {NAMED: 0.02, "0.down.fprop": 0.02, (NAMED, "0.down.fprop"): -0.01}
    )
    conclude(database, analysis)
    page.goto(f"/jobs/{analysis}/why")
    rows = page.locator("section", has=page.locator("#forks")).locator(".waterfall tbody tr")
    expect(rows).to_contain_text(
        [
            "gap of the full runs",
            "effect at step 600",
            "0.down.",
            "0.down.",
            "interaction",
            "unexplained",
        ]
    )
    expect(page.get_by_role("img", name="interaction: +0.0")).to_be_visible()


def test_the_parts_by_ablation_runs_have_the_same_waterfall(page: Page, database):
    job = make_ablated(database)
    page.goto(f"/jobs/{job}?candidate=full")
    page.get_by_role("link", name="The gap in parts, by such ablation runs").last.click()
    named = "candidate=full&ablation=without-mlp&ablation=without-attention"
    expect(page).to_have_url(f"/jobs/{job}/why/ablations?{named}")
    rows = page.locator(".waterfall tbody tr")
    expect(rows).to_have_count(4)  # the gap, two parts, and what is unexplained
    expect(page.get_by_role("img", name="without-mlp")).to_be_visible()
    expect(page.locator("#main")).to_contain_text("is no verdict")


def test_only_a_candidate_with_ablations_leads_to_its_gap_in_parts(api, database, many_judged):
    job = make_ablated(database)
    linked = re.findall(r'href="(/jobs/[^"]+/why/ablations[^"]+)"', api.get(f"/jobs/{job}").text)
    assert linked
    for address in linked:
        assert api.get(html.unescape(address)).status_code == 200
    # twelve candidates with one recipe and the same settings: none leaves out a part of another
    reasons = api.get(f"/jobs/{many_judged}/parts/reasons?candidate=c11").text
    assert "Checks of c11" in reasons
    assert "ablations" not in reasons
