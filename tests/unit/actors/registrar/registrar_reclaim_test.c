/* tests/unit/actors/registrar/registrar_reclaim_test.c - reclaiming a log file: which values are
 * lost with it, and which are rewritten. The test plays the tierer. */
#include "actors/registrar/records/units.h"
#include "runtime/policy/density/density.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#define LENGTH     (UINT64_C(64) * SL_KIB)
#define KEYS       32u
#define WAIT_MS    250u
#define SEGMENT    UINT64_C(1048576)
#define SEGMENT_BY (SEGMENT / 4 / LENGTH) /* values that are kept of one */

static const char *const settings[] = {"disk", "64MiB",    "disk_segment", "1MiB", "memory",
                                       "4MiB", "io_grace", "10s",          NULL};

static const char *key_of(uint32_t n)
{
    static char keys[4][16];
    static uint32_t turn;
    char *key = keys[turn++ % SL_COUNT(keys)];
    (void)snprintf(key, 16, "k%u", n);
    return key;
}

static bool on_disk(struct node *node, uint32_t n)
{
    struct sl_entry entry;
    return node_entry(node, key_of(n), &entry) && entry.disk.valid != 0;
}

static bool in_memory(struct node *node, uint32_t n)
{
    struct sl_entry entry;
    return node_entry(node, key_of(n), &entry) && entry.extent.generation != 0;
}

static uint64_t keys_ask(struct node *node, uint32_t type, uint32_t n)
{
    struct sl_text text = sl_text_of(key_of(n));
    struct sl_msg msg = {.type = type};
    if (type == SL_MSG_REMOVE) {
        msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    } else {
        msg.body.bring.keys = (struct sl_texts){.at = &text, .count = 1};
    }
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

/* Uses the value; one that is only on disk is read. */
static void want(struct node *node, uint32_t n)
{
    struct sl_msg reply;
    uint64_t seq = keys_ask(node, SL_MSG_BRING, n);
    bool cold = tierer_read(node, SL_OK) > 0;
    ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], cold ? SL_OK : SL_ERR_EXISTS);
}

/* Everything that may leave memory leaves it. */
static void squeeze(struct node *node)
{
    struct sl_item_grant grant = node_grant(node, "client.1", "squeeze", 4 * SL_MIB);
    ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
}

/* Values 0.. of LENGTH bytes are only in log file 1; those with a bit in `wanted` were used since
 * they were written. */
static struct node *node_with(uint32_t count, uint32_t wanted)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    for (uint32_t n = 0; n < count; n++) {
        node_put(node, "client.1", key_of(n), LENGTH);
    }
    ck_assert_uint_eq(tierer_write(node, 1, SL_OK), count);
    for (uint32_t n = 0; n < count; n++) {
        if ((wanted >> n & 1) != 0) {
            want(node, n);
        }
    }
    squeeze(node);
    for (uint32_t n = 0; n < count; n++) {
        ck_assert(on_disk(node, n) && !in_memory(node, n));
    }
    return node;
}

static uint32_t reclaim_segment; /* of the last one that was asked for */

static uint64_t reclaim_ask(struct node *node, uint32_t segment)
{
    reclaim_segment = segment;
    return tierer_reclaim(node, segment, false);
}

static bool reclaimed(struct node *node, uint64_t seq)
{
    return tierer_reclaimed(node, reclaim_segment, seq);
}

START_TEST(what_was_wanted_and_is_on_disk_alone_is_written_anew)
    {
        struct node *node = node_with(2, 1);

        uint64_t seq = reclaim_ask(node, 1);
        ck_assert(!reclaimed(node, seq));
        ck_assert(on_disk(node, 0)); /* nothing has changed yet */
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);

        ck_assert(reclaimed(node, seq));
        ck_assert(in_memory(node, 0) && !on_disk(node, 0));
        ck_assert(!node_is_visible(node, key_of(1)));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        struct sl_entry entry;
        ck_assert(node_entry(node, key_of(0), &entry));
        ck_assert_uint_eq(entry.disk.segment, 2);
        ck_assert_uint_eq(node_metric(node, "rewritten_count"), 1);
        ck_assert_uint_eq(node_metric(node, "rewritten_from_disk_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(nobody_wanted_it_since_so_it_goes_next_time)
    {
        struct node *node = node_with(1, 1);
        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert(reclaimed(node, seq));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        squeeze(node); /* it is on disk again, and leaves memory first */
        ck_assert(!in_memory(node, 0) && on_disk(node, 0));

        seq = reclaim_ask(node, 2);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, key_of(0)));
        node_end(node);
    }
END_TEST

START_TEST(a_share_of_the_segment_is_kept_what_was_wanted_last_first)
    {
        struct node *node = node_with(16, 0x000f);
        ck_assert_uint_ge(16, 2 * SEGMENT_BY);
        /* Then much was written, and others were used: their time has passed. */
        for (uint32_t i = 0; i < 40; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "later%u", i);
            node_put(node, "client.1", key, LENGTH);
            ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        }
        for (uint32_t n = 8; n < 8 + SEGMENT_BY; n++) {
            want(node, n);
        }
        squeeze(node);

        uint64_t seq = reclaim_ask(node, 1);
        (void)tierer_prefetch(node, SL_OK);

        ck_assert(reclaimed(node, seq));
        for (uint32_t n = 0; n < 16; n++) {
            bool kept = n >= 8 && n < 8 + SEGMENT_BY;
            ck_assert_msg(node_is_visible(node, key_of(n)) == kept, "value %u", n);
        }
        node_end(node);
    }
