"""Data sets of the `datasets` library: saved, laid out as on the Hub, and by their name there; without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from frostline import tasks
from frostline.errors import DataError, UsageError
from frostline.tasks.formats import hub


def load(source: str, **options: Any) -> tasks.TaskData:
    return tasks.load(tasks.resolve(tasks.parse(source, **options)))


def rows(n_rows: int, first: int = 0, names: tuple[str, ...] = ("zebra", "ant")) -> Dataset:
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names)), "id": Value("int32")})
    numbers = range(first, first + n_rows)
    columns = {"text": [f"row {i}" for i in numbers], "label": [i % len(names) for i in numbers], "id": list(numbers)}
    return Dataset.from_dict(columns, features=features)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the library's cache in it."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def splits() -> DatasetDict:
    return DatasetDict(train=rows(40), validation=rows(10, 100), test=rows(6, 1000))


def write_hub(folder: str, splits: DatasetDict, config: str | None = None) -> None:
    """The splits as Parquet, where a data set on the Hub has them."""
    place = Path(folder) / (config or "data")
    place.mkdir(parents=True)
    for name, split in splits.items():
        split.to_parquet(place / f"{name}-00000-of-00001.parquet")
    if config is not None:
        card = Path(folder) / "README.md"
        before = card.read_text().removesuffix("---\n") if card.is_file() else "---\nconfigs:\n"
        files = "".join(f"  - split: {name}\n    path: {config}/{name}-*\n" for name in splits)
        card.write_text(f"{before}- config_name: {config}\n  data_files:\n{files}---\n")


def test_saved_splits(splits: DatasetDict, capfd: pytest.CaptureFixture[str]) -> None:
    splits.save_to_disk("saved")
    capfd.readouterr()
    data = load("saved")
    assert (data.task.name, len(data.train), data.dev.texts) == ("saved", 40, [f"row {i}" for i in range(100, 110)])
    assert data.label_names == ("zebra", "ant")
    assert data.train.labels.tolist() == [i % 2 for i in range(40)]
    assert [warning for warning in data.warnings if "test" in warning] == []
    assert load("saved", dev="test").dev.texts == [f"row {i}" for i in range(1000, 1006)]
    assert capfd.readouterr() == ("", "")


def test_a_test_split_is_never_taken_for_dev(splits: DatasetDict) -> None:
    del splits["validation"]
    splits.save_to_disk("saved")
    data = load("saved")
    assert (len(data.train), len(data.dev)) == (36, 4)
    assert not {int(text.split()[1]) for text in data.dev.texts} & set(range(1000, 1006))
    assert "splits not used: test; to score on one, give --dev NAME" in data.warnings


def test_a_folder_of_a_split_s_name_does_not_hide_it_and_a_file_does(splits: DatasetDict) -> None:
    splits.save_to_disk("saved")
    Path("test").mkdir()
    assert len(load("saved", dev="test").dev) == 6
    Path("test").rmdir()
    Path("test").write_text("text,label\n")
    with pytest.raises(UsageError, match="test ends in"):
        load("saved", dev="test")
    Path("train").mkdir()
    with pytest.raises(UsageError, match="'train' is the training split"):
        load("saved", dev="train")


def test_texts_that_are_not_utf8_are_one_line_and_a_slip_of_ours_is_not_called_damage(
    splits: DatasetDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, offsets, characters = pa.array(["ab", "cd"]).buffers()
    damaged = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff" + characters.to_pybytes()[1:]))
    Dataset(pa.table({"text": damaged, "label": [0, 1]})).save_to_disk("damaged")
    with pytest.raises(DataError, match=r"damaged \(train\): cannot be read \(.*utf-8"):
        load("damaged")

    def slip(*_: object) -> None:
        raise KeyError("ours")

    splits.save_to_disk("saved")
    monkeypatch.setattr(hub, "from_arrow", slip)
    with pytest.raises(KeyError, match="ours"):
        load("saved")


def test_saved_rows_without_splits_and_in_another_order() -> None:
    rows(40).save_to_disk("saved")
    data = load("saved")
    assert (len(data.train), len(data.dev)) == (36, 4)
    rows(40).select(range(39, -1, -1)).save_to_disk("other")
    other = load("other", text="text")
    assert sorted(other.train.texts + other.dev.texts) == sorted(data.train.texts + data.dev.texts)
    assert other.fingerprint != data.fingerprint


def test_the_fingerprint_is_of_what_is_read(splits: DatasetDict) -> None:
    splits.save_to_disk("saved")
    splits.save_to_disk("in pieces", num_shards={"train": 3, "validation": 2, "test": 1})
    splits.map(lambda row: {"id": row["id"] + 1}).save_to_disk("of other columns")
    found = load("saved").fingerprint
    assert load("in pieces").fingerprint == found
    assert load("of other columns").fingerprint == found
    assert load("saved", dev="test").fingerprint != found
    splits.map(lambda row: {"text": row["text"].upper()}).save_to_disk("of other texts")
    assert load("of other texts").fingerprint != found
    DatasetDict(train=rows(40, names=("ant", "zebra")), validation=splits["validation"]).save_to_disk("turned")
    assert load("turned").fingerprint != found


@pytest.mark.parametrize("damage", ["truncated", "no state", "no json", "no keys"])
def test_a_damaged_folder_is_one_line(splits: DatasetDict, damage: str) -> None:
    splits.save_to_disk("saved")
    folder = Path("saved/train")
    if damage == "truncated":
        (arrow,) = folder.glob("*.arrow")
        arrow.write_bytes(arrow.read_bytes()[:100])
    elif damage == "no state":
        (folder / "state.json").unlink()
    else:
        (folder / "state.json").write_text("{" if damage == "no json" else "{}")
    with pytest.raises(DataError, match=r"^saved: is not a readable data set \(.*\); save it again$") as caught:
        load("saved")
    assert str(caught.value).isprintable()


def test_a_folder_laid_out_as_on_the_hub(splits: DatasetDict, capfd: pytest.CaptureFixture[str]) -> None:
    write_hub("mine", splits)
    capfd.readouterr()
    data = load("mine")
    assert (len(data.train), len(data.dev), data.label_names) == (40, 10, ("zebra", "ant"))
    assert data.fingerprint == load("mine").fingerprint
    assert capfd.readouterr() == ("", "")
    Path("mine/data/validation-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="mine: is not a readable data set"):
        load("mine")


def test_a_configuration_of_a_data_set(splits: DatasetDict) -> None:
    write_hub("owner/name", splits, "small")
    write_hub("owner/name", DatasetDict(train=rows(20)), "large")
    data = load("owner/name:small")
    assert (data.task.name, len(data.train)) == ("name-small", 40)
    assert len(load("owner/name:large").train) == 18
    with pytest.raises(DataError, match=r"Config name is missing.*'small'.*write a configuration as owner/name:config"):
        load("owner/name")
    with pytest.raises(DataError, match="'middle' not found"):
        load("owner/name:middle")


def test_without_a_network_the_hub_ends_in_one_line() -> None:
    for source in ("owner/name", "owner/name:config"):
        spec = tasks.parse(source)
        assert spec.source == source
        with pytest.raises(UsageError) as caught:
            tasks.resolve(spec)
        message = str(caught.value)
        assert message.isprintable()
        for part in (
            f"the Hub data set {source} could not be read",
            "Offline",
            f"no file or folder {source}",
            "give a file",
        ):
            assert part in message


@pytest.mark.parametrize("name", ["connection", "not found", "http", "generating", "script", "arrow"])
def test_what_the_library_raises_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
    from huggingface_hub.errors import HfHubHTTPError

    made = DatasetGenerationError("An error occurred while generating the dataset")
    made.__cause__ = ValueError("the\nreason")
    errors: dict[str, Exception] = {
        "connection": ConnectionError("the\nreason"),
        "not found": DatasetNotFoundError("the\nreason"),
        "http": HfHubHTTPError.__bases__[0]("the\nreason"),
        "generating": made,
        "script": RuntimeError("the\nreason"),
        "arrow": pyarrow.ArrowInvalid("the\nreason"),
    }

    def fail(*_: object) -> None:
        raise errors[name]

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UsageError, match=r"the Hub data set owner/name could not be read \(the reason\)"):
        load("owner/name")
    with pytest.raises(UsageError, match=r"nyu-mll/glue:sst2 could not be read \(the reason\); give --data DIR.*SST-2"):
        load("sst2")


def test_a_missing_shard_is_named(splits: DatasetDict) -> None:
    data = Path("copy/data")
    data.mkdir(parents=True)
    for number, first in ((0, 0), (1, 20)):
        rows(20, first).to_parquet(data / f"train-0000{number}-of-00002.parquet")
    splits["validation"].to_parquet(data / "validation-00000-of-00001.parquet")
    assert len(load("copy").train) == 40
    (data / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"train-00001-of-00002\.parquet: does not exist.*copy the whole data"):
        load("copy")


def test_shards_with_a_hash_in_their_names_are_whole(splits: DatasetDict) -> None:
    data = Path("copy/data")
    data.mkdir(parents=True)
    for number, digest in ((0, "0a1b"), (1, "ff00")):
        rows(20, 20 * number).to_parquet(data / f"train-0000{number}-of-00002-{digest}.parquet")
    assert len(load("copy").train) + len(load("copy").dev) == 40


def test_configurations_without_a_card_are_kept_apart(splits: DatasetDict) -> None:
    for name, first in (("a", 0), ("b", 500)):
        place = Path("copy") / name
        place.mkdir(parents=True)
        rows(20, first).to_parquet(place / "train-00000-of-00001.parquet")
        splits["validation"].to_parquet(place / "validation-00000-of-00001.parquet")
    with pytest.raises(UsageError, match="copy contains several data sets: a, b; give one of them as copy:a"):
        load("copy")
    assert load("copy:b").train.texts == [f"row {i}" for i in range(500, 520)]
    assert (load("copy:a").task.name, load("copy:a").train.texts[0]) == ("copy-a", "row 0")
    with pytest.raises(UsageError, match="several data sets: a, b"):
        load("copy:c")
    (Path("copy/b/train-00000-of-00001.parquet")).rename("copy/b/train-00000-of-00002.parquet")
    assert len(load("copy:a").train) == 20
    with pytest.raises(DataError, match="train-00001-of-00002"):
        load("copy:b")


def test_a_dev_folder_is_no_file(splits: DatasetDict) -> None:
    splits.save_to_disk("saved")
    rows(20).to_parquet("own.parquet")
    Path("held").mkdir()
    with pytest.raises(UsageError, match=r"--dev held is a folder; give a file, and no split of that name"):
        load("saved", dev="held")
    with pytest.raises(UsageError, match=r"--dev held is a folder; give a file$"):
        load("own.parquet", dev="held")
    with pytest.raises(UsageError, match="there is no dev file gone"):
        load("own.parquet", dev="gone")


def test_the_library_is_as_loud_as_before(splits: DatasetDict) -> None:
    import logging

    splits.save_to_disk("saved")
    logger = logging.getLogger("datasets")
    before = (datasets.are_progress_bars_disabled(), logger.level)
    load("saved")
    with pytest.raises(UsageError):
        load("owner/name")
    assert (datasets.are_progress_bars_disabled(), logger.level) == before
    assert before[0] is False


GLUE_NAMES = {
    "sst2": ("sst2", ("negative", "positive"), ("sentence", None)),
    "mrpc": ("mrpc", ("not_equivalent", "equivalent"), ("sentence1", "sentence2")),
    "qqp": ("qqp", ("not_duplicate", "duplicate"), ("question1", "question2")),
    "mnli": ("mnli", ("entailment", "neutral", "contradiction"), ("premise", "hypothesis")),
    "mnli-mm": ("mnli", ("entailment", "neutral", "contradiction"), ("premise", "hypothesis")),
}


@pytest.mark.parametrize("name", GLUE_NAMES)
@pytest.mark.parametrize("is_named", [True, False])
def test_glue_as_the_hub_has_it(name: str, is_named: bool) -> None:
    """`load_dataset` takes a folder of the data set's name for it: the real call, without a network."""
    config, names, (text, pair) = GLUE_NAMES[name]

    def made(n_rows: int, first: int) -> Dataset:
        split = rows(n_rows, first, names).rename_column("text", text)
        return split if pair is None else split.add_column(pair, [f"pair {i}" for i in split["id"]])

    is_mnli = config == "mnli"
    devs = (
        {"validation_matched": made(6, 100), "validation_mismatched": made(9, 200)}
        if is_mnli
        else {"validation": made(6, 100)}
    )
    write_hub("nyu-mll/glue", DatasetDict(train=made(12, 0), **devs), config)
    data = load(name) if is_named else load(name, data="nyu-mll/glue")
    first = 200 if name == "mnli-mm" else 100
    assert (data.task.name, data.label_names, len(data.train)) == (name, names, 12)
    assert data.dev.texts[0] == f"row {first}"
    assert len(data.dev) == (9 if name == "mnli-mm" else 6)
    assert (
        data.dev.pairs is None if pair is None else data.dev.pairs is not None and data.dev.pairs[0] == f"pair {first}"
    )
    assert data.train.labels.tolist() == [i % len(names) for i in range(12)]
    spec = tasks.resolve(tasks.parse(name, data=None if is_named else "nyu-mll/glue"))
    assert (spec.text, spec.text_pair, spec.label) == (text, pair, "label")
    assert tasks.resolve(spec) == spec


