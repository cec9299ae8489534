/* One function for all events, as public kernels have it, and a class with methods that are called as Ascend C's. */
#pragma once

template <AscendC::HardEvent event> __aicore__ inline void SyncFunc()
{
    int32_t eventID = static_cast<int32_t>(AscendC::GetTPipePtr()->FetchEventID(event));
    AscendC::SetFlag<event>(eventID);
    AscendC::WaitFlag<event>(eventID);
}
template <AscendC::HardEvent event> __aicore__ inline void Both()
{
    SyncFunc<event>();
}

template <class T> class Mailbox {
public:
    __aicore__ inline void SetFlag(T value) { flag = value; }
    __aicore__ inline T WaitFlag(T wanted);
    __aicore__ inline void PipeBarrier() { flag++; }
    T flag = 0;
};
template <class T> __aicore__ inline T Mailbox<T>::WaitFlag(T wanted)
{
    SetFlag(wanted);
    return this->flag;
}

__aicore__ inline void Settle()
{
    AscendC::PipeBarrier<PIPE_ALL>(); // line 30, as in the kernel's file
}
