/* tests/unit/actors/registrar/registrar_populate_test.c - memory is populated before writers
 * request it: when, how much at a time, and what happens to a request that is faster. */
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "tests/unit/actors/registrar/registrar_support.h"

static struct grants grants;

static const char *const lent[] = {"contributions", "true",   "memory", "160MiB",
                                   "memory_chunk",  "128MiB", NULL};
static const char *const own[] = {"memory", "160MiB", "memory_chunk", "128MiB", NULL};

static const char *const nic[] = {"memory", "160MiB", "memory_chunk", "128MiB", "fabric",
                                  "verbs",  NULL};

#define LEAD_BYTES (32 * SL_MIB) /* what is populated without a pause */

static const struct registrar *state_of(const struct node *node)
{
    return node->fake.state;
}

static uint64_t there(const struct node *node)
{
    return sl_arena_populated_bytes(state_of(node)->arena);
}

static struct node *node_held(const char *const *settings)
{
    struct node *node = node_start(settings);
    struct registrar *self = node->fake.state;
    self->populate->core_count = 1; /* wherever the test runs */
    node->fake.job_held = true;
    node_client(node, "client.1", 11);
    return node;
}

/* Returns the sequence number of the request. */
static uint64_t contribute(struct node *node, uint64_t length_bytes)
{
    struct sl_msg msg = {.type = SL_MSG_CONTRIBUTE};
    msg.body.contribute.name = sl_text_of("host:1");
    msg.body.contribute.length_bytes = length_bytes;
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

static bool answered(struct node *node, uint64_t seq)
{
    struct sl_msg reply;
    bool came = fake_take_reply(&node->fake, "client.1", seq, &reply);
    ck_assert(!came || reply.code == SL_OK);
    return came;
}

/* Runs each job when it is started, for took_ns each, for ns in total. */
static void populate_for(struct node *node, uint64_t ns, uint64_t took_ns)
{
    uint64_t until_ns = node->fake.env.now_ns + ns;
    while (node->fake.env.now_ns < until_ns) {
        if (node->fake.held_job != NULL) {
            fake_job_run(&node->fake, took_ns);
        } else {
            fake_advance(&node->fake, SL_NS_PER_MS);
        }
    }
}

/* ---- the first puts ---- */

START_TEST(contribution_is_answered_when_its_first_puts_find_memory)
    {
        struct node *node = node_held(lent);

        uint64_t seq = contribute(node, 128 * SL_MIB);

        fake_advance(&node->fake, 50 * SL_NS_PER_MS);
        ck_assert(!answered(node, seq));
        fake_job_run(&node->fake, 10 * SL_NS_PER_MS);
        ck_assert(answered(node, seq));
        ck_assert_uint_eq(there(node), LEAD_BYTES);
        ck_assert_ptr_null(node->fake.held_job); /* and they are not delayed */
        (void)node_grant(node, "client.1", "small", 4096);
        (void)node_grant(node, "client.1", "large", SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(small_contribution_waits_for_no_more_than_it_has)
    {
        struct node *node = node_held(lent);
        uint64_t seq = contribute(node, SL_MIB);
        ck_assert(!answered(node, seq));
        fake_job_run(&node->fake, SL_NS_PER_MS);
        ck_assert(answered(node, seq));
        node_end(node);
    }
END_TEST

START_TEST(contribution_that_finds_memory_is_answered_at_once)
    {
        struct node *node = node_held(lent);
        uint64_t seq = contribute(node, 64 * SL_MIB);
        fake_job_run(&node->fake, SL_NS_PER_MS);
        ck_assert(answered(node, seq));

        seq = contribute(node, 64 * SL_MIB); /* asked again */

        ck_assert(answered(node, seq));
        node_end(node);
    }
END_TEST

START_TEST(slow_memory_delays_a_contribution_for_a_moment_at_most)
    {
        struct node *node = node_held(lent);
        uint64_t seq = contribute(node, 128 * SL_MIB);
        fake_advance(&node->fake, 201 * SL_NS_PER_MS);
        ck_assert(answered(node, seq));
        node_end(node);
    }
END_TEST

START_TEST(contribution_without_memory_is_answered_and_puts_are_refused)
    {
        struct node *node = node_held(lent);
        node->fake.job_fails = SL_ERR_NO_SPACE;
        uint64_t seq = contribute(node, 64 * SL_MIB);
        fake_job_run(&node->fake, SL_NS_PER_MS);
        ck_assert(answered(node, seq));

        struct want want = {.key = "k", .length = 4096};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        fake_advance(&node->fake, 50 * SL_NS_PER_MS);
        ck_assert_ptr_nonnull(strstr(state_of(node)->health_reason, "the system gave"));
        node_end(node);
    }
END_TEST

/* ---- faster than the threads ---- */

static const struct {
    const char *const *settings;
    uint64_t length, count;
} early[] = {
    {lent, 64, 1}, {lent, SL_MIB, 1}, {lent, 5 * SL_MIB, 1}, {own, 4096, 64}, {own, SL_MIB, 8},
};

START_TEST(put_before_any_thread_has_run_is_granted_at_once)
    {
        struct node *node = node_held(early[_i].settings);
        if (early[_i].settings == lent) {
            (void)contribute(node, 128 * SL_MIB);
            ck_assert_uint_eq(there(node), 0);
        }
        char names[64][8];
        struct want wants[64];
        for (uint64_t i = 0; i < early[_i].count; i++) {
            snprintf(names[i], sizeof(names[i]), "k%u", (unsigned)i);
            wants[i] = (struct want){.key = names[i], .length = early[_i].length};
        }
        struct reserve_ask ask = {
            .sender = "client.1", .wants = wants, .count = (uint32_t)early[_i].count};

        ck_assert(node_reserve(node, &ask, &grants));

        for (uint64_t i = 0; i < early[_i].count; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_OK);
            ck_assert_uint_le(grants.at[i].offset_bytes + early[_i].length, there(node));
        }
        node_end(node);
    }
END_TEST

/* A turn of the loop populates at most 4 MiB for a request, and the same for one that waits; other
 * messages are handled between turns. */
START_TEST(large_batch_gets_its_memory_by_and_by_without_any_thread)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 128 * SL_MIB);
        char names[100][8];
        struct want wants[100];
        for (uint32_t i = 0; i < 100; i++) {
            snprintf(names[i], sizeof(names[i]), "k%u", i);
            wants[i] = (struct want){.key = names[i], .length = SL_MIB};
        }
        struct reserve_ask ask = {.sender = "client.1", .wants = wants, .count = 100};
        bool done = node_reserve(node, &ask, &grants);
        uint64_t before = there(node);
        ck_assert(!done);
        ck_assert_uint_le(before, 8 * SL_MIB);
        for (uint32_t i = 0; i < 32 && !done; i++) {
            fake_advance(&node->fake, SL_NS_PER_US);
            ck_assert_uint_le(there(node), before + 8 * SL_MIB);
            before = there(node);
            done = node_reserved(node, &ask, &grants);
        }
        ck_assert(done);
        for (uint32_t i = 0; i < 100; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_OK);
        }
        node_end(node);
    }
