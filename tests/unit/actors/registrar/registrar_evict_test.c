/* tests/unit/actors/registrar/registrar_evict_test.c - memory pressure without a disk: LRU, pins,
 * waiting. */
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/space_queue.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include <unistd.h>

static struct grants grants;

/* 4 MiB of memory hold four objects of a MiB, or eight of half a MiB. */
#define BIG  SL_MIB
#define HALF (SL_MIB / 2)

static struct sl_pins *pins_of(struct node *node, const char *name, uint32_t pid)
{
    struct sl_error why = {0};
    struct sl_pins *pins = NULL;
    char segment[64];
    snprintf(segment, sizeof(segment), "pins.%s", name);
    struct sl_pins_options options = {
        .shm_dir = node->fake.paths.shm_dir,
        .name = name,
        .slot_count = 64,
        .access_count = 64,
        .self = proc_of(pid),
        .pinned_bytes_max = SL_GIB,
    };
    ck_assert_msg(sl_pins_create(&options, &pins, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(node_hello_pins(node, name, "client", pid, segment), SL_OK);
    return pins;
}

START_TEST(a_request_of_many_searches_for_victims_once_a_batch)
    {
        enum { COUNT = 128 };
        static char names[COUNT][16];
        static struct want wants[COUNT];
        struct node *node = node_start(NULL);
        char key[16];
        node_client(node, "client.7", 7);
        for (uint32_t i = 0; i < 4 * SL_MIB / SL_PAGE_BYTES; i++) { /* all of memory */
            snprintf(key, sizeof(key), "old%u", i);
            node_put(node, "client.7", key, SL_PAGE_BYTES);
        }
        uint64_t searched = node_metric(node, "evict_attempt_count");
        for (uint32_t i = 0; i < COUNT; i++) {
            snprintf(names[i], sizeof(names[i]), "new%u", i);
            wants[i] = (struct want){.key = names[i], .length = SL_PAGE_BYTES};
        }
        struct reserve_ask ask = {.sender = "client.7", .wants = wants, .count = COUNT};

        ck_assert(node_reserve(node, &ask, &grants));

        for (uint32_t i = 0; i < COUNT; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_OK);
        }
        ck_assert_uint_eq(node_metric(node, "evicted_count"), COUNT); /* no more than needed */
        ck_assert_uint_eq(node_metric(node, "evict_attempt_count") - searched, COUNT / 64);
        node_end(node);
    }
END_TEST

START_TEST(the_least_recently_committed_goes_first)
    {
        struct node *node = node_start(NULL);
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }

