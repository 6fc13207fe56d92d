/* actors/registrar/disk/members.c - a disk that was away must not bring back what was removed
 * meanwhile.
 *
 * Every disk keeps a list of those that have missed nothing while it served; so does the index. A
 * disk that comes and is not in the list of one that is here begins empty, under another name. A
 * disk that no path leads to leaves the list before the next removal or new value counts: then it
 * has missed something.
 *
 * Each list has an epoch, by chance, and names the epochs of the others. It changes with the first
 * change after each start of an index and whenever a disk leaves. So a disk that came while another
 * one was away is known to it all the same: it names an epoch that the other one still has. */
#include "actors/registrar/disk/members.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/presence/peers.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_NOTE_VERSION 1u
#define MEMBERS_CALL_NS      (6 * SL_NS_PER_S) /* a disk that hangs answers after five */

_Static_assert(sizeof(struct reg_member) == 24, "as in messages");

struct members_note { /* a BLOB of the index */
    uint32_t version;
    uint32_t count;
    uint64_t epoch;
    uint32_t met; /* a bit each */
    uint32_t closed;
    struct reg_member list[REG_MEMBERS_MAX];
};

static const struct reg_member *member_find(const struct reg_member *list, uint32_t count,
                                            const struct reg_disk_name *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(&list[i].name, name, sizeof(*name)) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

static bool member_is_met(const struct reg_members *members, const struct reg_member *member)
{
    return member != NULL && members->met[member - members->list];
}

/* ---- the index's own list ---- */

/* A note of the index. */
static sl_err members_restore(struct registrar *self, sl_ref ref, const void *bytes,
                              uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct reg_members *members = &self->tier->members;
    struct members_note note = {0};
    if (length_bytes == sizeof(note)) {
        memcpy(&note, bytes, sizeof(note));
    }
    if (!self->tier->on || note.version != MEMBERS_NOTE_VERSION || note.count > REG_MEMBERS_MAX) {
        sl_index_set_kind(self->index, ref, SL_RECORD_FREE);
        return SL_OK;
    }
    if (members->note != 0) { /* killed between the new note and the end of the old one */
        sl_index_set_kind(self->index, members->note, SL_RECORD_FREE);
    }
    *members = (struct reg_members){
        .count = note.count, .closed = note.closed != 0, .epoch = note.epoch, .note = ref};
    memcpy(members->list, note.list, sizeof(note.list));
    for (uint32_t i = 0; i < note.count; i++) {
        members->met[i] = (note.met >> i & 1) != 0;
    }
    return SL_OK;
}

static sl_err members_remember(struct registrar *self, struct sl_error *why)
{
    struct reg_members *members = &self->tier->members;
    struct members_note note = {.version = MEMBERS_NOTE_VERSION,
                                .count = members->count,
                                .epoch = members->epoch,
                                .closed = members->closed};
    sl_ref fresh = 0;
    memcpy(note.list, members->list, sizeof(note.list));
    for (uint32_t i = 0; i < members->count; i++) {
        note.met |= (uint32_t)members->met[i] << i;
    }
    sl_err err = reg_note_put(self, &note, sizeof(note), REG_BLOB_MEMBERS, &fresh, why);
    if (err != SL_OK) {
        return err;
    }
    if (members->note != 0) {
        sl_index_set_kind(self->index, members->note, SL_RECORD_FREE);
    }
    members->note = fresh;
    return SL_OK;
}

static void member_drop(struct reg_members *members, uint32_t at)
{
    members->count--;
    members->list[at] = members->list[members->count];
    members->met[at] = members->met[members->count];
}

/* A full list loses one that is not here: it begins empty when it comes. */
static void member_add(struct reg_members *members, const struct reg_member *member, bool met)
{
    const struct reg_member *there = member_find(members->list, members->count, &member->name);
    for (uint32_t i = 0; there == NULL && members->count == REG_MEMBERS_MAX && i < members->count;
         i++) {
        if (!members->met[i]) {
            member_drop(members, i);
        }
    }
    if (there == NULL && members->count == REG_MEMBERS_MAX) {
        member_drop(members, 0);
    }
    uint32_t at = there != NULL ? (uint32_t)(there - members->list) : members->count++;
    members->met[at] = (there != NULL && members->met[at]) || met;
    members->list[at] = *member;
}

/* ---- judging ---- */

/* Whether disk has missed nothing that witness knows of. */
static bool vouched(const struct reg_standing *disk, const struct reg_standing *witness)
{
    const struct reg_member *seen = member_find(disk->list, disk->count, &witness->self.name);
    return witness->self.epoch == 0 ||
           member_find(witness->list, witness->count, &disk->self.name) != NULL ||
           (seen != NULL && seen->epoch == witness->self.epoch);
}

/* The same of the index, and with it of all that came while it was there. */
static bool vouched_by_index(const struct registrar *self, const struct reg_standing *disk)
{
    const struct reg_members *members = &self->tier->members;
    bool some = false;
    if (!members->closed || member_find(members->list, members->count, &disk->self.name) != NULL) {
        return true;
    }
    for (uint32_t i = 0; i < members->count; i++) {
        const struct reg_member *seen =
            member_find(disk->list, disk->count, &members->list[i].name);
        if (members->met[i] && (seen == NULL || seen->epoch != members->list[i].epoch)) {
            return false;
        }
        some = some || members->met[i];
    }
    return some;
}

static bool standing_is_open(const struct reg_standing *standing)
{
    return standing->told && standing->keeps && standing->verdict == REG_VERDICT_NONE;
}

static bool path_is_stale(const struct registrar *self, uint32_t at)
{
    const struct reg_standing *disk = &self->tier->paths[at].standing;
    if (disk->blank) {
        return false;
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_standing *other = &self->tier->paths[i].standing;
        if (i != at && standing_is_open(other) && !vouched(disk, other)) {
            return true;
        }
    }
    return !vouched_by_index(self, disk);
}

/* A disk that comes late may know that one which serves already has missed something. */
static void late_witness(struct registrar *self, const struct reg_standing *witness)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        struct reg_path *path = &self->tier->paths[i];
        struct reg_disk *disk = path->disk != REG_NONE ? &self->tier->disks[path->disk] : NULL;
        if (path->standing.verdict != REG_VERDICT_MEMBER || disk == NULL || disk->born ||
            vouched(&path->standing, witness)) {
            continue;
        }
        const struct reg_member *there = member_find(
            self->tier->members.list, self->tier->members.count, &path->standing.self.name);
        if (there != NULL) {
            member_drop(&self->tier->members, (uint32_t)(there - self->tier->members.list));
        }
        path->standing.verdict = REG_VERDICT_STALE;
        disk->stale = true;
    }
}

