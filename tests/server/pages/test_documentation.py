"""/docs: the documentation as `make docs` builds it, offline and under the server's policy; without
it, how to build it.
"""

import re
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import expect
from typer.main import get_command

from parity.cli.application import app
from parity.judging.precedence import table
from server.run_codes import RUN_CODES
from server.settings import CHECKOUT, Settings
from tests.server.pages.conftest import MOVING

LOOKS = ["narrow"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly: a broken link, anchor or reference fails (with --quiet none would:
    mkdocs counts no warnings then).
    """
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=CHECKOUT, check=False, capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture
def api_settings(api_settings, site):
    return api_settings.model_copy(update={"docs_dir": site})


class TestNotBuilt:
    @pytest.fixture
    def site(self, tmp_path):
        return tmp_path / "docs"

    def test_docs_say_how_to_build_them(self, api):
        answer = api.get("/docs/")
        assert answer.status_code == 200
        assert "make docs" in answer.text
        assert api.get("/docs/tutorial-service/").status_code == 404

    def test_their_header_is_that_of_the_other_pages(self, api):
        links = re.compile(r'<nav aria-label="Pages">.*?</nav>', re.DOTALL)
        names = [
            re.findall(r"<a [^>]*>(.*?)</a>", links.search(api.get(path).text)[0])
            for path in ("/jobs", "/docs/", "/docs/nothing/")
        ]
        assert names[0] == names[1] == names[2]
        assert "Tokens" in names[0]

    def test_they_appear_without_a_restart(self, api, site):
        site.mkdir()
        (site / "index.html").write_text("built")
        assert api.get("/docs/").text == "built"


def test_every_kind_of_page_is_there(api):
    pages = (
        "tutorial-service/",
        "cli/",
        "rest/",
        "python-api/",
        "design/judge/",
        "glossary/",
        "CONTRIBUTING/",
        "examples/demo.yaml/",
    )
    for page in ("", *pages):
        assert api.get(f"/docs/{page}").status_code == 200, page
    missing = api.get("/docs/nothing/")
    assert missing.status_code == 404
    assert "/docs/assets/" in missing.text


def test_each_code_of_a_verdict_and_of_a_run_has_an_anchor(site):
    verdicts = (site / "codes" / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'<h3 id="([a-z0-9_]+)"', verdicts)) == {
        entry.code.lower() for _, entry in table()
    }
    assert {f"runs-and-jobs-{code}" for code in RUN_CODES} <= set(
        re.findall(r'id="([\w-]+)"', verdicts)
    )


def test_each_setting_and_each_option_has_an_anchor(site):
    settings = (site / "settings" / "index.html").read_text(encoding="utf-8")
    assert {f"parity_{name}" for name in Settings.model_fields} <= set(
        re.findall(r'id="(\w+)"', settings)
    )
    options = set(
        re.findall(
            r'id="(parity-[\w-]+)"', (site / "cli" / "index.html").read_text(encoding="utf-8")
        )
    )
    group: Any = get_command(app)
    for name in group.list_commands(None):
        parameters = group.get_command(None, name).params
        flags = {
            max(parameter.opts, key=len)
            for parameter in parameters
            if parameter.param_type_name == "option" and not parameter.hidden
        }
        assert {f"parity-{name}{flag}" for flag in flags} <= options, name


def test_pages_have_no_inline_script_and_a_policy_that_forbids_it(api, site):
    assert "script-src" not in api.get("/docs/").headers["Content-Security-Policy"]
    assert "unsafe-inline" not in api.get("/docs/").headers["Content-Security-Policy"]
    for page in site.rglob("*.html"):
        assert "<script>" not in page.read_text(encoding="utf-8"), page


def test_generated_pages_have_every_command_operation_and_name(site):
    import parity

    text = {
        name: (site / name / "index.html").read_text(encoding="utf-8")
        for name in ("cli", "rest", "python-api")
    }
    assert 'id="parity-baseline-promote"' in text["cli"]
    assert "/api/v1/jobs/{job_id}:cancel" in text["rest"]
    assert all(
        f'id="{parity._HOMES[name]}.{name}"' in text["python-api"] for name in parity.__all__
    )


def test_every_page_and_refusal_links_to_it(api):
    for page in ("jobs", "workers", "login", "nothing"):
        assert 'href="/docs/"' in api.get(f"/{page}", headers={"Accept": "text/html"}).text, page
    assert (
        api.get("/api/v1/jobs/j0").headers["Link"] == '</docs/codes/#refused-requests>; rel="help"'
    )
    assert 'id="refused-requests"' in api.get("/docs/codes/").text


def test_its_search_finds_a_term(page, look):
    page.goto("/docs/")
    page.locator("label[for=__search]").first.click()
    # What is typed while the index is read is lost.
    expect(page.locator(".md-search-result__meta")).to_have_text(
        "Type to start searching", timeout=60_000
    )
    page.locator("[data-md-component=search-query]").press_sequentially("noise floor")
    expect(page.locator(".md-search-result__item").first).to_contain_text(
        "floor", ignore_case=True, timeout=60_000
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.parametrize("path", ["/docs/", "/docs/operate/", "/docs/api"])
def test_axe_finds_nothing_serious_and_less_motion_is_none(page, path):
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(path)
    page.locator("table, .opblock-tag").first.wait_for()
    # all are alike
    page.evaluate(
        "[...document.querySelectorAll('.opblock')].slice(12).forEach((one) => one.remove())"
    )
    page.evaluate(
        (CHECKOUT / "node_modules" / "axe-core" / "axe.min.js").read_text() + "; undefined"
    )
    for scheme, rules in (
        ("light", {}),
        ("dark", {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}),
    ):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        # scripts hear of a change then
        page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        options = {"resultTypes": ["violations"]} | rules
        violations = page.evaluate(
            "(options) => axe.run(options).then((results) => results.violations)", options
        )
        grave = [one for one in violations if one["impact"] in ("serious", "critical")]
        assert [(scheme, one["id"], one["nodes"][0]["html"][:160]) for one in grave] == []
        assert page.evaluate(MOVING) == []


def test_the_api_can_be_tried(page):
    page.goto("/docs/api")
    page.locator("#operations-tag-jobs").click()
    page.locator("#operations-jobs-index_api_v1_jobs_get .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
