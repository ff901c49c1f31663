"""What the server shows under /public, as JSON."""

import re
import tempfile
from html import escape
from pathlib import Path

from parity.canonical_json import canonical_json
from tools.public_verdicts.answers_in_words import (
    SCALES,
    as_of,
    family,
    gap_in_margins,
    gap_words,
    label,
    ordered,
    parameters,
    rests,
    runs_words,
    scale,
    speed_words,
    tokens_words,
)
from tools.public_verdicts.sets import SetAnswer, answers, sets
from tools.tables.printed import run


def packaged() -> str:
    """All that the server's page shows, as JSON."""
    largest = {
        (answer.of.name, answer.question): answer for answer in sorted(answers(), key=parameters)
    }
    rows = [
        {
            "set": answer.of.name,
            "question": answer.question,
            "label": label(answer),
            "family": family(answer),
            "scale": scale(answer),
            "verdict": answer.document["verdict"],
            "code": answer.document["codes"][0],
            "when": "at the end" if as_of(answer) == "the end" else f"as of {as_of(answer)}",
            "gap": gap_words(answer),
            "margins": [round(value, 3) for value in gap_in_margins(answer)],
            "runs": runs_words(answer),
            "tokens": tokens_words(answer),
            "speed": speed_words(answer),
            "rests": rests(answer),
            "screen": screen(answer) if largest[answer.of.name, answer.question] is answer else "",
        }
        for answer in ordered()
    ]
    about = {
        one.name: {key: value for key, value in one.about.items() if key != "parameters"}
        for one in sets()
    }
    return canonical_json(
        {
            "judge": answers()[0].document["engine_version"],
            "scales": SCALES,
            "sets": about,
            "answers": rows,
        }
    )


def arguments(answer: SetAnswer) -> str:
    """What `parity compare` takes for this answer alone; of several sizes that of its own."""
    if not answer.size:
        return answer.place
    arms = answer.of.questions[answer.question]["where"]["arm"]
    chosen = [*(f"arm={arm}" for arm in arms), f"model_millions={answer.size.partition(' ')[0]}"]
    return " ".join((answer.place, *(f"--where {choice}" for choice in chosen)))


def screen(answer: SetAnswer) -> str:
    """The first screen of the verdict's page, without what needs a script."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/page.html"
        run(f"parity compare {arguments(answer)} --html {file}")
        page = Path(file).read_text(encoding="utf-8")
    drawn = page[page.index('<div class="screen">') : page.index('<section class="more"')]
    drawn = re.sub(
        r'<script type="application/json" class="points">.*?</script>', "", drawn, flags=re.DOTALL
    )
    drawn = drawn.replace(
        " Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run.", ""
    ).replace(' tabindex="0" role', " role")
    for part in ("Answer", "Next"):  # several screens stand on one page
        drawn = drawn.replace(
            f'aria-label="{part}"', f'aria-label="{part}: {escape(label(answer))}"'
        )
    return re.sub(r"\(model_millions=(\d+), tokens=\d+\)", r"(\1 M)", drawn) + "</div>"
