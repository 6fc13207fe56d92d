/* tests/bench/policy/internal.h - interfaces between the files of the model. */
#ifndef SL_TESTS_BENCH_POLICY_INTERNAL_H
#define SL_TESTS_BENCH_POLICY_INTERNAL_H

#include "tests/bench/policy/model.h"

#include "runtime/base/sl_base.h"
#include "runtime/policy/density/density.h"

/* ---- count.c ---- */
uint64_t model_cpu_ns(void);
uint64_t model_mix(uint64_t number);
/* Counts a request whose first hit_count blocks were hits, memory_count of them in memory. */
void model_count(struct model_result *result, const struct model_options *options,
                 const struct replay_request *request, const uint32_t *ids, uint32_t hit_count,
                 uint32_t memory_count);
static inline uint64_t model_bytes(const struct model_options *options, uint32_t id)
{
    return options->block_bytes != NULL ? options->block_bytes[id] : 1;
}

/* The hash under which density knows a block. */
static inline uint64_t model_hash(uint32_t id)
{
    return model_mix(id + UINT64_C(1));
}

/* ---- memory: memory_lru.c, memory_density.c ---- */
/* The blocks of a request that are in memory or enter it. */
struct model_use {
    const uint32_t *ids;     /* ids of the whole request */
    const unsigned char *to; /* by index: 1: in memory, or enters it */
    uint32_t count;
    uint32_t stored_count; /* number of stored blocks, from 0 on */
    enum reg_hint hint;
    enum reg_priority priority;
    bool keep;      /* keep all of it for an hour */
    uint32_t now_s; /* from the trace's times */
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
        struct model_memory *memory); /* removes it; MODEL_NO_BLOCK: memory is empty */
    /* Number of requests for a block in memory, and the likelihood of another one within a
     * number of references. NULL: unknown to this policy. */
    uint32_t (*use_count)(const struct model_memory *memory, uint32_t id);
    double (*chance)(const struct model_memory *memory, uint32_t id, uint64_t references);
    /* Prefetches a block from disk; keeps it until end_s, if that is worth it; the worth of the
     * next victim, in hits a reference; infinity: no victim may leave for it. NULL: unsupported. */
    sl_err (*bring)(struct model_memory *memory, uint32_t id, uint32_t before);
    void (*keep)(struct model_memory *memory, uint32_t id, const struct model_keep *keep);
    double (*edge)(const struct model_memory *memory);
    /* Ends the keeping of blocks whose time is over. */
    void (*keep_expire)(struct model_memory *memory, const struct model_keep *now);
    uint64_t (*kept)(const struct model_memory *memory); /* bytes that are kept so */
};
extern const struct model_memory_ops model_memory_lru, model_memory_density;

/* ---- restart.c ---- */
/* every: references between two restarts of the registrar. Errors: SL_ERR_NO_MEMORY. */
sl_err model_restarts_create(uint64_t every, uint32_t id_limit, struct model_restarts **out);
void model_restarts_destroy(struct model_restarts **restarts);
/* A block entered memory; one left it; before each use. They do nothing if restarts is NULL.
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
void model_disk_requested(struct model_disk *disk, uint32_t id); /* for a block that it has */
/* Length of the trace: a recording is shorter than the days in which a node's budget settles. */
void model_disk_span(struct model_disk *disk, uint64_t span_ms);
/* Whether the budget allows a block with this chance (0..1) of reuse: the less is left, the
 * higher the chance has to be, as at a node (actors/registrar/disk/admission.c). */
bool model_disk_allows(struct model_disk *disk, uint32_t id, double chance, uint64_t now_ms);
/* false: it is not written, since the budget is spent or there is no memory for it. */
bool model_disk_write(struct model_disk *disk, uint32_t id, uint64_t now_ms,
                      struct model_result *result);

/* ---- prefetch.c ---- */
struct model_prefetcher; /* opaque */
/* What prefetching asks of memory and disk. */
struct model_prefetcher_ops {
    bool (*on_disk)(void *context, uint32_t id); /* and not in memory */
    bool (*here)(void *context, uint32_t id);    /* in memory */
    /* Share in use of the space for this, 0 to 1; refused: bytes that did not fit */
    double (*full)(void *context, uint64_t refused_bytes);
    /* Whether it fits in addition to what is prefetched now. */
    bool (*fits)(void *context, uint64_t now_ns, uint64_t bytes);
    /* Prefetches a block, if its victim is worth less than this number of hits a reference.
     * rest: other blocks of the chain are already prefetched, and useless without it. */
    sl_err (*bring)(void *context, uint32_t id, uint32_t before, double worth, bool rest,
                    bool *brought);
    void (*keep)(void *context, uint32_t id, uint64_t now_ns, uint64_t for_ns);
    double (*edge)(void *context); /* worth of the next victim, in hits a reference */
};
/* Errors: SL_ERR_NO_MEMORY. */
sl_err model_prefetcher_create(const struct replay_trace *trace,
                               const struct model_options *options,
                               const struct model_prefetcher_ops *ops, void *context,
                               struct model_prefetcher **out);
void model_prefetcher_destroy(struct model_prefetcher **ahead);
/* Called before the request: prefetches what is due until then. Errors: SL_ERR_NO_MEMORY. */
sl_err model_prefetcher_until(struct model_prefetcher *ahead, uint64_t request);
/* The pause that the request announces, ms. */
uint64_t model_prefetcher_pause(const struct model_prefetcher *ahead, uint64_t request);
void model_prefetcher_request_done(struct model_prefetcher *ahead, uint64_t request, bool ends);

/* ---- run.c ---- */
sl_err model_run(const struct replay_trace *trace, const struct model_options *options,
                 const struct model_memory_ops *ops, struct model_result *out);

#endif
