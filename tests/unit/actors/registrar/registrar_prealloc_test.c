/* tests/unit/actors/registrar/registrar_prealloc_test.c - extents granted in advance, which a
 * client pins whenever it writes to them, and values committed in them; drafts. */
#include "tests/unit/actors/registrar/registrar_support.h"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/sl_clock.h"

#define SIZE  20000u
#define SPACE 20480u /* whole pages */
#define TTL   (2 * SL_NS_PER_S)

struct answer {
    sl_err code;
    uint32_t code_count, ahead_count;
    sl_err codes[64];
    struct sl_item_grant ahead[256];
};

/* A client with pins: without them no extent is granted in advance. */
static struct sl_pins *client_with_pins(struct node *node, const char *name, uint32_t pid)
{
    char segment[64];
    struct sl_pins *pins = NULL;
    struct sl_error why = {0};
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

/* A client of another build gets an error, instead of pins that the registrar would ignore. */
START_TEST(pins_of_another_layout_are_refused_by_name)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = NULL;
        struct sl_msg msg = {.type = SL_MSG_HELLO}, reply;
        struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                          .name = "client.7",
                                          .slot_count = 16,
                                          .access_count = 16,
                                          .self = proc_of(17)};
        uint32_t layout = 4711;
        char path[1200];
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
        (void)snprintf(path, sizeof(path), "%s/pins.client.7", node->fake.paths.shm_dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &layout, sizeof(layout), 20), sizeof(layout));
        (void)close(fd);
        msg.body.hello = (struct sl_body_hello){.role = sl_text_of("client"),
                                                .name = sl_text_of("client.7"),
                                                .pid = 17,
                                                .start_time = proc_of(17).start_time,
                                                .segment = sl_text_of("pins.client.7")};

        fake_give(&node->fake, "client.7", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.7", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_VERSION);
        ck_assert_msg(strstr(reply.text.at, "'pins.client.7' has layout 4711") != NULL, "%s",
                      reply.text.at);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

struct named { /* an item of a COMMIT in an extent that was granted in advance */
    struct sl_item_claim claim;
    struct sl_item_named named;
};

static struct answer *publish(struct node *node, const char *sender, const struct named *items,
                              uint32_t count, uint64_t ahead_count, uint64_t ahead_bytes)
{
    static struct answer out;
    struct sl_item_claim claims[4];
    struct sl_item_named named[4];
    struct sl_msg msg = {.type = SL_MSG_COMMIT}, reply;
    ck_assert_uint_le(count, SL_COUNT(claims));
    for (uint32_t i = 0; i < count; i++) {
        claims[i] = items[i].claim;
        named[i] = items[i].named;
    }
    msg.body.commit.ahead_count = ahead_count;
    msg.body.commit.ahead_bytes = ahead_bytes;
    msg.body.commit.items.at = claims;
    msg.body.commit.items.count = count;
    msg.body.commit.named.at = named;
    msg.body.commit.named.count = count;
    fake_give(&node->fake, sender, &msg);
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
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

static struct sl_item_grant grant_of(struct node *node, const char *sender)
{
    struct answer *answer = publish(node, sender, NULL, 0, 1, SIZE);
    ck_assert_int_eq(answer->code, SL_OK);
    ck_assert_uint_eq(answer->ahead_count, 1);
    ck_assert_uint_eq(answer->ahead[0].code, SL_OK);
    return answer->ahead[0];
}

static struct named item_of(const char *key, const struct sl_item_grant *grant)
{
    struct sl_digest digest = digest_of_key(key);
    return (struct named){.claim = {.ref = grant->ref,
                                    .generation = grant->generation,
                                    .digest_low = digest.low,
                                    .digest_high = digest.high},
                          .named = {.key = sl_text_of(key), .length_bytes = SIZE}};
}

static sl_err publish_one(struct node *node, const char *sender, const char *key,
                          const struct sl_item_grant *grant)
{
    struct named item = item_of(key, grant);
    struct answer *answer = publish(node, sender, &item, 1, 0, 0);
    ck_assert_int_eq(answer->code, SL_OK);
    ck_assert_uint_eq(answer->code_count, 1);
    return answer->codes[0];
}

static uint64_t used(struct node *node)
{
    return node_metric(node, "used_bytes");
}

/* ---- publishing ---- */

START_TEST(what_is_published_is_there_at_once)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        struct sl_entry entry;
        ck_assert_uint_eq(used(node), SPACE);

        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_OK);

        ck_assert(node_entry(node, "a", &entry));
        ck_assert_uint_eq(entry.extent.generation, grant.generation);
        ck_assert_uint_eq(entry.extent.offset_bytes, grant.offset_bytes);
        ck_assert_uint_eq(entry.extent.length_bytes, SIZE);
        ck_assert(sl_digest_equal(entry.digest, digest_of_key("a")));
        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        fake_advance(&node->fake, 3 * TTL); /* it has no deadline any more */
        ck_assert(node_is_visible(node, "a"));
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_OK);
        ck_assert_uint_eq(used(node), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(publishing_again_is_answered_alike)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");

        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_OK);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_OK);
        node_restart(node); /* also by the next registrar */
        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_OK);

        ck_assert_uint_eq(node_metric(node, "object_count"), 1);
        ck_assert_uint_eq(used(node), SPACE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(key_that_exists_changes_nothing_and_leaves_the_grant)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        struct sl_entry before, after;
        node_put(node, "client.1", "a", 77);
        ck_assert(node_entry(node, "a", &before));

        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_ERR_EXISTS);

        ck_assert(node_entry(node, "a", &after));
        ck_assert_uint_eq(after.version, before.version);
        ck_assert_int_eq(publish_one(node, "client.1", "b", &grant), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(one_key_twice_in_a_publish_is_one_object)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct answer *answer = publish(node, "client.1", NULL, 0, 2, SIZE);
        ck_assert_uint_eq(answer->ahead_count, 2);
        struct sl_item_grant grants[2] = {answer->ahead[0], answer->ahead[1]};
        struct named items[2] = {item_of("a", &grants[0]), item_of("a", &grants[1])};

        answer = publish(node, "client.1", items, 2, 0, 0);

        ck_assert_int_eq(answer->codes[0], SL_OK);
        ck_assert_int_eq(answer->codes[1], SL_ERR_EXISTS);
        ck_assert_int_eq(publish_one(node, "client.1", "b", &grants[1]), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(key_that_another_writes_is_busy)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant mine = grant_of(node, "client.1");
        node_client(node, "client.2", 12);
        struct sl_item_grant theirs = node_grant(node, "client.2", "a", 100);

        ck_assert_int_eq(publish_one(node, "client.1", "a", &mine), SL_ERR_BUSY);

        ck_assert_int_eq(node_abort(node, "client.2", &theirs), SL_OK);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &mine), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(key_of_a_block_is_refused_and_of_a_half_one_busy)
    {
        static struct grants parts;
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        struct want wants[2] = {{.key = "m/b/0", .length = 10, .group = 1, .part = 0},
                                {.key = "m/b/1", .length = 10, .group = 1, .part = 1}};
        const char *first = "m/b/0";
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};
        ck_assert(node_reserve(node, &ask, &parts));
        node_commit_all(node, "client.1", &first, parts.at, 1, false, NULL);

        ck_assert_int_eq(publish_one(node, "client.1", "m/b", &grant), SL_ERR_INVALID);
        ck_assert_int_eq(publish_one(node, "client.1", "m/b/0", &grant), SL_ERR_BUSY);
        ck_assert_int_eq(publish_one(node, "client.1", "m/b/1", &grant), SL_ERR_BUSY);

        ck_assert_int_eq(publish_one(node, "client.1", "other", &grant), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* ---- what is not one's own ---- */

START_TEST(grants_of_others_and_of_the_other_kind_are_refused)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant mine = grant_of(node, "client.1");
        node_client(node, "client.2", 12);
        struct sl_item_grant keyed = node_grant(node, "client.1", "k", SIZE);
        struct sl_item_grant wrong = mine;

        ck_assert_int_eq(publish_one(node, "client.2", "a", &mine), SL_ERR_PERMISSION);
        ck_assert_int_eq(node_abort(node, "client.2", &mine), SL_ERR_PERMISSION);
        ck_assert_int_eq(node_commit(node, "client.2", "a", &mine), SL_ERR_PERMISSION);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &mine), SL_ERR_INVALID);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &keyed), SL_ERR_INVALID);
        wrong.ref++;
        ck_assert_int_eq(publish_one(node, "client.1", "a", &wrong), SL_ERR_STALE);
        wrong = mine;
        wrong.generation += 1000;
        ck_assert_int_eq(publish_one(node, "client.1", "a", &wrong), SL_ERR_STALE);
        struct named large = item_of("a", &mine);
        large.named.length_bytes = SPACE + 1;
        ck_assert_int_eq(publish(node, "client.1", &large, 1, 0, 0)->codes[0], SL_ERR_INVALID);

        ck_assert(!node_is_visible(node, "a"));
        ck_assert_int_eq(publish_one(node, "client.1", "a", &mine), SL_OK); /* valid all along */
        ck_assert_int_eq(node_commit(node, "client.1", "k", &keyed), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(who_has_no_pins_or_said_no_hello_gets_nothing_ahead)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 12), SL_OK);

        ck_assert_uint_eq(publish(node, "client.1", NULL, 0, 4, SIZE)->ahead_count, 0);
        ck_assert_uint_eq(publish(node, "swapper.0", NULL, 0, 4, SIZE)->ahead_count, 0);
        ck_assert_int_eq(publish(node, "client.9", NULL, 0, 4, SIZE)->code, SL_ERR_UNREACHABLE);

        ck_assert_uint_eq(used(node), 0);
        node_end(node);
    }
