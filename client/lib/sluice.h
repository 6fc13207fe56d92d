/* client/lib/sluice.h - libsluice: the C API of Sluice, version 1.
 *
 * A client attaches to the node of this machine that runs under `instance`. It looks keys up and
 * reads values in shared memory without asking anyone; writing takes two round trips a batch, one
 * when values of its size were put a moment ago, none for a key that exists. Every
 * call that can wait takes a timeout in ns (0: the node's op_timeout) and ends by then. Calls on
 * one client may come from several threads; they are serialised where they talk to actors, look-ups
 * and copies run in parallel.
 *
 * A node that was stopped and started anew under the same name is attached to again by itself; what
 * was pinned in the old memory stays readable until it is released.
 *
 * fork: a client belongs to the process that opened it. A child must not use it (calls that talk to
 * actors, write or pin answer SL_ERR_INVALID) and opens its own. It keeps the mappings of values until it
 * execs, exits, or closes the client, but no pins: what its parent releases may change under it.
 *
 * Codes are enum sl_err (runtime/sl_error.h, repeated to users as numbers: 0 fine). Every function
 * that can fail takes `struct sl_error *why`, which may be NULL. */
#ifndef SLUICE_H
#define SLUICE_H

#include "runtime/sl_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a structure does, or when a call goes: 6 is without sl_memory_lend, sl_memory_reclaim, sl_uncharge_batch and
 * sl_terms.copies. Programs built with another version are refused by sl_client_open. */
#define SLUICE_API_VERSION 6

struct sl_client;
struct sl_client_options {
    uint32_t api_version; /* SLUICE_API_VERSION */
    const char *instance; /* NULL: $SLUICE_INSTANCE or "default" */
    const char *config;   /* config file; NULL: none */
    uint64_t timeout_ns;  /* to attach; 0: 2 s */
    bool read_only; /* attach to shared memory alone: works while actors are stopped; no pins, no
                       writing */
    bool leases;    /* what look-ups find is leased, where the node has leases */
    /* NULL, or "name=value" texts up to a NULL, as in the config file; they win over file and
     * environment. */
    const char *const *settings;
};
/* A node that starts, or makes its memory anew, is waited for. Errors: SL_ERR_UNREACHABLE (no node runs
 * under this name), SL_ERR_CORRUPT (its memory was cut short and stayed so), SL_ERR_FOREIGN,
 * SL_ERR_VERSION, SL_ERR_TIMEOUT, SL_ERR_LIMIT (no more descriptors or threads for this process). */
sl_err sl_client_open(const struct sl_client_options *options, struct sl_client **out,
                      struct sl_error *why);
/* Ends what the client has at the node, and frees its slot of clients_max within a heartbeat of the actors,
 * also while the process lives on. Views, drafts, ops, engines and pools of it end before; no other thread
 * uses it. In a fork of the process that opened it the client frees its memory, and the parent's goes on. */
void sl_client_close(struct sl_client **client);
const char *sl_client_instance(const struct sl_client *client);
/* What this client gets and looks up is counted for this tenant, too (`sluice_tenant_...`): 1 to 63
 * bytes, longer ones are cut. Before other threads know the client. */
void sl_client_tenant(struct sl_client *client, const char *tenant);
/* Whether the node serves less than it should, and why, for people ("no disk tier: ..."). Costs a
 * few system calls and disturbs nobody. */
#define SL_TROUBLE_BYTES 240u
bool sl_client_trouble(const struct sl_client *client, char out[SL_TROUBLE_BYTES]);

/* ---- objects ---- */
struct sl_object_key {
    const char *at; /* UTF-8, no NUL inside */
    uint32_t length;
};
/* Whether it can be a key: 1 to 1,024 bytes of UTF-8, none of them 0. */
bool sl_key_fine(struct sl_object_key key);
/* For callers that name what cannot be a key by a digest. Errors: SL_ERR_NO_MEMORY. */
#define SL_SHA256_BYTES 32u
sl_err sl_sha256(const void *at, uint64_t length_bytes, unsigned char digest[SL_SHA256_BYTES],
                 struct sl_error *why);
struct sl_buffer {
    void *at;
    uint64_t length_bytes;
};

/* Stores; a key that exists is success and changes nothing. A value has 1 byte to 1 GiB, and on a node
 * whose memory has smaller chunks (memory_chunk) one chunk: a larger one, such as a tensor, is put in
 * parts, each under a key of its own (SL_ERR_INVALID; a batch's why is of its last such value). Errors: SL_ERR_NO_SPACE, SL_ERR_BUSY
 * (another writer at it), SL_ERR_TIMEOUT, SL_ERR_UNREACHABLE, SL_ERR_INVALID. */
sl_err sl_put(struct sl_client *client, struct sl_object_key key, const void *value,
              uint64_t length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* Copies the value into buffer; *length_bytes is its size also when the buffer is too small
 * (SL_ERR_LIMIT). Memory of a node whose processes were all killed is read as before; one that was
 * stopped is SL_ERR_UNREACHABLE within a second. Errors: also SL_ERR_NOT_FOUND, SL_ERR_CORRUPT,
 * SL_ERR_TIMEOUT. */
sl_err sl_get(struct sl_client *client, struct sl_object_key key, struct sl_buffer buffer,
              uint64_t *length_bytes, uint64_t timeout_ns, struct sl_error *why);
/* SL_OK, SL_ERR_NOT_FOUND, SL_ERR_UNREACHABLE. Pins nothing, never blocks eviction. */
sl_err sl_exists(struct sl_client *client, struct sl_object_key key);
/* Removes for good. Errors: SL_ERR_NOT_FOUND, SL_ERR_TIMEOUT (asked in vain, or a disk has not
 * confirmed it yet), SL_ERR_DISK_AWAY (it is removed here, and a disk that nobody serves hears of it
 * when it is back: nothing need be repeated), SL_ERR_LIMIT (no room to note more removals for such a
 * disk: ask again when it is back), SL_ERR_NO_SPACE (the file system of a disk is full, or the index:
 * ask again when there is room), SL_ERR_UNREACHABLE (the node: nothing was done). */
sl_err sl_remove(struct sl_client *client, struct sl_object_key key, uint64_t timeout_ns,
                 struct sl_error *why);
sl_err sl_size(struct sl_client *client, struct sl_object_key key, uint64_t *length_bytes);
sl_err sl_remove_all(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why);

/* Zero-copy: the bytes stay where they are and unchanged until released. Errors: as get;
 * SL_ERR_LIMIT (pin slots or bytes: use sl_get). */
struct sl_view {
    const void *at;
    uint64_t length_bytes;
    uint64_t private_pin;
};
sl_err sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                     uint64_t timeout_ns, struct sl_error *why);
void sl_view_release(struct sl_client *client, struct sl_view *view);
/* Whether what was read of the view until now is the value. False: another process of this user cut
 * the node's shared memory short, and some of it may have read as zeros. Call this after the last access if damaged bytes
 * must not be used; calls that copy do so themselves. */
bool sl_view_intact(struct sl_client *client, const struct sl_view *view);

/* Batches: codes[i] for each; the result is SL_OK when the batch as such was carried out. At most
 * 65,536 keys. */
sl_err sl_put_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *values, uint32_t count, sl_err *codes,
                    uint64_t timeout_ns, struct sl_error *why);
sl_err sl_get_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *buffers, uint32_t count, uint64_t *lengths,
                    sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
sl_err sl_get_pinned_batch(struct sl_client *client, const struct sl_object_key *keys,
                           struct sl_view *views, uint32_t count, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);
sl_err sl_exists_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       sl_err *codes);
sl_err sl_remove_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                       sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Asks for values ahead of their use: what is on this node's disk alone is brought into memory, and
 * waited for. codes[i]: SL_OK (it came), SL_ERR_EXISTS (it was in memory), SL_ERR_NOT_FOUND (this
 * node has it not; others are not asked), SL_ERR_NO_SPACE, SL_ERR_TIMEOUT (what was being read
 * still comes), SL_ERR_LIMIT (65,536 keys are on their way for all clients), or what failed.
 * Loads go first, those of the same keys too. Nothing leaves memory for it but what is on disk, not
 * pinned and longest unused; values that were prefetched and that nobody has read since hold a
 * quarter of memory at most. Errors: SL_ERR_INVALID, SL_ERR_UNREACHABLE, SL_ERR_PERMISSION
 * (read-only). */
