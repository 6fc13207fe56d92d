/* tests/node/terms_probe.c - leases, pins and bundles on a running node; terms_test.py starts
 * both.
 *
 *   terms_probe INSTANCE RUNTIME_DIR SHM_DIR WHAT
 *
 * WHAT is one of the names at the end of this file. Exit code 0: all checks passed. */
#include "client/include/sluice.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define BIG  (8u << 20) /* the node has 64 MiB */
#define FULL 8u         /* number of BIG values that fill it */
#define MANY 20000u

static struct sl_error why;
static const char *settings[4];
static unsigned char bytes[BIG], back[BIG];

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static struct sl_client *client_of(bool leases)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings,
                                              .leases = leases};
    struct sl_client *client = NULL;
    CHECK(sl_client_open(&options, &client, &why) == SL_OK);
    return client;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static sl_err put_within(struct sl_client *client, const char *key, uint64_t length,
                         const char *bundle, const struct sl_put_options *terms,
                         uint64_t timeout_ns)
{
    const struct sl_iov piece = {.at = bytes, .length_bytes = length};
    const struct sl_iov_list item = {.key = key_of(key),
                                     .bundle = key_of(bundle == NULL ? "" : bundle),
                                     .at = &piece,
                                     .count = 1};
    sl_err code = SL_ERR_INTERNAL;
    sl_err err = sl_putv(client, &item, 1, terms, &code, timeout_ns, &why);
    return err != SL_OK ? err : code;
}

static sl_err put(struct sl_client *client, const char *key, uint64_t length, const char *bundle,
                  const struct sl_put_options *terms)
{
    return put_within(client, key, length, bundle, terms, 60000000000u);
}

/* A put waits for space as long as it may: the node stays full here. */
static sl_err put_full(struct sl_client *client, const char *key)
{
    return put_within(client, key, BIG, NULL, NULL, 300000000);
}

static sl_err take(struct sl_client *client, const char *key, bool respect)
{
    const struct sl_object_key gone = key_of(key);
    sl_err code = SL_ERR_INTERNAL;
    const struct sl_remove_options options = {.respect_leases = respect, .report_busy = true};
    CHECK(sl_remove_batch(client, &gone, 1, &options, &code, 0, &why) == SL_OK);
    return code;
}

static struct sl_stat stat_of(struct sl_client *client, const char *key)
{
    const struct sl_object_key asked = key_of(key);
    struct sl_stat stat;
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_stat_batch(client, &asked, 1, &stat, &code) == SL_OK);
    CHECK(code == SL_OK);
    return stat;
}

static bool there(struct sl_client *plain, const char *key)
{
    return sl_exists(plain, key_of(key)) == SL_OK;
}

static bool no_room(sl_err code)
{
    return code == SL_ERR_NO_SPACE || code == SL_ERR_TIMEOUT;
}

/* ---- calls that lease ---- */

static sl_err look_exists(struct sl_client *client, struct sl_object_key key)
{
    return sl_exists(client, key);
}

static sl_err look_exists_batch(struct sl_client *client, struct sl_object_key key)
{
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_exists_batch(client, &key, 1, &code) == SL_OK);
    return code;
}

static sl_err look_size(struct sl_client *client, struct sl_object_key key)
{
    uint64_t length = 0;
    return sl_size(client, key, &length);
}

static sl_err look_stat(struct sl_client *client, struct sl_object_key key)
{
    struct sl_stat stat;
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_stat_batch(client, &key, 1, &stat, &code) == SL_OK);
    return code;
}

static sl_err look_get(struct sl_client *client, struct sl_object_key key)
{
    const struct sl_buffer buffer = {.at = back, .length_bytes = sizeof back};
    uint64_t length = 0;
    return sl_get(client, key, buffer, &length, 0, &why);
}

static sl_err look_get_batch(struct sl_client *client, struct sl_object_key key)
{
    const struct sl_buffer buffers[] = {{.at = back, .length_bytes = 4096},
                                        {.at = back + 4096, .length_bytes = 4096}};
    const struct sl_object_key keys[] = {key, key_of("nothing")};
    uint64_t lengths[2];
    sl_err codes[2];
    CHECK(sl_get_batch(client, keys, buffers, 2, lengths, codes, 0, &why) == SL_OK);
    CHECK(codes[1] == SL_ERR_NOT_FOUND);
    return codes[0];
}

