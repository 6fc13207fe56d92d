/* tests/unit/actors/registrar/registrar_test.c - reservations, blocks, fences, deaths. */
#include "tests/unit/actors/registrar/registrar_support.h"

static struct grants grants;

/* ---- who is there ---- */

START_TEST(hello_is_answered_and_the_process_watched)
    {
        struct node *node = node_start(NULL);

        sl_err code = node_hello(node, "swapper.0", "swapper", 10);

        ck_assert_int_eq(code, SL_OK);
        ck_assert(fake_is_watched(&node->fake, proc_of(10)));
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 10),
                         SL_OK); /* repeated every heartbeat */
        node_end(node);
    }
END_TEST

static uint64_t until_tick_ns(const struct node *node)
{
    return node->fake.wake_ns - node->fake.env.now_ns;
}

/* Access rings are drained every 100 ms; an idle node would do nothing else. */
START_TEST(a_registrar_at_rest_ticks_with_the_heartbeats)
    {
        struct node *node = node_start(NULL);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 10), SL_OK);
        ck_assert_uint_le(until_tick_ns(node), 100 * SL_NS_PER_MS); /* it has just started */

        fake_advance(&node->fake, 3 * SL_NS_PER_S);
        ck_assert_uint_gt(until_tick_ns(node), 100 * SL_NS_PER_MS);
        ck_assert_uint_eq(node->fake.wake_ns % (500 * SL_NS_PER_MS), 0);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 10), SL_OK);
        ck_assert_uint_gt(until_tick_ns(node), 100 * SL_NS_PER_MS); /* heartbeats wake no one */

        node_client(node, "client.1", 11);
        (void)node_grant(node, "client.1", "a", 100);
        ck_assert_uint_le(until_tick_ns(node), 100 * SL_NS_PER_MS);
        node_end(node);
    }
END_TEST

START_TEST(a_second_living_process_of_a_name_is_refused)
    {
        struct node *node = node_start(NULL);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 10), SL_OK);

        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 11), SL_ERR_BUSY);

        fake_process_end(&node->fake, proc_of(10));
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 11), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(who_said_no_hello_reserves_nothing)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 100};
        struct reserve_ask ask = {.sender = "client.9", .wants = &want, .count = 1};

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_int_eq(grants.code, SL_ERR_UNREACHABLE);
        node_end(node);
    }
END_TEST

START_TEST(more_processes_than_clients_max_are_refused)
    {
        static const char *const settings[] = {"clients_max", "2", NULL};
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);

        ck_assert_int_eq(node_hello(node, "client.3", "client", 13), SL_ERR_LIMIT);

        fake_process_end(&node->fake, proc_of(11));
        ck_assert_int_eq(node_hello(node, "client.3", "client", 13), SL_OK);
        node_end(node);
    }
END_TEST

static const char *const bad_segments[] = {"../index", "arena.0", "pins./x", "pins.nobody"};

/* A process may open the library more than once: client.PID.0, client.PID.1. */
START_TEST(a_process_has_one_name_and_ends_with_all_it_had)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.70.0", 70);
        ck_assert_int_eq(node_hello(node, "client.70.1", "client", 70), SL_ERR_EXISTS);
        (void)node_grant(node, "client.70.0", "a", 100);
        ck_assert_uint_eq(node_metric(node, "peer_count"), 1);
        fake_process_end(&node->fake, proc_of(70));
        ck_assert_uint_eq(node_metric(node, "peer_count"), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_client(node, "client.71.0", 71); /* its key is free again */
        node_put(node, "client.71.0", "a", 100);
        node_end(node);
    }
END_TEST

START_TEST(hello_refuses_a_bad_pin_segment)
    {
        struct node *node = node_start(NULL);

        ck_assert_int_ne(node_hello_pins(node, "client.1", "client", 11, bad_segments[_i]), SL_OK);

        ck_assert_int_eq(node_hello(node, "client.1", "client", 11),
                         SL_OK); /* none of it remains */
        node_end(node);
    }
END_TEST

/* ---- objects ---- */

