/* Chunks there and back: a ping brings each to the other die, which sends it back as a pong. */
#include "xccl_emu.h"

/* Copy a chunk from memory to memory through the data buffer; it may still be on its way. */
static void copy(int64_t source, int64_t target, int64_t nbytes) {
    xccl_mtu_in(source, 0, nbytes);
    xccl_set_flag(XCCL_MTU_IN, XCCL_MTU_OUT, 0, .sync = "chunk in buffer");
    xccl_wait_flag(XCCL_MTU_IN, XCCL_MTU_OUT, 0, .sync = "chunk in buffer");
    xccl_mtu_out(0, target, nbytes);
}

/* Write a chunk to the other die, followed by the tail that announces it. */
static void send(int64_t source, int64_t slot, int64_t tail, int64_t nbytes, int64_t number, int64_t fenced) {
    copy(source, slot, nbytes);
    if (fenced) xccl_fence(.sync = "chunk before tail");
    xccl_put(tail, number, 0, 0, 0, .sync = "tail");
}

/* Copy a chunk out when its tail says that it is there. */
static void receive(int64_t slot, int64_t tail, int64_t target, int64_t nbytes, int64_t number) {
    xccl_poll_ge(tail, number, 8, -1, .sync = "chunk arrived");
    copy(slot, target, nbytes);
    xccl_quiet(.sync = "slot read");
}

XCCL_KERNEL void ping(int64_t own, int64_t out, int64_t mine, int64_t my_tail, int64_t theirs, int64_t their_tail,
                      int64_t chunks, int64_t nbytes, int64_t fenced) {
    for (int64_t i = 0; i < chunks; i++) {
        send(own + i * nbytes, theirs, their_tail, nbytes, i + 1, fenced);
        receive(mine, my_tail, out + i * nbytes, nbytes, i + 1);
    }
}

XCCL_KERNEL void pong(int64_t out, int64_t mine, int64_t my_tail, int64_t theirs, int64_t their_tail, int64_t chunks,
                      int64_t nbytes) {
    for (int64_t i = 0; i < chunks; i++) {
        receive(mine, my_tail, out + i * nbytes, nbytes, i + 1);
        send(out + i * nbytes, theirs, their_tail, nbytes, i + 1, 1);
    }
}
