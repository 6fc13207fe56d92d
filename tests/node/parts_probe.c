/* tests/node/parts_probe.c - engines of 1, 2, 4 and 8 ranks that share their blocks, on a
 * running node of 8 ranks; parts_test.py starts both. */
/* clang-format off */
/* parts_probe INSTANCE RUNTIME_DIR SHM_DIR MODE
 *   matrix            all ranks of an engine in one process
 *   team, plain       one process a rank; plain: in its own memory
 *   gpu1, gpu2, gpu4  one process a rank, each on a GPU of its own
 *   death             a rank is killed and restarted
 *   again             ranks register other memory while they live
 *   damage            stored bytes are damaged in memory
 *   writers, readers  the matrix's engines that store, and those that load, also at another node: each loads after a
 *                     line of input
 *   givers, takers    the matrix's engines as prefill and decode of a direct hand-over of each pair: takers print a
 *                     ticket, givers read it */
/* clang-format on */
/* The model has four KV heads; ranks have four, two or one of them, or two ranks the same one. Its
 * pages have heads side by side for each token, or one after the other. A second pool has the same
 * bytes on all ranks. Every byte is checked. Exit code 0: all checks passed. */
#include "client/include/sluice.h"
#include "cuda/driver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define HEADS       4u
#define LAYERS      6u  /* K and V of three */
#define TOKENS      16u /* tokens of a block */
#define HEAD_BYTES  34u
#define SAME_BYTES  700u
#define SAME_LAYERS 2u
#define BLOCKS      5u  /* blocks of a request */
#define DEVICE      12u /* device blocks */
#define HASH_BYTES  32u
#define WORLD_MAX   8u
#define POISON      0xa5
#define SEGMENT \
    2560u /* where a pool begins in an allocation on a GPU, as torch cuts them: by 512 */
#define S       1000000000ull
#define PATIENT (60 * S)

static struct sl_error why;
static const char *settings[4], *instance;

enum layout { BY_TOKEN, BY_HEAD, LAYOUTS };
struct shape {
    uint32_t world;
    enum layout layout;
    uint64_t team;
    uint32_t first_rank, rank_count;
    bool plain, lent; /* lent: memory from the table of pools */
    bool gpu;         /* a plain copy of each pool here, the pool on the rank's GPU */
};
struct side {
    struct shape shape;
    struct sl_client *client;
    struct sl_engine *engine;
    unsigned char *plain[WORLD_MAX][2];
    struct sl_pool *lent[WORLD_MAX][2];
    struct sl_driver driver; /* gpu: one rank */
    sl_cu_stream stream;
    sl_cu_ptr device[2];
    uint32_t blocks[2][BLOCKS]; /* blocks of each pool */
};

static uint32_t heads_of(const struct shape *shape)
{
    return shape->world < HEADS ? HEADS / shape->world : 1;
}

static uint64_t page_bytes(const struct shape *shape)
{
    return (uint64_t)heads_of(shape) * TOKENS * HEAD_BYTES;
}

static uint64_t memory_bytes(const struct shape *shape, uint32_t pool)
{
    return DEVICE * (pool == 0 ? LAYERS * page_bytes(shape) : SAME_LAYERS * (uint64_t)SAME_BYTES);
}

static uint32_t pages_make(const struct shape *shape, struct sl_engine_layer *layers)
{
    uint64_t page = page_bytes(shape), heads = heads_of(shape);
    uint32_t count = 0;
    for (uint32_t part = 0; part < heads; part++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            uint64_t shift = shape->layout == BY_TOKEN ? part * HEAD_BYTES
                                                       : (uint64_t)part * TOKENS * HEAD_BYTES;
            layers[count++] = (struct sl_engine_layer){
                .offset_bytes = layer * DEVICE * page + shift,
                .length_bytes = DEVICE * page - shift,
                .block_stride_bytes = page,
                .piece_bytes = (uint64_t)TOKENS * HEAD_BYTES,
                .part = part,
                .fragment_bytes = shape->layout == BY_TOKEN ? HEAD_BYTES : 0,
                .fragment_stride_bytes = shape->layout == BY_TOKEN ? heads * HEAD_BYTES : 0};
        }
    }
    return count;
}

static struct sl_client *client_open(void)
{
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .timeout_ns = PATIENT, .settings = settings};
    struct sl_client *client = NULL;
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    return client;
}

