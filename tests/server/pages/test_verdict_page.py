"""The verdict's page in a browser: what is drawn is what is said, in every size and look, with and
without a script, and on paper.

Each check is also seen to find the flaw that it is there for.
"""

import gzip
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route

from parity.judging.case import Case
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.path import evaluation_path_of, with_path
from parity.readers import read_run
from parity.report.formats.markdown import render_markdown
from parity.report.html.assets import verdict_script, verdict_style
from parity.report.html.candidates_table import candidates_table
from parity.report.html.page import case_report, job_report, report_page
from parity.report.html.screen import Screen, answer_of, button, screen_html
from parity.report.picture.picture import picture
from parity.report.picture.scene import scene_of
from server.settings import CHECKOUT
from server.web.middleware import _HEADERS
from tests.parity.conftest import synthetic
from tests.parity.report.conftest import evaluated

KINDS = ("fail", "three", "thirty", "evaluations", "report")
# px: where answer, picture and strip end, so that a bar has room above
SIZES = {(1440, 900): 856, (1024, 768): None, (390, 844): 804}
PIXELS = 2.0
MOST_BYTES = 150_000
NUMBERS = itertools.count()
SHIFTS = (
    "window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((entry) => { "
    "window.shift += entry.value; }))"
    ".observe({ type: 'layout-shift', buffered: true })"
)
AXE = """axe.run({ resultTypes: ['violations'] })
  .then((found) => found.violations.map((one) => one.id + one.nodes[0].html.slice(0, 99)))"""
GEOMETRY = r"""() => {
  const number = (text) => parseFloat(text.replace("−", "-").replace("+", ""));
  const box = (what) => (typeof what === "string" ? document.querySelector(what) : what).getBoundingClientRect();
  const middle = (what) => box(what).top + box(what).height / 2;
  const first = ".screen > .pic ";
  const ticks = [...document.querySelectorAll(first + ".yax text")].map((text) => [number(text.textContent), middle(text)]);
  const [low, high] = [ticks[0], ticks[ticks.length - 1]];
  const value = (y) => low[0] + ((y - low[1]) * (high[0] - low[0])) / (high[1] - low[1]);
  const plot = box(first + ".area svg.s");
  const bands = document.querySelectorAll(first + ".cv.on .band");
  const points = bands[0].getAttribute("d").slice(1, -1).split("L").map((point) => point.split(" ").map(Number));
  const last = Math.max(...points.map(([x]) => x));
  const ends = points.filter(([x]) => x === last).map(([, y]) => value(plot.top + (y / 1000) * plot.height));
  const labels = [...document.querySelectorAll(first + ".jl")].filter((one) => one.checkVisibility() && box(one.querySelector("g")).width);
  const boxes = labels.map((one) => box(one.querySelector("g")));
  const apart = (a, b) => a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  const whisker = box(first + ".j.on .wh");
  return {
    strong: document.querySelector(".meas strong").textContent, label: document.querySelector("[data-judged]").textContent,
    interval: document.querySelector(".int").textContent, table: document.querySelector(".cand tr.on .v-gap")?.textContent ?? null,
    mark: value(middle(first + ".j.on .mk")), hi: value(whisker.top), lo: value(whisker.bottom),
    band: [Math.min(...ends), Math.max(...ends)], px: Math.abs(value(1) - value(0)),
    bottom: Math.max(...[".ans", ".screen > .pic", innerWidth < 700 ? ".next" : ".strip"].filter((name) => document.querySelector(name)).map((name) => box(name).bottom)),
    sideways: document.documentElement.scrollWidth - innerWidth,
    inside: boxes.every((one) => one.right <= box(first + ".jud").right + 4 && one.bottom <= box(first + ".jud").bottom + 4),
    apart: boxes.every((one, at) => boxes.slice(at + 1).every((other) => apart(one, other))),
  };
}"""  # noqa: E501


def case_of(gaps: dict[str, float], **changes: object) -> Case:
    runs = {
        name: [synthetic(600, seed=10 + place, gap=gap)]
        for place, (name, gap) in enumerate(gaps.items())
    }
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1.0%"})
    arguments = {
        "baseline": [synthetic(600)],
        "candidates": runs,
        "policy": policy,
        "baseline_name": "fp8",
        "planned_steps": 600,
    }
    return Case(**(arguments | changes))  # type: ignore[arg-type]


def real_case() -> Case:
    fp8, nvfp4 = (
        replace(read_run(str(CHECKOUT / "examples" / "curves" / f"{name}.csv")), recipe=name)
        for name in ("fp8", "nvfp4")
    )
    return case_of({}, baseline=[fp8], candidates={"nvfp4": [nvfp4]}, planned_steps=1500)


