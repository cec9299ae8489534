/* Kernels of xccl_emu in C or C++ (docs/foreign.md): what makes a function a kernel, and how it asks its machine.
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

struct xccl_site {
    int64_t number; /* in order of the source; when it is brought in, among those that are left */
    const char *operation, *file;
    int64_t line;
    const char *sync;
    int64_t step;
    const char *order;
} __attribute__((aligned(64)));

#ifdef __cplusplus
extern "C"
#endif
int64_t xccl_ask(const struct xccl_site *site, int64_t operation, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e,
                 int64_t f);

#define XCCL_ASK(name, operation_, a, b, c, d, e, f, ...)                                                              \
    (__extension__({                                                                                                   \
        static const struct xccl_site xccl_here __attribute__((section("xccl_sites"))) = {                             \
            .number = __COUNTER__, .operation = name, .file = __FILE__, .line = __LINE__, __VA_ARGS__};                \
        xccl_ask(&xccl_here, operation_, a, b, c, d, e, f);                                                            \
    }))

#include "xccl_requests.h"
