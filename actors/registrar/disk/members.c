/* actors/registrar/disk/members.c - a disk that was absent must not bring back values that were
 * removed meanwhile.
 *
 * Every disk keeps a list of the disks that have missed nothing while it served; so does the index.
 * A disk that reports and is not in the list of a present disk begins empty, under a new name. A
 * disk that no path leads to is struck off before the next removal or new value counts, since it
 * misses that.
 *
 * Each list has a random epoch and names the epochs of the other lists. The epoch changes with the
 * first change after each start of an index, and whenever a disk joins or leaves. A disk that
 * joined while another one was absent is therefore accepted by it: its list names an epoch that the
 * other one still has, or had when it reported to this index. If a disk is accepted only in this
 * way, its new list is written after that of the other one, which then names it: a power cut in
 * between would leave it unknown. A list whose write failed or was not answered may still be on its
 * disk. So others name both of its epochs, and a disk may occur in a list more than once. */
#include "actors/registrar/disk/members.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/presence/peers.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_NOTE_VERSION 2u
#define MEMBERS_CALL_NS      (6 * SL_NS_PER_S) /* a tierer gives up on a hanging disk after 5 s */

_Static_assert(sizeof(struct reg_member) == 24, "as in messages");

struct members_note {
    uint32_t version;
    uint32_t count;
    uint64_t epoch;
    uint32_t met;    /* a bit for each member */
    uint32_t closed; /* 1; with strict: 2 */
    struct reg_member list[REG_MEMBERS_MAX];
    uint64_t came[REG_MEMBERS_MAX];
    uint64_t unconfirmed_epochs[REG_MEMBERS_MAX][REG_UNCONFIRMED_EPOCHS_MAX];
    uint64_t born; /* a bit for each member */
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

/* Whether the list names the member with this epoch. */
static bool member_is_seen(const struct reg_member *list, uint32_t count,
                           const struct reg_member *member)
{
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(&list[i], member, sizeof(*member)) == 0) {
            return true;
        }
    }
    return false;
}

static bool member_is_met(const struct reg_members *members, const struct reg_member *member)
{
    return member != NULL && members->met[member - members->list];
}

/* ---- the index's own list ---- */

static sl_err members_restore(struct registrar *self, sl_ref ref, const void *bytes,
                              uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct reg_members *members = &self->tier->members;
    struct members_note note = {0};
    if (length_bytes == sizeof(note)) {
        memcpy(&note, bytes, sizeof(note));
    }
    if (note.version != MEMBERS_NOTE_VERSION || note.count > REG_MEMBERS_MAX) {
        return SL_ERR_FOREIGN;
    }
    if (members->note != 0) { /* killed between the new note and the end of the old one */
        sl_index_set_kind(self->index, members->note, SL_RECORD_FREE);
    }
    *members = (struct reg_members){.count = note.count,
                                    .closed = note.closed != 0,
                                    .strict = note.closed == 2,
                                    .epoch = note.epoch,
                                    .note = ref};
    memcpy(members->list, note.list, sizeof(note.list));
    memcpy(members->came, note.came, sizeof(note.came));
    memcpy(members->unconfirmed_epochs, note.unconfirmed_epochs, sizeof(note.unconfirmed_epochs));
    for (uint32_t i = 0; i < note.count; i++) {
        members->met[i] = (note.met >> i & 1) != 0;
        members->born[i] = (note.born >> i & 1) != 0;
    }
    return SL_OK;
}

static sl_err members_remember(struct registrar *self, struct sl_error *why)
{
    struct reg_members *members = &self->tier->members;
    struct members_note note = {.version = MEMBERS_NOTE_VERSION,
                                .count = members->count,
                                .epoch = members->epoch,
                                .closed = members->strict ? 2 : members->closed};
    memcpy(note.list, members->list, sizeof(note.list));
    memcpy(note.came, members->came, sizeof(note.came));
    memcpy(note.unconfirmed_epochs, members->unconfirmed_epochs, sizeof(note.unconfirmed_epochs));
    for (uint32_t i = 0; i < members->count; i++) {
        note.met |= (uint32_t)members->met[i] << i;
        note.born |= (uint64_t)members->born[i] << i;
    }
    return reg_note_put(self, &note, sizeof(note), REG_BLOB_MEMBERS, &members->note, why);
}