static struct sl_pool *pool_make(struct sl_client *client, const struct shape *shape, uint32_t rank,
                                 uint32_t pool)
{
    char deployment[32];
    struct sl_pool *made = NULL;
    (void)snprintf(deployment, sizeof deployment, "%016llx", (unsigned long long)shape->team);
    const struct sl_pool_key key = {.deployment = deployment,
                                    .rank = shape->first_rank + rank,
                                    .pool = pool == 0 ? "attn" : "same"};
    CHECK(sl_pool_create(client, &key, memory_bytes(shape, pool), PATIENT, &made, &why) == SL_OK);
    CHECK(sl_pool_publish(made, NULL, PATIENT, &why) == SL_OK);
    return made;
}

/* ---- memory on a GPU ---- */

static void gpu_open(struct side *side)
{
    struct sl_driver *driver = &side->driver;
    sl_cu_device gpu = 0;
    sl_cu_context context = NULL;
    CHECK(side->shape.rank_count == 1 && sl_driver_open(driver, NULL, &why) == SL_OK);
    CHECK(driver->device_get(&gpu, (int)side->shape.first_rank) == 0 &&
          driver->context_retain(&context, gpu) == 0 && driver->context_set(context) == 0 &&
          driver->stream_create(&side->stream, SL_CU_STREAM_NON_BLOCKING, 0) == 0);
    for (uint32_t pool = 0; pool < 2; pool++) {
        void *pinned = NULL;
        uint64_t bytes = memory_bytes(&side->shape, pool);
        CHECK(driver->memory_get(&side->device[pool], SEGMENT + bytes + SEGMENT) == 0 &&
              driver->host_get(&pinned, bytes, SL_CU_HOST_PORTABLE) == 0);
        side->plain[0][pool] = pinned;
    }
}

/* Copies both pools between the GPU and their copy here. */
static void gpu_copy(struct side *side, bool to_host)
{
    for (uint32_t pool = 0; side->shape.gpu && pool < 2; pool++) {
        sl_cu_ptr here = (uintptr_t)side->plain[0][pool], there = side->device[pool] + SEGMENT;
        CHECK(sl_driver_copy(&side->driver, to_host ? here : there, to_host ? there : here,
                             memory_bytes(&side->shape, pool), to_host, side->stream) == 0);
    }
    CHECK(!side->shape.gpu || side->driver.stream_wait(side->stream) == 0);
}

static void gpu_close(struct side *side)
{
    for (uint32_t pool = 0; pool < 2; pool++) {
        CHECK(side->driver.memory_free(side->device[pool]) == 0 &&
              side->driver.host_free(side->plain[0][pool]) == 0);
        side->plain[0][pool] = NULL;
    }
    CHECK(side->driver.stream_destroy(side->stream) == 0);
}

static void side_open(struct side *side, struct sl_client *client, struct shape shape)
{
    struct sl_engine_layer pages[HEADS * LAYERS], same[SAME_LAYERS];
    uint64_t rows[WORLD_MAX][2][HEADS * LAYERS];
    const uint64_t *tables[2][WORLD_MAX];
    const struct sl_pool *lent[2][WORLD_MAX];
    *side = (struct side){.shape = shape, .client = client};
    uint32_t page_count = pages_make(&shape, pages);
    if (shape.gpu) {
        gpu_open(side);
    }
    for (uint64_t i = 0; i < SAME_LAYERS; i++) {
        same[i] = (struct sl_engine_layer){.offset_bytes = i * DEVICE * SAME_BYTES,
                                           .length_bytes = (uint64_t)DEVICE * SAME_BYTES,
                                           .block_stride_bytes = SAME_BYTES,
                                           .piece_bytes = SAME_BYTES};
    }
    for (uint32_t rank = 0; shape.plain && rank < shape.rank_count; rank++) {
        for (uint32_t pool = 0; pool < 2; pool++) {
            if (!shape.gpu) {
                side->plain[rank][pool] = malloc(memory_bytes(&shape, pool));
            }
            CHECK(side->plain[rank][pool] != NULL);
            for (uint32_t i = 0; i < page_count; i++) {
                rows[rank][pool][i] = shape.gpu ? side->device[pool] + SEGMENT
                                                : (uint64_t)(uintptr_t)side->plain[rank][pool];
            }
            tables[pool][rank] = rows[rank][pool];
        }
    }
    for (uint32_t i = 0; shape.lent && i < 2 * shape.rank_count; i++) {
        side->lent[i / 2][i % 2] = pool_make(client, &shape, i / 2, i % 2);
        lent[i % 2][i / 2] = side->lent[i / 2][i % 2];
    }
    struct sl_engine_pool pools[2] = {{.name = "attn",
                                       .layer_count = page_count,
                                       .layers = pages,
                                       .memory_bytes = memory_bytes(&shape, 0),
                                       .device = shape.plain ? tables[0] : NULL,
                                       .from = shape.lent ? lent[0] : NULL,
                                       .part_count = HEADS},
                                      {.name = "same",
                                       .kind = SL_POOL_INDEXER,
                                       .layer_count = SAME_LAYERS,
                                       .layers = same,
                                       .memory_bytes = memory_bytes(&shape, 1),
                                       .device = shape.plain ? tables[1] : NULL,
                                       .from = shape.lent ? lent[1] : NULL,
                                       .part_count = 1}};
    const struct sl_engine_options options = {.name = "parts",
                                              .model = {.name = "m", .layout = "head by head"},
                                              .key_format = "engine",
                                              .block_tokens = TOKENS,
                                              .world = shape.world,
                                              .block_count = DEVICE,
                                              .pool_count = 2,
                                              .pools = pools,
                                              .team = shape.team,
                                              .first_rank = shape.first_rank,
                                              .rank_count = shape.rank_count};
    CHECK(sl_engine_register(client, &options, PATIENT, &side->engine, &why) == SL_OK);
}

