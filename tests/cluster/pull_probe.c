/* tests/cluster/pull_probe.c - an engine that stores blocks at one node and loads them at another,
 * repeatedly, while a test kills the processes around it; pull_test.py starts it. */
/* clang-format off */
/* pull_probe INSTANCE RUNTIME_DIR SHM_DIR store SEED BLOCKS PIECE_BYTES LAYERS RANKS
 * pull_probe INSTANCE RUNTIME_DIR SHM_DIR load|give|take SEED BLOCKS PIECE_BYTES LAYERS RANKS TIMEOUT_MS TIMES
 *
 * give and take are prefill and decode of direct hand-overs: take is a load that prints its ticket, and give
 * reads it. The time of a take begins with its ticket.
 *
 * load prints "registered". Each time all bytes are poisoned; after a line of input the blocks are loaded, and
 * those that are reported as loaded are compared. When the op is fenced, its blocks are overwritten, and must not
 * change again. It prints a line a time: "loaded COUNT CODE MICROSECONDS". Exit code 0: no byte was wrong or late. */
/* clang-format on */
#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define HASH_BYTES 32u
#define S          1000000000ull
#define PATIENT    (120 * S)
#define LATE_NS    (150 * 1000000l) /* late transfers have arrived by then */
#define POISON     UINT64_C(0xa5a5a5a5a5a5a5a5)
#define REUSED     UINT64_C(0x5c5c5c5c5c5c5c5c)
#define LAYERS_MAX 64u
#define BLOCKS_MAX 4096u

static struct sl_error why;
static struct sl_client *client;
static struct sl_engine *engine;
static uint64_t seed, block_count, piece_bytes, layer_count, rank_count;

static uint64_t word_of(uint64_t rank, uint64_t layer, uint64_t block, uint64_t at)
{
    uint64_t word = seed * 0x9e3779b97f4a7c15u + (rank << 48) + (layer << 40) + (block << 24) + at;
    word ^= word >> 29;
    return word * 0xbf58476d1ce4e5b9u;
}

static uint64_t *words_at(uint64_t rank, uint64_t layer, uint64_t block)
{
    unsigned char *memory = sl_engine_memory(engine, (uint32_t)rank, 0);
    return (uint64_t *)(void *)(memory + (layer * block_count + block) * piece_bytes);
}

/* Calls visit for each piece of blocks [from, end). */
static void pieces_each(uint64_t from, uint64_t end,
                        void (*each)(uint64_t rank, uint64_t layer, uint64_t block))
{
    for (uint64_t rank = 0; rank < rank_count; rank++) {
        for (uint64_t layer = 0; layer < layer_count; layer++) {
            for (uint64_t block = from; block < end; block++) {
                each(rank, layer, block);
            }
        }
    }
}

static void compute(uint64_t rank, uint64_t layer, uint64_t block)
{
    uint64_t *words = words_at(rank, layer, block);
    for (uint64_t i = 0; i < piece_bytes / sizeof(*words); i++) {
        words[i] = word_of(rank, layer, block, i);
    }
}

static void check(uint64_t rank, uint64_t layer, uint64_t block)
{
    const uint64_t *words = words_at(rank, layer, block);
    for (uint64_t i = 0; i < piece_bytes / sizeof(*words); i++) {
        CHECK(words[i] == word_of(rank, layer, block, i));
    }
}

static void fill(uint64_t rank, uint64_t layer, uint64_t block, uint64_t with)
{
    uint64_t *words = words_at(rank, layer, block);
    for (uint64_t i = 0; i < piece_bytes / sizeof(*words); i++) {
        words[i] = with;
    }
}

static void poison(uint64_t rank, uint64_t layer, uint64_t block)
{
    fill(rank, layer, block, POISON);
}

static void reuse(uint64_t rank, uint64_t layer, uint64_t block)
{
    fill(rank, layer, block, REUSED);
}

