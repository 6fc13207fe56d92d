/* tests/sim/sim_disk.c - the node's disk: requests take effect some time before their end, in any
 * order, and continue for a while after their process died. */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IO_NS_MAX     (300 * SL_NS_PER_US)
#define IO_NS_LONG    (5 * SL_NS_PER_MS)
#define IO_NS_SLOW    (2 * SL_NS_PER_S)
#define ORPHAN_NS_MAX (800 * SL_NS_PER_MS) /* below the io_grace that the runs set */
#define SECTOR_BYTES  512u
/* Failures in a row of reads that block: fewer than the tierer's attempts. */
#define READS_FAIL_MAX 2u

/* One life of a tierer. */
struct sim_disk {
    struct sl_disk base; /* first */
    struct sim_node *node;
};

static uint32_t number_of(const struct sim_node *node)
{
    uint64_t rank = sl_config_u64(node->config, SL_SET_rank);
    SIM_CHECK(rank < SIM_DISKS, "%s has no disk", node->name);
    return (uint32_t)rank;
}

static struct mem_disk *memory_of(const struct sim_node *node)
{
    return &node->host->disks[number_of(node)];
}

static struct sim_node *disk_node(struct sl_disk *disk)
{
    return ((struct sim_disk *)disk)->node;
}

static bool fault_is(const struct sim_node *node, enum sim_fault fault)
{
    return node->sim->now_ns < node->host->fault_until_ns[number_of(node)][fault];
}

void sim_disk_fault(struct sim *sim, uint32_t disk, enum sim_fault fault, uint64_t duration_ns)
{
    static const char *const names[SIM_FAULT_COUNT] = {"reads fail", "writes fail", "syncs fail",
                                                       "disk full",  "short moves", "slow disk"};
    uint64_t *until_ns = &sim->hosts[0].fault_until_ns[disk][fault];
    if (fault == SIM_FAULT_FULL && sim->now_ns < *until_ns + 3 * SL_NS_PER_S) {
        return; /* full again so soon, it would count as permanently full and drop values */
    }
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: disk %u: %s for %llu us",
                 (unsigned long long)sim->now_ns, disk, names[fault],
                 (unsigned long long)(duration_ns / SL_NS_PER_US));
    *until_ns = SL_MAX(*until_ns, sim->now_ns + duration_ns);
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, *until_ns);
}

static void bytes_spoil(struct mem_file *file, uint64_t from, uint64_t to)
{
    memset(file->now + from, 0xa5, to - from);
    memset(file->durable + from, 0xa5, to - from);
}

void sim_disk_damage(struct sim *sim, uint32_t disk)
{
    struct mem_disk *memory = &sim->hosts[0].disks[disk];
    struct mem_file *segments[MEM_DISK_FILES_MAX];
    uint64_t count = 0;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *file = &memory->files[i];
        if (strncmp(file->name, "segment.", 8) == 0 && file->bytes >= 2 * SL_PAGE_BYTES) {
            segments[count++] = file;
        }
    }
    if (count == 0) {
        return;
    }
    struct mem_file *file = segments[sim_random_below(sim, count)];
    uint64_t page = sim_random_below(sim, file->bytes / SL_PAGE_BYTES) * SL_PAGE_BYTES;
    uint64_t kind = sim_random_below(sim, 5);
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: disk %u: damage %llu to %s",
                 (unsigned long long)sim->now_ns, disk, (unsigned long long)kind, file->name);
    switch (kind) {
    case 0:
        bytes_spoil(file, page, page + SL_PAGE_BYTES);
        break;
    case 1: /* the pages that identify the file */
        bytes_spoil(file, 0, SL_PAGE_BYTES);
        bytes_spoil(file, file->bytes - SL_PAGE_BYTES, file->bytes);
        break;
    case 2:
        bytes_spoil(file, 0, file->bytes);
        break;
    case 3:
        file->bytes = 0;
        file->durable_bytes = 0;
        break;
    default:
        (void)memory->base.ops->remove(&memory->base, file->name, NULL);
        break;
    }
}

uint64_t sim_disk_bytes_peak(const struct sim *sim)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SIM_DISKS; i++) {
        bytes += sim->hosts[0].disks[i].bytes_peak;
    }
    return bytes;
}

uint64_t sim_disk_bytes(const struct sim *sim, uint32_t disk)
{
    return mem_disk_bytes(&sim->hosts[0].disks[disk]);
}

/* ---- effects ---- */

