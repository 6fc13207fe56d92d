/* client/lib/pieces.h - values as pieces of the caller's memory: checks that pieces cover a value,
 * gathers them into an extent while hashing, and scatters an extent into them. */
#ifndef SL_CLIENT_LIB_PIECES_H
#define SL_CLIENT_LIB_PIECES_H

#include "client/lib/gpu.h"

/* Room to sort the pieces of one value; reused for the next one. */
struct sl_pieces_room {
    struct sl_iov *at; /* NULL: none yet */
    uint32_t count;
};
void sl_pieces_room_free(struct sl_pieces_room *room);

/* Checks that the address range is possible; an empty piece always is. Errors: SL_ERR_INVALID. */
sl_err sl_piece_check(const struct sl_iov *piece, struct sl_error *why);

/* Gives the size of the value that the pieces form. Empty pieces are ignored. Errors:
 * SL_ERR_INVALID (a gap, an overlap, no bytes, no address, memory that wraps around; more than
 * SL_VALUE_BYTES_MAX), SL_ERR_NO_MEMORY. */
sl_err sl_pieces_measure(const struct sl_iov *pieces, uint32_t count, struct sl_pieces_room *room,
                         uint64_t *length_bytes, struct sl_error *why);
/* Copies a measured value to `to` and gives the digest of the stored bytes. Unsorted pieces need
 * room: sl_pieces_measure made it, unless another value used it since (SL_ERR_NO_MEMORY). */
sl_err sl_pieces_gather(void *to, uint64_t length_bytes, const struct sl_iov *pieces,
                        uint32_t count, struct sl_pieces_room *room, struct sl_digest *digest);

/* Whether a piece is in device memory: worth asking only if sl_gpu_present. */
bool sl_pieces_on_device(const struct sl_iov *pieces, uint32_t count);
/* As gather and scatter, for pieces of which some are in device memory, and without the digest.
 * Host memory is copied at once; copies of device memory are added to `copies`. room: they are
 * added in the order of the value, as required by a value of copies; NULL: in the given order.
 * Errors: SL_ERR_NO_MEMORY. */
sl_err sl_pieces_gather_later(unsigned char *to, const struct sl_arena *arena,
                              const struct sl_iov *pieces, uint32_t count,
                              struct sl_pieces_room *room, struct sl_gpu_copies *copies);
sl_err sl_pieces_scatter_later(const struct sl_iov *pieces, uint32_t count, unsigned char *from,
                               const struct sl_arena *arena, uint64_t length_bytes,
                               struct sl_gpu_copies *copies);

/* Checks that a value of length_bytes fits the pieces. whole: they hold all of it; otherwise none
 * begins at or after its end. Errors: SL_ERR_LIMIT, SL_ERR_INVALID (no address, memory that wraps
 * around), SL_ERR_NO_MEMORY. */
sl_err sl_pieces_fit(const struct sl_iov *pieces, uint32_t count, bool whole, uint64_t length_bytes,
                     struct sl_error *why);
/* Copies from a value of length_bytes into pieces that fit. */
void sl_pieces_scatter(const struct sl_iov *pieces, uint32_t count, const void *from,
                       uint64_t length_bytes);

#endif
