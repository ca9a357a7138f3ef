"""What clients send, in the shapes that they already speak, and what it asks for.

Two conventions disagree (TRAPS 34): vLLM reads `["a", "b"]` as two texts, text-embeddings-inference as one pair. Each
endpoint keeps its own. Fields with unknown names are refused, because a misspelled `truncate` must not be ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from frostline.errors import one_line, suggestion
from frostline.serving.rows import Text
from frostline.serving.server.refusals import Refusal, invalid, shown
from frostline.serving.server.settings import ServerSettings

_EXAMPLE = "A quiet, moving film."
# Without fail_fast, a body of a megabyte could collect a hundred thousand errors.
_List = Annotated[list[str], Field(fail_fast=True)]
_Pairs = Annotated[list[Annotated[list[str], Field(fail_fast=True, min_length=2, max_length=2)]], Field(fail_fast=True)]


@final
@dataclass(frozen=True)
class Asked:
    """What a request asks for, whatever its shape."""

    tasks: tuple[str, ...] | None
    """names; None: none is named"""
    texts: tuple[Text, ...]
    truncate: bool = False
    """cut texts that are longer than a task reads; otherwise they are refused"""
    is_raw: bool = False
    """the model's outputs as they are, not probabilities"""
    top_k: int | None = None
    """how many classes to return per text, best first"""
    is_single: bool = False
    """text-embeddings-inference answers a single text without a list around it"""


