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
    for (uint32_t i = 0; engine->handed && i < engine->region_count; i++) {
        sl_client_fd_unlend(engine->client, engine->region_fds[i]);
    }
    engine->handed = false;
}

sl_err sl_engine_hand(struct sl_engine *engine, struct sl_error *why)
{
    const struct sl_proc_id self = sl_client_self(engine->client);
    if (engine->client->gate == NULL) {
        return SL_OK;
    }
    sl_engine_hand_back(engine);
    for (uint32_t i = 0; i < engine->region_count; i++) {
        struct sl_item_region *region = &engine->regions[i];
        if (region->handle_kind == SL_MEMORY_PROCESS) {
            return sl_fail(why, SL_ERR_UNSUPPORTED,
                           "engine %s: from another container memory is registered by a descriptor "
                           "(sl_memory_alloc, a memfd), not by its address",
                           engine->name);
        }
        if (engine->region_fds[i] < 0) {
            continue;
        }
        region->pid = self.pid;
        sl_err err = sl_client_fd_lend(engine->client, engine->region_fds[i], &region->fd, why);
        if (err != SL_OK) {
            return err;
        }
        engine->handed = true;
    }
    return SL_OK;
}
