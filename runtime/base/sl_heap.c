/* runtime/base/sl_heap.c - see sl_heap.h. */
#include "runtime/base/sl_heap.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_clock.h"

#include <stdlib.h>
#include <string.h>

sl_err sl_heap_init(struct sl_heap *heap, uint32_t id_count, struct sl_error *why)
{
    *heap = (struct sl_heap){.capacity = id_count};
    heap->items = calloc(id_count, sizeof(*heap->items));
    heap->places = calloc(id_count, sizeof(*heap->places));
    if (heap->items == NULL || heap->places == NULL) {
        sl_heap_fini(heap);
        return sl_fail(why, SL_ERR_NO_MEMORY, "heap of %u deadlines", id_count);
    }
    memset(heap->places, 0xff, id_count * sizeof(*heap->places)); /* each SL_HEAP_NONE */
    return SL_OK;
}

void sl_heap_fini(struct sl_heap *heap)
{
    free(heap->items);
    free(heap->places);
    *heap = (struct sl_heap){0};
}

static void heap_put(struct sl_heap *heap, uint32_t place, struct sl_heap_item item)
{
    heap->items[place] = item;
    if (heap->places != NULL) {
        heap->places[item.id] = place;
    }
}

/* Puts the item at the place, or moves it up or down from there. Inline: a call would copy the item
 * through the stack, which took longer than the rest. */
static inline __attribute__((always_inline)) void heap_sift(struct sl_heap *heap, uint32_t place,
                                                            struct sl_heap_item item)
{
    while (place > 0 && heap->items[(place - 1) / 2].at_ns > item.at_ns) {
        heap_put(heap, place, heap->items[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < heap->count && heap->items[child + 1].at_ns < heap->items[child].at_ns) {
            child++;
        }
        if (child >= heap->count || heap->items[child].at_ns >= item.at_ns) {
            break;
        }
        heap_put(heap, place, heap->items[child]);
        place = child;
    }
    heap_put(heap, place, item);
}

void sl_heap_remove(struct sl_heap *heap, uint32_t place)
{
    struct sl_heap_item last = heap->items[--heap->count];
    if (heap->places != NULL) {
        heap->places[heap->items[place].id] = SL_HEAP_NONE;
    }
    if (place < heap->count) {
        heap_sift(heap, place, last);
    }
}

void sl_heap_set(struct sl_heap *heap, uint32_t id, uint64_t at_ns)
{
    SL_ASSERT(heap->places != NULL && id < heap->capacity);
    uint32_t place = heap->places[id] != SL_HEAP_NONE ? heap->places[id] : heap->count++;
    heap_sift(heap, place, (struct sl_heap_item){.at_ns = at_ns, .id = id});
}

void sl_heap_clear(struct sl_heap *heap, uint32_t id)
{
    SL_ASSERT(heap->places != NULL && id < heap->capacity);
    if (heap->places[id] != SL_HEAP_NONE) {
        sl_heap_remove(heap, heap->places[id]);
    }
}

uint64_t sl_heap_at_ns(const struct sl_heap *heap, uint32_t id)
{
    SL_ASSERT(heap->places != NULL && id < heap->capacity);
    return heap->places[id] != SL_HEAP_NONE ? heap->items[heap->places[id]].at_ns : 0;
}

sl_err sl_heap_add(struct sl_heap *heap, struct sl_heap_item item)
{
    SL_ASSERT(heap->places == NULL);
    if (!SL_ARRAY_ROOM(heap->items, heap->capacity, heap->count + 1)) {
        return SL_ERR_NO_MEMORY;
    }
    heap_sift(heap, heap->count++, item);
    return SL_OK;
}

uint64_t sl_heap_next_ns(const struct sl_heap *heap)
{
    return heap->count == 0 ? SL_NEVER_NS : heap->items[0].at_ns;
}

bool sl_heap_pop(struct sl_heap *heap, uint64_t now_ns, struct sl_heap_item *item)
{
    if (heap->count == 0 || heap->items[0].at_ns > now_ns) {
        return false;
    }
    *item = heap->items[0];
    sl_heap_remove(heap, 0);
    return true;
}
