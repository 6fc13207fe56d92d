/* tests/unit/actors/registrar/registrar_admission_test.c - which values are admitted to disk, which
 * are not, and which always are. The test plays the tierer. */
#include "ipc/shm/sl_leases.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#define LENGTH (UINT64_C(64) * SL_KIB)
#define DAY_NS (86400 * SL_NS_PER_S)
#define BUDGET (UINT64_C(64) * SL_MIB)

static struct node *node_with(const char *const *settings)
{
    static const char *all[32] = {"disk", "64MiB", "disk_segment", "1MiB"};
    uint32_t count = 4;
    for (uint32_t i = 0; settings[i] != NULL; i++) {
        all[count++] = settings[i];
    }
    all[count] = NULL;
    struct node *node = node_start(all);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    return node;
}

static const char *const second[] = {"disk_admission", "second", NULL};
static const char *const second_lru[] = {"disk_admission", "second", "evict_policy", "lru", NULL};
static const char *const reuse[] = {"disk_admission", "reuse", "disk_admission_min", "0.5", NULL};
static const char *const budget[] = {"disk_write_budget", "64MiB", NULL};
static const char *const leases[] = {"disk_admission", "second", "lease_ttl", "60s", NULL};

static bool on_disk(struct node *node, const char *key)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry) && entry.disk.valid != 0;
}

/* Uses the value, which is in memory. */
static void want(struct node *node, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_BRING}, reply;
    msg.body.bring.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_EXISTS);
}

static sl_err flush(struct node *node)
{
    struct sl_msg msg = {.type = SL_MSG_FLUSH}, reply;
    fake_give(&node->fake, "client.1", &msg);
    (void)tierer_write(node, 1, SL_OK);
    return fake_take_reply(&node->fake, "client.1", msg.seq, &reply) ? reply.code : SL_ERR_TIMEOUT;
}

/* Puts with options, which must be granted. */
static void put_as(struct node *node, const char *key, struct reserve_ask ask, const char *bundle)
{
    static struct grants grants;
    struct want item = {.key = key, .length = LENGTH, .bundle = bundle};
    ask.sender = "client.1";
    ask.wants = &item;
    ask.count = 1;
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_OK);
    ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
}

/* Ends a scan of a tierer that reports how much the disk may be written. */
static void told(struct node *node, uint64_t left, uint64_t debt)
{
    struct sl_msg found = {.type = SL_MSG_DISK_FOUND}, reply;
    found.body.disk_found.first = true;
    found.body.disk_found.last = true;
    found.body.disk_found.budget_left = left;
    found.body.disk_found.budget_debt = debt;
    fake_give(&node->fake, "tierer.0", &found);
    ck_assert(fake_take_reply(&node->fake, "tierer.0", found.seq, &reply));
    ck_assert_int_eq(reply.code, SL_ERR_BUSY); /* it has served: only after another fence */
    tierer_fenced(node);
    found.seq = 0;
    fake_give(&node->fake, "tierer.0", &found);
    ck_assert(fake_take_reply(&node->fake, "tierer.0", found.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
}

static void explained(struct node *node, const char *key, char text[256])
{
    struct sl_text name = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_EXPLAIN}, reply;
    msg.body.explain.keys = (struct sl_texts){&name, 1};
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    (void)snprintf(text, 256, "%s", reply.body.explain_reply.items.at[0].text.at);
}

static const char *const *const second_of[] = {second, second_lru};

START_TEST(what_is_wanted_a_second_time_is_written)
    {
        struct node *node = node_with(second_of[_i]);
        node_put(node, "client.1", "a", LENGTH);
        node_put_block(node, "client.1", "m/b", 2, LENGTH, 0);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);
        ck_assert_uint_eq(node_metric(node, "not_written_count"), 3);
        ck_assert_uint_eq(node_metric(node, "not_written_bytes"), 3 * LENGTH);

        want(node, "a");
        want(node, "m/b/1");

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 3);
        ck_assert(on_disk(node, "a") && on_disk(node, "m/b/0") && on_disk(node, "m/b/1"));
        ck_assert_uint_eq(node_metric(node, "written_later_count"), 3);
        want(node, "a"); /* it is present: not again */
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);
        node_end(node);
    }
END_TEST

START_TEST(what_comes_again_after_it_went_was_wanted_twice)
    {
        struct node *node = node_with(second);
        node_put(node, "client.1", "a", LENGTH);
        struct sl_item_grant grant = node_grant(node, "client.1", "squeeze", 4 * SL_MIB);
        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
        ck_assert(!node_is_visible(node, "a"));

        node_put(node, "client.1", "a", LENGTH);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        node_end(node);
    }
END_TEST

