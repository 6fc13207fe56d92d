/* tests/unit/actors/registrar/registrar_terms_test.c - leases, pins and bundles: which values are
 * evicted and removed, and when. */
#include "actors/registrar/memory/evict.h"
#include "ipc/shm/sl_leases.h"
#include "tests/unit/actors/registrar/registrar_support.h"

static struct grants grants;

/* 4 MiB of memory hold four objects of a MiB. */
#define BIG    SL_MIB
#define TTL    (2 * SL_NS_PER_S)
#define MARGIN SL_NS_PER_MS /* a lease's end is rounded up to 65 us */

static const char *const with_leases[] = {"lease_ttl", "2s", NULL};

static struct sl_leases *leases_of(struct node *node)
{
    struct sl_leases *leases = NULL;
    struct sl_error why = {0};
    ck_assert_msg(sl_leases_open(node->fake.paths.shm_dir, node->view, &leases, &why) == SL_OK,
                  "%s", why.text);
    return leases;
}

/* Returns the end of the lease that this lookup takes. */
static uint64_t look(struct node *node, const struct sl_leases *leases, const char *key)
{
    struct sl_key text = {key, (uint32_t)strlen(key)};
    struct sl_entry entry;
    uint64_t end_ns = 0;
    ck_assert_int_eq(sl_leases_find(leases, &text, node->fake.env.now_ns, &entry, &end_ns), SL_OK);
    return end_ns;
}

struct terms {
    const char *bundle;
    uint64_t soft_pin_ns;
    bool hard_pin, replace;
};

static sl_err put_with(struct node *node, const char *key, uint64_t length, struct terms terms)
{
    struct want want = {.key = key, .length = length, .bundle = terms.bundle};
    struct reserve_ask ask = {.sender = "client.1",
                              .wants = &want,
                              .count = 1,
                              .hard_pin = terms.hard_pin,
                              .replace = terms.replace,
                              .soft_pin_ns = terms.soft_pin_ns};
    ck_assert(node_reserve(node, &ask, &grants));
    if (grants.code != SL_OK || grants.at[0].code != SL_OK) {
        return grants.code != SL_OK ? grants.code : (sl_err)grants.at[0].code;
    }
    return node_commit(node, "client.1", key, &grants.at[0]);
}

static sl_err put(struct node *node, const char *key)
{
    return put_with(node, key, BIG, (struct terms){0});
}

static sl_err remove_unless_leased(struct node *node, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
    msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    msg.body.remove.respect_leases = true;
    msg.body.remove.report_busy = true;
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return (sl_err)reply.body.remove_reply.codes.at[0];
}

static struct node *start(const char *const *settings)
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    return node;
}

/* Restarts client and registrar after a kill; leases keep their mapping. */
static void restart(struct node *node)
{
    node_restart(node);
    node_client(node, "client.1", 11);
}

