/* client/ctl/helpers.c - what serves others beside the actors of a node, and where: /metrics, events for
 * routers. */
#include "client/ctl/helpers.h"
#include "client/metrics/at.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Of events.at: "PUBLISH REPLAY". */
struct events_at {
    struct metrics_at at;
    const char *publish, *replay;
};

static bool events_read(const char *runtime_dir, struct events_at *out)
{
    bool served = metrics_at_read(runtime_dir, "events", &out->at);
    char *space = strchr(out->at.address, ' ');
    out->publish = out->at.address;
    out->replay = space != NULL ? space + 1 : "";
    if (space != NULL) {
        *space = '\0';
    }
    return served;
}

void ctl_helpers_print(const struct ctl *ctl)
{
    struct metrics_at metrics;
    struct events_at events;
    if (metrics_at_read(ctl->paths.runtime_dir, "metrics", &metrics)) {
        (void)printf("/metrics at %s (process %" PRIu32 ")\n", metrics.address, metrics.proc.pid);
    } else {
        (void)printf("/metrics is not served\n");
    }
    if (events_read(ctl->paths.runtime_dir, &events)) {
        (void)printf("events at %s, missed ones at %s (process %" PRIu32 ")\n", events.publish,
                     events.replay, events.at.proc.pid);
    } else {
        (void)printf("no events are published for routers\n");
    }
}

void ctl_helpers_json(const struct ctl *ctl, json_t *into)
{
    struct metrics_at metrics;
    struct events_at events;
    char program[1100];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
    const char *runtime_dir = ctl->paths.runtime_dir;
    (void)json_object_set_new(into, "program", ctl_json_bytes(program, (size_t)SL_MAX(length, 0)));
    bool served = metrics_at_read(runtime_dir, "metrics", &metrics);
    (void)json_object_set_new(into, "metrics_at",
                              served ? ctl_json_text(metrics.address) : json_null());
    bool published = events_read(runtime_dir, &events);
    (void)json_object_set_new(into, "events_at",
                              published ? json_pack("{s:o, s:o}", "publish",
                                                    ctl_json_text(events.publish), "replay",
                                                    ctl_json_text(events.replay))
                                        : json_null());
}
