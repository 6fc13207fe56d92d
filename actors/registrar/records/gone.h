/* actors/registrar/records/gone.h - notes of the policy density's knowledge of units that left: the
 * next registrar continues with it. */
#ifndef SL_REGISTRAR_RECORDS_GONE_H
#define SL_REGISTRAR_RECORDS_GONE_H

#include "actors/registrar/base/part.h"
#include "runtime/policy/density/density.h"

/* Each note holds one lot of ghosts, 16 KiB; four notes fill a slab of the index. reg_gone_lots
 * bounds their number, and so does this share of the index's memory. */
#define REG_GONE_LOT         1000u
#define REG_GONE_NOTES_MAX   (SL_DENSITY_GHOSTS_MAX / REG_GONE_LOT)
#define REG_GONE_INDEX_SHARE 32u

struct reg_gone_lot {
    uint64_t number;
    struct reg_gone_ghost {
        uint64_t hash;
        uint32_t at; /* of the last use, as in struct sl_density_note */
        uint8_t class_index, use_count, unused[2];
    } ghosts[REG_GONE_LOT];
};

struct reg_gone {
    struct reg_gone_lot lot; /* the next lot, being filled */
    uint32_t lot_count;
    uint64_t next;                  /* number of the next note: they increase */
    uint32_t count, first, unknown; /* unknown: oldest notes that density has not read yet */
    struct reg_gone_note {
        uint64_t number;
        sl_ref ref;
    } notes[REG_GONE_NOTES_MAX]; /* a ring that starts at the oldest; unsorted during a restart */
};

/* Lots worth keeping: as many ghosts as units in memory. For few units it is six times as many
 * ghosts, SL_DENSITY_GHOSTS_MIN at most; one lot at least if there are units. */
uint64_t reg_gone_lots(uint64_t unit_count);
/* A unit left memory or disk. A full lot becomes a note; without room in the index it is lost. */
void reg_gone_note(struct registrar *self, const struct sl_density_note *note);
/* All notes of the last registrar are known: density reads them from now on. */
void reg_gone_restored(struct registrar *self);

extern const struct reg_part reg_gone_part;

#endif
