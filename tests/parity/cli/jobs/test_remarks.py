"""The commands about jobs on record: what they send and what they print."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from parity.client.rest import Client

Run = Callable[..., tuple[int, str, str]]
SIGNED = {
    "id": "s1",
    "candidate": "nvfp4",
    "state": "valid",
    "who": "ann",
    "reason": "reruns are queued",
    "expires_at": "2026-12-07T10:00:00Z",
    "revoked_by": None,
    "revoke_reason": None,
}
NOTE = {"who": "bob", "text": "odd\nlog", "created_at": "2026-11-23T10:00:00Z"}
VERDICT = {
    "candidate": "nvfp4",
    "verdict": "fail",
    "code": "X",
    "gap_nats": 0.05,
    "ci_low": 0.04,
    "ci_high": 0.06,
    "gap_rel": 0.036,
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a command sent to a server that accepts everything."""
    calls: list[tuple[Any, ...]] = []
    remarks = {"job": "j1", "tags": ["a"], "notes": [NOTE], "sign_offs": [SIGNED]}

    def answers(name: str, answer: Any) -> None:
        monkeypatch.setattr(
            Client, name, lambda _client, *words: calls.append((name, *words)) or answer
        )

    for name in ("set_tags", "add_note", "sign_off", "revoke_sign_off"):
        answers(name, remarks)
    answers(
        "job",
        {
            "id": "j1",
            "arms": [{"name": "b", "role": "baseline"}, {"name": "nvfp4", "role": "candidate"}],
        },
    )
    cells = [{"column": "nvfp4", "verdicts": [VERDICT | {"margin_nats": 0.014}], "waiting": ["x"]}]
    answers(
        "compare_jobs",
        {
            "columns": ["nvfp4"],
            "rows": [{"job": {"id": "j1", "name": "n"}, "differs": ["model"], "cells": cells}],
        },
    )
    gone = {
        "group": "r1",
        "job": "j2",
        "verdict": None,
        "status": "failed",
        "gap_nats": None,
        "why_missing": "no memory",
    }
    there = VERDICT | {"group": "r0", "job": "j1", "status": "concluded", "margin_nats": 0.014}
    answers("trend", {"answer": "No commit is to blame.", "points": [there, gone], "moves": []})
    return calls


def test_tags_and_notes(sent: list[tuple[Any, ...]], run: Run) -> None:
    assert run("tag", "j1", "a", "b") == (0, "j1 a\n", "")
    assert run("tag", "j1")[0] == 0
    code, out, _ = run("note", "j1", "odd log")
    assert (code, "note by bob, 2026-11-23 10:00 UTC: odd log\n" in out) == (0, True)
    assert sent == [
        ("set_tags", "j1", ["a", "b"]),
        ("set_tags", "j1", []),
        ("add_note", "j1", "odd log"),
    ]


def test_a_sign_off_names_the_only_candidate_and_is_revoked_by_its_id(
    sent: list[tuple[Any, ...]], run: Run
) -> None:
    code, out, _ = run("sign-off", "j1", "--reason", "reruns are queued", "--days", "14")
    assert (
        code,
        out.count(
            "Accepted, not a pass: ann signed off the inconclusive verdict on nvfp4 until "
            "2026-12-07 10:00 UTC"
        ),
    ) == (0, 1)
    assert run("sign-off", "j1", "--reason", "they failed, too", "--revoke", "s1")[0] == 0
    assert sent[1:] == [
        ("sign_off", "j1", "nvfp4", "reruns are queued", 14.0),
        ("revoke_sign_off", "j1", "s1", "they failed, too"),
    ]
    for refused, value in (
        (("--reason", "reruns are queued", "--days", "140"), "--days is 140"),
        (("--reason", "x", "--days", "1"), "--reason is 'x'"),
    ):
        code, _, err = run("sign-off", "j1", *refused)
        assert (code, value in err) == (2, True)
    assert len(sent) == 3
    for words in ((), ("--days", "1", "--revoke", "s1")):
        assert run("sign-off", "j1", "--reason", "reruns are queued", *words)[0] == 2


def test_matrix_and_trend_are_lines_of_cells(sent: list[tuple[Any, ...]], run: Run) -> None:
    cell = "FAIL +0.0500 (+0.0400 to +0.0600), 3.6 %, margin 0.0140; x has no verdict"
    assert run("matrix", "j1", "j2")[1] == f"Job\tName\tDiffers in\tnvfp4\nj1\tn\tmodel\t{cell}\n"
    answer, first, second = run("trend", "nightly", "--branch", "main")[1].splitlines()
    assert answer == "No commit is to blame."
    assert first.split("\t") == [
        "r0",
        "j1",
        "FAIL",
        "+0.0500 (+0.0400 to +0.0600)",
        "3.6 %",
        "0.0140",
    ]
    assert second.split("\t") == ["r1", "j2", "failed", "no memory", "", ""]
    assert sent == [
        ("compare_jobs", ["j1", "j2"], "recipe"),
        ("trend", {"gate": "nightly", "by": "commit", "branch": "main", "limit": 50}),
    ]
    for words in ((), ("a", "--baseline", "b"), ("a", "--by", "week")):
        assert run("trend", *words)[0] == 2
    assert run("matrix", "j1", "--by", "size")[0] == 2
    assert json.loads(run("trend", "nightly", "--json")[1])["moves"] == []
