/* client/lib/engine_hand.c - memory of an engine that is in another container than the node: its descriptors are
 * found with the client's stand-in (ipc/sl_gate.h). */
#include "client/lib/engine.h"
#include "client/lib/pool.h"

#include <errno.h>
#include <sys/stat.h>

int sl_engine_region_fd(const struct sl_engine_memory *memory)
{
    return memory->rows != NULL ? -1 : memory->from != NULL ? memory->from->fd : memory->fd;
}

void sl_engine_hand_back(struct sl_engine *engine)
{
    for (uint32_t i = 0; i < engine->handed_count; i++) {
        sl_client_fd_unlend(engine->client, engine->region_fds[i], engine->handed_to);
    }
    engine->handed_count = 0;
}

static bool same_file(int one, int other)
{
    struct stat a, b;
    return one == other || (one >= 0 && other >= 0 && fstat(one, &a) == 0 &&
                            fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

/* Plain memory that sl_memory_alloc gave has a descriptor after all. */
static sl_err plain_find(struct sl_engine *engine, uint32_t at, struct sl_error *why)
{
    struct sl_item_region *region = &engine->regions[at];
    uint64_t offset_bytes = 0;
    if (region->handle_kind != SL_MEMORY_PROCESS) {
        return SL_OK;
    }
    const void *plain =
        (const void *)(uintptr_t)region->offset_bytes; /* NOLINT(performance-no-int-to-ptr) */
    int fd = sl_memory_ours_fd(plain, region->length_bytes, &offset_bytes);
    if (fd < 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "engine %s: from another container or user memory is registered by a "
                       "descriptor (sl_memory_alloc, a memfd), not by its address",
                       engine->name);
    }
    if (at > 0 && same_file(fd, engine->region_fds[at - 1])) { /* one for all that lie in it */
        sl_auto_close(&fd);
        fd = engine->region_fds[at - 1];
    } else {
        engine->ours_fds[at] = fd;
    }
    engine->region_fds[at] = fd;
    region->handle_kind = SL_MEMORY_SHARED_FD;
    region->offset_bytes = offset_bytes;
    region->start_time = 0;
    region->handle = (struct sl_bytes){0};
    return SL_OK;
}

/* All to one: a stand-in that ended in the middle has none of what it was lent. */
static sl_err region_hand(struct sl_engine *engine, uint32_t at, struct sl_error *why)
{
    struct sl_item_region *region = &engine->regions[at];
    struct sl_proc_id to;
    if (engine->region_fds[at] < 0) {
        return SL_OK;
    }
    sl_err err = sl_client_fd_lend(engine->client, engine->region_fds[at], &region->fd, &to, why);
    if (err == SL_OK && !sl_proc_id_equal(to, engine->handed_to)) {
        sl_client_fd_unlend(engine->client, engine->region_fds[at], to);
        err = sl_fail(why, SL_ERR_UNREACHABLE, "engine %s: the node's process for it has changed",
                      engine->name);
    }
    region->pid = engine->handed_to.pid;
    return err;
}

sl_err sl_engine_hand(struct sl_engine *engine, struct sl_error *why)
{
    if (engine->client->gate == NULL) {
        return SL_OK;
    }
    for (uint32_t i = 0; i < engine->region_count; i++) {
        sl_err err = plain_find(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    sl_engine_hand_back(engine);
    engine->handed_to = sl_client_self(engine->client);
    for (uint32_t i = 0; i < engine->region_count; i++) {
        sl_err err = region_hand(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
        engine->handed_count = i + 1; /* also of a hand-over that fails then */
    }
    return SL_OK;
}
