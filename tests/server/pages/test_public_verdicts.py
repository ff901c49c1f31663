"""/public: every public verdict on one axis, filters that work without a script, and a page for
each set.
"""

from playwright.sync_api import Page, expect

from server.pages.public_verdicts import gallery

LOOKS = ["light", "dark"]


def test_the_list_has_every_answer_and_filters_by_recipe_and_scale(page: Page):
    page.goto("/public")
    rows = page.locator(".public tbody tr")
    expect(rows).to_have_count(len(gallery()["answers"]))
    expect(page.locator(".public tbody svg.forest")).to_have_count(len(gallery()["answers"]))
    said = page.locator(".public tbody td:first-child b").all_text_contents()
    assert said == [answer["verdict"] for answer in gallery()["answers"]]  # one word for a verdict
    page.get_by_label("Recipe").select_option("MXFP8")
    page.get_by_label("Parameters").select_option("1 to 20 B")
    page.get_by_role("button", name="Show").click()
    chosen = [
        answer
        for answer in gallery()["answers"]
        if (answer["family"], answer["scale"]) == ("MXFP8", "1 to 20 B")
    ]
    expect(rows).to_have_count(len(chosen))
    assert "recipe=MXFP8" in page.url
    page.goto("/public?recipe=MXFP8&scale=below+1+B")
    expect(page.locator(".message")).to_contain_text("No answer")


def test_a_set_has_the_first_screen_of_each_verdict(page: Page):
    page.goto("/public")
    page.get_by_role("link", name="Llama 3.1 8B: nvfp4_mixed").click()
    expect(page.locator("article .ans")).to_have_count(2)
    expect(page.locator("article figure.pic")).to_have_count(2)
    expect(page.locator("article").first).to_contain_text("Do not switch to nvfp4_mixed.")
    expect(page.locator("main")).to_contain_text("4 x GB200")


def test_the_pages_are_complete_without_a_script(api):
    listed = api.get("/public").text
    for name, about in gallery()["sets"].items():
        assert f'href="/public/{name}"' in listed
        answer = api.get(f"/public/{name}")
        assert answer.status_code == 200
        assert ("Not verified by MLCommons" in answer.text) == bool(about.get("mlperf"))
    assert "<script" not in listed
    assert api.get("/public/nobody").status_code == 404
