/* runtime/net/nics/plan.c - assigns NICs to ranks: from lists, and `auto` by nearness. Pure. */
#include "runtime/net/nics/nics.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Finds or adds the rail of this name; SL_NICS_MAX: no room. */
static uint32_t rail_of(struct sl_nic_plan *plan, const char *name)
{
    uint32_t i = 0;
    while (i < plan->count && strcmp(plan->names[i], name) != 0) {
        i++;
    }
    if (i == plan->count && i < SL_NICS_MAX) {
        (void)snprintf(plan->names[plan->count++], SL_NIC_NAME_BYTES, "%s", name);
    }
    return i;
}

/* ---- auto ---- */

struct candidates {
    const struct sl_nics *nics;
    bool fit[SL_NICS_MAX];
    uint32_t rank_count[SL_NICS_MAX]; /* ranks of each so far */
};

/* Whether another function of the same physical port is used instead: they share its bandwidth. */
static bool is_shadowed(const struct sl_nics *nics, uint32_t index)
{
    const struct sl_nic *nic = &nics->at[index];
    for (uint32_t i = 0; i < nics->count; i++) {
        const struct sl_nic *other = &nics->at[i];
        bool same = nic->physical != 0 && other->physical == nic->physical &&
                    other->port == nic->port && i != index && sl_nic_is_usable(other);
        if (same && nic->virtual_function && (!other->virtual_function || i < index)) {
            return true;
        }
    }
    return false;
}

static uint32_t candidates_find(struct candidates *out, const struct sl_nics *nics)
{
    uint32_t count = 0;
    *out = (struct candidates){.nics = nics};
    for (uint32_t i = 0; i < nics->count; i++) {
        out->fit[i] = sl_nic_is_usable(&nics->at[i]) && !is_shadowed(nics, i);
        count += out->fit[i];
    }
    return count;
}

/* Whether one more rank would get a larger share of the speed of `a` than of `b`. */
static bool share_is_larger(const struct candidates *all, uint32_t a, uint32_t b)
{
    uint64_t rate_a = SL_MAX(all->nics->at[a].rate_mbit_s, UINT64_C(1));
    uint64_t rate_b = SL_MAX(all->nics->at[b].rate_mbit_s, UINT64_C(1));
    return rate_a * (all->rank_count[b] + 1) > rate_b * (all->rank_count[a] + 1);
}

/* Finds the best candidate. place NULL: near to none. */
static uint32_t candidate_nearest(const struct candidates *all, const struct sl_pci_place *place,
                                  enum sl_near *near)
{
    static const struct sl_pci_place nowhere = {.numa_node = -1};
    uint32_t best = SL_NICS_MAX, best_hops = 0;
    for (uint32_t i = 0; i < all->nics->count; i++) {
        uint32_t hops = 0;
        if (!all->fit[i]) {
            continue;
        }
        enum sl_near now =
            sl_pci_near(place != NULL ? place : &nowhere, &all->nics->at[i].place, &hops);
        bool nearer = best == SL_NICS_MAX || now < *near || (now == *near && hops < best_hops);
        bool equal = best != SL_NICS_MAX && now == *near && hops == best_hops;
        if (nearer || (equal && share_is_larger(all, i, best))) {
            best = i;
            best_hops = hops;
            *near = now;
        }
    }
    return best;
}

/* NULL: the rank's GPU or its location is unknown. */
static const struct sl_pci_place *place_of_rank(const struct sl_nic_sources *sources)
{
    uint32_t index = 0;
    if (sl_nic_gpu_index(sources, &index, NULL) != SL_OK) {
        return NULL;
    }
    for (uint32_t i = 0; i < sources->gpu_count; i++) {
        if (sources->gpus[i].index == index) {
            return sources->gpus[i].place.depth > 0 ? &sources->gpus[i].place : NULL;
        }
    }
    return NULL;
}

static sl_err none_usable(const struct sl_nics *nics, struct sl_error *why)
{
    if (nics->count == 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "nic: auto, but there is no rdma device");
    }
    const struct sl_nic *nic = &nics->at[0];
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "nic: auto, but none of %u ports is usable; %s: state '%s', %u usable GIDs",
                   nics->count, nic->name, nic->state, nic->gid_count);
}

static sl_err plan_auto(const struct sl_nic_sources *sources, const struct sl_nics *nics,
                        uint32_t rank_count, struct sl_nic_plan *plan, struct sl_error *why)
{
    struct candidates all;
    struct sl_nic_sources of_rank = *sources;
    if (candidates_find(&all, nics) == 0) {
        return none_usable(nics, why);
    }
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        of_rank.rank = rank;
        of_rank.registered_index = rank_count == 1 ? sources->registered_index : -1;
        uint32_t chosen =
            candidate_nearest(&all, place_of_rank(&of_rank), &plan->near_of_rank[rank]);
        all.rank_count[chosen]++;
        plan->of_rank[rank] = rail_of(plan, nics->at[chosen].name);
    }
    return SL_OK;
}

/* ---- lists ---- */

static sl_err plan_list(const struct sl_nic_sources *sources, uint32_t rank_count,
                        struct sl_nic_plan *plan, struct sl_error *why)
{
    struct sl_nic_sources of_rank = *sources;
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        char name[SL_NIC_NAME_BYTES];
        of_rank.rank = rank;
        of_rank.registered_index = rank_count == 1 ? sources->registered_index : -1;
        sl_err err = sl_nic_choose(&of_rank, name, why);
        if (err != SL_OK) {
            return err;
        }
        plan->near_of_rank[rank] = SL_NEAR_ANY;
        plan->of_rank[rank] = rail_of(plan, name);
        SL_ASSERT(plan->of_rank[rank] < SL_NICS_MAX); /* at most one rail for each rank */
    }
    return SL_OK;
}

sl_err sl_nic_plan_make(const struct sl_nic_sources *sources, const struct sl_nics *nics,
                        uint32_t rank_count, struct sl_nic_plan *out, struct sl_error *why)
{
    static_assert(SL_NIC_RANKS_MAX <= SL_NICS_MAX, "a rail for each rank");
    struct sl_nic_plan plan = {.rank_count = rank_count};
    if (rank_count == 0 || rank_count > SL_NIC_RANKS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "nic: %u ranks, 1 to %u are possible", rank_count,
                       SL_NIC_RANKS_MAX);
    }
    sl_err err = sl_nic_list_is_auto(sources->list)
                     ? plan_auto(sources, nics, rank_count, &plan, why)
                     : plan_list(sources, rank_count, &plan, why);
    if (err == SL_OK) {
        *out = plan;
    }
    return err;
}
