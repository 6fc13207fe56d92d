/* client/tools/bench/replay_pages.c - reads a node's metrics pages for replay.py by ctypes
 * (libreplay.so). Starting a process for each look would take cores from the node. */
#include "client/tools/bench/replay_content.h"
#include "client/tools/command/command.h"

#include <string.h>

sl_err replay_shm_dir(const char *config_file, int argc, char **argv, char *shm_dir,
                      struct sl_error *why)
{
    struct sl_config *config = NULL;
    struct sl_paths paths;
    sl_err err = sl_config_create(&config, why);
    err = err == SL_OK ? sl_config_load(config, config_file, argc, argv, NULL, why) : err;
    err = err == SL_OK ? sl_paths_from(config, &paths, why) : err;
    if (err == SL_OK) {
        memcpy(shm_dir, paths.shm_dir, sizeof paths.shm_dir);
    }
    sl_config_destroy(&config);
    return err;
}

sl_err replay_counters(const char *page, const char *const *names, uint32_t count, uint64_t *values,
                       struct sl_error *why)
{
    struct sl_metrics_view *view = NULL;
    sl_err err = sl_metrics_view_open(page, &view, why);
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        values[i] = ctl_page_metric(view, names[i]);
    }
    sl_metrics_view_close(&view);
    return err;
}
