/* tests/unit/actors/registrar/registrar_disks_test.c - several disks: which values each gets, what
 * the failure of one costs, and that a disk is identified by its name. The test plays the tierers.
 */
#include "tests/unit/actors/registrar/registrar_support.h"

#define BIG  SL_MIB
#define MANY 24u

static const char *const settings[] = {"disk",     "1GiB", "disk_path", "/one,/two",
                                       "io_grace", "10s",  NULL};
static const char *const stores[] = {"disk A", "disk B", "disk C"};

static void disk_come(struct node *node, uint32_t number, const char *store, uint32_t pid)
{
    tierer_select(number, store);
    tierer_arrive(node, pid);
    tierer_ready(node);
}

/* A node with the disks A and B on its two paths, and client.1. */
static struct node *node_disks(void)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    disk_come(node, 0, stores[0], TIERER_PID);
    disk_come(node, 1, stores[1], TIERER_PID + 1);
    return node;
}

static const char *key_of(uint32_t i)
{
    static char keys[4][16];
    static uint32_t next;
    char *key = keys[next++ % SL_COUNT(keys)];
    (void)snprintf(key, sizeof(keys[0]), "k%u", i);
    return key;
}

static void put_many(struct node *node)
{
    for (uint32_t i = 0; i < MANY; i++) {
        node_put(node, "client.1", key_of(i), 5000);
    }
}

/* Answers the tierer's write requests; all values are durable. */
static uint32_t write_to(struct node *node, uint32_t number)
{
    tierer_select(number, stores[number]);
    return tierer_write(node, 1, SL_OK);
}

/* Puts MANY objects, all durable. */
static void put_durable(struct node *node)
{
    uint32_t written = 0;
    put_many(node);
    while (written < MANY) {
        uint32_t now = write_to(node, 0) + write_to(node, 1);
        ck_assert_uint_gt(now, 0);
        written += now;
    }
}

static int slot_of(struct node *node, const char *key)
{
    struct sl_entry entry;
    if (!node_entry(node, key, &entry) || entry.disk.valid == 0) {
        return -1;
    }
    return entry.disk.disk;
}

/* The report of its disk about a value of put_durable. */
static struct found found_of(struct node *node, const char *key)
{
    struct sl_entry entry;
    ck_assert(node_entry(node, key, &entry));
    return (struct found){.key = key,
                          .length = 5000,
                          .segment = entry.disk.segment,
                          .offset = entry.disk.offset_bytes};
}

static uint32_t count_on(struct node *node, int slot)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        count += slot_of(node, key_of(i)) == slot;
    }
    return count;
}

static uint32_t one_on(struct node *node, int slot)
{
    for (uint32_t i = 0; i < MANY; i++) {
        if (slot_of(node, key_of(i)) == slot) {
            return i;
        }
    }
    ck_abort_msg("nothing lies on disk %d", slot);
}

static bool in_memory(struct node *node, const char *key)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry) && entry.extent.generation != 0;
}

static uint32_t count_in_memory(struct node *node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        count += in_memory(node, key_of(i));
    }
    return count;
}

/* Other values fill memory until none of the many is left there. */
static void evict_all(struct node *node)
{
    struct sl_item_grant taken[64];
    uint32_t count = 0;
    for (; count_in_memory(node) > 0; count++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "wish%u", count);
        ck_assert_uint_lt(count, SL_COUNT(taken));
        taken[count] = node_grant(node, "client.1", key, 65536);
    }
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(node_abort(node, "client.1", &taken[i]), SL_OK);
    }
}

static uint64_t promote(struct node *node, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.bring.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

/* SL_ERR_INCOMPLETE: no answer yet. */
static sl_err promoted(struct node *node, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, "client.1", seq, &reply)) {
        return SL_ERR_INCOMPLETE;
    }
    return reply.code != SL_OK ? reply.code : (sl_err)reply.body.bring_reply.codes.at[0];
}

/* The tierer of this number reads what is requested; returns the number of values. */
static uint32_t read_from(struct node *node, uint32_t number)
{
    tierer_select(number, stores[number]);
    return tierer_read(node, SL_OK);
}

/* Sends REMOVE; the answer arrives later. */
static uint64_t remove_ask(struct node *node, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S};
    msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

static sl_err removed(struct node *node, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, "client.1", seq, &reply)) {
        return SL_ERR_INCOMPLETE;
    }
    return reply.code != SL_OK ? reply.code : (sl_err)reply.body.remove_reply.codes.at[0];
}

/* Another disk's end of scan drops half-found blocks, but not while the other half may follow. */
START_TEST(half_of_a_block_waits_for_the_end_of_its_own_scan)
    {
        static const struct found found[] = {
            {.key = "m/c/0", .group = "m/c", .part = 0, .parts = 2, .length = 100, .segment = 1},
            {.key = "m/c/1",
             .group = "m/c",
             .part = 1,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 4096}};
        struct node *node = node_disks();
        tierer_select(0, stores[0]);
        tierer_found(node, &found[0], 1, true, false, NULL);
        tierer_select(1, stores[1]);
        tierer_ready(node);
        tierer_select(0, stores[0]);
        tierer_found(node, &found[1], 1, false, true, NULL);
        ck_assert(node_is_visible(node, "m/c/0") && node_is_visible(node, "m/c/1"));
        node_end(node);
    }
END_TEST

/* ---- distribution over disks ---- */

/* Regression: it got a tombstone after 5 s, and the block was lost when the other disk appeared. */
START_TEST(half_of_a_block_waits_for_a_disk_that_comes_late)
    {
        static const struct found found[] = {
            {.key = "m/c/0", .group = "m/c", .part = 0, .parts = 2, .length = 100, .segment = 1},
            {.key = "m/c/1",
             .group = "m/c",
             .part = 1,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 4096}};
        struct node *node = node_start(settings);
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_found(node, &found[i], 1, true, true, NULL);
            fake_advance(&node->fake, 16 * SL_NS_PER_S);
            ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        }
        ck_assert(node_is_visible(node, "m/c/0") && node_is_visible(node, "m/c/1"));
        node_end(node);
    }
