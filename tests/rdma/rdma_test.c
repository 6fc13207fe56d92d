/* tests/rdma/rdma_test.c - the verbs fabric on two RDMA devices joined by a cable, in the virtual
 * machine of verbs-vm: rxe0 (10.0.0.1) is ours, rxe1 (10.0.0.2, on eth1) is the remote process's.
 * Prints figures beside those of ib_read_bw and asserts none of them. */
#include "tests/rdma/rdma_lend.h"
#include "tests/rdma/rdma_places.h"
#include "tests/rdma/rdma_rails.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fabric_remote.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (16 * SL_MIB)
#define LANES  2u
#define DEPTH  16u

static struct remote remote;
static struct fabric_end end;
static struct remote_options theirs;
static struct sl_fabric_options ours;

static void options_fill(void)
{
    end_options(&end, &ours, "verbs");
    ours.lanes = LANES;
    ours.depth = DEPTH;
    ours.connect_ns = 20 * SL_NS_PER_S; /* everything is slow under emulation */
    ours.backoff_max_ns = SL_NS_PER_S / 2;
    ours.nic = "rxe0";
    theirs = (struct remote_options){.fabric = ours, .length_bytes = MEMORY};
    theirs.fabric.nic = "rxe1";
}

static void join(uint64_t length_bytes)
{
    struct sl_error why = {0};
    theirs.length_bytes = length_bytes;
    remote_start(&remote, &theirs);
    sl_err err = end_open(&end, &ours, length_bytes, 0, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    REMOTE_UNTIL(&remote, &end, remote.ready);
    ck_assert_msg(remote.open_code == SL_OK, "%s", remote.why.text);
    REMOTE_UNTIL(&remote, &end, end.registered && end.link == SL_FABRIC_UP);
}

static void setup(void)
{
    options_fill();
}

static void teardown(void)
{
    remote_stop(&remote);
    end_close(&end);
    (void)!system("ip link set eth1 up");
}

static uint64_t soon(void)
{
    return sl_clock_monotonic_ns() + 100 * SL_NS_PER_S;
}

static sl_err move(uint32_t key, uint64_t offset, uint64_t length)
{
    static uint64_t cookie = 1000;
    const struct end_done *done = NULL;
    cookie++;
    ck_assert_int_eq(end_post(&end, key, offset, length, cookie, soon()), SL_OK);
    REMOTE_UNTIL(&remote, &end, (done = end_done_of(&end, cookie)) != NULL);
    return done->code;
}

/* ---- what was chosen ---- */

START_TEST(it_finds_its_address_by_itself)
    {
        struct sl_fabric *fabric = NULL;
        struct sl_error why = {0};
        ours.nic = "";
        ck_assert_msg(sl_fabric_open(&ours, &fabric, &why) == SL_OK, "%s", why.text);
        printf("%s\n", sl_fabric_about(fabric));
        ck_assert_ptr_nonnull(strstr(sl_fabric_about(fabric), "gid 1 ::ffff:10.0.0.1"));
        sl_fabric_close(&fabric);
        ours.nic = "rxe1:1";
        ck_assert_msg(sl_fabric_open(&ours, &fabric, &why) == SL_OK, "%s", why.text);
        ck_assert_ptr_nonnull(strstr(sl_fabric_about(fabric), "::ffff:10.0.0.2"));
        sl_fabric_close(&fabric);
        ours.nic = "rxe7";
        ck_assert_int_eq(sl_fabric_open(&ours, &fabric, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "rxe7"));
        ours.nic = "rxe0:9";
        ck_assert_int_eq(sl_fabric_open(&ours, &fabric, &why), SL_ERR_CONFIG);
    }
END_TEST

/* ---- registration ---- */

/* The number of memory regions that the kernel counts for the device. */
static int regions_of(const char *device)
{
    char line[256];
    int count = -1;
    FILE *list = popen("rdma resource show", "r");
    ck_assert_ptr_nonnull(list);
    while (fgets(line, sizeof(line), list) != NULL) {
        const char *at = strstr(line, " mr ");
        if (strstr(line, device) != NULL && at != NULL) {
            count = atoi(at + 4);
        }
    }
    (void)pclose(list);
    return count;
}

#define REGION  (64 * SL_MIB) /* not clamped to the range of MC_MAX_MR_SIZE */
#define REGIONS 4u
#define STRIDE  (48 * SL_KIB) /* of a pool's blocks; does not divide the region */

START_TEST(a_registration_that_fails_at_region_k_leaves_nothing)
    {
        struct sl_error why = {0};
        uint32_t k = (uint32_t)_i % (REGIONS + 1);
        bool pool = (uint32_t)_i > REGIONS;
        uint64_t step = pool ? REGION / STRIDE * STRIDE : REGION; /* whole blocks */
        uint64_t length = REGION * (REGIONS - 1) + REGION / 2;
        unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ck_assert(at != MAP_FAILED);
        if (k < REGIONS) { /* the end of region k cannot be pinned */
            uint64_t hole = SL_MIN(step * (k + 1), length) - SL_PAGE_BYTES;
            ck_assert_int_eq(mprotect(at + hole, SL_PAGE_BYTES, PROT_NONE), 0);
        }
        ours.region_bytes_max = REGION;
        ck_assert_int_eq(end_open(&end, &ours, 0, 0, &why), SL_OK);
        int before = regions_of("rxe0");
        struct sl_fabric_memory memory = {.at = at,
                                          .length_bytes = length,
                                          .chunk_bytes = pool ? 0 : length,
                                          .stride_bytes = pool ? STRIDE : 0,
                                          .unread = pool};
        ck_assert_int_eq(sl_fabric_memory_add(end.fabric, &memory, &end.memory, &why), SL_OK);
        uint64_t give_up_ns = soon();
        while (!end.registered && !end.refused) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&end, 10);
        }
        struct sl_fabric_stats stats;
        sl_fabric_stats(end.fabric, &stats);
        if (k == REGIONS) {
            ck_assert(end.registered);
            ck_assert_uint_eq(stats.regions, REGIONS);
            ck_assert_int_eq(regions_of("rxe0"), before + (int)REGIONS);
            ck_assert_int_eq(fabric_memory_drop(end.fabric, end.memory), SL_OK);
        } else {
            ck_assert(end.refused);
            ck_assert_uint_eq(end.register_region, k);
        }
        sl_fabric_stats(end.fabric, &stats);
        ck_assert_uint_eq(stats.regions, 0);
        ck_assert_int_eq(regions_of("rxe0"), before);
    }
