/* tests/unit/actors/transporter/peers_test.c - the transporter and its peers, on a network that the
 * test plays: which messages a peer may send, pins and their end, and a BRING without any answer.
 * Transfers are tested in tests/cluster. */
#include "actors/transporter/internal.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/transporter.h"
#include "ipc/msg/sl_curve.h"
#include "ipc/shm/sl_index_changes.h"
#include "runtime/net/fabric/core/wire.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CUTS_MAX 32u /* frames cut short, of one message */

/* ---- a node around it ---- */

static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_codec *codec, *take_codec;
    uint64_t seq, offset_bytes;
} bed;

static void bed_open(const char *peers)
{
    const char *const settings[] = {
        "node_name", "a",      "peer_heartbeat", "1s", "peer_timeout", "500ms", "remote_pin_ttl",
        "10s",       "memory", "4MiB",           NULL};
    struct sl_error why = {0};
    bool created = false;
    memset(&bed, 0, sizeof(bed));
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    bed.fake.env.name = "transporter.0";
    struct sl_arena_options arena = {
        .directory = bed.fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed.arena, &why), SL_OK);
    struct sl_index_options index = {
        .shm_dir = bed.fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = bed.arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed.index, &why), SL_OK);
    ck_assert_int_eq(sl_codec_create(SL_MIB, &bed.codec, NULL), SL_OK);
    ck_assert_int_eq(sl_codec_create(SL_MIB, &bed.take_codec, NULL), SL_OK);
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    /* The process would open these; nothing here has a network. */
    struct sl_fabric_options options;
    sl_fabric_options_init(&options, "tcp");
    bed.self = bed.fake.state;
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .done = tr_fetch_batch_read,
                                               .address = tr_fabric_address,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "tcp";
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    fake_set(&bed.fake, "peers", peers);
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    fake_advance(&bed.fake, 0);
    bed.self->arena.registered = true; /* the event that the actor's own options would bring */
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY, .reply_to = 1};
    hello.body.hello_reply.boot_generation = 5;
    fake_give(&bed.fake, "registrar", &hello);
    fake_advance(&bed.fake, 0);
}

static void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    sl_index_close(&bed.index);
    sl_arena_close(&bed.arena);
    sl_codec_destroy(&bed.codec);
    sl_codec_destroy(&bed.take_codec);
    fake_net_close(&bed.net);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "arena.0", NULL);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "index", NULL);
    fake_close(&bed.fake);
}

static void object_put(const char *key, uint64_t length_bytes)
{
    sl_ref ref = 0;
    struct sl_entry entry = {
        .kind = SL_RECORD_COMMITTED, .key = key, .key_length = (uint16_t)strlen(key)};
    entry.extent = (struct sl_extent){.generation = sl_arena_next_generation(bed.arena),
                                      .offset_bytes = bed.offset_bytes,
                                      .length_bytes = length_bytes};
    entry.digest = (struct sl_digest){.low = 7, .high = bed.offset_bytes};
    bed.offset_bytes += sl_align_up(length_bytes, 4096);
    ck_assert_int_eq(sl_index_insert(bed.index, &entry, &ref, NULL), SL_OK);
}

static void frame_give(const char *peer, const void *bytes, size_t length_bytes, bool answer)
{
    fake_net_give(&bed.net, peer, bytes, length_bytes, answer);
    bed.self->env->ops->wake_at(bed.self->env, 0);
    fake_advance(&bed.fake, 0);
}

/* Delivers a message of `peer`, whose envelope names `sender`. Returns its number. */
static uint64_t peer_says(const char *peer, const char *sender, struct sl_msg msg, bool answer)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    msg.sender = sl_text_of(sender);
    msg.seq = answer ? 0 : ++bed.seq;
    ck_assert_int_eq(sl_codec_encode(bed.codec, &msg, &frame, &length_bytes, NULL), SL_OK);
    if (msg.version != 0) { /* [[version, ...], ...]: one byte each so far */
        memset((unsigned char *)(uintptr_t)frame + 2, (int)msg.version, 1);
    }
    frame_give(peer, frame, length_bytes, answer);
    return msg.seq;
}

static struct sl_msg hello_of(const char *node, uint64_t incarnation)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_HELLO};
    msg.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of(node), .incarnation = incarnation, .fabric = sl_text_of("tcp")};
    return msg;
}

static uint32_t letters_of(uint32_t type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bed.net.out_count; i++) {
        struct sl_msg msg;
        ck_assert_int_eq(sl_codec_decode(bed.take_codec, bed.net.out[i].bytes,
                                         bed.net.out[i].length_bytes, &msg, NULL),
                         SL_OK);
        count += msg.type == type ? 1 : 0;
    }
    return count;
}

/* ---- who may say what ---- */

static const struct {
    const char *sender;
    uint32_t type;
    bool greeted, answer;
} foreign[] = {
    {"b", SL_MSG_PEER_PIN, false, false}, /* no greeting before it */
    {"b", SL_MSG_PEER_UNPIN, false, false},    {"b", SL_MSG_HANDOVER_NOTIFY, false, false},
    {"c", SL_MSG_PEER_HELLO, false, false}, /* another's name */
    {"a", SL_MSG_PEER_HELLO, false, false}, /* our own */
    {"b", SL_MSG_FENCE, true, false},       /* the node's own messages */
    {"b", SL_MSG_PING, true, false},           {"b", SL_MSG_BRING, true, false},
    {"b", SL_MSG_NODES, true, false},          {"b", SL_MSG_HOLD, true, false},
    {"b", SL_MSG_LANDED, true, false},         {"b", SL_MSG_REMOVE, true, false},
    {"b", SL_MSG_PEER_PIN_REPLY, true, false}, /* answers without a request, */
    {"b", SL_MSG_PEER_HELLO, true, true},      /* requests sent as answers */
    {"b", SL_MSG_HELLO_REPLY, true, true},
};
START_TEST(what_is_not_for_a_peer_to_say_gets_nothing)
    {
        bed_open("");
        if (foreign[_i].greeted) {
            peer_says("b", "b", hello_of("b", 3), false);
        }
        uint32_t sent = bed.net.out_count, known = bed.self->peer_count;
        struct sl_msg msg = {.type = foreign[_i].type};
        if (msg.type == SL_MSG_PEER_HELLO) {
            msg = hello_of(foreign[_i].sender, 3);
        } else if (msg.type == SL_MSG_PEER_PIN) {
            msg.body.peer_pin = (struct sl_body_peer_pin){.ttl_ns = 1, .bytes_max = 1};
        } else if (msg.type == SL_MSG_PEER_UNPIN) {
            static const uint64_t id = 1;
            msg.body.peer_unpin.pin_ids = (struct sl_u64s){.at = &id, .count = 1};
        } else if (msg.type == SL_MSG_HOLD) {
            msg.body.hold.hold_id = 1;
        } else if (msg.type == SL_MSG_LANDED) {
            msg.body.landed.handover = 1;
        } else if (msg.type == SL_MSG_HANDOVER_NOTIFY) {
            msg.body.handover_notify = (struct sl_body_handover_notify){
                .node = sl_text_of("b"), .handover_id = 1, .state = 3};
        }

        peer_says("b", foreign[_i].sender, msg, foreign[_i].answer);

        ck_assert_uint_eq(bed.net.out_count, sent);
        ck_assert_uint_eq(bed.self->peer_count, known);
        ck_assert(!bed.fake.finished);
        fake_advance(&bed.fake, 10 * SL_NS_PER_MS);
        ck_assert(!fake_take(&bed.fake, "coordinator", 0, &msg));
        bed_close();
    }
END_TEST

START_TEST(hostile_bytes_get_nothing)
    {
        const void *frame = NULL;
        size_t length_bytes = 0;
        bed_open("");
        struct sl_msg msg = hello_of("b", 3);
        msg.sender = sl_text_of("b");
        msg.seq = 1;
        ck_assert_int_eq(sl_codec_encode(bed.codec, &msg, &frame, &length_bytes, NULL), SL_OK);
        unsigned char bytes[256];
        ck_assert_uint_le(length_bytes, sizeof(bytes));
        memcpy(bytes, frame, length_bytes);

        frame_give("b", bytes, 0, false);
        for (size_t cut = 1; cut < length_bytes && cut < CUTS_MAX - 2; cut++) {
            frame_give("b", bytes, cut, false);
        }

        ck_assert_uint_eq(bed.net.out_count, 0);
        ck_assert_uint_eq(bed.self->peer_count, 0);
        frame_give("b", bytes, length_bytes, false); /* as a whole it is a greeting */
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_HELLO_REPLY), 1);
        bed_close();
    }
END_TEST

START_TEST(peers_are_bounded)
    {
        char name[16];
        bed_open("");
        for (uint32_t i = 0; i < TR_PEERS_MAX + 5; i++) {
            snprintf(name, sizeof(name), "n%u", i % 100);
            peer_says(name, name, hello_of(name, 3), false);
        }
        ck_assert_uint_eq(bed.self->peer_count, TR_PEERS_MAX);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_HELLO_REPLY), TR_PEERS_MAX);
        bed_close();
    }
END_TEST

START_TEST(a_peer_that_was_expelled_gives_its_place_back)
    {
        char name[16];
        bed_open("");
        for (uint32_t i = 0; i < TR_PEERS_MAX; i++) {
            snprintf(name, sizeof(name), "n%u", i);
            peer_says(name, name, hello_of(name, 3), false);
        }
        tr_peer_expel(bed.self, &bed.self->peers[7], "its key has gone");
        peer_says("new", "new", hello_of("new", 3), false);
        ck_assert_ptr_null(tr_peer_find(bed.self, "new")); /* n7 may be in use */
        fake_advance(&bed.fake, 60 * SL_NS_PER_S);

        peer_says("new", "new", hello_of("new", 3), false);

        ck_assert_ptr_eq(tr_peer_find(bed.self, "new"), &bed.self->peers[7]);
        ck_assert_ptr_null(tr_peer_find(bed.self, "n7"));
        ck_assert_uint_eq(bed.self->peer_count, TR_PEERS_MAX);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_HELLO_REPLY), TR_PEERS_MAX + 1);
        bed_close();
    }
END_TEST

static const struct {
    const char *peers;
    const char *why;
} bad_peers[] = {
    {"b", "NAME@HOST:PORT"},        {"b@host", "NAME@HOST:PORT"},
    {"b@host:", "NAME@HOST:PORT"},  {"b c@host:1", "not a node name"},
    {"b@host:1,b@host:2", "twice"},
};
START_TEST(bad_peers_stop_the_start)
    {
        struct sl_error why = {0};
        bed_open("");
        tr_peers_fini(bed.self);
        fake_set(&bed.fake, "peers", bad_peers[_i].peers);
        ck_assert_int_eq(tr_peers_init(bed.self, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, bad_peers[_i].why) != NULL, "%s", why.text);
        bed_close();
    }
END_TEST

/* ---- pins ---- */

static struct sl_msg pin_of(const struct sl_item_sought *items, uint64_t count)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_PIN};
    msg.body.peer_pin = (struct sl_body_peer_pin){.ttl_ns = 60 * SL_NS_PER_S, .bytes_max = SL_MIB};
    msg.body.peer_pin.items.at = items;
    msg.body.peer_pin.items.count = count;
    return msg;
}

