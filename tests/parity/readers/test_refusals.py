"""Each refusal ends in what reads the file, or says that nothing in it is a run: what it proposes
is typed as it stands, and reads at once.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from parity.judging.curves.curve import Curve
from parity.readers import ReadError, read_run
from parity.readers.logs.pattern import PATTERN
from tests.parity.readers.kinds.kind import LOSSES, STEPS, lines, records

PROPOSED = re.compile(r"(?:read it with|read them with|say where they stand:|name one as) (.*)$")
RECIPES = ("fp8", "nvfp4")
TEXTS = {
    "a step of another name": ("run.csv", lines("{s},{x}", "n,loss\n")),
    "a loss of another name": ("run.csv", lines("{s},{x},{r}", "step,objective,lr\n")),
    "both of other names": ("run.csv", lines("{s},{x}", "tick,objective\n")),
    "two counters": ("run.csv", lines("{s},{samples},{x}", "tick,tock,loss\n")),
    "a name with a blank and a quote": (
        "run.csv",
        lines("{s},{x}", "step,it's the objective\n"),
    ),
    "tokens": ("run.csv", lines("{samples},{x}", "tokens,loss\n")),
    "a column a run": ("runs.csv", lines("{s},{x},{worse},0.1", "step,bf16,fp8,delta\n")),
    "two losses of one name": (
        "run.csv",
        lines("{s},{x},{worse}", "step,a - train/loss,b - train/loss\n"),
    ),
    "held-out losses alone": ("run.csv", lines("{s},{x}", "step,val_loss\n")),
    "a step that repeats, next to one that does not": (
        "run.csv",
        lines("{i},{s},{x}", "step,my_counter,loss\n"),
    ),
    "an epoch in shares as the step": ("run.csv", lines("{e}.5,{s},{x}", "iter,n,loss\n")),
    "a perplexity called loss": (
        "run.csv",
        lines("{s},9{s}.5,{x}", "step,loss,objective\n"),
    ),
    "nested names": (
        "run.jsonl",
        records(lambda s, x, _: {"progress": {"n": s}, "objective": {"value_nats": x}}),
    ),
    "two tables": (
        "run.json",
        json.dumps({name: {"step": [*STEPS], "loss": LOSSES} for name in RECIPES}),
    ),
    "two runs": ("run.csv", lines("a,{s},{x}\nb,{s},{worse}", "run,step,loss\n")),
    "two runs in JSON lines": (
        "run.jsonl",
        records(lambda s, x, _: {"run": "a", "step": s, "loss": x})
        + records(lambda s, x, _: {"run": "b", "step": s, "loss": x}),
    ),
    "a log of other words": ("run.log", lines("tick {s} objective {x}")),
    "a running mean alone": ("run.log", lines("step {s} avg_loss {x}")),
    "a bar with a running mean": (
        "run.log",
        lines("steps: 10%|# | {s}/40 [00:01<00:02, 1it/s, avr_loss={x}]"),
    ),
    "a log with a padded counter": ("run.log", lines("<{s:5d} of it> objective {x}")),
}
HOPELESS = {
    "words": ("run.txt", "all went well\nsee the figure\n"),
    "an accuracy alone": ("run.csv", lines("{s},0.{s:03d}", "step,accuracy\n")),
    "rates alone": ("run.csv", lines("{s},{r}", "step,lr\n")),
    "final losses of seeds": ("run.csv", lines("{s},{x}", "seed,val_loss\n")),
    "names alone": ("run.csv", "a,b\nx,y\n"),
    "perplexities alone": ("run.csv", lines("{s},9{s}.5", "step,loss\n")),
    "an object without numbers": ("run.json", '{"name": "run 7", "notes": ["good"]}'),
}


def refusal(path: Path) -> str:
    with pytest.raises(ReadError) as refused:
        read_run(str(path))
    said = str(refused.value)
    assert "\n" not in said
    assert "NAME" not in said
    return said


def typed(proposal: str, path: Path) -> Curve:
    """The run that is read by what a refusal proposes, as a shell takes it."""
    words = shlex.split(proposal)
    if not words[0].startswith("--"):
        return read_run(words[0])
    columns = {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        assert flag in ("--column", "--pattern")
        quantity, _, name = ("pattern", "", value) if flag == "--pattern" else value.partition("=")
        columns[PATTERN if quantity == "pattern" else quantity] = name
    return read_run(str(path), columns=columns)


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_refusal_proposes_reads_the_file(name: str, tmp_path: Path) -> None:
    file, text = TEXTS[name]
    path = tmp_path / file
    path.write_text(text)
    found = PROPOSED.search(refusal(path))
    assert found is not None
    for proposal in found[1].partition(", of ")[0].split(" or --column"):
        option = proposal if proposal.startswith(("--", "/")) else f"--column{proposal}"
        run = typed(option, path)
        assert len(run.loss) == len(LOSSES)


@pytest.mark.parametrize("name", HOPELESS)
def test_where_nothing_is_a_run_no_option_is_proposed(name: str, tmp_path: Path) -> None:
    file, text = HOPELESS[name]
    path = tmp_path / file
    path.write_text(text)
    assert not re.search(r"--\w|name one as", refusal(path))
