/* tests/unit/actors/registrar/registrar_contributions_test.c - memory that processes contribute to
 * the node: the table, which contribution is charged, what happens when one ends, restarts, and
 * that the sums are exact. */
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/registrar.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include <sys/statvfs.h>
#include <unistd.h>

static struct grants grants;

#define HALF (SL_MIB / 2)

static const char *const settings[] = {"contributions", "true", NULL};
static const char *const disk_settings[] = {"contributions", "true", "disk", "64MiB", NULL};

/* ---- asking ---- */

static sl_err contribute(struct node *node, const char *sender, const char *name, uint64_t length,
                         bool lasting)
{
    struct sl_msg msg = {.type = SL_MSG_CONTRIBUTE}, reply;
    msg.body.contribute.name = sl_text_of(name);
    msg.body.contribute.length_bytes = length;
    msg.body.contribute.lasting = lasting;
    fake_give(&node->fake, sender, &msg);
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
    return reply.code;
}

static sl_err withdraw(struct node *node, const char *sender, const char *name)
{
    struct sl_msg msg = {.type = SL_MSG_WITHDRAW}, reply;
    msg.body.withdraw.name = sl_text_of(name);
    fake_give(&node->fake, sender, &msg);
    for (uint32_t i = 0; i < 100; i++) {
        if (fake_take_reply(&node->fake, sender, msg.seq, &reply)) {
            return reply.code;
        }
        fake_advance(&node->fake, SL_NS_PER_MS);
    }
    return SL_ERR_INCOMPLETE; /* it waits */
}

struct listed {
    uint32_t count;
    struct sl_item_contribution at[64];
    char names[64][256];
};

static void list(struct node *node, struct listed *out)
{
    struct sl_msg msg = {.type = SL_MSG_CONTRIBUTIONS}, reply;
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    out->count = (uint32_t)reply.body.contributions_reply.items.count;
    for (uint32_t i = 0; i < out->count; i++) {
        out->at[i] = reply.body.contributions_reply.items.at[i];
        snprintf(out->names[i], sizeof(out->names[i]), "%s", out->at[i].name.at);
    }
}

static const struct sl_item_contribution *listed_at(const struct listed *all, const char *name)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (strcmp(all->names[i], name) == 0) {
            return &all->at[i];
        }
    }
    return NULL;
}

static uint64_t used_of(struct node *node, const char *name)
{
    struct listed all;
    list(node, &all);
    const struct sl_item_contribution *at = listed_at(&all, name);
    return at == NULL ? UINT64_MAX : at->used_bytes;
}

/* ---- the invariant ---- */

static void sums_are_exact(struct node *node)
{
    const struct registrar *self = node->fake.state;
    uint64_t used[REG_CONTRIBUTIONS_MAX] = {0};
    uint64_t counts[REG_CONTRIBUTIONS_MAX] = {0};
    uint64_t cursor = 0, total = 0;
    struct sl_entry entry;
    while (sl_index_walk(self->index, &cursor, &entry)) {
        bool extent = entry.kind != SL_RECORD_GROUP && entry.kind != SL_RECORD_BLOB;
        if (!extent || entry.extent.generation == 0) {
            ck_assert(!extent || entry.contribution == 0);
            continue;
        }
        if (entry.contribution != 0) {
            used[entry.contribution - 1] += sl_extent_space(entry.extent.length_bytes);
            counts[entry.contribution - 1]++;
        }
    }
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        const struct reg_contribution *at = &self->contributions->all[i];
        ck_assert_uint_eq(at->used_bytes, used[i]);
        ck_assert_uint_eq(at->value_count, counts[i]);
        if (at->state == REG_CONTRIBUTION_ACTIVE) {
            ck_assert_uint_le(at->used_bytes, at->length_bytes);
            total += at->length_bytes;
        }
        ck_assert(at->state != REG_CONTRIBUTION_FREE || used[i] == 0);
    }
    ck_assert_uint_eq(self->contributions->on ? self->space.contributed_bytes : 0, total);
    ck_assert_uint_le(total, sl_arena_data_bytes(self->arena));
}

static void settle(struct node *node)
{
    for (uint32_t i = 0; i < 20; i++) {
        fake_advance(&node->fake, 20 * SL_NS_PER_MS);
    }
    sums_are_exact(node);
}

/* ---- putting ---- */

static sl_err put_where(struct node *node, const char *key, uint64_t length, const char *first,
                        const char *second)
{
    struct want want = {.key = key, .length = length};
    struct reserve_ask ask = {.sender = "client.1",
                              .wants = &want,
                              .count = 1,
                              .contributions = {first, second},
                              .contribution_count = first == NULL    ? 0
                                                    : second == NULL ? 1
                                                                     : 2};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_int_eq(grants.code, SL_OK);
    if (grants.at[0].code != SL_OK) {
        return (sl_err)grants.at[0].code;
    }
    return node_commit(node, "client.1", key, &grants.at[0]);
}

static void explained(struct node *node, const char *key, char text[256])
{
    struct sl_text name = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_EXPLAIN}, reply;
    msg.body.explain.keys = (struct sl_texts){&name, 1};
    fake_give(&node->fake, "client.1", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
    snprintf(text, 256, "%s", reply.body.explain_reply.items.at[0].text.at);
}

static struct node *node_with_two(const char *const *with)
{
    struct node *node = node_start(with);
    node_client(node, "client.1", 11);
    node_client(node, "client.2", 12);
    ck_assert_int_eq(contribute(node, "client.1", "a:1", SL_MIB, false), SL_OK);
    ck_assert_int_eq(contribute(node, "client.2", "b:1", SL_MIB, false), SL_OK);
    return node;
}

/* ---- the table ---- */