static sl_err look_pinned(struct sl_client *client, struct sl_object_key key)
{
    struct sl_view view;
    sl_err err = sl_get_pinned(client, key, &view, 0, &why);
    sl_view_release(client, &view);
    return err;
}

static void leasing(struct sl_client *client)
{
    static sl_err (*const looks[])(struct sl_client *, struct sl_object_key) = {
        look_exists, look_exists_batch, look_size, look_stat, look_get, look_get_batch, look_pinned,
    };
    struct sl_client *plain = client_of(false);
    for (uint32_t i = 0; i < COUNT(looks); i++) {
        CHECK(put(client, "key", 100, NULL, NULL) == SL_OK);
        CHECK(take(client, "key", true) == SL_OK); /* a put leases nothing */
        CHECK(put(client, "key", 100, NULL, NULL) == SL_OK);
        CHECK(looks[i](plain, key_of("key")) == SL_OK); /* nor does a client without leases */
        CHECK(take(client, "key", true) == SL_OK);
        CHECK(put(client, "key", 100, NULL, NULL) == SL_OK);
        CHECK(looks[i](client, key_of("key")) == SL_OK);
        CHECK(take(plain, "key", true) == SL_ERR_LEASED);
        CHECK(there(plain, "key"));
        CHECK(take(plain, "key", false) == SL_OK);
        CHECK(looks[i](client, key_of("key")) == SL_ERR_NOT_FOUND);
    }
    CHECK(take(client, "key", true) == SL_ERR_NOT_FOUND);
    sl_client_close(&plain);
}

static void telling(struct sl_client *client)
{
    static struct sl_object_key keys[3];
    static struct sl_stat stats[3];
    struct sl_client *plain = client_of(false);
    struct sl_put_options terms = {.hard_pin = true, .soft_pin_ns = 60000000000u};
    sl_err codes[3];
    CHECK(put(client, "plain", 100, NULL, NULL) == SL_OK);
    uint64_t before_ns = now_ns();
    CHECK(put(client, "terms", 200, "bundle", &terms) == SL_OK);
    keys[0] = key_of("plain");
    keys[1] = key_of("nothing");
    keys[2] = key_of("terms");
    CHECK(sl_stat_batch(client, keys, 3, stats, codes) == SL_OK);
    CHECK(codes[0] == SL_OK && codes[1] == SL_ERR_NOT_FOUND && codes[2] == SL_OK);
    CHECK(stats[0].length_bytes == 100 && stats[2].length_bytes == 200);
    CHECK(stats[0].in_memory && !stats[0].on_disk && !stats[0].hard_pin);
    CHECK(stats[0].soft_pin_end_ns == 0 && stats[0].contributions == 0);
    CHECK(stats[2].hard_pin && stats[2].soft_pin_end_ns >= before_ns + terms.soft_pin_ns);
    CHECK(stats[0].writer_pid == (uint32_t)getpid() && stats[2].writer_pid == (uint32_t)getpid());
    CHECK(stats[0].ours && stats[2].ours && !stats[1].ours);
    CHECK(stats[0].lease_end_ns > now_ns() && stats[2].lease_end_ns > now_ns());
    CHECK(stats[1].length_bytes == 0 && stats[1].lease_end_ns == 0);
    CHECK(stat_of(plain, "plain").lease_end_ns == 0);
    CHECK(sl_stat_batch(client, keys, 65537, stats, codes) == SL_ERR_INVALID);
    sl_client_close(&plain);
}

/* More keys than one step of a batch, some of them wrong. */
static void many(struct sl_client *client)
{
    static char names[MANY][16];
    static struct sl_object_key keys[MANY];
    static struct sl_stat stats[MANY];
    static sl_err codes[MANY];
    struct sl_iov piece = {.at = bytes, .length_bytes = 8};
    struct sl_iov_list *items = calloc(MANY, sizeof *items);
    CHECK(items != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "m%u", i);
        keys[i] = key_of(names[i]);
        items[i] = (struct sl_iov_list){.key = keys[i], .at = &piece, .count = 1};
    }
    CHECK(sl_putv(client, items, MANY / 2, NULL, codes, 0, &why) == SL_OK);
    keys[MANY - 1].at = NULL;
    keys[MANY - 2].length = 0;
    keys[MANY - 3].length = 100000;
    CHECK(sl_exists_batch(client, keys, MANY, codes) == SL_OK);
    CHECK(sl_stat_batch(client, keys, MANY, stats, codes) == SL_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK((codes[i] == SL_OK) == (i < MANY / 2));
        CHECK((stats[i].lease_end_ns != 0) == (i < MANY / 2));
    }
    const struct sl_remove_options options = {.respect_leases = true};
    CHECK(sl_remove_batch(client, keys, MANY / 2, &options, codes, 0, &why) == SL_OK);
    for (uint32_t i = 0; i < MANY / 2; i++) {
        CHECK(codes[i] == SL_ERR_LEASED);
    }
    free(items);
}

