/* tests/fault/thrash_audit.c - the final check after all faults: every acknowledged object and
 * block, and whether the node's accounts match its contents. */
#include "ipc/shm/sl_arena.h"
#include "tests/fault/thrash_driver.h"

#include <stdio.h>
#include <stdlib.h>

#define QUIET_NS  (20 * SL_NS_PER_S) /* for quarantines, retired extents and write-behind to end */
#define FLUSH_NS  (30 * SL_NS_PER_S)
#define TRIES_MAX 5u
#define PAUSE_NS  (50 * SL_NS_PER_MS)
/* Connections that an actor may open later: seven each; the registrar has three at the end of a
 * registration, to coordinator and two swappers. */
#define DESCRIPTORS_MORE 48u

/* Whether to read the value once more. A value that is only on disk needs space in memory, which
 * becomes free as values reach the disk, claims of dead processes end and their pins are released.
 * Without space a get fails after 100 ms (REG_PROMOTE_WAIT_NS); on a slow disk that uses up many of
 * its tries. All reads share the time. */
static bool again(sl_err err, uint32_t tries, uint64_t until_ns)
{
    if (err == SL_OK || err == SL_ERR_NOT_FOUND) {
        return false;
    }
    if (tries >= TRIES_MAX) {
        if (sl_err_class(err) != SL_CLASS_RETRY || sl_clock_monotonic_ns() >= until_ns) {
            return false;
        }
        thrash_sleep_ns(PAUSE_NS);
    }
    return true;
}

static void objects_audit(struct driver *driver, struct thrash *thrash, uint64_t until_ns)
{
    for (uint32_t object = 0; object < THRASH_OBJECTS; object++) {
        struct thrash_object *row = &driver->shared->objects[object];
        uint64_t before = atomic_load_explicit(&row->word, memory_order_acquire);
        char text[32];
        struct sl_object_key key = thrash_key(object, text);
        const struct sl_buffer buffer = {.at = thrash->value, .length_bytes = THRASH_VALUE_BYTES};
        uint64_t length_bytes = 0;
        sl_err err = SL_ERR_BUSY;
        for (uint32_t i = 0; again(err, i, until_ns); i++) {
            struct thrash_call call = thrash_call_begin(thrash, "last get");
            err = sl_get(thrash->client, key, buffer, &length_bytes, thrash->shared->timeout_ns,
                         NULL);
            (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
        }
        if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
            driver->not_whole++;
            thrash_note(driver->shared, "object %u cannot be read at the end: %s", object,
                        sl_err_name(err));
        }
        if (thrash_judge(thrash, object, before, err, thrash->value, length_bytes, "last get") ==
                THRASH_MISS &&
            driver->shared->strict) {
            thrash_count(thrash, THRASH_lost, 1);
        }
        driver->objects_at_end += err == SL_OK;
    }
}

/* Loads every chat as far as it was acknowledged; the engine counts missing blocks. */
static void blocks_audit(struct driver *driver, struct thrash *thrash, uint64_t until_ns)
{
    struct thrash_engine *engine = thrash_engine_open(thrash, "audit", NULL);
    if (engine == NULL) {
        driver->not_whole++;
        thrash_note(driver->shared, "no engine can be registered at the end");
        return;
    }
    for (uint32_t chat = 0; chat < THRASH_CHATS; chat++) {
        uint32_t known = 0;
        while (known < THRASH_CHAT_BLOCKS &&
               atomic_load_explicit(&driver->shared->blocks[thrash_block(chat, known)].word,
                                    memory_order_relaxed) == thrash_word(1, THRASH_PRESENT)) {
            known++;
        }
        sl_err err = SL_ERR_BUSY;
        for (uint32_t i = 0; known > 0 && again(err, i, until_ns); i++) {
            err = thrash_engine_load(engine, chat, known);
        }
        if (known > 0 && err != SL_OK && err != SL_ERR_NOT_FOUND) {
            driver->not_whole++;
            thrash_note(driver->shared, "chat %u cannot be loaded at the end: %s", chat,
                        sl_err_name(err));
        }
        driver->blocks_at_end += err == SL_OK ? known : 0;
    }
    thrash_engine_close(&engine);
}