def evaluations() -> str:
    arms = [
        [evaluated(name, place, gap, many) for place in range(6)]
        for name, gap, many in (("fp8_current", 0.0, 2), ("nvfp4", 0.03, 3))
    ]
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1 %"})
    case = EvaluationCase(
        baseline=arms[0],
        candidates={"NVFP4": arms[1]},
        policy=policy,
        baseline_name="FP8",
        cluster="system",
    )
    document: Any = {**case.documents()[0], "path": evaluation_path_of(case, "NVFP4")}
    return report_page([document], scene_of([document]), ["NVFP4 against FP8"], with_script=True)


def report_of(case: Case) -> str:
    return case_report(case, with_path(case.verdicts()))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages that the product itself makes, one of each kind."""
    real = real_case()
    documents = with_path(real.verdicts())
    job = {
        "id": "j1",
        "name": "nightly",
        "finished_at": "2026-11-24T03:49:00",
        "verdicts": documents,
        "policy": {},
        "spec": {},
    }
    # thirty whole paths take longer than all of these tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("parity.judging.verdict.path.POINTS", 8)
        patch.setattr("parity.judging.verdict.path.FEWEST", 5)
        thirty = report_of(case_of({f"nvfp4-policy-{place}": 0.004 * place for place in range(30)}))
    return {
        "fail": report_of(real),
        "three": report_of(case_of({"mxfp8": 0.0, "nvfp4-wgrad16": 0.024, "nvfp4": 0.06})),
        "thirty": thirty,
        "evaluations": evaluations(),
        "report": job_report(job, "https://host/jobs/j1"),  # type: ignore[arg-type]
    }


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    made.add_init_script(SHIFTS)
    yield made
    made.close()


def shown(
    context: BrowserContext, html: str, size: tuple[int, int] = (1440, 900)
) -> tuple[Page, list[str]]:
    """A page of this HTML, and what it asked for besides itself."""
    # another one would take half a second
    page = context.pages[0] if context.pages else context.new_page()
    page.unroute_all()
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": size[0], "height": size[1]})
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(body=html, content_type="text/html; charset=utf-8")

    page.route("**/*", answer)
    # the same address again would keep where it was scrolled to
    page.goto(f"http://parity.test/{next(NUMBERS)}")
    return page, [address for address in asked[1:] if not address.startswith("data:")]


def number(text: str) -> float:
    return float(re.search(r"[+−-]?\d+\.\d+", text)[0].replace("−", "-"))  # type: ignore[index]


def layout_flaws(page: Page, size: tuple[int, int], asked: list[str]) -> Iterator[str]:
    if page.evaluate("window.shift") > 0.05:
        yield "shift"
    if asked:
        yield "request"
    geometry = page.evaluate(GEOMETRY)
    limit = SIZES[size]
    checks = {
        "sideways": geometry["sideways"] <= 0,
        "low": limit is None or geometry["bottom"] <= limit,
    }
    yield from (
        name
        for name, holds in (
            checks | {"inside": geometry["inside"], "overlap": geometry["apart"]}
        ).items()
        if not holds
    )
    yield from drawing_flaws(geometry)


def drawing_flaws(geometry: dict) -> Iterator[str]:
    """What is drawn, read back from pixels, against the sentence."""
    near = PIXELS * geometry["px"] + 6e-5
    ends = [
        float(end.replace("−", "-")) for end in re.findall(r"[+−]\d\.\d+", geometry["interval"])[:2]
    ]
    if abs(abs(number(geometry["label"])) - number(geometry["strong"])) > 1e-9:
        yield "headline"
    if geometry["table"] and number(geometry["table"]) != number(geometry["label"]):
        yield "table"
    if abs(geometry["mark"] - number(geometry["label"])) > near:
        yield "mark"
    if abs(geometry["lo"] - ends[0]) > near or abs(geometry["hi"] - ends[1]) > near:
        yield "whisker"
    if any(abs(drawn - end) > near for drawn, end in zip(geometry["band"], ends, strict=True)):
        yield "band"


def key_flaws(page: Page, *, several: bool) -> Iterator[str]:
    is_open = "document.querySelector('.more details').open"
    before = page.evaluate(is_open)
    page.keyboard.press("r")
    if page.evaluate(is_open) == before:
        yield "r"
    page.locator(".screen > .pic .plot").focus()
    box = page.locator(".screen > .pic .plot").bounding_box()
    page.keyboard.press("ArrowLeft")
    reading = page.locator(".screen > .pic .r").inner_text()
    label = page.locator("[data-judged]").text_content() or ""
    if not page.locator(".screen > .pic .cursor.on").count() or number(
        reading.partition(":")[2]
    ) != number(label):
        yield "cursor"
    page.keyboard.press("?")
    if not page.locator(".keys").is_visible():
        yield "help"
    page.keyboard.press("Escape")
    if several:
        chosen = "Number(document.querySelector('tr[aria-selected=true]').dataset.c)"
        place = page.evaluate(chosen)
        page.keyboard.press("k")
        if page.evaluate(chosen) != place - 1 or set(drawing_of_chosen(page)):
            yield "k"
    if page.locator(".screen > .pic .plot").bounding_box() != box:
        yield "moves"


def drawing_of_chosen(page: Page) -> Iterator[str]:
    """The flaws of another candidate's drawing, once it is chosen."""
    geometry = page.evaluate(GEOMETRY)
    if (
        number(geometry["label"]) != number(geometry["table"])
        or abs(geometry["mark"] - number(geometry["label"])) > PIXELS * geometry["px"] + 6e-5
    ):
        yield "chosen"
    if (
        abs(geometry["band"][0] - geometry["lo"]) > 2 * PIXELS * geometry["px"]
        or abs(geometry["band"][1] - geometry["hi"]) > 2 * PIXELS * geometry["px"]
    ):
        yield "chosen"


