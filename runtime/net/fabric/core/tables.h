/* runtime/net/fabric/core/tables.h - interfaces between the core's files. */
#ifndef SL_FABRIC_CORE_TABLES_H
#define SL_FABRIC_CORE_TABLES_H

#include "runtime/net/fabric/core/internal.h"

/* ---- tables.c ---- */
/* A handle contains a slot and its generation, so a stale handle finds nothing. */
uint32_t fabric_handle_make(uint16_t generation, uint32_t index);
uint16_t fabric_generation_next(uint16_t generation);
/* NULL: none that is alive. */
struct fabric_grant *fabric_grant_of(const struct sl_fabric *fabric, uint32_t handle);
struct fabric_key *fabric_key_of(const struct sl_fabric *fabric, uint32_t handle);
void fabric_key_free(struct sl_fabric *fabric, struct fabric_key *key);
/* Whether the key permits on this rail what the piece reads. */
bool fabric_right_covers(const struct fabric_right *right, const struct sl_fabric_piece *piece);

/* ---- places.c ---- */
/* The memory of a piece or grant: a list of places, or one range. */
struct fabric_list {
    const struct sl_fabric_place *places; /* NULL: the single range `whole` */
    uint32_t count;
    struct sl_fabric_place whole;
};
static inline const struct sl_fabric_place *fabric_list_at(const struct fabric_list *list,
                                                           uint32_t index)
{
    return list->places != NULL ? &list->places[index] : &list->whole;
}
/* Checks a list of 0 or 1..SL_FABRIC_PLACES_MAX places: lengths add up, and all memory is ready.
 * Errors: SL_ERR_INVALID, SL_ERR_NOT_FOUND, SL_ERR_BUSY. */
sl_err fabric_list_check(struct sl_fabric *fabric, const struct fabric_list *list,
                         struct sl_error *why);

/* Makes a table for places of lists and single ranges. Errors: SL_ERR_NO_MEMORY. close accepts a
 * zeroed table. */
sl_err fabric_places_open(struct fabric_places *table, uint32_t count_max, uint32_t single_max,
                          struct sl_error *why);
void fabric_places_close(struct fabric_places *table);
uint32_t fabric_places_room(const struct fabric_places *table);
/* Stores the places of a list, in order; each is a user of its memory. Requires room. */
struct fabric_place *fabric_places_hold(struct sl_fabric *fabric, const struct fabric_list *list);
void fabric_places_leave(struct sl_fabric *fabric, struct fabric_place *first);

/* ---- units.c ---- */
/* Queues the piece for a lane of its rail; ends it at once if the link is down. */
void fabric_piece_begin(struct sl_fabric *fabric, struct fabric_piece *piece);
/* Stops cutting the piece. When all its units are back it is retried on another rail, or ends with
 * the code. */
void fabric_piece_stop(struct sl_fabric *fabric, struct fabric_piece *piece, sl_err code);
/* Ends the transfer with the code as soon as its memory is free. */
void fabric_transfer_give_up(struct sl_fabric *fabric, struct fabric_transfer *transfer,
                             sl_err code);
/* Gives waiting pieces to lanes with free slots. */
void fabric_peer_pump(struct fabric_peer *peer);

/* ---- memory.c ---- */
/* Removes its regions and frees it. */
void fabric_memory_clear(struct sl_fabric *fabric, uint32_t index);
void fabric_memories_step(struct sl_fabric *fabric);

/* ---- peers.c ---- */
enum sl_fabric_link fabric_link_of(const struct fabric_peer *peer);
void fabric_peers_step(struct fabric_rail *rail);
void fabric_links_report(struct sl_fabric *fabric);

/* ---- grants.c ---- */
/* The link was lost: grants that are not ready on it will not be. */
void fabric_grants_lost(const struct fabric_peer *peer);
void fabric_grants_report(struct sl_fabric *fabric);

/* ---- transfers.c ---- */
void fabric_deadlines_step(struct sl_fabric *fabric);
void fabric_transfers_report(struct sl_fabric *fabric);

/* ---- rails.c ---- */
#define FABRIC_SPLIT_BYTES SL_MIB /* smaller transfers use one rail */
/* Opens a rail for each entry of the options' list. Rails that fail are left out if at least one
 * opens. Errors: SL_ERR_CONFIG (an empty entry, too many), SL_ERR_NO_MEMORY, SL_ERR_OS; those of
 * the first rail if none opens. */
sl_err fabric_rails_open(struct sl_fabric *fabric, struct sl_error *why);
void fabric_rails_close(struct sl_fabric *fabric); /* after quiesce and without regions */
/* Whether the key is still valid on this rail. */
bool fabric_rail_key_valid(const struct fabric_rail *rail, const struct fabric_key *key);
/* Chooses a rail for each piece: balanced by bytes, or one rail for a small transfer. */
void fabric_rails_deal(struct sl_fabric *fabric, struct fabric_transfer *transfer);
/* Moves a failed piece to another rail that is up. False: its code is final. */
bool fabric_rails_retry(struct sl_fabric *fabric, struct fabric_piece *piece);

/* ---- blob.c ----
 * "SLTR", version, whether a key is void after a link loss, count of rails, 0; then for each rail
 * its length (4 bytes) and its blob, length 0: none. A fabric with one rail writes a plain blob and
 * reads the first part of a blob of rails; others read a plain one as the first rail's. */
struct fabric_blob {
    bool dies;
    const void *parts[FABRIC_RAILS_MAX]; /* NULL: none */
    uint32_t lengths[FABRIC_RAILS_MAX];
};
/* Joins the parts; 0: none, or none fits. Parts that do not fit after others are left out. */
uint32_t fabric_blob_write(uint32_t count, const struct fabric_blob *blob, void *out);
/* Splits a blob into parts, borrowed from it. Errors: SL_ERR_PROTOCOL, SL_ERR_VERSION. */
sl_err fabric_blob_read(const void *bytes, uint32_t length_bytes, struct fabric_blob *out,
                        struct sl_error *why);

/* sl_fabric_open with this back end. */
sl_err fabric_open_with(const struct fabric_backend *ops, const struct sl_fabric_options *options,
                        struct sl_fabric **out, struct sl_error *why);

#endif
