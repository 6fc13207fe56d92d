/* actors/registrar/base/timers.h - a heap of deadlines by id, each id in it at most once. */
#ifndef SL_REGISTRAR_BASE_TIMERS_H
#define SL_REGISTRAR_BASE_TIMERS_H

#include "actors/registrar/base/core.h"

struct reg_timers {
    uint32_t *ids;      /* the heap */
    uint32_t *places;   /* id -> position in the heap, REG_NONE: not in it */
    uint64_t *deadline; /* id -> when */
    uint32_t count, id_max;
};
sl_err reg_timers_init(struct reg_timers *timers, uint32_t id_max, struct sl_error *why);
void reg_timers_fini(struct reg_timers *timers);
void reg_timers_set(struct reg_timers *timers, uint32_t id, uint64_t deadline_ns);
void reg_timers_clear(struct reg_timers *timers, uint32_t id);
uint64_t reg_timers_next(const struct reg_timers *timers); /* SL_NEVER_NS: none */
bool reg_timers_pop(struct reg_timers *timers, uint64_t now_ns, uint32_t *id);

#endif