START_TEST(a_node_without_the_setting_takes_none)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);

        ck_assert_int_eq(contribute(node, "client.1", "a", 4096, false), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_ERR_UNSUPPORTED);

        node_put(node, "client.1", "k", SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(without_contributions_there_is_no_room)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);

        ck_assert_int_eq(put_where(node, "k", 100, NULL, NULL), SL_ERR_NO_SPACE);

        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        ck_assert_int_eq(put_where(node, "k", 100, NULL, NULL), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(names_are_unique_and_requests_may_be_repeated)
    {
        struct node *node = node_with_two(settings);

        ck_assert_int_eq(contribute(node, "client.1", "a:1", SL_MIB, false), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "a:1", SL_MIB / 2, false), SL_ERR_EXISTS);
        ck_assert_int_eq(contribute(node, "client.2", "a:1", SL_MIB, false), SL_ERR_EXISTS);
        ck_assert_int_eq(contribute(node, "client.2", "a:1", SL_MIB, true), SL_ERR_EXISTS);
        ck_assert_int_eq(contribute(node, "stranger", "c:1", SL_MIB, true), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(withdraw(node, "client.2", "a:1"), SL_ERR_PERMISSION);
        ck_assert_int_eq(withdraw(node, "client.2", "no"), SL_ERR_NOT_FOUND);

        struct listed all;
        list(node, &all);
        ck_assert_uint_eq(all.count, 2);
        ck_assert_uint_eq(listed_at(&all, "a:1")->pid, 11);
        ck_assert_uint_eq(listed_at(&all, "b:1")->length_bytes, SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(memory_is_the_ceiling_of_all_together)
    {
        struct node *node = node_start(settings); /* 4 MiB */
        struct sl_msg msg = {.type = SL_MSG_CONTRIBUTE}, reply;
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", 3 * SL_MIB, false), SL_OK);
        msg.body.contribute.name = sl_text_of("b");
        msg.body.contribute.length_bytes = 2 * SL_MIB;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));

        ck_assert_int_eq(reply.code, SL_ERR_NO_SPACE);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "2097152"));
        ck_assert_ptr_nonnull(strstr(reply.text.at, "4194304"));
        ck_assert_ptr_nonnull(strstr(reply.text.at, "setting memory"));
        ck_assert_int_eq(contribute(node, "client.1", "b", UINT64_MAX, false), SL_ERR_NO_SPACE);
        ck_assert_int_eq(contribute(node, "client.1", "b", SL_MIB, false), SL_OK);
        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "c", 3 * SL_MIB, false), SL_OK);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(more_than_shared_memory_has_is_refused)
    {
        struct statvfs room;
        ck_assert_int_eq(statvfs("/dev/shm", &room), 0);
        uint64_t all_bytes = (uint64_t)room.f_blocks * room.f_frsize;
        char memory[32];
        (void)snprintf(memory, sizeof(memory), "%ju",
                       (uintmax_t)(2 * all_bytes / SL_GIB * SL_GIB + SL_GIB));
        const char *const with[] = {"contributions", "true", "memory", memory, NULL};
        struct node *node = node_start(with);
        struct sl_msg msg = {.type = SL_MSG_CONTRIBUTE}, reply;
        node_client(node, "client.1", 11);
        msg.body.contribute.name = sl_text_of("a");
        msg.body.contribute.length_bytes = all_bytes + SL_MIB;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));

        ck_assert_int_eq(reply.code, SL_ERR_NO_SPACE);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "df -h /dev/shm"));
        ck_assert_int_eq(contribute(node, "client.1", "b", SL_MIB, false), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(sixty_four_are_all)
    {
        struct node *node = node_start(settings);
        char name[16];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 64; i++) {
            snprintf(name, sizeof(name), "c%u", i);
            ck_assert_int_eq(contribute(node, "client.1", name, 4096, false), SL_OK);
        }

        ck_assert_int_eq(contribute(node, "client.1", "one more", 4096, false), SL_ERR_LIMIT);

        ck_assert_int_eq(withdraw(node, "client.1", "c7"), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "one more", 4096, false), SL_OK);
        node_end(node);
    }
END_TEST

/* ---- who is charged ---- */

