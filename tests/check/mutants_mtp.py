"""Bugs in the metadata of multi-token prediction."""

from dataclasses import replace

from xccl_emu.protocols.serving.mtp import Mtp

from .kinds import RACE, RIGHT, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

USUAL = Mtp()
TWO = replace(USUAL, drafts=2)
SEVERAL = Mtp(drafts=2, steps=4, seed=1)
BAD = RACE | WRONG | TORN | UNWRITTEN

of = Of("serving.mtp")

# ---- what stands in the kernels

WORD = "        yield xl.put(d.length, (step + 1) * STEP + length + accepted + 1, step=4, sync=\"length\")\n"
FENCE = "        yield xl.fence(step=4, sync=\"tokens before length\")\n"
IN = "        yield xl.poll_ge(d.length, step * STEP, step=2, sync=\"length in\")\n"

KNOWN = (
    bug("mtp: a graph reads the length that is there", USUAL, BAD, of(IN, ""), quick=True),
    bug("mtp: the word does not say of which step it is", USUAL, BAD,
        of("(step + 1) * STEP + length", "length"), of(IN, IN.replace("step * STEP", "1")),
        of("(step - 1) * STEP", "1"), quick=True),
    bug("mtp: the word is written before the tokens", USUAL, BAD, of(FENCE, ""), quick=True),
    bug("mtp: the next length is that of all drafts right", SEVERAL, BAD | RIGHT,
        of("length + accepted + 1, step=4", "length + d.n + 1, step=4"), quick=True),
    bug("mtp: one table of metadata", USUAL, BAD,
        of("d.metadata + (step % 2 * (d.n + 1) + graph) * FIELD_BYTES, 16", "d.metadata + graph * FIELD_BYTES, 16"),
        of("address = d.metadata + (step % 2 * (d.n + 1) + graph)", "address = d.metadata + graph"), quick=True),
)  # fmt: skip
OWN = (
    bug("mtp: the host prepares a table that is in use", USUAL, BAD, of.without("table free")),
    bug("mtp: metadata is said to be there before it is", USUAL, BAD, of.without("metadata before prepared")),
    bug("mtp: drafts are said to be there before they are", TWO, BAD, of.without("drafts before drafted")),
    bug("mtp: validation does not wait for drafts", USUAL, BAD, of.without("drafted in")),
)  # fmt: skip
