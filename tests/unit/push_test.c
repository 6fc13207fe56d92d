/* tests/unit/push_test.c - direct hand-over: tickets, what comes under them, what is sent under
 * those of others, and every end. The network is played by the test; bytes of another node are
 * written by it, too. Real ones travel in tests/cluster. */
#include "actors/transporter/internal.h"
#include "actors/transporter/push/internal.h"
#include "actors/transporter/transporter.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART    (20 * SL_KIB)
#define PARTS   4u
#define DECODE  "coordinator"
#define PREFILL "prefiller.0"

static struct bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    struct sl_arena *arena;
    struct sl_index *index;
    bool cluster;
    uint64_t offset_bytes;
    struct sl_item_target parts[PARTS];
    unsigned char ticket[SL_TICKET_BYTES_MAX];
    uint64_t ticket_bytes;
} bed;

static void net_done(void *context, const struct sl_fabric_done *done)
{
    ck_assert(tr_push_done(context, done));
}
static void net_registered(void *context, uint32_t memory, uint32_t region_index,
                           const struct sl_error *why)
{
    (void)region_index;
    tr_memory_registered(context, memory, why);
}

static void tick(void)
{
    bed.self->env->ops->wake_at(bed.self->env, 0);
    fake_pass(&bed.fake, 0);
}

static void pass(uint64_t ns)
{
    fake_pass(&bed.fake, ns);
}

/* peers NULL: a node alone, without a fabric. */
static void bed_open(const char *peers, const char *const *more)
{
    const char *const settings[] = {"node_name", "a",      "peer_heartbeat", "1s", "peer_timeout",
                                    "500ms",     "memory", "4MiB",           NULL};
    struct sl_error why = {0};
    bool created = false;
    memset(&bed, 0, sizeof(bed));
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    for (size_t i = 0; more != NULL && more[i] != NULL; i += 2) {
        fake_set(&bed.fake, more[i], more[i + 1]);
    }
    bed.fake.env.name = "transporter.0";
    bed.cluster = peers != NULL;
    const struct sl_arena_options arena = {
        .directory = bed.fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed.arena, &why), SL_OK);
    while (sl_arena_populate_below(bed.arena, UINT64_MAX, NULL) == SL_OK) {
    }
    const struct sl_index_options index = {
        .shm_dir = bed.fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = bed.arena};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed.index, &why), SL_OK);
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    if (bed.cluster) {
        struct sl_fabric_options options;
        sl_fabric_options_init(&options, "tcp");
        options.address = "127.0.0.1:0";
        options.events = (struct sl_fabric_events){.context = bed.self,
                                                   .done = net_done,
                                                   .registered = net_registered,
                                                   .address = tr_fabric_address,
                                                   .granted = tr_fabric_granted,
                                                   .grant_ended = tr_fabric_grant_ended};
        ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
        bed.self->fabric_name = "tcp";
        fake_net_open(&bed.net);
        bed.self->control = &bed.net.base;
        fake_set(&bed.fake, "peers", peers);
        ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
        pass(100 * SL_NS_PER_MS);
        ck_assert(bed.self->arenas[0].registered);
    }
}

static void bed_close(void)
{
    if (bed.cluster) {
        sl_fabric_close(&bed.self->fabric);
        tr_push_fini(bed.self);
        tr_cluster_fini(bed.self);
        bed.self->control = NULL;
        bed.self->calls = NULL;
        fake_net_close(&bed.net);
    }
    sl_index_close(&bed.index);
    sl_arena_close(&bed.arena);
    (void)sl_segment_remove(bed.fake.paths.shm_dir, "arena.0", NULL);
    (void)sl_segment_remove(bed.fake.paths.shm_dir, "index", NULL);
    fake_close(&bed.fake);
}

static const struct push *push_of(void)
{
    return bed.self->push;
}

/* ---- extents and bytes ---- */

static unsigned char *bytes_at(uint64_t offset_bytes)
{
    return sl_arena_at(bed.arena, offset_bytes, 1);
}

static uint64_t space_take(uint64_t length_bytes)
{
    uint64_t at = bed.offset_bytes;
    bed.offset_bytes += sl_align_up(length_bytes, 4096);
    return at;
}

static struct sl_item_target part_reserve(uint64_t length_bytes)
{
    static uint32_t number;
    char key[32];
    sl_ref ref = 0;
    snprintf(key, sizeof(key), "part%u", number++);
    struct sl_entry entry = {
        .kind = SL_RECORD_RESERVED, .key = key, .key_length = (uint16_t)strlen(key)};
    entry.extent = (struct sl_extent){.generation = sl_arena_next_generation(bed.arena),
                                      .offset_bytes = space_take(length_bytes),
                                      .length_bytes = length_bytes};
    ck_assert_int_eq(sl_index_claim(bed.index, &entry, &ref, NULL), SL_OK);
    memset(bytes_at(entry.extent.offset_bytes), 0, length_bytes);
    return (struct sl_item_target){.ref = ref,
                                   .generation = entry.extent.generation,
                                   .offset_bytes = entry.extent.offset_bytes,
                                   .length_bytes = length_bytes};
}

static void bytes_fill(unsigned char *at, uint64_t length_bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < length_bytes; i++) {
        at[i] = (unsigned char)(i * 7 + seed * 13 + (i >> 8));
    }
}

/* Bytes of this node for a piece. */
static struct sl_item_pushed piece_of(uint32_t part, uint64_t part_offset_bytes,
                                      uint64_t length_bytes)
{
    uint64_t at = space_take(length_bytes);
    bytes_fill(bytes_at(at), length_bytes, part + 1);
    struct sl_digest digest = sl_digest_of(bytes_at(at), length_bytes);
    return (struct sl_item_pushed){.part = part,
                                   .part_offset_bytes = part_offset_bytes,
                                   .offset_bytes = at,
                                   .length_bytes = length_bytes,
                                   .digest_low = digest.low,
                                   .digest_high = digest.high};
}

static bool part_has(uint32_t part, const struct sl_item_pushed *piece)
{
    return memcmp(bytes_at(bed.parts[part].offset_bytes + piece->part_offset_bytes),
                  bytes_at(piece->offset_bytes), piece->length_bytes) == 0;
}

/* ---- requests ---- */

static uint64_t open_send(uint64_t handover, uint64_t ttl_ns, const char *from, uint64_t count)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_OPEN};
    msg.body.push_open = (struct sl_body_push_open){
        .handover = handover, .ttl_ns = ttl_ns, .from = sl_text_of(from)};
    msg.body.push_open.parts.at = bed.parts;
    msg.body.push_open.parts.count = count;
    fake_give(&bed.fake, DECODE, &msg);
    return msg.seq;
}

static void ticket_open(uint64_t ttl_ns, const char *from)
{
    struct sl_msg reply;
    for (uint32_t i = 0; i < PARTS; i++) {
        bed.parts[i] = part_reserve(PART);
    }
    uint64_t seq = open_send(1, ttl_ns, from, PARTS);
    ck_assert(fake_take_reply(&bed.fake, DECODE, seq, &reply));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
    bed.ticket_bytes = reply.body.push_open_reply.ticket.length;
    memcpy(bed.ticket, reply.body.push_open_reply.ticket.at, bed.ticket_bytes);
}

static uint64_t close_send(void)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_CLOSE};
    msg.body.push_close.handover = 1;
    fake_give(&bed.fake, DECODE, &msg);
    tick();
    return msg.seq;
}

