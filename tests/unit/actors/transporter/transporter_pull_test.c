/* tests/unit/actors/transporter/transporter_pull_test.c - pulls: which are refused, and that the
 * answer is sent only when nothing is written any more, whatever ends it. The test plays registrar
 * and peer; transfers are tested in tests/cluster/pull_test.py. */
#include "actors/transporter/internal.h"
#include "actors/transporter/peers/peers.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/pools.h"
#include "actors/transporter/transporter.h"
#include "ipc/shm/sl_index.h"
#include "runtime/net/fabric/core/wire.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENGINE 7u
#define STRIDE 4096u
#define BLOCKS 8u
#define LAYERS 2u
#define TENSOR ((uint64_t)LAYERS * BLOCKS * STRIDE)
#define PART   ((uint64_t)LAYERS * STRIDE)
#define TURNS  60u /* enough to map and register it, or to take it back */

static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    struct sl_arena *arena;
    struct sl_index *index;
    int fd;
    struct sl_proc_id proc;
    bool engine_is_there;
    struct sl_item_region regions[2 * LAYERS + 1]; /* two ranks that have the same part; a third has
                                                      memory of its own */
} bed;

static void registered(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why)
{
    (void)region_index;
    if (!tr_pools_registered(context, memory, why)) {
        tr_memory_registered(context, memory, why);
    }
}

static void regions_put(void)
{
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        bed.regions[i] = (struct sl_item_region){.rank = i / LAYERS,
                                                 .layer = i % LAYERS,
                                                 .handle_kind = 1,
                                                 .pid = bed.proc.pid,
                                                 .fd = (uint64_t)bed.fd,
                                                 .offset_bytes = i * (uint64_t)BLOCKS * STRIDE,
                                                 .length_bytes = (uint64_t)BLOCKS * STRIDE,
                                                 .block_stride_bytes = STRIDE,
                                                 .piece_bytes = STRIDE,
                                                 .block_count = BLOCKS};
    }
    bed.regions[2 * LAYERS] = bed.regions[0];
    bed.regions[2 * LAYERS].rank = 2;
    bed.regions[2 * LAYERS].handle_kind = 5;
}

static void nodes_open(void)
{
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena_options arena = {
        .directory = bed.fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed.arena, &why), SL_OK);
    struct sl_index_options index = {
        .shm_dir = bed.fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = bed.arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed.index, &why), SL_OK);
}

/* One turn of the actor, and the registrar's answers to it. */
static void turn(void)
{
    struct sl_msg msg;
    fake_advance(&bed.fake, 2 * SL_NS_PER_US);
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINES, &msg)) {
        static const uint64_t ids[] = {ENGINE};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engines_reply.engine_ids =
            (struct sl_u64s){.at = ids, .count = bed.engine_is_there ? 1 : 0};
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        static const struct sl_item_pool pool = {.name = {.at = "attention", .length = 9},
                                                 .part_count = 1};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engine_get_reply = (struct sl_body_engine_get_reply){
            .engine_id = msg.body.engine_get.engine_id,
            .pid = bed.proc.pid,
            .start_time = bed.proc.start_time,
            .name = sl_text_of("engine"),
            .model = sl_text_of("0123456789abcdef0123456789abcdef"),
            .key_format = sl_text_of("sluice"),
            .block_tokens = 16,
            .world = 3,
        };
        reply.body.engine_get_reply.pools.at = &pool;
        reply.body.engine_get_reply.pools.count = 1;
        reply.body.engine_get_reply.regions.at = bed.regions;
        reply.body.engine_get_reply.regions.count = SL_COUNT(bed.regions);
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
}

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        turn();
    }
}

static void peer_lives(void)
{
    struct sl_msg hello, reply = {.type = SL_MSG_PEER_HELLO_REPLY};
    unsigned char key[SL_WIRE_KEY_BYTES];
    const struct sl_wire_key wire = {.length_bytes = SL_MIB};
    struct sl_item_window window = {
        .arena = 0, .length_bytes = SL_MIB, .key = {.at = key, .length = sizeof(key)}};
    sl_wire_key_write(&wire, key);
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO, &hello));
    reply.reply_to = hello.seq;
    reply.body.peer_hello_reply = (struct sl_body_peer_hello_reply){
        .node = sl_text_of("b"), .incarnation = 3, .fabric = sl_text_of("tcp")};
    reply.body.peer_hello_reply.windows.at = &window;
    reply.body.peer_hello_reply.windows.count = 1;
    (void)fake_net_deliver(&bed.net, "b", reply, true);
    bed.self->env->ops->wake_at(bed.self->env, 0);
    turn();
    ck_assert(bed.self->peers[0].window.used);
}

