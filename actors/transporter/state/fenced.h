/* actors/transporter/state/fenced.h - which requests a FENCE covers: earlier ones (by number) of
 * its sender or a predecessor of that name, of the same op or, with op id 0, of all ops. Fences are
 * remembered, so that a request that arrives after its fence is not started. Pure functions. */
#ifndef SL_TRANSPORTER_STATE_FENCED_H
#define SL_TRANSPORTER_STATE_FENCED_H

#include "ipc/msg/sl_msg.h"

#define TR_FENCED_MAX \
    512u /* remembered fences; requests older than that many fences have ended long ago */

struct tr_fenced_row {
    char from[32];
    uint64_t op_id, seq;
};
struct tr_fenced { /* zeroed: empty */
    struct tr_fenced_row rows[TR_FENCED_MAX];
    uint32_t next;
};
/* Whether the fence (a FENCE without claims) covers the kept request. */
bool tr_fence_covers(const struct sl_msg *fence, const struct sl_reply_route *request);
void tr_fenced_note(struct tr_fenced *fenced, const struct sl_msg *fence);
/* Whether a remembered fence covers this request, which arrived after it. */
bool tr_fenced_has(const struct tr_fenced *fenced, const struct sl_msg *request);

#endif
