/* client/lib/engine_hand.c - memory of an engine that is in another container than the node: its
 * descriptors are found with the client's stand-in (ipc/sl_gate.h). */
#include "client/lib/engine.h"
#include "client/lib/pool.h"

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
    sl_engine_hand_back(engine);
    engine->handed_to = sl_client_self(engine->client);
    for (uint32_t i = 0; i < engine->region_count; i++) {
        if (engine->regions[i].handle_kind == SL_MEMORY_PROCESS) {
            return sl_fail(why, SL_ERR_UNSUPPORTED,
                           "engine %s: from another container memory is registered by a descriptor "
                           "(sl_memory_alloc, a memfd), not by its address",
                           engine->name);
        }
        sl_err err = region_hand(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
        engine->handed_count = i + 1; /* also of a hand-over that fails then */
    }
    return SL_OK;
}
