"""What travels to a cluster's nodes, without a cluster: trees of files, specs, streams, addresses."""

from __future__ import annotations

import io
import json
import multiprocessing
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from commands import Toy, check_one_line
from frostline import tasks
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.execution.cluster import trees
from frostline.execution.cluster.connection import check_address
from frostline.execution.cluster.content import Contents, spec_at_node
from frostline.execution.cluster.executor import matched, prefix_of, prefixes_of
from frostline.execution.cluster.nodes import Node, Share, no_room, own_versions, refusal
from frostline.execution.cluster.places import Place
from frostline.execution.cluster.stream import Pieces, Received
from frostline.execution.cluster.trees import keep, read_tree
from frostline.execution.executor import Job
from frostline.execution.transport import receive, send
from frostline.model.files.folders import DEMO_MODEL
from frostline.model.load import describe
from frostline.records.depth import FULL
from frostline.records.results import Crash
from frostline.records.specs import RunSpec, TaskSpec
from frostline.testing.models import make_spec
from synthetic import make_result


def no_pieces() -> Iterable[bytes]:
    raise AssertionError("the tree is there: nothing is fetched")
    yield b""


def written(folder: Path) -> Path:
    (folder / "below").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"first")
    (folder / "below" / "b.txt").write_bytes(b"")
    (folder / "below" / "c.txt").write_bytes(b"third" * 1000)
    return folder


PATHS = ("a.txt", "below/b.txt", "below/c.txt")


def test_a_tree_is_kept_once_under_the_name_of_its_content_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "PIECE", 7)
    tree, pieces = read_tree(written(tmp_path / "driver"), PATHS)
    place = keep(tree, tmp_path / "node", pieces)
    assert place == tmp_path / "node" / tree.digest
    assert {path: (place / path).read_bytes() for path in PATHS} == {
        path: (tmp_path / "driver" / path).read_bytes() for path in PATHS
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.is_file()} == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert keep(tree, tmp_path / "node", no_pieces()) == place
    (place / "a.txt").write_bytes(b"other")
    assert (keep(tree, tmp_path / "node", read_tree(tmp_path / "driver", PATHS)[1]) / "a.txt").read_bytes() == b"first"


def test_twin_content_that_does_not_arrive_whole_is_not_kept(tmp_path: Path) -> None:
    tree, pieces = read_tree(written(tmp_path / "driver"), PATHS)
    wrong = [piece.replace(b"third", b"thing") for piece in pieces]
    for sent in (wrong, wrong[:1], []):
        with pytest.raises(DataError, match="did not arrive whole"):
            keep(tree, tmp_path / "node", sent)
        assert not (tmp_path / "node" / tree.digest).exists()
    outside = tree.replace(files=(tree.files[0].replace(path="../a.txt"),))
    with pytest.raises(DataError, match="not a path below"):
        keep(outside, tmp_path / "node", [b"first"])


def test_a_file_that_changes_while_it_is_sent_is_refused(tmp_path: Path) -> None:
    _, pieces = read_tree(written(tmp_path / "driver"), PATHS)
    (tmp_path / "driver" / "a.txt").write_bytes(b"later")
    with pytest.raises(DataError, match="changed while it was sent"):
        list(pieces)


def _keep(folder: Path, fetched: Any) -> None:
    tree, pieces = read_tree(folder / "driver", PATHS)

    def counted() -> Iterable[bytes]:
        with fetched.get_lock():
            fetched.value += 1
        time.sleep(0.2)
        yield from pieces

    keep(tree, folder / "node", counted())


