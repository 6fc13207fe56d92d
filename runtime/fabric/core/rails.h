/* runtime/fabric/core/rails.h - several NICs (or addresses) as one fabric: a fabric a rail, behind the
 * interface of one.
 *
 * A memory is registered with every rail, a peer has a link on every rail, and a grant's key is a
 * key of every rail. Rail i of one node speaks to rail i of the other; rails that the other has not
 * got, or has of another kind, carry nothing. A transfer's pieces are dealt out over the rails that
 * are up. A rail whose link breaks ends its pieces, and they go to the others, each rail once a
 * piece. When its link is there again it takes pieces again. The promises of fabric.h hold: done()
 * comes once, when no rail touches the local memory any more; grant_ended() comes when nothing lands
 * by any rail.
 *
 * Blobs: "SLTR", version, whether a key dies with its link, count of rails, 0; then for each rail its length (4
 * bytes) and its blob, length 0: it has none. A fabric without rails takes the first of such a blob,
 * and one with rails takes a plain blob for that of its first rail. */
#ifndef SL_FABRIC_CORE_RAILS_H
#define SL_FABRIC_CORE_RAILS_H

#include "runtime/fabric/core/tables.h"

#define RAILS_MAX         16u
#define RAILS_BATCHES_MAX UINT16_MAX
#define RAILS_ENTRY_BYTES 160u   /* of a list */
#define RAILS_SPLIT_BYTES SL_MIB /* less than this goes over one rail */

struct rails;
struct rail {
    struct rails *rails;
    struct sl_fabric *fabric; /* NULL: it did not open */
    uint32_t index;
    uint64_t out_bytes;            /* posted and not ended */
    char entry[RAILS_ENTRY_BYTES]; /* of the list */
    char reason[104];              /* why it did not open */
    uint16_t *grant_of;            /* by slot of the rail's grant: slot of ours */
};
struct rails_memory {
    bool used, by_dmabuf;
    uint16_t generation, ready; /* ready: a bit a rail */
    uint32_t users;             /* pieces and grants */
    uint32_t sub[RAILS_MAX];
};
struct rails_peer {
    bool used;
    uint16_t generation;
    uint8_t told; /* enum sl_fabric_link */
    uint32_t sub[RAILS_MAX];
    uint32_t lives[RAILS_MAX]; /* how often the link went */
    void *blobs[RAILS_MAX];    /* our addresses for it */
    uint32_t blob_bytes[RAILS_MAX];
};
struct rails_grant {
    bool used, ending, told, gone, silent;          /* silent: nobody knows its handle */
    bool late;                                      /* granted() brings the key */
    bool dies;                                      /* a rail's key is gone with its link */
    uint16_t generation, added, ready, lost, ended; /* bits of rails */
    uint32_t peer, memory;                          /* handles */
    struct fabric_place *places;                    /* NULL: one range of that memory */
    uint32_t sub[RAILS_MAX];
    void
        *parts[RAILS_MAX]; /* owned; kept until it is told where a part may come later, else NULL */
    uint32_t part_bytes[RAILS_MAX];
    struct sl_error *why; /* owned; the first rail that failed after it was added; NULL: none did */
};
struct rails_key {
    bool used, dies; /* dies: with the link, as tickets of verbs do */
    uint16_t generation, there;
    uint32_t peer; /* handle */
    uint32_t sub[RAILS_MAX], lives[RAILS_MAX];
};
struct rails_piece {
    struct sl_fabric_piece want; /* our handles */
    struct fabric_place *places; /* NULL: one range of one memory */
    struct sl_digest digest;
    bool check_digest;
    uint8_t code, rail;
    uint16_t tried, batch; /* rails; which post to a rail it is part of */
    uint32_t next;         /* of its transfer, or free */
};
struct rails_transfer {
    bool used, cancelled;
    uint16_t batch_count;
    uint32_t number; /* of its life */
    uint32_t peer, piece_count, piece_first, batches_out, next;
    uint64_t deadline_ns, cookie, moved_bytes;
};
struct rails {
    struct sl_fabric *fabric; /* ours: options, clock, descriptor, what it is called */
    uint32_t count, turn;
    bool by_nic;   /* the list is of NICs, not of addresses */
    bool keys_die; /* with their link */
    struct rail at[RAILS_MAX];
    struct rails_memory *memories;
    struct rails_peer *peers;
    struct rails_grant *grants;
    struct rails_key *keys;
    struct rails_transfer *transfers;
    struct rails_piece *pieces;
    uint32_t free_transfer, free_piece, number, grants_gone;
    struct fabric_places places;           /* with our handles */
    struct sl_fabric_place *place_scratch; /* places_max, with those of a rail */
    struct sl_fabric_piece scratch[SL_FABRIC_PIECES_MAX];
    uint8_t codes[SL_FABRIC_PIECES_MAX];
    unsigned char blob[SL_FABRIC_BLOB_MAX], part[SL_FABRIC_BLOB_MAX];
};

