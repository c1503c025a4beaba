"""The score of one image. (The append-only store of scores follows below.)"""

from __future__ import annotations

from dataclasses import dataclass

STATUSES = ("ok", "nan", "failed")


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one model said of one image.

    score: raw, in the model's own direction; None unless status is "ok" (which means finite).
    status: one of STATUSES. message: why it failed, else None. seconds: wall time of the model on it.
    """

    image_id: str
    sha256: str
    score: float | None
    status: str
    message: str | None = None
    seconds: float = 0.0
