/* actors/registrar/writers/holds.h - blocks kept in memory for a hand-over. */
#ifndef SL_REGISTRAR_WRITERS_HOLDS_H
#define SL_REGISTRAR_WRITERS_HOLDS_H

#include "actors/registrar/writers/reserve.h"
#include "runtime/base/sl_table.h"

struct reg_held { /* one block of one hold */
    uint64_t version, bytes, until_ns;
    sl_ref group;       /* 0: free */
    uint32_t hold;      /* REG_NONE: a previous registrar's hold */
    uint32_t hold_next; /* next of the same hold, or next free entry */
    struct sl_table_node by_group;
};
struct reg_hold {
    uint64_t id; /* 0: free */
    uint32_t first;
};
struct reg_holds {
    struct reg_hold *holds;
    struct reg_held *held;
    struct sl_table by_group;
    uint32_t hold_count, held_high, held_capacity, held_free;
    uint64_t bytes, next_ns;
    uint64_t held_bytes_max; /* settings */
    uint32_t holds_max;
    struct {
        sl_metric held_count, held_bytes, hold_lapsed_count;
    } metric;
};

/* Holds all blocks of the request that are granted or exist, or none. Repeating it only extends the
 * time. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err reg_hold_take(struct registrar *self, const struct reg_request *req);
/* Restores a hold of a previous registrar. */
void reg_hold_recovered(struct registrar *self, sl_ref group, uint64_t until_ns);
/* Until when the block is held; 0: it is not. */
uint64_t reg_held_until(const struct registrar *self, sl_ref group);

extern const struct reg_part reg_holds_part;

#endif