static bool live_add(void *context, const struct sl_object_info *info)
{
    uint64_t *live_bytes = context;
    *live_bytes += info->in_memory ? sl_extent_space(info->length_bytes) : 0;
    return true;
}

/* Dead processes must leave no claims, quarantine, retired extents or unused space. */
static void space_audit(struct driver *driver, struct thrash *thrash)
{
    static const char *const gauges[] = {"claim_count", "quarantined_bytes", "retired_count",
                                         "write_behind_pending_count", "engine_count"};
    uint64_t until_ns = sl_clock_monotonic_ns() + QUIET_NS + driver->shared->margin_ns;
    bool quiet = false;
    uint64_t values[SL_COUNT(gauges)] = {0};
    sl_err err = sl_flush(thrash->client, FLUSH_NS + driver->shared->margin_ns, NULL);
    if (err != SL_OK) {
        driver->not_whole++;
        thrash_note(driver->shared, "flush at the end: %s", sl_err_name(err));
    }
    while (!quiet && sl_clock_monotonic_ns() < until_ns) {
        thrash_sleep_ns(PAUSE_NS);
        quiet = true;
        for (uint32_t i = 0; i < SL_COUNT(gauges); i++) {
            values[i] = driver_metric(driver, "registrar", gauges[i]);
            quiet = quiet && values[i] == 0;
        }
        driver->used_bytes = driver_metric(driver, "registrar", "used_bytes");
        driver->live_bytes = 0;
        (void)sl_list(thrash->client, NULL, live_add, &driver->live_bytes, NULL);
        quiet = quiet && driver->used_bytes == driver->live_bytes;
    }
    if (quiet) {
        return;
    }
    driver->leaks++;
    thrash_note(driver->shared,
                "leak: %ju bytes are used, %ju by values; claims %ju, quarantined %ju, "
                "retired %ju, to be written %ju, engines %ju",
                (uintmax_t)driver->used_bytes, (uintmax_t)driver->live_bytes, (uintmax_t)values[0],
                (uintmax_t)values[1], (uintmax_t)values[2], (uintmax_t)values[3],
                (uintmax_t)values[4]);
}

static void descriptors_audit(struct driver *driver)
{
    driver_sample(driver);
    for (uint32_t i = 0; i < THRASH_ACTORS; i++) {
        const struct driver_actor *actor = &driver->actors[i];
        /* A tierer has one for each log file. */
        uint64_t allowed = actor->descriptors_first + DESCRIPTORS_MORE +
                           driver_metric(driver, thrash_victim_names[i], "segments");
        if (actor->descriptors_last > allowed) {
            driver->leaks++;
            thrash_note(driver->shared, "leak: %s has %ju descriptors, %ju at the start",
                        thrash_victim_names[i], (uintmax_t)actor->descriptors_last,
                        (uintmax_t)actor->descriptors_first);
        }
    }
}

void driver_audit(struct driver *driver)
{
    char instance[64];
    char runtime_dir[THRASH_PATH + 64];
    char shm_dir[128];
    (void)snprintf(instance, sizeof instance, "instance=%s", driver->instance);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", driver->run_dir);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", driver->shm_dir);
    const char *const places[] = {instance, runtime_dir, shm_dir, NULL};
    /* The slot of the probe, which has ended. */
    struct thrash thrash = {
        .shared = driver->shared,
        .self = &driver->shared->workers[driver->shared->clients + driver->shared->engines],
        .random = driver->random,
        .settings = places,
        .scratch = malloc(THRASH_VALUE_BYTES),
        .value = malloc(THRASH_VALUE_BYTES)};
    atomic_store_explicit(&driver->shared->stop, false, memory_order_relaxed);
    if (thrash.scratch != NULL && thrash.value != NULL && thrash_attach(&thrash)) {
        uint64_t until_ns = sl_clock_monotonic_ns() + QUIET_NS + driver->shared->margin_ns;
        objects_audit(driver, &thrash, until_ns);
        blocks_audit(driver, &thrash, until_ns);
        space_audit(driver, &thrash);
        sl_client_close(&thrash.client);
        descriptors_audit(driver);
    } else {
        driver->failed = true;
    }
    free(thrash.scratch);
    free(thrash.value);
}
