"""How deep models on disk agree, and what fine-tuning moved."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, PreTrainedModel, T5Config, T5Model

from commands import Finished
from families import ABOVE, BELOW, LAYERS
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.model.weight_files import EMBEDDINGS, HEAD, open_weights
from frostline.serving.share import compute_ratio, share, verify
from frostline.testing.models import Family, make_model

N_LAYERS = 4
# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "base", n_layers=N_LAYERS)


def _tuned(base: Path, folder: Path, n_frozen: int, seed: int = 0) -> Path:
    """A model with a head whose layers above `n_frozen` moved."""
    model = AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(seed)
    with torch.no_grad():
        for layer in model.bert.encoder.layer[n_frozen:]:
            for parameter in layer.parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def _edited(source: Path, folder: Path, name: str, edit: object) -> Path:
    """A copy with one tensor replaced by `edit(tensor)`."""
    tensors = load_file(source / "model.safetensors")
    tensors[name] = edit(tensors[name])  # type: ignore[operator]
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return folder


@pytest.mark.parametrize("family", LAYERS)
def test_parts_are_those_that_a_loaded_model_shows(family: Family, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "base", family)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    model.save_pretrained(tmp_path / "tuned")
    found = open_weights(str(tmp_path / "tuned"))
    assert (found.layers_name, found.n_layers) == (LAYERS[family], 2)
    by_part = {part: {n for n in found.tensors if found.part_of(n) == part} for part in (EMBEDDINGS, HEAD)}
    assert by_part == {EMBEDDINGS: BELOW[family], HEAD: ABOVE[family]}
    assert verify(str(folder), str(tmp_path / "tuned")).shared_layers == 2, "nothing but the head is new"


@pytest.mark.parametrize("n_frozen", range(N_LAYERS + 1))
def test_verify_finds_the_depth(base: Path, tmp_path: Path, n_frozen: int) -> None:
    found = verify(str(base), str(_tuned(base, tmp_path / "tuned", n_frozen)))
    assert (found.n_layers, found.shared_layers) == (N_LAYERS, n_frozen)
    moved = {part.part: part.n_changed > 0 for part in found.parts}
    assert moved == {EMBEDDINGS: False, **{f"layer {n + 1}": n >= n_frozen for n in range(N_LAYERS)}, HEAD: True}
    for part in found.parts[1 : n_frozen + 1]:
        assert (part.relative_change, part.largest_change) == (0.0, 0.0)
    for part in found.parts[n_frozen + 1 : -1]:
        assert part.relative_change is not None
        assert 0.001 < part.relative_change < 0.1


def test_distances_are_those_of_numpy(base: Path, tmp_path: Path) -> None:
    tuned = _tuned(base, tmp_path / "tuned", 3)
    before = load_file(base / "model.safetensors")["encoder.layer.3.output.dense.weight"].double()
    after = load_file(tuned / "model.safetensors")["bert.encoder.layer.3.output.dense.weight"].double()
    change = next(one for one in verify(str(base), str(tuned)).tensors if "3.output.dense.weight" in one.name)
    assert change.relative_change == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)
    assert change.largest_change == pytest.approx(float((after - before).abs().max()), rel=1e-9)


@pytest.mark.parametrize("name", ["encoder.layer.2.output.dense.weight", "embeddings.LayerNorm.bias"])
def test_one_ulp_is_found(base: Path, tmp_path: Path, name: str) -> None:
    def by_one_ulp(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.flatten().clone()
        flat[5] = torch.nextafter(flat[5], torch.tensor(9.0))
        return flat.view_as(tensor)

    same = _edited(base, tmp_path / "same", name, torch.clone)
    other = _edited(base, tmp_path / "other", name, by_one_ulp)
    assert verify(str(base), str(same)).shared_layers == N_LAYERS
    found = verify(str(base), str(other))
    assert [tensor.name for tensor in found.tensors] == [name]
    assert found.shared_layers == (2 if "layer.2" in name else None)
    assert share([str(base), str(other)]).shared_layers == found.shared_layers


def test_half_precision_counts_as_what_is_computed_with(base: Path, tmp_path: Path) -> None:
    """bge-small is stored in fp16 and its fine-tuned models in fp32: the frozen layers are the same."""
    for dtype in (torch.float16, torch.bfloat16):
        halved, whole = tmp_path / f"half-{dtype}", tmp_path / f"whole-{dtype}"
        model = AutoModelForSequenceClassification.from_pretrained(base, dtype=dtype)
        model.save_pretrained(halved)
        model.float().save_pretrained(whole)
        assert verify(str(halved), str(whole)).shared_layers == N_LAYERS
        assert verify(str(base), str(halved)).shared_layers is None, "rounding moved the weights"


def test_share_gives_the_common_depth_and_what_it_saves(base: Path, tmp_path: Path) -> None:
    depths = (3, 1, 2)
    folders = [str(_tuned(base, tmp_path / f"at-{n}", n, seed=n)) for n in depths]
    found = share(folders)
    assert (found.n_layers, found.shared_layers) == (N_LAYERS, 1)
    pairs = {(Path(one.first).name, Path(one.second).name): one.shared_layers for one in found.pairs}
    assert pairs == {("at-3", "at-1"): 1, ("at-3", "at-2"): 2, ("at-1", "at-2"): 1}
    tensors = load_file(Path(folders[0]) / "model.safetensors")
    is_shared = [n.startswith(("bert.embeddings.", "bert.encoder.layer.0.")) for n in tensors]
    prefix = sum(t.numel() * 4 for t, shared in zip(tensors.values(), is_shared, strict=True) if shared)
    everything = sum(t.numel() * 4 for t in tensors.values())
    assert (found.bytes_apart, found.bytes_shared) == (3 * everything, 3 * everything - 2 * prefix)
    assert found.compute_ratio == pytest.approx(3 * 4 / (1 + 3 * 3))
    assert compute_ratio(16, 6, 0) == 1.0


def test_sharded_folders_are_read_as_one(base: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.float32)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    found = verify(str(tmp_path / "whole"), str(tmp_path / "shards"))
    assert found.tensors == ()
    next((tmp_path / "shards").glob("*-00002-*")).unlink()
    with pytest.raises(DataError, match="which is not in the folder"):
        verify(str(tmp_path / "whole"), str(tmp_path / "shards"))


def test_models_without_a_single_stack_have_no_depth(tmp_path: Path) -> None:
    config = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=2, num_decoder_layers=3, num_heads=2, vocab_size=20)
    T5Model(config).save_pretrained(tmp_path / "t5")
    found = verify(str(tmp_path / "t5"), str(tmp_path / "t5"))
    assert (found.n_layers, found.shared_layers, found.tensors) == (None, None, ())


def test_other_architectures_are_refused(base: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "gpt2", "gpt2")
    with pytest.raises(UsageError, match="different architectures"):
        verify(str(base), str(other))


def test_a_large_tensor_needs_the_memory_of_a_piece(tmp_path: Path) -> None:
    """In a process of its own, without torch; its memory may grow by far less than the file has."""
    folder, n_numbers = tmp_path / "large", 1 << 26
    folder.mkdir()
    header = json.dumps({"h.0.w": {"dtype": "F32", "shape": [n_numbers], "data_offsets": [0, 4 * n_numbers]}}).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + 4 * n_numbers)  # a hole: it takes no space on the disk
    (folder / "config.json").write_text('{"n_layer": 1}')
    code = (
        "import resource, sys; from frostline.serving.share import verify; "
        "start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        f"found = verify({str(folder)!r}, {str(folder)!r}); assert found.shared_layers == 1; "
        "assert 'torch' not in sys.modules; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 64 * 2**20


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.builds(lambda t: len(t).to_bytes(8, "little") + t.encode(), st.text()))
def test_any_bytes_are_weights_or_one_line(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path
    (folder / "model.safetensors").write_bytes(content)
    (folder / "config.json").write_text("{}")
    with contextlib.suppress(DataError):
        assert isinstance(open_weights(str(folder)).n_bytes, int)


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"w": {"dtype": "F32", "shape": ["a"], "data_offsets": [0, 4]}},
        {"w": 5},
        [],
    ],
)
def test_a_wrong_header_is_one_line(tmp_path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError):
        open_weights(str(tmp_path))


def _command(*arguments: str) -> Finished:
    """A command when it has ended, in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = main(arguments)
    return Finished(code, stdout.getvalue(), stderr.getvalue(), Path())


