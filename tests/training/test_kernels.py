"""The kernels of Transformer Engine behind the interface of the checks: its real Python code, with
its compiled part stubbed.
"""

from dataclasses import replace

import pytest

from training import device
from training.arithmetic.recipes import linear_recipe
from training.preflight import checks
from training.preflight.kernels import TransformerEngineKernels

# Transformer Engine 2.20.2 uses names that jax 0.10.2 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:jax.interpreters.pxla:DeprecationWarning")


@pytest.fixture
def kernels(stubbed_te):
    stubbed_te(100)
    return TransformerEngineKernels(
        replace(device.describe(), platform="gpu", device_class="gpu:sm100", sm="100")
    )


@pytest.mark.parametrize(
    ("recipe", "check"),
    [
        ("fp8_current", checks.codes),
        ("fp8_current", checks.accumulation),
        ("fp8_delayed", checks.codes),
        ("fp8_delayed", checks.history),
        ("fp8_delayed", checks.products),
        ("mxfp8", checks.codes),
        ("nvfp4", checks.codes),
        ("nvfp4", checks.rotation),
        ("nvfp4", checks.accumulation),
        ("nvfp4", checks.products),
        ("nvfp4_no_sr", checks.products),
    ],
)
def test_its_copies_and_products_pass(kernels, recipe, check):
    passed, detail = check(kernels, linear_recipe(recipe, fast_bf16=True))
    assert passed, detail


def test_a_defect_of_its_own_code_is_caught(kernels):
    """The stochastic rounding of its pure-JAX path never gives 1.5 (2.20.2); its kernels are other
    code.
    """
    passed, detail = checks.rounding(kernels, linear_recipe("nvfp4_no_rht", fast_bf16=True))
    assert not passed
    assert "expected 1 or 1.5" in detail or "expected 1.5 or 2" in detail


def test_without_a_gpu_it_cannot_run_and_says_why():
    kernels = TransformerEngineKernels(device.describe())
    assert all(kernels.refusal(linear_recipe(name, fast_bf16=True)) for name in checks.RECIPES)