END_TEST

START_TEST(what_was_wanted_long_ago_is_not_kept)
    {
        struct node *node = node_with(1, 1);
        for (uint32_t i = 0; i < 40; i++) { /* more than half of what the disk holds */
            char key[16];
            (void)snprintf(key, sizeof(key), "later%u", i);
            node_put(node, "client.1", key, SL_MIB);
            ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        }

        uint64_t seq = reclaim_ask(node, 1);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, key_of(0)));
        node_end(node);
    }
END_TEST

START_TEST(a_reclaim_waits_a_moment_and_no_longer)
    {
        struct node *node = node_with(1, 1);
        uint64_t seq = reclaim_ask(node, 1);
        fake_advance(&node->fake, (WAIT_MS - 1) * SL_NS_PER_MS);
        ck_assert(!reclaimed(node, seq));

        fake_advance(&node->fake, 2 * SL_NS_PER_MS);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, key_of(0)));
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1); /* too late */
        ck_assert(!node_is_visible(node, key_of(0)));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_reclaim_that_is_asked_again_is_answered_once)
    {
        struct node *node = node_with(1, 1);
        uint64_t first = reclaim_ask(node, 1);
        uint64_t second = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);

        ck_assert(!reclaimed(node, first)); /* its requester gave up */
        ck_assert(reclaimed(node, second));
        ck_assert(in_memory(node, 0));
        node_end(node);
    }
END_TEST

START_TEST(demand_is_read_before_what_is_kept)
    {
        struct node *node = node_with(2, 1);
        struct sl_msg request, reply;
        uint64_t seq = keys_ask(node, SL_MSG_BRING, 1);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &request));
        uint64_t going = reclaim_ask(node, 1);
        uint64_t wanted = keys_ask(node, SL_MSG_BRING, 0); /* it is being read for the reclaim */

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_RAISE, &reply));
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);

        ck_assert(fake_take_reply(&node->fake, "client.1", wanted, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert(reclaimed(node, going));
        uint64_t codes[] = {SL_OK};
        struct sl_msg read = {.code = SL_OK};
        read.body.disk_read_reply.codes = (struct sl_u64s){.at = codes, .count = 1};
        fake_answer(&node->fake, "tierer.0", &request, &read);
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[0], SL_OK); /* its log file was removed */
        node_end(node);
    }
END_TEST

START_TEST(what_is_removed_while_it_is_kept_stays_removed)
    {
        struct node *node = node_with(1, 1);
        struct sl_msg forget, reply;
        uint64_t going = reclaim_ask(node, 1);

        uint64_t removing = keys_ask(node, SL_MSG_REMOVE, 0);

        ck_assert(!fake_take_reply(&node->fake, "client.1", removing, &reply));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &forget));
        ck_assert_uint_eq(forget.body.disk_forget.items.at[0].segment, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        ck_assert(reclaimed(node, going));
        ck_assert(!node_is_visible(node, key_of(0)));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "write_behind_pending_count"), 0);
        node_end(node);
    }
END_TEST

/* The tierer dies after the registrar's answer and before the file is removed: its successor finds
 * the log file intact. */
START_TEST(what_is_removed_after_its_segment_went_does_not_come_back)
    {
        struct node *node = node_with(2, 3);
        struct found found[2];
        struct sl_msg reply;
        sl_err codes[2];
        for (uint32_t n = 0; n < 2; n++) {
            struct sl_entry entry;
            ck_assert(node_entry(node, key_of(n), &entry));
            found[n] = (struct found){.key = key_of(n),
                                      .length = LENGTH,
                                      .segment = 1,
                                      .offset = entry.disk.offset_bytes};
        }
        uint64_t going = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", going, &reply));
        ck_assert_int_eq(reply.code, SL_OK);

        uint64_t removing = keys_ask(node, SL_MSG_REMOVE, 0);
        (void)tierer_write(node, 2, SL_OK);
        bool promised = fake_take_reply(&node->fake, "client.1", removing, &reply);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, found, 2, true, true, codes);

        ck_assert(!promised); /* not before a tombstone */
        ck_assert_int_eq(codes[0], SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, key_of(0)));
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", removing, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        ck_assert(node_is_visible(node, key_of(1)));
        node_end(node);
    }
END_TEST

START_TEST(a_tierer_that_dies_meanwhile_loses_nothing)
    {
        struct node *node = node_with(2, 1);
        struct found found[2];
        for (uint32_t n = 0; n < 2; n++) {
            struct sl_entry entry;
            ck_assert(node_entry(node, key_of(n), &entry));
            found[n] = (struct found){.key = key_of(n),
                                      .length = LENGTH,
                                      .segment = 1,
                                      .offset = entry.disk.offset_bytes};
        }
        (void)reclaim_ask(node, 1);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        ck_assert(on_disk(node, 0) && on_disk(node, 1));
        fake_advance(&node->fake, SL_NS_PER_S);

        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, found, 2, true, true, NULL);

        ck_assert(on_disk(node, 0) && on_disk(node, 1));
        want(node, 0);
        want(node, 1);
        node_end(node);
    }
