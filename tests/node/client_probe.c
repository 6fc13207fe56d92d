/* tests/node/client_probe.c - uses libsluice on a running node as an engine would; object_api.py
 * starts both.
 *
 *   client_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Prints "registrar", then "replace", and waits for a line on standard input after each, so that
 * first the registrar and then the node can be restarted. Exit code 0: all checks passed. */
#include "client/include/sluice.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define BATCH     1000u
#define THREADS   4u
#define ROUNDS    50u
#define RUN       200u
#define RUN_BYTES 20000u /* preallocated extents have a size of their own */
#define TOKENS    70u    /* four blocks of 16 and a cut one */

static struct sl_error why;
static const char *settings[5] = {[3] = "op_timeout=60s"};

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static struct sl_client *client_of(bool read_only)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings,
                                              .read_only = read_only};
    struct sl_client *client = NULL;
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    return client;
}

/* If a batch has a key twice, the first value is stored. */
static void batches(struct sl_client *client)
{
    static char texts[BATCH][16];
    static uint64_t values[BATCH];
    static uint64_t got[BATCH];
    static struct sl_object_key keys[BATCH];
    static struct sl_buffer buffers[BATCH];
    static uint64_t lengths[BATCH];
    static sl_err codes[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "batch/%u", i % (BATCH / 2));
        values[i] = i + 1;
        keys[i] = key_of(texts[i]);
        buffers[i] = (struct sl_buffer){.at = &values[i], .length_bytes = sizeof values[i]};
    }
    CHECK(sl_put_batch(client, keys, buffers, BATCH, codes, 0, &why) == SL_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        CHECK(codes[i] == SL_OK);
        buffers[i].at = &got[i];
    }
    CHECK(sl_get_batch(client, keys, buffers, BATCH, lengths, codes, 0, &why) == SL_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        CHECK(codes[i] == SL_OK && lengths[i] == 8 && got[i] == i % (BATCH / 2) + 1);
    }
    CHECK(sl_remove_batch(client, keys, BATCH / 2, NULL, codes, 0, &why) == SL_OK);
    CHECK(sl_exists_batch(client, keys, BATCH, codes) == SL_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        CHECK(codes[i] == SL_ERR_NOT_FOUND);
    }
}

/* Pinned bytes do not change while their object is removed and its space is needed. */
static void pins(struct sl_client *client)
{
    static unsigned char value[1 << 20];
    struct sl_view view;
    memset(value, 0x11, sizeof value);
    CHECK(sl_put(client, key_of("pinned"), value, sizeof value, 0, &why) == SL_OK);
    CHECK(sl_get_pinned(client, key_of("pinned"), &view, 0, &why) == SL_OK);
    CHECK(view.length_bytes == sizeof value);
    CHECK(sl_remove(client, key_of("pinned"), 0, &why) == SL_OK);
    memset(value, 0x22, sizeof value);
    for (int i = 0; i < 100; i++) {
        CHECK(sl_put(client, key_of("other"), value, sizeof value, 0, &why) == SL_OK);
        CHECK(sl_remove(client, key_of("other"), 0, &why) == SL_OK);
    }
    memset(value, 0x11, sizeof value);
    CHECK(memcmp(view.at, value, sizeof value) == 0);
    sl_view_release(client, &view);
    CHECK(view.at == NULL);
}

static void small_buffers_and_bad_arguments(struct sl_client *client)
{
    char out[4];
    uint64_t length = 0;
    CHECK(sl_put(client, key_of("size"), "12345678", 8, 0, &why) == SL_OK);
    CHECK(sl_get(client, key_of("size"), (struct sl_buffer){.at = out, .length_bytes = 4}, &length,
                 0, &why) == SL_ERR_LIMIT);
    CHECK(length == 8);
    CHECK(sl_put(client, key_of(""), "x", 1, 0, &why) == SL_ERR_INVALID);
    CHECK(sl_put(client, (struct sl_object_key){.at = "a\0b", .length = 3}, "x", 1, 0, &why) ==
          SL_ERR_INVALID);
    CHECK(sl_put(client, key_of("empty"), "", 0, 0, &why) == SL_ERR_INVALID);
    struct sl_client *reader = client_of(true);
    CHECK(sl_put(reader, key_of("x"), "x", 1, 0, &why) == SL_ERR_PERMISSION);
    CHECK(sl_exists(reader, key_of("size")) == SL_OK);
    sl_client_close(&reader);
}

static void a_fork_is_refused(struct sl_client *client)
{
    pid_t child = fork();
    if (child == 0) {
        struct sl_view view;
        _exit(sl_put(client, key_of("forked"), "x", 1, 0, NULL) != SL_ERR_INVALID ||
              sl_get_pinned(client, key_of("size"), &view, 0, NULL) != SL_ERR_INVALID);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Threads share one client, and all of them write some common keys. */
static void *thread_main(void *context)
{
    struct sl_client *client = context;
    static _Atomic uint32_t numbers;
    uint32_t number = numbers++;
    char text[32];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t got = 0;
        uint64_t length = 0;
        (void)snprintf(text, sizeof text, "own/%u/%u", number, i);
        CHECK(sl_put(client, key_of(text), &i, sizeof i, 0, &why) == SL_OK);
        CHECK(sl_get(client, key_of(text), (struct sl_buffer){.at = &got, .length_bytes = 4},
                     &length, 0, &why) == SL_OK);
        CHECK(got == i && length == 4);
        (void)snprintf(text, sizeof text, "shared/%u", i);
        CHECK(sl_put(client, key_of(text), &i, sizeof i, 0, &why) == SL_OK);
    }
    return NULL;
}

static void threads(struct sl_client *client)
{
    pthread_t running[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&running[i], NULL, thread_main, client) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
    }
}

