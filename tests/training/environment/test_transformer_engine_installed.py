"""The probe of Transformer Engine where it is missing, broken, or has no driver: a sentence, never
a crash.
"""

import functools
from types import SimpleNamespace

import pytest

from training.engines import transformer_engine
from training.environment import transformer_engine_installed
from training.environment.transformer_engine_installed import can_run, driver, sm_refusal


@pytest.fixture
def probe(monkeypatch):
    """A function that probes anew, with a version that is installed and an import that fails."""

    def probe_again(version, error=None):
        def refuse(_name):
            raise error

        monkeypatch.setattr(
            transformer_engine_installed,
            "versions",
            lambda: {"transformer_engine": version} if version else {},
        )
        monkeypatch.setattr(transformer_engine_installed, "import_module", refuse)
        monkeypatch.setattr(
            transformer_engine_installed,
            "_import",
            functools.cache(transformer_engine_installed._import.__wrapped__),
        )
        return can_run("fp8_current", {})

    return probe_again


@pytest.mark.parametrize(
    ("version", "error", "message"),
    [
        (None, None, "which is not installed on this worker"),
        (
            "2.3.0",
            None,
            "Transformer Engine 2.3.0 is installed, expected 2.20.2 or later and below 2.21",
        ),
        ("2.20.1", None, "Transformer Engine 2.20.1 is installed, expected 2.20.2 or later"),
        (
            "2.21.0.dev0+abc",
            None,
            (
                "Transformer Engine 2.21.0.dev0+abc is installed, expected 2.20.2 or later and "
                "below 2.21"
            ),
        ),
        (
            "2.20.2",
            OSError("libcuda.so.1: cannot open shared object file"),
            "OSError: libcuda.so.1: cannot open",
        ),
        (
            "2.20.2",
            FileNotFoundError("Could not find shared object file"),
            "FileNotFoundError: Could not find",
        ),
        ("2.20.2", ImportError("No module named 'flax'"), "ImportError: No module named 'flax'"),
        (
            "2.20.2",
            RuntimeError("Found empty `transformer-engine` meta package"),
            "RuntimeError: Found empty",
        ),
        ("2.20.3.dev0+abc", AssertionError("version mismatch"), "AssertionError: version mismatch"),
    ],
)
def test_a_transformer_engine_that_does_not_start_is_a_reason(version, error, message, probe):
    ok, reason = probe(version, error)
    assert not ok
    assert message in reason
    with pytest.raises(ImportError), transformer_engine.kernels():
        pass


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "libnccl.so.2: cannot open shared object file: No such file or directory",
            "install nvidia-nccl-cu13, or put",
        ),
        ("curand shared object not found.", "install nvidia-curand, or put"),
        ("libcublasLt.so.13: cannot open shared object file", "install nvidia-cublas, or put"),
        (
            "libcudnn_graph.so.9: cannot open shared object file",
            "install nvidia-cudnn-cu13, or put",
        ),
        ("libcuda.so.1: cannot open shared object file", "NVIDIA's driver is missing"),
        (
            "Could not find shared object file for Transformer Engine jax lib.",
            "install transformer_engine[jax,core_cu13]",
        ),
    ],
)
def test_a_missing_library_is_what_the_advice_names(message, remedy, probe):
    _, reason = probe("2.20.2", OSError(message))
    assert remedy in reason
    assert message in reason
    assert ("install transformer_engine" in reason) == (
        remedy.startswith("install transformer_engine")
    )


@pytest.mark.parametrize("recipe", ["bf16", "fp8_current"])
def test_a_driver_that_is_too_old_is_a_reason(recipe, monkeypatch):
    """What 2.20.2 raises without a driver: of a quantized recipe as it asks for the compute
    capability, of any as for its versions.
    """
    error = RuntimeError(
        "/TransformerEngine/transformer_engine/common/util/cuda_runtime.cpp:93 in function "
        "operator(): CUDA Error: CUDA driver version is insufficient for CUDA runtime version"
    )

    def refuse(*_):
        raise error

    quantize = SimpleNamespace(is_quantize_recipe_supported=refuse)
    extension = SimpleNamespace(get_cuda_version=refuse, get_cublasLt_version=refuse)
    stand_in = SimpleNamespace(quantize=quantize, extension=extension)
    monkeypatch.setattr(transformer_engine_installed, "_import", lambda: (stand_in, ""))
    monkeypatch.setattr(transformer_engine_installed, "driver", lambda: "470.42.01")
    ok, reason = can_run(recipe, {})
    assert not ok
    assert (
        "the driver's version is 470.42.01): CUDA driver version is insufficient for CUDA runtime "
        "version; update NVIDIA's" in reason
    )


@pytest.mark.skipif(
    "transformer_engine_jax" in transformer_engine_installed.versions(),
    reason="this machine has the compiled part",
)
def test_its_python_code_without_its_compiled_part_is_reported_as_such(monkeypatch):
    monkeypatch.setattr(
        transformer_engine_installed,
        "_import",
        functools.cache(transformer_engine_installed._import.__wrapped__),
    )
    ok, reason = can_run("nvfp4", {})
    assert not ok
    assert (
        "RuntimeError: Found empty `transformer-engine` meta package" in reason
        or "is not installed on this worker" in reason
    )


@pytest.mark.parametrize(
    ("recipe", "able", "unable"),
    [
        ("bf16", (80, 90, 120), (75,)),
        ("fp8_current", (89, 90, 100, 120), (80, 86)),
        ("mxfp8", (100, 103, 110), (89, 90, 120, 121)),
        ("nvfp4", (100, 103), (90, 101, 110, 120)),
        ("nvfp4_no_sr", (100, 103), (120,)),
        ("nvfp4_no_rht_no_sr", (100, 103, 120), (90, 110, 121)),
    ],
)
def test_compute_capabilities(recipe, able, unable):
    assert [sm_refusal(recipe, sm) for sm in able] == [None] * len(able)
    for sm in unable:
        assert f"this GPU is SM {sm / 10:.1f}" in sm_refusal(recipe, sm)


def test_a_later_gpu_is_told_what_would_go_wrong_there_without_an_error():
    assert "rounds all gradients to zero" in sm_refusal("nvfp4", 120)
    assert "no kernel for the rotation" in sm_refusal("nvfp4_no_sr", 120)
    assert sm_refusal("nvfp4", 90).endswith("this GPU is SM 9.0")


def test_the_driver_is_read_from_the_kernel(tmp_path):
    file = tmp_path / "version"
    assert driver(file) == "unknown"
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\nGCC "
        "version:  gcc 12.2.0\n"
    )
    assert driver(file) == "580.82.07"