sl_err sl_prefetch_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                         sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
/* Waits until all that was committed before is durable on disk. Errors: SL_ERR_UNSUPPORTED (no disk
 * tier), SL_ERR_TIMEOUT, SL_ERR_DISK_AWAY (no disk of the node has been served for 5 s: what is in
 * memory stays there, is written when one is back, and only a flush after that says so),
 * SL_ERR_UNREACHABLE (the node). */
sl_err sl_flush(struct sl_client *client, uint64_t timeout_ns, struct sl_error *why);

/* ---- terms: how long a value stays, and where ---- */

/* Leases. On a node whose setting `lease_ttl` is not 0, a client opened with `leases` leases what
 * its look-ups find (exists, size, stat, get): for lease_ttl the value is not evicted, and a
 * removal that heeds leases is refused. Puts lease nothing. A get whose lease ended before its copy
 * did answers SL_ERR_LEASE_OVER. */

/* What a put may ask for. Zero is what sl_put does. */
struct sl_terms {
    bool hard_pin;        /* never evicted; removals take it */
    uint64_t soft_pin_ns; /* evicted only when nothing else is left, so long from the commit on */
    /* A value that is there stays visible until this one takes its place, in one step; its hard pin
     * and its bundle stay with the key (another bundle: SL_ERR_INVALID). A put of the key under way
     * is taken over, another replacement waited for (SL_ERR_BUSY at the deadline). With a disk the
     * answer waits until the old value cannot come back; SL_ERR_TIMEOUT, or SL_ERR_DISK_AWAY
     * when nobody serves that disk: it may be either. SL_ERR_LIMIT is as of sl_remove: the old one stays.
     * Parts of blocks are not replaced. */
    bool replace;
    bool at_once; /* SL_ERR_NO_SPACE and SL_ERR_BUSY are answered without waiting for room
                     or for another writer. Room that is on its way is waited for: memory that
                     comes, values that the disk is to have first. Who replaces still waits for
                     other writers */
    /* Contributions (below), the first of which that has room is charged; NULL: any. */
    const char *const *contributions;
    uint32_t contribution_count; /* at most 16 */
};
/* A run of a value's bytes in the caller's memory. */
struct sl_piece {
    /* Host memory, or device memory of this process (CUDA): what streams write there has to be
     * there when the call begins. */
    void *at;
    uint64_t length_bytes;
    uint64_t offset_bytes; /* in the value */
};
struct sl_pieces {
    struct sl_object_key key;
    struct sl_object_key bundle; /* puts: values that are leased and evicted together; length 0:
                                    none; at most 255 bytes */
    const struct sl_piece *at;
    uint32_t count;
};
/* As sl_put_batch, from pieces that cover each value without gap or overlap, in any order; empty
 * ones count for nothing. terms (for all of the batch) may be NULL. With `replace` a key that comes
 * twice is replaced by the later one. Errors also: SL_ERR_INVALID (pieces, a value larger than the
 * node's memory_chunk; why says what of the first such item), SL_ERR_UNSUPPORTED (the node cannot
 * replace). */
sl_err sl_put_pieces(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                     const struct sl_terms *terms, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);
/* Copies ranges of values into pieces; what a piece has behind the value's end is left alone.
 * lengths[i] (lengths may be NULL) is the value's size, also when codes[i] is SL_ERR_LIMIT: a piece
 * begins at its end or behind it, or, with `whole`, the pieces do not hold all of it (they may then
 * hold more). Pieces may overlap in the value, not in memory. Without any, and without `whole`, a
 * get gives the size. Errors: as sl_get_batch; SL_ERR_INVALID (pieces). */
sl_err sl_get_pieces(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                     bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);

/* ---- order with the engine's streams ----
 *
 * Device memory is read and written on streams of Sluice's own, in this process or a swapper's.
 * They know nothing of the engine's streams, not even of the default one.
 *
 * - What reads device memory (put, draft, store, a layer that is ready): all work that writes these
 *   bytes has ended before the call. The engine has waited for its stream, or for an event behind
 *   that work; that it was submitted is not enough.
 * - What writes device memory (get, load): all work that reads or writes these bytes has ended
 *   before the call.
 * - Until the call has returned, or the op is fenced, nobody writes what is read, and nobody touches
 *   what is written.
 * - A get returns, and a load or a layer is answered, when the bytes are in place. Work that is
 *   submitted afterwards sees them, on every stream of every process that maps the memory. There is
 *   nothing to wait for on the device.
 *
 * With an event the engine need not wait (sl_put_pieces_after, sl_get_pieces_after, and events of
 * sl_op_request). Sluice looks whether the event is over, and touches none
 * of the device memory before. The event was recorded before the call, behind that work, and is
 * neither destroyed nor recorded anew until the call has returned or the op has ended. */

/* The same as without _after. event: a CUevent (cudaEvent_t) of this process as above, of any
 * device; NULL: none. Pieces in host memory are copied at once, whatever the event says. codes[i]
 * also: SL_ERR_TIMEOUT (it was not over in time; nothing of device memory was touched),
 * SL_ERR_DEVICE (the driver knows no such event). */
sl_err sl_put_pieces_after(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                           const struct sl_terms *terms, void *event, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);
sl_err sl_get_pieces_after(struct sl_client *client, const struct sl_pieces *items, uint32_t count,
                           bool whole, void *event, uint64_t *lengths, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why);

/* A value that is written little by little and seen when it is committed. It belongs to its client,
 * and ends before that is closed. */
struct sl_draft;
/* Takes room for values of these lengths. bundles may be NULL. ttl_ns: how long it may take, 0:
 * setting put_release. Then its room is free again, also while this process does nothing; and
 * after put_preempt another writer may take its key. drafts[i] is NULL where codes[i] is not SL_OK; so it is of messages that
 * were not answered any more when the call fails. Errors: as sl_put_pieces; codes[i] also
 * SL_ERR_EXISTS (the key is there, and terms do not replace), SL_ERR_BUSY (another writer; it is
 * not waited for). */
sl_err sl_draft_begin(struct sl_client *client, const struct sl_object_key *keys,
                      const struct sl_object_key *bundles, const uint64_t *lengths_bytes,
                      uint32_t count, const struct sl_terms *terms, uint64_t ttl_ns,
                      struct sl_draft **drafts, sl_err *codes, uint64_t timeout_ns,
                      struct sl_error *why);
/* Any thread, also several on one draft. What is written twice is there as it was written last.
 * Errors: SL_ERR_INVALID (pieces, beyond its length), SL_ERR_STALE (its time is over, or the node
 * was started anew), SL_ERR_LIMIT (all of client_pins_max are taken), SL_ERR_NO_MEMORY. */
sl_err sl_draft_write(struct sl_draft *draft, const struct sl_piece *pieces, uint32_t count,
                      struct sl_error *why);
/* Makes them visible when no write is going on any more, frees the drafts and sets them NULL, also
 * on failure. Bytes that were never written are 0. codes[i]: SL_OK, SL_ERR_STALE, SL_ERR_NO_SPACE,
 * SL_ERR_LIMIT (as for a write), SL_ERR_INVALID (NULL, or the same one twice), or why there was no answer. */
sl_err sl_draft_commit(struct sl_client *client, struct sl_draft **drafts, uint32_t count,
                       sl_err *codes, uint64_t timeout_ns, struct sl_error *why);
void sl_draft_drop(struct sl_draft **draft); /* gives the room back; sets it NULL */

