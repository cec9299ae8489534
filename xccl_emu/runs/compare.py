"""Options of ``xccl-emu compare`` without names: one layer of a mixture of experts by every protocol that runs one."""

from dataclasses import dataclass

from xccl_emu.options import option


@dataclass(frozen=True)
class LayerCompared:
    """Run one layer of experts by every protocol, and print what each die asks of other dies; or protocols by name.

    \b
      xccl-emu compare                                        a layer by all that run one
      xccl-emu compare --ranks 288 --attention 160 --cores 4  the same, of a large deployment
      xccl-emu compare all-reduce-ring all-reduce-one-shot --ranks 4 --elements 4096

    Of protocols that are named the options are sizes that all of them have; xccl-emu list NAME shows them.

    The numbers are counts of the run and no formulas: of requests for the memory of another die, the mean over the
    dies and, in brackets, the most. Rows and outputs are compared with the oracle; the exit code is 1 if any is wrong.
    """

    ranks: int = option(18, "Dies with experts, one each.", least=2, most=768)
    attention: int = option(
        10, "Attention dies, where these and experts are on different ones.", least=1, most=767
    )  # fmt: skip
    tokens: int = option(8, "Tokens of each rank or attention die.", least=1)
    hidden: int = option(7168, "Elements of a hidden state, a multiple of 32.", least=32)
    top_k: int = option(8, "Routed experts of a token.", least=1, most=15)
    cores: int = option(2, "Cores of a rank, of an attention die, of a stream.", least=1, most=16)
    seed: int = option(0, "Seed of the payload and the routing.", least=0)
