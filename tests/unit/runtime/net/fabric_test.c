/* tests/unit/runtime/net/fabric_test.c - the fabric over tcp on the loopback; the test sets the
 * clock. */
#include "runtime/base/sl_backoff.h"
#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/core/wire.h"
#include "tests/support/fabric_end.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY   (8 * SL_MIB)
#define CHUNK    (3 * SL_MIB)
#define A_SECOND SL_NS_PER_S

static struct fabric_end a, b; /* a asks, b owns; either may do both */
static uint64_t clock_ns;
static struct sl_fabric_options options_a, options_b;

static void open_both(void)
{
    struct sl_error why = {0};
    a.now_ns = b.now_ns = &clock_ns;
    ck_assert_int_eq(end_open(&a, &options_a, MEMORY, CHUNK, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, CHUNK, &why), SL_OK);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
}

static void setup(void)
{
    clock_ns = 1000 * A_SECOND;
    end_options(&a, &options_a, "tcp");
    end_options(&b, &options_b, "tcp");
    options_a.address = options_b.address = "127.0.0.1";
    options_a.stall_ns = options_b.stall_ns = 10 * A_SECOND;
    options_a.movers = options_b.movers = 0;
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
}

static bool is_filled(const unsigned char *at, uint64_t length_bytes, unsigned char with)
{
    for (uint64_t i = 0; i < length_bytes; i++) {
        if (at[i] != with) {
            return false;
        }
    }
    return true;
}

/* Runs the pair for a while although nothing is expected. */
static void turn(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        pair_step(&a, &b);
    }
}

/* ---- moving ---- */

static const struct {
    uint64_t offset_bytes, length_bytes;
} moves[] = {
    {0, 1},      {7, 12345}, {4096, SL_MIB}, {CHUNK - 5, 4 * SL_MIB}, /* over two chunk edges */
    {0, MEMORY},
};
START_TEST(bytes_arrive)
    {
        uint32_t key = 0;
        struct sl_fabric_stats stats;
        open_both();
        uint64_t offset = moves[_i].offset_bytes, length = moves[_i].length_bytes;
        pattern_fill(b.bytes, MEMORY, 1);
        memset(a.bytes, 0x55, MEMORY);
        pair_grant(&b, &a, offset, length, &key);

        ck_assert_int_eq(end_post(&a, key, offset, length, 7, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_uint_eq(a.dones[0].moved_bytes, length);
        ck_assert_mem_eq(a.bytes + offset, b.bytes + offset, length);
        ck_assert(is_filled(a.bytes, offset, 0x55)); /* nothing beside it */
        ck_assert(is_filled(a.bytes + offset + length, MEMORY - offset - length, 0x55));
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.read_bytes, length);
    }
END_TEST

START_TEST(a_batch_of_many_pieces_arrives_whole)
    {
        enum { COUNT = 300 };
        static struct sl_fabric_piece pieces[COUNT];
        static struct sl_digest digests[COUNT];
        uint32_t key = 0;
        open_both();
        pattern_fill(b.bytes, MEMORY, 2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint64_t at = (uint64_t)i * 20000;
            digests[i] = sl_digest_of(b.bytes + at, 19999);
            pieces[i] = (struct sl_fabric_piece){.memory = a.memory,
                                                 .key = key,
                                                 .offset_bytes = at,
                                                 .remote_offset_bytes = at,
                                                 .length_bytes = 19999,
                                                 .digest = &digests[i]};
        }
        struct sl_fabric_transfer transfer = {
            .peer = a.peer, .pieces = pieces, .piece_count = COUNT, .deadline_ns = SL_NEVER_NS};
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            ck_assert_mem_eq(a.bytes + pieces[i].offset_bytes, b.bytes + pieces[i].offset_bytes,
                             19999);
        }
    }
END_TEST

START_TEST(both_sides_read_at_once)
    {
        uint32_t key_a = 0, key_b = 0;
        open_both();
        pattern_fill(a.bytes, MEMORY / 2, 3);
        pattern_fill(b.bytes + MEMORY / 2, MEMORY / 2, 4);
        pair_grant(&b, &a, MEMORY / 2, MEMORY / 2, &key_a);
        pair_grant(&a, &b, 0, MEMORY / 2, &key_b);
        for (uint64_t i = 0; i < 4; i++) {
            ck_assert_int_eq(end_post(&a, key_a, MEMORY / 2 + i * SL_MIB, SL_MIB, i, SL_NEVER_NS),
                             SL_OK);
            ck_assert_int_eq(end_post(&b, key_b, i * SL_MIB, SL_MIB, i, SL_NEVER_NS), SL_OK);
        }
        PAIR_UNTIL(&a, &b, a.done_count == 4 && b.done_count == 4);
        ck_assert_mem_eq(a.bytes, b.bytes, MEMORY);
    }
END_TEST

