/* client/mooncake/store/internal.h - types and functions that the files of the store share. */
#ifndef SL_CLIENT_MOONCAKE_STORE_INTERNAL_H
#define SL_CLIENT_MOONCAKE_STORE_INTERNAL_H

#include "client/mooncake/store/names.h"
#include "client/mooncake/store/sl_store.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_table.h"
#include "runtime/base/sl_value.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define STORE_SEGMENTS_MAX 16u /* as in sl_put_options */
#define STORE_PREFIX_BYTES 128u
#define STORE_NS_PER_MS    UINT64_C(1000000)
#define STORE_DOUBTS       4096u
/* Longest wait of a close for each contribution; the node ends it with the client in any case. */
#define STORE_WITHDRAW_NS (2 * SL_NS_PER_S)
/* For setup and mount: the registrar may be busy allocating memory. */
#define STORE_CONTRIBUTE_NS   (30 * SL_NS_PER_S)
#define STORE_SOFT_PIN_NS     (UINT64_C(30) * 60 * 1000 * STORE_NS_PER_MS)
#define STORE_SOFT_PIN_MS_MAX (UINT64_C(24) * 60 * 60 * 1000)

/* State of one setup. Running calls and buffers hold a reference. */
struct store_base {
    _Atomic uint32_t refs;
    struct sl_client *client;
    pthread_mutex_t quiet_lock;
    struct sl_client *quiet; /* a client that does not lease; NULL: not needed yet */
    char instance[256];
    char name[SL_STORE_NAME_BYTES];
    int port_fd; /* reserves the name's port; -1: none */
    bool dummy, contributes;
    char prefix[STORE_PREFIX_BYTES]; /* of the tenant's keys */
    uint32_t prefix_length;
    _Atomic uint64_t local_free_bytes;
    uint64_t local_bytes;
    uint64_t call_ns; /* longest wait of a call; 0: the node's op_timeout */
    pid_t pid;
    /* doubt.c; relaxed: a lookup that misses a new doubt does no harm */
    _Atomic uint64_t doubts_end_ms; /* CLOCK_MONOTONIC; 0: there are no doubts */
    _Atomic uint64_t doubts[STORE_DOUBTS];
};

struct store_region {
    uint64_t addr, length_bytes;
    uint32_t uses;
};
struct store_segment {
    char name[SL_STORE_NAME_BYTES];
};

struct store_session {
    struct sl_table_node node; /* in gets or puts, by key */
    struct store_base *base;   /* a reference */
    uint32_t uses;             /* running calls */
    bool over;                 /* removed from the table */
    uint64_t length_bytes;
    struct sl_store_buffer *value; /* reading: pinned; NULL: no pins were left */
    uint64_t lease_end_ns;         /* 0: none */
    struct sl_put_session *draft;  /* writing */
    uint32_t key_length;
    char key[]; /* as on the node */
};

struct sl_store {
    struct sl_store *next; /* in the process's list */
    pthread_mutex_t life;  /* held to end or install a base; taken before lock */
    pthread_mutex_t lock;  /* for all below; never held during a call to the node */
    pthread_cond_t changed;
    struct store_base *base;      /* NULL: not set up */
    struct store_region *regions; /* in order of registration */
    uint32_t region_count, region_room;
    struct store_segment *segments;
    uint32_t segment_count, segment_room;
    struct sl_table gets, puts; /* sessions */
};

/* ---- codes.c ---- */
/* Sets the same code for all items of a batch. */
void store_codes_fill(int *codes, uint32_t count, int code);
void store_results_fill(int64_t *results, uint32_t count, int code);
/* Returns zeroed memory for count items, at least one, to be freed by SL_AUTO(free), which
 * analysers do not see with calloc itself. */
void *store_calloc(uint32_t count, size_t item_bytes);

/* Used around a batch call of libsluice: items that it did not set get the code of the call. */
static inline void store_errs_open(sl_err *errs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        errs[i] = SL_ERR_COUNT;
    }
}
static inline void store_errs_close(sl_err *errs, uint32_t count, sl_err err)
{
    for (uint32_t i = 0; i < count; i++) {
        errs[i] = errs[i] == SL_ERR_COUNT ? err : errs[i];
    }
}
/* Whether the node answered for this value, so that another request will also be answered. */
static inline bool store_answered(sl_err err)
{
    return err == SL_OK || err == SL_ERR_NOT_FOUND || err == SL_ERR_LIMIT;
}

/* ---- open.c ---- */
/* Returns a reference to the current base; NULL if the store is not set up. */
struct store_base *store_enter(struct sl_store *store);
void store_hold(struct store_base *base);
void store_leave(struct store_base *base);
static inline void sl_auto_leave(void *at) /* SL_AUTO(leave) struct store_base *base */
{
    struct store_base **base = at;
    if (*base != NULL) {
        store_leave(*base);
    }
}
/* Returns a client that does not lease; NULL: it could not be opened. */
struct sl_client *store_quiet_client(struct store_base *base);