END_TEST

/* ---- moving ---- */

START_TEST(bytes_arrive_over_region_edges)
    {
        static const uint64_t lengths[] = {1, 60, 4096, SL_MIB + 7};
        ours.region_bytes_max = theirs.fabric.region_bytes_max = SL_MIB;
        join(4 * SL_MIB);
        struct sl_fabric_stats stats;
        sl_fabric_stats(end.fabric, &stats);
        ck_assert_uint_eq(stats.regions, 4);
        uint32_t read = remote_key(&remote, &end, 0, 4 * SL_MIB);
        remote_fill(&remote, &end, 3);
        for (size_t i = 0; i < SL_COUNT(lengths); i++) {
            ck_assert_int_eq(move(read, SL_MIB - 30, lengths[i]), SL_OK);
        }
        ck_assert_int_eq(move(read, 0, 4 * SL_MIB), SL_OK);
        ck_assert(pattern_is(end.bytes, 4 * SL_MIB, 3));
    }
END_TEST

/* Reading into it requires no access right of a peer. */
START_TEST(memory_that_nobody_reads_reads)
    {
        ours.region_bytes_max = theirs.fabric.region_bytes_max = SL_MIB;
        end.stride_bytes = STRIDE;
        end.unread = true;
        join(4 * SL_MIB);
        uint32_t key = remote_key(&remote, &end, 0, 4 * SL_MIB);
        remote_fill(&remote, &end, 7);
        ck_assert_int_eq(move(key, 0, 4 * SL_MIB), SL_OK);
        ck_assert(pattern_is(end.bytes, 4 * SL_MIB, 7));
    }
END_TEST

