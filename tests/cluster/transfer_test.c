/* tests/cluster/transfer_test.c - the tcp fabric between two network namespaces: transfers,
 * failures of the peer or the network. Needs root, ip(8) and veth; else skipped. */
#include "tests/support/fabric_remote.h"
#include "tests/support/netns.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY (32 * SL_MIB)
#define CHUNK  (24 * SL_MIB)

static struct remote remote;
static struct fabric_end end;
static struct remote_options theirs;
static struct sl_fabric_options ours;

/* stall: a second in tests of peers that die, otherwise long: this machine may be busy. */
static void join(uint64_t stall_ns)
{
    struct sl_error why = {0};
    end_options(&end, &ours, "tcp");
    ours.stall_ns = stall_ns;
    ours.connect_ns = 2 * SL_NS_PER_S;
    ours.backoff_max_ns = SL_NS_PER_S / 2;
    theirs = (struct remote_options){
        .fabric = ours, .length_bytes = MEMORY, .chunk_bytes = CHUNK, .before = netns_child};
    ours.address = NETNS_OURS;
    theirs.fabric.address = NETNS_THEIR;
    netns_enter();
    remote_start(&remote, &theirs);
    netns_join(remote.pid);
    ck_assert_int_eq(end_open(&end, &ours, MEMORY, CHUNK, &why), SL_OK);
    REMOTE_UNTIL(&remote, &end, remote.ready && end.registered && end.link == SL_FABRIC_UP);
    ck_assert_int_eq(remote.open_code, SL_OK);
}

static void teardown(void)
{
    remote_stop(&remote);
    end_close(&end);
}

static uint64_t soon(void)
{
    return sl_clock_monotonic_ns() + 100 * SL_NS_PER_S;
}

static bool is_set(unsigned char with)
{
    return end.bytes[0] == with && memcmp(end.bytes, end.bytes + 1, MEMORY - 1) == 0;
}

/* Reads all until it works: the link may not be up again yet. */
static void read_again(uint32_t key, uint64_t cookie)
{
    const struct end_done *done = NULL;
    uint64_t give_up_ns = soon();
    do {
        REMOTE_UNTIL(&remote, &end, end.link == SL_FABRIC_UP);
        ck_assert_int_eq(end_post(&end, key, 0, MEMORY, ++cookie, soon()), SL_OK);
        REMOTE_UNTIL(&remote, &end, (done = end_done_of(&end, cookie)) != NULL);
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
    } while (done->code != SL_OK);
}

static const uint64_t sizes[] = {1, 4096, 256 * SL_KIB, SL_MIB, 4 * SL_MIB};
START_TEST(values_arrive_verified)
    {
        uint32_t count = (uint32_t)SL_MIN(MEMORY / sizes[_i], UINT64_C(64));
        struct sl_fabric_piece pieces[64];
        struct sl_digest digests[64];
        join(60 * SL_NS_PER_S);
        remote_fill(&remote, &end, 11);
        pattern_fill(end.bytes, MEMORY, 11);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t at = MEMORY / count * i;
            digests[i] = sl_digest_of(end.bytes + at, sizes[_i]);
            pieces[i] = (struct sl_fabric_piece){.memory = end.memory,
                                                 .key = key,
                                                 .offset_bytes = at,
                                                 .remote_offset_bytes = at,
                                                 .length_bytes = sizes[_i],
                                                 .digest = &digests[i]};
        }
        memset(end.bytes, 0, MEMORY);
        struct sl_fabric_transfer transfer = {
            .peer = end.peer, .pieces = pieces, .piece_count = count, .deadline_ns = soon()};
        ck_assert_int_eq(sl_fabric_post(end.fabric, &transfer, NULL), SL_OK);
        REMOTE_UNTIL(&remote, &end, end.done_count == 1);
        ck_assert_int_eq(end.dones[0].code, SL_OK);
        for (uint32_t i = 0; i < count; i++) {
            ck_assert(sl_digest_equal(digests[i],
                                      sl_digest_of(end.bytes + pieces[i].offset_bytes, sizes[_i])));
        }
    }
