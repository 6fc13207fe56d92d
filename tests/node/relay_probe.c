/* tests/node/relay_probe.c - an engine of another user than the node's, which stores and loads without a pause;
 * containers_engine_test.py drives it.
 *
 *   relay_probe INSTANCE RUNTIME_DIR SHM_DIR THREADS
 *
 * Lines, each answered by one: register KIND (CODE TEXT; KIND: made, fd, alloc, plain, sealed: a memfd that is
 * sealed against nothing and cut short then); other (a second client and engine: CODE TEXT); start; count
 * ("stored N loaded N wrong N late N unfenced N", and how often each code came: CODE=N); rest (threads end);
 * refused WHAT (CODE TEXT of what is not for guests: remove, handover, pool); layers (a store and a load by
 * layers: CODE CODE whole); pause (of a session: CODE); life (engine's end and a new registration: CODE). The end of the input ends it. */
#include "client/lib/sluice.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LAYERS      2u
#define PIECE       4096u
#define BLOCKS      64u
#define CHAIN       2u
#define CHAINS      64u
#define HASH_BYTES  32u
#define THREADS_MAX 8u
#define OTHERS_MAX  8u
#define CODES       64u
#define S           UINT64_C(1000000000)
#define OP_NS       (4 * S) /* times SLUICE_TEST_SLOWDOWN */
#define FENCE_NS    (20 * S)
#define LATE_NS     (5 * S) /* a machine that has no core for us for a while is no hang */

struct made {
    struct sl_client *client;
    struct sl_engine *engine;
    unsigned char *at; /* of both layers */
    void *own;         /* memory that Sluice did not make for the engine, and what it is */
    char kind;
};

static const char *settings[4], *instance;
static uint64_t op_ns = OP_NS;
static struct made mine, others[OTHERS_MAX];
static uint32_t other_count;
static struct sl_error why;
static pthread_t threads[THREADS_MAX];
static uint32_t thread_count;
static bool started;
static atomic_bool resting;
static _Atomic uint64_t stored, loaded, wrong, late, unfenced, codes[CODES];

static uint64_t now(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * S + (uint64_t)at.tv_nsec;
}

static unsigned char byte_of(uint32_t chain, uint32_t block, uint32_t layer, uint32_t at)
{
    return (unsigned char)(chain * 31 + block * 7 + layer * 3 + at + at / 251);
}

static unsigned char *piece_at(const struct made *of, uint32_t layer, uint32_t device_block)
{
    return of->at + ((size_t)layer * BLOCKS + device_block) * PIECE;
}

static void chain_fill(const struct made *of, uint32_t chain, const uint32_t *device_blocks)
{
    for (uint32_t b = 0; b < CHAIN; b++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            unsigned char *piece = piece_at(of, l, device_blocks[b]);
            for (uint32_t i = 0; i < PIECE; i++) {
                piece[i] = byte_of(chain, b, l, i);
            }
        }
    }
}

static uint32_t chain_wrong(const struct made *of, uint32_t chain, const uint32_t *device_blocks,
                            uint32_t count)
{
    uint32_t bad = 0;
    for (uint32_t b = 0; b < count; b++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            const unsigned char *piece = piece_at(of, l, device_blocks[b]);
            for (uint32_t i = 0; i < PIECE; i++) {
                if (piece[i] != byte_of(chain, b, l, i)) {
                    bad++;
                    break;
                }
            }
        }
    }
    return bad;
}

static void hashes_of(uint32_t chain, unsigned char out[CHAIN * HASH_BYTES])
{
    memset(out, 0, CHAIN * HASH_BYTES);
    for (uint32_t b = 0; b < CHAIN; b++) {
        out[b * HASH_BYTES] = (unsigned char)(chain + 1);
        out[b * HASH_BYTES + 1] = (unsigned char)(b + 1);
    }
}

/* Of one op, to the fence. */
static sl_err op_run(const struct made *of, bool store, uint32_t chain,
                     const uint32_t *device_blocks, uint32_t layers, struct sl_op_result *result)
{
    unsigned char hashes[CHAIN * HASH_BYTES];
    struct sl_op *op = NULL;
    struct sl_error reason = {0};
    hashes_of(chain, hashes);
    const struct sl_op_request request = {.hashes = hashes,
                                          .hash_bytes = HASH_BYTES,
                                          .device_blocks = device_blocks,
                                          .device_block_count = CHAIN,
                                          .layer_count = layers,
                                          .timeout_ns = op_ns,
                                          .hints = {.session_id = "chat"}};
    uint64_t since_ns = now();
    *result = (struct sl_op_result){0};
    sl_err err = store ? sl_store_start(of->engine, &request, &op, &reason)
                       : sl_load_start(of->engine, &request, &op, &reason);
    for (uint32_t i = 0; err == SL_OK && store && i < layers; i++) {
        err = sl_op_layers_ready(op, i + 1, &reason);
    }
    if (op != NULL) {
        (void)sl_op_wait(op, 0, result);
        err = err == SL_OK ? result->code : err;
    }
    codes[err]++;
    late += now() - since_ns > op_ns + LATE_NS;
    if (op != NULL && !result->fenced) {
        unfenced += sl_op_wait_fenced(op, FENCE_NS, &reason) != SL_OK;
    }
    sl_op_release(&op);
    return err;
}

