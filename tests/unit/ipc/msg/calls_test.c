/* tests/unit/ipc/msg/calls_test.c - sending, answering and outstanding calls, over an environment
 * that records sent frames. */
#include "ipc/msg/msg_internal.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SENT_MAX 64u

struct sent {
    char to[32];
    unsigned char frame[2048];
    size_t length_bytes;
    bool reply;
};
/* A fake environment whose time the test sets. */
struct paper {
    struct sl_env env;
    struct sent sent[SENT_MAX]; /* the first ones */
    uint64_t sent_count;
    sl_err send_result;
    uint64_t wake_at_ns;
    struct sl_codec *codec;
};

static sl_err paper_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                         bool reply)
{
    struct paper *paper = (struct paper *)env;
    uint64_t at = paper->sent_count++;
    if (at < SENT_MAX && length_bytes <= sizeof(paper->sent[at].frame)) {
        (void)snprintf(paper->sent[at].to, sizeof(paper->sent[at].to), "%s", to);
        memcpy(paper->sent[at].frame, frame, length_bytes);
        paper->sent[at].length_bytes = length_bytes;
        paper->sent[at].reply = reply;
    }
    return paper->send_result;
}

static void paper_wake_at(struct sl_env *env, uint64_t at_ns)
{
    struct paper *paper = (struct paper *)env;
    paper->wake_at_ns = SL_MIN(paper->wake_at_ns, at_ns);
}

static const struct sl_env_ops paper_ops = {.send = paper_send, .wake_at = paper_wake_at};

static struct paper *paper_made(void)
{
    struct paper *paper = calloc(1, sizeof(*paper));
    ck_assert_ptr_nonnull(paper);
    paper->env = (struct sl_env){
        .ops = &paper_ops, .name = "coordinator", .now_ns = SL_NS_PER_S, .next_seq = 100};
    paper->wake_at_ns = SL_NEVER_NS;
    ck_assert_int_eq(sl_codec_create(SL_MIB, &paper->codec, NULL), SL_OK);
    return paper;
}

static void paper_freed(struct paper *paper)
{
    sl_codec_destroy(&paper->codec);
    free(paper);
}

/* The index-th frame sent, decoded; borrowed until the next call. */
static struct sl_msg message_sent(struct paper *paper, uint64_t index)
{
    struct sl_msg msg;
    struct sl_error why = {0};
    ck_assert_uint_lt(index, SL_MIN(paper->sent_count, SENT_MAX));
    sl_err err = sl_codec_decode(paper->codec, paper->sent[index].frame,
                                 paper->sent[index].length_bytes, &msg, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return msg;
}

static struct sl_calls *calls_made(struct paper *paper, uint32_t count_max)
{
    struct sl_calls *calls = NULL;
    ck_assert_int_eq(sl_calls_create(&paper->env, count_max, &calls, NULL), SL_OK);
    return calls;
}

static const struct sl_msg flush = {.type = SL_MSG_FLUSH, .op_id = 77, .trace_id = 5};

static struct sl_msg answer_to(uint64_t seq, const char *from)
{
    return (struct sl_msg){.type = SL_MSG_FLUSH_REPLY, .sender = sl_text_of(from), .reply_to = seq};
}

/* ------------------------------------------------------ calls
 * ------------------------------------------------------ */

START_TEST(an_answer_at_its_deadline_leaves_a_line)
    {
        struct paper *paper = paper_made();
        char path[] = "/tmp/sluice-calls-XXXXXX";
        int fd = mkstemp(path);
        char text[1024] = "";
        const struct sl_log_options options = {
            .path = path, .actor = "registrar", .level = SL_LOG_WARN, .lines_per_s = 10};
        struct sl_msg asked = {.type = SL_MSG_BRING,
                               .sender = sl_text_of("client.7.0"),
                               .seq = 41,
                               .received_ns = SL_NS_PER_S,
                               .budget_ns = SL_NS_PER_S};
        ck_assert_int_eq(sl_log_open(&options, &paper->env.log, NULL), SL_OK);

        sl_reply_code(&paper->env, &asked, SL_ERR_UNSUPPORTED, NULL); /* in time */
        ck_assert_int_eq(read(fd, text, sizeof(text) - 1), 0);
        paper->env.now_ns = 2 * SL_NS_PER_S;
        sl_reply_code(&paper->env, &asked, SL_ERR_TIMEOUT, NULL);

        ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
        ck_assert_ptr_nonnull(strstr(text, "BRING 41 of client.7.0 is answered at its deadline"));
        sl_log_close(&paper->env.log);
        (void)close(fd);
        (void)unlink(path);
        paper_freed(paper);
    }
END_TEST

START_TEST(answer_ends_its_call_once)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t seq = 0;
        ck_assert_int_eq(sl_calls_send(calls, "registrar", &flush, 3 * SL_NS_PER_S, 42, &seq),
                         SL_OK);
        struct sl_msg reply = answer_to(seq, "registrar");