static void side_end(struct side *side)
{
    sl_engine_end(&side->engine);
    if (side->shape.gpu) {
        gpu_close(side);
    }
    for (uint32_t i = 0; i < 2 * WORLD_MAX; i++) {
        free(side->plain[i / 2][i % 2]);
        sl_pool_release(&side->lent[i / 2][i % 2]);
    }
}

static void blocks_choose(struct side *side, uint32_t first)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        side->blocks[0][i] = first + i;
        side->blocks[1][i] = DEVICE - 1 - first - i; /* a table of its own */
    }
}

static unsigned char *memory_of(struct side *side, uint32_t rank, uint32_t pool)
{
    uint32_t here = rank - side->shape.first_rank;
    return side->shape.plain ? side->plain[here][pool] : sl_engine_memory(side->engine, rank, pool);
}

static unsigned char byte_of(uint32_t seed, uint32_t head, uint32_t layer, uint32_t block,
                             uint64_t i)
{
    return (unsigned char)(seed * 53 + head * 97 + layer * 31 + block * 101 + i * 13 + i / 251);
}

/* Calls each() with every byte that the ranks here have of the request's blocks. */
static void bytes_walk(struct side *side, uint32_t seed,
                       void (*each)(unsigned char *at, unsigned char right))
{
    const struct shape *shape = &side->shape;
    uint32_t heads = heads_of(shape);
    uint32_t ranks = shape->team == 0 ? shape->world : shape->rank_count;
    for (uint32_t rank = shape->first_rank; rank < shape->first_rank + ranks; rank++) {
        unsigned char *pages = memory_of(side, rank, 0), *same = memory_of(side, rank, 1);
        for (uint32_t block = 0; block < BLOCKS; block++) {
            for (uint32_t i = 0; i < LAYERS * heads * TOKENS * HEAD_BYTES; i++) {
                uint32_t layer = i / (heads * TOKENS * HEAD_BYTES);
                uint32_t in_page = i % (heads * TOKENS * HEAD_BYTES), run = in_page / HEAD_BYTES;
                uint32_t part = shape->layout == BY_TOKEN ? run % heads : run / TOKENS;
                uint32_t token = shape->layout == BY_TOKEN ? run / heads : run % TOKENS;
                uint32_t head = rank * HEADS / shape->world + part;
                each(pages + (layer * DEVICE + side->blocks[0][block]) * page_bytes(shape) +
                         in_page,
                     byte_of(seed, head, layer, block,
                             (uint64_t)token * HEAD_BYTES + in_page % HEAD_BYTES));
            }
            for (uint32_t i = 0; i < SAME_LAYERS * SAME_BYTES; i++) {
                uint32_t layer = i / SAME_BYTES, at = i % SAME_BYTES;
                each(same + (layer * DEVICE + side->blocks[1][block]) * (uint64_t)SAME_BYTES + at,
                     byte_of(seed, 9, layer, block, at));
            }
        }
    }
}

