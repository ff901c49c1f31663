"""The shapes of fine-tuning suites, as the sources in sources.toml print them."""

import json
import math
from collections.abc import Sequence

from tests.parity.readers.logs.breadth.bars import tqdm_bar
from tests.parity.readers.logs.breadth.numbers import STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape, digits, lines

_DATE = "2026-11-29 10:00:00"


def _llama_recipes_bar(arms: Sequence[Arm]) -> str:
    text = "Training Epoch: 1"
    states = [tqdm_bar(text, 0, STEPS)]
    for at, loss in enumerate(arms[0].losses):
        states.append(tqdm_bar(text, at + 1, STEPS))
        text = f"Training Epoch: 1/1, step {at}/{STEPS} completed (loss: {loss})"
        states.append(tqdm_bar(text, at + 1, STEPS))
    return "--> Model meta-llama/Llama-2-7b-hf\n" + "\r".join(states) + "\n"


def _llama_recipes_metrics(arms: Sequence[Arm]) -> str:
    losses, held_out = list(arms[0].losses), list(arms[0].evaluations)
    return json.dumps(
        {
            "train_step_loss": losses,
            "train_epoch_loss": [sum(losses) / STEPS],
            "train_step_perplexity": [math.exp(loss) for loss in losses],
            "train_epoch_perplexity": [math.exp(sum(losses) / STEPS)],
            "val_step_loss": held_out,
            "val_epoch_loss": [held_out[-1]],
            "val_step_perplexity": [math.exp(loss) for loss in held_out],
            "val_epoch_perplexity": [math.exp(held_out[-1])],
        }
    )


def _deepspeed_chat(arm: Arm, at: int) -> str:
    text = (
        f"Epoch: 0, Step: {at}, Rank: 0, loss = {arm.losses[at]}\n"
        "Model Parameters: 1.316 B, Latency: 0.52s, TFLOPs: 81.23, Samples/sec: 15.40, Time/seq "
        "0.06s, Batch Size: 8, Sequence Length: 512\n"
    )
    if at == STEPS - 1:
        text += (
            "***** Evaluating perplexity, Epoch 1/1 *****\n"
            f"ppl: {math.exp(arm.evaluations[-1])}, loss: {arm.evaluations[-1]}\n"
            "saving the final model ...\n"
        )
    return text


def _open_instruct(arm: Arm, at: int) -> str:
    return (
        f"11/29/2026 10:00:00 - INFO - __main__ -   Step: {at + 1}, LR: {arm.rates[at]}, Loss: "
        f"{arm.losses[at]}, TPS: 12345.678\n"
    )


def _verl(arm: Arm, at: int) -> str:
    text = f"step:{at + 1} - train/loss:{arm.losses[at]:.3f} - "
    text += f"train/lr(1e-3):{1e3 * arm.rates[at]:.3f}\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += f"step:{at + 1} - val/loss:{held_out:.3f}\n"
    return text


def _openrlhf(arms: Sequence[Arm]) -> str:
    text, mean = "", 0.0
    for at, loss in enumerate(arms[0].losses):
        mean = 0.9 * mean + 0.1 * loss
        postfix = {"gpt_loss": f"{loss:.3g}", "loss_mean": f"{mean:.3g}"}
        text += tqdm_bar("Train step of epoch 0", at + 1, STEPS, postfix) + "\r"
        if (held_out := arms[0].evaluation(at)) is not None:
            for number in range(1, 5):
                shown = {"eval gpt_loss": f"{held_out:.3g}"}
                text += tqdm_bar(f"Eval stage of steps {at + 1}", number, 4, shown) + "\r"
            text += "\n"
    return text + "\n"


def _llama_factory(arm: Arm, at: int) -> str:
    step = at + 1
    ends = {
        "epoch": round(step / STEPS, 2),
        "percentage": round(100 * step / STEPS, 2),
        "elapsed_time": "0:00:10",
        "remaining_time": "0:06:30",
    }
    begins = {"current_steps": step, "total_steps": STEPS}
    text = json.dumps({**begins, "loss": arm.losses[at], "lr": arm.rates[at], **ends}) + "\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += json.dumps({**begins, "eval_loss": held_out, **ends}) + "\n"
    return text


def _torchtune_bar(arms: Sequence[Arm]) -> str:
    text = ""
    states = [tqdm_bar(text, 0, STEPS)]
    for at, loss in enumerate(arms[0].losses):
        states.append(tqdm_bar(text, at + 1, STEPS))
        text = f"1|{at + 1}|Loss: {loss}"
        states.append(tqdm_bar(text, at + 1, STEPS))
    return "\r".join(states) + "\n"


