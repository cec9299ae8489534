/* Tensors of a list, one after the other; kernels that a macro declares, one for each type. */
#include "kernel_operator.h"
#include "kernel_operator_list_tensor_intf.h"

using namespace AscendC;

static_assert(TOTAL_UB_SIZE % ONE_BLK_SIZE == 0);

template <class T> class Joiner {
public:
    __aicore__ inline void Join(__gm__ void *list, __gm__ void *out, uint32_t tensors, uint32_t elements)
    {
        pipe.InitBuffer(buffer, elements * sizeof(T));
        LocalTensor<T> held = buffer.Get<T>();
        ListTensorDesc addresses;
        addresses.Init(list);
        to.SetGlobalBuffer((__gm__ T *)out, tensors * elements);
        TEventID filled = GetTPipePtr()->FetchEventID(HardEvent::MTE2_MTE3);
        TEventID freed = GetTPipePtr()->FetchEventID(HardEvent::MTE3_MTE2);
        for (uint32_t i = 0; i * elements < to.GetSize(); i++) {
            from.SetGlobalBuffer((__gm__ T *)addresses.GetDataPtr<__gm__ uint8_t>(i));
            DataCopy(held, from, {1, uint16_t(elements * sizeof(T) / GetDataBlockSizeInBytes()), 0, 0});
            SetFlag<HardEvent::MTE2_MTE3>(filled);
            WaitFlag<HardEvent::MTE2_MTE3>(filled);
            DataCopyPad(to[i * elements], held, {1, uint16_t(elements * sizeof(T)), 0, 0});
            SetFlag<HardEvent::MTE3_MTE2>(freed);
            WaitFlag<HardEvent::MTE3_MTE2>(freed);
        }
        GetTPipePtr()->ReleaseEventID<HardEvent::MTE2_MTE3>(filled);
    }

private:
    TPipe pipe;
    TBuf<> buffer;
    GlobalTensor<T> from, to;
};

#define JOIN_OF(TYPE)                                                                                                  \
    extern "C" __global__ __aicore__ void join_##TYPE(__gm__ void *list, __gm__ void *out, uint32_t tensors,           \
                                                      uint32_t elements)                                               \
    {                                                                                                                  \
        KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);                                                             \
        Joiner<TYPE> joiner;                                                                                           \
        joiner.Join(list, out, tensors, elements);                                                                     \
    }

JOIN_OF(half)
JOIN_OF(int32_t)
