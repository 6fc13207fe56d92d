/* runtime/base/sl_array.h - arrays that grow.
 *
 * An array is a pointer, initially NULL, and a capacity, initially 0. The owner counts the items
 * and frees the pointer. */
#ifndef SL_ARRAY_H
#define SL_ARRAY_H

#include "runtime/base/sl_base.h"

/* Makes room for `wanted` items; a capacity is a uint32_t or a uint64_t. Capacities at least
 * double, so appending n items one by one costs O(n) moves. False: no memory, or more than the
 * capacity can count; then nothing has changed. New room is not cleared.
 *
 *     if (!SL_ARRAY_ROOM(list->items, list->capacity, list->count + 1)) {
 *         return SL_ERR_NO_MEMORY;
 *     }
 *     list->items[list->count++] = item; */
#ifdef __cppcheck__ /* cppcheck cannot parse _Generic; deploy/test defines this for it */
#define SL_ARRAY_ROOM(items, capacity, wanted) \
    ((wanted) <= (capacity) ||                 \
     sl_array_grow_u64(&(items), (void *)&(capacity), (wanted), sizeof(*(items))))
#else
#define SL_ARRAY_ROOM(items, capacity, wanted) \
    ((wanted) <= (capacity) ||                 \
     _Generic(&(capacity), uint32_t *          \
              : sl_array_grow_u32, uint64_t *  \
              : sl_array_grow_u64)(&(items), &(capacity), (wanted), sizeof(__typeof__(*(items)))))
#endif

/* Called by SL_ARRAY_ROOM. items_at: address of the pointer to the items. */
bool sl_array_grow_u32(void *items_at, uint32_t *capacity, uint64_t wanted, size_t item_bytes);
bool sl_array_grow_u64(void *items_at, uint64_t *capacity, uint64_t wanted, size_t item_bytes);

#endif
