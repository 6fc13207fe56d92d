/* actors/registrar/records/lru.c - the least recently used goes first; every value is admitted. */
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"

const struct reg_policy reg_policy_lru = {
    .name = "lru",
    .placed = reg_order_append,
    .removed = reg_order_remove,
    .touched = reg_order_to_newest,
    .passed = reg_order_to_newest,
    .sunk = reg_order_to_oldest,
    .first = reg_order_first,
    .next = reg_order_next,
};