static struct sl_bytes ticket_bytes(void)
{
    return (struct sl_bytes){.at = bed.ticket, .length = bed.ticket_bytes};
}

static struct sl_msg push_msg(const struct sl_item_pushed *pieces, uint64_t count, bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_SEND, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.push_send = (struct sl_body_push_send){.ticket = ticket_bytes(), .last = last};
    msg.body.push_send.pieces.at = pieces;
    msg.body.push_send.pieces.count = count;
    return msg;
}

static uint64_t push_give(const struct sl_item_pushed *pieces, uint64_t count, bool last)
{
    struct sl_msg msg = push_msg(pieces, count, last);
    fake_give(&bed.fake, PREFILL, &msg);
    tick();
    return msg.seq;
}

static void replied(const char *to, uint64_t seq, sl_err code, const char *text)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&bed.fake, to, seq, &reply), "no answer to %s", to);
    ck_assert_msg(reply.code == code, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_msg(text == NULL || strstr(reply.text.at, text) != NULL, "'%s'", reply.text.at);
}

static bool unanswered(const char *to, uint64_t seq)
{
    struct sl_msg reply;
    return !fake_take_reply(&bed.fake, to, seq, &reply);
}

/* Takes the next PUSH_ARRIVED; borrowed as fake_take's. */
static struct sl_msg arrived(uint64_t state)
{
    struct sl_msg msg;
    tick();
    ck_assert(fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
    ck_assert_uint_eq(msg.body.push_arrived.handover, 1);
    ck_assert_msg(msg.body.push_arrived.state == state, "state %u: %s",
                  (unsigned)msg.body.push_arrived.state, msg.body.push_arrived.text.at);
    return msg;
}

static void arrived_answer(const struct sl_msg *msg, sl_err code)
{
    struct sl_msg reply = {.code = code};
    struct sl_msg request = {.type = SL_MSG_PUSH_ARRIVED, .seq = msg->seq};
    fake_answer(&bed.fake, DECODE, &request, &reply);
    tick();
}

static void over(sl_err code, const char *text)
{
    struct sl_msg msg = arrived(2);
    ck_assert_uint_eq(msg.body.push_arrived.code, code);
    ck_assert_msg(strstr(msg.body.push_arrived.text.at, text) != NULL, "'%s'",
                  msg.body.push_arrived.text.at);
    arrived_answer(&msg, SL_OK);
}

/* Nothing is left of any hand-over. */
static void nothing_is_left(void)
{
    tick();
    ck_assert_uint_eq(push_of()->tickets_open, 0);
    ck_assert_uint_eq(push_of()->parts_open, 0);
    ck_assert_uint_eq(push_of()->sends_open, 0);
    ck_assert_uint_eq(push_of()->doors_open, 0);
    ck_assert_uint_eq(sl_calls_count(push_of()->calls), 0);
    for (uint32_t i = 0; i < push_of()->push_max; i++) {
        ck_assert_int_eq(push_of()->arrivals[i].phase, ARRIVAL_FREE);
    }
    for (uint32_t i = 0; i < push_of()->grant_max; i++) {
        ck_assert(!push_of()->grants[i].used);
    }
}

/* ---- tickets as bytes ---- */

static struct sl_ticket a_ticket(void)
{
    struct sl_ticket ticket = {
        .incarnation = 1, .number = 2, .slot = 3, .part_count = 4, .secret = {5, 6, 7}};
    snprintf(ticket.node, sizeof(ticket.node), "node-of-thirty-one-bytes-exactl");
    return ticket;
}

START_TEST(a_ticket_is_read_as_it_was_written)
    {
        struct sl_ticket got, ticket = a_ticket();
        unsigned char bytes[SL_TICKET_BYTES_MAX];
        uint32_t length = sl_ticket_write(&ticket, bytes);
        ck_assert_uint_le(length, SL_TICKET_BYTES_MAX);
        ck_assert_int_eq(sl_ticket_read(bytes, length, &got, NULL), SL_OK);
        ck_assert_mem_eq(&got, &ticket, sizeof(got));
    }
END_TEST

START_TEST(a_damaged_ticket_is_none)
    {
        struct sl_ticket got, ticket = a_ticket();
        struct sl_error why = {0};
        unsigned char bytes[SL_TICKET_BYTES_MAX];
        uint32_t length = sl_ticket_write(&ticket, bytes);
        for (uint32_t i = 0; i < length; i++) {
            bytes[i] ^= 0x10;
            ck_assert_int_ne(sl_ticket_read(bytes, length, &got, &why), SL_OK);
            ck_assert_ptr_nonnull(strstr(why.text, "ticket"));
            bytes[i] ^= 0x10;
            ck_assert_int_ne(sl_ticket_read(bytes, i, &got, &why), SL_OK);
        }
        ck_assert_int_ne(sl_ticket_read(bytes, length + 1, &got, &why), SL_OK);
        ticket.part_count = SL_TICKET_PARTS_MAX + 1;
        length = sl_ticket_write(&ticket, bytes);
        ck_assert_int_eq(sl_ticket_read(bytes, length, &got, &why), SL_ERR_INVALID);
        ticket = a_ticket();
        ticket.node[0] = '/';
        length = sl_ticket_write(&ticket, bytes);
        ck_assert_int_eq(sl_ticket_read(bytes, length, &got, &why), SL_ERR_INVALID);
    }
END_TEST

/* ---- ranges ---- */

START_TEST(ranges_make_a_whole_in_any_order)
    {
        struct sl_cover cover = {0};
        bool there[97] = {false};
        uint64_t random = (uint64_t)_i * 77 + 1, count = 0;
        while (count < SL_COUNT(there)) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t from = (random >> 33) % SL_COUNT(there);
            uint64_t length = SL_MIN(1 + (random >> 45) % 5, SL_COUNT(there) - from);
            ck_assert_int_eq(sl_cover_add(&cover, from, length), SL_OK);
            for (uint64_t i = from; i < from + length; i++) {
                count += there[i] ? 0 : 1;
                there[i] = true;
            }
            ck_assert_uint_eq(sl_cover_bytes(&cover), count);
            ck_assert_int_eq(sl_cover_whole(&cover, SL_COUNT(there)), count == SL_COUNT(there));
            for (uint32_t i = 0; i < cover.count; i++) { /* sorted, and apart */
                ck_assert(cover.ranges[i].from < cover.ranges[i].end);
                ck_assert(i == 0 || cover.ranges[i - 1].end < cover.ranges[i].from);
            }
        }
        sl_cover_fini(&cover);
    }
END_TEST

START_TEST(ranges_have_a_bound)
    {
        struct sl_cover cover = {0};
        for (uint64_t i = 0; i < SL_COVER_RANGES_MAX; i++) {
            ck_assert_int_eq(sl_cover_add(&cover, 2 * i, 1), SL_OK);
        }
        ck_assert_int_eq(sl_cover_add(&cover, 2 * SL_COVER_RANGES_MAX, 1), SL_ERR_LIMIT);
        ck_assert_int_eq(sl_cover_add(&cover, 0, 2 * SL_COVER_RANGES_MAX), SL_OK);
        ck_assert(sl_cover_whole(&cover, 2 * SL_COVER_RANGES_MAX));
        sl_cover_fini(&cover);
    }
END_TEST

/* ---- one node ---- */

