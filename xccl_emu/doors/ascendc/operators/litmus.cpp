/* Litmus programs as an operator, for hardware and for xccl_emu (docs/machine.md).  Each thread is a block of a launch,
 * or a launch of its own on another device.  Each round has cells of its own, each in a cache line of its own.
 */
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t LINE_BYTES = 64, BLOCK_BYTES = 32, BLOCKS = 10;

#define PROGRAM(name, ...) P_##name,
enum {
#include "litmus_programs.h"
};
#undef PROGRAM

template <class T> __aicore__ inline GlobalTensor<T> LineOf(GM_ADDR start, uint32_t i)
{
    GlobalTensor<T> line;
    line.SetGlobalBuffer((__gm__ T *)(start + uint64_t(i) * LINE_BYTES));
    return line;
}
template <class T> __aicore__ inline void Clean(const GlobalTensor<T> &line)
{
    DataCacheCleanAndInvalid<T, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(line);
}

/* A thread in one round: its cells, and what it has read, eight bits for each register. */
class Thread {
public:
    __aicore__ inline void Write(const GlobalTensor<int32_t> &cell, int32_t value)
    {
        cell.SetValue(0, value);
        Clean(cell);
    }
    __aicore__ inline void Read(const GlobalTensor<int32_t> &cell)
    {
        Clean(cell);
        seen |= int64_t(cell.GetValue(0)) << 8 * registers++;
    }
    __aicore__ inline void Copy(const GlobalTensor<int32_t> &cell, int32_t value)
    {
        LocalTensor<int32_t> block = Block(copies);
        block.SetValue(0, value);
        SetFlag<HardEvent::S_MTE3>(copies);
        WaitFlag<HardEvent::S_MTE3>(copies++);
        DataCopy(cell, block, BLOCK_BYTES / sizeof(int32_t));
    }
    __aicore__ inline void Pull(const GlobalTensor<int32_t> &cell)
    {
        DataCopy(Block(BLOCKS / 2 + registers), cell, BLOCK_BYTES / sizeof(int32_t));
        pulled |= 1 << registers++;
    }
    __aicore__ inline void End()
    {
        if (pulled == 0) {
            return;
        }
        PipeBarrier<PIPE_ALL>();
        for (uint32_t i = 0; i < registers; i++) {
            if (pulled >> i & 1) {
                seen |= int64_t(Block(BLOCKS / 2 + i).GetValue(0)) << 8 * i;
            }
        }
    }
    LocalTensor<int32_t> room;
    GlobalTensor<int32_t> x, y, z;
    int64_t seen = 0;
    uint32_t registers = 0, copies = 0, pulled = 0;

private:
    __aicore__ inline LocalTensor<int32_t> Block(uint32_t i) { return room[i * (BLOCK_BYTES / sizeof(int32_t))]; }
};

/* All threads begin a round together: on hardware, what they then do overlaps. */
__aicore__ inline void Meet(GM_ADDR ready, uint32_t me, uint32_t threads, int32_t round)
{
    PipeBarrier<PIPE_ALL>();
    GlobalTensor<int32_t> mine = LineOf<int32_t>(ready, me);
    mine.SetValue(0, round);
    Clean(mine);
    for (uint32_t i = 0; i < threads; i++) {
        GlobalTensor<int32_t> other = LineOf<int32_t>(ready, i);
        do {
            Clean(other);
        } while (other.GetValue(0) < round);
    }
}

#define W(cell, value) thread.Write(thread.cell, value);
#define C(cell, value) thread.Copy(thread.cell, value);
#define R(cell, name) thread.Read(thread.cell);
#define P(cell, name) thread.Pull(thread.cell);
#define F PipeBarrier<PIPE_ALL>();
#define S PipeBarrier<PIPE_MTE3>();
#define THREADS(t0, t1, t2, t3, ...)                                                                                   \
    switch (me) {                                                                                                      \
        case 0: t0 break;                                                                                              \
        case 1: t1 break;                                                                                              \
        case 2: t2 break;                                                                                              \
        case 3: t3 break;                                                                                              \
    }
#define PROGRAM(name, ...)                                                                                             \
    case P_##name: THREADS(__VA_ARGS__, , , , ) break;

extern "C" __global__ __aicore__ void litmus(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR seen, GM_ADDR ready,
                                             uint32_t program, uint32_t first, uint32_t threads, uint32_t rounds)
{
    const uint32_t me = first + GetBlockIdx();
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, BLOCKS * BLOCK_BYTES);
    for (uint32_t i = 0; i < rounds; i++) {
        Thread thread;
        thread.room = room.Get<int32_t>();
        thread.x = LineOf<int32_t>(x, i), thread.y = LineOf<int32_t>(y, i), thread.z = LineOf<int32_t>(z, i);
        if (rounds > 1) {
            Meet(ready, me, threads, i + 1);
        }
        switch (program) {
#include "litmus_programs.h"
        }
        thread.End();
        GlobalTensor<int64_t> line = LineOf<int64_t>(seen, me * rounds + i);
        if (thread.registers > 0) {
            line.SetValue(0, thread.seen);
            Clean(line);
        }
    }
}
