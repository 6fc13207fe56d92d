/* tests/node/engine_memory_probe.c - an engine registers device memory of all kinds on a running
 * node, on a driver that plays a GPU; a device like a swapper's maps the registered memory.
 * pieces_test.py starts both.
 *
 *   engine_memory_probe INSTANCE RUNTIME_DIR SHM_DIR WHAT DRIVER
 *
 * WHAT is one of the names at the end of this file. Exit code 0: all checks passed. */
#include "client/lib/engine.h"
#include "client/lib/gpu.h"
#include "cuda/driver.h"
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define WAIT_NS  (60 * SL_NS_PER_S) /* only ends hangs: no call is measured */
#define LAYERS   3u
#define BLOCKS   8u
#define PIECE    65536u
#define ROW      (BLOCKS * PIECE)
#define GRANULE  (2 * SL_MIB)
#define GRANULES 40u /* more than a packet of descriptors has */

static struct sl_error why;
static struct fake_cuda *fake;
static struct sl_driver driver; /* the engine's own driver */
static const char *library;
static char runtime_directory[1024];

static void engine_start(void)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    fake_cuda_state_fn state;
    CHECK(loaded != NULL);
    void *symbol = dlsym(loaded, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof state);
    fake = state();
    CHECK(sl_driver_open(&driver, library, &why) == SL_OK);
    sl_cu_context context = NULL;
    CHECK(driver.context_retain(&context, 0) == 0 && driver.context_set(context) == 0);
}

/* ---- memory of many handles, as an allocator with expandable segments makes it ---- */

struct segment {
    sl_cu_ptr base;
    sl_cu_handle handles[GRANULES];
};

static void segment_map(struct segment *segment, int types)
{
    struct sl_cu_memory memory = {.type = SL_CU_MEMORY_PINNED,
                                  .handle_types = types,
                                  .location = {.type = SL_CU_LOCATION_DEVICE}};
    struct sl_cu_access access = {.location = memory.location, .flags = SL_CU_ACCESS_READ_WRITE};
    for (uint32_t i = 0; i < GRANULES; i++) {
        CHECK(driver.physical_get(&segment->handles[i], GRANULE, &memory, 0) == 0);
        CHECK(driver.address_map(segment->base + i * GRANULE, GRANULE, 0, segment->handles[i], 0) ==
              0);
    }
    CHECK(driver.address_access(segment->base, GRANULES * GRANULE, &access, 1) == 0);
}

static void segment_unmap(struct segment *segment)
{
    for (uint32_t i = 0; i < GRANULES; i++) {
        CHECK(driver.address_unmap(segment->base + i * GRANULE, GRANULE) == 0);
        CHECK(driver.physical_free(segment->handles[i]) == 0);
    }
}

static void segment_open(struct segment *segment, int types)
{
    CHECK(driver.address_get(&segment->base, GRANULES * GRANULE, 0, 0, 0) == 0);
    segment_map(segment, types);
}

static void segment_close(struct segment *segment)
{
    segment_unmap(segment);
    CHECK(driver.address_free(segment->base, GRANULES * GRANULE) == 0);
    CHECK(fake->physicals == 0 && fake->mappings == 0 && fake->reservations == 0);
}

/* ---- engines ---- */

static sl_err engine_open(struct sl_client *client, const uint64_t *addresses, uint64_t row_bytes,
                          struct sl_engine **out)
{
    struct sl_engine_layer layers[LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        layers[l] = (struct sl_engine_layer){
            .length_bytes = row_bytes, .block_stride_bytes = PIECE, .piece_bytes = PIECE};
    }
    const uint64_t *const ranks[] = {addresses};
    const struct sl_engine_pool pool = {.name = "kv",
                                        .layer_count = LAYERS,
                                        .layers = layers,
                                        .memory_bytes = row_bytes,
                                        .device = ranks};
    const struct sl_engine_options options = {.name = "probe",
                                              .model = {.name = "model"},
                                              .key_format = "sluice",
                                              .block_tokens = 16,
                                              .world = 1,
                                              .block_count = BLOCKS,
                                              .pool_count = 1,
                                              .pools = &pool};
    return sl_engine_register(client, &options, WAIT_NS, out, &why);
}