        node_put(node, "client.1", "k4", BIG);

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(node_is_visible(node, "k1") && node_is_visible(node, "k2") &&
                  node_is_visible(node, "k3") && node_is_visible(node, "k4"));
        ck_assert_uint_eq(node_metric(node, "evicted_count"), 1);
        ck_assert_uint_le(node_metric(node, "used_bytes"), 4 * SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(an_access_saves_an_object)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(node_entry(node, "k0", &entry));
        sl_pins_note_access(pins, entry.ref, entry.extent.generation);
        sl_pins_note_access(pins, 0xfffffff0u, 5); /* hints are not believed */
        sl_pins_note_access(pins, entry.ref + 1, 5);

        node_put(node, "client.1", "k4", BIG);

        ck_assert(node_is_visible(node, "k0"));
        ck_assert(!node_is_visible(node, "k1"));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(an_access_counts_also_when_its_process_ends_at_once)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.2", 12);
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(node_entry(node, "k0", &entry));
        sl_pins_note_access(pins, entry.ref, entry.extent.generation);
        fake_process_end(&node->fake, proc_of(12));

        node_put(node, "client.1", "k4", BIG);

        ck_assert(node_is_visible(node, "k0"));
        ck_assert(!node_is_visible(node, "k1"));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

static void fifo_touched(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    (void)self;
    (void)list;
    (void)unit;
}

START_TEST(another_policy_has_another_order)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct reg_policy fifo = *self->units->policy;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        struct sl_entry entry;
        char key[8];
        fifo.touched = fifo_touched;
        self->units->policy = &fifo;
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(node_entry(node, "k0", &entry));
        sl_pins_note_access(pins, entry.ref, entry.extent.generation);

        node_put(node, "client.1", "k4", BIG);

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(node_is_visible(node, "k1"));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(the_tail_of_a_chain_goes_before_its_head)
    {
        static const char *const keys[] = {"c0", "c1", "c2", "c3"};
        struct node *node = node_start(NULL);
        struct want wants[4];
        for (uint32_t i = 0; i < 4; i++) {
            wants[i] = (struct want){.key = keys[i], .length = BIG};
        }
        struct reserve_ask ask = {.sender = "client.1", .op_id = 1, .wants = wants, .count = 4};
        node_client(node, "client.1", 11);
        ck_assert(node_reserve(node, &ask, &grants));
        node_commit_all(node, "client.1", keys, grants.at, 4, true, NULL);

        node_put(node, "client.1", "x", BIG);
        ck_assert(!node_is_visible(node, "c3"));
        ck_assert(node_is_visible(node, "c0") && node_is_visible(node, "c1") &&
                  node_is_visible(node, "c2"));
        node_put(node, "client.1", "y", BIG);
        ck_assert(!node_is_visible(node, "c2"));
        ck_assert(node_is_visible(node, "c0"));
        node_end(node);
    }
END_TEST

START_TEST(the_last_of_blocks_committed_together_goes_first)
    {
        static const char *const blocks[] = {"m/a", "m/b"};
        static const char *const keys[] = {"m/a/0", "m/a/1", "m/b/0", "m/b/1"};
        struct node *node = node_start(NULL);
        struct sl_item_grant granted[4];
        node_client(node, "client.1", 11);
        for (uint32_t b = 0; b < 2; b++) {
            const struct want wants[] = {
                {.key = keys[2 * b], .length = HALF, .group = 1},
                {.key = keys[2 * b + 1], .length = HALF, .group = 1, .part = 1}};
            struct reserve_ask ask = {.sender = "client.1",
                                      .op_id = 1,
                                      .wants = wants,
                                      .count = 2,
                                      .group_key = blocks[b],
                                      .part_count = 2};
            ck_assert(node_reserve(node, &ask, &grants));
            memcpy(&granted[2 * b], grants.at, 2 * sizeof(granted[0]));
        }
        node_commit_all(node, "client.1", keys, granted, 4, true, NULL);

        node_put(node, "client.1", "x", BIG);
        node_put(node, "client.1", "y", BIG);
        node_put(node, "client.1", "z", BIG);

        ck_assert(node_is_visible(node, "m/a/0") && node_is_visible(node, "m/a/1"));
        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/1"));
        node_end(node);
    }
END_TEST

START_TEST(a_block_goes_whole)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/a", 4, HALF, 0);
        node_put_block(node, "client.1", "m/b", 4, HALF, 0);

        node_put(node, "client.1", "x", HALF);

        for (uint32_t i = 0; i < 4; i++) {
            char key[16];
            snprintf(key, sizeof(key), "m/a/%u", i);
            ck_assert(!node_is_visible(node, key));
            snprintf(key, sizeof(key), "m/b/%u", i);
            ck_assert(node_is_visible(node, key));
        }
        ck_assert_int_eq(sl_index_find_group(node->view, "m/a", 3), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(pinned_bytes_are_not_given_to_another)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        sl_pin pin = 0;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        char key[8];
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert(node_entry(node, "k0", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);

        struct sl_item_grant grant = node_grant(node, "client.1", "k4", BIG);

        ck_assert_uint_ne(grant.offset_bytes, entry.extent.offset_bytes);
        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(!node_is_visible(node, "k1")); /* its bytes were used instead */
        ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
        sl_pins_release(pins, pin);
        fake_advance(&node->fake, 100 * SL_NS_PER_MS);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
        grant = node_grant(node, "client.1", "k5", BIG);
        ck_assert_uint_eq(grant.offset_bytes, entry.extent.offset_bytes);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(the_death_of_a_reader_drops_its_pins)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        sl_pin pin = 0;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        node_client(node, "client.2", 12);
        node_put(node, "client.2", "k0", BIG);
        ck_assert(node_entry(node, "k0", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
        ck_assert_int_eq(node_remove(node, "client.2", "k0"), SL_OK);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), BIG);
        char path[1100];
        snprintf(path, sizeof(path), "%s/pins.client.1", node->fake.paths.shm_dir);
        ck_assert_int_eq(access(path, F_OK), 0);

        fake_process_end(&node->fake, proc_of(11));

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_int_ne(access(path, F_OK), 0); /* no other process would remove its pin file */
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

static struct want one_want = {.key = "w", .length = BIG};

/* Memory full of reservations: nothing can be evicted. */
static struct node *node_full(struct sl_item_grant held[4])
{
    struct node *node = node_start(NULL);
    char key[8];
    node_client(node, "client.1", 11);
    node_client(node, "client.2", 12);
    node_client(node, "client.3", 13);
    struct want wants[4];
    static char names[4][8];
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(names[i], sizeof(key), "h%u", i);
        wants[i] = (struct want){.key = names[i], .length = BIG};
    }
    struct reserve_ask ask = {
        .sender = "client.1", .op_id = 1, .wants = wants, .count = 4, .ttl_ns = 100 * SL_NS_PER_S};
    ck_assert(node_reserve(node, &ask, &grants));
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(grants.at[i].code, SL_OK);
        held[i] = grants.at[i];
    }
    return node;
}

START_TEST(without_wait_a_lack_of_space_is_answered_at_once)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct reserve_ask ask = {.sender = "client.2", .op_id = 2, .wants = &one_want, .count = 1};

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "refused_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(with_wait_a_request_is_granted_when_space_is_freed)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 2, .wants = &one_want, .count = 1, .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(node_metric(node, "waiting_count"), 1);

        ck_assert_int_eq(node_abort(node, "client.1", &held[2]), SL_OK);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[0].offset_bytes, held[2].offset_bytes);
        node_end(node);
    }
