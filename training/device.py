"""Describes this machine and which recipes it can run.

What it answers: on which device would a run train here, would its bits equal those of another
machine, and if it cannot run, why?

`device_class` contains what affects bits and belongs in a run's fingerprint: the processor's
architecture and the instruction set that the matrix products use. The fast path (bfloat16
products) is chosen by the processor's flags, not by timing, because timing could differ between
two runs of a pair.

    python -m training.device [--json]
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from training.environment import maxtext_mesh, processes, transformer_engine_installed
from training.environment.maxtext_errors import MaxTextError
from training.environment.maxtext_installed import installed
from training.environment.maxtext_options import QUANTIZATION
from training.environment.transformer_engine_installed import NATIVE_SM
from training.frozen import frozen
from training.rules import RECIPES

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "ml_dtypes")
# The first of these flags that the processor has determines XLA's matrix kernels, and so the order
# of summation.
_INSTRUCTION_SETS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
# Memory limit of a Linux control group, in version 2 and version 1.
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_FAST_BF16 = frozenset({"amx_bf16", "avx512_bf16"})
_ENGINES = {
    "transformer_engine": "with Transformer Engine's kernels in our trainer (engine "
    "transformer_engine)",
    "maxtext": "by MaxText (engine maxtext)",
    "emulated": "emulated, with the same codes on any device (engine emulated)",
}


@frozen
class Device:
    """A machine as a trainer sees it. `sm` is the compute capability of an NVIDIA GPU without its
    dot, else None. `slices` has the number of devices on each node of all the processes that train
    together, as jax tells nodes apart.
    """

    platform: str
    device_kind: str
    device_class: str
    sm: str | None
    memory_bytes: int
    cpu_count: int
    threads: int
    versions: dict[str, str]
    fast_bf16: bool
    slices: tuple[int, ...]


def cpu_flags() -> frozenset[str]:
    """The processor's feature flags as the Linux kernel names them; empty if the system does not
    report them.
    """
    source = Path("/proc/cpuinfo")
    if not source.exists():
        return frozenset()
    for line in source.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def instruction_set(flags: frozenset[str]) -> str:
    """The flag that determines the kernels of the matrix products, or "" if the processor has none
    of the known ones.
    """
    return next((name for name in _INSTRUCTION_SETS if name in flags), "")


def processor_class(name: str) -> str:
    """The device class of this machine's processor, which jax calls `name`: with its architecture
    and instruction set.
    """
    return ":".join(filter(None, (name, platform.machine(), instruction_set(cpu_flags()))))


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect bits, read from metadata without an
    import.
    """
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def version(package: str) -> str:
    """The installed version of a package, or that there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def usable_threads() -> int:
    """Number of processors that this process may use; the size of the thread pool affects the order
    of sums.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_memory_bytes() -> int:
    """The machine's memory in bytes, or the limit of this process's container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _MEMORY_LIMITS:
        limit = path.read_text().strip() if path.exists() else "max"
        if limit.isdecimal():
            limits.append(int(limit))
    return min(limits)


def describe() -> Device:
    """The device that JAX would train on in this process. Imports jax, which fixes the number of
    threads.
    """
    import jax  # noqa: PLC0415

    first = jax.local_devices()[0]  # of several processes, each describes its own
    instructions = instruction_set(cpu_flags())
    slices = slices_of(jax.devices())
    sm = None
    memory = usable_memory_bytes()
    if first.platform == "gpu":
        sm = str(getattr(first, "compute_capability", "")).replace(".", "") or None
        memory = int((first.memory_stats() or {}).get("bytes_limit", memory))
        name = f"gpu:sm{sm}" if sm else f"gpu:{first.device_kind}"
        device_class = class_of_gpus(name, slices)
    else:
        device_class = processor_class(first.platform)
    return Device(
        platform=first.platform,
        device_kind=first.device_kind,
        device_class=device_class,
        sm=sm,
        memory_bytes=memory,
        cpu_count=os.cpu_count() or 1,
        threads=usable_threads(),
        versions=versions(),
        fast_bf16=first.platform != "cpu" or instructions in _FAST_BF16,
        slices=slices,
    )


def slices_of(devices: Iterable[Any]) -> tuple[int, ...]:
    """The number of devices on each node, in the order of the nodes; devices that have no
    `slice_index`, such as processors, count as one node.
    """
    found = Counter(getattr(device, "slice_index", 0) for device in devices)
    return tuple(found[index] for index in sorted(found))


def class_of_gpus(name: str, slices: Sequence[int]) -> str:
    """The device class of GPUs of this name: on several nodes with their shape, which decides in
    what order sums are taken.
    """
    return ":".join(filter(None, (name, maxtext_mesh.shape(slices))))


def can_run(
    engine: str,
    recipe: str,
    device: Device,
    wrong_formats: Mapping[str, str] = MappingProxyType({}),
) -> tuple[bool, str]:
    """Whether this engine runs this recipe on that device, with the reason. There is no fallback.

    wrong_formats: the formats whose codes on that device are not the known ones
    (`known_answers.differing_formats`), with what differs; the emulation of a recipe with such a
    format is refused.
    """
    if recipe not in RECIPES:
        return False, f"recipe {recipe!r} is not one of {', '.join(RECIPES)}"
    if engine == "emulated":
        for name in _formats(recipe) if wrong_formats else ():
            if name in wrong_formats:
                return (
                    False,
                    (
                        f"{name} on {device.device_class} does not give the known codes "
                        f"({wrong_formats[name]}); run parity preflight there"
                    ),
                )
        return True, f"exact codes on {device.device_class} with {_products(device)}"
    if engine not in _ENGINES:
        return False, f"engine {engine!r} is not trained by a worker"
    # MaxText's own implementations of recipes, selected with maxtext.hardware: cpu
    if engine == "maxtext" and device.sm is None:
        if recipe in QUANTIZATION["xla"]:
            return _maxtext_is_there(device)
        can = ", ".join(QUANTIZATION["xla"])
        return (
            False,
            f"engine maxtext trains {can} without an NVIDIA GPU; this is {device.device_class}",
        )
    if recipe not in NATIVE_SM or (engine == "maxtext" and recipe not in QUANTIZATION["te"]):
        return False, f"engine {engine} has no recipe {recipe}"
    if device.sm is None:
        return (
            False,
            (
                f"engine {engine} needs an NVIDIA GPU of SM {NATIVE_SM[recipe][1]}; this is "
                f"{device.device_class}"
            ),
        )
    refused = transformer_engine_installed.sm_refusal(recipe, int(device.sm))
    if refused is not None:
        return False, refused
    if engine == "maxtext":
        return _maxtext_is_there(device)
    return transformer_engine_installed.can_run(recipe)


def _products(device: Device) -> str:
    """In what the emulation multiplies on that device."""
    if device.fast_bf16:
        return "bfloat16 products"
    return "float32 products, because this processor has no bfloat16 instructions"


def _formats(recipe: str) -> list[str]:
    """The formats of a recipe's operands for which answers are known."""
    from training.arithmetic import known_answers, recipes  # noqa: PLC0415

    arithmetic = recipes.linear_recipe(recipe, fast_bf16=True)  # type: ignore[arg-type]
    return sorted(known_answers.formats_of(arithmetic.quantizers))


