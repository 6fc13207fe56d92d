/* tests/unit/actors/registrar/registrar_disk_test.c - write-behind, values only on disk, promotion,
 * scans, reclaim, tombstones. The test plays the tierer. */
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/records/units.h"
#include "tests/unit/actors/registrar/registrar_support.h"

static struct grants grants;
#define BIG SL_MIB

static const char *const disk_settings[] = {"disk", "1GiB", "io_grace", "10s", NULL};

/* A node whose disk tier takes work, and client.1. */
static struct node *node_disk(void)
{
    struct node *node = node_start(disk_settings);
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    tierer_ready(node);
    return node;
}

static bool on_disk(struct node *node, const char *key)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry) && entry.disk.valid != 0;
}

static bool in_memory(struct node *node, const char *key)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry) && entry.extent.generation != 0;
}

/* Puts four objects of a MiB, all durable: memory is full of values that may be evicted. */
static void fill_durable(struct node *node)
{
    char key[8];
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        node_put(node, "client.1", key, BIG);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
    }
}

static uint64_t promote_ask(struct node *node, const char *sender, const char *const *keys,
                            uint32_t count)
{
    struct sl_text texts[16];
    struct sl_msg msg = {.type = SL_MSG_BRING};
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = sl_text_of(keys[i]);
    }
    msg.body.bring.keys = (struct sl_texts){.at = texts, .count = count};
    fake_give(&node->fake, sender, &msg);
    return msg.seq;
}

/* SL_ERR_INCOMPLETE: no answer yet. */
static sl_err promote_answer(struct node *node, const char *sender, uint64_t seq, uint32_t index)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, sender, seq, &reply)) {
        return SL_ERR_INCOMPLETE;
    }
    return reply.code != SL_OK ? reply.code : (sl_err)reply.body.bring_reply.codes.at[index];
}

/* ---- write-back to disk ---- */

START_TEST(what_is_committed_goes_to_disk_and_stays_in_memory)
    {
        struct node *node = node_disk();
        struct sl_msg request;
        node_put(node, "client.1", "a", 5000);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request));
        ck_assert_uint_eq(request.body.disk_write.items.count, 1);
        const struct sl_item_spill *spill = &request.body.disk_write.items.at[0];
        ck_assert_str_eq(spill->key.at, "a");
        ck_assert_uint_eq(spill->length_bytes, 5000);
        ck_assert_uint_eq(spill->digest_low, digest_of_key("a").low);
        struct sl_item_spilled spilled = {.code = SL_OK,
                                          .generation = spill->generation,
                                          .segment = 3,
                                          .disk_offset_bytes = 8192};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_write_reply.items.at = &spilled;
        reply.body.disk_write_reply.items.count = 1;
        fake_answer(&node->fake, "tierer.0", &request, &reply);

        struct sl_entry entry;
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_uint_ne(entry.extent.generation, 0);
        ck_assert_uint_eq(entry.disk.segment, 3);
        ck_assert_uint_eq(entry.disk.offset_bytes, 8192);
        ck_assert_uint_eq(node_metric(node, "write_behind_pending_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(parts_of_a_block_name_their_block)
    {
        struct node *node = node_disk();
        struct sl_msg request;
        node_put_block(node, "client.1", "m/b", 3, 5000, 0);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request));

        ck_assert_uint_eq(request.body.disk_write.items.count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_str_eq(request.body.disk_write.items.at[i].group_key.at, "m/b");
            ck_assert_uint_eq(request.body.disk_write.items.at[i].part_count, 3);
        }
        node_end(node);
    }
END_TEST

static uint32_t looks; /* at records of the index: the linker leads the calls here (--wrap) */
bool __real_sl_index_ref_live(const struct sl_index *index, sl_ref ref);
bool __wrap_sl_index_ref_live(const struct sl_index *index, sl_ref ref);
bool __wrap_sl_index_ref_live(const struct sl_index *index, sl_ref ref)
{
    looks++;
    return __real_sl_index_ref_live(index, ref);
}

/* Regression: all of 262,144 waiting values were visited when their table grew, or on removals. */
START_TEST(no_turn_looks_at_all_values_that_wait_for_a_disk)
    {
        static const char *const settings[] = {"memory", "64MiB", "memory_chunk", "64MiB", "disk",
                                               "1GiB",   NULL};
        struct node *node = node_start(settings);
        struct sl_msg first, nothing = {.code = SL_ERR_DRAINING};
        char key[16];
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t i = 0; i < 5000; i++) {
            (void)snprintf(key, sizeof(key), "k%u", i);
            looks = 0;
            node_put(node, "client.1", key, 64);
            ck_assert_uint_lt(looks, 128);
        }
        for (uint32_t i = 0; i < 20000; i++) {
            node_put(node, "client.1", "comes and goes", 64);
            ck_assert_int_eq(node_remove(node, "client.1", "comes and goes"), SL_OK);
        }
        ck_assert_uint_lt(node_metric(node, "write_behind_pending_count"), 8000);
        for (uint32_t i = 16; i < 5000; i++) { /* those before are on their way */
            (void)snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
        }
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &first));
        looks = 0;
        fake_answer(&node->fake, "tierer.0", &first, &nothing);
        ck_assert_uint_lt(looks, 2048);
        node_put(node, "client.1", "last", 64);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 17); /* in the order of their commits */
        ck_assert(on_disk(node, "k0") && on_disk(node, "k15") && on_disk(node, "last"));
        node_end(node);
    }
END_TEST

/* Regression: as values moved between memory and a log file, the file's whole list was searched at
 * once, with a sort. */
START_TEST(no_turn_looks_at_all_values_of_a_segment)
    {
        static const char *const settings[] = {"index_memory", "16MiB", "disk", "1GiB", NULL};
        const uint32_t count = 3000;
        struct node *node = node_start(settings);
        char name[16];
        const char *const key[] = {name};
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t i = 0; i < count; i++) {
            (void)snprintf(name, sizeof(name), "k%u", i);
            node_put(node, "client.1", name, 4096);
            (void)tierer_write(node, 1, SL_OK);
        }
        for (uint32_t i = 0; i < 4 * count; i++) {
            (void)snprintf(name, sizeof(name), "k%u", i % count);
            looks = 0;
            uint64_t seq = promote_ask(node, "client.1", key, 1);
            (void)tierer_read(node, SL_OK);
            ck_assert_int_ne(promote_answer(node, "client.1", seq, 0), SL_ERR_INCOMPLETE);
            ck_assert_uint_lt(looks, 512);
        }

        looks = 0;
        uint64_t seq = tierer_reclaim(node, 1, false);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert(tierer_reclaimed(node, 1, seq));

        ck_assert_uint_lt(looks, 20 * count); /* each was visited nine times */
        node_end(node);
    }
END_TEST

START_TEST(writes_in_flight_are_bounded_and_go_oldest_first)
    {
        static const char *const settings[] = {"memory", "64MiB", "memory_chunk", "64MiB", NULL};
        struct node *node = node_start(settings);
        char key[16];
        fake_set(&node->fake, "disk", "1GiB");
        node_restart(node);
        sl_index_view_close(&node->view);
        struct sl_error why;
        ck_assert_int_eq(sl_index_view_open(node->fake.paths.shm_dir, &node->view, &why), SL_OK);
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 1100; i++) {
            snprintf(key, sizeof(key), "k%03u", i);
            node_put(node, "client.1", key, 64);
        }

        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);

        struct sl_msg request;
        uint32_t next = 0;
        while (fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request)) {
            ck_assert_uint_le(request.body.disk_write.items.count, 64);
            for (uint64_t i = 0; i < request.body.disk_write.items.count; i++) {
                snprintf(key, sizeof(key), "k%03u", next++);
                ck_assert_str_eq(request.body.disk_write.items.at[i].key.at, key);
            }
        }
        ck_assert_uint_eq(next, 16 * 64);
        node_end(node);
    }
END_TEST

START_TEST(reserve_waits_for_write_behind)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {
            .sender = "client.1", .op_id = 2, .wants = &want, .count = 1, .wait = true};
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(!node_reserve(node, &ask, &grants));
        ck_assert(node_is_visible(node, "k0") &&
                  in_memory(node, "k0")); /* nothing that is not on disk is dropped */

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 4);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert(node_is_visible(node, "k0") && !in_memory(node, "k0") && on_disk(node, "k0"));
        ck_assert(in_memory(node, "k1"));
        ck_assert_uint_le(node_metric(node, "used_bytes"), 4 * SL_MIB);
        node_end(node);
    }
END_TEST

/* A request that accepts a refusal (`at_once`) waits as well while space is about to become free,
 * that is, while some value is still to be written. */
START_TEST(reserve_without_waiting_waits_for_write_behind)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {
            .sender = "client.1", .op_id = 2, .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(!node_reserve(node, &ask, &grants));
        if (_i == 0) {
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 4);
            ck_assert(node_reserved(node, &ask, &grants));
            ck_assert_uint_eq(grants.at[0].code, SL_OK);
            ck_assert(node_is_visible(node, "k0") && on_disk(node, "k0"));
        } else { /* the disk is too slow: refused before its deadline */
            fake_advance(&node->fake, 900 * SL_NS_PER_MS);
            ck_assert(!node_reserved(node, &ask, &grants));
            fake_advance(&node->fake, 60 * SL_NS_PER_MS);
            ck_assert(node_reserved(node, &ask, &grants));
            ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
            ck_assert(node_is_visible(node, "k0") && in_memory(node, "k0"));
        }
        node_end(node);
    }
END_TEST

/* All values are on disk, and those in memory stay there: no space becomes free. */
START_TEST(reserve_without_waiting_is_refused_when_nothing_is_to_be_written)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {
            .sender = "client.1", .op_id = 2, .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            struct want pinned = {.key = key, .length = BIG};
            struct reserve_ask put = {.sender = "client.1",
                                      .op_id = 10 + i,
                                      .wants = &pinned,
                                      .count = 1,
                                      .hard_pin = true};
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert(node_reserve(node, &put, &grants));
            ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
        }
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 4);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* The values to be written were removed and free no space, which takes some turns to find out. */
START_TEST(reserve_without_waiting_is_refused_when_values_to_be_written_are_removed)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = 2 * BIG};
        struct reserve_ask ask = {
            .sender = "client.1", .op_id = 2, .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        char key[16];
        for (uint32_t i = 0; i < 3; i++) {
            struct want pinned = {.key = key, .length = BIG};
            struct reserve_ask put = {.sender = "client.1",
                                      .op_id = 10 + i,
                                      .wants = &pinned,
                                      .count = 1,
                                      .hard_pin = true};
            (void)snprintf(key, sizeof(key), "p%u", i);
            ck_assert(node_reserve(node, &put, &grants));
            ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
        }
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 3);
        fake_process_end(&node->fake, proc_of(TIERER_PID)); /* for a while no disk takes writes */
        for (uint32_t i = 0; i < 10000; i++) {
            (void)snprintf(key, sizeof(key), "k%u", i % 5000);
            if (i < 5000) {
                node_put(node, "client.1", key, 64);
            } else {
                ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
            }
        }

        ck_assert(!node_reserve(node, &ask, &grants));
        fake_advance(&node->fake, 20 * SL_NS_PER_MS);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* Keys of several lengths: records of several classes. */