END_TEST

START_TEST(a_request_that_waits_ends_at_its_deadline)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 2, .wants = &one_want, .count = 1, .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));

        fake_advance(&node->fake, 2 * SL_NS_PER_S - 1);
        ck_assert(!node_reserved(node, &ask, &grants));
        fake_advance(&node->fake, 1);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "waiting_count"), 0);
        node_end(node);
    }
END_TEST

/* 64 keys of 1,000 bytes. True: it was answered at once. */
static bool many_asked(struct node *node, struct sl_msg *reply)
{
    static char keys[64][1001];
    static struct sl_item_want items[64];
    for (uint32_t i = 0; i < 64; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "%01000u", i);
        items[i] = (struct sl_item_want){.key = sl_text_of(keys[i]), .length_bytes = BIG / 64};
    }
    struct sl_msg msg = {.type = SL_MSG_RESERVE};
    msg.body.reserve.wait = true;
    msg.body.reserve.items.at = items;
    msg.body.reserve.items.count = 64;
    fake_give(&node->fake, "client.2", &msg);
    return fake_take_reply(&node->fake, "client.2", msg.seq, reply);
}

static const struct {
    const char *settings[3];
    uint32_t waiting; /* before it */
    sl_err code;
    const char *text;
} too_many[] = {
    {{"queue_messages", "16"},
     16,
     SL_ERR_LIMIT,
     "16 requests wait for space already: queue_messages"},
    {{"message_bytes_max", "64KiB"},
     3,
     SL_ERR_LIMIT,
     "requests that wait for space have 202 KiB already: ask for fewer at once, or raise "
     "message_bytes_max"},
    {{NULL},
     0,
     SL_ERR_NO_MEMORY,
     "no memory to let it wait: the registrar is at a limit of its process or container"},
};

