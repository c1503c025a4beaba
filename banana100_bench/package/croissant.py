"""croissant.json: the folder in the words of ML Croissant 1.0, for tools that find data sets by it.

The Hub writes its own for what it hosts; this one goes with the folder wherever it is copied. It names every file with
its SHA-256, and the columns of the list of rows as records.
"""

from __future__ import annotations

import json
from typing import Any

from banana100_bench.package import card
from banana100_bench.package.manifest import Manifest
from banana100_bench.package.shards import METADATA
from banana100_bench.records import DTYPES

FILE = "croissant.json"
_TYPES = {"string": "sc:Text", "bool": "sc:Boolean", "float64": "sc:Float"}
_PARQUET = "application/x-parquet"


def describe(manifest: Manifest) -> dict[str, Any]:
    """The JSON-LD document of the dataset; `manifest.files` need hold the Parquet files only."""
    files = [
        {
            "@type": "cr:FileObject",
            "@id": entry.path,
            "name": entry.path,
            "contentUrl": entry.path,
            "contentSize": f"{entry.bytes} B",
            "encodingFormat": _PARQUET,
            "sha256": entry.sha256,
        }
        for entry in manifest.files
        if entry.rows is not None
    ]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"metadata/{name}",
            "name": f"metadata/{name}",
            "description": card.MEANING[name],
            "dataType": _TYPES.get(dtype, "sc:Integer"),
            "source": {"fileObject": {"@id": METADATA}, "extract": {"column": name}},
        }
        for name, dtype in DTYPES.items()
    ]
    simulated = "SIMULATED images: no image-editing model made them. " if manifest.simulated else ""
    return {
        "@context": json.loads(card.asset("croissant_context.json")),
        "@type": "sc:Dataset",
        "name": manifest.name,
        "description": f"{simulated}Runs of an editor that edits its own output, round after round, by the protocol of "
        "Banana100 (arXiv 2604.03400).",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "license": manifest.licence,
        "version": "1.0.0",
        "citeAs": card.asset(card.CITATION),
        "distribution": files,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "metadata",
                "name": "metadata",
                "description": "Every row, round 0 as well, without the pixels.",
                "field": fields,
            }
        ],
    }