static const char *const tails[] = {"", "-a-longer-key-than-the-others-of-this-test",
                                    ("-one-that-is-longer-still-and-takes-records-of-a-third-class-"
                                     "since-it-goes-on-and-on-and-on-and-on")};

START_TEST(a_full_index_waits_for_write_behind_like_full_memory)
    {
        static const char *const settings[] = {"memory", "64MiB",        "memory_chunk",
                                               "64MiB",  "index_memory", "1MiB",
                                               "disk",   "1GiB",         NULL};
        struct node *node = node_start(settings);
        static char names[8192][128];
        struct want want = {.length = 64};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        uint32_t count = 0;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        do { /* until nothing more fits; nothing is on disk */
            ck_assert_uint_lt(count, SL_COUNT(names));
            snprintf(names[count], sizeof(names[count]), "k%u%s", count,
                     _i == 0 ? "" : tails[count % SL_COUNT(tails)]);
            want.key = names[count];
            ask.op_id = count + 1;
            ask.seq = 0;
            ck_assert(node_reserve(node, &ask, &grants));
            if (grants.at[0].code == SL_OK) {
                ck_assert_int_eq(node_commit(node, "client.1", names[count], &grants.at[0]), SL_OK);
                count++;
            }
        } while (grants.at[0].code == SL_OK);
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert_uint_gt(count, 500);
        for (uint32_t i = 0; i < count; i++) { /* nothing that is not on disk is dropped */
            ck_assert(node_is_visible(node, names[i]) && !on_disk(node, names[i]));
        }
        ask.op_id++;
        ask.seq = 0;
        ask.wait = true;
        ck_assert(!node_reserve(node, &ask, &grants));

        uint32_t written = tierer_write(node, 1, SL_OK);

        ck_assert_uint_le(written, count + 64); /* each once: what was written is known to be */
        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert(node_is_visible(node, names[count - 1]) && on_disk(node, names[count - 1]));
        node_end(node);
    }
END_TEST

START_TEST(a_block_leaves_memory_only_when_all_of_it_is_on_disk)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = 2 * BIG};
        struct reserve_ask ask = {.sender = "client.1", .op_id = 2, .wants = &want, .count = 1};
        struct sl_msg request, reply = {.code = SL_OK};
        node_put_block(node, "client.1", "m/b", 3, BIG, 0);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request));
        struct sl_item_spilled spilled[3];
        ck_assert_uint_eq(request.body.disk_write.items.count, 3);
        for (uint32_t i = 0; i < 3; i++) { /* the last one fails */
            spilled[i] = (struct sl_item_spilled){
                .code = i == 2 ? SL_ERR_IO : SL_OK,
                .generation = request.body.disk_write.items.at[i].generation,
                .segment = 1,
                .disk_offset_bytes = i * BIG};
        }
        reply.body.disk_write_reply.items.at = spilled;
        reply.body.disk_write_reply.items.count = 3;
        fake_answer(&node->fake, "tierer.0", &request, &reply);
        ck_assert(!node_reserve(node, &ask, &grants));

        fake_advance(&node->fake, SL_NS_PER_S); /* tried again */
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        for (uint32_t i = 0; i < 3; i++) {
            char key[8];
            snprintf(key, sizeof(key), "m/b/%u", i);
            ck_assert(node_is_visible(node, key) && !in_memory(node, key));
        }
        node_end(node);
    }
END_TEST

START_TEST(a_value_whose_bytes_do_not_match_is_dropped)
    {
        struct node *node = node_disk();
        node_put_block(node, "client.1", "m/b", 2, 5000, 0);

        (void)tierer_write(node, 1, SL_ERR_CORRUPT);

        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1"));
        ck_assert_uint_ge(node_metric(node, "corrupt_count"), 1);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_failing_disk_degrades_to_no_disk_and_recovers)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {.sender = "client.1", .op_id = 2, .wants = &want, .count = 1};
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        for (uint32_t i = 0; i < 8; i++) { /* over five seconds of errors */
            (void)tierer_write(node, 1, SL_ERR_NO_SPACE);
            fake_advance(&node->fake, SL_NS_PER_S);
        }
        (void)tierer_write(node, 1, SL_ERR_NO_SPACE);
        ck_assert_uint_gt(node_metric(node, "write_failed_count"), 0);

        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK); /* evicted as without a disk */

        while (tierer_write(node, 2, SL_OK) == 0) {
            fake_advance(&node->fake, SL_NS_PER_S);
        }
        ck_assert(on_disk(node, "k3"));
        node_end(node);
    }
END_TEST

START_TEST(writes_of_a_dead_tierer_are_queued_again)
    {
        struct node *node = node_disk();
        struct sl_msg request;
        node_put(node, "client.1", "a", 5000);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request));

        fake_process_end(&node->fake, proc_of(TIERER_PID));
        ck_assert_uint_eq(node_metric(node, "write_behind_pending_count"), 1);
        tierer_arrive(node, TIERER_PID + 1);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0); /* not before its scan is over */
        tierer_ready(node);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(on_disk(node, "a"));
        node_end(node);
    }
END_TEST

START_TEST(what_the_scan_finds_is_not_written_again)
    {
        struct node *node = node_disk();
        struct found found = {.key = "a", .length = 5000, .segment = 9, .offset = 4096};
        sl_err code;
        struct sl_msg request;
        node_put(node, "client.1", "a", 5000);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE,
                            &request)); /* written, its answer lost */
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        tierer_arrive(node, TIERER_PID + 1);

        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_OK);
        ck_assert(on_disk(node, "a") && in_memory(node, "a"));
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);
        node_end(node);
    }
END_TEST

START_TEST(an_absent_tierer_is_taken_for_no_disk_after_a_while)
    {
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 2,
                                  .wants = &want,
                                  .count = 1,
                                  .budget_ns = 10 * SL_NS_PER_S};
        char key[8];
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(!node_reserve(node, &ask, &grants));

        fake_advance(&node->fake, 6 * SL_NS_PER_S);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        node_end(node);
    }
END_TEST

/* ---- flush ---- */

START_TEST(flush_waits_for_what_was_committed_before)
    {
        struct node *node = node_disk();
        struct sl_msg flush = {.type = SL_MSG_FLUSH}, again = {.type = SL_MSG_FLUSH}, reply, write;
        node_put(node, "client.1", "a", 5000);
        fake_give(&node->fake, "client.1", &flush);
        ck_assert(!fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &write));
        node_put(node, "client.1", "b", 5000); /* after it: not waited for */
        ck_assert(!fake_take_reply(&node->fake, "client.1", flush.seq, &reply));

        struct sl_item_spilled spilled = {
            .generation = write.body.disk_write.items.at[0].generation, .segment = 1};
        struct sl_msg written = {.code = SL_OK};
        written.body.disk_write_reply.items.at = &spilled;
        written.body.disk_write_reply.items.count = 1;
        fake_answer(&node->fake, "tierer.0", &write, &written);

        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        fake_give(&node->fake, "client.1", &again);
        ck_assert(
            fake_take_reply(&node->fake, "client.1", again.seq, &reply)); /* nothing is left */
        node_end(node);
    }
END_TEST

START_TEST(a_flush_beyond_the_bound_is_refused_by_its_name)
    {
        static const char *const few[] = {"disk", "1GiB", "queue_messages", "64", NULL};
        struct node *node = node_start(few);
        struct sl_msg flush, reply;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", "a", 5000);
        for (uint32_t i = 0; i <= 64; i++) {
            flush = (struct sl_msg){.type = SL_MSG_FLUSH};
            fake_give(&node->fake, "client.1", &flush);
        }
        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        ck_assert_str_eq(reply.text.at, "64 such requests wait already: queue_messages");
        node_end(node);
    }
END_TEST

START_TEST(flush_ends_at_its_deadline)
    {
        struct node *node = node_disk();
        struct sl_msg flush = {.type = SL_MSG_FLUSH}, reply;
        node_put(node, "client.1", "a", 5000);
        fake_give(&node->fake, "client.1", &flush);

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        node_end(node);
    }
END_TEST

/* No disk was present for long, or its tierer has just died: neither is waited for. */
START_TEST(flush_passes_by_what_was_removed_while_no_disk_took_writes)
    {
        struct node *node = node_disk();
        struct sl_msg flush = {.type = SL_MSG_FLUSH}, reply;
        char key[16];
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_advance(&node->fake, _i == 0 ? 120 * SL_NS_PER_S : SL_NS_PER_S);
        for (uint32_t i = 0; i < 10000; i++) {
            (void)snprintf(key, sizeof(key), "k%u", i % 5000);
            if (i < 5000) {
                node_put(node, "client.1", key, 64);
            } else {
                ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
            }
        }

        fake_give(&node->fake, "client.1", &flush);
        fake_advance(&node->fake, 20 * SL_NS_PER_MS);

        ck_assert(fake_take_reply(&node->fake, "client.1", flush.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

/* ---- promotion ---- */

/* k0 is only on disk. */
static struct node *node_with_k0_on_disk(void)
{
    struct node *node = node_disk();
    fill_durable(node);
    struct sl_item_grant grant = node_grant(node, "client.1", "x", BIG);
    ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
    ck_assert(node_is_visible(node, "k0") && !in_memory(node, "k0"));
    return node;
}

static const char *const k0[] = {"k0"};
static const char *const wanted_k1[] = {"k1"};

START_TEST(promote_brings_an_object_back)
    {
        struct node *node = node_with_k0_on_disk();
        struct sl_msg request;
        uint64_t seq = promote_ask(node, "client.1", k0, 1);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &request));
        const struct sl_item_fill *fill = &request.body.disk_read.items.at[0];
        ck_assert_str_eq(fill->key.at, "k0");
        ck_assert_uint_eq(fill->length_bytes, BIG);
        ck_assert(sl_index_claim_exists(node->view, (sl_ref)fill->ref, fill->generation));
        ck_assert(!in_memory(node, "k0"));
        uint64_t generation = fill->generation;

        uint64_t codes[] = {SL_OK};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_read_reply.codes = (struct sl_u64s){.at = codes, .count = 1};
        fake_answer(&node->fake, "tierer.0", &request, &reply);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        struct sl_entry entry;
        ck_assert(node_entry(node, "k0", &entry));
        ck_assert_uint_eq(entry.extent.generation, generation);
        ck_assert(on_disk(node, "k0"));
        ck_assert_uint_eq(node_metric(node, "promoted_count"), 1);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 4 * BIG);
        node_end(node);
    }
