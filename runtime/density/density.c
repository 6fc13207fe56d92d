/* runtime/density/density.c - units and ghosts: in lists by what they are worth, and in chains.
 *
 * A unit that is in memory stands in a list: that of its class, age and priority, or that of what goes
 * first, or that of what is kept. A ghost stands with all ghosts, in the order in which they left. Ages
 * nest: each takes a power of two of references, and when that is over the whole list goes behind that of
 * the next age. So no unit is touched for getting older, and its age follows from when it was used. */
#include "runtime/density/density.h"
#include "runtime/sl_base.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNITS_FIRST 16384u
#define UNITS_MAX   (UINT32_C(1) << 29)
#define TABLE_SHARE 4u /* heads of the table for each unit: then few units share one */
#define USES_MAX    255u
/* Values are computed again after so many references. */
#define SETTLE_REFERENCES UINT64_C(1000)
/* What was seen counts half when memory was filled anew so often, but not before and not after so many
 * references. */
#define HALVE_FILLED UINT64_C(16)
#define HALVE_LEAST  UINT64_C(50000)
#define HALVE_MOST   UINT64_C(150000)
/* Blocks of a request that are stored within so many references, or one in so many of memory, get older as
 * one: then the end of their chain is met first. */
#define CHAIN_REFERENCES UINT64_C(64)
#define CHAIN_SHARE      32u
/* Over so many that went what they were worth is averaged. */
#define EDGE_UNITS 64.0
/* What is known of those that are kept leans on what others are worth, with the weight of so many hits. */
#define TRUST_HITS 30.0
/* Of the part of memory that they may take at most this much is left to them always. */
#define TRUST_MIN (1.0 / 16.0)
#define CHAIN_MAX 65536u
/* With more that go on from a unit than this, one of them is taken to be kept. */
#define CHILDREN_MAX 64u
/* A note of the last registrar is at most so far behind what it knew. */
#define CLOCK_AHEAD_MAX (UINT32_C(1) << 30)
#define LEARNT_MAX      1e15f
/* Ghosts a unit that are worth notes: with three, 2,000 and 5,000 blocks of the conversation trace lose half
 * a point by kills, or more. */
#define GONE_OF_FEW 6u

/* Of so many hashes that were named first the head of the table is fetched, and then the unit. */
#define FETCH_AHEAD 2u

/* FREE and the last two are not in memory; DISK: on disk alone. A ghost that was never used is one that
 * others name as their parent. */
enum unit_state { UNIT_FREE, UNIT_HERE, UNIT_SUNK, UNIT_KEPT, UNIT_GHOST, UNIT_DISK };

struct pair {
    uint32_t older, newer;
};

struct unit {
    uint64_t hash;
    struct pair in; /* its list, a ring with its head; alone in it: in no list */
    uint32_t next;  /* of the same head of the table, or of those that are free */
    uint32_t user;
    uint32_t at; /* when it was used last, in references, modulo 2^32 */
    uint32_t parent;
    uint32_t
        child; /* of those in memory the one used last; the ring of siblings goes on; 0: none */
    struct pair siblings;
    uint32_t walk;            /* the last one that gave it, twice; and one more if it goes */
    uint32_t keep_end_s;      /* until when it was said to be kept; 0: it was not */
    uint32_t keep_pages : 30; /* 0: it is not to be kept */
    uint32_t keep_once : 1;   /* for its next use: then it is over */
    uint32_t keep_used : 1;   /* that was, and what comes behind it in its chain is not used yet */
    uint8_t class_index, use_count;
    uint8_t state : 4;
    uint8_t weight : 2;  /* of its hits: 0 low, 1 normal, 2 high */
    uint8_t counted : 1; /* it came for a use that its reader will tell of again */
    uint8_t aged : 1;    /* it counts in its cell */
};
static_assert(sizeof(struct unit) == 64, "a unit is a line of the processor's cache");

/* The lists of a cell, one for each weight, and three more. Their heads are the first units. */
#define LISTS (SL_DENSITY_CELLS * SL_DENSITY_PRIORITIES)
enum { HEAD_FIRST = 1, HEAD_SUNK = HEAD_FIRST + (int)LISTS, HEAD_KEPT, HEAD_GHOSTS, UNIT_FIRST };
#define RANK_WORDS ((LISTS + 63u) / 64u)

struct sl_density {
    struct sl_rates rates;
    struct sl_density_options set;
    struct unit *units;              /* by number; 0 is none */
    uint32_t *table;                 /* by hash: the first unit */
    uint32_t capacity, high, vacant; /* from high on none was ever taken; the first that is free */
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t seen;                      /* a bit for each class that ever had units */
    uint32_t known[SL_DENSITY_CELLS];   /* units in the cell, wherever they are */
    uint32_t on_disk[SL_DENSITY_CELLS]; /* of these, on disk alone */
    uint64_t references, counted_at, settle_at,
        halved_at; /* exposure is complete up to counted_at */
    uint64_t horizon;
    bool learnt;                        /* values were computed from what was seen */
    uint16_t order[LISTS], rank[LISTS]; /* lists, the least valued first */
    uint32_t order_count;
    uint64_t filled[RANK_WORDS]; /* by rank: lists that may have units */
    uint32_t now_s;
    uint64_t kept_count, kept_pages, kept_pages_max;
    /* As of a cell, of what is kept; and what that was worth that went last. */
    double kept_exposure, kept_wanted, edge;
    /* the walk: the unit that it stands at, what it gave for it, and where it goes on */
    uint32_t walk_base, walk_given, walk_next, walk_number;
    uint64_t fetched[FETCH_AHEAD];
    uint32_t fetch_count;
    struct sl_density_ghost gone[SL_DENSITY_GONE_LOT];
    uint32_t gone_count;
};

/* ---- the table ---- */

static uint32_t *table_head(const struct sl_density *density, uint64_t hash)
{
    return &density->table[(hash ^ hash >> 32) & (density->capacity * TABLE_SHARE - 1)];
}

static uint32_t unit_of(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = *table_head(density, hash);
    while (unit != 0 && density->units[unit].hash != hash) {
        unit = density->units[unit].next;
    }
    return unit;
}

