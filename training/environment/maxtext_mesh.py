"""The mesh of a MaxText run: over how many devices each axis goes, or why these devices can't hold
it.

MaxText has sizes of two kinds. ICI axes lie within a slice, DCN axes across slices; on GPUs a slice
is a node, or the nodes of one NVLink fabric: jax says which (`slice_index`). Its rules:

    product of the ICI sizes = devices of a slice, the same in each
    product of the DCN sizes = slices
    one size of each kind may be -1: it takes what the others leave

Every run is told all sizes, so that MaxText refuses to train on other devices. Standard library
only, because the web process imports this module.

Source: MaxText 0.2.5, `fill_unspecified_mesh_axes` of utils/max_utils.py and `create_device_mesh`
of utils/maxtext_utils.py; jax 0.12, `create_hybrid_device_mesh` of jax/_src/mesh_utils.py.
"""

import math
from collections.abc import Mapping, Sequence

from training.rules import SpecError

ICI = tuple(f"ici_{axis}_parallelism" for axis in ("data", "fsdp", "tensor", "context"))
DCN = tuple(f"dcn_{axis}_parallelism" for axis in ("data", "fsdp"))
OPEN = -1
# The sizes of each layer's products follow from the other two.
_MAY_BE_OPEN = frozenset(name for name in (*ICI, *DCN) if "_data_" in name or "_fsdp_" in name)


class MeshError(ValueError):
    """These devices can't hold this mesh; the message says why, and what would."""


def check_sizes(sizes: Mapping[str, int], devices: int, *, one_slice: bool) -> None:
    """Raises SpecError for sizes of a mesh that no machines with so many devices in all could
    hold. `one_slice`: one process trains, so there is no second one.
    """
    for name in (*ICI, *DCN):
        if sizes[name] < 1 and not (sizes[name] == OPEN and name in _MAY_BE_OPEN):
            least = "a number from 1" + (", or -1 for the rest" if name in _MAY_BE_OPEN else "")
            raise SpecError(f"maxtext.{name}", sizes[name], least)
    for kind in (ICI, DCN):
        open_axes = [name for name in kind if sizes[name] == OPEN]
        if len(open_axes) > 1:
            raise SpecError(
                f"maxtext.{open_axes[1]}",
                OPEN,
                f"a number from 1 beside {open_axes[0]}: -1",
                f"one of them may be -1; say {open_axes[0]}: 1",
            )
    if one_slice and (across := _fixed(sizes, DCN)) > 1:
        raise SpecError(
            "maxtext dcn sizes",
            _of(sizes, DCN),
            f"a product of 1, not {across}: one process trains on one node",
            "several nodes need hardware: gpu_multiprocess",
        )
    fixed = _fixed(sizes, ICI) * _fixed(sizes, DCN)
    if devices % fixed or (fixed != devices and not _is_open(sizes, (*ICI, *DCN))):
        raise SpecError(
            "maxtext parallelism",
            _of(sizes, (*ICI, *DCN)),
            f"sizes whose product is devices = {devices}, of which one ici and one dcn size may "
            "be -1",
        )


def filled(sizes: Mapping[str, int], slices: Sequence[int]) -> dict[str, int]:
    """Every size of the mesh on slices with these numbers of devices; raises MeshError."""
    if reason := uneven(slices):
        raise MeshError(reason)
    return _filled(sizes, ICI, slices[0], slices) | _filled(sizes, DCN, len(slices), slices)


def refusal(sizes: Mapping[str, int], slices: Sequence[int]) -> str | None:
    """Why MaxText can't build the mesh on slices with these numbers of devices, or None."""
    try:
        filled(sizes, slices)
    except MeshError as error:
        return str(error)
    return None


def uneven(slices: Sequence[int]) -> str | None:
    """Why MaxText can't train on all of these slices whatever the sizes, or None."""
    if len(set(slices)) == 1:
        return None
    return (
        f"its nodes have {' + '.join(map(str, slices))} devices, and MaxText needs equally many on "
        f"each: {min(slices)} of each are {len(slices) * min(slices)} devices"
    )


def shape(slices: Sequence[int]) -> str:
    """Slices in a word, such as 16x8 or 72+56; "" for one, of which the devices say all."""
    if len(slices) == 1:
        return ""
    if uneven(slices):
        return "+".join(map(str, slices))
    return f"{len(slices)}x{slices[0]}"


def _filled(
    sizes: Mapping[str, int], kind: Sequence[str], product: int, slices: Sequence[int]
) -> dict[str, int]:
    fixed = _fixed(sizes, kind)
    if product % fixed or (fixed != product and not _is_open(sizes, kind)):
        ici = kind is ICI
        raise MeshError(
            f"maxtext's {'ici' if ici else 'dcn'} sizes multiply to {fixed}, expected "
            + (f"{product} devices of a node" if ici else f"{product}, the nodes")
            + f" of its {len(slices)} x {slices[0]}; "
            + ("the rest goes to dcn sizes" if ici else "the devices of a node go to ici sizes")
            + f", and -1 takes what is left ({kind[1]}: -1)"
        )
    return {name: product // fixed if sizes[name] == OPEN else sizes[name] for name in kind}


def _of(sizes: Mapping[str, int], kind: Sequence[str]) -> dict[str, int]:
    return {name: sizes[name] for name in kind}


def _fixed(sizes: Mapping[str, int], kind: Sequence[str]) -> int:
    return math.prod(sizes[name] for name in kind if sizes[name] != OPEN)


def _is_open(sizes: Mapping[str, int], kind: Sequence[str]) -> bool:
    return any(sizes[name] == OPEN for name in kind)
