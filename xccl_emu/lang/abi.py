"""The words of a core's block that a lowered kernel and the machine share.

The machine keeps all state but the bytes of memory in one int64 array; a core's words begin at its base.
A step function is ``step(state, base)``: it takes the value granted for the last request from ``RESULT``, runs the
kernel up to its next ``yield``, leaves that request in ``REQUEST`` and returns.
"""

PC = 1
"""Where the kernel goes on; 0 at launch, `DONE` after its return."""

DONE = -1

RESULT = 3
"""The value that the machine granted with the last request."""

REQUEST = 16
"""Operation, six operands, site (index into the kernel's sites); operation 0 is return, its operand the value.

Behind the site there is room for six more operands, of a request that has them.
"""

REQUEST_WORDS = 8
LONGEST_REQUEST_WORDS = REQUEST_WORDS + 6

REGISTERS = 512
"""First of the kernel's registers: its parameters in order, then its locals."""

DIVISION_BY_ZERO, BAD_VALUE, BAD_INDEX, NO_VALUE = -1, -2, -3, -4
"""What a step function returns in place of an operation where the kernel's arithmetic fails, less `PLACES` times the
number of the place (`Kernel.places`)."""

STACK_FULL, FAULT, ENDLESS, POINTER = -5, -6, -7, -8
"""What a step returns in the same way where a kernel in C faults (`foreign`), or a loop goes on without a request, or a
pointer is followed and the compiler made no request of it (`foreign.pointers`)."""

TURNS_MAX = 1 << 22
"""Turns of loops, also of functions, or in C basic blocks, that a kernel may go through between two requests."""

PLACES = 16
