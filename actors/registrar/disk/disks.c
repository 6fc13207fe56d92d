/* actors/registrar/disk/disks.c - see disks.h.
 *
 * A path is an entry of disk_path; tierer.N serves path N. The disk under it has a name of its own,
 * which the tierer reports when its scan begins. Only then is the disk known: the operator may have
 * changed the list, its order, or what is mounted. Places in the index name the disk's slot, and a
 * note maps the slot to the name. Until every path has reported, the slot REG_DISK_UNKNOWN
 * represents the disks that may still come. */
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/presence/peers.h"
#include "runtime/disk/sl_disk_place.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(REG_DISK_UNKNOWN >= SL_DISK_PATHS_MAX, "a slot for each path");
_Static_assert(REG_DISKS_MAX <= 16, "sets of disks are words of 16 bits");

#define DISK_NOTE_VERSION 1u
struct disk_note {
    uint32_t version;
    uint32_t slot;
    struct sl_proc_id proc;
    struct reg_disk_name name;
};

static const struct reg_disk disk_empty = {
    .path = REG_NONE,
    .tierer = REG_NONE,
    .batch_items = REG_WRITE_ITEMS_MAX,
    .fetches = {{REG_NONE, REG_NONE}, {REG_NONE, REG_NONE}},
};

static void disks_init(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    struct reg_tier *tier = self->tier;
    tier->on = self->set.disk > 0;
    struct sl_disk_sizes sizes = {.segment_bytes = sl_config_u64(config, SL_SET_disk_segment)};
    (void)sl_disk_sizes(config, &sizes, NULL); /* wrong sizes end the tierer, which reports them */
    tier->segment_bytes = sizes.segment_bytes;
    tier->budget_bytes = sl_config_u64(config, SL_SET_disk_write_budget);
    tier->path_count = tier->on ? SL_MIN(sl_config_disk_count(config), SL_DISK_PATHS_MAX) : 0;
    /* A batch is one frame of a log file. */
    tier->batch_bytes_max = SL_MIN(REG_WRITE_BYTES_MAX, tier->segment_bytes / 2);
    tier->scan_until_ns = tier->on ? sl_deadline_ns(self->env->now_ns, REG_DISK_SCAN_NS) : 0;
    tier->witness_until_ns = sl_deadline_ns(self->env->now_ns, REG_DISK_WITNESS_NS);
    for (uint32_t i = 0; i < tier->path_count; i++) {
        tier->paths[i] = (struct reg_path){
            .peer = REG_NONE, .disk = REG_NONE, .absent_since_ns = self->env->now_ns};
    }
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        tier->disks[i] = disk_empty;
        tier->disks[i].absent_since_ns = self->env->now_ns;
    }
    tier->disks[REG_DISK_UNKNOWN].used = tier->on;
    self->env->starting = tier->on;
}

/* ---- slots ---- */

uint16_t reg_disks_used(const struct registrar *self)
{
    uint16_t used = 0;
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        used = (uint16_t)(disk->used && !disk->gone ? used | REG_DISK_BIT(i) : used);
    }
    return used;
}

/* Restores which disk has a slot from a note of the index. */
static sl_err disk_restore(struct registrar *self, sl_ref ref, const void *bytes,
                           uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct disk_note note = {0};
    if (length_bytes == sizeof(note)) {
        memcpy(&note, bytes, sizeof(note));
    }
    if (!self->tier->on || note.version != DISK_NOTE_VERSION || note.slot >= REG_DISK_UNKNOWN) {
        return SL_ERR_FOREIGN;
    }
    struct reg_disk *disk = &self->tier->disks[note.slot];
    if (disk->note != 0) { /* killed between the new note and the end of the old one */
        sl_index_set_kind(self->index, disk->note, SL_RECORD_FREE);
    }
    disk->used = true;
    disk->name = note.name;
    disk->proc = note.proc;
    disk->note = ref;
    return SL_OK;
}

