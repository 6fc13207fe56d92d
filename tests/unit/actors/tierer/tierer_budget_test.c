/* tests/unit/actors/tierer/tierer_budget_test.c - how much may be written to a disk, over restarts,
 * kills, power cuts and clocks that jump (disk_write_budget). */
#include "actors/tierer/internal.h"
#include "actors/tierer/tierer.h"
#include "ipc/shm/sl_index.h"
#include "tests/support/fake_env.h"
#include "tests/support/mem_disk.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_BYTES (UINT64_C(64) << 20)
#define DAY_NS    (86400 * SL_NS_PER_S)
/* The amount that a page reserves in advance: the smallest. */
#define AHEAD  (UINT64_C(256) << 10)
#define LENGTH (UINT64_C(64) << 10)

static struct fake_env fake;
static struct mem_disk disk;
static struct sl_env_ops ops;
static struct sl_arena *arena;
static struct sl_index *node_index;
static uint64_t boot_generation;
static uint32_t written; /* values so far: none has the key of another */

static sl_err disk_open(struct sl_env *env, const char *directory, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory, (void)depth, (void)direct, (void)why;
    *out = &disk.base;
    return SL_OK;
}

static sl_err try_start(struct sl_error *why)
{
    ops = *fake.env.ops;
    ops.disk_open = disk_open;
    fake.env.ops = &ops;
    return fake_start(&fake, why);
}

static void pump(void)
{
    struct mem_done done;
    while (mem_disk_take_done(&disk, &done)) {
        struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
        msg.body.local_io.cookie = done.cookie;
        msg.body.local_io.bytes = done.bytes;
        msg.body.local_io.os_code = (uint64_t)done.os_code;
        ck_assert_int_eq(fake.actor->handle(fake.state, &msg), SL_OK);
    }
}

/* The bytes that may still be written, as the scan reports them to the registrar; negative: a
 * debt. */
static int64_t scan(void)
{
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
    int64_t left = 0;
    hello.body.hello_reply.boot_generation = ++boot_generation;
    fake_give(&fake, "registrar", &hello);
    pump();
    for (bool last = false; !last;) {
        struct sl_msg found;
        uint64_t codes[4096] = {0};
        while (!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found)) {
            fake_jobs_report(&fake); /* segments are read */
            fake_advance(&fake, SL_NS_PER_US);
        }
        last = found.body.disk_found.last;
        left = found.body.disk_found.first ? (int64_t)found.body.disk_found.budget_left -
                                                 (int64_t)found.body.disk_found.budget_debt
                                           : left;
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_found_reply.codes =
            (struct sl_u64s){codes, found.body.disk_found.items.count};
        fake_answer(&fake, "registrar", &found, &reply);
    }
    pump();
    struct sl_msg members = {.type = SL_MSG_DISK_MEMBERS}; /* the account is next to the list */
    members.body.disk_members.epoch = 1;
    fake_give(&fake, "registrar", &members);
    pump();
    return left;
}

static int64_t start(void)
{
    struct sl_error why = {0};
    ck_assert_msg(try_start(&why) == SL_OK, "%s", why.text);
    return scan();
}

static void open_node(void)
{
    static const char *const settings[] = {"disk",   "8MiB",  "disk_segment",      "1MiB",
                                           "memory", "16MiB", "disk_write_budget", "64MiB",
                                           NULL};
    bool created = false;
    mem_disk_init(&disk);
    fake_open(&fake, &sl_tierer_actor, settings);
    fake.wall_ahead_ns = 20000 * DAY_NS; /* a midnight */
    struct sl_arena_options arena_options = {
        .directory = fake.paths.shm_dir, .data_bytes = 16 << 20, .chunk_bytes = 16 << 20};
    ck_assert_int_eq(sl_arena_open_owner(&arena_options, &created, &arena, NULL), SL_OK);
    while (sl_arena_populate_below(arena, UINT64_MAX, NULL) == SL_OK) {
    }
    struct sl_index_options index_options = {
        .shm_dir = fake.paths.shm_dir, .index_bytes_max = 8 << 20, .arena = arena};
    ck_assert_int_eq(sl_index_open(&index_options, &created, &node_index, NULL), SL_OK);
}

