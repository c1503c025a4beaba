"""Facts of images that lie in any tree of folders, read from their paths by a pattern such as
``"{setting}/{initial_image}/rep{repetition}/step_{round}.{ext}"``.

Pure functions on relative paths: nothing here touches a disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.files import printable
from banana100_bench.protocol import GROUPS, SETTINGS, STYLES
from banana100_bench.records import check_name, image_id, run_id, to_name

_Count = Annotated[int, Field(ge=0, le=9999)]
_TYPES: dict[str, Any] = {  # the fields of a Row that a path or a person can tell, and what they must be
    "setting": str,
    "setting_group": Literal[GROUPS],
    "initial_image": str,
    "style": Literal[STYLES],
    "repetition": _Count,
    "round": _Count,
    "period": Annotated[int, Field(ge=1, le=9999)],
    "seed": Annotated[int, Field(ge=0, lt=2**63)],
    "prompt": str,
    "editor": str,
    "model_version": str,
    "simulated": bool,
    "temperature": Annotated[float, Field(allow_inf_nan=False)],
    "resolution": str,
}
_PARSERS = {name: TypeAdapter[Any](kind) for name, kind in _TYPES.items()}
_REQUIRED = {"setting": "replication", "initial_image": "astronaut", "editor": "flux.1-kontext-dev"}

_TEXT = "[^/]+?"
_FORMS = {"round": "[0-9]+", "repetition": "[0-9]+", "seed": "[0-9]+", "ext": "(?i:png|jpe?g|webp)"}
_SYNONYMS = {"step": "round"}


def match(paths: Iterable[str], pattern: str, constants: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The facts of each of `paths` that `pattern` fits; the others are left out.

    paths: relative, parted by ``/``. pattern: text with fields in braces; each takes part of one
    folder's or file's name, ``{_}`` any text, ``{ext}`` png, jpg, jpeg or webp. A field is one of
    `_TYPES`; ``{step}`` is ``{round}``. constants: facts that all images share.

    Gives fields of `records.Row`, those that do not follow from the bytes. Round 0 is the initial
    image and belongs to no run. Raises UsageError for an unknown field, a missing fact, a constant that is
    given twice or cannot be; BananaError, naming the path, where what stands there cannot be.
    """
    shape = compile_pattern(pattern)
    shared = _fields(constants)
    for name in shared:
        if name in shape.groupindex or name == "round":
            raise UsageError(f"{name}={shared[name]}: a fact that stands in the pattern cannot be given as well")
    for name, example in _REQUIRED.items():
        if name not in shape.groupindex and name not in shared:
            raise UsageError(f"{name}: neither in the pattern nor given; give it, as {name}={example}")
    known = _known(shared)
    facts = {}
    names: _Names = {}
    for path in paths:
        if found := shape.fullmatch(path):
            texts = {key: text for key, text in found.groupdict().items() if key != "ext"}
            facts[path] = _named(path, known, texts, names)
    return facts


def tell(lines: Mapping[str, Mapping[str, str]], constants: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """As `match`, for facts that a table tells: for each path the text of each fact; empty ones are not told.

    A fact in `lines` takes the place of a constant.
    """
    known = _known(_fields(constants))
    names: _Names = {}
    return {path: _named(path, known, _fields(texts), names) for path, texts in lines.items()}


def is_fact(name: str) -> bool:
    """True if a path or a table can tell a fact of this name."""
    return _SYNONYMS.get(name, name) in _TYPES


def _fields(texts: Mapping[str, str]) -> dict[str, str]:
    return {_field(name, "fact"): text for name, text in texts.items() if text != ""}


def _known(constants: Mapping[str, str]) -> dict[str, Any]:
    """The values of the facts that a person gave for all images; UsageError for one that cannot be."""
    known = {name: _parse(name, text, UsageError) for name, text in constants.items()}
    for kind in _REQUIRED.keys() & known.keys():
        check_name(kind, to_name(known[kind]), UsageError)
    return known


_Names = dict[tuple[str, str], tuple[str, str]]
"""For each kind of name and safe name: the text it was made of, and the first path that has it."""


def _named(path: str, known: Mapping[str, Any], texts: Mapping[str, str], names: _Names) -> dict[str, Any]:
    """The facts of the image at `path`, which errors name; two texts never become one name."""
    try:
        told = {**known, **{name: _parse(name, text) for name, text in texts.items()}}
        for name, example in {**_REQUIRED, "round": "1"}.items():
            if name not in told and (name in ("initial_image", "round") or told.get("round") != 0):
                raise UsageError(f"{name}: not told; give it, as {name}={example}")
        for kind in _REQUIRED.keys() & told.keys():
            text, first = names.setdefault((kind, to_name(told[kind])), (told[kind], path))
            if text != told[kind]:
                raise BananaError(
                    f"{kind} {told[kind]!r} would be called {to_name(told[kind])!r}, as {text!r} of "
                    f"{printable(first)} is already; rename one"
                )
        return _facts(told)
    except BananaError as error:
        raise type(error)(f"{printable(path)}: {error}") from error


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """`pattern` as a regular expression with a named group a field; UsageError where it makes no sense."""
    expression = ""
    seen: set[str] = set()
    for index, part in enumerate(re.split(r"\{(\w+)\}", pattern)):
        if index % 2 == 0:
            if "{" in part or "}" in part:
                raise UsageError(f"pattern {pattern!r}: expected fields as {{round}}, found {part!r}")
            expression += re.escape(part)
        elif part == "_":
            expression += "[^/]*?"
        else:
            name = part if part == "ext" else _field(part, "field in the pattern")
            expression += f"(?P={name})" if name in seen else f"(?P<{name}>{_FORMS.get(name, _TEXT)})"
            seen.add(name)
    if "round" not in seen:
        raise UsageError(f"pattern {pattern!r}: has no {{round}}")
    return re.compile(expression)


def _field(name: str, kind: str) -> str:
    name = _SYNONYMS.get(name, name)
    if name not in _TYPES:
        raise unknown_name(kind, name, _TYPES, limit=len(_TYPES))
    return name


def _parse(name: str, text: str, fault: type[BananaError] = BananaError) -> Any:
    try:
        return _PARSERS[name].validate_strings(text)
    except ValidationError as error:
        raise fault(f"{name}={text}: {error.errors()[0]['msg']}") from error


def _facts(told: dict[str, Any]) -> dict[str, Any]:
    """Names made safe, ids made, and what the protocol knows of the setting filled in."""
    initial = check_name("initial image", to_name(told["initial_image"]))
    if told["round"] == 0:
        style = {"style": told["style"]} if "style" in told else {}
        return {"image_id": image_id(None, initial, 0), "initial_image": initial, "round": 0, **style}
    setting, editor = to_name(told["setting"]), to_name(told["editor"])
    facts: dict[str, Any] = {"repetition": 0, **told, "setting": setting, "initial_image": initial, "editor": editor}
    if protocol := SETTINGS.get(setting):
        defaults: dict[str, Any] = {
            "setting_group": protocol.group,
            "period": protocol.period,
            "prompt": protocol.prompt(told["round"]),
        }
        facts = defaults | facts
    elif "setting_group" not in facts:
        raise UsageError(
            f"setting {setting!r} is none of the protocol's ({', '.join(SETTINGS)}): "
            f"give its setting_group as well, one of {', '.join(GROUPS)}"
        )
    run = run_id(setting, initial, editor, facts["repetition"])
    return {**facts, "run_id": run, "image_id": image_id(run, initial, told["round"])}