static void table_add(struct sl_density *density, uint32_t unit)
{
    uint32_t *head = table_head(density, density->units[unit].hash);
    density->units[unit].next = *head;
    *head = unit;
}

void sl_density_fetch(struct sl_density *density, uint64_t hash)
{
    uint64_t *before = &density->fetched[density->fetch_count++ % FETCH_AHEAD];
    __builtin_prefetch(&density->units[*table_head(density, *before)], 1);
    __builtin_prefetch(table_head(density, hash), 1);
    *before = hash;
}

static void *aligned_new(size_t bytes)
{
    size_t huge = (size_t)2 << 20; /* else what is touched at random misses the table of pages */
    void *at = aligned_alloc(bytes < huge ? 64 : huge, bytes);
    if (at != NULL && bytes >= huge) {
        (void)madvise(at, bytes, MADV_HUGEPAGE); /* where the system allows it */
    }
    return at;
}

static sl_err units_grow(struct sl_density *density)
{
    uint32_t capacity = density->capacity == 0 ? UNITS_FIRST : density->capacity * 2;
    struct unit *units = capacity <= UNITS_MAX ? aligned_new(capacity * sizeof(*units)) : NULL;
    size_t table_bytes = capacity * TABLE_SHARE * sizeof(uint32_t);
    uint32_t *table = units != NULL ? aligned_new(table_bytes) : NULL;
    if (table == NULL) {
        free(units);
        return SL_ERR_NO_MEMORY;
    }
    memset(table, 0, table_bytes);
    if (density->capacity > 0) {
        memcpy(units, density->units, density->high * sizeof(*units));
    }
    free(density->units);
    free(density->table);
    density->units = units;
    density->table = table;
    density->capacity = capacity;
    for (uint32_t unit = UNIT_FIRST; unit < density->high; unit++) {
        if (units[unit].state != UNIT_FREE) {
            table_add(density, unit);
        }
    }
    return SL_OK;
}

/* 0: no memory. */
static uint32_t unit_new(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density->vacant;
    if (unit != 0) {
        density->vacant = density->units[unit].next;
    } else if (density->high < density->capacity || units_grow(density) == SL_OK) {
        unit = density->high++;
    } else {
        return 0;
    }
    density->units[unit] = (struct unit){.hash = hash, .in = {unit, unit}, .weight = 1};
    table_add(density, unit);
    return unit;
}

static void unit_free(struct sl_density *density, uint32_t unit)
{
    uint32_t *link = table_head(density, density->units[unit].hash);
    while (*link != unit) {
        link = &density->units[*link].next;
    }
    *link = density->units[unit].next;
    density->units[unit] = (struct unit){.next = density->vacant};
    density->vacant = unit;
}

/* ---- lists ---- */

/* Right before this one, which is younger; a head: as the youngest. */
static void list_insert(struct sl_density *density, uint32_t newer, uint32_t unit)
{
    struct unit *units = density->units;
    uint32_t older = units[newer].in.older;
    units[unit].in = (struct pair){older, newer};
    units[older].in.newer = unit;
    units[newer].in.older = unit;
}

static void list_remove(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    struct pair in = units[unit].in;
    units[in.older].in.newer = in.newer;
    units[in.newer].in.older = in.older;
    units[unit].in = (struct pair){unit, unit};
}

static uint32_t oldest_of(const struct sl_density *density, uint32_t head)
{
    uint32_t unit = density->units[head].in.newer;
    return unit != head ? unit : 0;
}

static void list_mark(struct sl_density *density, uint32_t list)
{
    uint32_t rank = density->rank[list];
    density->filled[rank / 64] |= UINT64_C(1) << (rank % 64);
}

/* All of one list, which are older than those of the other, to its young end. */
static void list_move(struct sl_density *density, uint32_t from, uint32_t to)
{
    struct unit *units = density->units;
    uint32_t head = HEAD_FIRST + to;
    struct pair all = {units[HEAD_FIRST + from].in.newer, units[HEAD_FIRST + from].in.older};
    if (all.older == HEAD_FIRST + from) {
        return;
    }
    units[HEAD_FIRST + from].in = (struct pair){HEAD_FIRST + from, HEAD_FIRST + from};
    units[all.older].in.older = units[head].in.older;
    units[units[head].in.older].in.newer = all.older;
    units[all.newer].in.newer = head;
    units[head].in.older = all.newer;
    list_mark(density, to);
}

/* The oldest unit of the first list from this rank on; behind all of them those that are kept. */
static uint32_t oldest_from(struct sl_density *density, uint32_t rank)
{
    for (uint32_t word = rank / 64; word < RANK_WORDS; word++) {
        uint64_t bits = density->filled[word];
        bits &= word == rank / 64 ? ~UINT64_C(0) << (rank % 64) : ~UINT64_C(0);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t found = (uint32_t)__builtin_ctzll(bits);
            uint32_t oldest = oldest_of(density, HEAD_FIRST + density->order[word * 64 + found]);
            if (oldest != 0) {
                return oldest;
            }
            density->filled[word] &= ~(UINT64_C(1) << found);
        }
    }
    return oldest_of(density, HEAD_KEPT);
}

/* The unit that goes after this one, chains aside; 0: none. */
static uint32_t turn_after(struct sl_density *density, uint32_t unit)
{
    uint32_t next = density->units[unit].in.newer;
    if (next >= UNIT_FIRST) {
        return next;
    }
    if (next == HEAD_KEPT) {
        return 0;
    }
    return oldest_from(density, next == HEAD_SUNK ? 0 : density->rank[next - HEAD_FIRST] + 1u);
}

/* ---- cells ---- */

static bool in_memory(const struct unit *at)
{
    return at->state == UNIT_HERE || at->state == UNIT_SUNK || at->state == UNIT_KEPT;
}

static uint64_t age_references(const struct sl_density *density, const struct unit *at)
{
    return (uint32_t)density->references - at->at;
}

