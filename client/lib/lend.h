/* client/lib/lend.h - registered buffers that the node knows: what was lent, and gets that go straight
 * into it. */
#ifndef SL_CLIENT_LIB_LEND_H
#define SL_CLIENT_LIB_LEND_H

#include "client/lib/internal.h"

#define SL_LENT_BYTES_MIN 8u /* a smaller value is copied */

/* ---- backing.c ---- */
/* Gives a descriptor of the shared memory that [at, +length_bytes) is a mapping of, and where in it
 * it begins. Errors: SL_ERR_UNSUPPORTED (it is plain or private memory, of several descriptors, of a
 * file of a disk, cannot be written to, or no descriptor of it is left), SL_ERR_OS. */
sl_err sl_memory_backing(const void *at, uint64_t length_bytes, int *fd, uint64_t *offset_bytes,
                         struct sl_error *why);

/* ---- lend.c ---- */
sl_err sl_lends_open(struct sl_client *client, struct sl_error *why);
/* The client is about to be closed: takes back all, as far as that is quick. */
void sl_lends_end(struct sl_client *client);
void sl_lends_close(struct sl_lends **lends); /* also NULL */

/* Memory that is lent. */
struct sl_stretch {
    struct sl_lend *lend; /* used until sl_stretch_leave */
    uint64_t engine_id, offset_bytes;
};
/* False: not all of it is in one buffer that the node knows. */
bool sl_stretch_enter(struct sl_client *client, const void *at, uint64_t length_bytes,
                      struct sl_stretch *out);
void sl_stretch_leave(struct sl_client *client, const struct sl_stretch *stretch);
/* The addresses lead to other memory than was lent: it is not written to any more. */
void sl_stretch_moved(struct sl_client *client, const struct sl_stretch *stretch);
/* Whether anything is lent. */
bool sl_lends_any(const struct sl_client *client);
void sl_lends_count(struct sl_client *client, uint64_t values, uint64_t bytes, uint64_t others);

/* ---- straight.c ---- */
struct sl_straight { /* one item of a get */
    struct sl_object_key key;
    const struct sl_piece *pieces; /* which hold the value whole */
    uint32_t piece_count;
    uint64_t length_bytes; /* of the value, if SL_OK */
    /* SL_OK: its bytes are there. SL_ERR_NOT_FOUND: nobody has it. SL_ERR_EXISTS: it is here by now.
     * Else it is to be read in another way. */
    sl_err code;
};
/* Asks other nodes for values that go into lent memory, and returns when nothing lands there any more.
 * That is by the deadline, and later only while a transporter that stands still is not dead yet. */
void sl_straight_get(struct sl_client *client, struct sl_straight *items, uint32_t count,
                     uint64_t deadline_ns);

#endif
