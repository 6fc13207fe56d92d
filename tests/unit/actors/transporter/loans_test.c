/* tests/unit/actors/transporter/loans_test.c - direct hand-over from pool to pool: which parts are
 * lent and read where, which requests are refused, and that no byte is read or written after an
 * end. The test plays registrar, engine, both coordinators and the other node (b) with a fake NIC.
 */
#include "actors/transporter/handover/internal.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/transporter.h"
#include "cuda/sl_device.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENGINE  7u
#define RANKS   2u
#define LAYERS  3u
#define BLOCKS  16u
#define RUN     2000u /* pool 0: a part that both ranks have, in pieces of three runs */
#define RUN_AT  2500u
#define PIECE   (3 * RUN)
#define STRIDE  8192u
#define SHARED  (LAYERS * PIECE)
#define LONE    12288u /* pool 1: one layer, of each rank its own */
#define LAYER   ((uint64_t)BLOCKS * STRIDE)
#define LONE_AT (LAYERS * LAYER)
#define MEMORY  (LONE_AT + (uint64_t)BLOCKS * LONE)
#define FROM    0u /* blocks of prefill, then those of decode */
#define TO      8u
#define PARTS   3u /* of a hand-over: the shared one, and one of each rank */
#define TURNS   12u
#define DECODE  "coordinator"
#define PREFILL "prefiller.0"
#define OP      90u
#define LATER   (60 * SL_NS_PER_MS) /* until an unanswered message is sent again */

static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    struct fabric_end b;
    unsigned char address[SL_FABRIC_BLOB_MAX]; /* of ours */
    uint32_t address_bytes;
    int fds[RANKS];
    unsigned char *memory[RANKS];
    struct sl_item_pool pools[2];
    struct sl_item_region regions[RANKS * (LAYERS + 1)];
    uint64_t region_count;
    bool listed;
    struct sl_ticket_fields ticket;
    unsigned char bytes[SL_TICKET_BYTES_MAX];
    uint32_t bytes_length;
    uint32_t number; /* of the last LEND or PEER_LEND */
    struct sl_item_arrived pieces[8];
    struct sl_item_slot slots[8];
    struct sl_item_door doors[8];
    uint32_t piece_count, door_count;
} bed;

/* ---- the world ---- */

static void moved(void *context, const struct sl_fabric_done *done)
{
    ck_assert(tr_take_read(context, done));
}

static void registered(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why)
{
    (void)region_index;
    ck_assert(tr_pools_registered(context, memory, why));
}

static void addressed(void *context, uint32_t peer, const void *blob, uint32_t length_bytes)
{
    (void)context, (void)peer;
    memcpy(bed.address, blob, length_bytes);
    bed.address_bytes = length_bytes;
}

static void engine_answer(const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply =
        (struct sl_body_engine_get_reply){.engine_id = ENGINE,
                                          .pid = (uint64_t)getpid(),
                                          .start_time = 77,
                                          .name = sl_text_of("engine"),
                                          .model = sl_text_of("0123456789abcdef0123456789abcdef"),
                                          .key_format = sl_text_of("sluice"),
                                          .block_tokens = 16,
                                          .world = RANKS};
    reply.body.engine_get_reply.pools.at = bed.pools;
    reply.body.engine_get_reply.pools.count = SL_COUNT(bed.pools);
    reply.body.engine_get_reply.regions.at = bed.regions;
    reply.body.engine_get_reply.regions.count = bed.region_count;
    fake_answer(&bed.fake, "registrar", msg, &reply);
}

/* Exchanges addresses, as HELLOs would carry them. */
static void links_turn(void)
{
    sl_fabric_step(bed.b.fabric, bed.fake.env.now_ns);
    if (bed.address_bytes > 0) {
        uint32_t length_bytes = bed.address_bytes;
        bed.address_bytes = 0;
        ck_assert_int_eq(
            sl_fabric_peer_address(bed.b.fabric, bed.b.peer, bed.address, length_bytes, NULL),
            SL_OK);
    }
    if (bed.b.address_bytes > 0 && bed.self->peer_count > 0) {
        uint32_t length_bytes = bed.b.address_bytes;
        bed.b.address_bytes = 0;
        ck_assert_int_eq(sl_fabric_peer_address(bed.self->fabric, bed.self->peers[0].fabric_peer,
                                                bed.b.address, length_bytes, NULL),
                         SL_OK);
    }
}

static void turn(void)
{
    struct sl_msg msg;
    bed.self->env->ops->wake_at(bed.self->env, 0);
    fake_advance(&bed.fake, 2 * SL_NS_PER_US);
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINES, &msg)) {
        static const uint64_t id = ENGINE;
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engines_reply.engine_ids =
            (struct sl_u64s){.at = &id, .count = bed.listed ? 1 : 0};
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        engine_answer(&msg);
    }
    links_turn();
}

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        turn();
    }
}

static void later(uint64_t ns)
{
    fake_advance(&bed.fake, ns);
    turns(TURNS);
}

static uint64_t metric(const char *name)
{
    struct sl_metrics *page = bed.self->env->metrics;
    return sl_metric_get(page, sl_metric_define(page, name));
}

static void region_put(uint32_t rank, uint32_t pool, uint32_t layer)
{
    bool shared = pool == 0;
    bed.regions[bed.region_count++] = (struct sl_item_region){
        .rank = rank,
        .pool = pool,
        .layer = layer,
        .handle_kind = SL_MEMORY_SHARED_FD,
        .pid = (uint64_t)getpid(),
        .fd = (uint64_t)bed.fds[rank],
        .offset_bytes = shared ? layer * LAYER : LONE_AT,
        .length_bytes = shared ? LAYER : (uint64_t)BLOCKS * LONE,
        .block_stride_bytes = shared ? STRIDE : LONE,
        .piece_bytes = shared ? PIECE : LONE,
        .block_count = BLOCKS,
        .fragment_bytes = shared ? RUN : 0,
        .fragment_stride_bytes = shared ? RUN_AT : 0,
    };
}

static void memories_make(void)
{
    bed.pools[0] = (struct sl_item_pool){.name = sl_text_of("latent"), .part_count = 1};
    bed.pools[1] = (struct sl_item_pool){.name = sl_text_of("heads")};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        bed.fds[rank] = memfd_create("pool-of-the-test", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(bed.fds[rank], (off_t)MEMORY), 0);
        bed.memory[rank] = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, bed.fds[rank], 0);
        ck_assert_ptr_ne(bed.memory[rank], MAP_FAILED);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            region_put(rank, 0, layer);
        }
        region_put(rank, 1, 0);
    }
}

static void fabrics_open(void)
{
    struct sl_error why = {0};
    struct sl_fabric_options options;
    struct sl_verbs_lib *lib = fake_verbs_lib();
    sl_fabric_options_init(&options, "verbs");
    options.backend_context = lib;
    options.places_max = TR_HANDOVER_PLACES_MAX;
    options.memories_max = 1 + TR_SPANS_MAX;
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .done = moved,
                                               .registered = registered,
                                               .address = addressed,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "verbs";
    end_options(&bed.b, &options, "verbs");
    options.backend_context = lib;
    ck_assert_int_eq(end_open(&bed.b, &options, SL_MIB, 0, &why), SL_OK);
    while (!bed.b.registered) {
        sl_fabric_step(bed.b.fabric, bed.fake.env.now_ns);
    }
}

static void ticket_make(uint64_t number)
{
    bed.ticket = (struct sl_ticket_fields){.number = number, .secret = {1, 2, 3}};
    bed.number = 0;
}

/* A ticket of the node that reads. */
static void ticket_of(const char *node)
{
    (void)snprintf(bed.ticket.node, sizeof(bed.ticket.node), "%s", node);
    bed.bytes_length = sl_ticket_write(&bed.ticket, bed.bytes);
}

static struct sl_bytes ticket_bytes(void)
{
    return (struct sl_bytes){.at = bed.bytes, .length = bed.bytes_length};
}

static void peer_greets(uint64_t incarnation)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_HELLO};
    msg.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of("b"), .incarnation = incarnation, .fabric = sl_text_of("verbs")};
    (void)fake_net_deliver(&bed.net, "b", msg, false);
    turns(TURNS);
}