def _maxtext_is_there(device: Device) -> tuple[bool, str]:
    if reason := maxtext_mesh.uneven(device.slices):
        return False, reason
    try:
        maxtext = installed(os.environ)
    except MaxTextError as error:
        return False, str(error)
    return (
        True,
        (
            f"MaxText {maxtext.versions['maxtext']} with jax "
            f"{maxtext.versions.get('jax', 'not installed')} of {maxtext.python}"
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the device, whether its codes are the known ones, and what it can run; the exit code is
    0.

    In JSON also how many devices a run has here, those of all of a wrapper's processes, and how
    many processes.
    """
    import jax  # noqa: PLC0415

    from training.arithmetic import known_answers  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="python -m training.device",
        description="Describe this machine and the recipes that it can run.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    process = processes.processes(os.environ)
    with processes.joined(process):  # before jax first lists devices
        device, devices = describe(), jax.device_count()
    wrong = known_answers.differing_formats()
    runs: dict[str, dict[str, tuple[bool, str]]] = {
        engine: {recipe: can_run(engine, recipe, device, wrong) for recipe in RECIPES}
        for engine in _ENGINES
    }
    if options.json:
        can = {
            f"{engine}/{recipe}": {"ok": ok, "reason": reason}
            for engine, answers in runs.items()
            for recipe, (ok, reason) in answers.items()
        }
        sys.stdout.write(
            json.dumps(
                {
                    **asdict(device),
                    "devices": devices,
                    "processes": process.count,
                    "wrong_formats": wrong,
                    "can_run": can,
                }
            )
            + "\n"
        )
        return 0
    for name, value in asdict(device).items():
        sys.stdout.write(f"{name:14} {value}\n")
    sys.stdout.write(
        f"{'known codes':14} "
        f"{'; '.join(f'{name}: {what}' for name, what in wrong.items()) or 'the same in every format'}\n"  # noqa: E501
    )
    for engine, answers in runs.items():
        sys.stdout.write(f"\n{_ENGINES[engine]}\n" + "".join(_answer_lines(answers)))
    return 0


def _answer_lines(answers: Mapping[str, tuple[bool, str]]) -> Iterator[str]:
    """One line per reason, starting with the recipes that can run."""
    for ok, reason in sorted(dict.fromkeys(answers.values()), key=lambda answer: not answer[0]):
        recipes = ", ".join(recipe for recipe, answer in answers.items() if answer == (ok, reason))
        yield f"  {'yes' if ok else 'no':3} {recipes}: {reason}\n"


if __name__ == "__main__":
    sys.exit(main())
