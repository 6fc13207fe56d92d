/* actors/transporter/publish/service.c - see service.h: settings, event loop, log and metrics of
 * directory and feed. */
#include "actors/transporter/publish/service.h"

#include "actors/transporter/publish/feed.h"
#include "ipc/msg/sl_cluster.h"
#include "runtime/net/directory/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS_PER_S \
    50000u /* for new keys, and again for refreshes: leaves the server time for lookups */

struct service_metrics {
    sl_metric up, members, keys, published_ns, published, withdrawn, waiting, refused, lost,
        lookups, timeouts, stale, bad, walks, walk_ns;
};

struct tr_service {
    struct sl_directory *directory;
    struct sl_directory_feed *feed;
    struct service_metrics metric;
    char trouble[SL_ERROR_TEXT_BYTES]; /* "": none */
};

/* ---- the read interface ---- */

static sl_err guide_lookup(void *context, const struct sl_directory_lookup *lookup)
{
    const struct transporter *self = context;
    return sl_directory_lookup(self->service->directory, lookup);
}

static void guide_flush(void *context, uint64_t now_ns)
{
    const struct transporter *self = context;
    sl_directory_step(self->service->directory, now_ns);
    self->env->ops->wake_at(self->env, sl_directory_wake_at(self->service->directory));
}

static uint32_t guide_members(void *context, const struct sl_directory_member **out)
{
    const struct transporter *self = context;
    return sl_directory_members(self->service->directory, out);
}

static void on_link(void *context, bool up, const struct sl_error *why)
{
    struct transporter *self = context;
    struct tr_service *service = self->service;
    if (up) {
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "directory: connected, keys are published");
        sl_directory_feed_republish(service->feed);
        service->trouble[0] = '\0';
        return;
    }
    sl_log_write(self->env->log, SL_LOG_WARN, 0,
                 "directory is unreachable, other nodes' keys are misses: %s", why->text);
    (void)snprintf(service->trouble, sizeof(service->trouble), "%s", why->text);
}

/* ---- life ---- */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(tr_service, metric.up, "directory_up"),
    SL_METRIC_ROW(tr_service, metric.members, "directory_member_count"),
    SL_METRIC_ROW(tr_service, metric.keys, "directory_key_count"),
    SL_METRIC_ROW(tr_service, metric.published_ns, "directory_published_ns"),
    SL_METRIC_ROW(tr_service, metric.published, "directory_published_count"),
    SL_METRIC_ROW(tr_service, metric.withdrawn, "directory_withdrawn_count"),
    SL_METRIC_ROW(tr_service, metric.waiting, "directory_waiting_count"),
    SL_METRIC_ROW(tr_service, metric.refused, "directory_refused_count"),
    SL_METRIC_ROW(tr_service, metric.lost, "directory_lost_count"),
    SL_METRIC_ROW(tr_service, metric.lookups, "directory_lookup_count"),
    SL_METRIC_ROW(tr_service, metric.timeouts, "directory_lookup_timeout_count"),
    SL_METRIC_ROW(tr_service, metric.stale, "directory_stale_holder_count"),
    SL_METRIC_ROW(tr_service, metric.bad, "directory_bad_reply_count"),
    SL_METRIC_ROW(tr_service, metric.walks, "directory_walk_count"),
    SL_METRIC_ROW(tr_service, metric.walk_ns, "directory_walk_ns"),
};

static void metrics_set(const struct transporter *self)
{
    struct sl_metrics *metrics = self->env->metrics;
    const struct tr_service *service = self->service;
    const struct sl_directory_member *members = NULL;
    struct sl_directory_stats stats;
    struct sl_directory_feed_stats feed;
    sl_directory_stats(service->directory, &stats);
    sl_directory_feed_stats(service->feed, &feed);
    sl_metric_set(metrics, service->metric.up, stats.up);
    sl_metric_set(metrics, service->metric.members,
                  sl_directory_members(service->directory, &members));
    sl_metric_set(metrics, service->metric.keys, feed.key_count);
    sl_metric_set(metrics, service->metric.published_ns, feed.published_ns);
    sl_metric_set(metrics, service->metric.published, stats.published);
    sl_metric_set(metrics, service->metric.withdrawn, stats.withdrawn);
    sl_metric_set(metrics, service->metric.waiting, stats.waiting);
    sl_metric_set(metrics, service->metric.refused, stats.refused);
    sl_metric_set(metrics, service->metric.lost, stats.links_lost);
    sl_metric_set(metrics, service->metric.lookups, stats.lookups);
    sl_metric_set(metrics, service->metric.timeouts, stats.lookup_timeouts);
    sl_metric_set(metrics, service->metric.stale, stats.stale_holders);
    sl_metric_set(metrics, service->metric.bad, stats.bad_replies);
    sl_metric_set(metrics, service->metric.walks, feed.walks);
    sl_metric_set(metrics, service->metric.walk_ns, feed.walk_ns);
}

