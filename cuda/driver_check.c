/* cuda/driver_check.c - compares driver.h with the toolkit's cuda.h; built where there is one. */
#include "cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#include <stddef.h>

#define SAME(ours, theirs) \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #ours)
#define SAME_AT(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours " " #field)
#define EQUAL(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(sl_cu_result, CUresult);
SAME(sl_cu_device, CUdevice);
SAME(sl_cu_ptr, CUdeviceptr);
SAME(sl_cu_handle, CUmemGenericAllocationHandle);
SAME(struct sl_cu_uuid, CUuuid);
SAME(struct sl_cu_ipc, CUipcMemHandle);
SAME(struct sl_cu_location, CUmemLocation);
SAME(struct sl_cu_access, CUmemAccessDesc);
SAME_AT(struct sl_cu_access, flags, CUmemAccessDesc, flags);
SAME(struct sl_cu_memory, CUmemAllocationProp);
SAME_AT(struct sl_cu_memory, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_AT(struct sl_cu_memory, location, CUmemAllocationProp, location);
SAME_AT(struct sl_cu_memory, unused, CUmemAllocationProp, win32HandleMetaData);
SAME_AT(struct sl_cu_memory, flags, CUmemAllocationProp, allocFlags);
SAME(struct sl_cu_copy_kind, CUmemcpyAttributes);
SAME_AT(struct sl_cu_copy_kind, source, CUmemcpyAttributes, srcLocHint);
SAME_AT(struct sl_cu_copy_kind, target, CUmemcpyAttributes, dstLocHint);
SAME_AT(struct sl_cu_copy_kind, flags, CUmemcpyAttributes, flags);

EQUAL(SL_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
EQUAL(SL_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(SL_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(SL_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(SL_CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(SL_CU_MEMORY_TYPE_HOST, CU_MEMORYTYPE_HOST);
EQUAL(SL_CU_MEMORY_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
EQUAL(SL_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(SL_CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(SL_CU_NOT_READY, CUDA_ERROR_NOT_READY);
EQUAL(SL_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
EQUAL(SL_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
EQUAL(SL_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(SL_CU_ATTRIBUTE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(SL_CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(SL_CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(SL_CU_ATTRIBUTE_HOST_POINTERS, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
EQUAL(SL_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
EQUAL(SL_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
EQUAL(SL_CU_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
EQUAL(SL_CU_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
EQUAL(SL_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
EQUAL(SL_CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
EQUAL(SL_CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
EQUAL(SL_CU_IPC_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
EQUAL(SL_CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
EQUAL(SL_CU_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(SL_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(SL_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(SL_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
EQUAL(SL_CU_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
_Static_assert(CUDA_VERSION >= 13000, "cuMemcpyBatchAsync has its signature of 13.0 here");
#endif