START_TEST(preferred_ones_are_charged_first)
    {
        struct node *node = node_with_two(settings);
        struct sl_entry entry;

        ck_assert_int_eq(put_where(node, "k0", HALF, "b:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "k1", HALF, "nobody", "b:1"), SL_OK);
        ck_assert_uint_eq(used_of(node, "b:1"), SL_MIB);
        ck_assert_uint_eq(used_of(node, "a:1"), 0);

        /* a full one is passed over */
        ck_assert_int_eq(put_where(node, "k2", HALF, "b:1", NULL), SL_OK);
        ck_assert_uint_eq(used_of(node, "a:1"), HALF);
        ck_assert(node_entry(node, "k0", &entry));
        ck_assert_uint_eq(entry.contribution, 2);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(both_fill_up_without_a_wish)
    {
        struct node *node = node_with_two(settings);
        char key[16];
        for (uint32_t i = 0; i < 200; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put_where(node, key, 4096, NULL, NULL), SL_OK);
        }

        ck_assert_uint_gt(used_of(node, "a:1"), 40 * 4096);
        ck_assert_uint_gt(used_of(node, "b:1"), 40 * 4096);
        ck_assert_uint_eq(used_of(node, "a:1") + used_of(node, "b:1"), 200 * 4096);
        node_end(node);
    }
END_TEST

START_TEST(without_a_wish_the_emptiest_is_charged)
    {
        struct node *node = node_with_two(settings);
        char key[16];
        for (uint32_t i = 0; i < 64; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put_where(node, key, 4096, NULL, NULL), SL_OK);
        }

        ck_assert_uint_eq(used_of(node, "a:1"), 32 * 4096);
        ck_assert_uint_eq(used_of(node, "b:1"), 32 * 4096);
        node_end(node);
    }
END_TEST

START_TEST(a_full_node_evicts_the_oldest_until_one_has_room)
    {
        struct node *node = node_with_two(settings);
        ck_assert_int_eq(put_where(node, "b0", HALF, "b:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "a0", HALF, "a:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "b1", HALF, "b:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "a1", HALF, "a:1", NULL), SL_OK);

        ck_assert_int_eq(put_where(node, "x", HALF, "a:1", NULL), SL_OK); /* a wish only */

        ck_assert(!node_is_visible(node, "b0"));
        ck_assert(node_is_visible(node, "a0") && node_is_visible(node, "b1") &&
                  node_is_visible(node, "a1"));
        ck_assert_uint_eq(used_of(node, "b:1"), SL_MIB);
        ck_assert_uint_eq(node_metric(node, "contributed_used_bytes"), 2 * SL_MIB);
        /* a whole MiB needs all of one: as many values leave as it takes, of any owner */
        ck_assert_int_eq(put_where(node, "y", SL_MIB, NULL, NULL), SL_OK);
        ck_assert(node_is_visible(node, "y"));
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(what_fits_nowhere_is_refused_at_once)
    {
        struct node *node = node_with_two(settings);
        struct want want = {.key = "k", .length = SL_MIB + 1};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1, .wait = true};
        node_put(node, "client.1", "kept", 4096);

        ck_assert(node_reserve(node, &ask, &grants)); /* 2 MiB, but not in one piece */

        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        ck_assert(node_is_visible(node, "kept"));
        node_end(node);
    }
END_TEST

/* Three values of more than half a contribution each: together they are smaller than both
 * contributions, but they do not fit. The refusal is immediate, and no value is evicted for it. */
START_TEST(a_batch_that_no_contributions_can_have_is_refused_at_once)
    {
        struct node *node = node_with_two(settings);
        static const struct want wants[] = {{.key = "x", .length = 600000},
                                            {.key = "y", .length = 600000},
                                            {.key = "z", .length = 600000}};
        struct reserve_ask ask = {.sender = "client.1", .wants = wants, .count = 3, .wait = true};
        node_put(node, "client.1", "kept", 4096);
        node_put(node, "client.1", "kept too", 300000);

        ck_assert(node_reserve(node, &ask, &grants));

        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(grants.at[i].code, SL_ERR_NO_SPACE);
        }
        ck_assert(node_is_visible(node, "kept") && node_is_visible(node, "kept too"));
        ask.count = 2; /* one in each */
        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[1].code, SL_OK);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(who_waits_is_served_by_a_new_contribution)
    {
        struct node *node = node_start(settings);
        struct want want = {.key = "k", .length = SL_MIB};
        struct reserve_ask ask = {.sender = "client.1", .wants = &want, .count = 1, .wait = true};
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        (void)node_grant(node, "client.1", "being written", SL_MIB);
        ck_assert(!node_reserve(node, &ask, &grants)); /* nothing can be evicted: it waits */

        ck_assert_int_eq(contribute(node, "client.1", "b", SL_MIB, false), SL_OK);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(who_waits_in_vain_hears_it_at_the_deadline)
    {
        struct node *node = node_start(settings);
        struct want want = {.key = "k", .length = SL_MIB};
        struct reserve_ask ask = {.sender = "client.1",
                                  .wants = &want,
                                  .count = 1,
                                  .wait = true,
                                  .budget_ns = SL_NS_PER_S / 2};
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        (void)node_grant(node, "client.1", "being written", SL_MIB);
        ck_assert(!node_reserve(node, &ask, &grants));

        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(node_reserved(node, &ask, &grants));
        ck_assert_uint_eq(grants.at[0].code, SL_ERR_NO_SPACE);
        node_end(node);
    }
END_TEST

/* ---- ends ---- */

START_TEST(its_values_go_with_a_contribution)
    {
        struct node *node = node_with_two(settings);
        char text[256];
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "b0", 5000, "b:1", NULL), SL_OK);

        ck_assert_int_eq(withdraw(node, "client.1", "a:1"), SL_OK);

        ck_assert(!node_is_visible(node, "a0"));
        ck_assert(node_is_visible(node, "b0"));
        explained(node, "a0", text);
        ck_assert_str_eq(text, "its contribution a:1 ended");
        ck_assert_uint_eq(used_of(node, "b:1"), 8192);
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192);
        ck_assert_uint_eq(node_metric(node, "contributed_bytes"), SL_MIB);
        node_end(node);
    }
END_TEST

START_TEST(death_ends_what_does_not_last)
    {
        struct node *node = node_with_two(settings);
        ck_assert_int_eq(contribute(node, "client.1", "lasts", SL_MIB, true), SL_OK);
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "l0", 5000, "lasts", NULL), SL_OK);

        fake_process_end(&node->fake, proc_of(11));
        settle(node);

        ck_assert(!node_is_visible(node, "a0"));
        ck_assert(node_is_visible(node, "l0"));
        node_client(node, "client.1", 13);
        ck_assert_int_eq(contribute(node, "client.1", "lasts", SL_MIB, true), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "lasts", 2 * SL_MIB, true), SL_ERR_EXISTS);
        ck_assert_int_eq(contribute(node, "client.1", "a:1", SL_MIB, false), SL_OK);
        ck_assert_int_eq(withdraw(node, "client.1", "lasts"), SL_OK);
        ck_assert(!node_is_visible(node, "l0"));
        node_end(node);
    }
END_TEST

