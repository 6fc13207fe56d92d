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

/* How many chunks a value of so many bytes has. */
static inline uint64_t sl_digest_chunks(uint64_t length_bytes)
{
    return (length_bytes + SL_DIGEST_CHUNK_BYTES - 1) / SL_DIGEST_CHUNK_BYTES;
}
/* For values that come a range at a time: the hash of one chunk, the digest of all hashes, and the
 * chunks that become whole with the range [from, end) when everything before it is there. */
uint64_t sl_digest_chunk(const void *chunk, uint64_t length_bytes);
struct sl_digest sl_digest_of_chunks(const uint64_t *hashes, uint64_t count);
/* What names a key in messages, where its bytes would be too many: XXH3-64, seed 0. */
static inline uint64_t sl_key_hash(const void *key, uint64_t length_bytes)
{
    return sl_digest_chunk(key, length_bytes);
}
struct sl_digest_span {
    uint64_t first, count; /* chunks; before `from` there is none that is not whole but the first */
};
static inline struct sl_digest_span sl_digest_span_of(uint64_t from, uint64_t end,
                                                      uint64_t length_bytes)
{
    uint64_t first = from / SL_DIGEST_CHUNK_BYTES;
    uint64_t behind =
        (end == length_bytes ? end + SL_DIGEST_CHUNK_BYTES - 1 : end) / SL_DIGEST_CHUNK_BYTES;
    return (struct sl_digest_span){.first = first, .count = behind - first};
}

/* The same in pieces, in order, of any sizes. One owner at a time; no allocation. */
struct sl_digest_stream {
    _Alignas(64) unsigned char state[1216]; /* two XXH3_state_t */
    uint64_t chunk_filled_bytes;
};
void sl_digest_start(struct sl_digest_stream *stream);
void sl_digest_feed(struct sl_digest_stream *stream, const void *piece, uint64_t length_bytes);
struct sl_digest sl_digest_finish(struct sl_digest_stream *stream);

/* Copies and digests in one pass over the source. Whole chunks go past the caches, and are hashed
 * from the registers they go through (runtime/base/sl_copy.h), when `to` is 64-byte aligned. The
 * rest is hashed while it is in the cache. The writer of a value seldom reads it next. The digest
 * is that of the bytes that were stored, also when the source changes meanwhile. Its stores are
 * ordered before every later store of this thread. The ranges do not overlap. */
struct sl_digest sl_digest_copy(void *to, const void *from, uint64_t length_bytes);

/* The same from pieces, in the order of the value, of any sizes; length_bytes: of all together, to
 * choose the way. Chunks that a piece covers go past the caches, others are put together in place.
 * One owner at a time; no allocation. */
#define SL_DIGEST_BATCH 64
struct sl_digest_hashes {
    _Alignas(64) unsigned char outer[608]; /* XXH3_state_t, when there is more than one batch */
    uint64_t batch[SL_DIGEST_BATCH];
    uint32_t filled;
    bool outer_begun;
};
struct sl_copy_routine;
struct sl_digest_copying {
    struct sl_digest_hashes hashes;
    unsigned char *to; /* of the chunk that is being filled */
    uint64_t chunk_filled_bytes;
    const struct sl_copy_routine *routine; /* NULL: through the caches */
};
void sl_digest_copy_start(struct sl_digest_copying *copying, void *to, uint64_t length_bytes);
void sl_digest_copy_piece(struct sl_digest_copying *copying, const void *from,
                          uint64_t length_bytes);
struct sl_digest sl_digest_copy_finish(struct sl_digest_copying *copying);
/* One chunk, in the same way: gives its hash. */
uint64_t sl_digest_copy_chunk(void *to, const void *from, uint64_t length_bytes);

#endif
