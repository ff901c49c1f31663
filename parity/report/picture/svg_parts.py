"""Parts of a picture's SVG: numbers, something at a place in percent, the mark of a verdict."""

NAME_CHARACTERS = 20  # characters of a name in the picture
SHORT_NAME = 12  # characters where there is little room


def placed(y: float, inner: str, look: str = "", x: float | None = None) -> str:
    """Something of its own size at a place in percent."""
    named = f' class="{look}"' if look else ""
    across = f' x="{percent_text(x)}"' if x is not None else ""
    return f'<svg{named}{across} y="{percent_text(y)}">{inner}</svg>'


def shape(state: str, size: float = 6.5, *, hollow: bool = False) -> str:
    """The mark of a verdict around 0, 0: circle, square, hollow diamond; a hollow circle in
    training.
    """
    look = "mk hollow" if hollow or state in ("inconclusive", "live") else "mk"
    edge = short_number(size)
    if state == "fail":
        return (
            f'<rect class="{look}" x="-{edge}" y="-{edge}" width="{short_number(2 * size)}" '
            f'height="{short_number(2 * size)}"/>'
        )
    if state == "inconclusive":
        tip = short_number(1.15 * size)
        return f'<path class="{look}" d="M0 -{tip}L{tip} 0L0 {tip}L-{tip} 0Z"/>'
    return f'<circle class="{look}" r="{edge}"/>'


def percent_text(value: float) -> str:
    """A number as a percentage."""
    return f"{short_number(value, 2)}%"


def short_number(value: float, places: int = 1) -> str:
    """A number without zeros at its end."""
    text = f"{value:.{places}f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text