START_TEST(blocks_move_within_the_node_layer_by_layer)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed halves[2][PARTS];
        for (uint32_t layer = 0; layer < 2; layer++) {
            for (uint32_t i = 0; i < PARTS; i++) {
                halves[layer][i] = piece_of(i, layer * PART / 2, PART / 2);
            }
            struct sl_msg send = push_msg(halves[layer], PARTS, layer == 1);
            send.body.push_send.layer = layer + 1;
            fake_give(&bed.fake, PREFILL, &send);
            struct sl_msg msg = arrived(layer);
            ck_assert_uint_eq(msg.body.push_arrived.layer, layer + 1);
            ck_assert_uint_eq(msg.body.push_arrived.pieces.count, PARTS);
            ck_assert_str_eq(msg.body.push_arrived.from.at, "a");
            for (uint32_t i = 0; i < PARTS; i++) {
                ck_assert(part_has(i, &halves[layer][i]));
            }
            ck_assert(unanswered(PREFILL, send.seq)); /* before decode said so */
            arrived_answer(&msg, SL_OK);
            replied(PREFILL, send.seq, SL_OK, NULL);
        }
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(large_pieces_are_copied_in_slices)
    {
        bed_open(NULL, NULL);
        ck_assert_uint_lt(PUSH_SLICE,
                          5 * SL_MIB); /* the arena is too small for several: in turns */
        bed.parts[0] = part_reserve(SL_MIB + 5);
        struct sl_msg reply;
        uint64_t seq = open_send(1, SL_NS_PER_S, "", 1);
        ck_assert(fake_take_reply(&bed.fake, DECODE, seq, &reply));
        bed.ticket_bytes = reply.body.push_open_reply.ticket.length;
        memcpy(bed.ticket, reply.body.push_open_reply.ticket.at, bed.ticket_bytes);
        struct sl_item_pushed piece = piece_of(0, 0, SL_MIB + 5);
        seq = push_give(&piece, 1, true);
        struct sl_msg msg = arrived(1);
        ck_assert(part_has(0, &piece));
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, seq, SL_OK, NULL);
        bed_close();
    }
END_TEST

START_TEST(a_wrong_digest_ends_the_hand_over)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(2, 0, PART);
        piece.digest_low ^= 1;
        uint64_t seq = push_give(&piece, 1, false);
        replied(PREFILL, seq, SL_ERR_CORRUPT, "part 2");
        over(SL_ERR_CORRUPT, "part 2");
        seq = push_give(&piece, 1, false);
        replied(PREFILL, seq, SL_ERR_STALE, "no such ticket");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(the_end_without_every_byte_is_an_error)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed pieces[PARTS];
        for (uint32_t i = 0; i < PARTS; i++) {
            pieces[i] = piece_of(i, 0, i == 3 ? PART - 1 : PART);
        }
        uint64_t seq = push_give(pieces, PARTS, true);
        replied(PREFILL, seq, SL_ERR_INCOMPLETE, "of part 3 20479 of 20480 bytes");
        over(SL_ERR_INCOMPLETE, "part 3");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(what_decode_refuses_prefill_hears)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        struct sl_msg msg = arrived(0);
        arrived_answer(&msg, SL_ERR_NO_SPACE);
        replied(PREFILL, seq, SL_ERR_NO_SPACE, "coordinator refused");
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg)); /* it knows */
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_decode_that_says_nothing_costs_the_deadline)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        (void)arrived(0);
        pass(1900 * SL_NS_PER_MS);
        ck_assert(unanswered(PREFILL, seq));
        pass(100 * SL_NS_PER_MS);
        replied(PREFILL, seq, SL_ERR_TIMEOUT, NULL);
        struct sl_msg msg;
        while (fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg) &&
               msg.body.push_arrived.state != 2) { /* it was told again and again */
        }
        ck_assert_uint_eq(msg.body.push_arrived.state, 2);
        arrived_answer(&msg, SL_OK);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_repeated_batch_is_written_once)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        struct sl_msg send = push_msg(&piece, 1, false);
        fake_give(&bed.fake, PREFILL, &send);
        fake_give(&bed.fake, PREFILL, &send);
        struct sl_msg msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, send.seq, SL_OK, NULL);
        memset(bytes_at(piece.offset_bytes), 0xee,
               PART);                         /* the source is used for something else */
        fake_give(&bed.fake, PREFILL, &send); /* late: sent before the answer came */
        tick();
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
        replied(PREFILL, send.seq, SL_OK, NULL);
        ck_assert_int_ne(*bytes_at(bed.parts[0].offset_bytes + 1), 0xee);
        ck_assert_uint_eq(push_of()->tickets_open, 1);
        bed_close();
    }
END_TEST

START_TEST(the_last_batch_waits_for_the_others)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed pieces[PARTS];
        for (uint32_t i = 0; i < PARTS; i++) {
            pieces[i] = piece_of(i, 0, PART);
        }
        uint64_t first = push_give(pieces, PARTS, false);
        uint64_t last = push_give(NULL, 0, true);
        struct sl_msg extra, msg = arrived(0);
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &extra));
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, first, SL_OK, NULL);
        msg = arrived(1);
        ck_assert_uint_eq(msg.body.push_arrived.pieces.count, 0);
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, last, SL_OK, NULL);
        uint64_t late = push_give(pieces, 1, false);
        replied(PREFILL, late, SL_ERR_STALE, "complete");
        pass(10 * SL_NS_PER_S); /* nobody closes it */
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- opening ---- */

