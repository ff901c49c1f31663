"""All attacks, by topic."""

from tests.parity.attacks import (
    copies,
    early_stops,
    end_of_run,
    left_out,
    logs,
    second_wave,
    several_seeds,
    spikes,
    treatment,
)
from tests.parity.attacks.case import Attack

TOPICS: dict[str, tuple[Attack, ...]] = {
    "the end of the run": end_of_run.ATTACKS,
    "spikes and NaN": spikes.ATTACKS,
    "copies and forks as replicates": copies.ATTACKS,
    "reruns that were stopped early": early_stops.ATTACKS,
    "logs that mislead": logs.ATTACKS,
    "what a log leaves out": left_out.ATTACKS,
    "found against the first rules": second_wave.ATTACKS,
    "records that mislead": treatment.ATTACKS,
    "several seeds and partial logs": several_seeds.ATTACKS,
}
ATTACKS = tuple(attack for attacks in TOPICS.values() for attack in attacks)
