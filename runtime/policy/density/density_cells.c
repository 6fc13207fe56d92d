/* runtime/policy/density/density_cells.c - lists of units by value, and learning of the values.
 *
 * A unit in memory is in a list: that of its class, age and priority, that of units to evict first,
 * or that of retained ones. Ghosts are in one list, in the order in which they left. Ages nest:
 * each lasts a power of two of references, and then its whole list is appended to that of the next
 * age. So no unit is touched to make it older; its age follows from the time of its last use. */
#include "runtime/policy/density/density_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- rates ---- */

/* The prior of a cell is the rate of the previous one, with the weight of PRIOR_HITS hits. These
 * count at the higher of both rates once the cell has more than OWN_HITS. Otherwise the many empty
 * ages of a loop would outweigh the one that has all its hits. */
#define PRIOR_HITS 20.0
#define OWN_HITS   300.0
/* Values are rounded to steps per octave: the number of times that memory was filled, over
 * STEPS_FILLED. Of equal ones the older is evicted first. Otherwise a young cache, or changing
 * traffic, would be up to 0.9 points below LRU. */
#define STEPS_LEAST  1.0
#define STEPS_MOST   16.0
#define STEPS_FILLED 3.0
/* Initial estimate: one hit in this number of references. */
#define FIRST_EXPOSURE 1e5
/* Of horizons of equal worth, except for rounding, the longest is taken. */
#define ALIKE     (1.0 - 1e-9)
#define STEP_MOST 4000.0

#define FIRST_AGES  8u /* of equal length */
#define OCTAVE_AGES 4u

/* An age lasts 1 << shift references. */
static uint32_t age_shift(uint32_t age)
{
    return age < FIRST_AGES ? 5 : 4 + age / OCTAVE_AGES;
}

static uint32_t cell_at(uint32_t class_index, uint32_t age)
{
    return age * SL_DENSITY_CLASSES + class_index;
}

static double age_width(uint32_t age)
{
    return (double)(UINT64_C(1) << age_shift(age));
}

uint32_t sl_density_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint)
{
    uint32_t log2 = 31u - (uint32_t)__builtin_clz(stored_count | 1u);
    uint32_t kind = cut ? SL_DENSITY_CUT : SL_MIN(log2, SL_DENSITY_STORED_CLASSES - 1u);
    if (use_count >= 2) {
        kind = use_count >= 5   ? SL_DENSITY_MANY
               : use_count >= 3 ? SL_DENSITY_FEW
                                : SL_DENSITY_TWICE;
    }
    return kind + (uint32_t)hint * SL_DENSITY_KINDS;
}

const char *sl_density_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES])
{
    static const char *const kinds[SL_DENSITY_KINDS] = {
        "once, stored by itself",
        [SL_DENSITY_STORED_CLASSES - 1] = "once, one of 128 stored or more",
        [SL_DENSITY_TWICE] = "twice",
        [SL_DENSITY_FEW] = "3 or 4 times",
        [SL_DENSITY_MANY] = "5 times or more",
        [SL_DENSITY_CUT] = "once, the last of its request"};
    static const char *const said[REG_HINT_COUNT] = {"", ", of a session expected to end",
                                                     ", of a session expected to continue"};
    uint32_t kind = class_index % SL_DENSITY_KINDS;
    const char *hint = said[class_index / SL_DENSITY_KINDS % REG_HINT_COUNT];
    if (kinds[kind] != NULL) {
        (void)snprintf(out, SL_DENSITY_TEXT_BYTES, "wanted %s%s", kinds[kind], hint);
    } else {
        (void)snprintf(out, SL_DENSITY_TEXT_BYTES, "wanted once, one of %u to %u stored%s",
                       1u << kind, (2u << kind) - 1u, hint);
    }
    return out;
}

/* From the oldest age down: each horizon is extended as long as the next part is worth more than
 * the horizon so far. */