/* Those that are named as in fabric.h do what these do, of all rails. */
/* ---- rails.c ---- */
/* Whether the options name several addresses (tcp) or NICs (else): a comma list. */
bool fabric_rails_wanted(const struct sl_fabric_options *options);
/* A fabric of all of them, RAILS_MAX at most. Rails that do not open are left out while one does;
 * about() says why. Errors: SL_ERR_CONFIG (an empty entry, too many), SL_ERR_NO_MEMORY, SL_ERR_OS;
 * those of the first rail when none opens. */
sl_err fabric_rails_open(const struct fabric_backend *ops, const struct sl_fabric_options *options,
                         struct sl_fabric **out, struct sl_error *why);
struct rails_peer *rails_peer_of(const struct rails *rails, uint32_t handle); /* NULL: none */

/* ---- rails_blob.c ---- */
/* Puts the parts together; 0: they do not fit. Parts that do not fit behind others are left out. */
uint32_t rails_blob_write(const struct rails *rails, bool dies, const void *const parts[RAILS_MAX],
                          const uint32_t lengths[RAILS_MAX], void *out);
/* The parts of a blob, borrowed from it. Errors: SL_ERR_PROTOCOL, SL_ERR_VERSION. */
struct rails_blob {
    bool dies;
    const void *parts[RAILS_MAX];
    uint32_t lengths[RAILS_MAX];
};
sl_err rails_blob_read(const void *blob, uint32_t length_bytes, struct rails_blob *out,
                       struct sl_error *why);

/* ---- rails_keys.c ---- */
struct rails_memory *rails_memory_of(const struct rails *rails, uint32_t handle); /* NULL: none */
struct rails_key *rails_key_of(const struct rails *rails, uint32_t handle);
sl_err fabric_rails_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                               uint32_t *out, struct sl_error *why);
sl_err fabric_rails_memory_remove_step(struct sl_fabric *fabric, uint32_t memory, bool *gone);
uint64_t fabric_rails_region_bytes_max(const struct sl_fabric *fabric);
sl_err fabric_rails_dmabuf_check(const struct sl_fabric *fabric, struct sl_error *why);
bool rails_memory_is_ready(const struct rails *rails, const struct rails_memory *memory);
/* The memories of the places (count 0: the one) are there and ready. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_BUSY. */
sl_err rails_memories_check(const struct rails *rails, uint32_t memory,
                            const struct sl_fabric_place *places, uint32_t count,
                            struct sl_error *why);
/* They get a user more, or one less: of the list, or of the one memory where that is NULL. */
struct fabric_place *rails_memories_hold(struct rails *rails, uint32_t memory,
                                         const struct sl_fabric_place *places, uint32_t count);
void rails_memories_leave(struct rails *rails, uint32_t memory, struct fabric_place *places);
/* The list with the handles of the rail. Gives the count; out has room for all. */
uint32_t rails_places_on(const struct rail *rail, const struct fabric_place *places,
                         struct sl_fabric_place *out);
sl_err fabric_rails_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                              uint32_t *out, void *key, uint32_t *key_bytes, struct sl_error *why);
sl_err fabric_rails_grant_end(struct sl_fabric *fabric, uint32_t grant);
sl_err fabric_rails_key_open(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                             uint32_t length_bytes, uint32_t *out, struct sl_error *why);
void fabric_rails_key_close(struct sl_fabric *fabric, uint32_t key);
void rails_grant_free(struct rails_grant *grant);
/* The link of a rail to the peer is gone: grants that were to come by it do not. */
void rails_grants_lost(struct rail *rail, uint32_t peer);
void rails_keys_drop(struct rails *rails, uint32_t peer);
void rails_grants_tell(struct rails *rails);
void rails_on_registered(void *rail, uint32_t memory, uint32_t region_index,
                         const struct sl_error *why);
void rails_on_granted(void *rail, uint32_t grant, const void *key, uint32_t key_bytes,
                      const struct sl_error *why);
void rails_on_grant_ended(void *rail, uint32_t grant);

/* ---- rails_transfers.c ---- */
sl_err fabric_rails_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                         struct sl_error *why);
uint32_t fabric_rails_cancel(struct sl_fabric *fabric, uint64_t cookie);
void rails_on_done(void *rail, const struct sl_fabric_done *done);

#endif