END_TEST

static const struct {
    uint64_t for_ns; /* until its session returns; 0: a client wants it now */
    uint32_t use_count;
} returns[] = {{0, 2}, {60 * SL_NS_PER_S, 1}};

START_TEST(values_only_on_disk_before_a_restart_count_as_stored_once)
    {
        struct sl_text key = sl_text_of("k0");
        struct sl_msg bring = {.type = SL_MSG_BRING, .budget_ns = 2 * SL_NS_PER_S};
        struct node *node = node_with_k0_on_disk();
        struct sl_entry entry;
        struct reg_judgement judged;
        sl_err code;
        ck_assert(node_entry(node, "k0", &entry));
        struct found found = {.key = "k0",
                              .length = BIG,
                              .segment = entry.disk.segment,
                              .offset = entry.disk.offset_bytes};

        node_restart(node);
        tierer_found(node, &found, 1, true, false, &code);
        bring.body.bring = (struct sl_body_bring){.keys = {.at = &key, .count = 1},
                                                  .ahead = returns[_i].for_ns != 0,
                                                  .for_ns = returns[_i].for_ns,
                                                  .worth = UINT64_C(1) << 50};
        fake_give(&node->fake, "client.1", &bring);
        ck_assert_uint_eq(
            bring.body.bring.ahead ? tierer_prefetch(node, SL_OK) : tierer_read(node, SL_OK), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", bring.seq, 0), SL_OK);
        ck_assert(node_entry(node, "k0", &entry));
        reg_unit_judge(node->fake.state, entry.ref, &judged);
        ck_assert_uint_eq(judged.use_count, returns[_i].use_count);
        node_end(node);
    }
END_TEST

START_TEST(promote_answers_at_once_for_what_needs_no_disk)
    {
        static const char *const keys[] = {"k1", "nothing"};
        struct node *node = node_with_k0_on_disk();

        uint64_t seq = promote_ask(node, "client.1", keys, 2);

        struct sl_msg reply;
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_EXISTS);
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[1], SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(several_who_want_the_same_object_share_one_read)
    {
        struct node *node = node_with_k0_on_disk();
        node_client(node, "client.2", 12);
        uint64_t first = promote_ask(node, "client.1", k0, 1);
        uint64_t second = promote_ask(node, "client.2", k0, 1);

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", first, 0), SL_OK);
        ck_assert_int_eq(promote_answer(node, "client.2", second, 0), SL_OK);
        node_end(node);
    }
END_TEST

static const sl_err lost_codes[] = {SL_ERR_CORRUPT, SL_ERR_NOT_FOUND};

START_TEST(a_disk_that_cannot_read_now_loses_nothing)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);

        ck_assert_uint_eq(tierer_read(node, SL_ERR_IO), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_IO);
        ck_assert(on_disk(node, "k0"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        seq = promote_ask(node, "client.1", k0, 1);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

/* The reason why the key is missing, from EXPLAIN. */
static const char *reason_of(struct node *node, const char *key)
{
    static char text[256];
    struct sl_text texts[] = {sl_text_of(key)};
    struct sl_msg msg = {.type = SL_MSG_EXPLAIN}, reply;
    msg.body.explain.keys = (struct sl_texts){.at = texts, .count = 1};
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    const struct sl_item_explanation *item = &reply.body.explain_reply.items.at[0];
    (void)snprintf(text, sizeof(text), "%.*s", (int)item->text.length, item->text.at);
    return text;
}

START_TEST(a_bad_copy_on_disk_is_a_miss_and_forgotten)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);

        ck_assert_uint_eq(tierer_read(node, lost_codes[_i]), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), lost_codes[_i]);
        ck_assert(!node_is_visible(node, "k0"));
        ck_assert_str_eq(reason_of(node, "k0"), lost_codes[_i] == SL_ERR_NOT_FOUND
                                                    ? "its copy on disk could not be read any more"
                                                    : "its bytes could not be trusted");
        ck_assert_uint_eq(node_metric(node, "corrupt_count"), 1);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 3 * BIG);
        ck_assert_uint_eq(tierer_forget(node, SL_OK),
                          1); /* it must not come back after a restart */
        node_end(node);
    }
END_TEST

/* Reports damage as a swapper that has read the value; spoilt: something in the report differs. */
static sl_err damage_report(struct node *node, const char *key, uint64_t spoilt)
{
    struct sl_entry entry;
    struct sl_msg msg = {.type = SL_MSG_DAMAGED}, reply;
    ck_assert(node_entry(node, key, &entry));
    struct sl_item_claim claim = {.ref = entry.ref,
                                  .generation = entry.extent.generation + (spoilt & 1),
                                  .digest_low = entry.digest.low + (spoilt >> 1 & 1),
                                  .digest_high = entry.digest.high};
    msg.body.damaged.items.at = &claim;
    msg.body.damaged.items.count = 1;
    fake_give(&node->fake, "swapper.0", &msg);
    ck_assert(fake_take_reply(&node->fake, "swapper.0", msg.seq, &reply));
    ck_assert_uint_eq(reply.body.damaged_reply.codes.count, 1);
    return (sl_err)reply.body.damaged_reply.codes.at[0];
}

START_TEST(a_block_that_is_damaged_in_memory_is_a_miss_and_can_be_stored)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/b", 2, 5000, 0);

        ck_assert_int_eq(damage_report(node, "m/b/1", 1),
                         SL_ERR_NOT_FOUND); /* of an earlier value */
        ck_assert_int_eq(damage_report(node, "m/b/1", 2), SL_ERR_NOT_FOUND);
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        ck_assert_int_eq(damage_report(node, "m/b/1", 0), SL_OK);

        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_put_block(node, "client.1", "m/b", 2, 5000, 0);
        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        node_end(node);
    }
END_TEST

START_TEST(a_value_that_is_damaged_in_memory_is_read_from_disk)
    {
        struct node *node = node_disk();
        fill_durable(node);

        ck_assert_int_eq(damage_report(node, "k1", 0), SL_OK);

        ck_assert(on_disk(node, "k1") && !in_memory(node, "k1"));
        ck_assert(in_memory(node, "k0") && in_memory(node, "k2"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        const char *const keys[] = {"k1"};
        uint64_t seq = promote_ask(node, "client.1", keys, 1);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        ck_assert(in_memory(node, "k1"));
        node_end(node);
    }
END_TEST

/* Its record names the disk of an earlier start. */
START_TEST(a_value_that_is_damaged_in_memory_is_dropped_if_the_node_has_no_disk_now)
    {
        struct node *node = node_disk();
        fill_durable(node);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_set(&node->fake, "disk", "0");
        node_restart(node);
        node_client(node, "client.1", 11);
        ck_assert(on_disk(node, "k1") && in_memory(node, "k1"));

        ck_assert_int_eq(damage_report(node, "k1", 0), SL_OK);

        ck_assert(!node_is_visible(node, "k1"));
        node_put(node, "client.1", "k1", BIG);
        ck_assert(in_memory(node, "k1"));
        node_end(node);
    }
END_TEST

/* A unit on disk only that others make room for when the index is full. The parts of a block have
 * its pins. Regression: hard pins, and pins of blocks, did not count: the value was dropped, and
 * removed from its disk. */
static const struct {
    const char *key, *block;
    bool hard_pin;
    uint64_t soft_pin_ns;
} pinned_units[] = {
    {"pinned", NULL, true, 0},
    {"m/b/0", "m/b", true, 0},
    {"pinned", NULL, false, 60 * SL_NS_PER_S},
    {"m/b/0", "m/b", false, 60 * SL_NS_PER_S},
};
START_TEST(a_pinned_value_on_disk_alone_stays_in_a_full_index)
    {
        struct node *node = node_disk();
        struct registrar *self = node->fake.state;
        const char *key = pinned_units[_i].key;
        struct want want = {.key = key, .length = 64, .group = pinned_units[_i].block != NULL};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 2,
                                  .wants = &want,
                                  .count = 1,
                                  .group_key = pinned_units[_i].block,
                                  .part_count = 1,
                                  .hard_pin = pinned_units[_i].hard_pin,
                                  .soft_pin_ns = pinned_units[_i].soft_pin_ns};
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
        node_put(node, "client.1", "other", 64);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 2);
        ck_assert_int_eq(damage_report(node, key, 0), SL_OK);
        ck_assert_int_eq(damage_report(node, "other", 0), SL_OK);
        ck_assert(on_disk(node, key) && !in_memory(node, key));

        ck_assert(reg_make_index_room(self));

        ck_assert(!node_is_visible(node, "other"));
        ck_assert(node_is_visible(node, key) && on_disk(node, key));
        ck_assert(reg_make_index_room(self) !=
                  pinned_units[_i].hard_pin); /* nothing else is left */
        ck_assert(node_is_visible(node, key) == pinned_units[_i].hard_pin);
        node_end(node);
    }
END_TEST

START_TEST(a_busy_tierer_costs_no_place)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);

        ck_assert_uint_eq(tierer_read(node, SL_ERR_LIMIT), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_LIMIT);
        ck_assert(on_disk(node, "k0"));
        node_end(node);
    }
END_TEST

START_TEST(extents_of_a_dead_tierer_stay_out_for_io_grace)
    {
        struct node *node = node_with_k0_on_disk();
        (void)promote_ask(node, "client.1", k0, 1);
        struct sl_msg request;
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &request));

        fake_process_end(&node->fake, proc_of(TIERER_PID));
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), BIG);
        fake_advance(&node->fake, 9 * SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), BIG);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        node_end(node);
    }
END_TEST