static sl_err feed_open(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    struct sl_directory_feed_options options = {
        .shm_dir = self->env->paths->shm_dir,
        .directory = self->service->directory,
        .walk_ns = sl_config_u64(config, SL_SET_directory_walk),
        .key_ttl_ns = sl_config_u64(config, SL_SET_directory_key_ttl),
        .keys_per_s = KEYS_PER_S,
    };
    sl_err err = sl_cluster_name(config, options.self.name, why);
    return err == SL_OK ? sl_directory_feed_create(&options, &self->service->feed, why) : err;
}

sl_err tr_service_open(struct transporter *self, const struct sl_directory_events *events,
                       struct sl_error *why)
{
    struct sl_env *env = self->env;
    char password[SL_DIRECTORY_PASSWORD_BYTES];
    struct sl_directory_options options;
    sl_err err = sl_directory_options_from(env->config, &options, password, why);
    if (err != SL_OK || options.kind != SL_DIRECTORY_REDIS) {
        return err;
    }
    self->service = calloc(1, sizeof(*self->service));
    if (self->service == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "directory");
    } else if (env->ops->watch_fd == NULL) {
        err = sl_fail(why, SL_ERR_UNSUPPORTED, "directory: no descriptors in this environment");
    }
    options.seed = env->ops->random_u64(env);
    options.events = *events;
    options.events.link = on_link;
    err = err == SL_OK ? sl_directory_open(&options, &self->service->directory, why) : err;
    explicit_bzero(password, sizeof(password));
    err = err == SL_OK ? feed_open(self, why) : err;
    err = err == SL_OK ? env->ops->watch_fd(env, sl_directory_fd(self->service->directory), why)
                       : err;
    if (err != SL_OK) {
        tr_service_close(self);
        return err;
    }
    self->guide = (struct tr_directory_ops){
        .context = self, .lookup = guide_lookup, .flush = guide_flush, .members = guide_members};
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self->service);
    env->ops->wake_at(env, 0);
    return SL_OK;
}

sl_err tr_service_join(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    const char *listen = sl_config_text(config, SL_SET_cluster_listen);
    const char *address = sl_config_text(config, SL_SET_cluster_address);
    bool any = false;
    if (self->service == NULL || listen[0] == '\0') {
        return SL_OK; /* without a listener no node can ask us */
    }
    const char *own_address = address[0] != '\0' ? address : listen;
    if (!sl_cluster_address(own_address, &any) || any) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "%s: '%.100s' is not an IP:PORT at which other nodes reach this one%s",
                       address[0] != '\0' ? "cluster_address" : "cluster_listen", own_address,
                       address[0] != '\0' ? "" : ": set cluster_address for the directory");
    }
    return sl_directory_feed_address(self->service->feed, own_address, why);
}

void tr_service_close(struct transporter *self)
{
    struct tr_service *service = self->service;
    if (service == NULL) {
        return;
    }
    if (service->directory != NULL && self->drained) {
        sl_directory_leave(service->directory);
    }
    if (service->directory != NULL) {
        self->env->ops->unwatch_fd(self->env, sl_directory_fd(service->directory));
    }
    self->guide = (struct tr_directory_ops){0};
    sl_directory_feed_destroy(&service->feed);
    sl_directory_close(&service->directory);
    free(service);
    self->service = NULL;
}

void tr_service_step(struct transporter *self, uint64_t now_ns)
{
    struct tr_service *service = self->service;
    if (service == NULL) {
        return;
    }
    sl_directory_feed_step(service->feed, now_ns);
    sl_directory_step(service->directory, now_ns);
    metrics_set(self);
    self->env->ops->wake_at(self->env, SL_MIN(sl_directory_wake_at(service->directory),
                                              sl_directory_feed_wake_at(service->feed)));
}

const char *tr_service_trouble(const struct transporter *self)
{
    return self->service != NULL ? self->service->trouble : "";
}

const char *tr_service_twin(const struct transporter *self)
{
    return self->service != NULL ? sl_directory_twin(self->service->directory) : "";
}