START_TEST(opening_is_idempotent)
    {
        struct sl_msg reply;
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        pass(SL_NS_PER_S);
        uint64_t seq = open_send(1, 10 * SL_NS_PER_S, "", PARTS);
        ck_assert(fake_take_reply(&bed.fake, DECODE, seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.push_open_reply.ttl_ns, 9 * SL_NS_PER_S);
        ck_assert_mem_eq(reply.body.push_open_reply.ticket.at, bed.ticket, bed.ticket_bytes);
        ck_assert_uint_eq(push_of()->tickets_open, 1);
        bed_close();
    }
END_TEST

static const struct {
    sl_err code;
    const char *text;
    uint64_t part_count, arena, offset_bytes, generation;
    const char *from;
} bad_opens[] = {
    {SL_ERR_INVALID, "needs a part", 0, 0, 0, 0, ""},
    {SL_ERR_INVALID, "not within arena", 1, 0, 4 * SL_MIB - 4096, 0, ""},
    {SL_ERR_INVALID, "not within arena", 1, 0, UINT64_MAX - 4096, 0, ""},
    {SL_ERR_BUSY, "arena 7", 1, 7, 0, 0, ""},
    {SL_ERR_INVALID, "arena 64", 1, 64, 0, 0, ""},
    {SL_ERR_STALE, "part 0", 1, 0, 0, 1, ""},
    {SL_ERR_INVALID, "no name of a node", 1, 0, 0, 0, "b/"},
    {SL_ERR_LIMIT, "3 more wanted", 3, 0, 0, 0, ""},
};
START_TEST(bad_opens_are_refused_by_name)
    {
        static const char *const more[] = {"ticket_parts_max", "2", NULL};
        bed_open(NULL, more);
        for (uint32_t i = 0; i < PARTS; i++) {
            bed.parts[i] = part_reserve(PART);
        }
        bed.parts[0].arena = bad_opens[_i].arena;
        bed.parts[0].offset_bytes += bad_opens[_i].offset_bytes;
        bed.parts[0].generation += bad_opens[_i].generation;
        uint64_t seq = open_send(1, SL_NS_PER_S, bad_opens[_i].from, bad_opens[_i].part_count);
        replied(DECODE, seq, bad_opens[_i].code, bad_opens[_i].text);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(tickets_are_bounded)
    {
        static const char *const more[] = {"tickets_max", "2", NULL};
        bed_open(NULL, more);
        bed.parts[0] = part_reserve(PART);
        replied(DECODE, open_send(1, SL_NS_PER_S, "", 1), SL_OK, NULL);
        replied(DECODE, open_send(2, SL_NS_PER_S, "", 1), SL_OK, NULL);
        replied(DECODE, open_send(3, SL_NS_PER_S, "", 1), SL_ERR_LIMIT, "2 tickets");
        pass(SL_NS_PER_S);
        replied(DECODE, open_send(4, SL_NS_PER_S, "", 1), SL_ERR_LIMIT, NULL); /* not yet told */
        struct sl_msg msg;
        while (fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg)) {
            arrived_answer(&msg, SL_OK);
        }
        replied(DECODE, open_send(5, SL_NS_PER_S, "", 1), SL_OK, NULL);
        bed_close();
    }
END_TEST

START_TEST(the_owner_that_cannot_be_told_is_not_waited_for_for_ever)
    {
        bed_open(NULL, NULL);
        ticket_open(SL_NS_PER_S, "");
        snprintf(bed.fake.unreachable, sizeof(bed.fake.unreachable), DECODE);
        pass(SL_NS_PER_S + TR_CALL_NS + SL_NS_PER_S);
        nothing_is_left();
        bed_close();
    }
END_TEST

static const struct {
    const char *text;
    uint64_t part, part_offset_bytes, length_bytes, arena, offset_bytes;
    sl_err code;
} bad_sends[] = {
    {"part 4: the ticket has 4", 4, 0, 10, 0, 0, SL_ERR_INVALID},
    {"not within part 1", 1, PART, 1, 0, 0, SL_ERR_INVALID},
    {"not within part 1", 1, 1, PART, 0, 0, SL_ERR_INVALID},
    {"not within part 1", 1, SL_VALUE_BYTES_MAX, SL_MIB, 0, 0, SL_ERR_INVALID},
    {"not within arena 0", 1, 0, PART, 0, 4 * SL_MIB - 1, SL_ERR_INVALID},
    {"arena 9", 1, 0, PART, 9, 0, SL_ERR_BUSY},
};
START_TEST(bad_sends_are_refused_by_name)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        const struct sl_item_pushed piece = {.part = bad_sends[_i].part,
                                             .part_offset_bytes = bad_sends[_i].part_offset_bytes,
                                             .length_bytes = bad_sends[_i].length_bytes,
                                             .arena = bad_sends[_i].arena,
                                             .offset_bytes = bad_sends[_i].offset_bytes};
        replied(PREFILL, push_give(&piece, 1, false), bad_sends[_i].code, bad_sends[_i].text);
        bed_close();
    }
END_TEST

START_TEST(a_stale_or_false_ticket_gets_nothing)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_ticket good;
        ck_assert_int_eq(sl_ticket_read(bed.ticket, bed.ticket_bytes, &good, NULL), SL_OK);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        for (uint32_t i = 0; i < 5; i++) {
            struct sl_ticket bad = good;
            bad.secret[15] ^= i == 0 ? 1 : 0;
            bad.number += i == 1 ? 1 : 0;
            bad.slot += i == 2 ? 1 : 0;
            bad.slot = i == 3 ? UINT32_MAX : bad.slot;
            bad.incarnation -= i == 4 ? 1 : 0;
            bed.ticket_bytes = sl_ticket_write(&bad, bed.ticket);
            replied(PREFILL, push_give(&piece, 1, false), SL_ERR_STALE,
                    i == 4 ? "earlier life" : "no such ticket");
        }
        bed.ticket[20] ^= 1;
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_INVALID, "ticket: damaged");
        ck_assert(!part_has(0, &piece));
        bed_close();
    }
END_TEST

/* ---- ends, on one node ---- */

START_TEST(a_ticket_ends_at_its_deadline)
    {
        bed_open(NULL, NULL);
        ticket_open(SL_NS_PER_S, "");
        pass(SL_NS_PER_S - 1);
        struct sl_msg msg;
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
        pass(1);
        over(SL_ERR_TIMEOUT, "at its deadline");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_STALE, "no such ticket");
        ck_assert(!part_has(0, &piece));
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(the_setting_bounds_the_life_of_a_ticket)
    {
        static const char *const more[] = {"ticket_ttl_max", "1s", NULL};
        bed_open(NULL, more);
        ticket_open(UINT64_MAX, "");
        pass(SL_NS_PER_S);
        over(SL_ERR_TIMEOUT, "at its deadline");
        bed_close();
    }
END_TEST

START_TEST(closing_ends_what_is_under_way)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        (void)arrived(0);
        replied(DECODE, close_send(), SL_OK, NULL);
        replied(PREFILL, seq, SL_ERR_CANCELLED, "closed");
        replied(DECODE, close_send(), SL_OK, NULL); /* once more, or one that never was */
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(prefill_may_give_up)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        (void)arrived(0);
        struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT};
        abort.body.push_abort = (struct sl_body_push_abort){
            .ticket = ticket_bytes(), .code = SL_ERR_IO, .text = sl_text_of("no more layers")};
        fake_give(&bed.fake, PREFILL, &abort);
        replied(PREFILL, abort.seq, SL_OK, NULL);
        replied(PREFILL, seq, SL_ERR_IO, "no more layers");
        over(SL_ERR_IO, "no more layers");
        nothing_is_left();
        bed_close();
    }
END_TEST

static uint64_t fence_give(uint32_t part)
{
    const struct sl_item_claim claim = {.ref = bed.parts[part].ref,
                                        .generation = bed.parts[part].generation};
    struct sl_msg fence = {.type = SL_MSG_FENCE};
    fence.body.fence.items.at = &claim;
    fence.body.fence.items.count = 1;
    fake_give(&bed.fake, "registrar", &fence);
    return fence.seq;
}

START_TEST(a_claim_that_ends_takes_the_ticket_with_it)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        replied("registrar", fence_give(3), SL_OK, NULL);
        over(SL_ERR_STALE, "claim");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(what_arrives_for_a_claim_that_ended_is_refused)
    {
        bed_open(NULL, NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        sl_index_set_kind(bed.index, (sl_ref)bed.parts[1].ref, SL_RECORD_FREE);
        struct sl_item_pushed piece = piece_of(1, 0, PART);
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_STALE, "claim of part 1");
        ck_assert(!part_has(1, &piece));
        bed_close();
    }
END_TEST

/* ---- decode among peers ---- */

static void peer_greets(const char *name, uint64_t incarnation)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_HELLO};
    msg.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of(name), .incarnation = incarnation, .fabric = sl_text_of("tcp")};
    (void)fake_net_say(&bed.net, name, msg, false);
    tick();
}

static sl_err peer_shows(const char *name, uint64_t first_part, struct sl_msg *reply)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_TICKET};
    msg.body.peer_ticket =
        (struct sl_body_peer_ticket){.ticket = ticket_bytes(), .first_part = first_part};
    uint64_t seq = fake_net_say(&bed.net, name, msg, false);
    tick();
    pass(SL_NS_PER_MS); /* the fabric says that the grants hold */
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_TICKET_REPLY, reply));
    ck_assert_uint_eq(reply->reply_to, seq);
    return reply->code;
}

