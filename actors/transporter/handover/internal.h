/* actors/transporter/handover/internal.h - direct hand-over of blocks: decode's node reads what
 * prefill's lends it.
 *
 * lend.c    prefill: loans, what they name, and their end
 * grants.c  prefill: who may read a part, and that nobody does any more
 * take.c    decode: BRING with a ticket, what prefill names for it, and its end
 * read.c    decode: what was named is read, checked, copied to other ranks and reported
 * answers.c  both: answers, what has ended, whether a peer is gone
 * handover.c both: what ends them from outside, and time
 *
 * What ends is answered when nobody reads or writes blocks for it any more. When prefill and decode
 * are one node, the CPU copies. */
#ifndef SL_TRANSPORTER_HANDOVER_INTERNAL_H
#define SL_TRANSPORTER_HANDOVER_INTERNAL_H

#include "actors/transporter/handover/handover.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/regions/regions.h"
#include "ipc/msg/sl_ticket.h"

#define HO_PIECES_MAX      512u /* of a message */
#define HO_PARTS_MAX       4096u
#define HO_READS_MAX       TR_HANDOVER_READS_MAX
#define HO_UNREAD_MAX      64u    /* messages of a loan that decode has not read */
#define HO_PLACES_MAX      16384u /* of one transfer: a message may take several */
#define HO_SOON_NS         (5 * SL_NS_PER_MS)
#define HO_REPEAT_NS       (50 * SL_NS_PER_MS)
#define HO_ENDED_MAX       1024u                        /* remembered to answer repetitions */
#define HO_LENT_PLACES_MAX (TR_HANDOVER_PLACES_MAX / 2) /* of rights; the rest is for reads */
#define HO_COOKIE          (UINT64_C(1) << 63) /* of transfers; those of trips have it not */

enum ho_state { HO_FREE, HO_OPEN, HO_ENDING };

/* ---- prefill ---- */
enum ho_right { RIGHT_NONE, RIGHT_ASKED, RIGHT_READY, RIGHT_ENDS };
struct ho_share { /* a part that is lent */
    struct tr_spot spot;
    uint64_t length_bytes, named_bytes, read_bytes;
    uint8_t right; /* enum ho_right */
    uint32_t grant, key_bytes, place_count;
    void *key;
};
struct ho_message { /* what a LEND has named */
    uint32_t number, piece_count;
    bool last, sent;
    bool heard; /* decode has it, and has not read it yet */
    uint64_t said_ns;
    struct sl_item_arrived *pieces;
};
struct ho_loan {
    uint8_t state; /* enum ho_state */
    bool local;    /* decode is of this node */
    bool last;     /* all was named */
    bool waits;    /* the LEND of `back` is not answered yet */
    struct sl_ticket_fields ticket;
    struct sl_return back; /* of the last LEND */
    uint64_t number, peer_incarnation, deadline_ns;
    uint64_t due_ns;  /* when one of its messages is said again */
    uint64_t sign_ns; /* of life that decode gave last, or when it was last told of something new */
    uint32_t peer, taken; /* taken: number of the last LEND */
    uint32_t share_count, grants_open, places_open, unread;
    uint32_t pool_blocks;                      /* of the pool that the first part is of */
    struct ho_share *shares;                   /* by part, share_count */
    struct ho_message messages[HO_UNREAD_MAX]; /* unread, in their order */
    uint64_t fences;                           /* a bit each: those that wait for its end */
    sl_err code;                               /* why it ends */
    char text[SL_ERROR_TEXT_BYTES];
};
struct ho_grant { /* by slot of the handle */
    bool used;
    uint32_t handle, loan, part;
};