START_TEST(a_wrong_digest_costs_its_piece_alone)
    {
        uint32_t key = 0;
        struct sl_fabric_stats stats;
        open_both();
        pattern_fill(b.bytes, MEMORY, 5);
        pair_grant(&b, &a, 0, MEMORY, &key);
        struct sl_digest right = sl_digest_of(b.bytes, 2 * SL_MIB + 1), wrong = right;
        wrong.high ^= 1;
        struct sl_fabric_piece pieces[3];
        for (uint32_t i = 0; i < 3; i++) {
            pieces[i] = (struct sl_fabric_piece){.memory = a.memory,
                                                 .key = key,
                                                 .offset_bytes = i * (2 * SL_MIB + 1),
                                                 .length_bytes = 2 * SL_MIB + 1,
                                                 .digest = i == 1 ? &wrong : &right};
        }
        struct sl_fabric_transfer transfer = {
            .peer = a.peer, .pieces = pieces, .piece_count = 3, .deadline_ns = SL_NEVER_NS};
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_ERR_CORRUPT);
        ck_assert_int_eq(a.dones[0].pieces[0], SL_OK);
        ck_assert_int_eq(a.dones[0].pieces[1], SL_ERR_CORRUPT);
        ck_assert_int_eq(a.dones[0].pieces[2], SL_OK);
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.digests_bad, 1);
        ck_assert_int_eq(a.link, SL_FABRIC_UP);
    }
END_TEST

/* ---- capabilities ---- */

enum lie { LIE_TOKEN, LIE_GENERATION, LIE_SLOT, LIE_RANGE, LIE_ENDED, LIE_COUNT };
START_TEST(a_false_key_gets_nothing)
    {
        unsigned char *blob = b.key;
        uint32_t key = 0;
        struct sl_fabric_stats stats;
        open_both();
        memset(a.bytes, 0x11, MEMORY);
        struct sl_fabric_grant want = {
            .memory = b.memory, .peer = b.peer, .offset_bytes = SL_MIB, .length_bytes = SL_MIB};
        uint32_t grant = end_grant(&b, &want);
        uint64_t offset = SL_MIB;
        switch ((enum lie)_i) {
        case LIE_TOKEN:
            blob[40 + 23] ^= 0x80;
            break;
        case LIE_GENERATION:
            blob[16] ^= 1;
            break;
        case LIE_SLOT:
            blob[8] ^= 1;
            break;
        case LIE_RANGE: /* claims one byte more than the range */
            blob[32] = (unsigned char)(blob[32] + 1);
            offset = SL_MIB + 1;
            break;
        default:
            ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
            PAIR_UNTIL(&a, &b, b.grants_ended == 1);
            break;
        }
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, blob, b.key_bytes, &key, NULL),
                         SL_OK);

        ck_assert_int_eq(end_post(&a, key, offset, SL_MIB, 1, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_ERR_PERMISSION);
        ck_assert_uint_eq(a.dones[0].moved_bytes, 0);
        ck_assert(is_filled(a.bytes, MEMORY, 0x11));
        ck_assert(is_filled(b.bytes, MEMORY, 0));
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_ge(stats.refused, 1);
        ck_assert_uint_eq(stats.served_read_bytes, 0);
        ck_assert_int_eq(a.link, SL_FABRIC_UP); /* an old key does not end the link */
    }
END_TEST

/* A reader is halfway when its grant ends: it does not get bytes written afterwards. */
START_TEST(an_ended_grant_is_not_read_any_more)
    {
        uint32_t key = 0;
        struct sl_fabric_stats stats;
        open_both();
        pattern_fill(b.bytes, MEMORY, 6);
        unsigned char *was = malloc(MEMORY);
        memcpy(was, b.bytes, MEMORY);
        uint32_t grant = pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 1, SL_NEVER_NS), SL_OK);
        for (int i = 0; i <= _i; i++) { /* into the reading, further each time */
            pair_step(&a, &b);
        }
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_ERR_NOT_FOUND);
        PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        memset(b.bytes, 0x77, MEMORY);

        PAIR_UNTIL(&a, &b, a.done_count == 1);
        turn(20);

        for (uint64_t at = 0; at < MEMORY; at += 4096) {
            ck_assert(memcmp(a.bytes + at, was + at, 4096) == 0 ||
                      is_filled(a.bytes + at, 4096, 0)); /* all of it arrived, or nothing */
        }
        sl_fabric_stats(b.fabric, &stats);
        ck_assert(a.dones[0].code == SL_ERR_PERMISSION ||
                  (a.dones[0].code == SL_OK && stats.served_read_bytes == MEMORY));
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_OK);
        free(was);
    }
END_TEST

/* ---- deadlines, cancel ---- */

START_TEST(a_silent_peer_costs_the_deadline)
    {
        uint32_t key = 0;
        open_both();
        pattern_fill(b.bytes, MEMORY, 7);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 1, clock_ns + A_SECOND), SL_OK);
        for (int i = 0; i < 4 * _i; i++) {
            pair_step(&a, &b); /* some of it may arrive */
        }
        bool was_done = a.done_count == 1;
        for (int i = 0; i < 5 && !was_done; i++) {
            end_step(&a, 1); /* b does not run: it is stopped */
        }
        was_done = a.done_count == 1;
        clock_ns += A_SECOND;
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        while (a.done_count == 0) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&a, 5);
        }
        if (!was_done && options_a.movers > 0 && a.dones[0].code == SL_OK) {
            ck_assert(pattern_is(a.bytes, MEMORY, 7)); /* a mover had it in the last moment */
        } else if (!was_done) {
            ck_assert_int_eq(a.dones[0].code, SL_ERR_TIMEOUT);
        }
        memset(a.bytes, 0x66, MEMORY);

        turn(50); /* b continues and sends the rest */
        ck_assert_uint_eq(a.done_count, 1);
        ck_assert(is_filled(a.bytes, MEMORY, 0x66));
        /* The link is still good. */
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 2, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 2);
        ck_assert_int_eq(a.dones[1].code, SL_OK);
        ck_assert_mem_eq(a.bytes, b.bytes, MEMORY);
        ck_assert_uint_eq(a.downs, 0);
    }
