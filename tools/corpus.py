"""Everything that a user sees, written into one folder, so that two checkouts can be compared:
`python -m tools.corpus FOLDER`.

    python -m tools.corpus /tmp/before        in a checkout of before the change
    python -m tools.corpus /tmp/after         in one of after it
    diff -r /tmp/before /tmp/after            what a user would notice; a change that means to
      change nothing leaves nothing here

Help of every command, exit code and output of `runs` (also of bad input), the judge's document of
every attack, what `verify` says of the bundles of each judge, the REST description, settings and
codes; and every page and answer of the server for one record on each database
(tests/server/pages/test_corpus.py, which needs no browser). Ids and times are numbered in the order
of their appearance.
"""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from typer.core import TyperGroup as Group

from parity.canonical_json import canonical_json
from parity.cli import main as parity
from parity.cli.application import app
from parity.readers import read_runs
from tests.parity.attacks.catalogue import TOPICS
from tests.parity.attacks.pairs import groups
from tools.openapi import text as openapi
from tools.tables.reason_codes import reason_codes
from tools.tables.settings import settings_table

ROOT = Path(__file__).parents[1]
DATA, CURVES = ROOT / "tests" / "data", "examples/curves"
PAIR = (
    *("compare", f"{CURVES}/fp8.csv", f"{CURVES}/nvfp4.csv", "--planned-steps", "1500"),
    *("--recipe", "fp8=fp8_current", "--recipe", "nvfp4=nvfp4"),
)
EVALUATIONS = (
    *(
        "compare",
        "examples/public/llama31-8b/curves.csv",
        "--times",
        "examples/public/llama31-8b/times.csv",
        "--arm-by",
        "precision",
    ),
    *(
        "--run-by",
        "system,run",
        "--step",
        "samples",
        "--loss",
        "eval_loss_nats",
        "--baseline",
        "FP8",
        "--recipe",
        "FP8=fp8_current",
    ),
    *(
        "--recipe",
        "NVFP4=nvfp4_no_rht",
        "--cluster",
        "system",
        "--target",
        "3.3",
        "--tokens-per-step",
        "8192",
    ),
)


def runs(folder: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Command lines by the name of their output; files that they write go to `folder`."""
    for name, line in (("pair", PAIR), ("evaluations", EVALUATIONS)):
        files = (
            "--bundle",
            f"{folder}/{name}.zip",
            "--junit",
            f"{folder}/{name}.xml",
            "--figure",
            f"{folder}/{name}.svg",
        )
        yield f"{name}.txt", (*line, *files)
        yield f"{name}.json", (*line, "--json")
        yield f"{name}.md", (*line, "--markdown")
    yield "three.txt", (*PAIR[:3], f"{CURVES}/mxfp8.csv", *PAIR[3:])
    yield "tokens.txt", (*PAIR, "--margin", "5% tokens at 0.2 nats")
    yield "numbers.txt", ("compare", "bf16=2.242", "fp8=2.276", "--tokens", "23e9")
    yield "plan.txt", ("plan", "--planned-steps", "1000", "--like", f"{CURVES}/fp8.csv")
    yield "plan.json", ("plan", "--planned-steps", "1000", "--json")
    yield "noise.txt", ("noise", "list")
    yield "recipes.txt", ("recipes",)
    yield from (
        (f"verify-{bundle.stem}.txt", ("verify", str(bundle.relative_to(ROOT))))
        for bundle in sorted(DATA.glob("judge-*.zip"))
    )
    bad = {
        "no-file": ("compare", "nothing.csv", f"{CURVES}/nvfp4.csv"),
        "no-column": (*PAIR, "--column", "loss=nothing"),
        "recipe": (*PAIR, "--recipe", "nvfp4=nothing"),
        "margin": (*PAIR, "--margin", "1"),
        "option": (*PAIR, "--nothing"),
        "one": PAIR[:2],
        "command": ("nothing",),
    }
    yield from ((f"bad-{name}.txt", line) for name, line in bad.items())


def output(line: Sequence[str]) -> str:
    """What a command prints, and its exit code."""
    text = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            parity(line)
        except SystemExit as end:
            code = end.code
    return f"{text.getvalue()}\nexit code {code}\n"


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command of a group."""
    if not isinstance(group, Group):
        return
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if command is not None:
            yield from commands(command, (*path, name))


def write(folder: Path) -> None:
    """Write the corpus, but for the server's part."""
    os.environ.update(COLUMNS="100", TERM="dumb")
    os.chdir(ROOT)
    texts = {
        f"help/{'-'.join(words) or 'parity'}.txt": output([*words, "--help"])
        for words in ((), *commands(typer.main.get_command(app)))
    }
    made = folder / "written"
    made.mkdir(parents=True)
    texts |= {
        f"runs/{name}": output(line).replace(str(folder), "FOLDER") for name, line in runs(made)
    }
    texts |= {
        "openapi.json": openapi(),
        "settings.md": settings_table(),
        "codes.md": reason_codes(),
    }
    first, *_ = groups(read_runs(str(DATA / "nanogpt_reruns.npz")))
    for topic, attacks in TOPICS.items():
        for number, attack in enumerate(attacks):
            texts[f"attacks/{topic}/{number:02}.json"] = canonical_json(
                attack.build(first).judged().document()
            )
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    write(target)
    server = (sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/server/pages/test_corpus.py")
    environment = {**os.environ, "PARITY_CORPUS": str(target / "server")}
    sys.exit(subprocess.run(server, cwd=ROOT, env=environment, check=False).returncode)
