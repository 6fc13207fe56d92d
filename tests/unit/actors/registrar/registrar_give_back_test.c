/* tests/unit/actors/registrar/registrar_give_back_test.c - memory that is no longer contributed is
 * returned to the system: when, how much, and when not. */
#include "actors/registrar/memory/give_back.h"
#include "actors/registrar/memory/populate.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include <sys/stat.h>

static const char *const lent[] = {"contributions", "true",   "memory", "160MiB",
                                   "memory_chunk",  "128MiB", NULL};

/* Until unused memory has been watched for long enough, returned in steps, and swept. */
#define ALL_NS (3 * REG_GIVE_BACK_AFTER_NS + 10 * SL_NS_PER_S)

static const struct registrar *state_of(const struct node *node)
{
    return node->fake.state;
}

static uint64_t there(const struct node *node)
{
    return sl_arena_populated_bytes(state_of(node)->arena);
}

static uint64_t blocks_bytes(const struct node *node)
{
    char path[1100];
    struct stat status;
    snprintf(path, sizeof(path), "%s/arena.0", node->fake.paths.shm_dir);
    ck_assert_int_eq(stat(path, &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

/* Passes time in pieces, like a loop that is woken late. */
static void pass(struct node *node, uint64_t ns)
{
    for (uint64_t passed = 0; passed < ns; passed += 5 * SL_NS_PER_MS) {
        fake_advance(&node->fake, 5 * SL_NS_PER_MS);
    }
}

static sl_err answer(struct node *node, struct sl_msg *msg)
{
    struct sl_msg reply;
    fake_give(&node->fake, "client.1", msg);
    for (uint32_t i = 0; i < 1000; i++) {
        if (fake_take_reply(&node->fake, "client.1", msg->seq, &reply)) {
            return reply.code;
        }
        fake_advance(&node->fake, SL_NS_PER_MS);
    }
    return SL_ERR_INCOMPLETE;
}

static sl_err contribute(struct node *node, const char *name, uint64_t length_bytes)
{
    struct sl_msg msg = {.type = SL_MSG_CONTRIBUTE};
    msg.body.contribute.name = sl_text_of(name);
    msg.body.contribute.length_bytes = length_bytes;
    msg.body.contribute.lasting = true;
    return answer(node, &msg);
}

static sl_err withdraw(struct node *node, const char *name)
{
    struct sl_msg msg = {.type = SL_MSG_WITHDRAW};
    msg.body.withdraw.name = sl_text_of(name);
    return answer(node, &msg);
}

static struct node *node_with_client(const char *const *settings)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    return node;
}

START_TEST(withdrawn_memory_goes_back_and_the_next_contribution_has_it_anew)
    {
        struct node *node = node_with_client(lent);
        uint64_t before = blocks_bytes(node);
        for (uint32_t round = 0; round < 5; round++) {
            ck_assert_int_eq(contribute(node, "a", 64 * SL_MIB), SL_OK);
            pass(node, 2 * SL_NS_PER_S);
            ck_assert_uint_ge(there(node), 64 * SL_MIB);
            for (uint32_t i = 0; i < 80; i++) { /* more than fit */
                char key[16];
                snprintf(key, sizeof(key), "k%u", i);
                node_put(node, "client.1", key, SL_MIB);
            }
            ck_assert_uint_gt(blocks_bytes(node), before + 64 * SL_MIB);
            ck_assert_int_eq(withdraw(node, "a"), SL_OK);

            pass(node, ALL_NS);

            ck_assert_uint_eq(there(node), 0);
            ck_assert_uint_eq(blocks_bytes(node), before);
        }
        ck_assert_uint_ge(node_metric(node, "given_back_bytes"), 5 * 64 * SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(what_others_contribute_stays)
    {
        struct node *node = node_with_client(lent);
        ck_assert_int_eq(contribute(node, "a", 32 * SL_MIB), SL_OK);
        ck_assert_int_eq(contribute(node, "b", 64 * SL_MIB), SL_OK);
        pass(node, 5 * SL_NS_PER_S);
        ck_assert_uint_ge(there(node), 96 * SL_MIB);

        ck_assert_int_eq(withdraw(node, "b"), SL_OK);
        pass(node, ALL_NS);

        uint64_t want = reg_populate_target(state_of(node));
        ck_assert_uint_ge(want, 32 * SL_MIB);
        ck_assert_uint_lt(want, 64 * SL_MIB);
        ck_assert_uint_eq(there(node), want);
        for (uint32_t i = 0; i < 31; i++) { /* and it can be used */
            char key[16];
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SL_MIB);
        }
        ck_assert_uint_eq(node_metric(node, "evicted_count"), 0);
        node_end(node);
    }
END_TEST

/* However long no memory was in use before it was contributed again. */
START_TEST(what_was_in_use_stays_its_time_each_time)
    {
        struct node *node = node_with_client(lent);
        for (uint32_t round = 0; round < 2; round++) {
            ck_assert_int_eq(contribute(node, "a", 64 * SL_MIB), SL_OK);
            pass(node, 2 * SL_NS_PER_S);
            uint64_t bytes = there(node);
            node_put(node, "client.1", "k", SL_MIB);
            ck_assert_int_eq(withdraw(node, "a"), SL_OK);

            pass(node, REG_GIVE_BACK_AFTER_NS - SL_NS_PER_S);
            ck_assert_uint_eq(there(node), bytes);

            pass(node, ALL_NS);
            ck_assert_uint_eq(there(node), 0);
        }
        node_end(node);
    }
END_TEST

/* In the middle of a pause, of steps, and after them. */
static const uint64_t moments_ns[] = {SL_NS_PER_MS, 1500 * SL_NS_PER_MS,
                                      REG_GIVE_BACK_AFTER_NS + 2020 * SL_NS_PER_MS,
                                      REG_GIVE_BACK_AFTER_NS + 4 * SL_NS_PER_S};

START_TEST(contribution_in_the_middle_of_giving_back_is_served)
    {
        struct node *node = node_with_client(lent);
        ck_assert_int_eq(contribute(node, "a", 128 * SL_MIB), SL_OK);
        pass(node, 5 * SL_NS_PER_S);
        ck_assert_int_eq(withdraw(node, "a"), SL_OK);
        pass(node, moments_ns[_i]);

        ck_assert_int_eq(contribute(node, "b", 128 * SL_MIB), SL_OK);

        for (uint32_t i = 0; i < 120; i++) {
            char key[16];
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SL_MIB);
        }
        pass(node, ALL_NS);
        ck_assert_uint_ge(there(node), 128 * SL_MIB);
        ck_assert_uint_eq(node_metric(node, "evicted_count"), 0);
        node_end(node);
    }
END_TEST

/* A value at the end of memory keeps all memory before it, until the value is removed. */
START_TEST(memory_in_use_stays_until_it_is_not)
    {
        struct node *node = node_with_client(lent);
        char key[16];
        ck_assert_int_eq(contribute(node, "a", 16 * SL_MIB), SL_OK);
        ck_assert_int_eq(contribute(node, "b", 64 * SL_MIB), SL_OK);
        pass(node, 5 * SL_NS_PER_S);
        uint64_t last = 0;
        struct sl_entry entry;
        struct want want = {.key = key, .length = SL_MIB};
        static struct grants grants;
        for (uint32_t i = 0; i < 70; i++) {
            struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1};
            ask.contributions[0] = i < 64 ? "b" : "a";
            ask.contribution_count = 1;
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert(node_reserve(node, &ask, &grants));
            ck_assert_int_eq(node_commit(node, "client.1", key, &grants.at[0]), SL_OK);
            ck_assert(node_entry(node, key, &entry));
            last = SL_MAX(i < 64 ? 0 : last, entry.extent.offset_bytes + SL_MIB);
        }
        uint64_t target = 32 * SL_MIB;
        ck_assert_uint_gt(last, target);

        ck_assert_int_eq(withdraw(node, "b"), SL_OK);
        pass(node, ALL_NS);

        ck_assert_uint_eq(there(node), sl_align_up(last, 2 * SL_MIB));
        for (uint32_t i = 64; i < 70; i++) { /* intact, and no used memory is returned */
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert(node_is_visible(node, key));
        }
        ck_assert_int_eq(withdraw(node, "a"), SL_OK);
        pass(node, ALL_NS);
        ck_assert_uint_eq(there(node), 0);
        node_end(node);
    }
END_TEST

static const char *const devices[] = {"contributions", "true",   "memory", "160MiB", "memory_chunk",
                                      "128MiB",        "device", "auto",   NULL};
static const char *const nics[] = {"contributions", "true",   "memory", "160MiB", "memory_chunk",
                                   "128MiB",        "fabric", "verbs",  NULL};
static const char *const disks[] = {"contributions", "true", "memory", "160MiB", "memory_chunk",
                                    "128MiB",        "disk", "1GiB",   NULL};
static const char *const *const registered[] = {devices, nics, disks, lent};

START_TEST(memory_that_may_be_registered_stays)
    {
        struct node *node = node_with_client(registered[_i]);
        struct sl_arena *client = NULL;
        ck_assert_int_eq(contribute(node, "a", 64 * SL_MIB), SL_OK);
        pass(node, 5 * SL_NS_PER_S);
        if (registered[_i] == lent) { /* a client has a GPU of its own */
            ck_assert_int_eq(sl_arena_attach(node->fake.paths.shm_dir, 0, true, &client, NULL),
                             SL_OK);
            ck_assert(sl_arena_forbid_freeing(client));
        }

        ck_assert_int_eq(withdraw(node, "a"), SL_OK);
        pass(node, ALL_NS);

        ck_assert_uint_ge(there(node), 64 * SL_MIB);
        ck_assert_int_eq(contribute(node, "b", 64 * SL_MIB), SL_OK); /* which has it then */
        node_put(node, "client.1", "k", SL_MIB);
        sl_arena_close(&client);
        node_end(node);
    }
END_TEST

/* Killed between two steps, or between the cut of the prefix and the end of a step: memory after
 * the prefix is never read, and the next registrar's sweep frees it. */
START_TEST(a_successor_continues_after_a_registrar_dies_in_the_middle)
    {
        struct node *node = node_with_client(lent);
        uint64_t before = blocks_bytes(node);
        ck_assert_int_eq(contribute(node, "a", 128 * SL_MIB), SL_OK);
        pass(node, 5 * SL_NS_PER_S);
        ck_assert_int_eq(withdraw(node, "a"), SL_OK);
        while (there(node) == 0 || there(node) >= 128 * SL_MIB) {
            fake_advance(&node->fake, SL_NS_PER_MS);
        }
        uint64_t left = there(node);
        ck_assert_uint_gt(left, 64 * SL_MIB);
        unsigned char *late = sl_arena_at(state_of(node)->arena, left + SL_MIB, 1);
        *(volatile unsigned char *)late = 1;

        node_restart(node);
        node_client(node, "client.1", 11);
        ck_assert_uint_eq(there(node), left);
        pass(node, ALL_NS);

        ck_assert_uint_eq(there(node), 0);
        ck_assert_uint_eq(blocks_bytes(node), before);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_give_back");
    TCase *tcase = tcase_create("give back");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, withdrawn_memory_goes_back_and_the_next_contribution_has_it_anew);
    tcase_add_test(tcase, what_was_in_use_stays_its_time_each_time);
    tcase_add_test(tcase, what_others_contribute_stays);
    tcase_add_loop_test(tcase, contribution_in_the_middle_of_giving_back_is_served, 0,
                        (int)SL_COUNT(moments_ns));
    tcase_add_test(tcase, memory_in_use_stays_until_it_is_not);
    tcase_add_loop_test(tcase, memory_that_may_be_registered_stays, 0, (int)SL_COUNT(registered));
    tcase_add_test(tcase, a_successor_continues_after_a_registrar_dies_in_the_middle);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
