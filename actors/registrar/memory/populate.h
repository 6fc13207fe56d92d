/* actors/registrar/memory/populate.h - memory becomes the node's before writers ask for it. */
#ifndef SL_REGISTRAR_MEMORY_POPULATE_H
#define SL_REGISTRAR_MEMORY_POPULATE_H

#include <stdatomic.h>

#include "actors/registrar/base/core.h"

#define REG_POPULATE_NS (5 * SL_NS_PER_MS) /* how often the populated prefix is looked at */
struct reg_populate_work {                 /* lent to the helper threads */
    struct sl_arena *arena;
    _Atomic bool stop;
    _Atomic uint64_t target_bytes; /* enough is there */
};
struct reg_populate {
    struct reg_populate_work work;
    uint32_t core_count;
    bool eager;   /* nothing is served before all of it is there */
    bool running; /* helper threads are at it, since: */
    uint64_t began_ns, begun_bytes;
    bool filling; /* the lead is short */
    bool batched; /* with pauses */
    bool quick;   /* when it was measured last */
    bool failed;
    bool hurried; /* the loop took some for a request, and may take more */
    uint64_t there_bytes;
    uint64_t limit_bytes;  /* the allocator gets no more while less is wanted (give_back.c) */
    uint64_t opened_bytes; /* has been given to it */
    uint64_t batch_bytes;
    uint64_t pause_ns; /* nothing before that is needed before then */
    uint64_t again_ns; /* what the system lacks is not asked for before then */
    bool huge_pages;   /* the arena gets them */
    uint32_t threads;  /* setting */
    struct {
        sl_metric huge_pages, used_bytes, usable_bytes, ceiling_bytes;
    } metric;
};

void reg_populate_asked(struct registrar *self); /* more is wanted: a failure is forgotten */
/* Memory that is not there yet is on its way. */
bool reg_populate_pending(const struct registrar *self);
/* Takes some now, want_bytes at most, for a request that lacks it; false: none came. */
bool reg_populate_hurry(struct registrar *self, uint64_t want_bytes);
/* How much shall be there: all of the arena, or what processes contribute and a little more; whole
 * slices. */
uint64_t reg_populate_target(const struct registrar *self);
/* Whether there is enough for first puts, or no more is to come. */
bool reg_populate_first(const struct registrar *self);

extern const struct reg_part reg_populate_part;

#endif