/* An age ends where its length divides the references. */
static uint32_t age_of(const struct sl_density *density, const struct unit *at)
{
    uint64_t from = density->references - age_references(density, at);
    uint32_t count = SL_DENSITY_FIRST_AGES; /* of one length */
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age += count, count = SL_DENSITY_OCTAVE_AGES) {
        uint32_t shift = sl_rates_shift(age);
        from = from >> shift << shift;
        uint64_t gone = (density->references - from) >> shift;
        if (gone < count) {
            return (uint32_t)SL_MIN(age + gone, (uint64_t)SL_DENSITY_AGES - 1);
        }
        from += (uint64_t)count << shift;
    }
    return SL_DENSITY_AGES - 1;
}

static uint32_t cell_of(const struct sl_density *density, const struct unit *at)
{
    return sl_rates_cell(at->class_index, age_of(density, at));
}

static void lists_order(struct sl_density *density);

static void cell_join(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if ((density->seen >> at->class_index & 1u) == 0) {
        density->seen |= UINT64_C(1) << at->class_index;
        lists_order(density);
    }
    uint32_t cell = cell_of(density, at);
    at->aged = 1;
    density->known[cell]++;
    density->on_disk[cell] += at->state == UNIT_DISK;
    density->rates.exposure[cell] -= (double)(density->references - density->counted_at);
}

static void cell_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (at->aged) {
        uint32_t cell = cell_of(density, at);
        at->aged = 0;
        density->known[cell]--;
        density->on_disk[cell] -= at->state == UNIT_DISK;
        density->rates.exposure[cell] += (double)(density->references - density->counted_at);
    }
}

/* With what a use taught. */
static void cell_leave_used(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    density->rates.wanted[cell_of(density, at)] += 1.0;
    cell_leave(density, unit);
    at->use_count = (uint8_t)SL_MIN(at->use_count + 1u, USES_MAX);
}

static void cell_older(struct sl_density *density, uint32_t cell)
{
    uint32_t older = cell + SL_DENSITY_CLASSES;
    double since =
        (double)density->known[cell] * (double)(density->references - density->counted_at);
    density->rates.exposure[cell] += since;
    density->rates.exposure[older] -= since;
    density->known[older] += density->known[cell];
    density->on_disk[older] += density->on_disk[cell];
    density->known[cell] = density->on_disk[cell] = 0;
    for (uint32_t weight = 0; weight < SL_DENSITY_PRIORITIES; weight++) {
        list_move(density, cell * SL_DENSITY_PRIORITIES + weight,
                  older * SL_DENSITY_PRIORITIES + weight);
    }
}

/* From the oldest age down, so that a unit moves once. */
static void all_older(struct sl_density *density)
{
    for (uint32_t age = SL_DENSITY_AGES - 1; age-- > 0;) {
        if (density->references % (UINT64_C(1) << sl_rates_shift(age)) != 0) {
            continue;
        }
        for (uint64_t seen = density->seen; seen != 0; seen &= seen - 1) {
            uint32_t cell = sl_rates_cell((uint32_t)__builtin_ctzll(seen), age);
            if (density->known[cell] != 0) {
                cell_older(density, cell);
            }
        }
    }
}

/* ---- values ---- */

#define BUCKETS 1024
/* Those of a class that was seen, by value. A hit of low priority is worth half, one of high priority twice
 * as much. Of equals the older goes first, as it does in LRU. */
static void lists_order(struct sl_density *density)
{
    int octave = (int)rint(density->rates.steps);
    uint16_t lists[LISTS], buckets[LISTS];
    uint32_t places[BUCKETS + 1] = {0};
    uint32_t count = 0;
    for (uint32_t age = SL_DENSITY_AGES; age-- > 0;) {
        for (uint64_t seen = density->seen; seen != 0; seen &= seen - 1) {
            uint32_t cell = sl_rates_cell((uint32_t)__builtin_ctzll(seen), age);
            for (int weight = 0; weight < (int)SL_DENSITY_PRIORITIES; weight++, count++) {
                int step = density->rates.step[cell] + (weight - 1) * octave + BUCKETS / 2;
                lists[count] = (uint16_t)(cell * SL_DENSITY_PRIORITIES + (uint32_t)weight);
                buckets[count] = (uint16_t)SL_MIN(SL_MAX(step, 0), BUCKETS - 1);
                places[buckets[count] + 1]++;
            }
        }
    }
    for (uint32_t bucket = 1; bucket < BUCKETS; bucket++) {
        places[bucket] += places[bucket - 1];
    }
    memset(density->filled, 0, sizeof(density->filled));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = places[buckets[i]]++;
        density->order[place] = lists[i];
        density->rank[lists[i]] = (uint16_t)place;
        if (density->known[lists[i] / SL_DENSITY_PRIORITIES] != 0 &&
            oldest_of(density, HEAD_FIRST + lists[i]) != 0) {
            list_mark(density, lists[i]);
        }
    }
    density->order_count = count;
}

static double exposure_of(const struct sl_density *density, uint32_t cell)
{
    return density->rates.exposure[cell] +
           (double)density->known[cell] * (double)(density->references - density->counted_at);
}

static void exposure_complete(struct sl_density *density)
{
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->rates.exposure[cell] = exposure_of(density, cell);
    }
    density->counted_at = density->references;
}

static void settle(struct sl_density *density)
{
    exposure_complete(density);
    uint64_t filled = HALVE_FILLED * density->unit_count;
    uint64_t after = SL_MIN(SL_MAX(filled, HALVE_LEAST), HALVE_MOST);
    if (density->references >= density->halved_at + after) {
        density->halved_at = density->references;
        sl_rates_halve(&density->rates);
        density->kept_exposure /= 2.0;
        density->kept_wanted /= 2.0;
    }
    sl_rates_settle(&density->rates,
                    (double)density->references / (double)SL_MAX(density->unit_count, UINT64_C(1)));
    lists_order(density);
}

/* ---- chains ---- */

static void parent_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    struct unit *at = &units[unit];
    struct pair ring = at->siblings;
    if (at->parent == 0) {
        return;
    }
    struct unit *parent = &units[at->parent];
    if (ring.newer == unit) {
        parent->child = 0;
    } else {
        units[ring.older].siblings.newer = ring.newer;
        units[ring.newer].siblings.older = ring.older;
        parent->child = parent->child == unit ? ring.newer : parent->child;
    }
    at->siblings = (struct pair){0};
    at->parent = 0;
}

