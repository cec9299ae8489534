// What the arithmetic of a kernel asks for, as Python has it; what fails is noted, and the step returns it.
#pragma once

XCCL_DEVICE word least(word a, word b) { return a < b ? a : b; }
XCCL_DEVICE word greatest(word a, word b) { return a > b ? a : b; }

struct Arithmetic {
  word *const words;  // of the core
  word turns = 0, status = 0;

  XCCL_DEVICE word fails(word with) {  // the first one counts
    if (status == 0) status = with;
    return 0;
  }
  XCCL_DEVICE word quotient(word a, word b) {
    if (b == 0) return fails(abi::DIVISION_BY_ZERO);
    if (b == -1) return 0 - a;
    word q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  }
  XCCL_DEVICE word remainder(word a, word b) {
    if (b == 0) return fails(abi::DIVISION_BY_ZERO);
    if (b == -1) return 0;
    word r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  XCCL_DEVICE word turns_of(word start, word stop, word step) {
    if (step == 0) return fails(abi::BAD_VALUE);
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
  XCCL_DEVICE word ended(word operation, word place) {
    if (status == 0) return operation;
    word failed = status - abi::PLACES * place;
    status = 0;
    return failed;
  }
  XCCL_DEVICE word bad_index() { return fails(abi::BAD_INDEX); }
};
