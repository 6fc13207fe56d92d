/* client/tools/bench/engine.c - sluicectl bench engine: an engine's stores, loads and lookups,
 * alternating with memcpy of one rank's share of the bytes. */
#include "client/tools/bench/engine.h"
#include "client/tools/bench/replay_content.h"
#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_TOKENS  16u
#define POOL_NAME     "kv"
#define KEY_FORMAT    "sluice"
#define HASH_BYTES    32u
#define KEY_BYTES     160u /* MODEL/BLOCK/0/kv */
#define WALK_CACHES   4u   /* a walk covers more than this multiple of the last-level cache */
#define WARM_UP_NS    (2 * SL_NS_PER_S)
#define NOT_STORED    (UINT64_C(1) << 40) /* ops from this number on are never stored */
#define MEMORY_SHARES 8u                  /* the bench may fill 5/8 of the node's memory */
#define MEMORY_FILLED 5u

/* ---- CPU time ---- */

static bool actor_note(void *context, struct sl_metrics_view *view)
{
    struct engine_bench *bench = context;
    struct sl_metrics_summary summary;
    clockid_t clock;
    sl_metrics_view_summary(view, &summary);
    if (strncmp(summary.actor, "client", 6) == 0 || summary.proc.pid == 0 ||
        clock_getcpuclockid((pid_t)summary.proc.pid, &clock) != 0) {
        return true;
    }
    struct engine_actor *actor = &bench->actors[bench->actor_count++];
    *actor = (struct engine_actor){.clock = clock};
    (void)snprintf(actor->name, sizeof actor->name, "%s", summary.actor);
    return bench->actor_count < ENGINE_ACTORS_MAX;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec at = {0};
    (void)clock_gettime(clock, &at); /* fails for an actor that has died */
    return (uint64_t)at.tv_sec * SL_NS_PER_S + (uint64_t)at.tv_nsec;
}

/* Adds the actors' CPU time since the last call to the row; row NULL: discards it. */
static void actors_count(struct engine_bench *bench, struct engine_row *row)
{
    for (uint32_t i = 0; i < bench->actor_count; i++) {
        struct engine_actor *actor = &bench->actors[i];
        uint64_t used_ns = clock_ns(actor->clock);
        if (row != NULL && used_ns > actor->last_ns) {
            row->actor_ns[i] += used_ns - actor->last_ns;
        }
        actor->last_ns = used_ns;
    }
}

/* ---- ops ---- */

static uint64_t rank_bytes(const struct engine_bench *bench)
{
    return bench->blocks * bench->part_bytes;
}

/* Makes the block hashes of an op, which are new in every run. */
static void hashes_make(struct engine_bench *bench, uint64_t number)
{
    for (uint64_t i = 0; i < bench->blocks; i++) {
        const uint64_t words[HASH_BYTES / sizeof(uint64_t)] = {bench->seed, number, i, ~i};
        memcpy(&bench->hashes[i * HASH_BYTES], words, HASH_BYTES);
    }
}

static uint32_t *set_blocks(struct engine_bench *bench, uint64_t set)
{
    return &bench->device_blocks[set % bench->sets * bench->blocks];
}

/* Calls each() for the first and last bytes of every piece of the op, with their right value. */
static uint64_t stamps_walk(struct engine_bench *bench, uint64_t number, uint64_t set,
                            uint64_t (*each)(unsigned char *at, uint64_t value, uint64_t bytes))
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        unsigned char *base = bench->memories[rank];
        for (uint64_t i = 0; i < bench->blocks * bench->layer_count; i++) {
            const struct sl_engine_layer *layer = &bench->layers[i % bench->layer_count];
            uint64_t block = set_blocks(bench, set)[i / bench->layer_count];
            unsigned char *piece = base + layer->offset_bytes + block * layer->block_stride_bytes;
            uint64_t bytes = SL_MIN(layer->piece_bytes, sizeof(uint64_t));
            uint64_t value = (bench->seed + number) * UINT64_C(0x9e3779b97f4a7c15) + i * 64 + rank;
            sum += each(piece, value, bytes);
            sum += each(piece + layer->piece_bytes - bytes, value, bytes);
        }
    }
    return sum;
}

