/* client/model/disk.c - a disk as a log: the oldest goes first, but for what was wanted lately.
 *
 * As a tierer does it with segments, this does it block by block: what comes to the old end and was
 * wanted since it was written, and before half of the disk was written over, is written anew; of
 * what goes, a quarter at most (actors/registrar/disk/reclaim.c). */
#include "client/model/internal.h"

#include <stdlib.h>

#define KEEP_SHARE  4u
#define KEEP_AGE    2u /* of the disk, a half */
#define MS_A_DAY    86400000.0
#define BUDGET_MS   3600000.0 /* a budget that was not used is kept for so long */
#define QUEUE_FIRST 1024u

struct disk_block {
    uint64_t wanted_at; /* bytes written until then */
    bool here, wanted;
};
struct model_disk {
    const struct model_options *options;
    struct disk_block *blocks; /* by identity */
    uint32_t *queue;           /* a ring: identities in the order of their writes */
    uint64_t queue_room, first, count;
    uint64_t used_bytes, written_bytes, keep_bytes;
    double budget_bytes;
    uint64_t budget_at_ms;
    bool budget_begun;
};

sl_err model_disk_create(const struct model_options *options, uint32_t id_limit,
                         struct model_disk **out)
{
    struct model_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    disk->options = options;
    disk->queue_room = QUEUE_FIRST;
    disk->blocks = calloc(id_limit + (size_t)1, sizeof(*disk->blocks));
    disk->queue = malloc(disk->queue_room * sizeof(*disk->queue));
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

void model_disk_wanted(struct model_disk *disk, uint32_t id)
{
    disk->blocks[id].wanted = true;
    disk->blocks[id].wanted_at = disk->written_bytes;
}

static bool queue_room(struct model_disk *disk)
{
    if (disk->count < disk->queue_room) {
        return true;
    }
    uint32_t *fresh = malloc(2 * disk->queue_room * sizeof(*fresh));
    if (fresh == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < disk->count; i++) {
        fresh[i] = disk->queue[(disk->first + i) % disk->queue_room];
    }
    free(disk->queue);
    disk->queue = fresh;
    disk->first = 0;
    disk->queue_room *= 2;
    return true;
}

static void append(struct model_disk *disk, uint32_t id, struct model_result *result)
{
    uint64_t bytes = model_bytes(disk->options, id);
    disk->queue[(disk->first + disk->count++) % disk->queue_room] = id;
    disk->blocks[id].here = true;
    disk->blocks[id].wanted = false;
    disk->used_bytes += bytes;
    disk->written_bytes += bytes;
    result->written_count++;
    result->written_bytes += bytes;
}

/* The oldest goes, or is written anew. */
static void reclaim(struct model_disk *disk, struct model_result *result)
{
    uint32_t id = disk->queue[disk->first];
    struct disk_block *block = &disk->blocks[id];
    uint64_t bytes = model_bytes(disk->options, id);
    uint64_t age_bytes = disk->written_bytes - block->wanted_at;
    disk->first = (disk->first + 1) % disk->queue_room;
    disk->count--;
    disk->used_bytes -= bytes;
    block->here = false;
    disk->keep_bytes = SL_MIN(disk->keep_bytes + bytes, disk->options->disk.capacity_bytes);
    if (block->wanted && age_bytes <= disk->options->disk.capacity_bytes / KEEP_AGE &&
        bytes <= disk->keep_bytes / KEEP_SHARE) {
        disk->keep_bytes -= bytes * KEEP_SHARE;
        result->rewritten_count++;
        append(disk, id, result);
    }
}

/* By the times of the trace; what an hour brings may be saved up. */
static bool budget_take(struct model_disk *disk, uint64_t bytes, uint64_t now_ms)
{
    double a_ms = (double)disk->options->disk.bytes_a_day / MS_A_DAY;
    if (disk->options->disk.bytes_a_day == 0) {
        return true;
    }
    if (!disk->budget_begun) {
        disk->budget_begun = true;
        disk->budget_at_ms = now_ms;
    }
    if (now_ms > disk->budget_at_ms) {
        disk->budget_bytes += (double)(now_ms - disk->budget_at_ms) * a_ms;
        disk->budget_at_ms = now_ms;
    }
    disk->budget_bytes = SL_MIN(disk->budget_bytes, BUDGET_MS * a_ms);
    if (disk->budget_bytes < (double)bytes) {
        return false;
    }
    disk->budget_bytes -= (double)bytes;
    return true;
}

bool model_disk_write(struct model_disk *disk, uint32_t id, uint64_t now_ms,
                      struct model_result *result)
{
    uint64_t bytes = model_bytes(disk->options, id);
    if (bytes > disk->options->disk.capacity_bytes || !budget_take(disk, bytes, now_ms)) {
        return false;
    }
    while (disk->used_bytes + bytes > disk->options->disk.capacity_bytes) {
        reclaim(disk, result);
    }
    if (!queue_room(disk)) {
        return false;
    }
    append(disk, id, result);
    return true;
}
