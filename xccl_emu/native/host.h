// Memory and time of this computer's threads.
#pragma once
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <sched.h>
#include <system_error>
#include <thread>
#include <vector>

using word = long long;

#define XCCL_DEVICE inline
#define XCCL_CALLED inline

typedef word Pair __attribute__((vector_size(16), may_alias));
typedef word Line __attribute__((vector_size(32), may_alias));

template <class T> word load_as(const char *at) { return __atomic_load_n((const T *)at, __ATOMIC_ACQUIRE); }
inline word load(const char *at, word nbytes) {
  return nbytes == 8 ? load_as<word>(at) : nbytes == 4 ? load_as<int>(at) : nbytes == 2 ? load_as<short>(at)
                                                                         : load_as<signed char>(at);
}
template <class T> void store_as(char *at, word value) { __atomic_store_n((T *)at, (T)value, __ATOMIC_RELAXED); }
inline void store(char *at, word value, word nbytes) {
  nbytes == 8 ? store_as<word>(at, value) : nbytes == 4 ? store_as<int>(at, value)
              : nbytes == 2 ? store_as<short>(at, value) : store_as<signed char>(at, value);
}
template <class T> word plain_as(const char *at) { T value; std::memcpy(&value, at, sizeof value); return value; }
inline word plain(const char *at, word nbytes) {
  return nbytes == 8 ? plain_as<word>(at) : nbytes == 4 ? plain_as<int>(at) : nbytes == 2 ? plain_as<short>(at)
                                                                           : plain_as<signed char>(at);
}
inline void put_plain(char *at, word value, word nbytes) { std::memcpy(at, &value, nbytes); }
inline word add(char *at, word value) { return __atomic_fetch_add((word *)at, value, __ATOMIC_RELAXED); }
inline void add_4(char *at, int value) { __atomic_fetch_add((int *)at, value, __ATOMIC_RELAXED); }
inline word swap(char *at, word expected, word value) {
  __atomic_compare_exchange_n((word *)at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline void acquire() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline bool claim(word *at, word value) {
  word none = 0;
  return __atomic_compare_exchange_n(at, &none, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
inline void halt(int *stop, int why) {
  int none = 0;
  __atomic_compare_exchange_n(stop, &none, why, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
inline bool is_set(const int *stop) { return __atomic_load_n(stop, __ATOMIC_RELAXED) != 0; }
inline word now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline void rest() { sched_yield(); }
inline void idle() { __asm__ volatile("" ::: "memory"); }

// 16 bytes in one instruction, which processors with AVX and Arm's LSE2 keep whole.
inline void fetch_16(char *to, const char *from) {
  Pair both = *(const volatile Pair *)from;
  std::memcpy(to, &both, 16);
}
inline void write_16(char *to, const char *from) {
  Pair both;
  std::memcpy(&both, from, 16);
  *(volatile Pair *)to = both;
}
inline word bytes_of(const char *from, word n) { return plain(from, n); }
inline void put_bytes(char *to, word value, word n) { put_plain(to, value, n); }
inline void write_line(char *to, const word *from) {
#ifdef __AVX__
  Line all;
  std::memcpy(&all, from, 32);
  *(volatile Line *)to = all;
#else
  write_16(to, (const char *)from), write_16(to + 16, (const char *)from + 16);
#endif
}