/* more: one setting and its value. */
static void bed_open_with(const char *peers, const char *pools, const char *more, const char *text)
{
    const char *const settings[] = {
        "node_name", "a",  "memory", "4MiB", "fabric_pools", pools, "peer_timeout",
        "500ms",     more, text,     NULL};
    struct sl_error why = {0};
    memset(&bed, 0, sizeof(bed));
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    bed.fake.env.name = "transporter.0";
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    fabrics_open();
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    fake_set(&bed.fake, "peers", peers);
    memories_make();
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    fake_process_add(&bed.fake, (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77});
    bed.listed = true;
    turns(160);
    ck_assert_uint_eq(metric("pool_engines"), strcmp(pools, "true") == 0 ? 1 : 0);
    if (peers[0] != '\0') {
        peer_greets(3);
        ck_assert_int_eq(sl_fabric_peer_link(bed.self->fabric, bed.self->peers[0].fabric_peer),
                         SL_FABRIC_UP);
    }
    ticket_make(5);
}

static void bed_open(const char *peers, const char *pools)
{
    bed_open_with(peers, pools, "peer_heartbeat", "60s");
}

static void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    end_close(&bed.b);
    fake_net_close(&bed.net);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        munmap(bed.memory[rank], MEMORY);
        close(bed.fds[rank]);
    }
    fake_close(&bed.fake);
}

/* ---- parts in memory ---- */

/* Byte i of a part, at the address given by the registration. */
static unsigned char *byte_at(uint32_t rank, uint32_t pool, uint32_t block, uint64_t i)
{
    if (pool == 1) {
        return &bed.memory[rank][LONE_AT + (uint64_t)block * LONE + i];
    }
    uint64_t layer = i / PIECE, run = i % PIECE / RUN;
    return &bed.memory[rank][layer * LAYER + (uint64_t)block * STRIDE + run * RUN_AT + i % RUN];
}

static uint64_t part_bytes(uint32_t pool)
{
    return pool == 0 ? SHARED : LONE;
}

static unsigned char pattern(uint64_t i, uint32_t seed)
{
    return (unsigned char)(i * 7 + seed * 13 + (i >> 8));
}

static void part_fill(uint32_t rank, uint32_t pool, uint32_t block, uint32_t seed)
{
    for (uint64_t i = 0; i < part_bytes(pool); i++) {
        *byte_at(rank, pool, block, i) = pattern(i, seed);
    }
}

static bool range_is(uint32_t rank, uint32_t pool, uint32_t seed, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++) {
        if (*byte_at(rank, pool, TO, i) != pattern(i, seed)) {
            return false;
        }
    }
    return true;
}

static bool part_is(uint32_t rank, uint32_t pool, uint32_t seed)
{
    return range_is(rank, pool, seed, 0, part_bytes(pool));
}

static bool decode_has_all(void)
{
    return part_is(0, 0, 1) && part_is(1, 0, 1) && part_is(0, 1, 2) && part_is(1, 1, 3);
}

/* The number of bytes outside the parts of decode's block that are not 0. */
static uint64_t strayed(void)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        unsigned char *copy = malloc(MEMORY);
        memcpy(copy, bed.memory[rank], MEMORY);
        for (uint32_t pool = 0; pool < 2; pool++) {
            for (uint64_t i = 0; i < part_bytes(pool); i++) {
                copy[byte_at(rank, pool, TO, i) - bed.memory[rank]] = 0;
            }
        }
        for (uint64_t i = 0; i < MEMORY; i++) {
            count += copy[i] != 0 ? 1 : 0;
        }
        free(copy);
    }
    return count;
}

/* Fills prefill's blocks of this node: part 0 of rank 0, parts 1 and 2 of ranks 0 and 1. */
static void prefill_computes(uint32_t block)
{
    part_fill(0, 0, block, 1);
    part_fill(0, 1, block, 2);
    part_fill(1, 1, block, 3);
}

static struct sl_item_slot slot_of(uint32_t rank, uint32_t pool, uint32_t block, uint64_t item)
{
    return (struct sl_item_slot){
        .engine_id = ENGINE, .rank = rank, .pool = pool, .device_block = block, .item = item};
}

/* ---- what coordinators ask ---- */

static struct sl_msg bring_msg(void)
{
    static struct sl_item_slot slots[4];
    struct sl_msg msg = {.type = SL_MSG_BRING, .op_id = OP, .budget_ns = 10 * SL_NS_PER_S};
    ticket_of("a");
    slots[0] = slot_of(0, 0, TO, 0); /* both ranks have it */
    slots[1] = slot_of(1, 0, TO, 0);
    slots[2] = slot_of(0, 1, TO, 1);
    slots[3] = slot_of(1, 1, TO, 2);
    msg.body.bring.ticket = ticket_bytes();
    msg.body.bring.slots.at = slots;
    msg.body.bring.slots.count = SL_COUNT(slots);
    return msg;
}

static void landed_answer(const struct sl_msg *msg, sl_err code)
{
    struct sl_msg reply = {.code = code};
    struct sl_msg request = {.type = SL_MSG_LANDED, .seq = msg->seq};
    fake_answer(&bed.fake, DECODE, &request, &reply);
    turns(TURNS);
}

static bool landed(uint64_t state, struct sl_msg *out)
{
    turns(TURNS);
    if (!fake_take(&bed.fake, DECODE, SL_MSG_LANDED, out)) {
        return false;
    }
    ck_assert_uint_eq(out->body.landed.handover, bed.ticket.number);
    ck_assert_uint_eq(out->body.landed.state, state);
    return true;
}

/* Takes LANDED with this state, and the coordinator accepts it. */
static void lands(uint64_t state)
{
    struct sl_msg msg;
    ck_assert(landed(state, &msg));
    landed_answer(&msg, SL_OK);
}

static bool lands_not(void)
{
    struct sl_msg msg;
    turns(TURNS);
    return !fake_take(&bed.fake, DECODE, SL_MSG_LANDED, &msg);
}

static uint64_t bring_begin(void)
{
    struct sl_msg msg = bring_msg();
    fake_give(&bed.fake, DECODE, &msg);
    lands(0);
    return msg.seq;
}

/* Adds a piece of a part, with prefill's bytes. */
static void piece_add(uint64_t part, const unsigned char *at, uint64_t from, uint64_t length_bytes)
{
    uint32_t i = bed.piece_count++;
    struct sl_digest digest = sl_digest_of(at, length_bytes);
    bed.pieces[i] = (struct sl_item_arrived){.part = part,
                                             .part_offset_bytes = from,
                                             .length_bytes = length_bytes,
                                             .digest_low = digest.low,
                                             .digest_high = digest.high};
    bed.slots[i] = slot_of(part == 2 ? 1 : 0, part == 0 ? 0 : 1, FROM, i);
}

static void piece_here(uint64_t part, uint64_t from, uint64_t length_bytes)
{
    unsigned char bytes[SHARED];
    for (uint64_t i = 0; i < length_bytes; i++) {
        bytes[i] = *byte_at(part == 2 ? 1 : 0, part == 0 ? 0 : 1, FROM, from + i);
    }
    piece_add(part, bytes, from, length_bytes);
}

static struct sl_msg lend_msg(bool last)
{
    struct sl_msg msg = {.type = SL_MSG_LEND, .op_id = OP, .budget_ns = 10 * SL_NS_PER_S};
    msg.body.lend =
        (struct sl_body_lend){.ticket = ticket_bytes(), .number = ++bed.number, .last = last};
    msg.body.lend.pieces.at = bed.pieces;
    msg.body.lend.pieces.count = bed.piece_count;
    msg.body.lend.slots.at = bed.slots;
    msg.body.lend.slots.count = bed.piece_count;
    bed.piece_count = 0;
    return msg;
}

static uint64_t lend_again(struct sl_msg *msg)
{
    fake_give(&bed.fake, PREFILL, msg);
    turns(TURNS);
    return msg->seq;
}

static uint64_t lend(bool last)
{
    struct sl_msg msg = lend_msg(last);
    return lend_again(&msg);
}

static uint64_t lend_all(void)
{
    piece_here(0, 0, SHARED);
    piece_here(1, 0, LONE);
    piece_here(2, 0, LONE);
    return lend(true);
}

static void replied(const char *to, uint64_t seq, sl_err code)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&bed.fake, to, seq, &reply), "no answer to %s", to);
    ck_assert_msg(reply.code == code, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
}

static bool unanswered(const char *to, uint64_t seq)
{
    struct sl_msg reply;
    return !fake_take_reply(&bed.fake, to, seq, &reply);
}

