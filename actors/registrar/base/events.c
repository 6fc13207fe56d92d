/* actors/registrar/base/events.c - calls parts that subscribe to events or answer questions. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"

#define NOTIFY(walk, call)     \
    REG_EACH(self, walk, part) \
    {                          \
        (*part)->call;         \
    }

void reg_notify_committed(struct registrar *self, sl_ref unit, const struct sl_group_info *group)
{
    const struct reg_committed what = {.unit = unit, .group = group};
    NOTIFY(REG_WALK_COMMITTED, committed(self, &what));
}

void reg_notify_used(struct registrar *self, const struct reg_used *what)
{
    NOTIFY(REG_WALK_USED, used(self, what));
}

void reg_notify_switched(struct registrar *self, const struct reg_switched *what)
{
    NOTIFY(REG_WALK_SWITCHED, switched(self, what));
}

void reg_notify_wanted(struct registrar *self, sl_ref unit)
{
    NOTIFY(REG_WALK_WANTED, wanted(self, unit));
}

void reg_notify_dropped(struct registrar *self, const struct reg_dropped *what)
{
    NOTIFY(REG_WALK_DROPPED, dropped(self, what));
}

void reg_notify_freed(struct registrar *self, sl_ref ref)
{
    NOTIFY(REG_WALK_FREED, freed(self, ref));
}

void reg_notify_disk_known(struct registrar *self)
{
    NOTIFY(REG_WALK_DISK_KNOWN, disk_known(self));
}

void reg_notify_disk_left(struct registrar *self, uint32_t disk)
{
    NOTIFY(REG_WALK_DISK_LEFT, disk_left(self, disk));
}

sl_err reg_note_put(struct registrar *self, const void *bytes, uint32_t length_bytes, uint32_t tag,
                    sl_ref *note, struct sl_error *why)
{
    sl_ref fresh = 0;
    sl_err err = sl_index_blob_put(self->index, bytes, length_bytes, tag, &fresh, why);
    if (err == SL_ERR_NO_SPACE && self->walks->index_room(self)) {
        err = sl_index_blob_put(self->index, bytes, length_bytes, tag, &fresh, why);
    }
    if (err == SL_OK && *note != 0) { /* killed here: two notes; the part takes one */
        sl_index_set_kind(self->index, *note, SL_RECORD_FREE);
    }
    *note = err == SL_OK ? fresh : *note;
    return err;
}

bool reg_copy_required(const struct registrar *self)
{
    return self->walks->copy_required(self);
}
