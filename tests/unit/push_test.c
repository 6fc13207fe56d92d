/* tests/unit/push_test.c - direct hand-over: tickets, what comes under them, what is sent under
 * those of others, and every end. Parts are blocks of one pool; what pools have of their own is in
 * push_pools_test.c. Real bytes travel in tests/cluster. */
#include "cuda/sl_device.h"
#include "tests/unit/push_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART        (20 * SL_KIB) /* pool 0: a block of it is a part */
#define PARTS       4u
#define BLOCKS      64u              /* the first ones are those of the ticket */
#define LARGE       (5 * SL_MIB + 5) /* pool 1: more than a turn checks */
#define LARGE_AT    (BLOCKS * PART)
#define LARGE_COUNT 2u
#define TICKET_OP   41u

static uint32_t next_block;

static void region_add(uint32_t pool, uint64_t offset_bytes, uint64_t block_bytes, uint64_t count)
{
    bed.regions[bed.region_count++] = (struct sl_item_region){
        .pool = pool,
        .handle_kind = SL_MEMORY_SHARED_FD,
        .pid = (uint64_t)getpid(),
        .fd = (uint64_t)bed.fds[0],
        .offset_bytes = offset_bytes,
        .length_bytes = count * block_bytes,
        .block_stride_bytes = block_bytes,
        .piece_bytes = block_bytes,
        .block_count = count,
    };
}

static void push_open_bed(const char *peers, const char *const *more)
{
    bed_begin(1, LARGE_AT + LARGE_COUNT * LARGE);
    bed.pools[0] = (struct sl_item_pool){.name = sl_text_of("small")};
    bed.pools[1] = (struct sl_item_pool){.name = sl_text_of("large")};
    region_add(0, 0, PART, BLOCKS);
    region_add(1, LARGE_AT, LARGE, LARGE_COUNT);
    next_block = PARTS;
    bed_open(peers, more);
}

/* ---- blocks and bytes ---- */

static unsigned char *block_at(uint32_t block)
{
    return bed.memory[0] + (uint64_t)block * PART;
}

static void bytes_fill(unsigned char *at, uint64_t length_bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < length_bytes; i++) {
        at[i] = (unsigned char)(i * 7 + seed * 13 + (i >> 8));
    }
}

struct piece {
    struct sl_item_arrived told;
    struct sl_item_spot spot; /* where prefill has it */
};

static struct piece piece_in(const unsigned char *at, uint32_t pool, uint32_t block, uint32_t part,
                             struct tr_range range)
{
    struct sl_digest digest = sl_digest_of(at + range.offset_bytes, range.length_bytes);
    return (struct piece){.told = {.part = part,
                                   .part_offset_bytes = range.offset_bytes,
                                   .length_bytes = range.length_bytes,
                                   .digest_low = digest.low,
                                   .digest_high = digest.high},
                          .spot = spot_of(0, pool, block, 0)};
}

/* A block of prefill's with bytes for a piece. */
static struct piece piece_of(uint32_t part, uint64_t part_offset_bytes, uint64_t length_bytes)
{
    uint32_t block = next_block++;
    ck_assert_uint_lt(block, BLOCKS);
    bytes_fill(block_at(block) + part_offset_bytes, length_bytes, part + 1);
    return piece_in(block_at(block), 0, block, part,
                    (struct tr_range){part_offset_bytes, length_bytes});
}

static unsigned char *piece_at(const struct piece *piece)
{
    return block_at((uint32_t)piece->spot.device_block) + piece->told.part_offset_bytes;
}

static bool part_has(uint32_t part, const struct piece *piece)
{
    return memcmp(block_at(part) + piece->told.part_offset_bytes, piece_at(piece),
                  piece->told.length_bytes) == 0;
}

/* ---- requests ---- */