def test_glue_by_name_without_a_network_names_data() -> None:
    with pytest.raises(
        UsageError, match=r"nyu-mll/glue:stsb could not be read \(.*Offline.*\); give --data DIR.*STS-B"
    ):
        load("stsb")


def test_splits_that_cannot_be_chosen_between(splits: DatasetDict) -> None:
    DatasetDict(test=splits["test"], other=splits["train"]).save_to_disk("no train")
    with pytest.raises(UsageError, match="no train has no split 'train'; its splits: test, other"):
        load("no train")
    DatasetDict(splits, dev=rows(4)).save_to_disk("two")
    with pytest.raises(UsageError, match="two has the splits dev and validation; choose one of them with --dev"):
        load("two")
    assert len(load("two", dev="validation").dev) == 10


def test_lists_of_classes_are_refused() -> None:
    features = Features({"text": Value("string"), "label": datasets.List(ClassLabel(names=["a", "b"]))})
    Dataset.from_dict({"text": ["x", "y"], "label": [[0], [0, 1]]}, features=features).save_to_disk("saved")
    with pytest.raises(DataError, match=r"saved \(train\): row 1: column 'label' holds a list.*multi-label"):
        load("saved")


@pytest.mark.parametrize(
    ("written", "name", "config"),
    [
        ("a/b", "a/b", None),
        ("a/b:c", "a/b", "c"),
        ("nyu-mll/glue:sst2", "nyu-mll/glue", "sst2"),
        ("A_1/x.y", "A_1/x.y", None),
    ],
)
def test_names_on_the_hub(written: str, name: str, config: str | None) -> None:
    found = hub.NAME.fullmatch(written)
    assert found is not None
    assert (found["name"], found["config"]) == (name, config)


@pytest.mark.parametrize("written", ["a", "a/b/c", "a/b:", "a/b:c:d", "a b/c", "/a", "a/", "é/b"])
def test_what_is_no_name_on_the_hub(written: str) -> None:
    assert hub.NAME.fullmatch(written) is None
    with pytest.raises(UsageError):
        tasks.parse(written)