static uint64_t fence(const char *sender, uint64_t op_id)
{
    struct sl_msg msg = {.type = SL_MSG_FENCE, .op_id = op_id};
    fake_give(&bed.fake, sender, &msg);
    turns(TURNS);
    return msg.seq;
}

static void nothing_is_left(void)
{
    const struct handover *ho = bed.self->handover;
    turns(TURNS);
    ck_assert_uint_eq(ho->loans_open, 0);
    ck_assert_uint_eq(ho->takes_open, 0);
    ck_assert_uint_eq(ho->shares_open, 0);
    ck_assert_uint_eq(ho->parts_open, 0);
    ck_assert_uint_eq(ho->reads_open, 0);
    ck_assert_uint_eq(sl_calls_count(bed.self->calls), 0);
    for (uint32_t i = 0; i <= SL_FABRIC_SLOTS_MAX; i++) {
        ck_assert(!ho->grants[i].used);
    }
}

/* ---- one node ---- */

START_TEST(blocks_go_from_pool_to_pool)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = lend_all();
        struct sl_msg msg;

        ck_assert(landed(2, &msg));

        ck_assert_uint_eq(msg.body.landed.pieces.count, PARTS);
        ck_assert_str_eq(msg.body.landed.from.at, "a");
        ck_assert(decode_has_all());
        ck_assert(unanswered(PREFILL, seq));
        ck_assert(unanswered(DECODE, bring));
        landed_answer(&msg, SL_OK);
        replied(PREFILL, seq, SL_OK);
        replied(DECODE, bring, SL_OK);
        /* Each part once, and the shared one once more for the other rank. */
        ck_assert_uint_eq(metric("copied_bytes"), 2 * SHARED + 2 * LONE);
        ck_assert_uint_eq(metric("landed_bytes"), SHARED + 2 * LONE);
        ck_assert_uint_eq(metric("pool_read_bytes"), SHARED + 2 * LONE);
        for (uint32_t rank = 0; rank < RANKS; rank++) { /* nothing beside the blocks is touched */
            for (uint32_t pool = 0; pool < 2; pool++) {
                for (uint64_t i = 0; i < part_bytes(pool); i++) {
                    *byte_at(rank, pool, FROM, i) = 0;
                }
            }
        }
        ck_assert_uint_eq(strayed(), 0);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Calls of all kinds share one table. */
static uint64_t call_seqs[16384];
static uint32_t call_count;
static void calls_fill(void)
{
    const struct sl_msg ping = {.type = SL_MSG_PING};
    (void)snprintf(bed.fake.unreachable, sizeof(bed.fake.unreachable), "keyer");
    while (sl_calls_send(bed.self->calls, "keyer", &ping, SL_NEVER_NS,
                         tr_cookie(TR_CALL_IGNORED, 0), &call_seqs[call_count]) == SL_OK) {
        call_count++;
    }
}
static void calls_empty(void)
{
    while (call_count > 0) {
        sl_calls_drop(bed.self->calls, call_seqs[--call_count]);
    }
    later(10 * SL_NS_PER_MS);
}

START_TEST(what_has_landed_is_told_when_there_is_room_for_the_call)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin();
        calls_fill();

        uint64_t seq = lend_all();

        ck_assert(lands_not());
        calls_empty();
        lands(2);
        replied(PREFILL, seq, SL_OK);
        replied(DECODE, bring, SL_OK);
        ck_assert(decode_has_all());
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_bring_is_taken_when_there_is_room_for_the_call)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        calls_fill();
        struct sl_msg msg = bring_msg();

        fake_give(&bed.fake, DECODE, &msg);
        uint64_t seq = lend_all(); /* waits for the BRING, which is not known yet */

        ck_assert(lands_not());
        calls_empty();
        lands(0);
        later(100 * SL_NS_PER_MS);
        lands(2);
        replied(PREFILL, seq, SL_OK);
        replied(DECODE, msg.seq, SL_OK);
        ck_assert(decode_has_all());
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_bring_without_room_for_the_call_ends_by_its_deadline)
    {
        bed_open("", "true");
        calls_fill();
        struct sl_msg msg = bring_msg();

        fake_give(&bed.fake, DECODE, &msg);
        ck_assert(unanswered(DECODE, msg.seq));
        later(msg.budget_ns);

        replied(DECODE, msg.seq, SL_ERR_TIMEOUT);
        calls_empty();
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(layers_land_one_after_the_other)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            bool last = layer == LAYERS - 1;
            piece_here(0, layer * PIECE, PIECE);
            if (last) {
                piece_here(1, 0, LONE);
                piece_here(2, 0, LONE);
            }
            seq = lend(last);
            ck_assert(last == unanswered(PREFILL, seq)); /* sent; the last one waits for all */
            lands(last ? 2 : 1);
            ck_assert(range_is(1, 0, 1, 0, (layer + 1) * PIECE));
            ck_assert(last || *byte_at(1, 0, TO, (layer + 1) * PIECE + 9) == 0);
        }
        replied(PREFILL, seq, SL_OK);
        replied(DECODE, bring, SL_OK);
        ck_assert(decode_has_all());
        bed_close();
    }
END_TEST

START_TEST(a_wrong_digest_is_never_told)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin();
        piece_here(0, 0, SHARED);
        bed.pieces[0].digest_low ^= 1;
        uint64_t seq = lend(false);
        ck_assert(lands_not());
        replied(DECODE, bring, SL_ERR_CORRUPT);
        (void)seq;
        piece_here(1, 0, LONE);
        replied(PREFILL, lend(false), SL_ERR_CORRUPT);
        ck_assert_uint_eq(*byte_at(1, 0, TO, 3), 0); /* no other rank gets it */
        ck_assert_uint_eq(metric("digests_bad"), 1);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(the_end_without_every_byte_is_an_error)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin();
        piece_here(0, 0, SHARED);
        piece_here(1, 0, LONE);
        uint64_t seq = lend(true);
        ck_assert(lands_not());
        replied(DECODE, bring, SL_ERR_INCOMPLETE);
        replied(PREFILL, seq, SL_ERR_INCOMPLETE);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(what_decode_refuses_prefill_hears)
    {
        struct sl_msg msg;
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = lend_all();
        ck_assert(landed(2, &msg));
        landed_answer(&msg, SL_ERR_NOT_FOUND);
        replied(DECODE, bring, SL_ERR_NOT_FOUND);
        replied(PREFILL, seq, SL_ERR_STALE);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_ticket_that_its_coordinator_does_not_want_is_over)
    {
        struct sl_msg msg = bring_msg(), open;
        bed_open("", "true");
        msg = bring_msg();
        fake_give(&bed.fake, DECODE, &msg);
        ck_assert(landed(0, &open));
        landed_answer(&open, SL_ERR_NOT_FOUND);
        replied(DECODE, msg.seq, SL_ERR_NOT_FOUND);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(what_comes_again_is_done_once)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        struct sl_msg bring = bring_msg();
        fake_give(&bed.fake, DECODE, &bring);
        lands(0);
        fake_give(&bed.fake, DECODE, &bring);
        ck_assert(lands_not());
        piece_here(0, 0, SHARED);
        struct sl_msg first = lend_msg(false);
        replied(PREFILL, lend_again(&first), SL_OK);
        replied(PREFILL, lend_again(&first), SL_OK);
        lands(1);
        ck_assert(lands_not());
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        struct sl_msg last = lend_msg(true);
        (void)lend_again(&last);
        ck_assert(unanswered(PREFILL, lend_again(&last)));
        lands(2);
        replied(PREFILL, last.seq, SL_OK);
        replied(DECODE, bring.seq, SL_OK);
        replied(PREFILL, lend_again(&last), SL_OK); /* even after the end */
        fake_give(&bed.fake, DECODE, &bring);
        turns(TURNS);
        replied(DECODE, bring.seq, SL_OK);
        ck_assert(decode_has_all());
        ck_assert_uint_eq(metric("loans"), 1);
        ck_assert_uint_eq(metric("takes"), 1);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Its blocks are released, and the hand-over uses storage. */
START_TEST(what_nobody_reads_is_lent_for_a_moment)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        ticket_of("a");
        uint64_t seq = lend_all();
        later(150 * SL_NS_PER_MS);
        ck_assert(unanswered(PREFILL, seq));
        later(LATER);
        replied(PREFILL, seq, SL_ERR_TIMEOUT);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* A step whose time is earlier than that of a previous message is not a long silence. */
START_TEST(time_that_goes_back_ends_no_loan)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        ticket_of("a");
        piece_here(0, 0, SHARED);
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        struct sl_msg msg = lend_msg(true);
        (void)lend_again(&msg);
        bed.fake.env.now_ns -= SL_NS_PER_MS;
        ck_assert(unanswered(PREFILL, lend_again(&msg)));
        bed_close();
    }