def test_two_processes_of_a_node_unpack_once(tmp_path: Path) -> None:
    written(tmp_path / "driver")
    context = multiprocessing.get_context("fork")
    fetched = context.Value("i", 0)
    both = [context.Process(target=_keep, args=(tmp_path, fetched)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert fetched.value == 1


def at_node(spec: RunSpec, node: Path) -> RunSpec:
    """The spec that a node gets, with everything it names kept there."""
    sent: dict[int, list[bytes]] = {}
    contents = Contents(lambda pieces: sent.setdefault(len(sent), list(pieces)))
    parcel = contents.of(spec)
    for tree in parcel.trees:
        keep(tree, node, contents.pieces[tree.digest])
    there = spec_at_node(parcel.spec, node)
    assert there.key == spec.key
    return there


def own_task(folder: Path, toy: Toy, form: str) -> TaskSpec:
    """The spec of the toy task in one of the forms in which a user can give it."""
    folder.mkdir()
    if form == "file":
        return tasks.parse(str(shutil.copy(toy.train, folder / "reviews.csv")))
    if form == "file and dev":
        return tasks.parse(
            str(shutil.copy(toy.train, folder / "reviews.csv")), dev=str(shutil.copy(toy.dev, folder / "dev.csv"))
        )
    if form == "folder":
        shutil.copy(toy.train, folder / "train.csv")
        shutil.copy(toy.dev, folder / "dev.csv")
        shutil.copy(toy.dev, folder / "test.csv")
        (folder / "notes.bin").write_bytes(b"not data")
        return tasks.parse(str(folder))
    import datasets

    loaded = datasets.load_dataset("csv", data_files={"train": str(toy.train), "dev": str(toy.dev)})
    if form == "saved":
        loaded.save_to_disk(str(folder))
        return tasks.parse(str(folder))
    if form == "configurations":
        for name in ("one", "two"):
            (folder / name).mkdir()
            shutil.copy(toy.train, folder / name / "train.csv")
        return tasks.parse(f"{folder}:two")
    return tasks.parse(str(tasks.write_rows(loaded, folder, "data")))


@pytest.mark.parametrize("form", ["file", "file and dev", "folder", "saved", "configurations", "rows in memory"])
def test_data_has_the_same_fingerprint_rows_and_warnings_at_a_node(toy: Toy, tmp_path: Path, form: str) -> None:
    task = tasks.resolve(own_task(tmp_path / "driver", toy, form))
    here = tasks.load(task)
    spec = make_spec(toy.model, toy.train).replace(task=task, data_fingerprint=here.fingerprint)
    there = at_node(spec, tmp_path / "node")
    (tmp_path / "driver").rename(tmp_path / "renamed")
    assert str(tmp_path / "driver") not in json.dumps(there.to_json())
    found = tasks.load(there.task)
    assert found.fingerprint == here.fingerprint
    assert found.train.texts == here.train.texts
    assert [text.replace(str(tmp_path / "node"), "") for text in found.warnings if "/" not in text] == [
        text for text in here.warnings if "/" not in text
    ]


def test_glue_tasks_send_the_files_that_are_read(toy: Toy, tmp_path: Path) -> None:
    folder = tmp_path / "driver" / "SST-2"
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text("sentence\tlabel\nit is good\t1\nit is bad\t0\n" * 1)
    task = tasks.resolve(tasks.parse("sst2", data=str(tmp_path / "driver")))
    here = tasks.load(task)
    spec = make_spec(toy.model, toy.train).replace(task=task, data_fingerprint=here.fingerprint)
    there = at_node(spec, tmp_path / "node")
    assert there.task.data is not None
    sent = {path.name for path in Path(there.task.data).rglob("*") if path.is_file()}
    assert sent == {"train.tsv", "dev.tsv"}
    assert tasks.load(there.task).fingerprint == here.fingerprint


@pytest.mark.parametrize("name", ["owner/reviews", "sst2"])
def test_a_data_set_of_the_hub_is_sent_as_this_machine_read_it(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import datasets

    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}
    )
    rows = datasets.Dataset.from_dict({"sentence": ["good", "bad"] * 20, "label": [1, 0] * 20}, features=features)
    found = datasets.DatasetDict({"train": rows, "validation": rows})
    asked: list[object] = []

    def load(*given: object) -> object:
        asked.append(given)
        return found

    with monkeypatch.context() as on_the_driver:
        on_the_driver.setattr(datasets, "load_dataset", load)
        task = tasks.resolve(tasks.parse(name))
        here = tasks.load(task)
        spec = make_spec(toy.model, toy.train).replace(task=task, data_fingerprint=here.fingerprint)
        there = at_node(spec, tmp_path / "node")
    assert asked
    data = tasks.load(there.task)
    assert (data.fingerprint, data.label_names) == (here.fingerprint, here.label_names)


@pytest.mark.real
def test_the_demo_needs_no_package_on_a_node(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks.resolve(tasks.parse("rotten-tomatoes"))
    here = tasks.load(task)
    spec = make_spec(toy.model, toy.train).replace(
        model=DEMO_MODEL,
        task=task,
        data_fingerprint=here.fingerprint,
        model_fingerprint=describe(DEMO_MODEL).fingerprint,
    )
    there = at_node(spec, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert tasks.load(there.task).fingerprint == spec.data_fingerprint
    assert describe(there.model).fingerprint == spec.model_fingerprint


def test_a_model_is_sent_without_weights_for_other_libraries(toy: Toy, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(toy.model, tmp_path / "model"))
    for name in ("pytorch_model.bin", "tf_model.h5", ".hidden"):
        (folder / name).write_bytes(b"not read")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    spec = make_spec(toy.model, toy.train).replace(model=str(folder))
    there = Path(at_node(spec, tmp_path / "node").model)
    names = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert names == {path.name for path in toy.model.iterdir()} | {"1_Pooling/config.json"}
    assert describe(str(there)).fingerprint == spec.model_fingerprint


def test_outcomes_get_the_names_of_the_driver(toy: Toy, tmp_path: Path) -> None:
    spec = make_spec(toy.model, toy.train)
    contents = Contents(list)
    parcel = contents.of(spec)
    there = spec_at_node(parcel.spec, tmp_path)
    result = make_result(FULL, 0, 0.5, spec=there).replace(warnings=(f"rows skipped: 3 of {there.task.source}",))
    mapped = parcel.outcome(result, spec, str(tmp_path))
    assert mapped == result.replace(spec=spec, warnings=(f"rows skipped: 3 of {toy.train}",))
    crash = Crash(spec=there, error=f"no {there.model}", traceback="", environment=result.environment)
    assert parcel.outcome(crash, spec, str(tmp_path)) == crash.replace(spec=spec, error=f"no {toy.model}")


def test_a_stream_of_pieces_carries_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.execution.cluster.stream.PIECE", 5)
    pieces = Pieces()
    content = [b"0123456789ab", b""]

    def write() -> None:
        send(pieces, {"epoch": 1})
        send(pieces, {"result": 2}, content)
        pieces.end()

    writer = threading.Thread(target=write)
    writer.start()
    taken = iter(pieces)
    stream = io.BufferedReader(Received(lambda: next(taken, b"")))
    assert [receive(stream), receive(stream), receive(stream)] == [({"epoch": 1}, []), ({"result": 2}, content), None]
    writer.join()


def test_a_job_goes_where_its_prefix_states_are(toy: Toy) -> None:
    base = make_spec(toy.model, toy.train, is_cached=True)
    near, far = (Place(Node(name, name, {}), None, None) for name in ("near", "far"))
    specs = [base.replace(strategy=f"freeze:{depth}", seed=seed) for depth, seed in ((1, 0), (2, 0), (2, 1))]
    has = {"near": {prefix_of(specs[1])}, "far": set(prefixes_of(Job(specs[0], nearby=("freeze:3",))))}

    def has_prefix(spec: RunSpec, place: Place) -> bool:
        return prefix_of(spec) in has[place.node.name]

    assert matched(specs, [near, far], has_prefix) == [(specs[0], far), (specs[1], near)]
    assert matched(specs[1:], [far], has_prefix) == [(specs[1], far)], "a free place is not left idle"
    assert prefix_of(base.replace(is_cached=False)) is None
    assert prefix_of(base.replace(seed=5, learning_rate=1.0)) == prefix_of(base), "shared by seeds and rates"
    assert prefix_of(base.replace(strategy="freeze:3")) in has["far"], "computed with others"
    assert prefix_of(base.replace(strategy="freeze:3", subset_seed=1)) not in has["far"], "other rows"


def test_versions_that_differ_are_named() -> None:
    ours = own_versions()
    assert refusal(ours) is None
    assert refusal({**ours, "torch": "1.0"}) == f"torch 1.0, here {ours['torch']}"
    other = refusal({**ours, "python": "3.9.1", "frostline": ""})
    assert other == f"python 3.9.1, here {ours['python']}, frostline not there, here {ours['frostline']}"
    absent = refusal(ModuleNotFoundError("No module named 'frostline'"))
    assert absent == "this version of frostline is not installed there"


def test_room() -> None:
    share = Share(cpus=2, gpus=0.5, memory=4 * 2**30)
    assert share.fits({"CPU": 8, "GPU": 1, "memory": 64 * 2**30}) == 2
    assert share.fits({"CPU": 8, "memory": 64 * 2**30}) == 0
    assert Share(cpus=0.1).fits({"CPU": 0.3}) == 3, "fractions are not exact"
    node = Node("1", "here", {"CPU": 4.0, "GPU": 1.0, "memory": 8.0 * 2**30})
    text = no_room(share, [node], {"1": {"CPU": 1.0, "GPU": 1.0}})
    assert text == (
        "the cluster has no room for a run, which takes 2 CPU and 0.5 GPU and 4 GB of memory; "
        "here has 1 CPU and 1 GPU and 0 GB of memory"
    )


def test_a_wrong_address_is_one_line_within_ten_seconds(toy: Toy, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    command = [*toy.curve, "--on", "ray", "--ray-address", f"127.0.0.1:{closed}", "--out", str(toy.model / "no")]
    began = time.monotonic()
    code = main(command)
    assert time.monotonic() - began < 10
    check_one_line(code, 2, (f"no Ray cluster answers at 127.0.0.1:{closed}", "6379"), capfd)
    assert not (toy.model / "no").exists()


@pytest.mark.parametrize(("address", "words"), [("ray://head:10001", "ray job submit"), ("head", "is not host:port")])
def test_an_address_of_another_kind_is_explained(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_address(address)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
def test_what_is_not_a_cluster_is_noticed(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.execution.cluster.connection._SECONDS_TO_CONNECT", 0.3)

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            if answer is None:
                time.sleep(1)  # it never answers
            else:
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        with pytest.raises(UsageError, match=r"not a Ray cluster|no Ray cluster answers"):
            check_address(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_without_the_extra_it_is_one_line(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code = main([*toy.curve, "--on", "ray", "--out", str(tmp_path / "out")])
    check_one_line(code, 4, ("ray is not installed", "pip install 'frostline[ray]'"), capfd)
