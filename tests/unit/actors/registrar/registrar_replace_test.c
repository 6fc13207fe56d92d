/* tests/unit/actors/registrar/registrar_replace_test.c - replacing a value: what readers see, who
 * may, what happens to the old value in memory and on disk, and restarts at every step. */
#include "actors/registrar/disk/remove.h"
#include "tests/unit/actors/registrar/registrar_support.h"

static struct grants grants;

static const char *const disk_settings[] = {"disk", "64MiB", NULL};

static sl_err reserve_replace(struct node *node, const char *sender, const char *key,
                              uint64_t length, struct sl_item_grant *grant)
{
    struct want want = {.key = key, .length = length};
    struct reserve_ask ask = {.sender = sender, .wants = &want, .count = 1, .replace = true};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_int_eq(grants.code, SL_OK);
    *grant = grants.at[0];
    return (sl_err)grant->code;
}

/* Sends COMMIT with a digest of its own; returns its number. */
static uint64_t commit_send(struct node *node, const char *sender,
                            const struct sl_item_grant *grant, const char *content, uint64_t seq)
{
    struct sl_digest digest = digest_of_key(content);
    struct sl_item_claim claim = {.ref = grant->ref,
                                  .generation = grant->generation,
                                  .digest_low = digest.low,
                                  .digest_high = digest.high};
    struct sl_msg msg = {.type = SL_MSG_COMMIT, .seq = seq};
    msg.body.commit.items.at = &claim;
    msg.body.commit.items.count = 1;
    fake_give(&node->fake, sender, &msg);
    return msg.seq;
}

static sl_err answered(struct node *node, const char *sender, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, sender, seq, &reply)) {
        return SL_ERR_INCOMPLETE; /* it waits */
    }
    ck_assert_int_eq(reply.code, SL_OK);
    return (sl_err)reply.body.commit_reply.codes.at[0];
}

static sl_err commit_as(struct node *node, const char *sender, const struct sl_item_grant *grant,
                        const char *content)
{
    return answered(node, sender, commit_send(node, sender, grant, content, 0));
}

static bool holds(struct node *node, const char *key, const char *content)
{
    struct sl_entry entry;
    struct sl_digest digest = digest_of_key(content);
    return node_entry(node, key, &entry) && entry.digest.low == digest.low &&
           entry.digest.high == digest.high;
}

static void settle(struct node *node)
{
    for (uint32_t i = 0; i < 10; i++) {
        fake_advance(&node->fake, 20 * SL_NS_PER_MS);
    }
}

/* ---- in memory ---- */

START_TEST(the_old_value_stays_until_the_commit)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 5000);

        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 9000, &grant), SL_OK);
        ck_assert(holds(node, "k", "k"));
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);

        struct sl_entry entry;
        ck_assert(holds(node, "k", "new"));
        ck_assert(node_entry(node, "k", &entry));
        ck_assert_uint_eq(entry.extent.length_bytes, 9000);
        ck_assert_uint_eq(node_metric(node, "object_count"), 1);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 12288); /* the old one is freed */
        ck_assert_uint_eq(node_metric(node, "replaced_count"), 1);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK); /* sent again */
        node_end(node);
    }
END_TEST

START_TEST(a_key_that_is_not_there_is_put)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);

        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 9000, &grant), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);

        ck_assert(holds(node, "k", "new"));
        node_end(node);
    }
END_TEST

START_TEST(a_put_of_a_key_under_replacement_exists)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        struct want want = {.key = "k", .length = 100};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 5000);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 9000, &grant), SL_OK);

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_EXISTS);
        node_end(node);
    }
END_TEST