END_TEST

START_TEST(cancelled_transfers_end_once)
    {
        uint32_t key = 0;
        open_both();
        pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint64_t i = 0; i < 20; i++) {
            ck_assert_int_eq(end_post(&a, key, 0, MEMORY / 2, 100 + i, SL_NEVER_NS), SL_OK);
            ck_assert_int_eq(end_post(&a, key, MEMORY / 2, MEMORY / 2, 200 + i, SL_NEVER_NS),
                             SL_OK);
        }
        for (int i = 0; i < _i; i++) {
            pair_step(&a, &b);
        }
        uint32_t cancelled = 0;
        for (uint64_t i = 0; i < 20; i += 2) {
            cancelled += sl_fabric_cancel(a.fabric, 100 + i);
            cancelled += sl_fabric_cancel(a.fabric, 200 + i);
            ck_assert_uint_eq(sl_fabric_cancel(a.fabric, 100 + i), 0);
        }
        ck_assert_uint_le(cancelled, 20);

        PAIR_UNTIL(&a, &b, a.done_count == 40);
        turn(20);

        ck_assert_uint_eq(a.done_count, 40);
        for (uint64_t i = 0; i < 20; i++) {
            const struct end_done *one = end_done_of(&a, 100 + i),
                                  *other = end_done_of(&a, 200 + i);
            ck_assert(one != NULL && other != NULL);
            ck_assert(one->code == SL_OK || (i % 2 == 0 && one->code == SL_ERR_CANCELLED));
            ck_assert(other->code == SL_OK || (i % 2 == 0 && other->code == SL_ERR_CANCELLED));
        }
        ck_assert_uint_eq(a.downs, 0);
    }
END_TEST

/* Values received in one go: some are given up halfway, and one has a wrong digest. */
START_TEST(values_given_up_in_a_row_are_left_alone)
    {
        /* The larger ones are cut into a unit of 1 MiB and a rest. */
        enum { MOST = 40, WRONG = 4 };
        const bool large = _i % 2 != 0;
        const uint64_t count = large ? 5 : MOST, bytes = (large ? 1624 : 160) * SL_KIB + 3;
        bool settled[MOST] = {0};
        uint32_t key = 0;
        open_both();
        pattern_fill(b.bytes, MEMORY, 7);
        pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint64_t i = 0; i < count; i++) {
            struct sl_digest digest = sl_digest_of(b.bytes + i * bytes, bytes);
            digest.low ^= i == WRONG;
            const struct sl_fabric_piece piece = {.memory = a.memory,
                                                  .key = key,
                                                  .offset_bytes = i * bytes,
                                                  .remote_offset_bytes = i * bytes,
                                                  .length_bytes = bytes,
                                                  .digest = &digest};
            const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                        .pieces = &piece,
                                                        .piece_count = 1,
                                                        .deadline_ns = SL_NEVER_NS,
                                                        .cookie = 100 + i};
            ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        }
        for (int i = 0; i < 2 * _i; i++) {
            pair_step(&a, &b);
        }
        for (uint64_t i = 0; i < count; i += 3) {
            (void)sl_fabric_cancel(a.fabric, 100 + i);
        }

        for (uint64_t left = count; left > 0;) {
            pair_step(&a, &b);
            for (uint64_t i = 0; i < count; i++) {
                const struct end_done *done = settled[i] ? NULL : end_done_of(&a, 100 + i);
                if (done != NULL) { /* from here on its memory is ours */
                    settled[i] = true;
                    left--;
                    if (done->code != SL_OK) {
                        memset(a.bytes + i * bytes, 0x33, bytes);
                    }
                }
            }
        }
        turn(50);

        for (uint64_t i = 0; i < count; i++) {
            sl_err code = end_done_of(&a, 100 + i)->code;
            const unsigned char *at = a.bytes + i * bytes;
            bool whole = memcmp(at, b.bytes + i * bytes, bytes) == 0;
            ck_assert(code == SL_OK ? whole : is_filled(at, bytes, 0x33));
            ck_assert(code == SL_OK || (i == WRONG && code == SL_ERR_CORRUPT) ||
                      (i % 3 == 0 && code == SL_ERR_CANCELLED));
        }
        ck_assert_int_eq(end_done_of(&a, 100 + WRONG)->code, SL_ERR_CORRUPT);
        ck_assert_uint_eq(a.downs, 0);
    }
END_TEST

/* ---- peers that die ---- */

