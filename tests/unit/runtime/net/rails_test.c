/* tests/unit/runtime/net/rails_test.c - several addresses as one fabric, over tcp on the loopback:
 * pieces are distributed, a broken link only costs time, guarantees hold. The test sets the clock.
 */
#include "runtime/net/fabric/core/tables.h"
#include "runtime/net/fabric/tcp/tcp.h"
#include "tests/support/fabric_end.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY   (16 * SL_MIB)
#define CHUNK    (4 * SL_MIB)
#define A_SECOND SL_NS_PER_S
#define TWO      "127.0.0.1,127.0.0.2"
#define THREE    "127.0.0.1, 127.0.0.2 ,127.0.0.3"

static struct fabric_end a, b; /* a asks, b owns */
static uint64_t clock_ns;
static struct sl_fabric_options options_a, options_b;

static void setup(void)
{
    clock_ns = 1000 * A_SECOND;
    end_options(&a, &options_a, "tcp");
    end_options(&b, &options_b, "tcp");
    options_a.address = options_b.address = TWO;
    options_a.stall_ns = options_b.stall_ns = 10 * A_SECOND;
    options_a.movers = options_b.movers = 0;
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
}

/* By its place in the list; NULL: it did not open. */
static struct fabric_rail *rail_of(const struct fabric_end *end, uint32_t index)
{
    struct fabric_rail *found = NULL;
    for (uint32_t i = 0; i < end->fabric->rail_count; i++) {
        found = end->fabric->rails[i]->index == index ? end->fabric->rails[i] : found;
    }
    return found;
}

static enum sl_fabric_link rail_link(const struct fabric_end *end, uint32_t index)
{
    return fabric_link_of(fabric_peer_of(rail_of(end, index), end->peer));
}

static uint64_t rail_bytes(const struct fabric_end *end, uint32_t index)
{
    return rail_of(end, index)->stats.read_bytes;
}

static void open_both(void)
{
    struct sl_error why = {0};
    a.now_ns = b.now_ns = &clock_ns;
    ck_assert_int_eq(end_open(&a, &options_a, MEMORY, CHUNK, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, CHUNK, &why), SL_OK);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
}

/* Opens both with rails; all of them are up. */
static void open_all(uint32_t count)
{
    open_both();
    for (uint32_t i = 0; i < count; i++) {
        PAIR_UNTIL(&a, &b, rail_link(&a, i) == SL_FABRIC_UP && rail_link(&b, i) == SL_FABRIC_UP);
    }
}

/* Like a pulled cable: the link of one of a's rails is lost. */
static void rail_break(uint32_t index)
{
    struct sl_error why = {0};
    (void)sl_fail(&why, SL_ERR_PEER_DIED, "the test broke it");
    fabric_peer_fail(&rail_of(&a, index)->peers[0], &why);
}

/* Waits until the rail's pause is over and its link is up again. */
static void rail_return(uint32_t index)
{
    uint64_t lost = rail_of(&a, index)->stats.links_built;
    while (rail_of(&a, index)->stats.links_built == lost) {
        clock_ns += 10 * SL_NS_PER_MS;
        pair_step(&a, &b);
        ck_assert_uint_lt(clock_ns, 2000 * A_SECOND);
    }
    PAIR_UNTIL(&a, &b, rail_link(&a, index) == SL_FABRIC_UP);
}

#define PIECES 64u
#define PIECE  (256 * SL_KIB)

/* Posts all of the memory in pieces, each with its digest. */
static sl_err post_all(uint32_t key, uint64_t cookie)
{
    static struct sl_fabric_piece pieces[PIECES];
    static struct sl_digest digests[PIECES];
    for (uint32_t i = 0; i < PIECES; i++) {
        digests[i] = sl_digest_of(b.bytes + i * PIECE, PIECE);
        pieces[i] = (struct sl_fabric_piece){.memory = a.memory,
                                             .key = key,
                                             .offset_bytes = i * PIECE,
                                             .remote_offset_bytes = i * PIECE,
                                             .length_bytes = PIECE,
                                             .digest = &digests[i]};
    }
    const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                .pieces = pieces,
                                                .piece_count = PIECES,
                                                .deadline_ns = SL_NEVER_NS,
                                                .cookie = cookie};
    return sl_fabric_post(a.fabric, &transfer, NULL);
}

/* ---- moving ---- */

static const struct {
    const char *addresses;
    uint32_t rails;
} moves[] = {{TWO, 2}, {THREE, 3}};