END_TEST

static const struct found half = {"m/c/0", "m/c", 0, 2, 100, 1, 4096, NULL};

/* The other disk never appears. Regression: its slot stayed in use forever, without a report. */
START_TEST(half_of_a_block_waits_an_hour_for_a_disk_that_does_not_come)
    {
        struct node *node = node_start(settings);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &half, 1, true, true, NULL);
        fake_advance(&node->fake, 3500 * SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "half_block_count"), 1);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        if (_i == 1) { /* it disappears as well, and will scan again */
            fake_process_end(&node->fake, proc_of(TIERER_PID));
        }

        fake_advance(&node->fake, 110 * SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "half_block_count"), 0);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), _i == 0);
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 0);
        ck_assert(node_metric(node, "forget_pending_count") == (_i == 1)); /* none for the other */
        node_end(node);
    }
END_TEST

/* The dropped half's tombstone exists already. Regression: the next registrar did not know it. */
START_TEST(a_removal_from_a_disk_that_is_away_outlives_the_registrar)
    {
        struct node *node = node_start(settings);
        sl_err code;
        node_client(node, "client.1", 11);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &half, 1, true, true, NULL);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_advance(&node->fake, 3610 * SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 1);

        ck_assert_int_eq(removed(node, remove_ask(node, half.key)), SL_ERR_DISK_AWAY);
        node_restart(node);
        tierer_arrive(node, TIERER_PID + 7);
        tierer_found(node, &half, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "half_block_count"), 0);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

/* A put over another half while the disk is missing records that the disk may hold more. That does
 * not end the wait. */
START_TEST(half_of_a_block_waits_for_a_disk_that_comes_again)
    {
        static const struct found found[] = {
            {"m/c/0", "m/c", 0, 2, 100, 1, 4096, NULL},
            {"m/d/0", "m/d", 0, 2, 100, 1, 8192, NULL},
            {"m/c/1", "m/c", 1, 2, 100, 1, 4096, NULL},
        };
        struct node *node = node_start(settings);
        disk_come(node, 0, stores[0], TIERER_PID);
        node_client(node, "client.1", 11);
        tierer_found(node, found, 2, true, true, NULL);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        node_put(node, "client.1", "m/d/0", 100);
        fake_advance(&node->fake, 16 * SL_NS_PER_S);
        tierer_select(1, stores[1]);
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &found[2], 1, true, true, NULL);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID + 2);
        tierer_found(node, found, 1, true, true, NULL);
        ck_assert(node_is_visible(node, "m/c/0") && node_is_visible(node, "m/c/1"));
        node_end(node);
    }
END_TEST

/* As an object, and as a part of another block. Regression: the key was busy meanwhile. */
START_TEST(a_put_under_the_key_of_half_of_a_block_takes_its_place)
    {
        static struct grants grants;
        const struct want part = {.key = "m/c/0", .length = 100, .group = 1};
        struct reserve_ask block = {.sender = "client.1",
                                    .op_id = 7,
                                    .wants = &part,
                                    .count = 1,
                                    .group_key = _i == 1 ? "m/other" : "m/c",
                                    .part_count = 1};
        const char *const keys[] = {"m/c/0"};
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &half, 1, true, true, NULL);

        if (_i == 0) {
            node_put(node, "client.1", "m/c/0", 100);
        } else {
            ck_assert(node_reserve(node, &block, &grants));
            ck_assert_uint_eq(grants.at[0].code, SL_OK);
            node_commit_all(node, "client.1", keys, grants.at, 1, false, NULL);
        }

        ck_assert(node_is_visible(node, "m/c/0"));
        ck_assert_uint_eq(node_metric(node, "half_block_count"), 0);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        ck_assert_int_eq(slot_of(node, "m/c/0"), 0);
        node_end(node);
    }
END_TEST