static struct sl_msg open_msg(uint64_t handover, uint64_t ttl_ns, const char *from, uint64_t count)
{
    static uint64_t lengths[PARTS];
    static struct sl_item_spot spots[PARTS];
    struct sl_msg msg = {.type = SL_MSG_PUSH_OPEN, .op_id = TICKET_OP};
    for (uint32_t i = 0; i < PARTS; i++) {
        lengths[i] = PART;
        spots[i] = spot_of(0, 0, i, i);
    }
    msg.body.push_open = (struct sl_body_push_open){
        .handover = handover, .ttl_ns = ttl_ns, .from = sl_text_of(from)};
    msg.body.push_open.lengths = (struct sl_u64s){.at = lengths, .count = count};
    msg.body.push_open.spots.at = spots;
    msg.body.push_open.spots.count = count;
    return msg;
}

static uint64_t open_send(uint64_t handover, uint64_t ttl_ns, const char *from, uint64_t count)
{
    struct sl_msg msg = open_msg(handover, ttl_ns, from, count);
    fake_give(&bed.fake, DECODE, &msg);
    return msg.seq;
}

static void ticket_open(uint64_t ttl_ns, const char *from)
{
    ticket_take(open_send(1, ttl_ns, from, PARTS));
}

static struct sl_msg push_msg(const struct piece *pieces, uint64_t count, bool last)
{
    static struct sl_item_arrived told[PARTS];
    static struct sl_item_spot spots[PARTS];
    struct sl_msg msg = {.type = SL_MSG_PUSH_SEND, .budget_ns = 2 * SL_NS_PER_S};
    for (uint32_t i = 0; i < count; i++) {
        told[i] = pieces[i].told;
        spots[i] = pieces[i].spot;
        spots[i].item = i;
    }
    msg.body.push_send = (struct sl_body_push_send){.ticket = ticket_bytes(), .last = last};
    msg.body.push_send.pieces.at = told;
    msg.body.push_send.pieces.count = count;
    msg.body.push_send.spots.at = spots;
    msg.body.push_send.spots.count = count;
    return msg;
}

static uint64_t push_give(const struct piece *pieces, uint64_t count, bool last)
{
    struct sl_msg msg = push_msg(pieces, count, last);
    fake_give(&bed.fake, PREFILL, &msg);
    tick();
    return msg.seq;
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece halves[2][PARTS];
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
        push_open_bed("", NULL);
        ck_assert_uint_lt(PUSH_SLICE, LARGE);
        unsigned char *from = bed.memory[0] + LARGE_AT, *to = from + LARGE;
        const uint64_t length = LARGE;
        const struct sl_item_spot spot = spot_of(0, 1, 1, 0);
        struct sl_msg open = open_msg(1, SL_NS_PER_S, "", 1);
        open.body.push_open.lengths.at = &length;
        open.body.push_open.spots.at = &spot;
        fake_give(&bed.fake, DECODE, &open);
        ticket_take(open.seq);
        bytes_fill(from, LARGE, 3);
        const struct piece piece = piece_in(from, 1, 0, 0, (struct tr_range){0, LARGE});
        uint64_t seq = push_give(&piece, 1, true);
        struct sl_msg msg = arrived(1);
        ck_assert(memcmp(to, from, LARGE) == 0);
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, seq, SL_OK, NULL);
        bed_close();
    }
END_TEST

START_TEST(a_wrong_digest_ends_the_hand_over)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(2, 0, PART);
        piece.told.digest_low ^= 1;
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece pieces[PARTS];
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(0, 0, PART);
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(0, 0, PART);
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(0, 0, PART);
        struct sl_msg send = push_msg(&piece, 1, false);
        fake_give(&bed.fake, PREFILL, &send);
        fake_give(&bed.fake, PREFILL, &send);
        struct sl_msg msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, send.seq, SL_OK, NULL);
        memset(piece_at(&piece), 0xee, PART); /* the source is used for something else */
        fake_give(&bed.fake, PREFILL, &send); /* late: sent before the answer came */
        tick();
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
        replied(PREFILL, send.seq, SL_OK, NULL);
        ck_assert_int_ne(block_at(0)[1], 0xee);
        ck_assert_uint_eq(push_of()->tickets_open, 1);
        bed_close();
    }
