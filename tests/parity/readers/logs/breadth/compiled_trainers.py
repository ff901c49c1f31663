"""The shapes of trainers in TensorFlow, C++ and scikit-learn, as the sources in sources.toml print
them.
"""

import math
import pprint
from collections.abc import Sequence

from tests.parity.readers.logs.breadth.numbers import PER_EPOCH, STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape, digits, lines

_DATE = "2026-11-29 10:00:00"


def _logging_hook(arm: Arm, at: int) -> str:
    seconds = " (0.123 sec)" if at else ""
    text = f"INFO:tensorflow:loss = {arm.losses[at]:.8g}, step = {at}{seconds}\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += (
            f"INFO:tensorflow:Saving checkpoints for {at + 1} into /tmp/model/model.ckpt.\n"
            f"INFO:tensorflow:Saving dict for global step {at + 1}: global_step = {at + 1}, loss = "
            f"{held_out}\n"
        )
    return text


def _output(record: dict[str, float]) -> str:
    formatted = pprint.pformat(record).splitlines()
    if len(formatted) == 1:
        return formatted[0]
    return "\n" + "\n".join(f"    {line}" for line in formatted)


def _orbit(arm: Arm, at: int) -> str:
    step = at + 1
    record = {"learning_rate": arm.rates[at], "training_loss": arm.losses[at]}
    text = f"train | step: {step: 6d} | steps/sec: {12.3: 6.1f} | output: {_output(record)}\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += (
            f" eval | step: {step: 6d} | running 20 steps of evaluation...\n"
            f" eval | step: {step: 6d} | steps/sec: {12.3: 6.1f} | eval time: {1.2: 6.1f} sec | "
            f"output: {_output({'validation_loss': held_out})}\n"
        )
    return text