END_TEST

START_TEST(nothing_is_evicted_while_memory_is_on_its_way)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 128 * SL_MIB);
        for (uint32_t i = 0; i < 100; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SL_MIB);
        }
        ck_assert_uint_eq(node_metric(node, "evicted_count"), 0);
        ck_assert(node_is_visible(node, "k0"));
        node_end(node);
    }
END_TEST

/* The populating threads hardly get a core: the memory that the loop populates must suffice. */
START_TEST(large_value_on_disk_is_read_while_memory_is_on_its_way)
    {
        static const char *const settings[] = {"memory",       "160MiB", "memory_chunk",
                                               "128MiB",       "disk",   "1GiB",
                                               "disk_segment", "256MiB", NULL};
        static const struct found large = {
            .key = "large", .length = 120 * SL_MIB, .segment = 1, .offset = 0};
        struct sl_text key = sl_text_of("large");
        struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = 30 * SL_NS_PER_S};
        struct sl_msg reply;
        sl_err code;
        struct node *node = node_held(settings);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &large, 1, true, true, &code);
        msg.body.bring.keys = (struct sl_texts){.at = &key, .count = 1};

        fake_give(&node->fake, "client.1", &msg);
        uint32_t read = 0;
        for (uint32_t i = 0; i < 3000 && read == 0;
             i++) { /* ticks as they come on a slow machine */
            fake_advance(&node->fake, 5 * SL_NS_PER_MS);
            read = tierer_read(node, SL_OK);
        }

        ck_assert_uint_eq(read, 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_OK);
        node_end(node);
    }
END_TEST

/* Memory is being populated, but that is not what they lack. */
START_TEST(what_lacks_something_else_is_refused_at_once)
    {
        struct node *node = node_start(lent);
        node_client(node, "client.1", 11);
        struct registrar *self = node->fake.state;
        ck_assert(answered(node, contribute(node, 16 * SL_MIB)));
        node->fake.job_held = true;
        struct want want = {.key = "full", .length = 12 * SL_MIB};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .hard_pin = true};
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "client.1", "full", &grants.at[0]), SL_OK);
        struct sl_msg more = {.type = SL_MSG_CONTRIBUTE};
        more.body.contribute.name = sl_text_of("host:2");
        more.body.contribute.length_bytes = SL_MIB;
        fake_give(&node->fake, "client.1", &more);
        ck_assert(reg_populate_pending(self));
        want.key = "more";
        ask.seq = 0;

        bool told = node_reserve(node, &ask, &grants);

        ck_assert(told);
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* ---- in time ---- */