static void close_node(void)
{
    fake_close(&fake);
    sl_index_close(&node_index);
    sl_arena_close(&arena);
    mem_disk_fini(&disk);
}

static void answer_reclaims(void)
{
    struct sl_msg reclaim;
    struct sl_msg reply = {.code = SL_OK};
    while (fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM, &reclaim) ||
           fake_take(&fake, "registrar", SL_MSG_DISK_RECLAIM | FAKE_GONE, &reclaim)) {
        fake_answer(&fake, "registrar", &reclaim, &reply);
        pump();
    }
}

/* Writes a value; returns the rest that its answer reports. */
static int64_t write_value(void)
{
    char key[32];
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE}, reply;
    unsigned char *at = sl_arena_at(arena, 0, LENGTH);
    memset(at, (int)(++written % 251), LENGTH);
    struct sl_digest digest = sl_digest_of(at, LENGTH);
    (void)snprintf(key, sizeof(key), "value%u", written);
    struct sl_item_spill item = {.key = sl_text_of(key),
                                 .length_bytes = LENGTH,
                                 .generation = written,
                                 .digest_low = digest.low,
                                 .digest_high = digest.high};
    msg.body.disk_write.items.at = &item;
    msg.body.disk_write.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    for (uint32_t tries = 0; tries < 100; tries++) {
        pump();
        answer_reclaims();
        if (fake_take_reply(&fake, "registrar", msg.seq, &reply)) {
            ck_assert_int_eq(reply.code, SL_OK);
            return (int64_t)reply.body.disk_write_reply.budget_left -
                   (int64_t)reply.body.disk_write_reply.budget_debt;
        }
        fake_advance(&fake, SL_NS_PER_MS);
    }
    ck_abort_msg("no answer to a write");
    return 0;
}

static void write_values(uint32_t count)
{
    while (count-- > 0) {
        (void)write_value();
    }
}

static uint64_t metric(const char *name)
{
    return sl_metric_get(fake.env.metrics, sl_metric_define(fake.env.metrics, name));
}

static void stop_cleanly(void)
{
    fake.actor->drain(fake.state);
    for (uint32_t i = 0; i < 100 && !fake.finished; i++) {
        pump();
        fake_advance(&fake, SL_NS_PER_MS);
    }
    ck_assert(fake.finished);
    fake_stop(&fake);
    fake.finished = false;
}

START_TEST(everything_that_goes_to_the_disk_is_charged)
    {
        ck_assert_int_eq(start(), DAY_BYTES);
        write_values(31);

        int64_t left = write_value();

        int64_t spent = (int64_t)DAY_BYTES - left;
        ck_assert_int_ge(spent, 32 * LENGTH);
        ck_assert_int_lt(spent, 2 * 32 * LENGTH);
        ck_assert_uint_eq(metric("write_budget_bytes"), DAY_BYTES);
        ck_assert_uint_eq(metric("written_today_bytes"), metric("written_all_bytes"));
        ck_assert_uint_ge(metric("written_all_bytes"), (uint64_t)spent);
    }
END_TEST

START_TEST(a_clean_stop_keeps_the_account_exactly)
    {
        (void)start();
        write_values(40);
        stop_cleanly();
        uint64_t all = metric("written_all_bytes");

        int64_t left = start();

        ck_assert_int_le(left, (int64_t)DAY_BYTES - 40 * (int64_t)LENGTH);
        ck_assert_uint_ge(metric("written_all_bytes"), all);
        ck_assert_uint_le(metric("written_all_bytes"), all + 8 * SL_PAGE_BYTES);
    }
END_TEST

/* how: 0 a kill, else a power cut with this seed. Too strict by at most a page's advance, too
 * lenient by at most the bytes written while a page was being written. */
START_TEST(a_kill_at_any_moment_gives_nothing_back)
    {
        int64_t lowest = INT64_MAX;
        (void)start();
        for (uint32_t life = 0; life < 8; life++) {
            for (uint32_t i = 0; i < 1 + life * 3; i++) {
                lowest = SL_MIN(lowest, write_value());
            }
            fake_stop(&fake);
            if (_i > 0) {
                mem_disk_crash(&disk, (uint64_t)_i * 100 + life);
            }
            int64_t left = start();
            ck_assert_msg(left <= lowest + (int64_t)(2 * LENGTH), "%" PRId64 " after %" PRId64,
                          left, lowest);
            ck_assert_int_ge(left, lowest - (int64_t)(2 * AHEAD));
            lowest = left;
        }
    }
