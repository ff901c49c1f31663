"""`parity doctor`: what the workers of a server say of themselves."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from parity import cli
from parity.client.rest import Client

DEVICE = {
    "device_kind": "NVIDIA B200",
    "device_class": "gpu:sm100",
    "sm": "100",
    "memory_bytes": 180 * 2**30,
    "versions": {"jax": "0.10.2"},
    "can_run": {
        "emulated/nvfp4": {"ok": True, "reason": "exact codes"},
        "maxtext/nvfp4": {"ok": False, "reason": "needs the package maxtext"},
    },
}
WORKER = {"name": "gpu1:7", "capability": "sm100", "slots": 1, "live": True, "device": DEVICE}


def _answers(
    monkeypatch: pytest.MonkeyPatch,
    workers: list[dict[str, Any]],
    queued: Sequence[dict[str, Any]] = (),
) -> None:
    monkeypatch.setattr(Client, "workers", lambda _client: workers)
    monkeypatch.setattr(
        Client,
        "jobs",
        lambda _client, _limit, filters: {
            "items": [*queued] if filters["status"] == "queued" else []
        },
    )
    monkeypatch.setattr(
        Client, "job", lambda _client, job: next(each for each in queued if each["id"] == job)
    )


def _left(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    return int(left.value.code)


@pytest.mark.parametrize(
    ("workers", "code"), [([WORKER], 0), ([WORKER | {"live": False}], 4), ([], 4)]
)
def test_the_exit_code_says_whether_anybody_is_alive(monkeypatch, capsys, workers, code):
    _answers(monkeypatch, workers)
    assert _left(["doctor", "-v"]) == code
    text = capsys.readouterr().out
    if code == 0:
        for part in (
            "gpu1:7",
            "SM 100",
            "180 GiB",
            "jax 0.10.2",
            "trains emulated (nvfp4); not maxtext",
            "not maxtext/nvfp4: needs the package maxtext",
        ):
            assert part in text
    assert _left(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == workers


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({}, "codes equal the known answers in every format"),
        ({"nvfp4_1d": "3 codes differ"}, "codes WRONG: nvfp4_1d: 3 codes differ"),
    ],
)
def test_it_says_whether_the_device_gives_the_known_codes(monkeypatch, capsys, wrong, line):
    _answers(monkeypatch, [WORKER | {"device": DEVICE | {"wrong_formats": wrong}}])
    assert _left(["doctor", "-v"]) == 0
    assert line in capsys.readouterr().out


def test_a_machine_has_one_line_and_a_job_that_waits_is_named(monkeypatch, capsys):
    job = {
        "id": "j0000000000001-0000000001",
        "name": "nightly",
        "waiting": "no worker has a GPU of SM 10.0",
    }
    _answers(monkeypatch, [WORKER], [job])
    assert _left(["doctor"]) == 0
    machine, alive, waiting = capsys.readouterr().out.splitlines()
    assert (
        machine
        == "gpu1:7: NVIDIA B200, SM 100, 180 GiB, 1 slot; trains emulated (nvfp4); not maxtext"
    )
    assert alive.startswith("1 alive")
    assert all(part in waiting for part in job.values())


@pytest.mark.parametrize(
    ("refused", "code"), [(None, 0), ("worker w has the 8 devices of this job: too small", 2)]
)
def test_a_job_file_is_told_what_it_needs(monkeypatch, capsys, tmp_path, refused, code):
    plan = {"needs": ["A device needs 3 GiB."], "refused": refused, "known": None}
    asked: list[Any] = []

    def respond(_client: Client, job: Any, policy: Any, *, baseline: Any) -> dict[str, Any]:
        asked.append((job, policy, baseline))
        return plan

    monkeypatch.setattr(Client, "plan", respond)
    file = tmp_path / "parity.yaml"
    file.write_text("job: {name: a}\npolicy: {margin: 1%}\n")
    assert _left(["doctor", "--job", str(file)]) == code
    told = capsys.readouterr()
    assert told.out == "A device needs 3 GiB.\n"
    assert (told.err == "") == (refused is None)
    assert refused is None or f"{file}: {refused}" in " ".join(told.err.split())
    assert asked == [({"name": "a"}, {"margin": "1%"}, None)]
    assert _left(["doctor", "--json", "--job", str(file)]) == code
    assert json.loads(capsys.readouterr().out) == {"needs": plan["needs"], "refused": refused}