static bool
    no_memory; /* for the copy of such a request: the linker leads the calls here (--wrap) */
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    size_t copy = sizeof(struct reg_space_waiter) + 64 * (1003 + sizeof(struct sl_item_want));
    return no_memory && bytes == copy ? NULL : __real_malloc(bytes);
}

START_TEST(a_request_that_cannot_wait_hears_what_is_in_the_way)
    {
        struct node *node = node_start(too_many[_i].settings);
        struct sl_msg reply;
        struct want large = {.key = "large", .length = 4 * BIG};
        struct reserve_ask ask = {.sender = "client.1", .wants = &large, .count = 1};
        node_client(node, "client.1", 11);
        node_client(node, "client.2", 12);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        for (uint32_t i = 0; i < too_many[_i].waiting; i++) {
            ck_assert(!many_asked(node, &reply));
        }
        no_memory = too_many[_i].code == SL_ERR_NO_MEMORY;

        ck_assert(many_asked(node, &reply));

        ck_assert_int_eq(reply.code, too_many[_i].code);
        ck_assert_str_eq(reply.text.at, too_many[_i].text);
        node_end(node);
    }
END_TEST

START_TEST(a_request_whose_op_is_aborted_waits_no_longer)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 2, .wants = &one_want, .count = 1, .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));
        node_abort_op(node, "client.1", 2);
        ck_assert_uint_eq(node_metric(node, "waiting_count"), 1); /* another's */

        node_abort_op(node, "client.2", 2);

        ck_assert_uint_eq(node_metric(node, "waiting_count"), 0);
        ck_assert_int_eq(node_abort(node, "client.1", &held[2]), SL_OK);
        ck_assert(!node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 3 * BIG);
        node_end(node);
    }
END_TEST

START_TEST(a_waiting_frame_that_is_sent_again_waits_once)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct reserve_ask ask = {
            .sender = "client.2", .op_id = 2, .wants = &one_want, .count = 1, .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));
        ck_assert(!node_reserve(node, &ask, &grants)); /* the same number */
        ck_assert_uint_eq(node_metric(node, "waiting_count"), 1);

        ck_assert_int_eq(node_abort(node, "client.1", &held[0]), SL_OK);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert(!node_reserved(node, &ask, &grants)); /* one answer */
        node_end(node);
    }
END_TEST