START_TEST(what_is_not_written_makes_room_and_says_why_it_went)
    {
        char text[256];
        struct node *node = node_with(second);
        node_put(node, "client.1", "a", LENGTH);

        struct sl_item_grant grant = node_grant(node, "client.1", "squeeze", 4 * SL_MIB);

        ck_assert(!node_is_visible(node, "a"));
        explained(node, "a", text);
        ck_assert_msg(strstr(text, "not to be written to disk") != NULL, "%s", text);
        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_flush_writes_what_was_refused)
    {
        struct node *node = node_with(second);
        for (uint32_t n = 0; n < 40; n++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "k%u", n);
            node_put(node, "client.1", key, 100);
        }
        node_put_block(node, "client.1", "m/b", 2, LENGTH, 0);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);

        ck_assert_int_eq(flush(node), SL_OK);

        ck_assert(on_disk(node, "k0") && on_disk(node, "k39") && on_disk(node, "m/b/1"));
        node_end(node);
    }
END_TEST

START_TEST(what_was_promised_is_written)
    {
        struct node *node = node_with(second);
        put_as(node, "hard", (struct reserve_ask){.hard_pin = true}, NULL);
        put_as(node, "soft", (struct reserve_ask){.soft_pin_ns = 10 * SL_NS_PER_S}, NULL);
        put_as(node, "bundled", (struct reserve_ask){0}, "bundle");
        static struct grants grants;
        struct want item = {.key = "m/h/0", .length = LENGTH, .group = 1};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 7,
                                  .wants = &item,
                                  .count = 1,
                                  .group_key = "m/h",
                                  .part_count = 1,
                                  .hold_id = 7,
                                  .hold_ns = SL_NS_PER_S};
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "client.1", "m/h/0", &grants.at[0]), SL_OK);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 4);

        ck_assert_uint_eq(node_metric(node, "not_written_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(what_is_leased_and_in_the_way_goes_to_disk)
    {
        struct node *node = node_with(leases);
        struct sl_leases *looks = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_leases_open(node->fake.paths.shm_dir, node->view, &looks, &why), SL_OK);
        for (uint32_t n = 0; n < 8; n++) {
            char key[8];
            struct sl_entry entry;
            uint64_t end_ns = 0;
            (void)snprintf(key, sizeof(key), "k%u", n);
            struct sl_key text = {key, (uint32_t)strlen(key)};
            node_put(node, "client.1", key, SL_MIB / 2);
            ck_assert_int_eq(sl_leases_find(looks, &text, node->fake.env.now_ns, &entry, &end_ns),
                             SL_OK);
        }
        static struct grants grants;
        struct want item = {.key = "new", .length = SL_MIB / 2};
        struct reserve_ask ask = {.sender = "client.1",
                                  .wants = &item,
                                  .count = 1,
                                  .budget_ns = 5 * SL_NS_PER_S,
                                  .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 8);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        for (uint32_t n = 0; n < 8; n++) {
            char key[8];
            (void)snprintf(key, sizeof(key), "k%u", n);
            ck_assert_msg(on_disk(node, key), "%s is lost", key);
        }
        sl_leases_close(&looks);
        node_end(node);
    }
END_TEST

START_TEST(a_new_registrar_judges_anew)
    {
        struct node *node = node_with(second);
        node_put(node, "client.1", "a", LENGTH);
        node_put_block(node, "client.1", "m/b", 1, LENGTH, 0);
        node_put_block(node, "client.1", "m/c", 1, LENGTH, 0);
        want(node, "m/c/0"); /* is about to be written */

        node_restart(node);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(on_disk(node, "m/c/0"));
        ck_assert_int_eq(flush(node), SL_OK); /* covers values refused before as well */
        ck_assert(on_disk(node, "a") && on_disk(node, "m/b/0"));
        node_end(node);
    }
END_TEST

START_TEST(what_nobody_comes_back_for_is_not_written_once_that_is_learnt)
    {
        struct node *node = node_with(reuse);
        node_put(node, "client.1", "hot", LENGTH);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1); /* nothing has been learnt yet */
        for (uint32_t n = 0; n < 20000; n++) { /* no value of a single use is wanted again */
            char key[16];
            (void)snprintf(key, sizeof(key), "k%u", n);
            node_put(node, "client.1", key, 2048);
            (void)tierer_write(node, 1 + n / 256, SL_OK);
            if (n % 4 == 0) {
                want(node, "hot");
            }
        }
        uint64_t before = node_metric(node, "not_written_count");
        ck_assert_uint_gt(before, 0);

        node_put(node, "client.1", "cold", LENGTH);

        ck_assert_uint_eq(node_metric(node, "not_written_count"), before + 1);
        node_end(node);
    }
END_TEST

START_TEST(the_budget_stops_writes_but_no_promise)
    {
        struct node *node = node_with(budget);
        told(node, 0, 0);
        node_put(node, "client.1", "a", LENGTH);
        put_as(node, "hard", (struct reserve_ask){.hard_pin = true}, NULL);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert(on_disk(node, "hard") && !on_disk(node, "a"));
        ck_assert_uint_eq(node_metric(node, "over_budget_count"), 1);
        ck_assert_int_eq(flush(node), SL_OK);
        ck_assert(on_disk(node, "a"));
        node_end(node);
    }