static uint64_t stamp_write(unsigned char *at, uint64_t value, uint64_t bytes)
{
    memcpy(at, &value, bytes);
    return 0;
}

static uint64_t stamp_wrong(unsigned char *at, uint64_t value, uint64_t bytes)
{
    return memcmp(at, &value, bytes) != 0 ? 1 : 0;
}

/* Checks the result of an op. */
static sl_err op_check(struct engine_bench *bench, enum engine_kind kind, const struct sl_op *op,
                       const struct sl_op_result *result, struct sl_error *why)
{
    uint32_t blocks = (uint32_t)bench->blocks;
    if (result->code != SL_OK) {
        *why = result->why;
        return result->code;
    }
    if (kind == ENGINE_STORE && result->stored_count != blocks) {
        return sl_fail(why, SL_ERR_INCOMPLETE, "store: %u of %u blocks", result->stored_count,
                       blocks);
    }
    if (kind == ENGINE_LOAD && result->block_count != blocks) {
        return sl_fail(why, SL_ERR_INCOMPLETE,
                       "load: %u of %u blocks; other clients evict what this bench stores",
                       result->block_count, blocks);
    }
    if (kind == ENGINE_LOAD && result->from_memory != blocks) {
        bench->elsewhere++;
    }
    if (kind == ENGINE_MISS && result->block_count != 0) {
        return sl_fail(why, SL_ERR_INTERNAL, "load: %u blocks that were never stored",
                       result->block_count);
    }
    return result->fenced ? SL_OK : sl_op_wait_fenced((struct sl_op *)op, 0, why);
}

static void op_count(struct engine_row *row, uint64_t took_ns, uint64_t cpu_ns)
{
    ctl_histogram_add(&row->ops_ns, took_ns);
    row->ops++;
    row->busy_ns += took_ns;
    row->own_ns += cpu_ns;
    row->least_ns = row->least_ns == 0 ? took_ns : SL_MIN(row->least_ns, took_ns);
}

/* Runs one op and measures the time until its answer. */
static sl_err op_run(struct engine_bench *bench, enum engine_kind kind, uint64_t number,
                     struct engine_row *row, struct sl_error *why)
{
    struct sl_op *op = NULL;
    struct sl_op_result result = {0};
    hashes_make(bench, number);
    const struct sl_op_request request = {.hashes = bench->hashes,
                                          .hash_bytes = HASH_BYTES,
                                          .device_blocks = set_blocks(bench, number),
                                          .device_block_count = (uint32_t)bench->blocks};
    /* A load's blocks get bytes of no op, so that a load that copies nothing is noticed. */
    (void)stamps_walk(bench, kind == ENGINE_STORE ? number : ~number, number, stamp_write);
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t started_ns = sl_clock_monotonic_ns();
    sl_err err = kind == ENGINE_STORE ? sl_store_start(bench->engine, &request, &op, why)
                                      : sl_load_start(bench->engine, &request, &op, why);
    while (err == SL_OK && sl_op_wait(op, 0, &result) == SL_ERR_TIMEOUT) {
    }
    uint64_t took_ns = sl_clock_monotonic_ns() - started_ns;
    cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    if (err == SL_OK) {
        err = op_check(bench, kind, op, &result, why);
    }
    sl_op_release(&op);
    if (err == SL_OK && kind == ENGINE_LOAD &&
        stamps_walk(bench, number, number, stamp_wrong) != 0) {
        err =
            sl_fail(why, SL_ERR_CORRUPT, "load: wrong bytes in the blocks of op %" PRIu64, number);
    }
    op_count(row, took_ns, cpu_ns);
    return err;
}

/* Looks up the stored blocks of an op in shared memory. */
static sl_err look_run(struct engine_bench *bench, uint64_t number, struct engine_row *row,
                       struct sl_error *why)
{
    struct sl_prefix_result looked = {0};
    hashes_make(bench, number);
    const struct sl_prefix_query look = {
        .hashes = bench->hashes, .hash_bytes = HASH_BYTES, .count = (uint32_t)bench->blocks};
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t started_ns = sl_clock_monotonic_ns();
    sl_err err = sl_prefix_match(bench->engine, &look, &looked, NULL, why);
    uint64_t took_ns = sl_clock_monotonic_ns() - started_ns;
    op_count(row, took_ns, clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns);
    return err != SL_OK || looked.prefix_count == bench->blocks
               ? err
               : sl_fail(why, SL_ERR_INCOMPLETE,
                         "look: %u of %" PRIu64
                         " blocks; other clients evict what this bench stores",
                         looked.prefix_count, bench->blocks);
}

