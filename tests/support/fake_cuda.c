/* tests/support/fake_cuda.c - see fake_cuda.h. With FAKE_CUDA_SHARED in the environment device
 * memory is shared memory, so that IPC handles work between processes. While the file that
 * FAKE_CUDA_STICKY_ONCE names is there, the next call takes it away and is an illegal address. */
#include "tests/support/fake_cuda.h"

#include "cuda/driver.h"
#include "cuda/sl_kernels.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT     __attribute__((visibility("default")))
#define RANGES_MAX 4096u
#define UNIT       (2u * 1024 * 1024) /* granularity of physical memory */
#define IPC_MAGIC  UINT64_C(0x6465626b61665549)

enum range_kind { FREE, DEVICE, DEVICE_SHARED, DEVICE_IPC, RESERVED, MAPPED, HOST, REGISTERED };
struct range {
    enum range_kind kind;
    uintptr_t at;
    size_t length;
    int fd;
    unsigned opens; /* of DEVICE_IPC */
};
struct op {
    enum { COPY, FILL, SWAP_OUT, SWAP_IN, HASH } kind;
    uintptr_t to, from;
    size_t length;
    uint64_t workers;
    struct sl_hash_job job; /* of a kernel; its swap alone of SWAP_* */
};
struct stream {
    struct stream *next; /* of those that live */
    struct op *ops;
    size_t count, capacity, begun;
};
struct event {
    struct stream *stream;
    size_t upto;
};

static struct fake_cuda state;
static struct range ranges[RANGES_MAX];
static bool current; /* a context is */
static struct stream *streams;

EXPORT struct fake_cuda *fake_cuda_state(void);
EXPORT struct fake_cuda *fake_cuda_state(void)
{
    return &state;
}

/* ---- failing ---- */

static sl_cu_result fails(const char *symbol)
{
    const char *once = getenv("FAKE_CUDA_STICKY_ONCE");
    state.calls++;
    if (once != NULL && unlink(once) == 0) {
        state.stuck = SL_CU_ILLEGAL_ADDRESS;
    }
    if (state.stuck != 0) {
        return state.stuck;
    }
    if (state.calls == state.fail_at ||
        (state.fail_symbol != NULL && strcmp(symbol, state.fail_symbol) == 0)) {
        if (state.fail_sticks) {
            state.stuck = state.fail_code;
        }
        return state.fail_code;
    }
    return 0;
}

/* What takes something leaves without it; what gives something back has given it back. */
#define TAKES()                                 \
    do {                                        \
        sl_cu_result refused = fails(__func__); \
        if (refused != 0) {                     \
            return refused;                     \
        }                                       \
    } while (0)
#define GIVES() sl_cu_result result = fails(__func__)

/* ---- ranges ---- */

static struct range *range_add(enum range_kind kind, uintptr_t at, size_t length)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].kind == FREE) {
            ranges[i] = (struct range){.kind = kind, .at = at, .length = length, .fd = -1};
            return &ranges[i];
        }
    }
    abort();
}

static bool is_host(enum range_kind kind)
{
    return kind == HOST || kind == REGISTERED;
}

static struct range *range_of(uintptr_t at, size_t length, bool host)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        struct range *range = &ranges[i];
        if (range->kind != FREE && range->kind != RESERVED && is_host(range->kind) == host &&
            at >= range->at && at - range->at < range->length &&
            length <= range->length - (at - range->at)) {
            return range;
        }
    }
    return NULL;
}

static struct range *range_at(enum range_kind kind, uintptr_t at)
{
    for (size_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].kind == kind && ranges[i].at == at) {
            return &ranges[i];
        }
    }
    return NULL;
}

/* ---- the driver and its device ---- */

#define ENTRY(field, symbol, needed, parameters) \
    EXPORT sl_cu_result fake_##field parameters __asm__(symbol);
SL_DRIVER_TABLE(ENTRY)
#undef ENTRY
/* Defined under plain names, which the table's symbols stand for. */

