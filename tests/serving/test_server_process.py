"""`frostline serve` as a process: curl, the documented client, reload, drain, kill and restart."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from commands import Command, check_one_line, start
from frostline.cli import main

from .served import Client, Toys, wait_until
from .tasks import make_task

TEXT = "the film is good"
DOCS = Path(__file__).parent.parent.parent / "docs" / "serving.md"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@contextlib.contextmanager
def command(
    toys: Toys, folder: Path, *given: str, bundles: list[str] | None = None
) -> Iterator[tuple[Client, Command]]:
    """A server in a process of its own, which is killed at the latest when the test ends."""
    client = Client(f"http://127.0.0.1:{free_port()}")
    flags = ["--trunk", str(toys.trunk), "--port", str(client.place[1]), "--threads", "1", "--deadline", "10", *given]
    process = start("serve", *(bundles or toys.folders), *flags, cwd=folder)
    try:
        wait_until_ready(client, process)
        yield client, process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def wait_until_ready(client: Client, process: Command) -> None:
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            if client.get("/ready").status == 200:
                return
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def ended(process: Command, seconds: float = 15) -> tuple[int, str, str]:
    until = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < until, "it does not end"
        time.sleep(0.02)
    stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


def test_curl_and_the_documented_client_and_the_end(toys: Toys, tmp_path: Path) -> None:
    with command(toys, tmp_path) as (client, process):
        body = json.dumps({"model": "topic", "input": [TEXT]})
        curl = ["curl", "-sS", "--max-time", "20", f"{client.address}/v1/classify"]
        done = subprocess.run(
            [*curl, "-H", "Content-Type: application/json", "-d", body], capture_output=True, check=True
        )
        (item,) = json.loads(done.stdout)["data"]
        assert item["probs"] == pytest.approx(toys.probabilities("topic", TEXT)[0], abs=1e-5)
        block = re.search(r"^```python\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert block is not None
        code = block[1].replace("http://127.0.0.1:8000", client.address)
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        assert said.returncode == 0, said.stderr
        for name in ("sentiment", "topic", "stars", "biased"):
            assert name in said.stdout
        os.kill(process.pid, signal.SIGTERM)
        code_, stdout, stderr = ended(process)
    assert (code_, stderr) == (0, "")
    assert f"listening at {client.address}" in stdout
    assert "5 tasks on trunk: sentiment, topic, stars, biased, pairs" in stdout


def test_sigterm_answers_all_that_was_admitted(toys: Toys, tmp_path: Path) -> None:
    with command(toys, tmp_path) as (client, process), ThreadPoolExecutor(16) as pool:
        body = {"model": "topic", "input": [TEXT] * 64}
        sent = [pool.submit(client.post, "/v1/classify", body) for _ in range(16)]
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGTERM)
        assert [one.result().status for one in sent] == [200] * 16
        assert ended(process)[0] == 0
        with pytest.raises(OSError, match="refused"):
            client.get("/health")


def test_a_second_signal_ends_it_at_once(toys: Toys, tmp_path: Path) -> None:
    with command(toys, tmp_path, "--read-timeout", "60") as (client, process), client.socket() as slow:
        slow.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 10\r\n\r\n")  # fmt: skip
        wait_until(lambda: b" 1.0" in client.get("/metrics").body)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.6)
        assert process.poll() is None, "it waits for the request under way"
        os.kill(process.pid, signal.SIGTERM)
        code, _, stderr = ended(process, seconds=5)
    assert (code, stderr) == (143, "")


def test_killed_and_started_again_it_serves(toys: Toys, tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with command(toys, tmp_path, bundles=toys.folders[:1]) as (client, process):
            assert client.post("/v1/classify", {"input": TEXT}).status == 200
            os.kill(process.pid, number)
            ended(process)
            with pytest.raises(OSError, match="refused"):
                client.get("/health")


def test_reload_under_load_never_mixes_old_and_new(toys: Toys, tmp_path: Path) -> None:
    """Two tasks swap to other weights together, again and again; a damaged bundle is refused and changes nothing."""
    variants = [
        {name: make_task(tmp_path / f"{turn}" / name, toys.trunk, f"freeze:{depth}", seed=10 * turn + depth)
         for name, depth in (("a", 1), ("b", 2))}
        for turn in (1, 2)
    ]  # fmt: skip
    wanted = {
        task.bundle.hash: Toys(toys.trunk, variant).probabilities(name, TEXT)[0]
        for variant in variants
        for name, task in variant.items()
    }
    links = [tmp_path / "live" / name for name in ("a", "b")]
    links[0].parent.mkdir()

    def point_to(folder: Path) -> None:
        for link in links:
            fresh = link.with_suffix(".new")
            fresh.symlink_to(folder / link.name)
            fresh.rename(link)

    point_to(tmp_path / "1")
    seen: Counter[tuple[str, str]] = Counter()
    is_over = threading.Event()
    hashes = [tuple(variant[name].bundle.hash for name in ("a", "b")) for variant in variants]

    def ask(client: Client) -> None:
        while not is_over.is_set():
            answer = client.post("/v1/classify/combined", {"input": TEXT, "tasks": "all"})
            assert answer.status == 200, answer.body
            results = answer.json["results"]
            for result in results.values():
                assert result["data"][0]["probs"] == pytest.approx(wanted[result["bundle"]], abs=1e-5)
            seen[results["a"]["bundle"], results["b"]["bundle"]] += 1

    with command(toys, tmp_path, bundles=[str(link) for link in links]) as (client, process):
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, client) for _ in range(4)]
            for turn in (2, 1, 2):
                point_to(tmp_path / str(turn))
                os.kill(process.pid, signal.SIGHUP)
                wait_until(functools.partial(_serves, client, hashes[turn - 1]))
            damaged = tmp_path / "1" / "a" / "tail.safetensors"
            damaged.write_bytes(damaged.read_bytes()[:-4])
            point_to(tmp_path / "1")
            os.kill(process.pid, signal.SIGHUP)
            mixed = (hashes[1][0], hashes[0][1])  # a stays as it was, b is new: each is right, and named
            wait_until(lambda: mixed in seen)
            is_over.set()
            for one in asking:
                one.result()
        os.kill(process.pid, signal.SIGTERM)
        code, _, stderr = ended(process)
    assert code == 0
    assert "the task a stays as it was" in stderr
    assert "tail.safetensors" in stderr
    assert set(seen) <= {*hashes, mixed}
    assert len(seen) >= 3
    assert np.abs(wanted[hashes[0][0]] - wanted[hashes[1][0]]).max() > 1e-2, "the variants can be told apart"


def _serves(client: Client, hashes: tuple[str, ...]) -> bool:
    return tuple(one["bundle"] for one in client.get("/v1/models").json["data"]) == hashes


def test_mistakes_are_one_line(toys: Toys, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trunk = ("--trunk", str(toys.trunk))
    check_one_line(main(["serve", toys.folders[0]]), 2, ("--trunk",), capfd)
    check_one_line(main(["serve", "none", *trunk]), 3, ("none",), capfd)
    check_one_line(main(["serve", toys.folders[0], *trunk, "--host", "0.0.0.0"]), 2, ("--token-file",), capfd)
    many = [*trunk, "--port", "70000", "--threads", "0", "--deadline", "-1"]
    check_one_line(main(["serve", toys.folders[0], *many]), 2, ("port is 70000", "n_threads is 0", "-1"), capfd)
    shutil.copytree(toys.folders[0], tmp_path / "a=b")
    check_one_line(main(["serve", "=x", *trunk]), 2, ("DIR or NAME=DIR",), capfd)


def test_without_the_extra_it_says_what_to_install(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else plain(name))
    code = main(["serve", toys.folders[0], "--trunk", str(toys.trunk)])
    check_one_line(code, 4, ("uvicorn is not installed", "pip install 'frostline[serve]'"), capfd)


def test_the_container_file_is_the_documented_one_and_its_flags_exist(capfd: pytest.CaptureFixture[str]) -> None:
    file = (DOCS.parent.parent / "examples" / "serve.Containerfile").read_text(encoding="utf-8")
    assert f"```dockerfile\n{file}```" in DOCS.read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", file, re.MULTILINE)
    words = json.loads(entry)
    assert words[:2] == ["frostline", "serve"]
    main(["serve", "--help"])
    said = capfd.readouterr().out
    for flag in [word for word in words if word.startswith("--")]:
        assert flag in said


def test_every_flag_of_the_page_exists(capfd: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--help"])
    said = capfd.readouterr().out
    page = DOCS.read_text(encoding="utf-8")
    own = {"--deadline", "--max-body", "--max-queue", "--batch-tokens", "--batch-wait", "--token-file", "--host"}
    assert own <= set(re.findall(r"--[a-z-]+", page))
    assert own <= set(re.findall(r"--[a-z-]+", said))
