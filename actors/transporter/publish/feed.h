/* actors/transporter/publish/feed.h - publishes to the directory which keys this node holds.
 *
 * The feed walks the shared index (ipc/shm/sl_index_changes.h); the registrar is not involved. A
 * change is published by the next walk, walk_ns after the last one ended, or four times the
 * duration of that one (2 s at most) if this is longer, to use about a fifth of a core. Published
 * keys are refreshed before they expire, and all after sl_directory_feed_republish. */
#ifndef SL_TRANSPORTER_PUBLISH_FEED_H
#define SL_TRANSPORTER_PUBLISH_FEED_H

#include "ipc/shm/sl_index_changes.h"
#include "runtime/net/directory/directory.h"

struct sl_directory_feed; /* opaque; one thread */

struct sl_directory_feed_options {
    const char *shm_dir;            /* borrowed */
    struct sl_directory *directory; /* borrowed */
    struct sl_directory_member
        self;            /* the feed sets the incarnation: the birth of the index's arena */
    uint64_t walk_ns;    /* pause between walks */
    uint64_t key_ttl_ns; /* refreshed after a third; longer if keys_per_s does not suffice */
    uint64_t keys_per_s; /* limit for new keys, and the same again for refreshed keys */
};
/* Errors: SL_ERR_INVALID (keys_per_s or key_ttl_ns is 0), SL_ERR_NO_MEMORY. */
sl_err sl_directory_feed_create(const struct sl_directory_feed_options *options,
                                struct sl_directory_feed **out, struct sl_error *why);
void sl_directory_feed_destroy(struct sl_directory_feed **feed);
/* Does what is due, in slices of well below a millisecond. */
void sl_directory_feed_step(struct sl_directory_feed *feed, uint64_t now_ns);
uint64_t sl_directory_feed_wake_at(const struct sl_directory_feed *feed);
/* Call when the server may have lost its data: publishes all keys again, and then the node. */
void sl_directory_feed_republish(struct sl_directory_feed *feed);
/* Changes the address of this node; "": none. Errors: SL_ERR_INVALID, those of
 * sl_directory_announce. */
sl_err sl_directory_feed_address(struct sl_directory_feed *feed, const char *control,
                                 struct sl_error *why);

struct sl_directory_feed_stats {
    uint64_t key_count; /* published now */
    /* Time up to which the server knows all changes of this node; 0: unknown. */
    uint64_t published_ns;
    uint64_t walks, walk_ns; /* walk_ns: duration of the last walk */
};
void sl_directory_feed_stats(const struct sl_directory_feed *feed,
                             struct sl_directory_feed_stats *out);

#endif
