"""Where the images to be packed come from: this machine, or a dataset of raw files on the Hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from banana100_bench.errors import BananaError
from banana100_bench.package.layouts import Candidate
from banana100_bench.package.source import Source, find
from banana100_bench.package.storage import HubDataset, hub_errors
from banana100_bench.progress import progress

DOWNLOADS = 8  # at a time


def locate(raw: str, pattern: str | None = None, constants: Mapping[str, str] | None = None) -> Source:
    """`source.find`, for ``hf://datasets/ORG/NAME[@REVISION]`` as well; of that only the list of files is asked for."""
    if not raw.startswith("hf://"):
        return find(raw, pattern, constants)
    place = HubDataset.parse(raw)
    listed = place.files()
    if pattern is None and any(PurePosixPath(name).match("runs/*/run.json") for name in listed):
        raise BananaError(f"{place}: holds raw runs; download them (hf download --local-dir) and build from the folder")
    found = find(Path(), pattern, constants, files=listed)
    return dataclasses.replace(found, where=str(place), hub=place)


def fetch(found: Source) -> Source:
    """`found` with its images on this machine: those on the Hub are downloaded to the Hub's cache.

    A call that was cut short continues, file by file.
    """
    if found.hub is None:
        return found
    from huggingface_hub import hf_hub_download

    place = found.hub

    def get(one: Candidate) -> Candidate:
        with hub_errors(f"{place}/{one.name}"):
            got = hf_hub_download(place.repo_id, str(one.path), repo_type="dataset", revision=place.commit)
        path = Path(got).resolve()
        return dataclasses.replace(one, path=path, changed=path.stat().st_mtime_ns)

    with ThreadPoolExecutor(DOWNLOADS) as pool, progress("downloading", len(found.candidates)) as advance:
        here = []
        for one in pool.map(get, found.candidates):
            here.append(one)
            advance(1)
    return dataclasses.replace(found, candidates=here, hub=None)
