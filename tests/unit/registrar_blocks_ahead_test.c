/* tests/unit/registrar_blocks_ahead_test.c - extents granted ahead to a coordinator, which swappers
 * write, and blocks that are published in them. */
#include "tests/unit/registrar_support.h"

#include "runtime/sl_clock.h"

#define SIZE    20000u
#define SPACE   20480u /* whole pages */
#define TTL     (2 * SL_NS_PER_S)
#define PARTS   2u
#define OP      UINT64_C(71)
#define CO_PID  21u
#define SWAPPER "swapper.0"
#define SW_PID  22u

static const char *const roomy[] = {"grants_ahead_bytes_max", "1MiB", NULL};

struct answer {
    sl_err code;
    uint32_t code_count, ahead_count;
    sl_err codes[16];
    struct sl_item_grant ahead[64];
};

static struct node *node_with_actors(void)
{
    struct node *node = node_start(roomy);
    ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", CO_PID), SL_OK);
    ck_assert_int_eq(node_hello(node, SWAPPER, "swapper", SW_PID), SL_OK);
    node_client(node, "client.1", 11);
    return node;
}

static struct answer *publish(struct node *node, struct sl_msg msg)
{
    static struct answer out;
    struct sl_msg reply;
    msg.type = SL_MSG_PUBLISH;
    msg.op_id = OP;
    fake_give(&node->fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&node->fake, "coordinator", msg.seq, &reply));
    const struct sl_body_publish_reply *body = &reply.body.publish_reply;
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
    struct sl_msg msg = {.type = SL_MSG_PUBLISH};
    msg.body.publish.ahead_count = count;
    msg.body.publish.ahead_bytes = SIZE;
    msg.body.publish.ahead_writer = sl_text_of(writer);
    return publish(node, msg);
}

/* Grants for the parts of one block. */
static void grants_take(struct node *node, struct sl_item_grant grants[PARTS])
{
    struct answer *answer = wish(node, PARTS, SWAPPER);
    ck_assert_uint_eq(answer->ahead_count, PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        ck_assert_uint_eq(answer->ahead[i].code, SL_OK);
        grants[i] = answer->ahead[i];
    }
}

struct block { /* what a test changes of it before it is published */
    struct sl_item_group group;
    struct sl_item_publication items[PARTS];
    uint32_t count;
    char keys[PARTS][16];
};

static void block_make(struct block *block, const char *key, const struct sl_item_grant *grants)
{
    *block = (struct block){.group = {.key = sl_text_of(key), .part_count = PARTS}, .count = PARTS};
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)snprintf(block->keys[i], sizeof(block->keys[i]), "%s/%u", key, i);
        struct sl_digest digest = digest_of_key(block->keys[i]);
        block->items[i] = (struct sl_item_publication){.key = sl_text_of(block->keys[i]),
                                                       .length_bytes = SIZE,
                                                       .ref = grants[i].ref,
                                                       .generation = grants[i].generation,
                                                       .digest_low = digest.low,
                                                       .digest_high = digest.high,
                                                       .group = 1,
                                                       .part_index = i};
    }
}

/* Gives the code, which is that of all parts. */
static sl_err block_publish(struct node *node, const struct block *block)
{
    struct sl_msg msg = {.type = SL_MSG_PUBLISH};
    msg.body.publish.items.at = block->items;
    msg.body.publish.items.count = block->count;
    msg.body.publish.groups.at = &block->group;
    msg.body.publish.groups.count = 1;
    struct answer *answer = publish(node, msg);
    ck_assert_int_eq(answer->code, SL_OK);
    ck_assert_uint_eq(answer->code_count, block->count);
    for (uint32_t i = 1; i < block->count; i++) {
        ck_assert_int_eq(answer->codes[i], answer->codes[0]);
    }
    return answer->codes[0];
}

static uint64_t used(struct node *node)
{
    return node_metric(node, "used_bytes");
}

