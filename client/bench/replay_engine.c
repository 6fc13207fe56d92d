/* client/bench/replay_engine.c - an engine of N ranks on host memory: device blocks, ops, and what
 * is checked about them. */
#include "client/bench/replay_engine.h"
#include "client/bench/replay_content.h"
#include "runtime/keys/sl_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POISON           0xa5
#define KNOWN_ROOM_FIRST (1u << 16)
#define POOL_NAME_BYTES  16u

/* ---- memory ---- */

static unsigned char *piece_at(const struct replay *replay, unsigned char *base, uint64_t layer,
                               uint32_t block)
{
    const struct sl_engine_layer *at = &replay->layers[layer];
    return base + at->offset_bytes + block * at->block_stride_bytes;
}

static void block_poison(struct replay *replay, uint32_t block)
{
    for (uint32_t i = 0; i < replay->options.ranks * replay->options.pools; i++) {
        unsigned char *base =
            sl_engine_memory(replay->side->engine, i / (uint32_t)replay->options.pools,
                             i % (uint32_t)replay->options.pools);
        for (uint64_t l = 0; l < replay->options.layers; l++) {
            memset(piece_at(replay, base, l, block), POISON, replay->layers[l].piece_bytes);
        }
    }
}

/* "Computes" a block: its right bytes on every rank and pool. */
static void block_compute(struct replay *replay, uint32_t block, uint64_t chain)
{
    for (uint32_t i = 0; i < replay->options.ranks * replay->options.pools; i++) {
        uint32_t rank = i / (uint32_t)replay->options.pools;
        uint32_t pool = i % (uint32_t)replay->options.pools;
        unsigned char *base = sl_engine_memory(replay->side->engine, rank, pool);
        const unsigned char *from = (const unsigned char *)replay->part;
        replay_part(chain, rank, pool, replay->part, replay->options.block_bytes);
        for (uint64_t l = 0; l < replay->options.layers; l++) {
            memcpy(piece_at(replay, base, l, block), from, replay->layers[l].piece_bytes);
            from += replay->layers[l].piece_bytes;
        }
    }
}

static void mismatch(struct replay *replay, uint32_t number, uint32_t rank, uint32_t pool,
                     uint64_t layer)
{
    if (replay->report.mismatches++ < REPLAY_MISMATCH_SAID) {
        (void)fprintf(stderr,
                      "sluicectl replay: wrong bytes: request %" PRIu64
                      ", block %u, rank %u, pool %u, layer %" PRIu64 "\n",
                      replay->report.requests, number, rank, pool, layer);
    }
}

/* Every byte of a loaded block, on every rank and pool. */
static void block_check(struct replay *replay, uint32_t number)
{
    for (uint32_t i = 0; i < replay->options.ranks * replay->options.pools; i++) {
        uint32_t rank = i / (uint32_t)replay->options.pools;
        uint32_t pool = i % (uint32_t)replay->options.pools;
        unsigned char *base = sl_engine_memory(replay->side->engine, rank, pool);
        const unsigned char *right = (const unsigned char *)replay->part;
        replay_part(replay->chains[number], rank, pool, replay->part, replay->options.block_bytes);
        for (uint64_t l = 0; l < replay->options.layers; l++) {
            if (memcmp(piece_at(replay, base, l, replay->blocks[number]), right,
                       replay->layers[l].piece_bytes) != 0) {
                mismatch(replay, number, rank, pool, l);
                break;
            }
            right += replay->layers[l].piece_bytes;
        }
    }
}

/* ---- device blocks ---- */

static void blocks_free(struct replay *replay, const uint32_t *blocks, uint32_t count)
{
    memcpy(&replay->free_blocks[replay->free_count], blocks, count * sizeof *blocks);
    replay->free_count += count;
}

/* Looks again whether blocks that were set aside are free; a little wait each, a lot when they are
 * needed. */
static void asides_look(struct replay *replay, uint32_t needed)
{
    for (uint32_t i = 0; i < replay->aside_count;) {
        struct replay_aside *aside = &replay->asides[i];
        uint64_t wait_ns =
            replay->free_count < needed ? replay->options.op_timeout_ns : SL_NS_PER_MS;
        if (sl_op_wait_fenced(aside->op, wait_ns, NULL) != SL_OK) {
            i++;
            continue;
        }
        blocks_free(replay, aside->blocks, aside->count);
        free(aside->blocks);
        sl_op_release(&aside->op);
        *aside = replay->asides[--replay->aside_count];
    }
}

