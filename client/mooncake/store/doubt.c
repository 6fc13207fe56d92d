/* client/mooncake/store/doubt.c - doubts: keys whose read failed a moment ago, which lookups report
 * as absent.
 *
 * An engine whose load failed recomputes, and looks the key up again at once. While the value
 * cannot be read (no memory, a hanging disk, another size), hits would make it do so forever. */
#include "client/mooncake/store/internal.h"

#define DOUBT_MS        UINT64_C(5000)
#define DOUBT_TIME_MASK UINT64_C(0xffffffff)

/* A slot has in its upper half the upper half of a key's hash, except the lowest bit: that one is
 * set if the caller's memory was the reason, so that a value in memory is doubted as well. The
 * lower half is the millisecond (modulo 2^32) at which the doubt ends. */
#define DOUBT_MISFIT    (UINT64_C(1) << 32)
#define DOUBT_HASH_MASK (~(DOUBT_TIME_MASK | DOUBT_MISFIT))

static _Atomic uint64_t *doubt_slot(struct store_base *base, uint64_t hash)
{
    return &base->doubts[hash % STORE_DOUBTS];
}

static bool doubt_valid(uint64_t slot, uint64_t hash, uint64_t now_ms)
{
    uint64_t left_ms = ((slot & DOUBT_TIME_MASK) - now_ms) & DOUBT_TIME_MASK;
    return ((slot ^ hash) & DOUBT_HASH_MASK) == 0 && left_ms - 1 < DOUBT_MS;
}

/* Whether the next attempt would fail as well, and the caller is not at fault. The node removes a
 * corrupt copy at once, so its key is a miss anyway. */
static bool failure_lasts(sl_err err)
{
    switch (err) {
    case SL_ERR_NO_SPACE:
    case SL_ERR_TIMEOUT:
    case SL_ERR_UNREACHABLE:
    case SL_ERR_PEER_DIED:
    case SL_ERR_IO:
    case SL_ERR_DEVICE:
        return true;
    default:
        return false;
    }
}

static void doubt_begin(struct store_base *base, struct sl_object_key key, uint64_t kind)
{
    uint64_t now_ms = sl_clock_monotonic_ns() / STORE_NS_PER_MS;
    uint64_t hash = store_key_hash(key);
    uint64_t slot = (hash & DOUBT_HASH_MASK) | kind | ((now_ms + DOUBT_MS) & DOUBT_TIME_MASK);
    atomic_store_explicit(doubt_slot(base, hash), slot, memory_order_relaxed);
    atomic_store_explicit(&base->doubts_end_ms, now_ms + DOUBT_MS, memory_order_relaxed);
}

static void doubt_end(struct store_base *base, struct sl_object_key key)
{
    atomic_store_explicit(doubt_slot(base, store_key_hash(key)), 0, memory_order_relaxed);
}

/* A value in memory can be read: it was put again, or memory became free. */
static bool in_memory(struct store_base *base, struct sl_object_key key)
{
    struct sl_client *quiet = store_quiet_client(base);
    struct sl_stat stat = {.in_memory = false};
    sl_err err = SL_ERR_NOT_FOUND;
    return quiet != NULL && sl_stat_batch(quiet, &key, 1, &stat, &err) == SL_OK && err == SL_OK &&
           stat.in_memory;
}

/* Returns the slot with a doubt about this key; 0: there is none. */
static uint64_t doubt_of(struct store_base *base, struct sl_object_key key)
{
    uint64_t end_ms = atomic_load_explicit(&base->doubts_end_ms, memory_order_relaxed);
    if (end_ms == 0) {
        return 0;
    }
    uint64_t now_ms = sl_clock_monotonic_ns() / STORE_NS_PER_MS;
    if (now_ms >= end_ms) { /* from now on lookups skip the slots */
        (void)atomic_compare_exchange_strong_explicit(&base->doubts_end_ms, &end_ms, 0,
                                                      memory_order_relaxed, memory_order_relaxed);
        return 0;
    }
    uint64_t hash = store_key_hash(key);
    uint64_t slot = atomic_load_explicit(doubt_slot(base, hash), memory_order_relaxed);
    return doubt_valid(slot, hash, now_ms) ? slot : 0;
}

void store_doubt_misfit(struct store_base *base, struct sl_object_key key)
{
    doubt_begin(base, key, DOUBT_MISFIT);
}

void store_doubt_note(struct store_base *base, struct sl_object_key key, sl_err err)
{
    if (failure_lasts(err)) {
        doubt_begin(base, key, err == SL_ERR_DEVICE ? DOUBT_MISFIT : 0);
    } else if (err == SL_OK && doubt_of(base, key) != 0) {
        doubt_end(base, key);
    }
}

bool store_doubted(struct store_base *base, struct sl_object_key key)
{
    uint64_t doubt = doubt_of(base, key);
    if (doubt != 0 && (doubt & DOUBT_MISFIT) == 0 && in_memory(base, key)) {
        doubt_end(base, key);
        return false;
    }
    return doubt != 0;
}
