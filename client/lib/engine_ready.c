/* client/lib/engine_ready.c - registers an engine again with each life of the node. */
#include "client/lib/engine.h"

/* Under `registering`, or before other threads know the engine. */
sl_err sl_engine_enter(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why)
{
    sl_err err = sl_client_hello(engine->client, deadline_ns, why);
    uint32_t number = sl_client_life(engine->client);
    if (err == SL_OK) {
        err = sl_engine_announce(engine, deadline_ns, why);
    }
    if (err == SL_OK) {
        atomic_store_explicit(&engine->attachment, number, memory_order_release);
    }
    return err;
}

static bool is_known(const struct sl_engine *engine)
{
    return sl_client_life(engine->client) ==
           atomic_load_explicit(&engine->attachment, memory_order_acquire);
}

sl_err sl_engine_ready(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why)
{
    sl_err err = sl_client_reattach(engine->client, false, why);
    if (err != SL_OK || is_known(engine)) {
        return err;
    }
    if (!sl_turn_take(&engine->registering, deadline_ns)) {
        return sl_fail(why, SL_ERR_TIMEOUT, "engine %s: its registration takes too long",
                       engine->name);
    }
    if (!is_known(engine)) { /* another thread may have done it meanwhile */
        err = sl_engine_enter(engine, deadline_ns, why);
    }
    sl_turn_leave(&engine->registering);
    return err;
}
