/* client/include/sluice.h - libsluice, the C API of Sluice.
 *
 * A client attaches to the node of this machine that runs under the name `instance`. Lookups and
 * reads of values in memory use shared memory and send no message. A batch of puts takes two round
 * trips; it takes one if values of the same size were put recently, and none for keys that exist.
 *
 * Time: a call with timeout_ns returns within that time; 0 selects the node's setting op_timeout.
 * Threads: several threads may use one client. Calls that send messages take turns; lookups and
 * copies run in parallel. Restart: when the node is started again under the same name, the client
 * attaches to it by itself. Values that are pinned in the old memory stay readable.
 *
 * fork: a client belongs to the process that opened it, and a child opens its own. With its
 * parent's client, a child's calls that send messages, write or pin return SL_ERR_INVALID. The
 * child keeps the mappings until it execs, exits or closes the client. It has no pins: memory that
 * the parent releases may change.
 *
 * Results: a call that can fail returns a code of enum sl_err (runtime/base/sl_error.h; 0 is
 * success) and writes the message to `why`, which may be NULL. Any call that sends messages may
 * return SL_ERR_UNREACHABLE (the node does not run), SL_ERR_TIMEOUT, SL_ERR_INVALID (an argument,
 * which the message names), SL_ERR_NO_MEMORY and, for a read-only client, SL_ERR_PERMISSION. */
#ifndef SLUICE_H
#define SLUICE_H

#include "runtime/base/sl_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented when a structure grows or a call is removed. sl_client_open refuses others. */
#define SLUICE_API_VERSION 6

struct sl_client;
struct sl_client_options {
    uint32_t api_version; /* SLUICE_API_VERSION */
    const char *instance; /* NULL: $SLUICE_INSTANCE or "default" */
    const char *config;   /* config file; NULL: none */
    uint64_t timeout_ns;  /* to attach; 0: 2 s */
    bool read_only; /* shared memory only: works while actors are stopped, cannot pin or write */
    bool leases;    /* lookups lease the values that they find, if the node has leases */
    /* NULL, or strings "name=value" and a final NULL. They override file and environment. */
    const char *const *settings;
};
/* Attaches to a node. Waits for a node that is starting or rebuilding its memory. Errors:
 * SL_ERR_UNREACHABLE (no node runs under this name), SL_ERR_CORRUPT (its shared memory was
 * truncated and is not rebuilt), SL_ERR_FOREIGN, SL_ERR_VERSION, SL_ERR_TIMEOUT, SL_ERR_LIMIT (this
 * process cannot have more descriptors or threads). */
sl_err sl_client_open(const struct sl_client_options *options, struct sl_client **out,
                      struct sl_error *why);
/* Closes a client. Its slot of clients_max becomes free within a heartbeat of the actors, even if
 * the process lives on. First end its views, drafts, ops, engines and pools; no other thread may
 * use it. In a fork this only frees memory, and the parent's client stays open. */
void sl_client_close(struct sl_client **client);
/* Returns the name of the node. */
const char *sl_client_instance(const struct sl_client *client);
/* Counts the client's gets and lookups for a tenant as well (metrics `sluice_tenant_...`). Call it
 * before other threads use the client.
 * tenant: 1 to 63 bytes; longer names are cut. */
void sl_client_tenant(struct sl_client *client, const char *tenant);
#define SL_TROUBLE_BYTES 240u
/* Returns whether the node is degraded, and gives the reason as text, such as "no disk tier". Takes
 * a few system calls and sends no message. */
bool sl_client_health(const struct sl_client *client, char out[SL_TROUBLE_BYTES]);

/* ---- objects ---- */
struct sl_object_key {
    const char *at; /* UTF-8, no NUL inside */
    uint32_t length;
};
/* Returns whether these bytes can be a key: 1 to 1,024 bytes of UTF-8, none of them 0. */
bool sl_key_valid(struct sl_object_key key);
#define SL_SHA256_BYTES 32u
/* Computes the SHA-256 of bytes, to derive a key from them. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_sha256(const void *at, uint64_t length_bytes, unsigned char digest[SL_SHA256_BYTES],
                 struct sl_error *why);
struct sl_buffer {
    void *at;
    uint64_t length_bytes;
};

/* Stores a value under a key. If the key exists, the call succeeds and the key keeps its value.
 * length_bytes: 1 byte to 1 GiB, or to the node's memory_chunk if that is less; split a larger
 * value, and store each piece under its own key. Errors: SL_ERR_NO_SPACE, SL_ERR_BUSY (at the
 * deadline another writer still has the key, or the node was replaced meanwhile), SL_ERR_INVALID
 * (also a value that is too large). */
sl_err sl_put(struct sl_client *client, struct sl_object_key key, const void *value,
              uint64_t length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* Copies a value into a buffer. The memory of a node whose processes were all killed can still be
 * read. After a node was stopped, the call returns SL_ERR_UNREACHABLE within a second.
 * length_bytes: receives the size of the value, even if the buffer is too small. Errors:
 * SL_ERR_NOT_FOUND, SL_ERR_LIMIT (the buffer is too small), SL_ERR_CORRUPT, SL_ERR_LEASE_OVER (the
 * lease expired before the copy was complete). */
sl_err sl_get(struct sl_client *client, struct sl_object_key key, struct sl_buffer buffer,
              uint64_t *length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* Looks up whether a key has a value here. Pins nothing. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_UNREACHABLE. */
sl_err sl_exists(struct sl_client *client, struct sl_object_key key);
/* Removes a value from memory and from every disk of this node. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_TIMEOUT (no answer, or a disk has not confirmed the removal yet), SL_ERR_DISK_AWAY
 * (removed here; an absent disk applies the removal when it returns, do not repeat the call),
 * SL_ERR_LIMIT (too many removals are recorded for an absent disk: repeat when it is back),
 * SL_ERR_NO_SPACE (a disk or the index is full: repeat later), SL_ERR_UNREACHABLE (not removed). */
sl_err sl_remove(struct sl_client *client, struct sl_object_key key, uint64_t timeout_ns,
                 struct sl_error *why);
/* Gives the size of a value. Errors: SL_ERR_NOT_FOUND, SL_ERR_UNREACHABLE. */
sl_err sl_size(struct sl_client *client, struct sl_object_key key, uint64_t *length_bytes);
/* Removes all values of the node. */
sl_err sl_remove_all(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why);

struct sl_view {
    const void *at;
    uint64_t length_bytes;
    uint64_t private_pin;
};
/* Pins a value and gives its address, without a copy. Its bytes neither move nor change until
 * sl_view_release. Errors: as sl_get, SL_ERR_LIMIT (no free pin slot or no room: use sl_get). */
sl_err sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                     uint64_t timeout_ns, struct sl_error *why);
/* Ends a pin. */
void sl_view_release(struct sl_client *client, struct sl_view *view);
/* Returns whether the bytes that were read through a view are the value. It returns false if
 * another process of this user truncated the node's shared memory: some bytes may have read as
 * zeros. Call it after the last access if damaged bytes must not be used; copying calls check
 * it. */
bool sl_view_valid(struct sl_client *client, const struct sl_view *view);

/* A batch has at most 65,536 keys. codes[i] is the result of item i. A batch that was carried out
 * returns SL_OK, whatever the codes are. */

/* Stores values, as sl_put does. The message is about the last one that is too large. Errors: as
 * sl_put. */
sl_err sl_put_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *values, uint32_t count, sl_err *codes,
                    uint64_t timeout_ns, struct sl_error *why);
/* Copies values into buffers, as sl_get does for one.
 * lengths: receives the size of each value. Errors: as sl_get. */
sl_err sl_get_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *buffers, uint32_t count, uint64_t *lengths,
                    sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Pins values, as sl_get_pinned does for one. Errors: as sl_get_pinned. */
sl_err sl_get_pinned_batch(struct sl_client *client, const struct sl_object_key *keys,
                           struct sl_view *views, uint32_t count, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);
/* Looks keys up, as sl_exists does for one. Errors: as sl_exists. */
sl_err sl_exists_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       sl_err *codes);
struct sl_remove_options {
    bool respect_leases; /* leased values stay, with SL_ERR_LEASED */
    bool report_busy;    /* values that are being written are SL_ERR_BUSY, not SL_ERR_NOT_FOUND */
};
/* Removes values, as sl_remove does for one. options: NULL: all false.
 * Errors: as sl_remove, SL_ERR_LEASED, SL_ERR_BUSY (options). */