static uint64_t pin_key(const char *peer, const char *key)
{
    struct sl_msg reply;
    const struct sl_item_sought item = {.key = sl_text_of(key)};
    uint64_t seq = peer_says(peer, peer, pin_of(&item, 1), false);
    ck_assert(fake_net_last(&bed.net, peer, SL_MSG_PEER_PIN_REPLY, &reply));
    ck_assert_uint_eq(reply.reply_to, seq);
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.peer_pin_reply.items.count, 1);
    ck_assert_uint_eq(reply.body.peer_pin_reply.items.at[0].code, SL_OK);
    ck_assert_uint_ne(reply.body.peer_pin_reply.pin_id, 0);
    return reply.body.peer_pin_reply.pin_id;
}

static void unpin(const char *peer, uint64_t id)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_UNPIN};
    msg.body.peer_unpin.pin_ids = (struct sl_u64s){.at = &id, .count = 1};
    peer_says(peer, peer, msg, false);
}

static uint64_t pinned(void)
{
    return sl_pins_pinned_bytes(bed.self->pins);
}

static void pins_bed(void)
{
    bed_open("");
    object_put("k", 5000);
    peer_says("b", "b", hello_of("b", 3), false);
    peer_says("c", "c", hello_of("c", 3), false);
}

/* A peer reads exactly the bytes pinned for it, while they are pinned. */
START_TEST(a_peer_reads_what_is_pinned_for_it_alone)
    {
        pins_bed();
        uint64_t b = tr_peer_cookie(bed.self, tr_peer_find(bed.self, "b"));
        uint64_t c = tr_peer_cookie(bed.self, tr_peer_find(bed.self, "c"));
        struct sl_entry entry;
        ck_assert_int_eq(sl_index_find(bed.self->view, "k", 1, &entry), SL_OK);
        uint64_t at = entry.extent.offset_bytes, length = entry.extent.length_bytes;
        ck_assert(!tr_holder_may_read(bed.self, b, at, length));
        uint64_t id = pin_key("b", "k");
        ck_assert(tr_holder_may_read(bed.self, b, at, length));
        ck_assert(tr_holder_may_read(bed.self, b, at + 1, length - 1));
        ck_assert(!tr_holder_may_read(bed.self, b, at, length + 1));
        ck_assert(!tr_holder_may_read(bed.self, b, at + 1, length));
        ck_assert(!tr_holder_may_read(bed.self, b, at + length + 1, 1));
        ck_assert(!tr_holder_may_read(bed.self, b, UINT64_MAX, 2));
        ck_assert(!tr_holder_may_read(bed.self, b + 1, at, length)); /* another arena */
        ck_assert(!tr_holder_may_read(bed.self, c, at, length));     /* another peer */
        unpin("b", id);
        ck_assert(!tr_holder_may_read(bed.self, b, at, length));
        bed_close();
    }
END_TEST

/* A leftover grant is asked to end, and the next HELLO makes a new one. */
START_TEST(a_grant_without_a_key_is_ended)
    {
        const struct sl_error none = {0};
        pins_bed();
        struct tr_grant *grant = &tr_peer_find(bed.self, "b")->grant;
        *grant = (struct tr_grant){.used = true, .handle = 77};
        tr_fabric_granted(bed.self, 77, "", 0, &none);
        ck_assert(!grant->ready && grant->ending);
        tr_fabric_grant_ended(bed.self, 77);
        ck_assert(!grant->used);
        bed_close();
    }
END_TEST

static uint32_t pins_until_refused(const char *key, uint64_t count)
{
    struct sl_item_sought items[TR_KEYS_MAX];
    struct sl_msg reply;
    uint32_t pins = 0;
    for (uint64_t i = 0; i < count; i++) {
        items[i] = (struct sl_item_sought){.key = sl_text_of(key)};
    }
    for (;; pins++) {
        ck_assert_uint_lt(pins, 2 * TR_PIN_SETS_MAX);
        (void)peer_says("b", "b", pin_of(items, count), false);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN_REPLY, &reply));
        if (reply.code != SL_OK) {
            ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
            return pins;
        }
        for (uint64_t i = 0; i < count; i++) {
            if (reply.body.peer_pin_reply.items.at[i].code != SL_OK) {
                ck_assert_uint_eq(reply.body.peer_pin_reply.items.at[i].code, SL_ERR_LIMIT);
                return pins;
            }
        }
    }
}

/* Other peers can pin, whatever one peer uses up: sets, slots (client_pins_max) and bytes (a
 * quarter of memory). */
static const struct {
    uint64_t length_bytes, keys; /* of a set */
    uint32_t sets;
} greedy[] = {{1, 1, TR_PIN_SETS_MAX / 4 * 3},
              {1, TR_KEYS_MAX, 12},
              {128 << 10, 1, 6},
              {341 << 10, 1, 2},
              {512 << 10, 1, 1}};
START_TEST(one_peer_cannot_take_all_pins)
    {
        pins_bed();
        object_put("v", greedy[_i].length_bytes);
        ck_assert_uint_eq(pins_until_refused("v", greedy[_i].keys), greedy[_i].sets);

        uint64_t id = pin_key("c", "v");

        unpin("c", id);
        peer_says("b", "b", hello_of("b", 4), false); /* its pins are over */
        ck_assert_uint_eq(pinned(), 0);
        ck_assert_uint_eq(pins_until_refused("v", greedy[_i].keys), greedy[_i].sets);
        bed_close();
    }
END_TEST

START_TEST(pins_end_by_their_owners_word_alone)
    {
        pins_bed();
        uint64_t id = pin_key("b", "k");
        ck_assert_uint_eq(pinned(), 5000);

        unpin("c", id);
        unpin("b", id + 1);
        unpin("b", id ^ (UINT64_C(1) << 20));
        unpin("b", UINT64_MAX);
        ck_assert_uint_eq(pinned(), 5000);
        unpin("b", id);

        ck_assert_uint_eq(pinned(), 0);
        unpin("b", id); /* once more changes nothing */
        bed_close();
    }
END_TEST

/* ---- what the nodes of a hand-over tell each other ---- */

static const struct sl_item_receipt done_with = {
    .handover_id = 77, .block_end = 3, .keys_low = 5, .keys_high = 6, .node = {"b", 1}};

static void receipt_is(const struct sl_item_receipt *got)
{
    ck_assert_uint_eq(got->handover_id, done_with.handover_id);
    ck_assert_uint_eq(got->block_end, done_with.block_end);
    ck_assert_uint_eq(got->keys_low, done_with.keys_low);
    ck_assert_uint_eq(got->keys_high, done_with.keys_high);
    ck_assert_str_eq(got->node.at, done_with.node.at);
}

static const struct sl_item_ticket offered = {
    .bytes = {"secret", 6}, .first_block = 1, .block_end = 3, .keys_low = 5, .keys_high = 6};
static const struct {
    uint64_t state;
    bool receipt, ticket;
    const char *reason;
} said[] = {{1, false, false, ""}, {1, true, true, ""},          {2, true, false, ""},
            {3, false, false, ""}, {3, false, false, "no room"}, {4, false, false, ""},
            {5, true, false, ""}};

/* Fills the fields of both messages. */
#define WORD_FILL(body, i)                              \
    do {                                                \
        (body).handover_id = 77;                        \
        (body).state = said[i].state;                   \
        (body).receipt.at = &done_with;                 \
        (body).receipt.count = said[i].receipt ? 1 : 0; \
        (body).ticket.at = &offered;                    \
        (body).ticket.count = said[i].ticket ? 1 : 0;   \
        (body).reason = sl_text_of(said[i].reason);     \
    } while (0)
#define WORD_IS(body, i)                                                  \
    do {                                                                  \
        ck_assert_uint_eq((body).handover_id, 77);                        \
        ck_assert_uint_eq((body).state, said[i].state);                   \
        ck_assert_uint_eq((body).receipt.count, said[i].receipt ? 1 : 0); \
        ck_assert_uint_eq((body).ticket.count, said[i].ticket ? 1 : 0);   \
        ck_assert_str_eq((body).reason.at, said[i].reason);               \
        if (said[i].receipt) {                                            \
            receipt_is((body).receipt.at);                                \
        }                                                                 \
        if (said[i].ticket) {                                             \
            ticket_is((body).ticket.at);                                  \
        }                                                                 \
    } while (0)

static void ticket_is(const struct sl_item_ticket *got)
{
    ck_assert_uint_eq(got->bytes.length, offered.bytes.length);
    ck_assert_mem_eq(got->bytes.at, offered.bytes.at, offered.bytes.length);
    ck_assert_uint_eq(got->first_block, offered.first_block);
    ck_assert_uint_eq(got->block_end, offered.block_end);
    ck_assert_uint_eq(got->keys_low, offered.keys_low);
    ck_assert_uint_eq(got->keys_high, offered.keys_high);
}

START_TEST(a_word_goes_to_the_other_node_as_it_is)
    {
        struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = 8}, reply, told;
        bed_open("b@host:1");
        WORD_FILL(msg.body.handover_notify, _i);
        msg.body.handover_notify.node = sl_text_of("b");

        fake_give(&bed.fake, "coordinator", &msg);

        ck_assert(fake_take_reply(&bed.fake, "coordinator", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(letters_of(SL_MSG_HANDOVER_NOTIFY), 1);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_HANDOVER_NOTIFY, &told));
        ck_assert_uint_eq(told.trace_id, 8);
        WORD_IS(told.body.handover_notify, _i);
        bed_close();
    }
END_TEST

START_TEST(a_word_of_a_peer_goes_to_the_coordinator_with_its_name)
    {
        struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = 8}, told, reply;
        bed_open("");
        WORD_FILL(msg.body.handover_notify, _i);
        msg.body.handover_notify.node = sl_text_of("a"); /* as b sees it */
        (void)peer_says("b", "b", hello_of("b", 3), false);

        (void)snprintf(bed.fake.unreachable, sizeof(bed.fake.unreachable), "coordinator");
        uint64_t seq = peer_says("b", "b", msg, false);
        bed.fake.unreachable[0] = '\0'; /* the first connection takes a moment */
        fake_advance(&bed.fake, 10 * SL_NS_PER_MS);

        ck_assert(fake_take(&bed.fake, "coordinator", SL_MSG_HANDOVER_NOTIFY, &told));
        ck_assert_str_eq(told.body.handover_notify.node.at, "b");
        ck_assert_uint_eq(told.trace_id, 8);
        WORD_IS(told.body.handover_notify, _i);
        ck_assert_uint_eq(letters_of(SL_MSG_HANDOVER_NOTIFY), 0); /* it is not passed on */
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_HANDOVER_NOTIFY_REPLY, &reply));
        ck_assert_uint_eq(reply.reply_to, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        bed_close();
    }
END_TEST

static const char *const not_asked[] = {"stranger", "a", "asks"};

START_TEST(a_word_for_a_node_that_cannot_be_asked_is_answered_so)
    {
        struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY}, reply;
        bed_open("b@host:1");
        (void)peer_says("asks", "asks", hello_of("asks", 3), false); /* its address is not known */
        WORD_FILL(msg.body.handover_notify, 1);
        msg.body.handover_notify.node = sl_text_of(not_asked[_i]);

        fake_give(&bed.fake, "coordinator", &msg);

        ck_assert(fake_take_reply(&bed.fake, "coordinator", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNREACHABLE);
        ck_assert_ptr_nonnull(strstr(reply.text.at, not_asked[_i]));
        ck_assert_uint_eq(letters_of(SL_MSG_HANDOVER_NOTIFY), 0);
        bed_close();
    }