static bool blocks_take(struct replay *replay)
{
    if (replay->aside_count > 0) {
        asides_look(replay, replay->block_count);
    }
    if (replay->free_count < replay->block_count) {
        return false;
    }
    replay->free_count -= replay->block_count;
    memcpy(replay->blocks, &replay->free_blocks[replay->free_count],
           replay->block_count * sizeof *replay->blocks);
    return true;
}

/* After the end of an op: true when its blocks are ours again. Otherwise they are set aside with
 * the op. */
static bool op_finish(struct replay *replay, struct sl_op **op, bool fenced)
{
    if (fenced || sl_op_wait_fenced(*op, replay->options.op_timeout_ns, NULL) == SL_OK) {
        sl_op_release(op);
        return true;
    }
    uint32_t *kept = malloc((replay->block_count + 1) * sizeof *kept);
    if (kept == NULL || replay->aside_count == REPLAY_ASIDES_MAX) {
        free(kept); /* these blocks are not used any more in this run */
        sl_op_release(op);
        return false;
    }
    memcpy(kept, replay->blocks, replay->block_count * sizeof *kept);
    replay->asides[replay->aside_count++] =
        (struct replay_aside){.op = *op, .blocks = kept, .count = replay->block_count};
    *op = NULL;
    return false;
}

/* ---- what was acknowledged ---- */

static bool known_has(const struct replay *replay, uint64_t chain)
{
    for (uint64_t at = chain & (replay->side->known_room - 1); replay->side->known[at] != 0;
         at = (at + 1) & (replay->side->known_room - 1)) {
        if (replay->side->known[at] == chain) {
            return true;
        }
    }
    return false;
}

static void known_put(uint64_t *table, uint64_t room, uint64_t chain)
{
    uint64_t at = chain & (room - 1);
    while (table[at] != 0) {
        at = (at + 1) & (room - 1);
    }
    table[at] = chain;
}

static void known_add(struct replay *replay, uint64_t chain)
{
    if (chain == 0 || known_has(replay, chain)) {
        return;
    }
    if (replay->side->known_count * 2 >= replay->side->known_room) {
        uint64_t *larger = calloc(replay->side->known_room * 2, sizeof *larger);
        if (larger == NULL) {
            return; /* remembers less: a loss of this block would not be seen */
        }
        for (uint64_t i = 0; i < replay->side->known_room; i++) {
            if (replay->side->known[i] != 0) {
                known_put(larger, replay->side->known_room * 2, replay->side->known[i]);
            }
        }
        free(replay->side->known);
        replay->side->known = larger;
        replay->side->known_room *= 2;
    }
    known_put(replay->side->known, replay->side->known_room, chain);
    replay->side->known_count++;
}

/* ---- ops ---- */

/* Runs one op to its end. False: it could not even start. */
static bool op_run(struct replay *replay, bool store, uint32_t first_block, struct sl_op **op,
                   struct sl_op_result *result)
{
    struct sl_error why = {0};
    uint64_t trace_id = replay_chain(sl_clock_wall_ns(), replay->tokens, 1) | 1;
    struct sl_prefill prefill = {0};
    if (!store && !replay->options.prefill_untold) {
        prefill = replay->options.prefill;
    }
    const struct sl_op_request request = {.tokens = replay->tokens,
                                          .token_count = replay->token_count,
                                          .first_block = first_block,
                                          .partial = true,
                                          .device_blocks = &replay->blocks[first_block],
                                          .device_block_count = replay->block_count - first_block,
                                          .timeout_ns = replay->options.op_timeout_ns,
                                          .trace_id = trace_id,
                                          .hints = replay->said,
                                          .prefill = prefill};
    uint64_t started_ns = sl_clock_monotonic_ns();
    sl_trace_event(replay->side->metrics, started_ns, trace_id,
                   store ? "store start" : "load start", "coordinator",
                   replay->block_count - first_block);
    sl_err err = store ? sl_store_start(replay->side->engine, &request, op, &why)
                       : sl_load_start(replay->side->engine, &request, op, &why);
    if (err == SL_OK) {
        err = sl_op_wait(*op, 0, result);
        SL_ASSERT(err == SL_OK); /* an op that is awaited to its end always ends */
    } else {
        *result =
            (struct sl_op_result){.code = err, .trace_id = trace_id, .fenced = true, .why = why};
    }
    uint64_t ended_ns = sl_clock_monotonic_ns();
    sl_trace_event(replay->side->metrics, ended_ns, trace_id, store ? "store end" : "load end", "",
                   result->code == SL_OK ? result->block_count : (uint32_t)result->code);
    sl_metrics_beat(replay->side->metrics, ended_ns);
    replay_note_op(replay, result, store, ended_ns - started_ns);
    return *op != NULL;
}

