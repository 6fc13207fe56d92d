/* tests/gpu/engine_speed.c - an engine with its pool on a GPU stores and loads through a node
 * for a given time. Measures the speed, the longest op and the number of failed ops, and checks
 * the bytes.
 *
 *   engine_speed INSTANCE RUNTIME_DIR SHM_DIR PIECE_BYTES LAYERS BLOCKS SECONDS whole|layers
 *
 * In each round, half of the blocks are stored under new keys and loaded into the other half.
 * Prints "running" after the first round, and one line of JSON at the end. An op that fails, as
 * when its swapper is killed, is repeated; wrong bytes end the program. Used by
 * tests/gpu/checking. */
#include "client/include/sluice.h"
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_TOKENS      4u
#define PATIENCE_NS       (10 * SL_NS_PER_S)
#define LAYERS_MAX        256u
#define BLOCKS_MAX        65536u
#define CHECKED_BYTES_MAX (64 * SL_MIB) /* bytes of a pool that are compared in each round */

struct side { /* counts of stores, or of loads */
    uint64_t ops, failed, bytes, busy_ns, worst_ns, first_layer_ns;
};
struct speed {
    uint64_t piece_bytes, pool_bytes;
    uint32_t layers, blocks, half; /* half: number of blocks stored and loaded at a time */
    bool by_layers;
    struct sl_client *client;
    struct sl_device *device;
    struct cuda_device *cuda;
    sl_cu_ptr memory;
    struct sl_pool *pool;
    struct sl_engine *engine;
    unsigned char *bytes, *back;
    uint32_t *tokens, *out, *in;
    struct side store, load;
};
static struct sl_error why;

static void must(bool right, const char *what)
{
    if (!right) {
        (void)fprintf(stderr, "%s: %s\n", what, why.text);
        exit(1);
    }
}

/* Through pinned memory. */
static void copy(struct speed *speed, uint64_t at, unsigned char *bytes, uint64_t length,
                 bool to_host)
{
    struct cuda_device *cuda = speed->cuda;
    struct cuda_slot *slot = &cuda->slots[0];
    for (uint64_t done = 0; done < length; done += cuda->half_bytes) {
        size_t part = SL_MIN(length - done, (uint64_t)cuda->half_bytes);
        sl_cu_ptr there = speed->memory + at + done;
        if (!to_host) {
            memcpy(slot->bounce, bytes + done, part);
        }
        sl_cu_result result = to_host
                                  ? cuda->driver.to_host(slot->bounce, there, part, slot->stream)
                                  : cuda->driver.to_device(there, slot->bounce, part, slot->stream);
        must(result == 0 && cuda->driver.stream_wait(slot->stream) == 0, "copy of the pool");
        if (to_host) {
            memcpy(bytes + done, slot->bounce, part);
        }
    }
}

/* ---- ops ---- */

/* Runs one op. Returns whether it succeeded; its code is in *code. */
static bool op_run(struct speed *speed, bool storing, sl_err *code)
{
    struct sl_op_request request = {.tokens = speed->tokens,
                                    .token_count = speed->half * BLOCK_TOKENS,
                                    .device_blocks = storing ? speed->out : speed->in,
                                    .device_block_count = speed->half,
                                    .timeout_ns = PATIENCE_NS,
                                    .layer_count = speed->by_layers ? speed->layers : 0};
    struct side *side = storing ? &speed->store : &speed->load;
    struct sl_op *op = NULL;
    struct sl_op_result result = {.code = SL_OK};
    uint64_t start_ns = sl_clock_monotonic_ns(), first_ns = 0;
    sl_err err = storing ? sl_store_start(speed->engine, &request, &op, &why)
                         : sl_load_start(speed->engine, &request, &op, &why);
    if (err != SL_OK) { /* for example while the node has lost its swapper */
        *code = err;
        side->failed++;
        return false;
    }
    for (uint32_t l = 0; err == SL_OK && l < request.layer_count; l++) {
        uint32_t count = 0;
        err = storing ? sl_op_layer_ready(op, l, &why)
                      : sl_op_layer_wait(op, l, PATIENCE_NS, &count, &why);
        first_ns = l == 0 ? sl_clock_monotonic_ns() - start_ns : first_ns;
    }
    must(sl_op_wait(op, 2 * PATIENCE_NS, &result) == SL_OK, "the end of an op");
    uint64_t took_ns = sl_clock_monotonic_ns() - start_ns;
    must(sl_op_wait_fenced(op, PATIENCE_NS, &why) == SL_OK, "fence");
    sl_op_release(&op);
    *code = err != SL_OK ? err : result.code;
    if (*code == SL_OK && result.block_count != speed->half) {
        *code = SL_ERR_INCOMPLETE;
    }
    side->worst_ns = SL_MAX(side->worst_ns, took_ns);
    if (*code != SL_OK) {
        side->failed++;
        return false;
    }
    side->ops++;
    side->bytes += speed->half * speed->layers * speed->piece_bytes;
    side->busy_ns += took_ns;
    side->first_layer_ns += first_ns;
    return true;
}