static sl_err disk_remember(struct registrar *self, uint32_t slot, struct sl_error *why)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    const struct disk_note note = {
        .version = DISK_NOTE_VERSION, .slot = slot, .proc = disk->proc, .name = disk->name};
    return reg_note_put(self, &note, sizeof(note), REG_BLOB_DISK, &disk->note, why);
}

static uint32_t disk_find(const struct registrar *self, const struct reg_disk_name *name)
{
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        if (disk->used && disk->note != 0 && memcmp(&disk->name, name, sizeof(*name)) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

/* A free slot, or one that an earlier registrar did not finish assigning; REG_NONE: none. */
static uint32_t disk_slot(const struct registrar *self)
{
    uint32_t slot = REG_NONE;
    for (uint32_t i = REG_DISK_UNKNOWN; i-- > 0;) {
        const struct reg_disk *disk = &self->tier->disks[i];
        slot = disk->used && (disk->note != 0 || disk->place_count > 0) ? slot : i;
    }
    return slot;
}

/* ---- paths ---- */

static uint32_t path_of_peer(const struct registrar *self, uint32_t peer)
{
    char name[REG_NAME_BYTES];
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        (void)snprintf(name, sizeof(name), "tierer.%u", i);
        if (strcmp(name, self->peers->all[peer].name) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_path_of(const struct registrar *self, const struct sl_msg *msg)
{
    uint32_t peer = reg_peer_find(self, msg->sender.at, msg->sender.length);
    if (peer == REG_NONE || !self->peers->all[peer].tierer || !self->peers->all[peer].present) {
        return REG_NONE;
    }
    return path_of_peer(self, peer);
}

/* Requests of an earlier registrar, or resent ones of ours to an earlier tierer, may still be in
 * flight. A write that reached the disk after the scan would have no record. So the scan begins
 * when all of these have arrived, and ends when they are done. */
void reg_path_fence(struct registrar *self, uint32_t at)
{
    struct reg_path *path = &self->tier->paths[at];
    struct sl_msg fence = {.type = SL_MSG_FENCE}; /* without op and claims: for everything */
    if (path->fence_seq != 0) {
        sl_calls_drop(self->calls, path->fence_seq);
    }
    if (sl_calls_send(self->calls, self->peers->all[path->peer].name, &fence, SL_NEVER_NS,
                      reg_cookie(REG_CALL_DISK_FENCE, at), &path->fence_seq) != SL_OK) {
        path->fence_seq = UINT64_MAX; /* no call is free: the next DISK_FOUND retries */
    }
}

static void disk_fenced(struct registrar *self, uint32_t path, const struct sl_msg *msg)
{
    sl_err code = msg->code;
    self->tier->paths[path].fenced_seq = code == SL_OK ? self->tier->paths[path].fence_seq : 0;
    self->tier->paths[path].fence_seq = 0;
    if (code != SL_OK) {
        reg_path_fence(self, path);
    }
}

static void path_unbind(struct registrar *self, struct reg_path *path)
{
    if (path->disk != REG_NONE) {
        self->tier->disks[path->disk].path = REG_NONE;
        path->disk = REG_NONE;
    }
}

static void path_bind(struct registrar *self, uint32_t at, uint32_t slot)
{
    struct reg_path *path = &self->tier->paths[at];
    struct reg_disk *disk = &self->tier->disks[slot];
    if (disk->path != REG_NONE) {
        self->tier->paths[disk->path].disk = REG_NONE;
    }
    path->disk = slot;
    disk->path = at;
    disk->tierer = path->peer;
    disk->scan_open = false;
    disk->state = REG_DISK_SCANNING; /* until its scan ends */
}

static void disk_arrived(struct registrar *self, uint32_t peer, bool restored)
{
    (void)restored;
    if (!self->peers->all[peer].tierer) {
        return;
    }
    uint32_t at = self->tier->on ? path_of_peer(self, peer) : REG_NONE;
    if (at == REG_NONE) {
        if (self->tier->on) {
            reg_log(self, SL_LOG_WARN, 0, "%s: disk_path names %u directories, from 0 on",
                    self->peers->all[peer].name, self->tier->path_count);
        }
        return;
    }
    struct reg_path *path = &self->tier->paths[at];
    reg_members_left(self, at);
    path_unbind(self, path);
    path->peer = peer;
    path->here = true;
    path->trouble[0] = '\0';
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) { /* has this process reported a disk before? */
        const struct reg_disk *disk = &self->tier->disks[i];
        if (disk->used && disk->path == REG_NONE &&
            sl_proc_id_equal(disk->proc, self->peers->all[peer].proc)) {
            path_bind(self, at, i);
            break;
        }
    }
    reg_path_fence(self, at);
}

static void disk_left(struct registrar *self, uint32_t peer)
{
    if (!self->peers->all[peer].tierer) {
        return;
    }
    uint32_t at = self->tier->on ? path_of_peer(self, peer) : REG_NONE;
    if (at == REG_NONE || self->tier->paths[at].peer != peer) {
        return;
    }
    struct reg_path *path = &self->tier->paths[at];
    path->here = false;
    path->absent_since_ns = self->env->now_ns;
    reg_members_left(self, at);
    if (path->fence_seq != 0) {
        sl_calls_drop(self->calls, path->fence_seq);
        path->fence_seq = 0;
    }
    if (path->disk == REG_NONE) {
        return;
    }
    struct reg_disk *disk = &self->tier->disks[path->disk];
    disk->state = REG_DISK_ABSENT;
    disk->absent_since_ns = self->env->now_ns;
    disk->sweeping = false;
    disk->failing = false;
    disk->failing_since_ns = 0;
    disk->retry_ns = 0;
    disk->chosen_segment = 0;
    reg_notify_disk_left(self, path->disk);
}

/* ---- the disks under the paths ---- */

/* No path leads to the disk: its values become misses. Its tombstones are no longer needed, since
 * it begins empty if it returns (members.c). */
static void disk_leaves(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    reg_log(self, SL_LOG_WARN, 0,
            "a disk is not in disk_path any more: its %" PRIu64 " values are forgotten",
            disk->place_count);
    disk->gone = true;
    disk->state = REG_DISK_ABSENT;
    disk->sweeping = true;
    disk->sweep_segment = disk->sweep_at = 0;
    if (disk->tombstone_count > 0) {
        reg_members_change(self, true);
    }
    reg_notify_disk_left(self, slot);
}

void reg_disk_swept(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    free(disk->found);
    disk->found = NULL;
    if (disk->gone && disk->place_count == 0) {
        if (disk->note != 0) {
            sl_index_set_kind(self->index, disk->note, SL_RECORD_FREE);
        }
        *disk = disk_empty;
    }
}

/* Once every path has reported, there are no other disks. */
static void disks_settle(struct registrar *self)
{
    struct reg_tier *tier = self->tier;
    tier->settle_due = false;
    for (uint32_t i = 0; i < tier->path_count; i++) {
        if (tier->paths[i].disk == REG_NONE) {
            return;
        }
    }
    if (!reg_members_settled(self)) {
        tier->settle_due = true;
        return;
    }
    tier->settled = true;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (tier->disks[i].used && !tier->disks[i].gone && tier->disks[i].path == REG_NONE) {
            disk_leaves(self, i);
        }
    }
    if (tier->disks[REG_DISK_UNKNOWN].used) {
        tier->disks[REG_DISK_UNKNOWN].gone = true;
        reg_notify_disk_left(self, REG_DISK_UNKNOWN);
        tier->disks[REG_DISK_UNKNOWN].used = false;
    }
}

/* A disk without a name is identified by its path. */
static struct reg_disk_name name_of(uint32_t path, const struct sl_bytes *reported)
{
    struct reg_disk_name name = {{0}};
    if (reported->length == sizeof(name.bytes)) {
        memcpy(name.bytes, reported->at, sizeof(name.bytes));
    } else {
        (void)snprintf((char *)name.bytes, sizeof(name.bytes), "path %u", path);
    }
    return name;
}

sl_err reg_disk_identify(struct registrar *self, uint32_t at,
                         const struct sl_body_disk_found *found, struct sl_error *why)
{
    struct reg_tier *tier = self->tier;
    struct reg_path *path = &tier->paths[at];
    struct reg_disk_name name = name_of(at, &found->store);
    uint32_t slot = disk_find(self, &name);
    bool fresh = slot == REG_NONE;
    if (!fresh && tier->disks[slot].path != REG_NONE && tier->disks[slot].path != at &&
        tier->paths[tier->disks[slot].path].here) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "the directories of tierer.%u and tierer.%u are the same, or copies", at,
                       tier->disks[slot].path);
    }
    sl_err verdict = reg_members_judge(self, at, found, why);
    if (verdict != SL_OK) {
        return verdict;
    }
    slot = fresh ? disk_slot(self) : slot;
    if (slot == REG_NONE) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "all %u slots of disks are taken: restart the node without its memory",
                       REG_DISK_UNKNOWN);
    }
    if (fresh && tier->disks[REG_DISK_UNKNOWN].used && !reg_tombstones_copy(self, slot)) {
        return sl_fail(why, SL_ERR_BUSY, "removals from before the disk came find no room yet");
    }
    struct reg_disk *disk = &tier->disks[slot];
    struct reg_disk before = *disk;
    disk->used = true;
    disk->gone = false;
    disk->born = disk->born || (fresh && found->blank);
    disk->name = name;
    disk->proc = self->peers->all[path->peer].proc;
    bool known = disk->note != 0 && sl_proc_id_equal(before.proc, disk->proc);
    sl_err err = known ? SL_OK : disk_remember(self, slot, why);
    if (err != SL_OK) {
        *disk = before;
        return err;
    }
    if (path->disk != slot) {
        path_unbind(self, path);
        path_bind(self, at, slot);
    }
    disks_settle(self);
    return SL_OK;
}

