/* tests/unit/runtime/net/movers_test.c - threads that receive and send values on sockets. */
#include "runtime/base/sl_base.h"
#include "runtime/base/sl_clock.h"
#include "runtime/net/fabric/core/movers.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define VALUE  (SL_OPENER_SLICE_BYTES * 2 + 77)
#define PAIRS  8u
#define WAIT_S 30u

static struct sl_movers *movers;
static int wake_fd, ends[PAIRS][2]; /* [0]: ours */
static struct sl_low_water lows[PAIRS];
static struct sl_records openers[PAIRS]; /* in the clear */
static unsigned char source[VALUE], target[PAIRS][VALUE + 16];

static void setup(void)
{
    struct sl_error why = {0};
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sl_err err = sl_movers_open(2, 2 * PAIRS, wake_fd, &movers, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    for (uint32_t i = 0; i < PAIRS; i++) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
        lows[i] = (struct sl_low_water){0};
        ck_assert_int_eq(sl_records_init(&openers[i], &why), SL_OK);
        openers[i].clear = true;
    }
    for (uint32_t i = 0; i < VALUE; i++) {
        source[i] = (unsigned char)(i * 2654435761u >> 11);
    }
    memset(target, 0x55, sizeof(target));
}

static void teardown(void)
{
    sl_movers_close(&movers);
    for (uint32_t i = 0; i < PAIRS; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
        sl_records_fini(&openers[i]);
    }
    close(wake_fd);
}

/* Waits for the next completion. */
static struct sl_mover_done take(void)
{
    struct sl_mover_done done = {0};
    uint64_t give_up_ns = sl_clock_monotonic_ns() + WAIT_S * SL_NS_PER_S;
    sl_movers_flush(movers);
    while (sl_movers_take(movers, &done, 1) == 0) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        struct pollfd wait = {.fd = wake_fd, .events = POLLIN};
        uint64_t count = 0;
        (void)poll(&wait, 1, 1000);
        ssize_t got = read(wake_fd, &count, sizeof(count));
        (void)got;
    }
    return done;
}

static void put(uint32_t pair, const void *at, size_t length_bytes)
{
    const unsigned char *bytes = at;
    while (length_bytes > 0) {
        ssize_t sent = send(ends[pair][1], bytes, length_bytes, MSG_NOSIGNAL);
        ck_assert_int_gt(sent, 0);
        bytes += sent;
        length_bytes -= (size_t)sent;
    }
}

static void receive(uint32_t pair, uint32_t length_bytes, struct sl_digest_stream *digest)
{
    const struct sl_mover_receive what = {.fd = ends[pair][0],
                                          .to = sl_runs_of(target[pair], length_bytes),
                                          .length_bytes = length_bytes,
                                          .low = &lows[pair],
                                          .digest = digest,
                                          .opener = &openers[pair]};
    sl_movers_receive(movers, 2 * pair, &what);
}

START_TEST(a_value_arrives_with_its_digest)
    {
        struct sl_digest_stream digest;
        sl_digest_start(&digest);
        receive(3, VALUE, &digest);
        sl_movers_flush(movers);

        put(3, source, VALUE);
        struct sl_mover_done done = take();

        ck_assert_uint_eq(done.slot, 6);
        ck_assert_int_eq(done.result, (int32_t)VALUE);
        ck_assert_mem_eq(target[3], source, VALUE);
        ck_assert_uint_eq(target[3][VALUE], 0x55);
        ck_assert(sl_digest_equal(sl_digest_finish(&digest), sl_digest_of(source, VALUE)));
    }
END_TEST

