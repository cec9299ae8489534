/* Several kernels that a core runs one behind the other, as xccl_emu/lang/in_turn.py says it for Python.
 *
 * Who includes it defines XCCL_ROW_WORDS, XCCL_COUNTED, and XCCL_CALL(row), which calls the kernel that a row says.
 */
static inline void xccl_in_turn(int64_t table, int64_t launches, int64_t done) {
    for (int64_t number = 0; number < launches; number++) {
        int64_t row[XCCL_ROW_WORDS];
        if (number > 0) {
            int64_t phase = xccl_arrive();
            xccl_await_group(phase);
        }
#if XCCL_COUNTED
        int64_t before = xccl_load(table + 8 * XCCL_ROW_WORDS, 8);
        if (before > 0) xccl_poll_ge(done, before, 8, -1);
#endif
        for (int64_t i = 0; i < XCCL_ROW_WORDS; i++) row[i] = xccl_load(table + 8 * i, 8);
        XCCL_CALL(row)
        xccl_quiet();
#if XCCL_COUNTED
        xccl_atomic_add(done, 1);
#endif
        table += 8 * (XCCL_ROW_WORDS + XCCL_COUNTED);
    }
}
