"""How do the compiled step and its memory grow with the depth of a model, with and without `remat`?

    python benchmarks/depth.py [--recipe nvfp4] [--depths 4 32]

Each program is traced and compiled in a process of its own, without a cache. Limits with `remat`,
from the first depth to the last: the CPU seconds that tracing and compiling take and the size of
the compiled program, 1.3 times each. Without `remat` there is no limit. The first steps of both
have the same losses and gradient norms but for the last bits of float32.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

LIMIT, CLOSE = 1.3, 1e-5


def child(recipe: str, depth: int, remat: bool) -> None:
    """Compile the program of three steps, run it twice, and print what that took as JSON."""
    # benchmarks run without installing this repository
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import numpy as np  # noqa: PLC0415

    from training.device import describe  # noqa: PLC0415
    from training.spec import Data, Model, RunSpec, Schedule  # noqa: PLC0415
    from training.trainer import step  # noqa: PLC0415
    from training.trainer.data import Corpus  # noqa: PLC0415
    from training.trainer.model import grouped  # noqa: PLC0415
    from training.trainer.run import TrainingRun  # noqa: PLC0415

    tokens = np.random.default_rng(0).integers(0, 256, 1 << 18).astype(np.uint8)
    corpus = Corpus(
        train=tokens, validation=tokens[:0], largest=255, digest="", description="random bytes"
    )
    fast = describe().fast_bf16
    spec = RunSpec(
        recipe=recipe,  # type: ignore[arg-type]
        engine="emulated",
        model=Model(d_model=64, n_layers=depth, n_heads=2, n_kv_heads=1, d_ff=128),
        data=Data(source="text", path="given", sequence_length=256, batch_size=8),
        schedule=Schedule(steps=1000),
        layer_policy="all_linears",
        seed=0,
        replicate=0,
        devices=1,
        remat=remat,
    )
    run, again = (TrainingRun(spec, corpus, fast_bf16=fast) for _ in range(2))
    model, inputs = run._model_at(0), run.inputs(0, 3, 3)
    began = time.process_time()
    program = step.block.lower(model, run._sharing, grouped(model, run.state), inputs).compile()
    cpu_seconds = time.process_time() - began
    _, output = program(grouped(model, run.state), inputs)
    output.rows.block_until_ready()
    began = time.perf_counter()
    program(grouped(model, again.state), inputs)[1].rows.block_until_ready()
    measured = {
        "compile_cpu_seconds": cpu_seconds,
        "program_megabytes": len(program.as_text()) / 1e6,
        "temporary_megabytes": program.memory_analysis().temp_size_in_bytes / 1e6,
        "step_milliseconds": 1e3 * (time.perf_counter() - began) / 3,
        "rows": np.asarray(output.rows)[:3, :4].tolist(),
    }
    print(json.dumps(measured))


def main() -> int:
    """Print a table; 1 where a limit is exceeded or the two ways differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="nvfp4")
    parser.add_argument("--depths", type=int, nargs=2, default=[4, 32])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.recipe, int(options.child[0]), options.child[1] == "True")
        return 0
    programs = {}
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0"}
    for remat in (True, False):
        for depth in options.depths:
            line = [
                sys.executable,
                __file__,
                "--recipe",
                options.recipe,
                "--child",
                str(depth),
                str(remat),
            ]
            printed = subprocess.run(
                line, check=True, stdout=subprocess.PIPE, text=True, env=environment
            ).stdout
            programs[remat, depth] = one = json.loads(printed)
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:.2f}"
                for name, value in one.items()
                if name != "rows"
            )
            print(
                f"{options.recipe}, {depth} blocks, remat {str(remat).lower()}: {shown}", flush=True
            )
    shallow, deep = options.depths
    failed = False
    for name in ("compile_cpu_seconds", "program_megabytes"):
        ratio = programs[True, deep][name] / programs[True, shallow][name]
        failed |= ratio > LIMIT
        print(
            f"{name.replace('_', ' ')} of {deep} over {shallow} blocks: {ratio:.2f} (limit {LIMIT})"
        )
    for depth in options.depths:
        looped, plain = (programs[remat, depth]["rows"] for remat in (True, False))
        apart = max(
            abs(a - b) / abs(b)
            for rows in zip(looped, plain, strict=True)
            for a, b in zip(*rows, strict=True)
        )
        failed |= apart > CLOSE
        print(
            f"losses and gradient norms of {depth} blocks, with and without remat, differ by "
            f"{apart:.1e} (limit {CLOSE:.0e})"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