/* ---- decode ---- */
struct ho_part {
    bool open; /* key is */
    uint32_t key;
    uint64_t named_bytes;
};
struct ho_take {
    uint8_t state; /* enum ho_state */
    bool untold; /* its sender has not been told that it is taken: there was no room for the call */
    bool bound;  /* to peer, or to this node itself (local) */
    bool local, last; /* last: all was named */
    bool device;      /* some parts are: a swapper checks what lands there */
    struct sl_ticket_fields ticket;
    struct sl_return back;    /* of the BRING */
    char from[TR_NAME_BYTES]; /* "": whoever comes first */
    uint32_t peer, heard;     /* heard: number of the last message that was taken */
    uint64_t peer_incarnation, loan;
    uint32_t reads_open;
    struct tr_items items;           /* its parts; each is read to its first spot */
    struct ho_part *parts;           /* items.count */
    uint64_t copied_bytes, call_seq; /* LANDED, that it is open */
    uint64_t fences;                 /* a bit each: those that wait for its end */
    sl_err code;                     /* why it ends */
    char text[SL_ERROR_TEXT_BYTES];
};
/* POST <-> MOVES -> COPY -> SWAPPER, where some of it is in device memory -> TURN (after those
 * before it)
 * -> TELL. Of this node: from COPY on. */
enum ho_phase { READ_FREE, READ_POST, READ_MOVES, READ_COPY, READ_SWAPPER, READ_TURN, READ_TELL };
struct ho_read {   /* a message that is being read */
    uint8_t phase; /* enum ho_phase */
    bool last;
    uint32_t take, number, tries;
    uint64_t seq, trace_id; /* of the PEER_LEND that is answered */
    uint64_t cookie, call_seq, order;
    uint64_t again_ns; /* POST, SWAPPER: not before */
    uint32_t piece_count, piece_at, post_end;
    uint32_t copy_to; /* COPY: the owner of the part that gets the piece; 0: the first */
    uint64_t byte_at; /* COPY: of the piece */
    struct sl_item_arrived *pieces;
    uint8_t *states; /* a piece each: enum tr_look_state, of those in device memory */
};

struct ho_ended {
    struct sl_ticket_fields ticket;
    sl_err code;
};
struct ho_ring {
    struct ho_ended at[HO_ENDED_MAX];
    uint32_t next;
};

struct ho_metrics {
    sl_metric takes, takes_open, takes_failed, landed_bytes, copied_bytes, refused;
    sl_metric loans, loans_open, loans_failed, lent_bytes;
};

struct handover {
    struct sl_digest_stream digest; /* of the piece that the CPU copies */
    struct transporter *self;
    uint64_t next_loan, next_cookie, next_order, grace_ns;
    uint64_t due_ns, look_ns;
    bool look; /* at the health of peers, in this turn */

    struct ho_loan *loans;
    struct ho_take *takes;
    struct ho_read *reads;
    struct ho_grant *grants;
    struct ho_ring lent, taken;                /* that ended */
    uint32_t both_max, loans_open, takes_open; /* both_max: of either */
    uint32_t parts_max, shares_open, parts_open;
    uint32_t reads_open, places_open; /* places_open: of the rights of all loans */
    uint64_t full_ns;                 /* the fabric had no room: no read is posted before */

    /* scratch of messages and transfers */
    struct sl_item_door doors[HO_PIECES_MAX];
    struct sl_fabric_piece pieces[HO_PIECES_MAX];
    struct sl_digest digests[HO_PIECES_MAX];
    struct sl_fabric_place places[HO_PLACES_MAX];
    struct ho_metrics metric;
};

static inline uint64_t ho_now(const struct handover *ho)
{
    return ho->self->env->now_ns;
}
/* Wants to run at this time at the latest. */
static inline void ho_due(struct handover *ho, uint64_t at_ns)
{
    ho->due_ns = SL_MIN(ho->due_ns, at_ns);
}
static inline struct tr_range ho_range(const struct sl_item_arrived *piece)
{
    return (struct tr_range){.offset_bytes = piece->part_offset_bytes,
                             .length_bytes = piece->length_bytes};
}
/* What is said of a BRING that is over: these two say that it is not. */
static inline sl_err ho_over_code(sl_err code)
{
    return code == SL_ERR_BUSY || code == SL_ERR_NOT_FOUND ? SL_ERR_STALE : code;
}

