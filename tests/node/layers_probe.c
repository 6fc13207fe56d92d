/* tests/node/layers_probe.c - an engine that stores, loads and hands over by layers on a running
 * node; layers_test.py starts both.
 *
 *   layers_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Prints the name of an actor and waits for a line on standard input, so that the actor can be
 * killed between two layers. Exit code 0: all checks passed. The order of events is the proof:
 * if a layer is awaited before the next one is computed, it can only have arrived by itself. */
#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define LAYERS       4u
#define BLOCKS       5u /* blocks of a request; the last one is incomplete in hand-overs */
#define BLOCK_TOKENS 16u
#define TOKENS       (BLOCKS * BLOCK_TOKENS)
#define DEVICE       16u   /* device blocks */
#define KV_PIECE     9001u /* K, or V, of one layer */
#define STATE_PIECE  333u
#define KV_LAYERS    (2 * LAYERS)
#define STATE_LAYERS 2u /* in the layers 1 and 3 */
#define POISON       0xa5
#define MS           1000000ull
#define S            1000000000ull
#define PATIENT      (30 * S)

static struct sl_error why;
static const char *settings[4];
/* A layer's K and V are two of the pool's layers; the second pool takes part in every other
 * layer. */
static const uint32_t layer_ends[LAYERS][2] = {{2, 0}, {4, 1}, {6, 1}, {8, 2}};

struct side {
    struct sl_engine *engine;
    uint32_t blocks[BLOCKS];
};

static uint32_t tokens[TOKENS];

static void tokens_make(uint32_t seed)
{
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = seed * 1000 + i;
    }
}

static unsigned char *piece_at(struct side *side, uint32_t pool, uint32_t layer, uint32_t block)
{
    unsigned char *memory = sl_engine_memory(side->engine, 0, pool);
    uint64_t piece = pool == 0 ? KV_PIECE : STATE_PIECE;
    return memory + (layer * (uint64_t)DEVICE + side->blocks[block]) * piece;
}

static unsigned char byte_of(uint32_t pool, uint32_t layer, uint32_t block, uint64_t i)
{
    return (unsigned char)(tokens[0] + 7 * pool + 31 * layer + 101 * block + i * 13 + i / 251);
}

/* Calls each() with every byte of one layer of the forward pass. */
static void layer_walk(struct side *side, uint32_t layer,
                       void (*each)(unsigned char *at, unsigned char right))
{
    for (uint32_t pool = 0; pool < 2; pool++) {
        uint32_t from = layer == 0 ? 0 : layer_ends[layer - 1][pool];
        for (uint32_t l = from; l < layer_ends[layer][pool]; l++) {
            for (uint32_t block = 0; block < BLOCKS; block++) {
                unsigned char *piece = piece_at(side, pool, l, block);
                for (uint64_t i = 0; i < (pool == 0 ? KV_PIECE : STATE_PIECE); i++) {
                    each(piece + i, byte_of(pool, l, block, i));
                }
            }
        }
    }
}

static void byte_compute(unsigned char *at, unsigned char right)
{
    *at = right;
}

static void byte_poison(unsigned char *at, unsigned char right)
{
    (void)right;
    *at = POISON;
}

static void byte_check(unsigned char *at, unsigned char right)
{
    CHECK(*at == right);
}

static void byte_is_poison(unsigned char *at, unsigned char right)
{
    (void)right;
    CHECK(*at == POISON);
}

static void poison(struct side *side)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        layer_walk(side, layer, byte_poison);
    }
}

