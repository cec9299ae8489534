"""Rounds of MixServe's fused AG-Dispatch and RS-Combine for users: a layer of experts on a two-level cluster.

layer = MixServe(pod, nodes=2, ranks=2, tokens=4, hidden=64, experts=2, top_k=2)
outputs = layer.layer(tokens, topk, weights)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.mixserve.layer import mixserve
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Regions
from xccl_emu.protocols.communicator import CaseSession, Progress, listed, one_for_each, shaped
from xccl_emu.protocols.experts.config import DTYPES, check_choices
from xccl_emu.protocols.mixserve.case import Data, MixServeCase
from xccl_emu.protocols.mixserve.layout import MixServeLayout

PerGroup = Sequence[NDArray[Any]]
"""An array for each group of attention that has tokens of its own."""


class MixServe(CaseSession[MixServeCase]):
    """AG-Dispatch, dummy experts and RS-Combine on ``nodes`` nodes of ``ranks`` ranks ([MixServe] III-D).

    Sizes are as in the case ``mixserve``; attention has ``dp`` groups, of ``tokens`` tokens each, and experts are
    numbered ``group * experts + local``, in ``ep`` groups.

    >>> import ml_dtypes, numpy as np, xccl_emu as xe
    >>> layer = xe.MixServe(xe.Pod(xe.small_pod(4)), nodes=2, ranks=2, tokens=1, hidden=32, top_k=2)
    >>> x = np.ones((1, 32), ml_dtypes.bfloat16)
    >>> out = layer.layer([x, x], [np.array([[0, 1]])] * 2, [np.ones((1, 2), np.float32)] * 2)
    >>> [float(group[0, 0]) for group in out]  # expert 0 makes 1 + 1.125 of a one, on two ranks, and expert 1 the next
    [4.5, 4.5]
    """

    kind = MixServeCase
    drawn = (*CaseSession.drawn, "part", "rounds")
    kernels = (mixserve,)

    def __init__(
        self, pod: Pod, config: MixServeCase | None = None, *, managed_offset: int = 0, field_offset: int = 0,
        **sizes: Any,
    ) -> None:  # fmt: skip
        case = self._configure(pod, config, sizes)
        regions, self.cores = Regions(case.degrees.world), case.cores
        self._inboxes = MixServeLayout(regions, case.shape)
        self._place(pod, regions, case.shape.ub_bytes, (managed_offset, field_offset))

    def layer(
        self, tokens: PerGroup, topk: PerGroup, weights: PerGroup, progress: Progress | None = None
    ) -> list[NDArray[Any]]:
        """One round of dispatch, experts and combine.

        tokens: for each group [tokens, hidden] of the layer's type.  topk: for each [tokens, top_k] integers, experts
        or -1 for a masked choice, none twice.  weights: for each [tokens, top_k] float32.
        Returns for each group [tokens, hidden].

        Raises ConfigError or CapacityError, before memory changes, for anything else.
        """
        return self.run_rounds([tokens], [topk], [weights], progress)[0]

    def run_rounds(
        self, tokens: Sequence[PerGroup], topk: Sequence[PerGroup], weights: Sequence[PerGroup],
        progress: Progress | None = None,
    ) -> list[list[NDArray[Any]]]:  # fmt: skip
        """Run several rounds in one run, each rank at its own pace: [round][group] arrays as `layer` takes them.

        Returns [round][group] outputs; raises as `layer` does.
        """
        given = {"tokens": tokens, "topk": topk, "weights": weights}
        rounds = listed("tokens", tokens, "a list of rounds, each with an array for each group")
        case = replace(self.config, rounds=len(rounds))
        x, choices, gates = (
            [
                [self._checked(name, item, group) for group, item in enumerate(self._per_group(name, batch))]
                for batch in one_for_each(name, arrays, len(rounds), "rounds")
            ]
            for name, arrays in given.items()
        )
        data = Data(
            case.degrees, case.shape, case.dtype, np.array(x), np.array(choices, np.int64), np.array(gates),
            payload=False,
        )  # fmt: skip
        with self._call(dict.fromkeys(self.layout.dies, case.app_bytes)) as (bench, streams):
            placed = case.launch_all(bench, streams, self._inboxes, data, [case.rounds])
            for (die, core), buffers in placed.items():
                own, dealt = data.of.tokens_on(die), data.shape.tokens_of(core)
                self._fill(buffers["tokens"], data.x[:, own, dealt])
            streams.put()
            self.run_as("layer", progress)
            return self._outputs(case, {where: buffers["out"] for where, buffers in placed.items()})

    def _outputs(self, case: MixServeCase, out: Any) -> list[list[NDArray[Any]]]:
        """[round][group] copies of what the first rank of each group has in the end."""
        dtype, made = DTYPES[case.dtype][1], []
        for group in range(case.degrees.dp):
            die = next(die for die in self.layout.dies if case.degrees.tokens_on(die) == group)
            shape = case.rounds, -1, case.hidden
            parts = [self.pod.payload(out[die, core], dtype, shape) for core in range(case.cores)]
            made.append(np.concatenate(parts, axis=1))
        return [[group[r] for group in made] for r in range(case.rounds)]

    def _per_group(self, name: str, batch: Any) -> list[Any]:
        return one_for_each(name, batch, self.config.degrees.dp, "groups")

    def _checked(self, name: str, item: Any, group: int) -> NDArray[Any]:
        """An array of a group, in which nothing is wrong."""
        c, what = self.config, f"{name} of group {group}"
        if name == "tokens":
            return shaped(what, item, (c.tokens, c.hidden), DTYPES[c.dtype][1])
        if name == "weights":
            return shaped(what, item, (c.tokens, c.top_k), np.float32)
        return check_choices(what, item, (c.tokens, c.top_k), c.degrees.ep * c.experts)
