"""Whether a source has a second training loss, which may be the one that should have been read.

Up to some step `loss` may be the training loss, and then `train_loss` may carry it, worse or NaN,
while `loss` goes on as another series. Nothing in the values says which of the two is right, so a
person is asked. By their names, further losses are

    a training loss    such as `train_loss`, `loss.1`: asked about where it differs from the loss
                       that was read; of another meaning, such as a total, only where it was equal
                       before, or goes on where the other was
    a mean             of an epoch, or running: only where it is NaN, as means differ by themselves
    another loss       such as that of a domain: where it was equal before, or goes on where the
                       other was; NaN may be that of a batch without the domain

Of losses of all kinds and rows, held-out ones too, and of what is computed from a loss, such as a
perplexity, it is counted how often they are NaN or infinite where the loss that was read is finite.
What counts losses that were not finite, or says so as a flag, is believed (`not_finite_columns`).

None is asked about that is explained: equal but for rounding, the means of the losses that were
read since the point before, as at the end of an epoch, or evaluated on rows with a held-out loss.
Fewer than three points that differ are no series: the Hugging Face trainer writes `train_loss` once
at the end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray
from parity.readers.columns.loss_meaning import meaning_of
from parity.readers.columns.names import (
    TRAINING_GROUPS,
    is_held_out,
    is_known_loss,
    is_other_loss,
    name_words,
    other_losses,
    says_loss,
)
from parity.readers.columns.not_finite_columns import (
    is_about_finite_losses,
    rows_not_finite,
)
from parity.readers.columns.rhythm import NEVER, due_losses

MOST_LOOKED_AT = 16  # further losses of a source, and as many that may be NaN alone
_FEWEST = 3  # points that are a series
_EVERY_POINT = 20  # points, with each of which a further loss begins that is there at every one
_BEFORE = 10  # points of the loss that was read, before the first one of another that goes on there
_NEAR = 0.25  # relative, of the first point of a loss that goes on where another one was
_MEAN_OF = 8  # points, of which a point may be the mean
_MOST_SE = 4.0  # standard errors, within which it is
_DECIMALS = 9
_LOOKED_AT = 4096  # values, for the number of their decimals
_PIECE = 1 << 18  # values that are compared in one go
_FLOAT32 = 1e-6  # relative: values of 32 bits, written by two writers
_EVALUATED_SHARE = 0.5  # of the losses: rows with a held-out loss are rows of evaluations
_PLAIN = TRAINING_GROUPS | frozenset(
    (
        *("loss", "losses", "batch", "global", "local", "reduced", "current", "value", "raw"),
        *("token", "tokens", "main", "out", "ce", "xent", "nll", "cross", "entropy", "llm", "gpt"),
        *("crossentropy", "crossentropyloss", "languagecrossentropy", "language", "total", "sum"),
    )
)
"""Words in the name of a loss that make it no part of the loss, and no mean of several steps."""
_MEANS = frozenset(
    (
        *("avg", "average", "averaged", "ema", "mean", "running", "smooth", "smoothed", "moving"),
        *("epoch", "epochs", "last", "window"),
    )
)
_PERPLEXITIES = frozenset(("ppl", "perplexity"))
_NEAR_LOGARITHM, _FAR_LOGARITHM = 0.02, 0.05  # nats, from the loss that was read
_SUMMARIES = frozenset(("best", "final", "lowest", "target", "initial", "diff", "delta", "change"))


LossesOfRows = tuple[FloatArray, BoolArray]
"""Losses (R,) of rows, and in which rows (R,) one is written, NaN in so many letters too."""


@frozen(eq=False)
class LossSeries:
    """Losses (n,) at keys (n,) that rise in the order of training; NaN where NaN is written."""

    keys: FloatArray
    values: FloatArray


@frozen
class FurtherLosses:
    """Further losses of a source by name: those in conflict with the one that was read, those with
    too few finite values for a run, and of others how many values are NaN or infinite. `said` is
    how many rows count, or say by a flag, that a loss was not finite.
    """

    conflicting: tuple[str, ...] = ()
    no_runs: tuple[str, ...] = ()
    not_finite: tuple[tuple[str, int], ...] = ()
    said: int = 0


def further_of_parts(parts: Sequence[FurtherLosses]) -> FurtherLosses:
    """What is known of the further losses of a run that is in several parts."""
    not_finite: Counter[str] = Counter()
    for part in parts:
        not_finite.update(dict(part.not_finite))
    names = dict.fromkeys(name for part in parts for name in part.no_runs)
    return FurtherLosses(
        conflicting=tuple(dict.fromkeys(name for part in parts for name in part.conflicting)),
        no_runs=tuple(name for name in names if all(name in part.no_runs for part in parts)),
        not_finite=tuple(not_finite.items()),
        said=sum(part.said for part in parts),
    )


def losses_beside(names: Iterable[str], taken: str) -> tuple[str, ...]:
    """The further losses whose values are looked at, those of the likeliest names first, and what
    counts losses that were not finite.
    """
    names = [*dict.fromkeys(names)]
    about = [name for name in names if is_about_finite_losses(name)]
    names = [name for name in names if name not in about]
    others = [name for name in other_losses(names, taken) if _may_replace(name, taken)]
    others.sort(key=lambda name: (not is_known_loss(name), not _is_plain(name), _is_mean(name)))
    others = others[:MOST_LOOKED_AT]
    looked_at = {taken, *others}
    further = [name for name in names if says_loss(name) and name not in looked_at]
    return (*others, *further[:MOST_LOOKED_AT], *about)


def series_of_rows(steps: FloatArray, values: FloatArray, written: BoolArray) -> LossSeries:
    """The losses (R,) of rows in the order of a file, where they are written; a restart goes on
    behind what it repeats.
    """
    if bool(written.all()) and bool((steps[1:] > steps[:-1]).all()):
        return LossSeries(keys=steps, values=values)
    keys = steps
    if bool((steps[1:] < steps[:-1]).any()):
        attempt = np.concatenate([[0.0], np.cumsum(steps[1:] < steps[:-1])])
        keys = attempt * (np.nanmax(steps, initial=0.0) + 1.0) + steps
    there = written & ~np.isnan(keys)
    return _last_of_each(keys[there], values[there])


def series_beside(
    name: str, steps: FloatArray, values: FloatArray, written: BoolArray
) -> LossSeries:
    """A further loss (R,) of rows as `series_of_rows`; of what counts losses that were not finite
    every row, also of one step.
    """
    if is_about_finite_losses(name):
        return LossSeries(keys=np.arange(float(written.sum())), values=values[written])
    return series_of_rows(steps, values, written)


def further_losses(
    taken: str,
    loss: LossSeries,
    beside: Mapping[str, LossSeries],
    held_out: LossSeries | None = None,
) -> FurtherLosses:
    """What the losses beside the one that was taken say; rows with a `held_out` loss, or with
    another one than before, are those of evaluations.
    """
    said = [rows_not_finite(name, other.values) for name, other in beside.items()]
    beside = {name: other for name, other in beside.items() if not is_about_finite_losses(name)}
    most = _EVALUATED_SHARE * len(loss.keys)
    evaluations = np.empty(0)
    if held_out is not None:
        finite = _finite(held_out)
        # a progress bar shows the last one until the next
        rare = (keys for keys in (finite.keys, _changed(finite)) if len(keys) <= most)
        evaluations = next(rare, evaluations)
    return FurtherLosses(
        conflicting=tuple(
            name
            for name, other in beside.items()
            if (
                _conflicts(taken, loss, name, other, evaluations)
                if _may_replace(name, taken)
                else _leaves_loss(loss, name, other) or _leaves_logarithm(loss, name, other)
            )
        ),
        no_runs=tuple(name for name, other in beside.items() if len(_finite(other).keys) < 2),
        not_finite=tuple(
            (name, number)
            for name, other in beside.items()
            if says_loss(name) and (number := _not_finite(loss, other))
        ),
        said=max(said, default=0),
    )


def _conflicts(
    taken: str, loss: LossSeries, name: str, other: LossSeries, evaluations: FloatArray
) -> bool:
    read = _finite(loss)
    if not len(read.keys):
        return False
    is_plain = _is_plain(name)
    is_mean = _is_mean(name)
    is_finite = len(read.keys) == len(loss.keys)
    if is_finite and (is_plain or is_mean) and _has_nan(read, other):
        return True
    finite = _finite(other)
    if is_finite and (is_plain or is_mean) and _stops(read, finite):
        return True
    if is_mean:
        return False
    if len(evaluations):
        if bool(np.isin(_changed(finite), evaluations).all()):
            return False
        counts = ~np.isin(finite.keys, evaluations)
        finite = LossSeries(keys=finite.keys[counts], values=finite.values[counts])
    if not len(finite.keys):
        return False
    equal = _are_equal(read, finite)
    if int((~equal).sum()) < _FEWEST or _are_means(read, finite, equal):
        return False
    if is_plain and meaning_of(name) == meaning_of(taken):
        return True
    return bool(equal[:_FEWEST].all()) or _goes_on(read, finite)


def _has_nan(read: LossSeries, other: LossSeries) -> bool:
    """Whether a further loss is NaN behind the first loss that was read, where one of its values is
    due: writers of tables fill in NaN where it has none.
    """
    bad = other.keys[~np.isfinite(other.values) & (other.keys > read.keys[0])]
    begins_inside = int(np.searchsorted(read.keys, other.keys[:1]).sum()) >= _FEWEST
    if begins_inside or len(bad) < _FEWEST or _begins_at_every_point(other):
        return bool(len(bad))
    return bool(np.isin(_due_keys(read, other), bad).any())


def _not_finite(loss: LossSeries, other: LossSeries) -> int:
    """How many values of any further loss are NaN or infinite behind its first finite one, where
    one is due, and not where the loss that was read is NaN, too. Of a loss without a
    finite value, those count that are written in some rows alone, as an evaluation is.
    """
    is_finite = np.isfinite(other.values)
    read = _finite(loss)
    if not len(other.keys) or not len(read.keys) or is_finite.all():
        return 0
    bad = other.keys[~is_finite & ~np.isin(other.keys, loss.keys[~np.isfinite(loss.values)])]
    is_sparse = len(other.keys) <= _EVALUATED_SHARE * len(read.keys)
    if not is_finite.any():
        return len(bad) if is_sparse else 0
    bad = bad[bad > other.keys[np.argmax(is_finite)]]
    if not is_sparse and not _begins_at_every_point(other):
        bad = bad[np.isin(bad, _due_keys(read, other))]
    return len(bad)


def _begins_at_every_point(other: LossSeries) -> bool:
    """Whether the first values of a further loss are finite, so that no writer filled in NaN."""
    is_finite = np.isfinite(other.values)
    if not len(is_finite):
        return False
    first = int(np.argmax(is_finite))
    following = is_finite[first : first + _EVERY_POINT]
    return len(following) == _EVERY_POINT and bool(following.all())


def _due_keys(read: LossSeries, other: LossSeries) -> FloatArray:
    """The keys at which a further loss has no finite value and one is due by its rhythm."""
    keys = np.union1d(read.keys, other.keys)
    blank = ~np.isin(keys, _finite(other).keys)
    due: FloatArray = keys[due_losses(keys, blank, irregular=NEVER)]
    return due


def _stops(read: LossSeries, other: LossSeries) -> bool:
    """Whether a further loss is there at each of its first points, and then missing at several
    points in a row: null and blank may be NaN.
    """
    points = read.keys[read.keys >= other.keys[0]] if len(other.keys) else read.keys[:0]
    there = np.flatnonzero(np.isin(points, other.keys))
    if len(there) < _EVERY_POINT or there[_EVERY_POINT - 1] != _EVERY_POINT - 1:
        return False
    return bool((np.diff(np.append(there, len(points))) > _FEWEST).any())


def _leaves_loss(loss: LossSeries, name: str, other: LossSeries) -> bool:
    """Whether a further training loss of any name is the one that was read in its first points, and
    then another one.
    """
    read, finite = _finite(loss), _finite(other)
    if is_held_out(name) or not len(read.keys) or len(finite.keys) <= _BEFORE:
        return False
    equal = _are_equal(read, finite)
    is_loss = bool(equal[:_BEFORE].all()) and int((~equal).sum()) >= _FEWEST
    return is_loss and not _are_means(read, finite, equal)


def _leaves_logarithm(loss: LossSeries, name: str, other: LossSeries) -> bool:
    """Whether a perplexity is that of the loss that was read in its first points, and then of
    another one.
    """
    if not name_words(name) & _PERPLEXITIES or is_held_out(name):
        return False
    shared = np.isfinite(other.values) & (other.values > 0.0)
    shared &= np.isin(other.keys, _finite(loss).keys)
    keys = other.keys[shared]
    read = loss.values[np.searchsorted(loss.keys, keys)]
    apart = np.abs(np.log(other.values[shared]) - read)
    is_of_it = len(apart) > _BEFORE and bool((apart[:_BEFORE] <= _NEAR_LOGARITHM).all())
    return is_of_it and int((apart > _FAR_LOGARITHM).sum()) >= _FEWEST


def _goes_on(read: LossSeries, other: LossSeries) -> bool:
    """Whether a further loss begins inside the run, where the loss that was read was."""
    before = int(np.searchsorted(read.keys, other.keys[0]))
    if before < _BEFORE:
        return False
    last = read.values[before - 1]
    return bool(abs(other.values[0] - last) <= _NEAR * abs(last))


def _are_equal(read: LossSeries, other: LossSeries) -> BoolArray:
    """Which of the further losses (n,) are the losses that were read at the same keys, but for
    rounding.
    """
    rounding = _rounding(read, other)
    equal: BoolArray = np.zeros(len(other.keys), dtype=bool)
    for begin in range(0, len(equal), _PIECE):
        piece = slice(begin, begin + _PIECE)
        keys, values = other.keys[piece], other.values[piece]
        at = np.minimum(np.searchsorted(read.keys, keys), len(read.keys) - 1)
        same = read.values[at]
        allowed = rounding + _FLOAT32 * np.abs(same)
        equal[piece] = (read.keys[at] == keys) & (np.abs(same - values) <= allowed)
    return equal


def _are_means(read: LossSeries, other: LossSeries, equal: BoolArray) -> bool:
    """Whether each further loss that is not equal is the mean of the losses that were read since
    the one before it, as far as their noise shows.
    """
    if int((~equal).sum()) * _MEAN_OF > len(read.keys):
        return False
    ends = np.searchsorted(read.keys, other.keys, side="right")
    begins = np.concatenate([[0], ends[:-1]])
    numbers = (ends - begins)[~equal]
    if int(numbers.min()) < _MEAN_OF:
        return False
    sums = np.concatenate([[0.0], np.cumsum(read.values)])
    squares = np.concatenate([[0.0], np.cumsum(read.values**2)])
    means = ((sums[ends] - sums[begins])[~equal]) / numbers
    variances = np.maximum((squares[ends] - squares[begins])[~equal] / numbers - means**2, 0.0)
    se = np.sqrt(variances / numbers) + _rounding(read, other) + _FLOAT32 * np.abs(means)
    z = (other.values[~equal] - means) / se
    return bool(np.abs(z).max() <= _MOST_SE and abs(z.sum()) <= _MOST_SE * np.sqrt(len(z)))


def _rounding(read: LossSeries, other: LossSeries) -> float:
    """How far two values may be apart that are one, rounded to the digits of both series."""
    return 1.01 * max(_last_digit(read.values), _last_digit(other.values))


def _changed(series: LossSeries) -> FloatArray:
    """The keys at which a value is another one than before."""
    changes = series.values[1:] != series.values[:-1]
    return series.keys[np.concatenate([[True], changes])] if len(series.keys) else series.keys


def _last_digit(values: FloatArray) -> float:
    """The unit of the last decimal in which values (n,) are written, by some thousands of them."""
    values = values[:: len(values) // _LOOKED_AT + 1]
    shown = np.abs(values) * _FLOAT32 * 1e-3
    for decimals in range(_DECIMALS):
        if bool((np.abs(values - np.round(values, decimals)) <= shown).all()):
            return float(10.0**-decimals)
    return 0.0


def _finite(series: LossSeries) -> LossSeries:
    finite = np.isfinite(series.values)
    if bool(finite.all()):
        return series
    return LossSeries(keys=series.keys[finite], values=series.values[finite])


def _last_of_each(keys: FloatArray, values: FloatArray) -> LossSeries:
    """The series in the order of its keys, of each key the last value."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    last = np.append(keys[1:] != keys[:-1], True) if len(keys) else np.empty(0, dtype=bool)
    return LossSeries(keys=keys[last], values=values[last])


def _may_replace(name: str, taken: str) -> bool:
    """Whether a further loss may be the training loss in place of the one that was taken."""
    return _is_plain(taken) and is_other_loss(name) and not name_words(name) & _SUMMARIES


def _is_plain(name: str) -> bool:
    words = _words(name)
    return words <= _PLAIN or (is_known_loss(name) and "epoch" not in words)


def _is_mean(name: str) -> bool:
    return not _is_plain(name) and _words(name) <= _PLAIN | _MEANS


def _words(name: str) -> set[str]:
    return name_words(name) - {""}
