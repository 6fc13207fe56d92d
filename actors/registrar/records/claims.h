/* actors/registrar/records/claims.h - extents granted to a writer, until committed or freed. */
#ifndef SL_REGISTRAR_RECORDS_CLAIMS_H
#define SL_REGISTRAR_RECORDS_CLAIMS_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_heap.h"
#include "runtime/base/sl_table.h"

enum reg_claim_state {
    REG_CLAIM_FREE,
    REG_CLAIM_RESERVED,
    REG_CLAIM_PROMOTING,
    /* quarantined: */
    REG_CLAIM_HELD, /* the writer is a client: until it commits, aborts, dies, or unpins (pinned) */
    REG_CLAIM_FENCE_DUE,  /* the writer is an actor; its FENCE is not sent yet */
    REG_CLAIM_FENCE_SENT, /* FENCE is in flight */
    REG_CLAIM_GRACE,      /* no process can be asked: free when the timer ends */
};
struct reg_node {
    uint32_t next, previous;
};
enum reg_list { REG_LIST_PEER, REG_LIST_GROUP, REG_LIST_COUNT };
struct reg_claim {
    enum reg_claim_state state;
    sl_ref ref;
    struct sl_extent extent;
    uint64_t hash;   /* of the key */
    uint64_t bundle; /* as in its record */
    uint64_t op_id;
    uint64_t seq; /* of the request: distinguishes requests without op id */
    struct sl_proc_id owner;
    uint32_t owner_peer;  /* REG_NONE: the owner has left */
    uint32_t writer_peer; /* REG_NONE: unknown after a restart */
    uint32_t group;       /* pending group, REG_NONE: none */
    struct sl_table_node by_key, by_generation;
    /* PEER: the owner's list while live, the writer's in quarantine */
    struct reg_node node[REG_LIST_COUNT];
    uint16_t part_index;
    bool charged;      /* counted in the owner's quarantined_bytes */
    bool ahead;        /* granted in advance, not for a key yet */
    bool replace;      /* an existing value under its key is replaced */
    bool pinned;       /* the client pins it while it writes (sl_pins_take_grant) */
    uint64_t since_ns; /* when it was granted, or found by this registrar */
};

struct reg_claims {
    struct reg_claim *all;
    uint32_t count, high, free;
    struct sl_table by_key, by_generation;
    struct sl_heap timers; /* ids: claims, then reservations_max + groups */
    uint64_t quarantined_bytes;
    bool fences_due;
    uint64_t held_count;               /* HELD and pinned, after the last scan */
    uint64_t held_look_ns;             /* when they are scanned next */
    uint64_t ahead_bytes, ahead_count; /* of all peers, while usable */
    uint64_t io_grace_ns;              /* setting */
    struct {
        sl_metric claim_count, quarantined_bytes, fence_count, killed_count, expired_count;
    } metric;
};

uint32_t reg_claim_add(struct registrar *self, const struct reg_claim *claim); /* REG_NONE: full */
void reg_claim_remove(struct registrar *self, uint32_t slot); /* keeps record and extent */
uint32_t reg_claim_by_key(const struct registrar *self, uint64_t hash, const char *key,
                          uint64_t length);
uint32_t reg_claim_by_generation(const struct registrar *self, uint64_t generation);
void reg_claim_unkey(struct registrar *self, uint32_t slot); /* frees the key */
/* The list `list` of claims that begins at *head. */
void reg_list_add(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot);
void reg_list_remove(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot);
/* Counts a grant in advance, or uncounts it. */
void reg_prealloc_count(struct registrar *self, uint32_t slot, bool more);

extern const struct reg_part reg_claims_part;

#endif
