/* runtime/fabric/core/tables.h - what the core's own files ask of each other. */
#ifndef SL_FABRIC_CORE_TABLES_H
#define SL_FABRIC_CORE_TABLES_H

#include "runtime/fabric/core/internal.h"

/* ---- tables.c ---- */
/* A handle is a slot and the number of its life, so a stale one finds nothing. */
uint32_t fabric_handle_make(uint16_t generation, uint32_t index);
uint16_t fabric_generation_next(uint16_t generation);
/* NULL: there is none that lives. */
struct fabric_grant *fabric_grant_of(const struct sl_fabric *fabric, uint32_t handle);
struct fabric_key *fabric_key_of(const struct sl_fabric *fabric, uint32_t handle);
void fabric_key_free(struct sl_fabric *fabric, struct fabric_key *key);
/* True when the regions cover [offset, +length) without a gap. */
bool fabric_regions_cover(const struct fabric_region *regions, uint32_t count,
                          uint64_t offset_bytes, uint64_t length_bytes);

/* ---- places.c ---- */
/* No places, or 1..SL_FABRIC_PLACES_MAX whose lengths add up. Errors: SL_ERR_INVALID. */
sl_err fabric_places_count_check(const struct sl_fabric_place *places, uint32_t count,
                                 uint64_t length_bytes, struct sl_error *why);
/* The range is in memory that is ready. Errors: SL_ERR_NOT_FOUND, SL_ERR_BUSY, SL_ERR_INVALID. */
sl_err fabric_range_check(struct sl_fabric *fabric, const struct sl_fabric_place *range,
                          struct sl_error *why);
/* Both, for all of a list. */
sl_err fabric_places_check(struct sl_fabric *fabric, const struct sl_fabric_place *places,
                           uint32_t count, uint64_t length_bytes, struct sl_error *why);

/* Errors: SL_ERR_NO_MEMORY. close accepts a table that is not open. */
sl_err fabric_places_open(struct fabric_places *table, uint32_t count_max, struct sl_error *why);
void fabric_places_close(struct fabric_places *table);
uint32_t fabric_places_room(const struct fabric_places *table);
/* A list of them, in order; there is room. NULL: count is 0. */
struct fabric_place *fabric_places_take(struct fabric_places *table,
                                        const struct sl_fabric_place *places, uint32_t count);
void fabric_places_give(struct fabric_places *table, struct fabric_place *first);
/* The same, with addresses, and each a user of its memory. */
struct fabric_place *fabric_places_hold(struct sl_fabric *fabric,
                                        const struct sl_fabric_place *places, uint32_t count);
void fabric_places_leave(struct sl_fabric *fabric, struct fabric_place *first);

/* ---- units.c ---- */
/* The piece waits for a lane of its peer. */
void fabric_piece_queue(struct fabric_peer *peer, struct fabric_piece *piece);
/* Nothing more of the piece is cut; its transfer ends with the code when all units are back. */
void fabric_piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code);
/* The transfer ends with the code as soon as its memory is free. */
void fabric_transfer_give_up(struct sl_fabric *fabric, struct fabric_transfer *transfer,
                             sl_err code);
/* Gives waiting pieces to lanes that have room. */
void fabric_peer_pump(struct fabric_peer *peer);

/* ---- memory.c ---- */
/* Takes its regions from the back end. */
void fabric_memory_clear(struct sl_fabric *fabric, struct fabric_memory *memory);
/* No more of it is registered, and registered() does not come; one that is ready stays so. */
void fabric_memory_give_up(struct sl_fabric *fabric, uint32_t handle);
void fabric_memories_step(struct sl_fabric *fabric);

/* ---- peers.c ---- */
void fabric_peers_step(struct sl_fabric *fabric);
void fabric_links_tell(struct sl_fabric *fabric);

/* ---- grants.c ---- */
void fabric_grants_tell(struct sl_fabric *fabric);

/* ---- rails_blob.c ---- */
/* A blob of rails becomes that of its first; others stay. Errors: SL_ERR_PROTOCOL, SL_ERR_VERSION. */
sl_err fabric_rails_first(const void **blob, uint32_t *length_bytes, struct sl_error *why);

/* ---- transfers.c ---- */
void fabric_deadlines_step(struct sl_fabric *fabric);
void fabric_transfers_tell(struct sl_fabric *fabric);

#endif