void sl_gittins(const double *rate, const double *width, uint32_t count, struct sl_worth *out)
{
    for (uint32_t age = count; age-- > 0;) {
        struct sl_worth at = {.hit = -expm1(-rate[age] * width[age]), .end = age + 1};
        at.time = at.hit / rate[age];
        at.stay = 1.0 - at.hit;
        while (at.end < count && out[at.end].hit * at.time > at.hit * out[at.end].time * ALIKE) {
            const struct sl_worth *next = &out[at.end];
            at.hit += at.stay * next->hit;
            at.time += at.stay * next->time;
            at.stay *= next->stay;
            at.end = next->end;
        }
        out[age] = at;
    }
}

/* ---- units ---- */

#define UNITS_FIRST 16384u
#define UNITS_MAX   (UINT32_C(1) << 29)
#define USES_MAX    255u
/* Observations are halved each time memory was filled this often, within these references. */
#define HALVE_FILLED UINT64_C(16)
#define HALVE_LEAST  UINT64_C(50000)
#define HALVE_MOST   UINT64_C(150000)
#define LEARNT_MAX   1e15f
uint32_t *density_table_head(const struct sl_density *density, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash ^ hash >> 32) & (density->round * 2 - 1);
    return &density->table[at < density->heads ? at : at - density->round];
}

uint32_t sl_density_find(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = *density_table_head(density, hash);
    while (unit != 0 && density->units[unit].hash != hash) {
        unit = density->units[unit].next;
    }
    return unit;
}

static void table_add(struct sl_density *density, uint32_t unit)
{
    uint32_t *head = density_table_head(density, density->units[unit].hash);
    density->units[unit].next = *head;
    *head = unit;
}

void sl_density_fetch(struct sl_density *density, uint64_t hash)
{
    uint64_t *before = &density->fetched[density->fetch_count++ % FETCH_AHEAD];
    __builtin_prefetch(&density->units[*density_table_head(density, *before)], 1);
    __builtin_prefetch(density_table_head(density, hash), 1);
    *before = hash;
}

/* Grows a mapping: its pages are moved, no bytes are copied. NULL: no memory. */
static void *pages_grow(void *old, size_t before, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = old == NULL ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0)
                           : mremap(old, before, bytes, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(at, bytes, MADV_HUGEPAGE); /* otherwise random accesses miss the TLB */
    return at;
}

/* Nothing is copied or hashed again: no single unit pays for all others. */
sl_err density_units_grow(struct sl_density *density)
{
    size_t before = density->capacity;
    size_t after = SL_MAX(before * 2, (size_t)UNITS_FIRST);
    const size_t bytes = sizeof(struct unit), heads = DENSITY_HEADS_BYTES;
    struct unit *units = NULL;
    uint32_t *table = NULL;
    if (after <= UNITS_MAX) {
        units = pages_grow(density->units, before * bytes, after * bytes);
    }
    if (units != NULL) {
        density->units = units;
        table = pages_grow(density->table, before * heads, after * heads);
    }
    if (table == NULL) {
        if (units != NULL) { /* back to the size that capacity says */
            (void)munmap(&units[before], (after - before) * bytes);
        }
        return SL_ERR_NO_MEMORY;
    }
    density->table = table;
    density->capacity = (uint32_t)after;
    return SL_OK;
}

/* Adds one head; its units come from one other head. */
static void table_split(struct sl_density *density)
{
    uint32_t *from = &density->table[density->heads - density->round];
    uint32_t unit = *from;
    density->heads++;
    density->round *= density->heads == density->round * 2 ? 2 : 1;
    *from = 0;
    while (unit != 0) {
        uint32_t next = density->units[unit].next;
        table_add(density, unit);
        unit = next;
    }
}

void sl_density_expect(struct sl_density *density, uint64_t count)
{
    while (density->capacity - density->high < count && density_units_grow(density) == SL_OK) {
    }
    uint64_t heads = SL_MIN(density->high + count, (uint64_t)density->capacity) * DENSITY_HEADS;
    while (density->heads < heads) {
        table_split(density);
    }
}

uint32_t density_unit_new(struct sl_density *density, uint64_t hash) /* 0: no memory */
{
    uint32_t unit = density->vacant;
    if (unit != 0) {
        density->vacant = density->units[unit].next;
    } else if (density->high < density->capacity || density_units_grow(density) == SL_OK) {
        unit = density->high++;
        while (density->heads < density->high * DENSITY_HEADS) {
            table_split(density);
        }
    } else {
        return 0;
    }
    density->units[unit] = (struct unit){.hash = hash, .in = {unit, unit}, .weight = 1};
    table_add(density, unit);
    return unit;
}

