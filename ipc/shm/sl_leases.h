/* ipc/shm/sl_leases.h - leases: a key or a block that a lookup found stays for a while. Readers
 * write leases, the registrar respects them.
 *
 * The shm file `leases` has one word for each slot of the index's table (a key never changes its
 * slot) and SL_LEASE_BUNDLES words for bundles, selected by the low bits of their hash: two bundles
 * that share a word are leased longer than needed, never shorter. A word holds the end of the
 * lease; the registrar limits it to now + the time to live. Clients map the file writable. It holds
 * nothing but these words, so a hostile client can at worst take or end leases.
 *
 * The registrar *closes* a word that is not leased before it removes a key: one
 * compare-and-exchange decides between it and a reader that leases at the same moment. A reader
 * that finds a closed word looks again. After a bounded number of times (a registrar may have been
 * stopped there) it takes what it finds without a lease. */
#ifndef SL_LEASES_H
#define SL_LEASES_H

#include "ipc/shm/sl_index.h"

#define SL_LEASE_BUNDLES 65536u

/* ---- readers ---- */
struct sl_leases; /* opaque; a writable mapping; any number of threads */

/* Duration of a lease; 0: this node has no leases. May change with a new registrar. */
uint64_t sl_index_view_lease_ttl(const struct sl_index_view *view);
/* Longest hold by a lookup of blocks; 0: no holds. May also change. */
uint64_t sl_index_view_lease_blocks(const struct sl_index_view *view);
/* Maps the leases of this view's index, which must outlive them. Errors: those of sl_shm_file_open,
 * SL_ERR_STALE (they belong to another index). */
sl_err sl_leases_open(const char *shm_dir, const struct sl_index_view *view, struct sl_leases **out,
                      struct sl_error *why);
void sl_leases_close(struct sl_leases **leases);
/* As sl_shm_file_is_cut. */
bool sl_leases_is_cut(const struct sl_leases *leases);
/* As sl_shm_file_current. */
sl_err sl_leases_current(const struct sl_leases *leases, const char *shm_dir);
/* As sl_index_find and sl_index_find_batch, but also leases what is found, from now_ns (monotonic)
 * on. lease_ends (may be NULL): end of the lease; 0: not leased (not found, no time to live, or its
 * word was closed). */
sl_err sl_leases_find(const struct sl_leases *leases, const struct sl_key *key, uint64_t now_ns,
                      struct sl_entry *out, uint64_t *lease_end_ns);
void sl_leases_find_batch(const struct sl_leases *leases, const struct sl_key *keys, uint32_t count,
                          uint64_t now_ns, struct sl_entry *out, uint64_t *lease_ends,
                          sl_err *codes);

/* As sl_index_find_group_batch, but also holds blocks that are SL_OK, from now_ns (monotonic) on
 * and for at most hold_ns: until the end that it returns they are not evicted. 0: nothing is held
 * (none was found, or the node holds no blocks). A block in eviction is SL_ERR_NOT_FOUND. */
uint64_t sl_leases_find_group_batch(const struct sl_leases *leases, const struct sl_key *keys,
                                    uint32_t count, uint64_t now_ns, uint64_t hold_ns,
                                    sl_err *codes);

/* ---- the registrar ---- */

/* Call this after open and before recover. If both times are 0, readers take no leases from now on,
 * and no memory is used. A file that does not fit the index is replaced. Errors: those of
 * sl_shm_file_open and _create. */
sl_err sl_index_leases_open(struct sl_index *index, const char *shm_dir,
                            struct sl_lease_times times, struct sl_error *why);
/* End of the lease of a COMMITTED record or a GROUP by its own word; 0: not leased. An end that is
 * too far ahead is cut. */
uint64_t sl_index_lease_end(struct sl_index *index, sl_ref ref, uint64_t now_ns);
uint64_t sl_index_bundle_lease_end(struct sl_index *index, uint64_t bundle, uint64_t now_ns);
/* Prevents leases of it until it is opened again or its slot gets another key. False: it is
 * leased. */
bool sl_index_lease_close(struct sl_index *index, sl_ref ref, uint64_t now_ns);
bool sl_index_bundle_lease_close(struct sl_index *index, uint64_t bundle, uint64_t now_ns);
void sl_index_lease_reopen(struct sl_index *index, sl_ref ref);
void sl_index_bundle_lease_reopen(struct sl_index *index, uint64_t bundle);

#endif
