/* actors/registrar/base/events.h - what happens to records, told to the parts that want to know.
 *
 * Parts that keep records (records/) know nothing of those that follow them: the disks, who is
 * charged, holds. They tell; a part listens by a field of its row (part.h). */
#ifndef SL_REGISTRAR_BASE_EVENTS_H
#define SL_REGISTRAR_BASE_EVENTS_H

#include "actors/registrar/base/core.h"

struct reg_drop; /* records/units.h */

struct reg_committed { /* a unit is visible, and in its list */
    sl_ref unit;
    const struct sl_group_info *group; /* NULL: an object */
};
struct reg_used { /* somebody wanted a unit */
    sl_ref unit;
    bool fetched; /* it came from disk for that: who waited for it uses it next */
};
struct reg_switched { /* a record was written anew, with another extent or another place */
    const struct sl_entry *old;
    sl_ref fresh;
    const struct sl_extent *extent;    /* the new one; NULL: it stayed */
    const struct sl_disk_place *place; /* likewise */
};
struct reg_dropped { /* a record is about to leave the table for good; it can still be read */
    const struct sl_entry *record;
    const struct reg_drop *how;
    bool writing; /* a tierer reads its extent */
};

void reg_tell_committed(struct registrar *self, sl_ref unit, const struct sl_group_info *group);
void reg_tell_used(struct registrar *self, const struct reg_used *what);
void reg_tell_switched(struct registrar *self, const struct reg_switched *what);
void reg_tell_wanted(struct registrar *self, sl_ref unit); /* one that was not to be written */
void reg_tell_dropped(struct registrar *self, const struct reg_dropped *what);
void reg_tell_freed(struct registrar *self, sl_ref ref); /* its extent is nobody's any more */
void reg_tell_disk_known(struct registrar *self);
void reg_tell_disk_left(struct registrar *self, uint32_t disk);

/* Puts a note into the index in place of *note (0: none), making room when it must. Errors:
 * SL_ERR_NO_SPACE (the one before stays). */
sl_err reg_note_put(struct registrar *self, const void *bytes, uint32_t length_bytes, uint32_t tag,
                    sl_ref *note, struct sl_error *why);
/* Whether eviction must have a copy on disk. */
bool reg_copy_required(const struct registrar *self);

#endif