/* In front of the others: the one that was used last. */
static void parent_join(struct sl_density *density, uint32_t unit, uint32_t parent_unit)
{
    struct unit *units = density->units;
    struct unit *parent = &units[parent_unit];
    struct pair *ring = &units[unit].siblings;
    *ring = (struct pair){.older = unit, .newer = unit};
    if (parent->child != 0) {
        ring->newer = parent->child;
        ring->older = units[parent->child].siblings.older;
        units[ring->older].siblings.newer = unit;
        units[ring->newer].siblings.older = unit;
    }
    parent->child = unit;
    units[unit].parent = parent_unit;
}

/* Whether unit is among what comes before `of` in its chain; hashes may collide, and a request may
 * name anything. */
static bool is_before(const struct sl_density *density, uint32_t unit, uint32_t of)
{
    for (uint32_t steps = 0; of != 0 && steps < CHAIN_MAX; steps++) {
        if (of == unit) {
            return true;
        }
        of = density->units[of].parent;
    }
    return of != 0;
}

/* The end of the chain that goes on from it; of several chains the one used longest ago. */
static uint32_t chain_end(const struct sl_density *density, uint32_t unit)
{
    const struct unit *units = density->units;
    while (units[unit].child != 0) {
        unit = units[units[unit].child].siblings.older;
    }
    return unit;
}

/* ---- ghosts ---- */

static void ghosts_append(struct sl_density *density, uint32_t unit)
{
    density->units[unit].state = UNIT_GHOST;
    list_insert(density, HEAD_GHOSTS, unit);
    density->ghost_count++;
}

static void ghosts_remove(struct sl_density *density, uint32_t unit)
{
    list_remove(density, unit);
    density->ghost_count--;
}

static void ghosts_bound(struct sl_density *density)
{
    uint64_t want = density->unit_count * SL_DENSITY_GHOSTS_FACTOR;
    uint64_t most = SL_MIN(SL_MAX(want, density->set.ghosts_min), density->set.ghosts_max);
    while (density->ghost_count > most) {
        uint32_t unit = oldest_of(density, HEAD_GHOSTS);
        const struct unit *next = &density->units[density->units[unit].in.newer];
        __builtin_prefetch(&density->units[next->in.newer], 1); /* they go soon */
        __builtin_prefetch(table_head(density, next->hash), 1);
        while (density->units[unit].child != 0) {
            parent_leave(density, density->units[unit].child);
        }
        ghosts_remove(density, unit);
        cell_leave(density, unit);
        unit_free(density, unit);
    }
}

/* It became one: the next registrar is told of it. */
static void ghost_note(struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    if (density->gone_count == SL_DENSITY_GONE_LOT) {
        density->gone_count = 0; /* nobody takes them */
    }
    density->gone[density->gone_count++] = (struct sl_density_ghost){
        .hash = at->hash, .at = at->at, .class_index = at->class_index, .use_count = at->use_count};
}

static void ghost_become(struct sl_density *density, uint32_t unit)
{
    if (density->units[unit].aged) {
        ghost_note(density, unit);
    }
    ghosts_append(density, unit);
    ghosts_bound(density);
}

/* Chains come from either end: who names a parent that is not here keeps a place for it, among the
 * ghosts. */
static void parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash)
{
    if (parent_hash == 0 || parent_hash == density->units[unit].hash) {
        return;
    }
    uint32_t parent = unit_of(density, parent_hash);
    if (parent == 0) {
        parent = unit_new(density, parent_hash);
        if (parent == 0) {
            return;
        }
        ghosts_append(density, parent);
    } else if (density->units[unit].child != 0 && is_before(density, unit, parent)) {
        return;
    }
    parent_join(density, unit, parent);
}

/* ---- what is kept ----
 *
 * Its list is a clock: each reference looks at one unit, and puts it behind the others when its time is not
 * over. So none stays longer than as many references as there are kept units, and nothing is scanned. */

/* Times are modulo 2^32 seconds. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* How far those that are kept are wanted as often as what goes for them, TRUST_MIN..1. */
static double kept_trust(const struct sl_density *density)
{
    if (!(density->edge > 0)) { /* nothing went yet */
        return 1.0;
    }
    double rate =
        (density->kept_wanted + TRUST_HITS) / (density->kept_exposure + TRUST_HITS / density->edge);
    return fmin(fmax(rate / density->edge, TRUST_MIN), 1.0);
}

static bool kept_is_over(const struct sl_density *density, uint32_t unit)
{
    return !is_later(density->units[unit].keep_end_s, density->now_s);
}

static bool kept_is_too_much(const struct sl_density *density)
{
    uint64_t most = (uint64_t)((double)density->kept_pages_max * kept_trust(density));
    return density->kept_pages > most;
}

static void kept_enter(struct sl_density *density, uint32_t unit)
{
    density->units[unit].state = UNIT_KEPT;
    list_insert(density, HEAD_KEPT, unit);
    density->kept_count++;
    density->kept_pages += density->units[unit].keep_pages;
}

/* Out of the list of what is in memory, wherever it waits. */
static void turn_remove(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (density->walk_next == unit) {
        density->walk_next = turn_after(density, unit);
    }
    if (at->state == UNIT_KEPT) {
        density->kept_count--;
        density->kept_pages -= at->keep_pages;
    }
    at->state = UNIT_HERE;
    list_remove(density, unit);
}

/* To the list of its cell, which counts it. Blocks of a request stand from the end of their chain on. */
static void turn_enter(struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    const struct unit *parent = &density->units[at->parent];
    if (at->keep_pages != 0) {
        kept_enter(density, unit);
        return;
    }
    uint32_t list = cell_of(density, at) * SL_DENSITY_PRIORITIES + at->weight;
    bool with = parent->state == UNIT_HERE && parent->aged && parent->at == at->at &&
                parent->class_index == at->class_index && parent->weight == at->weight;
    list_insert(density, with ? at->parent : HEAD_FIRST + list, unit);
    list_mark(density, list);
}

