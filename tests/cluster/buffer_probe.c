/* tests/cluster/buffer_probe.c - gets of another node's values into registered buffers, by several
 * threads on one client, while others kill or stop what is around it; pull_test.py starts it.
 *
 *   buffer_probe INSTANCE RUNTIME_DIR SHM_DIR put VALUES VALUE_BYTES
 *   buffer_probe INSTANCE RUNTIME_DIR SHM_DIR get VALUES VALUE_BYTES THREADS TIMEOUT_MS TIMES KEEPS
 *
 * get prints "lent" or "copied" (KEEPS is true). Each time the buffer is poisoned; behind a line of the
 * input each thread gets its share of the values, one call. What is said to be there is compared, and at
 * once used for something else, as is what is not there. Nothing may come behind that. A line a time:
 * "got COUNT MICROSECONDS CPU_MICROSECONDS", both of the calls alone. With a timeout of a minute, for
 * figures, nobody compares before all have got. Exit code 0: no byte was wrong, and none came late. */
#include "client/lib/sluice.h"

#include <pthread.h>
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

#define S           1000000000ull
#define LATE_NS     (150 * 1000000l) /* what was still on its way has come by then */
#define REUSED      UINT64_C(0x5c5c5c5c5c5c5c5c)
#define VALUES_MAX  1024u
#define THREADS_MAX 16u
#define PIECES      3u /* of a value */

static struct sl_error why;
static struct sl_client *client;
static uint64_t value_count, value_bytes, thread_count, timeout_ns;
static unsigned char *buffer;
static char keys[VALUES_MAX][16];

static uint64_t word_of(uint64_t value, uint64_t at)
{
    uint64_t word = (value << 32) + at + 1;
    word *= 0x9e3779b97f4a7c15u;
    word ^= word >> 29;
    return word * 0xbf58476d1ce4e5b9u;
}

static uint64_t *words_at(uint64_t value)
{
    return (uint64_t *)(void *)(buffer + value * value_bytes);
}

static struct sl_object_key key_of(uint64_t value)
{
    (void)snprintf(keys[value], sizeof keys[value], "value-%u", (unsigned)value);
    return (struct sl_object_key){.at = keys[value], .length = (uint32_t)strlen(keys[value])};
}

static void put(void)
{
    for (uint64_t v = 0; v < value_count; v++) {
        for (uint64_t i = 0; i < value_bytes / 8; i++) {
            words_at(v)[i] = word_of(v, i);
        }
        struct sl_piece piece = {.at = words_at(v), .length_bytes = value_bytes};
        struct sl_pieces item = {.key = key_of(v), .at = &piece, .count = 1};
        sl_err code = SL_OK;
        CHECK(sl_put_pieces(client, &item, 1, NULL, &code, 20 * S, &why) == SL_OK);
        CHECK(code == SL_OK);
    }
}

static void reuse(uint64_t value)
{
    for (uint64_t i = 0; i < value_bytes / 8; i++) {
        words_at(value)[i] = REUSED;
    }
}

static void check_reused(uint64_t value)
{
    for (uint64_t i = 0; i < value_bytes / 8; i++) {
        CHECK(words_at(value)[i] == REUSED);
    }
}

struct share {
    pthread_t thread;
    uint64_t first; /* every thread_count-th value from it on */
    uint64_t got, ended_us, cpu_us;
};
static pthread_barrier_t all_got;

