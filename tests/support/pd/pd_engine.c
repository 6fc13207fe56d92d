/* tests/support/pd/pd_engine.c - code of both engines of a hand-over demo: device blocks on host
 * memory, requests, and the channel between the engines. */
#include "client/tools/bench/replay_content.h"
#include "tests/support/pd/pd_engines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define POISON            0xa5
#define SHARED_BEGINNINGS 5u /* "system prompts" */
#define OUTPUT_TOKENS     40u

/* ---- memory ---- */

/* Calls each() with every piece of a block in layers [first, end) and its bytes in the part. */
static uint64_t pieces_walk(struct pd_engine *engine, uint32_t block, const uint64_t *chain,
                            uint64_t first, uint64_t end,
                            uint64_t (*each)(unsigned char *piece, const unsigned char *right,
                                             uint64_t bytes))
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < engine->options->ranks; rank++) {
        unsigned char *base = sl_engine_memory(engine->engine, rank, 0);
        const unsigned char *right = (const unsigned char *)engine->part;
        if (chain != NULL) {
            replay_part(*chain, rank, 0, engine->part, engine->options->block_bytes);
        }
        for (uint64_t i = 0; i < engine->options->layers; i++) {
            const struct sl_engine_layer *at = &engine->layers[i];
            if (i >= first && i < end) {
                sum += each(base + at->offset_bytes + block * at->block_stride_bytes, right,
                            at->piece_bytes);
            }
            right += at->piece_bytes;
        }
    }
    return sum;
}

static uint64_t piece_write(unsigned char *piece, const unsigned char *right, uint64_t bytes)
{
    memcpy(piece, right, bytes);
    return 0;
}

static uint64_t piece_wrong(unsigned char *piece, const unsigned char *right, uint64_t bytes)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; memcmp(piece, right, bytes) != 0 && i < bytes; i++) {
        wrong += piece[i] != right[i] ? 1u : 0u;
    }
    return wrong;
}

static uint64_t piece_poison(unsigned char *piece, const unsigned char *right, uint64_t bytes)
{
    (void)right;
    memset(piece, POISON, bytes);
    return 0;
}

static uint64_t piece_unpoisoned(unsigned char *piece, const unsigned char *right, uint64_t bytes)
{
    uint64_t other = 0;
    (void)right;
    for (uint64_t i = 0; i < bytes; i++) {
        other += piece[i] != POISON ? 1u : 0u;
    }
    return other;
}

void pd_block_compute(struct pd_engine *engine, uint32_t block, uint64_t chain)
{
    (void)pieces_walk(engine, block, &chain, 0, engine->options->layers, piece_write);
}

void pd_layer_compute(struct pd_engine *engine, uint32_t block, uint64_t chain, uint32_t layer)
{
    (void)pieces_walk(engine, block, &chain, layer, layer + 1ull, piece_write);
}

uint64_t pd_layer_wrong(struct pd_engine *engine, uint32_t block, uint64_t chain, uint32_t layer)
{
    return pieces_walk(engine, block, &chain, layer, layer + 1ull, piece_wrong);
}

uint64_t pd_block_wrong(struct pd_engine *engine, uint32_t block, uint64_t chain)
{
    return pieces_walk(engine, block, &chain, 0, engine->options->layers, piece_wrong);
}

void pd_block_poison(struct pd_engine *engine, uint32_t block)
{
    (void)pieces_walk(engine, block, NULL, 0, engine->options->layers, piece_poison);
}

uint64_t pd_block_unpoisoned(struct pd_engine *engine, uint32_t block)
{
    return pieces_walk(engine, block, NULL, 0, engine->options->layers, piece_unpoisoned);
}

bool pd_blocks_take(struct pd_engine *engine, uint32_t *blocks, uint32_t count)
{
    if (engine->free_count < count) {
        return false;
    }
    engine->free_count -= count;
    memcpy(blocks, &engine->free_blocks[engine->free_count], count * sizeof *blocks);
    return true;
}

void pd_blocks_give(struct pd_engine *engine, const uint32_t *blocks, uint32_t count)
{
    memcpy(&engine->free_blocks[engine->free_count], blocks, count * sizeof *blocks);
    engine->free_count += count;
}

/* ---- open, close ---- */

static sl_err client_open(struct pd_engine *engine, const struct ctl *ctl, bool prefill,
                          struct sl_error *why)
{
    const struct pd_options *options = engine->options;
    const char *config = prefill ? options->prefill_config : options->decode_config;
    const struct sl_client_options client = {.api_version = SLUICE_API_VERSION,
                                             .instance = prefill ? options->prefill_instance
                                                                 : options->decode_instance,
                                             .config = config != NULL ? config : ctl->config_file,
                                             .settings = ctl->settings};
    return sl_client_open(&client, &engine->client, why);
}

