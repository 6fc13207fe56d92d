/* client/lib/draft_bytes.c - the written ranges of a draft, and its digest.
 *
 * Written ranges are appended as they arrive, and sorted when the list is full and at the end.
 * Chunks of the digest that one piece covers are hashed while they are copied. If ranges overlap it
 * is unknown whose bytes remain, so those chunks are hashed again at the end, as are all others. */
#include "client/lib/draft.h"
#include "runtime/base/sl_array.h"

#include "runtime/base/sl_copy.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_UNKNOWN, CHUNK_HASHED, CHUNK_DOUBTED };

static uint64_t chunk_count(const struct sl_put_session *draft)
{
    return sl_digest_chunks(draft->length_bytes);
}

void sl_draft_bytes_free(struct sl_put_session *draft)
{
    free(draft->ranges);
    free(draft->hashes);
    free(draft->states);
}

static int by_start(const void *a, const void *b)
{
    const struct draft_range *left = a, *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

static void doubt(struct sl_put_session *draft, uint64_t from, uint64_t end)
{
    for (uint64_t chunk = from / SL_DIGEST_CHUNK_BYTES;
         draft->states != NULL && chunk * SL_DIGEST_CHUNK_BYTES < end; chunk++) {
        draft->states[chunk] = CHUNK_DOUBTED;
    }
}

/* Sorts the ranges and joins those that touch. */
static void ranges_order(struct sl_put_session *draft)
{
    uint32_t kept = 0;
    if (draft->range_count > 1) {
        qsort(draft->ranges, draft->range_count, sizeof *draft->ranges, by_start);
    }
    for (uint32_t i = 0; i < draft->range_count; i++) {
        const struct draft_range next = draft->ranges[i];
        struct draft_range *last = kept == 0 ? NULL : &draft->ranges[kept - 1];
        if (last == NULL || next.from > last->end) {
            draft->ranges[kept++] = next;
            continue;
        }
        if (next.from < last->end) {
            doubt(draft, next.from, SL_MIN(next.end, last->end));
        }
        last->end = SL_MAX(last->end, next.end);
    }
    draft->range_count = kept;
}

/* Makes room for one more range. The lock is held. */
static sl_err ranges_room(struct sl_put_session *draft)
{
    if (draft->range_count < draft->range_room) {
        return SL_OK;
    }
    ranges_order(draft);
    if (draft->range_count <= draft->range_room / 2 && draft->range_room > 0) {
        return SL_OK;
    }
    bool fits = SL_ARRAY_ROOM(draft->ranges, draft->range_room, draft->range_room + 1);
    return fits ? SL_OK : SL_ERR_NO_MEMORY;
}

/* Makes room for hashes if there is a chunk to hash. Without memory there are none: all is hashed
 * at the end. The lock is held. */
static void hashes_room(struct sl_put_session *draft)
{
    if (draft->hashes != NULL || draft->length_bytes < SL_DIGEST_CHUNK_BYTES) {
        return;
    }
    uint64_t *hashes = calloc(chunk_count(draft), sizeof *hashes);
    unsigned char *states = calloc(chunk_count(draft), 1);
    if (hashes == NULL || states == NULL) {
        free(hashes);
        free(states);
        return;
    }
    draft->states = states;
    draft->hashes = (_Atomic uint64_t *)hashes;
}

sl_err sl_draft_bytes_expect(struct sl_put_session *draft)
{
    pthread_mutex_lock(&draft->lock);
    hashes_room(draft);
    sl_err err = ranges_room(draft);
    pthread_mutex_unlock(&draft->lock);
    return err;
}

/* The chunks that are complete in [from, end). */
static struct sl_digest_span chunks_within(uint64_t from, uint64_t end, uint64_t length_bytes)
{
    uint64_t first = (from + SL_DIGEST_CHUNK_BYTES - 1) / SL_DIGEST_CHUNK_BYTES;
    struct sl_digest_span span =
        sl_digest_span_of(first * SL_DIGEST_CHUNK_BYTES, end, length_bytes);
    if (first * SL_DIGEST_CHUNK_BYTES >= end) {
        span.count = 0;
    }
    return span;
}

sl_err sl_draft_bytes_note(struct sl_put_session *draft, uint64_t from, uint64_t end, bool hashed)
{
    struct sl_digest_span span = chunks_within(from, end, draft->length_bytes);
    pthread_mutex_lock(&draft->lock);
    sl_err err = ranges_room(draft);
    struct draft_range *next = draft->ranges + draft->range_count;
    if (err == SL_OK && draft->range_count > 0 && next[-1].end == from) {
        next[-1].end = end;
    } else if (err == SL_OK) {
        *next = (struct draft_range){.from = from, .end = end};
        draft->range_count++;
    }
    for (uint64_t i = 0; hashed && draft->states != NULL && i < span.count; i++) {
        unsigned char *state = &draft->states[span.first + i];
        *state = *state == CHUNK_UNKNOWN ? CHUNK_HASHED : CHUNK_DOUBTED;
    }
    pthread_mutex_unlock(&draft->lock);
    return err;
}

void sl_draft_bytes_mark_unknown(struct sl_put_session *draft, const struct sl_iov *pieces,
                                 uint32_t count)
{
    pthread_mutex_lock(&draft->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].length_bytes > 0) {
            doubt(draft, pieces[i].offset_bytes, pieces[i].offset_bytes + pieces[i].length_bytes);
        }
    }
    pthread_mutex_unlock(&draft->lock);
}