START_TEST(the_later_of_two_waits_for_the_first)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant first, second;
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        node_put(node, "client.1", "k", 5000);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &first), SL_OK);

        ck_assert_int_eq(reserve_replace(node, "client.2", "k", 7000, &second), SL_ERR_BUSY);
        ck_assert_uint_le(second.busy_ns, 2 * SL_NS_PER_S);

        ck_assert_int_eq(commit_as(node, "client.1", &first, "first"), SL_OK);
        ck_assert_int_eq(reserve_replace(node, "client.2", "k", 7000, &second), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.2", &second, "second"), SL_OK);
        ck_assert(holds(node, "k", "second"));
        ck_assert_uint_eq(node_metric(node, "preempted_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        node_end(node);
    }
END_TEST

START_TEST(a_put_under_way_is_preempted)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant second;
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct sl_item_grant first = node_grant(node, "client.1", "k", 6000);

        ck_assert_int_eq(reserve_replace(node, "client.2", "k", 7000, &second), SL_OK);

        ck_assert_int_eq(commit_as(node, "client.2", &second, "second"), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &first, "first"), SL_ERR_STALE);
        ck_assert(holds(node, "k", "second"));
        ck_assert_uint_eq(node_metric(node, "preempted_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(a_writer_that_dies_or_is_late_changes_nothing)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        node_put(node, "client.1", "k", 5000);
        ck_assert_int_eq(reserve_replace(node, "client.2", "k", 6000, &grant), SL_OK);
        fake_process_end(&node->fake, proc_of(12));
        ck_assert(holds(node, "k", "k"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);

        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        fake_advance(&node->fake, 3 * SL_NS_PER_S); /* reservation_ttl is 2 s */

        ck_assert_int_eq(commit_as(node, "client.1", &grant, "late"), SL_ERR_STALE);
        ck_assert(holds(node, "k", "k"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        node_end(node);
    }
END_TEST

START_TEST(a_hard_pin_and_a_bundle_stay_with_the_key)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "k", .length = 5000, .bundle = "g"};
        struct want other = {.key = "k", .length = 5000, .bundle = "h"};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .hard_pin = true};
        struct sl_item_grant grant;
        struct sl_entry before, after;
        node_client(node, "client.1", 11);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(commit_as(node, "client.1", &grants.at[0], "k"), SL_OK);
        ck_assert(node_entry(node, "k", &before));
        ck_assert(before.hard_pin && before.bundle != 0);

        ask = (struct reserve_ask){
            .sender = "client.1", .wants = &other, .count = 1, .replace = true};
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_INVALID);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);

        ck_assert(node_entry(node, "k", &after));
        ck_assert(after.hard_pin);
        ck_assert_uint_eq(after.bundle, before.bundle);
        node_end(node);
    }
END_TEST

START_TEST(parts_of_blocks_are_not_replaced)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/b", 2, 3000, 0);

        ck_assert_int_eq(reserve_replace(node, "client.1", "m/b/0", 3000, &grant), SL_ERR_EXISTS);
        ck_assert_int_eq(reserve_replace(node, "client.1", "m/b", 3000, &grant), SL_ERR_INVALID);
        node_end(node);
    }
END_TEST

START_TEST(a_reader_keeps_what_it_pinned)
    {
        struct node *node = node_start(NULL);
        struct sl_error why = {0};
        struct sl_pins *pins = NULL;
        struct sl_entry entry;
        struct sl_item_grant grant;
        sl_pin pin;
        struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                          .name = "client.1",
                                          .slot_count = 64,
                                          .access_count = 64,
                                          .self = proc_of(11),
                                          .pinned_bytes_max = SL_GIB};
        ck_assert_int_eq(sl_pins_create(&options, &pins, &why), SL_OK);
        ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 11, "pins.client.1"), SL_OK);
        node_put(node, "client.1", "k", 5000);
        ck_assert(node_entry(node, "k", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);

        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);
        settle(node);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 2 * 8192);
        ck_assert(!sl_index_unchanged(node->view, &entry));
        node_restart(node); /* and in the next life */
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 2 * 8192);
        sl_pins_release(pins, pin);
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(a_slow_put_may_be_taken_over)
    {
        static const char *const with[] = {"put_preempt", "1s", "reservation_ttl", "60s", NULL};
        struct node *node = node_start(with);
        struct want want = {.key = "k", .length = 100};
        struct reserve_ask ask = {.sender = "client.2", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct sl_item_grant slow = node_grant(node, "client.1", "k", 6000);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_BUSY);
        ck_assert_uint_le(grants.at[0].busy_ns, SL_NS_PER_S);
        fake_advance(&node->fake, SL_NS_PER_S);

        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        struct sl_item_grant mine = grants.at[0];
        ck_assert_int_eq(commit_as(node, "client.1", &slow, "slow"), SL_ERR_STALE);
        ck_assert_int_eq(commit_as(node, "client.2", &mine, "mine"), SL_OK);
        ck_assert(holds(node, "k", "mine"));
        node_end(node);
    }
