"""The policy of a comparison: how large a gap is acceptable, with which confidence, and what may be
assumed.

A margin is stated by the job, alone or through a profile; when several are set the smallest in nats
decides. Relative margins are shares of L, the baseline's mean loss in the window. The profiles'
sources are in docs/policy.md.
"""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from parity.canonical_json import fields_of
from parity.frozen import frozen
from parity.judging.multiplicity import MAX_LOOKS
from parity.typed_json import check_between, check_words, kinds_of, known_keys, typed
from parity.wording import did_you_mean

Unit = Literal["relative", "nats", "tokens"]

# assumed tau0, share of L: covers the noisiest finished group of decoders (0.12 %) in 95 %
FINISHED_NOISE = 0.0009
# share of L, and of its fall per e-fold: 8B, AA38 cut at 30 to 60 %, 405B FP8
UNFINISHED_NOISE, NOISE_PER_SLOPE = 0.0015, 0.012
ASSUMED_DF = 4.0  # degrees of freedom that assumed noise is worth
STOCHASTIC_FACTOR = 1.5  # 1.15 (8B), 1.35, 1.79, 2.3 (small models); random-effects mean 1.48
WINDOW_FRACTION = 0.20  # of the planned steps
# common points in the window: coverage of `mean_se` and of `capped` in docs/evidence.md
POINTS_TO_PASS, POINTS_TO_FAIL = 12, 8


class PolicyError(ValueError):
    """A policy that can't be read: `path` in the file, `value` found there, `expected` in words."""

    def __init__(self, path: str, value: object, expected: str) -> None:
        self.path, self.value, self.expected = path, value, expected
        super().__init__(self.sentence_of(path))

    def sentence_of(self, name: str) -> str:
        """The sentence with another name for the path, such as that of an option."""
        if self.expected.startswith("no such key"):
            known = self.expected.partition(": ")[2]
            return (
                f"{name}: unknown "
                f"key{did_you_mean(self.path.rpartition('.')[2], known.split(', ')) or f'; expected one of {known}'}"  # noqa: E501
            )
        words = self.expected.partition("one of ")[2].partition(";")[0].split(", ")
        return (
            f"{name} is {self.value!r}; expected "
            f"{self.expected}{did_you_mean(str(self.value), filter(None, words))}"
        )


@frozen
class Amount:
    """A loss difference: nats, a share of the baseline's loss (`relative`, 0.01 = 1 %), or what a
    share more tokens would gain.

    Tokens become nats by `slope`, the nats that finished runs gain per e-fold of their tokens; None
    where it is not stated.
    """

    value: float
    unit: Unit
    slope: float | None = None

    def nats(self, level: float) -> float:
        """The amount in nats where the baseline's loss is `level` nats; ValueError for tokens
        without a slope.
        """
        if self.unit == "tokens":
            if self.slope is None:
                raise ValueError(
                    f"{self} is no amount in nats without a slope; expected such as "
                    f"{SLOPE_EXAMPLE!r}"
                )
            return self.slope * math.log1p(self.value)
        if self.unit == "relative":
            return self.value * level
        return self.value

    def __str__(self) -> str:
        if self.unit == "tokens":
            slope = "" if self.slope is None else f" at {self.slope:.12g} nats"
            return f"{100 * self.value:.12g} % tokens{slope}"
        if self.unit == "relative":
            return f"{100 * self.value:.12g} %"
        return f"{self.value:.12g} nats"


NVFP4, NVFP4_DECAY, FP8_GRADE, BF16_BAR, NOISE_FLOOR = (
    "nvfp4",
    "nvfp4-decay",
    "fp8-grade",
    "bf16-bar",
    "noise-floor",
)
PROFILES: Mapping[str, Amount | None] = {
    NVFP4: Amount(value=0.010, unit="relative"),
    NVFP4_DECAY: Amount(value=0.015, unit="relative"),
    FP8_GRADE: Amount(value=0.0025, unit="relative"),
    BF16_BAR: Amount(value=0.010, unit="nats"),
    # 3 sqrt(2) tau of the baseline, measured on at least NOISE_FLOOR_DF degrees of freedom
    NOISE_FLOOR: None,
}
NOISE_FLOOR_DF = 3
SLOPE_EXAMPLE = "5% tokens at 0.2 nats"  # per e-fold of tokens
# beyond any loss of a model, or of a mistake
LARGEST_AMOUNTS: Mapping[Unit, float] = {"relative": 1.0, "nats": 100.0, "tokens": 10.0}
WIDE_MARGIN = 0.05  # share of the loss: more than a model of half the size loses

