/* actors/registrar/disk/tombstones.h - tombstones: removed keys that disks have to note durably. */
#ifndef SL_REGISTRAR_DISK_TOMBSTONES_H
#define SL_REGISTRAR_DISK_TOMBSTONES_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_table.h"

#define REG_TOMBSTONES_MAX   65536u
#define REG_FORGET_ITEMS_MAX 1024u
#define REG_TOMBSTONE_HEADS  16384u
struct reg_tombstone {
    struct sl_table_node by_key;
    struct reg_tombstone *next, *previous;
    bool sent;
    bool behind;   /* a DISK_WRITE of the key was in flight to the disk: sent when none is */
    bool restored; /* from a note: a REMOVE that is resent waits for it */
    sl_ref note;   /* 0: none */
    uint32_t held; /* of a block: number of the scan in which a part found no room for its own */
    uint32_t scan; /* number of the disk's last scan that began before it was made */
    uint64_t length_bytes;
    struct sl_disk_place place;
    uint64_t remove_id; /* answer that waits for it; 0: none */
    uint32_t remove_index;
    uint32_t key_length;
    char key[];
};

struct reg_tombstones {
    struct sl_table by_key;
    uint32_t count;
    struct {
        sl_metric forget_pending_count, forget_skipped_count;
    } metric;
};

/* Adds a tombstone of the key for place->disk. Without room for it, the waiting answer fails. */
void reg_tombstone_add(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                       const struct sl_disk_place *place, const struct reg_drop *how);
/* Notes a removal in the index until its tombstone is durable. Otherwise the next scan, which a new
 * registrar requests, would bring the value back. Written before the record leaves the index; a
 * REMOVE is refused if notes find no room. Returns the note; 0: the index is full. */
struct reg_tombstone_note { /* a BLOB, followed by the key */
    struct sl_disk_place place;
    uint64_t length_bytes; /* of the value */
    uint64_t unused;       /* 0 */
};
sl_ref reg_tombstone_note(struct registrar *self, struct sl_key key,
                          const struct reg_tombstone_note *note);
/* Gives each tombstone of the key a note. True: all have one, so a new registrar will know them. */
bool reg_tombstone_note_all(struct registrar *self, struct sl_key key);
/* Makes the answer remove_id wait for a tombstone of the key on this disk that an earlier registrar
 * began and no answer waits for. False: there is none. */
bool reg_tombstone_join(struct registrar *self, struct sl_key key, uint32_t disk,
                        uint64_t remove_id, uint32_t remove_index);
/* Whether the key has a tombstone for the disk that is not durable yet. */
bool reg_tombstone_pending(const struct registrar *self, struct sl_key key, uint32_t disk);
/* The key of a tombstone by the key's hash; NULL: none. Borrowed until a tombstone ends. */
const char *reg_tombstone_key_of_hash(const struct registrar *self, uint64_t key_hash);
/* Whether a value that a scan found at this place is to be forgotten: its key has a tombstone for
 * the disk. Nothing is written under such a key, so the tombstone is newer. Tombstones without a
 * place get this one; those of another place then apply to the whole disk. */
bool reg_tombstone_covers(struct registrar *self, struct sl_key key,
                          const struct sl_disk_place *place);
/* The same for a part of a block that was removed by the block's key and has left the index. The
 * part gets a tombstone of its own, for which the removal waits. */
bool reg_tombstone_covers_part(struct registrar *self, struct sl_key block, struct sl_key part,
                               const struct sl_disk_place *place);
/* Disks (a bit each) that may hold values of the key that no record names: those not scanned yet,
 * and those for which the key has a tombstone. Of the disk `placed`, where the record has its
 * place, only the latter counts: the tombstone of that place covers all older values. removed: also
 * disks where a value or tombstone found no room; an evicted value may stay there. */
uint16_t reg_disks_may_have(const struct registrar *self, struct sl_key key, uint32_t placed,
                            bool removed);
/* Disks (a bit each) that may hold values of the record's key other than at its place: the same,
 * and those with a second copy or an unanswered write. */
uint16_t reg_disks_in_doubt(const struct registrar *self, sl_ref ref, const struct sl_entry *record,
                            bool removed);
/* The disk's scan has ended: what it did not find never reached the disk, so those tombstones end.
 * Tombstones made since the scan began stay. */
void reg_tombstones_scanned(struct registrar *self, uint32_t disk);
/* Copies the tombstones for disks that have not reported yet to this disk. False: no room yet. */
bool reg_tombstones_copy(struct registrar *self, uint32_t disk);
/* Number of tombstones that still fit. */
uint32_t reg_tombstones_room(const struct registrar *self);

extern const struct reg_part reg_tombstones_part;

#endif