/* Who is not here is a member as long as everybody says so. */
static void members_merge(struct registrar *self, const struct reg_standing *told)
{
    struct reg_members *members = &self->tier->members;
    if (told->self.epoch == 0) {
        return;
    }
    for (uint32_t i = members->count; members->closed && i-- > 0;) {
        if (!members->met[i] &&
            memcmp(&members->list[i].name, &told->self.name, sizeof(told->self.name)) != 0 &&
            member_find(told->list, told->count, &members->list[i].name) == NULL) {
            member_drop(members, i);
        }
    }
    for (uint32_t i = 0; !members->closed && i < told->count; i++) {
        member_add(members, &told->list[i], false);
    }
    members->closed = true;
}

/* All that have told are judged at once: what one says of another counts, whatever becomes of it.
 */
static sl_err judge_all(struct registrar *self, struct sl_error *why)
{
    struct reg_members before = self->tier->members;
    enum reg_verdict verdicts[SL_DISK_PATHS_MAX] = {REG_VERDICT_NONE};
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (standing_is_open(&self->tier->paths[i].standing)) {
            verdicts[i] = path_is_stale(self, i) ? REG_VERDICT_STALE : REG_VERDICT_MEMBER;
        }
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (verdicts[i] != REG_VERDICT_NONE) {
            if (self->tier->paths[i].standing.self.epoch != 0) {
                late_witness(self, &self->tier->paths[i].standing);
            }
            members_merge(self, &self->tier->paths[i].standing);
        }
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        struct reg_standing *standing = &self->tier->paths[i].standing;
        if (verdicts[i] == REG_VERDICT_MEMBER) {
            member_add(&self->tier->members, &standing->self, true);
        }
    }
    sl_err err = members_remember(self, why);
    if (err != SL_OK) {
        self->tier->members = before;
        return err;
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (verdicts[i] != REG_VERDICT_NONE) {
            self->tier->paths[i].standing.verdict = verdicts[i];
        }
        if (verdicts[i] == REG_VERDICT_STALE) {
            reg_log(self, SL_LOG_WARN, 0,
                    "disk of tierer.%u was away while others served: what was removed meanwhile "
                    "may be there, so it begins empty",
                    i);
        }
    }
    return SL_OK;
}

static bool all_told(const struct registrar *self)
{
    bool all = true;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        all = all && self->tier->paths[i].standing.told;
    }
    return all || self->env->now_ns >= self->tier->witness_until_ns;
}

