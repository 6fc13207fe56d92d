/* cuda/driver.h - the table of libcuda's entry points, loaded at run time, and the translation of
 * its errors. For cuda/, libsluice and the fake driver of tests/support.
 *
 * The types are our own, so that all but the kernels builds without a toolkit; driver_check.c
 * compares them with cuda.h if it exists. Symbols are looked up by exported names: a versioned name
 * ("_v2") always has one signature, but what cuGetProcAddress returns for an unversioned name
 * depends on the driver. */
#ifndef SL_DRIVER_H
#define SL_DRIVER_H

#include "runtime/base/sl_error.h"

typedef int sl_cu_result; /* 0: success */
typedef int sl_cu_device;
typedef unsigned long long sl_cu_ptr;    /* address in device memory */
typedef unsigned long long sl_cu_handle; /* of physical memory */
typedef void *sl_cu_context, *sl_cu_module, *sl_cu_function, *sl_cu_stream, *sl_cu_event;
struct sl_cu_uuid {
    unsigned char bytes[16];
};
struct sl_cu_ipc {
    unsigned char bytes[64];
};
struct sl_cu_location {
    int type; /* 1: a device */
    int id;
};
struct sl_cu_access {
    struct sl_cu_location location;
    int flags; /* 3: read and write */
};
struct sl_cu_memory { /* CUmemAllocationProp */
    int type;         /* 1: pinned */
    int handle_types; /* 1: POSIX descriptor */
    struct sl_cu_location location;
    void *unused;
    unsigned char flags[8];
};
struct sl_cu_copy_kind { /* CUmemcpyAttributes */
    int source_order;    /* 1: in the stream's order */
    struct sl_cu_location source, target;
    unsigned flags;
};

enum {
    SL_CU_INVALID_VALUE = 1,
    SL_CU_OUT_OF_MEMORY = 2,
    SL_CU_NOT_INITIALIZED = 3,
    SL_CU_UNAVAILABLE = 46, /* the compute mode excludes this process */
    SL_CU_NO_DEVICE = 100,
    SL_CU_INVALID_IMAGE = 200,
    SL_CU_NO_BINARY = 209,
    SL_CU_INVALID_PTX = 218,
    SL_CU_NO_COMPILER = 221,     /* for PTX */
    SL_CU_UNSUPPORTED_PTX = 222, /* of a later version than the driver's */
    SL_CU_COMPILER_OFF = 223,
    SL_CU_NO_SYMBOL = 500,
    SL_CU_NOT_READY = 600,
    SL_CU_ILLEGAL_ADDRESS = 700,
    SL_CU_LAUNCH_FAILED = 719,
    SL_CU_NOT_PERMITTED = 800,
    SL_CU_NOT_SUPPORTED = 801,
    SL_CU_SYSTEM_NOT_READY = 802, /* a daemon of the driver is not running */
    SL_CU_MISMATCH = 803,         /* library and kernel module differ */
    SL_CU_NO_COMPATIBLE = 804,    /* the compat package's library does not support this GPU */
    SL_CU_MPS_CONNECTION = 805,
    SL_CU_MPS_RPC = 806,
    SL_CU_MPS_SERVER = 807, /* it is recovering from a fatal error */
    SL_CU_MPS_CLIENTS = 808,
    SL_CU_MPS_CONNECTIONS = 809,
    SL_CU_CAPTURE_UNSUPPORTED = 900,
    SL_CU_CAPTURE_INVALIDATED = 901,