START_TEST(values_are_spread_and_read_from_where_they_are)
    {
        struct node *node = node_disks();
        put_durable(node);
        uint32_t on_a = count_on(node, 0);
        uint32_t on_b = count_on(node, 1);
        ck_assert_uint_eq(on_a + on_b, MANY);
        ck_assert_msg(on_a > 0 && on_b > 0, "%u on A, %u on B", on_a, on_b);
        evict_all(node);
        uint32_t a = one_on(node, 0);
        uint32_t b = one_on(node, 1);
        ck_assert(!in_memory(node, key_of(a)) && !in_memory(node, key_of(b)));

        uint64_t from_a = promote(node, key_of(a));
        uint64_t from_b = promote(node, key_of(b));

        ck_assert_uint_eq(read_from(node, 1), 1);
        ck_assert_int_eq(promoted(node, from_b), SL_OK);
        ck_assert_int_eq(promoted(node, from_a), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(read_from(node, 0), 1);
        ck_assert_int_eq(promoted(node, from_a), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(the_disk_with_fewer_bytes_on_their_way_gets_the_next)
    {
        struct node *node = node_disks();
        struct sl_msg request;
        node_put(node, "client.1", "first", 500000);
        tierer_select(0, stores[0]);
        bool first_is_a = fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request);

        node_put(node, "client.1", "second", 5000);
        node_put(node, "client.1", "third", 5000);

        const char *other = first_is_a ? "tierer.1" : "tierer.0";
        uint32_t to_other = 0;
        while (fake_take(&node->fake, other, SL_MSG_DISK_WRITE, &request)) {
            to_other += (uint32_t)request.body.disk_write.items.count;
        }
        ck_assert_uint_eq(to_other, 2);
        node_end(node);
    }
END_TEST

START_TEST(disk_that_answers_nothing_holds_a_bounded_part)
    {
        struct node *node = node_disks();
        uint32_t written = 0;
        for (uint32_t i = 0; i < 200; i++) { /* A never answers */
            char key[16];
            (void)snprintf(key, sizeof(key), "x%u", i);
            node_put(node, "client.1", key, 4096);
            written += write_to(node, 1);
        }

        ck_assert_uint_ge(written, 200 - 16);
        ck_assert_uint_le(node_metric(node, "write_behind_pending_count"), 16);
        node_end(node);
    }
END_TEST

/* ---- one of them fails ---- */

START_TEST(disk_that_refuses_writes_costs_nothing)
    {
        struct node *node = node_disks();
        struct sl_msg flush = {.type = SL_MSG_FLUSH, .budget_ns = 60 * SL_NS_PER_S}, reply;
        put_many(node);
        tierer_select(0, stores[0]);
        ck_assert_uint_gt(tierer_write(node, 0, SL_ERR_IO), 0);

        for (uint32_t i = 0; i < MANY && count_on(node, 1) < MANY; i++) {
            (void)write_to(node, 1);
            tierer_select(0, stores[0]);
            (void)tierer_write(node, 0, SL_ERR_IO);
        }

        ck_assert_uint_eq(count_on(node, 1), MANY);
        fake_give(&node->fake, "client.1", &flush);
        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(death_of_a_tierer_costs_its_own_objects_until_it_is_back)
    {
        struct node *node = node_disks();
        put_durable(node);
        evict_all(node);
        uint32_t a = one_on(node, 0);
        uint32_t b = one_on(node, 1);
        fake_process_end(&node->fake, proc_of(TIERER_PID));

        uint64_t from_a = promote(node, key_of(a));
        uint64_t from_b = promote(node, key_of(b));
        ck_assert_uint_eq(read_from(node, 1), 1);
        ck_assert_int_eq(promoted(node, from_b), SL_OK);
        ck_assert_int_eq(promoted(node, from_a), SL_ERR_INCOMPLETE); /* until its deadline */
        node_put(node, "client.1", "new", 5000);
        ck_assert_uint_eq(write_to(node, 1), 1);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID + 7);
        const struct found found = found_of(node, key_of(a));
        tierer_found(node, &found, 1, true, true, NULL);
        ck_assert_uint_eq(read_from(node, 0), 1);
        ck_assert_int_eq(promoted(node, from_a), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(eviction_goes_on_with_the_disks_that_are_left)
    {
        struct node *node = node_disks();
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_advance(&node->fake, 20 * SL_NS_PER_S);
        char key[16];
        for (uint32_t i = 0; i < 8; i++) {
            (void)snprintf(key, sizeof(key), "big%u", i);
            node_put(node, "client.1", key, BIG);
            ck_assert_uint_eq(write_to(node, 1), 1);
        }
        for (uint32_t i = 0; i < 8; i++) {
            (void)snprintf(key, sizeof(key), "big%u", i);
            ck_assert_msg(node_is_visible(node, key), "%s", key);
        }
        ck_assert_uint_eq(node_metric(node, "dropped_count"), 0);
        node_end(node);
    }
END_TEST

/* ---- removal ---- */

START_TEST(removal_waits_for_the_disk_that_is_away_and_outlives_it)
    {
        struct node *node = node_disks();
        put_durable(node);
        uint32_t a = one_on(node, 0);
        const struct found found = found_of(node, key_of(a));
        struct sl_entry entry;
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        uint64_t seq = remove_ask(node, key_of(a));
        ck_assert(!node_is_visible(node, key_of(a)));
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        struct sl_item_grant grant = node_grant(node, "client.1", key_of(a), 777); /* another one */
        ck_assert_int_eq(node_commit(node, "client.1", key_of(a), &grant), SL_OK);
        ck_assert_uint_eq(write_to(node, 1), 1); /* A does not delay it */

        sl_err code;
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID + 7);
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        ck_assert_int_eq(removed(node, seq), SL_OK);
        ck_assert(node_entry(node, key_of(a), &entry));
        ck_assert_uint_eq(entry.extent.length_bytes, 777);
        node_end(node);
    }
END_TEST

/* Another copy was unknown. No value is written under a key with a tombstone, so the tombstone
 * covers that copy as well. */
START_TEST(removal_is_of_whatever_the_disk_has_under_the_key)
    {
        struct node *node = node_disks();
        struct sl_msg request;
        sl_err code;
        put_durable(node);
        uint32_t a = one_on(node, 0);
        struct found found = found_of(node, key_of(a));
        found.segment++;
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        uint64_t seq = remove_ask(node, key_of(a));

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID + 7);
        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, key_of(a)));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &request));
        ck_assert_uint_eq(request.body.disk_forget.items.count, 1);
        ck_assert_uint_eq(request.body.disk_forget.items.at[0].segment, 0); /* wherever it is */
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        node_end(node);
    }
END_TEST

/* The answer does not wait for a disk without a tierer, but the tombstone does. */
START_TEST(removal_is_answered_at_once_when_its_disk_has_been_away_for_long)
    {
        struct node *node = node_disks();
        put_durable(node);
        uint32_t a = one_on(node, 0), b = one_on(node, 1);
        const struct found found = found_of(node, key_of(a));
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        uint64_t before = remove_ask(node, key_of(a));
        fake_advance(&node->fake, 4 * SL_NS_PER_S);
        ck_assert_int_eq(removed(node, before), SL_ERR_INCOMPLETE);
        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_int_eq(removed(node, before), SL_ERR_DISK_AWAY);
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(removed(node, remove_ask(node, key_of(a))), SL_ERR_DISK_AWAY);
        }
        uint64_t on_b = remove_ask(node, key_of(b));
        tierer_select(1, stores[1]);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(removed(node, on_b), SL_OK);

        sl_err code;
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID + 7);
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1); /* one, however often it was asked for */
        ck_assert(!node_is_visible(node, key_of(a)));
        node_end(node);
    }
