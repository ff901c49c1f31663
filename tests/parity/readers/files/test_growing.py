"""Files of lines that are read while they grow: any pieces give what the whole file gives, its
refusals too.
"""

import contextlib
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, STEP
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.formats import growing_reader
from parity.readers.logs.json_log.lines import JsonLines
from parity.readers.logs.pattern import PATTERN
from parity.readers.logs.printed_log import PrintedLog
from parity.readers.logs.train_log import TrainLog
from tests.conftest import some
from tests.parity.readers.logs.corpus.logs import LOGS, REFUSED
from tests.parity.readers.logs.corpus.trainers import megatron, torchtitan

LOSSES = [4.8125, 4.5, 4.375, 4.25, 4.125, 4.0625, 3.984375, 3.9, 3.875, 3.75, 3.5, 3.25]
MORE = {
    "runs": "run_id,step,loss\na,1,2.5\nb,1,2.5\na,2,2.25\n",
    "one run": "run_id,step,loss\na,1,2.5\na,2,2.25\n",
    "long table": 'key,value,step\nloss,2.5,1\n"lr",0.1,1\nloss,2.25,2\n',
    "evaluations": "step,loss,val_loss\n1,2.5,\n2,,2.75\n3,2.25,2.5\n4,2.125,\n",
    "blank lines": "\n\r\n\nstep,loss\r\n\n1,2.5\r\n2,2.25",
    "no header": "1 2.5\n2 2.25\n3 2.125\n",
    "a word": "step,loss\n1,2.5\n2,x\n3,y\n",
    "no rows": "step,loss\n",
    "no JSON": '{"step": 1, "loss": 2.5}\n\n{"step": 2, "loss": }\n',
    "two trainers": "".join(
        f"{megatron(i, loss)}\n{torchtitan(i, loss)}\n" for i, loss in enumerate(LOSSES)
    ),
    "rounded steps": "global_step: 1.0, reduced_train_loss: 2.5\nglobal_step: 1.2e+3, "
    "reduced_train_loss: 2.25\n",
    "late steps": "{'loss': 3.0}\n{'loss': 2.5}\n" * 12 + "step 1 loss 2.5\nstep 2 loss 2.25\n",
    "ranks": "".join(
        f"{rank}: step {i} loss {2.5 - i / 16}\n" for i in range(9) for rank in (0, 1)
    ),
    "ranks that differ": "".join(
        f"{rank}: step {i} loss {rank + 2.5 - i / 16}\n" for i in range(9) for rank in (0, 1)
    ),
    "bars": "".join(f"\r{i}%|# | {i}/90 [00:01, loss=2.{i}]" for i in range(40))
    + "\n 5%|# | 5/9 [00:01, loss=1.5]\nstep 9 loss 3\n",
    "a step that cannot be one": "step 1 loss 2.5\nstep 2 loss 2.5\nstep 99999999999999999999 "
    "loss 2\nstep -3 loss 1\n",
}


FORMS = [*MORE, *LOGS, *(f"refused: {name}" for name in REFUSED)]
REVISED = (TrainLog, PrintedLog, JsonLines)
"""What later lines may revise, as their docstrings say."""


@functools.cache
def form_of(name: str) -> tuple[str, dict[str, str]] | None:
    """A form's text, and what has to be typed for it; None for what is no text."""
    if name in MORE:
        return MORE[name], {}
    with tempfile.TemporaryDirectory() as folder:
        log = LOGS.get(name)
        path = Path(folder) / (log.name if log is not None else "train.log")
        write = log.write if log is not None else REFUSED[name.removeprefix("refused: ")][0]
        write(path, 1, LOSSES)
        flag, value = (log.option if log is not None else None) or ("", "")
        try:
            text = read_text(str(path))
        except ReadError:
            return None
    if flag == "--pattern":
        return text, {PATTERN: value}
    return text, dict([value.split("=")]) if value else {}


def outcome(call: Callable[[], RunColumns]) -> str:
    try:
        columns = call()
    except ReadError as error:
        return str(error)
    values = {name: column.tolist() for name, column in sorted(columns.values.items())}
    # NaN is NaN
    return repr((values, columns.names, [*columns.found], columns.notes, columns.planned_steps))


@settings(max_examples=some(400))
@given(name=st.sampled_from(FORMS), data=st.data())
def test_any_pieces_give_what_the_whole_file_gives(name: str, data: st.DataObject) -> None:
    form = form_of(name)
    assume(form is not None and len(form[0]) > 1)
    text, named_columns = form
    cuts = data.draw(
        st.lists(st.tuples(st.integers(1, len(text) - 1), st.booleans()), max_size=12).map(sorted)
    )
    reader, is_revised = growing_reader(text, "train.log", named_columns), False

    def in_pieces() -> RunColumns:
        nonlocal is_revised
        before: list[float] = []
        for start, (end, is_asked) in zip(
            (0, *(at for at, _ in cuts)), (*cuts, (len(text), False)), strict=True
        ):
            reader.feed(text[start:end])
            if is_asked:
                with contextlib.suppress(ReadError):
                    losses = reader.columns().values[LOSS].tolist()
                    is_revised = is_revised or repr(losses[: len(before)]) != repr(before)
                    before = losses
        return reader.read("")

    assert outcome(in_pieces) == outcome(
        lambda: growing_reader(text, "train.log", named_columns).read(text)
    )
    assert not is_revised or isinstance(reader, REVISED)


def test_a_torn_line_counts_when_its_end_has_come() -> None:
    tables = ("step,loss\n1,2.5\n2,2.25\n", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    for text in (*tables, "step 1 loss 2.5\nstep 2 loss 2.25\n"):
        reader = growing_reader(text, "train.log", {})
        reader.feed(text[:-2])
        assert reader.columns().values[LOSS].tolist() == [2.5]
        reader.feed(text[-2:])
        assert reader.columns().values[LOSS].tolist() == [2.5, 2.25]


def test_a_first_step_revises_what_was_numbered() -> None:
    lines = "{'loss': 3.0}\n{'loss': 2.5}\n"
    reader = growing_reader(lines, "train.log", {})
    reader.feed(lines)
    assert reader.columns().values[STEP].tolist() == [1, 2]
    reader.feed("step 7 loss 2.5\n")
    assert reader.columns().values[STEP].tolist() == [7]