START_TEST(nobody_overtakes_who_waits)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct want large[2] = {{.key = "l0", .length = BIG}, {.key = "l1", .length = BIG}};
        struct want small = {.key = "s", .length = 4096};
        struct reserve_ask first = {
            .sender = "client.2", .op_id = 2, .wants = large, .count = 2, .wait = true};
        struct reserve_ask second = {
            .sender = "client.3", .op_id = 3, .wants = &small, .count = 1, .wait = true};
        struct reserve_ask third = {
            .sender = "client.3", .op_id = 4, .wants = &one_want, .count = 1};
        ck_assert(!node_reserve(node, &first, &grants));
        ck_assert(!node_reserve(node, &second, &grants));

        ck_assert_int_eq(node_abort(node, "client.1", &held[0]), SL_OK);
        ck_assert(!node_reserved(node, &first, &grants)); /* needs two */
        ck_assert(!node_reserved(node, &second, &grants));
        ck_assert(node_reserve(node, &third, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert_int_eq(node_abort(node, "client.1", &held[1]), SL_OK);

        ck_assert(node_reserved(node, &first, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        ck_assert(!node_reserved(node, &second, &grants));
        ck_assert_int_eq(node_abort(node, "client.1", &held[2]), SL_OK);
        ck_assert(node_reserved(node, &second, &grants));
        node_end(node);
    }
END_TEST

START_TEST(the_death_of_who_waits_lets_the_next_one_in)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct want large[4];
        static const char *const names[] = {"l0", "l1", "l2", "l3"};
        for (uint32_t i = 0; i < 4; i++) {
            large[i] = (struct want){.key = names[i], .length = BIG};
        }
        struct reserve_ask first = {
            .sender = "client.2", .op_id = 2, .wants = large, .count = 4, .wait = true};
        struct reserve_ask second = {
            .sender = "client.3", .op_id = 3, .wants = &one_want, .count = 1, .wait = true};
        ck_assert(!node_reserve(node, &first, &grants));
        ck_assert(!node_reserve(node, &second, &grants));
        ck_assert_int_eq(node_abort(node, "client.1", &held[0]), SL_OK);
        ck_assert(!node_reserved(node, &second, &grants));

        fake_process_end(&node->fake, proc_of(12));

        ck_assert(node_reserved(node, &second, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_block_without_space_for_all_its_parts_gets_none)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct want wants[3] = {{.key = "p0", .length = HALF, .group = 1, .part = 0},
                                {.key = "p1", .length = BIG, .group = 1, .part = 1},
                                {.key = "alone", .length = HALF}};
        struct reserve_ask ask = {.sender = "client.2",
                                  .op_id = 2,
                                  .wants = wants,
                                  .count = 3,
                                  .group_key = "m/b",
                                  .part_count = 2};
        ck_assert_int_eq(node_abort(node, "client.1", &held[0]), SL_OK);

        ck_assert(node_reserve(node, &ask, &grants));

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(grants.at[1].code, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(grants.at[2].code, SL_OK); /* a smaller request is not refused with it */
        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 3 * BIG + HALF);
        node_end(node);
    }
END_TEST

START_TEST(a_waiting_block_is_granted_whole)
    {
        struct sl_item_grant held[4];
        struct node *node = node_full(held);
        struct want wants[2] = {{.key = "p0", .length = BIG, .group = 1, .part = 0},
                                {.key = "p1", .length = BIG, .group = 1, .part = 1}};
        struct reserve_ask ask = {.sender = "client.2",
                                  .op_id = 2,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2,
                                  .wait = true};
        ck_assert(!node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_abort(node, "client.1", &held[0]), SL_OK);
        ck_assert(!node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(node_metric(node, "block_count"), 0); /* nothing is kept meanwhile */

        ck_assert_int_eq(node_abort(node, "client.1", &held[1]), SL_OK);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_full_index_evicts_like_full_memory)
    {
        static const char *const settings[] = {
            "memory", "64MiB", "memory_chunk", "64MiB", "index_memory", "1MiB", NULL};
        struct node *node = node_start(settings);
        char key[16];
        node_client(node, "client.1", 11);

        for (uint32_t i = 0; i < 6000; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 64);
        }

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(node_is_visible(node, "k5999"));
        ck_assert_uint_gt(node_metric(node, "object_count"), 1000);
        ck_assert_uint_gt(node_metric(node, "evicted_count"), 0);
        ck_assert_uint_eq(node_metric(node, "evicted_bytes"),
                          node_metric(node, "evicted_count") * sl_extent_space(64));
        ck_assert_uint_gt(node_metric(node, "evict_attempt_count"), 0);
        ck_assert_uint_eq(node_metric(node, "evict_success_count"),
                          node_metric(node, "evict_attempt_count"));
        node_end(node);
    }
END_TEST

/* Units spared by one request may be evicted for the next one in the same turn. */
START_TEST(what_is_spared_is_looked_at_again)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "fresh", 64);
        reg_protect_recent(self, 1);
        ck_assert(!reg_make_index_room(self));
        reg_protect_none(self);

        ck_assert(reg_make_index_room(self));

        ck_assert(!node_is_visible(node, "fresh"));
        node_end(node);
    }
END_TEST

START_TEST(large_batches_do_not_outrun_the_eviction_of_a_full_index)
    {
        static const char *const settings[] = {
            "memory", "64MiB", "memory_chunk", "64MiB", "index_memory", "4MiB", NULL};
        static char names[4000][16];
        static const char *keys[4000];
        static struct want wants[4000];
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        for (uint32_t batch = 0; batch < 12; batch++) {
            for (uint32_t i = 0; i < SL_COUNT(wants); i++) {
                snprintf(names[i], sizeof(names[i]), "k%u.%u", batch, i);
                keys[i] = names[i];
                wants[i] = (struct want){.key = names[i], .length = 64};
            }
            struct reserve_ask ask = {
                .sender = "client.1", .op_id = batch + 1, .wants = wants, .count = SL_COUNT(wants)};

            ck_assert(node_reserve(node, &ask, &grants));

            node_commit_all(node, "client.1", keys, grants.at, SL_COUNT(wants), false, NULL);
        }
        ck_assert(node_is_visible(node, "k11.3999"));
        ck_assert(!node_is_visible(node, "k0.0"));
        node_end(node);
    }
END_TEST

START_TEST(what_went_and_why_is_remembered)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct reg_ghost ghost;
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 5; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        ck_assert_int_eq(node_remove(node, "client.1", "k4"), SL_OK);

        ck_assert(reg_ghost_find(self->ghosts, "k0", 2, &ghost));
        ck_assert_uint_eq(ghost.reason, REG_GHOST_EVICTED);
        ck_assert(reg_ghost_find(self->ghosts, "k4", 2, &ghost));
        ck_assert_uint_eq(ghost.reason, REG_GHOST_REMOVED);
        ck_assert(!reg_ghost_find(self->ghosts, "k1", 2, &ghost));
        ck_assert_uint_eq(node_metric(node, "ghost_count"), 2);
        node_end(node);
    }