START_TEST(a_committed_object_is_visible_with_its_digest)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        node_client(node, "client.1", 11);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);
        ck_assert(!node_is_visible(node, "a"));

        sl_err code = node_commit(node, "client.1", "a", &grant);

        ck_assert_int_eq(code, SL_OK);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_uint_eq(entry.extent.length_bytes, 5000);
        ck_assert_uint_eq(entry.extent.generation, grant.generation);
        ck_assert(sl_digest_equal(entry.digest, digest_of_key("a")));
        node_end(node);
    }
END_TEST

START_TEST(commit_is_idempotent)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);

        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);

        grant.generation += 1000;
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_ERR_STALE);
        node_end(node);
    }
END_TEST

START_TEST(only_owner_and_writer_may_commit_or_abort)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);

        ck_assert_int_eq(node_commit(node, "client.2", "a", &grant), SL_ERR_PERMISSION);
        ck_assert_int_eq(node_abort(node, "client.2", &grant), SL_ERR_PERMISSION);

        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_rival_is_told_how_long_the_key_is_busy)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 5000};
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 4, .wants = &want, .count = 1, .wait = true};
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        (void)node_grant(node, "client.1", "a", 5000);
        fake_advance(&node->fake, 500 * SL_NS_PER_MS);

        ck_assert(node_reserve(node, &ask, &grants)); /* busy is reported at once, waiting or not */

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_BUSY);
        ck_assert_uint_eq(grants.at[0].busy_ns, 1500 * SL_NS_PER_MS);
        node_end(node);
    }
END_TEST

START_TEST(an_existing_key_is_answered_so)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 9000};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a", 5000);

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_EXISTS);
        node_end(node);
    }
END_TEST

START_TEST(reserving_again_for_the_same_op_gives_the_same_grants)
    {
        struct node *node = node_start(NULL);
        struct want wants[] = {{.key = "a", .length = 5000}, {.key = "b", .length = 100}};
        struct reserve_ask ask = {.sender = "client.1", .op_id = 77, .wants = wants, .count = 2};
        struct sl_item_grant first[2];
        node_client(node, "client.1", 11);
        ck_assert(node_reserve(node, &ask, &grants));
        memcpy(first, grants.at, sizeof(first));

        ck_assert(node_reserve(node, &ask, &grants));

        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_OK);
            ck_assert_uint_eq(grants.at[i].generation, first[i].generation);
            ck_assert_uint_eq(grants.at[i].ref, first[i].ref);
            ck_assert_uint_eq(grants.at[i].offset_bytes, first[i].offset_bytes);
        }
        ck_assert_uint_eq(node_metric(node, "claim_count"), 2);
        node_end(node);
    }
END_TEST

START_TEST(requests_without_an_op_are_told_apart_by_their_number)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 5000};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);

        ck_assert(node_reserve(node, &ask, &grants)); /* the same frame */
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants)); /* another put by the same client */
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_BUSY);
        node_end(node);
    }
END_TEST

START_TEST(a_key_twice_in_one_request_is_granted_once)
    {
        struct node *node = node_start(NULL);
        struct want wants[] = {
            {.key = "a", .length = 100}, {.key = "b", .length = 100}, {.key = "a", .length = 200}};
        struct reserve_ask ask = {.sender = "client.1", .op_id = 3, .wants = wants, .count = 3};
        node_client(node, "client.1", 11);

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        ck_assert_uint_eq(grants.at[2].code, SL_ERR_BUSY);
        ck_assert(node_reserve(node, &ask, &grants)); /* and the same once more */
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[2].code, SL_ERR_BUSY);
        node_end(node);
    }
END_TEST

START_TEST(an_aborted_reservation_frees_key_and_space)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);

        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK); /* idempotent */
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_ERR_STALE);
        (void)node_grant(node, "client.1", "a", 5000);
        node_end(node);
    }
END_TEST

