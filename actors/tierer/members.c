/* actors/tierer/members.c - the small file beside the log: the disk's name, the disks that have
 * missed no removal, the newest log file with tombstones, and the write account. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGES (TI_MEMBERS_BYTES / SL_PAGE_BYTES)

static struct sl_digest members_digest(const struct ti_members *page)
{
    struct ti_members copy = *page;
    copy.digest = (struct sl_digest){0};
    return ti_page_digest(&copy, sizeof(copy));
}

static bool page_right(const struct ti_members *page)
{
    return page->magic == TI_MEMBERS_MAGIC && sl_digest_equal(page->digest, members_digest(page)) &&
           page->count <= TI_MEMBERS_MAX && page->sequence != 0 && page->epoch != 0;
}

static void name_make(struct tierer *self, unsigned char *name)
{
    for (size_t i = 0; i < sizeof(self->store); i++) {
        name[i] = (unsigned char)self->env->ops->random_u64(self->env);
    }
}

sl_err ti_members_open(struct tierer *self, struct sl_error *why)
{
    struct ti_members_file *members = &self->members;
    struct ti_members *page = (void *)self->frame_buffer;
    struct sl_error missing = {0};
    uint64_t bytes = 0;
    bool unreadable = false;
    sl_err err = self->disk->ops->open(self->disk, TI_MEMBERS_NAME, false, 0, &members->file,
                                       &bytes, &missing);
    if (err != SL_OK && missing.os_code == ENOENT) {
        members->file = -1;
        name_make(self, self->store);
        return SL_OK;
    }
    if (err != SL_OK) {
        members->file = -1;
        return sl_fail_os(why, missing.os_code, "disk: open '%s'", TI_MEMBERS_NAME);
    }
    for (uint64_t at = 0; at + SL_PAGE_BYTES <= bytes && at < TI_MEMBERS_BYTES;
         at += SL_PAGE_BYTES) {
        if (!ti_file_read(self, members->file, page, at, SL_PAGE_BYTES)) {
            unreadable = true;
        } else if (page_right(page) && page->sequence > members->now.sequence) {
            members->now = *page;
        }
        members->damaged = members->damaged || unreadable || page->magic != 0;
    }
    members->there = members->now.sequence != 0;
    members->damaged = members->damaged && !members->there;
    if (members->there && members->now.version != TI_FORMAT) {
        return sl_fail(why, SL_ERR_VERSION,
                       "disk: '%s' has format %u, this program (sluice " SL_VERSION
                       ") knows %u: " TI_FORMAT_WAY_OUT,
                       TI_MEMBERS_NAME, members->now.version, TI_FORMAT);
    }
    if (!members->there && unreadable) { /* it may say that no file here counts */
        return sl_fail(why, SL_ERR_IO, "disk: '%s' cannot be read", TI_MEMBERS_NAME);
    }
    if (members->there) {
        memcpy(self->store, members->now.store, sizeof(self->store));
    } else {
        name_make(self, self->store);
    }
    return SL_OK;
}

void ti_reads_begin(struct tierer *self)
{
    uint64_t page = self->members.now.sequence % (PAGES / 2); /* and its copy are the newest */
    self->other = (struct sl_disk_other){self->members.file, {page, page + PAGES / 2}};
    self->read_pauses_left = TI_READ_PAUSES_MAX;
    self->unread = SL_OK;
}

void ti_members_close(struct tierer *self)
{
    if (self->members.file >= 0) {
        self->disk->ops->close(self->disk, self->members.file);
    }
    self->members.file = -1;
    free(self->members.next);
    self->members.next = NULL;
}

struct sl_bytes ti_members_report(struct tierer *self)
{
    struct ti_members_file *members = &self->members;
    struct ti_member *report = members->report;
    memcpy(report[0].store, self->store, sizeof(self->store));
    report[0].epoch = members->there ? members->now.epoch : 0;
    memcpy(&report[1], members->now.list, sizeof(members->now.list));
    return (struct sl_bytes){(const void *)report,
                             (1 + members->now.count) * sizeof(struct ti_member)};
}

/* ---- writing ---- */

static void list_begin_later(struct tierer *self);