LOSS = "loss"
POLICY_CHECKS = (
    LOSS,
    "grad_norm",
    "spikes",
    "validation_loss",
    "accuracy",
    "net_speedup",
)  # the loss always decides; the others advise unless named

_NUMBER = r"([-+0-9.eE]+)"
_AMOUNT = re.compile(rf"^\s*{_NUMBER}\s*(%|nats?)?\s*$")
_TOKENS = re.compile(rf"^\s*{_NUMBER}\s*%\s*tokens(?:\s+at\s+{_NUMBER}\s*nats)?\s*$")


def parse_margin(text: object, path: str = "margin") -> Amount:
    """Read "1.0%", "0.01 nats", "5% tokens", "5% tokens at 0.2 nats" or a number of nats;
    PolicyError unless finite and positive.
    """
    expected = 'a positive amount such as "1.0%", "0.01 nats" or "5% tokens"'
    if isinstance(text, Amount):
        return text
    if isinstance(text, str) and (tokens := _TOKENS.match(text)):
        return _tokens(text, tokens, path)
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        value, unit = _float(text), "nats"
    elif isinstance(text, str) and (match := _AMOUNT.match(text)):
        try:
            value, unit = float(match[1]), match[2] or "nats"
        except ValueError:
            raise PolicyError(path, text, expected) from None
    else:
        raise PolicyError(path, text, expected)
    if unit == "%":
        amount = Amount(value=value / 100, unit="relative")
    else:
        amount = Amount(value=value, unit="nats")
    if not amount.value > 0.0:
        raise PolicyError(path, text, expected)
    return _bounded(amount, text, path)


def _bounded(amount: Amount, text: object, path: str) -> Amount:
    """The amount; PolicyError for one that is infinite, or larger than any gap between two
    trainings.
    """
    largest = LARGEST_AMOUNTS[amount.unit]
    if not amount.value <= largest:
        raise PolicyError(path, text, f"at most {Amount(value=largest, unit=amount.unit)}")
    if amount.slope is not None and not amount.slope <= LARGEST_AMOUNTS["nats"]:
        raise PolicyError(path, text, f"a slope of at most {LARGEST_AMOUNTS['nats']:g} nats")
    return amount


def _tokens(text: str, match: re.Match[str], path: str) -> Amount:
    try:
        share, slope = float(match[1]) / 100, None if match[2] is None else float(match[2])
    except ValueError:
        share, slope = math.nan, None
    if not share > 0.0 or (slope is not None and not slope > 0.0):
        raise PolicyError(
            path, text, f'a positive share of the tokens such as "5% tokens", or {SLOPE_EXAMPLE!r}'
        )
    return _bounded(Amount(value=share, unit="tokens", slope=slope), text, path)


def has_no_unit(margin: object) -> bool:
    """Whether a stated margin is a number alone. It would be nats, and who types 1 means 1 %: a
    margin of 1 nat passes everything.
    """
    try:
        return (
            isinstance(margin, (str, int, float))
            and not isinstance(margin, bool)
            and 0.0 < float(margin) < math.inf
        )
    except (ValueError, OverflowError):
        return False


def stated_margin(margin: object, path: str = "margin") -> Amount:
    """A margin that a person states with its unit, "1%" or "0.01 nats"; raises PolicyError for a
    number alone, too.
    """
    if has_no_unit(margin):
        raise PolicyError(
            path,
            margin,
            f'a margin with its unit: "{margin!s:.20}%" for a share of the loss, or '
            f'"{margin!s:.20} nats"',
        )
    return parse_margin(margin, path)