END_TEST

START_TEST(the_successor_knows_that_it_replaces)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 5000);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);

        node_restart(node);
        ck_assert(holds(node, "k", "k"));
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);

        ck_assert(holds(node, "k", "new"));
        node_restart(node);
        ck_assert(holds(node, "k", "new"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        node_end(node);
    }
END_TEST

/* ---- with a disk ---- */

static struct node *node_with_disk(void)
{
    struct node *node = node_start(disk_settings);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    node_client(node, "client.1", 11);
    return node;
}

START_TEST(the_answer_waits_until_the_old_copy_is_gone)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);

        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);

        ck_assert(holds(node, "k", "new")); /* visible, but not acknowledged */
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        (void)commit_send(node, "client.1", &grant, "new", seq); /* sent again */
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_ERR_TIMEOUT);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0); /* nothing is written before that */
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        settle(node);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_value_on_disk_alone_is_replaced)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        struct found found = {.key = "k", .length = 5000, .segment = 3, .offset = 4096};
        tierer_found(node, &found, 1, true, true, NULL);
        ck_assert(holds(node, "k", "k"));
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);

        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);
        ck_assert(holds(node, "k", "new"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_copy_on_its_way_to_disk_is_waited_for)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        node_put(node, "client.1", "k", 5000); /* DISK_WRITE is out */
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);

        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1); /* the old one is written */
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        settle(node);
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);

        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        ck_assert(holds(node, "k", "new"));
        node_end(node);
    }
END_TEST

START_TEST(the_deadline_ends_the_wait)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);

        fake_advance(&node->fake, 3 * SL_NS_PER_S);

        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_TIMEOUT);
        ck_assert(holds(node, "k", "new"));
        node_end(node);
    }
END_TEST

/* A new registrar gets the disk's report from before the tombstone. */
static void rescan(struct node *node, const struct found *found, uint32_t count)
{
    tierer_arrive(node, TIERER_PID);
    tierer_found(node, found, count, true, true, NULL);
}

START_TEST(the_old_copy_does_not_come_back_with_a_successor)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        struct found found = {.key = "k", .length = 5000, .segment = 1};
        struct sl_entry entry;
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(node_entry(node, "k", &entry));
        found.offset = entry.disk.offset_bytes;
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);

        node_restart(node);
        rescan(node, &found, 1);

        ck_assert(holds(node, "k", "new"));
        (void)commit_send(node, "client.1", &grant, "new", seq); /* sent again: it still waits */
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        settle(node);
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        ck_assert(holds(node, "k", "new"));
        node_end(node);
    }
END_TEST

/* The new value was removed before the registrar died. */
START_TEST(the_answer_waits_when_the_new_value_is_gone_as_well)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        struct found found = {.key = "k", .length = 5000, .segment = 1};
        struct sl_entry entry;
        node_client(node, "client.2", 12);
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(node_entry(node, "k", &entry));
        found.offset = entry.disk.offset_bytes;
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);
        ck_assert_int_eq(node_remove(node, "client.2", "k"), SL_ERR_INCOMPLETE);

        node_restart(node);
        rescan(node, &found, 1);

        (void)commit_send(node, "client.1", &grant, "new", seq);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        settle(node);
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        ck_assert(!node_is_visible(node, "k"));
        node_end(node);
    }
END_TEST

/* By then its record is a different one; the note made with the commit shows which key was
 * meant. */
