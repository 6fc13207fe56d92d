/* actors/registrar/records/order.h - a list of units.
 *
 * The links are in the units' records (sl_links), so a list costs no memory, and a restart has room
 * to rebuild it. */
#ifndef SL_REGISTRAR_RECORDS_ORDER_H
#define SL_REGISTRAR_RECORDS_ORDER_H

#include "actors/registrar/base/core.h"

struct reg_order {
    sl_ref oldest, newest;
    uint64_t count; /* kept by units.c */
    sl_ref walk;    /* next unit of a walk; removing units does not disturb it */
};
void reg_order_append(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_remove(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_to_newest(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_to_oldest(struct registrar *self, struct reg_order *list, sl_ref unit);
/* A walk from the oldest to the newest for struct reg_policy; 0: the end. */
sl_ref reg_order_first(struct registrar *self, struct reg_order *list);
sl_ref reg_order_next(struct registrar *self, struct reg_order *list, bool goes);

#endif
