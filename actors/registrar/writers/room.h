/* actors/registrar/writers/room.h - makes room for a request, or decides that it waits. */
#ifndef SL_REGISTRAR_WRITERS_ROOM_H
#define SL_REGISTRAR_WRITERS_ROOM_H

#include "actors/registrar/writers/reserve.h"

/* Items of a request that need an extent. */
struct reg_need {
    uint64_t bytes;
    uint32_t count;
    bool fits; /* fits into empty memory */
};

/* Whether these bytes only wait for memory that is being populated. */
bool reg_memory_awaits_populate(const struct registrar *self, uint64_t need_bytes);
/* Whether granting may begin: there is room for all items, or the request takes what it gets. */
bool reg_request_has_room(struct registrar *self, const struct reg_request *req,
                          const struct reg_need *need, bool may_allocate);
/* If there is no room for item `first`: makes room for it and the following items that need an
 * extent, a batch at most, with one search for victims and one scan of the pins. */
void reg_request_room_ahead(struct registrar *self, const struct reg_request *req, uint32_t first);

#endif