/* Puts of one size, one by one and in batches: into preallocated extents. Every third key is put
 * twice, the second time with other bytes, which must not change it. */
static void run_fill(unsigned char *value, const char *name, uint32_t number)
{
    for (uint32_t i = 0; i < RUN_BYTES; i++) {
        value[i] = (unsigned char)(number * 31 + i * 7 + (unsigned char)name[0]);
    }
}

static void run_put(struct sl_client *client, const char *name, uint32_t first, uint32_t count)
{
    static unsigned char value[RUN_BYTES], other[RUN_BYTES];
    char text[64];
    memset(other, 0xee, sizeof other);
    for (uint32_t i = first; i < first + count; i++) {
        (void)snprintf(text, sizeof text, "run/%s/%u", name, i);
        run_fill(value, name, i);
        CHECK(sl_put(client, key_of(text), value, sizeof value, 0, &why) == SL_OK);
        CHECK(sl_exists(client, key_of(text)) == SL_OK);
        if (i % 3 == 0) {
            CHECK(sl_put(client, key_of(text), other, sizeof other, 0, &why) == SL_OK);
        }
    }
}

/* Batches of 8 keys, whose last key repeats the first. */
static void run_put_batches(struct sl_client *client, const char *name, uint32_t first,
                            uint32_t count)
{
    static unsigned char values[8][RUN_BYTES];
    char texts[8][64];
    struct sl_object_key keys[8];
    struct sl_buffer buffers[8];
    sl_err codes[8];
    for (uint32_t at = first; at + 7 <= first + count; at += 7) {
        for (uint32_t i = 0; i < 8; i++) {
            (void)snprintf(texts[i], sizeof texts[i], "run/%s/%u", name, at + i % 7);
            run_fill(values[i], i < 7 ? name : "other", at + i);
            keys[i] = key_of(texts[i]);
            buffers[i] = (struct sl_buffer){.at = values[i], .length_bytes = RUN_BYTES};
        }
        CHECK(sl_put_batch(client, keys, buffers, 8, codes, 0, &why) == SL_OK);
        for (uint32_t i = 0; i < 8; i++) {
            CHECK(codes[i] == SL_OK);
        }
    }
}

static void run_check(struct sl_client *client, const char *name, uint32_t count)
{
    static unsigned char want[RUN_BYTES], got[RUN_BYTES];
    char text[64];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t length = 0;
        (void)snprintf(text, sizeof text, "run/%s/%u", name, i);
        run_fill(want, name, i);
        CHECK(sl_get(client, key_of(text),
                     (struct sl_buffer){.at = got, .length_bytes = sizeof got}, &length, 0,
                     &why) == SL_OK);
        CHECK(length == RUN_BYTES && memcmp(got, want, RUN_BYTES) == 0);
    }
}

static void *run_main(void *context)
{
    static _Atomic uint32_t numbers;
    unsigned char value[5000];
    char text[64];
    uint32_t number = numbers++;
    for (uint32_t i = 0; i < ROUNDS; i++) { /* same for all threads, so they write the same keys */
        memset(value, (int)i, sizeof value);
        (void)snprintf(text, sizeof text, "run/threads/%u", i);
        CHECK(sl_put(context, key_of(text), value, sizeof value, 0, &why) == SL_OK);
        (void)snprintf(text, sizeof text, "run/thread/%u/%u", number, i);
        CHECK(sl_put(context, key_of(text), value, sizeof value, 0, &why) == SL_OK);
    }
    return NULL;
}

static void runs(struct sl_client *client)
{
    pthread_t running[THREADS];
    run_put(client, "singles", 0, RUN);
    run_put_batches(client, "batches", 0, 7 * 20);
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&running[i], NULL, run_main, client) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
    }
    run_check(client, "singles", RUN);
    run_check(client, "batches", 7 * 20);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        unsigned char got[5000];
        char text[64];
        (void)snprintf(text, sizeof text, "run/threads/%u", i);
        CHECK(sl_get(client, key_of(text),
                     (struct sl_buffer){.at = got, .length_bytes = sizeof got}, NULL, 0,
                     &why) == SL_OK);
        CHECK(got[0] == i && got[4999] == i);
    }
}

static void wait_for_line(const char *said)
{
    (void)puts(said);
    (void)fflush(stdout);
    CHECK(getchar() == '\n');
}

