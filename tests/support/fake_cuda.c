/* tests/support/fake_cuda.c - see fake_cuda.h. With FAKE_CUDA_SHARED in the environment, device
 * memory is shared memory, so that IPC handles work between processes. FAKE_CUDA_STICKY_ONCE names
 * a file: if it exists, the next call removes it and fails with an illegal address.
 * FAKE_CUDA_NOT_READY names a file: while it exists, the system is not ready. */
#include "tests/support/fake_cuda_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct range ranges[RANGES_MAX];
struct fake_cuda fake_state;
_Thread_local bool fake_current;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

EXPORT struct fake_cuda *fake_cuda_state(void);
EXPORT struct fake_cuda *fake_cuda_state(void)
{
    return &fake_state;
}

/* ---- failing ---- */

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fake_unlock(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}

static bool fails_now(const char *symbol)
{
    if (fake_state.fail_thread != 0 && fake_state.fail_thread != (uintptr_t)pthread_self()) {
        return false;
    }
    fake_state.calls++;
    return fake_state.calls == fake_state.fail_at ||
           (fake_state.fail_symbol != NULL && strcmp(symbol, fake_state.fail_symbol) == 0);
}

sl_cu_result fake_fails(const char *symbol)
{
    const char *once = getenv("FAKE_CUDA_STICKY_ONCE");
    bool now = fails_now(symbol);
    if (once != NULL && unlink(once) == 0) {
        fake_state.stuck = SL_CU_ILLEGAL_ADDRESS;
    }
    if (fake_state.stuck != 0) {
        return fake_state.stuck;
    }
    if (now) {
        if (fake_state.fail_sticks) {
            fake_state.stuck = fake_state.fail_code;
        }
        return fake_state.fail_code;
    }
    return fake_capture_check(symbol);
}

/* ---- ranges ---- */

struct range *fake_range_add(enum range_kind kind, uintptr_t at, size_t length)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].kind == FREE) {
            static unsigned long long last_id;
            ranges[i] =
                (struct range){.kind = kind, .at = at, .length = length, .fd = -1, .id = ++last_id};
            return &ranges[i];
        }
    }
    abort();
}

static bool is_host(enum range_kind kind)
{
    return kind == HOST || kind == REGISTERED;
}

struct range *fake_range_of(uintptr_t at, size_t length, bool host)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        struct range *range = &ranges[i];
        if (range->kind == FREE || range->kind == RESERVED || is_host(range->kind) != host ||
            at < range->at || at - range->at >= range->length) {
            continue;
        }
        size_t here = range->length - (at - range->at);
        bool whole = length <= here || (range->kind == MAPPED &&
                                        fake_range_of(at + here, length - here, false) != NULL);
        return whole ? range : NULL;
    }
    return NULL;
}

struct range *fake_range_in(enum range_kind kind, uintptr_t at, size_t length)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        struct range *range = &ranges[i];
        if (range->kind == kind && at >= range->at && at - range->at < range->length &&
            length <= range->length - (at - range->at)) {
            return range;
        }
    }
    return NULL;
}

struct range *fake_range_at(enum range_kind kind, uintptr_t at)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].kind == kind && ranges[i].at == at) {
            return &ranges[i];
        }
    }
    return NULL;
}

uint64_t fake_device_bytes(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < RANGES_MAX; i++) {
        bool device = ranges[i].kind == DEVICE || ranges[i].kind == DEVICE_SHARED;
        bytes += device ? ranges[i].length : 0;
    }
    return bytes;
}

/* ---- the driver and its device ---- */

