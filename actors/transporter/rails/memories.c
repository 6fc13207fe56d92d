/* actors/transporter/rails/memories.c - memory of a rail's process: the node's arenas, and what the door
 * hands out of engines' pools. A descriptor is fetched and mapped once, for all the memories in it, and
 * let go with the last of them: what was removed is not mapped here any more. */
#include "actors/transporter/rails/process_internal.h"

#include "runtime/sl_clock.h"
#include "runtime/sl_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FETCH_NS (500 * SL_NS_PER_MS) /* the door's thread has it ready */

/* ---- arenas ---- */

static sl_err arena_find(struct tr_process *process, const struct sl_body_rail_order *order,
                         struct sl_arena **out, struct sl_error *why)
{
    if (order->arena >= PROCESS_ARENAS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "arena %u", (unsigned)order->arena);
    }
    struct sl_arena **arena = &process->arenas[order->arena];
    sl_err err = *arena != NULL ? SL_OK
                                : sl_arena_attach(process->env->paths->shm_dir,
                                                  (uint32_t)order->arena, true, arena, why);
    if (err == SL_OK && (sl_arena_birth_generation(*arena) != order->birth ||
                         sl_arena_data_bytes(*arena) != order->length_bytes ||
                         sl_arena_chunk_bytes(*arena) != order->chunk_bytes)) {
        err = sl_fail(why, SL_ERR_STALE, "arena %u is another than the door's",
                      (unsigned)order->arena);
    }
    *out = *arena;
    return err;
}

static sl_err arena_add(struct tr_process *process, const struct sl_body_rail_order *order,
                        uint32_t *own, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = arena_find(process, order, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    const struct sl_fabric_memory memory = {.at = sl_arena_at(arena, 0, 1),
                                            .length_bytes = order->length_bytes,
                                            .chunk_bytes = order->chunk_bytes};
    return sl_fabric_memory_add(process->fabric, &memory, own, why);
}

/* ---- what the door hands out ---- */

static void handed_close(struct process_handed *handed)
{
    if (handed->base != NULL) {
        (void)munmap(handed->base, handed->length_bytes);
    }
    if (handed->fd >= 0) {
        (void)close(handed->fd);
    }
    *handed = (struct process_handed){0};
}

void process_handed_leave(struct tr_process *process, struct process_row *row)
{
    if (row->handed != 0) {
        struct process_handed *handed = &process->handed[row->handed - 1];
        row->handed = 0;
        if (--handed->users == 0) {
            handed_close(handed);
        }
    }
}

void process_handed_clear(struct tr_process *process)
{
    for (uint32_t i = 0; process->handed != NULL && i < process->memories.count; i++) {
        if (process->handed[i].users > 0) {
            handed_close(&process->handed[i]);
        }
    }
}

/* A copy: what was fetched is closed behind it. */
static sl_err handed_keep(void *context, const struct sl_descriptors_part *part,
                          struct sl_error *why)
{
    int *fd = context;
    if (*fd >= 0 || part->count != 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "more than one descriptor of a memory");
    }
    *fd = fcntl(part->fds[0], F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? SL_OK : sl_fail_os(why, errno, "copy the descriptor of a memory");
}

/* The door has checked whose it is; its length may have become another. */
static sl_err handed_map(struct process_handed *handed, struct sl_error *why)
{
    struct stat status;
    if (fstat(handed->fd, &status) != 0) {
        return sl_fail_os(why, errno, "fstat of a memory that was handed out");
    }
    if (!S_ISREG(status.st_mode) || handed->length_bytes == 0 ||
        (uint64_t)status.st_size < handed->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "a memory of %" PRId64 " bytes, not %" PRIu64,
                       (int64_t)status.st_size, handed->length_bytes);
    }
    void *base =
        mmap(NULL, handed->length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handed->fd, 0);
    if (base == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes of an engine", handed->length_bytes);
    }
    handed->base = base;
    (void)close(handed->fd); /* the mapping holds the memory */
    handed->fd = -1;
    return SL_OK;
}

/* Errors: SL_ERR_TIMEOUT, SL_ERR_NOT_FOUND and others of the fetch, and those of mapping. */
static sl_err handed_open(struct tr_process *process, const struct sl_body_rail_order *order,
                          struct process_handed *handed, struct sl_error *why)
{
    const struct sl_descriptors_source source = {.runtime_dir = process->env->paths->runtime_dir,
                                                 .pid = (uint32_t)order->pid,
                                                 .number = order->socket};
    const struct sl_descriptors_ask ask = {.address = order->handed,
                                           .length_bytes = order->handed_bytes};
    int fd = -1;
    sl_err err = sl_descriptors_fetch(&source, &ask, handed_keep, &fd,
                                      sl_deadline_ns(sl_clock_monotonic_ns(), FETCH_NS), why);
    struct process_handed fresh = {.number = order->handed,
                                   .length_bytes = order->handed_bytes,
                                   .fd = fd,
                                   .device = order->device};
    if (err == SL_OK && !order->device) {
        err = handed_map(&fresh, why);
    }
    if (err != SL_OK) {
        handed_close(&fresh);
        return err;
    }
    *handed = fresh;
    return SL_OK;
}

