"""Rollback of an iteration as a case: ranks that exchange rows, and a supervisor that may abort an iteration."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.rollback import FIELD_BYTES, HEADER_BYTES, Ranks, rank, supervise
from xccl_emu.protocol import Bench, Case, Preset, Regions, payload, size


@dataclass(frozen=True)
class Rollback(Case):
    """``ranks`` exchange a row an iteration; one more die aborts what they do ``aborts`` times, at any moment."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("rollback", "An iteration of all ranks is aborted and executed again (xDeepServe 6.2)"),
    )

    ranks: int = size(2, "Ranks that exchange rows.", least=2, most=256)
    iterations: int = size(2, "Iterations.", most=1 << 10)
    aborts: int = size(1, "Times that the supervisor aborts what is under way.", least=0, most=1 << 10)
    granules: int = size(1, "Granules of 32 bytes of a row.", most=128)
    seed: int = size(0, "Of the rows.", least=0, most=None)

    def sent(self) -> NDArray[np.uint8]:
        """Rows, [ranks, iterations, bytes]."""
        return payload(self.payload_bytes, self.seed).reshape(self.ranks, self.iterations, 32 * self.granules)

    @property
    def payload_bytes(self) -> int:
        """What all ranks have to send."""
        return self.ranks * self.iterations * 32 * self.granules

    def received(self, me: int) -> NDArray[np.uint8]:
        """What a rank gets, [iterations, ranks - 1, bytes], from the rank behind it on."""
        sent, others = self.sent(), [(me + j) % self.ranks for j in range(1, self.ranks)]
        return np.stack([[sent[other, i] for other in others] for i in range(self.iterations)])

    def lay_out(self, bench: Bench) -> None:
        """Rows and fields of all ranks on each die; the supervisor has a die of its own behind them."""
        nbytes, supervisor = 32 * self.granules, self.ranks
        regions = Regions(self.ranks + 1)
        rows = regions.managed("row", HEADER_BYTES + nbytes, 2 * self.ranks)
        fields, readies, dones = (regions.meta(name, FIELD_BYTES, self.ranks) for name in ("field", "ready", "done"))
        over, abort = (regions.meta(name, FIELD_BYTES) for name in ("end", "abort"))
        app = self.iterations * nbytes * self.ranks
        pod = bench.pod(regions.tight_pod(app_bytes=app, ub_bytes=2 * (HEADER_BYTES + nbytes)))
        regions.place(bench, pod)
        known = Ranks(
            0, self.ranks, self.iterations, nbytes, rows.at(0), fields.at(0), readies.at(0), dones.at(0), over.at(0),
            abort.at(0), rows.at(1) - rows.at(0),
        )  # fmt: skip
        for me, sent in enumerate(self.sent()):
            own, out = bench.filled(me, sent, "own"), bench.wanted(me, self.received(me), "out", owners=f"die{me}")
            grants = [pod.grant(own, "r"), pod.grant(out, "w"), abort.grant(me, "r")]
            grants += [each.grant(me, "r") for each in (rows, fields, readies, over)]
            grants.append(dones.grant(0, "w" if me else "r"))
            for other in range(self.ranks):
                if other != me:
                    grants += [each.grant(other, "w") for each in (rows, fields, readies, over)]
            pod.launch(
                rank, me, [0], {"own": own.address, "out": out.address, "r": known._replace(me=me)}, grants
            )
        grants = [abort.grant(me, "w") for me in range(self.ranks)]
        pod.launch(supervise, supervisor, [0], {"aborts": self.aborts, "r": known}, grants)

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """One abort, two of which the second may come before the first is over, and three ranks."""
        usual = cls()
        return {
            "two ranks, an abort": usual,
            "no abort": replace(usual, aborts=0),
            "an abort of a rollback": replace(usual, aborts=2, iterations=1),
        }
