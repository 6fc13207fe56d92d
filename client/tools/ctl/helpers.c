/* client/tools/ctl/helpers.c - addresses of the node's helpers: /metrics, events for routers. */
#include "client/tools/ctl/status_ready.h"
#include "client/tools/metrics/at.h"

#include <unistd.h>

void ctl_helpers_json(const struct ctl *ctl, json_t *into)
{
    static const char *const helpers[] = {"metrics", "events"};
    char program[1100], name[32];
    struct metrics_at at;
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
    (void)json_object_set_new(into, "program", ctl_json_bytes(program, (size_t)SL_MAX(length, 0)));
    for (size_t i = 0; i < SL_COUNT(helpers); i++) {
        bool served = helper_address_read(ctl->paths.runtime_dir, helpers[i], &at);
        (void)snprintf(name, sizeof(name), "%s_at", helpers[i]);
        (void)json_object_set_new(into, name,
                                  served ? json_pack("{s:o, s:I}", "address",
                                                     ctl_json_text(at.address), "pid",
                                                     (json_int_t)at.proc.pid)
                                         : json_null());
    }
}
