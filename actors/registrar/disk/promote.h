/* actors/registrar/disk/promote.h - objects on disk alone come back into memory: keys on their way,
 * who waits for them, BRING. */
#ifndef SL_REGISTRAR_DISK_PROMOTE_H
#define SL_REGISTRAR_DISK_PROMOTE_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/disk/answers.h"
#include "runtime/base/sl_table.h"

#define REG_READS_MAX      8u /* from one disk at a time */
#define REG_READ_ITEMS_MAX 256u
#define REG_READ_BYTES_MAX (16 * SL_MIB)
#define REG_ARRIVALS_MAX   (2u * SL_BATCH_MAX)
/* Of these, for what nobody waits for: */
#define REG_AHEAD_READS_MAX    4u
#define REG_AHEAD_ARRIVALS_MAX SL_BATCH_MAX
struct reg_arrival { /* one key on its way from disk to memory */
    bool used;
    bool reading;
    bool ahead;    /* nobody waits for it to read it at once */
    uint32_t disk; /* that its place is on */
    uint32_t claim;
    sl_ref source;
    uint64_t source_version;
    uint32_t kept_for;      /* number of the reclaim that waits for it, 0: none */
    uint64_t keep_until_ns; /* its session comes back by then; 0: it is of none */
    bool held;              /* it was brought for a hold: awaited as long as that lasts */
    uint32_t waiters;       /* first */
    uint32_t next;          /* in the queue of its disk, or in the free list */
    uint32_t previous;      /* in the queue */
    struct sl_table_node by_source;
};
struct reg_arrival_queue {
    uint32_t first, last;
};
struct reg_waiter {
    uint64_t promote; /* its answer's id */
    uint32_t item, next;
    bool ahead;
};
struct reg_read {
    bool used;
    bool ahead;
    uint32_t disk;
    uint64_t bytes;
    uint64_t seq;
    uint32_t count;
    uint32_t arrivals[REG_READ_ITEMS_MAX];
};
struct reg_promote { /* a BRING */
    struct reg_answer answer;
    bool ahead;             /* nobody waits for it */
    uint64_t keep_until_ns; /* as of an arrival */
    uint64_t lacks_bytes;   /* of a session: what there was no room for */
    uint64_t *codes;
    uint32_t count, left;
};

struct reg_promotion {
    struct reg_arrival *arrivals;
    uint32_t arrival_free, arrival_high, arrival_count, ahead_arrivals;
    struct sl_table by_source;
    struct reg_waiter *waiters;
    uint32_t waiter_free, waiter_high, ahead_waiters;
    struct reg_read *reads;
    uint32_t read_count;
    struct sl_item_fill *fills;
    uint64_t prefetch_bytes_max; /* setting */
    struct {
        sl_metric promoted_count, promoted_bytes, promote_failed_count, prefetched_count,
            prefetched_bytes, prefetch_refused_count, kept_count;
    } metric;
};

/* ---- arrivals.c ---- */
sl_err reg_promotes_init(struct registrar *self, struct sl_error *why);
void reg_promotes_fini(struct registrar *self);
uint32_t reg_arrival_find(const struct registrar *self,
                          const struct sl_entry *source); /* REG_NONE */
/* A new one at the end of its queue. REG_NONE: there are too many. */
uint32_t reg_arrival_make(struct registrar *self, const struct sl_entry *source, bool ahead);
void reg_arrival_prepend(struct registrar *self, uint32_t arrival);
void reg_arrival_unqueue(struct registrar *self, uint32_t arrival);
void reg_arrival_raise(struct registrar *self, uint32_t arrival); /* somebody waits for it now */
/* Tells all who wait, and ends the arrival. It is in no queue. */
void reg_arrival_end(struct registrar *self, uint32_t arrival, sl_err code);
bool reg_arrival_is_awaited(const struct registrar *self, const struct reg_arrival *arrival);
void reg_arrivals_end(struct registrar *self, uint32_t disk, bool ahead,
                      sl_err code);              /* those in the queue */
void reg_arrivals_purge(struct registrar *self); /* of those ahead of use, what nobody awaits */
bool reg_waiter_add(struct registrar *self, uint32_t arrival, const struct reg_promote *promote,
                    uint32_t item);
void reg_promote_answer(struct registrar *self, struct reg_promote *promote);
bool reg_promotes_late(struct registrar *self, enum reg_answer_kind kind); /* true: one ended */

/* ---- returning.c: blocks of sessions that come back ---- */
/* Whether what a BRING for a session asks for may come: there is room beside what came so, also for
 * the rest of its chain, and what would go for it is worth less. Gives in *lacks_bytes what there
 * is no room for, 0 when there is. */
bool reg_returning_fits(struct registrar *self, const struct sl_body_bring *asked,
                        uint64_t *lacks_bytes);
/* The unit is of a session that comes back by until_ns: if all of it is in memory, it stays until
 * then or until it is used, with what is before it in its chain. */
void reg_returning_keep(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* Says how full the room is, or would be with what it lacks room for. */
void reg_returning_answer(struct registrar *self, const struct reg_promote *promote);

/* ---- promote.c ---- */
/* Brings the parts of a held block into memory that are on disk alone, as far as they can be. */
void reg_promote_held(struct registrar *self, sl_ref group);
void reg_promotes_pump(struct registrar *self);

extern const struct reg_part reg_promotion_part;

#endif