START_TEST(a_large_transfer_goes_over_all_rails)
    {
        uint32_t key = 0;
        struct sl_fabric_stats stats;
        options_a.address = options_b.address = moves[_i].addresses;
        open_all(moves[_i].rails);
        pattern_fill(b.bytes, MEMORY, 1);
        memset(a.bytes, 0x55, MEMORY);
        pair_grant(&b, &a, 0, MEMORY, &key);

        ck_assert_int_eq(post_all(key, 7), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(a.dones[0].cookie, 7);
        ck_assert_uint_eq(a.dones[0].piece_count, PIECES);
        ck_assert_uint_eq(a.dones[0].moved_bytes, MEMORY);
        ck_assert(pattern_is(a.bytes, MEMORY, 1));
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.read_bytes, MEMORY);
        for (uint32_t i = 0; i < moves[_i].rails; i++) { /* an even share, to a piece */
            ck_assert_uint_ge(rail_bytes(&a, i) + PIECE, MEMORY / moves[_i].rails);
            ck_assert_uint_eq(rail_of(&a, i)->out_bytes, 0);
        }
    }
END_TEST

START_TEST(small_transfers_alternate)
    {
        uint32_t key = 0;
        open_all(2);
        pattern_fill(b.bytes, MEMORY, 2);
        pair_grant(&b, &a, 0, MEMORY, &key);

        for (uint32_t i = 0; i < 10; i++) {
            ck_assert_int_eq(end_post(&a, key, i * 4096, 4096, i, SL_NEVER_NS), SL_OK);
            PAIR_UNTIL(&a, &b, a.done_count == i + 1);
            ck_assert_int_eq(a.dones[i].code, SL_OK);
        }

        ck_assert_uint_eq(rail_bytes(&a, 0), 5 * 4096);
        ck_assert_uint_eq(rail_bytes(&a, 1), 5 * 4096);
        ck_assert_mem_eq(a.bytes, b.bytes, 10 * 4096);
    }
END_TEST

/* Posts one transfer of 8 pieces of 4096 bytes, each of four ranges, with these preferred rails. */
static void post_wanting(uint32_t key, const uint32_t rails[8], uint64_t cookie)
{
    struct sl_fabric_piece pieces[8];
    struct sl_fabric_place places[8][4];
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t k = 0; k < 4; k++) { /* backwards */
            places[i][k] = (struct sl_fabric_place){.memory = a.memory,
                                                    .offset_bytes = i * 4096 + (3 - k) * 1024,
                                                    .length_bytes = 1024};
        }
        pieces[i] = (struct sl_fabric_piece){.key = key,
                                             .remote_offset_bytes = i * 4096,
                                             .length_bytes = 4096,
                                             .places = places[i],
                                             .place_count = 4,
                                             .rail = rails[i]};
    }
    const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                .pieces = pieces,
                                                .piece_count = 8,
                                                .deadline_ns = SL_NEVER_NS,
                                                .cookie = cookie};
    ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
}

static void check_wanting(uint64_t cookie)
{
    PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
    ck_assert_int_eq(end_done_of(&a, cookie)->code, SL_OK);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t piece = i / 4 * 4096, part = i % 4 * 1024;
        ck_assert_mem_eq(a.bytes + piece + part, b.bytes + piece + 3072 - part, 1024);
    }
    memset(a.bytes, 0, 8 * 4096);
}

/* A piece uses the rail that it asks for, even in a transfer that would not be distributed, and
 * another one while that is down. A number that is no rail's expresses no preference. */
START_TEST(a_piece_goes_by_the_rail_that_it_wants)
    {
        static const uint32_t mixed[8] = {1, 2, 2, 2, 1, 2, 2, 2},
                              second[8] = {2, 2, 2, 2, 2, 2, 2, 2},
                              none[8] = {3, 9, UINT32_MAX, 17, 3, 3, 3, 3};
        uint32_t key = 0;
        open_all(2);
        pattern_fill(b.bytes, MEMORY, 13);
        pair_grant(&b, &a, 0, MEMORY, &key);

        post_wanting(key, mixed, 1);
        check_wanting(1);
        ck_assert_uint_eq(rail_bytes(&a, 0), 2 * 4096);
        ck_assert_uint_eq(rail_bytes(&a, 1), 6 * 4096);

        for (uint64_t i = 2; i < 6; i++) { /* never on the other one */
            post_wanting(key, second, i);
            check_wanting(i);
        }
        ck_assert_uint_eq(rail_bytes(&a, 0), 2 * 4096);

        post_wanting(key, second, 6);
        rail_break(1); /* while they are in flight, and before others are posted */
        post_wanting(key, second, 7);
        PAIR_UNTIL(&a, &b, end_done_of(&a, 7) != NULL);
        check_wanting(6);
        ck_assert_int_eq(end_done_of(&a, 7)->code, SL_OK);
        ck_assert_uint_gt(rail_bytes(&a, 0), 2 * 4096);

        post_wanting(key, none, 8);
        check_wanting(8);
        ck_assert_uint_eq(a.fabric->places.used_count, 0);
    }
