import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.cli.main import EXIT_CODES, exit_code, main
from parity.version import ENGINE_VERSION

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs of 1,500 steps: a baseline with a rerun, one candidate as good, one worse."""
    folder = tmp_path_factory.mktemp("runs")
    t, rng = np.arange(1500), np.random.default_rng(0)
    batch = rng.normal(0, 0.06, 1500)
    paths = {}
    for name, gap in (("fp8", 0.0), ("fp8_again", 0.001), ("mxfp8", -0.002), ("nvfp4", 0.03), ("edge", 0.0125)):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + gap + rng.normal(0, 0.01, 1500)
        paths[name] = str(folder / f"{name}.csv")
        Path(paths[name]).write_text("step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in zip(t, loss, strict=True)))
    return paths


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def compare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run(capsys, "compare", *arguments)


@pytest.mark.parametrize(("cand", "code", "word"), [("mxfp8", 0, "PASS"), ("nvfp4", 1, "FAIL"), ("edge", 3, "INCONCLUSIVE")])
def test_exit_codes_say_the_verdict(cand: str, code: int, word: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    found, out, err = compare(capsys, files["fp8"], files[cand], "--margin", "1%", "--planned-steps", "1500")
    assert found == code
    assert word in out.splitlines()[0]
    assert err.count("\n") == ("recipe of arm nvfp4 is not stated" in err) == (cand == "nvfp4")
    assert max(map(len, out.splitlines())) <= 80


def test_the_worst_of_several_verdicts(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--planned-steps", "1500", "--json")
    assert compare(capsys, files["fp8"], files["mxfp8"], files["edge"], *common)[0] == EXIT_CODES["inconclusive"]
    code, out, _ = compare(capsys, files["fp8"], files["mxfp8"], files["nvfp4"], files["edge"], *common)
    assert code == EXIT_CODES["fail"]
    assert [(entry["candidate"]["name"], entry["verdict"]) for entry in json.loads(out)["verdicts"]] == [
        ("mxfp8", "pass"),
        ("nvfp4", "fail"),
        ("edge", "inconclusive"),
    ]


@pytest.mark.parametrize(("states", "code"), [([], 3), (["pass"], 0), (["pass", "inconclusive"], 3), (["inconclusive", "fail", "pass"], 1)])
def test_exit_code_of_documents(states: list[str], code: int) -> None:
    assert exit_code([{"verdict": state} for state in states]) == code


def test_without_a_plan_nothing_passes(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(capsys, files["fp8"], files["mxfp8"], "--json")
    assert code == EXIT_CODES["inconclusive"]
    assert json.loads(out)["verdicts"][0]["codes"][0] == "PLAN_UNKNOWN"
    assert compare(capsys, files["fp8"], files["mxfp8"], "--assume-complete")[0] == 0


def test_runs_controls_recipes_and_names(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(
        capsys, f"FP8={files['fp8']}", f"NVFP4={files['mxfp8']}", "--baseline-run", files["fp8_again"],
        "--candidate-run", f"NVFP4={files['edge']}",
        "--control", files["nvfp4"], "--recipe", "NVFP4=nvfp4", "--planned-steps", "1500", "--layer-policy", "mlp_only", "--json",
    )  # fmt: skip
    (entry,) = json.loads(out)["verdicts"]
    assert code == EXIT_CODES["inconclusive"]
    assert (entry["baseline"]["name"], entry["baseline"]["runs"], entry["candidate"]["runs"]) == ("FP8", 2, 2)
    assert entry["tau"]["controls_used"] == 1
    assert entry["tau"]["candidate"]["prior_basis"].startswith("assumed for stochastic rounding")
    assert entry["layer_policy"] == "mlp_only"


def test_equal_file_names_get_their_folders(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for folder, source in (("a", "fp8"), ("b", "mxfp8")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "metrics.csv"
        path.write_text(Path(files[source]).read_text())
        paths.append(str(path))
    _, out, _ = compare(capsys, *paths, "--json")
    entry = json.loads(out)["verdicts"][0]
    assert (entry["baseline"]["name"], entry["candidate"]["name"]) == ("a/metrics", "b/metrics")


def test_a_policy_file_and_flags_over_it(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "parity.yaml"
    policy.write_text("job: {anything: 1}\ncriteria: {profile: fp8-grade, confidence: 0.9}\n")
    common = (files["fp8"], files["mxfp8"], "--planned-steps", "1500", "--json", "--criteria", str(policy))
    entry = json.loads(compare(capsys, *common)[1])["verdicts"][0]
    assert (entry["profile"], entry["gap"]["confidence"]) == ("fp8-grade", 0.9)
    entry = json.loads(compare(capsys, *common, "--margin", "2%")[1])["verdicts"][0]
    assert (entry["profile"], entry["margin"]["rel"], entry["gap"]["confidence"]) == ("custom", pytest.approx(0.02), 0.9)


def test_the_default_profile_is_nvfp4(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(compare(capsys, files["fp8"], files["mxfp8"], "--json")[1])["verdicts"][0]
    assert entry["profile"] == "nvfp4"


BAD = {
    "one arm": (("{fp8}",), "only one arm"),
    "no arm": ((), "Missing argument"),
    "no file": (("{fp8}", "nothing.csv"), "nothing.csv: no such file"),
    "a folder": (("{fp8}", "{folder}"), "is a directory"),
    "margin": (("{fp8}", "{mxfp8}", "--margin", "tiny"), "criteria.margin: 'tiny'"),
    "profile": (("{fp8}", "{mxfp8}", "--profile", "step-noise"), "never a gate"),
    "option": (("{fp8}", "{mxfp8}", "--nope"), "No such option"),
    "plan": (("{fp8}", "{mxfp8}", "--planned-steps", "0"), "--planned-steps"),
    "column": (("{fp8}", "{mxfp8}", "--column", "loss"), "expected NAME=VALUE"),
    "unknown column": (("{fp8}", "{mxfp8}", "--column", "loss=ce"), "no column 'ce' for loss"),
    "recipe": (("{fp8}", "{mxfp8}", "--recipe", "x=nvfp4"), "there is no arm 'x'"),
    "candidate run": (("{fp8}", "{mxfp8}", "--candidate-run", "file.csv"), "expected NAME=FILE"),
    "context": (("{fp8}", "{mxfp8}", "--context", "fp8=x"), "expected NAME:KEY=VALUE"),
    "context of no arm": (("{fp8}", "{mxfp8}", "--context", "x:engine=y"), "there is no arm 'x'"),
    "stdin twice": (("-", "-"), "stdin can be read only once"),
    "both forms": (("{fp8}", "{mxfp8}", "--json", "--markdown"), "exclude each other"),
    "policy missing": (("{fp8}", "{mxfp8}", "--criteria", "none.yaml"), "none.yaml: can't be read"),
    "policy broken": (("{fp8}", "{mxfp8}", "--criteria", "{broken}"), "no YAML"),
    "policy empty": (("{fp8}", "{mxfp8}", "--criteria", "{empty}"), "no `criteria:` mapping"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_usage_is_one_line_and_exit_code_2(
    case: str, tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("criteria: {margin: [")
    (tmp_path / "empty.yaml").write_text("job: 1\n")
    places = {**files, "folder": str(tmp_path), "broken": str(tmp_path / "broken.yaml"), "empty": str(tmp_path / "empty.yaml")}
    arguments, says = BAD[case]
    code, out, err = compare(capsys, *(argument.format(**places) for argument in arguments))
    assert code == EXIT_CODES["usage"]
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


def test_help_names_defaults_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name, number in EXIT_CODES.items():
        assert f"{number} {name}" in " ".join(out.split())
    _, out, _ = compare(capsys, "--help")
    options = re.split(r"\n  (?=--)", out.split("Options:")[1])[1:]
    for option in options:
        assert re.search(r"[Dd]efault|further run|control|File whose|Print|Show this", " ".join(option.split())), option


def test_version_and_bare_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[1] == f"parity {ENGINE_VERSION}\n"
    code, out, _ = run(capsys)
    assert code == EXIT_CODES["usage"]
    assert "compare" in out


def test_the_engines_version_is_the_packages() -> None:
    assert f'version = "{ENGINE_VERSION}"' in (ROOT / "pyproject.toml").read_text()


def test_as_a_process_with_stdin_and_no_colour(files: dict[str, str]) -> None:
    env = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "parity.cli.main", "compare", files["fp8"], "-", "--margin", "1%", "--planned-steps", "1500"],
        input=Path(files["mxfp8"]).read_bytes(),
        capture_output=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert b"\x1b[3" not in found.stdout
    assert b"stdin is within 1.0 %" in found.stdout


def test_bundle_verify_and_junit(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    bundle, junit = str(tmp_path / "out.zip"), tmp_path / "out.xml"
    assert compare(capsys, files["fp8"], files["nvfp4"], "--planned-steps", "1500", "--bundle", bundle, "--junit", str(junit))[0] == 1
    assert "<failure" in junit.read_text()
    code, out, _ = run(capsys, "verify", bundle)
    assert (code, out.startswith("identical")) == (0, True)
    Path(bundle).write_bytes(b"nothing")
    code, out, err = run(capsys, "verify", bundle)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert compare(capsys, files["fp8"], files["nvfp4"], "--bundle", "/nowhere/out.zip")[0] == 2


def test_calibrate(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "calibrate", str(data / "nanogpt_reruns.npz"), "--planned-steps", "1750", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found) >= {"runs", "tau", "margins", "covers_zero", "naive_rejects", "injected"}
    assert set(found["tau"]) >= {"value", "lo", "hi"}
    assert set(found["margins"][0]) == {"margin_rel", "pass", "inconclusive", "fail"}
    code, out, _ = run(capsys, "calibrate", *(f"{data / 'nanogpt_reruns.npz'}:rerun{i}" for i in range(2)), "--margin", "1%")
    assert code == 0
    assert "2 runs, 2 ordered pairs" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("calibrate", "{data}/nanogpt_reruns.npz:rerun1"), "expected at least 2 reruns"),
        (("calibrate", "{data}/nanogpt_reruns.npz", "--margin", "0.1"), "relative margins"),
        (("plan", "--level", "0", "--planned-steps", "100"), "level is 0.0"),
        (("plan", "--level", "3", "--planned-steps", "100", "--profile", "noise-floor"), "noise-floor margin"),
        (("plan", "--level", "3"), "Missing option"),
    ],
)
def test_bad_usage_of_studies(arguments: tuple[str, ...], says: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *(argument.format(data=data) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("plan", "--level", "3.9", "--planned-steps", "10000", "--candidate-recipe", "nvfp4", "--step-seconds", "2", "--devices", "8")
    code, out, _ = run(capsys, *common)
    assert code == EXIT_CODES["inconclusive"]
    assert "passes only below a gap of 0.0070 nats" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run(capsys, *common, "--candidate-runs", "5", "--baseline-runs", "2", "--json")
    assert (code, json.loads(out)["decides"]) == (0, True)


def test_a_figure_that_cannot_be_drawn_is_one_line(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = compare(capsys, files["fp8"], files["nvfp4"], "--planned-steps", "1500", "--figure", "out.txt")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected a name ending in .png" in err


def test_what_the_answer_is_worth(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    timed = []
    for name, seconds in (("fp8", 1.5), ("mxfp8", 1.0)):
        lines = Path(files[name]).read_text().splitlines()
        path = tmp_path / f"{name}.csv"
        path.write_text("step,loss,step_seconds\n" + "".join(f"{line},{seconds + 0.001 * (i % 7)}\n" for i, line in enumerate(lines[1:])))
        timed.append(str(path))
    common = (*timed, "--planned-steps", "1500", "--full-run-hours", "1000")
    code, out, _ = compare(capsys, *common, "--hour-price", "2", "--devices", "4", "--json")
    (entry,) = json.loads(out)["verdicts"]
    assert code == 0
    assert entry["worth"]["saved_hours"] == pytest.approx(1000 * (1 - 1 / entry["net_speedup"]["value"]))
    assert entry["worth"]["check_hours"] == pytest.approx(4 * entry["throughput"]["run_hours"])
    assert "worth: mxfp8 saves" in compare(capsys, *common)[1]
    assert compare(capsys, *common, "--devices", "0")[0] == 2


@pytest.mark.parametrize("key", ["engine", "device_class", "data_digest"])
def test_arms_on_other_grounds_do_not_pass(key: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    common = (f"a={files['fp8']}", f"b={files['mxfp8']}", "--planned-steps", "1500", "--json", "--context", f"a:{key}=x")
    code, out, _ = compare(capsys, *common, "--context", f"b:{key}=y")
    assert (code, json.loads(out)["verdicts"][0]["codes"][0]) == (3, "CONFOUNDED")
    assert compare(capsys, *common, "--context", f"b:{key}=x")[0] == 0


def test_runs_of_several_seeds_are_paired_gaps(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rng, t = np.random.default_rng(5), np.arange(1500)
    other = 1.38 + 3.5 * np.exp(-t / 80) + rng.normal(0, 0.06, 1500)  # another data order
    for name in ("base", "cand"):
        noisy = other + rng.normal(0, 0.01, 1500)
        (tmp_path / name).write_text("step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in enumerate(noisy)))
    runs = ("--baseline-run", str(tmp_path / "base"), "--candidate-run", f"b={tmp_path / 'cand'}", "--planned-steps", "1500", "--json")
    arms = (f"a={files['fp8']}", f"b={files['mxfp8']}")
    assert json.loads(compare(capsys, *arms, *runs)[1])["verdicts"][0]["codes"][0] == "DATA_ORDER_MISMATCH"
    code, out, _ = compare(capsys, *arms, *runs, "--seeds", "0,1")
    entry = json.loads(out)["verdicts"][0]
    assert (code, entry["se_parts"]["seeds"]) == (0, 2)
    for wrong, says in (("0", "names 1, a has 2 runs"), ("0,x", "expected whole numbers")):
        code, _, err = compare(capsys, *arms, *runs, "--seeds", wrong)
        assert (code, says in err) == (2, True)


def test_a_figure_a_candidate(tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "fig.svg"
    assert compare(capsys, files["fp8"], files["mxfp8"], f"a/b={files['edge']}", "--planned-steps", "1500", "--figure", str(out))[0] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig-a_b.svg", "fig-mxfp8.svg"]
