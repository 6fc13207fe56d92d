/* client/tools/ctl/nics.h - the NICs of this machine: what nodes, tiers and doctor
 * share. */
#ifndef SL_CLIENT_CTL_NICS_H
#define SL_CLIENT_CTL_NICS_H

#include "client/tools/command/command.h"
#include "runtime/net/nics/nics.h"

struct ctl_nics {
    struct sl_nics nics;
    struct sl_gpu gpus[SL_GPUS_MAX];
    uint32_t gpu_count;
    bool wanted;             /* fabric = verbs: a plan is made */
    struct sl_nic_plan plan; /* count 0: there is none, see why */
    struct sl_error why;
    uint64_t sent_bytes_s[SL_NICS_MAX],
        received_bytes_s[SL_NICS_MAX]; /* of the port at this place */
};

/* Looks at the ports below sysfs, and which of them the settings nic, nic_by and ranks give to
 * which rank; by this process's CUDA_VISIBLE_DEVICES, which may be another than the node's. With
 * load it looks at the counters twice, a quarter of a second apart, if there is any port. NULL: no
 * memory. The caller frees it with free(). */
struct ctl_nics *ctl_nics_look(const struct sl_config *config, const char *sysfs, bool load);
/* An array with an object a port. New reference; accepts NULL. */
json_t *ctl_nics_json(const struct ctl_nics *nics);
/* Why no port serves a rank; "": some do, or none is wanted. Accepts NULL. */
const char *ctl_nics_why(const struct ctl_nics *nics);

#endif
