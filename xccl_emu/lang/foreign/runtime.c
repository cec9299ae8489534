/* Runs a kernel in C to its next request.  Its stack is kept in the core's registers, so the machine stays a value.
 *
 * All cores run on one stack, at one address.  Below XCCL_TOP is the stack, above it what a step needs to know.  A
 * request leaves the stack; its live words go into the core's registers, and come back when the request is granted.
 * Code is at one address in every process too (image.py), and nothing on the kernel's stack knows where the machine's
 * words are: so the same state has the same words everywhere.
 */
#define _GNU_SOURCE /* for names of registers */
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#pragma GCC visibility push(hidden) /* so addresses are known without a table */

enum { SPARE_BYTES = 1 << 14 }; /* of the stack, for what runs at its end */

struct xccl_site {
    int64_t number;
};
extern void xccl_body(const int64_t *arguments);

/* The lines of the kernel's code; in our headers they are 0 (compiler.py). */
struct xccl_line {
    uint64_t address;
    const char *file;
    int64_t line;
};
extern const struct { int64_t words[8]; } xccl_sites_begin[], xccl_sites_end[];
extern const struct xccl_line xccl_lines_begin[], xccl_lines_end[];
extern const char xccl_code_end[];

/* What a signal has to know of the image whose kernel raises it: the first image's is its handler. */
struct image {
    const struct xccl_line *lines, *lines_end;
    const char *code_end;
    const void *sites, *sites_end;
    int64_t is_blind; /* may it follow pointers to memory of the machine, without requests? */
};
static const struct image HERE = {xccl_lines_begin, xccl_lines_end, xccl_code_end, xccl_sites_begin, xccl_sites_end,
                                  XCCL_IS_BLIND};

struct control {
    const struct image *inside; /* whose kernel is on its stack, if one is */
    int64_t result, high, status, blocks;
    int64_t *machine, *kernel; /* stack pointers */
    char *lowest; /* what lies below may not be touched yet: nobody has, since the run began */
    int (*protect)(void *, uint64_t, int);
    void (*set_default)(int, void *);
    void (*previous[65])(int, siginfo_t *, void *); /* handlers of signals, before these */
    int64_t request[XCCL_LONGEST_REQUEST_WORDS];
    int64_t pc, arguments[XCCL_PARAMS + 1];
};
#define CONTROL ((struct control *)XCCL_TOP)

void xccl_swap(int64_t **save, int64_t *to);
void xccl_leave(void);

#if defined(__x86_64__)
enum { FRAME_WORDS = 8, ENTRY_WORD = 6 };
#define PROGRAM_COUNTER(context) (context)->uc_mcontext.gregs[REG_RIP]
#define STACK_POINTER(context) (context)->uc_mcontext.gregs[REG_RSP]

/* How floating point rounds, and what it raises: the words of SSE and x87. */
struct modes { uint32_t sse; uint16_t x87; };
static const struct modes XCCL_USUAL = {0x1f80, 0x037f};
static struct modes modes(void) {
    struct modes m;
    __asm__ volatile("stmxcsr %0\n fnstcw %1" : "=m"(m.sse), "=m"(m.x87));
    return m;
}
static void set_modes(struct modes m) { __asm__ volatile("ldmxcsr %0\n fldcw %1" : : "m"(m.sse), "m"(m.x87)); }
static void clear(int64_t *from, int64_t words) {
    __asm__ volatile("rep stosq" : "+D"(from), "+c"(words) : "a"(0) : "memory");
}
__asm__(".text\n.globl xccl_swap\n.globl xccl_leave\n"
        "xccl_swap:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        /* compilers push what is there, to align */
        " xor %eax, %eax\n xor %ecx, %ecx\n xor %edx, %edx\n xor %r8d, %r8d\n xor %r9d, %r9d\n xor %r10d, %r10d\n"
        " xor %r11d, %r11d\n"
        "xccl_leave:\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
#elif defined(__aarch64__)
enum { FRAME_WORDS = 20, ENTRY_WORD = 11 };
#define PROGRAM_COUNTER(context) (context)->uc_mcontext.pc
#define STACK_POINTER(context) (context)->uc_mcontext.sp

struct modes { uint64_t fpcr; };
static const struct modes XCCL_USUAL = {0};
static struct modes modes(void) {
    struct modes m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m.fpcr));
    return m;
}
static void set_modes(struct modes m) { __asm__ volatile("msr fpcr, %0" : : "r"(m.fpcr)); }
static void clear(int64_t *from, int64_t words) {
    for (volatile int64_t *w = from; words--; w++) *w = 0;
}
__asm__(".text\n.globl xccl_swap\n.globl xccl_leave\n"
        "xccl_swap:\n sub sp, sp, #160\n stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
        " stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n stp d8, d9, [sp, #96]\n"
        " stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
        " mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "xccl_leave:\n ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
        " ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n ldp d8, d9, [sp, #96]\n"
        " ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n add sp, sp, #160\n ret\n");