/* Returns the timeout of a call that copies `bytes`: the wait for a reply and the time to copy. */
uint64_t store_call_ns(const struct store_base *base, uint64_t bytes);

/* Returns the latest end of a call that starts now and continues while replies arrive: ten times
 * the timeout of a call of `bytes`. */
uint64_t store_ceiling_ns(const struct store_base *base, uint64_t bytes);

/* ---- fork.c ---- */
/* Between these calls, a forked child finds the store's locks and tables in a usable state. */
void store_fork_add(struct sl_store *store);
void store_fork_watch(void); /* before the first use of store_memories_lock */
void store_fork_take(struct sl_store *store);

/* ---- keys.c ---- */
/* Replaces keys by their names on the node: unchanged if equal, else in *names, which the caller
 * frees. An invalid key gets length 0. False: no memory. */
bool store_keys_map(const struct store_base *base, struct sl_object_key *keys, uint32_t count,
                    size_t stride_bytes, char **names);
struct sl_store_prefix store_tenant(const struct store_base *base);
/* Codes for a mapped key of length 0: on a write, on a lookup. */
int store_key_code(struct sl_object_key mapped);
int store_key_absent(struct sl_object_key mapped);
uint64_t store_key_hash(struct sl_object_key key);
/* Mapped names of items to write. */
struct store_batch {
    char *names, *bundles;
    uint32_t *later; /* for each item a later one with its key, or itself; NULL: all keys differ */
};
/* Maps keys and bundles (the groups of terms) to the node's names. False: no memory. */
bool store_batch_map(const struct store_base *base, struct sl_iov_list *items, uint32_t count,
                     const struct sl_store_terms *terms, struct store_batch *batch);
void sl_auto_batch(void *at);

/* ---- doubt.c ---- */
/* Notes that a value did not fit: lookups report it absent for 5 s, or until it is read. */
void store_doubt_misfit(struct store_base *base, struct sl_object_key key);
/* Notes the result of a read: after a lasting failure, lookups report the key absent for 5 s, or
 * until it is in memory again. */
void store_doubt_note(struct store_base *base, struct sl_object_key key, sl_err err);
bool store_doubted(struct store_base *base, struct sl_object_key key);

/* ---- hold.c ---- */
/* Takes the view on success; NULL: no memory. */
struct sl_store_buffer *store_buffer_new(struct store_base *base, const struct sl_view *view);

/* ---- write.c ---- */
/* Converts terms to libsluice's. Errors: SL_STORE_INVALID, SL_STORE_NO_SPACE. */
struct store_terms {
    struct sl_put_options terms; /* point to names */
    const char *names[STORE_SEGMENTS_MAX];
    bool preserve_soft_pin; /* PRESERVE: the new value keeps the pin of the old one */
};
int store_terms_make(const struct sl_store_terms *from, unsigned kind, uint32_t count,
                     struct store_terms *out);

/* Reserves bytes of the local buffer. False: too few are free. */
bool store_local_take(struct store_base *base, uint64_t bytes);
void store_local_give(struct store_base *base, uint64_t bytes);

/* ---- look.c ---- */
/* Asks peers about keys with SL_ERR_NOT_FOUND. Found ones get SL_OK and found[i], unless NULL. */
void store_seek(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                sl_err *errs, struct sl_remote_info *found);
/* Fills infos[SL_CONTRIBUTIONS_MAX] and returns the number of contributions. */
uint32_t store_contributions(struct sl_client *client, struct sl_segment_info *infos);

/* ---- read.c ---- */
/* Reads values; sets all errs[i]. */
void store_get_pieces(struct store_base *base, const struct sl_iov_list *items, uint32_t count,
                      bool whole, uint64_t *lengths, sl_err *errs);

/* ---- session.c ---- */
void store_sessions_end(struct sl_store *store); /* for a close */

/* ---- memory.c ---- */
void store_regions_end(struct sl_store *store);
void store_pools_end(const struct store_base *base);
extern pthread_mutex_t store_memories_lock; /* after stores' own; for forks */
/* Whether the range is (part of) memory from sl_store_memory_alloc or sl_store_pool_alloc. */
bool store_memory_is_ours(uint64_t addr, uint64_t length_bytes);

/* ---- segment.c ---- */
/* Returns the length of the host's segment name at the start of a contribution's name. */
size_t segment_host_length(const char *name);
/* Ends further contributions. client NULL: they belong to the parent process. */
void store_segments_end(struct sl_store *store, struct sl_client *client);

#endif