END_TEST

START_TEST(nothing_waits_for_a_disk_tier_that_never_came)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 5000);
        const struct sl_text key = sl_text_of("k");
        struct sl_msg flush = {.type = SL_MSG_FLUSH, .budget_ns = 60 * SL_NS_PER_S};
        struct sl_msg one = flush, all = flush, reply;
        one.type = SL_MSG_REMOVE;
        one.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        all.type = SL_MSG_REMOVE;
        fake_advance(&node->fake, 6 * SL_NS_PER_S);

        fake_give(&node->fake, "client.1", &flush);
        fake_advance(&node->fake, 200 * SL_NS_PER_MS);
        fake_give(&node->fake, "client.1", &one);
        ck_assert_int_eq(removed(node, one.seq), SL_ERR_DISK_AWAY);
        all.body.remove.all = true;
        fake_give(&node->fake, "client.1", &all);

        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_DISK_AWAY);
        ck_assert_msg(strstr(reply.text.at, "no disk tier") != NULL, "%s", reply.text.at);
        ck_assert(fake_take_reply(&node->fake, "client.1", all.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_DISK_AWAY);
        ck_assert(!node_is_visible(node, "k"));
        node_end(node);
    }
END_TEST

START_TEST(what_two_disks_may_hold_is_removed_from_both)
    {
        struct node *node = node_disks();
        struct sl_msg request;
        node_put(node, "client.1", "twice", 5000);
        bool to_a = fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request);
        uint32_t died = to_a ? 0 : 1;
        fake_process_end(&node->fake, proc_of(TIERER_PID + died)); /* it may have written it */
        ck_assert_uint_eq(write_to(node, 1 - died), 1);

        uint64_t seq = remove_ask(node, "twice");
        tierer_select(1 - died, stores[1 - died]);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        tierer_select(died, stores[died]);
        tierer_arrive(node, TIERER_PID + 7);
        const struct found found = {.key = "twice", .length = 5000, .segment = 9, .offset = 4096};
        sl_err code;
        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(removal_waits_for_disks_that_have_not_told_yet)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        disk_come(node, 0, stores[0], TIERER_PID);
        uint64_t seq = remove_ask(node, "old");
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);

        const struct found found = {.key = "old", .length = 5000, .segment = 9, .offset = 4096};
        sl_err code;
        tierer_select(1, stores[1]);
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_int_ne(removed(node, seq), SL_ERR_INCOMPLETE);
        ck_assert(!node_is_visible(node, "old"));
        node_end(node);
    }
END_TEST

START_TEST(second_copy_is_known_and_goes_with_the_first)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        const struct found found = {.key = "twice", .length = 5000, .segment = 9, .offset = 4096};
        sl_err codes[2];
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_found(node, &found, 1, true, true, &codes[i]);
        }
        ck_assert_int_eq(codes[0], SL_OK);
        ck_assert_int_eq(codes[1], SL_ERR_NOT_FOUND);
        ck_assert_int_eq(slot_of(node, "twice"), 0);

        uint64_t seq = remove_ask(node, "twice");
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
            tierer_select(i, stores[i]);
            ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        }

        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

/* 0: the disk left and another one is at its path; 1: it is scanned again and has lost the value.
 */
START_TEST(second_copy_is_forgotten_when_the_first_is_swept)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        const struct found found[] = {
            {.key = "twice", .length = 5000, .segment = 9, .offset = 4096},
            {.key = "once", .length = 5000, .segment = 9, .offset = 12288}};
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_found(node, found, i == 0 ? 2 : 1, true, true, NULL);
        }

        fake_process_end(&node->fake, proc_of(TIERER_PID));
        tierer_select(0, stores[_i == 0 ? 2 : 0]);
        tierer_arrive(node, TIERER_PID + 2);
        tierer_ready(node);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(!node_is_visible(node, "twice") && !node_is_visible(node, "once"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        tierer_select(1, stores[1]);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

/* The scan does not report a value again that it reported before the removal. */
START_TEST(copy_that_a_scan_has_told_is_removed_when_the_scan_goes_on)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        const struct found found = {.key = "twice", .length = 5000, .segment = 9, .offset = 4096};
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_found(node, &found, 1, true, i == 0, NULL);
        }

        uint64_t seq = remove_ask(node, "twice");
        tierer_select(1, stores[1]);
        tierer_found(node, NULL, 0, false, true, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
            tierer_select(i, stores[i]);
            ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        }

        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(copy_found_while_another_is_written_is_removed_too)
    {
        struct node *node = node_disks();
        struct sl_msg request;
        node_put(node, "client.1", "twice", 5000);
        bool to_a = fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request);
        uint32_t writes = to_a ? 0 : 1;
        uint32_t tells = 1 - writes;
        const struct found found = {.key = "twice", .length = 5000, .segment = 9, .offset = 4096};
        sl_err code;
        fake_process_end(&node->fake, proc_of(TIERER_PID + tells));
        tierer_select(tells, stores[tells]);
        tierer_arrive(node, TIERER_PID + 7);
        tierer_found(node, &found, 1, true, true, &code);
        fake_advance(&node->fake, 200 * SL_NS_PER_MS); /* the request is sent again */
        ck_assert_uint_eq(write_to(node, writes), 1);

        uint64_t seq = remove_ask(node, "twice");
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
            tierer_select(i, stores[i]);
            ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        }

        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

