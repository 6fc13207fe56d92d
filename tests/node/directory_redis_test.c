/* tests/node/directory_redis_test.c - the cluster directory and its feed with a real
 * redis-server: one node finds another's keys; the server dies, is stopped, and returns. */
#include "actors/transporter/publish/feed.h"
#include "tests/support/redis_server.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#define LIMIT_NS (60 * SL_NS_PER_S) /* only ends a hang */
#define KEYS     3000u

struct node {
    struct sl_directory *directory;
    struct sl_directory_feed *feed; /* NULL: it only asks */
    struct bed bed;
    uint32_t ups, downs, found_count;
    sl_err code, why;
    uint32_t holders[SL_DIRECTORY_KEYS_MAX];
    char holder[SL_DIRECTORY_NAME_BYTES];
    char control[SL_DIRECTORY_ADDRESS_BYTES];
};

static struct sl_tmpdir tmpdir;
static struct sl_redis redis;

static void on_found(void *context, uint64_t cookie, sl_err code,
                     const struct sl_directory_found *found, uint32_t count)
{
    struct node *node = context;
    ck_assert_uint_eq(cookie, 4711);
    node->found_count++;
    node->code = code;
    for (uint32_t i = 0; i < count; i++) {
        node->holders[i] = found[i].holder_count;
        if (found[i].holder_count > 0) {
            strcpy(node->holder, found[i].holders[0]->name);
            strcpy(node->control, found[i].holders[0]->control);
        }
    }
}

static void on_link(void *context, bool up, const struct sl_error *why)
{
    struct node *node = context;
    node->ups += up;
    node->downs += !up;
    node->why = up ? SL_OK : why->code;
    if (up && node->feed != NULL) {
        sl_directory_feed_republish(node->feed);
    }
}

static void node_open(struct node *node, const char *name, const char *password,
                      uint64_t timeout_ns, bool holds)
{
    struct sl_directory_options options;
    struct sl_error why = {0};
    *node = (struct node){0};
    sl_directory_options_init(&options);
    options.kind = SL_DIRECTORY_REDIS;
    options.url = redis.url;
    options.password = password;
    options.timeout_ns = timeout_ns;
    options.node_ttl_ns = 3 * SL_NS_PER_S;
    options.backoff_max_ns = 200 * SL_NS_PER_MS;
    options.seed = 12345;
    options.events =
        (struct sl_directory_events){.context = node, .found = on_found, .link = on_link};
    ck_assert_sl_ok(sl_directory_open(&options, &node->directory, &why), why);
    if (!holds) {
        return;
    }
    node->bed = bed_make(8 * SL_MIB, 10000);
    struct sl_directory_feed_options feed = {.shm_dir = node->bed.dir,
                                             .directory = node->directory,
                                             .walk_ns = 20 * SL_NS_PER_MS,
                                             .key_ttl_ns = 600 * SL_NS_PER_S,
                                             .keys_per_s = 100000};
    strcpy(feed.self.name, name);
    strcpy(feed.self.control, "tcp://10.0.0.1:7000");
    ck_assert_sl_ok(sl_directory_feed_create(&feed, &node->feed, &why), why);
}

static void node_close(struct node *node)
{
    sl_directory_feed_destroy(&node->feed);
    sl_directory_close(&node->directory);
    if (node->bed.dir != NULL) {
        bed_remove(&node->bed);
    }
}

static void node_step(struct node *node)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (node->feed != NULL) {
        sl_directory_feed_step(node->feed, now_ns);
    }
    sl_directory_step(node->directory, now_ns);
}

/* Both nodes run while condition is false. */
#define RUN_UNTIL(condition, a, b)                                                              \
    do {                                                                                        \
        uint64_t run_until_ns = sl_clock_monotonic_ns() + LIMIT_NS;                             \
        while (!(condition)) {                                                                  \
            ck_assert_msg(sl_clock_monotonic_ns() < run_until_ns, "never: %s", #condition);     \
            struct pollfd fds[2] = {{.fd = sl_directory_fd((a)->directory), .events = POLLIN},  \
                                    {.fd = sl_directory_fd((b)->directory), .events = POLLIN}}; \
            (void)poll(fds, 2, 5);                                                              \
            node_step(a);                                                                       \
            node_step(b);                                                                       \
        }                                                                                       \
    } while (0)

static bool is_up(const struct node *node)
{
    return sl_directory_up(node->directory);
}

static uint32_t member_count(const struct node *node)
{
    const struct sl_directory_member *members;
    return sl_directory_members(node->directory, &members);
}

static sl_err ask(struct node *node, const char *const *keys, uint32_t count)
{
    uint64_t ids[8];
    uint64_t now_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = sl_key_id(keys[i], (uint32_t)strlen(keys[i]));
    }
    struct sl_directory_lookup lookup = {.ids = ids,
                                         .count = count,
                                         .now_ns = now_ns,
                                         .deadline_ns = now_ns + LIMIT_NS,
                                         .cookie = 4711};
    return sl_directory_lookup(node->directory, &lookup);
}