/* It is as all others again. Until when it was to be kept is still known: elsewhere there may be room. */
static void kept_release(struct sl_density *density, uint32_t unit)
{
    turn_remove(density, unit);
    density->units[unit].keep_pages = 0;
    turn_enter(density, unit);
}

/* The end of a chain before its beginning. */
static void kept_release_end(struct sl_density *density)
{
    const struct unit *units = density->units;
    uint32_t unit = oldest_of(density, HEAD_KEPT);
    for (uint32_t steps = 0; steps < CHAIN_MAX && units[unit].child != 0; steps++) {
        uint32_t child = units[units[unit].child].siblings.older;
        if (units[child].state != UNIT_KEPT) {
            break;
        }
        unit = child;
    }
    kept_release(density, unit);
}

static bool child_is_kept(const struct sl_density *density, uint32_t unit)
{
    uint32_t first = density->units[unit].child, child = first;
    for (uint32_t i = 0; child != 0 && i < CHILDREN_MAX; i++) {
        if (density->units[child].state == UNIT_KEPT) {
            return true;
        }
        child = density->units[child].siblings.newer;
        child = child != first ? child : 0;
    }
    return child != 0;
}

/* The unit was used, and is in no list. What was kept for one use is over when what is kept behind it was
 * used, too: then those before it that were used first waited for it. */
static void kept_used(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    units[unit].keep_used = units[unit].keep_once;
    if (units[unit].keep_pages == 0 || !units[unit].keep_once || child_is_kept(density, unit)) {
        return;
    }
    units[unit].keep_pages = 0;
    units[unit].keep_end_s = 0;
    unit = units[unit].parent;
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++, unit = units[unit].parent) {
        if (units[unit].state != UNIT_KEPT || !units[unit].keep_used ||
            child_is_kept(density, unit)) {
            break;
        }
        kept_release(density, unit);
        units[unit].keep_end_s = 0;
    }
}

/* To the end of the clock, unless its time is over. */
static void kept_turn(struct sl_density *density)
{
    uint32_t unit = oldest_of(density, HEAD_KEPT);
    if (kept_is_over(density, unit)) {
        kept_release(density, unit);
    } else {
        list_remove(density, unit);
        list_insert(density, HEAD_KEPT, unit);
    }
}

void sl_density_keep_look(struct sl_density *density, uint32_t count)
{
    for (uint64_t left = SL_MIN(density->kept_count, (uint64_t)count); left > 0; left--) {
        kept_turn(density);
    }
}

void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max)
{
    density->now_s = now_s;
    density->kept_pages_max = kept_pages_max;
}

bool sl_density_keeps(const struct sl_density *density)
{
    return density->kept_count > 0;
}

void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep)
{
    struct unit *units = density->units;
    if (keep->pages == 0 || keep->pages > REG_KEEP_PAGES_MAX ||
        !is_later(keep->end_s, density->now_s)) {
        return;
    }
    /* Those before it are kept at least as long, each since it came or since this was said: so the
     * first that is has only such before it. */
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++, unit = units[unit].parent) {
        struct unit *at = &units[unit];
        bool kept = at->state == UNIT_KEPT;
        bool covered = kept && !is_later(keep->end_s, at->keep_end_s);
        if ((!kept && (at->state != UNIT_HERE || !at->aged)) ||
            (covered && (keep->once || !at->keep_once))) {
            break;
        }
        if (covered) { /* for the next use, and now whoever uses it */
            at->keep_once = 0;
            continue;
        }
        at->keep_once = keep->once && (!kept || at->keep_once);
        at->keep_used = 0;
        if (!kept) {
            turn_remove(density, unit);
            at->keep_pages = keep->pages & REG_KEEP_PAGES_MAX;
            kept_enter(density, unit);
        }
        if (at->keep_end_s == 0 || is_later(keep->end_s, at->keep_end_s)) {
            at->keep_end_s = keep->end_s;
        }
    }
    while (density->kept_count > 0 && kept_is_too_much(density)) {
        kept_release_end(density);
    }
}

/* ---- uses ---- */

/* A unit is wanted: time goes on. A walk that was begun ends. */
static void reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = density->walk_next = 0;
    if (density->kept_count > 0) {
        density->kept_exposure += (double)density->kept_count;
        if (kept_is_too_much(density) && !kept_is_over(density, oldest_of(density, HEAD_KEPT))) {
            kept_release_end(density);
        } else {
            kept_turn(density);
        }
    }
    if (density->references % (UINT64_C(1) << sl_rates_shift(0)) == 0) {
        all_older(density);
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        settle(density);
        density->learnt = true;
    }
}

/* When its request stored the first of the blocks that are before it in its chain, or now. */
static uint32_t stored_at(const struct sl_density *density, const struct unit *at)
{
    const struct unit *parent = &density->units[at->parent];
    uint64_t within = SL_MAX(CHAIN_REFERENCES, density->unit_count / CHAIN_SHARE);
    bool with = parent->state == UNIT_HERE && parent->aged &&
                parent->class_index == at->class_index && parent->weight == at->weight &&
                age_references(density, parent) < within;
    return with ? parent->at : (uint32_t)density->references;
}

/* A unit for what comes to memory, in no list, and what its ghost knew; 0: no memory. */
static uint32_t unit_come(struct sl_density *density, uint64_t hash, uint32_t unit, uint32_t user)
{
    if (unit == 0) {
        unit = unit_new(density, hash);
        if (unit == 0) {
            return 0;
        }
    } else if (density->units[unit].state == UNIT_DISK) {
        density->disk_count--;
    } else {
        ghosts_remove(density, unit);
    }
    struct unit *at = &density->units[unit];
    if (at->aged) {
        cell_leave_used(density, unit);
    }
    at->counted = 0;
    at->use_count = SL_MAX(at->use_count, 1);
    at->weight = 1;
    at->state = UNIT_HERE;
    at->user = user;
    at->keep_pages = 0;
    at->keep_end_s = 0;
    density->unit_count++;
    return unit;
}