static void check_reused(uint64_t rank, uint64_t layer, uint64_t block)
{
    const uint64_t *words = words_at(rank, layer, block);
    for (uint64_t i = 0; i < piece_bytes / sizeof(*words); i++) {
        CHECK(words[i] == REUSED);
    }
}

static void engine_open(void)
{
    static struct sl_engine_layer layers[LAYERS_MAX];
    for (uint64_t i = 0; i < layer_count; i++) {
        layers[i] = (struct sl_engine_layer){.offset_bytes = i * block_count * piece_bytes,
                                             .length_bytes = block_count * piece_bytes,
                                             .block_stride_bytes = piece_bytes,
                                             .piece_bytes = piece_bytes};
    }
    struct sl_engine_pool pool = {.name = "attn",
                                  .layer_count = (uint32_t)layer_count,
                                  .layers = layers,
                                  .memory_bytes = layer_count * block_count * piece_bytes};
    const struct sl_engine_options options = {.name = "pull",
                                              .model = {.name = "m", .layout = "layers"},
                                              .key_format = "engine",
                                              .block_tokens = 16,
                                              .world = (uint32_t)rank_count,
                                              .block_count = (uint32_t)block_count,
                                              .pool_count = 1,
                                              .pools = &pool};
    CHECK(sl_engine_register(client, &options, PATIENT, &engine, &why) == SL_OK);
}

enum what { STORE, LOAD, GIVE, TAKE };

/* number: of the hand-over. */
static struct sl_op *op_start(enum what what, uint64_t timeout_ns, uint64_t number,
                              const struct sl_ticket *ticket)
{
    static unsigned char hashes[BLOCKS_MAX * HASH_BYTES];
    static uint32_t blocks[BLOCKS_MAX];
    const uint32_t *table = blocks;
    for (uint64_t i = 0; i < block_count; i++) {
        blocks[i] = (uint32_t)i;
        memset(hashes + i * HASH_BYTES, 0, HASH_BYTES);
        memcpy(hashes + i * HASH_BYTES, &i, sizeof(i));
        memcpy(hashes + i * HASH_BYTES + sizeof(i), &seed, sizeof(seed));
    }
    struct sl_op_request request = {.hashes = hashes,
                                    .hash_bytes = HASH_BYTES,
                                    .pool_blocks = &table,
                                    .device_block_count = (uint32_t)block_count,
                                    .timeout_ns = timeout_ns};
    struct sl_op *op = NULL;
    const struct sl_handover_options options = {
        .id = number, .mode = SL_HANDOVER_DIRECT, .ticket = ticket};
    CHECK((what == STORE  ? sl_store_start(engine, &request, &op, &why)
           : what == LOAD ? sl_load_start(engine, &request, &op, &why)
           : what == GIVE ? sl_kv_send_start(engine, &request, &options, &op, &why)
                          : sl_kv_receive_start(engine, &request, &options, &op, &why)) == SL_OK);
    return op;
}

static void store(void)
{
    struct sl_op_result result;
    pieces_each(0, block_count, compute);
    struct sl_op *op = op_start(STORE, PATIENT, 0, NULL);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    why = result.why;
    CHECK(result.code == SL_OK && result.stored_count == block_count);
    CHECK(sl_op_wait_fenced(op, PATIENT, &why) == SL_OK);
    sl_op_release(&op);
}

static uint64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void ticket_say(struct sl_op *op)
{
    struct sl_ticket ticket;
    sl_err err = SL_ERR_BUSY;
    while ((err = sl_op_ticket(op, &ticket, PATIENT, &why)) == SL_ERR_BUSY) {
    }
    CHECK(err == SL_OK);
    for (size_t i = 0; i < sizeof(ticket); i++) {
        (void)printf("%02x", ((const unsigned char *)&ticket)[i]);
    }
    (void)printf("\n");
    CHECK(fflush(stdout) == 0);
}

