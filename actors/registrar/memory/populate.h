/* actors/registrar/memory/populate.h - allocates the arena's memory ahead of need. */
#ifndef SL_REGISTRAR_MEMORY_POPULATE_H
#define SL_REGISTRAR_MEMORY_POPULATE_H

#include <stdatomic.h>

#include "actors/registrar/base/core.h"

#define REG_POPULATE_NS (5 * SL_NS_PER_MS) /* how often threads' progress is read */
struct reg_populate_work {                 /* shared with the helper threads */
    struct sl_arena *arena;
    _Atomic bool stop;
    _Atomic uint64_t target_bytes; /* the threads stop here */
};
struct reg_populate {
    struct reg_populate_work work;
    uint32_t core_count;
    bool eager;   /* serve requests only when all memory is populated */
    bool running; /* helper threads are at work, since began_ns */
    uint64_t began_ns, begun_bytes;
    bool filling; /* the lead is short */
    bool batched; /* with pauses */
    bool quick;   /* huge pages were faster in the last measurement */
    bool failed;
    bool hurried; /* the loop allocated some for a request and may allocate more */
    uint64_t populated_bytes;
    uint64_t limit_bytes;     /* the allocator's limit while memory is returned (give_back.c) */
    uint64_t allocator_bytes; /* of these the allocator has been given */
    uint64_t batch_bytes;
    uint64_t pause_ns; /* no batch starts before then unless the lead is short */
    uint64_t again_ns; /* after a failure: no new attempt before then */
    bool huge_pages;   /* the arena has huge pages */
    uint32_t threads;  /* setting */
    struct {
        sl_metric huge_pages, used_bytes, usable_bytes, ceiling_bytes;
    } metric;
};

void reg_populate_retry(struct registrar *self); /* tries again, also after a failure */
/* Whether more memory is being populated. */
bool reg_populate_pending(const struct registrar *self);
/* Allocates up to want_bytes now for a request; false: none was allocated. */
bool reg_populate_now(struct registrar *self, uint64_t want_bytes);
/* The size to populate: the whole arena, or the contributions and a little more; whole slices. */
uint64_t reg_populate_target(const struct registrar *self);
/* Whether there is enough for first puts, or no more will follow. */
bool reg_populate_lead_ready(const struct registrar *self);

extern const struct reg_part reg_populate_part;

#endif
