/* client/lib/figures.c - see figures.h. */
#include "client/lib/figures.h"

/* Between attempts to open the files: those of an earlier release exist and cannot be opened. */
#define FIGURES_PAUSE_NS_MIN (200 * SL_NS_PER_MS)
#define FIGURES_PAUSE_NS_MAX (10 * SL_NS_PER_S)

static struct sl_client_stats figures_of(const struct sl_attachment *at)
{
    return (struct sl_client_stats){.counts =
                                        atomic_load_explicit(&at->counts, memory_order_acquire),
                                    .labels = sl_client_labels(at),
                                    .seen = atomic_load_explicit(&at->seen, memory_order_acquire)};
}

static bool figures_are_current(const struct sl_client *client, const struct sl_attachment *at)
{
    const char *shm_dir = client->paths.shm_dir;
    const struct sl_client_stats now = figures_of(at);
    if (at->old_figures_count == SL_CLIENT_OLD_FIGURES_MAX) {
        return true;
    }
    return sl_counts_are_current(shm_dir, now.counts) &&
           sl_labels_are_current(shm_dir, now.labels) && sl_seen_is_current(shm_dir, now.seen);
}

void sl_client_stats_follow(const struct sl_client *client, struct sl_attachment *at)
{
    const char *shm_dir = client->paths.shm_dir;
    const struct sl_client_stats now = figures_of(at);
    struct sl_client_stats fresh = {0}, old = {0};
    const struct sl_proc_id none = {0}, *self = at->pins == NULL ? &none : &client->self;
    if (at->old_figures_count == SL_CLIENT_OLD_FIGURES_MAX) {
        return;
    }
    if (!sl_counts_are_current(shm_dir, now.counts) &&
        sl_counts_open(shm_dir, *self, &fresh.counts, NULL) == SL_OK) {
        old.counts = now.counts;
        atomic_store_explicit(&at->counts, fresh.counts, memory_order_release);
    }
    if (!sl_labels_are_current(shm_dir, now.labels) &&
        sl_labels_open(shm_dir, &fresh.labels, NULL) == SL_OK) {
        old.labels = now.labels;
        atomic_store_explicit(&at->labels, fresh.labels, memory_order_release);
    }
    if (!sl_seen_is_current(shm_dir, now.seen) &&
        sl_seen_open(shm_dir, &fresh.seen, NULL) == SL_OK) {
        old.seen = now.seen;
        atomic_store_explicit(&at->seen, fresh.seen, memory_order_release);
    }
    if (old.counts != NULL || old.labels != NULL || old.seen != NULL) {
        at->old_figures[at->old_figures_count++] = old; /* other threads may be using them */
    }
}

void sl_client_stats_close(struct sl_attachment *at, bool is_ours)
{
    struct sl_client_stats last = figures_of(at);
    for (uint32_t i = 0; i <= at->old_figures_count; i++) {
        struct sl_client_stats *figures = i < at->old_figures_count ? &at->old_figures[i] : &last;
        (is_ours ? sl_counts_close : sl_counts_leave)(&figures->counts);
        sl_labels_close(&figures->labels);
        sl_seen_close(&figures->seen);
    }
}

void sl_client_stats_poll(struct sl_client *client, struct sl_attachment *at, uint64_t now_ns)
{
    if (figures_are_current(client, at)) {
        return;
    }
    pthread_mutex_lock(&client->lock);
    sl_client_stats_follow(client, at);
    uint64_t pause_ns =
        figures_are_current(client, at)
            ? 0
            : SL_MIN(SL_MAX(at->figures_pause_ns * 2, FIGURES_PAUSE_NS_MIN), FIGURES_PAUSE_NS_MAX);
    at->figures_pause_ns = pause_ns;
    atomic_store_explicit(&at->figures_again_ns, now_ns + pause_ns, memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
}
