"""The policies over REST."""

from parity import criteria_from_mapping
from parity.judging.criteria import PROFILES


def test_every_policy_is_told_with_its_margin_and_the_defaults_make_one(api):
    policies = api.get("/api/v1/policies").json()
    assert [one["name"] for one in policies["profiles"]] == list(PROFILES)
    margins = {one["name"]: one["margin"] for one in policies["profiles"]}
    assert margins["nvfp4"] == {"value": 0.01, "unit": "relative"}
    assert [name for name, margin in margins.items() if margin is None] == ["noise-floor"]
    for name in margins:
        assert criteria_from_mapping({**policies["defaults"], "profile": name}) == criteria_from_mapping({"profile": name})