START_TEST(thousands_of_values_leave_in_slices_and_others_come_meanwhile)
    {
        static const char *const large[] = {"contributions", "true",         "memory",
                                            "64MiB",         "memory_chunk", "64MiB",
                                            "index_memory",  "16MiB",        NULL};
        struct node *node = node_start(large);
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW}, reply;
        char key[16];
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", 32 * SL_MIB, false), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "b", 32 * SL_MIB, false), SL_OK);
        for (uint32_t i = 0; i < 8000; i++) {
            snprintf(key, sizeof(key), "a%u", i);
            ck_assert_int_eq(put_where(node, key, 100, "a", NULL), SL_OK);
        }

        msg.body.withdraw.name = sl_text_of("a");
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(!fake_take_reply(&node->fake, "client.1", msg.seq, &reply)); /* not at once */
        uint32_t put = 0;
        while (!fake_take_reply(&node->fake, "client.1", msg.seq, &reply)) {
            snprintf(key, sizeof(key), "b%u", put++);
            ck_assert_int_eq(put_where(node, key, 100, "a", NULL), SL_OK);
            ck_assert_uint_lt(put, 100);
            sums_are_exact(node);
        }

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!node_is_visible(node, "a0") && !node_is_visible(node, "a7999"));
        for (uint32_t i = 0; i < put; i++) {
            snprintf(key, sizeof(key), "b%u", i);
            ck_assert(node_is_visible(node, key));
        }
        ck_assert_uint_eq(used_of(node, "b"), put * sl_extent_space(100));
        node_end(node);
    }
END_TEST

START_TEST(what_is_being_written_ends_with_it)
    {
        struct node *node = node_with_two(settings);
        struct want want = {.key = "k", .length = HALF};
        struct reserve_ask ask = {.sender = "client.1",
                                  .wants = &want,
                                  .count = 1,
                                  .contributions = {"b:1"},
                                  .contribution_count = 1};
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(withdraw(node, "client.2", "b:1"), SL_OK);

        ck_assert_int_eq(node_commit(node, "client.1", "k", &grants.at[0]), SL_ERR_NO_SPACE);

        ck_assert(!node_is_visible(node, "k"));
        ck_assert_int_eq(put_where(node, "k", HALF, "b:1", NULL), SL_OK); /* by another */
        ck_assert_uint_eq(used_of(node, "a:1"), HALF);
        settle(node);
        node_end(node);
    }
END_TEST

START_TEST(a_commit_without_a_contribution_is_refused)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        struct sl_item_grant grant = node_grant(node, "client.1", "k", HALF);
        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_OK); /* no value is visible */

        ck_assert_int_eq(node_commit(node, "client.1", "k", &grant), SL_ERR_NO_SPACE);

        ck_assert(!node_is_visible(node, "k"));
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(pinned_bytes_stay_and_the_number_is_free)
    {
        struct node *node = node_start(settings);
        struct sl_error why = {0};
        struct sl_pins *pins = NULL;
        struct sl_entry entry;
        sl_pin pin;
        char name[16];
        struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                          .name = "client.1",
                                          .slot_count = 64,
                                          .access_count = 64,
                                          .self = proc_of(11),
                                          .pinned_bytes_max = SL_GIB};
        ck_assert_int_eq(sl_pins_create(&options, &pins, &why), SL_OK);
        ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 11, "pins.client.1"), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        ck_assert_int_eq(put_where(node, "k", 5000, NULL, NULL), SL_OK);
        ck_assert(node_entry(node, "k", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);

        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_OK);
        settle(node);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 8192); /* as long as it is pinned */
        for (uint32_t i = 0; i < 64; i++) {
            snprintf(name, sizeof(name), "c%u", i);
            ck_assert_int_eq(contribute(node, "client.1", name, 4096, false), SL_OK);
        }
        sl_pins_release(pins, pin);
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(what_is_on_disk_stays_there)
    {
        struct node *node = node_with_two(disk_settings);
        struct sl_entry at;
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert_int_eq(withdraw(node, "client.1", "a:1"), SL_OK);

        ck_assert(node_entry(node, "a0", &at));
        ck_assert(at.disk.valid != 0 && at.extent.generation == 0);
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        /* and is read into another one */
        struct sl_text key = sl_text_of("a0");
        struct sl_msg msg = {.type = SL_MSG_BRING}, reply;
        msg.body.bring.keys = (struct sl_texts){&key, 1};
        fake_give(&node->fake, "client.1", &msg);
        ck_assert_uint_eq(tierer_read(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(used_of(node, "b:1"), 8192);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

START_TEST(what_is_on_its_way_to_disk_is_waited_for)
    {
        struct node *node = node_with_two(disk_settings);
        struct sl_entry at;
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL),
                         SL_OK); /* DISK_WRITE in flight */

        ck_assert_int_eq(withdraw(node, "client.1", "a:1"), SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        settle(node);

        ck_assert(node_entry(node, "a0", &at));
        ck_assert(at.disk.valid != 0 && at.extent.generation == 0);
        ck_assert_int_eq(withdraw(node, "client.1", "a:1"), SL_ERR_NOT_FOUND);
        node_end(node);
    }
END_TEST

START_TEST(blocks_go_whole)
    {
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "b", SL_MIB, false), SL_OK);
        node_put_block(node, "client.1", "m/b", 16, 3000, 0); /* some parts in each, by chance */

        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_OK);
        settle(node);

        ck_assert(!node_is_visible(node, "m/b/0") && !node_is_visible(node, "m/b/15"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        node_end(node);
    }
END_TEST

/* ---- extents granted in advance ---- */

START_TEST(grants_ahead_are_charged_and_give_way)
    {
        struct node *node = node_start(settings);
        struct sl_error why = {0};
        struct sl_pins *pins = NULL;
        struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                          .name = "client.1",
                                          .slot_count = 64,
                                          .access_count = 64,
                                          .self = proc_of(11),
                                          .pinned_bytes_max = SL_GIB};
        ck_assert_int_eq(sl_pins_create(&options, &pins, &why), SL_OK);
        ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 11, "pins.client.1"), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        struct sl_msg msg = {.type = SL_MSG_COMMIT}, reply;
        msg.body.commit.ahead_count = 16;
        msg.body.commit.ahead_bytes = 4096;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        uint64_t granted = reply.body.commit_reply.ahead.count;
        ck_assert_uint_gt(granted, 0);
        struct sl_item_grant ahead = reply.body.commit_reply.ahead.at[0];
        ck_assert_uint_eq(used_of(node, "a"), granted * 4096);

        struct sl_item_claim item = {.ref = ahead.ref, .generation = ahead.generation};
        struct sl_item_named named = {.key = sl_text_of("k"), .length_bytes = 4096};
        msg = (struct sl_msg){.type = SL_MSG_COMMIT};
        msg.body.commit.items.at = &item;
        msg.body.commit.items.count = 1;
        msg.body.commit.named.at = &named;
        msg.body.commit.named.count = 1;
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.commit_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(used_of(node, "a"), granted * 4096);
        sums_are_exact(node);

        ck_assert_int_eq(put_where(node, "all", SL_MIB, NULL, NULL), SL_OK);
        ck_assert_uint_eq(used_of(node, "a"), SL_MIB);
        sums_are_exact(node);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* ---- the watermark ---- */