void density_unit_free(struct sl_density *density, uint32_t unit)
{
    uint32_t *link = density_table_head(density, density->units[unit].hash);
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

/* Appends all units of one list, which are older, to the young end of the other. */
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

uint32_t density_oldest_from(struct sl_density *density, uint32_t rank)
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
    return density_oldest_of(density, HEAD_OF(UNIT_KEPT));
}

uint32_t density_evict_after(struct sl_density *density, uint32_t unit)
{
    uint32_t next = density->units[unit].in.newer;
    if (next >= UNIT_FIRST || next == HEAD_OF(UNIT_KEPT)) {
        return next >= UNIT_FIRST ? next : 0;
    }
    return density_oldest_from(
        /* cppcheck-suppress arrayIndexOutOfBoundsCond ; a number below UNIT_FIRST is a head */
        density, next == HEAD_OF(UNIT_EVICT_FIRST) ? 0 : density->rank[next - HEAD_FIRST] + 1u);
}

/* ---- cells ---- */

/* An age ends when its length divides the number of references. */
static uint32_t age_of(const struct sl_density *density, const struct unit *at)
{
    uint64_t from = density->references - density_age_references(density, at);
    uint32_t count = FIRST_AGES;
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age += count, count = OCTAVE_AGES) {
        uint32_t shift = age_shift(age);
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
    return cell_at(at->class_index, age_of(density, at));
}

static void cell_older(struct sl_density *density, uint32_t cell)
{
    uint32_t older = cell + SL_DENSITY_CLASSES;
    double since =
        (double)density->known[cell] * (double)(density->references - density->counted_at);
    density->exposure[cell] += since;
    density->exposure[older] -= since;
    density->known[older] += density->known[cell];
    density->on_disk[older] += density->on_disk[cell];
    density->known[cell] = density->on_disk[cell] = 0;
    for (uint32_t weight = 0; weight < WEIGHTS; weight++) {
        list_move(density, cell * WEIGHTS + weight, older * WEIGHTS + weight);
    }
}

/* From the oldest age down, so that a unit moves once. */
static void age_all(struct sl_density *density)
{
    for (uint32_t age = SL_DENSITY_AGES - 1; age-- > 0;) {
        bool ends = density->references % (UINT64_C(1) << age_shift(age)) == 0;
        for (uint64_t seen = ends ? density->seen : 0; seen != 0; seen &= seen - 1) {
            uint32_t cell = cell_at((uint32_t)__builtin_ctzll(seen), age);
            if (density->known[cell] != 0) {
                cell_older(density, cell);
            }
        }
    }
}

#define BUCKETS 1024
/* Sorts the lists of all seen classes by value. A hit of low priority is worth half, one of high
 * priority double. Of equal lists the older is evicted first, as in LRU. */
