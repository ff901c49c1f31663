"""Everything except the seed that determines the bits of a run: specification, data, code,
libraries, machine and environment.

What it answers: may these two runs be paired, and may this run resume from that checkpoint?
"""

import hashlib
import json
import os

from training import device
from training.environment import transformer_engine_installed
from training.overrides import phrase
from training.provenance import trainer_facts
from training.segments import not_te_parity_of
from training.spec import RunSpec
from training.switches import not_te_parity
from training.trainer.data import Corpus

# What may differ between the runs of a pair.
_ARMS_OWN = ("recipe", "switches", "overrides", "then", "seed", "replicate")


def manifest(spec: RunSpec, corpus: Corpus) -> dict[str, str]:
    """Returns a run's fingerprint without what may differ in a pair (_ARMS_OWN); runs with equal
    manifests may be paired.
    """
    machine = device.describe()
    shared = {name: value for name, value in spec.document().items() if name not in _ARMS_OWN}
    facts = trainer_facts(os.environ) | {
        "data_digest": corpus.digest,
        "device_class": machine.device_class,
        "engine": spec.engine,
        "fast_bf16": str(machine.fast_bf16).lower(),
        "layer_policy": spec.layer_policy,
        "spec_sha256": hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest(),
        "threads": str(machine.threads),
    }
    if spec.engine == "transformer_engine":
        facts |= {
            f"transformer_engine.{name}": value
            for name, value in transformer_engine_installed.facts().items()
        }
    # Under keys with the arm's recipe: a fact of one arm alone does not confound a pair.
    if spec.overrides or spec.then:
        reason = not_te_parity_of(spec.segments)
    else:
        reason = not_te_parity(spec.recipe, spec.switches)
    if reason is not None:
        facts[f"not_te_parity.{spec.label}"] = reason
    if spec.overrides:
        facts[f"overrides.{spec.label}"] = "; ".join(map(phrase, spec.overrides))
    return dict(sorted(facts.items()))


def identity(spec: RunSpec, corpus: Corpus) -> dict[str, str]:
    """Returns everything that determines a run's bits as flat text by name: its specification and
    its manifest.
    """
    facts = manifest(spec, corpus)
    del facts["spec_sha256"]  # added below, field by field
    for name, value in spec.document().items():
        if isinstance(value, dict):
            parts = {f"{name}.{part}": leaf for part, leaf in value.items()}
        else:
            parts = {name: value}
        facts |= {part: str(text) for part, text in parts.items()}
    return facts
