"""A bundle is opened as it was written, or refused in one line that names the file; the chain of hashes of a trunk."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from frostline.cli import main
from frostline.errors import DataError, FrostlineError
from frostline.model.weight_files import HeldTensor, open_weights
from frostline.records.keys import key_of
from frostline.serving.bundle import Bundle, check_bundle, first_difference, open_bundle, seal_bundle, trunk_chain
from frostline.serving.bundles.folders import bundle_folder
from frostline.serving.bundles.merging import merge_bundle
from frostline.serving.bundles.tensor_files import as_bf16, widened, write_tensors
from frostline.testing.models import make_model

N_LAYERS = 3


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "base", n_layers=N_LAYERS)


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.float32).save_pretrained(folder / "tuned")
    return bundle_folder(folder / "tuned", str(base), folder / "bundle").bundle.folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


def resealed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edits the manifest and gives it the checksum of its new content."""
    path = folder / "bundle.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content = change(content) or content
    path.write_text(json.dumps({**content, "checksum": key_of(content)}))


def outcome(folder: Path) -> Bundle | str:
    """The bundle, or what is said of its fault."""
    try:
        return open_bundle(folder)
    except DataError as error:
        return str(error)


class TestSeal:
    def test_what_was_written_is_opened(self, whole: Path) -> None:
        bundle = open_bundle(whole)
        assert bundle.hash == json.loads((whole / "bundle.json").read_text())["checksum"]
        assert set(bundle.manifest.files) == {"config.json", "tail.safetensors"}
        assert check_bundle(whole) == []
        assert {path.name for path in whole.iterdir()} == {
            "bundle.json",
            "config.json",
            "tail.safetensors",
            "README.md",
        }

    def test_a_flipped_bit_is_refused_by_name(self, whole: Path, copy: Path, rng: np.random.Generator) -> None:
        n_harmless = 0
        for name in ("bundle.json", "config.json", "tail.safetensors"):
            path = copy / name
            content = path.read_bytes()
            for place in rng.choice(len(content), size=40, replace=False):
                flipped = bytearray(content)
                flipped[place] ^= 1 << int(rng.integers(8))
                path.write_bytes(flipped)
                found = outcome(copy)
                if isinstance(found, str):
                    assert name in found
                else:  # white space, or the case of an escape
                    assert (name, found.hash) == ("bundle.json", open_bundle(whole).hash)
                    n_harmless += 1
            path.write_bytes(content)
        assert n_harmless < 20
        assert outcome(copy) == open_bundle(copy)

    @pytest.mark.parametrize("name", ["bundle.json", "config.json", "tail.safetensors"])
    def test_a_truncated_or_missing_file_is_refused_by_name(self, copy: Path, name: str) -> None:
        content = (copy / name).read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            (copy / name).write_bytes(content[:length])
            if length == len(content) - 1 and name == "bundle.json":
                continue  # its last byte is a newline
            with pytest.raises(DataError, match=name) as caught:
                open_bundle(copy)
            assert "\n" not in str(caught.value)
        (copy / name).unlink()
        with pytest.raises(DataError, match=name):
            open_bundle(copy)

    def test_twin_a_sealed_lie_is_opened(self, copy: Path) -> None:
        """The checksum is no signature: it finds damage, not malice. So every value is checked as well."""
        resealed(copy, lambda content: content.update(name="another"))
        assert open_bundle(copy).manifest.name == "another"

    def test_check_names_what_is_wrong(self, copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(copy)]) == 0
        assert "nothing wrong" in capfd.readouterr().out
        (copy / "tail.safetensors").write_bytes((copy / "tail.safetensors").read_bytes()[:-1])
        assert main(["check", str(copy)]) == 3
        assert f"damaged: {copy / 'tail.safetensors'}" in capfd.readouterr().out
        (copy / "bundle.json").write_text("{")
        assert main(["check", str(copy)]) == 3
        assert f"damaged: {copy / 'bundle.json'}" in capfd.readouterr().out

    def test_a_folder_that_is_no_bundle(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"is not a bundle: it has no bundle\.json"):
            open_bundle(tmp_path)
        with pytest.raises(DataError, match="is not a folder"):
            open_bundle(tmp_path / "nowhere")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