/* ---- removal ---- */

/* MODEL/BLOCK/0/kv: removing one part removes the block. */
static void key_make(const struct engine_bench *bench, uint64_t block, char to[KEY_BYTES],
                     struct sl_object_key *out)
{
    int length = snprintf(to, KEY_BYTES, "%s/", sl_engine_model_identity(bench->engine));
    for (uint32_t i = 0; i < HASH_BYTES; i++) {
        length += snprintf(to + length, KEY_BYTES - (size_t)length, "%02x",
                           bench->hashes[block * HASH_BYTES + i]);
    }
    length += snprintf(to + length, KEY_BYTES - (size_t)length, "/0/%s", POOL_NAME);
    *out = (struct sl_object_key){.at = to, .length = (uint32_t)length};
}

static sl_err op_remove(struct engine_bench *bench, uint64_t number, struct sl_error *why)
{
    uint32_t count = (uint32_t)bench->blocks;
    hashes_make(bench, number);
    for (uint32_t i = 0; i < count; i++) {
        key_make(bench, i, &bench->key_texts[i * KEY_BYTES], &bench->keys[i]);
    }
    sl_err err = sl_remove_batch(bench->client, bench->keys, count, NULL, bench->codes, 0, why);
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        if (bench->codes[i] != SL_OK && bench->codes[i] != SL_ERR_NOT_FOUND) {
            err = sl_fail(why, bench->codes[i], "remove: %s", sl_err_text(bench->codes[i]));
        }
    }
    return err;
}

/* Removes the oldest ops' blocks until those of `left` ops remain. */
static sl_err ops_remove(struct engine_bench *bench, uint64_t left, struct sl_error *why)
{
    sl_err err = SL_OK;
    while (err == SL_OK && bench->next - bench->first > left) {
        err = op_remove(bench, bench->first++, why);
    }
    return err;
}

/* ---- turns ---- */

/* The number of the next op: a new one for a store, the next stored one for a load. */
static sl_err op_next(struct engine_bench *bench, enum engine_kind kind, uint64_t *number,
                      struct sl_error *why)
{
    sl_err err = SL_OK;
    if (kind == ENGINE_STORE) {
        actors_count(bench, &bench->rows[kind]); /* CPU time of the removal is discarded */
        err = ops_remove(bench, bench->sets - 1, why);
        actors_count(bench, NULL);
        *number = bench->next++;
    } else if (kind != ENGINE_MISS) {
        uint64_t at = bench->load_next++;
        bench->load_next =
            at < bench->first || at >= bench->next ? bench->first + 1 : bench->load_next;
        *number = at < bench->first || at >= bench->next ? bench->first : at;
    } else {
        *number = NOT_STORED + bench->miss_next++;
    }
    return err;
}

static sl_err kind_turn(struct engine_bench *bench, enum engine_kind kind, struct sl_error *why)
{
    struct engine_row *row = &bench->rows[kind];
    uint64_t ops = row->ops, busy_ns = row->busy_ns;
    sl_err err = SL_OK;
    actors_count(bench, NULL);
    do {
        uint64_t number = 0;
        err = op_next(bench, kind, &number, why);
        if (err == SL_OK) {
            err = kind == ENGINE_LOOK ? look_run(bench, number, row, why)
                                      : op_run(bench, kind, number, row, why);
        }
    } while (err == SL_OK && row->busy_ns - busy_ns < BENCH_ROUND_NS);
    actors_count(bench, row);
    row->rates[BENCH_SIDE_OP][bench->round_count] =
        (double)(row->ops - ops) * 1e9 / (double)SL_MAX(row->busy_ns - busy_ns, 1);
    return err;
}

