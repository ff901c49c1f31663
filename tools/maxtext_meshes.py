"""What MaxText's own functions make of a mesh on given machines; run by MaxText's Python, without
this package.

    PYTHON tools/maxtext_meshes.py < cases.json > answers.json

A case is {"slices": [8, 8], "sizes": {"dcn_fsdp_parallelism": 2, ...}}, with MaxText's defaults for
sizes that it leaves out. Its answer has the shape of the mesh by axis, or what MaxText raised.
`tests/data/maxtext_meshes.json` holds both, for tests that have no MaxText.
"""

import contextlib
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maxtext
import yaml
from maxtext.utils import maxtext_utils

_BASE = Path(maxtext.__file__).parent / "configs" / "base.yml"


def _device(number: int, node: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        id=number, platform="gpu", device_kind="NVIDIA B200", process_index=node, slice_index=node
    )


def _devices(slices: list[int]) -> list[types.SimpleNamespace]:
    nodes = [node for node, devices in enumerate(slices) for _ in range(devices)]
    return [_device(number, node) for number, node in enumerate(nodes)]


def answer(case: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The mesh of a case by axis with its size, or the error."""
    axes = defaults["mesh_axes"]
    named = {"stage": "pipeline"}
    ici, dcn = (
        [
            case["sizes"].get(name, defaults[name])
            for name in (f"{kind}_{named.get(axis, axis)}_parallelism" for axis in axes)
        ]
        for kind in ("ici", "dcn")
    )
    config = types.SimpleNamespace(
        num_slices=len(case["slices"]),
        ici_parallelism=ici,
        dcn_parallelism=dcn,
        subslice_shape="",
        enable_single_controller=False,
        allow_split_physical_axes=False,
        custom_mesh="",
        optimize_mesh_for_tpu_v6e=False,
    )
    try:
        with contextlib.redirect_stdout(sys.stderr):
            mesh = maxtext_utils.create_device_mesh(config, _devices(case["slices"]))
    except (AssertionError, ValueError) as error:
        return {"refused": str(error).strip().splitlines()[-1]}
    whole = dict(zip(axes, mesh.shape, strict=True))
    return {"mesh": {axis: size for axis, size in whole.items() if size > 1}}


def main() -> None:
    """Answer the cases on standard input."""
    defaults = yaml.safe_load(_BASE.read_text(encoding="utf-8"))
    cases = json.load(sys.stdin)
    answers = [case | answer(case, defaults) for case in cases]
    sys.stdout.write("[\n" + ",\n".join(json.dumps(each) for each in answers) + "\n]\n")


if __name__ == "__main__":
    main()
