/* actors/registrar/disk/remove.h - REMOVE, and answers that wait for tombstones. */
#ifndef SL_REGISTRAR_DISK_REMOVE_H
#define SL_REGISTRAR_DISK_REMOVE_H

#include "actors/registrar/disk/answers.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/records/units.h"

#define REG_REMOVE_STEP_UNITS 4096u
struct reg_remove {
    struct reg_answer answer;
    uint64_t asked; /* hash of who asked, and of which of his requests it is: sl_settled.h */
    char *keys;     /* zero-terminated, one after the other; NULL: all */
    uint64_t keys_at;
    uint32_t count, next;
    uint64_t all_left;
    uint64_t *codes;
    bool heed_leases, tell_busy;
    sl_err failed;  /* not all can be removed now */
    uint32_t *left; /* tombstones a key waits for */
    uint64_t outstanding;
    uint32_t forgets[REG_DISKS_MAX]; /* of these, tombstones that each disk is to confirm */
};

struct reg_removes {
    struct {
        sl_metric remove_leased_count;
    } metric;
};

/* An answer of count codes to the request, which waits for tombstones as a REMOVE does; 0: too many
 * wait. Its number and an index is what reg_drop names. */
uint64_t reg_answer_begin(struct registrar *self, const struct sl_msg *msg, uint32_t count);
/* All that was asked is done: what waits for no tombstone has these codes. Answers when nothing
 * waits. */
void reg_answer_end(struct registrar *self, uint64_t id, const uint64_t *codes);
/* Tombstones that a registrar before us began for this key: the answer waits for them. False: there
 * are none. */
bool reg_answer_join(struct registrar *self, uint64_t id, uint32_t index, const char *key);
/* Tombstones for what may be on disks under a key that is not in the index. False: a new registrar
 * would not know of all of them. */
bool reg_key_forget(struct registrar *self, struct sl_key key, const struct reg_drop *how);
/* Half of a block came up in a scan: a client that has the bytes at hand is the better source.
 * False: there is no such half. */
bool reg_half_gives_way(struct registrar *self, sl_ref block);
/* How many tombstones, and notes, the removal of a value takes at most: of a write under way, its
 * place, disks in doubt. */
uint32_t reg_forgets_needed(struct registrar *self, const struct sl_entry *record);
/* Whether the index has room for the notes of the unit's removal. */
bool reg_notes_fit(struct registrar *self, sl_ref unit);
void reg_removes_scanned(struct registrar *self); /* all that is on disk is known now */

extern const struct reg_part reg_removes_part;

#endif
