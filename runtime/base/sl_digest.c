/* runtime/base/sl_digest.c - XXH3-128 over the XXH3-64s of 16 KiB chunks. */
#define XXH_STATIC_LINKING_ONLY
#include "runtime/base/sl_digest.h"

#include "runtime/base/sl_copy.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

/* The library's plain functions are compiled for the oldest processor of the architecture; its
 * dispatching ones use the widest vectors: 12 against 6 GB/s on a Xeon with AVX-512 (1 GiB, one
 * core). */
#ifdef SL_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#define DIGEST_HASH_64 XXH3_64bits_dispatch
#else
#define DIGEST_HASH_64 XXH3_64bits
#endif

static_assert(sizeof(((struct sl_digest_stream *)0)->state) >= 2 * sizeof(XXH3_state_t),
              "the stream has room for both states");

static_assert(sizeof(((struct sl_digest_hashes *)0)->outer) >= sizeof(XXH3_state_t),
              "room for the outer state");

static struct sl_digest digest_from(XXH128_hash_t hash)
{
    return (struct sl_digest){.low = hash.low64, .high = hash.high64};
}

/* ---- collecting the hashes of chunks ---- */

/* The outer hash is used only with more hashes than one batch; most values have fewer. */
static XXH3_state_t *gathered_outer(struct sl_digest_hashes *hashes)
{
    /* cppcheck-suppress ctuuninitvar ; a buffer that is filled from here on */
    return (XXH3_state_t *)(void *)hashes->outer;
}

static void hashes_start(struct sl_digest_hashes *hashes)
{
    hashes->filled = 0;
    hashes->outer_begun = false;
}

static void hashes_add(struct sl_digest_hashes *hashes, uint64_t hash)
{
    if (hashes->filled == SL_DIGEST_BATCH) {
        if (!hashes->outer_begun) {
            (void)XXH3_128bits_reset(gathered_outer(hashes));
            hashes->outer_begun = true;
        }
        (void)XXH3_128bits_update(gathered_outer(hashes), hashes->batch, sizeof(hashes->batch));
        hashes->filled = 0;
    }
    hashes->batch[hashes->filled++] = hash;
}

static struct sl_digest hashes_finish(struct sl_digest_hashes *hashes)
{
    size_t length_bytes = hashes->filled * sizeof(uint64_t);
    if (!hashes->outer_begun) {
        return digest_from(XXH3_128bits(hashes->batch, length_bytes));
    }
    (void)XXH3_128bits_update(gathered_outer(hashes), hashes->batch, length_bytes);
    return digest_from(XXH3_128bits_digest(gathered_outer(hashes)));
}

struct sl_digest sl_digest_of(const void *value, uint64_t length_bytes)
{
    struct sl_digest_hashes hashes;
    const unsigned char *at = value;
    hashes_start(&hashes);
    while (length_bytes > 0) {
        uint64_t take = SL_MIN(length_bytes, (uint64_t)SL_DIGEST_CHUNK_BYTES);
        hashes_add(&hashes, DIGEST_HASH_64(at, (size_t)take));
        at += take;
        length_bytes -= take;
    }
    return hashes_finish(&hashes);
}

uint64_t sl_digest_chunk(const void *chunk, uint64_t length_bytes)
{
    return DIGEST_HASH_64(chunk, (size_t)length_bytes);
}

struct sl_digest sl_digest_of_chunks(const uint64_t *hashes, uint64_t count)
{
    return digest_from(XXH3_128bits(hashes, (size_t)count * sizeof(*hashes)));
}

/* ---- copying and digesting ---- */

void sl_digest_copy_start(struct sl_digest_copying *copying, void *to, uint64_t length_bytes)
{
    bool aligned = ((uintptr_t)to & (SL_COPY_ALIGN_BYTES - 1)) == 0;
    copying->to = to;
    copying->chunk_filled_bytes = 0;
    copying->routine =
        aligned && length_bytes >= SL_DIGEST_CHUNK_BYTES ? sl_copy_streaming() : NULL;
    hashes_start(&copying->hashes);
}

/* Hashes the chunk at `to`, which is complete or the last one. It hashes the stored bytes, which
 * differ from the source's if that changes meanwhile. */
static void copying_close_chunk(struct sl_digest_copying *copying, uint64_t length_bytes)
{
    hashes_add(&copying->hashes, DIGEST_HASH_64(copying->to, (size_t)length_bytes));
    copying->to += length_bytes;
    copying->chunk_filled_bytes = 0;
}

void sl_digest_copy_piece(struct sl_digest_copying *copying, const void *from,
                          uint64_t length_bytes)
{
    const unsigned char *at = from;
    while (length_bytes > 0) {
        uint64_t take = SL_MIN(length_bytes, SL_DIGEST_CHUNK_BYTES - copying->chunk_filled_bytes);
        if (take == SL_DIGEST_CHUNK_BYTES && copying->routine != NULL) {
            hashes_add(&copying->hashes, copying->routine->stream_hash(copying->to, at));
            copying->to += take;
        } else {
            memcpy(copying->to + copying->chunk_filled_bytes, at, (size_t)take);
            copying->chunk_filled_bytes += take;
            if (copying->chunk_filled_bytes == SL_DIGEST_CHUNK_BYTES) {
                copying_close_chunk(copying, SL_DIGEST_CHUNK_BYTES);
            }
        }
        at += take;
        length_bytes -= take;
    }
}

struct sl_digest sl_digest_copy_finish(struct sl_digest_copying *copying)
{
    if (copying->chunk_filled_bytes > 0) {
        copying_close_chunk(copying, copying->chunk_filled_bytes);
    }
    if (copying->routine != NULL) {
        copying->routine->finish();
    }
    return hashes_finish(&copying->hashes);
}

uint64_t sl_digest_copy_chunk(void *to, const void *from, uint64_t length_bytes)
{
    bool aligned = ((uintptr_t)to & (SL_COPY_ALIGN_BYTES - 1)) == 0;
    const struct sl_copy_routine *routine =
        aligned && length_bytes == SL_DIGEST_CHUNK_BYTES ? sl_copy_streaming() : NULL;
    if (routine == NULL) {
        memcpy(to, from, (size_t)length_bytes);
        return DIGEST_HASH_64(to, (size_t)length_bytes);
    }
    uint64_t hash = routine->stream_hash(to, from);
    routine->finish();
    return hash;
}

struct sl_digest sl_digest_copy(void *to, const void *from, uint64_t length_bytes)
{
    struct sl_digest_copying copying;
    sl_digest_copy_start(&copying, to, length_bytes);
    sl_digest_copy_piece(&copying, from, length_bytes);
    return sl_digest_copy_finish(&copying);
}

static XXH3_state_t *stream_outer(struct sl_digest_stream *stream)
{
    /* cppcheck-suppress ctuuninitvar ; a buffer that is filled from here on */
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
        if (take == SL_DIGEST_CHUNK_BYTES) { /* a whole chunk: the one-shot form is faster */
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
