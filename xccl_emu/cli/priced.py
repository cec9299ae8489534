"""What `check --price` shows: cells of its table, lines below it, and a picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xccl_emu.cli.check_job import Result
    from xccl_emu.timing.price import Price

_ABOUT = (
    "a price is a run with it minus a run without it. They do not add up; below 0 it is faster with it. In brackets:"
    " how a run without it goes"
)
_COLOURS = {"needed": "#2e86c1", "redundant": "#ba4a00"}


def price_cells(price: "Price | None") -> tuple[str, str]:
    """Return the price and its interval in words; empty where there is none."""
    if price is None or price.us is None:
        return "", ""
    return f"{price.us:.3f}", "" if price.low_us is None else f"{price.low_us:.3f} to {price.high_us:.3f}"


def price_lines(result: "Result") -> Iterator[str]:
    """Yield what prices are of, what all that can go and all advice cost together, and which have none."""
    if result.latency_us is None or (result.each is None and result.weakest is None):
        return
    yield f"virtual time {result.latency_us:.3f} us; {_ABOUT}"
    for what, together in (("redundant ones", result.together), ("that is more than the weakest", result.advised)):
        if together is not None:
            us, interval = price_cells(together)
            yield f"all {what} together: {f'{us} us ({interval})' if us else f'no price: {together.why}'}"
    prices = [(one.sync, one.price) for one in result.each or () if one.price is not None and one.price.why]
    for why in dict.fromkeys(price.why for _, price in prices):
        yield f"no price ({why}): {', '.join(sync for sync, price in prices if price.why == why)}"


def draw_prices(result: "Result", path: Path) -> None:
    """Draw a bar for each price with its interval, coloured by what it is; OutputError if it cannot be written."""
    from matplotlib.figure import Figure

    from xccl_emu.cli.files import save_figure

    rows = [(one, one.price) for one in result.each or () if one.price is not None]
    figure = Figure(figsize=(9.0, 1.4 + 0.28 * len(rows)), layout="constrained")
    panel = figure.add_subplot()
    for place, (one, price) in enumerate(rows):
        us, low, high = price.us or 0.0, price.low_us, price.high_us
        reach = None if low is None or high is None else ([us - low], [high - us])
        panel.barh(place, us, color=_COLOURS.get(one.finding, "#566573"), xerr=reach, capsize=2, ecolor="#1b2631")
        panel.text(0, place, f" no price: {price.why}" if price.why else "", va="center", fontsize="small")
    panel.set_yticks(range(len(rows)), [f"{one.sync} ({one.finding})" for one, _ in rows], fontsize="small")
    verdict, us = result.verdict, result.latency_us or 0.0
    sizes = ", ".join(f"{name} {value}" for name, value in verdict.configuration.items())
    panel.set(xlabel="price in virtual time, us", ylim=(len(rows) - 0.4, -0.6))
    panel.set_title(f"{verdict.protocol}, {us:.3f} us ({sizes})", fontsize="small", wrap=True)
    panel.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
