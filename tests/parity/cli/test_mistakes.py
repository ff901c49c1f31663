"""The most likely mistakes on the command line: each gives one line on stderr, its exit code, and
no traceback.

Here the whole line is the contract: what is wrong, its value, what was expected, what to do.
"""

import http.server
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

FILES = {
    "empty.csv": "",
    "header.csv": "step,loss\n",
    "word.csv": "step,loss\n1,low\n2,2.0\n",
    "halves.csv": "step,loss\n1.5,2.0\n2.5,2.0\n",
    "negative.csv": "step,loss\n-1,2.0\n",
    "names.csv": "it,ce\n1,2\n2,2\n",
    "three.csv": "1,2,3\n4,5,6\n",
    "nul.csv": "step,loss\n1\0,2\n",
    "rows.csv": "loss\n2.5\n2.4\n2.3\n",
    "fewer.csv": "loss\n2.5\n2.4\n",
    "long.csv": "run_id,key,value,step,timestamp\na,loss,2.0,1,9\nb,loss,2.5,1,9\n",
    "many.csv": "run,step,loss\n"
    + "".join(f"r{run},{step},2.0\n" for run in range(12) for step in range(3)),
    "wide.csv": "Step,fp 8 - train/loss,nv - train/loss\n1,2.0,2.5\n2,2.0,2.5\n",
    "mixed.csv": "step,loss\n"
    + "".join(f"{step},{loss}\n" for step in range(9) for loss in (2.0, 2.5)),
    "ppl.csv": "step,loss\n1,44.0\n2,41.0\n",
    "cell.csv": "step,loss,lr\n1,2.0,fast\n",
    "whole.csv": "1,2\n2,3\n",
    "state.json": '{"log_history": [\n',
    "cut.jsonl": '{"step": 1, "loss": 2}\n{"step": 2\n',
    "acc.csv": "a,b\n1,2\n",
    "bad.zip": "PK",
    "broken.yaml": "x: [\n",
    "list.yaml": "- 1\n",
    "nopolicy.yaml": "job: {}\n",
    "typo.yaml": "job: {a: 1}\npolicy: {margn: 1%}\n",
    "key.yaml": "job: {a: 1}\npolicy: {margin: 1%}\nbaselin: {name: x}\n",
    "gate.yaml": "job: {a: 1}\npolicy: {margin: 1%}\ngate: {on_infra: maybe}\n",
    "date.yaml": "job: {a: 2026-01-01}\npolicy: {margin: 1%}\n",
    "job.yaml": "job: {a: 1}\npolicy: {margin: 1%}\n",
}