static void members_end(struct tierer *self, int os_code)
{
    struct ti_members_file *members = &self->members;
    struct sl_msg reply = {.code = SL_OK};
    bool ours = members->ours;
    uint32_t segment = members->next->tombstone_segment;
    if (os_code != 0) {
        reply.code = ti_is_no_room(os_code) ? SL_ERR_NO_SPACE : SL_ERR_IO;
        ti_segments_failed(self, "members", os_code);
    } else {
        members->emptied = memcmp(members->next->store, self->store, sizeof(self->store)) != 0;
        members->now = *members->next;
        members->there = true;
    }
    free(members->next);
    members->next = NULL;
    members->ours = false;
    ti_budget_noted(self, os_code);
    if (ours) {
        ti_log_frame_named(self, segment, os_code);
        list_begin_later(self);
    } else {
        sl_reply_route_send(self->env, &members->back, &reply);
    }
    if (members->emptied) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: absent while other disks of this node were in use: its %" PRIu64
                     " values are given up, restarting empty",
                     ti_entries_live_count(self->entries));
    }
}

void ti_members_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct ti_members_file *members = &self->members;
    bool cut = io->kind == TI_IO_MEMBERS && os_code == 0 && bytes != SL_PAGE_BYTES;
    members->os_code = members->os_code != 0 ? members->os_code : cut ? EIO : os_code;
    members->ios--;
    if (members->ios > 0) {
        return;
    }
    struct sl_disk_request sync = {.verb = SL_DISK_SYNC, .file = members->file};
    if (io->kind == TI_IO_MEMBERS && members->os_code == 0) {
        if (ti_io_start(self, TI_IO_MEMBERS_SYNC, NULL, 0, &sync)) {
            members->ios++;
            return;
        }
        members->os_code = EAGAIN;
    }
    members_end(self, members->os_code);
}

/* The successor of the current page, otherwise equal to it. NULL: no memory. */
static struct ti_members *page_next(struct tierer *self)
{
    const struct ti_members_file *members = &self->members;
    struct ti_members *page = aligned_alloc(SL_PAGE_BYTES, sizeof(*page));
    if (page != NULL) {
        *page = members->now;
        page->magic = TI_MEMBERS_MAGIC;
        page->version = TI_FORMAT;
        page->sequence = members->now.sequence + 1;
        if (!members->there) { /* once emptied, the disk keeps its present name */
            memcpy(page->store, self->store, sizeof(page->store));
        }
        ti_budget_note(self, &page->account);
    }
    return page;
}

