/* actors/registrar/memory/populate.c - allocates the arena's memory ahead of need.
 *
 * Helper threads populate memory. They work at full speed until LEAD_BYTES are free and populated.
 * After that one of them works in short batches with pauses, an eighth of the cores at most: the
 * engine on this machine needs the CPU, and no request waits. A CONTRIBUTE is answered when its
 * lead is populated, so its first puts find memory and no thread competes with them. A writer that
 * is faster than the threads does not wait for them: the loop allocates what its request lacks, a
 * few MiB a turn. */
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "ipc/shm/sl_huge.h"
#include "runtime/base/sl_spin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPARE_N     16u /* extents come in size classes: a sixteenth more than is charged */
#define SPARE_BYTES (8 * SL_MIB)
/* Enough for the puts until a thread works again. Threads refill it once half of it is used. */
#define LEAD_BYTES (32 * SL_MIB)
/* Per turn of the loop: 1 ms with small pages. */
#define HURRY_BYTES     (4 * SL_MIB)
#define QUICK_US_A_MIB  250u /* time of small pages, without touching them */
#define BATCH_BYTES_MIN (2 * SL_MIB)
#define BATCH_BYTES_MAX (64 * SL_MIB)
/* A batch that was shorter is doubled, a longer one is halved. */
#define BATCH_NS_SHORT (2 * SL_NS_PER_MS)
#define BATCH_NS_LONG  (8 * SL_NS_PER_MS)
#define SHARE_N        8u /* an eighth of the cores, one core at most */
#define PAUSE_NS_MIN   (1 * SL_NS_PER_MS)
#define PAUSE_NS_MAX   (200 * SL_NS_PER_MS)
#define AGAIN_NS       SL_NS_PER_S

/* Runs on helper threads. */
static sl_err populate_work(void *context, uint32_t thread)
{
    struct reg_populate_work *work = context;
    sl_err err = SL_OK;
    (void)thread;
    /* Stops at the target: threads that ran ahead would take memory that others need. */
    while (err == SL_OK && !atomic_load_explicit(&work->stop, memory_order_relaxed)) {
        uint64_t target_bytes = atomic_load_explicit(&work->target_bytes, memory_order_relaxed);
        err = sl_arena_populate_below(work->arena, target_bytes, NULL);
    }
    return err == SL_ERR_NOT_FOUND ? SL_OK : err;
}

static void populate_init(struct registrar *self)
{
    self->populate->work.arena = self->arena;
    self->populate->batch_bytes = BATCH_BYTES_MIN;
    self->populate->limit_bytes = UINT64_MAX;
    self->populate->core_count = sl_spin_cores();
    /* With verbs the NIC serves nothing before all pages exist (transporter, whole_arena). */
    self->populate->eager = strcmp(sl_config_text(self->env->config, SL_SET_fabric), "verbs") == 0;
}

static void populate_stop(struct registrar *self)
{
    atomic_store_explicit(&self->populate->work.stop, true, memory_order_relaxed);
}

uint64_t reg_populate_target(const struct registrar *self)
{
    uint64_t data_bytes = sl_arena_data_bytes(self->arena);
    uint64_t ceiling = reg_ceiling_bytes(self);
    uint64_t want_bytes = ceiling == 0 ? 0 : ceiling + ceiling / SPARE_N + SPARE_BYTES;
    return SL_MIN(data_bytes, sl_align_up(want_bytes, SL_ARENA_SLICE_BYTES));
}

/* Gives the allocator what is populated. */
static void space_grow(struct registrar *self)
{
    struct reg_populate *populate = self->populate;
    uint64_t populated_bytes = sl_arena_populated_bytes(self->arena);
    uint64_t limit_bytes = SL_MAX(populate->limit_bytes, reg_populate_target(self));
    bool more = populated_bytes > populate->populated_bytes;
    populate->populated_bytes = SL_MAX(populate->populated_bytes, populated_bytes);
    if (SL_MIN(populated_bytes, limit_bytes) > populate->allocator_bytes) {
        populate->allocator_bytes = SL_MIN(populated_bytes, limit_bytes);
        sl_alloc_grow(self->alloc, populate->allocator_bytes);
        more = true;
    }
    self->space.freed = self->space.freed || more;
}

bool reg_populate_pending(const struct registrar *self)
{
    return !self->populate->failed && !self->draining &&
           self->populate->populated_bytes < reg_populate_target(self);
}

