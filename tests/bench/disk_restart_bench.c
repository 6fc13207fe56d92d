/* tests/bench/disk_restart_bench.c - how long a restarted tierer takes to learn what its disk
 * holds, compared with only reading the footers.
 *
 *   disk_restart_bench DIRECTORY [TOTAL_MIB [VALUE_BYTES]]
 *
 * Writes TOTAL_MIB through a tierer into the directory (which is created; log files are removed
 * at the end), stops it, drops the files' pages, and starts another. The disk is real; the test
 * plays the registrar. */
#include "actors/tierer/segment_format.h"
#include "actors/tierer/tierer.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_clock.h"
#include "runtime/disk/sl_disk.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARENA_BYTES    (UINT64_C(64) << 20)
#define BATCH_BYTES    (UINT64_C(4) << 20)
#define BATCH_ITEMS    64u
#define REQUESTS_MAX   8u
#define PAUSE_NS       (50 * SL_NS_PER_US)
#define TAIL_BYTES     (64u << 10)
#define STARTS         5u
#define EXTRAPOLATE_TO (UINT64_C(100) * 1000 * 1000 * 1000)

static struct fake_env fake;
static struct sl_env_ops ops;
static struct sl_disk *disk;
static const char *directory;
static struct sl_arena *arena;
static double empty_s; /* a start on an empty directory: tables, ring, probes */

static sl_err disk_open(struct sl_env *env, const char *path, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    int event_fd = -1;
    (void)env, (void)path;
    sl_err err = sl_disk_uring_open(directory, depth, direct, &disk, &event_fd, why);
    *out = disk;
    return err;
}

static void io_done(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    (void)context;
    struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
    msg.body.local_io.cookie = cookie;
    msg.body.local_io.bytes = bytes;
    msg.body.local_io.os_code = (uint64_t)os_code;
    ck_assert_int_eq(fake.actor->handle(fake.state, &msg), SL_OK);
}

static void turn(void)
{
    const struct timespec pause = {.tv_nsec = (long)PAUSE_NS};
    disk->ops->reap(disk, io_done, NULL);
    (void)nanosleep(&pause, NULL);
    fake_advance(&fake, PAUSE_NS);
}

static void start(void)
{
    struct sl_error why = {0};
    ops = *fake.env.ops;
    ops.disk_open = disk_open;
    fake.env.ops = &ops;
    sl_err err = fake_start(&fake, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static uint64_t write_send(uint64_t first, uint32_t count, uint64_t length_bytes,
                           struct sl_digest digest)
{
    static char keys[BATCH_ITEMS][48];
    struct sl_item_spill items[BATCH_ITEMS];
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "0123456789abcdef/%016llx/0/kv",
                       (unsigned long long)(first + i));
        items[i] = (struct sl_item_spill){.key = sl_text_of(keys[i]),
                                          .offset_bytes = 0, /* all the same bytes */
                                          .length_bytes = length_bytes,
                                          .generation = first + i + 1,
                                          .digest_low = digest.low,
                                          .digest_high = digest.high};
    }
    msg.body.disk_write.items.at = items;
    msg.body.disk_write.items.count = count;
    fake_give(&fake, "registrar", &msg);
    return msg.seq;
}

static void fill(uint64_t objects, uint64_t length_bytes)
{
    unsigned char *value = sl_arena_at(arena, 0, length_bytes);
    uint64_t open_seqs[REQUESTS_MAX] = {0}, next = 0;
    uint32_t waiting = 0;
    memset(value, 0x5a, length_bytes);
    struct sl_digest digest = sl_digest_of(value, length_bytes);
    uint64_t batch = SL_MAX(SL_MIN(BATCH_BYTES / length_bytes, (uint64_t)BATCH_ITEMS), UINT64_C(1));
    while (next < objects || waiting > 0) {
        waiting = 0;
        for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
            struct sl_msg reply;
            if (open_seqs[i] != 0 && fake_take_reply(&fake, "registrar", open_seqs[i], &reply)) {
                ck_assert_int_eq((int)reply.body.disk_write_reply.items.at[0].code, SL_OK);
                open_seqs[i] = 0;
            }
            if (open_seqs[i] == 0 && next < objects) {
                uint64_t count = SL_MIN(batch, objects - next);
                open_seqs[i] = write_send(next, (uint32_t)count, length_bytes, digest);
                next += count;
            }
            waiting += open_seqs[i] != 0;
        }
        turn();
    }
}

static uint32_t segments_each(void (*each)(const char *path, void *context), void *context)
{
    char path[4352];
    uint32_t count = 0;
    DIR *listing = opendir(directory);
    ck_assert_ptr_nonnull(listing);
    for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        if (strncmp(entry->d_name, "segment.", 8) == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
            each(path, context);
            count++;
        }
    }
    closedir(listing);
    return count;
}

