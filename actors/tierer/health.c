/* actors/tierer/health.c - watches whether the disk works: failed writes and reads, a disk that
 * hangs. README.md explains the rules. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ti_health_publish(struct tierer *self)
{
    struct sl_metrics *page = self->env->metrics;
    char text[SL_METRICS_REASON_BYTES];
    if (self->draining) {
        sl_metrics_health(page, SL_HEALTH_DRAINING, "");
    } else if (self->start.reading) {
        uint64_t done = atomic_load_explicit(&self->start.done, memory_order_relaxed);
        (void)snprintf(text, sizeof(text), "reading its log, %" PRIu64 " %%",
                       done * 100 / SL_MAX(self->start.listed, 1u));
        sl_metrics_health(page, SL_HEALTH_DEGRADED, text);
    } else if (self->degraded || self->probe.doubted) {
        return; /* the page has the reason already */
    } else if (self->room.full) {
        sl_metrics_health(page, SL_HEALTH_DEGRADED,
                          "full: the file system has no room for two log files: writes are "
                          "refused, reads continue");
    } else if (self->scan_waits) {
        sl_metrics_health(page, SL_HEALTH_DEGRADED,
                          "its log cannot be read to report its contents: will retry");
    } else if (!self->start.all_reported &&
               self->env->now_ns > sl_deadline_ns(self->start.since_ns, TI_START_REPORT_NS)) {
        uint32_t all_reported = 0;
        while (all_reported < self->segment_count &&
               self->segments[all_reported].number < self->scan_segment) {
            all_reported++;
        }
        (void)snprintf(text, sizeof(text),
                       "reporting its contents to the registrar, %" PRIu64 " %%",
                       (uint64_t)all_reported * 100 / SL_MAX(self->segment_count, 1u));
        sl_metrics_health(page, SL_HEALTH_DEGRADED, text);
    } else if (self->room.retry_at_ns != 0) {
        (void)snprintf(text, sizeof(text),
                       "the file system is full: %" PRIu64 " of %" PRIu64 " MiB are used",
                       self->room.bytes_max >> 20, self->disk_bytes_max >> 20);
        sl_metrics_health(page, SL_HEALTH_READY, text);
    } else {
        sl_metrics_health(page, SL_HEALTH_READY, "");
    }
}

static void health_report_failure(struct tierer *self, const char *what, int os_code)
{
    char reason[96];
    char text[64];
    (void)snprintf(reason, sizeof(reason), "%s: %s", what, strerror_r(os_code, text, sizeof(text)));
    sl_metric_add(self->env->metrics, self->metrics.io_errors, 1);
    sl_metrics_health(self->env->metrics, SL_HEALTH_DEGRADED, reason);
    sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: %s", reason);
}

static void health_report_recovery(struct tierer *self)
{
    if (self->degraded || self->probe.doubted) {
        return;
    }
    ti_health_publish(self);
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: works again");
}

void ti_health_failed(struct tierer *self, const char *what, int os_code)
{
    if (ti_is_no_room(os_code)) {
        ti_segments_no_room(self, false);
    }
    health_report_failure(self, what, os_code);
    self->degraded = true;
    self->degraded_os_code = os_code;
    self->blocked_until_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
}

void ti_health_write_ok(struct tierer *self)
{
    self->blocked_until_ns = 0;
    if (!self->degraded || self->stalled) {
        return;
    }
    self->degraded = false;
    health_report_recovery(self);
}

static struct ti_bad_place *bad_place_find(struct tierer *self, const struct ti_item *item)
{
    for (uint32_t i = 0; self->bad_place_count > 0 && i < TI_BAD_PLACES_MAX; i++) {
        struct ti_bad_place *bad = &self->bad_places[i];
        if (bad->place.segment == item->segment && bad->place.segment != 0 &&
            bad->place.offset_bytes == item->disk_offset) {
            return bad;
        }
    }
    return NULL;
}

static void bad_place_clear(struct tierer *self, struct ti_bad_place *bad)
{
    *bad = (struct ti_bad_place){0};
    self->bad_place_count--;
}

void ti_health_read_failed(struct tierer *self, const struct ti_item *item, int os_code)
{
    struct ti_bad_place *bad = bad_place_find(self, item);
    health_report_failure(self, "read", os_code);
    self->probe.doubted = true;
    if (bad == NULL) { /* the table is a ring: an overwritten place starts at 0 again */
        bad = &self->bad_places[self->bad_place_next++ % TI_BAD_PLACES_MAX];
        self->bad_place_count += bad->place.segment == 0;
        *bad =
            (struct ti_bad_place){.place = {item->segment, item->disk_offset}, .hash = item->hash};
    }
    bad->suspect = true;
}

void ti_health_read_ok(struct tierer *self, const struct ti_item *item)
{
    struct ti_bad_place *bad = bad_place_find(self, item);
    if (bad != NULL) {
        bad_place_clear(self, bad);
    }
}

static void bad_place_settle(struct tierer *self, struct ti_bad_place *bad, bool disk_is_well)
{
    const struct ti_entry *entry = ti_entries_find(self->entries, bad->hash);
    bad->probed = false;
    bad->failures += disk_is_well;
    if (bad->failures < TI_BAD_PLACE_FAILURES) {
        return;
    }
    sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                 "disk: log file segment.%u at %" PRIu64
                 " cannot be read on an otherwise healthy disk: given up",
                 bad->place.segment, bad->place.offset_bytes);
    sl_metric_add(self->env->metrics, self->metrics.unreadable, 1);
    if (entry != NULL && !ti_place_after(ti_entry_place(entry), bad->place)) {
        ti_entries_kill(self->entries, bad->hash); /* the next read is answered NOT_FOUND */
    }
    bad_place_clear(self, bad);
}