static bool block_is_there(struct node *node, const char *key)
{
    char part[16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)snprintf(part, sizeof(part), "%s/%u", key, i);
        count += node_sees(node, part) ? 1 : 0;
    }
    ck_assert(count == 0 || count == PARTS);
    return count == PARTS && sl_index_find_group(node->view, key, (uint32_t)strlen(key)) == SL_OK;
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

START_TEST(published_block_is_there_with_all_its_parts)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        struct sl_entry entry;
        grants_take(node, grants);
        block_make(&block, "b", grants);
        ck_assert_uint_eq(used(node), PARTS * SPACE);

        ck_assert_int_eq(block_publish(node, &block), SL_OK);

        ck_assert(block_is_there(node, "b"));
        for (uint32_t i = 0; i < PARTS; i++) {
            ck_assert(node_entry(node, block.keys[i], &entry));
            ck_assert_uint_eq(entry.extent.generation, grants[i].generation);
            ck_assert_uint_eq(entry.extent.offset_bytes, grants[i].offset_bytes);
            ck_assert_uint_eq(entry.extent.length_bytes, SIZE);
            ck_assert(sl_digest_equal(entry.digest, digest_of_key(block.keys[i])));
        }
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
START_TEST(publishing_a_block_again_is_answered_alike)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        grants_take(node, grants);
        block_make(&block, "b", grants);

        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        node_restart(node);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);

        ck_assert_uint_eq(node_metric(node, "block_count"), 1);
        ck_assert_uint_eq(used(node), PARTS * SPACE);
        node_end(node);
    }
END_TEST

enum rival { RIVAL_COMMITTED, RIVAL_WRITING, RIVAL_OBJECT, RIVAL_PART, RIVALS };
static const sl_err rival_codes[RIVALS] = {SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_INVALID,
                                           SL_ERR_INVALID};

START_TEST(block_that_another_has_leaves_the_grants)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        static struct grants got;
        const struct want wants[] = {{.key = "b/0", .length = SIZE, .group = 1, .part = 0},
                                     {.key = "b/1", .length = SIZE, .group = 1, .part = 1}};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 3,
                                  .wants = wants,
                                  .count = PARTS,
                                  .group_key = "b",
                                  .part_count = PARTS};
        if (_i == RIVAL_COMMITTED) {
            node_put_block(node, "client.1", "b", PARTS, SIZE, 0);
        } else if (_i == RIVAL_WRITING) {
            ck_assert(node_reserve(node, &ask, &got));
        } else {
            node_put(node, "client.1", _i == RIVAL_OBJECT ? "b" : "b/1", SIZE);
        }
        uint64_t before = used(node);
        grants_take(node, grants);
        block_make(&block, "b", grants);

        ck_assert_int_eq(block_publish(node, &block), rival_codes[_i]);

        ck_assert_uint_eq(used(node), before + PARTS * SPACE);
        block_make(&block, "c", grants); /* they are good for another block */
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert(block_is_there(node, "c"));
        node_end(node);
    }
END_TEST

enum wrong { WRONG_COUNT, WRONG_PART, WRONG_TWICE, WRONG_GROUP, WRONG_SIZE, WRONGS };

START_TEST(block_that_is_none_is_refused)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        grants_take(node, grants);
        block_make(&block, "b", grants);
        if (_i == WRONG_COUNT) {
            block.count = 1;
        } else if (_i == WRONG_PART) {
            block.items[1].part_index = PARTS;
        } else if (_i == WRONG_TWICE) {
            block.items[1].part_index = 0;
        } else if (_i == WRONG_GROUP) {
            block.items[0].group = block.items[1].group = 2;
        } else {
            block.items[1].length_bytes = 3 * SIZE;
        }

        ck_assert_int_eq(block_publish(node, &block), SL_ERR_INVALID);

        ck_assert(!block_is_there(node, "b"));
        ck_assert_uint_eq(used(node), PARTS * SPACE);
        node_end(node);
    }
END_TEST

