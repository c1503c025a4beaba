"""Somebody's own editor in a Python file: ``path.py:name``, a function or a subclass of Editor."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError, message_of
from banana100_bench.generate.editors import check_options
from banana100_bench.generate.editors.base import Edited, Editor, EditRequest
from banana100_bench.protocol import Setting
from banana100_bench.records import to_name
from banana100_bench.user_code import find, guarded, load_file, source_sha256


def open_function(spec: str, options: Mapping[str, str]) -> Editor:
    """Run the file of ``path.py:name``, with the caller's rights, and return the editor that `name` is.

    A subclass of Editor is called with the options as keywords. A function takes an RGB PIL image and a prompt
    and returns a PIL image, or an encoded one as bytes; if it has arguments of the names ``seed``,
    ``temperature`` or ``resolution``, it is handed those too. Its attribute ``simulated = True`` says that no
    editing model makes the images. The SHA-256 of the file, and of what it imports that is not installed, is its
    version (`user_code.source_sha256`); a subclass says its version itself.
    """
    place, _, name = spec.rpartition(":")
    path = Path(place)
    module = load_file(spec, path)
    found = find(spec, module, place, name)
    if inspect.isclass(found) and issubclass(found, Editor):
        try:
            with guarded():
                return found(**options)
        except (BananaError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise BananaError(f"{spec}: {type(error).__name__}: {message_of(error)[:300]}") from error
    if inspect.isclass(found) or not callable(found):
        raise UsageError(f"{spec}: expected a function or a subclass of Editor")
    check_options(spec, options, ())
    return Function(found, name, f"{path.name}:{name}@{str(source_sha256(spec, module, found))[:12]}")


class Function(Editor):
    """A Python function as an editor; see `open_function`."""

    def __init__(self, function: Callable[..., Any], name: str, version: str):
        self._function = function
        self._takes = set(inspect.signature(function).parameters)
        self.name = to_name(name)
        self.model_version = version
        self.simulated = bool(getattr(function, "simulated", False))

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        if setting.chat_turns:
            raise UsageError(f"setting {setting.name!r}: {self.name} has no chat")
        for option, value in (("temperature", temperature), ("resolution", resolution)):
            if value is not None and option not in self._takes:
                raise UsageError(f"{option} {value!r}: {self.name} takes no {option} (setting {setting.name})")

    def edit(self, request: EditRequest) -> Edited:
        from PIL import Image

        options = {
            name: getattr(request, name) for name in ("seed", "temperature", "resolution") if name in self._takes
        }
        picture = images.decode(request.data, f"input of round {request.round}")
        made = self._function(picture, request.prompt, **options)
        if isinstance(made, bytes):
            return Edited(data=made)
        if not isinstance(made, Image.Image):
            raise BananaError(f"{self.name} returned {type(made).__name__}, expected a PIL image or bytes")
        file = io.BytesIO()
        made.save(file, "PNG")
        return Edited(data=file.getvalue())
