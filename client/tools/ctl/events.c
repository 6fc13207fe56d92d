/* client/tools/ctl/events.c - sluicectl events: prints which blocks the node gains and loses. It
 * reads the index itself (client/tools/events/follow.h), so the node need not publish events. */
#include "client/tools/ctl/commands.h"
#include "client/tools/events/follow.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_hex.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define WALK_NS  (10 * SL_NS_PER_MS)
#define PAUSE_NS (100 * SL_NS_PER_MS) /* longest delay until Ctrl-C takes effect */
#define INDEX_NS (3 * SL_NS_PER_S)    /* a starting node has its index by then */

struct watch {
    const struct ctl *ctl;
    uint64_t count_max; /* lines to print; 0: no limit */
    uint64_t count;
    bool bytes;    /* hashes in full */
    bool once;     /* print the present blocks, then end */
    bool snapshot; /* the events describe blocks that were present at the start */
};

static const char *hash_text(const struct watch *watch, const struct ev_hash *hash,
                             char out[2 * SL_BLOCK_HASH_BYTES + 1])
{
    if (!watch->bytes) {
        (void)snprintf(out, 2 * SL_BLOCK_HASH_BYTES + 1, hash->is_signed ? "%" PRId64 : "%" PRIu64,
                       hash->number);
        return out;
    }
    sl_hex_write(out, hash->bytes, hash->length);
    out[2 * hash->length] = '\0';
    return out;
}

static void event_json(const struct ev_event *event, const char *type, const char *medium,
                       const char *hash, const char *parent, bool snapshot)
{
    json_t *line = json_pack("{s:s, s:f, s:b}", "event", type, "time",
                             (double)sl_clock_wall_ns() / 1e9, "snapshot", (int)snapshot);
    if (event->type != EV_CLEARED) {
        bool grouped = event->group_index != SL_BLOCK_NO_GROUP;
        (void)json_object_update_new(
            line, json_pack("{s:s, s:s?, s:s, s:o, s:o}", "block", hash, "parent", parent, "medium",
                            medium, "model", ctl_json_text(event->model), "group",
                            grouped ? json_integer(event->group_index) : json_null()));
    }
    (void)json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER);
    (void)putchar('\n');
    json_decref(line);
}

static void event_text(const struct ev_event *event, const char *type, const char *medium,
                       const char *hash, const char *parent)
{
    uint64_t now_ns = sl_clock_wall_ns();
    time_t now_s = (time_t)(now_ns / SL_NS_PER_S);
    struct tm at;
    char clock[16] = "";
    if (localtime_r(&now_s, &at) != NULL) {
        (void)strftime(clock, sizeof(clock), "%H:%M:%S", &at);
    }
    (void)printf("%s.%03d %-8s", clock, (int)(now_ns % SL_NS_PER_S / SL_NS_PER_MS), type);
    if (event->type != EV_CLEARED) {
        (void)printf(" %s %s", medium, hash);
        (void)(parent != NULL && printf(" after %s", parent));
        (void)(event->group_index != SL_BLOCK_NO_GROUP &&
               printf(" group %" PRIu32, event->group_index));
        (void)printf(" of ");
        ctl_print_bytes(stdout, event->model, strlen(event->model));
    }
    (void)putchar('\n');
}

static bool is_over(const struct watch *watch)
{
    return ctl_interrupted() || (watch->count_max > 0 && watch->count >= watch->count_max);
}

static void event_print(void *context, const struct ev_event *event)
{
    static const char *const types[] = {
        [EV_STORED] = "stored", [EV_REMOVED] = "removed", [EV_CLEARED] = "cleared"};
    static const char *const media[] = {[EV_MEMORY] = "CPU", [EV_DISK] = "DISK"};
    struct watch *watch = context;
    char hash[2 * SL_BLOCK_HASH_BYTES + 1], before[2 * SL_BLOCK_HASH_BYTES + 1];
    if (is_over(watch)) {
        return;
    }
    watch->count++;
    bool block = event->type != EV_CLEARED;
    const char *medium = block ? media[event->medium] : "";
    const char *name = block ? hash_text(watch, event->hash, hash) : "";
    const char *parent =
        block && event->parent != NULL ? hash_text(watch, event->parent, before) : NULL;
    watch->ctl->json ? event_json(event, types[event->type], medium, name, parent, watch->snapshot)
                     : event_text(event, types[event->type], medium, name, parent);
}

static sl_err watch_run(struct watch *watch, struct ev_follow *follow, struct sl_error *why)
{
    struct ev_follow_stats stats = {0};
    uint64_t began_ns = sl_clock_monotonic_ns();
    while (!is_over(watch) && !(watch->once && stats.walks > 0)) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        watch->snapshot = stats.walks == 0;
        (void)ev_follow_step(follow, now_ns, event_print, watch);
        (void)fflush(stdout);
        ev_follow_stats(follow, &stats);
        if (stats.walks == 0 && now_ns - began_ns > INDEX_NS) {
            if ((watch->once || stats.indexes == 0) &&
                !ctl_registrar_lives(watch->ctl->paths.shm_dir)) {
                return ctl_no_pages(watch->ctl, why);
            }
            if (stats.indexes == 0) {
                return sl_fail(why, SL_ERR_UNREACHABLE, "the node has not created its index yet");
            }
        }
        uint64_t rest_ns =
            SL_MIN(sl_budget_ns(sl_clock_monotonic_ns(), ev_follow_wake_at(follow)), PAUSE_NS);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
    }
    return SL_OK;
}

static int events_command(struct ctl *ctl, int argc, char **argv)
{
    int code = CTL_SUCCESS;
    struct watch watch = {.ctl = ctl};
    struct sl_error why = {0};
    struct ev_follow *follow = NULL;
    const struct ctl_option options[] = {{.name = "count", .count = &watch.count_max},
                                         {.name = "once", .flag = &watch.once}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (!ctl_registrar_lives(ctl->paths.shm_dir)) {
        (void)ctl_no_pages(ctl, &why);
        return ctl_failed(ctl, &why);
    }
    watch.bytes = strcmp(sl_config_text(ctl->config, SL_SET_events_hashes), "bytes") == 0;
    ctl_interruptible();
    sl_err err =
        ev_follow_create(ctl->paths.shm_dir, sl_config_text(ctl->config, SL_SET_events_model),
                         WALK_NS, &follow, &why);
    err = err == SL_OK ? watch_run(&watch, follow, &why) : err;
    ev_follow_destroy(&follow);
    return err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_events = {
    .name = "events",
    .summary = "print which blocks the node stores and removes, live",
    .help = "events [--once] [--count N]\n"
            "\n"
            "Prints the events that sluice-events publishes for routers: first all present blocks, then each block that is stored, removed\n"
            "or cleared, until Ctrl-C. One line for each event and block: time, event, medium, hash, hash of the block before it if known,\n"
            "model. Reads shared memory, also if the node publishes no events. Settings: --events-hashes int or bytes, --events-model.\n"
            "\n"
            "  --once            print the present blocks and end; blocks of the last second may be missing\n"
            "  --count N         print N lines and end\n"
            "\n"
            "example: sluicectl events --once --json\n"
            CTL_HELP_COMMON,
    .run = events_command,
};
/* clang-format on */