def look_flaws(page: Page) -> Iterator[str]:
    page.emulate_media(media="print")
    if page.locator(".acts, .keys, kbd").filter(visible=True).count():
        yield "print"
    page.evaluate(
        (CHECKOUT / "node_modules" / "axe-core" / "axe.min.js").read_text() + "; undefined"
    )
    for scheme in ("light", "dark"):
        page.emulate_media(media="screen", color_scheme=scheme)
        yield from (f"axe: {one}" for one in page.evaluate(AXE))


def test_what_is_drawn_is_what_is_said_in_every_size(
    kind: str, pages: dict[str, str], context: BrowserContext
) -> None:
    for size in SIZES:
        page, asked = shown(context, pages[kind], size)
        assert list(layout_flaws(page, size, asked)) == [], size
    # as the server sends it (`GZipMiddleware`)
    assert len(gzip.compress(pages[kind].encode(), 1)) < MOST_BYTES


def test_keys_light_dark_and_paper(
    kind: str, pages: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, pages[kind])
    if kind != "report":
        assert list(key_flaws(page, several=kind in ("three", "thirty"))) == []
    assert list(look_flaws(page)) == []


def test_without_a_script_the_picture_is_the_same(
    kind: str, pages: dict[str, str], browser: Browser, context: BrowserContext
) -> None:
    plain = browser.new_context(java_script_enabled=False)
    images = []
    for where in (plain, context):
        page, _ = shown(where, pages[kind])
        images.append(page.locator(".screen > .pic").screenshot())
        assert "oading" not in page.locator("body").inner_text()
    plain.close()
    assert images[0] == images[1]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def styled(rule: str) -> Callable[[str], str]:
    return lambda html: html.replace("</style>", f"{rule}</style>", 1)


def changed(old: str, new: str) -> Callable[[str], str]:
    def change(html: str) -> str:
        after = re.sub(old, new, html, count=1)
        assert after != html
        return after

    return change


MOVES = """new MutationObserver(() => { document.querySelector(".ctx").style.marginBottom = "300px"; })
  .observe(document.querySelector(".cand"), { attributes: true, subtree: true })"""  # noqa: E501