/* Memory of this process. Pieces may lie anywhere, registered or not; who registers what it will
 * use spares a question to the driver for each piece in a process with a GPU, and a caller can ask
 * what it was told. Registering pins nothing and touches nothing, however much it is. What lies
 * side by side and is of one place may be used as one. One table for the process, any thread; a
 * fork has a copy of its own. */
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
/* What is registered more than once is until it was unregistered as often. Errors: SL_ERR_INVALID
 * (no address, no length, wraps around; device memory that ends before it), SL_ERR_NO_MEMORY. */
sl_err sl_memory_register(const void *at, uint64_t length_bytes, struct sl_error *why);
/* at: where it starts, exactly; the last one that was registered there. Errors: SL_ERR_NOT_FOUND.
 */
sl_err sl_memory_unregister(const void *at, struct sl_error *why);
/* Where registered memory lies. Errors: SL_ERR_NOT_FOUND (not all of it is registered, or not of
 * one place). */
sl_err sl_memory_find(const void *at, uint64_t length_bytes, struct sl_place_info *out);
/* Shared memory of this process and its forks: populated, in huge pages where the system gives
 * them, aligned to 2 MiB from that size on, else to a page, zeroed. It counts as registered.
 * Errors: SL_ERR_INVALID (0, too much to count), SL_ERR_NO_MEMORY. */
sl_err sl_memory_alloc(uint64_t length_bytes, void **out, struct sl_error *why);
/* Errors: SL_ERR_NOT_FOUND (not what alloc gave, or freed already). */
sl_err sl_memory_free(void *at, struct sl_error *why);

/* Removes what is not leased when heed_leases (SL_ERR_LEASED for the rest). SL_ERR_BUSY: it is
 * being written. */
sl_err sl_remove_batch_heeding(struct sl_client *client, const struct sl_object_key *keys,
                               uint32_t count, bool heed_leases, sl_err *codes, uint64_t timeout_ns,
                               struct sl_error *why);

/* What a look-up tells; leases as one. */
struct sl_stat {
    uint64_t length_bytes;
    uint64_t lease_end_ns;  /* CLOCK_MONOTONIC; 0: not leased by this look-up */
    uint64_t contributions; /* bit of the number; 0: not in memory, or of a node without any */
    bool in_memory, on_disk;
    bool hard_pin;
    bool ours; /* a client of this process put it */
    uint64_t soft_pin_end_ns;
    uint32_t writer_pid; /* process that put it, where that lives; 0: not known any more */
};
/* codes[i]: SL_OK, SL_ERR_NOT_FOUND (also of what is being written: nobody is asked), SL_ERR_BUSY
 * (it kept changing). At most 65,536 keys. */
sl_err sl_stat_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_stat *stats, sl_err *codes);

/* Contributions. On a node with the setting `contributions`, values in memory are charged to what
 * processes contribute, and the ceiling is their sum (at most `memory`). When one ends (withdrawn,
 * or its process died), values that were charged to it leave memory; what is on disk, too,
 * stays there. Names are unique on a node; the same again is fine. A client tells a node that was
 * started anew by itself what it contributes, with its next call that asks the node for something,
 * and takes back what does not last when it is closed. Withdrawing waits until none of the values
 * can be seen. Errors: SL_ERR_EXISTS (a living process has the name, or it lasts with another
 * length), SL_ERR_NO_SPACE (beyond `memory`), SL_ERR_LIMIT (64 are there), SL_ERR_UNSUPPORTED (the
 * node has them not), SL_ERR_NOT_FOUND, SL_ERR_PERMISSION (withdraw: there is none of this name; it
 * is of another process), SL_ERR_TIMEOUT, SL_ERR_INVALID.
 */
struct sl_contribution_info {
    char name[256];
    uint32_t number; /* bit in sl_stat.contributions */
    uint64_t length_bytes, used_bytes, value_count;
    char process[32]; /* "": it lasts */
    uint32_t pid;
};
#define SL_CONTRIBUTIONS_MAX 64u
sl_err sl_contribute(struct sl_client *client, const char *name, uint64_t length_bytes,
                     bool lasting, uint64_t timeout_ns, struct sl_error *why);
sl_err sl_withdraw(struct sl_client *client, const char *name, uint64_t timeout_ns,
                   struct sl_error *why);
sl_err sl_contributions(struct sl_client *client, struct sl_contribution_info *infos,
                        uint32_t *count, uint64_t timeout_ns, struct sl_error *why);
/* Why an object, a part or a block is a miss, in words: one story a key. */
struct sl_story {
    sl_err code;     /* SL_OK: it is there; SL_ERR_BUSY: being written; SL_ERR_NOT_FOUND */
    uint64_t ago_ns; /* when it went; 0: not known */
    char text[256];
};
#define SL_EXPLAIN_KEYS_MAX 64u
/* Asks the registrar, which remembers the last `ghosts_max` that left and why, since its start.
 * count: 1..SL_EXPLAIN_KEYS_MAX. Errors: SL_ERR_INVALID, SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT. */
sl_err sl_explain(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                  struct sl_story *stories, uint64_t timeout_ns, struct sl_error *why);

/* What became of a block of an op. */
enum sl_fate {
    SL_FATE_OPEN = 0, /* the op runs */
    SL_FATE_MEMORY,   /* loaded: where it was when the op first looked */
    SL_FATE_DISK,
    SL_FATE_REMOTE,  /* at another node */
    SL_FATE_MISSING, /* nowhere: the load ends here */
    SL_FATE_BEHIND,  /* behind one that is missing: not asked for */
    SL_FATE_LEFT,    /* here, but sooner computed than read */
    SL_FATE_FAILED,  /* not loaded, as the op failed */
    SL_FATE_STORED,
    SL_FATE_EXISTED, /* not stored, since it was there */
    SL_FATE_REFUSED, /* not stored */
};
struct sl_told_run {
    uint32_t count; /* of blocks that follow each other */
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
    uint32_t first_block;       /* of its prompt: of this one is the first run */
    struct sl_told_run *runs;   /* run_count; owned */
    struct sl_object_key *keys; /* MODEL/BLOCK of the first blocks that were not there; owned */
    uint32_t run_count, key_count;
    uint32_t keys_first; /* number of the block that keys[0] is of */
};
/* Asks the coordinator what became of an op, block by block. id: its trace id in hex digits, or what the
 * engine calls the request (sl_origin_set), which may have several ops: `skip` passes over so many
 * of the youngest. It knows ops under way, and the last 1,024 that ended since its start. *told: to be
 * freed by sl_told_free, after errors too. Errors: SL_ERR_NOT_FOUND, SL_ERR_INVALID,
 * SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT, SL_ERR_UNSUPPORTED (a node of an earlier release). */
sl_err sl_op_tell(struct sl_client *client, const char *id, uint32_t skip, struct sl_told *told,
                  uint64_t timeout_ns, struct sl_error *why);
void sl_told_free(struct sl_told *told);

/* ---- objects of other nodes ---- */

/* What another node has under a key. */
struct sl_elsewhere {
    uint64_t length_bytes;
    bool in_memory, on_disk;
    char node[32];
};
/* Whether there may be other nodes: costs nothing. */
bool sl_client_has_peers(const struct sl_client *client);
/* Asks all peers that are alive, for peer_timeout at most; leases what is there where the holder
 * has leases. codes[i]: SL_OK (another node has it), SL_ERR_NOT_FOUND (nobody that answered has).
 * What is here is not looked at. At most 65,536 keys. Errors: SL_ERR_INVALID, SL_ERR_UNREACHABLE,
 * SL_ERR_TIMEOUT, SL_ERR_PERMISSION (read-only). */
sl_err sl_seek_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                     struct sl_elsewhere *out, sl_err *codes, uint64_t timeout_ns,
                     struct sl_error *why);
/* Removes objects at all other nodes that are alive and let their peers do so (setting
 * peer_removes); here nothing changes. codes[i]: SL_OK (removed somewhere), SL_ERR_NOT_FOUND,
 * SL_ERR_LEASED, SL_ERR_BUSY, SL_ERR_TIMEOUT (a peer did not answer: it may have it still). Errors:
 * as sl_seek_batch. */