/* The peer writes the piece (its transporter would) and says so. */
static uint64_t peer_pushes(const char *name, uint64_t push, const struct sl_item_pushed *piece,
                            bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_PUSH};
    struct sl_item_arrived item = {0};
    msg.body.peer_push =
        (struct sl_body_peer_push){.ticket = ticket_bytes(), .push = push, .last = last};
    if (piece != NULL) {
        item = (struct sl_item_arrived){.part = piece->part,
                                        .part_offset_bytes = piece->part_offset_bytes,
                                        .length_bytes = piece->length_bytes,
                                        .digest_low = piece->digest_low,
                                        .digest_high = piece->digest_high};
        msg.body.peer_push.pieces.at = &item;
        msg.body.peer_push.pieces.count = 1;
    }
    uint64_t seq = fake_net_say(&bed.net, name, msg, false);
    tick();
    return seq;
}

static void part_write(const struct sl_item_pushed *piece)
{
    memcpy(bytes_at(bed.parts[piece->part].offset_bytes + piece->part_offset_bytes),
           bytes_at(piece->offset_bytes), piece->length_bytes);
}

static void acknowledged(const char *name, uint64_t seq, sl_err code, const char *text)
{
    struct sl_msg reply;
    tick();
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_PUSH_REPLY, &reply));
    ck_assert_uint_eq(reply.reply_to, seq);
    ck_assert_msg(reply.code == code, "%s %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_msg(text == NULL || strstr(reply.text.at, text) != NULL, "'%s'", reply.text.at);
}

static void decode_bed(void)
{
    bed_open("b@host:1", NULL);
    peer_greets("b", 3);
    peer_greets("c", 3);
    ticket_open(10 * SL_NS_PER_S, "");
}

START_TEST(a_peer_with_a_ticket_writes_and_decode_hears)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 1, &reply), SL_OK);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.part_count, PARTS);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.count, PARTS - 1);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.at[0].part, 1);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.at[0].offset_bytes,
                          bed.parts[1].offset_bytes);
        ck_assert_uint_le(reply.body.peer_ticket_reply.ttl_ns, 10 * SL_NS_PER_S);
        for (uint32_t i = 0; i < PARTS; i++) {
            struct sl_item_pushed piece = piece_of(i, 0, PART);
            part_write(&piece);
            uint64_t seq = peer_pushes("b", 10 + i, &piece, i == PARTS - 1);
            struct sl_msg msg = arrived(i == PARTS - 1 ? 1 : 0);
            ck_assert_str_eq(msg.body.push_arrived.from.at, "b");
            ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH_REPLY), i);
            arrived_answer(&msg, SL_OK);
            acknowledged("b", seq, SL_OK, NULL);
        }
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_repeated_notice_is_answered_again)
    {
        struct sl_msg reply, msg;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        part_write(&piece);
        (void)peer_pushes("b", 10, &piece, false);
        uint64_t seq = peer_pushes("b", 10, &piece, false); /* still on its way */
        msg = arrived(0);
        struct sl_msg extra;
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &extra));
        arrived_answer(&msg, SL_OK);
        acknowledged("b", seq, SL_OK, NULL);
        seq = peer_pushes("b", 10, &piece, false); /* the answer was lost */
        acknowledged("b", seq, SL_OK, NULL);
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &extra));
        bed_close();
    }
END_TEST

START_TEST(bytes_that_are_not_those_of_the_notice_are_never_told)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        part_write(&piece);
        *bytes_at(bed.parts[0].offset_bytes + PART - 1) ^= 1;
        uint64_t seq = peer_pushes("b", 10, &piece, false);
        acknowledged("b", seq, SL_ERR_CORRUPT, "part 0");
        over(SL_ERR_CORRUPT, "part 0");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_ticket_is_for_one_node_alone)
    {
        struct sl_msg reply;
        decode_bed();
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = peer_pushes("b", 9, &piece, false); /* before it showed the ticket */
        acknowledged("b", seq, SL_ERR_PERMISSION, "has not shown");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert_int_eq(peer_shows("c", 0, &reply), SL_ERR_PERMISSION);
        seq = peer_pushes("c", 9, &piece, false);
        acknowledged("c", seq, SL_ERR_PERMISSION, "has not shown");
        struct sl_msg end = {.type = SL_MSG_PEER_TICKET_END};
        end.body.peer_ticket_end =
            (struct sl_body_peer_ticket_end){.ticket = ticket_bytes(), .code = SL_ERR_IO};
        (void)fake_net_say(&bed.net, "c", end, false);
        tick();
        ck_assert(fake_net_last(&bed.net, "c", SL_MSG_PEER_TICKET_END_REPLY, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_PERMISSION, "another node than a");
        ck_assert_uint_eq(push_of()->tickets_open, 1); /* and b may go on */
        part_write(&piece);
        (void)peer_pushes("b", 10, &piece, false);
        (void)arrived(0);
        bed_close();
    }
END_TEST

START_TEST(a_ticket_for_a_named_node_is_no_others)
    {
        struct sl_msg reply;
        bed_open("b@host:1", NULL);
        peer_greets("b", 3);
        peer_greets("c", 3);
        ticket_open(10 * SL_NS_PER_S, "c");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_PERMISSION);
        ck_assert_int_eq(peer_shows("c", 0, &reply), SL_OK);
        bed_close();
    }
END_TEST

START_TEST(a_stale_capability_of_a_peer_gets_nothing)
    {
        struct sl_msg reply;
        decode_bed();
        struct sl_ticket good;
        ck_assert_int_eq(sl_ticket_read(bed.ticket, bed.ticket_bytes, &good, NULL), SL_OK);
        for (uint32_t i = 0; i < 4; i++) {
            struct sl_ticket bad = good;
            bad.secret[0] ^= i == 0 ? 1 : 0;
            bad.number -= i == 1 ? 1 : 0;
            bad.incarnation += i == 2 ? 1 : 0;
            bad.slot = i == 3 ? 4711 : bad.slot;
            bed.ticket_bytes = sl_ticket_write(&bad, bed.ticket);
            ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_STALE);
            ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.count, 0);
        }
        snprintf(good.node, sizeof(good.node), "b");
        bed.ticket_bytes = sl_ticket_write(&good, bed.ticket);
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_PERMISSION);
        bed.ticket_bytes = 1;
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_INVALID);
        bed_close();
    }
END_TEST

static const struct {
    uint64_t part, part_offset_bytes, length_bytes;
} bad_ranges[] = {{PARTS, 0, 1},
                  {4095, 0, 1},
                  {0, PART, 1},
                  {0, 1, PART},
                  {0, SL_VALUE_BYTES_MAX, SL_VALUE_BYTES_MAX}};
START_TEST(a_notice_out_of_range_is_refused)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        const struct sl_item_pushed piece = {
            .part = bad_ranges[_i].part,
            .part_offset_bytes = bad_ranges[_i].part_offset_bytes,
            .length_bytes = bad_ranges[_i].length_bytes,
        };
        uint64_t seq = peer_pushes("b", 10, &piece, false);
        acknowledged("b", seq, SL_ERR_INVALID, "not within part");
        ck_assert_int_eq(peer_shows("b", PARTS, &reply), SL_ERR_INVALID);
        bed_close();
    }