START_TEST(a_wrong_digest_is_found)
    {
        join(SL_MIB);
        uint32_t key = remote_key(&remote, &end, 0, SL_MIB);
        remote_fill(&remote, &end, 5);
        pattern_fill(end.bytes, SL_MIB, 5);
        struct sl_digest right = sl_digest_of(end.bytes, SL_MIB), wrong = right;
        wrong.low++;
        for (int i = 0; i < 2; i++) {
            struct sl_fabric_piece piece = {.memory = end.memory,
                                            .key = key,
                                            .length_bytes = SL_MIB,
                                            .digest = i == 0 ? &right : &wrong};
            struct sl_fabric_transfer transfer = {
                .peer = end.peer, .pieces = &piece, .piece_count = 1, .deadline_ns = soon()};
            ck_assert_int_eq(sl_fabric_post(end.fabric, &transfer, NULL), SL_OK);
            REMOTE_UNTIL(&remote, &end, end.done_count == (uint32_t)i + 1);
            ck_assert_int_eq(end.dones[i].code, i == 0 ? SL_OK : SL_ERR_CORRUPT);
        }
    }
END_TEST

/* ---- tickets; with windows, and on a device that has none ---- */

static const enum sl_fabric_windows ways[] = {SL_FABRIC_WINDOWS_ANY, SL_FABRIC_WINDOWS_NEVER};

static bool ours_is_set(unsigned char with, uint64_t from, uint64_t length)
{
    return end.bytes[from] == with &&
           memcmp(end.bytes + from, end.bytes + from + 1, length - 1) == 0;
}

START_TEST(an_ended_ticket_is_not_read)
    {
        theirs.fabric.windows = ways[_i];
        theirs.stride_bytes = STRIDE;
        theirs.unread = true;
        join(SL_MIB);
        uint32_t key = remote_key(&remote, &end, 4096, 8192);
        memset(end.bytes, 0x99, SL_MIB);
        remote_set(&remote, &end, 0x22);
        ck_assert_int_eq(move(key, 4096, 8192), SL_OK);
        ck_assert(ours_is_set(0x22, 4096, 8192));
        remote_grant_end(&remote, &end, remote.grant);
        REMOTE_UNTIL(&remote, &end, remote.grants_ended == 1);
        remote_set(&remote, &end, 0x33);
        memset(end.bytes, 0x99, SL_MIB);
        ck_assert_int_eq(move(key, 4096, 4096), SL_ERR_PERMISSION);
        ck_assert(remote_is_set(&remote, &end, 0x33));
        ck_assert(ours_is_set(0x99, 0, SL_MIB));
        REMOTE_UNTIL(&remote, &end, end.link == SL_FABRIC_UP); /* the error broke the queue pairs */
    }
END_TEST

START_TEST(a_ticket_reaches_no_further_than_its_range)
    {
        unsigned char key_bytes[SL_FABRIC_BLOB_MAX];
        uint32_t key = 0;
        theirs.stride_bytes = STRIDE;
        theirs.unread = true;
        join(SL_MIB);
        remote_set(&remote, &end, 0x44);
        memset(end.bytes, 0x99, SL_MIB);
        ck_assert_int_eq(remote_grant(&remote, &end, 0, 4096), SL_OK);
        memcpy(key_bytes, remote.key, remote.key_bytes);
        key_bytes[16 + 8 + 1] = 0x20; /* changes the length to 8192 bytes */
        ck_assert_int_eq(
            sl_fabric_key_open(end.fabric, end.peer, key_bytes, remote.key_bytes, &key, NULL),
            SL_OK);
        ck_assert_int_eq(move(key, 0, 4096), SL_OK);
        ck_assert(ours_is_set(0x44, 0, 4096));
        ck_assert_int_eq(move(key, 0, 8192), SL_ERR_PERMISSION);
        ck_assert(ours_is_set(0x99, 4096, SL_MIB - 4096));
    }
END_TEST

/* Stops the remote while its NIC still has reads to do; its ticket then ends. On a busy machine all
 * reads may finish before the stop: then the test tries again with another ticket. */
