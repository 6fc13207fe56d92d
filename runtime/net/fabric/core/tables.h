/* runtime/net/fabric/core/tables.h - what the core's own files ask of each other. */
#ifndef SL_FABRIC_CORE_TABLES_H
#define SL_FABRIC_CORE_TABLES_H

#include "runtime/net/fabric/core/internal.h"

/* ---- tables.c ---- */
/* A handle is a slot and the number of its life, so a stale one finds nothing. */
uint32_t fabric_handle_make(uint16_t generation, uint32_t index);
uint16_t fabric_generation_next(uint16_t generation);
/* NULL: there is none that lives. */
struct fabric_grant *fabric_grant_of(const struct sl_fabric *fabric, uint32_t handle);
struct fabric_key *fabric_key_of(const struct sl_fabric *fabric, uint32_t handle);
void fabric_key_free(struct sl_fabric *fabric, struct fabric_key *key);
/* True when the key allows by the rail what the piece reads. */
bool fabric_right_covers(const struct fabric_right *right, const struct sl_fabric_piece *piece);

/* ---- places.c ---- */
/* Where a piece or grant lies: in the places of its list, or in its one range. */
struct fabric_list {
    const struct sl_fabric_place *places; /* NULL: the whole is one range */
    uint32_t count;
    struct sl_fabric_place whole;
};
static inline const struct sl_fabric_place *fabric_list_at(const struct fabric_list *list,
                                                           uint32_t index)
{
    return list->places != NULL ? &list->places[index] : &list->whole;
}
/* No places, or 1..SL_FABRIC_PLACES_MAX whose lengths add up; all of it in memory that is ready.
 * Errors: SL_ERR_INVALID, SL_ERR_NOT_FOUND, SL_ERR_BUSY. */
sl_err fabric_list_check(struct sl_fabric *fabric, const struct fabric_list *list,
                         struct sl_error *why);

/* For so many places of lists, and so many of none. Errors: SL_ERR_NO_MEMORY. close accepts a table
 * that is not open. */
sl_err fabric_places_open(struct fabric_places *table, uint32_t count_max, uint32_t single_max,
                          struct sl_error *why);
void fabric_places_close(struct fabric_places *table);
uint32_t fabric_places_room(const struct fabric_places *table);
/* The places of the list, in order, each a user of its memory; there is room. */
struct fabric_place *fabric_places_hold(struct sl_fabric *fabric, const struct fabric_list *list);
void fabric_places_leave(struct sl_fabric *fabric, struct fabric_place *first);

/* ---- units.c ---- */
/* The piece waits for a lane of its rail; it ends at once where the link is down. */
void fabric_piece_begin(struct sl_fabric *fabric, struct fabric_piece *piece);
/* Nothing more of the piece is cut. When all its units are back it goes to another rail, or ends
 * with the code. */
void fabric_piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code);
/* The transfer ends with the code as soon as its memory is free. */
void fabric_transfer_give_up(struct sl_fabric *fabric, struct fabric_transfer *transfer,
                             sl_err code);
/* Gives waiting pieces to lanes that have room. */
void fabric_peer_pump(struct fabric_peer *peer);

/* ---- memory.c ---- */
/* Takes its regions from the back end. */
void fabric_memory_clear(struct sl_fabric *fabric, uint32_t index);
void fabric_memories_step(struct sl_fabric *fabric);

/* ---- peers.c ---- */
enum sl_fabric_link fabric_link_of(const struct fabric_peer *peer);
void fabric_peers_step(struct fabric_rail *rail);
void fabric_links_tell(struct sl_fabric *fabric);

/* ---- grants.c ---- */
/* The link is gone: grants that were to come by it do not. */
void fabric_grants_lost(const struct fabric_peer *peer);
void fabric_grants_tell(struct sl_fabric *fabric);

/* ---- transfers.c ---- */
void fabric_deadlines_step(struct sl_fabric *fabric);
void fabric_transfers_tell(struct sl_fabric *fabric);

/* ---- rails.c ---- */
#define FABRIC_SPLIT_BYTES SL_MIB /* less than this goes over one rail */
/* One for each entry of the options' list. Rails that do not open are left out while one does.
 * Errors: SL_ERR_CONFIG (an empty entry, too many), SL_ERR_NO_MEMORY, SL_ERR_OS; those of the first
 * rail when none opens. */
sl_err fabric_rails_open(struct sl_fabric *fabric, struct sl_error *why);
void fabric_rails_close(struct sl_fabric *fabric); /* they are quiet, and have no regions */
/* Whether the key works by this rail still. */
bool fabric_rail_lives(const struct fabric_rail *rail, const struct fabric_key *key);
/* Gives each piece of the transfer a rail: by bytes, or the whole to one where there are few. */
void fabric_rails_deal(struct sl_fabric *fabric, struct fabric_transfer *transfer);
/* Gives the piece that ended with a code to another rail, which is up. False: its code is final. */
bool fabric_rails_retry(struct sl_fabric *fabric, struct fabric_piece *piece);

/* ---- blob.c ----
 * "SLTR", version, whether a key dies with its link, count of rails, 0; then for each rail its
 * length (4 bytes) and its blob, length 0: it has none. A fabric of one address or NIC tells a
 * plain blob, takes the first of such a blob, and its own is taken for that of the first rail. */
struct fabric_blob {
    bool dies;
    const void *parts[FABRIC_RAILS_MAX]; /* NULL: none */
    uint32_t lengths[FABRIC_RAILS_MAX];
};
/* Puts the parts together; 0: they do not fit. Parts that do not fit behind others are left out. */
uint32_t fabric_blob_write(uint32_t count, const struct fabric_blob *blob, void *out);
/* The parts of a blob, borrowed from it. Errors: SL_ERR_PROTOCOL, SL_ERR_VERSION. */
sl_err fabric_blob_read(const void *bytes, uint32_t length_bytes, struct fabric_blob *out,
                        struct sl_error *why);

/* sl_fabric_open with this back end. */
sl_err fabric_open_with(const struct fabric_backend *ops, const struct sl_fabric_options *options,
                        struct sl_fabric **out, struct sl_error *why);

#endif
