/* Names of CUDA's host side, so that a source is compiled as it is: nothing of it runs. */
#pragma once

enum cudaError_t { cudaSuccess };
enum CUresult { CUDA_SUCCESS };
enum CUpointer_attribute { CU_POINTER_ATTRIBUTE_RANGE_START_ADDR };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaIpcMemLazyEnablePeerAccess };
typedef struct CUstream_st *cudaStream_t;
typedef unsigned long long CUdeviceptr;
struct cudaIpcMemHandle_t { char reserved[64]; };

#define XCCL_HOST(T, name)                                                                                             \
    template <class... A> static inline T name(A &&...) { return {}; }
XCCL_HOST(const char *, cudaGetErrorString)
XCCL_HOST(cudaError_t, cudaGetLastError)
XCCL_HOST(cudaError_t, cudaMalloc)
XCCL_HOST(cudaError_t, cudaFree)
XCCL_HOST(cudaError_t, cudaMemset)
XCCL_HOST(cudaError_t, cudaMemcpy)
XCCL_HOST(cudaError_t, cudaMemcpyAsync)
XCCL_HOST(cudaError_t, cudaStreamIsCapturing)
XCCL_HOST(cudaError_t, cudaIpcGetMemHandle)
XCCL_HOST(cudaError_t, cudaIpcOpenMemHandle)
XCCL_HOST(cudaError_t, cudaIpcCloseMemHandle)
XCCL_HOST(CUresult, cuPointerGetAttribute)