END_TEST

static struct sl_item_explanation story(struct node *node, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_EXPLAIN}, reply;
    msg.body.explain.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, "client.asks", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.asks", msg.seq, &reply));
    ck_assert_int_eq((int)reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.explain_reply.items.count, 1);
    return reply.body.explain_reply.items.at[0];
}

START_TEST(a_miss_is_explained)
    {
        struct node *node = node_start(NULL);
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 5; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }
        fake_advance(&node->fake, 1000);
        ck_assert_int_eq(node_remove(node, "client.1", "k4"), SL_OK);
        (void)node_grant(node, "client.1", "open", BIG);

        ck_assert_uint_eq(story(node, "k3").code, SL_OK);
        ck_assert_str_eq(story(node, "k3").text.at, "in memory");
        ck_assert_uint_eq(story(node, "k0").code, SL_ERR_NOT_FOUND);
        ck_assert_str_eq(story(node, "k0").text.at,
                         "evicted: memory was needed; it was wanted once, stored by itself, 3 "
                         "references (0.0 s) before");
        ck_assert_uint_ge(story(node, "k0").ago_ns, 1000);
        ck_assert_str_eq(story(node, "k4").text.at, "removed");
        ck_assert_uint_eq(story(node, "open").code, SL_ERR_BUSY);
        ck_assert_str_eq(story(node, "never").text.at, "not seen since the registrar started");
        ck_assert_uint_eq(story(node, "never").ago_ns, 0);
        ck_assert_str_eq(story(node, "k4/0/kv").text.at, "removed"); /* a part of a removed one */
        ck_assert_str_eq(story(node, "/").text.at, "not seen since the registrar started");
        node_end(node);
    }
END_TEST

static const char *evicted_text(struct node *node, const char *key, char out[256])
{
    struct sl_item_explanation told = story(node, key);
    ck_assert_uint_eq(told.code, SL_ERR_NOT_FOUND);
    snprintf(out, 256, "%s", told.text.at);
    return out;
}

START_TEST(lru_explains_an_eviction_by_age_alone)
    {
        struct node *node = node_start((const char *[]){"evict_policy", "lru", NULL});
        char key[8], text[256];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
            fake_advance(&node->fake, 10 * SL_NS_PER_S);
        }

        node_put(node, "client.1", "k4", BIG);

        ck_assert_str_eq(evicted_text(node, "k0", text),
                         "evicted: memory was needed; it was unused for 40.0 s");
        node_end(node);
    }
END_TEST

