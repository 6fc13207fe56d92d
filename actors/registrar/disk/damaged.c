/* actors/registrar/disk/damaged.c - values whose bytes in memory are not what was stored. A tierer
 * detects this when it writes them, a swapper after it has loaded them (DAMAGED). */
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <inttypes.h>

/* Removes the value from memory if it is on disk. While it is being written it is not, and the
 * tierer will refuse it. */
static bool memory_leave(struct registrar *self, const struct sl_entry *entry)
{
    static const struct sl_extent nowhere = {0};
    sl_ref unit = reg_unit_of(entry), fresh;
    bool writing = (sl_index_links(self->index, entry->ref)->flags & REG_FLAG_WRITING) != 0;
    if (!reg_is_on_disk(self, entry) || writing ||
        reg_record_switch(self, entry->ref, &nowhere, NULL, &fresh) != SL_OK) {
        return false;
    }
    reg_unit_place(self, unit == entry->ref ? fresh : unit);
    return true;
}

void reg_memory_damaged(struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    const struct reg_drop how = {.reason = REG_GHOST_CORRUPT, .forget = true};
    uint64_t from = self->retired->count;
    sl_index_read(self->index, ref, &entry);
    sl_metric_add(self->env->metrics, self->tier->metric.corrupt_count, 1);
    uint64_t hash = reg_hash(entry.key, entry.key_length);
    bool left = memory_leave(self, &entry);
    if (!left) {
        (void)reg_unit_drop(self, reg_unit_of(&entry), &how);
    }
    reg_log(self, SL_LOG_ERROR, 0,
            "object %016" PRIx64 ": its bytes in memory do not match their digest: %s", hash,
            left ? "read from disk from now on" : "dropped");
    reg_retired_scan(self, from);
}

/* Whether the record still is the one that the swapper has read. */
static bool claim_is_valid(struct registrar *self, const struct sl_item_claim *claim)
{
    struct sl_entry entry;
    if (!sl_index_ref_live(self->index, (sl_ref)claim->ref)) {
        return false;
    }
    sl_index_read(self->index, (sl_ref)claim->ref, &entry);
    return entry.kind == SL_RECORD_COMMITTED && entry.extent.generation == claim->generation &&
           entry.digest.low == claim->digest_low && entry.digest.high == claim->digest_high;
}

static void damaged(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_damaged *body = &msg->body.damaged;
    for (uint64_t i = 0; i < body->items.count; i++) {
        const struct sl_item_claim *claim = &body->items.at[i];
        /* Not if its block was dropped for an earlier item: */
        bool stands = claim_is_valid(self, claim);
        if (stands) {
            reg_memory_damaged(self, (sl_ref)claim->ref);
        }
        self->codes[i] = stands ? SL_OK : SL_ERR_NOT_FOUND;
    }
    reg_answer_codes(self, msg, body->items.count);
}

static const struct reg_handler handlers[] = {
    {SL_MSG_DAMAGED, damaged},
};

const struct reg_part reg_damaged_part = {
    .name = "damaged",
    REG_HANDLERS(handlers),
};
