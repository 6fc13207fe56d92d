/* tests/unit/registrar_rails_test.c - extents of a transporter that died: its rails are processes of
 * their own, and what peers still send may land by them until each says that it does not. */
#include "tests/unit/registrar_support.h"

#define DOOR_PID 50u
#define RAIL_PID 51u

static const struct sl_msg ok = {.code = SL_OK};

/* The door has reserved 8 KiB and writes them itself. */
static struct node *node_with_rails(uint32_t rails, struct sl_item_grant *grant)
{
    static const char *const settings[] = {"fence_timeout", "1s", NULL};
    struct node *node = node_start(settings);
    ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", DOOR_PID), SL_OK);
    for (uint32_t i = 0; i < rails; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "transporter.%u", i + 1);
        ck_assert_int_eq(node_hello(node, name, "transporter", RAIL_PID + i), SL_OK);
    }
    *grant = node_grant(node, "transporter.0", "k", 8192);
    return node;
}

static void answer(struct node *node, const char *rail)
{
    struct sl_msg fence, reply = ok;
    fake_pass(&node->fake, SL_NS_PER_MS);
    ck_assert(fake_take(&node->fake, rail, SL_MSG_FENCE, &fence));
    ck_assert_uint_eq(fence.body.fence.items.count, 1);
    fake_answer(&node->fake, rail, &fence, &reply);
    fake_pass(&node->fake, SL_NS_PER_MS);
}

static bool is_asked(struct node *node, const char *name)
{
    struct sl_msg fence;
    fake_pass(&node->fake, SL_NS_PER_MS);
    return fake_take(&node->fake, name, SL_MSG_FENCE, &fence);
}

START_TEST(each_rail_of_a_dead_transporter_is_fenced_before_its_extents_are_free)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(2, &grant);

        fake_die(&node->fake, proc_of(DOOR_PID));
        answer(node, "transporter.1");
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        answer(node, "transporter.2");
        ck_assert_uint_eq(node_metric(node, "used_bytes"),
                          8192); /* a successor may be on its way */
        fake_pass(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_successor_is_asked_behind_the_rails)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(1, &grant);

        fake_die(&node->fake, proc_of(DOOR_PID));
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 60), SL_OK);
        ck_assert(!is_asked(node, "transporter.0"));
        answer(node, "transporter.1");
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        answer(node, "transporter.0");

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_rail_that_does_not_answer_is_killed_and_its_death_counts)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(1, &grant);

        fake_die(&node->fake, proc_of(DOOR_PID));
        ck_assert(is_asked(node, "transporter.1"));
        fake_pass(&node->fake, 3 * SL_NS_PER_S); /* the grace for a successor would be over */
        ck_assert_uint_eq(node->fake.killed_count, 1);
        ck_assert_uint_eq(node->fake.killed[0].pid, RAIL_PID);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        fake_die(&node->fake, proc_of(RAIL_PID));
        fake_pass(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

/* The claim ended while the door lived, and the door died before it answered. */
START_TEST(a_door_that_dies_with_a_fence_open_leaves_it_to_its_rails)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(1, &grant);
        fake_die(&node->fake, proc_of(DOOR_PID));
        answer(node, "transporter.1");
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 60), SL_OK);
        ck_assert(is_asked(node, "transporter.0")); /* and does not answer */

        fake_die(&node->fake, proc_of(60));

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        answer(node, "transporter.1");
        fake_pass(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_new_registrar_asks_the_rails_again)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(1, &grant);
        fake_die(&node->fake, proc_of(DOOR_PID));
        ck_assert(is_asked(node, "transporter.1"));

        node_restart(node);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        answer(node, "transporter.1");
        fake_pass(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(without_rails_nothing_is_asked)
    {
        struct sl_item_grant grant;
        struct node *node = node_with_rails(0, &grant);

        fake_die(&node->fake, proc_of(DOOR_PID));
        fake_pass(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_rails");
    TCase *rails = tcase_create("rails");
    tcase_add_test(rails, each_rail_of_a_dead_transporter_is_fenced_before_its_extents_are_free);
    tcase_add_test(rails, a_successor_is_asked_behind_the_rails);
    tcase_add_test(rails, a_rail_that_does_not_answer_is_killed_and_its_death_counts);
    tcase_add_test(rails, a_door_that_dies_with_a_fence_open_leaves_it_to_its_rails);
    tcase_add_test(rails, a_new_registrar_asks_the_rails_again);
    tcase_add_test(rails, without_rails_nothing_is_asked);
    suite_add_tcase(suite, rails);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