END_TEST

/* While prefill computes, decode may be late. */
START_TEST(a_bring_that_comes_late_is_waited_for)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        ticket_of("a");
        piece_here(0, 0, SHARED);
        replied(PREFILL, lend(false), SL_OK);
        later(SL_NS_PER_S);
        uint64_t bring = bring_begin();
        later(LATER);
        lands(1);
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        uint64_t seq = lend(true);
        lands(2);
        replied(PREFILL, seq, SL_OK);
        replied(DECODE, bring, SL_OK);
        ck_assert(decode_has_all());
        bed_close();
    }
END_TEST

/* After a moment, unread blocks take up at most a quarter of a pool. */
START_TEST(loans_that_nobody_reads_are_bounded)
    {
        bed_open("", "true");
        uint64_t seqs[2] = {0};
        for (uint32_t i = 0; i < 2; i++) { /* of 16 blocks: 3, then 6 */
            ticket_make(5 + i);
            ticket_of("a");
            for (uint32_t part = 0; part < 3; part++) {
                piece_here(1, 0, LONE);
                bed.pieces[part].part = part;
                bed.slots[part].device_block = part;
            }
            seqs[i] = lend(true);
            if (i == 0) {
                later(LATER);
                ck_assert(unanswered(PREFILL, seqs[0]));
            }
        }
        later(LATER);
        ck_assert(unanswered(PREFILL, seqs[0]));
        later(LATER);
        replied(PREFILL, seqs[0], SL_ERR_LIMIT);
        ck_assert(unanswered(PREFILL, seqs[1]));
        bed_close();
    }
END_TEST

static const struct {
    const char *sender;
    uint64_t op_id;
    bool ends;
} fences[] = {{PREFILL, OP, true}, {DECODE, OP, true},       {PREFILL, 0, true},
              {DECODE, 0, true},   {PREFILL, OP + 1, false}, {"other.0", OP, false}};
START_TEST(a_fence_ends_what_its_sender_asked_for)
    {
        struct sl_msg msg;
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = lend_all();
        ck_assert(landed(2, &msg)); /* not acknowledged */
        replied(fences[_i].sender, fence(fences[_i].sender, fences[_i].op_id), SL_OK);
        landed_answer(&msg, SL_OK); /* late, if it was ended */
        replied(PREFILL, seq, fences[_i].ends ? SL_ERR_CANCELLED : SL_OK);
        replied(DECODE, bring, fences[_i].ends ? SL_ERR_CANCELLED : SL_OK);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(what_comes_behind_its_fence_is_not_begun)
    {
        bed_open("", "true");
        struct sl_msg bring = bring_msg();
        piece_here(1, 0, LONE);
        bed.pieces[0].part = 0;
        struct sl_msg late = lend_msg(false);
        replied(DECODE, fence(DECODE, OP), SL_OK);
        replied(PREFILL, fence(PREFILL, OP), SL_OK);
        bring.seq = late.seq = 1; /* asked for before */
        fake_give(&bed.fake, DECODE, &bring);
        replied(DECODE, bring.seq, SL_ERR_CANCELLED);
        replied(PREFILL, lend_again(&late), SL_ERR_CANCELLED);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(an_engine_that_ends_ends_both)
    {
        struct sl_msg msg, over = {.type = SL_MSG_ENGINE_OVER};
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = lend_all();
        ck_assert(landed(2, &msg));
        bed.listed = false;
        over.body.engine_over.engine_id = ENGINE;
        fake_give(&bed.fake, "registrar", &over);
        turns(60);
        replied("registrar", over.seq, SL_OK);
        replied(PREFILL, seq, SL_ERR_STALE);
        replied(DECODE, bring, _i == 0 ? SL_ERR_STALE : SL_ERR_NOT_FOUND);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_coordinator_that_says_nothing_costs_the_deadline)
    {
        struct sl_msg msg;
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin(), seq = lend_all();
        ck_assert(landed(2, &msg));
        for (uint32_t i = 0; i < 98; i++) { /* prefill believes that it is being read */
            later(100 * SL_NS_PER_MS);
        }
        ck_assert(unanswered(DECODE, bring));
        ck_assert(unanswered(PREFILL, seq));
        for (uint32_t i = 0; i < 3; i++) {
            later(100 * SL_NS_PER_MS);
        }
        replied(DECODE, bring, SL_ERR_TIMEOUT);
        replied(PREFILL, seq, SL_ERR_TIMEOUT);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- what is refused ---- */

static void bring_spoil(int how, struct sl_body_bring *body)
{
    static struct sl_item_slot slots[4];
    static const struct sl_text key = {.at = "k", .length = 1};
    memcpy(slots, body->slots.at, sizeof(slots));
    body->slots.at = slots;
    switch (how) {
    case 0:
        body->ticket.length = 9;
        break;
    case 1:
        ticket_of("b");
        body->ticket = ticket_bytes();
        break;
    case 2:
        body->from = sl_text_of("no/name");
        break;
    case 3:
        body->slots.count = 0;
        break;
    case 4:
        body->keys.at = &key;
        body->keys.count = 1;
        break;
    case 5:
        slots[2].item = 2;
        break; /* none for part 1 */
    case 6:
        slots[1] = slot_of(1, 1, TO, 0);
        break; /* another length */
    case 7:
        slots[0].device_block = BLOCKS;
        break;
    case 8:
        slots[0].engine_id = 8;
        break;
    case 9:
        slots[3].item = HO_PARTS_MAX;
        break;
    default:
        break;
    }
}
static const sl_err bring_codes[] = {
    SL_ERR_INVALID, SL_ERR_INVALID, SL_ERR_INVALID, SL_ERR_INVALID,   SL_ERR_INVALID,
    SL_ERR_INVALID, SL_ERR_INVALID, SL_ERR_INVALID, SL_ERR_NOT_FOUND, SL_ERR_INVALID};
START_TEST(bad_brings_are_refused_and_nothing_is_begun)
    {
        bed_open("", "true");
        struct sl_msg msg = bring_msg();
        bring_spoil(_i, &msg.body.bring);
        fake_give(&bed.fake, DECODE, &msg);
        turns(TURNS);
        replied(DECODE, msg.seq, bring_codes[_i]);
        ck_assert(lands_not());
        nothing_is_left();
        bed_close();
    }
END_TEST

static void lend_spoil(int how, struct sl_body_lend *body)
{
    switch (how) {
    case 0:
        body->ticket.length = 9;
        break;
    case 1:
        body->number = 2;
        break;
    case 2:
        body->pieces.count = body->slots.count = 0;
        break;
    case 3:
        body->slots.count--;
        break;
    case 4:
        bed.pieces[0].part_offset_bytes = 1;
        break;
    case 5:
        bed.pieces[0].length_bytes = SHARED + 1;
        break;
    case 6:
        bed.slots[0].engine_id = 8;
        break;
    case 7:
        bed.slots[0].device_block = BLOCKS;
        break;
    case 8:
        ticket_of("nobody");
        body->ticket = ticket_bytes();
        break;
    default:
        break;
    }
}
static const sl_err lend_codes[] = {SL_ERR_INVALID,   SL_ERR_NOT_FOUND, SL_ERR_INVALID,
                                    SL_ERR_INVALID,   SL_ERR_INVALID,   SL_ERR_INVALID,
                                    SL_ERR_NOT_FOUND, SL_ERR_INVALID,   SL_ERR_UNREACHABLE};
START_TEST(bad_lends_are_refused_and_nothing_is_begun)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        ticket_of("a");
        piece_here(0, 0, SHARED);
        struct sl_msg msg = lend_msg(false);
        lend_spoil(_i, &msg.body.lend);
        replied(PREFILL, lend_again(&msg), lend_codes[_i]);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* A gap, an overlap, another block, or the end twice: the loan ends, and decode is notified. */
START_TEST(a_bad_lend_ends_the_loan)
    {
        bed_open("", "true");
        prefill_computes(FROM);
        uint64_t bring = bring_begin();
        piece_here(0, 0, PIECE);
        replied(PREFILL, lend(false), SL_OK);
        lands(1);
        piece_here(0, _i == 0 ? 2 * PIECE : _i == 1 ? 0 : PIECE, PIECE);
        bed.slots[0].device_block += _i == 2 ? 1 : 0;
        bed.number += _i == 3 ? 1 : 0;
        replied(PREFILL, lend(false), SL_ERR_INVALID);
        replied(DECODE, bring, SL_ERR_INVALID);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(without_pools_in_a_fabric_nothing_is_lent)
    {
        bed_open("", "false");
        struct sl_msg msg = bring_msg();
        fake_give(&bed.fake, DECODE, &msg);
        replied(DECODE, msg.seq, SL_ERR_UNSUPPORTED);
        replied(PREFILL, lend(false), SL_ERR_UNSUPPORTED);
        bed_close();
    }
END_TEST

/* ---- b lends, this node reads ---- */

/* b's parts are in its memory; the key of a part is in its first message. */
static const uint64_t b_at[PARTS] = {0, 65536, 131072};

static void b_computes(void)
{
    for (uint32_t part = 0; part < PARTS; part++) {
        for (uint64_t i = 0; i < (part == 0 ? SHARED : LONE); i++) {
            bed.b.bytes[b_at[part] + i] = pattern(i, part + 1);
        }
    }
}

static void b_piece(uint64_t part, uint64_t from, uint64_t length_bytes)
{
    static unsigned char keys[PARTS][SL_FABRIC_BLOB_MAX];
    piece_add(part, bed.b.bytes + b_at[part] + from, from, length_bytes);
    if (from == 0) {
        uint64_t whole = part == 0 ? SHARED : LONE;
        const struct sl_fabric_grant want = {.memory = bed.b.memory,
                                             .peer = bed.b.peer,
                                             .offset_bytes = b_at[part],
                                             .length_bytes = whole};
        const struct sl_fabric_place place = {
            .memory = bed.b.memory, .offset_bytes = b_at[part], .length_bytes = whole};
        struct sl_fabric_grant placed = want;
        placed.places = &place;
        placed.place_count = 1;
        (void)end_grant(&bed.b, &placed);
        memcpy(keys[part], bed.b.key, bed.b.key_bytes);
        bed.doors[bed.door_count++] = (struct sl_item_door){
            .part = part, .key = {.at = keys[part], .length = bed.b.key_bytes}};
    }
}

static struct sl_msg named_msg(bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_LEND, .op_id = 77};
    msg.body.peer_lend =
        (struct sl_body_peer_lend){.ticket = ticket_bytes(), .number = ++bed.number, .last = last};
    msg.body.peer_lend.pieces.at = bed.pieces;
    msg.body.peer_lend.pieces.count = bed.piece_count;
    msg.body.peer_lend.doors.at = bed.doors;
    msg.body.peer_lend.doors.count = bed.door_count;
    bed.piece_count = bed.door_count = 0;
    return msg;
}

static uint64_t b_says_again(const struct sl_msg *msg)
{
    uint64_t seq = fake_net_deliver(&bed.net, "b", *msg, false);
    turns(TURNS);
    return seq;
}

static uint64_t b_names(bool last)
{
    struct sl_msg msg = named_msg(last);
    return b_says_again(&msg);
}

static void b_heard(uint64_t seq, sl_err code)
{
    struct sl_msg reply;
    turns(TURNS);
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND_REPLY, &reply));
    ck_assert_uint_eq(reply.reply_to, seq);
    ck_assert_uint_eq(reply.op_id, 77);
    ck_assert_msg(reply.code == code, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
}

static void b_hears_nothing(uint32_t count)
{
    turns(TURNS);
    ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND_REPLY), count);
}

