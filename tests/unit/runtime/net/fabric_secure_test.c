/* tests/unit/runtime/net/fabric_secure_test.c - an attacker between two fabrics who records
 * traffic, replays it, and changes it; and peers that present another peer's grant. */
#include "runtime/net/fabric/core/wire.h"
#include "tests/support/fabric_end.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY    SL_MIB
#define WIRES     64u
#define TAPE      (8 * SL_MIB)
#define TURNS_S   30u
#define NOWHERE   UINT64_MAX
#define PLAINTEXT "what nobody but the two of them is to read, at any time: "

enum { ASKED, ANSWERED }; /* directions: to the listener, and back */

/* One connection through the attacker. */
struct wire {
    int fds[2]; /* of who asked, of who listens */
    unsigned char *tape[2];
    size_t said[2], passed[2];
};
static struct fabric_end a, b, c;
static struct sl_fabric_options options[3];
static int listener = -1;
static uint16_t port, door; /* of the middle, of b */
static struct wire wires[WIRES];
static uint32_t wire_count;
static int flip_way;     /* a byte of this direction is changed, */
static uint64_t flip_at; /* of all connections together; NOWHERE: none */
static uint64_t flowed[2];

static bool a_is_out; /* b has removed it */

static void middle_open(void)
{
    a_is_out = false;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 64), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    port = ntohs(at.sin_port);
    wire_count = 0;
    flip_at = NOWHERE;
    flowed[0] = flowed[1] = 0;
}

static int reach(uint16_t to_port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(to_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void wire_end(struct wire *wire)
{
    for (int i = 0; i < 2; i++) {
        if (wire->fds[i] >= 0) {
            close(wire->fds[i]);
        }
        wire->fds[i] = -1;
    }
}

static void wire_step(struct wire *wire)
{
    for (int way = 0; way < 2 && wire->fds[0] >= 0; way++) {
        size_t room = SL_MIN((size_t)65536, TAPE - wire->said[way]);
        unsigned char *at = wire->tape[way] + wire->said[way];
        ssize_t got = recv(wire->fds[way], at, room, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            wire_end(wire);
            return;
        }
        if (got > 0) {
            if (way == flip_way && flip_at >= flowed[way] && flip_at < flowed[way] + (size_t)got) {
                at[flip_at - flowed[way]] ^= 1;
                flip_at = NOWHERE;
            }
            flowed[way] += (uint64_t)got;
            wire->said[way] += (size_t)got;
        }
        ssize_t put = send(wire->fds[1 - way], wire->tape[way] + wire->passed[way],
                           wire->said[way] - wire->passed[way], MSG_DONTWAIT | MSG_NOSIGNAL);
        wire->passed[way] += put > 0 ? (size_t)put : 0;
    }
}

static void middle_step(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        ck_assert_uint_lt(wire_count, WIRES);
        struct wire *wire = &wires[wire_count++];
        *wire = (struct wire){.fds = {fd, reach(door)}, .tape = {malloc(TAPE), malloc(TAPE)}};
    }
    for (uint32_t i = 0; i < wire_count; i++) {
        wire_step(&wires[i]);
    }
}

static void tell(struct fabric_end *from, struct fabric_end *to)
{
    struct sl_error why = {0};
    if (from->address_bytes > 0 && to->fabric != NULL) {
        if (from == &b) { /* connections to b pass through the attacker */
            door = (uint16_t)sl_wire_get(b.address + 6, 2);
            sl_wire_put(b.address + 6, port, 2);
        }
        sl_err err =
            sl_fabric_peer_address(to->fabric, to->peer, from->address, from->address_bytes, &why);
        ck_assert_msg(err == SL_OK, "%s", why.text);
        from->address_bytes = 0;
    }
}

static void turn(void)
{
    middle_step();
    end_step(&a, 0);
    end_step(&b, 1);
    tell(&b, &a);
    if (!a_is_out) {
        tell(&a, &b);
    }
}

#define UNTIL(condition)                                                                    \
    do {                                                                                    \
        uint64_t until_ns = sl_clock_monotonic_ns() + TURNS_S * SL_NS_PER_S;                \
        while (!(condition)) {                                                              \
            ck_assert_msg(sl_clock_monotonic_ns() < until_ns, "waited for %s", #condition); \
            turn();                                                                         \
        }                                                                                   \
    } while (0)

static void setup(void)
{
    struct fabric_end *ends[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        memset(ends[i], 0, sizeof(*ends[i]));
        end_options(ends[i], &options[i], "tcp");
        options[i].address = "127.0.0.1";
        options[i].lanes = 2;
        options[i].connections_max = 16;
        options[i].stall_ns = 500 * SL_NS_PER_MS;
        options[i].movers = 0;
    }
    middle_open();
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
    end_close(&c);
    for (uint32_t i = 0; i < wire_count; i++) {
        wire_end(&wires[i]);
        free(wires[i].tape[0]);
        free(wires[i].tape[1]);
    }
    close(listener);
}

static void open_both(void)
{
    struct sl_error why = {0};
    ck_assert_int_eq(end_open(&a, &options[0], MEMORY, 0, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options[1], MEMORY, 0, &why), SL_OK);
    UNTIL(a.registered && b.registered && a.link == SL_FABRIC_UP);
}

static uint32_t key_of_b(void)
{
    uint32_t key = 0;
    const struct sl_fabric_grant want = {
        .memory = b.memory, .peer = b.peer, .length_bytes = MEMORY};
    (void)end_grant(&b, &want);
    ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, b.key, b.key_bytes, &key, NULL), SL_OK);
    return key;
}

