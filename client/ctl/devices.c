/* client/ctl/devices.c - see devices.h. */
#include "client/ctl/devices.h"

#include "runtime/sl_metrics.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *metric, *json, *text;
} causes[CTL_DEVICE_CAUSES] = {
    {"pool_device_out_fabric_bytes", "fabric",
     "the fabric takes no dmabuf (tcp, or libibverbs without ibv_reg_dmabuf_mr)"},
    {"pool_device_out_swapper_bytes", "swapper",
     "the driver or the GPU exports none, or the rank's swapper did not answer"},
    {"pool_device_out_nic_bytes", "nic", "the NIC or its driver did not register it"},
};

static bool page_read(void *context, struct sl_metrics_view *view)
{
    struct ctl_devices *devices = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (strcmp(summary.actor, "transporter.0") != 0) {
        return true;
    }
    devices->dmabuf_bytes = ctl_page_metric(view, "pool_device_bytes");
    for (uint32_t i = 0; i < CTL_DEVICE_CAUSES; i++) {
        devices->out_bytes[i] = ctl_page_metric(view, causes[i].metric);
    }
    return false;
}

void ctl_devices_read(const struct ctl *ctl, struct ctl_devices *out)
{
    *out = (struct ctl_devices){0};
    (void)ctl_pages(ctl, page_read, out);
}

json_t *ctl_devices_json(const struct ctl_devices *devices)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < CTL_DEVICE_CAUSES; i++) {
        if (devices->out_bytes[i] > 0) {
            (void)json_array_append_new(
                rows, json_pack("{s:s, s:o, s:s}", "cause", causes[i].json, "bytes",
                                ctl_json_u64(devices->out_bytes[i]), "why", causes[i].text));
        }
    }
    return json_pack("{s:o, s:o}", "dmabuf_bytes", ctl_json_u64(devices->dmabuf_bytes), "left_out",
                     rows);
}
