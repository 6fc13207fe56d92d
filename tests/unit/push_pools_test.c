/* tests/unit/push_pools_test.c - direct hand-over straight from and into engines' pools: what is
 * written where, what is refused, and that nothing is written or read after an end. The registrar, the
 * engine and the network are played by the test; bytes of another node are written by it, too. */
#include "cuda/sl_device.h"
#include "runtime/fabric/core/internal.h"
#include "tests/unit/push_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS   2u
#define LAYERS  3u
#define BLOCKS  12u
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
#define TO      6u
#define PARTS   3u /* of a ticket: the shared one, and one of each rank */

static struct sl_item_spot spots[RANKS + RANKS]; /* of the ticket */
static uint64_t lengths[PARTS];

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

static void pools_open(const char *peers)
{
    static const char *const more[] = {"mr_bytes_max", "32768", NULL};
    bed_begin(RANKS, MEMORY);
    bed.region_bytes_max = 32768;
    bed.pools[0] = (struct sl_item_pool){.name = sl_text_of("latent"), .part_count = 1};
    bed.pools[1] = (struct sl_item_pool){.name = sl_text_of("heads")};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            region_put(rank, 0, layer);
        }
        region_put(rank, 1, 0);
    }
    bed_open(peers, more);
}

/* ---- parts in memory ---- */

/* Byte i of a part: where the registration says that it lies. */
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

static void part_fill(uint32_t rank, uint32_t pool, uint32_t block, uint32_t seed)
{
    for (uint64_t i = 0; i < part_bytes(pool); i++) {
        *byte_at(rank, pool, block, i) = (unsigned char)(i * 7 + seed * 13 + (i >> 8));
    }
}

static bool part_is(uint32_t rank, uint32_t pool, uint32_t block, uint32_t seed)
{
    for (uint64_t i = 0; i < part_bytes(pool); i++) {
        if (*byte_at(rank, pool, block, i) != (unsigned char)(i * 7 + seed * 13 + (i >> 8))) {
            return false;
        }
    }
    return true;
}

static void everything_is(unsigned char byte)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        memset(bed.memory[rank], byte, MEMORY);
    }
}

/* Bytes that are neither this one nor in a block of these. */
static uint64_t strayed(unsigned char byte, uint32_t first, uint32_t end)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        unsigned char *copy = malloc(MEMORY);
        memcpy(copy, bed.memory[rank], MEMORY);
        for (uint32_t block = first; block < end; block++) {
            for (uint32_t pool = 0; pool < 2; pool++) {
                for (uint64_t i = 0; i < part_bytes(pool); i++) {
                    copy[byte_at(rank, pool, block, i) - bed.memory[rank]] = byte;
                }
            }
        }
        for (uint64_t i = 0; i < MEMORY; i++) {
            count += copy[i] != byte ? 1 : 0;
        }
        free(copy);
    }
    return count;
}

static struct sl_digest part_digest(uint32_t rank, uint32_t pool, uint32_t block, uint64_t from,
                                    uint64_t length_bytes)
{
    unsigned char bytes[SHARED];
    for (uint64_t i = 0; i < length_bytes; i++) {
        bytes[i] = *byte_at(rank, pool, block, from + i);
    }
    return sl_digest_of(bytes, length_bytes);
}

/* ---- requests ---- */

static struct sl_msg open_msg(uint64_t handover)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_OPEN, .op_id = 40 + handover};
    lengths[0] = SHARED;
    lengths[1] = lengths[2] = LONE;
    spots[0] = spot_of(0, 0, TO, 0); /* both ranks have it */
    spots[1] = spot_of(1, 0, TO, 0);
    spots[2] = spot_of(0, 1, TO, 1);
    spots[3] = spot_of(1, 1, TO, 2);
    msg.body.push_open =
        (struct sl_body_push_open){.handover = handover, .ttl_ns = 10 * SL_NS_PER_S};
    msg.body.push_open.lengths = (struct sl_u64s){.at = lengths, .count = PARTS};
    msg.body.push_open.spots.at = spots;
    msg.body.push_open.spots.count = SL_COUNT(spots);
    return msg;
}

static void ticket_open(void)
{
    struct sl_msg msg = open_msg(1);
    fake_give(&bed.fake, DECODE, &msg);
    ticket_take(msg.seq);
}

