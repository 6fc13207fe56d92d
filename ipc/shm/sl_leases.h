/* ipc/shm/sl_leases.h - leases: a key that a look-up found stays for a while, and so does a block.
 * Readers write them, the registrar heeds them.
 *
 * The segment `leases` in the shm directory has one word for each slot of the index's table (a key
 * never changes its slot) and SL_LEASE_BUNDLES words for bundles, by the low bits of their hash:
 * two bundles that share a word are leased longer than they need be, never shorter. A word says
 * until when; the registrar cuts an end beyond now + the time to live to that. Clients map it
 * writable; it holds nothing but these words, so the worst that a hostile one does is to lease, or
 * to end leases.
 *
 * The registrar *closes* a word that is not leased before it takes a key away: one
 * compare-and-exchange decides between it and a reader that leases at the same moment. A reader
 * that finds a closed word looks again, and after a bounded number of times (a registrar that was
 * stopped there) takes what it finds without a lease. */
#ifndef SL_LEASES_H
#define SL_LEASES_H

#include "ipc/shm/sl_index.h"

#define SL_LEASE_BUNDLES 65536u

/* ---- readers ---- */
struct sl_leases; /* opaque; a writable mapping; any number of threads */

/* How long a lease lasts; 0: this node has none. May change with a new registrar. */
uint64_t sl_index_view_lease_ttl(const struct sl_index_view *view);
/* The longest that a look-up of blocks may hold what it finds; 0: it may not. May change likewise.
 */
uint64_t sl_index_view_lease_blocks(const struct sl_index_view *view);
/* Maps the leases of this view's index, which must outlive them. Errors: those of segments,
 * SL_ERR_STALE (they are another index's). */
sl_err sl_leases_open(const char *shm_dir, const struct sl_index_view *view, struct sl_leases **out,
                      struct sl_error *why);
void sl_leases_close(struct sl_leases **leases);
/* As sl_segment_is_cut. */
bool sl_leases_is_cut(const struct sl_leases *leases);
/* As sl_segment_current. */
sl_err sl_leases_current(const struct sl_leases *leases, const char *shm_dir);
/* As sl_index_find and sl_index_find_batch, leasing what is found from now_ns (monotonic) on.
 * lease_ends (may be NULL): until when; 0: it is not leased (not found, no time to live, or its
 * word was closed). */
sl_err sl_leases_find(const struct sl_leases *leases, const struct sl_key *key, uint64_t now_ns,
                      struct sl_entry *out, uint64_t *lease_end_ns);
void sl_leases_find_batch(const struct sl_leases *leases, const struct sl_key *keys, uint32_t count,
                          uint64_t now_ns, struct sl_entry *out, uint64_t *lease_ends,
                          sl_err *codes);

/* As sl_index_find_group_batch, holding from now_ns (monotonic) on what is SL_OK, for hold_ns at
 * most: until the end that is given it is not evicted. 0: nothing is held, as the node holds no
 * blocks. What is being evicted at this moment is SL_ERR_NOT_FOUND. */
uint64_t sl_leases_find_group_batch(const struct sl_leases *leases, const struct sl_key *keys,
                                    uint32_t count, uint64_t now_ns, uint64_t hold_ns,
                                    sl_err *codes);

/* ---- the registrar ---- */

/* After open, before recover. Without any time readers lease nothing from now on, and no memory is
 * taken. A segment that does not fit the index is made anew. Errors: those of segments. */
sl_err sl_index_leases_open(struct sl_index *index, const char *shm_dir,
                            struct sl_lease_times times, struct sl_error *why);
/* Until when a COMMITTED record or a GROUP is leased by its own word; 0: it is not. An end that
 * lies too far ahead is cut. */
uint64_t sl_index_lease_end(struct sl_index *index, sl_ref ref, uint64_t now_ns);
uint64_t sl_index_bundle_lease_end(struct sl_index *index, uint64_t bundle, uint64_t now_ns);
/* Nobody leases it any more, until it is opened again or its slot gets another key. False: it is
 * leased. */
bool sl_index_lease_close(struct sl_index *index, sl_ref ref, uint64_t now_ns);
bool sl_index_bundle_lease_close(struct sl_index *index, uint64_t bundle, uint64_t now_ns);
void sl_index_lease_reopen(struct sl_index *index, sl_ref ref);
void sl_index_bundle_lease_reopen(struct sl_index *index, uint64_t bundle);

#endif
