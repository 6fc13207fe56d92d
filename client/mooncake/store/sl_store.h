/* client/mooncake/store/sl_store.h - a store with Mooncake's semantics on libsluice's public API;
 * the native half of mooncake.store.
 *
 * Calls return Mooncake's integer codes (0 or negative). Any thread may call, at any time, also
 * during sl_store_close: a running call finishes. A store that is not set up or was closed returns
 * SL_STORE_INVALID. A value has at most 1 GiB, a call at most SL_STORE_BATCH_MAX keys. A store
 * belongs to the process that set it up; a forked child does not touch it.
 *
 * A key has 1 to 1,048,576 bytes of any kind. Keys of a tenant get a prefix, so that no other layer
 * knows tenants (names.h). A store's segment is its contribution to the node, under the store's
 * host name. */
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
    SL_STORE_BAD_KEY = -400, /* the key is too long */
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

#define SL_STORE_BATCH_MAX 65536u /* as in libsluice */
struct sl_store;
/* Gives *out, not set up. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_store_create(struct sl_store **out);
void sl_store_destroy(struct sl_store **store); /* closes it first; no other call may run */

/* ---- life cycle ---- */

#define SL_STORE_NAME_BYTES 256u
struct sl_store_setup {
    const char *instance,
        *name;   /* instance: the node. name: the segment; of a dummy, the client's address */
    int port_fd; /* reserves the name's port until the store is closed; taken, also on failure; -1:
                    none */
    bool dummy;  /* uses the node of a mooncake_client on this machine */
    uint64_t segment_bytes;      /* contributed to the node; 0: none */
    uint64_t local_buffer_bytes; /* total size of copying puts at one time */
    const char *tenant;          /* "" and "default": none */
};
/* Sets a store up; closes it first if it is set up. Waits at most 2 s for the node and 30 s for the
 * segment's memory. With SL_OK, the text of *why reports how the node is degraded; it is unchanged
 * if the node is not. Errors: SL_ERR_EXISTS (another segment has the name), those of sl_client_open
 * and sl_segment_mount. */
sl_err sl_store_setup(struct sl_store *store, const struct sl_store_setup *setup,
                      struct sl_error *why);
/* Withdraws all contributions. Buffers stay readable until released. Always SL_STORE_OK. */
int sl_store_close(struct sl_store *store);
enum { SL_STORE_HEALTHY = 0, SL_STORE_NOT_SET_UP = 1, SL_STORE_UNREACHABLE = 2 };
int sl_store_health(struct sl_store *store);
/* Name of the segment; "" if not set up. */
void sl_store_hostname(struct sl_store *store, char name[SL_STORE_NAME_BYTES]);
bool sl_store_is_set_up(struct sl_store *store);

/* ---- writing ---- */

enum sl_store_soft_pin {
    SL_STORE_PIN_PRESERVE = 0,
    SL_STORE_PIN_ENABLE = 1,
    SL_STORE_PIN_DISABLE = 2
};
/* The fields of Mooncake's ReplicateConfig. */
struct sl_store_terms {
    uint32_t copies;
    uint32_t nof_copies, dfs_copies;
    enum sl_store_soft_pin soft_pin;
    bool soft_pin_ttl_given;
    uint64_t soft_pin_ttl_ms;
    bool hard_pin;
    bool same_node;              /* prefer_alloc_in_same_node */
    const char *const *segments; /* in order of preference; unknown ones are skipped */
    uint32_t segment_count;
    const struct sl_object_key *groups; /* one for each key, or NULL; length 0: none */
    uint32_t group_count;
};
enum sl_store_write_kind {
    SL_STORE_COPYING = 1,   /* counts against the local buffer */
    SL_STORE_REPLACING = 2, /* upsert */
    SL_STORE_SAME_NODE = 4, /* same_node is allowed */
};
/* Stores values. codes[i] is SL_STORE_OK also for a key that exists. items are scratch: keys and
 * bundles change. Of items with the same key the last one is written, and all valid ones get its
 * code. An item without pieces is SL_STORE_INVALID. terms NULL: those of a new ReplicateConfig.
 * *why: for the last item that was too large, for a value or the local buffer; else unchanged. */
void sl_store_write(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                    const struct sl_store_terms *terms, unsigned kind, int *codes,
                    struct sl_error *why);

/* ---- reading ---- */

enum sl_store_reading {
    SL_STORE_WHOLE, /* SL_STORE_INVALID if the value does not fit the pieces */
    SL_STORE_SIZED, /* as WHOLE for a caller that does not know sizes; a key that is being written
                       is a miss */
    SL_STORE_PARTS, /* pieces have offsets in the value */
};
/* Reads values. results[i]: the value's size in bytes, or a code. lengths[i]: the value's size,
 * even if it is larger than the pieces. items are scratch. */