sl_cu_result fake_init(unsigned flags)
{
    TAKES();
    const char *not_ready = getenv("FAKE_CUDA_NOT_READY");
    if (not_ready != NULL && access(not_ready, F_OK) == 0) {
        return SL_CU_SYSTEM_NOT_READY;
    }
    return flags == 0 ? 0 : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_version(int *version)
{
    TAKES();
    *version = fake_number();
    return 0;
}

sl_cu_result fake_error_name(sl_cu_result result, const char **name)
{
    *name = result == SL_CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
    return 0;
}

sl_cu_result fake_error_text(sl_cu_result result, const char **text)
{
    *text = result == SL_CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                            : "as the test wants it";
    return 0;
}

sl_cu_result fake_device_count(int *count)
{
    TAKES();
    *count = fake_setting("FAKE_CUDA_GPUS", fake_state.gpus, 1);
    return 0;
}

sl_cu_result fake_device_get(sl_cu_device *device, int index)
{
    TAKES();
    *device = index;
    return index >= 0 && index < fake_setting("FAKE_CUDA_GPUS", fake_state.gpus, 1)
               ? 0
               : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_device_name(char *name, int length, sl_cu_device device)
{
    (void)device;
    TAKES();
    snprintf(name, (size_t)length, "Fake");
    return 0;
}

sl_cu_result fake_device_uuid(struct sl_cu_uuid *uuid, sl_cu_device device)
{
    TAKES();
    memset(uuid->bytes, fake_setting("FAKE_CUDA_UUID", fake_state.uuid, FAKE_CUDA_UUID) + device,
           sizeof(uuid->bytes));
    return 0;
}

sl_cu_result fake_device_attribute(int *value, int attribute, sl_cu_device device)
{
    (void)device;
    TAKES();
    switch (attribute) {
    case SL_CU_ATTRIBUTE_SM_COUNT:
        *value = FAKE_CUDA_SM;
        return 0;
    case SL_CU_ATTRIBUTE_MAJOR:
        *value = fake_capability() / 10;
        return 0;
    case SL_CU_ATTRIBUTE_MINOR:
        *value = fake_capability() % 10;
        return 0;
    case SL_CU_ATTRIBUTE_COMPUTE_MODE:
        *value = fake_setting("FAKE_CUDA_MODE", fake_state.compute_mode, 0);
        return 0;
    case SL_CU_ATTRIBUTE_MPS:
        *value = fake_state.mps;
        return fake_state.mps < 0 ? SL_CU_INVALID_VALUE : 0;
    case SL_CU_ATTRIBUTE_DMABUF:
        *value = !fake_state.no_dmabuf && getenv("FAKE_CUDA_NO_DMABUF") == NULL;
        return 0;
    case SL_CU_ATTRIBUTE_HOST_POINTERS:
        *value = !fake_state.no_host_pointers;
        return 0;
    default:
        *value = 1;
        return 0;
    }
}

sl_cu_result fake_context_retain(sl_cu_context *context, sl_cu_device device)
{
    TAKES();
    int mode = fake_setting("FAKE_CUDA_MODE", fake_state.compute_mode, 0);
    if (mode == SL_CU_MODE_PROHIBITED) {
        return 999; /* as documented for the call */
    }
    if (mode == SL_CU_MODE_EXCLUSIVE && fake_state.taken && fake_state.mps <= 0) {
        return SL_CU_UNAVAILABLE;
    }
    if (getenv("FAKE_CUDA_GPUS") != NULL) { /* a process uses one of them */
        fake_state.pointer_gpu = device;
    }
    fake_state.contexts++;
    *context = &fake_state;
    return 0;
}

sl_cu_result fake_context_release(sl_cu_device device)
{
    (void)device;
    GIVES();
    fake_state.contexts--;
    if (fake_state.contexts == 0) {
        fake_streams_end();
        fake_events_end();
    }
    return result;
}

sl_cu_result fake_context_set(sl_cu_context context)
{
    TAKES();
    fake_current = context != NULL;
    return 0;
}

/* One context of ours, present or not: the stack remembers which. */
static _Thread_local bool pushed[16];
static _Thread_local size_t pushed_count;

sl_cu_result fake_context_push(sl_cu_context context)
{
    TAKES();
    if (pushed_count == SL_COUNT(pushed)) {
        return SL_CU_INVALID_VALUE;
    }
    pushed[pushed_count++] = fake_current;
    fake_current = context != NULL;
    return 0;
}

sl_cu_result fake_context_pop(sl_cu_context *context)
{
    GIVES();
    if (pushed_count == 0) {
        return SL_CU_INVALID_VALUE;
    }
    *context = fake_current ? &fake_state : NULL;
    fake_current = pushed[--pushed_count];
    return result;
}

static unsigned long long attribute_of(const struct range *range, int attribute)
{
    bool device = !is_host(range->kind);
    switch (attribute) {
    case SL_CU_POINTER_MEMORY_TYPE:
        return device ? SL_CU_MEMORY_TYPE_DEVICE : SL_CU_MEMORY_TYPE_HOST;
    case SL_CU_POINTER_BUFFER_ID:
    case SL_CU_POINTER_BLOCK_ID:
        return range->id;
    case SL_CU_POINTER_IPC_CAPABLE:
        return device && range->kind != MAPPED && !range->pooled;
    case SL_CU_POINTER_MAPPED:
        return 1;
    case SL_CU_POINTER_HANDLE_TYPES:
        return range->kind == MAPPED ? fake_handle_types(range->memory) : 0;
    case SL_CU_POINTER_POOL:
        return range->pooled ? (uintptr_t)&fake_state : 0;
    case SL_CU_POINTER_DEVICE:
        return (unsigned long long)fake_state.pointer_gpu;
    case SL_CU_POINTER_CONTEXT:
        return range->kind == MAPPED || range->pooled ? 0
               : fake_state.foreign_context           ? 1
                                                      : (uintptr_t)&fake_state;
    default: /* not managed */
        return 0;
    }
}

/* Answers have the sizes of the real ones: a larger one would overwrite memory after the value. */
static size_t attribute_bytes(int attribute)
{
    switch (attribute) {
    case SL_CU_POINTER_BUFFER_ID:
    case SL_CU_POINTER_BLOCK_ID:
    case SL_CU_POINTER_POOL:
    case SL_CU_POINTER_CONTEXT:
        return 8;
    case SL_CU_POINTER_IPC_CAPABLE:
    case SL_CU_POINTER_MAPPED:
    case SL_CU_POINTER_MANAGED:
        return 1;
    default:
        return 4;
    }
}

sl_cu_result fake_pointer_attribute(void *value, int attribute, sl_cu_ptr at)
{
    TAKES();
    const struct range *range = fake_range_of((uintptr_t)at, 1, false);
    range = range != NULL ? range : fake_range_of((uintptr_t)at, 1, true);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    unsigned long long answer = attribute_of(range, attribute);
    memcpy(value, &answer, attribute_bytes(attribute)); /* little-endian */
    return 0;
}

sl_cu_result fake_priorities(int *least, int *greatest)
{
    TAKES();
    *least = FAKE_CUDA_PRIORITY;
    *greatest = 0;
    return 0;
}