static void bed_open(const char *pools)
{
    const char *const settings[] = {"node_name",
                                    "a",
                                    "memory",
                                    "4MiB",
                                    "peers",
                                    "b@host:1",
                                    "fabric_pools",
                                    pools,
                                    "peer_timeout",
                                    "500ms",
                                    "peer_heartbeat",
                                    "60s",
                                    NULL};
    struct sl_error why = {0};
    struct sl_fabric_options options;
    memset(&bed, 0, sizeof(bed));
    fake_open(&bed.fake, &sl_transporter_actor, NULL);
    for (uint32_t i = 0; settings[i] != NULL; i += 2) {
        if (strcmp(settings[i], "peers") != 0) {
            fake_set(&bed.fake, settings[i], settings[i + 1]);
        }
    }
    bed.fake.env.name = "transporter.0";
    nodes_open();
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    fake_set(&bed.fake, "peers", "b@host:1");
    sl_fabric_options_init(&options, "tcp");
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .done = tr_fetch_batch_read,
                                               .address = tr_fabric_address,
                                               .registered = registered,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "tcp";
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    bed.proc = (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77};
    fake_process_add(&bed.fake, bed.proc);
    bed.fd = memfd_create("pool-of-the-test", MFD_CLOEXEC);
    ck_assert_int_ge(bed.fd, 0);
    ck_assert_int_eq(ftruncate(bed.fd, (off_t)(2 * TENSOR)), 0);
    regions_put();
    bed.engine_is_there = true;
    turns(TURNS);
    peer_lives();
}

static void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    sl_index_close(&bed.index);
    sl_arena_close(&bed.arena);
    fake_net_close(&bed.net);
    close(bed.fd);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "arena.0", NULL);
    (void)sl_shm_file_remove(bed.fake.paths.shm_dir, "index", NULL);
    fake_close(&bed.fake);
}

/* ---- requests ---- */

static const struct sl_text keys[] = {
    {.at = "m/b0/0/attention", .length = 16},
    {.at = "m/b1/0/attention", .length = 16},
};
static const struct sl_item_group groups[] = {
    {.key = {.at = "m/b0", .length = 4}, .part_count = 1},
    {.key = {.at = "m/b1", .length = 4}, .part_count = 1},
};
#define SPOTS                                                            \
    {                                                                    \
        {.engine_id = ENGINE, .device_block = 3},                        \
            {.engine_id = ENGINE, .rank = 1, .device_block = 3},         \
            {.engine_id = ENGINE, .device_block = 4, .item = 1},         \
        {                                                                \
            .engine_id = ENGINE, .rank = 1, .device_block = 4, .item = 1 \
        }                                                                \
    }

static struct sl_msg pull_of(const struct sl_item_slot *slots, uint64_t slot_count)
{
    struct sl_msg msg = {.type = SL_MSG_BRING, .op_id = 11, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.bring.chain = true;
    msg.body.bring.keys.at = keys;
    msg.body.bring.keys.count = SL_COUNT(keys);
    msg.body.bring.groups.at = groups;
    msg.body.bring.groups.count = SL_COUNT(groups);
    msg.body.bring.slots.at = slots;
    msg.body.bring.slots.count = slot_count;
    return msg;
}

static uint64_t pull_again(uint64_t seq)
{
    static const struct sl_item_slot slots[] = SPOTS;
    struct sl_msg msg = pull_of(slots, SL_COUNT(slots));
    msg.seq = seq;
    fake_give(&bed.fake, "coordinator", &msg);
    turn();
    return msg.seq;
}

static uint64_t pull_send(void)
{
    return pull_again(0);
}

static bool answered(uint64_t seq, struct sl_msg *reply)
{
    return fake_take_reply(&bed.fake, "coordinator", seq, reply);
}

static void codes_are(uint64_t seq, sl_err first, sl_err second)
{
    struct sl_msg reply;
    ck_assert(answered(seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.bring_reply.codes.count, 2);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], first);
    ck_assert_uint_eq(reply.body.bring_reply.codes.at[1], second);
    ck_assert_uint_eq(bed.self->fetch_open, 0);
    ck_assert_uint_eq(bed.self->parts_open, 0);
}

static uint32_t pins_asked(void)
{
    return fake_net_count(&bed.net, "b", SL_MSG_PEER_PIN);
}