END_TEST

START_TEST(it_fills_evenly_also_while_nobody_is_there)
    {
        (void)start();
        write_values(200); /* 12.5 MiB and more */
        stop_cleanly();
        int64_t spent = (int64_t)metric("written_all_bytes");

        fake.wall_ahead_ns += DAY_NS / 8; /* 8 MiB */
        int64_t left = start();

        int64_t want = (int64_t)DAY_BYTES - spent + (int64_t)DAY_BYTES / 8;
        ck_assert_int_ge(left, want - (int64_t)AHEAD);
        ck_assert_int_le(left, want + (int64_t)LENGTH);
        fake.wall_ahead_ns += 10 * DAY_NS; /* a day's worth is saved up, no more */
        fake_stop(&fake);
        /* Except for its own page, which is written twice while the log files are synced, before
         * the report. */
        ck_assert_int_eq(start(), DAY_BYTES - 2 * SL_PAGE_BYTES);
        ck_assert_uint_lt(metric("written_today_bytes"), AHEAD);
        ck_assert_uint_ge(metric("written_all_bytes"), (uint64_t)spent);
    }
END_TEST

START_TEST(a_clock_that_is_set_back_gives_nothing)
    {
        (void)start();
        write_values(100);
        int64_t before = write_value();

        fake.wall_ahead_ns -= 3 * DAY_NS;

        ck_assert_int_lt(write_value(), before);
        fake.wall_ahead_ns += DAY_NS / 64; /* it continues from there: 1 MiB */
        ck_assert_int_gt(write_value(), before);
    }
END_TEST

START_TEST(promises_go_into_debt_that_is_made_up_for)
    {
        (void)start();
        while (write_value() > -(int64_t)(2 * SL_MIB)) {
        }
        ck_assert_uint_eq(metric("write_budget_left_bytes"), 0);
        fake_stop(&fake);

        ck_assert_int_lt(start(), -(int64_t)SL_MIB);

        fake.wall_ahead_ns += DAY_NS / 2;
        int64_t left = write_value();
        ck_assert_int_gt(left, (int64_t)DAY_BYTES / 2 - (int64_t)(4 * SL_MIB));
        ck_assert_int_lt(left, (int64_t)DAY_BYTES / 2 - (int64_t)SL_MIB);
    }
END_TEST

static struct mem_file *account_file(void)
{
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (strcmp(disk.files[i].name, TI_MEMBERS_NAME) == 0) {
            return &disk.files[i];
        }
    }
    ck_abort_msg("no file '%s'", TI_MEMBERS_NAME);
    return NULL;
}

START_TEST(a_file_that_is_damaged_counts_as_all_spent_and_one_page_of_it_as_nothing)
    {
        (void)start();
        write_values(30);
        stop_cleanly();
        uint64_t all = metric("written_all_bytes");
        struct mem_file *file = account_file();
        file->now[100] ^= 1;
        ck_assert_int_gt(start(), 0); /* the other page is right, and at most a while older */
        ck_assert_uint_ge(metric("written_all_bytes") + 2 * AHEAD, all);
        fake_stop(&fake);

        file = account_file();
        memset(file->now, 0x5a, TI_MEMBERS_BYTES);

        ck_assert_int_eq(start(), 0);
    }
END_TEST

/* ---- what another release has written ---- */

/* Writes another version into every page of files of that name that begins with the magic. Each
 * page stores its version and digest at different offsets. */
static uint32_t versions_change(const char *name, uint64_t magic, uint32_t version)
{
    uint32_t changed = 0;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *file = &disk.files[i];
        bool wanted = file->now != NULL && strncmp(file->name, name, strlen(name)) == 0;
        for (uint64_t at = 0; wanted && at + SL_PAGE_BYTES <= file->bytes; at += SL_PAGE_BYTES) {
            union {
                uint64_t magic;
                struct ti_header header;
                struct ti_trailer trailer;
                struct ti_members members;
            } *page = (void *)(file->now + at);
            struct sl_digest *digest = magic == TI_TRAILER_MAGIC   ? &page->trailer.digest
                                       : magic == TI_MEMBERS_MAGIC ? &page->members.digest
                                                                   : &page->header.digest;
            if (page->magic == magic) {
                *(magic == TI_TRAILER_MAGIC ? &page->trailer.version : &page->header.version) =
                    version;
                *digest = (struct sl_digest){0};
                *digest = ti_page_digest(page, SL_PAGE_BYTES);
                changed++;
            }
        }
    }
    return changed;
}