sl_err pd_engine_open(struct pd_engine *engine, const struct ctl *ctl, bool prefill,
                      struct sl_error *why)
{
    const struct pd_options *options = engine->options;
    /* Input, and one block for output. */
    engine->block_count = (uint32_t)(options->concurrency * (options->blocks + 1));
    engine->memory_bytes =
        replay_layers(options->layers, options->block_bytes, engine->block_count, engine->layers);
    engine->free_blocks = malloc(engine->block_count * sizeof *engine->free_blocks);
    engine->part = malloc(sl_align_up(options->block_bytes, 8));
    if (engine->free_blocks == NULL || engine->part == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u device blocks", engine->block_count);
    }
    for (uint32_t i = 0; i < engine->block_count; i++) {
        engine->free_blocks[engine->free_count++] = i;
    }
    const struct sl_engine_pool pool = {.name = "attention",
                                        .kind = SL_POOL_ATTENTION,
                                        .layer_count = (uint32_t)options->layers,
                                        .layers = engine->layers,
                                        .memory_bytes = engine->memory_bytes};
    const struct sl_engine_options registration = {
        .name = prefill ? "pd prefill" : "pd decode",
        .model = {.name = "pd", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = options->key_format,
        .block_tokens = PD_BLOCK_TOKENS,
        .world = (uint32_t)options->ranks,
        .block_count = engine->block_count,
        .pool_count = 1,
        .pools = &pool,
    };
    sl_err err = client_open(engine, ctl, prefill, why);
    return err == SL_OK ? sl_engine_register(engine->client, &registration, 0, &engine->engine, why)
                        : err;
}

void pd_engine_close(struct pd_engine *engine)
{
    sl_engine_end(&engine->engine);
    sl_client_close(&engine->client);
    free(engine->free_blocks);
    free(engine->part);
}

/* ---- requests ---- */

static uint64_t mix(uint64_t seed, uint64_t number)
{
    return (uint64_t)replay_token(seed + 1, (uint32_t)number) << 32 |
           replay_token(seed + 2, (uint32_t)number);
}

static void chains_make(struct pd_request *request)
{
    uint64_t chain = 0;
    request->block_count = (request->token_count + PD_BLOCK_TOKENS - 1) / PD_BLOCK_TOKENS;
    for (uint32_t i = 0; i < request->block_count; i++) {
        uint32_t first = i * PD_BLOCK_TOKENS;
        chain = replay_chain(chain, &request->tokens[first],
                             SL_MIN(PD_BLOCK_TOKENS, request->token_count - first));
        request->chains[i] = chain;
    }
}

void pd_request_make(const struct pd_options *options, uint64_t number, struct pd_request *request)
{
    uint64_t dice = mix(options->seed, number);
    uint32_t shared = dice % 3 == 0 ? (uint32_t)(dice / 3 % SHARED_BEGINNINGS) + 1 : 0;
    uint32_t full = (uint32_t)(dice / 64 % options->blocks);
    /* Nine of ten requests end in a partial block. */
    uint32_t tail =
        dice / 7 % 10 == 0 ? PD_BLOCK_TOKENS : 1 + (uint32_t)(dice / 4096 % (PD_BLOCK_TOKENS - 1));
    request->token_count = full * PD_BLOCK_TOKENS + tail;
    for (uint32_t i = 0; i < request->token_count; i++) {
        bool common = shared != 0 && i < full * PD_BLOCK_TOKENS / 2;
        request->tokens[i] = common ? replay_token(options->seed + 100 + shared, i)
                                    : replay_token(options->seed + 1000 + number, i);
    }
    chains_make(request);
}

uint32_t pd_request_decode(struct pd_request *request)
{
    for (uint32_t i = 0; i < OUTPUT_TOKENS; i++) {
        request->tokens[request->token_count + i] =
            replay_token(request->chains[request->block_count - 1], i);
    }
    request->token_count += OUTPUT_TOKENS;
    chains_make(request);
    return request->block_count;
}

/* ---- the channel ---- */

bool pd_send(const struct pd_engine *engine, const struct pd_message *message)
{
    return send(engine->channel, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof *message;
}

bool pd_receive(const struct pd_engine *engine, struct pd_message *message)
{
    return recv(engine->channel, message, sizeof *message, MSG_DONTWAIT) ==
           (ssize_t)sizeof *message;
}

void pd_wait_message(const struct pd_engine *engine)
{
    struct pollfd channel = {.fd = engine->channel, .events = POLLIN};
    const struct timespec moment = {.tv_nsec = 200 * (long)SL_NS_PER_US};
    if (ppoll(&channel, 1, &moment, NULL) > 0 && (channel.revents & POLLHUP) != 0) {
        (void)nanosleep(&moment,
                        NULL); /* the other side has ended: the channel is always readable */
    }
}