START_TEST(what_writers_need_next_comes_without_a_pause_and_the_rest_with_pauses)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 128 * SL_MIB);
        fake_job_run(&node->fake, 20 * SL_NS_PER_MS);
        ck_assert_uint_eq(there(node), LEAD_BYTES);

        uint64_t from_ns = node->fake.env.now_ns, busy_ns = 0;
        while (there(node) < 128 * SL_MIB) {
            uint64_t before = there(node);
            ck_assert_uint_lt(node->fake.env.now_ns - from_ns, 60 * SL_NS_PER_S);
            if (node->fake.held_job == NULL) {
                fake_advance(&node->fake, SL_NS_PER_MS);
                continue;
            }
            ck_assert_uint_eq(node->fake.held_threads, 1);
            fake_job_run(&node->fake, 4 * SL_NS_PER_MS);
            busy_ns += 4 * SL_NS_PER_MS;
            ck_assert_uint_le(there(node) - before, 4 * SL_MIB);
        }
        uint64_t passed_ns = node->fake.env.now_ns - from_ns;
        ck_assert_uint_ge(passed_ns, 7 * busy_ns);  /* an eighth of a core */
        ck_assert_uint_le(passed_ns, 10 * busy_ns); /* and it continues */
        node_end(node);
    }
END_TEST

static const struct {
    uint32_t core_count, pauses_of_batch, thread_count;
} shares[] = {{1, 7, 1}, {2, 3, 1}, {4, 1, 2}, {8, 0, 2}, {64, 0, 2}};

START_TEST(more_cores_have_more_threads_and_shorter_pauses)
    {
        struct node *node = node_held(lent);
        struct registrar *self = node->fake.state;
        self->populate->core_count = shares[_i].core_count;
        (void)contribute(node, 128 * SL_MIB);
        ck_assert_uint_eq(node->fake.held_threads, shares[_i].thread_count);
        fake_job_run(&node->fake, 10 * SL_NS_PER_MS);

        uint64_t pause_ns = self->populate->pause_ns - node->fake.env.now_ns;

        uint64_t want_ns = shares[_i].pauses_of_batch * 10 * SL_NS_PER_MS;
        ck_assert_uint_eq(pause_ns, SL_MAX(want_ns, (uint64_t)SL_NS_PER_MS));
        node_end(node);
    }
END_TEST

/* A NIC registers memory only when every page is populated. */
START_TEST(memory_for_a_nic_comes_without_pauses)
    {
        struct node *node = node_held(nic);
        uint64_t from_ns = node->fake.env.now_ns;
        populate_for(node, 200 * SL_NS_PER_MS, 10 * SL_NS_PER_MS);
        ck_assert_uint_eq(there(node), 160 * SL_MIB);
        ck_assert_uint_le(node->fake.env.now_ns - from_ns, 220 * SL_NS_PER_MS);
        node_end(node);
    }
END_TEST

START_TEST(batches_follow_how_long_they_take)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 140 * SL_MIB);
        fake_job_run(&node->fake, SL_NS_PER_MS);
        for (uint32_t i = 0; i < 100 && state_of(node)->populate->batch_bytes < 16 * SL_MIB; i++) {
            populate_for(node, SL_NS_PER_MS, 100 * SL_NS_PER_US);
        }
        ck_assert_uint_eq(state_of(node)->populate->batch_bytes, 16 * SL_MIB);

        populate_for(node, 600 * SL_NS_PER_MS, 20 * SL_NS_PER_MS);

        ck_assert_uint_lt(state_of(node)->populate->batch_bytes, 16 * SL_MIB);
        ck_assert_uint_ge(state_of(node)->populate->batch_bytes, 2 * SL_MIB);
        node_end(node);
    }
END_TEST

/* A MiB a millisecond, while threads populate four in that time: the lead is kept. */
START_TEST(granted_memory_stays_ahead_of_a_writer)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 130 * SL_MIB);
        fake_job_run(&node->fake, 20 * SL_NS_PER_MS);
        for (uint32_t i = 0; i < 120; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SL_MIB);
            if (node->fake.held_job != NULL) {
                fake_job_run(&node->fake, SL_NS_PER_MS);
            } else {
                fake_advance(&node->fake, SL_NS_PER_MS);
            }
            ck_assert(!state_of(node)->populate->hurried);
            uint64_t ahead = reg_free_bytes(state_of(node));
            ck_assert(ahead >= LEAD_BYTES / 2 - 2 * SL_MIB || there(node) >= 130 * SL_MIB);
        }
        node_end(node);
    }
END_TEST

