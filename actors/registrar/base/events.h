/* actors/registrar/base/events.h - notifies parts of changes to records.
 *
 * The folder records/ does not know the parts that depend on its records. It calls these functions;
 * a part subscribes by a field of its row (part.h). */
#ifndef SL_REGISTRAR_BASE_EVENTS_H
#define SL_REGISTRAR_BASE_EVENTS_H

#include "actors/registrar/base/core.h"

struct reg_drop; /* records/units.h */

struct reg_committed { /* a unit became visible and is in its list */
    sl_ref unit;
    const struct sl_group_info *group; /* NULL: an object */
};
struct reg_used { /* a unit was used */
    sl_ref unit;
    bool fetched; /* read from disk for a request, which uses it next */
};
struct reg_switched { /* a record was replaced by one with another extent or place */
    const struct sl_entry *old;
    sl_ref fresh;
    const struct sl_extent *extent;    /* the new one; NULL: unchanged */
    const struct sl_disk_place *place; /* likewise */
};
struct reg_dropped { /* a record is about to leave the table permanently; it can still be read */
    const struct sl_entry *record;
    const struct reg_drop *how;
    bool writing; /* a tierer is reading its extent */
};

void reg_notify_committed(struct registrar *self, sl_ref unit, const struct sl_group_info *group);
void reg_notify_used(struct registrar *self, const struct reg_used *what);
void reg_notify_switched(struct registrar *self, const struct reg_switched *what);
/* The unit was used, though admission had refused to write it to disk. */
void reg_notify_wanted(struct registrar *self, sl_ref unit);
void reg_notify_dropped(struct registrar *self, const struct reg_dropped *what);
void reg_notify_freed(struct registrar *self, sl_ref ref); /* just before its extent is freed */
void reg_notify_disk_known(struct registrar *self);
void reg_notify_disk_left(struct registrar *self, uint32_t disk);

/* Writes a note to the index in place of *note (0: none), and makes room if needed. Errors:
 * SL_ERR_NO_SPACE (*note stays). */
sl_err reg_note_put(struct registrar *self, const void *bytes, uint32_t length_bytes, uint32_t tag,
                    sl_ref *note, struct sl_error *why);
/* Whether eviction requires a copy on disk. */
bool reg_copy_required(const struct registrar *self);

#endif
