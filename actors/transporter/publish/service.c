/* actors/transporter/publish/service.c - settings, event loop, log and metrics around directory
 * and feed. */
#include "actors/transporter/publish/service.h"

#include "actors/transporter/publish/feed.h"
#include "ipc/sl_cluster.h"
#include "runtime/directory/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS_PER_S \
    50000u /* new ones, and those told again: the server has look-ups to answer, too */

struct service_metrics {
    sl_metric up, members, keys, published_ns, published, withdrawn, waiting, refused, lost,
        lookups, timeouts, stale, bad, walks, walk_ns;
};

struct sl_directory_service {
    struct sl_env *env;
    struct sl_directory_wishes wishes;
    struct sl_directory *directory;
    struct sl_directory_feed *feed; /* NULL: embedded, or not the node's first transporter */
    struct service_metrics metric;
    bool watched;
    char trouble[SL_ERROR_TEXT_BYTES]; /* "": none */
};

/* ---- events ---- */

static void on_found(void *context, uint64_t cookie, sl_err code,
                     const struct sl_directory_found *found, uint32_t count)
{
    struct sl_directory_service *self = context;
    if (self->wishes.found != NULL) {
        self->wishes.found(self->wishes.context, cookie, code, found, count);
    }
}

static void on_members(void *context)
{
    struct sl_directory_service *self = context;
    const struct sl_directory_member *members = NULL;
    uint32_t count = sl_directory_members(self->directory, &members);
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "directory: %u other nodes", count);
    if (self->wishes.members != NULL) {
        self->wishes.members(self->wishes.context);
    }
}

static void on_link(void *context, bool up, const struct sl_error *why)
{
    struct sl_directory_service *self = context;
    struct sl_env *env = self->env;
    if (up) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "directory: connected, keys are published");
        if (self->feed != NULL) {
            sl_directory_feed_again(self->feed);
        }
        self->trouble[0] = '\0';
        return;
    }
    sl_log_write(env->log, SL_LOG_WARN, 0, "directory is away, other nodes' keys are misses: %s",
                 why->text);
    (void)snprintf(self->trouble, sizeof(self->trouble), "%s", why->text);
}

/* ---- life ---- */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(sl_directory_service, metric.up, "directory_up"),
    SL_METRIC_ROW(sl_directory_service, metric.members, "directory_member_count"),
    SL_METRIC_ROW(sl_directory_service, metric.keys, "directory_key_count"),
    SL_METRIC_ROW(sl_directory_service, metric.published_ns, "directory_published_ns"),
    SL_METRIC_ROW(sl_directory_service, metric.published, "directory_published_count"),
    SL_METRIC_ROW(sl_directory_service, metric.withdrawn, "directory_withdrawn_count"),
    SL_METRIC_ROW(sl_directory_service, metric.waiting, "directory_waiting_count"),
    SL_METRIC_ROW(sl_directory_service, metric.refused, "directory_refused_count"),
    SL_METRIC_ROW(sl_directory_service, metric.lost, "directory_lost_count"),
    SL_METRIC_ROW(sl_directory_service, metric.lookups, "directory_lookup_count"),
    SL_METRIC_ROW(sl_directory_service, metric.timeouts, "directory_lookup_timeout_count"),
    SL_METRIC_ROW(sl_directory_service, metric.stale, "directory_stale_holder_count"),
    SL_METRIC_ROW(sl_directory_service, metric.bad, "directory_bad_reply_count"),
    SL_METRIC_ROW(sl_directory_service, metric.walks, "directory_walk_count"),
    SL_METRIC_ROW(sl_directory_service, metric.walk_ns, "directory_walk_ns"),
};

static void metrics_set(struct sl_directory_service *self)
{
    struct sl_metrics *metrics = self->env->metrics;
    const struct sl_directory_member *members = NULL;
    struct sl_directory_stats stats;
    struct sl_directory_feed_stats feed = {0};
    sl_directory_stats(self->directory, &stats);
    if (self->feed != NULL) {
        sl_directory_feed_stats(self->feed, &feed);
    }
    sl_metric_set(metrics, self->metric.up, stats.up);
    sl_metric_set(metrics, self->metric.members, sl_directory_members(self->directory, &members));
    sl_metric_set(metrics, self->metric.keys, feed.key_count);
    sl_metric_set(metrics, self->metric.published_ns, feed.published_ns);
    sl_metric_set(metrics, self->metric.published, stats.published);
    sl_metric_set(metrics, self->metric.withdrawn, stats.withdrawn);
    sl_metric_set(metrics, self->metric.waiting, stats.waiting);
    sl_metric_set(metrics, self->metric.refused, stats.refused);
    sl_metric_set(metrics, self->metric.lost, stats.links_lost);
    sl_metric_set(metrics, self->metric.lookups, stats.lookups);
    sl_metric_set(metrics, self->metric.timeouts, stats.lookup_timeouts);
    sl_metric_set(metrics, self->metric.stale, stats.stale_holders);
    sl_metric_set(metrics, self->metric.bad, stats.bad_replies);
    sl_metric_set(metrics, self->metric.walks, feed.walks);
    sl_metric_set(metrics, self->metric.walk_ns, feed.walk_ns);
}

