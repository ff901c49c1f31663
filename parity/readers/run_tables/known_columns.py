"""Columns of tables of many runs that are known by name: hardware, conditions, sizes, runs."""

from parity.judging.curves.context import HOST
from parity.readers.columns.several_runs import RUN_NAMES

HARDWARE = ("accelerator", "device", "device_class", "gpu")
CONDITIONS = (
    *HARDWARE,
    *(
        "system",
        HOST,
        "hostname",
        "software",
        "software_version",
        "framework",
        "image",
        "driver",
        "engine",
        "code_revision",
    ),
)
"""Columns, in lower case, that name what a run ran on: kept as its context where they have one
value in the whole run.
"""
SIZE_NAMES = (
    *(
        "params",
        "parameters",
        "n_params",
        "num_params",
        "num_parameters",
        "model_params",
        "params_m",
        "params_b",
        "params_millions",
    ),
    *("model_millions", "model_billions", "model_size", "size", "model", "model_name"),
)
"""Columns, in lower case, that name the size of a model: losses of two sizes are never those of one
run, nor of reruns.
"""
# with two values in what should be one run, rows of two runs are mixed
NAMES_OF_RUNS = (*RUN_NAMES, "seed")


def is_size(column: str) -> bool:
    """Whether a column is named as the size of a model."""
    return plain_column(column) in SIZE_NAMES


def plain_column(column: str) -> str:
    """The name of a column in lower case, with underscores for blanks."""
    return column.strip().lower().replace(" ", "_")