static void member_drop(struct reg_members *members, uint32_t at)
{
    members->count--;
    members->list[at] = members->list[members->count];
    members->met[at] = members->met[members->count];
    members->came[at] = members->came[members->count];
    members->born[at] = members->born[members->count];
    memcpy(members->unconfirmed_epochs[at], members->unconfirmed_epochs[members->count],
           sizeof(members->unconfirmed_epochs[at]));
}

/* The member's list may also have this epoch. Of too many the oldest is dropped. */
static void unconfirmed_add(struct reg_members *members, uint32_t at, uint64_t epoch)
{
    uint64_t *unconfirmed_epochs = members->unconfirmed_epochs[at];
    for (uint32_t i = 0; i < REG_UNCONFIRMED_EPOCHS_MAX; i++) {
        if (unconfirmed_epochs[i] == epoch) {
            return;
        }
    }
    memmove(&unconfirmed_epochs[1], &unconfirmed_epochs[0],
            (REG_UNCONFIRMED_EPOCHS_MAX - 1) * sizeof(unconfirmed_epochs[0]));
    unconfirmed_epochs[0] = epoch;
}

/* The epoch of the member's list is known. */
static void unconfirmed_clear(struct reg_members *members, uint32_t at)
{
    memset(members->unconfirmed_epochs[at], 0, sizeof(members->unconfirmed_epochs[at]));
}

/* Adds or updates a member. A full list loses an absent one, which begins empty on its return.
 * came: epoch of the member's report; 0: it has not reported, or too late for that to count. */
static void member_add(struct reg_members *members, const struct reg_member *member, bool met,
                       uint64_t came)
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
    bool before = there != NULL && members->met[at];
    members->came[at] = before ? members->came[at] : came;
    members->met[at] = before || met;
    members->born[at] = before && members->born[at];
    members->list[at] = *member;
    unconfirmed_clear(members, at);
}

/* ---- judging ---- */

/* Whether the disk has missed nothing that the witness knows of. */
static bool witness_accepts(const struct reg_membership *disk, const struct reg_membership *witness)
{
    return witness->self.epoch == 0 ||
           member_find(witness->list, witness->count, &disk->self.name) != NULL ||
           member_is_seen(disk->list, disk->count, &witness->self);
}

/* The same for the index and all disks that came while it existed. The index knows what these have
 * done since, as long as it waits for others. */
static bool index_accepts(const struct registrar *self, const struct reg_membership *disk)
{
    const struct reg_members *members = &self->tier->members;
    bool some = false;
    if (!members->closed || member_find(members->list, members->count, &disk->self.name) != NULL) {
        return true;
    }
    for (uint32_t i = 0; !members->strict && i < members->count; i++) {
        struct reg_member came = {.name = members->list[i].name, .epoch = members->came[i]};
        bool known = member_is_seen(disk->list, disk->count, &members->list[i]) ||
                     (came.epoch != 0 && member_is_seen(disk->list, disk->count, &came));
        if (members->met[i] && !known) {
            return false;
        }
        some = some || members->met[i];
    }
    return some;
}

static uint64_t epoch_new(struct registrar *self)
{
    uint64_t epoch = 0;
    while (epoch == 0) {
        epoch = self->env->ops->random_u64(self->env);
    }
    return epoch;
}

static bool membership_is_open(const struct reg_membership *membership)
{
    return membership->reported && membership->keeps && membership->verdict == REG_VERDICT_NONE;
}

static bool path_is_stale(const struct registrar *self, uint32_t at)
{
    const struct reg_membership *disk = &self->tier->paths[at].membership;
    if (disk->blank) {
        return false;
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_membership *other = &self->tier->paths[i].membership;
        if (i != at && membership_is_open(other) && !witness_accepts(disk, other)) {
            return true;
        }
    }
    return !index_accepts(self, disk);
}

