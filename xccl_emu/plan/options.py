"""Options of ``xccl-emu plan``."""

from dataclasses import dataclass

from xccl_emu.options import option


@dataclass(frozen=True)
class Planning:
    """Rank every parallel strategy of a model on a cluster, by the analyzer of MixServe (III-B), and say why.

    \b
      xccl-emu plan                                                the paper's DeepSeek-R1 on its 910B
      xccl-emu plan --model Qwen3-235B-A22B --cluster H20 --rate 4
      xccl-emu plan --model mine.toml --cluster my-cluster.toml    their form is in docs/mixserve.md
      xccl-emu plan --strategy "TP=8 + DP=4, EP=32"                this one alone, beside the best
      xccl-emu plan --published                                    beside what the paper measured

    A strategy is attention, experts [stages]: TP splits tensors, DP requests, EP experts, PP layers. What is written
    first is within a node. Times are sums of terms: compute, all-reduce (AR) or its halves (RS, AG), all-to-all (A2A),
    P2P. No device is at hand, none is emulated: these are equations.

    Several equations are wrong as printed: docs/mixserve.md says how, and what is put in their place. The corrected
    ones are used unless --literal asks for the others. Exit code 1: no strategy can be, or not that of --strategy.
    """

    model: str = option("DeepSeek-R1", "DeepSeek-R1, Qwen3-235B-A22B, or a TOML file.", metavar="NAME|FILE")
    cluster: str = option("910B", "910B, H20, or a TOML file.", metavar="NAME|FILE")
    rate: float = option(2.0, "Requests a second; the paper has 2, 4 and 8.")
    batch: int = option(16, "Requests at once.", least=1)
    input: int = option(220, "Tokens of a prompt; the paper does not say how many.", least=1)
    output: int = option(200, "Tokens of an answer; the same.", least=1)
    context: int = option(4096, "Tokens that memory must have room for in every request.", least=1)
    by: str = option("throughput", "What strategies are ranked by: throughput, ttft or itl.", metavar="ORDER")
    strategy: str | None = option(None, "One strategy, such as: TP=8 + DP=4, TP=8 + EP=4 [PP=1]")
    top: int = option(10, "Rows of the table.", least=1)
    literal: bool = option(False, "The equations as they are printed.")
    correct: tuple[str, ...] = option(
        (), "With --literal: but this one corrected, 1, 2, 4, 7, 8, 11 or 13; may be given again.", metavar="EQUATION"
    )
    sync: bool = option(False, "Nothing overlaps: Eq. (13) as it stands.")
    drop: bool = option(False, "Experts without TP get each token once, Eq. (5), not from a whole TP group, (12).")
    published: bool = option(False, "The paper's own strategies, beside what it measured.")
