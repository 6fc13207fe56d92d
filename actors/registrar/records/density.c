/* actors/registrar/records/density.c - what earns least goes first (runtime/density/), as a policy.
 *
 * Units in memory are in the list by recency, too: it serves while nothing is learnt, holds those
 * that density had no memory for, and is the order of all other lists. What density knows of a
 * block stands in its record as well, for the next registrar. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"
#include "runtime/density/density_units.h"

#define NOTE_WANTED 0x57414e54u /* of a block on its way: how its request wants it */
#define NOTE_USED   0x55534544u /* of one that was in memory */
/* What was learnt is noted after so many references. */
#define LEARNT_REFERENCES UINT64_C(10000)

static bool is_hot(const struct registrar *self, const struct reg_order *list)
{
    return list == &self->units->hot;
}

static bool is_cold(const struct registrar *self, const struct reg_order *list)
{
    return list == &self->units->cold;
}

/* NULL: an object without a block, which has none. */
static struct sl_unit_note *note_of(struct registrar *self, const struct sl_entry *entry)
{
    return entry->kind == SL_RECORD_GROUP ? sl_index_unit_note(self->index, entry->ref) : NULL;
}

static void note_write(struct registrar *self, const struct sl_entry *entry, uint32_t unit)
{
    struct sl_unit_note *note = note_of(self, entry);
    struct reg_density_note now;
    if (note != NULL) {
        reg_density_note(self->units->density, unit, &now);
        note->at = now.at;
        note->class_index = now.class_index;
        note->use_count = now.use_count;
        note->state = NOTE_USED;
    }
}

/* The next registrar goes on from there. Without room in the index it learns anew. */
static void learnt_note(struct registrar *self)
{
    struct reg_density_stats stats;
    unsigned char bytes[REG_DENSITY_LEARNT_BYTES];
    sl_ref fresh = 0;
    reg_density_stats(self->units->density, &stats);
    if (stats.reference_count < self->units->learnt_at) {
        return;
    }
    self->units->learnt_at = stats.reference_count + LEARNT_REFERENCES;
    uint32_t length_bytes = reg_density_learnt(self->units->density, bytes);
    if (sl_index_blob_put(self->index, bytes, length_bytes, REG_BLOB_LEARNT, &fresh, NULL) ==
        SL_OK) {
        if (self->units->learnt_note != 0) {
            sl_index_set_kind(self->index, self->units->learnt_note, SL_RECORD_FREE);
        }
        self->units->learnt_note = fresh;
    }
}

/* What its record says of a unit, and of its hash. */
struct told {
    struct sl_entry entry;
    uint64_t hash;
    struct sl_unit_note note;
    struct reg_density_note was;
    const struct reg_density_note *restored; /* NULL: it is not of a time before a restart */
    struct reg_wanted wanted;
};

static void told_read(struct registrar *self, sl_ref unit, struct told *out)
{
    sl_index_read(self->index, unit, &out->entry);
    const struct sl_unit_note *note = note_of(self, &out->entry);
    out->hash = reg_hash(out->entry.key, out->entry.key_length);
    out->note = note != NULL ? *note : (struct sl_unit_note){0};
    out->was = (struct reg_density_note){
        .at = out->note.at, .class_index = out->note.class_index, .use_count = out->note.use_count};
    out->restored = self->units->restoring && out->note.state == NOTE_USED ? &out->was : NULL;
    out->wanted = (struct reg_wanted){
        .parent_hash = out->note.parent_hash,
        .stored_count = SL_MAX(out->note.stored_count, 1u),
        .cut = out->note.cut != 0,
        .hint = out->note.hint < REG_HINT_COUNT ? (enum reg_hint)out->note.hint : REG_HINT_NONE};
}

static void unit_entered(struct registrar *self, const struct told *told, uint32_t number)
{
    if (number != 0) {
        note_write(self, &told->entry, number);
        learnt_note(self);
    }
}

static void density_placed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct reg_density *density = self->units->density;
    struct told told;
    reg_order_append(self, list, unit);
    if (!is_hot(self, list) && !is_cold(self, list)) {
        return;
    }
    told_read(self, unit, &told);
    if (is_cold(self, list)) {
        reg_density_disk_enter(density, told.hash, told.restored);
    } else if (reg_density_find(density, told.hash) == 0) { /* else another record has this hash */
        uint32_t number = told.restored != NULL
                              ? reg_density_restore(density, told.hash, unit, told.note.parent_hash,
                                                    told.restored)
                              : reg_density_enter(density, told.hash, unit, &told.wanted);
        unit_entered(self, &told, number);
    }
}

static void density_returned(struct registrar *self, struct reg_order *list, sl_ref unit,
                             bool wanted)
{
    struct told told;
    reg_order_append(self, list, unit);
    told_read(self, unit, &told);
    if (is_hot(self, list) && reg_density_find(self->units->density, told.hash) == 0) {
        unit_entered(
            self, &told,
            reg_density_return(self->units->density, told.hash, unit, &told.wanted, wanted));
    }
}

static uint32_t unit_number(struct registrar *self, sl_ref unit, struct sl_entry *entry)
{
    sl_index_read(self->index, unit, entry);
    return reg_density_find(self->units->density, reg_hash(entry->key, entry->key_length));
}

/* Its number, when it is this record's. */
static uint32_t own_number(struct registrar *self, sl_ref unit, struct sl_entry *entry)
{
    uint32_t number = unit_number(self, unit, entry);
    bool own = number != 0 && reg_density_user(self->units->density, number) == unit;
    return own ? number : 0;
}