/* Of parts of the ticket, from prefill's block; which rank has it there. */
static struct batch {
    struct sl_item_arrived pieces[PARTS];
    struct sl_item_spot spots[PARTS];
    uint32_t count;
} batch;

static void batch_add(uint64_t part, uint32_t rank, uint64_t from, uint64_t length_bytes)
{
    uint32_t pool = part == 0 ? 0 : 1, i = batch.count++;
    struct sl_digest digest = part_digest(rank, pool, FROM, from, length_bytes);
    batch.pieces[i] = (struct sl_item_arrived){.part = part,
                                               .part_offset_bytes = from,
                                               .length_bytes = length_bytes,
                                               .digest_low = digest.low,
                                               .digest_high = digest.high};
    batch.spots[i] = spot_of(rank, pool, FROM, i);
}

static struct sl_msg push_msg(bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_SEND, .op_id = 90, .budget_ns = 2 * SL_NS_PER_S};
    msg.body.push_send = (struct sl_body_push_send){.ticket = ticket_bytes(), .last = last};
    msg.body.push_send.pieces.at = batch.pieces;
    msg.body.push_send.pieces.count = batch.count;
    msg.body.push_send.spots.at = batch.spots;
    msg.body.push_send.spots.count = batch.count;
    return msg;
}

static uint64_t push_give(bool last)
{
    struct sl_msg msg = push_msg(last);
    fake_give(&bed.fake, PREFILL, &msg);
    batch.count = 0;
    tick();
    return msg.seq;
}

/* Prefill's block, and nothing else, has what is to be handed over. */
static void prefill_computes(void)
{
    everything_is(0);
    part_fill(0, 0, FROM, 1);
    part_fill(0, 1, FROM, 2);
    part_fill(1, 1, FROM, 3);
}

static bool decode_has_all(void)
{
    return part_is(0, 0, TO, 1) && part_is(1, 0, TO, 1) && part_is(0, 1, TO, 2) &&
           part_is(1, 1, TO, 3);
}

/* ---- one node ---- */

START_TEST(blocks_go_from_pool_to_pool_in_one_copy)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        batch_add(1, 0, 0, LONE);
        batch_add(2, 1, 0, LONE);
        uint64_t seq = push_give(true);

        struct sl_msg msg = arrived(1);

        ck_assert(decode_has_all());
        ck_assert(unanswered(PREFILL, seq));
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, seq, SL_OK, NULL);
        /* Each part once, and the shared one once more for the other rank. */
        ck_assert_uint_eq(metric("copied_bytes"), 2 * SHARED + 2 * LONE);
        ck_assert_uint_eq(metric("arrived_bytes"), SHARED + 2 * LONE);
        ck_assert_uint_eq(metric("pushed_bytes"), SHARED + 2 * LONE);
        ck_assert_uint_eq(metric("pool_tickets"), 1);
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

START_TEST(nothing_beside_the_blocks_is_touched)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        batch_add(1, 0, 0, LONE);
        batch_add(2, 1, 0, LONE);
        (void)push_give(true);
        (void)arrived(1);
        for (uint32_t rank = 0; rank < RANKS; rank++) { /* what was handed over is taken away */
            for (uint32_t pool = 0; pool < 2; pool++) {
                for (uint64_t i = 0; i < part_bytes(pool); i++) {
                    *byte_at(rank, pool, FROM, i) = 0;
                }
            }
        }
        ck_assert_uint_eq(strayed(0, TO, TO + 1), 0);
        bed_close();
    }
END_TEST

START_TEST(layers_arrive_one_after_the_other)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            batch_add(0, 0, layer * PIECE, PIECE);
            if (layer == LAYERS - 1) {
                batch_add(1, 0, 0, LONE);
                batch_add(2, 1, 0, LONE);
            }
            uint64_t seq = push_give(layer == LAYERS - 1);
            struct sl_msg msg = arrived(layer == LAYERS - 1 ? 1 : 0);
            for (uint64_t i = 0; i < SHARED; i++) { /* these layers are there, the others are not */
                bool there = i < (layer + 1) * PIECE;
                ck_assert_uint_eq(*byte_at(1, 0, TO, i), there ? *byte_at(0, 0, FROM, i) : 0);
            }
            arrived_answer(&msg, SL_OK);
            replied(PREFILL, seq, SL_OK, NULL);
        }
        ck_assert(decode_has_all());
        bed_close();
    }