static void plaintext_fill(unsigned char *at)
{
    for (size_t i = 0; i < MEMORY; i++) {
        at[i] = (unsigned char)PLAINTEXT[i % (sizeof(PLAINTEXT) - 1)];
    }
}

static bool is_filled(const unsigned char *at, unsigned char with)
{
    return at[0] == with && memcmp(at, at + 1, MEMORY - 1) == 0;
}

static bool on_tape(const void *what, size_t length_bytes)
{
    for (uint32_t i = 0; i < wire_count; i++) {
        for (int way = 0; way < 2; way++) {
            if (memmem(wires[i].tape[way], wires[i].said[way], what, length_bytes) != NULL) {
                return true;
            }
        }
    }
    return false;
}

static void read_by(uint32_t key, uint64_t bytes)
{
    uint32_t before = a.done_count;
    ck_assert_int_eq(end_post(&a, key, 0, bytes, 1, SL_NEVER_NS), SL_OK);
    UNTIL(a.done_count > before);
    ck_assert_int_eq(a.dones[before].code, SL_OK);
}

/* Which of the two is set to send in the clear. */
static const struct {
    bool a_clear, b_clear, encrypted;
    uint32_t movers;
} settings[] = {{false, false, true, 0}, {false, false, true, 2}, {true, false, true, 0},
                {false, true, true, 0},  {true, true, false, 0},  {true, true, false, 2}};

static void settings_take(int i)
{
    options[0].clear = settings[i].a_clear;
    options[1].clear = settings[i].b_clear;
    options[0].movers = options[1].movers = settings[i].movers;
}

START_TEST(who_records_sees_no_secret)
    {
        struct sl_wire_address address;
        settings_take(_i);
        open_both();
        uint32_t key = key_of_b();
        plaintext_fill(b.bytes);
        read_by(key, MEMORY);
        read_by(key, 1000);
        ck_assert_mem_eq(a.bytes, b.bytes, MEMORY);

        ck_assert_uint_gt(flowed[ANSWERED], MEMORY);
        ck_assert_int_eq(sl_wire_address_read(b.address, SL_WIRE_ADDRESS_BYTES, &address, NULL),
                         SL_OK);
        ck_assert(!on_tape(address.psk, sizeof(address.psk)));
        ck_assert(!on_tape(address.psk, 16));
        struct sl_wire_key wire;
        ck_assert_int_eq(sl_wire_key_read(b.key, SL_WIRE_KEY_BYTES, &wire, NULL), SL_OK);
        ck_assert(!on_tape(wire.token, sizeof(wire.token)));
        ck_assert(!on_tape(wire.token, 12));
        /* Plaintext is readable. */
        ck_assert_int_eq(on_tape(PLAINTEXT, sizeof(PLAINTEXT) - 1), !settings[_i].encrypted);
        ck_assert_int_eq(on_tape(PLAINTEXT, 16), !settings[_i].encrypted);
    }
END_TEST

/* Replays all bytes sent to b over one connection on another one. */
START_TEST(what_was_recorded_gets_nothing)
    {
        struct sl_fabric_stats before, after;
        settings_take(_i < 2 ? _i : _i + 2); /* encrypted, and in the clear */
        open_both();
        uint32_t key = key_of_b();
        plaintext_fill(b.bytes);
        read_by(key, MEMORY);
        memset(b.bytes, 0x22, MEMORY);
        sl_fabric_stats(b.fabric, &before);
        uint32_t recorded = wire_count;
        for (uint32_t i = 0; i < recorded; i++) {
            unsigned char heard[4096];
            size_t said = 0, got = 0;
            bool ended = false;
            int fd = reach(door);
            uint64_t until_ns = sl_clock_monotonic_ns() + TURNS_S * SL_NS_PER_S;
            while (!ended) { /* b ends it at once, or after waiting too long for more */
                ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
                ssize_t put = send(fd, wires[i].tape[ASKED] + said, wires[i].said[ASKED] - said,
                                   MSG_DONTWAIT | MSG_NOSIGNAL);
                said += put > 0 ? (size_t)put : 0;
                turn();
                ssize_t more = recv(fd, heard, sizeof(heard), MSG_DONTWAIT);
                ended = more == 0 || (more < 0 && errno != EAGAIN);
                got += more > 0 ? (size_t)more : 0;
            }
            ck_assert_uint_lt(got, 1024); /* a greeting, and no value */
            close(fd);
        }
        ck_assert(is_filled(b.bytes, 0x22));
        sl_fabric_stats(b.fabric, &after);
        ck_assert_uint_eq(after.served_read_bytes, before.served_read_bytes);
        ck_assert_uint_ge(after.refused + after.late + after.records_bad,
                          before.refused + before.late + before.records_bad + recorded);
    }
