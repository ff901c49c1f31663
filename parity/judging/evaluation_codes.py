"""The reason codes that only a comparison of evaluations has; all others are the judge's own (`reasons`)."""

from parity.judging.decision import ReasonCode

AS_OF = ReasonCode(
    "AS_OF",
    "plan and window",
    means="the gap is known as of a point before the training's end",
    detail="a plan that is not reached or not known, a learning rate that has not decayed, or nothing that says that it has; "
    "blocks a pass unless the policy accepts it (as_of: accept)",
    next_step="Train both arms to the end of their schedule, log the learning rate and state the plan (--planned-steps N), or state "
    "--schedule decayed if the rate had decayed; until then read the gap as of this point.",
)
TOO_FEW_RUNS = ReasonCode(
    "TOO_FEW_RUNS",
    "run noise",
    means="an arm has a single run, and the loss is of a kind whose run noise cannot be assumed",
    next_step="Add runs, so that each arm has at least two; five or more give a useful interval.",
)
RUNS_TRUNCATED = ReasonCode(
    "RUNS_TRUNCATED",
    means="runs end at different points, so the comparison is made at the last one that all reached",
)
CLUSTERS_WIDEN = ReasonCode(
    "CLUSTERS_WIDEN",
    means="over clusters of runs the interval decides otherwise than over runs",
    next_step="Run both arms on the same systems, or on more of them.",
)
CLUSTERS_UNUSABLE = ReasonCode(
    "CLUSTERS_UNUSABLE",
    "same ground",
    means="each arm has one cluster, so what is the cluster's and what the recipe's cannot be told apart",
    next_step="Run both arms on the same systems, or each on at least two.",
)

NUMBERS_ALONE = ReasonCode(
    "NUMBERS_ALONE",
    "same ground",
    means="each arm is one number that was typed: pairing, software and schedule of the runs are not known",
    detail="a gap above the margin fails, no number passes",
    next_step="Give the logs of both runs in place of the numbers, with the same data order, and state their plan and schedule.",
)

DECIDING, WARNINGS = (AS_OF, NUMBERS_ALONE, TOO_FEW_RUNS, CLUSTERS_UNUSABLE), (RUNS_TRUNCATED, CLUSTERS_WIDEN)
