/* client/tools/bench/disk.c - sluicectl bench disk: the disk tier of a running node next to fio in
 * the same run, with the same file system, sizes and depth, io_uring and O_DIRECT.
 *
 * store: puts values of twice the size of memory, then flushes; the clock stops when the last one
 * is durable. load: pins the same values in the same order. Memory holds half of them, so with LRU
 * order each one is read from the disk. The share that was read from the disk, as the tierers count
 * it, is printed. */
#include "client/tools/bench/kinds.h"
#include "client/tools/command/command.h"
#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_metrics.h"
#include "runtime/disk/sl_disk_place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEY_BYTES     48u
#define BATCH_BYTES   (8 * SL_MIB)
#define BATCH_KEYS    256u
#define READERS       3u
#define CALL_NS       (60 * SL_NS_PER_S)
#define ACTORS_MAX    64u
#define FIO_TEXT_MAX  (256u << 10)
#define PROBE_NAME    "bench.tmp"
#define FIO_BYTES_MAX (2 * SL_GIB)
#define VALUES_BYTES  (64 * SL_MIB) /* values are cut from this at random offsets */

static const uint64_t sizes_standard[] = {64 * SL_KIB, 256 * SL_KIB, SL_MIB, 4 * SL_MIB};

struct rate {
    double bytes_per_s, cpu_s_per_gb;
};

struct disk_bench {
    const struct ctl *ctl;
    struct sl_client *client;
    uint64_t size_bytes, depth, total_bytes, memory_bytes;
    uint32_t keys, batch;
    unsigned char *values;
    /* a directory on the disk tier's file system */
    char fio_path[SL_DISK_PLACE_BYTES + 64];
    /* results of one size */
    struct rate store, load, base_write, base_read;
    double tierer_store_cpu, tierer_load_cpu; /* CPU seconds per GB of the tierers */
    double from_disk_share;
};

/* ---- CPU time and counters of the node's actors ---- */

struct usage {
    uint64_t at_ns, values_read;
    double actors_s, tierers_s, own_s;
};

static double clock_s(clockid_t clock)
{
    struct timespec at = {0};
    (void)clock_gettime(clock, &at); /* fails for an actor that has died */
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static bool usage_page(void *context, struct sl_metrics_view *view)
{
    struct usage *usage = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    clockid_t clock;
    if (strncmp(summary.actor, "client", 6) == 0 || summary.proc.pid == 0 ||
        clock_getcpuclockid((pid_t)summary.proc.pid, &clock) != 0) {
        return true;
    }
    bool tierer = strncmp(summary.actor, "tierer", 6) == 0;
    usage->actors_s += clock_s(clock);
    usage->tierers_s += tierer ? clock_s(clock) : 0;
    usage->values_read += tierer ? ctl_page_metric(view, "values_read") : 0;
    return true;
}

static struct usage usage_now(const struct ctl *ctl)
{
    struct usage usage = {.at_ns = sl_clock_monotonic_ns()};
    (void)ctl_pages(ctl, usage_page, &usage);
    usage.own_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    return usage;
}

/* The rate since then, of all values; *tierer_cpu: CPU time of the tierers. */
static struct usage rate_since(const struct disk_bench *bench, const struct usage *then,
                               struct rate *rate, double *tierer_cpu)
{
    struct usage now = usage_now(bench->ctl);
    double gb = (double)bench->keys * (double)bench->size_bytes / 1e9;
    rate->bytes_per_s = gb * 1e9 / ((double)(now.at_ns - then->at_ns) / 1e9);
    rate->cpu_s_per_gb = (now.actors_s - then->actors_s + now.own_s - then->own_s) / gb;
    *tierer_cpu = (now.tierers_s - then->tierers_s) / gb;
    return now;
}

/* ---- the node ---- */

static void key_make(const struct disk_bench *bench, uint32_t number, char out[KEY_BYTES])
{
    (void)snprintf(out, KEY_BYTES, "bench/disk/%u/%" PRIu64 "/%u", (uint32_t)getpid(),
                   bench->size_bytes, number);
}

struct call {
    char texts[BATCH_KEYS][KEY_BYTES];
    struct sl_object_key keys[BATCH_KEYS];
    struct sl_buffer buffers[BATCH_KEYS];
    struct sl_view views[BATCH_KEYS];
    sl_err codes[BATCH_KEYS];
};

static uint32_t call_fill(const struct disk_bench *bench, struct call *call, uint32_t first)
{
    uint32_t count = SL_MIN(bench->batch, bench->keys - first);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t slack = (VALUES_BYTES - bench->size_bytes) / 64;
        uint64_t at = (first + i) * UINT64_C(2654435761) % (slack + 1) * 64;
        key_make(bench, first + i, call->texts[i]);
        call->keys[i] = (struct sl_object_key){.at = call->texts[i],
                                               .length = (uint32_t)strlen(call->texts[i])};
        call->buffers[i] =
            (struct sl_buffer){.at = bench->values + at, .length_bytes = bench->size_bytes};
    }
    return count;
}

