/* Kernels that a thread runs one after the other, as xccl_emu/lang/in_turn.py says it for Python.
 *
 * A file that includes it defines XCCL_ROW_WORDS, and XCCL_CALL(row), which calls the kernel that a row says.  Where a
 * kernel ends all threads of the rank meet.  What they have written is either visible to all ranks then, as by
 * fence.acq_rel.sys, or (XCCL_IS_LOCAL) to their own. */
#pragma once

#define XCCL_SITE(name, ...)                                                                                           \
    (__extension__({                                                                                                   \
        static const struct xccl_site xccl_here __attribute__((section(XCCL_SECTION_OF(__COUNTER__)))) = {             \
            .number = __COUNTER__, .operation = name, .file = __FILE__, .line = __LINE__, __VA_ARGS__};                \
        &xccl_here;                                                                                                    \
    }))

static inline void xccl_end() {
#if !XCCL_IS_LOCAL
    xccl_quiet(.sync = "end of a kernel");
#endif
#if XCCL_IS_LOCAL || XCCL_BLOCKS > 1
    int64_t came = xccl_at_end(xccl_kept(XCCL_CAME)) + (1 << XCCL_ENDED_BITS);
    xccl_say(XCCL_SITE("store", .order = "strong"), came);
    xccl_await_said(XCCL_SITE("poll"), came, 0, xccl_all_threads());
#else
    int64_t phase = xccl_arrive();
    xccl_await_group(phase);
#endif
}

static inline void xccl_launches(int64_t table, int64_t launches) {
    for (int64_t number = 0; number < launches; number++) {
        int64_t row[XCCL_ROW_WORDS];
        for (int64_t i = 0; i < XCCL_ROW_WORDS; i++) row[i] = xccl_load(table + 8 * i, 8);
        if (number + 1 < launches) row[1 + XCCL_APART] *= -1;
        XCCL_CALL(row)
        if (number + 1 < launches) xccl_end();
        table += 8 * XCCL_ROW_WORDS;
    }
}