START_TEST(the_answer_waits_when_the_new_value_is_on_another_disk)
    {
        static const char *const two[] = {"disk", "1GiB", "disk_path", "/one,/two", NULL};
        static const char *const stores[] = {"disk A", "disk B"};
        struct node *node = node_start(two);
        struct sl_item_grant grant;
        struct sl_entry entry;
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_ready(node);
        }
        node_put(node, "client.1", "other", 5000);
        node_put(node, "client.1", "k", 5000);
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            (void)tierer_write(node, 1, SL_OK);
        }
        ck_assert(node_entry(node, "k", &entry));
        uint32_t before = entry.disk.disk;
        ck_assert_int_eq(node_remove(node, "client.1", "other"), SL_ERR_INCOMPLETE);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        (void)commit_send(node, "client.1", &grant, "new", 0);
        tierer_select(1 - before, stores[1 - before]);
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        ck_assert(node_entry(node, "k", &entry));
        ck_assert_uint_eq(entry.disk.disk, 1 - before);
        ck_assert_uint_ne(entry.ref, grant.ref);

        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_ERR_TIMEOUT);
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            (void)tierer_forget(node, SL_OK);
        }
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(too_many_that_wait_try_again)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        char key[16];
        sl_err code = SL_OK;
        for (uint32_t i = 0; i <= REG_REMOVES_MAX; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 100);
            (void)tierer_write(node, 1, SL_OK);
        }

        for (uint32_t i = 0; i <= REG_REMOVES_MAX; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(reserve_replace(node, "client.1", key, 200, &grant), SL_OK);
            code = commit_as(node, "client.1", &grant, "new");
            ck_assert_int_eq(code, i < REG_REMOVES_MAX ? SL_ERR_INCOMPLETE : SL_ERR_BUSY);
        }

        ck_assert(holds(node, key, key)); /* the last one is unchanged */
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        settle(node);
        (void)tierer_forget(node, SL_OK);
        ck_assert_int_eq(reserve_replace(node, "client.1", key, 200, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);
        (void)tierer_forget(node, SL_OK);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        node_end(node);
    }
END_TEST

/* The missing disk has never appeared: removals meanwhile fill the table. */
START_TEST(a_value_is_not_replaced_without_room_for_its_tombstones)
    {
        static const char *const two[] = {
            "disk",         "1GiB",  "disk_path",    "/one,/two", "memory", "64MiB",
            "memory_chunk", "64MiB", "index_memory", "64MiB",     NULL};
        struct node *node = node_start(two);
        struct sl_item_grant grant;
        char key[16];
        sl_err code = SL_ERR_DISK_AWAY;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", "written", 100); /* for as long as the test */
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (uint32_t i = 0; code == SL_ERR_DISK_AWAY; i++) {
            ck_assert_uint_lt(i, 40000);
            (void)snprintf(key, sizeof(key), "k%u", i);
            code = node_remove(node, "client.1", key);
        }
        ck_assert_int_eq(code, SL_ERR_LIMIT);

        code = SL_ERR_DISK_AWAY;
        for (uint32_t i = 0; code == SL_ERR_DISK_AWAY;
             i++) { /* what a REMOVE of a large block had needed */
            ck_assert_uint_lt(i, 2000);
            (void)snprintf(key, sizeof(key), "w%u", i);
            ck_assert_int_eq(reserve_replace(node, "client.1", key, 200, &grant), SL_OK);
            code = commit_as(node, "client.1", &grant, "new");
            ck_assert(holds(node, key, "new") == (code == SL_ERR_DISK_AWAY));
        }
        ck_assert_int_eq(code, SL_ERR_LIMIT);
        ck_assert_int_eq(reserve_replace(node, "client.1", "written", 200, &grant), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_ERR_LIMIT);
        ck_assert(holds(node, "written", "written"));
        ck_assert_uint_eq(node_metric(node, "forget_skipped_count"), 0);
        node_end(node);
    }
END_TEST

/* Regression: each replacement of a key added a tombstone, until there was no space for any. */
START_TEST(a_value_replaced_often_has_one_tombstone_on_a_missing_disk)
    {
        struct node *node = node_start(disk_settings);
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert_int_eq(reserve_replace(node, "client.1", "k", 200, &grant), SL_OK);
            ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_ERR_DISK_AWAY);
            if (i % 2 == 1) {
                ck_assert_int_eq(node_remove(node, "client.1", "k"), SL_ERR_DISK_AWAY);
            }
            ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 1);
        }

        struct found found = {.key = "k", .length = 5000, .segment = 3, .offset = 4096};
        sl_err code = SL_OK;
        node_restart(node);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