END_TEST

START_TEST(a_block_is_kept_whole_or_not_at_all)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put_block(node, "client.1", "m/b", 2, LENGTH, 0);
        node_put_block(node, "client.1", "m/c", 8, LENGTH, 0); /* more than is kept */
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 10);
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_text text = sl_text_of(i == 0 ? "m/b/0" : "m/c/0");
            struct sl_msg msg = {.type = SL_MSG_BRING};
            msg.body.bring.keys = (struct sl_texts){.at = &text, .count = 1};
            fake_give(&node->fake, "client.1", &msg);
        }
        squeeze(node);

        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);

        ck_assert(reclaimed(node, seq));
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        ck_assert(!node_is_visible(node, "m/c/0"));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 2);
        node_end(node);
    }
END_TEST

/* ---- what a hand-over holds ---- */

/* Block "m/h" of this number of parts is only in log file 1. */
static struct node *node_with_block(uint32_t parts)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    node_put_block(node, "client.1", "m/h", parts, LENGTH, 0);
    ck_assert_uint_eq(tierer_write(node, 1, SL_OK), parts);
    squeeze(node);
    return node;
}

static bool block_is(struct node *node, uint32_t parts, bool memory)
{
    for (uint32_t i = 0; i < parts; i++) {
        char key[16];
        struct sl_entry entry;
        (void)snprintf(key, sizeof(key), "m/h/%u", i);
        if (!node_entry(node, key, &entry) || (entry.extent.generation != 0) != memory) {
            return false;
        }
    }
    return true;
}

static void block_hold(struct node *node, uint32_t parts)
{
    static struct grants grants;
    struct want wants[16];
    char keys[16][16];
    for (uint32_t i = 0; i < parts; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "m/h/%u", i);
        wants[i] = (struct want){.key = keys[i], .length = LENGTH, .group = 1, .part = i};
    }
    struct reserve_ask ask = {.sender = "client.1",
                              .wants = wants,
                              .count = parts,
                              .group_key = "m/h",
                              .part_count = parts,
                              .hold_id = 5,
                              .hold_ns = 60 * SL_NS_PER_S};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_ERR_EXISTS);
}

/* A request that cannot get space, and for which everything is evicted. */
static void squeeze_fails(struct node *node)
{
    static struct grants grants;
    struct want want = {.key = "squeeze", .length = 4 * SL_MIB};
    struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
}

static void block_let_go(struct node *node)
{
    struct sl_msg msg = {.type = SL_MSG_HOLD};
    msg.body.hold.hold_id = 5;
    fake_give(&node->fake, "coordinator", &msg);
}

START_TEST(what_is_held_and_on_disk_alone_comes_into_memory)
    {
        struct node *node = node_with_block(2);
        block_hold(node, 2);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 2);
        ck_assert(block_is(node, 2, true));
        squeeze_fails(node);
        ck_assert(block_is(node, 2, true));
        block_hold(node, 2); /* no value is read twice */
        ck_assert_uint_eq(tierer_read(node, SL_OK), 0);

        block_let_go(node);
        squeeze(node);

        ck_assert(block_is(node, 2, false));
        node_end(node);
    }
END_TEST

START_TEST(what_is_held_in_memory_outlives_its_segment)
    {
        struct node *node = node_with_block(8);
        block_hold(node, 8);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 8);

        ck_assert(reclaimed(node, reclaim_ask(node, 1)));

        squeeze_fails(node);
        ck_assert(block_is(node, 8, true));
        node_end(node);
    }
END_TEST

/* Twice the share of a log file that is rewritten. */
START_TEST(what_is_held_and_being_read_is_waited_for)
    {
        struct node *node = node_with_block(2 * SEGMENT_BY);
        block_hold(node, 2 * SEGMENT_BY);
        uint64_t seq = reclaim_ask(node, 1);
        fake_advance(&node->fake, 2 * WAIT_MS * SL_NS_PER_MS);
        ck_assert(!reclaimed(node, seq));

        ck_assert_uint_eq(tierer_read(node, SL_OK), 2 * SEGMENT_BY);

        ck_assert(reclaimed(node, seq));
        ck_assert(block_is(node, 2 * SEGMENT_BY, true));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 2 * SEGMENT_BY);
        node_end(node);
    }
END_TEST

START_TEST(a_segment_stays_when_what_is_held_there_cannot_be_read)
    {
        struct node *node = node_with_block(2);
        struct sl_msg reply;
        block_hold(node, 2);
        ck_assert_uint_eq(tierer_read(node, SL_ERR_DEVICE), 2);
        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_read(node, SL_ERR_DEVICE), 2);
        ck_assert(!reclaimed(node, seq)); /* not at once: the tierer would ask in a loop */

        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        ck_assert(block_is(node, 2, false));
        block_let_go(node);
        ck_assert(reclaimed(node, reclaim_ask(node, 1)));
        ck_assert(!node_is_visible(node, "m/h/0"));
        node_end(node);
    }
END_TEST

/* It could not be read for the hold, and is being prefetched: the reclaim waits for that as
 * well. */