START_TEST(above_the_watermark_the_oldest_leave)
    {
        static const char *const marked[] = {"evict_watermark", "0.75", "evict_ratio", "0.25",
                                             "evict_batch",     "2",    NULL};
        struct node *node = node_start(marked); /* 4 MiB */
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 6; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, HALF);
        }
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 3 * SL_MIB); /* no eviction yet */

        node_put(node, "client.1", "one", HALF);
        settle(node);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 2 * SL_MIB);
        ck_assert(!node_is_visible(node, "k0") && !node_is_visible(node, "k2"));
        ck_assert(node_is_visible(node, "k3") && node_is_visible(node, "one"));
        ck_assert_uint_ge(node_metric(node, "evict_success_count"), 2);
        node_end(node);
    }
END_TEST

/* ---- restarts ---- */

START_TEST(a_successor_has_the_same_sums)
    {
        struct node *node = node_with_two(settings);
        ck_assert_int_eq(contribute(node, "client.1", "lasts", SL_MIB, true), SL_OK);
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "b0", 70000, "b:1", NULL), SL_OK);
        (void)node_grant(node, "client.1", "being written", HALF);
        struct listed before, after;
        list(node, &before);

        node_restart(node);

        list(node, &after);
        ck_assert_uint_eq(after.count, before.count);
        for (uint32_t i = 0; i < before.count; i++) {
            ck_assert_str_eq(after.names[i], before.names[i]);
            ck_assert_uint_eq(after.at[i].number, before.at[i].number);
            ck_assert_uint_eq(after.at[i].used_bytes, before.at[i].used_bytes);
            ck_assert_uint_eq(after.at[i].value_count, before.at[i].value_count);
            ck_assert_uint_eq(after.at[i].pid, before.at[i].pid);
        }
        settle(node);
        ck_assert(node_is_visible(node, "a0"));
        ck_assert_int_eq(contribute(node, "client.1", "a:1", SL_MIB, false), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_successor_ends_what_died_meanwhile)
    {
        struct node *node = node_with_two(settings);
        struct sl_error why;
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK);
        ck_assert_int_eq(put_where(node, "b0", 5000, "b:1", NULL), SL_OK);
        fake_stop(&node->fake);

        fake_process_end(&node->fake, proc_of(12));
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        settle(node);

        ck_assert(node_is_visible(node, "a0"));
        ck_assert(!node_is_visible(node, "b0"));
        ck_assert_uint_eq(used_of(node, "b:1"), UINT64_MAX);
        node_end(node);
    }
END_TEST

START_TEST(a_successor_goes_on_with_the_end)
    {
        static const char *const large[] = {"contributions", "true",         "memory",
                                            "64MiB",         "memory_chunk", "64MiB",
                                            "index_memory",  "16MiB",        NULL};
        struct node *node = node_start(large);
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW}, reply;
        char key[16];
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", 16 * SL_MIB, false), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "b", 16 * SL_MIB, false), SL_OK);
        for (uint32_t i = 0; i < 8000; i++) {
            snprintf(key, sizeof(key), "a%u", i);
            ck_assert_int_eq(put_where(node, key, 100, "a", NULL), SL_OK);
        }
        msg.body.withdraw.name = sl_text_of("a");
        fake_give(&node->fake, "client.1", &msg); /* one slice */

        node_restart(node);

        msg.seq = 0;
        fake_give(&node->fake, "client.1", &msg); /* sent again */
        for (uint32_t i = 0; i < 100 && !fake_take_reply(&node->fake, "client.1", msg.seq, &reply);
             i++) {
            fake_advance(&node->fake, SL_NS_PER_MS);
        }
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!node_is_visible(node, "a0") && !node_is_visible(node, "a7999"));
        settle(node);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(values_of_a_time_without_contributions_have_no_room)
    {
        struct node *node = node_start(NULL);
        struct sl_error why;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "old", 5000);
        fake_stop(&node->fake);
        fake_set(&node->fake, "contributions", "true");
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);

        settle(node);

        ck_assert(!node_is_visible(node, "old"));
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        ck_assert_int_eq(put_where(node, "new", 5000, NULL, NULL), SL_OK);
        fake_stop(&node->fake); /* and back again */
        fake_set(&node->fake, "contributions", "false");
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        ck_assert(node_is_visible(node, "new"));
        node_put(node, "client.1", "more", 3 * SL_MIB);
        node_end(node);
    }
END_TEST

