/* tests/node/device_probe.c - values from and into device memory of this process, on a running
 * node and a driver that plays a GPU in ordinary memory; pieces_test.py starts both.
 *
 *   device_probe INSTANCE RUNTIME_DIR SHM_DIR WHAT DRIVER
 *
 * WHAT is one of the names at the end of this file. Exit code 0: all checks passed. */
#include "client/lib/gpu.h"
#include "cuda/cuda_relaxed.h"
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
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

#define WAIT_NS      (60 * SL_NS_PER_S) /* only ends hangs: no call is measured */
#define DEVICE_BYTES (24 * SL_MIB)
#define VALUE_BYTES  (3 * SL_MIB + 4321)
#define BATCH        100u
#define FAILURES_MAX 800u

static struct sl_error why;
static const char *settings[4];
static struct fake_cuda *fake;
static struct sl_driver engine; /* the engine's own driver */
static unsigned char *device;   /* DEVICE_BYTES of device memory: ordinary memory, played */
static unsigned char host[VALUE_BYTES], other[VALUE_BYTES];

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static void engine_start(const char *driver)
{
    void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    fake_cuda_state_fn state;
    CHECK(library != NULL && !sl_gpu_present() == false);
    void *symbol = dlsym(library, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof state);
    fake = state();
    CHECK(sl_driver_open(&engine, driver, &why) == SL_OK);
    sl_cu_context context = NULL;
    sl_cu_ptr at = 0;
    CHECK(engine.context_retain(&context, 0) == 0 && engine.context_set(context) == 0);
    CHECK(engine.memory_get(&at, DEVICE_BYTES) == 0);
    CHECK(engine.context_set(NULL) == 0);
    device = (unsigned char *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
    fake->contexts = 0;
    for (uint32_t i = 0; i < VALUE_BYTES; i++) {
        host[i] = (unsigned char)(i * 7 + (i >> 9));
    }
}

static sl_err put_one(struct sl_client *client, const char *key, const struct sl_iov *pieces,
                      uint32_t count)
{
    const struct sl_iov_list item = {.key = key_of(key), .at = pieces, .count = count};
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_putv(client, &item, 1, NULL, &code, WAIT_NS, &why) == SL_OK);
    return code;
}

static sl_err get_one(struct sl_client *client, const char *key, const struct sl_iov *pieces,
                      uint32_t count)
{
    const struct sl_iov_list item = {.key = key_of(key), .at = pieces, .count = count};
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_getv(client, &item, 1, true, NULL, &code, WAIT_NS, &why) == SL_OK);
    return code;
}

static void drop(struct sl_client *client, const char *key)
{
    CHECK(sl_remove(client, key_of(key), WAIT_NS, &why) == SL_OK);
}

/* The digest equals that of the same bytes put from host memory. */
static void same_digest(struct sl_client *client, const char *key, const void *bytes,
                        uint64_t length)
{
    struct sl_object_info one, two;
    CHECK(sl_put(client, key_of("plain"), bytes, length, WAIT_NS, &why) == SL_OK);
    CHECK(sl_stat(client, key_of("plain"), &one) == SL_OK &&
          sl_stat(client, key_of(key), &two) == SL_OK);
    CHECK(one.length_bytes == two.length_bytes);
    CHECK(one.digest_low == two.digest_low && one.digest_high == two.digest_high);
    drop(client, "plain");
}

/* No context is current in this thread, as before. */
static bool nothing_current(void)
{
    sl_cu_ptr at = 0;
    int mode = sl_cuda_relax(&engine);
    bool current = engine.memory_get(&at, 256) == 0;
    sl_cuda_restore(&engine, mode);
    return !current;
}

/* ---- successful copies ---- */

static void moves(struct sl_client *client)
{
    static const uint64_t lengths[] = {1, 100, 4096, 65537, VALUE_BYTES};
    for (uint32_t i = 0; i < SL_COUNT(lengths); i++) {
        uint64_t copies = fake->copies + fake->batches;
        memcpy(device + i, host, lengths[i]);
        memset(device + 8 * SL_MIB, 0xee, lengths[i] + 1);
        const struct sl_iov from = {.at = device + i, .length_bytes = lengths[i]};
        const struct sl_iov to = {.at = device + 8 * SL_MIB, .length_bytes = lengths[i]};
        CHECK(put_one(client, "moved", &from, 1) == SL_OK);
        same_digest(client, "moved", host, lengths[i]);
        CHECK(get_one(client, "moved", &to, 1) == SL_OK);
        CHECK(fake->copies + fake->batches >= copies + 2); /* by the driver, not by memcpy */
        CHECK(memcmp(device + 8 * SL_MIB, host, lengths[i]) == 0);
        CHECK(device[8 * SL_MIB + lengths[i]] == 0xee);
        drop(client, "moved");
    }
    CHECK(nothing_current());
}

