"""`--pattern`: a log that nothing reads is refused with the option that reads it."""

import json
import shlex
from pathlib import Path


def test_what_a_refusal_proposes_reads_the_log_as_its_table(run, files, tmp_path):
    logs = []
    for name in ("fp8", "nvfp4"):
        with Path(files[name]).open() as table:
            rows = [line.strip().split(",") for line in table][1:]
        path = tmp_path / f"{name}.log"
        path.write_text("".join(f"t={step} obj={loss} ok\n" for step, loss in rows))
        logs.append(str(path))
    arguments = ["--planned-steps", "1500", "--json"]
    code, _, refusal = run("compare", *logs, *arguments)
    assert code == 2
    command = refusal.partition("type `parity ")[2].strip().removesuffix("`")
    code, printed, _ = run(*shlex.split(command))
    _, of_tables, _ = run("compare", files["fp8"], files["nvfp4"], *arguments)
    of_logs, of_tables = (json.loads(text)["verdicts"][0] for text in (printed, of_tables))
    assert code == 1
    assert of_logs["gap"] == of_tables["gap"]
    assert [reason["code"] for reason in of_logs["reasons"]] == [
        reason["code"] for reason in of_tables["reasons"]
    ]


def test_a_pattern_is_for_one_arm_or_for_all(run, files, tmp_path):
    log = tmp_path / "nvfp4.log"
    with Path(files["nvfp4"]).open() as table:
        log.write_text("".join(f"t={line.strip().replace(',', ' obj=')}\n" for line in table))
    pattern = r"t=(?P<step>\d+) obj=(?P<loss>\S+)"
    arms = ["compare", files["fp8"], str(log), "--planned-steps", "1500"]
    assert run(*arms, "--column", f"nvfp4:pattern={pattern}")[0] == 1
    code, _, refusal = run(*arms, "--pattern", pattern)
    assert code == 2
    assert "no line has a loss by the pattern" in refusal


def test_a_pattern_of_numbers_or_a_table_of_runs_is_refused(run, files):
    assert run("compare", "fp8=2.5", "nvfp4=2.6", "--pattern", "(?P<loss>.)")[0] == 2
    code, _, refusal = run(
        "compare", files["fp8"], "--arm-by", "a", "--run-by", "b", "--pattern", "(?P<loss>.)"
    )
    assert code == 2
    assert "--pattern is not used with --arm-by" in refusal
    assert (
        "--pattern is not used without --like"
        in run("plan", "--planned-steps", "100", "--pattern", "(?P<loss>.)")[2]
    )
