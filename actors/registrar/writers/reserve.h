/* actors/registrar/writers/reserve.h - RESERVE: requests for extents to write to. */
#ifndef SL_REGISTRAR_WRITERS_RESERVE_H
#define SL_REGISTRAR_WRITERS_RESERVE_H

#include "actors/registrar/memory/contributions.h"

struct reg_request { /* a RESERVE for the pass over its items; from a message or a queued copy */
    const struct sl_item_want *items;
    const struct sl_item_group *groups;
    uint32_t item_count, group_count;
    bool wait;           /* for room for all items */
    bool while_expected; /* waits only while room is expected: memory is being populated, or values
                         leave memory once they are on disk */
    uint64_t ttl_ns, op_id, seq, trace_id, hold_id, hold_ns;
    bool hard_pin, replace, draft;
    uint64_t soft_pin_ns;
    uint32_t peer;
    struct sl_proc_id owner;
    struct reg_preferences wish;
};
/* Scratch of one RESERVE, so that the pass allocates nothing. */
enum reg_item_state { REG_ITEM_DONE, REG_ITEM_NEED, REG_ITEM_TAKEN, REG_ITEM_GRANTED };
struct reg_item {
    enum reg_item_state state;
    uint32_t slot;   /* of its claim */
    uint32_t writer; /* a peer */
    uint64_t hash;
    uint64_t index_hash; /* of its key in the index */
    uint64_t offset_bytes;
    uint32_t charged;  /* as in contributions.h, from TAKEN on */
    uint64_t bundle;   /* the value's bundle */
    uint32_t preempts; /* claim of another writer to preempt, REG_NONE: none */
    bool hard_pin;
};
struct reg_want_group {
    sl_err code; /* SL_OK: parts may be granted; else the code for every part */
    uint64_t busy_ns;
    uint64_t index_hash; /* as of an item */
    uint32_t slot;       /* pending group, REG_NONE: to be made */
    bool made;           /* in this request */
    uint64_t bytes;      /* of its parts, if it is to be held */
};
struct reg_scratch {
    struct reg_item *items;
    struct reg_want_group *groups;
    struct sl_item_grant *grants;
    uint32_t *seen;   /* hash set over the items of a request */
    uint64_t *spaces; /* memory that each item takes */
    uint64_t put_preempt_ns, soft_pin_max_ns, quarantine_bytes_max; /* settings */
    struct {
        sl_metric reserve_count, busy_count, refused_count, preempted_count;
    } metric;
};

enum reg_outcome { REG_RESERVE_ANSWER, REG_RESERVE_PARK };
/* Runs the pass once. may_allocate false: nothing is granted, since other requests come first or
 * its time is over. *need_bytes: the memory it needs. ANSWER: the grants are in the scratch. */
enum reg_outcome reg_request_run(struct registrar *self, const struct reg_request *req,
                                 bool may_allocate, uint64_t *need_bytes);
void reg_request_answer(struct registrar *self, const struct reg_request *req,
                        const struct sl_reply_route *back);

extern const struct reg_part reg_reserve_part;

#endif
