"""Readers: every accepted file gives the same curve, every refused one a single line with file,
line and remedy.
"""

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parity.cli import main
from parity.readers import read_run
from parity.readers.errors import ReadError
from parity.readers.run_names import run_name
from tests.conftest import some


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n1,2.5\n2,nan\n3,inf\n",
        "step,loss\r\n1,2.5\r\n2,NaN\r\n3,Infinity\r\n",
        "\ufeffStep,Loss\n1,2.5\n2,NAN\n3,Inf",
        "step\tloss\n1\t2.5\n2\tnan\n3\tinf\n",
        "step;loss\n1;2.5\n2;nan\n3;inf\n",
        "step loss\n1 2.5\n2 nan\n3 inf\n",
        "1,2.5\n2,nan\n3,inf\n",
        "1 2.5\n2 nan\n3 inf\n",
        "\n\nstep,loss\n1,2.5\n\n2,nan\n3,inf\n",
        "Wall time,Step,Value\n9,1,2.5\n9,2,nan\n9,3,inf\n",
        (
            '"Step","run 7 - train/loss","run 7 - '
            'train/loss__MIN"\n"1","2.5","2"\n"2","nan",""\n"3","inf","1"\n'
        ),
        "iteration,lm loss,loss\n1,2.5,9\n2,nan,9\n3,inf,9\n",
        "step,note,loss\n1,hello,2.5\n2,x,nan\n3,,inf\n",
        "step,loss\n1,2.5\n2,\n2.0e0,nan\n3,inf\n,\n",
        '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": NaN}\n{"step": 3.0, "loss": Infinity}\n',
        (
            '{"step": 1, "loss": 2.5}\n\n{"eval": 1}\n{"step": 2, "loss": "NaN"}\n{"step": 3, '
            '"loss": '
            '"inf"}\n'
        ),
    ],
)
def test_the_same_run_in_many_spellings(text: str, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "run.csv", text))
    assert run.steps.tolist() == [1, 2, 3]
    assert run.loss[0] == 2.5
    assert np.isnan(run.loss[1])
    assert np.isposinf(run.loss[2])


