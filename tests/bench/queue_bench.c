/* tests/bench/queue_bench.c - round trips between two processes over a lane: with both sides
 * awake, and with both asleep between frames. */
#include "client/tools/bench/histogram.h"
#include "ipc/msg/sl_mailbox.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_parse.h"
#include "tests/support/mailbox_wait.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS          3u /* rounds of every case, in turns: the median counts */
#define START_NS        (10 * SL_NS_PER_S)
#define ANSWER_NS       (10 * SL_NS_PER_S)
#define AWAKE_NS        SL_NS_PER_S /* longer than any answer takes */
#define RING_BYTES      (512 * SL_KIB)
#define SIZE_DEFAULT    64u
#define MEASURE_NS      (2 * SL_NS_PER_S)
#define WARM_UP_DIVISOR 10u

/* How both sides wait for frames. */
struct way {
    const char *name;
    bool awake;
};
enum { AWAKE, ASLEEP, WAY_COUNT };
static const struct way ways[WAY_COUNT] = {[AWAKE] = {"awake", true}, [ASLEEP] = {"asleep", false}};

struct cell {
    double ops_per_s, p50_us, p99_us;
};
struct bench_queue {
    char directory[32];
    uint64_t size_bytes, measure_ns;
    unsigned char *bytes;
    struct cell cells[WAY_COUNT][ROUNDS];
    struct cell medians[WAY_COUNT];
};

/* One core for each side when both are awake; the first two that we may use. */
static void pin(uint32_t side)
{
    cpu_set_t may;
    cpu_set_t one;
    uint32_t seen = 0;
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || CPU_COUNT(&may) < 2) {
        return;
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &may) && seen++ == side) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

static sl_err mailbox_open(const struct bench_queue *bench, const struct way *way, bool serves,
                           struct sl_mailbox **out, struct sl_error *why)
{
    const struct sl_mailbox_options options = {
        .runtime_dir = bench->directory,
        .name = serves ? "echo" : "asker",
        .message_bytes_max = SL_MAX(bench->size_bytes, SL_KIB),
        .ring_bytes = RING_BYTES,
        .lanes_max = serves ? 1 : 0,
        .spin_ns = way->awake ? AWAKE_NS : 0,
        .spin_anyway = true,
    };
    return sl_mailbox_open(&options, out, why);
}

/* Receives the next frame; awake: by polling, else by sleeping. */
static sl_err next_frame(struct sl_mailbox *mailbox, const struct way *way, const char **from,
                         const void **frame, size_t *length_bytes, uint64_t deadline_ns)
{
    for (;;) {
        if (way->awake) {
            (void)sl_mailbox_spin(mailbox, deadline_ns);
        } else {
            (void)mailbox_wait(mailbox, sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns));
        }
        if (sl_mailbox_receive(mailbox, from, frame, length_bytes) == SL_OK) {
            return SL_OK;
        }
        if (sl_clock_monotonic_ns() >= deadline_ns) {
            return SL_ERR_TIMEOUT;
        }
    }
}

/* The other side: a process that echoes each frame, until it is killed. */
static _Noreturn void echo(const struct bench_queue *bench, const struct way *way)
{
    struct sl_mailbox *mailbox = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mailbox_open(bench, way, true, &mailbox, NULL) != SL_OK) {
        _exit(1);
    }
    if (way->awake) {
        pin(1);
    }
    for (;;) {
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        if (next_frame(mailbox, way, &from, &frame, &length_bytes,
                       sl_clock_monotonic_ns() + ANSWER_NS) == SL_OK) {
            (void)sl_mailbox_send(mailbox, from, frame, length_bytes, true);
        }
    }
}

static sl_err round_trip(const struct bench_queue *bench, struct sl_mailbox *mailbox,
                         const struct way *way, struct sl_error *why)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length_bytes = 0;
    sl_err err = sl_mailbox_send(mailbox, "echo", bench->bytes, bench->size_bytes, false);
    if (err != SL_OK) {
        return sl_fail(why, err, "%s: not sent: %s", way->name, sl_err_text(err));
    }
    err =
        next_frame(mailbox, way, &from, &frame, &length_bytes, sl_clock_monotonic_ns() + ANSWER_NS);
    if (err != SL_OK) {
        return sl_fail(why, err, "%s: no answer within 10 s", way->name);
    }
    if (length_bytes != bench->size_bytes) {
        return sl_fail(why, SL_ERR_CORRUPT, "%s: %zu bytes came back", way->name, length_bytes);
    }
    return SL_OK;
}

