/* actors/tierer/budget.c - what the disk may be written (disk_write_budget): a bucket that fills by
 * a day's bytes a day, up to a day's. Everything that goes to the disk is charged. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_DAY (86400 * SL_NS_PER_S)
#define PAGES      (TI_BUDGET_BYTES / SL_PAGE_BYTES)
/* A page covers this share of a day's bytes: so many pages are written a day. */
#define AHEAD_SHARE     512u
#define AHEAD_BYTES_MIN (UINT64_C(256) << 10)

static struct sl_digest page_digest(const struct ti_budget_page *page)
{
    struct ti_budget_page copy = *page;
    copy.digest = (struct sl_digest){0};
    return ti_page_digest(&copy, sizeof(copy));
}

static uint64_t ahead_bytes(const struct ti_budget *budget)
{
    return SL_MAX(budget->day_max_bytes / AHEAD_SHARE, AHEAD_BYTES_MIN);
}

/* ---- the account ---- */

static void budget_gauges(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->metrics.budget, budget->day_max_bytes);
    sl_metric_set(page, self->metrics.budget_left,
                  budget->left_bytes > 0 ? (uint64_t)budget->left_bytes : 0);
    sl_metric_set(page, self->metrics.written_today, budget->day_bytes);
    sl_metric_set(page, self->metrics.written_all, budget->life_bytes);
}

/* A clock that was set back adds nothing, and one that was set forward a day's bytes at most. */
static void budget_fill(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    uint64_t now_ns = self->env->ops->wall_ns(self->env);
    uint64_t since_ns = now_ns > budget->wall_ns ? now_ns - budget->wall_ns : 0;
    double share = (double)SL_MIN(since_ns, 2 * NS_PER_DAY) / (double)NS_PER_DAY;
    int64_t more = (int64_t)(share * (double)budget->day_max_bytes);
    if (more > 0 || now_ns < budget->wall_ns) {
        budget->left_bytes = SL_MIN(budget->left_bytes + more, (int64_t)budget->day_max_bytes);
        budget->wall_ns = now_ns;
    }
    if (now_ns / NS_PER_DAY != budget->day) {
        budget->day = now_ns / NS_PER_DAY;
        budget->day_bytes = 0;
    }
}

void ti_budget_spend(struct tierer *self, uint64_t bytes)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes == 0) {
        return;
    }
    budget_fill(self);
    budget->left_bytes -= (int64_t)bytes;
    budget->day_bytes += bytes;
    budget->life_bytes += bytes;
    budget_gauges(self);
}

int64_t ti_budget_left(struct tierer *self)
{
    if (self->budget.day_max_bytes == 0) {
        return 0;
    }
    budget_fill(self);
    budget_gauges(self);
    return self->budget.left_bytes;
}

/* ---- the file ---- */

static bool page_right(const struct ti_budget_page *page)
{
    return page->magic == TI_BUDGET_MAGIC && page->sequence != 0 &&
           sl_digest_equal(page->digest, page_digest(page));
}

static sl_err pages_read(struct tierer *self, uint64_t file_bytes, struct sl_error *why)
{
    struct ti_budget *budget = &self->budget;
    struct ti_budget_page *page = (void *)self->frame_buffer;
    bool blank = true; /* it was made, and nothing was written to it */
    for (uint64_t at = 0; at + SL_PAGE_BYTES <= SL_MIN(file_bytes, (uint64_t)TI_BUDGET_BYTES);
         at += SL_PAGE_BYTES) {
        bool read = ti_file_read(self, budget->file, page, at, SL_PAGE_BYTES);
        blank = blank && read && page->magic == 0;
        if (!read || !page_right(page)) {
            continue;
        }
        if (page->version > TI_BUDGET_FORMAT) {
            return sl_fail(why, SL_ERR_VERSION,
                           "disk: '%s' has format %u, this program knows up to %u: use a newer one",
                           TI_BUDGET_NAME, page->version, TI_BUDGET_FORMAT);
        }
        if (page->sequence > budget->sequence) {
            budget->sequence = page->sequence;
            budget->left_bytes = page->left_bytes;
            budget->wall_ns = page->wall_ns;
            budget->day = page->day;
            budget->day_bytes = page->day_bytes;
            budget->life_bytes = page->life_bytes;
        }
    }
    if (budget->sequence == 0 && !blank) { /* what was spent is not known: as if all was */
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: '%s' has no right page: disk_write_budget begins with nothing left",
                     TI_BUDGET_NAME);
        budget->left_bytes = 0;
    }
    return SL_OK;
}

