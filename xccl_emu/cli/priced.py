"""What `check --each-sync --price` shows: cells of its table, lines below it, and a picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xccl_emu.cli.check_job import Result
    from xccl_emu.timing.price import Price

_ABOUT = (
    "a price is a run with it minus a run without it. They do not add up; below 0 it is faster with it. In this model a"
    " fence by itself takes no time. In brackets: how a run without it goes"
)
_COLOURS = {"needed": "#2e86c1", "redundant": "#ba4a00"}
_OTHER = "#566573"


def price_cells(price: "Price | None") -> tuple[str, str]:
    """Return the price and its interval in words; empty where there is none."""
    return ("", "") if price is None or price.us is None else (f"{price.us:.3f}", price.interval)


def price_lines(result: "Result") -> Iterator[str]:
    """Yield what prices are of, what all redundant ones cost together, and which have none."""
    if result.latency_us is None or result.each is None:
        return
    yield f"virtual time {result.latency_us:.3f} us; {_ABOUT}"
    if result.together is not None:
        us, interval = price_cells(result.together)
        yield f"all redundant ones together: {f'{us} us ({interval})' if us else f'no price: {result.together.why}'}"
    prices = [(one.sync, one.price) for one in result.each if one.price is not None and one.price.why]
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
        if price.us is None:
            panel.text(0, place, f" {one.finding}: without it {price.why}", va="center", fontsize="small", color=_OTHER)
            continue
        reach = None if price.low_us is None or price.high_us is None else (
            [price.us - price.low_us], [price.high_us - price.us]
        )  # fmt: skip
        colour = _COLOURS.get(one.finding, _OTHER)
        panel.barh(place, price.us, color=colour, label=one.finding, xerr=reach, capsize=2, ecolor="#1b2631")
    panel.set_yticks(range(len(rows)), [one.sync for one, _ in rows], fontsize="small")
    panel.invert_yaxis()
    sizes = ", ".join(f"{name} {value}" for name, value in result.verdict.configuration.items())
    panel.set(xlabel="price in virtual time, us", ylim=(len(rows) - 0.4, -0.6))
    panel.set_title(f"{result.verdict.protocol}, {result.latency_us:.3f} us ({sizes})", fontsize="small", wrap=True)
    handles, labels = panel.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    if named:
        panel.legend(named.values(), named.keys(), frameon=False, fontsize="small")
    panel.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
