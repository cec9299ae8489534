/* Tokens to experts and back: each rank has one expert, and a window for what every other rank writes there. */
#include "counter.h"

using namespace AscendC;

struct MoeTiling {
    uint32_t me;
    uint32_t ranks;
    uint32_t tokens; /* of a rank; of a combine those that it gets back */
    uint32_t topK;
    uint32_t hidden;
    uint32_t rows; /* that a combine sends back */
    uint64_t stride; /* from a place on one rank to the same on the next */
};
constexpr uint32_t RANKS_MOST = 16;

/* Rows come in, are cast, and go out: each through a queue of two buffers. */
template <class From, class To> class Caster {
public:
    __aicore__ inline void Init(TPipe &pipe, uint32_t hidden)
    {
        count = hidden;
        pipe.InitBuffer(in, 2, hidden * sizeof(From));
        pipe.InitBuffer(out, 2, hidden * sizeof(To));
    }
    __aicore__ inline LocalTensor<To> Begin(const GlobalTensor<From> &from)
    {
        LocalTensor<From> read = in.template AllocTensor<From>();
        DataCopy(read, from, count);
        in.EnQue(read);
        LocalTensor<From> filled = in.template DeQue<From>();
        LocalTensor<To> cast = out.template AllocTensor<To>();
        Cast(cast, filled, RoundMode::CAST_NONE, count);
        out.EnQue(cast);
        in.FreeTensor(filled);
        return out.template DeQue<To>();
    }
    __aicore__ inline void End(LocalTensor<To> row) { out.FreeTensor(row); }

private:
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    uint32_t count;
};

/* Each token goes to its experts, in half precision; after them all how many, and one more, to each rank. */
extern "C" __global__ __aicore__ void dispatch(GM_ADDR x, GM_ADDR experts, GM_ADDR windows, GM_ADDR counts,
                                               GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MoeTiling, sizes, tiling);
    TPipe pipe;
    Caster<float, half> narrow;
    narrow.Init(pipe, sizes.hidden);
    GlobalTensor<float> tokens;
    GlobalTensor<int32_t> ids;
    tokens.SetGlobalBuffer((__gm__ float *)x);
    ids.SetGlobalBuffer((__gm__ int32_t *)experts);
    uint32_t sent[RANKS_MOST] = {};
    for (uint32_t t = 0; t < sizes.tokens; t++) {
        LocalTensor<half> row = narrow.Begin(tokens[t * sizes.hidden]);
        for (uint32_t j = 0; j < sizes.topK; j++) {
            uint32_t expert = ids.GetValue(t * sizes.topK + j);
            GlobalTensor<half> window;
            window.SetGlobalBuffer((__gm__ half *)(windows + expert * sizes.stride));
            DataCopy(window[(sizes.me * sizes.tokens + sent[expert]++) * sizes.hidden], row, sizes.hidden);
        }
        narrow.End(row);
    }
    PipeBarrier<PIPE_ALL>();
    dsb(DSB_DDR);
    for (uint32_t rank = 0; rank < sizes.ranks; rank++) {
        Counter(counts + rank * sizes.stride + sizes.me * COUNTER_BYTES).Set(sent[rank] + 1);
    }
}

/* The tokens that every rank has sent, one after the other, in single precision. */
extern "C" __global__ __aicore__ void receive(GM_ADDR out, GM_ADDR window, GM_ADDR counts, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MoeTiling, sizes, tiling);
    TPipe pipe;
    Caster<half, float> widen;
    widen.Init(pipe, sizes.hidden);
    GlobalTensor<half> sent;
    GlobalTensor<float> rows;
    sent.SetGlobalBuffer((__gm__ half *)window);
    rows.SetGlobalBuffer((__gm__ float *)out);
    uint32_t row = 0;
    for (uint32_t rank = 0; rank < sizes.ranks; rank++) {
        uint32_t n = Counter(counts + rank * COUNTER_BYTES).Await(1) - 1;
        for (uint32_t i = 0; i < n; i++) {
            LocalTensor<float> wide = widen.Begin(sent[(rank * sizes.tokens + i) * sizes.hidden]);
            DataCopy(rows[row++ * sizes.hidden], wide, sizes.hidden);
            widen.End(wide);
        }
    }
}

