"""Commands in processes of their own that need not import torch: they are forked from one that has.

Real processes with real signals; only the seconds of importing are saved. So are those of the process that forks a
command's workers. `python -m frostline` itself is run by the tests of the package, signals and the mistakes; a plain
script in a Python of its own by the tests of the interface.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import typer

from frostline.execution import fork_server, local, worker
from frostline.execution.fork_server import ForkedProcess, ForkServer


class _ForkedForkServer(ForkServer):  # type: ignore[misc] # final, for everybody else
    """A fork server that is itself forked, from a process that has imported torch."""

    def _begin(self, log: int) -> None:
        self._control, theirs = socket.socketpair()
        if pid := os.fork():
            theirs.close()
            self._process = _Child(pid)  # type: ignore[assignment]
            return
        for file, copy in ((log, 1), (log, 2), (theirs.fileno(), 3)):
            os.dup2(file, copy, inheritable=False)
        os.closerange(4, 1024)  # a copy of a pipe's end would keep the pipe open
        os.environ.update(self._environment)
        sys.argv = ["worker", str(self._max_cache_bytes), "3"]
        worker.main()
        os._exit(0)


class _Child:
    """What a server asks of its process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            return self._code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)

    def wait(self) -> int:
        while (code := self.poll()) is None:  # not `waitpid`: another thread may have to kill it
            time.sleep(0.001)
        return code


class _Grandchild:
    """What a server asks of its process, for one that the process that forks commands has forked."""

    def __init__(self, process: ForkedProcess, pid: int) -> None:
        self._process, self.pid = process, pid

    def poll(self) -> int | None:
        return self._process.code(timeout=0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)

    def wait(self) -> int:
        code = self._process.code()
        self._process._ended.close()
        return code or 0


class QuickForkServer(ForkServer):  # type: ignore[misc]
    """A fork server for executors in this process. It is forked from a process that has imported torch."""

    def _begin(self, log: int) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            asked = {"max_cache_bytes": self._max_cache_bytes, "environment": self._environment}
            process, pid = _forked(asked, theirs.fileno(), log)
        self._process = _Grandchild(process, pid)  # type: ignore[assignment]


def _serve(control: int, log: int, max_cache_bytes: int) -> None:
    """Becomes a fork server."""
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    sys.argv = ["worker", str(max_cache_bytes), str(control)]
    worker.main()


def _become(folder: int, request: int, stdout: int, stderr: int, status: int) -> None:
    """Becomes a command or a fork server."""
    # A suite that runs in the background, or under nohup, ignores some of them; its commands must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with os.fdopen(request) as stream:
        asked = json.load(stream)
    if asked.get("own_group"):
        os.setsid()
    os.write(status, os.getpid().to_bytes(4, "little"))
    os.fchdir(folder)
    for file in (folder, status):
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    if "max_cache_bytes" in asked:
        _customize()
        _serve(stdout, stderr, asked["max_cache_bytes"])
    else:
        _command(stdout, stderr, asked["arguments"], asked["script"])


def _customize() -> None:
    """Does what a Python that starts does with PYTHONPATH: modules are found there, `sitecustomize` first of all."""
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    for folder in folders[:1]:
        if (custom := Path(folder, "sitecustomize.py")).is_file():
            exec(compile(custom.read_text(), custom, "exec"), {"__name__": "sitecustomize"})