/* A disk that reports late may show that a disk in service has missed something. */
static void late_witness(struct registrar *self, const struct reg_membership *witness)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        struct reg_path *path = &self->tier->paths[i];
        struct reg_disk *disk = path->disk != REG_NONE ? &self->tier->disks[path->disk] : NULL;
        const struct reg_member *there = member_find(
            self->tier->members.list, self->tier->members.count, &path->membership.self.name);
        bool born = there != NULL && self->tier->members.born[there - self->tier->members.list];
        if (path->membership.verdict != REG_VERDICT_MEMBER || disk == NULL || disk->born || born ||
            witness_accepts(&path->membership, witness)) {
            continue;
        }
        if (there != NULL) {
            member_drop(&self->tier->members, (uint32_t)(there - self->tier->members.list));
        }
        path->membership.verdict = REG_VERDICT_STALE;
        disk->stale = true;
    }
}

/* An absent disk stays a member as long as all lists name it. */
static void members_merge(struct registrar *self, const struct reg_membership *reported)
{
    struct reg_members *members = &self->tier->members;
    if (reported->self.epoch == 0) {
        return;
    }
    for (uint32_t i = members->count; members->closed && i-- > 0;) {
        if (!members->met[i] &&
            memcmp(&members->list[i].name, &reported->self.name, sizeof(reported->self.name)) !=
                0 &&
            member_find(reported->list, reported->count, &members->list[i].name) == NULL) {
            member_drop(members, i);
        }
    }
    for (uint32_t i = 0; !members->closed && i < reported->count; i++) {
        const struct reg_member *there =
            member_find(members->list, members->count, &reported->list[i].name);
        if (there == NULL) {
            member_add(members, &reported->list[i], false, 0);
        } else if (there->epoch != reported->list[i].epoch) {
            unconfirmed_add(members, (uint32_t)(there - members->list), reported->list[i].epoch);
        }
    }
    members->closed = true;
}

static void member_meet(struct registrar *self, const struct reg_membership *disk)
{
    struct reg_members *members = &self->tier->members;
    const struct reg_member *there = member_find(members->list, members->count, &disk->self.name);
    bool fresh = !member_is_met(members, there);
    member_add(members, &disk->self, true, self->tier->settled ? 0 : disk->self.epoch);
    there = member_find(members->list, members->count, &disk->self.name);
    members->born[there - members->list] |= fresh && disk->blank;
}

/* Judges all disks that have reported, together: each list counts, even that of a stale disk. */
static sl_err judge_all(struct registrar *self, struct sl_error *why)
{
    struct reg_members before = self->tier->members;
    bool joined = false;
    enum reg_verdict verdicts[SL_DISK_PATHS_MAX] = {REG_VERDICT_NONE};
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (membership_is_open(&self->tier->paths[i].membership)) {
            verdicts[i] = path_is_stale(self, i) ? REG_VERDICT_STALE : REG_VERDICT_MEMBER;
        }
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (verdicts[i] != REG_VERDICT_NONE) {
            if (self->tier->paths[i].membership.self.epoch != 0) {
                late_witness(self, &self->tier->paths[i].membership);
            }
            members_merge(self, &self->tier->paths[i].membership);
        }
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_member *member = &self->tier->paths[i].membership.self;
        if (verdicts[i] == REG_VERDICT_MEMBER) {
            joined |= member_find(before.list, before.count, &member->name) == NULL;
            member_meet(self, &self->tier->paths[i].membership);
        }
    }
    if (joined && before.epoch != 0) { /* the other disks must learn of it */
        self->tier->members.epoch = epoch_new(self);
    }
    sl_err err = members_remember(self, why);
    if (err != SL_OK) {
        self->tier->members = before;
        return err;
    }
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        if (verdicts[i] != REG_VERDICT_NONE) {
            self->tier->paths[i].membership.verdict = verdicts[i];
        }
        if (verdicts[i] == REG_VERDICT_STALE) {
            reg_log(self, SL_LOG_WARN, 0,
                    "disk of tierer.%u was absent while others served and may hold removed "
                    "values: it begins empty",
                    i);
        }
    }
    return SL_OK;
}