    SL_CU_ATTRIBUTE_SM_COUNT = 16,
    SL_CU_ATTRIBUTE_COMPUTE_MODE = 20,
    SL_CU_ATTRIBUTE_MAJOR = 75,
    SL_CU_ATTRIBUTE_MINOR = 76,
    SL_CU_ATTRIBUTE_HOST_POINTERS = 91, /* registered memory has the same address on the device */
    SL_CU_ATTRIBUTE_DMABUF = 124,       /* unknown to drivers before 11.7 */
    SL_CU_ATTRIBUTE_MPS = 133,          /* contexts use MPS; unknown to drivers before about 12.3 */
    SL_CU_MODE_PROHIBITED = 2,
    SL_CU_MODE_EXCLUSIVE = 3,
    SL_CU_POINTER_CONTEXT = 1, /* of a pointer; NULL: mapped, or from a stream-ordered pool */
    SL_CU_POINTER_MEMORY_TYPE = 2,
    SL_CU_POINTER_BUFFER_ID = 7, /* of the allocation, never reused */
    SL_CU_POINTER_MANAGED = 8,
    SL_CU_POINTER_DEVICE = 9,       /* ordinal */
    SL_CU_POINTER_IPC_CAPABLE = 10, /* cuIpcGetMemHandle works */
    SL_CU_POINTER_MAPPED = 13,
    SL_CU_POINTER_HANDLE_TYPES = 14, /* a bit for each SL_CU_HANDLE_... it was created with */
    SL_CU_POINTER_BLOCK_ID = 20,     /* of the physical memory, never reused; new drivers only */
    SL_CU_POINTER_POOL = 17,         /* stream-ordered; NULL: none */
    SL_CU_MEMORY_TYPE_HOST = 1,
    SL_CU_MEMORY_TYPE_DEVICE = 2,
    SL_CU_HOST_PORTABLE = 1,
    SL_CU_HOST_DEVICEMAP = 2,
    SL_CU_STREAM_NON_BLOCKING = 1,
    SL_CU_EVENT_BLOCKING = 1,
    SL_CU_EVENT_NO_TIMING = 2,
    SL_CU_EVENT_INTERPROCESS = 4,
    SL_CU_IPC_PEER_ACCESS = 1,
    SL_CU_HANDLE_FD = 1,
    SL_CU_HANDLE_FABRIC = 8,
    SL_CU_RANGE_DMABUF = 1, /* a descriptor for whole host pages */
    SL_CU_MEMORY_PINNED = 1,
    SL_CU_LOCATION_DEVICE = 1,
    SL_CU_ACCESS_READ_WRITE = 3,
    SL_CU_GRANULARITY_MINIMUM = 0,
    SL_CU_ORDER_STREAM = 1,
    SL_CU_CAPTURE_GLOBAL = 0, /* mode of a thread or of a capture */
    SL_CU_CAPTURE_THREAD = 1,
    SL_CU_CAPTURE_RELAXED = 2,
};

