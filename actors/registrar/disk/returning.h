/* actors/registrar/disk/returning.h - blocks of sessions that come back: which are worth a place in
 * memory ahead of use, and how long they keep it. */
#ifndef SL_REGISTRAR_DISK_RETURNING_H
#define SL_REGISTRAR_DISK_RETURNING_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/disk/promote.h"

/* Whether what a BRING for a session asks for may come: there is room beside what came so, also for the rest of its
 * chain, and what would go for it is worth less. Gives in *lacks_bytes what there is no room for, 0 when there
 * is. */
bool reg_returning_fits(struct registrar *self, const struct sl_body_bring *asked,
                        uint64_t *lacks_bytes);
/* The unit is of a session that comes back by until_ns: if all of it is in memory, it stays until then
 * or until it is used, with what is before it in its chain. */
void reg_returning_keep(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* Says how full the room is, or would be with what it lacks room for. */
void reg_returning_answer(struct registrar *self, const struct reg_promote *promote);

#endif