/* The same for a disk that is being scanned. */
START_TEST(a_value_that_is_replaced_often_has_one_tombstone_on_a_disk_that_is_scanned)
    {
        struct node *node = node_start(disk_settings);
        struct found found = {.key = "k", .length = 5000, .segment = 3, .offset = 4096};
        struct sl_item_grant grant;
        sl_err code = SL_OK;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, NULL, 0, true, false, NULL);
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert_int_eq(reserve_replace(node, "client.1", "k", 200, &grant), SL_OK);
            ck_assert_int_eq(commit_as(node, "client.1", &grant, "new"), SL_ERR_INCOMPLETE);
            ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 1);
            fake_advance(&node->fake, 3 * SL_NS_PER_S); /* its time has passed */
            if (i % 2 == 1) {
                ck_assert_int_eq(node_remove(node, "client.1", "k"), SL_ERR_INCOMPLETE);
                ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 1);
                fake_advance(&node->fake, 3 * SL_NS_PER_S);
            }
        }

        tierer_found(node, &found, 1, false, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

START_TEST(a_removal_waits_for_what_was_replaced_before)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        struct sl_text text = sl_text_of("k");
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0); /* the tombstone is sent */

        msg.body.remove.keys = (struct sl_texts){&text, 1};
        fake_give(&node->fake, "client.1", &msg);

        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        settle(node);
        (void)tierer_forget(node, SL_OK);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(what_a_disk_has_not_told_yet_is_forgotten_too)
    {
        struct node *node = node_start(disk_settings);
        struct sl_item_grant grant;
        struct found found = {.key = "k", .length = 5000, .segment = 3, .offset = 4096};
        sl_err code = SL_OK;
        tierer_arrive(node, TIERER_PID); /* and has not begun its scan */
        node_client(node, "client.1", 11);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &grant), SL_OK);

        uint64_t seq = commit_send(node, "client.1", &grant, "new", 0);
        ck_assert(holds(node, "k", "new"));
        ck_assert_int_eq(answered(node, "client.1", seq), SL_ERR_INCOMPLETE);
        tierer_found(node, &found, 1, true, true, &code);
        settle(node);

        ck_assert(holds(node, "k", "new"));
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(the_same_bytes_get_a_place_of_their_own)
    {
        struct node *node = node_with_disk();
        struct sl_item_grant grant;
        struct sl_entry at;
        node_put(node, "client.1", "k", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 5000, &grant), SL_OK);
        uint64_t seq = commit_send(node, "client.1", &grant, "k", 0); /* the digest of before */
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(answered(node, "client.1", seq), SL_OK);
        settle(node);

        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);

        ck_assert(node_entry(node, "k", &at));
        ck_assert(at.disk.valid != 0);
        node_end(node);
    }
END_TEST

/* ---- requests that are sent again: each takes effect once ---- */

/* The answer was lost, and another client replaced the value meanwhile. _i: the registrar died as
 * well, or the key was removed. */
START_TEST(a_commit_that_is_sent_again_puts_nothing_back)
    {
        struct node *node = node_start(NULL);
        struct sl_item_grant first, second;
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        node_put(node, "client.1", "k", 5000);
        ck_assert_int_eq(reserve_replace(node, "client.1", "k", 6000, &first), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.1", &first, "first"), SL_OK);
        ck_assert_int_eq(reserve_replace(node, "client.2", "k", 7000, &second), SL_OK);
        ck_assert_int_eq(commit_as(node, "client.2", &second, "second"), SL_OK);
        if (_i > 0) {
            node_restart(node);
            node_client(node, "client.1", 11);
            node_client(node, "client.2", 12);
        }
        if (_i > 1) {
            ck_assert_int_eq(node_remove(node, "client.2", "k"), SL_OK);
        }

        /* SL_ERR_STALE would make it start again, and replace the later value. */
        ck_assert_int_eq(commit_as(node, "client.1", &first, "first"), SL_OK);

        ck_assert(_i > 1 ? !node_is_visible(node, "k") : holds(node, "k", "second"));
        node_end(node);
    }
END_TEST

static sl_err remove_as(struct node *node, const char *sender, const char *key, uint64_t *seq)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_REMOVE, .seq = *seq}, reply;
    msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, sender, &msg);
    *seq = msg.seq;
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return (sl_err)reply.body.remove_reply.codes.at[0];
}

