/* actors/registrar/records/gone.c - a ring of notes of ghosts. */
#include "actors/registrar/records/gone.h"
#include "actors/registrar/records/units.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

/* Ghosts per unit that are worth notes: with three, caches of 2,000 and 5,000 blocks of the
 * conversation trace lose half a point or more by kills. */
#define GONE_OF_FEW 6u

static_assert(sizeof(struct reg_gone_lot) <= SL_BLOB_BYTES_MAX, "a lot fits a note");

uint64_t reg_gone_lots(uint64_t unit_count)
{
    uint64_t of_few = SL_MIN(unit_count * GONE_OF_FEW, SL_DENSITY_GHOSTS_MIN);
    return SL_MAX(SL_MAX(unit_count, of_few) / REG_GONE_LOT, unit_count > 0);
}

static uint32_t notes_max(const struct registrar *self)
{
    uint64_t by_memory =
        self->set.index_memory / REG_GONE_INDEX_SHARE / sizeof(struct reg_gone_lot);
    uint64_t units = sl_density_stats(self->units->density).unit_count;
    uint64_t count = SL_MIN(reg_gone_lots(units), by_memory);
    return (uint32_t)SL_MIN(count, REG_GONE_NOTES_MAX);
}

static void oldest_free(struct registrar *self)
{
    struct reg_gone *gone = self->gone;
    sl_index_set_kind(self->index, gone->notes[gone->first].ref, SL_RECORD_FREE);
    gone->first = (gone->first + 1) % REG_GONE_NOTES_MAX;
    gone->count--;
    gone->unknown -= gone->unknown > 0;
}

void reg_gone_note(struct registrar *self, const struct sl_density_note *note)
{
    struct reg_gone *gone = self->gone;
    sl_ref fresh = 0;
    if (note->use_count == 0) {
        return;
    }
    gone->lot.ghosts[gone->lot_count++] = (struct reg_gone_ghost){.hash = note->hash,
                                                                  .at = note->at,
                                                                  .class_index = note->class_index,
                                                                  .use_count = note->use_count};
    if (gone->lot_count < REG_GONE_LOT) {
        return;
    }
    gone->lot_count = 0;
    uint32_t count_max = notes_max(self);
    while (gone->count > 0 && gone->count >= count_max) {
        oldest_free(self);
    }
    gone->lot.number = gone->next;
    if (count_max == 0 || sl_index_blob_put(self->index, &gone->lot, sizeof(gone->lot),
                                            REG_BLOB_GONE, &fresh, NULL) != SL_OK) {
        return;
    }
    gone->notes[(gone->first + gone->count++) % REG_GONE_NOTES_MAX] =
        (struct reg_gone_note){.number = gone->next++, .ref = fresh};
}

/* Keeps the reference; the note is read when all units are known. */
static sl_err note_restore(struct registrar *self, sl_ref ref, const void *bytes,
                           uint32_t length_bytes, struct sl_error *why)
{
    struct reg_gone *gone = self->gone;
    const struct reg_gone_lot *lot = bytes;
    (void)why;
    if (self->units->density == NULL || length_bytes != sizeof(struct reg_gone_lot) ||
        gone->count == REG_GONE_NOTES_MAX) { /* of another policy or version */
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
    gone->next = gone->count > 0 ? gone->notes[gone->count - 1].number + 1 : 0;
    gone->unknown = gone->count;
}

/* Reads one lot per tick, since there may be a thousand and replies must not wait. Newest first:
 * density takes each ghost for older than those that it has. */
static void gone_tick(struct registrar *self)
{
    struct reg_gone *gone = self->gone;
    uint32_t length_bytes = 0;
    if (gone->unknown == 0) {
        return;
    }
    uint32_t at = (gone->first + --gone->unknown) % REG_GONE_NOTES_MAX;
    const struct reg_gone_lot *lot =
        sl_index_blob_at(self->index, gone->notes[at].ref, &length_bytes, NULL);
    for (uint32_t i = REG_GONE_LOT; i-- > 0;) {
        const struct reg_gone_ghost *ghost = &lot->ghosts[i];
        const struct sl_density_was was = {.where = SL_DENSITY_GHOST,
                                           .note = {.hash = ghost->hash,
                                                    .at = ghost->at,
                                                    .class_index = ghost->class_index,
                                                    .use_count = ghost->use_count}};
        (void)sl_density_restore(self->units->density, &was);
    }
}

static uint64_t gone_next_ns(const struct registrar *self)
{
    return self->gone->unknown > 0 ? self->env->now_ns : SL_NEVER_NS;
}

static const struct reg_blob blobs[] = {{REG_BLOB_GONE, note_restore}};

const struct reg_part reg_gone_part = {
    .name = "gone",
    REG_STATE(gone, reg_gone),
    REG_BLOBS(blobs),
    .tick = gone_tick,
    .next_ns = gone_next_ns,
};
