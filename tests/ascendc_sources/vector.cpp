/* One vector instruction with a mask, repeats and strides, on three rows of the data buffer; what it leaves goes out. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void strided(
    GM_ADDR image, GM_ADDR out, int64_t which, int64_t low, int64_t high, int64_t repeats, int64_t a, int64_t b,
    int64_t c, int64_t strides, int64_t nbytes)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, nbytes);
    GlobalTensor<TYPE> from, to;
    from.SetGlobalBuffer((__gm__ TYPE *)image);
    to.SetGlobalBuffer((__gm__ TYPE *)out);
    LocalTensor<TYPE> all = buffer.Get<TYPE>();
    DataCopy(all, from, nbytes / sizeof(TYPE));
    PipeBarrier<PIPE_ALL>();
    const uint64_t mask[2] = {uint64_t(low), uint64_t(high)};
    auto stride = [&](int k) { return uint8_t(strides >> 8 * k); };
    LocalTensor<TYPE> x = all[a], y = all[b], z = all[c];
    if (which == 0) Add(x, y, z, mask, repeats, {stride(0), stride(1), stride(2), stride(3), stride(4), stride(5)});
    if (which == 1) Muls(x, y, TYPE(3), mask, repeats, {stride(0), stride(1), stride(3), stride(4)});
    if (which == 2) Duplicate(x, TYPE(7), mask, repeats, stride(0), stride(3));
    if constexpr (sizeof(TYPE) == 4) {
        if (which == 3) WholeReduceMax(x, y, low, repeats, stride(3), 1, stride(4));
        if (which == 4) BlockReduceSum(x, y, repeats, low, stride(3), stride(1), stride(4));
        if (which == 12) PairReduceSum(x, y, repeats, low, stride(3), stride(1), stride(4));
        if (which == 5) ReduceSum(x, y, z, low, repeats, stride(4));
    }
    LocalTensor<uint8_t> bits = z.template ReinterpretCast<uint8_t>();
    if constexpr (!IsSameType<TYPE, int16_t>::value) {
        LocalTensor<uint8_t> to = x.template ReinterpretCast<uint8_t>();
        if (which == 7) CompareScalar(to, y, TYPE(3), high ? CMPMODE::EQ : CMPMODE::LT, low);
        if (which == 8) Select(x, bits, y, TYPE(float(high)), SELMODE::VSEL_TENSOR_SCALAR_MODE, low);
        if (which == 10) Brcb(x, y, repeats, {stride(0), stride(3)});
        if (which == 11) x.template ReinterpretCast<int32_t>().SetValue(0, static_cast<int32_t>(y.GetValue(0)));
    }
    if (which == 9) {
        uint64_t gathered = 0;
        LocalTensor<uint32_t> of = bits.ReinterpretCast<uint32_t>();
        GatherMask(x, y, of, true, low, {stride(1), uint16_t(repeats), stride(4), stride(5)}, gathered);
        PipeBarrier<PIPE_ALL>();
        x.template ReinterpretCast<int32_t>().SetValue(1023, gathered);
    }
    if (which == 6) {
        LocalTensor<int16_t> small = all.ReinterpretCast<int16_t>();
        small(0) = small.GetValue(1) + 1;
        all.ReinterpretCast<int8_t>().SetValue(0, all.ReinterpretCast<uint8_t>()(3));
    }
    PipeBarrier<PIPE_ALL>();
    DataCopy(to, all, nbytes / sizeof(TYPE));
    PipeBarrier<PIPE_ALL>();
}
