/* tests/unit/registrar_blocks_ahead_test.c - extents granted in advance to a coordinator, which swappers
 * write, and blocks of one part that are committed in them. */
#include "tests/unit/registrar_support.h"

#include "runtime/sl_clock.h"

#define SIZE    20000u
#define SPACE   20480u /* whole pages */
#define TTL     (2 * SL_NS_PER_S)
#define OP      UINT64_C(71)
#define CO_PID  21u
#define SWAPPER "swapper.0"
#define SW_PID  22u

struct answer {
    sl_err code;
    uint32_t code_count, ahead_count;
    sl_err codes[16];
    struct sl_item_grant ahead[64];
};

static struct node *node_with_actors(void)
{
    struct node *node = node_start(NULL);
    ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", CO_PID), SL_OK);
    ck_assert_int_eq(node_hello(node, SWAPPER, "swapper", SW_PID), SL_OK);
    node_client(node, "client.1", 11);
    return node;
}

static struct answer *publish(struct node *node, struct sl_msg msg)
{
    static struct answer out;
    struct sl_msg reply;
    msg.type = SL_MSG_COMMIT;
    msg.op_id = OP;
    fake_give(&node->fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&node->fake, "coordinator", msg.seq, &reply));
    const struct sl_body_commit_reply *body = &reply.body.commit_reply;
    out = (struct answer){.code = reply.code,
                          .code_count = (uint32_t)body->codes.count,
                          .ahead_count = (uint32_t)body->ahead.count};
    ck_assert_uint_le(out.code_count, SL_COUNT(out.codes));
    ck_assert_uint_le(out.ahead_count, SL_COUNT(out.ahead));
    for (uint32_t i = 0; i < out.code_count; i++) {
        out.codes[i] = (sl_err)body->codes.at[i];
    }
    for (uint32_t i = 0; i < out.ahead_count; i++) {
        out.ahead[i] = body->ahead.at[i];
    }
    return &out;
}

static struct answer *wish(struct node *node, uint32_t count, const char *writer)
{
    struct sl_msg msg = {.type = SL_MSG_COMMIT};
    msg.body.commit.ahead_count = count;
    msg.body.commit.ahead_bytes = SIZE;
    msg.body.commit.ahead_writer = sl_text_of(writer);
    return publish(node, msg);
}

static struct sl_item_grant grant_take(struct node *node)
{
    struct answer *answer = wish(node, 1, SWAPPER);
    ck_assert_uint_eq(answer->ahead_count, 1);
    ck_assert_uint_eq(answer->ahead[0].code, SL_OK);
    return answer->ahead[0];
}

struct block { /* what a test changes of it before it is committed */
    struct sl_item_group group;
    struct sl_item_claim claim;
    struct sl_item_named named;
    char key[16];
};

static void block_make(struct block *block, const char *key, const struct sl_item_grant *grant)
{
    *block = (struct block){.group = {.key = sl_text_of(key), .part_count = 1}};
    (void)snprintf(block->key, sizeof(block->key), "%s/0", key);
    struct sl_digest digest = digest_of_key(block->key);
    block->claim = (struct sl_item_claim){.ref = grant->ref,
                                          .generation = grant->generation,
                                          .digest_low = digest.low,
                                          .digest_high = digest.high};
    block->named =
        (struct sl_item_named){.key = sl_text_of(block->key), .length_bytes = SIZE, .group = 1};
}

static sl_err block_publish(struct node *node, const struct block *block)
{
    struct sl_msg msg = {.type = SL_MSG_COMMIT};
    msg.body.commit.items.at = &block->claim;
    msg.body.commit.items.count = 1;
    msg.body.commit.named.at = &block->named;
    msg.body.commit.named.count = 1;
    msg.body.commit.groups.at = &block->group;
    msg.body.commit.groups.count = 1;
    struct answer *answer = publish(node, msg);
    ck_assert_int_eq(answer->code, SL_OK);
    ck_assert_uint_eq(answer->code_count, 1);
    return answer->codes[0];
}

static uint64_t used(struct node *node)
{
    return node_metric(node, "used_bytes");
}

static bool block_is_there(struct node *node, const char *key)
{
    char part[16];
    (void)snprintf(part, sizeof(part), "%s/0", key);
    bool there = sl_index_find_group(node->view, key, (uint32_t)strlen(key)) == SL_OK;
    ck_assert(node_sees(node, part) == there);
    return there;
}

/* The swapper acknowledges the fence of what was taken back. */
static uint64_t fence_answer(struct node *node)
{
    struct sl_msg fence;
    ck_assert(fake_take(&node->fake, SWAPPER, SL_MSG_FENCE, &fence));
    fake_answer(&node->fake, SWAPPER, &fence, &(struct sl_msg){.code = SL_OK});
    return fence.body.fence.items.count;
}