/* A tierer that holds the disk's lock knows that its predecessor's requests have ended. */
START_TEST(successor_of_a_tierer_frees_its_extents)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);
        struct sl_msg request;
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &request));

        fake_process_end(&node->fake, proc_of(TIERER_PID));
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), BIG);
        tierer_arrive(node, TIERER_PID + 1);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        struct found found[4];
        char keys[4][8];
        for (uint32_t i = 0; i < 4; i++) {
            struct sl_entry entry;
            snprintf(keys[i], sizeof(keys[i]), "k%u", i);
            ck_assert(node_entry(node, keys[i], &entry));
            found[i] = (struct found){.key = keys[i],
                                      .length = BIG,
                                      .segment = entry.disk.segment,
                                      .offset = entry.disk.offset_bytes};
        }
        tierer_found(node, found, 4, true, true, NULL);

        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_READ, &request)); /* read again */
        uint64_t codes[] = {SL_OK};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_read_reply.codes = (struct sl_u64s){.at = codes, .count = 1};
        fake_answer(&node->fake, "tierer.0", &request, &reply);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(promotion_does_not_wait_for_a_tierer_that_is_away_for_long)
    {
        struct node *node = node_with_k0_on_disk();
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        uint64_t seq = promote_ask(node, "client.1", k0, 1);
        fake_advance(&node->fake, SL_NS_PER_S); /* it may return in a moment */
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_INCOMPLETE);
        fake_advance(&node->fake, 5 * SL_NS_PER_S);

        seq = promote_ask(node, "client.1", k0, 1);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_UNREACHABLE);
        ck_assert(on_disk(node, "k0")); /* for its return */
        struct sl_entry entry;
        ck_assert(node_entry(node, "k0", &entry));
        struct found found = {.key = "k0",
                              .length = BIG,
                              .segment = entry.disk.segment,
                              .offset = entry.disk.offset_bytes};
        tierer_arrive(node, TIERER_PID + 1);
        seq = promote_ask(node, "client.1", k0, 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_INCOMPLETE);
        tierer_found(node, &found, 1, true, true, NULL); /* it reports its disk */
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

/* Regression: a read without space within 100 ms was refused, although each write frees some. */
START_TEST(promote_waits_for_the_room_that_write_behind_makes)
    {
        struct node *node = node_disk();
        const char *const key[] = {"k0"};
        struct sl_item_grant grant;
        fill_durable(node);
        grant = node_grant(node, "client.1", "x", BIG); /* k0 leaves memory */
        ck_assert_int_eq(node_commit(node, "client.1", "x", &grant), SL_OK);
        for (uint32_t i = 0; i < 3; i++) { /* and all the others */
            char name[8];
            (void)snprintf(name, sizeof(name), "y%u", i);
            node_put(node, "client.1", name, BIG);
        }
        ck_assert(node_is_visible(node, "k0") && !in_memory(node, "k0"));

        if (_i == 1) { /* a disk that is scanned is written nothing */
            tierer_found(node, NULL, 0, true, false, NULL);
        }

        uint64_t seq = promote_ask(node, "client.1", key, 1);
        fake_advance(&node->fake, SL_NS_PER_S);
        if (_i == 1) {
            ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_NO_SPACE);
            node_end(node);
            return;
        }
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 4);

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(promote_ends_at_its_deadline)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_TIMEOUT);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1); /* a late read is not lost */
        ck_assert(in_memory(node, "k0"));
        node_end(node);
    }
END_TEST

START_TEST(an_object_removed_while_it_is_read_stays_removed)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq = promote_ask(node, "client.1", k0, 1);
        (void)node_remove(node, "client.1", "k0");

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "k0"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 3 * BIG);
        node_end(node);
    }
END_TEST

START_TEST(promotion_waits_for_space)
    {
        struct node *node = node_disk();
        fill_durable(node);
        char names[4][8];
        struct want wants[4];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(names[i], sizeof(names[i]), "h%u", i);
            wants[i] = (struct want){.key = names[i], .length = BIG};
        }
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 1,
                                  .wants = wants,
                                  .count = 4,
                                  .ttl_ns = 100 * SL_NS_PER_S};
        ck_assert(node_reserve(node, &ask, &grants));
        uint64_t seq = promote_ask(node, "client.1", k0, 1);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 0);

        ck_assert_int_eq(node_abort(node, "client.1", &grants.at[1]), SL_OK);

        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_promotion_that_gets_no_space_is_told_before_its_deadline)
    {
        struct node *node = node_disk();
        fill_durable(node);
        char names[4][8];
        struct want wants[4];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(names[i], sizeof(names[i]), "h%u", i);
            wants[i] = (struct want){.key = names[i], .length = BIG};
        }
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 1,
                                  .wants = wants,
                                  .count = 4,
                                  .ttl_ns = 100 * SL_NS_PER_S};
        ck_assert(node_reserve(node, &ask, &grants));
        uint64_t seq = promote_ask(node, "client.1", k0, 1);

        fake_advance(&node->fake, 100 * SL_NS_PER_MS);

        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_NO_SPACE);
        ck_assert(on_disk(node, "k0"));
        node_end(node);
    }
END_TEST

START_TEST(a_value_that_fits_no_segment_stays_in_memory_and_stops_no_other)
    {
        struct node *node = node_disk();
        node_put(node, "client.1", "large", BIG);
        ck_assert_uint_eq(tierer_write(node, 1, SL_ERR_LIMIT), 1);
        node_put(node, "client.1", "small", 100);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert(on_disk(node, "small"));
        ck_assert(in_memory(node, "large") && !on_disk(node, "large"));
        (void)node_grant(node, "client.1", "x", 4 * BIG); /* it may leave memory all the same */
        ck_assert(!node_is_visible(node, "large"));
        node_end(node);
    }
END_TEST

/* Otherwise it would be at the front of every batch again, and halve it. */
START_TEST(a_value_that_is_refused_beside_others_is_not_offered_again)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        struct sl_msg request, reply = {.code = SL_OK};
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "large", BIG);
        node_put(node, "client.1", "small", 100);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &request));
        const struct sl_item_spill *items = request.body.disk_write.items.at;
        ck_assert_uint_eq(request.body.disk_write.items.count, 2);
        struct sl_item_spilled spilled[] = {
            {.code = SL_ERR_UNSUPPORTED, .generation = items[0].generation},
            {.generation = items[1].generation, .segment = 1, .disk_offset_bytes = 8192}};
        reply.body.disk_write_reply.items.at = spilled;
        reply.body.disk_write_reply.items.count = 2;

        fake_answer(&node->fake, "tierer.0", &request, &reply);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);
        ck_assert(on_disk(node, "small"));
        ck_assert(in_memory(node, "large") && !on_disk(node, "large"));
        node_end(node);
    }
END_TEST

START_TEST(a_batch_that_is_too_much_comes_again_in_pieces)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 8; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 100);
        }
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_uint_eq(tierer_write(node, 1, SL_ERR_LIMIT), 8);

        for (uint32_t i = 0; i < 6; i++) {
            fake_advance(&node->fake, SL_NS_PER_S);
            (void)tierer_write(node, 1, i < 3 ? SL_ERR_LIMIT : SL_OK);
        }

        for (uint32_t i = 0; i < 8; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert(on_disk(node, key));
        }
        node_end(node);
    }
END_TEST

/* ---- what a scan finds ---- */

START_TEST(found_objects_are_served_from_disk)
    {
        static const struct found found[] = {
            {.key = "a", .length = 5000, .segment = 1, .offset = 0},
            {.key = "m/b/0",
             .group = "m/b",
             .part = 0,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 8192},
            {.key = "m/c/0",
             .group = "m/c",
             .part = 0,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 16384},
            {.key = "m/b/1",
             .group = "m/b",
             .part = 1,
             .parts = 2,
             .length = 100,
             .segment = 2,
             .offset = 0},
        };
        sl_err codes[4];
        struct node *node = node_start(disk_settings);
        tierer_arrive(node, TIERER_PID);

        tierer_found(node, found, 3, true, false, codes);
        ck_assert(node_is_visible(node, "a"));
        ck_assert(!node_is_visible(node, "m/b/0")); /* not before all of it is present */
        tierer_found(node, &found[3], 1, false, true, codes);

        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        ck_assert(on_disk(node, "a") && !in_memory(node, "a"));
        ck_assert(!node_is_visible(node, "m/c/0")); /* half a block is none */
        ck_assert_int_eq(sl_index_find_group(node->view, "m/c", 3), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 3);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

/* A lost disk may leave half of each block: dropping tens of thousands must not block all else. */
START_TEST(half_found_blocks_are_dropped_in_slices)
    {
        static char keys[64][16], groups[64][16];
        struct found found[64];
        struct sl_index_stats stats;
        struct node *node = node_start(disk_settings);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t n = 0; n < 2560; n += 64) {
            for (uint32_t i = 0; i < 64; i++) {
                (void)snprintf(groups[i], sizeof(groups[i]), "b%u", n + i);
                (void)snprintf(keys[i], sizeof(keys[i]), "b%u/0", n + i);
                found[i] = (struct found){.key = keys[i],
                                          .group = groups[i],
                                          .parts = 2,
                                          .length = 100,
                                          .segment = 1,
                                          .offset = (n + i) * UINT64_C(4096)};
            }
            tierer_found(node, found, 64, n == 0, false, NULL);
        }

        tierer_found(node, NULL, 0, false, true, NULL);

        sl_index_view_stats(node->view, &stats);
        ck_assert_uint_eq(stats.group_count, 512);
        fake_advance(&node->fake, SL_NS_PER_MS);
        sl_index_view_stats(node->view, &stats);
        ck_assert_uint_eq(stats.group_count, 0);
        node_end(node);
    }
END_TEST

START_TEST(rest_of_a_scan_that_began_elsewhere_is_not_taken_for_all)
    {
        struct node *node = node_start(disk_settings);
        struct sl_msg msg = {.type = SL_MSG_DISK_FOUND}, reply;
        tierer_arrive(node, TIERER_PID);
        tierer_fenced(node);
        msg.body.disk_found.last = true; /* its first part was for an earlier registrar */

        fake_give(&node->fake, "tierer.0", &msg);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 0);
        node_end(node);
    }
END_TEST

