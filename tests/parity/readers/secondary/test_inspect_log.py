"""The statistics log of Transformer Engine's debug tool: its layers are named after a fail."""

import math
from pathlib import Path

import pytest

from parity.cli import main
from parity.judging.verdict.layer_statistics import late_statistics
from parity.readers.errors import ReadError
from parity.readers.secondary.layer_snr import read_layer_table
from tests.parity.readers.secondary.test_layer_snr import arms, late, written

__all__ = ["arms"]


def line(name: str, step: int, value: float) -> str:
    """A line as the tool's logger writes it."""
    return (
        f"2026-03-04 10:11:12,131 - INFO - {name} \t\t\t\t iteration={step:06d} \t\t\t\t "
        f"value={value:.4f}\n"
    )


def log(*series: tuple[str, list[float]], every: int = 10) -> str:
    """A log of series (name, values), a step at a time."""
    return "".join(
        line(name, every * at, values[at])
        for at in range(max(len(values) for _, values in series))
        for name, values in series
        if at < len(values)
    )


UNDERFLOW = log(
    ("decoder.layers.0.mlp.linear_fc1_gradient_nvfp4_underflows%", [1.0] * 10),
    ("decoder.layers.1.mlp.linear_fc2_gradient_nvfp4_underflows%", [2.0] * 8 + [31.0, 33.0]),
    ("decoder.layers.1.mlp.linear_fc2_activation_nvfp4_underflows%", [7.0] * 10),
    ("decoder.layers.1.mlp.linear_fc2_gradient_cur_amax", [4.5] * 10),
    ("decoder.layers.2.self_attention.linear_qkv_weight_nvfp4_underflows%", [0.0] * 10),
)


def test_the_last_fifth_of_the_steps_counts(tmp_path: Path) -> None:
    assert late(written(tmp_path, "rank-0.log", UNDERFLOW)) == {
        ("decoder.layers.0.mlp.linear_fc1", "gradient nvfp4", "underflow_share"): 0.01,
        ("decoder.layers.1.mlp.linear_fc2", "gradient nvfp4", "underflow_share"): 0.32,
        ("decoder.layers.1.mlp.linear_fc2", "gradient nvfp4", "amax"): 4.5,
        ("decoder.layers.1.mlp.linear_fc2", "activation nvfp4", "underflow_share"): 0.07,
        ("decoder.layers.2.self_attention.linear_qkv", "weight nvfp4", "underflow_share"): 0.0,
    }


def test_scales_and_the_transposed_copy(tmp_path: Path) -> None:
    text = log(
        ("fc1_gradient_mxfp8_scale_inv_min", [0.125]),
        ("fc1_gradient_mxfp8_scale_inv_max", [8.0]),
        ("fc1_gradient_mxfp8_underflows%_columnwise", [5.0]),
        ("fc1_weight_mxfp8_scale_inv_min", [0.0]),  # below the four decimals
        ("fc1_weight_mxfp8_scale_inv_max", [0.5]),
        ("fc1_weight_underflows%", [1.0]),  # of an older version, without its format
    )
    assert late(written(tmp_path, "rank-0.log", text)) == {
        ("fc1", "gradient mxfp8", "scale_octaves"): 6.0,
        ("fc1", "gradient mxfp8 columnwise", "underflow_share"): 0.05,
        ("fc1", "weight", "underflow_share"): 0.01,
    }


def test_noise_is_told_only_where_the_log_has_its_digits(tmp_path: Path) -> None:
    text = log(
        ("fc1_activation_mean", [3.0]),
        ("fc1_activation_std", [4.0]),
        ("fc1_activation_fp8_current_scaling_mse", [0.025]),
        ("fc2_gradient_mean", [0.0]),
        ("fc2_gradient_std", [0.01]),
        ("fc2_gradient_fp8_current_scaling_mse", [0.0003]),
        ("fc3_weight_fp8_current_scaling_mse", [0.5]),
    )
    read = late(written(tmp_path, "rank-0.log", text))
    assert read == {("fc1", "activation fp8_current_scaling"): pytest.approx(30.0)}