#define LATE_READS       30u
#define LATE_TICKETS_MAX 20u
START_TEST(a_late_read_gets_nothing_new)
    {
        uint32_t tickets = 0;
        ours.windows = ways[_i];
        end.stride_bytes = STRIDE;
        end.unread = true;
        join(MEMORY);
        remote_set(&remote, &end, 0x22);
        do {
            memset(end.bytes, 0x22, MEMORY);
            uint32_t grant = remote_move_local(&remote, &end, LATE_READS, MEMORY / 4);
            REMOTE_UNTIL(&remote, &end, remote.done_count > tickets * LATE_READS);
            ck_assert_int_eq(kill(remote.pid, SIGSTOP), 0);
            ck_assert_int_eq(sl_fabric_grant_end(end.fabric, grant), SL_OK);
            tickets++;
            REMOTE_UNTIL(&remote, &end, end.grants_ended == tickets);
            memset(end.bytes, 0x5a, MEMORY);
            ck_assert_int_eq(kill(remote.pid, SIGCONT), 0);
            REMOTE_UNTIL(&remote, &end, remote.done_count == tickets * LATE_READS);
            ck_assert(remote_is_set(&remote, &end, 0x22));
        } while (remote.done.code == SL_OK && tickets < LATE_TICKETS_MAX);
        ck_assert_int_ne(remote.done.code, SL_OK);
    }
END_TEST

/* ---- peers and links that go ---- */

START_TEST(a_killed_peer_is_an_error)
    {
        join(MEMORY);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        for (uint64_t i = 0; i < 20; i++) {
            ck_assert_int_eq(end_post(&end, key, 0, MEMORY, i, soon()), SL_OK);
        }
        REMOTE_UNTIL(&remote, &end, end.done_count >= 1);
        uint64_t start_ns = sl_clock_monotonic_ns();
        remote_stop(&remote);
        REMOTE_UNTIL(&remote, &end, end.done_count == 20);
        printf("killed peer: error after %.2f s\n",
               (double)(sl_clock_monotonic_ns() - start_ns) / 1e9);
        ck_assert_int_eq(end_done_of(&end, 19)->code, SL_ERR_PEER_DIED);
        memset(end.bytes, 0, MEMORY);
        for (int i = 0; i < 20; i++) {
            remote_step(&remote, &end, 20);
        }
        ck_assert(end.bytes[0] == 0 && memcmp(end.bytes, end.bytes + 1, MEMORY - 1) == 0);
    }
END_TEST

static double best_read_speed(uint32_t key);

START_TEST(a_cable_that_is_pulled_and_put_back)
    {
        join(MEMORY);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        remote_fill(&remote, &end, 7);
        double before = best_read_speed(key);
        ck_assert_int_eq(system("ip link set eth1 down"), 0);
        uint64_t start_ns = sl_clock_monotonic_ns();
        sl_err err = move(key, 0, SL_MIB);
        double took_s = (double)(sl_clock_monotonic_ns() - start_ns) / 1e9;
        ck_assert(err == SL_ERR_PEER_DIED || err == SL_ERR_UNREACHABLE);
        REMOTE_UNTIL(&remote, &end, end.downs >= 1);
        ck_assert_int_eq(system("ip link set eth1 up"), 0);
        start_ns = sl_clock_monotonic_ns();
        uint64_t give_up_ns = soon();
        do {
            REMOTE_UNTIL(&remote, &end, end.link == SL_FABRIC_UP);
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        } while (move(key, 0, 4096) != SL_OK);
        double back_s = (double)(sl_clock_monotonic_ns() - start_ns) / 1e9;
        double after = best_read_speed(key);
        ck_assert(pattern_is(end.bytes, MEMORY, 7));
        printf("cable: error after %.2f s, back %.2f s after it was put back, %.2f of the speed\n",
               took_s, back_s, after / before);
    }
END_TEST

/* ---- figures ---- */