static uint64_t boot_generation(struct node *node)
{
    struct sl_msg msg = {.type = SL_MSG_HELLO}, reply;
    struct sl_proc_id proc = proc_of(TIERER_PID);
    msg.body.hello = (struct sl_body_hello){.role = sl_text_of("tierer"),
                                            .name = sl_text_of("tierer.0"),
                                            .pid = proc.pid,
                                            .start_time = proc.start_time};
    fake_give(&node->fake, "tierer.0", &msg);
    ck_assert(fake_take_reply(&node->fake, "tierer.0", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return reply.body.hello_reply.boot_generation;
}

/* A complete scan that finds a value of key "a". */
static struct sl_msg found_whole(struct sl_item_found *item, uint64_t for_generation)
{
    struct sl_digest digest = digest_of_key("a");
    struct sl_msg msg = {.type = SL_MSG_DISK_FOUND};
    *item = (struct sl_item_found){.key = sl_text_of("a"),
                                   .length_bytes = 5000,
                                   .digest_low = digest.low,
                                   .digest_high = digest.high,
                                   .segment = 1,
                                   .disk_offset_bytes = 4096};
    msg.body.disk_found.first = true;
    msg.body.disk_found.last = true;
    msg.body.disk_found.items.at = item;
    msg.body.disk_found.items.count = 1;
    msg.body.disk_found.boot_generation = for_generation;
    return msg;
}

/* The answer to the scan was lost, and the registrar died. The report that the tierer sends again
 * is older than the removal. */
START_TEST(an_old_scan_does_not_restore_a_removed_value_at_a_new_registrar)
    {
        struct sl_item_found item;
        struct sl_msg reply;
        struct node *node = node_start(disk_settings);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_fenced(node);
        struct sl_msg found = found_whole(&item, boot_generation(node));
        fake_give(&node->fake, "tierer.0", &found);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", found.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(on_disk(node, "a"));
        (void)node_remove(node, "client.1", "a");
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        node_restart(node);
        tierer_arrive(node, TIERER_PID);
        tierer_fenced(node);
        fake_give(&node->fake, "tierer.0", &found);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", found.seq, &reply));
        ck_assert(!on_disk(node, "a"));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 0);
        found.seq = 0;
        found.body.disk_found.items.count = 0;
        found.body.disk_found.boot_generation = boot_generation(node);
        fake_give(&node->fake, "tierer.0", &found);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", found.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 1);
        node_end(node);
    }
END_TEST

/* The scan is older than a write just ahead of the fence, and arrives after the fence's answer. */
START_TEST(scan_that_was_made_before_the_fence_begins_again)
    {
        struct node *node = node_start(disk_settings);
        struct sl_msg msg = {.type = SL_MSG_DISK_FOUND}, reply, fence, ok = {.code = SL_OK};
        tierer_arrive(node, TIERER_PID);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "tierer.0", &fence, &ok);
        msg.body.disk_found.first = true;
        msg.body.disk_found.last = true;
        msg.body.disk_found.known_fence = 1; /* none */
        fake_give(&node->fake, "tierer.0", &msg);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 0);

        msg.seq = 0;
        msg.body.disk_found.known_fence = fence.seq + 1;
        fake_give(&node->fake, "tierer.0", &msg);

        ck_assert(fake_take_reply(&node->fake, "tierer.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(node_metric(node, "disk_ready"), 1);
        node_end(node);
    }
END_TEST

static sl_err told(struct node *node, struct sl_msg *msg)
{
    struct sl_msg reply;
    fake_give(&node->fake, "tierer.0", msg);
    ck_assert(fake_take_reply(&node->fake, "tierer.0", msg->seq, &reply));
    return reply.code;
}

/* A disk whose scan, made after the fence, found "a". */
static struct node *node_that_found_a(struct sl_item_found *item, struct sl_msg *found)
{
    struct node *node = node_start(disk_settings);
    struct sl_msg fence, ok = {.code = SL_OK};
    node_client(node, "client.1", 11);
    tierer_arrive(node, TIERER_PID);
    ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
    fake_answer(&node->fake, "tierer.0", &fence, &ok);
    *found = found_whole(item, boot_generation(node));
    found->body.disk_found.known_fence = fence.seq + 1;
    ck_assert_int_eq(told(node, found), SL_OK);
    ck_assert(on_disk(node, "a"));
    return node;
}

/* After the next fence, the tierer reports a new scan, which finds nothing. */
static void nothing_is_found(struct node *node, struct sl_msg *found)
{
    struct sl_msg fence, ok = {.code = SL_OK};
    ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
    fake_answer(&node->fake, "tierer.0", &fence, &ok);
    found->seq = 0;
    found->body.disk_found.known_fence = fence.seq + 1;
    found->body.disk_found.items.count = 0;
    ck_assert_int_eq(told(node, found), SL_OK);
    ck_assert_uint_eq(node_metric(node, "disk_ready"), 1);
    ck_assert(!on_disk(node, "a"));
}

/* The answer to the scan was lost, so it began again. That was lost as well, and is sent again when
 * the tombstone is durable. */
START_TEST(an_older_scan_does_not_restore_a_removed_value)
    {
        struct sl_item_found item;
        struct sl_msg found;
        struct node *node = node_that_found_a(&item, &found);
        found.seq = 0; /* made here */
        (void)node_remove(node, "client.1", "a");
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        sl_err err = told(node, &found);

        ck_assert(!on_disk(node, "a"));
        ck_assert_int_eq(err, SL_ERR_BUSY);
        nothing_is_found(node, &found);
        node_end(node);
    }
END_TEST

/* Otherwise the fence would be acknowledged before the tombstone, and a scan between the two would
 * find the value. */
START_TEST(a_scan_that_begins_again_waits_for_tombstones_on_their_way)
    {
        struct sl_item_found item;
        struct sl_msg found, forget, fence, ok = {.code = SL_OK};
        struct node *node = node_that_found_a(&item, &found);
        uint64_t code = SL_OK;
        (void)node_remove(node, "client.1", "a");
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &forget));

        found.seq = 0;
        ck_assert_int_eq(told(node, &found), SL_ERR_BUSY);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
        ok.body.disk_forget_reply.codes = (struct sl_u64s){.at = &code, .count = 1};
        fake_answer(&node->fake, "tierer.0", &forget, &ok);
        found.seq = 0;
        ck_assert_int_eq(told(node, &found), SL_ERR_BUSY);

        nothing_is_found(node, &found);
        node_end(node);
    }
END_TEST

/* The rest of a scan arrived twice, the second time in the middle of the next scan. */
START_TEST(the_rest_of_an_earlier_scan_tells_nothing)
    {
        struct sl_item_found item;
        struct sl_msg found, late, fence, ok = {.code = SL_OK};
        struct node *node = node_that_found_a(&item, &found);
        found.body.disk_found.first = found.body.disk_found.last = false;
        late = found;
        late.seq = found.seq + 1;
        (void)node_remove(node, "client.1", "a");
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        found.seq = 0;
        found.body.disk_found.first = true;
        found.body.disk_found.items.count = 0;
        sl_err err = told(node, &found);
        if (fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence)) {
            fake_answer(&node->fake, "tierer.0", &fence, &ok);
            found.seq = 0;
            found.body.disk_found.known_fence = fence.seq + 1;
            err = told(node, &found);
        }
        ck_assert_int_eq(err, SL_OK);

        err = told(node, &late);

        ck_assert(!on_disk(node, "a"));
        ck_assert_int_eq(err, SL_ERR_BUSY);
        node_end(node);
    }
END_TEST

START_TEST(scan_waits_until_what_was_asked_before_is_fenced)
    {
        struct node *node = node_start(disk_settings);
        struct sl_msg msg = {.type = SL_MSG_DISK_FOUND}, reply;
        tierer_arrive(node, TIERER_PID);
        msg.body.disk_found.first = true;
        msg.body.disk_found.last = true;
        fake_give(&node->fake, "tierer.0", &msg);
        ck_assert(fake_take_reply(&node->fake, "tierer.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);

        tierer_ready(node); /* acknowledges the fence */

        ck_assert_uint_eq(node_metric(node, "disk_ready"), 1);
        node_end(node);
    }
END_TEST

/* Written by a tierer that died before it answered: it may be on disk. */
START_TEST(removal_of_what_may_be_on_disk_waits_for_the_scan)
    {
        struct found found = {.key = "a", .length = 5000, .segment = 1, .offset = 4096};
        struct node *node = node_disk();
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply, write;
        struct sl_text key = sl_text_of("a");
        sl_err code = SL_OK;
        node_put(node, "client.1", "a", 5000);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &write));
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        struct sl_msg again = {.type = SL_MSG_REMOVE};
        again.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &again); /* it is missing, but for how long? */
        ck_assert(!fake_take_reply(&node->fake, "client.1", again.seq, &reply));

        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert(fake_take_reply(&node->fake, "client.1", again.seq, &reply));
        node_end(node);
    }
END_TEST

START_TEST(found_values_with_another_digest_are_unwanted)
    {
        struct node *node = node_disk();
        sl_err codes[2];
        node_put(node, "client.1", "a", 5000);
        (void)tierer_write(node, 7, SL_OK);
        struct found found[2] = {{.key = "a", .length = 5000, .segment = 1, .digest_key = "other"},
                                 {.key = "w", .length = 100, .segment = 1, .offset = 8192}};
        struct sl_item_grant writing = node_grant(node, "client.1", "w", 100);

        tierer_found(node, found, 2, true, true, codes);

        ck_assert_int_eq(codes[0], SL_ERR_NOT_FOUND);
        ck_assert_int_eq(codes[1], SL_ERR_BUSY); /* a client is writing it again */
        ck_assert_int_eq(node_commit(node, "client.1", "w", &writing), SL_OK);
        tierer_found(node, &found[1], 1, true, true, codes);
        ck_assert_int_eq(codes[0], SL_OK); /* the same bytes: they are on disk already */
        node_end(node);
    }
END_TEST

/* Regression: the walk that resets the marks of a scan skipped invisible records, so the next scan
 * took them for found. */
START_TEST(half_of_a_block_that_later_scans_do_not_find_is_forgotten)
    {
        static const struct found halves[] = {
            {.key = "b/0", .group = "b", .part = 0, .parts = 2, .length = 100, .segment = 1},
            {.key = "b/1",
             .group = "b",
             .part = 1,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 4096}};
        struct node *node = node_disk();
        for (uint32_t scan = 0; scan < 3; scan++) { /* of which two come to no end */
            fake_process_end(&node->fake, proc_of(TIERER_PID + scan));
            tierer_arrive(node, TIERER_PID + scan + 1);
            tierer_found(node, &halves[scan / 2], scan == 1 ? 0 : 1, true, scan == 2, NULL);
        }
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(!node_is_visible(node, "b/0") && !node_is_visible(node, "b/1"));
        node_end(node);
    }
END_TEST