/* Every other piece is host memory, out of order, in a batch; registered or not. */
static void mixed(struct sl_client *client)
{
    static struct sl_iov from[BATCH][3], to[BATCH][3];
    static struct sl_iov_list puts[BATCH], gets[BATCH];
    static char texts[BATCH][16];
    static sl_err codes[BATCH];
    static uint64_t lengths[BATCH];
    for (uint32_t round = 0; round < 2; round++) {
        memcpy(device, host, VALUE_BYTES);
        memset(device + 8 * SL_MIB, 0, VALUE_BYTES);
        memset(other, 0, sizeof other);
        for (uint32_t i = 0; i < BATCH; i++) {
            uint64_t at = (uint64_t)i * 30000;
            from[i][0] = (struct sl_iov){device + at, 10000, 0};
            from[i][1] = (struct sl_iov){device + at + 20000, 10000, 20000};
            from[i][2] = (struct sl_iov){host + at + 10000, 10000, 10000};
            to[i][0] = (struct sl_iov){other + at, 5000, 0};
            to[i][1] = (struct sl_iov){device + 8 * SL_MIB + at + 5000, 24000, 5000};
            to[i][2] = (struct sl_iov){other + at + 29000, 1000, 29000};
            (void)snprintf(texts[i], sizeof texts[i], "mixed/%u", i);
            puts[i] = (struct sl_iov_list){.key = key_of(texts[i]), .at = from[i], .count = 3};
            gets[i] = (struct sl_iov_list){.key = key_of(texts[i]), .at = to[i], .count = 3};
        }
        CHECK(sl_putv(client, puts, BATCH, NULL, codes, WAIT_NS, &why) == SL_OK);
        for (uint32_t i = 0; i < BATCH; i++) {
            CHECK(codes[i] == SL_OK);
        }
        same_digest(client, "mixed/7", host + 7 * 30000, 30000);
        CHECK(sl_getv(client, gets, BATCH, true, lengths, codes, WAIT_NS, &why) == SL_OK);
        for (uint32_t i = 0; i < BATCH; i++) {
            uint64_t at = (uint64_t)i * 30000;
            CHECK(codes[i] == SL_OK && lengths[i] == 30000);
            CHECK(memcmp(other + at, host + at, 5000) == 0);
            CHECK(memcmp(device + 8 * SL_MIB + at + 5000, host + at + 5000, 24000) == 0);
            CHECK(memcmp(other + at + 29000, host + at + 29000, 1000) == 0);
            drop(client, texts[i]);
        }
        if (round == 0) {
            struct sl_place_info info;
            CHECK(sl_memory_register(device, DEVICE_BYTES, &why) == SL_OK);
            CHECK(sl_memory_register(host, sizeof host, &why) == SL_OK);
            CHECK(sl_memory_find(device + 100, 1000, &info) == SL_OK);
            CHECK(info.place == SL_PLACE_DEVICE && info.gpu == 0);
            CHECK(sl_memory_find(host, 1000, &info) == SL_OK && info.place == SL_PLACE_PLAIN);
            CHECK(sl_memory_register(device, DEVICE_BYTES + SL_MIB, &why) == SL_ERR_INVALID);
        }
    }
    CHECK(nothing_current());
}

static void draft(struct sl_client *client)
{
    const struct sl_object_key key = key_of("draft");
    const uint64_t length = VALUE_BYTES;
    struct sl_put_session *open = NULL;
    sl_err code = SL_ERR_INTERNAL;
    memcpy(device, host, VALUE_BYTES);
    const struct sl_iov pieces[] = {{device, SL_MIB, 0}, {host + SL_MIB, SL_MIB, SL_MIB}};
    const struct sl_iov rest = {device + 2 * SL_MIB, VALUE_BYTES - 2 * SL_MIB, 2 * SL_MIB};
    CHECK(sl_put_start(client, &key, NULL, &length, 1, NULL, 0, &open, &code, WAIT_NS, &why) ==
          SL_OK);
    CHECK(code == SL_OK && sl_put_write(open, &rest, 1, &why) == SL_OK);
    CHECK(sl_put_write(open, pieces, 2, &why) == SL_OK);
    CHECK(sl_put_end(client, &open, 1, &code, WAIT_NS, &why) == SL_OK && code == SL_OK);
    same_digest(client, "draft", host, VALUE_BYTES);
    drop(client, "draft");
}

/* A write that fails may have changed bytes: the committed digest is that of the stored bytes. */
static void draft_fails(struct sl_client *client)
{
    const struct sl_object_key key = key_of("draft");
    const uint64_t length = VALUE_BYTES;
    struct sl_put_session *open = NULL;
    sl_err code = SL_ERR_INTERNAL;
    memcpy(device, host, VALUE_BYTES);
    memcpy(other, host, VALUE_BYTES);
    memset(other, 0xaa, 1000);
    const struct sl_iov whole = {host, VALUE_BYTES, 0};
    const struct sl_iov pieces[] = {{other, 1000, 0}, {device + SL_MIB, SL_MIB, SL_MIB}};
    CHECK(sl_put_start(client, &key, NULL, &length, 1, NULL, 0, &open, &code, WAIT_NS, &why) ==
          SL_OK);
    CHECK(code == SL_OK && sl_put_write(open, &whole, 1, &why) == SL_OK);
    fake->fail_code = SL_CU_INVALID_VALUE;
    fake->fail_symbol = "fake_event_record";
    CHECK(sl_put_write(open, pieces, 2, &why) == SL_ERR_DEVICE);
    fake->fail_symbol = NULL;
    CHECK(sl_put_end(client, &open, 1, &code, WAIT_NS, &why) == SL_OK && code == SL_OK);
    same_digest(client, "draft", other, VALUE_BYTES);
    drop(client, "draft");
}

/* The system refuses to pin: copies use a bounce buffer, also for values larger than it. */
static void bounce(struct sl_client *client)
{
    fake->registered_max = fake->registered == 0 ? 1 : fake->registered;
    fake->registered = fake->registered_max;
    static unsigned char large[12 * SL_MIB];
    for (uint32_t i = 0; i < sizeof large; i++) {
        large[i] = (unsigned char)(i * 3 + (i >> 11));
    }
    memcpy(device, large, sizeof large);
    const struct sl_iov from = {.at = device, .length_bytes = sizeof large};
    const struct sl_iov to = {.at = device + 12 * SL_MIB, .length_bytes = sizeof large};
    CHECK(put_one(client, "large", &from, 1) == SL_OK);
    same_digest(client, "large", large, sizeof large);
    CHECK(get_one(client, "large", &to, 1) == SL_OK);
    CHECK(memcmp(device + 12 * SL_MIB, large, sizeof large) == 0);
    drop(client, "large");
    CHECK(fake->registrations == 0);
    /* One a half, and one of the kernels where they were built. */
    CHECK(fake->host_allocations == 2 || fake->host_allocations == 3);
    moves(client);
    mixed(client);
}

