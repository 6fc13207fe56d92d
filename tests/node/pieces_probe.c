/* tests/node/pieces_probe.c - values from and into pieces of memory, on a running node;
 * pieces_test.py starts both.
 *
 *   pieces_probe INSTANCE RUNTIME_DIR SHM_DIR WHAT
 *
 * WHAT is one of the names at the end of this file. Exit code 0: all checks passed. */
#include "client/include/sluice.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)
#define WAIT_NS      60000000000u /* only ends hangs: no call is measured */
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define MIB           (1u << 20)
#define VALUE_BYTES   (3 * MIB + 12345)
#define PIECES_MAX    4096u
#define SHAPES        200u
#define MANY          20000u
#define MANY_BYTES    96u
#define THREADS       4u
#define THREAD_ROUNDS 100u
#define STOPS         30u
#define CHUNK_BYTES   (16u << 20) /* setting memory_chunk of the test's node */

static _Thread_local struct sl_error why;
static const char *settings[4];
static unsigned char source[CHUNK_BYTES + 1];
static unsigned char target[VALUE_BYTES + 4096];

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

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void source_fill(void)
{
    uint64_t state = 42;
    for (size_t i = 0; i + 8 <= sizeof source; i += 8) {
        uint64_t word = random_next(&state);
        memcpy(source + i, &word, sizeof word);
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
                      uint32_t count, bool whole, uint64_t *length)
{
    const struct sl_iov_list item = {.key = key_of(key), .at = pieces, .count = count};
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_getv(client, &item, 1, whole, length, &code, WAIT_NS, &why) == SL_OK);
    return code;
}

/* ---- shapes ---- */

/* Cuts length bytes at random into pieces that are in base in the order of the value. */
static uint32_t cut(uint64_t *state, unsigned char *base, uint64_t length, struct sl_iov *pieces)
{
    uint64_t longest = 1 + random_next(state) % (random_next(state) % 2 == 0 ? 3000 : length);
    uint64_t at = 0;
    uint32_t count = 0;
    while (at < length) {
        uint64_t take = 1 + random_next(state) % longest;
        take = take > length - at || count + 2 == PIECES_MAX ? length - at : take;
        pieces[count++] =
            (struct sl_iov){.at = base + at, .length_bytes = take, .offset_bytes = at};
        at += take;
    }
    return count;
}

static void shuffle(uint64_t *state, struct sl_iov *pieces, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)(random_next(state) % i);
        struct sl_iov kept = pieces[i - 1];
        pieces[i - 1] = pieces[other];
        pieces[other] = kept;
    }
}

/* However it is cut into pieces, the value and its digest are those of the same bytes in one. */
static void shapes(struct sl_client *client)
{
    static struct sl_iov pieces[PIECES_MAX];
    static const uint64_t lengths[] = {1, 63, 4096, 16383, 16384, 16385, 40000, MIB, VALUE_BYTES};
    uint64_t state = 7;
    for (uint32_t i = 0; i < SHAPES; i++) {
        uint64_t length = i < COUNT(lengths) ? lengths[i] : 1 + random_next(&state) % VALUE_BYTES;
        struct sl_object_info one, many;
        uint64_t got = 0;
        uint32_t count = cut(&state, source + i, length, pieces);
        if (i % 3 == 1) {
            shuffle(&state, pieces, count);
        }
        if (i % 4 == 2 && count < PIECES_MAX) { /* an empty piece does not count, wherever it is */
            pieces[count++] = (struct sl_iov){.offset_bytes = UINT64_MAX};
        }
        CHECK(put_one(client, "pieces", pieces, count) == SL_OK);
        CHECK(sl_put(client, key_of("one"), source + i, length, WAIT_NS, &why) == SL_OK);
        CHECK(sl_stat(client, key_of("one"), &one) == SL_OK);
        CHECK(sl_stat(client, key_of("pieces"), &many) == SL_OK);
        CHECK(many.length_bytes == length);
        CHECK(one.digest_low == many.digest_low && one.digest_high == many.digest_high);
        memset(target, 0xee, length + 1);
        count = cut(&state, target, length, pieces);
        if (i % 2 == 1) {
            shuffle(&state, pieces, count);
        }
        CHECK(get_one(client, "pieces", pieces, count, true, &got) == SL_OK);
        CHECK(got == length && memcmp(target, source + i, length) == 0 && target[length] == 0xee);
        CHECK(sl_remove(client, key_of("one"), WAIT_NS, &why) == SL_OK);
        CHECK(sl_remove(client, key_of("pieces"), WAIT_NS, &why) == SL_OK);
    }
}

