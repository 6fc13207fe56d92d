/* tests/fault/thrash_probe.c - tests whether the whole node works. A round puts a value and reads
 * it back, reads a value that is only on disk, and stores and loads a block. It succeeds if all of
 * that was right. */
#include "tests/fault/thrash.h"

#include <stdio.h>
#include <string.h>

#define PAUSE_NS      (500 * SL_NS_PER_MS) /* between two rounds while no worker waits */
#define RETRY_NS      (2 * SL_NS_PER_MS)
#define VALUE_BYTES   3000u
#define COLD_TRIES    64u
#define ROUND_CLAIMED (64 * SL_KIB) /* most bytes that a round puts */

struct probe {
    struct thrash *thrash;
    struct thrash_engine *engine;
    uint32_t rounds;
    uint64_t life;
};

static bool object_round(struct probe *probe)
{
    struct thrash *thrash = probe->thrash;
    uint64_t timeout_ns = thrash->shared->timeout_ns;
    char text[48];
    int length = snprintf(text, sizeof text, "probe/%ju/%u", (uintmax_t)probe->life, probe->rounds);
    const struct sl_object_key key = {.at = text, .length = (uint32_t)length};
    thrash_value_fill(probe->rounds, probe->life, thrash->scratch, VALUE_BYTES);
    struct thrash_call call = thrash_call_begin(thrash, "probe put");
    sl_err err = sl_put(thrash->client, key, thrash->scratch, VALUE_BYTES, timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, timeout_ns);
    if (err != SL_OK) {
        return false;
    }
    uint64_t got_bytes = 0;
    const struct sl_buffer buffer = {.at = thrash->value, .length_bytes = THRASH_VALUE_BYTES};
    call = thrash_call_begin(thrash, "probe get");
    err = sl_get(thrash->client, key, buffer, &got_bytes, timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, timeout_ns);
    if (err == SL_ERR_NOT_FOUND) {
        thrash_count(thrash, THRASH_false_misses, 1);
        thrash_note(thrash->shared, "false miss: %s right after its put", text);
    } else if (err == SL_OK && (got_bytes != VALUE_BYTES ||
                                memcmp(thrash->value, thrash->scratch, VALUE_BYTES) != 0)) {
        thrash_count(thrash, THRASH_wrong, 1);
        thrash_note(thrash->shared, "wrong: %s right after its put", text);
    }
    return err == SL_OK;
}

/* Reads an object that is only on disk, if one is found. */
static bool cold_round(struct probe *probe)
{
    struct thrash *thrash = probe->thrash;
    for (uint32_t i = 0; i < COLD_TRIES; i++) {
        uint32_t object = (uint32_t)thrash_below(&thrash->random, THRASH_OBJECTS);
        struct thrash_object *row = &thrash->shared->objects[object];
        uint64_t before = atomic_load_explicit(&row->word, memory_order_acquire);
        char text[32];
        struct sl_object_key key = thrash_key(object, text);
        struct sl_object_info info;
        if (thrash_phase(before) != THRASH_PRESENT ||
            sl_stat(thrash->client, key, &info) != SL_OK || info.in_memory) {
            continue;
        }
        uint64_t got_bytes = 0;
        const struct sl_buffer buffer = {.at = thrash->value, .length_bytes = THRASH_VALUE_BYTES};
        struct thrash_call call = thrash_call_begin(thrash, "probe cold get");
        sl_err err =
            sl_get(thrash->client, key, buffer, &got_bytes, thrash->shared->timeout_ns, NULL);
        (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
        (void)thrash_judge(thrash, object, before, err, thrash->value, got_bytes, "probe cold get");
        return err == SL_OK || err == SL_ERR_NOT_FOUND;
    }
    return true;
}

static bool block_round(struct probe *probe)
{
    struct thrash *thrash = probe->thrash;
    if (probe->engine == NULL) {
        probe->engine = thrash_engine_open(thrash, "probe", NULL);
    }
    if (probe->engine == NULL) {
        return false;
    }
    uint32_t chat = THRASH_CHATS + (uint32_t)probe->life * 65536u + probe->rounds;
    if (thrash_engine_store(probe->engine, chat, 1) != SL_OK) {
        return false;
    }
    sl_err err = thrash_engine_load(probe->engine, chat, 1);
    if (err == SL_ERR_NOT_FOUND) {
        thrash_count(thrash, THRASH_false_misses, 1);
        thrash_note(thrash->shared, "false miss: the probe's block right after its store");
    }
    return err == SL_OK;
}

int thrash_probe_main(struct thrash *thrash)
{
    struct thrash_shared *shared = thrash->shared;
    struct probe probe = {.thrash = thrash,
                          .life = atomic_load_explicit(&thrash->self->lives, memory_order_relaxed)};
    if (!thrash_attach(thrash)) {
        return 0;
    }
    while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        uint64_t began_ns = sl_clock_monotonic_ns();
        (void)thrash_may_put(thrash, ROUND_CLAIMED);
        probe.rounds++;
        if (object_round(&probe) && cold_round(&probe) && block_round(&probe)) {
            atomic_store_explicit(&thrash->self->whole_from_ns, began_ns, memory_order_relaxed);
            atomic_store_explicit(&thrash->self->whole_until_ns, sl_clock_monotonic_ns(),
                                  memory_order_release);
            /* A waiting worker is served by the next round, which begins after its request. */
            uint64_t until_ns = sl_clock_monotonic_ns() + PAUSE_NS;
            while (!atomic_load_explicit(&shared->probe_wanted, memory_order_relaxed) &&
                   !atomic_load_explicit(&shared->stop, memory_order_relaxed) &&
                   sl_clock_monotonic_ns() < until_ns) {
                thrash_sleep_ns(RETRY_NS);
            }
        } else {
            thrash_sleep_ns(RETRY_NS);
        }
    }
    thrash_engine_close(&probe.engine);
    sl_client_close(&thrash->client);
    return 0;
}