static void byte_compute(unsigned char *at, unsigned char right)
{
    *at = right;
}

static void byte_check(unsigned char *at, unsigned char right)
{
    CHECK(*at == right);
}

static void poison(struct side *side)
{
    uint32_t ranks = side->shape.team == 0 ? side->shape.world : side->shape.rank_count;
    for (uint32_t i = 0; i < 2 * ranks; i++) {
        memset(memory_of(side, side->shape.first_rank + i / 2, i % 2), POISON,
               memory_bytes(&side->shape, i % 2));
    }
}

static struct sl_op_result run(struct side *side, uint32_t seed, bool store, uint64_t timeout_ns)
{
    unsigned char hashes[BLOCKS * HASH_BYTES];
    const uint32_t *tables[2] = {side->blocks[0], side->blocks[1]};
    for (uint32_t i = 0; i < BLOCKS * HASH_BYTES; i++) {
        hashes[i] = (unsigned char)(i / HASH_BYTES * 16 + seed + i % HASH_BYTES * 7);
    }
    struct sl_op_request request = {.hashes = hashes,
                                    .hash_bytes = HASH_BYTES,
                                    .pool_blocks = tables,
                                    .device_block_count = BLOCKS,
                                    .timeout_ns = timeout_ns};
    struct sl_op *op = NULL;
    struct sl_op_result result;
    CHECK((store ? sl_store_start(side->engine, &request, &op, &why)
                 : sl_load_start(side->engine, &request, &op, &why)) == SL_OK);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    if (result.code != SL_OK) {
        why = result.why;
    }
    CHECK(sl_op_wait_fenced(op, PATIENT, &why) == SL_OK);
    sl_op_release(&op);
    return result;
}

/* Bytes of all heads once, however many ranks have them. */
static uint64_t request_bytes(void)
{
    return BLOCKS *
           ((uint64_t)LAYERS * HEADS * TOKENS * HEAD_BYTES + SAME_LAYERS * (uint64_t)SAME_BYTES);
}

/* A process without a core for half a second maps no memory in time: such an op is repeated. */
static struct sl_op_result run_until_mapped(struct side *side, uint32_t seed, bool store)
{
    for (uint32_t tries = 1;; tries++) {
        struct sl_op_result result = run(side, seed, store, PATIENT);
        if (result.code == SL_OK || strstr(why.text, "does not hand out") == NULL || tries == 3) {
            return result;
        }
        (void)fprintf(stderr, "parts_probe: try %u: %s\n", tries, why.text);
    }
}

static void store_all(struct side *side, uint32_t seed)
{
    struct sl_op_result result = run_until_mapped(side, seed, true);
    CHECK(result.code == SL_OK && result.stored_count == BLOCKS);
    CHECK(result.bytes == 0 || result.bytes == request_bytes());
}

static void load_all(struct side *side, uint32_t seed)
{
    struct sl_op_result result = run_until_mapped(side, seed, false);
    CHECK(result.code == SL_OK && result.block_count == BLOCKS);
}

static void matrix(void)
{
    struct sl_client *client = client_open();
    uint32_t seed = 1;
    for (uint32_t from = 0; from < 4 * LAYOUTS; from++, seed++) {
        struct side writer, reader;
        side_open(&writer, client, (struct shape){.world = 1u << from / 2, .layout = from % 2});
        blocks_choose(&writer, 3);
        poison(&writer);
        bytes_walk(&writer, seed, byte_compute);
        store_all(&writer, seed);
        for (uint32_t to = 0; to < 4 * LAYOUTS; to++) {
            side_open(&reader, client, (struct shape){.world = 1u << to / 2, .layout = to % 2});
            CHECK(strcmp(sl_engine_model_identity(reader.engine),
                         sl_engine_model_identity(writer.engine)) == 0);
            blocks_choose(&reader, 7);
            poison(&reader);
            load_all(&reader, seed);
            bytes_walk(&reader, seed, byte_check);
            side_end(&reader);
        }
        side_end(&writer);
    }
    sl_client_close(&client);
}

/* The two sides of the matrix at nodes of their own. */
static void writers(void)
{
    struct sl_client *client = client_open();
    for (uint32_t from = 0, seed = 1; from < 4 * LAYOUTS; from++, seed++) {
        struct side writer;
        side_open(&writer, client, (struct shape){.world = 1u << from / 2, .layout = from % 2});
        blocks_choose(&writer, 3);
        poison(&writer);
        bytes_walk(&writer, seed, byte_compute);
        store_all(&writer, seed);
        side_end(&writer);
    }
    sl_client_close(&client);
}

