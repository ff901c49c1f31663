"""The table of public reruns that ships with the package; only used for an arm that names one of
its families.
"""

from functools import cache
from pathlib import Path

from parity.judging.noise.noise_table import NoiseTable, read_noise_table

PUBLIC = Path(__file__).with_name("public.csv")


@cache
def public_noise_table() -> NoiseTable:
    """The table, written by tools/public_noise_table.py."""
    return read_noise_table(PUBLIC.read_text(encoding="utf-8"))
