/* tests/bench/net_bench.c - remote blocks over the tcp fabric, compared with send/recv loops
 * between the same two namespaces with the same number of connections. Prints figures, asserts
 * no times.
 *
 * Three more cases end in a pool whose blocks are layer-first: values that are read into the
 * arena and copied from there; values of which each layer is read by a request of its own and
 * digested there; and values that are read by one request whose places are the layers. Copies
 * are this side's copies after the socket's own, in bytes a byte.
 *
 *   net_bench [CONNECTIONS [MIB A MEASUREMENT [ROUNDS]]], with NET_BENCH_CLEAR set in the clear */
#include "runtime/base/sl_copy.h"
#include "tests/support/fabric_remote.h"
#include "tests/support/netns.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MEMORY     (256 * SL_MIB)
#define LOOP_PORT  7117
#define ROUNDS_MAX 32u
#define CONNS_MAX  16u
#define LAYERS     32u

enum way {
    WAY_PLAIN,
    WAY_HASH,
    WAY_FABRIC,
    WAY_FABRIC_BARE,
    WAY_STAGED,
    WAY_LAYERS,
    WAY_POOL,
    WAY_COUNT
};
static const char *const way_names[] = {"send/recv loop",         "send/recv loop, hashed",
                                        "fabric, verified",       "fabric, unverified",
                                        "by the arena to a pool", "into the pool, by layer",
                                        "into the pool, places"};
struct figure {
    double bytes_per_s, cpu_s_per_gb, copies;
};

/* ---- the loops: a thread a connection on both sides ---- */

struct stream {
    int fd;
    unsigned char *memory;
    uint64_t span_bytes, value_bytes, total_bytes;
    bool hash;
    struct sl_digest digest;
};

static void *stream_send(void *context)
{
    struct stream *stream = context;
    uint64_t at = 0;
    for (uint64_t sent = 0; sent < stream->total_bytes;) {
        uint64_t done = 0;
        while (done < stream->value_bytes) {
            ssize_t now = send(stream->fd, stream->memory + at + done, stream->value_bytes - done,
                               MSG_NOSIGNAL);
            if (now <= 0) {
                return NULL;
            }
            done += (uint64_t)now;
        }
        sent += done;
        at = at + 2 * stream->value_bytes <= stream->span_bytes ? at + stream->value_bytes : 0;
    }
    return NULL;
}

static void *stream_receive(void *context)
{
    struct stream *stream = context;
    uint64_t at = 0;
    for (uint64_t got = 0; got < stream->total_bytes;) {
        uint64_t done = 0;
        while (done < stream->value_bytes) {
            ssize_t now =
                recv(stream->fd, stream->memory + at + done, stream->value_bytes - done, 0);
            if (now <= 0) {
                return NULL;
            }
            done += (uint64_t)now;
        }
        if (stream->hash) {
            struct sl_digest digest = sl_digest_of(stream->memory + at, stream->value_bytes);
            stream->digest.low ^= digest.low;
        }
        got += done;
        at = at + 2 * stream->value_bytes <= stream->span_bytes ? at + stream->value_bytes : 0;
    }
    return NULL;
}

static void streams_run(struct stream *streams, uint32_t count, void *(*run)(void *))
{
    pthread_t threads[CONNS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run, &streams[i]), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static void streams_fill(struct stream *streams, uint32_t count, unsigned char *memory,
                         uint64_t value_bytes, uint64_t total_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t span = MEMORY / count / value_bytes * value_bytes;
        streams[i].memory = memory + i * span;
        streams[i].span_bytes = span;
        streams[i].value_bytes = value_bytes;
        streams[i].total_bytes = total_bytes / count / value_bytes * value_bytes;
    }
}

