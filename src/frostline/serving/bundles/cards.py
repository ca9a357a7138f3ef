"""What people read about a bundle: its model card, and one line for the terminal."""

from __future__ import annotations

from frostline.report import numbers
from frostline.saving.save import model_card
from frostline.serving.bundle import TAIL, Bundle, BundleManifest

_BUNDLE = """\
# {{ m.name | shown }}, a task over {{ base | shown }}

What `{{ m.strategy }}` changed in {{ base | shown }}: {{ size }}. Everything else is read from {{ base | shown }}, \
which must be the same model to the bit. {{ sharing }}
{% if m.dtype != "fp32" %}
Its numbers are stored in {{ m.dtype }}. Merged with its base it is not the model that was trained, but one close to it.
{%- if m.score_in_dtype is none %} \
What that costs was not measured; `frostline bundle … --dev FILE` measures it.{% endif %}
{% endif %}\
{% if m.metric and m.score is not none %}
| number format | {{ m.metric }} on dev |
|---|---:|
| fp32 | {{ "%.4f" | format(m.score) }} |
{% if m.dtype != "fp32" -%}
| {{ m.dtype }} | {{ "not measured" if m.score_in_dtype is none else "%.4f" | format(m.score_in_dtype) }} |
{% endif %}\
{% endif %}\
{% if m.label_names %}
Classes: {{ labels }}.
{% endif %}
```
frostline serve DIR --trunk {{ base | shown }}
frostline bundle merge DIR --base {{ base | shown }} --save NEW_DIR
```
"""

_MERGED = """\
# {{ base | shown }} on {{ m.name | shown }}

Merged from a frostline bundle (`{{ m.strategy }}`, {{ bundle }}) and its base.
{% if m.dtype != "fp32" %}
The bundle held numbers in {{ m.dtype }}: this is not the model that was trained, but one close to it.
{% endif %}\
{% if not is_plain %}
It has added modules that its transformers class does not have: load it with `frostline predict`, not with
`from_pretrained`.
{% endif %}\
{% if m.label_scale %}
It learned standardised labels: `frostline predict` gives values on the labels' own scale. Elsewhere, multiply its
outputs by {{ "%.6g" | format(m.label_scale[1]) }} and add {{ "%.6g" | format(m.label_scale[0]) }}.
{% endif %}\
{% if m.metric and m.final_score is not none %}
| metric | dev |
|---|---:|
| {{ m.metric }} | {{ "%.4f" | format(m.final_score) }} |
{% endif %}\
"""
_MOST_LABELS = 20


def sharing(manifest: BundleManifest) -> str:
    """What a task shares with other tasks of its trunk, in a sentence."""
    if manifest.depth is None:
        return "It shares storage with other tasks of this base, but no compute: its embeddings are its own."
    if manifest.depth == 0:
        return "It shares storage with other tasks of this base, but no compute: its lowest layer is its own."
    layers = f"the lowest {manifest.depth} of {manifest.n_layers} layers"
    if manifest.depth == manifest.n_layers:
        layers = f"all {manifest.n_layers} layers"
    return f"It shares the embeddings and {layers} with other tasks of this base: they are computed once for all."


def bundle_card(bundle: Bundle) -> str:
    """The model card of a bundle."""
    manifest = bundle.manifest
    shown = [str(name) for name in manifest.label_names[:_MOST_LABELS]]
    more = len(manifest.label_names) - len(shown)
    return model_card(
        _BUNDLE,
        base=manifest.trunk.name,
        library="frostline",
        m=manifest,
        size=size(bundle),
        sharing=sharing(manifest),
        labels=", ".join(f"`{_plain(name)}`" for name in shown) + (f" and {more} more" if more else ""),
    )


def merged_card(bundle: Bundle, *, is_plain: bool) -> str:
    """The model card of the folder that a bundle and its base were merged into."""
    library = "transformers" if is_plain else "frostline"
    base = bundle.manifest.trunk.name
    return model_card(_MERGED, base=base, library=library, m=bundle.manifest, bundle=bundle.hash, is_plain=is_plain)


def size(bundle: Bundle) -> str:
    """The size of the tensors in a bundle, for people."""
    return numbers.size((bundle.folder / TAIL).stat().st_size)


def _plain(name: str) -> str:
    """A label that stays inside the backticks around it."""
    return numbers.one_line(name).replace("`", "'")
