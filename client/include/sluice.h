/* client/include/sluice.h - libsluice, the C API of Sluice.
 *
 * A client attaches to the node of this machine that runs under `instance`. Look-ups and reads of
 * values in memory use shared memory and send no message. A batch of puts takes two round trips,
 * one when values of its size were put a moment ago, and none for keys that exist.
 *
 * Time: a call with timeout_ns returns by then; 0 stands for the node's setting op_timeout.
 * Threads: calls on one client may come from several threads; those that send messages take turns,
 * look-ups and copies run in parallel. Restart: when the node is started again under the same name,
 * the client attaches again by itself; values that are pinned in the old memory stay readable.
 *
 * fork: a client belongs to the process that opened it. A child opens its own; with its parent's,
 * calls that send messages, write or pin return SL_ERR_INVALID. The child keeps the mappings until
 * it execs, exits or closes the client, but no pins: what the parent releases may change.
 *
 * Results: a call that can fail returns a code of enum sl_err (runtime/base/sl_error.h; 0 is
 * success) and writes the message to `why`, which may be NULL. Any call that sends messages may
 * return SL_ERR_UNREACHABLE (the node does not run), SL_ERR_TIMEOUT, SL_ERR_INVALID (an argument:
 * the message names it), SL_ERR_NO_MEMORY and, from a read-only client, SL_ERR_PERMISSION. */
#ifndef SLUICE_H
#define SLUICE_H

#include "runtime/base/sl_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a structure does, or a call is removed. sl_client_open refuses other versions. */
#define SLUICE_API_VERSION 6

struct sl_client;
struct sl_client_options {
    uint32_t api_version; /* SLUICE_API_VERSION */
    const char *instance; /* NULL: $SLUICE_INSTANCE or "default" */
    const char *config;   /* config file; NULL: none */
    uint64_t timeout_ns;  /* to attach; 0: 2 s */
    bool read_only; /* shared memory only: works while actors are stopped; no pins, no writing */
    bool leases;    /* look-ups lease what they find, where the node has leases */
    /* NULL, or "name=value" texts that end with a NULL. They override file and environment. */
    const char *const *settings;
};
/* Attaches to a node. Waits for one that is starting or makes its memory again. Errors:
 * SL_ERR_UNREACHABLE (no node runs under this name), SL_ERR_CORRUPT (its memory was cut short and
 * stays so), SL_ERR_FOREIGN, SL_ERR_VERSION, SL_ERR_TIMEOUT, SL_ERR_LIMIT (this process may have no
 * more descriptors or threads). */
sl_err sl_client_open(const struct sl_client_options *options, struct sl_client **out,
                      struct sl_error *why);
/* Closes a client. Its slot of clients_max is free within a heartbeat of the actors, also while the
 * process lives on. End its views, drafts, ops, engines and pools before; no other thread may use
 * it. In a fork this frees memory, and the parent's client goes on. */
void sl_client_close(struct sl_client **client);
/* Returns the name of the node. */
const char *sl_client_instance(const struct sl_client *client);
/* Counts what this client gets and looks up for a tenant as well (metrics `sluice_tenant_...`).
 * Call it before other threads know the client.
 * tenant: 1 to 63 bytes; longer names are cut. */
void sl_client_tenant(struct sl_client *client, const char *tenant);
#define SL_TROUBLE_BYTES 240u
/* Returns whether the node serves less than it should, and gives the reason in words ("no disk
 * tier: ..."). Takes a few system calls and sends no message. */
bool sl_client_trouble(const struct sl_client *client, char out[SL_TROUBLE_BYTES]);

/* ---- objects ---- */
struct sl_object_key {
    const char *at; /* UTF-8, no NUL inside */
    uint32_t length;
};
/* Returns whether these bytes can be a key: 1 to 1,024 bytes of UTF-8, none of them 0. */
bool sl_key_fine(struct sl_object_key key);
#define SL_SHA256_BYTES 32u
/* Gives the SHA-256 of bytes that cannot be a key themselves. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_sha256(const void *at, uint64_t length_bytes, unsigned char digest[SL_SHA256_BYTES],
                 struct sl_error *why);
struct sl_buffer {
    void *at;
    uint64_t length_bytes;
};

/* Stores a value under a key. A key that exists is a success and keeps its value.
 * length_bytes: 1 byte to 1 GiB, or to the node's memory_chunk where that is less; put a larger
 * value in parts, each under its own key. Errors: SL_ERR_NO_SPACE, SL_ERR_BUSY (another writer has
 * the key), SL_ERR_INVALID (also a value that is too large). */