static void readers(void)
{
    struct sl_client *client = client_open();
    for (uint32_t to = 0; to < 4 * LAYOUTS; to++) {
        char line[8];
        struct side reader;
        side_open(&reader, client, (struct shape){.world = 1u << to / 2, .layout = to % 2});
        (void)printf("registered\n");
        CHECK(fflush(stdout) == 0 && fgets(line, sizeof(line), stdin) != NULL);
        for (uint32_t seed = 1; seed <= 4 * LAYOUTS; seed++) {
            blocks_choose(&reader, 7);
            poison(&reader);
            load_all(&reader, seed);
            bytes_walk(&reader, seed, byte_check);
        }
        side_end(&reader);
    }
    sl_client_close(&client);
}

/* ---- hand-overs ---- */

static struct side sides[4 * LAYOUTS];

/* All at once, so that the fabric has all their pools before the first hand-over. */
static struct sl_client *sides_open(void)
{
    char line[8];
    struct sl_client *client = client_open();
    for (uint32_t i = 0; i < 4 * LAYOUTS; i++) {
        side_open(&sides[i], client, (struct shape){.world = 1u << i / 2, .layout = i % 2});
    }
    (void)printf("registered\n");
    CHECK(fflush(stdout) == 0 && fgets(line, sizeof(line), stdin) != NULL);
    return client;
}

/* Starts one side's hand-over of the request of a seed; returns the op. */
static struct sl_op *handover_start(struct side *side, uint32_t seed,
                                    const struct sl_ticket *ticket)
{
    unsigned char hashes[BLOCKS * HASH_BYTES];
    const uint32_t *tables[2] = {side->blocks[0], side->blocks[1]};
    for (uint32_t i = 0; i < BLOCKS * HASH_BYTES; i++) {
        hashes[i] = (unsigned char)(i / HASH_BYTES * 16 + seed + i % HASH_BYTES * 7);
    }
    const struct sl_op_request request = {.hashes = hashes,
                                          .hash_bytes = HASH_BYTES,
                                          .pool_blocks = tables,
                                          .device_block_count = BLOCKS,
                                          .timeout_ns = PATIENT};
    const struct sl_handover_options options = {
        .id = 1000 + seed, .mode = SL_HANDOVER_DIRECT, .ticket = ticket};
    struct sl_op *op = NULL;
    CHECK((ticket != NULL
               ? sl_kv_send_start(side->engine, &request, &options, &op, &why)
               : sl_kv_receive_start(side->engine, &request, &options, &op, &why)) == SL_OK);
    return op;
}

static void handover_end(struct sl_op *op)
{
    struct sl_op_result result;
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    why = result.why;
    CHECK(result.code == SL_OK);
    CHECK(sl_op_wait_fenced(op, PATIENT, &why) == SL_OK);
    sl_op_release(&op);
}

static void sides_end(struct sl_client *client)
{
    for (uint32_t i = 0; i < 4 * LAYOUTS; i++) {
        side_end(&sides[i]);
    }
    sl_client_close(&client);
}

static void givers(void)
{
    struct sl_client *client = sides_open();
    for (uint32_t seed = 0; seed < 16 * LAYOUTS * LAYOUTS; seed++) {
        struct side *giver = &sides[seed / (4 * LAYOUTS)];
        struct sl_ticket ticket;
        unsigned char *bytes = (unsigned char *)&ticket;
        blocks_choose(giver, 3);
        poison(giver);
        bytes_walk(giver, seed, byte_compute);
        for (size_t i = 0; i < sizeof(ticket); i++) {
            unsigned byte = 0;
            CHECK(scanf("%2x", &byte) == 1);
            bytes[i] = (unsigned char)byte;
        }
        handover_end(handover_start(giver, seed, &ticket));
    }
    sides_end(client);
}

