"""The line that `submit` and `gate` print before a job trains: on stderr, never twice, and never in
the way.
"""

import io
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from parity.cli.jobs.outlook import command, print_missing, print_outlook
from parity.client.rest import Client, ClientError, UnreachableError
from parity.design.experiment import Design
from parity.design.plan import plan
from parity.design.plan_document import plan_document
from parity.design.plan_words import one_line
from parity.judging.policy import policy_from_mapping

Run = Callable[..., tuple[int, str, str]]
NARROW, WIDE = policy_from_mapping({"margin": "0.5%"}), policy_from_mapping({"margin": "2%"})


def answer(*policies: Any, **changes: Any) -> dict[str, Any]:
    """What a server returns for a job with a candidate per policy."""
    outlooks = [
        plan(
            Design(planned_steps=5000, baseline_recipe="fp8", candidate_recipe="nvfp4", **changes),
            policy,
        )
        for policy in policies
    ]
    candidates = [
        {"name": name, "line": one_line(outlook), "plan": plan_document(outlook)}
        for name, outlook in zip(("nvfp4", "mxfp8"), outlooks, strict=False)
    ]
    return {"known": None, "candidates": candidates}


def printed(monkeypatch: pytest.MonkeyPatch, reply: object, *, quiet: bool = False) -> list[str]:
    def respond(_client: Client, _job: object, _policy: object, *, baseline: object) -> object:
        assert baseline == {"name": "fp8"}
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(Client, "plan", respond)
    file = io.StringIO()
    with Client("http://127.0.0.1:9") as client:
        print_outlook(
            client,
            "parity.yaml",
            {"job": {}, "policy": {}, "baseline": {"name": "fp8"}},
            Console(file=file, quiet=quiet, width=80),
        )
    return file.getvalue().splitlines()


def test_the_line_has_the_call_that_shows_what_would_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = printed(monkeypatch, answer(NARROW))
    assert "margin 0.5 %, one run per arm" in line
    assert (
        "`parity plan --policy parity.yaml --planned-steps 5000 --baseline-recipe fp8 "
        "--candidate-recipe nvfp4`" in line
    )


def test_what_it_needs_of_machines_follows_the_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs = {"needs": ["A device needs 3 GiB.", "About 2 device hours."], "refused": None}
    lines = printed(monkeypatch, answer(WIDE, NARROW) | needs)
    assert lines[2:] == needs["needs"]
    assert printed(monkeypatch, answer(WIDE) | needs, quiet=True) == []


def test_a_note_does_not_repeat_what_was_told() -> None:
    file = io.StringIO()
    job = {"missing": ["About 2 device hours.", "No worker."]}
    print_missing(job, Console(file=file), ["About 2 device hours."])
    assert file.getvalue() == "note: No worker.\n"


def test_a_job_that_decides_has_no_advice_and_several_candidates_a_line_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = printed(monkeypatch, answer(WIDE, NARROW))
    assert first.startswith("nvfp4: ")
    assert second.startswith("mxfp8: ")
    assert ("parity plan" in first, "parity plan" in second) == (False, True)


def test_noise_from_the_record_has_the_advice_instead_of_a_call_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply = answer(NARROW)
    plan_of_one = reply["candidates"][0]["plan"]
    plan_of_one["run_noise"][1]["basis"] = "borrowed from emulated-1500-steps-abc"
    (line,) = printed(monkeypatch, reply)
    assert plan_of_one["advice"] in line
    assert "`parity plan" not in line


def test_the_call_gives_the_same_chances(run: Run, tmp_path: Path) -> None:
    reruns = {"baseline_runs": 2, "short_reruns": 2, "stop_at": 0.4}
    document = answer(NARROW, level=2.5, **reruns, step_seconds=0.5, devices=8)["candidates"][0][
        "plan"
    ]
    policy = tmp_path / "parity.yaml"
    policy.write_text("policy: {margin: 0.5%}\n")
    code, out, _ = run(*shlex.split(command(str(policy), document))[1:])
    assert code == 3
    text = " ".join(out.split())
    assert text.startswith(document["headline"])


@pytest.mark.parametrize(
    "trouble",
    [ClientError(404, "not found"), UnreachableError("away"), ValueError("NaN"), {"detail": "no"}],
)
def test_a_server_that_cannot_say_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, trouble: object
) -> None:
    assert printed(monkeypatch, trouble) == []


def test_quiet_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, answer(NARROW), quiet=True) == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_submit_prints_it_on_stderr(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    reply = answer(NARROW)
    monkeypatch.setattr(Client, "plan", lambda *_words, **_options: reply)
    monkeypatch.setattr(Client, "submit", lambda *_words, **_options: {"id": "j3"})
    (tmp_path / "parity.yaml").write_text("job: {a: 1}\npolicy: {margin: 0.5%}\n")
    _, out, err = run("submit", str(tmp_path / "parity.yaml"), "--server", "http://host", *options)
    assert ("j3" in out, "Chance to pass" in out, "Chance to pass" in err) == (True, False, True)
    assert (
        run("submit", str(tmp_path / "parity.yaml"), "--server", "http://host", "--quiet")[2] == ""
    )


def test_controls_are_not_in_a_call_so_the_advice_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = printed(monkeypatch, answer(NARROW, controls=3))
    assert "3 controls" in line
    assert "`parity plan" not in line


NOISY = "job: {a: 1, short_reruns: {runs: 3, stop_at: 0.6}}\npolicy: {margin: 0.5%}\n"
PLAIN = "job: {a: 1}\npolicy: {margin: 0.5%}\n"


@pytest.mark.parametrize(
    ("file", "options", "noise"),
    [
        (NOISY, (), {"runs": 3, "stop_at": 0.6}),
        (NOISY, ("--short-reruns", "2"), {"runs": 2, "stop_at": 0.6}),
        (NOISY, ("--stop-at", "0.4"), {"runs": 3, "stop_at": 0.4}),
        (NOISY, ("--short-reruns", "0"), None),
        (PLAIN, ("--short-reruns", "2", "--stop-at", "0.4"), {"runs": 2, "stop_at": 0.4}),
        (PLAIN, ("--short-reruns", "2"), {"runs": 2}),
        (PLAIN, (), None),
    ],
)
def test_options_of_submit_override_the_reruns_of_the_file(
    file: str,
    options: tuple[str, ...],
    noise: object,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    run: Run,
) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(
        Client, "plan", lambda *_words, **_options: sent.append(_words[1]) or answer(NARROW)
    )
    monkeypatch.setattr(
        Client, "submit", lambda *_words, **_options: sent.append(_words[1]) or {"id": "j3"}
    )
    (tmp_path / "parity.yaml").write_text(file)
    assert run("submit", str(tmp_path / "parity.yaml"), "--server", "http://host", *options)[0] == 0
    assert [job.get("short_reruns") for job in sent] == [noise, noise]


@pytest.mark.parametrize(
    ("file", "options"),
    [(PLAIN, ("--stop-at", "0.4")), (NOISY, ("--short-reruns", "0", "--stop-at", "0.4"))],
)
def test_a_stop_without_reruns_is_refused(
    file: str, options: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    (tmp_path / "parity.yaml").write_text(file)
    code, out, err = run(
        "submit", str(tmp_path / "parity.yaml"), "--server", "http://host", *options
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--short-reruns" in err