/* Its removal leaves a tombstone; otherwise it would return with the next scan. For a removal of
 * everything the disk is scanned again. */
START_TEST(what_a_scan_finds_no_room_for_is_removed_all_the_same)
    {
        static const char *const settings[] = {"memory",       "64MiB", "memory_chunk", "64MiB",
                                               "index_memory", "1MiB",  "disk",         "1GiB",
                                               "disk_path",    "/one",  NULL,           NULL};
        static const char *const two[] = {
            "memory", "64MiB",     "memory_chunk", "64MiB", "index_memory", "1MiB", "disk",
            "1GiB",   "disk_path", "/one,/two",    NULL};
        const sl_err done = _i == 0 ? SL_OK : SL_ERR_DISK_AWAY; /* the other disk never appears */
        const struct found found[] = {
            {.key = "old", .length = 100, .segment = 7, .offset = 4096},
            {.key = "older", .length = 100, .segment = 7, .offset = 8192}};
        const struct sl_text old = sl_text_of("old");
        struct sl_msg one = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S}, all, reply;
        struct sl_msg fence, ok = {.code = SL_OK};
        struct node *node = node_start(_i == 0 ? settings : two);
        struct want want = {.length = 64};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        char key[16];
        sl_err codes[2];
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (grants.at[0].code = SL_OK; grants.at[0].code == SL_OK;) { /* until the index is full */
            (void)snprintf(key, sizeof(key), "k%u", (unsigned)++ask.op_id);
            want.key = key;
            ask.seq = 0;
            ck_assert(node_reserve(node, &ask, &grants));
            if (grants.at[0].code == SL_OK) {
                ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
            }
        }
        tierer_found(node, found, 2, true, true, codes);
        ck_assert(codes[0] == SL_ERR_NOT_FOUND && codes[1] == SL_ERR_NOT_FOUND);
        (void)tierer_write(node, 8, SL_OK);

        all = one;
        one.body.remove.keys = (struct sl_texts){.at = &old, .count = 1};
        fake_give(&node->fake, "client.1", &one);
        ck_assert(!fake_take_reply(&node->fake, "client.1", one.seq, &reply));
        uint32_t forgotten = tierer_forget(node, SL_OK);
        ck_assert(_i == 0 ? forgotten == 1 : forgotten > 1); /* others leave space for a record */
        ck_assert(fake_take_reply(&node->fake, "client.1", one.seq, &reply));

        all.body.remove.all = true;
        fake_give(&node->fake, "client.1", &all);
        while (tierer_forget(node, SL_OK) > 0) {
            fake_advance(&node->fake, SL_NS_PER_MS);
        }
        ck_assert(!fake_take_reply(&node->fake, "client.1", all.seq, &reply));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence)); /* it scans again */
        fake_answer(&node->fake, "tierer.0", &fence, &ok);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
        tierer_found(node, &found[1], 1, true, true, codes);
        ck_assert_int_eq(codes[0], SL_OK);
        ck_assert(!node_is_visible(node, "older"));
        ck_assert(!fake_take_reply(&node->fake, "client.1", all.seq, &reply));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", all.seq, &reply));
        ck_assert_int_eq(reply.code, done);
        node_end(node);
    }
END_TEST

/* The disk serves all but writes. Regression: unwritten values were dropped after five seconds. */
START_TEST(a_scan_that_takes_long_costs_no_value_that_is_not_on_disk)
    {
        bool tells = _i == 0; /* otherwise its tierer hangs */
        struct node *node = node_disk();
        struct want want = {.key = "x", .length = BIG};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 2,
                                  .wants = &want,
                                  .count = 1,
                                  .wait = true,
                                  .budget_ns = 60 * SL_NS_PER_S};
        char key[8];
        tierer_found(node, NULL, 0, true, false, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            (void)snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }

        ck_assert(!node_reserve(node, &ask, &grants));
        for (uint32_t i = 0; i < 4; i++) {
            fake_advance(&node->fake, 3 * SL_NS_PER_S);
            if (tells) {
                tierer_found(node, NULL, 0, false, false, NULL);
            }
        }

        ck_assert_int_eq(node_reserved(node, &ask, &grants), !tells);
        ck_assert_int_eq(node_is_visible(node, "k0"), tells);
        if (tells) {
            tierer_found(node, NULL, 0, false, true, NULL);
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 4);
            ck_assert(node_reserved(node, &ask, &grants));
            ck_assert(on_disk(node, "k0"));
        }
        node_end(node);
    }
END_TEST

START_TEST(a_store_takes_over_a_half_found_block)
    {
        struct node *node = node_start(disk_settings);
        struct found found = {
            .key = "m/b/0", .group = "m/b", .part = 0, .parts = 2, .length = 100, .segment = 1};
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &found, 1, true, false, NULL);

        node_put_block(node, "client.1", "m/b", 2, 100, 0);

        ck_assert(node_is_visible(node, "m/b/0") && node_is_visible(node, "m/b/1"));
        tierer_found(node, NULL, 0, false, true, NULL);
        ck_assert(node_is_visible(node, "m/b/0"));
        node_end(node);
    }
END_TEST

START_TEST(places_that_a_scan_does_not_find_are_forgotten)
    {
        struct node *node = node_disk();
        fill_durable(node);
        struct sl_item_grant grant = node_grant(node, "client.1", "x", BIG);
        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK); /* k0 is only on disk */
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        struct sl_entry k1;
        ck_assert(node_entry(node, "k1", &k1));
        struct found found = {
            .key = "k1", .length = BIG, .segment = k1.disk.segment, .offset = k1.disk.offset_bytes};
        tierer_arrive(node, TIERER_PID + 1);

        tierer_found(node, &found, 1, true, true, NULL);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(on_disk(node, "k1"));
        ck_assert(in_memory(node, "k2") && !on_disk(node, "k2"));
        ck_assert_uint_eq(tierer_write(node, 5, SL_OK), 2); /* k2 and k3 are written again */
        ck_assert(on_disk(node, "k2"));
        node_end(node);
    }
END_TEST

/* Restarted in its middle by the same process, or by another one, and while unfound values are
 * swept; also values found by the scan before it. */
START_TEST(a_scan_that_begins_anew_forgets_what_it_does_not_find)
    {
        struct node *node = node_disk();
        const char *keys[] = {_i < 3 ? "k1" : "k2", _i < 3 ? "k2" : "k1"};
        struct sl_entry k1, last;
        fill_durable(node);
        ck_assert(node_entry(node, "k1", &k1));
        struct found found = {
            .key = "k1", .length = BIG, .segment = k1.disk.segment, .offset = k1.disk.offset_bytes};
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        tierer_arrive(node, TIERER_PID + 1);
        tierer_found(node, &found, 1, true, _i % 3 == 2, NULL);
        if (_i % 3 > 0) {
            fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
            tierer_arrive(node, TIERER_PID + 2);
        }

        ck_assert(node_entry(node, keys[0], &last));
        found = (struct found){.key = keys[0],
                               .length = BIG,
                               .segment = last.disk.segment,
                               .offset = last.disk.offset_bytes};
        tierer_found(node, &found, 1, true, true, NULL);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(on_disk(node, keys[0]));
        ck_assert(in_memory(node, keys[1]) && !on_disk(node, keys[1]));
        node_end(node);
    }
END_TEST

/* ---- reclaim and tombstones ---- */

static void reclaim(struct node *node, uint32_t segment)
{
    ck_assert(tierer_reclaimed(node, segment, tierer_reclaim(node, segment, false)));
}

START_TEST(a_reclaimed_segment_takes_what_is_nowhere_else)
    {
        struct node *node = node_with_k0_on_disk();

        reclaim(node, 1);

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(in_memory(node, "k1") && !on_disk(node, "k1"));
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 0);
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 0); /* it had its time on disk */
        (void)node_grant(node, "client.1", "x",
                         2 * BIG); /* and may leave memory without another copy */
        ck_assert(!node_is_visible(node, "k1"));
        node_end(node);
    }
END_TEST

START_TEST(what_was_wanted_is_written_anew_when_its_segment_goes)
    {
        struct node *node = node_with_k0_on_disk();
        uint64_t seq =
            promote_ask(node, "client.1", wanted_k1, 1); /* a client is about to read it */
        ck_assert_int_eq(promote_answer(node, "client.1", seq, 0), SL_ERR_EXISTS);

        reclaim(node, 1);

        ck_assert(in_memory(node, "k1") && !on_disk(node, "k1"));
        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        ck_assert(in_memory(node, "k1") && on_disk(node, "k1"));
        reclaim(node, 2); /* it was not used since: it is dropped */
        ck_assert_uint_eq(tierer_write(node, 3, SL_OK), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_block_of_which_a_part_is_reclaimed_goes_whole)
    {
        static const struct found found[] = {
            {.key = "m/b/0",
             .group = "m/b",
             .part = 0,
             .parts = 2,
             .length = 100,
             .segment = 1,
             .offset = 0},
            {.key = "m/b/1",
             .group = "m/b",
             .part = 1,
             .parts = 2,
             .length = 100,
             .segment = 2,
             .offset = 0},
        };
        struct node *node = node_start(disk_settings);
        struct sl_msg request;
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, found, 2, true, true, NULL);

        reclaim(node, 1);

        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1"));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &request));
        ck_assert_uint_eq(request.body.disk_forget.items.count,
                          1); /* those in the other log file */
        ck_assert_str_eq(request.body.disk_forget.items.at[0].key.at, "m/b/1");
        node_end(node);
    }
END_TEST

START_TEST(a_place_in_a_segment_that_is_gone_already_is_not_believed)
    {
        struct node *node = node_disk();
        struct sl_msg write;
        node_put(node, "client.1", "a", 5000);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &write));
        reclaim(node, 4); /* overtakes the answer */
        struct sl_item_spilled spilled = {
            .generation = write.body.disk_write.items.at[0].generation, .segment = 4};
        struct sl_msg written = {.code = SL_OK};
        written.body.disk_write_reply.items.at = &spilled;
        written.body.disk_write_reply.items.count = 1;

        fake_answer(&node->fake, "tierer.0", &write, &written);

        ck_assert(in_memory(node, "a") && !on_disk(node, "a"));
        node_end(node);
    }
END_TEST

START_TEST(remove_is_answered_when_the_tombstone_is_durable)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};

        fake_give(&node->fake, "client.1", &msg);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(remove_of_what_is_being_written_waits_for_the_write)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        node_put(node, "client.1", "a", 5000);
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};

        fake_give(&node->fake, "client.1", &msg);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192); /* the tierer still reads it */
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* Regression: its tombstone was sent at once, so after a power cut the value was present through
 * the later write. */
