/* client/tools/ctl/nics.c - RDMA ports as sysfs shows them, so no library is needed. */
#include "client/tools/ctl/nics.h"

#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_NS (250 * SL_NS_PER_MS)

static uint64_t per_second(uint64_t before, uint64_t after, uint64_t elapsed_ns)
{
    uint64_t bytes = after >= before ? after - before : 0; /* else the driver was reloaded */
    return elapsed_ns > 0 ? (uint64_t)((double)bytes * 1e9 / (double)elapsed_ns) : 0;
}

static void load_measure(struct ctl_nics *nics, const char *sysfs)
{
    uint64_t began_ns = sl_clock_monotonic_ns();
    (void)nanosleep(&(struct timespec){.tv_nsec = SAMPLE_NS}, NULL);
    uint64_t elapsed_ns = sl_clock_monotonic_ns() - began_ns;
    for (uint32_t i = 0; i < nics->nics.count; i++) {
        struct sl_nic *nic = &nics->nics.at[i];
        uint64_t sent = nic->sent_bytes, received = nic->received_bytes;
        if (nic->counted && sl_nic_refresh(sysfs, nic)) {
            nics->sent_bytes_s[i] = per_second(sent, nic->sent_bytes, elapsed_ns);
            nics->received_bytes_s[i] = per_second(received, nic->received_bytes, elapsed_ns);
        }
    }
}

static void plan_make(struct ctl_nics *nics, const struct sl_config *config)
{
    const struct sl_nic_sources sources = {
        .list = sl_config_text(config, SL_SET_nic),
        .by_rank = strcmp(sl_config_text(config, SL_SET_nic_by), "rank") == 0,
        .visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
        .gpus = nics->gpus,
        .gpu_count = nics->gpu_count,
        .registered_index = -1,
    };
    uint32_t ranks = (uint32_t)sl_config_u64(config, SL_SET_ranks);
    nics->wanted = strcmp(sl_config_text(config, SL_SET_fabric), "verbs") == 0;
    if (!nics->wanted) {
        return;
    }
    (void)sl_nic_plan_make(&sources, &nics->nics, ranks, &nics->plan, &nics->why);
}

struct ctl_nics *ctl_nics_look(const struct sl_config *config, const char *sysfs, bool load)
{
    struct ctl_nics *nics = calloc(1, sizeof(*nics));
    if (nics == NULL) {
        return NULL;
    }
    nics->gpu_count = sl_gpus_list(SL_NVIDIA_GPUS, sysfs, nics->gpus);
    sl_nics_scan(sysfs, &nics->nics);
    plan_make(nics, config);
    if (load && nics->nics.count > 0) {
        load_measure(nics, sysfs);
    }
    return nics;
}

/* Load of the port's busier direction, in per cent of its speed; 0: unknown. */
static double nic_load(const struct ctl_nics *nics, uint32_t index)
{
    uint64_t bytes_s = SL_MAX(nics->sent_bytes_s[index], nics->received_bytes_s[index]);
    double full_bytes_s = (double)nics->nics.at[index].rate_mbit_s * 1e6 / 8;
    return full_bytes_s > 0 ? 100.0 * (double)bytes_s / full_bytes_s : 0;
}

/* Whether the plan assigns this port to the rank. */
static bool serves(const struct ctl_nics *nics, uint32_t index, uint32_t rank)
{
    const char *name = nics->plan.names[nics->plan.of_rank[rank]];
    return name[0] != '\0' && sl_nics_find(&nics->nics, name) == &nics->nics.at[index];
}

static json_t *ranks_json(const struct ctl_nics *nics, uint32_t index)
{
    json_t *ranks = json_array();
    for (uint32_t rank = 0; rank < nics->plan.rank_count; rank++) {
        if (serves(nics, index, rank)) {
            (void)json_array_append_new(ranks,
                                        json_pack("{s:I, s:s}", "rank", (json_int_t)rank, "near",
                                                  sl_near_text(nics->plan.near_of_rank[rank])));
        }
    }
    return ranks;
}

json_t *ctl_nics_json(const struct ctl_nics *nics)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; nics != NULL && i < nics->nics.count; i++) {
        const struct sl_nic *nic = &nics->nics.at[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:f, s:I, s:o}",
                      "name", nic->name, "state", nic->state, "layer", nic->layer, "netdev",
                      nic->netdev, "usable", sl_nic_is_usable(nic), "virtual_function",
                      nic->virtual_function, "gids", (json_int_t)nic->gid_count, "numa_node",
                      (json_int_t)nic->place.numa_node, "speed_mbit_s",
                      ctl_json_u64(nic->rate_mbit_s), "sent_bytes_s",
                      ctl_json_u64(nics->sent_bytes_s[i]), "received_bytes_s",
                      ctl_json_u64(nics->received_bytes_s[i]), "load_percent", nic_load(nics, i),
                      "mtu_bytes", (json_int_t)nic->mtu_bytes, "ranks", ranks_json(nics, i)));
    }
    return rows;
}

const char *ctl_nics_why(const struct ctl_nics *nics)
{
    return nics != NULL && nics->wanted && nics->plan.count == 0 ? nics->why.text : "";
}
