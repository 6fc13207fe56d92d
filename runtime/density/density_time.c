/* runtime/density/density_time.c - units get older, and values are computed anew.
 *
 * Each unit gets older some twenty times while it is known, so what that costs is most of what a
 * reference costs: those of a row that are due move as one, and only rows that have units are
 * looked at. */
#include "runtime/density/density_internal.h"

#include <math.h>
#include <string.h>

/* An age's rows are looked at so often while it lasts. */
#define AGE_LOOKS 8u

/* Units that move from one row by turn to another as they stand there: from its old end on. */
struct moving {
    uint32_t first, last; /* 0: none yet */
    uint32_t next;        /* the one in the row that would go on with them */
};

static void moving_end(struct sl_density *density, struct moving *moving, struct row *from,
                       struct row *to)
{
    struct pair *turns = density->turns;
    if (moving->first == 0) {
        return;
    }
    uint32_t rest = turns[moving->last].newer;
    from->oldest = rest;
    if (rest != 0) {
        turns[rest].older = 0;
    } else {
        from->newest = 0;
    }
    turns[moving->first].older = to->newest;
    turns[moving->last].newer = 0;
    if (to->newest != 0) {
        turns[to->newest].newer = moving->first;
    } else {
        to->oldest = moving->first;
    }
    to->newest = moving->last;
    *moving = (struct moving){0};
}

/* It stands elsewhere in its row than those before it. */
static void moving_alone(struct sl_density *density, struct moving *moving, struct row *from,
                         uint32_t unit)
{
    struct row *to = from + 1; /* the next age's is behind it */
    moving_end(density, moving, from, to);
    density_row_remove(density, from, unit);
    density_row_append(density, to, unit);
    moving->next = from->oldest;
}

/* What is by turn of those that get older. */
struct turning {
    struct moving moving; /* of one weight, as a rule that of all */
    uint32_t turn;
    bool begun; /* one moved, at least */
};

static void turning_end(struct sl_density *density, struct turning *turning)
{
    if (turning->begun) {
        struct row *from = &density->by_turn[turning->turn];
        moving_end(density, &turning->moving, from, from + 1);
        density_turn_mark(density, turning->turn);
        density_turn_mark(density, turning->turn + 1);
    }
}

static void turning_add(struct sl_density *density, struct turning *turning, uint32_t turn,
                        uint32_t unit)
{
    struct moving *moving = &turning->moving;
    struct row *from = &density->by_turn[turn];
    if (!turning->begun || turning->turn != turn) {
        turning_end(density, turning);
        *turning = (struct turning){.moving.next = from->oldest, .turn = turn, .begun = true};
    }
    if (moving->next != unit) {
        moving_alone(density, moving, from, unit);
        return;
    }
    moving->first = moving->first != 0 ? moving->first : unit;
    moving->last = unit;
    moving->next = density->turns[unit].newer;
}

/* Those from the old end of the row to `last` go to the next one; `rest` stays. */
static void row_move(struct sl_density *density, struct row *row, struct row *next, uint32_t last,
                     uint32_t rest)
{
    struct density_aged *ages = density->ages;
    ages[row->oldest].in.older = next->newest;
    ages[last].in.newer = 0;
    if (next->newest != 0) {
        ages[next->newest].in.newer = row->oldest;
    } else {
        next->oldest = row->oldest;
    }
    next->newest = last;
    row->oldest = rest;
    if (rest != 0) {
        ages[rest].in.older = 0;
    } else {
        row->newest = 0;
    }
}

/* Those at the old end of a row by age that are too old for it go to the next one. */
static void row_older(struct sl_density *density, uint32_t class_index, uint32_t age)
{
    struct density_aged *ages = density->ages;
    struct row *row = &density->by_age[age][class_index];
    uint32_t cell = sl_rates_cell(class_index, age);
    struct turning turning = {0};
    uint32_t now = (uint32_t)density->references;
    uint64_t end = density->rates.end[age];
    uint32_t unit = row->oldest;
    uint32_t last = 0;
    uint32_t count = 0;
    uint32_t disk_count = 0;
    while (unit != 0 && now - ages[unit].at >= end) {
        struct density_aged *at = &ages[unit];
        at->age++;
        count++;
        if (at->state == UNIT_HERE) {
            turning_add(density, &turning, at->weight * SL_DENSITY_CELLS + cell, unit);
        } else {
            disk_count += at->state == UNIT_DISK;
        }
        last = unit;
        unit = at->in.newer;
    }
    if (last == 0) {
        return;
    }
    row_move(density, row, &density->by_age[age + 1][class_index], last, unit);
    density->aged[age + 1] |= UINT64_C(1) << class_index;
    sl_rates_outlived(&density->rates, cell, count);
    density->on_disk[cell] -= disk_count;
    density->on_disk[cell + 1] += disk_count;
    turning_end(density, &turning);
}