sl_err sl_remove_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       const struct sl_remove_options *options, sl_err *codes, uint64_t timeout_ns,
                       struct sl_error *why);
/* Reads values that are only on this node's disks into memory, ahead of their use, and waits for
 * them. Reads for loads have priority, also those of the same keys. To make room, only values that
 * are on disk, not pinned and least recently used leave memory. Prefetched values that no client
 * has read yet take a quarter of memory at most.
 * codes: SL_OK (it is in memory now), SL_ERR_EXISTS (it was in memory), SL_ERR_NOT_FOUND (not on
 * this node; other nodes are not asked), SL_ERR_NO_SPACE, SL_ERR_TIMEOUT (a read that has started
 * still completes), SL_ERR_LIMIT (65,536 prefetches of all clients are in flight), or what
 * failed. */
sl_err sl_prefetch_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                         sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Waits until all values that were committed before the call are durable on disk. Errors:
 * SL_ERR_UNSUPPORTED (no disk tier), SL_ERR_DISK_AWAY (no disk of the node has been available for 5
 * s; values in memory stay there and are written when a disk is back: flush again to know when). */
sl_err sl_flush(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why);

/* ---- put options: how long a value stays, and where ---- */

/* Leases. If the node's setting lease_ttl is not 0, a client that was opened with `leases` takes a
 * lease on each value that its lookups find (exists, size, stat, get). For lease_ttl the value is
 * not evicted, and removals that respect leases are refused. Puts take no leases. */

/* Options of a put. All zero: as sl_put. */
struct sl_put_options {
    bool hard_pin;        /* never evicted; only a removal deletes it */
    uint64_t soft_pin_ns; /* time from the commit in which it is evicted only as a last resort */
    /* Replaces a value in one step: the old one is visible until then. Hard pin and bundle stay
     * with the key (another bundle: SL_ERR_INVALID). The call takes over an unfinished put of the
     * key, and waits for another replacement (SL_ERR_BUSY). With a disk it waits until the old one
     * cannot reappear. After SL_ERR_TIMEOUT or SL_ERR_DISK_AWAY it may have either value, after
     * SL_ERR_LIMIT (as in sl_remove) it has the old one. Not for parts of blocks. */
    bool replace;
    /* Does not wait for space (SL_ERR_NO_SPACE) or for another writer (SL_ERR_BUSY). It does wait
     * for space that is about to be free (memory that is being added, values that are being written
     * to disk). Replacements wait for writers. */
    bool no_wait;
    /* Charges the value to the first of these contributions (below) that has room; NULL: to any. */
    const char *const *contributions;
    uint32_t contribution_count; /* at most 16 */
};
/* A run of a value's bytes in the caller's memory. */
struct sl_iov {
    /* Host memory, or CUDA device memory of this process ("order with the engine's streams"). */
    void *at;
    uint64_t length_bytes;
    uint64_t offset_bytes; /* from the start of the value */
};
struct sl_iov_list {
    struct sl_object_key key;
    /* For puts: values of one bundle are leased and evicted together. 0 to 255 bytes. */
    struct sl_object_key bundle;
    const struct sl_iov *at;
    uint32_t count;
};
/* Stores values whose bytes are in several pieces, as sl_put_batch does. The pieces of a value
 * cover it in any order, without gap or overlap; empty pieces are ignored. If a key occurs twice,
 * with `replace` its last item counts.
 * terms: options of all items; NULL: as sl_put. Errors: as sl_put_batch, SL_ERR_INVALID (pieces;
 * the message describes the first such item), SL_ERR_UNSUPPORTED (the node cannot replace). */
sl_err sl_putv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
               const struct sl_put_options *terms, sl_err *codes, uint64_t timeout_ns,
               struct sl_error *why);
/* Copies ranges of values into pieces. Bytes of a piece beyond the value's end are not changed.
 * Pieces may overlap in the value, but not in memory. An item without pieces gives only the size,
 * unless `whole` is set.
 * whole: the pieces must cover all of the value; they may be longer
 * lengths: NULL, or receives the size of each value, also with SL_ERR_LIMIT. Errors: as
 * sl_get_batch, SL_ERR_LIMIT (a piece begins at or after the value's end, or the pieces do not
 * cover it as `whole` requires), SL_ERR_INVALID (pieces). */
sl_err sl_getv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
               bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
               struct sl_error *why);

/* ---- order with the engine's streams ----
 *
 * Sluice reads and writes device memory on its own streams, in this process or in a swapper. They
 * do not wait for the engine's streams, not even for the default one. Therefore:
 *
 * - Before a call that reads device memory (put, draft, store, a layer that is ready), all work
 *   that writes these bytes must have completed. To submit it is not enough: the engine waits for
 *   its stream, or for an event that was recorded after that work.
 * - Before a call that writes device memory (get, load), all work that reads or writes these bytes
 *   must have completed.
 * - Until the call has returned, or the op is fenced, the engine does not write bytes that Sluice
 *   reads, and does not access bytes that Sluice writes.
 * - When a get has returned, or a load or layer has completed, the bytes are visible to work that
 *   is submitted afterwards, on every stream of every process that maps the memory.
 *
 * With an event the engine need not wait (sl_putv_after_event, sl_getv_after_event, events of
 * sl_op_request): Sluice accesses no device memory before the event has completed. Record the event
 * after that work and before the call. Neither destroy it nor record it again until the call has
 * returned or the op has ended. */

/* Stores values whose bytes are in several pieces, after an event of the engine. Host memory is
 * copied without waiting for the event.
 * event: a CUevent (cudaEvent_t) of this process, of any device; NULL: none. Errors: as
 * sl_putv, SL_ERR_TIMEOUT (the event did not complete in time, and no device memory was
 * accessed), SL_ERR_DEVICE (the driver does not know the event). */
