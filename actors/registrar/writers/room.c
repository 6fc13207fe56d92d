/* actors/registrar/writers/room.c - makes room for a request, or decides that it waits. */
#include "actors/registrar/writers/room.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/writers/prealloc.h"

#define ROOM_AHEAD_ITEMS 64u /* the default of evict_batch */

bool reg_memory_awaits_populate(const struct registrar *self, uint64_t need_bytes)
{
    return reg_populate_pending(self) && reg_free_bytes(self) < need_bytes;
}

static bool room_for(struct registrar *self, uint64_t bytes)
{
    return reg_charge_room(self, bytes) && reg_make_room(self, bytes);
}

bool reg_request_has_room(struct registrar *self, const struct reg_request *req,
                          const struct reg_need *need, bool may_allocate)
{
    uint64_t need_bytes = need->bytes;
    bool writes =
        req->while_expected && need->fits && reg_writes_outstanding(self); /* else item by item */
    bool may_wait = req->wait || writes || (req->while_expected && reg_populate_pending(self));
    if (!may_allocate || !may_wait || room_for(self, need_bytes)) {
        return may_allocate;
    }
    if (reg_charge_room(self, need_bytes) && reg_memory_awaits_populate(self, need_bytes)) {
        return false;
    }
    /* Requests take precedence over grants in advance. */
    if (!req->wait && !writes) {
        return true;
    }
    return reg_prealloc_revoke_all(self) && room_for(self, need_bytes);
}

void reg_request_room_ahead(struct registrar *self, const struct reg_request *req, uint32_t first)
{
    uint64_t bytes = sl_extent_space(req->items[first].length_bytes);
    uint32_t count = 1;
    if (reg_free_bytes(self) >= bytes) {
        return;
    }
    for (uint32_t i = first + 1; i < req->item_count && count < ROOM_AHEAD_ITEMS; i++) {
        uint64_t group = req->items[i].group;
        bool fails = group != 0 && self->scratch->groups[group - 1].code != SL_OK;
        if (self->scratch->items[i].state == REG_ITEM_NEED && !fails) {
            bytes += sl_extent_space(req->items[i].length_bytes);
            count++;
        }
    }
    (void)reg_make_room(self, bytes); /* without room, items fail one by one */
}
