"""KV caches on their way from prefill to decode beside their paper, [xDeepServe] 5.1."""

from xccl_emu.kernels.kv import probe, retry, transfer
from xccl_emu.protocol import Deviation, Paper, Step

TRANSFER = Paper(
    "Transfer of KV caches", "xDeepServe 5.1; which rank pulls from which, CloudMatrix384 4.3.3", (transfer, retry), (
        Step(
            3, "Register a task when the prefill is done: metadata and addresses of blocks alone, no data.", (
                Deviation(
                    "The task is a field of 32 bytes in a ring at the decode die; it names a table of addresses.",
                    "The paper does not say where tasks are.", "put task",
                ),
                Deviation(
                    "A quiet between the cache and the task.",
                    "They are on different dies, so that a fence does not order them; the checker finds a race.",
                    "quiet cache before task",
                ),
                Deviation(
                    "A cache may have a task for each layer.", "So that pulling begins before the prefill has ended.",
                ),
            ),
        ),
        Step(
            6, "Where decode has too few free slots it defers the receive, which holds up whoever sends.", (
                Deviation(
                    "All slots of a request are taken at once, by a compare-and-swap of a word of bits.",
                    "Of two receivers that take them one by one each may get half; the checker finds the deadlock.",
                    "room taken",
                ),
                Deviation(
                    "Slots may be offered to prefill, which then writes there.",
                    "The paper's XCCL has zero-copy sends; a quiet becomes a fence, as all is on one die.",
                    "put slots offered",
                ),
                Deviation(
                    "A request may be aborted, or time out, and be asked for again; each attempt has an epoch.",
                    "The paper does not say what becomes of a transfer that ends early.", "choose time-out",
                ),
            ),
        ),
        Step(
            7, "Move the data, in order, and pair the right requests: blocks do not describe themselves.", (
                Deviation(
                    "Each side has the request's ID, and the run fails if they differ.",
                    "The paper says that DistFlow ensures it, not how.", "fail",
                ),
                Deviation(
                    "Blocks are shared out to cores by number; ranks of a TP group pull each for itself.",
                    "With MLA all ranks have the same cache.", "mtu_in",
                ),
            ),
        ),
        Step(
            8, "When all is there, prefill releases its blocks, and decode enqueues the request.", (
                Deviation(
                    "Prefill's completion comes when the blocks are read, decode's when they are visible.",
                    "The sooner a block is free, the smaller a pool may be.", "add done",
                ),
                Deviation(
                    "Completions are counts, one of each core.",
                    "Under `unordered` an older value may land on a newer.", "add ready",
                ),
                Deviation(
                    "Whoever gives a transfer up waits until nothing of it is under way before its slots are free.",
                    "Else what is pulled late lands in the slots of another request.", "quiet nothing under way",
                ),
            ),
        ),
    ),
)  # fmt: skip

PROBING = Paper(
    "Link probing", "xDeepServe 6.1", (probe,), (
        Step(1, "KV blocks move; where decode has no slot they stand, as if the link were down."),
        Step(
            2, "When they stand the sender probes: the probe needs no KV slot.", (
                Deviation(
                    "A word to ask and a word to answer, beside the tasks.",
                    "In one ring with them a probe waits behind what is deferred; the checker finds the deadlock.",
                    "put probe",
                ),
            ),
        ),
        Step(
            3, "The receiver answers, also while it has no slot.", (
                Deviation(
                    "The answer has the number of its probe, and says how many slots are free.",
                    "An old answer must not count, and the sender learns why blocks stand.", "put answer",
                ),
            ),
        ),
        Step(
            4, "No answer within the time-out: the link, and not the load, is at fault.", (
                Deviation(
                    "The time-out passes only where no answer will come any more.",
                    "It is longer than any answer takes; how much longer is no matter of a protocol.", "put time-out",
                ),
            ),
        ),
    ),
)  # fmt: skip