END_TEST

/* ---- unlike nodes ---- */

static const struct {
    const char *ours, *theirs;
    uint32_t shared; /* rails that both have */
} pairs[] = {
    {TWO, "127.0.0.1", 1},
    {"127.0.0.1", TWO, 1},
    {THREE, TWO, 2},
    {TWO, THREE, 2},
};

START_TEST(nodes_with_unlike_numbers_of_rails_meet)
    {
        uint32_t key = 0;
        options_a.address = pairs[_i].ours;
        options_b.address = pairs[_i].theirs;
        open_both();
        for (uint32_t i = 0; i < pairs[_i].shared; i++) {
            PAIR_UNTIL(&a, &b, rail_link(&a, i) == SL_FABRIC_UP);
        }
        pair_grant(&b, &a, 0, MEMORY, &key);

        pattern_fill(b.bytes, MEMORY, 3);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert(pattern_is(a.bytes, MEMORY, 3));

        for (uint32_t i = 0; i < pairs[_i].shared; i++) {
            ck_assert_uint_gt(rail_bytes(&a, i), 0);
        }
    }
END_TEST

/* The other's rail exists but does not open: its address is not one of this machine. */
START_TEST(a_rail_that_does_not_open_is_left_out)
    {
        uint32_t key = 0;
        options_a.address = "127.0.0.1,192.0.2.77";
        open_both();
        ck_assert_ptr_null(rail_of(&a, 1));
        ck_assert_ptr_nonnull(strstr(sl_fabric_about(a.fabric), "192.0.2.77"));
        pattern_fill(b.bytes, MEMORY, 5);
        pair_grant(&b, &a, 0, MEMORY, &key);

        ck_assert_int_eq(post_all(key, 1), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert(pattern_is(a.bytes, MEMORY, 5));
    }
END_TEST

/* However many others there are: a node's status text has 191 bytes. */
START_TEST(a_node_says_which_rail_does_not_open)
    {
        options_a.address = "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,192.0.2.77";
        open_both();
        ck_assert_ptr_null(rail_of(&a, 5));

        const char *about = sl_fabric_about(a.fabric);

        ck_assert_msg(strstr(about, "1 of 6 rails") != NULL, "%s", about);
        ck_assert_msg(strstr(about, "192.0.2.77") != NULL, "%s", about);
        ck_assert_msg(strstr(about, "127.0.0.1") != NULL, "%s", about);
    }
END_TEST

static bool none_fits;
static sl_err address_of_another_kind(struct fabric_peer *peer, const void *blob,
                                      uint32_t length_bytes, struct sl_error *why)
{
    if (none_fits || strcmp(peer->rail->options.address, "127.0.0.2") == 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "another link layer");
    }
    return sl_fabric_tcp.peer_address(peer, blob, length_bytes, why);
}

/* As when rail 1 is InfiniBand here and Ethernet there. */
START_TEST(a_rail_of_another_kind_carries_nothing)
    {
        static struct fabric_backend mixed;
        static const char both[] = "SLTR\2\0\2\0\1\0\0\0x\1\0\0\0y";
        struct sl_error why = {0};
        uint32_t key = 0;
        none_fits = false;
        mixed = sl_fabric_tcp;
        mixed.peer_address = address_of_another_kind;
        options_a.backend = options_b.backend = &mixed;
        open_both();
        pattern_fill(b.bytes, MEMORY, 12);
        pair_grant(&b, &a, 0, MEMORY, &key);

        ck_assert_int_eq(post_all(key, 1), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(rail_bytes(&a, 1), 0);
        ck_assert(pattern_is(a.bytes, MEMORY, 12));
        none_fits = true;
        ck_assert_int_eq(sl_fabric_peer_address(a.fabric, a.peer, both, sizeof(both) - 1, &why),
                         SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why.text, "another link layer"));
    }
