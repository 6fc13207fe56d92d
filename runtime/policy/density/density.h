/* runtime/policy/density/density.h - the order of units by chain hit density.
 *
 * Units are counted in cells of class and age. A class says how a unit came to be: how many blocks
 * its request stored, whether it was the last of its request, or how often it was wanted; and what
 * was said about its session. Ages count references (wanted units), not seconds. Of each cell is
 * learnt how likely a unit in it is wanted. Its value is the most that keeping a unit for some time
 * brings for each reference of that time: the index of Gittins (1979) for a job that ends with its
 * first hit.
 *
 * The unit to go is the oldest of the cell that is worth least, or rather the end of the chain that
 * goes on from it, so that no chain gets a hole. A unit that left is a ghost for a while: whether
 * it would have been wanted tells how good the choice was.
 *
 * All of it is O(1) amortised. It knows nothing of the index: a unit has a number here, and carries
 * one word of its user's. One thread. */
#ifndef SL_DENSITY_H
#define SL_DENSITY_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

/* ---- classes ---- */

enum {
    SL_DENSITY_STORED_CLASSES = 8, /* wanted once: by log2 of the blocks stored with it */
    SL_DENSITY_TWICE = 8,
    SL_DENSITY_FEW = 9,   /* wanted three or four times */
    SL_DENSITY_MANY = 10, /* five times and more */
    SL_DENSITY_CUT = 11,  /* wanted once, and the last block of its request */
    SL_DENSITY_KINDS = 12,
};
/* What was said of the session; each has the kinds above for itself. */
enum reg_hint { REG_HINT_NONE, REG_HINT_ENDS, REG_HINT_GOES_ON, REG_HINT_COUNT };
#define SL_DENSITY_CLASSES ((uint32_t)SL_DENSITY_KINDS * REG_HINT_COUNT)
/* The first 8 ages take 32 references each; those that follow twice as many, and so on: four an
 * octave. The last one has no end. */
#define SL_DENSITY_AGES  76u
#define SL_DENSITY_CELLS (SL_DENSITY_CLASSES * SL_DENSITY_AGES)

/* 0..SL_DENSITY_CLASSES-1. use_count: how often it was wanted, 1: the store. stored_count: blocks
 * that its request stored. */
uint32_t sl_density_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint);
/* A class in words: "wanted once, one of 16 to 31 stored". Gives out. */
#define SL_DENSITY_TEXT_BYTES 96u
const char *sl_density_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES]);

/* What it is worth to wait for one hit from an age on, at the best of all horizons: that where the
 * hits that are expected by then are most for the time until then. */
struct sl_worth {
    double hit, time; /* that are expected; 0..1 */
    double stay;      /* the chance that no hit came by then */
    uint32_t end;     /* the age behind the horizon */
};
/* Of count ages, each of a width and with so many hits a time, more than 0. */
void sl_gittins(const double *rate, const double *width, uint32_t count, struct sl_worth *out);

/* ---- units in memory ---- */

struct sl_density; /* opaque */

/* Ghosts: between ghosts_min and ghosts_max as many as SL_DENSITY_GHOSTS_FACTOR a unit in memory.
 */
struct sl_density_options {
    uint64_t ghosts_min, ghosts_max;
};
#define SL_DENSITY_GHOSTS_FACTOR 4u
/* Where nothing else is said. 64 B each. */
#define SL_DENSITY_GHOSTS_MIN UINT64_C(65536)
#define SL_DENSITY_GHOSTS_MAX UINT64_C(1048576)
/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out);
void sl_density_destroy(struct sl_density **density);

/* What a hit is worth to who asks for it: that of a low one half, of a high one twice as much as of
 * others. What all say changes nothing. */
enum reg_priority {
    REG_PRIORITY_NONE, /* nothing is said: as before, and NORMAL at first */
    REG_PRIORITY_LOW,
    REG_PRIORITY_NORMAL,
    REG_PRIORITY_HIGH,
    REG_PRIORITY_COUNT
};
/* How a unit is wanted. */
struct reg_wanted {
    uint64_t parent_hash;  /* of the unit before it in its chain; 0: none, or not known */
    uint32_t stored_count; /* units that the request stores, 1.. */
    bool cut;              /* the last one of its request */
    enum reg_hint hint;
    enum reg_priority priority;
};
/* The unit of this hash comes to memory: that is a use. Gives its number, 1..; 0: no memory for it,
 * or another with this hash is in memory, and nothing happened. user: given back by
 * sl_density_user. */
uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted);
/* It is wanted again, once for each request. NONE leaves what was said. */
void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint);
/* What was said with the use that was just told. NONE leaves what was said before. */
void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority);
/* It comes before all others to go, until it is used. */
void sl_density_sink(struct sl_density *density, uint32_t unit);
/* It leaves memory, and its number is no longer its user's. It becomes a ghost. */
void sl_density_leave(struct sl_density *density, uint32_t unit);