/* _i & 1: the registrar died meanwhile; _i & 2: the key did not exist at first. */
START_TEST(a_removal_that_is_sent_again_spares_what_others_put)
    {
        struct node *node = node_start(NULL);
        uint64_t seq = 0, other = 0;
        sl_err want = (_i & 2) != 0 ? SL_ERR_NOT_FOUND : SL_OK;
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        if (want == SL_OK) {
            node_put(node, "client.1", "k", 5000);
        }
        ck_assert_int_eq(remove_as(node, "client.1", "k", &seq), want);
        node_put(node, "client.2", "k", 6000);
        if ((_i & 1) != 0) {
            node_restart(node);
            node_client(node, "client.1", 11);
            node_client(node, "client.2", 12);
        }

        ck_assert_int_eq(remove_as(node, "client.1", "k", &seq), want);
        ck_assert(node_is_visible(node, "k"));

        ck_assert_int_eq(remove_as(node, "client.1", "k", &other), SL_OK); /* another one */
        ck_assert(!node_is_visible(node, "k"));
        node_end(node);
    }
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("registrar_replace");
    TCase *memory = tcase_create("memory");
    tcase_set_timeout(memory, 60);
    tcase_add_test(memory, the_old_value_stays_until_the_commit);
    tcase_add_test(memory, a_key_that_is_not_there_is_put);
    tcase_add_test(memory, a_put_of_a_key_under_replacement_exists);
    tcase_add_test(memory, the_later_of_two_waits_for_the_first);
    tcase_add_test(memory, a_put_under_way_is_preempted);
    tcase_add_test(memory, a_writer_that_dies_or_is_late_changes_nothing);
    tcase_add_test(memory, a_hard_pin_and_a_bundle_stay_with_the_key);
    tcase_add_test(memory, parts_of_blocks_are_not_replaced);
    tcase_add_test(memory, a_reader_keeps_what_it_pinned);
    tcase_add_test(memory, a_slow_put_may_be_taken_over);
    tcase_add_test(memory, the_successor_knows_that_it_replaces);
    tcase_add_loop_test(memory, a_commit_that_is_sent_again_puts_nothing_back, 0, 3);
    tcase_add_loop_test(memory, a_removal_that_is_sent_again_spares_what_others_put, 0, 4);
    suite_add_tcase(all, memory);
    TCase *disk = tcase_create("disk");
    tcase_set_timeout(disk, 60);
    tcase_add_test(disk, the_answer_waits_until_the_old_copy_is_gone);
    tcase_add_test(disk, a_value_on_disk_alone_is_replaced);
    tcase_add_test(disk, a_copy_on_its_way_to_disk_is_waited_for);
    tcase_add_test(disk, the_deadline_ends_the_wait);
    tcase_add_test(disk, the_old_copy_does_not_come_back_with_a_successor);
    tcase_add_test(disk, the_answer_waits_when_the_new_value_is_gone_as_well);
    tcase_add_test(disk, the_answer_waits_when_the_new_value_is_on_another_disk);
    tcase_add_test(disk, too_many_that_wait_try_again);
    tcase_add_test(disk, a_value_is_not_replaced_without_room_for_its_tombstones);
    tcase_add_test(disk, a_value_replaced_often_has_one_tombstone_on_a_missing_disk);
    tcase_add_test(disk,
                   a_value_that_is_replaced_often_has_one_tombstone_on_a_disk_that_is_scanned);
    tcase_add_test(disk, a_removal_waits_for_what_was_replaced_before);
    tcase_add_test(disk, what_a_disk_has_not_told_yet_is_forgotten_too);
    tcase_add_test(disk, the_same_bytes_get_a_place_of_their_own);
    suite_add_tcase(all, disk);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