/* Nothing of it is to be seen, and nothing of it keeps memory. */
START_TEST(one_grant_or_one_key_for_two_parts_makes_no_block)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        grants_take(node, grants);
        if (_i == 0) {
            struct sl_item_grant same[PARTS] = {grants[0], grants[0]};
            block_make(&block, "b", same);
            ck_assert_int_eq(block_publish(node, &block), SL_ERR_STALE);
        } else {
            block_make(&block, "b", grants);
            block.items[1].key = block.items[0].key;
            ck_assert_int_eq(block_publish(node, &block), SL_ERR_BUSY);
        }

        ck_assert(!block_is_there(node, "b"));
        ck_assert_int_eq(sl_index_find_group(node->view, "b", 1), SL_ERR_NOT_FOUND);
        fake_pass(&node->fake, TTL + SL_NS_PER_MS);
        ck_assert_uint_eq(fence_answer(node), 1); /* of the grant that was not used */
        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(grants_of_others_publish_no_block)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        for (uint32_t i = 0; i < PARTS; i++) {
            grants[i] = node_grant(node, "client.1", i == 0 ? "x" : "y", SIZE);
        }
        block_make(&block, "b", grants);

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
        struct sl_msg msg = {.type = SL_MSG_PUBLISH}, reply;
        msg.body.publish.ahead_count = 4;
        msg.body.publish.ahead_bytes = SIZE;
        msg.body.publish.ahead_writer = sl_text_of(writers[_i]);

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.publish_reply.ahead.count, 0);
        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* ---- order ---- */

/* Without the head of a chain its tail is worth nothing. */
START_TEST(tail_of_what_is_published_together_leaves_memory_first)
    {
        static const char *const names[] = {"b", "c"};
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block blocks[2];
        struct sl_item_publication items[2 * PARTS];
        struct sl_item_group groups[2];
        struct sl_msg msg = {.type = SL_MSG_PUBLISH};
        for (uint32_t i = 0; i < 2; i++) {
            grants_take(node, grants);
            block_make(&blocks[i], names[i], grants);
            groups[i] = blocks[i].group;
            for (uint32_t k = 0; k < PARTS; k++) {
                items[i * PARTS + k] = blocks[i].items[k];
                items[i * PARTS + k].group = 1 + i;
            }
        }
        msg.body.publish.items.at = items;
        msg.body.publish.items.count = SL_COUNT(items);
        msg.body.publish.groups.at = groups;
        msg.body.publish.groups.count = SL_COUNT(groups);
        struct answer *answer = publish(node, msg);
        for (uint32_t i = 0; i < SL_COUNT(items); i++) {
            ck_assert_int_eq(answer->codes[i], SL_OK);
        }
        ck_assert(block_is_there(node, "b") && block_is_there(node, "c"));

        for (uint32_t i = 0; i < 201; i++) { /* 4 MiB hold 204 such values, blocks and all */
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
        struct sl_item_grant grants[PARTS];
        struct block block;
        grants_take(node, grants);
        block_make(&block, "b", grants);

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

        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), PARTS * SPACE);
        ck_assert(!sl_index_claim_stands(node->view, (sl_ref)grants[0].ref, grants[0].generation));
        if (_i != ENDS_BY_DEATH) {
            ck_assert_int_eq(block_publish(node, &block), SL_ERR_STALE);
            ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), PARTS * SPACE);
        }
        ck_assert_uint_eq(fence_answer(node), PARTS);
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
        struct sl_item_grant grants[PARTS];
        grants_take(node, grants);

        ck_assert_int_eq(node_abort(node, "coordinator", &grants[0]), SL_OK);

        ck_assert_uint_eq(used(node), SPACE);
        node_end(node);
    }
END_TEST

/* ---- restarts ---- */

START_TEST(grants_of_a_coordinator_outlive_the_registrar)
    {
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        grants_take(node, grants);
        block_make(&block, "b", grants);

        node_restart(node);

        ck_assert_uint_eq(used(node), PARTS * SPACE);
        ck_assert_int_eq(block_publish(node, &block), SL_OK);
        ck_assert(block_is_there(node, "b"));
        node_end(node);
    }
END_TEST

