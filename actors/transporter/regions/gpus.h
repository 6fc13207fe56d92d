/* actors/transporter/regions/gpus.h - the GPUs of this machine by UUID, as the NVIDIA kernel driver
 * lists them. */
#ifndef SL_TRANSPORTER_REGIONS_GPUS_H
#define SL_TRANSPORTER_REGIONS_GPUS_H

#include "runtime/fabric/core/plan.h"

#define SL_GPUS_MAX 64u

/* Fills gpus in the order of their PCI addresses, which is that of their physical indices. Gives
 * their count; 0 where there is no driver. directory: /proc/driver/nvidia/gpus. */
uint32_t sl_gpus_list(const char *directory, struct sl_gpu gpus[SL_GPUS_MAX]);

#endif