static struct side side_open(struct sl_client *client, const char *name, uint32_t first_block)
{
    struct sl_engine_layer kv[KV_LAYERS], state[STATE_LAYERS];
    struct side side = {0};
    for (uint64_t i = 0; i < KV_LAYERS; i++) {
        kv[i] = (struct sl_engine_layer){.offset_bytes = i * DEVICE * KV_PIECE,
                                         .length_bytes = (uint64_t)DEVICE * KV_PIECE,
                                         .block_stride_bytes = KV_PIECE,
                                         .piece_bytes = KV_PIECE};
    }
    for (uint64_t i = 0; i < STATE_LAYERS; i++) {
        state[i] = (struct sl_engine_layer){.offset_bytes = i * DEVICE * STATE_PIECE,
                                            .length_bytes = (uint64_t)DEVICE * STATE_PIECE,
                                            .block_stride_bytes = STATE_PIECE,
                                            .piece_bytes = STATE_PIECE};
    }
    const struct sl_engine_pool pools[] = {
        {.name = "kv",
         .layer_count = KV_LAYERS,
         .layers = kv,
         .memory_bytes = (uint64_t)KV_LAYERS * DEVICE * KV_PIECE},
        {.name = "state",
         .kind = SL_POOL_MAMBA_STATE,
         .layer_count = STATE_LAYERS,
         .layers = state,
         .memory_bytes = (uint64_t)STATE_LAYERS * DEVICE * STATE_PIECE}};
    const struct sl_engine_options options = {.name = name,
                                              .model = {.name = "layers"},
                                              .key_format = "sluice",
                                              .block_tokens = BLOCK_TOKENS,
                                              .world = 1,
                                              .block_count = DEVICE,
                                              .pool_count = 2,
                                              .pools = pools};
    CHECK(sl_engine_register(client, &options, PATIENT, &side.engine, &why) == SL_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) { /* in another order */
        side.blocks[i] = (first_block + 3 * i) % DEVICE;
    }
    return side;
}

static struct sl_op_request request_of(const struct side *side, uint64_t timeout_ns)
{
    return (struct sl_op_request){.tokens = tokens,
                                  .token_count = TOKENS,
                                  .device_blocks = side->blocks,
                                  .device_block_count = BLOCKS,
                                  .timeout_ns = timeout_ns,
                                  .layer_count = LAYERS,
                                  .layer_ends = &layer_ends[0][0]};
}

static void layer_say(struct side *side, struct sl_op *op, uint32_t layer)
{
    layer_walk(side, layer, byte_compute);
    CHECK(sl_op_layer_ready(op, layer, &why) == SL_OK);
}

/* Waits for the end, releases the op; returns its code. */
static sl_err end(struct sl_op **op, struct sl_op_result *result)
{
    CHECK(sl_op_wait(*op, 2 * PATIENT, result) == SL_OK);
    why = result->why;
    CHECK(sl_op_wait_fenced(*op, PATIENT, &why) == SL_OK);
    sl_op_release(op);
    return result->code;
}

static void wait_for_line(const char *said)
{
    (void)puts(said);
    (void)fflush(stdout);
    CHECK(getchar() == '\n');
}

/* ---- wrong arguments are named ---- */