sl_err sl_remove_elsewhere(struct sl_client *client, const struct sl_object_key *keys,
                           uint32_t count, bool heed_leases, sl_err *codes, uint64_t timeout_ns,
                           struct sl_error *why);

/* Another node, as this node's transporter sees it. */
struct sl_node_info {
    char name[32];
    char address[129]; /* where it is asked; "": it only asks us */
    char state[16];    /* alive, away, broken; of no peer of ours: asks, new, or why it is none: no
                          key, no address, no name, too many */
    char link[16];     /* where bytes go: up, connecting, down */
    char source[16];   /* who told of it: peers (the setting), directory; "": itself */
    uint64_t incarnation, round_trip_ns, heard_ago_ns;
    uint64_t read_bytes, read_values, failures, pinned_values;
};
struct sl_cluster_info {
    char name[32];    /* of this node; "": it has no peers and nobody can ask it */
    char listen[129]; /* where peers ask it; "": nowhere */
    char fabric[192]; /* what carries bytes */
};
#define SL_NODES_MAX 64u
/* Fills *count nodes, at most SL_NODES_MAX. Errors: SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT. */
sl_err sl_nodes(struct sl_client *client, struct sl_cluster_info *self, struct sl_node_info *nodes,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

/* Each visible object; each() returns false to stop. The entry is borrowed. */
struct sl_object_info {
    struct sl_object_key key;
    uint64_t length_bytes;
    bool in_memory, on_disk;
    uint64_t digest_low, digest_high;
};
sl_err sl_list(struct sl_client *client, const char *prefix,
               bool (*each)(void *context, const struct sl_object_info *info), void *context,
               struct sl_error *why);
sl_err sl_stat(struct sl_client *client, struct sl_object_key key, struct sl_object_info *out);

/* ---- pools: device memory with one owner ----
 *
 * The device memory of one pool of one rank is made once, by the engine or by Sluice
 * (sl_pool_owner_decide), and every other process that needs it waits for it, maps it, and hears
 * when it is over:
 *
 *   owner   sl_pool_create, fill it, sl_pool_publish ... sl_pool_revoke, sl_pool_release
 *   others  sl_pool_await, or sl_pool_acquire where Sluice makes it ... sl_pool_wait_over,
 *           sl_pool_release
 *
 * What an engine made ends with its process. What Sluice made lives as long as a client has it,
 * also when the process that made it dies; the last client's release or death gives it back. Memory
 * of the host device is mapped here; of CUDA memory the handle is given (sl_pool_memory_get).
 *
 * A sl_pool is used by one thread at a time, but sl_pool_wait_over may run beside reading it. A
 * client has one sl_pool of a key at a time. Release all before the client is closed. After a node
 * was stopped and started anew it knows no pools: sl_pool_wait_over says so. */
enum sl_pool_creator { SL_POOL_BY_ENGINE = 0, SL_POOL_BY_SLUICE = 1 };
struct sl_pool_situation {
    bool profiling;       /* the engine measures how much memory it can have */
    uint64_t host_blocks; /* blocks of host memory below those of the device */
    bool storage;         /* there is a storage backend */
    bool split;           /* prefill and decode are different processes */
};
/* Who creates a deployment's device pools: while profiling the engine; else the engine only where
 * there are no host blocks, no storage backend and no split; else Sluice. Pure; any thread. */
enum sl_pool_creator sl_pool_owner_decide(const struct sl_pool_situation *situation);

struct sl_pool_key {
    const char
        *deployment;  /* what one model replica is called on this node: 1..63 of printable ASCII */
    uint32_t rank;    /* 0..63 */
    const char *pool; /* [a-z0-9_-]{1,31}, as in sl_engine_pool */
};
enum sl_pool_memory_kind {
    SL_POOL_MEMORY_FD = 1,       /* shared memory: descriptor fd of process pid */
    SL_POOL_MEMORY_CUDA_IPC = 2, /* cudaIpcMemHandle_t in handle */
    SL_POOL_MEMORY_CUDA_FD =
        3, /* shareable handle: descriptor fd of process pid; who acquires the pool
                                  * has one of its own, which is the pool's */
};
struct sl_pool_memory { /* how others map it */
    enum sl_pool_memory_kind kind;
    uint32_t pid; /* when it is published: ignored, it is the caller's */
    int fd;
    unsigned char handle[64];
    uint64_t offset_bytes; /* where the pool starts in that memory */
    /* UUID of the GPU that it lies on, as cuDeviceGetUuid_v2 gives it, or all zero: not told. Who
     * acquires the pool is told, too. An engine in it whose swapper has another GPU gets an error
     * that names both. */
    unsigned char gpu[16];
};
struct sl_pool; /* opaque */

/* Takes the right to make the pool: nobody else gets it until this is released, revoked, or this
 * process dies. Gives *out with length_bytes (> 0) of zero-filled shared memory, mapped; it has to
 * be published. Waits while a former one is being revoked. Errors: SL_ERR_BUSY (another makes it;
 * or a former one is still mapped; the text names who), SL_ERR_EXISTS (it is ready; names the
 * owner), SL_ERR_LIMIT (pools_max), SL_ERR_INVALID, SL_ERR_NO_MEMORY, SL_ERR_UNREACHABLE,
 * SL_ERR_TIMEOUT. */
sl_err sl_pool_create(struct sl_client *client, const struct sl_pool_key *key,
                      uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                      struct sl_error *why);
/* Says that it is ready. memory: memory of the caller's own instead of that of sl_pool_create,
 * which is given back then; it has to stay until the pool is revoked. NULL: that of sl_pool_create.
 * Errors: SL_ERR_STALE (it was revoked, or the node forgot it), SL_ERR_INVALID, SL_ERR_UNREACHABLE,
 * SL_ERR_TIMEOUT. */
sl_err sl_pool_publish(struct sl_pool *pool, const struct sl_pool_memory *memory,
                       uint64_t timeout_ns, struct sl_error *why);
/* Waits until somebody has made the pool, and maps it. Errors: SL_ERR_PEER_DIED (its owner died
 * before it was ready: at once), SL_ERR_CANCELLED (its owner gave it up), SL_ERR_TIMEOUT (the text
 * says who makes it, or that nobody does), SL_ERR_EXISTS (this client has it already),
 * SL_ERR_LIMIT, SL_ERR_INVALID, SL_ERR_UNREACHABLE. */
sl_err sl_pool_await(struct sl_client *client, const struct sl_pool_key *key, uint64_t timeout_ns,
                     struct sl_pool **out, struct sl_error *why);
/* The same where Sluice makes it: the rank's swapper does, when nobody has yet. A swapper that dies
 * meanwhile is replaced and asked again until the timeout. Errors: as sl_pool_await; SL_ERR_BUSY,
 * SL_ERR_EXISTS (an engine makes or made it); SL_ERR_INVALID (it has another length, the node has
 * no such rank); SL_ERR_UNSUPPORTED (the device makes no memory for others), SL_ERR_NO_MEMORY. */
sl_err sl_pool_acquire(struct sl_client *client, const struct sl_pool_key *key,
                       uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                       struct sl_error *why);
/* Waits until the memory is over: it is being revoked, its owner died, or the node forgot it.
 * SL_OK: stop using it and release it. Errors: SL_ERR_TIMEOUT (it stands), SL_ERR_UNREACHABLE. */
sl_err sl_pool_wait_over(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Owner (or, of what Sluice made, any client that has it): all others shall unmap it. SL_OK when
 * every mapper did or is dead: the memory may go, and another may make the pool anew. Swappers that
 * do not within fence_timeout are killed; a client that does not keeps it. Engines registered with
 * it end. Of what Sluice made the mapping here ends first. The pool is released by the caller
 * afterwards. Errors: SL_ERR_TIMEOUT (the text names who still maps it; ask again),
 * SL_ERR_PERMISSION (not its owner), SL_ERR_UNREACHABLE. */
sl_err sl_pool_revoke(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why);
/* Unmaps and says so. An owner's: what was not ready is given up, what was is revoked without
 * waiting. Waits a second at most for a registrar that is away. Accepts NULL. */
void sl_pool_release(struct sl_pool **pool);
/* Where it is mapped here, 16-byte aligned at least; NULL: it is not, as CUDA memory. */
void *sl_pool_at(const struct sl_pool *pool);
uint64_t sl_pool_length(const struct sl_pool *pool); /* bytes */
uint64_t sl_pool_epoch(const struct sl_pool *pool);  /* of this memory; never reused */
void sl_pool_memory_get(const struct sl_pool *pool, struct sl_pool_memory *out);

/* One row of the node's table of pools. */
struct sl_pool_info {
    char deployment[64], pool[32];
    uint32_t rank;
    char state[16]; /* absent (somebody waits for it), allocating, ready, revoking */
    uint64_t epoch, length_bytes;
    bool by_sluice;
    char owner[32];
    uint32_t owner_pid; /* 0: gone */
    uint32_t mapper_count, waiter_count;
    char mappers[256]; /* names; cut when there are many */
};
/* Fills *count rows, at most count_max; *count is how many there are. Errors: SL_ERR_UNREACHABLE,
 * SL_ERR_TIMEOUT. */
sl_err sl_pools(struct sl_client *client, struct sl_pool_info *infos, uint32_t count_max,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why);

/* ---- what a store in a process of its own has to map (hybrid models) ---- */
struct sl_pool_buffer {
    uint64_t start_addr; /* 0: this pool is missing, whatever its length */
    uint64_t length_bytes;
};
#define SL_POOL_BUFFERS_MAX 65536u
/* *required_bytes: the sum over distinct buffers. A missing or empty one counts zero; of those with
 * the same start the longest counts; two of different starts that share a byte are an error. Pure;
 * count 0..SL_POOL_BUFFERS_MAX. Errors: SL_ERR_INVALID (overlap, an end or a sum beyond 64 bits;
 * names the buffers), SL_ERR_LIMIT (count), SL_ERR_NO_MEMORY. */
sl_err sl_pool_required_bytes(const struct sl_pool_buffer *buffers, uint32_t count,
                              uint64_t *required_bytes, struct sl_error *why);
/* Whether a buffer that is registered later lies in what is mapped: in one of the buffers, or
 * across several that adjoin. Pure. Errors: SL_ERR_INVALID (null, empty, beyond 64 bits, or a byte
 * of it is not mapped; names it), SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err sl_pool_buffer_check(const struct sl_pool_buffer *mapped, uint32_t count,
                            struct sl_pool_buffer late, struct sl_error *why);

/* ---- engines ---- */
struct sl_engine; /* one engine process with all its ranks' pools, seen from the process that
                     registers them */

enum sl_pool_kind {
    SL_POOL_ATTENTION = 0,
    SL_POOL_MAMBA_STATE = 1,
    SL_POOL_MAMBA_CONV = 2,
    SL_POOL_INDEXER = 3,
    SL_POOL_OTHER = 255
};

/* Everything that gives bytes their meaning. Texts may be NULL (as empty). name: of a hub, with its
 * revision; of weights in files a digest of them, since other files may come to the same path. The
 * model identity is a hash of these, key format, block_tokens, and every pool's name, kind and
 * part_count. Without part_count it has world, and the pool's layers and their piece_bytes, instead.
 * Where a layer lies in memory is no part. */
struct sl_model {
    const char *name, *revision, *dtype, *layout, *rope, *lora, *quantisation;
};

/* Memory of one layer of one pool of one rank: K and V of a layer are two layers of one pool. */
struct sl_engine_layer {
    uint64_t offset_bytes; /* in the memory of (rank, pool) */
    uint64_t length_bytes;
    uint64_t block_stride_bytes;
    uint64_t piece_bytes; /* bytes of a block in this layer */
    /* Of a pool with part_count: which part, counted from the first one of the rank. The layers of
     * a part are in the order in which they stand in the table. */
    uint32_t part;
    /* 0: the piece is one run. Else it is runs of fragment_bytes, which divides piece_bytes, from
     * one to the next fragment_stride_bytes. So are some of the heads of a page whose heads lie
     * side by side for each token. */
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
    /* A pool of the table of pools per rank, or NULL: as fds say. Borrowed until the engine ended;
     * memory_bytes of each are there. One that is revoked ends the registration. */
    const struct sl_pool *const *from;
    /* CUDA memory of this process: device[rank][layer] is the address from which offset_bytes of
     * that layer counts; memory_bytes bounds offset and length. NULL: as from and fds say. What it
     * is, is found out (sl_engine_memory_kind): memory of cudaMalloc and of torch's caching
     * allocator, also a part of an allocation; memory of many handles (expandable_segments). It
     * stays where it is until the engine ended. What an engine unmaps (sleep mode) it ends before,
     * and registers after it was mapped again; swappers have let go of it when
     * sl_engine_end returns. An op on memory that was unmapped or made anew since is SL_ERR_STALE.
     * Host memory that is not shared works as well (tensors of an engine on CPUs): its swapper
     * copies with the rights of a debugger. Where it has none, the op ends with SL_ERR_PERMISSION,
     * which says what to set. It is put in huge pages where the system lets it, for 1 s and
     * a quarter of the timeout at most. */
    const uint64_t *const *device;
    /* 0: a block has one part a rank, and what TP=2 has written nobody but TP=2 reads. Else so many
     * parts, 1 to 64, whatever the ranks: slices of KV heads (and of layers, where pipeline stages
     * differ), of which each rank has some. Several ranks may have the same: one of them stores it,
     * in turn, and all load it. 1: all ranks have the same bytes. */
    uint32_t part_count;
    /* [world]: the first part that a rank has; those of its layers are counted from there. NULL:
     * rank r has parts r * part_count / world to (r + 1) * part_count / world, one at least. */
    const uint32_t *first_parts;
};
/* A number from 2^63 on, which the processes of an engine agree on: made of 16 random bytes or
 * more, such as the engine's own id, as text. Pure. */
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
     * for its memory, and any process that registers has the whole engine: the ranks [first_rank,
     * first_rank + rank_count) are here, whose rows alone fds, from and device have. rank_count 0:
     * none, as in a scheduler's process, and layers and memory of pools are not looked at. Ops begin
     * when all ranks are there (SL_ERR_NOT_FOUND before). A rank that dies costs an op that rank's
     * blocks; the others stay. */
    uint64_t team;
    uint32_t first_rank, rank_count;
};
/* Errors: SL_ERR_INVALID (names what is wrong), SL_ERR_STALE (a pool of `from` is over),
 * SL_ERR_UNSUPPORTED (device memory that cannot be shared),
 * SL_ERR_DEVICE, SL_ERR_LIMIT (engines_max), SL_ERR_NO_MEMORY, SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT. */
sl_err sl_engine_register(struct sl_client *client, const struct sl_engine_options *options,
                          uint64_t timeout_ns, struct sl_engine **out, struct sl_error *why);
/* Ends the registration; all its ops are released before. Returns when no swapper touches the memory
 * any more, or after 1.5 s: a swapper that is stopped for so long is killed. */
void sl_engine_end(struct sl_engine **engine);
/* Host address of a pool that was allocated here, or mapped from fds. */
void *sl_engine_memory(struct sl_engine *engine, uint32_t rank, uint32_t pool);
/* What the memory is, for people: "shared memory", "cuda ipc", "cuda descriptor", "cuda memory of
 * many handles". NULL: there is no such rank or pool. */
const char *sl_engine_memory_kind(const struct sl_engine *engine, uint32_t rank, uint32_t pool);
const char *sl_engine_model_identity(const struct sl_engine *engine); /* 32 hex digits */

/* ---- ops ---- */
#define SL_HASH_BYTES_MAX 64u /* of a block's key that the engine made */
struct sl_op;
/* Hints: what the engine knows of the blocks of an op and of their session. They move the order of
 * eviction (evict_policy density), and when blocks come back from disk; nothing else. What is wrong
 * costs hits, never a byte. */
enum sl_session {
    SL_SESSION_UNKNOWN = 0,
    SL_SESSION_ENDS = 1,   /* nobody is expected to ask for more of it than this request does */
    SL_SESSION_GOES_ON = 2 /* another request is */
};
enum sl_priority {
    SL_PRIORITY_UNKNOWN = 0, /* as it was; normal at first */
    SL_PRIORITY_LOW = 1,     /* a hit of it is worth half of a normal one, */
    SL_PRIORITY_NORMAL = 2,
    SL_PRIORITY_HIGH = 3 /* or twice as much: what all say changes nothing */
};
#define SL_KEEP_NS_LIMIT (7 * UINT64_C(86400) * UINT64_C(1000000000)) /* a week */
struct sl_hints {
    /* The node learns how often this is right, and follows it so far. */
    enum sl_session session;
    enum sl_priority priority;
    /* For so long after the op, in whole seconds upwards, its blocks and those before them in their
     * chain are evicted after all others. That is no pin: what is kept so takes an eighth of memory
     * at most, and less when it is wanted less often than what goes for it. 0: not; up to
     * SL_KEEP_NS_LIMIT. */
    uint64_t keep_ns;
    /* Any name of the session, which all of its ops share; NULL: not known. It leaves the process as
     * a hash of 64 bits. Without a name an op that goes on from the blocks of an earlier one is of
     * the same session. */
    const char *session_id;
    /* After so long the next op of the session is expected: the blocks of this one are brought from
     * disk into memory shortly before, where that is worth it. 0: not known; up to SL_KEEP_NS_LIMIT.
     * The node learns how often and how closely this is right, and follows it so far. */
    uint64_t pause_ns;
};
/* The same in the middle of a pause, from whoever knows it: the engine, or a framework of agents
 * beside it with a client of its own. A tool call began, or will end in 30 s:
 *   pause_ns 0..SL_KEEP_NS_LIMIT: the session's next op is expected so long from now. 0: the pause is
 *     over, and the op is about to come.
 *   SL_PAUSE_UNKNOWN: nobody knows when; what was told counts no more.
 * It replaces what was told before, as often as something is learnt, until the session's next load.
 * session_id: the name that ops of the session gave (hints, above), at a node where they ended.
 * timeout_ns: 0: the setting op_timeout. It waits for the answer, which waits for nothing: no load is
 * held up. From any thread. Errors: SL_ERR_NOT_FOUND (no op of it has ended here, it ended, others
 * took its place, or the coordinator is another one since: tell it again behind the next op),
 * SL_ERR_UNSUPPORTED (this node keeps no sessions, or its release does not know the call: the text
 * says which), SL_ERR_TIMEOUT (also of the first releases that do not know it: they answer nothing),
 * SL_ERR_INVALID, SL_ERR_PERMISSION (read-only), SL_ERR_UNREACHABLE. */
#define SL_PAUSE_UNKNOWN UINT64_MAX
sl_err sl_session_pause(struct sl_client *client, const char *session_id, uint64_t pause_ns,
                        uint64_t timeout_ns, struct sl_error *why);
/* The same hints for values that have keys of their own: what a request of a session has got or put. */
#define SL_HINT_LANES 64u
struct sl_hinted {
    const struct sl_object_key *keys; /* in the order of the chain */
    uint32_t count;
    /* They were asked for: the session came back. Else they were put. What its chain has before the
     * first of them stays; where it has not that one, what was asked for is all of the chain, and what
     * was put comes behind it. */
    bool asked;
    /* Where each rank puts values of its own: its number, so that they are not taken for one chain.
     * sl_session_pause tells all of them. Below SL_HINT_LANES. */
    uint32_t lane;
};
/* Behind a get, or a put that is done: what is not in memory now is not told of. hints->session,
 * priority and keep_ns cost no message, and may be lost when very many are told at once. A
 * session_id is told to the coordinator: then pause_ns and sl_session_pause bring the values of the
 * chain back from disk in time. Without a session_id pause_ns says no more than that the session
 * goes on. timeout_ns as in sl_session_pause. From any thread. Errors: SL_ERR_INVALID,
 * SL_ERR_PERMISSION (read-only), SL_ERR_UNSUPPORTED (a node of an earlier release), SL_ERR_TIMEOUT,
 * SL_ERR_UNREACHABLE, SL_ERR_NO_MEMORY. */
sl_err sl_hint_batch(struct sl_client *client, const struct sl_hints *hints,
                     const struct sl_hinted *of, uint64_t timeout_ns, struct sl_error *why);
/* How fast the engine computes what a load does not bring. Then the load ends, with SL_OK and a
 * shorter prefix, rather than wait for blocks on a disk or at another node that are sooner computed:
 * where reading them is expected to take longer, or does. All zero: everything is waited for. A load
 * of a hand-over waits for all of it anyhow. */
#define SL_PREFILL_LIMIT (UINT64_C(1) << 40)
struct sl_prefill {
    uint64_t
        tokens_per_s; /* at the start of a prompt; 0: nothing is said; up to SL_PREFILL_LIMIT */
    /* Attention makes later tokens more work: the place of the token that takes twice as long as the
     * first. For FLOPs: a + b * place of a token make a / b. 0: all take as long. */
    uint64_t doubles_at_token;
};
/* An event of the engine that the op comes after ("order with the engine's streams", above). */
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
    /* [layer_count][pools]: how many of the pool's layers belong to that layer or to those before.
     * NULL: the layers of every pool go evenly into layer_count. */
    const uint32_t *layer_ends;
    /* At most one a rank; copied. No block of that rank is read or written before its event is over.
     * It was made with CU_EVENT_INTERPROCESS and recorded before the start, and is neither destroyed
     * nor recorded anew until the op has ended. Ranks without one have waited by themselves. An
     * event that cannot be opened fails the copies of its rank, and the result's text names it. By
     * layers, all of them come after it. */
    const struct sl_op_event *events;
    uint32_t event_count;
    /* Instead of tokens: keys that the engine made, hash_bytes each (1 to 64), one a block from
     * first_block on. The same key names the same bytes for all who have this model identity.
     * Copied. token_count is 0 then, and so is partial, but in a hand-over: there it says that the
     * last block is incomplete. Its key is of that part alone, and it is kept for a while only. */
    const unsigned char *hashes;
    uint32_t hash_bytes;
    /* With hashes, [pools]: a table of device blocks for each pool, device_block_count entries.
     * NULL: device_blocks is that of all pools. */
    const uint32_t *const *pool_blocks;
    /* With hashes, a store: key of the block before the first one, hash_bytes, copied; NULL: there is
     * none, or it is not known. Blocks of a chain are evicted from its end. */
    const unsigned char *before_hash;
    struct sl_hints hints;
    void *context;             /* the caller's own (sl_op_context) */
    struct sl_prefill prefill; /* of a load */
};
/* Where ops come from, for whoever looks for the reason of a wait. */
struct sl_origin {
    const char *request; /* what the engine calls it; NULL or "": nothing. Under SL_ORIGIN_BYTES */
    const char *traceparent; /* W3C trace context, the header's text; NULL or "": none */
};
/* Stores, loads and hand-overs that this thread starts from now on come from there, until it is said
 * anew; NULL: from nowhere. Copied. `sluicectl explain --request` finds ops by the request's name; the
 * flight recorder keeps the trace context, and `python -m sluice.otel` hands the ops on as its
 * spans. Errors: SL_ERR_INVALID (names which is wrong; nothing has changed). */
