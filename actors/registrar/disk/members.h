/* actors/registrar/disk/members.h - which disks have missed nothing. */
#ifndef SL_REGISTRAR_DISK_MEMBERS_H
#define SL_REGISTRAR_DISK_MEMBERS_H

#include "actors/registrar/base/core.h"

#define REG_DISK_NAME_BYTES 16u
struct reg_disk_name { /* what a disk is known by, whichever path it is under */
    unsigned char bytes[REG_DISK_NAME_BYTES];
};
/* A disk in a list of those that have missed nothing (members.c); as in messages and on disks. */
struct reg_member {
    struct reg_disk_name name;
    uint64_t epoch; /* of the list that it keeps itself; 0: none */
};
#define REG_MEMBERS_MAX 32u
#define REG_DOUBTS_MAX  3u
enum reg_verdict { REG_VERDICT_NONE, REG_VERDICT_MEMBER, REG_VERDICT_STALE };
/* What a path's disk told of itself, and what is told to it. */
struct reg_standing {
    bool told;
    bool keeps; /* its tierer keeps a list: one of before does not */
    bool blank; /* it held no value */
    enum reg_verdict verdict;
    struct reg_member self;
    struct reg_member list[REG_MEMBERS_MAX];
    uint32_t count;
    uint64_t seq;  /* DISK_MEMBERS in flight, 0: none */
    uint64_t sent; /* epoch and list that it carries */
    struct reg_member sent_list[REG_MEMBERS_MAX];
    uint32_t sent_count;
    uint64_t retry_ns; /* not before */
    bool failed;       /* the last one */
};
struct reg_members {
    struct reg_member list[REG_MEMBERS_MAX];
    bool met[REG_MEMBERS_MAX]; /* it came while this index was there */
    /* Epoch that it came with, while the index notes removals for disks that have not come; else 0
     */
    uint64_t came[REG_MEMBERS_MAX];
    /* Epochs that were sent there and not confirmed: its list may have one of them; 0: none */
    uint64_t doubts[REG_MEMBERS_MAX][REG_DOUBTS_MAX];
    bool born[REG_MEMBERS_MAX]; /* it held nothing then: it has missed nothing */
    uint32_t count;
    bool closed;    /* some list was heard, or all disks were: others have missed something */
    bool strict;    /* disks were struck: one that is not in the list has, whatever it knows */
    bool some_left; /* no path leads to one of them */
    uint64_t epoch; /* of this list; 0: nothing was changed yet while this index was there */
    sl_ref note;
    uint64_t retry_ns; /* reg_members_forsake found no room: not before */
};

/* Whether the path's disk may be served. Errors: SL_ERR_BUSY (not known yet, or not before it is
 * empty), SL_ERR_INVALID, SL_ERR_NO_SPACE. */
sl_err reg_members_judge(struct registrar *self, uint32_t path,
                         const struct sl_body_disk_found *found, struct sl_error *why);
/* Every path has told: which disks have left is known anew, and nothing is noted for others any
 * more. False: no room in the index to say so; to be called again. */
bool reg_members_settled(struct registrar *self);
void reg_members_left(struct registrar *self, uint32_t path); /* its tierer */
/* Something is about to change that disks keep; removed_or_new: a disk that has left would not
 * know. */
void reg_members_change(struct registrar *self, bool removed_or_new);
/* All was removed: disks that are not here and were not scanned begin empty when they come. False:
 * the index has no room to note that, or not all disks that are here know it yet; to be called
 * again. */
bool reg_members_forsake(struct registrar *self);
/* Whether all disks that can be written to know of the last change. */
bool reg_members_agreed(const struct registrar *self);
/* Whether the path's disk knows of it: else its values would not count after a restart. */
bool reg_members_knows(const struct registrar *self, uint32_t path);

extern const struct reg_part reg_members_part;

#endif
