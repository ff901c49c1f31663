"""How logs count: the step of a total, in brackets, in epochs that restart it, and by bars."""

from tests.parity.readers.kinds.kind import EPOCH, LOSSES, Kind, lines

FROM_0 = tuple(range(40))
COUNTERS = {
    "Iter(train) [ 10/40]": Kind(
        lines("INFO - Iter(train) [{s:4d}/40]  lr: {r:.7f}  loss: {x:.4f}"), plan=40, has_rate=True
    ),
    "Epoch [k/4], Step [i/10]": Kind(lines("Epoch [{e}/4], Step [{i}/10], Loss: {x}"), plan=40),
    "Epoch: [k][ i/10]": Kind(lines("Epoch: [{e0}][{i0:3d}/10]\tLoss {x} ({x})"), steps=FROM_0),
    "Epoch: [k] [i/10]": Kind(
        lines("Epoch: [{e0}]  [{i0:2d}/10]  eta: 0:00:10  lr: {r:.7f}  loss: {x} ({x})"),
        has_rate=True,
        steps=FROM_0,
    ),
    "Epoch(train) [k][i/10]": Kind(
        lines("INFO - Epoch(train)  [{e}][{i:2d}/10]  lr: {r:.7f}  loss: {x}"), has_rate=True
    ),
    "epoch k | i/10 batches": Kind(
        lines("| epoch {e:3d} | {i:5d}/   10 batches | lr {r:.7f} | loss {x}"), has_rate=True
    ),
    "Epoch k/4 - Batch i/10": Kind(lines("Epoch {e}/4 - Batch {i}/10 - loss: {x}"), plan=40),
    "Step k of 40": Kind(lines("Step {s} of 40: loss = {x}, lr = {r:.7f}"), plan=40, has_rate=True),
    "[k/n]": Kind(lines("[{s}/40] loss={x}"), plan=40),
    "[   k/n]": Kind(lines("[{s:>6}/40] train loss {x}"), plan=40),
    "[0001/0040]": Kind(lines("[{s:04d}/0040] loss: {x}"), plan=40),
    "(k/n)": Kind(lines("Training ({s}/40): loss {x}"), plan=40),
    "[step k]": Kind(lines("[step {s}] loss={x}")),
    "[Iter k/n]": Kind(lines("[Iter {s:6d}/40] [loss: {x}]"), plan=40),
    "step_i": Kind(lines("I0830 programs.py:392] [STATUS] step_i: {s}, training loss: {x}")),
    "current_step, max_steps": Kind(
        lines("current_step={s} max_steps=40 loss={x} lr={r:.7f}"), plan=40, has_rate=True
    ),
    "global_step=k/n": Kind(lines("global_step={s}/40 loss={x}"), plan=40),
    "Train Epoch, samples": Kind(
        lines("Train Epoch: 0 [{samples:>6}/20480 ({percent}%)] LR: {r:.7f} Loss: {x} ({x})"),
        has_rate=True,
        steps=tuple(512 * step for step in range(1, 41)),
    ),
    "bar of training steps": Kind(
        lines(
            "Training steps: {percent:3d}%|##   | {s}/40 [6:02<3:54, 14.02s/it, step_loss={x}, "
            "lr={r:.7f}]"
        ),
        plan=40,
        has_rate=True,
    ),
    "bar of epochs": Kind(
        lines("Epoch {e0}:  10%|#   | {i}/10 [00:02<00:04,  4.02it/s, loss={x}]")
    ),
    "steps, epoch": Kind(lines("steps: {s} epoch: {e:.1f} loss: {x} lr: {r:.7f}"), has_rate=True),
    "bars below the epoch": Kind(
        "".join(
            f"Epoch {epoch}/4\n"
            + "".join(
                f"{step}/10 [=====>....] - ETA: 3s - loss: {loss}\n"
                for step, loss in enumerate(LOSSES[EPOCH * (epoch - 1) : EPOCH * epoch], 1)
            )
            for epoch in range(1, 5)
        ),
        plan=40,
    ),
}