/* Runs in the other namespace: argument = size of a value | connections << 32. */
static void loop_job(int control, unsigned char *memory, uint64_t length_bytes, uint64_t argument,
                     uint64_t total_bytes)
{
    (void)control;
    (void)length_bytes;
    struct stream streams[CONNS_MAX] = {0};
    uint32_t count = (uint32_t)(argument >> 32);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(LOOP_PORT)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 64) != 0) {
        perror("loop");
        _exit(1);
    }
    streams_fill(streams, count, memory, argument & UINT32_MAX, total_bytes);
    for (uint32_t i = 0; i < count; i++) {
        streams[i].fd = accept(listener, NULL, NULL);
    }
    close(listener);
    streams_run(streams, count, stream_send);
    for (uint32_t i = 0; i < count; i++) {
        close(streams[i].fd);
    }
}

static int loop_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(LOOP_PORT)};
    ck_assert_int_eq(inet_pton(AF_INET, NETNS_THEIR, &to.sin_addr), 1);
    for (int i = 0; i < 1000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
            return fd;
        }
        close(fd);
        usleep(5000);
    }
    ck_abort_msg("the loop's listener did not come");
}

/* ---- the fabric ---- */

struct bench {
    struct remote remote;
    struct fabric_end end;
    uint32_t connections, key;
    uint64_t total_bytes;
    struct sl_digest *digests; /* digests of the values of one size */
    unsigned char *pool;       /* MEMORY bytes: [layer][block][piece] */
    uint32_t pool_memory;
    uint64_t copied_bytes; /* copied after the socket */
};

static void fabric_run(struct bench *bench, uint64_t value_bytes, const struct sl_digest *digests)
{
    static struct sl_fabric_piece pieces[SL_FABRIC_PIECES_MAX];
    uint64_t batch_values = SL_MAX(UINT64_C(1), 16 * SL_MIB / value_bytes), posted = 0, done = 0;
    uint64_t values = bench->total_bytes / value_bytes, span = MEMORY / value_bytes, at = 0;
    uint32_t before = bench->end.done_count;
    struct sl_error why = {0};
    while (done < values) {
        while (posted < values && posted - done < 4 * batch_values) {
            uint32_t count = (uint32_t)SL_MIN(batch_values, values - posted);
            for (uint32_t i = 0; i < count; i++, at = (at + 1) % span) {
                pieces[i] = (struct sl_fabric_piece){
                    .memory = bench->end.memory,
                    .key = bench->key,
                    .offset_bytes = at * value_bytes,
                    .remote_offset_bytes = at * value_bytes,
                    .length_bytes = value_bytes,
                    .digest = digests == NULL ? NULL : &digests[at],
                };
            }
            struct sl_fabric_transfer transfer = {.peer = bench->end.peer,
                                                  .pieces = pieces,
                                                  .piece_count = count,
                                                  .deadline_ns = SL_NEVER_NS};
            sl_err err = sl_fabric_post(bench->end.fabric, &transfer, &why);
            ck_assert_msg(err == SL_OK, "%s", why.text);
            posted += count;
        }
        remote_step(&bench->remote, &bench->end, 1000);
        while (before < bench->end.done_count) {
            const struct end_done *one = &bench->end.dones[before++ % END_DONES_MAX];
            ck_assert_int_eq(one->code, SL_OK);
            done += one->piece_count;
        }
    }
}

/* ---- into a pool ---- */

static uint64_t pool_offset(uint64_t value_bytes, uint64_t block, uint32_t layer)
{
    uint64_t piece_bytes = value_bytes / LAYERS, blocks = MEMORY / value_bytes;
    return (layer * blocks + block) * piece_bytes;
}

/* Copies as a swapper does: the layers of a value, one after the other, to their places. */
static void value_copy(struct bench *bench, uint64_t value_bytes, uint64_t block)
{
    uint64_t piece_bytes = value_bytes / LAYERS;
    const unsigned char *value = bench->end.bytes + block * value_bytes;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        sl_copy(bench->pool + pool_offset(value_bytes, block, layer), value + layer * piece_bytes,
                piece_bytes);
    }
    bench->copied_bytes += value_bytes;
}

