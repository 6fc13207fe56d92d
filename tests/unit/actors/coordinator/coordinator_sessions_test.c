/* tests/unit/actors/coordinator/coordinator_sessions_test.c - prefetching before a session's next
 * turn. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

#include "runtime/base/sl_clock.h"

#define NOTHING_MISSES UINT64_MAX
#define NO_BLOCK       UINT32_MAX
#define PAUSE_NS       (10 * SL_NS_PER_S)

static const char *const with_disk[] = {"disk", "64MiB", NULL};
static const char *const without_sessions[] = {"disk", "64MiB", "prefetch_sessions", "0", NULL};

static void store_end(struct bed *bed, uint64_t seq)
{
    answer_reserve(bed, NO_BLOCK, SL_OK);
    (void)answer_copy(bed, 0, NOTHING_MISSES);
    (void)answer_copy(bed, 1, NOTHING_MISSES);
    answer_commit(bed);
    ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
}

/* A session of four blocks that continues after PAUSE_NS. Then the first is in memory, the next two
 * are only on disk, and the last is nowhere. */
static struct bed *bed_paused(const char *const *settings)
{
    static uint32_t tokens[16];
    static const uint64_t device[] = {10, 11, 12, 13};
    struct bed *bed = bed_make(settings);
    struct sl_msg msg = {.type = SL_MSG_STORE, .op_id = 1, .trace_id = 1};
    msg.body.store = (struct sl_body_store){.engine_id = ENGINE_ID,
                                            .tokens = {tokens, sizeof(tokens)},
                                            .device_blocks = {device, 4},
                                            .session_id = 7,
                                            .pause_ns = PAUSE_NS};
    fake_give(&bed->fake, "client.1.0", &msg);
    answer_engine(bed);
    answer_keys(bed);
    store_end(bed, msg.seq);
    index_put(bed, 0, true, PART_BYTES);
    index_put(bed, 1, false, PART_BYTES);
    index_put(bed, 2, false, PART_BYTES);
    return bed;
}

/* Passes time until a BRING is sent, for at most that long. False: none was sent. */
static bool prefetch_await(struct bed *bed, uint64_t within_ns, struct sl_msg *out)
{
    for (uint64_t passed_ns = 0; passed_ns < within_ns; passed_ns += 10 * SL_NS_PER_MS) {
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        if (fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, out)) {
            return true;
        }
    }
    return false;
}