def _mistral_log(arm: Arm, at: int) -> str:
    head, step = f"{_DATE} (UTC) - 0:00:10 -", at + 1
    text = (
        f"{head} train - INFO - step: {step:06d} - done (%): {100 * step / STEPS:3.1f} - loss: "
        f"{arm.losses[at]:.3f} - lr: {arm.rates[at]:.1e} - peak_alloc_mem (GB): 12.3 - alloc_mem "
        "(GB): 10.1 - words_per_second: 1234.5 - avg_words_per_second: 1200.1 - ETA: "
        ">2026-11-29 11:00:00\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        text += (
            f"{head} eval - INFO - step: {step:06d} - eval_perplexity: {math.exp(held_out):.3f} - "
            f"eval_loss: {held_out:.3f} - train_loss: {arm.losses[at]:.3f}\n"
        )
    return text


def _mistral_metrics(arm: Arm, at: int) -> str:
    row = {
        "lr": arm.rates[at],
        "step": at + 1,
        "loss": arm.losses[at],
        "percent_done": 100 * (at + 1) / STEPS,
        "peak_allocated_mem": 12.34,
        "allocated_mem": 10.12,
        "wps": 1234.5,
        "avg_wps": 1200.1,
        "eta_in_seconds": 390.5,
        "at": "2026-11-29T10:00:00.123456",
    }
    return json.dumps(row) + "\n"


def _prime_rl(arm: Arm, at: int) -> str:
    return (
        f"\x1b[32m10:00:00\x1b[0m \x1b[32m\x1b[1mSUCCESS\x1b[0m \x1b[32m\x1b[1mStep {at} | Time: "
        f"1.23s | Loss: {arm.losses[at]:.4f} | Grad. Norm: 1.2500 | LR: {arm.rates[at]:.2e} | "
        "Throughput: 12345 tokens/s | MFU: 41.2% | Peak Mem.: 40.2/79.1 GiB (50.8%)\x1b[0m\n"
    )


def _automodel(arm: Arm, at: int) -> str:
    head = f"{_DATE} | INFO | root | "
    text = (
        f"{head}step {at} | epoch 0 | loss {arm.losses[at]:.4f} | grad_norm {1.25:.4f} | lr "
        f"{arm.rates[at]:.2e} | mem {40.25:.2f} GiB | time {0.12:.2f}s\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        text += (
            f"{head}[val] step {at} | epoch 0 | loss {held_out:.4f} | lr {arm.rates[at]:.2e} | "
            "num_label_tokens 12345\n"
        )
    return text


def _xtuner(arm: Arm, at: int) -> str:
    step, loss = at + 1, f"{arm.losses[at]:.8f}"
    return (
        f"[XTuner][RANK 0][{_DATE}][INFO] Epoch 1 Step {step}/{STEPS} data_time: 0.0012 lr: "
        f"{arm.rates[at]:.6e} time: 0.1234 text_tokens: 4096.0 total_consumed_tokens: "
        f"{4096 * step} total_loss: {loss}, reduced_llm_loss: {loss} grad_norm: 1.25000000 "
        "max_memory: 40.25 GB reserved_memory: 50.12 GB tgs: 12345.6 e2e_tgs: 12000.1 \n"
    )


FINE_TUNING_SHAPES = {
    "llama-recipes bar": Shape(_llama_recipes_bar, first=0),
    "llama-recipes metrics file": Shape(_llama_recipes_metrics, "metrics_data_0.json"),
    "DeepSpeed-Chat": Shape(lines(_deepspeed_chat), first=0),
    "open-instruct": Shape(lines(_open_instruct), rate=float),
    "verl SFT": Shape(lines(_verl), loss=digits(".3f")),
    "OpenRLHF SFT": Shape(_openrlhf, loss=digits(".3g")),
    "LLaMA-Factory": Shape(lines(_llama_factory), "trainer_log.jsonl", rate=float),
    "torchtune bar": Shape(_torchtune_bar),
    "mistral-finetune log": Shape(lines(_mistral_log), loss=digits(".3f"), rate=digits(".1e")),
    "mistral-finetune metrics file": Shape(
        lines(_mistral_metrics), "metrics.train.jsonl", rate=float
    ),
    "prime-rl SFT": Shape(lines(_prime_rl), first=0, loss=digits(".4f"), rate=digits(".2e")),
    "NeMo Automodel": Shape(lines(_automodel), first=0, loss=digits(".4f"), rate=digits(".2e")),
    "XTuner v1": Shape(lines(_xtuner), loss=digits(".8f"), rate=digits(".6e")),
}