START_TEST(what_is_held_and_being_prefetched_is_raised)
    {
        struct node *node = node_with_block(1);
        struct sl_text key = sl_text_of("m/h/0");
        struct sl_msg ahead = {.type = SL_MSG_BRING}, read, raise;
        block_hold(node, 1);
        ck_assert_uint_eq(tierer_read(node, SL_ERR_DEVICE), 1);
        ahead.body.bring = (struct sl_body_bring){.keys = {.at = &key, .count = 1}, .ahead = true};
        fake_give(&node->fake, "client.1", &ahead);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &read));
        uint64_t generation = read.body.disk_read.items.at[0].generation;

        (void)reclaim_ask(node, 1);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_RAISE, &raise));
        ck_assert_uint_eq(raise.body.disk_read.raise, generation);
        node_end(node);
    }
END_TEST

/* The reclaim waits for another value when the hold begins. */
START_TEST(what_is_held_since_the_reclaim_began_is_waited_for)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put_block(node, "client.1", "m/h", 2, LENGTH, 0);
        node_put(node, "client.1", key_of(0), LENGTH);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 3);
        want(node, 0);
        squeeze(node);
        uint64_t seq = reclaim_ask(node, 1);
        ck_assert(!reclaimed(node, seq));

        block_hold(node, 2);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);

        ck_assert(!reclaimed(node, seq));
        ck_assert_uint_eq(tierer_read(node, SL_OK), 2);
        ck_assert(reclaimed(node, seq));
        ck_assert(block_is(node, 2, true));
        node_end(node);
    }
END_TEST

START_TEST(a_hold_that_ends_meanwhile_keeps_no_segment)
    {
        struct node *node = node_with_block(2);
        block_hold(node, 2);
        uint64_t seq = reclaim_ask(node, 1);
        block_let_go(node);

        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, "m/h/0"));
        node_end(node);
    }
END_TEST

START_TEST(a_new_registrar_brings_what_is_held_into_memory)
    {
        struct node *node = node_with_block(1);
        struct sl_entry entry;
        block_hold(node, 1);
        ck_assert(node_entry(node, "m/h/0", &entry));
        struct found found = {.key = "m/h/0",
                              .group = "m/h",
                              .parts = 1,
                              .length = LENGTH,
                              .segment = 1,
                              .offset = entry.disk.offset_bytes};

        node_restart(node);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &found, 1, true, true, NULL);

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        squeeze_fails(node);
        ck_assert(block_is(node, 1, true));
        node_end(node);
    }
END_TEST

/* Memory is full of values that are not on disk: there is no space to read into, and no value is
 * lost. */
START_TEST(what_is_held_stays_on_disk_when_memory_is_full)
    {
        struct node *node = node_with_block(2);
        for (uint32_t i = 0; i < 64; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "new%u", i);
            node_put(node, "client.1", key, LENGTH);
        }
        block_hold(node, 2);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 0);
        uint64_t seq = reclaim_ask(node, 1);
        ck_assert(!reclaimed(node, seq));

        (void)tierer_write(node, 2, SL_OK); /* some of it may leave */
        ck_assert_uint_eq(tierer_read(node, SL_OK), 2);

        ck_assert(reclaimed(node, seq));
        ck_assert(block_is(node, 2, true));
        node_end(node);
    }
END_TEST

START_TEST(what_has_no_room_in_memory_goes_at_once)
    {
        struct node *node = node_with(4, 15);
        for (uint32_t i = 0; i < 64; i++) { /* none of it is on disk */
            char key[16];
            (void)snprintf(key, sizeof(key), "new%u", i);
            node_put(node, "client.1", key, LENGTH);
        }

        uint64_t seq = reclaim_ask(node, 1);

        ck_assert(reclaimed(node, seq));
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 0);
        for (uint32_t n = 0; n < 4; n++) {
            ck_assert(!node_is_visible(node, key_of(n)));
        }
        ck_assert(node_is_visible(node, "new0") && node_is_visible(node, "new63"));
        node_end(node);
    }
END_TEST

START_TEST(what_cannot_be_read_any_more_goes)
    {
        struct node *node = node_with(1, 1);
        uint64_t seq = reclaim_ask(node, 1);

        ck_assert_uint_eq(tierer_prefetch(node, SL_ERR_CORRUPT), 1);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, key_of(0)));
        node_end(node);
    }
END_TEST

/* Once the policy has learnt: uses before a value was written count as well. */
START_TEST(what_is_worth_most_is_written_anew)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t n = 0; n < 8; n++) {
            node_put(node, "client.1", key_of(n), LENGTH);
        }
        for (uint32_t n = 0; n < 1200; n++) { /* 6 and 7 are wanted all the time, others never */
            want(node, 6 + n % 2);
        }
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 8);
        squeeze(node);

        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);

        ck_assert(reclaimed(node, seq));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 2);
        ck_assert(on_disk(node, 6) && on_disk(node, 7));
        for (uint32_t n = 0; n < 6; n++) {
            ck_assert(!node_is_visible(node, key_of(n)));
        }
        node_end(node);
    }
END_TEST

/* ---- retention ---- */

/* Block m/NUMBER is only in log file 1, and m/0 precedes m/1. Blocks with a bit in `kept` are to be
 * kept for a minute. */