START_TEST(a_stalled_peer_is_dead_and_comes_back)
    {
        uint32_t key = 0;
        options_a.stall_ns = A_SECOND;
        open_both();
        pattern_fill(b.bytes, MEMORY, 8);
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(end_post(&a, key, 0, SL_MIB, 1, SL_NEVER_NS), SL_OK);
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        while (a.done_count == 0) { /* b is stopped */
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&a, 1);
            clock_ns += A_SECOND / 8;
        }
        ck_assert_int_eq(a.dones[0].code, SL_ERR_PEER_DIED);
        PAIR_UNTIL(&a, &b, a.downs == 1);
        ck_assert_ptr_nonnull(strstr(a.link_why, "progress"));

        ck_assert_int_eq(end_post(&a, key, 0, SL_MIB, 2, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 2);
        ck_assert(a.dones[1].code == SL_ERR_UNREACHABLE || a.dones[1].code == SL_OK);

        for (int i = 0; i < 200 && a.link != SL_FABRIC_UP; i++) { /* b runs again */
            clock_ns += options_a.backoff_max_ns / 20;
            turn(10);
        }
        ck_assert_int_eq(a.link, SL_FABRIC_UP);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 3, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 3);
        ck_assert_int_eq(a.dones[2].code, SL_OK);
        ck_assert_mem_eq(a.bytes, b.bytes, MEMORY);
    }
END_TEST

START_TEST(a_peer_that_ends_is_an_error_at_once)
    {
        uint32_t key = 0;
        struct sl_error why = {0};
        struct sl_fabric_stats stats;
        open_both();
        pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint64_t i = 0; i < 10; i++) {
            ck_assert_int_eq(end_post(&a, key, 0, MEMORY, i, SL_NEVER_NS), SL_OK);
        }
        pair_step(&a, &b);
        sl_fabric_close(&b.fabric);
        PAIR_UNTIL(&a, &b, a.done_count == 10); /* no clock moved */
        for (uint32_t i = 0; i < 10; i++) {
            ck_assert_int_eq(a.dones[i].code, SL_ERR_PEER_DIED);
        }
        PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_DOWN);

        ck_assert_int_eq(end_post(&a, key, 0, SL_MIB, 11, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 11);
        ck_assert_int_eq(a.dones[10].code, SL_ERR_UNREACHABLE);

        /* No process listens there: attempts become less and less frequent. */
        for (unsigned i = 0; i < 5; i++) {
            clock_ns += options_a.backoff_max_ns;
            turn(5);
        }
        /* The peer's next life announces its new address; old keys are invalid there. */
        end_close(&b);
        b = (struct fabric_end){.now_ns = &clock_ns};
        end_options(&b, &options_b, "tcp");
        options_b.address = "127.0.0.1";
        options_b.stall_ns = 10 * A_SECOND;
        ck_assert_int_eq(end_open(&b, &options_b, MEMORY, CHUNK, &why), SL_OK);
        PAIR_UNTIL(&a, &b, b.registered && a.link == SL_FABRIC_UP);
        ck_assert_int_eq(end_post(&a, key, 0, SL_MIB, 12, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 12);
        ck_assert_int_eq(a.dones[11].code, SL_ERR_PERMISSION);
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.links_lost, 1);
        ck_assert_uint_eq(stats.links_built, 2);
    }
END_TEST

/* ---- hostile connections ---- */

static int unauth(const struct fabric_end *end)
{
    static unsigned char blob[SL_FABRIC_BLOB_MAX];
    struct sl_wire_address address;
    const unsigned char *at = end->address_bytes > 0 ? end->address : blob;
    ck_assert_int_eq(sl_wire_address_read(at, SL_WIRE_ADDRESS_BYTES, &address, NULL), SL_OK);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address.port)};
    memcpy(&to.sin_addr, address.ip, 4);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Opens only b, listening; its address is known. */
static void open_listener(void)
{
    struct sl_error why = {0};
    b.now_ns = &clock_ns;
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, CHUNK, &why), SL_OK);
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
    while (!b.registered || b.address_bytes == 0) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(&b, 1);
    }
}

/* Runs b until it has ended the connection; returns the bytes it sent before. */
static size_t until_closed(int fd)
{
    unsigned char bytes[4096];
    size_t said = 0;
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
    for (;;) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(&b, 2);
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            return said;
        }
        said += got > 0 ? (size_t)got : 0;
    }
}

static struct sl_records sealer; /* of the connection that was greeted last */

/* Sends a HELLO as b's peer, in the clear. */
static void greet(int fd)
{
    sl_records_fini(&sealer);
    guest_greet(&b, fd, &sealer);
}

static void ask(int fd, const struct sl_wire_request *request)
{
    unsigned char frame[SL_WIRE_REQUEST_BYTES];
    sl_wire_request_write(request, frame);
    guest_say(fd, &sealer, frame, sizeof(frame));
}

START_TEST(a_wrong_greeting_is_shown_the_door)
    {
        unsigned char frame[SL_WIRE_REQUEST_BYTES] = {0};
        struct sl_wire_request hello = {.verb = SL_WIRE_HELLO}; /* from an unknown peer */
        struct sl_fabric_stats stats;
        options_b.clear = _i == 1;
        open_listener();
        int forged = unauth(&b), garbage = unauth(&b);
        sl_wire_request_write(&hello, frame);
        ck_assert_int_eq(send(forged, frame, sizeof(frame), 0), sizeof(frame));
        ck_assert_uint_eq(until_closed(forged), 0);
        ck_assert_int_eq(
            send(garbage, "GET / HTTP/1.1\r\nHost: somebody.example.com\r\nAccept: */*\r\n\r\n    ",
                 64, 0),
            64);
        ck_assert_uint_eq(until_closed(garbage), 0);
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.refused, 2);
        close(forged);
        close(garbage);
    }
