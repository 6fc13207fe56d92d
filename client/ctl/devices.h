/* client/ctl/devices.h - device memory of engines in the fabric, for people and as JSON: what nodes,
 * tiers and doctor share. */
#ifndef SL_CLIENT_CTL_DEVICES_H
#define SL_CLIENT_CTL_DEVICES_H

#include "client/command/command.h"

enum ctl_device_cause { CTL_DEVICE_FABRIC, CTL_DEVICE_SWAPPER, CTL_DEVICE_NIC, CTL_DEVICE_CAUSES };
struct ctl_devices {
    uint64_t dmabuf_bytes;                 /* registered by dmabuf */
    uint64_t out_bytes[CTL_DEVICE_CAUSES]; /* left out: it goes by the arena and the swapper */
};

/* From the transporter's page; all is 0 where there is none. */
void ctl_devices_read(const struct ctl *ctl, struct ctl_devices *out);
json_t *ctl_devices_json(const struct ctl_devices *devices); /* new reference */

#endif