static struct node *node_with_kept(uint32_t count, uint32_t kept)
{
    static const struct sl_packed_hints nothing;
    static const struct sl_packed_hints keep = {.keep_ns = 60 * SL_NS_PER_S};
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    for (uint32_t n = 0; n < count; n++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "m/%u", n);
        node_put_hinted(node, "client.1", key, n == 1 ? reg_hash("m/0", 3) : 0, LENGTH,
                        (kept >> n & 1) != 0 ? &keep : &nothing);
    }
    ck_assert_uint_eq(tierer_write(node, 1, SL_OK), count);
    squeeze(node);
    return node;
}

START_TEST(what_is_to_be_kept_is_written_anew_with_what_is_before_it)
    {
        struct node *node = node_with_kept(3, 2);

        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);

        ck_assert(reclaimed(node, seq));
        ck_assert(node_is_visible(node, "m/0/0") && node_is_visible(node, "m/1/0"));
        ck_assert(!node_is_visible(node, "m/2/0"));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 2);
        squeeze(node); /* it was written to disk again, with the rest of its time */
        seq = reclaim_ask(node, 2);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 2);
        ck_assert(reclaimed(node, seq));
        ck_assert(node_is_visible(node, "m/0/0") && node_is_visible(node, "m/1/0"));
        node_end(node);
    }
END_TEST

START_TEST(what_was_to_be_kept_goes_when_its_time_is_over)
    {
        struct node *node = node_with_kept(3, 2);

        fake_advance(&node->fake, 61 * SL_NS_PER_S);
        uint64_t seq = reclaim_ask(node, 1);

        ck_assert(reclaimed(node, seq));
        ck_assert(!node_is_visible(node, "m/0/0") && !node_is_visible(node, "m/1/0"));
        node_end(node);
    }
END_TEST

/* An eighth of a log file: a hint that all give changes little. */
START_TEST(a_share_of_the_segment_is_what_is_to_be_kept)
    {
        struct node *node = node_with_kept(8, 0xff);

        uint64_t seq = reclaim_ask(node, 1);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), SEGMENT / SL_DENSITY_KEPT_SHARE / LENGTH);

        ck_assert(reclaimed(node, seq));
        node_end(node);
    }
END_TEST

START_TEST(what_is_to_be_kept_still_is_after_it_was_on_disk_alone)
    {
        struct node *node = node_with_kept(1, 1);
        struct registrar *self = node->fake.state;
        struct sl_density_note view;
        struct sl_text text = sl_text_of("m/0/0");
        struct sl_msg msg = {.type = SL_MSG_BRING};
        msg.body.bring.keys = (struct sl_texts){.at = &text, .count = 1};

        fake_give(&node->fake, "client.1", &msg);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);

        uint32_t unit = sl_density_find(self->units->density, reg_hash("m/0", 3));
        ck_assert_uint_ne(unit, 0);
        view = sl_density_note(self->units->density, unit);
        ck_assert(view.kept);
        node_end(node);
    }
END_TEST

/* ---- a segment of many values ---- */

#define MANY      3000u
#define TURN_MOST 1024u

static uint64_t keys_known(struct node *node)
{
    struct sl_index_stats stats;
    sl_index_view_stats(node->view, &stats);
    return stats.key_count;
}

/* All of them are only in log file 1. */
static struct node *node_with_many(void)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    for (uint32_t n = 0; n < MANY; n++) {
        struct found found = {.key = key_of(n), .length = 100, .segment = 1, .offset = n * 4096ul};
        tierer_found(node, &found, 1, n == 0, n == MANY - 1, NULL);
    }
    ck_assert_uint_eq(keys_known(node), MANY);
    return node;
}

static void turn(struct node *node)
{
    ck_assert_int_eq(node->fake.actor->tick(node->fake.state, node->fake.env.now_ns), SL_OK);
}

/* The file may be removed, but is not reported as removed yet. */
static uint64_t reclaim_going(struct node *node)
{
    struct sl_msg reply;
    uint64_t seq = reclaim_ask(node, 1);
    for (uint32_t turns = 0; !fake_take_reply(&node->fake, "tierer.0", seq, &reply); turns++) {
        ck_assert_uint_lt(turns, MANY);
        turn(node);
    }
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(keys_known(node), MANY);
    return seq;
}

START_TEST(a_turn_clears_some_of_many)
    {
        struct node *node = node_with_many();
        uint64_t known = MANY, turns = 0;
        struct sl_msg reply;
        (void)reclaim_going(node);

        uint64_t seq = tierer_reclaim(node, 1, true);

        for (; known > 0; turns++) {
            uint64_t now = keys_known(node);
            ck_assert_uint_le(known - now, TURN_MOST);
            ck_assert_uint_lt(turns, MANY);
            known = now;
            turn(node);
        }
        ck_assert_uint_ge(turns, MANY / TURN_MOST);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

/* The key is removed, or gets another value: the answer must wait until nothing on disk can bring
 * back the old one. */
enum way { REMOVED, REPLACED, ALL_REMOVED, WAYS };

static uint64_t go_away(struct node *node, enum way way, uint32_t n)
{
    static struct grants grants;
    struct sl_msg all = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S};
    if (way == REMOVED) {
        return keys_ask(node, SL_MSG_REMOVE, n);
    }
    if (way == ALL_REMOVED) {
        all.body.remove.all = true;
        fake_give(&node->fake, "client.1", &all);
        return all.seq;
    }
    struct want want = {.key = key_of(n), .length = 100};
    struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1, .replace = true};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_OK);
    struct sl_item_claim claim = {.ref = grants.at[0].ref, .generation = grants.at[0].generation};
    struct sl_msg msg = {.type = SL_MSG_COMMIT};
    msg.body.commit.items.at = &claim;
    msg.body.commit.items.count = 1;
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