/* The client gave up before it received the grants, so it cannot name them. */
START_TEST(an_aborted_op_gives_back_what_it_was_granted)
    {
        static const struct want wants[] = {{.key = "a", .length = 5000},
                                            {.key = "b", .length = 5000}};
        static const struct want other = {.key = "c", .length = 5000};
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct reserve_ask ask = {.sender = "client.1", .op_id = 5, .wants = wants, .count = 2};
        struct reserve_ask next = {.sender = "client.1", .op_id = 6, .wants = &other, .count = 1};
        struct sl_item_grant ahead = node_grant(node, "client.1", "d", 5000); /* of no op */
        struct grants kept;
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert(node_reserve(node, &next, &kept));

        node_abort_op(node, "client.2", 5); /* another's op of this number */
        ck_assert_uint_eq(node_metric(node, "used_bytes"), (uint64_t)4 * 8192);
        node_abort_op(node, "client.1", 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), (uint64_t)4 * 8192);
        node_abort_op(node, "client.1", 5);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), (uint64_t)2 * 8192);
        (void)node_grant(node, "client.2", "a", 5000);
        (void)node_grant(node, "client.2", "b", 5000);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grants.at[0]), SL_ERR_STALE);
        ck_assert_int_eq(node_commit(node, "client.1", "c", &kept.at[0]), SL_OK);
        ck_assert_int_eq(node_commit(node, "client.1", "d", &ahead), SL_OK);
        node_end(node);
    }
END_TEST

/* A new registrar learns from the records to which op a claim belongs. */
START_TEST(an_aborted_op_gives_back_what_it_was_granted_before_a_restart)
    {
        static const struct want want = {.key = "a", .length = 5000};
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        struct reserve_ask ask = {.sender = "client.1", .op_id = 5, .wants = &want, .count = 1};
        ck_assert(node_reserve(node, &ask, &grants));
        node_restart(node);
        node_client(node, "client.1", 11);

        node_abort_op(node, "client.1", 5);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_value_larger_than_a_chunk_is_invalid_and_one_larger_than_memory_has_no_space)
    {
        static const char *const settings[] = {"memory", "4MiB", "memory_chunk", "1MiB", NULL};
        struct node *node = node_start(settings);
        struct want wants[] = {{.key = "a", .length = SL_MIB + 1}, {.key = "b", .length = 100}};
        struct reserve_ask ask = {.sender = "client.1", .wants = wants, .count = 2, .wait = true};
        struct want many[5];
        char names[5][8];
        node_client(node, "client.1", 11);

        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_INVALID);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);

        for (uint32_t i = 0; i < 5; i++) {
            snprintf(names[i], sizeof(names[i]), "m%u", i);
            many[i] = (struct want){.key = names[i], .length = SL_MIB};
        }
        struct reserve_ask huge = {.sender = "client.1", .wants = many, .count = 5, .wait = true};
        ck_assert(node_reserve(node, &huge, &grants)); /* at once, although it asked to wait */
        for (uint32_t i = 0; i < 5; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_ERR_NO_SPACE);
        }
        node_end(node);
    }
END_TEST

START_TEST(a_removed_object_is_gone_and_removing_it_again_finds_nothing)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a", 5000);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_uint_ne(entry.extent.generation, 0);

        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_OK);

        ck_assert(!node_is_visible(node, "a"));
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* Its death would not be noticed, and the request it waits for would never end. */
START_TEST(who_said_no_hello_removes_nothing)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a", 5000);

        ck_assert_int_eq(node_remove(node, "client.2", "a"), SL_ERR_UNREACHABLE);

        ck_assert(node_is_visible(node, "a"));
        node_end(node);
    }
END_TEST