/* The engine's time to the first token: the load, then all that it did not bring is computed. */
static void first_token_note(struct replay *replay, uint32_t loaded, uint64_t load_ns)
{
    const struct sl_prefill *prefill = &replay->options.prefill;
    uint64_t first = SL_MIN((uint64_t)loaded * REPLAY_BLOCK_TOKENS, (uint64_t)replay->token_count);
    double from = (double)first, end = (double)replay->token_count, work = end - from;
    if (prefill->tokens_per_s == 0) {
        return;
    }
    if (prefill->doubles_at_token != 0) {
        work += (end * end - from * from) / (2.0 * (double)prefill->doubles_at_token);
    }
    double compute_s = work / (double)prefill->tokens_per_s;
    struct timespec pause = {.tv_sec = (time_t)compute_s,
                             .tv_nsec = (long)((compute_s - (double)(time_t)compute_s) * 1e9)};
    (void)nanosleep(&pause, NULL); /* meanwhile the node does what an engine lets it do */
    replay->report.waited_s += (double)load_ns / 1e9;
    replay->report.compute_s += compute_s;
}

/* Loads the longest prefix and checks it. Gives the number of blocks that are right on the device.
 */
static uint32_t prefix_load(struct replay *replay, bool *blocks_ours, bool *told)
{
    struct sl_op *op = NULL;
    struct sl_op_result result = {0};
    struct replay_report *report = &replay->report;
    for (uint32_t i = 0; i < replay->block_count; i++) {
        block_poison(replay, replay->blocks[i]); /* what is stale cannot pass */
    }
    uint64_t started_ns = sl_clock_monotonic_ns();
    bool started = op_run(replay, false, 0, &op, &result);
    uint64_t load_ns = sl_clock_monotonic_ns() - started_ns;
    bool fine = result.code == SL_OK && result.block_count <= replay->block_count;
    *told = (result.code == SL_OK || result.code == SL_ERR_NOT_FOUND) &&
            result.not_awaited_count == 0; /* else what is missing is there */
    uint32_t loaded = fine ? result.block_count : 0;
    first_token_note(replay, loaded, load_ns);
    report->not_awaited += result.not_awaited_count;
    for (uint32_t i = 0; i < loaded; i++) {
        block_check(replay, i);
        known_add(replay, replay->chains[i]);
    }
    if (fine) {
        report->hits += loaded;
        report->from_memory += result.from_memory;
        report->from_disk += result.from_disk;
        report->from_remote += result.from_remote;
        report->bytes_loaded += result.bytes;
    }
    if (fine && result.from_memory + result.from_disk + result.from_remote != loaded) {
        const struct sl_error why = {.code = SL_ERR_PROTOCOL,
                                     .text = "tier counts do not sum to the blocks loaded"};
        replay_note_failure(replay, (struct replay_op_row){.trace_id = result.trace_id}, &why);
    }
    *blocks_ours = !started || op_finish(replay, &op, result.fenced);
    return loaded;
}

/* Stores what was computed; notes what is acknowledged now, and what turned out to be gone. */
static bool rest_store(struct replay *replay, uint32_t loaded)
{
    struct sl_op *op = NULL;
    struct sl_op_result result = {0};
    struct replay_report *report = &replay->report;
    if (!op_run(replay, true, loaded, &op, &result)) {
        return true;
    }
    uint32_t stored = 0;
    uint32_t existed = 0;
    for (uint32_t i = loaded; i < replay->block_count; i++) {
        bool anew = sl_op_block_stored(op, i - loaded);
        bool was_there = sl_op_block_existed(op, i - loaded);
        stored += anew;
        existed += was_there;
        /* The first one was counted when it was not loaded. */
        if (anew && i > loaded && known_has(replay, replay->chains[i])) {
            report->misses_of_acknowledged++;
        }
        if (anew || was_there) {
            known_add(replay, replay->chains[i]);
        }
    }
    report->blocks_stored += stored;
    report->blocks_existed += existed;
    report->blocks_not_stored += replay->block_count - loaded - stored - existed;
    report->bytes_stored += (uint64_t)stored * replay->options.block_bytes * replay->options.ranks *
                            replay->options.pools;
    return op_finish(replay, &op, result.fenced);
}