def test_of_several_ranks_the_worst_counts(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "nvdlfw_inspect_statistics_logs"
    folder.mkdir(parents=True)
    for rank, share in enumerate((3.0, 12.0, 5.0)):
        written(
            folder,
            f"nvdlfw_inspect_globalrank-{rank}.log",
            log(("fc1_gradient_nvfp4_underflows%", [share])),
        )
    key = ("fc1", "gradient nvfp4", "underflow_share")
    assert late(str(tmp_path / "run")) == {key: 0.12}
    assert late(str(folder)) == {key: 0.12}
    assert late(str(folder / "nvdlfw_inspect_globalrank-2.log")) == {key: 0.05}


def test_at_each_step_the_worst_rank_counts(tmp_path: Path) -> None:
    """The step of a spike differs between ranks: the table has both."""
    for rank, shares in enumerate(([1.0, 9.0, 1.0], [2.0, 2.0, 7.0])):
        written(tmp_path, f"rank-{rank}.log", log(("fc1_gradient_nvfp4_underflows%", shares)))
    table = read_layer_table(str(tmp_path))
    assert table.steps.tolist() == [0, 10, 20]
    values = table.columns["fc1", "gradient nvfp4", "underflow_share"]
    assert values.tolist() == pytest.approx([0.02, 0.09, 0.07])


def test_series_that_are_logged_at_other_steps_have_nan_between(tmp_path: Path) -> None:
    """A signal to noise needs mean, deviation and error of one step."""
    text = (
        log(("fc1_weight_mean", [3.0]), ("fc1_weight_std", [4.0, 4.0]), every=20)
        + log(("fc1_weight_fp8_mse", [0.025, 0.025, 0.025]))
        + log(("fc1_weight_fp8_underflows%", [1.0, 2.0, 3.0]))
    )
    table = read_layer_table(written(tmp_path, "rank-0.log", text))
    snr = table.columns["fc1", "weight fp8", "snr_db"]
    assert snr.tolist() == pytest.approx([30.0, math.nan, math.nan], nan_ok=True)
    assert late_statistics(table) == {
        ("fc1", "weight fp8"): pytest.approx(30.0),
        ("fc1", "weight fp8", "underflow_share"): 0.03,
    }


def test_what_is_no_number_is_left_out_and_a_step_written_again_replaces_the_first(
    tmp_path: Path,
) -> None:
    name = "fc1_gradient_nvfp4_underflows%"
    text = line(name, 10, 40.0) + line(name, 10, 2.0) + line(name, 5, float("nan"))
    assert list(late(written(tmp_path, "a.log", text)).values()) == [0.02]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (log(("fc1_gradient_cur_amax", [1.0])), "neither underflow nor noise of a layer; expected"),
        (
            "INFO - fc1_gradient_nvfp4_underflows% iteration=000001 value=high\n",
            "line 1: value is 'high'; expected a number",
        ),
    ],
)
def test_a_log_that_tells_nothing_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, "a.log", text)
    with pytest.raises(ReadError, match=message) as caught:
        late(file)
    assert str(caught.value).startswith(file)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no log in it; expected nvdlfw_inspect_statistics_logs"):
        late(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            UNDERFLOW,
            "zero: decoder.layers.1.mlp.linear_fc2 (gradient nvfp4, 32.0 %, amax 4.5), decoder.la",
        ),
        (log(("fc1_gradient_nvfp4_underflows%", [0.0])), None),
    ],
)
def test_the_advice_after_a_fail_names_the_layers_that_lose_values(
    text: str,
    named: str | None,
    arms: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = str(tmp_path / "bundle.zip")
    file = written(tmp_path, "rank-0.log", text)
    with pytest.raises(SystemExit) as left:
        main(
            [
                "compare",
                *arms[:2],
                *("--planned-steps", "1500", "--layer-snr", file, "--bundle", bundle, "-v"),
            ]
        )
    shown = " ".join(capsys.readouterr().out.split())
    assert left.value.code == 1
    assert (named in shown) if named else ("become zero" not in shown)
    with pytest.raises(SystemExit) as verified:
        main(["verify", bundle])
    assert verified.value.code == 0