def test_the_commands(base: Path, tmp_path: Path) -> None:
    tuned = _tuned(base, tmp_path / "tuned", 3)
    shown = _command("verify", str(base), str(tuned))
    assert shown.code == 0
    assert "The embeddings and the lowest 3 of 4 layers of tuned are the same as in base" in " ".join(
        shown.stdout.split()
    )
    assert _command("verify", str(base), str(tuned), "--frozen", "3").code == 0
    refused = _command("verify", str(base), str(tuned), "--frozen", "4")
    assert refused.code == 3
    assert "not all unchanged" in refused.stderr
    together = _command("share", str(base), str(tuned), "--json")
    assert json.loads(together.stdout)["shared_layers"] == 3
    assert "share the embeddings and the lowest 3 of 4" in " ".join(
        _command("share", str(base), str(tuned)).stdout.split()
    )
    assert _command("share", str(base)).code == 2
    assert _command("verify", str(base), str(tmp_path / "nowhere")).code == 2


def _trained_by_trainer(name: Path, n_frozen: int, folder: Path) -> Path:
    """A few real steps of transformers' own Trainer with the lowest layers frozen the usual way."""
    from transformers import Trainer, TrainingArguments

    model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(name, dtype=torch.float32)
    for module in (model.bert.embeddings, *model.bert.encoder.layer[:n_frozen]):
        module.requires_grad_(False)
    rng = np.random.default_rng(n_frozen)
    rows = [{"input_ids": rng.integers(1000, 2000, 8), "labels": int(rng.integers(2))} for _ in range(4)]
    arguments = TrainingArguments(
        output_dir=str(folder / "trainer"), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, learning_rate=1e-4,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    model.save_pretrained(folder)
    return folder


@pytest.mark.real
def test_five_models_that_trainer_tuned_share_what_was_frozen(tmp_path: Path) -> None:
    from frostline.tasks import demo_model_folder

    depths = (6, 2, 4, 0, 5)
    folders = [_trained_by_trainer(demo_model_folder(), n, tmp_path / f"at-{n}") for n in depths]
    for n_frozen, folder in zip(depths, folders, strict=True):
        assert verify("all-MiniLM-L6-v2", str(folder)).shared_layers == n_frozen
    found = share([str(folder) for folder in folders])
    expected = {(a, b): min(a, b) for a in depths for b in depths if a != b}
    pairs = {(int(p.first[-1]), int(p.second[-1])): p.shared_layers for p in found.pairs}
    assert pairs == {pair: expected[pair] for pair in pairs}
    assert (len(pairs), found.shared_layers) == (10, 0)


def test_albert_has_no_depth(tmp_path: Path) -> None:
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=8, embedding_size=4, vocab_size=20)
    AlbertModel(config).save_pretrained(tmp_path / "albert")
    assert open_weights(str(tmp_path / "albert")).n_layers is None