START_TEST(remove_all_removes_objects_and_blocks)
    {
        struct node *node = node_start(NULL);
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a", 5000);
        node_put_block(node, "client.1", "m/b", 3, 100, 0);
        msg.body.remove.all = true;

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!node_is_visible(node, "a") && !node_is_visible(node, "m/b/1"));
        ck_assert_uint_eq(node_metric(node, "object_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* ---- blocks ---- */

static const char *const part_keys[] = {"m/b/0", "m/b/1"};
static const struct want part_wants[] = {
    {.key = "m/b/0", .length = 5000, .group = 1, .part = 0, .writer = "swapper.0"},
    {.key = "m/b/1", .length = 5000, .group = 1, .part = 1, .writer = "swapper.1"},
};

/* client.c plays the coordinator (its role makes no difference here). */
static struct node *node_with_swappers(void)
{
    struct node *node = node_start(NULL);
    ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", 20), SL_OK);
    ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 30), SL_OK);
    ck_assert_int_eq(node_hello(node, "swapper.1", "swapper", 31), SL_OK);
    return node;
}

static struct reserve_ask block_ask(void)
{
    return (struct reserve_ask){.sender = "coordinator",
                                .op_id = 5,
                                .wants = part_wants,
                                .count = 2,
                                .group_key = "m/b",
                                .part_count = 2};
}

START_TEST(a_block_is_visible_only_when_all_parts_are)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_int_eq(node_commit(node, "coordinator", part_keys[0], &grants.at[0]), SL_OK);
        ck_assert(!node_is_visible(node, "m/b/0"));
        ck_assert_int_eq(node_commit(node, "swapper.1", part_keys[1], &grants.at[1]),
                         SL_OK); /* a writer may commit too */

        ck_assert(node_is_visible(node, "m/b/0"));
        ck_assert(node_is_visible(node, "m/b/1"));
        ck_assert_int_eq(sl_index_find_group(node->view, "m/b", 3), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_exists_or_is_being_written_is_answered_for_all_parts)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct reserve_ask rival = block_ask();
        struct grants first;
        rival.op_id = 6;
        ck_assert(node_reserve(node, &ask, &first));

        ck_assert(node_reserve(node, &rival, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_BUSY);
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_BUSY);
        ck_assert_uint_eq(grants.at[1].busy_ns, 2 * SL_NS_PER_S);

        node_commit_all(node, "coordinator", part_keys, first.at, 2, false, NULL);
        rival.seq = 0;
        ck_assert(node_reserve(node, &rival, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_EXISTS);
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_EXISTS);
        node_end(node);
    }
END_TEST

START_TEST(an_incomplete_block_is_dropped_at_its_deadline_whole)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct sl_msg fence;
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "coordinator", part_keys[0], &grants.at[0]), SL_OK);

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_int_eq(sl_index_find_group(node->view, "m/b", 3), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "used_bytes"),
                          8192); /* swapper.1 may still write to it */
        ck_assert(!fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        ck_assert(fake_take(&node->fake, "swapper.1", SL_MSG_FENCE, &fence));
        ck_assert_uint_eq(fence.body.fence.items.count, 1);
        ck_assert_uint_eq(fence.body.fence.items.at[0].generation, grants.at[1].generation);
        ck_assert_int_eq(node_commit(node, "coordinator", part_keys[1], &grants.at[1]),
                         SL_ERR_STALE);

        struct sl_msg reply = {.code = SL_OK};
        fake_answer(&node->fake, "swapper.1", &fence, &reply);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(aborting_a_part_gives_the_block_up)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct reserve_ask rival = block_ask();
        rival.op_id = 6;
        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_int_eq(node_abort(node, "coordinator", &grants.at[1]), SL_OK);
        ck_assert_int_eq(node_commit(node, "coordinator", part_keys[0], &grants.at[0]), SL_OK);

        ck_assert(!node_is_visible(node, "m/b/0"));
        ck_assert(
            node_reserve(node, &rival, &grants)); /* the key is free at once, not at the deadline */
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(aborting_an_op_gives_its_block_up)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct reserve_ask rival = block_ask();
        rival.op_id = 6;
        ck_assert(node_reserve(node, &ask, &grants));

        node_abort_op(node, "coordinator", ask.op_id);

        ck_assert(node_reserve(node, &rival, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_part_and_an_object_do_not_share_a_key)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct want object = {.key = "m/b", .length = 100};
        struct reserve_ask as_object = {
            .sender = "coordinator", .op_id = 9, .wants = &object, .count = 1};
        node_put(node, "coordinator", "m/b/1", 5000);

        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_INVALID);
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_INVALID);
        ck_assert_int_eq(node_remove(node, "coordinator", "m/b/1"), SL_OK);
        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[1].code, SL_OK);

        ck_assert(node_reserve(node, &as_object, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_INVALID);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_takes_the_key_of_a_reserved_object_wins)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct sl_item_grant object = node_grant(node, "coordinator", "m/b", 100);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);

        ck_assert_int_eq(node_commit(node, "coordinator", "m/b", &object), SL_ERR_EXISTS);

        node_commit_all(node, "coordinator", part_keys, grants.at, 2, false, NULL);
        ck_assert(node_is_visible(node, "m/b/0"));
        node_end(node);
    }
