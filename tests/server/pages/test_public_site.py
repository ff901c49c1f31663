"""The exported public verdicts, from a file server and under a path below its root: filters,
pictures and cards work, and nothing is asked of another address.
"""

import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from parity.cli import main as parity
from server.pages.public_verdicts import gallery
from tools.public_verdicts.__main__ import main
from tools.public_verdicts.site import write_site


class QuietHandler(SimpleHTTPRequestHandler):
    """A file server, as `python -m http.server` is one, that prints no requests."""

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "below" / "a path"
    write_site(folder)
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=site.parents[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/below/a%20path/"
        server.shutdown()


@pytest.fixture
def asked(site_page: Page) -> list[str]:
    """The addresses that the page asked for."""
    found: list[str] = []
    site_page.on("request", lambda request: found.append(request.url))
    return found


@pytest.fixture
def site_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else None
    )
    yield page
    page.close()
    assert errors == []


def chosen(recipe: str, scale: str) -> list[str]:
    """The labels of the answers with a recipe at a scale."""
    return [
        answer["label"]
        for answer in gallery()["answers"]
        if recipe in ("", answer["family"]) and scale in ("", answer["scale"])
    ]


def test_the_filters_choose_rows_and_are_part_of_the_address(site_page, asked, address):
    site_page.goto(address)
    rows = site_page.locator(".public tbody tr:visible td:first-child a")
    assert rows.all_text_contents() == chosen("", "")
    before = len(asked)
    site_page.get_by_label("Recipe").select_option("MXFP8")
    assert rows.all_text_contents() == chosen("MXFP8", "")
    site_page.get_by_label("Parameters").select_option("1 to 20 B")
    assert rows.all_text_contents() == chosen("MXFP8", "1 to 20 B")
    expect(site_page.locator("[role=status]")).to_have_text(
        f"{len(chosen('MXFP8', '1 to 20 B'))} of {len(gallery()['answers'])} answers"
    )
    assert asked[before:] == []
    shared = site_page.url
    site_page.goto(address)
    site_page.goto(shared)
    assert rows.all_text_contents() == chosen("MXFP8", "1 to 20 B")
    assert site_page.get_by_label("Recipe").input_value() == "MXFP8"
    assert all(url.startswith(address) for url in asked)


def test_a_choice_without_an_answer_says_so_and_an_unknown_one_shows_all(site_page, address):
    site_page.goto(f"{address}?recipe=MXFP8&scale=below+1+B")
    expect(site_page.locator(".message")).to_be_visible()
    site_page.goto(f"{address}?recipe=nobody")
    expect(site_page.locator(".message")).to_be_hidden()
    assert site_page.locator(".public tbody tr:visible").count() == len(gallery()["answers"])


def test_the_list_is_whole_from_a_folder_and_without_a_script(site, browser):
    for script in (True, False):
        page = browser.new_context(java_script_enabled=script).new_page()
        page.goto((site / "index.html").as_uri())
        assert page.locator(".public tbody tr").count() == len(gallery()["answers"])
        assert page.get_by_label("Recipe").is_visible() == script
        if script:
            page.get_by_label("Recipe").select_option("MXFP8")
            rows = page.locator(".public tbody tr:visible td:first-child a")
            assert rows.all_text_contents() == chosen("MXFP8", "")
        page.close()


def test_each_set_has_its_verdicts_pictures_and_cards(site_page, address):
    for name in gallery()["sets"]:
        site_page.goto(f"{address}{name}.html")
        screens = sum(
            bool(answer["screen"]) for answer in gallery()["answers"] if answer["set"] == name
        )
        expect(site_page.locator("article .ans")).to_have_count(screens)
        assert site_page.get_by_role("link", name="verification card").count() == screens
        assert site_page.get_by_role("link", name="picture").count() == screens
        widths = site_page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1]


def test_every_address_is_relative_and_leads_to_a_file(site):
    for page in site.glob("*.html"):
        found = re.findall(r'(?:href|src|action)="([^"#]+)"', page.read_text(encoding="utf-8"))
        assert found
        assert "examples/public" not in page.read_text(encoding="utf-8")
        for target in map(urlsplit, found):
            assert (target.scheme, target.netloc, target.path[:1] == "/") == ("", "", False)
            assert (site / unquote(target.path)).is_file(), (page.name, target.path)


def test_each_card_has_the_state_of_its_answer(site):
    cards = {path.name for path in site.glob("*.card.yaml")}
    for answer in gallery()["answers"]:
        if answer["screen"]:
            stem = "-".join(filter(None, (answer["set"], answer["question"])))
            card = yaml.safe_load((site / f"{stem}.card.yaml").read_text(encoding="utf-8"))
            assert card["state"] == answer["verdict"], stem
            assert (site / f"{stem}.svg").read_text(encoding="utf-8").startswith("<?xml")
            cards.discard(f"{stem}.card.yaml")
    assert cards == set()


def test_a_downloaded_set_verifies_its_card(site, monkeypatch, capsys):
    monkeypatch.chdir(site)
    with pytest.raises(SystemExit) as ended:
        parity(["verify", "gb200-continued-mxfp8.card.yaml", "gb200-continued/parity.yaml:mxfp8"])
    assert (ended.value.code or 0) == 0
    assert capsys.readouterr().out.startswith("verified")


def test_a_folder_with_files_is_refused(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["--site", str(tmp_path)])
    assert ended.value.code == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
