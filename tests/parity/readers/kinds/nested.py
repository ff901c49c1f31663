"""JSON in any depth: lines and documents, with names joined by slashes or points."""

import json

from tests.parity.readers.kinds.kind import LOSSES, RATES, ROWS, STEPS, Kind, lines, records

NAMED = {str(step): loss for step, loss in zip(STEPS, LOSSES, strict=True)}
NESTED = {
    "train: loss, trainer/global_step": Kind(
        records(lambda s, x, r: ({"train": {"loss": x, "lr": r}, "trainer/global_step": s})),
        has_rate=True,
    ),
    "three deep": Kind(
        records(
            lambda s, x, r: (
                {"data": {"metrics": {"train": {"loss": x}}, "optim": {"lr": r}}, "step": s}
            )
        ),
        has_rate=True,
    ),
    "points": Kind(
        records(lambda s, x, r: ({"train.loss": x, "train.lr": r, "train.global_step": s})),
        has_rate=True,
    ),
    "step and metrics": Kind(
        records(
            lambda s, x, r: (
                {"step": s, "metrics": {"loss": x, "learning_rate": r, "grad_norm": 1.5}}
            )
        ),
        has_rate=True,
    ),
    "lr-AdamW/pg1": Kind(
        records(
            lambda s, x, r: (
                {"train_loss": x, "lr-AdamW/pg1": r, "lr-AdamW/pg2": r / 10, "step": s}
            )
        ),
        has_rate=True,
    ),
    "optim/lr": Kind(
        records(lambda s, x, r: ({"train/loss": x, "optim/lr": r, "_step": s})),
        has_rate=True,
    ),
    "current_steps": Kind(
        records(
            lambda s, x, r: (
                {"current_steps": s, "total_steps": 40, "loss": x, "lr": r, "epoch": s / 40}
            )
        ),
        plan=40,
        has_rate=True,
    ),
    "global_step/max_steps": Kind(
        records(
            lambda s, x, r: ({"loss": x, "learning_rate": r, "global_step/max_steps": f"{s}/40"})
        ),
        plan=40,
        has_rate=True,
    ),
    "step of total": Kind(
        records(lambda s, x, r: ({"loss": x, "lr": r, "step": f"{s}/40"})),
        plan=40,
        has_rate=True,
    ),
    "max_steps of trainer_state": Kind(
        json.dumps(
            {
                "global_step": 40,
                "max_steps": 40,
                "log_history": [
                    {"loss": x, "step": s, "learning_rate": r, "epoch": s / 40} for s, x, r in ROWS
                ],
            }
        ),
        plan=40,
        has_rate=True,
        name="trainer_state.json",
    ),
    "object of lists, losses and steps": Kind(
        json.dumps({"losses": LOSSES, "steps": [*STEPS]}), name="run.json"
    ),
    "object of lists below a name": Kind(
        json.dumps({"history": {"loss": LOSSES, "step": [*STEPS], "lr": RATES}, "seed": 3}),
        has_rate=True,
        name="run.json",
    ),
    "object of lists, others of other lengths": Kind(
        json.dumps(
            {"train_loss": LOSSES, "steps": [*STEPS], "val_loss": LOSSES[::10], "args": ["-x"]}
        ),
        name="run.json",
    ),
    "objects below a name": Kind(
        json.dumps({"name": "a", "logs": [{"iter": s, "loss": x, "lr": r} for s, x, r in ROWS]}),
        has_rate=True,
        name="run.json",
    ),
    "objects two names deep": Kind(
        json.dumps({"run": {"history": [{"_step": s, "train": {"loss": x}} for s, x, _ in ROWS]}}),
        name="run.json",
    ),
    "pairs by name": Kind(
        json.dumps(
            {"train/loss": [[s, x] for s, x, _ in ROWS], "lr": [[s, r] for s, _, r in ROWS]}
        ),
        has_rate=True,
        name="run.json",
    ),
    "objects of step and value by name": Kind(
        json.dumps(
            {
                "train": {"loss": [{"step": s, "value": x} for s, x, _ in ROWS]},
                "lr": [{"step": s, "value": r} for s, _, r in ROWS],
            }
        ),
        has_rate=True,
        name="run.json",
    ),
    "numbers by step below a name": Kind(json.dumps({"train_loss": NAMED}), name="run.json"),
    "numbers by step": Kind(json.dumps(NAMED), name="loss.json"),
    "objects by step": Kind(
        json.dumps({str(s): {"loss": x, "lr": r} for s, x, r in ROWS}),
        has_rate=True,
        name="run.json",
    ),
    "steps and values of one metric": Kind(
        json.dumps({"loss": {"steps": [*STEPS], "values": LOSSES}}), name="run.json"
    ),
    "MLflow's REST history": Kind(
        json.dumps(
            {
                "metrics": [
                    {"key": "train_loss", "value": x, "timestamp": 1700000000000 + s, "step": s}
                    for s, x, _ in ROWS
                ]
            }
        ),
        name="run.json",
    ),
    "a split frame of pandas": Kind(
        json.dumps(
            {
                "columns": ["step", "loss"],
                "index": [*range(40)],
                "data": [[s, x] for s, x, _ in ROWS],
            }
        ),
        name="run.json",
    ),
    "a frame of pandas by column": Kind(
        json.dumps(
            {
                "step": {str(at): s for at, s in enumerate(STEPS)},
                "loss": {str(at): x for at, x in enumerate(LOSSES)},
            }
        ),
        name="run.json",
    ),
    "documents of several lines each": Kind(
        "".join(
            json.dumps({"step": s, "train": {"loss": x, "lr": r}}, indent=2) + "\n"
            for s, x, r in ROWS
        ),
        has_rate=True,
        name="run.json",
    ),
    "a list of one record a line": Kind(
        "[\n" + ",\n".join(json.dumps({"step": s, "loss": x}) for s, x, _ in ROWS) + "\n]\n",
        name="run.json",
    ),
    "JSON behind a prefix": Kind(
        lines('2026-01-01 10:00:00 INFO {{"step": {s}, "loss": {x}, "lr": {r}}}'), has_rate=True
    ),
    "Keras history": Kind(
        json.dumps({"loss": LOSSES, "val_loss": [x + 0.1 for x in LOSSES], "lr": RATES}),
        has_rate=True,
        name="history.json",
    ),
}
