/* runtime/base/sl_digest.h - the digest of a value: XXH3-128 over the XXH3-64s of its 16 KiB
 * chunks.
 *
 * Format (fixed: disk, wire and shared memory hold it): the value is cut into chunks of 16,384
 * bytes, the last may be shorter; XXH3_64bits (seed 0) of each, written as little-endian u64, one
 * after the other; XXH3_128bits (seed 0) of that sequence is the digest. */
#ifndef SL_DIGEST_H
#define SL_DIGEST_H

#include "runtime/base/sl_base.h"

#define SL_DIGEST_CHUNK_BYTES 16384u

struct sl_digest {
    uint64_t low;  /* low64 of XXH128_hash_t */
    uint64_t high; /* high64 */
};

static inline bool sl_digest_equal(struct sl_digest a, struct sl_digest b)
{
    return a.low == b.low && a.high == b.high;
}

struct sl_digest sl_digest_of(const void *value, uint64_t length_bytes);

/* Number of chunks of a value. */
static inline uint64_t sl_digest_chunks(uint64_t length_bytes)
{
    return (length_bytes + SL_DIGEST_CHUNK_BYTES - 1) / SL_DIGEST_CHUNK_BYTES;
}
/* For values that arrive in ranges: the hash of one chunk, the digest of all hashes, and the chunks
 * that the range [from, end) completes if everything before it has arrived. */
uint64_t sl_digest_chunk(const void *chunk, uint64_t length_bytes);
struct sl_digest sl_digest_of_chunks(const uint64_t *hashes, uint64_t count);
/* The short name of a key in messages: XXH3-64, seed 0. */
static inline uint64_t sl_key_hash(const void *key, uint64_t length_bytes)
{
    return sl_digest_chunk(key, length_bytes);
}
struct sl_digest_span {
    uint64_t first, count; /* chunks; only the first may begin before `from` */
};
static inline struct sl_digest_span sl_digest_span_of(uint64_t from, uint64_t end,
                                                      uint64_t length_bytes)
{
    uint64_t first = from / SL_DIGEST_CHUNK_BYTES;
    uint64_t behind =
        (end == length_bytes ? end + SL_DIGEST_CHUNK_BYTES - 1 : end) / SL_DIGEST_CHUNK_BYTES;
    return (struct sl_digest_span){.first = first, .count = behind - first};
}

/* The digest of a value in pieces of any sizes, in order. One owner at a time; no allocation. */
struct sl_digest_stream {
    _Alignas(64) unsigned char state[1216]; /* two XXH3_state_t */
    uint64_t chunk_filled_bytes;
};
void sl_digest_start(struct sl_digest_stream *stream);
void sl_digest_feed(struct sl_digest_stream *stream, const void *piece, uint64_t length_bytes);
struct sl_digest sl_digest_finish(struct sl_digest_stream *stream);

/* Copies and digests in one pass over the source. If `to` is 64-byte aligned, whole chunks bypass
 * the caches and are hashed from the registers of the copy (runtime/base/sl_copy.h); the writer of
 * a value seldom reads it next. The rest is hashed while it is in the cache. The digest is that of
 * the stored bytes, even if the source changes meanwhile. The stores are ordered before every later
 * store of this thread. The ranges must not overlap. */
struct sl_digest sl_digest_copy(void *to, const void *from, uint64_t length_bytes);

/* The same from pieces of any sizes, in the order of the value. length_bytes: of all pieces
 * together, which decides whether the caches are bypassed. Chunks within one piece bypass them;
 * others are assembled in place. One owner at a time; no allocation. */
#define SL_DIGEST_BATCH 64
struct sl_digest_hashes {
    _Alignas(64) unsigned char outer[608]; /* XXH3_state_t, if there is more than one batch */
    uint64_t batch[SL_DIGEST_BATCH];
    uint32_t filled;
    bool outer_begun;
};
struct sl_copy_routine;
struct sl_digest_copying {
    struct sl_digest_hashes hashes;
    unsigned char *to; /* start of the chunk being filled */
    uint64_t chunk_filled_bytes;
    const struct sl_copy_routine *routine; /* NULL: through the caches */
};
void sl_digest_copy_start(struct sl_digest_copying *copying, void *to, uint64_t length_bytes);
void sl_digest_copy_piece(struct sl_digest_copying *copying, const void *from,
                          uint64_t length_bytes);
struct sl_digest sl_digest_copy_finish(struct sl_digest_copying *copying);
/* Copies one chunk in the same way and returns its hash. */
uint64_t sl_digest_copy_chunk(void *to, const void *from, uint64_t length_bytes);

#endif