sl_err sl_origin_set(const struct sl_origin *origin, struct sl_error *why);
struct sl_op_result {
    sl_err code;
    uint64_t op_id, trace_id;
    uint32_t block_count; /* store: blocks asked for; load: blocks loaded (prefix) */
    uint32_t stored_count, existed_count;         /* store */
    uint32_t from_memory, from_disk, from_remote; /* load */
    uint64_t bytes;
    bool fenced; /* device blocks are free again */
    struct sl_error why;
    uint32_t not_awaited_count; /* load with prefill: blocks behind these that are here, on disk */
};
/* Starts; gives *op. The answer is awaited with sl_op_wait. Errors: SL_ERR_LIMIT (ops in flight),
 * SL_ERR_UNREACHABLE. */
sl_err sl_store_start(struct sl_engine *engine, const struct sl_op_request *request,
                      struct sl_op **op, struct sl_error *why);
sl_err sl_load_start(struct sl_engine *engine, const struct sl_op_request *request,
                     struct sl_op **op, struct sl_error *why);
/* Waits for the end: SL_OK and *result (whose code is the op's), or SL_ERR_TIMEOUT (still running;
 * the op itself ends by its own deadline, also when the node is dead). */
sl_err sl_op_wait(struct sl_op *op, uint64_t timeout_ns, struct sl_op_result *result);
/* Of an ended store: whether the block was stored by this op, or was there already. Blocks count
 * from 0 = first_block. */