/* Asks until the answer is as wanted: publishing takes time. */
static void ask_until(struct node *asker, struct node *holder, const char *key, uint32_t holders)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + LIMIT_NS;
    do {
        ck_assert_msg(sl_clock_monotonic_ns() < until_ns, "'%s' never has %u holders", key,
                      holders);
        uint32_t before = asker->found_count;
        RUN_UNTIL(is_up(asker) && member_count(asker) > 0, asker, holder);
        if (ask(asker, &key, 1) == SL_OK) {
            RUN_UNTIL(asker->found_count > before, asker, holder);
        } else {
            node_step(asker);
            node_step(holder);
        }
    } while (asker->code != SL_OK || asker->holders[0] != holders);
}

static void fill(struct node *node)
{
    char key[32];
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "key-%u", i);
        bed_insert(&node->bed, key, i);
    }
}

static uint64_t published(const struct node *node)
{
    struct sl_directory_stats stats;
    sl_directory_stats(node->directory, &stats);
    return stats.published;
}

static void setup(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_redis_init(&redis, &tmpdir);
}

static void teardown(void)
{
    sl_redis_kill(&redis);
    sl_tmpdir_remove(&tmpdir);
}

START_TEST(what_a_node_holds_another_one_finds)
    {
        struct node a, b;
        sl_redis_start(&redis, "open sesame");
        node_open(&a, "node-a", "open sesame", LIMIT_NS, true);
        node_open(&b, "", "open sesame", LIMIT_NS, false);
        fill(&a);
        sl_ref ref = bed_insert(&a.bed, "short-lived", KEYS);

        ask_until(&b, &a, "key-0", 1);
        ck_assert_str_eq(b.holder, "node-a");
        ck_assert_str_eq(b.control, "tcp://10.0.0.1:7000");
        ask_until(&b, &a, "key-2999", 1);
        ask_until(&b, &a, "nowhere", 0);
        const char *const mine = "key-0";
        ck_assert_int_eq(ask(&a, &mine, 1), SL_ERR_NOT_FOUND); /* no other node */

        ask_until(&b, &a, "short-lived", 1);
        sl_index_unlink(a.bed.index, ref, SL_RECORD_FREE);
        ask_until(&b, &a, "short-lived", 0);
        ask_until(&b, &a, "key-1", 1);
        node_close(&a);
        node_close(&b);
    }
END_TEST

START_TEST(a_wrong_password_is_said)
    {
        struct node a, b;
        sl_redis_start(&redis, "open sesame");
        node_open(&a, "", "abracadabra", LIMIT_NS, false);
        node_open(&b, "", "open sesame", LIMIT_NS, false);
        RUN_UNTIL(is_up(&b) && a.why == SL_ERR_PERMISSION, &a, &b);
        ck_assert(!is_up(&a));
        node_close(&a);
        node_close(&b);
    }
END_TEST

START_TEST(a_node_without_a_sign_of_life_is_ignored)
    {
        struct node a, b;
        sl_redis_start(&redis, NULL);
        node_open(&a, "node-a", NULL, LIMIT_NS, true);
        node_open(&b, "", NULL, LIMIT_NS, false);
        fill(&a);
        ask_until(&b, &a, "key-1", 1);
        RUN_UNTIL(published(&a) >= KEYS, &a, &b);

        /* It is stopped (both sides are b): its record expires, its keys stay. */
        RUN_UNTIL(member_count(&b) == 0, &b, &b);
        const char *const key = "key-1";
        ck_assert_int_eq(ask(&b, &key, 1), SL_ERR_NOT_FOUND);

        ask_until(&b, &a, "key-1", 1); /* it continues */

        /* A new life with other contents: keys of the former one do not count. */
        bed_detach(&a.bed);
        ck_assert_int_eq(sl_shm_file_remove(a.bed.dir, "arena.0", NULL), SL_OK);
        sleep(1); /* the birth of an arena has the resolution of the wall clock's seconds */
        ck_assert(bed_attach(&a.bed));
        ck_assert_int_eq(kill(redis.pid, 0), 0);
        bed_insert(&a.bed, "fresh", 1);
        ask_until(&b, &a, "fresh", 1);
        ask_until(&b, &a, "key-1", 0);
        node_close(&a);
        node_close(&b);
    }
END_TEST

