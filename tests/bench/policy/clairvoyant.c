/* tests/bench/policy/clairvoyant.c - Belady: the best result, with knowledge of all requests. */
#include "tests/bench/policy/internal.h"

#include <stdlib.h>
#include <string.h>

/* A heap of references: the one used again last is on top; of two equal ones, the later in its
 * chain. */
struct far {
    uint64_t next; /* the request that uses it again */
    uint32_t depth, id;
};
struct far_heap {
    struct far *all;
    uint64_t count;
};

static bool far_before(const struct far *a, const struct far *b)
{
    return a->next != b->next ? a->next > b->next : a->depth > b->depth;
}

static void far_push(struct far_heap *heap, struct far item)
{
    uint64_t at = heap->count++;
    for (; at > 0 && far_before(&item, &heap->all[(at - 1) / 2]); at = (at - 1) / 2) {
        heap->all[at] = heap->all[(at - 1) / 2];
    }
    heap->all[at] = item;
}

static struct far far_pop(struct far_heap *heap)
{
    struct far top = heap->all[0];
    struct far item = heap->all[--heap->count];
    uint64_t at = 0;
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child + 1 < heap->count && far_before(&heap->all[child + 1], &heap->all[child])) {
            child++;
        }
        if (child >= heap->count || !far_before(&heap->all[child], &item)) {
            break;
        }
        heap->all[at] = heap->all[child];
        at = child;
    }
    heap->all[at] = item;
    return top;
}

/* For each reference, the next request that uses the same block. */
static uint64_t *next_uses(const struct replay_trace *trace)
{
    uint64_t *next = malloc((trace->id_count + 1) * sizeof(*next));
    uint64_t *seen = malloc((model_id_limit(trace) + (size_t)1) * sizeof(*seen));
    if (next == NULL || seen == NULL) {
        free(next);
        free(seen);
        return NULL;
    }
    memset(seen, 0xff, (model_id_limit(trace) + (size_t)1) * sizeof(*seen));
    for (uint64_t i = trace->request_count; i-- > 0;) {
        const struct replay_request *request = &trace->requests[i];
        for (uint32_t k = 0; k < request->id_count; k++) {
            next[request->first_id + k] = seen[trace->ids[request->first_id + k]];
        }
        for (uint32_t k = 0; k < request->id_count; k++) {
            seen[trace->ids[request->first_id + k]] = i;
        }
    }
    free(seen);
    return next;
}

/* Belady (1966), along chains: the block that is used again last is evicted first. A block is
 * never used without those before it, so ends of chains leave before their beginnings. */
static sl_err clairvoyant_run(const struct replay_trace *trace, const struct model_options *options,
                              struct model_result *out)
{
    uint64_t *next = next_uses(trace);
    uint64_t *due = calloc(model_id_limit(trace) + (size_t)1, sizeof(*due));
    uint32_t *here = calloc(model_id_limit(trace) + (size_t)1, sizeof(*here));
    struct far_heap heap = {.all = malloc((trace->id_count + 1) * sizeof(struct far))};
    bool fine = next != NULL && due != NULL && here != NULL && heap.all != NULL;
    uint64_t bytes = 0;
    if (options->disk.capacity_bytes > 0) {
        free(next);
        free(due);
        free(here);
        free(heap.all);
        return SL_ERR_UNSUPPORTED;
    }
    uint64_t began_ns = model_cpu_ns();
    for (uint64_t i = 0; fine && i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        const uint32_t *ids = &trace->ids[request->first_id];
        uint32_t hit = 0;
        while (hit < request->id_count && here[ids[hit]] != 0) {
            hit++;
        }
        model_count(out, options, request, ids, hit, hit);
        for (uint32_t k = 0; k < request->id_count; k++) {
            bytes += here[ids[k]] == 0 ? model_bytes(options, ids[k]) : 0;
            here[ids[k]] = 1;
            due[ids[k]] = next[request->first_id + k];
            far_push(&heap, (struct far){.next = due[ids[k]], .depth = k, .id = ids[k]});
        }
        while (bytes > options->capacity_bytes) {
            struct far victim = far_pop(&heap);
            if (here[victim.id] != 0 && due[victim.id] == victim.next) {
                here[victim.id] = 0;
                bytes -= model_bytes(options, victim.id);
            }
        }
    }
    out->seconds = (double)(model_cpu_ns() - began_ns) / 1e9;
    free(next);
    free(due);
    free(here);
    free(heap.all);
    return fine ? SL_OK : SL_ERR_NO_MEMORY;
}

const struct model_policy model_clairvoyant = {
    .name = "clairvoyant",
    .text = "Belady along chains: evicts what is used again last",
    .run = clairvoyant_run};
