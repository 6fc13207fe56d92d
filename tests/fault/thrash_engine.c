/* tests/fault/thrash_engine.c - an engine of two ranks and two pools: stores and loads of blocks,
 * several at a time, some cancelled.
 *
 * Every byte of a loaded block is compared. A device block that no op uses carries a pattern of its
 * own, which shows writes after the fence of its op. */
#include "client/tools/bench/replay_content.h"
#include "tests/fault/thrash.h"

#include <stdlib.h>
#include <string.h>

#define DEVICE_BLOCKS 128u
#define LAYERS        3u
#define OPS_MAX       3u  /* at a time */
#define ASIDES_MAX    12u /* ops whose blocks are not released yet */
#define LAYER_ALIGN   256u
#define CANCELS_OF    16u /* one op in CANCELS_OF is cancelled */
#define RETRY_NS      (10 * SL_NS_PER_MS)
#define LAYERED_OF    3u                 /* one op in LAYERED_OF is layer by layer */
#define LAYER_NS      (2 * SL_NS_PER_MS) /* longest computation of a layer */

/* Bytes of a block in each layer of each pool: not multiples of 16, and one larger than a page. */
static const uint32_t piece_bytes[THRASH_POOLS][LAYERS] = {{1000, 1234, 4100}, {77, 512, 2049}};

struct op {
    struct sl_op *handle;
    bool store, cancelled, by_layers;
    uint32_t layers_told, blocks_told; /* load by layers */
    uint32_t chat, block_count;
    uint32_t blocks[THRASH_CHAT_BLOCKS];
    uint64_t before[THRASH_CHAT_BLOCKS];
    uint64_t clock[THRASH_CHAT_BLOCKS]; /* of their last store, when the op began */
    uint64_t began_clock;
    struct sl_op_result result;
};

struct thrash_engine {
    struct thrash *thrash;
    struct sl_engine *engine;
    struct sl_engine_layer layers[THRASH_POOLS][LAYERS];
    uint64_t memory_bytes[THRASH_POOLS], part_bytes[THRASH_POOLS];
    uint32_t free_blocks[DEVICE_BLOCKS];
    uint32_t free_count;
    struct op asides[ASIDES_MAX];
    uint32_t aside_count;
    uint64_t *part; /* the right bytes of one part */
};

/* ---- memory ---- */

static void lay_out(struct thrash_engine *engine)
{
    for (uint32_t p = 0; p < THRASH_POOLS; p++) {
        uint64_t offset_bytes = 0;
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint64_t bytes = piece_bytes[p][l];
            engine->layers[p][l] = (struct sl_engine_layer){.offset_bytes = offset_bytes,
                                                            .length_bytes = bytes * DEVICE_BLOCKS,
                                                            .block_stride_bytes = bytes,
                                                            .piece_bytes = bytes};
            offset_bytes = sl_align_up(offset_bytes + bytes * DEVICE_BLOCKS, LAYER_ALIGN);
            engine->part_bytes[p] += bytes;
        }
        engine->memory_bytes[p] = offset_bytes;
    }
}

/* Makes the contents of a chat's block in one rank and pool. */
static void part_make(struct thrash_engine *engine, uint32_t block, uint32_t rank, uint32_t pool)
{
    replay_part((uint64_t)block + 1, rank, pool, engine->part, engine->part_bytes[pool]);
}

/* Makes the pattern of a device block that no op uses: unlike any chat's. */
static void pattern_make(struct thrash_engine *engine, uint32_t device_block, uint32_t rank,
                         uint32_t pool)
{
    replay_part(UINT64_MAX - device_block, rank, pool, engine->part, engine->part_bytes[pool]);
}

/* Copies engine->part into the block, or compares; layer LAYERS: all of them. */
static bool pieces(struct thrash_engine *engine, uint32_t device_block, uint32_t rank,
                   uint32_t pool, bool fill, uint32_t only)
{
    unsigned char *base = sl_engine_memory(engine->engine, rank, pool);
    unsigned char *part = (unsigned char *)engine->part;
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_engine_layer *layer = &engine->layers[pool][l];
        unsigned char *at = base + layer->offset_bytes + device_block * layer->block_stride_bytes;
        if (only != LAYERS && only != l) {
            part += layer->piece_bytes;
            continue;
        }
        if (fill) {
            memcpy(at, part, layer->piece_bytes);
        } else if (memcmp(at, part, layer->piece_bytes) != 0) {
            return false;
        }
        part += layer->piece_bytes;
    }
    return true;
}

