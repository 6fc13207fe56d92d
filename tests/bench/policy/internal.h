/* tests/bench/policy/internal.h - what the files of the model share. */
#ifndef SL_TESTS_BENCH_POLICY_INTERNAL_H
#define SL_TESTS_BENCH_POLICY_INTERNAL_H

#include "tests/bench/policy/model.h"

#include "runtime/base/sl_base.h"
#include "runtime/policy/density/density.h"

/* ---- count.c ---- */
uint64_t model_cpu_ns(void);
uint64_t model_mix(uint64_t number);
/* Counts a request whose first hit_count blocks were there, memory_count of them in memory. */
void model_count(struct model_result *result, const struct model_options *options,
                 const struct replay_request *request, const uint32_t *ids, uint32_t hit_count,
                 uint32_t memory_count);
static inline uint64_t model_bytes(const struct model_options *options, uint32_t id)
{
    return options->block_bytes != NULL ? options->block_bytes[id] : 1;
}

/* By which density knows a block. */
static inline uint64_t model_hash(uint32_t id)
{
    return model_mix(id + UINT64_C(1));
}

/* ---- memory: memory_lru.c, memory_density.c ---- */
/* The blocks of a request that are in memory or come to it. */
struct model_use {
    const uint32_t *ids;     /* of the whole request */
    const unsigned char *to; /* by place: 1: in memory, or comes to it */
    uint32_t count;
    uint32_t stored_count; /* that are stored, 0 and on */
    enum reg_hint hint;
    enum reg_priority priority;
    bool keep;      /* all of it, for an hour */
    uint32_t now_s; /* by the trace's times */
    uint64_t kept_bytes_max;
};
struct model_memory {
    const struct model_memory_ops *ops;
    uint32_t *here; /* by identity; 0: not in memory */
    uint32_t id_limit;
    uint64_t references; /* blocks used so far */
    struct sl_density *density;
    struct model_restarts *restarts; /* NULL: there are none */
    uint32_t *older, *newer;         /* lru: a ring by identity; the last identity is its end */
};
struct model_keep {
    uint32_t now_s, end_s;
    uint64_t kept_bytes_max;
};
struct model_memory_ops {
    sl_err (*begin)(struct model_memory *memory); /* here and id_limit are set */
    void (*end)(struct model_memory *memory);
    sl_err (*use)(struct model_memory *memory, const struct model_use *use);
    uint32_t (*victim)(
        struct model_memory *memory); /* takes it out; MODEL_NO_BLOCK: memory is empty */
    /* How often the block was wanted, and how likely it will be within so many references; a block
     * in memory. NULL: it does not know. */
    uint32_t (*use_count)(const struct model_memory *memory, uint32_t id);
    double (*chance)(const struct model_memory *memory, uint32_t id, uint64_t references);
    /* A block comes from disk before it is wanted, and stays until end_s, if that is worth it. What
     * the next victim is worth, in hits a reference; infinity: nothing goes for that. NULL: it does
     * not do such things. */
    sl_err (*bring)(struct model_memory *memory, uint32_t id, uint32_t before);
    void (*keep)(struct model_memory *memory, uint32_t id, const struct model_keep *keep);
    double (*edge)(const struct model_memory *memory);
    /* Those whose time is over stay so no more. */
    void (*keep_look)(struct model_memory *memory, const struct model_keep *now);
    uint64_t (*kept)(const struct model_memory *memory); /* bytes that stay so */
};
extern const struct model_memory_ops model_memory_lru, model_memory_density;

/* ---- restart.c ---- */
/* every: references between two restarts of the registrar. Errors: SL_ERR_NO_MEMORY. */
sl_err model_restarts_create(uint64_t every, uint32_t id_limit, struct model_restarts **out);
void model_restarts_destroy(struct model_restarts **restarts);
/* A block came to memory; one left it; before each use. Nothing is done when there are none.
 * Errors: SL_ERR_NO_MEMORY. */
void model_restarts_entered(struct model_restarts *restarts, uint32_t id, uint64_t parent_hash);
sl_err model_restarts_left(struct model_memory *memory, const struct sl_density_note *note);
sl_err model_restarts_look(struct model_memory *memory, const struct sl_density_options *options);

/* ---- disk.c ---- */
struct model_disk; /* opaque */
/* Errors: SL_ERR_NO_MEMORY. */
sl_err model_disk_create(const struct model_options *options, uint32_t id_limit,
                         struct model_disk **out);
void model_disk_destroy(struct model_disk **disk);
bool model_disk_has(const struct model_disk *disk, uint32_t id); /* disk may be NULL */
void model_disk_wanted(struct model_disk *disk, uint32_t id);    /* one that it has */
/* Of the trace: a recording is shorter than the days in which a node's budget comes to rest. */
void model_disk_span(struct model_disk *disk, uint64_t span_ms);
/* Whether the budget has room for one that is so likely (0..1) to be wanted again: the less is
 * left, the likelier it has to be, as at a node (actors/registrar/disk/admission.c). */
bool model_disk_allows(struct model_disk *disk, uint32_t id, double chance, uint64_t now_ms);
/* false: it is not written, since the budget is spent or there is no memory for it. */
bool model_disk_write(struct model_disk *disk, uint32_t id, uint64_t now_ms,
                      struct model_result *result);

/* ---- prefetch.c ---- */
struct model_ahead; /* opaque */
/* What it may ask and do of memory and disk. */
struct model_ahead_ops {
    bool (*on_disk)(void *context, uint32_t id); /* and not in memory */
    bool (*here)(void *context, uint32_t id);    /* in memory */
    /* Of the room for that, 0 to 1; refused: what did not fit */
    double (*full)(void *context, uint64_t refused_bytes);
    /* Beside what came ahead already, now. */
    bool (*fits)(void *context, uint64_t now_ns, uint64_t bytes);
    /* Brings it, if what goes for it is worth less than so many hits a reference. rest: others of
     * the chain came already, in vain without it. */
    sl_err (*bring)(void *context, uint32_t id, uint32_t before, double worth, bool rest,
                    bool *brought);
    void (*keep)(void *context, uint32_t id, uint64_t now_ns, uint64_t for_ns);
    double (*edge)(void *context); /* hits a reference of what would go */
};
/* Errors: SL_ERR_NO_MEMORY. */
sl_err model_ahead_create(const struct replay_trace *trace, const struct model_options *options,
                          const struct model_ahead_ops *ops, void *context,
                          struct model_ahead **out);
void model_ahead_destroy(struct model_ahead **ahead);
/* Before the request: what is due until then. Errors: SL_ERR_NO_MEMORY. */
sl_err model_ahead_until(struct model_ahead *ahead, uint64_t request);
/* ms that the request says of its pause. */
uint64_t model_ahead_told(const struct model_ahead *ahead, uint64_t request);
void model_ahead_played(struct model_ahead *ahead, uint64_t request, bool ends);

/* ---- run.c ---- */
sl_err model_run(const struct replay_trace *trace, const struct model_options *options,
                 const struct model_memory_ops *ops, struct model_result *out);

#endif
