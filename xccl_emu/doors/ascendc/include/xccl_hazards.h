/* Hazards inside a core, by byte ranges of the data buffer in the order of the program: bytes that the scalar unit
 * wrote and a pipe uses before an event says so, and bytes that a vector instruction wrote and the next one uses.
 *
 * Ranges that somebody may still use too early are in the core's registers, two words each.
 */
#pragma once

namespace AscendC {
enum { XCCL_IS_OF_VECTOR = 1 << 4, XCCL_IS_FRESH = 1 << 5 };

/* A range: first byte and last; which pipes go on after its write (a bit each), who wrote it, whether the call that
 * runs did, and for each pipe an event that is set and will say so. */
struct xccl_range {
    int64_t word;
    uint32_t first() const { return uint32_t(xccl_kept(word)); }
    uint32_t end() const { return uint32_t(xccl_kept(word) >> 32); }
    int64_t state() const { return xccl_kept(word + 1); }
    int writer() const { return state() & XCCL_IS_OF_VECTOR ? PIPE_V : PIPE_S; }
    bool is_known_to(int pipe) const { return state() >> pipe & 1; }
    int event(int target) const { return state() >> (8 + 8 * target) & 255; }
    void set(int64_t first, int64_t end, int64_t state) const {
        xccl_keep(word, first | end << 32), xccl_keep(word + 1, state);
    }
    void set(int64_t state) const {
        bool is_done = writer() == PIPE_V ? state >> PIPE_V & 1 : (state >> PIPE_MTE2 & 7) == 7;
        is_done ? set(0, 0, 0) : set(first(), end(), state);
    }
    void set_event(int target, int64_t event) const {
        set((state() & ~(int64_t(255) << (8 + 8 * target))) | event << (8 + 8 * target));
    }
};
template <class F> void xccl_ranges(F f) {
    for (int i = 0; i < XCCL_RANGES; i++)
        if (xccl_range range = {XCCL_HAZARDS_WORD + 2 * i}; range.end()) f(range);
}

/* Is what a place names switched off in this run? */
inline bool xccl_is_cut(const xccl_place &at, int64_t operation) {
    static constexpr const char *cuts[] = {XCCL_CUT nullptr};
    for (const char *cut : cuts) {
        const char *sync = (at.site ? at.site : at.of(operation))->sync;
        while (cut && *cut && *cut == *sync) cut++, sync++;
        if (cut && *cut == *sync) return true;
    }
    return false;
}

inline void xccl_wrote(const xccl_place &at, int64_t operation, int64_t first, int64_t nbytes, int pipe) {
    int64_t state = XCCL_IS_FRESH | (pipe == PIPE_V ? XCCL_IS_OF_VECTOR : 1), end = first + nbytes;
    xccl_ranges([&](const xccl_range &old) {
        bool is_inside = old.first() >= first && old.end() <= end && old.writer() == pipe;
        bool goes_on = old.state() == state && old.first() <= end && old.end() >= first;
        if (goes_on) first = min(first, int64_t(old.first())), end = max(end, int64_t(old.end()));
        if (goes_on || is_inside) old.set(0, 0, 0);
    });
    for (int i = 0; i < XCCL_RANGES; i++)
        if (xccl_range range = {XCCL_HAZARDS_WORD + 2 * i}; !range.end()) return range.set(first, end, state);
    at.fail(operation, XCCL_MANY_RANGES, XCCL_RANGES);
}
inline void xccl_uses(const xccl_place &at, int64_t operation, int64_t first, int64_t nbytes, int pipe) {
    xccl_ranges([&](const xccl_range &range) {
        bool is_met = range.first() < first + nbytes && first < range.end() && !(range.state() & XCCL_IS_FRESH);
        if (!is_met || range.is_known_to(pipe)) return;
        if (range.writer() == PIPE_S) at.fail(operation, XCCL_SCALAR_HAZARD, first);
        if (pipe == PIPE_V) at.fail(operation, XCCL_VECTOR_HAZARD, first);
    });
}

/* Bytes of the elements of a v_map: as `xccl_emu/machine/device/maps.py` has them. */
inline void xccl_vector(const xccl_place &at, int64_t from, int64_t to, int64_t n, int64_t function, int64_t other) {
    constexpr int64_t sizes[] = {2, 2, 4, 1, 2, 4, 1, 8};
    int64_t kind = (function & 15) | function >> XCCL_KIND_SHIFT << 4, size = sizes[function >> XCCL_DTYPE_SHIFT & 7];
    int64_t result = kind == XCCL_MAP_CAST ? sizes[function >> XCCL_TO_SHIFT & 7] : size, bits = (n + 7) / 8;
    bool has_other = kind >= XCCL_MAP_ADD && kind <= XCCL_MAP_OR && !(function >> XCCL_SCALAR_SHIFT & 1);
    int64_t reads = kind == XCCL_MAP_FILL || kind == XCCL_MAP_INDEX ? 0 : n * size;
    int64_t also = kind == XCCL_MAP_KEEP ? bits : kind == XCCL_MAP_SORT ? 4 * n : has_other ? n * size : 0;
    int64_t writes = kind >= XCCL_MAP_SUM && kind <= XCCL_MAP_LEAST_AT ? result * (kind >= XCCL_MAP_MOST_AT ? 2 : 1)
                     : kind == XCCL_MAP_LESS || kind == XCCL_MAP_EQUAL  ? bits
                     : kind == XCCL_MAP_SPREAD                          ? 32 * n
                     : kind == XCCL_MAP_SORT                            ? 8 * n
                                                                        : n * result;
    if (function == 0) reads = writes = n, also = 0;
    xccl_uses(at, XCCL_OP_V_COPY, from, reads, PIPE_V);
    xccl_uses(at, XCCL_OP_V_COPY, other, also, PIPE_V);
    xccl_uses(at, XCCL_OP_V_COPY, to, writes, PIPE_V);
    xccl_wrote(at, XCCL_OP_V_COPY, to, writes, PIPE_V);
}

/* An event carries what its pipe has written, and what that pipe goes on after; a wait of the scalar unit is before
 * all that follows it. */
inline void xccl_event(int64_t operation, int source, int target, int event) {
    int code = 128 | source << 5 | (event & 31);
    xccl_ranges([&](const xccl_range &range) {
        if (operation == XCCL_OP_WAIT_FLAG && range.event(target) == code) {
            range.set_event(target, 0);
            if (range.end()) range.set(range.state() | (target == PIPE_S ? 15 : 1 << target));
        } else if (operation == XCCL_OP_SET_FLAG && !range.event(target) &&
                   (range.writer() == source || range.is_known_to(source)))
            range.set_event(target, code);
    });
}
inline void xccl_settle(xccl_place at, int64_t operation, bool vector_alone) {
    if (xccl_is_cut(at, operation)) return;
    xccl_ranges([&](const xccl_range &range) {
        if (!vector_alone || range.writer() == PIPE_V) range.set(0, 0, 0);
    });
}
} // namespace AscendC

inline void xccl_call_begins() {
    AscendC::xccl_ranges([](const AscendC::xccl_range &range) {
        range.set(range.first(), range.end(), range.state() & ~AscendC::XCCL_IS_FRESH);
    });
}
inline void xccl_watch(xccl_place at, int64_t operation, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    if (operation == XCCL_OP_UB_STORE) AscendC::xccl_wrote(at, operation, a, c, PIPE_S);
    if (operation == XCCL_OP_MTU_IN) AscendC::xccl_uses(at, operation, b, c, PIPE_MTE2);
    if (operation == XCCL_OP_MTU_OUT || operation == XCCL_OP_MTU_ADD)
        AscendC::xccl_uses(at, operation, a, c, PIPE_MTE3);
    if (operation == XCCL_OP_V_COPY) AscendC::xccl_vector(at, a, b, c, d, e);
    if ((operation == XCCL_OP_SET_FLAG || operation == XCCL_OP_WAIT_FLAG) && !AscendC::xccl_is_cut(at, operation))
        AscendC::xccl_event(operation, a, b, c);
}
