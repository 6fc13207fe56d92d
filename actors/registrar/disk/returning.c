/* actors/registrar/disk/returning.c - blocks of sessions that are expected back, read ahead of use.
 *
 * The coordinator knows when sessions return and what their blocks are worth until then
 * (runtime/policy/sessions). It sends both with BRING. The registrar knows the worth of the units
 * that would be evicted for them, and answers with it. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"

#define WORTH_UNIT 1e12 /* messages give worth and edge as hits in this many seconds */
#define FULL_UNIT  1000.0

static uint64_t room_bytes(const struct registrar *self)
{
    return reg_units_memory_bytes(self) / REG_RETURNING_SHARE;
}

/* Hits a second of the next victim; 0: not known. */
static double edge(struct registrar *self)
{
    struct reg_judgement judged;
    struct reg_order *list = &self->units->hot;
    sl_ref unit = reg_unit_first(self, list);
    if (unit == 0) {
        return 0;
    }
    reg_unit_judge(self, unit, &judged);
    return judged.valued ? (double)judged.value * reg_units_references_a_second(self) : 0;
}

static uint64_t to_bring_bytes(struct registrar *self, const struct sl_texts *keys)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < keys->count; i++) {
        struct sl_entry entry;
        bool there = sl_index_find_any(self->index, keys->at[i].at, (uint32_t)keys->at[i].length,
                                       &entry) == SL_OK;
        if (there && entry.kind == SL_RECORD_COMMITTED && entry.extent.generation == 0) {
            bytes += sl_extent_space(entry.extent.length_bytes);
        }
    }
    return bytes;
}

bool reg_returning_fits(struct registrar *self, const struct sl_body_bring *asked,
                        uint64_t *lacks_bytes)
{
    self->units->returning_at_ns = self->env->now_ns;
    (void)reg_accesses_drain(self); /* blocks that were used since are kept no more */
    reg_units_retention_check(self);
    uint64_t taken = reg_units_retained_bytes(self);
    uint64_t now = to_bring_bytes(self, &asked->keys), bytes = SL_MAX(now, asked->chain_bytes);
    bool room = taken <= room_bytes(self) && bytes <= room_bytes(self) - taken;
    /* Others must not wait because of values that could never fit. */
    *lacks_bytes = room || bytes > room_bytes(self) ? 0 : bytes;
    return room && (now == 0 || edge(self) * WORTH_UNIT < (double)asked->worth);
}

void reg_returning_keep(struct registrar *self, sl_ref unit, uint64_t until_ns)
{
    struct reg_unit_parts parts;
    if (until_ns <= self->env->now_ns) {
        return;
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        if (entry.extent.generation == 0) {
            return;
        }
    }
    reg_unit_session_expected(self, unit, until_ns - self->env->now_ns);
}

void reg_returning_answer(struct registrar *self, const struct reg_promote *promote)
{
    struct sl_msg reply = {.code = SL_OK};
    uint64_t bytes = reg_units_retained_bytes(self) + promote->lacks_bytes;
    double full = (double)bytes / (double)SL_MAX(room_bytes(self), 1u);
    double next = edge(self) * WORTH_UNIT;
    reply.body.bring_reply = (struct sl_body_bring_reply){
        .codes = {.at = promote->codes, .count = promote->count},
        .edge = next < 1e18 ? (uint64_t)next : UINT64_C(1000000000000000000),
        .full = (uint64_t)SL_MIN(full * FULL_UNIT, FULL_UNIT)};
    sl_reply_route_send(self->env, &promote->answer.back, &reply);
}
