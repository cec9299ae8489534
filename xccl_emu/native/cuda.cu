// What the driver launches (native/cuda.py): several pods at a time, a block for each core of each.

extern "C" __global__ void xccl_run(Machine machine, const word *cores, word n, unsigned long long seed) {
  const word pod = blockIdx.x / n;
  machine.memory += pod * machine.n_bytes, machine.state += pod * machine.n_words, machine.stop += pod;
  Core core(machine, cores[blockIdx.x % n], seed + pod);
  core.run();
}
