/* actors/registrar/records/order.h - units in a row.
 *
 * The row runs through the units' records (sl_links), so it costs no memory and a restart finds the
 * words to build it anew. */
#ifndef SL_REGISTRAR_RECORDS_ORDER_H
#define SL_REGISTRAR_RECORDS_ORDER_H

#include "actors/registrar/base/core.h"

struct reg_order {
    sl_ref oldest, newest;
    uint64_t count; /* of units.c */
    sl_ref walk;    /* where a walk from the oldest goes on; who leaves does not stop it */
};
void reg_order_append(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_remove(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_to_newest(struct registrar *self, struct reg_order *list, sl_ref unit);
void reg_order_to_oldest(struct registrar *self, struct reg_order *list, sl_ref unit);
/* A walk from the oldest to the newest, as struct reg_policy asks for; 0: no more. */
sl_ref reg_order_first(struct registrar *self, struct reg_order *list);
sl_ref reg_order_next(struct registrar *self, struct reg_order *list, bool goes);

#endif