END_TEST

START_TEST(closing_waits_for_the_grants)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct push *push = bed.self->push;
        ck_assert_uint_eq(push->tickets[0].grants_open, PARTS);
        struct sl_msg msg = {.type = SL_MSG_PUSH_CLOSE};
        msg.body.push_close.handover = 1;
        fake_give(&bed.fake, DECODE, &msg);
        ck_assert(unanswered(DECODE, msg.seq)); /* the fabric has not said that they ended */
        uint64_t fence = fence_give(0);
        ck_assert(unanswered("registrar", fence));
        tick();
        replied(DECODE, msg.seq, SL_OK, NULL);
        replied("registrar", fence, SL_OK, NULL);
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

/* Who refuses a fence is killed. */
START_TEST(fences_wait_once_each_and_are_never_refused)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        const struct sl_item_claim claim = {.ref = bed.parts[0].ref,
                                            .generation = bed.parts[0].generation};
        struct sl_msg fence = {.type = SL_MSG_FENCE};
        fence.body.fence.items.at = &claim;
        fence.body.fence.items.count = 1;
        for (uint32_t i = 0; i < 3; i++) { /* the same one */
            fake_give(&bed.fake, "registrar", &fence);
        }
        ck_assert_uint_eq(fences_waiting(), 1);
        uint64_t last = 0;
        for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
            last = fence_give(0);
        }
        ck_assert_uint_eq(fences_waiting(), TR_FENCES_MAX);
        ck_assert(unanswered("registrar", last));
        tick();
        replied("registrar", fence.seq, SL_OK, NULL);
        ck_assert_uint_eq(fences_waiting(), 0);
        struct sl_msg again = {.type = SL_MSG_FENCE, .seq = last};
        again.body.fence = fence.body.fence;
        fake_give(&bed.fake, "registrar", &again);
        replied("registrar", last, SL_OK, NULL);
        bed_close();
    }
END_TEST

START_TEST(a_new_life_of_the_writer_needs_new_grants)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        unsigned char key[SL_FABRIC_BLOB_MAX];
        uint64_t key_bytes = reply.body.peer_ticket_reply.doors.at[0].key.length;
        memcpy(key, reply.body.peer_ticket_reply.doors.at[0].key.at, key_bytes);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        part_write(&piece);
        uint64_t seq = peer_pushes("b", 10, &piece, false);
        struct sl_msg msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        acknowledged("b", seq, SL_OK, NULL);

        peer_greets("b", 4);
        seq = peer_pushes("b", 11, &piece, false);
        acknowledged("b", seq, SL_ERR_PERMISSION, "has not shown");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert(reply.body.peer_ticket_reply.doors.at[0].key.length != key_bytes ||
                  memcmp(reply.body.peer_ticket_reply.doors.at[0].key.at, key, key_bytes) != 0);
        struct sl_item_pushed rest[PARTS];
        for (uint32_t i = 1; i < PARTS; i++) { /* what came before still counts */
            rest[i] = piece_of(i, 0, PART);
            part_write(&rest[i]);
            (void)peer_pushes("b", 20 + i, &rest[i], i == PARTS - 1);
            msg = arrived(i == PARTS - 1 ? 1 : 0);
            arrived_answer(&msg, SL_OK);
        }
        bed_close();
    }
END_TEST

START_TEST(a_writer_that_is_gone_ends_the_ticket_by_name)
    {
        struct sl_msg reply;
        bed_open("", NULL);
        peer_greets("b", 3);
        ticket_open(100 * SL_NS_PER_S, "");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        pass(2 * SL_NS_PER_S);
        struct sl_msg msg;
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
        pass(2 * SL_NS_PER_S);
        over(SL_ERR_PEER_DIED, "node b was last heard of");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_writer_that_gives_up_ends_the_ticket)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct sl_msg end = {.type = SL_MSG_PEER_TICKET_END};
        end.body.peer_ticket_end = (struct sl_body_peer_ticket_end){
            .ticket = ticket_bytes(), .code = SL_ERR_DEVICE, .text = sl_text_of("gpu lost")};
        (void)fake_net_say(&bed.net, "b", end, false);
        tick();
        over(SL_ERR_DEVICE, "node b gave up: gpu lost");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_STALE);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(notices_are_bounded)
    {
        static const char *const more[] = {"pushes_max", "2", NULL};
        struct sl_msg reply;
        bed_open("b@host:1", more);
        peer_greets("b", 3);
        ticket_open(10 * SL_NS_PER_S, "");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        part_write(&piece);
        (void)peer_pushes("b", 1, &piece, false);
        (void)peer_pushes("b", 2, &piece, false);
        uint64_t seq = peer_pushes("b", 3, &piece, false);
        acknowledged("b", seq, SL_ERR_LIMIT, "2 batches");
        bed_close();
    }
END_TEST

START_TEST(what_comes_beside_the_last_batch_is_refused)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct sl_item_pushed pieces[PARTS];
        for (uint32_t i = 0; i < PARTS; i++) {
            pieces[i] = piece_of(i, 0, PART);
            part_write(&pieces[i]);
            (void)peer_pushes("b", 10 + i, &pieces[i], false);
        }
        (void)peer_pushes("b", 20, NULL, true); /* without a wait for their acknowledgements */
        for (uint32_t i = 0; i < PARTS; i++) {
            (void)arrived(0);
        }
        struct sl_msg msg = arrived(1);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH_REPLY), PARTS);
        arrived_answer(&msg, SL_OK);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH_REPLY), PARTS + 1);
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- prefill among peers ---- */

/* A ticket of node b, which answers our greetings. */
static void prefill_bed(const char *const *more)
{
    struct sl_ticket ticket = {.node = "b", .incarnation = 3, .number = 1, .part_count = PARTS};
    struct sl_item_window window = {
        .arena = 0, .length_bytes = SL_MIB, .key = {.at = "no key", .length = 6}};
    struct sl_msg hello, reply = {.type = SL_MSG_PEER_HELLO_REPLY};
    bed_open("b@host:1", more);
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_HELLO, &hello));
    reply.reply_to = hello.seq;
    reply.body.peer_hello_reply = (struct sl_body_peer_hello_reply){
        .node = sl_text_of("b"), .incarnation = 3, .fabric = sl_text_of("tcp")};
    reply.body.peer_hello_reply.windows.at = &window;
    reply.body.peer_hello_reply.windows.count = 1;
    (void)fake_net_say(&bed.net, "b", reply, true);
    tick();
    bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
}

/* Node b answers the newest notice. */
static void notice_answer(sl_err code, const char *text)
{
    struct sl_msg notice, reply = {.type = SL_MSG_PEER_PUSH_REPLY, .code = code};
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PUSH, &notice));
    reply.reply_to = notice.seq;
    reply.text = sl_text_of(text);
    reply.body.peer_push_reply.push = notice.body.peer_push.push;
    (void)fake_net_say(&bed.net, "b", reply, true);
    tick();
}