typedef void (*part_fn)(struct thrash_engine *engine, uint32_t number, uint32_t rank,
                        uint32_t pool);

static bool layer_each(struct thrash_engine *engine, uint32_t device_block, part_fn make,
                       uint32_t number, bool fill, uint32_t layer)
{
    for (uint32_t rank = 0; rank < THRASH_RANKS; rank++) {
        for (uint32_t pool = 0; pool < THRASH_POOLS; pool++) {
            make(engine, number, rank, pool);
            if (!pieces(engine, device_block, rank, pool, fill, layer)) {
                return false;
            }
        }
    }
    return true;
}

static bool block_each(struct thrash_engine *engine, uint32_t device_block, part_fn make,
                       uint32_t number, bool fill)
{
    return layer_each(engine, device_block, make, number, fill, LAYERS);
}

static void blocks_give(struct thrash_engine *engine, const struct op *op)
{
    for (uint32_t i = 0; i < op->block_count; i++) {
        (void)block_each(engine, op->blocks[i], pattern_make, op->blocks[i], true);
    }
    /* The oldest is taken first, so that a block rests as long as possible before it is checked. */
    memmove(&engine->free_blocks[op->block_count], engine->free_blocks,
            engine->free_count * sizeof *engine->free_blocks);
    memcpy(engine->free_blocks, op->blocks, op->block_count * sizeof *op->blocks);
    engine->free_count += op->block_count;
}

static bool blocks_take(struct thrash_engine *engine, struct op *op)
{
    if (engine->free_count < op->block_count) {
        return false;
    }
    engine->free_count -= op->block_count;
    memcpy(op->blocks, &engine->free_blocks[engine->free_count],
           op->block_count * sizeof *op->blocks);
    for (uint32_t i = 0; i < op->block_count; i++) {
        if (!block_each(engine, op->blocks[i], pattern_make, op->blocks[i], false)) {
            thrash_count(engine->thrash, THRASH_touched, 1);
            thrash_note(engine->thrash->shared,
                        "touched: device block %u changed while it was ours", op->blocks[i]);
        }
    }
    return true;
}

/* ---- fences ---- */

static bool op_fenced(struct thrash_engine *engine, struct op *op, uint64_t timeout_ns)
{
    struct thrash_call call = thrash_call_begin(engine->thrash, "fence");
    sl_err err = op->result.fenced ? SL_OK : sl_op_wait_fenced(op->handle, timeout_ns, NULL);
    (void)thrash_call_end(engine->thrash, call, err == SL_ERR_TIMEOUT ? SL_OK : err, timeout_ns);
    return err == SL_OK;
}

static void asides_look(struct thrash_engine *engine, uint64_t timeout_ns)
{
    for (uint32_t i = 0; i < engine->aside_count;) {
        struct op *op = &engine->asides[i];
        if (op_fenced(engine, op, timeout_ns)) {
            blocks_give(engine, op);
            sl_op_release(&op->handle);
            *op = engine->asides[--engine->aside_count];
        } else {
            i++;
        }
    }
}

/* After the end of an op: its blocks return to us, now or later. */
static void op_finish(struct thrash_engine *engine, struct op *op)
{
    if (op->handle == NULL || op_fenced(engine, op, engine->thrash->shared->timeout_ns)) {
        blocks_give(engine, op);
        sl_op_release(&op->handle);
        return;
    }
    SL_ASSERT(engine->aside_count < ASIDES_MAX); /* no op starts at this limit */
    engine->asides[engine->aside_count++] = *op;
}

/* ---- ops ---- */

/* Blocks of the probe have no history. */
static bool has_history(uint32_t block)
{
    return block < THRASH_CHATS * THRASH_CHAT_BLOCKS;
}

