/* tests/gpu/engine_probe.c - an engine with its pool on a GPU: blocks are stored through a node
 * whose swapper runs on cuda, the GPU's memory is wiped, and they are loaded into other blocks.
 *
 *   engine_probe INSTANCE RUNTIME_DIR SHM_DIR ipc|sluice|allocated|segments|event [SECONDS]
 *
 * ipc: the engine makes the pool and sends its IPC handle to the node. sluice: the node makes
 * it, the engine maps its descriptor. Two modes register the pool by its addresses. allocated: a
 * part of an allocation, as torch's caching allocator returns. segments: addresses of many
 * handles, as of torch's expandable segments, in a process that must not be traced for them.
 * event: as ipc, and the engine's stream is still running when ops start: they wait for its
 * event. SECONDS: time limit, 30. Prints "ok BYTES". device_node_test.py runs it. */
#include "client/include/sluice.h"
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define LAYERS       8u
#define BLOCKS       32u
#define STORED       16u /* blocks 0..15 are stored, and loaded into 16..31 */
#define PIECE        20480u
#define BLOCK_TOKENS 4u
#define POOL_BYTES   (LAYERS * BLOCKS * PIECE)
#define PATIENCE_NS  (30 * SL_NS_PER_S)
#define HANDLES_MAX  64u
#define WITHIN_BYTES 12288u /* where the pool starts in memory that is registered by addresses */

static struct sl_error why;

static void must(bool right, const char *what)
{
    if (!right) {
        (void)printf("%s: %s\n", what, why.text);
        exit(1);
    }
}

/* Copies all of the pool, through pinned memory. */
static void pool_copy(struct cuda_device *cuda, sl_cu_ptr pool, unsigned char *bytes, bool to_host)
{
    struct cuda_slot *slot = &cuda->slots[0];
    for (size_t done = 0; done < POOL_BYTES; done += cuda->half_bytes) {
        size_t part = SL_MIN(POOL_BYTES - done, (size_t)cuda->half_bytes);
        if (!to_host) {
            memcpy(slot->bounce, bytes + done, part);
        }
        sl_cu_result result =
            to_host ? cuda->driver.to_host(slot->bounce, pool + done, part, slot->stream)
                    : cuda->driver.to_device(pool + done, slot->bounce, part, slot->stream);
        must(result == 0 && cuda->driver.stream_wait(slot->stream) == 0, "copy of the pool");
        if (to_host) {
            memcpy(bytes + done, slot->bounce, part);
        }
    }
}

/* ---- the engine's stream ---- */

static sl_cu_event event;
static struct sl_op_event stream_event;

static void event_make(struct cuda_device *cuda)
{
    struct sl_cu_ipc handle;
    must(cuda->driver.event_create(&event, SL_CU_EVENT_NO_TIMING | SL_CU_EVENT_INTERPROCESS) == 0 &&
             cuda->driver.event_ipc_get(&handle, event) == 0,
         "an interprocess event");
    memcpy(stream_event.handle, handle.bytes, sizeof(stream_event.handle));
}

/* Queues a write of one piece of a block on the stream, and records the event after it. */
static void stream_writes(struct cuda_device *cuda, sl_cu_ptr pool, uint32_t block, int byte)
{
    sl_cu_stream stream = cuda->slots[0].stream;
    must(cuda->driver.fill(pool + block * PIECE, (unsigned char)byte, PIECE, stream) == 0 &&
             cuda->driver.event_record(event, stream) == 0,
         "work of the stream");
}

/* A played GPU works when a caller waits for it; by then the op has been under way for long. */
static void stream_ends(struct cuda_device *cuda, const char *mode)
{
    if (strcmp(mode, "event") == 0) {
        const struct timespec pause = {.tv_nsec = 100000000};
        (void)nanosleep(&pause, NULL);
        must(cuda->driver.stream_wait(cuda->slots[0].stream) == 0, "wait for the stream");
    }
}

