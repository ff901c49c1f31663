"""What a trainer printed, found by a rule that knows no trainer: a number behind the name of a
step, and one behind that of a loss.

    a name       up to five words directly before a number: `step`, `lm loss`, `'grad_norm'`; the
                 numbers of a line, by name, are a record
    the step     behind step, iter, iteration, batch and their like, a progress bar's "10/1000 [", a
                 counter "[10/1000]", or the number with which the line begins: "10 | loss 2.5"
    the plan     "step 10/1000" states 1,000 steps; of a batch, in an epoch and of a bar it may be
                 the length of one epoch, and is not taken
    the loss     the name that a table's column would be read by (`parity.readers.columns.names`);
                 `--column loss=NAME` names another one
    evaluation   a loss whose name, or the name of whose step, has a word such as "val" in it, or
                 before which such a word stands alone: "[val] step 10 loss 2.5"

A line without a step belongs to the step before it, as in logs of several lines a step; a few
losses below lines that have a step and a loss are none of the training. Where no line of the file
has a step, as with the dicts that transformers prints, the lines with a loss are numbered from 1,
and a note says so.

Lines are read in their order, so a file that grows can be read on. What can fail: a trainer that
counts steps from 0 in each epoch and prints a few of them, or micro-batches; its steps repeat with
other losses, which is refused (`parity.readers.curve.plausibility.check_repeats`).
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from parity.readers.columns.names import (
    HELD_OUT,
    KNOWN_NAMES,
    LOSS,
    MICRO_STEP,
    NOT_THE_LOSS,
    STEP,
    UNNAMED,
    canonical_name,
    is_other_loss,
    says_loss,
)
from parity.readers.columns.not_finite_columns import (
    field_says_not_finite,
    is_about_finite_losses,
)
from parity.readers.columns.number import MISSING
from parity.readers.logs.lines.line import EPOCH, LONGEST, LogLine, NumberPlace, looked_at
from parity.readers.logs.lines.line_log import LineLog
from parity.readers.logs.lines.said import says_beside_loss

_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))", re.IGNORECASE)
# No possessive quantifiers: Python 3.11 before 3.11.5 gets them wrong. What could be matched in
# many ways is bounded instead.
_WORD = r"(?!(?:nan|inf(?:inity)?|none|null|n/a)\b)[a-z_(][\w./()-]*(?![\w./()-])"
_MSVC = (
    r"\d\.#[a-z]{1,5}\d{0,9}"  # how Microsoft's C library prints NaN and infinity: 1.#QNAN, 1.#INF
)
_NUMBER = rf"[-+]?(?:{_MSVC}|(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?|none|null|n/a)"  # noqa: E501
_ENDS = r"(?![\w%#]|\.[\d#])"
# a quote, a bracket that holds no unit, [epoch, step], or what a library prints around a number
_OPENS = (
    rf"['\"]|\((?!{_NUMBER}\)\s?[:=])|\[\s{{0,20}}(?:\d{{1,15}},\s)?"
    r"|(?:device)?array\(|tensor\(|np\.float\d\d\("
)
_PAIR = re.compile(
    rf"(?<![\w./-])(?P<name>[a-z_][\w./-]*(?:\([a-z]+\)|\[[a-z]+\])?(?![\w./-])(?: {_WORD}){{0,4}})"
    rf"['\"]?\s{{0,20}}[:=]?\s{{0,20}}(?:{_OPENS})?"
    rf"(?P<number>{_NUMBER}){_ENDS}(?:(?:\s?/\s?|\sof\s)(?P<planned>\d+(?:,\d{{3}})*))?",
    re.IGNORECASE,
)
_LOOP = re.compile(r"\([a-z]+\)|\[[a-z]+\]", re.IGNORECASE)
"""What a counter counts in, or a loss is of, as in "Iter(train)" and "loss(val)"."""
_UNITS = "[mu]?s|secs?|seconds|mins?|minutes|h|hours?|[kmgt]i?b|x"
_COUNTED = r"steps?|batch\w*|count|iter\w*|loss\w*|updates?|micro\w*|values?|grad\w*|found|skipped"
"""Behind NaN: how many there were."""
_SECOND = re.compile(
    rf"(?:\s{{0,9}}(?:[-=~]{{1,2}}>|[→⇒➜>]|\.{{2,3}}|(?:to|now|then)\s)\s{{0,9}}"
    r"|\s{0,9}\((?:now|raw|current|instant\w{0,9}|batch|step)[:=\s]\s{0,9})"
    rf"(?P<change>{_NUMBER}){_ENDS}"
    r"|,?\s{0,9}(?P<listed>\d{1,9}\.\d{1,20})[\])]|/(?P<ratio>\d{1,9}\.\d{1,20})"
    rf"|\s{{0,9}}(?:[,|/±]|\+/?-)\s{{0,9}}(?P<alike>\d{{1,9}}\.\d{{1,20}}|nan){_ENDS}"
    rf"(?!\s{{0,3}}(?:[a-z]{{1,9}}/|(?:{_UNITS}|{_COUNTED})\b))",
    re.IGNORECASE,
)
"""A second number of a loss, as in "loss 2.49 -> 2.58", "loss [2.49, 2.58]", and where it is much
like the first one "loss 2.49, 2.58", "loss 2.49 | 2.58" and "loss 2.49 / 2.58"."""
_ROUNDED = 1e-3  # relative: one number in other digits
_MOST_ALIKE = 1.5  # the ratio of two such numbers; rates and times are of another size
_NAME_OR_BAR = re.compile("[a-z_/]", re.IGNORECASE)
_BAR = re.compile(r"(?<![\d/])(\d+)/(\d+)(?![\d/])\s*(?:\[|[━╸╺─█▉-▏])")
_COUNTER = re.compile(
    r"(?P<open>[\[(])\s{0,20}(?P<number>\d{1,15})\s{0,20}/\s{0,20}(?P<planned>\d{1,15})"
    r"(?:\s{0,5}\(\s{0,5}\d+(?:\.\d+)?\s?%\))?\s{0,20}[\])]"
    r"|(?<![\d/.])(?P<plain>\d{1,15})\s{0,20}/\s{0,20}(?P<of>\d{1,15})\s(?:batches|steps|iters)\b"
)
"""A counter without a name, such as "[  10/500]" or "200/ 2983 batches"."""
_STEPS = (
    *("optimizer_step", "optim_step", "update_step", "num_updates", "nupdates", "update"),
    *("global_step", "global_steps", "global_step/max_steps", "training_step", "train_step"),
    *("current_step", "current_steps", "train/global_step", "trainer/global_step", "train/step"),
    *("step_i", "step_num", "iter_num", "step", "steps", "iteration", "iterations"),
    *("iter", "iters", "it", "batch", "micro_step", "micro_batch", "microbatch", "micro_iter", "s"),
)
"""Names of a step; of several on a line, the first here counts: an optimizer's step before a
micro-batch.
"""
_NAN_COUNT = re.compile(
    r"(?<!grad )(?<!grad_)(?<!grad/)(?<!eval/)(?<!val/)\b"
    r"(?:(?:num(?:ber)?(?: of)?|skipped|total)[ _])?(?:nan|inf|non-?finite)s?"
    r"(?:[ _](?:iterations?|iters?|steps?|loss(?:es)?|batches|updates|count|micro_?batches)){1,2}"
    r"\s{0,9}[:=]?\s{0,9}(?P<number>\d{1,15})(?![\w.])",
    re.IGNORECASE,
)
"""How many losses were not finite, of which a mean may leave those out."""
_OTHER_STEPS = frozenset(
    (
        *("nan", "inf", "nonfinite"),
        *(
            "per",
            "total",
            "max",
            "num",
            "number",
            "of",
            "warmup",
            "accumulation",
            "every",
            "between",
            "until",
            "skipped",
            "remaining",
        ),
        *(
            "save",
            "saving",
            "saved",
            "last",
            "best",
            "resume",
            "resuming",
            "from",
            "checkpoint",
            "in",
        ),
    )
)
"""Words before the name of a step that is not the line's: "total steps 1000", "2.5 s per step"."""
_LOSSES = (
    "loss",
    "ce",
    "xent",
    "nll",
    "cross_entropy",
    "crossentropy",
    "crossentropyloss",
    "languagecrossentropy",
    "trl",
)
_AVERAGES = frozenset(
    ("avg", "average", "averaged", "ema", "mean", "running", "smooth", "smoothed", "moving")
)
_EVALUATION = HELD_OUT | {"validate", "validating", "evaluate", "evaluating"}
_OTHER_LOSSES = NOT_THE_LOSS | _AVERAGES | {"best", "final", "last", "lowest", "total"}
_KNOWN = {
    canonical_name(name): name
    for names in KNOWN_NAMES.values()
    for name in reversed(names)
    if name not in UNNAMED
}
_TRAINING = frozenset(KNOWN_NAMES[LOSS])
_READ = frozenset((MICRO_STEP, *(name for names in KNOWN_NAMES.values() for name in names)))
_WHOLE = 15  # digits of a step that every float holds
_EPOCHS = frozenset(("epoch", "epochs", "train_epoch", "training_epoch"))
_EPOCH_OF_TRAINING = re.compile(
    r"\b(?P<name>train(?:ing)?):?\s{1,3}(?P<number>\d{1,15})(?P<planned>)\s{1,3}(?=\[)",
    re.IGNORECASE,
)
"""The number of an epoch before a counter, as in "Train: 3 [ 100/1251 (  8%)]"."""
_HEAD = re.compile(
    r"(?:[IWEF]\d{4} [\d:.]{1,20}\s{1,9}\d{1,20} [\w./-]{1,99}:\d{1,9}\] \[(?P<logged>\d{1,15})\]\s"
    r"|\[(?P<bracket>\d{1,15}) \| |(?P<bar>\d{1,15}) \| )"
)
"""A step without a name, where the line begins with it: "[10] loss=2.5" behind the prefix of absl,
"[10 | 12.34] loss=2.5" or "10 | loss 2.5"."""
_TAG = re.compile(
    rf"(?<![\w./:-])(?:{'|'.join(sorted(_EVALUATION, key=len, reverse=True))}|testing|holdout)"
    r"(?:[/_-]?\d{1,9})?(?![\w./-])"
    r"|\b(?P<phrase>saving dict)\b",
    re.IGNORECASE,
)
"""What says that a line is that of an evaluation, where it stands alone or with a number: "[val]
step 10", "[val/0] step 10"."""
_BARS_OF_STEPS = frozenset(("step", "steps", "iter", "iters", "iteration", "iterations"))
"""Words before a bar that is not that of one epoch."""


