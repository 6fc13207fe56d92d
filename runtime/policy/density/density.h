/* runtime/policy/density/density.h - eviction order of units by chain hit density.
 *
 * Units are counted in cells of class and age. The class describes the origin of a unit: how many
 * blocks its request stored, whether it was the last of them, or how often it was used; and the
 * hint about its session. Ages count references (uses of any unit), not seconds. For each cell the
 * policy learns how likely a unit in it is used. The value of a unit is the highest rate of hits
 * per reference that keeping it for some time is expected to bring: the index of Gittins (1979) for
 * a job that ends with its first hit.
 *
 * The next victim is the oldest unit of the cell with the least value, or rather the end of the
 * chain that continues from it, so that no chain gets a hole. An evicted unit remains as a ghost
 * for a while: whether it would have been used shows how good the choice was.
 *
 * Every operation is O(1) amortised. The policy does not know the index: a unit is a number here,
 * and carries one number of its user's. One thread. */
#ifndef SL_DENSITY_H
#define SL_DENSITY_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

/* ---- classes ---- */

enum {
    SL_DENSITY_STORED_CLASSES = 8, /* used once: by log2 of the blocks stored with it */
    SL_DENSITY_TWICE = 8,
    SL_DENSITY_FEW = 9,   /* used three or four times */
    SL_DENSITY_MANY = 10, /* five times or more */
    SL_DENSITY_CUT = 11,  /* used once, and the last block of its request */
    SL_DENSITY_KINDS = 12,
};
/* The hint about the session; each has the kinds above for itself. */
enum reg_hint { REG_HINT_NONE, REG_HINT_ENDS, REG_HINT_CONTINUES, REG_HINT_COUNT };
#define SL_DENSITY_CLASSES ((uint32_t)SL_DENSITY_KINDS * REG_HINT_COUNT)
/* The first 8 ages have 32 references each; from then on the length doubles after every four ages.
 * The last age has no end. */
#define SL_DENSITY_AGES  76u
#define SL_DENSITY_CELLS (SL_DENSITY_CLASSES * SL_DENSITY_AGES)

/* Returns 0..SL_DENSITY_CLASSES-1. use_count: number of uses, 1: the store. stored_count: blocks
 * that its request stored. */
uint32_t sl_density_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint);
/* Describes a class: "wanted once, one of 16 to 31 stored". Returns out. */
#define SL_DENSITY_TEXT_BYTES 96u
const char *sl_density_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES]);

/* The value of waiting for one hit from an age on, at the best horizon: the one with the most
 * expected hits for the expected time until then. */
struct sl_worth {
    double hit, time; /* expected until the horizon; hit: 0..1 */
    double stay;      /* chance of no hit until then */
    uint32_t end;     /* the age after the horizon */
};
/* Computes out[] for count ages with their widths and their rates of hits, which are above 0. */
void sl_gittins(const double *rate, const double *width, uint32_t count, struct sl_worth *out);

/* ---- units in memory ---- */

struct sl_density; /* opaque */

/* There are SL_DENSITY_GHOSTS_FACTOR ghosts per unit in memory, within ghosts_min..ghosts_max. */
struct sl_density_options {
    uint64_t ghosts_min, ghosts_max;
};
#define SL_DENSITY_GHOSTS_FACTOR 4u
/* Default bounds. A ghost takes 64 bytes. */
#define SL_DENSITY_GHOSTS_MIN UINT64_C(65536)
#define SL_DENSITY_GHOSTS_MAX UINT64_C(1048576)
/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out);
void sl_density_destroy(struct sl_density **density);

/* The value of a hit to the client: half for low priority, double for high. A priority that all
 * units have changes nothing. */
enum reg_priority {
    REG_PRIORITY_NONE, /* no change; NORMAL for a new unit */
    REG_PRIORITY_LOW,
    REG_PRIORITY_NORMAL,
    REG_PRIORITY_HIGH,
    REG_PRIORITY_COUNT
};
/* How a unit is used. */
struct reg_wanted {
    uint64_t parent_hash;  /* of the previous unit in its chain; 0: none, or unknown */
    uint32_t stored_count; /* units that the request stores, 1.. */
    bool cut;              /* the last unit of its request */
    enum reg_hint hint;
    enum reg_priority priority;
};
/* Adds a unit to memory, which counts as a use. Returns its number, 1..; 0: no memory, or a unit
 * with this hash is in memory already, and nothing happened. user: returned by sl_density_user. */
uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted);
/* Counts a use, once per request. REG_HINT_NONE keeps the previous hint. */
void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint);
/* Sets hint and priority after a use was counted. NONE keeps the previous one. */
void sl_density_hint(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                     enum reg_priority priority);
/* Makes the unit the first to evict, until it is used. */
void sl_density_evict_first(struct sl_density *density, uint32_t unit);
/* Removes the unit from memory; its user must not use the number any more. It becomes a ghost. */
void sl_density_leave(struct sl_density *density, uint32_t unit);

