/* client/lib/pieces.c - see pieces.h.
 *
 * Pieces are mostly in the order of the value and used as they are. Others are copied and sorted:
 * once to check that they form a value, once more when they are copied. */
#include "client/lib/pieces.h"

#include "runtime/base/sl_copy.h"
#include "runtime/base/sl_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ORDERED_INLINE 64u

void sl_pieces_room_free(struct sl_pieces_room *room)
{
    free(room->at);
    *room = (struct sl_pieces_room){0};
}

static int by_offset(const void *a, const void *b)
{
    const struct sl_iov *left = a, *right = b;
    return left->offset_bytes < right->offset_bytes ? -1 : left->offset_bytes > right->offset_bytes;
}

/* Makes a sorted copy without empty pieces; *count becomes their number. */
static sl_err ordered(const struct sl_iov *pieces, uint32_t *count, struct sl_pieces_room *room)
{
    uint32_t kept = 0;
    if (room->count < *count) {
        struct sl_iov *larger = malloc(*count * sizeof *larger);
        if (larger == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        free(room->at);
        *room = (struct sl_pieces_room){.at = larger, .count = *count};
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (pieces[i].length_bytes > 0) {
            room->at[kept++] = pieces[i];
        }
    }
    qsort(room->at, kept, sizeof *room->at, by_offset);
    *count = kept;
    return SL_OK;
}

sl_err sl_piece_check(const struct sl_iov *piece, struct sl_error *why)
{
    if (piece->length_bytes == 0) {
        return SL_OK;
    }
    if (piece->at == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "a piece of %" PRIu64 " bytes has no address",
                       piece->length_bytes);
    }
    if (piece->length_bytes > UINTPTR_MAX - (uintptr_t)piece->at) {
        return sl_fail(why, SL_ERR_INVALID, "a piece of %" PRIu64 " bytes at %p wraps around",
                       piece->length_bytes, piece->at);
    }
    return SL_OK;
}

/* The number of pieces that follow each other from the value's start, and where they end. */
static uint32_t run_of(const struct sl_iov *pieces, uint32_t count, uint64_t *end_bytes)
{
    uint64_t end = 0;
    uint32_t i = 0;
    for (; i < count; i++) {
        if (pieces[i].length_bytes == 0) {
            continue;
        }
        if (pieces[i].offset_bytes != end || pieces[i].length_bytes > SL_VALUE_BYTES_MAX - end) {
            break;
        }
        end += pieces[i].length_bytes;
    }
    *end_bytes = end;
    return i;
}

/* Describes what is wrong with the piece at which the run ended. */
static sl_err run_broken(const struct sl_iov *piece, uint64_t end_bytes, struct sl_error *why)
{
    if (piece->offset_bytes != end_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pieces: %s at byte %" PRIu64 " of the value: the next one is at %" PRIu64,
                       piece->offset_bytes > end_bytes ? "a gap" : "an overlap", end_bytes,
                       piece->offset_bytes);
    }
    uint64_t length_bytes =
        end_bytes > UINT64_MAX - piece->length_bytes ? UINT64_MAX : end_bytes + piece->length_bytes;
    return sl_value_check(length_bytes, SL_VALUE_BYTES_MAX, why);
}

sl_err sl_pieces_measure(const struct sl_iov *pieces, uint32_t count, struct sl_pieces_room *room,
                         uint64_t *length_bytes, struct sl_error *why)
{
    uint64_t end = 0;
    if (pieces == NULL && count > 0) {
        return sl_fail(why, SL_ERR_INVALID, "pieces: %u at address NULL", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        sl_err err = sl_piece_check(&pieces[i], why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (run_of(pieces, count, &end) != count) {
        if (ordered(pieces, &count, room) != SL_OK) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "put: %u pieces", count);
        }
        uint32_t broken = run_of(room->at, count, &end);
        if (broken != count) {
            return run_broken(&room->at[broken], end, why);
        }
    }
    *length_bytes = end;
    return sl_value_check(end, SL_VALUE_BYTES_MAX, why);
}

sl_err sl_pieces_gather(void *to, uint64_t length_bytes, const struct sl_iov *pieces,
                        uint32_t count, struct sl_pieces_room *room, struct sl_digest *digest)
{
    uint64_t end = 0;
    if (count == 1) {
        *digest = sl_digest_copy(to, pieces->at, length_bytes);
        return SL_OK;
    }
    if (run_of(pieces, count, &end) != count) {
        sl_err err = ordered(pieces, &count, room);
        if (err != SL_OK) {
            return err;
        }
        pieces = room->at;
    }
    struct sl_digest_copying copying;
    sl_digest_copy_start(&copying, to, length_bytes);
    for (uint32_t i = 0; i < count; i++) {
        sl_digest_copy_piece(&copying, pieces[i].at, pieces[i].length_bytes);
    }
    *digest = sl_digest_copy_finish(&copying);
    return SL_OK;
}

/* ---- reading ---- */

/* The position in the value up to which the pieces, in the given order, cover all bytes. */
static uint64_t covered_by(const struct sl_iov *pieces, uint32_t count)
{
    uint64_t covered = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_iov *piece = &pieces[i];
        if (piece->offset_bytes <= covered && piece->length_bytes > covered - piece->offset_bytes) {
            covered = piece->length_bytes > UINT64_MAX - piece->offset_bytes
                          ? UINT64_MAX
                          : piece->offset_bytes + piece->length_bytes;
        }
    }
    return covered;
}