static void value_check(const struct bench *bench, uint64_t value_bytes, uint64_t block)
{
    _Alignas(64) struct sl_digest_stream stream;
    sl_digest_start(&stream);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        sl_digest_feed(&stream, bench->pool + pool_offset(value_bytes, block, layer),
                       value_bytes / LAYERS);
    }
    ck_assert(sl_digest_equal(sl_digest_finish(&stream), bench->digests[block]));
}

/* Reads values: each whole into the arena, or its layers into the pool, by one request or many. */
static void batch_post(struct bench *bench, uint64_t value_bytes, uint64_t block, uint32_t count,
                       enum way way)
{
    static struct sl_fabric_piece pieces[SL_FABRIC_PIECES_MAX];
    static struct sl_fabric_place places[SL_FABRIC_PIECES_MAX];
    uint32_t parts = way == WAY_LAYERS ? LAYERS : 1;
    uint64_t piece_bytes = value_bytes / parts;
    struct sl_error why = {0};
    for (uint32_t i = 0; i < count * LAYERS; i++) {
        places[i] = (struct sl_fabric_place){
            .memory = bench->pool_memory,
            .offset_bytes = pool_offset(value_bytes, block + i / LAYERS, i % LAYERS),
            .length_bytes = value_bytes / LAYERS};
    }
    for (uint32_t i = 0; i < count * parts; i++) {
        uint64_t value = block + i / parts;
        uint64_t at = value * value_bytes + i % parts * piece_bytes;
        pieces[i] = (struct sl_fabric_piece){
            .memory = way == WAY_STAGED ? bench->end.memory : bench->pool_memory,
            .key = bench->key,
            .offset_bytes = way == WAY_LAYERS ? places[i].offset_bytes : at,
            .remote_offset_bytes = at,
            .length_bytes = piece_bytes,
            .digest = way == WAY_LAYERS ? NULL : &bench->digests[value],
            .places = way == WAY_POOL ? &places[(size_t)i * LAYERS] : NULL,
            .place_count = way == WAY_POOL ? LAYERS : 0,
        };
    }
    const struct sl_fabric_transfer transfer = {.peer = bench->end.peer,
                                                .pieces = pieces,
                                                .piece_count = count * parts,
                                                .cookie = block << 32 | count,
                                                .deadline_ns = SL_NEVER_NS};
    sl_err err = sl_fabric_post(bench->end.fabric, &transfer, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static void pool_run(struct bench *bench, uint64_t value_bytes, enum way way)
{
    uint64_t batch = SL_MIN(SL_MAX(UINT64_C(1), 16 * SL_MIB / value_bytes),
                            (uint64_t)SL_FABRIC_PIECES_MAX / LAYERS);
    uint64_t values = bench->total_bytes / value_bytes, span = MEMORY / value_bytes;
    uint64_t posted = 0, done = 0;
    uint32_t before = bench->end.done_count;
    while (done < values) {
        while (posted < values && posted - done < 4 * batch) {
            uint64_t block = posted % span;
            uint32_t count = (uint32_t)SL_MIN(SL_MIN(batch, values - posted), span - block);
            batch_post(bench, value_bytes, block, count, way);
            posted += count;
        }
        remote_step(&bench->remote, &bench->end, 1000);
        while (before < bench->end.done_count) {
            const struct end_done *one = &bench->end.dones[before++ % END_DONES_MAX];
            uint64_t block = one->cookie >> 32, count = one->cookie & UINT32_MAX;
            ck_assert_int_eq(one->code, SL_OK);
            for (uint64_t i = block; i < block + count; i++) {
                if (way == WAY_STAGED) {
                    value_copy(bench, value_bytes, i);
                } else if (way == WAY_LAYERS) {
                    value_check(bench, value_bytes, i);
                }
            }
            done += count;
        }
    }
}

static void pool_open(struct bench *bench)
{
    struct sl_error why = {0};
    uint32_t arena = bench->end.memory;
    bench->pool = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(bench->pool != MAP_FAILED);
    memset(bench->pool, 1, MEMORY); /* its pages are populated before the measurement */
    const struct sl_fabric_memory memory = {
        .at = bench->pool, .length_bytes = MEMORY, .stride_bytes = SL_MIB};
    bench->end.registered = false;
    ck_assert_int_eq(sl_fabric_memory_add(bench->end.fabric, &memory, &bench->pool_memory, &why),
                     SL_OK);
    bench->end.memory = bench->pool_memory; /* the memory that registered() uses */
    REMOTE_UNTIL(&bench->remote, &bench->end, bench->end.registered);
    bench->end.memory = arena;
}

/* ---- measuring ---- */

static double cpu_here(void)
{
    struct timespec cpu;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9;
}

static void loop_run(struct bench *bench, uint64_t value_bytes, bool hash)
{
    struct stream streams[CONNS_MAX] = {0};
    remote_job(&bench->remote, value_bytes | (uint64_t)bench->connections << 32,
               bench->total_bytes);
    streams_fill(streams, bench->connections, bench->end.bytes, value_bytes, bench->total_bytes);
    for (uint32_t i = 0; i < bench->connections; i++) {
        streams[i].fd = loop_connect();
        streams[i].hash = hash;
    }
    streams_run(streams, bench->connections, stream_receive);
    for (uint32_t i = 0; i < bench->connections; i++) {
        close(streams[i].fd);
    }
}

static struct figure measure(struct bench *bench, enum way way, uint64_t value_bytes,
                             const struct sl_digest *digests)
{
    bench->copied_bytes = 0;
    double cpu = cpu_here() + (double)remote_cpu_ns(&bench->remote, &bench->end) / 1e9;
    uint64_t start_ns = sl_clock_monotonic_ns();
    if (way == WAY_PLAIN || way == WAY_HASH) {
        loop_run(bench, value_bytes, way == WAY_HASH);
    } else if (way >= WAY_STAGED) {
        pool_run(bench, value_bytes, way);
    } else {
        fabric_run(bench, value_bytes, way == WAY_FABRIC ? digests : NULL);
    }
    double seconds = (double)(sl_clock_monotonic_ns() - start_ns) / 1e9;
    cpu = cpu_here() + (double)remote_cpu_ns(&bench->remote, &bench->end) / 1e9 - cpu;
    double bytes = (double)(bench->total_bytes / value_bytes * value_bytes);
    return (struct figure){.bytes_per_s = bytes / seconds,
                           .cpu_s_per_gb = cpu / (bytes / 1e9),
                           .copies = (double)bench->copied_bytes / bytes};
}

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

static void size_measure(struct bench *bench, uint64_t value_bytes, uint32_t rounds)
{
    static double speed[WAY_COUNT][ROUNDS_MAX], cpu[WAY_COUNT][ROUNDS_MAX];
    static double to_plain[ROUNDS_MAX], to_hashed[ROUNDS_MAX], to_staged[ROUNDS_MAX];
    static double by_layer[ROUNDS_MAX];
    double copies[WAY_COUNT] = {0};
    uint64_t count = MEMORY / value_bytes;
    pattern_fill(bench->end.bytes, MEMORY, 1);
    for (uint64_t i = 0; i < count; i++) { /* the remote memory has the same bytes */
        bench->digests[i] = sl_digest_of(bench->end.bytes + i * value_bytes, value_bytes);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t way = 0; way < WAY_COUNT; way++) {
            struct figure figure = measure(bench, (enum way)way, value_bytes, bench->digests);
            speed[way][round] = figure.bytes_per_s;
            cpu[way][round] = figure.cpu_s_per_gb;
            copies[way] = figure.copies;
        }
        to_plain[round] = speed[WAY_FABRIC][round] / speed[WAY_PLAIN][round];
        to_staged[round] = speed[WAY_POOL][round] / speed[WAY_STAGED][round];
        by_layer[round] = speed[WAY_LAYERS][round] / speed[WAY_STAGED][round];
        to_hashed[round] = speed[WAY_FABRIC][round] / speed[WAY_HASH][round];
    }
    for (uint32_t way = 0; way < WAY_COUNT; way++) {
        printf("%5llu KiB  %-24s %7.2f GB/s  %.3f CPU s/GB  %.0f copies\n",
               (unsigned long long)(value_bytes / SL_KIB), way_names[way],
               median(speed[way], rounds) / 1e9, median(cpu[way], rounds), copies[way]);
    }
    printf("%5llu KiB  verified to hashed loop %.2f, to plain loop %.2f, "
           "into the pool to by the arena %.2f (by layer: %.2f; medians of %u rounds)\n",
           (unsigned long long)(value_bytes / SL_KIB), median(to_hashed, rounds),
           median(to_plain, rounds), median(to_staged, rounds), median(by_layer, rounds), rounds);
    fflush(stdout);
}

static int arguments;
static char **argument;

START_TEST(figures)
    {
        static struct bench bench;
        int argc = arguments;
        char **argv = argument;
        static const uint64_t sizes[] = {256 * SL_KIB, SL_MIB, 4 * SL_MIB};
        uint32_t rounds = argc > 3 ? (uint32_t)atoi(argv[3]) : 5;
        bench.connections = argc > 1 ? (uint32_t)atoi(argv[1]) : 4;
        bench.total_bytes = (argc > 2 ? (uint64_t)atoi(argv[2]) : 1024) * SL_MIB;
        ck_assert(bench.connections >= 1 && bench.connections <= CONNS_MAX && rounds >= 1 &&
                  rounds <= ROUNDS_MAX);
        struct remote_options options = {
            .length_bytes = MEMORY, .before = netns_child, .job = loop_job};
        struct sl_fabric_options ours;
        struct sl_error why = {0};
        end_options(&bench.end, &ours, "tcp");
        ours.lanes = bench.connections;
        ours.stall_ns = ours.connect_ns = 30 * SL_NS_PER_S;
        ours.clear = getenv("NET_BENCH_CLEAR") != NULL;
        if (getenv("NET_BENCH_UNIT") != NULL) {
            ours.unit_bytes = (uint64_t)atoi(getenv("NET_BENCH_UNIT")) * SL_KIB;
        }
        options.fabric = ours;
        options.fabric.address = NETNS_THEIR;
        ours.address = NETNS_OURS;
        netns_enter();
        remote_start(&bench.remote, &options);
        netns_join(bench.remote.pid);
        ck_assert_int_eq(end_open(&bench.end, &ours, MEMORY, 0, &why), SL_OK);
        bench.digests = calloc(MEMORY / sizes[0], sizeof(*bench.digests));
        REMOTE_UNTIL(&bench.remote, &bench.end,
                     bench.remote.ready && bench.end.registered && bench.end.link == SL_FABRIC_UP);
        remote_fill(&bench.remote, &bench.end, 1);
        pool_open(&bench);
        bench.key = remote_key(&bench.remote, &bench.end, 0, MEMORY);
        printf("%s to %s, %u connections, %llu MiB a measurement\n",
               sl_fabric_about(bench.end.fabric), bench.remote.about, bench.connections,
               (unsigned long long)(bench.total_bytes / SL_MIB));
        for (size_t i = 0; i < SL_COUNT(sizes); i++) {
            size_measure(&bench, sizes[i], rounds);
        }
        remote_stop(&bench.remote);
        end_close(&bench.end);
        munmap(bench.pool, MEMORY);
        free(bench.digests);
    }
END_TEST

/* The tests' support code asserts with Check, which works only inside of a Check test. */
int main(int argc, char **argv)
{
    const char *missing = netns_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return 77;
    }
    arguments = argc;
    argument = argv;
    Suite *all = suite_create("net_bench");
    TCase *tests = tcase_create("figures");
    tcase_add_test(tests, figures);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
