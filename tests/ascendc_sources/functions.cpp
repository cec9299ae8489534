/* One function of the vector pipe, or of the scalar unit, on the data buffer; what it leaves goes out. */
#include "kernel_operator.h"

using namespace AscendC;

/* Elements at the buffer's first byte on, as others at `to`. */
template <class TO, class FROM> class Caster {
public:
    __aicore__ inline Caster(const LocalTensor<uint8_t> &all, int64_t to)
        : from_(all.ReinterpretCast<FROM>()), to_(all[to].ReinterpretCast<TO>()) {}
    __aicore__ inline void Run(int64_t mode, int64_t n) { Cast(to_, from_, RoundMode(mode), n); }

private:
    LocalTensor<FROM> from_;
    LocalTensor<TO> to_;
};
#define CAST(number, TO, FROM)                                                                                         \
    if (which == number) Caster<TO, FROM>(all, to).Run(mode, n)

extern "C" __global__ __aicore__ void functions(
    GM_ADDR image, GM_ADDR out, int64_t which, int64_t mode, int64_t n, int64_t to, int64_t nbytes)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, nbytes);
    GlobalTensor<uint8_t> source, target;
    source.SetGlobalBuffer((__gm__ uint8_t *)image);
    target.SetGlobalBuffer((__gm__ uint8_t *)out);
    LocalTensor<uint8_t> all = buffer.Get<uint8_t>();
    DataCopy(all, source, nbytes);
    PipeBarrier<PIPE_ALL>();
    LocalTensor<float> wide = all.ReinterpretCast<float>(), of_wide = all[to].ReinterpretCast<float>();
    LocalTensor<half> small = all.ReinterpretCast<half>(), of_small = all[to].ReinterpretCast<half>();
    LocalTensor<uint32_t> index = all[nbytes / 4].ReinterpretCast<uint32_t>();
    CAST(0, float, bfloat16_t);
    CAST(1, float, half);
    CAST(2, half, int8_t);
    CAST(3, half, uint8_t);
    CAST(4, float, int16_t);
    CAST(5, int64_t, int32_t);
    CAST(6, int16_t, int32_t);
    CAST(7, int32_t, int64_t);
    CAST(8, float, float);
    CAST(9, int16_t, float);
    CAST(10, int32_t, float);
    CAST(11, int64_t, float);
    CAST(12, int16_t, half);
    CAST(13, int32_t, half);
    CAST(14, int32_t, bfloat16_t);
    CAST(15, float, int64_t);
    CAST(16, bfloat16_t, float);
    CAST(17, half, int16_t);
    CAST(18, half, int32_t);
    CAST(19, float, int32_t);
    CAST(20, int8_t, half);
    CAST(21, uint8_t, half);
    CAST(22, half, float);
    if (which == 30) Exp(of_wide, wide, n);
    if (which == 31) Exp(of_small, small, n);
    if (which == 32) Sort32(of_wide, wide, index, n / 32);
    if (which == 33) Sort32(of_small, small, index, n / 32);
    if (which == 34) {
        LocalTensor<float> joined, work;
        Concat(joined, wide, work, n / 32);
        Sort<float, true>(of_wide, joined, index, work, n / 32);
        PipeBarrier<PIPE_V>();
        Extract(wide, index, of_wide, n / 32);
    }
    if (which == 35) Copy(of_wide, wide, mode, 2, {uint16_t(n), 1, 16, 8});
    if (which == 36) {
        uint64_t mask[] = {uint64_t(mode), 0};
        Copy(of_small, small, mask, 2, {uint16_t(n), 2, 9, 16});
    }
    if (which == 37) {
        LocalTensor<double> reals = all.ReinterpretCast<double>();
        LocalTensor<uint64_t> words = all.ReinterpretCast<uint64_t>();
        GlobalTensor<double> memory;
        memory.SetGlobalBuffer((__gm__ double *)image);
        reals.SetValue(3, reals.GetValue(0) * 0.5 + memory.GetValue(1));
        words.SetValue(4, words.GetValue(2) >> 1);
        all.ReinterpretCast<int64_t>()(5) = all.ReinterpretCast<int64_t>().GetValue(2) >> 1;
    }
    if (which == 38) Duplicate(all[to].ReinterpretCast<int64_t>(), mode, n);
    if (which == 39) {
        static_assert(Std::IsSame<half, half>::value && !Std::IsSame<half, float>::value);
        LocalTensor<int32_t> counts = all.ReinterpretCast<int32_t>();
        counts(n) = Std::max(counts(0)++, ++counts(1)) + Std::min(counts(2)++, counts(2)++);
    }
    if (which == 40) ReduceMax(of_wide, wide, wide, n, mode == 1);
    if (which == 41) ReduceMin(of_wide, wide, wide, n, mode == 1);
    if (which == 42) Sum(of_wide, wide, all, SumParams{2, 16, uint32_t(n)});
    if (which == 43) DataCopy(of_wide, wide, {3, uint16_t(n), uint16_t(mode), 1});
    PipeBarrier<PIPE_ALL>();
    DataCopy(target, all, nbytes);
    PipeBarrier<PIPE_ALL>();
}

/* Blocks into the data buffer with what pads them, and all of that out. */
extern "C" __global__ __aicore__ void padded(
    GM_ADDR image, GM_ADDR out, int64_t blocks, int64_t length, int64_t left, int64_t right, int64_t is_pad,
    int64_t value, int64_t nbytes)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, nbytes);
    GlobalTensor<int16_t> source, target;
    source.SetGlobalBuffer((__gm__ int16_t *)image);
    target.SetGlobalBuffer((__gm__ int16_t *)out);
    LocalTensor<int16_t> all = buffer.Get<int16_t>();
    Duplicate(all, int16_t(-1), nbytes / 2);
    PipeBarrier<PIPE_ALL>();
    DataCopyExtParams copy{uint16_t(blocks), uint32_t(length), 2, 1, 0};
    DataCopyPadExtParams<int16_t> pad{bool(is_pad), uint8_t(left), uint8_t(right), int16_t(value)};
    DataCopyPad(all, source, copy, pad);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(target, all, nbytes / 2);
    PipeBarrier<PIPE_ALL>();
}
