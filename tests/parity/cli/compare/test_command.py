"""`parity compare`: verdicts, exit codes, options, and one line for bad usage."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.gate.exit_codes import EXIT_CODES

Run = Callable[..., tuple[int, str, str]]


def nearest(*arms: str) -> tuple[str, ...]:
    """The options that state that arms round to nearest."""
    return tuple(word for arm in arms for word in ("--rounding", f"{arm}=nearest"))


def test_a_rounding_that_is_not_stated_counts_as_stochastic(
    files: dict[str, str], run: Run
) -> None:
    """Neither a name nor nothing gives the smaller noise; the first advice is the option that
    states the rounding.
    """
    common = (
        "compare",
        f"a={files['fp8']}",
        f"no_sr={files['mxfp8']}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--margin",
        "0.45%",
        "--json",
    )
    for recipes, unstated in (
        ((), "a and no_sr"),
        (("--recipe", "a=nvfp4"), "no_sr"),
        (("--recipe", "no_sr=nvfp4_no_sr"), "a and no_sr"),
    ):
        code, out, _ = run(*common, *recipes)
        (entry,) = json.loads(out)["verdicts"]
        assert (code, entry["tau"]["candidate"]["rel"]) == (3, pytest.approx(0.00135, rel=0.05))
        assert f"gradients of {unstated} rounded to nearest?" in entry["advice"]["sentences"][0]
        assert all(
            f"--rounding {arm}=" in entry["advice"]["sentences"][0]
            for arm in unstated.split(" and ")
        )
    for stated in (nearest("a", "no_sr"), ("--recipe", "a=fp8_current", "--recipe", "no_sr=mxfp8")):
        code, out, _ = run(*common, *stated)
        assert code == 0
        assert not any(
            "--rounding" in sentence
            for sentence in json.loads(out)["verdicts"][0]["advice"]["sentences"]
        )


@pytest.mark.parametrize(
    "word", ["fp4", "te_fp4", "nv-fp4", "nvpf4", "NVFP4", "other:", "fp8-block"]
)
def test_a_word_that_is_not_a_recipe_is_refused(word: str, files: dict[str, str], run: Run) -> None:
    code, out, err = run("compare", files["fp8"], files["nvfp4"], "--recipe", f"nvfp4={word}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"parity: --recipe nvfp4 is {word!r}; ")
    assert "did you mean " in err or "other:NAME" in err
    assert run("compare", files["fp8"], files["nvfp4"], "--recipe", f"nvfp4=other:{word}")[0] != 2


@pytest.mark.parametrize(
    ("cand", "code", "word"),
    [("mxfp8", 0, "PASS"), ("nvfp4", 1, "FAIL"), ("edge", 3, "INCONCLUSIVE")],
)
def test_exit_codes_say_the_verdict(
    cand: str, code: int, word: str, files: dict[str, str], run: Run
) -> None:
    left, out, err = run(
        "compare",
        files["fp8"],
        files[cand],
        "--margin",
        "1%",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        *nearest("fp8", cand),
    )
    assert left == code
    assert word in out.splitlines()[0]
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80


def test_the_worst_of_several_verdicts(files: dict[str, str], run: Run) -> None:
    common = (
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--json",
        *nearest("fp8", "mxfp8", "edge"),
    )
    assert (
        run("compare", files["fp8"], files["mxfp8"], files["edge"], *common)[0]
        == EXIT_CODES["inconclusive"]
    )
    code, out, _ = run(
        "compare",
        files["fp8"],
        files["mxfp8"],
        files["nvfp4"],
        files["edge"],
        *common,
        *nearest("nvfp4"),
    )
    assert code == EXIT_CODES["fail"]
    assert [
        (entry["candidate"]["name"], entry["verdict"]) for entry in json.loads(out)["verdicts"]
    ] == [
        ("mxfp8", "pass"),
        ("nvfp4", "fail"),
        ("edge", "inconclusive"),
    ]


def test_without_a_plan_nothing_passes(files: dict[str, str], run: Run) -> None:
    code, out, _ = run("compare", files["fp8"], files["mxfp8"], "--json", *nearest("fp8", "mxfp8"))
    assert code == EXIT_CODES["inconclusive"]
    assert json.loads(out)["verdicts"][0]["codes"][0] == "AS_OF"
    code, out, _ = run(
        "compare", files["fp8"], files["mxfp8"], "--assume-complete", *nearest("fp8", "mxfp8")
    )
    assert (
        code,
        out.splitlines()[0].startswith(
            "◇ INCONCLUSIVE  No loss beyond the margin as of step 1,499; "
        ),
    ) == (
        EXIT_CODES["inconclusive"],
        True,
    )
    assert (
        run(
            "compare",
            files["fp8"],
            files["mxfp8"],
            "--schedule",
            "decayed",
            *nearest("fp8", "mxfp8"),
        )[0]
        == 0
    )
    code, _, err = run("compare", files["fp8"], files["mxfp8"], "--schedule", "finished")
    assert (
        code,
        err.startswith("parity: --schedule is 'finished'; expected unstated or decayed"),
    ) == (2, True)


def test_a_pass_as_of_a_point_exits_3_unless_the_policy_accepts_it(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    common = (
        "compare",
        files["fp8"],
        files["mxfp8"],
        "--planned-steps",
        "3000",
        *nearest("fp8", "mxfp8"),
    )
    code, out, _ = run(*common, "--margin", "3%")
    assert (
        code,
        out.startswith("◇ INCONCLUSIVE  No loss beyond the margin as of step 1,499; "),
        "AS_OF" in out,
    ) == (3, True, True)
    policy = tmp_path / "parity.yaml"
    policy.write_text("policy: {margin: 3%, as_of: accept}\n")
    code, out, _ = run(*common, "--policy", str(policy))
    assert (
        code,
        out.startswith("● PASS  You may switch to mxfp8, as of step 1,499."),
        "AS_OF" in out,
    ) == (0, True, True)
    code, out, _ = run(
        "compare",
        files["fp8"],
        files["nvfp4"],
        "--planned-steps",
        "3000",
        "--margin",
        "0.1%",
        *nearest("fp8", "nvfp4"),
    )
    assert (code, "As of step 1,499 it is" in out) == (1, True)


def test_runs_controls_recipes_and_names(files: dict[str, str], run: Run) -> None:
    code, out, _ = run(
        "compare", f"FP8={files['fp8']}", f"NVFP4={files['mxfp8']}", "--baseline-run", files["fp8_again"],  # noqa: E501
        "--candidate-run", f"NVFP4={files['edge']}",
        "--control", files["nvfp4"], "--recipe", "NVFP4=nvfp4", "--planned-steps", "1500", "--layer-policy", "mlp_only", "--json",  # noqa: E501
    )  # fmt: skip
    (entry,) = json.loads(out)["verdicts"]
    assert code == EXIT_CODES["inconclusive"]
    assert (entry["baseline"]["name"], entry["baseline"]["runs"], entry["candidate"]["runs"]) == (
        "FP8",
        2,
        2,
    )
    assert entry["tau"]["controls_used"] == 1
    assert entry["tau"]["candidate"]["prior_basis"].startswith(
        "assumed for an unfinished run with stochastic"
    )
    assert entry["layer_policy"] == "mlp_only"


def stopped(files: dict[str, str], folder: Path, name: str, number: int, share: float = 0.5) -> str:
    """A rerun of a file's run with noise of its own, stopped at a share of its 1,500 steps."""
    rows = np.loadtxt(files[name], delimiter=",", skiprows=1)[: round(share * 1500)]
    rng = np.random.default_rng(number)
    loss = rows[:, 1] + 0.002 * rng.normal() + rng.normal(0, 0.01, len(rows))
    path = folder / f"{name}-{number}.csv"
    path.write_text(
        "step,loss\n"
        + "".join(f"{step:.0f},{value:.6f}\n" for step, value in zip(rows[:, 0], loss, strict=True))
    )
    return str(path)