/* ---- pinning ---- */

/* Puts until this number of registrations exists: they are made in the background. */
static void await_pinned(struct sl_client *client, int count)
{
    const struct sl_iov piece = {.at = device, .length_bytes = VALUE_BYTES};
    for (uint32_t i = 0; fake->registrations < count; i++) {
        CHECK(i < 2000);
        CHECK(put_one(client, "pinned", &piece, 1) == SL_OK);
        drop(client, "pinned");
        (void)usleep(5000);
    }
}

/* No call pins memory itself, and the part that is pinned at a time is small. */
static void pins(struct sl_client *client)
{
    memcpy(device, host, VALUE_BYTES);
    await_pinned(client, 1);
    CHECK(fake->registered_by != (uintptr_t)pthread_self());
    CHECK(fake->registered_most <= 8 * SL_MIB);
    uint64_t copies = fake->copies + fake->batches;
    moves(client);
    CHECK(fake->copies + fake->batches > copies);
}

/* Memory that could not be pinned at first is pinned later. */
static void retries(struct sl_client *client)
{
    const struct sl_iov piece = {.at = device, .length_bytes = VALUE_BYTES};
    memcpy(device, host, VALUE_BYTES);
    fake->fail_code = SL_CU_OUT_OF_MEMORY;
    fake->fail_symbol = "fake_host_register";
    for (uint32_t i = 0; i < 20; i++) { /* longer than the first pause */
        CHECK(put_one(client, "later", &piece, 1) == SL_OK);
        same_digest(client, "later", host, VALUE_BYTES);
        drop(client, "later");
        (void)usleep(20000);
    }
    CHECK(fake->registrations == 0);
    fake->fail_symbol = NULL;
    await_pinned(client, 1);
    moves(client);
}

/* Pinning that always fails is not tried forever. It depends on time how much of the arena is
 * populated, so that pinning is tried at all. */
static void gives_up(struct sl_client *client)
{
    const struct sl_iov piece = {.at = device, .length_bytes = VALUE_BYTES};
    memcpy(device, host, VALUE_BYTES);
    fake->fail_code = SL_CU_NOT_SUPPORTED;
    fake->fail_symbol = "fake_host_register";
    for (uint32_t i = 0, after = 0; after < 40; i++) {
        CHECK(i < 4000);
        CHECK(put_one(client, "never", &piece, 1) == SL_OK);
        drop(client, "never");
        (void)usleep(after == 0 ? 5000 : 20000);
        after += fake->register_asked > 0;
    }
    CHECK(fake->register_again == 0);
    CHECK(fake->registrations == 0);
}

/* ---- captures ---- */

typedef sl_cu_result (*begin_fn)(sl_cu_stream stream, int mode);
typedef sl_cu_result (*end_fn)(sl_cu_stream stream, void **graph);
struct capturing {
    begin_fn begin;
    end_fn end;
    atomic_int step; /* 1: it captures, 2: it is to end */
    sl_cu_result ended;
};

