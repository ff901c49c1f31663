"""Stands where a Python with MaxText stands, and plays a session that MaxText 0.2.5 really had
(tests/data/maxtext_session.*).

Asked with -c it tells versions; started with -m it prints the recorded log and writes the recorded
metrics_file, a step at a time with the recorded step times (scaled by PLAY_SPEED), in MaxText's
order: a step's log line, then its record, appended to a file that is emptied first when the
record's step is 0. PLAY_FAULT is what goes wrong: NAME or NAME:STEP. Of several that train together
each prints where they meet, and goes on when the others have begun, too; only one that is told a
metrics_file writes it.
"""

import gzip
import json
import os
import re
import sys
import time
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"
# the sentences of MaxText 0.2.5, common/data_loader.py and common/checkpointing.py
WHY_IT_STOPPED = {
    "exhausts": "You may have run out of training data. Received <class 'StopIteration'> "
    "exception: ()",
    "reads": "`next(self.data_iterator)` failed with <class 'OSError'> exception: (no such file).",
    "terminates": "Job received termination signal (SIGTERM).",
}
STEP = re.compile(r"completed step: (\d+),")


MEETING = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_LOCAL_DEVICE_IDS",
    "JAX_PROCESS_COUNT",
    "PROCESSES_IN_JOB",
    "JOB_INDEX",
    "JOB_COMPLETION_INDEX",
)


def main() -> int:
    if sys.argv[1] == "-c":
        versions = {
            "python": "3.12.1",
            "jax": "0.12.0.1",
            "maxtext": os.environ.get("PLAY_VERSION", "0.2.5"),
        }
        print(json.dumps([versions, "/maxtext/configs/base.yml"]))
        return 0
    if sys.argv[1] == "-P":
        print(os.environ.get("PLAY_COUNTS", ""))
        return 0
    options = dict(argument.split("=", 1) for argument in sys.argv[4:])
    checkpoints = Path(options["base_output_directory"]) / options["run_name"] / "checkpoints"
    met = {name: os.environ[name] for name in MEETING if name in os.environ}
    if met:
        print(*(f"{name}={value}" for name, value in met.items()), flush=True)
    if os.environ.get("PLAY_FAULT") == "is slow":
        for halves in range(16):
            print(f"has compiled for {halves / 2} s", flush=True)
            time.sleep(0.5)
    meet(Path(options["base_output_directory"]), options["run_name"])
    if options["run_name"] == "step0":
        match os.environ.get("PLAY_FAULT"):
            case "no parameters":
                return 0
            case "parameters crash":
                print("ValueError: no such recipe")
                return 1
            case "parameters hang":
                time.sleep(3600)
        (checkpoints / "0" / "items").mkdir(parents=True, exist_ok=True)
        return 0
    if options["run_name"] == "evaluation":
        # the real one would wait for the first, and write nothing
        return evaluate(options, checkpoints) if is_first() else 0
    first = max((int(folder.name) + 1 for folder in checkpoints.glob("*")), default=0)
    assert "" not in options.values()  # MaxText reads it as null
    assert "load_parameters_path" not in options or Path(options["load_parameters_path"]).exists()
    return play(options, first, int(options["steps"]), checkpoints)


def meet(folder: Path, name: str) -> None:
    """Wait until each of several processes has begun as many of these as this one."""
    index, processes = (
        int(os.environ.get(key, default))
        for key, default in (("JOB_COMPLETION_INDEX", "0"), ("JAX_PROCESS_COUNT", "1"))
    )
    begun = len([*folder.glob(f"began-{name}-*-{index}")])
    (folder / f"began-{name}-{begun}-{index}").touch()
    while len([*folder.glob(f"began-{name}-{begun}-*")]) < processes:
        time.sleep(0.01)


def is_first() -> bool:
    return os.environ.get("JOB_COMPLETION_INDEX", "0") == "0"