FLAWS: dict[str, Callable[[str], str]] = {
    "headline": changed(r'(data-judged="1">[+−])\d', r"\g<1>9"),
    "table": changed(r'(aria-selected="true".*?v-gap">[+−])\d', r"\g<1>9"),
    "mark": changed(r'(<svg y=")([\d.]+%"><g class="k k2">)', r"\g<1>9\g<2>"),
    "whisker": changed(r'(class="j c-fail on".*?x2="0" y1=")[\d.]+%', r"\g<1>1%"),
    "band": styled(".v .pic .area svg.s{transform:translateY(8px)}"),
    "low": styled(".v h1{margin-bottom:500px!important}"),
    "sideways": styled(".v .strip{width:2000px!important}"),
    "inside": styled(".v .beside{transform:translateX(220px)!important}"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_found(flaw: str, pages: dict[str, str], context: BrowserContext) -> None:
    page, asked = shown(context, FLAWS[flaw](pages["three"]))
    assert flaw in list(layout_flaws(page, (1440, 900), asked))


@pytest.mark.parametrize(
    ("flaw", "plant"),
    [
        (
            "overlap",
            "document.querySelectorAll('.jl').forEach((one) => one.setAttribute('y', '50%'))",
        ),
        ("shift", "window.shift = 0.06"),
        ("request", ""),
        (
            "band",
            (
                "document.querySelector('.cv.on .band').setAttribute('d', 'M0 0L1000 100L1000 "
                "200L0 500Z')"
            ),
        ),
    ],
)
def test_a_flaw_that_a_script_plants_is_found(
    flaw: str, plant: str, pages: dict[str, str], context: BrowserContext
) -> None:
    page, asked = shown(context, pages["three"])
    page.evaluate(plant)
    assert flaw in list(
        layout_flaws(page, (1440, 900), asked if plant else ["http://parity.test/x.js"])
    )


@pytest.mark.parametrize(
    ("flaw", "plant"),
    [
        ("r", "document.querySelector('[data-key=r]').dataset.key = '_'"),
        ("cursor", "document.querySelector('.cursor').remove()"),
        ("help", "document.querySelector('.keys').style.visibility = 'hidden'"),
        (
            "k",
            "document.querySelectorAll('.cand tr').forEach((one) => one.removeAttribute('data-c'))",
        ),
        ("moves", MOVES),
    ],
)
def test_a_flaw_of_the_keys_is_found(
    flaw: str, plant: str, pages: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, pages["three"])
    page.evaluate(plant)
    assert flaw in list(key_flaws(page, several=True))


@pytest.mark.parametrize(
    ("flaw", "plant"),
    [
        ("print", styled("@media print{.v kbd{display:inline!important}}")),
        ("axe: color-contrast", styled(".v .int{color:#bbb!important}")),
    ],
)
def test_a_flaw_of_the_looks_is_found(
    flaw: str, plant: Callable[[str], str], pages: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, plant(pages["fail"]))
    assert any(found.startswith(flaw) for found in look_flaws(page))


def test_the_strip_says_whose_facts_it_shows_and_follows_the_choice(
    pages: dict[str, str], context: BrowserContext
) -> None:
    page, _ = shown(context, pages["three"])
    strip = page.locator(".strip > div")
    assert [text.partition(" · ")[2] for text in strip.locator("dt").all_inner_texts()] == [
        "",
        *["nvfp4"] * 4,
    ]
    before = strip.last.locator("dd").inner_text()
    page.keyboard.press("k")
    assert strip.last.locator("dt").inner_text().endswith("nvfp4-wgrad16")
    assert strip.last.locator("dd").inner_text() != before
    height = page.locator(".more").bounding_box()  # with room for the longest answer
    page.keyboard.press("j")
    assert strip.last.locator("dd").inner_text() == before
    assert page.locator(".more").bounding_box() == height


def test_the_comment_has_the_sentences_of_the_page(
    pages: dict[str, str], context: BrowserContext
) -> None:
    comment = " ".join(
        render_markdown(real_case().documents()).replace("**", "").replace("\\", "").split()
    )
    page, _ = shown(context, pages["fail"])
    for place in ("h1", ".meas", ".int"):
        assert page.locator(place).inner_text() in comment


def test_the_servers_policy_lets_the_picture_be_as_it_is(context: BrowserContext) -> None:
    documents = with_path(real_case().verdicts())
    screen = Screen(
        context=["job"],
        answer=answer_of(documents),
        picture=picture(scene_of(documents)),
        table=candidates_table(documents),
        buttons=[button("Try again", "/pressed")],
    )
    links = (
        '<link rel="stylesheet" href="/verdict.css"><script type="module" '
        'src="/verdict.js"></script>'
    )
    files = {
        "/": (
            (
                f'<!doctype html><html lang="en"><head>{links}</head><body class="v"><main '
                f'class="v wrap">{screen_html(screen)}</main>'
            ),
            "html",
        ),
        "/verdict.css": (verdict_style(), "css"),
        "/verdict.js": (verdict_script(), "javascript"),
        "/pressed": ("<!doctype html>", "html"),
    }
    page = context.new_page()
    page.set_viewport_size({"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    policy = {"Content-Security-Policy": _HEADERS["Content-Security-Policy"]}

    def answer(route):
        body, kind = files.get(
            "/" + route.request.url.removeprefix("http://parity.test/"), ("", "plain")
        )
        route.fulfill(body=body, headers={**policy, "Content-Type": f"text/{kind}; charset=utf-8"})

    page.route("**/*", answer)
    page.goto("http://parity.test/")
    assert list(drawing_flaws(page.evaluate(GEOMETRY))) == []
    page.locator(".plot").hover()
    assert page.locator(".cursor.on").count() == 1
    assert problems == []
    page.locator("h1").click()
    page.keyboard.press("Enter")
    page.wait_for_url("**/pressed")
    page.close()
