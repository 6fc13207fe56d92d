/* client/mooncake/store/internal.h - what the files of the store share. */
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

#define STORE_SEGMENTS_MAX 16u /* names in libsluice's terms */
#define STORE_PREFIX_BYTES 128u
#define STORE_NS_PER_MS    UINT64_C(1000000)
#define STORE_DOUBTS       4096u
/* A close waits no longer for each contribution: the node ends it with the client in any case. */
#define STORE_WITHDRAW_NS (2 * SL_NS_PER_S)
/* Of setup and mount alone: a registrar may be busy with making memory. */
#define STORE_CONTRIBUTE_NS   (30 * SL_NS_PER_S)
#define STORE_SOFT_PIN_NS     (UINT64_C(30) * 60 * 1000 * STORE_NS_PER_MS)
#define STORE_SOFT_PIN_MS_MAX (UINT64_C(24) * 60 * 60 * 1000)

/* What one setup made. Calls and buffers under way hold it. */
struct store_base {
    _Atomic uint32_t refs;
    struct sl_client *client;
    pthread_mutex_t quiet_lock;
    struct sl_client *quiet; /* looks without leasing; NULL: not needed yet */
    char instance[256];
    char name[SL_STORE_NAME_BYTES];
    int port_fd; /* holds the port of the name */
    bool dummy, contributes;
    char prefix[STORE_PREFIX_BYTES]; /* of the tenant's keys */
    uint32_t prefix_length;
    _Atomic uint64_t local_free_bytes;
    uint64_t local_bytes;
    uint64_t call_ns; /* longest wait of a call; 0: the node's op_timeout */
    pid_t pid;
    /* doubt.c; relaxed: an answer that comes a moment late does no harm */
    _Atomic uint64_t doubts_end_ms; /* CLOCK_MONOTONIC; 0: no doubt stands */
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
    struct sl_table_node node; /* in the table of its kind, by key */
    struct store_base *base;   /* a use of it */
    uint32_t uses;             /* calls under way */
    bool over;                 /* out of the table */
    uint64_t length_bytes;
    struct sl_store_buffer *value; /* of a reading one: pinned; NULL: no pins were left */
    uint64_t lease_end_ns;         /* 0: none */
    struct sl_draft *draft;        /* of a writing one */
    uint32_t key_length;
    char key[]; /* as on the node */
};

struct sl_store {
    struct sl_store *next; /* of the process */
    pthread_mutex_t life;  /* one ends, or is put in, at a time; taken before lock */
    pthread_mutex_t lock;  /* all below; held for no call to the node */
    pthread_cond_t changed;
    struct store_base *base;      /* NULL: not set up */
    struct store_region *regions; /* in the order in which they came */
    uint32_t region_count, region_room;
    struct store_segment *segments;
    uint32_t segment_count, segment_room;
    struct sl_table gets, puts; /* sessions */
};

/* ---- codes.c ---- */
/* The same code for each of a batch. */
void store_codes_fill(int *codes, uint32_t count, int code);
void store_results_fill(int64_t *results, uint32_t count, int code);
/* Zeroed memory for so many, which SL_AUTO(free) frees; analysers do not see that of calloc itself.
 */
void *store_room(uint32_t count, size_t item_bytes);

/* Around a batch of libsluice: what it did not answer has the code of the call. */
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
/* The node said what is with the value: another question will be answered, too. */
static inline bool store_answered(sl_err err)
{
    return err == SL_OK || err == SL_ERR_NOT_FOUND || err == SL_ERR_LIMIT;
}

/* ---- open.c ---- */
/* A use of what is set up, or NULL. */
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
/* A client that leases nothing. NULL: none could be had. */
struct sl_client *store_quiet_client(struct store_base *base);

/* The timeout of a call that moves so many bytes: waiting for an answer is short, moving them
 * takes its time. */
uint64_t store_call_ns(const struct store_base *base, uint64_t bytes);