END_TEST

START_TEST(a_word_that_cannot_be_sent_is_answered_so)
    {
        struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY}, reply;
        bed_open("b@host:1");
        WORD_FILL(msg.body.handover_notify, 1);
        msg.body.handover_notify.node = sl_text_of("b");
        bed.net.cut = true;

        fake_give(&bed.fake, "coordinator", &msg);

        ck_assert(fake_take_reply(&bed.fake, "coordinator", msg.seq, &reply));
        ck_assert_int_ne(reply.code, SL_OK);
        bed_close();
    }
END_TEST

START_TEST(pins_expire_by_our_limit_not_the_readers)
    {
        pins_bed();
        (void)pin_key("b", "k");
        fake_advance(&bed.fake, 9 * SL_NS_PER_S);
        ck_assert_uint_eq(pinned(), 5000);
        fake_advance(&bed.fake, 1 * SL_NS_PER_S);
        ck_assert_uint_eq(pinned(), 0);
        bed_close();
    }
END_TEST

START_TEST(pins_end_with_the_life_of_their_reader)
    {
        pins_bed();
        (void)pin_key("b", "k");
        (void)pin_key("c", "k");
        peer_says("b", "b", hello_of("b", 3), false); /* the same life */
        ck_assert_uint_eq(pinned(), 10000);
        peer_says("b", "b", hello_of("b", 4), false);
        ck_assert_uint_eq(pinned(), 5000);
        peer_says("b", "b", hello_of("b", 3), false); /* a HELLO of a dead life changes nothing */
        ck_assert_uint_eq(pinned(), 5000);
        bed_close();
    }
END_TEST

static void peer_lives(const char *name, uint64_t incarnation)
{
    struct sl_msg hello, reply = {.type = SL_MSG_PEER_HELLO_REPLY};
    unsigned char key[SL_WIRE_KEY_BYTES];
    const struct sl_wire_key wire = {.length_bytes = SL_MIB};
    struct sl_item_window window = {
        .arena = 0, .length_bytes = SL_MIB, .key = {.at = key, .length = sizeof(key)}};
    sl_wire_key_write(&wire, key);
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_HELLO, &hello));
    reply.reply_to = hello.seq;
    reply.body.peer_hello_reply = (struct sl_body_peer_hello_reply){
        .node = sl_text_of(name), .incarnation = incarnation, .fabric = sl_text_of("tcp")};
    reply.body.peer_hello_reply.windows.at = &window;
    reply.body.peer_hello_reply.windows.count = 1;
    peer_says(name, name, reply, true);
}

/* Its clock was set back between two lives: silence is three missed peer_heartbeats of 1 s. */
START_TEST(an_earlier_life_counts_once_the_later_one_is_silent)
    {
        struct sl_msg reply;
        bed_open("b@host:1");
        object_put("k", 5000);
        peer_says("b", "b", hello_of("b", 1000), false);
        (void)pin_key("b", "k");
        peer_says("b", "b", hello_of("b", 7), false);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_STALE);
        ck_assert_uint_eq(pinned(), 5000);

        fake_advance(&bed.fake, 3 * SL_NS_PER_S);
        peer_says("b", "b", hello_of("b", 7), false);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(pinned(), 0); /* those of the later one */
        (void)pin_key("b", "k");
        peer_says("b", "b", hello_of("b", 1000), false);
        fake_advance(&bed.fake, 3 * SL_NS_PER_S);
        peer_lives("b", 7); /* its answers count likewise */
        ck_assert_uint_eq(bed.self->peers[0].incarnation, 7);
        bed_close();
    }
END_TEST

/* ---- two nodes with one name ---- */

static struct sl_msg hello_answer(const char *peer)
{
    struct sl_msg reply;
    ck_assert(fake_net_last(&bed.net, peer, SL_MSG_PEER_HELLO_REPLY, &reply));
    return reply;
}

/* The other node sends HELLO on a connection of its own. */
static struct sl_msg twin_greets(uint64_t incarnation)
{
    bed.net.other = true;
    peer_says("b", "b", hello_of("b", incarnation), false);
    bed.net.other = false;
    return hello_answer("b");
}

static bool is_named_twice(void)
{
    struct sl_msg msg = {.type = SL_MSG_NODES}, reply;
    fake_give(&bed.fake, "client.9.0", &msg);
    fake_advance(&bed.fake, 0);
    ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
    return strcmp(reply.body.nodes_reply.nodes.at[0].state.at, "twice") == 0;
}

/* Whichever clock is ahead. */
static const uint64_t twins[] = {4, 2000};
START_TEST(of_two_nodes_with_one_name_the_first_goes_on)
    {
        bed_open("");
        object_put("k", 5000);
        peer_says("b", "b", hello_of("b", 1000), false);
        (void)pin_key("b", "k");

        ck_assert_int_eq(twin_greets(twins[_i]).code,
                         SL_ERR_STALE); /* perhaps a life that has ended */
        ck_assert(!is_named_twice());
        fake_advance(&bed.fake, SL_NS_PER_S);
        peer_says("b", "b", hello_of("b", 1000), false);
        ck_assert_int_eq(hello_answer("b").code, SL_OK);
        uint32_t refused = bed.net.refused_count, sent = bed.net.out_count;
        struct sl_msg reply = twin_greets(twins[_i]);

        ck_assert_int_eq(reply.code, SL_ERR_EXISTS); /* both get the same answer */
        ck_assert_msg(strstr(reply.text.at, "10.0.0.99:5000") != NULL, "%s", reply.text.at);
        ck_assert_uint_eq(bed.net.refused_count, refused + 1);
        ck_assert_uint_eq(bed.net.out_count, sent + 3); /* the probe of the first; first; twin */
        ck_assert(is_named_twice());
        ck_assert_uint_eq(bed.self->peers[0].incarnation, 1000);
        ck_assert_uint_eq(pinned(), 5000);
        bed.net.other = true; /* it has no say */
        const struct sl_item_sought item = {.key = sl_text_of("k")};
        sent = bed.net.out_count;
        peer_says("b", "b", pin_of(&item, 1), false);
        bed.net.other = false;
        ck_assert_uint_eq(bed.net.out_count, sent);
        (void)pin_key("b", "k");

        fake_advance(&bed.fake, 3 * SL_NS_PER_S); /* the first one is silent */
        ck_assert(!is_named_twice());
        ck_assert_int_eq(twin_greets(twins[_i]).code, SL_OK);
        ck_assert_uint_eq(bed.self->peers[0].incarnation, twins[_i]);
        bed_close();
    }
END_TEST

/* Its connection has ended: after a restart, it is accepted without a wait. */
START_TEST(a_peer_that_begins_anew_is_no_twin)
    {
        bed_open("");
        peer_says("b", "b", hello_of("b", 3), false);
        bed.net.cut = true; /* nothing reaches the former life */
        bed.net.other = true;
        peer_says("b", "b", hello_of("b", 4), false);
        ck_assert_uint_eq(bed.self->peers[0].incarnation, 4);
        ck_assert(!is_named_twice());
        bed_close();
    }
END_TEST

/* For a node that we query and that does not query us, its answers identify it. */
START_TEST(a_node_that_only_answers_keeps_its_name)
    {
        bed_open("b@host:1");
        peer_lives("b", 1000);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_ne(twin_greets(2000).code, SL_OK);
            fake_advance(&bed.fake, SL_NS_PER_S);
            peer_lives("b", 1000);
        }
        ck_assert_int_eq(twin_greets(2000).code, SL_ERR_EXISTS);
        ck_assert_msg(strstr(hello_answer("b").text.at, "host:1") != NULL, "%s",
                      hello_answer("b").text.at);
        ck_assert(is_named_twice());
        ck_assert_uint_eq(bed.self->peers[0].incarnation, 1000);
        fake_advance(&bed.fake, 100 * SL_NS_PER_MS);
        peer_lives("b", 1001); /* it restarted at its address */
        ck_assert_uint_eq(bed.self->peers[0].incarnation, 1001);
        ck_assert(!is_named_twice());
        bed_close();
    }
END_TEST

/* A peer reports it, with the answer to a HELLO or by itself, and remains a peer. */
START_TEST(a_node_is_told_that_another_has_its_name)
    {
        struct sl_msg notice = {.type = SL_MSG_PEER_HELLO_REPLY, .code = SL_ERR_EXISTS};
        bed_open("b@host:1");
        peer_lives("b", 3);
        ck_assert_str_eq(bed.self->trouble, "");
        notice.text = sl_text_of("two nodes are named 'a': 1.1.1.1:1, 2.2.2.2:2");

        peer_says("b", "b", notice, true);

        ck_assert_ptr_nonnull(strstr(bed.self->trouble, "2.2.2.2:2"));
        ck_assert_uint_eq(tr_peers_usable(bed.self), 1);
        fake_advance(&bed.fake, 10 * SL_NS_PER_S);
        ck_assert_str_eq(bed.self->trouble, "");
        bed_close();
    }
END_TEST

/* Another node of b's name, or b with new keys. */
START_TEST(who_has_another_key_is_named_where_a_peer_should_be)
    {
        bed_open("b@10.0.0.2:1,c@[fd00::2]:1");
        peer_lives("b", 3);
        tr_unknown_node(bed.self, "10.0.0.9", "K"); /* anybody */
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        ck_assert_str_eq(bed.self->trouble, "");
        tr_unknown_node(bed.self, "10.0.0.2", "K");

        fake_advance(&bed.fake, 2 * SL_NS_PER_S);

        ck_assert_msg(strstr(bed.self->trouble, "10.0.0.2 with key K, the address of node b") !=
                          NULL,
                      "%s", bed.self->trouble);
        tr_unknown_node(bed.self, "10.0.0.9", "L"); /* is no reason meanwhile */
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        ck_assert_msg(strstr(bed.self->trouble, "the address of node b") != NULL, "%s",
                      bed.self->trouble);
        for (uint32_t i = 0; i < 1000; i++) { /* many others do not hide a repeated one */
            tr_unknown_node(bed.self, "10.0.0.9", i % 2 == 0 ? "M" : "N");
            if (i == 500) {
                tr_unknown_node(bed.self, "10.0.0.2", "K");
            }
        }
        fake_advance(&bed.fake, 9 * SL_NS_PER_S);
        ck_assert_ptr_nonnull(strstr(bed.self->trouble, "the address of node b"));
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        ck_assert_str_eq(bed.self->trouble, "");
        tr_unknown_node(bed.self, "fd00::2", "K");
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        ck_assert_msg(strstr(bed.self->trouble, "the address of node c") != NULL, "%s",
                      bed.self->trouble);
        bed_close();
    }
END_TEST

