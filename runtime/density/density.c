/* runtime/density/density.c - units and ghosts: in lists by what they are worth, and in chains.
 *
 * A unit that is in memory stands in a list: that of its class, age and priority, or that of what goes
 * first, or that of what is kept. A ghost stands with all ghosts, in the order in which they left. Ages
 * nest: each takes a power of two of references, and when that is over the whole list goes behind that of
 * the next age. So no unit is touched for getting older, and its age follows from when it was used. */
#include "runtime/density/density_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNITS_FIRST 16384u
#define UNITS_MAX   (UINT32_C(1) << 29)
#define TABLE_SHARE 4u /* heads of the table for each unit: then few units share one */
#define USES_MAX    255u
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

/* ---- the table ---- */

static uint32_t *table_head(const struct sl_density *density, uint64_t hash)
{
    return &density->table[(hash ^ hash >> 32) & (density->capacity * TABLE_SHARE - 1)];
}

uint32_t sl_density_find(const struct sl_density *density, uint64_t hash)
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

uint32_t density_unit_new(struct sl_density *density, uint64_t hash)
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
            uint32_t oldest =
                density_oldest_of(density, HEAD_FIRST + density->order[word * 64 + found]);
            if (oldest != 0) {
                return oldest;
            }
            density->filled[word] &= ~(UINT64_C(1) << found);
        }
    }
    return density_oldest_of(density, HEAD_KEPT);
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
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; what is below UNIT_FIRST is a head */
    return oldest_from(density, next == HEAD_SUNK ? 0 : density->rank[next - HEAD_FIRST] + 1u);
}

/* ---- cells ---- */

/* An age ends where its length divides the references. */
static uint32_t age_of(const struct sl_density *density, const struct unit *at)
{
    uint64_t from = density->references - density_age_references(density, at);
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

uint32_t density_cell_of(const struct sl_density *density, const struct unit *at)
{
    return sl_rates_cell(at->class_index, age_of(density, at));
}

static void lists_order(struct sl_density *density);

void density_cell_join(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if ((density->seen >> at->class_index & 1u) == 0) {
        density->seen |= UINT64_C(1) << at->class_index;
        lists_order(density);
    }
    uint32_t cell = density_cell_of(density, at);
    at->aged = 1;
    density->known[cell]++;
    density->on_disk[cell] += at->state == UNIT_DISK;
    density->rates.exposure[cell] -= (double)(density->references - density->counted_at);
}

void density_cell_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (at->aged) {
        uint32_t cell = density_cell_of(density, at);
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
    density->rates.wanted[density_cell_of(density, at)] += 1.0;
    density_cell_leave(density, unit);
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
            density_oldest_of(density, HEAD_FIRST + lists[i]) != 0) {
            list_mark(density, lists[i]);
        }
    }
    density->order_count = count;
}

double density_exposure_of(const struct sl_density *density, uint32_t cell)
{
    return density->rates.exposure[cell] +
           (double)density->known[cell] * (double)(density->references - density->counted_at);
}

void density_exposure_complete(struct sl_density *density)
{
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->rates.exposure[cell] = density_exposure_of(density, cell);
    }
    density->counted_at = density->references;
}

void density_settle(struct sl_density *density)
{
    density_exposure_complete(density);
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

void density_ghosts_append(struct sl_density *density, uint32_t unit)
{
    density->units[unit].state = UNIT_GHOST;
    density_list_insert(density, HEAD_GHOSTS, unit);
    density->ghost_count++;
}

void density_ghosts_remove(struct sl_density *density, uint32_t unit)
{
    density_list_remove(density, unit);
    density->ghost_count--;
}

void density_ghosts_bound(struct sl_density *density)
{
    uint64_t want = density->unit_count * SL_DENSITY_GHOSTS_FACTOR;
    uint64_t most = SL_MIN(SL_MAX(want, density->set.ghosts_min), density->set.ghosts_max);
    while (density->ghost_count > most) {
        uint32_t unit = density_oldest_of(density, HEAD_GHOSTS);
        const struct unit *next = &density->units[density->units[unit].in.newer];
        __builtin_prefetch(&density->units[next->in.newer], 1); /* they go soon */
        __builtin_prefetch(table_head(density, next->hash), 1);
        while (density->units[unit].child != 0) {
            parent_leave(density, density->units[unit].child);
        }
        density_ghosts_remove(density, unit);
        density_cell_leave(density, unit);
        unit_free(density, unit);
    }
}

void density_ghost_become(struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    if (at->aged) {
        density->gone_count %= SL_DENSITY_GONE_LOT; /* nobody takes them */
        density->gone[density->gone_count++] =
            (struct sl_density_ghost){.hash = at->hash,
                                      .at = at->at,
                                      .class_index = at->class_index,
                                      .use_count = at->use_count};
    }
    density_ghosts_append(density, unit);
    density_ghosts_bound(density);
}

/* Chains come from either end: who names a parent that is not here keeps a place for it, among the
 * ghosts. */
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash)
{
    if (parent_hash == 0 || parent_hash == density->units[unit].hash) {
        return;
    }
    uint32_t parent = sl_density_find(density, parent_hash);
    if (parent == 0) {
        parent = density_unit_new(density, parent_hash);
        if (parent == 0) {
            return;
        }
        density_ghosts_append(density, parent);
    } else if (density->units[unit].child != 0 && is_before(density, unit, parent)) {
        return;
    }
    parent_join(density, unit, parent);
}

/* ---- uses ---- */

