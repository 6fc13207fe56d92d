/* actors/transporter/publish/feed.c - see feed.h: publishes changes of the shared index. */
#include "actors/transporter/publish/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEED_OPEN_NS \
    (200 * SL_NS_PER_MS) /* until a missing index exists: interval of attempts to open it */
#define FEED_AWAY_NS    (100 * SL_NS_PER_MS) /* no server: sl_directory_feed_republish follows */
#define FEED_REFUSED_NS (5 * SL_NS_PER_MS)   /* the directory's queue is full */
#define FEED_REST_NS    (2 * SL_NS_PER_S)    /* limit of the pause after a long walk */
#define FEED_BUCKETS    4096u                /* in one slice: 256 KiB of table */
#define FEED_SLOTS      65536u
#define FEED_BURST_NS   (100 * SL_NS_PER_MS) /* of the rate: largest saved credit */

/* Rate limit: credit in keys x 10^9. */
struct bucket {
    uint64_t credit, at_ns;
};

struct sl_directory_feed {
    struct sl_directory_feed_options options;
    char shm_dir[1024];
    struct sl_index_view *view; /* NULL: not open */
    struct sl_index_changes *changes;
    struct sl_directory_feed_stats stats;
    uint64_t open_ns;
    uint64_t walk_at_ns, walk_began_ns;
    uint64_t refused_ns; /* since then the walk waits for the directory; 0: it does not */
    bool walking;
    bool republish_due;   /* publish everything again */
    uint64_t again_at_ns; /* when the next refresh begins */
    uint64_t cursor;      /* of the refresh; UINT64_MAX: none runs */
    uint64_t again_rate;
    uint64_t again_wake_ns;
    struct bucket fresh, old;
    /* A walk whose changes are in flight: when they are acknowledged, all it saw is published. */
    struct {
        bool waits;
        uint64_t at_ns, accepted;
    } mark;
    /* A server that may have lost its data gets our keys first, then our member record. */
    struct {
        bool on, waits;
        uint64_t accepted;
    } hold;
    uint64_t walk_from_ns;           /* start of the walk, which misses later changes */
    bool whole;                      /* the server lacks only what walks will find */
    uint64_t refused, again_refused; /* by the server: now, at the start of a refresh */
};

sl_err sl_directory_feed_create(const struct sl_directory_feed_options *options,
                                struct sl_directory_feed **out, struct sl_error *why)
{
    if (options->keys_per_s == 0 || options->key_ttl_ns == 0) {
        return sl_fail(why, SL_ERR_INVALID, "directory feed: a rate or time to live of 0");
    }
    struct sl_directory_feed *feed = calloc(1, sizeof(*feed));
    if (feed == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "directory feed");
    }
    feed->options = *options;
    (void)snprintf(feed->shm_dir, sizeof(feed->shm_dir), "%s", options->shm_dir);
    feed->cursor = UINT64_MAX;
    feed->whole = true;
    *out = feed;
    return SL_OK;
}

/* ---- up to what time everything is published ---- */

/* It is uncertain what the server knows. */
static void mark_void(struct sl_directory_feed *feed)
{
    feed->mark.waits = false;
    feed->stats.published_ns = 0;
}

/* A walk has ended, and its changes are in flight. */
static void mark_set(struct sl_directory_feed *feed)
{
    struct sl_directory_stats stats;
    sl_directory_stats(feed->options.directory, &stats);
    if (feed->hold.on && !feed->hold.waits && !feed->republish_due && feed->cursor == UINT64_MAX) {
        feed->hold.waits = true;
        feed->hold.accepted = stats.accepted;
    }
    if (feed->mark.waits || !feed->whole || sl_index_changes_torn(feed->changes) > 0) {
        return; /* the next walk will do */
    }
    feed->mark.waits = stats.up;
    feed->mark.at_ns = feed->walk_from_ns;
    feed->mark.accepted = stats.accepted;
}

/* Handles acknowledgements: ends the hold, and advances published_ns. */
static void mark_look(struct sl_directory_feed *feed)
{
    struct sl_directory_stats stats;
    sl_directory_stats(feed->options.directory, &stats);
    if (feed->hold.waits &&
        stats.publications_answered + stats.publications_lost >= feed->hold.accepted) {
        feed->hold.on = feed->hold.waits = false;
        sl_directory_hold(feed->options.directory, false);
    }
    if (stats.refused != feed->refused) { /* until the next refresh the server may lack a key */
        feed->refused = stats.refused;
        feed->whole = false;
    }
    if (!stats.up || !feed->whole) {
        mark_void(feed);
    } else if (feed->mark.waits &&
               stats.publications_answered + stats.publications_lost >= feed->mark.accepted) {
        feed->mark.waits = false;
        feed->stats.published_ns = feed->mark.at_ns;
    }
}

