// The machine of requests on real memory: a core is a thread that also runs its own queues.
//
// It is compiled for the host's threads (host.h) and for a GPU's blocks (cuda.h); these say how memory is accessed and
// how long a thread waits.  Words of a core are laid out as in the emulator (machine/device/layout.py), so a report
// reads them after a run.  Loads are made in program order, as there: each acquires.  Writes are relaxed, and ordered
// by fences alone.
#pragma once

// ---- copies between memory that others see and what is a core's own: 16 bytes at once where that memory is aligned

XCCL_DEVICE word part(const char *shared, word left) {
  return left >= 16 && ((word)shared & 15) == 0 ? 16 : left >= 8 && ((word)shared & 7) == 0 ? 8 : 1;
}
XCCL_DEVICE void fetch(char *to, const char *from, word left) {
  for (word n; left > 0; to += n, from += n, left -= n) {
    n = part(from, left);
    n == 16 ? fetch_16(to, from) : put_bytes(to, load(from, n), n);
  }
  acquire();
}
XCCL_DEVICE void write(char *to, const char *from, word left) {
  for (word n; left > 0; to += n, from += n, left -= n) {
    n = part(to, left);
    n == 16 ? write_16(to, from) : store(to, bytes_of(from, n), n);
  }
}
XCCL_DEVICE void copy(char *to, const char *from, word left) {
  char held[512];
  for (word n; left > 0; to += n, from += n, left -= n) {
    n = least(left, sizeof held - ((word)from & 15));
    fetch(held, from, n);
    write(to, held, n);
  }
}

struct Machine {
  char *memory;          // of all dies and CPUs, then the data buffers
  word n_bytes;
  word *state;           // the emulator's array of words
  word n_words;
  word most_ns;          // how long a run may take
  int *stop;             // set when the run is to end before its cores return
};

enum Stop { GOES_ON, FAILED, GIVEN_UP, NO_THREAD };

constexpr int SPINS_A_LOOK = 64;  // between two looks at the clock

struct Core : Arithmetic {
  const Machine &machine;
  const word number, base;
  char *const buffer;
  unsigned long long random;
  word until_ns;
  word granted = 0;
  int eager = 0, spins = 0;  // after how many of 256 requests a queue goes on
  word counts[ops::N] = {}, moved[ms::N_PIPES] = {}, n_actions = 0;

  XCCL_DEVICE Core(const Machine &m, word core, unsigned long long seed)
      : Arithmetic{m.state + m.state[ms::CORE_BASE] + core * m.state[ms::CORE_WORDS]}, machine(m), number(core),
        base(words - m.state), buffer(m.memory + words[ms::UB_BASE]), random(seed * 0x9E3779B97F4A7C15ull + core * 0xD1B54A32D192ED03ull + 1) {
    eager = 64 * (int)drawn(4) + 1;
  }

