/* actors/registrar/parts.c - the table of the registrar's parts, one row each. */
#include "actors/registrar/parts.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/explain.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/give_back.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/recorder.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/gone.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/seen.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/holds.h"
#include "actors/registrar/writers/prealloc.h"
#include "actors/registrar/writers/reservations.h"
#include "actors/registrar/writers/reserve.h"
#include "actors/registrar/writers/space_queue.h"
#include "actors/registrar/writers/transients.h"

#include <stdlib.h>
#include <string.h>

/* All callbacks run in this order, except `left` and `fini`, which run in reverse. Ended processes
 * free space. Freed space serves reads from disk first and then the request that has waited
 * longest; units are chosen for the disks after that. A part starts before the parts that use it,
 * and ends after them. The simulator and the unit tests depend on this order. */
const struct reg_part *const reg_parts[] = {
    /* processes and memory; accesses are read before anything is chosen by recency */
    &reg_peers_part,
    &reg_populate_part,
    &reg_accesses_part,
    /* what ends with a process or at a deadline */
    &reg_engines_part,
    &reg_ends_part,
    &reg_pool_requests_part,
    &reg_pools_part,
    &reg_pool_notes_part,
    &reg_contributions_part,
    &reg_reservations_part,
    &reg_fences_part,
    &reg_charges_part,
    &reg_disks_part,
    &reg_claims_part,
    &reg_groups_part,
    /* knowledge about units; a hold is in the record before the block could be evicted */
    &reg_units_part,
    &reg_gone_part,
    &reg_bundles_part,
    &reg_ghosts_part,
    &reg_holds_part,
    &reg_transients_part,
    &reg_leases_part,
    &reg_segments_part,
    /* freed space: loads come before stores */
    &reg_answers_part,
    &reg_promotion_part,
    &reg_reclaim_part,
    &reg_space_queue_part,
    /* writes to disk; the disks' lists of members change before new values are written */
    &reg_admission_part,
    &reg_members_part,
    &reg_writes_part,
    &reg_removes_part, /* makes tombstones, which are sent next */
    &reg_tombstones_part,
    &reg_flushes_part,
    /* scans for what the parts above released */
    &reg_retired_part,
    &reg_scan_part,
    &reg_evict_part,
    &reg_give_back_part,
    &reg_seen_part,
    /* of these the order does not matter */
    &reg_reserve_part,
    &reg_prealloc_part,
    &reg_damaged_part,
    &reg_explain_part,
    &reg_recorder_part,
    NULL,
};

#define STATE_ALIGN 64u

static size_t state_space(const struct reg_part *part)
{
    return (part->state_bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
}

/* ---- the table of callbacks ---- */

static bool part_walks(const struct reg_part *part, enum reg_walk walk)
{
    const bool walks[REG_WALK_COUNT] = {
        [REG_WALK_TICK] = part->tick != NULL,
        [REG_WALK_AFTER] = part->after != NULL,
        [REG_WALK_RECOVERED] = part->recovered != NULL,
        [REG_WALK_NEXT] = part->next_ns != NULL,
        [REG_WALK_ARRIVED] = part->arrived != NULL,
        [REG_WALK_LEAVING] = part->leaving != NULL,
        [REG_WALK_LEFT] = part->left != NULL,
        [REG_WALK_DIED] = part->died != NULL,
        [REG_WALK_KNOWS] = part->knows != NULL,
        [REG_WALK_GAUGES] = part->gauges != NULL,
        [REG_WALK_COMMITTED] = part->committed != NULL,
        [REG_WALK_USED] = part->used != NULL,
        [REG_WALK_SWITCHED] = part->switched != NULL,
        [REG_WALK_WANTED] = part->wanted != NULL,
        [REG_WALK_DROPPED] = part->dropped != NULL,
        [REG_WALK_FREED] = part->freed != NULL,
        [REG_WALK_DISK_KNOWN] = part->disk_known != NULL,
        [REG_WALK_DISK_LEFT] = part->disk_left != NULL,
    };
    return walks[walk];
}

static void walk_make(struct reg_walks *walks, enum reg_walk walk)
{
    const uint32_t count = SL_COUNT(reg_parts) - 1;
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct reg_part *part = reg_parts[walk == REG_WALK_LEFT ? count - 1 - i : i];
        if (part != NULL && part_walks(part, walk)) {
            walks->of[walk][at++] = part;
        }
    }
}

static void part_register(struct reg_walks *walks, const struct reg_part *part)
{
    for (uint32_t i = 0; i < part->handler_count; i++) {
        const struct reg_handler *handler = &part->handlers[i];
        uint32_t type = SL_MIN(handler->type, REG_MSG_TYPES_MAX - 1);
        SL_ASSERT(type == handler->type);
        SL_ASSERT(walks->handlers[type] == NULL);
        walks->handlers[type] = handler->handle;
    }
    for (uint32_t i = 0; i < part->call_count; i++) {
        SL_ASSERT(walks->calls[part->calls[i].kind] == NULL);
        walks->calls[part->calls[i].kind] = &part->calls[i];
    }
    if (part->index_room != NULL) {
        walks->index_room = part->index_room;
    }
    if (part->copy_required != NULL) {
        walks->copy_required = part->copy_required;
    }
}

/* ---- states ---- */

sl_err reg_parts_create(struct registrar *self, struct sl_error *why)
{
    size_t bytes = sizeof(struct reg_walks) + STATE_ALIGN;
    _Static_assert(SL_COUNT(reg_parts) <= REG_TABLE_MAX, "a place for each part in a walk");
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        bytes += state_space(reg_parts[i]);
    }
    char *at = calloc(1, bytes);
    if (at == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "state of the registrar");
    }
    self->walks = (struct reg_walks *)(void *)at;
    at += (sizeof(struct reg_walks) + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        if (reg_parts[i]->state_bytes > 0) {
            memcpy((char *)self + reg_parts[i]->state_at, &at, sizeof(at));
            at += state_space(reg_parts[i]);
        }
        part_register(self->walks, reg_parts[i]);
    }
    for (uint32_t i = 0; i < REG_WALK_COUNT; i++) {
        walk_make(self->walks, (enum reg_walk)i);
    }
    return SL_OK;
}

void reg_parts_destroy(struct registrar *self)
{
    free(self->walks);
    self->walks = NULL;
}
