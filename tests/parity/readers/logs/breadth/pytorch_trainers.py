"""The shapes of trainers in PyTorch and Chainer, as the sources in sources.toml print them."""

import json
import math
from collections.abc import Sequence

from tests.parity.readers.logs.breadth.numbers import PER_EPOCH, STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape, digits, lines

_DATE = "2026-11-29 10:00:00"
_WINDOW = 20


def _llama2c(arm: Arm, at: int) -> str:
    text = ""
    if at and (held_out := arm.evaluation(at - 1)) is not None:
        text = f"step {at}: train loss {held_out - 0.1:.4f}, val loss {held_out:.4f}\n"
    return (
        text + f"{at} | loss {arm.losses[at]:.4f} | lr {arm.rates[at]:e} | 123.45ms | mfu 12.34%\n"
    )


def _mingpt(arm: Arm, at: int) -> str:
    text = (
        f"iter_dt {0.0 if at == 0 else 12.34:.2f}ms; iter {at}: train loss {arm.losses[at]:.5f}\n"
    )
    return text + ("O God, O God! the loss of 3 men\nsaving model\n" if at % 100 == 0 else "")


def _transformer_xl(arm: Arm, at: int) -> str:
    loss, step = arm.losses[at], at + 1
    text = (
        f"| epoch {1:3d} step {step:>8d} | {step:>6d} batches | lr {arm.rates[at]:.3g} "
        f"| ms/batch {123.45:5.2f} | loss {loss:5.2f} | ppl {math.exp(loss):9.3f}\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        rule = "-" * 100
        text += (
            f"{rule}\n| Eval {step // 50:3d} at step {step:>8d} | time: {12.3:5.2f}s "
            f"| valid loss {held_out:5.2f} | valid ppl {math.exp(held_out):9.3f}\n{rule}\n"
        )
    return text


def _fairseq(arm: Arm, at: int) -> str:
    bits, step = arm.losses[at] / math.log(2), at + 1
    loss = f"{bits:.3f}"
    text = (
        f"{_DATE} | INFO | train_inner | epoch 001:  {step:5d} / {STEPS:d} loss={loss}, "
        f"nll_loss={loss}, ppl={round(2 ** float(loss), 2):g}, wps=12345.6, ups=1.23, wpb=8192, "
        f"bsz=16, num_updates={step}, lr={arm.rates[at]:g}, gnorm=1.234, loss_scale=128, "
        f"train_wall=1, wall={step}\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        valid = held_out / math.log(2)
        text += (
            f"{_DATE} | INFO | valid | epoch 001 | valid on 'valid' subset | loss {valid:.3f} | "
            f"nll_loss {valid:.3f} | ppl {2**valid:.2f} | wps 23456.7 | wpb 8192 | bsz 16 | "
            f"num_updates {step}\n"
        )
    return text


def _fairseq_loss(loss: float) -> float:
    return float(f"{loss / math.log(2):.3f}")


def _lingua_log(arm: Arm, at: int) -> str:
    return (
        f"0: INFO    26-11-29 10:00:00.123456 - 0:00:10 - step: {at + 1}  acc: 0  "
        f"loss: {round(arm.losses[at], 4):>7}  grad: {1.25:.2e}  flops: {4.1e14:.2e}  "
        f"wps: {1.2e4:.2e}  iter: {0.1234:>7}  data: {0.0012:>5}  lr: {arm.rates[at]:.2e}  "
        f"mem: {50:.0f}%  pow: {412.5} W\n"
    )


def _lingua_metrics(arm: Arm, at: int) -> str:
    row = {
        "global_step": at + 1,
        "acc_step": 0,
        "speed/wps": 12345.6,
        "speed/FLOPS": 4.1e14,
        "speed/curr_iter_time": 0.1234,
        "speed/data_load_time": 0.0012,
        "optim/grad_norm": 1.25,
        "optim/lr": arm.rates[at],
        "optim/total_tokens": 8192 * (at + 1),
        "memory/max_active_gib": 40.25,
        "loss/out": arm.losses[at],
        "created_at": "2026-11-29T10:00:00.123456+00:00",
    }
    return json.dumps(row) + "\n"


def _means(arm: Arm, at: int) -> tuple[float, float]:
    """The median of the last steps, and the mean since the epoch's begin."""
    of_epoch = arm.losses[at - at % PER_EPOCH : at + 1]
    last = sorted(of_epoch[-_WINDOW:])
    return last[(len(last) - 1) // 2], sum(of_epoch) / len(of_epoch)


def _deit(arm: Arm, at: int) -> str:
    epoch, batch = divmod(at, PER_EPOCH)
    median, mean = _means(arm, at)
    text = (
        f"Epoch: [{epoch}]  [{batch:3d}/{PER_EPOCH}]  eta: 0:01:00  lr: {arm.rates[at]:.6f}  "
        f"loss: {median:.4f} ({mean:.4f})  time: 0.1234  data: 0.0012  max mem: 12345\n"
    )
    if batch == PER_EPOCH - 1 and (held_out := arm.evaluation(at)) is not None:
        text += (
            f"Epoch: [{epoch}] Total time: 0:00:12 (0.1234 s / it)\n"
            f"Test:  [ 0/10]  eta: 0:00:01  loss: {held_out:.4f} ({held_out:.4f})  acc1: 30.1 "
            f"(30.1)  time: 0.1234  data: 0.0012  max mem: 12345\n"
            f"* Acc@1 30.100 Acc@5 60.200 loss {held_out:.3f}\n"
        )
    return text


def _imagenet(arm: Arm, at: int) -> str:
    epoch, batch = divmod(at, PER_EPOCH)
    _, mean = _means(arm, at)
    text = (
        f"Epoch: [{epoch}][{batch}/{PER_EPOCH}]\tTime {0.123:.3f} ({0.13:.3f})\t"
        f"Data {0.001:.3f} ({0.002:.3f})\tLoss {arm.losses[at]:.4f} ({mean:.4f})\t"
        f"Prec@1 {30.1:.3f} ({29.9:.3f})\tPrec@5 {60.2:.3f} ({59.8:.3f})\n"
    )
    if batch == PER_EPOCH - 1 and (held_out := arm.evaluation(at)) is not None:
        text += "".join(
            f"Test: [{number}/10]\tTime 0.123 (0.130)\tLoss {held_out:.4f} ({held_out:.4f})\t"
            f"Prec@1 30.100 (29.900)\tPrec@5 60.200 (59.800)\n"
            for number in range(10)
        )
        text += " * Prec@1 30.100 Prec@5 60.200\n"
    return text


def _dllogger(arms: Sequence[Arm]) -> str:
    about = {"timestamp": "1764410400.123456", "elapsedtime": "0.000123", "datetime": _DATE}
    head = {**about, "type": "LOG", "step": "PARAMETER", "data": {"SEED": [42], "warmup": 0.1}}
    texts = [json.dumps(head)]
    for at, (loss, rate) in enumerate(zip(arms[0].losses, arms[0].rates, strict=True)):
        record = {
            "timestamp": f"{1764410400.5 + at}",
            "datetime": _DATE,
            "elapsedtime": f"{0.5 + at}",
            "type": "LOG",
            "step": [0, at + 1],
            "data": {"step_loss": loss, "learning_rate": rate},
        }
        texts.append(json.dumps(record))
    return "".join(f"DLLL {text}\n" for text in texts)


def _build_nanogpt(arm: Arm, at: int) -> str:
    return (
        f"step {at:4d} | loss: {arm.losses[at]:.6f} | lr {arm.rates[at]:.4e} | norm: {1.25:.4f} | "
        f"dt: {123.45:.2f}ms | tok/sec: {12345.67:.2f}\n"
    )


def _bigscience(arm: Arm, at: int) -> str:
    step = at + 1
    text = (
        f" iteration {step:8d}/{STEPS:8d} | consumed samples: {256 * step:12d} | consumed tokens: "
        f"{524288 * step:12d} | elapsed time per iteration (s): {12.34:.2f} | learning rate: "
        f"{arm.rates[at]:.3E} | global batch size: {256:5d} | lm loss: {arm.losses[at]:.6E} | "
        f"loss scale: {1.0:.1f} | grad norm: {1.25:.3f} | num zeros: {0.0:.1f} | number of skipped "
        f"iterations: {0:3d} | number of nan iterations: {0:3d} | samples per second: {20.7:.3f} | "
        f"TFLOPs: {150.25:.2f} |\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        rule = "-" * 80
        text += (
            f"{rule}\n validation loss at iteration {step} | lm loss value: {held_out:.6E} | lm "
            f"loss PPL: {math.exp(held_out):.6E} | \n{rule}\n"
        )
    return text


def _tinyllama(arm: Arm, at: int) -> str:
    step = at + 1
    text = (
        f"iter {step} step {step}: loss {arm.losses[at]:.4f}, iter time: {123.45:.2f}ms "
        f"(optimizer.step) remaining time: {1.25:.2f} hours.  or {0.05:.2f} days. \n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        text += f"Validating ...\nstep {step}: val loss {held_out:.4f}, val time: {123.45:.2f}ms\n"
    return text


def _mmengine(arm: Arm, at: int) -> str:
    epoch, batch = at // PER_EPOCH + 1, at % PER_EPOCH + 1
    head = "11/29 10:00:00 - mmengine - INFO - "
    text = (
        f"{head}Epoch(train) {f'[{epoch}]':>4}[{batch:3d}/{PER_EPOCH}]  lr: {arm.rates[at]:.4e}  "
        f"eta: 0:01:00  time: {0.1234:.4f}  data_time: {0.0012:.4f}  memory: 12345  "
        f"grad_norm: {1.25:.4f}  loss: {arm.losses[at]:.4f}\n"
    )
    if batch == PER_EPOCH and (held_out := arm.evaluation(at)) is not None:
        text += (
            f"{head}Epoch(val) [{epoch}][10/10]    loss: {held_out:.4f}  data_time: 0.0012  "
            "time: 0.1234\n"
        )
    return text


def _timm(arm: Arm, at: int) -> str:
    epoch, batch = divmod(at, PER_EPOCH)
    _, mean = _means(arm, at)
    text = (
        f"Train: {epoch} [{batch:>4d}/{PER_EPOCH} ({100 * batch / (PER_EPOCH - 1):>3.0f}%)]  "
        f"Loss: {arm.losses[at]:#.4g} ({mean:#.3g})  Time: {0.123:.3f}s, {1234.56:>7.2f}/s  "
        f"({0.13:.3f}s, {1100.0:>7.2f}/s)  LR: {arm.rates[at]:.3e}  Data: {0.001:.3f} "
        f"({0.002:.3f})\n"
    )
    if batch == PER_EPOCH - 1 and (held_out := arm.evaluation(at)) is not None:
        text += (
            f"Test: [{10:>4d}/10]  Time: 0.123 (0.130)  Loss: {held_out:>7.4f} "
            f"({held_out:>6.4f})  Acc@1: 30.1000 (29.9000)  Acc@5: 60.2000 (59.8000)\n"
        )
    return text


def _chainer(arms: Sequence[Arm]) -> str:
    records = []
    for at, loss in enumerate(arms[0].losses):
        record = {"main/loss": loss, "epoch": 0, "iteration": at + 1, "elapsed_time": 0.25 * at}
        if (held_out := arms[0].evaluation(at)) is not None:
            record["validation/main/loss"] = held_out
        records.append(record)
    return json.dumps(records, indent=4)


PYTORCH_SHAPES = {
    "llama2.c": Shape(lines(_llama2c), first=0, loss=digits(".4f"), rate=digits("e")),
    "minGPT": Shape(lines(_mingpt), first=0, loss=digits(".5f")),
    "Transformer-XL": Shape(lines(_transformer_xl), loss=digits(".2f"), rate=digits(".3g")),
    "fairseq simple": Shape(lines(_fairseq), loss=_fairseq_loss, rate=digits("g"), unit="bits"),
    "lingua log": Shape(lines(_lingua_log), loss=lambda x: round(x, 4), rate=digits(".2e")),
    "lingua metrics file": Shape(lines(_lingua_metrics), "metrics.jsonl", rate=float),
    "DeiT MetricLogger": Shape(
        lines(_deit),
        first=0,
        loss=digits(".4f"),
        losses=lambda arm: [_means(arm, at)[0] for at in range(STEPS)],
        rate=digits(".6f"),
    ),
    "imagenet example": Shape(lines(_imagenet), first=0, loss=digits(".4f")),
    "dllogger JSON": Shape(_dllogger, "dllogger.json", rate=float),
    "build-nanogpt": Shape(lines(_build_nanogpt), first=0, loss=digits(".6f"), rate=digits(".4e")),
    "BigScience Megatron-DeepSpeed": Shape(
        lines(_bigscience), loss=digits(".6E"), rate=digits(".3E")
    ),
    "TinyLlama": Shape(lines(_tinyllama), loss=digits(".4f")),
    "mmengine by epochs": Shape(lines(_mmengine), loss=digits(".4f"), rate=digits(".4e")),
    "timm": Shape(lines(_timm), first=0, loss=digits("#.4g"), rate=digits(".3e")),
    "Chainer LogReport": Shape(_chainer, "log"),
}