static struct thrash_object *row_of(const struct thrash_engine *engine, uint32_t block)
{
    return &engine->thrash->shared->blocks[block];
}

static sl_err op_start(struct thrash_engine *engine, struct op *op)
{
    struct thrash *thrash = engine->thrash;
    uint32_t tokens[THRASH_CHAT_BLOCKS * THRASH_TOKENS];
    thrash_tokens(op->chat, op->block_count, tokens);
    op->began_clock = atomic_load_explicit(&thrash->shared->clock, memory_order_relaxed);
    for (uint32_t i = 0; i < op->block_count; i++) {
        uint32_t block = thrash_block(op->chat, i);
        if (has_history(block)) {
            const struct thrash_object *row = row_of(engine, block);
            op->before[i] = atomic_load_explicit(&row->word, memory_order_acquire);
            op->clock[i] = atomic_load_explicit(&row->clock, memory_order_relaxed);
        }
        if (op->store && !op->by_layers) {
            (void)block_each(engine, op->blocks[i], part_make, block, true);
        }
    }
    const struct sl_op_request request = {.tokens = tokens,
                                          .token_count = op->block_count * THRASH_TOKENS,
                                          .device_blocks = op->blocks,
                                          .device_block_count = op->block_count,
                                          .timeout_ns = thrash->shared->timeout_ns,
                                          .layer_count = op->by_layers ? LAYERS : 0};
    return op->store ? sl_store_start(engine->engine, &request, &op->handle, &op->result.why)
                     : sl_load_start(engine->engine, &request, &op->handle, &op->result.why);
}

/* Computes a layer of a store: until then its blocks hold contents that must not be stored. */
static void layer_compute(struct thrash_engine *engine, struct op *op, uint32_t layer)
{
    for (uint32_t i = 0; i < op->block_count; i++) {
        (void)layer_each(engine, op->blocks[i], part_make, thrash_block(op->chat, i), true, layer);
    }
    (void)sl_op_layer_ready(op->handle, layer, NULL); /* an error also fails the op */
}

static void layers_compute(struct thrash_engine *engine, struct op *ops, uint32_t count,
                           uint32_t first, uint32_t end)
{
    for (uint32_t layer = first; layer < end; layer++) {
        bool any = false;
        for (uint32_t i = 0; i < count; i++) {
            if (ops[i].handle != NULL && ops[i].store && ops[i].by_layers) {
                layer_compute(engine, &ops[i], layer);
                any = true;
            }
        }
        if (any) {
            thrash_sleep_ns(thrash_below(&engine->thrash->random, LAYER_NS));
        }
    }
}

/* Checks layers as they are reported: they have the right bytes at once, for exactly the blocks
 * that the load ends with. */
static void layers_load(struct thrash_engine *engine, struct op *op)
{
    struct thrash *thrash = engine->thrash;
    uint32_t blocks = 0;
    while (op->layers_told < LAYERS &&
           sl_op_layer_wait(op->handle, op->layers_told, thrash->shared->timeout_ns, &blocks,
                            NULL) == SL_OK) {
        op->blocks_told = blocks;
        for (uint32_t i = 0; i < blocks; i++) {
            if (!layer_each(engine, op->blocks[i], part_make, thrash_block(op->chat, i), false,
                            op->layers_told)) {
                thrash_count(thrash, THRASH_wrong, 1);
                thrash_note(thrash->shared, "wrong: layer %u of block %u of chat %u",
                            op->layers_told, i, op->chat);
            }
        }
        op->layers_told++;
    }
}

static void op_wait(struct thrash_engine *engine, struct op *op)
{
    struct sl_op_result result;
    if (op->by_layers && !op->store) {
        layers_load(engine, op);
    }
    sl_err err = sl_op_wait(op->handle, 0, &result);
    SL_ASSERT(err == SL_OK); /* waiting without a limit always succeeds */
    op->result = result;
    if (op->layers_told > 0 && result.code == SL_OK && result.block_count != op->blocks_told) {
        thrash_count(engine->thrash, THRASH_wrong, 1);
        thrash_note(engine->thrash->shared,
                    "wrong: layers of %u blocks were reported, %u are loaded", op->blocks_told,
                    result.block_count);
    }
}

