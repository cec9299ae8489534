/* A scalar unit looks again and again at the line that it has cached; stale_line.py in Ascend C. */
#include "kernel_operator.h"

using namespace AscendC;

__aicore__ inline GlobalTensor<int64_t> WordAt(GM_ADDR address)
{
    GlobalTensor<int64_t> word;
    word.SetGlobalBuffer((__gm__ int64_t *)address);
    return word;
}
__aicore__ inline void Clean(const GlobalTensor<int64_t> &word)
{
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(word);
}
__aicore__ inline void Publish(const GlobalTensor<int64_t> &word, int64_t value)
{
    word.SetValue(0, value);
    Clean(word);
}

/* Count the cell up, and go on when the peer has seen it. */
extern "C" __global__ __aicore__ void notify(GM_ADDR cell, GM_ADDR seen, uint32_t times)
{
    GlobalTensor<int64_t> count = WordAt(cell), answer = WordAt(seen);
    for (uint32_t i = 0; i < times; i++) {
        Publish(count, i + 1);
        do {
            Clean(answer);
        } while (answer.GetValue(0) != i + 1);
    }
}

/* Look at the cell until it says that the next notification is there, and say so. */
extern "C" __global__ __aicore__ void wait(GM_ADDR cell, GM_ADDR peer_seen, GM_ADDR out, uint32_t times,
                                           uint32_t mended)
{
    GlobalTensor<int64_t> count = WordAt(cell), answer = WordAt(peer_seen), count_out = WordAt(out);
    for (uint32_t i = 0; i < times; i++) {
        do {
            if (mended) {
                Clean(count);
            }
        } while (count.GetValue(0) != i + 1);
        Publish(answer, i + 1);
    }
    Publish(count_out, times);
    PipeBarrier<PIPE_ALL>();
}
