/* actors/registrar/writers/transients.c - drops blocks whose time to live is over. */
#include "actors/registrar/writers/transients.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/holds.h"

void reg_transient_add(struct registrar *self, sl_ref group, uint64_t at_ns)
{
    struct sl_heap_item due = {
        .at_ns = at_ns, .cookie = sl_index_version(self->index, group), .id = group};
    if (sl_heap_add(&self->transients->heap, due) != SL_OK) {
        reg_log(self, SL_LOG_WARN, 0,
                "no memory to remember a time to live: the block stays until it is evicted");
    }
}

static uint64_t transients_next(const struct registrar *self)
{
    return sl_heap_next_ns(&self->transients->heap);
}

static void transients_expire(struct registrar *self)
{
    uint64_t from = self->retired->count;
    struct sl_heap_item due;
    while (sl_heap_pop(&self->transients->heap, self->env->now_ns, &due)) {
        struct reg_drop how = {.reason = REG_GHOST_TRANSIENT, .forget = true};
        if (sl_index_ref_live(self->index, due.id) &&
            sl_index_kind(self->index, due.id) == SL_RECORD_GROUP &&
            sl_index_version(self->index, due.id) == due.cookie &&
            reg_held_until(self, due.id) == 0) {     /* else the end of its hold adds it again */
            (void)reg_unit_drop(self, due.id, &how); /* without memory it is evicted later */
        }
    }
    reg_retired_scan(self, from);
}

/* ---- the part ---- */

static void transients_committed(struct registrar *self, const struct reg_committed *what)
{
    if (what->group != NULL && what->group->transient_ns != 0) {
        reg_transient_add(self, what->unit,
                          sl_deadline_ns(what->group->committed_ns, what->group->transient_ns));
    }
}

static void transients_fini(struct registrar *self)
{
    sl_heap_fini(&self->transients->heap);
}

const struct reg_part reg_transients_part = {
    .name = "transients",
    REG_STATE(transients, reg_transients),
    .fini = transients_fini,
    .tick = transients_expire,
    .next_ns = transients_next,
    .committed = transients_committed,
};