def _caffe(arm: Arm, at: int) -> str:
    head, loss = "I1129 10:00:00.123456 12345 ", f"{arm.losses[at]:.6g}"
    text = (
        f"{head}solver.cpp:239] Iteration {at} (1.2345 iter/s, 0.81s/1 iters), loss = {loss}\n"
        f"{head}solver.cpp:258]     Train net output #0: loss = {loss} (* 1 = {loss} loss)\n"
        f"{head}sgd_solver.cpp:112] Iteration {at}, lr = {arm.rates[at]:.6g}\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        test = f"{held_out:.6g}"
        text += (
            f"{head}solver.cpp:347] Iteration {at + 1}, Testing net (#0)\n"
            f"{head}solver.cpp:414]     Test net output #0: accuracy = 0.301\n"
            f"{head}solver.cpp:414]     Test net output #1: loss = {test} (* 1 = {test} loss)\n"
        )
    return text


def _marian(arm: Arm, at: int) -> str:
    step = at + 1
    text = (
        f"[{_DATE}] Ep. 1 : Up. {step} : Sen. {640 * step:,} : Cost {arm.losses[at]:.8f} * 8,192 @ "
        f"1,024 after {8192 * step:,} : Time 12.34s : 6640.00 words/s : gNorm 1.2345 : L.r. "
        f"{arm.rates[at]:.4e}\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        text += f"[{_DATE}] [valid] Ep. 1 : Up. {step} : cross-entropy : {held_out} : new best\n"
    return text


def _llama_cpp(arm: Arm, at: int) -> str:
    step = at + 1
    return (
        f"train_opt_callback: iter={step:6d} sample={8 * step + 1}/3208 sched={1.0:f} "
        f"loss={arm.losses[at]:f} dt=00:00:01 eta=00:06:40 |----->\n"
    )


def _ggml_opt(arms: Sequence[Arm]) -> str:
    text = ""
    for epoch in range(STEPS // PER_EPOCH):
        losses = arms[0].losses[epoch * PER_EPOCH : (epoch + 1) * PER_EPOCH]
        text += f"ggml_opt_fit: epoch {epoch + 1:04d}/0004:\n"
        for batch in range(1, PER_EPOCH + 1):
            mean = sum(losses[:batch]) / batch
            text += (
                f"train: [{'█' * (8 * batch // PER_EPOCH):<8}] data={16 * batch:07d}/"
                f"{16 * PER_EPOCH:07d} loss={mean:.5f}±{0.0123:.5f} acc=30.10±0.20% t=00:00:10 "
                "ETA=00:00:30 \r"
            )
        text += "\n\n"
    return text


def _gpt2_simple(arm: Arm, at: int) -> str:
    weights = [0.99 ** (at - k) for k in range(at + 1)]
    mean = sum(w * loss for w, loss in zip(weights, arm.losses, strict=False)) / sum(weights)
    return f"[{at + 1} | {12.5 + at:2.2f}] loss={arm.losses[at]:2.2f} avg={mean:2.2f}\n"


def _mxnet(arm: Arm, at: int) -> str:
    epoch, batch = divmod(at, PER_EPOCH)
    text = (
        f"INFO:root:Epoch[{epoch}] Batch [{batch}]\tSpeed: {1234.56:.2f} samples/sec\t"
        f"cross-entropy={arm.losses[at]:f}\n"
    )
    if batch == PER_EPOCH - 1 and (held_out := arm.evaluation(at)) is not None:
        text += (
            f"INFO:root:Epoch[{epoch}] Train-cross-entropy={arm.losses[at]:f}\n"
            f"INFO:root:Epoch[{epoch}] Time cost=12.345\n"
            f"INFO:root:Epoch[{epoch}] Validation-cross-entropy={held_out:f}\n"
        )
    return text


def _flashlight_speech(arm: Arm, at: int) -> str:
    held_out = arm.evaluations[max(0, (at + 1) // 50 - 1)]
    items = {
        "epoch": f"{1:8d}",
        "nupdates": f"{at + 1:12d}",
        "lr": f"{arm.rates[at]:4.6f}",
        "lrcriterion": f"{0.0:4.6f}",
        "scale-factor": f"{1.0:4.6f}",
        "runtime": "00:00:10",
        "bch(ms)": "123.45",
        "smp(ms)": "1.23",
        "fwd(ms)": "45.67",
        "crit-fwd(ms)": "3.21",
        "bwd(ms)": "67.89",
        "optim(ms)": "5.43",
        "loss": f"{arm.losses[at]:10.5f}",
        "train-TER": "30.10",
        "train-WER": "60.20",
        "dev-loss": f"{held_out:10.5f}",
        "dev-TER": "31.20",
        "dev-WER": "61.30",
        "avg-isz": "1234",
        "avg-tsz": "056",
        "max-tsz": "123",
        "avr-batchsz": "   8.00",
        "hrs": "   1.23",
        "thrpt(sec/sec)": "123.45",
        "timestamp": _DATE,
    }
    return " | ".join(f"{key}: {value}" for key, value in items.items()) + "\n"


def _flashlight_lm(arm: Arm, at: int) -> str:
    loss, held_out = arm.losses[at], arm.evaluations[max(0, (at + 1) // 50 - 1)]
    return (
        f"I1129 10:00:00.123456 12345 Trainer.cpp:139] [epoch=1 batch={at + 1}/4000] | Run Time: "
        "00:00:10 | Batch Time(ms): 123.45 | Sample Time(ms): 1.23 | Forward Time(ms): 45.67 | "
        "Criterion Forward Time(ms): 3.21 | Backward Time(ms): 67.89 | Optimization Time(ms): 5.43 "
        f"| Throughput (Token/Sec): 12345.67 | Learning Rate {arm.rates[at]:.6f} | Scale factor "
        f"0.000000 | Loss: {loss:.2f} PPL: {math.exp(loss):.2f} | Valid Loss: {held_out:.2f} Valid "
        f"PPL: {math.exp(held_out):.2f}\n"
    )


def _mlp(arm: Arm, at: int) -> str:
    text = f"Iteration {at + 1}, loss = {arm.losses[at]:.8f}\n"
    return text + (f"Validation score: {0.301:f}\n" if arm.evaluation(at) is not None else "")


COMPILED_SHAPES = {
    "TF LoggingTensorHook": Shape(lines(_logging_hook), first=0, loss=digits(".8g")),
    "Orbit": Shape(lines(_orbit), rate=float),
    "Caffe solver": Shape(lines(_caffe), first=0, loss=digits(".6g"), rate=digits(".6g")),
    "Marian": Shape(lines(_marian), loss=digits(".8f"), rate=digits(".4e")),
    "llama.cpp train": Shape(lines(_llama_cpp), loss=digits("f")),
    "ggml-opt progress bar": Shape(_ggml_opt),
    "gpt-2-simple": Shape(lines(_gpt2_simple), loss=digits(".2f")),
    "MXNet Speedometer": Shape(lines(_mxnet), first=0, loss=digits("f")),
    "flashlight speech": Shape(lines(_flashlight_speech), loss=digits(".5f"), rate=digits(".6f")),
    "flashlight LM": Shape(lines(_flashlight_lm), loss=digits(".2f"), rate=digits(".6f")),
    "scikit-learn MLP": Shape(lines(_mlp), loss=digits(".8f")),
}