/* More runs than a receive takes, with gaps; the next value follows only after the last run. */
START_TEST(a_value_goes_to_its_runs)
    {
        enum { RUNS = 150 };
        static unsigned char room[2 * VALUE], want[sizeof(room)];
        static struct sl_run runs[RUNS];
        struct sl_digest_stream digest;
        uint32_t at = 0, left = VALUE;
        memset(room, 0x55, sizeof(room));
        memset(want, 0x55, sizeof(want));
        for (uint32_t i = 0; i < RUNS; i++) { /* some of a byte, one of more than a slice */
            uint32_t length = i + 1 == RUNS ? left
                              : i % 3 == 0  ? 1
                              : i == 50     ? SL_OPENER_SLICE_BYTES + 9
                                            : 700 + i;
            ck_assert_uint_le(length, left);
            runs[i] = (struct sl_run){.next = i + 1 < RUNS ? &runs[i + 1] : NULL,
                                      .at = room + at,
                                      .length_bytes = length};
            memcpy(want + at, source + VALUE - left, length);
            at += length + i % 4;
            left -= length;
        }
        ck_assert_uint_le(at, sizeof(room));
        sl_digest_start(&digest);
        const struct sl_mover_receive what = {.fd = ends[2][0],
                                              .to = sl_runs_from(&runs[0]),
                                              .length_bytes = VALUE,
                                              .low = &lows[2],
                                              .digest = &digest,
                                              .opener = &openers[2]};
        sl_movers_receive(movers, 4, &what);
        sl_movers_flush(movers);
        put(2, source, VALUE);
        put(2, source, 10);
        struct sl_mover_done done = take();

        ck_assert_int_eq(done.result, (int32_t)VALUE);
        ck_assert_mem_eq(room, want, sizeof(room));
        ck_assert(sl_digest_equal(sl_digest_finish(&digest), sl_digest_of(source, VALUE)));
        receive(2, 10, NULL);
        ck_assert_int_eq(take().result, 10);
        ck_assert_mem_eq(target[2], source, 10);
    }
END_TEST

/* Bytes after the value belong to the next one. */
START_TEST(what_follows_comes_along)
    {
        put(0, source, 1000);
        put(0, source, 100);
        receive(0, 1000, NULL);
        ck_assert_int_eq(take().result, 1000);
        receive(0, 100, NULL);
        ck_assert_int_eq(take().result, 100);
        ck_assert_mem_eq(target[0], source, 100);
        ck_assert_mem_eq(target[0] + 100, source + 100, 900);
    }
END_TEST

START_TEST(a_cancelled_receive_touches_nothing_more)
    {
        struct sl_digest_stream digest;
        sl_digest_start(&digest);
        uint32_t here_bytes = (uint32_t)_i * 40000u;
        put(1, source, here_bytes);
        receive(1, VALUE, &digest);
        sl_movers_flush(movers);
        sl_movers_cancel(movers, 2);
        sl_movers_cancel(movers, 2); /* once is enough */
        struct sl_mover_done done = take();
        ck_assert(done.result == -ECANCELED ||
                  (done.result > 0 && (uint32_t)done.result <= here_bytes));
        uint32_t got_bytes = done.result < 0 ? 0 : (uint32_t)done.result;

        memset(target[1], 0x77, sizeof(target[1]));
        put(1, source + here_bytes, 1000);
        /* The next one is not affected by that cancel, and gets every byte that was not taken. */
        receive(1, here_bytes + 1000 - got_bytes, NULL);
        done = take();

        ck_assert_int_eq(done.result, (int32_t)(here_bytes + 1000 - got_bytes));
        ck_assert_mem_eq(target[1], source + got_bytes, here_bytes + 1000 - got_bytes);
        ck_assert_uint_eq(target[1][here_bytes + 1000 - got_bytes], 0x77);
        sl_movers_cancel(movers, 2); /* none is in progress */
        sl_movers_cancel(movers, 5); /* none ever was */
        sl_movers_flush(movers);
        ck_assert_uint_eq(sl_movers_take(movers, &done, 1), 0);
    }
END_TEST

START_TEST(an_end_of_the_peer_is_an_end)
    {
        receive(2, VALUE, NULL);
        sl_movers_flush(movers);
        put(2, source, 500);
        ck_assert_int_eq(shutdown(ends[2][1], SHUT_WR), 0);
        struct sl_mover_done done = take();
        ck_assert_int_eq(done.result, 500); /* the received bytes; the next call gets the end */
        receive(2, VALUE, NULL);
        done = take();
        ck_assert_int_eq(done.result, 0);
    }