START_TEST(a_batch_is_done_when_the_other_side_says_so)
    {
        struct sl_msg notice;
        prefill_bed(NULL);
        uint64_t seq = push_give(NULL, 0, true);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PUSH, &notice));
        ck_assert(notice.body.peer_push.last);
        ck_assert_mem_eq(notice.body.peer_push.ticket.at, bed.ticket, bed.ticket_bytes);
        uint64_t number = notice.body.peer_push.push;
        ck_assert(unanswered(PREFILL, seq));
        pass(600 * SL_NS_PER_MS); /* no answer: said again, under the same number */
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH), 2);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_PUSH, &notice));
        ck_assert_uint_eq(notice.body.peer_push.push, number);
        notice_answer(SL_OK, "");
        replied(PREFILL, seq, SL_OK, NULL);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_STALE, "complete");
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_TICKET_END), 0);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* The other side has no room for it: it is asked less and less often, and the answer at the deadline
 * is what it said. */
START_TEST(a_notice_that_finds_no_room_backs_off)
    {
        prefill_bed(NULL);
        fake_set(&bed.fake, "peer_timeout", "1min"); /* b is not missed so soon */
        uint64_t seq = push_give(NULL, 0, true);
        uint32_t said = 0;
        for (uint32_t i = 0; i < 398; i++) {
            uint32_t notices = fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH);
            if (notices > said) {
                notice_answer(SL_ERR_LIMIT, "2 batches are on their way");
            }
            said = notices;
            pass(5 * SL_NS_PER_MS);
        }
        replied(PREFILL, seq, SL_ERR_LIMIT, "no room");
        ck_assert_uint_gt(said, 5);
        ck_assert_uint_lt(said, 40);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Nor is it given up where there is room again. */
START_TEST(a_notice_that_found_no_room_goes_on)
    {
        prefill_bed(NULL);
        uint64_t seq = push_give(NULL, 0, true);
        notice_answer(SL_ERR_LIMIT, "2 batches are on their way");
        ck_assert(unanswered(PREFILL, seq));
        pass(6 * SL_NS_PER_MS);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH), 2);
        notice_answer(SL_OK, "");
        replied(PREFILL, seq, SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

static const struct {
    sl_err code;
    const char *text;
} refusals[] = {{SL_ERR_CORRUPT, "part 7"}, {SL_ERR_STALE, "gone"}, {SL_ERR_PERMISSION, "not you"}};
START_TEST(a_refusal_ends_the_ticket_for_all)
    {
        struct sl_msg end;
        prefill_bed(NULL);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t waiting = push_give(&piece, 1, false); /* for its keys */
        uint64_t seq = push_give(NULL, 0, true);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH), 0); /* after the other */
        struct sl_msg ask, reply = {.type = SL_MSG_PEER_TICKET_REPLY, .code = refusals[_i].code};
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET, &ask));
        reply.reply_to = ask.seq;
        reply.text = sl_text_of(refusals[_i].text);
        (void)fake_net_say(&bed.net, "b", reply, true);
        tick();
        replied(PREFILL, waiting, refusals[_i].code, refusals[_i].text);
        replied(PREFILL, seq, refusals[_i].code, refusals[_i].text);
        replied(PREFILL, push_give(NULL, 0, true), refusals[_i].code, refusals[_i].text);
        (void)end;
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_batch_ends_by_its_deadline_with_the_cause)
    {
        struct sl_msg end;
        prefill_bed(NULL);
        fake_set(&bed.fake, "peer_timeout", "1min"); /* b is not missed so soon */
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        pass(1989 * SL_NS_PER_MS);
        ck_assert(unanswered(PREFILL, seq));
        pass(2 * SL_NS_PER_MS); /* a little before: the answer has to arrive */
        replied(PREFILL, seq, SL_ERR_TIMEOUT, "gave no keys in time");
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET_END, &end));
        ck_assert_uint_eq(end.body.peer_ticket_end.code, SL_ERR_TIMEOUT);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_node_that_is_gone_ends_its_batches_by_name)
    {
        prefill_bed(NULL);
        struct sl_msg send = push_msg(NULL, 0, true);
        send.budget_ns = 100 * SL_NS_PER_S;
        fake_give(&bed.fake, PREFILL, &send);
        pass(2 * SL_NS_PER_S);
        ck_assert(unanswered(PREFILL, send.seq));
        pass(2 * SL_NS_PER_S);
        replied(PREFILL, send.seq, SL_ERR_PEER_DIED, "node b was last heard of");
        nothing_is_left();
        bed_close();
    }
END_TEST

/* It has begun and greets us; our greeting is on its way. */
START_TEST(a_node_that_has_not_answered_yet_is_not_gone)
    {
        struct sl_ticket ticket = {.node = "b", .incarnation = 3, .number = 1, .part_count = PARTS};
        bed_open("b@host:1", NULL);
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        peer_greets("b", 3);
        struct sl_msg send = push_msg(NULL, 0, true);
        send.budget_ns = 100 * SL_NS_PER_S;
        fake_give(&bed.fake, PREFILL, &send);
        pass(SL_NS_PER_S);
        ck_assert(unanswered(PREFILL, send.seq));
        pass(3 * SL_NS_PER_S); /* it never does */
        replied(PREFILL, send.seq, SL_ERR_UNREACHABLE, "never heard of");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_new_life_of_the_node_ends_its_tickets)
    {
        prefill_bed(NULL);
        uint64_t seq = push_give(NULL, 0, true);
        peer_greets("b", 3);
        peer_greets("b", 4);
        replied(PREFILL, seq, SL_ERR_PEER_DIED, "its tickets with it");
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(a_node_that_is_no_peer_is_not_reached)
    {
        bed_open("b@host:1", NULL);
        struct sl_ticket ticket = {.node = "z", .incarnation = 3, .number = 1, .part_count = 1};
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_UNREACHABLE, "node z");
        bed_close();
        bed_open(NULL, NULL); /* no peers at all */
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_UNREACHABLE, "node z");
        bed_close();
    }
END_TEST

START_TEST(giving_up_tells_the_other_side_until_it_heard)
    {
        struct sl_msg end, reply = {.type = SL_MSG_PEER_TICKET_END_REPLY};
        prefill_bed(NULL);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT};
        abort.body.push_abort = (struct sl_body_push_abort){
            .ticket = ticket_bytes(), .code = SL_ERR_IO, .text = sl_text_of("no more layers")};
        fake_give(&bed.fake, PREFILL, &abort);
        replied(PREFILL, seq, SL_ERR_IO, "no more layers");
        replied(PREFILL, abort.seq, SL_OK, NULL);
        pass(600 * SL_NS_PER_MS);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_TICKET_END), 2);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET_END, &end));
        reply.reply_to = end.seq;
        (void)fake_net_say(&bed.net, "b", reply, true);
        pass(SL_NS_PER_S);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_TICKET_END), 2);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(batches_and_targets_are_bounded)
    {
        static const char *const more[] = {"pushes_max", "2", "tickets_max", "1", NULL};
        prefill_bed(more);
        (void)push_give(NULL, 0, true);
        (void)push_give(NULL, 0, true);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_LIMIT, "2 batches");
        notice_answer(SL_ERR_INCOMPLETE, "");
        struct sl_ticket ticket = {.node = "b", .incarnation = 3, .number = 2, .part_count = 1};
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        uint64_t seq = push_give(NULL, 0, true); /* the ended one makes room */
        notice_answer(SL_OK, "");
        replied(PREFILL, seq, SL_OK, NULL);
        bed_close();
    }
END_TEST