END_TEST

static const struct {
    const char *addresses;
    sl_err want;
} bad_lists[] = {
    {"127.0.0.1,", SL_ERR_CONFIG},
    {",", SL_ERR_CONFIG},
    {"127.0.0.1, ,127.0.0.2", SL_ERR_CONFIG},
    {"nonsense,more", SL_ERR_CONFIG},
    {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", SL_ERR_CONFIG},
};

START_TEST(bad_lists_are_refused)
    {
        struct sl_error why = {0};
        struct sl_fabric *fabric = NULL;
        options_a.address = bad_lists[_i].addresses;

        ck_assert_int_eq(sl_fabric_open(&options_a, &fabric, &why), bad_lists[_i].want);

        ck_assert_ptr_null(fabric);
        ck_assert_uint_gt(strlen(why.text), 0);
    }
END_TEST

/* ---- links that break ---- */

START_TEST(a_rail_that_breaks_gives_its_pieces_to_the_other)
    {
        uint32_t key = 0;
        open_all(2);
        pattern_fill(b.bytes, MEMORY, 6);
        pair_grant(&b, &a, 0, MEMORY, &key);

        ck_assert_int_eq(post_all(key, 1), SL_OK);
        pair_step(&a, &b);
        ck_assert_uint_eq(a.done_count, 0);
        rail_break(1);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(a.dones[0].moved_bytes, MEMORY);
        ck_assert(pattern_is(a.bytes, MEMORY, 6));
        ck_assert_uint_gt(rail_bytes(&a, 0), MEMORY / 2);
        ck_assert_uint_eq(a.downs, 0); /* the peer itself was reachable all the time */
    }
END_TEST

START_TEST(a_rail_that_is_back_takes_pieces_again)
    {
        uint32_t key = 0;
        open_all(2);
        pattern_fill(b.bytes, MEMORY, 7);
        pair_grant(&b, &a, 0, MEMORY, &key);
        rail_break(0);
        ck_assert_int_eq(post_all(key, 1), SL_OK); /* meanwhile */
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(rail_bytes(&a, 0), 0);

        rail_return(0);
        ck_assert_int_eq(post_all(key, 2), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 2);

        ck_assert_int_eq(a.dones[1].code, SL_OK);
        ck_assert_uint_ge(rail_bytes(&a, 0) + PIECE, MEMORY / 2);
    }
END_TEST

START_TEST(without_any_rail_a_transfer_fails)
    {
        uint32_t key = 0;
        open_all(2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_all(key, 1), SL_OK);

        rail_break(0);
        rail_break(1);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_ERR_PEER_DIED);
        PAIR_UNTIL(&a, &b, a.downs == 1); /* now the peer is unreachable */
        ck_assert_int_eq(post_all(key, 2), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 2);
        ck_assert_int_eq(a.dones[1].code, SL_ERR_UNREACHABLE);
        clock_ns += A_SECOND;
        PAIR_UNTIL(&a, &b, a.ups == 2);
    }
END_TEST

/* A key that ended with its link, as a verbs window does, is not sent on the next one. */
START_TEST(keys_that_die_with_their_link_are_not_used_again)
    {
        uint32_t key = 0;
        b.unread = true; /* so it takes a ticket */
        b.stride_bytes = PIECE;
        open_all(2);
        b.fabric->keys_die = true; /* as its keys announce */
        pattern_fill(b.bytes, MEMORY, 8);
        pair_grant(&b, &a, 0, MEMORY, &key);
        rail_break(0);
        rail_return(0);

        ck_assert_int_eq(post_all(key, 1), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(rail_bytes(&a, 0), 0);
        ck_assert(pattern_is(a.bytes, MEMORY, 8));
        rail_break(1);
        rail_return(1);
        ck_assert_int_eq(post_all(key, 2), SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(a.done_count, 1);
    }
END_TEST

/* Transfers of all sizes while links break at random: each ends once, successful ones have the
 * right bytes, and at the end nothing is in use. */
START_TEST(links_that_break_at_random_cost_no_byte)
    {
        enum { ROUNDS = 40 };
        uint32_t read_key = 0, good = 0, state = 12345;
        options_a.address = options_b.address = THREE;
        open_all(3);
        pattern_fill(b.bytes, MEMORY, 9);
        pair_grant(&b, &a, 0, MEMORY, &read_key);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t before = a.done_count;
            memset(a.bytes, 0, MEMORY);
            ck_assert_int_eq(post_all(read_key, round), SL_OK);
            while (a.done_count == before) {
                state = state * 1664525u + 1013904223u;
                if (state >> 26 == 0) {
                    rail_break(state >> 8 & 1 ? 1 + (state >> 9 & 1) : 0);
                }
                clock_ns += SL_NS_PER_MS;
                pair_step(&a, &b);
            }
            ck_assert_uint_eq(a.done_count, before + 1);
            if (a.dones[round].code == SL_OK) {
                ck_assert(pattern_is(a.bytes, MEMORY, 9));
                good++;
            }
        }
        ck_assert_uint_gt(good, ROUNDS / 2);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_gt(rail_bytes(&a, i), 0);
            ck_assert_uint_eq(rail_of(&a, i)->out_bytes, 0);
        }
        sl_fabric_key_close(a.fabric, read_key);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_OK);
    }