START_TEST(a_server_that_comes_back_empty_is_told_everything_again)
    {
        struct node a, b;
        const char *const key = "key-7";
        sl_redis_start(&redis, NULL);
        node_open(&a, "node-a", NULL, LIMIT_NS, true);
        node_open(&b, "", NULL, LIMIT_NS, false);
        fill(&a);
        ask_until(&b, &a, key, 1);
        RUN_UNTIL(published(&a) >= KEYS, &a, &b);

        sl_redis_kill(&redis);
        RUN_UNTIL(a.downs > 0 && b.downs > 0 && !is_up(&a) && !is_up(&b), &a, &b);
        ck_assert_int_eq(ask(&b, &key, 1), SL_ERR_UNREACHABLE); /* at once */
        bed_insert(&a.bed, "meanwhile", KEYS);

        sl_redis_start(&redis, NULL);
        ask_until(&b, &a, key, 1);
        ask_until(&b, &a, "meanwhile", 1);
        RUN_UNTIL(published(&a) >= 2 * KEYS + 1, &a, &b);
        ask_until(&b, &a, "key-2998", 1);
        node_close(&a);
        node_close(&b);
    }
END_TEST

static uint64_t published_ns(const struct node *node)
{
    struct sl_directory_feed_stats stats;
    sl_directory_feed_stats(node->feed, &stats);
    return stats.published_ns;
}

/* Without asking again: the first lookup finds every key. */
static void all_are_found(struct node *asker, struct node *holder, uint32_t count)
{
    char text[8][32];
    const char *keys[8];
    RUN_UNTIL(is_up(asker) && member_count(asker) > 0, asker, holder);
    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t before = asker->found_count;
        for (uint32_t k = 0; k < 8; k++) {
            snprintf(text[k], sizeof(text[k]), "key-%u", SL_MIN(i + k, count - 1));
            keys[k] = text[k];
        }
        ck_assert_int_eq(ask(asker, keys, 8), SL_OK);
        RUN_UNTIL(asker->found_count > before, asker, holder);
        for (uint32_t k = 0; k < 8; k++) {
            ck_assert_msg(asker->holders[k] == 1, "%s is not published", keys[k]);
        }
    }
}

START_TEST(what_is_called_published_is)
    {
        struct node a, b;
        uint32_t count = 0;
        char key[32];
        sl_redis_start(&redis, NULL);
        node_open(&a, "node-a", NULL, LIMIT_NS, true);
        node_open(&b, "", NULL, LIMIT_NS, false);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t end = count + 800; count < end; count++) {
                snprintf(key, sizeof(key), "key-%u", count);
                bed_insert(&a.bed, key, count);
            }
            uint64_t now_ns = sl_clock_monotonic_ns();
            ck_assert_uint_lt(published_ns(&a), now_ns);
            RUN_UNTIL(published_ns(&a) > now_ns, &a, &b);
            all_are_found(&b, &a, count);
            if (round == 1) { /* a server without data: the claim is withdrawn */
                sl_redis_kill(&redis);
                RUN_UNTIL(!is_up(&a) && !is_up(&b), &a, &b);
                node_step(&a);
                ck_assert_uint_eq(published_ns(&a), 0);
                sl_redis_start(&redis, NULL);
            }
        }
        node_close(&a);
        node_close(&b);
    }
END_TEST

START_TEST(a_server_that_stands_still_costs_misses)
    {
        struct node a, b;
        const char *const key = "key-7";
        sl_redis_start(&redis, NULL);
        node_open(&a, "node-a", NULL, SL_NS_PER_S, true);
        node_open(&b, "", NULL, SL_NS_PER_S, false);
        fill(&a);
        ask_until(&b, &a, key, 1);

        uint32_t downs = b.downs, before = b.found_count;
        ck_assert_int_eq(kill(redis.pid, SIGSTOP), 0);
        if (ask(&b, &key, 1) == SL_OK) { /* ends at the server's time limit, not at its own */
            RUN_UNTIL(b.found_count > before, &a, &b);
            ck_assert_int_eq(b.code, SL_ERR_UNREACHABLE);
        }
        RUN_UNTIL(b.downs > downs, &a, &b);
        for (uint32_t i = 0; i < 100; i++) { /* connections are accepted, commands are not
                                              * answered */
            node_step(&b);
            ck_assert_int_eq(ask(&b, &key, 1), SL_ERR_UNREACHABLE);
            usleep(1000);
        }
        ck_assert_int_eq(kill(redis.pid, SIGCONT), 0);
        ask_until(&b, &a, key, 1);
        node_close(&a);
        node_close(&b);
    }
END_TEST

int main(void)
{
    if (!sl_redis_installed()) {
        printf("skipped: redis-server is not installed (deploy/install --test)\n");
        return 77;
    }
    TCase *tcase = tcase_create("directory_redis");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_a_node_holds_another_one_finds);
    tcase_add_test(tcase, a_wrong_password_is_said);
    tcase_add_test(tcase, a_node_without_a_sign_of_life_is_ignored);
    tcase_add_test(tcase, a_server_that_comes_back_empty_is_told_everything_again);
    tcase_add_test(tcase, what_is_called_published_is);
    tcase_add_test(tcase, a_server_that_stands_still_costs_misses);
    return suite_run(tcase, "directory_redis");
}