sl_cu_result fake_init(unsigned flags)
{
    TAKES();
    return flags == 0 ? 0 : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_version(int *version)
{
    TAKES();
    *version = FAKE_CUDA_DRIVER;
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
    *count = 1;
    return 0;
}

sl_cu_result fake_device_get(sl_cu_device *device, int index)
{
    TAKES();
    *device = index;
    return index == 0 ? 0 : SL_CU_INVALID_VALUE;
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
    (void)device;
    TAKES();
    memset(uuid->bytes, 0xfa, sizeof(uuid->bytes));
    return 0;
}

sl_cu_result fake_device_attribute(int *value, int attribute, sl_cu_device device)
{
    (void)device;
    TAKES();
    *value = attribute == SL_CU_ATTRIBUTE_SM_COUNT ? FAKE_CUDA_SM
             : attribute == SL_CU_ATTRIBUTE_MAJOR  ? 9
             : attribute == SL_CU_ATTRIBUTE_MINOR  ? 0
                                                   : 1;
    return 0;
}

sl_cu_result fake_context_retain(sl_cu_context *context, sl_cu_device device)
{
    (void)device;
    TAKES();
    state.contexts++;
    *context = &state;
    return 0;
}

sl_cu_result fake_context_release(sl_cu_device device)
{
    (void)device;
    GIVES();
    state.contexts--;
    while (state.contexts == 0 && streams != NULL) { /* they go with it; state.streams says so */
        struct stream *gone = streams;
        streams = gone->next;
        free(gone->ops);
        free(gone);
    }
    return result;
}

sl_cu_result fake_context_set(sl_cu_context context)
{
    TAKES();
    current = context != NULL;
    return 0;
}

/* A context of ours is there or it is not: the stack remembers which. */
static bool pushed[16];
static size_t pushed_count;

sl_cu_result fake_context_push(sl_cu_context context)
{
    TAKES();
    if (pushed_count == SL_COUNT(pushed)) {
        return SL_CU_INVALID_VALUE;
    }
    pushed[pushed_count++] = current;
    current = context != NULL;
    return 0;
}

sl_cu_result fake_context_pop(sl_cu_context *context)
{
    GIVES();
    if (pushed_count == 0) {
        return SL_CU_INVALID_VALUE;
    }
    *context = current ? &state : NULL;
    current = pushed[--pushed_count];
    return result;
}

sl_cu_result fake_pointer_attribute(void *value, int attribute, sl_cu_ptr at)
{
    TAKES();
    bool device = range_of((uintptr_t)at, 1, false) != NULL;
    if (!device && range_of((uintptr_t)at, 1, true) == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    int answer = attribute == SL_CU_POINTER_DEVICE ? 0
                 : device                          ? SL_CU_MEMORY_TYPE_DEVICE
                                                   : SL_CU_MEMORY_TYPE_HOST;
    memcpy(value, &answer, sizeof(answer));
    return 0;
}

sl_cu_result fake_priorities(int *least, int *greatest)
{
    TAKES();
    *least = FAKE_CUDA_PRIORITY;
    *greatest = 0;
    return 0;
}

/* ---- streams and events ---- */

static void op_run(const struct op *op)
{
    switch (op->kind) {
    case COPY:
        memcpy((void *)op->to, (const void *)op->from, op->length);
        break;
    case FILL:
        memset((void *)op->to, (int)op->from, op->length);
        break;
    case SWAP_OUT:
    case SWAP_IN:
        for (uint64_t worker = 0; worker < op->workers; worker++) {
            if (op->kind == SWAP_OUT) {
                sl_gather_body(&op->job.swap, worker, op->workers);
            } else {
                sl_scatter_body(&op->job.swap, worker, op->workers);
            }
        }
        break;
    case HASH:
        for (uint64_t i = 0; i < op->job.swap.block_count * op->job.value_chunks; i++) {
            struct sl_hash_chunk chunk = sl_hash_locate(&op->job, i);
            uint64_t sum = 0;
            for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
                sum += sl_hash_chunk_term(&chunk, term);
            }
            op->job.hashes[i] = sl_hash_chunk_finish(&chunk, sum);
        }
        break;
    }
}

static void stream_run(struct stream *stream, size_t upto)
{
    while (stream->begun < upto) {
        op_run(&stream->ops[stream->begun++]);
    }
    if (stream->begun == stream->count) {
        stream->begun = stream->count = 0;
    }
}

static struct op *stream_add(struct stream *stream)
{
    if (stream->count == stream->capacity) {
        stream->capacity = stream->capacity == 0 ? 64 : 2 * stream->capacity;
        stream->ops = realloc(stream->ops, stream->capacity * sizeof(*stream->ops));
        if (stream->ops == NULL) {
            abort();
        }
    }
    stream->ops[stream->count] = (struct op){0};
    return &stream->ops[stream->count++];
}

sl_cu_result fake_stream_create(sl_cu_stream *out, unsigned flags, int priority)
{
    TAKES();
    if (!current || flags != SL_CU_STREAM_NON_BLOCKING) {
        return SL_CU_INVALID_VALUE;
    }
    state.streams++;
    state.stream_priority = priority;
    struct stream *stream = calloc(1, sizeof(*stream));
    stream->next = streams;
    streams = stream;
    *out = stream;
    return 0;
}

sl_cu_result fake_stream_destroy(sl_cu_stream at)
{
    GIVES();
    struct stream *stream = at;
    struct stream **link = &streams;
    while (*link != NULL && *link != stream) {
        link = &(*link)->next;
    }
    if (*link == NULL) { /* it went with its context */
        return SL_CU_INVALID_VALUE;
    }
    *link = stream->next;
    if (state.stuck == 0) {
        stream_run(stream, stream->count);
    }
    free(stream->ops);
    free(stream);
    state.streams--;
    return result;
}

sl_cu_result fake_stream_wait(sl_cu_stream at)
{
    TAKES();
    struct stream *stream = at;
    stream_run(stream, stream->count);
    return 0;
}

sl_cu_result fake_event_create(sl_cu_event *out, unsigned flags)
{
    (void)flags;
    TAKES();
    state.events++;
    *out = calloc(1, sizeof(struct event));
    return 0;
}

sl_cu_result fake_event_destroy(sl_cu_event at)
{
    GIVES();
    free(at);
    state.events--;
    return result;
}

sl_cu_result fake_event_record(sl_cu_event at, sl_cu_stream stream)
{
    TAKES();
    struct event *event = at;
    event->stream = stream;
    event->upto = event->stream->count;
    return 0;
}

sl_cu_result fake_event_wait(sl_cu_event at)
{
    TAKES();
    struct event *event = at;
    if (event->stream != NULL) {
        stream_run(event->stream, event->upto);
        event->stream = NULL;
    }
    return 0;
}

/* ---- kernels ---- */

sl_cu_result fake_module_load(sl_cu_module *module, const void *image)
{
    TAKES();
    if (!current || image == NULL) {
        return SL_CU_NO_BINARY;
    }
    state.modules++;
    *module = &state.modules;
    return 0;
}

sl_cu_result fake_module_unload(sl_cu_module module)
{
    (void)module;
    GIVES();
    state.modules--;
    return result;
}

static const char *const names[] = {SL_KERNEL_GATHER, SL_KERNEL_SCATTER, SL_KERNEL_HASH};

sl_cu_result fake_module_function(sl_cu_function *function, sl_cu_module module, const char *name)
{
    (void)module;
    TAKES();
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            memcpy(function, &names[i], sizeof(*function));
            return 0;
        }
    }
    return 500; /* not found */
}

