/* tests/bench/directory_bench.c - the cost of the directory: publishing an index, looking keys
 * up, and walking an index in which nothing changed, compared with what the server and memory
 * can do.
 *
 *   directory_bench [KEYS] (100000) */
#include "actors/transporter/publish/feed.h"
#include "ipc/msg/sl_msg.h"
#include "tests/support/redis_server.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_NS (120 * SL_NS_PER_S)
#define WINDOW   512u
#define ROUNDS   2000u

static struct sl_tmpdir tmpdir;
static struct sl_redis redis;
static uint64_t found_at_ns;
static struct sl_directory_feed *feed;

static void on_found(void *context, uint64_t cookie, sl_err code,
                     const struct sl_directory_found *found, uint32_t count)
{
    (void)context, (void)cookie, (void)found, (void)count;
    SL_ASSERT(code == SL_OK && count > 0 && found[0].holder_count == 1);
    found_at_ns = sl_clock_monotonic_ns();
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static struct sl_directory *directory_make(const char *name)
{
    struct sl_directory_options options;
    struct sl_directory *directory = NULL;
    struct sl_error why = {0};
    sl_directory_options_init(&options);
    options.kind = SL_DIRECTORY_REDIS;
    options.url = redis.url;
    options.timeout_ns = LIMIT_NS;
    options.backoff_max_ns = 100 * SL_NS_PER_MS;
    options.node_ttl_ns = 600 * SL_NS_PER_S;
    options.events = (struct sl_directory_events){.found = on_found};
    sl_err err = sl_directory_open(&options, &directory, &why);
    SL_ASSERT(err == SL_OK);
    if (name != NULL) {
        struct sl_directory_member self = {.incarnation = 1};
        strcpy(self.name, name);
        SL_ASSERT(sl_directory_announce(directory, &self, NULL) == SL_OK);
    }
    return directory;
}

static void turn(struct sl_directory *directory)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (feed != NULL) {
        sl_directory_feed_step(feed, now_ns);
    }
    sl_directory_step(directory, now_ns);
    struct pollfd fd = {.fd = sl_directory_fd(directory), .events = POLLIN};
    (void)poll(&fd, 1, sl_directory_wake_at(directory) <= now_ns ? 0 : 1);
}

static uint64_t published(const struct sl_directory *directory)
{
    struct sl_directory_stats stats;
    sl_directory_stats(directory, &stats);
    return stats.published;
}

/* The same commands with hiredis only, pipelined as far. */
static double raw_publish_rate(uint32_t key_count)
{
    redisContext *context = redisConnectUnix(redis.socket);
    SL_ASSERT(context != NULL && context->err == 0);
    uint64_t began_ns = sl_clock_monotonic_ns();
    uint32_t sent = 0, got = 0;
    while (got < 2 * key_count) {
        while (sent < key_count && 2 * sent < got + 2 * WINDOW) {
            (void)redisAppendCommand(context, "HSET sluice:raw:k:%016" PRIx64 " node-a 1",
                                     (uint64_t)sent);
            (void)redisAppendCommand(context, "PEXPIRE sluice:raw:k:%016" PRIx64 " 600000",
                                     (uint64_t)sent);
            sent++;
        }
        redisReply *reply = NULL;
        SL_ASSERT(redisGetReply(context, (void **)&reply) == REDIS_OK);
        freeReplyObject(reply);
        got++;
    }
    double rate = key_count / seconds(sl_clock_monotonic_ns() - began_ns);
    redisFree(context);
    return rate;
}