/* Retention: the unit and the previous ones of its chain are evicted after all others until a time,
 * as long as they fit into their share of memory. Beyond the share they are ordinary units
 * again. */
struct reg_keep {
    uint32_t end_s;
    uint32_t pages; /* size of the unit, and of each previous one: at most REG_KEEP_PAGES_MAX */
    bool once;      /* ends with the next use */
};
#define REG_KEEP_PAGES_MAX ((UINT32_C(1) << 31) - 1u)
void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep);
/* Retained units may take one part in this number of memory. */
#define SL_DENSITY_KEPT_SHARE 8u
/* Sets the time in seconds modulo 2^32, and the most pages that may be retained. To be called
 * before the functions below, and before references while units are retained. */
void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max);
/* Checks `count` retained units, and makes those whose time is over ordinary again. References do
 * that also; call this before reading the number of retained pages when there were no
 * references. */
void sl_density_keep_check(struct sl_density *density, uint32_t count);

/* Prefetches the unit of this hash, which is to be looked up a few calls later. */
void sl_density_fetch(struct sl_density *density, uint64_t hash);
/* Grows the table for `count` more units, while it has few entries to move. */
void sl_density_expect(struct sl_density *density, uint64_t count);
uint32_t sl_density_user(const struct sl_density *density, uint32_t unit);
void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user);
/* The unit's number, in memory or not; 0: unknown. */
uint32_t sl_density_find(const struct sl_density *density, uint64_t hash);
/* Whether this number, which may be any, is a unit in memory with this user. */
bool sl_density_owns(const struct sl_density *density, uint32_t unit, uint32_t user);

/* Iterates over the units in eviction order; 0: the end. first starts a walk. There is one walk at
 * a time; a use ends it. next continues after the unit returned last. If that one has left, or
 * leaving says that it will, the previous unit of its chain follows; otherwise none of its chain
 * does, since that would make a hole. */
uint32_t sl_density_first(struct sl_density *density);
uint32_t sl_density_next(struct sl_density *density, bool leaving);
/* The users of the units that next is likely to return if each of them leaves; 0: unknown. */
void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count);

/* ---- only on disk, and across restarts ---- */

/* Marks a unit that is not in memory as stored on disk, or no longer. As long as it is on disk, it
 * is known and does not count as a ghost. */
void sl_density_disk(struct sl_density *density, uint64_t hash, bool there);
/* The value that the given share (0 to 1) of the units that are only on disk exceeds. */
double sl_density_disk_cut(const struct sl_density *density, double share);
/* Brings a unit back that was only on disk until now. wanted: for a use, which its reader also
 * reports with sl_density_use; it counts once. Otherwise nothing is learned, and the unit keeps its
 * age. Like sl_density_enter if it is unknown. */
uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted);
/* The knowledge about a unit, in memory or not; hash 0: none. */
struct sl_density_note {
    uint64_t hash;
    uint32_t at;                    /* reference number of its last use, modulo 2^32 */
    uint8_t class_index, use_count; /* use_count 0: known only as the parent of others */
    enum reg_priority priority;
    struct reg_keep keep; /* pages 0: not retained; end_s 0: retention was not requested */
    /* Not restored: */
    bool kept;
    uint64_t age_references;
};
struct sl_density_note sl_density_note(const struct sl_density *density, uint32_t unit);
/* Expected hits per reference while the unit stays; 0: unknown. */
double sl_density_value(const struct sl_density *density, uint32_t unit);
/* Restores a unit of before a restart. Units in memory or on disk come first, in any order, and
 * count when sl_density_restored is called. Ghosts follow after that call, newest first; each
 * counts at once and is older than all present ghosts. Invalid values of the note are replaced.
 * Returns the unit's number; 0: as sl_density_enter, or the unit is known. */
struct sl_density_was {
    enum { SL_DENSITY_MEMORY, SL_DENSITY_DISK, SL_DENSITY_GHOST } where;
    uint32_t user;
    uint64_t parent_hash;
    struct sl_density_note note;
};
uint32_t sl_density_restore(struct sl_density *density, const struct sl_density_was *was);
void sl_density_restored(struct sl_density *density);
/* Saves what was learned: exposure and hits of all cells, as floats. Returns the bytes, at most
 * SL_DENSITY_SAVED_BYTES. */
#define SL_DENSITY_SAVED_BYTES (16u + 2u * 4u * SL_DENSITY_CELLS)
uint32_t sl_density_save(const struct sl_density *density, void *out);
/* Loads what sl_density_save saved; false: the bytes are not valid, and nothing happened. */
bool sl_density_load(struct sl_density *density, const void *bytes, uint32_t length_bytes);

/* ---- queries ---- */

/* The chance of a use within this number of references from now, 0..1; 0: unknown unit, 1: nothing
 * was learned yet. */
double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references);
/* Counts of units in memory, of ghosts, and of units only on disk. */
struct sl_density_stats {
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t reference_count; /* uses of all units */
    uint64_t kept_pages;
    bool learnt; /* values are meaningful; until then all are equal */
};
struct sl_density_stats sl_density_stats(const struct sl_density *density);

#endif