sl_err sl_putv_after_event(struct sl_client *client, const struct sl_iov_list *items,
                           uint32_t count, const struct sl_put_options *terms, void *event,
                           sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Copies ranges of values into pieces, after an event of the engine.
 * event: as in sl_putv_after_event. Errors: as sl_getv, SL_ERR_TIMEOUT, SL_ERR_DEVICE. */
sl_err sl_getv_after_event(struct sl_client *client, const struct sl_iov_list *items,
                           uint32_t count, bool whole, void *event, uint64_t *lengths,
                           sl_err *codes, uint64_t timeout_ns, struct sl_error *why);

/* A value that is written in steps and becomes visible at its commit. End it before its client. */
struct sl_put_session;
/* Reserves space for values of these lengths. drafts[i] is NULL if codes[i] is not SL_OK, also when
 * the call fails.
 * bundles: NULL, or one for each value
 * ttl_ns: time until the commit, after which the space is freed; 0: the setting put_release. After
 * put_preempt another writer may take the key. Errors: as sl_putv, SL_ERR_EXISTS (the key
 * exists, and `replace` is not set), SL_ERR_BUSY (another writer has the key; the call does not
 * wait for it). */
sl_err sl_put_start(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_object_key *bundles, const uint64_t *lengths_bytes,
                    uint32_t count, const struct sl_put_options *terms, uint64_t ttl_ns,
                    struct sl_put_session **drafts, sl_err *codes, uint64_t timeout_ns,
                    struct sl_error *why);
/* Writes pieces of a draft. Several threads may do so; in overlaps, the last write counts. Errors:
 * SL_ERR_INVALID (pieces, or beyond the draft's length), SL_ERR_STALE (its ttl_ns has passed, or
 * the node was restarted), SL_ERR_LIMIT (all of client_pins_max are in use), SL_ERR_NO_MEMORY. */
sl_err sl_put_write(struct sl_put_session *draft, const struct sl_iov *pieces, uint32_t count,
                    struct sl_error *why);
/* Makes drafts visible as soon as no thread writes to them. Frees them and sets the pointers to
 * NULL, also on failure. Bytes that were never written are 0.
 * codes: SL_OK, SL_ERR_STALE, SL_ERR_NO_SPACE, SL_ERR_LIMIT (as in sl_put_write), SL_ERR_INVALID
 * (NULL, or the same draft twice), or the reason why there is no answer */
sl_err sl_put_end(struct sl_client *client, struct sl_put_session **drafts, uint32_t count,
                  sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Discards a draft, frees its space and sets the pointer to NULL. */
void sl_put_abort(struct sl_put_session **draft);

/* Memory of this process. Pieces may be anywhere. Registering memory that contains pieces saves one
 * query to the CUDA driver per piece. It neither pins nor touches the memory, whatever its size.
 * Adjoining registrations of one kind count as one. A process has one table, a fork has a copy. */
enum sl_place {
    SL_PLACE_PLAIN = 1,  /* host memory */
    SL_PLACE_PINNED = 2, /* host memory that the CUDA driver knows */
    SL_PLACE_DEVICE = 3, /* CUDA device memory, of `gpu` */
    SL_PLACE_OURS = 4,   /* allocated by sl_memory_alloc */
};
struct sl_place_info {
    enum sl_place place;
    int gpu; /* device ordinal, for SL_PLACE_DEVICE */
};
/* Registers memory of this process. Each registration needs its own sl_memory_unregister. Errors:
 * SL_ERR_INVALID (no address or length, too long), SL_ERR_NO_MEMORY. */
sl_err sl_memory_register(const void *at, uint64_t length_bytes, struct sl_error *why);
/* Ends the latest registration that starts at exactly this address. Errors: SL_ERR_NOT_FOUND. */
sl_err sl_memory_unregister(const void *at, struct sl_error *why);
/* Gives the kind of registered memory. Errors: SL_ERR_NOT_FOUND (not all, or several kinds). */
sl_err sl_memory_find(const void *at, uint64_t length_bytes, struct sl_place_info *out);
/* Allocates zeroed memory that this process shares with its forks, and registers it. The memory is
 * populated, with huge pages if the system has them. It is aligned to 2 MiB from that size on,
 * otherwise to a page. Errors: SL_ERR_INVALID (0 or too large), SL_ERR_NO_MEMORY. */
sl_err sl_memory_alloc(uint64_t length_bytes, void **out, struct sl_error *why);
/* Frees memory of sl_memory_alloc. Errors: SL_ERR_NOT_FOUND (of another origin, or freed). */
sl_err sl_memory_free(void *at, struct sl_error *why);

struct sl_stat {
    uint64_t length_bytes;
    uint64_t lease_end_ns;  /* CLOCK_MONOTONIC; 0: not leased by this lookup */
    uint64_t contributions; /* bit i: in contribution number i; 0: not in memory, or none */
    bool in_memory, on_disk;
    bool hard_pin;
    bool ours; /* put by a client of this process */
    uint64_t soft_pin_end_ns;
    uint32_t writer_pid; /* process that put it, while that lives; 0: not known */
};
/* Looks values up and gives the state that the index has of them. At most 65,536 keys.
 * codes: SL_OK, SL_ERR_NOT_FOUND (also while it is written), SL_ERR_BUSY (it kept changing) */
sl_err sl_stat_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_stat *stats, sl_err *codes);

/* Contributions. On a node with the setting `contributions`, values in memory are charged to memory
 * that processes contribute; the sum is the ceiling (at most `memory`). When a contribution ends
 * (it is withdrawn, or its process dies), its values leave memory and stay on disk. After a node
 * restart, the client's next call registers its contributions again. Closing the client withdraws
 * those that are not lasting. */
struct sl_segment_info {
    char name[256];
    uint32_t number; /* bit in sl_stat.contributions */
    uint64_t length_bytes, used_bytes, value_count;
    char process[32]; /* "": it is lasting */
    uint32_t pid;
};
#define SL_CONTRIBUTIONS_MAX 64u
/* Adds memory of this process to the node's ceiling. Repeating it with the same name and length
 * succeeds.
 * name: unique on the node
 * lasting: the contribution stays when the process ends. Errors: SL_ERR_EXISTS (a living process
 * has the name, or a lasting one has another length), SL_ERR_NO_SPACE (beyond `memory`),
 * SL_ERR_LIMIT (64 exist), SL_ERR_UNSUPPORTED (the node has no contributions). */
sl_err sl_segment_mount(struct sl_client *client, const char *name, uint64_t length_bytes,
                        bool lasting, uint64_t timeout_ns, struct sl_error *why);
/* Ends a contribution, and waits until none of its values is visible. Errors: SL_ERR_PERMISSION (no
 * such name, or of another process), SL_ERR_NOT_FOUND, SL_ERR_UNSUPPORTED. */
sl_err sl_segment_unmount(struct sl_client *client, const char *name, uint64_t timeout_ns,
                          struct sl_error *why);
/* Lists the contributions of the node.
 * infos: room for SL_CONTRIBUTIONS_MAX
 * count: receives their number. Errors: SL_ERR_UNSUPPORTED. */
sl_err sl_segments(struct sl_client *client, struct sl_segment_info *infos, uint32_t *count,
                   uint64_t timeout_ns, struct sl_error *why);
/* The reason why a key (of an object, a part or a block) is a miss. */
struct sl_miss_reason {
    sl_err code;     /* SL_OK: it exists; SL_ERR_BUSY: it is being written; SL_ERR_NOT_FOUND */
    uint64_t ago_ns; /* since the value left the node; 0: not known */
    char text[256];
};
#define SL_EXPLAIN_KEYS_MAX 64u
/* Explains why keys are misses. The registrar remembers the last `ghosts_max` keys whose values
 * left.
 * count: 1 to SL_EXPLAIN_KEYS_MAX. */
sl_err sl_explain(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                  struct sl_miss_reason *reasons, uint64_t timeout_ns, struct sl_error *why);

/* The outcome of a block of an op. */
enum sl_block_outcome {
    SL_OUTCOME_OPEN = 0, /* the op is running */
    SL_OUTCOME_MEMORY,   /* loaded: where the block was when the op first looked */
    SL_OUTCOME_DISK,
    SL_OUTCOME_REMOTE,  /* on another node */
    SL_OUTCOME_MISSING, /* not found: the load ends here */
    SL_OUTCOME_BEHIND,  /* after a missing one: not requested */
    SL_OUTCOME_LEFT,    /* available, but faster to compute than to read */
    SL_OUTCOME_FAILED,  /* not loaded because the op failed */
    SL_OUTCOME_STORED,
    SL_OUTCOME_EXISTED, /* not stored because it existed */
    SL_OUTCOME_REFUSED, /* not stored */
};
struct sl_block_run {
    uint32_t count; /* number of consecutive blocks */
    enum sl_block_outcome outcome;
    uint64_t at_ns; /* loaded: time from the op's start until they were on the device */
};
#define SL_TRACE_CONTEXT_BYTES 128u /* name of a request, including the NUL */
struct sl_op_trace {
    uint64_t op_id, trace_id, engine_id;
    bool store, running; /* store: false for a load */
    sl_err code;
    char reason[256]; /* why it failed, or what it waits for */
    char requester[64], request[SL_TRACE_CONTEXT_BYTES], traceparent[64], model[33];
    uint64_t ago_ns, took_ns;   /* since its start; its duration (so far, if it is running) */
    uint32_t first_block;       /* number of the first run's first block in its prompt */
    struct sl_block_run *runs;  /* run_count entries; owned */
    struct sl_object_key *keys; /* keys MODEL/BLOCK of the first missing blocks; owned */
    uint32_t run_count, key_count;
    uint32_t keys_first; /* block number of keys[0] */
};
/* Gives the outcome of an op, block by block. The coordinator keeps running ops and the last 1,024
 * that ended since it started.
 * id: the op's trace id in hex digits, or the engine's name of the request (sl_trace_context_set)
 * skip: number of the request's ops to skip, the newest first
 * trace: free it with sl_op_trace_free, also after an error. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_UNSUPPORTED (an older node). */
sl_err sl_op_trace_get(struct sl_client *client, const char *id, uint32_t skip,
                       struct sl_op_trace *trace, uint64_t timeout_ns, struct sl_error *why);
/* Frees memory that sl_op_trace_get allocated. */
void sl_op_trace_free(struct sl_op_trace *trace);

/* ---- objects of other nodes ---- */

/* A value that another node has. */
struct sl_remote_info {
    uint64_t length_bytes;
    bool in_memory, on_disk;
    char node[32];
};
/* Returns whether this node may have peers. Sends no message. */
bool sl_client_has_peers(const struct sl_client *client);
/* Asks all reachable peers for keys, for at most peer_timeout. A peer that has leases leases the
 * values that it finds. This node itself is not searched. At most 65,536 keys.
 * codes: SL_OK (another node has it), SL_ERR_NOT_FOUND (no peer that answered has it). */
sl_err sl_remote_lookup_batch(struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, struct sl_remote_info *out, sl_err *codes,
                              uint64_t timeout_ns, struct sl_error *why);
/* Removes values from all other nodes that are reachable and allow it (setting peer_removes). This
 * node keeps its own values.
 * codes: SL_OK (removed from at least one), SL_ERR_NOT_FOUND, SL_ERR_LEASED, SL_ERR_BUSY,
 * SL_ERR_TIMEOUT (a peer did not answer, and may still have it). Errors: as sl_remote_lookup_batch.
 */
sl_err sl_remote_remove_batch(struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, bool respect_leases, sl_err *codes,
                              uint64_t timeout_ns, struct sl_error *why);

/* Another node, as this node's transporter sees it. */
struct sl_node_info {
    char name[32];
    char address[129]; /* where it accepts requests; "": it only sends them */
    char state[16];  /* alive, away, broken; of a node that is no peer: asks, new, or the reason: no
                        key, no address, no name, too many */
    char link[16];   /* data connection: up, connecting, down */
    char source[16]; /* how it was found: peers (the setting), directory; "": by its own request */
    uint64_t incarnation, round_trip_ns, last_seen_ago_ns;
    uint64_t read_bytes, read_values, failures, pinned_values;
};
struct sl_cluster_info {
    char name[32];    /* of this node; "": it has no peers, and accepts none */
    char listen[129]; /* where it accepts peers; "": nowhere */
    char fabric[192]; /* fabrics that carry values */
};
#define SL_NODES_MAX 64u
/* Lists the other nodes that this node knows.
 * self: receives how other nodes see this node
 * nodes: room for SL_NODES_MAX
 * count: receives their number. */
sl_err sl_nodes(struct sl_client *client, struct sl_cluster_info *self, struct sl_node_info *nodes,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

struct sl_object_info {
    struct sl_object_key key;
    uint64_t length_bytes;
    bool in_memory, on_disk;
    uint64_t digest_low, digest_high;
};
/* Calls each() for every visible object, until each() returns false. Its entry is borrowed.
 * prefix: lists only keys that begin with it; NULL: all */
sl_err sl_list(struct sl_client *client, const char *prefix,
               bool (*each)(void *context, const struct sl_object_info *info), void *context,
               struct sl_error *why);
/* Gives a value's size, location and digest. Errors: SL_ERR_NOT_FOUND, SL_ERR_UNREACHABLE. */
sl_err sl_stat(struct sl_client *client, struct sl_object_key key, struct sl_object_info *out);

/* ---- pools: device memory with one owner ----
 *
 * The device memory of one pool of one rank is allocated once, by the engine or by Sluice
 * (sl_pool_owner_decide). Other processes wait for it, map it, and are notified when it ends:
 *
 *   owner   sl_pool_create, fill it, sl_pool_publish ... sl_pool_revoke, sl_pool_release
 *   others  sl_pool_await, or sl_pool_acquire where Sluice allocates it ... sl_pool_wait_over,
 *           sl_pool_release
 *
 * Memory that an engine allocated ends with its process. Memory that Sluice allocated lives as long
 * as a client uses it, even if the process that allocated it dies. Memory of the host device is
 * mapped in this process; for CUDA memory the handle is given (sl_pool_memory_get).
 *
 * One thread at a time uses a sl_pool; sl_pool_wait_over may run beside it. A client has one
 * sl_pool of a key at a time. Release all pools before the client is closed. A node that was
 * stopped and started again knows none of its earlier pools: sl_pool_wait_over reports this. */
enum sl_pool_creator { SL_POOL_BY_ENGINE = 0, SL_POOL_BY_SLUICE = 1 };
struct sl_pool_situation {
    bool profiling;       /* the engine measures how much memory it can have */
    uint64_t host_blocks; /* blocks in host memory, the tier below the device */
    bool storage;         /* there is a storage backend */
    bool split;           /* prefill and decode are different processes */
};
/* Returns who creates a deployment's device pools. While profiling it is the engine. Otherwise it
 * is the engine only if there are no host blocks, no storage backend and no split. Pure. */
enum sl_pool_creator sl_pool_owner_decide(const struct sl_pool_situation *situation);

struct sl_pool_key {
    const char *deployment; /* name of one model replica on this node: 1..63 of printable ASCII */
    uint32_t rank;          /* 0..63 */
    const char *pool;       /* [a-z0-9_-]{1,31}, as in sl_engine_pool */
};
enum sl_pool_memory_kind {
    SL_POOL_MEMORY_FD = 1,       /* shared memory: descriptor fd of process pid */
    SL_POOL_MEMORY_CUDA_IPC = 2, /* cudaIpcMemHandle_t in handle */
    SL_POOL_MEMORY_CUDA_FD = 3,  /* shareable handle: descriptor fd of process pid; a process that
                                    acquires the pool gets its own, which the pool owns */
};
struct sl_pool_memory { /* how other processes map it */
    enum sl_pool_memory_kind kind;
    uint32_t pid; /* sl_pool_publish uses the caller's instead */
    int fd;
    unsigned char handle[64];
    uint64_t offset_bytes; /* where the pool begins in that memory */
    /* UUID of its GPU (cuDeviceGetUuid_v2); all zero: not known. Processes that acquire the pool
     * receive it. An engine whose swapper uses another GPU gets an error that names both. */
    unsigned char gpu[16];
};
struct sl_pool; /* opaque */

/* Starts to create a pool, and gives zeroed and mapped shared memory for it. No other process can
 * create the pool until it is released or revoked, or this process dies. Call sl_pool_publish next.
 * Waits while an earlier pool of this key is being revoked.
 * length_bytes: above 0. Errors: SL_ERR_BUSY (another process, named in the message, creates or
 * maps it), SL_ERR_EXISTS (it is ready; the message names the owner), SL_ERR_LIMIT (pools_max). */
sl_err sl_pool_create(struct sl_client *client, const struct sl_pool_key *key,
                      uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                      struct sl_error *why);
/* Announces that a pool is ready.
 * memory: the caller's own, to be kept until the pool is revoked; the memory of sl_pool_create is
 * then freed. NULL: the memory of sl_pool_create. Errors: SL_ERR_STALE (revoked, or the node no
 * longer knows the pool). */
sl_err sl_pool_publish(struct sl_pool *pool, const struct sl_pool_memory *memory,
                       uint64_t timeout_ns, struct sl_error *why);
/* Waits until a pool is ready, and maps it. Errors: SL_ERR_PEER_DIED (its owner died before it was
 * ready), SL_ERR_CANCELLED (its owner gave it up), SL_ERR_TIMEOUT (the message names its creator,
 * or states that there is none), SL_ERR_EXISTS (this client has it already), SL_ERR_LIMIT. */
sl_err sl_pool_await(struct sl_client *client, const struct sl_pool_key *key, uint64_t timeout_ns,
                     struct sl_pool **out, struct sl_error *why);
/* Maps a pool that Sluice allocates. The rank's swapper allocates it if it does not exist. If a
 * swapper dies meanwhile, its successor is asked, until the timeout. Errors: as sl_pool_await,
 * SL_ERR_BUSY (an engine is creating it), SL_ERR_EXISTS (an engine created it), SL_ERR_INVALID (it
 * has another length, or the node has no such rank), SL_ERR_UNSUPPORTED (the device cannot allocate
 * memory for other processes). */
sl_err sl_pool_acquire(struct sl_client *client, const struct sl_pool_key *key,
                       uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                       struct sl_error *why);
/* Waits until a pool ends: it is being revoked, its owner died, or the node no longer knows it.
 * After SL_OK stop using its memory and release it. Errors: SL_ERR_TIMEOUT (it has not ended). */
sl_err sl_pool_wait_over(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Asks all other processes to unmap a pool. The owner calls it, or any client of a pool that Sluice
 * allocated, whose mapping here ends first. SL_OK: every mapper has unmapped it or is dead, so the
 * memory may be freed, and another process may create the pool. Swappers that do not unmap it
 * within fence_timeout are killed; clients are not. Engines that use the pool end. Release the pool
 * afterwards. Errors: SL_ERR_TIMEOUT (the message names the processes that still map it: repeat),
 * SL_ERR_PERMISSION (not the owner). */
sl_err sl_pool_revoke(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Unmaps a pool and reports this to the registrar. If the owner calls it, a pool that is not ready
 * is given up, and one that is ready is revoked without waiting for its mappers. Waits for an
 * absent registrar for a second at most. Accepts NULL. */
void sl_pool_release(struct sl_pool **pool);
/* Returns the address of a pool in this process, aligned to 16 bytes; NULL: not mapped (CUDA). */
void *sl_pool_at(const struct sl_pool *pool);
/* Returns the length of a pool in bytes. */
uint64_t sl_pool_length(const struct sl_pool *pool);
/* Returns the pool's epoch: the number of this life of its memory, which is never reused. */
uint64_t sl_pool_epoch(const struct sl_pool *pool);
/* Gives the memory of a pool as other processes map it. */
void sl_pool_memory_get(const struct sl_pool *pool, struct sl_pool_memory *out);

/* One row of the node's table of pools. */
struct sl_pool_info {
    char deployment[64], pool[32];
    uint32_t rank;
    char state[16]; /* absent (a process waits for it), allocating, ready, revoking */
    uint64_t epoch, length_bytes;
    bool by_sluice;
    char owner[32];
    uint32_t owner_pid; /* 0: it has ended */
    uint32_t mapper_count, waiter_count;
    char mappers[256]; /* names; truncated if there are many */
};
/* Lists the node's pools.
 * infos: room for count_max rows
 * count: receives the number of pools, which may be larger. */
sl_err sl_pools(struct sl_client *client, struct sl_pool_info *infos, uint32_t count_max,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

/* ---- the buffers that a separate store process maps (hybrid models) ---- */
struct sl_pool_buffer {
    uint64_t start_addr; /* 0: the pool has no buffer, whatever its length */
    uint64_t length_bytes;
};
#define SL_POOL_BUFFERS_MAX 65536u
/* Computes the total length of distinct buffers. A missing or empty buffer counts zero. Of buffers
 * with the same start the longest counts. Buffers with different starts must not overlap. Pure.
 * count: 0 to SL_POOL_BUFFERS_MAX. Errors: SL_ERR_INVALID (overlap, or an end or a sum beyond 64
 * bits; the message names the buffers), SL_ERR_LIMIT (count), SL_ERR_NO_MEMORY. */
sl_err sl_pool_required_bytes(const struct sl_pool_buffer *buffers, uint32_t count,
                              uint64_t *required_bytes, struct sl_error *why);
/* Checks that a buffer that is registered later lies within the mapped ones: in one, or across
 * several that adjoin. Pure. Errors: SL_ERR_INVALID (null, empty, beyond 64 bits, or not fully
 * mapped; the message names it), SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err sl_pool_buffer_check(const struct sl_pool_buffer *mapped, uint32_t count,
                            struct sl_pool_buffer late, struct sl_error *why);

/* ---- engines ---- */
struct sl_engine; /* an engine with all its ranks, as seen by the process that registers it */

enum sl_pool_kind {
    SL_POOL_ATTENTION = 0,
    SL_POOL_MAMBA_STATE = 1,
    SL_POOL_MAMBA_CONV = 2,
    SL_POOL_INDEXER = 3,
    SL_POOL_OTHER = 255
};

/* Everything that gives bytes their meaning. Strings may be NULL (as empty). name: as in a model
 * hub, with its revision; for weights in files use a digest of them, since other files may get the
 * same path. The model identity is a hash of these strings, key format, block_tokens, and every
 * pool's name, kind and part_count. A pool without part_count adds the world size, its number of
 * layers and their piece_bytes instead. The location of a layer in memory does not count. */
struct sl_model {
    const char *name, *revision, *dtype, *layout, *rope, *lora, *quantisation;
};

/* Memory of one layer of one pool of one rank. K and V of a layer are two layers of one pool. */
struct sl_engine_layer {
    uint64_t offset_bytes; /* in the memory of (rank, pool) */
    uint64_t length_bytes;
    uint64_t block_stride_bytes;
    uint64_t piece_bytes; /* bytes of a block in this layer */
    /* In a pool with part_count: the layer's part, counted from the rank's first part. The layers
     * of a part keep the order of the table. */
    uint32_t part;
    /* 0: the piece is contiguous. Otherwise it consists of runs of fragment_bytes, a divisor of
     * piece_bytes, that begin fragment_stride_bytes apart; e.g. some heads of a page of all. */
    uint64_t fragment_bytes, fragment_stride_bytes;
};
struct sl_engine_pool {
    const char *name; /* [a-z0-9_-]{1,31} */
    enum sl_pool_kind kind;
    uint32_t layer_count; /* in a team, 0 for some pools: a pipeline stage has no layers of them */
    const struct sl_engine_layer *layers; /* the same for all ranks */
    uint64_t memory_bytes;                /* of one rank */
    /* Host device: one descriptor of shared memory per rank, or NULL: allocated here (memfd). */
    const int *fds;
    /* One pool of the table of pools per rank, each of memory_bytes, or NULL: see fds. Borrowed
     * until the engine has ended. When a pool is revoked, the registration ends. */
    const struct sl_pool *const *from;
    /* CUDA memory of this process: device[rank][layer] is the address to which offset_bytes of that
     * layer is relative; memory_bytes bounds offset and length. NULL: see from and fds. The memory
     * may come from cudaMalloc or torch's caching allocator, be part of an allocation, or consist
     * of many handles (expandable_segments); sl_engine_memory_kind returns which. It stays mapped
     * until the engine has ended: before an engine unmaps it (sleep mode), it calls sl_engine_end,
     * after which no swapper maps it, and registers it again later. An op on memory that was
     * unmapped or allocated again since fails with SL_ERR_STALE. Host memory that is not shared
     * works as well (an engine on CPUs): the swapper copies with the rights of a debugger. Without
     * them the op fails with SL_ERR_PERMISSION; the message names what to set. Such memory is put
     * in huge pages where the system allows it, within 1 s and a quarter of the timeout. */
    const uint64_t *const *device;
    /* 0: a block has one part per rank, and only engines with the same number of ranks can read it.
     * Otherwise the number of parts, 1 to 64, for any number of ranks: slices of KV heads (and of
     * layers, where pipeline stages differ), of which each rank has some. If several ranks have the
     * same part, one of them stores it, in turn, and all load it. 1: all have the same bytes. */
    uint32_t part_count;
    /* [world]: the first part of each rank, to which `part` of its layers is relative. NULL: rank r
     * has the parts r * part_count / world to (r + 1) * part_count / world, at least one. */
    const uint32_t *first_parts;
};
/* Returns a team number (2^63 or above) for bytes that the processes of an engine agree on. Use 16
 * random bytes or more, or the engine's id as text. Pure. */
uint64_t sl_team_number(const void *at, uint64_t length_bytes);
struct sl_engine_options {
    const char *name;
    struct sl_model model;
    const char *key_format; /* "sluice", "vllm-sha256-cbor", ... */
    const char *seed;
    uint32_t block_tokens;
    uint32_t world;
    uint32_t block_count; /* device blocks of each pool and rank */
    uint32_t pool_count;
    const struct sl_engine_pool *pools;
    /* 0: all ranks are in this process. Otherwise each rank registers itself with the same options
     * but its own memory, and each process that registers can use the whole engine. The ranks
     * [first_rank, first_rank + rank_count) are in this process, and fds, from and device have rows
     * only for these. rank_count 0: none, as in a scheduler; layers and memory of pools are then
     * ignored. Ops begin when all ranks are registered (SL_ERR_NOT_FOUND before). When a rank dies,
     * an op loses that rank's blocks, and the other ranks stay. */
    uint64_t team;
    uint32_t first_rank, rank_count;
};
/* Registers an engine and its memory. Errors: SL_ERR_INVALID (the message describes what is wrong),
 * SL_ERR_STALE (a pool of `from` has ended), SL_ERR_UNSUPPORTED (memory that cannot be shared),
 * SL_ERR_DEVICE, SL_ERR_LIMIT (engines_max). */
sl_err sl_engine_register(struct sl_client *client, const struct sl_engine_options *options,
                          uint64_t timeout_ns, struct sl_engine **out, struct sl_error *why);
/* Ends a registration. Release all its ops before. The call waits until no swapper accesses the
 * memory, for 1.5 s at most: a swapper that is stopped that long is killed. */
void sl_engine_end(struct sl_engine **engine);
/* Returns the host address of a pool that was allocated here or mapped from fds. */
void *sl_engine_memory(struct sl_engine *engine, uint32_t rank, uint32_t pool);
/* Returns the kind of a pool's memory, for people: "shared memory", "cuda ipc", "cuda descriptor",
 * "cuda memory of many handles", "memory of the process". NULL: there is no such rank or pool. */
const char *sl_engine_memory_kind(const struct sl_engine *engine, uint32_t rank, uint32_t pool);
/* Returns the model identity, 32 hex digits. */
const char *sl_engine_model_identity(const struct sl_engine *engine);

/* ---- ops ---- */
#define SL_HASH_BYTES_MAX 64u /* longest key of a block that the engine supplies */
struct sl_op;
/* Hints describe what the engine knows about the blocks of an op and their session. They only
 * change the order of eviction (evict_policy density) and the time at which blocks are read back
 * from disk. Wrong hints can only cost hits. */
enum sl_session {
    SL_SESSION_UNKNOWN = 0,
    SL_SESSION_ENDS = 1,     /* no later request is expected to use more of it than this one */
    SL_SESSION_CONTINUES = 2 /* a later request is expected */
};
enum sl_priority {
    SL_PRIORITY_UNKNOWN = 0, /* as set before; normal at first */
    SL_PRIORITY_LOW = 1,     /* a hit is worth half of a normal one */
    SL_PRIORITY_NORMAL = 2,
    SL_PRIORITY_HIGH = 3 /* twice; the same priority for all has no effect */
};
#define SL_KEEP_NS_LIMIT (7 * UINT64_C(86400) * UINT64_C(1000000000)) /* a week */
struct sl_hints {
    /* The node learns how often this is right, and weighs it accordingly. */
    enum sl_session session;
    enum sl_priority priority;
    /* For this time after the op (rounded up to seconds), its blocks and those before them in their
     * chain are evicted last. This is no pin: they take an eighth of memory at most, and less if
     * they are used less often than the blocks that leave instead. At most SL_KEEP_NS_LIMIT. */
    uint64_t keep_ns;
    /* A name that all ops of the session share; NULL: not known. Only a hash of 64 bits leaves the
     * process. Without a name, an op that continues the blocks of another joins its session. */
    const char *session_id;
    /* Expected time until the session's next op. Its blocks are read from disk into memory shortly
     * before, if that pays. 0: not known; at most SL_KEEP_NS_LIMIT. The node learns how accurate
     * this is, and weighs it accordingly. */
    uint64_t pause_ns;
};
#define SL_PAUSE_UNKNOWN UINT64_MAX
/* Reports during a pause when the next op of a session is expected. Engines call it, or agent
 * frameworks (a tool call will end in 30 s). A report replaces the earlier ones, until the
 * session's next load. No load waits for this call. Any thread.
 * session_id: as in the hints of the session's ops, of which one has ended on this node
 * pause_ns: time from now, 0 to SL_KEEP_NS_LIMIT; 0: the op is about to start; SL_PAUSE_UNKNOWN: no
 * longer known. Errors: SL_ERR_NOT_FOUND (no op of the session ended here, the session ended,
 * others replaced it in the table, or the coordinator was restarted: report again after the next
 * op), SL_ERR_UNSUPPORTED (the node keeps no sessions, or its release lacks this call),
 * SL_ERR_TIMEOUT (also from early releases that lack it). */
sl_err sl_session_pause(struct sl_client *client, const char *session_id, uint64_t pause_ns,
                        uint64_t timeout_ns, struct sl_error *why);
#define SL_HINT_LANES 64u
/* Values with keys of their own that a request of a session got or put. */
struct sl_hinted {
    const struct sl_object_key *keys; /* in the order of the chain */
    uint32_t count;
    /* true: they were got, so the session continued; false: they were put. The chain keeps the
     * values before the first of these keys. If it lacks that key, values that were got become the
     * whole chain, and values that were put are appended. */
    bool asked;
    /* If each rank puts values of its own: the rank's number, below SL_HINT_LANES, so that they are
     * not taken for one chain. sl_session_pause reports to all of them. */
    uint32_t lane;
};
/* Gives hints for values that have keys of their own, as ops do for blocks. Call it after a get, or
 * after a put that is done; values that are not in memory then are ignored. Session, priority and
 * keep_ns cost no message, and a flood of them may lose some. With a session_id, pause_ns and
 * sl_session_pause have the values of the chain read back from disk in time; without one, pause_ns
 * only states that the session continues. Errors: SL_ERR_UNSUPPORTED (an older node). */
sl_err sl_hint_batch(struct sl_client *client, const struct sl_hints *hints,
                     const struct sl_hinted *of, uint64_t timeout_ns, struct sl_error *why);
/* The speed at which the engine computes blocks. A load then skips blocks on a disk or another node
 * that take longer to read than to compute: it ends with SL_OK and a shorter prefix. All zero: it
 * waits for all blocks. A load of a hand-over always waits for all. */
#define SL_COMPUTE_RATE_MAX (UINT64_C(1) << 40)
struct sl_compute_rate {
    uint64_t prefill_tokens_per_s; /* at the start of a prompt; 0: not known; at most
                                      SL_COMPUTE_RATE_MAX */
    /* The position of the token that takes twice as long as the first, as attention makes later
     * ones more expensive. If a token takes a + b * position operations, it is a / b. 0: none. */
    uint64_t attention_doubles_at;
};
/* An event of the engine that the op waits for ("order with the engine's streams", above). */
struct sl_op_event {
    uint32_t rank;
    unsigned char
        handle[64]; /* of cuIpcGetEventHandle; torch: Event(interprocess=True).ipc_handle() */
};
struct sl_op_request {
    const uint32_t *tokens; /* from the start of the prompt; copied */
    uint32_t token_count;
    const char *extras; /* JSON [[...] per block] or NULL */
    uint32_t first_block;
    bool partial;                  /* includes an incomplete last block */
    const uint32_t *device_blocks; /* from first_block on; borrowed until the op is fenced */
    uint32_t device_block_count;
    uint64_t timeout_ns;
    uint64_t trace_id;    /* 0: one is generated */
    uint32_t layer_count; /* 0: whole blocks; else layers of the forward pass (below) */
    /* [layer_count][pools]: number of the pool's layers that belong to that layer or an earlier
     * one. NULL: the layers of every pool divide evenly by layer_count. */
    const uint32_t *layer_ends;
    /* At most one per rank; copied. No block of that rank is read or written before its event has
     * completed; ranks without an event have already waited. Create it with CU_EVENT_INTERPROCESS
     * and record it before the start. Neither destroy it nor record it again until the op has
     * ended. If an event cannot be opened, copies of its rank fail; the result names it. */
    const struct sl_op_event *events;
    uint32_t event_count;
    /* Instead of tokens: keys that the engine supplies, hash_bytes each (1 to 64), one per block
     * from first_block on; copied. With this model identity a key names the same bytes for all
     * engines. token_count is then 0. So is `partial`, except in a hand-over, where it marks the
     * last block as incomplete; its key covers only this part, and is kept for a short time. */
    const unsigned char *hashes;
    uint32_t hash_bytes;
    /* With hashes, [pools]: device_block_count device blocks each. NULL: all use device_blocks. */
    const uint32_t *const *pool_blocks;
    /* With hashes, for a store: key of the block before the first one, hash_bytes; copied. NULL:
     * none, or not known. Chains of blocks are evicted from their end. */
    const unsigned char *before_hash;
    struct sl_hints hints;
    void *context;                  /* returned by sl_op_context */
    struct sl_compute_rate prefill; /* for a load */
};
/* The request that ops belong to, used to explain waits. */
struct sl_trace_context {
    const char
        *request; /* the engine's name of it; NULL or "": none. Less than SL_TRACE_CONTEXT_BYTES */
    const char *traceparent; /* W3C trace context, as in the header; NULL or "": none */
};
/* Sets the origin of the stores, loads and hand-overs that this thread starts from now on.
 * `sluicectl explain --request` finds ops by the request's name. The flight recorder keeps the
 * trace context, and `python -m sluice.otel` exports the ops as its spans.
 * origin: copied; NULL: none. Errors: SL_ERR_INVALID (the message names the field). */
sl_err sl_trace_context_set(const struct sl_trace_context *origin, struct sl_error *why);
struct sl_op_result {
    sl_err code;
    uint64_t op_id, trace_id;
    uint32_t block_count; /* store: blocks of the request; load: blocks loaded (prefix) */
    uint32_t stored_count, existed_count;         /* store */
    uint32_t from_memory, from_disk, from_remote; /* load */
    uint64_t bytes;
    bool fenced; /* the device blocks may be reused */
    struct sl_error why;
    uint32_t not_awaited_count; /* loads with a compute rate: blocks on disk that were skipped */
};
/* Starts to store blocks. Errors: SL_ERR_LIMIT (too many ops in flight), SL_ERR_UNREACHABLE. */
sl_err sl_store_start(struct sl_engine *engine, const struct sl_op_request *request,
                      struct sl_op **op, struct sl_error *why);
/* Starts to load the longest prefix that every rank and pool has. Errors: as sl_store_start. */
sl_err sl_load_start(struct sl_engine *engine, const struct sl_op_request *request,
                     struct sl_op **op, struct sl_error *why);
/* Waits for the end of an op, which ends at its own deadline, even if the node is dead; timeout_ns
 * 0: until then. result: its code is that of the op. Errors: SL_ERR_TIMEOUT (the op is running). */
sl_err sl_op_wait(struct sl_op *op, uint64_t timeout_ns, struct sl_op_result *result);
/* Returns whether an ended store stored a block.
 * block: counted from 0 = first_block */
bool sl_op_block_stored(const struct sl_op *op, uint32_t block);
/* Returns whether a block existed before an ended store.
 * block: as in sl_op_block_stored */
bool sl_op_block_existed(const struct sl_op *op, uint32_t block);
/* Returns whether an ended load has loaded a block into its device block. Other blocks may be
 * partly written.
 * block: as in sl_op_block_stored */
bool sl_op_block_loaded(const struct sl_op *op, uint32_t block);
/* Returns the `context` of the op's request. */
void *sl_op_context(const struct sl_op *op);
/* Cancels an op, which then ends with SL_ERR_CANCELLED unless it completed first. Waits for an
 * answer for 200 ms at most. Without one it returns an error; the op still ends. */
sl_err sl_op_cancel(struct sl_op *op, struct sl_error *why);
/* Waits until an op has ended and nothing accesses its device blocks. Errors: SL_ERR_TIMEOUT. */
sl_err sl_op_wait_fenced(struct sl_op *op, uint64_t timeout_ns, struct sl_error *why);
/* Releases an op, and cancels it if it runs. Reuse its blocks only after it was fenced. */
void sl_op_release(struct sl_op **op);
/* Gives the result of an op without waiting. Errors: SL_ERR_BUSY (it runs). */
sl_err sl_op_poll(struct sl_op *op, struct sl_op_result *result);

/* ---- completed ops, for an event loop ---- */

/* Gives a descriptor that is readable (POLLIN, EPOLLIN) when ops of this client may have ended, of
 * any of its engines, also by their deadlines. Then call sl_client_ended, which makes it unreadable
 * again. No thread is needed. The descriptor belongs to the client, is the same for each call, and
 * is only polled; in a fork it has no use. Errors: SL_ERR_OS, SL_ERR_PERMISSION (read-only),
 * SL_ERR_INVALID (the client is of another process). */
sl_err sl_client_event_fd(struct sl_client *client, int *fd, struct sl_error *why);
/* Gives ops that have ended, each of them once, in the order of their ends. Ops that were released
 * are left out. Returns the number of ops given. Never waits; see sl_op_poll.
 * room: capacity of ops */
uint32_t sl_client_ended(struct sl_client *client, struct sl_op **ops, uint32_t room);

/* ---- looking blocks up, by the engine's keys ----
 *
 * A scheduler calls this before it allocates device blocks to a request. The index in shared memory
 * answers without a message: one probe per block, for any number of ranks and pools. A block exists
 * when all its parts are in memory or on a disk of this node. The process needs no memory in the
 * engine (rank_count 0). Any thread.
 *
 * Blocks may be evicted between lookup and load, unless the lookup holds them. A hold is a lease
 * in shared memory: it costs no message, and ends only by its time, whatever process dies. A held
 * block is not evicted; with a disk it may leave memory when nothing else can. A full disk may
 * still evict it, and a removal deletes it. Blocks that are only on disk stay there. */
struct sl_prefix_query {
    const unsigned char *hashes; /* as in sl_op_request: hash_bytes (1 to 64) per block */
    uint32_t hash_bytes;
    uint32_t count; /* number of blocks, at most 65,536 */
    /* 0: a prefix exists if all its blocks exist. Otherwise it exists if its last `window` blocks
     * do, or all of a shorter prefix: for sliding windows, and with 1 for states (Mamba). */
    uint32_t window;
    uint64_t hold_ns; /* holds the blocks that the prefix needs, for block_lease at most; 0: no */
};
struct sl_prefix_result {
    uint32_t prefix_count;  /* length in blocks of the longest prefix that exists */
    uint64_t held_until_ns; /* CLOCK_MONOTONIC; 0: nothing is held */
};
/* Looks up the longest prefix of a list of blocks.
 * there: NULL, or (count + 7) / 8 bytes: bit i & 7 of byte i >> 3 is set when block i exists (with
 * holds: and is not being evicted). Errors: SL_ERR_INVALID, SL_ERR_UNREACHABLE (it was stopped). */
sl_err sl_prefix_match(struct sl_engine *engine, const struct sl_prefix_query *look,
                       struct sl_prefix_result *out, unsigned char *there, struct sl_error *why);
/* Result of a lookup of pools with the same `window`, which are one registration. */
struct sl_prefix_class {
    const unsigned char *there; /* of sl_prefix_match */
    uint32_t window;
};
/* Returns the number of blocks of the longest prefix that exists in all classes. To hold it, look
 * up the blocks it needs again, with hold_ns. Pure.
 * count: the most blocks that the prefix may have */
uint32_t sl_prefix_match_hybrid(const struct sl_prefix_class *classes, uint32_t class_count,
                                uint32_t count);

/* ---- by layers ----
 *
 * A store or load whose request has layer_count overlaps its copies with the engine's computation.
 * A layer here is one of the forward pass, counted from 0. It covers consecutive layers of each
 * pool, so a pool registers its layers in the order of the forward pass (K and V of layer 0, K and
 * V of layer 1, ...). With 64 layers in a pool and layer_count 32, layer i is 2i and 2i + 1. Pools
 * that take part in only some layers use layer_ends.
 *
 * A store reads nothing of a layer before it is reported ready, and commits when all are stored. If
 * the last layer is never reported, the store ends at its deadline. In a direct hand-over a layer
 * travels to decode while the next ones are computed. Blocks that do not fit into one round (a
 * quarter of the node's memory, or 4096 parts) are read when all layers are ready.
 *
 * A load reports its layers one by one, all with the same number of blocks: the number it ends
 * with. Once it has reported a layer, it loads all layers of these blocks or fails; after a failure
 * no layer may be used. In a load of several rounds the first layer is reported when all rounds but
 * the last are complete. */
#define SL_LAYERS_MAX 4096u
/* Reports that a layer of a store is ready. Report layers in order. Costs one message and does not
 * wait. Errors: SL_ERR_INVALID (not a store by layers, no such layer, or an earlier one is
 * missing), SL_ERR_EXISTS (reported before), the op's code when it has failed. */
sl_err sl_op_layer_ready(struct sl_op *op, uint32_t layer, struct sl_error *why);
/* Waits until a layer of a load is on the device.
 * block_count: receives the number of blocks. Errors: SL_ERR_INVALID (not a load by layers, no such
 * layer), SL_ERR_TIMEOUT (not yet), the op's code when it has failed: no layer may be used then. */
sl_err sl_op_layer_wait(struct sl_op *op, uint32_t layer, uint64_t timeout_ns,
                        uint32_t *block_count, struct sl_error *why);
/* Reports that all ranks have computed layers of a store, for a scheduler that knows this.
 * layers: number of layers from the first one on, whatever was reported before. Errors:
 * SL_ERR_INVALID, the op's code. */
sl_err sl_op_layers_ready(struct sl_op *op, uint32_t layers, struct sl_error *why);

/* With one process per rank, the process that started the op passes its number to the others. Each
 * reports its rank, through the engine that it registered. A layer of a store is ready when all
 * ranks have reported it, or sl_op_layers_ready has. Otherwise the op ends at its deadline. */

/* Returns the op's number, which is unique on the node and not 0. The first call also waits, for
 * 100 ms at most, until the request has left this process. */
uint64_t sl_op_number(struct sl_op *op);
struct sl_rank_layers {
    uint64_t op_number;
    uint32_t rank;   /* of this process */
    uint32_t layers; /* number of layers from the first one on: 1 to SL_LAYERS_MAX */
};
/* Reports that this rank has computed layers. Any thread.
 * timeout_ns: 0: do not wait; a report that arrives before its op is lost, and the next one
 * includes it. Otherwise waits until the coordinator has recorded it. Errors: SL_ERR_INVALID (rank,
 * layers, or not a store by layers), SL_ERR_NOT_FOUND (the op has not been known for a second),
 * SL_ERR_PERMISSION (the op is another engine's). */
sl_err sl_layers_ready(struct sl_engine *engine, const struct sl_rank_layers *what,
                       uint64_t timeout_ns, struct sl_error *why);
struct sl_layers_in {
    uint32_t layers;      /* number of layers, from the first one on, that all ranks have */
    uint32_t block_count; /* number of blocks in each */
};
/* Waits until all ranks have loaded layers of a load. The load may have fewer blocks than were
 * requested, or than earlier layers reported: compare. Any thread. Errors: as sl_layers_ready, and
 * the op's code when it has failed: no layer may be used then. */
sl_err sl_layers_wait(struct sl_engine *engine, const struct sl_rank_layers *what,
                      uint64_t timeout_ns, struct sl_layers_in *out, struct sl_error *why);

/* ---- prefill -> decode ----
 *
 * A request moves from the engine that computes its input (prefill) to the engine that decodes it,
 * on any node.
 *
 * Through storage: prefill stores all blocks of the input, including an incomplete last one, and
 * Sluice holds them in memory. Prefill's receipt travels with the first token. Decode loads the
 * blocks.
 *
 *   decode    sl_kv_receive_start(id, its blocks)  early: it waits
 *   prefill   sl_kv_send_start(id, its blocks); sl_op_poll in its token loop;
 *             sl_op_transfer_params; then sends the first token, with the receipt
 *   decode    sl_kv_arrived(receipts of a batch of first tokens); sl_op_poll
 *             SL_OK: all blocks are loaded. SL_ERR_HANDOVER: answer 502; the blocks are free
 *             after sl_op_wait_fenced. At the end of the request only decode stores what it
 *             added (sl_store_start).
 *
 * Where engines send nothing along with the first token, decode names prefill's node (`from`), a
 * peer of its own node. That node reports when the blocks are stored; decode may begin before
 * prefill. Prefill's node frees the blocks when decode has loaded them or failed, and after hold_ns
 * at the latest; sl_kv_end does so explicitly.
 *
 * Direct: decode's node issues a ticket (sl_op_ticket), which travels with the announcement, or by
 * itself to the node in `from`. Under it prefill's node lends its blocks, and decode's node reads
 * them into decode's device blocks. Blocks that cannot travel this way, or fail, are sent through
 * storage if the setting handover_fallback allows it; so the receipt travels with the first token
 * in both modes.
 *
 * Either side may work by layers: prefill, so that layers travel while others are computed; decode,
 * so that it begins with the first layer while others arrive. */
enum sl_handover_mode {
    SL_HANDOVER_BY_ENVIRONMENT = 0, /* see sl_handover_mode_get */
    SL_HANDOVER_BY_STORAGE = 1,
    SL_HANDOVER_DIRECT = 2,
};
/* Gives the mode of the environment variable FD_PD_TRANSFER_VIA_STORAGE. true, yes, on, 1: through
 * storage; false, no, off, 0, or not set: direct. Errors: SL_ERR_CONFIG (any other value). */
sl_err sl_handover_mode_get(enum sl_handover_mode *out, struct sl_error *why);

/* Plain data that prefill passes to decode unchanged; both hosts have the same byte order. */
struct sl_transfer_params {
    uint64_t handover_id;
    uint64_t keys_low, keys_high; /* of model and last key; both sides derive the same */
    uint32_t block_end;           /* blocks of the input, including an incomplete last one */
    char node[32];                /* prefill's node_name; "": it has none */
};
struct sl_ticket { /* plain data, as a receipt; allows a peer to lend blocks to decode */
    uint64_t keys_low, keys_high;
    uint32_t first_block, block_end; /* decode already has the blocks before first_block */
    uint32_t length_bytes;
    unsigned char bytes[128];
};
struct sl_handover_options {
    uint64_t id; /* > 0, the same on both sides, never reused: a random number */
    enum sl_handover_mode mode;
    uint64_t hold_ns; /* prefill: time that decode may take; 0: setting handover_hold */
    const struct sl_transfer_params
        *receipt;                   /* decode: if it has arrived; NULL: it arrives later */
    const struct sl_ticket *ticket; /* prefill, direct: decode's; NULL: the one its node has */
    /* Decode: prefill's node_name if that is another node. That node is asked until it has
     * committed, and gets the ticket of a direct hand-over; no receipt is needed. NULL or "":
     * prefill is on this node, or a receipt arrives. */
    const char *from;
};
/* Starts to hand the blocks of a request over to decode. The blocks are the input from first_block
 * to its end; with tokens `partial` is implied. Blocks that are already stored are held, and not
 * copied. The op ends with SL_OK when every block is acknowledged and held. Otherwise it ends with
 * SL_ERR_CANCELLED (decode gave up), SL_ERR_UNSUPPORTED (the key format has no key for an
 * incomplete block), or an error with SL_ERR_LIMIT in its message (half of memory is held). Errors:
 * as sl_store_start, SL_ERR_INVALID (id 0), SL_ERR_CONFIG (the environment). */
sl_err sl_kv_send_start(struct sl_engine *engine, const struct sl_op_request *request,
                        const struct sl_handover_options *options, struct sl_op **op,
                        struct sl_error *why);
/* Gives the receipt of an ended prefill op. Errors: SL_ERR_BUSY (it runs), SL_ERR_INVALID (not such
 * an op), the op's code when it has failed. */
sl_err sl_op_transfer_params(struct sl_op *op, struct sl_transfer_params *out,
                             struct sl_error *why);
/* Starts to receive the blocks of a request from prefill. They are written into device blocks for
 * the input from first_block on; decode already has the blocks before. The op waits for prefill,
 * then loads. It ends with SL_OK (all blocks are loaded), SL_ERR_HANDOVER (a 502: nothing may be
 * decoded, and the message gives the reason; also at the deadline), SL_ERR_INCOMPLETE (only with
 * the setting handover_recompute: block_count blocks are loaded, compute the rest) or
 * SL_ERR_CANCELLED. Errors: as sl_kv_send_start. */
sl_err sl_kv_receive_start(struct sl_engine *engine, const struct sl_op_request *request,
                           const struct sl_handover_options *options, struct sl_op **op,
                           struct sl_error *why);
/* Gives the ticket of a direct decode op, which prefill needs. Errors: SL_ERR_BUSY (not yet: ask
 * again), SL_ERR_UNSUPPORTED (none: the hand-over uses storage), SL_ERR_NOT_FOUND (it ended). */
sl_err sl_op_ticket(struct sl_op *op, struct sl_ticket *out, uint64_t timeout_ns,
                    struct sl_error *why);
/* Reports to decode's node that first tokens have arrived. Loads that wait for them continue.
 * count: 1 to 1,024
 * codes: SL_OK; SL_ERR_NOT_FOUND (that request has ended; counted, and no failure of the others);
 * SL_ERR_BUSY (prefill is here and has not committed); SL_ERR_INVALID (another receipt came) */
sl_err sl_kv_arrived(struct sl_client *client, const struct sl_transfer_params *receipts,
                     uint32_t count, sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Ends hand-overs on prefill's node. The blocks that it holds for them may leave memory.
 * count: 1 to 1,024
 * codes: SL_OK, SL_ERR_NOT_FOUND (it has ended), SL_ERR_BUSY (it runs) */
sl_err sl_kv_end(struct sl_client *client, const uint64_t *ids, uint32_t count, sl_err *codes,
                 uint64_t timeout_ns, struct sl_error *why);

#ifdef __cplusplus
}
#endif
#endif