class _Body(BaseModel):
    """A body with no other fields than these, each of its own type."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    def asked(self) -> Asked:
        """What the body asks for."""
        raise NotImplementedError


class _Classify(_Body):
    """What both classify endpoints take."""

    input: Annotated[
        str | _List | None,
        Field(description="a text or a list of texts; `input_pairs` instead for tasks that read pairs"),
    ] = None
    input_pairs: Annotated[_Pairs | None, Field(description='a list of pairs of texts: [["a", "b"], …]')] = None
    truncate: Annotated[
        bool, Field(description="true or false: cut texts that are longer than a task reads, instead of refusing them")
    ] = False
    truncate_prompt_tokens: Annotated[
        Literal[-1] | None, Field(description="-1, the same as `truncate`, as vLLM has it; or null")
    ] = None
    use_activation: Annotated[
        bool | None, Field(description="true, false or null: false gives the model's outputs instead of probabilities")
    ] = None
    top_k: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="a whole number from 1, or null: only the most probable classes, in `top_k` of each answer"),
    ] = None
    user: Annotated[str | None, Field(description="a text or null; ignored")] = None
    priority: Annotated[Literal[0], Field(description="0; requests are done in their order")] = 0
    add_special_tokens: Annotated[Literal[True], Field(description="true; texts are read as in training")] = True

    def _asked(self, tasks: tuple[str, ...] | None) -> Asked:
        return Asked(
            tasks=tasks,
            texts=_texts(self.input, self.input_pairs),
            truncate=self.truncate or self.truncate_prompt_tokens is not None,
            is_raw=self.use_activation is False,
            top_k=self.top_k,
        )


@final
class ClassifyBody(_Classify):
    """The body of `/v1/classify` and `/classify`, as vLLM has it."""

    model_config = ConfigDict(json_schema_extra={"example": {"model": "sentiment", "input": [_EXAMPLE]}})
    model: Annotated[
        str | None, Field(description="name of the task; it may be left out if the server has only one")
    ] = None

    def asked(self) -> Asked:
        """What the body asks for."""
        return self._asked(None if self.model is None else (self.model,))


@final
class CombinedBody(_Classify):
    """The body of `/v1/classify/combined`."""

    model_config = ConfigDict(json_schema_extra={"example": {"input": _EXAMPLE, "tasks": "all"}})
    tasks: Annotated[
        Literal["all"] | Annotated[list[str], Field(fail_fast=True, min_length=1)],
        Field(description='a list of task names, or "all"'),
    ] = "all"

    def asked(self) -> Asked:
        """What the body asks for."""
        return self._asked(None if isinstance(self.tasks, str) else tuple(dict.fromkeys(self.tasks)))


@final
class PredictBody(_Body):
    """The body of `/predict`, as text-embeddings-inference has it."""

    model_config = ConfigDict(json_schema_extra={"example": {"inputs": _EXAMPLE}})
    inputs: Annotated[
        str | _List | Annotated[list[_List], Field(fail_fast=True)],
        Field(description='a text "a", a pair ["a", "b"], or a list of them [["a"], ["b"], ["c", "d"]]'),
    ]
    model: Annotated[
        str | None, Field(description="name of the task; it may be left out if the server has only one")
    ] = None
    raw_scores: Annotated[
        bool, Field(description="true or false: true gives the model's outputs instead of probabilities")
    ] = False
    truncate: Annotated[
        bool | None,
        Field(description="true, false or null: cut texts that are longer than a task reads, instead of refusing them"),
    ] = None
    truncation_direction: Annotated[
        Literal["right", "Right"], Field(description='"right"; texts are cut as in training')
    ] = "right"

    def asked(self) -> Asked:
        """What the body asks for."""
        texts, is_single = _tei_texts(self.inputs)
        return Asked(
            tasks=None if self.model is None else (self.model,),
            texts=texts,
            truncate=bool(self.truncate),
            is_raw=self.raw_scores,
            is_single=is_single,
        )


Body = TypeVar("Body", bound=_Body)


def parse(kind: type[Body], content: bytes, settings: ServerSettings) -> Asked:
    """What a body asks for; a Refusal that says what is allowed if it has another shape or is beyond a limit."""
    try:
        given: Any = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, "validation", f"the body is not JSON: {one_line(error, at_most=100)}") from error
    if not isinstance(given, dict):
        raise invalid(f"the body is not a JSON object; known fields: {', '.join(kind.model_fields)}")
    for name in given.keys() - kind.model_fields.keys():
        known = ", ".join(kind.model_fields)
        raise invalid(f"unknown field {shown(name)}; known: {known}.{suggestion(name, kind.model_fields)}")
    try:
        asked = kind.model_validate(given).asked()
    except ValidationError as error:
        raise invalid(_fault(kind, error)) from error
    _check(asked.texts, settings)
    return asked


def _fault(kind: type[_Body], error: ValidationError) -> str:
    """What the first wrong field should be. It shows nothing of what was given: that may be a text."""
    name = str(error.errors(include_url=False, include_input=False, include_context=False)[0]["loc"][0])
    is_missing = any(one["type"] == "missing" for one in error.errors(include_url=False, include_input=False))
    return f"{name} {'is missing' if is_missing else 'is not valid'}; give {kind.model_fields[name].description}"


def _texts(texts: str | Sequence[str] | None, pairs: Sequence[Sequence[str]] | None) -> tuple[Text, ...]:
    if (texts is None) == (pairs is None):
        raise invalid("give one of input (a text or a list of texts) and input_pairs (a list of pairs of texts)")
    if pairs is not None:
        return tuple(Text(first, second) for first, second in pairs)
    return tuple(Text(text) for text in ([texts] if isinstance(texts, str) else texts or ()))


def _tei_texts(inputs: str | Sequence[str] | Sequence[Sequence[str]]) -> tuple[tuple[Text, ...], bool]:
    """The texts, and whether they are a single one: `"a"` and `["a", "b"]`, a pair, are."""
    if isinstance(inputs, str):
        return (Text(inputs),), True
    if inputs and isinstance(inputs[0], str):
        return (_tei_text([str(text) for text in inputs]),), True
    return tuple(_tei_text(one) for one in inputs), False


def _tei_text(given: Sequence[str]) -> Text:
    if len(given) not in (1, 2):
        raise invalid(
            f'inputs has a list of {len(given)} texts, which is read as a pair here; several texts are [["a"], ["b"]]'
        )
    return Text(*given)


def _check(texts: Sequence[Text], settings: ServerSettings) -> None:
    """Raises unless the number and the length of the texts are within the limits."""
    if not 1 <= len(texts) <= settings.max_texts:
        raise invalid(f"{len(texts)} texts are given; 1 to {settings.max_texts} are allowed in a request")
    for number, text in enumerate(texts):
        for part in (text.first, text.second or ""):
            if len(part) > settings.max_characters:
                what = f"text {number} has {len(part)} characters"
                raise invalid(f"{what}; {settings.max_characters} are allowed")
            if "\0" in part:
                raise invalid(f"text {number} holds a NUL character; remove it")
