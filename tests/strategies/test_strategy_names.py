"""How strategies are written: what is read, what is refused in one line, and what they mean for a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import strategies
from frostline.errors import UsageError
from frostline.strategies import (
    Adapter,
    Attention,
    BiLstm,
    BitFit,
    Features,
    FeedForward,
    Freeze,
    FreezeRest,
    Full,
    Gradual,
    Layers,
    Lora,
    Norms,
    Reinit,
    SetFit,
    Strategy,
    Subspace,
    Transfer,
    parse,
)

WRITTEN: dict[str, Strategy] = {
    "full": Full(),
    "freeze:0": Freeze(0),
    "freeze:12": Freeze(12),
    "freeze:+3": FreezeRest(3),
    "layers:1+2+11": Layers(frozenset({1, 2, 11})),
    "attention@0": Attention(0),
    "attention@3": Attention(3),
    "ffn@3": FeedForward(3),
    "reinit:2": Reinit(2),
    "subspace:0": Subspace(0),
    "subspace:1000": Subspace(1000),
    "setfit": SetFit(),
    "setfit:20": SetFit(20),
    "transfer:0": Transfer(0),
    "lora:8": Lora(8),
    "lora:8@3": Lora(8, 3),
    "adapter:16": Adapter(16),
    "adapter:16@3": Adapter(16, 3),
    "bitfit": BitFit(),
    "norms": Norms(),
    "features": Features(),
    "features:logreg": Features("logreg"),
    "features:ridge": Features("ridge"),
    "features@0.first": Features(None, (0, "first")),
    "features:logreg@4.mean": Features("logreg", (4, "mean")),
    "features:ridge@12.last": Features("ridge", (12, "last")),
    "features:bilstm": BiLstm(),
    "gradual": Gradual(),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_is_read_and_written_again(text: str) -> None:
    assert parse(text) == WRITTEN[text]
    assert parse(text).name == text
    assert parse(f" {text} ") == WRITTEN[text]


def test_a_range_of_layers() -> None:
    assert parse("layers:1-2+11") == Layers(frozenset({1, 2, 11}))
    assert parse("layers:1-2+11").name == "layers:1+2+11"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lorra:8", ("unknown strategy 'lorra:8'", "lora:R", "freeze:N", "Did you mean 'lora'?")),
        ("", ("unknown strategy ''", "known: full")),
        ("lora:-1", ("'lora:-1' needs a whole number of at least 1", "lora:R@N", "Did you mean 'lora:8'?")),
        ("lora:0", ("whole number of at least 1",)),
        ("lora", ("'lora' needs a whole number of at least 1",)),
        ("lora:8@", ("whole number of at least 0",)),
        ("lora:8@-1", ("whole number of at least 0",)),
        ("lora:8.5", ("whole number",)),
        ("layers:", ("'layers:' has nothing after the colon", "layers:1-2+11", "Did you mean 'layers:1-2+6'?")),
        ("layers", ("names no layers",)),
        ("layers:0", ("layer numbers from 1", "'0' is not valid")),
        ("layers:3-1", ("lower number first", "'3-1' is not valid")),
        ("layers:1+", ("'' is not valid",)),
        ("layers:1-99999", ("'1-99999' is not valid",)),
        ("freeze:x", ("'freeze:x' needs a whole number of at least 0", "freeze:+N")),
        ("freeze", ("whole number of at least 0",)),
        ("freeze:٣", ("whole number",)),
        ("full:3", ("'full:3' takes no argument; write full",)),
        ("bitfit:1", ("takes no argument",)),
        ("features:svm", ("takes logreg, ridge, bilstm or no argument",)),
        ("features:logreg@4", ("needs a layer (0: the embeddings), a dot and mean, first or last",)),
        ("features:logreg@4.max", ("mean, first or last after the @",)),
        ("features:bilstm@4.mean", ("takes logreg, ridge, bilstm or no argument",)),
        ("attention@", ("whole number of at least 0", "write attention@N", "Did you mean 'attention@3'?")),
        ("attention:3", ("takes the number of frozen layers after an @",)),
        ("ffn@x", ("'ffn@x' needs a whole number of at least 0",)),
        ("full@3", ("takes no argument",)),
        ("lora@3", ("needs a whole number of at least 1",)),
        ("adapter:0", ("whole number of at least 1",)),
        ("adapter:4@", ("whole number of at least 0", "adapter:D@N")),
        ("reinit:", ("nothing after the colon",)),
        ("Full", ("unknown strategy 'Full'",)),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    said = str(raised.value)
    assert "\n" not in said
    for word in words:
        assert word in said


_WRITTEN = st.from_regex(r"(freeze|layers|lora|adapter|reinit|features|attention|ffn)[:@][-+@.0-9a-z]*", fullmatch=True)


@given(st.one_of(st.text(), _WRITTEN))
def test_any_text_is_a_strategy_or_a_usage_error(text: str) -> None:
    try:
        strategy = parse(text)
    except UsageError:
        return
    assert parse(strategy.name) == strategy


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("freeze:+2", "freeze:4"),
        ("freeze:+0", "freeze:6"),
        ("layers:5+6", "freeze:4"),
        ("layers:1-6", "freeze:0"),
        ("layers:1+6", "layers:1+6"),
        ("features", "features:logreg"),
        ("lora:8@0", "lora:8"),
        ("adapter:8@0", "adapter:8"),
        ("attention", "attention@0"),
        ("features@4.mean", "features:logreg@4.mean"),
    ],
)
def test_each_has_one_way_of_writing_for_a_model(text: str, meant: str) -> None:
    assert parse(text).resolved(6, "classification").name == meant


def test_features_go_by_the_kind_of_task() -> None:
    assert parse("features").resolved(6, "regression").name == "features:ridge"
    with pytest.raises(UsageError, match="'features:logreg' is not for regression; write features, or features:ridge"):
        parse("features:logreg").resolved(6, "regression")
    with pytest.raises(UsageError, match="'features:ridge' is not for classification"):
        parse("features:ridge").resolved(6, "classification")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("freeze:99", ("'freeze:99': the model has 6 layers", "0 to 6", "Did you mean 'freeze:6'?")),
        ("freeze:+99", ("Did you mean 'freeze:+6'?",)),
        ("reinit:7", ("Did you mean 'reinit:6'?",)),
        ("transfer:7", ("the model has 6 layers",)),
        ("lora:8@7", ("the model has 6 layers", "Did you mean 'lora:8@6'?")),
        ("lora:8@8", ("Did you mean 'lora:8@6'?",)),
        ("adapter:8@7", ("the model has 6 layers", "Did you mean 'adapter:8@6'?")),
        ("layers:1+7", ("no layer 7", "1 to 6")),
        ("attention@7", ("the model has 6 layers", "Did you mean 'attention@6'?")),
        ("features:logreg@7.mean", ("the model has 6 layers", "Did you mean 'features:logreg@6.mean'?")),
    ],
)
def test_layers_that_the_model_has_not(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text).resolved(6, "classification")
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("text", WRITTEN)
def test_the_numbers_of_layers_add_up(text: str) -> None:
    strategy = parse(text)
    n_layers = 12
    assert 0 <= strategy.n_prefix_layers(n_layers) <= n_layers
    assert 0 <= strategy.n_trained_layers(n_layers) <= n_layers - strategy.n_prefix_layers(n_layers)
    assert strategy.is_worth_caching(n_layers) or strategy.n_prefix_layers(n_layers) == 0


def test_examples_can_be_read() -> None:
    for kind in {type(strategy) for strategy in WRITTEN.values()}:
        assert parse(kind.example).forms
        assert kind.forms in strategies.forms() or kind in (FreezeRest, BiLstm)