END_TEST

START_TEST(both_sides_read_at_once)
    {
        join(60 * SL_NS_PER_S);
        remote_fill(&remote, &end, 12);
        uint32_t key = remote_key(&remote, &end, MEMORY / 2, MEMORY / 2);
        pattern_fill(end.bytes, MEMORY / 2, 12);
        (void)remote_move_local(&remote, &end, 8, MEMORY / 2);
        for (uint64_t i = 0; i < 8; i++) {
            ck_assert_int_eq(end_post(&end, key, MEMORY / 2, MEMORY / 2, i, soon()), SL_OK);
        }
        REMOTE_UNTIL(&remote, &end, end.done_count == 8 && remote.done_count == 8);
        ck_assert_int_eq(remote.done.code, SL_OK);
        ck_assert(pattern_is(end.bytes, MEMORY, 12));
        ck_assert(remote_is_pattern(&remote, &end, 12));
    }
END_TEST

START_TEST(a_killed_peer_is_an_error)
    {
        join(SL_NS_PER_S);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        for (uint64_t i = 0; i < 50; i++) {
            ck_assert_int_eq(end_post(&end, key, 0, MEMORY, i, soon()), SL_OK);
        }
        REMOTE_UNTIL(&remote, &end, end.done_count >= 1);
        uint64_t start_ns = sl_clock_monotonic_ns();
        remote_stop(&remote);
        REMOTE_UNTIL(&remote, &end, end.done_count == 50);
        printf("killed: error after %.3f s\n", (double)(sl_clock_monotonic_ns() - start_ns) / 1e9);
        ck_assert_int_eq(end.dones[49].code, SL_ERR_PEER_DIED);
        REMOTE_UNTIL(&remote, &end, end.downs >= 1);
    }
END_TEST

static void goes_and_comes(void (*go)(void), void (*come)(void), const char *what)
{
    join(SL_NS_PER_S);
    remote_fill(&remote, &end, 13);
    uint32_t key = remote_key(&remote, &end, 0, MEMORY);
    read_again(key, 1000);
    uint32_t downs = end.downs, before = end.done_count;
    go();
    for (uint64_t i = 0; i < 4; i++) {
        ck_assert_int_eq(end_post(&end, key, 0, MEMORY, i, soon()), SL_OK);
    }
    uint64_t start_ns = sl_clock_monotonic_ns();
    REMOTE_UNTIL(&remote, &end, end.done_count == before + 4);
    double took_s = (double)(sl_clock_monotonic_ns() - start_ns) / 1e9;
    /* Bytes in the sockets may have been enough for some; the deadline ended none. */
    ck_assert_int_ne(end_done_of(&end, 3)->code, SL_OK);
    ck_assert_int_ne(end_done_of(&end, 3)->code, SL_ERR_TIMEOUT);
    REMOTE_UNTIL(&remote, &end, end.downs > downs);
    memset(end.bytes, 0, MEMORY); /* every transfer has ended: it is ours */
    come();
    for (int i = 0; i < 50; i++) {
        remote_step(&remote, &end, 20); /* late answers of the old connections, if there are any */
    }
    ck_assert(is_set(0));
    read_again(key, 2000);
    ck_assert(pattern_is(end.bytes, MEMORY, 13));
    printf("%s: error after %.3f s, whole again %.3f s after the start of it\n", what, took_s,
           (double)(sl_clock_monotonic_ns() - start_ns) / 1e9);
}

static void stop(void)
{
    ck_assert_int_eq(kill(remote.pid, SIGSTOP), 0);
}
static void go_on(void)
{
    ck_assert_int_eq(kill(remote.pid, SIGCONT), 0);
}
static void cut(void)
{
    ck_assert(netns_run("ip link set sl-a down"));
}
static void mend(void)
{
    ck_assert(netns_run("ip link set sl-a up"));
}