static sl_err covers(const struct sl_iov *pieces, uint32_t count, uint64_t length_bytes,
                     struct sl_error *why)
{
    uint64_t covered = covered_by(pieces, count);
    if (covered < length_bytes && count > 1) {
        struct sl_iov few[ORDERED_INLINE];
        struct sl_pieces_room many = {0};
        struct sl_pieces_room room = {.at = few, .count = ORDERED_INLINE};
        uint32_t kept = count;
        if (ordered(pieces, &kept, count <= ORDERED_INLINE ? &room : &many) != SL_OK) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "get: %u pieces", count);
        }
        covered = covered_by(count <= ORDERED_INLINE ? few : many.at, kept);
        sl_pieces_room_free(&many);
    }
    return covered >= length_bytes
               ? SL_OK
               : sl_fail(why, SL_ERR_LIMIT, "the value has %" PRIu64 " bytes, the buffer %" PRIu64,
                         length_bytes, covered);
}

/* The number of the value's bytes that the piece takes. */
static uint64_t share_of(const struct sl_iov *piece, uint64_t length_bytes)
{
    return piece->offset_bytes >= length_bytes
               ? 0
               : SL_MIN(piece->length_bytes, length_bytes - piece->offset_bytes);
}

sl_err sl_pieces_fit(const struct sl_iov *pieces, uint32_t count, bool whole, uint64_t length_bytes,
                     struct sl_error *why)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_iov *piece = &pieces[i];
        if (piece->length_bytes == 0) {
            continue;
        }
        if (!whole && piece->offset_bytes >= length_bytes) {
            return sl_fail(why, SL_ERR_LIMIT,
                           "the value has %" PRIu64 " bytes, a piece begins at %" PRIu64,
                           length_bytes, piece->offset_bytes);
        }
        const struct sl_iov used = {.at = piece->at, .length_bytes = share_of(piece, length_bytes)};
        sl_err err = sl_piece_check(&used, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return whole ? covers(pieces, count, length_bytes, why) : SL_OK;
}

void sl_pieces_scatter(const struct sl_iov *pieces, uint32_t count, const void *from,
                       uint64_t length_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t share = share_of(&pieces[i], length_bytes);
        if (share > 0) {
            sl_copy(pieces[i].at, (const unsigned char *)from + pieces[i].offset_bytes, share);
        }
    }
}

/* ---- device memory ---- */

bool sl_pieces_on_device(const struct sl_iov *pieces, uint32_t count)
{
    int gpu = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].length_bytes > 0 &&
            sl_memory_place(pieces[i].at, pieces[i].length_bytes, &gpu) == SL_PLACE_DEVICE) {
            return true;
        }
    }
    return false;
}

sl_err sl_pieces_gather_later(unsigned char *to, const struct sl_arena *arena,
                              const struct sl_iov *pieces, uint32_t count,
                              struct sl_pieces_room *room, struct sl_gpu_copies *copies)
{
    uint64_t end = 0;
    sl_err err = SL_OK;
    if (room != NULL && run_of(pieces, count, &end) != count) {
        err = ordered(pieces, &count, room);
        pieces = room->at;
    }
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        const struct sl_iov *piece = &pieces[i];
        struct sl_gpu_copy copy = {.host = to + piece->offset_bytes,
                                   .device = (uintptr_t)piece->at,
                                   .length_bytes = piece->length_bytes,
                                   .arena = arena};
        if (piece->length_bytes == 0) {
            continue;
        }
        if (sl_memory_place(piece->at, piece->length_bytes, &copy.gpu) == SL_PLACE_DEVICE) {
            err = sl_gpu_copies_add(copies, &copy);
        } else {
            sl_copy(copy.host, piece->at, piece->length_bytes);
        }
    }
    return err;
}

sl_err sl_pieces_scatter_later(const struct sl_iov *pieces, uint32_t count, unsigned char *from,
                               const struct sl_arena *arena, uint64_t length_bytes,
                               struct sl_gpu_copies *copies)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        struct sl_gpu_copy copy = {.device = (uintptr_t)pieces[i].at,
                                   .length_bytes = share_of(&pieces[i], length_bytes),
                                   .arena = arena};
        if (copy.length_bytes == 0) {
            continue;
        }
        copy.host = from + pieces[i].offset_bytes;
        if (sl_memory_place(pieces[i].at, copy.length_bytes, &copy.gpu) == SL_PLACE_DEVICE) {
            err = sl_gpu_copies_add(copies, &copy);
        } else {
            sl_copy(pieces[i].at, copy.host, copy.length_bytes);
        }
    }
    return err;
}
