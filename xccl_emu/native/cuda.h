// Memory and time of a GPU: a core is a block of one thread, all memory is global.
#pragma once

using word = long long;

#define XCCL_DEVICE __device__
#define XCCL_CALLED __device__ __noinline__  // half of the time to compile

XCCL_DEVICE word load(const char *at, word nbytes) {
  word value;
  int low;
  short half;
  switch (nbytes) {
    case 8: asm volatile("ld.acquire.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(at) : "memory"); return value;
    case 4: asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(low) : "l"(at) : "memory"); return low;
    case 2: asm volatile("ld.acquire.gpu.global.s16 %0, [%1];" : "=h"(half) : "l"(at) : "memory"); return half;
    default: asm volatile("ld.acquire.gpu.global.s8 %0, [%1];" : "=r"(low) : "l"(at) : "memory"); return low;
  }
}
XCCL_DEVICE void store(char *at, word value, word nbytes) {
  switch (nbytes) {
    case 8: asm volatile("st.relaxed.gpu.global.s64 [%0], %1;" ::"l"(at), "l"(value) : "memory"); break;
    case 4: asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(at), "r"((int)value) : "memory"); break;
    case 2: asm volatile("st.relaxed.gpu.global.s16 [%0], %1;" ::"l"(at), "h"((short)value) : "memory"); break;
    default: asm volatile("st.relaxed.gpu.global.s8 [%0], %1;" ::"l"(at), "r"((int)value) : "memory");
  }
}
XCCL_DEVICE word plain(const char *at, word nbytes) {
  return nbytes == 8 ? *(const word *)at : nbytes == 4 ? *(const int *)at : nbytes == 2 ? *(const short *)at
                                                                           : *(const signed char *)at;
}
XCCL_DEVICE void put_plain(char *at, word value, word nbytes) {
  switch (nbytes) {
    case 8: *(word *)at = value; break;
    case 4: *(int *)at = (int)value; break;
    case 2: *(short *)at = (short)value; break;
    default: *at = (char)value;
  }
}
XCCL_DEVICE word add(char *at, word value) { return (word)atomicAdd((unsigned long long *)at, (unsigned long long)value); }
XCCL_DEVICE void add_4(char *at, int value) { atomicAdd((int *)at, value); }
XCCL_DEVICE word swap(char *at, word expected, word value) {
  return (word)atomicCAS((unsigned long long *)at, (unsigned long long)expected, (unsigned long long)value);
}
XCCL_DEVICE void acquire() { __threadfence(); }
XCCL_DEVICE void fence() { __threadfence(); }
XCCL_DEVICE bool claim(word *at, word value) { return swap((char *)at, 0, value) == 0; }
XCCL_DEVICE void halt(int *stop, int why) { atomicCAS(stop, 0, why); }
XCCL_DEVICE bool is_set(const int *stop) { return *(const volatile int *)stop != 0; }
XCCL_DEVICE word now_ns() {
  word now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
XCCL_DEVICE void rest() { __nanosleep(100); }
XCCL_DEVICE void idle() { asm volatile("" ::: "memory"); }

// The data buffer may begin at any byte, so its bytes move one by one; only memory that others see is aligned.
XCCL_DEVICE word bytes_of(const char *from, word n) {
  word value = 0;
  for (int i = 0; i < n; i++) value |= (word)(unsigned char)from[i] << 8 * i;
  return value;
}
XCCL_DEVICE void put_bytes(char *to, word value, word n) {
  for (int i = 0; i < n; i++) to[i] = (char)(value >> 8 * i);
}
XCCL_DEVICE void fetch_16(char *to, const char *from) {
  word low, high;
  asm volatile("ld.relaxed.gpu.global.v2.s64 {%0,%1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
  put_bytes(to, low, 8), put_bytes(to + 8, high, 8);
}
XCCL_DEVICE void write_16(char *to, const char *from) {
  const word low = bytes_of(from, 8), high = bytes_of(from + 8, 8);
  asm volatile("st.relaxed.gpu.global.v2.s64 [%0], {%1,%2};" ::"l"(to), "l"(low), "l"(high) : "memory");
}
XCCL_DEVICE void write_line(char *to, const word *from) {
  write_16(to, (const char *)from), write_16(to + 16, (const char *)from + 16);
}
