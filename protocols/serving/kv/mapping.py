"""Which prefill rank a decode rank pulls from, so that all links carry as much ([CloudMatrix384] 4.3.3).

All ranks of a prefill instance hold the same latent cache, so any would do.  The paper's equations divide twice and do
not say how: with whole numbers, as sizes are, they fail for most shapes; with exact fractions for none whose ratio is
whole.
"""

from typing import NamedTuple

from xccl_emu.base import errors


class InstancePair(NamedTuple):
    """Ranks of a prefill instance and of a decode instance."""

    prefill_tp: int
    decode_tp: int
    decode_dp: int

    def check(self, dp: int, tp: int) -> None:
        """Raises ConfigError for sizes below one, and for a decode rank that is not there."""
        for name, size in self._asdict().items():
            if size < 1:
                raise errors.ConfigError(name, size, "must be at least 1")
        if not (0 <= dp < self.decode_dp and 0 <= tp < self.decode_tp):
            raise errors.ConfigError(
                f"decode rank ({dp}, {tp}): ranks are (0, 0) to ({self.decode_dp - 1}, {self.decode_tp - 1})"
            )


def balanced(shape: InstancePair, dp: int, tp: int) -> int:
    """The rank by the same equations in exact fractions: each exists, and serves as many as any other, or one more.

    It is the rank of the equations in whole numbers where those have one for every rank.

    Raises ConfigError where ``decode_tp`` does not divide ``prefill_tp``.
    """
    shape.check(dp, tp)
    ratio, rest = divmod(shape.prefill_tp, shape.decode_tp)
    if rest or ratio == 0:
        raise errors.ConfigError(
            "prefill_tp", shape.prefill_tp, f"must be a multiple of decode_tp={shape.decode_tp}, so that ranks of a "
            f"decode group pull from as many prefill ranks"
        )
    return dp * ratio // shape.decode_dp * shape.decode_tp + tp
