/* actors/registrar/disk/admission.c - see admission.h.
 *
 * The budget of a disk refills evenly, up to one day's bytes; its tierer keeps the account. While
 * more than half of that is left, the budget refuses nothing. Below, only the best share of the
 * offered units is written, and the share shrinks with what is left. So writes settle at the rate
 * of the budget, and the units most likely to be wanted again are written first. */
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL_FREE    0.5   /* above this share the budget refuses nothing */
#define SEEN_MAX      4096u /* then all counts are halved */
#define MEAN_WEIGHT   0.01
#define HASH_FRACTION 0x1p-32

/* ---- the list of refused units ---- */

static bool is_refused(struct registrar *self, sl_ref unit)
{
    return sl_index_ref_live(self->index, unit) &&
           (sl_index_links(self->index, unit)->flags & REG_FLAG_REFUSED) != 0;
}

/* Frees the list's entries of units that are no longer refused. */
static void refused_compact(struct registrar *self)
{
    struct reg_admission *admission = self->admission;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < admission->count; i++) {
        if (is_refused(self, admission->refused[i])) {
            admission->refused[kept++] = admission->refused[i];
        }
    }
    admission->count = kept;
}

static bool refused_add(struct registrar *self, sl_ref unit)
{
    struct reg_admission *admission = self->admission;
    if (admission->count == admission->capacity) {
        refused_compact(self);
        if (admission->count >= admission->capacity / 4 * 3 &&
            !SL_ARRAY_ROOM(admission->refused, admission->capacity, admission->capacity + 1)) {
            return false;
        }
    }
    admission->refused[admission->count++] = unit;
    return true;
}

static void flag_refused(struct registrar *self, sl_ref unit, bool refused)
{
    struct reg_unit_parts parts;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i <= parts.count; i++) {
        sl_ref ref = i < parts.count ? parts.refs[i] : unit;
        uint16_t others = sl_index_links(self->index, ref)->flags & (uint16_t)~REG_FLAG_REFUSED;
        sl_index_links(self->index, ref)->flags =
            (uint16_t)(others | (refused ? REG_FLAG_REFUSED : 0));
    }
}

/* ---- properties of a unit ---- */

struct candidate {
    sl_ref unit;
    uint64_t bytes;   /* of parts that are only in memory */
    uint64_t request; /* equal for all blocks of a request: ties are decided for a whole request */
    uint32_t part_count;
    bool promised;
};

static void candidate_read(struct registrar *self, sl_ref unit, struct candidate *out)
{
    struct reg_unit_parts parts;
    *out = (struct candidate){.unit = unit};
    out->promised = (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        out->promised = out->promised || entry.hard_pin || entry.bundle != 0 ||
                        entry.soft_pin_end_ns > self->env->now_ns;
        if (entry.extent.generation != 0 && entry.disk.valid == 0) {
            out->bytes += entry.extent.length_bytes;
            out->request = entry.extent.generation;
            out->part_count++;
        }
    }
    struct sl_entry record;
    sl_index_read(self->index, unit, &record);
    if (record.kind == SL_RECORD_GROUP) {
        struct sl_group_info group;
        sl_index_group_info(self->index, unit, &group);
        out->request = group.op_id != 0 ? group.op_id : out->request;
    }
}

static void size_note(struct registrar *self, const struct candidate *candidate)
{
    struct reg_admission *admission = self->admission;
    double bytes = (double)candidate->bytes;
    double weight = admission->unit_bytes > 0.0 ? MEAN_WEIGHT : 1.0;
    admission->unit_bytes += weight * (bytes - admission->unit_bytes);
    admission->part_bytes += weight * (bytes / candidate->part_count - admission->part_bytes);
}

/* ---- the budget ---- */