class TestFuzz:
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_value_of_any_field_opens_or_is_one_line(
        self, whole: Path, tmp_path: Path, data: st.DataObject
    ) -> None:
        copy = tmp_path / "bundle"
        if not copy.exists():
            shutil.copytree(whole, copy)
        content = json.loads((whole / "bundle.json").read_text())
        del content["checksum"]
        for field in data.draw(st.lists(st.sampled_from([*content, "odd", "trunk.chain", "trunk.name"]), max_size=3)):
            outer, _, inner = field.partition(".")
            value = data.draw(json_values)
            if inner and isinstance(content[outer], dict):
                content[outer][inner] = value
            else:
                content[outer] = value
        with contextlib.suppress(ValueError):  # canonical JSON has no NaN: such a file gets a wrong checksum
            content["checksum"] = key_of(content)
        (copy / "bundle.json").write_text(json.dumps(content))
        found = outcome(copy)
        assert isinstance(found, Bundle) or ("bundle.json" in found and "\n" not in found)
        assert isinstance(check_bundle(copy), list)

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(text=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
    def test_any_text_is_one_line(self, whole: Path, tmp_path: Path, text: str) -> None:
        copy = tmp_path / "bundle"
        if not copy.exists():
            shutil.copytree(whole, copy)
        (copy / "bundle.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(DataError, match=r"bundle\.json"):
            open_bundle(copy)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"format": 2}, "has the format 2; this release reads 1"),
            ({"depth": 9}, "its depth cannot be right"),
            ({"depth": -1}, "its depth cannot be right"),
            ({"n_layers": 2}, "trunk.chain cannot be right"),
            ({"max_length": 0}, "its max_length cannot be right"),
            ({"label_scale": [1.0]}, "its label_scale cannot be right"),
            ({"label_names": ["a", "a"]}, "its label_names cannot be right"),
            ({"name": ""}, "its name cannot be right"),
            ({"name": "a\u202eb"}, "its name cannot be right"),
            ({"files": {}}, "its files cannot be right"),
            ({"files": {"config.json": "", "../base/config.json": ""}}, "its files cannot be right"),
            ({"strategy": "rm -rf"}, "unknown strategy 'rm -rf'"),
            ({"dtype": "int8"}, "dtype is 'int8'"),
            ({"score": "high"}, "score is 'high'"),
        ],
    )
    def test_what_no_bundle_can_be_used_with(self, copy: Path, change: dict[str, Any], said: str) -> None:
        resealed(copy, lambda content: content.update(change))
        with pytest.raises(DataError) as caught:
            open_bundle(copy)
        assert said in str(caught.value)
        assert str(copy / "bundle.json") in str(caught.value)

    @pytest.mark.parametrize(
        "content", ["[" * 100_000, "9" * 5000, '{"checksum": ' + "[" * 900 + "]" * 900 + "}", "[]"]
    )
    def test_hostile_manifests_are_one_line_and_exit_3(
        self, copy: Path, base: Path, content: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (copy / "bundle.json").write_text(content)
        assert main(["bundle", "merge", str(copy), "--base", str(base), "--save", str(tmp_path / "out")]) == 3
        (line,) = capfd.readouterr().err.splitlines()
        assert "bundle.json" in line
        assert len(line) < 700

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_configuration_is_merged_or_one_line(
        self, whole: Path, base: Path, tmp_path: Path, data: st.DataObject
    ) -> None:
        copy = tmp_path / "bundle"
        if not copy.exists():
            shutil.copytree(whole, copy)
        config = json.loads((whole / "config.json").read_text())
        for field in data.draw(st.lists(st.sampled_from([*config, "auto_map"]), max_size=3)):
            config[field] = data.draw(json_values)
        (copy / "config.json").write_text(json.dumps(config))
        seal_bundle(copy, open_bundle(whole).manifest)
        said = ""
        try:
            merge_bundle(copy, str(base), Path(tempfile.mkdtemp(dir=tmp_path)))
        except FrostlineError as error:  # any other exception fails the test
            said = str(error)
        assert len(said.splitlines()) <= 1


class TestChain:
    def test_one_hash_per_part_each_with_those_below(self, base: Path, tmp_path: Path) -> None:
        chain = trunk_chain(open_weights(str(base)))
        assert len(set(chain)) == N_LAYERS + 1
        for number, name in enumerate(
            ["embeddings.LayerNorm.bias", *(f"encoder.layer.{n}.output.dense.bias" for n in range(3))]
        ):
            other = trunk_chain(open_weights(str(edited(base, tmp_path / str(number), name))))
            assert [a == b for a, b in zip(chain, other, strict=True)] == [n < number for n in range(N_LAYERS + 1)]
            assert first_difference(chain, other) == ("embeddings" if number == 0 else f"layer {number}")
        assert trunk_chain(open_weights(str(edited(base, tmp_path / "head", "pooler.dense.bias")))) == chain
        assert first_difference(chain, chain) is None

    @pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "opt", "mpnet"])
    def test_a_prefix_before_all_names_and_a_head_change_nothing(self, family: Any, tmp_path: Path) -> None:
        bare = make_model(tmp_path / "bare", family)
        AutoModelForSequenceClassification.from_pretrained(bare, dtype=torch.float32).save_pretrained(tmp_path / "head")
        assert trunk_chain(open_weights(str(bare))) == trunk_chain(open_weights(str(tmp_path / "head")))

    def test_half_precision_is_widened(self, base: Path, tmp_path: Path) -> None:
        model = AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.bfloat16)
        model.save_pretrained(tmp_path / "half")
        model.float().save_pretrained(tmp_path / "wide")
        half, wide = (trunk_chain(open_weights(str(tmp_path / name))) for name in ("half", "wide"))
        assert half == wide != trunk_chain(open_weights(str(base)))

    def test_names_and_shapes_count(self, base: Path, tmp_path: Path) -> None:
        chain = trunk_chain(open_weights(str(base)))
        name = "encoder.layer.1.output.dense.bias"
        reshaped = edited(base, tmp_path / "reshaped", name, lambda tensor: tensor[:, None])
        assert first_difference(chain, trunk_chain(open_weights(str(reshaped)))) == "layer 2"

    def test_constants_of_the_library_do_not_count(self, base: Path, tmp_path: Path) -> None:
        """Old checkpoints store positions, frequencies and causal masks, which the library ignores now."""
        chain = trunk_chain(open_weights(str(base)))
        constants = {
            "embeddings.position_ids": torch.arange(4),
            "encoder.layer.1.attention.rotary_emb.inv_freq": torch.ones(2),
            "encoder.layer.1.attention.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool),
        }
        for number, (name, tensor) in enumerate(constants.items()):
            assert trunk_chain(open_weights(str(added(base, tmp_path / str(number), name, tensor)))) == chain
        weight = added(base, tmp_path / "weight", "encoder.layer.1.attention.bias", torch.ones(4))
        assert first_difference(chain, trunk_chain(open_weights(str(weight)))) == "layer 2"

    def test_the_first_names_of_bert_are_known(self, base: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(base, tmp_path / "old"))
        held = load_file(folder / "model.safetensors")
        endings = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        old = {
            next((name.replace(new, was) for new, was in endings.items() if name.endswith(new)), name): tensor
            for name, tensor in held.items()
        }
        assert old.keys() != held.keys()
        save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
        assert trunk_chain(open_weights(str(folder))) == trunk_chain(open_weights(str(base)))