END_TEST

START_TEST(two_keys_for_one_part_are_refused)
    {
        struct node *node = node_with_swappers();
        static const struct want wants[] = {{.key = "x", .length = 100, .group = 1, .part = 0},
                                            {.key = "y", .length = 100, .group = 1, .part = 0}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_INVALID); /* the block as a whole */
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_INVALID);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(an_unknown_writer_refuses_the_block)
    {
        struct node *node = node_with_swappers();
        static const struct want wants[] = {
            {.key = "x", .length = 100, .group = 1, .part = 0, .writer = "swapper.0"},
            {.key = "y", .length = 100, .group = 1, .part = 1, .writer = "swapper.7"}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        node_end(node);
    }
END_TEST

/* A fence that such a writer does not know would get it killed. */
START_TEST(client_is_granted_nothing_for_another_writer)
    {
        static const struct {
            const char *writer;
            sl_err want;
        } rows[] = {{"swapper.0", SL_ERR_PERMISSION},
                    {"coordinator", SL_ERR_PERMISSION},
                    {"client.2", SL_ERR_PERMISSION},
                    {"client.1", SL_OK}};
        struct node *node = node_with_swappers();
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        for (uint32_t i = 0; i < SL_COUNT(rows); i++) {
            const struct want want = {.key = "x", .length = 100, .writer = rows[i].writer};
            struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};

            ck_assert(node_reserve(node, &ask, &grants));

            ck_assert_uint_eq(grants.at[0].code, rows[i].want);
            ck_assert_uint_eq(node_metric(node, "claim_count"), rows[i].want == SL_OK ? 1 : 0);
        }
        node_end(node);
    }
END_TEST

START_TEST(items_that_name_no_group_or_part_are_refused_by_name)
    {
        struct node *node = node_with_swappers();
        struct want want = {.key = "x", .length = 100, .group = 2};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .wants = &want,
                                  .count = 1,
                                  .group_key = "m/b",
                                  .part_count = 2};

        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(grants.code, SL_ERR_INVALID);

        want = (struct want){.key = "x", .length = 100, .group = 1, .part = 2};
        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(grants.code, SL_ERR_INVALID);
        node_end(node);
    }
END_TEST

START_TEST(removing_a_part_or_the_block_removes_the_block)
    {
        static const char *const names[] = {"m/b", "m/b/1"};
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/b", 3, 5000, 0);

        ck_assert_int_eq(node_remove(node, "client.1", names[_i]), SL_OK);

        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1") &&
                  !node_is_visible(node, "m/b/2"));
        ck_assert_int_eq(sl_index_find_group(node->view, "m/b", 3), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_transient_block_ends_with_its_time_to_live)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/b", 2, 5000, 3 * SL_NS_PER_S);

        fake_advance(&node->fake, 3 * SL_NS_PER_S - 1);
        ck_assert(node_is_visible(node, "m/b/0"));
        fake_advance(&node->fake, 1);

        ck_assert(!node_is_visible(node, "m/b/0"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_block_of_512_parts_works)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);

        node_put_block(node, "client.1", "m/b", 512, 100, 0);

        ck_assert(node_is_visible(node, "m/b/511"));
        ck_assert_int_eq(node_remove(node, "client.1", "m/b"), SL_OK);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* ---- expiry, quarantine, fences, deaths ---- */

