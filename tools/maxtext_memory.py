"""What a training step takes of each device's memory, by MaxText and XLA: compiled ahead of time
for fake CPU devices, with nothing allocated; run by MaxText's Python, without this package.

    PYTHON tools/maxtext_memory.py < cases.json > answers.json

A case is {"devices": 8, "options": {"base_emb_dim": 512, ...}}; all of one call have one number of
devices. Its answer has the bytes a device of weights, optimizer, everything else of the state, and
batch, as MaxText divides them, and of XLA's temporaries; or what MaxText raised.
"""

import contextlib
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LETTERS = 150  # of an error: some have the whole mesh in them
# Values for a machine without GPUs, data and disk; the rest is the case's.
_HERE = {
    "run_name": "memory",
    "hardware": "cpu",
    "dataset_type": "synthetic",
    "skip_jax_distributed_system": True,
    "enable_checkpointing": False,
    "enable_tensorboard": False,
    "log_config": False,
    "base_output_directory": "memory",
}


def _device_bytes(leaves: list[Any]) -> int:
    """Bytes of these arrays on one device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves
    )


def _state_bytes(state: Any) -> dict[str, int]:
    import jax  # noqa: PLC0415

    parts: dict[str, list[Any]] = {"weights": [], "optimizer": [], "rest": []}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path)
        moments = "['mu']" in name or "['nu']" in name
        is_weight = "['model']" in name and ("kernel" in name or "scale" in name or "embed" in name)
        parts["optimizer" if moments else "weights" if is_weight else "rest"].append(leaf)
    return {part: _device_bytes(leaves) for part, leaves in parts.items()}


def answer(options: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes of a configuration on one device."""
    import jax  # noqa: PLC0415
    import maxtext  # noqa: PLC0415
    from flax.core.spmd import logical_axis_rules  # noqa: PLC0415
    from jax.sharding import AxisType, Mesh  # noqa: PLC0415
    from maxtext.configs import pyconfig  # noqa: PLC0415
    from maxtext.trainers.pre_train import train, train_compile  # noqa: PLC0415
    from maxtext.utils import maxtext_utils, sharding  # noqa: PLC0415

    base = Path(maxtext.__file__).parent / "configs" / "base.yml"
    words = [f"{name}={value}" for name, value in {**options, **_HERE}.items() if value != ""]
    config = pyconfig.initialize(["train", str(base), *words])
    devices = maxtext_utils.create_device_mesh(config)
    mesh = Mesh(devices, config.mesh_axes, axis_types=(AxisType.Auto,) * devices.ndim)
    inputs, keywords, shardings, _, model = train_compile.get_shaped_inputs(mesh, config)
    of_weights, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    signature = maxtext_utils.get_functional_train_with_signature(
        train.train_step,
        sharding.get_input_data_sharding(config, mesh),
        sharding.build_zero1_input_state_mesh_shardings(config, shardings, of_weights),
        model,
        config,
        of_weights,
    )
    step, shardings_in, shardings_out, static, donated = signature
    compiled = train_compile.jit_and_compile(
        step,
        inputs,
        keywords,
        mesh,
        shardings_in,
        shardings_out,
        static,
        donated,
        config,
        logical_axis_rules(config.logical_axis_rules),
    )
    analysis = compiled.memory_analysis()
    state, batch = inputs
    return {
        **_state_bytes(state),
        "batch": _device_bytes(jax.tree.leaves(batch)),
        "arguments": analysis.argument_size_in_bytes,
        "temporaries": analysis.temp_size_in_bytes,
    }


def _told(options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"bytes": answer(options)}
    except (AssertionError, ValueError, TypeError) as error:
        return {"refused": str(error).strip().splitlines()[0][:_LETTERS]}


def main() -> None:
    """Answer the cases on standard input."""
    cases = json.load(sys.stdin)
    devices = {case["devices"] for case in cases}
    if len(devices) != 1:
        raise SystemExit(f"the cases have {sorted(devices)} devices, expected one number of them")
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices.pop()}"
    os.environ |= {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}
    with contextlib.redirect_stdout(sys.stderr):
        answers = [case | _told(case["options"]) for case in cases]
    sys.stdout.write("[\n" + ",\n".join(json.dumps(each) for each in answers) + "\n]\n")


if __name__ == "__main__":
    main()