/* The tierer may die, and its successor finds the file intact. */
START_TEST(what_leaves_while_its_file_goes_does_not_come_back)
    {
        struct node *node = node_with_many();
        struct found found = {.key = key_of(7), .length = 100, .segment = 1, .offset = 7 * 4096ul};
        struct sl_msg reply;
        sl_err code;
        enum way way = (enum way)(_i % WAYS);
        (void)reclaim_going(node);

        uint64_t seq = go_away(node, way, 7);
        ck_assert(!fake_take_reply(&node->fake, "client.1", seq, &reply));
        if (_i >= WAYS) {
            fake_process_end(&node->fake, proc_of(TIERER_PID));
            tierer_arrive(node, TIERER_PID + 1);
            tierer_found(node, &found, 1, true, true, &code);
            ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        }
        uint32_t forgotten = 0;
        for (uint32_t now = 1; now > 0; forgotten += now) {
            now = tierer_forget(node, SL_OK);
            fake_advance(&node->fake, SL_NS_PER_MS);
        }

        ck_assert_uint_ge(forgotten, way == ALL_REMOVED && _i < WAYS ? MANY : 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(way == REPLACED || !node_is_visible(node, key_of(7)));
        node_end(node);
    }
END_TEST

/* Of a block, the parts get tombstones, whichever name it is removed by. */
START_TEST(a_block_is_removed_while_its_file_goes)
    {
        static const struct found found = {"m/b/0", "m/b", 0, 1, 100, 1, 4096, NULL};
        struct node *node = node_start(settings);
        struct sl_text name = sl_text_of("m/b");
        struct sl_msg remove = {.type = SL_MSG_REMOVE}, forget;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &found, 1, true, true, NULL);
        (void)tierer_reclaim(node, 1, false);

        remove.body.remove.keys = (struct sl_texts){.at = &name, .count = 1};
        fake_give(&node->fake, "client.1", &remove);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &forget));
        ck_assert_str_eq(forget.body.disk_forget.items.at[0].key.at, "m/b/0");
        ck_assert_uint_eq(forget.body.disk_forget.items.at[0].segment, 1);
        node_end(node);
    }
END_TEST

START_TEST(what_goes_is_read_no_more_and_can_be_put)
    {
        struct node *node = node_with_many();
        struct sl_msg reply;
        (void)reclaim_going(node);

        uint64_t seq = keys_ask(node, SL_MSG_BRING, 7);
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_BUSY);
        node_put(node, "client.1", key_of(7), 100);

        ck_assert(in_memory(node, 7) && !on_disk(node, 7));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        seq = tierer_reclaim(node, 1, true);
        fake_advance(&node->fake, 10 * SL_NS_PER_MS);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        ck_assert_uint_eq(keys_known(node), 1);
        node_end(node);
    }
END_TEST

/* Its disk fails, or it was being read when the answer arrived. */
START_TEST(what_does_not_go_after_all_is_read_again)
    {
        struct node *node = node_with_many();
        struct sl_msg reply;
        (void)reclaim_going(node);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);

        uint64_t seq = keys_ask(node, SL_MSG_BRING, 7);

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_OK);
        (void)reclaim_going(node);
        node_end(node);
    }
END_TEST

START_TEST(a_request_that_was_answered_and_comes_late_changes_nothing)
    {
        struct node *node = node_with_many();
        struct sl_msg again = {.type = SL_MSG_DISK_RECLAIM}, reply;
        again.body.disk_reclaim.segment = 1;
        again.seq = reclaim_going(node);
        if (_i == 1) {
            uint64_t seq = tierer_reclaim(node, 1, true);
            fake_advance(&node->fake, 10 * SL_NS_PER_MS);
            ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        }

        fake_give(&node->fake, "tierer.0", &again);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", again.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(keys_known(node), _i == 0 ? MANY : 0);
        node_end(node);
    }
END_TEST

/* The tierer was still reading for it, and got the answer too early. */
START_TEST(a_segment_that_was_read_when_its_answer_came_is_asked_for_again)
    {
        struct node *node = node_with(2, 1);
        struct sl_msg read, reply, done = {.code = SL_OK};
        uint64_t codes[1] = {SL_OK};
        uint64_t seq = reclaim_ask(node, 1);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &read));
        fake_advance(&node->fake, 300 * SL_NS_PER_MS);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        done.body.disk_read_reply.codes = (struct sl_u64s){codes, 1};
        fake_answer(&node->fake, "tierer.0", &read, &done);

        seq = reclaim_ask(node, 1);

        ck_assert(reclaimed(node, seq));
        while (fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ | FAKE_PREFETCH, &reply)) {
            ck_assert_uint_eq(reply.seq, read.seq); /* it was sent again, and no other */
        }
        node_end(node);
    }
END_TEST

