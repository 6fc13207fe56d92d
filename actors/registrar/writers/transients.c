/* actors/registrar/writers/transients.c - blocks with a time to live. */
#include "actors/registrar/writers/transients.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/holds.h"

#include <stdlib.h>

static void transients_sink(struct reg_transients *all, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < all->count && all->heap[child + 1].at_ns < all->heap[child].at_ns) {
            child++;
        }
        if (child >= all->count || all->heap[at].at_ns <= all->heap[child].at_ns) {
            return;
        }
        struct reg_transient swap = all->heap[at];
        all->heap[at] = all->heap[child];
        all->heap[child] = swap;
        at = child;
    }
}

void reg_transient_add(struct registrar *self, sl_ref group, uint64_t at_ns)
{
    struct reg_transients *all = self->transients;
    struct sl_entry entry;
    sl_index_read(self->index, group, &entry);
    if (all->count == all->capacity) {
        uint32_t capacity = SL_MAX(all->capacity * 2, 1024u);
        struct reg_transient *grown = realloc(all->heap, capacity * sizeof(*grown));
        if (grown == NULL) {
            reg_log(self, SL_LOG_WARN, 0,
                    "no memory to remember a time to live: the block stays until it is evicted");
            return;
        }
        all->heap = grown;
        all->capacity = capacity;
    }
    uint32_t at = all->count++;
    all->heap[at] = (struct reg_transient){.at_ns = at_ns, .version = entry.version, .ref = group};
    while (at > 0 && all->heap[(at - 1) / 2].at_ns > all->heap[at].at_ns) {
        struct reg_transient swap = all->heap[at];
        all->heap[at] = all->heap[(at - 1) / 2];
        all->heap[(at - 1) / 2] = swap;
        at = (at - 1) / 2;
    }
}

static uint64_t transients_next(const struct registrar *self)
{
    return self->transients->count == 0 ? SL_NEVER_NS : self->transients->heap[0].at_ns;
}

static void transients_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    struct reg_transients *all = self->transients;
    uint64_t from = self->retired->count;
    while (all->count > 0 && all->heap[0].at_ns <= now_ns) {
        struct reg_transient due = all->heap[0];
        all->heap[0] = all->heap[--all->count];
        transients_sink(all, 0);
        if (!sl_index_ref_live(self->index, due.ref)) {
            continue;
        }
        struct sl_entry entry;
        sl_index_read(self->index, due.ref, &entry);
        struct reg_drop how = {.reason = REG_GHOST_TRANSIENT, .forget = true};
        if (entry.kind != SL_RECORD_GROUP || entry.version != due.version) {
            continue;
        }
        if (reg_held_until(self, due.ref) == 0) { /* else the end of its hold brings it back here */
            (void)reg_unit_drop(self, due.ref, &how); /* out of memory: evicted some time later */
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
    free(self->transients->heap);
}

const struct reg_part reg_transients_part = {
    .name = "transients",
    REG_STATE(transients, reg_transients),
    .fini = transients_fini,
    .tick = {REG_TICK_TRANSIENTS, transients_expire},
    .next_ns = transients_next,
    .committed = {REG_COMMITTED_TRANSIENTS, transients_committed},
};