/* The digest of all bytes of all files. */
static struct sl_digest disk_digest(void)
{
    struct sl_digest all[MEM_DISK_FILES_MAX] = {{0}};
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        const struct mem_file *file = &disk.files[i];
        all[i] = file->now != NULL ? sl_digest_of(file->now, file->bytes) : all[i];
    }
    return sl_digest_of(all, sizeof(all));
}

static const struct {
    const char *name;
    uint64_t magic;
    uint32_t version;
} foreign[] = {{TI_MEMBERS_NAME, TI_MEMBERS_MAGIC, TI_FORMAT + 1},
               {TI_MEMBERS_NAME, TI_MEMBERS_MAGIC, TI_FORMAT - 1},
               {"seg", TI_HEADER_MAGIC, TI_FORMAT + 1},
               {"seg", TI_HEADER_MAGIC, TI_FORMAT - 1}};

START_TEST(what_another_release_has_written_stops_the_start_and_stays)
    {
        struct sl_error why = {0};
        char said[100];
        (void)start();
        write_values(3);
        fake_stop(&fake); /* killed: the segment is open */
        ck_assert_uint_gt(versions_change(foreign[_i].name, foreign[_i].magic, foreign[_i].version),
                          0);
        struct sl_digest before = disk_digest();

        ck_assert_int_eq(try_start(&why), SL_ERR_VERSION);

        (void)snprintf(said, sizeof(said),
                       "has format %u, this program (sluice " SL_VERSION
                       ") knows %u: stop the node",
                       foreign[_i].version, TI_FORMAT);
        ck_assert_msg(strstr(why.text, foreign[_i].name) != NULL && strstr(why.text, said) != NULL,
                      "%s", why.text);
        ck_assert(sl_digest_equal(disk_digest(), before));
    }
END_TEST

START_TEST(a_disk_that_fails_the_page_heals)
    {
        (void)start();
        write_values(2);
        for (uint64_t n = 1; n <= 12; n++) {
            disk.fail_request = disk.requests + n;
            disk.fail_os_code = 5;             /* EIO */
            for (uint32_t i = 0; i < 8; i++) { /* pages come by */
                fake_advance(&fake, 3 * SL_NS_PER_S);
                pump();
            }
            disk.fail_request = 0;
            fake_advance(&fake, 3 * SL_NS_PER_S);
            pump();
            (void)write_value();
        }
        int64_t left = write_value();
        fake_stop(&fake);
        ck_assert_int_le(start(), left + (int64_t)LENGTH);
    }
END_TEST

START_TEST(the_ceiling_holds_with_the_file)
    {
        (void)start();
        write_values(400);
        ck_assert_uint_le(disk.bytes_peak, UINT64_C(8) << 20);
        ck_assert_uint_eq(account_file()->bytes, TI_MEMBERS_BYTES);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("tierer_budget");
    TCase *tcase = tcase_create("budget");
    tcase_add_checked_fixture(tcase, open_node, close_node);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, everything_that_goes_to_the_disk_is_charged);
    tcase_add_test(tcase, a_clean_stop_keeps_the_account_exactly);
    tcase_add_loop_test(tcase, a_kill_at_any_moment_gives_nothing_back, 0, 4);
    tcase_add_test(tcase, it_fills_evenly_also_while_nobody_is_there);
    tcase_add_test(tcase, a_clock_that_is_set_back_gives_nothing);
    tcase_add_test(tcase, promises_go_into_debt_that_is_made_up_for);
    tcase_add_test(tcase, a_file_that_is_damaged_counts_as_all_spent_and_one_page_of_it_as_nothing);
    tcase_add_loop_test(tcase, what_another_release_has_written_stops_the_start_and_stays, 0,
                        SL_COUNT(foreign));
    tcase_add_test(tcase, a_disk_that_fails_the_page_heals);
    tcase_add_test(tcase, the_ceiling_holds_with_the_file);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
