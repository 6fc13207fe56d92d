/* client/gate/shares.h - what the stand-ins of each other user hold together, in memory that the gate shares with
 * all of them: each writes its own share, and reads those of its user. A stand-in that was killed leaves its
 * share to the gate, which empties it. No lock: two that take at once may both be refused. */
#ifndef SL_CLIENT_GATE_SHARES_H
#define SL_CLIENT_GATE_SHARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Stand-ins of all other users. Who writes has two, and who has engines three. */
#define SHARES_MAX 256u

enum share_kind {
    SHARE_WRITERS,
    SHARE_PINNED_BYTES,
    SHARE_DRAFT_BYTES,
    SHARE_RELAYS,
    SHARE_POOL_BYTES, /* memory of engines */
    SHARE_ENGINES,
    SHARE_OPS, /* in flight, of engines */
    SHARE_KINDS
};

struct share {
    _Atomic uint32_t uid;
    _Atomic uint64_t held[SHARE_KINDS]; /* all 0: of nobody */
};
struct shares { /* of one stand-in */
    struct share *all;
    struct share *own;
};

/* Empty ones, which children share with this process. NULL: no memory. */
struct share *shares_make(void);
/* Of a stand-in that is to come, or is gone. */
void share_empty(struct share *share, uint32_t uid);
/* Takes so much more, unless its user would have more than `most`. first: the first of its user's is given
 * whatever it takes. */
bool shares_take(const struct shares *self, enum share_kind kind, uint64_t amount, uint64_t most,
                 bool first);
void shares_let(const struct shares *self, enum share_kind kind, uint64_t amount);

#endif
