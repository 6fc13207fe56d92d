/* tests/unit/actors/keyer/keyer_test.c - the keyer answers KEYS. */
#include "actors/keyer/keyer.h"
#include "tests/unit/ipc/msg/stepped_env.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct stepped bed;

static void setup(void)
{
    stepped_start(&bed, &sl_keyer_actor, "/nowhere", NULL, true);
}

static void teardown(void)
{
    stepped_end(&bed);
}

static struct sl_msg keys_request(const char *format, uint64_t block_tokens, const void *tokens,
                                  uint64_t bytes)
{
    struct sl_msg msg = {.type = SL_MSG_KEYS, .op_id = 5, .trace_id = 6};
    msg.body.keys.format = sl_text_of(format);
    msg.body.keys.block_tokens = block_tokens;
    msg.body.keys.tokens = (struct sl_bytes){.at = tokens, .length = bytes};
    return msg;
}

static const unsigned char one_to_five[] = {0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0,
                                            0, 0, 4, 0, 0, 0, 5, 0, 0, 0};

START_TEST(keys_of_unaligned_tokens_with_a_partial_block)
    {
        struct sl_msg reply, msg = keys_request("fastdeploy", 4, one_to_five + 1, 20);
        char to[32];
        msg.body.keys.partial = true;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, to));
        ck_assert_str_eq(to, "coordinator");
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.reply_to, msg.seq);
        ck_assert_uint_eq(reply.op_id, 5);
        ck_assert_uint_eq(reply.body.keys_reply.keys.count, 2);
        ck_assert_str_eq(reply.body.keys_reply.keys.at[0].at,
                         "a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2");
        ck_assert_msg(strstr(reply.body.keys_reply.keys.at[1].at, ":partial:1") != NULL,
                      "no partial key");
    }
END_TEST

START_TEST(a_second_request_is_independent_of_the_first)
    {
        struct sl_msg reply, large = keys_request("sluice", 1, one_to_five + 1, 20);
        struct sl_msg small = keys_request("fastdeploy", 4, one_to_five + 1, 16);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &large), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &small), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.body.keys_reply.keys.count, 5);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.body.keys_reply.keys.count, 1);
        ck_assert_str_eq(reply.body.keys_reply.keys.at[0].at,
                         "a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2");
    }
END_TEST

START_TEST(bad_requests_are_answered_with_the_reason)
    {
        struct sl_msg reply;
        struct sl_msg unknown = keys_request("sha1", 4, one_to_five + 1, 20);
        struct sl_msg broken = keys_request("sluice", 4, one_to_five + 1, 19);
        struct sl_msg extras = keys_request("sluice", 4, one_to_five + 1, 20);
        extras.body.keys.extras = sl_text_of("[[true]]");

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &unknown), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &broken), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &extras), SL_OK);

        static const char *const wanted[] = {"format: 'sha1'", "19 bytes", "block 0, element 0"};
        for (size_t i = 0; i < SL_COUNT(wanted); i++) {
            ck_assert(stepped_take(&bed, &reply, NULL));
            ck_assert_int_eq(reply.type, SL_MSG_KEYS_REPLY);
            ck_assert_int_eq(reply.code, SL_ERR_INVALID);
            ck_assert_msg(strstr(reply.text.at, wanted[i]) != NULL, "%s", reply.text.at);
        }
    }
END_TEST

START_TEST(more_blocks_than_a_message_holds_are_refused)
    {
        uint64_t bytes = (SL_BATCH_MAX + 1) * sizeof(uint32_t);
        void *tokens = calloc(1, bytes);
        struct sl_msg reply, msg = keys_request("sluice", 1, tokens, bytes);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, "65537 blocks") != NULL, "%s", reply.text.at);
        free(tokens);
    }
END_TEST

START_TEST(foreign_messages_are_answered_or_ignored)
    {
        struct sl_msg reply, request = {.type = SL_MSG_NODES}, late = {.type = SL_MSG_HELLO_REPLY};

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &request), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "registrar", &late), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        ck_assert(!stepped_take(&bed, &reply, NULL));
    }
END_TEST

START_TEST(drain_ends_at_once)
    {
        sl_keyer_actor.drain(bed.state);

        ck_assert(bed.finished);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("keyer");
    TCase *cases = tcase_create("keyer");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, keys_of_unaligned_tokens_with_a_partial_block);
    tcase_add_test(cases, a_second_request_is_independent_of_the_first);
    tcase_add_test(cases, bad_requests_are_answered_with_the_reason);
    tcase_add_test(cases, more_blocks_than_a_message_holds_are_refused);
    tcase_add_test(cases, foreign_messages_are_answered_or_ignored);
    tcase_add_test(cases, drain_ends_at_once);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
