/* actors/transporter/handover/internal.h - direct hand-over: decode's node reads blocks that
 * prefill's node lends.
 *
 * lend.c     prefill: loans
 * grants.c   prefill: the right of decode's node to read each part
 * take.c     decode: BRING with a ticket, and the pieces that prefill announces for it
 * read.c     decode: reads announced pieces, checks, copies to other ranks, reports
 * answers.c  both: answers, ended hand-overs, lost peers
 * handover.c both: external events and timers
 *
 * A request is answered only when blocks are no longer read or written for it. If prefill and
 * decode are on one node, the CPU copies. */
#ifndef SL_TRANSPORTER_HANDOVER_INTERNAL_H
#define SL_TRANSPORTER_HANDOVER_INTERNAL_H

#include "actors/transporter/handover/handover.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/regions/regions.h"
#include "ipc/msg/sl_ticket.h"

#define HO_PIECES_MAX      512u /* per message */
#define HO_PARTS_MAX       4096u
#define HO_READS_MAX       TR_HANDOVER_READS_MAX
#define HO_UNREAD_MAX      64u    /* messages of a loan that decode has not read yet */
#define HO_PLACES_MAX      16384u /* of one transfer: a message may take several transfers */
#define HO_SOON_NS         (5 * SL_NS_PER_MS)
#define HO_REPEAT_NS       (50 * SL_NS_PER_MS)
#define HO_ENDED_MAX       1024u                        /* remembered to answer repetitions */
#define HO_LOAN_PLACES_MAX (TR_HANDOVER_PLACES_MAX / 2) /* for rights; the rest is for reads */
#define HO_COOKIE          (UINT64_C(1) << 63) /* set in cookies of hand-over transfers only */

enum ho_state { HO_FREE, HO_OPEN, HO_ENDING };

/* ---- prefill ---- */
enum ho_right { RIGHT_NONE, RIGHT_ASKED, RIGHT_READY, RIGHT_ENDS };
struct ho_share { /* a part in the loan */
    struct tr_slot slot;
    uint64_t length_bytes, named_bytes, read_bytes;
    uint8_t right; /* enum ho_right */
    uint32_t grant, key_bytes, place_count;
    void *key;
};
struct ho_message { /* announced pieces of one LEND */
    uint32_t number, piece_count;
    bool last, sent;
    bool heard; /* decode has received it and not read it yet */
    uint64_t said_ns;
    struct sl_item_arrived *pieces;
};
struct ho_loan {   /* what one ticket lets decode read */
    uint8_t state; /* enum ho_state */
    bool local;    /* decode is on this node */
    bool last;     /* all pieces were announced */
    bool waits;    /* the LEND of `back` is not answered yet */
    struct sl_ticket_fields ticket;
    struct sl_reply_route back; /* the last LEND */
    uint64_t number, peer_incarnation, deadline_ns;
    uint64_t due_ns;      /* when its messages are repeated */
    uint64_t sign_ns;     /* last sign of life of decode, or last new message to it */
    uint32_t peer, taken; /* taken: number of the last LEND */
    uint32_t share_count, grants_open, places_open, unread;
    uint32_t pool_blocks;                      /* number of blocks of the first part's pool */
    struct ho_share *shares;                   /* indexed by part, share_count */
    struct ho_message messages[HO_UNREAD_MAX]; /* unread, in order */
    uint64_t fences;                           /* bit mask: fences that wait for its end */
    sl_err code;                               /* result */
    char text[SL_ERROR_TEXT_BYTES];
};
struct ho_grant { /* indexed by the slot of the handle */
    bool used;
    uint32_t handle, loan, part;
};

