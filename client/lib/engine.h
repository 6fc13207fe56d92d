/* client/lib/engine.h - an engine in libsluice. */
#ifndef SL_CLIENT_LIB_ENGINE_H
#define SL_CLIENT_LIB_ENGINE_H

#include "client/lib/engine_device.h"

#define SL_ENGINE_OPS_MAX 256u

/* Memory of one rank's pool, mapped here. */
struct sl_engine_memory {
    void *base;
    uint64_t length_bytes;
    int fd;
    const struct sl_pool *from; /* in the table of pools, owns the mapping; NULL: ours */
    struct sl_engine_row *rows; /* CUDA memory of this process, one per layer; NULL: other memory */
    uint32_t row_count;
};

struct sl_engine {
    struct sl_client *client;      /* borrowed; outlives the engine */
    _Atomic uint64_t id;           /* named in ops; that of the team, if there is one */
    _Atomic uint64_t registration; /* of the ranks in this process */
    _Atomic uint32_t attachment;   /* number of the attachment in which it is registered */
    _Atomic uint32_t ops;          /* in flight or not released yet */
    uint32_t world, pool_count, block_tokens;
    uint64_t team;                   /* 0: none */
    uint32_t first_rank, rank_count; /* in this process */
    char name[64], key_format[32], seed[256], identity[33];
    struct sl_identity_facts facts;
    char model_name[SL_LABEL_NAME_BYTES]; /* for people; "": not known */
    struct sl_label_place model_place;
    char pool_names[8][32];
    uint64_t pool_kinds[8];
    uint64_t pool_parts[8];               /* part_count */
    struct sl_engine_memory *memories;    /* [rank_count][pool_count] */
    struct sl_descriptors *memory_server; /* serves memory of many handles; NULL: none */
    struct sl_item_region *regions;
    uint32_t region_count;
    int *ours_fds;              /* by region: its own descriptor; -1: none */
    struct sl_turn registering; /* serialises registering again; taken before the client's lock */
};

/* Checks that the engine's device memory is what was registered. Errors: SL_ERR_STALE. */
sl_err sl_engine_memory_check(const struct sl_engine *engine, struct sl_error *why);
/* Registers the engine again if the node was restarted. */
sl_err sl_engine_ready(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why);

/* ---- engine.c, for engine_ready.c ---- */
sl_err sl_engine_announce(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why);

/* ---- engine_ready.c ---- */
/* Announces the client and the engine to the node. */
sl_err sl_engine_enter(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why);

/* ---- files.c ---- */
/* Call this before registering: descriptors are handed over. Plain memory that the node cannot
 * reach is accepted only from sl_memory_alloc. Errors: SL_ERR_UNSUPPORTED (such memory without a
 * descriptor), those of sl_client_files_serve. */
sl_err sl_engine_files(struct sl_engine *engine, struct sl_error *why);

/* ---- op.c, for handover.c ---- */
struct sl_handover_side {
    uint64_t id, hold_ns;
    const struct sl_item_receipt *receipt; /* decode's; NULL: it arrives later */
    const struct sl_item_ticket *ticket;   /* prefill's; NULL: through storage */
    bool direct;         /* prefill without a ticket: uses the one that was offered */
    struct sl_text from; /* decode: node that is asked */
};
sl_err sl_client_handover_start(struct sl_engine *engine, const struct sl_op_request *request,
                                bool store, const struct sl_handover_side *side, struct sl_op **op,
                                struct sl_error *why);
/* Under the client's lock: a call in flight that waits for this receipt sends it from now on. */
bool sl_client_op_arrived(struct sl_client_call *call, const struct sl_item_receipt *receipt);

#endif
