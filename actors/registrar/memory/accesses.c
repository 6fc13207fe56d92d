/* actors/registrar/memory/accesses.c - reads access rings and reports their entries as uses. */
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/units.h"

#define ACCESS_BATCH 512u
#define FETCH_AHEAD  8u /* accesses between the prefetch of a record and its use */

static bool peer_touch(struct registrar *self, const struct sl_access *access)
{
    struct sl_entry entry = {0};
    if (!sl_index_ref_live(self->index, access->ref)) {
        return false;
    }
    sl_index_read(self->index, access->ref, &entry);
    bool stored = (access->generation & SL_ACCESS_STORED) != 0;
    bool alone = stored && (access->said & SL_SAID_ALONE) != 0;
    uint64_t generation = access->generation & ~SL_ACCESS_STORED;
    if (entry.kind != SL_RECORD_COMMITTED || entry.extent.generation != generation) {
        return false;
    }
    if (stored && !alone) {
        reg_unit_to_newest(self, reg_unit_of(&entry));
    } else if (!stored) {
        reg_unit_touch(self, reg_unit_of(&entry));
    }
    if ((!stored || alone) && access->said != 0) {
        struct sl_packed_hints said;
        sl_packed_hints_unpack(access->said, &said);
        reg_unit_hint(self, reg_unit_of(&entry), &said);
    }
    return true;
}

static uint32_t peer_drain(struct registrar *self, struct sl_pins_view *pins)
{
    struct sl_access accesses[ACCESS_BATCH];
    uint32_t touched = 0;
    uint64_t lost_before = sl_pins_view_lost(pins);
    uint32_t count = sl_pins_view_drain(pins, accesses, ACCESS_BATCH);
    for (uint32_t rounds = 0; count > 0 && rounds < 64; rounds++) {
        for (uint32_t k = 0; k < count; k++) {
            bool more = k + FETCH_AHEAD < count;
            if (more && sl_index_ref_live(self->index, accesses[k + FETCH_AHEAD].ref)) {
                sl_index_fetch(self->index, accesses[k + FETCH_AHEAD].ref);
            }
            touched += peer_touch(self, &accesses[k]) ? 1 : 0;
        }
        count = count == ACCESS_BATCH ? sl_pins_view_drain(pins, accesses, ACCESS_BATCH) : 0;
    }
    self->accesses->lost_count += sl_pins_view_lost(pins) - lost_before;
    return touched;
}

uint32_t reg_accesses_drain(struct registrar *self)
{
    uint32_t touched = 0;
    for (uint32_t i = 0; i < self->peers->high; i++) {
        if (self->peers->all[i].used && self->peers->all[i].pins != NULL) {
            touched += peer_drain(self, self->peers->all[i].pins);
        }
    }
    return touched;
}

static void accesses_arrived(struct registrar *self, uint32_t peer, bool restored)
{
    if (restored && self->peers->all[peer].pins != NULL) {
        sl_pins_view_resume(self->peers->all[peer].pins);
    }
}

/* Reads what the process noted last: some programs get one value and exit. */
static void accesses_leaving(struct registrar *self, uint32_t peer)
{
    if (self->peers->all[peer].pins != NULL) {
        (void)peer_drain(self, self->peers->all[peer].pins);
    }
}

/* ---- the part ---- */

static void accesses_tick(struct registrar *self)
{
    if (reg_accesses_drain(self) > 0) {
        reg_busy(self);
    }
}

static void accesses_gauges(struct registrar *self)
{
    sl_metric_set(self->env->metrics, self->accesses->metric.access_lost_count,
                  self->accesses->lost_count);
}

static const struct sl_metric_row metrics[] = {REG_METRIC(reg_accesses, access_lost_count)};

const struct reg_part reg_accesses_part = {
    .name = "accesses",
    REG_STATE(accesses, reg_accesses),
    REG_METRICS(metrics),
    .gauges = accesses_gauges,
    .tick = accesses_tick,
    .arrived = accesses_arrived,
    .leaving = accesses_leaving,
};
