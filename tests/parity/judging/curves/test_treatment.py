import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.treatment import contradicted, equal_start

LOSS = 11.0712


def run(
    first: float = LOSS,
    recipe: str | None = "bf16",
    *,
    at: int = 1,
    seed: int = 0,
    **options: object,
) -> Curve:
    losses = [first, 10.9, 10.7, 10.6]
    return curve_from_arrays(np.arange(at, at + 4), losses, recipe=recipe, seed=seed, **options)  # type: ignore[arg-type]


def test_equal_first_losses_of_two_precisions_are_found() -> None:
    start = equal_start([run()], [run(recipe="nvfp4")], 1e-4)
    assert start is not None
    assert (start.step, start.loss) == (1, LOSS)


@pytest.mark.parametrize(
    ("base", "cand"),
    [
        (run(), run(LOSS + 1e-4, "nvfp4")),
        (run(recipe=None), run(recipe="nvfp4")),
        (run(recipe="nvfp4"), run(recipe="nvfp4_no_sr")),
        (run(recipe="fp8"), run(recipe="fp8_delayed")),
        (run(), run(recipe="nvfp4+bf16@fprop")),
        (run(at=2), run(recipe="nvfp4", at=2)),
        (run(at=10), run(recipe="nvfp4", at=10)),
        (run(), run(recipe="nvfp4", at=0)),
        (run(), run(recipe="nvfp4", seed=1)),
        (run(), run(recipe="nvfp4", context={"start_precision": "bf16"})),
        (
            run(columns={"grad_norm": [2.0, 1, 1, 1]}),
            run(recipe="nvfp4", columns={"grad_norm": [2.01, 1, 1, 1]}),
        ),
        (run(math.nan), run(math.nan, "nvfp4")),
    ],
)
def test_nothing_is_said_where_the_first_losses_show_nothing(base: Curve, cand: Curve) -> None:
    assert equal_start([base], [cand], 1e-4) is None


def test_three_decimals_show_nothing() -> None:
    assert equal_start([run()], [run(recipe="nvfp4")], 1e-3) is None


def test_equal_gradient_norms_do_not_excuse_equal_losses() -> None:
    norms = {"grad_norm": [2.0, 1.0, 1.0, 1.0]}
    assert equal_start([run(columns=norms)], [run(recipe="mxfp8", columns=norms)], 0.0) is not None


@pytest.mark.parametrize(
    ("vocabulary", "rounding_step"),
    [(50_304, 1e-4), (128_256, 1e-4), (50_257, 0.0), (256, 1e-4), (257, 1e-4)],
)
def test_a_model_that_starts_at_zero_predicts_every_token_alike_in_every_precision(
    vocabulary: int, rounding_step: float
) -> None:
    exact = math.log(vocabulary)
    loss = float(np.float32(exact)) if rounding_step == 0.0 else round(exact, 4)
    assert equal_start([run(loss)], [run(loss, "nvfp4")], rounding_step) is None


@pytest.mark.parametrize(
    ("name", "recipe", "contradicts"),
    [
        ("nvfp4", "bf16", True),
        ("BF16", "nvfp4", True),
        ("te-nvfp4", "fp8_current", True),
        ("fp8", "mxfp8", False),
        ("nvfp4", "nvfp4_no_sr", False),
        ("nvfp4", "nvfp4+bf16@blocks:0-1", False),
        ("bf16-tail", "nvfp4", False),
        ("candidate", "bf16", False),
        ("nvfp4", None, False),
        ("nvfp4", "other:mine", False),
    ],
)
def test_a_name_that_is_a_precision_has_to_be_that_of_the_recipe(
    name: str, recipe: str | None, contradicts: bool
) -> None:
    assert (contradicted(name, [run(recipe=recipe)]) is not None) is contradicts


def test_a_stated_recipe_leaves_the_one_on_record() -> None:
    assert contradicted("a", [run(recipe="nvfp4", context={"recorded_recipe": "bf16"})]) == "bf16"