START_TEST(an_expired_reservation_frees_the_key_but_not_the_bytes_of_a_client)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct sl_item_grant late = node_grant(node, "client.1", "a", 5000);

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 8192);
        struct sl_item_grant rival = node_grant(node, "client.2", "a", 5000);
        ck_assert_uint_ne(rival.offset_bytes, late.offset_bytes);
        ck_assert(!sl_index_claim_exists(node->view, (sl_ref)late.ref, late.generation));
        ck_assert_int_eq(node_commit(node, "client.1", "a", &late),
                         SL_ERR_STALE); /* and reports that it is done */
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        ck_assert_int_eq(node_commit(node, "client.2", "a", &rival), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_stopped_client_keeps_its_quarantine_until_it_dies)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        (void)node_grant(node, "client.1", "a", 5000);

        fake_advance(&node->fake, 300 * SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        fake_process_end(&node->fake, proc_of(11));

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(an_owner_over_its_quarantine_bound_reserves_nothing_more)
    {
        static const char *const settings[] = {"quarantine_bytes_max", "16KiB", NULL};
        struct node *node = node_start(settings);
        struct want want = {.key = "c", .length = 10};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        struct sl_item_grant first = node_grant(node, "client.1", "a", 10000);
        (void)node_grant(node, "client.1", "b", 10000);
        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_LIMIT);
        (void)node_grant(node, "client.2", "x", 100); /* others are not affected */
        ck_assert_int_eq(node_abort(node, "client.1", &first), SL_OK);
        (void)node_grant(node, "client.1", "c", 10);
        node_end(node);
    }
END_TEST

START_TEST(the_death_of_a_client_frees_what_it_reserved)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        (void)node_grant(node, "client.1", "a", 5000);
        (void)node_grant(node, "client.1", "b", 5000);

        fake_process_end(&node->fake, proc_of(11));

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_client(node, "client.2", 12);
        (void)node_grant(node, "client.2", "a", 5000);
        node_end(node);
    }
END_TEST

START_TEST(the_death_of_a_coordinator_fences_the_swappers)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct sl_msg fence, ok = {.code = SL_OK};
        ck_assert(node_reserve(node, &ask, &grants));

        fake_process_end(&node->fake, proc_of(20));

        ck_assert_int_eq(sl_index_find_group(node->view, "m/b", 3), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 16384);
        ck_assert(fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "swapper.0", &fence, &ok);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        fake_process_end(&node->fake, proc_of(31)); /* the writer's death does as well */
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(an_actor_that_acknowledges_no_fence_is_killed)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        ck_assert(node_reserve(node, &ask, &grants));
        fake_advance(&node->fake, 2 * SL_NS_PER_S); /* expired, asked */
        ck_assert_uint_eq(node->fake.killed_count, 0);

        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node->fake.killed_count, 2);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 16384); /* until they are dead */
        fake_process_end(&node->fake, proc_of(30));
        fake_process_end(&node->fake, proc_of(31));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* A registrar that was stopped finds deadlines passed and answers unread: it was late itself. */
START_TEST(a_registrar_that_was_stopped_kills_nobody_for_it)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct sl_msg fence, ok = {.code = SL_OK};
        ck_assert(node_reserve(node, &ask, &grants));
        fake_process_end(&node->fake, proc_of(20));
        ck_assert(fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        ck_assert(fake_take(&node->fake, "swapper.1", SL_MSG_FENCE, &fence));

        node->fake.env.now_ns += 5 * SL_NS_PER_S;
        fake_advance(&node->fake, 0);

        ck_assert_uint_eq(node->fake.killed_count, 0);
        ck_assert(fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "swapper.0", &fence, &ok);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        fake_advance(&node->fake, SL_NS_PER_S); /* the other one is still silent */
        ck_assert_uint_eq(node->fake.killed_count, 1);
        ck_assert(sl_proc_id_equal(node->fake.killed[0], proc_of(31)));
        node_end(node);
    }
END_TEST

