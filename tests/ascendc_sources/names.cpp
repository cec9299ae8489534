/* Each name of docs/records/ascendc.md that is there, looked up. */
#include "kernel_operator.h"

using AscendC::Abs; using AscendC::Add; using AscendC::Adds; using AscendC::And; using AscendC::BinaryRepeatParams;
using AscendC::BlockReduceMax; using AscendC::BlockReduceMin; using AscendC::BlockReduceSum; using AscendC::CacheLine;
using AscendC::CacheMode; using AscendC::CACHE_MODE_DISABLE; using AscendC::Cast; using AscendC::Ceil;
using AscendC::CreateVecIndex; using AscendC::DataCacheCleanAndInvalid; using AscendC::DataCopy;
using AscendC::DataCopyExtParams; using AscendC::DataCopyPad; using AscendC::DataCopyPadExtParams;
using AscendC::DataCopyParams; using AscendC::DcciDst; using AscendC::Div; using AscendC::Duplicate;
using AscendC::GetBlockIdx; using AscendC::GetBlockNum; using AscendC::GetHcclContext; using AscendC::GetSystemCycle;
using AscendC::GetTPipePtr; using AscendC::GlobalTensor; using AscendC::HardEvent; using AscendC::IsSameType;
using AscendC::LocalTensor; using AscendC::Max; using AscendC::Maxs; using AscendC::Min; using AscendC::Mins;
using AscendC::Mul; using AscendC::Muls; using AscendC::Or; using AscendC::PipeBarrier; using AscendC::QuePosition;
using AscendC::ReduceMax; using AscendC::ReduceMin; using AscendC::ReduceSum; using AscendC::RoundMode;
using AscendC::SetAtomicAdd; using AscendC::SetAtomicMax; using AscendC::SetAtomicMin; using AscendC::SetAtomicNone;
using AscendC::TBuffAddr; using AscendC::Hccl; using AscendC::get_imm; using AscendC::SetFlag; using AscendC::Sub; using AscendC::Sum; using AscendC::SumParams; using AscendC::SyncAll;
using AscendC::TBuf; using AscendC::TPipe; using AscendC::TPosition; using AscendC::TQue; using AscendC::TQueBind;
using AscendC::TQueSync; using AscendC::UnaryRepeatParams; using AscendC::WaitFlag; using AscendC::WholeReduceMax;
using AscendC::WholeReduceMin; using AscendC::WholeReduceSum; using AscendC::Brcb; using AscendC::CompareScalar;
using AscendC::CMPMODE; using AscendC::GatherMask; using AscendC::Select; using AscendC::SELMODE;
using AscendC::SetDeqScale; using AscendC::ToFloat; using AscendC::CrossCoreSetFlag; using AscendC::CrossCoreWaitFlag;
using AscendC::Exp; using AscendC::Sort32; using AscendC::Sort; using AscendC::Concat; using AscendC::Extract;

extern "C" __global__ __aicore__ void names(GM_ADDR a)
{
    AscendC::TPipe pipe;
    AscendC::TBuf<> buffer;
    pipe.InitBuffer(buffer, 64);
    AscendC::GlobalTensor<int32_t> global;
    global.SetGlobalBuffer((__gm__ int32_t *)a);
    global.SetL2CacheHint(AscendC::CACHE_MODE_DISABLE);
    AscendC::LocalTensor<int32_t> local = buffer.Get<int32_t>(), half = buffer.GetWithOffset<int32_t>(8, 32);
    AscendC::TBuffAddr start;
    start.bufferAddr = AscendC::get_imm(0);
    AscendC::LocalTensor<int32_t> first;
    first.SetAddr(start);
    first.address_.logicPos = 0;
    local.ReinterpretCast<float>().SetValue(0, 1.0f);
    half.SetValue(0, local.GetValue(0) + int32_t(global.GetPhyAddr() == nullptr) + int32_t(local.GetPhyAddr()));
    pipe.Reset();
    AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(AscendC::GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S));
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(AscendC::GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S));
    pipe_barrier(PIPE_ALL);
    dsb(DSB_DDR);
    dsb((mem_dsb_t)0);
}