END_TEST

/* ---- bounds ---- */

static const struct {
    const char *count_max;
    uint32_t clients;
    uint64_t asked, length, want; /* by the last client */
} bounds[] = {
    {"64", 1, 3, SIZE, 3},       {"2", 1, 3, SIZE, 2},
    {"64", 1, 50, SIZE, 12},                             /* 1/16 of 4 MiB */
    {"64", 2, 50, SIZE, 12},     {"64", 3, 50, SIZE, 1}, /* all together 1/8 of 4 MiB */
    {"0", 1, 3, SIZE, 0},        {"64", 1, 3, 0, 0},     /* of no size */
    {"64", 1, 3, 5 * SL_MIB, 0},                         /* over a chunk */
    {"64", 1, 64, 100, 64},
};

START_TEST(grants_ahead_keep_their_bounds)
    {
        const char *const settings[] = {"prealloc_max", bounds[_i].count_max, NULL};
        struct node *node = node_start(settings);
        struct sl_pins *pins[3];
        char name[32];
        uint32_t granted = 0;
        for (uint32_t i = 0; i < bounds[_i].clients; i++) {
            snprintf(name, sizeof(name), "client.%u", i + 1);
            pins[i] = client_with_pins(node, name, 11 + i);
            granted =
                publish(node, name, NULL, 0, bounds[_i].asked, bounds[_i].length)->ahead_count;
        }

        ck_assert_uint_eq(granted, bounds[_i].want);
        uint64_t more = bounds[_i].want < bounds[_i].asked ? 1 : 0; /* and none by asking again */
        ck_assert_uint_eq(publish(node, name, NULL, 0, more, bounds[_i].length)->ahead_count, 0);
        for (uint32_t i = 0; i < bounds[_i].clients; i++) {
            sl_pins_destroy(&pins[i]);
        }
        node_end(node);
    }
