"""A run as it is sent to a server, which judges it by a golden that it keeps: what the rule and a
golden's file need, and nothing else.
"""

from typing import Any

import numpy as np

from parity.canonical_json import json_value
from parity.golden.check import FACTS
from parity.golden.quantities import QUANTITIES
from parity.judging.curves.curve import DATA_DIGEST, RECORDED_RECIPE, Curve

CONTEXT = FACTS | {DATA_DIGEST, RECORDED_RECIPE}


def sent_run(curve: Curve) -> dict[str, Any]:
    """The body of a run: steps, losses in nats, quantities, and what its source recorded. Rows that
    a restart repeated come first, as in a log.
    """
    before = curve.replaced
    repeated = 0 if before is None else len(before.steps)
    columns = {
        name: np.concatenate([np.full(repeated, np.nan), curve.columns[name]])
        for name in QUANTITIES
        if name in curve.columns
    }
    body: dict[str, Any] = json_value(
        {
            "steps": curve.steps if before is None else [*before.steps, *curve.steps],
            "loss": curve.loss if before is None else [*before.loss, *curve.loss],
            "columns": columns,
            "label": curve.label,
            "recipe": curve.recipe,
            "context": {name: curve.context[name] for name in CONTEXT & curve.context.keys()},
        }
    )
    return body