/* ---- state of disks ---- */

bool reg_disk_usable(const struct registrar *self, uint32_t disk)
{
    return self->tier->disks[disk].used && self->tier->disks[disk].state == REG_DISK_READY;
}

bool reg_disk_readable(const struct registrar *self, uint32_t disk)
{
    return self->tier->disks[disk].used && self->tier->disks[disk].state != REG_DISK_ABSENT;
}

bool reg_disk_unreachable(const struct registrar *self, uint32_t disk)
{
    const struct reg_disk *at = &self->tier->disks[disk];
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (self->tier->paths[i].here && self->tier->paths[i].disk == REG_NONE) {
            return false; /* its tierer may be about to report this disk */
        }
    }
    return at->state == REG_DISK_ABSENT &&
           self->env->now_ns - at->absent_since_ns > REG_DISK_ABSENT_NS;
}

bool reg_disk_lost(const struct registrar *self, uint32_t disk)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        if (disk == REG_DISK_UNKNOWN && path->disk == REG_NONE &&
            self->env->now_ns - path->absent_since_ns <= REG_DISK_ABSENT_NS) {
            return false;
        }
    }
    return self->tier->disks[disk].used && reg_disk_unreachable(self, disk);
}

bool reg_tier_lost(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        if (path->here || self->env->now_ns - path->absent_since_ns <= REG_DISK_ABSENT_NS) {
            return false;
        }
    }
    return self->tier->on;
}