        ck_assert(sl_calls_match(calls, &reply, &call));

        ck_assert_uint_eq(call.cookie, 42);
        ck_assert_uint_eq(call.op_id, 77);
        ck_assert_uint_eq(call.type, SL_MSG_FLUSH);
        ck_assert_str_eq(call.to, "registrar");
        ck_assert_uint_eq(sl_calls_count(calls), 0);
        ck_assert(!sl_calls_match(calls, &reply, &call)); /* a duplicate */
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(call_outlives_a_peer_that_drains)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t seq = 0;
        ck_assert_int_eq(sl_calls_send(calls, "registrar", &flush, 3 * SL_NS_PER_S, 42, &seq),
                         SL_OK);
        struct sl_msg reply = answer_to(seq, "registrar");
        reply.code = SL_ERR_DRAINING;

        ck_assert(!sl_calls_match(calls, &reply, &call));

        ck_assert_uint_lt(paper->wake_at_ns, paper->env.now_ns + SL_NS_PER_S);
        paper->env.now_ns = paper->wake_at_ns;
        ck_assert(!sl_calls_expired(calls, paper->env.now_ns, &call));
        ck_assert_uint_eq(paper->sent_count, 2); /* asked again */
        reply.code = SL_OK;
        ck_assert(sl_calls_match(calls, &reply, &call));
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

static const struct {
    uint32_t type;
    uint64_t seq_off;
    const char *from;
} unauth[] = {
    {SL_MSG_FLUSH_REPLY, 1, "registrar"}, {SL_MSG_COMMIT_REPLY, 0, "registrar"},
    {SL_MSG_FLUSH_REPLY, 0, "registra"},  {SL_MSG_FLUSH_REPLY, 0, "registrar2"},
    {SL_MSG_FLUSH, 0, "registrar"},
};

START_TEST(foreign_answer_ends_nothing)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t seq = 0;
        ck_assert_int_eq(sl_calls_send(calls, "registrar", &flush, 3 * SL_NS_PER_S, 42, &seq),
                         SL_OK);
        struct sl_msg reply = answer_to(seq + unauth[_i].seq_off, unauth[_i].from);
        reply.type = unauth[_i].type;

        ck_assert(!sl_calls_match(calls, &reply, &call));

        ck_assert_uint_eq(sl_calls_count(calls), 1);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(unanswered_call_is_sent_again_with_what_is_left_of_its_budget)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t seq = 0;
        uint64_t start_ns = paper->env.now_ns;
        ck_assert_int_eq(sl_calls_send(calls, "tierer.0", &flush, start_ns + SL_NS_PER_S, 1, &seq),
                         SL_OK);
        ck_assert_uint_eq(paper->wake_at_ns, start_ns + 100 * SL_NS_PER_MS);

        ck_assert(!sl_calls_expired(calls, start_ns + 100 * SL_NS_PER_MS - 1, &call));
        ck_assert_uint_eq(paper->sent_count, 1);
        ck_assert(!sl_calls_expired(calls, start_ns + 100 * SL_NS_PER_MS, &call));

        ck_assert_uint_eq(paper->sent_count, 2);
        ck_assert_str_eq(paper->sent[1].to, "tierer.0");
        ck_assert_uint_eq(message_sent(paper, 0).budget_ns, SL_NS_PER_S);
        ck_assert_uint_eq(message_sent(paper, 1).budget_ns, 900 * SL_NS_PER_MS);
        ck_assert_uint_eq(message_sent(paper, 1).seq, seq);
        ck_assert_uint_eq(message_sent(paper, 1).trace_id, 5);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(call_ends_once_at_its_deadline)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t seq = 0;
        uint64_t deadline_ns = paper->env.now_ns + 50 * SL_NS_PER_MS;
        ck_assert_int_eq(sl_calls_send(calls, "keyer", &flush, deadline_ns, 9, &seq), SL_OK);
        ck_assert_uint_eq(paper->wake_at_ns, deadline_ns);

