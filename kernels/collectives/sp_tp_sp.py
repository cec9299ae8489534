"""The two collectives of staged parallelism in prefill, SP-TP-SP (CloudMatrix384 4.3.1).

Prompts are packed into one sequence of tokens, and each rank has a segment; segments differ by a token at most.
Between stages 1 and 2 an all-gather gives all ranks the latents of all tokens.  Between stages 2 and 3 an all-to-all
brings what each rank's heads made of all tokens back to segments, the heads of a token side by side.

Inboxes, fields and turns are the same as in `exchange`: two turns a layer; a slot has room for the longest segment.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.exchange import announce, await_slice
from xccl_emu.kernels.collectives.slices import Packed, Peers, copy, leave_buffer


def segment(rank: int, ranks: int, tokens: int) -> int:
    """First token of a rank's segment."""
    return tokens * rank // ranks


def all_gather(turn, latents, gathered, k: Packed, p: Peers):
    """Send the latents of the own segment to all, and put the latents of all others side by side."""
    first = segment(p.me, p.ranks, k.tokens)
    own = segment(p.me + 1, p.ranks, k.tokens) - first
    slot = p.inbox + (turn % 2 * p.ranks + p.me) * p.room
    for i in range(own * p.ranks):
        rank = (p.me + i // own) % p.ranks
        target = slot + rank * p.pitch + i % own * k.latent
        if rank == p.me:
            target = gathered + (first + i) * k.latent
        yield from copy(i, own * p.ranks, latents + i % own * k.latent, target, k.latent, k.half)
    yield from announce(turn, p)
    n = 0
    for i in range(1, p.ranks):
        rank = (p.me + p.ranks - i) % p.ranks
        came = yield from await_slice(rank, turn, p)
        start = segment(rank, p.ranks, k.tokens)
        for row in range(segment(rank + 1, p.ranks, k.tokens) - start):
            target = gathered + (start + row) * k.latent
            yield from copy(n, k.tokens - own, came + row * k.latent, target, k.latent, k.half)
            n += 1
    yield from leave_buffer()


def all_to_all(turn, heads, out, k: Packed, p: Peers):
    """Send what the own heads made of each segment to its rank, and collect all heads for the own segment."""
    first = segment(p.me, p.ranks, k.tokens)
    own = segment(p.me + 1, p.ranks, k.tokens) - first
    slot = p.inbox + (turn % 2 * p.ranks + p.me) * p.room
    n = 0
    for i in range(p.ranks):
        rank = (p.me + i) % p.ranks
        start = segment(rank, p.ranks, k.tokens)
        for row in range(segment(rank + 1, p.ranks, k.tokens) - start):
            target = slot + rank * p.pitch + row * k.part
            if i == 0:
                target = out + (row * p.ranks + p.me) * k.part
            yield from copy(n, k.tokens, heads + (start + row) * k.part, target, k.part, k.half)
            n += 1
    yield from announce(turn, p)
    n = 0
    for i in range(1, p.ranks):
        rank = (p.me + p.ranks - i) % p.ranks
        came = yield from await_slice(rank, turn, p)
        for row in range(own):
            target = out + (row * p.ranks + rank) * k.part
            yield from copy(n, own * (p.ranks - 1), came + row * k.part, target, k.part, k.half)
            n += 1
    yield from leave_buffer()


@xl.kernel
def sp_tp_sp(k: Packed, p: Peers):
    """Both collectives, layer by layer."""
    own = segment(p.me + 1, p.ranks, k.tokens) - segment(p.me, p.ranks, k.tokens)
    for i in range(k.layers):
        latents = k.latents + i * own * k.latent
        yield from all_gather(2 * (k.done + i), latents, k.gathered + i * k.tokens * k.latent, k, p)
        heads = k.heads + i * k.tokens * k.part
        yield from all_to_all(2 * (k.done + i) + 1, heads, k.out + i * own * p.ranks * k.part, k, p)