# What is typed, the exit code, and the line after "parity: ".
MISTAKES = [
    ("resend folder", 0, "folder: nothing to send"),
    (
        "resend refused",
        0,
        (
            "refused: nothing to send; 1 spool that the server refused: `parity resend "
            "refused/1.refused` tries one again"
        ),
    ),
    (
        "compare long.csv",
        2,
        (
            "long.csv holds 2 runs: a, b; name a baseline and its candidates: `parity compare "
            "long.csv:a long.csv:b`, or use --arm-by"
        ),
    ),
    (
        "compare base=wide.csv",
        2,
        (
            "wide.csv holds 2 runs: fp 8, nv; name a baseline and its candidates: "
            "`parity compare 'wide.csv:fp 8' wide.csv:nv`, or use --arm-by"
        ),
    ),
    (
        "compare many.csv",
        2,
        (
            "many.csv holds 12 runs: r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 and 2 more; name a "
            "baseline and its candidates: `parity compare many.csv:r0 many.csv:r1`, or use --arm-by"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --planned-steps 1500 --assume-complete",
        2,
        "--planned-steps and --assume-complete exclude each other; give only one of them",
    ),
    (
        "compare fp8.csv mxfp8.csv --margin 0.01 nats",
        2,
        (
            "--margin is '0.01', without a unit; type --margin 0.01% for a share of the loss, or "
            '--margin "0.01 nats"'
        ),
    ),
    (
        "plan --level 2.7 --planned-steps 1000 --margin 0.01 nats",
        2,
        (
            "unexpected argument 'nats'; quote an amount that has a blank, such as --margin \"0.01 "
            'nats"'
        ),
    ),
    (
        "calibrate fp8.csv mxfp8.csv --recipe nvpf4",
        2,
        "--recipe is 'nvpf4'; did you mean nvfp4?",
    ),
    (
        "calibrate fp8.csv mxfp8.csv --recipe nvfp4 --rounding nearest",
        2,
        (
            "--rounding is nearest, but recipe nvfp4 rounds stochastically; expected another "
            "recipe, such as nvfp4_no_sr or other:NAME"
        ),
    ),
    (
        "plan --level 2.7 --planned-steps 10 --baseline-recipe nvfp4 --baseline-rounding nearest",
        2,
        (
            "--baseline-rounding is nearest, but recipe nvfp4 rounds stochastically; "
            "expected another recipe, such as nvfp4_no_sr or other:NAME"
        ),
    ),
    (
        "compare fp8.csv",
        2,
        (
            "only one run was given; expected a baseline and at least one candidate, or --arm-by "
            "for a table of many runs"
        ),
    ),
    ("compare fp8.csv nofile.csv", 2, "nofile.csv: no such file; check the path"),
    (
        "compare fp8.csv folder",
        2,
        (
            "folder: contains no TensorBoard event file (a name with tfevents in it); name a file, "
            "or another folder"
        ),
    ),
    (
        "compare fp8.csv empty.csv",
        2,
        "empty.csv: the file is empty; expected one line per training step",
    ),
    (
        "compare fp8.csv header.csv",
        2,
        "header.csv: a header but no rows; expected one row per training step",
    ),
    (
        "compare fp8.csv word.csv",
        2,
        "word.csv, line 2: 'low' in the loss column; expected a number (nan and inf are allowed)",
    ),
    (
        "compare fp8.csv halves.csv",
        2,
        (
            "halves.csv, line 2: step 1.5 is not a whole number from 0 to 2^53; no choice of its "
            "columns reads as the losses of one run"
        ),
    ),
    (
        "compare fp8.csv negative.csv",
        2,
        (
            "negative.csv, line 2: step -1.0 is not a whole number from 0 to 2^53; no choice of "
            "its columns reads as the losses of one run"
        ),
    ),
    (
        "compare fp8.csv names.csv",
        2,
        (
            "names.csv: no step column among 'it', 'ce'; no choice of its columns reads as the "
            "losses of one run"
        ),
    ),
    (
        "compare fp8.csv three.csv",
        2,
        "three.csv: no header and 3 columns; expected two (step, loss), or a first line with names",
    ),
    (
        "compare fp8.csv long.csv",
        2,
        (
            "long.csv holds 2 runs; name one as long.csv:a, of a, b: `parity compare fp8.csv "
            "long.csv:a`"
        ),
    ),
    ("compare fp8.csv long.csv:c", 2, "long.csv: no run 'c'; there are a, b"),
    (
        "compare fp8.csv mxfp8.csv:a",
        2,
        (
            "mxfp8.csv: no column names the run, and no column is called 'a'; expected a column "
            "such as run_id, or one that is called as the run; the columns are 'step', 'loss'"
        ),
    ),
    (
        "compare fp8.csv mixed.csv",
        2,
        (
            "mixed.csv: 9 of 18 rows repeat a step with another loss (first step 0), so two runs "
            "or ranks may be mixed; expected one row "
            "per step; keep one run or rank in the file, or remove the rows of the earlier attempt"
        ),
    ),
    (
        "compare fp8.csv ppl.csv",
        2,
        (
            "ppl.csv: every value in column 'loss' is outside 0 to 30 nats (41 to 44), so it is "
            "not a loss per token (a perplexity, or a sum?); expected the cross-entropy in nats "
            "per token; no choice of its columns reads as the losses of one run"
        ),
    ),
    (
        "compare fp8.csv cell.csv",
        2,
        (
            "cell.csv, line 2: 'fast' in the learning_rate column; expected a number (nan and inf "
            "are allowed)"
        ),
    ),
    (
        "compare fp8.csv whole.csv",
        2,
        (
            "whole.csv: no header, and both columns could be the step; expected a first line with "
            "names, such as step,loss"
        ),
    ),
    (
        "compare fp8.csv state.json",
        2,
        "state.json, line 2: not valid JSON; expected trainer_state.json as the trainer wrote it",
    ),
    (
        "compare fp8.csv mxfp8.csv --column nvfp4:loss=x",
        2,
        "--column: no arm or file is called 'nvfp4'; there are fp8, mxfp8, fp8.csv, mxfp8.csv",
    ),
    (
        "compare fp8.csv mxfp8.csv --column mxfp8:los=x",
        2,
        (
            "--column is 'mxfp8:los=x'; expected QUANTITY=NAME or WHERE:QUANTITY=NAME, with "
            "QUANTITY one of step, loss, grad_norm, clipped_grad_norm, learning_rate, "
            "step_seconds, unix_seconds, tokens, tokens_per_second, tflops, perplexity, "
            "validation_loss, planned_steps, total_loss; did you mean loss?"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --recipe mxfp8=nvpf4",
        2,
        "--recipe mxfp8 is 'nvpf4'; did you mean nvfp4?",
    ),
    (
        "compare fp8.csv mxfp8.csv --rounding mxfp8=up",
        2,
        "--rounding mxfp8 is 'up'; expected stochastic or nearest",
    ),
    (
        "compare fp8.csv mxfp8.csv --rounding nearest",
        2,
        "--rounding is 'nearest'; expected NAME=stochastic or NAME=nearest",
    ),
    (
        "compare fp8.csv cut.jsonl",
        2,
        (
            'cut.jsonl, line 2: not valid JSON; expected one object per line such as {"step": 1, '
            '"loss": 2.5}'
        ),
    ),
    (
        "compare fp8.csv nul.csv",
        2,
        (
            "nul.csv, line 2: byte 11 is NUL, so this is not text; expected CSV, JSON lines, .npz, "
            "Parquet or events"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --column loss=los",
        2,
        (
            "fp8.csv: no column 'los' for loss; the columns are 'step', 'loss'; did you mean "
            "'loss'?; type `parity compare fp8.csv mxfp8.csv --column loss=loss`"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --column loss",
        2,
        (
            "--column is 'loss'; expected QUANTITY=NAME such as loss=train/loss, or "
            "WHERE:QUANTITY=NAME"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --margin -1%",
        2,
        (
            '--margin is \'-1%\'; expected a positive amount such as "1.0%", "0.01 nats" or "5% '
            'tokens"'
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --margin 1",
        2,
        (
            "--margin is '1', without a unit; type --margin 1% for a share of the loss, or "
            "--margin "
            '"1 nats"'
        ),
    ),
    (
        'compare fp8.csv mxfp8.csv --margin "1 percent"',
        2,
        (
            '--margin is \'1 percent\'; expected a positive amount such as "1.0%", "0.01 nats" or '
            '"5% tokens"'
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --margin 1,5%",
        2,
        (
            '--margin is \'1,5%\'; expected a positive amount such as "1.0%", "0.01 nats" or "5% '
            'tokens"'
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --margin nan",
        2,
        (
            '--margin is \'nan\'; expected a positive amount such as "1.0%", "0.01 nats" or "5% '
            'tokens"'
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --profile nvpf4",
        2,
        (
            "--profile is 'nvpf4'; expected one of nvfp4, nvfp4-decay, fp8-grade, bf16-bar, "
            "noise-floor; did you mean nvfp4?"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --planned-steps 1e3",
        2,
        "--planned-steps is '1e3'; expected a whole number, at least 1",
    ),
    (
        "compare fp8.csv mxfp8.csv --planned-steps 0",
        2,
        "--planned-steps is '0'; expected a whole number, at least 1",
    ),
    (
        "compare fp8.csv mxfp8.csv --recipe nvfp4=nvfp4",
        2,
        "--recipe nvfp4: no such run; the runs are called fp8, mxfp8; name yours as in nvfp4=FILE",
    ),
    (
        "compare fp8.csv mxfp8.csv --recipe nvfp4",
        2,
        "--recipe is 'nvfp4'; expected NAME=RECIPE such as nvfp4=nvfp4",
    ),
    (
        "compare fp8.csv mxfp8.csv --candidate-run mxfp8",
        2,
        "--candidate-run is 'mxfp8'; expected NAME=FILE",
    ),
    (
        "compare fp8.csv mxfp8.csv --seeds a",
        2,
        "--seeds is 'a'; expected whole numbers such as 0,1,2",
    ),
    (
        "compare fp8.csv mxfp8.csv --seeds 1,2",
        2,
        "--seeds has 2 seeds, but fp8 has 1 run; expected one seed for each run of an arm",
    ),
    (
        "compare fp8.csv mxfp8.csv --context fp8=engine",
        2,
        "--context is 'fp8=engine'; expected NAME:KEY=VALUE such as fp8:engine=maxtext",
    ),
    (
        "compare fp8.csv mxfp8.csv --json --markdown",
        2,
        "--json and --markdown exclude each other; give only one of them",
    ),
    (
        "compare fp8.csv mxfp8.csv --figure out.txt",
        2,
        "out.txt: expected a name ending in .png, .svg, .pdf",
    ),
    (
        "compare fp8.csv mxfp8.csv --junit nowhere/out.xml",
        2,
        "nowhere/out.xml: cannot be written (no such file or folder)",
    ),
    (
        "compare fp8.csv mxfp8.csv --bundle folder",
        2,
        "folder: cannot be written (it is a directory)",
    ),
    (
        "compare fp8.csv mxfp8.csv --policy nofile.yaml",
        2,
        "nofile.yaml: cannot be read (no such file or folder); expected a YAML file",
    ),
    (
        "compare fp8.csv mxfp8.csv --policy broken.yaml",
        2,
        "broken.yaml, line 2: not valid YAML; check brackets, quotes and indentation there",
    ),
    (
        "compare fp8.csv mxfp8.csv --policy list.yaml",
        2,
        "list.yaml: no `policy:` with keys below it; expected such as policy: {margin: 1.0%}",
    ),
    (
        "compare fp8.csv mxfp8.csv --policy typo.yaml",
        2,
        "typo.yaml, line 2: policy.margn: unknown key; did you mean margin?",
    ),
    (
        "compare fp8.csv mxfp8.csv --check acuracy",
        2,
        (
            "--check is 'acuracy'; expected one of grad_norm, spikes, validation_loss, accuracy, "
            "net_speedup; did you mean accuracy?"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --evaluation mxpf8=acc.csv",
        2,
        "--evaluation mxpf8: no such run; did you mean mxfp8?",
    ),
    (
        "compare fp8.csv mxfp8.csv --evaluation mxfp8=acc.csv",
        2,
        (
            "acc.csv, row 2: no task; expected the columns task, correct (one row per item) or "
            "task, accuracy, n"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --accuracy-margin -1",
        2,
        "--accuracy-margin is -1.0; expected a number from 0.001 to 100",
    ),
    (
        "compare fp8.csv mxfp8.csv --full-run-hours -5",
        2,
        "--full-run-hours is -5.0; expected more than 0",
    ),
    (
        "compare fp8.csv mxfp8.csv --planed-steps 5",
        2,
        "unknown option --planed-steps; did you mean --planned-steps?",
    ),
    (
        "compare fp8.csv mxfp8.csv --steps 1500",
        2,
        "unknown option --steps; did you mean --planned-steps?",
    ),
    (
        "compare fp8.csv fp8.csv --planned-steps 1500",
        2,
        "fp8.csv: the same file was given twice; expected another file for each run",
    ),
    (
        "compare fp8.csv mxfp8.csv --baseline-run fp8.csv",
        2,
        "fp8.csv: the same file was given twice; expected another file for each run",
    ),
    ("compare - -", 2, '"-" was given more than once; stdin can be read only once'),
    ("compare fp8.csv mxfp8.csv --margin", 2, "--margin needs a value"),
    ("comprae fp8.csv mxfp8.csv", 2, "unknown command 'comprae'; did you mean compare?"),
    (
        "verify nofile.zip",
        2,
        "nofile.zip: no such file; expected an evidence bundle of `parity compare --bundle`",
    ),
    (
        "verify bad.zip",
        2,
        "bad.zip: not a zip file; expected an evidence bundle of `parity compare --bundle`",
    ),
    (
        "verify fp8.csv",
        2,
        "fp8.csv: not a zip file; expected an evidence bundle of `parity compare --bundle`",
    ),
    (
        "verify folder",
        2,
        "folder: is a directory; expected an evidence bundle of `parity compare --bundle`",
    ),
    ("calibrate fp8.csv", 2, "1 run was given; expected at least 2 reruns of one configuration"),
    (
        "calibrate fp8.csv mxfp8.csv --margin 0.01",
        2,
        "--margin is 0.01; expected a relative margin such as 1%",
    ),
    (
        "plan --level 2.7",
        2,
        (
            "--planned-steps is missing; example: `parity plan --planned-steps 10000 "
            "--candidate-recipe nvfp4`"
        ),
    ),
    ("plan --level 2,7 --planned-steps 1000", 2, "--level is '2,7'; expected a number"),
    ("plan --level -1 --planned-steps 1000", 2, "--level is -1.0; expected more than 0"),
    (
        "plan --level 2.7 --planned-steps 1000 --autocorrelation 1",
        2,
        "--autocorrelation is 1.0; expected 0 to below 1",
    ),
    ("plan --level nan --planned-steps 1000", 2, "--level is nan; expected more than 0"),
    (
        "submit nofile.yaml",
        2,
        "nofile.yaml: cannot be read (no such file or folder); expected a YAML file",
    ),
    ("submit list.yaml", 2, "list.yaml: is not a job file; expected the keys `job:` and `policy:`"),
    (
        "submit nopolicy.yaml",
        2,
        (
            "nopolicy.yaml: `policy:` is missing or has no keys below it; compare with "
            "examples/demo.yaml"
        ),
    ),
    (
        "submit key.yaml",
        2,
        (
            "key.yaml, line 3: unknown key 'baselin'; expected job, policy, baseline, gate or "
            "tags; did you mean baseline?"
        ),
    ),
    (
        "submit broken.yaml",
        2,
        "broken.yaml, line 2: not valid YAML; check brackets, quotes and indentation there",
    ),
    (
        "submit date.yaml --server http://127.0.0.1:9",
        2,
        (
            "date.yaml: contains a value that JSON cannot hold, such as a date or .inf; quote "
            "dates and use finite numbers"
        ),
    ),
    (
        "submit job.yaml --priority high",
        2,
        "--priority is 'high'; expected a whole number from -100 to 100",
    ),
    (
        "submit job.yaml --server http://127.0.0.1:9",
        4,
        (
            "no answer from http://127.0.0.1:9 (connection refused); check that the server runs "
            "and that PARITY_URL is right"
        ),
    ),
    (
        "status --server localhost:8321",
        4,
        "server address 'localhost:8321' is not a URL; expected one such as http://127.0.0.1:8321",
    ),
    (
        "status --server http://127.0.0.1:port",
        4,
        (
            "server address 'http://127.0.0.1:port' is not a URL; expected one such as "
            "http://127.0.0.1:8321"
        ),
    ),
    (
        "status --token tökén",
        4,
        (
            "the token has blanks or characters that no token has; expected one such as "
            "parity_t...: check PARITY_TOKEN or --token"
        ),
    ),
    (
        "status --server http://127.0.0.1:9",
        4,
        (
            "no answer from http://127.0.0.1:9 (connection refused); check that the server runs "
            "and that PARITY_URL is right"
        ),
    ),
    (
        "status --status runing",
        2,
        (
            "--status is 'runing'; expected one of queued, running, concluded, failed, cancelled; "
            "did you mean running?"
        ),
    ),
    ("status --limit 0", 2, "--limit is '0'; expected a whole number from 1 to 500"),
    ("gate gate.yaml", 2, "gate.yaml, line 3: gate.on_infra is 'maybe'; expected fail or pass"),
    ("gate job.yaml --on-infra maybe", 2, "--on-infra is 'maybe'; expected fail or pass"),
    (
        "gate job.yaml --json nowhere/x.json",
        2,
        "nowhere/x.json: cannot be written; expected a file name in an existing folder",
    ),
    (
        "resend nofile",
        2,
        "nofile: no such file or folder; expected a spool, such as the folder parity-spool",
    ),
    (
        "resend fp8.csv",
        2,
        "fp8.csv: is not a spool of parity.Run; expected a file below the folder parity-spool",
    ),
    (
        "import fp8.csv",
        2,
        (
            "--as-run is missing; expected the id of the run in each file, or --arm-by and --job "
            "for a table of many runs"
        ),
    ),
    (
        "import rows.csv fewer.csv --as-run a --as-run b",
        2,
        (
            "a (rows) has 3 losses and b (fewer) has 2, and neither has steps, so it is unknown "
            "which losses belong together; expected equal numbers of losses, or steps in both; log "
            "the step; if lines were removed, give the whole log"
        ),
    ),
    (
        "import fp8.csv --as-run a --as-run b",
        2,
        "1 file but 2 x --as-run; expected one for each file, in the same order",
    ),
    (
        "baseline show @1",
        2,
        "'@1' is not the name of a baseline; expected NAME or NAME@VERSION such as fp8@1",
    ),
    (
        "baseline expire fp8 --reason x",
        2,
        "'fp8' has no version; expected NAME@VERSION such as fp8@1",
    ),
    (
        "baseline promote fp8 j1",
        2,
        (
            "--reason is missing; example: `parity baseline promote fp8 j0000000000001 --reason "
            "'first release'`"
        ),
    ),
    ("baseline", 2, "`parity baseline` needs a command; see `parity baseline --help`"),
    ("compare fp8.csv mxfp8.csv --planned-steps", 2, "--planned-steps needs a value"),
    ("compare fp8.csv mxfp8.csv --devices two", 2, "--devices is 'two'; expected a whole number"),
    (
        "status ../x --server http://127.0.0.1:9",
        4,
        (
            "no answer from http://127.0.0.1:9 (connection refused); check that the server runs "
            "and that PARITY_URL is right"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --devices 0 --full-run-hours 2",
        2,
        "--devices is 0; expected at least 1",
    ),
    ("compare x.npz y.npz", 2, "x.npz: no such file; check the path"),
    (
        "compare fp8.csv mxfp8.csv --layer-snr acc.csv",
        2,
        "acc.csv, row 2: no layer; expected the columns layer, operand, snr_db",
    ),
    ("report", 2, "JOB is missing; example: `parity report j0000000000001 --html report.html`"),
    (
        "status --server http://SERVER/html",
        4,
        (
            "http://SERVER/html did not answer /api/v1/jobs with JSON; check that PARITY_URL is a "
            "parity server"
        ),
    ),
    ("status --server http://SERVER/locked", 2, "a token is needed: set PARITY_TOKEN"),
    ("status j1 --server http://SERVER/missing", 2, "no job j1"),
    (
        "compare fp8.csv mxfp8.csv --profile step-noise",
        2,
        (
            "--profile is 'step-noise'; expected one of nvfp4, nvfp4-decay, fp8-grade, bf16-bar, "
            "noise-floor; step noise is reported in every headline but never decides"
        ),
    ),
    (
        "compare fp8.csv mxfp8.csv --evaluation mxfp8=nofile.csv",
        2,
        "nofile.csv: no such file; check the path",
    ),
    (
        "compare fp8.csv mxfp8.csv --control nofile.csv",
        2,
        "nofile.csv: no such file; check the path",
    ),
    ("compare fp8.csv mxfp8.csv --json=yes", 2, "--json takes no value; give it alone"),
    (
        "verify a.zip b.zip",
        2,
        (
            "a.zip: not a card, and only a card has further evidence; expected a bundle alone, or "
            "a card such as card.yaml first"
        ),
    ),
    (
        "plan --level 2.7 --planned-steps 1000 --profile noise-floor",
        2,
        (
            "the noise-floor margin can't be planned with: it is measured by the runs; state a "
            "margin in % or nats"
        ),
    ),
    (
        "plan --level 2.7 --planned-steps 1000 --margin 1",
        2,
        (
            "--margin is '1', without a unit; type --margin 1% for a share of the loss, or "
            "--margin "
            '"1 nats"'
        ),
    ),
    ("baseline promot fp8 j1", 2, "unknown command 'promot'; did you mean promote?"),
    (
        "compare",
        2,
        (
            "BASE CAND [CAND...] is missing; example: `parity compare fp8.csv nvfp4.csv --recipe "
            "nvfp4=nvfp4 --planned-steps 1500`"
        ),
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> Path:
    """A folder with two good runs and everything that can be wrong."""
    made = tmp_path_factory.mktemp("mistakes")
    (made / "folder").mkdir()
    (made / "refused").mkdir()
    (made / "refused" / "1.refused").touch()
    for name in ("fp8", "mxfp8"):
        (made / f"{name}.csv").write_text(Path(files[name]).read_text())
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


class _Answers(http.server.BaseHTTPRequestHandler):
    """A server that is no parity server below /html, wants a token below /locked, and knows nothing
    below /missing.
    """

    def do_GET(self) -> None:
        """Answer by the first part of the path."""
        problem = "application/problem+json"
        status, kind, body = {
            "html": (200, "text/html", b"<html>"),
            "locked": (401, problem, b'{"detail": "a token is needed: set PARITY_TOKEN"}'),
            "missing": (404, problem, b'{"detail": "no job j1"}'),
        }[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Host and port of such a server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(("call", "code", "line"), MISTAKES, ids=[call for call, _, _ in MISTAKES])
def test_a_mistake_is_one_line(
    call: str,
    code: int,
    line: str,
    folder: Path,
    server: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    for name in ("PARITY_URL", "PARITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    left, out, err = run(*shlex.split(call.replace("SERVER", server)))
    assert (left, out, err.replace(server, "SERVER")) == (code, "", f"parity: {line}\n")