        ck_assert(!sl_calls_expired(calls, deadline_ns - 1, &call));
        ck_assert(sl_calls_expired(calls, deadline_ns, &call));

        ck_assert_uint_eq(call.cookie, 9);
        ck_assert(!sl_calls_expired(calls, deadline_ns, &call));
        struct sl_msg late = answer_to(seq, "keyer");
        ck_assert(!sl_calls_match(calls, &late, &call));
        ck_assert_uint_eq(paper->sent_count, 1); /* not resent when no time is left */
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(unreachable_peer_is_tried_again_soon)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 4);
        struct sl_call call;
        uint64_t start_ns = paper->env.now_ns;
        paper->send_result = SL_ERR_UNREACHABLE;

        sl_err err = sl_calls_send(calls, "swapper.0", &flush, start_ns + SL_NS_PER_S, 1, NULL);

        ck_assert_int_eq(err, SL_OK);
        ck_assert_uint_eq(paper->wake_at_ns, start_ns + SL_NS_PER_MS);
        for (uint64_t ms = 1; ms < 1000; ms++) {
            ck_assert(!sl_calls_expired(calls, start_ns + ms * SL_NS_PER_MS, &call));
        }
        /* 1, 3, 7, 15, 31, 63, 127, then every 100 ms: long pauses while it is unreachable */
        ck_assert_uint_ge(paper->sent_count, 12);
        ck_assert_uint_le(paper->sent_count, 20);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(full_table_refuses)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 2);
        uint64_t seq = 0;
        ck_assert_int_eq(sl_calls_send(calls, "keyer", &flush, SL_NEVER_NS, 1, &seq), SL_OK);
        ck_assert_int_eq(sl_calls_send(calls, "keyer", &flush, SL_NEVER_NS, 2, NULL), SL_OK);

        ck_assert_int_eq(sl_calls_send(calls, "keyer", &flush, SL_NEVER_NS, 3, NULL), SL_ERR_LIMIT);
        sl_calls_drop(calls, seq);
        ck_assert_int_eq(sl_calls_send(calls, "keyer", &flush, SL_NEVER_NS, 3, NULL), SL_OK);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(bytes_of_kept_frames_are_bounded)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 64);
        uint64_t length_bytes = 15 * SL_MIB;
        unsigned char *tokens = calloc(1, length_bytes);
        ck_assert_ptr_nonnull(tokens);
        struct sl_msg keys = {.type = SL_MSG_KEYS};
        keys.body.keys = (struct sl_body_keys){.format = sl_text_of("sluice"),
                                               .block_tokens = 1,
                                               .tokens = {.at = tokens, .length = length_bytes}};
        uint32_t taken = 0;
        sl_err err = SL_OK;
        while (err == SL_OK && taken < 64) {
            err = sl_calls_send(calls, "keyer", &keys, SL_NEVER_NS, taken, NULL);
            taken += err == SL_OK ? 1 : 0;
        }

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_uint_eq(taken, 8); /* 4 x 32 MiB */
        free(tokens);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

START_TEST(message_that_breaks_the_table_is_refused)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, 2);
        struct sl_msg broken = {.type = SL_MSG_CANCEL}; /* target_op is 0 */

        ck_assert_int_eq(sl_calls_send(calls, "coordinator", &broken, SL_NEVER_NS, 1, NULL),
                         SL_ERR_INVALID);
        ck_assert_int_eq(sl_send(&paper->env, "coordinator", &broken, NULL), SL_ERR_INVALID);
        ck_assert_uint_eq(sl_calls_count(calls), 0);
        ck_assert_uint_eq(paper->sent_count, 0);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

#define MANY 10000u