bool sl_draft_bytes_copy(struct sl_put_session *draft, const struct sl_iov *piece)
{
    uint64_t from = piece->offset_bytes;
    uint64_t end = from + piece->length_bytes;
    const unsigned char *bytes = piece->at;
    struct sl_digest_span span = chunks_within(from, end, draft->length_bytes);
    if (draft->hashes == NULL || span.count == 0) {
        sl_copy(draft->to + from, bytes, piece->length_bytes);
        return false;
    }
    uint64_t at = span.first * SL_DIGEST_CHUNK_BYTES;
    sl_copy(draft->to + from, bytes, at - from);
    for (uint64_t i = 0; i < span.count; i++) {
        uint64_t length = SL_MIN(end - at, (uint64_t)SL_DIGEST_CHUNK_BYTES);
        uint64_t hash = sl_digest_copy_chunk(draft->to + at, bytes + (at - from), length);
        atomic_store_explicit(&draft->hashes[span.first + i], hash, memory_order_relaxed);
        at += length;
    }
    sl_copy(draft->to + at, bytes + (at - from), end - at);
    return true;
}

struct sl_digest sl_draft_bytes_finish(struct sl_put_session *draft)
{
    uint64_t at = 0;
    ranges_order(draft);
    for (uint32_t i = 0; draft->ranges != NULL && i < draft->range_count; i++) {
        memset(draft->to + at, 0, draft->ranges[i].from - at);
        at = draft->ranges[i].end;
    }
    memset(draft->to + at, 0, draft->length_bytes - at);
    if (draft->hashes == NULL) {
        return sl_digest_of(draft->to, draft->length_bytes);
    }
    for (uint64_t i = 0; i < chunk_count(draft); i++) {
        uint64_t from = i * SL_DIGEST_CHUNK_BYTES;
        if (draft->states[i] != CHUNK_HASHED) {
            uint64_t length = SL_MIN(draft->length_bytes - from, (uint64_t)SL_DIGEST_CHUNK_BYTES);
            atomic_store_explicit(&draft->hashes[i], sl_digest_chunk(draft->to + from, length),
                                  memory_order_relaxed);
        }
    }
    return sl_digest_of_chunks((const uint64_t *)draft->hashes, chunk_count(draft));
}
