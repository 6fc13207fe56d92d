/* actors/transporter/regions/lent.c - see lent.h. */
#include "actors/transporter/regions/lent.h"

#include "actors/transporter/regions/pools.h"

#include <inttypes.h>
#include <string.h>

#define SEEN_MAX 64 /* requests of a buffer that are told apart */

/* The registrar has checked that it is one region of shared memory; its word is checked once more. */
void tr_lent_take(struct tr_lent *lent, const struct sl_body_engine_get_reply *body)
{
    lent->is = body->pools.count == 1 && body->pools.at[0].kind == SL_POOL_LENT &&
               body->regions.count == 1 && body->name.length < sizeof(lent->owner);
    if (lent->is) {
        memcpy(lent->owner, body->name.at, body->name.length);
    }
}

/* Requests of several threads may come in another order than they are numbered, but not by much. */
static bool seq_is_new(const struct tr_lent *lent, uint64_t seq)
{
    int64_t behind = (int64_t)(lent->seq - seq);
    return lent->seq == 0 || behind < 0 || (behind < SEEN_MAX && (lent->seen >> behind & 1) == 0);
}

sl_err tr_lent_check(struct transporter *self, uint64_t engine_id, const struct sl_msg *request,
                     struct sl_error *why)
{
    struct tr_pool_view view;
    sl_err err = tr_pools_view(self, engine_id, &view, why);
    if (err != SL_OK) {
        return err;
    }
    if (!view.lent->is || strlen(view.lent->owner) != request->sender.length ||
        memcmp(view.lent->owner, request->sender.at, request->sender.length) != 0) {
        return sl_fail(why, SL_ERR_PERMISSION, "engine %" PRIu64 " is no buffer of the sender",
                       engine_id);
    }
    return seq_is_new(view.lent, request->seq)
               ? SL_OK
               : sl_fail(why, SL_ERR_BUSY, "it was answered before, or is very late");
}

void tr_lent_note(struct transporter *self, uint64_t engine_id, uint64_t seq)
{
    struct tr_pool_view view;
    sl_err err = tr_pools_view(self, engine_id, &view, NULL);
    SL_ASSERT(err == SL_OK);
    int64_t ahead = view.lent->seq == 0 ? SEEN_MAX : (int64_t)(seq - view.lent->seq);
    if (ahead <= 0) {
        view.lent->seen |= UINT64_C(1) << -ahead;
        return;
    }
    view.lent->seen = (ahead < SEEN_MAX ? view.lent->seen << ahead : 0) | 1;
    view.lent->seq = seq;
}