/* Killed between the two parts of a block: the block is pending, one grant is used up. */
START_TEST(block_published_half_way_is_cleared_away_for_the_op_that_comes_again)
    {
        static struct grants got;
        struct node *node = node_with_actors();
        struct sl_item_grant grants[PARTS];
        struct block block;
        struct sl_error why = {0};
        grants_take(node, grants);
        block_make(&block, "b", grants);
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
                                           .part_count = PARTS,
                                           .deadline_ns = SL_NEVER_NS / 2,
                                           .op_id = OP,
                                           .owner = proc_of(CO_PID)};
        ck_assert_int_eq(sl_index_group_create(index, &want, &group, &why), SL_OK);
        const struct sl_entry object = {.extent = {.generation = grants[1].generation,
                                                   .offset_bytes = grants[1].offset_bytes,
                                                   .length_bytes = SIZE},
                                        .group = group,
                                        .part_index = 1,
                                        .key = "b/1",
                                        .key_length = 3};
        ck_assert_int_eq(sl_index_insert(index, &object, &part, &why), SL_OK);
        if (_i == 1) { /* killed a little later */
            sl_index_set_kind(index, (sl_ref)grants[1].ref, SL_RECORD_FREE);
            ck_assert(!sl_index_group_fill(index, group, 1));
        }
        sl_index_close(&index);
        sl_arena_close(&arena);
        ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);
        ck_assert(!block_is_there(node, "b"));

        /* The PUBLISH that comes again, and then the long way. */
        ck_assert_int_eq(block_publish(node, &block), SL_ERR_STALE);
        ck_assert(!block_is_there(node, "b"));
        for (uint32_t i = 0; i < PARTS; i++) {
            (void)node_abort(node, "coordinator", &grants[i]);
        }
        const struct want wants[] = {{.key = "b/0", .length = SIZE, .group = 1, .part = 0},
                                     {.key = "b/1", .length = SIZE, .group = 1, .part = 1}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = OP,
                                  .wants = wants,
                                  .count = PARTS,
                                  .group_key = "b",
                                  .part_count = PARTS};
        ck_assert(node_reserve(node, &ask, &got));
        ck_assert_uint_eq(got.at[0].code, SL_OK);
        ck_assert_uint_eq(got.at[1].code, SL_OK);
        static const char *const keys[] = {"b/0", "b/1"};
        node_commit_all(node, "coordinator", keys, got.at, PARTS, true, NULL);
        ck_assert(block_is_there(node, "b"));
        ck_assert_uint_eq(used(node), PARTS * SPACE);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_blocks_ahead");
    TCase *publishing = tcase_create("publishing");
    tcase_add_test(publishing, published_block_is_there_with_all_its_parts);
    tcase_add_test(publishing, publishing_a_block_again_is_answered_alike);
    tcase_add_loop_test(publishing, block_that_another_has_leaves_the_grants, 0, RIVALS);
    tcase_add_loop_test(publishing, block_that_is_none_is_refused, 0, WRONGS);
    tcase_add_loop_test(publishing, one_grant_or_one_key_for_two_parts_makes_no_block, 0, 2);
    tcase_add_test(publishing, grants_of_others_publish_no_block);
    tcase_add_loop_test(publishing, nothing_is_granted_without_a_writer_that_answers_fences, 0, 3);
    tcase_add_loop_test(publishing, client_names_no_actor_as_writer, 0, 2);
    tcase_add_test(publishing, tail_of_what_is_published_together_leaves_memory_first);
    suite_add_tcase(suite, publishing);
    TCase *ends = tcase_create("ends");
    tcase_add_loop_test(ends, extent_is_free_when_its_swapper_is_fenced, 0, ENDINGS);
    tcase_add_test(ends, aborted_grants_are_free);
    suite_add_tcase(suite, ends);
    TCase *restart = tcase_create("restart");
    tcase_add_test(restart, grants_of_a_coordinator_outlive_the_registrar);
    tcase_add_loop_test(restart,
                        block_published_half_way_is_cleared_away_for_the_op_that_comes_again, 0, 2);
    suite_add_tcase(suite, restart);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