/* The registrar that allowed the removal has died. */
START_TEST(a_file_that_has_gone_is_told_to_another_registrar)
    {
        struct node *node = node_with_many();
        struct sl_msg reply;
        (void)reclaim_going(node);
        node_restart(node);

        uint64_t seq = tierer_reclaim(node, 1, true);
        fake_advance(&node->fake, 10 * SL_NS_PER_MS);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(keys_known(node), 0);
        node_end(node);
    }
END_TEST

/* A list is compacted when it is full of records without a place in the file. That must not move
 * records which a reclaim has not visited yet. */
START_TEST(what_is_wanted_is_kept_though_its_segment_loses_most_meanwhile)
    {
        struct node *node = node_start(settings);
        const uint32_t listed = 4096; /* and no room for more */
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t n = 0; n + 1 < listed; n++) {
            struct found found = {
                .key = key_of(n), .length = 100, .segment = 1, .offset = n * 4096ul};
            tierer_found(node, &found, 1, n == 0, n + 2 == listed, NULL);
        }
        want(node, 4000);
        for (uint32_t n = 0; n < 4000; n++) {
            (void)keys_ask(node, SL_MSG_REMOVE, n);
            (void)tierer_forget(node, SL_OK);
        }

        uint64_t seq = reclaim_ask(node, 1);
        want(node, 4001); /* its new record is listed */
        fake_advance(&node->fake, SL_NS_PER_MS);

        ck_assert(reclaimed(node, seq));
        ck_assert_uint_ge(tierer_write(node, 2, SL_OK), 1);
        ck_assert(on_disk(node, 4000));
        node_end(node);
    }
END_TEST

START_TEST(what_is_wanted_is_kept_though_it_leaves_memory_meanwhile)
    {
        struct node *node = node_start(settings);
        const uint32_t turns = 3, found_count = turns * TURN_MOST - 2;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t n = 0; n < found_count; n++) {
            struct found found = {
                .key = key_of(n), .length = 100, .segment = 1, .offset = n * 4096ul};
            tierer_found(node, &found, 1, n == 0, n + 1 == found_count, NULL);
        }
        want(node, 0);
        uint64_t seq = reclaim_ask(node, 1);
        for (uint32_t i = 1; i < turns; i++) {
            turn(node); /* all are looked at by then */
        }

        squeeze(node);
        ck_assert(!in_memory(node, 0));

        fake_advance(&node->fake, SL_NS_PER_MS);
        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        fake_advance(&node->fake, SL_NS_PER_MS);
        ck_assert(reclaimed(node, seq));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        ck_assert(on_disk(node, 0));
        node_end(node);
    }
END_TEST

START_TEST(a_tierer_that_dies_while_its_file_goes_has_it_or_not)
    {
        struct node *node = node_with_many();
        (void)reclaim_going(node);

        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_advance(&node->fake, SL_NS_PER_MS);
        tierer_arrive(node, TIERER_PID + 1);
        struct found found = {.key = key_of(7), .length = 100, .segment = 1, .offset = 7 * 4096ul};
        tierer_found(node, &found, 1, true, true, NULL);
        fake_advance(&node->fake, 10 * SL_NS_PER_MS);

        ck_assert_uint_eq(keys_known(node), 1);
        want(node, 7);
        node_end(node);
    }
END_TEST

/* Searching the log file takes time of its own. */
START_TEST(what_is_kept_is_waited_for_after_a_long_look)
    {
        struct node *node = node_with_many();
        want(node, 0);
        squeeze(node);
        uint64_t seq = reclaim_ask(node, 1);
        node->fake.env.now_ns +=
            (_i == 0 ? 1500 : 2500) * SL_NS_PER_MS; /* of 2 s in which it is asked */
        for (uint32_t turns = 0; turns < MANY; turns++) {
            turn(node);
        }
        ck_assert(!reclaimed(node, seq));

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        fake_advance(&node->fake, SL_NS_PER_MS);

        ck_assert(reclaimed(node, seq));
        ck_assert(in_memory(node, 0));
        node_end(node);
    }
END_TEST

/* A block of two parts, one on each of two disks; both log files are reclaimed at the same time. */
static const char *const two_disks[] = {"disk",         "64MiB", "disk_path", "/one,/two",
                                        "disk_segment", "1MiB",  "memory",    "4MiB",
                                        "io_grace",     "10s",   NULL};

/* Values that no client uses. */
static void disk_found_many(struct node *node, uint32_t disk, bool last)
{
    for (uint32_t n = 0; n < 2 * MANY; n++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "%u.%u", disk, n);
        struct found found = {.key = key, .length = 100, .segment = 1, .offset = (n + 8) * 4096ul};
        tierer_found(node, &found, 1, false, last && n + 1 == 2 * MANY, NULL);
    }
}

