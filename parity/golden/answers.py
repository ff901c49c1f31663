"""The answers about a run and its golden, in the order of their exit codes."""

from collections.abc import Mapping
from typing import Literal, get_args

Answer = Literal[
    "identical", "numerics only", "worse", "better", "set-up changed", "data changed", "cannot tell"
]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
FINE: tuple[Answer, ...] = ("identical", "numerics only")
"""The answers after which nobody is needed."""
OPEN: Answer = "cannot tell"
EXIT_CODES: Mapping[Answer, int] = {
    **dict.fromkeys(ANSWERS, 1),
    **dict.fromkeys(FINE, 0),
    OPEN: 3,
}
"""As those of fail, pass and inconclusive."""
