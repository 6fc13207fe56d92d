/* actors/registrar/memory/accesses.c - what readers noted in their access rings counts as a use. */
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/units.h"

#define ACCESS_BATCH 512u

static bool peer_touch(struct registrar *self, const struct sl_access *access)
{
    struct sl_entry entry = {0};
    if (!sl_index_ref_live(self->index, access->ref)) {
        return false;
    }
    sl_index_read(self->index, access->ref, &entry);
    bool stored = (access->generation & SL_ACCESS_STORED) != 0;
    uint64_t generation = access->generation & ~SL_ACCESS_STORED;
    if (entry.kind != SL_RECORD_COMMITTED || entry.extent.generation != generation) {
        return false;
    }
    if (stored) {
        reg_unit_passed(self, reg_unit_of(&entry));
    } else {
        reg_unit_touch(self, reg_unit_of(&entry));
    }
    return true;
}

uint32_t reg_peers_drain(struct registrar *self)
{
    struct sl_access accesses[ACCESS_BATCH];
    uint32_t touched = 0;
    for (uint32_t i = 0; i < self->peers->high; i++) {
        if (!self->peers->all[i].used || self->peers->all[i].pins == NULL) {
            continue;
        }
        uint32_t count = sl_pins_view_drain(self->peers->all[i].pins, accesses, ACCESS_BATCH);
        for (uint32_t rounds = 0; count > 0 && rounds < 64; rounds++) {
            for (uint32_t k = 0; k < count; k++) {
                touched += peer_touch(self, &accesses[k]) ? 1 : 0;
            }
            count = count == ACCESS_BATCH
                        ? sl_pins_view_drain(self->peers->all[i].pins, accesses, ACCESS_BATCH)
                        : 0;
        }
    }
    return touched;
}

/* ---- the part ---- */

static void accesses_tick(struct registrar *self)
{
    if (reg_peers_drain(self) > 0) {
        reg_busy(self);
    }
}

/* A program that reads one value is gone before the next tick. */
static void accesses_left(struct registrar *self, uint32_t peer)
{
    (void)peer; /* its ring, and those of others */
    (void)reg_peers_drain(self);
}

const struct reg_part reg_accesses_part = {
    .name = "accesses",
    .tick = {REG_TICK_ACCESSES, accesses_tick},
    .left = {REG_LEFT_ACCESSES, accesses_left},
};
