// What the driver calls (native/host.py): every core of a run as a thread of this process.

extern "C" int xccl_run(const Machine *machine, const word *cores, word n, unsigned long long seed) {
  std::vector<std::thread> threads;
  threads.reserve(n);
  try {
    for (word i = 0; i < n; i++) threads.emplace_back([=] { Core(*machine, cores[i], seed).run(); });
  } catch (const std::system_error &) {
    halt(machine->stop, NO_THREAD);
  }
  for (auto &each : threads) each.join();
  return *machine->stop;
}
