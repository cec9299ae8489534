/* Copies between memory and the data buffer, and within the data buffer. */
#pragma once

namespace AscendC {
struct DataCopyParams {
    uint16_t blockCount = 1, blockLen = 0, srcStride = 0, dstStride = 0;
};
struct DataCopyExtParams {
    /* Of none or of all five: four in braces are DataCopyParams. */
    DataCopyExtParams() = default;
    constexpr DataCopyExtParams(uint16_t count, uint32_t length, uint32_t source, uint32_t target, uint32_t unused)
        : blockCount(count), blockLen(length), srcStride(source), dstStride(target), rsv(unused) {}
    uint16_t blockCount = 1;
    uint32_t blockLen = 0, srcStride = 0, dstStride = 0, rsv = 0;
};
template <class T> struct DataCopyPadExtParams {
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    T paddingValue = {};
};
constexpr int64_t xccl_whole(int64_t nbytes) { return (nbytes + 31) / 32 * 32; }

inline int64_t xccl_blocks(xccl_place at, int64_t operation, int64_t nbytes) {
    if (nbytes % 32) at.fail(operation, XCCL_NOT_WHOLE_BLOCKS, nbytes);
    return nbytes;
}

template <class T>
void DataCopy(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t count, XCCL_AT(DataCopy)) {
    at(XCCL_OP_MTU_IN, from.address, to.start, xccl_blocks(at, XCCL_OP_MTU_IN, count * sizeof(T)));
}
template <class T>
void DataCopy(const GlobalTensor<T> &to, const LocalTensor<T> &from, uint32_t count, XCCL_AT(DataCopy)) {
    xccl_copy_out(at, from.start, to.address, xccl_blocks(at, XCCL_OP_MTU_OUT, count * sizeof(T)));
}
template <class T>
void DataCopy(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t count, XCCL_AT(DataCopy)) {
    at(XCCL_OP_V_COPY, from.start, to.start, xccl_blocks(at, XCCL_OP_V_COPY, count * sizeof(T)));
}

/* Blocks are copied one after the other, each by an instruction. */
template <class T>
void DataCopy(const LocalTensor<T> &to, const GlobalTensor<T> &from, const DataCopyParams &p, XCCL_AT(DataCopy)) {
    for (int64_t i = 0; i < p.blockCount; i++)
        at(XCCL_OP_MTU_IN, from.address + i * 32 * (p.blockLen + p.srcStride),
           to.start + i * 32 * (p.blockLen + p.dstStride), 32 * p.blockLen);
}
template <class T>
void DataCopy(const GlobalTensor<T> &to, const LocalTensor<T> &from, const DataCopyParams &p, XCCL_AT(DataCopy)) {
    for (int64_t i = 0; i < p.blockCount; i++)
        xccl_copy_out(at, from.start + i * 32 * (p.blockLen + p.srcStride),
                      to.address + i * 32 * (p.blockLen + p.dstStride), 32 * p.blockLen);
}

template <class T>
void DataCopy(const LocalTensor<T> &to, const LocalTensor<T> &from, const DataCopyParams &p, XCCL_AT(DataCopy)) {
    for (int64_t i = 0; i < p.blockCount; i++)
        at(XCCL_OP_V_COPY, from.start + i * 32 * (p.blockLen + p.srcStride),
           to.start + i * 32 * (p.blockLen + p.dstStride), 32 * p.blockLen);
}

/* Values that pad (`ascend_kernel(paddings=...)`) are in memory, 32 bytes of each: so mtu-in is what writes them. */
struct xccl_padding {
    uint64_t nbytes, bits;
};
constexpr xccl_padding xccl_paddings[] = {XCCL_PADDINGS{0, 0}};
template <class T> int64_t xccl_padding_of(xccl_place at, T value) {
    constexpr int unused = 64 - 8 * int(sizeof(T));
    uint64_t bits = uint64_t(xccl_word(value)) << unused >> unused;
    for (int64_t i = 0; xccl_paddings[i].nbytes; i++)
        if (xccl_paddings[i].nbytes == sizeof(T) && xccl_paddings[i].bits == bits)
            return xccl_kept(XCCL_PADDINGS_WORD) + 32 * i;
    at.fail(XCCL_OP_MTU_IN, XCCL_NO_PADDING, int64_t(bits));
    return 0;
}

/* Lengths and strides in memory are in bytes, strides in the data buffer in blocks of 32.  A block is whole blocks of 32
 * bytes with what pads it on both sides; what fills it up to that is left as it is, and so is padding without `isPad`. */
template <class T>
void DataCopyPad(const LocalTensor<T> &to, const GlobalTensor<T> &from, const DataCopyExtParams &p,
                 const DataCopyPadExtParams<T> &pad, XCCL_AT(DataCopyPad)) {
    int64_t left = pad.leftPadding * sizeof(T), right = pad.rightPadding * sizeof(T), nbytes = p.blockLen;
    if (left > 32 || right > 32) at.fail(XCCL_OP_MTU_IN, XCCL_WIDE_PADDING, max(left, right));
    int64_t row = pad.isPad && left + right ? xccl_padding_of(at, pad.paddingValue) : 0;
    for (int64_t i = 0; i < p.blockCount; i++) {
        int64_t start = to.start + i * (xccl_whole(left + nbytes + right) + 32 * p.dstStride);
        if (row && left) at(XCCL_OP_MTU_IN, row, start, left);
        at(XCCL_OP_MTU_IN, from.address + i * (nbytes + p.srcStride), start + left, nbytes);
        if (row && right) at(XCCL_OP_MTU_IN, row, start + left + nbytes, right);
    }
}
template <class T>
void DataCopyPad(const GlobalTensor<T> &to, const LocalTensor<T> &from, const DataCopyExtParams &p,
                 XCCL_AT(DataCopyPad)) {
    for (int64_t i = 0; i < p.blockCount; i++)
        xccl_copy_out(at, from.start + i * (xccl_whole(p.blockLen) + 32 * p.srcStride),
                      to.address + i * (p.blockLen + p.dstStride), p.blockLen);
}
/* The same of shorter lengths. */
struct DataCopyPadParams {
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    uint64_t paddingValue = 0;
};
template <class T>
void DataCopyPad(const LocalTensor<T> &to, const GlobalTensor<T> &from, const DataCopyParams &p,
                 const DataCopyPadParams &pad, XCCL_AT(DataCopyPad)) {
    T value = xccl_value<T>(int64_t(pad.paddingValue));
    DataCopyPad(to, from, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0},
                DataCopyPadExtParams<T>{pad.isPad, pad.leftPadding, pad.rightPadding, value}, at);
}
template <class T>
void DataCopyPad(const GlobalTensor<T> &to, const LocalTensor<T> &from, const DataCopyParams &p, XCCL_AT(DataCopyPad)) {
    DataCopyPad(to, from, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0}, at);
}
} // namespace AscendC
