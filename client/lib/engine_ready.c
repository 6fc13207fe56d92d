/* client/lib/engine_ready.c - whether the node has heard of an engine, as it is told anew to each life of the
 * node, and to each stand-in that relays. */
#include "client/lib/engine.h"
#include "client/lib/guest_relay.h"

#define AGAIN_NS (10 * SL_NS_PER_MS)

/* Once. */
static sl_err enter(struct sl_engine *engine, uint64_t deadline_ns, uint32_t *life,
                    struct sl_error *why)
{
    struct sl_client *client = engine->client;
    bool relayed = client->guest != NULL;
    sl_err err = relayed ? sl_guest_relay_need(client, deadline_ns, why)
                         : sl_client_greet(client, deadline_ns, why);
    uint32_t number = sl_client_life(client);
    *life = relayed ? sl_guest_relay_life(client) : 0;
    if (err == SL_OK) {
        err = sl_engine_tell(engine, deadline_ns, why);
    }
    if (err == SL_OK) {
        atomic_store_explicit(&engine->known_life, *life, memory_order_release);
        atomic_store_explicit(&engine->attachment, number, memory_order_release);
    }
    return err;
}

/* Under `registering`, or before others know the engine. Again where the stand-in was killed meanwhile. */
sl_err sl_engine_enter(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why)
{
    for (;;) {
        uint32_t life = 0;
        sl_err err = enter(engine, deadline_ns, &life, why);
        bool again = err != SL_OK && engine->client->guest != NULL &&
                     (err == SL_ERR_UNREACHABLE || sl_guest_relay_life(engine->client) != life) &&
                     sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns) > AGAIN_NS;
        if (!again) {
            return err;
        }
        sl_client_sleep(AGAIN_NS);
    }
}

static bool is_known(const struct sl_engine *engine)
{
    struct sl_client *client = engine->client;
    return sl_client_life(client) ==
               atomic_load_explicit(&engine->attachment, memory_order_acquire) &&
           (client->guest == NULL ||
            sl_guest_relay_life(client) ==
                atomic_load_explicit(&engine->known_life, memory_order_acquire));
}

sl_err sl_engine_ready(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why)
{
    sl_err err = sl_client_reattach(engine->client, false, why);
    if (err == SL_OK && engine->client->guest != NULL) { /* perhaps another one than before */
        err = sl_guest_relay_need(engine->client, deadline_ns, why);
    }
    if (err != SL_OK || is_known(engine)) {
        return err;
    }
    if (!sl_turn_take(&engine->registering, deadline_ns)) {
        return sl_fail(why, SL_ERR_TIMEOUT, "engine %s: its registration takes too long",
                       engine->name);
    }
    if (!is_known(engine)) { /* by another thread, meanwhile */
        err = sl_engine_enter(engine, deadline_ns, why);
    }
    sl_turn_leave(&engine->registering);
    return err;
}
