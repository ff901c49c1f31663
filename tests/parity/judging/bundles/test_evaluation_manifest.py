"""How many points a bundle of evaluations lists."""

import pytest


def test_a_list_of_points_holds_ten_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    from parity.judging.bundles import evaluation_manifest

    assert len(evaluation_manifest._listed([0] * 10_000, "at")) == 10_000
    with pytest.raises(ValueError, match="10,000"):
        evaluation_manifest._listed([0] * 10_001, "at")
