/* tests/node/putting_probe.c - threads that put new values without end, while the node under
 * them is stopped, killed and replaced; putting_test.py does that.
 *
 *   putting_probe INSTANCE RUNTIME_DIR SHM_DIR THREADS|late
 *
 * Prints "putting" once every thread has put a value, and continues until its input ends. Then
 * it prints the number of puts, the number of failed ones, the longest in ms and the first
 * failure. A put while no node runs does not count as failed. Every other thread uses terms, so
 * that its puts RESERVE; the others use preallocated extents. */
#include "client/include/sluice.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64u
#define VALUE_BYTES 8192u
#define PUT_NS      UINT64_C(60000000000) /* only ends hangs */
#define LATE_NS     UINT64_C(300000000)

struct putter {
    pthread_t thread;
    uint32_t number;
    bool terms;
    _Atomic uint64_t count;
    uint64_t failed, longest_ns;
    char failure[256];
};

static struct sl_client *client;
static atomic_bool over;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static sl_err put_one(const struct putter *putter, const char *key, void *value,
                      uint64_t timeout_ns, struct sl_error *why)
{
    const struct sl_iov piece = {.at = value, .length_bytes = VALUE_BYTES};
    const struct sl_iov_list item = {
        .key = {.at = key, .length = (uint32_t)strlen(key)}, .at = &piece, .count = 1};
    const struct sl_put_options terms = {.soft_pin_ns = 1};
    sl_err code = SL_OK;
    sl_err err = sl_putv(client, &item, 1, putter->terms ? &terms : NULL, &code, timeout_ns, why);
    return err != SL_OK ? err : code;
}

static void *putter_run(void *at)
{
    struct putter *putter = at;
    unsigned char value[VALUE_BYTES];
    memset(value, (int)putter->number, sizeof value);
    while (!atomic_load(&over)) {
        char key[64];
        struct sl_error why = {0};
        uint64_t done = atomic_load(&putter->count);
        (void)snprintf(key, sizeof key, "%u.%" PRIu64, putter->number, done);
        uint64_t began_ns = now_ns();
        sl_err err = put_one(putter, key, value, PUT_NS, &why);
        uint64_t took_ns = now_ns() - began_ns;
        putter->longest_ns = took_ns > putter->longest_ns ? took_ns : putter->longest_ns;
        if (err == SL_ERR_UNREACHABLE && (strncmp(why.text, "no node runs", 12) == 0 ||
                                          strstr(why.text, "was stopped") != NULL)) {
            (void)usleep(1000); /* no node runs at the moment, and the put fails immediately */
            continue;
        }
        if (err != SL_OK && putter->failed++ == 0) {
            (void)snprintf(putter->failure, sizeof putter->failure, "%s %s: %.200s",
                           sl_err_name(err), putter->terms ? "reserve" : "ahead", why.text);
        }
        atomic_store(&putter->count, done + 1);
    }
    return NULL;
}

/* One put that times out soon; then nothing. */
static int late(void)
{
    const struct putter putter = {.number = 1};
    unsigned char value[VALUE_BYTES] = {1};
    struct sl_error why = {0};
    char byte;
    (void)printf("open\n");
    (void)fflush(stdout);
    if (read(STDIN_FILENO, &byte, 1) == 1) {
        (void)printf("%s\n", sl_err_name(put_one(&putter, "late", value, LATE_NS, &why)));
        (void)fflush(stdout);
    }
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    sl_client_close(&client);
    return 0;
}

int main(int argc, char **argv)
{
    static struct putter putters[THREADS_MAX];
    struct sl_error why = {0};
    bool is_late = argc == 5 && strcmp(argv[4], "late") == 0;
    uint32_t threads = argc == 5 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    if ((threads == 0 || threads > THREADS_MAX) && !is_late) {
        return 2;
    }
    char instance[256], runtime_dir[1024], shm_dir[1024];
    const char *settings[] = {instance, runtime_dir, shm_dir, NULL};
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    if (is_late) {
        return late();
    }
    for (uint32_t i = 0; i < threads; i++) {
        putters[i].number = i;
        putters[i].terms = i % 2 == 0;
        if (pthread_create(&putters[i].thread, NULL, putter_run, &putters[i]) != 0) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < threads; i++) {
        while (atomic_load(&putters[i].count) == 0) {
            (void)usleep(1000);
        }
    }
    (void)printf("putting\n");
    (void)fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    atomic_store(&over, true);
    uint64_t count = 0, failed = 0, longest_ns = 0;
    const char *failure = "";
    for (uint32_t i = 0; i < threads; i++) {
        (void)pthread_join(putters[i].thread, NULL);
        count += atomic_load(&putters[i].count);
        failed += putters[i].failed;
        failure = putters[i].failed > 0 ? putters[i].failure : failure;
        longest_ns = putters[i].longest_ns > longest_ns ? putters[i].longest_ns : longest_ns;
    }
    (void)printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", count, failed, longest_ns / 1000000,
                 failure);
    sl_client_close(&client);
    return 0;
}
