/* runtime/sl_disk_backend.c - the table of disk back ends: one row each. */
#include "runtime/sl_disk_backend.h"
#include "runtime/sl_disk_uring.h"

struct disk_backend {
    const char *name;
    sl_err (*open)(const char *directory, uint32_t queue_depth, bool direct, struct sl_disk **out,
                   int *event_fd, struct sl_error *why);
};

static const struct disk_backend backends[] = {
    {"uring", sl_disk_uring_open},
};

/* The first one serves: there is no choice yet. */
static sl_err backend_choose(const struct sl_config *config, const struct disk_backend **out,
                             struct sl_error *why)
{
    (void)config;
    (void)why;
    *out = &backends[0];
    return SL_OK;
}

sl_err sl_disk_open(const struct sl_config *config, const char *directory, uint32_t queue_depth,
                    bool direct, struct sl_disk **out, int *event_fd, struct sl_error *why)
{
    const struct disk_backend *backend = NULL;
    sl_err err = backend_choose(config, &backend, why);
    return err == SL_OK ? backend->open(directory, queue_depth, direct, out, event_fd, why) : err;
}
