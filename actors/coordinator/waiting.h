/* actors/coordinator/waiting.h - how soon the tiers bring what loads ask for, and what a load is
 * ready to wait. */
#ifndef SL_COORDINATOR_WAITING_H
#define SL_COORDINATOR_WAITING_H

#include "runtime/base/sl_config.h"
#include "runtime/base/sl_metrics.h"

#define CO_DISKS_MAX 16u /* slots of disks in places of the index */

struct coordinator;
struct co_op;
struct sl_msg;

/* Of a load. */
struct co_wait {
    uint64_t tokens_per_s;   /* that its engine computes; 0: all is waited for */
    uint64_t doubles_tokens; /* place of the token that takes twice as long as the first; 0: none */
    uint32_t cut;            /* block of the op up to which it is worth waiting */
    uint64_t began_ns;       /* of the BRING from disk in flight; 0: none, or it is not given up */
    uint64_t fetch_ns;       /* of the one from other nodes */
    double expected_ns;   /* how long that from disk was to take, as measured alone; 0: not known */
    double promised_ns;   /* the same as corrected by how it went before */
    double limit_ns;      /* so long its blocks take to be computed */
    uint64_t ahead_bytes; /* asked of its disk before it */
    uint64_t asked_bytes[CO_DISKS_MAX]; /* by it */
    uint32_t disk;                      /* of most of them */
    uint32_t left;                      /* blocks that are here and were not waited for */
    bool planned;                       /* the load is to end at the slice's end */
    bool over;                          /* nothing more is waited for */
};

/* How fast the tiers are: all disks on average, as the tierers' pages say; and how far each was
 * from that lately. Of other nodes what came is measured here. */
struct co_pace {
    struct sl_metrics_view *pages[SL_DISK_PATHS_MAX];
    uint32_t page_count;
    uint64_t open_ns;                   /* when missing pages are looked for again */
    uint64_t sampled_ns;                /* when the speed was looked at */
    uint64_t read_bytes, busy_ns;       /* of all pages, as of then */
    uint64_t queue_bytes;               /* at each disk */
    double bytes_per_ns;                /* of each disk; 0: not known */
    uint64_t asked_bytes[CO_DISKS_MAX]; /* by BRINGs in flight */
    double late_ns[CO_DISKS_MAX];       /* took so much longer than expected, */
    uint64_t late_at_ns[CO_DISKS_MAX];  /* as of then */
    bool prefetching;                   /* one is in flight */
    double remote_ns_per_byte;          /* 0: not known */
};

/* Whether the op ends rather than wait for what is sooner computed. */
bool co_wait_limited(const struct co_op *op);
/* The slice's blocks up to `end` are there, and `waiting` is the first that is on disk alone. ends:
 * the block behind is nowhere. Gives how many of the slice to take; what is left is counted, and
 * the load is to end there. */
uint32_t co_wait_plan(struct coordinator *self, struct co_op *op, uint32_t waiting, uint32_t end,
                      bool ends);
/* A BRING of op->asked begins: gives its deadline. */
uint64_t co_wait_begins(struct coordinator *self, struct co_op *op);
/* It was answered. all: with everything. */
void co_wait_answered(struct coordinator *self, struct co_op *op, bool all);
/* It is not waited for any more. */
void co_wait_forget(struct coordinator *self, struct co_op *op);
/* CO_PROMOTE: whether its soft deadline has passed; the BRING is forgotten then. */
bool co_wait_is_over(struct coordinator *self, struct co_op *op);
/* A BRING ahead of what was left was answered. */
void co_wait_prefetched(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* Whether to ask other nodes for the slice's blocks from `block` on. */
bool co_wait_fetch(struct coordinator *self, struct co_op *op, uint32_t block);
/* They are asked now, and waited for until until_ns at most: gives until when. */
uint64_t co_wait_fetch_until(struct coordinator *self, struct co_op *op, uint32_t block,
                             uint64_t until_ns);
struct co_fetched {
    uint32_t asked_parts; /* 1 or more */
    uint32_t came_parts;
    bool late; /* some did not come in time */
};
/* It is over. */
void co_wait_fetched(struct coordinator *self, const struct co_op *op,
                     const struct co_fetched *fetched);

#endif
