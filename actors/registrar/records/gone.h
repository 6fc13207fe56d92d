/* actors/registrar/records/gone.h - what the policy density knows of units that left, in notes of
 * the index: the next registrar learns from what it is asked for as if nothing had happened. */
#ifndef SL_REGISTRAR_RECORDS_GONE_H
#define SL_REGISTRAR_RECORDS_GONE_H

#include "actors/registrar/base/part.h"
#include "runtime/density/density.h"

/* Each note is one lot of ghosts (16 KiB). As many are kept as sl_density_gone_lots says, and no more
 * than a 32nd of the index's memory. */
#define REG_GONE_NOTES_MAX   (SL_DENSITY_GHOSTS_MAX / SL_DENSITY_GONE_LOT)
#define REG_GONE_INDEX_SHARE 32u

struct reg_gone {
    uint64_t next; /* number of the next note: they are in order */
    uint32_t count, first;
    struct reg_gone_note {
        uint64_t number;
        sl_ref ref;
    } notes[REG_GONE_NOTES_MAX]; /* a ring, from the oldest; at first in any order */
};

/* A unit left: notes a lot when there is one. Without room in the index it is forgotten. */
void reg_gone_note(struct registrar *self);
/* All units are there that were before a restart. */
void reg_gone_restored(struct registrar *self);

extern const struct reg_part reg_gone_part;

#endif