static uint64_t b_names_all(void)
{
    b_piece(0, 0, SHARED);
    b_piece(1, 0, LONE);
    b_piece(2, 0, LONE);
    return b_names(true);
}

START_TEST(what_a_peer_lends_is_read)
    {
        struct sl_msg msg;
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_hears_nothing(0);
        uint64_t seq = b_names_all();
        ck_assert(landed(2, &msg));
        ck_assert_str_eq(msg.body.landed.from.at, "b");
        ck_assert(decode_has_all());
        b_hears_nothing(0);
        landed_answer(&msg, SL_OK);
        b_heard(seq, SL_OK);
        replied(DECODE, bring, SL_OK);
        ck_assert_uint_eq(strayed(), 0);
        ck_assert_uint_eq(metric("copied_bytes"), SHARED); /* to the other rank */
        ck_assert_uint_eq(metric("landed_bytes"), SHARED + 2 * LONE);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Each layer is reported when its digest was right and earlier ones were accepted. */
START_TEST(layers_of_a_peer_are_read_as_they_come)
    {
        struct sl_msg first, second;
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, PIECE);
        uint64_t one = b_names(false);
        ck_assert(landed(1, &first));
        ck_assert(range_is(0, 0, 1, 0, PIECE) && range_is(1, 0, 1, 0, PIECE));
        b_piece(0, PIECE, PIECE);
        uint64_t two = b_names(false);
        ck_assert(lands_not());
        ck_assert(range_is(1, 0, 1, PIECE, 2 * PIECE)); /* arrived, and reported in order */
        b_piece(0, 2 * PIECE, PIECE);
        b_piece(1, 0, LONE);
        b_piece(2, 0, LONE);
        uint64_t three = b_names(true);
        ck_assert(lands_not());
        b_hears_nothing(0);
        landed_answer(&first, SL_OK);
        b_heard(one, SL_OK);
        ck_assert(landed(1, &second));
        ck_assert_uint_eq(second.body.landed.pieces.at[0].part_offset_bytes, PIECE);
        ck_assert(lands_not());
        landed_answer(&second, SL_OK);
        b_heard(two, SL_OK);
        lands(2);
        b_heard(three, SL_OK);
        replied(DECODE, bring, SL_OK);
        ck_assert(decode_has_all());
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(messages_that_come_again_or_too_early_are_answered)
    {
        struct sl_msg msg;
        bed_open("b@host:1", "true");
        b_computes();
        ticket_of("a");
        b_piece(0, 0, SHARED);
        struct sl_msg one = named_msg(false);
        b_heard(b_says_again(&one), SL_ERR_NOT_FOUND); /* no BRING wants it yet */
        /* The same spots that b lends: the bed keeps the pieces. */
        struct sl_msg bring = bring_msg();
        fake_give(&bed.fake, DECODE, &bring);
        lands(0);
        one.body.peer_lend.number = 2;
        b_heard(b_says_again(&one), SL_ERR_BUSY); /* the first was lost */
        struct sl_msg reply;
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND_REPLY, &reply));
        ck_assert_uint_eq(reply.body.peer_lend_reply.number, 0);
        one.body.peer_lend.number = 1;
        uint64_t seq = b_says_again(&one);
        ck_assert(landed(1, &msg));
        b_heard(b_says_again(&one), SL_ERR_BUSY); /* it is being read */
        landed_answer(&msg, SL_OK);
        b_heard(seq, SL_OK);
        b_heard(b_says_again(&one), SL_OK);
        ck_assert(lands_not());
        replied(DECODE, fence(DECODE, OP), SL_OK);
        replied(DECODE, bring.seq, SL_ERR_CANCELLED);
        b_heard(b_says_again(&one), SL_ERR_CANCELLED); /* it is over */
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Late reads of released blocks: they get other bytes, or have no right any more. */
START_TEST(a_late_read_is_never_told)
    {
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        bed.b.bytes[b_at[0] + SHARED - 1] ^= 0x55;
        uint64_t seq = b_names(false);
        ck_assert(lands_not());
        b_heard(seq, SL_ERR_CORRUPT);
        replied(DECODE, bring, SL_ERR_CORRUPT);
        ck_assert_uint_eq(*byte_at(1, 0, TO, 3), 0);
        ck_assert_uint_eq(metric("digests_bad"), 1);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_lender_that_gives_up_ends_the_bring)
    {
        struct sl_msg msg;
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        if (_i == 1) { /* while something is not taken yet */
            b_piece(0, 0, SHARED);
            (void)b_names(false);
            ck_assert(landed(1, &msg));
        }
        struct sl_msg over = named_msg(false);
        over.body.peer_lend.number = 0;
        over.body.peer_lend.code = SL_ERR_CANCELLED;
        over.body.peer_lend.text = sl_text_of("prefill was preempted");
        b_heard(b_says_again(&over), SL_OK);
        replied(DECODE, bring, SL_ERR_CANCELLED);
        nothing_is_left();
        bed_close();
    }
END_TEST

