/* cuda/sl_crossover.c - see sl_crossover.h. */
#include "cuda/sl_crossover.h"

#include "runtime/base/sl_config.h"
#include "runtime/base/sl_parse.h"
#include "runtime/base/sl_trust.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX 8192u
/* Version 1 had the size of pieces, not of entries; version 2 no jobs that follow others. */
#define FILE_HEAD "sluice crossover 3\n"
/* Measured on an H200 (PCIe 5, driver 580): a batch beats single copies from a few pieces on. It
 * makes 2-10 GB/s with entries of 4 KiB, 4-29 with 16, 20-49 with 28, 47-54 with 64. A kernel does
 * not depend on the size. Above 512 KiB the start-up time of a copy does not matter. */
#define DEFAULT_COPY_BYTES   (512 * SL_KIB)
#define DEFAULT_BATCH_BYTES  (64 * SL_KIB)
#define DEFAULT_KERNEL_COUNT 48u
/* For pieces up to this size, and fewer than this number, staging large values beats a batch. */
#define DEFAULT_STAGED_BYTES (64 * SL_KIB)
#define DEFAULT_STAGED_COUNT 10000u
/* A way without a kernel is chosen if it has this share of the fastest way's speed. */
#define PLAIN_SHARE 0.97

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

/* The largest measured size that is not above this one: drivers treat entries by powers of two.
 * Entries of 28 KiB are as fast in a batch as those of 16, and half as fast as those of 32. */
static uint32_t size_of(uint64_t bytes)
{
    uint32_t size = 0;
    while (size + 1 < SL_CROSSOVER_SIZES && bytes >= sl_crossover_piece_bytes(size + 1)) {
        size++;
    }
    return size;
}

/* The nearest count by its ratio. */
static uint32_t count_of(uint64_t pieces)
{
    uint32_t count = 0;
    while (count + 1 < SL_CROSSOVER_COUNTS && pieces / 4 > sl_crossover_pieces(count)) {
        count++;
    }
    return count;
}

/* Whether the published figures favour a kernel, and which. */
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

/* The figure for the entries of this way. */
static uint32_t speed_of(const struct sl_crossover *crossover, const struct sl_crossover_job *job,
                         enum sl_way way)
{
    bool by_runs = way == SL_WAY_STAGED;
    uint32_t size = size_of(by_runs ? job->run_bytes : job->piece_bytes);
    uint32_t count = count_of(by_runs ? job->runs : job->pieces);
    return crossover->speed[job->follows][job->to_host][size][count][way];
}

static bool without_kernel(enum sl_way way)
{
    return way == SL_WAY_COPIES || way == SL_WAY_BATCH;
}

static enum sl_way choose(const struct sl_crossover *crossover, const struct sl_crossover_job *job)
{
    if (!crossover->measured) {
        return published(job);
    }
    enum sl_way best = SL_WAY_COUNT, plain = SL_WAY_COUNT;
    uint32_t best_speed = 0, plain_speed = 0;
    for (unsigned w = 0; w < SL_WAY_COUNT; w++) {
        enum sl_way way = (enum sl_way)w;
        uint32_t speed = speed_of(crossover, job, way);
        if (!job->possible[way]) {
            continue;
        }
        if (best == SL_WAY_COUNT || speed > best_speed) {
            best = way;
            best_speed = speed;
        }
        if (without_kernel(way) && (plain == SL_WAY_COUNT || speed > plain_speed)) {
            plain = way;
            plain_speed = speed;
        }
    }
    SL_ASSERT(best != SL_WAY_COUNT);
    bool nearly = plain != SL_WAY_COUNT && plain_speed >= PLAIN_SHARE * best_speed;
    return nearly ? plain : best;
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

static bool expect(const char **at, const char *text)
{
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

/* Gives the figures of a line of the file and its first words. Lines are in the figures' order. */
static uint32_t *line_figures(struct sl_crossover *crossover, uint32_t line, char *head,
                              size_t room)
{
    uint32_t count = line % SL_CROSSOVER_COUNTS;
    uint32_t size = line / SL_CROSSOVER_COUNTS % SL_CROSSOVER_SIZES;
    uint32_t to_host = line / (SL_CROSSOVER_COUNTS * SL_CROSSOVER_SIZES) % 2;
    uint32_t follows = line / (SL_CROSSOVER_COUNTS * SL_CROSSOVER_SIZES * 2);
    snprintf(head, room, "%s %s %" PRIu64 " %" PRIu64, follows ? "follows" : "alone",
             to_host ? "out" : "in", sl_crossover_piece_bytes(size), sl_crossover_pieces(count));
    return crossover->speed[follows][to_host][size][count];
}

/* Reads a line: `alone` or `follows`, direction, piece bytes, pieces, and a speed for each way. */
static bool line_read(const char **at, uint32_t line, struct sl_crossover *out)
{
    char head[64];
    uint64_t fastest = 0;
    uint32_t *figures = line_figures(out, line, head, sizeof(head));
    if (!expect(at, head)) {
        return false;
    }
    for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
        uint64_t speed = 0;
        if (!expect(at, " ") || sl_parse_digits(*at, &speed, at) != SL_OK || speed > UINT32_MAX) {
            return false;
        }
        figures[way] = (uint32_t)speed;
        fastest = SL_MAX(fastest, speed);
    }
    return expect(at, "\n") && fastest > 0;
}

static sl_err text_read(const char *text, struct sl_crossover *out, struct sl_error *why)
{
    const char *at = text;
    if (!expect(&at, FILE_HEAD)) {
        return sl_fail(why, SL_ERR_CORRUPT, "line 1: not 'sluice crossover 3'");
    }
    if (!expect(&at, out->machine) || !expect(&at, "\n")) {
        return sl_fail(why, SL_ERR_FOREIGN, "line 2: not made for %s", out->machine);
    }
    for (uint32_t line = 0; line < SL_CROSSOVER_LINES; line++) {
        if (!line_read(&at, line, out)) {
            return sl_fail(why, SL_ERR_CORRUPT, "line %u is not the expected one", line + 3);
        }
    }
    return strcmp(at, "end\n") == 0
               ? SL_OK
               : sl_fail(why, SL_ERR_CORRUPT, "line %u is not the end", SL_CROSSOVER_LINES + 3);
}

sl_err sl_crossover_load(const char *directory, struct sl_crossover *crossover,
                         struct sl_error *why)
{
    char path[1200], text[FILE_BYTES_MAX + 1];
    struct sl_crossover found = {0};
    struct sl_error reason = {0};
    memcpy(found.machine, crossover->machine, sizeof(found.machine));
    sl_err err = path_of(directory, found.machine, path, sizeof(path), why);
    err = err == SL_OK ? sl_trust_read(path, SL_TRUST_RIGHT, true, text, sizeof(text), why) : err;
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
    struct sl_crossover all = *crossover;
    fprintf(file, FILE_HEAD "%s\n", all.machine);
    for (uint32_t line = 0; line < SL_CROSSOVER_LINES; line++) {
        char head[64];
        const uint32_t *figures = line_figures(&all, line, head, sizeof(head));
        fputs(head, file);
        for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
            fprintf(file, " %u", figures[way]);
        }
        fputc('\n', file);
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
