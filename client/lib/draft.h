/* client/lib/draft.h - a value that is written in steps. */
#ifndef SL_CLIENT_LIB_DRAFT_H
#define SL_CLIENT_LIB_DRAFT_H

#include "client/lib/gpu.h"
#include "client/lib/pieces.h"

struct draft_range {
    uint64_t from, end;
};

struct sl_put_session {
    struct sl_client *client;
    struct sl_attachment *at; /* the life of the node that granted the extent */
    unsigned char *to;        /* the extent */
    uint32_t arena;
    uint64_t length_bytes;
    uint64_t ref, generation;
    bool ending; /* being committed */
    /* A GPU did not complete its copies in time. The draft is not committed, and is released when
     * they have. By GPU: the latest such count (sl_gpu_copies); 0: none. */
    _Atomic bool unfinished;
    _Atomic uint64_t unfinished_counts[SL_GPUS_MAX];
    pthread_mutex_t lock; /* guards ranges and states; hashes is set once, under it */
    struct draft_range *ranges;
    uint32_t range_count, range_room;
    _Atomic uint64_t *hashes; /* of the digest's chunks; NULL: none are stored */
    unsigned char *states;    /* validity of hashes[i] */
};

/* ---- draft_bytes.c ---- */
/* Call this before bytes are copied. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_draft_bytes_expect(struct sl_put_session *draft);
/* Copies one piece that lies within the draft; any thread. Returns whether it hashed its whole
 * chunks. */
bool sl_draft_bytes_copy(struct sl_put_session *draft, const struct sl_iov *piece);
/* Call this after the copy: records that [from, end) was written. hashed: the result of the copy.
 * Errors: SL_ERR_NO_MEMORY. */
sl_err sl_draft_bytes_note(struct sl_put_session *draft, uint64_t from, uint64_t end, bool hashed);
/* Records that these pieces, which lie within the draft, may have been written in part. */
void sl_draft_bytes_mark_unknown(struct sl_put_session *draft, const struct sl_iov *pieces,
                                 uint32_t count);
/* Clears bytes that were never written, and gives the digest. No thread writes any more. */
struct sl_digest sl_draft_bytes_finish(struct sl_put_session *draft);
void sl_draft_bytes_free(struct sl_put_session *draft);

#endif
