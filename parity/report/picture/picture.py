"""The picture of a verdict as HTML, drawn without a script: the gap on its way, and beside it on
the same axis what was judged.

Lines and bands are one SVG that is stretched over the plot; text and marks lie above it in a second
SVG, placed in percent, so that they keep their size at any width. Nothing has a style attribute:
the policy of the server's pages would drop it.
"""

from html import escape

from parity.report.picture.axes import axes_of, x_axis, y_axis, y_ticks
from parity.report.picture.cursor_numbers import cursor_numbers
from parity.report.picture.judged_panel import (
    judged_svg,
    loss_names_svg,
    panel_title,
    panel_widths,
    whisker_count,
)
from parity.report.picture.labels import labels_svg
from parity.report.picture.lines import levels_svg, lines_svg, stretched_svg
from parity.report.picture.scene import Scene
from parity.report.picture.svg_parts import NAME_CHARACTERS, SHORT_NAME
from parity.wording import cut


def picture(scene: Scene, *, with_points: bool = True) -> str:
    """The figure. `with_points` adds the numbers that the script's cursor reads."""
    axes = axes_of(scene)
    is_gap = scene.has_gap
    judged = judged_svg(scene, axes) if is_gap else loss_names_svg(scene, axes)
    widest = max((len(words) for _, words in y_ticks(axes, is_signed=is_gap)), default=0)
    wide, narrow = panel_widths(scene)
    looks = [
        "pic",
        f"y{next(size for size in (5, 7, 9, 99) if widest <= size)}",
        f"w{wide}",
        f"m{narrow}",
        f"n{whisker_count(scene)}",
    ]
    looks += ["many"] if len(scene.traces) > 1 else []
    looks += ["crowd"] if scene.is_dense else []
    looks += [] if scene.window else ["unjudged"]
    if with_points and is_gap:
        keys = " Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run."
    else:
        keys = ""
    note = f'<p class="note">{escape(scene.note)}</p>' if scene.note and is_gap else ""
    return (
        f'<figure class="{" ".join(looks)}">{_caption(scene)}'
        f'<div class="plot" tabindex="0" role="group" aria-label="{escape(_spoken(scene))}{keys}">'
        f'<svg class="yax" aria-hidden="true">{y_axis(axes, is_signed=is_gap)}</svg>'
        f'<div class="area">{stretched_svg(lines_svg(scene, axes))}<svg class="o" '
        f'aria-hidden="true">{"".join(labels_svg(scene, axes))}</svg></div>'
        f'<div class="jud">{stretched_svg(levels_svg(scene, axes) if is_gap else "")}'
        f'<svg class="o" aria-hidden="true">{judged}</svg></div>'
        f'<div></div><svg class="xax" aria-hidden="true">{x_axis(scene, axes)}</svg><div '
        f'class="jx">{panel_title(scene)}</div></div>'
        f"{note}{cursor_numbers(scene, axes) if with_points and is_gap else ''}</figure>"
    )


def _spoken(scene: Scene) -> str:
    """The picture in words, for who cannot see it."""
    names = [trace.name for trace in scene.traces]
    what = "Gap" if scene.has_gap else "Losses"
    of = names[0] if len(names) == 1 else f"{len(names)} candidates"
    said = f"{what} of {of} {'to' if scene.has_gap else 'and of'} {scene.baseline} over training."
    return f"{said} {scene.traces[scene.selected].line}"


def _caption(scene: Scene) -> str:
    selected, base = scene.traces[scene.selected], escape(cut(scene.baseline, NAME_CHARACTERS))
    if not scene.has_gap:
        name = escape(cut(selected.name, NAME_CHARACTERS))
        drawn = [
            words
            for is_drawn, words in (
                (any(arm.arm is None for arm in scene.losses), f'<b class="base">{base}</b>'),
                (
                    any(arm.arm == scene.selected for arm in scene.losses),
                    f'<b class="c-{selected.state} tinted">{name}</b>',
                ),
            )
            if is_drawn
        ]
        noun = "Loss" if len(drawn) == 1 else "Losses"
        what = f'<span class="what">{noun} of {" and ".join(drawn)}, nats per token</span>'
        return (
            f'<figcaption>{what}<span class="r">{escape(legend_words(scene))}</span></figcaption>'
        )
    name = escape(cut(selected.name, NAME_CHARACTERS))
    if len(scene.traces) > 1:
        named = f'<b class="c-{selected.state} tinted name">{name}</b>: gap'
    else:
        named = "<b>Gap</b>"
    what = f'<span class="what">{named} to {base}, nats per token; up is worse</span>'
    return f'<figcaption>{what}<span class="r">{escape(legend_words(scene))}</span></figcaption>'


def legend_words(scene: Scene) -> str:
    """What line, band, dots and marks are."""
    marks = [trace.marks for trace in scene.traces]
    kinds = (
        ("▲ spike", "▼ spike of {}", [kind.spikes for kind in marks]),
        ("△ NaN", "▽ NaN of {}", [kind.nonfinite for kind in marks]),
    )
    baseline = cut(scene.baseline, SHORT_NAME)
    keys = [
        f" · {words.format(baseline)}"
        for own, of_baseline, steps in kinds
        for words, is_drawn in (
            (own, any(candidate for _, candidate in steps)),
            (of_baseline, any(base for base, _ in steps)),
        )
        if is_drawn
    ]
    if scene.traces[scene.selected].trend:
        keys.insert(0, " · dashed: trend")
    return f"{scene.legend}{''.join(keys)}"
