"""One image, one model, one score: whatever happens, there is a status and a reason."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from banana100_bench.errors import BananaError, message_of
from banana100_bench.images import DECODE_POLICY
from banana100_bench.models.base import Batched, Model, Picture, ReplyError, looks
from banana100_bench.models.seeding import Draws, seeded
from banana100_bench.store import Score

MAX_MESSAGE = 500


def measure(
    model: Model, picture: Picture, *, repeats: int = 1, threads: int | None = None, draws: Draws | None = None
) -> Score:
    """The score of `picture`; whatever the model raises (but KeyboardInterrupt) makes it "failed".

    repeats: how often a model that draws random numbers is asked, each time seeded otherwise; the score is
        the mean. draws: is told whether it drew any.
    """
    start = time.perf_counter()
    values: list[float] = []
    status, message, drawn = "ok", None, False
    try:
        for repeat in range(repeats):
            with seeded(picture.row.sha256, repeat) as found:
                values.append(float(model.score(picture)))
            drawn = drawn or found.drawn
            if not found.drawn:
                break  # it would say the same again
    except ReplyError as error:
        status, message = "parse_error", _message(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        status, message = "failed", _message(error)
    if draws is not None:
        draws.drawn = drawn
    bad = [value for value in values if not math.isfinite(value)]
    if status == "ok" and bad:
        status, message = "nan", f"the model gave {bad[0]}"
    seconds = time.perf_counter() - start
    score = statistics.fmean(values) if status == "ok" else None
    spread = statistics.stdev(values) if status == "ok" and len(values) > 1 else None
    return _row(model, picture, score, status, message, seconds, threads, spread=spread)


def measure_batch(model: Batched, pictures: Sequence[Picture], *, threads: int | None = None) -> list[Score]:
    """The scores of `pictures` of one size, given to the model together.

    Where memory runs out the batch is halved; what fails for another reason is scored one by one, so that
    only the image at fault fails.
    """
    if len(pictures) > 1:
        start = time.perf_counter()
        try:
            with seeded(pictures[0].row.sha256):
                values = [float(value) for value in model.score_batch(pictures)]
            if len(values) == len(pictures) and all(map(math.isfinite, values)):
                seconds = (time.perf_counter() - start) / len(pictures)
                return [
                    _row(model, picture, value, "ok", None, seconds, threads, batch=len(pictures))
                    for picture, value in zip(pictures, values, strict=True)
                ]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if out_of_memory(error):
                _empty_cache()
                half = len(pictures) // 2
                parts = (pictures[:half], pictures[half:])
                return [score for part in parts for score in measure_batch(model, part, threads=threads)]
    return [measure(model, picture, threads=threads) for picture in pictures]  # type: ignore[arg-type]


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory, the device's or the machine's, has run out."""
    text = message_of(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text))
    )


def failure(picture: Picture, status: str, message: str, seconds: float, threads: int | None) -> Score:
    """The score of a picture on which the model did not come back."""
    row = picture.row
    return Score(
        image_id=row.image_id,
        sha256=row.sha256,
        score=None,
        status=status,
        message=message,
        seconds=round(seconds, 6),
        threads=threads,
    )


def _row(
    model: object,
    picture: Picture,
    score: float | None,
    status: str,
    message: str | None,
    seconds: float,
    threads: int | None,
    *,
    batch: int = 1,
    spread: float | None = None,
) -> Score:
    seen = picture.__dict__.get("rgb") if looks(model) else None  # type: ignore[arg-type]
    return Score(
        image_id=picture.row.image_id,
        sha256=picture.row.sha256,
        score=score,
        status=status,
        message=message,
        seconds=round(seconds, 6),
        width=seen.width if seen else None,
        height=seen.height if seen else None,
        decode_policy=DECODE_POLICY if seen else None,
        threads=threads,
        batch=batch,
        spread=spread,
    )


def _empty_cache() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _message(error: BaseException) -> str:
    """One printable line: "Type: message", or the message alone where it is one of ours."""
    first = next((line.strip() for line in message_of(error).splitlines() if line.strip()), "")
    text = first if isinstance(error, BananaError) else f"{type(error).__name__}: {first}".rstrip(": ")
    return "".join(char if char.isprintable() else "?" for char in text)[:MAX_MESSAGE]