/* Objects o0 .. o3 of 1000 bytes exist, x does not. */
static const struct {
    uint64_t bytes_max;
    bool chain, part;
    const char *keys[4];
    uint64_t codes[4];
} looks[] = {
    {SL_MIB, false, false, {"o0", "x", "o1", "o2"}, {0, SL_ERR_NOT_FOUND, 0, 0}},
    {SL_MIB,
     true,
     false,
     {"o0", "x", "o1", "o2"},
     {0, SL_ERR_NOT_FOUND, SL_ERR_CANCELLED, SL_ERR_CANCELLED}},
    {2500, false, false, {"o0", "o1", "o2", "o3"}, {0, 0, SL_ERR_LIMIT, SL_ERR_LIMIT}},
    {1, false, false, {"o0", "o1", "o2", "o3"}, {0, SL_ERR_LIMIT, SL_ERR_LIMIT, SL_ERR_LIMIT}},
    {SL_MIB,
     false,
     true,
     {"o0", "o1", "x", "o3"}, /* objects are no parts of a block */
     {SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND}},
};
START_TEST(a_pin_says_of_each_key_what_is)
    {
        static const char *const names[] = {"o0", "o1", "o2", "o3"};
        struct sl_item_sought items[4];
        struct sl_msg reply;
        uint64_t want_bytes = 0;
        pins_bed();
        for (uint32_t i = 0; i < 4; i++) {
            object_put(names[i], 1000);
            items[i] = (struct sl_item_sought){.key = sl_text_of(looks[_i].keys[i]),
                                               .part = looks[_i].part};
            want_bytes += looks[_i].codes[i] == SL_OK ? 1000 : 0;
        }
        struct sl_msg pin = pin_of(items, 4);
        pin.body.peer_pin.bytes_max = looks[_i].bytes_max;
        pin.body.peer_pin.chain = looks[_i].chain;

        peer_says("b", "b", pin, false);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN_REPLY, &reply));
        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_uint_eq(reply.body.peer_pin_reply.items.at[i].code, looks[_i].codes[i]);
        }
        ck_assert_uint_eq(pinned(), want_bytes);
        ck_assert_int_eq(reply.body.peer_pin_reply.pin_id != 0, want_bytes != 0);
        bed_close();
    }
END_TEST

/* ---- SEEK: what others have, and its removal there ---- */

static struct sl_msg seek_of(const struct sl_text *keys, uint64_t count, bool remove)
{
    struct sl_msg msg = {.type = SL_MSG_SEEK, .budget_ns = 3 * SL_NS_PER_S};
    msg.body.seek.keys = (struct sl_texts){.at = keys, .count = count};
    msg.body.seek.remove = remove;
    return msg;
}

static uint32_t seeks_open(void)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < TR_SEEKS_MAX; i++) {
        open += bed.self->seeks[i].used ? 1u : 0u;
    }
    return open;
}

static uint64_t seek_send(uint64_t count, bool remove)
{
    static const struct sl_text keys[] = {{.at = "p", .length = 1}, {.at = "q", .length = 1}};
    struct sl_msg msg = seek_of(keys, count, remove);
    fake_give(&bed.fake, "client.9.0", &msg);
    fake_advance(&bed.fake, 0);
    return msg.seq;
}

/* Answers the newest SEEK. */
static void peer_seen(const char *name, sl_err code, const struct sl_item_seen *items,
                      uint64_t count)
{
    struct sl_msg asked, reply = {.type = SL_MSG_SEEK_REPLY, .code = code};
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_SEEK, &asked));
    reply.reply_to = asked.seq;
    reply.body.seek_reply.items.at = items;
    reply.body.seek_reply.items.count = count;
    peer_says(name, name, reply, true);
}

static void seek_bed(void)
{
    bed_open("b@host:1,c@host:2,d@host:3");
    peer_lives("b", 1);
    peer_lives("c", 1); /* d cannot be reached */
}

START_TEST(what_one_peer_has_is_seen)
    {
        struct sl_msg reply;
        seek_bed();
        const struct sl_item_seen none[2] = {{.code = SL_ERR_NOT_FOUND},
                                             {.code = SL_ERR_NOT_FOUND}};
        const struct sl_item_seen some[2] = {{.code = SL_ERR_NOT_FOUND},
                                             {.code = SL_OK, .length_bytes = 9, .on_disk = true}};

        uint64_t seq = seek_send(2, false);
        ck_assert_uint_eq(letters_of(SL_MSG_SEEK), 2);
        peer_seen("b", SL_OK, none, 2);
        ck_assert(!fake_take_reply(&bed.fake, "client.9.0", seq, &reply)); /* c may have it */
        peer_seen("c", SL_OK, some, 2);

        ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &reply));
        const struct sl_body_seek_reply *body = &reply.body.seek_reply;
        ck_assert_uint_eq(body->items.count, 2);
        ck_assert_uint_eq(body->items.at[0].code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(body->items.at[0].node, 0);
        ck_assert_uint_eq(body->items.at[1].code, SL_OK);
        ck_assert_uint_eq(body->items.at[1].length_bytes, 9);
        ck_assert(body->items.at[1].on_disk && !body->items.at[1].in_memory);
        ck_assert_str_eq(body->nodes.at[body->items.at[1].node - 1].at, "c");
        ck_assert_uint_eq(seeks_open(), 0);
        bed_close();
    }
END_TEST

START_TEST(a_silent_peer_has_nothing_and_keeps_what_was_to_be_removed)
    {
        struct sl_msg reply;
        seek_bed();
        const struct sl_item_seen gone[2] = {{.code = SL_OK}, {.code = SL_ERR_LEASED}};

        uint64_t found = seek_send(2, false);
        fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", found, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_NOT_FOUND);

        uint64_t removed = seek_send(2, true);
        peer_seen("b", SL_OK, gone, 2);
        fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", removed, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_TIMEOUT);
        ck_assert_uint_eq(reply.body.seek_reply.items.at[1].code, SL_ERR_LEASED);
        ck_assert_uint_eq(seeks_open(), 0);
        bed_close();
    }
END_TEST

START_TEST(a_lying_answer_has_nothing)
    {
        struct sl_msg reply;
        seek_bed();
        const struct sl_item_seen lies[3] = {{.code = 250}, {.code = SL_OK}, {.code = SL_OK}};

        uint64_t seq = seek_send(2, false);
        peer_seen("b", SL_OK, lies, 3);
        peer_seen("c", SL_OK, lies, 2);

        ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_PROTOCOL);
        ck_assert_uint_eq(reply.body.seek_reply.items.at[1].code, SL_OK);
        peer_seen("c", SL_OK, lies, 2); /* once more, and for nothing that is open */
        bed_close();
    }
END_TEST

/* b and c live; the removal reached neither. */
START_TEST(a_removal_that_could_not_be_asked_for_is_in_doubt)
    {
        struct sl_msg reply;
        seek_bed();
        const struct sl_item_seen gone = {.code = SL_OK};
        bed.net.cut = true;
        uint64_t found = seek_send(1, false);
        uint64_t removed = seek_send(1, true);
        bed.net.cut = false;
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", found, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_NOT_FOUND);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", removed, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_TIMEOUT);

        removed = seek_send(1, true);
        peer_seen("b", SL_OK, &gone, 1);
        peer_seen("c", SL_ERR_BUSY, NULL, 0);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", removed, &reply));
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_ERR_TIMEOUT);
        ck_assert_uint_eq(seeks_open(), 0);
        bed_close();
    }
END_TEST

START_TEST(who_has_no_time_takes_nobody_for_broken)
    {
        const struct sl_text key = {.at = "p", .length = 1};
        seek_bed();
        uint32_t before = letters_of(SL_MSG_SEEK);
        for (uint32_t i = 0; i < 10; i++) {
            struct sl_msg msg = seek_of(&key, 1, false);
            msg.budget_ns = SL_NS_PER_MS;
            fake_give(&bed.fake, "client.9.0", &msg);
            fake_advance(&bed.fake, 2 * SL_NS_PER_MS);
        }
        ck_assert_uint_eq(letters_of(SL_MSG_SEEK), before + 20);
        ck_assert_uint_eq(seeks_open(), 0);

        for (uint32_t i = 0; i < 10; i++) { /* but a long silence counts */
            (void)seek_send(1, false);
            fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
        }
        ck_assert_uint_lt(letters_of(SL_MSG_SEEK), before + 40);
        bed_close();
    }
END_TEST

START_TEST(look_ups_at_peers_are_bounded)
    {
        struct sl_msg reply;
        seek_bed();
        for (uint32_t i = 0; i < TR_SEEKS_MAX; i++) {
            (void)seek_send(1, false);
        }

        uint64_t seq = seek_send(1, false);

        ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
        ck_assert_uint_eq(seeks_open(), 0);
        bed_close();
    }
END_TEST

START_TEST(a_peer_sees_our_objects)
    {
        struct sl_msg reply;
        const struct sl_text keys[] = {{.at = "k", .length = 1}, {.at = "x", .length = 1}};
        bed_open("");
        object_put("k", 5000);
        peer_says("b", "b", seek_of(keys, 2, false), false);
        ck_assert_uint_eq(letters_of(SL_MSG_SEEK_REPLY), 0); /* no HELLO yet */
        peer_says("b", "b", hello_of("b", 3), false);

        (void)peer_says("b", "b", seek_of(keys, 2, false), false);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_SEEK_REPLY, &reply));
        ck_assert_uint_eq(letters_of(SL_MSG_SEEK), 0); /* no other peer is asked for it */
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, SL_OK);
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].length_bytes, 5000);
        ck_assert(reply.body.seek_reply.items.at[0].in_memory);
        ck_assert_uint_eq(reply.body.seek_reply.items.at[1].code, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

static const sl_err removals[] = {SL_ERR_LEASED, SL_ERR_DISK_AWAY};

START_TEST(peers_remove_where_they_may)
    {
        struct sl_msg reply, asked, answer = {.type = SL_MSG_REMOVE_REPLY};
        const struct sl_text key = {.at = "k", .length = 1};
        const uint64_t code = (uint64_t)removals[_i];
        bed_open("");
        peer_says("b", "b", hello_of("b", 3), false);
        (void)peer_says("b", "b", seek_of(&key, 1, true), false);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_SEEK_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        ck_assert(!fake_take(&bed.fake, "registrar", SL_MSG_REMOVE, &asked));
        fake_set(&bed.fake, "peer_removes", "true");

        struct sl_msg seek = seek_of(&key, 1, true);
        (void)peer_says("b", "b", seek, false);
        ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_REMOVE, &asked));
        ck_assert_uint_eq(asked.body.remove.keys.count, 1);
        answer.reply_to = asked.seq;
        answer.body.remove_reply.codes = (struct sl_u64s){.at = &code, .count = 1};
        fake_give(&bed.fake, "registrar", &answer);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_SEEK_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.seek_reply.items.at[0].code, removals[_i]);
        bed_close();
    }
END_TEST

START_TEST(one_peer_cannot_take_all_removals)
    {
        struct sl_msg reply;
        const struct sl_text key = {.at = "k", .length = 1};
        bed_open("");
        fake_set(&bed.fake, "peer_removes", "true");
        peer_says("b", "b", hello_of("b", 3), false);
        peer_says("c", "c", hello_of("c", 3), false);
        for (uint32_t i = 0; i < TR_SEEKS_MAX / 4 * 3; i++) {
            (void)peer_says("b", "b", seek_of(&key, 1, true), false);
        }
        ck_assert(!fake_net_last(&bed.net, "b", SL_MSG_SEEK_REPLY, &reply));

        (void)peer_says("b", "b", seek_of(&key, 1, true), false);
        (void)peer_says("c", "c", seek_of(&key, 1, true), false);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_SEEK_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        ck_assert(!fake_net_last(&bed.net, "c", SL_MSG_SEEK_REPLY, &reply));
        bed_close();
    }