static sl_err call_check(const struct call *call, uint32_t count, const char *what,
                         struct sl_error *why)
{
    for (uint32_t i = 0; i < count; i++) {
        if (call->codes[i] != SL_OK) {
            return sl_fail(why, call->codes[i], "%s of %s: %s", what, call->texts[i],
                           sl_err_text(call->codes[i]));
        }
    }
    return SL_OK;
}

static sl_err store_all(struct disk_bench *bench, struct sl_error *why)
{
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a call");
    }
    struct usage before = usage_now(bench->ctl);
    sl_err err = SL_OK;
    for (uint32_t first = 0; err == SL_OK && first < bench->keys; first += bench->batch) {
        uint32_t count = call_fill(bench, call, first);
        err = sl_put_batch(bench->client, call->keys, call->buffers, count, call->codes, CALL_NS,
                           why);
        err = err == SL_OK ? call_check(call, count, "put", why) : err;
    }
    if (err == SL_OK) {
        err = sl_flush(bench->client, CALL_NS, why);
    }
    (void)rate_since(bench, &before, &bench->store, &bench->tierer_store_cpu);
    free(call);
    return err;
}

struct reader {
    struct disk_bench *bench;
    _Atomic uint32_t *next;
    struct sl_client *client;
    struct sl_error why;
    sl_err err;
};

static void *reader_run(void *context)
{
    struct reader *reader = context;
    const struct disk_bench *bench = reader->bench;
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        reader->err = sl_fail(&reader->why, SL_ERR_NO_MEMORY, "no memory for a call");
        return NULL;
    }
    while (reader->err == SL_OK) {
        uint32_t first = atomic_fetch_add(reader->next, bench->batch);
        if (first >= bench->keys) {
            break;
        }
        uint32_t count = call_fill(bench, call, first);
        reader->err = sl_get_pinned_batch(reader->client, call->keys, call->views, count,
                                          call->codes, CALL_NS, &reader->why);
        for (uint32_t i = 0; reader->err == SL_OK && i < count; i++) {
            /* Compares only the first and last bytes: the tierer has checked the digest. */
            if (call->codes[i] == SL_OK &&
                (call->views[i].length_bytes != bench->size_bytes ||
                 memcmp(call->views[i].at, call->buffers[i].at, 64) != 0)) {
                reader->err =
                    sl_fail(&reader->why, SL_ERR_CORRUPT, "wrong bytes of %s", call->texts[i]);
            }
            if (call->codes[i] == SL_OK) {
                sl_view_release(reader->client, &call->views[i]);
            }
        }
        reader->err =
            reader->err == SL_OK ? call_check(call, count, "get", &reader->why) : reader->err;
    }
    free(call);
    return NULL;
}

static sl_err load_all(struct disk_bench *bench, struct sl_error *why)
{
    struct reader readers[READERS] = {0};
    pthread_t threads[READERS];
    _Atomic uint32_t next = 0;
    uint32_t started = 0;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < READERS; i++) {
        readers[i] = (struct reader){.bench = bench, .next = &next};
        err = ctl_open(bench->ctl, false, &readers[i].client, why);
    }
    struct usage before = usage_now(bench->ctl);
    for (; err == SL_OK && started < READERS; started++) {
        int code = pthread_create(&threads[started], NULL, reader_run, &readers[started]);
        if (code != 0) {
            err = sl_fail_os(why, code, "start a thread");
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        if (err == SL_OK && readers[i].err != SL_OK) {
            err = readers[i].err;
            *why = readers[i].why;
        }
    }
    struct usage after = rate_since(bench, &before, &bench->load, &bench->tierer_load_cpu);
    bench->from_disk_share = (double)(after.values_read - before.values_read) / bench->keys;
    for (uint32_t i = 0; i < READERS; i++) {
        sl_client_close(&readers[i].client);
    }
    return err;
}

static void remove_all(struct disk_bench *bench)
{
    struct call *call = calloc(1, sizeof *call);
    struct sl_error ignored;
    for (uint32_t first = 0; call != NULL && first < bench->keys; first += bench->batch) {
        uint32_t count = call_fill(bench, call, first);
        (void)sl_remove_batch(bench->client, call->keys, count, NULL, call->codes, CALL_NS,
                              &ignored);
    }
    free(call);
}

