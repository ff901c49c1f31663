"""Each kind of file is read at the first try: steps, losses, learning rates and plan."""

from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import LOSS_BASE, PLANNED_STEPS
from parity.readers import read_run
from tests.parity.readers.kinds.counters import COUNTERS
from tests.parity.readers.kinds.kind import LOSSES, RATES, Kind
from tests.parity.readers.kinds.nested import NESTED
from tests.parity.readers.kinds.phrases import FAIRSEQ, PHRASES
from tests.parity.readers.kinds.tables import TABLES

KINDS = {**NESTED, **COUNTERS, **PHRASES, **TABLES}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_read(name: str, tmp_path: Path) -> None:
    kind: Kind = KINDS[name]
    (tmp_path / kind.name).write_text(kind.text)
    run = read_run(f"{tmp_path / kind.name}{kind.run}")
    assert run.steps.tolist() == list(kind.steps)
    assert run.loss.tolist() == list(kind.losses)
    assert run.context.get(PLANNED_STEPS) == (None if kind.plan is None else str(kind.plan))
    assert ("learning_rate" in run.columns) == kind.has_rate
    if kind.has_rate:
        assert np.allclose(run.columns["learning_rate"], RATES, atol=1e-6)


def test_bits_are_known_by_their_perplexity(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(FAIRSEQ)
    run = read_run(str(tmp_path / "train.log"))
    assert len(run.loss) == len(LOSSES)
    assert run.context[LOSS_BASE] == "2"
