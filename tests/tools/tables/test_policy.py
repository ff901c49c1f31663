import re
from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command

from parity.cli.application import app
from parity.gate.rules import GateRules
from parity.judging.policy import PROFILES, Policy, policy_from_mapping
from tools.tables.policy import GATE, ORIGINS, POLICY, gate_table, policy_table


@pytest.mark.parametrize(
    ("kind", "meanings"), [(Policy, POLICY), (GateRules, GATE)], ids=["policy", "gate"]
)
def test_every_key_has_a_meaning(kind, meanings) -> None:
    assert list(meanings) == [field.name for field in fields(kind)]


def test_every_profile_has_its_origin() -> None:
    assert set(ORIGINS) == set(PROFILES)


def test_defaults_and_ranges_are_those_of_the_code() -> None:
    assert "| `confidence` | `0.95` | 0.5 to 0.9999 |" in policy_table()
    assert "| `checks` | `[loss]` | a list of `loss`, " in policy_table()
    assert "| `max_age_days` | `7` | 0 to 3,650 |" in gate_table()
    with pytest.raises(ValueError, match="confidence"):
        policy_from_mapping({"margin": "1%", "confidence": 0.49})


def test_every_option_that_is_named_exists() -> None:
    group: Any = get_command(app)
    for command, meanings in (("compare", POLICY), ("gate", GATE)):
        options = {
            name for parameter in group.get_command(None, command).params for name in parameter.opts
        }
        assert set(re.findall(r"--[a-z-]+", " ".join(meanings.values()))) <= options