/* When a call that begins now, and goes on as long as answers come, ends in any case: after ten
 * times the longest wait for one of so many bytes. */
uint64_t store_ceiling_ns(const struct store_base *base, uint64_t bytes);

/* ---- fork.c ---- */
/* From here on, and no longer, a child of a fork can go on with the store. */
void store_fork_add(struct sl_store *store);
void store_fork_take(struct sl_store *store);

/* ---- keys.c ---- */
/* Keys as they are on the node: in place where that is the same, else in *names, which is to be
 * freed. A key that cannot be gets length 0. False: no memory. */
bool store_keys_map(const struct store_base *base, struct sl_object_key *keys, uint32_t count,
                    size_t stride_bytes, char **names);
struct sl_store_prefix store_tenant(const struct store_base *base);
/* Of one with length 0: to write it, and to look for it. */
int store_key_code(struct sl_object_key mapped);
int store_key_absent(struct sl_object_key mapped);
uint64_t store_key_hash(struct sl_object_key key);
/* Of items to be written. */
struct store_batch {
    char *names, *bundles;
    uint32_t *later; /* a later item with the same key, or itself; NULL: there are none */
};
/* Keys and bundles (the groups of terms) as they are on the node. False: no memory. */
bool store_batch_map(const struct store_base *base, struct sl_pieces *items, uint32_t count,
                     const struct sl_store_terms *terms, struct store_batch *batch);
void sl_auto_batch(void *at);

/* ---- doubt.c ---- */
/* Look-ups doubt a value that did not fit the memory meant for it, for 5 s or until it is read. */
void store_doubt_misfit(struct store_base *base, struct sl_object_key key);
/* How the reading of a key ended: look-ups doubt what failed, until it is in memory again. */
void store_doubt_note(struct store_base *base, struct sl_object_key key, sl_err err);
bool store_doubted(struct store_base *base, struct sl_object_key key);

/* ---- hold.c ---- */
/* Takes over the view. */
struct sl_store_buffer *store_buffer_new(struct store_base *base, const struct sl_view *view);

/* ---- write.c ---- */
/* Terms as libsluice takes them; SL_STORE_OK or what is wrong with them. */
struct store_terms {
    struct sl_terms terms; /* which point at names */
    const char *names[STORE_SEGMENTS_MAX];
    bool keeps_soft_pin; /* PRESERVE: a value that is replaced hands its pin on */
};
int store_terms_make(const struct sl_store_terms *from, unsigned kind, uint32_t count,
                     struct store_terms *out);

/* Bytes of the local buffer. False: so many are not free. */
bool store_local_take(struct store_base *base, uint64_t bytes);
void store_local_give(struct store_base *base, uint64_t bytes);

/* ---- look.c ---- */
/* Asks other nodes, where there are any, for what is SL_ERR_NOT_FOUND: what is there gets SL_OK,
 * and found[i] (found may be NULL). */
void store_seek(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                sl_err *errs, struct sl_elsewhere *found);
/* infos: SL_CONTRIBUTIONS_MAX; gives how many there are: none of a node without them. */
uint32_t store_contributions(struct sl_client *client, struct sl_contribution_info *infos);

/* ---- read.c ---- */
/* errs[i] is set for all. */
void store_get_pieces(struct store_base *base, const struct sl_pieces *items, uint32_t count,
                      bool whole, uint64_t *lengths, sl_err *errs);

/* ---- session.c ---- */
void store_sessions_end(struct sl_store *store); /* of a close */

/* ---- memory.c ---- */
void store_regions_end(struct sl_store *store);
void store_pools_end(const struct sl_store *store);
/* Whether it is, or is part of, what sl_store_memory_alloc gave. */
bool store_memory_is_ours(uint64_t addr, uint64_t length_bytes);

/* ---- segment.c ---- */
/* Of a contribution's name, the part that is its host's segment. */
size_t store_segment_host_length(const char *name);
/* client NULL: they are the parent's. */
void store_segments_end(struct sl_store *store, struct sl_client *client);

#endif
