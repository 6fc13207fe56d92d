/* tests/node/pool_probe.c - a client that executes commands on pools from standard input, with one
 * answer a line; pools_test.py drives several of them.
 *
 *   pool_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 *   create I MS | acquire I MS | await I MS    pool I of deployment "test", rank 0
 *   publish I | over I MS | revoke I MS | release I | poke I VALUE | peek I
 *   register         an engine of the four pools
 *   fill SEED COUNT | store SEED COUNT | load SEED COUNT | check SEED COUNT
 *   quit
 *
 * Answers "ok", "ok N" or "CODE text". */
#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOLS        4u
#define BLOCKS       16u
#define LOADED       8u /* blocks from 0 on are filled, and loaded from here on */
#define BLOCK_TOKENS 4u
#define LAYERS_MAX   4u

/* A hybrid model: every pool has other pieces and strides, some no multiple of 16. */
static const struct shape {
    const char *name;
    enum sl_pool_kind kind;
    uint32_t layers;
    uint64_t piece, stride;
} shapes[POOLS] = {
    {"attention", SL_POOL_ATTENTION, 4, 1536, 2048},
    {"mamba_state", SL_POOL_MAMBA_STATE, 1, 8200, 16384},
    {"mamba_conv", SL_POOL_MAMBA_CONV, 3, 203, 211},
    {"indexer", SL_POOL_INDEXER, 2, 64, 64},
};

static struct sl_client *client;
static struct sl_pool *pools[POOLS];
static struct sl_engine *engine;
static struct sl_error why;

static void answer(sl_err err)
{
    if (err == SL_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("%s %s\n", sl_err_name(err), why.text);
    }
}

static uint64_t pool_bytes(unsigned i)
{
    return shapes[i].layers * BLOCKS * shapes[i].stride;
}

static void pool_command(const char *word, unsigned i, uint64_t number)
{
    struct sl_pool_key key = {.deployment = "test", .rank = 0, .pool = shapes[i].name};
    uint64_t timeout_ns = SL_MAX(number, 1) * SL_NS_PER_MS;
    if (strcmp(word, "create") == 0) {
        answer(sl_pool_create(client, &key, pool_bytes(i), timeout_ns, &pools[i], &why));
    } else if (strcmp(word, "acquire") == 0) {
        answer(sl_pool_acquire(client, &key, pool_bytes(i), timeout_ns, &pools[i], &why));
    } else if (strcmp(word, "await") == 0) {
        answer(sl_pool_await(client, &key, timeout_ns, &pools[i], &why));
    } else if (strcmp(word, "publish") == 0) {
        answer(sl_pool_publish(pools[i], NULL, 0, &why));
    } else if (strcmp(word, "over") == 0) {
        answer(sl_pool_wait_over(pools[i], timeout_ns, &why));
    } else if (strcmp(word, "revoke") == 0) {
        answer(sl_pool_revoke(pools[i], timeout_ns, &why));
    } else if (strcmp(word, "release") == 0) {
        sl_pool_release(&pools[i]);
        answer(SL_OK);
    } else if (strcmp(word, "poke") == 0) {
        *(unsigned char *)sl_pool_at(pools[i]) = (unsigned char)number;
        answer(SL_OK);
    } else if (strcmp(word, "peek") == 0) {
        (void)printf("ok %u\n", *(const unsigned char *)sl_pool_at(pools[i]));
    } else {
        (void)printf("unknown %s\n", word);
    }
}

/* ---- the engine ---- */

static void engine_register(void)
{
    static struct sl_engine_layer layers[POOLS][LAYERS_MAX];
    static struct sl_engine_pool list[POOLS];
    static const struct sl_pool *from[POOLS][1];
    for (unsigned i = 0; i < POOLS; i++) {
        for (uint32_t l = 0; l < shapes[i].layers; l++) {
            layers[i][l] = (struct sl_engine_layer){.offset_bytes = l * BLOCKS * shapes[i].stride,
                                                    .length_bytes = BLOCKS * shapes[i].stride,
                                                    .block_stride_bytes = shapes[i].stride,
                                                    .piece_bytes = shapes[i].piece};
        }
        from[i][0] = pools[i];
        list[i] = (struct sl_engine_pool){.name = shapes[i].name,
                                          .kind = shapes[i].kind,
                                          .layer_count = shapes[i].layers,
                                          .layers = layers[i],
                                          .memory_bytes = pool_bytes(i),
                                          .from = pools[i] == NULL ? NULL : from[i]};
    }
    const struct sl_engine_options options = {.name = "hybrid",
                                              .model = {.name = "hybrid"},
                                              .key_format = "sluice",
                                              .block_tokens = BLOCK_TOKENS,
                                              .world = 1,
                                              .block_count = BLOCKS,
                                              .pool_count = POOLS,
                                              .pools = list};
    answer(sl_engine_register(client, &options, 0, &engine, &why));
}

