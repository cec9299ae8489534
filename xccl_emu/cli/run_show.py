"""What a run on the whole pod prints: JSON, or a table, 80 columns wide."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from xccl_emu.cli.shown import right, stdout_console
from xccl_emu.protocol.pod_run import PodRun
from xccl_emu.sizes import some

_CAPTION = (
    "in, out: through mtu-in and mtu-out; vector: elements; GB/s: bytes that instructions copied;"
    " seconds and GB/s are this computer's"
)


@dataclass(frozen=True)
class PodResult:
    """What a case did on the whole pod, how long that took in wall seconds, and how much memory."""

    protocol: str
    run: PodRun
    configuration: dict[str, Any]
    """Sizes that were asked for, or taken where none were."""
    seconds: float
    resident_gb: float

    @property
    def wrong(self) -> int:
        """Elements that are not the oracle's."""
        return self.run.wrong

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        run = self.run
        return {
            "protocol": self.protocol, "configuration": self.configuration, "order": run.pod.order,
            "policy": run.pod.policy, "wrong": run.wrong, "wrong_bytes": {}, "rounds": run.rounds,
            "facts": run.facts, "stage_seconds": run.seconds, "seconds": self.seconds,
            "resident_gb": self.resident_gb,
        }  # fmt: skip

    def render(self) -> str:
        """Return it as text for people."""
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.run.seconds.items())
        total = f"{self.seconds:.1f} s in all ({stages}), {self.resident_gb:.1f} GB resident"
        console = stdout_console()
        with console.capture() as captured:
            console.print(self._table())
        return f"{captured.get()}{total}\n#wrong {self.wrong}"

    def _table(self) -> Table:
        """A line for each protocol of each round."""
        facts = self.run.facts.items()
        counts = ", ".join(some(value, name).replace("_", " ") for name, value in facts if isinstance(value, int))
        words = "; ".join([counts, *(value for _, value in facts if isinstance(value, str))])
        numbers = right("in GB", "out GB", "dma GB", "vector G", "M instr", "seconds", "GB/s")
        table = Table("round", *numbers, title=f"{self.protocol}: {words}", caption=_CAPTION)
        for number, stats in enumerate(self.run.rounds, start=1):
            for name, one in stats.items():
                table.add_row(f"{number} {name}", *_cells(one))
        return table


def _cells(stats: dict[str, Any]) -> Iterator[str]:
    moved, seconds = stats["bytes_by_pipe"], stats["seconds"]
    copied = moved["mtu-in"] + moved["mtu-out"] + 2 * moved["dma"]
    for n in (moved["mtu-in"], moved["mtu-out"], moved["dma"], stats["vector_elements"]):
        yield f"{n / 1e9:.{2 if n >= 1e7 or not n else 5}f}"
    yield f"{sum(stats['instructions'].values()) / 1e6:.2f}"
    yield f"{seconds:.2f}"
    yield f"{copied / 1e9 / max(seconds, 1e-9):.1f}"