static void prefetch_answer(struct bed *bed, const struct sl_msg *prefetch, sl_err code,
                            uint64_t edge)
{
    static uint64_t codes[4096];
    for (uint32_t i = 0; i < SL_COUNT(codes); i++) {
        codes[i] = code;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.bring_reply = (struct sl_body_bring_reply){
        .codes = {codes, prefetch->body.bring.keys.count}, .edge = edge, .full = 500};
    answer(bed, "registrar", prefetch, reply);
}

/* While the worth of memory is unknown, a session is due at once; then the reported edge counts. */
static void edge_tell(struct bed *bed, uint64_t edge)
{
    struct sl_msg first;
    ck_assert(prefetch_await(bed, SL_NS_PER_S, &first));
    prefetch_answer(bed, &first, SL_ERR_NO_SPACE, edge);
}

START_TEST(blocks_only_on_disk_are_prefetched_before_the_session_returns)
    {
        static const char *const keys[] = {MODEL "/b0/0/attn", /* which is to stay in memory */
                                           MODEL "/b1/0/attn", MODEL "/b1/1/attn",
                                           MODEL "/b2/0/attn", MODEL "/b2/1/attn"};
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        uint64_t from_ns = bed->fake.env.now_ns;
        edge_tell(bed, UINT64_C(400000000000)); /* 0.4 hits a second */

        ck_assert(prefetch_await(bed, 2 * PAUSE_NS, &prefetch));

        uint64_t at_ns = bed->fake.env.now_ns - from_ns;
        ck_assert_msg(at_ns > PAUSE_NS / 2 && at_ns < PAUSE_NS, "after %lu ns", at_ns);
        ck_assert(at_ns + prefetch.body.bring.for_ns > PAUSE_NS);
        ck_assert_uint_gt(prefetch.body.bring.worth, UINT64_C(400000000000));
        ck_assert_uint_eq(prefetch.body.bring.keys.count, SL_COUNT(keys));
        for (uint32_t i = 0; i < SL_COUNT(keys); i++) {
            ck_assert_str_eq(prefetch.body.bring.keys.at[i].at, keys[i]);
        }
        bed_end(bed);
    }
END_TEST

START_TEST(a_session_that_goes_on_at_another_engine_keeps_what_it_has)
    {
        static uint32_t tokens[16];
        static const uint64_t device[] = {13};
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch, msg = {.type = SL_MSG_STORE, .op_id = 2, .trace_id = 2};
        msg.body.store = (struct sl_body_store){.engine_id = ENGINE_ID + 1,
                                                .tokens = {tokens, sizeof(tokens)},
                                                .first_block = 3,
                                                .device_blocks = {device, 1},
                                                .session_id = 7,
                                                .pause_ns = PAUSE_NS};
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_engine(bed);
        answer_keys(bed);
        store_end(bed, msg.seq);

        ck_assert(prefetch_await(bed, 2 * PAUSE_NS, &prefetch));

        ck_assert_str_eq(prefetch.body.bring.keys.at[0].at, MODEL "/b0/0/attn");
        ck_assert_str_eq(prefetch.body.bring.keys.at[1].at, MODEL "/b1/0/attn");
        bed_end(bed);
    }
END_TEST

/* The values arrived and were evicted again: writers needed the space. */
START_TEST(an_evicted_prefetched_block_is_requested_again)
    {
        bool stays = _i == 0;
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        edge_tell(bed, UINT64_C(100000000000));
        ck_assert(prefetch_await(bed, 2 * PAUSE_NS, &prefetch));
        uint64_t for_ns = prefetch.body.bring.for_ns;
        if (stays) {
            for (uint32_t i = 1; i < 3; i++) {
                index_remove(bed, i);
                index_put(bed, i, true, PART_BYTES);
            }
        }
        prefetch_answer(bed, &prefetch, SL_OK, UINT64_C(100000000000));

        ck_assert(prefetch_await(bed, for_ns / 2, &prefetch) == !stays);
        bed_end(bed);
    }
END_TEST

START_TEST(prefetching_continues_without_an_answer)
    {
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        ck_assert(prefetch_await(bed, SL_NS_PER_S, &prefetch));

        fake_advance(&bed->fake, 6 * SL_NS_PER_S); /* the registrar did not answer */

        while (fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH,
                         &prefetch)) { /* sent again */
        }
        ck_assert(prefetch_await(bed, PAUSE_NS, &prefetch));
        bed_end(bed);
    }
END_TEST

START_TEST(a_setting_of_0_asks_for_nothing)
    {
        struct bed *bed = bed_paused(without_sessions);
        struct sl_msg prefetch;
        ck_assert(!prefetch_await(bed, 2 * PAUSE_NS, &prefetch));
        bed_end(bed);
    }
END_TEST

/* ---- hints in the middle of a pause ---- */

static struct sl_msg pause_tell(struct bed *bed, uint64_t session_id, uint64_t pause_ns,
                                bool unknown)
{
    struct sl_msg msg = {.type = SL_MSG_SESSION_PAUSE};
    msg.body.session_pause = (struct sl_body_session_pause){
        .session_id = session_id, .pause_ns = pause_ns, .unknown = unknown};
    fake_give(&bed->fake, "client.1.0", &msg);
    return reply_to(bed, msg.seq);
}