END_TEST

/* Flips one bit anywhere after the greetings. */
START_TEST(what_was_changed_is_an_error)
    {
        struct sl_fabric_stats stats;
        options[0].movers = options[1].movers = _i % 2 == 0 ? 0 : 2;
        open_both();
        uint32_t key = key_of_b();
        pattern_fill(b.bytes, MEMORY, 9);
        flip_way = ANSWERED;
        flip_at = flowed[flip_way] + (uint64_t)_i * 37441 % (MEMORY - 50000);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 1, SL_NEVER_NS), SL_OK);
        UNTIL(a.done_count == 1);
        ck_assert_int_ne(a.dones[0].code, SL_OK);
        ck_assert_uint_ge(a.downs, 1);
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.records_bad, 1);
        UNTIL(a.link == SL_FABRIC_UP); /* the next link works fully */
        read_by(key, MEMORY);
        ck_assert(pattern_is(a.bytes, MEMORY, 9));
    }
END_TEST

/* In the clear the change is found by the digest, which was sent on another path. */
START_TEST(in_the_clear_a_digest_finds_what_was_changed)
    {
        settings_take(4);
        open_both();
        uint32_t key = key_of_b();
        pattern_fill(b.bytes, MEMORY, 9);
        struct sl_digest digest = sl_digest_of(b.bytes, SL_MIB);
        const struct sl_fabric_piece piece = {
            .memory = a.memory, .key = key, .length_bytes = SL_MIB, .digest = &digest};
        const struct sl_fabric_transfer transfer = {
            .peer = a.peer, .pieces = &piece, .piece_count = 1, .deadline_ns = SL_NEVER_NS};
        flip_way = ANSWERED;
        flip_at = flowed[ANSWERED] + 500000;
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        UNTIL(a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_ERR_CORRUPT);
    }
END_TEST

/* c is a peer of b as well, and presents what b granted to a. */
START_TEST(a_grant_of_another_peer_is_refused)
    {
        struct sl_error why = {0};
        struct sl_fabric_stats stats;
        uint32_t key = 0, peer_c = 0;
        for (int i = 0; i < 3; i++) {
            options[i].clear = _i == 1;
        }
        open_both();
        (void)key_of_b();
        pattern_fill(b.bytes, MEMORY, 3);
        ck_assert_int_eq(sl_fabric_peer_add(b.fabric, &peer_c, &why), SL_OK);
        ck_assert_int_eq(end_open(&c, &options[2], MEMORY, 0, &why), SL_OK);
        memset(c.bytes, 0x77, MEMORY);
        uint64_t until_ns = sl_clock_monotonic_ns() + TURNS_S * SL_NS_PER_S;
        while (c.link != SL_FABRIC_UP || !c.registered) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            if (c.address_bytes > 0) {
                ck_assert_int_eq(
                    sl_fabric_peer_address(b.fabric, peer_c, c.address, c.address_bytes, &why),
                    SL_OK);
                c.address_bytes = 0;
            }
            end_step(&b, 1);
            end_step(&c, 1);
            if (b.address_bytes > 0) { /* for c: b's latest one */
                ck_assert_int_eq(
                    sl_fabric_peer_address(c.fabric, c.peer, b.address, b.address_bytes, &why),
                    SL_OK);
                b.address_bytes = 0;
            }
        }
        ck_assert_int_eq(sl_fabric_key_open(c.fabric, c.peer, b.key, SL_WIRE_KEY_BYTES, &key, &why),
                         SL_OK);
        ck_assert_int_eq(end_post(&c, key, 0, SL_MIB, 1, SL_NEVER_NS), SL_OK);
        while (c.done_count == 0) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), until_ns);
            end_step(&b, 1);
            end_step(&c, 1);
        }
        ck_assert_int_eq(c.dones[0].code, SL_ERR_PERMISSION);
        ck_assert(pattern_is(b.bytes, MEMORY, 3));
        ck_assert(is_filled(c.bytes, 0x77));
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_ge(stats.refused, 1);
        ck_assert_uint_eq(stats.served_read_bytes, 0);
    }