START_TEST(a_second_removal_of_what_is_being_written_waits_for_the_write)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msgs[2], reply;
        node_put(node, "client.1", "a", 5000);
        for (uint32_t i = 0; i < 2; i++) {
            msgs[i] = (struct sl_msg){.type = SL_MSG_REMOVE};
            msgs[i].body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
            fake_give(&node->fake, "client.1", &msgs[i]);
        }

        ck_assert_uint_eq(tierer_forget(node, SL_OK), 0);
        ck_assert(!fake_take_reply(&node->fake, "client.1", msgs[1].seq, &reply));
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_uint_ge(tierer_forget(node, SL_OK), 1);

        for (uint32_t i = 0; i < 2; i++) {
            ck_assert(fake_take_reply(&node->fake, "client.1", msgs[i].seq, &reply));
            ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        }
        node_end(node);
    }
END_TEST

/* The tierer writes the same bytes under the same key once. Otherwise the new value would get the
 * place that the removed value's tombstone covers. */
START_TEST(what_is_put_again_is_written_behind_the_tombstone)
    {
        struct node *node = node_disk();
        struct sl_msg write, forget, early;
        node_put(node, "client.1", "a", 4096);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &write));
        uint64_t generation = write.body.disk_write.items.at[0].generation;
        struct sl_msg written = {.type = SL_MSG_DISK_WRITE, .seq = write.seq};
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE};
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);

        node_put(node, "client.1", "a", 4096);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &early));
        struct sl_item_spilled spilled = {
            .generation = generation, .segment = 1, .disk_offset_bytes = 4096};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.disk_write_reply.items.at = &spilled;
        reply.body.disk_write_reply.items.count = 1;
        fake_answer(&node->fake, "tierer.0", &written, &reply);
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE, &early));
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &forget));
        ck_assert_str_eq(forget.body.disk_forget.items.at[0].key.at, "a");
        ck_assert_uint_eq(forget.body.disk_forget.items.at[0].segment, 0); /* wherever it is */
        const struct sl_msg asked = {.type = SL_MSG_DISK_FORGET, .seq = forget.seq};
        uint64_t code = SL_OK;
        struct sl_msg forgotten = {.code = SL_OK};
        forgotten.body.disk_forget_reply.codes = (struct sl_u64s){.at = &code, .count = 1};
        fake_answer(&node->fake, "tierer.0", &asked, &forgotten);

        ck_assert_uint_eq(tierer_write(node, 2, SL_OK), 1);
        ck_assert(node_is_visible(node, "a") && on_disk(node, "a"));
        node_end(node);
    }
END_TEST

START_TEST(a_value_removed_during_its_write_is_not_found_by_the_next_tierer)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S}, reply;
        struct found found = {.key = "a", .length = 5000, .segment = 1, .offset = 4096};
        sl_err code;
        node_put(node, "client.1", "a", 5000);
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);
        fake_process_end(&node->fake,
                         proc_of(TIERER_PID)); /* the write may or may not have reached the disk */
        tierer_arrive(node, TIERER_PID + 1);

        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        node_end(node);
    }
END_TEST

/* The file system has no space for a tombstone: the request fails at once; it is tried again. */
START_TEST(a_removal_does_not_wait_for_a_full_disk)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S}, reply;
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        if (_i == 0) {
            msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        } else {
            msg.body.remove.all = true;
        }
        fake_give(&node->fake, "client.1", &msg);
        ck_assert_uint_eq(tierer_forget(node, SL_ERR_NO_SPACE), 1);
        fake_advance(&node->fake, 0);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(_i == 0 ? reply.body.remove_reply.codes.at[0] : (uint64_t)reply.code,
                          SL_ERR_NO_SPACE);
        ck_assert(!node_is_visible(node, "a"));

        fake_advance(&node->fake, 10 * SL_NS_PER_S);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        msg.seq = 0;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_ne(reply.code, SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* All that was sent to the disk without an answer; the tierer's next life found all of it. */
#define IN_FLIGHT (16u * 64u)
#define KEY_BYTES 900u /* a note of a long key takes room */
static void find_all(struct node *node, char names[][KEY_BYTES])
{
    struct found found[64];
    for (uint32_t i = 0; i < IN_FLIGHT; i += SL_COUNT(found)) {
        for (uint32_t k = 0; k < SL_COUNT(found); k++) {
            found[k] = (struct found){
                .key = names[i + k], .length = 64, .segment = 1, .offset = (i + k + 1u) * 4096u};
        }
        tierer_found(node, found, SL_COUNT(found), i == 0, i + SL_COUNT(found) == IN_FLIGHT, NULL);
    }
}

START_TEST(a_full_index_refuses_removals_that_it_cannot_note)
    {
        static const char *const settings[] = {"memory", "64MiB",        "memory_chunk",
                                               "64MiB",  "index_memory", "2MiB",
                                               "disk",   "1GiB",         NULL};
        static char names[8192][KEY_BYTES];
        static struct sl_text keys[IN_FLIGHT];
        static bool gone[IN_FLIGHT];
        struct node *node = node_start(settings);
        struct want want = {.length = 64};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S}, reply;
        uint32_t count = 0, removed = 0;
        node_client(node, "client.1", 11);
        do { /* until nothing more fits */
            ck_assert_uint_lt(count, SL_COUNT(names));
            (void)snprintf(names[count], sizeof(names[count]), "k%u-%0880u", count, 0);
            want.key = names[count];
            ask.op_id = count + 1;
            ask.seq = 0;
            ck_assert(node_reserve(node, &ask, &grants));
            if (grants.at[0].code == SL_OK) {
                ck_assert_int_eq(node_commit(node, "client.1", names[count], &grants.at[0]), SL_OK);
                count++;
            }
        } while (grants.at[0].code == SL_OK);
        ck_assert_uint_gt(count, IN_FLIGHT);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node); /* everything possible is sent to it, and it answers nothing */
        for (uint32_t i = 0; i < IN_FLIGHT; i++) {
            keys[i] = sl_text_of(names[i]);
        }

        msg.body.remove.keys = (struct sl_texts){.at = keys, .count = IN_FLIGHT};
        fake_give(&node->fake, "client.1", &msg);
        for (uint32_t i = 0; i < IN_FLIGHT; i++) {
            gone[i] = !node_is_visible(node, names[i]);
            removed += gone[i];
        }
        ck_assert_uint_gt(removed, 0);
        ck_assert_uint_lt(removed, IN_FLIGHT); /* the index has no space to record them all */
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        node_restart(node);
        tierer_arrive(node, TIERER_PID + 1);
        find_all(node, names);

        for (uint32_t i = 0; i < IN_FLIGHT; i++) {
            ck_assert_msg(node_is_visible(node, names[i]) != gone[i], "%s %s", names[i],
                          gone[i] ? "was removed and came back" : "was not removed and is gone");
        }
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        node_end(node);
    }
END_TEST

/* The disk that may have the key is missing. Regression: the answer "a disk is unavailable, and is
 * updated" held only as long as the registrar lived. Records that may be removed are searched once,
 * not for each key. */
START_TEST(a_full_index_refuses_removals_from_a_missing_disk)
    {
        static const char *const settings[] = {
            "memory", "64MiB",     "memory_chunk", "64MiB", "index_memory", "2MiB", "disk",
            "1GiB",   "disk_path", "/one,/two",    NULL};
        static char name[KEY_BYTES], names[64][KEY_BYTES];
        static struct grants puts;
        const char *put[64];
        struct want wants[64];
        struct sl_text keys[64];
        sl_err codes[64];
        struct node *node = node_start(settings);
        struct want want = {.length = 64, .key = name};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .budget_ns = SL_NS_PER_S};
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node); /* and answers no write */
        fake_advance(&node->fake, 6 * SL_NS_PER_S);
        for (uint32_t i = 0; i < 64; i++) {
            (void)snprintf(names[i], sizeof(names[i]), "s%u-%0880u", i, 0);
            keys[i] = sl_text_of(names[i]);
            put[i] = names[i];
            wants[i] = (struct want){.key = names[i], .length = 64};
        }
        struct reserve_ask replace = {
            .sender = "client.1", .wants = wants, .count = 64, .replace = true};
        ck_assert(node_reserve(node, &replace, &puts));
        for (grants.at[0].code = SL_OK; grants.at[0].code == SL_OK;) { /* until nothing more fits */
            (void)snprintf(name, sizeof(name), "k%u-%0880u", (unsigned)++ask.op_id, 0);
            ask.seq = 0;
            ck_assert(node_reserve(node, &ask, &grants));
            if (grants.at[0].code == SL_OK) {
                ck_assert_int_eq(node_commit(node, "client.1", name, &grants.at[0]), SL_OK);
            }
        }

        sl_err code = SL_ERR_DISK_AWAY;
        for (uint32_t i = 0; code == SL_ERR_DISK_AWAY; i++) { /* as long as it can be recorded */
            ck_assert_uint_lt(i, 1000);
            (void)snprintf(name, sizeof(name), "r%u-%0880u", i, 0);
            code = node_remove(node, "client.1", name);
        }
        ck_assert_int_eq(code, SL_ERR_NO_SPACE);

        struct sl_msg reply, many = {.type = SL_MSG_REMOVE, .budget_ns = SL_NS_PER_S};
        many.body.remove.keys = (struct sl_texts){.at = keys, .count = 64};
        uint64_t looked = node_metric(node, "evict_attempt_count");
        fake_give(&node->fake, "client.1", &many);
        ck_assert(fake_take_reply(&node->fake, "client.1", many.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[63], SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "evict_attempt_count"), looked + 1); /* for them all */

        node_commit_all(node, "client.1", put, puts.at, 64, false, codes); /* nor for each put */
        ck_assert_uint_eq(node_metric(node, "evict_attempt_count"), looked + 2);
        node_end(node);
    }
END_TEST

START_TEST(what_was_removed_after_its_tierer_died_does_not_come_back)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S}, reply;
        struct found found = {.key = "a", .length = 5000, .segment = 1, .offset = 4096};
        sl_err code;
        node_put(node, "client.1", "a", 5000);
        if (_i == 0) {
            fake_process_end(&node->fake, proc_of(TIERER_PID));
        } else {
            node_restart(node); /* the tierer lives, and writes for the previous registrar */
        }
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);
        if (_i == 0) {
            tierer_arrive(node, TIERER_PID + 1);
        }

        tierer_found(node, &found, 1, true, true, &code);

        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        node_end(node);
    }