/* Retention: it, and those before it in its chain, go after all others until a time, as long as
 * they fit into their part of memory. Beyond that part they are as all others again. */
struct reg_keep {
    uint32_t end_s;
    uint32_t pages; /* that it takes, and each of those before it: up to REG_KEEP_PAGES_MAX */
    bool once;      /* it is over when it is used */
};
#define REG_KEEP_PAGES_MAX ((UINT32_C(1) << 31) - 1u)
void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep);
/* Of memory that those may take: one in so many. */
#define SL_DENSITY_KEPT_SHARE 8u
/* The time, in seconds modulo 2^32, and how many pages may be kept. Before what follows, and before
 * references while any are kept. */
void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max);
/* Looks at so many of those that are kept: those whose time is over are as all others again.
 * References do that, too; who asks how many pages are kept while none come does it before. */
void sl_density_keep_look(struct sl_density *density, uint32_t count);

/* The unit of this hash is asked for soon, some calls of this later: it is fetched from memory. */
void sl_density_fetch(struct sl_density *density, uint64_t hash);
/* So many more units will come: the table grows before, while little is in it that would have to
 * move. */
void sl_density_expect(struct sl_density *density, uint64_t count);
uint32_t sl_density_user(const struct sl_density *density, uint32_t unit);
void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user);
/* Its number, wherever it is; 0: nothing is known of it. */
uint32_t sl_density_find(const struct sl_density *density, uint64_t hash);
/* Whether this number, which may be any, is of a unit in memory, and that of this user. */
bool sl_density_is(const struct sl_density *density, uint32_t unit, uint32_t user);

/* The units as they go; 0: no more. first begins a walk, and there is one at a time: a use ends it.
 * next goes on behind the last one that was given. When that has left, or goes says that it will,
 * the next one is before it in the same chain; else none of those, since that would be a hole. */
uint32_t sl_density_first(struct sl_density *density);
uint32_t sl_density_next(struct sl_density *density, bool goes);
/* The users of the units that are likely to be given next, should each of them leave; 0: none is
 * known. */
void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count);

/* ---- on disk alone, and across restarts ---- */

/* There, or not any more: what left memory and is on disk alone is known for as long as that, and
 * counts among no ghosts. */
void sl_density_disk(struct sl_density *density, uint64_t hash, bool there);
/* The value that so much of what is on disk alone (0 to 1) is above. */
double sl_density_disk_cut(const struct sl_density *density, double share);
/* One that was on disk alone a moment ago comes to memory. wanted: for a use, of which its reader
 * will tell, too; that counts once. Else nothing is learnt, and it stands where it did. As
 * sl_density_enter when it is not known. */
uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted);
/* What is known of a unit, wherever it is; 0: of none. */
struct sl_density_note {
    uint64_t hash;
    uint32_t at;                    /* when it was used last, in references, modulo 2^32 */
    uint8_t class_index, use_count; /* 0: nothing but that others follow it */
    enum reg_priority priority;
    struct reg_keep keep; /* pages 0: it is not to be kept; end_s 0: nor was that said */
    /* These are not restored. */
    bool kept;
    uint64_t age_references;
};
struct sl_density_note sl_density_note(const struct sl_density *density, uint32_t unit);
/* Hits that a reference of its stay is expected to bring; 0: nothing is known of it. */
double sl_density_value(const struct sl_density *density, uint32_t unit);
/* A unit that was in memory or on disk before a restart: in any order, before anything else; it
 * counts when sl_density_restored is called. After that call ghosts, the newest first: each counts
 * at once, and is older than every ghost that density has. Invalid values of the note are replaced.
 * Gives the unit's number; 0: as sl_density_enter, or the unit is known. */
struct sl_density_was {
    enum { SL_DENSITY_MEMORY, SL_DENSITY_DISK, SL_DENSITY_GHOST } where;
    uint32_t user;
    uint64_t parent_hash;
    struct sl_density_note note;
};
uint32_t sl_density_restore(struct sl_density *density, const struct sl_density_was *was);
void sl_density_restored(struct sl_density *density);
/* Exposure and hits of all cells, as floats: what was learnt. Gives the bytes, at most
 * SL_DENSITY_LEARNT_BYTES. */
#define SL_DENSITY_LEARNT_BYTES (16u + 2u * 4u * SL_DENSITY_CELLS)
uint32_t sl_density_learnt(const struct sl_density *density, void *out);
/* false: it is not what sl_density_learnt gave; nothing happened. */
bool sl_density_learn(struct sl_density *density, const void *bytes, uint32_t length_bytes);

/* ---- what is known ---- */

/* How likely it is wanted within so many references from now, 0..1; 0: it is not known, 1: nothing
 * is learnt yet. */
double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references);
/* Counts of units in memory, of ghosts, and of units on disk alone. */
struct sl_density_stats {
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t reference_count; /* how often a unit was wanted */
    uint64_t kept_pages;
    bool learnt; /* values say something: until then all are equal */
};
struct sl_density_stats sl_density_stats(const struct sl_density *density);

#endif