static void populate_fail(struct registrar *self, const char *text)
{
    struct reg_populate *populate = self->populate;
    populate->again_ns = sl_deadline_ns(self->env->now_ns, AGAIN_NS);
    if (!populate->failed) { /* logged once, however often it is tried again */
        reg_log(self, SL_LOG_WARN, 0,
                "memory: %" PRIu64 " of %" PRIu64 " bytes are populated (%s), using these",
                populate->populated_bytes, reg_populate_target(self), text);
    }
    populate->failed = true;
    self->space.freed = true; /* requests that wait for it are answered */
}

/* The size up to which the threads work now. */
static uint64_t populate_goal(const struct registrar *self, uint64_t free_bytes)
{
    const struct reg_populate *populate = self->populate;
    uint64_t more_bytes = populate->eager     ? LEAD_BYTES
                          : populate->filling ? LEAD_BYTES - free_bytes
                                              : populate->batch_bytes;
    return SL_MIN(populate->populated_bytes + more_bytes, reg_populate_target(self));
}

/* Leaves half of the cores to others. */
static uint32_t populate_threads(const struct registrar *self)
{
    return SL_MAX(SL_MIN(self->populate->threads, self->populate->core_count / 2), 1u);
}

/* Starts helper threads for what is needed next, if it is time. */
static void populate_run(struct registrar *self)
{
    struct reg_populate *populate = self->populate;
    uint64_t now_ns = self->env->now_ns;
    space_grow(self);
    if (populate->populated_bytes >= reg_populate_target(self)) {
        populate->failed = populate->filling = false;
        atomic_store_explicit(&populate->work.target_bytes, 0, memory_order_relaxed);
        return;
    }
    if (self->draining) {
        return;
    }
    uint64_t free_bytes = reg_free_bytes(self);
    populate->filling =
        populate->eager || free_bytes < (populate->filling ? LEAD_BYTES : LEAD_BYTES / 2);
    if (populate->running || now_ns < populate->again_ns ||
        (!populate->filling && now_ns < populate->pause_ns)) {
        return;
    }
    atomic_store_explicit(&populate->work.target_bytes, populate_goal(self, free_bytes),
                          memory_order_relaxed);
    populate->began_ns = now_ns;
    populate->begun_bytes = populate->populated_bytes;
    populate->batched = !populate->filling;
    populate->running = true;
    sl_err err = self->env->ops->job(self->env, populate->filling ? populate_threads(self) : 1,
                                     populate_work, &populate->work, REG_JOB_POPULATE);
    if (err != SL_OK) {
        char text[64];
        (void)snprintf(text, sizeof(text), "starting threads: %.40s", sl_err_text(err));
        populate->running = false;
        populate_fail(self, text);
    }
}

/* Learns whether a huge page is faster than the small ones that it replaces. It usually takes a
 * third of their time, but ten times as long in a virtual machine whose host must find the memory
 * first. */
static void populate_learn(struct registrar *self, uint64_t took_ns)
{
    struct reg_populate *populate = self->populate;
    uint64_t bytes = populate->populated_bytes - populate->begun_bytes;
    if (bytes > 0) {
        populate->quick = took_ns / SL_NS_PER_US <= bytes / SL_MIB * QUICK_US_A_MIB;
    }
}

/* Based on elapsed time, not CPU time: on a busy machine the share is smaller. */
static uint64_t populate_pause(const struct reg_populate *populate, uint64_t took_ns)
{
    uint64_t cores = SL_MIN(populate->core_count, SHARE_N);
    uint64_t pause_ns = SL_MIN(took_ns * (SHARE_N - cores) / cores, PAUSE_NS_MAX);
    return SL_MAX(pause_ns, PAUSE_NS_MIN);
}

static void populate_ended(struct registrar *self, enum reg_job job, sl_err code)
{
    struct reg_populate *populate = self->populate;
    if (job != REG_JOB_POPULATE) {
        return;
    }
    uint64_t took_ns = self->env->now_ns - populate->began_ns;
    populate->running = false;
    space_grow(self);
    if (code != SL_OK && populate->populated_bytes < reg_populate_target(self)) {
        populate_fail(self, sl_err_text(code));
        return;
    }
    populate->failed = false;
    populate->again_ns = 0;
    populate_learn(self, took_ns);
    populate->pause_ns = self->env->now_ns + populate_pause(populate, took_ns);
    if (populate->batched && took_ns < BATCH_NS_SHORT) {
        populate->batch_bytes = SL_MIN(populate->batch_bytes * 2, BATCH_BYTES_MAX);
    } else if (populate->batched && took_ns > BATCH_NS_LONG) {
        populate->batch_bytes = SL_MAX(populate->batch_bytes / 2, BATCH_BYTES_MIN);
    }
    self->space.freed = true;
}