static uint8_t weight_of(const struct unit *at, enum reg_priority priority)
{
    return priority == REG_PRIORITY_NONE ? at->weight : (uint8_t)(priority - 1u);
}

uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted)
{
    uint32_t unit = unit_of(density, hash);
    if (in_memory(&density->units[unit])) { /* unit 0 is free */
        return 0;
    }
    reference(density);
    unit = unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    parent_find(density, unit, wanted->parent_hash);
    struct unit *at = &density->units[unit];
    at->class_index =
        (uint8_t)sl_rates_class(at->use_count, wanted->stored_count, wanted->cut, wanted->hint);
    at->weight = weight_of(at, wanted->priority) & 3u;
    at->at = stored_at(density, at);
    cell_join(density, unit);
    turn_enter(density, unit);
    ghosts_bound(density);
    return unit;
}

void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint)
{
    struct unit *at = &density->units[unit];
    SL_ASSERT(in_memory(at));
    if (!at->aged || at->counted) { /* it counts when all are restored; the use that it came for */
        at->counted = 0;
        return;
    }
    reference(density);
    density->kept_wanted += at->state == UNIT_KEPT ? 1.0 : 0.0;
    turn_remove(density, unit);
    cell_leave_used(density, unit);
    hint = hint != REG_HINT_NONE ? hint : (enum reg_hint)(at->class_index / SL_DENSITY_KINDS);
    at->class_index = (uint8_t)sl_rates_class(at->use_count, 1, false, hint);
    uint32_t parent = at->parent;
    if (parent != 0) {
        parent_leave(density, unit);
        parent_join(density, unit, parent);
    }
    at->at = (uint32_t)density->references;
    kept_used(density, unit);
    cell_join(density, unit);
    turn_enter(density, unit);
}

void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority)
{
    struct unit *at = &density->units[unit];
    uint32_t said = at->class_index / SL_DENSITY_KINDS;
    uint32_t says = hint != REG_HINT_NONE ? (uint32_t)hint : said;
    if (!at->aged || at->state == UNIT_SUNK ||
        (says == said && weight_of(at, priority) == at->weight)) {
        return;
    }
    turn_remove(density, unit);
    cell_leave(density, unit);
    at->class_index = (uint8_t)(at->class_index % SL_DENSITY_KINDS + says * SL_DENSITY_KINDS);
    at->weight = weight_of(at, priority) & 3u;
    cell_join(density, unit);
    turn_enter(density, unit);
}

void sl_density_sink(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (at->aged && at->state != UNIT_SUNK) {
        turn_remove(density, unit);
        at->keep_pages = 0;
        at->state = UNIT_SUNK;
        list_insert(density, HEAD_SUNK, unit);
    }
}

void sl_density_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    SL_ASSERT(in_memory(at));
    if (at->state == UNIT_HERE && at->aged) {
        density->edge += (density->rates.value[cell_of(density, at)] - density->edge) / EDGE_UNITS;
    }
    turn_remove(density, unit);
    at->keep_pages = 0;
    parent_leave(density, unit);
    density->unit_count--;
    ghost_become(density, unit);
}

/* ---- the walk ---- */

/* What comes after a unit that will go, within the chains that go on from base: the end of its next
 * sibling's, or its parent. */
static uint32_t chain_before(const struct sl_density *density, uint32_t unit)
{
    const struct unit *units = density->units;
    bool last = units[units[unit].parent].child == unit;
    return last ? units[unit].parent : chain_end(density, units[unit].siblings.older);
}

/* In the chains that go on from base, the first that was not given; 0: none, or one stays. */
static uint32_t chain_rest(const struct sl_density *density, uint32_t base)
{
    uint32_t unit = chain_end(density, base);
    while (density->units[unit].walk == density->walk_number + 1) {
        if (unit == base) {
            return 0;
        }
        unit = chain_before(density, unit);
    }
    return density->units[unit].walk == density->walk_number ? 0 : unit;
}

static uint32_t walk_to(struct sl_density *density, uint32_t base)
{
    for (; base != 0; base = density->walk_next) {
        uint32_t unit = chain_rest(density, base);
        density->walk_next = turn_after(density, base);
        if (unit != 0) {
            density->walk_base = base;
            density->walk_given = unit;
            density->units[unit].walk = density->walk_number;
            __builtin_prefetch(&density->units[density->units[density->walk_next].in.newer], 1);
            return unit;
        }
    }
    density->walk_base = 0;
    return 0;
}

uint32_t sl_density_first(struct sl_density *density)
{
    uint32_t sunk = oldest_of(density, HEAD_SUNK);
    density->walk_number += 2;
    return walk_to(density, sunk != 0 ? sunk : oldest_from(density, 0));
}

uint32_t sl_density_next(struct sl_density *density, bool goes)
{
    uint32_t base = density->walk_base;
    struct unit *given = &density->units[density->walk_given];
    if (base == 0) {
        return 0;
    }
    bool left = !in_memory(given);
    if (!left && goes) {
        given->walk = density->walk_number + 1;
    }
    bool stay = (left || goes) && in_memory(&density->units[base]);
    return walk_to(density, stay ? base : density->walk_next);
}

void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count)
{
    uint32_t unit = density->walk_given, base = density->walk_next;
    for (uint32_t i = 0; i < count; i++) {
        unit = density->units[unit].parent;
        if (!in_memory(&density->units[unit])) { /* the chain is at its end */
            unit = base;
            base = unit != 0 ? turn_after(density, unit) : 0;
        }
        users[i] = density->units[unit].user;
    }
}

/* ---- on disk alone ----
 *
 * Ghosts that nobody forgets: they are in no list. */

static void note_take(struct unit *at, const struct sl_density_note *note)
{
    at->at = note->at;
    at->use_count = (uint8_t)SL_MAX(note->use_count, 1);
    at->class_index = note->class_index < SL_DENSITY_CLASSES ? note->class_index : 0;
}

