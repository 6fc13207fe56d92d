/* actors/registrar/disk/returning.h - blocks of sessions that come back: which are worth a place in
 * memory ahead of use, and how long they keep it. */
#ifndef SL_REGISTRAR_DISK_RETURNING_H
#define SL_REGISTRAR_DISK_RETURNING_H

#include "actors/registrar/base/core.h"

/* Whether what a PREFETCH for a session asks for may come: there is room beside what came so, and
 * what would go for it is worth less. */
bool reg_returning_fits(struct registrar *self, const struct sl_body_prefetch *asked);
/* The unit is of a session that comes back by until_ns: if all of it is in memory, it stays so long,
 * with what is before it in its chain. */
void reg_returning_keep(struct registrar *self, sl_ref unit, uint64_t until_ns);
void reg_returning_answer(struct registrar *self, const struct sl_return *to, const uint64_t *codes,
                          uint64_t count);

#endif