static void takers(void)
{
    struct sl_client *client = sides_open();
    for (uint32_t seed = 0; seed < 16 * LAYOUTS * LAYOUTS; seed++) {
        struct side *taker = &sides[seed % (4 * LAYOUTS)];
        struct sl_ticket ticket;
        blocks_choose(taker, 7);
        poison(taker);
        struct sl_op *op = handover_start(taker, seed, NULL);
        sl_err err = SL_ERR_BUSY;
        while ((err = sl_op_ticket(op, &ticket, PATIENT, &why)) == SL_ERR_BUSY) {
        }
        CHECK(err == SL_OK);
        for (size_t i = 0; i < sizeof(ticket); i++) {
            (void)printf("%02x", ((const unsigned char *)&ticket)[i]);
        }
        (void)printf("\n");
        CHECK(fflush(stdout) == 0);
        handover_end(op);
        bytes_walk(taker, seed, byte_check);
    }
    sides_end(client);
}

/* ---- one process a rank ---- */

struct rank { /* a child; one pipe for orders, one for results */
    pid_t pid;
    int order, done;
};

/* Ends the registration and registers other memory. The former memory must not change any more. */
static void side_again(struct side *side, struct side *former)
{
    poison(side);
    side_end(former);
    *former = *side;
    sl_engine_end(&former->engine);
    side_open(side, former->client, former->shape);
    poison(side);
}

static void former_check(const struct side *former)
{
    for (uint32_t pool = 0; pool < 2; pool++) {
        const unsigned char *memory = former->plain[0][pool];
        for (uint64_t i = 0; i < memory_bytes(&former->shape, pool); i++) {
            CHECK(memory[i] == POISON);
        }
    }
}

static void rank_main(struct shape shape, int order, int done)
{
    struct side side, former = {.engine = NULL};
    unsigned char asked[3]; /* command, seed, first block */
    struct sl_client *client = client_open();
    side_open(&side, client, shape);
    poison(&side);
    gpu_copy(&side, false);
    CHECK(write(done, "r", 1) == 1);
    while (read(order, asked, sizeof asked) == (ssize_t)sizeof asked && asked[0] != 'q') {
        blocks_choose(&side, asked[2]);
        if (asked[0] == 'p') {
            poison(&side);
        } else if (asked[0] == 'a') {
            side_again(&side, &former);
        } else if (asked[0] == 'f') {
            former_check(&former);
        } else {
            if (asked[0] == 'c') {
                gpu_copy(&side, true);
            }
            bytes_walk(&side, asked[1], asked[0] == 'w' ? byte_compute : byte_check);
        }
        if (asked[0] != 'c') {
            gpu_copy(&side, false);
        }
        CHECK(write(done, "d", 1) == 1);
    }
    side_end(&former);
    side_end(&side);
    sl_client_close(&side.client);
    exit(0);
}

static struct rank rank_start(struct shape shape, uint32_t number)
{
    int order[2], done[2];
    CHECK(pipe(order) == 0 && pipe(done) == 0);
    struct rank rank = {.pid = fork(), .order = order[1], .done = done[0]};
    CHECK(rank.pid >= 0);
    if (rank.pid == 0) {
        (void)close(order[1]);
        (void)close(done[0]);
        shape.first_rank = number;
        shape.rank_count = 1;
        rank_main(shape, order[0], done[1]);
    }
    (void)close(order[0]);
    (void)close(done[1]);
    char ready;
    CHECK(read(rank.done, &ready, 1) == 1);
    return rank;
}

static void ranks_do(struct rank *ranks, uint32_t count, char what, uint32_t seed, uint32_t first)
{
    unsigned char asked[3] = {(unsigned char)what, (unsigned char)seed, (unsigned char)first};
    char answer;
    for (uint32_t i = 0; i < count; i++) {
        CHECK(write(ranks[i].order, asked, sizeof asked) == (ssize_t)sizeof asked);
    }
    for (uint32_t i = 0; i < count; i++) {
        CHECK(read(ranks[i].done, &answer, 1) == 1);
    }
}

static void ranks_end(struct rank *ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int status = 0;
        unsigned char quit[3] = {'q'}; /* others also have the pipe open */
        CHECK(write(ranks[i].order, quit, sizeof quit) == (ssize_t)sizeof quit);
        (void)close(ranks[i].order);
        CHECK(waitpid(ranks[i].pid, &status, 0) == ranks[i].pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        (void)close(ranks[i].done);
    }
}

enum memory { SHARED, PLAIN, LENT, GPU };
static struct shape team_shape(uint32_t number, uint32_t world, enum layout layout,
                               enum memory memory)
{
    char name[64];
    int length = snprintf(name, sizeof name, "%s team %u", instance, number);
    return (struct shape){.world = world,
                          .layout = layout,
                          .plain = memory == PLAIN || memory == GPU,
                          .gpu = memory == GPU,
                          .lent = memory == LENT,
                          .team = sl_team_number(name, (uint64_t)length)};
}

