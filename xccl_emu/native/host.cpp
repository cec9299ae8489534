// What the driver calls (native/host.py): every core of a run as a thread of this process.

// Python's own functions: the caller has the interpreter's lock, and gives it up as long as the threads run.
struct Python {
  void *(*leave)();
  void (*enter)(void *);
  int (*check_signals)();
};

extern "C" int xccl_run(const Machine *machine, const word *cores, word n, unsigned long long seed, const Python *python) {
  std::vector<std::thread> threads;
  std::mutex lock;
  std::condition_variable ended;
  word running = 0;
  threads.reserve(n);
  void *interpreter = python->leave();
  try {
    for (word i = 0; i < n; i++) {
      threads.emplace_back([&, i] {
        Core(*machine, cores[i], seed).run();
        std::lock_guard<std::mutex> held(lock);
        if (--running == 0) ended.notify_one();
      });
      std::lock_guard<std::mutex> held(lock);
      running++;
    }
  } catch (const std::system_error &) {
    halt(machine->stop, NO_THREAD);
  }
  std::unique_lock<std::mutex> held(lock);
  while (!ended.wait_for(held, std::chrono::milliseconds(100), [&] { return running == 0; })) {
    python->enter(interpreter);  // Ctrl-C is raised there when this function has returned
    if (python->check_signals() != 0) halt(machine->stop, GIVEN_UP);
    interpreter = python->leave();
  }
  held.unlock();
  for (auto &each : threads) each.join();
  python->enter(interpreter);
  return *machine->stop;
}