/* X(field, symbol, needed, parameters) */
#define SL_DRIVER_TABLE(X)                                                                         \
    X(init, "cuInit", true, (unsigned flags))                                                      \
    X(version, "cuDriverGetVersion", true, (int *version))                                         \
    X(error_name, "cuGetErrorName", true, (sl_cu_result result, const char **name))                \
    X(error_text, "cuGetErrorString", true, (sl_cu_result result, const char **text))              \
    X(device_count, "cuDeviceGetCount", true, (int *count))                                        \
    X(device_get, "cuDeviceGet", true, (sl_cu_device * device, int index))                         \
    X(device_name, "cuDeviceGetName", true, (char *name, int length, sl_cu_device device))         \
    X(device_uuid, "cuDeviceGetUuid_v2", true, (struct sl_cu_uuid * uuid, sl_cu_device device))    \
    X(device_attribute, "cuDeviceGetAttribute", true,                                              \
      (int *value, int attribute, sl_cu_device device))                                            \
    X(context_retain, "cuDevicePrimaryCtxRetain", true,                                            \
      (sl_cu_context * context, sl_cu_device device))                                              \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", true, (sl_cu_device device))                \
    X(context_set, "cuCtxSetCurrent", true, (sl_cu_context context))                               \
    X(context_push, "cuCtxPushCurrent_v2", true, (sl_cu_context context))                          \
    X(context_pop, "cuCtxPopCurrent_v2", true, (sl_cu_context * context))                          \
    X(pointer_attribute, "cuPointerGetAttribute", true,                                            \
      (void *value, int attribute, sl_cu_ptr at))                                                  \
    X(priorities, "cuCtxGetStreamPriorityRange", true, (int *least, int *greatest))                \
    X(stream_create, "cuStreamCreateWithPriority", true,                                           \
      (sl_cu_stream * stream, unsigned flags, int priority))                                       \
    X(stream_destroy, "cuStreamDestroy_v2", true, (sl_cu_stream stream))                           \
    X(stream_wait, "cuStreamSynchronize", true, (sl_cu_stream stream))                             \
    X(stream_query, "cuStreamQuery", true, (sl_cu_stream stream))                                  \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", true, (int *mode))                        \
    X(event_create, "cuEventCreate", true, (sl_cu_event * event, unsigned flags))                  \
    X(event_destroy, "cuEventDestroy_v2", true, (sl_cu_event event))                               \
    X(event_record, "cuEventRecord", true, (sl_cu_event event, sl_cu_stream stream))               \
    X(event_wait, "cuEventSynchronize", true, (sl_cu_event event))                                 \
    X(event_query, "cuEventQuery", true, (sl_cu_event event))                                      \
    X(module_load, "cuModuleLoadData", true, (sl_cu_module * module, const void *image))           \
    X(module_unload, "cuModuleUnload", true, (sl_cu_module module))                                \
    X(module_function, "cuModuleGetFunction", true,                                                \
      (sl_cu_function * function, sl_cu_module module, const char *name))                          \
    X(launch, "cuLaunchKernel", true,                                                              \
      (sl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       sl_cu_stream stream, void **parameters, void **extra))                                      \
    X(memory_get, "cuMemAlloc_v2", true, (sl_cu_ptr * at, size_t length))                          \
    X(memory_free, "cuMemFree_v2", true, (sl_cu_ptr at))                                           \
    X(memory_range, "cuMemGetAddressRange_v2", true,                                               \
      (sl_cu_ptr * base, size_t * length, sl_cu_ptr at))                                           \
    X(host_get, "cuMemHostAlloc", true, (void **at, size_t length, unsigned flags))                \
    X(host_free, "cuMemFreeHost", true, (void *at))                                                \
    X(host_register, "cuMemHostRegister_v2", true, (void *at, size_t length, unsigned flags))      \
    X(host_unregister, "cuMemHostUnregister", true, (void *at))                                    \
    X(to_device, "cuMemcpyHtoDAsync_v2", true,                                                     \
      (sl_cu_ptr to, const void *from, size_t length, sl_cu_stream stream))                        \
    X(to_host, "cuMemcpyDtoHAsync_v2", true,                                                       \
      (void *to, sl_cu_ptr from, size_t length, sl_cu_stream stream))                              \
    X(fill, "cuMemsetD8Async", true,                                                               \
      (sl_cu_ptr at, unsigned char byte, size_t length, sl_cu_stream stream))                      \
    X(copy_batch, "cuMemcpyBatchAsync_v2", false,                                                  \
      (sl_cu_ptr * to, sl_cu_ptr * from, size_t * lengths, size_t count,                           \
       struct sl_cu_copy_kind * kinds, size_t * kind_starts, size_t kind_count,                    \
       sl_cu_stream stream))                                                                       \
    X(copy_batch_12, "cuMemcpyBatchAsync", false,                                                  \
      (sl_cu_ptr * to, sl_cu_ptr * from, size_t * lengths, size_t count,                           \
       struct sl_cu_copy_kind * kinds, size_t * kind_starts, size_t kind_count, size_t * failed,   \
       sl_cu_stream stream))                                                                       \
    X(event_ipc_get, "cuIpcGetEventHandle", true, (struct sl_cu_ipc * handle, sl_cu_event event))  \
    X(event_ipc_open, "cuIpcOpenEventHandle", true,                                                \
      (sl_cu_event * event, struct sl_cu_ipc handle))                                              \
    X(ipc_get, "cuIpcGetMemHandle", true, (struct sl_cu_ipc * handle, sl_cu_ptr at))               \
    X(ipc_open, "cuIpcOpenMemHandle_v2", true,                                                     \
      (sl_cu_ptr * at, struct sl_cu_ipc handle, unsigned flags))                                   \
    X(ipc_close, "cuIpcCloseMemHandle", true, (sl_cu_ptr at))                                      \
    X(granularity, "cuMemGetAllocationGranularity", true,                                          \
      (size_t * bytes, const struct sl_cu_memory *memory, int option))                             \
    X(physical_get, "cuMemCreate", true,                                                           \
      (sl_cu_handle * handle, size_t length, const struct sl_cu_memory *memory,                    \
       unsigned long long flags))                                                                  \
    X(physical_export, "cuMemExportToShareableHandle", true,                                       \
      (void *shared, sl_cu_handle handle, int kind, unsigned long long flags))                     \
    X(physical_import, "cuMemImportFromShareableHandle", true,                                     \
      (sl_cu_handle * handle, void *shared, int kind))                                             \
    X(physical_retain, "cuMemRetainAllocationHandle", true, (sl_cu_handle * handle, void *at))     \
    X(physical_free, "cuMemRelease", true, (sl_cu_handle handle))                                  \
    X(address_get, "cuMemAddressReserve", true,                                                    \
      (sl_cu_ptr * at, size_t length, size_t alignment, sl_cu_ptr wanted,                          \
       unsigned long long flags))                                                                  \
    X(address_free, "cuMemAddressFree", true, (sl_cu_ptr at, size_t length))                       \
    X(address_map, "cuMemMap", true,                                                               \
      (sl_cu_ptr at, size_t length, size_t offset, sl_cu_handle handle, unsigned long long flags)) \
    X(address_unmap, "cuMemUnmap", true, (sl_cu_ptr at, size_t length))                            \
    X(address_access, "cuMemSetAccess", true,                                                      \
      (sl_cu_ptr at, size_t length, const struct sl_cu_access *access, size_t count))              \
    X(range_export, "cuMemGetHandleForAddressRange", false,                                        \
      (void *shared, sl_cu_ptr at, size_t length, int kind, unsigned long long flags))