END_TEST

START_TEST(a_wrong_digest_ends_the_ticket_and_no_other_rank_gets_it)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        batch.pieces[0].digest_low ^= 1;
        uint64_t seq = push_give(false);
        over(SL_ERR_CORRUPT, "do not match their digest");
        replied(PREFILL, seq, SL_ERR_CORRUPT, NULL);
        for (uint64_t i = 0; i < SHARED; i++) {
            ck_assert_uint_eq(*byte_at(1, 0, TO, i), 0);
        }
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Whatever the sender does: an engine computes with it already. */
START_TEST(what_was_acknowledged_is_never_written_again)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, PIECE);
        uint64_t seq = push_give(false);
        struct sl_msg msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        replied(PREFILL, seq, SL_OK, NULL);
        unsigned char before = *byte_at(0, 0, TO, 17);

        *byte_at(0, 0, FROM, 17) ^= 0x55; /* other bytes under their right digest */
        batch_add(0, 0, _i == 0 ? 0 : PIECE / 2, PIECE);
        seq = push_give(false);
        tick();

        ck_assert_uint_eq(*byte_at(0, 0, TO, 17), before);
        ck_assert_uint_eq(*byte_at(1, 0, TO, 17), before);
        replied(PREFILL, seq, _i == 0 ? SL_ERR_CORRUPT : SL_ERR_INVALID,
                _i == 0 ? "digest" : "some is here already");
        bed_close();
    }
END_TEST

/* ---- what is refused ---- */

static const struct {
    sl_err code;
    const char *text;
    uint64_t spot; /* that is changed, and how */
    struct sl_item_spot with;
    uint64_t first_length, spot_count;
} bad_opens[] = {
    {SL_ERR_NOT_FOUND, "engine 8", 2, {8, 0, 1, 0, TO, 1}, SHARED, 4},
    {SL_ERR_INVALID, "has no part", 2, {ENGINE, 5, 1, 0, TO, 1}, SHARED, 4},
    {SL_ERR_INVALID, "has no part", 0, {ENGINE, 0, 0, 3, TO, 0}, SHARED, 4},
    {SL_ERR_INVALID, "block 12 of 12", 2, {ENGINE, 0, 1, 0, BLOCKS, 1}, SHARED, 4},
    {SL_ERR_INVALID, "not 17999", 9, {0}, SHARED - 1, 4},
    {SL_ERR_INVALID, "part 0 of 0 bytes", 9, {0}, 0, 4},
    {SL_ERR_INVALID, "none for part 1", 2, {ENGINE, 0, 1, 0, TO, 2}, SHARED, 4},
    {SL_ERR_INVALID, "none for part 2", 9, {0}, SHARED, 3},
    {SL_ERR_INVALID, "1 of 4 are for no part", 3, {ENGINE, 1, 1, 0, TO, 1}, SHARED, 4},
    {SL_ERR_INVALID, "none for part 0", 9, {0}, SHARED, 0},
};
START_TEST(bad_opens_are_refused_by_name)
    {
        pools_open("");
        struct sl_msg msg = open_msg(1);
        lengths[0] = bad_opens[_i].first_length;
        msg.body.push_open.spots.count = bad_opens[_i].spot_count;
        if (bad_opens[_i].spot < SL_COUNT(spots)) {
            spots[bad_opens[_i].spot] = bad_opens[_i].with;
        }
        if (strstr(bad_opens[_i].text, "for no part") != NULL) {
            msg.body.push_open.lengths.count = 2;
            spots[3].item = 2;
        }
        fake_give(&bed.fake, DECODE, &msg);
        replied(DECODE, msg.seq, bad_opens[_i].code, bad_opens[_i].text);
        nothing_is_left();
        bed_close();
    }
END_TEST