END_TEST

/* ---- BRING ---- */

static uint64_t fetch_within(const char *const *keys, uint64_t count, bool chain,
                             uint64_t budget_ns)
{
    struct sl_text texts[8] = {0};
    for (uint64_t i = 0; i < count; i++) {
        texts[i] = sl_text_of(keys[i]);
    }
    struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = budget_ns};
    msg.body.bring.chain = chain;
    msg.body.bring.keys.at = texts;
    msg.body.bring.keys.count = count;
    fake_give(&bed.fake, "client.9.0", &msg);
    fake_advance(&bed.fake, 0);
    return msg.seq;
}

static uint64_t fetch_send(const char *const *keys, uint64_t count)
{
    return fetch_within(keys, count, false, 3 * SL_NS_PER_S);
}

static uint64_t fetch_chain(const char *const *keys, uint64_t count)
{
    return fetch_within(keys, count, true, 3 * SL_NS_PER_S);
}

static void codes_are(uint64_t seq, uint64_t first, uint64_t second)
{
    struct sl_msg reply;
    ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.bring_reply.codes.count, 2);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], first);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[1], second);
}

static const char *const two_keys[] = {"here", "there"};

/* Answers the newest PEER_PIN to the peer with misses. */
static void peer_has_nothing(const char *name)
{
    struct sl_msg pin, reply = {.type = SL_MSG_PEER_PIN_REPLY};
    struct sl_item_place places[2] = {{.code = SL_ERR_NOT_FOUND}, {.code = SL_ERR_NOT_FOUND}};
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_PIN, &pin));
    reply.reply_to = pin.seq;
    reply.body.peer_pin_reply.items.at = places;
    reply.body.peer_pin_reply.items.count = pin.body.peer_pin.items.count;
    peer_says(name, name, reply, true);
}

/* Both requests are open at one peer; it answers each as if it were the other. */
START_TEST(an_answer_of_another_type_answers_nothing)
    {
        struct sl_msg pin, seek, reply;
        const struct sl_item_seen seen[2] = {{.code = SL_ERR_NOT_FOUND},
                                             {.code = SL_ERR_NOT_FOUND}};
        seek_bed();
        uint64_t fetched = fetch_send(two_keys, 2);
        uint64_t sought = seek_send(2, false);
        const char *name = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin) ? "b" : "c";
        ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_PIN, &pin));
        ck_assert(fake_net_last(&bed.net, name, SL_MSG_SEEK, &seek));

        struct sl_msg lie = {.type = SL_MSG_SEEK_REPLY, .reply_to = pin.seq};
        lie.body.seek_reply.items.at = seen;
        lie.body.seek_reply.items.count = 2;
        peer_says(name, name, lie, true);
        lie = (struct sl_msg){.type = SL_MSG_PEER_PIN_REPLY, .reply_to = seek.seq};
        peer_says(name, name, lie, true);

        ck_assert(!fake_take_reply(&bed.fake, "client.9.0", fetched, &reply));
        ck_assert(!fake_take_reply(&bed.fake, "client.9.0", sought, &reply));
        ck_assert_uint_eq(seeks_open(), 1);
        bed_close();
    }
END_TEST

START_TEST(nobody_is_asked_when_nobody_lives)
    {
        bed_open("b@host:1,c@host:2");
        object_put("here", 100);
        uint64_t seq = fetch_send(two_keys, 2);
        codes_are(seq, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        bed_close();
    }
END_TEST

START_TEST(a_miss_goes_from_peer_to_peer_once)
    {
        bed_open("b@host:1,c@host:2");
        object_put("here", 100);
        peer_lives("b", 3);
        peer_lives("c", 3);

        uint64_t seq = fetch_send(two_keys, 2);
        uint64_t other = fetch_send(two_keys, 2); /* joins the first */
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        struct sl_msg msg;
        bool first = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &msg);
        peer_has_nothing(first ? "b" : "c");
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 2);
        peer_has_nothing(first ? "c" : "b");

        codes_are(seq, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        codes_are(other, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        seq = fetch_send(two_keys, 2); /* remembered as missing for a while */
        codes_are(seq, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 2);
        fake_advance(&bed.fake, 600 * SL_NS_PER_MS);
        (void)fetch_send(two_keys, 2);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 3);
        bed_close();
    }
END_TEST

/* Answers the newest PEER_PIN to the peer with these codes. */
static void peer_answers(const char *name, uint64_t first, uint64_t second)
{
    struct sl_msg pin, reply = {.type = SL_MSG_PEER_PIN_REPLY};
    struct sl_item_place places[2] = {{.code = first, .length_bytes = 10},
                                      {.code = second, .length_bytes = 10}};
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_PIN, &pin));
    reply.reply_to = pin.seq;
    reply.body.peer_pin_reply.ttl_ns = SL_NS_PER_S;
    reply.body.peer_pin_reply.items.at = places;
    reply.body.peer_pin_reply.items.count = pin.body.peer_pin.items.count;
    peer_says(name, name, reply, true);
}

/* Of a chain of two, one peer has the second block and the other the first. */
START_TEST(what_lies_behind_a_gap_is_asked_for_again)
    {
        static const char *const chain[] = {"first", "second"};
        struct sl_msg msg;
        bed_open("b@host:1,c@host:2");
        peer_lives("b", 3);
        peer_lives("c", 3);
        (void)fetch_chain(chain, 2);
        bool first = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &msg);
        const char *one = first ? "b" : "c", *other = first ? "c" : "b";

        peer_answers(one, SL_ERR_NOT_FOUND, SL_ERR_CANCELLED);
        peer_answers(other, SL_OK, SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 3);
        ck_assert(fake_net_last(&bed.net, one, SL_MSG_PEER_PIN, &msg));
        ck_assert_uint_eq(msg.body.peer_pin.items.count, 1);
        ck_assert_int_eq(memcmp(msg.body.peer_pin.items.at[0].key.at, "second", 6), 0);
        bed_close();
    }
END_TEST

START_TEST(nothing_is_asked_for_behind_what_nobody_has)
    {
        static const char *const chain[] = {"first", "second"};
        struct sl_msg msg;
        bed_open("b@host:1,c@host:2");
        peer_lives("b", 3);
        peer_lives("c", 3);
        uint64_t seq = fetch_chain(chain, 2);
        bool first = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &msg);

        peer_answers(first ? "b" : "c", SL_ERR_NOT_FOUND, SL_ERR_CANCELLED);
        peer_answers(first ? "c" : "b", SL_ERR_NOT_FOUND, SL_ERR_CANCELLED);

        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 2);
        seq = fetch_chain((const char *const[]){"third", "fourth"}, 2);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &msg));
        peer_answers("b", SL_ERR_CANCELLED, SL_ERR_CANCELLED); /* no gap before: it lies */
        peer_answers("c", SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

START_TEST(a_silent_peer_costs_its_timeout_and_is_left_alone)
    {
        bed_open("b@host:1");
        for (uint32_t i = 0; i < 3; i++) {
            peer_lives("b", 3);
            uint64_t seq = fetch_send(two_keys, 2);
            ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), i + 1);
            fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
            codes_are(seq, SL_ERR_UNREACHABLE, SL_ERR_UNREACHABLE);
        }
        peer_lives("b", 3); /* it answers only HELLOs */
        uint64_t seq = fetch_send(two_keys, 2);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 3);
        bed_close();
    }
END_TEST

START_TEST(a_late_answer_is_unpinned)
    {
        bed_open("b@host:1");
        struct sl_msg pin, msg, reply = {.type = SL_MSG_PEER_PIN_REPLY};
        struct sl_item_place places[2] = {{.length_bytes = 10}, {.length_bytes = 10}};
        peer_lives("b", 3);
        (void)fetch_send(two_keys, 2);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
        reply.reply_to = pin.seq;
        fake_advance(&bed.fake, 500 * SL_NS_PER_MS);
        reply.body.peer_pin_reply.pin_id = 4711;
        reply.body.peer_pin_reply.items.at = places;
        reply.body.peer_pin_reply.items.count = 2;

        peer_says("b", "b", reply, true);

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_UNPIN, &msg));
        ck_assert_uint_eq(msg.body.peer_unpin.pin_ids.at[0], 4711);
        bed_close();
    }
END_TEST

START_TEST(a_lying_answer_is_a_miss)
    {
        static const struct {
            uint64_t arena, length_bytes, count;
        } lies[] = {{63, 10, 2}, {0, 0, 2}, {0, 10, 1}, {65535, 10, 2}};
        bed_open("b@host:1");
        for (size_t i = 0; i < SL_COUNT(lies); i++) {
            struct sl_msg pin, reply = {.type = SL_MSG_PEER_PIN_REPLY};
            const char *const keys[] = {i % 2 == 0 ? "e" : "f", i / 2 == 0 ? "g" : "h"};
            struct sl_item_place places[2];
            peer_lives("b", 3 + i); /* a new life each time: the breaker is closed */
            uint64_t seq = fetch_send(keys, 2);
            ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
            for (uint32_t k = 0; k < 2; k++) {
                places[k] = (struct sl_item_place){.arena = lies[i].arena,
                                                   .length_bytes = lies[i].length_bytes};
            }
            reply.reply_to = pin.seq;
            reply.body.peer_pin_reply.pin_id = 1;
            reply.body.peer_pin_reply.items.at = places;
            reply.body.peer_pin_reply.items.count = lies[i].count;
            peer_says("b", "b", reply, true);
            struct sl_msg answer;
            ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &answer));
            ck_assert_uint_ne(answer.body.bring_reply.codes.at[0], SL_OK);
        }
        struct sl_msg msg;
        ck_assert(!fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &msg));
        bed_close();
    }
END_TEST

START_TEST(a_fetch_ends_by_its_deadline)
    {
        bed_open("b@host:1");
        fake_set(&bed.fake, "peer_timeout", "1min");
        peer_lives("b", 3);
        uint64_t seq = fetch_send(two_keys, 2);
        fake_advance(&bed.fake, 3 * SL_NS_PER_S);
        codes_are(seq, SL_ERR_TIMEOUT, SL_ERR_TIMEOUT);
        bed_close();
    }
END_TEST

/* A fetch for a caller with 60 ms takes longer, by the peer's answer or the registrar's. */
START_TEST(who_joins_a_fetch_keeps_its_own_time)
    {
        struct sl_msg reply, reserve;
        bed_open("b@host:1");
        peer_lives("b", 3);
        uint64_t hasty = fetch_within(two_keys, 2, true, 60 * SL_NS_PER_MS);
        uint64_t patient = fetch_chain(two_keys, 2);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        if (_i == 1) {
            peer_answers("b", SL_OK, SL_OK);
            ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &reserve));
        }

        fake_advance(&bed.fake, 60 * SL_NS_PER_MS);
        codes_are(hasty, SL_ERR_TIMEOUT, SL_ERR_TIMEOUT);
        while (fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &reserve)) {
        }
        fake_advance(&bed.fake, 10 * SL_NS_PER_MS);
        peer_answers("b", SL_OK, SL_OK);

        ck_assert(!fake_take_reply(&bed.fake, "client.9.0", patient, &reply));
        ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &reserve));
        bed_close();
    }
END_TEST