void sl_density_disk_enter(struct sl_density *density, uint64_t hash,
                           const struct sl_density_note *note)
{
    uint32_t unit = unit_of(density, hash);
    if (unit == 0) {
        unit = unit_new(density, hash);
        if (unit == 0) {
            return; /* no memory: nothing is known of it */
        }
    } else if (density->units[unit].state == UNIT_GHOST) {
        ghosts_remove(density, unit);
    } else {
        return; /* another record has this hash */
    }
    struct unit *at = &density->units[unit];
    bool aged = at->aged || (at->use_count == 0 && note == NULL);
    cell_leave(density, unit);
    at->state = UNIT_DISK;
    density->disk_count++;
    if (at->use_count == 0) { /* without a note, that it was stored once is all that is known */
        const struct sl_density_note once = {.at = (uint32_t)density->references};
        note_take(at, note != NULL ? note : &once);
    }
    if (aged) {
        cell_join(density, unit);
    }
}

void sl_density_disk_leave(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = unit_of(density, hash);
    struct unit *at = &density->units[unit];
    if (unit == 0 || at->state != UNIT_DISK) {
        return;
    }
    bool aged = at->aged;
    cell_leave(density, unit);
    at->state = UNIT_GHOST;
    density->disk_count--;
    if (aged) {
        cell_join(density, unit);
    }
    ghost_become(density, unit);
}

uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted)
{
    uint32_t unit = unit_of(density, hash);
    struct unit *at = &density->units[unit];
    if (at->state != UNIT_GHOST || !at->aged || wanted) {
        unit = sl_density_enter(density, hash, user, how);
        density->units[unit].counted = unit != 0 && wanted;
        return unit;
    }
    ghosts_remove(density, unit);
    density->unit_count++;
    at->user = user;
    at->keep_pages = 0;
    at->keep_end_s = 0;
    at->state = UNIT_HERE;
    parent_find(density, unit, how->parent_hash);
    turn_enter(density, unit);
    ghosts_bound(density);
    return unit;
}

double sl_density_value(const struct sl_density *density, uint64_t hash)
{
    const struct unit *at = &density->units[unit_of(density, hash)];
    return at->use_count == 0 ? 0.0 : density->rates.value[cell_of(density, at)];
}

uint32_t sl_density_uses(const struct sl_density *density, uint64_t hash)
{
    return density->units[unit_of(density, hash)].use_count;
}

double sl_density_disk_cut(const struct sl_density *density, double share)
{
    double left = share * (double)density->disk_count;
    for (uint32_t place = density->order_count; place-- > 0;) {
        uint32_t list = density->order[place];
        uint32_t cell = list / SL_DENSITY_PRIORITIES;
        left -= list % SL_DENSITY_PRIORITIES == 1 ? (double)density->on_disk[cell] : 0;
        if (left < 0) {
            return density->rates.value[cell];
        }
    }
    return 0.0;
}

double sl_density_likely(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = unit_of(density, hash);
    if (!density->learnt) {
        return 1.0;
    }
    return density->units[unit].use_count == 0 ? 0.0
                                               : sl_density_chance(density, unit, density->horizon);
}

void sl_density_horizon(struct sl_density *density, uint64_t references)
{
    density->horizon = references;
}

/* ---- restart ---- */

void sl_density_note(const struct sl_density *density, uint32_t unit, struct sl_density_note *out)
{
    const struct unit *at = &density->units[unit];
    *out = (struct sl_density_note){
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
        .priority = (enum reg_priority)(at->weight + 1u),
        .keep = {.end_s = at->keep_end_s, .pages = at->keep_pages, .once = at->keep_once},
    };
}

uint32_t sl_density_restore(struct sl_density *density, uint64_t hash, uint32_t user,
                            uint64_t parent_hash, const struct sl_density_note *note)
{
    uint32_t unit = unit_of(density, hash);
    if (in_memory(&density->units[unit])) {
        return 0;
    }
    unit = unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    parent_find(density, unit, parent_hash);
    struct unit *at = &density->units[unit];
    note_take(at, note);
    if (note->priority > REG_PRIORITY_NONE && note->priority < REG_PRIORITY_COUNT) {
        at->weight = weight_of(at, note->priority) & 3u;
    }
    at->keep_end_s = note->keep.end_s;
    at->keep_pages = note->keep.pages & REG_KEEP_PAGES_MAX;
    return unit;
}

static int restored_compare(const void *left, const void *right, void *context)
{
    const struct sl_density *density = context;
    uint64_t a = age_references(density, &density->units[*(const uint32_t *)left]);
    uint64_t b = age_references(density, &density->units[*(const uint32_t *)right]);
    return a > b ? -1 : a < b;
}

static void restored_enter(struct sl_density *density, uint32_t unit)
{
    cell_join(density, unit);
    if (in_memory(&density->units[unit])) {
        turn_enter(density, unit);
    }
}

void sl_density_restored(struct sl_density *density)
{
    uint32_t *sorted = malloc(density->high * sizeof(*sorted));
    uint32_t count = 0;
    exposure_complete(density);
    for (uint32_t unit = UNIT_FIRST; unit < density->high; unit++) {
        const struct unit *at = &density->units[unit];
        if (!at->aged &&
            at->use_count > 0) { /* the clock goes on from the last use that was noted */
            uint32_t ahead = at->at - (uint32_t)density->references;
            density->references += ahead < CLOCK_AHEAD_MAX ? ahead : 0;
        }
    }
    density->counted_at = density->references;
    for (uint32_t unit = UNIT_FIRST; unit < density->high; unit++) {
        if (density->units[unit].aged || density->units[unit].use_count == 0) {
            continue;
        }
        if (sorted != NULL) {
            sorted[count++] = unit;
        } else { /* no memory: in any order */
            restored_enter(density, unit);
        }
    }
    if (sorted != NULL) {
        qsort_r(sorted, count, sizeof(*sorted), restored_compare, density);
    }
    for (uint32_t i = 0; i < count; i++) {
        restored_enter(density, sorted[i]);
    }
    free(sorted);
    ghosts_bound(density);
    if (density->learnt) {
        settle(density);
    }
}

bool sl_density_gone_due(const struct sl_density *density)
{
    return density->gone_count == SL_DENSITY_GONE_LOT;
}

