/* actors/registrar/records/seen.c - see seen.h. */
#include "actors/registrar/records/seen.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/units.h"
#include "ipc/shm/sl_seen.h"

/* Index bytes for each key of the filter: about four times as many keys as fit into the index. */
#define INDEX_BYTES_A_KEY 128u

static void seen_open(struct registrar *self)
{
    struct sl_error why = {0};
    if (sl_seen_make(self->env->paths->shm_dir, self->set.index_memory / INDEX_BYTES_A_KEY,
                     &self->seen->filter, &why) != SL_OK) {
        reg_log(self, SL_LOG_WARN, 0,
                "no filter of known keys, so no hit rate of unlimited memory: %s", why.text);
    }
}

void reg_seen_renew(struct registrar *self)
{
    sl_seen_close(&self->seen->filter);
    seen_open(self);
}

/* Only statistics depend on the filter, so init never fails. */
static sl_err seen_init(struct registrar *self, struct sl_error *why)
{
    (void)why;
    seen_open(self);
    return SL_OK;
}

static void seen_fini(struct registrar *self)
{
    sl_seen_close(&self->seen->filter);
}

static void seen_committed(struct registrar *self, const struct reg_committed *what)
{
    sl_seen_add(self->seen->filter, reg_unit_hash(self, what->unit));
}

const struct reg_part reg_seen_part = {
    .name = "seen",
    REG_STATE(seen, reg_seen),
    .init = seen_init,
    .fini = seen_fini,
    .committed = seen_committed,
};