def test_names_and_columns(tmp_path: Path) -> None:
    file = write(tmp_path, "a.csv", "it,ce,loss,grad_norm,lr\n1,2.0,9,0.5,0.1\n2,1.9,9,,0.1\n")
    run = read_run(
        file, columns={"step": "it", "loss": "ce"}, label="mine", recipe="nvfp4", replicate=2
    )
    assert (run.label, run.recipe, run.replicate) == ("mine", "nvfp4", 2)
    assert run.loss.tolist() == [2.0, 1.9]
    assert run.columns["grad_norm"][0] == 0.5
    assert np.isnan(run.columns["grad_norm"][1])
    assert run.columns["learning_rate"].tolist() == [0.1, 0.1]
    assert read_run(file, columns={"step": "it"}).loss.tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.csv", "", "the file is empty"),
        ("blank.csv", " \n\n", "the file is empty"),
        ("header.csv", "step,loss\n", "a header but no rows"),
        (
            "text.csv",
            "step,loss\n1,2.0\n2,two\n",
            "line 3: 'two' in the loss column; expected a number",
        ),
        ("textstep.csv", "step,loss\n1,2.0\nx,2.0\n", "line 3: 'x' in the step column"),
        ("short.csv", "step,loss\n1,2.0\n2\n", "line 3: nothing in the loss column"),
        (
            "nocolumn.csv",
            "a,b\n1,2\n",
            r"no step column among 'a', 'b'; no choice of its columns reads",
        ),
        ("noloss.csv", "step,b\n1,2\n", "no loss column"),
        ("two.csv", "step,a - loss,b - loss\n1,2,3\n", "holds 2 runs; name one as"),
        ("both.csv", "step,a - loss,loss\n1,2,3\n", "2 columns could be 'loss'"),
        ("three.csv", "1,2,3\n4,5,6\n", "no header and 3 columns"),
        ("negative.csv", "step,loss\n-1,2.0\n", "line 2: step -1.0 is not a whole number from 0"),
        ("huge.csv", "step,loss\n1e300,2.0\n", "line 2: step 1e[+]300 is not a whole number"),
        ("fraction.csv", "step,loss\n1.5,2.0\n", "line 2: step 1.5"),
        ("negative.jsonl", '{"step": -3, "loss": 2}', "line 1: step -3.0 is not a whole number"),
        ("nanstep.csv", "step,loss\nnan,2.0\n", "step nan"),
        ("nul.csv", b"step,loss\n1,2\n\0\0", "line 3: byte 14 is NUL"),
        ("underscore.csv", "step,loss\n1,2.0\n2,1_0\n", "line 3: '1_0' in the loss column"),
        ("garbage.parquet", bytes(range(256)) * 9, "not a readable Parquet file.* export CSV"),
        ("garbage.npz", bytes(range(1, 256)) * 9, "not a NumPy archive"),
        (
            "events.out.tfevents.1",
            bytes(range(255, 0, -1)) * 9,
            "expected a TensorBoard event file",
        ),
        ("garbage.csv", bytes(range(1, 256)) * 9, "line 2: byte 127 is not UTF-8"),
        (
            "words.csv",
            "name,text\nfoo,bar\n",
            "no step column among 'name', 'text'; no choice of its columns reads",
        ),
        (
            "wordcells.csv",
            "step,loss\nfoo,bar\n",
            "line 2: 'foo' in the step column; expected a number",
        ),
        ("latin.csv", b"step,loss\n1,2\n\xff\xfe,3\n", "line 3: byte 14 is not UTF-8"),
        ("endless.csv", b"step,loss\n" + b"1" * (3 << 20), "line 2: longer than 1 MiB"),
        ("bad.jsonl", '{"step": 1, "loss": 2}\n{"step": 2\n', "line 2: not valid JSON"),
        (
            "twice.jsonl",
            '{"step": 1, "loss": 2}\n{"step": 2, "loss": 9, "loss": 2}\n',
            "line 2: 'loss' is 9 and 2 in one object",
        ),
        (
            "twice.json",
            '[{"step": 1, "loss": 2}, {"step": 2, "loss": NaN, "loss": 2}]',
            "'loss' is nan and 2 in one object",
        ),
        (
            "twice-by-step.json",
            '{"loss": {"values": {"1": 2, "2": 9, "2": 2}}}',
            "'2' is 9 and 2 in one object",
        ),
        ("list.jsonl", '{"step": 1, "loss": 2}\n[1]\n', "line 2: '\\[1\\]' is not a JSON object"),
        (
            "word.jsonl",
            '{"step": 1, "loss": "low"}\n',
            "line 1: 'loss' is 'low'; expected a number",
        ),
        ("nostep.jsonl", '{"step": 1, "loss": 2}\n{"loss": 2}\n', "line 2: 'step' is None"),
        ("bool.jsonl", '{"step": 1, "loss": true}\n', "line 1: 'loss' is True"),
        ("deep.jsonl", '{"a":' + "[" * 100_000 + "\n", "line 1: not valid JSON"),
        ("cut.csv.gz", gzip.compress(b"step,loss\n1,2\n", mtime=0)[:-9], "cannot be read"),
        ("fake.csv.gz", b"step,loss\n1,2\n", "cannot be read"),
        ("fake.npz", b"PK nothing", "not a NumPy archive"),
    ],
)
def test_bad_files_are_one_line_that_names_the_file(
    name: str, text: str | bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, name, text)
    with pytest.raises(ReadError, match=message) as caught:
        read_run(file)
    assert str(caught.value).startswith(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(SystemExit) as left:
        main(["compare", write(tmp_path, "good.csv", "step,loss\n1,2.0\n2,1.9\n"), file])
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert err.startswith(f"parity: {str(caught.value).partition('; read it with')[0]}")
    assert err.count("\n") == 1


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="contains no TensorBoard event file"):
        read_run(str(tmp_path))
    with pytest.raises(ReadError, match="no such file"):
        read_run(str(tmp_path / "nothing.csv"))
    with pytest.raises(ReadError, match="no column 'x' for loss; the columns are 'step', 'loss'"):
        read_run(write(tmp_path, "a.csv", "step,loss\n1,2\n"), columns={"loss": "x"})
    with pytest.raises(ReadError, match="no header line, so no column 'x'"):
        read_run(write(tmp_path, "b.csv", "1,2\n"), columns={"loss": "x"})


class Endless(io.RawIOBase):
    """A line without end, such as 2 GB of digits; counts what is asked of it."""

    given = 0

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= 1 << 20
        self.given += size
        return b"1" * size


