"""Statistics by layer on their way to the server, in bodies that it takes."""

from collections.abc import Iterator

from parity.judging.verdict.layer_statistics import LayerColumns

_VALUES_AT_ONCE = 200_000  # about 4 MB of JSON


def pieces(table: LayerColumns) -> Iterator[LayerColumns]:
    """A table cut by steps: a step is sent with all its columns."""
    count = max(1, _VALUES_AT_ONCE // max(1, len(table.columns)))
    for start in range(0, len(table.steps), count):
        part = slice(start, start + count)
        yield LayerColumns(
            steps=table.steps[part],
            columns={column: values[part] for column, values in table.columns.items()},
        )
