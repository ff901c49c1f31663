"""All shapes of the list, by the names in sources.toml."""

import tomllib
from pathlib import Path
from typing import Any

from tests.parity.readers.logs.breadth.compiled_trainers import COMPILED_SHAPES
from tests.parity.readers.logs.breadth.fine_tuning import FINE_TUNING_SHAPES
from tests.parity.readers.logs.breadth.jax_trainers import JAX_SHAPES
from tests.parity.readers.logs.breadth.numbers import ARMS
from tests.parity.readers.logs.breadth.pytorch_trainers import PYTORCH_SHAPES
from tests.parity.readers.logs.breadth.shape import Shape
from tests.parity.readers.logs.breadth.trackers import TRACKER_SHAPES

SHAPES: dict[str, Shape] = {
    **JAX_SHAPES,
    **PYTORCH_SHAPES,
    **COMPILED_SHAPES,
    **FINE_TUNING_SHAPES,
    **TRACKER_SHAPES,
}
SOURCES: dict[str, dict[str, Any]] = {
    source["name"]: source
    for source in tomllib.loads((Path(__file__).parent / "sources.toml").read_text())["source"]
}


def written(folder: Path, name: str) -> tuple[str, str]:
    """The pair in a shape: what names each arm's run."""
    shape, names = SHAPES[name], []
    for arm in ARMS:
        place = folder / ("runs" if shape.holds_all else arm.name)
        place.mkdir(exist_ok=True)
        path = place / shape.file
        path.write_text(shape.write(ARMS if shape.holds_all else [arm]))
        names.append(f"{path}:{arm.name}" if shape.holds_all else str(path))
    return names[0], names[1]


def tables(folder: Path, name: str) -> tuple[str, str]:
    """The same numbers as CSV: steps, losses as the shape shows them, and rates where it does."""
    shape, paths = SHAPES[name], []
    for arm in ARMS:
        (folder / f"{arm.name}_table").mkdir(exist_ok=True)
        path = folder / f"{arm.name}_table" / "run.csv"
        is_bits = shape.unit == "bits"
        header = ["step", "loss", *(["lr"] if shape.rate else []), *(["ppl"] if is_bits else [])]
        rows = [
            [
                str(shape.first + at),
                repr(loss),
                *([repr(shape.rate(rate))] if shape.rate else []),
                *([repr(2**loss)] if is_bits else []),
            ]
            for at, (loss, rate) in enumerate(zip(shape.shown(arm), arm.rates, strict=True))
        ]
        path.write_text("".join(",".join(row) + "\n" for row in [header, *rows]))
        paths.append(str(path))
    return paths[0], paths[1]