END_TEST

/* ---- promises ---- */

START_TEST(a_wrong_digest_costs_its_piece_alone)
    {
        uint32_t key = 0;
        open_all(2);
        pattern_fill(b.bytes, MEMORY, 10);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        b.bytes[5 * PIECE + 77] ^= 1; /* after its digest was taken */

        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_ERR_CORRUPT);
        for (uint32_t i = 0; i < 8; i++) {
            ck_assert_uint_eq(a.dones[0].pieces[i], i == 5 ? SL_ERR_CORRUPT : SL_OK);
        }
        ck_assert_uint_eq(a.dones[0].moved_bytes, MEMORY - PIECE);
    }
END_TEST

START_TEST(cancelled_transfers_end_once)
    {
        uint32_t key = 0;
        open_all(2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        ck_assert_int_eq(post_all(key, 2), SL_OK);
        sl_fabric_step(a.fabric, clock_ns);

        ck_assert_uint_eq(sl_fabric_cancel(a.fabric, 1), 1);
        ck_assert_uint_eq(sl_fabric_cancel(a.fabric, 1), 0);
        rail_break(0); /* cancelled pieces use no other rail */
        PAIR_UNTIL(&a, &b, a.done_count == 2);

        ck_assert_int_eq(end_done_of(&a, 1)->code, SL_ERR_CANCELLED);
        ck_assert_int_eq(end_done_of(&a, 2)->code, SL_OK);
    }
END_TEST

START_TEST(deadlines_hold)
    {
        uint32_t key = 0;
        open_all(2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 1, clock_ns + A_SECOND), SL_OK);
        clock_ns += A_SECOND;
        while (a.done_count == 0) { /* b does nothing */
            end_step(&a, 1);
        }
        ck_assert_int_eq(a.dones[0].code, SL_ERR_TIMEOUT);
    }
END_TEST

START_TEST(an_ended_grant_is_told_once_and_not_read_any_more)
    {
        uint32_t key = 0;
        open_all(2);
        unsigned char *was = malloc(MEMORY);
        memset(a.bytes, 0x55, MEMORY);
        pattern_fill(was, MEMORY, 11);
        memcpy(b.bytes, was, MEMORY);
        uint32_t grant = pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_ERR_BUSY);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        sl_fabric_step(a.fabric, clock_ns);

        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_ERR_NOT_FOUND);
        PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        ck_assert_uint_eq(b.grant_last, grant);
        memset(b.bytes, 0x66, MEMORY);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        for (uint32_t i = 0; i < 50; i++) {
            pair_step(&a, &b);
        }

        ck_assert_int_eq(a.dones[0].code, SL_ERR_PERMISSION);
        for (uint64_t i = 0; i < MEMORY; i++) {
            ck_assert(a.bytes[i] == was[i] || a.bytes[i] == 0x55);
        }
        free(was);
        ck_assert_uint_eq(b.grants_ended, 1);
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_OK);
    }
END_TEST

START_TEST(what_goes_away_ends_its_transfers)
    {
        uint32_t key = 0;
        open_all(2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_ERR_BUSY);
        if (_i == 0) {
            sl_fabric_key_close(a.fabric, key);
        } else {
            sl_fabric_peer_remove(a.fabric, a.peer);
        }
        while (a.done_count == 0) {
            end_step(&a, 1);
            sl_fabric_step(b.fabric, clock_ns);
        }
        ck_assert_int_eq(a.dones[0].code, SL_ERR_CANCELLED);
        ck_assert_int_eq(post_all(key, 2), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_OK);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_ERR_NOT_FOUND);
    }
