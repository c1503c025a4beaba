"""What a call to a Gemini image model costs: from the tokens that an answer tells, and before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from banana100_bench.errors import UsageError, unknown_name
from banana100_bench.generate.editors.base import Estimate

if TYPE_CHECKING:
    from google.genai.types import GenerateContentResponseUsageMetadata

MAX_OUTPUT_TOKENS = 8192  # sent with each call, so that its cost has a bound; 4K takes 2,000, thoughts some hundreds
USUAL_THOUGHTS = 250  # tokens
PROMPT_TOKENS = 64  # more than any prompt of the protocol has
TIERS = {"standard": 1.0, "flex": 0.5}  # of the price
USUAL_SECONDS = {"standard": 30.0, "flex": 90.0}  # our assumption, until journals tell


@dataclass(frozen=True)
class Price:
    """US dollars a million tokens: `input`, `text` (thoughts too) and `image` out; tokens of a picture in and out.

    image_out: by resolution, as the API spells it.
    """

    input: float
    text: float
    image: float
    image_in: int
    image_out: Mapping[str, int]

    def with_dollars(self, text: str) -> Price:
        """This price with the three dollar sums of ``"2,12,120"``: input, text, image."""
        try:
            dollars = [float(part) for part in text.split(",")]
            if len(dollars) != 3 or not all(0 <= one < 1e5 for one in dollars):
                raise ValueError
        except ValueError as error:
            raise UsageError(
                f"price {text!r}: expected USD a million tokens of input, text and image output, as 2,12,120"
            ) from error
        return replace(self, input=dollars[0], text=dollars[1], image=dollars[2])


# Secondary sources (2026); the bill is what counts, and --option price=... puts them right.
PRICES: dict[str, Price] = {
    "gemini-3-pro-image": Price(2, 12, 120, 560, {"1K": 1120, "2K": 1120, "4K": 2000}),
    "gemini-3.1-flash-image": Price(0.5, 3, 60, 1120, {"512": 747, "1K": 1120, "2K": 1680, "4K": 2520}),
}
UNKNOWN = PRICES["gemini-3-pro-image"]  # its token counts, for a model whose dollars the caller gives


def price_of(model: str, dollars: str | None) -> Price:
    """The price of `model`, in the caller's `dollars` if given; UsageError for an unknown model without them."""
    if dollars:
        return PRICES.get(model, UNKNOWN).with_dollars(dollars)
    if model not in PRICES:
        error = unknown_name("Gemini model", model, PRICES)
        raise UsageError(f"{error}; for another one tell its price: --option price=INPUT,TEXT,IMAGE")
    return PRICES[model]


def estimate(price: Price, resolution: str, pictures: int, tier: str) -> Estimate:
    """Of a call that sends so many `pictures`."""
    asked = (PROMPT_TOKENS * pictures + price.image_in * pictures) * price.input
    usual = asked + price.image_out[resolution] * price.image + USUAL_THOUGHTS * price.text
    most = asked + MAX_OUTPUT_TOKENS * max(price.image, price.text)
    share = TIERS[tier] / 1e6
    return Estimate(usd=usual * share, usd_at_most=most * share, seconds=USUAL_SECONDS[tier])


def cost(usage: GenerateContentResponseUsageMetadata | None, price: Price, tier: str) -> float | None:
    """US dollars of an answer; None where its usage is not told.

    Where it does not say which tokens are image tokens, all of its output counts as image: priced as text, users
    saw estimates come out 7.6 times too low.
    """
    if usage is None or usage.prompt_token_count is None:
        return None
    out = usage.candidates_token_count or 0
    details = usage.candidates_tokens_details
    image = out if details is None else sum(d.token_count or 0 for d in details if str(d.modality).endswith("IMAGE"))
    text = max(out - image, 0) + (usage.thoughts_token_count or 0)
    usd = usage.prompt_token_count * price.input + text * price.text + image * price.image
    return round(usd * TIERS[tier] / 1e6, 9)