static void pages_drop(const char *path, void *context)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    (void)context;
    ck_assert_int_ge(fd, 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void footer_read(const char *path, void *context)
{
    uint64_t *bytes = context;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    fd = fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    off_t end = lseek(fd, 0, SEEK_END);
    unsigned char *tail = aligned_alloc(SL_PAGE_BYTES, TAIL_BYTES);
    ck_assert_ptr_nonnull(tail);
    ck_assert_int_eq(pread(fd, tail, TAIL_BYTES, end - (off_t)TAIL_BYTES), TAIL_BYTES);
    const struct ti_trailer *trailer = (const void *)(tail + TAIL_BYTES - SL_PAGE_BYTES);
    uint64_t footer = sl_align_up(trailer->index_bytes, SL_PAGE_BYTES) + SL_PAGE_BYTES;
    *bytes += footer;
    if (trailer->magic == TI_TRAILER_MAGIC && footer > TAIL_BYTES) {
        unsigned char *index = aligned_alloc(SL_PAGE_BYTES, footer);
        ck_assert_ptr_nonnull(index);
        ck_assert_int_eq(pread(fd, index, footer, end - (off_t)footer), (ssize_t)footer);
        free(index);
    }
    free(tail);
    close(fd);
}

static void file_remove(const char *path, void *context)
{
    (void)context;
    (void)unlink(path);
}

static double seconds_since(uint64_t from_ns)
{
    return (double)(sl_clock_monotonic_ns() - from_ns) / 1e9;
}

static void tell_all(uint64_t objects)
{
    struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
    hello.body.hello_reply.boot_generation = 1;
    uint64_t told = 0, from_ns = sl_clock_monotonic_ns();
    fake_give(&fake, "registrar", &hello);
    for (bool last = false; !last;) {
        static uint64_t codes[65536];
        struct sl_msg found, reply = {.code = SL_OK};
        fake_jobs_report(&fake); /* log files are read */
        fake_advance(&fake, SL_NS_PER_US);
        if (!fake_take(&fake, "registrar", SL_MSG_DISK_FOUND, &found)) {
            turn();
            continue;
        }
        last = found.body.disk_found.last;
        told += found.body.disk_found.items.count;
        reply.body.disk_found_reply.codes =
            (struct sl_u64s){codes, found.body.disk_found.items.count};
        fake_answer(&fake, "registrar", &found, &reply);
    }
    double seconds = seconds_since(from_ns);
    ck_assert_uint_eq(told, objects);
    printf("reported: %.3f s, %.0f entries/s (encoding and decoding, without the registrar)\n",
           seconds, (double)told / seconds);
}

/* Seconds of the best of several starts; the last tierer keeps running. */
static double start_best(void)
{
    double best = 0;
    for (uint32_t i = 0; i < STARTS; i++) {
        if (i > 0) {
            fake_stop(&fake);
        }
        (void)segments_each(pages_drop, NULL);
        uint64_t from_ns = sl_clock_monotonic_ns();
        start();
        double seconds = seconds_since(from_ns);
        best = i == 0 || seconds < best ? seconds : best;
    }
    return best;
}

static void measure(uint64_t objects, uint64_t length_bytes)
{
    double bytes = (double)objects * (double)length_bytes;
    double best = start_best();
    double more = best > empty_s ? best - empty_s : 0;
    uint64_t footers = 0;
    printf("restart: %.4f s (%.4f s with nothing there), %.0f entries/s, %.2f s for 100 GB\n", best,
           empty_s, (double)objects / best, empty_s + more * (double)EXTRAPOLATE_TO / bytes);
    tell_all(objects);
    fake_stop(&fake);
    (void)segments_each(pages_drop, NULL);
    uint64_t from_ns = sl_clock_monotonic_ns();
    uint32_t segments = segments_each(footer_read, &footers);
    double seconds = seconds_since(from_ns);
    printf("footers: %.4f s by plain preads (%u segments, %llu bytes of footers): restart takes "
           "%.1f times as long\n",
           seconds, segments, (unsigned long long)footers, best / seconds);
}

static uint64_t total_mib, value_bytes;

START_TEST(restart)
    {
        static const char *const settings[] = {"disk", "64GiB", "memory", "64MiB", NULL};
        uint64_t objects = (total_mib << 20) / value_bytes;
        bool created = false;
        fake_open(&fake, &sl_tierer_actor, settings);
        struct sl_arena_options options = {
            .directory = fake.paths.shm_dir, .data_bytes = ARENA_BYTES, .chunk_bytes = ARENA_BYTES};
        ck_assert_int_eq(sl_arena_open_owner(&options, &created, &arena, NULL), SL_OK);
        while (sl_arena_populate_below(arena, UINT64_MAX, NULL) == SL_OK) {
        }
        empty_s = start_best();
        fill(objects, value_bytes);
        fake.actor->drain(fake.state); /* the newest log file gets its footer */
        while (!fake.finished) {
            turn();
        }
        fake_stop(&fake);
        printf("objects: %llu of %llu bytes\n", (unsigned long long)objects,
               (unsigned long long)value_bytes);
        measure(objects, value_bytes);
        (void)segments_each(file_remove, NULL);
        sl_arena_close(&arena);
        fake_close(&fake);
    }
END_TEST

int main(int argc, char **argv)
{
    total_mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 256;
    value_bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 1u << 20;
    if (argc < 2 || total_mib == 0 || value_bytes == 0 || value_bytes > ARENA_BYTES) {
        fprintf(stderr, "usage: disk_restart_bench DIRECTORY [TOTAL_MIB [VALUE_BYTES]]\n");
        return 2;
    }
    directory = argv[1];
    Suite *suite = suite_create("disk_restart_bench"); /* the support code asserts with Check */
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 0);
    tcase_add_test(all, restart);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_MINIMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
