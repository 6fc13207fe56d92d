/* actors/registrar/writers/room.h - whether a request has the room that it needs, or gets it. */
#ifndef SL_REGISTRAR_WRITERS_ROOM_H
#define SL_REGISTRAR_WRITERS_ROOM_H

#include "actors/registrar/writers/reserve.h"

/* What a request needs after everything that needs nothing was answered. */
struct reg_need {
    uint64_t bytes;
    uint32_t count;
    bool fits; /* all at once, were nothing else there */
};

/* Whether these bytes lack nothing but memory that is on its way. */
bool reg_memory_comes(const struct registrar *self, uint64_t need_bytes);
/* Whether granting may begin: there is room for all of it, or it takes what it gets item by item.
 */
bool reg_request_has_room(struct registrar *self, const struct reg_request *req,
                          const struct reg_need *need, bool may_allocate);
/* Room for the items from first on that still need it, a batch at most, when there is none for the
 * first: one search for victims and one scan of the pins for all of them. */
void reg_request_room_ahead(struct registrar *self, const struct reg_request *req, uint32_t first);

#endif