static void lists_order(struct sl_density *density)
{
    int octave = (int)rint(density->steps);
    uint16_t lists[LISTS], buckets[LISTS];
    uint32_t places[BUCKETS + 1] = {0};
    uint32_t count = 0;
    for (uint32_t age = SL_DENSITY_AGES; age-- > 0;) {
        for (uint64_t seen = density->seen; seen != 0; seen &= seen - 1) {
            uint32_t cell = cell_at((uint32_t)__builtin_ctzll(seen), age);
            for (int weight = 0; weight < (int)WEIGHTS; weight++, count++) {
                int step = density->step[cell] + (weight - 2) * octave + BUCKETS - 1;
                lists[count] = (uint16_t)(cell * WEIGHTS + (uint32_t)weight);
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
        if (density->known[lists[i] / WEIGHTS] != 0) {
            list_mark(density, lists[i]);
        }
    }
}

static double value_of(const struct sl_density *density, uint32_t cell)
{
    return exp2(density->step[cell] / density->steps);
}

static double exposure_of(const struct sl_density *density, uint32_t cell)
{
    return density->exposure[cell] +
           (double)density->known[cell] * (double)(density->references - density->counted_at);
}

/* Computes the values of a class. The prior of an age is the age before it: with the overall mean,
 * units older than any that was seen would look better than those known to be bad. Then each rate
 * is smoothed with its neighbours. */
static void class_update_values(struct sl_density *density, uint32_t class_index, double like)
{
    double raw[SL_DENSITY_AGES], rate[SL_DENSITY_AGES], width[SL_DENSITY_AGES];
    struct sl_worth worths[SL_DENSITY_AGES] = {0};
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        uint32_t cell = cell_at(class_index, age);
        double wanted = density->wanted[cell], exposure = fmax(density->exposure[cell], wanted);
        double lean = PRIOR_HITS / fmax(like, (wanted - OWN_HITS) / (exposure + 1.0));
        like = (wanted + lean * like) / (exposure + lean);
        raw[age] = like;
        width[age] = age_width(age);
    }
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        double younger = raw[age > 0 ? age - 1 : age];
        double older = raw[age + 1 < SL_DENSITY_AGES ? age + 1 : age];
        rate[age] = (younger + 2.0 * raw[age] + older) / 4.0;
    }
    sl_gittins(rate, width, SL_DENSITY_AGES, worths);
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        uint32_t cell = cell_at(class_index, age);
        double step = rint(log2(worths[age].hit / worths[age].time) * density->steps);
        density->rate[cell] = rate[age];
        density->step[cell] = (int16_t)fmax(step, -STEP_MOST);
    }
}

/* Computes all values from the observations. */
void density_update_values(struct sl_density *density)
{
    double wanted = 1.0, exposure = FIRST_EXPOSURE;
    uint64_t units = SL_MAX(density_memory_count(density), UINT64_C(1));
    uint64_t after = SL_MIN(SL_MAX(HALVE_FILLED * units, HALVE_LEAST), HALVE_MOST);
    bool old = density->references >= density->halved_at + after;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->exposure[cell] = exposure_of(density, cell) / (old ? 2.0 : 1.0);
        density->wanted[cell] /= old ? 2.0 : 1.0;
        exposure += density->exposure[cell];
        wanted += density->wanted[cell];
    }
    density->counted_at = density->references;
    density->halved_at = old ? density->references : density->halved_at;
    density->steps = (double)density->references / (double)units / STEPS_FILLED;
    density->steps = fmin(fmax(density->steps, STEPS_LEAST), STEPS_MOST);
    for (uint64_t seen = density->seen; seen != 0; seen &= seen - 1) {
        class_update_values(density, (uint32_t)__builtin_ctzll(seen), fmin(wanted / exposure, 1.0));
    }
    lists_order(density);
}

void density_age(struct sl_density *density)
{
    if (density->references % (UINT64_C(1) << age_shift(0)) == 0) {
        age_all(density);
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        density_update_values(density);
        density->learnt = true;
    }
}

/* Adds the unit to its cell, or removes it. */
static void cell_count(struct sl_density *density, struct unit *at, uint32_t cell, bool join)
{
    uint32_t one = join ? 1 : UINT32_MAX;
    double since = (double)(density->references - density->counted_at);
    density->known[cell] += one;
    density->on_disk[cell] += at->state == UNIT_DISK ? one : 0;
    density->exposure[cell] -= join ? since : -since;
    at->aged = join;
}

void density_cell_leave(struct sl_density *density, uint32_t unit, bool used)
{
    struct unit *at = &density->units[unit];
    if (at->aged) {
        uint32_t cell = cell_of(density, at);
        density->wanted[cell] += used ? 1.0 : 0.0;
        at->use_count = (uint8_t)SL_MIN(at->use_count + (used ? 1u : 0u), USES_MAX);
        cell_count(density, at, cell, false);
    }
}

void density_unit_take(struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    if (density->walk_next == unit) {
        density->walk_next = density_evict_after(density, unit);
    }
    density->kept_pages -= at->state == UNIT_KEPT ? at->keep_pages : 0;
    density->count[at->state]--;
    density_list_remove(density, unit);
}