static struct sl_memory_handle handle_of(const struct sl_item_region *region)
{
    struct sl_memory_handle handle = {.kind = (enum sl_memory_kind)region->handle_kind,
                                      .pid = (uint32_t)region->pid,
                                      .offset_bytes = region->offset_bytes};
    memcpy(handle.ipc, region->handle.at, region->handle.length);
    return handle;
}

/* A device like a swapper's maps each layer and finds the layer's bytes there. */
static void layers_are_mapped(const struct sl_engine *engine, const uint64_t *addresses,
                              uint64_t row_bytes)
{
    struct sl_device *device = NULL;
    const struct sl_device_options options = {.name = "cuda",
                                              .staging_bytes = 256 * SL_KIB,
                                              .runtime_directory = runtime_directory,
                                              .driver_path = library,
                                              .kernels = "image"};
    CHECK(sl_device_open(&options, &device, &why) == SL_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct sl_memory_handle handle = handle_of(&engine->regions[l]);
        struct sl_mapping mapping;
        unsigned char *theirs = (unsigned char *)(uintptr_t)addresses[l];
        for (uint64_t i = 0; i < row_bytes; i++) {
            theirs[i] = (unsigned char)(i * 7 + l + (i >> 12));
        }
        CHECK(engine->regions[l].length_bytes == row_bytes);
        CHECK(engine->regions[l].gpu.length == SL_GPU_UUID_BYTES);
        CHECK(memcmp(engine->regions[l].gpu.at, device->gpu, SL_GPU_UUID_BYTES) == 0);
        CHECK(device->ops->map(device, &handle, row_bytes, &mapping, &why) == SL_OK);
        CHECK(memcmp(mapping.base, theirs, row_bytes) == 0);
        ((unsigned char *)mapping.base)[row_bytes - 1] ^= 1;
        CHECK(theirs[row_bytes - 1] ==
              ((unsigned char)((row_bytes - 1) * 7 + l + ((row_bytes - 1) >> 12)) ^ 1));
        device->ops->unmap(device, &mapping);
    }
    sl_device_close(&device);
}

static sl_err store(struct sl_engine *engine)
{
    static const uint32_t tokens[16] = {1}, blocks[1] = {0};
    struct sl_op *op = NULL;
    const struct sl_op_request request = {.tokens = tokens,
                                          .token_count = 16,
                                          .device_blocks = blocks,
                                          .device_block_count = 1,
                                          .timeout_ns = SL_NS_PER_S};
    sl_err err = sl_store_start(engine, &request, &op, &why);
    sl_op_release(&op);
    return err;
}

/* ---- kinds of memory ---- */

/* Tensors that torch's caching allocator cut from one allocation. */
static void allocated(struct sl_client *client)
{
    sl_cu_ptr base = 0;
    struct sl_engine *engine = NULL;
    CHECK(driver.memory_get(&base, 8 * SL_MIB) == 0);
    const uint64_t addresses[LAYERS] = {base + SL_MIB, base + 4 * SL_MIB, base + 512};
    CHECK(engine_open(client, addresses, ROW, &engine) == SL_OK);
    CHECK(strcmp(sl_engine_memory_kind(engine, 0, 0), "cuda ipc") == 0);
    CHECK(sl_engine_memory_kind(engine, 0, 1) == NULL);
    layers_are_mapped(engine, addresses, ROW);
    CHECK(sl_engine_memory_check(engine, &why) == SL_OK);
    sl_engine_end(&engine);
    const uint64_t beyond[LAYERS] = {base, base + SL_MIB, base + 8 * SL_MIB - ROW + 1};
    CHECK(engine_open(client, beyond, ROW, &engine) == SL_ERR_INVALID);
    CHECK(strstr(why.text, "pool kv layer 2: ") != NULL);
    const uint64_t nowhere[LAYERS] = {(uintptr_t)&base, base, base};
    CHECK(engine_open(client, nowhere, 512, &engine) == SL_ERR_INVALID);
    CHECK(driver.memory_free(base) == 0);
}