static sl_err standing_read(struct reg_standing *standing, const struct sl_body_disk_found *found,
                            struct sl_error *why)
{
    const struct sl_bytes *told = &found->members;
    uint64_t count = told->length / sizeof(struct reg_member);
    if (told->length % sizeof(struct reg_member) != 0 || count > 1 + REG_MEMBERS_MAX ||
        (count > 0 && (found->store.length != sizeof(struct reg_disk_name) ||
                       memcmp(told->at, found->store.at, found->store.length) != 0))) {
        return sl_fail(why, SL_ERR_INVALID, "DISK_FOUND.members: no list of the disk's own");
    }
    standing->told = true;
    standing->keeps = count > 0;
    standing->blank = found->blank;
    standing->count = count > 0 ? (uint32_t)count - 1 : 0;
    if (count > 0) {
        memcpy(&standing->self, told->at, sizeof(standing->self));
        memcpy(standing->list, (const unsigned char *)told->at + sizeof(standing->self),
               standing->count * sizeof(standing->list[0]));
    }
    return SL_OK;
}

sl_err reg_members_judge(struct registrar *self, uint32_t at,
                         const struct sl_body_disk_found *found, struct sl_error *why)
{
    struct reg_members *members = &self->tier->members;
    struct reg_standing *standing = &self->tier->paths[at].standing;
    if (standing->verdict == REG_VERDICT_NONE) {
        sl_err err = standing_read(standing, found, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (!standing->keeps || standing->verdict == REG_VERDICT_MEMBER) {
        return SL_OK;
    }
    const struct reg_member *known =
        member_find(members->list, members->count, &standing->self.name);
    if (standing->verdict == REG_VERDICT_NONE && member_is_met(members, known)) {
        standing->verdict = REG_VERDICT_MEMBER; /* it was judged when it came */
        members->list[known - members->list].epoch = standing->self.epoch;
        return SL_OK;
    }
    if (standing->verdict == REG_VERDICT_NONE && !all_told(self)) {
        return sl_fail(why, SL_ERR_BUSY,
                       "other disks have not told yet what they know of this one");
    }
    sl_err err = standing->verdict == REG_VERDICT_NONE ? judge_all(self, why) : SL_OK;
    if (err == SL_OK && standing->verdict == REG_VERDICT_STALE) {
        err = sl_fail(why, SL_ERR_BUSY, "the disk is being emptied");
    }
    return err;
}

/* ---- what changes ---- */

static bool member_is_here(const struct registrar *self, const struct reg_member *member)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_standing *standing = &self->tier->paths[i].standing;
        uint32_t disk = self->tier->paths[i].disk;
        if ((standing->told && standing->keeps &&
             memcmp(&standing->self.name, &member->name, sizeof(member->name)) == 0) ||
            (disk != REG_NONE &&
             memcmp(&self->tier->disks[disk].name, &member->name, sizeof(member->name)) == 0)) {
            return true;
        }
    }
    return false;
}

void reg_members_settled(struct registrar *self)
{
    struct reg_members *members = &self->tier->members;
    members->some_left = false;
    members->closed = members->closed || members->epoch != 0;
    for (uint32_t i = 0; i < members->count; i++) {
        members->some_left = members->some_left || !member_is_here(self, &members->list[i]);
    }
}

static bool path_knows(const struct registrar *self, const struct reg_path *path)
{
    return path->standing.self.epoch == self->tier->members.epoch;
}

static bool path_is_member(const struct reg_path *path)
{
    return path->here && path->disk != REG_NONE && path->standing.keeps &&
           path->standing.verdict == REG_VERDICT_MEMBER;
}

static void epoch_renew(struct registrar *self)
{
    struct sl_error why = {0};
    do {
        self->tier->members.epoch = self->env->ops->random_u64(self->env);
    } while (self->tier->members.epoch == 0);
    if (members_remember(self, &why) != SL_OK) {
        /* Disks know it soon. A registrar that does not makes another one. */
        reg_log(self, SL_LOG_WARN, 0, "no room in the index for the list of disks: %s", why.text);
    }
}

void reg_members_change(struct registrar *self, bool removed_or_new)
{
    struct reg_members *members = &self->tier->members;
    bool strikes = removed_or_new && members->some_left;
    if (!self->tier->on || (members->epoch != 0 && !strikes)) {
        return;
    }
    for (uint32_t i = members->count; strikes && i-- > 0;) {
        if (!member_is_here(self, &members->list[i])) {
            reg_log(self, SL_LOG_INFO, 0,
                    "a disk that has left misses what changes from here on: should it come back, "
                    "it begins empty");
            member_drop(members, i);
        }
    }
    members->some_left = members->some_left && !strikes;
    members->closed = members->closed || self->tier->settled;
    epoch_renew(self);
}

bool reg_members_agreed(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        if (path_is_member(path) && !path->standing.failed && !path_knows(self, path)) {
            return false;
        }
    }
    return true;
}

