"""Saving a trained model as an ordinary transformers folder.

`from_pretrained` and `pipeline` open the folder. It also holds a manifest for `predict` and a model card.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined, Template
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from frostline.model.load import has_added, quiet, save_added
from frostline.model.stack import Stack
from frostline.records.results import RunResult
from frostline.report.formats.markdown import escape
from frostline.report.numbers import one_line
from frostline.saving.folder import check_new_folder
from frostline.saving.manifest import write_manifest
from frostline.storage import atomic
from frostline.strategies import parse

_CARD = """\
# {{ base | shown }} on {{ r.spec.task.name | shown }}

Fine-tuned with frostline {{ r.environment.versions.frostline }}: \
`{{ r.spec.strategy }}` trained {{ "{:,}".format(r.cost.trained_parameters) }} of \
{{ "{:,}".format(r.cost.total_parameters) }} parameters on {{ r.n_train }} rows \
({{ r.spec.epochs }} epoch{{ "" if r.spec.epochs == 1 else "s" }}, \
batch {{ r.spec.batch_size }}, rate {{ "%g" | format(r.spec.learning_rate) }}, seed {{ r.spec.seed }}).
{% if not is_plain %}
It has added modules that its transformers class does not have: load it with `frostline predict`, not with
`from_pretrained`.
{% endif %}\
{% if r.label_scale %}
It learned standardised labels: `frostline predict` gives values on the labels' own scale. Elsewhere, multiply its
outputs by {{ "%.6g" | format(r.label_scale[1]) }} and add {{ "%.6g" | format(r.label_scale[0]) }}.
{% endif %}\

| metric | dev ({{ r.n_dev }} rows) |
|---|---:|
{% for name, value in r.metrics.items() -%}
| {{ name }} | {{ "%.4f" | format(value) }} |
{% endfor %}
This is the score of one seed; `frostline curve` gives an interval. Score without reading a text: \
{{ "%.4f" | format(r.chance) }} \
({{ r.spec.task.metric }}).
"""


def save_model(result: RunResult, stack: Stack, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Writes the model, its tokenizer, its card and its manifest; the folder appears when it is complete."""
    with new_model_folder(folder) as unfinished:
        write_model(stack, result.spec.strategy, unfinished)
        write_tokenizer(tokenizer, result.spec.max_length, unfinished)
        write_manifest(result, unfinished)
        (unfinished / "README.md").write_text(_card(result, is_plain=not has_added(unfinished)), encoding="utf-8")
    return folder


@contextlib.contextmanager
def new_model_folder(folder: Path, flag: str = "--save") -> Iterator[Path]:
    """A folder to write a model into; it appears under its name when it is complete, and never over another."""
    check_new_folder(folder, flag)
    with atomic.explained(f"{flag} {folder}"), rust_errors_as_os_errors(), atomic.new_folder(folder) as unfinished:
        yield unfinished
        check_new_folder(folder, flag)  # another process may have filled it in the meantime


def write_model(stack: Stack, strategy: str, folder: Path) -> None:
    """Writes configuration and weights; added modules are merged where their strategy can, so the model changes."""
    with quiet():
        if parse(strategy).merge_modules(stack):
            stack.model.save_pretrained(folder)
        else:
            save_added(stack, folder)


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, max_length: int, folder: Path) -> None:
    """Writes the tokenizer, with the length that texts were cut at in training."""
    tokenizer.model_max_length = max_length  # the limit of `pipeline(..., truncation=True)`
    tokenizer.save_pretrained(folder)


@contextlib.contextmanager
def rust_errors_as_os_errors() -> Iterator[None]:
    """Turns errors of safetensors and tokenizers that cannot write into the OSError that Python would raise."""
    try:
        yield
    except Exception as error:  # tokenizers raises the base class itself
        number = re.search(r"os error (\d+)", str(error))
        if number is None or not (isinstance(error, SafetensorError) or type(error) is Exception):
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _card(result: RunResult, *, is_plain: bool) -> str:
    library = "transformers" if is_plain else "frostline"
    return model_card(_CARD, base=result.spec.model, library=library, r=result, is_plain=is_plain)


def model_card(template: str, *, base: str, library: str, **values: object) -> str:
    """A model card: the fields that the Hub reads, then Markdown.

    Args:
        template: of the Markdown; it may use `base`, `values`, and the filter `shown` for names from outside.
        base: the model that was fine-tuned; of a folder, the card shows only its name.
        library: which library opens the folder.
        values: for the template.
    """
    shown = Path(base).name if Path(base).is_dir() else base
    fields = {
        "base_model": shown,
        "library_name": library,
        "pipeline_tag": "text-classification",
        "tags": ["frostline"],
    }
    front_matter = yaml.safe_dump(fields, sort_keys=False, width=math.inf)  # no name goes over two lines
    return f"---\n{front_matter}---\n" + _compiled(template).render(base=shown, **values)


@functools.cache
def _compiled(template: str) -> Template:
    # Markdown, not HTML: what jinja escapes would be shown as it is.
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    environment.filters["shown"] = lambda name: escape(one_line(str(name)))
    return environment.from_string(template)