/* By the disk with the most left. */
double reg_admission_share(const struct registrar *self)
{
    const struct reg_admission *admission = self->admission;
    double most = 0.0;
    if (self->tier->budget_bytes == 0) {
        return 1.0;
    }
    uint32_t disk_count = 0;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (self->tier->disks[i].budget_set_ns != 0 && reg_disk_usable(self, i)) {
            most = fmax(most, (double)reg_disk_budget_left(self, i));
            disk_count++;
        }
    }
    if (disk_count == 0) { /* no tierer has reported yet */
        return 1.0;
    }
    /* the queue is spread over all of them */
    most -= (double)self->writes->queue.count * admission->part_bytes / disk_count;
    return fmin(fmax(most / (double)self->tier->budget_bytes / LEVEL_FREE, 0.0), 1.0);
}

static uint32_t bin_of(double chance)
{
    return (uint32_t)(sqrt(fmin(fmax(chance, 0.0), 1.0)) * (REG_ADMISSION_BINS - 1));
}

static void seen_note(struct reg_admission *admission, double chance, uint64_t bytes)
{
    admission->seen_bytes[bin_of(chance)] += (double)bytes;
    if (++admission->seen_count >= SEEN_MAX) {
        admission->seen_count /= 2;
        for (uint32_t i = 0; i < REG_ADMISSION_BINS; i++) {
            admission->seen_bytes[i] /= 2.0;
        }
    }
}

/* Whether the unit is in the best share of the offered bytes. In the bin at the limit, a hash of
 * the request decides, so that all its blocks pass or none: after a gap, a chain is useless. */
static bool is_among_best(const struct reg_admission *admission, double chance, uint64_t request,
                          double share)
{
    double all = 0.0;
    double better = 0.0;
    uint32_t bin = bin_of(chance);
    for (uint32_t i = 0; i < REG_ADMISSION_BINS; i++) {
        all += admission->seen_bytes[i];
        better += i > bin ? admission->seen_bytes[i] : 0.0;
    }
    double turn = (double)(uint32_t)reg_hash(&request, sizeof(request)) * HASH_FRACTION;
    return better + turn * admission->seen_bytes[bin] < share * all;
}

static bool budget_allows(struct registrar *self, const struct candidate *candidate, double chance)
{
    if (self->tier->budget_bytes == 0) {
        return true;
    }
    seen_note(self->admission, chance, candidate->bytes);
    double share = reg_admission_share(self);
    return share >= 1.0 || is_among_best(self->admission, chance, candidate->request, share);
}

/* ---- the decision ---- */

/* again: the unit was refused before and is wanted now. */
static bool unit_passes(struct registrar *self, const struct candidate *candidate, bool again)
{
    const struct reg_admission *admission = self->admission;
    const struct reg_policy *policy = self->units->policy;
    if (candidate->promised) {
        return true;
    }
    /* A value stays on disk for about as many references as the disk has room for units. */
    double units = (double)self->set.disk / SL_MAX(admission->unit_bytes, 1.0);
    double chance =
        policy->chance != NULL ? policy->chance(self, candidate->unit, (uint64_t)units) : again;
    struct reg_judgement judged;
    reg_unit_judge(self, candidate->unit, &judged);
    bool second = again || judged.use_count > 1;
    if ((admission->how == REG_ADMIT_REUSE && chance < admission->chance_min) ||
        (admission->how == REG_ADMIT_SECOND && !second)) {
        return false;
    }
    bool allowed = budget_allows(self, candidate, chance);
    sl_metric_add(self->env->metrics, admission->metric.over_budget_count, !allowed);
    return allowed;
}

static void unit_refuse(struct registrar *self, const struct candidate *candidate)
{
    struct sl_metrics *page = self->env->metrics;
    if (!refused_add(self, candidate->unit)) { /* no memory to remember the refusal */
        reg_unit_queue(self, candidate->unit);
        return;
    }
    flag_refused(self, candidate->unit, true);
    sl_metric_add(page, self->admission->metric.not_written_count, candidate->part_count);
    sl_metric_add(page, self->admission->metric.not_written_bytes, candidate->bytes);
}

