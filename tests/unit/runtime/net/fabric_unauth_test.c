/* tests/unit/runtime/net/fabric_unauth_test.c - the tcp fabric under connections that never send a
 * HELLO. */
#include "runtime/base/sl_clock.h"
#include "tests/support/fabric_end.h"
#include "tests/support/flood.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY      (2 * SL_MIB)
#define A_SECOND    SL_NS_PER_S
#define CONNECTIONS 16u

static struct fabric_end a, b; /* a asks, b owns */
static uint64_t clock_ns;
static struct sl_fabric_options options_a, options_b;
static struct flood *flood;

static void setup(void)
{
    clock_ns = 1000 * A_SECOND;
    end_options(&a, &options_a, "tcp");
    end_options(&b, &options_b, "tcp");
    options_a.address = options_b.address = "127.0.0.1";
    options_a.stall_ns = options_b.stall_ns = 10 * A_SECOND;
    options_a.movers = options_b.movers = 0;
    options_b.connections_max = CONNECTIONS;
}

static void teardown(void)
{
    flood_stop(&flood);
    end_close(&a);
    end_close(&b);
}

static void open_b(uint64_t *now_ns)
{
    struct sl_error why = {0};
    b.now_ns = now_ns;
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, 0, &why), SL_OK);
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
    while (!b.registered || b.address_bytes == 0) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(&b, 1);
    }
}

static struct sockaddr_in address_of_b(void)
{
    struct sl_wire_address address = guest_address(&b);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address.port)};
    memcpy(&to.sin_addr, address.ip, 4);
    return to;
}

/* ---- a flood ---- */

static const struct {
    uint32_t addresses;
    const char *drips; /* the first byte of a handshake now and then */
} floods[] = {{1, NULL}, {2, "\x16"}, {300, NULL}, {5000, "\x16"}};

static uint64_t pushed_out(void)
{
    struct sl_fabric_stats stats;
    sl_fabric_stats(b.fabric, &stats);
    return stats.over_limit;
}

START_TEST(a_peer_gets_in_and_stays_while_a_flood_takes_every_place)
    {
        struct sl_error why = {0};
        uint32_t key = 0;
        open_b(NULL);
        const struct sockaddr_in to = address_of_b();
        flood = flood_start(&to, floods[_i].addresses, floods[_i].drips);
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        while (pushed_out() < 4 * CONNECTIONS) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&b, 1);
        }
        ck_assert_int_eq(end_open(&a, &options_a, MEMORY, 0, &why), SL_OK);
        give_up_ns = sl_clock_monotonic_ns() + 10 * A_SECOND;
        while (a.link != SL_FABRIC_UP || !a.registered) {
            ck_assert_msg(sl_clock_monotonic_ns() < give_up_ns, "no link: %s", a.link_why);
            pair_step(&a, &b);
        }
        pattern_fill(b.bytes, MEMORY, 3);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        uint64_t before = flood->connections, cookie = 0;
        do {
            memset(a.bytes, 0, MEMORY);
            cookie++;
            ck_assert_int_eq(
                end_post(&a, key, 0, MEMORY, cookie, sl_clock_monotonic_ns() + 30 * A_SECOND),
                SL_OK);
            PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
            ck_assert_int_eq(end_done_of(&a, cookie)->code, SL_OK);
            ck_assert(pattern_is(a.bytes, MEMORY, 3));
        } while (flood->connections < before + 20 * CONNECTIONS || cookie < 20);
        ck_assert_uint_eq(a.ups, 1);
        ck_assert_int_eq(a.link, SL_FABRIC_UP);
    }
END_TEST

/* ---- one at a time, with a stopped clock ---- */

static bool is_closed(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

/* Runs b until the connection is over. */
static void await_closed(int fd)
{
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 10 * A_SECOND;
    while (!is_closed(fd)) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(&b, 2);
    }
}

static void turn(void)
{
    for (unsigned i = 0; i < 20; i++) {
        end_step(&b, 2);
    }
}

/* Connects as b's peer, in the clear. */
static int greeted(uint32_t host)
{
    const struct sockaddr_in to = address_of_b();
    struct sl_records sealer;
    int fd = flood_connect(&to, host, 1);
    ck_assert_int_ge(fd, 0);
    guest_greet(&b, fd, &sealer);
    sl_records_fini(&sealer);
    return fd;
}

static int silent(uint32_t host)
{
    const struct sockaddr_in to = address_of_b();
    int fd = flood_connect(&to, host, 1);
    ck_assert_int_ge(fd, 0);
    turn();
    return fd;
}

