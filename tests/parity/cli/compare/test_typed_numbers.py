"""Two numbers in place of files: what they can decide, what they cannot, and one line for bad
input.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.gate.exit_codes import EXIT_CODES
from parity.readers.run_tables.typed_number import printed_step_of

Run = Callable[..., tuple[int, str, str]]


def judged(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run("compare", *arguments, "--json")
    assert err == ""
    (document,) = json.loads(out)["verdicts"]
    return code, document


@pytest.mark.parametrize(
    ("arguments", "verdict", "first"),
    [
        # Ling: +1.52 %, published
        (("bf16=2.242", "fp8=2.276"), "inconclusive", "CI_STRADDLES_MARGIN"),
        (("bf16=2.242", "fp8=2.276", "--schedule", "decayed"), "fail", "GAP_EXCEEDS_MARGIN"),
        (("bf16=2.242", "fp8=2.300"), "fail", "GAP_EXCEEDS_MARGIN"),
        (("bf16=2.242", "fp8=2.240"), "inconclusive", "NUMBERS_ALONE"),
        (
            ("bf16=2.242", "fp8=2.240", "--schedule", "decayed", "--loss-is", "validation"),
            "inconclusive",
            "NUMBERS_ALONE",
        ),
        (("bf16=2.242", "fp8=2.200"), "inconclusive", "NUMBERS_ALONE"),
        (("bf16=0.02", "fp8=0.03"), "inconclusive", "LOSS_NOT_NATS"),
        (("bf16=2.2", "fp8=2.2"), "inconclusive", "CI_STRADDLES_MARGIN"),
    ],
)
def test_two_numbers_fail_or_stay_open(
    arguments: tuple[str, ...], verdict: str, first: str, run: Run
) -> None:
    code, document = judged(run, *arguments)
    assert (document["verdict"], document["codes"][0], code) == (
        verdict,
        first,
        EXIT_CODES[verdict],
    )
    assert "NUMBERS_ALONE" in document["codes"]
    # without a unit there is no gap, and no noise
    assert ("RUN_NOISE_ASSUMED" in document["codes"]) == (first != "LOSS_NOT_NATS")
    assert ("AS_OF" in document["codes"]) == ("decayed" not in arguments)


def test_the_interval_has_the_noise_of_an_unfinished_run_and_the_digits(run: Run) -> None:
    _, document = judged(run, "bf16=2.242", "fp8=2.276")
    level, gap = 2.242, document["gap"]["judged"]
    run_half, single = 2.7764 * 0.0024 * 2**0.5, 2.7764 * 0.0005
    assert gap["hi"] - gap["mean"] == pytest.approx(
        level * (run_half**2 + single**2) ** 0.5 + 0.001, rel=1e-4
    )
    assert document["chance_of_parity"] == pytest.approx(0.12, abs=0.01)
    assert "chance_of_parity" not in judged(run, "bf16=2.242", "fp8=2.300")[1]


def test_a_name_that_is_a_recipe_states_it_and_an_option_counts_more(run: Run) -> None:
    _, named = judged(run, "bf16=2.242", "nvfp4=2.276")
    _, stated = judged(run, "bf16=2.242", "nvfp4=2.276", "--recipe", "nvfp4=mxfp8")
    _, unknown = judged(run, "a=2.242", "b=2.276")
    widths = [
        one["gap"]["judged"]["hi"] - one["gap"]["judged"]["lo"] for one in (stated, named, unknown)
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3
    assert named["candidate"]["recipe"] == "nvfp4"


def test_tokens_say_as_of_which_point(run: Run) -> None:
    _, document = judged(run, "bf16=2.242", "fp8=2.276", "--tokens", "23e9")
    assert document["as_of"]["words"] == "23 B tokens"
    assert judged(run, "bf16=2.242", "fp8=2.276")[1]["as_of"]["words"] == "these numbers"


def test_several_candidates_and_a_bundle(tmp_path: Path, run: Run) -> None:
    bundle = str(tmp_path / "bundle.zip")
    code, out, _ = run(
        "compare", "bf16=2.242", "fp8=2.276", "nvfp4=2.4", "--bundle", bundle, "--json"
    )
    assert (code, [one["verdict"] for one in json.loads(out)["verdicts"]]) == (
        EXIT_CODES["fail"],
        ["inconclusive", "fail"],
    )
    assert run("verify", bundle)[0] == 0


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("2.242", 1e-3),
        ("2.240", 1e-3),
        ("2", 1.0),
        ("2.", 1.0),
        (".5", 0.1),
        ("2240e-3", 1e-3),
        ("22.4e-1", 0.01),
    ],
)
def test_the_printed_step(text: str, step: float) -> None:
    assert printed_step_of(text) == pytest.approx(step)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bf16=2.242 x.csv", "bf16=2.242 is a number, but 'x.csv' is not"),
        ("bf16=2.242 fp8=text", "bf16=2.242 is a number, but 'fp8=text' is not"),
        ("bf16=2.242 fp8=nan", "fp8 is nan; expected a positive number"),
        ("bf16=inf fp8=2.2", "bf16 is inf; expected a positive number"),
        ("bf16=-2.2 fp8=2.3", "bf16 is -2.2; expected a positive number"),
        ("bf16=0 fp8=2.3", "bf16 is 0; expected a positive number"),
        ("bf16=2.242", "only bf16=2.242 was given"),
        ("2.242 2.276", "2.242 is a number without the name of its arm"),
        ("a=2.2 a=2.3", "a was given twice"),
        ("a=2.2 b=2.3 --seeds 1", "--seeds needs runs in files"),
        ("a=2.2 b=2.3 --planned-steps 100", "--planned-steps needs runs in files"),
        ("a=2.2 b=2.3 --check accuracy", "--check needs training curves"),
        ("a=2.2 b=2.3 --tokens 0", "--tokens is 0; expected the tokens"),
        ("a=2.2 b=2.3 --tokens nan", "--tokens is nan; expected the tokens"),
        ("a=2.2 b=2.3 --recipe c=fp8", "--recipe c: no such run"),
        ("x.csv y.csv --tokens 3e9", "--tokens needs numbers in place of files"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, run: Run) -> None:
    code, out, err = run("compare", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def test_a_file_that_is_named_like_a_number_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("2.5", "2.6"):
        Path(name).write_text(
            "step,loss\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(20))
        )
    code, out, _ = run("compare", "a=2.5", "b=2.6", "--json")
    assert (code, json.loads(out)["verdicts"][0]["schema"]) == (
        EXIT_CODES["inconclusive"],
        "parity.verdict/1",
    )