sl_err ti_budget_open(struct tierer *self, struct sl_error *why)
{
    struct ti_budget *budget = &self->budget;
    struct sl_error missing = {0};
    uint64_t bytes = 0;
    if (budget->day_max_bytes == 0) {
        return SL_OK;
    }
    budget->wall_ns = self->env->ops->wall_ns(self->env);
    budget->day = budget->wall_ns / NS_PER_DAY;
    budget->left_bytes = (int64_t)budget->day_max_bytes;
    budget->page = aligned_alloc(SL_PAGE_BYTES, sizeof(*budget->page));
    if (budget->page == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the page of '%s'", TI_BUDGET_NAME);
    }
    sl_err err = self->disk->ops->open(self->disk, TI_BUDGET_NAME, false, 0, &budget->file, &bytes,
                                       &missing);
    if (err != SL_OK && missing.os_code == ENOENT) {
        budget->file = -1;
        self->foreign_bytes += TI_BUDGET_BYTES; /* it is made when there is room for it */
        budget_gauges(self);
        return SL_OK;
    }
    if (err != SL_OK) {
        budget->file = -1;
        return sl_fail_os(why, missing.os_code, "disk: open '%s'", TI_BUDGET_NAME);
    }
    err = pages_read(self, bytes, why);
    budget->noted_life_bytes = budget->life_bytes;
    budget->left_bytes = SL_MIN(budget->left_bytes, (int64_t)budget->day_max_bytes);
    (void)ti_budget_left(self);
    return err;
}

void ti_budget_close(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    if (budget->file >= 0) {
        self->disk->ops->close(self->disk, budget->file);
    }
    budget->file = -1;
}

/* ahead: what will be spent until the next page. */
static void page_write(struct tierer *self, uint64_t ahead)
{
    struct ti_budget *budget = &self->budget;
    struct ti_budget_page *page = budget->page;
    struct sl_disk_request write = {.verb = SL_DISK_WRITE,
                                    .file = budget->file,
                                    .memory = page,
                                    .offset_bytes = (budget->sequence + 1) % PAGES * SL_PAGE_BYTES,
                                    .length_bytes = SL_PAGE_BYTES};
    budget_fill(self);
    ahead += SL_PAGE_BYTES; /* this page itself */
    *page = (struct ti_budget_page){
        .magic = TI_BUDGET_MAGIC,
        .version = TI_BUDGET_FORMAT,
        .sequence = budget->sequence + 1,
        .left_bytes = budget->left_bytes - (int64_t)ahead,
        .wall_ns = budget->wall_ns,
        .day = budget->day,
        .day_bytes = budget->day_bytes + ahead,
        .life_bytes = budget->life_bytes + ahead,
    };
    page->digest = page_digest(page);
    budget->busy = ti_io_start(self, TI_IO_BUDGET, NULL, 0, &write);
}

static void page_end(struct tierer *self, int os_code)
{
    struct ti_budget *budget = &self->budget;
    budget->busy = false;
    if (os_code != 0) {
        budget->retry_at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
        ti_segments_failed(self, TI_BUDGET_NAME, os_code);
        return;
    }
    budget->retry_at_ns = 0;
    budget->sequence = budget->page->sequence;
    budget->noted_life_bytes = budget->page->life_bytes;
}

void ti_budget_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct sl_disk_request sync = {.verb = SL_DISK_SYNC, .file = self->budget.file};
    if (io->kind == TI_IO_BUDGET_SYNC || os_code != 0) {
        page_end(self, os_code);
    } else if (bytes != SL_PAGE_BYTES) {
        page_end(self, EIO);
    } else if (!ti_io_start(self, TI_IO_BUDGET_SYNC, NULL, 0, &sync)) {
        page_end(self, EAGAIN);
    }
}

void ti_budget_made(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct ti_budget *budget = &self->budget;
    struct sl_error why = {0};
    (void)io;
    if (os_code == 0 && self->disk->ops->open(self->disk, TI_BUDGET_NAME, false, 0, &budget->file,
                                              &bytes, &why) != SL_OK) {
        budget->file = -1;
        os_code = why.os_code != 0 ? why.os_code : EIO;
    }
    if (os_code != 0) {
        page_end(self, os_code);
        return;
    }
    page_write(self, ahead_bytes(budget));
}

static void file_make(struct tierer *self)
{
    struct sl_disk_request make = {
        .verb = SL_DISK_MAKE, .file = -1, .name = TI_BUDGET_NAME, .length_bytes = TI_BUDGET_BYTES};
    if (ti_segments_members_fit(self)) {
        self->budget.busy = ti_io_start(self, TI_IO_BUDGET_MAKE, NULL, 0, &make);
    }
}

void ti_budget_pump(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    uint64_t ahead = ahead_bytes(budget);
    if (budget->day_max_bytes == 0 || budget->busy || self->draining ||
        self->env->now_ns < budget->retry_at_ns) {
        return;
    }
    if (budget->file < 0) {
        file_make(self);
    } else if (budget->sequence == 0 || budget->life_bytes + ahead / 2 > budget->noted_life_bytes) {
        page_write(self, ahead);
    }
}

bool ti_budget_settled(struct tierer *self)
{
    struct ti_budget *budget = &self->budget;
    if (budget->day_max_bytes == 0 || budget->file < 0 || budget->retry_at_ns != 0) {
        return !budget->busy;
    }
    if (!budget->busy && budget->noted_life_bytes != budget->life_bytes) {
        page_write(self, 0);
        ti_io_pump(self);
    }
    return !budget->busy && budget->noted_life_bytes == budget->life_bytes;
}