static sl_err ask(const struct bench_queue *bench, const struct way *way, struct cell *out,
                  struct sl_error *why)
{
    struct sl_mailbox *mailbox = NULL;
    struct ctl_histogram *fetch_batches_ns = calloc(1, sizeof(*fetch_batches_ns));
    sl_err err = fetch_batches_ns == NULL ? sl_fail(why, SL_ERR_NO_MEMORY, "histogram") : SL_OK;
    if (err == SL_OK) {
        err = mailbox_open(bench, way, false, &mailbox, why);
    }
    if (err == SL_OK) {
        err = mailbox_connect(mailbox, "echo", START_NS);
        if (err != SL_OK) {
            (void)sl_fail(why, err, "the other process is not reachable");
        }
    }
    uint64_t start_ns = sl_clock_monotonic_ns();
    uint64_t warm_ns = start_ns + bench->measure_ns / WARM_UP_DIVISOR;
    while (err == SL_OK && sl_clock_monotonic_ns() < warm_ns) {
        err = round_trip(bench, mailbox, way, why);
    }
    uint64_t count = 0;
    uint64_t now_ns = start_ns = sl_clock_monotonic_ns();
    while (err == SL_OK && now_ns - start_ns < bench->measure_ns) {
        uint64_t before_ns = now_ns;
        err = round_trip(bench, mailbox, way, why);
        now_ns = sl_clock_monotonic_ns();
        ctl_histogram_add(fetch_batches_ns, now_ns - before_ns);
        count++;
    }
    if (err == SL_OK) {
        *out = (struct cell){
            .ops_per_s = (double)count * 1e9 / (double)(now_ns - start_ns),
            .p50_us = (double)ctl_histogram_quantile(fetch_batches_ns, 0.5) / 1e3,
            .p99_us = (double)ctl_histogram_quantile(fetch_batches_ns, 0.99) / 1e3,
        };
    }
    sl_mailbox_close(&mailbox);
    free(fetch_batches_ns);
    return err;
}

static sl_err cell_measure(const struct bench_queue *bench, const struct way *way, struct cell *out,
                           struct sl_error *why)
{
    pid_t pid = fork(); /* no thread runs here: the last mailbox is closed */
    if (pid < 0) {
        return sl_fail_os(why, errno, "fork");
    }
    if (pid == 0) {
        echo(bench, way);
    }
    cpu_set_t before;
    bool pins = way->awake && sched_getaffinity(0, sizeof(before), &before) == 0;
    if (pins) {
        pin(0);
    }
    sl_err err = ask(bench, way, out, why);
    if (pins) {
        (void)sched_setaffinity(0, sizeof(before), &before);
    }
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return err;
}

static int by_ops(const void *a, const void *b)
{
    double left = ((const struct cell *)a)->ops_per_s;
    double right = ((const struct cell *)b)->ops_per_s;
    return left < right ? -1 : left > right;
}

/* Measures every way in turns, so that other load on the machine affects all of them. */
static sl_err measure(struct bench_queue *bench, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t round = 0; err == SL_OK && round < ROUNDS; round++) {
        for (uint32_t way = 0; err == SL_OK && way < WAY_COUNT; way++) {
            err = cell_measure(bench, &ways[way], &bench->cells[way][round], why);
        }
    }
    for (uint32_t way = 0; err == SL_OK && way < WAY_COUNT; way++) {
        qsort(bench->cells[way], ROUNDS, sizeof(bench->cells[way][0]), by_ops);
        bench->medians[way] = bench->cells[way][ROUNDS / 2];
    }
    return err;
}

static void bench_print(const struct bench_queue *bench)
{
    (void)printf("round trip of %" PRIu64 " bytes between two processes\n", bench->size_bytes);
    for (uint32_t way = 0; way < WAY_COUNT; way++) {
        const struct cell *cell = &bench->medians[way];
        (void)printf("  %-28s %10.0f round trips/s   p50 %.2f us, p99 %.2f us\n", ways[way].name,
                     cell->ops_per_s, cell->p50_us, cell->p99_us);
    }
}

int main(int argc, char **argv)
{
    struct sl_error why = {0};
    struct bench_queue bench = {
        .directory = "/tmp/sluice-bench-XXXXXX",
        .size_bytes = SIZE_DEFAULT,
        .measure_ns = MEASURE_NS / (WAY_COUNT * ROUNDS),
    };
    if (argc > 2 || (argc == 2 && sl_parse_size(argv[1], &bench.size_bytes, &why) != SL_OK) ||
        bench.size_bytes == 0 || bench.size_bytes > SL_GIB) {
        (void)fprintf(stderr, "queue_bench [BYTES]: of a frame, up to 1 GiB\n");
        return 2;
    }
    bench.bytes = calloc(1, bench.size_bytes);
    if (bench.bytes == NULL || mkdtemp(bench.directory) == NULL) {
        perror("queue_bench");
        free(bench.bytes);
        return 1;
    }
    sl_err err = measure(&bench, &why);
    char path[64]; /* file of a killed process */
    (void)snprintf(path, sizeof(path), "%s/echo.sock", bench.directory);
    (void)unlink(path);
    (void)rmdir(bench.directory);
    free(bench.bytes);
    if (err != SL_OK) {
        (void)fprintf(stderr, "queue_bench: %s\n", why.text);
        return 1;
    }
    bench_print(&bench);
    return 0;
}