/* Gives its place in the table. A memory each at most, so there is room. */
static sl_err handed_find(struct tr_process *process, const struct sl_body_rail_order *order,
                          uint32_t *out, struct sl_error *why)
{
    uint32_t room = UINT32_MAX;
    for (uint32_t i = 0; i < process->memories.count; i++) {
        const struct process_handed *handed = &process->handed[i];
        if (handed->users > 0 && handed->number == order->handed) {
            *out = i;
            return handed->device == order->device && handed->length_bytes == order->handed_bytes
                       ? SL_OK
                       : sl_fail(why, SL_ERR_INVALID, "a descriptor that is two things");
        }
        room = handed->users == 0 ? SL_MIN(room, i) : room;
    }
    SL_ASSERT(room < process->memories.count);
    *out = room;
    return handed_open(process, order, &process->handed[room], why);
}

static sl_err handed_add(struct tr_process *process, const struct sl_body_rail_order *order,
                         uint32_t *own, uint32_t *at, struct sl_error *why)
{
    if (order->length_bytes == 0 || order->offset_bytes > order->handed_bytes ||
        order->length_bytes > order->handed_bytes - order->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "a memory that is not within its descriptor");
    }
    sl_err err = handed_find(process, order, at, why);
    if (err != SL_OK) {
        return err;
    }
    struct process_handed *handed = &process->handed[*at];
    const struct sl_fabric_dmabuf dmabuf = {.fd = handed->fd, .offset_bytes = order->offset_bytes};
    const struct sl_fabric_memory memory = {
        .at = handed->device ? NULL : handed->base + order->offset_bytes,
        .dmabuf = handed->device ? &dmabuf : NULL,
        .length_bytes = order->length_bytes,
        .chunk_bytes = order->chunk_bytes,
        .stride_bytes = order->stride_bytes,
        .unread = order->unread};
    err = sl_fabric_memory_add(process->fabric, &memory, own, why);
    if (err == SL_OK) {
        handed->users++;
    } else if (handed->users == 0) {
        handed_close(handed);
    }
    return err;
}

/* ---- orders ---- */

/* The door does not hand out what it ordered just now: it is held up, or gives it back already. Its
 * orders come anew with the next life. */
static bool is_of_door(const struct sl_body_rail_order *order, sl_err err)
{
    return order->handed != 0 && (err == SL_ERR_TIMEOUT || err == SL_ERR_NOT_FOUND);
}

void process_memory_add(struct tr_process *process, const struct sl_body_rail_order *order)
{
    struct process_row *row = process_row_new(process, &process->memories, order->handle);
    struct sl_error why = {0};
    uint32_t own = 0, at = 0;
    if (row == NULL) {
        return;
    }
    sl_err err = order->handed != 0 ? handed_add(process, order, &own, &at, &why)
                                    : arena_add(process, order, &own, &why);
    if (err == SL_OK) {
        process_row_set(&process->memories, row, order->handle, own);
        row->handed = order->handed != 0 ? at + 1 : 0;
        return;
    }
    if (is_of_door(order, err)) {
        process_break(process, why.text);
        return;
    }
    struct sl_body_rail_news news = {.handle = order->handle};
    process_news_why(&news, &why);
    process_news(process, RAIL_REGISTERED, &news);
}

static void memory_gone(struct tr_process *process, uint64_t handle)
{
    struct sl_body_rail_news news = {.handle = handle};
    process_news(process, RAIL_REMOVED, &news);
}

void process_memory_go(struct tr_process *process, uint64_t handle)
{
    struct process_row *row = process_row_of(&process->memories, handle);
    if (row == NULL) { /* it was never registered */
        memory_gone(process, handle);
    } else if (!row->leaving) {
        row->leaving = true;
        process->memories_leaving++;
    }
}

void process_memories_step(struct tr_process *process)
{
    for (uint32_t i = 0; process->memories_leaving > 0 && i < process->memories.count; i++) {
        struct process_row *row = &process->memories.rows[i];
        bool gone = false;
        if (!row->leaving) {
            continue;
        }
        sl_err err = sl_fabric_memory_remove_step(process->fabric, row->own, &gone);
        if (gone || err == SL_ERR_NOT_FOUND) {
            uint64_t handle = row->door;
            process_handed_leave(process, row); /* before the door hears of it */
            *row = (struct process_row){0};
            process->memories_leaving--;
            memory_gone(process, handle);
        }
    }
    if (process->memories_leaving > 0) { /* one that is busy waits for its last transfer */
        process->env->ops->wake_at(process->env, process->env->now_ns + SL_NS_PER_MS);
    }
}

void process_on_registered(void *context, uint32_t memory, uint32_t region_index,
                           const struct sl_error *why)
{
    struct tr_process *process = context;
    struct process_row *row = process_row_by_own(&process->memories, memory);
    if (row == NULL) {
        return;
    }
    struct sl_body_rail_news news = {.handle = row->door, .region = region_index};
    process_news_why(&news, why);
    if (why->code != SL_OK) {
        process->memories_leaving -= row->leaving ? 1 : 0;
        process_handed_leave(process, row);
        *row = (struct process_row){0};
    }
    process_news(process, RAIL_REGISTERED, &news);
}