END_TEST

/* Bytes sent before the silence: of a handshake, or of a request within a record. */
static const struct {
    bool greets;
    size_t bytes;
} drips[] = {{false, 0}, {false, 1}, {false, 5}, {false, 63}, {true, 1}, {true, 63}};
START_TEST(half_a_frame_has_a_deadline)
    {
        const unsigned char frame[SL_WIRE_REQUEST_BYTES] = {22, 3, 1,
                                                            2}; /* as a handshake begins */
        struct sl_fabric_stats stats;
        options_b.clear = true;
        open_listener();
        int fd = unauth(&b);
        if (drips[_i].greets) {
            greet(fd);
            guest_say(fd, &sealer, frame, drips[_i].bytes);
        } else {
            ck_assert_int_eq(send(fd, frame, drips[_i].bytes, 0), (ssize_t)drips[_i].bytes);
        }
        for (int i = 0; i < 10; i++) {
            end_step(&b, 2);
        }
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.late, 0);
        clock_ns += options_b.stall_ns;
        ck_assert_uint_eq(until_closed(fd), 0);
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.late, 1);
        close(fd);
    }
END_TEST

/* The safer of two settings wins, whatever a peer asks for. */
START_TEST(answers_in_the_clear_are_refused_where_they_are_not_set)
    {
        const struct sl_wire_request hello = {.verb = SL_WIRE_HELLO, .grant = 1};
        struct sl_fabric_stats stats;
        open_listener();
        int fd = unauth(&b);
        peer_handshake(&b, fd, &sealer);
        ask(fd, &hello);
        ck_assert_uint_eq(until_closed(fd), 0);
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.bad_frames, 1);
        close(fd);
    }
END_TEST

/* Peers never write here, whatever they send, even with a valid key. */
START_TEST(a_request_to_write_ends_the_connection)
    {
        struct sl_wire_key key;
        struct sl_fabric_stats stats;
        options_b.clear = true;
        open_listener();
        struct sl_fabric_grant want = {.memory = b.memory, .peer = b.peer, .length_bytes = SL_MIB};
        (void)end_grant(&b, &want);
        ck_assert_int_eq(sl_wire_key_read(b.key, b.key_bytes, &key, NULL), SL_OK);
        struct sl_wire_request request = {.verb = (enum sl_wire_verb)2, /* of releases before */
                                          .length_bytes = 4,
                                          .generation = key.generation,
                                          .grant = key.grant};
        memcpy(request.token, key.token, sizeof(key.token));
        int fd = unauth(&b);
        greet(fd);
        ask(fd, &request);
        guest_say(fd, &sealer, "here", 4);
        ck_assert_uint_eq(until_closed(fd), 0);
        ck_assert(is_filled(b.bytes, SL_MIB, 0));
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.bad_frames, 1);
        close(fd);
    }
END_TEST

/* A reader that asks for much and receives none of it. */
static int reader_stalls(uint32_t *grant)
{
    int room = 4096;
    struct sl_wire_key key;
    options_b.clear = true;
    open_listener();
    struct sl_fabric_grant want = {.memory = b.memory, .peer = b.peer, .length_bytes = MEMORY};
    *grant = end_grant(&b, &want);
    ck_assert_int_eq(sl_wire_key_read(b.key, b.key_bytes, &key, NULL), SL_OK);
    struct sl_wire_request request = {.verb = SL_WIRE_READ,
                                      .length_bytes = 4 * SL_MIB,
                                      .generation = key.generation,
                                      .grant = key.grant};
    memcpy(request.token, key.token, sizeof(key.token));
    int fd = unauth(&b);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    greet(fd);
    for (unsigned i = 0; i < 200; i++) { /* more than it may queue: it stops reading, no more */
        ask(fd, &request);
    }
    for (int i = 0; i < 20; i++) {
        end_step(&b, 2);
    }
    return fd;
}

static void grant_ends(void)
{
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
    while (b.grants_ended == 0) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(&b, 2);
    }
}

START_TEST(a_reader_that_takes_nothing_has_a_deadline)
    {
        uint32_t grant = 0;
        struct sl_fabric_stats stats;
        int fd = reader_stalls(&grant);
        clock_ns += options_b.stall_ns + 16 * SL_MIB * 16000;
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        do {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&b, 2);
            sl_fabric_stats(b.fabric, &stats);
        } while (stats.late == 0);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        grant_ends();
        close(fd);
    }
END_TEST

/* Bytes being sent to a reader are in use, but after a grant's end the owner waits for less than
 * the reader's own time limit. */
START_TEST(a_reader_that_takes_nothing_holds_an_ended_grant_shortly)
    {
        uint32_t grant = 0;
        struct sl_fabric_stats stats;
        int fd = reader_stalls(&grant);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        for (int i = 0; i < 20; i++) {
            end_step(&b, 2);
        }
        ck_assert_uint_eq(b.grants_ended, 0);
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_ERR_BUSY);
        clock_ns += options_b.stall_ns / 4; /* it gets some time for its bytes */
        for (int i = 0; i < 20; i++) {
            end_step(&b, 2);
        }
        ck_assert_uint_eq(b.grants_ended, 0);
        clock_ns += options_b.stall_ns / 2;
        grant_ends();
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.late, 1);
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_OK);
        close(fd);
    }
END_TEST