END_TEST

static struct iovec message_parts[2];
static struct msghdr message;
static struct sl_records plain = {.clear = true};
static const struct sl_seal_job job = {
    .sealer = &plain, .message = &message, .parts = message_parts};

static void send_value(uint32_t slot, int fd)
{
    message_parts[0] = (struct iovec){.iov_base = source, .iov_len = 100};
    message_parts[1] = (struct iovec){.iov_base = source + 100, .iov_len = VALUE - 100};
    message = (struct msghdr){.msg_iov = message_parts, .msg_iovlen = 2};
    sl_movers_send(movers, slot, fd, &job);
    sl_movers_flush(movers);
}

START_TEST(a_message_goes_out_whole)
    {
        static unsigned char got[VALUE];
        send_value(9, ends[4][0]);
        for (size_t at = 0; at < VALUE;) {
            ssize_t some = recv(ends[4][1], got + at, VALUE - at, 0);
            ck_assert_int_gt(some, 0);
            at += (size_t)some;
        }
        struct sl_mover_done done = take();
        ck_assert_uint_eq(done.slot, 9);
        ck_assert_int_eq(done.result, 1);
        ck_assert_mem_eq(got, source, VALUE);
    }
END_TEST

/* A peer that reads nothing, and is given up. */
START_TEST(a_cancelled_send_ends)
    {
        struct sl_mover_done done;
        do { /* until the socket is full */
            send_value(11, ends[5][0]);
            if (_i == 0) {
                ck_assert_int_eq(shutdown(ends[5][0], SHUT_RDWR), 0);
            }
            sl_movers_cancel(movers, 11);
            done = take();
        } while (done.result > 0);
        ck_assert_uint_gt(message.msg_iovlen, 0);
    }
END_TEST

START_TEST(all_move_at_once)
    {
        struct sl_digest_stream digests[PAIRS];
        bool ended[PAIRS] = {false};
        for (uint32_t i = 0; i < PAIRS; i++) {
            sl_digest_start(&digests[i]);
            receive(i, VALUE, &digests[i]);
        }
        sl_movers_flush(movers);
        for (uint32_t at = 0; at < VALUE; at += 7777) {
            for (uint32_t i = 0; i < PAIRS; i++) {
                put(i, source + at, SL_MIN(VALUE - at, 7777u));
            }
        }
        for (uint32_t n = 0; n < PAIRS; n++) {
            struct sl_mover_done done = take();
            ck_assert(done.slot % 2 == 0 && !ended[done.slot / 2]);
            ended[done.slot / 2] = true;
            ck_assert_int_eq(done.result, (int32_t)VALUE);
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            ck_assert_mem_eq(target[i], source, VALUE);
            ck_assert(sl_digest_equal(sl_digest_finish(&digests[i]), sl_digest_of(source, VALUE)));
        }
    }
END_TEST

/* ---- chains ---- */

#define CHAIN       5u /* values of one receive */
#define CHAIN_VALUE (SL_OPENER_SLICE_BYTES + 1001)

static struct {
    struct sl_mover_step steps[CHAIN - 1];
    struct sl_digest_stream digests[CHAIN];
    unsigned char stream[CHAIN * (SL_WIRE_ANSWER_BYTES + CHAIN_VALUE)]; /* as a peer sends it */
} chain;

/* Value i is stored in target[i]; the stream begins with the first value's bytes. */
static uint32_t chain_receive(void)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < CHAIN; i++) {
        sl_digest_start(&chain.digests[i]);
        if (i > 0) {
            struct sl_mover_step *step = &chain.steps[i - 1];
            *step = (struct sl_mover_step){.to = sl_runs_of(target[i], CHAIN_VALUE),
                                           .length_bytes = CHAIN_VALUE,
                                           .digest = &chain.digests[i]};
            memset(step->head, (int)i, sizeof(step->head));
            memcpy(chain.stream + bytes, step->head, sizeof(step->head));
            bytes += SL_WIRE_ANSWER_BYTES;
        }
        memcpy(chain.stream + bytes, source + i, CHAIN_VALUE);
        bytes += CHAIN_VALUE;
    }
    const struct sl_mover_receive what = {.fd = ends[1][0],
                                          .to = sl_runs_of(target[0], CHAIN_VALUE),
                                          .length_bytes = CHAIN_VALUE,
                                          .low = &lows[1],
                                          .opener = &openers[1],
                                          .digest = &chain.digests[0],
                                          .steps = chain.steps,
                                          .step_count = CHAIN - 1};
    sl_movers_receive(movers, 2, &what);
    sl_movers_flush(movers);
    return bytes;
}