void density_turn_remove(struct sl_density *density, uint32_t unit)
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
    density_list_remove(density, unit);
}

/* To the list of its cell, which counts it. Blocks of a request stand from the end of their chain on. */
void density_turn_enter(struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    const struct unit *parent = &density->units[at->parent];
    if (at->keep_pages != 0) {
        density_kept_enter(density, unit);
        return;
    }
    uint32_t list = density_cell_of(density, at) * SL_DENSITY_PRIORITIES + at->weight;
    bool with = parent->state == UNIT_HERE && parent->aged && parent->at == at->at &&
                parent->class_index == at->class_index && parent->weight == at->weight;
    density_list_insert(density, with ? at->parent : HEAD_FIRST + list, unit);
    list_mark(density, list);
}

/* A unit is wanted: time goes on. A walk that was begun ends. */
static void reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = density->walk_next = 0;
    if (density->kept_count > 0) {
        density_kept_reference(density);
    }
    if (density->references % (UINT64_C(1) << sl_rates_shift(0)) == 0) {
        all_older(density);
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        density_settle(density);
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
                density_age_references(density, parent) < within;
    return with ? parent->at : (uint32_t)density->references;
}

uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t unit, uint32_t user)
{
    if (unit == 0) {
        unit = density_unit_new(density, hash);
        if (unit == 0) {
            return 0;
        }
    } else if (density->units[unit].state == UNIT_DISK) {
        density->disk_count--;
    } else {
        density_ghosts_remove(density, unit);
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

uint8_t density_weight_of(const struct unit *at, enum reg_priority priority)
{
    return priority == REG_PRIORITY_NONE ? at->weight : (uint8_t)(priority - 1u);
}

uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted)
{
    uint32_t unit = sl_density_find(density, hash);
    if (density_in_memory(&density->units[unit])) { /* unit 0 is free */
        return 0;
    }
    reference(density);
    unit = density_unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, wanted->parent_hash);
    struct unit *at = &density->units[unit];
    at->class_index =
        (uint8_t)sl_rates_class(at->use_count, wanted->stored_count, wanted->cut, wanted->hint);
    at->weight = density_weight_of(at, wanted->priority) & 3u;
    at->at = stored_at(density, at);
    density_cell_join(density, unit);
    density_turn_enter(density, unit);
    density_ghosts_bound(density);
    return unit;
}

void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint)
{
    struct unit *at = &density->units[unit];
    SL_ASSERT(density_in_memory(at));
    if (!at->aged || at->counted) { /* it counts when all are restored; the use that it came for */
        at->counted = 0;
        return;
    }
    reference(density);
    density->kept_wanted += at->state == UNIT_KEPT ? 1.0 : 0.0;
    density_turn_remove(density, unit);
    cell_leave_used(density, unit);
    hint = hint != REG_HINT_NONE ? hint : (enum reg_hint)(at->class_index / SL_DENSITY_KINDS);
    at->class_index = (uint8_t)sl_rates_class(at->use_count, 1, false, hint);
    uint32_t parent = at->parent;
    if (parent != 0) {
        parent_leave(density, unit);
        parent_join(density, unit, parent);
    }
    at->at = (uint32_t)density->references;
    density_kept_used(density, unit);
    density_cell_join(density, unit);
    density_turn_enter(density, unit);
}

void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority)
{
    struct unit *at = &density->units[unit];
    uint32_t said = at->class_index / SL_DENSITY_KINDS;
    uint32_t says = hint != REG_HINT_NONE ? (uint32_t)hint : said;
    if (!at->aged || at->state == UNIT_SUNK ||
        (says == said && density_weight_of(at, priority) == at->weight)) {
        return;
    }
    density_turn_remove(density, unit);
    density_cell_leave(density, unit);
    at->class_index = (uint8_t)(at->class_index % SL_DENSITY_KINDS + says * SL_DENSITY_KINDS);
    at->weight = density_weight_of(at, priority) & 3u;
    density_cell_join(density, unit);
    density_turn_enter(density, unit);
}

void sl_density_sink(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (at->aged && at->state != UNIT_SUNK) {
        density_turn_remove(density, unit);
        at->keep_pages = 0;
        at->state = UNIT_SUNK;
        density_list_insert(density, HEAD_SUNK, unit);
    }
}

void sl_density_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    SL_ASSERT(density_in_memory(at));
    if (at->state == UNIT_HERE && at->aged) {
        density->edge +=
            (density->rates.value[density_cell_of(density, at)] - density->edge) / EDGE_UNITS;
    }
    density_turn_remove(density, unit);
    at->keep_pages = 0;
    parent_leave(density, unit);
    density->unit_count--;
    density_ghost_become(density, unit);
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
    uint32_t sunk = density_oldest_of(density, HEAD_SUNK);
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
    bool left = !density_in_memory(given);
    if (!left && goes) {
        given->walk = density->walk_number + 1;
    }
    bool stay = (left || goes) && density_in_memory(&density->units[base]);
    return walk_to(density, stay ? base : density->walk_next);
}

void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count)
{
    uint32_t unit = density->walk_given, base = density->walk_next;
    for (uint32_t i = 0; i < count; i++) {
        unit = density->units[unit].parent;
        if (!density_in_memory(&density->units[unit])) { /* the chain is at its end */
            unit = base;
            base = unit != 0 ? turn_after(density, unit) : 0;
        }
        users[i] = density->units[unit].user;
    }
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
    density_settle(density);
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
           density_in_memory(&density->units[unit]);
}