/* Repeats the op until it succeeds; while a swapper restarts it may fail. */
static void op_repeat(struct speed *speed, bool storing)
{
    uint64_t end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), 3 * PATIENCE_NS);
    sl_err code = SL_OK;
    while (!op_run(speed, storing, &code)) {
        (void)fprintf(stderr, "%s: %s\n", storing ? "store" : "load", sl_err_name(code));
        must(sl_clock_monotonic_ns() < end_ns, "an op that succeeds");
        (void)usleep(10000);
    }
}

/* ---- rounds ---- */

static void keys_new(struct speed *speed, uint32_t round)
{
    for (uint32_t i = 0; i < speed->half * BLOCK_TOKENS; i++) {
        speed->tokens[i] = round * 7919 + i;
    }
}

/* Loaded blocks must equal the stored ones. */
static void bytes_check(struct speed *speed)
{
    copy(speed, 0, speed->back, speed->pool_bytes, true);
    for (uint32_t l = 0; l < speed->layers; l++) {
        for (uint32_t i = 0; i < speed->half; i++) {
            uint64_t layer_at = (uint64_t)l * speed->blocks;
            const unsigned char *got = speed->back + (layer_at + speed->in[i]) * speed->piece_bytes;
            const unsigned char *want =
                speed->bytes + (layer_at + speed->out[i]) * speed->piece_bytes;
            if (memcmp(got, want, speed->piece_bytes) != 0) {
                (void)fprintf(stderr, "wrong bytes: block %u, layer %u\n", i, l);
                exit(1);
            }
        }
    }
}

/* The blocks to load into hold other bytes before. */
static void blocks_wipe(struct speed *speed)
{
    for (uint32_t l = 0; l < speed->layers; l++) {
        uint64_t at = ((uint64_t)l * speed->blocks + speed->half) * speed->piece_bytes;
        uint64_t length = speed->half * speed->piece_bytes;
        must(speed->cuda->driver.fill(speed->memory + at, 0xee, length,
                                      speed->cuda->slots[0].stream) == 0,
             "wipe");
    }
    must(speed->cuda->driver.stream_wait(speed->cuda->slots[0].stream) == 0, "wipe");
}

static uint32_t rounds_run(struct speed *speed, uint64_t for_ns)
{
    uint64_t end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), for_ns);
    uint32_t round = 0;
    bool more = true;
    while (more) {
        keys_new(speed, ++round);
        op_repeat(speed, true);
        more = sl_clock_monotonic_ns() < end_ns;
        blocks_wipe(speed);
        op_repeat(speed, false);
        if (round == 1 || !more || speed->pool_bytes <= CHECKED_BYTES_MAX) {
            bytes_check(speed);
        }
        if (round == 1) {
            (void)printf("running\n");
            (void)fflush(stdout);
            speed->store = speed->load = (struct side){0}; /* it warmed up */
            end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), for_ns);
            more = true;
        }
    }
    return round;
}

/* ---- opening ---- */

static void memory_open(struct speed *speed)
{
    struct sl_cu_ipc ipc;
    struct sl_pool_memory told = {.kind = SL_POOL_MEMORY_CUDA_IPC};
    const struct sl_pool_key key = {.deployment = "speed", .pool = "kv"};
    must(sl_device_open(&(struct sl_device_options){.name = "cuda", .staging_bytes = 8 * SL_MIB},
                        &speed->device, &why) == SL_OK,
         "device");
    speed->cuda = cuda_of(speed->device);
    must(speed->cuda->driver.memory_get(&speed->memory, speed->pool_bytes) == 0, "device memory");
    must(speed->cuda->driver.ipc_get(&ipc, speed->memory) == 0, "IPC handle");
    memcpy(told.handle, ipc.bytes, sizeof(told.handle));
    must(sl_pool_create(speed->client, &key, speed->pool_bytes, PATIENCE_NS, &speed->pool, &why) ==
             SL_OK,
         "pool");
    must(sl_pool_publish(speed->pool, &told, PATIENCE_NS, &why) == SL_OK, "pool published");
}