END_TEST

static const struct {
    uint64_t left, debt, after_ns;
    bool written;
} budgets[] = {
    {.left = BUDGET, .written = true},
    {.left = BUDGET / 2 + LENGTH, .written = true}, /* above the half nothing is refused */
    {.left = 0, .written = false},
    {.left = 0, .after_ns = DAY_NS * 3 / 5, .written = true}, /* it fills */
    {.left = 0, .debt = BUDGET, .after_ns = DAY_NS, .written = false},
    {.left = 0, .debt = BUDGET, .after_ns = DAY_NS * 8 / 5, .written = true},
};

START_TEST(what_is_left_decides)
    {
        struct node *node = node_with(budget);
        told(node, budgets[_i].left, budgets[_i].debt);
        node->fake.env.now_ns += budgets[_i].after_ns;

        node_put(node, "client.1", "a", LENGTH);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), budgets[_i].written);
        node_end(node);
    }
END_TEST

/* Puts a block of one part, in the request of this name. */
static void block_put(struct node *node, uint64_t op_id, uint32_t block)
{
    static struct grants grants;
    char key[32], part[40];
    (void)snprintf(key, sizeof(key), "m/%u", block);
    (void)snprintf(part, sizeof(part), "%s/0", key);
    const char *keys[] = {part};
    struct want want = {.key = part, .length = LENGTH, .group = 1};
    struct reserve_ask ask = {.sender = "client.1",
                              .op_id = op_id,
                              .wants = &want,
                              .count = 1,
                              .group_key = key,
                              .part_count = 1};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_OK);
    node_commit_all(node, "client.1", keys, grants.at, 1, false, NULL);
}

/* Blocks after a gap in a chain are useless. */
START_TEST(of_equals_all_blocks_of_a_request_are_written_or_none)
    {
        enum { REQUESTS = 12, BLOCKS = 5 };
        struct node *node = node_with(budget);
        uint32_t written_count = 0;
        told(node, BUDGET / 4, 0); /* reported every second */
        for (uint32_t i = 0; i < REQUESTS * BLOCKS; i++) {
            block_put(node, 100 + i / BLOCKS, i);
        }
        ck_assert_uint_gt(tierer_write(node, 1, SL_OK), 0);

        for (uint32_t request = 0; request < REQUESTS; request++) {
            uint32_t there = 0;
            for (uint32_t i = 0; i < BLOCKS; i++) {
                char part[40];
                (void)snprintf(part, sizeof(part), "m/%u/0", request * BLOCKS + i);
                there += on_disk(node, part);
            }
            ck_assert_msg(there == 0 || there == BLOCKS, "request %u: %u of its blocks", request,
                          there);
            written_count += there == BLOCKS;
        }

        ck_assert_uint_gt(written_count, 0);
        ck_assert_uint_lt(written_count, REQUESTS);
        node_end(node);
    }
END_TEST

static const struct {
    const char *const settings[8];
    const char *text;
} wrong[] = {
    {{"disk_admission", "reuse", "evict_policy", "lru", NULL},
     "evict_policy 'lru' cannot estimate reuse"},
};

START_TEST(settings_that_cannot_be_are_refused)
    {
        struct fake_env fake = {0};
        struct sl_error why = {0};
        static const char *const standard[] = {
            "memory", "4MiB", "memory_chunk", "4MiB", "index_memory", "4MiB", NULL};
        fake_open(&fake, &sl_registrar_actor, standard);
        for (uint32_t i = 0; wrong[_i].settings[i] != NULL; i += 2) {
            fake_set(&fake, wrong[_i].settings[i], wrong[_i].settings[i + 1]);
        }

        sl_err err = fake_start(&fake, &why);

        ck_assert_int_eq(err, SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, wrong[_i].text) != NULL, "%s", why.text);
        fake_close(&fake);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_admission");
    TCase *tcase = tcase_create("admission");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_is_wanted_a_second_time_is_written, 0, SL_COUNT(second_of));
    tcase_add_test(tcase, what_comes_again_after_it_went_was_wanted_twice);
    tcase_add_test(tcase, what_is_not_written_makes_room_and_says_why_it_went);
    tcase_add_test(tcase, a_flush_writes_what_was_refused);
    tcase_add_test(tcase, what_was_promised_is_written);
    tcase_add_test(tcase, what_is_leased_and_in_the_way_goes_to_disk);
    tcase_add_test(tcase, a_new_registrar_judges_anew);
    tcase_add_test(tcase, what_nobody_comes_back_for_is_not_written_once_that_is_learnt);
    tcase_add_test(tcase, the_budget_stops_writes_but_no_promise);
    tcase_add_test(tcase, of_equals_all_blocks_of_a_request_are_written_or_none);
    tcase_add_loop_test(tcase, what_is_left_decides, 0, SL_COUNT(budgets));
    tcase_add_loop_test(tcase, settings_that_cannot_be_are_refused, 0, SL_COUNT(wrong));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
