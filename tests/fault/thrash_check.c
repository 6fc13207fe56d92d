/* tests/fault/thrash_check.c - checks the bytes that were read. */
#include "tests/fault/thrash.h"

#include <string.h>

/* Versions that may have existed between two looks at the word; no more are tried. */
#define VERSIONS_MAX 16u

static bool bytes_right(struct thrash *thrash, uint32_t object, uint64_t version, const void *bytes,
                        uint64_t length_bytes)
{
    if (length_bytes != thrash_value_bytes(object, version)) {
        return false;
    }
    thrash_value_fill(object, version, thrash->scratch, length_bytes);
    return memcmp(bytes, thrash->scratch, length_bytes) == 0;
}

static enum thrash_verdict found(struct thrash *thrash, uint32_t object, uint64_t before,
                                 uint64_t after, const void *bytes, uint64_t length_bytes,
                                 const char *how)
{
    uint64_t first = thrash_version(before);
    uint64_t last = thrash_version(after);
    if (before == after && thrash_phase(before) == THRASH_ABSENT) {
        thrash_count(thrash, THRASH_risen, 1);
        thrash_note(thrash->shared, "risen: object %u version %ju was removed, found by %s", object,
                    (uintmax_t)first, how);
        return THRASH_BAD;
    }
    if (bytes == NULL) {
        return THRASH_FINE;
    }
    for (uint64_t version = first; version <= last && version < first + VERSIONS_MAX; version++) {
        if (bytes_right(thrash, object, version, bytes, length_bytes)) {
            thrash_count(thrash, THRASH_reads_verified, 1);
            thrash_count(thrash, THRASH_bytes_verified, length_bytes);
            return THRASH_FINE;
        }
    }
    if (last >= first + VERSIONS_MAX) { /* stopped for long while others went on: undecidable */
        return THRASH_FINE;
    }
    thrash_count(thrash, THRASH_wrong, 1);
    thrash_note(thrash->shared,
                "wrong: object %u, %ju bytes by %s are of none of versions %ju (phase %u) to %ju "
                "(phase %u)",
                object, (uintmax_t)length_bytes, how, (uintmax_t)first,
                (unsigned)thrash_phase(before), (uintmax_t)last, (unsigned)thrash_phase(after));
    return THRASH_BAD;
}

enum thrash_verdict thrash_judge(struct thrash *thrash, uint32_t object, uint64_t before,
                                 sl_err code, const void *bytes, uint64_t length_bytes,
                                 const char *how)
{
    struct thrash_object *row = &thrash->shared->objects[object];
    /* A put that others acknowledged after our look is not an error: the word is read last. */
    uint64_t after = atomic_load_explicit(&row->word, memory_order_acquire);
    thrash_count(thrash, THRASH_looks, 1);
    if (code == SL_OK) {
        return found(thrash, object, before, after, bytes, length_bytes, how);
    }
    if (code == SL_ERR_CORRUPT) { /* counted as a miss, but no fault here corrupts a disk */
        thrash_count(thrash, THRASH_wrong, 1);
        thrash_note(thrash->shared, "wrong: object %u is reported as corrupt by %s", object, how);
        return THRASH_BAD;
    }
    if (code != SL_ERR_NOT_FOUND || before != after || thrash_phase(before) != THRASH_PRESENT) {
        return THRASH_FINE;
    }
    uint64_t clock = atomic_load_explicit(&row->clock, memory_order_relaxed);
    uint64_t now = atomic_load_explicit(&thrash->shared->clock, memory_order_relaxed);
    if (!thrash->shared->strict && now - SL_MIN(now, clock) > thrash->shared->recent_bytes) {
        thrash_count(thrash, THRASH_misses_of_evicted, 1);
        return THRASH_MISS;
    }
    thrash_count(thrash, THRASH_false_misses, 1);
    thrash_note(thrash->shared,
                "false miss: object %u version %ju, acknowledged %ju bytes ago, by %s", object,
                (uintmax_t)thrash_version(before), (uintmax_t)(now - SL_MIN(now, clock)), how);
    return THRASH_MISS;
}