/* Tokens, chains and the number of blocks that the key format has keys for. */
static void request_prepare(struct replay *replay, const struct replay_request *request)
{
    const struct sl_keys_request form = {.format = replay->options.key_format,
                                         .tokens = replay->tokens,
                                         .token_count = request->input_length,
                                         .block_tokens = REPLAY_BLOCK_TOKENS,
                                         .partial = true};
    uint64_t keyed = request->id_count;
    replay->token_count = request->input_length;
    replay_tokens(&replay->trace.ids[request->first_id], request->id_count, REPLAY_BLOCK_TOKENS,
                  request->input_length, replay->tokens);
    (void)sl_keys_count(&form, &keyed, NULL);
    replay->block_count = (uint32_t)SL_MIN(keyed, request->id_count);
    uint64_t chain = 0;
    for (uint32_t i = 0; i < replay->block_count; i++) {
        uint32_t first = i * REPLAY_BLOCK_TOKENS;
        chain = replay_chain(chain, &replay->tokens[first],
                             SL_MIN(REPLAY_BLOCK_TOKENS, replay->token_count - first));
        replay->chains[i] = chain;
    }
}

/* What the engine says with the request. */
static void request_hint(struct replay *replay, uint64_t number)
{
    bool ends = replay->ends != NULL && replay->ends[number] != 0;
    replay->said = (struct sl_hints){.session = replay_hint(&replay->options.hints, ends, number)};
    if (replay->pauses != NULL) {
        uint64_t ms = replay_pause(&replay->options.pauses, replay->pauses,
                                   replay->trace.request_count, number);
        replay->said.pause_ns = (uint64_t)((double)ms * 1e6 / replay->options.speed);
        replay->said.pause_ns = SL_MIN(replay->said.pause_ns, SL_KEEP_NS_LIMIT);
        replay->report.pauses_told += ms != 0 ? 1 : 0;
    }
    replay->report.ends_told += replay->said.session == SL_SESSION_ENDS ? 1 : 0;
    replay->report.goes_on_told += replay->said.session == SL_SESSION_GOES_ON ? 1 : 0;
}

void replay_request_play(struct replay *replay, uint64_t number)
{
    const struct replay_request *request = &replay->trace.requests[number];
    request_prepare(replay, request);
    request_hint(replay, number);
    replay->report.block_references += request->id_count;
    if (replay->block_count > 0 && !blocks_take(replay)) {
        struct sl_error why;
        (void)sl_fail(&why, SL_ERR_LIMIT, "no device blocks: those of %u ops are not fenced",
                      replay->aside_count);
        replay_note_failure(replay, (struct replay_op_row){0}, &why);
        replay->report.skipped++;
    } else if (replay->block_count > 0) {
        bool ours = true;
        bool told = false;
        uint32_t loaded = prefix_load(replay, &ours, &told);
        if (told && loaded < replay->block_count && known_has(replay, replay->chains[loaded])) {
            replay->report.misses_of_acknowledged++;
        }
        if (!ours) { /* computed into other blocks, from the start */
            loaded = 0;
            ours = blocks_take(replay);
        }
        if (ours && loaded < replay->block_count) {
            for (uint32_t i = loaded; i < replay->block_count; i++) {
                block_compute(replay, replay->blocks[i], replay->chains[i]);
            }
            ours = rest_store(replay, loaded);
        }
        if (ours) {
            blocks_free(replay, replay->blocks, replay->block_count);
        }
    }
    replay->report.requests++;
}

/* ---- open, close ---- */

static sl_err arrays_make(struct replay *replay, struct sl_error *why)
{
    uint64_t blocks_max = replay->trace.blocks_max;
    replay->free_blocks = malloc(replay->options.device_blocks * sizeof *replay->free_blocks);
    replay->tokens = malloc(blocks_max * REPLAY_BLOCK_TOKENS * sizeof *replay->tokens);
    replay->blocks = malloc((blocks_max + 1) * sizeof *replay->blocks);
    replay->chains = malloc((blocks_max + 1) * sizeof *replay->chains);
    replay->part = malloc(sl_align_up(replay->options.block_bytes, 8));
    if (replay->free_blocks == NULL || replay->tokens == NULL || replay->blocks == NULL ||
        replay->chains == NULL || replay->part == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "replay of requests of %" PRIu64 " blocks",
                       blocks_max);
    }
    for (uint32_t i = 0; i < replay->options.device_blocks; i++) {
        replay->free_blocks[replay->free_count++] = i;
    }
    return SL_OK;
}

