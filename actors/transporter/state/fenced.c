/* actors/transporter/state/fenced.c - see fenced.h: remembers fences, and what they cover. */
#include "actors/transporter/state/fenced.h"

#include <stdio.h>
#include <string.h>

/* Sequence numbers start anywhere, grow over restarts, and may wrap around. */
static bool seq_before(uint64_t seq, uint64_t other)
{
    return (int64_t)(seq - other) < 0;
}

static bool is_from(const char *name, const struct sl_text *sender)
{
    return strlen(name) == sender->length && sender->length > 0 &&
           memcmp(name, sender->at, sender->length) == 0;
}

bool tr_fence_covers(const struct sl_msg *fence, const struct sl_reply_route *request)
{
    bool before = is_from(request->to, &fence->sender) && seq_before(request->seq, fence->seq);
    return before && (fence->op_id == 0 || fence->op_id == request->op_id);
}

void tr_fenced_note(struct tr_fenced *fenced, const struct sl_msg *fence)
{
    struct tr_fenced_row row = {.op_id = fence->op_id, .seq = fence->seq};
    (void)snprintf(row.from, sizeof(row.from), "%.*s", (int)SL_MIN(fence->sender.length, 31u),
                   fence->sender.length > 0 ? fence->sender.at : "");
    for (uint32_t i = 0; i < TR_FENCED_MAX; i++) { /* keeps only the latest of each op */
        struct tr_fenced_row *known = &fenced->rows[i];
        if (known->seq != 0 && known->op_id == row.op_id && strcmp(known->from, row.from) == 0) {
            known->seq = seq_before(known->seq, row.seq) ? row.seq : known->seq;
            return;
        }
    }
    fenced->rows[fenced->next++ % TR_FENCED_MAX] = row;
}

bool tr_fenced_has(const struct tr_fenced *fenced, const struct sl_msg *request)
{
    for (uint32_t i = 0; i < TR_FENCED_MAX; i++) {
        const struct tr_fenced_row *row = &fenced->rows[i];
        if (row->seq != 0 && seq_before(request->seq, row->seq) &&
            (row->op_id == 0 || row->op_id == request->op_id) &&
            is_from(row->from, &request->sender)) {
            return true;
        }
    }
    return false;
}