#else
#error "kernels in C run on x86-64 and aarch64"
#endif

/* ---- on the kernel's stack */

static void leave(int64_t status) {
    CONTROL->status = status;
    xccl_swap(&CONTROL->kernel, CONTROL->machine);
}

int64_t xccl_ask(const struct xccl_site *site, int64_t operation, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e,
                 int64_t f) {
    int64_t *request = CONTROL->request;
    request[0] = operation, request[1] = a, request[2] = b, request[3] = c;
    request[4] = d, request[5] = e, request[6] = f, request[7] = site->number;
    CONTROL->pc = site->number + 1;
    leave(0);
    return CONTROL->result;
}

/* The high half of what the last request has read, a line. */
int64_t xccl_high(void) { return CONTROL->high; }

/* The operands of a request behind its first six. */
void xccl_ask_more(int64_t g, int64_t h, int64_t i, int64_t j, int64_t k, int64_t l) {
    int64_t *more = CONTROL->request + XCCL_REQUEST_WORDS;
    more[0] = g, more[1] = h, more[2] = i, more[3] = j, more[4] = k, more[5] = l;
}

/* One of the first arguments, which stay in the core's registers; and another value for it. */
int64_t xccl_kept(int64_t word) { return CONTROL->arguments[word]; }
void xccl_keep(int64_t word, int64_t value) { CONTROL->arguments[word] = value; }

/* A request whose place is known when it runs: the site of the last call of that name in front of it, or in its line.
 * Of several in one line it is the one that is called with this mention of an event. */
struct xccl_call {
    int32_t line, mention;
    int16_t name, operation;
    const char *file;
};
static int is_same(const char *one, const char *other) {
    for (; *one && *one == *other; one++, other++) {}
    return *one == *other;
}

const void *xccl_site_of(const struct xccl_call *calls, int64_t n, int64_t name, const char *file, int64_t line,
                         int64_t operation, int64_t mention) {
    const struct xccl_call *found = 0;
    for (const struct xccl_call *call = calls + n; call-- > calls;) {
        if (call->line > line || call->name != name || call->operation != operation || !is_same(call->file, file))
            continue;
        if (found && call->line < found->line) break;
        if (!found || (mention >= 0 && call->mention == mention)) found = call;
    }
    if (!found) leave(XCCL_FAULT);
    return xccl_sites_begin + (found - calls);
}

void xccl_returned(int64_t value) {
    for (int i = 0; i < XCCL_REQUEST_WORDS; i++) CONTROL->request[i] = 0;
    CONTROL->request[1] = value;
    CONTROL->pc = XCCL_DONE;
    leave(0);
}

static void enter(void) { xccl_body(CONTROL->arguments); }

/* Compilers call it in each basic block. */
void __sanitizer_cov_trace_pc(void) {
    if (--CONTROL->blocks < 0) leave(XCCL_ENDLESS);
    if ((char *)__builtin_frame_address(0) < (char *)XCCL_TOP - XCCL_ROOM_BYTES + SPARE_BYTES) leave(XCCL_STACK_FULL);
}

void abort(void) {
    for (;;) leave(XCCL_FAULT);
}

/* Compilers call these in place of loops. */
void *memcpy(void *to, const void *from, uint64_t n) {
    for (volatile char *t = to, *s = (char *)from; n--;) *t++ = *s++;
    return to;
}

void *memmove(void *to, const void *from, uint64_t n) {
    if (to <= from) return memcpy(to, from, n);
    for (volatile char *t = to, *s = (char *)from; n--;) t[n] = s[n];
    return to;
}

void *memset(void *to, int byte, uint64_t n) {
    for (volatile char *t = to; n--;) *t++ = (char)byte;
    return to;
}

int memcmp(const void *one, const void *other, uint64_t n) {
    const volatile unsigned char *a = one, *b = other;
    for (; n--; a++, b++)
        if (*a != *b) return *a < *b ? -1 : 1;
    return 0;
}

/* ---- on the machine's */

/* From here on upwards the stack may be used. */
static int open_from(struct control *c, char *address) {
    char *page = (char *)((uint64_t)address & -(uint64_t)XCCL_PAGE_BYTES);
    if (c->protect(page, c->lowest - page, XCCL_READ_WRITE)) return 0;
    c->lowest = page;
    return 1;
}

/* The place of an instruction: its line, by a number that follows the sites' numbers; else the last request's. */
static int64_t place_of(const struct image *image, uint64_t instruction, int64_t otherwise) {
    const struct xccl_line *found = 0;
    if (instruction >= (uint64_t)image->code_end) return otherwise;
    for (const struct xccl_line *each = image->lines; each < image->lines_end; each++)
        if (each->address <= instruction && (!found || each->address >= found->address)) found = each;
    int64_t n_sites = ((const char *)image->sites_end - (const char *)image->sites) / sizeof *xccl_sites_begin;
    return found && found->line ? 1 + n_sites + (found - image->lines) : otherwise;
}