bool reg_disks_writable(const struct registrar *self)
{
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (reg_disk_usable(self, i) && !self->tier->disks[i].failing) {
            return true;
        }
    }
    return false;
}

static bool disks_ready(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        uint32_t disk = self->tier->paths[i].disk;
        if (disk == REG_NONE || !reg_disk_usable(self, disk)) {
            return false;
        }
    }
    return self->tier->on;
}

bool reg_disks_scanned(const struct registrar *self, bool whole)
{
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        if (disk->used && !disk->gone && (!disk->scanned || (whole && disk->missed))) {
            return false;
        }
    }
    return true;
}

int64_t reg_disk_budget_left(const struct registrar *self, uint32_t disk)
{
    const struct reg_disk *at = &self->tier->disks[disk];
    uint64_t day_bytes = self->tier->budget_bytes;
    if (day_bytes == 0) {
        return INT64_MAX;
    }
    double since = (double)(self->env->now_ns - at->budget_set_ns) / (double)(86400 * SL_NS_PER_S);
    double left = (double)at->budget_left_bytes + since * (double)day_bytes;
    left = fmin(left, (double)day_bytes);
    return (int64_t)left - (int64_t)at->write_bytes;
}

void reg_disk_budget_set(struct registrar *self, uint32_t disk, uint64_t left_bytes,
                         uint64_t debt_bytes)
{
    struct reg_disk *at = &self->tier->disks[disk];
    at->budget_left_bytes =
        debt_bytes > 0 ? -(int64_t)SL_MIN(debt_bytes, (uint64_t)INT64_MAX) : (int64_t)left_bytes;
    at->budget_set_ns = self->env->now_ns;
}