static void named_spoil(int how, struct sl_body_peer_lend *body)
{
    switch (how) {
    case 0:
        bed.pieces[0].part = PARTS;
        break;
    case 1:
        bed.pieces[0].part_offset_bytes = 8;
        break;
    case 2:
        bed.pieces[0].length_bytes = SHARED + 1;
        break;
    case 3:
        body->doors.count = 0;
        break;
    case 4:
        bed.doors[0].part = 1;
        break;
    case 5:
        bed.doors[0].part = PARTS;
        break;
    case 6:
        bed.doors[0].key.length = 1;
        break;
    case 7:
        body->last = true;
        break;
    default:
        break;
    }
}
static const sl_err named_codes[] = {SL_ERR_INVALID,  SL_ERR_INVALID,   SL_ERR_INVALID,
                                     SL_ERR_INVALID,  SL_ERR_INVALID,   SL_ERR_INVALID,
                                     SL_ERR_PROTOCOL, SL_ERR_INCOMPLETE};
START_TEST(what_a_peer_names_wrongly_ends_the_bring)
    {
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        struct sl_msg msg = named_msg(false);
        named_spoil(_i, &msg.body.peer_lend);
        b_heard(b_says_again(&msg), named_codes[_i]);
        replied(DECODE, bring, named_codes[_i]);
        ck_assert(lands_not());
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Another secret is no ticket; another node or loan than the first cannot use it. */
START_TEST(a_ticket_is_for_one_loan_of_one_node)
    {
        bed_open("b@host:1", "true");
        b_computes();
        struct sl_msg bring = bring_msg();
        bring.body.bring.from = sl_text_of(_i == 0 ? "c" : "");
        fake_give(&bed.fake, DECODE, &bring);
        lands(0);
        b_piece(0, 0, SHARED);
        if (_i == 1) {
            bed.ticket.secret[15] ^= 1;
            ticket_of("a");
        }
        struct sl_msg msg = named_msg(false);
        uint64_t seq = b_says_again(&msg);
        if (_i == 2) {
            lands(1);
            msg.op_id++;
            (void)b_says_again(&msg);
            struct sl_msg reply;
            ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND_REPLY, &reply));
            ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        } else {
            b_heard(seq, _i == 0 ? SL_ERR_PERMISSION : SL_ERR_NOT_FOUND);
            ck_assert(lands_not());
        }
        ck_assert(unanswered(DECODE, bring.seq)); /* it is still wanted */
        bed_close();
    }
END_TEST

START_TEST(a_new_life_of_the_lender_ends_the_bring)
    {
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        (void)b_names(false);
        lands(1);
        peer_greets(4);
        replied(DECODE, bring, SL_ERR_PEER_DIED);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* With verbs the key ended with the link: after a few tries it ends, long before its deadline. */
START_TEST(a_read_whose_link_broke_ends)
    {
        uint32_t failed = 0;
        bed_open("b@host:1", "true");
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        fake_verbs.refuse_at = fake_verbs.requests_met + 1;
        uint64_t seq = b_names(false);
        ck_assert(lands_not());
        struct sl_msg reply;
        for (uint32_t i = 0; i < 40 && failed == 0; i++) {
            later(100 * SL_NS_PER_MS);
            failed = fake_take_reply(&bed.fake, DECODE, bring, &reply) ? 1 : 0;
        }
        ck_assert_uint_eq(failed, 1);
        ck_assert(reply.code != SL_OK && reply.code != SL_ERR_TIMEOUT);
        b_heard(seq, reply.code);
        ck_assert(lands_not());
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Unread messages are no sign of life: the lender may want its blocks back. */
START_TEST(messages_of_a_take_are_bounded)
    {
        bed_open("b@host:1", "true");
        b_computes();
        (void)bring_begin();
        for (uint32_t i = 0; i <= HO_UNREAD_MAX; i++) {
            b_piece(0, i * 8, 8);
            uint64_t seq = b_names(false);
            if (i == HO_UNREAD_MAX) {
                b_heard(seq, SL_ERR_NOT_FOUND);
            } else {
                b_hears_nothing(0); /* its coordinator has not answered the first */
            }
        }
        replied(DECODE, fence(DECODE, OP), SL_OK);
        nothing_is_left();
        bed_close();
    }
END_TEST

static uint32_t fences_waiting(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
        count += bed.self->fences[i].used ? 1 : 0;
    }
    return count;
}

/* A transporter that refuses a fence is killed. A fence waits for the end of rights. */
START_TEST(fences_wait_once_each_and_are_never_refused)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        (void)lend_all();
        struct sl_msg first = {.type = SL_MSG_FENCE, .op_id = OP};
        for (uint32_t i = 0; i < 3; i++) { /* the same one */
            fake_give(&bed.fake, PREFILL, &first);
        }
        ck_assert_uint_eq(fences_waiting(), 1);
        uint64_t last = 0;
        for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
            struct sl_msg more = {.type = SL_MSG_FENCE, .op_id = OP};
            fake_give(&bed.fake, PREFILL, &more);
            last = more.seq;
        }
        ck_assert_uint_eq(fences_waiting(), TR_FENCES_MAX);
        ck_assert(unanswered(PREFILL, last));
        turns(TURNS);
        replied(PREFILL, first.seq, SL_OK);
        ck_assert_uint_eq(fences_waiting(), 0);
        struct sl_msg again = {.type = SL_MSG_FENCE, .op_id = OP, .seq = last};
        fake_give(&bed.fake, PREFILL, &again);
        replied(PREFILL, last, SL_OK);
        nothing_is_left();
        bed_close();
    }
END_TEST

static const struct {
    const char *from;
    uint64_t op_id, seq;
    bool covered;
} requests[] = {
    {"c", 5, 99, true},  {"c", 5, 100, false},           {"c", 5, 101, false}, {"c", 6, 99, false},
    {"d", 5, 99, false}, {"c", 5, UINT64_MAX - 3, true}, /* numbers wrap around */
};
START_TEST(fences_cover_requests_before_them)
    {
        static struct tr_fenced fenced;
        struct sl_msg fence = {
            .type = SL_MSG_FENCE, .op_id = 5, .seq = 100, .sender = sl_text_of("c")};
        struct sl_reply_route kept = {.op_id = requests[_i].op_id, .seq = requests[_i].seq};
        snprintf(kept.to, sizeof(kept.to), "%s", requests[_i].from);
        struct sl_msg late = {.op_id = kept.op_id, .seq = kept.seq, .sender = sl_text_of(kept.to)};
        memset(&fenced, 0, sizeof(fenced));
        ck_assert(!tr_fenced_has(&fenced, &late));
        tr_fenced_note(&fenced, &fence);
        fence.seq = 50; /* an older one changes nothing */
        tr_fenced_note(&fenced, &fence);
        fence.seq = 100;
        ck_assert_int_eq(tr_fence_covers(&fence, &kept), requests[_i].covered);
        ck_assert_int_eq(tr_fenced_has(&fenced, &late), requests[_i].covered);
        fence.op_id = 0;
        bool all = requests[_i].covered || requests[_i].op_id == 6;
        ck_assert_int_eq(tr_fence_covers(&fence, &kept), all);
    }
END_TEST

/* Of either side: hand-overs, and their parts. */
START_TEST(hand_overs_are_bounded)
    {
        bed_open_with("", "true", _i == 0 ? "tickets_max" : "ticket_parts_max",
                      _i == 0 ? "1" : "3");
        prefill_computes(FROM);
        (void)bring_begin();
        piece_here(0, 0, SHARED);
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        replied(PREFILL, lend(false), SL_OK);
        ticket_make(6);
        struct sl_msg bring = bring_msg();
        bring.op_id = OP + 1;
        fake_give(&bed.fake, DECODE, &bring);
        replied(DECODE, bring.seq, SL_ERR_LIMIT);
        piece_here(0, 0, SHARED);
        struct sl_msg more = lend_msg(false);
        more.op_id = OP + 1;
        replied(PREFILL, lend_again(&more), SL_ERR_LIMIT);
        bed_close();
    }
END_TEST

