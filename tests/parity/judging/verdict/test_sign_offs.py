"""What a person may accept, and when an acceptance holds."""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.policy import Policy
from parity.judging.verdict.sign_offs import (
    SignOffDocument,
    accepted,
    sha256_of,
    why_not_acceptable,
)
from parity.judging.verdict.verdict import judge

POLICY = {"margin": "1.0 %"}


def _signed(document: VerdictDocument, **changes: Any) -> SignOffDocument:
    return {  # type: ignore[return-value]
        "id": "s1",
        "candidate": document["candidate"]["name"],
        "state": "valid",
        "who": "ann",
        "reason": "reruns are queued",
        "created_at": "2026-11-23T00:00:00Z",
        "expires_at": "2026-12-07T00:00:00Z",
        "revoked_at": None,
        "revoked_by": None,
        "revoke_reason": None,
        "verdict_sha256": sha256_of(document),
        "policy_sha256": sha256_of(POLICY),
        **changes,
    }


def _open(
    gap: dict[str, Any] | None,
    margin: dict[str, Any] | None,
    code: str,
    verdict: str = "inconclusive",
) -> Any:
    return {
        "verdict": verdict,
        "codes": [code],
        "gap": gap,
        "margin": margin,
        "candidate": {"name": "c"},
        "window": {"n": 200},
    }


MEASURED = {"mean": 0.01, "lo": -0.01, "hi": 0.03}


def test_only_an_inconclusive_verdict_on_a_measured_gap_can_be_accepted() -> None:
    margin = {"nats": 0.014}
    assert why_not_acceptable(_open(MEASURED, margin, "CI_STRADDLES_MARGIN")) is None
    assert why_not_acceptable(_open(MEASURED, margin, "CONFOUNDED")) is None
    for verdict in ("pass", "fail"):
        assert verdict in (
            why_not_acceptable(_open(MEASURED, margin, "GAP_EXCEEDS_MARGIN", verdict)) or ""
        )
    refused = [
        _open(None, margin, "EMPTY"),
        _open(None, None, "NO_COMMON_STEPS"),
        _open(MEASURED, None, "MARGIN_UNDETERMINED"),
        _open({**MEASURED, "hi": "inf"}, margin, "CI_STRADDLES_MARGIN"),
        _open({**MEASURED, "hi": float("nan")}, margin, "CI_STRADDLES_MARGIN"),
        _open(MEASURED, margin, "ARMS_IDENTICAL"),
        _open(MEASURED, margin, "DATA_ORDER_MISMATCH"),
        _open(MEASURED, margin, "BASELINE_INVALID"),
        _open(MEASURED, margin, "LOSS_SCALED"),
        _open(MEASURED, margin, "CODE_OF_A_LATER_JUDGE"),
    ]
    assert [
        document["codes"][0] for document in refused if why_not_acceptable(document) is None
    ] == []


def test_a_sign_off_holds_for_its_verdict_and_policy_only() -> None:
    document = _open(MEASURED, {"nats": 0.014}, "CI_STRADDLES_MARGIN")
    assert list(accepted([document], POLICY, [_signed(document)])) == ["c"]
    assert list(
        accepted(
            [json.loads(json.dumps(document))], json.loads(json.dumps(POLICY)), [_signed(document)]
        )
    ) == ["c"]
    again = copy.deepcopy(document)
    again["gap"]["mean"] = np.nextafter(0.01, 1.0)
    for documents, policy, sign_off in (
        ([again], POLICY, _signed(document)),
        ([document], {"margin": "2.0 %"}, _signed(document)),
        ([document], POLICY, _signed(document, candidate="another")),
        *(
            ([document], POLICY, _signed(document, state=state))
            for state in ("expired", "revoked", "void")
        ),
        ([], POLICY, _signed(document)),
    ):
        assert accepted(documents, policy, [sign_off]) == {}


def test_a_sign_off_of_a_fail_never_holds() -> None:
    document = _open(MEASURED, {"nats": 0.014}, "GAP_EXCEEDS_MARGIN", "fail")
    assert accepted([document], POLICY, [_signed(document)]) == {}
    empty = _open(None, None, "EMPTY")
    assert accepted([empty], POLICY, [_signed(empty)]) == {}


def test_a_copy_of_the_baseline_cannot_be_accepted(
    make_run: Callable[..., Curve], one_percent: Policy
) -> None:
    same = make_run(seed=1)
    copied = judge([same], {"c": [same]}, one_percent, planned_steps=2000)[0].document()
    assert copied["verdict"] == "inconclusive"
    assert why_not_acceptable(copied) is not None
