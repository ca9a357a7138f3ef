"""LoRA here is peft's: the same losses as peft driven by hand, and the same weights once merged."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peft import LoraConfig, TaskType, get_peft_model
from peft.tuners.lora import LoraLayer

from frostline import tasks
from frostline.errors import MissingExtraError
from frostline.kinds import CLASSIFICATION
from frostline.model.added.adapters import merge_lora
from frostline.model.load import describe
from frostline.records.specs import RunSpec
from frostline.strategies import Lora
from frostline.testing.models import Family, make_model, make_spec, make_stack, make_task
from frostline.training.batches import training_batches
from frostline.training.loop import loss_of
from frostline.training.prepare import load_stack, seed_for
from frostline.training.run import Runner

TARGETS: dict[Family, list[str]] = {"bert": ["query", "value"], "llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"]}


def _by_hand(spec: RunSpec, targets: list[str], rank: int, *, alpha: int, is_turned: bool) -> NDArray[np.float64]:
    """The mean loss of each epoch: peft's own model, a plain loop of torch's own AdamW."""
    runner = Runner(max_cache_bytes=0)
    prepared = runner.preparer.prepare(spec)
    begun, _ = runner.begin(spec)
    started = {n: p.detach().clone() for n, p in begun.model.named_parameters() if "lora_" in n}
    plain = load_stack(spec, prepared).model
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS, r=rank, lora_alpha=alpha, target_modules=targets, fan_in_fan_out=is_turned
    )
    model = get_peft_model(plain, config)
    head = [name for name, _ in plain.named_parameters() if _is_head(name)]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            inner = name.removeprefix("base_model.model.")
            if inner in started:
                parameter.copy_(started[inner])
            if _is_head(name) or inner in head:
                parameter.requires_grad_(True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=spec.learning_rate, weight_decay=0.0)
    batches = math.ceil(len(prepared.train) / spec.batch_size)
    n_steps, done = spec.epochs * batches, 0
    means = []
    model.train()
    for epoch in range(1, spec.epochs + 1):
        losses = []
        for batch in training_batches(
            prepared.train.encoded, spec.batch_size, seed=seed_for(spec, "order"), epoch=epoch
        ):
            loss = loss_of(CLASSIFICATION)(model(**batch.padded_inputs()).logits, batch.labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, spec.clip_norm)
            for group in optimizer.param_groups:
                group["lr"] = spec.learning_rate * _share(done, n_steps)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            losses.append((float(loss.detach()), len(batch.positions)))
        means.append(sum(loss * n for loss, n in losses) / sum(n for _, n in losses))
    return np.array(means)


def _is_head(name: str) -> bool:
    return any(part in name for part in ("classifier", "pooler", "score", "ln_f", "model.norm."))


def _share(step: int, n_steps: int) -> float:
    n_warmup = math.ceil(0.1 * n_steps)
    return step / n_warmup if step < n_warmup else (n_steps - step) / max(1, n_steps - n_warmup)


@pytest.mark.parametrize("family", list(TARGETS))
def test_the_same_losses_as_peft_by_hand(family: Family, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", family, n_layers=3, dropout=0.0)
    task = make_task(tmp_path / "task.csv", n_rows=64)
    spec = make_spec(model, task, strategy="lora:2", learning_rate=5e-3, epochs=3)
    ours = np.array([epoch.train_loss for epoch in Runner(max_cache_bytes=0).run(spec).epochs])
    theirs = _by_hand(spec, TARGETS[family], 2, alpha=4, is_turned=family == "gpt2")
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.ptp(ours) > 1e-2, "they learn something"
    other = _by_hand(spec, TARGETS[family], 2, alpha=8, is_turned=family == "gpt2")
    assert np.abs(ours - other).max() > 1e-4, "twin: another scale is another training"


def _without_dropout(folder: Path) -> str:
    """The demo's model in a folder where its configuration asks for no dropout."""
    for path in tasks.demo_model_folder().iterdir():
        (folder / path.name).symlink_to(path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | rates))
    return str(folder)


@pytest.mark.real
@pytest.mark.thorough
def test_the_same_losses_on_real_weights(tmp_path: Path) -> None:
    name = _without_dropout(tmp_path)
    task = tasks.resolve(tasks.parse("rotten-tomatoes", max_train=32, max_dev=16))
    spec = RunSpec(
        model=name, model_fingerprint=describe(name).fingerprint, task=task, strategy="lora:8",
        data_fingerprint=tasks.load(task).fingerprint, learning_rate=1e-3, epochs=2, max_length=32, seed=0,
        is_cached=False,
    )  # fmt: skip
    ours = np.array([epoch.train_loss for epoch in Runner(max_cache_bytes=0).run(spec).epochs])
    theirs = _by_hand(spec, ["query", "value"], 8, alpha=16, is_turned=False)
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.ptp(ours) > 1e-3


def test_merged_it_is_a_model_of_its_own_class() -> None:
    stack = make_stack("bert", n_layers=3)
    names, before = stack.all_parameters, stack.digest(())
    Lora(2).add_modules(stack)
    assert stack.all_parameters != names
    with torch.no_grad():
        for name, parameter in stack.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.5)
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 7, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.int64)}
    stack.eval()
    with torch.no_grad():
        apart = stack.logits(inputs)
        merge_lora(stack)
        merged = stack.logits(inputs)
    assert stack.all_parameters == names
    assert not any(isinstance(module, LoraLayer) for module in stack.model.modules())
    assert stack.digest(()) != before, "the updates are in the weights"
    assert torch.allclose(apart, merged, atol=1e-4)


def test_without_peft_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"peft, which lora needs, is not installed; run: pip install .*lora"):
        Lora(2).plan(make_stack("bert", n_layers=2))
