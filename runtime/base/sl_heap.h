/* runtime/base/sl_heap.h - a binary heap of deadlines: the earliest is popped first.
 *
 * There are two kinds. A heap of ids has room for all ids from the start; each id is in it at most
 * once and can be moved and removed by its id. A growing heap begins as zeroes and may hold an id
 * any number of times. */
#ifndef SL_HEAP_H
#define SL_HEAP_H

#include "runtime/base/sl_error.h"

struct sl_heap_item {
    uint64_t at_ns;
    uint64_t cookie; /* the caller's own */
    uint32_t id;
};

struct sl_heap { /* one thread at a time */
    struct sl_heap_item *items;
    uint32_t *
        places; /* index of each id in items, SL_HEAP_NONE: not in the heap; NULL: a growing heap */
    uint32_t count, capacity;
};

#define SL_HEAP_NONE UINT32_MAX

/* Makes a heap of the ids 0..id_count-1. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_heap_init(struct sl_heap *heap, uint32_t id_count, struct sl_error *why);
void sl_heap_fini(struct sl_heap *heap); /* of both kinds, also half made */

/* Heap of ids: inserts the id or moves it. clear removes it if it is in the heap. */
void sl_heap_set(struct sl_heap *heap, uint32_t id, uint64_t at_ns);
void sl_heap_clear(struct sl_heap *heap, uint32_t id);
uint64_t sl_heap_at_ns(const struct sl_heap *heap, uint32_t id); /* 0: not in the heap */

/* Growing heap. Errors: SL_ERR_NO_MEMORY (then nothing has changed). */
sl_err sl_heap_add(struct sl_heap *heap, struct sl_heap_item item);

uint64_t sl_heap_next_ns(const struct sl_heap *heap);   /* SL_NEVER_NS: it is empty */
void sl_heap_remove(struct sl_heap *heap, uint32_t at); /* items[at] */
/* Removes the earliest item if it is due by now_ns. False: none is. */
bool sl_heap_pop(struct sl_heap *heap, uint64_t now_ns, struct sl_heap_item *item);

#endif
