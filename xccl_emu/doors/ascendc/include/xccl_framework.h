/* Names of the framework around Ascend C.  What has no meaning here compiles for syntax, and is refused by its name where
 * code that calls it is made: so a branch that is off at compile time may have it.
 */
#pragma once

/* A function that is refused by name, whatever it takes; `result` is what it is used as. */
#define XCCL_MISSING_AS(result, name) template <auto... V, class... A> XCCL_REFUSED(#name) result name(A &&...);
#define XCCL_MISSING(name) XCCL_MISSING_AS(void, name)

#define __forceinline__ __attribute__((always_inline))
/* A variable of each core: an image with one that could be written is refused by its name. */
#define __BLOCK_LOCAL__

/* ---- assertions: false is a violation, with its line; what would be printed is left out */

inline void xccl_assert(bool holds, XCCL_AT(xccl_assert)) {
    if (!holds) at.fail(XCCL_OP_FAIL, AscendC::XCCL_ASSERTED, 0);
}
#undef assert
#define assert(condition, ...) xccl_assert(bool(condition))
#define ASCENDC_ASSERT(condition, ...) xccl_assert(bool(condition))

/* ---- what a build says of a kernel: its key and types, by `ascend_kernel(defines=...)` */

#define DT_FLOAT 1
#define DT_FLOAT16 2
#define DT_BF16 3
#define DT_INT8 4
#define DT_INT32 5
#ifndef DTYPE_X
struct DTYPE_X;
#endif
#ifndef DTYPE_EXPAND_X
struct DTYPE_EXPAND_X;
#endif
#ifdef TILING_KEY_VAR
#define TILING_KEY_IS(key) ((key) == (TILING_KEY_VAR))
#else
[[gnu::error("TILING_KEY_IS: ascend_kernel(defines={'TILING_KEY_VAR': ...}) says which key")]] bool xccl_key(uint64_t);
#define TILING_KEY_IS(key) xccl_key(key)
#endif

enum xccl_task { KERNEL_TYPE_AIV_ONLY, KERNEL_TYPE_MIX_AIV_1_0, KERNEL_TYPE_AIC_ONLY, KERNEL_TYPE_MIX_AIC_1_1, KERNEL_TYPE_MIX_AIC_1_2 };
XCCL_REFUSED("a kernel of cube cores") void xccl_of_cubes();
#define KERNEL_TASK_TYPE_DEFAULT(type) ((type) <= KERNEL_TYPE_MIX_AIV_1_0 ? void() : xccl_of_cubes())
#define KERNEL_TASK_TYPE(key, type) KERNEL_TASK_TYPE_DEFAULT(type)

/* ---- which struct a tiling is */

struct xccl_by_default {};
struct xccl_by_key {};
struct xccl_tiling_none {};
using xccl_tiling_by = xccl_by_default;
#define REGISTER_TILING_DEFAULT(type) using xccl_tiling_default = type
#define REGISTER_TILING_FOR_TILINGKEY(condition, type) using xccl_tiling_by = xccl_by_key
#define GET_TILING_DATA(name, from)                                                                                    \
    static_assert(AscendC::xccl_same<xccl_tiling_by, xccl_by_default>,                                                 \
                  "GET_TILING_DATA of a struct by REGISTER_TILING_FOR_TILINGKEY is not in xccl_emu's header");         \
    static_assert(!AscendC::xccl_same<xccl_tiling_default, xccl_tiling_none>,                                          \
                  "GET_TILING_DATA: REGISTER_TILING_DEFAULT in the same function names the struct");                  \
    GET_TILING_DATA_WITH_STRUCT(xccl_tiling_default, name, from)

/* What the host says of communication is a word of a tiling struct here, which nobody reads. */
struct Mc2InitTiling {
    uint64_t word;
};
struct Mc2CcTiling {
    uint64_t word;
};

/* What a build makes of the host's tiling macros (`ascendc.host_tiling`): structs, and which one is the default. */
#ifdef XCCL_TILING
XCCL_TILING
#else
using xccl_tiling_default = xccl_tiling_none;
#endif

/* ---- communication: types that callers name, and what they ask for; operations are refused */