static void store_note(struct thrash_engine *engine, const struct op *op)
{
    for (uint32_t i = 0; i < op->block_count; i++) {
        uint32_t block = thrash_block(op->chat, i);
        bool stored = sl_op_block_stored(op->handle, i);
        if (!has_history(block) || (!stored && !sl_op_block_existed(op->handle, i))) {
            continue;
        }
        struct thrash_object *row = row_of(engine, block);
        thrash_count(engine->thrash, THRASH_blocks_stored, stored);
        /* A block that existed may be old. We may also have been stopped since the store: only its
         * beginning is known. */
        if (stored) {
            atomic_store_explicit(&row->clock, op->began_clock, memory_order_relaxed);
        }
        atomic_store_explicit(&row->word, thrash_word(1, THRASH_PRESENT), memory_order_release);
    }
}

/* Whether the block, acknowledged before, may be gone for lack of disk space. */
static bool may_be_evicted(const struct thrash_engine *engine, uint64_t clock)
{
    const struct thrash_shared *shared = engine->thrash->shared;
    uint64_t now = atomic_load_explicit(&shared->clock, memory_order_relaxed);
    return !shared->strict && now - SL_MIN(now, clock) > shared->recent_bytes;
}

/* A load reported this block as missing. No client removes blocks of a chat. */
static void miss_note(struct thrash_engine *engine, const struct op *op, uint32_t number)
{
    struct thrash *thrash = engine->thrash;
    uint32_t block = thrash_block(op->chat, number);
    if (!has_history(block) || thrash_phase(op->before[number]) != THRASH_PRESENT) {
        return;
    }
    struct thrash_object *row = row_of(engine, block);
    if (may_be_evicted(engine, op->clock[number])) {
        thrash_count(thrash, THRASH_misses_of_evicted, 1);
        return;
    }
    thrash_count(thrash, THRASH_false_misses, 1);
    thrash_note(thrash->shared, "false miss: block %u of chat %u, trace %016jx", number, op->chat,
                (uintmax_t)op->result.trace_id);
    uint64_t until_ns = sl_clock_monotonic_ns() + thrash->shared->timeout_ns;
    while (sl_clock_monotonic_ns() < until_ns) {
        struct op again = {.chat = op->chat, .block_count = number + 1};
        if (!blocks_take(engine, &again)) {
            return;
        }
        if (op_start(engine, &again) == SL_OK) {
            op_wait(engine, &again);
        }
        bool there =
            again.handle != NULL && again.result.code == SL_OK && again.result.block_count > number;
        op_finish(engine, &again);
        if (there || engine->aside_count >= ASIDES_MAX - OPS_MAX) {
            return;
        }
        thrash_sleep_ns(RETRY_NS);
    }
    uint64_t word = op->before[number];
    if (atomic_compare_exchange_strong_explicit(&row->word, &word, thrash_word(1, THRASH_ABSENT),
                                                memory_order_acq_rel, memory_order_relaxed)) {
        thrash_count(thrash, THRASH_lost, 1);
        thrash_note(thrash->shared, "lost: block %u of chat %u", number, op->chat);
    }
}

static void load_check(struct thrash_engine *engine, const struct op *op)
{
    struct thrash *thrash = engine->thrash;
    const struct sl_op_result *result = &op->result;
    /* Not ended by a deadline: then a miss is no answer, but loaded blocks count. */
    bool told = result->code == SL_OK || result->code == SL_ERR_NOT_FOUND;
    if (!told && result->code != SL_ERR_INCOMPLETE) {
        return;
    }
    SL_ASSERT(result->block_count <= op->block_count);
    for (uint32_t i = 0; i < result->block_count; i++) {
        uint32_t block = thrash_block(op->chat, i);
        if (block_each(engine, op->blocks[i], part_make, block, false)) {
            thrash_count(thrash, THRASH_reads_verified, 1);
            thrash_count(thrash, THRASH_blocks_verified, 1);
            thrash_count(thrash, THRASH_bytes_verified,
                         THRASH_RANKS * (engine->part_bytes[0] + engine->part_bytes[1]));
        } else {
            thrash_count(thrash, THRASH_wrong, 1);
            thrash_note(thrash->shared, "wrong: block %u of chat %u, trace %016jx", i, op->chat,
                        (uintmax_t)result->trace_id);
        }
    }
    if (result->code == SL_OK &&
        result->from_memory + result->from_disk + result->from_remote != result->block_count) {
        thrash_count(thrash, THRASH_wrong, 1);
        thrash_note(thrash->shared, "wrong: tiers do not sum up, trace %016jx",
                    (uintmax_t)result->trace_id);
    }
    if (told && result->block_count < op->block_count) {
        miss_note(engine, op, result->block_count);
    }
}