END_TEST

START_TEST(a_used_grant_makes_room_for_the_next)
    {
        static const char *const settings[] = {"prealloc_max", "2", NULL};
        struct node *node = node_start(settings);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        char key[16];
        struct sl_item_grant next = grant_of(node, "client.1");
        for (uint32_t i = 0; i < 1000; i++) { /* memory has space for 200: the oldest are evicted */
            snprintf(key, sizeof(key), "k%u", i);
            struct named item = item_of(key, &next);
            struct answer *answer = publish(node, "client.1", &item, 1, 1, SIZE);
            ck_assert_int_eq(answer->codes[0], SL_OK);
            ck_assert_uint_eq(answer->ahead_count, 1);
            next = answer->ahead[0];
        }
        ck_assert(node_is_visible(node, "k999") && node_is_visible(node, "k850"));
        ck_assert(!node_is_visible(node, "k700"));
        ck_assert_uint_eq(node_metric(node, "claim_count"), 1);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* ---- taken back ---- */

START_TEST(unused_grants_are_free_after_their_time)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        sl_pin pin = 0;
        fake_advance(&node->fake, TTL - SL_NS_PER_MS);
        ck_assert_uint_eq(used(node), SPACE);

        fake_advance(&node->fake, 2 * SL_NS_PER_MS);

        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        ck_assert_int_eq(
            sl_pins_take_grant(pins, node->view, (sl_ref)grant.ref, grant.generation, SIZE, &pin),
            SL_ERR_STALE);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_ERR_STALE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* How a client that is still writing when its grant is over gives it up. */
enum ending { ENDS_BY_PUBLISH, ENDS_BY_ABORT, ENDS_BY_UNPIN, ENDS_BY_DEATH, ENDINGS };

START_TEST(pinned_grant_stays_until_its_writer_is_done)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        sl_pin pin = 0;
        ck_assert_int_eq(
            sl_pins_take_grant(pins, node->view, (sl_ref)grant.ref, grant.generation, SIZE, &pin),
            SL_OK);

        fake_advance(&node->fake, 10 * TTL);

        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), SPACE);
        if (_i == ENDS_BY_PUBLISH) {
            ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_ERR_STALE);
        } else if (_i == ENDS_BY_ABORT) {
            ck_assert_int_eq(node_abort(node, "client.1", &grant), SL_OK);
        } else if (_i == ENDS_BY_UNPIN) {
            sl_pins_release(pins, pin);
            fake_advance(&node->fake, SL_NS_PER_S);
        } else {
            fake_process_end(&node->fake, proc_of(11));
        }
        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        ck_assert(!node_is_visible(node, "a"));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(death_and_abort_free_grants)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct answer *answer = publish(node, "client.1", NULL, 0, 8, SIZE);
        struct sl_item_grant first = answer->ahead[0];
        ck_assert_uint_eq(used(node), 8 * SPACE);

        ck_assert_int_eq(node_abort(node, "client.1", &first), SL_OK);
        ck_assert_uint_eq(used(node), 7 * SPACE);
        fake_process_end(&node->fake, proc_of(11));

        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* With and without waiting. */
