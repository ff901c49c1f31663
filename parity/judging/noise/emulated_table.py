"""Reruns of the emulated engine's own small models, from which jobs of that engine borrow that name
no family.

DEMO   reruns of one specification, that of examples/demo.yaml, over seeds and replicates
       (tools/tables/emulated_noise): of the recipes that round alike one group, with the variance
       of one run of a seed of its own s0^2 = sum d_g s_g^2 / sum d_g, df = sum d_g groups of one
       set-up: there is nothing between them to estimate
SMALL  reruns of other sizes, lengths and texts, each group of one such set-up and one recipe, with
       the demo's as some of them: `model.fit_family` over the groups, whatever their losses

Only for models of fewer than LARGEST parameters whose schedule finished. Can fail: a set-up that is
unlike the recorded ones (0.3 to 3 M parameters, 500 to 4,500 steps), and another processor, whose
sums have another order; all were trained on one class of CPU. Left out of the groups of SMALL,
pairs of each of them are covered in 93 % or more, 99 % on average
(tests/parity/judging/noise/test_emulated_table.py).
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from parity.judging.noise.family_spread import (
    MAX_DF,
    MIN_FAMILY_DF,
    FamilyNoise,
    fit_family,
    levels_of,
)
from parity.judging.noise.noise_table import NoiseTable, RerunGroup, read_noise_table
from parity.wording import count

TABLE = Path(__file__).with_name("emulated.csv")
DEMO, SMALL = "emulated small models/demo", "emulated small models/other sizes"
EMULATED = frozenset({DEMO, SMALL})
LARGEST = 10_000_000  # parameters; larger ones are no small models any more


@cache
def emulated_noise_table() -> NoiseTable:
    """The table, written by tools/tables/emulated_noise.py."""
    return read_noise_table(TABLE.read_text(encoding="utf-8"))


def fit_emulated(name: str, groups: Sequence[RerunGroup]) -> FamilyNoise:
    """The noise of the groups of DEMO or SMALL that round alike. Raises ValueError where they are
    too few.
    """
    if name == SMALL:
        return fit_family(groups, one_level=False)
    df = sum(group.df for group in groups)
    if df < MIN_FAMILY_DF:
        raise ValueError(
            f"{count(df, 'degree')} of freedom in all groups; expected at least {MIN_FAMILY_DF}"
        )
    return FamilyNoise(
        share=math.sqrt(sum(group.df * group.share**2 for group in groups) / df),
        df=min(float(df), MAX_DF),
        estimated_df=math.inf,
        groups=len(groups),
        runs=sum(group.runs for group in groups),
        outliers=(),
        levels=levels_of(groups),
    )