START_TEST(a_registrar_that_is_always_late_kills_at_last)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        ck_assert(node_reserve(node, &ask, &grants));
        fake_process_end(&node->fake, proc_of(20));

        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_uint_eq(node->fake.killed_count, 0);
            node->fake.env.now_ns += 5 * SL_NS_PER_S;
            fake_advance(&node->fake, 0);
        }

        ck_assert_uint_eq(node->fake.killed_count, 2);
        node_end(node);
    }
END_TEST

/* The report of a predecessor's end arrives with its successor's HELLO. */
START_TEST(a_successor_is_not_killed_for_what_its_predecessor_did_not_answer)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        ck_assert(node_reserve(node, &ask, &grants));
        fake_process_end(&node->fake, proc_of(20)); /* both are asked */
        fake_advance(&node->fake, SL_NS_PER_S / 2);

        fake_process_end(&node->fake, proc_of(30));
        fake_process_end(&node->fake, proc_of(31));
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 40), SL_OK);
        ck_assert_int_eq(node_hello(node, "swapper.1", "swapper", 41), SL_OK);
        fake_advance(&node->fake, 10 * SL_NS_PER_S);

        ck_assert_uint_eq(node->fake.killed_count, 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_restarted_swapper_may_fill_what_its_predecessor_was_granted)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        ck_assert(node_reserve(node, &ask, &grants));

        fake_process_end(&node->fake, proc_of(30));
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 40), SL_OK);
        node_commit_all(node, "coordinator", part_keys, grants.at, 2, false, NULL);

        ck_assert(node_is_visible(node, "m/b/0"));
        node_end(node);
    }
END_TEST

START_TEST(a_successor_is_fenced_for_what_ended_while_it_was_away)
    {
        struct node *node = node_with_swappers();
        struct reserve_ask ask = block_ask();
        struct sl_msg fence, ok = {.code = SL_OK};
        ask.ttl_ns = 100 * SL_NS_PER_MS;
        ck_assert(node_reserve(node, &ask, &grants));
        fake_process_end(&node->fake, proc_of(30));
        fake_process_end(&node->fake, proc_of(31));
        fake_advance(&node->fake, 100 * SL_NS_PER_MS); /* expires while no client waits */
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 16384);

        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 40), SL_OK);
        ck_assert(fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "swapper.0", &fence, &ok);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);

        fake_advance(&node->fake, SL_NS_PER_S); /* swapper.1 remains unreachable */
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(an_unknown_request_is_answered_unsupported)
    {
        struct node *node = node_start(NULL);
        struct sl_msg msg = {.type = SL_MSG_NODES}, reply;

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        node_end(node);
    }
END_TEST

START_TEST(flush_without_a_disk_is_unsupported)
    {
        struct node *node = node_start(NULL);
        struct sl_msg msg = {.type = SL_MSG_FLUSH}, reply;

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        node_end(node);
    }
END_TEST

START_TEST(draining_refuses_new_reservations_and_finishes)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 10};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        node_client(node, "client.1", 11);

        node->fake.actor->drain(node->fake.state);

        ck_assert(node->fake.finished);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(grants.code, SL_ERR_DRAINING);
        node_end(node);
    }
END_TEST