static void feed_forget(struct sl_directory_feed *feed)
{
    sl_index_changes_destroy(&feed->changes);
    sl_index_view_close(&feed->view);
    feed->walking = false;
    feed->cursor = UINT64_MAX;
    feed->whole = true; /* there is nothing to publish */
    mark_void(feed);
}

void sl_directory_feed_destroy(struct sl_directory_feed **feed)
{
    if (feed == NULL || *feed == NULL) {
        return;
    }
    feed_forget(*feed);
    free(*feed);
    *feed = NULL;
}

/* ---- the index ---- */

static void feed_open(struct sl_directory_feed *feed, uint64_t now_ns)
{
    feed->open_ns = now_ns + FEED_OPEN_NS;
    sl_err err = sl_index_view_open(feed->shm_dir, &feed->view, NULL);
    if (err == SL_OK) {
        err = sl_index_changes_create(feed->view, feed->shm_dir, false, &feed->changes, NULL);
    }
    if (err == SL_OK) {
        /* Keys are published for the life of their arena, so it gives the incarnation. */
        feed->options.self.incarnation = SL_MAX(sl_index_view_birth(feed->view), 1u);
        err = sl_directory_announce(feed->options.directory, &feed->options.self, NULL);
    }
    if (err != SL_OK) {
        feed_forget(feed);
        return;
    }
    feed->walk_at_ns = now_ns;
    feed->again_at_ns = now_ns + feed->options.key_ttl_ns / 3;
}

sl_err sl_directory_feed_address(struct sl_directory_feed *feed, const char *control,
                                 struct sl_error *why)
{
    struct sl_directory_member self = feed->options.self;
    if (strlen(control) >= sizeof(self.control)) {
        return sl_fail(why, SL_ERR_INVALID, "an address of more than %u bytes",
                       SL_DIRECTORY_ADDRESS_BYTES - 1);
    }
    (void)snprintf(self.control, sizeof(self.control), "%s", control);
    /* Without an index there is nothing to announce yet. */
    sl_err err =
        self.incarnation == 0 ? SL_OK : sl_directory_announce(feed->options.directory, &self, why);
    feed->options.self = err == SL_OK ? self : feed->options.self;
    return err;
}

/* ---- rates ---- */

static void bucket_fill(struct bucket *bucket, uint64_t keys_per_s, uint64_t now_ns)
{
    uint64_t passed_ns = SL_MIN(now_ns - bucket->at_ns, FEED_BURST_NS);
    uint64_t most = SL_MAX(keys_per_s * FEED_BURST_NS, SL_NS_PER_S);
    bucket->credit = SL_MIN(bucket->credit + passed_ns * keys_per_s, most);
    bucket->at_ns = now_ns;
}

static bool bucket_publish(struct sl_directory_feed *feed, struct bucket *bucket, uint64_t id,
                           bool there)
{
    if (there && bucket->credit < SL_NS_PER_S) {
        return false;
    }
    if (!sl_directory_publish(feed->options.directory, id, there)) {
        return false;
    }
    bucket->credit -= there ? SL_NS_PER_S : 0;
    return true;
}

static bool publish_fresh(void *context, const struct sl_index_change *change)
{
    struct sl_directory_feed *feed = context;
    return bucket_publish(feed, &feed->fresh, change->id, change->there);
}

static bool publish_again(void *context, const struct sl_index_change *change)
{
    struct sl_directory_feed *feed = context;
    return bucket_publish(feed, &feed->old, change->id, change->there);
}

/* ---- walking ---- */

static uint64_t feed_pause_ns(const struct sl_directory_feed *feed)
{
    return sl_directory_up(feed->options.directory) ? FEED_REFUSED_NS : FEED_AWAY_NS;
}

