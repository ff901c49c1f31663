"""What the pages say of an answer, and the order and groups in which they show the answers."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from parity.report.evaluation_tables import share
from parity.report.words import MARKS
from parity.wording import interval_words, minus, signed
from tools.public_verdicts.sets import SetAnswer, answers, facts

LARGE, SMALL = 20e9, 1e9  # parameters
SCALES = ("below 1 B", "1 to 20 B", "above 20 B")
FAMILIES = {"nvfp4": "NVFP4", "mxfp8": "MXFP8", "mxfp4": "MXFP4", "fp8": "FP8"}
WARM = 200  # steps of a log before its speed counts


def label(answer: SetAnswer) -> str:
    """Model and candidate in a few words."""
    name = (
        {"int4": "INT4", "fp4": "FP4", "int8": "INT8"}.get(answer.question, answer.candidate)
        if answer.size
        else answer.candidate
    )
    model = (
        f"{answer.size} decoder"
        if answer.size
        else answer.of.about["model"].partition(",")[0].partition(" (")[0]
    )
    stated = answer.document["margin"]["rel"]
    margin = "" if stated is None or math.isclose(stated, 0.01) else f", margin {100 * stated:g} %"
    return f"{model}: {name}{margin}"


def chip(answer: SetAnswer) -> str:
    """The verdict with its mark."""
    state = answer.document["verdict"]
    return f"{MARKS[state]} {state}"


def gap_words(answer: SetAnswer) -> str:
    """The gap with its interval, % of the loss."""
    mean, lo, hi = (100.0 * answer.gap[key] / answer.level for key in ("mean", "lo", "hi"))
    return minus(f"{signed(mean, 2)} % ({interval_words(lo, hi, 2)})")


def gap_in_margins(answer: SetAnswer) -> tuple[float, float, float]:
    """The gap and its interval in margins."""
    margin = answer.document["margin"]["nats"]
    mean, lo, hi = (answer.gap[key] / margin for key in ("mean", "lo", "hi"))
    return mean, lo, hi


def as_of(answer: SetAnswer) -> str:
    """The point of the training at which the verdict holds."""
    document = answer.document
    if "AS_OF" not in document["codes"]:
        return "the end"
    return (
        document["as_of"]["words"]
        if document.get("as_of")
        else f"step {document['window']['last']:,}"
    )


def runs_words(answer: SetAnswer) -> str:
    """The runs of both arms, and their systems where these are on record."""
    document, rows = answer.document, facts(answer.of, answer.question)
    stated = answer.of.questions[answer.question]
    numbers, places = [], []
    for arm in ("baseline", "candidate"):
        runs, name = document[arm]["runs"], document[arm]["name"]
        numbers.append(str(runs if isinstance(runs, int) else len(runs)))
        arm_rows = (
            row
            for row in rows
            if "system" in row
            and row[stated["arm_by"]] == name
            and _is_in(row, stated.get("where", {}))
        )
        places.append(str(len({row["system"] for row in arm_rows})))
    systems_words = f", {' + '.join(places)} systems" if places != ["0", "0"] else ""
    return f"{' + '.join(numbers)} runs{systems_words}"


def _is_in(row: Mapping[str, str], where: Mapping[str, Any]) -> bool:
    """Whether `where` of the file keeps a row, arms apart."""
    return all(
        row[column] == str(value) for column, value in where.items() if not isinstance(value, list)
    )


def tokens_words(answer: SetAnswer) -> str:
    """What the gap costs in tokens to the target."""
    tax = (answer.document.get("target") or {}).get("tax")
    return (
        minus(f"{share(tax['estimate'])} ({share(tax['lo'])} to {share(tax['hi'])})")
        if tax
        else "–"
    )


def speed_words(answer: SetAnswer) -> str:
    """The speed: net of the tokens on equal hardware, or that of a step as the log prints it."""
    if answer.document.get("speed"):
        speed = answer.document["speed"][0]
        return f"{speed['net']['value']:.2f} x net (step {speed['step']['value']:.2f} x)"
    rows = facts(answer.of, answer.question)
    if "tokens_per_s_per_gpu" not in rows[0]:
        return "–"
    base, cand = (
        statistics.median(
            float(row["tokens_per_s_per_gpu"])
            for row in rows
            if row["arm"] == name and int(row["step"]) >= WARM
        )
        for name in (answer.document["baseline"]["name"], answer.candidate)
    )
    return f"step {cand / base:.2f} x"


def rests(answer: SetAnswer) -> str:
    """What the interval rests on."""
    strip = {fact["name"]: fact for fact in answer.document["words"]["strip"]}
    noise, why = strip["Run-to-run noise"]["value"].lower(), strip["Evidence"]["why"]
    return minus(f"run-to-run noise {noise}; {why}")


def family(answer: SetAnswer) -> str:
    """The kind of the candidate's recipe."""
    recipe = str(answer.document["candidate"]["recipe"]).removeprefix("other:")
    return next(
        (shown for start, shown in FAMILIES.items() if recipe.startswith(start)), recipe.upper()
    )


def parameters(answer: SetAnswer) -> float:
    """The model's parameters."""
    return (
        1e6 * float(answer.size.partition(" ")[0])
        if answer.size
        else float(answer.of.about["parameters"])
    )


def scale(answer: SetAnswer) -> str:
    """The class of the model's size."""
    number = parameters(answer)
    return SCALES[0] if number < SMALL else SCALES[2] if number > LARGE else SCALES[1]


def ordered() -> list[SetAnswer]:
    """The answers by recipe, and by scale in each."""
    kinds = [*FAMILIES.values()]
    return sorted(
        answers(),
        key=lambda answer: (
            kinds.index(family(answer)) if family(answer) in kinds else 9,
            family(answer),
            -parameters(answer),
        ),
    )


def grouped() -> list[list[SetAnswer]]:
    """The answers by question, those of several sizes from the smallest on. A question has one
    verdict, or ValueError.
    """
    groups: dict[tuple[str, str], list[SetAnswer]] = {}
    for answer in ordered():
        groups.setdefault((answer.of.name, answer.question), []).insert(0, answer)
    for (name, question), group in groups.items():
        if len({answer.word for answer in group}) > 1:
            raise ValueError(
                f"{name} {question} has several verdicts; expected one a question, or rows of "
                "their own in the table"
            )
    return list(groups.values())
