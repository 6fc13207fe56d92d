/* actors/transporter/state/fenced.h - which requests a FENCE covers: those of its op that its
 * sender numbered before it, or with op id 0 all that this sender, or one of that name before it,
 * has asked for. What was fenced is remembered, so that a request that arrives late is not begun.
 * Pure. */
#ifndef SL_TRANSPORTER_STATE_FENCED_H
#define SL_TRANSPORTER_STATE_FENCED_H

#include "ipc/msg/sl_msg.h"

#define TR_FENCED_MAX \
    512u /* remembered; a request that is older than so many fences is long over */

struct tr_fenced_row {
    char from[32];
    uint64_t op_id, seq;
};
struct tr_fenced { /* zeroed: nothing */
    struct tr_fenced_row rows[TR_FENCED_MAX];
    uint32_t next;
};
/* fence: a FENCE without claims. request: of a request that was kept. */
bool tr_fence_covers(const struct sl_msg *fence, const struct sl_return *request);
void tr_fenced_note(struct tr_fenced *fenced, const struct sl_msg *fence);
/* Whether the request came behind a fence that covers it. */
bool tr_fenced_has(const struct tr_fenced *fenced, const struct sl_msg *request);

#endif
