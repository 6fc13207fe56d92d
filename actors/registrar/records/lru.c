/* actors/registrar/records/lru.c - evicts the least recently used unit.
 *
 * Eviction needs only the order. The time of each use is noted for explanations: a word for each
 * record, in heap memory, which a restart loses. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>
#include <string.h>

/* References count the index's 64-byte lines; a record has three or more of them. */
#define REFS_A_RECORD 3u
#define TIMES_FIRST   4096u
#define TICK_SHIFT    26u /* 67 ms */

static void used(struct registrar *self, sl_ref unit)
{
    struct reg_units *units = self->units;
    uint32_t at = unit / REFS_A_RECORD;
    uint32_t count = SL_MAX(units->used_count, TIMES_FIRST);
    if (units->restoring) { /* used before the restart; the time is unknown */
        return;
    }
    while (count <= at) {
        count *= 2; /* at is below 2^31 */
    }
    if (count > units->used_count) {
        uint32_t *fresh = realloc(units->used_at, count * sizeof(*fresh));
        if (fresh == NULL) {
            return;
        }
        memset(fresh + units->used_count, 0, (count - units->used_count) * sizeof(*fresh));
        units->used_at = fresh;
        units->used_count = count;
    }
    units->used_at[at] = (uint32_t)SL_MAX(self->env->now_ns >> TICK_SHIFT, UINT64_C(1));
}

static uint32_t used_when(const struct registrar *self, sl_ref unit)
{
    uint32_t at = unit / REFS_A_RECORD;
    return at < self->units->used_count ? self->units->used_at[at] : 0;
}

static void lru_placed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    reg_order_append(self, list, unit);
    used(self, unit);
}

static void lru_touched(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    reg_order_to_newest(self, list, unit);
    used(self, unit);
}

static void lru_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    uint32_t when = used_when(self, old);
    used(self, fresh);
    if (fresh / REFS_A_RECORD < self->units->used_count) {
        self->units->used_at[fresh / REFS_A_RECORD] = when;
    }
}

static void lru_judge(struct registrar *self, sl_ref unit, struct reg_judgement *out)
{
    uint64_t when_ns = (uint64_t)used_when(self, unit) << TICK_SHIFT;
    if (when_ns != 0) {
        out->age_ns = self->env->now_ns > when_ns ? self->env->now_ns - when_ns : 1;
    }
}

static void lru_removed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    lru_judge(self, unit, &self->units->judged);
    reg_order_remove(self, list, unit);
}

static void lru_end(struct registrar *self)
{
    free(self->units->used_at);
    self->units->used_at = NULL;
    self->units->used_count = 0;
}

const struct reg_policy reg_policy_lru = {
    .name = "lru",
    .placed = lru_placed,
    .removed = lru_removed,
    .judge = lru_judge,
    .touched = lru_touched,
    .sunk = reg_order_to_oldest,
    .renamed = lru_renamed,
    .first = reg_order_first,
    .next = reg_order_next,
    .end = lru_end,
};
