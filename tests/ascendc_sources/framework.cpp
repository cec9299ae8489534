/* A file as strangers write them: names of the framework, in code that has meaning here and in code that has none. */
#include "kernel_operator.h"
#include "kernel_tiling/kernel_tiling.h"
#include "lib/matmul_intf.h"
#include "lib/hccl/hccl.h"
#include "adv_api/hccl/hccl.h"
#include "adv_api/reduce/sum.h"
#include "kernel_operator_list_tensor_intf.h"

using namespace AscendC;

struct RowsInfo {
    uint32_t rows, columns;
};
struct RowsTiling {
    Mc2InitTiling mc2InitTiling;
    Mc2CcTiling mc2CcTiling;
    RowsInfo info;
};
struct Context {
    uint64_t rank, windowsIn[HCCL_MAX_RANK_NUM];
    __gm__ AscendC::IbVerbsData *card;
    __gm__ AscendC::MemDetails *memory;
};
static_assert(offsetof(RowsTiling, info) % sizeof(RowsInfo) == 0 && AscendC::CACHE_LINE_SIZE > 0 && NULL == 0);
static_assert(sizeof(half) == sizeof(float16_t) && std::is_arithmetic<size_t>::value && sizeof(bfloat16_t) == 2);
static_assert(g_coreType == AscendC::AIV && g_coreType != AscendC::AIC);

/* With a server of AI CPUs; its methods are refused where they are called. */
template <class T> class Rows {
public:
    __aicore__ inline void Init(GM_ADDR context, GM_ADDR rows, TPipe *pipe, const RowsTiling &tiling) {
        hccl_.InitV2(context, &tiling);
        hccl_.SetCcTilingV2(offsetof(RowsTiling, mc2CcTiling));
        handle_ = hccl_.template AlltoAllV<true>(rows, rows, type_);
        hccl_.Wait(handle_);
        rows_.SetGlobalBuffer((__gm__ T *)hccl_.GetWindowsInAddr(hccl_.GetRankId()));
        out_.SetGlobalBuffer((__gm__ T *)hccl_.GetWindowsOutAddr(hccl_.GetRankDim() - 1));
        pipe->InitBuffer(in_, 2, tiling.info.columns * sizeof(T));
    }
    __forceinline__ __aicore__ void Read(uint32_t row, DataCopyParams &p, DataCopyPadParams &padParams) {
        LocalTensor<T> held = in_.template AllocTensor<T>();
        DataCopyPad(held, rows_[row], p, padParams);
        Copy(held, held, 8, 1, CopyRepeatParams{1, 1, 8, 8});
        TEventID eventId = GetTPipePtr()->FetchEventID(HardEvent::MTE2_S);
        SetFlag<HardEvent::MTE2_S>(eventId);
        WaitFlag<HardEvent::MTE2_S>(eventId);
        in_.FreeTensor(held);
        hccl_.Finalize();
    }

private:
    Hccl<HCCL_SERVER_TYPE_AICPU> hccl_;
    AscendC::HcclHandle handle_;
    AscendC::HcclDataType type_ = HCCL_DATA_TYPE_FP16;
    GlobalTensor<T> rows_, out_;
    TQue<TPosition::VECIN, 2> in_;
    TBuf<TPosition::VECCALC> work_;
};

/* For cube cores: it compiles for syntax, and is refused where it is called. */
__aicore__ inline void Meet() {
    AscendC::CrossCoreSetFlag<0x0, PIPE_FIX>(8);
    AscendC::CrossCoreWaitFlag<0x0>(8);
    AscendC::CrossCoreWaitFlag(GetTaskRation() * GetSubBlockNum() + GetSubBlockIdx());
    SetCtrlSpr<60, 60>(0);
}

extern "C" __global__ __aicore__ void rows(GM_ADDR context, GM_ADDR source, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    REGISTER_TILING_DEFAULT(RowsTiling);
    GET_TILING_DATA(given, tiling);
    ASCENDC_ASSERT((given.info.rows > 0), { KERNEL_LOG(KERNEL_ERROR, "no rows"); });
    assert(given.info.columns % 8 == 0, "columns: %u\n", given.info.columns);
    if (get_block_idx() >= get_block_num()) return;
#ifdef ASKED
    ASKED;
#endif
    dsb(DSB_DDR);
}