static int u64_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void lookup_bench(struct sl_directory *directory, uint32_t key_count, uint32_t batch)
{
    static uint64_t ids[SL_DIRECTORY_KEYS_MAX], took_ns[ROUNDS], raw_ns[ROUNDS];
    redisContext *context = redisConnectUnix(redis.socket);
    SL_ASSERT(context != NULL && context->err == 0);
    uint32_t rounds = SL_MAX(ROUNDS / batch, 100u);
    char key[32];
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < batch; i++) {
            snprintf(key, sizeof(key), "key-%u", (round * batch + i) % key_count);
            ids[i] = sl_key_id(key, (uint32_t)strlen(key));
        }
        uint64_t now_ns = sl_clock_monotonic_ns();
        struct sl_directory_lookup lookup = {
            .ids = ids, .count = batch, .now_ns = now_ns, .deadline_ns = now_ns + LIMIT_NS};
        found_at_ns = 0;
        SL_ASSERT(sl_directory_lookup(directory, &lookup) == SL_OK);
        while (found_at_ns == 0) {
            turn(directory);
        }
        took_ns[round] = found_at_ns - now_ns;

        now_ns = sl_clock_monotonic_ns();
        for (uint32_t i = 0; i < batch; i++) {
            (void)redisAppendCommand(context, "HGETALL sluice:default:k:%016" PRIx64, ids[i]);
        }
        for (uint32_t i = 0; i < batch; i++) {
            redisReply *reply = NULL;
            SL_ASSERT(redisGetReply(context, (void **)&reply) == REDIS_OK);
            freeReplyObject(reply);
        }
        raw_ns[round] = sl_clock_monotonic_ns() - now_ns;
    }
    redisFree(context);
    qsort(took_ns, rounds, sizeof(took_ns[0]), u64_compare);
    qsort(raw_ns, rounds, sizeof(raw_ns[0]), u64_compare);
    printf("lookup of %4u keys: p50 %7.1f us, p99 %7.1f us; hiredis: p50 %7.1f us, p99 %7.1f us\n",
           batch, (double)took_ns[rounds / 2] / 1e3, (double)took_ns[rounds * 99 / 100] / 1e3,
           (double)raw_ns[rounds / 2] / 1e3, (double)raw_ns[rounds * 99 / 100] / 1e3);
}

static bool ignore(void *context, const struct sl_index_change *change)
{
    (void)context, (void)change;
    return true;
}

static uint64_t walk_ns(struct sl_index_changes *changes)
{
    uint64_t began_ns = sl_clock_monotonic_ns();
    while (sl_index_changes_step(changes, 4096, ignore, NULL) == SL_INDEX_WALK_ON) {
    }
    return sl_clock_monotonic_ns() - began_ns;
}

/* The alternative is messages from the registrar: the cost of encoding them. */
static double message_ns(uint32_t key_count)
{
    struct sl_codec *codec = NULL;
    struct sl_text texts[64];
    char keys[64][80];
    const void *frame = NULL;
    size_t length = 0;
    SL_ASSERT(sl_codec_create(SL_MIB, &codec, NULL) == SL_OK);
    for (uint32_t i = 0; i < 64; i++) {
        int used = snprintf(keys[i], sizeof(keys[i]), "%032x/%032x/0/kv", i, i);
        texts[i] = (struct sl_text){.at = keys[i], .length = (uint32_t)used};
    }
    struct sl_msg msg = {
        .type = SL_MSG_REMOVE, .seq = 1, .sender = {.at = "registrar", .length = 9}};
    msg.body.remove.keys.at = texts;
    msg.body.remove.keys.count = 64;
    uint64_t began_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < key_count; i += 64) {
        SL_ASSERT(sl_codec_encode(codec, &msg, &frame, &length, NULL) == SL_OK);
    }
    double ns = (double)(sl_clock_monotonic_ns() - began_ns) / key_count;
    sl_codec_destroy(&codec);
    return ns;
}

struct store {
    char dir[64];
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_index_view *view;
};

