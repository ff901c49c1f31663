"""The numbers that the script reads: for the cursor whole numbers in the last decimal that is
shown; for zooming axes and marks.
"""

import json

from parity.report.evaluation_tables import token_unit
from parity.report.picture.axes import Axes
from parity.report.picture.labels import mark_kinds, near_steps
from parity.report.picture.lines import is_finite
from parity.report.picture.scene import Scene, Trace
from parity.report.picture.svg_parts import NAME_CHARACTERS
from parity.wording import cut, minus

_TOLD = 0.05  # % of the width: marks nearer than that stay one however far the script zooms in


def _arm(trace: Trace) -> dict[str, str]:
    """The arm's name, where it is not what is printed."""
    arm = trace.arm or trace.name
    return {"full": arm} if arm != cut(trace.name, NAME_CHARACTERS) else {}


def cursor_numbers(scene: Scene, axes: Axes) -> str:
    """The numbers as JSON that no browser runs."""

    def whole(value: float, decimals: int) -> int:
        """As it is printed with so many decimals, without its point."""
        return int(f"{value:.{decimals}f}".replace(".", ""))

    facts = list(dict.fromkeys(fact for trace in scene.traces for fact in trace.facts))
    candidates = [
        {
            "name": cut(trace.name, NAME_CHARACTERS),
            **_arm(trace),
            "state": trace.state,
            "decimals": trace.decimals,
            "facts": [facts.index(fact) for fact in trace.facts],
            **({"answer": trace.answer.texts} if trace.answer else {}),
            "marks": {
                f"{look}.{side}": [
                    [group[0], group[-1], len(group)] for group in near_steps(steps, axes, _TOLD)
                ]
                for look, _, _, kinds in mark_kinds(trace.marks)
                for side, steps in zip(("base", "own"), kinds, strict=True)
                if steps
            },
            "path": [
                [
                    point["step"],
                    *(whole(point[key], trace.decimals) for key in ("mean", "lo", "hi")),
                ]
                for point in (trace.outer or trace.path)
                if is_finite(point)
            ],
        }
        for trace in scene.traces
    ]
    size, letter = (
        token_unit(axes.last * scene.tokens_per_step) if scene.tokens_per_step else (1.0, "")
    )
    document = {
        "x": [axes.first, axes.last],
        "y": [axes.low, axes.high],
        "scale": (scene.tokens_per_step or 1.0) / size,
        "unit": f"{letter} tokens" if scene.tokens_per_step else "step",
        "candidates": candidates,
        **({"answer": scene.answer.texts} if scene.answer else {}),
        "facts": [[minus(fact.value), minus(fact.why)] for fact in facts],
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" class="points">{text}</script>'