static Suite *registrar_suite(void)
{
    Suite *suite = suite_create("registrar");
    TCase *peers = tcase_create("peers");
    tcase_add_test(peers, hello_is_answered_and_the_process_watched);
    tcase_add_test(peers, a_registrar_at_rest_ticks_with_the_heartbeats);
    tcase_add_test(peers, a_second_living_process_of_a_name_is_refused);
    tcase_add_test(peers, who_said_no_hello_reserves_nothing);
    tcase_add_test(peers, more_processes_than_clients_max_are_refused);
    tcase_add_test(peers, a_process_has_one_name_and_ends_with_all_it_had);
    tcase_add_loop_test(peers, hello_refuses_a_bad_pin_segment, 0, SL_COUNT(bad_segments));
    tcase_add_test(peers, an_unknown_request_is_answered_unsupported);
    tcase_add_test(peers, flush_without_a_disk_is_unsupported);
    tcase_add_test(peers, draining_refuses_new_reservations_and_finishes);
    suite_add_tcase(suite, peers);

    TCase *objects = tcase_create("objects");
    tcase_add_test(objects, a_committed_object_is_visible_with_its_digest);
    tcase_add_test(objects, commit_is_idempotent);
    tcase_add_test(objects, only_owner_and_writer_may_commit_or_abort);
    tcase_add_test(objects, a_rival_is_told_how_long_the_key_is_busy);
    tcase_add_test(objects, an_existing_key_is_answered_so);
    tcase_add_test(objects, reserving_again_for_the_same_op_gives_the_same_grants);
    tcase_add_test(objects, requests_without_an_op_are_told_apart_by_their_number);
    tcase_add_test(objects, a_key_twice_in_one_request_is_granted_once);
    tcase_add_test(objects, an_aborted_reservation_frees_key_and_space);
    tcase_add_test(objects, an_aborted_op_gives_back_what_it_was_granted);
    tcase_add_test(objects, an_aborted_op_gives_back_what_it_was_granted_before_a_restart);
    tcase_add_test(objects,
                   a_value_larger_than_a_chunk_is_invalid_and_one_larger_than_memory_has_no_space);
    tcase_add_test(objects, a_removed_object_is_gone_and_removing_it_again_finds_nothing);
    tcase_add_test(objects, who_said_no_hello_removes_nothing);
    tcase_add_test(objects, remove_all_removes_objects_and_blocks);
    suite_add_tcase(suite, objects);

    TCase *blocks = tcase_create("blocks");
    tcase_add_test(blocks, a_block_is_visible_only_when_all_parts_are);
    tcase_add_test(blocks, a_block_that_exists_or_is_being_written_is_answered_for_all_parts);
    tcase_add_test(blocks, an_incomplete_block_is_dropped_at_its_deadline_whole);
    tcase_add_test(blocks, aborting_a_part_gives_the_block_up);
    tcase_add_test(blocks, aborting_an_op_gives_its_block_up);
    tcase_add_test(blocks, a_part_and_an_object_do_not_share_a_key);
    tcase_add_test(blocks, a_block_that_takes_the_key_of_a_reserved_object_wins);
    tcase_add_test(blocks, two_keys_for_one_part_are_refused);
    tcase_add_test(blocks, an_unknown_writer_refuses_the_block);
    tcase_add_test(blocks, client_is_granted_nothing_for_another_writer);
    tcase_add_test(blocks, items_that_name_no_group_or_part_are_refused_by_name);
    tcase_add_loop_test(blocks, removing_a_part_or_the_block_removes_the_block, 0, 2);
    tcase_add_test(blocks, a_transient_block_ends_with_its_time_to_live);
    tcase_add_test(blocks, a_block_of_512_parts_works);
    suite_add_tcase(suite, blocks);

    TCase *ends = tcase_create("ends");
    tcase_add_test(ends, an_expired_reservation_frees_the_key_but_not_the_bytes_of_a_client);
    tcase_add_test(ends, a_stopped_client_keeps_its_quarantine_until_it_dies);
    tcase_add_test(ends, an_owner_over_its_quarantine_bound_reserves_nothing_more);
    tcase_add_test(ends, the_death_of_a_client_frees_what_it_reserved);
    tcase_add_test(ends, the_death_of_a_coordinator_fences_the_swappers);
    tcase_add_test(ends, an_actor_that_acknowledges_no_fence_is_killed);
    tcase_add_test(ends, a_registrar_that_was_stopped_kills_nobody_for_it);
    tcase_add_test(ends, a_registrar_that_is_always_late_kills_at_last);
    tcase_add_test(ends, a_successor_is_not_killed_for_what_its_predecessor_did_not_answer);
    tcase_add_test(ends, a_restarted_swapper_may_fill_what_its_predecessor_was_granted);
    tcase_add_test(ends, a_successor_is_fenced_for_what_ended_while_it_was_away);
    suite_add_tcase(suite, ends);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(registrar_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