/* ---- decode ---- */
struct ho_part {
    bool open; /* key is open */
    uint32_t key;
    uint64_t named_bytes;
};
struct ho_take {      /* a BRING with a ticket */
    uint8_t state;    /* enum ho_state */
    bool report_due;  /* LANDED with state 0 is not sent yet: the table of calls was full */
    bool bound;       /* to peer, or to this node itself (local) */
    bool local, last; /* last: all pieces were announced */
    bool device;      /* some parts are in device memory, which a swapper checks */
    struct sl_ticket_fields ticket;
    struct sl_reply_route back; /* the BRING */
    char from[TR_NAME_BYTES];   /* "": any node may be the first */
    uint32_t peer, heard;       /* index; number of the last accepted message */
    uint64_t peer_incarnation, loan;
    uint32_t reads_open;
    struct tr_items items;           /* its parts; each is read into its first slot */
    struct ho_part *parts;           /* items.count */
    uint64_t copied_bytes, call_seq; /* call_seq: LANDED with state 0 */
    uint64_t fences;                 /* bit mask: fences that wait for its end */
    sl_err code;                     /* result */
    char text[SL_ERROR_TEXT_BYTES];
};
/* POST <-> MOVES -> COPY -> SWAPPER (device memory only) -> TURN (wait for earlier messages) ->
 * TELL. If prefill is on this node, it starts with COPY. */
enum ho_phase { READ_FREE, READ_POST, READ_MOVES, READ_COPY, READ_SWAPPER, READ_TURN, READ_TELL };
struct ho_read {   /* a message that is being read */
    uint8_t phase; /* enum ho_phase */
    bool last;
    uint32_t take, number, tries;
    uint64_t seq, trace_id; /* of the PEER_LEND to answer */
    uint64_t cookie, call_seq, order;
    uint64_t again_ns; /* POST, SWAPPER: earliest time of the next try */
    uint32_t piece_count, piece_at, post_end;
    uint32_t copy_to; /* COPY: index of the rank that gets the piece; 0: the first */
    uint64_t byte_at; /* COPY: offset in the piece */
    struct sl_item_arrived *pieces;
    uint8_t *states; /* enum tr_verify_state of each piece in device memory */
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
    sl_metric loans, loans_open, loans_failed, pool_read_bytes;
};

struct handover {
    struct sl_digest_stream digest; /* of the piece that the CPU copies */
    struct transporter *self;
    uint64_t next_loan, next_cookie, next_order, grace_ns;
    uint64_t due_ns, look_ns;
    bool look; /* check the health of peers in this turn */

    struct ho_loan *loans;
    struct ho_take *takes;
    struct ho_read *reads;
    struct ho_grant *grants;
    struct ho_ring ended_loans, taken;         /* ended ones */
    uint32_t both_max, loans_open, takes_open; /* both_max: limit of each */
    uint32_t parts_max, shares_open, parts_open;
    uint32_t reads_open, places_open; /* places_open: of the rights of all loans */
    uint64_t full_ns;                 /* the fabric was full: no read is posted before this time */