enum bad_send { NO_ENGINE, NO_BLOCK, TOO_LONG, NO_PART, MISNAMED, FEWER, BAD_SENDS };
static const struct {
    sl_err code;
    const char *text;
} bad_sends[BAD_SENDS] = {
    [NO_ENGINE] = {SL_ERR_NOT_FOUND, "engine 8"},
    [NO_BLOCK] = {SL_ERR_INVALID, "block 12 of 12"},
    [TOO_LONG] = {SL_ERR_INVALID, "of a part of 18000"},
    [NO_PART] = {SL_ERR_INVALID, "part 3: the ticket has 3"},
    [MISNAMED] = {SL_ERR_INVALID, "spots[0].item"},
    [FEWER] = {SL_ERR_INVALID, "spots: 0 of 1 pieces"},
};
START_TEST(bad_sends_are_refused_by_name_and_the_ticket_stays)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        struct sl_msg msg = push_msg(false);
        batch.spots[0].engine_id += _i == NO_ENGINE ? 1 : 0;
        batch.spots[0].device_block = _i == NO_BLOCK ? BLOCKS : FROM;
        batch.pieces[0].part_offset_bytes += _i == TOO_LONG ? 1 : 0;
        batch.pieces[0].part = _i == NO_PART ? PARTS : 0;
        batch.spots[0].item = _i == MISNAMED ? 1 : 0;
        msg.body.push_send.spots.count -= _i == FEWER ? 1 : 0;
        fake_give(&bed.fake, PREFILL, &msg);
        replied(PREFILL, msg.seq, bad_sends[_i].code, bad_sends[_i].text);
        ck_assert_int_eq(push_of()->tickets[0].state, TICKET_OPEN);
        bed_close();
    }
END_TEST

/* ---- fences ---- */

static uint64_t fence_give(const char *sender, uint64_t op_id)
{
    struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = op_id};
    fake_give(&bed.fake, sender, &fence);
    tick();
    return fence.seq;
}

static const struct {
    const char *sender;
    uint64_t op_id;
    bool ends;
} fences[] = {
    {DECODE, 41, true},          /* of the op */
    {DECODE, 0, true},           /* a coordinator that starts */
    {DECODE, 42, false},         /* of another op */
    {"coordinator.b", 0, false}, /* of somebody else */
    {"coordinator.b", 41, false},
};
START_TEST(a_fence_ends_what_its_sender_asked_for)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        replied(fences[_i].sender, fence_give(fences[_i].sender, fences[_i].op_id), SL_OK, NULL);
        batch_add(0, 0, 0, SHARED);
        uint64_t seq = push_give(false);
        if (fences[_i].ends) {
            over(SL_ERR_STALE, "the op of the ticket was fenced");
            replied(PREFILL, seq, SL_ERR_STALE, NULL);
            ck_assert(!part_is(0, 0, TO, 1));
            nothing_is_left();
        } else {
            (void)arrived(0);
        }
        bed_close();
    }
END_TEST

START_TEST(what_comes_behind_its_fence_is_not_begun)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        struct sl_msg open = open_msg(2), again = open_msg(3);
        batch_add(0, 0, 0, SHARED);
        struct sl_msg send = push_msg(false);
        open.seq = 1000; /* asked for before the fence, and late */
        send.seq = 1001;
        send.op_id = 90;
        fake_give(&bed.fake, DECODE, &open);
        replied(DECODE, open.seq, SL_OK, NULL);
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = open.op_id};
        fence.seq = open.seq + 10;
        fake_give(&bed.fake, DECODE, &fence);
        tick();
        replied(DECODE, fence.seq, SL_OK, NULL);
        open.seq++;
        open.body.push_open.handover = 5;
        fake_give(&bed.fake, DECODE, &open);
        replied(DECODE, open.seq, SL_ERR_CANCELLED, "fenced");
        again.seq = fence.seq + 1; /* another op */
        fake_give(&bed.fake, DECODE, &again);
        replied(DECODE, again.seq, SL_OK, NULL);
        struct sl_msg other = {.type = SL_MSG_FENCE, .op_id = send.op_id};
        other.seq = send.seq + 1;
        fake_give(&bed.fake, PREFILL, &other);
        replied(PREFILL, other.seq, SL_OK, NULL);
        fake_give(&bed.fake, PREFILL, &send);
        replied(PREFILL, send.seq, SL_ERR_CANCELLED, "fenced");
        bed_close();
    }
END_TEST

