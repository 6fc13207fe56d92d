/* actors/registrar/writers/space_queue.h - RESERVEs that wait for space, first come, first served.
 */
#ifndef SL_REGISTRAR_WRITERS_PARKED_H
#define SL_REGISTRAR_WRITERS_PARKED_H

#include "actors/registrar/writers/reserve.h"

struct reg_space_waiter {
    struct reg_space_waiter *next;
    struct sl_reply_route back;
    struct reg_request request;
    uint64_t bytes;      /* of this copy */
    uint64_t need_bytes; /* of the arena */
};

struct reg_space_queue {
    bool copies;                    /* whether eviction lately required a copy on disk */
    struct reg_space_waiter *first; /* the oldest */
    struct reg_space_waiter **end;  /* where the next one is linked; NULL: none ever waited */
    uint64_t bytes;
    struct {
        sl_metric waiting_count;
    } metric;
};

/* Copies the request and keeps it until there is space, or until its deadline. Errors:
 * SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_reply_route *back, uint64_t need_bytes,
                        struct sl_error *why);
/* Drops the requests of an op without an answer. */
void reg_space_queue_abort(struct registrar *self, struct sl_proc_id owner, uint64_t op_id);
/* Bytes that the first of them needs; 0: none waits. */
uint64_t reg_space_queue_need(const struct registrar *self);
/* Whether the request of this reply waits already. */
bool reg_space_queue_already(const struct registrar *self, const struct sl_reply_route *back);

extern const struct reg_part reg_space_queue_part;

#endif
