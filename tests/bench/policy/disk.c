/* tests/bench/policy/disk.c - a disk as a log: the oldest block is reclaimed first, unless it
 * was requested lately.
 *
 * The model works block by block: a block at the old end is rewritten if it was requested after
 * its write, and during the last half disk of writes; a quarter of the reclaimed blocks at most
 * (actors/registrar/disk/reclaim.c). */
#include "tests/bench/policy/internal.h"

#include <math.h>
#include <stdlib.h>

#define KEEP_SHARE  4u
#define KEEP_AGE    2u /* 1/KEEP_AGE of the disk */
#define MS_A_DAY    86400000.0
#define BUDGET_MS   3600000.0 /* how long an unused budget is kept */
#define QUEUE_FIRST 1024u
/* When the saved budget is below this share of its level (a part of the trace's time), only the
 * best blocks are written. */
#define LEVEL_FREE  0.5
#define SPAN_PARTS  64u
#define CHANCE_BINS 64u
#define SEEN_MAX    4096u /* then earlier observations count half */

struct disk_block {
    uint64_t requested_at; /* bytes written until its last request */
    bool here, wanted;
};
struct model_disk {
    const struct model_options *options;
    struct disk_block *blocks; /* by identity */
    uint32_t *queue;           /* a ring: identities in the order of their writes */
    uint64_t queue_space, first, count;
    uint64_t used_bytes, written_bytes, keep_bytes;
    double budget_bytes;
    uint64_t budget_at_ms;
    double budget_level_bytes; /* below LEVEL_FREE of it, only the best are written */
    bool budget_begun;
    double seen_bytes[CHANCE_BINS]; /* bytes offered, by the likelihood of reuse */
    uint32_t seen_count;
};

sl_err model_disk_create(const struct model_options *options, uint32_t id_limit,
                         struct model_disk **out)
{
    struct model_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    disk->options = options;
    disk->queue_space = QUEUE_FIRST;
    disk->blocks = calloc(id_limit + (size_t)1, sizeof(*disk->blocks));
    disk->queue = malloc(disk->queue_space * sizeof(*disk->queue));
    if (disk->blocks == NULL || disk->queue == NULL) {
        model_disk_destroy(&disk);
        return SL_ERR_NO_MEMORY;
    }
    *out = disk;
    return SL_OK;
}

void model_disk_destroy(struct model_disk **disk)
{
    if (*disk != NULL) {
        free((*disk)->blocks);
        free((*disk)->queue);
        free(*disk);
        *disk = NULL;
    }
}

bool model_disk_has(const struct model_disk *disk, uint32_t id)
{
    return disk != NULL && disk->blocks[id].here;
}

void model_disk_requested(struct model_disk *disk, uint32_t id)
{
    disk->blocks[id].wanted = true;
    disk->blocks[id].requested_at = disk->written_bytes;
}

static bool queue_space(struct model_disk *disk)
{
    if (disk->count < disk->queue_space) {
        return true;
    }
    uint64_t room = SL_MAX(2 * disk->queue_space, (uint64_t)QUEUE_FIRST);
    uint32_t *fresh = malloc(room * sizeof(*fresh));
    if (fresh == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < disk->count; i++) {
        fresh[i] = disk->queue[(disk->first + i) % disk->queue_space];
    }
    free(disk->queue);
    disk->queue = fresh;
    disk->first = 0;
    disk->queue_space = room;
    return true;
}

static void append(struct model_disk *disk, uint32_t id, struct model_result *result)
{
    uint64_t bytes = model_bytes(disk->options, id);
    disk->queue[(disk->first + disk->count++) % disk->queue_space] = id;
    disk->blocks[id].here = true;
    disk->blocks[id].wanted = false;
    disk->used_bytes += bytes;
    disk->written_bytes += bytes;
    result->written_count++;
    result->written_bytes += bytes;
}