/* ---- publishing ---- */

START_TEST(block_that_was_committed_is_there)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        struct sl_entry entry;
        block_make(&block, "b", &grant);
        ck_assert_uint_eq(used(node), SPACE);

        ck_assert_int_eq(block_publish(node, &block), SL_OK);

        ck_assert(block_is_there(node, "b"));
        ck_assert(node_entry(node, block.key, &entry));
        ck_assert_uint_eq(entry.extent.generation, grant.generation);
        ck_assert_uint_eq(entry.extent.offset_bytes, grant.offset_bytes);
        ck_assert_uint_eq(entry.extent.length_bytes, SIZE);
        ck_assert(sl_digest_equal(entry.digest, digest_of_key(block.key)));
        ck_assert_uint_eq(node_metric(node, "block_count"), 1);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        fake_pass(&node->fake, 3 * TTL); /* no deadline is left behind */
        ck_assert(block_is_there(node, "b"));
        ck_assert_int_eq(node_remove(node, "client.1", "b"), SL_OK);
        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* The answer was lost: by the same registrar, and by the next one. */
START_TEST(committing_a_block_again_is_answered_alike)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        block_make(&block, "b", &grant);

        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        node_restart(node);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);

        ck_assert_uint_eq(node_metric(node, "block_count"), 1);
        ck_assert_uint_eq(used(node), SPACE);
        node_end(node);
    }
END_TEST

enum rival { RIVAL_COMMITTED, RIVAL_WRITING, RIVAL_OBJECT, RIVAL_PART, RIVALS };
static const sl_err rival_codes[RIVALS] = {SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_INVALID,
                                           SL_ERR_INVALID};

START_TEST(block_that_another_has_leaves_the_grant)
    {
        struct node *node = node_with_actors();
        struct block block;
        static struct grants got;
        const struct want want = {.key = "b/0", .length = SIZE, .group = 1, .part = 0};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 3,
                                  .wants = &want,
                                  .count = 1,
                                  .group_key = "b",
                                  .part_count = 1};
        if (_i == RIVAL_COMMITTED) {
            node_put_block(node, "client.1", "b", 1, SIZE, 0);
        } else if (_i == RIVAL_WRITING) {
            ck_assert(node_reserve(node, &ask, &got));
        } else {
            node_put(node, "client.1", _i == RIVAL_OBJECT ? "b" : "b/0", SIZE);
        }
        uint64_t before = used(node);
        struct sl_item_grant grant = grant_take(node);
        block_make(&block, "b", &grant);

        ck_assert_int_eq(block_publish(node, &block), rival_codes[_i]);

        ck_assert_uint_eq(used(node), before + SPACE);
        block_make(&block, "c", &grant); /* it is good for another block */
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert(block_is_there(node, "c"));
        node_end(node);
    }
END_TEST

enum wrong { WRONG_PARTS, WRONG_GROUP, WRONG_SIZE, WRONGS };

START_TEST(block_that_is_none_is_refused)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        block_make(&block, "b", &grant);
        if (_i == WRONG_PARTS) {
            block.group.part_count = 2;
        } else if (_i == WRONG_GROUP) {
            block.named.group = 2;
        } else {
            block.named.length_bytes = 3 * SIZE;
        }

        ck_assert_int_eq(block_publish(node, &block), SL_ERR_INVALID);

        ck_assert(!block_is_there(node, "b"));
        ck_assert_uint_eq(used(node), SPACE);
        node_end(node);
    }
END_TEST

START_TEST(grant_of_another_makes_no_block)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = node_grant(node, "client.1", "x", SIZE);
        struct block block;
        block_make(&block, "b", &grant);

        ck_assert_int_eq(block_publish(node, &block), SL_ERR_PERMISSION);

        ck_assert(!block_is_there(node, "b"));
        node_end(node);
    }
END_TEST