static uint32_t stream_at(uint32_t value)
{
    return value * (SL_WIRE_ANSWER_BYTES + CHAIN_VALUE);
}

static void check_value(uint32_t value, const struct sl_mover_done *done, bool more)
{
    ck_assert_uint_eq(done->slot, 2);
    ck_assert_int_eq(done->result, (int32_t)CHAIN_VALUE);
    ck_assert(done->more == more);
    ck_assert(!done->in_head);
    ck_assert_mem_eq(target[value], source + value, CHAIN_VALUE);
    ck_assert_uint_eq(target[value][CHAIN_VALUE], 0x55);
    ck_assert(sl_digest_equal(sl_digest_finish(&chain.digests[value]),
                              sl_digest_of(source + value, CHAIN_VALUE)));
}

static const uint32_t pieces[] = {
    7, 24, 4096, CHAIN_VALUE, CHAIN_VALUE + 10, CHAIN_VALUE + 24, sizeof(chain.stream)};

START_TEST(a_chain_arrives_however_it_is_cut)
    {
        uint32_t bytes = chain_receive();
        struct sl_mover_done done;
        for (uint32_t at = 0; at < bytes; at += pieces[_i]) {
            put(1, chain.stream + at, SL_MIN(pieces[_i], bytes - at));
        }
        for (uint32_t i = 0; i < CHAIN; i++) {
            done = take();
            check_value(i, &done, i < CHAIN - 1);
        }
    }
END_TEST

/* An idle mover has woken its owner for each value. */
START_TEST(a_value_is_told_while_the_next_one_stays_away)
    {
        uint32_t at = 0;
        (void)chain_receive();
        for (uint32_t i = 0; i < CHAIN; i++) {
            struct pollfd wait = {.fd = wake_fd, .events = POLLIN};
            struct sl_mover_done done;
            uint64_t count = 0;
            uint32_t end = i + 1 < CHAIN ? stream_at(i + 1) : stream_at(i) + CHAIN_VALUE;
            put(1, chain.stream + at, end - at); /* with the next one's head */
            at = end;

            int waked = poll(&wait, 1, WAIT_S * 1000);

            ck_assert_int_eq(waked, 1);
            ck_assert_int_eq((int)read(wake_fd, &count, sizeof(count)), (int)sizeof(count));
            ck_assert_uint_eq(sl_movers_take(movers, &done, 1), 1);
            check_value(i, &done, i < CHAIN - 1);
        }
    }
END_TEST

/* An unexpected head is left to the owner, and no byte after it is touched. */
START_TEST(another_head_ends_a_chain)
    {
        const uint32_t first = stream_at(2) - SL_WIRE_ANSWER_BYTES;
        const uint32_t early = _i == 0 ? SL_WIRE_ANSWER_BYTES : 5;
        (void)chain_receive();
        chain.stream[first + 23] ^= 1;
        put(1, chain.stream, first + early);
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_mover_done done = take();
            check_value(i, &done, true);
        }
        put(1, chain.stream + first + early, SL_WIRE_ANSWER_BYTES - early);
        struct sl_mover_done done = take();
        ck_assert(done.in_head);
        ck_assert(!done.more);
        ck_assert_int_le(done.result, 0);
        ck_assert_uint_eq(target[2][0], 0x55);
        receive(1, SL_WIRE_ANSWER_BYTES, NULL);
        ck_assert_int_eq(take().result, SL_WIRE_ANSWER_BYTES);
        ck_assert_mem_eq(target[1], chain.stream + first, SL_WIRE_ANSWER_BYTES);
    }