static bool all_reported(const struct registrar *self)
{
    bool all = true;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        all = all && self->tier->paths[i].membership.reported;
    }
    return all || self->env->now_ns >= self->tier->witness_until_ns;
}

static sl_err membership_read(struct reg_membership *membership,
                              const struct sl_body_disk_found *found, struct sl_error *why)
{
    const struct sl_bytes *reported = &found->members;
    uint64_t count = reported->length / sizeof(struct reg_member);
    if (reported->length % sizeof(struct reg_member) != 0 || count > 1 + REG_MEMBERS_MAX ||
        (count > 0 && (found->store.length != sizeof(struct reg_disk_name) ||
                       memcmp(reported->at, found->store.at, found->store.length) != 0))) {
        return sl_fail(why, SL_ERR_INVALID, "DISK_FOUND.members: no list of the disk's own");
    }
    membership->reported = true;
    membership->keeps = count > 0;
    membership->blank = found->blank;
    membership->count = count > 0 ? (uint32_t)count - 1 : 0;
    if (count > 0) {
        memcpy(&membership->self, reported->at, sizeof(membership->self));
        memcpy(membership->list, (const unsigned char *)reported->at + sizeof(membership->self),
               membership->count * sizeof(membership->list[0]));
    }
    return SL_OK;
}

/* Whether this process has reported the disk before. Only a new tierer has read the list on it. */
static bool reported_before(const struct registrar *self, uint32_t at)
{
    const struct reg_path *path = &self->tier->paths[at];
    bool before = false;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        before =
            before || (disk->used && disk->note != 0 &&
                       memcmp(&disk->name, &path->membership.self.name, sizeof(disk->name)) == 0 &&
                       sl_proc_id_equal(disk->proc, self->peers->all[path->peer].proc));
    }
    return before;
}

sl_err reg_members_judge(struct registrar *self, uint32_t at,
                         const struct sl_body_disk_found *found, struct sl_error *why)
{
    struct reg_members *members = &self->tier->members;
    struct reg_membership *membership = &self->tier->paths[at].membership;
    if (membership->verdict == REG_VERDICT_NONE) {
        sl_err err = membership_read(membership, found, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (!membership->keeps || membership->verdict == REG_VERDICT_MEMBER) {
        return SL_OK;
    }
    const struct reg_member *known =
        member_find(members->list, members->count, &membership->self.name);
    if (membership->verdict == REG_VERDICT_NONE && member_is_met(members, known)) {
        membership->verdict = REG_VERDICT_MEMBER; /* it was judged at its first report */
        members->list[known - members->list].epoch = membership->self.epoch;
        if (!reported_before(self, at)) {
            unconfirmed_clear(members, (uint32_t)(known - members->list));
        }
        return SL_OK;
    }
    if (membership->verdict == REG_VERDICT_NONE && !all_reported(self)) {
        return sl_fail(why, SL_ERR_BUSY,
                       "other disks have not reported yet what this one may have missed");
    }
    sl_err err = membership->verdict == REG_VERDICT_NONE ? judge_all(self, why) : SL_OK;
    if (err == SL_OK && membership->verdict == REG_VERDICT_STALE) {
        err = sl_fail(why, SL_ERR_BUSY, "the disk is being emptied");
    }
    return err;
}

/* ---- what changes ---- */

/* The member's disk; NULL: it has no slot. */
static const struct reg_disk *member_disk(const struct registrar *self,
                                          const struct reg_member *member)
{
    const struct reg_disk *found = NULL;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        bool same = disk->used && memcmp(&disk->name, &member->name, sizeof(member->name)) == 0;
        found = same ? disk : found;
    }
    return found;
}

/* Whether the member's tierer has reported, or has left and may come back: no other disk was
 * reported at its path. scanned: in that case only if its scan had ended with room for all. */
static bool member_stays(const struct registrar *self, const struct reg_member *member,
                         bool scanned)
{
    const struct reg_disk *disk = member_disk(self, member);
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_membership *membership = &self->tier->paths[i].membership;
        if (membership->reported && membership->keeps &&
            memcmp(&membership->self.name, &member->name, sizeof(member->name)) == 0) {
            return true;
        }
    }
    return disk != NULL && !disk->gone && (!scanned || (disk->scanned && !disk->missed));
}