/* A walk over the records may miss one that moves: its value is then still visible. */
START_TEST(what_moves_during_the_walk_is_waited_for)
    {
        static const char *const large[] = {
            "contributions", "true", "memory", "64MiB", "memory_chunk", "64MiB", "index_memory",
            "16MiB",         "disk", "1GiB",   NULL};
        struct node *node = node_start(large);
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW}, reply;
        struct sl_entry entry;
        char key[16];
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        ck_assert_int_eq(contribute(node, "client.1", "b", 32 * SL_MIB, false), SL_OK);
        for (uint32_t i = 0; i < 6000; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put_where(node, key, 100, "b", NULL), SL_OK);
        }
        while (tierer_write(node, 1, SL_OK) > 0) {
        }
        ck_assert_int_eq(put_where(node, "v", 100, "a", NULL), SL_OK); /* DISK_WRITE in flight */
        ck_assert(node_entry(node, "v", &entry));
        ck_assert_uint_gt(entry.ref, 0);
        sl_ref last = entry.ref;
        for (uint32_t i = 0; i < 10; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            (void)node_remove(node, "client.1", key);
        }
        while (tierer_forget(node, SL_OK) > 0) {
        }
        msg.body.withdraw.name = sl_text_of("a");
        fake_give(&node->fake, "client.1", &msg); /* one slice */
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(node_entry(node, "v", &entry));
        ck_assert_uint_lt(entry.ref, last);

        bool answered = false;
        for (uint32_t i = 0; i < 1000 && !answered; i++) {
            fake_advance(&node->fake, SL_NS_PER_MS);
            answered = fake_take_reply(&node->fake, "client.1", msg.seq, &reply);
        }

        ck_assert(answered && reply.code == SL_OK);
        ck_assert(node_entry(node, "v", &entry));
        ck_assert_uint_eq(entry.extent.generation, 0);
        node_end(node);
    }
END_TEST

/* ---- missing memory, and a full index ---- */

START_TEST(a_ceiling_of_nothing_is_not_lowered_for_ever)
    {
        static const char *const marked[] = {"contributions", "true",        "evict_watermark",
                                             "0.5",           "evict_ratio", "0.4",
                                             "evict_batch",   "1",           NULL};
        struct node *node = node_start(marked);
        const struct registrar *self = node->fake.state;
        char key[8];
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW};
        node_client(node, "client.1", 11);
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        for (uint32_t i = 0; i < 9; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(put_where(node, key, 65536, NULL, NULL), SL_OK);
        }
        ck_assert(self->contributions->lowering);

        msg.body.withdraw.name = sl_text_of("a");
        fake_give(&node->fake, "client.1", &msg);

        ck_assert(!self->contributions->lowering);
        node_end(node);
    }
END_TEST

START_TEST(memory_that_the_system_lacks_is_asked_for_now_and_then)
    {
        struct node *node = node_start(settings);
        const struct registrar *self = node->fake.state;
        node_client(node, "client.1", 11);
        node->fake.job_fails = SL_ERR_NO_MEMORY;
        ck_assert_int_eq(contribute(node, "client.1", "a", SL_MIB, false), SL_OK);
        for (uint32_t i = 0; i < 30; i++) {
            ck_assert_int_eq(put_where(node, "k", 4096, NULL, NULL), SL_ERR_NO_SPACE);
            fake_advance(&node->fake, 100 * SL_NS_PER_MS);
            ck_assert_ptr_nonnull(strstr(self->health_reason, "the system gave 0"));
        }
        ck_assert_uint_le(node->fake.job_count, 5);

        node->fake.job_fails = SL_OK;
        node->fake.job_refused = SL_ERR_LIMIT;
        uint32_t before = node->fake.job_count;
        for (uint32_t i = 0; i < 20; i++) {
            fake_advance(&node->fake, 100 * SL_NS_PER_MS);
            ck_assert_int_eq(put_where(node, "k", 4096, NULL, NULL), SL_ERR_NO_SPACE);
        }
        ck_assert_uint_le(node->fake.job_count - before, 3);
        ck_assert_ptr_nonnull(strstr(self->health_reason, "the system gave 0"));

        ck_assert_int_eq(withdraw(node, "client.1", "a"), SL_OK); /* now it is complete */
        fake_advance(&node->fake, 200 * SL_NS_PER_MS);
        ck_assert_str_eq(self->health_reason, "");
        node->fake.job_refused = SL_OK;
        ck_assert_int_eq(contribute(node, "client.1", "b", SL_MIB, false), SL_OK);
        fake_advance(&node->fake, 2 * SL_NS_PER_S);
        ck_assert_int_eq(put_where(node, "k", 4096, NULL, NULL), SL_OK);
        node_end(node);
    }
END_TEST

/* The space for the record of its end is made by evicting the last value that is charged to it. */
START_TEST(a_full_index_leaves_no_note_of_what_is_over)
    {
        struct node *node = node_with_two(settings);
        struct registrar *self = node->fake.state;
        const char note[80] = "as large as that of a contribution";
        sl_ref *blobs = calloc(1u << 20, sizeof(*blobs));
        uint32_t count = 0;
        struct listed all;
        ck_assert_ptr_nonnull(blobs);
        ck_assert_int_eq(put_where(node, "k", 5000, "a:1", NULL), SL_OK);
        while (sl_index_blob_put(self->index, note, sizeof(note), 999, &blobs[count], NULL) ==
               SL_OK) {
            count++;
        }

        ck_assert_int_eq(withdraw(node, "client.1", "a:1"), SL_OK);
        for (uint32_t i = 0; i < count; i++) {
            sl_index_set_kind(self->index, blobs[i], SL_RECORD_FREE);
        }
        ck_assert(!node_is_visible(node, "k"));
        ck_assert_int_eq(contribute(node, "client.1", "c:1", SL_MIB, false), SL_OK);
        node_restart(node);

        list(node, &all);
        ck_assert_uint_eq(all.count, 2);
        ck_assert_ptr_nonnull(listed_at(&all, "c:1"));
        settle(node);
        free(blobs);
        node_end(node);
    }