static const struct {
    uint64_t pause_ns; /* sent 3 s after the session began a pause of 10 s */
    bool unknown;
    uint64_t from_ns, until_ns; /* of the BRING after the hint; 0: none */
} words[] = {
    {3 * SL_NS_PER_S, false, SL_NS_PER_S / 2, 3 * SL_NS_PER_S}, /* earlier */
    {20 * SL_NS_PER_S, false, 12 * SL_NS_PER_S, 20 * SL_NS_PER_S},
    {0, false, 0, 100 * SL_NS_PER_MS}, /* over: at once */
    {0, true, 0, 0},
};
START_TEST(a_word_in_the_middle_of_a_pause_moves_its_end)
    {
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        edge_tell(bed, UINT64_C(200000000000)); /* 0.2 hits a second */
        ck_assert(!prefetch_await(bed, 3 * SL_NS_PER_S, &prefetch));

        struct sl_msg reply = pause_tell(bed, 7, words[_i].pause_ns, words[_i].unknown);

        uint64_t told_at_ns = bed->fake.env.now_ns;
        ck_assert_int_eq(reply.type, SL_MSG_SESSION_PAUSE_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
        bool came = prefetch_await(bed, 40 * SL_NS_PER_S, &prefetch);
        ck_assert(came == (words[_i].until_ns != 0));
        uint64_t after_ns = bed->fake.env.now_ns - told_at_ns;
        ck_assert_msg(!came || (after_ns >= words[_i].from_ns && after_ns <= words[_i].until_ns),
                      "after %lu ns", after_ns);
        ck_assert_uint_eq(came ? prefetch.body.bring.keys.count : 5, 5);
        bed_end(bed);
    }
END_TEST

START_TEST(a_hint_for_an_unknown_session_is_answered_and_changes_nothing)
    {
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        edge_tell(bed, UINT64_C(400000000000));

        struct sl_msg reply = pause_tell(bed, 8, 0, false);

        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        ck_assert(!prefetch_await(bed, PAUSE_NS / 2, &prefetch));
        bed_end(bed);
    }
END_TEST

START_TEST(a_session_that_is_told_of_again_and_again_is_asked_for_once)
    {
        struct bed *bed = bed_paused(with_disk);
        struct sl_msg prefetch;
        uint32_t count = 0;
        uint64_t last = 0;
        edge_tell(bed, UINT64_C(400000000000));
        for (uint32_t i = 0; i < 1000; i++) {
            ck_assert_int_eq(pause_tell(bed, 7, i % 2 == 0 ? 0 : SL_NS_PER_S, false).code, SL_OK);
            fake_advance(&bed->fake, SL_NS_PER_MS);
            if (fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, &prefetch)) {
                count += prefetch.seq != last ? 1 : 0; /* else it is sent again */
                last = prefetch.seq;
            }
        }
        ck_assert_uint_eq(count, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(a_node_without_sessions_says_so)
    {
        struct bed *bed = bed_paused(_i == 0 ? without_sessions : NULL);
        ck_assert_int_eq(pause_tell(bed, 7, SL_NS_PER_S, false).code, SL_ERR_UNSUPPORTED);
        bed_end(bed);
    }
END_TEST

/* ---- values that have keys of their own ---- */

static void value_put(struct bed *bed, const char *key, bool in_memory)
{
    struct sl_entry entry = {
        .kind = SL_RECORD_COMMITTED, .key = key, .key_length = (uint16_t)strlen(key)};
    sl_ref ref = 0;
    entry.extent.length_bytes = PART_BYTES;
    if (in_memory) {
        entry.extent.generation = sl_arena_next_generation(bed->arena);
    } else {
        entry.disk = (struct sl_disk_place){.offset_bytes = 4096, .valid = 1};
    }
    ck_assert_int_eq(sl_index_insert(bed->index, &entry, &ref, NULL), SL_OK);
}

static uint64_t turns_counted(struct bed *bed)
{
    struct sl_metrics *metrics = bed->fake.env.metrics;
    return sl_metric_get(metrics, sl_metric_define(metrics, "session_turns"));
}

/* Sends a turn of session 7, which continues after PAUSE_NS: its keys, of one letter each. */
static void turn_tell(struct bed *bed, const char *keys, bool asked, uint64_t lane, bool ends)
{
    static uint64_t op_id;
    struct sl_text texts[16];
    struct sl_msg msg = {.type = SL_MSG_SESSION_TURN, .op_id = ++op_id};
    for (uint32_t i = 0; keys[i] != '\0'; i++) {
        texts[i] = (struct sl_text){.at = &keys[i], .length = 1};
    }
    msg.body.session_turn = (struct sl_body_session_turn){.session_id = 7,
                                                          .pause_ns = PAUSE_NS,
                                                          .asked = asked,
                                                          .ends = ends,
                                                          .lane = lane,
                                                          .keys = {texts, strlen(keys)}};
    fake_give(&bed->fake, "client.1.0", &msg);
    ck_assert_int_eq(reply_to(bed, msg.seq).code, SL_OK);
    uint64_t turns = turns_counted(bed);
    fake_give(&bed->fake, "client.1.0", &msg); /* sent again: it is answered, but is no new turn */
    ck_assert_int_eq(reply_to(bed, msg.seq).code, SL_OK);
    ck_assert_uint_eq(turns_counted(bed), turns);
}

/* a and d are in memory, b and c only on disk; no other value exists. */
static struct bed *bed_values(void)
{
    struct bed *bed = bed_make(with_disk);
    ck_assert_int_eq(pause_tell(bed, 7, SL_NS_PER_S, false).code, SL_ERR_NOT_FOUND);
    value_put(bed, "a", true);
    value_put(bed, "b", false);
    value_put(bed, "c", false);
    value_put(bed, "d", true);
    return bed;
}

/* The keys of a BRING, in order. */
static const char *asked_for(const struct sl_msg *prefetch)
{
    static char text[32];
    const struct sl_texts *keys = &prefetch->body.bring.keys;
    ck_assert_uint_lt(keys->count, sizeof text);
    for (uint64_t i = 0; i < keys->count; i++) {
        text[i] = keys->at[i].at[0];
    }
    text[keys->count] = '\0';
    return text;
}

static const struct {
    const char *put[3]; /* in order */
    const char *got;    /* loaded then; NULL: none */
    const char *want;   /* prefetched before the next turn */
} turns[] = {
    {{"abcd"}, NULL, "abcd"}, /* all of it, so that each stays */
    {{"ab", "cd"}, NULL, "abcd"}, {{"ab", "c", "bd"}, NULL, "abd"}, /* another chain from b on */
    {{"abxc"}, NULL, "ab"}, /* after a gap no value is of use */
    {{"ab"}, "cd", "cd"},         {{"abcd"}, "bd", "abd"},          {{"a", "b"}, "ab", "ab"},
};
START_TEST(values_of_a_session_are_asked_for_before_it_comes_back)
    {
        struct bed *bed = bed_values();
        struct sl_msg prefetch;
        for (uint32_t i = 0; i < SL_COUNT(turns[_i].put) && turns[_i].put[i] != NULL; i++) {
            turn_tell(bed, turns[_i].put[i], false, 0, false);
        }
        if (turns[_i].got != NULL) {
            turn_tell(bed, turns[_i].got, true, 0, false);
        }
        edge_tell(bed, UINT64_C(400000000000)); /* 0.4 hits a second */
        uint64_t from_ns = bed->fake.env.now_ns;

        ck_assert(prefetch_await(bed, 2 * PAUSE_NS, &prefetch));

        uint64_t after_ns = bed->fake.env.now_ns - from_ns;
        ck_assert_msg(after_ns > PAUSE_NS / 2 && after_ns < PAUSE_NS, "after %lu ns", after_ns);
        ck_assert_str_eq(asked_for(&prefetch), turns[_i].want);
        ck_assert_uint_gt(prefetch.body.bring.for_ns, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(ranks_that_have_values_of_their_own_are_not_taken_for_one_chain)
    {
        struct bed *bed = bed_values();
        struct sl_msg first, second;
        turn_tell(bed, "ab", false, 0, false);
        turn_tell(bed, "cd", false, 1, false);
        turn_tell(bed, "ab", true, 0, false);
        turn_tell(bed, "cd", true, 1, false);

        ck_assert_int_eq(pause_tell(bed, 7, 0, false).code, SL_OK); /* of both */

        ck_assert(prefetch_await(bed, SL_NS_PER_S, &first));
        const bool first_is_ab = strcmp(asked_for(&first), "ab") == 0;
        do { /* else it is sent again */
            ck_assert(prefetch_await(bed, SL_NS_PER_S, &second));
        } while (second.seq == first.seq);
        ck_assert_str_eq(asked_for(&second), first_is_ab ? "cd" : "ab");
        bed_end(bed);
    }
END_TEST

START_TEST(a_session_of_values_that_ends_is_not_asked_for)
    {
        struct bed *bed = bed_values();
        struct sl_msg prefetch;
        turn_tell(bed, "abcd", false, 0, false);
        turn_tell(bed, "abcd", true, 0, true);
        ck_assert(!prefetch_await(bed, 2 * PAUSE_NS, &prefetch));
        ck_assert_int_eq(pause_tell(bed, 7, 0, false).code, SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

#define LONG 5000u
static char long_names[LONG][8];

/* Makes a chain of LONG values, some in memory; its session is due. Takes the first BRING. */
static struct bed *bed_with_a_long_chain(uint32_t in_memory, struct sl_msg *turn,
                                         struct sl_msg *prefetch)
{
    static struct sl_text keys[LONG];
    struct bed *bed = bed_make(with_disk);
    for (uint32_t i = 0; i < LONG; i++) {
        (void)snprintf(long_names[i], sizeof(long_names[i]), "v%u", i);
        keys[i] = sl_text_of(long_names[i]);
        value_put(bed, long_names[i], i < in_memory);
    }
    *turn = (struct sl_msg){.type = SL_MSG_SESSION_TURN, .op_id = 1};
    turn->body.session_turn =
        (struct sl_body_session_turn){.session_id = 7, .pause_ns = PAUSE_NS, .keys = {keys, LONG}};
    fake_give(&bed->fake, "client.1.0", turn);
    ck_assert(prefetch_await(bed, 2 * PAUSE_NS, prefetch));
    return bed;
}

/* With a chain of 65,536 parts, in memory or on disk, neither loop may be blocked for long. */
START_TEST(a_long_chain_is_asked_for_piece_by_piece)
    {
        struct sl_msg turn, prefetch;
        struct bed *bed = bed_with_a_long_chain(_i == 0 ? LONG : 0, &turn, &prefetch);
        struct sl_metrics *metrics = bed->fake.env.metrics;
        uint32_t asked = 0, pieces = 0;
        uint64_t for_ns = 0;
        do {
            const struct sl_texts *piece = &prefetch.body.bring.keys;
            uint64_t lacks = _i == 0 ? 0 : (LONG - asked) * sl_extent_space(PART_BYTES);
            ck_assert_uint_le(piece->count, 2048);
            ck_assert_uint_le(prefetch.body.bring.chain_bytes, lacks);
            ck_assert_uint_ge(prefetch.body.bring.chain_bytes, lacks - lacks / 64);
            ck_assert(for_ns == 0 || prefetch.body.bring.for_ns == for_ns - SL_NS_PER_MS);
            for_ns = prefetch.body.bring.for_ns;
            fake_advance(&bed->fake, SL_NS_PER_MS);
            for (uint64_t i = 0; i < piece->count; i++) {
                ck_assert_str_eq(piece->at[i].at, long_names[asked++]);
            }
            pieces++;
            prefetch_answer(bed, &prefetch, _i == 0 ? SL_ERR_EXISTS : SL_OK, 0);
        } while (fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, &prefetch));

        ck_assert_uint_eq(asked, LONG);
        ck_assert_uint_eq(pieces, 3);
        ck_assert_uint_eq(
            sl_metric_get(metrics, sl_metric_define(metrics, "session_parts_prefetched")),
            _i == 0 ? 0 : LONG);
        bed_end(bed);
    }
END_TEST

START_TEST(the_rest_of_a_chain_is_not_asked_for_when_it_changed_or_was_refused)
    {
        struct sl_msg turn, prefetch;
        struct bed *bed = bed_with_a_long_chain(0, &turn, &prefetch);
        if (_i == 0) {
            turn.op_id = 2;
            turn.seq = 0;
            fake_give(&bed->fake, "client.1.0", &turn);
        }

        prefetch_answer(bed, &prefetch, _i == 0 ? SL_OK : SL_ERR_NO_SPACE, 0);

        ck_assert(!fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, &prefetch));
        bed_end(bed);
    }
END_TEST

/* The values that arrived before are not requested again at once. */
START_TEST(a_piece_that_is_refused_leaves_what_came_before_it)
    {
        struct sl_msg turn, prefetch;
        struct bed *bed = bed_with_a_long_chain(2048, &turn, &prefetch);
        prefetch_answer(bed, &prefetch, _i == 0 ? SL_OK : SL_ERR_EXISTS, 0);
        ck_assert(fake_take(&bed->fake, "registrar", SL_MSG_BRING | FAKE_PREFETCH, &prefetch));

        prefetch_answer(bed, &prefetch, SL_ERR_NO_SPACE, 0);

        /* Values that were in memory anyway did not arrive: then it tries again. */
        ck_assert_int_eq(prefetch_await(bed, PAUSE_NS / 2, &prefetch), _i == 1);
        bed_end(bed);
    }
END_TEST

/* For two clients whose op ids happen to be equal. */
START_TEST(a_turn_is_sent_again_behind_one_of_another_client)
    {
        struct bed *bed = bed_values();
        struct sl_text key = {.at = "a", .length = 1};
        struct sl_msg msg = {.type = SL_MSG_SESSION_TURN};
        msg.body.session_turn =
            (struct sl_body_session_turn){.session_id = 7, .asked = true, .keys = {&key, 1}};
        for (uint64_t i = 0; i < 4; i++) {
            msg.op_id = (1 + i % 2) << 32 | 5;
            msg.seq = 0;
            fake_give(&bed->fake, "client.1.0", &msg);
        }
        ck_assert_uint_eq(turns_counted(bed), 2);
        bed_end(bed);
    }
END_TEST

START_TEST(where_there_are_no_sessions_a_turn_of_values_is_answered)
    {
        struct bed *bed = bed_make(without_sessions);
        struct sl_msg prefetch;
        turn_tell(bed, "abcd", false, 0, false);
        ck_assert(!prefetch_await(bed, 2 * PAUSE_NS, &prefetch));
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_sessions");
    TCase *tcase = tcase_create("sessions");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, blocks_only_on_disk_are_prefetched_before_the_session_returns);
    tcase_add_test(tcase, a_session_that_goes_on_at_another_engine_keeps_what_it_has);
    tcase_add_loop_test(tcase, an_evicted_prefetched_block_is_requested_again, 0, 2);
    tcase_add_test(tcase, prefetching_continues_without_an_answer);
    tcase_add_test(tcase, a_setting_of_0_asks_for_nothing);
    tcase_add_loop_test(tcase, a_word_in_the_middle_of_a_pause_moves_its_end, 0,
                        (int)SL_COUNT(words));
    tcase_add_test(tcase, a_hint_for_an_unknown_session_is_answered_and_changes_nothing);
    tcase_add_test(tcase, a_session_that_is_told_of_again_and_again_is_asked_for_once);
    tcase_add_loop_test(tcase, a_node_without_sessions_says_so, 0, 2);
    tcase_add_loop_test(tcase, values_of_a_session_are_asked_for_before_it_comes_back, 0,
                        (int)SL_COUNT(turns));
    tcase_add_test(tcase, ranks_that_have_values_of_their_own_are_not_taken_for_one_chain);
    tcase_add_test(tcase, a_session_of_values_that_ends_is_not_asked_for);
    tcase_add_test(tcase, a_turn_is_sent_again_behind_one_of_another_client);
    tcase_add_loop_test(tcase, a_long_chain_is_asked_for_piece_by_piece, 0, 2);
    tcase_add_loop_test(tcase, the_rest_of_a_chain_is_not_asked_for_when_it_changed_or_was_refused,
                        0, 2);
    tcase_add_loop_test(tcase, a_piece_that_is_refused_leaves_what_came_before_it, 0, 2);
    tcase_add_test(tcase, where_there_are_no_sessions_a_turn_of_values_is_answered);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
