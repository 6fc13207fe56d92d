/* tests/unit/actors/registrar/registrar_holds_test.c - blocks that are held for a hand-over,
 * against everything that removes blocks. */
#include "tests/unit/actors/registrar/registrar_support.h"

/* 4 MiB of memory hold eight blocks of one part of half a MiB; half of it may be held. */
#define HALF    (SL_MIB / 2)
#define HOLD_NS (3 * SL_NS_PER_S)

static struct grants grants;

static bool block_reserve(struct node *node, const char *group, uint64_t hold_id,
                          uint64_t transient_ns)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%s/0", group);
    struct want want = {.key = name, .length = HALF, .group = 1};
    struct reserve_ask ask = {.sender = "client.1",
                              .op_id = hold_id,
                              .wants = &want,
                              .count = 1,
                              .group_key = group,
                              .part_count = 1,
                              .transient_ns = transient_ns,
                              .hold_id = hold_id,
                              .hold_ns = hold_id != 0 ? HOLD_NS : 0};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_int_eq(grants.code, SL_OK);
    return grants.at[0].code == SL_OK;
}

static void block_commit(struct node *node, const char *group)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%s/0", group);
    ck_assert_int_eq(node_commit(node, "client.1", name, &grants.at[0]), SL_OK);
}

static void block_hand_over(struct node *node, const char *group, uint64_t hold_id)
{
    ck_assert(block_reserve(node, group, hold_id, 0));
    block_commit(node, group);
}

/* Puts more values than memory can hold. */
static void pressure(struct node *node)
{
    static uint32_t round;
    for (uint32_t i = 0; i < 10; i++) {
        char group[32];
        (void)snprintf(group, sizeof(group), "m/fill-%u-%u", round, i);
        node_put_block(node, "client.1", group, 1, HALF, 0);
    }
    round++;
}

/* Ends a hold for a peer that knows these keys. */
static sl_err hold_end_as(struct node *node, uint64_t hold_id, struct sl_digest keys)
{
    struct sl_msg msg = {.type = SL_MSG_HOLD}, reply;
    msg.body.hold =
        (struct sl_body_hold){.hold_id = hold_id, .keys_low = keys.low, .keys_high = keys.high};
    fake_give(&node->fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&node->fake, "coordinator", msg.seq, &reply));
    return reply.code;
}

static sl_err hold_end(struct node *node, uint64_t hold_id)
{
    return hold_end_as(node, hold_id, (struct sl_digest){0});
}

/* Asks whether a hand-over is complete, as a restarted coordinator does. */
static sl_err hold_ask(struct node *node, uint64_t hold_id, const char *last)
{
    struct sl_digest keys = sl_digest_of(last, strlen(last));
    struct sl_msg msg = {.type = SL_MSG_HOLD}, reply;
    msg.body.hold = (struct sl_body_hold){
        .hold_id = hold_id, .keys_low = keys.low, .keys_high = keys.high, .ask = true};
    fake_give(&node->fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&node->fake, "coordinator", msg.seq, &reply));
    return reply.code;
}

static struct node *node_with_client(void)
{
    struct node *node = node_start(NULL);
    node_client(node, "client.1", 11);
    return node;
}

START_TEST(a_held_block_is_not_evicted_until_its_hold_ends)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);

        pressure(node);
        ck_assert(node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(node_metric(node, "held_count"), 1);
        ck_assert_uint_eq(node_metric(node, "held_bytes"), HALF);
        ck_assert_int_eq(hold_end(node, 5), SL_OK);

        pressure(node);
        ck_assert(!node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(node_metric(node, "held_bytes"), 0);
        ck_assert_int_eq(hold_end(node, 5), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_exists_is_held_too)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 0);

        ck_assert(!block_reserve(node, "m/a", 5, 0));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_EXISTS);

        pressure(node);
        ck_assert(node_is_visible(node, "m/a/0"));
        node_end(node);
    }
END_TEST

