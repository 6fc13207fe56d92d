/* runtime/density/density.h - the order of units by chain hit density.
 *
 * A unit is here while it is in memory, and as a ghost for a while after: whether it would have
 * been wanted tells how good the choice was. Units know which one they follow in their chain. The
 * one to go is the oldest of the cell that is worth least (density_rates.h), or rather the end of
 * the chain that goes on from it, so that no chain gets a hole: what is behind one is of no use.
 *
 * All of it is O(1) amortised: nothing is scanned. It knows nothing of the index: a unit has a
 * number here, and carries one word of its user's. One thread. */
#ifndef SL_DENSITY_H
#define SL_DENSITY_H

#include "runtime/density/density_rates.h"
#include "runtime/sl_error.h"

struct sl_density; /* opaque */

struct sl_density_options {
    uint64_t ghosts_min, ghosts_max; /* between these, GHOSTS_FACTOR a unit in memory */
};
#define SL_DENSITY_GHOSTS_FACTOR 4u
/* Where nothing else is said. 64 B each. */
#define SL_DENSITY_GHOSTS_MIN UINT64_C(65536)
#define SL_DENSITY_GHOSTS_MAX UINT64_C(1048576)

/* What a hit is worth to who asks for it: that of a low one half, of a high one twice as much as of
 * others. What all say changes nothing. */
enum reg_priority {
    REG_PRIORITY_NONE, /* nothing is said: as before, and NORMAL at first */
    REG_PRIORITY_LOW,
    REG_PRIORITY_NORMAL,
    REG_PRIORITY_HIGH,
    REG_PRIORITY_COUNT
};
#define SL_DENSITY_PRIORITIES 3u

/* How a unit is wanted. */
struct reg_wanted {
    uint64_t parent_hash;  /* of the unit before it in its chain; 0: none, or not known */
    uint32_t stored_count; /* units that the request stores, 1.. */
    bool cut;              /* the last one of its request */
    enum reg_hint hint;
    enum reg_priority priority;
};

/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out);
void sl_density_destroy(struct sl_density **density);

/* The unit of this hash comes to memory: that is a use. Gives its number, 1..; 0: no memory for it,
 * or another with this hash is in memory, and nothing happened. user: given back by
 * sl_density_user. */
uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted);
/* It is wanted again, once for each request. hint: REG_HINT_NONE leaves what was said. */
void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint);
/* What was said with the use that was just told. NONE leaves what was said before. */
void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority);

/* Retention: it, and those before it in its chain, go after all others until a time. Those that are
 * kept so take a bounded part of memory, and the less of it the less they are wanted beside what goes
 * for them: what is said wrongly costs little. Beyond that part they are as all others again. */
struct reg_keep {
    uint32_t end_s;
    uint32_t pages; /* that it takes, and each of those before it: up to REG_KEEP_PAGES_MAX */
    bool once;      /* it is over when it is used, and what is kept behind it was used, too */
};
#define REG_KEEP_PAGES_MAX ((UINT32_C(1) << 30) - 1u)
void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep);
/* Of memory that those may take: one in so many. */
#define SL_DENSITY_KEPT_SHARE 8u
/* The time, in seconds modulo 2^32, and how many pages may be kept. Before what follows, and before
 * references while any are kept. */
void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max);
/* Looks at so many of those that are kept: those whose time is over are as all others again. References
 * do that, too; who asks how many pages are kept while none come does it before. */
void sl_density_keep_look(struct sl_density *density, uint32_t count);

/* It comes before all others to go, until it is used. */
void sl_density_sink(struct sl_density *density, uint32_t unit);
/* It leaves memory, and its number is no longer its user's. It may become a ghost. */
void sl_density_leave(struct sl_density *density, uint32_t unit);

/* What survives a restart. */
struct sl_density_note {
    uint32_t at;          /* when it was used last, in references, modulo 2^32 */
    struct reg_keep keep; /* pages 0: it is not kept; end_s 0: nor was that said */
    uint8_t class_index, use_count;
    enum reg_priority priority;
};
/* What left memory and is on disk alone is known for as long as it is there: it counts among no
 * ghosts. note: of a unit that was there before a restart; NULL: what a ghost knows, else nothing.
 */
void sl_density_disk_enter(struct sl_density *density, uint64_t hash,
                           const struct sl_density_note *note);
void sl_density_disk_leave(struct sl_density *density, uint64_t hash); /* it may become a ghost */
/* One that was on disk alone a moment ago comes to memory. wanted: for a use, of which its reader
 * will tell, too; that counts once. Else nothing is learnt, and it stands where it did. As
 * sl_density_enter when it is not known. */
uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted);
/* The value that so much of what is on disk alone (0 to 1) is above. */
double sl_density_disk_cut(const struct sl_density *density, double share);

/* The unit of this hash is asked for soon, some calls of this later: it is fetched from memory. */
void sl_density_fetch(struct sl_density *density, uint64_t hash);

uint32_t sl_density_user(const struct sl_density *density, uint32_t unit);
uint64_t sl_density_hash(const struct sl_density *density, uint32_t unit);
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
/* The users of the units that are likely to be given next, should each of them leave; 0: none is known. */
void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count);

void sl_density_note(const struct sl_density *density, uint32_t unit, struct sl_density_note *out);
/* As sl_density_enter, of a unit that was in memory before; in any order, before anything else.
 * They count when sl_density_restored is called. */
uint32_t sl_density_restore(struct sl_density *density, uint64_t hash, uint32_t user,
                            uint64_t parent_hash, const struct sl_density_note *note);
void sl_density_restored(struct sl_density *density);
/* Ghosts survive a restart, too, but for those of the last lot. sl_density_gone gives a lot of
 * those that came last, LOT of them, or 0: not so many came since. It is asked after each that
 * leaves. restore: lots from the last to the first, when all others are restored; of bytes that
 * are of no lot nothing is believed but what a ghost can be. */
struct sl_density_ghost {
    uint64_t hash;
    uint32_t at; /* as of a note */
    uint8_t class_index, use_count, unused[2];
};
/* With a number before it, four fill a slab of the index. */
#define SL_DENSITY_GONE_LOT 1000u
uint32_t sl_density_gone(struct sl_density *density, struct sl_density_ghost *out);
/* So many lots are worth keeping, the latest: as many ghosts as there are units in memory, and six
 * times as many, ghosts_min at most, where these are few; one where there is any unit. */
uint64_t sl_density_gone_lots(const struct sl_density *density);
void sl_density_ghosts_restore(struct sl_density *density, const void *bytes,
                               uint32_t length_bytes);
/* Exposure and hits of all cells, as floats: what was learnt. Gives the bytes, at most
 * SL_DENSITY_LEARNT_BYTES. */
#define SL_DENSITY_LEARNT_BYTES (16u + 2u * 4u * SL_DENSITY_CELLS)
uint32_t sl_density_learnt(const struct sl_density *density, void *out);
/* false: it is not what sl_density_learnt gave; nothing happened. */
bool sl_density_learn(struct sl_density *density, const void *bytes, uint32_t length_bytes);

/* What is known of a unit, wherever it is; 0: of none. */
struct sl_density_view {
    uint32_t class_index, age;
    uint32_t use_count; /* 0: nothing but that others follow it */
    uint64_t age_references;
    double value; /* hits that a reference of its stay is expected to bring */
    enum reg_priority priority;
    bool kept;
};
struct sl_density_view sl_density_view(const struct sl_density *density, uint32_t unit);
/* How likely it is wanted within so many references from now, 0..1; 0: it is not known, 1: nothing is
 * learnt yet. */
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