START_TEST(a_fetch_without_time_takes_nobody_for_broken)
    {
        bed_open("b@host:1");
        peer_lives("b", 3);
        for (uint32_t i = 0; i < 10; i++) {
            uint64_t seq = fetch_within(two_keys, 2, true, SL_NS_PER_MS);
            fake_advance(&bed.fake, 2 * SL_NS_PER_MS);
            codes_are(seq, SL_ERR_TIMEOUT, SL_ERR_TIMEOUT);
        }

        uint32_t before = letters_of(SL_MSG_PEER_PIN);
        (void)fetch_send(two_keys, 2);

        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), before + 1);
        bed_close();
    }
END_TEST

START_TEST(a_peer_that_owes_all_of_them_an_answer_is_broken)
    {
        bed_open("b@host:1");
        for (uint32_t i = 0; i < 120; i++) {
            peer_lives("b", 3); /* it answers HELLOs */
            (void)fetch_within(two_keys, 2, true, 50 * SL_NS_PER_MS);
            fake_advance(&bed.fake, 50 * SL_NS_PER_MS);
        }

        ck_assert_uint_lt(letters_of(SL_MSG_PEER_PIN), 60);
        bed_close();
    }
END_TEST

/* Groups of one part and of 2 or 512 parts, with two keys. */
static const uint64_t bad_groups[] = {2, 512};
START_TEST(blocks_are_fetched_whole_or_not_at_all)
    {
        bed_open("b@host:1");
        const struct sl_text texts[] = {sl_text_of(two_keys[0]), sl_text_of(two_keys[1])};
        const struct sl_item_group wanted[] = {
            {.key = sl_text_of("m/a"), .part_count = 1},
            {.key = sl_text_of("m/b"), .part_count = bad_groups[_i]}};
        struct sl_msg reply, msg = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
        msg.body.bring.keys = (struct sl_texts){texts, SL_COUNT(texts)};
        msg.body.bring.groups.at = wanted;
        msg.body.bring.groups.count = SL_COUNT(wanted);
        fake_give(&bed.fake, "client.9.0", &msg);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "parts of 2 keys"));
        bed_close();
    }
END_TEST

START_TEST(nothing_comes_from_nodes_ahead_of_use)
    {
        bed_open("b@host:1");
        peer_lives("b", 3);
        const struct sl_text key = sl_text_of(two_keys[0]);
        struct sl_msg reply, msg = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
        msg.body.bring.keys = (struct sl_texts){&key, 1};
        msg.body.bring.ahead = true;
        fake_give(&bed.fake, "client.9.0", &msg);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "BRING.ahead"));
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        bed_close();
    }
END_TEST

/* ---- a directory, played by the test ---- */

static struct {
    struct sl_directory_member members[80];
    uint32_t member_count, lookup_count, flush_count;
    uint32_t flushed_count; /* lookups before the latest flush */
    struct sl_directory_lookup last;
    uint64_t ids[SL_DIRECTORY_KEYS_MAX];
    sl_err answer;
    char keys[1100];
} book;

static sl_err book_lookup(void *context, const struct sl_directory_lookup *lookup)
{
    (void)context;
    if (book.answer != SL_OK) {
        return book.answer;
    }
    book.lookup_count++;
    book.last = *lookup;
    memcpy(book.ids, lookup->ids, lookup->count * sizeof(book.ids[0]));
    return SL_OK;
}

static void book_flush(void *context, uint64_t now_ns)
{
    (void)context, (void)now_ns;
    book.flush_count++;
    book.flushed_count = book.lookup_count;
}

static uint32_t book_members(void *context, const struct sl_directory_member **out)
{
    (void)context;
    *out = book.members;
    return book.member_count;
}

static void member_set(const char *name, const char *control)
{
    struct sl_directory_member *to = &book.members[book.member_count];
    for (uint32_t i = 0; i < book.member_count; i++) {
        to = strcmp(book.members[i].name, name) == 0 ? &book.members[i] : to;
    }
    book.member_count += to == &book.members[book.member_count];
    *to = (struct sl_directory_member){.incarnation = 5};
    snprintf(to->name, sizeof(to->name), "%s", name);
    snprintf(to->control, sizeof(to->control), "%s", control);
}

/* The directory's changes reach the transporter, which checks at most once a second. */
static void members_told(void)
{
    tr_members_changed(bed.self);
    fake_advance(&bed.fake, SL_NS_PER_S);
}

/* keys: names whose public key is in cluster_keys, one letter each. */
static void book_open(const char *peers, const char *keys)
{
    memset(&book, 0, sizeof(book));
    bed_open(peers);
    snprintf(book.keys, sizeof(book.keys), "%s/keys", bed.fake.paths.runtime_dir);
    for (; *keys != '\0'; keys++) {
        const char name[2] = {*keys, '\0'};
        ck_assert_int_eq(sl_curve_make(book.keys, name, NULL), SL_OK);
    }
    fake_set(&bed.fake, "cluster_keys", book.keys);
    bed.self->guide = (struct tr_directory_ops){
        .lookup = book_lookup, .flush = book_flush, .members = book_members};
}

static void book_close(const char *keys)
{
    char path[1200];
    for (; *keys != '\0'; keys++) {
        snprintf(path, sizeof(path), "%s/%c.pub", book.keys, *keys);
        (void)remove(path);
        snprintf(path, sizeof(path), "%s/%c.secret", book.keys, *keys);
        (void)remove(path);
    }
    (void)remove(book.keys);
    bed_close();
}

/* The directory answers the last lookup: the holders of each key (letters; NULL: none) */
static void directory_answers(const char *const *holders)
{
    static struct sl_directory_found found[SL_DIRECTORY_KEYS_MAX];
    memset(found, 0, sizeof(found));
    for (uint32_t k = 0; k < book.last.count; k++) {
        for (const char *at = holders[k]; at != NULL && *at != '\0'; at++) {
            for (uint32_t i = 0; i < book.member_count; i++) {
                if (book.members[i].name[0] == *at) {
                    found[k].holders[found[k].holder_count++] = &book.members[i];
                }
            }
        }
    }
    tr_holders_found(bed.self, book.last.cookie, SL_OK, found, book.last.count);
    fake_advance(&bed.fake, 0);
}

/* b and c are members, have keys here, and are alive. */
static void book_of_two(void)
{
    book_open("", "abc");
    member_set("b", "10.0.0.2:1");
    member_set("c", "10.0.0.3:1");
    members_told();
    peer_lives("b", 3);
    peer_lives("c", 3);
}

static const struct {
    const char *name, *control, *state;
} members_told_of[] = {
    {"b", "10.0.0.2:7411", NULL},
    {"b", "[fd00::2]:7411", NULL},
    {"x", "10.0.0.2:7411", "no key"},
    {"a", "10.0.0.2:7411", "no name"}, /* this node */
    {"../b", "10.0.0.2:7411", "no name"},
    {"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "10.0.0.2:7411", "no name"},
    {"b", "", "no address"},
    {"b", "10.0.0.2", "no address"},
    {"b", "10.0.0.2:0", "no address"},
    {"b", "10.0.0.2:65536", "no address"},
    {"b", "10.0.0.2:7411x", "no address"},
    {"b", "host:7411", "no address"}, /* names are not resolved */
    {"b", "*:7411", "no address"},
    {"b", "0.0.0.0:7411", "no address"},
    {"b", "[::]:7411", "no address"},
    {"b", "10.0.0.9:1;10.0.0.2:7411", "no address"}, /* ZeroMQ's source address */
    {"b", "fd00::2:7411", "no address"},
};
START_TEST(a_member_with_a_key_and_an_address_is_a_peer)
    {
        book_open("", "ab");
        member_set(members_told_of[_i].name, members_told_of[_i].control);
        const char *state = tr_member_state(bed.self, &book.members[0]);

        members_told();

        if (members_told_of[_i].state == NULL) {
            struct sl_msg hello;
            ck_assert_uint_eq(bed.self->peer_count, 1);
            ck_assert_str_eq(bed.net.where, members_told_of[_i].control);
            ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO, &hello));
        } else {
            ck_assert_str_eq(state, members_told_of[_i].state);
            ck_assert_uint_eq(bed.self->peer_count, 0);
            ck_assert_uint_eq(bed.net.add_count, 0);
        }
        book_close("ab");
    }
END_TEST

START_TEST(a_key_that_is_added_counts)
    {
        book_open("", "a");
        member_set("b", "10.0.0.2:1");
        members_told();
        ck_assert_uint_eq(bed.self->peer_count, 0);

        ck_assert_int_eq(sl_curve_make(book.keys, "b", NULL), SL_OK);
        fake_advance(&bed.fake, 5 * SL_NS_PER_S);

        ck_assert_uint_eq(bed.self->peer_count, 1);
        book_close("ab");
    }
END_TEST

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* A key is revoked by removing it, which ends the peer's access but does not prevent the node's
 * next start. */
static const struct {
    const char *name, *text; /* of a file that is there beside a.secret; NULL: none */
} no_keys[] = {{"a.pub", NULL}, {"b.pub", ""}, {"b.pub", "public = short\n"}};
START_TEST(a_peer_without_a_key_stops_no_start)
    {
        struct sl_error why = {0};
        char path[1200];
        book_open("", "ac");
        if (no_keys[_i].text != NULL) {
            snprintf(path, sizeof(path), "%s/%s", book.keys, no_keys[_i].name);
            file_write(path, no_keys[_i].text);
        }
        tr_peers_fini(bed.self);
        fake_set(&bed.fake, "peers", "b@host:1,c@host:2");
        bed.net.add_count = 0;

        ck_assert_msg(tr_peers_init(bed.self, &why) == SL_OK, "%s", why.text);
        fake_advance(&bed.fake, SL_NS_PER_S);

        ck_assert_uint_eq(bed.net.add_count, 1); /* only c */
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_HELLO), 1);
        ck_assert(bed.self->peers[0].expelled);
        snprintf(path, sizeof(path), "%s/b.pub", book.keys);
        (void)remove(path);
        ck_assert_int_eq(sl_curve_make(book.keys, "b", NULL), SL_OK);
        bed.self->keys_due_ns = 0; /* nothing watches the directory of this test */
        fake_advance(&bed.fake, SL_NS_PER_S);
        ck_assert(!bed.self->peers[0].expelled);
        ck_assert_uint_eq(bed.net.add_count, 2);
        ck_assert_str_eq(bed.self->peers[0].address, "host:1");
        book_close("abc");
    }
END_TEST

START_TEST(a_file_names_peers_and_is_read_again)
    {
        char path[1100];
        bed_open("");
        fake_set(&bed.fake, "cluster_plaintext", "true");
        (void)snprintf(path, sizeof(path), "%s/peers", bed.fake.paths.shm_dir);
        fake_set(&bed.fake, "peers_file", path);
        fake_advance(&bed.fake, SL_NS_PER_S); /* it is not there yet */
        ck_assert_uint_eq(bed.self->peer_count, 0);

        file_write(path, "# all nodes\n\na@10.0.0.1:1\nnonsense\nb@10.0.0.2:1\n");
        fake_advance(&bed.fake, SL_NS_PER_S);
        ck_assert_uint_eq(bed.self->peer_count, 1);
        ck_assert_str_eq(bed.net.where, "10.0.0.2:1");
        file_write(path, "b@10.0.0.2:1\nc@10.0.0.3:1");
        ck_assert_int_eq(chmod(path, 0666), 0); /* any user may have written it */
        fake_advance(&bed.fake, SL_NS_PER_S);
        ck_assert_uint_eq(bed.self->peer_count, 1);
        ck_assert_int_eq(chmod(path, 0644), 0);
        fake_advance(&bed.fake, SL_NS_PER_S);

        ck_assert_uint_eq(bed.self->peer_count, 2);
        ck_assert_str_eq(bed.net.where, "10.0.0.3:1");
        file_write(path, "b@10.0.0.9:1\n"); /* it moved, and never answered at its old address */
        fake_advance(&bed.fake, SL_NS_PER_S);
        ck_assert_uint_eq(bed.self->peer_count, 2);
        ck_assert_str_eq(bed.net.where, "10.0.0.9:1");
        ck_assert_int_eq(remove(path), 0);
        bed_close();
    }
