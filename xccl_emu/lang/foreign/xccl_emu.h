/* Kernels of xccl_emu in C or C++ (docs/bring-your-own.md): what makes a function a kernel, and how it asks its machine.
 *
 * The requests are in xccl_requests.h, which is made of the Python ones.  After its operands a request takes
 * designators, which must be constants: `.sync` names a synchronization, by which a run can switch it off; `.step` is
 * the step of the paper; `.order` is what a write asks for.
 *
 *     xccl_put(tail, i + 1, 0, 0, 0, .sync = "tail");
 */
#pragma once
#include <stdint.h>

/* In front of a kernel: `XCCL_KERNEL void ping(int64_t mine, int64_t theirs) { ... }`.  It returns void or int64_t. */
#define XCCL_KERNEL static __attribute__((unused))

/* In front of what calls a kernel: gcc compiles what that needs, and nothing else of the file.  And in front of what
 * asks: clang does not duplicate a call, as it does in the head of a loop, so that a place in the source is one. */
#ifdef __clang__
#define XCCL_ENTRY
#define XCCL_ONE_PLACE __attribute__((noduplicate))
#else
#define XCCL_ENTRY __attribute__((externally_visible))
#define XCCL_ONE_PLACE
#endif

struct xccl_site {
    int64_t number; /* in order of the source; when it is brought in, among those that are left */
    const char *operation, *file;
    int64_t line;
    const char *sync;
    int64_t step;
    const char *order;
    const char *caller; /* file and line from which a function that asks is called, if it is known: `k.cpp:31` */
} __attribute__((aligned(64)));

#ifdef __cplusplus
extern "C" {
#endif
XCCL_ONE_PLACE int64_t xccl_ask(const struct xccl_site *site, int64_t operation, int64_t a, int64_t b, int64_t c,
                                int64_t d, int64_t e, int64_t f);
/* After an xccl_load_line: the high 8 bytes. */
int64_t xccl_high(void);
void xccl_ask_more(int64_t g, int64_t h, int64_t i, int64_t j, int64_t k, int64_t l);
#ifdef __cplusplus
}
#endif

/* A section for each place: compilers keep places in member functions apart, and they cannot share one with others. */
#define XCCL_SECTION(number) "xccl_sites." #number
#define XCCL_SECTION_OF(number) XCCL_SECTION(number)
#define XCCL_ASK(name, operation_, a, b, c, d, e, f, ...)                                                              \
    (__extension__({                                                                                                   \
        static const struct xccl_site xccl_here __attribute__((section(XCCL_SECTION_OF(__COUNTER__)))) = {             \
            .number = __COUNTER__, .operation = name, .file = __FILE__, .line = __LINE__, __VA_ARGS__};                \
        xccl_ask(&xccl_here, operation_, a, b, c, d, e, f);                                                            \
    }))

#include "xccl_requests.h"

/* As a barrier for data on hardware: waits until all that the core has written is visible. */
#define xccl_dsb(...) xccl_quiet(__VA_ARGS__)

/* A word of a poll_any: its address, how it is compared (XCCL_CMP_EQ, XCCL_CMP_NE, XCCL_CMP_GE), and with what. */
struct xccl_condition {
    int64_t address, compare, value;
};

static inline struct xccl_condition xccl_when(int64_t address, int64_t compare, int64_t value) {
    struct xccl_condition condition = {address, compare, value};
    return condition;
}

#define XCCL_UNUSED xccl_when(-1, XCCL_CMP_UNUSED, 0)

/* Wait until one of up to four words is as its condition says; return which.  Those behind the last are XCCL_UNUSED. */
#define xccl_poll_any(first, second, third, fourth, ...)                                                               \
    (__extension__({                                                                                                   \
        const struct xccl_condition xccl_1 = first, xccl_2 = second, xccl_3 = third, xccl_4 = fourth;                  \
        xccl_ask_more(xccl_3.address, xccl_3.compare, xccl_3.value, xccl_4.address, xccl_4.compare, xccl_4.value);     \
        XCCL_ASK("poll_any", XCCL_OP_POLL_ANY, xccl_1.address, xccl_1.compare, xccl_1.value, xccl_2.address,           \
                 xccl_2.compare, xccl_2.value, __VA_ARGS__);                                                           \
    }))
