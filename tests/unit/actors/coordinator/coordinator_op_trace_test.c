/* tests/unit/actors/coordinator/coordinator_op_trace_test.c - the coordinator's records of ops that
 * ended or run. */
#include "actors/coordinator/op_trace.h"
#include "tests/unit/actors/coordinator/coordinator_support.h"

#include <inttypes.h>

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static uint64_t load_send(struct bed *bed, uint64_t op_id, uint32_t count, const char *request,
                          const char *traceparent)
{
    static uint32_t tokens[BLOCKS_MAX * 4];
    static uint64_t device[BLOCKS_MAX];
    struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = op_id, .trace_id = 0x1000 + op_id};
    msg.body.load = (struct sl_body_load){.engine_id = ENGINE_ID,
                                          .tokens = {tokens, count * 16ull},
                                          .device_blocks = {device, count},
                                          .request = sl_text_of(request),
                                          .traceparent = sl_text_of(traceparent)};
    fake_give(&bed->fake, "client.1.0", &msg);
    return msg.seq;
}

static struct sl_msg story_ask(struct bed *bed, const char *id, uint64_t skip)
{
    struct sl_msg msg = {.type = SL_MSG_OP_TRACE};
    msg.body.op_trace = (struct sl_body_op_trace){.id = sl_text_of(id), .skip = skip};
    fake_give(&bed->fake, "client.1.0", &msg);
    return reply_to(bed, msg.seq);
}

static void copies(struct bed *bed)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        (void)answer_copy(bed, rank, UINT64_MAX);
    }
}

START_TEST(a_load_is_told_by_runs_of_blocks)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        (void)load_send(bed, 1, 4, "r1", PARENT);
        answer_engine(bed);
        answer_keys(bed);
        fake_advance(&bed->fake, 3 * SL_NS_PER_MS);
        copies(bed);

        struct sl_msg reply = story_ask(bed, "r1", 0);

        const struct sl_body_op_trace_reply *told = &reply.body.op_trace_reply;
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(told->runs.count, 3);
        ck_assert_uint_eq(told->runs.at[0].outcome, SL_BLOCK_MEMORY);
        ck_assert_uint_eq(told->runs.at[0].count, 2);
        ck_assert_uint_eq(told->runs.at[0].at_ns, 3 * SL_NS_PER_MS);
        ck_assert_uint_eq(told->runs.at[1].outcome, SL_BLOCK_MISSING);
        ck_assert_uint_eq(told->runs.at[2].outcome, SL_BLOCK_BEHIND);
        ck_assert_uint_eq(told->keys.count, 2);
        ck_assert_uint_eq(told->keys_first, 2);
        ck_assert_msg(strncmp(told->keys.at[0].at, MODEL "/", sizeof(MODEL)) == 0, "%s",
                      told->keys.at[0].at);
        ck_assert_str_eq(told->traceparent.at, PARENT);
        ck_assert_str_eq(told->requester.at, "client.1.0");
        ck_assert(!told->running);
        bed_end(bed);
    }
END_TEST

START_TEST(an_op_under_way_is_told_with_what_it_waits_for)
    {
        struct bed *bed = bed_make(NULL);
        (void)load_send(bed, 1, 2, "r1", "no trace context");

        struct sl_msg reply = story_ask(bed, "1001", 0);

        const struct sl_body_op_trace_reply *told = &reply.body.op_trace_reply;
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(told->running);
        ck_assert_str_eq(told->reason.at, "waiting for the engine's registration");
        ck_assert_str_eq(told->traceparent.at, "");
        ck_assert_uint_eq(told->runs.at[0].outcome, SL_BLOCK_OPEN);
        bed_end(bed);
    }
END_TEST

/* The latest are listed first, and at most CO_OP_TRACES_MAX are kept. */
START_TEST(the_last_ones_are_kept)
    {
        struct bed *bed = bed_make(NULL);
        char name[32];
        for (uint32_t i = 0; i < CO_OP_TRACES_MAX + 2; i++) {
            (void)snprintf(name, sizeof(name), "r%" PRIu32, i / 2);
            (void)load_send(bed, i + 1, 1, name, "");
            if (i == 0) {
                answer_engine(bed);
            }
            answer_keys(bed);
        }

        ck_assert_int_eq(story_ask(bed, "r0", 0).code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(story_ask(bed, "r1", 0).body.op_trace_reply.trace, 0x1004);
        ck_assert_uint_eq(story_ask(bed, "r1", 1).body.op_trace_reply.trace, 0x1003);
        ck_assert_int_eq(story_ask(bed, "r1", 2).code, SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

static Suite *story_suite(void)
{
    Suite *suite = suite_create("coordinator stories");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_load_is_told_by_runs_of_blocks);
    tcase_add_test(all, an_op_under_way_is_told_with_what_it_waits_for);
    tcase_add_test(all, the_last_ones_are_kept);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(story_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