static bool path_failed(const struct registrar *self, const struct reg_path *path, uint64_t for_ns)
{
    const struct reg_disk *disk =
        path->disk != REG_NONE ? &self->tier->disks[path->disk] : &disk_empty;
    uint64_t now_ns = self->env->now_ns;
    bool serves = path->here && disk->state == REG_DISK_READY;
    return (!serves && now_ns - path->absent_since_ns > for_ns) ||
           (disk->failing_since_ns != 0 && now_ns - disk->failing_since_ns > for_ns);
}

/* False once every path has failed for REG_DISK_ABSENT_NS: eviction then needs no copies. */
static bool disk_required(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (!path_failed(self, &self->tier->paths[i], REG_DISK_ABSENT_NS)) {
            return true;
        }
    }
    return false;
}

/* Reads the metrics page of a path's tierer. False: there is none. */
static bool path_page(const struct registrar *self, uint32_t at, struct sl_metrics_summary *out)
{
    char page[sizeof(self->env->paths->shm_dir) + REG_NAME_BYTES];
    struct sl_metrics_view *view = NULL;
    (void)snprintf(page, sizeof(page), "%s/metrics.tierer.%u", self->env->paths->shm_dir, at);
    if (sl_metrics_view_open(page, &view, NULL) != SL_OK) {
        return false;
    }
    sl_metrics_view_summary(view, out);
    sl_metrics_view_close(&view);
    return true;
}

/* The tierer's metrics page has the reason until its next start, and while it reads its log. */
static const char *path_failure_reason(struct registrar *self, uint32_t at)
{
    struct sl_metrics_summary summary;
    struct reg_path *path = &self->tier->paths[at];
    if (!path_page(self, at, &summary) || summary.reason[0] == '\0') {
        return path->trouble;
    }
    if (summary.health == SL_HEALTH_STOPPED) {
        (void)snprintf(path->trouble, sizeof(path->trouble), "%s", summary.reason);
    } else if (summary.health == SL_HEALTH_DEGRADED) {
        /* without the numbers, whose changes would each be a new reason and log line */
        (void)snprintf(path->trouble, sizeof(path->trouble), "%.*s",
                       (int)strcspn(summary.reason, ","), summary.reason);
    }
    return path->trouble;
}

/* Whether the tierer still reads its log: startup does not wait for that. */
static bool path_reads_log(const struct registrar *self, uint32_t at)
{
    struct sl_metrics_summary summary;
    return !self->tier->paths[at].here && path_page(self, at, &summary) &&
           summary.health == SL_HEALTH_DEGRADED;
}