/* Children before threads: each team is forked before this process has a client. */
static void team(enum memory memory, uint32_t writing, uint32_t reading)
{
    struct rank writers[4], readers[4];
    struct shape from = team_shape(1, writing, BY_TOKEN, memory);
    struct shape to = team_shape(2, reading, BY_HEAD, memory);
    for (uint32_t i = 0; i < writing; i++) {
        writers[i] = rank_start(from, i);
    }
    for (uint32_t i = 0; i < reading; i++) {
        readers[i] = rank_start(to, i);
    }
    struct sl_client *client = client_open();
    struct side store, load;
    from.plain = to.plain = from.lent = to.lent = from.gpu = to.gpu =
        false; /* this process has no rank and no memory */
    side_open(&store, client, from);
    side_open(&load, client, to);
    for (uint32_t seed = 20; seed < 24; seed++) {
        blocks_choose(&store, 2);
        blocks_choose(&load, 6);
        ranks_do(writers, writing, 'w', seed, 2);
        store_all(&store, seed);
        ranks_do(readers, reading, 'p', seed, 6);
        load_all(&load, seed);
        ranks_do(readers, reading, 'c', seed, 6);
    }
    side_end(&store);
    side_end(&load);
    sl_client_close(&client);
    ranks_end(writers, writing);
    ranks_end(readers, reading);
}

