/* client/lib/draft.h - a value that is being written little by little. */
#ifndef SL_CLIENT_LIB_DRAFT_H
#define SL_CLIENT_LIB_DRAFT_H

#include "client/lib/gpu.h"
#include "client/lib/pieces.h"

struct draft_range {
    uint64_t from, end;
};

struct sl_draft {
    struct sl_client *client;
    struct sl_attachment *at; /* of the life of the node that granted the room */
    unsigned char *to;        /* the extent */
    uint32_t arena;
    uint64_t length_bytes;
    uint64_t ref, generation;
    bool ending; /* in a commit */
    /* A GPU did not end its copies in time: it is not committed, and given back when they have. By
     * GPU: the last such time (sl_gpu_copies), 0: none. */
    _Atomic bool lent;
    _Atomic uint64_t lent_counts[SL_GPUS_MAX];
    pthread_mutex_t lock; /* ranges and states; hashes is set once, under it */
    struct draft_range *ranges;
    uint32_t range_count, range_room;
    _Atomic uint64_t *hashes; /* of the digest's chunks; NULL: none are kept */
    unsigned char *states;    /* what hashes[i] is worth */
};

/* ---- draft_bytes.c ---- */
/* Before bytes are copied. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_draft_bytes_expect(struct sl_draft *draft);
/* Copies one piece that lies within the draft; any thread. Whether it hashed its whole chunks. */
bool sl_draft_bytes_copy(struct sl_draft *draft, const struct sl_piece *piece);
/* After: [from, end) was written; hashed: what copy said. Errors: SL_ERR_NO_MEMORY.
 */
sl_err sl_draft_bytes_note(struct sl_draft *draft, uint64_t from, uint64_t end, bool hashed);
/* Pieces that lie within the draft could not be written: who knows how much of them was. */
void sl_draft_bytes_doubt(struct sl_draft *draft, const struct sl_piece *pieces, uint32_t count);
/* Clears what was never written and gives the digest. Nobody writes any more. */
struct sl_digest sl_draft_bytes_finish(struct sl_draft *draft);
void sl_draft_bytes_free(struct sl_draft *draft);

#endif