using HcclHandle = int32_t;
enum HcclDataType {
    HCCL_DATA_TYPE_INT8, HCCL_DATA_TYPE_INT16, HCCL_DATA_TYPE_INT32, HCCL_DATA_TYPE_INT64, HCCL_DATA_TYPE_UINT8,
    HCCL_DATA_TYPE_UINT16, HCCL_DATA_TYPE_UINT32, HCCL_DATA_TYPE_UINT64, HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_FP32,
    HCCL_DATA_TYPE_BFP16,
};

namespace AscendC {
namespace Std {
using namespace ::std;
template <class T, class U> using IsSame = IsSameType<T, U>;
template <class T> constexpr T max(T a, T b) { return b > a ? b : a; }
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
} // namespace Std
namespace HcclContextDef {} // what is in it is here without it
using ::HcclDataType;
using ::HcclHandle;
using TEventID = int32_t;

constexpr uint64_t CACHE_LINE_SIZE = 64;
/* How many addresses an array of windows has: a number of this header, by which the host lays out a context. */
#ifndef XCCL_MAX_RANKS
#define XCCL_MAX_RANKS 64
#endif
constexpr uint32_t HCCL_MAX_RANK_NUM = XCCL_MAX_RANKS;
/* Of a network card: pointers to them may be named and not followed. */
struct IbVerbsData;
struct MemDetails;
/* Windows that a communication unit writes to; the host lays it out as it is here. */
struct HcclCombineOpParam {
    uint64_t winSize, windowsOut[HCCL_MAX_RANK_NUM];
};

enum HcclServerType { HCCL_SERVER_TYPE_AICPU, HCCL_SERVER_TYPE_CCU };
/* Its context is made by `ascendc.hccl_context`: the rank, how many there are, and windows of each, in and out. */
template <HcclServerType = HcclServerType::HCCL_SERVER_TYPE_AICPU> class Hccl {
public:
    void Init(GM_ADDR context, __gm__ void * = nullptr) {
        words = reinterpret_cast<const int64_t *>(reinterpret_cast<int64_t>(context)); // out of its address space
    }
    void InitV2(GM_ADDR context, const void *) { Init(context); }
    int32_t SetCcTiling(__gm__ void *) { return 0; }
    int32_t SetCcTilingV2(uint64_t) { return 0; }
    uint32_t GetRankId() const { return uint32_t(words[0]); }
    uint32_t GetRankDim() const { return uint32_t(words[1]); }
    /* No address for a rank that there is not. */
    GM_ADDR GetWindowsInAddr(uint32_t rank) const { return window(rank, 2); }
    GM_ADDR GetWindowsOutAddr(uint32_t rank) const { return window(rank, 2 + GetRankDim()); }
    template <bool = true> void Finalize() {}
    XCCL_MISSING_AS(HcclHandle, AlltoAll)
    XCCL_MISSING_AS(HcclHandle, AlltoAllV)
    XCCL_MISSING_AS(HcclHandle, AlltoAllvWrite)
    XCCL_MISSING_AS(HcclHandle, AllGather)
    XCCL_MISSING_AS(HcclHandle, AllReduce)
    XCCL_MISSING_AS(HcclHandle, ReduceScatter)
    XCCL_MISSING_AS(HcclHandle, BatchWrite)
    XCCL_MISSING(Commit)
    XCCL_MISSING_AS(int32_t, Wait)

private:
    GM_ADDR window(uint32_t rank, uint32_t first) const {
        return reinterpret_cast<GM_ADDR>(rank < GetRankDim() ? words[first + rank] : 0);
    }
    const int64_t *words = nullptr;
};

/* ---- cores: of the vector alone */

enum xccl_core { AIC, AIV };
constexpr xccl_core g_coreType = AIV;
XCCL_MISSING_AS(int64_t, GetSubBlockIdx)
XCCL_MISSING_AS(int64_t, GetSubBlockNum)
XCCL_MISSING_AS(int64_t, GetTaskRation)
XCCL_MISSING_AS(int64_t, ScalarGetSFFValue)
XCCL_MISSING(Nop)
XCCL_MISSING(SetCtrlSpr)
} // namespace AscendC

inline int64_t get_block_idx() { return AscendC::GetBlockIdx(); }
inline int64_t get_block_num() { return AscendC::GetBlockNum(); }
using AscendC::g_coreType;
using AscendC::bfloat16_t;
using AscendC::half;
using AscendC::Hccl;
using enum AscendC::HcclServerType;
using AscendC::float16_t;