/* A handle that is no event fails the op, and the error names it. */
static void foreign_event(struct sl_engine *engine, struct sl_op_request request)
{
    static const struct sl_op_event none = {.handle = {0xab, 0xcd}};
    struct sl_op_result result;
    struct sl_op *op = NULL;
    uint32_t tokens[BLOCK_TOKENS] = {9, 9, 9, 9}, block = 0;
    request.tokens = tokens;
    request.token_count = BLOCK_TOKENS;
    request.device_blocks = &block;
    request.device_block_count = 1;
    request.events = &none;
    request.event_count = 1;
    must(sl_store_start(engine, &request, &op, &why) == SL_OK, "store");
    must(sl_op_wait(op, PATIENCE_NS, &result) == SL_OK, "wait");
    if (result.stored_count != 0 || result.code == SL_OK ||
        strstr(result.why.text, "event abcd") == NULL) {
        (void)printf("foreign event: %s, %u stored: %s\n", sl_err_name(result.code),
                     result.stored_count, result.why.text);
        exit(1);
    }
    sl_op_release(&op);
}

/* Returns false if blocks are missing: just after a start the swapper has not sent HELLO yet. */
static bool op_end(struct sl_op *op, const char *what)
{
    struct sl_op_result result;
    sl_err err = sl_op_wait(op, PATIENCE_NS, &result);
    bool again = err == SL_OK && result.code == SL_ERR_INCOMPLETE;
    if (!again && (err != SL_OK || result.code != SL_OK || result.block_count != STORED)) {
        (void)printf("%s: %s, op %s, %u blocks: %s\n", what, sl_err_name(err),
                     sl_err_name(result.code), result.block_count, result.why.text);
        exit(1);
    }
    /* A COPY that was sent again is fenced after the answer. */
    must(sl_op_wait_fenced(op, PATIENCE_NS, &why) == SL_OK, "fence");
    why = result.why;
    sl_op_release(&op);
    return !again;
}

/* Memory of the engine, registered by addresses. */
struct own {
    sl_cu_ptr base; /* of the allocation, or of the reserved addresses */
    size_t unit;    /* bytes a handle; 0: it is one allocation */
    uint32_t handle_count;
    sl_cu_handle handles[HANDLES_MAX];
};

static void segments_open(struct cuda_device *cuda, struct own *own)
{
    struct sl_driver *driver = &cuda->driver;
    const struct sl_cu_memory memory = {
        .type = SL_CU_MEMORY_PINNED,
        .handle_types = SL_CU_HANDLE_FD,
        .location = {.type = SL_CU_LOCATION_DEVICE, .id = cuda->gpu}};
    const struct sl_cu_access access = {.location = memory.location,
                                        .flags = SL_CU_ACCESS_READ_WRITE};
    must(driver->granularity(&own->unit, &memory, SL_CU_GRANULARITY_MINIMUM) == 0, "granularity");
    own->handle_count = (uint32_t)((WITHIN_BYTES + POOL_BYTES + own->unit - 1) / own->unit);
    must(own->handle_count <= HANDLES_MAX, "few handles");
    size_t length = own->handle_count * own->unit;
    must(driver->address_get(&own->base, length, 0, 0, 0) == 0, "addresses");
    for (uint32_t i = 0; i < own->handle_count; i++) {
        must(driver->physical_get(&own->handles[i], own->unit, &memory, 0) == 0 &&
                 driver->address_map(own->base + i * own->unit, own->unit, 0, own->handles[i], 0) ==
                     0,
             "a handle");
    }
    must(driver->address_access(own->base, length, &access, 1) == 0, "access");
    must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "no process may trace this one");
}

static sl_cu_ptr own_open(struct cuda_device *cuda, struct own *own, bool segments)
{
    if (segments) {
        segments_open(cuda, own);
    } else {
        must(cuda->driver.memory_get(&own->base, WITHIN_BYTES + POOL_BYTES) == 0, "device memory");
    }
    return own->base + WITHIN_BYTES;
}

