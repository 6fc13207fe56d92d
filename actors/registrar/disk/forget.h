/* actors/registrar/disk/forget.h - tombstones: what is to be forgotten on a disk. */
#ifndef SL_REGISTRAR_DISK_FORGET_H
#define SL_REGISTRAR_DISK_FORGET_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_table.h"

#define REG_FORGETS_MAX      65536u
#define REG_FORGET_ITEMS_MAX 1024u
#define REG_FORGET_HEADS     16384u
struct reg_forget {
    struct sl_table_node by_key;
    struct reg_forget *next, *previous;
    bool sent;
    bool behind;   /* a DISK_WRITE under the key was under way there: sent when none is */
    bool restored; /* from a note: a REMOVE that is sent again waits for it */
    sl_ref note;   /* 0: none */
    uint32_t held; /* of a block: number of the scan in which a part found no room for its own */
    uint32_t scan; /* number of the disk's scan that had begun before it was made */
    uint64_t length_bytes;
    struct sl_disk_place place;
    uint64_t remove_id; /* 0: nobody waits */
    uint32_t remove_index;
    uint32_t key_length;
    char key[];
};

struct reg_forgets {
    struct sl_table by_key;
    uint32_t count;
    struct {
        sl_metric forget_pending_count, forget_skipped_count;
    } metric;
};

/* Where there is no room, who waits for its tombstone is told. */
void reg_forget_key(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                    const struct sl_disk_place *place, const struct reg_drop *how);
/* What was removed while something of it may be on disk stands in a note of the index until its
 * tombstone is durable: the next scan, which a new registrar asks for, must not bring it back.
 * Written before the record goes; a REMOVE makes sure of the room first, and is refused without.
 * Gives the note; 0: the index is full. */
struct reg_forget_note { /* a BLOB, followed by the key */
    struct sl_disk_place place;
    uint64_t length_bytes; /* of the value */
    uint64_t unused;       /* 0 */
};
sl_ref reg_forget_note(struct registrar *self, struct sl_key key,
                       const struct reg_forget_note *note);
/* Whether a new registrar would know of all tombstones of the key: those without a note get one. */
bool reg_forget_noted(struct registrar *self, struct sl_key key);
/* A removal of this key from the disk that the registrar before had begun: true, and remove waits
 * for it. */
bool reg_forget_join(struct registrar *self, struct sl_key key, uint32_t disk, uint64_t remove_id,
                     uint32_t remove_index);
/* Whether a tombstone of this key is still on its way to the disk, where the value may be on its
 * way itself. */
bool reg_forget_pending(const struct registrar *self, struct sl_key key, uint32_t disk);
/* The key of a tombstone on its way to any disk by the key's hash; NULL: there is none. Borrowed
 * until a tombstone ends. */
const char *reg_forget_of_hash(const struct registrar *self, uint64_t key_hash);
/* Whether a value that a scan found there under the key is to be forgotten. Tombstones of its key
 * whose place is not known learn it, each of several; those of another place are for both: nothing
 * is written under a key that has one, so whatever is there is meant. */
bool reg_forget_covers(struct registrar *self, struct sl_key key,
                       const struct sl_disk_place *place);
/* The same of a part of a block that was removed by the block's key, which is not in the index: it
 * has a tombstone of its own then, for which the removal waits. */
bool reg_forget_covers_part(struct registrar *self, struct sl_key block, struct sl_key part,
                            const struct sl_disk_place *place);
/* Disks (a bit each) that may hold something under the key that no record names: what no scan told
 * yet (but of the disk `placed`, where a record has a place, whose tombstone is for all before it),
 * or what has a tombstone that is not durable. removed: also what found no room in the index or
 * here; who only leaves need not go there. */
uint16_t reg_disks_may_have(const struct registrar *self, struct sl_key key, uint32_t placed,
                            bool removed);
/* Disks (a bit each) that may hold something under the record's key that its place does not name:
 * the same, and what was sent there without an answer. */
uint16_t reg_disk_doubt(const struct registrar *self, sl_ref ref, const struct sl_entry *record,
                        bool removed);
/* What the scan of the disk did not find never reached it, but for what was removed since it began.
 */
void reg_forgets_scanned(struct registrar *self, uint32_t disk);
/* What was meant for disks that were not known yet is meant for this one, too. False: no room yet.
 */
bool reg_forgets_copy(struct registrar *self, uint32_t disk);
uint32_t reg_forgets_room(const struct registrar *self); /* how many more there may be */

extern const struct reg_part reg_forgets_part;

#endif