def evaluate(options: dict[str, str], checkpoints: Path) -> int:
    """Go on from the only checkpoint for a step, and evaluate: a record of each batch, then their
    summary.
    """
    (checkpoint,) = checkpoints.iterdir()
    step = int(checkpoint.name) + 1
    assert (
        int(options["steps"]),
        int(options["eval_start_step"]),
        float(options["learning_rate"]),
    ) == (step + 1, step, 0.0)
    fault = os.environ.get("PLAY_FAULT")
    if fault == "evaluates nothing":
        return 0
    if fault == "evaluation hangs":
        print("restored the checkpoint", flush=True)
        time.sleep(3600)
    *batches, summary = evaluations()
    for number, record in enumerate(batches):
        append(options["metrics_file"], record, number)
    append(options["metrics_file"], json.dumps(json.loads(summary) | {"step": float(step)}), step)
    return 0


def evaluations() -> list[str]:
    return [
        line
        for line in (DATA / "maxtext_eval_truncates.jsonl").read_text().splitlines()
        if '"eval/' in line
    ][:6]


def play(options: dict[str, str], first: int, steps: int, checkpoints: Path) -> int:
    metrics, period = options.get("metrics_file"), int(options["checkpoint_period"])
    fault, _, at = os.environ.get("PLAY_FAULT", "").partition(":")
    records = {int(json.loads(line)["step"]): line for line in lines("maxtext_session.jsonl.gz")}
    for line in lines("maxtext_session.log.gz"):
        match = STEP.search(line)
        step = int(match[1]) if match else -1
        if step >= steps:
            break
        if step == int(at or -2):
            ended = go_wrong(fault, metrics, records[step])
            if ended is not None:
                return ended
        if match is None or step >= first:
            print(line, flush=True)
        if match is None or step < first:
            continue
        time.sleep(
            json.loads(records[step])["perf/step_time_seconds"]
            * float(os.environ.get("PLAY_SPEED", "0.01"))
        )
        if options.get("record_internal_nn_metrics") == "1":
            activations = {"activ_mean": 0.5, "activ_stdev": 2.0, "activ_fraction_zero": 0.25}
            seen = {
                f"{name}/layer_{layer:03d}": value + layer
                for name, value in activations.items()
                for layer in range(2)
            }
            records[step] = json.dumps(json.loads(records[step]) | seen)
        if not (fault == "stops" and step >= int(at)) and not (
            fault == "loses" and int(at) <= step < int(at) + 3
        ):
            append(metrics, records[step], step)
        if step and step % period == 0 and is_first():
            (checkpoints / str(step) / "items").mkdir(parents=True)
        if fault == "evaluates" and step % int(at) == int(at) - 1:
            for number, record in enumerate(evaluations()[:5]):
                append(metrics, record, number)
    return 0


def go_wrong(fault: str, metrics: str | None, record: str) -> int | None:
    match fault:
        case "crashes":
            print("ValueError: the recipe asks for what is not there")
            return 1
        case "memory":
            print(
                "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 "
                "bytes."
            )
            return 1
        case "ends":
            return 0
        case "exhausts" | "reads" | "terminates":
            print(f"Training stopped: {WHY_IT_STOPPED[fault]}")
            return 0
        case "hangs":
            time.sleep(3600)
        case "killed":
            os.kill(os.getpid(), 9)
        case "diverges":
            step = int(json.loads(record)["step"])
            print(
                f"completed step: {step}, seconds: 0.013, total_weights: 1016, loss: nan, lm_loss: "
                "nan, perplexity: nan"
            )
            append(
                metrics,
                json.dumps(
                    json.loads(record)
                    | {"learning/lm_loss": float("nan"), "learning/loss": float("nan")}
                ),
                step,
            )
            print("Aborting training due to NaN loss.")
            return 1
        case "garbage":
            append(metrics, "\x00\x00 not a record", 1)
        case "contradicts":
            append(metrics, json.dumps(json.loads(record) | {"learning/lm_loss": 1.5}), 1)
    return None


def append(metrics: str | None, record: str, step: int) -> None:
    if metrics is None:
        return
    with open(metrics, "a", encoding="utf8") as file:  # noqa: PTH123
        if step == 0:
            file.truncate(0)
        file.write(record + "\n")


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / name).read_bytes()).decode().splitlines()


if __name__ == "__main__":
    sys.exit(main())
