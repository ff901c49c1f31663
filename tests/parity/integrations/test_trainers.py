"""The callbacks' own rules, with stand-ins for the trainers' base classes; `make test-integrations`
has the real ones.
"""

import importlib
import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

ARGUMENTS = {
    "logging_strategy": "steps",
    "logging_nan_inf_filter": False,
    "label_smoothing_factor": 0.0,
    "output_dir": "out/fp8",
}


@pytest.fixture
def load(monkeypatch):
    """A function that imports a module of callbacks where the trainer's package has only the base
    class.
    """

    def load_with(module, package, base):
        for name in (
            *(".".join(package.split(".")[: end + 1]) for end in range(package.count("."))),
            package,
        ):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        setattr(sys.modules[package], base, type(base, (), {}))
        monkeypatch.delitem(sys.modules, module, raising=False)
        loaded = importlib.import_module(module)
        monkeypatch.delitem(sys.modules, module)
        return loaded

    return load_with


@pytest.fixture
def huggingface(load):
    return load("parity.integrations.huggingface", "transformers", "TrainerCallback")


@pytest.fixture
def lightning(load):
    return load("parity.integrations.lightning", "lightning.pytorch", "Callback")


def _state(step=0, logging_steps=1):
    return SimpleNamespace(global_step=step, logging_steps=logging_steps)


def test_huggingface_records_steps_and_evaluations_apart(huggingface, spools):
    callback, arguments = huggingface.ParityCallback(), SimpleNamespace(**ARGUMENTS)
    control = SimpleNamespace(should_save=False)
    callback.on_log(arguments, _state(), control, logs={"loss": 9.0})  # of no training
    callback.on_train_begin(arguments, _state(), None, model=None)
    callback.on_log(
        arguments,
        _state(1),
        control,
        logs={"loss": 3.0, "grad_norm": 0.5, "learning_rate": 1e-3, "epoch": 0.1},
    )
    callback.on_log(arguments, _state(1), control, logs={"eval_loss": 2.5, "eval_runtime": 1.0})
    callback.on_evaluate(
        arguments, _state(1), None, metrics={"eval_loss": 2.5, "eval_runtime": 1.0}
    )
    assert len(spools()[0]) == 2, "on disk before the checkpoint"
    control.should_save = True
    callback.on_log(arguments, _state(2), control, logs={"loss": math.nan})
    assert len(spools()[0]) == 3, "on disk before the checkpoint"
    callback.on_log(arguments, _state(2), control, logs={"train_loss": 3.0})
    callback.on_train_end(arguments, _state(2), None)
    ((first, validated, last, end),) = spools()
    assert first == {"loss": 3.0, "grad_norm": 0.5, "learning_rate": 1e-3, "step": 1}
    assert validated == {"validation_loss": 2.5, "step": 1}
    assert last["step"] == 2
    assert math.isnan(last["loss"])
    assert end["end"] == "finished"


def test_huggingface_names_a_run_by_its_output_folder(huggingface, tmp_path):
    names = [huggingface._name(tmp_path / folder / "out put") for folder in ("fp8", "nvfp4", "fp8")]
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("out-put-")


@pytest.mark.parametrize(
    ("changes", "logging_steps", "config", "setting"),
    [
        ({}, 10, None, "logging_steps=1"),
        ({"logging_strategy": "epoch"}, 1, None, "logging_strategy='steps'"),
        ({"logging_strategy": SimpleNamespace(value="no")}, 1, None, "logging_strategy='steps'"),
        ({"logging_nan_inf_filter": True}, 1, None, "logging_nan_inf_filter=False"),
        ({"label_smoothing_factor": 0.1}, 1, None, "label_smoothing_factor is 0.1"),
        ({}, 1, SimpleNamespace(output_router_logits=True), "output_router_logits is True"),
    ],
)
def test_huggingface_refuses_arguments_that_hide_losses(
    huggingface, spools, changes, logging_steps, config, setting
):
    arguments = SimpleNamespace(**ARGUMENTS | changes)
    with pytest.raises(huggingface.NotTheLossError, match=setting):
        huggingface.ParityCallback().on_train_begin(
            arguments, _state(0, logging_steps), None, model=SimpleNamespace(config=config)
        )
    assert not spools()


class _Tensor(np.ndarray):
    def detach(self):
        return self

    def float(self):
        return self


class _Trainer(SimpleNamespace):
    def __init__(self, accumulation):
        # as if another rank had more
        strategy = SimpleNamespace(reduce=lambda value, **_: value + 100)
        super().__init__(
            global_step=4,
            accumulate_grad_batches=accumulation,
            strategy=strategy,
            callback_metrics={},
            sanity_checking=False,
        )

    def train(self, callback, losses, *, steps):
        optimizer = SimpleNamespace(param_groups=[{"lr": 1e-3}])
        for number, loss in enumerate(losses):
            if steps and number == len(losses) - 1:
                callback.on_before_optimizer_step(self, None, optimizer)
                self.global_step += 1
            output = (
                None
                if loss is None
                else {"loss": np.array(loss / self.accumulate_grad_batches).view(_Tensor)}
            )
            callback.on_train_batch_end(self, None, output, None, number)


def test_lightning_records_the_mean_of_micro_batches_and_ranks(lightning, spools):
    callback, trainer = lightning.ParityCallback(name="fp8"), _Trainer(4)
    callback.on_validation_end(trainer, None)
    callback.on_train_start(trainer, SimpleNamespace(automatic_optimization=True))
    trainer.train(callback, [1.0, 2.0, 3.0, 6.0], steps=True)
    trainer.train(callback, [1.0, 2.0], steps=True)  # the last step of an epoch has fewer
    trainer.callback_metrics = {"val_loss": 2.5}
    callback.on_validation_end(trainer, None)
    assert len(spools("unnamed-fp8")[0]) == 3, (
        "on disk: the checkpoint of this step can be there already"
    )
    callback.on_save_checkpoint(trainer, None, {})
    trainer.train(callback, [None, None], steps=True)
    trainer.train(callback, [math.nan, 1.0], steps=True)
    callback.on_train_end(trainer, None)
    (rows,) = spools("unnamed-fp8")
    assert rows[0] == {"loss": 103.0, "learning_rate": 1e-3, "step": 4}
    assert (rows[1]["step"], rows[1]["loss"]) == (5, 101.5)
    assert rows[2] == {"validation_loss": 2.5, "step": 5}
    assert rows[3]["step"] == 7
    assert math.isnan(rows[3]["loss"])
    assert len(rows) == 5


def test_lightning_refuses_manual_optimization(lightning):
    with pytest.raises(lightning.ManualOptimizationError):
        lightning.ParityCallback().on_train_start(
            _Trainer(1), SimpleNamespace(automatic_optimization=False)
        )


@pytest.mark.parametrize("trainer", ["huggingface", "lightning"])
def test_a_missing_package_is_named_with_the_remedy(monkeypatch, trainer):
    for name in ("transformers", "lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"parity.integrations.{trainer}", raising=False)
    with pytest.raises(ImportError, match=r"pip install (transformers|lightning)"):
        importlib.import_module(f"parity.integrations.{trainer}")
