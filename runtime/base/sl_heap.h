/* runtime/base/sl_heap.h - a binary heap of deadlines: what is due first comes out first.
 *
 * There are two kinds. A heap of ids has room for all of them from the start, each id is in it at
 * most once, and can be moved and taken out by its id. Any other begins as zeroes, grows, and may
 * hold an id any number of times. */
#ifndef SL_HEAP_H
#define SL_HEAP_H

#include "runtime/base/sl_error.h"

struct sl_heap_item {
    uint64_t at_ns;
    uint64_t cookie; /* the caller's */
    uint32_t id;
};

struct sl_heap { /* one thread at a time */
    struct sl_heap_item *items;
    uint32_t *places; /* of ids in items, SL_HEAP_NONE: not in it; NULL: not a heap of ids */
    uint32_t count, capacity;
};

#define SL_HEAP_NONE UINT32_MAX

/* Makes a heap of the ids 0..id_count-1. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_heap_init(struct sl_heap *heap, uint32_t id_count, struct sl_error *why);
void sl_heap_fini(struct sl_heap *heap); /* of both kinds, also half made */

/* Of a heap of ids: puts the id in, or moves it. clear: takes it out, if it is there. */
void sl_heap_set(struct sl_heap *heap, uint32_t id, uint64_t at_ns);
void sl_heap_clear(struct sl_heap *heap, uint32_t id);
uint64_t sl_heap_at_ns(const struct sl_heap *heap, uint32_t id); /* 0: it is not there */

/* Of one that grows. Errors: SL_ERR_NO_MEMORY (then nothing has changed). */
sl_err sl_heap_add(struct sl_heap *heap, struct sl_heap_item item);

uint64_t sl_heap_next_ns(const struct sl_heap *heap);   /* SL_NEVER_NS: it is empty */
void sl_heap_remove(struct sl_heap *heap, uint32_t at); /* items[at] */
/* Takes out what is due first, if that is by now_ns. */
bool sl_heap_pop(struct sl_heap *heap, uint64_t now_ns, struct sl_heap_item *item);

#endif