/* Freed, and other memory at the same address (an allocator that reuses it): the old
 * registration fails, a new one works. */
static void reallocated(struct sl_client *client)
{
    sl_cu_ptr base = 0, again = 0;
    struct sl_engine *engine = NULL;
    CHECK(driver.memory_get(&base, 8 * SL_MIB) == 0);
    const uint64_t addresses[LAYERS] = {base, base + ROW, base + 2 * ROW};
    CHECK(engine_open(client, addresses, ROW, &engine) == SL_OK);
    CHECK(driver.memory_free(base) == 0);
    CHECK(store(engine) == SL_ERR_STALE);
    CHECK(driver.memory_get(&again, 8 * SL_MIB) == 0);
    CHECK(store(engine) == SL_ERR_STALE);
    sl_engine_end(&engine);
    CHECK(driver.memory_free(again) == 0);
}

/* Expandable segments: layers begin and end anywhere in a row of granules. */
static void segments(struct sl_client *client)
{
    struct segment segment;
    struct sl_engine *engine = NULL;
    segment_open(&segment, SL_CU_HANDLE_FD);
    const uint64_t row_bytes = 36 * GRANULE + 4096; /* with it three layers overlap, on purpose */
    const uint64_t addresses[LAYERS] = {segment.base, segment.base + GRANULE + 8192,
                                        segment.base + 3 * GRANULE - 4096};
    CHECK(engine_open(client, addresses, row_bytes, &engine) == SL_OK);
    CHECK(strcmp(sl_engine_memory_kind(engine, 0, 0), "cuda memory of many handles") == 0);
    layers_are_mapped(engine, addresses, row_bytes);
    CHECK(fake->physicals == GRANULES && fake->mappings == GRANULES);
    sl_engine_end(&engine);
    const uint64_t beyond[LAYERS] = {segment.base, segment.base,
                                     segment.base + GRANULES * GRANULE - ROW + 1};
    CHECK(engine_open(client, beyond, ROW, &engine) == SL_ERR_INVALID);
    segment_close(&segment);
}

/* Sleep mode: memory is unmapped, and other memory mapped at the same addresses. No byte is
 * written to the wrong memory. */
static void sleeps(struct sl_client *client)
{
    struct segment segment;
    struct sl_engine *engine = NULL;
    struct sl_device *device = NULL;
    struct sl_mapping mapping;
    const struct sl_device_options options = {.name = "cuda",
                                              .staging_bytes = 256 * SL_KIB,
                                              .runtime_directory = runtime_directory,
                                              .driver_path = library,
                                              .kernels = "image"};
    CHECK(sl_device_open(&options, &device, &why) == SL_OK);
    segment_open(&segment, SL_CU_HANDLE_FD);
    const uint64_t addresses[LAYERS] = {segment.base, segment.base + ROW, segment.base + 2 * ROW};
    CHECK(engine_open(client, addresses, ROW, &engine) == SL_OK);
    struct sl_memory_handle handle = handle_of(&engine->regions[0]);
    CHECK(sl_engine_memory_check(engine, &why) == SL_OK);

    segment_unmap(&segment); /* sleeps */
    CHECK(store(engine) == SL_ERR_STALE);
    CHECK(strstr(why.text, "sleep mode") != NULL);
    CHECK(device->ops->map(device, &handle, ROW, &mapping, &why) == SL_ERR_STALE);
    segment_map(&segment, SL_CU_HANDLE_FD); /* wakes up */
    CHECK(store(engine) == SL_ERR_STALE);
    CHECK(device->ops->map(device, &handle, ROW, &mapping, &why) == SL_ERR_STALE);
    sl_engine_end(&engine);
    CHECK(device->ops->map(device, &handle, ROW, &mapping, &why) == SL_ERR_NOT_FOUND);

    CHECK(engine_open(client, addresses, ROW, &engine) == SL_OK); /* as the error text says */
    layers_are_mapped(engine, addresses, ROW);
    sl_engine_end(&engine);
    segment_close(&segment);
    sl_device_close(&device);
}

