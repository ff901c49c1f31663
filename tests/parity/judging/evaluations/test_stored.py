import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from parity.judging.bundles.read_bundle import EvidenceError, case_of
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.policy import policy_from_mapping
from tests.parity.judging.evaluations.test_case import arm, on_systems


def case() -> EvaluationCase:
    return EvaluationCase(
        baseline=on_systems(arm(1, 3), "ab"),
        candidates={"nvfp4": on_systems(arm(2, 3), "cd"), "mxfp8": on_systems(arm(3, 3), "ab")},
        policy=policy_from_mapping({"profile": "nvfp4"}),
        baseline_name="fp8",
        cluster="system",
        at=(9000, 10000),
        target=3.2,
        tokens_per_step=2048.0,
        planned_steps=10_000,
        times=[
            RunTimes(
                arm="fp8", run="1-0", hardware="b200", step_seconds=0.3, seconds_to_target=None
            )
        ],
    )


def bundle(path: Path) -> str:
    path.write_bytes(bundle_bytes(case(), case().documents()))
    return str(path)


def with_manifest(path: Path, **changes: Any) -> str:
    """The bundle with other values in its manifest."""
    with zipfile.ZipFile(bundle(path)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["manifest.json"] = json.dumps({**json.loads(files["manifest.json"]), **changes}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    path.write_bytes(buffer.getvalue())
    return str(path)


def test_a_bundle_verifies_and_gives_the_case_back(tmp_path: Path) -> None:
    path = bundle(tmp_path / "case.zip")
    verification = verify(path)
    assert verification.differences == ()
    assert verification.same_judge
    back = case_of(path)
    assert isinstance(back, EvaluationCase)
    assert (back.cluster, back.at, back.target, back.times) == (
        "system",
        (9000, 10000),
        3.2,
        case().times,
    )
    assert back.documents() == case().documents()


def test_a_changed_question_is_seen(tmp_path: Path) -> None:
    verification = verify(with_manifest(tmp_path / "case.zip", target=3.25))
    assert any("target" in line for line in verification.differences)


@pytest.mark.parametrize(
    "changes",
    [
        {"at": "all"},
        {"at": [1.5]},
        {"at": [7]},
        {"times": [{"arm": "fp8"}]},
        {"times": [[]]},
        {"target": True},
        {"target": -3.0},
        {"paired": 1},
        {"cluster": 7},
        {"cluster": "rack"},
        {"times": [{}] * 10_001},
    ],
)
def test_a_wrong_manifest_is_one_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError):
        verify(with_manifest(tmp_path / "case.zip", **changes))