static uint64_t clock_us(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* A value in pieces that lie one behind the other: the calls do not know. */
static void pieces_make(struct sl_piece *pieces, uint64_t value)
{
    uint64_t at = 0;
    for (uint64_t k = 0; k < PIECES; k++) {
        uint64_t length = k + 1 == PIECES ? value_bytes - at : value_bytes / PIECES;
        pieces[k] = (struct sl_piece){
            .at = buffer + value * value_bytes + at, .length_bytes = length, .offset_bytes = at};
        at += length;
    }
}

static void *share_run(void *context)
{
    struct share *share = context;
    struct sl_piece *pieces = calloc(VALUES_MAX * PIECES, sizeof *pieces);
    struct sl_pieces *items = calloc(VALUES_MAX, sizeof *items);
    uint64_t *lengths = calloc(VALUES_MAX, sizeof *lengths);
    sl_err *codes = calloc(VALUES_MAX, sizeof *codes);
    struct sl_error mine = {0};
    uint32_t count = 0;
    CHECK(pieces != NULL && items != NULL && lengths != NULL && codes != NULL);
    for (uint64_t v = share->first; v < value_count; v += thread_count, count++) {
        pieces_make(&pieces[(size_t)count * PIECES], v);
        items[count] = (struct sl_pieces){
            .key = key_of(v), .at = &pieces[(size_t)count * PIECES], .count = PIECES};
    }
    share->cpu_us = clock_us(CLOCK_THREAD_CPUTIME_ID);
    (void)sl_get_pieces(client, items, count, true, lengths, codes, timeout_ns, &mine);
    share->ended_us = clock_us(CLOCK_MONOTONIC);
    share->cpu_us = clock_us(CLOCK_THREAD_CPUTIME_ID) - share->cpu_us;
    if (timeout_ns >= 60 * S) {
        (void)pthread_barrier_wait(&all_got);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t v = share->first + i * thread_count;
        for (uint64_t k = 0; codes[i] == SL_OK && k < value_bytes / 8; k++) {
            CHECK(words_at(v)[k] == word_of(v, k));
        }
        CHECK(codes[i] != SL_OK || lengths[i] == value_bytes);
        share->got += codes[i] == SL_OK ? 1 : 0;
        reuse(v);
    }
    free(pieces);
    free(items);
    free(lengths);
    free(codes);
    return NULL;
}

static void get(void)
{
    const struct timespec late = {.tv_nsec = LATE_NS};
    struct share shares[THREADS_MAX] = {0};
    uint64_t got = 0, ended_us = 0, cpu_us = 0;
    char line[8];
    memset(buffer, 0xa5, value_count * value_bytes);
    (void)printf("poisoned\n");
    CHECK(fflush(stdout) == 0 && fgets(line, sizeof line, stdin) != NULL);
    CHECK(pthread_barrier_init(&all_got, NULL, (unsigned)thread_count) == 0);
    uint64_t began_us = clock_us(CLOCK_MONOTONIC);
    for (uint64_t t = 0; t < thread_count; t++) {
        shares[t].first = t;
        CHECK(pthread_create(&shares[t].thread, NULL, share_run, &shares[t]) == 0);
    }
    for (uint64_t t = 0; t < thread_count; t++) {
        (void)pthread_join(shares[t].thread, NULL);
        got += shares[t].got;
        cpu_us += shares[t].cpu_us;
        ended_us = shares[t].ended_us > ended_us ? shares[t].ended_us : ended_us;
    }
    (void)pthread_barrier_destroy(&all_got);
    if (got < value_count) { /* something was in its way */
        (void)nanosleep(&late, NULL);
    }
    for (uint64_t v = 0; v < value_count; v++) {
        check_reused(v);
    }
    (void)printf("got %u %llu %llu\n", (unsigned)got, (unsigned long long)(ended_us - began_us),
                 (unsigned long long)cpu_us);
    CHECK(fflush(stdout) == 0);
}

static void gets(uint64_t times)
{
    sl_err err = sl_memory_lend(client, buffer, value_count * value_bytes, 20 * S, &why);
    CHECK(err == SL_OK || err == SL_ERR_UNSUPPORTED);
    (void)printf(err == SL_OK ? "lent\n" : "copied\n");
    for (; times > 0; times--) {
        get();
    }
    if (err == SL_OK) {
        CHECK(sl_memory_reclaim(client, buffer, 20 * S, &why) == SL_OK);
    }
}

int main(int argc, char **argv)
{
    static char texts[4][4200];
    static const char *settings[5];
    void *memory = NULL;
    if (argc != 7 && argc != 11) {
        (void)fprintf(stderr, "usage: buffer_probe INSTANCE RUNTIME_DIR SHM_DIR put|get VALUES "
                              "VALUE_BYTES [THREADS TIMEOUT_MS TIMES KEEPS]\n");
        return 2;
    }
    (void)snprintf(texts[0], sizeof texts[0], "instance=%s", argv[1]);
    (void)snprintf(texts[1], sizeof texts[1], "runtime_dir=%s", argv[2]);
    (void)snprintf(texts[2], sizeof texts[2], "shm_dir=%s", argv[3]);
    (void)snprintf(texts[3], sizeof texts[3], "load_keeps=%s", argc == 11 ? argv[10] : "true");
    for (size_t i = 0; i < 4; i++) {
        settings[i] = texts[i];
    }
    value_count = strtoull(argv[5], NULL, 10);
    value_bytes = strtoull(argv[6], NULL, 10);
    thread_count = argc == 11 ? strtoull(argv[7], NULL, 10) : 1;
    CHECK(value_count > 0 && value_count <= VALUES_MAX && value_bytes % 8 == 0 &&
          value_bytes >= 64 && thread_count > 0 && thread_count <= THREADS_MAX);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    CHECK(sl_memory_alloc(value_count * value_bytes, &memory, &why) == SL_OK);
    buffer = memory;
    if (argc == 7) {
        put();
    } else {
        timeout_ns = strtoull(argv[8], NULL, 10) * 1000000u;
        gets(strtoull(argv[9], NULL, 10));
    }
    sl_client_close(&client);
    CHECK(sl_memory_free(memory, &why) == SL_OK);
    return 0;
}