static sl_err feed_open(struct sl_directory_service *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    struct sl_directory_feed_options options = {
        .shm_dir = self->env->paths->shm_dir,
        .directory = self->directory,
        .walk_ns = sl_config_u64(config, SL_SET_directory_walk),
        .key_ttl_ns = sl_config_u64(config, SL_SET_directory_key_ttl),
        .keys_per_s = KEYS_PER_S,
    };
    sl_err err = sl_cluster_name(config, options.self.name, why);
    return err == SL_OK ? sl_directory_feed_create(&options, &self->feed, why) : err;
}

static sl_err service_open(struct sl_directory_service *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    char password[SL_DIRECTORY_PASSWORD_BYTES];
    struct sl_directory_options options;
    sl_err err = sl_directory_options_from(env->config, &options, password, why);
    bool redis = err == SL_OK && options.kind == SL_DIRECTORY_REDIS;
    if (redis && env->ops->watch_fd == NULL) {
        err = sl_fail(why, SL_ERR_UNSUPPORTED, "directory: no descriptors in this environment");
    }
    if (err == SL_OK) {
        options.seed = env->ops->random_u64(env);
        options.events = (struct sl_directory_events){
            .context = self, .found = on_found, .members = on_members, .link = on_link};
        err = sl_directory_open(&options, &self->directory, why);
    }
    explicit_bzero(password, sizeof(password));
    if (err != SL_OK || !redis) {
        return err;
    }
    err = feed_open(self, why);
    if (err == SL_OK) {
        err = env->ops->watch_fd(env, sl_directory_fd(self->directory), why);
    }
    self->watched = err == SL_OK;
    return err;
}

sl_err sl_directory_service_open(struct sl_env *env, const struct sl_directory_wishes *wishes,
                                 struct sl_directory_service **out, struct sl_error *why)
{
    struct sl_directory_service *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "directory");
    }
    self->env = env;
    self->wishes = *wishes;
    sl_err err = service_open(self, why);
    if (err != SL_OK) {
        sl_directory_service_close(&self, false);
        return err;
    }
    if (self->watched) {
        sl_metrics_define(self->env->metrics, metric_rows, SL_COUNT(metric_rows), self);
        env->ops->wake_at(env, 0);
    }
    *out = self;
    return SL_OK;
}

void sl_directory_service_close(struct sl_directory_service **service, bool orderly)
{
    if (service == NULL || *service == NULL) {
        return;
    }
    struct sl_directory_service *self = *service;
    if (orderly && self->directory != NULL) {
        sl_directory_leave(self->directory);
    }
    if (self->watched) {
        self->env->ops->unwatch_fd(self->env, sl_directory_fd(self->directory));
    }
    sl_directory_feed_destroy(&self->feed);
    sl_directory_close(&self->directory);
    free(self);
    *service = NULL;
}

void sl_directory_service_step(struct sl_directory_service *self, uint64_t now_ns)
{
    if (!self->watched) {
        return; /* embedded */
    }
    if (self->feed != NULL) {
        sl_directory_feed_step(self->feed, now_ns);
    }
    sl_directory_step(self->directory, now_ns);
    metrics_set(self);
    uint64_t at_ns = sl_directory_wake_at(self->directory);
    if (self->feed != NULL) {
        at_ns = SL_MIN(at_ns, sl_directory_feed_wake_at(self->feed));
    }
    self->env->ops->wake_at(self->env, at_ns);
}

sl_err sl_directory_service_addresses(struct sl_directory_service *self, const char *control,
                                      const char *fabric, struct sl_error *why)
{
    return self->feed == NULL ? SL_OK
                              : sl_directory_feed_addresses(self->feed, control, fabric, why);
}

const char *sl_directory_service_trouble(const struct sl_directory_service *self)
{
    return self->trouble;
}

const char *sl_directory_service_twin(const struct sl_directory_service *self)
{
    return sl_directory_twin(self->directory);
}

struct sl_directory *sl_directory_service_directory(struct sl_directory_service *self)
{
    return self->directory;
}
