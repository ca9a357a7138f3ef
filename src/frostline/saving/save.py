"""Saving a trained model as an ordinary transformers folder.

`from_pretrained` and `pipeline` open the folder. It also holds a manifest for `predict` and a model card.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from frostline.errors import UsageError
from frostline.model.load import has_added, quiet, save_added
from frostline.model.stack import Stack
from frostline.records.results import RunResult
from frostline.saving.manifest import write_manifest
from frostline.storage import atomic
from frostline.strategies import parse

_CARD = """\
---
base_model: {{ base }}
library_name: {{ "transformers" if is_plain else "frostline" }}
pipeline_tag: text-classification
tags: [frostline]
---
# {{ base }} on {{ r.spec.task.name }}

Fine-tuned with frostline {{ r.environment.versions.frostline }}: \
`{{ r.spec.strategy }}` trained {{ "{:,}".format(r.cost.trained_parameters) }} of \
{{ "{:,}".format(r.cost.total_parameters) }} parameters on {{ r.n_train }} rows ({{ r.spec.epochs }} epochs, \
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
    check_new_folder(folder)
    with atomic.explained(f"--save {folder}"), weight_errors_as_os_errors(), atomic.new_folder(folder) as unfinished:
        with quiet():
            if parse(result.spec.strategy).merge_modules(stack):
                stack.model.save_pretrained(unfinished)
            else:
                save_added(stack, unfinished)
        tokenizer.model_max_length = result.spec.max_length  # the limit of `pipeline(..., truncation=True)`
        tokenizer.save_pretrained(unfinished)
        write_manifest(result, unfinished)
        (unfinished / "README.md").write_text(_card(result, is_plain=not has_added(unfinished)), encoding="utf-8")
        check_new_folder(folder)  # another process may have filled it in the meantime
    return folder


def check_new_folder(folder: Path) -> None:
    """Raises if saving to this path would overwrite something, or if a folder cannot be made there."""
    with atomic.explained(f"--save {folder}"):
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"--save {folder} is a broken link; give a new or empty folder")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--save {folder} exists already; give a new or empty folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Try it now: a folder that cannot be made should not be noticed only after training.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as private:
            (Path(private) / folder.name).mkdir()


@contextlib.contextmanager
def weight_errors_as_os_errors() -> Iterator[None]:
    """Turns the errors of safetensors, when it cannot write, into the OSError that Python would raise."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _card(result: RunResult, *, is_plain: bool) -> str:
    model = Path(result.spec.model)
    # Markdown, not HTML: escaped characters would be shown as they are.
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    base = model.name if model.is_dir() else result.spec.model
    return environment.from_string(_CARD).render(r=result, base=base, is_plain=is_plain)
