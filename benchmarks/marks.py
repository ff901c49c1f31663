"""A measured figure with its mark, as the benchmarks print it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured figure and its mark."""

    what: str
    value: str
    mark: str
    ok: bool


def share(value: float) -> str:
    """A share in words."""
    return f"{100 * value:.1f} %"
