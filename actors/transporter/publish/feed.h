/* actors/transporter/publish/feed.h - tells the directory what this node holds.
 *
 * The feed walks the shared index by itself (ipc/shm/sl_index_changes.h): the registrar takes no
 * part. A change is told with the next walk, walk_ns after the last one ended (or four times what
 * that one took, if that is longer: a fifth of a core at most). What was told is told again in time
 * before it expires, and all of it after again(). */
#ifndef SL_TRANSPORTER_PUBLISH_FEED_H
#define SL_TRANSPORTER_PUBLISH_FEED_H

#include "ipc/shm/sl_index_changes.h"
#include "runtime/net/directory/directory.h"

struct sl_directory_feed; /* opaque; one thread */

struct sl_directory_feed_options {
    const char *shm_dir;             /* borrowed */
    struct sl_directory *directory;  /* borrowed */
    struct sl_directory_member self; /* the incarnation is the feed's: it names the index's arena */
    uint64_t walk_ns;                /* pause between walks */
    uint64_t key_ttl_ns;             /* told again after a third; longer where rate does not do */
    uint64_t keys_per_s; /* publications of new keys, and likewise of those told again */
};
/* Errors: SL_ERR_INVALID (keys_per_s or key_ttl_ns is 0), SL_ERR_NO_MEMORY. */
sl_err sl_directory_feed_create(const struct sl_directory_feed_options *options,
                                struct sl_directory_feed **out, struct sl_error *why);
void sl_directory_feed_destroy(struct sl_directory_feed **feed);
/* Does what is due, in slices of well below a millisecond. */
void sl_directory_feed_step(struct sl_directory_feed *feed, uint64_t now_ns);
uint64_t sl_directory_feed_wake_at(const struct sl_directory_feed *feed);
/* The server may know nothing: tell everything again, and then that this node is there. */
void sl_directory_feed_again(struct sl_directory_feed *feed);
/* Another address of this node; "": none. Errors: SL_ERR_INVALID, those of sl_directory_announce.
 */
sl_err sl_directory_feed_address(struct sl_directory_feed *feed, const char *control,
                                 struct sl_error *why);

struct sl_directory_feed_stats {
    uint64_t key_count; /* told as there */
    /* The server knows all that was acknowledged here at this time; 0: it may not. */
    uint64_t published_ns;
    uint64_t walks, walk_ns; /* how long the last one took */
};
void sl_directory_feed_stats(const struct sl_directory_feed *feed,
                             struct sl_directory_feed_stats *out);

#endif
