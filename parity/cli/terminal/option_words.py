"""Words in the help of several options: titles of groups, and lists of recipes and profiles."""

from parity.judging.policy import NOISE_FLOOR, PROFILES
from parity.recipes import OTHER, RECIPES

# Groups of options.
ARMS, TABLE, POLICY, EVIDENCE, OUTPUT = (
    "Runs and arms",
    "Table of runs",
    "Policy",
    "Further evidence",
    "Output",
)
EXPERIMENT, NOISE, SERVER, QUEUE, LABELS = (
    "Experiment",
    "Noise",
    "Server",
    "Queue",
    "Tags and branch",
)
FOLLOW, REUSE = "Waiting", "Reuse of earlier results"

# Lists of words in the help of several options.
RECIPE_WORDS = f"{', '.join(RECIPES)}, or {OTHER}NAME for your own"
STATED_PROFILES = ", ".join(
    f"{name} ({str(amount).replace(' %', '%')})"
    for name, amount in PROFILES.items()
    if amount is not None
)
ALL_PROFILES = (
    f"{STATED_PROFILES}, {NOISE_FLOOR} (4.2 x the measured run-to-run noise of the baseline)"
)
