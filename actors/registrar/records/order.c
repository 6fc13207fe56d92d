/* actors/registrar/records/order.c - a doubly linked list through the records of the index. */
#include "actors/registrar/records/order.h"

void reg_order_append(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    links->newer = 0;
    links->older = list->newest;
    if (list->newest != 0) {
        sl_index_links(self->index, list->newest)->newer = unit;
    } else {
        list->oldest = unit;
    }
    list->newest = unit;
}

static void order_prepend(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    links->older = 0;
    links->newer = list->oldest;
    if (list->oldest != 0) {
        sl_index_links(self->index, list->oldest)->older = unit;
    } else {
        list->newest = unit;
    }
    list->oldest = unit;
}

void reg_order_remove(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    if (list->walk == unit) {
        list->walk = links->newer;
    }
    if (links->older != 0) {
        sl_index_links(self->index, links->older)->newer = links->newer;
    } else {
        list->oldest = links->newer;
    }
    if (links->newer != 0) {
        sl_index_links(self->index, links->newer)->older = links->older;
    } else {
        list->newest = links->older;
    }
    links->older = 0;
    links->newer = 0;
}

void reg_order_to_newest(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    if (list->newest != unit) {
        reg_order_remove(self, list, unit);
        reg_order_append(self, list, unit);
    }
}

void reg_order_to_oldest(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    if (list->oldest != unit) {
        reg_order_remove(self, list, unit);
        order_prepend(self, list, unit);
    }
}

sl_ref reg_order_next(struct registrar *self, struct reg_order *list, bool goes)
{
    sl_ref unit = list->walk;
    (void)goes;
    list->walk = unit != 0 ? sl_index_links(self->index, unit)->newer : 0;
    return unit;
}

sl_ref reg_order_first(struct registrar *self, struct reg_order *list)
{
    list->walk = list->oldest;
    return reg_order_next(self, list, false);
}