/* A turn of memcpy or of the fastest copy routine in the direction of the ops. */
static sl_err limit_turn(struct engine_bench *bench, enum engine_kind kind, enum bench_side side,
                         struct sl_error *why)
{
    struct engine_row *row = &bench->rows[kind];
    struct bench_round round = {0};
    sl_err err = bench_limit_round(&row->limit, side, &round, why);
    row->rates[side][bench->round_count] =
        (double)round.ops / (double)bench->blocks * 1e9 / (double)SL_MAX(round.busy_ns, 1);
    return err;
}

static sl_err round_run(struct engine_bench *bench, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < ENGINE_KINDS; i++) { /* the order rotates */
        enum engine_kind kind = (enum engine_kind)((bench->round_count + i) % ENGINE_KINDS);
        err = kind_turn(bench, kind, why);
        uint32_t sides = engine_sides(bench, kind);
        for (uint32_t side = BENCH_SIDE_BASELINE; err == SL_OK && side < sides; side++) {
            err = limit_turn(bench, kind, (enum bench_side)side, why);
        }
    }
    bench->round_count++;
    return err;
}

/* Runs every set once, to map memory on both sides and write every device block. */
static sl_err warm_up(struct engine_bench *bench, struct sl_error *why)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + WARM_UP_NS;
    sl_err err = SL_OK;
    for (uint64_t i = 0; err == SL_OK && i < bench->sets; i++) {
        uint64_t number = bench->next++;
        err = op_run(bench, ENGINE_STORE, number, &bench->unmeasured, why);
    }
    for (uint64_t i = 0; err == SL_OK && i < bench->sets && sl_clock_monotonic_ns() < until_ns;
         i++) {
        err = op_run(bench, ENGINE_LOAD, i, &bench->unmeasured, why);
    }
    return err;
}

static bool enough(const struct engine_bench *bench, uint64_t until_ns)
{
    if (bench->ops == 0) {
        return sl_clock_monotonic_ns() >= until_ns;
    }
    for (uint32_t i = 0; i < ENGINE_KINDS; i++) {
        if (bench->rows[i].ops < bench->ops) {
            return false;
        }
    }
    return true;
}

static sl_err measure(struct engine_bench *bench, struct sl_error *why)
{
    sl_err err = warm_up(bench, why);
    uint64_t until_ns = sl_clock_monotonic_ns() + bench->measure_ns;
    while (err == SL_OK && bench->round_count < BENCH_ROUNDS_MAX) {
        err = round_run(bench, why);
        if (err != SL_OK || enough(bench, until_ns)) {
            break;
        }
    }
    struct sl_error ignored;
    sl_err removed = ops_remove(bench, 0, err == SL_OK ? why : &ignored);
    return err != SL_OK ? err : removed;
}

/* ---- set-up ---- */

/* Chooses the number of ops whose blocks both sides walk over. */
static sl_err sizes_choose(const struct ctl *ctl, struct engine_bench *bench, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = sl_arena_attach(ctl->paths.shm_dir, 0, false, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t memory_bytes = sl_arena_data_bytes(arena);
    sl_arena_close(&arena);
    uint64_t op_bytes = bench->ranks * bench->blocks * sl_extent_space(bench->part_bytes);
    uint64_t fit = memory_bytes / MEMORY_SHARES * MEMORY_FILLED / op_bytes;
    bench->cache_bytes = bench_cache_bytes();
    bench->sets = SL_MIN(WALK_CACHES * bench->cache_bytes / op_bytes + 2, fit);
    if (bench->sets < 2) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ops of %" PRIu64 " bytes: the node's memory of %" PRIu64
                       " cannot hold two of them in 5/8 of it",
                       op_bytes, memory_bytes);
    }
    bench->walk_bytes = bench->sets * bench->ranks * rank_bytes(bench);
    return SL_OK;
}