static void density_removed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_entry entry;
    uint32_t number = is_hot(self, list) ? own_number(self, unit, &entry) : 0;
    reg_order_remove(self, list, unit);
    if (number != 0) {
        reg_density_leave(self->units->density, number);
    } else if (is_cold(self, list)) {
        sl_index_read(self->index, unit, &entry);
        reg_density_disk_leave(self->units->density, reg_hash(entry.key, entry.key_length));
    }
}

static void density_touched(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_entry entry;
    reg_order_to_newest(self, list, unit);
    uint32_t number = is_hot(self, list) ? own_number(self, unit, &entry) : 0;
    if (number != 0) {
        reg_density_use(self->units->density, number, REG_HINT_NONE);
        note_write(self, &entry, number);
        learnt_note(self);
    }
}

static void density_sunk(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_entry entry;
    reg_order_to_oldest(self, list, unit);
    uint32_t number = is_hot(self, list) ? own_number(self, unit, &entry) : 0;
    if (number != 0) {
        reg_density_sink(self->units->density, number);
    }
}

static void density_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    struct sl_entry entry;
    uint32_t number = unit_number(self, fresh, &entry);
    if (number != 0 && reg_density_user(self->units->density, number) == old) {
        reg_density_set_user(self->units->density, number, fresh);
    }
}

static bool is_learnt(const struct registrar *self)
{
    struct reg_density_stats stats;
    reg_density_stats(self->units->density, &stats);
    return stats.learnt;
}

static sl_ref walk_give(struct registrar *self, struct reg_order *list, uint32_t number, bool goes)
{
    struct reg_units *units = self->units;
    if (number != 0) {
        sl_ref unit = reg_density_user(units->density, number);
        uint16_t flags = sl_index_links(self->index, unit)->flags;
        SL_ASSERT((flags & REG_FLAG_KEPT_LISTS) == REG_FLAG_HOT);
        return unit;
    }
    if (!units->by_recency) { /* what density does not know, and what it passed: from the oldest */
        units->by_recency = true;
        return reg_order_first(self, list);
    }
    return reg_order_next(self, list, goes);
}

static sl_ref density_first(struct registrar *self, struct reg_order *list)
{
    self->units->by_recency = false;
    bool learnt = is_hot(self, list) && is_learnt(self);
    return walk_give(self, list, learnt ? reg_density_first(self->units->density) : 0, false);
}

static sl_ref density_next(struct registrar *self, struct reg_order *list, bool goes)
{
    bool learnt = is_hot(self, list) && !self->units->by_recency;
    return walk_give(self, list, learnt ? reg_density_next(self->units->density, goes) : 0, goes);
}

static sl_err density_begin(struct registrar *self, struct sl_error *why)
{
    const struct reg_density_options options = {.ghosts_min = REG_DENSITY_GHOSTS_MIN,
                                                .ghosts_max = REG_DENSITY_GHOSTS_MAX};
    sl_err err = reg_density_create(&options, &self->units->density);
    self->units->learnt_at = LEARNT_REFERENCES;
    return err == SL_OK ? SL_OK : sl_fail(why, err, "no memory for the order of eviction");
}

static void density_end(struct registrar *self)
{
    reg_density_destroy(&self->units->density);
}

static void density_restored(struct registrar *self)
{
    reg_density_restored(self->units->density);
}

static void density_learn(struct registrar *self, sl_ref note, const void *bytes,
                          uint32_t length_bytes)
{
    if (self->units->learnt_note != 0) { /* the registrar before was killed between the two */
        sl_index_set_kind(self->index, self->units->learnt_note, SL_RECORD_FREE);
    }
    self->units->learnt_note = note;
    if (reg_density_learn(self->units->density, bytes, length_bytes)) {
        struct reg_density_stats stats;
        reg_density_stats(self->units->density, &stats);
        self->units->learnt_at = stats.reference_count + LEARNT_REFERENCES;
        return;
    }
    reg_log(self, SL_LOG_WARN, 0, "what eviction had learnt is of another version: it begins anew");
}

static uint64_t hash_of(const struct registrar *self, sl_ref unit)
{
    struct sl_entry entry;
    sl_index_read(self->index, unit, &entry);
    return reg_hash(entry.key, entry.key_length);
}

static double density_worth(const struct registrar *self, sl_ref unit)
{
    return reg_density_value(self->units->density, hash_of(self, unit));
}

static double density_worth_cut(const struct registrar *self, double share)
{
    return is_learnt(self) ? reg_density_disk_cut(self->units->density, share) : -1.0;
}

static double density_chance(const struct registrar *self, sl_ref unit)
{
    return reg_density_chance(self->units->density, hash_of(self, unit));
}

static uint32_t density_uses(const struct registrar *self, sl_ref unit)
{
    return reg_density_uses(self->units->density, hash_of(self, unit));
}

static void density_horizon(struct registrar *self, uint64_t references)
{
    reg_density_horizon(self->units->density, references);
}

const struct reg_policy reg_policy_density = {
    .name = "density",
    .placed = density_placed,
    .removed = density_removed,
    .returned = density_returned,
    .worth = density_worth,
    .worth_cut = density_worth_cut,
    .uses = density_uses,
    .chance = density_chance,
    .horizon = density_horizon,
    .touched = density_touched,
    .passed = reg_order_to_newest,
    .sunk = density_sunk,
    .renamed = density_renamed,
    .first = density_first,
    .next = density_next,
    .restored = density_restored,
    .learn = density_learn,
    .begin = density_begin,
    .end = density_end,
};

void reg_unit_want(struct registrar *self, sl_ref group, const struct sl_item_group *want)
{
    *sl_index_unit_note(self->index, group) =
        (struct sl_unit_note){.parent_hash = want->parent_hash,
                              .stored_count = (uint32_t)want->stored_count,
                              .cut = want->cut,
                              .hint = (uint8_t)want->hint,
                              .state = NOTE_WANTED};
}