/* ---- refused arguments ---- */

#define PIECE(address, length, offset)                                      \
    {                                                                       \
        .at = (address), .length_bytes = (length), .offset_bytes = (offset) \
    }
static const struct {
    const char *name;
    struct sl_iov pieces[3];
    uint32_t count;
} bad_puts[] = {
    {"nothing", {PIECE(NULL, 0, 0)}, 0},
    {"empty", {PIECE(source, 0, 0), PIECE(NULL, 0, 9)}, 2},
    {"no address", {PIECE(NULL, 8, 0)}, 1},
    {"begins late", {PIECE(source, 8, 1)}, 1},
    {"gap", {PIECE(source, 8, 0), PIECE(source, 8, 9)}, 2},
    {"gap out of order", {PIECE(source, 8, 9), PIECE(source, 8, 0)}, 2},
    {"overlap", {PIECE(source, 8, 0), PIECE(source, 8, 7)}, 2},
    {"twice", {PIECE(source, 8, 0), PIECE(source, 8, 8), PIECE(source, 8, 8)}, 3},
    {"address wraps", {PIECE((void *)(UINTPTR_MAX - 4), 8, 0)}, 1},
    {"offset wraps", {PIECE(source, 8, 0), PIECE(source, 16, UINT64_MAX - 7)}, 2},
    {"length wraps", {PIECE(source, 8, 0), PIECE(source, UINT64_MAX, 8)}, 2},
    {"longer than a value", {PIECE(source, (uint64_t)1 << 31, 0)}, 1},
    {"longer than a chunk", {PIECE(source, CHUNK_BYTES + 1, 0)}, 1},
};