bool reg_members_settled(struct registrar *self)
{
    struct reg_members *members = &self->tier->members;
    struct reg_members before = *members;
    bool some = false;
    for (uint32_t i = 0; i < REG_MEMBERS_MAX; i++) { /* only needed while others may come */
        some = some || members->came[i] != 0;
        members->came[i] = 0;
    }
    if (some && members_remember(self, NULL) != SL_OK) {
        *members = before;
        return false;
    }
    members->some_left = false;
    members->closed = members->closed || members->epoch != 0;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct reg_disk *disk = member_disk(self, &members->list[i]);
        members->some_left = members->some_left || disk == NULL || disk->path == REG_NONE;
    }
    return true;
}

static bool path_is_current(const struct registrar *self, const struct reg_path *path)
{
    return path->membership.self.epoch == self->tier->members.epoch;
}

static bool path_is_member(const struct reg_path *path)
{
    return path->here && path->disk != REG_NONE && path->membership.keeps &&
           path->membership.verdict == REG_VERDICT_MEMBER;
}

static bool epoch_renew(struct registrar *self)
{
    struct sl_error why = {0};
    self->tier->members.epoch = epoch_new(self);
    sl_err err = members_remember(self, &why);
    if (err != SL_OK) {
        /* Disks will have it soon. A registrar that does not know it creates another one. */
        reg_log(self, SL_LOG_WARN, 0, "no room in the index for the list of disks: %s", why.text);
    }
    return err == SL_OK;
}

/* Strikes off disks that have left; unscanned: also those that left before they were scanned. */
static void members_strike(struct registrar *self, bool unscanned)
{
    struct reg_members *members = &self->tier->members;
    for (uint32_t i = members->count; i-- > 0;) {
        if (!member_stays(self, &members->list[i], unscanned)) {
            reg_log(self, SL_LOG_INFO, 0,
                    "a disk that has left misses the changes from now on: if it returns, "
                    "it begins empty");
            member_drop(members, i);
        }
    }
    members->some_left = false;
    members->closed = members->strict = true;
}

void reg_members_change(struct registrar *self, bool removed_or_new)
{
    struct reg_members *members = &self->tier->members;
    bool strikes = removed_or_new && members->some_left;
    if (!self->tier->on || (members->epoch != 0 && !strikes)) {
        return;
    }
    if (strikes) {
        members_strike(self, false);
    }
    members->closed = members->closed || self->tier->settled;
    (void)epoch_renew(self);
}

bool reg_members_strike_absent(struct registrar *self)
{
    struct reg_members before = self->tier->members;
    if (self->env->now_ns < before.retry_ns) {
        return false;
    }
    members_strike(self, true);
    bool struck = !before.strict || before.count != self->tier->members.count;
    if (struck && !epoch_renew(self)) {
        self->tier->members = before;
        self->tier->members.retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
        return false;
    }
    return reg_members_all_current(self);
}

bool reg_members_all_current(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *path = &self->tier->paths[i];
        if (path_is_member(path) && !path->membership.failed && !path_is_current(self, path)) {
            return false;
        }
    }
    return true;
}

bool reg_members_is_current(const struct registrar *self, uint32_t at)
{
    const struct reg_path *path = at != REG_NONE ? &self->tier->paths[at] : NULL;
    return path != NULL &&
           (!path->membership.keeps || (path_is_member(path) && path_is_current(self, path)));
}

/* The disk has not confirmed the list. Others may name it with that epoch: all get a new one. */
static void path_is_unconfirmed(struct registrar *self, struct reg_path *path)
{
    bool was = path->membership.failed;
    path->membership.failed = true;
    if (!was && self->tier->members.epoch != 0 && !path_is_current(self, path)) {
        (void)epoch_renew(self);
    }
}

