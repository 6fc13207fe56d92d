/* actors/tierer/files.h - state of the small files beside the segments: members and budget. */
#ifndef SL_TIERER_FILES_H
#define SL_TIERER_FILES_H

#include "actors/tierer/segment_format.h"
#include "ipc/msg/sl_msg.h"

/* The file of members. */
struct ti_members_file {
    bool there;              /* a page was found, or written: the disk's name is that of it */
    int file;                /* -1: there is none yet */
    struct ti_members now;   /* the newest page that is durable */
    struct ti_members *next; /* being written, aligned; NULL: none is */
    struct ti_member told[1 + TI_MEMBERS_MAX];
    struct sl_return back;
    struct { /* a list that came while a page of our own was being written */
        bool there, empty;
        uint64_t epoch, bytes;
        struct ti_member list[TI_MEMBERS_MAX];
        struct sl_return back;
    } later;
    uint64_t name_at_ns; /* not before, unless a tombstone waits for it */
    bool ours;           /* next is a page of our own; else of a list that was sent */
    bool damaged;        /* the file has no right page, and was written once */
    uint32_t ios;
    int os_code;
    bool emptied;             /* the disk has another name now: only a new start goes on */
    uint64_t unwritten_bytes; /* of the file that is still to be made, against the ceiling */
};

/* What the disk may be written. */
struct ti_budget {
    uint64_t day_max_bytes; /* setting; 0: no limit, and no account */
    struct ti_account now;
    uint64_t noted_life_bytes; /* as far as the newest durable page goes */
    uint64_t retry_at_ns;      /* that failed: not before */
    bool exact;                /* the last page: nothing else will be written */
};

#endif
