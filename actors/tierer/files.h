/* actors/tierer/files.h - state of the small file beside the log: members and write budget. */
#ifndef SL_TIERER_FILES_H
#define SL_TIERER_FILES_H

#include "actors/tierer/segment_format.h"
#include "ipc/msg/sl_msg.h"

/* The file of members. */
struct ti_members_file {
    bool there;              /* a page was found or written; it names the disk */
    int file;                /* -1: none yet */
    struct ti_members now;   /* newest durable page */
    struct ti_members *next; /* being written, aligned; NULL: none */
    struct ti_member report[1 + TI_MEMBERS_MAX];
    struct sl_reply_route back;
    struct { /* a list that arrived while we wrote a page of our own */
        bool there, empty;
        uint64_t epoch, bytes;
        struct ti_member list[TI_MEMBERS_MAX];
        struct sl_reply_route back;
    } later;
    uint64_t name_at_ns; /* when to name tombstones that do not wait for it */
    bool ours;           /* next is not from a DISK_MEMBERS */
    bool damaged;        /* the file was written once and has no valid page */
    uint32_t ios;
    int os_code;
    bool emptied;             /* the disk was renamed: only a restart helps */
    uint64_t unwritten_bytes; /* of a file still to be made, charged to the ceiling */
};

/* The account of disk_write_budget. */
struct ti_budget {
    uint64_t day_max_bytes; /* the setting; 0: no limit, no account */
    struct ti_account now;
    uint64_t noted_life_bytes; /* as in the newest durable page */
    uint64_t retry_at_ns;      /* after a failed write: not before */
    bool exact;                /* the last page: nothing else is written */
};

#endif
