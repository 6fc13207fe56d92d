/* client/lib/pieces.h - values as pieces of the caller's memory: whether pieces make up a value,
 * gathering them into an extent with the digest in the same pass, scattering an extent into them.
 */
#ifndef SL_CLIENT_LIB_PIECES_H
#define SL_CLIENT_LIB_PIECES_H

#include "client/lib/gpu.h"

/* Room to put the pieces of one value into order; used again for the next one. */
struct sl_pieces_room {
    struct sl_piece *at; /* NULL: none yet */
    uint32_t count;
};
void sl_pieces_room_free(struct sl_pieces_room *room);

/* Whether it is memory that somebody can have; an empty piece always is. Errors: SL_ERR_INVALID. */
sl_err sl_piece_check(const struct sl_piece *piece, struct sl_error *why);

/* Gives the size of the value that the pieces make up. Empty pieces count for nothing. Errors:
 * SL_ERR_INVALID (a gap, an overlap, nothing at all, no address, memory that wraps around; more
 * than SL_VALUE_BYTES_MAX), SL_ERR_NO_MEMORY. */
sl_err sl_pieces_measure(const struct sl_piece *pieces, uint32_t count, struct sl_pieces_room *room,
                         uint64_t *length_bytes, struct sl_error *why);
/* Copies a measured value to `to` and gives the digest of what was stored. Pieces that are not in
 * order find room: measure made it, unless another value took it since (SL_ERR_NO_MEMORY). */
sl_err sl_pieces_gather(void *to, uint64_t length_bytes, const struct sl_piece *pieces,
                        uint32_t count, struct sl_pieces_room *room, struct sl_digest *digest);

/* Whether a piece lies in device memory: worth asking only when sl_gpu_present. */
bool sl_pieces_on_device(const struct sl_piece *pieces, uint32_t count);
/* The same as gather and scatter for pieces of which some lie there, without the digest: copies of
 * host memory are done, those of device memory are added to copies. room: they are added in the
 * order of the value, as a value of copies wants it; NULL: as they come. Errors: SL_ERR_NO_MEMORY.
 */
sl_err sl_pieces_gather_later(unsigned char *to, const struct sl_arena *arena,
                              const struct sl_piece *pieces, uint32_t count,
                              struct sl_pieces_room *room, struct sl_gpu_copies *copies);
sl_err sl_pieces_scatter_later(const struct sl_piece *pieces, uint32_t count, unsigned char *from,
                               const struct sl_arena *arena, uint64_t length_bytes,
                               struct sl_gpu_copies *copies);

/* Whether a value of length_bytes goes into the pieces: whole, when they hold all of it; else, when
 * none begins at its end or behind it. Errors: SL_ERR_LIMIT, SL_ERR_INVALID (no address, memory
 * that wraps around), SL_ERR_NO_MEMORY. */
sl_err sl_pieces_fit(const struct sl_piece *pieces, uint32_t count, bool whole,
                     uint64_t length_bytes, struct sl_error *why);
/* Copies from a value of length_bytes into pieces that fit. */
void sl_pieces_scatter(const struct sl_piece *pieces, uint32_t count, const void *from,
                       uint64_t length_bytes);

#endif