/* The peer answers its latest request for both keys. */
static void peer_places(sl_err code, uint64_t length_bytes)
{
    struct sl_item_place places[2] = {{.code = code, .length_bytes = length_bytes},
                                      {.code = code, .length_bytes = length_bytes}};
    struct sl_msg pin, reply = {.type = SL_MSG_PEER_PIN_REPLY};
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
    reply.reply_to = pin.seq;
    reply.body.peer_pin_reply =
        (struct sl_body_peer_pin_reply){.pin_id = code == SL_OK ? 5 : 0, .ttl_ns = SL_NS_PER_S};
    reply.body.peer_pin_reply.items.at = places;
    reply.body.peer_pin_reply.items.count = 2;
    (void)fake_net_deliver(&bed.net, "b", reply, true);
    bed.self->env->ops->wake_at(bed.self->env, 0);
    turn();
}

static uint64_t fence_send(const char *sender, uint64_t op_id)
{
    struct sl_msg msg = {.type = SL_MSG_FENCE, .op_id = op_id};
    fake_give(&bed.fake, sender, &msg);
    turn();
    return msg.seq;
}

static bool fenced(const char *sender, uint64_t seq)
{
    struct sl_msg reply;
    return fake_take_reply(&bed.fake, sender, seq, &reply) && reply.code == SL_OK;
}

/* ---- what is refused ---- */

static const struct {
    struct sl_item_slot slots[3];
    uint64_t count;
    sl_err code;
} refused[] = {
    {{{.engine_id = 8}, {.engine_id = ENGINE, .item = 1}}, 2, SL_ERR_NOT_FOUND},
    {{{.engine_id = ENGINE}}, 1, SL_ERR_INVALID}, /* the second has none */
    {{{.engine_id = ENGINE, .item = 1}, {.engine_id = ENGINE}}, 2, SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .item = 1}, {.engine_id = ENGINE, .item = 2}},
     3,
     SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .device_block = BLOCKS, .item = 1}},
     2,
     SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .rank = 3, .item = 1}}, 2, SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .pool = 1, .item = 1}}, 2, SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .part = 1, .item = 1}}, 2, SL_ERR_INVALID},
    {{{.engine_id = ENGINE}, {.engine_id = ENGINE, .rank = 2, .item = 1}}, 2, SL_ERR_UNSUPPORTED},
};
START_TEST(what_cannot_be_written_is_refused_at_once)
    {
        struct sl_msg reply;
        bed_open("true");
        struct sl_msg msg = pull_of(refused[_i].slots, refused[_i].count);
        fake_give(&bed.fake, "coordinator", &msg);
        turn();
        ck_assert(answered(msg.seq, &reply));
        ck_assert_int_eq(reply.code, refused[_i].code);
        ck_assert_uint_eq(pins_asked(), 0);
        ck_assert_uint_eq(bed.self->fetch_open, 0);
        bed_close();
    }
END_TEST