START_TEST(many_calls_end_in_the_order_of_their_deadlines)
    {
        struct paper *paper = paper_made();
        struct sl_calls *calls = calls_made(paper, MANY);
        static uint64_t seqs[MANY];
        uint64_t start_ns = paper->env.now_ns;
        uint64_t clock_ns = sl_clock_monotonic_ns();
        for (uint32_t i = 0; i < MANY; i++) {
            uint64_t deadline_ns =
                start_ns + 1 + (i * UINT64_C(7919)) % MANY; /* a shuffle: 7919 is prime */
            ck_assert_int_eq(
                sl_calls_send(calls, "keyer", &flush, deadline_ns, deadline_ns, &seqs[i]), SL_OK);
        }
        struct sl_call call;
        for (uint32_t i = 0; i < MANY; i += 2) {
            struct sl_msg reply = answer_to(seqs[i], "keyer");
            ck_assert(sl_calls_match(calls, &reply, &call));
        }
        uint64_t before = 0;
        uint32_t ended = 0;
        while (sl_calls_expired(calls, start_ns + MANY, &call)) {
            ck_assert_uint_gt(call.cookie, before);
            before = call.cookie;
            ended++;
        }
        clock_ns = sl_clock_monotonic_ns() - clock_ns;

        ck_assert_uint_eq(ended, MANY / 2);
        ck_assert_uint_eq(sl_calls_count(calls), 0);
        (void)printf("calls: %" PRIu64 " ns a call with %u outstanding\n", clock_ns / MANY, MANY);
        sl_calls_destroy(&calls);
        paper_freed(paper);
    }
END_TEST

/* -------------------------------------------------- send and reply
 * -------------------------------------------------- */

static struct sl_msg request(void)
{
    return (struct sl_msg){.type = SL_MSG_COMMIT,
                           .op_id = 3,
                           .trace_id = 4,
                           .sender = sl_text_of("client.1.0"),
                           .seq = 11,
                           .budget_ns = SL_NS_PER_S,
                           .received_ns = 5 * SL_NS_PER_S};
}

START_TEST(request_carries_name_number_and_a_budget)
    {
        struct paper *paper = paper_made();
        uint64_t seq = 0;

        ck_assert_int_eq(sl_send(&paper->env, "registrar", &flush, &seq), SL_OK);

        struct sl_msg msg = message_sent(paper, 0);
        ck_assert_str_eq(paper->sent[0].to, "registrar");
        ck_assert(!paper->sent[0].reply);
        ck_assert_str_eq(msg.sender.at, "coordinator");
        ck_assert_uint_eq(msg.seq, seq);
        ck_assert_uint_eq(msg.budget_ns,
                          2 * SL_NS_PER_S); /* none was named: the setting op_timeout */
        paper_freed(paper);
    }
END_TEST

START_TEST(sequence_skips_zero)
    {
        struct paper *paper = paper_made();
        uint64_t seq = 0;
        paper->env.next_seq = UINT64_MAX;

        ck_assert_int_eq(sl_send(&paper->env, "keyer", &flush, &seq), SL_OK);
        ck_assert_uint_eq(seq, UINT64_MAX);
        ck_assert_int_eq(sl_send(&paper->env, "keyer", &flush, &seq), SL_OK);
        ck_assert_uint_eq(seq, 1);
        paper_freed(paper);
    }
END_TEST

START_TEST(refusal_of_the_transport_reaches_the_sender)
    {
        struct paper *paper = paper_made();
        paper->send_result = SL_ERR_LIMIT;

        ck_assert_int_eq(sl_send(&paper->env, "keyer", &flush, NULL), SL_ERR_LIMIT);
        paper_freed(paper);
    }
END_TEST

