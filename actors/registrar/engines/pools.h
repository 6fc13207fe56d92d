/* actors/registrar/engines/pools.h - pools: device memory of one rank and kind of layer, with one
 * owner. */
#ifndef SL_REGISTRAR_ENGINES_POOLS_H
#define SL_REGISTRAR_ENGINES_POOLS_H

#include "actors/registrar/base/core.h"

/* As enum sl_memory_kind of cuda/sl_device.h, which the registrar does not include. Pools: up to
 * CUDA_FD. */
enum {
    REG_MEMORY_FD = 1,
    REG_MEMORY_IPC,
    REG_MEMORY_CUDA_FD,
    REG_MEMORY_PARTS,
    REG_MEMORY_PROCESS,
    REG_MEMORY_MAX = REG_MEMORY_PROCESS,
};
#define REG_MEMORY_NAME_BYTES 32u /* struct sl_memory_name */
#define REG_POOL_MAPPERS_MAX  64u
#define REG_POOL_NAME_BYTES   64u
#define REG_POOL_IPC_BYTES    64u
#define REG_POOL_GPU_BYTES    16u
#define REG_POOL_MAPPERS_TEXT 1024u
/* Time for a swapper to make the memory. */
#define REG_POOL_MAKE_NS (30 * SL_NS_PER_S)
enum reg_pool_state { /* as in messages */
                      REG_POOL_ABSENT,
                      REG_POOL_ALLOCATING,
                      REG_POOL_READY,
                      REG_POOL_REVOKING,
};
struct reg_pool_handle {    /* how others map it */
    struct sl_proc_id proc; /* has the descriptor */
    uint64_t kind, fd, inode, offset_bytes, ipc_bytes;
    unsigned char ipc[REG_POOL_IPC_BYTES];
    unsigned char gpu[REG_POOL_GPU_BYTES]; /* UUID; all zero: none or unknown */
};
struct reg_pool_mapper { /* a client that maps it, or knows how to */
    struct sl_proc_id proc;
    char name[REG_NAME_BYTES];
    uint64_t fd;
    uint64_t has_fd; /* 1: others may map it by this fd */
    uint64_t seq;    /* of its request: an earlier RELEASE does not end it */
};
struct reg_pool {
    bool used;            /* also absent pools while requests wait for them */
    bool sluice;          /* the rank's swapper makes or made it */
    bool swapper_may_map; /* an engine registered with it: the rank's swapper may map it */
    bool dropping;        /* the swapper has not confirmed that it unmapped it */
    bool unnoted;         /* the index had no room for the last change */
    enum reg_pool_state state;
    char name[REG_POOL_NAME_BYTES];
    char pool[REG_NAME_BYTES];
    char label[REG_POOL_NAME_BYTES + REG_NAME_BYTES + 28]; /* all three, for messages */
    uint64_t rank, epoch, length_bytes;
    struct sl_proc_id owner; /* none: it died, and others have the memory */
    char owner_name[REG_NAME_BYTES];
    uint64_t owner_seq; /* of its POOL_TAKE, for the same reason */
    struct reg_pool_handle handle;
    struct reg_pool_mapper mappers[REG_POOL_MAPPERS_MAX];
    uint32_t mapper_count;
    uint64_t call_seq; /* POOL_MAKE or POOL_DROP in flight, 0: none */
    uint64_t call_due_ns;
    uint32_t call_lates; /* times in a row that the deadline was seen late */
    sl_ref blob;
};
/* Releases of pools: a request from before the release that arrives late is ignored. */
#define REG_POOLS_RELEASED 256u
struct reg_pool_released {
    uint64_t client_hash, seq; /* hash of client and pool */
};
enum reg_pool_wait {
    REG_POOL_WAIT_NONE,
    REG_POOL_WAIT_READY,  /* POOL_AWAIT until ready; POOL_TAKE of a pool that a swapper makes */
    REG_POOL_WAIT_END,    /* POOL_AWAIT until no longer ready */
    REG_POOL_WAIT_TAKE,   /* POOL_TAKE until the revoked memory is released */
    REG_POOL_WAIT_REVOKE, /* POOL_REVOKE until no process maps it */
};
struct reg_pool_waiter {
    enum reg_pool_wait kind;
    uint32_t pool;
    bool sluice; /* of a POOL_TAKE */
    uint64_t epoch, length_bytes;
    struct sl_proc_id proc;
    struct sl_reply_route back;
};