static sl_err page_open(struct replay_side *side, struct sl_error *why)
{
    const struct ctl *ctl = side->ctl;
    char path[1300];
    char name[32];
    (void)snprintf(name, sizeof name, "client.%u.replay", (uint32_t)getpid());
    (void)snprintf(path, sizeof path, "%s/metrics.%s", ctl->paths.shm_dir, name);
    struct sl_metrics_options options = {
        .path = path,
        .actor = name,
        .trace_events = (uint32_t)sl_config_u64(ctl->config, SL_SET_trace_events)};
    sl_err err = sl_proc_id_self(&options.self, why);
    if (err == SL_OK) {
        err = sl_metrics_open(&options, &side->metrics, why);
    }
    if (err == SL_OK) {
        sl_metrics_health(side->metrics, SL_HEALTH_READY, "replay");
    }
    return err;
}

static sl_err side_open(const struct replay *replay, struct replay_side *side, struct sl_error *why)
{
    const struct replay_options *options = &replay->options;
    char names[8][POOL_NAME_BYTES];
    struct sl_engine_pool pools[8];
    for (uint32_t i = 0; i < options->pools; i++) {
        (void)snprintf(names[i], sizeof names[i], "pool%u", i);
        pools[i] = (struct sl_engine_pool){.name = names[i],
                                           .kind = SL_POOL_ATTENTION,
                                           .layer_count = (uint32_t)options->layers,
                                           .layers = (struct sl_engine_layer *)replay->layers,
                                           .memory_bytes = replay->memory_bytes};
    }
    const struct sl_engine_options engine = {
        .name = "replay",
        .model = {.name = "replay", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = options->key_format,
        .block_tokens = REPLAY_BLOCK_TOKENS,
        .world = (uint32_t)options->ranks,
        .block_count = (uint32_t)options->device_blocks,
        .pool_count = (uint32_t)options->pools,
        .pools = pools,
    };
    side->known_room = KNOWN_ROOM_FIRST;
    side->known = calloc(side->known_room, sizeof *side->known);
    if (side->known == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "replay");
    }
    sl_err err = ctl_open(side->ctl, false, &side->client, why);
    if (err == SL_OK) {
        err = page_open(side, why);
    }
    if (err == SL_OK) {
        err = sl_engine_register(side->client, &engine, 0, &side->engine, why);
    }
    return err;
}

sl_err replay_engine_open(struct replay *replay, const struct ctl *ctl, struct sl_error *why)
{
    replay->memory_bytes = replay_layers(replay->options.layers, replay->options.block_bytes,
                                         replay->options.device_blocks, replay->layers);
    sl_err err = arrays_make(replay, why);
    if (err == SL_OK && replay->options.hints.kind != REPLAY_HINTS_NONE) {
        replay->ends = replay_ends(&replay->trace);
        err = replay->ends != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "ends of sessions");
    }
    if (err == SL_OK && replay->options.pauses.told > 0) {
        replay->pauses = replay_pauses(&replay->trace);
        err = replay->pauses != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "pauses of sessions");
    }
    if (err == SL_OK) {
        err = replay_sides_read(replay, ctl, why);
    }
    for (uint32_t i = 0; err == SL_OK && i < replay->side_count; i++) {
        err = side_open(replay, &replay->sides[i], why);
    }
    replay->side = &replay->sides[0];
    return err;
}

void replay_engine_close(struct replay *replay)
{
    for (uint32_t i = 0; i < replay->aside_count; i++) {
        free(replay->asides[i].blocks);
        sl_op_release(&replay->asides[i].op);
    }
    for (uint32_t i = 0; i < replay->side_count; i++) {
        struct replay_side *side = &replay->sides[i];
        sl_engine_end(&side->engine);
        if (side->metrics != NULL) {
            sl_metrics_health(side->metrics, SL_HEALTH_STOPPED, "replay ended");
        }
        sl_metrics_close(&side->metrics);
        sl_client_close(&side->client);
    }
    replay_sides_free(replay);
    free(replay->report.windows);
    replay_trace_free(&replay->trace);
    free(replay->free_blocks);
    free(replay->tokens);
    free(replay->blocks);
    free(replay->chains);
    free(replay->part);
    free(replay->ends);
    free(replay->pauses);
}