void sl_store_read(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                   enum sl_store_reading how, int64_t *results, uint64_t *lengths);

/* A value in shared memory, pinned and read-only; or a private copy if no pins were left. */
struct sl_store_buffer;
/* Gives buffers[i]; NULL if codes[i] is not SL_STORE_OK. */
void sl_store_hold(struct sl_store *store, const struct sl_object_key *keys, uint32_t count,
                   struct sl_store_buffer **buffers, int *codes);
const void *sl_store_buffer_at(const struct sl_store_buffer *buffer);
uint64_t sl_store_buffer_length(const struct sl_store_buffer *buffer); /* bytes */
bool sl_store_buffer_is_copy(const struct sl_store_buffer *buffer); /* a copy may be written to */
void sl_store_buffer_release(struct sl_store_buffer **buffer);

/* ---- sessions: a key is looked up once, and its value is copied in parts ---- */

void sl_store_get_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                uint32_t count, int *codes);
/* Offsets of pieces are in the value. results[i]: bytes copied by this call, or a code. */
void sl_store_get_session_read(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                               int64_t *results);
int sl_store_get_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count);
/* *why: as in sl_store_write. */
void sl_store_put_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                const uint64_t *lengths_bytes, uint32_t count,
                                const struct sl_store_terms *terms, int *codes,
                                struct sl_error *why);
void sl_store_put_session_write(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                                int64_t *results);
void sl_store_put_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                              bool commit, int *codes);

/* ---- existence, size, removal ---- */

/* Looks keys up and leases those that exist. codes[i]: 1, 0, or a code. 0 for every key if the
 * store is not set up, since LMCache takes any other number for a hit. */
void sl_store_exist(struct sl_store *store, struct sl_object_key *keys, uint32_t count, int *codes);
int64_t sl_store_size(struct sl_store *store, struct sl_object_key key);
void sl_store_remove(struct sl_store *store, struct sl_object_key *keys, uint32_t count, bool force,
                     int *codes);
/* Removes matching keys and returns their number, or a code. pattern: NULL for all, or a regular
 * expression (ECMAScript's, as PCRE2 reads it) that is searched in each key. All keys are matched
 * before any is removed, within ten times a call's longest wait. If that is exceeded, or a key
 * needs too many steps, the result is a code and no key is removed. Keys named by digest never
 * match. */
int64_t sl_store_remove_matching(struct sl_store *store, const struct sl_object_key *pattern,
                                 bool force);
/* cleared[i]: whether the key's value was put by this process, was not leased, and was removed
 * (segment "": from memory and disk; else from memory, if it is in that segment). */
void sl_store_replica_clear(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                            const char *segment, bool *cleared);

/* ---- descriptors ---- */

struct sl_store_replica {
    bool in_memory, on_disk; /* neither: the value does not exist */
    uint64_t length_bytes;
    char segment[SL_STORE_NAME_BYTES]; /* of the copy in memory */
};
/* Fills out for each key; SL_STORE_OK, or a code if nothing is known. */
int sl_store_replicas(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                      struct sl_store_replica *out);

/* ---- memory ---- */

/* Registers memory of the caller. Errors: SL_STORE_INVALID (null, empty, beyond the address space,
 * or it overlaps a registered buffer). A dummy accepts only memory, or parts of it, from
 * sl_store_pool_alloc and sl_store_memory_alloc, else SL_STORE_INTERNAL; it may register a buffer
 * several times, and a part of one or a buffer around one. */
int sl_store_register(struct sl_store *store, uint64_t addr, uint64_t length_bytes);
/* addr: the exact start of a buffer; of several the last one registered. */
int sl_store_unregister(struct sl_store *store, uint64_t addr);
/* Returns how many bytes are registered from addr on without a gap. */
uint64_t sl_store_registered_bytes(struct sl_store *store, uint64_t addr);
/* Allocates memory that lives until the store is closed, and its running calls and buffers have
 * ended; only for a dummy. 0: failed. */
uint64_t sl_store_pool_alloc(struct sl_store *store, uint64_t length_bytes);
/* Allocates shared, prefaulted, page-aligned memory; NULL: failed. */
void *sl_store_memory_alloc(uint64_t length_bytes);
int sl_store_memory_free(void *at); /* SL_STORE_INTERNAL: not from sl_store_memory_alloc */

/* ---- more segments ---- */

/* Further contributions; they end with the store at the latest. */
int sl_store_contribute(struct sl_store *store, const char *name, uint64_t length_bytes);
int sl_store_withdraw(struct sl_store *store, const char *name); /* SL_STORE_NO_SEGMENT */

/* ---- helpers of a process ---- */

/* For torch's pluggable allocator: huge pages if available. device and stream are ignored. */
void *sl_store_torch_alloc(ssize_t length_bytes, int device, void *stream);
void sl_store_torch_free(void *at, ssize_t length_bytes, int device, void *stream);

#endif