struct reg_pools {
    struct reg_pool *all;
    struct reg_pool_waiter *waiters;
    struct reg_pool_released release_seen[REG_POOLS_RELEASED]; /* a ring */
    uint32_t release_seen_next;
    uint32_t high, waiter_count; /* high: rows from here on are unused */
    bool due;                    /* some rows need the next tick */
    uint32_t max;                /* setting */
    struct {
        sl_metric pool_count, pool_bytes;
    } metric;
};

/* ---- pool_notes.c ---- */
void reg_pool_note_drop(struct registrar *self, struct reg_pool *pool);
/* Errors: SL_ERR_NO_SPACE (the old note stays). */
sl_err reg_pool_note_write(struct registrar *self, struct reg_pool *pool, struct sl_error *why);
/* Writes the pool's note; without room in the index the next tick tries again. */
void reg_pool_note(struct registrar *self, uint32_t row);

extern const struct reg_part reg_pool_notes_part;

/* ---- pools.c ---- */
/* Whether the deployment is printable ASCII, the pool of [a-z0-9_-], and neither is empty. */
bool reg_pool_names_fit(const char *name, const char *pool);
/* Rows by key and by epoch; REG_NONE: none. row_make adds an absent row if there is none; REG_NONE:
 * the table is full. */
uint32_t reg_pool_find(const struct registrar *self, const char *name, uint64_t rank,
                       const char *pool);
uint32_t reg_pool_by_epoch(const struct registrar *self, uint64_t epoch);
uint32_t reg_pool_row_make(struct registrar *self, const char *name, uint64_t rank,
                           const char *pool);
void reg_pool_row_tidy(struct registrar *self, uint32_t row); /* frees an idle row */
struct reg_pool_taker { /* wants to make a pool, or have it made */
    struct sl_proc_id proc;
    const char *name;
    uint64_t seq;
    uint64_t length_bytes;
    bool sluice;
};
/* absent -> allocating. Errors: SL_ERR_INVALID (rank), SL_ERR_LIMIT, SL_ERR_NO_SPACE. */
sl_err reg_pool_begin(struct registrar *self, uint32_t row, const struct reg_pool_taker *taker,
                      struct sl_error *why);
/* allocating -> ready. Errors: SL_ERR_NO_SPACE (it stays allocating). */
sl_err reg_pool_publish(struct registrar *self, uint32_t row, const struct reg_pool_handle *handle,
                        struct sl_error *why);
/* ready, allocating -> revoking -> absent once no process maps it. */
void reg_pool_revoke(struct registrar *self, uint32_t row, const char *reason);
/* allocating -> absent; requests that wait get the code. */
void reg_pool_fail(struct registrar *self, uint32_t row, sl_err code, const char *text);
uint32_t reg_pool_mapper(const struct reg_pool *pool, const char *name); /* REG_NONE */
/* Errors: SL_ERR_LIMIT, SL_ERR_NO_SPACE. */
sl_err reg_pool_mapper_add(struct registrar *self, uint32_t row,
                           const struct reg_pool_taker *mapper, struct sl_error *why);
/* Unless the mapper asked again after request seq. */
void reg_pool_mapper_remove(struct registrar *self, uint32_t row, const char *name, uint64_t seq);
/* Checks that an engine of this process may register these regions, and notes that swappers may map
 * their pools. Errors: SL_ERR_STALE, SL_ERR_INVALID (beyond the memory, another rank),
 * SL_ERR_PERMISSION, SL_ERR_NO_SPACE. */
sl_err reg_pools_register(struct registrar *self, const struct sl_body_engine_register *engine,
                          struct sl_proc_id proc, struct sl_error *why);

/* ---- pool_requests.c ---- */
/* Answers the requests that waited for the pool's new state. */
void reg_pool_wake(struct registrar *self, uint32_t row);
/* Fails the requests that wait for the pool to be ready. */
void reg_pool_fail_waiters(struct registrar *self, uint32_t row, sl_err code, const char *text);
uint32_t reg_pool_waiters(const struct registrar *self, uint32_t row);
bool reg_pool_is_awaited(const struct registrar *self, uint32_t row); /* waits for it to be ready */
void reg_pool_waiters_forget(struct registrar *self, struct sl_proc_id proc);

extern const struct reg_part reg_pools_part;

extern const struct reg_part reg_pool_requests_part;

#endif
