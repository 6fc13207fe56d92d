/* client/ctl/helpers.c - what serves others beside the actors of a node, and where: /metrics, events for
 * routers. For `status` and `doctor`. */
#include "client/ctl/helpers.h"
#include "client/ctl/doctor.h"
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

static bool events_wanted(const struct sl_config *config)
{
    return strcmp(sl_config_text(config, SL_SET_events_listen), "off") != 0;
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
    const char *runtime_dir = ctl->paths.runtime_dir;
    bool served = metrics_at_read(runtime_dir, "metrics", &metrics);
    (void)json_object_set_new(into, "metrics_at",
                              served ? json_string(metrics.address) : json_null());
    bool published = events_read(runtime_dir, &events);
    (void)json_object_set_new(
        into, "events_at",
        published ? json_pack("{s:s, s:s}", "publish", events.publish, "replay", events.replay)
                  : json_null());
}

/* ---- doctor ---- */

/* Whether a program of the node is beside this one. */
bool doctor_program_is_there(const char *name)
{
    char path[1100];
    ssize_t length = readlink("/proc/self/exe", path, 1000);
    path[SL_MAX(length, 0)] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        (void)snprintf(slash, sizeof(path) - (size_t)(slash - path), "/%s", name);
    }
    return slash == NULL || access(path, X_OK) == 0;
}

void doctor_events(struct doctor *doctor)
{
    static const struct doctor_listener listener = {
        .check = "events",
        .setting = "events_listen",
        .mend_open = "a network of routers alone, a firewall, or events_listen = local",
        .reads = "hashes of blocks and names of models"};
    struct events_at events;
    const char *text = sl_config_text(doctor->config, SL_SET_events_listen);
    if (events_read(doctor->paths.runtime_dir, &events)) {
        doctor_say(doctor, DOCTOR_OK, "events", "", "at %s, missed ones at %s", events.publish,
                   events.replay);
    } else if (!events_wanted(doctor->config)) {
        doctor_say(doctor, DOCTOR_OK, "events", "", "off");
    } else if (!doctor_program_is_there("sluice-events")) {
        doctor_say(doctor, DOCTOR_WARN, "events", "install it beside sluicectl",
                   "the program sluice-events is missing: routers hear nothing");
    } else if (strcmp(text, "local") != 0) {
        doctor_address(doctor, &listener, text);
    } else {
        doctor_say(doctor, doctor->running ? DOCTOR_WARN : DOCTOR_OK, "events",
                   doctor->running ? "see events.out in the log directory" : "",
                   doctor->running ? "none are published" : "local sockets");
    }
}