static sl_err page_make(struct tierer *self, const struct sl_body_disk_members *body)
{
    struct ti_members *page = page_next(self);
    if (page == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    page->count = (uint32_t)(body->members.length / sizeof(page->list[0]));
    page->epoch = body->epoch;
    if (body->empty) { /* nothing on the disk counts any more, nor do lost tombstones */
        name_make(self, page->store);
        page->tombstone_segment = 0;
        page->tombstone_sequence = 0;
    }
    memset(page->list, 0, sizeof(page->list));
    if (page->count > 0) {
        memcpy(page->list, body->members.at, page->count * sizeof(page->list[0]));
    }
    page->digest = members_digest(page);
    self->members.next = page;
    return SL_OK;
}

static void page_write(struct tierer *self)
{
    struct ti_members_file *members = &self->members;
    uint64_t slot = members->next->sequence % (PAGES / 2);
    members->os_code = 0;
    members->ios = 0;
    for (uint64_t page = slot; page < PAGES; page += PAGES / 2) {
        struct sl_disk_request write = {.verb = SL_DISK_WRITE,
                                        .file = members->file,
                                        .memory = members->next,
                                        .offset_bytes = page * SL_PAGE_BYTES,
                                        .length_bytes = SL_PAGE_BYTES};
        if (ti_io_start(self, TI_IO_MEMBERS, NULL, 0, &write)) {
            members->ios++;
        } else {
            members->os_code = EAGAIN;
        }
    }
    if (members->ios == 0) {
        members_end(self, members->os_code);
    }
}

static void file_make(struct tierer *self)
{
    struct sl_disk_request make = {.verb = SL_DISK_MAKE,
                                   .file = -1,
                                   .name = TI_MEMBERS_NAME,
                                   .length_bytes = TI_MEMBERS_BYTES};
    if (!ti_io_start(self, TI_IO_MEMBERS_MAKE, NULL, 0, &make)) {
        members_end(self, EAGAIN);
    }
}

void ti_members_made(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct ti_members_file *members = &self->members;
    struct sl_error why = {0};
    (void)io;
    if (os_code == 0 && self->disk->ops->open(self->disk, TI_MEMBERS_NAME, false, 0, &members->file,
                                              &bytes, &why) != SL_OK) {
        members->file = -1;
        os_code = why.os_code != 0 ? why.os_code : EIO;
    }
    if (os_code != 0) {
        members_end(self, os_code);
        return;
    }
    self->foreign_bytes += members->unwritten_bytes;
    members->unwritten_bytes = 0;
    page_write(self);
}

/* Keeps the newest list; the sender of an earlier one no longer waits for an answer. */
static void list_keep(struct ti_members_file *members, const struct sl_msg *msg)
{
    const struct sl_body_disk_members *body = &msg->body.disk_members;
    members->later.there = true;
    members->later.empty = body->empty;
    members->later.epoch = body->epoch;
    members->later.bytes = SL_MIN(body->members.length, sizeof(members->later.list));
    if (members->later.bytes > 0) {
        memcpy(members->later.list, body->members.at, members->later.bytes);
    }
    sl_reply_route_keep(msg, &members->later.back);
}

static void list_begin_later(struct tierer *self)
{
    struct ti_members_file *members = &self->members;
    const struct sl_body_disk_members body = {
        .epoch = members->later.epoch,
        .empty = members->later.empty,
        .members = {(const void *)members->later.list, members->later.bytes}};
    if (!members->later.there) {
        return;
    }
    members->later.there = false;
    members->back = members->later.back;
    sl_err err = page_make(self, &body);
    if (err != SL_OK) {
        struct sl_msg reply = {.code = err};
        sl_reply_route_send(self->env, &members->back, &reply);
        return;
    }
    page_write(self);
}

void ti_members_take(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_members *body = &msg->body.disk_members;
    struct ti_members_file *members = &self->members;
    struct sl_error why = {0};
    sl_err err = SL_OK;
    if (members->next != NULL && !members->ours) {
        if (!sl_reply_route_matches(&members->back, msg)) {
            sl_reply_fail(self->env, msg, SL_ERR_BUSY, "a list is being written");
        }
        return; /* a repeated request: answered with the first */
    }
    if (body->members.length % sizeof(struct ti_member) != 0) {
        err = sl_fail(&why, SL_ERR_INVALID,
                      "DISK_MEMBERS.members: %" PRIu64 " bytes are no whole entries",
                      body->members.length);
    } else if (self->draining) {
        err = sl_fail(&why, SL_ERR_DRAINING, "the tierer stops");
    } else if (members->there && members->now.epoch == body->epoch && !body->empty) {
        sl_reply_code(self->env, msg, SL_OK, NULL); /* repeated after its answer */
        return;
    }
    if (err == SL_OK && members->file < 0 && !ti_segments_members_fit(self)) {
        err = sl_fail(&why, SL_ERR_BUSY, "no room for '%s' yet", TI_MEMBERS_NAME);
    }
    if (err == SL_OK && members->ours) {
        list_keep(members, msg);
        return;
    }
    err = err == SL_OK ? page_make(self, body) : err;
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    sl_reply_route_keep(msg, &members->back);
    if (members->file >= 0) {
        page_write(self);
    } else {
        file_make(self);
    }
}

void ti_members_name_frame(struct tierer *self, uint32_t segment, uint64_t sequence)
{
    struct ti_members_file *members = &self->members;
    if (members->next != NULL || !members->there || members->emptied) {
        return; /* called again when that page ends or a list arrives; emptied: nothing counts */
    }
    struct ti_members *page = page_next(self);
    if (page == NULL) {
        ti_log_frame_named(self, segment, ENOMEM);
        return;
    }
    page->tombstone_segment = segment;
    page->tombstone_sequence = sequence;
    page->digest = members_digest(page);
    members->next = page;
    members->ours = true;
    page_write(self);
}
