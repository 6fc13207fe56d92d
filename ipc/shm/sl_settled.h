/* ipc/shm/sl_settled.h - remembers recently executed requests, to recognise resends.
 *
 * A request whose answer was lost is sent again, perhaps to the next registrar. Executed twice it
 * would undo what others did in between: restore what they replaced, remove what they put. So the
 * registrar records in shared memory which claims were committed and how removals ended. Both
 * tables have a fixed size: new entries replace old ones, after some 250,000 generations and some
 * 65,000 removed keys. */
#ifndef SL_SETTLED_H
#define SL_SETTLED_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

struct sl_settled; /* opaque; used only by the registrar, one thread */

/* Opens the file of the previous registrar, or creates it. Errors: SL_ERR_VERSION,
 * SL_ERR_NO_SPACE, SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_settled_open(const char *shm_dir, struct sl_settled **out, struct sl_error *why);
void sl_settled_close(struct sl_settled **settled);
/* As sl_shm_file_is_short. The next sl_settled_open replaces a short file. */
bool sl_settled_is_short(const struct sl_settled *settled);

/* Records that the claim of this generation was committed, under a key with this hash. */
void sl_settled_commit(struct sl_settled *settled, uint64_t generation, uint64_t key_hash);
/* key_hash may be NULL. */
bool sl_settled_committed(const struct sl_settled *settled, uint64_t generation,
                          uint64_t *key_hash);

/* The result of removing one key. Other results are not recorded: the removal may be tried
 * again. */
enum sl_settled_end {
    SL_SETTLED_REMOVED,
    SL_SETTLED_NOT_FOUND,
    SL_SETTLED_LEASED,
    SL_SETTLED_BUSY,
};
/* id: a hash of the client, its request, and the key within it. Two ids may collide once in
 * 2^62. */
void sl_settled_remove(struct sl_settled *settled, uint64_t id, enum sl_settled_end end);
/* False: not executed, or long ago. */
bool sl_settled_removed(const struct sl_settled *settled, uint64_t id, enum sl_settled_end *end);

#endif