END_TEST

/* After the end no byte is written, whether the chain was within a value or a head. */
START_TEST(a_cancelled_chain_touches_nothing_more)
    {
        const uint32_t put_bytes = stream_at(2) + (_i == 0 ? 1000u : 0u) - (_i == 2 ? 20u : 0u);
        uint32_t bytes = chain_receive();
        put(1, chain.stream, put_bytes);
        struct sl_mover_done done = take();
        check_value(0, &done, true);
        done = take();
        check_value(1, &done, true);
        sl_movers_cancel(movers, 2);
        done = take();
        ck_assert(!done.more);
        uint32_t had_bytes = done.result > 0 && !done.in_head ? (uint32_t)done.result : 0;
        ck_assert_uint_le(had_bytes, 1000);
        memset(target[2] + had_bytes, 0x33, sizeof(target[2]) - had_bytes);
        put(1, chain.stream + put_bytes, SL_MIN(bytes - put_bytes, 100000u));
        const struct pollfd waits = {.fd = ends[1][0], .events = POLLIN};
        struct pollfd wait_for = waits;
        ck_assert_int_eq(poll(&wait_for, 1, 1000), 1); /* it is not read */
        for (uint32_t i = had_bytes; i < sizeof(target[2]); i++) {
            ck_assert_uint_eq(target[2][i], 0x33);
        }
    }
END_TEST

START_TEST(a_peer_that_ends_between_two_values_is_an_end)
    {
        (void)chain_receive();
        put(1, chain.stream, stream_at(1) - SL_WIRE_ANSWER_BYTES + 5);
        ck_assert_int_eq(shutdown(ends[1][1], SHUT_WR), 0);
        struct sl_mover_done done = take();
        check_value(0, &done, true);
        done = take();
        ck_assert(done.in_head);
        ck_assert_int_eq(done.result, 0);
    }
END_TEST

START_TEST(closing_ends_what_is_under_way)
    {
        for (uint32_t i = 0; i < PAIRS; i++) {
            receive(i, VALUE, NULL);
        }
        if (_i == 0) {
            sl_movers_flush(movers);
        }
        sl_movers_close(&movers);
        ck_assert_ptr_null(movers);
        memset(target, 0x66, sizeof(target));
        for (uint32_t i = 0; i < PAIRS; i++) {
            put(i, source, 1000);
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            ck_assert_uint_eq(target[i][0], 0x66);
        }
    }
END_TEST

START_TEST(half_of_the_cores_are_left)
    {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        ck_assert_uint_eq(sl_movers_count(0), 0);
        ck_assert_uint_le(sl_movers_count(64), cores == 2 ? 2 : (uint32_t)cores / 2);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("movers");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_value_arrives_with_its_digest);
    tcase_add_test(tests, a_value_goes_to_its_runs);
    tcase_add_test(tests, what_follows_comes_along);
    tcase_add_loop_test(tests, a_cancelled_receive_touches_nothing_more, 0, 5);
    tcase_add_test(tests, an_end_of_the_peer_is_an_end);
    tcase_add_test(tests, a_message_goes_out_whole);
    tcase_add_loop_test(tests, a_cancelled_send_ends, 0, 2);
    tcase_add_test(tests, all_move_at_once);
    tcase_add_loop_test(tests, a_chain_arrives_however_it_is_cut, 0, SL_COUNT(pieces));
    tcase_add_test(tests, a_value_is_told_while_the_next_one_stays_away);
    tcase_add_loop_test(tests, another_head_ends_a_chain, 0, 2);
    tcase_add_loop_test(tests, a_cancelled_chain_touches_nothing_more, 0, 3);
    tcase_add_test(tests, a_peer_that_ends_between_two_values_is_an_end);
    tcase_add_loop_test(tests, closing_ends_what_is_under_way, 0, 2);
    tcase_add_test(tests, half_of_the_cores_are_left);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
