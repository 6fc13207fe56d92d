/* actors/registrar/records/gone.h - what the policy density knows of units that left, in notes of
 * the index: the next registrar learns from what it is asked for as if nothing had happened. */
#ifndef SL_REGISTRAR_RECORDS_GONE_H
#define SL_REGISTRAR_RECORDS_GONE_H

#include "actors/registrar/base/part.h"
#include "runtime/policy/density/density.h"

/* Each note is one lot of ghosts (16 KiB): with a number before it, four fill a slab of the index.
 * As many are kept as reg_gone_lots says, and no more than a 32nd of the index's memory. */
#define REG_GONE_LOT         1000u
#define REG_GONE_NOTES_MAX   (SL_DENSITY_GHOSTS_MAX / REG_GONE_LOT)
#define REG_GONE_INDEX_SHARE 32u

struct reg_gone_lot {
    uint64_t number;
    struct reg_gone_ghost {
        uint64_t hash;
        uint32_t at; /* as of a note of density */
        uint8_t class_index, use_count, unused[2];
    } ghosts[REG_GONE_LOT];
};

struct reg_gone {
    struct reg_gone_lot lot; /* the one that comes next, and what it has so far */
    uint32_t lot_count;
    uint64_t next;                  /* number of the next note: they are in order */
    uint32_t count, first, unknown; /* unknown: density has yet to hear of these, the oldest */
    struct reg_gone_note {
        uint64_t number;
        sl_ref ref;
    } notes[REG_GONE_NOTES_MAX]; /* a ring, from the oldest; at first in any order */
};

/* So many lots are worth keeping, the latest: as many ghosts as there are units in memory, and six
 * times as many, SL_DENSITY_GHOSTS_MIN at most, where these are few; one where there is any unit.
 */
uint64_t reg_gone_lots(uint64_t unit_count);
/* A unit left memory or disk; a lot of them is a note. Without room in the index it is forgotten.
 */
void reg_gone_note(struct registrar *self, const struct sl_density_note *note);
/* All notes are there that were before a restart: density hears of them from now on. */
void reg_gone_restored(struct registrar *self);

extern const struct reg_part reg_gone_part;

#endif