sl_err sl_put(struct sl_client *client, struct sl_object_key key, const void *value,
              uint64_t length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* Copies a value into a buffer. Memory of a node whose processes were all killed is still read; a
 * node that was stopped is SL_ERR_UNREACHABLE within a second.
 * length_bytes: receives the size of the value, also when the buffer is too small. Errors:
 * SL_ERR_NOT_FOUND, SL_ERR_LIMIT (the buffer is too small), SL_ERR_CORRUPT, SL_ERR_LEASE_OVER (its
 * lease ended before the copy did). */
sl_err sl_get(struct sl_client *client, struct sl_object_key key, struct sl_buffer buffer,
              uint64_t *length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* Looks up whether a key has a value here. Pins nothing and never delays eviction. Errors:
 * SL_ERR_NOT_FOUND, SL_ERR_UNREACHABLE. */
sl_err sl_exists(struct sl_client *client, struct sl_object_key key);
/* Removes a value from memory and every disk of this node. Errors: SL_ERR_NOT_FOUND, SL_ERR_TIMEOUT
 * (no answer, or a disk has not confirmed it yet), SL_ERR_DISK_AWAY (it is removed here; a disk
 * that is absent learns of it when it returns, and nothing need be repeated), SL_ERR_LIMIT (no room
 * to note more removals for such a disk: repeat it when the disk is back), SL_ERR_NO_SPACE (a
 * disk's file system or the index is full: repeat it later), SL_ERR_UNREACHABLE (not removed). */
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
/* Pins a value and gives it in place, without a copy. The bytes stay where they are, unchanged,
 * until sl_view_release. Errors: as sl_get, SL_ERR_LIMIT (no slot or room: use sl_get). */
sl_err sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                     uint64_t timeout_ns, struct sl_error *why);
/* Ends a pin. */
void sl_view_release(struct sl_client *client, struct sl_view *view);
/* Returns whether all that was read of the view is the value. It is not when another process of
 * this user has cut the node's shared memory short: some bytes may have read as zeros. Call this
 * after the last access if damaged bytes must not be used; calls that copy do so themselves. */
bool sl_view_intact(struct sl_client *client, const struct sl_view *view);

/* Batches have at most 65,536 keys. codes[i] is the result of item i; a batch returns SL_OK when it
 * was carried out, whatever the codes say. */

/* Stores values, as sl_put does for one. The message is of the last that is too large. Errors: as
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
/* Removes values, as sl_remove does for one. Errors: as sl_remove. */
sl_err sl_remove_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Brings values that are only on this node's disks into memory, ahead of their use, and waits for
 * them. Loads go first, of the same keys as well. Only values that are on disk, not pinned and
 * longest unused leave memory for it. Prefetched values that no client has read since take a
 * quarter of memory at most.
 * codes: SL_OK (it arrived), SL_ERR_EXISTS (it was in memory), SL_ERR_NOT_FOUND (not on this node;
 * other nodes are not asked), SL_ERR_NO_SPACE, SL_ERR_TIMEOUT (a read that has begun still
 * arrives), SL_ERR_LIMIT (65,536 keys are on their way for all clients), or what failed. */
sl_err sl_prefetch_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                         sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Waits until everything that was committed before is durable on disk. Errors: SL_ERR_UNSUPPORTED
 * (no disk tier), SL_ERR_DISK_AWAY (no disk of the node has been served for 5 s; what is in memory
 * stays there and is written when one is back: flush again to know when). */
sl_err sl_flush(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why);

/* ---- terms: how long a value stays, and where ---- */

/* Leases. On a node whose setting lease_ttl is not 0, a client that was opened with `leases` leases
 * what its look-ups find (exists, size, stat, get). For lease_ttl the value is not evicted, and
 * removals that respect leases are refused. Puts lease nothing. */

/* What a put may ask for. All zero is what sl_put does. */
struct sl_terms {
    bool hard_pin; /* never evicted; only a removal ends it */
    uint64_t
        soft_pin_ns; /* evicted only when nothing else is left, for this time from the commit */
    /* Replaces a value in one step: the old one is visible until then. Hard pin and bundle stay
     * with the key (another bundle: SL_ERR_INVALID). A put of the key under way is taken over;
     * another replacement is waited for (SL_ERR_BUSY at the deadline). With a disk the call waits
     * until the old value cannot come back; after SL_ERR_TIMEOUT or SL_ERR_DISK_AWAY it may be
     * either one. After SL_ERR_LIMIT (as of sl_remove) it is the old one. Not for parts of
     * blocks. */
    bool replace;
    /* Does not wait for room (SL_ERR_NO_SPACE) or another writer (SL_ERR_BUSY), except for room
     * that is on its way (memory that grows, values that go to disk). Replacements wait for
     * writers. */
    bool at_once;
    /* The first of these contributions (below) that has room is charged; NULL: any. */
    const char *const *contributions;
    uint32_t contribution_count; /* at most 16 */
};
/* A run of a value's bytes in the caller's memory. */
struct sl_piece {
    /* Host memory, or device memory of this process (CUDA), which streams have written before. */
    void *at;
    uint64_t length_bytes;
    uint64_t offset_bytes; /* in the value */
};
struct sl_pieces {
    struct sl_object_key key;
    /* Puts: values of a bundle are leased and evicted together; length 0: none; at most 255. */
    struct sl_object_key bundle;
    const struct sl_piece *at;
    uint32_t count;
};
/* Stores values that lie in pieces, as sl_put_batch does. The pieces of a value cover it without
 * gap or overlap, in any order; empty pieces are ignored. With `replace` a key's last item wins.
 * terms: for all items; NULL: as sl_put. Errors: as sl_put_batch, SL_ERR_INVALID (pieces; the
 * message is of the first such item), SL_ERR_UNSUPPORTED (the node cannot replace). */
sl_err sl_put_pieces(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                     const struct sl_terms *terms, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);
/* Copies ranges of values into pieces. Bytes of a piece beyond the value's end stay as they are.
 * Pieces may overlap in the value, not in memory. An item without pieces, and without `whole`,
 * gives the size only.
 * whole: the pieces have to hold all of the value; they may hold more
 * lengths: NULL, or receives the size of each value, also with SL_ERR_LIMIT. Errors: as
 * sl_get_batch, SL_ERR_LIMIT (a piece begins at the value's end or after it, or `whole` is not
 * met), SL_ERR_INVALID (pieces). */
sl_err sl_get_pieces(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                     bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);

/* ---- order with the engine's streams ----
 *
 * Sluice reads and writes device memory on streams of its own, in this process or a swapper, which
 * do not wait for the engine's streams, not even for the default one. So:
 *
 * - Before a call that reads device memory (put, draft, store, a layer that is ready), all work
 *   that writes these bytes has ended. Submitted is not enough: the engine waits for its stream, or
 *   for an event after that work.
 * - Before a call that writes device memory (get, load), all work that reads or writes these bytes
 *   has ended.
 * - Until the call has returned, or the op is fenced, the engine does not write what is read, and
 *   does not touch what is written.
 * - When a get has returned, or a load or layer is answered, the bytes are in place for work that
 *   is submitted afterwards, on every stream of every process that maps the memory.
 *
 * With an event the engine need not wait (sl_put_pieces_after, sl_get_pieces_after, events of
 * sl_op_request): Sluice touches no device memory before the event is over. Record the event before
 * the call, after that work, and neither destroy it nor record it again until the call has returned
 * or the op has ended. */

/* Stores values that lie in pieces, after an event of the engine. Host memory is copied at once.
 * event: a CUevent (cudaEvent_t) of this process, of any device; NULL: none. Errors: as
 * sl_put_pieces, SL_ERR_TIMEOUT (the event was not over in time, and no device memory was touched),
 * SL_ERR_DEVICE (the driver knows no such event). */
sl_err sl_put_pieces_after(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                           const struct sl_terms *terms, void *event, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);
/* Copies ranges of values into pieces, after an event of the engine.
 * event: as of sl_put_pieces_after. Errors: as sl_get_pieces, SL_ERR_TIMEOUT, SL_ERR_DEVICE. */
sl_err sl_get_pieces_after(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                           bool whole, void *event, uint64_t *lengths, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);

/* A value that is written bit by bit, and visible when it is committed. Ends before its client. */
struct sl_draft;
/* Reserves room for values of these lengths. drafts[i] is NULL where codes[i] is not SL_OK, also
 * when the call fails.
 * bundles: NULL, or one for each
 * ttl_ns: time until the commit, after which the room is free again; 0: the setting put_release.
 * After put_preempt another writer may take the key. Errors: as sl_put_pieces, SL_ERR_EXISTS (the
 * key exists, and terms do not replace), SL_ERR_BUSY (another writer, which is not waited for). */
sl_err sl_draft_begin(struct sl_client *client, const struct sl_object_key *keys,
                      const struct sl_object_key *bundles, const uint64_t *lengths_bytes,
                      uint32_t count, const struct sl_terms *terms, uint64_t ttl_ns,
                      struct sl_draft **drafts, sl_err *codes, uint64_t timeout_ns,
                      struct sl_error *why);
/* Writes pieces of a draft. Several threads may write one draft; what is written last stays.
 * Errors: SL_ERR_INVALID (pieces, or beyond its length), SL_ERR_STALE (its time is over, or the
 * node was started again), SL_ERR_LIMIT (all of client_pins_max are in use), SL_ERR_NO_MEMORY. */
sl_err sl_draft_write(struct sl_draft *draft, const struct sl_piece *pieces, uint32_t count,
                      struct sl_error *why);
/* Makes drafts visible once no write of them runs, frees them and sets them NULL, also on failure.
 * Bytes that were never written are 0.
 * codes: SL_OK, SL_ERR_STALE, SL_ERR_NO_SPACE, SL_ERR_LIMIT (as of sl_draft_write), SL_ERR_INVALID
 * (NULL, or one draft twice), or why there is no answer */
sl_err sl_draft_commit(struct sl_client *client, struct sl_draft **drafts, uint32_t count,
                       sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Gives up a draft: frees its room and sets it NULL. */
void sl_draft_drop(struct sl_draft **draft);

/* Memory of this process. Pieces may lie anywhere. Registering the memory that pieces will lie in
 * saves a question to the CUDA driver for each piece. It pins and touches nothing, whatever the
 * size. Adjoining registrations of one kind count as one. There is one table for the process, for
 * any thread; a fork has a copy. */
enum sl_place {
    SL_PLACE_PLAIN = 1,  /* host memory */
    SL_PLACE_PINNED = 2, /* host memory that the CUDA driver knows */
    SL_PLACE_DEVICE = 3, /* CUDA device memory, of `gpu` */
    SL_PLACE_OURS = 4,   /* of sl_memory_alloc */
};
struct sl_place_info {
    enum sl_place place;
    int gpu; /* ordinal, of SL_PLACE_DEVICE */
};
/* Registers memory of this process. Registrations are counted: unregister as often. Errors:
 * SL_ERR_INVALID (no address or length, too long), SL_ERR_NO_MEMORY. */
sl_err sl_memory_register(const void *at, uint64_t length_bytes, struct sl_error *why);
/* Ends the last registration that starts exactly at this address. Errors: SL_ERR_NOT_FOUND. */
sl_err sl_memory_unregister(const void *at, struct sl_error *why);
/* Gives the kind of registered memory. Errors: SL_ERR_NOT_FOUND (not all, or several kinds). */
sl_err sl_memory_find(const void *at, uint64_t length_bytes, struct sl_place_info *out);
/* Gives zeroed memory that this process shares with its forks, and registers it. It is populated,
 * in huge pages where the system has them, and aligned to 2 MiB from that size on, else to a page.
 * Errors: SL_ERR_INVALID (0, or too much to count), SL_ERR_NO_MEMORY. */
sl_err sl_memory_alloc(uint64_t length_bytes, void **out, struct sl_error *why);
/* Frees memory of sl_memory_alloc. Errors: SL_ERR_NOT_FOUND (not of sl_memory_alloc, or freed). */
sl_err sl_memory_free(void *at, struct sl_error *why);

/* Removes values, and respects leases where asked.
 * heed_leases: leased values are SL_ERR_LEASED. Errors: as sl_remove_batch, SL_ERR_BUSY. */
sl_err sl_remove_batch_heeding(struct sl_client *client, const struct sl_object_key *keys,
                               uint32_t count, bool heed_leases, sl_err *codes, uint64_t timeout_ns,
                               struct sl_error *why);

struct sl_stat {
    uint64_t length_bytes;
    uint64_t lease_end_ns;  /* CLOCK_MONOTONIC; 0: not leased by this look-up */
    uint64_t contributions; /* bit of the number; 0: not in memory, or the node has none */
    bool in_memory, on_disk;
    bool hard_pin;
    bool ours; /* a client of this process put it */
    uint64_t soft_pin_end_ns;
    uint32_t writer_pid; /* process that put it, while that lives; 0: not known any more */
};
/* Looks values up and gives what the index knows of them. At most 65,536 keys.
 * codes: SL_OK, SL_ERR_NOT_FOUND (also while it is written), SL_ERR_BUSY (it kept changing) */
sl_err sl_stat_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_stat *stats, sl_err *codes);

/* Contributions. On a node with the setting `contributions`, values in memory are charged to what
 * processes contribute; the sum is the ceiling (at most `memory`). When one ends (withdrawn, or its
 * process died), its values leave memory, and stay on disk. A client repeats its contributions with
 * its next call to a restarted node. Closing it withdraws those that do not last. */
struct sl_contribution_info {
    char name[256];
    uint32_t number; /* bit in sl_stat.contributions */
    uint64_t length_bytes, used_bytes, value_count;
    char process[32]; /* "": it lasts */
    uint32_t pid;
};
#define SL_CONTRIBUTIONS_MAX 64u
/* Adds memory of this process to the node's ceiling. The same name and length again is a success.
 * name: unique on the node
 * lasting: it stays when the process ends. Errors: SL_ERR_EXISTS (a living process has the name, or
 * it lasts with another length), SL_ERR_NO_SPACE (beyond `memory`), SL_ERR_LIMIT (there are 64),
 * SL_ERR_UNSUPPORTED (the node has no contributions). */
sl_err sl_contribute(struct sl_client *client, const char *name, uint64_t length_bytes,
                     bool lasting, uint64_t timeout_ns, struct sl_error *why);
/* Ends a contribution, and waits until none of its values is visible. Errors: SL_ERR_PERMISSION (no
 * such name, or of another process), SL_ERR_NOT_FOUND, SL_ERR_UNSUPPORTED. */
sl_err sl_withdraw(struct sl_client *client, const char *name, uint64_t timeout_ns,
                   struct sl_error *why);
/* Lists the contributions of the node.
 * infos: room for SL_CONTRIBUTIONS_MAX
 * count: receives how many there are. Errors: SL_ERR_UNSUPPORTED. */
sl_err sl_contributions(struct sl_client *client, struct sl_contribution_info *infos,
                        uint32_t *count, uint64_t timeout_ns, struct sl_error *why);
/* Why a key (of an object, a part or a block) is a miss. */
struct sl_story {
    sl_err code;     /* SL_OK: it exists; SL_ERR_BUSY: it is being written; SL_ERR_NOT_FOUND */
    uint64_t ago_ns; /* since it left; 0: not known */
    char text[256];
};
#define SL_EXPLAIN_KEYS_MAX 64u
/* Explains why keys are misses. The registrar notes the last `ghosts_max` that left.
 * count: 1 to SL_EXPLAIN_KEYS_MAX. */
sl_err sl_explain(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                  struct sl_story *stories, uint64_t timeout_ns, struct sl_error *why);

/* What happened to a block of an op. */
enum sl_fate {
    SL_FATE_OPEN = 0, /* the op runs */
    SL_FATE_MEMORY,   /* loaded: where it was when the op first looked */
    SL_FATE_DISK,
    SL_FATE_REMOTE,  /* at another node */
    SL_FATE_MISSING, /* nowhere: the load ends here */
    SL_FATE_BEHIND,  /* after one that is missing: not asked for */
    SL_FATE_LEFT,    /* here, but faster to compute than to read */
    SL_FATE_FAILED,  /* not loaded, as the op failed */
    SL_FATE_STORED,
    SL_FATE_EXISTED, /* not stored, since it existed */
    SL_FATE_REFUSED, /* not stored */
};
struct sl_told_run {
    uint32_t count; /* consecutive blocks */
    enum sl_fate fate;
    uint64_t at_ns; /* loaded: when they were on the device, from the op's start */
};
#define SL_ORIGIN_BYTES 128u /* name of a request, with the NUL */
struct sl_told {
    uint64_t op_id, trace_id, engine_id;
    bool store, running; /* store: else a load */
    sl_err code;
    char reason[256]; /* why it failed, or what it waits for */
    char requester[64], request[SL_ORIGIN_BYTES], traceparent[64], model[33];
    uint64_t ago_ns, took_ns;   /* since its start, and how long; until now while it runs */
    uint32_t first_block;       /* of its prompt: where the first run begins */
    struct sl_told_run *runs;   /* run_count; owned */
    struct sl_object_key *keys; /* MODEL/BLOCK of the first blocks that were missing; owned */
    uint32_t run_count, key_count;
    uint32_t keys_first; /* number of the block of keys[0] */
};
/* Gives what happened in an op, block by block. The coordinator knows ops that run and the last
 * 1,024 that ended since its start.
 * id: the op's trace id in hex digits, or the engine's name of the request (sl_origin_set)
 * skip: ops of the request to pass over, the youngest first
 * told: free it by sl_told_free, after errors as well. Errors: SL_ERR_NOT_FOUND, SL_ERR_UNSUPPORTED
 * (an older node). */
sl_err sl_op_tell(struct sl_client *client, const char *id, uint32_t skip, struct sl_told *told,
                  uint64_t timeout_ns, struct sl_error *why);
/* Frees what sl_op_tell gave. */
void sl_told_free(struct sl_told *told);

/* ---- objects of other nodes ---- */

/* What another node has under a key. */
struct sl_elsewhere {
    uint64_t length_bytes;
    bool in_memory, on_disk;
    char node[32];
};
/* Returns whether this node may have peers. Costs nothing. */
bool sl_client_has_peers(const struct sl_client *client);
/* Asks all peers that are alive for keys, for peer_timeout at most. Values are leased where their
 * holder has leases. This node is not looked at. At most 65,536 keys.
 * codes: SL_OK (another node has it), SL_ERR_NOT_FOUND (no peer that answered has it). */
sl_err sl_seek_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_elsewhere *out, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);
/* Removes values at all other nodes that are alive and allow it (setting peer_removes). This node
 * keeps its own.
 * codes: SL_OK (removed somewhere), SL_ERR_NOT_FOUND, SL_ERR_LEASED, SL_ERR_BUSY, SL_ERR_TIMEOUT (a
 * peer did not answer, and may still have it). Errors: as sl_seek_batch. */