START_TEST(connections_have_a_bound)
    {
        struct sl_fabric_stats stats;
        int fds[6];
        options_b.connections_max = 4;
        open_listener();
        for (unsigned i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = unauth(&b);
        }
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        do {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&b, 2);
            sl_fabric_stats(b.fabric, &stats);
        } while (stats.over_limit < 2);
        ck_assert_uint_eq(stats.over_limit, 2);
        clock_ns += options_b.stall_ns; /* the four never greet */
        for (unsigned i = 0; i < SL_COUNT(fds); i++) {
            ck_assert_uint_eq(until_closed(fds[i]), 0);
            close(fds[i]);
        }
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.late, 4);
    }
END_TEST

/* ---- edges of the interface ---- */

START_TEST(what_goes_away_ends_its_transfers)
    {
        uint32_t key = 0, other = 0;
        open_both();
        pair_grant(&b, &a, 0, MEMORY, &key);
        pair_grant(&b, &a, 0, MEMORY, &other);
        for (uint64_t i = 0; i < 4; i++) {
            ck_assert_int_eq(end_post(&a, i % 2 ? key : other, 0, MEMORY, i, SL_NEVER_NS), SL_OK);
        }
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_ERR_BUSY);
        sl_fabric_key_close(a.fabric, key);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 9, SL_NEVER_NS), SL_ERR_NOT_FOUND);
        PAIR_UNTIL(&a, &b, a.done_count == 4);
        for (uint64_t i = 0; i < 4; i++) {
            ck_assert_int_eq(end_done_of(&a, i)->code, i % 2 ? SL_ERR_CANCELLED : SL_OK);
        }
        ck_assert_int_eq(end_post(&a, other, 0, MEMORY, 5, SL_NEVER_NS), SL_OK);
        pair_step(&a, &b);
        sl_fabric_peer_remove(a.fabric, a.peer);
        ck_assert_int_eq(end_post(&a, other, 0, 1, 6, SL_NEVER_NS), SL_ERR_NOT_FOUND);
        a.address_bytes = 0;
        PAIR_UNTIL(&a, &b, a.done_count == 5);
        ck_assert_int_eq(a.dones[4].code, SL_ERR_CANCELLED);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_OK);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(wrong_calls_are_refused)
    {
        uint32_t key = 0, out = 0;
        open_both();
        pair_grant(&b, &a, SL_MIB, SL_MIB, &key);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 1, SL_NEVER_NS), SL_ERR_INVALID);
        ck_assert_int_eq(end_post(&a, key, SL_MIB, SL_MIB + 1, 1, SL_NEVER_NS), SL_ERR_INVALID);
        ck_assert_int_eq(end_post(&a, key, SL_MIB, 0, 1, SL_NEVER_NS), SL_ERR_INVALID);
        ck_assert_int_eq(end_post(&a, key, UINT64_MAX, 2, 1, SL_NEVER_NS), SL_ERR_INVALID);
        struct sl_fabric_grant wide = {
            .memory = b.memory, .peer = b.peer, .offset_bytes = MEMORY, .length_bytes = 1};
        ck_assert_int_eq(sl_fabric_grant_add(b.fabric, &wide, &out, NULL), SL_ERR_INVALID);
        wide.offset_bytes = 0;
        wide.memory++;
        ck_assert_int_eq(sl_fabric_grant_add(b.fabric, &wide, &out, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, "nonsense", 8, &out, NULL),
                         SL_ERR_PROTOCOL);
        ck_assert_int_eq(sl_fabric_peer_address(a.fabric, a.peer, "nonsense", 8, NULL),
                         SL_ERR_PROTOCOL);
        ck_assert_uint_eq(a.done_count, 0);
    }
END_TEST

START_TEST(memory_goes_region_by_region)
    {
        enum { BLOCKS = 9, REGIONS = 5 };
        struct sl_fabric_memory memory = {.stride_bytes = 12288};
        struct sl_fabric_stats stats;
        struct sl_error why = {0};
        uint32_t pool = 0, key = 0;
        bool gone = true;
        options_a.region_bytes_max = 2 * 12288 + 4096; /* two blocks a region */
        open_both();
        ck_assert_uint_eq(sl_fabric_region_bytes_max(a.fabric), 2 * 12288 + 4096);
        pair_grant(&b, &a, 0, MEMORY, &key);
        sl_fabric_stats(a.fabric, &stats);
        uint64_t before = stats.regions;
        memory.at = a.bytes;
        memory.length_bytes = BLOCKS * memory.stride_bytes;
        a.registered = false;
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &memory, &pool, &why), SL_OK);
        a.memory = pool; /* what registered() is to speak of */
        PAIR_UNTIL(&a, &b, a.registered);
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.regions, before + REGIONS);

        for (uint32_t left = REGIONS; left > 0; left--) {
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_OK);
            ck_assert(gone == (left == 1));
            sl_fabric_stats(a.fabric, &stats);
            ck_assert_uint_eq(stats.regions, before + left - 1);
            const struct sl_fabric_piece piece = {.memory = pool, .key = key, .length_bytes = 1};
            const struct sl_fabric_transfer transfer = {
                .peer = a.peer, .pieces = &piece, .piece_count = 1, .deadline_ns = SL_NEVER_NS};
            ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL),
                             gone ? SL_ERR_NOT_FOUND : SL_ERR_BUSY);
        }

        ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_ERR_NOT_FOUND);
    }