/* Whether no write can prove that the disk works again: nothing is queued, no footer is due, and
 * for a while refused requests have not been repeated. */
static bool nothing_to_write(const struct tierer *self)
{
    bool footer_due = false;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        const struct ti_segment *segment = &self->segments[i];
        footer_due = footer_due || (segment->failed && segment->state != TI_SEGMENT_SEALED &&
                                    !segment->records_lost);
    }
    return self->waiting.count == 0 && self->active.count == 0 && !footer_due &&
           self->spare.state != TI_SPARE_MAKING &&
           self->env->now_ns >= sl_deadline_ns(self->blocked_until_ns, TI_HEALTH_STALL_NS);
}

static bool probe_wanted(const struct tierer *self)
{
    return self->probe.doubted || (self->degraded && !self->stalled && nothing_to_write(self));
}

void ti_health_probe(struct tierer *self)
{
    struct ti_probe *probe = &self->probe;
    if (probe->busy || self->env->now_ns < probe->at_ns || !probe_wanted(self)) {
        return;
    }
    if (self->segment_count == 0) { /* nothing to read */
        probe->doubted = false;
        probe->refused = false;
        ti_health_write_ok(self);
        return;
    }
    /* Another file each time: the place that is read may be bad itself. */
    struct ti_segment *segment = &self->segments[probe->turn++ % self->segment_count];
    probe->at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_PROBE_NS);
    if (segment->leaving) {
        return;
    }
    struct sl_disk_request request = {.verb = SL_DISK_READ,
                                      .file = segment->file,
                                      .memory = probe->page,
                                      .length_bytes = SL_PAGE_BYTES};
    if (!ti_io_start(self, TI_IO_PROBE, NULL, 0, &request)) {
        return; /* all slots are in use: the end of a request calls this again */
    }
    segment->reads++;
    probe->segment = segment->number;
    probe->busy = true;
    for (uint32_t i = 0; i < TI_BAD_PLACES_MAX; i++) {
        struct ti_bad_place *bad = &self->bad_places[i];
        bad->probed = bad->suspect;
        bad->suspect = false;
    }
}

void ti_health_probed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    (void)io;
    struct ti_probe *probe = &self->probe;
    struct ti_segment *segment = ti_log_segment(self, probe->segment);
    bool well = os_code == 0 && bytes == SL_PAGE_BYTES;
    bool doubted = probe->doubted;
    SL_ASSERT(segment != NULL); /* a file stays while it is read */
    segment->reads--;
    probe->busy = false;
    probe->refused = !well;
    probe->doubted = !well;
    for (uint32_t i = 0; i < TI_BAD_PLACES_MAX; i++) {
        if (self->bad_places[i].probed) {
            bad_place_settle(self, &self->bad_places[i], well);
        }
    }
    if (!well) {
        health_report_failure(self, "read of a probe", os_code != 0 ? os_code : EIO);
    } else if (self->degraded && nothing_to_write(self)) {
        ti_health_write_ok(self);
    } else if (doubted) {
        health_report_recovery(self);
    }
}

static uint64_t oldest_request_ns(const struct tierer *self)
{
    uint64_t oldest_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->ios_in_flight > 0 && i < TI_IOS_MAX; i++) {
        const struct ti_io *io = &self->ios[i];
        oldest_ns = io->kind != TI_IO_FREE ? SL_MIN(oldest_ns, io->started_ns) : oldest_ns;
    }
    return oldest_ns;
}

void ti_health_check_stall(struct tierer *self)
{
    uint64_t oldest_ns = oldest_request_ns(self);
    bool stalled = oldest_ns != SL_NEVER_NS && self->env->now_ns >= oldest_ns + TI_HEALTH_STALL_NS;
    if (stalled && !self->stalled) {
        self->stalled = true;
        ti_health_failed(self, "no answer for 5 s", ETIMEDOUT);
    } else if (!stalled && self->stalled) {
        self->stalled = false;
        ti_health_write_ok(self);
    }
    /* Making a file is no request of the ring. It delays only requests that wait for the file. */
    const struct ti_spare *spare = &self->spare;
    if (!self->degraded && self->waiting.count > 0 && spare->state == TI_SPARE_MAKING &&
        self->env->now_ns >= sl_deadline_ns(spare->started_ns, TI_HEALTH_STALL_NS)) {
        ti_health_failed(self, "no new segment for 5 s", ETIMEDOUT);
    }
    ti_log_refuse(self);
}

void ti_health_check_directory(struct tierer *self)
{
    struct sl_error why = {0};
    if (self->gone || self->disk->ops->present == NULL ||
        self->disk->ops->present(self->disk, &why) != SL_ERR_NOT_FOUND) {
        return;
    }
    sl_metrics_health(self->env->metrics, SL_HEALTH_DEGRADED, why.text);
    sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: %s, restarting", why.text);
    self->gone = true;
}

uint64_t ti_health_next_ns(const struct tierer *self)
{
    /* Once a second is enough, also for probes; an idle disk costs nothing. */
    bool busy = self->ios_in_flight > 0 || self->degraded || self->probe.doubted ||
                (self->spare.state == TI_SPARE_MAKING && self->waiting.count > 0);
    return busy ? self->env->now_ns + SL_NS_PER_S : SL_NEVER_NS;
}