START_TEST(without_pools_it_is_not_known)
    {
        struct sl_msg reply;
        bed_open("false");
        uint64_t seq = pull_send();
        ck_assert(answered(seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

/* ---- on its way ---- */

START_TEST(what_the_peer_lacks_is_a_miss)
    {
        struct sl_msg reply;
        bed_open("true");
        uint64_t seq = pull_send();
        ck_assert_uint_eq(pins_asked(), 1);
        ck_assert(!answered(seq, &reply));
        (void)pull_again(seq); /* resent: the answer to the first will do */
        ck_assert_uint_eq(pins_asked(), 1);

        peer_places(SL_ERR_NOT_FOUND, 0);

        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

/* ---- with a directory ---- */

static struct {
    struct sl_directory_member member;
    struct sl_directory_lookup last;
    uint32_t lookup_count;
    sl_err answer;
} book;

static sl_err book_lookup(void *context, const struct sl_directory_lookup *lookup)
{
    (void)context;
    book.last = *lookup;
    book.lookup_count++;
    return book.answer;
}

static void book_flush(void *context, uint64_t now_ns)
{
    (void)context, (void)now_ns;
}

static uint32_t book_members(void *context, const struct sl_directory_member **out)
{
    (void)context;
    *out = &book.member;
    return 1;
}

static void book_open(sl_err answer)
{
    bed_open("true");
    memset(&book, 0, sizeof(book));
    book.answer = answer;
    book.member.incarnation = 3;
    (void)snprintf(book.member.name, sizeof(book.member.name), "b");
    bed.self->peers[0].member = true;
    bed.self->guide = (struct tr_directory_ops){
        .lookup = book_lookup, .flush = book_flush, .members = book_members};
}

/* b holds the first `held` keys, no node the others. */
static void directory_answers(sl_err code, uint32_t held)
{
    static struct sl_directory_found found[2];
    memset(found, 0, sizeof(found));
    for (uint32_t i = 0; i < held; i++) {
        found[i].holders[found[i].holder_count++] = &book.member;
    }
    tr_holders_found(bed.self, book.last.cookie, code, found, code == SL_OK ? 2 : 0);
    bed.self->env->ops->wake_at(bed.self->env, 0);
    turn();
}

START_TEST(a_pull_asks_whom_the_directory_names)
    {
        struct sl_msg pin;
        book_open(SL_OK);
        uint64_t seq = pull_send();
        ck_assert_uint_eq(book.lookup_count, 1);
        ck_assert_uint_eq(book.last.count, 2);
        ck_assert_uint_eq(pins_asked(), 0); /* before the directory has answered */

        directory_answers(SL_OK, 2);

        ck_assert_uint_eq(pins_asked(), 1);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PIN, &pin));
        ck_assert_uint_eq(pin.body.peer_pin.items.count, 2);
        peer_places(SL_ERR_NOT_FOUND, 0);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

START_TEST(a_pull_of_what_nobody_holds_is_a_miss_at_once)
    {
        book_open(SL_OK);
        uint64_t seq = pull_send();
        directory_answers(SL_OK, 0);
        ck_assert_uint_eq(pins_asked(), 0);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

/* The query cannot be sent, or fails with a timeout. */
START_TEST(a_pull_asks_known_peers_while_the_directory_is_away)
    {
        book_open(_i == 0 ? SL_ERR_UNREACHABLE : SL_OK);
        uint64_t seq = pull_send();
        if (_i == 1) {
            directory_answers(SL_ERR_TIMEOUT, 0);
        }
        ck_assert_uint_eq(pins_asked(), 1);
        peer_places(SL_ERR_NOT_FOUND, 0);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        bed_close();
    }
END_TEST

/* During the directory's query no byte is written: the fence is answered at once. A pull that it
 * covers ends with the directory's answer, and asks no peer. */
START_TEST(a_fence_does_not_wait_for_the_directory)
    {
        book_open(SL_OK);
        uint64_t seq = pull_send(), fence = fence_send("coordinator", 11);
        ck_assert(fenced("coordinator", fence));
        directory_answers(SL_OK, 2);
        ck_assert_uint_eq(pins_asked(), 0);
        codes_are(seq, SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        bed_close();
    }
END_TEST

START_TEST(what_was_answered_is_not_done_again)
    {
        struct sl_msg reply;
        bed_open("true");
        uint64_t seq = pull_send();
        peer_places(SL_ERR_NOT_FOUND, 0);
        ck_assert(answered(seq, &reply));
        (void)pull_again(seq); /* overtook the answer */
        ck_assert(answered(seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        ck_assert_uint_eq(pins_asked(), 1);
        bed_close();
    }
END_TEST

START_TEST(a_value_of_another_length_is_not_written)
    {
        bed_open("true");
        uint64_t seq = pull_send();
        peer_places(SL_OK, PART - 1);
        codes_are(seq, SL_ERR_INVALID, SL_ERR_INVALID);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_UNPIN), 1);
        bed_close();
    }
END_TEST

/* The key of the peer's arena is missing, so the fabric accepts no transfer: no byte is written. */
START_TEST(a_read_that_cannot_be_posted_ends_the_pull)
    {
        bed_open("true");
        uint64_t seq = pull_send();
        bed.self->peers[0].window.key = 12345;
        peer_places(SL_OK, PART);
        struct sl_msg reply;
        ck_assert(answered(seq, &reply));
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_UNPIN), 1);
        bed_close();
    }
END_TEST

START_TEST(a_fetch_does_not_join_a_pull)
    {
        bed_open("true");
        (void)pull_send();
        struct sl_msg fetch = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
        fetch.body.bring.keys.at = keys;
        fetch.body.bring.keys.count = SL_COUNT(keys);
        fetch.body.bring.groups.at = groups;
        fetch.body.bring.groups.count = SL_COUNT(groups);
        fake_give(&bed.fake, "client.1.0", &fetch);
        turn();
        ck_assert_uint_eq(pins_asked(), 2);
        bed_close();
    }
END_TEST

/* The hints for a block reach the registrar of the requesting node. */
START_TEST(a_fetch_tells_what_the_engine_said_and_what_comes_before)
    {
        static const struct sl_item_group wanted[] = {
            {.key = {.at = "m/b0", .length = 4},
             .part_count = 1,
             .stored_count = 2,
             .hint = 1,
             .priority = 3,
             .keep_ns = 5},
            {.key = {.at = "m/b1", .length = 4}, .part_count = 1, .parent_hash = 77, .cut = true},
        };
        struct sl_msg fetch = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
        struct sl_msg reserve;
        fetch.body.bring.keys.at = keys;
        fetch.body.bring.keys.count = SL_COUNT(keys);
        fetch.body.bring.groups.at = wanted;
        fetch.body.bring.groups.count = SL_COUNT(wanted);
        bed_open("true");
        fake_give(&bed.fake, "client.1.0", &fetch);
        turn();
        peer_places(SL_OK, PART);

        ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &reserve));

        ck_assert_uint_eq(reserve.body.reserve.groups.count, 2);
        for (uint32_t i = 0; i < 2; i++) {
            const struct sl_item_group *group = &reserve.body.reserve.groups.at[i];
            ck_assert_mem_eq(group->key.at, wanted[i].key.at, 4);
            ck_assert_uint_eq(group->parent_hash, wanted[i].parent_hash);
            ck_assert_uint_eq(group->stored_count, wanted[i].stored_count);
            ck_assert_uint_eq(group->cut, wanted[i].cut);
            ck_assert_uint_eq(group->hint, wanted[i].hint);
            ck_assert_uint_eq(group->priority, wanted[i].priority);
            ck_assert_uint_eq(group->keep_ns, wanted[i].keep_ns);
        }
        bed_close();
    }
END_TEST

/* The registrar may have granted it, or may do so when it continues: the next request must not find
 * the keys reserved. */
START_TEST(a_reserve_that_is_not_answered_in_time_is_given_back)
    {
        struct sl_msg fetch = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
        struct sl_msg reserve, abort, reply;
        fetch.body.bring.keys.at = keys;
        fetch.body.bring.keys.count = SL_COUNT(keys);
        fetch.body.bring.groups.at = groups;
        fetch.body.bring.groups.count = SL_COUNT(groups);
        bed_open("true");
        fake_give(&bed.fake, "client.1.0", &fetch);
        turn();
        peer_places(SL_OK, PART);
        ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_RESERVE, &reserve));
        uint64_t op_id = reserve.op_id;
        ck_assert_uint_ne(op_id, 0);
        ck_assert(!fake_take(&bed.fake, "registrar", SL_MSG_ABORT, &abort));

        for (uint32_t i = 0; i < 20; i++) {
            fake_advance(&bed.fake, SL_NS_PER_S / 10);
            turn();
        }

        ck_assert(fake_take_reply(&bed.fake, "client.1.0", fetch.seq, &reply));
        ck_assert_uint_eq(reply.body.bring_reply.codes.count, SL_COUNT(keys));
        ck_assert_uint_eq(reply.body.bring_reply.codes.at[0], SL_ERR_TIMEOUT);
        ck_assert(fake_take(&bed.fake, "registrar", SL_MSG_ABORT, &abort));
        ck_assert_uint_eq(abort.op_id, op_id);
        ck_assert_uint_eq(abort.body.abort.items.count, 0);
        bed_close();
    }
