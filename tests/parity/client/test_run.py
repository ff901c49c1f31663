"""`parity.Run`: what it refuses before anything is recorded."""

import logging
from pathlib import Path

import pytest

import parity
from parity.client.run import RunError

RUN = "r0190000000000000"


def test_a_wrong_recipe_is_refused_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunError, match=r"recipe is .nvpf4.; did you mean nvfp4"):
        parity.Run(RUN, recipe="nvpf4", folder=tmp_path, strict=True)
    with caplog.at_level(logging.WARNING), parity.Run(RUN, recipe="nvpf4", folder=tmp_path) as run:
        run.log(step=0, loss=2.0)
    assert "recipe is 'nvpf4'" in caplog.text
    assert not list(tmp_path.iterdir())