static double move_speed(uint32_t key, uint64_t length, uint64_t total)
{
    static struct sl_fabric_piece pieces[SL_FABRIC_PIECES_MAX];
    uint32_t count = (uint32_t)SL_MIN(total / length, (uint64_t)SL_FABRIC_PIECES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = i * length % MEMORY;
        pieces[i] = (struct sl_fabric_piece){.memory = end.memory,
                                             .key = key,
                                             .offset_bytes = at,
                                             .remote_offset_bytes = at,
                                             .length_bytes = length};
    }
    struct sl_fabric_transfer transfer = {
        .peer = end.peer, .pieces = pieces, .piece_count = count, .deadline_ns = soon()};
    uint64_t start_ns = 0;
    uint32_t before = 0;
    do { /* on a busy machine an emulated responder may stall until the link fails */
        REMOTE_UNTIL(&remote, &end, end.link == SL_FABRIC_UP);
        before = end.done_count;
        start_ns = sl_clock_monotonic_ns();
        ck_assert_uint_lt(start_ns, transfer.deadline_ns);
        ck_assert_int_eq(sl_fabric_post(end.fabric, &transfer, NULL), SL_OK);
        REMOTE_UNTIL(&remote, &end, end.done_count == before + 1);
    } while (end.dones[before % END_DONES_MAX].code == SL_ERR_PEER_DIED);
    ck_assert_int_eq(end.dones[before % END_DONES_MAX].code, SL_OK);
    return (double)(count * length) / 1e6 /
           ((double)(sl_clock_monotonic_ns() - start_ns) / 1e9); /* MB/s */
}

/* The best of three: the machine runs other work too. */
static double best_read_speed(uint32_t key)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        best = SL_MAX(best, move_speed(key, SL_MIB, 2 * MEMORY));
    }
    return best;
}

/* MB/s as perftest measures it; 0: it did not run. */
static double perftest(uint64_t length, uint64_t total)
{
    static int port = 18600;
    char command[512], line[256];
    double speed = 0, value = 0;
    unsigned long long size = 0, rounds = 0;
    double peak = 0;
    port++;
    snprintf(
        command, sizeof(command),
        /* -u 20: an emulated responder may take longer than the usual 70 ms */
        "ib_read_bw -d rxe1 -x 1 -F -u 20 -q %u -t %u -s %llu -n %llu -p %d >/dev/null 2>&1 & "
        "sleep 1; "
        "ib_read_bw -d rxe0 -x 1 -F -u 20 -q %u -t %u -s %llu -n %llu -p %d 10.0.0.2 2>/dev/null; "
        "wait",
        LANES, DEPTH, (unsigned long long)length, (unsigned long long)(total / length / LANES),
        port, LANES, DEPTH, (unsigned long long)length,
        (unsigned long long)(total / length / LANES), port);
    FILE *out = popen(command, "r");
    ck_assert_ptr_nonnull(out);
    while (fgets(line, sizeof(line), out) != NULL) {
        if (sscanf(line, " %llu %llu %lf %lf", &size, &rounds, &peak, &value) == 4 &&
            size == length) {
            speed = value; /* of perftest: 2^20 bytes a second */
        }
    }
    (void)pclose(out);
    return speed * 1048576.0 / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

START_TEST(figures)
    {
        enum { ROUNDS = 9 };
        static const struct {
            uint64_t length, total;
        } rows[] = {
            {16 * SL_KIB, 16 * SL_MIB},
            {64 * SL_KIB, 16 * SL_MIB},
            {SL_MIB, 32 * SL_MIB},
        };
        /* No process dies here, and an emulated responder may stall for long on a busy machine. */
        ours.stall_ns = theirs.fabric.stall_ns = 30 * SL_NS_PER_S;
        /* Pools of two engines, two blocks of 1 MiB in a region. */
        ours.region_bytes_max = theirs.fabric.region_bytes_max = 5 * SL_MIB / 2;
        end.stride_bytes = theirs.stride_bytes = SL_MIB;
        join(MEMORY);
        uint32_t key = remote_key(&remote, &end, 0, MEMORY);
        for (size_t i = 0; i < SL_COUNT(rows); i++) {
            double ours_mb[ROUNDS], tool_mb[ROUNDS], ratios[ROUNDS];
            for (int round = 0; round < ROUNDS;
                 round++) { /* alternating, since the machine's other load varies */
                for (int turn = 0; turn < 2; turn++) {
                    if (turn == round % 2) {
                        ours_mb[round] = move_speed(key, rows[i].length, rows[i].total);
                    } else {
                        tool_mb[round] = perftest(rows[i].length, rows[i].total);
                    }
                }
                ratios[round] = tool_mb[round] > 0 ? ours_mb[round] / tool_mb[round] : 0;
            }
            qsort(ours_mb, ROUNDS, sizeof(double), by_value);
            qsort(tool_mb, ROUNDS, sizeof(double), by_value);
            qsort(ratios, ROUNDS, sizeof(double), by_value);
            printf("%5llu KiB: fabric %6.1f MB/s, ib_read_bw %6.1f MB/s, ratio %.2f (%.2f..%.2f); "
                   "best %.1f and %.1f, %.2f\n",
                   (unsigned long long)(rows[i].length / SL_KIB), ours_mb[ROUNDS / 2],
                   tool_mb[ROUNDS / 2], ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1],
                   ours_mb[ROUNDS - 1], tool_mb[ROUNDS - 1],
                   tool_mb[ROUNDS - 1] > 0 ? ours_mb[ROUNDS - 1] / tool_mb[ROUNDS - 1] : 0);
            fflush(stdout);
        }
    }