static void errors(struct side *side)
{
    struct sl_op_request request = request_of(side, PATIENT);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    uint32_t blocks = 0;
    tokens_make(1);
    request.layer_ends = NULL;
    request.layer_count = 4; /* the second pool has two */
    CHECK(sl_store_start(side->engine, &request, &op, &why) == SL_ERR_INVALID);
    CHECK(strstr(why.text, "state") != NULL);
    request.layer_count = SL_LAYERS_MAX + 1;
    CHECK(sl_load_start(side->engine, &request, &op, &why) == SL_ERR_INVALID);
    request.layer_count = 0;
    CHECK(sl_load_start(side->engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_layer_ready(op, 0, &why) == SL_ERR_INVALID);
    CHECK(sl_op_layer_wait(op, 0, S, &blocks, &why) == SL_ERR_INVALID);
    CHECK(end(&op, &result) == SL_OK && result.block_count == 0);

    static const uint32_t backwards[LAYERS][2] = {{2, 0}, {1, 1}, {6, 1}, {8, 2}};
    request = request_of(side, PATIENT);
    request.layer_ends = &backwards[0][0];
    CHECK(sl_store_start(side->engine, &request, &op, &why) == SL_OK);
    CHECK(end(&op, &result) == SL_ERR_INVALID);

    request = request_of(side, PATIENT);
    CHECK(sl_store_start(side->engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_layer_wait(op, 0, S, &blocks, &why) == SL_ERR_INVALID);
    CHECK(sl_op_layer_ready(op, LAYERS, &why) == SL_ERR_INVALID);
    CHECK(sl_op_layer_ready(op, 1, &why) == SL_ERR_INVALID);
    layer_say(side, op, 0);
    CHECK(sl_op_layer_ready(op, 0, &why) == SL_ERR_EXISTS);
    CHECK(sl_op_cancel(op, &why) == SL_OK);
    CHECK(end(&op, &result) == SL_ERR_CANCELLED);
}

/* ---- through storage ---- */

static void load_check(struct side *side)
{
    struct sl_op_request request = request_of(side, PATIENT);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    uint32_t blocks = 0;
    poison(side);
    CHECK(sl_load_start(side->engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_layer_wait(op, LAYERS, S, &blocks, &why) == SL_ERR_INVALID);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK(sl_op_layer_wait(op, layer, PATIENT, &blocks, &why) == SL_OK);
        CHECK(blocks == BLOCKS);
        layer_walk(side, layer, byte_check);
    }
    CHECK(end(&op, &result) == SL_OK && result.block_count == BLOCKS);
}

static void nothing_is_stored(struct side *side)
{
    struct sl_op_request request = request_of(side, PATIENT);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    uint32_t blocks = 7;
    poison(side);
    CHECK(sl_load_start(side->engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_layer_wait(op, 0, PATIENT, &blocks, &why) == SL_OK && blocks == 0);
    CHECK(end(&op, &result) == SL_OK && result.block_count == 0);
    layer_walk(side, 0, byte_is_poison);
}

/* victim: an actor to be killed between two layers, NULL: none. */
static void store_and_load(struct side *from, struct side *to, uint32_t seed, const char *victim)
{
    struct sl_op_request request = request_of(from, PATIENT);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    tokens_make(seed);
    poison(from); /* so that reading too early fails */
    CHECK(sl_store_start(from->engine, &request, &op, &why) == SL_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        layer_say(from, op, layer);
        if (victim != NULL && layer == 1) {
            wait_for_line(victim);
        }
        CHECK(layer + 1 == LAYERS || sl_op_poll(op, &result) == SL_ERR_BUSY);
    }
    CHECK(end(&op, &result) == SL_OK);
    CHECK(result.stored_count == BLOCKS);
    load_check(to);
}

static void unfinished(struct side *from, struct side *to)
{
    struct sl_op_request request = request_of(from, 2 * S);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    tokens_make(20);
    CHECK(sl_store_start(from->engine, &request, &op, &why) == SL_OK);
    for (uint32_t layer = 0; layer + 1 < LAYERS; layer++) {
        layer_say(from, op, layer);
    }
    CHECK(sl_op_wait(op, PATIENT, &result) == SL_OK && result.code == SL_ERR_TIMEOUT);
    CHECK(sl_op_layer_ready(op, LAYERS - 1, &why) == SL_ERR_TIMEOUT); /* too late */
    CHECK(end(&op, &result) == SL_ERR_TIMEOUT);
    nothing_is_stored(to);
    /* Blocks that existed wait for no layer. */
    tokens_make(3);
    request = request_of(from, PATIENT);
    CHECK(sl_store_start(from->engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_wait(op, PATIENT, &result) == SL_OK && result.existed_count == BLOCKS);
    CHECK(sl_op_layer_ready(op, 0, &why) == SL_OK);
    CHECK(end(&op, &result) == SL_OK);
}

/* ---- hand-overs ---- */

struct pair {
    struct sl_op *send, *receive;
    struct sl_ticket ticket;
};

static struct sl_handover_options options_next(void)
{
    static uint32_t number;
    return (struct sl_handover_options){.id = 0x100000 + (uint64_t)getpid() * 1000 + number++,
                                        .mode = SL_HANDOVER_DIRECT};
}

/* Without a ticket it would use storage, for example while the fabric registers the pools or a
 * transporter starts: then it is started again. */
static struct pair pair_start(struct side *from, struct side *to, uint32_t seed,
                              uint64_t timeout_ns)
{
    struct pair pair = {0};
    struct sl_op_result result;
    tokens_make(seed);
    poison(from);
    poison(to);
    struct sl_op_request request = request_of(to, timeout_ns);
    struct sl_handover_options options;
    sl_err err = SL_ERR_UNSUPPORTED;
    for (uint32_t tries = 0; err == SL_ERR_UNSUPPORTED; tries++) {
        CHECK(tries < 1000);
        options = options_next();
        CHECK(sl_kv_receive_start(to->engine, &request, &options, &pair.receive, &why) == SL_OK);
        while ((err = sl_op_ticket(pair.receive, &pair.ticket, PATIENT, &why)) == SL_ERR_BUSY ||
               err == SL_ERR_NOT_FOUND) {
            (void)usleep(1000);
        }
        if (err == SL_ERR_UNSUPPORTED) {
            CHECK(sl_op_cancel(pair.receive, &why) == SL_OK);
            (void)end(&pair.receive, &result);
            (void)usleep(20000);
        }
    }
    CHECK(err == SL_OK);
    options.ticket = &pair.ticket;
    request = request_of(from, timeout_ns);
    CHECK(sl_kv_send_start(from->engine, &request, &options, &pair.send, &why) == SL_OK);
    return pair;
}

/* Each layer has arrived before the next one is computed. */
static void pushed_ahead(struct side *from, struct side *to, uint32_t seed)
{
    struct pair pair = pair_start(from, to, seed, PATIENT);
    struct sl_op_result result;
    uint32_t blocks = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK(sl_op_layer_wait(pair.receive, layer, 5 * MS, &blocks, &why) == SL_ERR_TIMEOUT);
        layer_walk(to, layer, byte_is_poison);
        layer_say(from, pair.send, layer);
        CHECK(sl_op_layer_wait(pair.receive, layer, PATIENT, &blocks, &why) == SL_OK);
        CHECK(blocks == BLOCKS);
        layer_walk(to, layer, byte_check);
    }
    CHECK(end(&pair.send, &result) == SL_OK);
    CHECK(end(&pair.receive, &result) == SL_OK && result.block_count == BLOCKS);
}

/* Prefill gives up after a layer was reported: decode gets an error, and no block. */
static void given_up(struct side *from, struct side *to)
{
    struct pair pair = pair_start(from, to, 31, PATIENT);
    struct sl_op_result result;
    uint32_t blocks = 0;
    layer_say(from, pair.send, 0);
    CHECK(sl_op_layer_wait(pair.receive, 0, PATIENT, &blocks, &why) == SL_OK);
    CHECK(sl_op_cancel(pair.send, &why) == SL_OK);
    CHECK(end(&pair.send, &result) == SL_ERR_CANCELLED);
    sl_err err = sl_op_layer_wait(pair.receive, 1, PATIENT, &blocks, &why);
    CHECK(err == SL_ERR_HANDOVER || err == SL_ERR_CANCELLED);
    CHECK(sl_op_layer_wait(pair.receive, 0, PATIENT, &blocks, &why) == err);
    CHECK(end(&pair.receive, &result) == err && result.block_count == 0);
    poison(to);
    (void)usleep(20000); /* a late layer would arrive here */
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        layer_walk(to, layer, byte_is_poison);
    }
}

/* An actor dies after the first layer: all arrives another way, or both get an error. */
static void pushed_and_killed(struct side *from, struct side *to, uint32_t seed, const char *victim)
{
    struct pair pair = pair_start(from, to, seed, 6 * S);
    struct sl_op_result sent, received;
    uint32_t blocks = 0;
    layer_say(from, pair.send, 0);
    CHECK(sl_op_layer_wait(pair.receive, 0, PATIENT, &blocks, &why) == SL_OK);
    layer_walk(to, 0, byte_check);
    layer_walk(to, 0, byte_poison); /* a reported layer belongs to the engine: it is not written
                                     * again */
    wait_for_line(victim);
    for (uint32_t layer = 1; layer < LAYERS; layer++) {
        layer_walk(from, layer, byte_compute);
        (void)sl_op_layer_ready(pair.send, layer, NULL);
    }
    sl_err send_code = end(&pair.send, &sent);
    sl_err err = SL_OK;
    for (uint32_t layer = 0; layer < LAYERS && err == SL_OK; layer++) {
        err = sl_op_layer_wait(pair.receive, layer, PATIENT, &blocks, &why);
        if (err == SL_OK) {
            layer_walk(to, layer, layer == 0 ? byte_is_poison : byte_check);
        }
    }
    sl_err code = end(&pair.receive, &received);
    (void)fprintf(stderr, "%s killed: prefill %s, decode %s\n", victim, sl_err_name(send_code),
                  sl_err_name(code));
    CHECK(code == SL_OK ? received.block_count == BLOCKS : received.block_count == 0);
    for (uint32_t layer = 0; layer < LAYERS && code == SL_OK; layer++) {
        layer_walk(to, layer, layer == 0 ? byte_is_poison : byte_check);
    }
    CHECK(code == SL_OK || err != SL_OK);
}

/* Its coordinator dies: no answer will arrive, and it ends when it is cancelled. */
static void cancelled_and_forgotten(struct side *side)
{
    struct sl_op_request request = request_of(side, PATIENT);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    CHECK(sl_store_start(side->engine, &request, &op, &why) == SL_OK);
    layer_say(side, op, 0);
    wait_for_line("coordinator");

    CHECK(sl_op_cancel(op, &why) == SL_OK);

    CHECK(sl_op_wait(op, PATIENT / 3, &result) == SL_OK);
    CHECK(result.code == SL_ERR_CANCELLED);
    CHECK(end(&op, &result) == SL_ERR_CANCELLED);
}

int main(int argc, char **argv)
{
    static char texts[3][512];
    static const char *const victims[] = {"swapper.0", "coordinator", "registrar", "keyer"};
    static const char *const pushers[] = {"transporter.0", "swapper.0", "coordinator"};
    struct sl_client *client = NULL;
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(texts[0], sizeof texts[0], "instance=%s", argv[1]);
    (void)snprintf(texts[1], sizeof texts[1], "runtime_dir=%s", argv[2]);
    (void)snprintf(texts[2], sizeof texts[2], "shm_dir=%s", argv[3]);
    for (size_t i = 0; i < 3; i++) {
        settings[i] = texts[i];
    }
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings};
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    struct side from = side_open(client, "prefill", 0), to = side_open(client, "decode", 5);
    errors(&from);
    store_and_load(&from, &to, 3, NULL);
    unfinished(&from, &to);
    for (uint32_t i = 0; i < sizeof victims / sizeof victims[0]; i++) {
        store_and_load(&from, &to, 10 + i, victims[i]);
    }
    pushed_ahead(&from, &to, 30);
    given_up(&from, &to);
    for (uint32_t i = 0; i < sizeof pushers / sizeof pushers[0]; i++) {
        pushed_and_killed(&from, &to, 40 + i, pushers[i]);
    }
    pushed_ahead(&from, &to, 50);
    cancelled_and_forgotten(&from);
    sl_engine_end(&from.engine);
    sl_engine_end(&to.engine);
    sl_client_close(&client);
    (void)puts("done");
    return 0;
}
