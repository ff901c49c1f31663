"""The table of all answers and the sections of the sets in docs/public-verdicts.md."""

import re

from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from parity.wording import minus
from tools.public_verdicts.answers_in_words import (
    as_of,
    chip,
    gap_words,
    grouped,
    label,
    rests,
    runs_words,
    speed_words,
    tokens_words,
)
from tools.public_verdicts.expected import holds
from tools.public_verdicts.sets import answers, sets

NOT_VERIFIED = "Not verified by MLCommons."


def table() -> str:
    """All questions; one that is asked at several sizes is one row."""
    head = (
        "model: candidate",
        "verdict",
        "gap, % of the loss",
        "tokens",
        "speed",
        "runs",
        "rests on",
        "as of",
    )
    rows: list[Cells] = [head]
    for group in grouped():
        answer = group[-1]
        verdict, gap = chip(answer), gap_words(answer)
        if len(group) > 1:
            verdict += f" at all {len(group)} sizes"
            gap = "; ".join(f"{one.size} {gap_words(one).partition(' (')[0]}" for one in group)
        said = (
            verdict,
            gap,
            tokens_words(answer),
            speed_words(answer),
            runs_words(answer),
            rests(answer),
            as_of(answer),
        )
        rows.append(
            (
                f"[{label(answer)}](#{answer.of.name})",
                *(re.sub(r"(?<=\d) (?=[%x])", "&nbsp;", words) for words in said),
            )
        )
    good, of = sum(map(holds, answers())), len(answers())
    return (
        f"{markdown_table(rows)}\n\n{len(sets())} sets, {len(grouped())} questions, {of} answers; "
        f"{good} of {of} are among those that "
        "[a sober reader allowed](../examples/public/expected.csv)."
    )


def sections() -> str:
    """One section a set, in the verdict's words."""
    parts = []
    for one in sets():
        about = one.about
        lines = [
            f"### {one.name}",
            "",
            f"**{about['title']}.** {about['trained']}; {about['hardware']}.",
        ]
        lines[-1] += f" {NOT_VERIFIED}" if about.get("mlperf") else ""
        lines += [""]
        for group in (
            one_question for one_question in grouped() if one_question[0].of.name == one.name
        ):
            answer, words = group[-1], group[-1].document["words"]
            if len(group) > 1:
                sizes = "; ".join(f"{size.size} {gap_words(size)}" for size in group)
                lines.append(
                    f"- **{chip(answer)}** (`{answer.document['codes'][0]}`) "
                    f"{label(answer).partition(': ')[2]}, at each size: {sizes}."
                )
            else:
                lines.append(
                    minus(
                        f"- **{chip(answer)}** (`{answer.document['codes'][0]}`) {words['lead']} "
                        f"{words['measure']} {words['interval']}"
                    )
                )
        lines += [
            "",
            f"Source: {about['source']}; {about['licence']}. Precision {about['precision']}.",
        ]
        lines[-1] += f" Differences: {'; '.join(about['differs'])}."
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
