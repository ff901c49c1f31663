import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import numpy as np
import pytest

from parity import Criteria, Curve, curve_from_arrays, judge
from parity.decision import _TABLE, FAIL
from parity.junit import _FAILURES, CHECKS, render_junit

MakeRun = Callable[..., Curve]


@pytest.mark.parametrize(
    ("name", "failures", "errors", "skipped", "check"),
    [
        ("good", 0, 0, 0, None),
        ("worse", 1, 0, 0, "gap against margin"),
        ("nan", 1, 1, 1, "finite losses"),
        ("edge", 0, 1, 0, "gap against margin"),
    ],
)
def test_cases(name: str, failures: int, errors: int, skipped: int, check: str | None, make_run: MakeRun, one_percent: Criteria) -> None:
    runs = {
        "good": make_run(seed=2),
        "worse": make_run(seed=2, gap=0.1),
        "nan": curve_from_arrays(np.arange(2000), np.full(2000, np.nan)),
        "edge": make_run(seed=2, gap=0.0265),
    }
    (verdict,) = judge([make_run()], {f"{name}<\x00&>": [runs[name]]}, one_percent, planned_steps=2000)
    root = ElementTree.fromstring(render_junit([verdict.document()]).split("\n", 1)[1])  # noqa: S314  (our own text)
    suite = root.find("testsuite")
    assert suite is not None
    assert [int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")] == [len(CHECKS), failures, errors, skipped]
    bad = {case.get("name"): case[0].tag for case in suite.findall("testcase") if len(case)}
    if check:
        assert check in bad
    assert {item.get("name"): item.get("value") for item in suite.iter("property")}["verdict"] == verdict.verdict


def test_every_code_of_the_table_belongs_to_one_check() -> None:
    codes = [code for name, check in CHECKS.items() for code in check if name != "gates beside the loss"]
    assert sorted(codes) == sorted({code for _, code, _ in _TABLE})
    assert {code for state, code, _ in _TABLE if state == FAIL} <= _FAILURES