START_TEST(a_fence_ends_a_batch_that_is_read)
    {
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        uint64_t seq = push_give(false);
        struct sl_msg msg = arrived(0); /* copied, and not acknowledged */
        replied(PREFILL, fence_give(PREFILL, 90), SL_OK, NULL);
        replied(PREFILL, seq, SL_ERR_CANCELLED, "fenced");
        arrived_answer(&msg, SL_OK);
        over(SL_ERR_CANCELLED, "fenced");
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- the engine ends ---- */

START_TEST(an_engine_that_ends_takes_its_tickets_and_batches_along)
    {
        struct sl_msg over_msg = {.type = SL_MSG_ENGINE_OVER};
        pools_open("");
        prefill_computes();
        ticket_open();
        batch_add(0, 0, 0, SHARED);
        uint64_t seq = push_give(false);
        (void)arrived(0);
        bed.listed = false;
        over_msg.body.engine_over.engine_id = ENGINE;
        fake_give(&bed.fake, "registrar", &over_msg);
        for (uint32_t i = 0; i < 50; i++) {
            tick();
        }
        replied("registrar", over_msg.seq, SL_OK, NULL);
        replied(PREFILL, seq, SL_ERR_STALE, "has ended");
        over(SL_ERR_STALE, "the engine of its blocks has ended");
        nothing_is_left();
        struct sl_msg open = open_msg(2);
        fake_give(&bed.fake, DECODE, &open);
        replied(DECODE, open.seq, SL_ERR_NOT_FOUND, NULL);
        bed_close();
    }
END_TEST

/* ---- decode among peers ---- */

/* The peer has written the part whose bytes lie in prefill's block here, and says so. */
static uint64_t peer_pushes(uint64_t push, uint64_t part, uint32_t rank, bool writes, bool last)
{
    uint32_t pool = part == 0 ? 0 : 1;
    batch.count = 0;
    batch_add(part, rank, 0, part_bytes(pool));
    for (uint64_t i = 0; writes && i < part_bytes(pool); i++) {
        *byte_at(rank, pool, TO, i) = *byte_at(rank, pool, FROM, i);
    }
    return peer_names("b", push, batch.pieces, last);
}

static void decode_bed(void)
{
    pools_open("b@host:1");
    peer_greets("b", 3);
    prefill_computes();
    ticket_open();
}

START_TEST(a_peer_gets_one_key_a_part_and_the_other_rank_a_copy)
    {
        struct sl_msg reply;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.count, PARTS);
        ck_assert_uint_eq(push_of()->tickets[0].grants_open, PARTS);
        for (uint32_t part = 0; part < PARTS; part++) { /* a key's range begins at its part */
            const struct sl_item_door *door = &reply.body.peer_ticket_reply.doors.at[part];
            ck_assert_uint_eq(door->length_bytes, lengths[part]);
        }
        for (uint32_t part = 0; part < PARTS; part++) {
            uint64_t seq = peer_pushes(10 + part, part, part == 2 ? 1 : 0, true, part == 2);
            struct sl_msg msg = arrived(part == 2 ? 1 : 0);
            arrived_answer(&msg, SL_OK);
            acknowledged("b", seq, SL_OK, NULL);
            ck_assert_uint_eq(push_of()->tickets[0].grants_open, PARTS - 1 - part);
        }
        ck_assert(decode_has_all());
        ck_assert_uint_eq(metric("copied_bytes"), SHARED);
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* Of the first part, as the fabric asks. */
static bool may_write(uint64_t offset_bytes, uint64_t length_bytes)
{
    return tr_push_may_write(bed.fake.state, UINT64_C(1) << 32, offset_bytes, length_bytes);
}

/* Layer by layer: what was named is not written again, although the rest of its part may be. */
START_TEST(a_layer_that_was_named_is_not_written_again)
    {
        struct sl_msg reply, msg;
        decode_bed();
        uint64_t whole = part_bytes(0), half = whole / 2;
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert(may_write(0, whole));
        for (uint64_t i = 0; i < half; i++) {
            *byte_at(0, 0, TO, i) = *byte_at(0, 0, FROM, i);
        }
        batch.count = 0;
        batch_add(0, 0, 0, half);
        uint64_t seq = peer_names("b", 10, batch.pieces, false);
        ck_assert(!may_write(0, half));
        ck_assert(!may_write(half - 1, 2));
        ck_assert(may_write(half, whole - half));
        msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        acknowledged("b", seq, SL_OK, NULL);

        ck_assert(!may_write(0, 1));
        ck_assert(may_write(half, whole - half));
        peer_greets("b", 4); /* a new life does not know what was named: it may write anew */
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert(may_write(0, whole));
        ck_assert(!tr_push_may_write(bed.fake.state, UINT64_C(1) << 32 | PARTS, 0, 1));
        ck_assert(!tr_push_may_write(bed.fake.state, UINT64_C(2) << 32, 0, 1));
        ck_assert(!tr_push_may_write(bed.fake.state, 0, 0, 1));
        bed_close();
    }
END_TEST

/* Whatever the fabric asks: the right to write a part ends before its last bytes are checked. */
START_TEST(a_part_that_was_named_whole_is_checked_when_nobody_may_write_it)
    {
        struct sl_msg reply, msg;
        decode_bed();
        uint64_t whole = part_bytes(0), half = whole / 2;
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        for (uint64_t i = 0; i < whole; i++) {
            *byte_at(0, 0, TO, i) = *byte_at(0, 0, FROM, i);
        }
        for (uint64_t at = 0; at < whole; at += half) {
            batch.count = 0;
            batch_add(0, 0, at, half);
            uint64_t seq = peer_names("b", 10 + at, batch.pieces, false);
            msg = arrived(0); /* decode hears of it when its bytes were right */
            ck_assert_uint_eq(push_of()->tickets[0].grants_open, at == 0 ? PARTS : PARTS - 1);
            arrived_answer(&msg, SL_OK);
            acknowledged("b", seq, SL_OK, NULL);
        }
        bed_close();
    }
END_TEST

/* A new life of the writer, which does not know what the one before has done. */
START_TEST(a_part_that_was_acknowledged_has_no_key_any_more)
    {
        struct sl_msg reply, msg;
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        uint64_t seq = peer_pushes(10, 0, 0, true, false);
        msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        acknowledged("b", seq, SL_OK, NULL);
        peer_greets("b", 4);
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.count, PARTS - 1);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.taken.count, 1);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.taken.at[0], 0);
        seq =
            peer_pushes(20, 0, 0, false, false); /* it says so all the same: the bytes are right */
        msg = arrived(0);
        arrived_answer(&msg, SL_OK);
        acknowledged("b", seq, SL_OK, NULL);
        ck_assert_uint_eq(metric("arrived_bytes"), SHARED);
        bed_close();
    }
