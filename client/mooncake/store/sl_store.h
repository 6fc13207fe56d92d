/* client/mooncake/store/sl_store.h - a store with Mooncake's semantics on libsluice: what
 * mooncake.store is.
 *
 * One place makes Mooncake's integer codes (0 or negative) from libsluice's. Every call may come
 * from any thread and beside any other, close too: a call under way ends as it began. A store that
 * is not set up, or was closed, answers SL_STORE_INVALID. Values have at most 1 GiB. A call takes
 * SL_STORE_BATCH_MAX keys at most.
 *
 * A store belongs to the process that set it up: a child leaves it alone.
 *
 * Names: a tenant's keys are prefixed, so that no other part knows tenants. A key has 1 to
 * 1,048,576 bytes of any kind; how the node names it names.h says. A store's segment is its
 * contribution to the node, and has the store's host name as its name. */
#ifndef SL_CLIENT_MOONCAKE_STORE_SL_STORE_H
#define SL_CLIENT_MOONCAKE_STORE_SL_STORE_H

#include "client/include/sluice.h"

#include <stdio.h>

enum sl_store_code {
    SL_STORE_OK = 0,
    SL_STORE_INTERNAL = -1,
    SL_STORE_NO_BUFFER = -10,
    SL_STORE_NO_SEGMENT = -101,
    SL_STORE_SEGMENT_EXISTS = -102,
    SL_STORE_NO_SPACE = -200,
    SL_STORE_BAD_KEY = -400, /* longer than a key may be */
    SL_STORE_INVALID = -600,
    SL_STORE_BAD_WRITE = -700,
    SL_STORE_NO_REPLICA = -702,
    SL_STORE_NOT_READY = -703,
    SL_STORE_NOT_FOUND = -704,
    SL_STORE_EXISTS = -705,
    SL_STORE_LEASED = -706,
    SL_STORE_LEASE_OVER = -707,
    SL_STORE_REPLICA_BUSY = -714,
    SL_STORE_TRANSFER = -800,
    SL_STORE_CORRUPT = -801,
    SL_STORE_RPC = -900,
    SL_STORE_RPC_TIMEOUT = -901,
    SL_STORE_NOT_NOW = -1010,
    SL_STORE_UNSUPPORTED = -1012,
    SL_STORE_NO_FILE = -1100,
    SL_STORE_FILE_OPEN = -1101,
    SL_STORE_FILE_READ = -1102,
    SL_STORE_FILE_WRITE = -1103,
};
int sl_store_code_of(sl_err err);

#define SL_STORE_BATCH_MAX 65536u /* libsluice's */
struct sl_store;
/* Gives *out, not set up. SL_ERR_NO_MEMORY. */
sl_err sl_store_create(struct sl_store **out);
void sl_store_destroy(struct sl_store **store); /* closes; nobody uses it any more */

/* ---- life cycle ---- */

#define SL_STORE_NAME_BYTES 256u
struct sl_store_setup {
    const char *instance,
        *name;   /* of the node; of the segment, or, of a dummy, the client's address */
    int port_fd; /* holds the port of the name until the store is closed; taken, also on failure; or
                    -1 */
    bool dummy;  /* the front of the node that a mooncake_client of this machine serves */
    uint64_t segment_bytes;      /* contributed to the node; 0: none */
    uint64_t local_buffer_bytes; /* what copying puts may hold at one time */
    const char *tenant;          /* "" and "default": none */
};
/* A store that is set up is closed before. Waits 2 s for the node at most. With SL_OK the text of
 * *why says in what the node is degraded, and is left alone when it is not. Errors: SL_ERR_EXISTS
 * (the name is another segment's), and those of sl_client_open and sl_contribute. */
sl_err sl_store_setup(struct sl_store *store, const struct sl_store_setup *setup,
                      struct sl_error *why);
/* Withdraws all contributions; buffers that were handed out stay readable. Always SL_STORE_OK. */
int sl_store_close(struct sl_store *store);
enum { SL_STORE_HEALTHY = 0, SL_STORE_NOT_SET_UP = 1, SL_STORE_UNREACHABLE = 2 };
int sl_store_health(struct sl_store *store);
/* Name of the segment; "" when not set up. */
void sl_store_hostname(struct sl_store *store, char name[SL_STORE_NAME_BYTES]);
bool sl_store_is_set_up(struct sl_store *store);

/* ---- writing ---- */

enum sl_store_soft_pin {
    SL_STORE_PIN_PRESERVE = 0,
    SL_STORE_PIN_ENABLE = 1,
    SL_STORE_PIN_DISABLE = 2
};
/* What ReplicateConfig says. */
struct sl_store_terms {
    uint32_t copies;
    uint32_t nof_copies, dfs_copies;
    enum sl_store_soft_pin soft_pin;
    bool soft_pin_ttl_given;
    uint64_t soft_pin_ttl_ms;
    bool hard_pin;
    bool same_node;              /* prefer_alloc_in_same_node */
    const char *const *segments; /* in order of preference; unknown ones are passed over */
    uint32_t segment_count;
    const struct sl_object_key *groups; /* one a key, or NULL; length 0: none */
    uint32_t group_count;
};
enum sl_store_write_kind {
    SL_STORE_COPYING = 1,   /* counts against the local buffer */
    SL_STORE_REPLACING = 2, /* upsert */
    SL_STORE_SAME_NODE = 4, /* may ask for same_node */
};
/* codes[i]: SL_STORE_OK also for a key that exists. items are scratch: keys and bundles change. Of
 * items with one key the last counts for all. An item without pieces is SL_STORE_INVALID. terms
 * NULL: those of a new ReplicateConfig. *why: of the last item that was refused for its size, or
 * for that of the local buffer; else it stays as it was. */