static void unit_admit(struct registrar *self, sl_ref unit)
{
    struct candidate candidate;
    candidate_read(self, unit, &candidate);
    flag_refused(self, unit, false);
    reg_unit_queue(self, unit);
    sl_metric_add(self->env->metrics, self->admission->metric.written_later_count,
                  candidate.part_count);
}

void reg_admission_offer(struct registrar *self, sl_ref unit)
{
    struct candidate candidate;
    if (!self->tier->on) {
        return;
    }
    if (self->admission->how == REG_ADMIT_ALL && self->tier->budget_bytes == 0) {
        reg_unit_queue(self, unit);
        return;
    }
    candidate_read(self, unit, &candidate);
    if (candidate.part_count == 0) {
        return;
    }
    size_note(self, &candidate);
    if (unit_passes(self, &candidate, false)) {
        reg_unit_queue(self, unit);
    } else {
        unit_refuse(self, &candidate);
    }
}

void reg_admission_admit_all(struct registrar *self)
{
    struct reg_admission *admission = self->admission;
    for (uint32_t i = 0; i < admission->count; i++) {
        if (is_refused(self, admission->refused[i])) {
            unit_admit(self, admission->refused[i]);
        }
    }
    admission->count = 0;
}

/* ---- the part ---- */

static const char *const names[] = {"all", "reuse", "second"};

static sl_err admission_init(struct registrar *self, struct sl_error *why)
{
    struct reg_admission *admission = self->admission;
    const char *how = sl_config_text(self->env->config, SL_SET_disk_admission);
    uint32_t at = 0;
    while (at < SL_COUNT(names) && strcmp(how, names[at]) != 0) {
        at++;
    }
    SL_ASSERT(at < SL_COUNT(names)); /* these are the choices of the setting */
    if (at == REG_ADMIT_REUSE && self->units->policy->chance == NULL) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "setting disk_admission is reuse: evict_policy '%s' cannot estimate reuse",
                       self->units->policy->name);
    }
    admission->how = (enum reg_admission_how)at;
    admission->chance_min =
        (double)sl_config_u64(self->env->config, SL_SET_disk_admission_min) / 1e6;
    return SL_OK;
}

static void admission_fini(struct registrar *self)
{
    free(self->admission->refused);
}

static void admission_committed(struct registrar *self, const struct reg_committed *what)
{
    reg_admission_offer(self, what->unit);
}

/* A refused unit was wanted: it may deserve a copy on disk now. */
static void admission_wanted(struct registrar *self, sl_ref unit)
{
    struct candidate candidate;
    candidate_read(self, unit, &candidate);
    if (candidate.part_count > 0 && unit_passes(self, &candidate, true)) {
        unit_admit(self, unit);
    }
}

/* A refused object has a new record, which needs an entry of its own. */
static void admission_switched(struct registrar *self, const struct reg_switched *what)
{
    if (what->old->group == 0 && is_refused(self, what->fresh) && !refused_add(self, what->fresh)) {
        unit_admit(self, what->fresh);
    }
}

/* Leased units must not be lost. When they prevent an eviction, they are written to disk. */
static void admission_after(struct registrar *self)
{
    struct reg_admission *admission = self->admission;
    if (!self->space.copies_wanted) {
        return;
    }
    self->space.copies_wanted = false;
    for (uint32_t i = 0; i < admission->count; i++) {
        if (is_refused(self, admission->refused[i]) &&
            reg_unit_leased(self, admission->refused[i]) != 0) {
            unit_admit(self, admission->refused[i]);
        }
    }
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_admission, not_written_count),
    REG_METRIC(reg_admission, not_written_bytes),
    REG_METRIC(reg_admission, written_later_count),
    REG_METRIC(reg_admission, over_budget_count),
};

const struct reg_part reg_admission_part = {
    .name = "admission",
    REG_STATE(admission, reg_admission),
    REG_METRICS(metrics),
    .init = admission_init,
    .fini = admission_fini,
    .after = admission_after,
    .committed = admission_committed,
    .switched = admission_switched,
    .wanted = admission_wanted,
};