/* ---- on a node whose leases are shorter than a copy ---- */

static void lease_over(struct sl_client *client)
{
    const struct sl_buffer buffers[] = {{.at = back, .length_bytes = sizeof back},
                                        {.at = back, .length_bytes = sizeof back}};
    const struct sl_object_key keys[] = {key_of("big"), key_of("big")};
    struct sl_client *plain = client_of(false);
    uint64_t lengths[2];
    sl_err codes[2];
    CHECK(put(client, "big", BIG, NULL, NULL) == SL_OK);
    CHECK(sl_exists(client, key_of("big")) == SL_OK);
    CHECK(look_get(client, key_of("big")) == SL_ERR_LEASE_OVER);
    CHECK(sl_get_batch(client, keys, buffers, 2, lengths, codes, 0, &why) == SL_OK);
    CHECK(codes[0] == SL_ERR_LEASE_OVER && codes[1] == SL_ERR_LEASE_OVER);
    CHECK(look_get(plain, key_of("big")) == SL_OK);
    CHECK(look_pinned(client, key_of("big")) == SL_OK); /* a pin needs no lease */
    sl_client_close(&plain);
}

/* ---- what stays ---- */

static void fill(struct sl_client *client, const char *prefix, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s%u", prefix, i);
        CHECK(put(client, key, BIG, NULL, NULL) == SL_OK);
    }
}

static void full(struct sl_client *client)
{
    struct sl_client *plain = client_of(false);
    uint64_t until_ns = now_ns() + 60000000000u;
    sl_err code = SL_ERR_INTERNAL;
    char key[32];
    fill(plain, "k", FULL);
    for (uint32_t i = 0; i < FULL; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        CHECK(sl_exists(client, key_of(key)) == SL_OK);
    }
    code = put_full(plain, "more");
    CHECK(no_room(code));
    for (uint32_t i = 0; i < FULL; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        CHECK(there(plain, key));
    }
    while (no_room(code = put_full(plain, "more")) && now_ns() < until_ns) {
        sleep_ms(50);
    }
    CHECK(code == SL_OK);
    CHECK(!there(plain, "k0"));
    sl_client_close(&plain);
}

static void pins(struct sl_client *client)
{
    const struct sl_put_options hard = {.hard_pin = true}, soft = {.soft_pin_ns = 600000000000u};
    const struct sl_put_options too_long = {.soft_pin_ns = UINT64_MAX};
    CHECK(put(client, "hard", BIG, NULL, &hard) == SL_OK);
    CHECK(put(client, "soft", BIG, NULL, &soft) == SL_OK);
    CHECK(put(client, "none", 100, NULL, &too_long) == SL_ERR_INVALID);
    fill(client, "a", 3 * FULL);
    CHECK(there(client, "hard") && there(client, "soft") && !there(client, "a0"));
    for (uint32_t i = 0; i < FULL - 2; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "hard%u", i);
        CHECK(put(client, key, BIG, NULL, &hard) == SL_OK);
    }
    CHECK(there(client, "soft"));
    CHECK(put(client, "last", BIG, NULL, &hard) == SL_OK); /* replaces it */
    CHECK(!there(client, "soft") && there(client, "hard"));
    CHECK(no_room(put_full(client, "more")));
    CHECK(take(client, "hard", true) == SL_OK);
    CHECK(put(client, "more", BIG, NULL, NULL) == SL_OK);
}

