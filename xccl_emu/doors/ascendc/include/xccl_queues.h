/* Buffers and queues: who may use which part of the data buffer, by events between the pipes. */
#pragma once

namespace AscendC {
constexpr int xccl_turned(int event) { return (event & 15) << 4 | event >> 4; }

/* The state of a queue; a bit or a byte for each of up to four buffers. */
struct xccl_queue {
    uint32_t start = 0, nbytes = 0, left = 0; /* of the events that were set for buffers which it had */
    uint8_t n = 0, event = 0, taken = 0, freed = 0, next = 0, first = 0, filled = 0;
    uint8_t order[4] = {};
    const xccl_site *waits = nullptr; /* for what is freed at the end */
};

/* `FULL` says which pipe fills its buffers and which uses them, as a HardEvent does. */
template <int FULL> class xccl_buffers {
    static constexpr int full = FULL, empty = xccl_turned(full);

public:
    xccl_buffers() = default;
    xccl_buffers(const xccl_buffers &) = delete;
    /* Waits for what was freed and nobody took again: events must not be set at the kernel's end. */
    ~xccl_buffers() {
        let_go();
        for (int event = 0; event < 32; event++)
            if (q.left >> event & 1) xccl_place{0, nullptr, 0, q.waits}(XCCL_OP_WAIT_FLAG, empty >> 4, empty & 15, event);
    }
    /* Its buffers are no longer in use; to take them again for another one is not ordered after that. */
    void let_go() {
        uint32_t left = q.left | uint32_t(q.freed) << q.event;
        const xccl_site *waits = q.waits;
        q = {}, q.left = left, q.waits = waits;
    }
    template <class T> LocalTensor<T> AllocTensor(XCCL_AT(AllocTensor)) {
        int k = q.next;
        if (q.taken >> k & 1) at.fail(XCCL_OP_WAIT_FLAG, XCCL_NO_BUFFER, q.n);
        if (q.freed >> k & 1) at(XCCL_OP_WAIT_FLAG, empty >> 4, empty & 15, q.event + k);
        q.freed &= ~(1 << k), q.taken |= 1 << k, q.next = (k + 1) % q.n;
        return {q.start + k * q.nbytes, q.nbytes};
    }
    template <class T> void EnQue(const LocalTensor<T> &tensor, XCCL_AT(EnQue)) {
        int k = (tensor.start - q.start) / q.nbytes;
        at(XCCL_OP_SET_FLAG, full >> 4, full & 15, q.event + k);
        q.order[(q.first + q.filled++) % 4] = k;
    }
    template <class T> LocalTensor<T> DeQue(XCCL_AT(DeQue)) {
        if (q.filled == 0) at.fail(XCCL_OP_WAIT_FLAG, XCCL_EMPTY_QUEUE, q.n);
        int k = q.order[q.first];
        q.order[q.first] = 0, q.first = (q.first + 1) % 4, q.filled--;
        at(XCCL_OP_WAIT_FLAG, full >> 4, full & 15, q.event + k);
        return {q.start + k * q.nbytes, q.nbytes};
    }
    template <class T> void FreeTensor(const LocalTensor<T> &tensor, XCCL_AT(FreeTensor)) {
        int k = (tensor.start - q.start) / q.nbytes;
        at(XCCL_OP_SET_FLAG, empty >> 4, empty & 15, q.event + k);
        q.taken &= ~(1 << k), q.freed |= 1 << k;
        q.waits = at.of(XCCL_OP_WAIT_FLAG);
    }
    xccl_queue q;
};
template <TPosition P> constexpr int xccl_full() {
    static_assert(P == TPosition::VECIN || P == TPosition::VECOUT, "a queue is VECIN or VECOUT in xccl_emu's header");
    return P == TPosition::VECIN ? 0x12 : 0x23;
}
template <TPosition P, int DEPTH> class TQue : public xccl_buffers<xccl_full<P>()> {};
/* Buffers of the vector pipe alone, which its order keeps apart. */
template <int DEPTH> class TQue<TPosition::VECCALC, DEPTH> {
public:
    template <class T> LocalTensor<T> AllocTensor() {
        const uint32_t at = next;
        next = (next + 1) % n;
        return {start + nbytes * at, nbytes};
    }
    template <class T> void FreeTensor(const LocalTensor<T> &) {}
    uint32_t start = 0, nbytes = 0;
    uint8_t n = 0, next = 0;
};
/* Filled by transfers from memory, and written to memory from there. */
template <TPosition FROM, TPosition TO, int DEPTH> class TQueBind : public xccl_buffers<0x13> {
    static_assert(FROM == TPosition::VECIN && TO == TPosition::VECOUT, "TQueBind is VECIN to VECOUT in xccl_emu's header");
};

template <TPosition P = TPosition::VECCALC> class TBuf {
public:
    template <class T> LocalTensor<T> Get() const { return {start, nbytes}; }
    template <class T> LocalTensor<T> AllocTensor() const { return {start, nbytes}; }
    template <class T> void FreeTensor(const LocalTensor<T> &) const {}
    template <class T> LocalTensor<T> Get(uint32_t count) const { return {start, count * uint32_t(sizeof(T))}; }
    template <class T> LocalTensor<T> GetWithOffset(uint32_t count, uint32_t offset) const {
        return {start + offset, count * uint32_t(sizeof(T))};
    }
    uint32_t start = 0, nbytes = 0;
};

class TPipe {
public:
    template <int FULL>
    void InitBuffer(xccl_buffers<FULL> &queue, uint8_t n, uint32_t nbytes, XCCL_AT(InitBuffer)) {
        if (n > 4 || events + n > XCCL_QUEUE_EVENTS) at.fail(XCCL_OP_FAIL, XCCL_MANY_BUFFERS, n);
        queue.let_go();
        queue.q.nbytes = (nbytes + 31) / 32 * 32, queue.q.n = n, queue.q.event = XCCL_QUEUE_EVENT + events;
        queue.q.start = top, top += n * queue.q.nbytes, events += n;
    }
    template <int DEPTH> void InitBuffer(TQue<TPosition::VECCALC, DEPTH> &queue, uint8_t n, uint32_t nbytes) {
        queue.start = top, queue.n = n, queue.nbytes = (nbytes + 31) / 32 * 32, top += n * queue.nbytes;
    }
    template <TPosition P> void InitBuffer(TBuf<P> &buffer, uint32_t nbytes) {
        buffer.start = top, buffer.nbytes = (nbytes + 31) / 32 * 32, top += buffer.nbytes;
    }
    /* All of the data buffer is free again. */
    void Reset() { top = 0; }
    int32_t FetchEventID(HardEvent) const { return XCCL_FETCHED_EVENT; }
    template <HardEvent> void ReleaseEventID(int32_t) const {}

private:
    uint32_t top = 0, events = 0;
};
constexpr TPipe xccl_pipe;
inline const TPipe *GetTPipePtr() { return &xccl_pipe; }
} // namespace AscendC