uint32_t sl_density_gone(struct sl_density *density, struct sl_density_ghost *out)
{
    if (!sl_density_gone_due(density)) {
        return 0;
    }
    memcpy(out, density->gone, sizeof(density->gone));
    density->gone_count = 0;
    return SL_DENSITY_GONE_LOT;
}

uint64_t sl_density_gone_lots(const struct sl_density *density)
{
    uint64_t units = density->unit_count;
    uint64_t of_few = SL_MIN(units * GONE_OF_FEW, density->set.ghosts_min);
    return SL_MAX(SL_MAX(units, of_few) / SL_DENSITY_GONE_LOT, units > 0);
}

void sl_density_ghosts_restore(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    for (uint32_t i = length_bytes / sizeof(struct sl_density_ghost); i-- > 0;) {
        struct sl_density_ghost ghost;
        memcpy(&ghost, (const unsigned char *)bytes + i * sizeof(ghost), sizeof(ghost));
        uint32_t unit = unit_of(density, ghost.hash);
        if (unit == 0) {
            unit = unit_new(density, ghost.hash);
        } else if (density->units[unit].state == UNIT_GHOST &&
                   density->units[unit].use_count == 0) {
            ghosts_remove(density, unit);
        } else {
            unit = 0; /* more is known */
        }
        if (unit != 0) { /* before all that left later, which were told before */
            const struct sl_density_note note = {
                .at = ghost.at, .class_index = ghost.class_index, .use_count = ghost.use_count};
            note_take(&density->units[unit], &note);
            ghosts_append(density, unit);
            list_remove(density, unit);
            list_insert(density, density->units[HEAD_GHOSTS].in.newer, unit);
        }
    }
}

struct learnt {
    uint64_t references;
    uint32_t cell_count, age_count;
    float exposure[SL_DENSITY_CELLS], wanted[SL_DENSITY_CELLS];
};
static_assert(sizeof(struct learnt) == SL_DENSITY_LEARNT_BYTES, "what is learnt has no gaps");

uint32_t sl_density_learnt(const struct sl_density *density, void *out)
{
    struct learnt *learnt = out;
    learnt->references = density->references;
    learnt->cell_count = SL_DENSITY_CELLS;
    learnt->age_count = SL_DENSITY_AGES;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        learnt->exposure[cell] = (float)fmax(exposure_of(density, cell), 0.0);
        learnt->wanted[cell] = (float)density->rates.wanted[cell];
    }
    return sizeof(*learnt);
}

bool sl_density_learn(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    struct learnt learnt;
    if (length_bytes != sizeof(learnt)) {
        return false;
    }
    memcpy(&learnt, bytes, sizeof(learnt));
    bool fine = learnt.cell_count == SL_DENSITY_CELLS && learnt.age_count == SL_DENSITY_AGES;
    for (uint32_t cell = 0; fine && cell < SL_DENSITY_CELLS; cell++) {
        fine = learnt.exposure[cell] >= 0 && learnt.exposure[cell] < LEARNT_MAX &&
               learnt.wanted[cell] >= 0 && learnt.wanted[cell] < LEARNT_MAX;
    }
    if (!fine) {
        return false;
    }
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->rates.exposure[cell] = (double)learnt.exposure[cell];
        density->rates.wanted[cell] = (double)learnt.wanted[cell];
    }
    density->references = density->counted_at = density->halved_at = learnt.references;
    density->settle_at = density->references + SETTLE_REFERENCES;
    settle(density);
    density->learnt = true;
    return true;
}

/* ---- the whole ---- */

sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out)
{
    struct sl_density *density = calloc(1, sizeof(*density));
    if (density == NULL || units_grow(density) != SL_OK) {
        free(density);
        return SL_ERR_NO_MEMORY;
    }
    density->set = *options;
    density->settle_at = SETTLE_REFERENCES;
    density->high = UNIT_FIRST;
    for (uint32_t unit = 0; unit < UNIT_FIRST; unit++) { /* none, and the heads */
        density->units[unit] = (struct unit){.in = {unit, unit}};
    }
    settle(density);
    *out = density;
    return SL_OK;
}

void sl_density_destroy(struct sl_density **density)
{
    if (*density != NULL) {
        free((*density)->units);
        free((*density)->table);
        free(*density);
        *density = NULL;
    }
}

uint32_t sl_density_user(const struct sl_density *density, uint32_t unit)
{
    return density->units[unit].user;
}

uint64_t sl_density_hash(const struct sl_density *density, uint32_t unit)
{
    return density->units[unit].hash;
}

void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user)
{
    density->units[unit].user = user;
}

bool sl_density_is(const struct sl_density *density, uint32_t unit, uint32_t user)
{
    return unit < density->high && density->units[unit].user == user &&
           in_memory(&density->units[unit]);
}

uint32_t sl_density_find(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = unit_of(density, hash);
    return in_memory(&density->units[unit]) ? unit : 0;
}

uint64_t sl_density_references(const struct sl_density *density)
{
    return density->references;
}

void sl_density_view(const struct sl_density *density, uint32_t unit, struct sl_density_view *out)
{
    const struct unit *at = &density->units[unit];
    *out = (struct sl_density_view){.class_index = at->class_index,
                                    .age = age_of(density, at),
                                    .use_count = at->use_count,
                                    .age_references = age_references(density, at),
                                    .value = density->rates.value[cell_of(density, at)],
                                    .priority = (enum reg_priority)(at->weight + 1u),
                                    .kept = at->state == UNIT_KEPT,
                                    .learnt = density->learnt};
}

double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references)
{
    const struct unit *at = &density->units[unit];
    return sl_rates_chance(&density->rates, at->class_index, age_references(density, at),
                           within_references);
}

void sl_density_stats(const struct sl_density *density, struct sl_density_stats *out)
{
    *out = (struct sl_density_stats){.unit_count = density->unit_count,
                                     .ghost_count = density->ghost_count,
                                     .disk_count = density->disk_count,
                                     .reference_count = density->references,
                                     .kept_pages = density->kept_pages,
                                     .learnt = density->learnt};
}
