/* actors/registrar/records/lru.c - the least recently used goes first; every value is admitted. */
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"

static void lru_newest(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    if (list->newest != unit) {
        reg_order_remove(self, list, unit);
        reg_order_append(self, list, unit);
    }
}

static void lru_oldest(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    if (list->oldest != unit) {
        reg_order_remove(self, list, unit);
        reg_order_prepend(self, list, unit);
    }
}

static sl_ref lru_next(struct registrar *self, struct reg_order *list, bool goes)
{
    sl_ref unit = list->walk;
    (void)goes;
    list->walk = unit != 0 ? sl_index_links(self->index, unit)->newer : 0;
    return unit;
}

static sl_ref lru_first(struct registrar *self, struct reg_order *list)
{
    list->walk = list->oldest;
    return lru_next(self, list, false);
}

const struct reg_policy reg_policy_lru = {
    .name = "lru",
    .placed = reg_order_append,
    .removed = reg_order_remove,
    .touched = lru_newest,
    .passed = lru_newest,
    .sunk = lru_oldest,
    .first = lru_first,
    .next = lru_next,
};
