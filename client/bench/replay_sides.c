/* client/bench/replay_sides.c - the nodes of a replay, and what a node has published. */
#include "client/bench/replay_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS (200 * SL_NS_PER_US)

/* ---- nodes ---- */

static sl_err side_read(struct replay *replay, const char *file, size_t length,
                        struct sl_error *why)
{
    if (replay->side_count == REPLAY_SIDES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "--also: more than %u nodes", REPLAY_SIDES_MAX);
    }
    struct replay_side *side = &replay->sides[replay->side_count++];
    side->config_file = strndup(file, length);
    side->own = (struct ctl){.command = replay->sides[0].ctl->command};
    side->ctl = &side->own;
    if (side->config_file == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "replay");
    }
    side->own.config_file = side->config_file;
    sl_err err = sl_config_create(&side->own.config, why);
    if (err == SL_OK) {
        err = sl_config_load(side->own.config, side->config_file, 0, NULL, NULL, why);
    }
    return err == SL_OK ? sl_paths_from(side->own.config, &side->own.paths, why) : err;
}

sl_err replay_sides_read(struct replay *replay, const struct ctl *ctl, struct sl_error *why)
{
    const char *at = replay->options.also;
    sl_err err = SL_OK;
    replay->sides[0].ctl = ctl;
    replay->side_count = 1;
    while (err == SL_OK && at != NULL && *at != '\0') {
        size_t length = strcspn(at, ",");
        err = side_read(replay, at, length, why);
        at += length + (at[length] == ',');
    }
    return err;
}

void replay_sides_free(struct replay *replay)
{
    for (uint32_t i = 0; i < replay->side_count; i++) {
        struct replay_side *side = &replay->sides[i];
        sl_metrics_view_close(&side->door);
        sl_config_destroy(&side->own.config);
        free(side->config_file);
        free(side->known);
    }
}

/* ---- what others can know ---- */

/* Opened anew for each wait: the transporter may have been started again. */
static bool door_open(struct replay_side *side)
{
    char path[1300];
    sl_metrics_view_close(&side->door);
    (void)snprintf(path, sizeof path, "%s/metrics.transporter.0", side->ctl->paths.shm_dir);
    return sl_metrics_view_open(path, &side->door, NULL) == SL_OK;
}

void replay_published_wait(struct replay *replay)
{
    struct replay_side *side = replay->side;
    uint64_t from_ns = sl_clock_monotonic_ns();
    uint64_t until_ns = sl_deadline_ns(from_ns, replay->options.published_ns);
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    if (replay->options.published_ns == 0) {
        return;
    }
    bool open = door_open(side);
    while (!open || ctl_page_metric(side->door, "directory_published_ns") <= from_ns) {
        bool away = open && ctl_page_metric(side->door, "directory_up") == 0;
        if (away || sl_clock_monotonic_ns() >= until_ns) {
            replay->report.unpublished++;
            return;
        }
        (void)nanosleep(&pause, NULL);
        open = open || door_open(side);
    }
}
