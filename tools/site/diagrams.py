"""The diagrams of the documentation: `python -m tools.site.diagrams` draws
docs/images/architecture.svg and docs/images/run-states.svg.

The moves between states are those of `server/database/states.py`; a test compares the files with
what is drawn today.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from server.database.states import RUN_ENDED, RUN_MOVES

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_LINE, _TEXT, _FILL, _ENDS = "var(--line)", "var(--text)", "var(--fill)", "var(--ends)"
_STYLE = (
    "<style>svg { --line: #57606a; --text: #1f2328; --fill: #eef2f7; --ends: #fdf1e3; --paper: "
    "#fff }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  svg { --line: #a2abb5; --text: #e4e7ea; --fill: #262c34; --ends: #40321d; --paper: #14171a "
    "}\n"
    "}</style>"
)


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its centre, its size and its lines of text, the first in bold; all in pixels."""

    x: int
    y: int
    lines: tuple[str, ...]
    width: int = 150
    fill: str = _FILL

    @property
    def height(self) -> int:
        """The height that its lines need."""
        return 18 + 17 * len(self.lines)

    def svg(self) -> str:
        """The box as SVG."""
        left, top = self.x - self.width / 2, self.y - self.height / 2
        parts = [
            (
                f'<rect x="{left:g}" y="{top:g}" width="{self.width}" height="{self.height}" '
                f'rx="4" fill="{self.fill}" stroke="{_LINE}"/>'
            )
        ]
        for number, line in enumerate(self.lines):
            weight = ' font-weight="bold"' if number == 0 else ""
            parts.append(
                f'<text x="{self.x}" y="{top + 22 + 17 * number:g}"{weight} '
                f'text-anchor="middle">{escape(line)}</text>'
            )
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Arrow:
    """A straight arrow between two points, with a label next to its middle (`dx`, `dy` from there;
    pixels).
    """

    start: tuple[float, float]
    end: tuple[float, float]
    label: tuple[str, ...] = ()
    dx: int = 6
    dy: int = 0
    anchor: str = "start"

    def svg(self) -> str:
        """The arrow as SVG."""
        (x, y), (u, v) = self.start, self.end
        parts = [
            (
                f'<line x1="{x:g}" y1="{y:g}" x2="{u:g}" y2="{v:g}" stroke="{_LINE}" '
                'marker-end="url(#head)"/>'
            )
        ]
        for number, line in enumerate(self.label):
            at = f'x="{(x + u) / 2 + self.dx:g}" y="{(y + v) / 2 + self.dy + 14 * number:g}"'
            parts.append(
                f'<text {at} font-size="11" fill="{_LINE}" '
                f'text-anchor="{self.anchor}">{escape(line)}</text>'
            )
        return "".join(parts)


def drawing(title: str, width: int, height: int, parts: list[str]) -> str:
    """An SVG picture in the reader's colour scheme."""
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker></defs>'
    )
    attributes = (
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{_TEXT}"'
    )
    body = "\n".join(
        [head, f'<rect width="{width}" height="{height}" fill="var(--paper)"/>', *parts]
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f"{attributes}>\n<title>{escape(title)}</title>\n{_STYLE}\n{body}\n</svg>\n"
    )


def architecture() -> str:
    """The way of the data from files, job files and training scripts to a verdict."""
    boxes = [
        Box(110, 45, ("files", "CSV, JSONL, TensorBoard"), 180),
        Box(360, 45, ("parity.yaml", "parity submit, gate")),
        Box(600, 45, ("your training script", "parity.Run"), 170),
        Box(360, 165, ("server", "REST, dashboard"), 190),
        Box(290, 300, ("database", "the truth")),
        Box(480, 300, ("Redis", "messages")),
        Box(360, 430, ("worker", "supervisor"), 190),
        Box(610, 430, ("training process", "one run, one attempt")),
        Box(235, 550, ("judge", "curves + policy -> verdict"), 430, _ENDS),
        Box(125, 650, ("report", "text, Markdown, HTML"), 210),
        Box(380, 650, ("verdict document", "page, report, gate, webhook"), 210),
    ]
    arrows = [
        Arrow((110, 71), (110, 524), ("parity compare",)),
        Arrow((360, 71), (360, 139), ("a job",)),
        Arrow((600, 71), (456, 155), ("steps: a local buffer, then REST",), 12, 10),
        Arrow((280, 191), (280, 274), ("jobs, external steps",), -6, 0, "end"),
        Arrow((300, 274), (300, 191), ("curves, verdicts",)),
        Arrow((440, 191), (480, 274), ("notifies",), 10),
        Arrow((280, 404), (280, 326), ("claims, steps, ends",), -6, 0, "end"),
        Arrow((300, 326), (300, 404), ("queued runs",)),
        Arrow((480, 326), (440, 404), ("wakes",), 10),
        Arrow((534, 430), (456, 430), ("JSON lines",), 0, -6, "middle"),
        Arrow((360, 456), (360, 524), ("the job's last run has ended",)),
        Arrow((125, 576), (125, 624)),
        Arrow((380, 576), (380, 624)),
    ]
    title = (
        "Files, jobs and training scripts; server, database, Redis, worker and training process; "
        "the judge; report and verdict document"
    )
    return drawing(
        title, 760, 690, [*(arrow.svg() for arrow in arrows), *(box.svg() for box in boxes)]
    )


def run_states() -> str:
    """The moves of a run; those that every open state has start at the frame around these."""
    open_states = [state for state in RUN_MOVES if state not in RUN_ENDED]
    everywhere = set.intersection(*({*RUN_MOVES[state]} for state in open_states))
    at: dict[str, tuple[int, int]] = {
        "awaiting_data": (110, 80),
        "queued": (110, 190),
        "running": (340, 135),
        "finished": (600, 60),
        "failed": (600, 135),
        "cancelled": (600, 210),
    }
    parts = [
        (
            f'<rect x="20" y="20" width="410" height="230" rx="8" fill="none" stroke="{_LINE}" '
            'stroke-dasharray="5 4"/>'
        )
    ]
    parts.append(f'<text x="30" y="242" font-size="11" fill="{_LINE}">open states</text>')
    for start in open_states:
        for end in sorted(RUN_MOVES[start] - everywhere):
            (x, y), (u, v) = at[start], at[end]
            if u == x:
                parts.append(Arrow((x, y + 18), (u, v - 18)).svg())
                continue
            aside = 7 if start in RUN_MOVES[end] else 0  # two arrows, there and back
            side = 1 if u > x else -1
            parts.append(
                Arrow((x + side * 75, y - side * aside), (u - side * 75, v - side * aside)).svg()
            )
    parts += [
        Arrow((430, at[end][1]), (at[end][0] - 75, at[end][1])).svg() for end in sorted(everywhere)
    ]
    parts += [
        Box(*at[state], (state,), fill=_FILL if state in open_states else _ENDS).svg()
        for state in RUN_MOVES
    ]
    return drawing(
        "The states of a run: " + "; ".join(_sentence(state) for state in open_states),
        690,
        270,
        parts,
    )


def _sentence(state: str) -> str:
    moves: dict[str, frozenset[str]] = {start: frozenset(ends) for start, ends in RUN_MOVES.items()}
    return f"from {state} to {', '.join(sorted(moves[state]))}"


DRAWINGS = {"architecture.svg": architecture, "run-states.svg": run_states}


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")