bool sl_op_block_stored(const struct sl_op *op, uint32_t block);
bool sl_op_block_existed(const struct sl_op *op, uint32_t block);
/* Of an ended load: whether the block is in its device block. The others are as they were, or partly
 * written. */
bool sl_op_block_loaded(const struct sl_op *op, uint32_t block);
/* As the request said. */
void *sl_op_context(const struct sl_op *op);
/* Asks for an early end; the op then ends with SL_ERR_CANCELLED unless it was faster. Waits 200 ms
 * at most. Without an answer in that time, which is its error, the op ends all the same; it may have
 * been done. */
sl_err sl_op_cancel(struct sl_op *op, struct sl_error *why);
/* Waits for the op's end and until nothing touches its device blocks any more. SL_ERR_TIMEOUT: not
 * yet. */
sl_err sl_op_wait_fenced(struct sl_op *op, uint64_t timeout_ns, struct sl_error *why);
/* An op that still runs is cancelled and not waited for: wait until it is fenced before its blocks
 * are reused. */
void sl_op_release(struct sl_op **op);

/* The same without waiting: SL_ERR_BUSY while it runs. For a loop that must not stop. */
sl_err sl_op_poll(struct sl_op *op, struct sl_op_result *result);

/* ---- ends of ops, for a loop that waits for other things as well ---- */