  XCCL_DEVICE word drawn(word n) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return (word)((random >> 11) % (unsigned long long)n);
  }

  // ---- errors

  XCCL_DEVICE bool fail(word kind, word a, word b, word site) {
    set_error_at(machine.state, number, base, kind, a, b, site);
    halt(machine.stop, FAILED);
    return false;
  }

  // ---- queues and events

  XCCL_DEVICE word *queue_of(word pipe) { return words + ms::PIPES + (pipe - 1) * ms::PIPE_WORDS; }
  XCCL_DEVICE word *entry_of(word *queue, word j) {
    return queue + ms::PIPE_ENTRIES + (queue[ms::PIPE_HEAD] + j) % ms::QUEUE_DEPTH * ms::ENTRY_WORDS;
  }
  XCCL_DEVICE bool enqueue(word pipe) {
    word *queue = queue_of(pipe);
    if (queue[ms::PIPE_COUNT] == ms::QUEUE_DEPTH) return false;
    word *entry = entry_of(queue, queue[ms::PIPE_COUNT]);
    for (int i = 0; i < abi::REQUEST_WORDS; i++) entry[i] = words[abi::REQUEST + i];
    queue[ms::PIPE_COUNT]++;
    return true;
  }
  XCCL_DEVICE void pop(word *queue) {
    word *entry = entry_of(queue, 0);
    for (int i = 0; i < ms::ENTRY_WORDS; i++) entry[i] = 0;
    queue[ms::PIPE_COUNT]--;
    queue[ms::PIPE_HEAD] = queue[ms::PIPE_COUNT] ? (queue[ms::PIPE_HEAD] + 1) % ms::QUEUE_DEPTH : 0;
  }
  XCCL_DEVICE bool set_event(word source, word target, word event, word site) {
    word &set = words[ms::EVENTS + source * ms::N_PIPES + target];
    if (set >> event & 1) return fail(ms::ERR_DOUBLE_SET, source * 8 + target, event, site);
    set |= 1ll << event;
    return true;
  }
  XCCL_DEVICE bool take_event(word source, word target, word event) {
    word &set = words[ms::EVENTS + source * ms::N_PIPES + target];
    if (!(set >> event & 1)) return false;
    set &= ~(1ll << event);
    return true;
  }
  XCCL_DEVICE bool flag(const word *request) {
    word source = request[ops::set_flag_source], target = request[ops::set_flag_target];
    word event = request[ops::set_flag_event];
    return request[0] == rq::OP_SET_FLAG ? set_event(source, target, event, request[abi::REQUEST_WORDS - 1])
                                         : take_event(source, target, event);
  }

  // ---- what pipes do; false if the pipe has nothing, or waits

  XCCL_DEVICE bool advance(word pipe) {
    if (pipe == rq::DMA) return copy_by_dma();
    word *queue = queue_of(pipe);
    if (queue[ms::PIPE_COUNT] == 0) return false;
    const word *entry = entry_of(queue, 0);
    n_actions++;
    if (ops::FLAGS >> entry[0] & 1) {
      if (!flag(entry)) return false;
    } else if (pipe == rq::VECTOR) {
      const word at = entry - machine.state;
      pipes__compute((Bytes)machine.memory, machine.state, words[ms::UB_BASE], at, entry[0]);
      moved[pipe] += touched_elements(machine.state, at, entry[0]);
    } else if (pipe == rq::MTU_IN) {
      fetch(buffer + entry[ops::mtu_in_ub], machine.memory + entry[ops::mtu_in_source], entry[ops::mtu_in_nbytes]);
      moved[pipe] += entry[ops::mtu_in_nbytes];
    } else {
      write_out(entry);
    }
    pop(queue);
    return true;
  }
  XCCL_DEVICE bool advance() {
    word first = drawn(ms::N_PIPES - 1);
    for (word i = 0; i < ms::N_PIPES - 1; i++)
      if (advance(1 + (first + i) % (ms::N_PIPES - 1))) return true;
    return false;
  }
  XCCL_DEVICE void write_out(const word *entry) {
    char *memory = machine.memory;
    word &out = moved[rq::MTU_OUT];
    if (asks_strong(entry[abi::REQUEST_WORDS - 1])) fence();
    switch (entry[0]) {
      case rq::OP_FENCE: fence(); break;
      case rq::OP_ADD: out += 8, add(memory + entry[ops::add_target], entry[ops::add_value]); break;
      case rq::OP_PUT: out += ms::GRANULE_BYTES, write_line(memory + entry[ops::put_target], entry + ops::put_word0); break;
      case rq::OP_MTU_ADD:
        out += entry[ops::mtu_out_nbytes];
        for (word i = 0; i < entry[ops::mtu_out_nbytes]; i += 4)
          add_4(memory + entry[ops::mtu_out_target] + i, *(const int *)(buffer + entry[ops::mtu_out_ub] + i));
        break;
      default:
        out += entry[ops::mtu_out_nbytes];
        write(memory + entry[ops::mtu_out_target], buffer + entry[ops::mtu_out_ub], entry[ops::mtu_out_nbytes]);
        if (entry[0] != rq::OP_PUT_SIGNAL) break;
        out += 8, fence();
        if (entry[ops::put_signal_how] == rq::SIGNAL_ADD)
          add(memory + entry[ops::put_signal_signal], entry[ops::put_signal_value]);
        else
          store(memory + entry[ops::put_signal_signal], entry[ops::put_signal_value], 8);
    }
  }
  XCCL_DEVICE bool copy_by_dma() {
    word first = drawn(ms::N_DMA_SLOTS);
    for (word i = 0; i < ms::N_DMA_SLOTS; i++) {
      word *slot = words + ms::DMA_SLOTS + (first + i) % ms::N_DMA_SLOTS * ms::ENTRY_WORDS;
      if (slot[0] == 0) continue;
      copy(machine.memory + slot[ops::dma_target], machine.memory + slot[ops::dma_source], slot[ops::dma_nbytes]);
      fence();
      moved[rq::DMA] += slot[ops::dma_nbytes];
      word event = slot[ops::dma_event], site = slot[abi::REQUEST_WORDS - 1];
      for (int k = 0; k < ms::ENTRY_WORDS; k++) slot[k] = 0;
      n_actions++;
      return set_event(rq::DMA, rq::SCALAR, event, site);
    }
    return false;
  }
  XCCL_DEVICE bool ring() {
    for (word i = 0; i < ms::N_DMA_SLOTS; i++) {
      word k = (words[abi::REQUEST + ops::dma_event] + i) % ms::N_DMA_SLOTS;
      word *slot = words + ms::DMA_SLOTS + k * ms::ENTRY_WORDS;
      if (slot[0]) continue;
      for (int j = 0; j < abi::REQUEST_WORDS; j++) slot[j] = words[abi::REQUEST + j];
      return true;
    }
    return false;
  }
  XCCL_DEVICE bool drained() {
    for (word pipe = rq::MTU_IN; pipe < rq::DMA; pipe++)
      if (queue_of(pipe)[ms::PIPE_COUNT]) return false;
    for (word k = 0; k < ms::N_DMA_SLOTS; k++)
      if (words[ms::DMA_SLOTS + k * ms::ENTRY_WORDS]) return false;
    fence();
    return true;
  }
  XCCL_DEVICE bool fence_ahead() {
    word *queue = queue_of(rq::MTU_OUT);
    for (word j = 0; j < queue[ms::PIPE_COUNT]; j++)
      if (entry_of(queue, j)[0] == rq::OP_FENCE) return true;
    return false;
  }

  // ---- requests

  XCCL_DEVICE word site_word(word site) {
    return machine.state[machine.state[ms::SWITCH_BASE] + words[ms::KERNEL] * ms::MAX_SITES + site];
  }
  XCCL_DEVICE bool asks_strong(word site) { return (site_word(site) >> ms::SITE_ORDER & 3) == ms::ASKS_STRONG; }
  XCCL_DEVICE bool is_off() {
    return words[abi::REQUEST] != rq::OP_RETURN && (site_word(words[abi::REQUEST + abi::REQUEST_WORDS - 1]) & ms::SITE_OFF);
  }
  XCCL_DEVICE bool holds(word value, word compare, word wanted) {
    return compare == rq::CMP_EQ ? value == wanted : compare == rq::CMP_GE ? value >= wanted : value != wanted;
  }
  XCCL_DEVICE bool allowed(word op) {
    const bool right = ops::VECTORS >> op & 1 ? access_check_vector(machine.state, number, base, op)
                       : op == rq::OP_CHOOSE || op == rq::OP_POLL_ANY ? access_check_choice(machine.state, number, base, op)
                       : access_check(machine.state, number, base, op);
    if (!right) halt(machine.stop, FAILED);
    return right;
  }

  // Carry out the request; false if it has to wait.
  XCCL_DEVICE bool grant() {
    word *r = words + abi::REQUEST, op = r[0];
    if (!(ops::LOOKS >> op & 1) && is_off()) return true;
    if (ops::VECTORS >> op & 1) return enqueue(rq::VECTOR);
    if (ops::TRANSFERS >> op & 1) return enqueue(op == rq::OP_MTU_IN ? rq::MTU_IN : rq::MTU_OUT);
    if (ops::SCALAR_WRITES >> op & 1 && fence_ahead()) return false;
    word &result = words[abi::RESULT];
    char *memory = machine.memory;
    word &touched = moved[rq::SCALAR];
    switch (op) {
      case rq::OP_RETURN:
        if (!drained()) return false;
        result = r[ops::return_value];
        return no_event_left();
      case rq::OP_LOAD: touched += r[ops::load_nbytes], result = load(memory + r[ops::load_address], r[ops::load_nbytes]); return true;
      case rq::OP_STORE:
        if (asks_strong(r[abi::REQUEST_WORDS - 1])) fence();
        touched += r[ops::store_nbytes], store(memory + r[ops::store_address], r[ops::store_value], r[ops::store_nbytes]);
        return true;
      case rq::OP_LOAD_LINE: {
        word held[2];
        fetch((char *)held, memory + r[ops::load_line_address], sizeof held);
        touched += sizeof held, result = held[0], r[ops::load_line_high] = held[1];
        return true;
      }
      case rq::OP_STORE_LINE:
        if (asks_strong(r[abi::REQUEST_WORDS - 1])) fence();
        touched += 16, write(memory + r[ops::store_line_address], (const char *)(r + ops::store_line_value), 16);
        return true;
      case rq::OP_ATOMIC_ADD:
        if (asks_strong(r[abi::REQUEST_WORDS - 1])) fence();
        touched += 8, result = add(memory + r[ops::atomic_add_address], r[ops::atomic_add_value]);
        acquire();
        return true;
      case rq::OP_COMPARE_SWAP:
        if (asks_strong(r[abi::REQUEST_WORDS - 1])) fence();
        touched += 8, result = swap(memory + r[ops::compare_swap_address], r[ops::compare_swap_expected], r[ops::compare_swap_value]);
        acquire();
        return true;
      case rq::OP_POLL: return poll(r, result);
      case rq::OP_POLL_ANY: return poll_any(result);
      case rq::OP_QUIET: return drained();
      case rq::OP_ARRIVE: return arrive(result);
      case rq::OP_AWAIT_GROUP: return load((char *)(group() + ms::GROUP_PHASE), 8) != r[ops::await_group_phase];
      case rq::OP_UB_LOAD: result = plain(buffer + r[ops::ub_load_ub], r[ops::ub_load_nbytes]); return true;
      case rq::OP_UB_STORE: put_plain(buffer + r[ops::ub_store_ub], r[ops::ub_store_value], r[ops::ub_store_nbytes]); return true;
      case rq::OP_VALIDATE: case rq::OP_DCCI: return true;
      case rq::OP_SET_FLAG: case rq::OP_WAIT_FLAG: {
        word pipe = r[op == rq::OP_SET_FLAG ? ops::set_flag_source : ops::set_flag_target];
        return pipe == rq::SCALAR ? flag(r) : enqueue(pipe);
      }
      case rq::OP_FAIL: {
        bool arithmetic = r[abi::REQUEST_WORDS - 1] == ms::AT_PLACE;
        return fail(arithmetic ? ms::ERR_ARITHMETIC : ms::ERR_FAIL, r[ops::fail_code], r[ops::fail_info], r[abi::REQUEST_WORDS - 1]);
      }
      case rq::OP_CHOOSE: result = drawn(8) ? 0 : drawn(r[ops::choose_n]); return true;
      case rq::OP_DMA: return ring();
    }
    return fail(ms::ERR_OPERAND, op, 0, r[abi::REQUEST_WORDS - 1]);
  }
  XCCL_DEVICE bool poll(const word *r, word &result) {
    char *at = machine.memory + r[ops::poll_address];
    word nbytes = r[ops::poll_nbytes], compare = r[ops::poll_compare], value = r[ops::poll_value], mask = r[ops::poll_mask];
    if (nbytes > 8) {
      word held[ms::LINE_BYTES_MOST / 8];  // what is read in vain is dropped
      fetch((char *)held, at, nbytes);
      for (word w = 0; w < nbytes >> 2; w++) {
        bool same = (int)plain((char *)held + 4 * w, 4) == (int)(value >> 32 * (w & 1));
        if (mask >> w & 1 && same != (compare == rq::CMP_EQ) && !is_off()) return false;
      }
      for (word w = 0; w < nbytes >> 3; w++) put_plain(buffer + r[ops::poll_ub] + 8 * w, held[w], 8);
      return true;
    }
    word there = load(at, nbytes);
    if (!holds(there & mask, compare, value & mask) && !is_off()) return false;
    result = there;
    return true;
  }
  XCCL_DEVICE bool poll_any(word &result) {
    word first = drawn(rq::CONDITIONS_MOST);
    if (is_off()) return result = 0, true;
    for (word i = 0; i < rq::CONDITIONS_MOST; i++) {
      word k = (first + i) % rq::CONDITIONS_MOST, at = rq::CONDITION_WORDS * k + (k >= 2 ? 1 : 0);
      const word *condition = words + abi::REQUEST + ops::poll_any_first + at;
      if (condition[1] < rq::CMP_EQ || condition[0] < 0) continue;
      if (holds(load(machine.memory + condition[0], 8), condition[1], condition[2])) {
        for (word j = abi::REQUEST_WORDS; j < abi::LONGEST_REQUEST_WORDS; j++) words[abi::REQUEST + j] = 0;
        return result = k, true;
      }
    }
    return false;
  }
  XCCL_DEVICE word *group() { return machine.state + machine.state[ms::GROUP_BASE] + words[ms::GROUP] * ms::GROUP_WORDS; }
  XCCL_DEVICE bool arrive(word &result) {
    word *g = group();
    result = load((char *)(g + ms::GROUP_PHASE), 8);
    fence();
    if (add((char *)(g + ms::GROUP_ARRIVED), 1) + 1 == g[ms::GROUP_SIZE]) {
      store((char *)(g + ms::GROUP_ARRIVED), 0, 8);
      fence();
      store((char *)(g + ms::GROUP_PHASE), 1 - result, 8);
    }
    return true;
  }
  XCCL_DEVICE bool no_event_left() {
    for (word flags = 0; flags < ms::N_PIPES * ms::N_PIPES; flags++)
      for (word event = 0; event < ms::N_EVENTS; event++)
        if (words[ms::EVENTS + flags] >> event & 1)
          return fail(ms::ERR_LEFT_SET, flags / ms::N_PIPES * 8 + flags % ms::N_PIPES, event, ms::AT_END);
    return true;
  }

  // Let the core's queues go on; true if the run is to end.
  XCCL_DEVICE bool wait() {
    if (advance()) return is_set(machine.stop);
    if (++spins % SPINS_A_LOOK == 0) {
      rest();
      if (now_ns() > until_ns) halt(machine.stop, GIVEN_UP);
    }
    return is_set(machine.stop);
  }

  // Run the kernel to its next request.
  XCCL_DEVICE void go_on() {
    word op = step(words[ms::KERNEL], *this), *r = words + abi::REQUEST;
    if (op < 0 || op >= ops::N) {
      for (int i = 0; i < abi::REQUEST_WORDS; i++) r[i] = 0;
      op = op < 0 ? -op : -abi::FAULT;
      words[abi::PC] = abi::DONE - op;
      r[0] = rq::OP_FAIL, r[ops::fail_code] = op % abi::PLACES, r[ops::fail_info] = op / abi::PLACES;
      r[abi::REQUEST_WORDS - 1] = ms::AT_PLACE;
    } else if (op == rq::OP_QUIET && site_word(r[abi::REQUEST_WORDS - 1]) & ms::SITE_FENCE) {
      r[0] = rq::OP_FENCE;
    }
  }

  // What is switched off still reads; no cache is cleaned here, and nothing else is passed over.
  XCCL_DEVICE bool is_checked(word op) {
    return op != rq::OP_FAIL && op != rq::OP_DCCI && (ops::LOOKS >> op & 1 || !is_off());
  }
  XCCL_DEVICE void run() {
    until_ns = now_ns() + machine.most_ns;
    for (word i = drawn(1000); i > 0; i--) idle();
    words[ms::STATUS] = ms::STATUS_RUNNING;
    go_on();
    for (bool checked = false;;) {
      word op = words[abi::REQUEST];
      if (!checked && is_checked(op) && !allowed(op)) return;
      checked = true;
      if (!grant()) {
        if (wait()) return;
        continue;
      }
      checked = false;
      counts[op]++, n_actions++;
      if (op == rq::OP_RETURN) break;
      go_on();
      if (drawn(256) < eager) advance();  // now and then in any case: a kernel may never wait
      if (++granted % SPINS_A_LOOK == 0) {
        if (now_ns() > until_ns) halt(machine.stop, GIVEN_UP);
        if (is_set(machine.stop)) return;
      }
    }
    words[ms::STATUS] = ms::STATUS_DONE;
    add((char *)(machine.state + ms::N_LIVE), -1);
    for (word op = 0; op < ops::N; op++)
      if (counts[op]) add((char *)(machine.state + ms::COUNT_BY_OP + op), counts[op]);
    for (word pipe = 0; pipe < ms::N_PIPES; pipe++)
      if (moved[pipe]) add((char *)(machine.state + ms::BYTES_BY_PIPE + pipe), moved[pipe]);
    add((char *)(machine.state + ms::ACTIONS), n_actions);
  }
};