START_TEST(a_stopped_peer_is_an_error_and_comes_back)
    {
        goes_and_comes(stop, go_on, "SIGSTOP");
    }
END_TEST

START_TEST(a_partition_is_an_error_and_heals)
    {
        goes_and_comes(cut, mend, "partition");
    }
END_TEST

/* The peer dies without any notification: our connections are half open. */
START_TEST(a_half_open_connection_is_noticed)
    {
        join(SL_NS_PER_S);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        read_again(key, 1000);
        cut();
        remote_stop(&remote);
        mend(); /* its namespace is gone: nothing answers, not even with a reset */
        uint32_t before = end.done_count;
        ck_assert_int_eq(end_post(&end, key, 0, MEMORY, 1, soon()), SL_OK);
        REMOTE_UNTIL(&remote, &end, end.done_count == before + 1);
        ck_assert_int_ne(end_done_of(&end, 1)->code, SL_OK);
        ck_assert_int_ne(end_done_of(&end, 1)->code, SL_ERR_TIMEOUT);
    }
END_TEST

/* netem where the kernel has it; else a small token bucket, which also delays and drops. */
START_TEST(delay_and_loss_change_nothing_but_the_time)
    {
        join(60 * SL_NS_PER_S);
        remote_fill(&remote, &end, 14);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        bool netem = netns_run("tc qdisc add dev sl-a root netem delay 5ms 2ms loss 1%");
        bool bucket = !netem && netns_run("tc qdisc add dev sl-a root tbf rate 200mbit burst 8kb "
                                          "latency 1ms");
        printf("network: %s\n", netem    ? "netem, delay 5 ms, loss 1 %"
                                : bucket ? "token bucket (no netem in this kernel)"
                                         : "as it is (neither netem nor tbf)");
        read_again(key, 1000);
        ck_assert(pattern_is(end.bytes, MEMORY, 14));
        (void)remote_move_local(&remote, &end, 1, MEMORY);
        REMOTE_UNTIL(&remote, &end, remote.done_count == 1);
        ck_assert_int_eq(remote.done.code, SL_OK);
    }
END_TEST

/* A reader that is stopped past the end of its grant and continues later. */
START_TEST(a_late_read_gets_nothing_new)
    {
        join(2 * SL_NS_PER_S); /* a reader that takes nothing holds the grant this long */
        remote_set(&remote, &end, 0x22);
        memset(end.bytes, 0x22, MEMORY);
        uint32_t grant = remote_move_local(&remote, &end, 40, MEMORY);
        REMOTE_UNTIL(&remote, &end, remote.done_count >= 1);
        stop();
        ck_assert_int_eq(sl_fabric_grant_end(end.fabric, grant), SL_OK);
        REMOTE_UNTIL(&remote, &end, end.grants_ended == 1);
        memset(end.bytes, 0x5a, MEMORY);
        go_on();
        REMOTE_UNTIL(&remote, &end, remote.done_count == 40);
        ck_assert_int_ne(remote.done.code, SL_OK);
        ck_assert(remote_is_set(&remote, &end, 0x22));
    }
END_TEST

int main(void)
{
    const char *missing = netns_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return 77;
    }
    Suite *all = suite_create("transfer");
    TCase *tests = tcase_create("tcp");
    tcase_add_checked_fixture(tests, NULL, teardown);
    tcase_set_timeout(tests, 400);
    tcase_add_loop_test(tests, values_arrive_verified, 0, SL_COUNT(sizes));
    tcase_add_test(tests, both_sides_read_at_once);
    tcase_add_test(tests, a_killed_peer_is_an_error);
    tcase_add_test(tests, a_stopped_peer_is_an_error_and_comes_back);
    tcase_add_test(tests, a_partition_is_an_error_and_heals);
    tcase_add_test(tests, a_half_open_connection_is_noticed);
    tcase_add_test(tests, delay_and_loss_change_nothing_but_the_time);
    tcase_add_test(tests, a_late_read_gets_nothing_new);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