/* A node that had answered before, and one that starts and sends HELLO while ours is in flight. */
START_TEST(a_node_that_is_gone_ends_both_by_name)
    {
        sl_err want = _i == 0 ? SL_ERR_PEER_DIED : SL_ERR_UNREACHABLE;
        bed_open_with("b@host:1", "true", "peer_heartbeat", "1s");
        prefill_computes(FROM);
        b_computes();
        if (_i == 0) {
            sl_peer_health_heard(&bed.self->peers[0].health, bed.fake.env.now_ns);
        }
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        (void)b_names(false);
        lands(1);
        ticket_make(6);
        ticket_of("b");
        piece_here(0, 0, SHARED);
        replied(PREFILL, lend(false), SL_OK);
        later(SL_NS_PER_S);
        ck_assert(unanswered(DECODE, bring));
        for (uint32_t i = 0; i < 40; i++) {
            later(100 * SL_NS_PER_MS);
        }
        replied(DECODE, bring, want);
        piece_here(1, 0, LONE);
        replied(PREFILL, lend(false), want);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- this node lends, b reads ---- */

static struct sl_msg b_was_told(uint32_t number)
{
    struct sl_msg msg;
    turns(TURNS);
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND, &msg));
    ck_assert_uint_eq(msg.body.peer_lend.number, number);
    return msg;
}

static void b_answers(const struct sl_msg *told, sl_err code)
{
    struct sl_msg reply = {.type = SL_MSG_PEER_LEND_REPLY, .code = code, .reply_to = told->seq};
    reply.op_id = told->op_id;
    reply.body.peer_lend_reply.number = told->body.peer_lend.number;
    (void)fake_net_deliver(&bed.net, "b", reply, true);
    turns(TURNS);
}

/* b reads all of a part by its key; returns the result. */
static sl_err b_reads(uint32_t key, uint64_t length_bytes, uint64_t cookie)
{
    const struct sl_fabric_piece piece = {
        .memory = bed.b.memory, .key = key, .length_bytes = length_bytes};
    const struct sl_fabric_transfer transfer = {.peer = bed.b.peer,
                                                .pieces = &piece,
                                                .piece_count = 1,
                                                .deadline_ns = bed.fake.env.now_ns + SL_NS_PER_S,
                                                .cookie = cookie};
    memset(bed.b.bytes, 0, length_bytes);
    sl_err err = sl_fabric_post(bed.b.fabric, &transfer, NULL);
    turns(TURNS);
    const struct end_done *done = err == SL_OK ? end_done_of(&bed.b, cookie) : NULL;
    return err != SL_OK ? err : done == NULL ? SL_ERR_BUSY : done->code;
}

static uint32_t b_opens(const struct sl_item_door *door)
{
    uint32_t key = 0;
    ck_assert_int_eq(sl_fabric_key_open(bed.b.fabric, bed.b.peer, door->key.at,
                                        (uint32_t)door->key.length, &key, NULL),
                     SL_OK);
    return key;
}

START_TEST(a_peer_reads_what_is_lent_to_it_and_nothing_behind_the_end)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        piece_here(0, 0, SHARED);
        replied(PREFILL, lend(false), SL_OK);
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        uint64_t seq = lend(true);
        struct sl_msg told = b_was_told(2);
        ck_assert(told.body.peer_lend.last);
        ck_assert_uint_eq(told.body.peer_lend.doors.count, 2);
        ck_assert_uint_eq(told.body.peer_lend.doors.at[1].part, 2);
        uint32_t key = b_opens(&told.body.peer_lend.doors.at[1]);
        ck_assert_int_eq(b_reads(key, LONE, 1), SL_OK);
        for (uint64_t i = 0; i < LONE; i++) {
            ck_assert_uint_eq(bed.b.bytes[i], pattern(i, 3));
        }
        told.body.peer_lend.number = 1;
        b_answers(&told, SL_OK);
        ck_assert(unanswered(PREFILL, seq));
        told.body.peer_lend.number = 2;
        b_answers(&told, SL_OK);
        replied(PREFILL, seq, SL_OK);
        ck_assert_uint_eq(metric("pool_read_bytes"), SHARED + 2 * LONE);
        nothing_is_left();
        ck_assert_int_ne(b_reads(key, LONE, 2), SL_OK);
        bed_close();
    }
END_TEST

START_TEST(messages_are_said_again_until_they_are_read)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        uint64_t seq = lend_all();
        struct sl_msg told = b_was_told(1);
        for (uint32_t i = 0; i < 12; i++) { /* it reads, slowly */
            uint32_t count = fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND);
            later(LATER);
            ck_assert_uint_gt(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), count);
            told = b_was_told(1);
            ck_assert_uint_eq(told.body.peer_lend.doors.count, PARTS); /* keys come again */
            b_answers(&told, SL_ERR_BUSY);
        }
        ck_assert(unanswered(PREFILL, seq));
        for (uint32_t i = 0; i < 4; i++) { /* not found is no sign of life */
            later(LATER);
            ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_LEND, &told));
            if (told.body.peer_lend.code == SL_OK) {
                b_answers(&told, SL_ERR_NOT_FOUND);
            }
        }
        replied(PREFILL, seq, SL_ERR_TIMEOUT);
        told = b_was_told(0); /* the end */
        ck_assert_uint_eq(told.body.peer_lend.code, SL_ERR_TIMEOUT);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* One message asks for all of them: a long hand-over is not sent repeatedly. */
START_TEST(what_decode_lacks_is_said_again)
    {
        bed_open("b@host:1", "true");
        ticket_of("b");
        for (uint32_t i = 0; i < 3; i++) {
            piece_here(1, i * 8, 8);
            bed.pieces[0].part = 0;
            replied(PREFILL, lend(false), SL_OK);
        }
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), 3);
        fake_advance(&bed.fake, 51 * SL_NS_PER_MS);
        struct sl_msg told = b_was_told(1);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), 4);
        b_answers(&told, SL_ERR_BUSY); /* it has only this one */
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), 6);
        told = b_was_told(3);
        b_answers(&told, SL_ERR_BUSY); /* now it has all */
        fake_advance(&bed.fake, 51 * SL_NS_PER_MS);
        told = b_was_told(1);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), 7);
        b_answers(&told, SL_OK);
        fake_advance(&bed.fake, 51 * SL_NS_PER_MS);
        (void)b_was_told(2);
        bed_close();
    }
END_TEST

START_TEST(what_decode_says_ends_the_loan)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        uint64_t seq = lend_all();
        struct sl_msg told = b_was_told(1);
        told.op_id++;
        b_answers(&told, SL_ERR_CORRUPT); /* of another loan */
        ck_assert(unanswered(PREFILL, seq));
        told.op_id--;
        b_answers(&told, SL_ERR_CORRUPT);
        replied(PREFILL, seq, SL_ERR_CORRUPT);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* A new life of decode's transporter, shown by its HELLO, or because it lacks pieces that were read
 * or received before. */
