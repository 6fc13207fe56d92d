/* cuda/sl_crossover.c - see sl_crossover.h. */
#include "cuda/sl_crossover.h"

#include "runtime/sl_config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX 8192u
/* Version 1 knew pieces alone, not what an entry covers. */
#define FILE_HEAD "sluice crossover 2\n"
/* Published for an H100 (PCIe 5): a batch beats single copies from few pieces on. It makes 4-7 GB/s
 * with entries of 4 KiB, 6-7 with 16, 28-44 with 28, 39-52 with 64. A kernel does not mind. Above
 * 512 KiB a copy's start does not count. */
#define DEFAULT_COPY_BYTES   (512 * SL_KIB)
#define DEFAULT_BATCH_BYTES  (28 * SL_KIB)
#define DEFAULT_KERNEL_COUNT 48u
/* Up to pieces of 64 KiB and below so many of them, staging of large values beats a batch. */
#define DEFAULT_STAGED_BYTES (64 * SL_KIB)
#define DEFAULT_STAGED_COUNT 10000u

const char *sl_way_name(enum sl_way way)
{
    static const char *const names[SL_WAY_COUNT] = {"copies", "batch", "staged", "mapped"};
    return way < SL_WAY_COUNT ? names[way] : "?";
}

uint64_t sl_crossover_piece_bytes(uint32_t size)
{
    return UINT64_C(4096) << size;
}

uint64_t sl_crossover_pieces(uint32_t count)
{
    return UINT64_C(16) << (4 * count);
}

/* The nearest of `places` values first, first << step, ... by their ratio. */
static uint32_t nearest(uint64_t value, uint64_t first, uint32_t step, uint32_t places)
{
    uint32_t place = 0;
    /* Half a step further is where the next one is nearer: 2^(step/2). */
    while (place + 1 < places &&
           (double)value > (double)(first << (step * place)) * (step == 1 ? 1.4142 : 4.0)) {
        place++;
    }
    return place;
}

/* Whether published figures are for a kernel, and for which. */
static bool published_kernel(const struct sl_crossover_job *job, enum sl_way *way)
{
    const bool *possible = job->possible;
    bool large_runs = job->run_bytes >= DEFAULT_BATCH_BYTES;
    *way = SL_WAY_STAGED;
    if (job->pieces < DEFAULT_KERNEL_COUNT) {
        return false;
    }
    if (job->piece_bytes < DEFAULT_BATCH_BYTES) {
        if (possible[SL_WAY_MAPPED] && !(large_runs && possible[SL_WAY_STAGED])) {
            *way = SL_WAY_MAPPED;
            return true;
        }
        return possible[SL_WAY_STAGED] && job->run_bytes > job->piece_bytes;
    }
    return possible[SL_WAY_STAGED] && job->piece_bytes <= DEFAULT_STAGED_BYTES &&
           job->pieces < DEFAULT_STAGED_COUNT && job->run_bytes >= DEFAULT_COPY_BYTES;
}

static enum sl_way published(const struct sl_crossover_job *job)
{
    const bool *possible = job->possible;
    enum sl_way kernel = SL_WAY_STAGED;
    if (published_kernel(job, &kernel)) {
        return kernel;
    }
    if (job->piece_bytes < DEFAULT_COPY_BYTES && job->pieces > 1 && possible[SL_WAY_BATCH]) {
        return SL_WAY_BATCH;
    }
    if (possible[SL_WAY_COPIES]) {
        return SL_WAY_COPIES;
    }
    return possible[SL_WAY_STAGED] ? SL_WAY_STAGED : SL_WAY_MAPPED;
}

/* The figure for what one entry of the way covers. */
static uint32_t speed_of(const struct sl_crossover *crossover, const struct sl_crossover_job *job,
                         enum sl_way way)
{
    bool by_runs = way == SL_WAY_STAGED;
    uint32_t size =
        nearest(by_runs ? job->run_bytes : job->piece_bytes, 4096, 1, SL_CROSSOVER_SIZES);
    uint32_t count = nearest(by_runs ? job->runs : job->pieces, 16, 4, SL_CROSSOVER_COUNTS);
    return crossover->speed[job->to_host][size][count][way];
}

static enum sl_way choose(const struct sl_crossover *crossover, const struct sl_crossover_job *job)
{
    if (!crossover->measured) {
        return published(job);
    }
    enum sl_way best = SL_WAY_COUNT;
    uint32_t best_speed = 0;
    for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
        uint32_t speed = speed_of(crossover, job, (enum sl_way)way);
        if (job->possible[way] && (best == SL_WAY_COUNT || speed > best_speed)) {
            best = (enum sl_way)way;
            best_speed = speed;
        }
    }
    SL_ASSERT(best != SL_WAY_COUNT);
    return best;
}

enum sl_way sl_crossover_choose(const struct sl_crossover *crossover,
                                const struct sl_crossover_job *job)
{
    struct sl_crossover_job one = *job;
    if (job->computes && (job->possible[SL_WAY_COPIES] || job->possible[SL_WAY_BATCH])) {
        one.possible[SL_WAY_STAGED] = one.possible[SL_WAY_MAPPED] = false;
    }
    return choose(crossover, &one);
}

/* ---- the file ---- */

static sl_err path_of(const char *directory, const char *machine, char *path, size_t room,
                      struct sl_error *why)
{
    size_t plain = strspn(machine, "abcdefghijklmnopqrstuvwxyz0123456789.-");
    if (machine[0] == '\0' || machine[plain] != '\0') {
        return sl_fail(why, SL_ERR_INVALID, "machine '%.32s': only [a-z0-9.-]", machine);
    }
    int length = snprintf(path, room, "%s/crossover-%s", directory, machine);
    return length > 0 && (size_t)length < room
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "directory '%.100s' is too long", directory);
}