static sl_err arrays_make(struct engine_bench *bench, struct sl_error *why)
{
    uint64_t block_count = bench->sets * bench->blocks;
    bench->hashes = calloc(bench->blocks, HASH_BYTES);
    bench->key_texts = calloc(bench->blocks, KEY_BYTES);
    bench->keys = calloc(bench->blocks, sizeof *bench->keys);
    bench->codes = calloc(bench->blocks, sizeof *bench->codes);
    bench->device_blocks = calloc(block_count, sizeof *bench->device_blocks);
    bool all = bench->hashes != NULL && bench->key_texts != NULL && bench->keys != NULL &&
               bench->codes != NULL && bench->device_blocks != NULL;
    for (uint32_t i = 0; i < ENGINE_KINDS; i++) {
        for (uint32_t side = 0; side < BENCH_SIDES; side++) {
            bench->rows[i].rates[side] = calloc(BENCH_ROUNDS_MAX, sizeof(double));
            all = all && bench->rows[i].rates[side] != NULL;
        }
    }
    if (!all) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %" PRIu64 " blocks", block_count);
    }
    for (uint64_t i = 0; i < block_count; i++) {
        bench->device_blocks[i] = (uint32_t)i;
    }
    return SL_OK;
}

/* The baseline of lookups: a table with a key for each stored block. */
static sl_err probe_open(struct engine_bench *bench, struct sl_error *why)
{
    struct bench *probe = &bench->rows[ENGINE_LOOK].limit;
    *probe = (struct bench){
        .kind = BENCH_EXISTS, .keys = bench->sets * bench->blocks, .walk_bytes = SL_PAGE_BYTES};
    probe->key_texts = calloc(probe->keys, BENCH_KEY_BYTES);
    if (probe->key_texts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %" PRIu64 " blocks", probe->keys);
    }
    for (uint64_t i = 0; i < probe->keys; i++) {
        bench_key_write(i, &probe->key_texts[i * BENCH_KEY_BYTES]);
    }
    return bench_limit_open(probe, why);
}

/* The baseline of copies: both directions use the same two mappings. */
static sl_err limits_open(struct engine_bench *bench, struct sl_error *why)
{
    struct bench *out = &bench->rows[ENGINE_STORE].limit;
    struct bench *in = &bench->rows[ENGINE_LOAD].limit;
    uint64_t walk_bytes = WALK_CACHES * bench->cache_bytes / rank_bytes(bench) * rank_bytes(bench) +
                          rank_bytes(bench);
    *out = (struct bench){.kind = BENCH_PUT,
                          .size_bytes = bench->part_bytes,
                          .batch = bench->blocks,
                          .walk_bytes = walk_bytes};
    sl_err err = bench_limit_open(out, why);
    *in = *out;
    in->kind = BENCH_GET;
    return err == SL_OK ? probe_open(bench, why) : err;
}

/* Allocates private memory for each rank and sets the address of every layer. */
static sl_err plain_make(struct engine_bench *bench, struct sl_error *why)
{
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        void *at = mmap(NULL, bench->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint64_t *addresses = calloc(bench->layer_count, sizeof *addresses);
        bench->memories[rank] = at == MAP_FAILED ? NULL : at;
        bench->addresses[rank] = addresses;
        if (bench->memories[rank] == NULL || addresses == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %" PRIu64 " bytes a rank",
                           bench->memory_bytes);
        }
        for (uint64_t i = 0; i < bench->layer_count; i++) {
            addresses[i] = (uintptr_t)at;
        }
    }
    return SL_OK;
}

static void plain_free(struct engine_bench *bench)
{
    for (uint32_t rank = 0; bench->plain && rank < bench->ranks; rank++) {
        free(bench->addresses[rank]);
        if (bench->memories[rank] != NULL) {
            (void)munmap(bench->memories[rank], bench->memory_bytes);
        }
    }
}