/* The byte of a block's piece; and whether the gap after it is unchanged. */
static unsigned char pattern(uint64_t seed, unsigned pool, uint32_t layer, uint64_t block,
                             uint64_t at)
{
    uint64_t mixed = (seed * 31 + pool) * 37 + layer * 41 + block * 43 + at * 7 + at / 251;
    return (unsigned char)(mixed ^ mixed >> 8);
}

static unsigned char *block_at(unsigned pool, uint32_t layer, uint64_t block)
{
    unsigned char *memory = sl_engine_memory(engine, 0, pool);
    return memory + (layer * BLOCKS + block) * shapes[pool].stride;
}

static void fill(uint64_t seed, uint64_t count)
{
    for (unsigned pool = 0; pool < POOLS; pool++) {
        memset(sl_engine_memory(engine, 0, pool), 0xee, pool_bytes(pool));
        for (uint32_t layer = 0; layer < shapes[pool].layers; layer++) {
            for (uint64_t block = 0; block < count; block++) {
                for (uint64_t at = 0; at < shapes[pool].piece; at++) {
                    block_at(pool, layer, block)[at] = pattern(seed, pool, layer, block, at);
                }
            }
        }
    }
    answer(SL_OK);
}

/* Loaded blocks have the pattern; bytes after their pieces and blocks after them are unchanged. */
static void check(uint64_t seed, uint64_t count)
{
    uint64_t wrong = 0;
    for (unsigned pool = 0; pool < POOLS; pool++) {
        for (uint32_t layer = 0; layer < shapes[pool].layers; layer++) {
            for (uint64_t block = 0; block < BLOCKS - LOADED; block++) {
                const unsigned char *at = block_at(pool, layer, LOADED + block);
                for (uint64_t i = 0; i < shapes[pool].stride; i++) {
                    bool loaded = block < count && i < shapes[pool].piece;
                    wrong += at[i] != (loaded ? pattern(seed, pool, layer, block, i) : 0xee);
                }
            }
        }
    }
    (void)printf("ok %ju\n", (uintmax_t)wrong);
}

static void move(bool store, uint64_t seed, uint64_t count)
{
    uint32_t tokens[BLOCKS * BLOCK_TOKENS], blocks[BLOCKS];
    struct sl_op *op = NULL;
    struct sl_op_result result = {0};
    for (uint32_t i = 0; i < count * BLOCK_TOKENS; i++) {
        tokens[i] = (uint32_t)(seed * 1000 + i);
    }
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = store ? i : LOADED + i;
    }
    const struct sl_op_request request = {.tokens = tokens,
                                          .token_count = (uint32_t)count * BLOCK_TOKENS,
                                          .device_blocks = blocks,
                                          .device_block_count = (uint32_t)count};
    sl_err err = store ? sl_store_start(engine, &request, &op, &why)
                       : sl_load_start(engine, &request, &op, &why);
    if (err == SL_OK) {
        err = sl_op_wait(op, 60 * SL_NS_PER_S, &result);
    }
    sl_op_release(&op);
    if (err == SL_OK && result.code != SL_OK) {
        why = result.why;
        err = result.code;
    }
    if (err != SL_OK) {
        answer(err);
        return;
    }
    (void)printf("ok %u\n", store ? result.stored_count : result.block_count);
}

static void command(const char *word, uint64_t first, uint64_t second)
{
    why = (struct sl_error){0};
    if (strcmp(word, "register") == 0) {
        engine_register();
    } else if (strcmp(word, "fill") == 0) {
        fill(first, second);
    } else if (strcmp(word, "check") == 0) {
        check(first, second);
    } else if (strcmp(word, "store") == 0 || strcmp(word, "load") == 0) {
        move(strcmp(word, "store") == 0, first, second);
    } else if (first < POOLS) {
        pool_command(word, (unsigned)first, second);
    } else {
        (void)printf("unknown %s\n", word);
    }
}

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1024], shm_dir[1024];
    const char *settings[] = {instance, runtime_dir, shm_dir, "op_timeout=30s", NULL};
    char line[256], word[32];
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings};
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    answer(sl_client_open(&options, &client, &why));
    while (client != NULL && fgets(line, sizeof line, stdin) != NULL) {
        unsigned long long numbers[2] = {0, 0};
        char *rest = line;
        size_t length = strcspn(line, " \n");
        (void)snprintf(word, sizeof word, "%.*s", (int)SL_MIN(length, sizeof word - 1), line);
        rest += length;
        for (unsigned i = 0; i < 2; i++) {
            numbers[i] = strtoull(rest, &rest, 10);
        }
        if (strcmp(word, "quit") == 0) {
            break;
        }
        command(word, numbers[0], numbers[1]);
    }
    sl_engine_end(&engine);
    for (unsigned i = 0; i < POOLS; i++) {
        sl_pool_release(&pools[i]);
    }
    sl_client_close(&client);
    return 0;
}