END_TEST

/* By then another one contributes all of memory. */
START_TEST(a_successor_knows_an_ended_one_beside_a_full_node)
    {
        struct node *node = node_start(disk_settings);
        struct sl_msg msg = {.type = SL_MSG_WITHDRAW};
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        ck_assert_int_eq(contribute(node, "client.1", "a:1", 3 * SL_MIB, true), SL_OK);
        ck_assert_int_eq(put_where(node, "a0", 5000, "a:1", NULL), SL_OK); /* being written */
        msg.body.withdraw.name = sl_text_of("a:1");
        fake_give(&node->fake, "client.1", &msg);
        ck_assert_int_eq(contribute(node, "client.1", "b:1", 4 * SL_MIB, true), SL_OK);
        ck_assert(node_is_visible(node, "a0"));

        node_restart(node);
        settle(node);

        ck_assert(!node_is_visible(node, "a0"));
        ck_assert_uint_eq(used_of(node, "b:1"), 0);
        node_end(node);
    }
END_TEST

/* A record that no registrar can have written: it exceeds the memory. */
START_TEST(a_damaged_note_is_no_contribution)
    {
        struct node *node = node_with_two(settings);
        struct registrar *self = node->fake.state;
        unsigned char note[76];
        uint32_t length = 0, tag = 0;
        struct listed all;
        sl_ref ref = self->contributions->all[1].note;
        const void *bytes = sl_index_blob_at(self->index, ref, &length, &tag);
        ck_assert_uint_eq(length, 75);
        memcpy(note, bytes, length);
        memset(note + 16, 0xff, 8); /* its length */
        sl_index_set_kind(self->index, ref, SL_RECORD_FREE);
        ck_assert_int_eq(sl_index_blob_put(self->index, note, length, tag, &ref, NULL), SL_OK);

        node_restart(node);

        list(node, &all);
        ck_assert_uint_eq(all.count, 1);
        sums_are_exact(node);
        ck_assert_int_eq(contribute(node, "client.2", "b:1", SL_MIB, false), SL_OK);
        sums_are_exact(node);
        node_end(node);
    }
END_TEST

/* ---- random histories ---- */

struct history {
    struct node *node;
    uint64_t state;
    uint32_t tierer_pid;
    bool disk;
    struct sl_item_grant open[16];
    char open_keys[16][16];
    uint32_t open_count;
};

static uint32_t chance(struct history *at, uint32_t below)
{
    at->state = at->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(at->state >> 33) % below;
}

static void history_reserve(struct history *at)
{
    static const uint64_t lengths[] = {100, 4096, 5000, 70000, 300000};
    char key[16];
    snprintf(key, sizeof(key), "k%u", chance(at, 60));
    struct want want = {.key = key, .length = lengths[chance(at, SL_COUNT(lengths))]};
    struct reserve_ask ask = {.sender = "client.1",
                              .wants = &want,
                              .count = 1,
                              .replace = chance(at, 3) == 0,
                              .budget_ns = SL_NS_PER_MS,
                              .contributions = {chance(at, 2) == 0 ? "c1" : "c2"},
                              .contribution_count = chance(at, 2)};
    if (!node_reserve(at->node, &ask, &grants)) { /* the disk needs some values first */
        ck_assert(at->disk);
        fake_advance(&at->node->fake, SL_NS_PER_MS);
        ck_assert(node_reserved(at->node, &ask, &grants));
    }
    if (grants.code == SL_OK && grants.at[0].code == SL_OK && at->open_count < 16) {
        at->open[at->open_count] = grants.at[0];
        snprintf(at->open_keys[at->open_count++], sizeof(at->open_keys[0]), "%s", key);
    }
}

static void history_end_one(struct history *at, bool commit)
{
    if (at->open_count == 0) {
        return;
    }
    uint32_t which = chance(at, at->open_count);
    struct sl_item_claim claim = {.ref = at->open[which].ref,
                                  .generation = at->open[which].generation,
                                  .digest_low = chance(at, 1000)};
    struct sl_msg msg = {.type = commit ? SL_MSG_COMMIT : SL_MSG_ABORT};
    if (commit) {
        msg.body.commit.items.at = &claim;
        msg.body.commit.items.count = 1;
    } else {
        msg.body.abort.items.at = &claim;
        msg.body.abort.items.count = 1;
    }
    fake_give(&at->node->fake, "client.1", &msg); /* its answer may wait for a tombstone */
    at->open[which] = at->open[--at->open_count];
    memcpy(at->open_keys[which], at->open_keys[at->open_count], sizeof(at->open_keys[0]));
}

static void history_ask(struct history *at, uint32_t type, bool ahead)
{
    char key[16];
    snprintf(key, sizeof(key), "k%u", chance(at, 60));
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = type};
    if (type == SL_MSG_REMOVE) {
        msg.body.remove.keys = (struct sl_texts){&text, 1};
    } else {
        msg.body.bring = (struct sl_body_bring){.keys = {&text, 1}, .ahead = ahead};
    }
    fake_give(&at->node->fake, "client.1", &msg);
}

static void history_contribution(struct history *at)
{
    char name[8];
    struct sl_msg msg = {.type = chance(at, 2) == 0 ? SL_MSG_WITHDRAW : SL_MSG_CONTRIBUTE};
    snprintf(name, sizeof(name), "c%u", chance(at, 5));
    if (msg.type == SL_MSG_WITHDRAW) {
        msg.body.withdraw.name = sl_text_of(name);
    } else {
        msg.body.contribute.name = sl_text_of(name);
        msg.body.contribute.length_bytes = (1 + chance(at, 16)) * 65536;
    }
    fake_give(&at->node->fake, chance(at, 2) == 0 ? "client.1" : "client.2", &msg);
}

