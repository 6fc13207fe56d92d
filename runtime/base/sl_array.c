/* runtime/base/sl_array.c - see sl_array.h. */
#include "runtime/base/sl_array.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 1024u

bool sl_array_grow_u64(void *items_at, uint64_t *capacity, uint64_t wanted, size_t item_bytes)
{
    void *items = NULL;
    uint64_t most = (uint64_t)PTRDIFF_MAX / item_bytes;
    uint64_t fresh = *capacity > most / 2 ? most : *capacity * 2;
    fresh = SL_MAX(SL_MAX(fresh, FIRST_BYTES / item_bytes), wanted);
    memcpy(&items, items_at, sizeof(items)); /* the pointer may have any type */
    items = fresh > most ? NULL : realloc(items, fresh * item_bytes);
    if (items == NULL) {
        return false;
    }
    memcpy(items_at, &items, sizeof(items));
    *capacity = fresh;
    return true;
}

bool sl_array_grow_u32(void *items_at, uint32_t *capacity, uint64_t wanted, size_t item_bytes)
{
    uint64_t wide = *capacity;
    if (wanted > UINT32_MAX || wide > UINT32_MAX / 2 ||
        !sl_array_grow_u64(items_at, &wide, wanted, item_bytes)) {
        return false;
    }
    *capacity = (uint32_t)wide;
    return true;
}