START_TEST(density_explains_an_eviction_by_class_age_and_value)
    {
        struct node *node = node_start(NULL);
        char key[16], text[256];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 1200; i++) { /* 1000 references: values are computed */
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG / 2);
            fake_advance(&node->fake, SL_NS_PER_MS);
        }

        (void)evicted_text(node, "k1190", text);

        ck_assert_msg(strstr(text, "it was wanted once, stored by itself, 7 references (0.") !=
                          NULL,
                      "%s", text);
        ck_assert_msg(strstr(text, ", worth ") != NULL, "%s", text);
        node_end(node);
    }
END_TEST

START_TEST(memory_stays_below_its_ceiling_under_churn)
    {
        struct node *node = node_start(NULL);
        uint64_t seed = 12345;
        char key[24];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 3000; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1;
            snprintf(key, sizeof(key), "k%u", i);
            if (i % 7 == 0) {
                node_put_block(node, "client.1", key, 1 + (uint32_t)(seed >> 40) % 6,
                               1 + (seed >> 33) % 60000, 0);
            } else {
                node_put(node, "client.1", key, 1 + (seed >> 33) % 300000);
            }
            if (i % 100 == 0) {
                ck_assert_uint_le(node_metric(node, "used_bytes"), 4 * SL_MIB);
            }
        }
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        msg.body.remove.all = true;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0); /* no space was lost */
        node_end(node);
    }
END_TEST

static Suite *evict_suite(void)
{
    Suite *suite = suite_create("registrar_evict");
    TCase *lru = tcase_create("lru");
    tcase_set_timeout(lru, 60);
    tcase_add_test(lru, a_request_of_many_searches_for_victims_once_a_batch);
    tcase_add_test(lru, the_least_recently_committed_goes_first);
    tcase_add_test(lru, an_access_saves_an_object);
    tcase_add_test(lru, an_access_counts_also_when_its_process_ends_at_once);
    tcase_add_test(lru, another_policy_has_another_order);
    tcase_add_test(lru, the_tail_of_a_chain_goes_before_its_head);
    tcase_add_test(lru, the_last_of_blocks_committed_together_goes_first);
    tcase_add_test(lru, a_block_goes_whole);
    tcase_add_test(lru, a_full_index_evicts_like_full_memory);
    tcase_add_test(lru, what_is_spared_is_looked_at_again);
    tcase_add_test(lru, large_batches_do_not_outrun_the_eviction_of_a_full_index);
    tcase_add_test(lru, what_went_and_why_is_remembered);
    tcase_add_test(lru, a_miss_is_explained);
    tcase_add_test(lru, lru_explains_an_eviction_by_age_alone);
    tcase_add_test(lru, density_explains_an_eviction_by_class_age_and_value);
    tcase_add_test(lru, memory_stays_below_its_ceiling_under_churn);
    suite_add_tcase(suite, lru);
    TCase *pins = tcase_create("pins");
    tcase_set_timeout(pins, 60);
    tcase_add_test(pins, pinned_bytes_are_not_given_to_another);
    tcase_add_test(pins, the_death_of_a_reader_drops_its_pins);
    suite_add_tcase(suite, pins);
    TCase *wait = tcase_create("wait");
    tcase_set_timeout(wait, 60);
    tcase_add_test(wait, without_wait_a_lack_of_space_is_answered_at_once);
    tcase_add_test(wait, with_wait_a_request_is_granted_when_space_is_freed);
    tcase_add_test(wait, a_request_that_waits_ends_at_its_deadline);
    tcase_add_loop_test(wait, a_request_that_cannot_wait_hears_what_is_in_the_way, 0,
                        SL_COUNT(too_many));
    tcase_add_test(wait, a_request_whose_op_is_aborted_waits_no_longer);
    tcase_add_test(wait, a_waiting_frame_that_is_sent_again_waits_once);
    tcase_add_test(wait, nobody_overtakes_who_waits);
    tcase_add_test(wait, the_death_of_who_waits_lets_the_next_one_in);
    tcase_add_test(wait, a_block_without_space_for_all_its_parts_gets_none);
    tcase_add_test(wait, a_waiting_block_is_granted_whole);
    suite_add_tcase(suite, wait);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(evict_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