/* Reclaims or rewrites the oldest block. */
static void reclaim(struct model_disk *disk, struct model_result *result)
{
    uint32_t id = disk->queue[disk->first];
    struct disk_block *block = &disk->blocks[id];
    uint64_t bytes = model_bytes(disk->options, id);
    uint64_t age_bytes = disk->written_bytes - block->requested_at;
    disk->first = (disk->first + 1) % disk->queue_space;
    disk->count--;
    disk->used_bytes -= bytes;
    block->here = false;
    disk->keep_bytes = SL_MIN(disk->keep_bytes + bytes, disk->options->disk.capacity_bytes);
    if (block->wanted && age_bytes <= disk->options->disk.capacity_bytes / KEEP_AGE &&
        bytes <= disk->keep_bytes / KEEP_SHARE) {
        disk->keep_bytes -= bytes * KEEP_SHARE;
        result->rewritten_count++;
        disk->budget_bytes -= disk->options->disk.bytes_a_day > 0 ? (double)bytes : 0.0;
        append(disk, id, result);
    }
}

/* Makes space for the bytes; false: they are more than fit. */
static bool space_make(struct model_disk *disk, uint64_t bytes, struct model_result *result)
{
    uint64_t capacity_bytes = disk->options->disk.capacity_bytes;
    while (disk->used_bytes + bytes > capacity_bytes && disk->count > 0) {
        reclaim(disk, result);
    }
    return bytes <= capacity_bytes;
}

/* Refills the budget by the times of the trace; an hour's worth may be saved up. */
static void budget_fill(struct model_disk *disk, uint64_t now_ms)
{
    double a_ms = (double)disk->options->disk.bytes_a_day / MS_A_DAY;
    if (!disk->budget_begun) {
        disk->budget_begun = true;
        disk->budget_at_ms = now_ms;
    }
    if (now_ms > disk->budget_at_ms) {
        disk->budget_bytes += (double)(now_ms - disk->budget_at_ms) * a_ms;
        disk->budget_at_ms = now_ms;
    }
    disk->budget_bytes = SL_MIN(disk->budget_bytes, BUDGET_MS * a_ms);
}

static bool budget_take(struct model_disk *disk, uint64_t bytes, uint64_t now_ms)
{
    if (disk->options->disk.bytes_a_day == 0) {
        return true;
    }
    budget_fill(disk, now_ms);
    if (disk->budget_bytes < (double)bytes) {
        return false;
    }
    disk->budget_bytes -= (double)bytes;
    return true;
}

void model_disk_span(struct model_disk *disk, uint64_t span_ms)
{
    double a_ms = (double)disk->options->disk.bytes_a_day / MS_A_DAY;
    disk->budget_level_bytes = fmin((double)span_ms / SPAN_PARTS, BUDGET_MS) * a_ms;
}

/* Share of offered blocks that are better than this chance; of equally likely ones as many as
 * fit, by chance: all of a request or none. */
static double better_share(struct model_disk *disk, uint64_t now_ms, double chance, uint64_t bytes)
{
    uint32_t bin = (uint32_t)(sqrt(fmin(fmax(chance, 0.0), 1.0)) * (CHANCE_BINS - 1));
    double all = 0.0;
    double better = 0.0;
    disk->seen_bytes[bin] += (double)bytes;
    bool halve = ++disk->seen_count >= SEEN_MAX;
    disk->seen_count = halve ? SEEN_MAX / 2 : disk->seen_count;
    for (uint32_t i = 0; i < CHANCE_BINS; i++) {
        disk->seen_bytes[i] /= halve ? 2.0 : 1.0;
        all += disk->seen_bytes[i];
        better += i > bin ? disk->seen_bytes[i] : 0.0;
    }
    double turn = (double)(model_mix(now_ms) >> 11) * 0x1p-53;
    return (better + turn * disk->seen_bytes[bin]) / all;
}

bool model_disk_allows(struct model_disk *disk, uint32_t id, double chance, uint64_t now_ms)
{
    if (disk->options->disk.bytes_a_day == 0 || !(disk->budget_level_bytes > 0)) {
        return true;
    }
    budget_fill(disk, now_ms);
    double share = disk->budget_bytes / disk->budget_level_bytes / LEVEL_FREE;
    return better_share(disk, now_ms, chance, model_bytes(disk->options, id)) < share;
}

bool model_disk_write(struct model_disk *disk, uint32_t id, uint64_t now_ms,
                      struct model_result *result)
{
    uint64_t bytes = model_bytes(disk->options, id);
    if (!budget_take(disk, bytes, now_ms) || !space_make(disk, bytes, result) ||
        !queue_space(disk)) {
        return false;
    }
    append(disk, id, result);
    return true;
}