def _command(stdout: int, stderr: int, arguments: list[str], script: str | None) -> None:
    """Becomes a command, or runs a script."""
    from frostline.cli.main import entry

    for file, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(file, standard)
        os.close(file)
    sys.argv = ["frostline", *arguments]
    vars(local)["ForkServer"] = _ForkedForkServer
    code = 1
    try:
        if script is None:
            entry()
        else:
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
            code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception:  # noqa: BLE001 - as Python's own outermost frame does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Command:
    """A command that is under way: what the tests use of `Popen`."""

    def __init__(self, process: ForkedProcess, pid: int, stdout: int, stderr: int) -> None:
        self._process, self.pid = process, pid
        self._streams = [os.fdopen(file, encoding="utf-8") for file in (stdout, stderr)]
        self.returncode = 0
        """once it has ended"""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.code(timeout=0)

    def communicate(self) -> tuple[str, str]:
        """What it wrote on standard output and standard error, when it has ended."""
        said = ["", ""]

        def read(place: int) -> None:
            with self._streams[place] as stream:
                said[place] = stream.read()

        threads = [threading.Thread(target=read, args=(place,)) for place in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.close()
        return said[0], said[1]

    def close(self) -> None:
        """Waits for its end and closes its pipes."""
        for stream in self._streams:
            stream.close()
        self.returncode = self._process.code() or 0
        self._process.close()


class CommandServer(ForkServer):  # type: ignore[misc]
    """Starts the process that forks commands."""

    program: ClassVar[tuple[str, ...]] = (__file__,)

    def _begin(self, log: int) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *self.program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=self._environment,
            )


_fork_server: list[CommandServer] = []
_ENVIRONMENT = dict(os.environ)
"""of the process that forks commands: not what the test that happens to need it first has changed"""


def start(
    *arguments: str,
    cwd: Path,
    own_group: bool,
    environment: Mapping[str, str],
    server: CommandServer | None = None,
    script: str | None = None,
) -> Command:
    """A command, or a script of Python, under way; `server` forks it, or one that all share."""
    stdout, their_stdout = os.pipe()
    stderr, their_stderr = os.pipe()
    asked = {"arguments": arguments, "script": script, "own_group": own_group, "environment": dict(environment)}
    try:
        with contextlib.chdir(cwd):
            process, pid = _forked(asked, their_stdout, their_stderr, server)
    finally:
        for file in (their_stdout, their_stderr):
            os.close(file)
    return Command(process, pid, stdout, stderr)


def _forked(
    asked: Mapping[str, object], stdout: int, stderr: int, server: CommandServer | None = None
) -> tuple[ForkedProcess, int]:
    """A process that was forked to do what is asked, and its id."""
    if server is None:
        if not _fork_server:
            _fork_server.append(CommandServer(0, _ENVIRONMENT))
        server = _fork_server[0]
    their_request, request = os.pipe()
    try:
        with os.fdopen(request, "w") as stream:
            json.dump(asked, stream)
        process = server.fork(their_request, stdout, stderr)
    finally:
        os.close(their_request)
    pid = int.from_bytes(process._ended.read(4), "little")
    assert pid, server.log
    return process, pid


def sketch(spec: Mapping[str, object], **_: object) -> str:
    """An empty picture instead of a chart. What cannot be drawn, because it is not JSON, fails here too."""
    json.dumps(spec, allow_nan=False)
    return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'


def build_once(app: typer.Typer) -> None:
    """Has typer build the commands of the app once per process; it would do so for each call of `main`."""
    from typer import main as typer_main

    import frostline.cli.main  # noqa: F401 - registers all commands

    build = typer_main.get_command
    built = build(app)
    vars(typer_main)["get_command"] = lambda given: built if given is app else build(given)


def close() -> None:
    """Ends the process that forks commands."""
    for server in _fork_server:
        server.end()
    _fork_server.clear()


def main() -> None:
    """Imports what commands and their workers need, then forks them."""
    import altair  # noqa: F401 - a second for each command that makes a page
    import pyarrow.parquet  # noqa: F401
    import pydantic.type_adapter  # noqa: F401 - typer imports it when it reads arguments
    import sklearn.covariance
    import sklearn.linear_model  # noqa: F401
    import vl_convert
    from transformers import conversion_mapping
    from transformers.models.bert import modeling_bert  # noqa: F401 - a second for each command

    import frostline.api
    import frostline.studies.registry
    import frostline.studies.requests.resolve
    import frostline.training.run  # noqa: F401
    from frostline.cli.app import app

    build_once(app)
    vars(vl_convert)["vegalite_to_svg"] = sketch
    conversion_mapping.get_checkpoint_conversion_mapping("bert")  # the library computes it once per process
    gc.freeze()
    fork_server.serve(socket.socket(fileno=int(sys.argv[1])), _become)


if __name__ == "__main__":
    main()
