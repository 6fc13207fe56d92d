/* actors/registrar/disk/promote.h - BRING: values that are only on disk are read into memory. */
#ifndef SL_REGISTRAR_DISK_PROMOTE_H
#define SL_REGISTRAR_DISK_PROMOTE_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/disk/answers.h"
#include "runtime/base/sl_table.h"

#define REG_READS_MAX      8u /* DISK_READs in flight to one disk */
#define REG_READ_ITEMS_MAX 256u
#define REG_READ_BYTES_MAX (16 * SL_MIB)
#define REG_FETCHES_MAX    (2u * SL_BATCH_MAX)
/* Limits for fetches that no reader waits for. */
#define REG_AHEAD_READS_MAX   4u
#define REG_AHEAD_FETCHES_MAX SL_BATCH_MAX
struct reg_fetch { /* a fetch: one value on its way from disk to memory */
    bool used;
    bool reading;
    bool ahead;    /* no reader waits for it: a prefetch, or for a reclaim */
    uint32_t disk; /* of its place */
    uint32_t claim;
    sl_ref source;
    uint64_t source_version;
    uint32_t kept_for;      /* number of the reclaim that waits for the value; 0: none */
    uint64_t keep_until_ns; /* when the value's session is expected back; 0: it has none */
    bool held;              /* fetched for a hold and wanted while that lasts */
    uint32_t waiters;       /* first of the waiters */
    uint32_t next;          /* in its disk's queue, or in the free list */
    uint32_t previous;      /* in the queue */
    struct sl_table_node by_source;
};
struct reg_fetch_queue {
    uint32_t first, last;
};
struct reg_waiter {
    uint64_t promote; /* id of the BRING's reg_answer */
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
    uint32_t fetches[REG_READ_ITEMS_MAX];
};
struct reg_promote { /* a BRING */
    struct reg_answer answer;
    bool ahead;             /* of a prefetch */
    uint64_t keep_until_ns; /* as in reg_fetch */
    uint64_t lacks_bytes;   /* of a session: bytes that found no room */
    uint64_t *codes;
    uint32_t count, left; /* left: codes that wait for a fetch */
};

struct reg_promotion {
    struct reg_fetch *fetches;
    uint32_t fetch_free, fetch_high, fetch_count, ahead_fetches;
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

/* ---- fetches.c ---- */
sl_err reg_promotes_init(struct registrar *self, struct sl_error *why);
void reg_promotes_fini(struct registrar *self);
uint32_t reg_fetch_find(const struct registrar *self, const struct sl_entry *source); /* REG_NONE */
/* Adds a fetch at the end of its queue. REG_NONE: too many. */
uint32_t reg_fetch_add(struct registrar *self, const struct sl_entry *source, bool ahead);
void reg_fetch_prepend(struct registrar *self, uint32_t fetch);
void reg_fetch_unqueue(struct registrar *self, uint32_t fetch);
void reg_fetch_raise(struct registrar *self, uint32_t fetch); /* a reader waits for it now */
/* Sets the code of all waiters and frees the fetch, which must be in no queue. */
void reg_fetch_end(struct registrar *self, uint32_t fetch, sl_err code);
bool reg_fetch_is_awaited(const struct registrar *self, const struct reg_fetch *fetch);
/* Ends all that are queued. */
void reg_fetches_end(struct registrar *self, uint32_t disk, bool ahead, sl_err code);
void reg_fetches_purge(struct registrar *self); /* ends queued prefetches that nothing awaits */
/* Makes a key of the BRING wait for the fetch. False: too many wait. */
bool reg_waiter_add(struct registrar *self, uint32_t fetch, const struct reg_promote *promote,
                    uint32_t item);
void reg_promote_answer(struct registrar *self, struct reg_promote *promote); /* and frees it */
/* Answers BRINGs whose deadline has passed; false: there were none. */
bool reg_promotes_late(struct registrar *self, enum reg_answer_kind kind);

/* ---- returning.c: prefetches for sessions that are expected back ---- */
/* Whether the values of a session's BRING may be read: they and the rest of their chain find room,
 * and the next victim is worth less. *lacks_bytes: that find no room now, but could. */
bool reg_returning_fits(struct registrar *self, const struct sl_body_bring *asked,
                        uint64_t *lacks_bytes);
/* Keeps the unit, if all of it is in memory, and the blocks before it in its chain until until_ns
 * or its next use, because its session is expected back by then. */
void reg_returning_keep(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* Answers the BRING, with how full that memory is, or would be with lacks_bytes. */
void reg_returning_answer(struct registrar *self, const struct reg_promote *promote);

/* ---- promote.c ---- */
/* Fetches the parts of a held block that are only on disk, as far as possible. */
void reg_promote_held(struct registrar *self, sl_ref group);
void reg_promotes_pump(struct registrar *self); /* starts reads of queued fetches */

extern const struct reg_part reg_promotion_part;

#endif