END_TEST

START_TEST(the_last_batch_waits_for_the_others)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece pieces[PARTS];
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
        push_open_bed("", NULL);
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
    uint64_t part_count;
    const char *from;
} bad_opens[] = {
    {SL_ERR_INVALID, "needs a part", 0, ""},
    {SL_ERR_INVALID, "no name of a node", 1, "b/"},
    {SL_ERR_LIMIT, "3 more wanted", 3, ""},
};
START_TEST(bad_opens_are_refused_by_name)
    {
        static const char *const more[] = {"ticket_parts_max", "2", NULL};
        push_open_bed("", more);
        uint64_t seq = open_send(1, SL_NS_PER_S, bad_opens[_i].from, bad_opens[_i].part_count);
        replied(DECODE, seq, bad_opens[_i].code, bad_opens[_i].text);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Without other nodes no pool is registered: the hand-over goes through storage. */
START_TEST(a_node_that_is_alone_gives_no_tickets)
    {
        static const char *const settings[] = {"node_name", "a", NULL};
        struct sl_error why = {0};
        memset(&bed, 0, sizeof(bed));
        fake_open(&bed.fake, &sl_transporter_actor, settings);
        ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
        bed.self = bed.fake.state;
        replied(DECODE, open_send(1, SL_NS_PER_S, "", PARTS), SL_ERR_UNSUPPORTED, NULL);
        replied(DECODE, close_send(), SL_OK, NULL); /* nothing is written under it */
        struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT};
        abort.body.push_abort.ticket = (struct sl_bytes){.at = "t", .length = 1};
        fake_give(&bed.fake, PREFILL, &abort);
        replied(PREFILL, abort.seq, SL_OK, NULL);
        fake_close(&bed.fake);
    }
END_TEST

START_TEST(tickets_are_bounded)
    {
        static const char *const more[] = {"tickets_max", "2", NULL};
        push_open_bed("", more);
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
        push_open_bed("", NULL);
        ticket_open(SL_NS_PER_S, "");
        snprintf(bed.fake.unreachable, sizeof(bed.fake.unreachable), DECODE);
        pass(SL_NS_PER_S + TR_CALL_NS + SL_NS_PER_S);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* The source is a block that is longer than a part of the ticket. */
static const struct {
    const char *text;
    uint64_t part, part_offset_bytes, length_bytes;
} bad_sends[] = {
    {"part 4: the ticket has 4", 4, 0, 10},
    {"not within part 1", 1, PART, 1},
    {"not within part 1", 1, 1, PART},
    {"of a part of", 1, LARGE, 1},
    {"of a part of", 1, SL_VALUE_BYTES_MAX, SL_MIB},
};
START_TEST(bad_sends_are_refused_by_name)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        const struct piece piece = {.told = {.part = bad_sends[_i].part,
                                             .part_offset_bytes = bad_sends[_i].part_offset_bytes,
                                             .length_bytes = bad_sends[_i].length_bytes},
                                    .spot = spot_of(0, 1, 0, 0)};
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_INVALID, bad_sends[_i].text);
        bed_close();
    }
END_TEST

START_TEST(a_stale_or_false_ticket_gets_nothing)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct sl_ticket good;
        ck_assert_int_eq(sl_ticket_read(bed.ticket, bed.ticket_bytes, &good, NULL), SL_OK);
        struct piece piece = piece_of(0, 0, PART);
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
        push_open_bed("", NULL);
        ticket_open(SL_NS_PER_S, "");
        pass(SL_NS_PER_S - 1);
        struct sl_msg msg;
        ck_assert(!fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
        pass(1);
        over(SL_ERR_TIMEOUT, "at its deadline");
        struct piece piece = piece_of(0, 0, PART);
        replied(PREFILL, push_give(&piece, 1, false), SL_ERR_STALE, "no such ticket");
        ck_assert(!part_has(0, &piece));
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(the_setting_bounds_the_life_of_a_ticket)
    {
        static const char *const more[] = {"ticket_ttl_max", "1s", NULL};
        push_open_bed("", more);
        ticket_open(UINT64_MAX, "");
        pass(SL_NS_PER_S);
        over(SL_ERR_TIMEOUT, "at its deadline");
        bed_close();
    }
END_TEST

START_TEST(closing_ends_what_is_under_way)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(0, 0, PART);
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
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        struct piece piece = piece_of(0, 0, PART);
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

static uint64_t fence_give(void)
{
    struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = TICKET_OP};
    fake_give(&bed.fake, DECODE, &fence);
    return fence.seq;
}