/* ---- answers.c ---- */
void ho_ended_note(struct ho_ring *ring, const struct sl_ticket_fields *ticket, sl_err code);
/* NULL: it has not ended, or long ago. */
const struct ho_ended *ho_ended_find(const struct ho_ring *ring,
                                     const struct sl_ticket_fields *ticket);
/* Of a request of this node. False: it is refused, and answered. */
bool ho_ticket_taken(struct transporter *self, const struct sl_msg *msg,
                     const struct sl_bytes *bytes, struct sl_ticket_fields *out);
bool ho_ticket_is(const struct sl_ticket_fields *ticket, const struct sl_ticket_fields *other);
/* Answers a request of this node. */
void ho_reply(struct handover *ho, const struct sl_return *back, const struct sl_msg *reply,
              sl_err code, const char *text);
/* A peer that does not answer any more, and why that is thought. */
bool ho_peer_gone(const struct handover *ho, const struct tr_peer *peer, struct sl_error *why);

/* ---- lend.c ---- */
/* It ends, once: the first reason counts. tell: decode has to hear of it. */
void ho_loan_over(struct handover *ho, struct ho_loan *loan, sl_err code, const char *text,
                  bool tell);
/* Nobody reads there any more, perhaps: says so to whoever waits for it. */
void ho_loan_look(struct handover *ho, struct ho_loan *loan);
/* What decode says of message `number` of the loan; with SL_ERR_BUSY, of all up to it. peer NULL:
 * this node. */
void ho_loan_said(struct handover *ho, const struct tr_peer *peer, uint64_t loan, uint32_t number,
                  sl_err code, const char *text);
/* Where this node has a part that it lends to itself; NULL: it does not any more. */
const struct tr_spot *ho_loan_spot(struct handover *ho, uint64_t loan, uint64_t part);
void ho_loans_step(struct handover *ho, uint64_t now_ns);
void ho_loans_fini(struct handover *ho);

/* ---- grants.c ---- */
/* Makes what is missing of the rights that the message wants. SL_OK: all are ready. Errors:
 * SL_ERR_BUSY (soon), SL_ERR_LIMIT (never), those of tr_spot_places and sl_fabric_grant_add. */
sl_err ho_rights_make(struct handover *ho, struct ho_loan *loan, const struct ho_message *message,
                      struct sl_error *why);
/* Nobody needs it any more: all of the part was read. */
void ho_right_end(struct handover *ho, struct ho_share *share);
/* All of them end; ho_loan_look when nobody reads any more. */
void ho_rights_end(struct handover *ho, struct ho_loan *loan);

/* ---- take.c ---- */
/* A message of a loan; gives what is answered, and the number that it is of. SL_OK: it was read.
 * SL_ERR_BUSY: those up to the number are here. SL_ERR_NOT_FOUND: nobody wants it yet. *fresh: it
 * is taken, and is answered when it was read. peer NULL: this node. */
sl_err ho_take_hear(struct handover *ho, struct tr_peer *peer, const struct sl_msg *msg,
                    uint32_t *number, bool *fresh, struct sl_error *why);
/* It ends, once: the first reason counts. */
void ho_take_end(struct handover *ho, struct ho_take *take, sl_err code, const char *text);
/* Nothing is written any more, perhaps: says so to whoever waits for it. */
void ho_take_look(struct handover *ho, struct ho_take *take);
void ho_takes_step(struct handover *ho, uint64_t now_ns);
void ho_takes_fini(struct handover *ho);

/* ---- read.c ---- */
/* Errors: SL_ERR_BUSY (too many), SL_ERR_NO_MEMORY. */
sl_err ho_read_begin(struct handover *ho, struct ho_take *take, const struct sl_msg *msg,
                     struct sl_error *why);
/* Of this message; NULL: it is read. */
struct ho_read *ho_read_of(struct handover *ho, const struct ho_take *take, uint32_t number);
/* Those of a take that ends: whoever lends hears code and text. */
void ho_reads_stop(struct handover *ho, const struct ho_take *take);
void ho_reads_step(struct handover *ho, uint64_t now_ns);
void ho_reads_fini(struct handover *ho);

#endif