class _Pairs:
    """The numbers of a line by name: its values, its steps, and its epoch."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, re.Match[str]] = {}
        self.second_loss: NumberPlace | None = None
        self.may_have_two_losses = False
        self.steps: dict[str, re.Match[str]] = {}
        self.epoch: re.Match[str] | None = None
        self.is_held_out = False
        self.fixed: list[tuple[int, int]] = []
        names: list[tuple[int, int]] = []
        for pair in _PAIR.finditer(text):
            names.append(pair.span("name"))
            name, is_step = _named(pair["name"])
            if name in _EPOCHS and pair["number"].isdecimal():
                self.epoch = self.epoch or pair
            elif is_step and _number(pair).is_integer():  # fairseq's `update` is a share
                self.steps.setdefault(name, pair)
                self.is_held_out |= bool(_EVALUATION & _words(pair["name"]))
            else:
                first = self.values.setdefault(name, pair)
                second = _second_number(text, first, pair) if name in _TRAINING else None
                if second is not None:
                    self.may_have_two_losses = True
                    place, differs = second
                    if differs and self.second_loss is None:
                        self.second_loss = place
                elif name in _TRAINING and pair["name"] != first["name"]:
                    self.values.setdefault(pair["name"].strip(), pair)
            self.fixed += [pair.span("name"), pair.span("planned")]
        self.epoch = self.epoch or _EPOCH_OF_TRAINING.search(text)
        self.is_held_out |= _is_tagged(text, names, self.values)


class _Count(NamedTuple):
    """Where a line counts: its step, what it counts to, whether that is the end of the run, whether
    it is a bar, where the number stands, and whether the line begins with it (`is_head`).
    """

    step: float
    planned: int | None
    states_plan: bool
    is_bar: bool
    number: tuple[int, int]
    fixed: tuple[int, int]
    is_head: bool = False
    name: str = ""


def read_line(line: str) -> LogLine | None:
    """The record of a printed line without colours; None where it has neither a step nor a number
    behind a name.
    """
    text = looked_at(line)
    if _NAME_OR_BAR.search(text) is None:  # as most lines of a table, which are looked at too
        return None
    rank = _RANK.match(text)
    pairs = _Pairs(text)
    count = _count(text, pairs)
    # of an evaluation, whose losses belong to the step before it
    is_evaluation = (
        count is not None
        and not count.is_head
        and not pairs.steps
        and bool(_EVALUATION & _words(text[: count.number[0]]))
    )
    values = pairs.values
    says_nan = says_beside_loss(text) if _TRAINING & values.keys() else None
    if says_nan is False:
        values = _without_denied(values)
    if pairs.is_held_out or is_evaluation:
        values = _evaluation(values, text)
    count = None if is_evaluation else count
    epoch = pairs.epoch
    if count is None and not values and epoch is None:
        return None
    if _TRAINING & values.keys() and (micro := _micro_step(pairs.steps)) is not None:
        values = {**values, MICRO_STEP: micro}
    places = {name: NumberPlace(*pair.span("number")) for name, pair in values.items()}
    fixed = [*pairs.fixed, *([] if rank is None else [rank.span(rank.lastindex or 0)])]
    if count is not None:
        places[STEP] = NumberPlace(*count.number)
        fixed.append(count.fixed)
    nans = _NAN_COUNT.search(text)
    if nans is not None:
        fixed.append(nans.span("number"))
    counts = [name for name in values if is_about_finite_losses(name)]
    fixed += [values[name].span("number") for name in counts]
    has_loss = not _TRAINING.isdisjoint(values)
    leaves_out_nan = has_loss and (
        (nans is not None and float(nans["number"]) > 0.0)
        or any(field_says_not_finite(name, _number(values[name])) for name in counts)
    )
    epochs = None
    if epoch is not None:
        places[EPOCH] = NumberPlace(*epoch.span("number"))
        epochs = int(epoch["planned"].replace(",", "")) if epoch["planned"] else None
    is_open = (
        (count is not None and count.is_bar)
        or len(line) > LONGEST
        or leaves_out_nan
        or says_nan is not None
        or any(map(_may_be_other, (*values.items(), *pairs.steps.items())))
    )
    return LogLine(
        rank="" if rank is None else rank[rank.lastindex or 0],
        step=None if count is None else count.step,
        planned=None if count is None else count.planned,
        is_bar=count is not None and count.is_bar,
        values={name: _number(pair) for name, pair in values.items()},
        has_loss=has_loss,
        leaves_out_nan=leaves_out_nan or bool(says_nan),
        places=None if is_open else places,
        fixed=fixed,
        epoch=None if epoch is None else _number(epoch),
        epochs=epochs,
        states_plan=count is not None and count.states_plan,
        counter="" if count is None else count.name,
        second_loss=pairs.second_loss if has_loss else None,
        may_have_two_losses=pairs.may_have_two_losses,
    )


def _second_number(
    text: str, first: re.Match[str], pair: re.Match[str]
) -> tuple[NumberPlace, bool] | None:
    """Where a second number of a loss stands, and whether it is another one: behind the first, or
    behind the same name in `pair`.
    """
    number = _number(first)
    if first is not pair:
        if first["name"].casefold() != pair["name"].casefold() or _EVALUATION & _words(
            text[first.end() : pair.start()]
        ):
            return None
        return NumberPlace(*pair.span("number")), not _are_one(first["number"], pair["number"])
    found = _SECOND.match(text, pair.end("number"))
    if found is None or found.lastgroup is None:
        return None
    place, second = NumberPlace(*found.span(found.lastgroup)), found[found.lastgroup]
    differs = not _are_one(pair["number"], second)
    if found.lastgroup == "alike" and second.lower() != "nan":
        small, large = sorted((number, float(second)))
        differs = differs and large <= _MOST_ALIKE * small
    return place, differs


def _are_one(first: str, second: str) -> bool:
    """Whether two numbers of a loss are one in other digits, or the first, which is read, is NaN
    already.
    """
    number, other = (_float(text) for text in (first, second))
    decimals = min(len(text.partition(".")[2]) for text in (first, second))
    return math.isnan(number) or math.isclose(
        number, other, rel_tol=_ROUNDED, abs_tol=0.51 * 10.0**-decimals
    )


def _without_denied(values: Mapping[str, re.Match[str]]) -> dict[str, re.Match[str]]:
    """The numbers of a line without those of further losses that it says are not NaN, such as "loss
    is not NaN".
    """
    first = min(_TRAINING & values.keys(), key=lambda name: values[name].start())
    return {
        name: pair
        for name, pair in values.items()
        if name == first or not is_other_loss(name) or math.isfinite(_number(pair))
    }


def _micro_step(steps: Mapping[str, re.Match[str]]) -> re.Match[str] | None:
    """Of several counters the last one, which may count micro batches."""
    return steps[max(steps, key=_STEPS.index)] if len(steps) > 1 else None


def _count(text: str, pairs: _Pairs) -> _Count | None:
    """Where a line counts: behind the name of a step, by a bar, or by a counter without a name."""
    is_of_epoch = pairs.epoch is not None or "epoch" in _words(text)
    if (first := min(pairs.steps, key=_STEPS.index, default=None)) is not None:
        pair = pairs.steps[first]
        planned = int(pair["planned"].replace(",", "")) if pair["planned"] else None
        return _Count(
            step=_number(pair),
            planned=planned,
            # else it may count the steps of one epoch
            states_plan=planned is not None and first != "batch" and not is_of_epoch,
            is_bar=False,
            number=pair.span("number"),
            fixed=pair.span("planned"),
            name=first,
        )
    if (bar := _BAR.search(text)) is not None:
        return _Count(
            step=float(bar[1]),
            planned=int(bar[2]),
            states_plan=bool(_BARS_OF_STEPS & _words(text[: bar.start()])) and not is_of_epoch,
            is_bar=True,
            number=bar.span(1),
            fixed=bar.span(2),
        )
    start = 0 if pairs.epoch is None else pairs.epoch.end()
    if (counter := _COUNTER.search(text, start)) is None:
        return _head_count(text) if pairs.values else None
    number, planned_group = ("number", "planned") if counter["number"] else ("plain", "of")
    return _Count(
        step=float(counter[number]),
        planned=int(counter[planned_group]),
        states_plan=number == "number" and "%" not in counter[0] and not is_of_epoch,
        is_bar=False,
        number=counter.span(number),
        fixed=counter.span(planned_group),
    )


def _head_count(text: str) -> _Count | None:
    """A step without a name, with which the line begins."""
    if (head := _HEAD.match(text)) is None or head.lastgroup is None:
        return None
    return _Count(
        step=float(head[head.lastgroup]),
        planned=None,
        states_plan=False,
        is_bar=False,
        number=head.span(head.lastgroup),
        fixed=(0, 0),
        is_head=True,
    )


def _is_tagged(
    text: str, names: Iterable[tuple[int, int]], values: Mapping[str, re.Match[str]]
) -> bool:
    """Whether a word before the first training loss of a line says that it is of an evaluation, on
    its own, not in the name of another number.
    """
    losses = [pair.start("name") for name, pair in values.items() if name in _TRAINING]
    if not losses:
        return False
    return any(
        tag["phrase"]
        or text[tag.start() - 1 : tag.start()] == "="
        or not any(start <= tag.start() < end for start, end in names)
        for tag in _TAG.finditer(text, 0, min(losses))
    )


def is_printed(lines: Iterable[str]) -> bool:
    """Whether two or more lines have a training loss, on or behind a line with a step, or as a dict
    that Python printed.
    """
    number, has_step = 0, False
    for line in lines:
        if (record := read_line(line)) is not None:
            has_step = has_step or record.step is not None
            number += record.has_loss and (has_step or "{'" in line)
        if number == 2:
            return True
    return False


def printed_log(names: Collection[str], check: Callable[[float, str, int], object]) -> LineLog:
    """A log that is read by the rule, with the numbers of names that tables know, of losses, and of
    those that are named.
    """
    kept = {*_READ, *names}
    return LineLog(
        read_line, lambda name: name in kept or is_other_loss(name) or says_loss(name), check
    )


def _named(raw: str) -> tuple[str, bool]:
    """A name as the columns of a table have it, and whether it is that of a step.

    Words before a known name are left out ("training started at step"), unless they make it another
    one ("best loss").
    """
    loop = _words(" ".join(_LOOP.findall(raw)))
    words = _LOOP.sub("", raw).split()
    # as in "completed (loss: 2.5)"
    words = [word.lstrip("(") if ")" not in word else word for word in words]
    words = [word for word in words if word] or [raw]
    while words[-1].lower() in ("is", "was", "of"):  # "the loss is 4.88"
        words.pop()
        if not words:
            return raw, False
    for at in range(len(words)):
        plain, before = canonical_name(" ".join(words[at:])), _words(" ".join(words[:at]))
        groups = _words(plain.rpartition("/")[0])
        if plain in _EPOCHS:
            return "epoch", False
        if plain in _STEPS:
            if before & _OTHER_STEPS:
                return raw, False
            return plain, True
        if plain in _KNOWN or plain == "loss_train" or plain.rpartition("/")[2] in _LOSSES:
            column = _KNOWN.get(plain, "loss/train" if plain == "loss_train" else LOSS)
            if column in _TRAINING and (before | groups | loop) & _EVALUATION:
                return "val_loss", False
            return (raw if (before | groups | loop) & _OTHER_LOSSES else column), False
    return raw, False


def _evaluation(values: Mapping[str, re.Match[str]], text: str) -> dict[str, re.Match[str]]:
    """The loss of a line of an evaluation, under one name; none of a test at the end, and none that
    is called one of the training.
    """
    losses = {
        name: pair
        for name, pair in values.items()
        if "loss" in _words(name) and not {"ppl", "train", "training"} & _words(name)
    }
    held_out = [pair for name, pair in losses.items() if HELD_OUT & _words(name)]
    if losses and "test" not in _words(text):
        return {"val_loss": [*held_out, *losses.values()][0]}
    return {}


def _number(pair: re.Match[str]) -> float:
    return _float(pair["number"])


def _float(number: str) -> float:
    text = number.replace(",", "").lower()
    if "#" in text:
        return float(text.replace("1.#", "")) if text.endswith("1.#inf") else math.nan
    return math.nan if text in MISSING else float(text)


def _may_be_other(named: tuple[str, re.Match[str]]) -> bool:
    """Whether what a name's number is depends on its digits: with commas, or the number of a step
    that may be whole or not.
    """
    name, pair = named
    text, end = pair["number"], pair.end("number")
    has_comma = "," in text or re.match(r",\d", pair.string[end : end + 2]) is not None
    return has_comma or (
        name in _STEPS and not (text.isascii() and text.isdigit() and len(text) <= _WHOLE)
    )


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", name.lower()))