def test_a_line_without_end_is_refused_after_two_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Endless()
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": stream})())
    with pytest.raises(
        ReadError, match="-, line 1: longer than 1 MiB; expected one line per training step"
    ):
        read_run("-")
    assert stream.given <= 2 << 20


def test_directories_with_the_name_of_a_run(tmp_path: Path) -> None:
    for name in ("d.parquet", "d.npz", "d.csv", "events.out.tfevents.1"):
        (tmp_path / name).mkdir()
        with pytest.raises(ReadError, match=f"{name} ?:? is a directory; expected a file"):
            read_run(str(tmp_path / name))


def test_stdin_and_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"step,loss\n1,2\n")))
    assert read_run("-").label == "stdin"
    assert (
        read_run(write(tmp_path, "run.csv.gz", gzip.compress(b"step,loss\n1,2\n", mtime=0))).label
        == "run"
    )


def test_maxtext_nan_is_kept_as_the_last_step(data: Path) -> None:
    run = read_run(str(data / "maxtext_nan_abort.jsonl"))
    assert run.steps.tolist() == [0, 1, 2]
    assert np.isnan(run.loss[2])
    assert run.notes == (
        (
            "loss read from 'learning/lm_loss' ('learning/loss' could also be the loss), step from "
            "'step', rate from 'learning/current_learning_rate'"
        ),
    )
    assert run.columns["grad_norm"][0] == pytest.approx(1.5558, abs=1e-4)  # before clipping
    assert run.columns["step_seconds"][0] == pytest.approx(0.042422)


def test_maxtext_truncation_by_evaluation_is_noted(data: Path) -> None:
    run = read_run(str(data / "maxtext_eval_truncates.jsonl"))
    assert run.completeness.first == 100
    assert run.completeness.stride == 1
    assert any("begins at step 100: MaxText truncates" in note for note in run.notes)
    assert "6 rows without a loss, of evaluations: left out" in run.notes


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a/b/nvfp4.csv", "nvfp4"),
        ("x.jsonl.gz", "x"),
        ("-", "stdin"),
        ("d/r.npz:run1", "run1"),
        ("metrics.v2.csv", "metrics.v2"),
        (".csv", ".csv"),
        ("a/\u00e9\udcff.csv", "\u00e9\\udcff"),
    ],
)
def test_names_of_runs(file: str, name: str) -> None:
    assert run_name(file) == name


losses = st.floats(0.0, 30.0) | st.sampled_from([np.nan, np.inf, -np.inf])
rows = st.lists(
    st.tuples(st.integers(0, 10**9), losses), min_size=1, max_size=40, unique_by=lambda row: row[0]
)


@given(rows)
def test_csv_and_json_round_trip_to_the_bit(rows: list[tuple[int, float]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        csv = read_run(
            write(
                Path(folder),
                "a.csv",
                "step,loss\n" + "".join(f"{step},{loss!r}\n" for step, loss in rows),
            )
        )
        lines = read_run(
            write(
                Path(folder),
                "a.jsonl",
                "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in rows),
            )
        )
    for run in (csv, lines):
        assert run.steps.tolist() == sorted(step for step, _ in rows)
        assert np.array_equal(run.loss, [loss for _, loss in sorted(rows)], equal_nan=True)


@settings(max_examples=some(300))
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(alphabet='stepl,o\n0123456789.-e"{}:[]naif \t;|', max_size=200).map(str.encode),
    )
)
@example(b'step,loss\n"1,2')
@example(b"step,step\n1,1")
@example(b"{}")
@example(b"nan,nan")
@example(b'{"step":1,"loss":' + b"9" * 5000 + b"}")
@example(b"step,loss\n1,1_0")
@example(b'true"Step"\x15\rStep",run - trass"\n1,2\n')
def test_any_bytes_give_a_curve_or_one_line(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), "fuzz.csv", data)
        try:
            steps, refusal = len(read_run(file).steps), None
        except ReadError as error:
            steps, refusal = 0, str(error)
    assert steps > 0 if refusal is None else refusal.startswith(file) and "\n" not in refusal


def test_a_million_rows_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    loss = (2.5 + rng.normal(0, 0.08, 1_000_000)).tolist()
    file = write(
        tmp_path, "big.csv", "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in enumerate(loss))
    )
    run = read_run(file)
    assert run.completeness.count == 1_000_000