/* The scan reports older bytes of the key first, and then those of the write. */
START_TEST(value_that_was_removed_while_it_was_written_is_in_no_scan)
    {
        struct node *node = node_disks();
        struct sl_msg request;
        const struct found old = {
            .key = "twice", .length = 5000, .segment = 9, .digest_key = "old"};
        const struct found late = {.key = "twice", .length = 5000, .segment = 10, .offset = 4096};
        sl_err code;
        node_put(node, "client.1", "twice", 5000);
        uint32_t at = fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request) ? 0 : 1;
        ck_assert(at == 0 || fake_take(&node->fake, "tierer.1", SL_MSG_DISK_WRITE, &request));
        struct sl_item_spilled spilled = {.generation =
                                              request.body.disk_write.items.at[0].generation,
                                          .segment = late.segment,
                                          .disk_offset_bytes = late.offset};
        struct sl_msg reply = {.body.disk_write_reply.items = {.at = &spilled, .count = 1}};
        tierer_select(at, stores[at]);
        tierer_found(node, NULL, 0, true, false, NULL);
        uint64_t seq = remove_ask(node, "twice");
        tierer_found(node, &old, 1, false, false, &code);
        fake_answer(&node->fake, at == 0 ? "tierer.0" : "tierer.1", &request, &reply);
        tierer_found(node, &late, 1, false, true, &code);

        ck_assert(!node_is_visible(node, "twice"));
        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        ck_assert(fake_take(&node->fake, at == 0 ? "tierer.0" : "tierer.1", SL_MSG_DISK_FORGET,
                            &request));
        ck_assert_uint_eq(request.body.disk_forget.items.count, 1);
        ck_assert_uint_eq(request.body.disk_forget.items.at[0].segment, 0); /* wherever it is */
        node_end(node);
    }
END_TEST

/* ---- blocks by their keys: a disk only knows the keys of parts ---- */

static const struct found block[] = {{"m/b/0", "m/b", 0, 2, 100, 9, 4096, NULL},
                                     {"m/b/1", "m/b", 1, 2, 100, 9, 8192, NULL}};

enum when { BEFORE_THE_DISK, BEFORE_THE_SCAN, WITHIN_THE_SCAN, BETWEEN_ITS_PARTS, WHENS };
/* The event during the scan. */
enum what { NOTHING, TIERER_DIES, REGISTRAR_DIES, WHATS };

START_TEST(a_block_that_was_removed_by_its_key_is_not_found)
    {
        struct node *node = node_start(settings);
        enum when when = (enum when)(_i / WHATS);
        enum what what = (enum what)(_i % WHATS);
        sl_err codes[2];
        uint64_t seq = 0;
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        for (enum when now = BEFORE_THE_DISK; now <= when; now++) {
            tierer_select(0, stores[0]);
            if (now == BEFORE_THE_SCAN) {
                tierer_arrive(node, TIERER_PID);
            } else if (now > BEFORE_THE_SCAN) {
                tierer_found(node, block, now == BETWEEN_ITS_PARTS, now == WITHIN_THE_SCAN, false,
                             codes);
            }
        }

        seq = remove_ask(node, "m/b");

        if (what == TIERER_DIES && when != BEFORE_THE_DISK) {
            fake_process_end(&node->fake, proc_of(TIERER_PID));
        } else if (what == REGISTRAR_DIES) {
            node_restart(node);
            node_client(node, "client.1", 11);
            seq = remove_ask(node, "m/b");
            tierer_select(1, stores[1]);
            tierer_ready(node);
            (void)tierer_forget(node, SL_ERR_NOT_FOUND);
            tierer_select(0, stores[0]);
        }
        bool anew = when == BEFORE_THE_DISK || what == TIERER_DIES;
        if (anew) {
            tierer_arrive(node, TIERER_PID + 7);
        }
        bool begins = anew || what == REGISTRAR_DIES || when == BEFORE_THE_SCAN;
        uint32_t from = !begins && when == BETWEEN_ITS_PARTS ? 1 : 0;
        tierer_found(node, &block[from], 2 - from, begins, false, codes);
        tierer_found(node, &block[from], 2 - from, false, true, codes); /* as after SL_ERR_BUSY */

        ck_assert_int_eq(removed(node, seq), SL_ERR_INCOMPLETE);
        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1"));
        /* one for each part, and the block's if the scan may have reported it before */
        ck_assert_uint_eq(tierer_forget(node, SL_OK),
                          when >= WITHIN_THE_SCAN && what == NOTHING ? 3 : 2);
        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_removed_block_does_not_return_with_a_missing_disk)
    {
        struct node *node = node_start(settings);
        sl_err codes[2];
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        ck_assert_int_eq(removed(node, remove_ask(node, "m/b")), SL_ERR_DISK_AWAY);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, block, 2, true, true, codes);

        ck_assert(codes[0] == SL_ERR_NOT_FOUND && codes[1] == SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "m/b/0"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 2);
        node_end(node);
    }
END_TEST

/* Ends a scan, without values; returns the code of the answer. */
static sl_err scan_ends(struct node *node, uint32_t number)
{
    char name[16], store[17] = "";
    struct sl_msg msg = {.type = SL_MSG_DISK_FOUND}, reply;
    (void)snprintf(name, sizeof(name), "tierer.%u", number);
    (void)snprintf(store, sizeof(store), "%s", stores[number]);
    msg.body.disk_found.last = true;
    msg.body.disk_found.store = (struct sl_bytes){store, 16};
    fake_give(&node->fake, name, &msg);
    ck_assert(fake_take_reply(&node->fake, name, msg.seq, &reply));
    return reply.code;
}