END_TEST

/* As with verbs, where the peer's new address starts the next link at once. Users of grants must be
 * notified that these ended with the link. */
START_TEST(a_link_that_is_built_anew_at_once_was_down)
    {
        struct sl_error why = {0};
        open_both();
        struct fabric_peer *peer = &a.fabric->rails[0]->peers[0];
        (void)sl_fail(&why, SL_ERR_PEER_DIED, "the test broke it");

        fabric_peer_fail(peer, &why);
        while (peer->state != PEER_WAITING) { /* without a step of the whole fabric */
            a.fabric->ops->flush(a.fabric->rails[0]);
            a.fabric->ops->step(a.fabric->rails[0]);
        }
        peer->due_ns = clock_ns;
        sl_fabric_step(a.fabric, clock_ns);

        ck_assert_uint_eq(a.downs, 1);
        ck_assert_str_eq(a.link_why, "the test broke it");
        PAIR_UNTIL(&a, &b, a.ups == 2);
        ck_assert_uint_eq(a.downs, 1);
    }
END_TEST

/* The memory was being registered: its regions are released as slowly, without a notification. */
START_TEST(memory_that_is_given_up_goes_region_by_region)
    {
        struct sl_fabric_memory memory = {.stride_bytes = 12288, .length_bytes = 9 * 12288};
        struct sl_fabric_stats stats;
        struct sl_error why = {0};
        uint32_t pool = 0;
        bool gone = true;
        options_a.region_bytes_max = 2 * 12288;
        open_both();
        sl_fabric_stats(a.fabric, &stats);
        uint64_t before = stats.regions;
        memory.at = a.bytes;
        a.registered = a.refused = false;
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &memory, &pool, &why), SL_OK);
        a.memory = pool; /* what registered() would speak of */
        while (stats.regions < before + 3) {
            pair_step(&a, &b);
            sl_fabric_stats(a.fabric, &stats);
        }

        for (uint32_t left = 3; left > 0; left--) {
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_OK);
            ck_assert(gone == (left == 1));
            pair_step(&a, &b);
            sl_fabric_stats(a.fabric, &stats);
            ck_assert_uint_eq(stats.regions, before + left - 1);
        }

        ck_assert(!a.registered && !a.refused);
        ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, pool, &gone), SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(tables_have_bounds)
    {
        uint32_t key = 0;
        options_a.transfers_max = 2;
        options_a.pieces_max = 2;
        open_both();
        pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 1, SL_NEVER_NS), SL_OK);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 2, SL_NEVER_NS), SL_OK);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 3, SL_NEVER_NS), SL_ERR_LIMIT);
        PAIR_UNTIL(&a, &b, a.done_count == 2);
        ck_assert_int_eq(end_post(&a, key, 0, 1, 3, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 3);
    }
END_TEST

static const char *const addresses[] = {"nowhere", "127.0.0.1:x", "127.0.0.1:70000",
                                        "[::1",    "127.0.0.1:",  "1.2.3"};
START_TEST(a_wrong_address_is_a_wrong_configuration)
    {
        struct sl_fabric *fabric = NULL;
        struct sl_error why = {0};
        options_a.address = addresses[_i];
        ck_assert_int_eq(sl_fabric_open(&options_a, &fabric, &why), SL_ERR_CONFIG);
        ck_assert_ptr_null(fabric);
        ck_assert_ptr_nonnull(strstr(why.text, addresses[_i]));
    }
END_TEST

/* A process closes its fabric and opens it again at its own address; the kernel frees the ring that
 * accepted there only some time later. */
START_TEST(an_address_is_free_as_soon_as_its_fabric_is_closed)
    {
        struct sl_error why = {0};
        char address[32];
        a.now_ns = &clock_ns;
        ck_assert_int_eq(end_open(&a, &options_a, 0, 0, &why), SL_OK);
        const char *port = strstr(sl_fabric_about(a.fabric), "port ");
        ck_assert_ptr_nonnull(port);
        (void)snprintf(address, sizeof(address), "127.0.0.1:%d", atoi(port + strlen("port ")));
        options_a.address = address;
        for (int life = 0; life < 50; life++) {
            end_step(&a, 0); /* it accepts */
            end_close(&a);
            ck_assert_msg(end_open(&a, &options_a, 0, 0, &why) == SL_OK, "life %d: %s", life,
                          why.text);
        }
    }
END_TEST

START_TEST(without_an_address_nothing_listens)
    {
        struct sl_error why = {0};
        options_a.address = "";
        a.now_ns = &clock_ns;
        ck_assert_int_eq(end_open(&a, &options_a, MEMORY, CHUNK, &why), SL_OK);
        for (int fd = 3; fd < 256; fd++) {
            int listens = 0;
            socklen_t length = sizeof(listens);
            ck_assert(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0 || !listens);
        }
        ck_assert_ptr_nonnull(strstr(sl_fabric_about(a.fabric), "nowhere"));
    }
END_TEST