void sl_store_write(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                    const struct sl_store_terms *terms, unsigned kind, int *codes,
                    struct sl_error *why);

/* ---- reading ---- */

enum sl_store_reading {
    SL_STORE_WHOLE, /* the pieces hold the value, or SL_STORE_INVALID */
    SL_STORE_SIZED, /* the same of whoever does not know sizes: a key that is being written is a
                       miss */
    SL_STORE_PARTS, /* pieces have offsets in the value */
};
/* results[i]: the value's bytes, or a code. lengths[i]: the value's bytes, also where they are more
 * than the pieces hold. items are scratch. */
void sl_store_read(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                   enum sl_store_reading how, int64_t *results, uint64_t *lengths);

/* A value where it lies, which is everybody's and read-only, or, where no pins were left, a copy
 * of the holder's own. */
struct sl_store_buffer;
/* buffers[i] NULL where codes[i] is not SL_STORE_OK. */
void sl_store_hold(struct sl_store *store, const struct sl_object_key *keys, uint32_t count,
                   struct sl_store_buffer **buffers, int *codes);
const void *sl_store_buffer_at(const struct sl_store_buffer *buffer);
uint64_t sl_store_buffer_length(const struct sl_store_buffer *buffer); /* bytes */
bool sl_store_buffer_is_copy(const struct sl_store_buffer *buffer);    /* it may be written */
void sl_store_buffer_release(struct sl_store_buffer **buffer);

/* ---- sessions: a key is looked up once and moved in parts ---- */

void sl_store_get_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                uint32_t count, int *codes);
/* Pieces' offsets are in the value. results[i]: bytes of this call. */
void sl_store_get_session_read(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                               int64_t *results);
int sl_store_get_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count);
/* *why: as of sl_store_write. */
void sl_store_put_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                const uint64_t *lengths_bytes, uint32_t count,
                                const struct sl_store_terms *terms, int *codes,
                                struct sl_error *why);
void sl_store_put_session_write(struct sl_store *store, struct sl_pieces *items, uint32_t count,
                                int64_t *results);
void sl_store_put_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                              bool commit, int *codes);

/* ---- existence, size, removal ---- */

/* codes[i]: 1, 0, or a code; leases. 0 for every key of a store that is not set up: LMCache takes
 * each other number for a hit. */
void sl_store_exist(struct sl_store *store, struct sl_object_key *keys, uint32_t count, int *codes);
int64_t sl_store_size(struct sl_store *store, struct sl_object_key key);
void sl_store_remove(struct sl_store *store, struct sl_object_key *keys, uint32_t count, bool force,
                     int *codes);
/* How many were removed, or a code. pattern: NULL, or a regular expression (ECMAScript's, as PCRE2
 * reads it) that is searched in each key. It is searched in all of them first, in ten times a
 * call's longest wait: a later end, or a long key that is there and cannot be read, is a code, and
 * nothing is removed. */
int64_t sl_store_remove_matching(struct sl_store *store, const struct sl_object_key *pattern,
                                 bool force);
/* cleared[i]: whether the key's value was put by this process, not leased, and has left (segment
 * "": memory and disk; else memory, when it lies in that segment). */
void sl_store_replica_clear(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                            const char *segment, bool *cleared);

/* ---- descriptors ---- */

struct sl_store_replica {
    bool in_memory, on_disk; /* neither: there is no value */
    uint64_t length_bytes;
    char segment[SL_STORE_NAME_BYTES]; /* where it is in memory */
};
/* SL_STORE_OK, or why nothing is known. */
int sl_store_replicas(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                      struct sl_store_replica *out);

/* ---- memory ---- */

/* A buffer, or any part of one, also of one that is registered; the same several times. A dummy
 * takes only (parts of) what sl_store_pool_alloc and sl_store_memory_alloc gave: SL_STORE_INTERNAL
 * else. SL_STORE_INVALID: null, empty, beyond the address space, or it shares bytes with another
 * one of which neither is part of the other. */
int sl_store_register(struct sl_store *store, uint64_t addr, uint64_t length_bytes);
/* addr: where it begins, exactly; of several the last one. */
int sl_store_unregister(struct sl_store *store, uint64_t addr);
/* Bytes that are registered from addr on, without a gap. */
uint64_t sl_store_registered_bytes(struct sl_store *store, uint64_t addr);
/* Dummy only; lives until the store is closed. 0: failed. */
uint64_t sl_store_pool_alloc(struct sl_store *store, uint64_t length_bytes);
/* Shared, prefaulted memory of the process, page-aligned; NULL: failed. */
void *sl_store_memory_alloc(uint64_t length_bytes);
int sl_store_memory_free(void *at); /* SL_STORE_INTERNAL: not of sl_store_memory_alloc */

/* ---- more segments ---- */

/* Further contributions, which end with the store at the latest. */
int sl_store_contribute(struct sl_store *store, const char *name, uint64_t length_bytes);
int sl_store_withdraw(struct sl_store *store, const char *name); /* SL_STORE_NO_SEGMENT */

/* ---- helpers of a process ---- */

/* For torch's pluggable allocator: huge pages where there are some. device and stream are not
 * looked at. */
void *sl_store_torch_alloc(ssize_t length_bytes, int device, void *stream);
void sl_store_torch_free(void *at, ssize_t length_bytes, int device, void *stream);

#endif