/* The existing block is the first to be evicted for the other one. */
START_TEST(a_block_evicted_for_another_of_its_hand_over_is_not_reported_as_existing)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 0);
        for (uint32_t i = 0; i < 7; i++) {
            char group[32];
            (void)snprintf(group, sizeof(group), "m/younger-%u", i);
            node_put_block(node, "client.1", group, 1, HALF, 0);
        }
        ck_assert(node_is_visible(node, "m/a/0"));
        const struct sl_item_want items[] = {
            {.key = sl_text_of("m/a/0"), .length_bytes = HALF, .group = 1},
            {.key = sl_text_of("m/b/0"), .length_bytes = HALF, .group = 2},
        };
        const struct sl_item_group groups[] = {{.key = sl_text_of("m/a"), .part_count = 1},
                                               {.key = sl_text_of("m/b"), .part_count = 1}};
        struct sl_msg msg = {.type = SL_MSG_RESERVE, .op_id = 5}, reply;
        msg.body.reserve = (struct sl_body_reserve){.wait = true,
                                                    .ttl_ns = HOLD_NS,
                                                    .items = {.at = items, .count = 2},
                                                    .groups = {.at = groups, .count = 2},
                                                    .hold_id = 5,
                                                    .hold_ns = HOLD_NS};

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        const struct sl_item_grant *told = reply.body.reserve_reply.items.at;
        ck_assert_uint_eq(told[1].code, SL_OK);
        ck_assert(!node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(told[0].code, SL_ERR_BUSY);
        ck_assert_uint_eq(node_metric(node, "held_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(a_block_of_two_hand_overs_is_held_until_both_have_ended)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);
        (void)block_reserve(node, "m/a", 6, 0);
        (void)block_reserve(node, "m/a", 6, 0); /* asked again */
        ck_assert_uint_eq(node_metric(node, "held_count"), 2);

        ck_assert_int_eq(hold_end(node, 5), SL_OK);
        pressure(node);
        ck_assert(node_is_visible(node, "m/a/0"));
        ck_assert_int_eq(hold_end(node, 6), SL_OK);

        pressure(node);
        ck_assert(!node_is_visible(node, "m/a/0"));
        node_end(node);
    }
END_TEST

START_TEST(a_peers_word_ends_a_hold_whose_keys_it_knows)
    {
        struct node *node = node_with_client();
        struct sl_digest held = sl_digest_of("m/b", 3), other = sl_digest_of("m/x", 3);
        block_hand_over(node, "m/a", 5);
        block_hand_over(node, "m/b", 5);
        block_hand_over(node, "m/x", 6);

        ck_assert_int_eq(hold_end_as(node, 5, other), SL_ERR_PERMISSION);
        held.low ^= 1;
        ck_assert_int_eq(hold_end_as(node, 5, held), SL_ERR_PERMISSION);
        held.low ^= 1;
        ck_assert_int_eq(hold_end_as(node, 7, held), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "held_count"), 3);
        ck_assert_int_eq(hold_end_as(node, 5, held), SL_OK);

        ck_assert_uint_eq(node_metric(node, "held_count"), 1);
        ck_assert_int_eq(hold_end_as(node, 5, held), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

/* The key's old record may be another key's now, so its contents prove nothing. */
START_TEST(a_key_that_is_gone_is_known_to_nobody)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);
        ck_assert_int_eq(node_remove(node, "client.1", "m/a"), SL_OK);
        pressure(node);

        ck_assert_int_eq(hold_end_as(node, 5, sl_digest_of("m/a", 3)), SL_ERR_PERMISSION);

        ck_assert_int_eq(hold_end(node, 5), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_hand_over_is_whole_when_its_last_block_is_held_and_all_are_committed)
    {
        struct node *node = node_with_client();
        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_ERR_NOT_FOUND);
        ck_assert(block_reserve(node, "m/a", 5, 0));
        struct grants first = grants;
        ck_assert_int_eq(hold_ask(node, 5, "m/a"), SL_ERR_NOT_FOUND); /* it is being written */
        ck_assert(block_reserve(node, "m/b", 5, 0));
        block_commit(node, "m/b");
        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_ERR_NOT_FOUND); /* a is not committed */
        grants = first;
        block_commit(node, "m/a");
        ck_assert_int_eq(hold_ask(node, 5, "m/c"), SL_ERR_NOT_FOUND); /* it has not reached c */

        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_OK);

        ck_assert_int_eq(hold_ask(node, 6, "m/b"), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(node_metric(node, "held_count"), 2); /* asking changes nothing */
        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(what_others_stored_is_part_of_a_whole_hand_over)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 0);
        ck_assert(!block_reserve(node, "m/a", 5, 0));
        ck_assert_int_eq(hold_ask(node, 5, "m/a"), SL_OK);
        node_end(node);
    }
END_TEST

enum { REMOVED, ENDED, LAPSED, RESTARTED, LOSSES };