/* The engine's thread: captures a graph for as long as the test wants. */
static void *capture_run(void *at)
{
    struct capturing *capturing = at;
    sl_cu_context before = NULL;
    sl_cu_stream stream = NULL;
    void *graph = NULL;
    CHECK(engine.context_push(fake) == 0);
    CHECK(engine.stream_create(&stream, SL_CU_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(capturing->begin(stream, SL_CU_CAPTURE_GLOBAL) == 0);
    atomic_store(&capturing->step, 1);
    while (atomic_load(&capturing->step) != 2) {
        (void)usleep(1000);
    }
    capturing->ended = capturing->end(stream, &graph);
    CHECK(engine.stream_destroy(stream) == 0 && engine.context_pop(&before) == 0);
    return NULL;
}

static void *symbol_of(const char *name)
{
    void *symbol = dlsym(engine.library, name);
    CHECK(symbol != NULL);
    return symbol;
}

static void capture_start(struct capturing *capturing, pthread_t *thread)
{
    void *begin = symbol_of("cuStreamBeginCapture_v2"), *end = symbol_of("cuStreamEndCapture");
    memcpy(&capturing->begin, &begin, sizeof begin);
    memcpy(&capturing->end, &end, sizeof end);
    atomic_store(&capturing->step, 0);
    CHECK(pthread_create(thread, NULL, capture_run, capturing) == 0);
    while (atomic_load(&capturing->step) == 0) {
        (void)usleep(1000);
    }
}

static sl_cu_result capture_end(struct capturing *capturing, pthread_t thread)
{
    atomic_store(&capturing->step, 2);
    CHECK(pthread_join(thread, NULL) == 0);
    return capturing->ended;
}

/* While another thread captures, this library's own work does not disturb the graph: the first
 * copies with their context, stream and buffer, pinning, waiting, unpinning. */
static void captures(struct sl_client *client)
{
    struct capturing capturing;
    pthread_t thread;
    sl_cu_ptr at = 0;
    capture_start(&capturing, &thread); /* the test bed works: an unsafe call invalidates the
                                         * capture */
    CHECK(engine.memory_get(&at, 256) == SL_CU_CAPTURE_UNSUPPORTED);
    CHECK(capture_end(&capturing, thread) == SL_CU_CAPTURE_INVALIDATED);

    fake->contexts++; /* the engine's own hold: its stream outlives ours */
    capture_start(&capturing, &thread);
    moves(client);
    await_pinned(client, 1);
    moves(client);
    sl_gpu_end();
    CHECK(capture_end(&capturing, thread) == 0);
    fake->contexts--;
    int mode = SL_CU_CAPTURE_GLOBAL; /* this thread's mode is unchanged */
    CHECK(engine.capture_mode(&mode) == 0 && mode == SL_CU_CAPTURE_GLOBAL);
}

/* ---- what fails ---- */

/* Fails each call of the driver in turn. Stored values are right, whichever call failed; nothing
 * leaks; the next call works. */
static void fails_of(struct sl_client *client, bool sticks, bool bounced)
{
    uint32_t failed = 0;
    memcpy(device, host, VALUE_BYTES);
    fake->fail_thread = (uintptr_t)pthread_self(); /* pinning that fails fails no call */
    for (uint32_t i = 1; i <= FAILURES_MAX; i++) {
        const struct sl_iov from[] = {{device, SL_MIB, 0},
                                      {host + SL_MIB, 100, SL_MIB},
                                      {device + SL_MIB + 100, 5000, SL_MIB + 100}};
        const struct sl_iov to[] = {{device + 8 * SL_MIB, SL_MIB + 5100, 0}};
        sl_gpu_end();
        if (bounced) {
            fake->registered_max = 1;
            fake->registered = 1;
        }
        memset(device + 8 * SL_MIB, 0, SL_MIB + 5100);
        fake->fail_code = sticks ? SL_CU_ILLEGAL_ADDRESS : SL_CU_INVALID_VALUE;
        fake->fail_sticks = sticks;
        fake->fail_at = fake->calls + i;
        sl_err put = put_one(client, "fails", from, 3);
        sl_err got = put == SL_OK ? get_one(client, "fails", to, 1) : SL_OK;
        bool hit = fake->calls >= fake->fail_at;
        fake->fail_at = 0;
        fake->stuck = 0;
        CHECK(put == SL_OK || put == SL_ERR_DEVICE);
        CHECK(got == SL_OK || got == SL_ERR_DEVICE);
        if (put != SL_OK || got != SL_OK) {
            failed++;
            CHECK(why.os_code == fake->fail_code && strstr(why.text, "code ") != NULL);
        }
        if (put != SL_OK) {
            CHECK(sl_exists(client, key_of("fails")) == SL_ERR_NOT_FOUND);
            CHECK(put_one(client, "fails", from, 3) == SL_OK);
        }
        same_digest(client, "fails", host, SL_MIB + 5100);
        CHECK(get_one(client, "fails", to, 1) == SL_OK);
        CHECK(memcmp(device + 8 * SL_MIB, host, SL_MIB + 5100) == 0);
        drop(client, "fails");
        if (!hit) { /* more calls than there are */
            CHECK(failed >= 8 && nothing_current());
            return;
        }
    }
    CHECK(false); /* every call has failed once */
}

static void fails(struct sl_client *client)
{
    fails_of(client, false, false);
    sl_gpu_end();
    CHECK(fake->contexts == 0 && fake->streams == 0 && fake->host_allocations == 0);
    fails_of(client, true, false);
    sl_gpu_end();
    CHECK(fake->contexts == 0);
    /* They were destroyed with the broken context: streams, and the buffer that copies use until
     * the arena is populated, which depends on time. */
    fake->streams = 0;
    fake->host_allocations = 0;
    fails_of(client, false, true);
}

/* ---- copy paths ---- */

#define PIECES       16u
#define PIECE_BYTES  4096u
#define FORWARD      (PIECES * PIECE_BYTES) /* a value */
#define WAY_VALUES   64u
#define SCATTERED(i) ((i)*2 * PIECE_BYTES) /* every other piece of the device is used */

static struct sl_iov way_pieces[2][WAY_VALUES][PIECES];
static struct sl_iov_list way_puts[WAY_VALUES], way_gets[WAY_VALUES];
static char way_keys[WAY_VALUES][16];
static sl_err way_codes[WAY_VALUES];

/* Values of pieces that are scattered on the device, and of `tail` bytes more. */
static void ways_make(uint64_t tail)
{
    memset(device, 0xdd, DEVICE_BYTES);
    for (uint32_t i = 0; i < WAY_VALUES; i++) {
        for (uint32_t k = 0; k < PIECES; k++) {
            uint64_t piece = i * PIECES + k, length = PIECE_BYTES + (k + 1 == PIECES ? tail : 0);
            way_pieces[0][i][k] =
                (struct sl_iov){device + SCATTERED(piece), length, k * PIECE_BYTES};
            way_pieces[1][i][k] =
                (struct sl_iov){device + 12 * SL_MIB + SCATTERED(piece), length, k * PIECE_BYTES};
            memcpy(way_pieces[0][i][k].at, host + i * 1000 + k * PIECE_BYTES, length);
        }
        (void)snprintf(way_keys[i], sizeof way_keys[i], "way/%u", i);
        way_puts[i] = (struct sl_iov_list){
            .key = key_of(way_keys[i]), .at = way_pieces[0][i], .count = PIECES};
        way_gets[i] = (struct sl_iov_list){
            .key = key_of(way_keys[i]), .at = way_pieces[1][i], .count = PIECES};
    }
}

static void ways_put(struct sl_client *client, uint64_t tail)
{
    CHECK(sl_putv(client, way_puts, WAY_VALUES, NULL, way_codes, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < WAY_VALUES; i++) {
        CHECK(way_codes[i] == SL_OK);
        same_digest(client, way_keys[i], host + i * 1000, FORWARD + tail);
    }
}

static void ways_get(struct sl_client *client)
{
    CHECK(sl_getv(client, way_gets, WAY_VALUES, true, NULL, way_codes, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < WAY_VALUES; i++) {
        CHECK(way_codes[i] == SL_OK);
        for (uint32_t k = 0; k < PIECES; k++) {
            const struct sl_iov *piece = &way_pieces[1][i][k];
            const unsigned char *behind = piece->at;
            CHECK(memcmp(piece->at, host + i * 1000 + piece->offset_bytes, piece->length_bytes) ==
                  0);
            CHECK(k + 1 == PIECES || behind[piece->length_bytes] == 0xdd);
        }
        drop(client, way_keys[i]);
    }
}

/* Small pieces are copied by kernels, their digests are made on the GPU, and the only waits are
 * for the halves: each has 8 MiB, so 4 MiB need one. */
static void ways(struct sl_client *client)
{
    static const uint64_t tails[] = {0, 1, 100};
    for (uint32_t i = 0; i < SL_COUNT(tails); i++) {
        fake->launches = fake->copies = fake->batches = fake->queries = 0;
        ways_make(tails[i]);
        ways_put(client, tails[i]);
        CHECK(fake->launches == 2 && fake->batches == 1); /* gather, digest; all values at once */
        CHECK(fake->copies == 2);                         /* the table, the digests */
        ways_get(client);
        CHECK(fake->launches == 3);
        CHECK(fake->queries <= 2); /* one wait a call, whatever the number of keys */
    }
    CHECK(nothing_current());
    sl_gpu_end();
    CHECK(fake->allocations == 1 && fake->modules == 0 && fake->host_allocations == 0);
}

/* Also large values, whose digests extend over several halves and begin in the middle of one. */
static void halves(struct sl_client *client, bool by_gpu)
{
    static unsigned char large[11 * SL_MIB + 77];
    static const uint64_t lengths[] = {3 * SL_MIB + 5, 11 * SL_MIB + 77};
    struct sl_iov from[2], to[2];
    struct sl_iov_list puts[2], gets[2];
    sl_err codes[2];
    for (uint32_t i = 0; i < sizeof large; i++) {
        large[i] = (unsigned char)(i * 5 + (i >> 12));
    }
    memcpy(device, large, sizeof large);
    memset(device + 12 * SL_MIB, 0, sizeof large);
    for (uint32_t i = 0; i < 2; i++) {
        const char *key = i == 0 ? "small" : "large";
        from[i] = (struct sl_iov){device, lengths[i], 0};
        to[i] = (struct sl_iov){device + 12 * SL_MIB, lengths[i], 0};
        puts[i] = (struct sl_iov_list){.key = key_of(key), .at = &from[i], .count = 1};
        gets[i] = (struct sl_iov_list){.key = key_of(key), .at = &to[i], .count = 1};
    }
    fake->launches = 0;
    CHECK(sl_putv(client, puts, 2, NULL, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_OK && (fake->launches >= 4) == by_gpu);
    same_digest(client, "small", large, lengths[0]);
    same_digest(client, "large", large, lengths[1]);
    CHECK(sl_getv(client, gets, 2, true, NULL, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_OK);
    CHECK(memcmp(device + 12 * SL_MIB, large, sizeof large) == 0);
    drop(client, "small");
    drop(client, "large");
}

/* More pieces than a half has rows for, unordered, and chunks that begin and end within them. */
static void crumbs(struct sl_client *client)
{
    enum { COUNT = 20000, BYTES = 101, STRIDE = 300 };
    static struct sl_iov from[COUNT], to[COUNT];
    static unsigned char value[COUNT * BYTES];
    for (uint32_t i = 0; i < sizeof value; i++) {
        value[i] = (unsigned char)(i * 11 + (i >> 10));
    }
    memset(device, 0xdd, DEVICE_BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t place = i * 7919 % COUNT; /* each once: 7919 is a prime */
        from[i] = (struct sl_iov){device + place * STRIDE, BYTES, place * BYTES};
        to[i] = (struct sl_iov){device + 12 * SL_MIB + place * STRIDE, BYTES, place * BYTES};
        memcpy(from[i].at, value + from[i].offset_bytes, BYTES);
    }
    CHECK(put_one(client, "crumbs", from, COUNT) == SL_OK);
    same_digest(client, "crumbs", value, sizeof value);
    CHECK(get_one(client, "crumbs", to, COUNT) == SL_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const unsigned char *at = to[i].at;
        CHECK(memcmp(at, value + to[i].offset_bytes, BYTES) == 0 && at[BYTES] == 0xdd);
    }
    drop(client, "crumbs");
}

/* The kernels cannot be loaded, or there is no memory for them: plain copies are used and the
 * CPU digests. The client does not retry them all the time. */
static void no_kernels(struct sl_client *client)
{
    static const char *const symbols[] = {"fake_module_load", "fake_module_function",
                                          "fake_memory_get"};
    for (uint32_t i = 0; i < SL_COUNT(symbols); i++) {
        fake->launches = 0;
        fake->fail_code = SL_CU_OUT_OF_MEMORY;
        fake->fail_symbol = symbols[i];
        ways_make(7);
        ways_put(client, 7);
        fake->fail_symbol = NULL;
        ways_get(client);
        CHECK(fake->launches == 0 && fake->modules == 0 && fake->allocations == 1);
        halves(client, false);
        sl_gpu_end();
    }
}

static void kernels(struct sl_client *client)
{
    sl_gpu_kernels(FAKE_CUDA_IMAGE);
    ways(client);
    halves(client, true);
    crumbs(client);
    moves(client);
    mixed(client);
    draft(client);
    sl_gpu_end();
    fake->registered_max = 1; /* no memory can be pinned: through the bounce memory */
    fake->registered = 1;
    ways(client);
    halves(client, true);
    sl_gpu_end();
    fake->registered_max = 0;
    no_kernels(client);
    fake->foreign_context = true; /* the engine has a context of its own: only copies */
    ways_make(7);
    ways_put(client, 7);
    ways_get(client);
    CHECK(fake->stuck == 0);
    fake->foreign_context = false;
    fails_of(client, false, false);
}

/* Where registered memory has another address on the device, a batch with the CPU's address is
 * illegal and breaks the engine's context: the client copies one by one. */
static void attribute(struct sl_client *client)
{
    fake->no_host_pointers = true;
    ways_make(0);
    ways_put(client, 0);
    ways_get(client);
    CHECK(fake->batches == 0 && fake->stuck == 0);
    sl_gpu_kernels(FAKE_CUDA_IMAGE);
    sl_gpu_end();
    ways_put(client, 0);
    ways_get(client);
    CHECK(fake->batches == 0 && fake->stuck == 0 && fake->launches > 0);
}

/* ---- copies that do not end ---- */

#define MANY 980u /* values of FORWARD bytes in 64 MiB */

static void hangs(struct sl_client *client)
{
    const struct sl_iov whole = {device, FORWARD, 0};
    const struct sl_iov_list item = {.key = key_of("hangs"), .at = &whole, .count = 1};
    const struct sl_object_key key = key_of("draft");
    const uint64_t length = FORWARD;
    sl_err code = SL_OK;
    memset(device, 0xaa, FORWARD);
    fake->hangs = true;
    uint64_t begun_ns = sl_clock_monotonic_ns();
    CHECK(sl_putv(client, &item, 1, NULL, &code, SL_NS_PER_S, &why) == SL_OK);
    CHECK(code == SL_ERR_DEVICE && strstr(why.text, "did not end by the deadline") != NULL);
    CHECK(sl_clock_monotonic_ns() - begun_ns < WAIT_NS / 2);
    CHECK(get_one(client, "hangs", &whole, 1) == SL_ERR_NOT_FOUND);
    /* This GPU's copies are refused immediately; everything else works. */
    const struct sl_iov_list other_item = {.key = key_of("other"), .at = &whole, .count = 1};
    CHECK(sl_putv(client, &other_item, 1, NULL, &code, WAIT_NS, &why) == SL_OK);
    CHECK(code == SL_ERR_DEVICE && strstr(why.text, "is not used") != NULL);
    for (uint32_t i = 0; i < MANY; i++) { /* nearly all memory: no put gets its extent */
        char text[16];
        (void)snprintf(text, sizeof text, "host/%u", i);
        CHECK(sl_put(client, key_of(text), host, FORWARD, WAIT_NS, &why) == SL_OK);
    }
    fake->hangs = false; /* the copies under way land now */
    CHECK(put_one(client, "again", &whole, 1) == SL_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "host/%u", i);
        CHECK(sl_get(client, key_of(text), (struct sl_buffer){other, FORWARD}, NULL, WAIT_NS,
                     &why) == SL_OK);
        CHECK(memcmp(other, host, FORWARD) == 0);
    }
    /* A draft that the device may still write to is never committed. */
    struct sl_put_session *open = NULL;
    CHECK(sl_put_start(client, &key, NULL, &length, 1, NULL, 0, &open, &code, WAIT_NS, &why) ==
          SL_OK);
    fake->hangs = true;
    CHECK(sl_put_write(open, &whole, 1, &why) == SL_ERR_DEVICE);
    fake->hangs = false;
    CHECK(sl_put_end(client, &open, 1, &code, WAIT_NS, &why) == SL_OK);
    CHECK(code == SL_ERR_DEVICE && sl_exists(client, key) == SL_ERR_NOT_FOUND);
}

#define STUCK_NS (SL_NS_PER_S / 2)

struct stuck {
    struct sl_client *client;
    uint32_t number;
    pthread_t thread;
    uint64_t took_ns;
    bool draft; /* or a put */
};

/* Ends with an error, soon after its deadline. */
static void *stuck_run(void *at)
{
    struct stuck *stuck = at;
    struct sl_error reason = {0};
    char text[16];
    (void)snprintf(text, sizeof text, "stuck/%u", stuck->number);
    const struct sl_object_key key = key_of(text);
    const struct sl_iov whole = {device, FORWARD, 0};
    const struct sl_iov_list item = {.key = key, .at = &whole, .count = 1};
    const uint64_t length = FORWARD;
    struct sl_put_session *open = NULL;
    sl_err code = SL_OK;
    uint64_t begun_ns = sl_clock_monotonic_ns();
    if (stuck->draft) {
        CHECK(sl_put_start(stuck->client, &key, NULL, &length, 1, NULL, 0, &open, &code, STUCK_NS,
                           &reason) == SL_OK &&
              code == SL_OK);
        code = sl_put_write(open, &whole, 1, &reason);
        sl_put_abort(&open);
    } else {
        CHECK(sl_putv(stuck->client, &item, 1, NULL, &code, STUCK_NS, &reason) == SL_OK);
    }
    stuck->took_ns = sl_clock_monotonic_ns() - begun_ns;
    CHECK(code == SL_ERR_DEVICE || code == SL_ERR_TIMEOUT);
    CHECK(strstr(reason.text, "device cuda: ") == reason.text);
    return NULL;
}

/* This number of threads writes from a GPU that does nothing, some by drafts, some by
 * preallocated extents when `warm`. */
static void stuck_threads(struct sl_client *client, uint32_t count)
{
    struct stuck all[8];
    fake->hangs = true;
    for (uint32_t i = 0; i < count; i++) {
        all[i] = (struct stuck){.client = client, .number = i, .draft = i % 3 == 2};
        CHECK(pthread_create(&all[i].thread, NULL, stuck_run, &all[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        CHECK(pthread_join(all[i].thread, NULL) == 0);
        CHECK(all[i].took_ns < WAIT_NS / 2);
    }
    CHECK(fake->undone > 0);
}

static void host_puts(struct sl_client *client, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "host/%u", i);
        CHECK(sl_put(client, key_of(text), host, FORWARD, WAIT_NS, &why) == SL_OK);
    }
}

/* Memory that a GPU may write to stays in use until the copies are known to have ended, and is
 * free then. Prints "over" after the last call; the test checks the bytes in use, and ends it. */
static void late(struct sl_client *client)
{
    const struct sl_iov whole = {device, FORWARD, 0};
    for (uint32_t round = 0; round < 4; round++) {
        host_puts(client, 8); /* from here on this size is preallocated */
        stuck_threads(client, 1u << round);
        fake->hangs = false;
        CHECK(put_one(client, "again", &whole, 1) == SL_OK);
        drop(client, "again");
        for (uint32_t i = 0; i < 8; i++) {
            char text[16];
            (void)snprintf(text, sizeof text, "host/%u", i);
            drop(client, text);
        }
        CHECK(fake->undone == 0);
    }
    CHECK(sl_put(client, key_of("small"), "x", 1, WAIT_NS, &why) == SL_OK);
    (void)printf("over\n");
    (void)fflush(stdout);
    (void)getchar();
}

/* Memory that a GPU may still read also stays: prints "held" when the value was removed
 * meanwhile. */
static void late_get(struct sl_client *client)
{
    const struct sl_iov whole = {device, FORWARD, 0};
    const struct sl_iov_list item = {.key = key_of("got"), .at = &whole, .count = 1};
    const struct sl_iov_list items[] = {item, item};
    sl_err codes[2] = {SL_OK, SL_OK};
    CHECK(sl_put(client, key_of("small"), "x", 1, WAIT_NS, &why) == SL_OK);
    for (uint32_t count = 1; count <= 2; count++) { /* one by one, and in a batch */
        CHECK(sl_put(client, key_of("got"), host, FORWARD, WAIT_NS, &why) == SL_OK);
        fake->hangs = true;
        CHECK(sl_getv(client, items, count, true, NULL, codes, STUCK_NS, &why) == SL_OK);
        CHECK(codes[0] == SL_ERR_DEVICE && codes[count - 1] == SL_ERR_DEVICE);
        drop(client, "got");
        (void)printf("held\n");
        (void)fflush(stdout);
        (void)getchar();
        fake->hangs = false;
        CHECK(sl_put(client, key_of("small"), "x", 1, WAIT_NS, &why) == SL_OK);
        (void)printf("over\n");
        (void)fflush(stdout);
        (void)getchar();
    }
}

/* Also for a client that was closed meanwhile: its process lives, and so do the copies. */
static void closed_while_it_hangs(struct sl_client *client)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    const struct sl_iov whole = {device, FORWARD, 0};
    struct sl_client *leaving = NULL;
    CHECK(sl_client_open(&options, &leaving, &why) == SL_OK);
    await_pinned(leaving, 1); /* from here on copies write directly to the arena */
    host_puts(leaving, 8);
    memset(device, 0xaa, FORWARD);
    stuck_threads(leaving, 4);
    sl_client_close(&leaving);
    (void)sleep(5); /* twice reservation_ttl: unused extents were reclaimed */
    host_puts(client, MANY);
    fake->hangs = false; /* the copies under way land now */
    CHECK(put_one(client, "again", &whole, 1) == SL_OK);
    for (uint32_t i = 8; i < MANY; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "host/%u", i);
        sl_err err =
            sl_get(client, key_of(text), (struct sl_buffer){other, FORWARD}, NULL, WAIT_NS, &why);
        CHECK(err == SL_ERR_NOT_FOUND || (err == SL_OK && memcmp(other, host, FORWARD) == 0));
    }
    sl_client_close(&client);
    _exit(0); /* pinned memory stays pinned until the process ends */
}

/* Arenas are pinned for all GPUs: while copies of one are stuck, no context unpins any. */
static void ends_while_it_hangs(struct sl_client *client)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    const struct sl_iov whole = {device, FORWARD, 0};
    const struct sl_iov_list item = {.key = key_of("stuck"), .at = &whole, .count = 1};
    struct sl_client *leaving = NULL;
    sl_err code = SL_OK;
    fake->gpus = 2;
    CHECK(sl_client_open(&options, &leaving, &why) == SL_OK);
    await_pinned(leaving, 1);
    fake->pointer_gpu = 1;
    fake->hangs = true;
    CHECK(sl_putv(client, &item, 1, NULL, &code, SL_NS_PER_S, &why) == SL_OK);
    CHECK(code == SL_ERR_DEVICE && fake->undone > 0);
    int before = fake->registrations;
    sl_client_close(&leaving);
    CHECK(fake->registrations >= before);
    _exit(0); /* pinned memory stays pinned until the process ends */
}

/* ---- the engine's event ---- */

static void event(struct sl_client *client)
{
    const struct sl_iov from = {device, FORWARD, 0}, to = {device + 8 * SL_MIB, FORWARD, 0};
    const struct sl_iov_list put = {.key = key_of("event"), .at = &from, .count = 1};
    const struct sl_iov_list get = {.key = key_of("event"), .at = &to, .count = 1};
    sl_cu_context context = NULL;
    sl_cu_stream stream = NULL;
    sl_cu_event over = NULL;
    sl_err code = SL_OK;
    CHECK(engine.context_retain(&context, 0) == 0 && engine.context_set(context) == 0);
    CHECK(engine.stream_create(&stream, SL_CU_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(engine.event_create(&over, SL_CU_EVENT_NO_TIMING) == 0);
    memset(device, 0x11, FORWARD);
    memset(other, 0x5a, FORWARD);
    CHECK(engine.fill((uintptr_t)device, 0x5a, FORWARD, stream) == 0);
    CHECK(engine.event_record(over, stream) == 0 && engine.context_set(NULL) == 0);
    /* It does not complete in time: nothing is copied, and the GPU is used as before. */
    fake->hangs = true;
    fake->copies = 0;
    CHECK(sl_putv_after_event(client, &put, 1, NULL, over, &code, SL_NS_PER_S / 2, &why) == SL_OK);
    CHECK(code == SL_ERR_TIMEOUT && strstr(why.text, "event") != NULL && fake->copies == 0);
    fake->hangs = false;
    fake->busy_queries = 5;
    CHECK(sl_putv_after_event(client, &put, 1, NULL, over, &code, WAIT_NS, &why) == SL_OK);
    CHECK(code == SL_OK && fake->busy_queries == 0);
    same_digest(client, "event", other, FORWARD);
    /* The engine's pending work on the blocks precedes the load into them. */
    CHECK(engine.context_set(context) == 0);
    CHECK(engine.fill((uintptr_t)device + 8 * SL_MIB, 0x77, FORWARD, stream) == 0);
    CHECK(engine.event_record(over, stream) == 0 && engine.context_set(NULL) == 0);
    CHECK(sl_getv_after_event(client, &get, 1, true, over, NULL, &code, WAIT_NS, &why) == SL_OK);
    CHECK(engine.context_set(context) == 0 && engine.stream_wait(stream) == 0);
    CHECK(code == SL_OK && memcmp(device + 8 * SL_MIB, other, FORWARD) == 0);
    CHECK(engine.event_destroy(over) == 0 && engine.stream_destroy(stream) == 0);
    CHECK(engine.context_set(NULL) == 0 && engine.context_release(0) == 0);
}

struct waiting {
    struct sl_client *client;
    sl_cu_event event;
    sl_err code;
};

static void *waiting_put(void *at)
{
    struct waiting *waiting = at;
    const struct sl_iov from = {device, FORWARD, 0};
    const struct sl_iov_list put = {.key = key_of("waits"), .at = &from, .count = 1};
    CHECK(sl_putv_after_event(waiting->client, &put, 1, NULL, waiting->event, &waiting->code,
                              WAIT_NS, &why) == SL_OK);
    return NULL;
}

/* While one thread waits for an event, others' copies proceed: the event's work may need them. */
static void event_others(struct sl_client *client)
{
    const struct sl_iov from = {device + 8 * SL_MIB, FORWARD, 0};
    const struct sl_iov_list put = {.key = key_of("others"), .at = &from, .count = 1};
    struct waiting waiting = {.client = client, .code = SL_ERR_INTERNAL};
    struct sl_cu_ipc handle;
    sl_cu_context context = NULL;
    sl_cu_stream stream = NULL;
    sl_cu_event made = NULL;
    pthread_t thread;
    sl_err code = SL_ERR_INTERNAL;
    CHECK(engine.context_retain(&context, 0) == 0 && engine.context_set(context) == 0);
    CHECK(engine.stream_create(&stream, SL_CU_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(engine.event_create(&made, SL_CU_EVENT_NO_TIMING | SL_CU_EVENT_INTERPROCESS) == 0);
    CHECK(engine.fill((uintptr_t)device, 0x5a, FORWARD, stream) == 0);
    CHECK(engine.event_record(made, stream) == 0);
    /* An event of another process: a query does not advance its work. */
    CHECK(engine.event_ipc_get(&handle, made) == 0);
    CHECK(engine.event_ipc_open(&waiting.event, handle) == 0 && engine.context_set(NULL) == 0);
    uint64_t queries = fake->queries;
    CHECK(pthread_create(&thread, NULL, waiting_put, &waiting) == 0);
    while (fake->queries < queries + 10) {
        (void)usleep(1000);
    }
    CHECK(sl_putv(client, &put, 1, NULL, &code, 2 * SL_NS_PER_S, &why) == SL_OK);
    CHECK(code == SL_OK && sl_exists(client, key_of("waits")) == SL_ERR_NOT_FOUND);
    CHECK(engine.context_set(context) == 0 && engine.stream_wait(stream) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.code == SL_OK);
    memset(other, 0x5a, FORWARD);
    same_digest(client, "waits", other, FORWARD);
    CHECK(engine.event_destroy(waiting.event) == 0 && engine.event_destroy(made) == 0);
    CHECK(engine.stream_destroy(stream) == 0 && engine.context_set(NULL) == 0);
    CHECK(engine.context_release(0) == 0);
}

static const struct {
    const char *name;
    void (*run)(struct sl_client *client);
} whats[] = {{"moves", moves},
             {"mixed", mixed},
             {"draft", draft},
             {"draft-fails", draft_fails},
             {"bounce", bounce},
             {"pins", pins},
             {"retries", retries},
             {"gives-up", gives_up},
             {"captures", captures},
             {"fails", fails},
             {"kernels", kernels},
             {"attribute", attribute},
             {"hangs", hangs},
             {"ends-while-it-hangs", ends_while_it_hangs},
             {"late", late},
             {"late-get", late_get},
             {"closed-while-it-hangs", closed_while_it_hangs},
             {"event", event},
             {"event-others", event_others}};

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1024], shm_dir[1024];
    if (argc != 6) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    settings[0] = instance;
    settings[1] = runtime_dir;
    settings[2] = shm_dir;
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    struct sl_client *client = NULL;
    CHECK(!sl_gpu_present()); /* no driver is loaded */
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    CHECK(sl_put(client, key_of("before"), "x", 1, WAIT_NS, &why) == SL_OK);
    engine_start(argv[5]); /* noticed although it was loaded late */
    for (uint32_t i = 0; i < SL_COUNT(whats); i++) {
        if (strcmp(whats[i].name, argv[4]) == 0) {
            whats[i].run(client);
            sl_client_close(&client);
            CHECK(fake->registrations == 0); /* no unmapped memory is still pinned */
            sl_gpu_end();
            CHECK(fake->contexts == 0 && fake->streams == 0 && fake->host_allocations == 0);
            return 0;
        }
    }
    return 2;
}