START_TEST(reply_goes_back_the_way_the_request_came)
    {
        struct paper *paper = paper_made();
        static const uint64_t codes[] = {0, 10};
        struct sl_msg asked = request();
        struct sl_msg reply = {.code = SL_ERR_INCOMPLETE};
        reply.body.commit_reply.codes = (struct sl_u64s){.at = codes, .count = 2};

        sl_reply(&paper->env, &asked, &reply);

        struct sl_msg got = message_sent(paper, 0);
        ck_assert(paper->sent[0].reply);
        ck_assert_str_eq(paper->sent[0].to, "client.1.0");
        ck_assert_uint_eq(got.type, SL_MSG_COMMIT_REPLY);
        ck_assert_uint_eq(got.op_id, 3);
        ck_assert_uint_eq(got.trace_id, 4);
        ck_assert_uint_eq(got.reply_to, 11);
        ck_assert_int_eq(got.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(got.body.commit_reply.codes.count, 2);
        paper_freed(paper);
    }
END_TEST

START_TEST(kept_return_answers_after_its_request_is_gone)
    {
        struct paper *paper = paper_made();
        struct sl_reply_route way;
        struct sl_msg asked = request();
        sl_reply_route_keep(&asked, &way);
        memset(&asked, 0xa5, sizeof(asked));

        sl_reply_route_send(&paper->env, &way, &(struct sl_msg){.code = SL_ERR_TIMEOUT});

        ck_assert_uint_eq(way.deadline_ns, 6 * SL_NS_PER_S);
        ck_assert_str_eq(paper->sent[0].to, "client.1.0");
        ck_assert_int_eq(message_sent(paper, 0).code, SL_ERR_TIMEOUT);
        paper_freed(paper);
    }
END_TEST

START_TEST(text_of_any_bytes_travels_made_clean)
    {
        struct paper *paper = paper_made();
        struct sl_msg asked = request();
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_IO, "read '/data/\xff\xfe': gone");

        sl_reply_code(&paper->env, &asked, SL_ERR_IO, &why);

        ck_assert_str_eq(message_sent(paper, 0).text.at, "read '/data/\?\?': gone");
        paper_freed(paper);
    }
END_TEST

START_TEST(reply_that_breaks_the_table_becomes_an_error_reply)
    {
        struct paper *paper = paper_made();
        struct sl_msg asked = request();
        asked.type = SL_MSG_PING; /* PONG needs a name */

        sl_reply_code(&paper->env, &asked, SL_OK, NULL);

        ck_assert_uint_eq(paper->sent_count, 1);
        ck_assert_int_eq(message_sent(paper, 0).code, SL_ERR_INTERNAL);
        paper_freed(paper);
    }
END_TEST

static const uint32_t unanswerable[] = {SL_MSG_PONG, SL_MSG_HELLO_REPLY, SL_MSG_LOCAL_IO,
                                        SL_MSG_LOCAL_JOB};

START_TEST(answers_and_completions_are_not_answered)
    {
        struct paper *paper = paper_made();
        struct sl_msg asked = request();
        asked.type = unanswerable[_i];

        sl_reply_code(&paper->env, &asked, SL_ERR_UNSUPPORTED, NULL);

        ck_assert_uint_eq(paper->sent_count, 0);
        paper_freed(paper);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("calls");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, an_answer_at_its_deadline_leaves_a_line);
    tcase_add_test(calls, answer_ends_its_call_once);
    tcase_add_test(calls, call_outlives_a_peer_that_drains);
    tcase_add_loop_test(calls, foreign_answer_ends_nothing, 0, SL_COUNT(unauth));
    tcase_add_test(calls, unanswered_call_is_sent_again_with_what_is_left_of_its_budget);
    tcase_add_test(calls, call_ends_once_at_its_deadline);
    tcase_add_test(calls, unreachable_peer_is_tried_again_soon);
    tcase_add_test(calls, full_table_refuses);
    tcase_add_test(calls, bytes_of_kept_frames_are_bounded);
    tcase_add_test(calls, message_that_breaks_the_table_is_refused);
    tcase_add_test(calls, many_calls_end_in_the_order_of_their_deadlines);
    suite_add_tcase(suite, calls);
    TCase *sends = tcase_create("send and reply");
    tcase_add_test(sends, request_carries_name_number_and_a_budget);
    tcase_add_test(sends, sequence_skips_zero);
    tcase_add_test(sends, refusal_of_the_transport_reaches_the_sender);
    tcase_add_test(sends, reply_goes_back_the_way_the_request_came);
    tcase_add_test(sends, kept_return_answers_after_its_request_is_gone);
    tcase_add_test(sends, text_of_any_bytes_travels_made_clean);
    tcase_add_test(sends, reply_that_breaks_the_table_becomes_an_error_reply);
    tcase_add_loop_test(sends, answers_and_completions_are_not_answered, 0, SL_COUNT(unanswerable));
    suite_add_tcase(suite, sends);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
