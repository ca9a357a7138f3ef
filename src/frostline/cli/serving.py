"""The command that serves: many tasks over one trunk, by HTTP."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frostline.cli.app import app
from frostline.cli.flags import AsJson, option, print_json, say
from frostline.errors import EXIT_SIGNAL, MissingExtraError
from frostline.records.environment import n_cores
from frostline.records.serial import field_docs
from frostline.serving.server.settings import ServerSettings

if TYPE_CHECKING:
    from frostline.serving.server.run import TaskServer

_HELP, _PLAIN = field_docs(ServerSettings), ServerSettings()
_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")


@app.command()
def serve(
    bundles: Annotated[
        list[str],
        typer.Argument(metavar="BUNDLE …", help="folders that `train --bundle` or `bundle` made: DIR or NAME=DIR"),
    ],
    trunk: Annotated[str, option("the model that all bundles were made for: a folder or a name on the Hub", "--trunk")],
    host: Annotated[str, option(_HELP["host"], "--host", default=_PLAIN.host)] = _PLAIN.host,
    port: Annotated[int, option(_HELP["port"], "--port", default=str(_PLAIN.port))] = _PLAIN.port,
    token_file: Annotated[
        Path | None, option("file with bearer tokens, one per line; then every request needs one", "--token-file")
    ] = None,
    threads: Annotated[int | None, option(_HELP["n_threads"], "--threads", default="one per core")] = None,
    deadline: Annotated[
        float, option(_HELP["deadline_seconds"], "--deadline", default=f"{_PLAIN.deadline_seconds:g} seconds")
    ] = _PLAIN.deadline_seconds,
    max_queue: Annotated[
        int, option(_HELP["max_queued"], "--max-queue", default=str(_PLAIN.max_queued))
    ] = _PLAIN.max_queued,
    max_texts: Annotated[int, option(_HELP["max_texts"], "--max-texts", default=str(_PLAIN.max_texts))] = (
        _PLAIN.max_texts
    ),
    max_characters: Annotated[
        int, option(_HELP["max_characters"], "--max-characters", default=str(_PLAIN.max_characters))
    ] = _PLAIN.max_characters,
    max_body: Annotated[
        int, option(f"{_HELP['max_body_bytes']}, in bytes", "--max-body", default=str(_PLAIN.max_body_bytes))
    ] = _PLAIN.max_body_bytes,
    batch_tokens: Annotated[
        int, option(_HELP["batch_tokens"], "--batch-tokens", default=str(_PLAIN.batch_tokens))
    ] = _PLAIN.batch_tokens,
    batch_wait: Annotated[
        float, option(f"{_HELP['wait_seconds']}, in seconds", "--batch-wait", default=f"{_PLAIN.wait_seconds:g}")
    ] = _PLAIN.wait_seconds,
    read_timeout: Annotated[
        float, option(f"{_HELP['read_seconds']}, in seconds", "--read-timeout", default=f"{_PLAIN.read_seconds:g}")
    ] = _PLAIN.read_seconds,
    max_connections: Annotated[
        int, option(_HELP["max_connections"], "--max-connections", default=str(_PLAIN.max_connections))
    ] = _PLAIN.max_connections,
    verbose: Annotated[
        bool, option("log every request: method, route, status, time", "--verbose", default="off")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer HTTP requests for many tasks over one trunk. SIGHUP reloads the bundles; SIGTERM finishes and ends."""
    settings = ServerSettings(
        host=host,
        port=port,
        n_threads=n_cores() if threads is None else threads,
        batch_tokens=batch_tokens,
        wait_seconds=batch_wait,
        deadline_seconds=deadline,
        max_queued=max_queue,
        max_body_bytes=max_body,
        max_texts=max_texts,
        max_characters=max_characters,
        read_seconds=read_timeout,
        max_connections=max_connections,
    )
    settings.check()
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "serve")
    # Its threads would fight with those that compute. Before the library is imported.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from frostline.serving.server.run import TaskServer

    # What was imported stays. Looking through half a million objects would stop all threads for a moment, now and then.
    gc.collect()
    gc.freeze()
    _log_to_stderr(is_verbose=verbose)
    server = TaskServer(trunk, bundles, settings, token_file)
    number = server.run(lambda address: _announce(server, address, as_json=as_json))
    if number is not None:
        raise typer.Exit(EXIT_SIGNAL + number)


def _announce(server: TaskServer, address: str, *, as_json: bool) -> None:
    """Says where the server listens, once it does."""
    tasks = server.parts.tasks.current
    if as_json:
        print_json(
            {"address": address, "trunk": server.parts.trunk, "tasks": {name: tasks[name].hash for name in tasks}}
        )
    else:
        say(f"{len(tasks)} task{'' if len(tasks) == 1 else 's'} on {server.parts.trunk}: {', '.join(tasks)}")
        say(f"listening at {address}  (page: {address}/  API: {address}/docs)")
    sys.stdout.flush()  # the program that started the server may wait for this line


def _log_to_stderr(*, is_verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    log = logging.getLogger("frostline.server")
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if is_verbose else logging.INFO)
