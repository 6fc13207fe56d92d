/* runtime/sl_digest.c - XXH3-128 over the XXH3-64s of 16 KiB chunks. */
#define XXH_STATIC_LINKING_ONLY
#include "runtime/sl_digest.h"

#include "runtime/sl_copy.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

/* The library's plain entry points are compiled for the oldest processor of the architecture; its
 * dispatching ones take the widest vectors there are: 12 against 6 GB/s on a Xeon with AVX-512
 * (1 GiB, one core). */
#ifdef SL_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#define DIGEST_HASH_64 XXH3_64bits_dispatch
#else
#define DIGEST_HASH_64 XXH3_64bits
#endif

static_assert(sizeof(((struct sl_digest_stream *)0)->state) >= 2 * sizeof(XXH3_state_t),
              "the stream has room for both states");

/* Chunk hashes are gathered here before they go into the outer hash. */
#define DIGEST_BATCH 64

static struct sl_digest digest_from(XXH128_hash_t hash)
{
    return (struct sl_digest){.low = hash.low64, .high = hash.high64};
}

/* One chunk, copied when `to` is not NULL. What is hashed is what was stored, also when the source
 * changes meanwhile. */
static uint64_t digest_chunk(const struct sl_copy_routine *routine, unsigned char *to,
                             const unsigned char *from, size_t length_bytes)
{
    if (to == NULL) {
        return DIGEST_HASH_64(from, length_bytes);
    }
    if (routine != NULL && length_bytes == SL_DIGEST_CHUNK_BYTES) {
        return routine->stream_hash(to, from);
    }
    memcpy(to, from, length_bytes);
    return DIGEST_HASH_64(to, length_bytes);
}

static struct sl_digest digest_pass(const struct sl_copy_routine *routine, unsigned char *to,
                                    const unsigned char *from, uint64_t length_bytes)
{
    XXH3_state_t outer;
    uint64_t batch[DIGEST_BATCH];
    uint32_t filled = 0;
    bool one_batch = length_bytes <= (uint64_t)DIGEST_BATCH * SL_DIGEST_CHUNK_BYTES;
    if (!one_batch) {
        (void)XXH3_128bits_reset(&outer);
    }
    for (uint64_t at = 0; at < length_bytes; at += SL_DIGEST_CHUNK_BYTES) {
        size_t piece = (size_t)SL_MIN(length_bytes - at, (uint64_t)SL_DIGEST_CHUNK_BYTES);
        if (filled == DIGEST_BATCH) {
            (void)XXH3_128bits_update(&outer, batch, sizeof(batch));
            filled = 0;
        }
        batch[filled++] = digest_chunk(routine, to == NULL ? NULL : to + at, from + at, piece);
    }
    if (one_batch) {
        return digest_from(XXH3_128bits(batch, filled * sizeof(uint64_t)));
    }
    (void)XXH3_128bits_update(&outer, batch, filled * sizeof(uint64_t));
    return digest_from(XXH3_128bits_digest(&outer));
}

struct sl_digest sl_digest_of(const void *value, uint64_t length_bytes)
{
    return digest_pass(NULL, NULL, value, length_bytes);
}

uint64_t sl_digest_chunk(const void *chunk, uint64_t length_bytes)
{
    return DIGEST_HASH_64(chunk, (size_t)length_bytes);
}

struct sl_digest sl_digest_of_chunks(const uint64_t *hashes, uint64_t count)
{
    return digest_from(XXH3_128bits(hashes, (size_t)count * sizeof(*hashes)));
}

struct sl_digest sl_digest_copy(void *to, const void *from, uint64_t length_bytes)
{
    bool aligned = ((uintptr_t)to & (SL_COPY_ALIGN_BYTES - 1)) == 0;
    const struct sl_copy_routine *routine =
        aligned && length_bytes >= SL_DIGEST_CHUNK_BYTES ? sl_copy_streaming() : NULL;
    struct sl_digest digest = digest_pass(routine, to, from, length_bytes);
    if (routine != NULL) {
        routine->finish();
    }
    return digest;
}

static XXH3_state_t *stream_outer(struct sl_digest_stream *stream)
{
    /* cppcheck-suppress ctuuninitvar ; a place, which is filled from here on */
    return (XXH3_state_t *)(void *)stream->state;
}

static XXH3_state_t *stream_chunk(struct sl_digest_stream *stream)
{
    return stream_outer(stream) + 1;
}

void sl_digest_start(struct sl_digest_stream *stream)
{
    (void)XXH3_128bits_reset(stream_outer(stream));
    (void)XXH3_64bits_reset(stream_chunk(stream));
    stream->chunk_filled_bytes = 0;
}

static void stream_close_chunk(struct sl_digest_stream *stream)
{
    uint64_t hash = XXH3_64bits_digest(stream_chunk(stream));
    (void)XXH3_128bits_update(stream_outer(stream), &hash, sizeof(hash));
    (void)XXH3_64bits_reset(stream_chunk(stream));
    stream->chunk_filled_bytes = 0;
}

void sl_digest_feed(struct sl_digest_stream *stream, const void *piece, uint64_t length_bytes)
{
    const unsigned char *at = piece;
    while (length_bytes > 0) {
        uint64_t take = SL_MIN(length_bytes, SL_DIGEST_CHUNK_BYTES - stream->chunk_filled_bytes);
        if (take ==
            SL_DIGEST_CHUNK_BYTES) { /* a whole chunk at hand: the one-shot form is faster */
            uint64_t hash = DIGEST_HASH_64(at, (size_t)take);
            (void)XXH3_128bits_update(stream_outer(stream), &hash, sizeof(hash));
        } else {
            (void)XXH3_64bits_update(stream_chunk(stream), at, (size_t)take);
            stream->chunk_filled_bytes += take;
            if (stream->chunk_filled_bytes == SL_DIGEST_CHUNK_BYTES) {
                stream_close_chunk(stream);
            }
        }
        at += take;
        length_bytes -= take;
    }
}

struct sl_digest sl_digest_finish(struct sl_digest_stream *stream)
{
    if (stream->chunk_filled_bytes > 0) {
        stream_close_chunk(stream);
    }
    return digest_from(XXH3_128bits_digest(stream_outer(stream)));
}
