"""Messages between the driver and a worker process: one line of JSON, then raw bytes if there are any.

The line says how many bytes follow. A checkpoint of a small real model has 270 MB, too much for base64 in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from frostline.execution.executor import Job
from frostline.records.specs import RunSpec

Message = tuple[dict[str, Any], bytes]


def send(stream: IO[bytes], content: Mapping[str, object], attached: bytes = b"") -> None:
    """Writes a message and flushes it."""
    line = json.dumps({**content, "n_bytes": len(attached)}, allow_nan=False)
    stream.write(line.encode("utf-8") + b"\n")
    stream.write(attached)
    stream.flush()


def receive(stream: IO[bytes]) -> Message | None:
    """The next message; None if the stream has ended.

    A sender that is killed may leave half a line or half of the bytes. That is the end of the stream too: the message
    is dropped.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    content: dict[str, Any] = json.loads(line)
    n_bytes = content.pop("n_bytes")
    attached = stream.read(n_bytes)
    return (content, attached) if len(attached) == n_bytes else None


def job_message(job: Job) -> Message:
    """A job as a message."""
    content = {"spec": job.spec.to_json(), "until": job.until, "nearby": list(job.nearby)}
    return content | {"has_checkpoint": job.checkpoint is not None}, job.checkpoint or b""


def job_from_message(content: dict[str, Any], attached: bytes) -> Job:
    """The job of a message."""
    checkpoint = attached if content["has_checkpoint"] else None
    return Job(RunSpec.from_json(content["spec"]), content["until"], checkpoint, tuple(content["nearby"]))