/* A dead rank costs its blocks; a load reports that immediately, and a new rank can replace it. */
static void death(void)
{
    struct shape shape = team_shape(3, 2, BY_TOKEN, PLAIN);
    struct rank ranks[2] = {rank_start(shape, 0), rank_start(shape, 1)};
    int status = 0;
    int order[2], begun[2];
    char byte;
    CHECK(pipe(order) == 0 && pipe(begun) == 0);
    pid_t spare = fork(); /* becomes the new rank 1 when ordered */
    CHECK(spare >= 0);
    if (spare == 0) {
        char go;
        (void)close(order[1]);
        CHECK(read(order[0], &go, 1) == 1);
        struct rank again = rank_start(shape, 1);
        CHECK(write(begun[1], "b", 1) == 1);
        CHECK(read(order[0], &go, 1) == 0);
        ranks_do(&again, 1, 'c', 30, 1);
        ranks_end(&again, 1);
        exit(0);
    }
    (void)close(order[0]);
    shape.plain = false;
    struct sl_client *client = client_open();
    struct side side;
    side_open(&side, client, shape);
    blocks_choose(&side, 1);
    ranks_do(ranks, 2, 'w', 30, 1);
    store_all(&side, 30);
    CHECK(kill(ranks[1].pid, SIGKILL) == 0 && waitpid(ranks[1].pid, &status, 0) == ranks[1].pid);
    struct sl_op_result result = run(&side, 30, false, 20 * S);
    CHECK(result.code != SL_OK && result.block_count == 0);
    CHECK(write(order[1], "g", 1) == 1);
    for (uint32_t tries = 0; result.code != SL_OK && tries < 600; tries++) {
        (void)usleep(50000);
        result = run(&side, 30, false, 20 * S);
    }
    CHECK(result.code == SL_OK && result.block_count == BLOCKS);
    CHECK(read(begun[0], &byte, 1) == 1); /* it has poisoned its memory, after it registered */
    load_all(&side, 30);
    (void)close(order[1]); /* the new rank checks its bytes */
    CHECK(waitpid(spare, &status, 0) == spare && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    side_end(&side);
    sl_client_close(&client);
    ranks_end(ranks, 1);
}

/* After a registration ends, loads immediately write to the memory that was registered next. */
static void again(void)
{
    struct shape shape = team_shape(4, 2, BY_TOKEN, PLAIN);
    struct rank ranks[2] = {rank_start(shape, 0), rank_start(shape, 1)};
    shape.plain = false;
    struct sl_client *client = client_open();
    struct side side;
    side_open(&side, client, shape);
    blocks_choose(&side, 1);
    ranks_do(ranks, 2, 'w', 40, 1);
    store_all(&side, 40);
    for (uint32_t round = 0; round < 5; round++) {
        load_all(&side, 40); /* swappers and coordinator know the team */
        ranks_do(ranks + round % 2, 1, 'a', 0, 1);
        load_all(&side, 40);
        ranks_do(ranks + round % 2, 1, 'c', 40, 1);
        ranks_do(ranks + round % 2, 1, 'f', 0, 1);
    }
    side_end(&side);
    sl_client_close(&client);
    ranks_end(ranks, 2);
}

/* Damages the first piece of every part of the request's blocks in the arena. Returns their
 * number. */
static uint32_t arena_spoil(uint32_t seed)
{
    char path[4300];
    struct stat status;
    uint32_t found = 0;
    (void)snprintf(path, sizeof path, "%s/arena.0", settings[2] + strlen("shm_dir="));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    size_t length = (size_t)status.st_size;
    unsigned char *arena = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(arena != MAP_FAILED);
    for (uint32_t i = 0; i < BLOCKS * HEADS; i++) {
        unsigned char piece[TOKENS * HEAD_BYTES];
        for (uint32_t k = 0; k < sizeof piece; k++) {
            piece[k] = byte_of(seed, i % HEADS, 0, i / HEADS, k);
        }
        unsigned char *at = memmem(arena, length, piece, sizeof piece);
        if (at != NULL) {
            at[sizeof piece / 2] ^= 1;
            found++;
        }
    }
    (void)munmap(arena, length);
    (void)close(fd);
    return found;
}

/* Loads that read everything again find damage in memory: it is a miss, and is stored again. */
static void damage(void)
{
    struct sl_client *client = client_open();
    struct side side;
    side_open(&side, client, (struct shape){.world = 2, .layout = BY_TOKEN});
    blocks_choose(&side, 3);
    bytes_walk(&side, 50, byte_compute);
    store_all(&side, 50);
    CHECK(arena_spoil(50) == BLOCKS * HEADS);
    struct sl_op_result result = run(&side, 50, false, PATIENT);
    CHECK(result.code != SL_OK && result.block_count == 0);
    for (uint32_t tries = 0; result.code != SL_OK && tries < 600; tries++) {
        (void)usleep(10000);
        result = run(&side, 50, false, PATIENT);
    }
    CHECK(result.code == SL_OK && result.block_count == 0);
    bytes_walk(&side, 50, byte_compute);
    store_all(&side, 50);
    poison(&side);
    load_all(&side, 50);
    bytes_walk(&side, 50, byte_check);
    side_end(&side);
    sl_client_close(&client);
}

int main(int argc, char **argv)
{
    static char texts[3][4200];
    if (argc != 5) {
        (void)fprintf(stderr, "usage: parts_probe INSTANCE RUNTIME_DIR SHM_DIR "
                              "matrix|team|plain|lent|gpu1|gpu2|gpu4|death|"
                              "again|damage|writers|readers|givers|takers\n");
        return 2;
    }
    (void)snprintf(texts[0], sizeof texts[0], "instance=%s", argv[1]);
    (void)snprintf(texts[1], sizeof texts[1], "runtime_dir=%s", argv[2]);
    (void)snprintf(texts[2], sizeof texts[2], "shm_dir=%s", argv[3]);
    for (size_t i = 0; i < 3; i++) {
        settings[i] = texts[i];
    }
    instance = argv[1];
    if (strcmp(argv[4], "matrix") == 0) {
        matrix();
    } else if (strcmp(argv[4], "death") == 0) {
        death();
    } else if (strcmp(argv[4], "damage") == 0) {
        damage();
    } else if (strcmp(argv[4], "givers") == 0) {
        givers();
    } else if (strcmp(argv[4], "takers") == 0) {
        takers();
    } else if (strcmp(argv[4], "writers") == 0) {
        writers();
    } else if (strcmp(argv[4], "readers") == 0) {
        readers();
    } else if (strcmp(argv[4], "again") == 0) {
        again();
    } else if (strncmp(argv[4], "gpu", 3) == 0) {
        uint32_t gpus = (uint32_t)atoi(argv[4] + 3);
        CHECK(gpus == 1 || gpus == 2 || gpus == 4);
        team(GPU, gpus > 1 ? gpus / 2 : 1, gpus);
    } else {
        team(strcmp(argv[4], "plain") == 0  ? PLAIN
             : strcmp(argv[4], "lent") == 0 ? LENT
                                            : SHARED,
             2, 4);
    }
    return 0;
}