void reg_populate_retry(struct registrar *self)
{
    self->populate->again_ns = 0;
}

bool reg_populate_now(struct registrar *self, uint64_t want_bytes)
{
    struct reg_populate *populate = self->populate;
    struct sl_error why = {0};
    space_grow(self);
    if (!reg_populate_pending(self)) {
        return false;
    }
    uint64_t before_bytes = populate->populated_bytes;
    uint64_t below_bytes =
        SL_MIN(before_bytes + SL_MIN(want_bytes, HURRY_BYTES), reg_populate_target(self));
    bool touch = self->populate->huge_pages && populate->quick;
    if (sl_arena_populate_now(self->arena, below_bytes, touch, &why) != SL_OK) {
        populate_fail(self, why.text);
        return false;
    }
    space_grow(self);
    populate->hurried = populate->populated_bytes > before_bytes;
    return populate->hurried;
}

bool reg_populate_lead_ready(const struct registrar *self)
{
    return !reg_populate_pending(self) ||
           (!self->populate->filling && reg_free_bytes(self) >= LEAD_BYTES / 2) ||
           reg_free_bytes(self) >= LEAD_BYTES;
}

static void populate_tick(struct registrar *self)
{
    space_grow(self);
    /* More can be allocated for requests that wait. */
    self->space.freed = self->space.freed || self->populate->hurried;
    self->populate->hurried = false;
}

static uint64_t populate_next(const struct registrar *self)
{
    const struct reg_populate *populate = self->populate;
    if (populate->hurried && (self->space.waiting_count > 0 || self->space.fetch_blocked_ns != 0)) {
        return self->env->now_ns;
    }
    if (populate->running) {
        return self->env->now_ns + REG_POPULATE_NS;
    }
    return reg_populate_pending(self) ? SL_MAX(populate->pause_ns, populate->again_ns)
                                      : SL_NEVER_NS;
}

/* Reports that the system gave less memory than was asked for. */
static bool populate_lacks(struct registrar *self, char *reason, size_t reason_bytes)
{
    uint64_t target_bytes = reg_populate_target(self);
    if (!self->populate->failed || self->populate->populated_bytes >= target_bytes) {
        return false;
    }
    (void)snprintf(reason, reason_bytes,
                   "the system gave %" PRIu64 " of %" PRIu64 " bytes of memory",
                   self->populate->populated_bytes, target_bytes);
    return true;
}

/* ---- the part ---- */

static void populate_settings(struct registrar *self)
{
    self->populate->threads = (uint32_t)sl_config_u64(self->env->config, SL_SET_populate_threads);
}

static void populate_started(struct registrar *self)
{
    char huge[SL_HUGE_TEXT_BYTES];
    self->populate->huge_pages = sl_huge_pages(self->env->paths->shm_dir, huge);
    populate_init(self);
    populate_run(self);
    reg_log(self, SL_LOG_INFO, 0, "arena in %s pages: %s",
            self->populate->huge_pages ? "huge" : "small", huge);
}

static void populate_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    struct sl_alloc_stats alloc;
    sl_alloc_stats(self->alloc, &alloc);
    sl_metric_set(page, self->populate->metric.huge_pages, self->populate->huge_pages ? 1 : 0);
    sl_metric_set(page, self->populate->metric.used_bytes, alloc.used_bytes);
    sl_metric_set(page, self->populate->metric.usable_bytes, alloc.usable_bytes);
    sl_metric_set(page, self->populate->metric.ceiling_bytes, reg_ceiling_bytes(self));
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_populate, huge_pages),
    REG_METRIC(reg_populate, used_bytes),
    REG_METRIC(reg_populate, usable_bytes),
    REG_METRIC(reg_populate, ceiling_bytes),
};

const struct reg_part reg_populate_part = {
    .name = "populate",
    REG_STATE(populate, reg_populate),
    REG_METRICS(metrics),
    .settings = populate_settings,
    .started = populate_started,
    .drain = populate_stop,
    .fini = populate_stop,
    .tick = populate_tick,
    .after = populate_run,
    .next_ns = populate_next,
    .job_ended = populate_ended,
    .gauges = populate_gauges,
    .health = populate_lacks,
};
