/* actors/registrar/disk/members.h - which disks have missed no removal and no new value. */
#ifndef SL_REGISTRAR_DISK_MEMBERS_H
#define SL_REGISTRAR_DISK_MEMBERS_H

#include "actors/registrar/base/core.h"

#define REG_DISK_NAME_BYTES 16u
struct reg_disk_name { /* identifies a disk, whatever path it is under */
    unsigned char bytes[REG_DISK_NAME_BYTES];
};
/* An entry of a list of disks that missed nothing (members.c), also in messages and on disks. */
struct reg_member {
    struct reg_disk_name name;
    uint64_t epoch; /* of the list on that disk; 0: none */
};
#define REG_MEMBERS_MAX            32u
#define REG_UNCONFIRMED_EPOCHS_MAX 3u
enum reg_verdict { REG_VERDICT_NONE, REG_VERDICT_MEMBER, REG_VERDICT_STALE };
/* The reports of a path's disk about itself, and the list that it was sent. */
struct reg_membership {
    bool reported; /* the tierer has reported */
    bool keeps;    /* its tierer keeps a list; an older version does not */
    bool blank;    /* it held no value */
    enum reg_verdict verdict;
    struct reg_member self;
    struct reg_member list[REG_MEMBERS_MAX];
    uint32_t count;
    uint64_t seq;  /* DISK_MEMBERS in flight, 0: none */
    uint64_t sent; /* epoch and list of that message */
    struct reg_member sent_list[REG_MEMBERS_MAX];
    uint32_t sent_count;
    uint64_t retry_ns; /* next attempt not before */
    bool failed;       /* the last DISK_MEMBERS failed */
};
struct reg_members {
    struct reg_member list[REG_MEMBERS_MAX];
    bool met[REG_MEMBERS_MAX]; /* it reported while this index existed */
    /* Epoch of its first report, while the index notes removals for disks still to come; else 0. */
    uint64_t came[REG_MEMBERS_MAX];
    /* Epochs that it was sent and has not confirmed: its list may have one of them; 0: none */
    uint64_t unconfirmed_epochs[REG_MEMBERS_MAX][REG_UNCONFIRMED_EPOCHS_MAX];
    bool born[REG_MEMBERS_MAX]; /* it held no value then, so it has missed nothing */
    uint32_t count;
    bool closed;    /* a list was reported, or all disks: others missed something */
    bool strict;    /* disks were struck off: a disk that is not listed missed something */
    bool some_left; /* no path leads to some member */
    uint64_t epoch; /* of this list; 0: nothing has changed yet while this index existed */
    sl_ref note;
    uint64_t retry_ns; /* reg_members_strike_absent found no room: retried then */
};

/* Whether the path's disk may be served. Errors: SL_ERR_BUSY (not known yet, or it must be emptied
 * first), SL_ERR_INVALID, SL_ERR_NO_SPACE. */
sl_err reg_members_judge(struct registrar *self, uint32_t path,
                         const struct sl_body_disk_found *found, struct sl_error *why);
/* Every path has reported: notes which members have left, and stops noting changes for disks still
 * to come. False: the index has no room for that; call again. */
bool reg_members_settled(struct registrar *self);
void reg_members_left(struct registrar *self, uint32_t path); /* its tierer */
/* Call before something changes on disks. removed_or_new: a removal or a new value, which strikes
 * disks that have left off the list. */
void reg_members_change(struct registrar *self, bool removed_or_new);
/* All was removed: absent disks that were not scanned must begin empty when they come. False: the
 * index has no room to note that, or a present disk has not confirmed it yet; call again. */
bool reg_members_strike_absent(struct registrar *self);
/* Whether all disks that can be written to have confirmed the current list. */
bool reg_members_all_current(const struct registrar *self);
/* Whether the path's disk has confirmed that list. If not, values written to it would not count
 * after a restart. */
bool reg_members_is_current(const struct registrar *self, uint32_t path);

extern const struct reg_part reg_members_part;

#endif