/* A descriptor that polls readable (POLLIN, EPOLLIN) when ops of this client may have ended, by
 * their deadlines, too: also when no other thread waits, and of all its engines. Whoever finds it
 * readable calls sl_client_ended, which makes it unreadable again. There is no thread behind it. It
 * belongs to the client, is the same for each call, and is only polled. A fork has no use of it.
 * Errors: SL_ERR_OS, SL_ERR_PERMISSION (read-only), SL_ERR_INVALID (of another process). */
sl_err sl_client_event_fd(struct sl_client *client, int *fd, struct sl_error *why);
/* Gives at most `room` ops that have ended, each of them once, in the order in which they ended;
 * those that were released are not given. Never waits. Of what is given sl_op_poll has the result.
 * Any number of threads. */
uint32_t sl_client_ended(struct sl_client *client, struct sl_op **ops, uint32_t room);

/* ---- looking blocks up, by the engine's keys ----
 *
 * What a scheduler asks before it gives a request its device blocks. The index in shared memory
 * answers: nobody is asked, nothing is waited for, and each block costs one probe, whatever its
 * ranks and pools. A block counts when all its parts are in memory or on disk; what other nodes
 * have does not. The process needs no memory in the engine (rank_count 0). Any number of threads.
 *
 * What was found may be evicted before its load begins, unless the look-up holds it. A hold is a
 * lease in shared memory. It costs no message, and ends by its time alone; the process may die
 * meanwhile, and so may the registrar. Until then the block is not evicted. Where there is a disk
 * it may leave memory for it when nothing else can; a disk that is full may still let go of it, and
 * whoever removes it does. What is on disk alone stays there. */
struct sl_look {
    const unsigned char *hashes; /* as of sl_op_request: hash_bytes (1 to 64) each, one a block */
    uint32_t hash_bytes;
    uint32_t count; /* of blocks, at most 65,536 */
    /* 0: a prefix is there when all its blocks are. Else when its last `window` blocks are, or all
     * of a shorter one. So it is for sliding windows, and with 1 for states (Mamba). */
    uint32_t window;
    uint64_t hold_ns; /* 0: none. Else what the prefix needs is held so long; the node's setting
                         block_lease cuts it */
};
struct sl_looked {
    uint32_t prefix_count;  /* of blocks: the longest prefix that is there */
    uint64_t held_until_ns; /* CLOCK_MONOTONIC; 0: nothing is held */
};
/* there: NULL, or (count + 7) / 8 bytes that say of each block whether it is there, bit i & 7 of
 * byte i >> 3; with holds, whether it is there and stays. Errors: SL_ERR_INVALID,
 * SL_ERR_UNREACHABLE (the node was stopped). */
sl_err sl_engine_look(struct sl_engine *engine, const struct sl_look *look, struct sl_looked *out,
                      unsigned char *there, struct sl_error *why);
/* Where the pools of a model are registered apart, by what a prefix needs of them: what was found of
 * one such class. */
struct sl_look_class {
    const unsigned char *there; /* as sl_engine_look gives it */
    uint32_t window;
};
/* The longest prefix of at most count blocks that is there in all classes. To hold it, the blocks
 * it needs are looked up again, with hold_ns. Pure. */
uint32_t sl_look_prefix(const struct sl_look_class *classes, uint32_t class_count, uint32_t count);

/* ---- by layers ----
 *
 * A store or load whose request says layer_count overlaps its copies with the engine's computation.
 * A layer is one of the forward pass, counted from 0; of each pool it has a run of the pool's
 * layers, so a pool that is used this way registers them in the order of the forward pass (K and V
 * of layer 0, K and V of layer 1, ...). With 64 layers in a pool and layer_count 32, layer i is 2i
 * and 2i + 1; pools that take part in some layers only say so in layer_ends.
 *
 * A store reads nothing of a layer before it is said to be ready, and commits when all are stored:
 * without the last layer it ends at its deadline. Directly, a layer is on its way to
 * decode while the next ones are computed. What does not fit into one round (a quarter of the
 * node's memory, or 4096 parts) is read when all layers are ready.
 *
 * A load tells its layers one by one, all of the same number of blocks: those it ends with. From
 * the first layer told it brings all of these or fails, and then nothing of them may be used. In a
 * load that is larger than one round the first layer comes when all but the last round are in. */
#define SL_LAYERS_MAX 4096u
/* Layer by layer, in order. Costs one message, is not waited for. Errors: SL_ERR_INVALID (no store
 * by layers, no such layer, one before it is missing), SL_ERR_EXISTS (said before), the op's code
 * when it has failed. */
sl_err sl_op_layer_ready(struct sl_op *op, uint32_t layer, struct sl_error *why);
/* Waits until this layer of *block_count blocks is on the device. Errors: SL_ERR_INVALID (no load
 * by layers, no such layer), SL_ERR_TIMEOUT (not yet), the op's code when it has failed: then what
 * was told before counts for nothing. */
sl_err sl_op_layer_wait(struct sl_op *op, uint32_t layer, uint64_t timeout_ns,
                        uint32_t *block_count, struct sl_error *why);
/* All ranks have computed the first so many layers, whatever was said before of each: for a
 * scheduler that knows so when a step is over. Errors: SL_ERR_INVALID, the op's code. */
sl_err sl_op_layers_ready(struct sl_op *op, uint32_t layers, struct sl_error *why);

/* One process a rank: the process that began the op gives the others its number, and each speaks
 * for its own rank with the engine that it registered. A layer of a store is ready when all ranks
 * have said so, or sl_op_layers_ready has. A rank that says nothing costs the op its deadline. */
/* The op's number: not 0, and no other op of the node has it. Also sees to it that the request has
 * left this process, which has no thread that would: 100 ms at most, with the first one alone. */
