// What the emulator's own functions are made of (emulated.py), as Numba and NumPy have it.
#pragma once

template <class T> XCCL_DEVICE T copied(T);

template <class A, class B> XCCL_DEVICE auto larger(A a, B b) -> decltype(a + b) { return b > a ? b : a; }
template <class A, class B> XCCL_DEVICE auto smaller(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
XCCL_DEVICE word magnitude(word value) { return value < 0 ? 0 - value : value; }
XCCL_DEVICE word quotient(word a, word b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }  // of a positive divisor
XCCL_DEVICE float nearest(float value) { return rintf(value); }
XCCL_DEVICE double nearest(double value) { return rint(value); }
template <class T> XCCL_DEVICE bool is_finite(T value) { return value - value == 0; }

template <class T> struct Row {
  T *first;
  word size;
  XCCL_DEVICE T &operator[](word i) const { return first[i]; }
};
template <class T> XCCL_DEVICE Row<T> part(T *first, word start, word end) { return {first + start, end - start}; }
template <class T> XCCL_DEVICE Row<T> part(Row<T> row, word start) { return {row.first + start, row.size - start}; }
template <class T, class U> XCCL_DEVICE Row<T> as(Row<U> row) {
  return {(T *)row.first, row.size * (word)sizeof(U) / (word)sizeof(T)};
}
template <class T, class U> XCCL_DEVICE void fill(Row<T> row, U value) {
  for (word i = 0; i < row.size; i++) row[i] = (T)value;
}

template <class A, class B> struct Two { A v0; B v1; };
template <class A, class B, class C> struct Three { A v0; B v1; C v2; };
template <class A, class B, class C, class D> struct Four { A v0; B v1; C v2; D v3; };
template <class A, class B> XCCL_DEVICE Two<A, B> several(A a, B b) { return {a, b}; }
template <class A, class B, class C> XCCL_DEVICE Three<A, B, C> several(A a, B b, C c) { return {a, b, c}; }
template <class A, class B, class C, class D> XCCL_DEVICE Four<A, B, C, D> several(A a, B b, C c, D d) {
  return {a, b, c, d};
}

using Bytes = unsigned char *;
XCCL_DEVICE word load_i32(Bytes memory, word at) { return plain((char *)memory + at, 4); }
XCCL_DEVICE word load_i64(Bytes memory, word at) { return plain((char *)memory + at, 8); }
XCCL_DEVICE void store_u32(Bytes memory, word at, word value) { put_plain((char *)memory + at, value, 4); }
XCCL_DEVICE void store_i64(Bytes memory, word at, word value) { put_plain((char *)memory + at, value, 8); }
XCCL_DEVICE void copy_bytes(Bytes memory, word target, word source, word n) {
  for (word i = 0; i < n; i++) memory[target + i] = memory[source + i];
}
XCCL_DEVICE bool same_bytes(Bytes memory, word one, word other, word n) {
  for (word i = 0; i < n; i++)
    if (memory[one + i] != memory[other + i]) return false;
  return true;
}
XCCL_DEVICE float float_of(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
XCCL_DEVICE unsigned bits_of(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
XCCL_DEVICE bool set_error_at(word *st, word core, word base, word code, word a, word b, word site) {
  if (claim(st + ms::ERROR, code)) {
    st[ms::ERROR_CORE] = core, st[ms::ERROR_SITE] = site, st[ms::ERROR_OP] = st[base + abi::REQUEST];
    st[ms::ERROR_A] = a, st[ms::ERROR_B] = b;
  }
  return false;
}
