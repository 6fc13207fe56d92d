/* tests/bench/remote_bench.c - the programs of remote_bench.py: values put and got through a node,
 * and the plain loop that sends as many bytes over as many connections and hashes what it receives.
 *
 *   put|get RUNTIME SHM INSTANCE PREFIX COUNT SIZE     prints the seconds it took
 *   serve ADDRESS PORT CONNECTIONS SIZE TOTAL          the loop's sender; prints its CPU seconds
 *   pull ADDRESS PORT CONNECTIONS SIZE TOTAL           its receiver; prints the seconds it took,
 *                                                      and its CPU seconds
 *   plain ADDRESS PORT CONNECTIONS SIZE TOTAL          the same, and nothing is hashed
 *   sealed ADDRESS PORT CONNECTIONS SIZE TOTAL         sender of records, sealed before
 *   seal ADDRESS PORT CONNECTIONS SIZE TOTAL           sender that seals as it sends
 *   open ADDRESS PORT CONNECTIONS SIZE TOTAL           receiver that opens and hashes records
 *
 * Threads are one a connection; with records each side has a CPU of its own. */
#include "client/include/sluice.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_digest.h"
#include "tests/bench/sealed_loop.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COUNT_MAX       4096u
#define CONNECTIONS_MAX 16u
#define WAIT_NS         (60 * SL_NS_PER_S)

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "remote_bench: %s\n", what);
    exit(1);
}

static uint64_t number(const char *text, uint64_t max)
{
    uint64_t value = strtoull(text, NULL, 10);
    if (value == 0 || value > max) {
        fail("a number is out of range");
    }
    return value;
}