/* Starts all ops, cancels some, waits for all, and judges them. */
static void ops_run(struct thrash_engine *engine, struct op *ops, uint32_t count)
{
    struct thrash *thrash = engine->thrash;
    struct thrash_call calls[OPS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        calls[i] = thrash_call_begin(thrash, ops[i].store ? "store" : "load");
        ops[i].result.code = op_start(engine, &ops[i]);
        if (ops[i].handle == NULL) {
            (void)thrash_call_end(thrash, calls[i], ops[i].result.code, thrash->shared->timeout_ns);
        }
    }
    layers_compute(engine, ops, count, 0, LAYERS - 1);
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].handle != NULL && ops[i].cancelled) {
            struct thrash_call call = thrash_call_begin(thrash, "cancel");
            sl_err err = sl_op_cancel(ops[i].handle, NULL);
            (void)thrash_call_end(thrash, call, err, SL_NS_PER_S);
        }
    }
    layers_compute(engine, ops, count, LAYERS - 1, LAYERS);
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].handle != NULL) {
            op_wait(engine, &ops[i]);
            (void)thrash_call_end(thrash, calls[i],
                                  ops[i].cancelled && ops[i].result.code == SL_ERR_CANCELLED
                                      ? SL_OK
                                      : ops[i].result.code,
                                  thrash->shared->timeout_ns);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].handle != NULL && ops[i].store) {
            store_note(engine, &ops[i]);
        } else if (ops[i].handle != NULL) {
            load_check(engine, &ops[i]);
        }
        op_finish(engine, &ops[i]);
    }
}

static void step(struct thrash_engine *engine, uint32_t *chats)
{
    struct thrash *thrash = engine->thrash;
    struct op ops[OPS_MAX] = {0};
    uint32_t wanted = 1 + (uint32_t)thrash_below(&thrash->random, OPS_MAX);
    uint32_t count = 0;
    asides_look(engine, engine->aside_count >= ASIDES_MAX - OPS_MAX ? thrash->shared->timeout_ns
                                                                    : SL_NS_PER_MS);
    while (count < wanted && engine->aside_count + count < ASIDES_MAX - OPS_MAX) {
        struct op *op = &ops[count];
        op->block_count = 1 + (uint32_t)thrash_below(&thrash->random, THRASH_CHAT_BLOCKS);
        op->store = thrash_below(&thrash->random, 4) == 0;
        uint64_t bytes = (uint64_t)op->block_count * THRASH_RANKS *
                         (sl_align_up(engine->part_bytes[0], SL_PAGE_BYTES) +
                          sl_align_up(engine->part_bytes[1], SL_PAGE_BYTES));
        /* A store is mostly of a new chat, else of one that may exist in part. */
        bool fresh = op->store && *chats < THRASH_CHATS && thrash_may_put(thrash, bytes);
        op->chat = fresh ? (*chats)++ : (uint32_t)thrash_below(&thrash->random, *chats);
        op->store = op->store &&
                    (fresh || thrash->shared->strict == false || thrash_may_put(thrash, bytes / 4));
        op->cancelled = thrash_below(&thrash->random, CANCELS_OF) == 0;
        op->by_layers = thrash_below(&thrash->random, LAYERED_OF) == 0;
        if (!blocks_take(engine, op)) {
            break;
        }
        count++;
    }
    ops_run(engine, ops, count);
}

/* ---- open, close ---- */