void reg_members_left(struct registrar *self, uint32_t at)
{
    struct reg_path *path = &self->tier->paths[at];
    if (path->membership.seq != 0) {
        sl_calls_drop(self->calls, path->membership.seq);
    }
    if (path->membership.verdict == REG_VERDICT_MEMBER) {
        path_is_unconfirmed(self, path);
    }
    path->membership = (struct reg_membership){0};
}

/* ---- sending lists ---- */

/* The epoch that lists give for a member: the one being sent to it, if any. */
static uint64_t epoch_named(const struct registrar *self, uint32_t at)
{
    const struct reg_members *members = &self->tier->members;
    uint64_t epoch = members->list[at].epoch;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *other = &self->tier->paths[i];
        if (path_is_member(other) && !other->membership.failed && members->epoch != 0 &&
            memcmp(&members->list[at].name, &other->membership.self.name,
                   sizeof(other->membership.self.name)) == 0) {
            epoch = members->epoch;
        }
    }
    return epoch;
}

/* The other members, for the list of this disk; returns their number. */
static uint32_t list_make(const struct registrar *self, const struct reg_disk_name *without,
                          struct reg_member out[REG_MEMBERS_MAX])
{
    const struct reg_members *members = &self->tier->members;
    uint32_t count = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        if (memcmp(&members->list[i].name, without, sizeof(*without)) != 0) {
            out[count++] =
                (struct reg_member){.name = members->list[i].name, .epoch = epoch_named(self, i)};
        }
    }
    for (uint32_t i = 0; i < members->count * REG_UNCONFIRMED_EPOCHS_MAX && count < REG_MEMBERS_MAX;
         i++) {
        const struct reg_member doubt = {
            .name = members->list[i / REG_UNCONFIRMED_EPOCHS_MAX].name,
            .epoch = members->unconfirmed_epochs[i / REG_UNCONFIRMED_EPOCHS_MAX]
                                                [i % REG_UNCONFIRMED_EPOCHS_MAX]};
        if (doubt.epoch != 0 && memcmp(&doubt.name, without, sizeof(*without)) != 0 &&
            !member_is_seen(out, count, &doubt)) {
            out[count++] = doubt;
        }
    }
    return count;
}

/* From now on the disk's list may have this epoch, even if no reply arrives. */
static void epoch_note_sent(struct registrar *self, const struct reg_disk_name *name,
                            uint64_t epoch)
{
    struct reg_members *members = &self->tier->members;
    const struct reg_member *known = member_find(members->list, members->count, name);
    if (known != NULL) {
        unconfirmed_add(members, (uint32_t)(known - members->list), epoch);
        (void)members_remember(self, NULL); /* for a registrar that starts before the reply */
    }
}

