"""The two pages of a server: `/` to try its tasks, `/docs` from the OpenAPI document. They load nothing else."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

_POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def try_page(trunk: str, n_layers: int, tasks: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, str]]:
    """The page to try tasks, and its headers."""
    return _rendered("try.html", trunk=trunk, n_layers=n_layers, tasks=tasks, script=_asset("script.js"))


def docs_page(document: Mapping[str, Any], host: str, task: str) -> tuple[str, dict[str, str]]:
    """The page that shows an OpenAPI document, and its headers. Its examples ask this host for this task."""
    return _rendered("docs.html", document=document, host=host, routes=list(_routes(document, task)))


def _rendered(template: str, **values: Any) -> tuple[str, dict[str, str]]:
    nonce = secrets.token_urlsafe(16)
    page = _environment().get_template(template)
    html = page.render(nonce=nonce, style=_asset("style.css"), version=metadata.version("frostline"), **values)
    return html, {"Content-Security-Policy": _POLICY.format(nonce=nonce)}


def _routes(document: Mapping[str, Any], task: str) -> Iterator[dict[str, Any]]:
    """What the page shows of each route."""
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {})
            example = schema.get("example")
            if "model" in schema.get("properties", {}):
                example = {"model": task, **{name: value for name, value in example.items() if name != "model"}}
            yield {
                "path": path,
                "method": method.upper(),
                "text": route.get("description", ""),
                "fields": {name: field.get("description", "") for name, field in schema.get("properties", {}).items()},
                "required": schema.get("required", []),
                "example": None if example is None else json.dumps(example),
                "responses": {
                    status: response["description"]
                    for status, response in route["responses"].items()
                    if method == "post"
                },
            }


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["with_code"] = _with_code
    return made


def _with_code(text: str) -> Markup:
    """A text as HTML, with what stands between backticks as code."""
    parts = [
        f"<code>{escape(part)}</code>" if place % 2 else escape(part) for place, part in enumerate(text.split("`"))
    ]
    return Markup("".join(parts))


@functools.cache
def _asset(name: str) -> Markup:
    return Markup((resources.files(__package__) / name).read_text(encoding="utf-8"))