static struct sl_engine *engine_of(struct sl_client *client)
{
    const struct sl_engine_layer layers[] = {
        {.length_bytes = 800, .block_stride_bytes = 80, .piece_bytes = 77},
        {.offset_bytes = 800, .length_bytes = 50, .block_stride_bytes = 5, .piece_bytes = 5}};
    struct sl_engine_pool pool = {
        .name = "kv", .layer_count = 2, .layers = layers, .memory_bytes = 850};
    struct sl_engine_options options = {.name = "probe",
                                        .key_format = "sluice",
                                        .block_tokens = 16,
                                        .world = 1,
                                        .block_count = 10,
                                        .pool_count = 1,
                                        .pools = &pool};
    struct sl_engine *engine = NULL;
    options.block_count = 11; /* does not fit */
    CHECK(sl_engine_register(client, &options, 0, &engine, &why) == SL_ERR_INVALID);
    options.block_count = 10;
    pool.name = "KV";
    CHECK(sl_engine_register(client, &options, 0, &engine, &why) == SL_ERR_INVALID);
    pool.name = "kv";
    CHECK(sl_engine_register(client, &options, 0, &engine, &why) == SL_OK);
    CHECK(strlen(sl_engine_model_identity(engine)) == 32);
    return engine;
}

/* Stores five blocks, loads them into others, compares. */
static void store_and_load(struct sl_engine *engine)
{
    uint32_t tokens[TOKENS];
    const uint32_t from[] = {0, 2, 4, 6, 8};
    const uint32_t to[] = {9, 7, 5, 3, 1};
    unsigned char *memory = sl_engine_memory(engine, 0, 0);
    struct sl_op *op = NULL;
    struct sl_op_result result;
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 7;
    }
    for (uint32_t i = 0; i < 850; i++) {
        memory[i] = (unsigned char)(i * 13 + 5);
    }
    struct sl_op_request request = {.tokens = tokens,
                                    .token_count = TOKENS,
                                    .partial = true,
                                    .device_blocks = from,
                                    .device_block_count = 5};
    CHECK(sl_store_start(engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    why = result.why;
    CHECK(result.code == SL_OK && result.stored_count + result.existed_count == 5);
    CHECK(sl_op_block_stored(op, 0) != sl_op_block_existed(op, 0) && !sl_op_block_stored(op, 5));
    CHECK(sl_op_wait_fenced(op, 0, &why) == SL_OK);
    sl_op_release(&op);
    request.device_blocks = to;
    CHECK(sl_load_start(engine, &request, &op, &why) == SL_OK);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK);
    why = result.why;
    CHECK(result.code == SL_OK && result.block_count == 5 && result.from_memory == 5);
    CHECK(sl_op_wait_fenced(op, 0, &why) == SL_OK);
    sl_op_release(&op);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(memcmp(memory + 80 * from[i], memory + 80 * to[i], 77) == 0);
        CHECK(memcmp(memory + 800 + 5 * from[i], memory + 800 + 5 * to[i], 5) == 0);
    }
    CHECK(sl_load_start(engine, &request, &op, &why) == SL_OK);
    (void)sl_op_cancel(op, &why);
    CHECK(sl_op_wait(op, 0, &result) == SL_OK); /* done or cancelled, and ended */
    CHECK(result.code == SL_OK || result.code == SL_ERR_CANCELLED);
    CHECK(sl_op_wait_fenced(op, 0, &why) == SL_OK);
    sl_op_release(&op);
}

int main(int argc, char **argv)
{
    static char texts[3][512];
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(texts[0], sizeof texts[0], "instance=%s", argv[1]);
    (void)snprintf(texts[1], sizeof texts[1], "runtime_dir=%s", argv[2]);
    (void)snprintf(texts[2], sizeof texts[2], "shm_dir=%s", argv[3]);
    for (size_t i = 0; i < 3; i++) {
        settings[i] = texts[i];
    }
    struct sl_client *client = client_of(false);
    CHECK(strcmp(sl_client_instance(client), argv[1]) == 0);
    batches(client);
    pins(client);
    small_buffers_and_bad_arguments(client);
    a_fork_is_refused(client);
    threads(client);
    runs(client);
    run_put(client, "kept", 0, RUN / 2);
    wait_for_line("registrar"); /* preallocated extents are held while it is killed */
    run_put(client, "kept", RUN / 2, RUN / 2);
    run_check(client, "kept", RUN);
    struct sl_engine *engine = engine_of(client);
    store_and_load(engine);

    struct sl_view view;
    CHECK(sl_get_pinned(client, key_of("size"), &view, 0, &why) == SL_OK);
    run_put(client, "gone", 0, RUN);
    wait_for_line("replace");
    CHECK(memcmp(view.at, "12345678", 8) == 0); /* of the node before */
    sl_view_release(client, &view);
    for (uint32_t i = 0; i < 100 && sl_exists(client, key_of("size")) != SL_ERR_NOT_FOUND; i++) {
        (void)usleep(10000); /* noticed within a bounded time */
    }
    CHECK(sl_exists(client, key_of("size")) == SL_ERR_NOT_FOUND);
    batches(client);
    run_put(client, "new", 0, RUN);
    run_check(client, "new", RUN);
    store_and_load(engine);
    sl_engine_end(&engine);
    sl_client_close(&client);
    return 0;
}
