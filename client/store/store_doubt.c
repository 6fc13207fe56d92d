/* client/store/store_doubt.c - keys whose reading failed a moment ago: look-ups answer that they
 * are not there.
 *
 * An engine whose load failed recomputes, and looks the key up again at once. As long as the value
 * is there and cannot be read (no memory to read it into, a disk that stands still, another size) a
 * yes would make it load, fail and look for ever. */
#include "client/store/store_internal.h"

#define DOUBT_MS        UINT64_C(5000)
#define DOUBT_TIME_MASK UINT64_C(0xffffffff)

/* A slot: the upper half of a key's hash, and the millisecond (modulo 2^32) at which the doubt
 * ends. */
static _Atomic uint64_t *doubt_slot(struct store_base *base, uint64_t hash)
{
    return &base->doubts[hash % STORE_DOUBTS];
}

static bool doubt_stands(uint64_t slot, uint64_t hash, uint64_t now_ms)
{
    uint64_t left_ms = ((slot & DOUBT_TIME_MASK) - now_ms) & DOUBT_TIME_MASK;
    return ((slot ^ hash) & ~DOUBT_TIME_MASK) == 0 && left_ms - 1 < DOUBT_MS;
}

/* Whether the failure says that the next attempt fails, too, and not that the caller was wrong. */
static bool failure_lasts(sl_err err)
{
    switch (err) {
    case SL_ERR_NO_SPACE:
    case SL_ERR_TIMEOUT:
    case SL_ERR_UNREACHABLE:
    case SL_ERR_PEER_DIED:
    case SL_ERR_IO:
    case SL_ERR_CORRUPT:
    case SL_ERR_DEVICE:
        return true;
    default:
        return false;
    }
}

void store_doubt(struct store_base *base, struct sl_object_key key)
{
    uint64_t now_ms = store_now_ns() / STORE_NS_PER_MS;
    uint64_t hash = store_key_hash(key);
    uint64_t slot = (hash & ~DOUBT_TIME_MASK) | ((now_ms + DOUBT_MS) & DOUBT_TIME_MASK);
    atomic_store_explicit(doubt_slot(base, hash), slot, memory_order_relaxed);
    atomic_store_explicit(&base->doubts_end_ms, now_ms + DOUBT_MS, memory_order_relaxed);
}

void store_doubt_note(struct store_base *base, struct sl_object_key key, sl_err err)
{
    if (failure_lasts(err)) {
        store_doubt(base, key);
    } else if (err == SL_OK && store_doubted(base, key)) {
        uint64_t hash = store_key_hash(key);
        atomic_store_explicit(doubt_slot(base, hash), 0, memory_order_relaxed);
    }
}

bool store_doubted(struct store_base *base, struct sl_object_key key)
{
    uint64_t end_ms = atomic_load_explicit(&base->doubts_end_ms, memory_order_relaxed);
    if (end_ms == 0) {
        return false;
    }
    uint64_t now_ms = store_now_ns() / STORE_NS_PER_MS;
    uint64_t hash = store_key_hash(key);
    return now_ms < end_ms &&
           doubt_stands(atomic_load_explicit(doubt_slot(base, hash), memory_order_relaxed), hash,
                        now_ms);
}