static void age_older(struct sl_density *density, uint32_t age)
{
    for (uint64_t classes = density->aged[age]; classes != 0; classes &= classes - 1) {
        uint32_t class_index = (uint32_t)__builtin_ctzll(classes);
        row_older(density, class_index, age);
        if (density->by_age[age][class_index].oldest == 0) {
            density->aged[age] &= ~(UINT64_C(1) << class_index);
        }
    }
}

/* From the oldest age down, so that a unit moves once. */
static void all_older(struct sl_density *density)
{
    density->older_at = UINT64_MAX;
    for (uint32_t age = SL_DENSITY_AGES - 1; age-- > 0;) {
        if (density->references >= density->older_age_at[age]) {
            uint32_t start = density->rates.start;
            uint64_t width = age <= start ? density->rates.end[start]
                                          : density->rates.end[age] - density->rates.end[age - 1];
            age_older(density, age);
            density->older_age_at[age] = density->references + width / AGE_LOOKS;
        }
        density->older_at = SL_MIN(density->older_at, density->older_age_at[age]);
    }
}

static void turn_place(struct sl_density *density, uint32_t place, uint32_t turn)
{
    density->turn_order[place] = (uint16_t)turn;
    density->turn_rank[turn] = (uint16_t)place;
    if (density->by_turn[turn].oldest != 0) {
        density->filled[place / 64] |= UINT64_C(1) << (place % 64);
    }
}

/* The cells in their order, once for each weight, merged. Of equals the lighter goes first. */
static void turns_merge(struct sl_density *density)
{
    static const double weights[SL_DENSITY_PRIORITIES] = {0.5, 1.0, 2.0};
    const struct sl_rates *rates = &density->rates;
    uint32_t at[SL_DENSITY_PRIORITIES] = {0};
    for (uint32_t place = 0; place < SL_DENSITY_TURNS; place++) {
        uint32_t best = 0;
        double least = INFINITY; /* as of one whose cells are all placed */
        for (uint32_t weight = 0; weight < SL_DENSITY_PRIORITIES; weight++) {
            double value = at[weight] < SL_DENSITY_CELLS
                               ? rates->value[rates->order[at[weight]]] * weights[weight]
                               : INFINITY;
            if (value < least) {
                best = weight;
                least = value;
            }
        }
        turn_place(density, place, best * SL_DENSITY_CELLS + rates->order[at[best]++]);
    }
}

/* As long as no unit has a weight of its own, the turns are the cells of weight 1. */
void density_turns_all(struct sl_density *density)
{
    memset(density->filled, 0, sizeof(density->filled));
    if (density->weighted) {
        turns_merge(density);
        return;
    }
    for (uint32_t place = 0; place < SL_DENSITY_CELLS; place++) {
        turn_place(density, place, SL_DENSITY_CELLS + density->rates.order[place]);
    }
}

void density_settle(struct sl_density *density)
{
    sl_rates_scale(&density->rates, density->unit_count, density->references);
    sl_rates_settle(&density->rates);
    density_turns_all(density);
}

/* What is old counts half. */
static void halve(struct sl_density *density)
{
    uint64_t filled = HALVE_FILLED * density->unit_count;
    uint64_t after = SL_MIN(SL_MAX(filled, HALVE_LEAST), HALVE_MOST);
    if (density->references >= density->halved_at + after) {
        density->halved_at = density->references;
        sl_rates_halve(&density->rates);
        density->kept_exposure /= 2.0;
        density->kept_wanted /= 2.0;
    }
}

void density_reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = 0; /* a walk that was begun ends */
    density->walk_next = 0;
    density_kept_look(density);
    if (density->references >= density->older_at) {
        all_older(density);
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        halve(density);
        density_settle(density);
        density->learnt = true;
    }
}
