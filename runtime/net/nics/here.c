/* runtime/net/nics/here.c - plans the NICs of this machine from its settings. */
#include "runtime/base/sl_config.h"
#include "runtime/net/nics/nics.h"

#include <stdlib.h>
#include <string.h>

/* Large and temporary, so it is on the heap. */
struct machine {
    struct sl_gpu gpus[SL_GPUS_MAX];
    struct sl_nics nics;
};

sl_err sl_nic_plan_here(const struct sl_config *config, struct sl_nic_plan *out,
                        struct sl_error *why)
{
    uint32_t ranks = (uint32_t)sl_config_u64(config, SL_SET_ranks);
    SL_AUTO(free) struct machine *machine = calloc(1, sizeof(*machine));
    if (machine == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the list of GPUs");
    }
    const struct sl_nic_sources sources = {
        .list = sl_config_text(config, SL_SET_nic),
        .by_rank = strcmp(sl_config_text(config, SL_SET_nic_by), "rank") == 0,
        .visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
        .gpus = machine->gpus,
        .gpu_count = sl_gpus_list(SL_NVIDIA_GPUS, SL_SYSFS, machine->gpus),
        .registered_index = -1,
    };
    sl_nics_scan(SL_SYSFS, &machine->nics);
    return sl_nic_plan_make(&sources, &machine->nics, ranks, out, why);
}