bool reg_members_knows(const struct registrar *self, uint32_t at)
{
    const struct reg_path *path = at != REG_NONE ? &self->tier->paths[at] : NULL;
    return path != NULL &&
           (!path->standing.keeps || (path_is_member(path) && path_knows(self, path)));
}

/* Others may have been told that it knows the list by now: they are told anew. */
static void path_is_silent(struct registrar *self, struct reg_path *path)
{
    bool was = path->standing.failed;
    path->standing.failed = true;
    if (!was && self->tier->members.epoch != 0 && !path_knows(self, path)) {
        epoch_renew(self);
    }
}

void reg_members_left(struct registrar *self, uint32_t at)
{
    struct reg_path *path = &self->tier->paths[at];
    if (path->standing.seq != 0) {
        sl_calls_forget(self->calls, path->standing.seq);
    }
    if (path->standing.verdict == REG_VERDICT_MEMBER) {
        path_is_silent(self, path);
    }
    path->standing = (struct reg_standing){0};
}

/* ---- telling ---- */

static void path_tell(struct registrar *self, uint32_t at)
{
    const struct reg_members *members = &self->tier->members;
    struct reg_path *path = &self->tier->paths[at];
    struct reg_standing *standing = &path->standing;
    struct reg_member list[REG_MEMBERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        if (memcmp(&members->list[i].name, &standing->self.name, sizeof(standing->self.name)) !=
            0) {
            list[count++] = members->list[i];
        }
        for (uint32_t k = 0; count > 0 && k < self->tier->path_count; k++) {
            const struct reg_path *other = &self->tier->paths[k];
            if (path_is_member(other) && !other->standing.failed && members->epoch != 0 &&
                memcmp(&list[count - 1].name, &other->standing.self.name, sizeof(list[0].name)) ==
                    0) {
                list[count - 1].epoch = members->epoch;
            }
        }
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_MEMBERS};
    bool empty = standing->verdict == REG_VERDICT_STALE;
    msg.body.disk_members.epoch =
        empty ? self->env->ops->random_u64(self->env) | 1 : members->epoch;
    msg.body.disk_members.members = (struct sl_bytes){(const void *)list, count * sizeof(list[0])};
    msg.body.disk_members.empty = empty;
    standing->sent = msg.body.disk_members.epoch;
    if (sl_calls_send(self->calls, self->peers->all[path->peer].name, &msg,
                      sl_deadline_ns(self->env->now_ns, MEMBERS_CALL_NS),
                      reg_cookie(REG_CALL_MEMBERS, at), &standing->seq) != SL_OK) {
        standing->seq = 0;
        standing->retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

static void members_pump(struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        bool stale = path->here && path->standing.verdict == REG_VERDICT_STALE;
        bool behind =
            path_is_member(path) && self->tier->members.epoch != 0 && !path_knows(self, path);
        if ((stale || behind) && path->standing.seq == 0 &&
            self->env->now_ns >= path->standing.retry_ns) {
            path_tell(self, i);
        }
    }
}

static void members_answered(struct registrar *self, uint32_t at, sl_err code)
{
    struct reg_path *path = &self->tier->paths[at];
    struct reg_standing *standing = &path->standing;
    struct reg_members *members = &self->tier->members;
    standing->seq = 0;
    if (code != SL_OK) {
        standing->retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
        if (code != SL_ERR_BUSY) {
            path_is_silent(self, path);
        }
        return;
    }
    if (standing->verdict != REG_VERDICT_MEMBER) {
        return; /* its tierer ends, and comes again with another disk */
    }
    standing->failed = false;
    standing->self.epoch = standing->sent;
    const struct reg_member *known =
        member_find(members->list, members->count, &standing->self.name);
    if (known != NULL) {
        members->list[known - members->list].epoch = standing->sent;
        (void)members_remember(self, NULL); /* the disk tells it again when it comes */
    }
}

uint64_t reg_members_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_standing *standing = &self->tier->paths[i].standing;
        if (standing->seq == 0 && standing->retry_ns > self->env->now_ns) {
            next_ns = SL_MIN(next_ns, standing->retry_ns);
        }
    }
    return next_ns;
}

/* ---- the part ---- */

static void members_reply(struct registrar *self, uint32_t path, const struct sl_msg *msg)
{
    members_answered(self, path, msg->code);
}

static void members_expired(struct registrar *self, uint32_t path)
{
    members_answered(self, path, SL_ERR_TIMEOUT);
}

static const struct reg_call calls[] = {
    {.kind = REG_CALL_MEMBERS, .reply = members_reply, .expired = members_expired},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_MEMBERS, members_restore},
};

const struct reg_part reg_members_part = {
    .name = "members",
    REG_CALLS(calls),
    REG_BLOBS(blobs),
    .after = {REG_AFTER_MEMBERS, members_pump},
};