START_TEST(a_leased_value_is_passed_by_until_its_lease_ends)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        for (uint32_t i = 0; i < 4; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }
        uint64_t end_ns = look(node, leases, "k0");
        ck_assert_uint_ge(end_ns, node->fake.env.now_ns + TTL);

        ck_assert_int_eq(put(node, "k4"), SL_OK);

        ck_assert(node_is_visible(node, "k0"));
        ck_assert(!node_is_visible(node, "k1"));
        ck_assert_uint_eq(node_metric(node, "leased_count"), 1);
        fake_advance(&node->fake, TTL + MARGIN); /* a use: it moves after k2, k3, k4 */
        ck_assert_uint_eq(node_metric(node, "leased_count"), 0);
        ck_assert_int_eq(put(node, "k5"), SL_OK);
        ck_assert(node_is_visible(node, "k0"));
        ck_assert(!node_is_visible(node, "k2"));
        for (uint32_t i = 6; i < 9; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }
        ck_assert(!node_is_visible(node, "k0"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_value_whose_lease_is_renewed_stays)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        ck_assert_int_eq(put(node, "hot"), SL_OK);
        for (uint32_t i = 0; i < 40; i++) {
            char key[8];
            (void)look(node, leases, "hot");
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
            fake_advance(&node->fake, TTL / 2);
        }

        ck_assert(node_is_visible(node, "hot"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_node_full_of_leases_has_no_space_until_they_end)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        struct want want = {.key = "waits", .length = BIG};
        struct reserve_ask ask = {.sender = "client.1",
                                  .wants = &want,
                                  .count = 1,
                                  .wait = true,
                                  .budget_ns = 10 * SL_NS_PER_S};
        for (uint32_t i = 0; i < 4; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
            (void)look(node, leases, key);
        }

        ck_assert_int_eq(put(node, "k4"), SL_ERR_NO_SPACE);
        ck_assert_uint_eq(node_metric(node, "evict_skipped_count"), 4);
        ck_assert_int_eq(put(node, "k4"), SL_ERR_NO_SPACE); /* they are not considered again */
        ck_assert_uint_eq(node_metric(node, "evict_skipped_count"), 4);
        bool answered = node_reserve(node, &ask, &grants);
        for (uint32_t i = 0; i < 100 && !answered; i++) {
            fake_advance(&node->fake, TTL / 10);
            answered = node_reserved(node, &ask, &grants);
        }

        ck_assert(answered);
        ck_assert_int_eq(grants.code, SL_OK);
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(removal_heeds_leases_when_it_is_told_to)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        ck_assert_int_eq(put(node, "a"), SL_OK);
        ck_assert_int_eq(put(node, "b"), SL_OK);
        ck_assert_int_eq(put(node, "c"), SL_OK);
        (void)look(node, leases, "a");
        (void)look(node, leases, "b");

        ck_assert_int_eq(remove_unless_leased(node, "a"), SL_ERR_LEASED);
        ck_assert_int_eq(remove_unless_leased(node, "c"), SL_OK); /* it was not looked up */
        ck_assert_int_eq(remove_unless_leased(node, "c"), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(node_remove(node, "client.1", "b"), SL_OK);
        ck_assert(node_is_visible(node, "a"));
        ck_assert_uint_eq(node_metric(node, "remove_leased_count"), 1);
        fake_advance(&node->fake, TTL + MARGIN);

        ck_assert_int_eq(remove_unless_leased(node, "a"), SL_OK);
        ck_assert(!node_is_visible(node, "a"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_removal_of_everything_that_respects_leases_is_refused)
    {
        struct node *node = start(with_leases);
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        msg.body.remove.all = true;
        msg.body.remove.respect_leases = true;

        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        node_end(node);
    }
END_TEST

START_TEST(what_is_being_written_is_told_from_what_is_not_there)
    {
        struct node *node = start(NULL);
        struct sl_item_grant grant = node_grant(node, "client.1", "key", BIG);

        ck_assert_int_eq(remove_unless_leased(node, "key"), SL_ERR_BUSY);
        ck_assert_int_eq(node_remove(node, "client.1", "key"), SL_ERR_NOT_FOUND); /* as ever */

        ck_assert_int_eq(node_commit(node, "client.1", "key", &grant), SL_OK);
        ck_assert_int_eq(remove_unless_leased(node, "key"), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_hard_pinned_value_stays_until_it_is_removed)
    {
        struct node *node = start(NULL);
        char key[8];
        ck_assert_int_eq(put_with(node, "pinned", BIG, (struct terms){.hard_pin = true}), SL_OK);
        for (uint32_t i = 0; i < 12; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
            if (i == 6) {
                restart(node);
            }
        }

        ck_assert(node_is_visible(node, "pinned"));
        ck_assert_uint_eq(node_metric(node, "hard_pinned_count"), 1);
        ck_assert_int_eq(remove_unless_leased(node, "pinned"), SL_OK);
        ck_assert(!node_is_visible(node, "pinned"));
        ck_assert_uint_eq(node_metric(node, "hard_pinned_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(hard_pinned_values_may_fill_the_memory)
    {
        struct node *node = start(NULL);
        struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
        for (uint32_t i = 0; i < 4; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put_with(node, key, BIG, (struct terms){.hard_pin = true}), SL_OK);
        }

        ck_assert_int_eq(put(node, "k4"), SL_ERR_NO_SPACE);

        msg.body.remove.all = true;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_int_eq(put(node, "k4"), SL_OK);
        ck_assert(!node_is_visible(node, "k0") && !node_is_visible(node, "k3"));
        node_end(node);
    }
END_TEST

START_TEST(a_soft_pinned_value_goes_when_nothing_else_is_left)
    {
        struct node *node = start(NULL);
        struct terms soft = {.soft_pin_ns = 60 * SL_NS_PER_S};
        ck_assert_int_eq(put_with(node, "s0", BIG, soft), SL_OK);
        ck_assert_int_eq(put_with(node, "s1", BIG, soft), SL_OK);
        for (uint32_t i = 0; i < 6; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }
        ck_assert(node_is_visible(node, "s0") && node_is_visible(node, "s1"));
        ck_assert_uint_eq(node_metric(node, "soft_pinned_count"), 2);
        restart(node);
        ck_assert_uint_eq(node_metric(node, "soft_pinned_count"), 2);

        ck_assert_int_eq(put_with(node, "h0", BIG, (struct terms){.hard_pin = true}), SL_OK);
        ck_assert_int_eq(put_with(node, "h1", BIG, (struct terms){.hard_pin = true}), SL_OK);
        ck_assert(node_is_visible(node, "s0") && node_is_visible(node, "s1"));
        ck_assert_int_eq(put_with(node, "h2", BIG, (struct terms){.hard_pin = true}), SL_OK);

        ck_assert(!node_is_visible(node, "s0"));
        ck_assert(node_is_visible(node, "s1") && node_is_visible(node, "h0") &&
                  node_is_visible(node, "h1"));
        node_end(node);
    }
END_TEST

START_TEST(a_soft_pin_that_is_over_pins_nothing)
    {
        struct node *node = start(NULL);
        struct sl_entry entry;
        ck_assert_int_eq(
            put_with(node, "soft", BIG, (struct terms){.soft_pin_ns = 5 * SL_NS_PER_S}), SL_OK);
        ck_assert(node_entry(node, "soft", &entry));
        ck_assert_uint_eq(entry.soft_pin_end_ns, node->fake.env.now_ns + 5 * SL_NS_PER_S);
        fake_advance(&node->fake, 5 * SL_NS_PER_S + MARGIN);
        ck_assert_uint_eq(node_metric(node, "soft_pinned_count"), 0);

        for (uint32_t i = 0; i < 4; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }

        ck_assert(!node_is_visible(node, "soft"));
        node_end(node);
    }
END_TEST

START_TEST(a_soft_pin_beyond_its_maximum_is_invalid)
    {
        static const char *const settings[] = {"soft_pin_max", "1min", NULL};
        struct node *node = start(settings);

        ck_assert_int_eq(
            put_with(node, "a", BIG, (struct terms){.soft_pin_ns = 60 * SL_NS_PER_S + 1}),
            SL_ERR_INVALID);
        ck_assert_int_eq(put_with(node, "a", BIG, (struct terms){.soft_pin_ns = 60 * SL_NS_PER_S}),
                         SL_OK);
        node_end(node);
    }
END_TEST

/* ---- bundles ---- */

static void put_bundle(struct node *node)
{
    struct terms terms = {.bundle = "b"};
    ck_assert_int_eq(put_with(node, "m0", BIG, terms), SL_OK);
    ck_assert_int_eq(put(node, "k0"), SL_OK);
    ck_assert_int_eq(put_with(node, "m1", BIG, terms), SL_OK);
    ck_assert_int_eq(put(node, "k1"), SL_OK);
}

START_TEST(a_bundle_is_evicted_as_a_whole)
    {
        struct node *node = start(NULL);
        put_bundle(node);
        if (_i == 1) {
            restart(node);
        }

        ck_assert_int_eq(put(node, "k2"), SL_OK);

        ck_assert(!node_is_visible(node, "m0") && !node_is_visible(node, "m1"));
        ck_assert(node_is_visible(node, "k0") && node_is_visible(node, "k1") &&
                  node_is_visible(node, "k2"));
        node_end(node);
    }
END_TEST

START_TEST(a_look_up_of_a_member_keeps_its_bundle)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        put_bundle(node);
        (void)look(node, leases, "m1");
        if (_i == 1) {
            restart(node);
        }

        ck_assert_int_eq(remove_unless_leased(node, "m0"), SL_ERR_LEASED);
        ck_assert_int_eq(put(node, "k2"), SL_OK);
        ck_assert_int_eq(put(node, "k3"), SL_OK);
        ck_assert(node_is_visible(node, "m0") && node_is_visible(node, "m1"));
        ck_assert(!node_is_visible(node, "k0") && !node_is_visible(node, "k1"));
        fake_advance(&node->fake, TTL + MARGIN);

        ck_assert_int_eq(remove_unless_leased(node, "m0"), SL_OK); /* the others stay */
        ck_assert(!node_is_visible(node, "m0") && node_is_visible(node, "m1"));
        ck_assert_uint_ge(look(node, leases, "m1"), node->fake.env.now_ns + TTL);
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_bundle_with_a_pinned_or_unfinished_member_stays)
    {
        struct node *node = start(NULL);
        struct want want = {.key = "m2", .length = 4096, .bundle = "b"};
        struct reserve_ask ask = {
            .sender = "client.1", .wants = &want, .count = 1, .ttl_ns = 60 * SL_NS_PER_S};
        struct terms soft = {.bundle = "b", .soft_pin_ns = 60 * SL_NS_PER_S};
        ck_assert_int_eq(put_with(node, "m0", BIG, (struct terms){.bundle = "b"}), SL_OK);
        if (_i == 0) {
            ck_assert(node_reserve(node, &ask, &grants));
            ck_assert_uint_eq(grants.at[0].code, SL_OK);
        } else {
            struct terms hard = {.bundle = "b", .hard_pin = true};
            ck_assert_int_eq(put_with(node, "m2", 4096, _i == 1 ? hard : soft), SL_OK);
        }
        struct sl_item_grant grant = grants.at[0];
        for (uint32_t i = 0; i < 6; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }
        ck_assert(node_is_visible(node, "m0"));
        if (_i == 0) { /* when it is finished, all go together */
            ck_assert_int_eq(node_commit(node, "client.1", "m2", &grant), SL_OK);
        } else if (_i == 1) {
            ck_assert_int_eq(node_remove(node, "client.1", "m2"), SL_OK);
        }
        fake_advance(&node->fake, 61 * SL_NS_PER_S);

        for (uint32_t i = 6; i < 12; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }

        ck_assert(!node_is_visible(node, "m0") && !node_is_visible(node, "m2"));
        node_end(node);
    }
END_TEST

START_TEST(a_value_that_replaces_another_stays_in_its_bundle)
    {
        struct node *node = start(NULL);
        struct terms terms = {.bundle = "b", .replace = true};
        ck_assert_int_eq(put_with(node, "m0", BIG, terms), SL_OK);
        ck_assert_int_eq(put(node, "k0"), SL_OK);
        ck_assert_int_eq(put_with(node, "m1", BIG, terms), SL_OK);
        ck_assert_int_eq(put_with(node, "m0", BIG, terms), SL_OK);
        ck_assert_int_eq(put(node, "k1"), SL_OK);
        ck_assert_int_eq(put(node, "k2"), SL_OK);
        ck_assert(!node_is_visible(node, "k0") && node_is_visible(node, "m0") &&
                  node_is_visible(node, "m1"));

        ck_assert_int_eq(put(node, "k3"), SL_OK);

        ck_assert(!node_is_visible(node, "m0") && !node_is_visible(node, "m1"));
        ck_assert(node_is_visible(node, "k1") && node_is_visible(node, "k2"));
        node_end(node);
    }
END_TEST

/* A member that has left memory already is not counted again: eviction would continue without
 * effect. */
START_TEST(a_bundle_that_cannot_leave_memory_frees_nothing)
    {
        static const char *const with_disk[] = {"disk", "64MiB", NULL};
        static const char *const keys[] = {"m0", "m1"};
        struct node *node = start(with_disk);
        struct registrar *self = node->fake.state;
        struct terms terms = {.bundle = "b"};
        const char note[8] = "filling";
        sl_ref blob;
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_int_eq(put_with(node, keys[i], 4096, terms), SL_OK);
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        }
        ck_assert_uint_gt(reg_evict(self, 1), 0);
        struct sl_text text = sl_text_of(keys[1]);
        struct sl_msg msg = {.type = SL_MSG_BRING};
        msg.body.bring.keys = (struct sl_texts){&text, 1};
        fake_give(&node->fake, "client.1", &msg);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        while (sl_index_blob_put(self->index, note, sizeof(note), 999, &blob, NULL) == SL_OK) {
        }

        ck_assert_uint_eq(reg_evict(self, 1), 0);

        node_end(node);
    }
END_TEST

START_TEST(bundles_of_many_members_come_and_go)
    {
        struct node *node = start(NULL);
        char key[16], bundle[16];
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < 1500; i++) {
                snprintf(key, sizeof(key), "m%u-%u", round, i);
                snprintf(bundle, sizeof(bundle), "b%u-%u", round, i % 5);
                ck_assert_int_eq(put_with(node, key, 4096, (struct terms){.bundle = bundle}),
                                 SL_OK);
            }
        }
        /* Space for 1024. A bundle contains all that was put since it was last evicted. */
        for (uint32_t b = 0; b < 5; b++) {
            bool before = false;
            for (uint32_t i = b; i < 1500; i += 5) {
                snprintf(key, sizeof(key), "m2-%u", i);
                bool there = node_is_visible(node, key);
                ck_assert_msg(there || !before, "a hole at %s", key);
                before = there;
            }
            ck_assert(before);
        }
        node_end(node);
    }
END_TEST

/* ---- blocks that a lookup holds; by default nodes let it ---- */

#define BLOCK_PARTS 2u

/* Returns the end of the hold that this lookup takes; 0: not found. */
static uint64_t hold(struct node *node, const struct sl_leases *leases, const char *block)
{
    struct sl_key text = {block, (uint32_t)strlen(block)};
    sl_err code = SL_ERR_INTERNAL;
    uint64_t end_ns =
        sl_leases_find_group_batch(leases, &text, 1, node->fake.env.now_ns, 2 * SL_NS_PER_S, &code);
    ck_assert(code == SL_OK || code == SL_ERR_NOT_FOUND);
    return code == SL_OK ? end_ns : 0;
}

/* Four blocks fill the memory. */
static void blocks_put(struct node *node, const char *prefix, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char block[32];
        snprintf(block, sizeof(block), "m/%s%u", prefix, i);
        node_put_block(node, "client.1", block, BLOCK_PARTS, BIG / BLOCK_PARTS, 0);
    }
}

static bool block_there(struct node *node, const char *block)
{
    return sl_index_find_group(node->view, block, (uint32_t)strlen(block)) == SL_OK;
}

START_TEST(a_block_that_a_look_up_holds_is_passed_by_until_its_time_ends)
    {
        struct node *node = start(NULL);
        struct sl_leases *leases = leases_of(node);
        blocks_put(node, "a", 4);
        ck_assert_uint_ge(hold(node, leases, "m/a0"), node->fake.env.now_ns + 2 * SL_NS_PER_S);

        blocks_put(node, "b", 3);

        ck_assert(block_there(node, "m/a0"));
        ck_assert(!block_there(node, "m/a1") && !block_there(node, "m/a3"));
        ck_assert_uint_eq(node_metric(node, "leased_count"), 1);
        fake_advance(&node->fake, 2 * SL_NS_PER_S + MARGIN);
        ck_assert_uint_eq(node_metric(node, "leased_count"), 0);
        blocks_put(node, "c", 4);
        ck_assert(!block_there(node, "m/a0"));
        ck_assert_uint_eq(hold(node, leases, "m/a0"), 0);
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_killed_registrar_keeps_held_blocks)
    {
        struct node *node = start(NULL);
        struct sl_leases *leases = leases_of(node);
        blocks_put(node, "a", 4);
        (void)hold(node, leases, "m/a0");

        restart(node);
        blocks_put(node, "b", 2);

        ck_assert(block_there(node, "m/a0") && !block_there(node, "m/a1"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

/* Parts count as before when objects are leased as well. */
START_TEST(a_part_that_is_leased_keeps_its_block_open)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        blocks_put(node, "a", 4);
        (void)look(node, leases, "m/a0/1");

        blocks_put(node, "b", 1);

        ck_assert(block_there(node, "m/a0") && !block_there(node, "m/a1"));
        ck_assert_uint_ne(hold(node, leases, "m/a0"), 0);
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_removal_takes_what_a_look_up_holds)
    {
        struct node *node = start(NULL);
        struct sl_leases *leases = leases_of(node);
        blocks_put(node, "a", 1);
        (void)hold(node, leases, "m/a0");

        ck_assert_int_eq(node_remove(node, "client.1", "m/a0"), SL_OK);

        ck_assert(!block_there(node, "m/a0"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_node_may_hold_no_blocks)
    {
        static const char *const without[] = {"block_lease", "0", "lease_ttl", "2s", NULL};
        struct node *node = start(without);
        struct sl_leases *leases = leases_of(node);
        blocks_put(node, "a", 4);
        ck_assert_uint_eq(hold(node, leases, "m/a0"), 0);

        blocks_put(node, "b", 1);

        ck_assert(!block_there(node, "m/a0"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

/* ---- with a disk ---- */

static const char *const with_disk[] = {"lease_ttl", "2s", "disk", "64MiB", NULL};

START_TEST(on_disk_too_what_is_leased_may_leave_memory_last)
    {
        struct node *node = start(with_disk);
        struct sl_leases *leases = leases_of(node);
        struct sl_entry entry;
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_int_eq(put_with(node, "hard", BIG, (struct terms){.hard_pin = true}), SL_OK);
        ck_assert_int_eq(put(node, "leased"), SL_OK);
        ck_assert_int_eq(put(node, "k0"), SL_OK);
        ck_assert_int_eq(put(node, "k1"), SL_OK);
        (void)tierer_write(node, 1, SL_OK);
        (void)look(node, leases, "leased");

        ck_assert_int_eq(put(node, "k2"), SL_OK);
        (void)tierer_write(node, 1, SL_OK);
        ck_assert(node_entry(node, "leased", &entry));
        ck_assert_uint_ne(entry.extent.generation, 0);
        ck_assert(node_entry(node, "k0", &entry));
        ck_assert_uint_eq(entry.extent.generation, 0);
        (void)look(node, leases, "k1");
        (void)look(node, leases, "k2");
        ck_assert_int_eq(put(node, "k3"), SL_OK); /* nothing else is left */

        ck_assert(node_entry(node, "leased", &entry));
        ck_assert_uint_eq(entry.extent.generation, 0);
        ck_assert_int_eq(remove_unless_leased(node, "leased"), SL_ERR_LEASED);
        ck_assert(node_entry(node, "hard", &entry));
        ck_assert_uint_ne(entry.extent.generation, 0);
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

START_TEST(a_killed_registrar_keeps_leases)
    {
        struct node *node = start(with_leases);
        struct sl_leases *leases = leases_of(node);
        for (uint32_t i = 0; i < 4; i++) {
            char key[8];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put(node, key), SL_OK);
        }
        (void)look(node, leases, "k0");

        restart(node);

        ck_assert_int_eq(remove_unless_leased(node, "k0"), SL_ERR_LEASED);
        ck_assert_int_eq(put(node, "k4"), SL_OK);
        ck_assert(node_is_visible(node, "k0") && !node_is_visible(node, "k1"));
        sl_leases_close(&leases);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_terms");
    TCase *tcase = tcase_create("terms");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_leased_value_is_passed_by_until_its_lease_ends);
    tcase_add_test(tcase, a_value_whose_lease_is_renewed_stays);
    tcase_add_test(tcase, a_node_full_of_leases_has_no_space_until_they_end);
    tcase_add_test(tcase, removal_heeds_leases_when_it_is_told_to);
    tcase_add_test(tcase, a_removal_of_everything_that_respects_leases_is_refused);
    tcase_add_test(tcase, what_is_being_written_is_told_from_what_is_not_there);
    tcase_add_test(tcase, a_hard_pinned_value_stays_until_it_is_removed);
    tcase_add_test(tcase, hard_pinned_values_may_fill_the_memory);
    tcase_add_test(tcase, a_soft_pinned_value_goes_when_nothing_else_is_left);
    tcase_add_test(tcase, a_soft_pin_that_is_over_pins_nothing);
    tcase_add_test(tcase, a_soft_pin_beyond_its_maximum_is_invalid);
    tcase_add_loop_test(tcase, a_bundle_is_evicted_as_a_whole, 0, 2);
    tcase_add_loop_test(tcase, a_look_up_of_a_member_keeps_its_bundle, 0, 2);
    tcase_add_loop_test(tcase, a_bundle_with_a_pinned_or_unfinished_member_stays, 0, 3);
    tcase_add_test(tcase, a_value_that_replaces_another_stays_in_its_bundle);
    tcase_add_test(tcase, a_bundle_that_cannot_leave_memory_frees_nothing);
    tcase_add_test(tcase, bundles_of_many_members_come_and_go);
    tcase_add_test(tcase, on_disk_too_what_is_leased_may_leave_memory_last);
    tcase_add_test(tcase, a_killed_registrar_keeps_leases);
    tcase_add_test(tcase, a_block_that_a_look_up_holds_is_passed_by_until_its_time_ends);
    tcase_add_test(tcase, a_killed_registrar_keeps_held_blocks);
    tcase_add_test(tcase, a_part_that_is_leased_keeps_its_block_open);
    tcase_add_test(tcase, a_removal_takes_what_a_look_up_holds);
    tcase_add_test(tcase, a_node_may_hold_no_blocks);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
