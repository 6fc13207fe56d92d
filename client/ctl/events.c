/* client/ctl/events.c - events: what routers hear of a node, for people. */
#include "client/ctl/commands.h"
#include "client/events/subscribe.h"
#include "client/metrics/at.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_hex.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define WAIT_NS (100 * SL_NS_PER_MS)

struct watch {
    const struct ctl *ctl;
    uint64_t count_max; /* events to be printed; 0: without a bound */
    uint64_t count;
    bool once; /* the snapshot alone */
};

static const char *hash_text(const struct ev_hash *hash, char out[2 * SL_BLOCK_HASH_BYTES + 1])
{
    if (hash->length == 0) {
        (void)snprintf(out, 2 * SL_BLOCK_HASH_BYTES + 1, hash->is_signed ? "%" PRId64 : "%" PRIu64,
                       hash->number);
        return out;
    }
    sl_hex_write(out, hash->bytes, hash->length);
    out[2 * hash->length] = '\0';
    return out;
}

static const char *type_text(enum ev_type type)
{
    static const char *const texts[] = {
        [EV_STORED] = "stored", [EV_REMOVED] = "removed", [EV_CLEARED] = "cleared"};
    return texts[type];
}

static void heard_json(const struct ev_heard *heard, const char *hash, const char *parent)
{
    json_t *line = json_pack("{s:s, s:o, s:f, s:b}", "event", type_text(heard->type), "sequence",
                             ctl_json_u64(heard->sequence), "time", heard->time_s, "snapshot",
                             (int)heard->snapshot);
    if (heard->type != EV_CLEARED) {
        (void)json_object_set_new(line, "block", json_string(hash));
        (void)json_object_set_new(line, "parent",
                                  heard->has_parent ? json_string(parent) : json_null());
        (void)json_object_set_new(line, "medium",
                                  ctl_json_bytes(heard->medium, strlen(heard->medium)));
        (void)json_object_set_new(line, "model",
                                  ctl_json_bytes(heard->model, strlen(heard->model)));
        (void)json_object_set_new(line, "group",
                                  heard->group_index == SL_BLOCK_NO_GROUP
                                      ? json_null()
                                      : json_integer(heard->group_index));
    }
    (void)json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER);
    (void)putchar('\n');
    json_decref(line);
}

static void heard_text(const struct ev_heard *heard, const char *hash, const char *parent)
{
    time_t at_s = (time_t)heard->time_s;
    struct tm at;
    char clock[16] = "";
    if (localtime_r(&at_s, &at) != NULL) {
        (void)strftime(clock, sizeof(clock), "%H:%M:%S", &at);
    }
    (void)printf("%s.%03d %-8s", clock, (int)((heard->time_s - (double)at_s) * 1000),
                 type_text(heard->type));
    if (heard->type != EV_CLEARED) {
        (void)putchar(' ');
        ctl_print_bytes(stdout, heard->medium, strlen(heard->medium));
        (void)printf(" %s", hash);
        if (heard->has_parent) {
            (void)printf(" after %s", parent);
        }
        if (heard->group_index != SL_BLOCK_NO_GROUP) {
            (void)printf(" group %" PRIu32, heard->group_index);
        }
        if (heard->model[0] != '\0') {
            (void)printf(" of ");
            ctl_print_bytes(stdout, heard->model, strlen(heard->model));
        }
    }
    (void)putchar('\n');
}

static bool is_over(const struct watch *watch)
{
    return watch->count_max > 0 && watch->count >= watch->count_max;
}

static void heard_print(void *context, const struct ev_heard *heard)
{
    struct watch *watch = context;
    char hash[2 * SL_BLOCK_HASH_BYTES + 1], parent[2 * SL_BLOCK_HASH_BYTES + 1];
    if (is_over(watch)) {
        return;
    }
    watch->count++;
    (void)hash_text(&heard->hash, hash);
    (void)hash_text(&heard->parent, parent);
    watch->ctl->json ? heard_json(heard, hash, parent) : heard_text(heard, hash, parent);
}

/* Where: given, or where the node's publisher says it is. False: printed why not. */
static bool address_find(const struct ctl *ctl, const char **publish, const char **replay,
                         struct metrics_at *at, int *code)
{
    if (*publish != NULL && *replay != NULL) {
        return true;
    }
    if (*publish != NULL || *replay != NULL) {
        *code = ctl_wrong(ctl, "--from and --replay go together");
        return false;
    }
    char *space =
        metrics_at_read(ctl->paths.runtime_dir, "events", at) ? strchr(at->address, ' ') : NULL;
    if (space == NULL) {
        struct sl_error why = {0};
        if (!ctl_registrar_lives(ctl->paths.shm_dir)) {
            (void)ctl_no_pages(ctl, &why);
        } else {
            (void)sl_fail(&why, SL_ERR_UNREACHABLE,
                          "node '%s' publishes no events: start it with --events-listen local, or "
                          "IP:PORT",
                          sl_config_text(ctl->config, SL_SET_instance));
        }
        *code = ctl_failed(ctl, &why);
        return false;
    }
    *space = '\0';
    *publish = at->address;
    *replay = space + 1;
    return true;
}

static int events_command(struct ctl *ctl, int argc, char **argv)
{
    int code = CTL_FINE;
    struct watch watch = {.ctl = ctl};
    struct metrics_at at;
    struct sl_error why = {0};
    struct ev_subscriber *subscriber = NULL;
    struct ev_subscriber_stats stats = {0};
    const char *publish = NULL, *replay = NULL;
    const struct ctl_option options[] = {{.name = "count", .count = &watch.count_max},
                                         {.name = "once", .flag = &watch.once},
                                         {.name = "from", .text = &publish},
                                         {.name = "replay", .text = &replay}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (!address_find(ctl, &publish, &replay, &at, &code)) {
        return code;
    }
    ctl_interruptible();
    sl_err err = ev_subscriber_open(publish, replay, &subscriber, &why);
    uint64_t gaps = 0;
    while (err == SL_OK && !ctl_interrupted() && !is_over(&watch) && !(watch.once && stats.exact)) {
        err = ev_subscriber_step(subscriber, WAIT_NS, heard_print, &watch, &why);
        ev_subscriber_stats(subscriber, &stats);
        if (stats.gaps != gaps) {
            gaps = stats.gaps;
            (void)fprintf(stderr, "sluicectl: messages were missed: asked for\n");
        }
        (void)fflush(stdout);
    }
    ev_subscriber_close(&subscriber);
    return err == SL_OK ? CTL_FINE : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_events = {
    .name = "events",
    .summary = "print which blocks routers hear of, live",
    .help = "events [--once] [--count N] [--from ADDRESS --replay ADDRESS]\n"
            "\n"
            "Prints what the node publishes for routers (sluice-events): first all blocks that are there, then what is stored,\n"
            "removed and cleared, until Ctrl-C. A line an event and block: time, what, medium, hash, the block before it in its\n"
            "chain where that is known, model. What was missed is asked for. --json: an object a line.\n"
            "\n"
            "  --once            what is there, and no more; what came within this second may be missing\n"
            "  --count N         N lines\n"
            "  --from ADDRESS --replay ADDRESS   ZeroMQ's addresses of another publisher, as tcp://10.0.0.1:5557\n"
            "\n"
            "examples: sluicectl events --once --json\n"
            "          sluicectl events --from tcp://10.0.0.1:5557 --replay tcp://10.0.0.1:5558\n"
            CTL_HELP_COMMON,
    .run = events_command,
};
/* clang-format on */