END_TEST

static const struct {
    bool close;
    uint64_t op_id;
} ends[] = {{true, 0}, {false, 41}, {false, 0}};
START_TEST(an_end_waits_for_the_grants)
    {
        struct sl_msg reply, msg = {.type = ends[_i].close ? SL_MSG_PUSH_CLOSE : SL_MSG_FENCE,
                                    .op_id = ends[_i].op_id};
        decode_bed();
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        msg.body.push_close.handover = ends[_i].close ? 1 : 0;
        fake_give(&bed.fake, DECODE, &msg);
        ck_assert(unanswered(DECODE, msg.seq)); /* the fabric has not said that they ended */
        tick();
        replied(DECODE, msg.seq, SL_OK, NULL);
        if (!ends[_i].close) {
            over(SL_ERR_STALE, "fenced");
        }
        nothing_is_left();
        bed_close();
    }
END_TEST

/* ---- grants that come to nothing ---- */

static const struct fabric_backend *real_ops;
static struct fabric_backend failing_ops;
static struct sl_error failing_why;
static uint32_t grants_met, failing_from; /* this grant and those after it fail */

/* Later, as by a NIC that runs out of windows half-way. */
static sl_err grant_fails_later(struct sl_fabric *fabric, struct fabric_grant *grant, void *key,
                                uint32_t *key_bytes, struct sl_error *why)
{
    sl_err err = real_ops->grant_add(fabric, grant, key, key_bytes, why);
    if (err == SL_OK && grants_met++ >= failing_from) {
        *key_bytes = 0;
        grant->why = &failing_why;
    }
    return err;
}

static sl_err grant_is_refused(struct sl_fabric *fabric, struct fabric_grant *grant, void *key,
                               uint32_t *key_bytes, struct sl_error *why)
{
    return grants_met++ >= failing_from ? sl_fail(why, SL_ERR_LIMIT, "all windows are taken")
                                        : real_ops->grant_add(fabric, grant, key, key_bytes, why);
}

