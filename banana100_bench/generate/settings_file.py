"""Settings of one's own, from a YAML file, and the choice of settings for a campaign.

::

    settings:
      warmer:                      # its name
        group: variant             # one of protocol.GROUPS
        prompts: ["Make the provided image a little warmer."]
        temperature: 0.5           # the other fields as in protocol.Setting, all of them optional
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from banana100_bench import protocol
from banana100_bench.errors import BananaError, unknown_name
from banana100_bench.protocol import Setting
from banana100_bench.raw import read_file
from banana100_bench.records import check_name

MAX_BYTES = 1 << 20
_FIELDS = [field.name for field in dataclasses.fields(Setting) if field.name != "name"]


def read_settings(path: Path) -> list[Setting]:
    """The settings in the YAML file `path`, in its order; BananaError naming the file and what is wrong in it."""
    import yaml

    try:
        told = yaml.safe_load(read_file(Path(path).resolve(), MAX_BYTES))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BananaError(f"{path}: not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(told, dict) or list(told) != ["settings"] or not isinstance(told["settings"], dict):
        raise BananaError(f"{path}: expected one mapping, settings:, from names to their fields")
    return [_setting(path, name, fields) for name, fields in told["settings"].items()]


def choose_settings(names: Sequence[str], own: Sequence[Setting]) -> list[Setting]:
    """The settings called `names`, one's own or the protocol's; with no names all one's own, or replication."""
    known = protocol.SETTINGS | {setting.name: setting for setting in own}
    for name in names:
        if name not in known:
            raise unknown_name("setting", name, known)
    return [known[name] for name in names] if names else list(own) or [protocol.setting("replication")]


def _setting(path: Path, name: Any, fields: Any) -> Setting:
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(name, str) or not isinstance(fields, dict):
        raise BananaError(f"{path}: {name!r}: expected a name and its fields: {', '.join(_FIELDS)}")
    if name in protocol.SETTINGS:
        raise BananaError(f"{path}: {name}: a setting of the protocol has that name; choose another")
    try:
        for field in fields:
            if field not in _FIELDS:
                raise unknown_name("field", str(field), _FIELDS)
        return TypeAdapter(Setting).validate_python({"name": check_name("setting", name), **fields})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BananaError(f"{path}: {name}: {where}: {fault['msg']}") from error
    except BananaError as error:
        raise BananaError(f"{path}: {name}: {error}") from error