static void feed_walk(struct sl_directory_feed *feed, uint64_t now_ns)
{
    if (!feed->walking) {
        feed->walking = true;
        feed->walk_began_ns = feed->walk_from_ns = now_ns;
    } else if (feed->refused_ns != 0) { /* waiting does not count as work */
        feed->walk_began_ns += now_ns - feed->refused_ns;
    }
    feed->refused_ns = 0;
    bucket_fill(&feed->fresh, feed->options.keys_per_s, now_ns);
    switch (sl_index_changes_step(feed->changes, FEED_BUCKETS, publish_fresh, feed)) {
    case SL_INDEX_WALK_ON:
        feed->walk_at_ns = 0; /* continue in the next turn */
        break;
    case SL_INDEX_WALK_END:
        feed->walking = false;
        feed->stats.walks++;
        mark_set(feed);
        feed->stats.walk_ns = now_ns - feed->walk_began_ns;
        feed->walk_at_ns =
            now_ns + SL_MAX(feed->options.walk_ns, SL_MIN(4 * feed->stats.walk_ns, FEED_REST_NS));
        break;
    case SL_INDEX_WALK_REFUSED:
        feed->refused_ns = now_ns;
        feed->walk_at_ns = now_ns + feed_pause_ns(feed);
        break;
    case SL_INDEX_WALK_DEAD:
        feed_forget(feed); /* open_ns is of the last open: no retry at once */
        break;
    }
}

static void again_begin(struct sl_directory_feed *feed, uint64_t now_ns, uint64_t rate)
{
    const struct sl_directory_feed_options *options = &feed->options;
    /* If a refresh takes too long for the time to live, extend that. */
    uint64_t pass_ns = sl_index_changes_count(feed->changes) * SL_NS_PER_S / options->keys_per_s;
    uint64_t ttl_ns = SL_MAX(options->key_ttl_ns, 6 * pass_ns);
    sl_directory_key_ttl(options->directory, ttl_ns);
    feed->cursor = 0;
    feed->again_refused = feed->refused;
    feed->again_rate = SL_MAX(rate, 1u);
    feed->again_at_ns = now_ns + ttl_ns / 3;
    feed->again_wake_ns = now_ns;
}

static void feed_again(struct sl_directory_feed *feed, uint64_t now_ns)
{
    const struct sl_directory_feed_options *options = &feed->options;
    if (feed->republish_due) {
        feed->republish_due = false;
        again_begin(feed, now_ns, options->keys_per_s);
    } else if (feed->cursor == UINT64_MAX) {
        if (now_ns < feed->again_at_ns) {
            return;
        }
        /* Spread over half of the available time. */
        uint64_t count = sl_index_changes_count(feed->changes);
        uint64_t rate = count * 6 * SL_NS_PER_S / options->key_ttl_ns + 1000;
        again_begin(feed, now_ns, SL_MIN(rate, options->keys_per_s));
    }
    if (now_ns < feed->again_wake_ns) {
        return;
    }
    bucket_fill(&feed->old, feed->again_rate, now_ns);
    uint64_t before = feed->cursor;
    sl_index_changes_again(feed->changes, &feed->cursor, FEED_SLOTS, publish_again, feed);
    feed->whole = feed->whole || (feed->cursor == UINT64_MAX && !feed->republish_due &&
                                  feed->refused == feed->again_refused);
    bool whole = feed->cursor == UINT64_MAX || feed->cursor - before == FEED_SLOTS;
    feed->again_wake_ns = whole ? 0 : now_ns + feed_pause_ns(feed);
}

void sl_directory_feed_step(struct sl_directory_feed *feed, uint64_t now_ns)
{
    mark_look(feed);
    if (feed->view == NULL && now_ns >= feed->open_ns) {
        feed_open(feed, now_ns);
    }
    if (feed->view != NULL && now_ns >= feed->walk_at_ns) {
        feed_walk(feed, now_ns);
    }
    if (feed->view != NULL) {
        feed_again(feed, now_ns);
    }
}

uint64_t sl_directory_feed_wake_at(const struct sl_directory_feed *feed)
{
    if (feed->view == NULL) {
        return feed->open_ns;
    }
    uint64_t again_ns = feed->cursor == UINT64_MAX ? feed->again_at_ns : feed->again_wake_ns;
    return SL_MIN(feed->walk_at_ns, again_ns);
}

void sl_directory_feed_republish(struct sl_directory_feed *feed)
{
    feed->republish_due = true;
    feed->whole = false;
    mark_void(feed);
    feed->hold.on = true;
    feed->hold.waits = false;
    sl_directory_hold(feed->options.directory, true);
    feed->walk_at_ns = feed->again_at_ns = feed->again_wake_ns = 0;
}

void sl_directory_feed_stats(const struct sl_directory_feed *feed,
                             struct sl_directory_feed_stats *out)
{
    *out = feed->stats;
    out->key_count = feed->changes == NULL ? 0 : sl_index_changes_count(feed->changes);
}
