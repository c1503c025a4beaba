"""The editors by name. An editor is one file here and one line in EDITORS, or somebody else's (see `open_editor`)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.generate.editors.base import Edited, EditError, Editor, EditRequest, Estimate, Turn

__all__ = ["EDITORS", "EditError", "EditRequest", "Edited", "Editor", "Estimate", "Turn", "open_editor"]

ENTRY_POINTS = "banana100_bench.editors"
Factory = Callable[[str, Mapping[str, str]], Editor]


def _simulated(target: str, options: Mapping[str, str]) -> Editor:
    from banana100_bench.generate.editors.simulated import Simulated

    no_more("simulated", target, options)
    return Simulated()


def _gemini(target: str, options: Mapping[str, str]) -> Editor:
    from banana100_bench.generate.editors.gemini import open_gemini

    return open_gemini(target, options)


def _vertex(target: str, options: Mapping[str, str]) -> Editor:
    from banana100_bench.generate.editors.gemini import open_gemini

    return open_gemini(target, options, vertex=True)


def _autoencoder(target: str, options: Mapping[str, str]) -> Editor:
    from banana100_bench.generate.editors.autoencoder import open_autoencoder

    return open_autoencoder(target, options)


def _pipeline(kind: str) -> Factory:
    def factory(target: str, options: Mapping[str, str]) -> Editor:
        from banana100_bench.generate.editors.diffusers import open_pipeline

        return open_pipeline(kind, target, options)

    return factory


EDITORS: dict[str, Factory] = {
    "simulated": _simulated,
    "gemini": _gemini,
    "vertex": _vertex,
    "autoencoder": _autoencoder,
    **{kind: _pipeline(kind) for kind in ("flux2", "flux-kontext", "qwen-image-edit", "instruct-pix2pix")},
}


def open_editor(spec: str, options: Mapping[str, str] | None = None) -> Editor:
    """The editor that `spec` names; nothing is loaded or sent before its `open`.

    spec: ``NAME`` or ``NAME:TARGET`` with a NAME of EDITORS (the target is a model or a folder, by editor);
        ``path.py:function``, whose code then runs (`editors.plugin`); or the name of an entry point of the
        group ENTRY_POINTS, which is a function from options to an Editor.
    options: by name, as the editor takes them.

    UsageError for an unknown name or option, BananaError where somebody else's code fails.
    """
    options = dict(options or {})
    name, _, target = spec.partition(":")
    if ".py:" in spec:
        from banana100_bench.generate.editors.plugin import open_function

        return open_function(spec, options)
    if name in EDITORS:
        return EDITORS[name](target, options)
    found = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if spec not in found:
        raise unknown_name("editor", spec, {*EDITORS, *found, "path.py:function"})
    try:
        editor = found[spec].load()(options)
    except BananaError:
        raise
    except Exception as error:
        raise BananaError(f"editor {spec}: {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(editor, Editor):
        raise BananaError(f"editor {spec}: its entry point gave {type(editor).__name__}, expected an Editor")
    return editor


def no_more(editor: str, target: str, options: Mapping[str, str], choices: tuple[str, ...] = ()) -> None:
    """UsageError where a target, or an option outside `choices`, was given to `editor`."""
    if target:
        raise UsageError(f"editor {editor}:{target}: takes nothing behind the colon")
    check_options(editor, options, choices)


def check_options(editor: str, options: Mapping[str, str], choices: tuple[str, ...]) -> None:
    """UsageError naming the first of `options` that is none of `choices`."""
    for option in options:
        if option not in choices:
            if choices:
                raise unknown_name(f"option of editor {editor}", option, choices)
            raise UsageError(f"option {option!r}: editor {editor} takes none")