static void refusals(struct sl_client *client)
{
    const struct sl_iov fine = PIECE(source, 8, 0);
    static char long_name[257];
    for (uint32_t i = 0; i < COUNT(bad_puts); i++) {
        why.text[0] = '\0';
        sl_err code = put_one(client, "bad", bad_puts[i].pieces, bad_puts[i].count);
        if (code != SL_ERR_INVALID || why.text[0] == '\0') {
            (void)fprintf(stderr, "%s: %d '%s'\n", bad_puts[i].name, (int)code, why.text);
            exit(1);
        }
        CHECK(sl_exists(client, key_of("bad")) == SL_ERR_NOT_FOUND);
    }
    CHECK(put_one(client, "bad", NULL, 3) == SL_ERR_INVALID);
    CHECK(put_one(client, "", &fine, 1) == SL_ERR_INVALID);
    /* A wrong item does not keep the others of its batch from being stored. */
    const struct sl_iov_list items[] = {
        {.key = key_of("good 1"), .at = &fine, .count = 1},
        {.key = key_of("bad"), .at = bad_puts[4].pieces, .count = 2},
        {.key = key_of("good 2"), .at = &fine, .count = 1}};
    sl_err codes[3];
    CHECK(sl_putv(client, items, 3, NULL, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_ERR_INVALID && codes[2] == SL_OK);
    memset(long_name, 'n', sizeof long_name - 1);
    const char *const names[] = {long_name};
    const struct sl_put_options terms[] = {{.contribution_count = 17, .contributions = names},
                                           {.contribution_count = 1},
                                           {.contribution_count = 1, .contributions = names}};
    for (uint32_t i = 0; i < COUNT(terms); i++) {
        CHECK(sl_putv(client, items, 1, &terms[i], codes, WAIT_NS, &why) == SL_ERR_INVALID);
    }
    struct sl_iov_list bundled = items[0];
    bundled.bundle = (struct sl_object_key){.at = long_name, .length = 256};
    CHECK(sl_putv(client, &bundled, 1, NULL, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_ERR_INVALID);
    CHECK(sl_putv(client, NULL, 1, NULL, codes, WAIT_NS, &why) == SL_ERR_INVALID);
    CHECK(sl_getv(client, NULL, 1, true, NULL, codes, WAIT_NS, &why) == SL_ERR_INVALID);
    CHECK(sl_putv(client, items, 65537, NULL, codes, WAIT_NS, &why) == SL_ERR_INVALID);
    CHECK(sl_getv(client, items, 65537, true, NULL, codes, WAIT_NS, &why) == SL_ERR_INVALID);
    struct sl_client *reader = client_of(true);
    CHECK(sl_putv(reader, items, 1, NULL, codes, WAIT_NS, &why) == SL_ERR_PERMISSION);
    uint64_t length = 0;
    const struct sl_iov out = PIECE(target, 8, 0);
    CHECK(get_one(reader, "good 1", &out, 1, true, &length) == SL_OK && length == 8);
    sl_client_close(&reader);
}

/* ---- ranges: a value of 100 bytes ---- */

static const struct {
    struct sl_iov pieces[3];
    uint32_t count;
    bool whole;
    sl_err code;
    struct { /* afterwards, these bytes of target are those of source from `at` on */
        uint32_t to, length, from;
    } copied[2];
} ranges[] = {
    {{PIECE(target, 10, 50)}, 1, false, SL_OK, {{0, 10, 50}}},
    {{PIECE(target, 10, 95)}, 1, false, SL_OK, {{0, 5, 95}}},
    {{PIECE(target, 10, 100)}, 1, false, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target, 10, UINT64_MAX)}, 1, false, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target, 10, 0), PIECE(target + 20, 1, 100)}, 2, false, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target, 10, 0), PIECE(target + 20, 10, 0)}, 2, false, SL_OK, {{0, 10, 0}, {20, 10, 0}}},
    {{PIECE(target, 0, 500), PIECE(NULL, 0, 0)}, 2, false, SL_OK, {{0, 0, 0}}},
    {{PIECE(NULL, 0, 0)}, 0, false, SL_OK, {{0, 0, 0}}},
    {{PIECE(NULL, 10, 0)}, 1, false, SL_ERR_INVALID, {{0, 0, 0}}},
    {{PIECE((void *)(UINTPTR_MAX - 4), 10, 0)}, 1, false, SL_ERR_INVALID, {{0, 0, 0}}},
    {{PIECE(target, UINT64_MAX, 0)}, 1, false, SL_OK, {{0, 100, 0}}},
    {{PIECE(target, 99, 0)}, 1, true, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target, 99, 1)}, 1, true, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target, 50, 0), PIECE(target + 60, 49, 51)}, 2, true, SL_ERR_LIMIT, {{0, 0, 0}}},
    {{PIECE(target + 50, 50, 50), PIECE(target, 50, 0)}, 2, true, SL_OK, {{0, 100, 0}}},
    {{PIECE(target, 100, 0), PIECE(target + 200, 10, 100)}, 2, true, SL_OK, {{0, 100, 0}}},
    {{PIECE(target, 60, 0), PIECE(target + 100, 60, 40)},
     2,
     true,
     SL_OK,
     {{0, 60, 0}, {100, 60, 40}}},
    {{PIECE(NULL, 0, 0)}, 0, true, SL_ERR_LIMIT, {{0, 0, 0}}},
};

