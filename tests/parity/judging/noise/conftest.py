"""Groups of reruns, and tables of them."""

from collections.abc import Callable, Sequence

import pytest

from parity.judging.noise.noise_table import COLUMNS, NoiseTable, RerunGroup, read_noise_table

MakeGroup = Callable[..., RerunGroup]
MakeTable = Callable[..., NoiseTable]


@pytest.fixture
def make_group() -> MakeGroup:
    def make(
        share: float, runs: int = 5, name: str = "g", mean_loss: float = 2.0, family: str = "f"
    ) -> RerunGroup:
        return RerunGroup(
            family=family,
            group=name,
            runs=runs,
            mean_loss=mean_loss,
            sd=share * mean_loss,
            rounding="nearest",
            varies="seed",
            source="here",
            licence="MIT",
        )

    return make


@pytest.fixture
def make_table() -> MakeTable:
    """A table of one family; each row is (group, runs, sd), with further columns by name."""

    def make(rows: Sequence[tuple[object, ...]], **columns: str) -> NoiseTable:
        lines = [",".join(COLUMNS)]
        for group, runs, sd in rows:
            cells = {
                "family": "f",
                "group": group,
                "runs": runs,
                "mean_loss": "2.0",
                "sd": sd,
                "unit": "nats",
                "rounding": "nearest",
            }
            cells |= columns
            lines.append(",".join(str(cells.get(column, "")) for column in COLUMNS))
        return read_noise_table("\n".join(lines) + "\n")

    return make