static void store_make(struct store *store, uint32_t key_count)
{
    char key[32];
    bool created = false;
    strcpy(store->dir, "/dev/shm/sluice-bench-XXXXXX");
    SL_ASSERT(mkdtemp(store->dir) != NULL);
    struct sl_arena_options arena = {
        .directory = store->dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    SL_ASSERT(sl_arena_open_owner(&arena, &created, &store->arena, NULL) == SL_OK);
    struct sl_index_options options = {.shm_dir = store->dir,
                                       .index_bytes_max =
                                           SL_MAX((uint64_t)key_count * 512, 8 * SL_MIB),
                                       .key_count = key_count,
                                       .arena = store->arena};
    SL_ASSERT(sl_index_open(&options, &created, &store->index, NULL) == SL_OK);
    SL_ASSERT(sl_index_view_open(store->dir, &store->view, NULL) == SL_OK);
    for (uint32_t i = 0; i < key_count; i++) {
        sl_ref ref = 0;
        int length = snprintf(key, sizeof(key), "key-%u", i);
        struct sl_entry entry = {.extent = {.generation = i + 1, .length_bytes = 4096},
                                 .key = key,
                                 .key_length = (uint16_t)length};
        SL_ASSERT(sl_index_insert(store->index, &entry, &ref, NULL) == SL_OK);
    }
}

static void store_remove(struct store *store)
{
    sl_index_view_close(&store->view);
    sl_index_close(&store->index);
    sl_arena_close(&store->arena);
    (void)sl_shm_file_remove(store->dir, "arena.0", NULL);
    (void)sl_shm_file_remove(store->dir, "index", NULL);
    (void)rmdir(store->dir);
}

int main(int argc, char **argv)
{
    uint32_t key_count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
    if (key_count == 0) {
        fprintf(stderr, "directory_bench [KEYS]\n");
        return 2;
    }
    struct store store;
    store_make(&store, key_count);
    struct sl_index_changes *changes = NULL;
    SL_ASSERT(sl_index_changes_create(store.view, store.dir, false, &changes, NULL) == SL_OK);
    uint64_t first_ns = walk_ns(changes), again_ns = walk_ns(changes);
    printf("walk over %u keys: first %.1f ms, unchanged %.2f ms (%.2f ns a key); a message of the "
           "registrar: %.0f ns a key, only to encode\n",
           key_count, (double)first_ns / 1e6, (double)again_ns / 1e6, (double)again_ns / key_count,
           message_ns(1000000));
    sl_index_changes_destroy(&changes);
    if (!sl_redis_installed()) {
        printf("skipped: redis-server is not installed (deploy/install --test)\n");
        store_remove(&store);
        return 0;
    }
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_redis_init(&redis, &tmpdir);
    sl_redis_start(&redis, NULL);
    struct sl_directory *holder = directory_make(NULL);
    while (!sl_directory_up(holder)) {
        turn(holder);
    }
    struct sl_directory_feed_options options = {.shm_dir = store.dir,
                                                .directory = holder,
                                                .self = {.name = "node-a"},
                                                .walk_ns = SL_NS_PER_MS,
                                                .key_ttl_ns = 600 * SL_NS_PER_S,
                                                .keys_per_s = 10000000};
    SL_ASSERT(sl_directory_feed_create(&options, &feed, NULL) == SL_OK);
    uint64_t began_ns = sl_clock_monotonic_ns();
    while (published(holder) < key_count) {
        turn(holder);
    }
    double rate = key_count / seconds(sl_clock_monotonic_ns() - began_ns);
    double raw = raw_publish_rate(key_count);
    printf(
        "publishing %u keys: %.0f keys/s; hiredis with the same commands and window: %.0f keys/s "
        "(ratio %.2f)\n",
        key_count, rate, raw, rate / raw);
    sl_directory_feed_destroy(&feed);
    struct sl_directory *asker = directory_make("node-b");
    const struct sl_directory_member *members;
    while (sl_directory_members(asker, &members) == 0) {
        turn(asker);
        turn(holder);
    }
    static const uint32_t batches[] = {1, 32, 1024};
    for (uint32_t i = 0; i < SL_COUNT(batches); i++) {
        lookup_bench(asker, key_count, batches[i]);
    }
    sl_directory_close(&asker);
    sl_directory_close(&holder);
    sl_redis_kill(&redis);
    sl_tmpdir_remove(&tmpdir);
    store_remove(&store);
    return 0;
}
