"""The tests by which the flows are counted."""

import ast

import pytest

from tools.flows import FLOWS, ROOT


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_names_a_test_that_exists(flow):
    path, _, test = FLOWS[flow].partition("::")
    names = [
        node.name
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert test.partition("[")[0] in names