END_TEST

START_TEST(a_peer_of_the_file_that_cannot_be_spoken_to_is_tried_again)
    {
        char path[1100];
        bed_open("");
        fake_set(&bed.fake, "cluster_plaintext", "true");
        (void)snprintf(path, sizeof(path), "%s/peers", bed.fake.paths.shm_dir);
        file_write(path, "b@10.0.0.2:1\n");
        bed.net.add_fails = SL_ERR_CONFIG; /* its key is half written */
        fake_set(&bed.fake, "peers_file", path);
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        ck_assert_uint_eq(bed.net.add_count, 0);
        bed.net.add_fails = SL_OK;

        fake_advance(&bed.fake, 2 * SL_NS_PER_S);

        ck_assert_uint_eq(bed.net.add_count, 1);
        ck_assert_str_eq(bed.net.where, "10.0.0.2:1");
        ck_assert_int_eq(remove(path), 0);
        bed_close();
    }
END_TEST

static const char *const bad_lines[] = {
    "b@host:1", "b@10.0.0.2",      "@10.0.0.2:1",
    "b@",       "../b@10.0.0.2:1", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb@10.0.0.2:1"};
START_TEST(bad_lines_of_the_file_make_no_peers)
    {
        char path[1100];
        bed_open("");
        fake_set(&bed.fake, "cluster_plaintext", "true");
        (void)snprintf(path, sizeof(path), "%s/peers", bed.fake.paths.shm_dir);
        file_write(path, bad_lines[_i]);
        fake_set(&bed.fake, "peers_file", path);

        fake_advance(&bed.fake, SL_NS_PER_S);
        fake_advance(&bed.fake, SL_NS_PER_S);

        ck_assert_uint_eq(bed.self->peer_count, 0);
        ck_assert_int_eq(remove(path), 0);
        bed_close();
    }
END_TEST

START_TEST(members_beyond_the_table_are_left_out)
    {
        char name[16];
        book_open("", "");
        fake_set(&bed.fake, "cluster_plaintext", "true");
        for (uint32_t i = 0; i < SL_COUNT(book.members); i++) {
            snprintf(name, sizeof(name), "n%u", i);
            member_set(name, "10.0.0.2:1");
        }
        members_told();
        ck_assert_uint_eq(bed.self->peer_count, TR_PEERS_MAX);
        ck_assert_str_eq(tr_member_state(bed.self, &book.members[79]), "too many");
        book_close("");
    }
END_TEST

START_TEST(the_directory_moves_nobody_who_answers_or_is_configured)
    {
        book_open("c@10.0.0.3:1", "abc");
        member_set("b", "10.0.0.2:1");
        member_set("c", "10.0.0.9:1");
        members_told();
        peer_lives("b", 3);
        ck_assert_uint_eq(bed.net.add_count, 2);

        member_set("b", "10.0.0.9:1");
        members_told();
        ck_assert_uint_eq(bed.net.add_count, 2);
        ck_assert_str_eq(tr_peer_find(bed.self, "b")->address, "10.0.0.2:1");
        ck_assert_str_eq(tr_peer_find(bed.self, "c")->address, "10.0.0.3:1");
        fake_advance(&bed.fake, 10 * SL_NS_PER_S); /* silent: perhaps it has moved */
        ck_assert_uint_eq(bed.net.add_count, 3);
        ck_assert_str_eq(bed.net.added, "b");
        ck_assert_str_eq(bed.net.where, "10.0.0.9:1");
        book_close("abc");
    }
END_TEST

START_TEST(holders_alone_are_asked)
    {
        struct sl_msg pin;
        book_of_two();
        object_put("here", 100);
        uint64_t seq = fetch_send(two_keys, 2);
        ck_assert_uint_eq(book.lookup_count, 1);
        ck_assert_uint_eq(book.last.count, 1); /* keys that are present are not requested */
        ck_assert_uint_eq(book.ids[0], sl_key_id("there", 5));
        ck_assert_uint_ge(book.flush_count, 1);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);

        directory_answers((const char *const[]){"c"});
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        ck_assert(fake_net_last(&bed.net, "c", SL_MSG_PEER_PIN, &pin));
        peer_has_nothing("c"); /* for instance after a restart */

        codes_are(seq, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        seq = fetch_send(two_keys, 2); /* it may answer the same: no new request */
        directory_answers((const char *const[]){"c"});
        codes_are(seq, SL_ERR_EXISTS, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        book_close("abc");
    }
END_TEST

START_TEST(what_nobody_holds_costs_no_question)
    {
        book_of_two();
        uint64_t seq = fetch_send(two_keys, 2);
        directory_answers((const char *const[]){NULL, "x"});
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        book_close("abc");
    }
END_TEST

/* A value that a hand-over promises may not be published yet. */
static const char *const sure_holders[] = {NULL, "b"};
START_TEST(who_is_sure_asks_all_when_those_named_have_nothing)
    {
        struct sl_msg pin, reply, msg = {.type = SL_MSG_BRING, .budget_ns = 3 * SL_NS_PER_S};
        const struct sl_text text = sl_text_of("there");
        book_of_two();
        msg.body.bring.sure = true;
        msg.body.bring.keys.at = &text;
        msg.body.bring.keys.count = 1;
        fake_give(&bed.fake, "client.9.0", &msg);
        fake_advance(&bed.fake, 0);

        directory_answers(&sure_holders[_i]);

        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        bool first = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin);
        ck_assert(first || sure_holders[_i] == NULL);
        peer_has_nothing(first ? "b" : "c");
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 2);
        peer_has_nothing(first ? "c" : "b");
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_NOT_FOUND);
        book_close("abc");
    }
END_TEST

START_TEST(nothing_is_wanted_behind_a_gap_of_a_chain)
    {
        static const char *const keys[] = {"k0", "k1", "k2"};
        struct sl_text texts[3] = {0};
        struct sl_msg pin, msg = {.type = SL_MSG_BRING, .budget_ns = 3 * SL_NS_PER_S};
        book_of_two();
        for (uint32_t i = 0; i < 3; i++) {
            texts[i] = sl_text_of(keys[i]);
        }
        msg.body.bring.chain = true;
        msg.body.bring.keys.at = texts;
        msg.body.bring.keys.count = 3;
        fake_give(&bed.fake, "client.9.0", &msg);
        fake_advance(&bed.fake, 0);

        directory_answers((const char *const[]){"b", NULL, "b"});

        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
        ck_assert_uint_eq(pin.body.peer_pin.items.count, 1);
        book_close("abc");
    }
END_TEST

/* The peers that are asked when the directory does not answer. */
START_TEST(a_silent_directory_costs_its_share)
    {
        book_of_two();
        fake_set(&bed.fake, "directory_timeout", _i == 0 ? "200ms" : "1min");
        uint64_t share_ns = _i == 0 ? 200 * SL_NS_PER_MS : 3 * SL_NS_PER_S / 4;
        uint64_t seq = fetch_send(two_keys, 2);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        ck_assert_uint_le(book.last.deadline_ns, bed.fake.env.now_ns + share_ns);
        ck_assert_uint_gt(book.last.deadline_ns, bed.fake.env.now_ns + share_ns * 9 / 10);

        fake_advance(&bed.fake, share_ns);
        tr_holders_found(bed.self, book.last.cookie, SL_ERR_TIMEOUT, NULL, 0);
        fake_advance(&bed.fake, 0);

        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1); /* those that are known */
        struct sl_msg pin;
        bool first = fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin);
        peer_has_nothing(first ? "b" : "c");
        peer_has_nothing(first ? "c" : "b");
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        book_close("abc");
    }
END_TEST

static const sl_err no_answers[] = {SL_ERR_UNREACHABLE, SL_ERR_LIMIT};
START_TEST(without_a_directory_those_who_are_known_are_asked)
    {
        book_of_two();
        book.answer = no_answers[_i];
        (void)fetch_send(two_keys, 2);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        book_close("abc");
    }
END_TEST

START_TEST(without_a_directory_few_are_asked_for_a_key)
    {
        char name[16];
        struct sl_msg pin;
        book_open("", "");
        fake_set(&bed.fake, "cluster_plaintext", "true");
        fake_set(&bed.fake, "peer_timeout", "2s");
        for (uint32_t i = 0; i < 40; i++) {
            snprintf(name, sizeof(name), "n%u", i);
            member_set(name, "10.0.0.2:1");
        }
        members_told();
        for (uint32_t i = 0; i < 40; i++) {
            snprintf(name, sizeof(name), "n%u", i);
            peer_lives(name, 3);
        }
        book.answer = SL_ERR_UNREACHABLE;
        uint64_t seq = fetch_send(two_keys, 1);
        uint32_t asked = 0;
        for (; asked < 40 && letters_of(SL_MSG_PEER_PIN) == asked + 1; asked++) {
            ck_assert_int_eq(
                sl_codec_decode(bed.take_codec, bed.net.out[bed.net.out_count - 1].bytes,
                                bed.net.out[bed.net.out_count - 1].length_bytes, &pin, NULL),
                SL_OK);
            peer_has_nothing(bed.net.out[bed.net.out_count - 1].peer);
        }
        struct sl_msg reply;
        ck_assert_uint_eq(asked, SL_DIRECTORY_HOLDERS_MAX);
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_NOT_FOUND);
        book_close("");
    }
END_TEST

START_TEST(a_configured_peer_that_tells_nothing_is_asked_for_everything)
    {
        struct sl_msg pin;
        book_open("d@10.0.0.4:1", "abcd");
        member_set("b", "10.0.0.2:1");
        members_told();
        peer_lives("b", 3);
        peer_lives("d", 3);
        (void)fetch_send(two_keys, 2);
        directory_answers((const char *const[]){NULL, NULL});
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        ck_assert(fake_net_last(&bed.net, "d", SL_MSG_PEER_PIN, &pin));
        member_set("d", "10.0.0.4:1"); /* now it does */
        members_told();
        fake_advance(&bed.fake, SL_NS_PER_S);
        peer_lives("b", 3);
        peer_lives("d", 3);
        (void)fetch_send((const char *const[]){"x", "y"}, 2);
        directory_answers((const char *const[]){NULL, NULL});
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        book_close("abcd");
    }
END_TEST

START_TEST(a_peer_without_a_record_now_is_asked_for_everything)
    {
        struct sl_msg pin;
        book_of_two();
        book.member_count = 1; /* the server is back, and c has not reported to it yet */
        tr_members_changed(bed.self);
        uint64_t seq = fetch_send(two_keys, 2);
        directory_answers((const char *const[]){NULL, NULL});
        ck_assert(fake_net_last(&bed.net, "c", SL_MSG_PEER_PIN, &pin));
        ck_assert_uint_eq(pin.body.peer_pin.items.count, 2);
        peer_has_nothing("c");
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        book_close("abc");
    }