/* Tombstones for disks that have not appeared are copied to each that appears: all of them fit. */
START_TEST(what_is_removed_before_a_disk_comes_has_room_for_it)
    {
        static const char *const roomy[] = {"disk",         "1GiB",  "disk_path", "/one,/two",
                                            "index_memory", "64MiB", NULL};
        static char keys[64][16];
        struct found found[64];
        struct node *node = node_start(roomy);
        uint32_t count = 0;
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        sl_err code = SL_ERR_DISK_AWAY;
        for (; code == SL_ERR_DISK_AWAY && count < 40000; count++) {
            (void)snprintf(keys[0], sizeof(keys[0]), "k%u", count);
            code = removed(node, remove_ask(node, keys[0]));
        }
        ck_assert_int_eq(code, SL_ERR_LIMIT); /* at once: no disk would free space */
        ck_assert_uint_gt(--count, 25000);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t n = 0; n + 64 <= count; n += 64) {
            sl_err codes[64];
            for (uint32_t i = 0; i < 64; i++) {
                (void)snprintf(keys[i], sizeof(keys[i]), "k%u", n + i);
                found[i] = (struct found){.key = keys[i],
                                          .length = 100,
                                          .segment = 9,
                                          .offset = (n + i) * UINT64_C(4096)};
            }
            tierer_found(node, found, 64, n == 0, false, codes);
            for (uint32_t i = 0; i < 64; i++) {
                ck_assert_msg(codes[i] == SL_ERR_NOT_FOUND, "%s is back", keys[i]);
            }
        }
        node_end(node);
    }
END_TEST

/* The number of tombstones is limited, and blocks may have more parts than that. */
START_TEST(blocks_whose_parts_find_no_room_for_tombstones_stay_removed)
    {
        static const char *const roomy[] = {"disk",         "1GiB",  "disk_path", "/one,/two",
                                            "index_memory", "64MiB", NULL};
        const uint32_t blocks = 30000, fit = (65536 - blocks) / 2;
        struct node *node = node_start(roomy);
        char keys[2][24], name[16];
        sl_err codes[2];
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (uint32_t n = 0; n < blocks; n++) {
            (void)snprintf(name, sizeof(name), "m/%u", n);
            ck_assert_int_eq(removed(node, remove_ask(node, name)), SL_ERR_DISK_AWAY);
        }

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t scan = 0; scan < 2; scan++) {
            uint32_t first = scan == 0 ? 0 : fit; /* the others are forgotten there */
            for (uint32_t n = first; n < blocks; n++) {
                struct found found[2];
                (void)snprintf(name, sizeof(name), "m/%u", n);
                for (uint32_t i = 0; i < 2; i++) {
                    (void)snprintf(keys[i], sizeof(keys[i]), "m/%u/%u", n, i);
                    found[i] =
                        (struct found){keys[i], name, i, 2, 100, 9, (2 * n + i) * 4096ul, NULL};
                }
                tierer_found(node, found, 2, n == first, false, codes);
                ck_assert(codes[0] == SL_ERR_NOT_FOUND && codes[1] == SL_ERR_NOT_FOUND);
            }
            ck_assert_int_eq(scan_ends(node, 0), scan == 0 ? SL_ERR_LIMIT : SL_OK);
            fake_advance(&node->fake, SL_NS_PER_S);
            while (tierer_forget(node, SL_OK) > 0) {
                fake_advance(&node->fake, SL_NS_PER_MS);
            }
        }
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 0);
        node_end(node);
    }
END_TEST

/* A missing disk may never appear: evictions leave half of the tombstones to removals. */
START_TEST(halves_that_are_given_up_leave_room_for_removals)
    {
        static const char *const three[] = {
            "disk", "1GiB", "disk_path", "/one,/two,/three", "index_memory", "64MiB", NULL};
        struct node *node = node_start(three);
        char key[16];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 2; i++) {
            tierer_select(i, stores[i]);
            tierer_arrive(node, TIERER_PID + i);
            tierer_found(node, &half, 1, true, true, NULL); /* the second one has a copy */
        }
        fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (uint32_t i = 0; i < 17000; i++) { /* each counts once more for the third disk */
            (void)snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(removed(node, remove_ask(node, key)), SL_ERR_DISK_AWAY);
        }

        fake_advance(&node->fake, 3610 * SL_NS_PER_S);
        tierer_select(0, stores[0]);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        ck_assert_uint_eq(node_metric(node, "half_block_count"), 0);
        ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 17000);
        node_end(node);
    }
END_TEST

/* The same while a disk is being scanned, which gets no tombstones: each value for which the index
 * has no space evicts others. */
START_TEST(what_leaves_during_a_scan_leaves_room_for_removals)
    {
        static const char *const one[] = {"disk", "1GiB", "disk_path", "/one", NULL};
        static char keys[64][16];
        struct found found[64];
        struct node *node = node_start(one);
        node_client(node, "client.1", 11);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t n = 0; n < 120000; n += 64) {
            for (uint32_t i = 0; i < 64; i++) {
                (void)snprintf(keys[i], sizeof(keys[i]), "k%u", n + i);
                found[i] = (struct found){
                    .key = keys[i], .length = 100, .segment = 9, .offset = (n + i) * 4096ul};
            }
            tierer_found(node, found, 64, n == 0, false, NULL);
        }

        ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 32768);
        ck_assert_int_eq(removed(node, remove_ask(node, keys[0])), SL_ERR_INCOMPLETE);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_was_stored_after_its_removal_stays)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        uint64_t seq = remove_ask(node, "m/b");
        node_put_block(node, "client.1", "m/b", 2, 100, 0);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, block, 2, true, true, NULL);
        (void)tierer_forget(node, SL_OK);

        ck_assert_int_eq(removed(node, seq), SL_OK);
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        node_end(node);
    }
END_TEST

/* The late disk has other bytes of the block. The index has the parts, but the removal still
 * applies to that disk. */
START_TEST(a_block_with_other_bytes_leaves_a_disk_that_comes_late)
    {
        static const struct found before[] = {{"m/b/0", "m/b", 0, 2, 100, 9, 4096, "before"},
                                              {"m/b/1", "m/b", 1, 2, 100, 9, 8192, "before"}};
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        uint64_t seq = remove_ask(node, "m/b");
        node_put_block(node, "client.1", "m/b", 2, 100, 0);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, before, 2, true, true, NULL);

        ck_assert_uint_eq(tierer_forget(node, SL_OK), 2);
        ck_assert_int_eq(removed(node, seq), SL_OK);
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        node_end(node);
    }
