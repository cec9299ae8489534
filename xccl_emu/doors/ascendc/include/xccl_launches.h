/* Several kernels that a core runs one after the other, as xccl_emu/lang/in_turn.py says it for Python.
 *
 * A file that includes it defines XCCL_ROW_WORDS, XCCL_COUNTED, and XCCL_CALL(row), which calls the kernel that a row says.
 */
#pragma once

inline void xccl_launches(int64_t table, int64_t launches, int64_t done) {
    const xccl_place at = xccl_here(XCCL_NAME_xccl_launches);
    for (int64_t number = 0; number < launches; number++) {
        int64_t row[XCCL_ROW_WORDS];
        if (number > 0) at(XCCL_OP_AWAIT_GROUP, at(XCCL_OP_ARRIVE));
#if XCCL_COUNTED
        int64_t before = at(XCCL_OP_LOAD, table + 8 * XCCL_ROW_WORDS, 8);
        if (before > 0) at(XCCL_OP_POLL, done, XCCL_CMP_GE, before, 8, -1);
#endif
        for (int64_t i = 0; i < XCCL_ROW_WORDS; i++) row[i] = at(XCCL_OP_LOAD, table + 8 * i, 8);
        XCCL_CALL(row)
        at(XCCL_OP_QUIET);
#if XCCL_COUNTED
        at(XCCL_OP_ATOMIC_ADD, done, 1);
#endif
        table += 8 * (XCCL_ROW_WORDS + XCCL_COUNTED);
    }
}
