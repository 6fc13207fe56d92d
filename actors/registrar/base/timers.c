/* actors/registrar/base/timers.c - a binary heap of deadlines by id. */
#include "actors/registrar/base/timers.h"

#include <stdlib.h>

sl_err reg_timers_init(struct reg_timers *timers, uint32_t id_max, struct sl_error *why)
{
    timers->ids = calloc(id_max, sizeof(*timers->ids));
    timers->places = malloc(id_max * sizeof(*timers->places));
    timers->deadline = calloc(id_max, sizeof(*timers->deadline));
    if (timers->ids == NULL || timers->places == NULL || timers->deadline == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u timers", id_max);
    }
    for (uint32_t i = 0; i < id_max; i++) {
        timers->places[i] = REG_NONE;
    }
    timers->id_max = id_max;
    return SL_OK;
}

void reg_timers_fini(struct reg_timers *timers)
{
    free(timers->ids);
    free(timers->places);
    free(timers->deadline);
    *timers = (struct reg_timers){0};
}

static void timers_put(struct reg_timers *timers, uint32_t place, uint32_t id)
{
    timers->ids[place] = id;
    timers->places[id] = place;
}

static void timers_up(struct reg_timers *timers, uint32_t place)
{
    uint32_t id = timers->ids[place];
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (timers->deadline[timers->ids[parent]] <= timers->deadline[id]) {
            break;
        }
        timers_put(timers, place, timers->ids[parent]);
        place = parent;
    }
    timers_put(timers, place, id);
}

static void timers_down(struct reg_timers *timers, uint32_t place)
{
    uint32_t id = timers->ids[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= timers->count) {
            break;
        }
        if (child + 1 < timers->count &&
            timers->deadline[timers->ids[child + 1]] < timers->deadline[timers->ids[child]]) {
            child++;
        }
        if (timers->deadline[id] <= timers->deadline[timers->ids[child]]) {
            break;
        }
        timers_put(timers, place, timers->ids[child]);
        place = child;
    }
    timers_put(timers, place, id);
}

void reg_timers_set(struct reg_timers *timers, uint32_t id, uint64_t deadline_ns)
{
    SL_ASSERT(id < timers->id_max);
    timers->deadline[id] = deadline_ns;
    if (timers->places[id] == REG_NONE) {
        timers_put(timers, timers->count++, id);
    }
    timers_up(timers, timers->places[id]);
    timers_down(timers, timers->places[id]);
}

void reg_timers_clear(struct reg_timers *timers, uint32_t id)
{
    SL_ASSERT(id < timers->id_max);
    uint32_t place = timers->places[id];
    if (place == REG_NONE) {
        return;
    }
    timers->places[id] = REG_NONE;
    uint32_t last = timers->ids[--timers->count];
    if (last != id) {
        timers_put(timers, place, last);
        timers_up(timers, place);
        timers_down(timers, timers->places[last]);
    }
}

uint64_t reg_timers_next(const struct reg_timers *timers)
{
    return timers->count == 0 ? SL_NEVER_NS : timers->deadline[timers->ids[0]];
}

bool reg_timers_pop(struct reg_timers *timers, uint64_t now_ns, uint32_t *id)
{
    if (reg_timers_next(timers) > now_ns || timers->count == 0) {
        return false;
    }
    *id = timers->ids[0];
    reg_timers_clear(timers, *id);
    return true;
}