void density_unit_put(struct sl_density *density, uint32_t unit, enum unit_state state, bool aged)
{
    struct unit *at = &density->units[unit];
    uint64_t class_bit = UINT64_C(1) << at->class_index;
    state = state == UNIT_HERE && aged && at->keep_pages != 0 ? UNIT_KEPT : state;
    at->state = (uint8_t)state & 15u;
    density->count[state]++;
    density->kept_pages += state == UNIT_KEPT ? at->keep_pages : 0;
    if (state != UNIT_HERE && state != UNIT_DISK) {
        density_list_insert(density, HEAD_OF(state), unit);
    }
    if (!aged || (at->aged && state != UNIT_HERE)) {
        return;
    }
    if ((density->seen & class_bit) == 0) {
        density->seen |= class_bit;
        density_update_values(density);
    }
    uint32_t cell = cell_of(density, at);
    if (!at->aged) {
        cell_count(density, at, cell, true);
    }
    if (state == UNIT_HERE) {
        uint32_t head = HEAD_FIRST + cell * WEIGHTS + at->weight;
        bool with = density_same_list(at, &density->units[at->parent]) &&
                    density->units[at->parent].at == at->at;
        density_list_insert(density, with ? at->parent : head, unit);
        list_mark(density, cell * WEIGHTS + at->weight);
    }
}

/* ---- results ---- */

double sl_density_value(const struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    return at->use_count > 0 ? value_of(density, cell_of(density, at)) : 0.0;
}

double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references)
{
    const struct unit *at = &density->units[unit];
    double expected = 0.0, begin = 0.0, from = (double)density_age_references(density, at);
    double until = from + (double)within_references;
    if (!density->learnt || at->use_count == 0) {
        return density->learnt ? 0.0 : 1.0;
    }
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        double end = age + 1 < SL_DENSITY_AGES ? begin + age_width(age) : INFINITY;
        double inside = fmin(end, until) - fmax(begin, from);
        expected += density->rate[cell_at(at->class_index, age)] * fmax(inside, 0.0);
        begin = end;
    }
    return -expm1(-expected);
}

double sl_density_disk_cut(const struct sl_density *density, double share)
{
    double left = share * (double)density->count[UNIT_DISK];
    for (uint32_t rank = LISTS; rank-- > 0;) {
        uint32_t list = density->order[rank], class = list / WEIGHTS;
        left -= list % WEIGHTS == 1 ? (double)density->on_disk[class] : 0;
        if (left < 0) {
            return value_of(density, class);
        }
    }
    return 0.0;
}

struct learnt {
    uint64_t references;
    uint32_t cell_count, age_count;
    float exposure[SL_DENSITY_CELLS], wanted[SL_DENSITY_CELLS];
};
static_assert(sizeof(struct learnt) == SL_DENSITY_SAVED_BYTES, "what is learnt has no gaps");

uint32_t sl_density_save(const struct sl_density *density, void *out)
{
    struct learnt *learnt = out;
    learnt->references = density->references;
    learnt->cell_count = SL_DENSITY_CELLS;
    learnt->age_count = SL_DENSITY_AGES;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        learnt->exposure[cell] = (float)fmax(exposure_of(density, cell), 0.0);
        learnt->wanted[cell] = (float)density->wanted[cell];
    }
    return sizeof(*learnt);
}

bool sl_density_load(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    struct learnt learnt;
    if (length_bytes != sizeof(learnt)) {
        return false;
    }
    memcpy(&learnt, bytes, sizeof(learnt));
    bool fine = learnt.cell_count == SL_DENSITY_CELLS && learnt.age_count == SL_DENSITY_AGES;
    for (uint32_t i = 0; i < SL_DENSITY_CELLS; i++) {
        fine = fine && learnt.exposure[i] >= 0 && learnt.exposure[i] < LEARNT_MAX &&
               learnt.wanted[i] >= 0 && learnt.wanted[i] < LEARNT_MAX;
    }
    for (uint32_t i = 0; fine && i < SL_DENSITY_CELLS; i++) {
        density->exposure[i] = (double)learnt.exposure[i];
        density->wanted[i] = (double)learnt.wanted[i];
    }
    if (!fine) {
        return false;
    }
    density->references = density->counted_at = density->halved_at = learnt.references;
    density->settle_at = density->references + SETTLE_REFERENCES;
    density_update_values(density);
    density->learnt = true;
    return true;
}
