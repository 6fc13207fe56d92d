/* client/tools/ctl/nics.h - the NICs of this machine, for nodes, tiers and doctor. */
#ifndef SL_CLIENT_CTL_NICS_H
#define SL_CLIENT_CTL_NICS_H

#include "client/tools/command/command.h"
#include "runtime/net/nics/nics.h"

struct ctl_nics {
    struct sl_nics nics;
    struct sl_gpu gpus[SL_GPUS_MAX];
    uint32_t gpu_count;
    bool wanted;             /* fabric = verbs: there is a plan */
    struct sl_nic_plan plan; /* count 0: no plan, see why */
    struct sl_error why;
    uint64_t sent_bytes_s[SL_NICS_MAX], received_bytes_s[SL_NICS_MAX]; /* by index in nics */
};

/* Reads the ports below sysfs and plans which port serves which rank, by the settings nic, nic_by
 * and ranks and this process's CUDA_VISIBLE_DEVICES, which may differ from the node's. With load it
 * reads the ports' counters twice, 0.25 s apart. The caller frees the result with free(); NULL: no
 * memory. */
struct ctl_nics *ctl_nics_look(const struct sl_config *config, const char *sysfs, bool load);
/* An array with one object for each port. New reference; accepts NULL. */
json_t *ctl_nics_json(const struct ctl_nics *nics);
/* Why no port serves a rank; "": ports do, or none is needed. Accepts NULL. */
const char *ctl_nics_why(const struct ctl_nics *nics);

#endif