    /* scratch buffers for messages and transfers */
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
/* Requests a run of the step at at_ns or earlier. */
static inline void ho_due(struct handover *ho, uint64_t at_ns)
{
    ho->due_ns = SL_MIN(ho->due_ns, at_ns);
}
static inline struct tr_range ho_range(const struct sl_item_arrived *piece)
{
    return (struct tr_range){.offset_bytes = piece->part_offset_bytes,
                             .length_bytes = piece->length_bytes};
}
/* Code to report for a hand-over that has ended: these two codes would mean that it has not. */
static inline sl_err ho_over_code(sl_err code)
{
    return code == SL_ERR_BUSY || code == SL_ERR_NOT_FOUND ? SL_ERR_STALE : code;
}

/* ---- answers.c ---- */
void ho_ended_note(struct ho_ring *ring, const struct sl_ticket_fields *ticket, sl_err code);
/* NULL: it has not ended, or so long ago that it was forgotten. */
const struct ho_ended *ho_ended_find(const struct ho_ring *ring,
                                     const struct sl_ticket_fields *ticket);
/* Reads the ticket of a local request. False: it was refused and answered. */
bool ho_ticket_taken(struct transporter *self, const struct sl_msg *msg,
                     const struct sl_bytes *bytes, struct sl_ticket_fields *out);
bool ho_ticket_is(const struct sl_ticket_fields *ticket, const struct sl_ticket_fields *other);
/* Answers a local request. */
void ho_reply(struct handover *ho, const struct sl_reply_route *back, const struct sl_msg *reply,
              sl_err code, const char *text);
/* Whether the peer stopped answering; why is set. */
bool ho_peer_gone(const struct handover *ho, const struct tr_peer *peer, struct sl_error *why);

/* ---- lend.c ---- */
/* Ends the loan; only the first reason counts. tell: notify decode. */
void ho_loan_end(struct handover *ho, struct ho_loan *loan, sl_err code, const char *text,
                 bool tell);
/* Completes an ending loan once it is no longer read: answers requests and fences. */
void ho_loan_settle(struct handover *ho, struct ho_loan *loan);
/* Handles decode's answer to message `number` of the loan; SL_ERR_BUSY acknowledges all messages up
 * to it. peer NULL: this node. */
void ho_loan_answered(struct handover *ho, const struct tr_peer *peer, uint64_t loan,
                      uint32_t number, sl_err code, const char *text);
/* Slot of a part that this node reads from itself; NULL: the loan has ended. */
const struct tr_slot *ho_loan_slot(struct handover *ho, uint64_t loan, uint64_t part);
void ho_loans_step(struct handover *ho, uint64_t now_ns);
void ho_loans_fini(struct handover *ho);

/* ---- grants.c ---- */
/* Creates the missing rights for the message. SL_OK: all are ready. Errors: SL_ERR_BUSY (retry
 * soon), SL_ERR_LIMIT (permanent), those of tr_slot_places and sl_fabric_grant_add. */
sl_err ho_rights_make(struct handover *ho, struct ho_loan *loan, const struct ho_message *message,
                      struct sl_error *why);
/* Ends the right, because all of the part was read. */
void ho_right_end(struct handover *ho, struct ho_share *share);
/* Ends all rights of the loan; ho_loan_settle is called when the last one has ended. */
void ho_rights_end(struct handover *ho, struct ho_loan *loan);

/* ---- take.c ---- */
/* Handles a message of a loan. Gives the code to answer and its message number. SL_OK: the message
 * was read, or ended the take. SL_ERR_BUSY: messages up to the number have arrived. NOT_FOUND: no
 * BRING yet, or too many reads. *fresh: accepted now, answered after it was read. peer NULL: us. */
sl_err ho_take_message(struct handover *ho, struct tr_peer *peer, const struct sl_msg *msg,
                       uint32_t *number, bool *fresh, struct sl_error *why);
/* Ends the take; only the first reason counts. */
void ho_take_end(struct handover *ho, struct ho_take *take, sl_err code, const char *text);
/* Completes an ending take once nothing is written any more: answers requests and fences. */
void ho_take_settle(struct handover *ho, struct ho_take *take);
void ho_takes_step(struct handover *ho, uint64_t now_ns);
void ho_takes_fini(struct handover *ho);

/* ---- read.c ---- */
/* Starts to read an accepted message. Errors: SL_ERR_NO_MEMORY. */
sl_err ho_read_begin(struct handover *ho, struct ho_take *take, const struct sl_msg *msg,
                     struct sl_error *why);
/* Finds the read of this message; NULL: it was already read. */
struct ho_read *ho_read_of(struct handover *ho, const struct ho_take *take, uint32_t number);
/* Stops the reads of an ending take and reports its code and text to prefill. */
void ho_reads_stop(struct handover *ho, const struct ho_take *take);
void ho_reads_step(struct handover *ho, uint64_t now_ns);
void ho_reads_fini(struct handover *ho);

#endif
