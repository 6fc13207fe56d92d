/* client/gate/drafts.h - drafts of a client of another user: each has a number that no other one had, and a
 * time after which it is dropped, whatever the client does. Any thread. */
#ifndef SL_CLIENT_GATE_DRAFTS_H
#define SL_CLIENT_GATE_DRAFTS_H

#include "client/gate/shares.h"
#include "client/lib/sluice.h"

struct drafts; /* opaque */

struct drafts_options {
    struct sl_client *client;
    struct shares shares;
    uint64_t bytes_max; /* of open ones of one user; its only one may have more */
};
struct draft_wish {
    struct sl_object_key key;
    uint64_t length_bytes;
    uint64_t until_ns; /* it is dropped then */
    uint64_t deadline_ns;
    bool at_once;
};

/* NULL: no memory. */
struct drafts *drafts_create(const struct drafts_options *options);
/* Drops all. Nobody else uses them any more. */
void drafts_destroy(struct drafts **self);
/* *code: of the key, as sl_draft_begin. Errors: SL_ERR_LIMIT (too many, or too many bytes), those of sl_draft_begin. */
sl_err drafts_begin(struct drafts *self, const struct draft_wish *wish, uint32_t *number,
                    sl_err *code, struct sl_error *why);
/* Several at a time may fill one. Errors: SL_ERR_INVALID (there is none), SL_ERR_LIMIT (too many ranges), those of
 * sl_draft_write. */
sl_err drafts_fill(struct drafts *self, uint32_t number, const struct sl_piece *pieces,
                   uint32_t count, struct sl_error *why);
/* Waits for those that fill it. It is over, whatever comes of it. Errors: SL_ERR_INVALID, those of sl_draft_commit. */
sl_err drafts_commit(struct drafts *self, uint32_t number, uint64_t deadline_ns, sl_err *code,
                     struct sl_error *why);
/* At once; where somebody fills it, as soon as that is done. Of one that is being committed, or is none: nothing. */
void drafts_drop(struct drafts *self, uint32_t number);
/* Drops those whose time is over. */
void drafts_expire(struct drafts *self, uint64_t now_ns);

#endif