sl_err sl_remove_elsewhere(struct sl_client *client, const struct sl_object_key *keys,
                           uint32_t count, bool heed_leases, sl_err *codes, uint64_t timeout_ns,
                           struct sl_error *why);

/* Another node, as this node's transporter sees it. */
struct sl_node_info {
    char name[32];
    char address[129]; /* where it is asked; "": it only asks us */
    char state[16];    /* alive, away, broken; of a node that is no peer: asks, new, or the reason:
                          no key, no address, no name, too many */
    char link[16];     /* for bytes: up, connecting, down */
    char source[16];   /* where it is known from: peers (the setting), directory; "": itself */
    uint64_t incarnation, round_trip_ns, heard_ago_ns;
    uint64_t read_bytes, read_values, failures, pinned_values;
};
struct sl_cluster_info {
    char name[32];    /* of this node; "": it has no peers, and none can ask it */
    char listen[129]; /* where peers ask it; "": nowhere */
    char fabric[192]; /* what carries bytes */
};
#define SL_NODES_MAX 64u
/* Lists the other nodes that this node knows.
 * self: receives what this node is to others
 * nodes: room for SL_NODES_MAX
 * count: receives how many there are. */
sl_err sl_nodes(struct sl_client *client, struct sl_cluster_info *self, struct sl_node_info *nodes,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

struct sl_object_info {
    struct sl_object_key key;
    uint64_t length_bytes;
    bool in_memory, on_disk;
    uint64_t digest_low, digest_high;
};
/* Calls each() for every visible object, until each() returns false. The entry is borrowed.
 * prefix: of the keys; NULL: all */
sl_err sl_list(struct sl_client *client, const char *prefix,
               bool (*each)(void *context, const struct sl_object_info *info), void *context,
               struct sl_error *why);
/* Gives a value's size, place and digest. Errors: SL_ERR_NOT_FOUND, SL_ERR_UNREACHABLE. */
sl_err sl_stat(struct sl_client *client, struct sl_object_key key, struct sl_object_info *out);

/* ---- pools: device memory with one owner ----
 *
 * The device memory of one pool of one rank is made once, by the engine or by Sluice
 * (sl_pool_owner_decide). Other processes wait for it, map it, and learn when it is over:
 *
 *   owner   sl_pool_create, fill it, sl_pool_publish ... sl_pool_revoke, sl_pool_release
 *   others  sl_pool_await, or sl_pool_acquire where Sluice makes it ... sl_pool_wait_over,
 *           sl_pool_release
 *
 * Memory that an engine made ends with its process. Memory that Sluice made lives as long as a
 * client has it, also when the process that made it dies. Memory of the host device is mapped here;
 * of CUDA memory the handle is given (sl_pool_memory_get).
 *
 * One thread at a time uses a sl_pool; sl_pool_wait_over may run beside it. A client has one
 * sl_pool of a key at a time. Release all before the client is closed. A node that was stopped and
 * started again knows no pools: sl_pool_wait_over reports it. */
enum sl_pool_creator { SL_POOL_BY_ENGINE = 0, SL_POOL_BY_SLUICE = 1 };
struct sl_pool_situation {
    bool profiling;       /* the engine measures how much memory it can have */
    uint64_t host_blocks; /* blocks of host memory below those of the device */
    bool storage;         /* there is a storage backend */
    bool split;           /* prefill and decode are different processes */
};
/* Returns who creates a deployment's device pools. While profiling it is the engine; else it is the
 * engine only where there are no host blocks, no storage backend and no split. Pure; any thread. */
enum sl_pool_creator sl_pool_owner_decide(const struct sl_pool_situation *situation);

struct sl_pool_key {
    const char *deployment; /* name of one model replica on this node: 1..63 of printable ASCII */
    uint32_t rank;          /* 0..63 */
    const char *pool;       /* [a-z0-9_-]{1,31}, as in sl_engine_pool */
};
enum sl_pool_memory_kind {
    SL_POOL_MEMORY_FD = 1,       /* shared memory: descriptor fd of process pid */
    SL_POOL_MEMORY_CUDA_IPC = 2, /* cudaIpcMemHandle_t in handle */
    SL_POOL_MEMORY_CUDA_FD = 3, /* shareable handle: descriptor fd of process pid; each process that
                                 * acquires the pool has one of its own, which is the pool's */
};
struct sl_pool_memory { /* how others map it */
    enum sl_pool_memory_kind kind;
    uint32_t pid; /* sl_pool_publish ignores it: it is the caller's */
    int fd;
    unsigned char handle[64];
    uint64_t offset_bytes; /* where the pool starts in that memory */
    /* UUID of its GPU, as cuDeviceGetUuid_v2 gives it; all zero: not known. Processes that acquire
     * the pool get it. An engine whose swapper has another GPU gets an error that names both. */
    unsigned char gpu[16];
};
struct sl_pool; /* opaque */

/* Takes the right to make a pool, and gives zeroed shared memory for it, mapped. No other process
 * gets the right until the pool is released or revoked, or this process dies. Publish it next.
 * Waits while a former pool is being revoked.
 * length_bytes: above 0. Errors: SL_ERR_BUSY (another process, which the message names, makes or
 * still maps it), SL_ERR_EXISTS (it is ready; names the owner), SL_ERR_LIMIT (pools_max). */
sl_err sl_pool_create(struct sl_client *client, const struct sl_pool_key *key,
                      uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                      struct sl_error *why);
/* Announces that a pool is ready.
 * memory: the caller's own, which stays until the pool is revoked; that of sl_pool_create is then
 * freed. NULL: that of sl_pool_create. Errors: SL_ERR_STALE (revoked, or forgotten by the node). */
sl_err sl_pool_publish(struct sl_pool *pool, const struct sl_pool_memory *memory,
                       uint64_t timeout_ns, struct sl_error *why);
/* Waits until a process has made the pool, and maps it. Errors: SL_ERR_PEER_DIED (its owner died
 * before it was ready), SL_ERR_CANCELLED (its owner gave it up), SL_ERR_TIMEOUT (the message names
 * the process that makes it, or says that none does), SL_ERR_EXISTS (this client has it),
 * SL_ERR_LIMIT. */
sl_err sl_pool_await(struct sl_client *client, const struct sl_pool_key *key, uint64_t timeout_ns,
                     struct sl_pool **out, struct sl_error *why);
/* Maps a pool that Sluice makes: the rank's swapper makes it if it does not exist. When a swapper
 * dies meanwhile, its successor is asked until the timeout. Errors: as sl_pool_await, SL_ERR_BUSY
 * (an engine makes it), SL_ERR_EXISTS (an engine made it), SL_ERR_INVALID (it has another length,
 * or the node has no such rank), SL_ERR_UNSUPPORTED (the device makes none for others). */
sl_err sl_pool_acquire(struct sl_client *client, const struct sl_pool_key *key,
                       uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                       struct sl_error *why);
/* Waits until the memory of a pool is over: it is being revoked, its owner died, or the node forgot
 * it. After SL_OK stop using it and release it. Errors: SL_ERR_TIMEOUT (it is not over). */
sl_err sl_pool_wait_over(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Asks all other processes to unmap a pool. The owner calls it, or any client of a pool that Sluice
 * made, whose mapping here ends first. SL_OK: every mapper has unmapped it or is dead, so the
 * memory may be freed, and another process may make the pool. Swappers that do not unmap within
 * fence_timeout are killed; clients are not. Engines with the pool end. Release it afterwards.
 * Errors: SL_ERR_TIMEOUT (the message names who still maps it: repeat), SL_ERR_PERMISSION (not the
 * owner). */
sl_err sl_pool_revoke(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Unmaps a pool and reports it. From the owner this gives up a pool that is not ready, and revokes
 * one that is without waiting. Waits for an absent registrar for a second at most. Accepts NULL. */
void sl_pool_release(struct sl_pool **pool);
/* Returns where a pool is mapped here, aligned to 16 bytes; NULL: it is not, as CUDA memory. */
void *sl_pool_at(const struct sl_pool *pool);
/* Returns the length of a pool in bytes. */
uint64_t sl_pool_length(const struct sl_pool *pool);
/* Returns the number of this life of a pool's memory, which is never used again. */
uint64_t sl_pool_epoch(const struct sl_pool *pool);
/* Gives how other processes map a pool. */
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
    char mappers[256]; /* names; cut when there are many */
};
/* Lists the node's pools.
 * infos: room for count_max rows
 * count: receives how many pools there are, which may be more. */
sl_err sl_pools(struct sl_client *client, struct sl_pool_info *infos, uint32_t count_max,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

/* ---- what a store in a process of its own has to map (hybrid models) ---- */
struct sl_pool_buffer {
    uint64_t start_addr; /* 0: this pool is missing, whatever its length */
    uint64_t length_bytes;
};
#define SL_POOL_BUFFERS_MAX 65536u
/* Gives the sum of distinct buffers. A missing or empty buffer counts zero. Of buffers with one
 * start the longest counts. Two of different starts that share a byte are an error. Pure.
 * count: 0 to SL_POOL_BUFFERS_MAX. Errors: SL_ERR_INVALID (overlap, or an end or a sum beyond 64
 * bits; names the buffers), SL_ERR_LIMIT (count), SL_ERR_NO_MEMORY. */
sl_err sl_pool_required_bytes(const struct sl_pool_buffer *buffers, uint32_t count,
                              uint64_t *required_bytes, struct sl_error *why);
/* Checks that a buffer which is registered later lies in what is mapped: in one buffer, or across
 * several that adjoin. Pure. Errors: SL_ERR_INVALID (null, empty, beyond 64 bits, or not all of it
 * is mapped; names it), SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err sl_pool_buffer_check(const struct sl_pool_buffer *mapped, uint32_t count,
                            struct sl_pool_buffer late, struct sl_error *why);

/* ---- engines ---- */
struct sl_engine; /* an engine with all its ranks, seen from the process that registers it */

enum sl_pool_kind {
    SL_POOL_ATTENTION = 0,
    SL_POOL_MAMBA_STATE = 1,
    SL_POOL_MAMBA_CONV = 2,
    SL_POOL_INDEXER = 3,
    SL_POOL_OTHER = 255
};

/* Everything that gives bytes their meaning. Strings may be NULL (as empty). name: of a hub, with
 * its revision; of weights in files a digest of them, since other files may come to the same path.
 * The model identity is a hash of these, key format, block_tokens, and every pool's name, kind and
 * part_count; without part_count of world, and the pool's layers and their piece_bytes, instead.
 * Where a layer lies in memory does not count. */
struct sl_model {
    const char *name, *revision, *dtype, *layout, *rope, *lora, *quantisation;
};

/* Memory of one layer of one pool of one rank: K and V of a layer are two layers of one pool. */
struct sl_engine_layer {
    uint64_t offset_bytes; /* in the memory of (rank, pool) */
    uint64_t length_bytes;
    uint64_t block_stride_bytes;
    uint64_t piece_bytes; /* bytes of a block in this layer */
    /* In a pool with part_count: which part, counted from the first one of the rank. The layers of
     * a part keep the order of the table. */
    uint32_t part;
    /* 0: the piece is one run. Else it is runs of fragment_bytes, which divides piece_bytes, that
     * begin fragment_stride_bytes apart. So are some heads of a page of all heads. */
    uint64_t fragment_bytes, fragment_stride_bytes;
};
struct sl_engine_pool {
    const char *name; /* [a-z0-9_-]{1,31} */
    enum sl_pool_kind kind;
    uint32_t layer_count; /* of a team's rank 0, where a pipeline stage has nothing of the pool, but
                             not of all pools */
    const struct sl_engine_layer *layers; /* the same for all ranks */
    uint64_t memory_bytes;                /* of one rank */
    /* Host device: a descriptor of shared memory per rank, or NULL: allocated here (memfd). */
    const int *fds;
    /* A pool of the table of pools per rank, each of memory_bytes, or NULL: as fds. Borrowed until
     * the engine ended. When a pool is revoked, the registration ends. */
    const struct sl_pool *const *from;
    /* CUDA memory of this process: device[rank][layer] is the address from which offset_bytes of
     * that layer counts; memory_bytes bounds offset and length. NULL: as from and fds. It may be of
     * cudaMalloc, of torch's caching allocator, also part of an allocation, or of many handles
     * (expandable_segments); sl_engine_memory_kind says which. It stays mapped until the engine
     * ended: before an engine unmaps it (sleep mode), it calls sl_engine_end, after which no
     * swapper maps it, and registers it again later. An op on memory that was unmapped or made
     * again since is SL_ERR_STALE. Host memory that is not shared works as well (an engine on
     * CPUs): the swapper copies with the rights of a debugger. Without them the op ends with
     * SL_ERR_PERMISSION, whose message says what to set. Such memory is put in huge pages where the
     * system allows it, for 1 s and a quarter of the timeout at most. */
    const uint64_t *const *device;
    /* 0: a block has one part for each rank, and only engines with as many ranks read it. Else the
     * number of parts, 1 to 64, whatever the ranks: slices of KV heads (and of layers, where
     * pipeline stages differ), of which each rank has some. Where several ranks have the same part,
     * one of them stores it, in turn, and all load it. 1: all ranks have the same bytes. */
    uint32_t part_count;
    /* [world]: the first part of each rank, from which those of its layers count. NULL: rank r has
     * the parts r * part_count / world to (r + 1) * part_count / world, one at least. */
    const uint32_t *first_parts;
};
/* Returns a team number, from 2^63 on, for bytes that the processes of an engine agree on: 16
 * random bytes or more, or the engine's id as text. Pure. */
uint64_t sl_team_number(const void *at, uint64_t length_bytes);
struct sl_engine_options {
    const char *name;
    struct sl_model model;
    const char *key_format; /* "sluice", "vllm-sha256-cbor", ... */
    const char *seed;
    uint32_t block_tokens;
    uint32_t world;
    uint32_t block_count; /* device blocks of every pool and rank */
    uint32_t pool_count;
    const struct sl_engine_pool *pools;
    /* 0: all ranks are in this process. Else each rank registers itself, with the same options but
     * its memory, and any process that registers has the whole engine. The ranks [first_rank,
     * first_rank + rank_count) are here, and fds, from and device have rows for these only.
     * rank_count 0: none, as in a scheduler; layers and memory of pools are then ignored. Ops begin
     * when all ranks are registered (SL_ERR_NOT_FOUND before). When a rank dies, an op loses that
     * rank's blocks and the others stay. */
    uint64_t team;
    uint32_t first_rank, rank_count;
};
/* Registers an engine and its memory. Errors: SL_ERR_INVALID (names what is wrong), SL_ERR_STALE (a
 * pool of `from` is over), SL_ERR_UNSUPPORTED (memory that cannot be shared), SL_ERR_DEVICE,
 * SL_ERR_LIMIT (engines_max). */
sl_err sl_engine_register(struct sl_client *client, const struct sl_engine_options *options,
                          uint64_t timeout_ns, struct sl_engine **out, struct sl_error *why);
/* Ends a registration; release all its ops before. Returns when no swapper touches the memory any
 * more, or after 1.5 s: a swapper that is stopped for as long is killed. */
void sl_engine_end(struct sl_engine **engine);
/* Returns the host address of a pool that was allocated here or mapped from fds. */
void *sl_engine_memory(struct sl_engine *engine, uint32_t rank, uint32_t pool);
/* Returns the kind of a pool's memory, for people: "shared memory", "cuda ipc", "cuda descriptor",
 * "cuda memory of many handles". NULL: there is no such rank or pool. */
const char *sl_engine_memory_kind(const struct sl_engine *engine, uint32_t rank, uint32_t pool);
/* Returns the model identity, 32 hex digits. */
const char *sl_engine_model_identity(const struct sl_engine *engine);

/* ---- ops ---- */
#define SL_HASH_BYTES_MAX 64u /* of a block's key that the engine made */
struct sl_op;
/* Hints: what the engine knows of the blocks of an op and of their session. They only change the
 * order of eviction (evict_policy density) and when blocks come back from disk. Wrong hints cost
 * hits only. */
enum sl_session {
    SL_SESSION_UNKNOWN = 0,
    SL_SESSION_ENDS = 1,   /* no later request is expected to use more of it than this one */
    SL_SESSION_GOES_ON = 2 /* another request is expected */
};
enum sl_priority {
    SL_PRIORITY_UNKNOWN = 0, /* as before; normal at first */
    SL_PRIORITY_LOW = 1,     /* a hit is worth half of a normal one, */
    SL_PRIORITY_NORMAL = 2,
    SL_PRIORITY_HIGH = 3 /* or twice as much; one priority for all changes nothing */
};
#define SL_KEEP_NS_LIMIT (7 * UINT64_C(86400) * UINT64_C(1000000000)) /* a week */
struct sl_hints {
    /* The node learns how often this is right, and weighs it accordingly. */
    enum sl_session session;
    enum sl_priority priority;
    /* For this time after the op, in whole seconds upwards, its blocks and those before them in
     * their chain are evicted last. This is no pin: they take an eighth of memory at most, and less
     * when they are used less often than the blocks that leave for them. At most
     * SL_KEEP_NS_LIMIT. */
    uint64_t keep_ns;
    /* Any name of the session, which all its ops share; NULL: not known. Only a hash of 64 bits
     * leaves the process. Without a name, an op that continues the blocks of another is of its
     * session. */
    const char *session_id;
    /* The next op of the session is expected after this time. Its blocks are brought from disk into
     * memory shortly before, where that is worth it. 0: not known; up to SL_KEEP_NS_LIMIT. The node
     * learns how right this is, and weighs it accordingly. */
    uint64_t pause_ns;
};
#define SL_PAUSE_UNKNOWN UINT64_MAX
/* Reports in a pause when the next op of a session is expected: from the engine, or from a
 * framework of agents (a tool call will end in 30 s). It replaces what was reported before, until
 * the session's next load. No load waits for this call. Any thread.
 * session_id: as in the hints of the session's ops, which have ended at this node
 * pause_ns: time from now, 0 to SL_KEEP_NS_LIMIT; 0: the op is about to come; SL_PAUSE_UNKNOWN: not
 * known any more. Errors: SL_ERR_NOT_FOUND (no op of the session ended here, the session ended,
 * others took its place, or the coordinator was restarted: report again after the next op),
 * SL_ERR_UNSUPPORTED (the node keeps no sessions, or its release lacks this call), SL_ERR_TIMEOUT
 * (also from the first releases without it). */
sl_err sl_session_pause(struct sl_client *client, const char *session_id, uint64_t pause_ns,
                        uint64_t timeout_ns, struct sl_error *why);
#define SL_HINT_LANES 64u
/* Values with keys of their own, which a request of a session got or put. */
struct sl_hinted {
    const struct sl_object_key *keys; /* in the order of the chain */
    uint32_t count;
    /* true: they were got, so the session came back; false: they were put. The chain keeps what it
     * has before the first of them. Where it lacks that one, values that were got become the whole
     * chain, and values that were put are appended. */
    bool asked;
    /* Where each rank puts values of its own: its number, below SL_HINT_LANES, so that they are not
     * taken for one chain. sl_session_pause reports to all of them. */
    uint32_t lane;
};
/* Gives the hints of ops for values that have keys of their own. Call it after a get, or after a
 * put that is done; values that are not in memory then are ignored. Session, priority and keep_ns
 * cost no message, and some may be lost when very many arrive at once. With a session_id, pause_ns
 * and sl_session_pause bring the values of the chain back from disk in time; without one, pause_ns
 * only says that the session continues. Any thread. Errors: SL_ERR_UNSUPPORTED (an older node). */
sl_err sl_hint_batch(struct sl_client *client, const struct sl_hints *hints,
                     const struct sl_hinted *of, uint64_t timeout_ns, struct sl_error *why);
/* How fast the engine computes blocks. A load then ends with SL_OK and a shorter prefix, instead of
 * waiting for blocks on a disk or at another node that take longer to read than to compute. All
 * zero: it waits for everything. A load of a hand-over always waits for all. */
#define SL_PREFILL_LIMIT (UINT64_C(1) << 40)
struct sl_prefill {
    uint64_t tokens_per_s; /* at the start of a prompt; 0: not known; up to SL_PREFILL_LIMIT */
    /* Attention makes later tokens dearer: the position of the token that takes twice as long as
     * the first. If a token takes a + b * position operations, it is a / b. 0: all take as long. */
    uint64_t doubles_at_token;
};
/* An event of the engine that precedes the op ("order with the engine's streams", above). */
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
    bool partial; /* an incomplete last block counts */
    const uint32_t
        *device_blocks; /* of every block from first_block on; lent until the op is fenced */
    uint32_t device_block_count;
    uint64_t timeout_ns;
    uint64_t trace_id;    /* 0: one is made */
    uint32_t layer_count; /* 0: all at once; else by layers (below): those of the forward pass */
    /* [layer_count][pools]: how many of the pool's layers belong to that layer or to an earlier
     * one. NULL: the layers of every pool divide evenly by layer_count. */
    const uint32_t *layer_ends;
    /* At most one a rank; copied. No block of that rank is read or written before its event is
     * over; ranks without one have waited by themselves. It was made with CU_EVENT_INTERPROCESS and
     * recorded before the start, and is neither destroyed nor recorded again until the op has
     * ended. An event that cannot be opened fails the copies of its rank; the result names it. */
    const struct sl_op_event *events;
    uint32_t event_count;
    /* Instead of tokens: keys that the engine made, hash_bytes each (1 to 64), one a block from
     * first_block on; copied. The same key names the same bytes for all with this model identity.
     * token_count is 0 then. So is partial, except in a hand-over, where it marks the last block as
     * incomplete; the key of that block is of this part only, and is kept for a short time. */
    const unsigned char *hashes;
    uint32_t hash_bytes;
    /* With hashes, [pools]: a table of device blocks for each pool, device_block_count entries.
     * NULL: device_blocks is that of all pools. */
    const uint32_t *const *pool_blocks;
    /* With hashes, a store: key of the block before the first one, hash_bytes, copied; NULL: none,
     * or not known. Blocks of a chain are evicted from its end. */
    const unsigned char *before_hash;
    struct sl_hints hints;
    void *context;             /* the caller's own (sl_op_context) */
    struct sl_prefill prefill; /* of a load */
};
/* Where ops come from, to explain a wait. */
struct sl_origin {
    const char *request;     /* the engine's name of it; NULL or "": none. Under SL_ORIGIN_BYTES */
    const char *traceparent; /* W3C trace context, the header's text; NULL or "": none */
};
/* Sets where stores, loads and hand-overs come from that this thread starts from now on. `sluicectl
 * explain --request` finds ops by the request's name; the flight recorder keeps the trace context,
 * and `python -m sluice.otel` exports the ops as its spans.
 * origin: copied; NULL: nothing is known. Errors: SL_ERR_INVALID (names which). */
sl_err sl_origin_set(const struct sl_origin *origin, struct sl_error *why);
struct sl_op_result {
    sl_err code;
    uint64_t op_id, trace_id;
    uint32_t block_count; /* store: blocks of the request; load: blocks loaded (prefix) */
    uint32_t stored_count, existed_count;         /* store */
    uint32_t from_memory, from_disk, from_remote; /* load */
    uint64_t bytes;
    bool fenced; /* device blocks are free again */
    struct sl_error why;
    uint32_t not_awaited_count; /* load with prefill: blocks after these that are on disk here */
};
/* Starts to store blocks. Errors: SL_ERR_LIMIT (ops in flight), SL_ERR_UNREACHABLE. */
sl_err sl_store_start(struct sl_engine *engine, const struct sl_op_request *request,
                      struct sl_op **op, struct sl_error *why);
/* Starts to load the longest prefix that every rank and pool has. Errors: as sl_store_start. */
sl_err sl_load_start(struct sl_engine *engine, const struct sl_op_request *request,
                     struct sl_op **op, struct sl_error *why);
/* Waits for the end of an op. The op ends by its own deadline, also when the node is dead.
 * result: its code is the op's. Errors: SL_ERR_TIMEOUT (it still runs). */
sl_err sl_op_wait(struct sl_op *op, uint64_t timeout_ns, struct sl_op_result *result);
/* Returns whether an ended store stored a block.
 * block: counted from 0 = first_block */
bool sl_op_block_stored(const struct sl_op *op, uint32_t block);
/* Returns whether a block existed before an ended store.
 * block: as of sl_op_block_stored */
bool sl_op_block_existed(const struct sl_op *op, uint32_t block);
/* Returns whether an ended load has loaded a block into its device block. Others may be partial.
 * block: as of sl_op_block_stored */
bool sl_op_block_loaded(const struct sl_op *op, uint32_t block);
/* Returns the context of the op's request. */
void *sl_op_context(const struct sl_op *op);
/* Cancels an op, which then ends with SL_ERR_CANCELLED unless it was faster. Waits for an answer
 * for 200 ms at most. Without one it returns an error; the op ends all the same, perhaps done. */
sl_err sl_op_cancel(struct sl_op *op, struct sl_error *why);
/* Waits until an op has ended and nothing touches its device blocks. Errors: SL_ERR_TIMEOUT. */
sl_err sl_op_wait_fenced(struct sl_op *op, uint64_t timeout_ns, struct sl_error *why);
/* Releases an op; cancels one that runs. Wait until it is fenced before its blocks are reused. */
void sl_op_release(struct sl_op **op);
/* Gives the result of an op without waiting. Errors: SL_ERR_BUSY (it runs). */
sl_err sl_op_poll(struct sl_op *op, struct sl_op_result *result);

/* ---- ends of ops, for a loop that waits for other things as well ---- */

/* Gives a descriptor that is readable (POLLIN, EPOLLIN) when ops of this client may have ended, of
 * all its engines, by their deadlines as well. Then call sl_client_ended, which makes it unreadable
 * again. No thread is needed. The descriptor belongs to the client, is the same for each call, and
 * is only polled; a fork has no use of it. Errors: SL_ERR_OS, SL_ERR_PERMISSION (read-only),
 * SL_ERR_INVALID (the client is of another process). */
sl_err sl_client_event_fd(struct sl_client *client, int *fd, struct sl_error *why);
/* Gives ops that have ended, each of them once, in the order of their ends, without those that were
 * released. Returns how many. Never waits. sl_op_poll has the results. Any thread.
 * room: at most this number */
uint32_t sl_client_ended(struct sl_client *client, struct sl_op **ops, uint32_t room);

/* ---- looking blocks up, by the engine's keys ----
 *
 * A scheduler calls this before it gives a request its device blocks. The index in shared memory
 * answers without a message: one probe a block, whatever its ranks and pools. A block counts when
 * all its parts are in memory or on disk of this node. The process needs no memory in the engine
 * (rank_count 0). Any thread.
 *
 * Blocks may be evicted between look-up and load, unless the look-up holds them. A hold is a lease
 * in shared memory: it costs no message, and ends by its time only, whatever process dies. A block
 * that is held is not evicted; with a disk it may leave memory when nothing else can. A full disk
 * may still evict it, and a removal ends it. Blocks that are only on disk stay there. */
struct sl_look {
    const unsigned char *hashes; /* as of sl_op_request: hash_bytes (1 to 64) each, one a block */
    uint32_t hash_bytes;
    uint32_t count; /* of blocks, at most 65,536 */
    /* 0: a prefix exists when all its blocks do. Else when its last `window` blocks do, or all of a
     * shorter prefix: for sliding windows, and with 1 for states (Mamba). */
    uint32_t window;
    uint64_t hold_ns; /* holds what the prefix needs, up to the setting block_lease; 0: no */
};
struct sl_looked {
    uint32_t prefix_count;  /* blocks of the longest prefix that exists */
    uint64_t held_until_ns; /* CLOCK_MONOTONIC; 0: nothing is held */
};
/* Looks up the longest prefix of a list of blocks.
 * there: NULL, or (count + 7) / 8 bytes: bit i & 7 of byte i >> 3 is set when block i exists (and,
 * with holds, stays). Errors: SL_ERR_INVALID, SL_ERR_UNREACHABLE (the node was stopped). */
sl_err sl_engine_look(struct sl_engine *engine, const struct sl_look *look, struct sl_looked *out,
                      unsigned char *there, struct sl_error *why);
/* Result of a look-up of pools that a prefix needs in one way (window), registered apart. */
struct sl_look_class {
    const unsigned char *there; /* as sl_engine_look gives it */
    uint32_t window;
};
/* Returns the number of blocks of the longest prefix that exists in all classes. To hold it, look
 * up the blocks it needs again, with hold_ns. Pure.
 * count: blocks at most */
uint32_t sl_look_prefix(const struct sl_look_class *classes, uint32_t class_count, uint32_t count);

/* ---- by layers ----
 *
 * A store or load whose request has layer_count overlaps its copies with the engine's computation.
 * A layer is one of the forward pass, counted from 0. It is a run of each pool's layers, so such a
 * pool registers its layers in the order of the forward pass (K and V of layer 0, K and V of layer
 * 1, ...). With 64 layers in a pool and layer_count 32, layer i is 2i and 2i + 1. Pools that take
 * part in some layers only use layer_ends.
 *
 * A store reads nothing of a layer before it is reported ready, and commits when all are stored.
 * Without the last layer it ends at its deadline. In a direct hand-over a layer travels to decode
 * while the next ones are computed. Blocks that do not fit into one round (a quarter of the node's
 * memory, or 4096 parts) are read when all layers are ready.
 *
 * A load reports its layers one by one, all with the same number of blocks: those it ends with.
 * From the first reported layer on it brings all of these or fails; after a failure none may be
 * used. In a load of several rounds the first layer arrives when all but the last round are in. */
#define SL_LAYERS_MAX 4096u
/* Reports that a layer of a store is ready. Report layers in order. Costs one message and does not
 * wait. Errors: SL_ERR_INVALID (no store by layers, no such layer, or one before it is missing),
 * SL_ERR_EXISTS (reported before), the op's code when it has failed. */
sl_err sl_op_layer_ready(struct sl_op *op, uint32_t layer, struct sl_error *why);
/* Waits until a layer of a load is on the device.
 * block_count: receives the number of blocks. Errors: SL_ERR_INVALID (no load by layers, no such
 * layer), SL_ERR_TIMEOUT (not yet), the op's code when it has failed: no layer may be used then. */
sl_err sl_op_layer_wait(struct sl_op *op, uint32_t layer, uint64_t timeout_ns,
                        uint32_t *block_count, struct sl_error *why);
/* Reports that all ranks have computed layers of a store, when a scheduler knows it.
 * layers: the first layers, this number of them, whatever was reported before. Errors:
 * SL_ERR_INVALID, the op's code. */
sl_err sl_op_layers_ready(struct sl_op *op, uint32_t layers, struct sl_error *why);

/* One process a rank: the process that began the op gives its number to the others, and each
 * reports its own rank with the engine that it registered. A layer of a store is ready when all
 * ranks have reported it, or sl_op_layers_ready has. Else the op ends at its deadline. */

/* Returns the op's number: not 0, and unique on the node. Also makes sure that the request has left
 * this process: 100 ms at most, in the first call. */
uint64_t sl_op_number(struct sl_op *op);
struct sl_rank_layers {
    uint64_t op_number;
    uint32_t rank;   /* of this process */
    uint32_t layers; /* the first layers: 1 to SL_LAYERS_MAX of them */
};
/* Reports that this rank has computed layers. Any thread.
 * timeout_ns: 0: do not wait; a report that precedes its op is then lost, and the next one contains
 * it. Else until the coordinator has noted it. Errors: SL_ERR_INVALID (rank, layers, no store by
 * layers), SL_ERR_NOT_FOUND (no such op, for a second), SL_ERR_PERMISSION (another engine's op). */
sl_err sl_layers_ready(struct sl_engine *engine, const struct sl_rank_layers *what,
                       uint64_t timeout_ns, struct sl_error *why);
struct sl_layers_in {
    uint32_t layers;      /* the first layers: how many are on the devices of all ranks */
    uint32_t block_count; /* blocks of each */
};
/* Waits until all ranks have layers of a load. The load may have fewer blocks than were requested,
 * or than earlier layers reported: compare. Any thread. Errors: as sl_layers_ready, and the op's
 * code when it has failed: no layer may be used then. */
sl_err sl_layers_wait(struct sl_engine *engine, const struct sl_rank_layers *what,
                      uint64_t timeout_ns, struct sl_layers_in *out, struct sl_error *why);

/* ---- prefill -> decode ----
 *
 * One request goes from the engine that computes its input to the one that decodes it, on any node.
 *
 * Through storage: prefill stores all blocks of the input, the incomplete last one as well, and
 * Sluice holds them in memory. Its receipt travels with the first token. Decode loads them.
 *
 *   decode    sl_handover_receive_start(id, its blocks)  early: it waits
 *   prefill   sl_handover_send_start(id, its blocks); sl_op_poll in its token loop; sl_op_receipt;
 *             then the first token goes, with the receipt
 *   decode    sl_handover_arrived(receipts of a batch of first tokens); sl_op_poll
 *             SL_OK: all blocks are loaded. SL_ERR_HANDOVER: answer 502; after sl_op_wait_fenced
 *             the blocks are free. At its end only decode stores what it added (sl_store_start).
 *
 * Where engines pass nothing on with the first token, decode names prefill's node (`from`), a peer
 * of its own node, which reports when the blocks are stored; decode may begin before prefill.
 * Prefill's node frees the blocks when decode has them or failed, at the latest after hold_ns;
 * sl_handover_end does so by hand.
 *
 * Direct: decode's node makes a ticket (sl_op_ticket), which travels with the announcement, or by
 * itself to the node in `from`. Under it prefill's node lends its blocks, and decode's node reads
 * them into decode's. Blocks that cannot travel so, or fail, go through storage when the setting
 * handover_fallback allows it; so the receipt travels with the first token in both modes.
 *
 * Either side may be by layers: prefill's so that layers travel while others are computed, decode's
 * so that it begins with the first while others arrive. */
enum sl_handover_mode {
    SL_HANDOVER_BY_ENVIRONMENT = 0, /* as sl_handover_mode_get says */
    SL_HANDOVER_BY_STORAGE = 1,
    SL_HANDOVER_DIRECT = 2,
};
/* Gives the mode of the environment variable FD_PD_TRANSFER_VIA_STORAGE. true, yes, on, 1: through
 * storage; false, no, off, 0, or not set: direct. Errors: SL_ERR_CONFIG (any other value). */
sl_err sl_handover_mode_get(enum sl_handover_mode *out, struct sl_error *why);

/* Plain data; goes from prefill's to decode's engine as it is, between hosts of one byte order. */
struct sl_receipt {
    uint64_t handover_id;
    uint64_t keys_low, keys_high; /* of model and last key: both sides derived the same ones */
    uint32_t block_end;           /* blocks of the input, an incomplete last one counts */
    char node[32];                /* prefill's node_name; "": it has none */
};
struct sl_ticket { /* plain data, as a receipt; a peer that has it may lend blocks to decode */
    uint64_t keys_low, keys_high;
    uint32_t first_block, block_end; /* decode has the blocks before first_block */
    uint32_t length_bytes;
    unsigned char bytes[128];
};
struct sl_handover_options {
    uint64_t id; /* > 0, the same on both sides, never used twice: a random number */
    enum sl_handover_mode mode;
    uint64_t hold_ns; /* prefill: how long decode may take; 0: setting handover_hold */
    const struct sl_receipt *receipt; /* decode: where it has arrived; NULL: it comes later */
    const struct sl_ticket *ticket;   /* prefill, direct: decode's; NULL: the one its node has */
    /* Decode: prefill's node_name where that is another node. It is asked until it has committed,
     * and gets the ticket of a direct hand-over; no receipt is needed. NULL or "": prefill is on
     * this node, or a receipt comes. */
    const char *from;
};
/* Starts to hand the blocks of a request over to decode. The blocks are the input from first_block
 * to its end; with tokens `partial` is implied. Blocks that are stored already are held, and not
 * copied. The op ends with SL_OK when every block is acknowledged and held, else with
 * SL_ERR_CANCELLED (decode gave up), SL_ERR_UNSUPPORTED (the key format has no key for an
 * incomplete block), or an error with SL_ERR_LIMIT in its message (half of memory is held). Errors:
 * as sl_store_start, SL_ERR_INVALID (id 0), SL_ERR_CONFIG (the environment). */
sl_err sl_handover_send_start(struct sl_engine *engine, const struct sl_op_request *request,
                              const struct sl_handover_options *options, struct sl_op **op,
                              struct sl_error *why);
/* Gives the receipt of an ended prefill. Errors: SL_ERR_BUSY (it runs), SL_ERR_INVALID (no such
 * op), the op's code (it failed). */
sl_err sl_op_receipt(struct sl_op *op, struct sl_receipt *out, struct sl_error *why);
/* Starts to receive the blocks of a request from prefill into device blocks for the input from
 * first_block on (decode has those before it). It waits for prefill, then loads. The op ends with
 * SL_OK (all blocks are loaded), SL_ERR_HANDOVER (a 502: nothing may be decoded, and the message
 * says why; also by deadline), SL_ERR_INCOMPLETE (only with the setting handover_recompute:
 * block_count blocks are loaded, compute the rest) or SL_ERR_CANCELLED. Errors: as
 * sl_handover_send_start. */
sl_err sl_handover_receive_start(struct sl_engine *engine, const struct sl_op_request *request,
                                 const struct sl_handover_options *options, struct sl_op **op,
                                 struct sl_error *why);
/* Gives the ticket of a direct decode, which prefill needs. Errors: SL_ERR_BUSY (not yet: ask
 * again), SL_ERR_UNSUPPORTED (there is none: it goes through storage), SL_ERR_NOT_FOUND (it
 * ended). */
sl_err sl_op_ticket(struct sl_op *op, struct sl_ticket *out, uint64_t timeout_ns,
                    struct sl_error *why);
/* Reports to decode's node that first tokens arrived: loads that wait for them continue.
 * count: 1 to 1,024
 * codes: SL_OK; SL_ERR_NOT_FOUND (that request has ended; counted, and no failure of the others);
 * SL_ERR_BUSY (prefill is on this node and has not committed); SL_ERR_INVALID (another receipt
 * came) */
sl_err sl_handover_arrived(struct sl_client *client, const struct sl_receipt *receipts,
                           uint32_t count, sl_err *codes, uint64_t timeout_ns,
                           struct sl_error *why);
/* Ends hand-overs at prefill's node: the blocks that it holds for them may leave memory.
 * count: 1 to 1,024
 * codes: SL_OK, SL_ERR_NOT_FOUND (it has ended), SL_ERR_BUSY (it runs) */
sl_err sl_handover_end(struct sl_client *client, const uint64_t *ids, uint32_t count, sl_err *codes,
                       uint64_t timeout_ns, struct sl_error *why);

#ifdef __cplusplus
}
#endif
#endif