START_TEST(a_block_is_kept_by_each_disk_on_its_own)
    {
        struct node *node = node_start(two_disks);
        const struct found parts[] = {{"m/b/0", "m/b", 0, 2, 100, 1, 4096, NULL},
                                      {"m/b/1", "m/b", 1, 2, 100, 1, 4096, NULL}};
        struct sl_text names[] = {sl_text_of("m/b/0"), sl_text_of("m/b/1")};
        struct sl_msg bring = {.type = SL_MSG_BRING}, reply;
        node_client(node, "client.1", 11);
        tierer_select(0, "disk A");
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, NULL, 0, true, false, NULL);
        disk_found_many(node, 0, false);
        tierer_found(node, &parts[0], 1, false, true, NULL);
        tierer_select(1, "disk B");
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &parts[1], 1, true, false, NULL);
        bring.body.bring.keys = (struct sl_texts){.at = names, .count = 2};
        fake_give(&node->fake, "client.1", &bring);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        tierer_select(0, "disk A");
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", bring.seq, &reply));
        squeeze(node);
        tierer_select(1, "disk B");
        disk_found_many(node, 1, true);
        tierer_select(0, "disk A");
        uint64_t seq = reclaim_ask(node, 1);
        for (uint32_t turns = 0; turns < MANY; turns++) {
            turn(node); /* it waits for its part */
        }
        struct sl_msg other = {.type = SL_MSG_DISK_RECLAIM};
        other.body.disk_reclaim.segment = 1;
        fake_give(&node->fake, "tierer.1", &other);
        for (int i = 0; i < _i; i++) {
            turn(node); /* the other one has begun to choose, at least */
        }

        ck_assert_uint_eq(tierer_prefetch(node, SL_OK), 1);
        for (uint32_t turns = 0; turns < MANY && !reclaimed(node, seq); turns++) {
            turn(node);
        }

        struct sl_entry entry;
        ck_assert(node_entry(node, "m/b/0", &entry));
        ck_assert(entry.extent.generation != 0 && entry.disk.valid == 0);
        ck_assert_uint_ge(node_metric(node, "write_behind_pending_count"), 1);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_reclaim");
    TCase *tcase = tcase_create("reclaim");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_was_wanted_and_is_on_disk_alone_is_written_anew);
    tcase_add_test(tcase, nobody_wanted_it_since_so_it_goes_next_time);
    tcase_add_test(tcase, a_share_of_the_segment_is_kept_what_was_wanted_last_first);
    tcase_add_test(tcase, what_was_wanted_long_ago_is_not_kept);
    tcase_add_test(tcase, what_is_held_and_on_disk_alone_comes_into_memory);
    tcase_add_test(tcase, what_is_held_in_memory_outlives_its_segment);
    tcase_add_test(tcase, what_is_held_and_being_read_is_waited_for);
    tcase_add_test(tcase, a_segment_stays_when_what_is_held_there_cannot_be_read);
    tcase_add_test(tcase, what_is_held_and_being_prefetched_is_raised);
    tcase_add_test(tcase, what_is_held_since_the_reclaim_began_is_waited_for);
    tcase_add_test(tcase, a_hold_that_ends_meanwhile_keeps_no_segment);
    tcase_add_test(tcase, a_new_registrar_brings_what_is_held_into_memory);
    tcase_add_test(tcase, what_is_held_stays_on_disk_when_memory_is_full);
    tcase_add_test(tcase, a_reclaim_waits_a_moment_and_no_longer);
    tcase_add_test(tcase, a_reclaim_that_is_asked_again_is_answered_once);
    tcase_add_test(tcase, demand_is_read_before_what_is_kept);
    tcase_add_test(tcase, what_is_removed_while_it_is_kept_stays_removed);
    tcase_add_test(tcase, what_is_removed_after_its_segment_went_does_not_come_back);
    tcase_add_test(tcase, a_tierer_that_dies_meanwhile_loses_nothing);
    tcase_add_test(tcase, a_block_is_kept_whole_or_not_at_all);
    tcase_add_test(tcase, what_has_no_room_in_memory_goes_at_once);
    tcase_add_test(tcase, what_cannot_be_read_any_more_goes);
    tcase_add_test(tcase, what_is_worth_most_is_written_anew);
    tcase_add_test(tcase, what_is_to_be_kept_is_written_anew_with_what_is_before_it);
    tcase_add_test(tcase, what_was_to_be_kept_goes_when_its_time_is_over);
    tcase_add_test(tcase, a_share_of_the_segment_is_what_is_to_be_kept);
    tcase_add_test(tcase, what_is_to_be_kept_still_is_after_it_was_on_disk_alone);
    tcase_add_test(tcase, a_turn_clears_some_of_many);
    tcase_add_loop_test(tcase, what_leaves_while_its_file_goes_does_not_come_back, 0, 2 * WAYS);
    tcase_add_test(tcase, a_block_is_removed_while_its_file_goes);
    tcase_add_test(tcase, what_goes_is_read_no_more_and_can_be_put);
    tcase_add_test(tcase, what_does_not_go_after_all_is_read_again);
    tcase_add_loop_test(tcase, a_request_that_was_answered_and_comes_late_changes_nothing, 0, 2);
    tcase_add_test(tcase, a_segment_that_was_read_when_its_answer_came_is_asked_for_again);
    tcase_add_test(tcase, a_file_that_has_gone_is_told_to_another_registrar);
    tcase_add_test(tcase, what_is_wanted_is_kept_though_its_segment_loses_most_meanwhile);
    tcase_add_test(tcase, what_is_wanted_is_kept_though_it_leaves_memory_meanwhile);
    tcase_add_test(tcase, a_tierer_that_dies_while_its_file_goes_has_it_or_not);
    tcase_add_loop_test(tcase, what_is_kept_is_waited_for_after_a_long_look, 0, 2);
    tcase_add_loop_test(tcase, a_block_is_kept_by_each_disk_on_its_own, 0, 6);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
