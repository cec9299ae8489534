/* A word that counts: one core writes it, others wait for it.  It has a cache line of its own. */
#pragma once
#include "kernel_operator.h"

constexpr uint32_t COUNTER_BYTES = 64;

class Counter {
public:
    __aicore__ inline explicit Counter(GM_ADDR address) { word.SetGlobalBuffer((__gm__ int64_t *)address); }
    __aicore__ inline void Set(int64_t value)
    {
        word.SetValue(0, value);
        Clean();
    }
    /* Wait until it is at least so much, and return what it is. */
    __aicore__ inline int64_t Await(int64_t wanted)
    {
        int64_t seen;
        do {
            Clean();
        } while ((seen = word.GetValue(0)) < wanted);
        return seen;
    }

private:
    __aicore__ inline void Clean()
    {
        AscendC::DataCacheCleanAndInvalid<int64_t, AscendC::CacheLine::SINGLE_CACHE_LINE,
                                          AscendC::DcciDst::CACHELINE_OUT>(word);
    }
    AscendC::GlobalTensor<int64_t> word;
};