uint64_t sl_op_number(struct sl_op *op);
struct sl_rank_layers {
    uint64_t op_number;
    uint32_t rank;   /* of this process */
    uint32_t layers; /* the first so many: 1 to SL_LAYERS_MAX */
};
/* This rank has computed them. timeout_ns 0: it is said and not waited for, and what comes before
 * its op is lost: the next word says it too. Else it waits until the coordinator has noted it. Any
 * thread. Errors: SL_ERR_INVALID (rank, layers, no store by layers), SL_ERR_TIMEOUT,
 * SL_ERR_UNREACHABLE, SL_ERR_NOT_FOUND (no such op, for a second), SL_ERR_PERMISSION (the op is
 * of another engine). */
sl_err sl_layers_ready(struct sl_engine *engine, const struct sl_rank_layers *what,
                       uint64_t timeout_ns, struct sl_error *why);
struct sl_layers_in {
    uint32_t layers;      /* the first so many are on the devices of all ranks */
    uint32_t block_count; /* of so many blocks */
};
/* Waits until all ranks have them. The load may have fewer blocks than were asked for, also than
 * were told of layers before: whoever counts on blocks compares. timeout_ns 0: the setting
 * op_timeout. Any thread. Errors: as sl_layers_ready, and the op's code when it has failed: then
 * what was told before counts for nothing. */
sl_err sl_layers_wait(struct sl_engine *engine, const struct sl_rank_layers *what,
                      uint64_t timeout_ns, struct sl_layers_in *out, struct sl_error *why);

/* ---- prefill -> decode ----
 *
 * One request goes from an engine that computes its input to one that decodes it, on this node or
 * another.
 *
 * Through storage: prefill stores all blocks of the input, the incomplete last one too,
 * and Sluice holds them in memory; the receipt of that travels with the first token; decode loads
 * them into blocks of its own.
 *
 *   decode    sl_handover_receive_start(id, its blocks)  early: it waits
 *   prefill   sl_handover_send_start(id, its blocks); sl_op_poll in its token loop; sl_op_receipt;
 *             only then the first token goes, with the receipt
 *   decode    sl_handover_arrived(receipts of a batch of first tokens); sl_op_poll
 *             SL_OK: all blocks are there; SL_ERR_HANDOVER: answer 502, after sl_op_wait_fenced the
 *             blocks are free. When it ends, decode alone stores what it added (sl_store_start).
 *   Where the engines pass nothing on with the first token, decode names prefill's node (`from`)
 *   and is told by that; hand-over and node may be announced before prefill has stored anything.
 *   prefill   nothing: what its node holds goes when decode's node, a peer of it, says that decode
 *             has it or failed, and at the latest by its time. sl_handover_end ends it by hand.
 *
 * Direct: decode's node makes a ticket that travels with the announcement (sl_op_ticket), or goes to
 * prefill's node by itself (`from`); prefill's node lends its blocks under it, decode's node reads them
 * into its own, and all is handed over when decode has acknowledged it. What cannot go so, or fails, goes through storage
 * when the setting handover_fallback says so; so the receipt travels with the first token in both modes.
 *
 * Both sides may be by layers, each for itself: prefill's so that layers go while others are
 * computed, decode's so that it begins with the first while others come.
 */
enum sl_handover_mode {
    SL_HANDOVER_BY_ENVIRONMENT = 0, /* as sl_handover_mode_get says */
    SL_HANDOVER_BY_STORAGE = 1,
    SL_HANDOVER_DIRECT = 2,
};
/* FD_PD_TRANSFER_VIA_STORAGE: true yes on 1: through storage; false no off 0, or not set: direct.
 * Errors: SL_ERR_CONFIG (it says anything else). */
sl_err sl_handover_mode_get(enum sl_handover_mode *out, struct sl_error *why);

/* Plain data; goes from prefill's to decode's engine as it is, between hosts of one byte order. */
struct sl_receipt {
    uint64_t handover_id;
    uint64_t keys_low, keys_high; /* of model and last key: both sides derived the same ones */
    uint32_t block_end;           /* blocks of the input, an incomplete last one counts */
    char node[32];                /* prefill's node_name; "": it has none */
};
struct
    sl_ticket { /* plain data, as a receipt; whoever has it, and is a peer, may lend blocks to decode */
    uint64_t keys_low, keys_high;
    uint32_t first_block, block_end; /* decode has the blocks before first_block */
    uint32_t length_bytes;
    unsigned char bytes[128];
};
struct sl_handover_options {
    uint64_t id; /* > 0, the same on both sides, never used twice: a random number */
    enum sl_handover_mode mode;
    uint64_t hold_ns; /* prefill: how long decode may take; 0: setting handover_hold */
    const struct sl_receipt *receipt; /* decode: when it is there already; NULL: it comes */
    const struct sl_ticket *ticket;   /* prefill, direct: decode's; NULL: what its node has said */
    /* Decode: prefill's node_name where that is another node, which is asked until it has committed
     * and told of a direct one's ticket; no receipt need come. NULL or "": prefill is on this node,
     * or a receipt comes. */
    const char *from;
};
/* Prefill. The request's blocks are the input from first_block to its end; with tokens `partial` is
 * implied. Blocks that are stored already are held, and not copied.
 * The op ends with SL_OK when every block is acknowledged and held, all of it or nothing. Errors:
 * as sl_store_start; SL_ERR_INVALID (id 0), SL_ERR_CONFIG
 * (the environment). The op's: SL_ERR_CANCELLED (decode gave up), SL_ERR_LIMIT in its text
 * (half of memory is held), SL_ERR_UNSUPPORTED (the key format has no key for an incomplete block).
 */
sl_err sl_handover_send_start(struct sl_engine *engine, const struct sl_op_request *request,
                              const struct sl_handover_options *options, struct sl_op **op,
                              struct sl_error *why);
/* Of an ended prefill. Errors: SL_ERR_BUSY (it runs), the op's code (it failed), SL_ERR_INVALID (no
 * such op). */
sl_err sl_op_receipt(struct sl_op *op, struct sl_receipt *out, struct sl_error *why);
/* Decode. Takes device blocks for the input from first_block on (those before it are there) and
 * waits for prefill, then loads. The op's codes: SL_OK, all blocks are loaded; SL_ERR_HANDOVER, a
 * 502: nothing may be decoded, the text says why (also by deadline); SL_ERR_INCOMPLETE, only with
 * the setting handover_recompute: block_count blocks are there, compute the rest; SL_ERR_CANCELLED.
 * Errors: as sl_handover_send_start. */
sl_err sl_handover_receive_start(struct sl_engine *engine, const struct sl_op_request *request,
                                 const struct sl_handover_options *options, struct sl_op **op,
                                 struct sl_error *why);
/* Decode, direct: what prefill needs. Errors: SL_ERR_BUSY (not yet: ask again), SL_ERR_UNSUPPORTED
 * (there is none, it goes through storage), SL_ERR_NOT_FOUND (the op is over), SL_ERR_INVALID,
 * SL_ERR_TIMEOUT. */
sl_err sl_op_ticket(struct sl_op *op, struct sl_ticket *out, uint64_t timeout_ns,
                    struct sl_error *why);
/* First tokens came: loads that wait for them go on. count 1..1024; codes[i]: SL_OK;
 * SL_ERR_NOT_FOUND, that request is gone (counted, and no failure of the others); SL_ERR_BUSY,
 * prefill is on this node and has not committed; SL_ERR_INVALID, another receipt came before. */
sl_err sl_handover_arrived(struct sl_client *client, const struct sl_receipt *receipts,
                           uint32_t count, sl_err *codes, uint64_t timeout_ns,
                           struct sl_error *why);
/* Prefill's node: what is held for these may go. count 1..1024; codes[i]: SL_OK, SL_ERR_NOT_FOUND
 * (over already), SL_ERR_BUSY (it runs). */
sl_err sl_handover_end(struct sl_client *client, const uint64_t *ids, uint32_t count, sl_err *codes,
                       uint64_t timeout_ns, struct sl_error *why);

#ifdef __cplusplus
}
#endif
#endif