static void grants_fail(uint32_t from, sl_err (*add)(struct sl_fabric *, struct fabric_grant *,
                                                     void *, uint32_t *, struct sl_error *))
{
    real_ops = bed.self->fabric->ops;
    failing_ops = *real_ops;
    failing_ops.grant_add = add;
    bed.self->fabric->ops = &failing_ops;
    grants_met = 0;
    failing_from = from;
}

/* The peer hears the reason, and its next question is asked of the fabric anew. */
START_TEST(a_grant_that_fails_later_is_answered_by_its_reason)
    {
        struct sl_msg reply;
        decode_bed();
        (void)sl_fail(&failing_why, SL_ERR_OS, "the nic has no window left");
        grants_fail((uint32_t)_i, grant_fails_later);
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_OS);
        ck_assert_str_eq(reply.text.at, "the nic has no window left");
        pass(SL_NS_PER_MS);
        bed.self->fabric->ops = real_ops;
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_OK);
        ck_assert_uint_eq(reply.body.peer_ticket_reply.doors.count, PARTS);
        ck_assert_uint_eq(push_of()->tickets[0].grants_open, PARTS);
        replied(DECODE, close_send(), SL_OK, NULL);
        nothing_is_left();
        bed_close();
    }
END_TEST

/* What the first parts took is all there is: no wait gives the rest. The owner takes another way. */
START_TEST(a_page_that_the_fabric_cannot_grant_as_a_whole_ends_its_ticket)
    {
        struct sl_msg reply;
        decode_bed();
        grants_fail((uint32_t)_i, grant_is_refused);
        ck_assert_int_eq(peer_shows("b", 0, &reply), SL_ERR_LIMIT);
        ck_assert_str_eq(reply.text.at, "all windows are taken");
        pass(SL_NS_PER_MS);
        over(SL_ERR_LIMIT, "all windows are taken");
        nothing_is_left();
        bed.self->fabric->ops = real_ops;
        bed_close();
    }
END_TEST

/* ---- what a fence covers ---- */

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
        struct sl_return kept = {.op_id = requests[_i].op_id, .seq = requests[_i].seq};
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

int main(void)
{
    Suite *suite = suite_create("push_pools");
    TCase *cases = tcase_create("push_pools");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, blocks_go_from_pool_to_pool_in_one_copy);
    tcase_add_test(cases, nothing_beside_the_blocks_is_touched);
    tcase_add_test(cases, layers_arrive_one_after_the_other);
    tcase_add_test(cases, a_wrong_digest_ends_the_ticket_and_no_other_rank_gets_it);
    tcase_add_loop_test(cases, what_was_acknowledged_is_never_written_again, 0, 2);
    tcase_add_loop_test(cases, bad_opens_are_refused_by_name, 0, SL_COUNT(bad_opens));
    tcase_add_loop_test(cases, bad_sends_are_refused_by_name_and_the_ticket_stays, 0, BAD_SENDS);
    tcase_add_loop_test(cases, a_fence_ends_what_its_sender_asked_for, 0, SL_COUNT(fences));
    tcase_add_test(cases, what_comes_behind_its_fence_is_not_begun);
    tcase_add_test(cases, a_fence_ends_a_batch_that_is_read);
    tcase_add_test(cases, an_engine_that_ends_takes_its_tickets_and_batches_along);
    tcase_add_test(cases, a_peer_gets_one_key_a_part_and_the_other_rank_a_copy);
    tcase_add_test(cases, a_layer_that_was_named_is_not_written_again);
    tcase_add_test(cases, a_part_that_was_named_whole_is_checked_when_nobody_may_write_it);
    tcase_add_test(cases, a_part_that_was_acknowledged_has_no_key_any_more);
    tcase_add_loop_test(cases, an_end_waits_for_the_grants, 0, SL_COUNT(ends));
    tcase_add_loop_test(cases, fences_cover_requests_before_them, 0, SL_COUNT(requests));
    tcase_add_loop_test(cases, a_grant_that_fails_later_is_answered_by_its_reason, 0, PARTS);
    tcase_add_loop_test(cases, a_page_that_the_fabric_cannot_grant_as_a_whole_ends_its_ticket, 0,
                        PARTS);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