/* A signal that a kernel raises ends its step, unless it only wants more of its stack; others go where they went. */
void xccl_on_fault(int number, siginfo_t *info, void *context) {
    struct control *c = CONTROL;
    ucontext_t *at = context;
    if (!c->inside) {
        if (c->previous[number]) c->previous[number](number, info, context);
        else c->set_default(number, 0);
        return;
    }
    char *address = info->si_addr, *lowest = (char *)XCCL_TOP - XCCL_ROOM_BYTES;
    if (number == SIGSEGV && address >= lowest && address < c->lowest && open_from(c, address)) return;
    int is_guard = number == SIGSEGV && address < lowest && address >= lowest - XCCL_GUARD_BYTES;
    /* any address that the machine may have, but for one that is none to the processor, which says 0 of it */
    int is_pointer = c->inside->is_blind && number == SIGSEGV && address < lowest - XCCL_GUARD_BYTES &&
                     (info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR);
    c->status = number == SIGFPE ? XCCL_DIVISION_BY_ZERO
                : is_guard       ? XCCL_STACK_FULL
                : is_pointer     ? XCCL_POINTER
                                 : XCCL_FAULT;
    if (!is_guard) c->pc = place_of(c->inside, PROGRAM_COUNTER(at), c->pc);
    PROGRAM_COUNTER(at) = (uint64_t)xccl_leave;
    STACK_POINTER(at) = (uint64_t)c->machine;
}

#define IN_A_LOOP __asm__ volatile("") /* else it becomes a call of memcpy */

static int64_t *fresh(int64_t *top) {
    int64_t *frame = top - FRAME_WORDS;
    frame[ENTRY_WORD] = (int64_t)enter;
    return frame;
}

/* Word i of what is kept is the i-th below the top.  All that may have been used and is not live is zeroed: nothing of
 * another core or step is seen. */
static void restore(struct control *c, int64_t *top, const int64_t *kept, int64_t live) {
    if ((char *)(top - live) < c->lowest) open_from(c, (char *)(top - live));
    for (int64_t i = 0; i < live; i++) { top[-1 - i] = kept[i]; IN_A_LOOP; }
    clear((int64_t *)c->lowest, top - live - (int64_t *)c->lowest);
}

static void save(const int64_t *top, int64_t *kept, int64_t live, int64_t before) {
    for (int64_t i = 0; i < live; i++) { kept[i] = top[-1 - i]; IN_A_LOOP; }
    for (int64_t i = live; i < before; i++) { kept[i] = 0; IN_A_LOOP; }
}

/* The kernel goes on, from its beginning or where it stood. */
static void go_on(struct control *c, int64_t *core, int64_t *live) {
    int64_t *registers = core + XCCL_REGISTERS, *top = (int64_t *)XCCL_TOP;
    struct modes of_machine = modes();
    restore(c, top, live + 1, *live);
    c->result = core[XCCL_RESULT], c->high = core[XCCL_REQUEST + XCCL_HIGH], c->pc = core[XCCL_PC], c->blocks = XCCL_BLOCKS_MAX;
    if (c->pc == 0)
        for (int64_t i = XCCL_KEPT; i < XCCL_PARAMS; i++) c->arguments[i] = registers[i], registers[i] = 0;
    for (int64_t i = 0; i < XCCL_KEPT; i++) c->arguments[i] = registers[i];
    set_modes(XCCL_USUAL);
    c->inside = &HERE;
    xccl_swap(&c->machine, c->pc ? top - *live : fresh(top));
    c->inside = 0;
    set_modes(of_machine);
    for (int64_t i = 0; i < XCCL_KEPT; i++) registers[i] = c->arguments[i];
}

int64_t xccl_emu_step(int64_t *state, int64_t base) {
    struct control *c = CONTROL;
    int64_t *core = state + base, *live = core + XCCL_REGISTERS + XCCL_PARAMS, *request = core + XCCL_REQUEST;
    int64_t before = *live, stands = 0;
    if (core[XCCL_PC] == XCCL_DONE) {
        for (int i = 0; i < XCCL_REQUEST_WORDS; i++) request[i] = core[XCCL_RESULT] = 0;
        return 0;
    }
    go_on(c, core, live);
    core[XCCL_RESULT] = 0, core[XCCL_PC] = c->pc;
    if (!c->status && c->pc != XCCL_DONE) stands = (int64_t *)XCCL_TOP - c->kernel;
    if (stands > XCCL_STACK_WORDS) c->status = XCCL_STACK_FULL, stands = 0;
    save((int64_t *)XCCL_TOP, live + 1, stands, before);
    *live = stands;
    if (c->status) return c->status - XCCL_PLACES * c->pc;
    int words = c->request[0] == XCCL_POLL_ANY ? XCCL_LONGEST_REQUEST_WORDS : XCCL_REQUEST_WORDS;
    for (int i = 0; i < words; i++) request[i] = c->request[i];
    return request[0];
}
