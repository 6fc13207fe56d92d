/* actors/coordinator/waiting.h - how fast tiers bring what loads need, and how long loads wait. */
#ifndef SL_COORDINATOR_WAITING_H
#define SL_COORDINATOR_WAITING_H

#include "runtime/base/sl_config.h"
#include "runtime/base/sl_metrics.h"

#define CO_DISKS_MAX 16u /* disk slots that the index uses */

struct coordinator;
struct co_op;
struct sl_msg;

/* The wait of a load. */
struct co_wait {
    uint64_t tokens_per_s;   /* compute rate of its engine; 0: wait for everything */
    uint64_t doubles_tokens; /* this token takes twice the time of the first; 0: none */
    uint32_t cut;            /* block of the op up to which waiting pays */
    uint64_t began_ns;       /* start of the BRING from disk; 0: none, or without a soft deadline */
    uint64_t fetch_ns;       /* start of the BRING from other nodes */
    double expected_ns;      /* time of the BRING from disk at the measured speed; 0: unknown */
    double promised_ns;      /* the same, plus recent lateness */
    double limit_ns;         /* time to compute its blocks instead */
    uint64_t ahead_bytes;    /* requested of its disk before */
    uint64_t asked_bytes[CO_DISKS_MAX]; /* by this BRING */
    uint32_t disk;                      /* that most of them are on */
    uint32_t left;                      /* blocks that exist and were skipped */
    bool planned;                       /* the load ends with the slice */
    bool over;                          /* it waits no longer */
};

/* Speed of the tiers. Disks: the average of the tierers' pages, and how late each disk was
 * recently. Other nodes: measured here. */
struct co_pace {
    struct sl_metrics_view *pages[SL_DISK_PATHS_MAX];
    uint32_t page_count;
    uint64_t open_ns;                   /* when to look for missing pages */
    uint64_t sampled_ns;                /* when the speed was measured */
    uint64_t read_bytes, busy_ns;       /* sums of all pages at that time */
    uint64_t queue_bytes;               /* average of a disk */
    double bytes_per_ns;                /* of a disk; 0: unknown */
    uint64_t asked_bytes[CO_DISKS_MAX]; /* of BRINGs in flight */
    double late_ns[CO_DISKS_MAX];       /* longer than expected, */
    uint64_t late_at_ns[CO_DISKS_MAX];  /* at that time */
    bool prefetching;                   /* a prefetch is in flight */
    double remote_ns_per_byte;          /* 0: unknown */
};

/* Whether the op may end instead of waiting for blocks that are faster to compute. */
bool co_wait_limited(const struct co_op *op);
/* The slice's blocks up to `end` exist; `waiting` is the first that is only on disk. ends: the
 * block at `end` exists nowhere. Gives the number of blocks to take. Further ones are counted as
 * skipped, and the load ends there. */
uint32_t co_wait_plan(struct coordinator *self, struct co_op *op, uint32_t waiting, uint32_t end,
                      bool ends);
/* A BRING of op->asked starts: gives its deadline. */
uint64_t co_wait_begins(struct coordinator *self, struct co_op *op);
/* The BRING was answered. all: with every part. */
void co_wait_answered(struct coordinator *self, struct co_op *op, bool all);
/* Stops waiting for the BRING. */
void co_wait_forget(struct coordinator *self, struct co_op *op);
/* CO_PROMOTE: whether the soft deadline has passed; then the BRING is dropped. */
bool co_wait_is_over(struct coordinator *self, struct co_op *op);
/* A prefetch of skipped blocks was answered. */
void co_wait_prefetched(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* Whether to ask other nodes for the slice's blocks from `block` on. */
bool co_wait_fetch(struct coordinator *self, struct co_op *op, uint32_t block);
/* These blocks are requested now. Gives the time to wait until, at most until_ns. */
uint64_t co_wait_fetch_until(struct coordinator *self, struct co_op *op, uint32_t block,
                             uint64_t until_ns);
struct co_fetched {
    uint32_t asked_parts; /* 1 or more */
    uint32_t came_parts;
    bool late; /* some did not arrive in time */
};
/* The fetch has ended. */
void co_wait_fetched(struct coordinator *self, const struct co_op *op,
                     const struct co_fetched *fetched);

#endif
