"""The bundle that tools/record_judge.py writes is one of this judge, and verifies."""

import shutil
from pathlib import Path

import pytest

from parity.judging.bundles.verification import verify
from parity.version import JUDGE_VERSION
from tools import record_judge


def test_the_bundle_is_this_judges_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(record_judge.DATA / "judge-0.1.0.zip", tmp_path)
    monkeypatch.setattr(record_judge, "DATA", tmp_path)
    record_judge.main()
    verification = verify(str(tmp_path / f"judge-{JUDGE_VERSION}.zip"))
    assert (verification.same_judge, verification.differences) == (True, ())