/* Decides what a request of a dead process has done. */
static void orphan_apply(struct sim *sim, struct mem_disk *disk,
                         const struct sl_disk_request *request)
{
    uint64_t sectors = request->length_bytes / SECTOR_BYTES;
    if (request->verb > SL_DISK_SYNC) { /* either complete or not at all */
        if (sim_random_below(sim, 2) == 0) {
            (void)mem_disk_file(disk, request);
        }
        return;
    }
    switch (sim_random_below(sim, 3)) {
    case 0:
        break; /* it never began */
    case 1:
        if (request->verb != SL_DISK_SYNC) {
            (void)mem_disk_move(disk, request, sim_random_below(sim, sectors + 1) * SECTOR_BYTES);
        }
        break;
    default:
        if (request->verb != SL_DISK_SYNC) {
            (void)mem_disk_move(disk, request, request->length_bytes);
        } else {
            mem_disk_sync(disk, request->file);
        }
        break;
    }
}

bool sim_disk_apply(struct sim *sim, struct sim_event *event, bool orphan)
{
    struct sl_disk_request *request = &event->io;
    struct mem_disk *disk = memory_of(&sim->nodes[event->node]);
    request->name = event->io_name;
    if (orphan && !event->orphaned && request->verb == SL_DISK_READ) {
        uint64_t last_ns = sim->nodes[event->node].died_ns + ORPHAN_NS_MAX;
        event->orphaned = true;       /* it may write into memory long after its process died */
        if (sim->now_ns >= last_ns) { /* on a slow disk; no device delays a request for longer */
            event->applied = true;
            return true;
        }
        event->at_ns = sim->now_ns + sim_random_below(sim, last_ns - sim->now_ns);
        return false;
    }
    event->applied = true;
    if (orphan) {
        orphan_apply(sim, disk, request);
        return true;
    }
    if (request->verb == SL_DISK_SYNC) {
        if (event->os_code == 0) {
            mem_disk_names_sync(disk); /* removals are durable with the next sync (sl_disk.h) */
            mem_disk_sync(disk, request->file);
        } else {
            mem_disk_sync_fail(disk, request->file, sim_random(sim));
        }
        return true;
    }
    int os_code = request->verb > SL_DISK_SYNC
                      ? (event->os_code == 0 ? mem_disk_file(disk, request) : 0)
                      : mem_disk_move(disk, request, event->io_bytes);
    event->os_code = os_code != 0 ? os_code : event->os_code;
    return true;
}

void sim_disk_job_ended(struct sim_node *node)
{
    if (strcmp(node->actor->role, "tierer") == 0) {
        mem_disk_names_sync(memory_of(node));
    }
}

/* ---- the interface ---- */

static sl_err disk_file_open(struct sl_disk *disk, const char *name, bool create,
                             uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                             struct sl_error *why)
{
    struct sl_disk *base = &memory_of(disk_node(disk))->base;
    if (create && fault_is(disk_node(disk), SIM_FAULT_FULL)) {
        return sl_fail_os(why, ENOSPC, "open '%s'", name);
    }
    return base->ops->open(base, name, create, allocate_bytes, file, size_bytes, why);
}

static void disk_file_close(struct sl_disk *disk, int file)
{
    (void)disk, (void)file;
}

static sl_err disk_file_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    struct sl_disk *base = &memory_of(disk_node(disk))->base;
    return base->ops->remove(base, name, why);
}

static sl_err disk_file_list(struct sl_disk *disk,
                             void (*each)(void *context, const char *name, uint64_t bytes),
                             void *context, struct sl_error *why)
{
    struct sl_disk *base = &memory_of(disk_node(disk))->base;
    return base->ops->list(base, each, context, why);
}

static uint64_t request_ns(const struct sim_node *node)
{
    struct sim *sim = node->sim;
    if (fault_is(node, SIM_FAULT_SLOW)) {
        return sim_random_below(sim, IO_NS_SLOW);
    }
    return sim_random_below(sim, sim_random_below(sim, 50) == 0 ? IO_NS_LONG : IO_NS_MAX);
}