/* A decimal number without sign; moves *at behind it. */
static bool number_read(const char **at, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > max) {
            return false;
        }
    }
    *out = value;
    return *at > from;
}

static bool expect(const char **at, const char *text)
{
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

/* One line: direction, bytes of a piece, pieces, and a speed for each way; all in their order. */
static bool line_read(const char **at, uint32_t line, struct sl_crossover *out)
{
    uint32_t to_host = line / (SL_CROSSOVER_SIZES * SL_CROSSOVER_COUNTS);
    uint32_t size = line / SL_CROSSOVER_COUNTS % SL_CROSSOVER_SIZES;
    uint32_t count = line % SL_CROSSOVER_COUNTS;
    char head[64];
    uint64_t fastest = 0;
    snprintf(head, sizeof(head), "%s %" PRIu64 " %" PRIu64, to_host ? "out" : "in",
             sl_crossover_piece_bytes(size), sl_crossover_pieces(count));
    if (!expect(at, head)) {
        return false;
    }
    for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
        uint64_t speed = 0;
        if (!expect(at, " ") || !number_read(at, UINT32_MAX, &speed)) {
            return false;
        }
        out->speed[to_host][size][count][way] = (uint32_t)speed;
        fastest = SL_MAX(fastest, speed);
    }
    return expect(at, "\n") && fastest > 0;
}

static sl_err text_read(const char *text, struct sl_crossover *out, struct sl_error *why)
{
    const char *at = text;
    uint32_t lines = 2 * SL_CROSSOVER_SIZES * SL_CROSSOVER_COUNTS;
    if (!expect(&at, FILE_HEAD)) {
        return sl_fail(why, SL_ERR_CORRUPT, "line 1: not 'sluice crossover 2'");
    }
    if (!expect(&at, out->machine) || !expect(&at, "\n")) {
        return sl_fail(why, SL_ERR_FOREIGN, "line 2: not made for %s", out->machine);
    }
    for (uint32_t line = 0; line < lines; line++) {
        if (!line_read(&at, line, out)) {
            return sl_fail(why, SL_ERR_CORRUPT, "line %u is not what belongs there", line + 3);
        }
    }
    return strcmp(at, "end\n") == 0
               ? SL_OK
               : sl_fail(why, SL_ERR_CORRUPT, "line %u is not the end", lines + 3);
}

/* Gives the text, zero-terminated, in room[FILE_BYTES_MAX + 1]. */
static sl_err file_read(int fd, const char *path, char *room, struct sl_error *why)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return sl_fail_os(why, errno, "fstat '%s'", path);
    }
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
        return sl_fail(why, SL_ERR_FOREIGN, "'%s' is no file of this user alone", path);
    }
    size_t length = 0;
    for (;;) {
        ssize_t got = read(fd, room + length, FILE_BYTES_MAX + 1 - length);
        if (got < 0) {
            return sl_fail_os(why, errno, "read '%s'", path);
        }
        length += (size_t)got;
        if (length > FILE_BYTES_MAX) {
            return sl_fail(why, SL_ERR_CORRUPT, "'%s' has more than %u bytes", path,
                           FILE_BYTES_MAX);
        }
        if (got == 0) {
            break;
        }
    }
    room[length] = '\0';
    return strlen(room) == length ? SL_OK
                                  : sl_fail(why, SL_ERR_CORRUPT, "'%s' has a zero byte", path);
}

sl_err sl_crossover_load(const char *directory, struct sl_crossover *crossover,
                         struct sl_error *why)
{
    char path[1200], text[FILE_BYTES_MAX + 1];
    struct sl_crossover found = {0};
    struct sl_error reason = {0};
    memcpy(found.machine, crossover->machine, sizeof(found.machine));
    sl_err err = path_of(directory, found.machine, path, sizeof(path), why);
    if (err != SL_OK) {
        return err;
    }
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    err = file_read(fd, path, text, why);
    if (err != SL_OK) {
        return err;
    }
    err = text_read(text, &found, &reason);
    if (err != SL_OK) {
        return sl_fail(why, err, "'%.140s': %.80s", path, reason.text);
    }
    found.measured = true;
    *crossover = found;
    return SL_OK;
}

static void text_write(FILE *file, const struct sl_crossover *crossover)
{
    fprintf(file, FILE_HEAD "%s\n", crossover->machine);
    for (uint32_t to_host = 0; to_host < 2; to_host++) {
        for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
            for (uint32_t count = 0; count < SL_CROSSOVER_COUNTS; count++) {
                fprintf(file, "%s %" PRIu64 " %" PRIu64, to_host ? "out" : "in",
                        sl_crossover_piece_bytes(size), sl_crossover_pieces(count));
                for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
                    fprintf(file, " %u", crossover->speed[to_host][size][count][way]);
                }
                fputc('\n', file);
            }
        }
    }
    fputs("end\n", file);
}

sl_err sl_crossover_save(const char *directory, const struct sl_crossover *crossover,
                         struct sl_error *why)
{
    char path[1200], fresh[1240];
    sl_err err = path_of(directory, crossover->machine, path, sizeof(path), why);
    if (err == SL_OK) {
        err = sl_dir_make(directory, why);
    }
    if (err != SL_OK) {
        return err;
    }
    snprintf(fresh, sizeof(fresh), "%s.%u", path, (unsigned)getpid());
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        err = sl_fail_os(why, errno, "create '%s'", fresh);
        if (fd >= 0) {
            (void)close(fd);
        }
        return err;
    }
    text_write(file, crossover);
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    if (failed || rename(fresh, path) != 0) {
        err = sl_fail_os(why, errno, "write '%s'", path);
        (void)unlink(fresh);
    }
    return err;
}