static void engine_open(struct speed *speed)
{
    static struct sl_engine_layer layers[LAYERS_MAX];
    for (uint32_t l = 0; l < speed->layers; l++) {
        uint64_t length = speed->blocks * speed->piece_bytes;
        layers[l] = (struct sl_engine_layer){.offset_bytes = l * length,
                                             .length_bytes = length,
                                             .block_stride_bytes = speed->piece_bytes,
                                             .piece_bytes = speed->piece_bytes};
    }
    const struct sl_pool *from[1] = {speed->pool};
    const struct sl_engine_pool list[1] = {{.name = "kv",
                                            .layer_count = speed->layers,
                                            .layers = layers,
                                            .memory_bytes = speed->pool_bytes,
                                            .from = from}};
    const struct sl_engine_options options = {.name = "speed",
                                              .model = {.name = "speed"},
                                              .key_format = "sluice",
                                              .block_tokens = BLOCK_TOKENS,
                                              .world = 1,
                                              .block_count = speed->blocks,
                                              .pool_count = 1,
                                              .pools = list};
    must(sl_engine_register(speed->client, &options, PATIENCE_NS, &speed->engine, &why) == SL_OK,
         "engine");
}

static void bytes_open(struct speed *speed)
{
    uint64_t words = speed->pool_bytes / sizeof(uint64_t), seed = 1;
    speed->bytes = malloc(speed->pool_bytes);
    speed->back = malloc(speed->pool_bytes);
    speed->tokens = calloc(speed->half * BLOCK_TOKENS, sizeof(*speed->tokens));
    speed->out = calloc(speed->half, sizeof(*speed->out));
    speed->in = calloc(speed->half, sizeof(*speed->in));
    must(speed->bytes != NULL && speed->back != NULL && speed->tokens != NULL &&
             speed->out != NULL && speed->in != NULL,
         "memory");
    for (uint64_t w = 0; w < words; w++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(speed->bytes + w * sizeof(seed), &seed, sizeof(seed));
    }
    copy(speed, 0, speed->bytes, speed->pool_bytes, false);
    for (uint32_t i = 0; i < speed->half; i++) {
        speed->out[i] = i;
        speed->in[i] = speed->half + (i * 7919) % speed->half; /* 7919 is prime */
    }
}

static void speed_close(struct speed *speed)
{
    sl_engine_end(&speed->engine);
    sl_pool_release(&speed->pool);
    (void)speed->cuda->driver.memory_free(speed->memory);
    sl_device_close(&speed->device);
    sl_client_close(&speed->client);
    free(speed->bytes);
    free(speed->back);
    free(speed->tokens);
    free(speed->out);
    free(speed->in);
}

/* ---- output ---- */

static void side_print(const char *name, const struct side *side)
{
    double gb_per_s = side->busy_ns == 0 ? 0 : (double)side->bytes / (double)side->busy_ns;
    uint64_t ops = SL_MAX(side->ops, UINT64_C(1));
    (void)printf("\"%s\":{\"ops\":%llu,\"failed\":%llu,\"bytes\":%llu,\"gb_per_s\":%.3f,"
                 "\"mean_ms\":%.3f,\"worst_ms\":%.3f,\"first_layer_ms\":%.3f}",
                 name, (unsigned long long)side->ops, (unsigned long long)side->failed,
                 (unsigned long long)side->bytes, gb_per_s,
                 (double)side->busy_ns / 1e6 / (double)ops, (double)side->worst_ns / 1e6,
                 (double)side->first_layer_ns / 1e6 / (double)ops);
}

int main(int argc, char **argv)
{
    struct speed speed = {0};
    must(argc == 9, "eight arguments");
    speed.piece_bytes = strtoull(argv[4], NULL, 10);
    speed.layers = (uint32_t)strtoul(argv[5], NULL, 10);
    speed.blocks = (uint32_t)strtoul(argv[6], NULL, 10);
    speed.half = speed.blocks / 2;
    speed.by_layers = strcmp(argv[8], "layers") == 0;
    must(speed.piece_bytes >= 8 && speed.piece_bytes % 8 == 0 && speed.layers >= 1 &&
             speed.layers <= LAYERS_MAX && speed.blocks >= 2 && speed.blocks <= BLOCKS_MAX &&
             speed.half % 7919 != 0,
         "sizes that can be used");
    speed.pool_bytes = speed.piece_bytes * speed.layers * speed.blocks;
    char runtime_dir[1100], shm_dir[1100];
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", argv[3]);
    const char *settings[] = {runtime_dir, shm_dir, NULL};
    const struct sl_client_options client_options = {
        .api_version = SLUICE_API_VERSION, .instance = argv[1], .settings = settings};
    must(sl_client_open(&client_options, &speed.client, &why) == SL_OK, "client");
    memory_open(&speed);
    bytes_open(&speed);
    engine_open(&speed);
    uint32_t rounds = rounds_run(&speed, strtoull(argv[7], NULL, 10) * SL_NS_PER_S);
    (void)printf("{\"rounds\":%u,\"way\":\"%s\",\"piece_bytes\":%llu,\"layers\":%u,\"blocks\":%u,",
                 rounds, argv[8], (unsigned long long)speed.piece_bytes, speed.layers, speed.half);
    side_print("store", &speed.store);
    (void)printf(",");
    side_print("load", &speed.load);
    (void)printf("}\n");
    speed_close(&speed);
    return 0;
}