static void *thread_run(void *context)
{
    uint32_t number = (uint32_t)(uintptr_t)context;
    const uint32_t from[CHAIN] = {number * 4, number * 4 + 1};
    const uint32_t to[CHAIN] = {number * 4 + 2, number * 4 + 3};
    for (uint32_t turn = number * 7; !resting; turn++) {
        struct sl_op_result result;
        uint32_t chain = turn % CHAINS;
        chain_fill(&mine, chain, from);
        (void)op_run(&mine, true, chain, from, 0, &result);
        stored += result.stored_count;
        for (uint32_t b = 0; b < CHAIN; b++) {
            for (uint32_t l = 0; l < LAYERS; l++) {
                memset(piece_at(&mine, l, to[b]), 0xa5, PIECE);
            }
        }
        sl_err err = op_run(&mine, false, chain, to, 0, &result);
        if (err == SL_OK) {
            loaded += result.block_count;
            wrong += chain_wrong(&mine, chain, to, result.block_count);
        } else {
            (void)usleep(1000);
        }
    }
    return NULL;
}

/* ---- memory, engines ---- */

static void engine_end(struct made *of)
{
    sl_engine_end(&of->engine);
    if (of->own != NULL && of->kind == 'a') {
        (void)sl_memory_free(of->own, NULL);
    } else if (of->own != NULL && of->kind == 'p') {
        free(of->own);
    } else if (of->own != NULL) {
        (void)munmap(of->own, (size_t)LAYERS * BLOCKS * PIECE);
    }
    of->own = NULL;
}

static sl_err engine_make(struct made *of, const char *kind)
{
    const uint64_t bytes = (uint64_t)LAYERS * BLOCKS * PIECE;
    struct sl_engine_layer layers[LAYERS];
    uint64_t addresses[LAYERS];
    const uint64_t *const ranks[] = {addresses};
    void *at = NULL;
    int fd = -1;
    for (uint32_t l = 0; l < LAYERS; l++) {
        layers[l] = (struct sl_engine_layer){.offset_bytes = (uint64_t)l * BLOCKS * PIECE,
                                             .length_bytes = (uint64_t)BLOCKS * PIECE,
                                             .block_stride_bytes = PIECE,
                                             .piece_bytes = PIECE};
    }
    struct sl_engine_pool pool = {
        .name = "kv", .layer_count = LAYERS, .layers = layers, .memory_bytes = bytes};
    if (strcmp(kind, "fd") == 0 || strcmp(kind, "sealed") == 0) {
        fd = memfd_create("mine", MFD_CLOEXEC | (kind[0] == 'f' ? MFD_ALLOW_SEALING : 0));
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
            return SL_ERR_OS;
        }
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        pool.fds = &fd;
    } else if (strcmp(kind, "alloc") == 0) {
        sl_err err = sl_memory_alloc(bytes, &at, &why);
        if (err != SL_OK) {
            return err;
        }
    } else if (strcmp(kind, "plain") == 0) {
        at = calloc(1, bytes);
    }
    if (at != NULL && fd < 0) {
        addresses[0] = addresses[1] = (uintptr_t)at;
        pool.device = ranks;
    }
    const struct sl_engine_options options = {.name = "guest",
                                              .model = {.name = "of-guests"},
                                              .key_format = "sluice",
                                              .block_tokens = 16,
                                              .world = 1,
                                              .block_count = BLOCKS,
                                              .pool_count = 1,
                                              .pools = &pool};
    sl_err err = sl_engine_register(of->client, &options, 10 * S, &of->engine, &why);
    if (err == SL_OK) {
        of->at = at != NULL ? at : sl_engine_memory(of->engine, 0, 0);
    }
    of->own = at;
    of->kind = kind[0];
    if (err == SL_OK && fd >= 0 && ftruncate(fd, 4096) == 0) {
        err = SL_ERR_INTERNAL; /* what the node has mapped would not be there any more */
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

static sl_err client_make(struct made *of)
{
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .instance = instance, .settings = settings};
    return sl_client_open(&options, &of->client, &why);
}

/* ---- commands ---- */

static void code_tell(sl_err err)
{
    (void)printf("%s %s\n", sl_err_name(err), err == SL_OK ? "" : why.text);
}