@frozen
class Policy:
    """When a candidate counts as good as its baseline; docs/policy.md has every default,
    docs/method.md what they do.

    `margin` and `profile` state the largest acceptable gap (the smaller decides); "5% tokens" is
    the gap that 5 % more tokens would close. The two statements of run-to-run noise are priors of
    the between-run standard deviation; None lets the recipe choose. `may_differ` lists context keys
    in which the arms may differ, `checks` the checks that decide in addition to the loss.
    `early_stop` sets what happens to a pair that will fail, or can hardly pass, while it still
    trains: `advise` reports it, `stop` ends its candidate. `accuracy_margin_points` is how much
    worse a downstream accuracy may be, in percentage points. A validation gap that is surely above
    the margin blocks a pass, unless `validation` is `advise`. `looks` registers how often the
    question may be judged, with runs added in between (`multiplicity`); `question` gives it a new
    name where the same comparison is made for another reason, such as a new driver. `schedule:
    decayed` states that the runs came to the end of their learning rate schedule, `start: loaded`
    that they began with trained weights, `pairing: stated` that the arms read the same data in the
    same order where batch noise cannot show it; `as_of: accept` lets a gap pass that is known only
    as of a point before the training's end, `wide_margin: accept` a margin above 5 % of the loss.
    Amounts may be given as text with their unit: `Policy(margin="1%")`.
    """

    profile: str | None = None
    margin: Amount | None = None
    confidence: float = 0.95
    window_fraction: float = WINDOW_FRACTION
    min_points: int = POINTS_TO_PASS
    assumed_noise: Literal["accept", "reject"] = "accept"
    two_sided: bool = False
    pairing: Literal["paired", "stated", "unpaired"] = "paired"
    baseline_run_noise: Amount | None = None
    candidate_run_noise: Amount | None = None
    run_noise_df: float = ASSUMED_DF
    run_noise_evidence: str = ""
    may_differ: tuple[str, ...] = ()
    checks: tuple[str, ...] = (LOSS,)
    accuracy_margin_points: float = 2.0
    early_stop: Literal["advise", "stop"] = "advise"
    validation: Literal["veto", "advise"] = "veto"
    looks: int = 1
    question: str = ""
    schedule: Literal["unstated", "decayed"] = "unstated"
    start: Literal["unstated", "loaded"] = "unstated"
    as_of: Literal["refuse", "accept"] = "refuse"
    wide_margin: Literal["refuse", "accept"] = "refuse"
    loss_unit: Literal["nats", "other"] = "nats"

    # amounts as text, too; at run time the dataclass makes the same `__init__` of its fields
    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            profile: str | None = None,
            margin: Amount | str | None = None,
            confidence: float = 0.95,
            window_fraction: float = WINDOW_FRACTION,
            min_points: int = POINTS_TO_PASS,
            assumed_noise: Literal["accept", "reject"] = "accept",
            two_sided: bool = False,
            pairing: Literal["paired", "stated", "unpaired"] = "paired",
            baseline_run_noise: Amount | str | None = None,
            candidate_run_noise: Amount | str | None = None,
            run_noise_df: float = ASSUMED_DF,
            run_noise_evidence: str = "",
            may_differ: tuple[str, ...] = (),
            checks: tuple[str, ...] = (LOSS,),
            accuracy_margin_points: float = 2.0,
            early_stop: Literal["advise", "stop"] = "advise",
            validation: Literal["veto", "advise"] = "veto",
            looks: int = 1,
            question: str = "",
            schedule: Literal["unstated", "decayed"] = "unstated",
            start: Literal["unstated", "loaded"] = "unstated",
            as_of: Literal["refuse", "accept"] = "refuse",
            wide_margin: Literal["refuse", "accept"] = "refuse",
            loss_unit: Literal["nats", "other"] = "nats",
        ) -> None: ...

    def __post_init__(self) -> None:
        for key in _AMOUNTS:
            amount: object = getattr(self, key)
            if amount is not None and not isinstance(amount, Amount):
                object.__setattr__(self, key, stated_margin(amount, f"policy.{key}"))
            if (
                key != "margin"
                and getattr(self, key) is not None
                and getattr(self, key).unit == "tokens"
            ):
                raise PolicyError(
                    f"policy.{key}",
                    str(getattr(self, key)),
                    'run-to-run noise such as "0.1%" or "0.003 nats"',
                )
        if self.margin is None and self.profile is None:
            raise PolicyError(
                "policy.margin",
                None,
                'a margin such as "1.0%" or "0.01 nats", or a profile: ' + ", ".join(PROFILES),
            )
        if self.profile is not None and self.profile not in PROFILES:
            if self.profile == "step-noise":
                hint = "; step noise is reported in every headline but never decides"
            else:
                hint = ""
            raise PolicyError(
                "policy.profile", self.profile, "one of " + ", ".join(PROFILES) + hint
            )
        check_words(self, "policy", PolicyError)
        if LOSS not in self.checks or not set(self.checks) <= set(POLICY_CHECKS):
            raise PolicyError(
                "policy.checks",
                list(self.checks),
                f"a list with {LOSS!r} in it, of {', '.join(POLICY_CHECKS)}",
            )
        for key, (low, high) in POLICY_RANGES.items():
            check_between(f"policy.{key}", getattr(self, key), low, high, PolicyError)

    @property
    def is_paired(self) -> bool:
        """Whether the arms read the same batches in the same order, as the curves show or as is
        stated.
        """
        return self.pairing != "unpaired"

    @property
    def profile_name(self) -> str:
        """The profile's name, or "custom" where the job states a margin of its own."""
        return self.profile or "custom"

    @property
    def declared_noise(self) -> tuple[Amount | None, Amount | None]:
        """The run-to-run noise that is stated of baseline and candidate."""
        return self.baseline_run_noise, self.candidate_run_noise

    @property
    def is_absolute(self) -> bool:
        """Whether the margin and the run-to-run noise of both arms are amounts of the loss itself,
        so that its level and its unit do not matter.
        """
        amounts = (self.margin, *self.declared_noise)
        return self.profile is None and all(
            amount is not None and amount.unit == "nats" for amount in amounts
        )

    def document(self) -> dict[str, Any]:
        """The policy as JSON-able values; `policy_from_mapping(policy.document())` gives the same
        policy back.
        """
        return {key: _plain(value) for key, value in sorted(fields_of(self).items())}