START_TEST(who_greeted_is_not_pushed_out_by_strangers)
    {
        int peers[4], fds[6];
        options_b.connections_max = 4;
        options_b.clear = true;
        open_b(&clock_ns);
        for (uint32_t i = 0; i < 3; i++) {
            peers[i] = greeted(1);
        }
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = silent(10 + i);
        }
        for (uint32_t i = 0; i + 1 < SL_COUNT(fds); i++) {
            await_closed(fds[i]); /* with one slot, the next always replaces the last */
        }
        ck_assert(!is_closed(fds[5]));
        peers[3] = greeted(1); /* and a peer replaces the last one */
        await_closed(fds[5]);
        await_closed(silent(20));
        for (uint32_t i = 0; i < SL_COUNT(peers); i++) {
            ck_assert(!is_closed(peers[i]));
            close(peers[i]);
        }
        ck_assert_uint_eq(pushed_out(), SL_COUNT(fds) + 1);
    }
END_TEST

/* True even if it has been answered before. */
static bool is_over(int fd)
{
    char bytes[4096];
    ssize_t got = 1;
    while (got > 0) {
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    }
    return got == 0 || errno != EAGAIN;
}

/* A peer's first message may be a replay: it names the peer, and proves nothing yet. */
START_TEST(a_name_that_is_said_again_and_again_takes_few_places)
    {
        unsigned char hello[2048];
        int fds[34];
        struct sl_tls *tls = NULL;
        struct sl_handshake *handshake = NULL;
        options_b.connections_max = SL_COUNT(fds) + 1;
        options_b.lanes = 1; /* those of a peer may be 16 */
        options_b.clear = true;
        open_b(&clock_ns);
        const struct sl_wire_address address = guest_address(&b);
        const struct sl_handshake_options as = {.id = address.id, .key = address.psk};
        ck_assert_int_eq(sl_tls_open(SL_AEAD_BEST, &tls, NULL), SL_OK);
        ck_assert_int_eq(sl_handshake_begin(tls, &as, &handshake, NULL), SL_OK);
        (void)sl_handshake_step(handshake, "", 0, NULL);
        ssize_t bytes = sl_handshake_output(handshake, hello, sizeof(hello));
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = silent(10);
            ck_assert_int_eq(send(fds[i], hello, (size_t)bytes, 0), bytes);
            turn();
        }
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            ck_assert_int_eq(is_over(fds[i]), i < 2); /* 32 are left */
        }
        int others[] = {silent(20), silent(21)};
        int peer = greeted(1);
        ck_assert(!is_closed(others[1]) && !is_closed(peer));
        sl_handshake_end(&handshake);
        sl_tls_close(&tls);
    }
END_TEST

START_TEST(an_address_has_so_many_strangers)
    {
        int fds[6];
        options_b.unauthenticated_max = 3;
        options_b.clear = true;
        open_b(&clock_ns);
        int other = silent(9);
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = silent(10);
        }
        for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
            ck_assert_int_eq(is_closed(fds[i]), i < 3);
        }
        ck_assert(!is_closed(other));
        close(greeted(10)); /* a timely HELLO is accepted, even from there */
        ck_assert(is_closed(fds[3]));
    }
END_TEST

START_TEST(a_stranger_has_so_long_to_greet)
    {
        struct sl_fabric_stats stats;
        options_b.handshake_ns = A_SECOND / 2;
        options_b.clear = true;
        open_b(&clock_ns);
        int peer = greeted(1), fd = silent(2);
        ck_assert_int_eq(send(fd, "S", 1, 0), 1);
        clock_ns += A_SECOND / 2 - 1;
        turn();
        ck_assert(!is_closed(fd));
        clock_ns += 1; /* far less than stall_ns */
        await_closed(fd);
        ck_assert(!is_closed(peer));
        sl_fabric_stats(b.fabric, &stats);
        ck_assert_uint_eq(stats.late, 1);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_unauthenticated_max");
    TCase *tests = tcase_create("tcp");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_peer_gets_in_and_stays_while_a_flood_takes_every_place, 0,
                        SL_COUNT(floods));
    tcase_add_test(tests, who_greeted_is_not_pushed_out_by_strangers);
    tcase_add_test(tests, a_name_that_is_said_again_and_again_takes_few_places);
    tcase_add_test(tests, an_address_has_so_many_strangers);
    tcase_add_test(tests, a_stranger_has_so_long_to_greet);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