def added(base: Path, folder: Path, name: str, tensor: torch.Tensor) -> Path:
    """A copy of a model with one tensor more."""
    shutil.copytree(base, folder)
    held = load_file(folder / "model.safetensors") | {name: tensor}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def edited(
    base: Path, folder: Path, name: str, edit: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor + 1
) -> Path:
    """A copy of a model with one tensor changed."""
    shutil.copytree(base, folder)
    held = load_file(folder / "model.safetensors")
    held[name] = edit(held[name]).contiguous()
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class TestTensorFiles:
    def test_files_are_those_of_the_library(self, tmp_path: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {
            "matrix": np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32),
            "number": np.array(2.5, dtype=np.float32),
            "nothing": np.zeros((0, 4), dtype=np.float32),
            "count": np.arange(4),
            "mask": np.array([True, False]),
        }
        held = {name: HeldTensor(array) for name, array in arrays.items()}
        for dtype, half in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
            write_tensors(tmp_path / "file", held, dtype)  # type: ignore[arg-type]
            found = load_file(tmp_path / "file")
            for name, array in arrays.items():
                wanted = torch.from_numpy(array)
                wanted = wanted.to(half) if wanted.is_floating_point() else wanted
                assert found[name].dtype == wanted.dtype
                assert found[name].shape == wanted.shape
                assert torch.equal(found[name], wanted)

    @given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
    def test_bfloat16_is_rounded_as_torch_does(self, numbers: list[float]) -> None:
        values = np.array(numbers, dtype=np.float32)
        wanted = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
        assert np.array_equal(widened(as_bf16(values)), wanted)

    def test_numbers_that_a_format_cannot_hold_are_refused(self, tmp_path: Path) -> None:
        large = {"w": HeldTensor(np.array([1e5], dtype=np.float32))}
        with pytest.raises(Exception, match="w holds numbers that are too large for fp16; use bf16 or fp32"):
            write_tensors(tmp_path / "file", large, "fp16")
        write_tensors(tmp_path / "file", large, "bf16")
        with pytest.raises(Exception, match="too large for bf16"):
            write_tensors(tmp_path / "file", {"w": HeldTensor(np.array([3.4e38], dtype=np.float32))}, "bf16")
        with pytest.raises(DataError, match="holds NaN or infinity"):
            write_tensors(tmp_path / "file", {"w": HeldTensor(np.array([np.nan], dtype=np.float32))}, "fp32")