END_TEST

/* Three regions on each of two rails. */
START_TEST(memory_goes_region_by_region_from_all_rails)
    {
        struct sl_fabric_memory memory = {.length_bytes = 5 * 12288, .stride_bytes = 12288};
        struct sl_fabric_stats stats;
        struct sl_error why = {0};
        uint32_t pool = 0, key = 0;
        bool gone = true;
        options_a.region_bytes_max = 2 * 12288 + 4096;
        open_all(2);
        rail_of(&a, 1)->options.region_bytes_max = 2 * 12288; /* its device's */
        ck_assert_uint_eq(sl_fabric_region_bytes_max(a.fabric), 2 * 12288);
        pair_grant(&b, &a, 0, MEMORY, &key);
        sl_fabric_stats(a.fabric, &stats);
        uint64_t before = stats.regions;
        memory.at = a.bytes;
        a.registered = false;
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &memory, &pool, &why), SL_OK);
        a.memory = pool; /* what registered() is to speak of */
        PAIR_UNTIL(&a, &b, a.registered);
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.regions, before + 6);

        for (uint32_t left = 6; left > 0; left--) {
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_OK);
            ck_assert(gone == (left == 1));
            sl_fabric_stats(a.fabric, &stats);
            ck_assert_uint_eq(stats.regions, before + left - 1);
            ck_assert_int_eq(end_post(&a, key, 0, 1, 1, SL_NEVER_NS),
                             gone ? SL_ERR_NOT_FOUND : SL_ERR_BUSY);
        }

        ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_ERR_NOT_FOUND);
    }
END_TEST

/* It is removed while both rails still register it. */
START_TEST(memory_that_is_given_up_goes_from_all_rails)
    {
        struct sl_fabric_memory memory = {.length_bytes = 18 * 12288, .stride_bytes = 12288};
        struct sl_fabric_stats stats;
        struct sl_error why = {0};
        uint32_t pool = 0;
        bool gone = false;
        options_a.region_bytes_max = 2 * 12288;
        open_all(2);
        sl_fabric_stats(a.fabric, &stats);
        uint64_t before = stats.regions, most;
        memory.at = a.bytes;
        a.registered = a.refused = false;
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &memory, &pool, &why), SL_OK);
        a.memory = pool;
        while (stats.regions < before + 6) {
            pair_step(&a, &b);
            sl_fabric_stats(a.fabric, &stats);
        }
        ck_assert_uint_lt(stats.regions, before + 18);

        for (most = stats.regions; !gone; most--) { /* one less each time */
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_OK);
            pair_step(&a, &b);
            sl_fabric_stats(a.fabric, &stats);
            ck_assert_uint_eq(stats.regions, most - 1);
        }

        ck_assert_uint_eq(stats.regions, before);
        ck_assert(!a.registered && !a.refused);
    }
END_TEST

START_TEST(tables_have_bounds)
    {
        struct sl_error why = {0};
        uint32_t key = 0, other = 0;
        options_a.pieces_max = PIECES + 10;
        open_all(2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        ck_assert_int_eq(post_all(key, 2), SL_ERR_LIMIT);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_int_eq(end_post(&a, key, MEMORY, 1, 3, SL_NEVER_NS), SL_ERR_INVALID);
        for (uint32_t i = 1; i < options_a.peers_max; i++) {
            ck_assert_int_eq(sl_fabric_peer_add(a.fabric, &other, &why), SL_OK);
        }
        ck_assert_int_eq(sl_fabric_peer_add(a.fabric, &other, &why), SL_ERR_LIMIT);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, other + 77, "", 0, &key, &why),
                         SL_ERR_NOT_FOUND);
    }
END_TEST

/* ---- hostile blobs ---- */

