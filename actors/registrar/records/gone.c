/* actors/registrar/records/gone.c - notes of ghosts, a ring of them. */
#include "actors/registrar/records/gone.h"
#include "actors/registrar/records/units.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

struct note_bytes {
    uint64_t number;
    struct sl_density_ghost ghosts[SL_DENSITY_GONE_LOT];
};
static_assert(sizeof(struct note_bytes) <= SL_BLOB_BYTES_MAX, "a lot fits a note");

static uint32_t notes_max(const struct registrar *self)
{
    uint64_t by_memory = self->set.index_memory / REG_GONE_INDEX_SHARE / sizeof(struct note_bytes);
    uint64_t count = SL_MIN(sl_density_gone_lots(self->units->density), by_memory);
    return (uint32_t)SL_MIN(count, REG_GONE_NOTES_MAX);
}

static void oldest_free(struct registrar *self)
{
    struct reg_gone *gone = self->gone;
    sl_index_set_kind(self->index, gone->notes[gone->first].ref, SL_RECORD_FREE);
    gone->first = (gone->first + 1) % REG_GONE_NOTES_MAX;
    gone->count--;
}

void reg_gone_note(struct registrar *self)
{
    struct reg_gone *gone = self->gone;
    struct note_bytes bytes;
    sl_ref fresh = 0;
    if (sl_density_gone(self->units->density, bytes.ghosts) == 0) {
        return;
    }
    uint32_t count_max = notes_max(self);
    while (gone->count > 0 && gone->count >= count_max) {
        oldest_free(self);
    }
    bytes.number = gone->next;
    if (count_max == 0 || sl_index_blob_put(self->index, &bytes, sizeof(bytes), REG_BLOB_GONE,
                                            &fresh, NULL) != SL_OK) {
        return;
    }
    gone->notes[(gone->first + gone->count++) % REG_GONE_NOTES_MAX] =
        (struct reg_gone_note){.number = gone->next++, .ref = fresh};
}

/* It is read when all units are there. */
static sl_err note_restore(struct registrar *self, sl_ref ref, const void *bytes,
                           uint32_t length_bytes, struct sl_error *why)
{
    struct reg_gone *gone = self->gone;
    const struct note_bytes *lot = bytes;
    (void)why;
    if (self->units->density == NULL || length_bytes != sizeof(struct note_bytes) ||
        gone->count == REG_GONE_NOTES_MAX) { /* of another policy, or another version */
        return SL_ERR_FOREIGN;
    }
    gone->notes[gone->count++] = (struct reg_gone_note){.number = lot->number, .ref = ref};
    return SL_OK;
}

static int number_compare(const void *left, const void *right)
{
    const struct reg_gone_note *a = left;
    const struct reg_gone_note *b = right;
    return a->number < b->number ? -1 : a->number > b->number;
}

void reg_gone_restored(struct registrar *self)
{
    struct reg_gone *gone = self->gone;
    qsort(gone->notes, gone->count, sizeof(gone->notes[0]), number_compare);
    for (uint32_t i = gone->count; i-- > 0;) {
        uint32_t length_bytes = 0;
        const struct note_bytes *bytes =
            sl_index_blob_at(self->index, gone->notes[i].ref, &length_bytes, NULL);
        sl_density_ghosts_restore(self->units->density, bytes->ghosts, sizeof(bytes->ghosts));
    }
    gone->next = gone->count > 0 ? gone->notes[gone->count - 1].number + 1 : 0;
}

static const struct reg_blob blobs[] = {{REG_BLOB_GONE, note_restore}};

const struct reg_part reg_gone_part = {
    .name = "gone",
    REG_STATE(gone, reg_gone),
    REG_BLOBS(blobs),
};