static void give(uint64_t timeout_ns, uint64_t number)
{
    struct sl_op_result result;
    struct sl_ticket ticket;
    for (size_t i = 0; i < sizeof(ticket); i++) {
        unsigned byte = 0;
        CHECK(scanf("%2x", &byte) == 1);
        ((unsigned char *)&ticket)[i] = (unsigned char)byte;
    }
    struct sl_op *op = op_start(GIVE, timeout_ns, number, &ticket);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    why = result.why;
    CHECK(sl_op_wait_fenced(op, PATIENT, &why) == SL_OK);
    (void)printf("gave %d\n", (int)result.code);
    CHECK(fflush(stdout) == 0);
    sl_op_release(&op);
}

/* number 0: a load, else a hand-over. */
static void load(uint64_t timeout_ns, uint64_t number)
{
    const struct timespec late = {.tv_nsec = LATE_NS};
    struct sl_op_result result;
    char line[8];
    pieces_each(0, block_count, poison);
    (void)printf("poisoned\n");
    CHECK(fflush(stdout) == 0 && fgets(line, sizeof(line), stdin) != NULL);
    uint64_t began_us = now_us();
    struct sl_op *op = op_start(number == 0 ? LOAD : TAKE, timeout_ns, number, NULL);
    if (number != 0) {
        ticket_say(op);
        began_us = now_us();
    }
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    uint64_t took_us = now_us() - began_us;
    why = result.why;
    CHECK(result.block_count <= block_count);
    pieces_each(0, result.block_count, check);
    CHECK(sl_op_wait_fenced(op, PATIENT, &why) == SL_OK);
    pieces_each(0, block_count, reuse);
    if (result.block_count < block_count) { /* the load was disturbed */
        (void)nanosleep(&late, NULL);
    }
    pieces_each(0, block_count, check_reused);
    (void)printf("loaded %u %d %llu\n", (unsigned)result.block_count, (int)result.code,
                 (unsigned long long)took_us);
    CHECK(fflush(stdout) == 0);
    sl_op_release(&op);
}

int main(int argc, char **argv)
{
    static char texts[3][4200];
    static const char *settings[4];
    if (argc != 10 && argc != 12) {
        (void)fprintf(
            stderr,
            "usage: pull_probe INSTANCE RUNTIME_DIR SHM_DIR store|load|give|take SEED BLOCKS "
            "PIECE_BYTES LAYERS RANKS [TIMEOUT_MS TIMES]\n");
        return 2;
    }
    (void)snprintf(texts[0], sizeof texts[0], "instance=%s", argv[1]);
    (void)snprintf(texts[1], sizeof texts[1], "runtime_dir=%s", argv[2]);
    (void)snprintf(texts[2], sizeof texts[2], "shm_dir=%s", argv[3]);
    for (size_t i = 0; i < 3; i++) {
        settings[i] = texts[i];
    }
    seed = strtoull(argv[5], NULL, 10);
    block_count = strtoull(argv[6], NULL, 10);
    piece_bytes = strtoull(argv[7], NULL, 10);
    layer_count = strtoull(argv[8], NULL, 10);
    rank_count = strtoull(argv[9], NULL, 10);
    CHECK(block_count > 0 && block_count <= BLOCKS_MAX && layer_count > 0 &&
          layer_count <= LAYERS_MAX && piece_bytes % 8 == 0);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    engine_open();
    if (argc == 10) {
        store();
    } else {
        uint64_t timeout_ns = strtoull(argv[10], NULL, 10) * 1000000u;
        pieces_each(0, strcmp(argv[4], "give") == 0 ? block_count : 0, compute);
        (void)printf("registered\n");
        CHECK(fflush(stdout) == 0);
        for (uint64_t i = strtoull(argv[11], NULL, 10); i > 0; i--) {
            uint64_t number = seed * 1000 + i;
            if (strcmp(argv[4], "give") == 0) {
                give(timeout_ns, number);
            } else {
                load(timeout_ns, strcmp(argv[4], "take") == 0 ? number : 0);
            }
        }
    }
    sl_engine_end(&engine);
    sl_client_close(&client);
    return 0;
}