END_TEST

/* ---- its end ---- */

static const struct {
    const char *sender;
    uint64_t op_id;
    bool ends;
} fences[] = {
    {"coordinator", 11, true},
    {"coordinator", 0, true},
    {"coordinator", 12, false},
    {"registrar", 0, false}, /* it fences claims, and these are none of its ops */
};
START_TEST(a_fence_ends_what_it_names)
    {
        struct sl_msg reply;
        bed_open("true");
        uint64_t seq = pull_send();

        uint64_t fence = fence_send(fences[_i].sender, fences[_i].op_id);

        ck_assert(
            fenced(fences[_i].sender, fence)); /* no byte is written before the peer answers */
        if (!fences[_i].ends) {
            ck_assert(!answered(seq, &reply));
            bed_close();
            return;
        }
        codes_are(seq, SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        peer_places(SL_OK, PART); /* too late: its pins are released */
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_UNPIN), 1);
        ck_assert_uint_eq(bed.self->fetch_batches_open, 0);
        (void)pull_again(seq); /* numbered before the fence */
        ck_assert(answered(seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_BUSY);
        bed_close();
    }
END_TEST

/* The link is not up yet, so the transfer waits; the fabric reports when it is over. */
START_TEST(a_fence_waits_for_a_read)
    {
        bed_open("true");
        uint64_t seq = pull_send();
        peer_places(SL_OK, PART);
        ck_assert_uint_eq(bed.self->fetch_batches[0].phase, TR_READ);
        struct sl_msg reply, msg = {.type = SL_MSG_FENCE,
                                    .sender = sl_text_of("coordinator"),
                                    .op_id = 11,
                                    .seq = seq + 1};

        uint32_t fetch_batches = tr_pulls_fence(bed.self, &msg, 0); /* the fabric is not done yet */
        ck_assert_uint_eq(fetch_batches, 1);
        ck_assert(!answered(seq, &reply));
        uint64_t fence = fence_send("coordinator", 11);
        turns(3);

        ck_assert(fenced("coordinator", fence));
        codes_are(seq, SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_UNPIN), 1);
        bed_close();
    }