END_TEST

static uint64_t lets_from, lets_bytes; /* what b allows a to read */
static bool lets(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes)
{
    (void)context;
    ck_assert_uint_eq(cookie, 4711);
    return offset_bytes >= lets_from && offset_bytes + length_bytes <= lets_from + lets_bytes;
}

/* The owner of the memory decides how far a grant may be read at any time. */
START_TEST(a_grant_reaches_as_far_as_its_owner_says)
    {
        uint32_t key = 0;
        options[1].events.may_read = lets;
        options[0].clear = options[1].clear = _i == 1;
        lets_from = 4096;
        lets_bytes = 200000;
        open_both();
        pattern_fill(b.bytes, MEMORY, 5);
        const struct sl_fabric_grant want = {
            .memory = b.memory, .peer = b.peer, .length_bytes = MEMORY, .cookie = 4711};
        (void)end_grant(&b, &want);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, b.key, b.key_bytes, &key, NULL),
                         SL_OK);
        const struct {
            uint64_t offset_bytes, length_bytes;
            sl_err want;
        } reads[] = {{4096, 200000, SL_OK},
                     {4095, 10, SL_ERR_PERMISSION},
                     {4096, 200001, SL_ERR_PERMISSION},
                     {204095, 1, SL_OK},
                     {204096, 1, SL_ERR_PERMISSION}};
        for (uint32_t i = 0; i < SL_COUNT(reads); i++) {
            ck_assert_int_eq(
                end_post(&a, key, reads[i].offset_bytes, reads[i].length_bytes, 1, SL_NEVER_NS),
                SL_OK);
            UNTIL(a.done_count == i + 1);
            ck_assert_int_eq(a.dones[i].code, reads[i].want);
        }
        ck_assert_mem_eq(a.bytes + 4096, b.bytes + 4096, 200000);
        ck_assert_uint_eq(a.bytes[204096], 0);
    }
END_TEST

/* b removes its peer a: a's reads end, and a cannot reconnect. */
START_TEST(a_peer_that_is_removed_is_out)
    {
        settings_take(_i == 0 ? 1 : 5);
        open_both();
        uint32_t key = key_of_b();
        pattern_fill(b.bytes, MEMORY, 4);
        ck_assert_int_eq(end_post(&a, key, 0, MEMORY, 1, SL_NEVER_NS), SL_OK);
        for (int i = 0; i < 3; i++) {
            turn();
        }
        sl_fabric_peer_remove(b.fabric, b.peer);
        a_is_out = true;
        UNTIL(a.link == SL_FABRIC_DOWN && a.done_count == 1);
        for (int i = 0; i < 20; i++) {
            turn();
        }
        memset(a.bytes, 0x33, MEMORY);
        uint64_t until_ns = sl_clock_monotonic_ns() + SL_NS_PER_S / 2;
        while (sl_clock_monotonic_ns() < until_ns) {
            turn();
            ck_assert_int_ne(a.link, SL_FABRIC_UP);
        }
        ck_assert(is_filled(a.bytes, 0x33));
    }
END_TEST

START_TEST(another_release_is_refused_by_name)
    {
        static const uint32_t lengths[] = {56, 80}; /* of an address of version 1, and of 2 */
        struct sl_error why = {0};
        const unsigned char old[80] = {0x53, 0x4c, 0x54, 0x4c, (unsigned char)(_i + 1),
                                       4}; /* "SLTL" */
        ck_assert_int_eq(end_open(&a, &options[0], MEMORY, 0, &why), SL_OK);
        ck_assert_int_eq(sl_fabric_peer_address(a.fabric, a.peer, old, lengths[_i], &why),
                         SL_ERR_VERSION);
        ck_assert_ptr_nonnull(strstr(why.text, _i == 0 ? "version 1, not 3" : "version 2, not 3"));
    }
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("fabric_secure");
    TCase *tests = tcase_create("middle");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, who_records_sees_no_secret, 0, SL_COUNT(settings));
    tcase_add_loop_test(tests, what_was_recorded_gets_nothing, 0, 4);
    tcase_add_loop_test(tests, what_was_changed_is_an_error, 0, 12);
    tcase_add_test(tests, in_the_clear_a_digest_finds_what_was_changed);
    tcase_add_loop_test(tests, a_grant_of_another_peer_is_refused, 0, 2);
    tcase_add_loop_test(tests, a_grant_reaches_as_far_as_its_owner_says, 0, 2);
    tcase_add_loop_test(tests, a_peer_that_is_removed_is_out, 0, 2);
    tcase_add_loop_test(tests, another_release_is_refused_by_name, 0, 2);
    suite_add_tcase(all, tests);
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