START_TEST(what_is_asked_for_comes_before_what_is_ahead)
    {
        static struct grants got;
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        sl_pin pin = 0;
        struct answer *answer = publish(node, "client.1", NULL, 0, 4, SIZE);
        struct sl_item_grant kept = answer->ahead[3];
        ck_assert_int_eq(
            sl_pins_take_grant(pins, node->view, (sl_ref)kept.ref, kept.generation, SIZE, &pin),
            SL_OK);
        struct want wants[203]; /* 204 fit, one of them is being written */
        static char keys[203][8];
        for (uint32_t i = 0; i < SL_COUNT(wants); i++) {
            snprintf(keys[i], sizeof(keys[i]), "k%u", i);
            wants[i] = (struct want){.key = keys[i], .length = SIZE};
        }
        struct reserve_ask ask = {
            .sender = "client.1", .wants = wants, .count = SL_COUNT(wants), .wait = _i == 0};

        ck_assert(node_reserve(node, &ask, &got));

        for (uint32_t i = 0; i < SL_COUNT(wants); i++) {
            ck_assert_uint_eq(got.at[i].code, SL_OK);
            ck_assert_uint_ne(got.at[i].offset_bytes, kept.offset_bytes);
        }
        ck_assert_uint_eq(used(node), 204 * SPACE);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &kept), SL_ERR_STALE);
        ck_assert_uint_eq(used(node), 203 * SPACE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* ---- drafts ---- */

static sl_err draft_of(struct node *node, const char *sender, uint64_t ttl_ns,
                       struct sl_item_grant *grant)
{
    static struct grants got;
    struct want want = {.key = "k", .length = SIZE};
    struct reserve_ask ask = {
        .sender = sender, .wants = &want, .count = 1, .ttl_ns = ttl_ns, .draft = true};
    ck_assert(node_reserve(node, &ask, &got));
    ck_assert_int_eq(got.code, SL_OK);
    *grant = got.at[0];
    return (sl_err)grant->code;
}

static sl_err draft_pin(struct node *node, struct sl_pins *pins, const struct sl_item_grant *grant,
                        sl_pin *pin)
{
    return sl_pins_take_grant(pins, node->view, (sl_ref)grant->ref, grant->generation, 0, pin);
}

static const struct {
    const char *settings[5];
    uint64_t ttl_ns, time_ns;
} draft_times[] = {
    {{NULL}, 0, 600 * SL_NS_PER_S}, /* as Mooncake's */
    {{"put_release", "4s", NULL}, 0, 4 * SL_NS_PER_S},
    {{"put_release", "4s", "reservation_ttl", "1s", NULL}, 0, 4 * SL_NS_PER_S},
    {{"put_release", "4s", NULL}, 9 * SL_NS_PER_S, 9 * SL_NS_PER_S}, /* as its client asked */
};

/* Its process lives, but sends nothing any more. */
START_TEST(memory_of_a_draft_that_is_not_ended_is_free_after_its_time)
    {
        struct node *node = node_start(draft_times[_i].settings);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant left, other;
        sl_pin pin = 0;
        ck_assert_int_eq(draft_of(node, "client.1", draft_times[_i].ttl_ns, &left), SL_OK);
        fake_advance(&node->fake, draft_times[_i].time_ns - SL_NS_PER_MS);
        ck_assert_int_eq(draft_pin(node, pins, &left, &pin), SL_OK);
        sl_pins_release(pins, pin);
        ck_assert_uint_eq(used(node), SPACE);

        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        ck_assert_int_eq(draft_pin(node, pins, &left, &pin), SL_ERR_STALE);
        ck_assert_int_eq(draft_of(node, "client.1", 0, &other), SL_OK);
        ck_assert_int_eq(node_commit(node, "client.1", "late", &left), SL_ERR_STALE);
        ck_assert_int_eq(node_abort(node, "client.1", &left), SL_OK);
        ck_assert_int_eq(node_commit(node, "client.1", "k", &other), SL_OK);
        ck_assert_uint_eq(used(node), SPACE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

enum { RESTART_NEVER, RESTART_IN_ITS_TIME, RESTART_AFTERWARDS, RESTARTS };

/* Stopped in the middle of a write, which may continue at any time. */
START_TEST(draft_under_write_is_nobodys_until_the_writer_is_done)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant left;
        sl_pin pin = 0;
        ck_assert_int_eq(draft_of(node, "client.1", SL_NS_PER_S, &left), SL_OK);
        ck_assert_int_eq(draft_pin(node, pins, &left, &pin), SL_OK);
        if (_i == RESTART_IN_ITS_TIME) {
            node_restart(node);
        }
        fake_advance(&node->fake, 2 * SL_NS_PER_S);
        if (_i == RESTART_AFTERWARDS) {
            node_restart(node);
        }

        fake_advance(&node->fake, 20 * SL_NS_PER_S);

        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), SPACE);
        sl_pins_release(pins, pin);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(draft_that_another_writer_takes_over_is_free_at_once)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant left, other;
        node_client(node, "client.2", 12);
        ck_assert_int_eq(draft_of(node, "client.1", 0, &left), SL_OK);
        fake_advance(&node->fake, 30 * SL_NS_PER_S - SL_NS_PER_MS); /* put_preempt, as Mooncake's */
        ck_assert_int_eq(draft_of(node, "client.2", 0, &other), SL_ERR_BUSY);
        fake_advance(&node->fake, SL_NS_PER_MS);

        ck_assert_int_eq(draft_of(node, "client.2", 0, &other), SL_OK);

        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_int_eq(node_commit(node, "client.1", "k", &left), SL_ERR_STALE);
        ck_assert_int_eq(node_commit(node, "client.2", "k", &other), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* More than are freed at a time elsewhere; some are being written. */
START_TEST(of_many_drafts_those_that_nobody_writes_are_free)
    {
        enum { DRAFTS = 600 };
        static struct grants got;
        static struct want wants[DRAFTS];
        static char keys[DRAFTS][8];
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        sl_pin pin[DRAFTS / 100];
        for (uint32_t i = 0; i < DRAFTS; i++) {
            snprintf(keys[i], sizeof(keys[i]), "k%u", i);
            wants[i] = (struct want){.key = keys[i], .length = 4096};
        }
        struct reserve_ask ask = {.sender = "client.1",
                                  .wants = wants,
                                  .count = DRAFTS,
                                  .ttl_ns = SL_NS_PER_S,
                                  .draft = true};
        ck_assert(node_reserve(node, &ask, &got));
        for (uint32_t i = 0; i < SL_COUNT(pin); i++) {
            ck_assert_int_eq(draft_pin(node, pins, &got.at[i * 100], &pin[i]), SL_OK);
        }

        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_uint_eq(used(node), SL_COUNT(pin) * 4096);
        for (uint32_t i = 0; i < SL_COUNT(pin); i++) {
            sl_pins_release(pins, pin[i]);
        }
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(used(node), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* A put writes without a pin, and without a pin file the registrar cannot know. */
START_TEST(what_is_not_pinned_by_its_writer_is_kept_for_it)
    {
        static struct grants got;
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct want want = {.key = "k", .length = SIZE};
        struct reserve_ask ask = {.sender = _i == 0 ? "client.1" : "client.2",
                                  .wants = &want,
                                  .count = 1,
                                  .ttl_ns = SL_NS_PER_S,
                                  .draft = _i == 1};
        node_client(node, "client.2", 12);
        ck_assert(node_reserve(node, &ask, &got));
        ck_assert_uint_eq(got.at[0].code, SL_OK);

        fake_advance(&node->fake, 3600 * SL_NS_PER_S);

        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_int_eq(node_abort(node, ask.sender, &got.at[0]), SL_OK);
        ck_assert_uint_eq(used(node), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* Records of several lengths leave every slab partly used: many are removed until one is free. */
START_TEST(a_grant_is_used_under_a_key_of_any_length_when_the_index_is_full)
    {
        static const char *const settings[] = {
            "memory", "64MiB", "memory_chunk", "64MiB", "index_memory", "1MiB", NULL};
        struct node *node = node_start(settings);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        char key[912];
        for (int i = 0; i < 4000; i++) {
            (void)snprintf(key, sizeof(key), "k%0*d", 15 + i % 4 * 64, i);
            node_put(node, "client.1", key, 64);
        }
        struct sl_item_grant grant = grant_of(node, "client.1");
        (void)snprintf(key, sizeof(key), "k%0900d", 0);

        ck_assert_int_eq(publish_one(node, "client.1", key, &grant), SL_OK);

        ck_assert(node_is_visible(node, key));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* ---- restart ---- */

/* All older values are pinned. A value that was put a moment ago, by any client, is not evicted for
 * extents granted in advance, but it is for a request. */
START_TEST(what_was_just_put_stays_when_room_ahead_is_made)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        static struct grants grants;
        node_client(node, "client.2", 12);
        for (uint32_t i = 0; i < 4; i++) {
            char key[16];
            struct want want = {.key = key, .length = SL_MIB - (i == 3 ? SPACE : 0)};
            struct reserve_ask ask = {
                .sender = "client.2", .wants = &want, .count = 1, .hard_pin = true};
            snprintf(key, sizeof(key), "pinned%u", i);
            ck_assert(node_reserve(node, &ask, &grants));
            ck_assert_int_eq(node_commit(node, "client.2", key, &grants.at[0]), SL_OK);
        }
        node_put(node, "client.2", "fresh", SIZE);

        struct answer *answer = publish(node, "client.1", NULL, 0, 1, SIZE);

        ck_assert_int_eq(answer->code, SL_OK);
        ck_assert_uint_eq(answer->ahead_count, 0);
        ck_assert(node_is_visible(node, "fresh"));
        (void)node_grant(node, "client.1", "wanted", SIZE);
        ck_assert(!node_is_visible(node, "fresh"));
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(grants_outlive_the_registrar)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct answer *answer = publish(node, "client.1", NULL, 0, 2, SIZE);
        struct sl_item_grant used_one = answer->ahead[0], unused = answer->ahead[1];

        node_restart(node);

        ck_assert_uint_eq(used(node), 2 * SPACE);
        ck_assert_uint_eq(publish(node, "client.1", NULL, 0, 200, SIZE)->ahead_count, 10);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &used_one), SL_OK);
        ck_assert(node_is_visible(node, "a"));
        ck_assert_int_eq(node_commit(node, "client.1", "b", &unused), SL_ERR_INVALID);
        fake_advance(&node->fake, TTL + SL_NS_PER_S); /* their deadlines continue */
        ck_assert_int_eq(publish_one(node, "client.1", "b", &unused), SL_ERR_STALE);
        ck_assert_uint_eq(used(node), SPACE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(grants_of_a_client_that_died_meanwhile_are_free_after_a_restart)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        ck_assert_uint_eq(publish(node, "client.1", NULL, 0, 5, SIZE)->ahead_count, 5);
        fake_stop(&node->fake);
        fake_process_end(&node->fake, proc_of(11));
        struct sl_error why = {0};

        ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(used(node), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(grant_that_was_taken_back_while_pinned_is_known_after_a_restart)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        sl_pin pin = 0;
        ck_assert_int_eq(
            sl_pins_take_grant(pins, node->view, (sl_ref)grant.ref, grant.generation, SIZE, &pin),
            SL_OK);
        fake_advance(&node->fake, TTL + SL_NS_PER_S);

        node_restart(node);

        ck_assert_uint_eq(used(node), SPACE);
        sl_pins_release(pins, pin);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(used(node), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* The registrar dies between writing the object's record and ending the grant's. */
START_TEST(extent_published_half_way_belongs_to_the_object)
    {
        struct node *node = node_start(NULL);
        struct sl_pins *pins = client_with_pins(node, "client.1", 11);
        struct sl_item_grant grant = grant_of(node, "client.1");
        struct sl_arena *arena = NULL;
        struct sl_index *index = NULL;
        struct sl_error why = {0};
        bool created = false;
        sl_ref ref = 0;
        fake_stop(&node->fake);
        const struct sl_arena_options arena_options = {.directory = node->fake.paths.shm_dir,
                                                       .data_bytes = 4 * SL_MIB,
                                                       .chunk_bytes = 4 * SL_MIB};
        ck_assert_int_eq(sl_arena_open_owner(&arena_options, &created, &arena, &why), SL_OK);
        const struct sl_index_options index_options = {
            .shm_dir = node->fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = arena};
        ck_assert_msg(sl_index_open(&index_options, &created, &index, &why) == SL_OK, "%s",
                      why.text);
        sl_index_recover(index, NULL, NULL);
        const struct sl_entry object = {.extent = {.generation = grant.generation,
                                                   .offset_bytes = grant.offset_bytes,
                                                   .length_bytes = SIZE},
                                        .key = "a",
                                        .key_length = 1};
        ck_assert_int_eq(sl_index_insert(index, &object, &ref, &why), SL_OK);
        sl_index_close(&index);
        sl_arena_close(&arena);

        ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);

        ck_assert(node_is_visible(node, "a"));
        ck_assert_uint_eq(used(node), SPACE);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_int_eq(publish_one(node, "client.1", "a", &grant), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_ahead");
    TCase *publishing = tcase_create("publishing");
    tcase_add_test(publishing, pins_of_another_layout_are_refused_by_name);
    tcase_add_test(publishing, what_is_published_is_there_at_once);
    tcase_add_test(publishing, publishing_again_is_answered_alike);
    tcase_add_test(publishing, key_that_exists_changes_nothing_and_leaves_the_grant);
    tcase_add_test(publishing, one_key_twice_in_a_publish_is_one_object);
    tcase_add_test(publishing, key_that_another_writes_is_busy);
    tcase_add_test(publishing, key_of_a_block_is_refused_and_of_a_half_one_busy);
    tcase_add_test(publishing, grants_of_others_and_of_the_other_kind_are_refused);
    tcase_add_test(publishing, who_has_no_pins_or_said_no_hello_gets_nothing_ahead);
    tcase_add_loop_test(publishing, grants_ahead_keep_their_bounds, 0, (int)SL_COUNT(bounds));
    tcase_add_test(publishing, a_used_grant_makes_room_for_the_next);
    suite_add_tcase(suite, publishing);
    TCase *back = tcase_create("taken back");
    tcase_add_test(back, unused_grants_are_free_after_their_time);
    tcase_add_loop_test(back, pinned_grant_stays_until_its_writer_is_done, 0, ENDINGS);
    tcase_add_test(back, death_and_abort_free_grants);
    tcase_add_loop_test(back, what_is_asked_for_comes_before_what_is_ahead, 0, 2);
    tcase_add_test(back, what_was_just_put_stays_when_room_ahead_is_made);
    tcase_add_test(back, a_grant_is_used_under_a_key_of_any_length_when_the_index_is_full);
    suite_add_tcase(suite, back);
    TCase *drafts = tcase_create("drafts");
    tcase_add_loop_test(drafts, memory_of_a_draft_that_is_not_ended_is_free_after_its_time, 0,
                        (int)SL_COUNT(draft_times));
    tcase_add_loop_test(drafts, draft_under_write_is_nobodys_until_the_writer_is_done, 0, RESTARTS);
    tcase_add_test(drafts, draft_that_another_writer_takes_over_is_free_at_once);
    tcase_add_test(drafts, of_many_drafts_those_that_nobody_writes_are_free);
    tcase_add_loop_test(drafts, what_is_not_pinned_by_its_writer_is_kept_for_it, 0, 2);
    suite_add_tcase(suite, drafts);
    TCase *restart = tcase_create("restart");
    tcase_add_test(restart, grants_outlive_the_registrar);
    tcase_add_test(restart, grants_of_a_client_that_died_meanwhile_are_free_after_a_restart);
    tcase_add_test(restart, grant_that_was_taken_back_while_pinned_is_known_after_a_restart);
    tcase_add_test(restart, extent_published_half_way_belongs_to_the_object);
    suite_add_tcase(suite, restart);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
