"""Rollback of an iteration as a case: ranks that exchange rows, and a supervisor that may abort an iteration."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels import rollback, sampled
from xccl_emu.kernels.sampled import ENTRY_BYTES, VOCABULARY
from xccl_emu.machine.launch import Address
from xccl_emu.protocol import Bench, Case, Preset, Region, Regions, payload, read_papers, size


def own_words(me: int, first: int, readies: Region, dones: Region, over: Region) -> dict[str, Address]:
    """Return the words that a rank shares, on the first die: its own, and all if it is the one that ends it all."""
    return {
        "readies": readies.at(first).only(me),
        "dones": dones.at(first).only(me).limited("w") if me else dones.at(first).limited("r"),
        "over": over.at(first).limited("r" if me else "rw"),
    }


@dataclass(frozen=True)
class Rollback(Case):
    """``ranks`` exchange a row an iteration; one more die aborts what they do ``aborts`` times, at any moment."""

    papers = read_papers("rollback")
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("rollback", "An iteration of all ranks is aborted and executed again (xDeepServe 6.2)"),
    )

    ranks: int = size(2, "Ranks that exchange rows.", least=2, most=256)
    iterations: int = size(2, "Iterations.", most=1 << 10)
    aborts: int = size(1, "Times that the supervisor aborts what is under way.", least=0, most=1 << 10)
    failures: int = size(0, "Iterations of each rank that may go wrong, whichever these are.", least=0, most=16)
    granules: int = size(1, "Granules of 32 bytes of a row.", most=128)
    seed: int = size(0, "Of the rows, and of prompts.", least=0, most=None)
    prompt: int = size(
        1, "Entries that each rank's KV cache has at first; 0: ranks have none, and sample no tokens.", least=0,
        most=1 << 10, advanced=True,
    )  # fmt: skip

    def sent(self) -> NDArray[np.uint8]:
        """Rows, [ranks, iterations, bytes]."""
        return payload(self.payload_bytes, self.seed).reshape(self.ranks, self.iterations, 32 * self.granules)

    @property
    def payload_bytes(self) -> int:
        """Payload of all ranks in bytes."""
        return self.ranks * self.iterations * 32 * self.granules

    def received(self, me: int, sent: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what a rank gets of the rows of all, [iterations, ranks - 1, bytes], from the next rank on."""
        others = [(me + j) % self.ranks for j in range(1, self.ranks)]
        return np.stack([[sent[other, i] for other in others] for i in range(self.iterations)])

    def decoded(self) -> NDArray[np.int64]:
        """Return the tokens of all ranks, [ranks, prompt + 1 + iterations]; prompts are drawn.

        A token is 1 and a remainder: of the rank's tokens so far, and then of the last one of each other rank.
        """
        drawn = np.random.default_rng([self.seed, 1]).integers(1, VOCABULARY, (self.ranks, self.prompt + 1))
        tokens: list[list[int]] = drawn.tolist()
        for _ in range(self.iterations):
            last = [own[-1] for own in tokens]
            for me, own in enumerate(tokens):
                made = 0
                for token in own:
                    made = (3 * made + token) % VOCABULARY
                for j in range(1, self.ranks):
                    made = (5 * made + last[(me + j) % self.ranks]) % VOCABULARY
                own.append(made + 1)
        return np.array(tokens, np.int64)

    def _decoding(self, bench: Bench, me: int, work: int) -> sampled.Decoding:
        """The rank's cache, tokens and state: as they are at first, and as they must be in the end."""
        if not self.prompt:
            return sampled.Decoding(0, 0, 0, 0, 0)
        tokens, owners = self.decoded()[me], f"die{me}"
        cache = np.zeros((len(tokens) - 1, ENTRY_BYTES // 8), np.int64)
        cache[:, 0], cache[:, 1] = tokens[:-1], np.arange(len(cache))
        whole = {"state": np.array([len(cache), tokens[-1]]), "sampled": tokens[self.prompt :], "cache": cache}
        first = {"state": np.array([self.prompt, tokens[self.prompt]]), "sampled": tokens[self.prompt :][:1]}
        first["cache"] = cache[: self.prompt]
        at = {name: bench.wanted(me, data, name, owners).address for name, data in whole.items()}
        for name, data in first.items():
            bench.fill(at[name], data)
        return sampled.Decoding(self.prompt, **at, work=work)

    def lay_out(self, bench: Bench) -> None:
        """Rows and fields of all ranks on each die; the supervisor has a die of its own after them."""
        nbytes, supervisor = 32 * self.granules, self.ranks
        regions = Regions(self.ranks + 1)
        rows = regions.managed("row", rollback.HEADER_BYTES + nbytes, 2 * self.ranks)
        fields, readies, dones = (
            regions.meta(name, rollback.FIELD_BYTES, self.ranks) for name in ("field", "ready", "done")
        )
        over, abort, errors = (regions.meta(name, rollback.FIELD_BYTES) for name in ("end", "abort", "errors"))
        entries, work = self.prompt + self.iterations, 2 * (rollback.HEADER_BYTES + nbytes)
        decoding = bool(self.prompt) * (entries * (ENTRY_BYTES + 8) + 96)
        app = self.iterations * nbytes * self.ranks + decoding
        pod = regions.pod(bench, app_bytes=app, ub_bytes=work + bool(self.prompt) * entries * ENTRY_BYTES)
        known = rollback.RankWords(
            0, self.ranks, self.iterations, readies.at(0), dones.at(0), over.at(0), abort.at(0), errors.at(supervisor),
            pod.spec.die_bytes,
        )  # fmt: skip
        sent = self.sent()
        for me in range(self.ranks):
            own = bench.filled(me, sent[me], "own")
            out = bench.wanted(me, self.received(me, sent), "out", owners=f"die{me}")
            mine = known._replace(me=me, **own_words(me, 0, readies, dones, over))
            args = {"own": own.address, "out": out.address, "failures": self.failures, "r": mine}
            where = rollback.IterationRows(nbytes, rows.at(0).only(me, self.ranks + me), fields.at(0).only(me))
            pod.launch(rollback.rank, me, [0], {**args, "w": where, "t": self._decoding(bench, me, work)})
        pod.launch(rollback.supervise, supervisor, [0], {"aborts": self.aborts, "r": known})
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two ranks, an abort": {},
        "no abort": dict(aborts=0),
        "an abort of a rollback": dict(aborts=2),
        "an iteration of each rank goes wrong": dict(failures=1, aborts=0),
        "three ranks": dict(ranks=3, iterations=1),
        "rows of two granules": dict(granules=2),
        "two entries in each cache": dict(prompt=2),
        "no cache and no tokens": dict(prompt=0),
        "no tokens, an abort of a rollback": dict(prompt=0, aborts=2),
    }