static void counts_tell(void)
{
    (void)printf("stored %" PRIu64 " loaded %" PRIu64 " wrong %" PRIu64 " late=%" PRIu64
                 " unfenced=%" PRIu64,
                 stored, loaded, wrong, late, unfenced);
    for (uint32_t i = 0; i < CODES; i++) {
        if (codes[i] > 0) {
            (void)printf(" %s=%" PRIu64, sl_err_name((sl_err)i), codes[i]);
        }
    }
    (void)printf("\n");
}

static void start(void)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        if (pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)i) != 0) {
            abort();
        }
    }
    started = true;
}

static void rest(void)
{
    resting = true;
    for (uint32_t i = 0; started && i < thread_count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    started = false;
}

static sl_err refused(const char *what)
{
    if (strcmp(what, "remove") == 0) {
        const struct sl_object_key key = {.at = "key", .length = 3};
        return sl_remove(mine.client, key, S, &why);
    }
    if (strcmp(what, "pool") == 0) {
        const struct sl_pool_key key = {.deployment = "mine", .pool = "kv"};
        struct sl_pool *pool = NULL;
        return sl_pool_create(mine.client, &key, 4096, S, &pool, &why);
    }
    unsigned char hashes[CHAIN * HASH_BYTES];
    const uint32_t blocks[CHAIN] = {60, 61};
    struct sl_op *op = NULL;
    struct sl_op_result result = {0};
    hashes_of(1, hashes);
    const struct sl_op_request request = {.hashes = hashes,
                                          .hash_bytes = HASH_BYTES,
                                          .device_blocks = blocks,
                                          .device_block_count = CHAIN,
                                          .timeout_ns = S};
    const struct sl_handover_options options = {.id = 7};
    sl_err err = sl_handover_send_start(mine.engine, &request, &options, &op, &why);
    if (err == SL_OK) {
        (void)sl_op_wait(op, 0, &result);
        err = result.code;
        why = result.why;
    }
    sl_op_release(&op);
    return err;
}

static void layers_tell(void)
{
    const uint32_t from[CHAIN] = {56, 57}, to[CHAIN] = {58, 59};
    struct sl_op_result result;
    chain_fill(&mine, 200, from);
    sl_err put = op_run(&mine, true, 200, from, LAYERS, &result);
    sl_err got = op_run(&mine, false, 200, to, LAYERS, &result);
    bool whole = result.block_count == CHAIN && chain_wrong(&mine, 200, to, CHAIN) == 0;
    (void)printf("%s %s %s\n", sl_err_name(put), sl_err_name(got), whole ? "whole" : "not");
}

static void obey(const char *word, const char *more)
{
    if (strcmp(word, "register") == 0) {
        code_tell(engine_make(&mine, more));
    } else if (strcmp(word, "other") == 0) {
        struct made *other = &others[other_count++];
        sl_err err = other_count < OTHERS_MAX ? client_make(other) : SL_ERR_LIMIT;
        code_tell(err == SL_OK ? engine_make(other, "made") : err);
    } else if (strcmp(word, "start") == 0) {
        start();
        (void)printf("started\n");
    } else if (strcmp(word, "count") == 0) {
        counts_tell();
    } else if (strcmp(word, "rest") == 0) {
        rest();
        (void)printf("rested\n");
    } else if (strcmp(word, "refused") == 0) {
        code_tell(refused(more));
    } else if (strcmp(word, "layers") == 0) {
        layers_tell();
    } else if (strcmp(word, "pause") == 0) {
        code_tell(sl_session_pause(mine.client, "chat", S, S, &why));
    } else if (strcmp(word, "life") == 0) {
        engine_end(&mine);
        code_tell(engine_make(&mine, more));
    } else {
        (void)printf("unknown %s\n", word);
    }
}

int main(int argc, char **argv)
{
    static char runtime_dir[1100], shm_dir[1100];
    char line[256];
    if (argc != 5) {
        return 2;
    }
    instance = argv[1];
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    settings[0] = runtime_dir;
    settings[1] = shm_dir;
    const char *slowdown = getenv("SLUICE_TEST_SLOWDOWN");
    op_ns *= slowdown != NULL ? strtoul(slowdown, NULL, 10) : 1;
    thread_count = (uint32_t)strtoul(argv[4], NULL, 10);
    if (thread_count > THREADS_MAX) {
        return 2;
    }
    if (client_make(&mine) != SL_OK) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char word[64] = "", more[64] = "";
        (void)sscanf(line, "%63s %63s", word, more);
        obey(word, more);
        (void)fflush(stdout);
    }
    rest();
    for (uint32_t i = 0; i < other_count; i++) {
        engine_end(&others[i]);
        sl_client_close(&others[i].client);
    }
    engine_end(&mine);
    sl_client_close(&mine.client);
    return 0;
}