/* ---- fio ---- */

/* Runs fio and gives its JSON. NULL: it failed. */
static json_t *fio_run(const struct disk_bench *bench, bool write)
{
    char file[1200], block[48], depth[48], size[48];
    int pipes[2];
    (void)snprintf(file, sizeof file, "--filename=%s", bench->fio_path);
    (void)snprintf(block, sizeof block, "--bs=%" PRIu64, bench->size_bytes);
    (void)snprintf(depth, sizeof depth, "--iodepth=%" PRIu64, bench->depth);
    (void)snprintf(size, sizeof size, "--size=%" PRIu64, SL_MIN(bench->total_bytes, FIO_BYTES_MAX));
    const char *const arguments[] = {"fio",
                                     "--name=bench",
                                     file,
                                     block,
                                     depth,
                                     size,
                                     "--ioengine=io_uring",
                                     "--direct=1",
                                     write ? "--rw=write" : "--rw=read",
                                     "--end_fsync=1",
                                     "--output-format=json",
                                     NULL};
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(pipes[1], STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        (void)execvp(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    (void)close(pipes[1]);
    SL_AUTO(free) char *text = malloc(FIO_TEXT_MAX);
    size_t got = 0;
    ssize_t part;
    while (text != NULL && got < FIO_TEXT_MAX - 1 &&
           ((part = read(pipes[0], text + got, FIO_TEXT_MAX - 1 - got)) > 0 || errno == EINTR)) {
        got += part > 0 ? (size_t)part : 0;
    }
    (void)close(pipes[0]);
    int status = -1;
    if (pid > 0) {
        (void)waitpid(pid, &status, 0);
    }
    return text != NULL && status == 0 ? json_loadb(text, got, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static bool fio_measure(const struct disk_bench *bench, bool write, struct rate *out)
{
    json_t *report = fio_run(bench, write);
    const json_t *job = json_array_get(json_object_get(report, "jobs"), 0);
    const json_t *side = json_object_get(job, write ? "write" : "read");
    double bytes = json_number_value(json_object_get(side, "io_bytes"));
    double runtime_ms = json_number_value(json_object_get(side, "runtime"));
    double share = json_number_value(json_object_get(job, "usr_cpu")) +
                   json_number_value(json_object_get(job, "sys_cpu"));
    bool fine = bytes > 0 && runtime_ms > 0;
    if (fine) {
        /* fio's runtime excludes the final fsync, which has little to do after O_DIRECT. */
        out->bytes_per_s = bytes / (runtime_ms / 1e3);
        out->cpu_s_per_gb = share / 100 * (runtime_ms / 1e3) / (bytes / 1e9);
    }
    json_decref(report);
    return fine;
}

static sl_err baseline(const struct disk_bench *bench, bool write, struct rate *out,
                       struct sl_error *why)
{
    if (write) {
        (void)unlink(
            bench->fio_path); /* so that it is like a new log file: allocated, never written */
    }
    return fio_measure(bench, write, out)
               ? SL_OK
               : sl_fail(why, SL_ERR_IO, "fio: %s '%s' failed (Debian's package fio)",
                         write ? "writing" : "reading", bench->fio_path);
}

/* ---- one size ---- */

static sl_err bench_size(struct disk_bench *bench, struct sl_error *why)
{
    bench->keys = (uint32_t)(bench->total_bytes / bench->size_bytes);
    bench->batch = (uint32_t)SL_MIN(
        SL_MAX(SL_MIN(BATCH_BYTES, bench->memory_bytes / 16) / bench->size_bytes, 1u), BATCH_KEYS);
    /* fio runs before and after, to average out a machine that becomes slower or faster. */
    struct rate first = {0}, second = {0};
    sl_err err = baseline(bench, true, &first, why);
    err = err == SL_OK ? store_all(bench, why) : err;
    err = err == SL_OK ? baseline(bench, true, &second, why) : err;
    bench->base_write =
        (struct rate){.bytes_per_s = (first.bytes_per_s + second.bytes_per_s) / 2,
                      .cpu_s_per_gb = (first.cpu_s_per_gb + second.cpu_s_per_gb) / 2};
    err = err == SL_OK ? baseline(bench, false, &first, why) : err;
    err = err == SL_OK ? load_all(bench, why) : err;
    err = err == SL_OK ? baseline(bench, false, &second, why) : err;
    bench->base_read =
        (struct rate){.bytes_per_s = (first.bytes_per_s + second.bytes_per_s) / 2,
                      .cpu_s_per_gb = (first.cpu_s_per_gb + second.cpu_s_per_gb) / 2};
    remove_all(bench);
    return err;
}

static json_t *side_json(struct rate ours, double tierer_cpu, struct rate base)
{
    return json_pack("{s:f, s:f, s:f, s:{s:f, s:f}, s:f}", "bytes_per_s", ours.bytes_per_s,
                     "cpu_s_per_gb", ours.cpu_s_per_gb, "tierer_cpu_s_per_gb", tierer_cpu,
                     "baseline", "bytes_per_s", base.bytes_per_s, "cpu_s_per_gb", base.cpu_s_per_gb,
                     "ratio", ours.bytes_per_s / base.bytes_per_s);
}

static json_t *size_json(const struct disk_bench *bench)
{
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:f}", "size_bytes", (json_int_t)bench->size_bytes,
                     "values", (json_int_t)bench->keys, "batch", (json_int_t)bench->batch, "store",
                     side_json(bench->store, bench->tierer_store_cpu, bench->base_write), "load",
                     side_json(bench->load, bench->tierer_load_cpu, bench->base_read),
                     "loaded_from_disk_share", bench->from_disk_share);
}

/* ---- set-up ---- */

static sl_err bench_prepare(struct disk_bench *bench, uint64_t total_bytes, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = sl_arena_attach(bench->ctl->paths.shm_dir, 0, false, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    bench->memory_bytes = sl_arena_data_bytes(arena);
    sl_arena_close(&arena);
    bench->total_bytes = total_bytes != 0 ? total_bytes : 2 * bench->memory_bytes;
    char directory[SL_DISK_PLACE_BYTES];
    struct stat status;
    err = sl_disk_place_find(bench->ctl->paths.disk_paths[0], directory, why);
    if (err != SL_OK) {
        return err;
    }
    if (stat(directory, &status) != 0) {
        return sl_fail_os(why, errno, "the directory of the disk tier, '%s' (--disk-path)",
                          directory);
    }
    /* A directory: the tierer ignores everything except its own files. */
    (void)snprintf(bench->fio_path, sizeof bench->fio_path, "%s/bench", directory);
    if (mkdir(bench->fio_path, 0700) != 0 && errno != EEXIST) {
        return sl_fail_os(why, errno, "make '%s'", bench->fio_path);
    }
    (void)snprintf(bench->fio_path, sizeof bench->fio_path, "%s/bench/%s", directory, PROBE_NAME);
    bench->values = malloc(VALUES_BYTES);
    if (bench->values == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for values");
    }
    uint64_t seed = 1;
    for (uint64_t i = 0; i + 8 <= VALUES_BYTES; i += 8) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(bench->values + i, &seed, 8);
    }
    return ctl_open(bench->ctl, false, &bench->client, why);
}

static void bench_clean(struct disk_bench *bench)
{
    sl_client_close(&bench->client);
    free(bench->values);
    if (bench->fio_path[0] != '\0') {
        (void)unlink(bench->fio_path);
        *strrchr(bench->fio_path, '/') = '\0';
        (void)rmdir(bench->fio_path);
    }
}

int ctl_bench_disk(struct ctl *ctl, uint64_t size_bytes, uint64_t total_bytes)
{
    struct sl_error why = {0};
    struct disk_bench bench = {.ctl = ctl,
                               .depth = sl_config_u64(ctl->config, SL_SET_disk_queue_depth)};
    if (size_bytes > VALUES_BYTES / 2 || size_bytes % SL_PAGE_BYTES != 0) {
        return ctl_usage_error(ctl,
                               "bench disk: --size must be a multiple of 4 KiB, at most 32 MiB");
    }
    sl_err err = bench_prepare(&bench, total_bytes, &why);
    json_t *rows = json_array();
    size_t count = size_bytes != 0 ? 1 : SL_COUNT(sizes_standard);
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        bench.size_bytes = size_bytes != 0 ? size_bytes : sizes_standard[i];
        err = bench_size(&bench, &why);
        (void)json_array_append_new(rows, err == SL_OK ? size_json(&bench) : NULL);
        bench_progress(ctl, i + 1, count);
    }
    bench_clean(&bench);
    if (err != SL_OK) {
        json_decref(rows);
        return ctl_failed(ctl, &why);
    }
    return ctl_answer(ctl, json_pack("{s:s, s:s, s:I, s:I, s:o}", "bench", "disk", "baseline",
                                     "fio", "depth", (json_int_t)bench.depth, "total_bytes",
                                     (json_int_t)bench.total_bytes, "sizes", rows));
}
