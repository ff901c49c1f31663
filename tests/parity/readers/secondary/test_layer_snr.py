"""Quantization SNR by layer: every form gives the same, and the advice after a fail names the
worst.
"""

from pathlib import Path

import numpy as np
import pytest

from parity.cli import main
from parity.judging.verdict.layer_statistics import LayerSnr, late_statistics
from parity.readers.errors import ReadError
from parity.readers.secondary.layer_snr import read_layer_table


def late(file: str) -> LayerSnr:
    """What of a file counts."""
    return late_statistics(read_layer_table(file))


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "text",
    [
        "layer,operand,snr_db\nblock.0,x,12.5\nblock.1,w,9\n",
        "step,layer,operand,snr_db\n10,block.0,x,12.5\n10,block.1,w,9\n5,block.1,w,30\n",
        "layer,operand,snr_db\nblock.0,x,12.5\nblock.1,w,9\nblock.2,w,inf\nblock.3,w,nan\n",
        (
            '[{"layer": "block.0", "operand": "x", "snr_db": 12.5}, {"layer": "block.1", '
            '"operand": "w", "snr_db": 9.0}]'
        ),
        '{"block.0": {"x": 12.5}, "block.1": {"w": 9}}',
    ],
)
def test_all_forms_say_the_same(text: str, tmp_path: Path) -> None:
    assert late(written(tmp_path, "snr.csv", text)) == {
        ("block.0", "x"): 12.5,
        ("block.1", "w"): 9.0,
    }


def test_a_layer_without_operands(tmp_path: Path) -> None:
    assert late(written(tmp_path, "a.csv", "layer,snr_db\n3,nan\n4,7\n"))["4", "all"] == 7.0
    assert late(written(tmp_path, "a.json", '{"4": 7}')) == {("4", "all"): 7.0}


def test_of_many_steps_the_median_of_the_last_fifth_counts(tmp_path: Path) -> None:
    snr = [40.0] * 12 + [9.0, 11.0, 10.0]
    rows = "".join(f"{10 * at},block.0,{value}\n" for at, value in enumerate(snr))
    table = read_layer_table(written(tmp_path, "a.csv", f"step,layer,snr_db\n{rows}"))
    assert table.steps.tolist() == [10 * at for at in range(15)]
    assert late_statistics(table) == {("block.0", "all"): 10.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("layer,operand,snr_db\n", "no layer; expected the columns layer, operand, snr_db"),
        ("a,b\n1,2\n", "row 2: no layer"),
        ("layer,operand,snr_db\nblock.0,x,good\n", "row 2: snr_db is 'good'; expected a number"),
        ("layer,step,snr_db\nblock.0,1.5,9\n", "row 2: step is '1.5'; expected a whole number"),
        ("layer,step,snr_db\nblock.0,late,9\n", "row 2: step is 'late'; expected a whole number"),
        ('{"a": [1]}', "snr_db is .* expected a number"),
        ("[1]", "row 1: 1; expected one object"),
        ("{", "not valid JSON"),
    ],
)
def test_bad_files_are_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, "snr.csv", text)
    with pytest.raises(ReadError, match=message) as caught:
        read_layer_table(file)
    assert str(caught.value).startswith(file)
    assert "\n" not in str(caught.value)


@pytest.fixture
def arms(tmp_path: Path) -> list[str]:
    """A baseline and two candidates that fail."""
    rng, t = np.random.default_rng(0), np.arange(1500)
    base = 1.38 + 3.5 * np.exp(-t / 80) + rng.normal(0, 0.06, 1500)
    return [
        written(
            tmp_path,
            f"{name}.csv",
            "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in zip(t, base + gap, strict=True)),
        )
        for name, gap in (("fp8", 0.0), ("nvfp4", 0.1), ("mxfp4", 0.1))
    ]


@pytest.mark.parametrize(
    ("candidates", "prefix", "code", "message"),
    [
        (1, "", 1, "first to keep in bf16: block.1 (w, 9.0 dB), block.0 (x, 12.5 dB)"),
        (2, "mxfp4=", 1, "first to keep in bf16: block.1 (w, 9.0 dB)"),
        (2, "", 2, "expected NAME=FILE with one of nvfp4, mxfp4"),
        (2, "fp8=", 2, "--layer-snr fp8: no such run; the runs are called nvfp4, mxfp4"),
    ],
)
def test_the_advice_after_a_fail_names_the_worst_layers(
    candidates: int,
    prefix: str,
    code: int,
    message: str,
    arms: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path, "snr.csv", "layer,operand,snr_db\nblock.0,x,12.5\nblock.1,w,9\n")
    with pytest.raises(SystemExit) as left:
        main(
            [
                "compare",
                *arms[: 1 + candidates],
                "--planned-steps",
                "1500",
                "--layer-snr",
                prefix + file,
                "-v",
            ]
        )
    out, err = capsys.readouterr()
    assert left.value.code == code
    assert message in " ".join((out if code == 1 else err).split())
    assert out.count("first to keep") == (code == 1)