START_TEST(a_new_life_of_decode_ends_the_loan)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        piece_here(0, 0, SHARED);
        replied(PREFILL, lend(false), SL_OK);
        struct sl_msg told = b_was_told(1);
        b_answers(&told, _i == 2 ? SL_ERR_BUSY : SL_OK);
        piece_here(1, 0, LONE);
        piece_here(2, 0, LONE);
        uint64_t seq = lend(true);
        told = b_was_told(2);
        if (_i == 0) {
            peer_greets(4);
        } else {
            told.body.peer_lend.number = 0;
            b_answers(&told, SL_ERR_BUSY);
        }
        replied(PREFILL, seq, SL_ERR_PEER_DIED);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(messages_that_are_not_read_are_bounded)
    {
        bed_open("b@host:1", "true");
        ticket_of("b");
        uint64_t seq = 0;
        for (uint32_t i = 0; i < HO_UNREAD_MAX; i++) {
            piece_here(1, i * 8, 8);
            bed.pieces[0].part = 0;
            seq = lend(false);
            ck_assert((i + 1 == HO_UNREAD_MAX) == unanswered(PREFILL, seq));
        }
        struct sl_msg told = b_was_told(HO_UNREAD_MAX);
        b_answers(&told, SL_OK);
        replied(PREFILL, seq, SL_OK);
        replied(PREFILL, fence(PREFILL, OP), SL_OK);
        told = b_was_told(0);
        ck_assert_uint_eq(told.body.peer_lend.code, SL_ERR_CANCELLED);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* No entry is written past the table, or taken over from another op. */
START_TEST(one_lend_of_one_op_is_open_at_a_time)
    {
        bed_open("b@host:1", "true");
        ticket_of("b");
        uint64_t seq = 0;
        for (uint32_t i = 0; i < HO_UNREAD_MAX; i++) {
            piece_here(1, i * 8, 8);
            bed.pieces[0].part = 0;
            seq = lend(false);
        }
        piece_here(1, HO_UNREAD_MAX * 8, 8);
        bed.pieces[0].part = 0;
        struct sl_msg next = lend_msg(false);
        replied(PREFILL, lend_again(&next), SL_ERR_BUSY);
        next.seq = 0;
        next.op_id = OP + 1;
        replied(PREFILL, lend_again(&next), SL_ERR_BUSY);
        next.seq = 0;
        next.op_id = OP;
        fake_give(&bed.fake, "other.0", &next);
        replied("other.0", next.seq, SL_ERR_BUSY);
        ck_assert(unanswered(PREFILL, seq));
        replied(PREFILL, fence(PREFILL, OP), SL_OK);
        replied(PREFILL, seq, SL_ERR_CANCELLED);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_part_that_was_read_is_lent_no_more)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        piece_here(1, 0, LONE);
        bed.pieces[0].part = 0;
        replied(PREFILL, lend(false), SL_OK);
        piece_here(0, 0, PIECE);
        bed.pieces[0].part = 1;
        replied(PREFILL, lend(false), SL_OK);
        struct sl_msg told = b_was_told(2);
        ck_assert_uint_eq(bed.self->handover->loans[0].grants_open, 2);
        told.body.peer_lend.number = 1;
        b_answers(&told, SL_OK);
        ck_assert_uint_eq(bed.self->handover->loans[0].grants_open, 1);
        told.body.peer_lend.number = 2; /* there is more of it */
        b_answers(&told, SL_OK);
        ck_assert_uint_eq(bed.self->handover->loans[0].grants_open, 1);
        replied(PREFILL, fence(PREFILL, OP), SL_OK);
        ck_assert_uint_eq(bed.self->handover->places_open, 0);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Half of the fabric's ranges is for reads. A loan that only its own rights obstruct is refused. */
START_TEST(rights_have_a_bound)
    {
        struct handover *ho = NULL;
        bed_open("b@host:1", "true");
        ho = bed.self->handover;
        prefill_computes(FROM);
        ticket_of("b");
        ho->places_open = HO_LOAN_PLACES_MAX - 1; /* of others, which may end theirs */
        uint64_t seq = lend_all();
        ck_assert(unanswered(PREFILL, seq));
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_LEND), 0);
        if (_i == 0) {
            ho->places_open -= HO_LOAN_PLACES_MAX - 1;
            later(6 * SL_NS_PER_MS);
            (void)b_was_told(1);
        } else if (_i == 1) {
            later(SL_NS_PER_S);
            ck_assert(unanswered(PREFILL, seq));
            later(SL_NS_PER_S);
            replied(PREFILL, seq, SL_ERR_TIMEOUT);
        } else { /* only its own */
            ho->loans[0].places_open = ho->places_open;
            later(6 * SL_NS_PER_MS);
            replied(PREFILL, seq, SL_ERR_LIMIT);
        }
        bed_close();
    }
END_TEST

START_TEST(a_link_that_goes_takes_the_loan_along)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        ticket_of("b");
        uint64_t seq = lend_all();
        (void)b_was_told(1);
        tr_lend_link_lost(bed.self, bed.self->peers[0].fabric_peer);
        turns(TURNS);
        replied(PREFILL, seq, SL_ERR_UNREACHABLE);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_peer_without_a_key_gets_nothing_more)
    {
        bed_open("b@host:1", "true");
        prefill_computes(FROM);
        b_computes();
        uint64_t bring = bring_begin();
        b_piece(0, 0, SHARED);
        (void)b_names(false);
        lands(1);
        ticket_make(6);
        ticket_of("b");
        bed.piece_count = 0;
        uint64_t seq = lend_all();
        tr_peer_expel(bed.self, &bed.self->peers[0], "NAME.pub was removed");
        turns(TURNS);
        replied(PREFILL, seq, SL_ERR_PERMISSION);
        replied(DECODE, bring, SL_ERR_PERMISSION);
        nothing_is_left();
        bed_close();
    }
END_TEST

static Suite *suite_make(void)
{
    Suite *suite = suite_create("loans");
    TCase *here = tcase_create("one node");
    tcase_set_timeout(here, 60);
    tcase_add_test(here, blocks_go_from_pool_to_pool);
    tcase_add_test(here, what_has_landed_is_told_when_there_is_room_for_the_call);
    tcase_add_test(here, a_bring_is_taken_when_there_is_room_for_the_call);
    tcase_add_test(here, a_bring_without_room_for_the_call_ends_by_its_deadline);
    tcase_add_test(here, layers_land_one_after_the_other);
    tcase_add_test(here, a_wrong_digest_is_never_told);
    tcase_add_test(here, the_end_without_every_byte_is_an_error);
    tcase_add_test(here, what_decode_refuses_prefill_hears);
    tcase_add_test(here, a_ticket_that_its_coordinator_does_not_want_is_over);
    tcase_add_test(here, what_comes_again_is_done_once);
    tcase_add_test(here, what_nobody_reads_is_lent_for_a_moment);
    tcase_add_test(here, time_that_goes_back_ends_no_loan);
    tcase_add_test(here, a_bring_that_comes_late_is_waited_for);
    tcase_add_test(here, loans_that_nobody_reads_are_bounded);
    tcase_add_loop_test(here, a_fence_ends_what_its_sender_asked_for, 0, SL_COUNT(fences));
    tcase_add_test(here, what_comes_behind_its_fence_is_not_begun);
    tcase_add_test(here, an_engine_that_ends_ends_both);
    tcase_add_test(here, a_coordinator_that_says_nothing_costs_the_deadline);
    tcase_add_loop_test(here, bad_brings_are_refused_and_nothing_is_begun, 0,
                        SL_COUNT(bring_codes));
    tcase_add_loop_test(here, bad_lends_are_refused_and_nothing_is_begun, 0, SL_COUNT(lend_codes));
    tcase_add_loop_test(here, a_bad_lend_ends_the_loan, 0, 4);
    tcase_add_test(here, without_pools_in_a_fabric_nothing_is_lent);
    tcase_add_loop_test(here, hand_overs_are_bounded, 0, 2);
    tcase_add_loop_test(here, fences_cover_requests_before_them, 0, SL_COUNT(requests));
    suite_add_tcase(suite, here);
    TCase *reads = tcase_create("b lends");
    tcase_set_timeout(reads, 60);
    tcase_add_test(reads, what_a_peer_lends_is_read);
    tcase_add_test(reads, layers_of_a_peer_are_read_as_they_come);
    tcase_add_test(reads, messages_that_come_again_or_too_early_are_answered);
    tcase_add_test(reads, a_late_read_is_never_told);
    tcase_add_loop_test(reads, a_lender_that_gives_up_ends_the_bring, 0, 2);
    tcase_add_loop_test(reads, what_a_peer_names_wrongly_ends_the_bring, 0, SL_COUNT(named_codes));
    tcase_add_loop_test(reads, a_ticket_is_for_one_loan_of_one_node, 0, 3);
    tcase_add_test(reads, a_new_life_of_the_lender_ends_the_bring);
    tcase_add_test(reads, a_read_whose_link_broke_ends);
    tcase_add_test(reads, messages_of_a_take_are_bounded);
    tcase_add_loop_test(reads, a_node_that_is_gone_ends_both_by_name, 0, 2);
    suite_add_tcase(suite, reads);
    TCase *lends = tcase_create("b reads");
    tcase_set_timeout(lends, 60);
    tcase_add_test(lends, a_peer_reads_what_is_lent_to_it_and_nothing_behind_the_end);
    tcase_add_test(lends, messages_are_said_again_until_they_are_read);
    tcase_add_test(lends, what_decode_lacks_is_said_again);
    tcase_add_test(lends, what_decode_says_ends_the_loan);
    tcase_add_test(lends, fences_wait_once_each_and_are_never_refused);
    tcase_add_loop_test(lends, a_new_life_of_decode_ends_the_loan, 0, 3);
    tcase_add_test(lends, messages_that_are_not_read_are_bounded);
    tcase_add_test(lends, one_lend_of_one_op_is_open_at_a_time);
    tcase_add_test(lends, a_part_that_was_read_is_lent_no_more);
    tcase_add_loop_test(lends, rights_have_a_bound, 0, 3);
    tcase_add_test(lends, a_link_that_goes_takes_the_loan_along);
    tcase_add_test(lends, a_peer_without_a_key_gets_nothing_more);
    suite_add_tcase(suite, lends);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(suite_make());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