START_TEST(node_of_its_own_populates_all_of_its_memory)
    {
        struct node *node = node_held(own);
        populate_for(node, 2 * SL_NS_PER_S, SL_NS_PER_MS);
        ck_assert_uint_eq(there(node), 160 * SL_MIB);
        ck_assert_ptr_null(node->fake.held_job); /* and then no more */
        node_end(node);
    }
END_TEST

START_TEST(memory_that_the_system_lacked_comes_when_it_has_it)
    {
        struct node *node = node_held(own);
        node->fake.job_fails = SL_ERR_NO_SPACE;
        populate_for(node, 100 * SL_NS_PER_MS, SL_NS_PER_MS);
        uint64_t before = there(node);
        ck_assert_uint_lt(before, 160 * SL_MIB);
        ck_assert_ptr_nonnull(strstr(state_of(node)->health_reason, "the system gave"));

        node->fake.job_fails = SL_OK;
        populate_for(node, 3 * SL_NS_PER_S, SL_NS_PER_MS);

        ck_assert_uint_eq(there(node), 160 * SL_MIB);
        ck_assert_str_eq(state_of(node)->health_reason, "");
        node_end(node);
    }
END_TEST

/* ---- restart ---- */

START_TEST(restarted_registrar_goes_on_where_the_one_before_was)
    {
        struct node *node = node_held(lent);
        (void)contribute(node, 128 * SL_MIB);
        fake_job_run(&node->fake, 20 * SL_NS_PER_MS);
        node_put(node, "client.1", "k", SL_MIB);
        populate_for(node, 300 * SL_NS_PER_MS, 4 * SL_NS_PER_MS);
        uint64_t before = there(node);
        ck_assert_uint_gt(before, LEAD_BYTES);
        ck_assert_uint_lt(before, 128 * SL_MIB);

        node_restart(node); /* a job may be running */

        ck_assert_uint_eq(there(node), before);
        node_client(node, "client.1", 11);
        ck_assert(node_is_visible(node, "k"));
        (void)node_grant(node, "client.1", "l", SL_MIB);
        populate_for(node, 5 * SL_NS_PER_S, SL_NS_PER_MS);
        ck_assert_uint_ge(there(node), 128 * SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(contribution_ends_before_its_memory_came)
    {
        struct node *node = node_held(lent);
        uint64_t seq = contribute(node, 128 * SL_MIB);
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW}, reply;
        msg.body.withdraw.name = sl_text_of("host:1");
        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));

        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert_uint_eq(state_of(node)->contributions->asked, 0);
        fake_advance(&node->fake, SL_NS_PER_S);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_populate");
    TCase *first = tcase_create("first puts");
    tcase_set_timeout(first, 60);
    tcase_add_test(first, contribution_is_answered_when_its_first_puts_find_memory);
    tcase_add_test(first, small_contribution_waits_for_no_more_than_it_has);
    tcase_add_test(first, contribution_that_finds_memory_is_answered_at_once);
    tcase_add_test(first, slow_memory_delays_a_contribution_for_a_moment_at_most);
    tcase_add_test(first, contribution_without_memory_is_answered_and_puts_are_refused);
    tcase_add_test(first, contribution_ends_before_its_memory_came);
    suite_add_tcase(suite, first);
    TCase *faster = tcase_create("faster than the threads");
    tcase_set_timeout(faster, 60);
    tcase_add_loop_test(faster, put_before_any_thread_has_run_is_granted_at_once, 0,
                        (int)SL_COUNT(early));
    tcase_add_test(faster, large_batch_gets_its_memory_by_and_by_without_any_thread);
    tcase_add_test(faster, nothing_is_evicted_while_memory_is_on_its_way);
    tcase_add_test(faster, large_value_on_disk_is_read_while_memory_is_on_its_way);
    tcase_add_test(faster, what_lacks_something_else_is_refused_at_once);
    suite_add_tcase(suite, faster);
    TCase *time = tcase_create("in time");
    tcase_set_timeout(time, 60);
    tcase_add_test(time, what_writers_need_next_comes_without_a_pause_and_the_rest_with_pauses);
    tcase_add_loop_test(time, more_cores_have_more_threads_and_shorter_pauses, 0,
                        (int)SL_COUNT(shares));
    tcase_add_test(time, memory_for_a_nic_comes_without_pauses);
    tcase_add_test(time, batches_follow_how_long_they_take);
    tcase_add_test(time, granted_memory_stays_ahead_of_a_writer);
    tcase_add_test(time, node_of_its_own_populates_all_of_its_memory);
    tcase_add_test(time, memory_that_the_system_lacked_comes_when_it_has_it);
    tcase_add_test(time, restarted_registrar_goes_on_where_the_one_before_was);
    suite_add_tcase(suite, time);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
