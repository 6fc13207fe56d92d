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

const struct reg_policy reg_policy_lru = {
    .name = "lru",
    .placed = reg_order_append,
    .removed = reg_order_remove,
    .touched = lru_newest,
    .passed = lru_newest,
    .sunk = lru_oldest,
    .first = reg_order_first,
    .next = reg_order_next,
};
