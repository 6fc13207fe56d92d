/* actors/tierer/budget.c - the write budget of the disk (disk_write_budget): a token bucket that
 * fills at a day's bytes a day and holds at most a day's. Every write to the disk is charged. The
 * account is kept in the page of members. */
#include "actors/tierer/internal.h"

#define NS_PER_DAY (86400 * SL_NS_PER_S)
/* A page covers a day's bytes divided by this, which bounds the pages written a day. */
#define AHEAD_SHARE     512u
#define AHEAD_BYTES_MIN (UINT64_C(256) << 10)
#define PAGE_WRITES     2u /* copies of a page of members */

static uint64_t ahead_bytes(const struct ti_budget *budget)
{
    return SL_MAX(budget->day_max_bytes / AHEAD_SHARE, AHEAD_BYTES_MIN);
}

static void budget_gauges(struct tierer *self)
{
    const struct ti_account *now = &self->budget.now;
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->metrics.budget, self->budget.day_max_bytes);
    sl_metric_set(page, self->metrics.budget_left,
                  now->left_bytes > 0 ? (uint64_t)now->left_bytes : 0);
    sl_metric_set(page, self->metrics.written_today, now->day_bytes);
    sl_metric_set(page, self->metrics.written_all, now->life_bytes);
}

/* A clock set back adds nothing, a clock set forward at most a day's bytes. */
static void budget_fill(struct tierer *self)
{
    struct ti_account *now = &self->budget.now;
    int64_t day_max_bytes = (int64_t)self->budget.day_max_bytes;
    uint64_t now_ns = self->env->ops->wall_ns(self->env);
    uint64_t since_ns = now_ns > now->wall_ns ? now_ns - now->wall_ns : 0;
    double share = (double)SL_MIN(since_ns, 2 * NS_PER_DAY) / (double)NS_PER_DAY;
    int64_t more = (int64_t)(share * (double)day_max_bytes);
    if (more > 0 || now_ns < now->wall_ns) {
        now->left_bytes = SL_MIN(now->left_bytes + more, day_max_bytes);
        now->wall_ns = now_ns;
    }
    if (now_ns / NS_PER_DAY != now->day) {
        now->day = now_ns / NS_PER_DAY;
        now->day_bytes = 0;
    }
}

void ti_budget_spend(struct tierer *self, uint64_t bytes)
{
    struct ti_account *now = &self->budget.now;
    if (self->budget.day_max_bytes == 0) {
        return;
    }
    budget_fill(self);
    now->left_bytes -= (int64_t)bytes;
    now->day_bytes += bytes;
    now->life_bytes += bytes;
    budget_gauges(self);
}

int64_t ti_budget_left(struct tierer *self)
{
    if (self->budget.day_max_bytes == 0) {
        return 0;
    }
    budget_fill(self);
    budget_gauges(self);
    return self->budget.now.left_bytes;
}

void ti_budget_begin(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes == 0) {
        return;
    }
    budget->now = self->members.now.account;
    if (budget->now.wall_ns == 0) {
        budget->now.wall_ns = self->env->ops->wall_ns(self->env);
        budget->now.left_bytes = self->members.damaged ? 0 : (int64_t)budget->day_max_bytes;
        if (self->members.damaged) { /* what was spent is unknown: assume all */
            sl_log_write(self->env->log, SL_LOG_WARN, 0,
                         "disk: '%s' has no valid page: disk_write_budget starts with nothing left",
                         TI_MEMBERS_NAME);
        }
    }
    budget->noted_life_bytes = budget->now.life_bytes;
    budget->now.left_bytes = SL_MIN(budget->now.left_bytes, (int64_t)budget->day_max_bytes);
    (void)ti_budget_left(self);
}

void ti_budget_note(struct tierer *self, struct ti_account *out)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes == 0) {
        return; /* the old account stays for when the setting returns */
    }
    uint64_t ahead = PAGE_WRITES * SL_PAGE_BYTES + (budget->exact ? 0 : ahead_bytes(budget));
    budget_fill(self);
    *out = budget->now;
    out->left_bytes -= (int64_t)ahead;
    out->day_bytes += ahead;
    out->life_bytes += ahead;
}

void ti_budget_noted(struct tierer *self, int os_code)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes != 0 && os_code != 0) {
        budget->retry_at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
    } else {
        budget->retry_at_ns = 0;
        budget->noted_life_bytes = self->members.now.account.life_bytes;
    }
}

static void account_write(struct tierer *self)
{
    const struct ti_members *page = &self->members.now;
    ti_members_name_frame(self, page->tombstone_segment, page->tombstone_sequence);
}

void ti_budget_pump(struct tierer *self)
{
    const struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes != 0 && !self->draining && self->env->now_ns >= budget->retry_at_ns &&
        budget->now.life_bytes + ahead_bytes(budget) / 2 > budget->noted_life_bytes) {
        account_write(self);
    }
}

bool ti_budget_settled(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes != 0 && budget->retry_at_ns == 0 && self->members.next == NULL &&
        budget->noted_life_bytes != budget->now.life_bytes) {
        budget->exact = true;
        account_write(self);
        ti_io_pump(self);
    }
    return self->members.next == NULL;
}
