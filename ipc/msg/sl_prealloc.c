/* ipc/msg/sl_prealloc.c - see sl_prealloc.h. */
#include "ipc/msg/sl_prealloc.h"
#include "runtime/base/sl_clock.h"

/* A size that was wanted within this time is expected to be wanted again. */
#define WARM_NS (500 * SL_NS_PER_MS)
/* Pause after a request for more that was refused or not answered. */
#define PAUSE_NS (100 * SL_NS_PER_MS)
/* Refilled for this number of writes at a time: the requesting one waits a microsecond per extent,
 * the others do not wait. */
#define WRITES_AHEAD   16u
#define HELD_BYTES_MAX (4 * SL_MIB) /* per class, unless two writes need more */

static struct sl_prealloc_class *class_find(struct sl_prealloc *ahead, uint64_t space_bytes)
{
    for (uint32_t i = 0; i < SL_PREALLOC_CLASSES; i++) {
        struct sl_prealloc_class *class = &ahead->classes[i];
        if (class->space_bytes == space_bytes) {
            return class;
        }
    }
    return NULL;
}

/* The row of the size; otherwise the empty row that was unused for the longest time. NULL: none is
 * empty. */
static struct sl_prealloc_class *class_of(struct sl_prealloc *ahead, uint64_t space_bytes)
{
    struct sl_prealloc_class *class = class_find(ahead, space_bytes);
    if (class != NULL) {
        return class;
    }
    for (uint32_t i = 0; i < SL_PREALLOC_CLASSES; i++) {
        struct sl_prealloc_class *other = &ahead->classes[i];
        if (other->count == 0 && (class == NULL || other->used_ns < class->used_ns)) {
            class = other;
        }
    }
    if (class != NULL) {
        *class = (struct sl_prealloc_class){.space_bytes = space_bytes};
    }
    return class;
}

uint32_t sl_prealloc_request_count(struct sl_prealloc *ahead, uint64_t space_bytes, uint32_t need,
                                   uint64_t now_ns)
{
    struct sl_prealloc_class *class = class_of(ahead, space_bytes);
    if (class == NULL) {
        return 0;
    }
    bool warm = class->used_ns != 0 && now_ns - class->used_ns < WARM_NS;
    class->used_ns = now_ns;
    if (!warm || now_ns < class->pause_until_ns || class->count >= 2 * need) {
        return 0;
    }
    uint64_t want = SL_MIN(WRITES_AHEAD * (uint64_t)need, HELD_BYTES_MAX / space_bytes);
    want = SL_MIN(SL_MAX(want, 2 * (uint64_t)need), SL_PREALLOC_EXTENTS);
    class->asked_ns = now_ns;
    class->pause_until_ns = sl_deadline_ns(now_ns, PAUSE_NS);
    return (uint32_t)want - class->count;
}

void sl_prealloc_add(struct sl_prealloc *ahead, uint64_t space_bytes,
                     const struct sl_item_grant *grants, uint64_t count, uint32_t life,
                     uint64_t now_ns)
{
    struct sl_prealloc_class *class = class_find(ahead, space_bytes);
    if (class == NULL) {
        return;
    }
    class->pause_until_ns = count > 0 ? 0 : sl_deadline_ns(now_ns, PAUSE_NS);
    for (uint64_t i = 0; i < count && class->count < SL_PREALLOC_EXTENTS; i++) {
        const struct sl_item_grant *grant = &grants[i];
        if (grant->code == SL_OK && grant->ref != 0 && grant->generation != 0) {
            class->extents[(class->first + class->count++) % SL_PREALLOC_EXTENTS] =
                (struct sl_prealloc_extent){.generation = grant->generation,
                                            .offset_bytes = grant->offset_bytes,
                                            .asked_ns = class->asked_ns,
                                            .ref = (sl_ref)grant->ref,
                                            .arena = (uint16_t)grant->arena,
                                            .life = life};
        }
    }
}

static struct sl_prealloc_extent extent_oldest(struct sl_prealloc_class *class)
{
    struct sl_prealloc_extent extent = class->extents[class->first];
    class->first = (class->first + 1) % SL_PREALLOC_EXTENTS;
    class->count--;
    return extent;
}

bool sl_prealloc_take(struct sl_prealloc *ahead, uint64_t space_bytes, uint32_t life,
                      struct sl_prealloc_extent *out)
{
    struct sl_prealloc_class *class = class_find(ahead, space_bytes);
    while (class != NULL && class->count > 0) {
        *out = extent_oldest(class);
        if (out->life == life) {
            return true;
        }
    }
    return false;
}

bool sl_prealloc_return(struct sl_prealloc *ahead, uint64_t space_bytes,
                        const struct sl_prealloc_extent *extent)
{
    struct sl_prealloc_class *class = class_find(ahead, space_bytes);
    if (class == NULL || class->count == SL_PREALLOC_EXTENTS) {
        return false;
    }
    class->first = (class->first + SL_PREALLOC_EXTENTS - 1) % SL_PREALLOC_EXTENTS;
    class->extents[class->first] = *extent;
    class->count++;
    return true;
}

uint32_t sl_prealloc_expire(struct sl_prealloc *ahead, uint64_t before_ns,
                            struct sl_item_claim *out, uint32_t count_max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SL_PREALLOC_CLASSES; i++) {
        struct sl_prealloc_class *class = &ahead->classes[i];
        while (class->count > 0 && count < count_max &&
               class->extents[class->first].asked_ns < before_ns) {
            struct sl_prealloc_extent extent = extent_oldest(class);
            out[count++] =
                (struct sl_item_claim){.ref = extent.ref, .generation = extent.generation};
        }
    }
    return count;
}
