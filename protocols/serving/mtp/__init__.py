"""Multi-token prediction with metadata that is prepared ahead, as a case."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.serving import mtp as device

FIELD = device.FIELD_BYTES


@dataclass(frozen=True)
class Mtp(protocol.Case):
    """A core for the host, one for draft graphs and one for validation go through ``steps`` of one request."""

    papers = protocol.read_papers("serving.mtp")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("mtp", "Metadata of decode steps is prepared before their length is known"),
    )

    drafts: int = protocol.size(1, "Tokens that are predicted in a step.", most=15)
    steps: int = protocol.size(3, "Decode steps.", most=1 << 12)
    seed: int = protocol.size(0, "Of the first token, and of how many drafts are right.", least=0, most=None)

    def accepts(self) -> NDArray[np.int64]:
        """Drafts that are right, [steps]."""
        return np.random.default_rng([self.seed, 1]).integers(0, self.drafts + 1, self.steps)

    def decoded(self) -> NDArray[np.int64]:
        """Return all tokens, [positions, words]; the first is there before."""
        tokens = [int(np.random.default_rng([self.seed, 2]).integers(1, 1 << 20))]
        for step, accepted in enumerate(self.accepts()):
            length, token = len(tokens), tokens[-1]
            for graph in range(accepted):
                token = 3 * token + length + 16 * step + graph
                tokens.append(token)
            tokens.append(7 * length + 16 * step + self.drafts)
        fields = np.zeros((len(tokens), FIELD // 8), np.uint64)
        fields[:, 0] = [token % 2**64 for token in tokens]
        return fields.view(np.int64)

    def lay_out(self, bench: protocol.Bench) -> None:
        """Everything is on one die; tokens are app data."""
        decoded, accepts = self.decoded(), self.accepts()
        regions = protocol.Regions(1)
        length, prepared, drafted = (regions.meta(name, FIELD) for name in ("length", "prepared", "drafted"))
        metadata = regions.meta("metadata", FIELD, 2 * (self.drafts + 1))
        drafts = regions.meta("draft", FIELD, self.drafts)
        app_bytes = decoded.nbytes + FIELD + accepts.nbytes
        pod = regions.pod(bench, app_bytes=app_bytes, ub_bytes=FIELD, cores=3)
        bench.set_meta(0, length.at(0) - pod.meta(0), np.array([1]))
        first = np.zeros_like(decoded)
        first[0] = decoded[0]
        tokens, right = bench.filled(0, first, "tokens"), bench.filled(0, accepts, "accepts")
        bench.expect(tokens.address, decoded, "tokens", owners="die0.core2")
        known = device.Decode(
            length.at(0), metadata.at(0), prepared.at(0), drafts.at(0), drafted.at(0), tokens.address, self.drafts,
            self.steps,
        )  # fmt: skip
        pod.launch(device.prepare, 0, [0], {"d": known})
        pod.launch(device.draft, 0, [1], {"d": known})
        pod.launch(device.validate, 0, [2], {"accepts": right.address, "d": known})
        bench.tolerates("stop")

    proof_rows: ClassVar = {
        "three steps": {},
        "five steps": dict(steps=5),
        "two drafts": dict(drafts=2),
        "three drafts, four steps": dict(drafts=3, steps=4),
        "other acceptances": dict(drafts=2, steps=4, seed=1),
    }