END_TEST

START_TEST(the_deadline_of_a_read_ends_it)
    {
        struct sl_msg reply;
        bed_open("true");
        uint64_t seq = pull_send();
        peer_places(SL_OK, PART);
        ck_assert_uint_eq(bed.self->fetch_batches[0].phase, TR_READ);
        fake_advance(&bed.fake, 3 * SL_NS_PER_S);
        turns(3);
        ck_assert(answered(seq, &reply));
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(
            bed.self->fetch_open + bed.self->fetch_batches_open + bed.self->parts_open, 0);
        bed_close();
    }
END_TEST

START_TEST(its_deadline_ends_it)
    {
        struct sl_msg reply;
        bed_open("true");
        uint64_t seq = pull_send();
        fake_advance(&bed.fake, 400 * SL_NS_PER_MS);
        ck_assert(!answered(seq, &reply));
        fake_advance(&bed.fake, 2 * SL_NS_PER_S);
        turn();
        ck_assert(answered(seq, &reply));
        ck_assert_uint_ne(reply.body.bring_reply.codes.at[0], SL_OK);
        ck_assert_uint_eq(
            bed.self->fetch_open + bed.self->fetch_batches_open + bed.self->parts_open, 0);
        bed_close();
    }
END_TEST

START_TEST(the_end_of_its_engine_ends_it)
    {
        struct sl_msg reply, over = {.type = SL_MSG_ENGINE_OVER};
        bed_open("true");
        uint64_t seq = pull_send();
        over.body.engine_over.engine_id = ENGINE;
        bed.engine_is_there = false;
        fake_give(&bed.fake, "registrar", &over);
        turns(TURNS);
        codes_are(seq, SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND);
        ck_assert(fake_take_reply(&bed.fake, "registrar", over.seq, &reply));
        ck_assert_uint_eq(bed.self->fetch_batches_open, 0);
        bed_close();
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter_pull");
    TCase *cases = tcase_create("pull");
    tcase_add_loop_test(cases, what_cannot_be_written_is_refused_at_once, 0, SL_COUNT(refused));
    tcase_add_test(cases, without_pools_it_is_not_known);
    tcase_add_test(cases, what_the_peer_lacks_is_a_miss);
    tcase_add_test(cases, what_was_answered_is_not_done_again);
    tcase_add_test(cases, a_pull_asks_whom_the_directory_names);
    tcase_add_test(cases, a_pull_of_what_nobody_holds_is_a_miss_at_once);
    tcase_add_loop_test(cases, a_pull_asks_known_peers_while_the_directory_is_away, 0, 2);
    tcase_add_test(cases, a_fence_does_not_wait_for_the_directory);
    tcase_add_test(cases, a_value_of_another_length_is_not_written);
    tcase_add_test(cases, a_read_that_cannot_be_posted_ends_the_pull);
    tcase_add_test(cases, a_fetch_does_not_join_a_pull);
    tcase_add_test(cases, a_fetch_tells_what_the_engine_said_and_what_comes_before);
    tcase_add_test(cases, a_reserve_that_is_not_answered_in_time_is_given_back);
    tcase_add_loop_test(cases, a_fence_ends_what_it_names, 0, SL_COUNT(fences));
    tcase_add_test(cases, a_fence_waits_for_a_read);
    tcase_add_test(cases, the_deadline_of_a_read_ends_it);
    tcase_add_test(cases, its_deadline_ends_it);
    tcase_add_test(cases, the_end_of_its_engine_ends_it);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
