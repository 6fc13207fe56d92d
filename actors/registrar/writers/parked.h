/* actors/registrar/writers/parked.h - RESERVEs that wait for space. */
#ifndef SL_REGISTRAR_WRITERS_PARKED_H
#define SL_REGISTRAR_WRITERS_PARKED_H

#include "actors/registrar/writers/reserve.h"

struct reg_parked {
    struct reg_parked *next;
    struct sl_return back;
    struct reg_request request;
    uint64_t bytes;      /* of this copy */
    uint64_t need_bytes; /* of the arena */
};

struct reg_parking {
    bool copies;              /* eviction needed a copy on disk when it was last looked */
    struct reg_parked *first; /* first come, first served */
    struct reg_parked **end;  /* where the next one comes; NULL: none ever came */
    uint64_t bytes;
    struct {
        sl_metric parked_count;
    } metric;
};

/* Keeps a copy of the request until there is space, or its deadline. Errors: SL_ERR_LIMIT,
 * SL_ERR_NO_MEMORY. */
sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_return *back, uint64_t need_bytes, struct sl_error *why);
/* Those of an op end without an answer. */
void reg_parked_abort(struct registrar *self, struct sl_proc_id owner, uint64_t op_id);
/* What the first of them needs of the arena; 0: nobody waits. */
uint64_t reg_parked_need(const struct registrar *self);
bool reg_parked_already(const struct registrar *self, const struct sl_return *back);

extern const struct reg_part reg_parking_part;

#endif
