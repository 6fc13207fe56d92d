/* ipc/shm/sl_settled.h - what was carried out lately, for requests that are sent again.
 *
 * A request whose answer was lost comes again, perhaps to the next registrar. Carried out twice it
 * would undo what others did in between: put back what they replaced, remove what they put. So the
 * registrar notes in shared memory which claims were committed and how removals ended. Both tables
 * have a fixed size: what is new takes the place of what is old, after some 250,000 generations and
 * some 65,000 removed keys. */
#ifndef SL_SETTLED_H
#define SL_SETTLED_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

struct sl_settled; /* opaque; the registrar's alone, one thread */

/* Opens what the registrar before left, or makes it anew. Errors: SL_ERR_NO_SPACE,
 * SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_settled_open(const char *shm_dir, struct sl_settled **out, struct sl_error *why);
void sl_settled_close(struct sl_settled **settled);
/* As sl_segment_is_short. The next open makes it anew. */
bool sl_settled_is_short(const struct sl_settled *settled);

/* The claim of this generation was committed, under a key with this hash. */
void sl_settled_commit(struct sl_settled *settled, uint64_t generation, uint64_t key_hash);
/* key_hash may be NULL. */
bool sl_settled_committed(const struct sl_settled *settled, uint64_t generation,
                          uint64_t *key_hash);

/* How the removal of one key ended. Any other end leaves no note: it may be tried again. */
enum sl_settled_end {
    SL_SETTLED_REMOVED,
    SL_SETTLED_NOT_FOUND,
    SL_SETTLED_LEASED,
    SL_SETTLED_BUSY,
};
/* id: a hash of who asked and of which of his requests it was, and of which key in it. Two ids may
 * be taken for each other once in 2^62. */
void sl_settled_remove(struct sl_settled *settled, uint64_t id, enum sl_settled_end end);
/* False: not carried out, or long ago. */
bool sl_settled_removed(const struct sl_settled *settled, uint64_t id, enum sl_settled_end *end);

#endif
