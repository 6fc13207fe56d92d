/* client/lib/put.h - a batch of puts in progress. */
#ifndef SL_CLIENT_LIB_PUT_H
#define SL_CLIENT_LIB_PUT_H

#include "client/lib/pieces.h"

struct put_item {
    uint64_t source; /* index into the caller's arrays */
    uint64_t code, ref, generation, arena, offset_bytes;
    sl_pin pin;        /* of an extent granted in advance */
    bool later;        /* device memory is being copied into it, */
    uint32_t value;    /* as this value of the copies */
    bool other_writes; /* the registrar reported another writer */
};

struct put {
    struct sl_client *client;
    /* The input: items; or keys, with one buffer each or (drafts) without bytes so far. */
    const struct sl_iov_list *items_given;
    const struct sl_object_key *keys;
    const struct sl_object_key *bundles; /* of keys; may be NULL */
    const struct sl_buffer *values;
    const uint64_t *lengths;            /* of the values; used if there are no values */
    const struct sl_put_options *terms; /* NULL: none that the registrar needs */
    bool no_wait;
    bool draft;      /* written in steps, and pinned meanwhile */
    uint64_t ttl_ns; /* of the reservations; 0: the node's, or for large batches the deadline */
    sl_err *codes;
    uint64_t deadline_ns;
    void *event; /* CUevent that must complete before device memory is copied; NULL: none */
    struct sl_error *why;
    struct sl_text contributions[SL_TERMS_CONTRIBUTIONS_MAX];
    struct sl_pieces_room pieces_room;
    bool devices;                /* some of it may be device memory */
    struct sl_gpu_copies copies; /* copies from device memory */
    /* State of one round: */
    struct put_item *items;
    struct sl_item_want *wants;
    struct sl_item_claim *claims;
    struct sl_item_named *named; /* of claims, if in extents granted in advance */
    uint32_t *claim_items;       /* claims[i] is for items[claim_items[i]] */
    uint32_t item_count, claim_count;
    uint64_t space_bytes; /* of every item; 0: extents granted in advance are not usable */
    bool ahead;           /* this round uses them */
    bool asked_ahead;     /* its COMMIT requests more */
    struct sl_attachment *at;
};

static inline struct sl_object_key put_key(const struct put *put, uint64_t source)
{
    return put->items_given != NULL ? put->items_given[source].key : put->keys[source];
}

static inline struct sl_object_key put_bundle(const struct put *put, uint64_t source)
{
    if (put->items_given != NULL) {
        return put->items_given[source].bundle;
    }
    return put->bundles != NULL ? put->bundles[source] : (struct sl_object_key){0};
}

static inline uint64_t put_length(const struct put *put, uint64_t source)
{
    return put->values != NULL ? put->values[source].length_bytes : put->lengths[source];
}

/* ---- put.c ---- */
/* Returns the pieces of a value. *one is storage for a buffer. */
const struct sl_iov *sl_put_pieces_of(const struct put *put, uint64_t source, struct sl_iov *one,
                                      uint32_t *count);
/* Whether it is a valid key: 1 to SL_KEY_BYTES_MAX bytes without NUL. */
bool sl_put_key_valid(struct sl_object_key key);
/* Both return SL_ERR_INVALID. */
sl_err sl_put_check_names(const struct put *put, uint64_t source);
sl_err sl_put_check_length(const struct put *put, uint64_t length_bytes);
/* Copies the terms into put. Errors: SL_ERR_INVALID. */
sl_err sl_put_take_terms(struct put *put, const struct sl_put_options *terms);
/* Returns how many of the keys from `first` on fit into one message. */
uint32_t sl_put_share(const struct put *put, uint32_t first, uint32_t count);
/* Sends a request of the round to the registrar; `answered` is set. Errors: SL_ERR_BUSY (the node
 * was replaced meanwhile: nothing was done), those of a call. */
sl_err sl_put_call(struct put *put, struct sl_client_call *call);
/* Reserves space for the items of this round; sets their codes and extents. Errors: SL_ERR_BUSY
 * (the node was replaced meanwhile), SL_ERR_NO_MEMORY, those of a call. */
sl_err sl_put_reserve(struct put *put);
/* Returns the grant of an item that will not be filled, and sets its code. */
void sl_put_item_abandon(struct put *put, struct put_item *item, sl_err code);
/* Copies the granted items' values into their extents; makes the claims of the round. */
void sl_put_fill(struct put *put);
/* Sets the codes of the claims for the case that the answer has another count. */
void sl_put_unanswered(struct put *put);

/* ---- put_prealloc.c ---- */
/* Takes one extent for each item of the round, pinned. False: not available, and nothing was
 * taken. */
bool sl_put_prealloc_take(struct put *put);
/* Requests more with the round's COMMIT if values of this size recur. */
void sl_put_prealloc_request(struct put *put, struct sl_body_commit *commit);
/* Handles the answer. Under the client's lock. */
void sl_put_prealloc_add(struct put *put, const struct sl_msg *reply);
/* Ends the extents that the round took: used, kept for later, or to be returned. */
void sl_put_prealloc_end(struct put *put, sl_err result);
void sl_put_unpin(struct put *put, struct put_item *item);

#endif