END_TEST

/* Measures how long registering a region, and dropping it, blocks the thread. */
START_TEST(a_region_takes)
    {
        static const uint64_t lengths[] = {64 * SL_MIB, 256 * SL_MIB, 512 * SL_MIB};
        struct sl_error why = {0};
        uint64_t length = lengths[_i];
        unsigned char *at =
            mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert(at != MAP_FAILED);
        memset(at, 1, length);
        ck_assert_int_eq(end_open(&end, &ours, 0, 0, &why), SL_OK);
        const struct sl_fabric_memory memory = {
            .at = at, .length_bytes = length, .stride_bytes = STRIDE};
        ck_assert_int_eq(sl_fabric_memory_add(end.fabric, &memory, &end.memory, &why), SL_OK);
        uint64_t longest_ns = 0;
        while (!end.registered) {
            uint64_t start_ns = sl_clock_monotonic_ns();
            end_step(&end, 0);
            longest_ns = SL_MAX(longest_ns, sl_clock_monotonic_ns() - start_ns);
        }
        uint64_t start_ns = sl_clock_monotonic_ns();
        ck_assert_int_eq(fabric_memory_drop(end.fabric, end.memory), SL_OK);
        printf("region of %llu MiB: registered in %.1f ms, given up in %.1f ms\n",
               (unsigned long long)(length / SL_MIB), (double)longest_ns / 1e6,
               (double)(sl_clock_monotonic_ns() - start_ns) / 1e6);
        fflush(stdout);
        munmap(at, length);
    }
END_TEST

int main(int argc, char **argv)
{
    if (access("/sys/class/infiniband/rxe0", F_OK) != 0 ||
        access("/sys/class/infiniband/rxe1", F_OK) != 0) {
        printf("skipped: no devices rxe0 and rxe1 (verbs-vm's virtual machine has them)\n");
        return 77;
    }
    Suite *all = suite_create("rdma");
    TCase *tests = tcase_create("verbs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 400);
    tcase_add_test(tests, it_finds_its_address_by_itself);
    tcase_add_loop_test(tests, a_registration_that_fails_at_region_k_leaves_nothing, 0,
                        2 * (REGIONS + 1)); /* an arena, a pool */
    tcase_add_test(tests, bytes_arrive_over_region_edges);
    tcase_add_test(tests, memory_that_nobody_reads_reads);
    tcase_add_test(tests, a_wrong_digest_is_found);
    tcase_add_loop_test(tests, an_ended_ticket_is_not_read, 0, 2);
    tcase_add_test(tests, a_ticket_reaches_no_further_than_its_range);
    tcase_add_loop_test(tests, a_late_read_gets_nothing_new, 0, 2);
    tcase_add_test(tests, a_killed_peer_is_an_error);
    tcase_add_test(tests, a_cable_that_is_pulled_and_put_back);
    suite_add_tcase(all, tests);
    suite_add_tcase(all, rdma_places_tests());
    suite_add_tcase(all, rdma_lend_tests());
    suite_add_tcase(all, rdma_rails_tests());
    if (argc > 1 &&
        strcmp(argv[1], "figures") == 0) { /* beside perftest; asserts nothing about time */
        TCase *speed = tcase_create("figures");
        tcase_add_checked_fixture(speed, setup, teardown);
        tcase_set_timeout(speed, 800);
        tcase_add_loop_test(speed, a_region_takes, 0, 3);
        tcase_add_test(speed, figures);
        suite_add_tcase(all, speed);
    }
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