struct sl_driver {
    void *library;
    int number; /* driver version: 13000 is 13.0 */
    bool lost;  /* a sticky error occurred: no call works in this process any more */
#define SL_DRIVER_FIELD(field, symbol, needed, parameters) sl_cu_result(*field) parameters;
    SL_DRIVER_TABLE(SL_DRIVER_FIELD)
#undef SL_DRIVER_FIELD
};

/* Loads the library (NULL: libcuda.so.1) and initialises it. Errors: SL_ERR_UNSUPPORTED (the text
 * gives the reason: no library, no symbol, or cuInit's error) and the other three of
 * sl_fail_cuda_start. */
sl_err sl_driver_open(struct sl_driver *driver, const char *library, struct sl_error *why);
/* The same for a library that uses the driver only if its process does: takes libcuda if it is
 * loaded already, and does not initialise it (a fork of a process that did cannot use it). Errors:
 * SL_ERR_NOT_FOUND (it is not loaded), SL_ERR_UNSUPPORTED. */
sl_err sl_driver_join(struct sl_driver *driver, struct sl_error *why);
void sl_driver_close(struct sl_driver *driver); /* also if it is not open */

/* One copy between device memory and pinned memory. */
sl_cu_result sl_driver_copy(const struct sl_driver *driver, sl_cu_ptr to, sl_cu_ptr from,
                            size_t length, bool to_host, sl_cu_stream stream);
bool sl_driver_has_batch(const struct sl_driver *driver);
/* Makes count (at least 2) copies between device memory and pinned memory in one call. They run in
 * the stream's order, but in no order among each other. Requires a driver with such a call
 * (sl_driver_has_batch) and a device with SL_CU_ATTRIBUTE_HOST_POINTERS: all addresses are taken as
 * device addresses, so otherwise those of registered memory are illegal, which destroys the
 * context. */
sl_cu_result sl_driver_copy_batch(const struct sl_driver *driver, sl_cu_ptr *to, sl_cu_ptr *from,
                                  size_t *lengths, size_t count, sl_cu_stream stream);

/* Whether the error makes the context, and so the process, unusable. */
bool sl_driver_sticky(sl_cu_result result);

/* Translates the result of a call; `doing` describes the call. SL_OK for success. Sticky errors are
 * SL_ERR_DEVICE, whose class ends an actor, and mark the driver as lost. Out of memory is
 * SL_ERR_NO_MEMORY, missing support SL_ERR_UNSUPPORTED, unfinished work (SL_CU_NOT_READY)
 * SL_ERR_TIMEOUT, anything else SL_ERR_IO. */
sl_err sl_fail_cuda(struct sl_driver *driver, struct sl_error *why, sl_cu_result result,
                    const char *doing, ...) SL_PRINTF(4, 5);
/* The same for calls at start, whose text names the remedy. SL_ERR_UNREACHABLE: a service is not up
 * yet, another start may work. SL_ERR_DEVICE: the same, but this process can never have the GPU
 * (MPS). SL_ERR_CONFIG: the operator must free the GPU. SL_ERR_UNSUPPORTED: there is no usable GPU.
 * Anything else as sl_fail_cuda. */
sl_err sl_fail_cuda_start(struct sl_driver *driver, struct sl_error *why, sl_cu_result result,
                          const char *doing);

#endif