/* A restart keeps the blocks, but not their holds. */
START_TEST(what_is_not_held_any_more_is_not_whole)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);
        block_hand_over(node, "m/b", 5);
        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_OK);

        if (_i == REMOVED) {
            ck_assert_int_eq(node_remove(node, "client.1", "m/a"), SL_OK);
        } else if (_i == ENDED) {
            ck_assert_int_eq(hold_end(node, 5), SL_OK);
        } else if (_i == LAPSED) {
            fake_advance(&node->fake, HOLD_NS);
        } else {
            node_restart(node);
        }

        ck_assert_int_eq(hold_ask(node, 5, "m/b"), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(a_hold_ends_by_its_time)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);

        fake_advance(&node->fake, HOLD_NS - 1);
        pressure(node);
        ck_assert(node_is_visible(node, "m/a/0"));
        fake_advance(&node->fake, 1);
        pressure(node);

        ck_assert(!node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(node_metric(node, "hold_lapsed_count"), 1);
        ck_assert_uint_eq(node_metric(node, "held_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_restart_keeps_what_is_held)
    {
        struct node *node = node_with_client();
        block_hand_over(node, "m/a", 5);
        block_hand_over(node, "m/b", 0);
        fake_advance(&node->fake, SL_NS_PER_S);

        node_restart(node);
        node_client(node, "client.1", 11);
        pressure(node);
        ck_assert(node_is_visible(node, "m/a/0"));
        ck_assert(!node_is_visible(node, "m/b/0"));
        ck_assert_uint_eq(node_metric(node, "held_bytes"), HALF);
        fake_advance(&node->fake, HOLD_NS);
        pressure(node);

        ck_assert(!node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(node_metric(node, "held_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_block_with_a_time_to_live_lives_while_it_is_held)
    {
        struct node *node = node_with_client();
        ck_assert(block_reserve(node, "m/a", 5, SL_NS_PER_S));
        block_commit(node, "m/a");

        fake_advance(&node->fake, HOLD_NS - 2);
        ck_assert(node_is_visible(node, "m/a/0"));
        fake_advance(&node->fake, 2);

        ck_assert(!node_is_visible(node, "m/a/0"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_block_whose_time_is_over_goes_with_its_hold)
    {
        struct node *node = node_with_client();
        ck_assert(block_reserve(node, "m/a", 5, SL_NS_PER_MS));
        block_commit(node, "m/a");
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert(node_is_visible(node, "m/a/0"));

        ck_assert_int_eq(hold_end(node, 5), SL_OK);
        fake_advance(&node->fake, SL_NS_PER_MS);

        ck_assert(!node_is_visible(node, "m/a/0"));
        node_end(node);
    }
END_TEST

/* Half of the memory are four blocks. */
START_TEST(more_than_may_be_held_is_refused_whole)
    {
        struct node *node = node_with_client();
        static const char *const groups[] = {"m/a", "m/b", "m/c", "m/d"};
        for (uint32_t i = 0; i < SL_COUNT(groups); i++) {
            block_hand_over(node, groups[i], 5 + i);
        }

        ck_assert(!block_reserve(node, "m/e", 9, 0));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_LIMIT);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 4 * HALF);
        ck_assert_uint_eq(node_metric(node, "held_bytes"), 4 * HALF);
        ck_assert_int_eq(hold_end(node, 9), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(hold_end(node, 5), SL_OK);
        ck_assert(block_reserve(node, "m/e", 9, 0));
        node_end(node);
    }
END_TEST

START_TEST(a_hand_over_of_nothing_is_no_hold)
    {
        struct node *node = node_with_client();
        ck_assert(block_reserve(node, "m/a", 0, 0));

        ck_assert(!block_reserve(node, "m/a", 9, 0)); /* another writes it */

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_BUSY);
        ck_assert_int_eq(hold_end(node, 9), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_is_gone_ends_no_worse)
    {
        struct node *node = node_with_client();
        ck_assert(block_reserve(node, "m/a", 5, 0));
        ck_assert_int_eq(node_abort(node, "client.1", &grants.at[0]), SL_OK);
        block_hand_over(node, "m/b", 5);
        ck_assert_int_eq(node_remove(node, "client.1", "m/b"), SL_OK);
        pressure(node); /* the records belong to others now */

        ck_assert_int_eq(hold_end(node, 5), SL_OK);

        ck_assert_uint_eq(node_metric(node, "held_count"), 0);
        ck_assert_uint_eq(node_metric(node, "held_bytes"), 0);
        pressure(node);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_holds");
    TCase *holds = tcase_create("holds");
    tcase_set_timeout(holds, 60);
    tcase_add_test(holds, a_held_block_is_not_evicted_until_its_hold_ends);
    tcase_add_test(holds, a_block_that_exists_is_held_too);
    tcase_add_test(holds, a_block_evicted_for_another_of_its_hand_over_is_not_reported_as_existing);
    tcase_add_test(holds, a_block_of_two_hand_overs_is_held_until_both_have_ended);
    tcase_add_test(holds, a_peers_word_ends_a_hold_whose_keys_it_knows);
    tcase_add_test(holds, a_key_that_is_gone_is_known_to_nobody);
    tcase_add_test(holds, a_hand_over_is_whole_when_its_last_block_is_held_and_all_are_committed);
    tcase_add_test(holds, what_others_stored_is_part_of_a_whole_hand_over);
    tcase_add_loop_test(holds, what_is_not_held_any_more_is_not_whole, 0, LOSSES);
    tcase_add_test(holds, a_hold_ends_by_its_time);
    tcase_add_test(holds, a_restart_keeps_what_is_held);
    tcase_add_test(holds, a_block_with_a_time_to_live_lives_while_it_is_held);
    tcase_add_test(holds, a_block_whose_time_is_over_goes_with_its_hold);
    tcase_add_test(holds, more_than_may_be_held_is_refused_whole);
    tcase_add_test(holds, a_hand_over_of_nothing_is_no_hold);
    tcase_add_test(holds, a_block_that_is_gone_ends_no_worse);
    suite_add_tcase(suite, holds);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