struct thrash_engine *thrash_engine_open(struct thrash *thrash, const char *name,
                                         struct sl_error *why)
{
    struct thrash_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    engine->thrash = thrash;
    lay_out(engine);
    engine->part = malloc(sl_align_up(SL_MAX(engine->part_bytes[0], engine->part_bytes[1]), 8));
    const struct sl_engine_pool pools[THRASH_POOLS] = {{.name = "attention",
                                                        .layer_count = LAYERS,
                                                        .layers = engine->layers[0],
                                                        .memory_bytes = engine->memory_bytes[0]},
                                                       {.name = "state",
                                                        .kind = SL_POOL_MAMBA_STATE,
                                                        .layer_count = LAYERS,
                                                        .layers = engine->layers[1],
                                                        .memory_bytes = engine->memory_bytes[1]}};
    const struct sl_engine_options options = {
        .name = name,
        .model = {.name = "thrash", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = "sluice",
        .block_tokens = THRASH_TOKENS,
        .world = THRASH_RANKS,
        .block_count = DEVICE_BLOCKS,
        .pool_count = THRASH_POOLS,
        .pools = pools,
    };
    struct thrash_call call = thrash_call_begin(thrash, "register");
    sl_err err = engine->part == NULL
                     ? SL_ERR_NO_MEMORY
                     : sl_engine_register(thrash->client, &options, thrash->shared->timeout_ns,
                                          &engine->engine, why);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    if (err != SL_OK) {
        free(engine->part);
        free(engine);
        return NULL;
    }
    struct op all = {0};
    for (uint32_t i = 0; i < DEVICE_BLOCKS; i++) {
        all.block_count = 1;
        all.blocks[0] = i;
        blocks_give(engine, &all);
    }
    return engine;
}

void thrash_engine_close(struct thrash_engine **engine)
{
    struct thrash_engine *gone = *engine;
    if (gone == NULL) {
        return;
    }
    asides_look(gone, gone->thrash->shared->timeout_ns);
    for (uint32_t i = 0; i < gone->aside_count; i++) {
        sl_op_release(&gone->asides[i].handle);
    }
    sl_engine_end(&gone->engine);
    free(gone->part);
    free(gone);
    *engine = NULL;
}

static sl_err one_op(struct thrash_engine *engine, uint32_t chat, uint32_t blocks, bool store)
{
    struct op op = {.store = store, .chat = chat, .block_count = blocks};
    asides_look(engine, SL_NS_PER_MS);
    if (engine->aside_count >= ASIDES_MAX - OPS_MAX || !blocks_take(engine, &op)) {
        return SL_ERR_LIMIT;
    }
    ops_run(engine, &op, 1);
    /* ops_run keeps the op when its blocks are not free; the result is available in any case. */
    return op.result.code != SL_OK                    ? op.result.code
           : !store && op.result.block_count < blocks ? SL_ERR_NOT_FOUND
                                                      : SL_OK;
}

sl_err thrash_engine_store(struct thrash_engine *engine, uint32_t chat, uint32_t blocks)
{
    return one_op(engine, chat, blocks, true);
}

sl_err thrash_engine_load(struct thrash_engine *engine, uint32_t chat, uint32_t blocks)
{
    return one_op(engine, chat, blocks, false);
}

int thrash_engine_main(struct thrash *thrash)
{
    struct thrash_engine *engine = NULL;
    const struct thrash_shared *shared = thrash->shared;
    char name[32] = "thrash-0";
    name[7] = (char)('0' + thrash->number % 10);
    if (!thrash_attach(thrash)) {
        return 0;
    }
    while (engine == NULL && !atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        engine = thrash_engine_open(thrash, name, NULL);
        if (engine == NULL) {
            thrash_sleep_ns(RETRY_NS);
        }
    }
    /* Engines store different chats, and load all. A new life continues after the last one
     * stored. */
    uint32_t chats = 1;
    for (uint32_t i = 0; i < THRASH_CHATS; i++) {
        uint64_t word =
            atomic_load_explicit(&shared->blocks[thrash_block(i, 2)].word, memory_order_relaxed);
        chats = word != 0 ? i + 1 : chats;
    }
    while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        step(engine, &chats);
    }
    thrash_engine_close(&engine);
    sl_client_close(&thrash->client);
    return 0;
}