/* Nobody could say when such a writer is done. */
START_TEST(nothing_is_granted_without_a_writer_that_answers_fences)
    {
        static const char *const writers[] = {"", "swapper.7", "client.1"};
        struct node *node = node_with_actors();

        struct answer *answer = wish(node, 4, writers[_i]);

        ck_assert_int_eq(answer->code, SL_OK);
        ck_assert_uint_eq(answer->ahead_count, 0);
        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* It names an actor that would be killed when it does not know what it is fenced for. */
START_TEST(client_names_no_actor_as_writer)
    {
        static const char *const writers[] = {SWAPPER, "coordinator"};
        struct node *node = node_with_actors();
        struct sl_msg msg = {.type = SL_MSG_COMMIT}, reply;
        msg.body.commit.ahead_count = 4;
        msg.body.commit.ahead_bytes = SIZE;
        msg.body.commit.ahead_writer = sl_text_of(writers[_i]);

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.commit_reply.ahead.count, 0);
        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* ---- order ---- */

/* Without the head of a chain its tail is worth nothing. */
START_TEST(tail_of_what_is_committed_together_leaves_memory_first)
    {
        static const char *const names[] = {"b", "c"};
        struct node *node = node_with_actors();
        struct block blocks[2];
        struct sl_item_claim claims[2];
        struct sl_item_named named[2];
        struct sl_item_group groups[2];
        struct sl_msg msg = {.type = SL_MSG_COMMIT};
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_item_grant grant = grant_take(node);
            block_make(&blocks[i], names[i], &grant);
            claims[i] = blocks[i].claim;
            groups[i] = blocks[i].group;
            named[i] = blocks[i].named;
            named[i].group = 1 + i;
        }
        msg.body.commit.tail_first = true;
        msg.body.commit.items.at = claims;
        msg.body.commit.items.count = 2;
        msg.body.commit.named.at = named;
        msg.body.commit.named.count = 2;
        msg.body.commit.groups.at = groups;
        msg.body.commit.groups.count = 2;
        struct answer *answer = publish(node, msg);
        ck_assert_int_eq(answer->codes[0], SL_OK);
        ck_assert_int_eq(answer->codes[1], SL_OK);
        ck_assert(block_is_there(node, "b") && block_is_there(node, "c"));

        for (uint32_t i = 0; i < 203; i++) { /* 4 MiB hold 204 such values, blocks and all */
            char key[16];
            (void)snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SIZE);
        }

        ck_assert(block_is_there(node, "b"));
        ck_assert(!block_is_there(node, "c"));
        node_end(node);
    }
END_TEST

/* ---- ends ---- */

enum ending { ENDS_BY_TIME, ENDS_BY_DEATH, ENDS_BY_NEED, ENDINGS };

START_TEST(extent_is_free_when_its_swapper_is_fenced)
    {
        static struct grants got;
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        block_make(&block, "b", &grant);

        if (_i == ENDS_BY_TIME) {
            fake_pass(&node->fake, TTL + SL_NS_PER_MS);
        } else if (_i == ENDS_BY_DEATH) {
            fake_die(&node->fake, proc_of(CO_PID));
        } else { /* all of memory is asked for: 4 MiB hold 204 such values */
            static struct want wants[204];
            static char keys[204][8];
            for (uint32_t i = 0; i < SL_COUNT(wants); i++) {
                (void)snprintf(keys[i], sizeof(keys[i]), "k%u", i);
                wants[i] = (struct want){.key = keys[i], .length = SIZE};
            }
            struct reserve_ask ask = {.sender = "client.1",
                                      .wants = wants,
                                      .count = SL_COUNT(wants),
                                      .wait = true,
                                      .ttl_ns = 100 * TTL,
                                      .budget_ns = 100 * TTL};
            ck_assert(!node_reserve(node, &ask, &got));
            fake_pass(&node->fake, 10 * SL_NS_PER_MS);
        }

        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), SPACE);
        ck_assert(!sl_index_claim_stands(node->view, (sl_ref)grant.ref, grant.generation));
        if (_i != ENDS_BY_DEATH) {
            ck_assert_int_eq(block_publish(node, &block), SL_ERR_STALE);
            ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), SPACE);
        }
        ck_assert_uint_eq(fence_answer(node), 1);
        fake_pass(&node->fake, 10 * SL_NS_PER_MS);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        ck_assert_uint_eq(used(node), _i == ENDS_BY_NEED ? 204 * SPACE : 0);
        ck_assert(!block_is_there(node, "b"));
        node_end(node);
    }
END_TEST

START_TEST(aborted_grants_are_free)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);

        ck_assert_int_eq(node_abort(node, "coordinator", &grant), SL_OK);

        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* ---- restarts ---- */

START_TEST(grants_of_a_coordinator_outlive_the_registrar)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        block_make(&block, "b", &grant);

        node_restart(node);

        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert(block_is_there(node, "b"));
        node_end(node);
    }
END_TEST

enum killed { KILLED_AFTER_GROUP, KILLED_AFTER_PART, KILLED_BEFORE_FILL, KILLED };