END_TEST

/* The block was put again, and its write is unanswered: the tombstones are for the values that the
 * scan reported. */
START_TEST(a_rewritten_block_stays_when_a_scan_reports_the_removed_one)
    {
        static const char *const one[] = {"disk", "1GiB", "disk_path", "/one", NULL};
        static const struct found before[] = {{"m/b/0", "m/b", 0, 2, 100, 9, 4096, "before"},
                                              {"m/b/1", "m/b", 1, 2, 100, 9, 8192, "before"}};
        struct node *node = node_start(one);
        struct sl_msg forget;
        node_client(node, "client.1", 11);
        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, NULL, 0, true, false, NULL);
        (void)remove_ask(node, "m/b");
        tierer_found(node, NULL, 0, false, true, NULL);
        ck_assert_uint_eq(tierer_forget(node, SL_ERR_IO), 1); /* it is asked again */
        node_put_block(node, "client.1", "m/b", 2, 100, 0);

        tierer_found(node, before, 2, true, true, NULL);
        ck_assert_uint_eq(tierer_write(node, 10, SL_OK), 2);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &forget));
        ck_assert_uint_eq(forget.body.disk_forget.items.count, 2);
        ck_assert_uint_eq(forget.body.disk_forget.items.at[0].segment, 9);
        ck_assert_uint_eq(forget.body.disk_forget.items.at[1].segment, 9);
        node_end(node);
    }
END_TEST

/* Half of a block was found when the block is put again. The first one's other half, on a late
 * disk, must not be combined with half of the second one in a new index. */
START_TEST(a_block_that_is_put_over_its_half_leaves_the_disk_of_the_other_half)
    {
        static const struct found before[] = {{"m/b/0", "m/b", 0, 2, 100, 9, 4096, "before"},
                                              {"m/b/1", "m/b", 1, 2, 100, 9, 8192, "before"}};
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_select(1, stores[1]);
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &before[0], 1, true, true, NULL);
        node_put_block(node, "client.1", "m/b", 2, 100, 0);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &before[1], 1, true, true, NULL);

        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        node_end(node);
    }
END_TEST