static sl_err disk_submit(struct sl_disk *disk, const struct sl_disk_request *request,
                          struct sl_error *why)
{
    struct sim_node *node = disk_node(disk);
    struct sim *sim = node->sim;
    (void)why;
    struct sim_event event = sim_event_for(node, EVENT_IO, sim->now_ns + request_ns(node));
    event.io = *request;
    event.cookie = request->cookie;
    event.io_bytes = request->length_bytes;
    if (request->name != NULL) {
        (void)snprintf(event.io_name, sizeof(event.io_name), "%s", request->name);
    }
    enum sim_fault fault = request->verb == SL_DISK_READ    ? SIM_FAULT_READ
                           : request->verb == SL_DISK_WRITE ? SIM_FAULT_WRITE
                                                            : SIM_FAULT_SYNC;
    uint64_t sectors = request->length_bytes / SECTOR_BYTES;
    if (request->verb > SL_DISK_SYNC) {
        bool full = request->verb == SL_DISK_MAKE && fault_is(node, SIM_FAULT_FULL);
        bool fails = fault_is(node, SIM_FAULT_WRITE) && sim_random_below(sim, 2) == 0;
        event.os_code = full ? ENOSPC : fails ? EIO : 0;
        sim_event_add(sim, event);
        return SL_OK;
    }
    if (fault_is(node, fault) && sim_random_below(sim, 2) == 0) {
        event.os_code = EIO;
        event.io_bytes = sim_random_below(sim, sectors + 1) * SECTOR_BYTES;
    } else if (fault_is(node, SIM_FAULT_SHORT) && request->verb != SL_DISK_SYNC &&
               sim_random_below(sim, 4) == 0) {
        event.io_bytes = sim_random_below(sim, sectors + 1) * SECTOR_BYTES;
    }
    sim_event_add(sim, event);
    return SL_OK;
}

static sl_err disk_flush(struct sl_disk *disk, struct sl_error *why)
{
    (void)disk, (void)why;
    return SL_OK;
}

static sl_err disk_read_now(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    struct sim_node *node = disk_node(disk);
    uint32_t *failed = &node->host->reads_failed[number_of(node)];
    /* The same place fails at most twice in a row: if it stayed bad, its values would be lost,
     * which a run could not tell from a fault of ours. tests/fault/disk has such places. */
    if (fault_is(node, SIM_FAULT_READ) && *failed < READS_FAIL_MAX &&
        sim_random_below(node->sim, 8) == 0) {
        ++*failed;
        return sl_fail_os(why, EIO, "read");
    }
    *failed = 0;
    struct sl_disk *base = &memory_of(node)->base;
    return base->ops->read_now(base, file, memory, offset_bytes, length_bytes, got, why);
}

/* A job calls this, which takes time elsewhere; here it is done at once. */
static sl_err disk_prepare(struct sl_disk *disk, const char *from, const char *name, uint64_t bytes,
                           struct sl_error *why)
{
    if (fault_is(disk_node(disk), SIM_FAULT_FULL)) {
        return sl_fail_os(why, ENOSPC, "make '%s'", name);
    }
    return mem_disk_prepare(memory_of(disk_node(disk)), from, name, bytes, why);
}

static sl_err disk_punch(struct sl_disk *disk, int file, uint64_t offset_bytes,
                         uint64_t length_bytes, struct sl_error *why)
{
    (void)why;
    mem_disk_punch(memory_of(disk_node(disk)), file, offset_bytes, length_bytes);
    return SL_OK;
}

static void disk_destroy(struct sl_disk *disk)
{
    free(disk);
}

static const struct sl_disk_ops sim_disk_ops = {
    .open = disk_file_open,
    .close = disk_file_close,
    .remove = disk_file_remove,
    .list = disk_file_list,
    .submit = disk_submit,
    .flush = disk_flush,
    .read_now = disk_read_now,
    .destroy = disk_destroy,
    .prepare = disk_prepare,
    .punch = disk_punch,
};

/* Requests of a dead process have ended when the next one opens the directory, since they hold the
 * lock (runtime/disk/sl_disk_uring.c). */
static void orphans_settle(struct sim_node *node)
{
    struct sim *sim = node->sim;
    for (uint32_t i = 0; i < sim->event_count; i++) {
        struct sim_event *event = &sim->heap[i];
        if (event->kind == EVENT_IO && event->node == sim_number(node) && !event->applied &&
            event->incarnation != node->incarnation) {
            event->orphaned = true;
            (void)sim_disk_apply(sim, event, true);
        }
    }
}

sl_err sim_disk_open(struct sl_env *env, const char *directory, uint32_t queue_depth, bool direct,
                     struct sl_disk **out, struct sl_error *why)
{
    (void)directory, (void)queue_depth, (void)direct;
    struct sim_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "out of memory");
    }
    disk->base.ops = &sim_disk_ops;
    disk->base.direct = true;
    disk->node = (struct sim_node *)env;
    orphans_settle(disk->node);
    *out = &disk->base;
    return SL_OK;
}