static sl_err engine_register(struct engine_bench *bench, struct sl_error *why)
{
    uint64_t block_count = bench->sets * bench->blocks;
    bench->layers = calloc(bench->layer_count, sizeof *bench->layers);
    if (bench->layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %" PRIu64 " layers", bench->layer_count);
    }
    bench->memory_bytes =
        replay_layers(bench->layer_count, bench->part_bytes, block_count, bench->layers);
    const struct sl_engine_pool pool = {
        .name = POOL_NAME,
        .kind = SL_POOL_ATTENTION,
        .layer_count = (uint32_t)bench->layer_count,
        .layers = bench->layers,
        .memory_bytes = bench->memory_bytes,
        .device = bench->plain ? (const uint64_t *const *)bench->addresses : NULL};
    const struct sl_engine_options options = {
        .name = "bench engine",
        .model = {.name = "bench", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = KEY_FORMAT,
        .block_tokens = BLOCK_TOKENS,
        .world = (uint32_t)bench->ranks,
        .block_count = (uint32_t)block_count,
        .pool_count = 1,
        .pools = &pool,
    };
    sl_err err = bench->plain ? plain_make(bench, why) : SL_OK;
    err = err == SL_OK ? sl_engine_register(bench->client, &options, 0, &bench->engine, why) : err;
    for (uint32_t rank = 0; err == SL_OK && rank < bench->ranks; rank++) {
        if (!bench->plain) {
            bench->memories[rank] = sl_engine_memory(bench->engine, rank, 0);
        }
        memset(bench->memories[rank], 0x5a, bench->memory_bytes);
    }
    return err;
}

static void bench_close(struct engine_bench *bench)
{
    sl_engine_end(&bench->engine);
    plain_free(bench);
    sl_client_close(&bench->client);
    bench_limit_close(&bench->rows[ENGINE_STORE].limit); /* ENGINE_LOAD borrows it */
    bench_limit_close(&bench->rows[ENGINE_LOOK].limit);
    free(bench->rows[ENGINE_LOOK].limit.key_texts);
    for (uint32_t i = 0; i < ENGINE_KINDS; i++) {
        for (uint32_t side = 0; side < BENCH_SIDES; side++) {
            free(bench->rows[i].rates[side]);
        }
    }
    free(bench->hashes);
    free(bench->key_texts);
    free(bench->keys);
    free(bench->codes);
    free(bench->device_blocks);
    free(bench->layers);
    free(bench);
}

static sl_err bench_open(const struct ctl *ctl, struct engine_bench *bench, struct sl_error *why)
{
    sl_err err = ctl_open(ctl, false, &bench->client, why);
    if (err == SL_OK) {
        err = sizes_choose(ctl, bench, why);
    }
    if (err == SL_OK) {
        err = arrays_make(bench, why);
    }
    if (err == SL_OK) {
        err = limits_open(bench, why);
    }
    if (err == SL_OK) {
        err = engine_register(bench, why);
    }
    if (err == SL_OK) {
        (void)ctl_pages(ctl, actor_note, bench);
    }
    return err;
}

int ctl_bench_engine(struct ctl *ctl, const struct bench_engine_asked *asked)
{
    struct sl_error why = {0};
    uint64_t ranks = asked->ranks != 0 ? asked->ranks : 1;
    uint64_t blocks = asked->blocks != 0 ? asked->blocks : ENGINE_BLOCKS;
    uint64_t part_bytes = asked->part_bytes != 0 ? asked->part_bytes : ENGINE_PART_BYTES;
    uint64_t layers = asked->layers != 0 ? asked->layers : 1;
    if (ranks > ENGINE_RANKS_MAX || blocks > ENGINE_BLOCKS_MAX || part_bytes > ENGINE_PART_MAX ||
        layers > SL_MIN(ENGINE_LAYERS_MAX, part_bytes)) {
        return ctl_usage_error(
            ctl,
            "bench engine: --ranks up to %u, --blocks up to %u, --part-bytes up to "
            "%" PRIu64 "MiB, --layers up to %u and no more than bytes of a part",
            ENGINE_RANKS_MAX, ENGINE_BLOCKS_MAX, ENGINE_PART_MAX / SL_MIB, ENGINE_LAYERS_MAX);
    }
    struct engine_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        (void)sl_fail(&why, SL_ERR_NO_MEMORY, "bench engine");
        return ctl_failed(ctl, &why);
    }
    bench->ranks = ranks;
    bench->blocks = blocks;
    bench->part_bytes = part_bytes;
    bench->layer_count = layers;
    bench->plain = asked->plain;
    bench->ops = asked->ops;
    bench->measure_ns = asked->measure_ns;
    bench->seed = sl_clock_wall_ns() ^ (uint64_t)getpid() << 48;
    sl_err err = bench_open(ctl, bench, &why);
    if (err == SL_OK) {
        err = measure(bench, &why);
    }
    json_t *measured = err == SL_OK ? engine_json(bench) : NULL;
    bench_close(bench);
    return err == SL_OK ? ctl_answer(ctl, measured) : ctl_failed(ctl, &why);
}