/* Of claims, as the registrar asks it: a ticket has none. */
START_TEST(claims_that_end_leave_the_ticket)
    {
        push_open_bed("", NULL);
        ticket_open(10 * SL_NS_PER_S, "");
        const struct sl_item_claim claim = {.ref = 1, .generation = 1};
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = TICKET_OP};
        fence.body.fence.items.at = &claim;
        fence.body.fence.items.count = 1;
        fake_give(&bed.fake, DECODE, &fence);
        replied(DECODE, fence.seq, SL_OK, NULL);
        ck_assert_int_eq(push_of()->tickets[0].state, TICKET_OPEN);
        bed_close();
    }
END_TEST

/* ---- decode among peers ---- */

static uint64_t peer_pushes(const char *name, uint64_t push, const struct piece *piece, bool last)
{
    return peer_names(name, push, piece != NULL ? &piece->told : NULL, last);
}

/* As the peer's transporter would. */
static void part_write(const struct piece *piece)
{
    memcpy(block_at((uint32_t)piece->told.part) + piece->told.part_offset_bytes, piece_at(piece),
           piece->told.length_bytes);
}

static void decode_bed(void)
{
    push_open_bed("b@host:1", NULL);
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
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.at[0].length_bytes, PART);
        ck_assert_uint_le(reply.body.peer_ticket_reply.ttl_ns, 10 * SL_NS_PER_S);
        for (uint32_t i = 0; i < PARTS; i++) {
            struct piece piece = piece_of(i, 0, PART);
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
        struct piece piece = piece_of(0, 0, PART);
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
        struct piece piece = piece_of(0, 0, PART);
        part_write(&piece);
        block_at(0)[PART - 1] ^= 1;
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
        struct piece piece = piece_of(0, 0, PART);
        uint64_t seq = peer_pushes("b", 9, &piece, false); /* before it showed the ticket */
        acknowledged("b", seq, SL_ERR_PERMISSION, "has not shown");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert_int_eq(peer_shows("c", 0, &reply), SL_ERR_PERMISSION);
        seq = peer_pushes("c", 9, &piece, false);
        acknowledged("c", seq, SL_ERR_PERMISSION, "has not shown");
        struct sl_msg end = {.type = SL_MSG_PUSH_ABORT};
        end.body.push_abort =
            (struct sl_body_push_abort){.ticket = ticket_bytes(), .code = SL_ERR_IO};
        (void)fake_net_say(&bed.net, "c", end, false);
        tick();
        ck_assert(fake_net_last(&bed.net, "c", SL_MSG_PUSH_ABORT_REPLY, &reply));
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
        push_open_bed("b@host:1", NULL);
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
        const struct piece piece = {.told = {
                                        .part = bad_ranges[_i].part,
                                        .part_offset_bytes = bad_ranges[_i].part_offset_bytes,
                                        .length_bytes = bad_ranges[_i].length_bytes,
                                    }};
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
        uint64_t fence = fence_give();
        ck_assert(unanswered(DECODE, fence));
        tick();
        replied(DECODE, msg.seq, SL_OK, NULL);
        replied(DECODE, fence, SL_OK, NULL);
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
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = TICKET_OP};
        for (uint32_t i = 0; i < 3; i++) { /* the same one */
            fake_give(&bed.fake, DECODE, &fence);
        }
        ck_assert_uint_eq(fences_waiting(), 1);
        uint64_t last = 0;
        for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
            last = fence_give();
        }
        ck_assert_uint_eq(fences_waiting(), TR_FENCES_MAX);
        ck_assert(unanswered(DECODE, last));
        tick();
        replied(DECODE, fence.seq, SL_OK, NULL);
        ck_assert_uint_eq(fences_waiting(), 0);
        struct sl_msg again = {.type = SL_MSG_FENCE, .op_id = TICKET_OP, .seq = last};
        fake_give(&bed.fake, DECODE, &again);
        replied(DECODE, last, SL_OK, NULL);
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
        struct piece piece = piece_of(0, 0, PART);
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
        struct piece rest[PARTS];
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
        push_open_bed("", NULL);
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
        struct sl_msg end = {.type = SL_MSG_PUSH_ABORT};
        end.body.push_abort = (struct sl_body_push_abort){
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
        push_open_bed("b@host:1", more);
        peer_greets("b", 3);
        ticket_open(10 * SL_NS_PER_S, "");
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        struct piece piece = piece_of(0, 0, PART);
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
        struct piece pieces[PARTS];
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
    push_open_bed("b@host:1", more);
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
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PUSH_ABORT), 0);
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
        struct piece piece = piece_of(0, 0, PART);
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
        struct piece piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        pass(1989 * SL_NS_PER_MS);
        ck_assert(unanswered(PREFILL, seq));
        pass(2 * SL_NS_PER_MS); /* a little before: the answer has to arrive */
        replied(PREFILL, seq, SL_ERR_TIMEOUT, "gave no keys in time");
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PUSH_ABORT, &end));
        ck_assert_uint_eq(end.body.push_abort.code, SL_ERR_TIMEOUT);
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
        push_open_bed("b@host:1", NULL);
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
        push_open_bed("b@host:1", NULL);
        struct sl_ticket ticket = {.node = "z", .incarnation = 3, .number = 1, .part_count = 1};
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_UNREACHABLE, "node z");
        bed_close();
        push_open_bed("", NULL); /* no peers at all */
        bed.ticket_bytes = sl_ticket_write(&ticket, bed.ticket);
        replied(PREFILL, push_give(NULL, 0, true), SL_ERR_UNREACHABLE, "node z");
        bed_close();
    }
