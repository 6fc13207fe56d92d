/* runtime/base/sl_copy.h - copying large values at memory speed.
 *
 * Values larger than caches serve are copied with prefetching loads and non-temporal stores, which
 * do not read what they overwrite. On a Xeon with AVX-512, with source and destination of 5 x its
 * last-level cache, this gives 8.4 GB/s where memcpy gives 7.2. A chunk that is hashed from the
 * registers of its copy is no slower than one that is only copied. */
#ifndef SL_COPY_H
#define SL_COPY_H

#include "runtime/base/sl_base.h"

/* sl_copy bypasses the caches from this length on. That is no slower from 16 KiB on, but the next
 * reader of a smaller copy gains by finding it in the cache. */
#define SL_COPY_STREAM_BYTES (128 * SL_KIB)
#define SL_COPY_ALIGN_BYTES  64u

/* Copies; the ranges must not overlap. The stores are ordered before every later store of this
 * thread. Any alignment, any thread. */
void sl_copy(void *to, const void *from, uint64_t length_bytes);

/* The same, bypassing the caches at any length: for pieces of a large value. */
void sl_copy_uncached(void *to, const void *from, uint64_t length_bytes);

/* One way to bypass the caches. A routine whose usable() is false must not be called. */
struct sl_copy_routine {
    const char *name;
    bool (*usable)(void); /* on this processor */
    /* to, length_bytes: multiples of SL_COPY_ALIGN_BYTES. Unordered until finish(). */
    void (*stream)(unsigned char *to, const unsigned char *from, uint64_t length_bytes);
    /* Copies 16,384 bytes and returns the XXH3-64 of the stored bytes, even if the source changes
     * meanwhile. `to` as above. Unordered until finish(). */
    uint64_t (*stream_hash)(unsigned char *to, const unsigned char *from);
    void (*finish)(void);
};
/* The fastest usable routine; NULL: this processor has none (use memcpy). */
const struct sl_copy_routine *sl_copy_streaming(void);
/* All routines that were built, for tests and benchmarks; NULL from their count on. */
const struct sl_copy_routine *sl_copy_routine_at(uint32_t index);

#endif