static int objects(bool put, char **words)
{
    char runtime[256], shm[256];
    static char names[COUNT_MAX][64];
    static struct sl_object_key keys[COUNT_MAX];
    static struct sl_view views[COUNT_MAX];
    static sl_err codes[COUNT_MAX];
    uint32_t count = (uint32_t)number(words[4], COUNT_MAX);
    uint64_t size = number(words[5], SL_GIB), seconds_ns;
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    snprintf(runtime, sizeof(runtime), "runtime_dir=%s", words[0]);
    snprintf(shm, sizeof(shm), "shm_dir=%s", words[1]);
    const char *const settings[] = {runtime, shm, NULL};
    struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .instance = words[2], .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        fail(why.text);
    }
    unsigned char *value = malloc(size);
    if (value == NULL) {
        fail("no memory");
    }
    for (uint64_t i = 0; i < size; i++) {
        value[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    for (uint32_t i = 0; i < count; i++) {
        int length = snprintf(names[i], sizeof(names[i]), "%.40s-%u", words[3], i);
        keys[i] = (struct sl_object_key){.at = names[i], .length = (uint32_t)length};
    }
    uint64_t start_ns = sl_clock_monotonic_ns();
    if (put) {
        for (uint32_t i = 0; i < count; i++) {
            if (sl_put(client, keys[i], value, size, WAIT_NS, &why) != SL_OK) {
                fail(why.text);
            }
        }
    } else if (sl_get_pinned_batch(client, keys, views, count, codes, WAIT_NS, &why) != SL_OK) {
        fail(why.text);
    }
    seconds_ns = sl_clock_monotonic_ns() - start_ns;
    for (uint32_t i = 0; !put && i < count; i++) {
        if (codes[i] != SL_OK || views[i].length_bytes != size ||
            memcmp(views[i].at, value, size) != 0) {
            fail(codes[i] != SL_OK ? sl_err_text(codes[i]) : "wrong bytes");
        }
    }
    printf("%.6f\n", (double)seconds_ns / 1e9);
    sl_client_close(&client);
    free(value);
    return 0;
}

struct stream {
    int fd;
    bool send, plain;
    bool records; /* `sealed` before, when they are sent */
    double cpu_s;
    unsigned char *sealed; /* NULL: it is sealed as it is sent */
    uint64_t sealed_bytes;
    unsigned char *memory; /* total; faulted before the clock starts */
    uint64_t size, total;
    struct sl_digest digest;
};

/* Binds each side to a CPU of its own: a receiver on a shared CPU would be slower. */
static void stay(uint32_t processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void records_run(struct stream *stream)
{
    bool good = false;
    stay(stream->send ? 0 : 1);
    if (!stream->send) {
        good = sealed_receive(stream->fd, stream->memory, stream->total, stream->size);
    } else if (stream->sealed != NULL) {
        good = sealed_send(stream->fd, stream->sealed, stream->sealed_bytes);
    } else {
        good = sealed_seal_and_send(stream->fd, stream->memory, stream->total);
    }
    if (!good) {
        fail("the loop of records broke");
    }
}

static void plain_run(struct stream *stream)
{
    unsigned char *memory = stream->memory;
    for (uint64_t at = 0; at < stream->total; at += stream->size) {
        for (uint64_t done = 0; done < stream->size;) {
            ssize_t now =
                stream->send
                    ? send(stream->fd, memory + at + done, stream->size - done, MSG_NOSIGNAL)
                    : recv(stream->fd, memory + at + done, stream->size - done, 0);
            if (now <= 0) {
                fail("the loop's connection broke");
            }
            done += (uint64_t)now;
        }
        if (!stream->send && !stream->plain) {
            struct sl_digest digest = sl_digest_of(memory + at, stream->size);
            stream->digest.low ^= digest.low;
        }
    }
}

static void *stream_run(void *context)
{
    struct stream *stream = context;
    struct timespec cpu;
    if (stream->records) {
        records_run(stream);
    } else {
        plain_run(stream);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    stream->cpu_s = (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9;
    return NULL;
}

/* The fastest kind of memory: huge pages, faulted. */
static unsigned char *memory_of(uint64_t length_bytes)
{
    uint64_t rounded_bytes = (length_bytes + 2 * SL_MIB - 1) / (2 * SL_MIB) * (2 * SL_MIB);
    unsigned char *memory = aligned_alloc(2 * SL_MIB, rounded_bytes);
    if (memory == NULL) {
        fail("no memory");
    }
    (void)madvise(memory, rounded_bytes, MADV_HUGEPAGE);
    memset(memory, 1, rounded_bytes);
    return memory;
}

static int loop(const char *what, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)number(words[1], 65535))};
    uint32_t count = (uint32_t)number(words[2], CONNECTIONS_MAX);
    uint64_t size = number(words[3], SL_GIB), total = number(words[4], 64 * SL_GIB);
    struct stream streams[CONNECTIONS_MAX] = {0};
    pthread_t threads[CONNECTIONS_MAX];
    int on = 1, listener = -1;
    bool send = what[0] == 's', sealed = strcmp(what, "sealed") == 0;
    bool records = sealed || strcmp(what, "seal") == 0 || strcmp(what, "open") == 0;
    double cpu_s = 0;
    if (inet_pton(AF_INET, words[0], &at.sin_addr) != 1) {
        fail("no address");
    }
    if (send) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 16) != 0) {
            fail("cannot listen");
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        streams[i] = (struct stream){.send = send,
                                     .plain = strcmp(what, "plain") == 0,
                                     .records = records,
                                     .size = size,
                                     .total = total / count / size * size};
        streams[i].memory = memory_of(streams[i].total);
        if (sealed) {
            streams[i].sealed =
                sealed_make(streams[i].memory, streams[i].total, &streams[i].sealed_bytes);
            if (streams[i].sealed == NULL) {
                fail("no records");
            }
        }
    }
    if (send) { /* a process that reads this word may connect */
        printf("listening\n");
        fflush(stdout);
    }
    for (uint32_t i = 0; i < count; i++) {
        streams[i].fd = send ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
        if (streams[i].fd < 0 ||
            (!send && connect(streams[i].fd, (struct sockaddr *)&at, sizeof(at)) != 0)) {
            fail("no connection");
        }
    }
    uint64_t start_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, stream_run, &streams[i]) != 0) {
            fail("no thread");
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
        cpu_s += streams[i].cpu_s;
    }
    if (!send) {
        printf("%.6f ", (double)(sl_clock_monotonic_ns() - start_ns) / 1e9);
    }
    printf("%.6f\n", cpu_s);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 8 && (strcmp(argv[1], "put") == 0 || strcmp(argv[1], "get") == 0)) {
        return objects(argv[1][0] == 'p', argv + 2);
    }
    static const char *const loops[] = {"serve", "pull", "plain", "sealed", "seal", "open"};
    for (uint32_t i = 0; i < SL_COUNT(loops) && argc == 7; i++) {
        if (strcmp(argv[1], loops[i]) == 0) {
            return loop(argv[1], argv + 2);
        }
    }
    fail(
        "put|get RUNTIME SHM INSTANCE PREFIX COUNT SIZE, serve|pull|plain|sealed|seal|open ADDRESS "
        "PORT CONNECTIONS SIZE TOTAL");
}