/* A link without an answer is tried again with growing, jittered pauses. */
START_TEST(pauses_grow_to_a_bound)
    {
        for (uint64_t random = 0; random < 1000; random += 7) {
            for (uint32_t failures = 0; failures < 70; failures++) {
                uint64_t full = failures >= 6 ? 3200 : UINT64_C(50) << failures;
                uint64_t wait = sl_backoff_ns(50, 3200, failures, random * 0x9e3779b97f4a7c15u);
                ck_assert_uint_ge(wait, full / 2);
                ck_assert_uint_le(wait, full);
            }
        }
        ck_assert_uint_ne(sl_backoff_ns(1000, 1000, 0, 1), sl_backoff_ns(1000, 1000, 0, 2));
        ck_assert_uint_eq(sl_backoff_ns(0, 0, 3, 9), 0);
    }
END_TEST

START_TEST(an_unknown_peer_is_down_after_connect_ns)
    {
        struct sl_error why = {0};
        a.now_ns = &clock_ns;
        options_a.connect_ns = A_SECOND;
        ck_assert_int_eq(end_open(&a, &options_a, MEMORY, CHUNK, &why), SL_OK);
        end_step(&a, 0);
        ck_assert_int_eq(sl_fabric_peer_link(a.fabric, a.peer), SL_FABRIC_CONNECTING);
        clock_ns += A_SECOND - 1;
        end_step(&a, 0);
        ck_assert_uint_eq(a.downs, 0);
        clock_ns += 1;
        end_step(&a, 0);
        ck_assert_uint_eq(a.downs, 1);
        ck_assert_ptr_nonnull(strstr(a.link_why, "1000 ms"));
    }
END_TEST

START_TEST(comparing_looks_at_every_byte)
    {
        unsigned char one[24] = {0}, other[24] = {0};
        ck_assert(sl_same_bytes(one, other, sizeof(one)));
        for (unsigned i = 0; i < 24 * 8; i++) {
            other[i / 8] ^= (unsigned char)(1u << i % 8);
            ck_assert(!sl_same_bytes(one, other, sizeof(one)));
            other[i / 8] ^= (unsigned char)(1u << i % 8);
        }
    }
END_TEST

static void setup_movers(void)
{
    setup();
    options_a.movers = options_b.movers = 2;
}

static void setup_clear(void)
{
    setup();
    options_a.clear = options_b.clear = true;
}

static void setup_clear_movers(void)
{
    setup_movers();
    options_a.clear = options_b.clear = true;
}

/* whole: includes tests that do not depend on how bytes are transferred. */
static TCase *all_tests(const char *name, SFun before, bool whole)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, before, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, bytes_arrive, 0, SL_COUNT(moves));
    tcase_add_test(tests, a_batch_of_many_pieces_arrives_whole);
    tcase_add_test(tests, both_sides_read_at_once);
    tcase_add_test(tests, a_wrong_digest_costs_its_piece_alone);
    tcase_add_loop_test(tests, a_false_key_gets_nothing, 0, LIE_COUNT);
    tcase_add_loop_test(tests, an_ended_grant_is_not_read_any_more, 0, 12);
    tcase_add_loop_test(tests, a_silent_peer_costs_the_deadline, 0, 6);
    tcase_add_loop_test(tests, cancelled_transfers_end_once, 0, 10);
    tcase_add_loop_test(tests, values_given_up_in_a_row_are_left_alone, 0, 12);
    tcase_add_test(tests, a_stalled_peer_is_dead_and_comes_back);
    tcase_add_test(tests, a_peer_that_ends_is_an_error_at_once);
    if (!whole) {
        return tests;
    }
    tcase_add_loop_test(tests, a_wrong_greeting_is_shown_the_door, 0, 2);
    tcase_add_loop_test(tests, half_a_frame_has_a_deadline, 0, SL_COUNT(drips));
    tcase_add_test(tests, answers_in_the_clear_are_refused_where_they_are_not_set);
    tcase_add_test(tests, a_request_to_write_ends_the_connection);
    tcase_add_test(tests, a_reader_that_takes_nothing_has_a_deadline);
    tcase_add_test(tests, a_reader_that_takes_nothing_holds_an_ended_grant_shortly);
    tcase_add_test(tests, connections_have_a_bound);
    tcase_add_test(tests, what_goes_away_ends_its_transfers);
    tcase_add_test(tests, wrong_calls_are_refused);
    tcase_add_test(tests, memory_goes_region_by_region);
    tcase_add_test(tests, a_link_that_is_built_anew_at_once_was_down);
    tcase_add_test(tests, memory_that_is_given_up_goes_region_by_region);
    tcase_add_test(tests, tables_have_bounds);
    tcase_add_loop_test(tests, a_wrong_address_is_a_wrong_configuration, 0, SL_COUNT(addresses));
    tcase_add_test(tests, an_address_is_free_as_soon_as_its_fabric_is_closed);
    tcase_add_test(tests, without_an_address_nothing_listens);
    tcase_add_test(tests, pauses_grow_to_a_bound);
    tcase_add_test(tests, an_unknown_peer_is_down_after_connect_ns);
    tcase_add_test(tests, comparing_looks_at_every_byte);
    return tests;
}

static Suite *suite(void)
{
    Suite *all = suite_create("fabric");
    suite_add_tcase(all, all_tests("tcp", setup, true));
    suite_add_tcase(all, all_tests("tcp with movers", setup_movers, true));
    suite_add_tcase(all, all_tests("tcp in the clear", setup_clear, false));
    suite_add_tcase(all, all_tests("tcp in the clear with movers", setup_clear_movers, false));
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