/* Writes what is wrong with the disks to `out`. False: nothing. */
static bool disks_health(struct registrar *self, char *out, size_t room)
{
    out[0] = '\0';
    for (uint32_t i = 0; i < self->tier->path_count && out[0] == '\0'; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        bool lost = reg_tier_lost(self);
        const char *others = lost                         ? ""
                             : self->tier->path_count > 1 ? ", the other disks serve"
                                                          : "";
        if (path->disk != REG_NONE && self->tier->disks[path->disk].failing_since_ns != 0) {
            (void)snprintf(out, room, "disk of tierer.%u full or failing: writes are refused%s", i,
                           others);
        } else if (!path->here &&
                   self->env->now_ns - path->absent_since_ns > self->set.fence_timeout_ns) {
            const char *trouble = path_failure_reason(self, i);
            (void)snprintf(out, room, "%stierer.%u not reachable%s%s%s",
                           lost ? "no disk tier: " : "", i, others, trouble[0] != '\0' ? ": " : "",
                           trouble);
        }
    }
    return out[0] != '\0';
}

static uint64_t disks_next(const struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t next_ns = self->tier->groups_until_ns != 0 ? self->tier->groups_until_ns : SL_NEVER_NS;
    if (self->tier->scan_until_ns > now_ns) {
        next_ns = SL_MIN(next_ns, now_ns + REG_DISK_POLL_NS);
    }
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        if (disk->retry_ns > now_ns) {
            next_ns = SL_MIN(next_ns, disk->retry_ns);
        }
        if (disk->tombstone_count > 0 && disk->tombstone_retry_ns > now_ns) {
            next_ns = SL_MIN(next_ns, disk->tombstone_retry_ns);
        }
        if (disk->sweeping) {
            next_ns = SL_MIN(next_ns, now_ns + SL_NS_PER_MS);
        }
    }
    return next_ns;
}

/* ---- the part ---- */

static void disks_after(struct registrar *self)
{
    if (self->tier->settle_due) {
        disks_settle(self);
    }
}

static void disks_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->tier->metric.disk_object_count, self->tier->place_count);
    sl_metric_set(page, self->tier->metric.disk_ready, disks_ready(self));
    sl_metric_set(page, self->tier->metric.segment_count, self->tier->segment_count);
}

/* Values that are only on disk are misses until their tierer has reported them. */
static const char *disks_starting(const struct registrar *self)
{
    bool scanning = self->env->now_ns < self->tier->scan_until_ns && !reg_tier_lost(self);
    for (uint32_t i = 0; scanning && i < self->tier->path_count; i++) {
        scanning = !path_reads_log(self, i);
        self->tier->scan_until_ns = scanning ? self->tier->scan_until_ns : 0; /* 0: never again */
    }
    return scanning ? "the disks are not scanned yet" : NULL;
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_tier, disk_object_count),
    REG_METRIC(reg_tier, disk_ready),
    SL_METRIC_ROW(reg_tier, metric.segment_count, "disk_segment_count"),
    REG_METRIC(reg_tier, corrupt_count),
    REG_METRIC(reg_tier, rewritten_count),
};

static const struct reg_call calls[] = {
    {.kind = REG_CALL_DISK_FENCE, .reply = disk_fenced},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_DISK, disk_restore},
};

const struct reg_part reg_disks_part = {
    .name = "disks",
    REG_STATE(tier, reg_tier),
    REG_METRICS(metrics),
    REG_CALLS(calls),
    REG_BLOBS(blobs),
    .settings = disks_init,
    .after = disks_after,
    .next_ns = disks_next,
    .arrived = disk_arrived,
    .left = disk_left,
    .copy_required = disk_required,
    .gauges = disks_gauges,
    .health = disks_health,
    .starting = disks_starting,
};
