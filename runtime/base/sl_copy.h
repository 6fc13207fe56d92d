/* runtime/base/sl_copy.h - copying large values at memory speed.
 *
 * A value that is larger than what caches are for is copied past them: loads with prefetch, stores
 * that do not read what they overwrite. On a Xeon with AVX-512, both sides walking over 5 x its
 * last-level cache, this makes 8.4 GB/s where memcpy makes 7.2, and a chunk that is hashed from the
 * registers it is copied through is no slower than one that is only copied. */
#ifndef SL_COPY_H
#define SL_COPY_H

#include "runtime/base/sl_base.h"

/* From here on sl_copy goes past the caches. That is no slower from 16 KiB on, but the next reader
 * of a smaller copy is better served by having it in the cache. */
#define SL_COPY_STREAM_BYTES (128 * SL_KIB)
#define SL_COPY_ALIGN_BYTES  64u

/* Copies; the ranges do not overlap. Its stores are ordered before every later store of this
 * thread. Any alignment, any thread. */
void sl_copy(void *to, const void *from, uint64_t length_bytes);

/* The same, past the caches whatever the length: for pieces of something large. */
void sl_copy_past(void *to, const void *from, uint64_t length_bytes);

/* One way to go past the caches. The functions of a routine whose usable() is false must not be
 * called. */
struct sl_copy_routine {
    const char *name;
    bool (*usable)(void); /* on this processor */
    /* to: a multiple of SL_COPY_ALIGN_BYTES; length_bytes: one too. Unordered until finish(). */
    void (*stream)(unsigned char *to, const unsigned char *from, uint64_t length_bytes);
    /* Copies 16,384 bytes and gives the XXH3-64 of the bytes that it stored, also when the source
     * changes meanwhile. to as above. Unordered until finish(). */
    uint64_t (*stream_hash)(unsigned char *to, const unsigned char *from);
    void (*finish)(void);
};
/* The best usable one; NULL: none on this processor (memcpy is all there is). */
const struct sl_copy_routine *sl_copy_streaming(void);
/* All that were built, for tests and benchmarks: NULL from the count on. */
const struct sl_copy_routine *sl_copy_routine_at(uint32_t index);

#endif