END_TEST

/* The tierer refuses a batch whose header, twice, and footer are larger than a log file. */
START_TEST(removals_of_long_keys_are_sent_in_batches_that_fit)
    {
        enum { MANY_KEYS = 384 };
        static const char *const small[] = {"disk", "1GiB", "index_memory", "16MiB", "disk_segment",
                                            "1MiB", NULL};
        static char keys[MANY_KEYS][1001];
        struct found found[MANY_KEYS];
        struct sl_text texts[MANY_KEYS];
        uint64_t codes[MANY_KEYS] = {0};
        struct sl_msg request, reply = {.code = SL_OK};
        struct node *node = node_start(small);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        for (uint32_t i = 0; i < MANY_KEYS; i++) {
            (void)snprintf(keys[i], sizeof(keys[i]), "%01000u", i);
            found[i] =
                (struct found){.key = keys[i], .length = 100, .segment = 2, .offset = i * 4096};
            texts[i] = sl_text_of(keys[i]);
        }
        for (uint32_t i = 0; i < MANY_KEYS; i += 64) {
            tierer_found(node, &found[i], 64, i == 0, i + 64 == MANY_KEYS, NULL);
        }
        struct sl_msg remove = {.type = SL_MSG_REMOVE};
        remove.body.remove.keys = (struct sl_texts){.at = texts, .count = MANY_KEYS};

        fake_give(&node->fake, "client.1", &remove);

        for (uint32_t left = MANY_KEYS; left > 0;
             left -= (uint32_t)request.body.disk_forget.items.count) {
            ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_DISK_FORGET, &request));
            uint64_t bytes = request.body.disk_forget.items.count * (64 + 1000);
            ck_assert_uint_le(3 * bytes + 5 * SL_PAGE_BYTES, SL_MIB);
            reply.body.disk_forget_reply.codes =
                (struct sl_u64s){.at = codes, .count = request.body.disk_forget.items.count};
            fake_answer(&node->fake, "tierer.0", &request, &reply);
        }
        ck_assert(fake_take_reply(&node->fake, "client.1", remove.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(remove_ends_at_its_deadline_and_the_tombstone_is_still_written)
    {
        struct node *node = node_disk();
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_ERR_TIMEOUT);
        tierer_arrive(node, TIERER_PID + 1);
        struct found found = {.key = "a", .length = 5000, .segment = 1, .offset = 0};
        sl_err code;
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        node_end(node);
    }
END_TEST

START_TEST(draining_waits_for_write_behind)
    {
        struct node *node = node_disk();
        node_put(node, "client.1", "a", 5000);

        node->fake.actor->drain(node->fake.state);
        ck_assert(!node->fake.finished);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert(node->fake.finished);
        node_end(node);
    }
END_TEST

static Suite *disk_suite(void)
{
    Suite *suite = suite_create("registrar_disk");
    TCase *write = tcase_create("write-behind");
    tcase_set_timeout(write, 60);
    tcase_add_test(write, what_is_committed_goes_to_disk_and_stays_in_memory);
    tcase_add_test(write, parts_of_a_block_name_their_block);
    tcase_add_test(write, no_turn_looks_at_all_values_that_wait_for_a_disk);
    tcase_add_test(write, no_turn_looks_at_all_values_of_a_segment);
    tcase_add_test(write, writes_in_flight_are_bounded_and_go_oldest_first);
    tcase_add_test(write, reserve_waits_for_write_behind);
    tcase_add_loop_test(write, reserve_without_waiting_waits_for_write_behind, 0, 2);
    tcase_add_test(write, reserve_without_waiting_is_refused_when_nothing_is_to_be_written);
    tcase_add_test(write, reserve_without_waiting_is_refused_when_values_to_be_written_are_removed);
    tcase_add_loop_test(write, a_full_index_waits_for_write_behind_like_full_memory, 0, 2);
    tcase_add_test(write, a_block_leaves_memory_only_when_all_of_it_is_on_disk);
    tcase_add_test(write, a_value_whose_bytes_do_not_match_is_dropped);
    tcase_add_test(write, a_failing_disk_degrades_to_no_disk_and_recovers);
    tcase_add_test(write, writes_of_a_dead_tierer_are_queued_again);
    tcase_add_test(write, what_the_scan_finds_is_not_written_again);
    tcase_add_test(write, an_absent_tierer_is_taken_for_no_disk_after_a_while);
    tcase_add_test(write, flush_waits_for_what_was_committed_before);
    tcase_add_test(write, a_flush_beyond_the_bound_is_refused_by_its_name);
    tcase_add_test(write, flush_ends_at_its_deadline);
    tcase_add_loop_test(write, flush_passes_by_what_was_removed_while_no_disk_took_writes, 0, 2);
    tcase_add_test(write, a_value_that_fits_no_segment_stays_in_memory_and_stops_no_other);
    tcase_add_test(write, a_value_that_is_refused_beside_others_is_not_offered_again);
    tcase_add_test(write, a_batch_that_is_too_much_comes_again_in_pieces);
    tcase_add_test(write, draining_waits_for_write_behind);
    suite_add_tcase(suite, write);
    TCase *promote = tcase_create("promote");
    tcase_set_timeout(promote, 60);
    tcase_add_test(promote, promote_brings_an_object_back);
    tcase_add_loop_test(promote, values_only_on_disk_before_a_restart_count_as_stored_once, 0,
                        SL_COUNT(returns));
    tcase_add_test(promote, promote_answers_at_once_for_what_needs_no_disk);
    tcase_add_test(promote, several_who_want_the_same_object_share_one_read);
    tcase_add_test(promote, a_disk_that_cannot_read_now_loses_nothing);
    tcase_add_loop_test(promote, a_bad_copy_on_disk_is_a_miss_and_forgotten, 0,
                        SL_COUNT(lost_codes));
    tcase_add_test(promote, a_busy_tierer_costs_no_place);
    tcase_add_test(promote, a_block_that_is_damaged_in_memory_is_a_miss_and_can_be_stored);
    tcase_add_test(promote, a_value_that_is_damaged_in_memory_is_read_from_disk);
    tcase_add_test(promote,
                   a_value_that_is_damaged_in_memory_is_dropped_if_the_node_has_no_disk_now);
    tcase_add_loop_test(promote, a_pinned_value_on_disk_alone_stays_in_a_full_index, 0,
                        SL_COUNT(pinned_units));
    tcase_add_test(promote, extents_of_a_dead_tierer_stay_out_for_io_grace);
    tcase_add_test(promote, successor_of_a_tierer_frees_its_extents);
    tcase_add_test(promote, promotion_does_not_wait_for_a_tierer_that_is_away_for_long);
    tcase_add_test(promote, promote_ends_at_its_deadline);
    tcase_add_loop_test(promote, promote_waits_for_the_room_that_write_behind_makes, 0, 2);
    tcase_add_test(promote, an_object_removed_while_it_is_read_stays_removed);
    tcase_add_test(promote, promotion_waits_for_space);
    tcase_add_test(promote, a_promotion_that_gets_no_space_is_told_before_its_deadline);
    suite_add_tcase(suite, promote);
    TCase *scan = tcase_create("scan");
    tcase_set_timeout(scan, 60);
    tcase_add_test(scan, found_objects_are_served_from_disk);
    tcase_add_test(scan, found_values_with_another_digest_are_unwanted);
    tcase_add_test(scan, rest_of_a_scan_that_began_elsewhere_is_not_taken_for_all);
    tcase_add_test(scan, half_found_blocks_are_dropped_in_slices);
    tcase_add_test(scan, an_old_scan_does_not_restore_a_removed_value_at_a_new_registrar);
    tcase_add_test(scan, scan_that_was_made_before_the_fence_begins_again);
    tcase_add_test(scan, an_older_scan_does_not_restore_a_removed_value);
    tcase_add_test(scan, a_scan_that_begins_again_waits_for_tombstones_on_their_way);
    tcase_add_test(scan, the_rest_of_an_earlier_scan_tells_nothing);
    tcase_add_test(scan, scan_waits_until_what_was_asked_before_is_fenced);
    tcase_add_test(scan, removal_of_what_may_be_on_disk_waits_for_the_scan);
    tcase_add_test(scan, half_of_a_block_that_later_scans_do_not_find_is_forgotten);
    tcase_add_loop_test(scan, what_a_scan_finds_no_room_for_is_removed_all_the_same, 0, 2);
    tcase_add_loop_test(scan, a_scan_that_takes_long_costs_no_value_that_is_not_on_disk, 0, 2);
    tcase_add_test(scan, a_store_takes_over_a_half_found_block);
    tcase_add_test(scan, places_that_a_scan_does_not_find_are_forgotten);
    tcase_add_loop_test(scan, a_scan_that_begins_anew_forgets_what_it_does_not_find, 0, 6);
    suite_add_tcase(suite, scan);
    TCase *forget = tcase_create("reclaim and tombstones");
    tcase_set_timeout(forget, 60);
    tcase_add_test(forget, a_reclaimed_segment_takes_what_is_nowhere_else);
    tcase_add_test(forget, what_was_wanted_is_written_anew_when_its_segment_goes);
    tcase_add_test(forget, a_block_of_which_a_part_is_reclaimed_goes_whole);
    tcase_add_test(forget, a_place_in_a_segment_that_is_gone_already_is_not_believed);
    tcase_add_test(forget, remove_is_answered_when_the_tombstone_is_durable);
    tcase_add_test(forget, remove_of_what_is_being_written_waits_for_the_write);
    tcase_add_test(forget, a_second_removal_of_what_is_being_written_waits_for_the_write);
    tcase_add_test(forget, what_is_put_again_is_written_behind_the_tombstone);
    tcase_add_test(forget, a_value_removed_during_its_write_is_not_found_by_the_next_tierer);
    tcase_add_loop_test(forget, what_was_removed_after_its_tierer_died_does_not_come_back, 0, 2);
    tcase_add_test(forget, a_full_index_refuses_removals_that_it_cannot_note);
    tcase_add_test(forget, a_full_index_refuses_removals_from_a_missing_disk);
    tcase_add_loop_test(forget, a_removal_does_not_wait_for_a_full_disk, 0, 2);
    tcase_add_test(forget, removals_of_long_keys_are_sent_in_batches_that_fit);
    tcase_add_test(forget, remove_ends_at_its_deadline_and_the_tombstone_is_still_written);
    suite_add_tcase(suite, forget);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(disk_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
