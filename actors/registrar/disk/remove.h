/* actors/registrar/disk/remove.h - REMOVE, and other answers that wait for tombstones. */
#ifndef SL_REGISTRAR_DISK_REMOVE_H
#define SL_REGISTRAR_DISK_REMOVE_H

#include "actors/registrar/disk/answers.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/records/units.h"

#define REG_REMOVE_STEP_UNITS 4096u
struct reg_remove {
    struct reg_answer answer;
    uint64_t asked;       /* hash of the sender and the request's number: for sl_settled.h */
    char *keys;           /* zero-terminated, one after the other; NULL: all */
    uint64_t keys_at;     /* offset of the next key */
    uint32_t count, next; /* keys; the next one to remove */
    uint64_t all_left;    /* units still to remove, for all keys */
    uint64_t *codes;
    bool respect_leases, report_busy;
    sl_err failed;  /* why not all can be removed now */
    uint32_t *left; /* number of tombstones each key waits for */
    uint64_t outstanding;
    uint32_t tombstones[REG_DISKS_MAX]; /* of these, the number each disk is to confirm */
};

struct reg_removes {
    struct {
        sl_metric remove_leased_count;
    } metric;
};

/* Begins an answer of count codes that waits for tombstones as a REMOVE does. Returns its id for
 * struct reg_drop; 0: too many answers wait. */
uint64_t reg_answer_begin(struct registrar *self, const struct sl_msg *msg, uint32_t count);
/* The request was carried out: sets codes that wait for no tombstone; answers when none waits. */
void reg_answer_end(struct registrar *self, uint64_t id, const uint64_t *codes);
/* Makes the answer wait for tombstones of this key that an earlier registrar began. False: none. */
bool reg_answer_join(struct registrar *self, uint64_t id, uint32_t index, const char *key);
/* Adds tombstones of a key that is not in the index, for values that may be on disks. False: one
 * has no note, so a new registrar would not know of it. */
bool reg_tombstone_add_all(struct registrar *self, struct sl_key key, const struct reg_drop *how);
/* Drops a block of which a scan has found only some parts: a client is about to store all of it.
 * False: the block is not such a one. */
bool reg_half_block_drop(struct registrar *self, sl_ref block);
/* Upper bound of the tombstones, and notes, that a value's removal takes: for a write in flight,
 * its place, and disks in doubt. */
uint32_t reg_tombstones_needed(struct registrar *self, const struct sl_entry *record);
/* Whether the index has room now for the notes of the unit's removal. */
bool reg_notes_fit(struct registrar *self, sl_ref unit);
void reg_removes_scanned(struct registrar *self); /* call after a scan */

extern const struct reg_part reg_removes_part;

#endif