static void reading(struct sl_client *client)
{
    uint64_t length = 0;
    CHECK(sl_put(client, key_of("range"), source, 100, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < COUNT(ranges); i++) {
        unsigned char want[512];
        memset(want, 0xee, sizeof want);
        memset(target, 0xee, sizeof want);
        for (uint32_t c = 0; c < 2; c++) {
            memcpy(want + ranges[i].copied[c].to, source + ranges[i].copied[c].from,
                   ranges[i].copied[c].length);
        }
        length = 0;
        sl_err code =
            get_one(client, "range", ranges[i].pieces, ranges[i].count, ranges[i].whole, &length);
        if (code != ranges[i].code || length != 100 || memcmp(want, target, sizeof want) != 0) {
            (void)fprintf(stderr, "range %u: code %d, length %lu\n", i, (int)code, length);
            exit(1);
        }
    }
    CHECK(get_one(client, "none", ranges[0].pieces, 1, false, &length) == SL_ERR_NOT_FOUND);
    CHECK(get_one(client, "", ranges[0].pieces, 1, false, &length) == SL_ERR_INVALID);
}

/* ---- large batches ---- */

/* More than one message holds; some keys twice: the first value stays. */
static void many(struct sl_client *client)
{
    static char texts[MANY][600];
    static struct sl_iov pieces[MANY][3];
    static struct sl_iov_list items[MANY];
    static unsigned char got[MANY][MANY_BYTES];
    static uint64_t lengths[MANY];
    static sl_err codes[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t number = i % 100 == 99 ? i - 1 : i;
        (void)snprintf(texts[i], sizeof texts[i], "many/%0500u", number);
        pieces[i][0] = (struct sl_iov)PIECE(source + i, 10, 0);
        pieces[i][1] = (struct sl_iov)PIECE(source + i + 10, 1, 10);
        pieces[i][2] = (struct sl_iov)PIECE(source + i + 11, MANY_BYTES - 11, 11);
        items[i] = (struct sl_iov_list){.key = key_of(texts[i]), .at = pieces[i], .count = 3};
    }
    CHECK(sl_putv(client, items, MANY, NULL, codes, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK(codes[i] == SL_OK);
        for (uint32_t p = 0; p < 3; p++) {
            pieces[i][p].at = got[i] + pieces[i][p].offset_bytes;
        }
    }
    CHECK(sl_getv(client, items, MANY, true, lengths, codes, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t number = i % 100 == 99 ? i - 1 : i;
        CHECK(codes[i] == SL_OK && lengths[i] == MANY_BYTES);
        CHECK(memcmp(got[i], source + number, MANY_BYTES) == 0);
    }
}

/* ---- terms ---- */

static void is_value(struct sl_client *client, const char *key, const unsigned char *want,
                     uint64_t length);
static sl_err commit_one(struct sl_client *client, struct sl_put_session *draft);

/* An existing value stays until its replacement is committed, or permanently if that is dropped. */
static void replacing(struct sl_client *client)
{
    static const struct sl_put_options terms = {.replace = true};
    const struct sl_object_key key = key_of("key");
    const struct sl_iov second[] = {PIECE(source + 7, 5000, 5000), PIECE(source, 5000, 0)};
    const struct sl_iov_list item = {.key = key, .at = second, .count = 2};
    const struct sl_iov third = PIECE(source + 100, 70000, 0);
    const uint64_t lengths[] = {70000};
    struct sl_put_session *draft = NULL;
    sl_err code = SL_ERR_INTERNAL;
    uint64_t got = 0;
    CHECK(sl_put(client, key, "first", 5, WAIT_NS, &why) == SL_OK);
    CHECK(sl_putv(client, &item, 1, NULL, &code, WAIT_NS, &why) == SL_OK && code == SL_OK);
    is_value(client, "key", (const unsigned char *)"first", 5);
    CHECK(sl_putv(client, &item, 1, &terms, &code, WAIT_NS, &why) == SL_OK && code == SL_OK);
    memcpy(target + MIB, source, 5000);
    memcpy(target + MIB + 5000, source + 7, 5000);
    is_value(client, "key", target + MIB, 10000);
    for (uint32_t i = 0; i < 2; i++) { /* dropped, then committed */
        CHECK(sl_put_start(client, &key, NULL, lengths, 1, &terms, 0, &draft, &code, WAIT_NS,
                           &why) == SL_OK);
        CHECK(code == SL_OK && sl_put_write(draft, &third, 1, &why) == SL_OK);
        CHECK(sl_size(client, key, &got) == SL_OK && got == 10000);
        if (i == 0) {
            sl_put_abort(&draft);
            is_value(client, "key", target + MIB, 10000);
        }
    }
    CHECK(commit_one(client, draft) == SL_OK);
    is_value(client, "key", source + 100, 70000);
    /* Twice in a batch: one after the other. */
    const struct sl_iov tails[] = {PIECE(source + 1, 300, 0), PIECE(source + 2, 400, 0)};
    const struct sl_iov_list twice[] = {{.key = key, .at = &tails[0], .count = 1},
                                        {.key = key, .at = &tails[1], .count = 1}};
    sl_err codes[2];
    CHECK(sl_putv(client, twice, 2, &terms, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_OK);
    is_value(client, "key", source + 2, 400);
}

/* Values that are only on disk are also read into pieces. */
static void from_disk(struct sl_client *client)
{
    enum { VALUES = 200, LENGTH = 1 << 20 };
    struct sl_client *reader = client_of(false);
    char text[32];
    uint32_t on_disk = 0;
    for (uint32_t i = 0; i < VALUES; i++) {
        const struct sl_iov in[] = {PIECE(source + i, 70000, 0),
                                    PIECE(source + i + 70000, LENGTH - 70000, 70000)};
        (void)snprintf(text, sizeof text, "disk/%u", i);
        CHECK(put_one(client, text, in, 2) == SL_OK);
    }
    CHECK(sl_flush(client, WAIT_NS, &why) == SL_OK);
    for (uint32_t i = 0; i < VALUES; i++) {
        struct sl_object_info info;
        const struct sl_iov out[] = {PIECE(target + 500000, LENGTH - 500000, 500000),
                                     PIECE(target, 500000, 0)};
        uint64_t length = 0;
        (void)snprintf(text, sizeof text, "disk/%u", i);
        CHECK(sl_stat(client, key_of(text), &info) == SL_OK);
        on_disk += info.in_memory ? 0 : 1;
        memset(target, 0, LENGTH);
        CHECK(get_one(reader, text, out, 2, true, &length) == SL_OK && length == LENGTH);
        CHECK(memcmp(target, source + i, LENGTH) == 0);
    }
    CHECK(on_disk > 100);
    sl_client_close(&reader);
}

/* ---- threads, fork ---- */

static void *thread_main(void *context)
{
    struct sl_client *client = context;
    static _Atomic uint32_t numbers;
    uint32_t number = numbers++;
    char text[64];
    static _Thread_local unsigned char out[50000];
    for (uint32_t i = 0; i < THREAD_ROUNDS; i++) {
        uint32_t own = i % 2 == 0 ? number : 99; /* every other key is common to all threads */
        uint32_t length = 50000 - i;
        const struct sl_iov in[] = {PIECE(source + i, 20000, 0),
                                    PIECE(source + i + 20000, length - 20000, 20000)};
        const struct sl_iov back[] = {PIECE(out + 30000, length - 30000, 30000),
                                      PIECE(out, 30000, 0)};
        uint64_t got = 0;
        (void)snprintf(text, sizeof text, "thread/%u/%u", own, i);
        CHECK(put_one(client, text, in, 2) == SL_OK);
        CHECK(get_one(client, text, back, 2, true, &got) == SL_OK);
        CHECK(got == length && memcmp(out, source + i, length) == 0);
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
    pid_t child = fork();
    if (child == 0) {
        const struct sl_iov piece = PIECE(source, 8, 0);
        const struct sl_iov_list item = {.key = key_of("forked"), .at = &piece, .count = 1};
        sl_err code = SL_OK;
        _exit(sl_putv(client, &item, 1, NULL, &code, 0, NULL) == SL_ERR_INVALID ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- drafts ---- */

static struct sl_put_session *begin_one(struct sl_client *client, const char *key, uint64_t length,
                                        uint64_t ttl_ns, sl_err *code)
{
    const struct sl_object_key name = key_of(key);
    struct sl_put_session *draft = NULL;
    CHECK(sl_put_start(client, &name, NULL, &length, 1, NULL, ttl_ns, &draft, code, WAIT_NS,
                       &why) == SL_OK);
    CHECK((draft != NULL) == (*code == SL_OK));
    return draft;
}

static sl_err commit_one(struct sl_client *client, struct sl_put_session *draft)
{
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_put_end(client, &draft, 1, &code, WAIT_NS, &why) == SL_OK && draft == NULL);
    return code;
}

/* The value under the key is want, and so is its digest. */
static void is_value(struct sl_client *client, const char *key, const unsigned char *want,
                     uint64_t length)
{
    struct sl_object_info object, plain;
    uint64_t got = 0;
    CHECK(sl_get(client, key_of(key),
                 (struct sl_buffer){.at = target, .length_bytes = sizeof target}, &got, WAIT_NS,
                 &why) == SL_OK);
    CHECK(got == length && memcmp(target, want, length) == 0);
    CHECK(sl_put(client, key_of("plain"), want, length, WAIT_NS, &why) == SL_OK);
    CHECK(sl_stat(client, key_of(key), &object) == SL_OK);
    CHECK(sl_stat(client, key_of("plain"), &plain) == SL_OK);
    CHECK(object.digest_low == plain.digest_low && object.digest_high == plain.digest_high);
    CHECK(sl_remove(client, key_of("plain"), WAIT_NS, &why) == SL_OK);
}

/* Random writes, some over others, some bytes never: the committed bytes are those of a zeroed
 * buffer after the same writes, although the extent was used before. */
static void draft_shapes(struct sl_client *client)
{
    static struct sl_iov pieces[PIECES_MAX];
    static unsigned char want[VALUE_BYTES];
    uint64_t state = 11;
    for (uint32_t i = 0; i < SHAPES; i++) {
        uint64_t length = 1 + random_next(&state) % (i % 2 == 0 ? VALUE_BYTES : 70000);
        sl_err code = SL_ERR_INTERNAL;
        CHECK(sl_put(client, key_of("dirt"), source, length, WAIT_NS, &why) == SL_OK);
        CHECK(sl_remove(client, key_of("dirt"), WAIT_NS, &why) == SL_OK);
        struct sl_put_session *draft = begin_one(client, "draft", length, 0, &code);
        CHECK(code == SL_OK && sl_exists(client, key_of("draft")) == SL_ERR_NOT_FOUND);
        memset(want, 0, length);
        uint32_t count = cut(&state, source + i, length, pieces);
        if (i % 3 != 0) {
            shuffle(&state, pieces, count);
        }
        for (uint32_t p = 0; p < count; p++) {
            if (i % 4 == 1 && p % 5 == 0) { /* never written */
                continue;
            }
            if (i % 5 == 2 && p % 7 == 0) { /* over earlier bytes */
                uint64_t left = length - pieces[p].offset_bytes;
                pieces[p].length_bytes =
                    pieces[p].length_bytes > left / 2 ? left : 2 * pieces[p].length_bytes;
                pieces[p].at = source + (random_next(&state) % 5000);
            }
            CHECK(sl_put_write(draft, &pieces[p], 1, &why) == SL_OK);
            memcpy(want + pieces[p].offset_bytes, pieces[p].at, pieces[p].length_bytes);
        }
        CHECK(commit_one(client, draft) == SL_OK);
        is_value(client, "draft", want, length);
        CHECK(sl_remove(client, key_of("draft"), WAIT_NS, &why) == SL_OK);
    }
}

struct draft_writer {
    struct sl_put_session *draft;
    uint32_t number;
};

static void *draft_thread(void *context)
{
    const struct draft_writer *writer = context;
    for (uint64_t at = writer->number * 5000; at < VALUE_BYTES; at += THREADS * 5000) {
        uint64_t length = VALUE_BYTES - at < 5000 ? VALUE_BYTES - at : 5000;
        const struct sl_iov piece = PIECE(source + at, length, at);
        CHECK(sl_put_write(writer->draft, &piece, 1, &why) == SL_OK);
    }
    return NULL;
}

static void draft_threads(struct sl_client *client)
{
    pthread_t running[THREADS];
    struct draft_writer writers[THREADS];
    sl_err code = SL_ERR_INTERNAL;
    struct sl_put_session *draft = begin_one(client, "draft", VALUE_BYTES, 0, &code);
    for (uint32_t i = 0; i < THREADS; i++) {
        writers[i] = (struct draft_writer){.draft = draft, .number = i};
        CHECK(pthread_create(&running[i], NULL, draft_thread, &writers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
    }
    pid_t child = fork();
    if (child == 0) {
        const struct sl_iov piece = PIECE(target, 8, 0);
        sl_err refused = sl_put_write(draft, &piece, 1, NULL);
        sl_put_abort(&draft); /* affects only the child's memory */
        _exit(refused == SL_ERR_INVALID && draft == NULL ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(commit_one(client, draft) == SL_OK);
    is_value(client, "draft", source, VALUE_BYTES);
}

static void draft_refusals(struct sl_client *client)
{
    static const struct sl_iov bad[] = {PIECE(source, 101, 0),
                                        PIECE(source, 1, 100),
                                        PIECE(source, 1, UINT64_MAX),
                                        PIECE(source, UINT64_MAX, 1),
                                        PIECE(NULL, 1, 0),
                                        PIECE((void *)(UINTPTR_MAX - 4), 8, 0)};
    const struct sl_object_key keys[] = {key_of("a"), key_of("a"),    key_of("there"),
                                         key_of(""),  key_of("huge"), key_of("empty")};
    const uint64_t lengths[] = {100, 100, 100, 100, CHUNK_BYTES + 1, 0};
    const sl_err want[] = {SL_OK,          SL_ERR_BUSY,    SL_ERR_EXISTS,
                           SL_ERR_INVALID, SL_ERR_INVALID, SL_ERR_INVALID};
    struct sl_put_session *drafts[COUNT(keys)];
    sl_err codes[COUNT(keys)];
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_put(client, key_of("there"), "x", 1, WAIT_NS, &why) == SL_OK);
    CHECK(sl_put_start(client, keys, NULL, lengths, COUNT(keys), NULL, 0, drafts, codes, WAIT_NS,
                       &why) == SL_OK);
    for (uint32_t i = 0; i < COUNT(keys); i++) {
        CHECK(codes[i] == want[i] && (drafts[i] != NULL) == (want[i] == SL_OK));
    }
    CHECK(begin_one(client, "a", 100, 0, &code) == NULL && code == SL_ERR_BUSY);
    for (uint32_t i = 0; i < COUNT(bad); i++) {
        CHECK(sl_put_write(drafts[0], &bad[i], 1, &why) == SL_ERR_INVALID);
    }
    CHECK(sl_put_write(drafts[0], NULL, 1, &why) == SL_ERR_INVALID);
    CHECK(sl_put_write(drafts[0], NULL, 0, &why) == SL_OK);
    drafts[1] = drafts[0]; /* the same one twice, and NULL */
    CHECK(sl_put_end(client, drafts, 3, codes, WAIT_NS, &why) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_ERR_INVALID && codes[2] == SL_ERR_INVALID);
    CHECK(drafts[0] == NULL && drafts[1] == NULL);
    memset(target, 0, 100);
    is_value(client, "a", (unsigned char[100]){0}, 100);
    sl_put_abort(&drafts[0]); /* NULL: no effect */
    sl_put_abort(NULL);
    CHECK(sl_put_start(client, keys, NULL, lengths, 65537, NULL, 0, drafts, codes, WAIT_NS, &why) ==
          SL_ERR_INVALID);
}

/* More drafts are begun and dropped than fit; a key is free again immediately. */
static void draft_drops(struct sl_client *client)
{
    const struct sl_iov piece = PIECE(source, MIB, 0);
    sl_err code = SL_ERR_INTERNAL;
    for (uint32_t i = 0; i < 50; i++) {
        struct sl_put_session *draft = begin_one(client, "drop", CHUNK_BYTES, 0, &code);
        CHECK(code == SL_OK);
        CHECK(sl_put_write(draft, &piece, 1, &why) == SL_OK);
        sl_put_abort(&draft);
        CHECK(draft == NULL);
    }
    CHECK(sl_exists(client, key_of("drop")) == SL_ERR_NOT_FOUND);
}

/* An expired draft is refused, its key is free, and its extent is freed. */
static void draft_expiry(struct sl_client *client)
{
    const struct sl_iov piece = PIECE(source, 100, 0);
    sl_err code = SL_ERR_INTERNAL;
    for (uint32_t i = 0; i < 20; i++) {
        struct sl_put_session *draft = begin_one(client, "late", CHUNK_BYTES, 1000000, &code);
        CHECK(code == SL_OK);
        while (sl_put_write(draft, &piece, 1, &why) != SL_ERR_STALE) {
            (void)usleep(1000);
        }
        CHECK(sl_put(client, key_of("late"), source, 100, WAIT_NS, &why) == SL_OK);
        if (i % 2 == 0) {
            CHECK(commit_one(client, draft) == SL_ERR_STALE);
        } else {
            sl_put_abort(&draft);
        }
        is_value(client, "late", source, 100);
        CHECK(sl_remove(client, key_of("late"), WAIT_NS, &why) == SL_OK);
    }
}

/* Writes to drafts that expire in the middle of it, until it is killed. */
static void late_writer(void)
{
    const struct sl_iov piece = PIECE(source, CHUNK_BYTES, 0);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    struct sl_client *client = client_of(false);
    for (;;) {
        sl_err code = SL_ERR_INTERNAL;
        struct sl_put_session *draft = begin_one(client, "late", CHUNK_BYTES, 1000000, &code);
        while (draft != NULL && sl_put_write(draft, &piece, 1, &why) == SL_OK) {
        }
        sl_put_abort(&draft);
    }
}

/* A writer is stopped anywhere, and continues long after its extent was freed and others have
 * put values everywhere: none of their bytes changes. */
static void draft_stops(struct sl_client *client)
{
    static const char *const keys[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    static unsigned char got[CHUNK_BYTES / 2];
    uint64_t state = 7, there = 0;
    pid_t child = fork();
    if (child == 0) {
        late_writer();
    }
    CHECK(child > 0);
    for (uint32_t i = 0; i < STOPS; i++) {
        (void)usleep((useconds_t)(random_next(&state) % 10000));
        CHECK(kill(child, SIGSTOP) == 0);
        (void)usleep(2000); /* it expires */
        for (uint32_t k = 0; k < COUNT(keys); k++) {
            CHECK(sl_put(client, key_of(keys[k]), source + k + 1, sizeof got, WAIT_NS, &why) ==
                  SL_OK);
        }
        CHECK(kill(child, SIGCONT) == 0);
        (void)usleep(5000);
        for (uint32_t k = 0; k < COUNT(keys); k++) { /* some were evicted for others, or by it */
            uint64_t length = 0;
            sl_err err = sl_get(client, key_of(keys[k]),
                                (struct sl_buffer){.at = got, .length_bytes = sizeof got}, &length,
                                WAIT_NS, &why);
            CHECK(err == SL_ERR_NOT_FOUND || (err == SL_OK && length == sizeof got &&
                                              memcmp(got, source + k + 1, sizeof got) == 0));
            there += err == SL_OK;
            (void)sl_remove(client, key_of(keys[k]), WAIT_NS, &why);
        }
    }
    CHECK(there > 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static void say_and_wait(const char *what)
{
    char line[16];
    CHECK(puts(what) >= 0 && fflush(stdout) == 0);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

/* Holds a draft until it is killed. */
static void draft_hold(struct sl_client *client)
{
    const struct sl_iov piece = PIECE(source, MIB, 0);
    sl_err code = SL_ERR_INTERNAL;
    struct sl_put_session *draft = begin_one(client, "held", CHUNK_BYTES, 0, &code);
    CHECK(code == SL_OK && sl_put_write(draft, &piece, 1, &why) == SL_OK);
    say_and_wait("holding");
    sl_put_abort(&draft);
}

/* The registrar is killed between a draft's begin and its commit, then the whole node restarts. */
static void draft_restarts(struct sl_client *client)
{
    const struct sl_iov first = PIECE(source, MIB, 0);
    const struct sl_iov second = PIECE(source + MIB, MIB, MIB);
    sl_err code = SL_ERR_INTERNAL;
    struct sl_put_session *draft = begin_one(client, "kept", 2 * MIB, 60000000000, &code);
    CHECK(code == SL_OK && sl_put_write(draft, &first, 1, &why) == SL_OK);
    say_and_wait("registrar");
    CHECK(sl_put_write(draft, &second, 1, &why) == SL_OK);
    CHECK(commit_one(client, draft) == SL_OK);
    is_value(client, "kept", source, 2 * MIB);
    draft = begin_one(client, "lost", 2 * MIB, 60000000000, &code);
    CHECK(code == SL_OK && sl_put_write(draft, &first, 1, &why) == SL_OK);
    say_and_wait("replace");
    while (sl_put_write(draft, &second, 1, &why) == SL_OK) {
        (void)usleep(1000);
    }
    CHECK(why.code == SL_ERR_STALE);
    CHECK(commit_one(client, draft) == SL_ERR_STALE);
    CHECK(sl_exists(client, key_of("lost")) == SL_ERR_NOT_FOUND);
    draft = begin_one(client, "lost", 2 * MIB, 0, &code);
    CHECK(code == SL_OK && sl_put_write(draft, &first, 1, &why) == SL_OK);
    CHECK(sl_put_write(draft, &second, 1, &why) == SL_OK && commit_one(client, draft) == SL_OK);
    is_value(client, "lost", source, 2 * MIB);
}

static const struct {
    const char *name;
    void (*run)(struct sl_client *client);
} whats[] = {
    {"shapes", shapes},
    {"refusals", refusals},
    {"reading", reading},
    {"draft_shapes", draft_shapes},
    {"draft_threads", draft_threads},
    {"draft_refusals", draft_refusals},
    {"draft_drops", draft_drops},
    {"draft_expiry", draft_expiry},
    {"draft_stops", draft_stops},
    {"draft_hold", draft_hold},
    {"draft_restarts", draft_restarts},
    {"replacing", replacing},
    {"from_disk", from_disk},
    {"many", many},
    {"threads", threads},
};

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1024], shm_dir[1024];
    if (argc != 5) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    settings[0] = instance;
    settings[1] = runtime_dir;
    settings[2] = shm_dir;
    source_fill();
    for (uint32_t i = 0; i < COUNT(whats); i++) {
        if (strcmp(whats[i].name, argv[4]) == 0) {
            struct sl_client *client = client_of(false);
            whats[i].run(client);
            sl_client_close(&client);
            return 0;
        }
    }
    return 2;
}