static void path_send_list(struct registrar *self, uint32_t at)
{
    const struct reg_members *members = &self->tier->members;
    struct reg_path *path = &self->tier->paths[at];
    struct reg_membership *membership = &path->membership;
    struct reg_member list[REG_MEMBERS_MAX] = {0};
    uint32_t count = list_make(self, &membership->self.name, list);
    struct sl_msg msg = {.type = SL_MSG_DISK_MEMBERS};
    bool empty = membership->verdict == REG_VERDICT_STALE;
    msg.body.disk_members.epoch =
        empty ? self->env->ops->random_u64(self->env) | 1 : members->epoch;
    msg.body.disk_members.members = (struct sl_bytes){(const void *)list, count * sizeof(list[0])};
    msg.body.disk_members.empty = empty;
    membership->sent = msg.body.disk_members.epoch;
    memcpy(membership->sent_list, list, sizeof(list));
    membership->sent_count = count;
    if (!empty) {
        epoch_note_sent(self, &membership->self.name, membership->sent);
    }
    if (sl_calls_send(self->calls, self->peers->all[path->peer].name, &msg,
                      sl_deadline_ns(self->env->now_ns, MEMBERS_CALL_NS),
                      reg_cookie(REG_CALL_MEMBERS, at), &membership->seq) != SL_OK) {
        membership->seq = 0;
        membership->retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

static bool path_is_outdated(const struct registrar *self, const struct reg_path *path)
{
    return path_is_member(path) && self->tier->members.epoch != 0 && !path_is_current(self, path);
}

/* Whether another disk accepts this one only because this one names its epoch, which is about to
 * change: that disk's list must name this one first. */
static bool path_waits(const struct registrar *self, const struct reg_path *path)
{
    const struct reg_membership *disk = &path->membership;
    bool waits = false;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_path *other = &self->tier->paths[i];
        const struct reg_membership *witness = &other->membership;
        waits = waits || (other != path && path_is_outdated(self, other) && !witness->failed &&
                          witness->self.epoch != 0 && witness_accepts(disk, witness) &&
                          member_find(witness->list, witness->count, &disk->self.name) == NULL);
    }
    return waits;
}

/* Without disks the node notes no removals: each disk misses them from now on. */
static void members_strike_all(struct registrar *self)
{
    struct reg_members *members = &self->tier->members;
    if (!self->tier->on && (!members->strict || members->count > 0)) {
        *members = (struct reg_members){.closed = true, .strict = true, .note = members->note};
        members->strict = members_remember(self, NULL) == SL_OK; /* else again at the next turn */
    }
}

static void members_pump(struct registrar *self)
{
    bool reported = false, some_wait = false;
    members_strike_all(self);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < self->tier->path_count; i++) {
            const struct reg_path *path = &self->tier->paths[i];
            const struct reg_membership *membership = &path->membership;
            bool stale = path->here && membership->verdict == REG_VERDICT_STALE;
            if (!stale && !path_is_outdated(self, path)) {
                continue;
            }
            /* Three disks may wait for each other, if lists are inconsistent: then none waits. */
            bool waits = turn == 0 && !stale && path_waits(self, path);
            some_wait = some_wait || waits;
            reported = reported || !waits;
            if (!waits && membership->seq == 0 && self->env->now_ns >= membership->retry_ns) {
                path_send_list(self, i);
            }
        }
        if (reported || !some_wait) {
            return;
        }
    }
}

static void members_answered(struct registrar *self, uint32_t at, sl_err code)
{
    struct reg_path *path = &self->tier->paths[at];
    struct reg_membership *membership = &path->membership;
    struct reg_members *members = &self->tier->members;
    membership->seq = 0;
    if (path->disk != REG_NONE && (code == SL_OK || code == SL_ERR_NO_SPACE)) {
        struct reg_disk *disk = &self->tier->disks[path->disk]; /* no room even for the list? */
        uint64_t since_ns =
            disk->failing_since_ns != 0 ? disk->failing_since_ns : self->env->now_ns;
        if (code != SL_OK || !disk->failing) { /* that a list fits does not show that values do */
            disk->failing_since_ns = code == SL_OK ? 0 : since_ns;
        }
    }
    if (code != SL_OK) {
        membership->retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
        if (code != SL_ERR_BUSY) {
            path_is_unconfirmed(self, path);
        }
        return;
    }
    if (membership->verdict != REG_VERDICT_MEMBER) {
        return; /* its tierer ends, and reports a new disk after its restart */
    }
    membership->failed = false;
    membership->self.epoch = membership->sent;
    memcpy(membership->list, membership->sent_list, sizeof(membership->list));
    membership->count = membership->sent_count;
    const struct reg_member *known =
        member_find(members->list, members->count, &membership->self.name);
    if (known != NULL) {
        members->list[known - members->list].epoch = membership->sent;
        unconfirmed_clear(members, (uint32_t)(known - members->list));
        (void)members_remember(self, NULL); /* on failure: the disk will report it again */
    }
}

static uint64_t members_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        const struct reg_membership *membership = &self->tier->paths[i].membership;
        if (membership->seq == 0 && membership->retry_ns > self->env->now_ns) {
            next_ns = SL_MIN(next_ns, membership->retry_ns);
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
    .started = members_pump,
    .after = members_pump,
    .next_ns = members_next,
};