#define HEAD "SLTR\2\1"
static const struct {
    const char *bytes;
    uint32_t length;
    sl_err want;
} blobs[] = {
    {HEAD "\2\0\1\0\0\0x\0\0\0\0", 17, SL_OK}, /* rail 1 has none */
    {HEAD "\0\0", 8, SL_ERR_PROTOCOL},
    {HEAD "\21\0", 8, SL_ERR_PROTOCOL}, /* 17 */
    {HEAD "\1\0", 8, SL_ERR_PROTOCOL},  /* no length */
    {HEAD "\1\0\1\0\0", 11, SL_ERR_PROTOCOL},
    {HEAD "\1\0\2\0\0\0x", 13, SL_ERR_PROTOCOL},
    {HEAD "\1\0\377\377\377\377x", 13, SL_ERR_PROTOCOL},
    {HEAD "\1\0\1\0\0\0xy", 14, SL_ERR_PROTOCOL},
    {"SLTR\1\1\1\0\1\0\0\0x", 13, SL_ERR_VERSION},
    {"SLTR\2\2\1\0\1\0\0\0x", 13, SL_ERR_PROTOCOL}, /* no flag */
    {"SLTR", 4, SL_OK},                             /* a plain blob, whatever it contains */
    {"plain", 5, SL_OK},
    {"", 0, SL_OK},
};

START_TEST(blobs_are_taken_for_hostile)
    {
        struct sl_error why = {0};
        struct fabric_blob read = {.lengths = {99}};
        unsigned char *exact = malloc(blobs[_i].length + 1); /* a byte too far shows under asan */
        memcpy(exact + 1, blobs[_i].bytes, blobs[_i].length);

        sl_err err = fabric_blob_read(exact + 1, blobs[_i].length, &read, &why);

        ck_assert_int_eq(err, blobs[_i].want);
        ck_assert_uint_eq(read.lengths[0] == 99, err != SL_OK);
        free(exact);
    }
END_TEST

START_TEST(hostile_addresses_and_keys_are_refused)
    {
        struct sl_error why = {0};
        uint32_t key = 0;
        static const char cut[] = HEAD "\1\0\2\0\0\0x", empty[] = HEAD "\1\0\0\0\0\0",
                          second[] = HEAD "\2\0\0\0\0\0\1\0\0\0x";
        options_b.address = "127.0.0.1"; /* one without rails */
        open_both();
        ck_assert_int_eq(sl_fabric_peer_address(a.fabric, a.peer, cut, 13, &why), SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, cut, 13, &key, &why),
                         SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, empty, 12, &key, &why),
                         SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, "plain", 5, &key, &why),
                         SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_peer_address(b.fabric, b.peer, empty, 12, &why),
                         SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_peer_address(b.fabric, b.peer, second, 17, &why),
                         SL_ERR_PROTOCOL);
        pair_grant(&b, &a, 0, MEMORY, &key); /* it works on */
        ck_assert_int_eq(post_all(key, 1), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("rails");
    TCase *cases = tcase_create("rails");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, a_large_transfer_goes_over_all_rails, 0, SL_COUNT(moves));
    tcase_add_test(cases, memory_goes_region_by_region_from_all_rails);
    tcase_add_test(cases, memory_that_is_given_up_goes_from_all_rails);
    tcase_add_test(cases, small_transfers_alternate);
    tcase_add_test(cases, a_piece_goes_by_the_rail_that_it_wants);
    tcase_add_loop_test(cases, nodes_with_unlike_numbers_of_rails_meet, 0, SL_COUNT(pairs));
    tcase_add_test(cases, a_rail_that_does_not_open_is_left_out);
    tcase_add_test(cases, a_node_says_which_rail_does_not_open);
    tcase_add_test(cases, a_rail_of_another_kind_carries_nothing);
    tcase_add_loop_test(cases, bad_lists_are_refused, 0, SL_COUNT(bad_lists));
    tcase_add_loop_test(cases, a_rail_that_breaks_gives_its_pieces_to_the_other, 0, 2);
    tcase_add_test(cases, a_rail_that_is_back_takes_pieces_again);
    tcase_add_test(cases, without_any_rail_a_transfer_fails);
    tcase_add_test(cases, keys_that_die_with_their_link_are_not_used_again);
    tcase_add_test(cases, links_that_break_at_random_cost_no_byte);
    tcase_add_test(cases, a_wrong_digest_costs_its_piece_alone);
    tcase_add_test(cases, cancelled_transfers_end_once);
    tcase_add_test(cases, deadlines_hold);
    tcase_add_test(cases, an_ended_grant_is_told_once_and_not_read_any_more);
    tcase_add_loop_test(cases, what_goes_away_ends_its_transfers, 0, 2);
    tcase_add_test(cases, tables_have_bounds);
    tcase_add_loop_test(cases, blobs_are_taken_for_hostile, 0, SL_COUNT(blobs));
    tcase_add_test(cases, hostile_addresses_and_keys_are_refused);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