/* Node b says of a page of parts that they are there; gives how often it was asked, and for what last. */
static uint32_t page_answer(uint64_t first_part, uint32_t part_count, uint64_t *asked_first)
{
    static uint64_t taken[512];
    struct sl_msg ask, reply = {.type = SL_MSG_PEER_TICKET_REPLY};
    uint64_t count = SL_MIN(part_count - first_part, UINT64_C(512));
    for (uint64_t i = 0; i < count; i++) {
        taken[i] = first_part + i;
    }
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET, &ask));
    reply.reply_to = ask.seq;
    reply.body.peer_ticket_reply.part_count = part_count;
    reply.body.peer_ticket_reply.ttl_ns = SL_NS_PER_S;
    reply.body.peer_ticket_reply.taken = (struct sl_u64s){.at = taken, .count = count};
    (void)fake_net_say(&bed.net, "b", reply, true);
    tick();
    ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET, &ask));
    *asked_first = ask.body.peer_ticket.first_part;
    return fake_net_count(&bed.net, "b", SL_MSG_PEER_TICKET);
}

#define PAGED_PARTS 1200u
START_TEST(keys_are_asked_for_before_they_are_needed)
    {
        uint64_t first_part = 1;
        prefill_bed(NULL);
        struct sl_ticket ticket = {
            .node = "b", .incarnation = 3, .number = 1, .part_count = PAGED_PARTS};
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_TICKET), 1);
        ck_assert_uint_eq(page_answer(0, PAGED_PARTS, &first_part), 2);
        ck_assert_uint_eq(first_part, 512);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PEER_PUSH),
                          1); /* it does not wait */
        ck_assert_uint_eq(page_answer(0, PAGED_PARTS, &first_part),
                          3); /* nothing of what was asked */
        ck_assert_uint_eq(first_part, 1024);
        ck_assert_uint_eq(page_answer(1024, PAGED_PARTS, &first_part),
                          3); /* there is no other page */
        notice_answer(SL_OK, "");
        replied(PREFILL, seq, SL_OK, NULL);
        bed_close();
    }
END_TEST

START_TEST(keys_that_lie_are_refused)
    {
        prefill_bed(NULL);
        struct sl_item_pushed piece = piece_of(0, 0, PART);
        const struct sl_item_door doors[] = {
            {.part = 0, .length_bytes = PART, .key = {.at = "junk", .length = 4}},
            {.part = PARTS, .length_bytes = PART, .key = {.at = "junk", .length = 4}},
        };
        uint64_t seq = push_give(&piece, 1, false);
        struct sl_msg ask, reply = {.type = SL_MSG_PEER_TICKET_REPLY};
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PEER_TICKET, &ask));
        reply.reply_to = ask.seq;
        reply.body.peer_ticket_reply.part_count = PARTS;
        reply.body.peer_ticket_reply.ttl_ns = SL_NS_PER_S;
        reply.body.peer_ticket_reply.doors.at = &doors[_i];
        reply.body.peer_ticket_reply.doors.count = 1;
        (void)fake_net_say(&bed.net, "b", reply, true);
        tick();
        replied(PREFILL, seq, SL_ERR_PROTOCOL, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

static void add_peers(TCase *tests)
{
    tcase_add_test(tests, a_peer_with_a_ticket_writes_and_decode_hears);
    tcase_add_test(tests, a_repeated_notice_is_answered_again);
    tcase_add_test(tests, bytes_that_are_not_those_of_the_notice_are_never_told);
    tcase_add_test(tests, a_ticket_is_for_one_node_alone);
    tcase_add_test(tests, a_ticket_for_a_named_node_is_no_others);
    tcase_add_test(tests, a_stale_capability_of_a_peer_gets_nothing);
    tcase_add_loop_test(tests, a_notice_out_of_range_is_refused, 0, SL_COUNT(bad_ranges));
    tcase_add_test(tests, closing_waits_for_the_grants);
    tcase_add_test(tests, fences_wait_once_each_and_are_never_refused);
    tcase_add_test(tests, a_new_life_of_the_writer_needs_new_grants);
    tcase_add_test(tests, a_writer_that_is_gone_ends_the_ticket_by_name);
    tcase_add_test(tests, a_writer_that_gives_up_ends_the_ticket);
    tcase_add_test(tests, notices_are_bounded);
    tcase_add_test(tests, what_comes_beside_the_last_batch_is_refused);
    tcase_add_test(tests, a_batch_is_done_when_the_other_side_says_so);
    tcase_add_test(tests, a_notice_that_finds_no_room_backs_off);
    tcase_add_test(tests, a_notice_that_found_no_room_goes_on);
    tcase_add_loop_test(tests, a_refusal_ends_the_ticket_for_all, 0, SL_COUNT(refusals));
    tcase_add_test(tests, a_batch_ends_by_its_deadline_with_the_cause);
    tcase_add_test(tests, a_node_that_is_gone_ends_its_batches_by_name);
    tcase_add_test(tests, a_node_that_has_not_answered_yet_is_not_gone);
    tcase_add_test(tests, a_new_life_of_the_node_ends_its_tickets);
    tcase_add_test(tests, a_node_that_is_no_peer_is_not_reached);
    tcase_add_test(tests, giving_up_tells_the_other_side_until_it_heard);
    tcase_add_test(tests, batches_and_targets_are_bounded);
    tcase_add_test(tests, keys_are_asked_for_before_they_are_needed);
    tcase_add_loop_test(tests, keys_that_lie_are_refused, 0, 2);
}

int main(void)
{
    Suite *all = suite_create("push");
    TCase *tests = tcase_create("push");
    tcase_add_test(tests, a_ticket_is_read_as_it_was_written);
    tcase_add_test(tests, a_damaged_ticket_is_none);
    tcase_add_loop_test(tests, ranges_make_a_whole_in_any_order, 0, 50);
    tcase_add_test(tests, ranges_have_a_bound);
    tcase_add_test(tests, blocks_move_within_the_node_layer_by_layer);
    tcase_add_test(tests, large_pieces_are_copied_in_slices);
    tcase_add_test(tests, a_wrong_digest_ends_the_hand_over);
    tcase_add_test(tests, the_end_without_every_byte_is_an_error);
    tcase_add_test(tests, what_decode_refuses_prefill_hears);
    tcase_add_test(tests, a_decode_that_says_nothing_costs_the_deadline);
    tcase_add_test(tests, a_repeated_batch_is_written_once);
    tcase_add_test(tests, the_last_batch_waits_for_the_others);
    tcase_add_test(tests, opening_is_idempotent);
    tcase_add_loop_test(tests, bad_opens_are_refused_by_name, 0, SL_COUNT(bad_opens));
    tcase_add_test(tests, tickets_are_bounded);
    tcase_add_test(tests, the_owner_that_cannot_be_told_is_not_waited_for_for_ever);
    tcase_add_loop_test(tests, bad_sends_are_refused_by_name, 0, SL_COUNT(bad_sends));
    tcase_add_test(tests, a_stale_or_false_ticket_gets_nothing);
    tcase_add_test(tests, a_ticket_ends_at_its_deadline);
    tcase_add_test(tests, the_setting_bounds_the_life_of_a_ticket);
    tcase_add_test(tests, closing_ends_what_is_under_way);
    tcase_add_test(tests, prefill_may_give_up);
    tcase_add_test(tests, a_claim_that_ends_takes_the_ticket_with_it);
    tcase_add_test(tests, what_arrives_for_a_claim_that_ended_is_refused);
    add_peers(tests);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