END_TEST

static const struct {
    const char *name, *address, *state, *source;
} node_rows[] = {
    {"d", "10.0.0.4:1", "away", "peers"},
    {"b", "10.0.0.2:1", "alive", "directory"},
    {"e", "", "asks", ""},
    {"x", "10.0.0.9:1", "no key", "directory"},
};
START_TEST(nodes_shows_who_told_of_whom)
    {
        struct sl_msg reply, msg = {.type = SL_MSG_NODES};
        book_open("d@10.0.0.4:1", "abcd");
        member_set("b", "10.0.0.2:1");
        member_set("x", "10.0.0.9:1");
        members_told();
        peer_lives("b", 3);
        peer_says("e", "e", hello_of("e", 3), false);

        fake_give(&bed.fake, "client.9.0", &msg);

        ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.nodes_reply.nodes.count, SL_COUNT(node_rows));
        for (uint32_t i = 0; i < SL_COUNT(node_rows); i++) {
            const struct sl_item_node *node = &reply.body.nodes_reply.nodes.at[i];
            ck_assert_str_eq(node->name.at, node_rows[i].name);
            ck_assert_str_eq(node->address.length > 0 ? node->address.at : "",
                             node_rows[i].address);
            ck_assert_str_eq(node->state.at, node_rows[i].state);
            ck_assert_str_eq(node->source.length > 0 ? node->source.at : "", node_rows[i].source);
        }
        book_close("abcd");
    }
END_TEST

START_TEST(questions_to_the_directory_are_bounded)
    {
        book_of_two();
        for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
            char key[16];
            snprintf(key, sizeof(key), "k%u", i);
            (void)fetch_send((const char *const[]){key}, 1);
        }
        ck_assert_uint_eq(book.lookup_count, SL_DIRECTORY_LOOKUPS_MAX);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        (void)fetch_send((const char *const[]){"more"}, 1); /* sent without a lookup */
        ck_assert_uint_eq(book.lookup_count, SL_DIRECTORY_LOOKUPS_MAX);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 1);
        book_close("abc");
    }
END_TEST

/* A BRING of more keys than a lookup takes, and one that ends during the lookup. */
START_TEST(a_large_fetch_asks_in_batches)
    {
        static struct sl_text texts[SL_DIRECTORY_KEYS_MAX + 10];
        static char keys[SL_DIRECTORY_KEYS_MAX + 10][8];
        struct sl_msg reply, msg = {.type = SL_MSG_BRING, .budget_ns = 3 * SL_NS_PER_S};
        book_of_two();
        for (uint32_t i = 0; i < SL_COUNT(texts); i++) {
            snprintf(keys[i], sizeof(keys[i]), "k%u", i);
            texts[i] = sl_text_of(keys[i]);
        }
        msg.body.bring.keys.at = texts;
        msg.body.bring.keys.count = SL_COUNT(texts);
        fake_give(&bed.fake, "client.9.0", &msg);
        fake_advance(&bed.fake, 0);
        ck_assert_uint_eq(book.lookup_count, 2);
        ck_assert_uint_eq(book.last.count, 10);

        fake_advance(&bed.fake, 3 * SL_NS_PER_S); /* this process was stopped */
        ck_assert(fake_take_reply(&bed.fake, "client.9.0", msg.seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_TIMEOUT);
        for (uint64_t cookie = 0; cookie < 2; cookie++) {
            tr_holders_found(bed.self, cookie, SL_ERR_UNREACHABLE, NULL, 0);
        }
        ck_assert_uint_eq(bed.self->parts_open, 0);
        ck_assert_uint_eq(letters_of(SL_MSG_PEER_PIN), 0);
        book_close("abc");
    }
END_TEST

/* Regression: if the last lookup of a BRING was full, nothing sent it, and the directory had it
 * only when a timer ran out. */
START_TEST(a_fetch_of_full_batches_is_sent_at_once)
    {
        static struct sl_text texts[2 * SL_DIRECTORY_KEYS_MAX];
        static char keys[2 * SL_DIRECTORY_KEYS_MAX][16];
        const uint32_t batches = (uint32_t)_i;
        struct sl_msg msg = {.type = SL_MSG_BRING, .budget_ns = 3 * SL_NS_PER_S};
        book_of_two();
        for (uint32_t i = 0; i < batches * SL_DIRECTORY_KEYS_MAX; i++) {
            snprintf(keys[i], sizeof(keys[i]), "k%u", i);
            texts[i] = sl_text_of(keys[i]);
        }
        msg.body.bring.keys.at = texts;
        msg.body.bring.keys.count = batches * SL_DIRECTORY_KEYS_MAX;

        fake_give(&bed.fake, "client.9.0", &msg);
        fake_advance(&bed.fake, 0);

        ck_assert_uint_eq(book.lookup_count, batches);
        ck_assert_uint_eq(book.last.count, SL_DIRECTORY_KEYS_MAX);
        ck_assert_uint_eq(book.flushed_count, batches);
        book_close("abc");
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("peers");
    TCase *tests = tcase_create("peers");
    tcase_add_loop_test(tests, what_is_not_for_a_peer_to_say_gets_nothing, 0, SL_COUNT(foreign));
    tcase_add_test(tests, hostile_bytes_get_nothing);
    tcase_add_test(tests, peers_are_bounded);
    tcase_add_test(tests, a_peer_that_was_expelled_gives_its_place_back);
    tcase_add_loop_test(tests, bad_peers_stop_the_start, 0, SL_COUNT(bad_peers));
    tcase_add_test(tests, a_peer_reads_what_is_pinned_for_it_alone);
    tcase_add_test(tests, a_grant_without_a_key_is_ended);
    tcase_add_loop_test(tests, one_peer_cannot_take_all_pins, 0, SL_COUNT(greedy));
    tcase_add_test(tests, pins_end_by_their_owners_word_alone);
    tcase_add_loop_test(tests, a_word_goes_to_the_other_node_as_it_is, 0, SL_COUNT(said));
    tcase_add_loop_test(tests, a_word_of_a_peer_goes_to_the_coordinator_with_its_name, 0,
                        SL_COUNT(said));
    tcase_add_loop_test(tests, a_word_for_a_node_that_cannot_be_asked_is_answered_so, 0,
                        SL_COUNT(not_asked));
    tcase_add_test(tests, a_word_that_cannot_be_sent_is_answered_so);
    tcase_add_test(tests, pins_expire_by_our_limit_not_the_readers);
    tcase_add_test(tests, pins_end_with_the_life_of_their_reader);
    tcase_add_test(tests, an_earlier_life_counts_once_the_later_one_is_silent);
    tcase_add_loop_test(tests, of_two_nodes_with_one_name_the_first_goes_on, 0, SL_COUNT(twins));
    tcase_add_test(tests, a_peer_that_begins_anew_is_no_twin);
    tcase_add_test(tests, a_node_that_only_answers_keeps_its_name);
    tcase_add_test(tests, a_node_is_told_that_another_has_its_name);
    tcase_add_test(tests, who_has_another_key_is_named_where_a_peer_should_be);
    tcase_add_loop_test(tests, a_pin_says_of_each_key_what_is, 0, SL_COUNT(looks));
    tcase_add_test(tests, what_one_peer_has_is_seen);
    tcase_add_test(tests, a_silent_peer_has_nothing_and_keeps_what_was_to_be_removed);
    tcase_add_test(tests, a_lying_answer_has_nothing);
    tcase_add_test(tests, a_removal_that_could_not_be_asked_for_is_in_doubt);
    tcase_add_test(tests, who_has_no_time_takes_nobody_for_broken);
    tcase_add_test(tests, look_ups_at_peers_are_bounded);
    tcase_add_test(tests, a_peer_sees_our_objects);
    tcase_add_loop_test(tests, peers_remove_where_they_may, 0, SL_COUNT(removals));
    tcase_add_test(tests, one_peer_cannot_take_all_removals);
    tcase_add_test(tests, nobody_is_asked_when_nobody_lives);
    tcase_add_test(tests, a_miss_goes_from_peer_to_peer_once);
    tcase_add_test(tests, what_lies_behind_a_gap_is_asked_for_again);
    tcase_add_test(tests, nothing_is_asked_for_behind_what_nobody_has);
    tcase_add_test(tests, a_silent_peer_costs_its_timeout_and_is_left_alone);
    tcase_add_test(tests, a_late_answer_is_unpinned);
    tcase_add_test(tests, a_lying_answer_is_a_miss);
    tcase_add_test(tests, an_answer_of_another_type_answers_nothing);
    tcase_add_test(tests, a_fetch_ends_by_its_deadline);
    tcase_add_loop_test(tests, who_joins_a_fetch_keeps_its_own_time, 0, 2);
    tcase_add_test(tests, a_fetch_without_time_takes_nobody_for_broken);
    tcase_add_test(tests, a_peer_that_owes_all_of_them_an_answer_is_broken);
    tcase_add_loop_test(tests, blocks_are_fetched_whole_or_not_at_all, 0, SL_COUNT(bad_groups));
    tcase_add_test(tests, nothing_comes_from_nodes_ahead_of_use);
    tcase_add_loop_test(tests, a_member_with_a_key_and_an_address_is_a_peer, 0,
                        SL_COUNT(members_told_of));
    tcase_add_test(tests, a_key_that_is_added_counts);
    tcase_add_loop_test(tests, a_peer_without_a_key_stops_no_start, 0, SL_COUNT(no_keys));
    tcase_add_test(tests, a_peer_of_the_file_that_cannot_be_spoken_to_is_tried_again);
    tcase_add_test(tests, a_file_names_peers_and_is_read_again);
    tcase_add_loop_test(tests, bad_lines_of_the_file_make_no_peers, 0, SL_COUNT(bad_lines));
    tcase_add_test(tests, members_beyond_the_table_are_left_out);
    tcase_add_test(tests, the_directory_moves_nobody_who_answers_or_is_configured);
    tcase_add_test(tests, holders_alone_are_asked);
    tcase_add_test(tests, what_nobody_holds_costs_no_question);
    tcase_add_loop_test(tests, who_is_sure_asks_all_when_those_named_have_nothing, 0,
                        SL_COUNT(sure_holders));
    tcase_add_test(tests, nothing_is_wanted_behind_a_gap_of_a_chain);
    tcase_add_loop_test(tests, a_silent_directory_costs_its_share, 0, 2);
    tcase_add_loop_test(tests, without_a_directory_those_who_are_known_are_asked, 0,
                        SL_COUNT(no_answers));
    tcase_add_test(tests, without_a_directory_few_are_asked_for_a_key);
    tcase_add_test(tests, a_configured_peer_that_tells_nothing_is_asked_for_everything);
    tcase_add_test(tests, a_peer_without_a_record_now_is_asked_for_everything);
    tcase_add_test(tests, nodes_shows_who_told_of_whom);
    tcase_add_test(tests, questions_to_the_directory_are_bounded);
    tcase_add_test(tests, a_large_fetch_asks_in_batches);
    tcase_add_loop_test(tests, a_fetch_of_full_batches_is_sent_at_once, 1, 3);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