static void bundles(struct sl_client *client)
{
    struct sl_client *leasing_client = client_of(true);
    CHECK(put(client, "m0", 4096, "b", NULL) == SL_OK);
    CHECK(put(client, "n0", 4096, "c", NULL) == SL_OK);
    fill(client, "a", FULL - 1);
    CHECK(put(client, "m1", 4096, "b", NULL) == SL_OK);
    CHECK(put(client, "n1", 4096, "c", NULL) == SL_OK);
    CHECK(sl_exists(leasing_client, key_of("m1")) == SL_OK);
    CHECK(take(client, "m0", true) == SL_ERR_LEASED);
    fill(client, "z", FULL - 1); /* all older values are evicted, so both old members */
    CHECK(there(client, "m0") && there(client, "m1"));
    CHECK(!there(client, "n0") && !there(client, "n1"));
    CHECK(take(client, "m0", false) == SL_OK && there(client, "m1"));
    sl_client_close(&leasing_client);
}

static void writing(struct sl_client *client)
{
    const struct sl_object_key key = key_of("draft");
    const uint64_t length = 4096;
    struct sl_put_session *draft = NULL;
    sl_err code = SL_ERR_INTERNAL;
    CHECK(sl_put_start(client, &key, NULL, &length, 1, NULL, 0, &draft, &code, 0, &why) == SL_OK);
    CHECK(code == SL_OK);
    CHECK(take(client, "draft", false) == SL_ERR_BUSY);
    CHECK(sl_remove_batch(client, &key, 1, NULL, &code, 0, &why) == SL_OK &&
          code == SL_ERR_NOT_FOUND);
    CHECK(sl_put_end(client, &draft, 1, &code, 0, &why) == SL_OK && code == SL_OK);
    CHECK(take(client, "draft", true) == SL_OK);
}

/* ---- a registrar that is killed while this waits ---- */

static void restart(struct sl_client *client)
{
    const struct sl_put_options hard = {.hard_pin = true};
    struct sl_client *plain = client_of(false);
    char line[8];
    CHECK(put(plain, "hard", BIG, NULL, &hard) == SL_OK);
    CHECK(put(plain, "m0", 4096, "b", NULL) == SL_OK);
    CHECK(put(plain, "m1", 4096, "b", NULL) == SL_OK);
    CHECK(put(plain, "leased", 4096, NULL, NULL) == SL_OK);
    CHECK(sl_exists(client, key_of("leased")) == SL_OK);
    CHECK(sl_exists(client, key_of("m0")) == SL_OK);
    (void)puts("ready");
    (void)fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    CHECK(take(plain, "leased", true) == SL_ERR_LEASED);
    CHECK(take(plain, "m1", true) == SL_ERR_LEASED);
    fill(plain, "a", 2 * FULL);
    CHECK(there(plain, "hard") && there(plain, "leased") && there(plain, "m0"));
    CHECK(stat_of(plain, "hard").hard_pin);
    CHECK(sl_exists(client, key_of("a15")) == SL_OK);
    CHECK(take(plain, "a15", true) == SL_ERR_LEASED); /* the mapping still counts */
    sl_client_close(&plain);
}

/* The next registrar has leases, the one before had none. */
static void late(struct sl_client *client)
{
    uint64_t until_ns = now_ns() + 60000000000u;
    char line[8];
    CHECK(put(client, "key", 4096, NULL, NULL) == SL_OK);
    CHECK(sl_exists(client, key_of("key")) == SL_OK);
    CHECK(stat_of(client, "key").lease_end_ns == 0);
    CHECK(take(client, "key", true) == SL_OK);
    CHECK(put(client, "key", 4096, NULL, NULL) == SL_OK);
    (void)puts("ready");
    (void)fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    while (stat_of(client, "key").lease_end_ns == 0 && now_ns() < until_ns) {
        sleep_ms(10); /* seen within a moment */
    }
    CHECK(take(client, "key", true) == SL_ERR_LEASED);
}

static const struct {
    const char *name;
    void (*run)(struct sl_client *client);
    bool leases;
} whats[] = {
    {"leasing", leasing, true},  {"telling", telling, true},       {"many", many, true},
    {"full", full, true},        {"lease_over", lease_over, true}, {"pins", pins, false},
    {"bundles", bundles, false}, {"writing", writing, true},       {"restart", restart, true},
    {"late", late, true},
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
    for (uint32_t i = 0; i < COUNT(whats); i++) {
        if (strcmp(whats[i].name, argv[4]) == 0) {
            struct sl_client *client = client_of(whats[i].leases);
            whats[i].run(client);
            sl_client_close(&client);
            return 0;
        }
    }
    return 2;
}