sl_cu_result fake_launch(sl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, sl_cu_stream stream, void **parameters,
                         void **extra)
{
    TAKES();
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != SL_KERNEL_THREADS || block_y != 1 ||
        block_z != 1 || shared_bytes != 0 || extra != NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct op *op = stream_add(stream);
    op->workers = (uint64_t)grid_x * block_x;
    if (strcmp(function, SL_KERNEL_HASH) == 0) {
        op->kind = HASH;
        memcpy(&op->job, parameters[0], sizeof(op->job));
    } else {
        op->kind = strcmp(function, SL_KERNEL_GATHER) == 0 ? SWAP_OUT : SWAP_IN;
        memcpy(&op->job.swap, parameters[0], sizeof(op->job.swap));
    }
    state.launches++;
    state.grid_max = SL_MAX(state.grid_max, grid_x);
    return 0;
}

/* ---- memory ---- */

static void *shared_map(int fd, size_t length)
{
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

sl_cu_result fake_memory_get(sl_cu_ptr *at, size_t length)
{
    TAKES();
    if (!current || length == 0) {
        return SL_CU_INVALID_VALUE;
    }
    if (getenv("FAKE_CUDA_SHARED") != NULL) {
        int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
        void *memory = fd < 0 || ftruncate(fd, (off_t)length) != 0 ? NULL : shared_map(fd, length);
        if (memory == NULL) {
            return SL_CU_OUT_OF_MEMORY;
        }
        range_add(DEVICE_SHARED, (uintptr_t)memory, length)->fd = fd;
        *at = (uintptr_t)memory;
    } else {
        *at = (uintptr_t)aligned_alloc(256, sl_align_up(length, 256));
        range_add(DEVICE, (uintptr_t)*at, length);
    }
    state.allocations++;
    return 0;
}

sl_cu_result fake_memory_free(sl_cu_ptr at)
{
    GIVES();
    struct range *range = range_at(DEVICE, (uintptr_t)at);
    if (range != NULL) {
        free((void *)range->at);
    } else {
        range = range_at(DEVICE_SHARED, (uintptr_t)at);
        if (range == NULL) {
            return SL_CU_INVALID_VALUE;
        }
        (void)munmap((void *)range->at, range->length);
        (void)close(range->fd);
    }
    range->kind = FREE;
    state.allocations--;
    return result;
}

sl_cu_result fake_memory_range(sl_cu_ptr *base, size_t *length, sl_cu_ptr at)
{
    TAKES();
    const struct range *range = range_of((uintptr_t)at, 1, false);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    *base = range->at;
    *length = range->length;
    return 0;
}

sl_cu_result fake_host_get(void **at, size_t length, unsigned flags)
{
    (void)flags;
    TAKES();
    *at = aligned_alloc(4096, sl_align_up(length, 4096));
    range_add(HOST, (uintptr_t)*at, length);
    state.host_allocations++;
    return 0;
}

sl_cu_result fake_host_free(void *at)
{
    GIVES();
    struct range *range = range_at(HOST, (uintptr_t)at);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    free(at);
    range->kind = FREE;
    state.host_allocations--;
    return result;
}

sl_cu_result fake_host_register(void *at, size_t length, unsigned flags)
{
    (void)flags;
    TAKES();
    if (state.registered_max != 0 && state.registered == state.registered_max) {
        return SL_CU_OUT_OF_MEMORY;
    }
    if (length == 0 || range_of((uintptr_t)at, 1, true) != NULL) {
        return 712; /* already registered */
    }
    range_add(REGISTERED, (uintptr_t)at, length);
    state.registered++;
    state.registrations++;
    return 0;
}

sl_cu_result fake_host_unregister(void *at)
{
    GIVES();
    struct range *range = range_at(REGISTERED, (uintptr_t)at);
    if (range == NULL) {
        return 713; /* not registered */
    }
    range->kind = FREE;
    state.registrations--;
    return result;
}

static sl_cu_result copy_add(sl_cu_stream stream, uintptr_t to, uintptr_t from, size_t length,
                             bool to_host)
{
    if (range_of(to, length, to_host) == NULL || range_of(from, length, !to_host) == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct op *op = stream_add(stream);
    op->kind = COPY;
    op->to = to;
    op->from = from;
    op->length = length;
    return 0;
}

sl_cu_result fake_to_device(sl_cu_ptr to, const void *from, size_t length, sl_cu_stream stream)
{
    TAKES();
    state.copies++;
    return copy_add(stream, (uintptr_t)to, (uintptr_t)from, length, false);
}

sl_cu_result fake_to_host(void *to, sl_cu_ptr from, size_t length, sl_cu_stream stream)
{
    TAKES();
    state.copies++;
    return copy_add(stream, (uintptr_t)to, (uintptr_t)from, length, true);
}

sl_cu_result fake_fill(sl_cu_ptr at, unsigned char byte, size_t length, sl_cu_stream stream)
{
    TAKES();
    if (range_of((uintptr_t)at, length, false) == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct op *op = stream_add(stream);
    op->kind = FILL;
    op->to = (uintptr_t)at;
    op->from = byte;
    op->length = length;
    return 0;
}

static sl_cu_result batch_add(const sl_cu_ptr *to, const sl_cu_ptr *from, const size_t *lengths,
                              size_t count, const struct sl_cu_copy_kind *kinds,
                              const size_t *kind_starts, size_t kind_count, sl_cu_stream stream)
{
    if (count == 0 || kind_count != 1 || kind_starts[0] != 0 ||
        kinds[0].source_order != SL_CU_ORDER_STREAM || stream == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    state.batches++;
    for (size_t i = 0; i < count; i++) {
        bool to_host = range_of((uintptr_t)to[i], 1, true) != NULL;
        sl_cu_result result =
            copy_add(stream, (uintptr_t)to[i], (uintptr_t)from[i], lengths[i], to_host);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

sl_cu_result fake_copy_batch(sl_cu_ptr *to, sl_cu_ptr *from, size_t *lengths, size_t count,
                             struct sl_cu_copy_kind *kinds, size_t *kind_starts, size_t kind_count,
                             sl_cu_stream stream)
{
    TAKES();
    return batch_add(to, from, lengths, count, kinds, kind_starts, kind_count, stream);
}

sl_cu_result fake_copy_batch_12(sl_cu_ptr *to, sl_cu_ptr *from, size_t *lengths, size_t count,
                                struct sl_cu_copy_kind *kinds, size_t *kind_starts,
                                size_t kind_count, size_t *failed, sl_cu_stream stream)
{
    TAKES();
    *failed = SIZE_MAX;
    return batch_add(to, from, lengths, count, kinds, kind_starts, kind_count, stream);
}

/* ---- memory of other processes ---- */

struct ipc_name {
    uint64_t magic, pid, at, length;
    int64_t fd;
};

sl_cu_result fake_ipc_get(struct sl_cu_ipc *handle, sl_cu_ptr at)
{
    TAKES();
    const struct range *range = range_of((uintptr_t)at, 1, false);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct ipc_name name = {.magic = IPC_MAGIC,
                            .pid = (uint64_t)getpid(),
                            .at = range->at,
                            .length = range->length,
                            .fd = range->fd};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &name, sizeof(name));
    return 0;
}

sl_cu_result fake_ipc_open(sl_cu_ptr *at, struct sl_cu_ipc handle, unsigned flags)
{
    (void)flags;
    struct ipc_name name;
    TAKES();
    memcpy(&name, handle.bytes, sizeof(name));
    if (name.magic != IPC_MAGIC) {
        return SL_CU_INVALID_VALUE;
    }
    uintptr_t memory = (uintptr_t)name.at;
    if (name.pid != (uint64_t)getpid()) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%llu/fd/%lld", (unsigned long long)name.pid,
                 (long long)name.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        memory = fd < 0 ? 0 : (uintptr_t)shared_map(fd, name.length);
        if (fd >= 0) {
            (void)close(fd);
        }
        if (memory == 0) {
            return 205; /* map failed */
        }
        range_add(DEVICE_IPC, memory, name.length);
    }
    state.ipc_opens++;
    *at = memory;
    return 0;
}

sl_cu_result fake_ipc_close(sl_cu_ptr at)
{
    GIVES();
    struct range *range = range_at(DEVICE_IPC, (uintptr_t)at);
    if (range != NULL) {
        (void)munmap((void *)range->at, range->length);
        range->kind = FREE;
    }
    state.ipc_opens--;
    return result;
}

sl_cu_result fake_granularity(size_t *bytes, const struct sl_cu_memory *memory, int option)
{
    TAKES();
    *bytes = UNIT;
    return memory->type == SL_CU_MEMORY_PINNED && option == SL_CU_GRANULARITY_MINIMUM
               ? 0
               : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_physical_get(sl_cu_handle *handle, size_t length,
                               const struct sl_cu_memory *memory, unsigned long long flags)
{
    (void)memory;
    TAKES();
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (flags != 0 || length % UNIT != 0 || fd < 0 || ftruncate(fd, (off_t)length) != 0) {
        return SL_CU_INVALID_VALUE;
    }
    state.physicals++;
    *handle = (sl_cu_handle)fd;
    return 0;
}

sl_cu_result fake_physical_export(void *shared, sl_cu_handle handle, int kind,
                                  unsigned long long flags)
{
    TAKES();
    int fd = dup((int)handle);
    memcpy(shared, &fd, sizeof(fd));
    return kind == SL_CU_HANDLE_FD && flags == 0 && fd >= 0 ? 0 : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_physical_import(sl_cu_handle *handle, void *shared, int kind)
{
    TAKES();
    int fd = kind == SL_CU_HANDLE_FD ? dup((int)(intptr_t)shared) : -1;
    if (fd < 0) {
        return SL_CU_INVALID_VALUE;
    }
    state.physicals++;
    *handle = (sl_cu_handle)fd;
    return 0;
}

sl_cu_result fake_physical_free(sl_cu_handle handle)
{
    GIVES();
    (void)close((int)handle);
    state.physicals--;
    return result;
}

sl_cu_result fake_address_get(sl_cu_ptr *at, size_t length, size_t alignment, sl_cu_ptr wanted,
                              unsigned long long flags)
{
    TAKES();
    if (length % UNIT != 0 || alignment != 0 || wanted != 0 || flags != 0) {
        return SL_CU_INVALID_VALUE;
    }
    void *memory = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return SL_CU_OUT_OF_MEMORY;
    }
    range_add(RESERVED, (uintptr_t)memory, length);
    state.reservations++;
    *at = (uintptr_t)memory;
    return 0;
}

sl_cu_result fake_address_free(sl_cu_ptr at, size_t length)
{
    GIVES();
    struct range *range = range_at(RESERVED, (uintptr_t)at);
    if (range == NULL || range->length != length) {
        return SL_CU_INVALID_VALUE;
    }
    (void)munmap((void *)range->at, length);
    range->kind = FREE;
    state.reservations--;
    return result;
}

sl_cu_result fake_address_map(sl_cu_ptr at, size_t length, size_t offset, sl_cu_handle handle,
                              unsigned long long flags)
{
    struct stat status;
    TAKES();
    if (range_at(RESERVED, (uintptr_t)at) == NULL || offset != 0 || flags != 0 ||
        fstat((int)handle, &status) != 0 || (size_t)status.st_size < length ||
        mmap((void *)(uintptr_t)at, length, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0) ==
            MAP_FAILED) {
        return SL_CU_INVALID_VALUE;
    }
    range_add(MAPPED, (uintptr_t)at, length);
    state.mappings++;
    return 0;
}

sl_cu_result fake_address_unmap(sl_cu_ptr at, size_t length)
{
    GIVES();
    struct range *range = range_at(MAPPED, (uintptr_t)at);
    if (range == NULL || range->length != length) {
        return SL_CU_INVALID_VALUE;
    }
    (void)mmap((void *)range->at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0);
    range->kind = FREE;
    state.mappings--;
    return result;
}

sl_cu_result fake_address_access(sl_cu_ptr at, size_t length, const struct sl_cu_access *access,
                                 size_t count)
{
    TAKES();
    return range_at(MAPPED, (uintptr_t)at) != NULL && count == 1 &&
                   access->flags == SL_CU_ACCESS_READ_WRITE &&
                   mprotect((void *)(uintptr_t)at, length, PROT_READ | PROT_WRITE) == 0
               ? 0
               : SL_CU_INVALID_VALUE;
}