END_TEST

START_TEST(giving_up_tells_the_other_side_until_it_heard)
    {
        struct sl_msg end, reply = {.type = SL_MSG_PUSH_ABORT_REPLY};
        prefill_bed(NULL);
        struct piece piece = piece_of(0, 0, PART);
        uint64_t seq = push_give(&piece, 1, false);
        struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT};
        abort.body.push_abort = (struct sl_body_push_abort){
            .ticket = ticket_bytes(), .code = SL_ERR_IO, .text = sl_text_of("no more layers")};
        fake_give(&bed.fake, PREFILL, &abort);
        replied(PREFILL, seq, SL_ERR_IO, "no more layers");
        replied(PREFILL, abort.seq, SL_OK, NULL);
        pass(600 * SL_NS_PER_MS);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PUSH_ABORT), 2);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PUSH_ABORT, &end));
        reply.reply_to = end.seq;
        peer_greets("c", 3);
        (void)fake_net_say(&bed.net, "c", reply, true); /* not for it to say */
        pass(600 * SL_NS_PER_MS);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PUSH_ABORT), 3);
        ck_assert(fake_net_last(&bed.net, "b", SL_MSG_PUSH_ABORT, &end));
        reply.reply_to = end.seq;
        (void)fake_net_say(&bed.net, "b", reply, true);
        pass(SL_NS_PER_S);
        ck_assert_uint_eq(fake_net_count(&bed.net, "b", SL_MSG_PUSH_ABORT), 3);
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
        struct piece piece = piece_of(0, 0, PART);
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
        struct piece piece = piece_of(0, 0, PART);
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
    tcase_add_test(tests, claims_that_end_leave_the_ticket);
    tcase_add_test(tests, a_node_that_is_alone_gives_no_tickets);
    add_peers(tests);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