static void own_close(struct cuda_device *cuda, const struct own *own)
{
    struct sl_driver *driver = &cuda->driver;
    bool fine = true;
    if (own->unit == 0) {
        must(driver->memory_free(own->base) == 0, "memory released");
        return;
    }
    for (uint32_t i = 0; i < own->handle_count; i++) {
        fine = fine && driver->address_unmap(own->base + i * own->unit, own->unit) == 0 &&
               driver->physical_free(own->handles[i]) == 0;
    }
    fine = fine && driver->address_free(own->base, own->handle_count * own->unit) == 0;
    must(fine, "memory released");
}

int main(int argc, char **argv)
{
    static unsigned char bytes[POOL_BYTES], back[POOL_BYTES];
    must(argc == 5 || argc == 6, "four arguments or five");
    uint64_t patience_ns = argc == 6 ? (uint64_t)atoi(argv[5]) * SL_NS_PER_S : PATIENCE_NS;
    char runtime_dir[1100], shm_dir[1100];
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", argv[3]);
    const char *settings[] = {runtime_dir, shm_dir, NULL};
    const struct sl_client_options client_options = {
        .api_version = SLUICE_API_VERSION, .instance = argv[1], .settings = settings};
    struct sl_client *client = NULL;
    must(sl_client_open(&client_options, &client, &why) == SL_OK, "client");
    struct sl_device *device = NULL;
    must(sl_device_open(&(struct sl_device_options){.name = "cuda", .staging_bytes = SL_MIB},
                        &device, &why) == SL_OK,
         "device");
    struct cuda_device *cuda = cuda_of(device);
    const char *mode = argv[4];
    bool ordered = strcmp(mode, "event") == 0;
    bool ours = ordered || strcmp(mode, "ipc") == 0;
    bool segments = strcmp(mode, "segments") == 0;
    bool own = segments || strcmp(mode, "allocated") == 0;
    struct own owned = {0};
    sl_cu_ptr memory = 0;
    struct sl_mapping mapping = {0};
    struct sl_pool *pool = NULL;
    struct sl_pool_memory told = {.kind = SL_POOL_MEMORY_CUDA_IPC};
    const struct sl_pool_key key = {.deployment = "gpu", .pool = "kv"};
    if (own) {
        memory = own_open(cuda, &owned, segments);
    } else if (ours) {
        struct sl_cu_ipc ipc;
        must(cuda->driver.memory_get(&memory, POOL_BYTES) == 0, "device memory");
        must(cuda->driver.ipc_get(&ipc, memory) == 0, "IPC handle");
        memcpy(told.handle, ipc.bytes, sizeof(told.handle));
        memcpy(told.gpu, device->gpu, sizeof(told.gpu));
        must(sl_pool_create(client, &key, POOL_BYTES, PATIENCE_NS, &pool, &why) == SL_OK, "pool");
        must(sl_pool_publish(pool, &told, PATIENCE_NS, &why) == SL_OK, "pool published");
    } else {
        must(sl_pool_acquire(client, &key, POOL_BYTES, PATIENCE_NS, &pool, &why) == SL_OK, "pool");
        sl_pool_memory_get(pool, &told);
        must(told.kind == SL_POOL_MEMORY_CUDA_FD, "memory of a descriptor");
        must(memcmp(told.gpu, device->gpu, sizeof(told.gpu)) == 0, "memory of the engine's GPU");
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_CUDA_FD, .pid = told.pid, .fd = told.fd};
        must(device->ops->map(device, &handle, POOL_BYTES, &mapping, &why) == SL_OK, "mapping");
        memory = (uintptr_t)mapping.base;
        pool_copy(cuda, memory, back, true);
        must(memcmp(back, bytes, POOL_BYTES) == 0, "new memory is clear");
    }
    struct sl_engine_layer layers[LAYERS];
    uint64_t addresses[LAYERS];
    const uint64_t *const ranks[1] = {addresses};
    for (uint64_t l = 0; l < LAYERS; l++) {
        addresses[l] = memory + l * BLOCKS * PIECE;
        layers[l] = (struct sl_engine_layer){.offset_bytes = own ? 0 : l * BLOCKS * PIECE,
                                             .length_bytes = (uint64_t)BLOCKS * PIECE,
                                             .block_stride_bytes = PIECE,
                                             .piece_bytes = PIECE};
    }
    const struct sl_pool *from[1] = {pool};
    const struct sl_engine_pool list[1] = {{.name = "kv",
                                            .layer_count = LAYERS,
                                            .layers = layers,
                                            .memory_bytes = POOL_BYTES,
                                            .from = own ? NULL : from,
                                            .device = own ? ranks : NULL}};
    const struct sl_engine_options options = {.name = "gpu",
                                              .model = {.name = "gpu"},
                                              .key_format = "sluice",
                                              .block_tokens = BLOCK_TOKENS,
                                              .world = 1,
                                              .block_count = BLOCKS,
                                              .pool_count = 1,
                                              .pools = list};
    struct sl_engine *engine = NULL;
    must(sl_engine_register(client, &options, PATIENCE_NS, &engine, &why) == SL_OK, "engine");
    (void)fprintf(stderr, "%s: %s\n", mode, sl_engine_memory_kind(engine, 0, 0));
    /* Two letters distinguish the runs on one node. */
    uint32_t run = (uint32_t)mode[0] * 256 + (uint32_t)mode[1];
    uint32_t tokens[STORED * BLOCK_TOKENS], out[STORED], in[STORED];
    for (uint32_t i = 0; i < STORED * BLOCK_TOKENS; i++) {
        tokens[i] = run * 1000 + i;
    }
    for (uint32_t i = 0; i < STORED; i++) {
        out[i] = i;
        in[i] = STORED + (i * 7) % STORED;
    }
    for (size_t i = 0; i < POOL_BYTES; i++) {
        bytes[i] = (unsigned char)(i * 131 + i / 4099 + run);
    }
    pool_copy(cuda, memory, bytes, false);
    struct sl_op_request request = {.tokens = tokens,
                                    .token_count = STORED * BLOCK_TOKENS,
                                    .device_blocks = out,
                                    .device_block_count = STORED,
                                    .timeout_ns = PATIENCE_NS};
    struct sl_op *op = NULL;
    if (ordered) {
        event_make(cuda);
        foreign_event(engine, request);
        request.events = &stream_event;
        request.event_count = 1;
        stream_writes(cuda, memory, out[0], 0x33);
        memset(bytes + (size_t)out[0] * PIECE, 0x33, PIECE);
    }
    uint64_t end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), patience_ns);
    bool stored = false;
    while (!stored && sl_clock_monotonic_ns() < end_ns) {
        must(sl_store_start(engine, &request, &op, &why) == SL_OK, "store");
        stream_ends(cuda, mode);
        stored = op_end(op, "stored");
    }
    must(stored, "stored in time");
    pool_copy(cuda, memory, back, false); /* the wiped pool */
    request.device_blocks = in;
    if (ordered) {
        stream_writes(cuda, memory, in[0], 0x44); /* must not overwrite the load */
    }
    must(sl_load_start(engine, &request, &op, &why) == SL_OK, "load");
    stream_ends(cuda, mode);
    must(op_end(op, "loaded"), "loaded");
    pool_copy(cuda, memory, back, true);
    for (uint32_t i = 0; i < STORED; i++) {
        for (uint64_t l = 0; l < LAYERS; l++) {
            must(memcmp(back + (l * BLOCKS + in[i]) * PIECE, bytes + (l * BLOCKS + out[i]) * PIECE,
                        PIECE) == 0,
                 "the bytes of a block");
        }
    }
    if (ordered) {
        must(cuda->driver.event_destroy(event) == 0, "the event's end");
    }
    sl_engine_end(&engine);
    sl_pool_release(&pool);
    if (own) {
        own_close(cuda, &owned);
    } else if (ours) {
        (void)cuda->driver.memory_free(memory);
    } else {
        device->ops->unmap(device, &mapping);
    }
    sl_device_close(&device);
    sl_client_close(&client);
    (void)printf("ok %u\n", STORED * LAYERS * PIECE);
    return 0;
}