/* Memory that cannot be shared is refused, and the error says what helps. */
static void refused(struct sl_client *client)
{
    static const struct {
        int types;
        const char *text;
    } kinds[] = {{0, "without a shareable handle, as vLLM's sleep mode does"},
                 {SL_CU_HANDLE_FABRIC, "only a fabric handle, which is not supported yet"}};
    struct sl_engine *engine = NULL;
    sl_cu_ptr base = 0;
    for (uint32_t i = 0; i < SL_COUNT(kinds); i++) {
        struct segment segment;
        segment_open(&segment, kinds[i].types);
        const uint64_t addresses[LAYERS] = {segment.base, segment.base, segment.base};
        CHECK(engine_open(client, addresses, ROW, &engine) == SL_ERR_UNSUPPORTED);
        CHECK(strstr(why.text, kinds[i].text) != NULL);
        segment_close(&segment);
    }
    fake->pooled = true;
    CHECK(driver.memory_get(&base, 8 * SL_MIB) == 0);
    const uint64_t addresses[LAYERS] = {base, base, base};
    CHECK(engine_open(client, addresses, ROW, &engine) == SL_ERR_UNSUPPORTED);
    CHECK(strstr(why.text, "stream-ordered pool") != NULL && strstr(why.text, "backend:native"));
    CHECK(driver.memory_free(base) == 0);
}

/* Each call of the driver fails in turn: an error, and nothing leaks. */
static void fails(struct sl_client *client)
{
    struct segment segment;
    struct sl_engine *engine = NULL;
    segment_open(&segment, SL_CU_HANDLE_FD);
    const uint64_t addresses[LAYERS] = {segment.base, segment.base + ROW, segment.base + 2 * ROW};
    uint32_t failed = 0;
    CHECK(sl_gpu_present()); /* a driver that does not report its version counts as none */
    for (uint32_t i = 1; i < 200; i++) {
        fake->fail_code = SL_CU_INVALID_VALUE;
        fake->fail_at = fake->calls + i;
        sl_err err = engine_open(client, addresses, ROW, &engine);
        bool hit = fake->calls >= fake->fail_at;
        fake->fail_at = 0;
        failed += err != SL_OK;
        CHECK(err == SL_OK || err == SL_ERR_DEVICE || err == SL_ERR_INVALID ||
              err == SL_ERR_UNSUPPORTED);
        sl_engine_end(&engine);
        CHECK(fake->contexts == 1 && fake->physicals == GRANULES);
        if (!hit) {
            CHECK(failed >= 20);
            segment_close(&segment);
            return;
        }
    }
    CHECK(false); /* every call has failed once */
}

static const struct {
    const char *name;
    void (*run)(struct sl_client *client);
} whats[] = {{"allocated", allocated}, {"reallocated", reallocated}, {"segments", segments},
             {"sleeps", sleeps},       {"refused", refused},         {"fails", fails}};

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1200], shm_dir[1024];
    if (argc != 6) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_directory, sizeof runtime_directory, "%s", argv[2]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", runtime_directory);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const char *settings[] = {instance, runtime_dir, shm_dir, NULL};
    library = argv[5];
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .timeout_ns = WAIT_NS, .settings = settings};
    struct sl_client *client = NULL;
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    engine_start();
    for (uint32_t i = 0; i < SL_COUNT(whats); i++) {
        if (strcmp(whats[i].name, argv[4]) == 0) {
            whats[i].run(client);
            sl_client_close(&client);
            CHECK(fake->contexts == 1 && fake->allocations == 0);
            return 0;
        }
    }
    return 2;
}