def policy_from_mapping(mapping: Mapping[str, Any]) -> Policy:
    """Read a policy with closed keys; raises PolicyError with the path, the value and what was
    expected.
    """
    known = known_keys(mapping, Policy, "policy", PolicyError)
    return Policy(
        **{
            key: _read(key, value, f"policy.{key}")
            for key, value in known.items()
            if value is not None
        }
    )


_AMOUNTS = ("margin", "baseline_run_noise", "candidate_run_noise")
POLICY_RANGES: Mapping[str, tuple[float, float]] = {
    "confidence": (0.5, 0.9999),
    "window_fraction": (0.01, 1.0),
    "min_points": (POINTS_TO_PASS, 10**9),
    "run_noise_df": (1.0, 1e6),
    "looks": (1, MAX_LOOKS),
    "accuracy_margin_points": (0.001, 100.0),
}


def _read(key: str, value: object, path: str) -> Any:
    if key in _AMOUNTS:
        return stated_margin(value, path)
    kind, _ = kinds_of(Policy)[key]
    if kind is tuple:
        return _read_names(value, path)
    read = typed(value, kind, path, refuse=PolicyError)
    return _float(read) if kind is float else read


def _float(number: float) -> float:
    """A number from a file as a float; one too large for a float is as bad as infinity, and refused
    like it.
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _read_names(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise PolicyError(path, value, "a list of names")
    return tuple(value)


def _plain(value: object) -> object:
    if isinstance(value, Amount):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return value