/* It is another block of that key, invisible before its commit. */
START_TEST(a_block_is_removed_from_a_disk_while_it_is_written)
    {
        struct node *node = node_start(settings);
        static struct grants grants;
        const struct want want = {.key = "m/b/0", .length = 100, .group = 1};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 7,
                                  .wants = &want,
                                  .count = 1,
                                  .group_key = "m/b",
                                  .part_count = 2};
        sl_err codes[2];
        node_client(node, "client.1", 11);
        disk_come(node, 1, stores[1], TIERER_PID + 1);
        ck_assert(node_reserve(node, &ask, &grants));
        uint64_t seq = remove_ask(node, "m/b");
        node_abort_op(node, "client.1", 7);

        tierer_select(0, stores[0]);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, block, 2, true, true, codes);

        ck_assert(codes[0] == SL_ERR_NOT_FOUND && codes[1] == SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 2);
        ck_assert_int_eq(removed(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

/* ---- a disk is known by its name ---- */

/* Restarts the node with its memory, and other disks on its paths. */
static void restart_with(struct node *node, const char *paths)
{
    fake_process_end(&node->fake, proc_of(TIERER_PID));
    fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
    fake_set(&node->fake, "disk_path", paths);
    node_restart(node);
}

/* The disk reports all that it held before the restart. */
static void disk_tells(struct node *node, uint32_t number, const char *store, int slot,
                       uint32_t pid)
{
    struct found found[MANY];
    static char keys[MANY][16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        if (slot_of(node, key_of(i)) == slot) {
            (void)snprintf(keys[count], sizeof(keys[0]), "k%u", i);
            found[count] = found_of(node, keys[count]);
            count++;
        }
    }
    tierer_select(number, store);
    tierer_arrive(node, pid);
    tierer_found(node, found, count, true, true, NULL);
}

START_TEST(paths_in_another_order_find_everything)
    {
        struct node *node = node_disks();
        put_durable(node);
        evict_all(node);
        uint32_t a = one_on(node, 0);
        uint32_t on_a = count_on(node, 0);
        restart_with(node, "/two,/one");

        disk_tells(node, 0, stores[1], 1, TIERER_PID + 20);
        disk_tells(node, 1, stores[0], 0, TIERER_PID + 21);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(count_on(node, 0), on_a);
        ck_assert_uint_eq(count_on(node, 1), MANY - on_a);
        uint64_t seq = promote(node, key_of(a));
        ck_assert_uint_eq(read_from(node, 0), 0);
        tierer_select(1, stores[0]);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promoted(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(path_taken_out_costs_its_objects_alone)
    {
        struct node *node = node_disks();
        put_durable(node);
        evict_all(node);
        uint32_t a = one_on(node, 0);
        uint32_t on_b = count_on(node, 1);
        node_put(node, "client.1", "kept", 5000); /* in memory, on A or B or on its way */
        restart_with(node, "/two");
        uint64_t seq = promote(node, key_of(a));
        ck_assert_int_eq(promoted(node, seq), SL_ERR_INCOMPLETE); /* it may still appear */

        disk_tells(node, 0, stores[1], 1, TIERER_PID + 20);
        for (uint32_t i = 0; i < 10; i++) {
            fake_advance(&node->fake, SL_NS_PER_S / 2);
            (void)write_to(node, 0);
        }

        ck_assert_int_eq(promoted(node, seq), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(count_on(node, 0), 0);
        ck_assert_uint_eq(count_on(node, 1), on_b);
        ck_assert(!node_is_visible(node, key_of(a)));
        ck_assert(node_is_visible(node, "kept"));
        ck_assert_int_eq(slot_of(node, "kept"), 1);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 1);
        node_end(node);
    }
END_TEST

START_TEST(path_that_was_added_takes_its_share)
    {
        struct node *node = node_disks();
        put_durable(node);
        uint32_t on_a = count_on(node, 0);
        restart_with(node, "/three,/one,/two");
        disk_come(node, 0, stores[2], TIERER_PID + 22);
        disk_tells(node, 1, stores[0], 0, TIERER_PID + 20);
        disk_tells(node, 2, stores[1], 1, TIERER_PID + 21);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(count_on(node, 0), on_a);
        ck_assert_uint_eq(count_on(node, 1), MANY - on_a);

        uint32_t written = 0;
        for (uint32_t i = 0; i < 40; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "new%u", i);
            node_put(node, "client.1", key, 4096);
            for (uint32_t tierer = 0; tierer < 3; tierer++) {
                tierer_select(tierer, "");
                uint32_t now = tierer_write(node, 3, SL_OK);
                written += tierer == 0 ? now : 0;
            }
        }

        ck_assert_uint_gt(written, 0);
        node_end(node);
    }
END_TEST

START_TEST(directory_that_serves_two_paths_is_refused)
    {
        struct node *node = node_start(settings);
        struct sl_msg found = {.type = SL_MSG_DISK_FOUND}, reply, fence, ok = {.code = SL_OK};
        disk_come(node, 0, stores[0], TIERER_PID);
        tierer_select(1, stores[0]);
        tierer_arrive(node, TIERER_PID + 1);
        ck_assert(fake_take(&node->fake, "tierer.1", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "tierer.1", &fence, &ok);
        char name[17] = "";
        (void)snprintf(name, sizeof(name), "%s", stores[0]);
        found.body.disk_found.first = true;
        found.body.disk_found.store = (struct sl_bytes){name, 16};

        fake_give(&node->fake, "tierer.1", &found);

        ck_assert(fake_take_reply(&node->fake, "tierer.1", found.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "tierer.1 and tierer.0"));
        node_end(node);
    }
END_TEST

START_TEST(tierer_without_a_path_is_not_listened_to)
    {
        struct node *node = node_disks();
        struct sl_msg found = {.type = SL_MSG_DISK_FOUND}, reply;
        ck_assert_int_eq(node_hello(node, "tierer.2", "tierer", 950), SL_OK);
        found.body.disk_found.first = true;

        fake_give(&node->fake, "tierer.2", &found);

        ck_assert(fake_take_reply(&node->fake, "tierer.2", found.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        node_end(node);
    }
END_TEST

START_TEST(living_tierers_serve_a_new_registrar_at_once)
    {
        struct node *node = node_disks();
        put_durable(node);
        evict_all(node);
        uint32_t b = one_on(node, 1);
        node_restart(node);
        node_client(node, "client.1", 11);

        uint64_t seq = promote(node, key_of(b));

        ck_assert_uint_eq(read_from(node, 1), 1);
        ck_assert_int_eq(promoted(node, seq), SL_OK);
        node_end(node);
    }
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        half_of_a_block_waits_for_the_end_of_its_own_scan,
        half_of_a_block_waits_for_a_disk_that_comes_late,
        half_of_a_block_waits_for_a_disk_that_comes_again,
        a_removal_from_a_disk_that_is_away_outlives_the_registrar,
        values_are_spread_and_read_from_where_they_are,
        the_disk_with_fewer_bytes_on_their_way_gets_the_next,
        disk_that_answers_nothing_holds_a_bounded_part,
        disk_that_refuses_writes_costs_nothing,
        death_of_a_tierer_costs_its_own_objects_until_it_is_back,
        eviction_goes_on_with_the_disks_that_are_left,
        removal_waits_for_the_disk_that_is_away_and_outlives_it,
        removal_is_answered_at_once_when_its_disk_has_been_away_for_long,
        removal_is_of_whatever_the_disk_has_under_the_key,
        what_two_disks_may_hold_is_removed_from_both,
        removal_waits_for_disks_that_have_not_told_yet,
        second_copy_is_known_and_goes_with_the_first,
        copy_that_a_scan_has_told_is_removed_when_the_scan_goes_on,
        copy_found_while_another_is_written_is_removed_too,
        value_that_was_removed_while_it_was_written_is_in_no_scan,
        a_removed_block_does_not_return_with_a_missing_disk,
        what_is_removed_before_a_disk_comes_has_room_for_it,
        blocks_whose_parts_find_no_room_for_tombstones_stay_removed,
        halves_that_are_given_up_leave_room_for_removals,
        what_leaves_during_a_scan_leaves_room_for_removals,
        a_block_that_was_stored_after_its_removal_stays,
        a_block_with_other_bytes_leaves_a_disk_that_comes_late,
        a_rewritten_block_stays_when_a_scan_reports_the_removed_one,
        a_block_that_is_put_over_its_half_leaves_the_disk_of_the_other_half,
        a_block_is_removed_from_a_disk_while_it_is_written,
        paths_in_another_order_find_everything,
        path_taken_out_costs_its_objects_alone,
        path_that_was_added_takes_its_share,
        directory_that_serves_two_paths_is_refused,
        tierer_without_a_path_is_not_listened_to,
        living_tierers_serve_a_new_registrar_at_once,
    };
    Suite *suite = suite_create("registrar_disks");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    for (size_t i = 0; i < SL_COUNT(tests); i++) {
        tcase_add_test(all, tests[i]);
    }
    tcase_add_loop_test(all, a_block_that_was_removed_by_its_key_is_not_found, 0, WHENS * WHATS);
    tcase_add_loop_test(all, half_of_a_block_waits_an_hour_for_a_disk_that_does_not_come, 0, 2);
    tcase_add_loop_test(all, a_put_under_the_key_of_half_of_a_block_takes_its_place, 0, 3);
    tcase_add_loop_test(all, second_copy_is_forgotten_when_the_first_is_swept, 0, 2);
    tcase_add_test(all, nothing_waits_for_a_disk_tier_that_never_came);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