/* Each row goes back to where its token came from: routes has rank and place of each.  Flags follow all of them. */
extern "C" __global__ __aicore__ void give_back(GM_ADDR rows, GM_ADDR routes, GM_ADDR windows, GM_ADDR flags,
                                                GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MoeTiling, sizes, tiling);
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, sizes.hidden * sizeof(bfloat16_t));
    LocalTensor<bfloat16_t> stage = room.Get<bfloat16_t>();
    GlobalTensor<bfloat16_t> from, to;
    GlobalTensor<int32_t> route;
    from.SetGlobalBuffer((__gm__ bfloat16_t *)rows);
    route.SetGlobalBuffer((__gm__ int32_t *)routes);
    for (uint32_t i = 0; i < sizes.rows; i++) {
        if (i > 0) {
            WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        }
        DataCopy(stage, from[i * sizes.hidden], sizes.hidden);
        SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        to.SetGlobalBuffer((__gm__ bfloat16_t *)(windows + route.GetValue(2 * i) * sizes.stride));
        uint32_t place = route.GetValue(2 * i + 1);
        WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        DataCopy(to[place * sizes.hidden], stage, sizes.hidden);
        if (i + 1 < sizes.rows) {
            SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
        }
    }
    PipeBarrier<PIPE_ALL>();
    dsb(DSB_DDR);
    for (uint32_t i = 0; i < sizes.rows; i++) {
        Counter(flags + route.GetValue(2 * i) * sizes.stride + route.GetValue(2 * i + 1) * COUNTER_BYTES).Set(1);
    }
}

/* Each token is the weighted sum of its contributions in single precision, each added as soon as it is there. */
extern "C" __global__ __aicore__ void combine(GM_ADDR out, GM_ADDR scales, GM_ADDR window, GM_ADDR flags,
                                              GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MoeTiling, sizes, tiling);
    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> done;
    TBuf<> wideRoom, sumRoom;
    pipe.InitBuffer(in, 2, sizes.hidden * sizeof(bfloat16_t));
    pipe.InitBuffer(done, 2, sizes.hidden * sizeof(bfloat16_t));
    pipe.InitBuffer(wideRoom, sizes.hidden * sizeof(float));
    pipe.InitBuffer(sumRoom, sizes.hidden * sizeof(float));
    LocalTensor<float> wide = wideRoom.Get<float>(), sum = sumRoom.Get<float>();
    GlobalTensor<bfloat16_t> sent, tokens;
    GlobalTensor<float> weights;
    sent.SetGlobalBuffer((__gm__ bfloat16_t *)window);
    tokens.SetGlobalBuffer((__gm__ bfloat16_t *)out);
    weights.SetGlobalBuffer((__gm__ float *)scales);
    for (uint32_t t = 0; t < sizes.tokens; t++) {
        Duplicate(sum, 0.0f, sizes.hidden);
        for (uint32_t place = t * sizes.topK; place < (t + 1) * sizes.topK; place++) {
            Counter(flags + place * COUNTER_BYTES).Await(1);
            LocalTensor<bfloat16_t> read = in.AllocTensor<bfloat16_t>();
            DataCopy(read, sent[place * sizes.hidden], sizes.hidden);
            in.EnQue(read);
            LocalTensor<bfloat16_t> filled = in.DeQue<bfloat16_t>();
            Cast(wide, filled, RoundMode::CAST_NONE, sizes.hidden);
            in.FreeTensor(filled);
            PipeBarrier<PIPE_V>();
            Muls(wide, wide, weights.GetValue(place), sizes.hidden);
            PipeBarrier<PIPE_V>();
            Add(sum, sum, wide, sizes.hidden);
            PipeBarrier<PIPE_V>();
        }
        LocalTensor<bfloat16_t> narrow = done.AllocTensor<bfloat16_t>();
        Cast(narrow, sum, RoundMode::CAST_RINT, sizes.hidden);
        done.EnQue(narrow);
        LocalTensor<bfloat16_t> ready = done.DeQue<bfloat16_t>();
        DataCopy(tokens[t * sizes.hidden], ready, sizes.hidden);
        done.FreeTensor(ready);
    }
}