/* A block whose part has its record is whole. One without gives way to the op that comes again. */
START_TEST(block_committed_half_way_is_whole_or_open_to_its_op)
    {
        static struct grants got;
        struct node *node = node_with_actors();
        struct sl_item_grant grant = grant_take(node);
        struct block block;
        struct sl_error why = {0};
        block_make(&block, "b", &grant);
        fake_stop(&node->fake);
        struct sl_arena *arena = NULL;
        struct sl_index *index = NULL;
        bool created = false;
        const struct sl_arena_options arena_options = {.directory = node->fake.paths.shm_dir,
                                                       .data_bytes = 4 * SL_MIB,
                                                       .chunk_bytes = 4 * SL_MIB};
        ck_assert_msg(sl_arena_open_owner(&arena_options, &created, &arena, &why) == SL_OK, "%s",
                      why.text);
        const struct sl_index_options options = {
            .shm_dir = node->fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = arena};
        ck_assert_msg(sl_index_open(&options, &created, &index, &why) == SL_OK, "%s", why.text);
        sl_index_recover(index, NULL, NULL);
        sl_ref group = 0, part = 0;
        const struct sl_group_want want = {.key = {.at = "b", .length = 1},
                                           .part_count = 1,
                                           .deadline_ns = SL_NEVER_NS / 2,
                                           .op_id = OP,
                                           .owner = proc_of(CO_PID)};
        ck_assert_int_eq(sl_index_group_create(index, &want, &group, &why), SL_OK);
        const struct sl_entry object = {.extent = {.generation = grant.generation,
                                                   .offset_bytes = grant.offset_bytes,
                                                   .length_bytes = SIZE},
                                        .digest = digest_of_key("b/0"),
                                        .owner = proc_of(CO_PID),
                                        .writer = proc_of(CO_PID),
                                        .group = group,
                                        .key = "b/0",
                                        .key_length = 3};
        if (_i >= KILLED_AFTER_PART) {
            ck_assert_int_eq(sl_index_insert(index, &object, &part, &why), SL_OK);
        }
        if (_i == KILLED_BEFORE_FILL) {
            sl_index_set_kind(index, (sl_ref)grant.ref, SL_RECORD_FREE);
        }
        sl_index_close(&index);
        sl_arena_close(&arena);
        ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);

        /* The COMMIT that comes again, and then the long way. */
        sl_err code = block_publish(node, &block);
        if (_i == KILLED_AFTER_GROUP) {
            static const char *const key = "b/0";
            const struct want part_want = {.key = key, .length = SIZE, .group = 1, .part = 0};
            struct reserve_ask ask = {.sender = "coordinator",
                                      .op_id = OP,
                                      .wants = &part_want,
                                      .count = 1,
                                      .group_key = "b",
                                      .part_count = 1};
            ck_assert_int_eq(code, SL_ERR_BUSY);
            ck_assert_int_eq(node_abort(node, "coordinator", &grant), SL_OK);
            ck_assert(node_reserve(node, &ask, &got));
            ck_assert_uint_eq(got.at[0].code, SL_OK);
            node_commit_all(node, "coordinator", &key, got.at, 1, true, NULL);
            code = SL_OK;
        }
        ck_assert_int_eq(code, SL_OK);
        ck_assert(block_is_there(node, "b"));
        ck_assert_uint_eq(used(node), SPACE);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_blocks_ahead");
    TCase *publishing = tcase_create("publishing");
    tcase_add_test(publishing, block_that_was_committed_is_there);
    tcase_add_test(publishing, committing_a_block_again_is_answered_alike);
    tcase_add_loop_test(publishing, block_that_another_has_leaves_the_grant, 0, RIVALS);
    tcase_add_loop_test(publishing, block_that_is_none_is_refused, 0, WRONGS);
    tcase_add_test(publishing, grant_of_another_makes_no_block);
    tcase_add_loop_test(publishing, nothing_is_granted_without_a_writer_that_answers_fences, 0, 3);
    tcase_add_loop_test(publishing, client_names_no_actor_as_writer, 0, 2);
    tcase_add_test(publishing, tail_of_what_is_committed_together_leaves_memory_first);
    suite_add_tcase(suite, publishing);
    TCase *ends = tcase_create("ends");
    tcase_add_loop_test(ends, extent_is_free_when_its_swapper_is_fenced, 0, ENDINGS);
    tcase_add_test(ends, aborted_grants_are_free);
    suite_add_tcase(suite, ends);
    TCase *restart = tcase_create("restart");
    tcase_add_test(restart, grants_of_a_coordinator_outlive_the_registrar);
    tcase_add_loop_test(restart, block_committed_half_way_is_whole_or_open_to_its_op, 0, KILLED);
    suite_add_tcase(suite, restart);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