def test_short_reruns_measure_run_noise_and_are_in_the_bundle(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    bundle = tmp_path / "case.zip"
    noise = [
        f"baseline={stopped(files, tmp_path, 'fp8', 1)}",
        f"mxfp8={stopped(files, tmp_path, 'mxfp8', 2)}",
    ]
    common = (
        "compare",
        files["fp8"],
        files["mxfp8"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--recipe",
        "fp8=fp8",
        "--recipe",
        "mxfp8=mxfp8",
    )
    options = [word for one in noise for word in ("--short-rerun", one)]
    code, out, _ = run(*common, *options, "--bundle", str(bundle), "--json")
    (entry,) = json.loads(out)["verdicts"]
    assert code == 0
    for arm in ("baseline", "candidate"):
        assert entry["tau"][arm]["source"] == "early-stopped reruns"
        assert entry["tau"][arm]["early_stopped"]["runs"] == 1
        assert entry["tau"][arm]["early_stopped"]["stop"] == pytest.approx(0.5)
        assert entry[arm]["runs"] == 1
    assert [noted["recipe"] for noted in entry["inputs"]["short_reruns"]["candidate"]] == ["mxfp8"]
    assert run("verify", str(bundle))[0] == 0
    for form in (("-v",), ("--markdown",)):
        words = " ".join(run(*common, *options, *form)[1].split())
        assert (
            "from 1 rerun of fp8 stopped at 50 % (df 0.847) and 1 rerun of mxfp8 stopped at 50 %"
            in words
        )


def test_a_short_rerun_that_is_a_copy_or_complete_is_named(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    half = Path(files["fp8"]).read_text().splitlines()[:751]
    (tmp_path / "half.csv").write_text("\n".join(half) + "\n")
    common = (
        "compare",
        files["fp8"],
        files["mxfp8"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        *nearest("fp8", "mxfp8"),
        "--json",
    )
    (plain,) = json.loads(run(*common)[1])["verdicts"]
    for noise, word in (
        (str(tmp_path / "half.csv"), "equal as printed"),
        (files["fp8_again"], "a further run of fp8"),
    ):
        (entry,) = json.loads(run(*common, "--short-rerun", f"fp8={noise}")[1])["verdicts"]
        assert word in next(
            reason["sentence"]
            for reason in entry["reasons"]
            if reason["code"] == "SHORT_RERUNS_LEFT_OUT"
        )
        assert entry["tau"] == plain["tau"]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("x.csv", "--short-rerun is 'x.csv'; expected NAME=FILE"),
        ("fp9=x.csv", "--short-rerun fp9: no such run"),
        ("fp8=nofile.csv", "no such file"),
    ],
)
def test_a_short_rerun_of_no_arm_is_refused(
    value: str, word: str, files: dict[str, str], run: Run
) -> None:
    code, out, err = run("compare", files["fp8"], files["mxfp8"], "--short-rerun", value)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert word in err


def test_more_than_16_short_reruns_of_an_arm_are_refused_before_they_are_read(
    files: dict[str, str], run: Run
) -> None:
    many = [
        word for number in range(17) for word in ("--short-rerun", f"baseline=none{number}.csv")
    ]
    code, out, err = run("compare", files["fp8"], files["mxfp8"], *many)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--short-rerun: fp8 has 17 short reruns; expected at most 16 per arm" in err


def test_equal_file_names_get_their_folders(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    paths = []
    for folder, source in (("a", "fp8"), ("b", "mxfp8")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "metrics.csv"
        path.write_text(Path(files[source]).read_text())
        paths.append(str(path))
    _, out, _ = run("compare", *paths, "--json")
    entry = json.loads(out)["verdicts"][0]
    assert (entry["baseline"]["name"], entry["candidate"]["name"]) == ("a/metrics", "b/metrics")


def test_a_policy_file_and_flags_over_it(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    policy = tmp_path / "parity.yaml"
    policy.write_text("job: {anything: 1}\npolicy: {profile: fp8-grade, confidence: 0.9}\n")
    common = (
        files["fp8"],
        files["mxfp8"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--json",
        "--policy",
        str(policy),
    )
    entry = json.loads(run("compare", *common)[1])["verdicts"][0]
    assert (entry["profile"], entry["gap"]["confidence"]) == ("fp8-grade", 0.9)
    entry = json.loads(run("compare", *common, "--margin", "2%")[1])["verdicts"][0]
    assert (entry["profile"], entry["margin"]["rel"], entry["gap"]["confidence"]) == (
        "custom",
        pytest.approx(0.02),
        0.9,
    )


def test_the_default_profile_is_nvfp4(files: dict[str, str], run: Run) -> None:
    entry = json.loads(run("compare", files["fp8"], files["mxfp8"], "--json")[1])["verdicts"][0]
    assert entry["profile"] == "nvfp4"


BAD = {
    "one arm": (("{fp8}",), "only one run"),
    "no arm": ((), "is missing"),
    "no file": (("{fp8}", "nothing.csv"), "nothing.csv: no such file"),
    "a folder": (("{fp8}", "{folder}"), "contains no TensorBoard event file"),
    "margin": (("{fp8}", "{mxfp8}", "--margin", "tiny"), "--margin is 'tiny'"),
    "profile": (("{fp8}", "{mxfp8}", "--profile", "step-noise"), "never decides"),
    "option": (("{fp8}", "{mxfp8}", "--nope"), "unknown option --nope"),
    "plan": (("{fp8}", "{mxfp8}", "--planned-steps", "0"), "--planned-steps"),
    "column": (("{fp8}", "{mxfp8}", "--column", "loss"), "expected QUANTITY=NAME"),
    "unknown column": (("{fp8}", "{mxfp8}", "--column", "loss=ce"), "no column 'ce' for loss"),
    "recipe": (
        ("{fp8}", "{mxfp8}", "--recipe", "x=nvfp4"),
        "--recipe x: no such run; the runs are called fp8, mxfp8",
    ),
    "rounding": (("{fp8}", "{mxfp8}", "--rounding", "x=nearest"), "x: no such run"),
    "rounding word": (("{fp8}", "{mxfp8}", "--rounding", "fp8=neares"), "did you mean nearest?"),
    "rounding and recipe": (
        ("{fp8}", "{mxfp8}", "--recipe", "fp8=nvfp4", "--rounding", "fp8=nearest"),
        "--rounding fp8 is nearest, but recipe nvfp4 rounds stochastically",
    ),
    "candidate run": (("{fp8}", "{mxfp8}", "--candidate-run", "file.csv"), "expected NAME=FILE"),
    "context": (("{fp8}", "{mxfp8}", "--context", "fp8=x"), "expected NAME:KEY=VALUE"),
    "context of no arm": (("{fp8}", "{mxfp8}", "--context", "x:engine=y"), "x: no such run"),
    "stdin twice": (("-", "-"), "stdin can be read only once"),
    "both forms": (("{fp8}", "{mxfp8}", "--json", "--markdown"), "exclude each other"),
    "policy missing": (("{fp8}", "{mxfp8}", "--policy", "none.yaml"), "none.yaml: cannot be read"),
    "policy broken": (("{fp8}", "{mxfp8}", "--policy", "{broken}"), "not valid YAML"),
    "policy empty": (("{fp8}", "{mxfp8}", "--policy", "{empty}"), "no `policy:` with keys"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_usage_is_one_line_and_exit_code_2(
    case: str, tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    (tmp_path / "broken.yaml").write_text("policy: {margin: [")
    (tmp_path / "empty.yaml").write_text("job: 1\n")
    places = {
        **files,
        "folder": str(tmp_path),
        "broken": str(tmp_path / "broken.yaml"),
        "empty": str(tmp_path / "empty.yaml"),
    }
    arguments, message = BAD[case]
    code, out, err = run("compare", *(argument.format(**places) for argument in arguments))
    assert code == EXIT_CODES["usage"]
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


def test_as_a_process_with_stdin_and_no_colour(files: dict[str, str]) -> None:
    env = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"}
    process = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "parity",
                "compare",
                files["fp8"],
                "-",
                "--margin",
                "1%",
                "--planned-steps",
                "1500",
                "--schedule",
                "decayed",
            ),
            *nearest("fp8", "stdin"),
        ],
        input=Path(files["mxfp8"]).read_bytes(),
        capture_output=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert b"\x1b[3" not in process.stdout
    assert "PASS\x1b[0m  You may switch to stdin." in process.stdout.decode()


def test_a_figure_that_cannot_be_drawn_is_one_line(files: dict[str, str], run: Run) -> None:
    code, out, err = run(
        "compare",
        files["fp8"],
        files["nvfp4"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--figure",
        "out.txt",
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected a name ending in .png" in err


def test_what_the_answer_is_worth(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    timed = []
    for name, seconds in (("fp8", 1.5), ("mxfp8", 1.0)):
        lines = Path(files[name]).read_text().splitlines()
        path = tmp_path / f"{name}.csv"
        rows = (
            f"{line},{seconds + 0.001 * (i % 7)},{1.7e9 + i}\n" for i, line in enumerate(lines[1:])
        )
        path.write_text("step,loss,step_seconds,_timestamp\n" + "".join(rows))
        timed.append(str(path))
    unknown = (
        *timed,
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--full-run-hours",
        "1000",
        *nearest("fp8", "mxfp8"),
    )
    assert (
        "speed: not compared: the device class of the runs is not recorded"
        in run("compare", *unknown, "-v")[1]
    )
    machines = ("--context", "fp8:device_class=h100", "--context", "mxfp8:device_class=h100")
    common = (*unknown, *machines)
    code, out, _ = run("compare", *common, "--hour-price", "2", "--devices", "4", "--json")
    (entry,) = json.loads(out)["verdicts"]
    assert code == 0
    assert entry["worth"]["saved_hours"] == pytest.approx(
        1000 * (1 - 1 / entry["net_speedup"]["value"])
    )
    assert entry["worth"]["check_hours"] == pytest.approx(4 * entry["throughput"]["run_hours"])
    assert "worth: mxfp8 saves" in run("compare", *common, "-v")[1]
    assert run("compare", *common, "--devices", "0")[0] == 2


@pytest.mark.parametrize("key", ["engine", "device_class", "data_digest"])
def test_arms_on_other_grounds_do_not_pass(key: str, files: dict[str, str], run: Run) -> None:
    common = (
        f"a={files['fp8']}",
        f"b={files['mxfp8']}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--json",
        "--context",
        f"a:{key}=x",
        *nearest("a", "b"),
    )
    code, out, _ = run("compare", *common, "--context", f"b:{key}=y")
    assert (code, json.loads(out)["verdicts"][0]["codes"][0]) == (3, "CONFOUNDED")
    assert run("compare", *common, "--context", f"b:{key}=x")[0] == 0


def test_runs_of_several_seeds_are_paired_gaps(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    rng, t = np.random.default_rng(5), np.arange(1500)
    other = 1.38 + 3.5 * np.exp(-t / 80) + rng.normal(0, 0.06, 1500)  # another data order
    for name in ("base", "cand"):
        noisy = other + rng.normal(0, 0.01, 1500)
        (tmp_path / name).write_text(
            "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in enumerate(noisy))
        )
    runs = (
        "--baseline-run",
        str(tmp_path / "base"),
        "--candidate-run",
        f"b={tmp_path / 'cand'}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--json",
    )
    arms = (f"a={files['fp8']}", f"b={files['mxfp8']}")
    unstated = json.loads(run("compare", *arms, *runs)[1])["verdicts"][0]
    code, out, _ = run("compare", *arms, *runs, "--seeds", "0,1")
    entry = json.loads(out)["verdicts"][0]
    assert (code, entry["se_parts"]["seeds"]) == (0, 2)
    assert (unstated["pairing"]["by"], unstated["gap"]) == ("batches", entry["gap"])
    code, out, _ = run("compare", *arms, *runs, "--seeds", "0,0")
    # what somebody stated is not overridden
    assert json.loads(out)["verdicts"][0]["codes"][0] == "DATA_ORDER_MISMATCH"
    for wrong, message in (
        ("0", "has 1 seed, but a has 2 runs"),
        ("0,x", "expected whole numbers"),
    ):
        code, _, err = run("compare", *arms, *runs, "--seeds", wrong)
        assert (code, message in err) == (2, True)


def test_a_figure_a_candidate(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "fig.svg"
    assert (
        run(
            "compare",
            files["fp8"],
            files["mxfp8"],
            f"a/b={files['edge']}",
            "--planned-steps",
            "1500",
            "--schedule",
            "decayed",
            "--figure",
            str(out),
        )[0]
        == 3
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig-a_b.svg", "fig-mxfp8.svg"]


def test_a_file_compared_with_itself_under_two_names_is_no_pass(
    files: dict[str, str], run: Run
) -> None:
    code, out, _ = run(
        "compare",
        f"a={files['fp8']}",
        f"b={files['fp8']}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        *nearest("a", "b"),
    )
    assert (code, "ARMS_IDENTICAL" in out) == (3, True)


def long_table(folder: Path, files: dict[str, str], worse: float) -> str:
    """MLflow's download of two runs of two metrics: `base`, and `cand` with losses that are `worse`
    times as high.
    """
    rows = ["run_id,key,value,step,timestamp"]
    for run, factor in (("base", 1.0), ("cand", worse)):
        losses = [
            line.split(",")
            for line in Path(files["fp8" if run == "base" else "mxfp8"])
            .read_text()
            .splitlines()[1:]
        ]
        rows += [
            f"{run},loss,{float(loss) * factor},{step},{1700000000000 + int(step)}"
            for step, loss in losses
        ]
        rows += [f"{run},grad_norm,0.001,{step},{1700000000000 + int(step)}" for step, _ in losses]
    path = folder / "mlflow.csv"
    path.write_text("\n".join(rows))
    return str(path)


@pytest.mark.parametrize(("worse", "code", "verdict"), [(1.10, 1, "fail"), (1.0, 0, "pass")])
def test_a_long_table_of_two_runs_is_judged_run_against_run(
    worse: float, code: int, verdict: str, tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    """Read as one column, a candidate that is 10 % worse passed."""
    file = long_table(tmp_path, files, worse)
    common = ("--planned-steps", "1500", "--schedule", "decayed", *nearest("base", "cand"))
    left, out, _ = run("compare", f"{file}:base", f"{file}:cand", *common, "--json")
    (entry,) = json.loads(out)["verdicts"]
    assert (left, entry["verdict"], entry["candidate"]["name"]) == (code, verdict, "cand")
    assert entry["gap"]["rel"] == pytest.approx(worse - 1.0, abs=0.005)
    left, out, err = run("compare", f"base={file}", f"{file}:cand", *common)
    assert (left, out) == (2, "")
    assert f"{file} holds 2 runs; name one as {file}:base, of base, cand" in err


def test_the_report_names_the_columns_that_were_taken(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    file = tmp_path / "hf.csv"
    lines = Path(files["mxfp8"]).read_text().splitlines()[1:]
    file.write_text(
        "step,train_loss,loss\n"
        + "".join(f"{step},1.0,{loss}\n" for step, loss in (line.split(",") for line in lines))
    )
    for style in (("-v",), ("--markdown",)):
        out = " ".join(
            run(
                "compare",
                files["fp8"],
                str(file),
                "--planned-steps",
                "1500",
                "--schedule",
                "decayed",
                *style,
            )[1].split()
        )
        assert "input: fp8: loss read from 'loss', step from 'step'" in out
        assert (
            "input: hf: loss read from 'loss' ('train_loss' could also be the loss), step from "
            "'step'" in out
        )
        once = " ".join(
            run(
                "compare",
                files["fp8"],
                files["mxfp8"],
                "--planned-steps",
                "1500",
                "--schedule",
                "decayed",
                *style,
            )[1].split()
        )
        assert once.count("input: loss read from 'loss', step from 'step'") == 1


def test_columns_by_arm_and_by_file(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    cand = tmp_path / "cand.csv"
    cand.write_text(Path(files["mxfp8"]).read_text().replace("step,loss", "it,train/ce"))
    arms = (
        "compare",
        f"a={files['fp8']}",
        f"b={cand}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        *nearest("a", "b"),
    )
    for place in ("b", str(cand)):
        assert (
            run(*arms, "--column", f"{place}:step=it", "--column", f"{place}:loss=train/ce")[0] == 0
        )
    code, _, err = run(*arms, "--column", "step=it", "--column", "loss=train/ce")
    assert (code, "no column 'it' for step" in err) == (2, True)
    assert (
        run(*arms, "--column", "step=step", "--column", "b:step=it", "--column", "b:loss=train/ce")[
            0
        ]
        == 0
    )
    for wrong, words in (
        (("c:loss=x",), "no arm or file is called 'c'; there are a, "),
        (("lose=x",), "with QUANTITY one of step, loss"),
        (("cand.csv=train/ce",), "with QUANTITY one of step, loss"),
        (("b:loss=x", "b:loss=y"), "--column names b:loss twice, 'x' and 'y'"),
    ):
        code, out, err = run(*arms, *(word for item in wrong for word in ("--column", item)))
        assert (code, out, err.count("\n"), words in err) == (2, "", 1, True)


def test_logs_of_trainers_are_compared(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    logs = []
    for name in ("fp8", "mxfp8"):
        lines = [line.split(",") for line in Path(files[name]).read_text().splitlines()[1:]]
        path = tmp_path / f"{name}.log"
        path.write_text(
            "".join(
                f"[rank0]: steps: {step} loss: {loss} iter time (s): 0.5 samples/sec: 9.0\n"
                for step, loss in lines
            )
        )
        logs.append(str(path))
    code, out, _ = run(
        "compare",
        *logs,
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        *nearest("fp8", "mxfp8"),
        "--json",
    )
    assert (code, json.loads(out)["verdicts"][0]["inputs"]["common_steps"]) == (0, 1500)