static void history_step(struct history *at)
{
    switch (chance(at, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        history_reserve(at);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        history_end_one(at, true);
        break;
    case 8:
        history_end_one(at, false);
        break;
    case 9:
        history_ask(at, SL_MSG_REMOVE, false);
        break;
    case 10:
        history_ask(at, SL_MSG_BRING, chance(at, 3) == 0);
        break;
    case 11:
        history_contribution(at);
        break;
    case 12:
        fake_advance(&at->node->fake, (uint64_t)chance(at, 400) * SL_NS_PER_MS);
        break;
    case 13:
        if (at->disk) {
            (void)tierer_write(at->node, 1 + chance(at, 3), SL_OK);
            (void)tierer_forget(at->node, SL_OK);
        }
        break;
    case 14:
        if (at->disk) {
            (void)tierer_read(at->node, chance(at, 4) == 0 ? SL_ERR_CORRUPT : SL_OK);
            (void)tierer_prefetch(at->node, chance(at, 4) == 0 ? SL_ERR_IO : SL_OK);
        }
        break;
    default:
        if (chance(at, 8) == 0) {
            node_restart(at->node);
            if (at->disk) {
                tierer_arrive(at->node, at->tierer_pid);
                tierer_ready(at->node);
            }
        }
        break;
    }
}

START_TEST(sums_are_exact_after_every_step)
    {
        struct history at = {.state = (uint64_t)_i * 977 + 5, .disk = _i % 2 == 1};
        const char *text = getenv("SL_SEED");
        at.state = text != NULL ? strtoull(text, NULL, 0) : at.state;
        printf("seed %llu, disk %d\n", (unsigned long long)at.state, at.disk);
        at.node = node_start(at.disk ? disk_settings : settings);
        at.tierer_pid = TIERER_PID;
        node_client(at.node, "client.1", 11);
        node_client(at.node, "client.2", 12);
        if (at.disk) {
            tierer_arrive(at.node, at.tierer_pid);
            tierer_ready(at.node);
        }
        for (uint32_t i = 0; i < 1500; i++) {
            history_step(&at);
            sums_are_exact(at.node);
        }
        node_end(at.node);
    }
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("registrar_contributions");
    TCase *table = tcase_create("table");
    tcase_set_timeout(table, 120);
    tcase_add_test(table, a_node_without_the_setting_takes_none);
    tcase_add_test(table, without_contributions_there_is_no_room);
    tcase_add_test(table, names_are_unique_and_requests_may_be_repeated);
    tcase_add_test(table, memory_is_the_ceiling_of_all_together);
    tcase_add_test(table, more_than_shared_memory_has_is_refused);
    tcase_add_test(table, sixty_four_are_all);
    suite_add_tcase(all, table);
    TCase *charges = tcase_create("charges");
    tcase_set_timeout(charges, 120);
    tcase_add_test(charges, preferred_ones_are_charged_first);
    tcase_add_test(charges, both_fill_up_without_a_wish);
    tcase_add_test(charges, without_a_wish_the_emptiest_is_charged);
    tcase_add_test(charges, a_full_node_evicts_the_oldest_until_one_has_room);
    tcase_add_test(charges, what_fits_nowhere_is_refused_at_once);
    tcase_add_test(charges, a_batch_that_no_contributions_can_have_is_refused_at_once);
    tcase_add_test(charges, who_waits_is_served_by_a_new_contribution);
    tcase_add_test(charges, who_waits_in_vain_hears_it_at_the_deadline);
    tcase_add_test(charges, grants_ahead_are_charged_and_give_way);
    tcase_add_test(charges, above_the_watermark_the_oldest_leave);
    suite_add_tcase(all, charges);
    TCase *ends = tcase_create("ends");
    tcase_set_timeout(ends, 120);
    tcase_add_test(ends, its_values_go_with_a_contribution);
    tcase_add_test(ends, death_ends_what_does_not_last);
    tcase_add_test(ends, thousands_of_values_leave_in_slices_and_others_come_meanwhile);
    tcase_add_test(ends, what_is_being_written_ends_with_it);
    tcase_add_test(ends, a_commit_without_a_contribution_is_refused);
    tcase_add_test(ends, pinned_bytes_stay_and_the_number_is_free);
    tcase_add_test(ends, what_is_on_disk_stays_there);
    tcase_add_test(ends, what_is_on_its_way_to_disk_is_waited_for);
    tcase_add_test(ends, blocks_go_whole);
    tcase_add_test(ends, what_moves_during_the_walk_is_waited_for);
    suite_add_tcase(all, ends);
    TCase *restarts = tcase_create("restarts");
    tcase_set_timeout(restarts, 300);
    tcase_add_test(restarts, a_successor_has_the_same_sums);
    tcase_add_test(restarts, a_successor_ends_what_died_meanwhile);
    tcase_add_test(restarts, a_successor_goes_on_with_the_end);
    tcase_add_test(restarts, values_of_a_time_without_contributions_have_no_room);
    tcase_add_test(restarts, a_successor_knows_an_ended_one_beside_a_full_node);
    tcase_add_test(restarts, a_damaged_note_is_no_contribution);
    tcase_add_loop_test(restarts, sums_are_exact_after_every_step, 0, 12);
    suite_add_tcase(all, restarts);
    TCase *lacks = tcase_create("lacks");
    tcase_set_timeout(lacks, 120);
    tcase_add_test(lacks, a_ceiling_of_nothing_is_not_lowered_for_ever);
    tcase_add_test(lacks, memory_that_the_system_lacks_is_asked_for_now_and_then);
    tcase_add_test(lacks, a_full_index_leaves_no_note_of_what_is_over);
    suite_add_tcase(all, lacks);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
