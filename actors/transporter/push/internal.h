/* actors/transporter/push/internal.h - direct hand-over of blocks: the parts of it.
 *
 * tickets.c  decode: tickets for pools of this node, and their end
 * grants.c   decode: their grants, and what is not written any more
 * open.c     decode: what PUSH_OPEN asks for is checked, and becomes the parts of a ticket
 * arrive.c   decode: what was written under them: checked, told, acknowledged
 * check.c    decode: what lies in device memory is checked by the swapper of its rank
 * send.c     prefill: batches that are written under tickets of other nodes
 * target.c   prefill: such a ticket, its keys, its end
 * answers.c  both: answers, and whether a peer is gone
 *
 * A ticket ends by PUSH_CLOSE, at its deadline, with its op (FENCE), with its peer,
 * with the engine whose pool it is for, or when something fails; whatever ends it, "over" is said after
 * nothing lands any more. When prefill and decode are one node, the CPU copies. */
#ifndef SL_TRANSPORTER_PUSH_INTERNAL_H
#define SL_TRANSPORTER_PUSH_INTERNAL_H

#include "actors/transporter/push/push.h"
#include "actors/transporter/push/ticket.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/regions/regions.h"
#include "runtime/fabric/core/cover.h"

#define PUSH_PIECES_MAX        512u         /* of a batch */
#define PUSH_SLICE             (4 * SL_MIB) /* checked or copied in a turn */
#define PUSH_SOON_NS           (5 * SL_NS_PER_MS)
#define PUSH_LOOK_NS           (50 * SL_NS_PER_MS) /* at the health of peers */
#define PUSH_ENDED_MAX         4096u /* batches that ended, remembered to know their repetitions */
#define PUSH_TOLD_MAX          64u   /* the same, of a ticket */
#define PUSH_TICKET_PLACES_MAX (TR_PUSH_PLACES_MAX / 2) /* of the grants of all tickets */
#define PUSH_PLACES_MAX        16384u              /* of one transfer: a batch may take several */
#define PUSH_COOKIE            (UINT64_C(1) << 63) /* of transfers; those of trips have it not */

/* ---- decode ---- */
enum part_grant { GRANT_NO, GRANT_ASKED, GRANT_READY, GRANT_ENDS };
struct push_part {
    uint32_t spot_first, spot_count; /* of the ticket; the first one is written to */
    bool device; /* its one spot is device memory: a swapper checks what lands there */
    bool taken;  /* all of it was acknowledged: nobody gets a key for it any more */
    uint64_t length_bytes;
    struct sl_cover cover; /* has arrived, with the right digest */
    struct sl_cover shut;  /* was named by a notice: nobody writes it any more */
    uint32_t grant, key_bytes;
    uint8_t state; /* enum part_grant */
    void *key;
};
struct push_told {
    uint64_t push; /* 0: none */
    sl_err code;
};
/* OPEN -> ENDING: nothing more is taken, grants are being ended -> OVER: nothing lands any more */
enum ticket_state { TICKET_FREE, TICKET_OPEN, TICKET_ENDING, TICKET_OVER };
struct push_ticket {
    uint8_t state; /* enum ticket_state */
    bool bound;    /* to peer, or to this node itself (local) */
    bool local;
    bool complete; /* every byte is there; its owner is told so */
    bool renewing; /* grants of the peer's earlier life are being ended */
    bool closing;  /* PUSH_CLOSE waits */
    bool quiet;    /* its owner ended it and need not be told */
    bool device;   /* some of its parts are */
    uint64_t number, handover, deadline_ns, trace_id;
    uint8_t secret[SL_TICKET_SECRET_BYTES];
    char owner[TR_NAME_BYTES], from[TR_NAME_BYTES]; /* from: "": whoever comes first */
    uint32_t peer;
    uint64_t peer_incarnation;
    uint32_t part_count, grants_open; /* live or ending */
    uint32_t grants_asked;            /* of them: parts in GRANT_ASKED */
    struct push_part *parts;
    struct tr_spot *spots;            /* of all parts */
    uint32_t spot_count, place_count; /* places: of the fabric */
    struct sl_return opened;          /* PUSH_OPEN */
    uint64_t asked_seq;               /* PEER_TICKET that waits for granted(); 0: none */
    uint32_t asked_first;
    sl_err code; /* why it ends */
    char text[SL_ERROR_TEXT_BYTES];
    struct sl_return close_back;
    uint64_t fences;                /* a bit each: those that wait for it */
    uint64_t call_seq, tell_due_ns; /* OVER: its owner is told */
    struct push_told told[PUSH_TOLD_MAX];
    uint32_t told_next;
};
struct push_grant { /* by slot of the handle */
    bool used;
    uint32_t handle, ticket, part;
};

/* CHECK: one after the other -> SWAPPER, where some of it is in device memory: a swapper is asked, or
 * will be again -> TELL */
enum arrival_phase { ARRIVAL_FREE, ARRIVAL_CHECK, ARRIVAL_SWAPPER, ARRIVAL_TELL };
enum push_piece_state { PIECE_DUE, PIECE_ASKED, PIECE_RIGHT };
struct push_arrival {
    uint8_t phase; /* enum arrival_phase */
    bool last, local;
    uint32_t ticket;
    uint64_t ticket_number;
    uint32_t send; /* local: who waits, and the number of its life */
    uint64_t push; /* number of the batch at its sender */
    uint64_t seq, op_id, trace_id, layer, deadline_ns, call_seq;
    uint32_t piece_count, piece_at;
    uint32_t
        copy_to; /* 0: the piece is being checked; else it is copied to that owner of its part */
    uint64_t byte_at; /* of the piece that is being checked or copied */
    struct sl_item_arrived *pieces;
    uint8_t *states;   /* a piece each: enum push_piece_state, of those in device memory */
    uint64_t again_ns; /* SWAPPER: when one that was busy is asked again */
    uint64_t order;    /* CHECK: the lowest is checked first */
};

/* ---- prefill ---- */
struct push_door { /* where to write a part */
    bool used;
    bool taken; /* all of it is there: it is not written again */
    uint32_t key;
    uint64_t length_bytes;
};
struct push_target {
    bool used;
    bool over; /* nothing more is sent; kept so that late batches hear why */
    bool tell; /* the other side has to hear that it is over */
    struct sl_ticket ticket;
    unsigned char bytes[SL_TICKET_BYTES_MAX];
    uint32_t length_bytes, peer, sends; /* batches, those that only drain included */
    uint64_t deadline_ns;
    struct push_door *doors;      /* ticket.part_count */
    uint32_t door_count;          /* used */
    uint64_t ask_seq, ask_due_ns; /* PEER_TICKET; seq 0: none is out */
    uint32_t asked_first;         /* of its page */
    uint32_t failures;            /* links that broke in a row */
    uint64_t end_seq, end_due_ns;
    sl_err code;
    char text[SL_ERROR_TEXT_BYTES];
    bool aborting; /* PUSH_ABORT waits */
    struct sl_return abort_back;
};
/* KEYS -> WRITE -> TURN (last: after all others) -> NOTICE; LOCAL: an arrival of this node works
 * for it. ENDING: answered, its transfer is not over yet. */
enum send_phase {
    SEND_FREE,
    SEND_KEYS,
    SEND_WRITE,
    SEND_TURN,
    SEND_NOTICE,
    SEND_LOCAL,
    SEND_ENDING
};
struct push_send {
    uint8_t phase;               /* enum send_phase */
    bool last, local, under_way; /* under_way: a transfer reads its pieces */
    uint32_t target;             /* local: the ticket */
    uint64_t number;             /* of the batch; cookie of its transfer, too */
    uint64_t layer, begun_ns, deadline_ns, due_ns, ticket_number;
    uint64_t pause_ns; /* after the next notice that finds no room; PUSH_SOON_NS: none did so far */
    struct sl_return back;
    uint32_t piece_count;
    uint32_t written, write_end; /* pieces before it; those of the transfer under way */
    struct sl_item_arrived *pieces;
    struct tr_spot *spots; /* where the part of each piece lies */
    uint64_t bytes;
    uint64_t fences; /* a bit each: those that wait until nothing of it is read */
};
struct push_ended {
    uint64_t seq;
    sl_err code;
    char to[TR_NAME_BYTES];
};

struct push_metrics {
    sl_metric tickets, expired, fenced, pushes, failed, bytes_out, bytes_in, arrivals, digests_bad,
        refused, pool_tickets, copied_bytes;
    sl_histogram push_ns;
};

struct push {
    struct sl_digest_stream digest; /* of the piece that is being checked */
    struct transporter *self;
    struct sl_calls *calls;
    uint64_t next_ticket, next_push, next_arrival, grace_ns;
    uint64_t due_ns, look_ns;
    bool look; /* at the health of peers, in this turn */

    struct push_ticket *tickets;
    uint32_t ticket_max, tickets_open, parts_open, parts_max, places_open;
    struct push_grant *grants;
    uint32_t grant_max;
    struct push_arrival *arrivals;

    struct push_target *targets; /* ticket_max */
    uint32_t targets_open, doors_open;
    struct push_send *sends;
    uint32_t push_max, sends_open;
    struct push_ended ended[PUSH_ENDED_MAX];
    uint32_t ended_next;

    /* scratch of messages */
    struct sl_item_door doors[PUSH_PIECES_MAX];
    uint64_t taken[PUSH_PIECES_MAX];
    struct sl_item_piece blocks[PUSH_PIECES_MAX];
    struct sl_fabric_piece pieces[PUSH_PIECES_MAX];
    struct sl_fabric_place places[PUSH_PLACES_MAX];
    struct push_metrics metric;
};

enum push_call { PUSH_CALL_ARRIVAL = 1, PUSH_CALL_OVER };
static inline uint64_t push_cookie(enum push_call call, uint32_t index)
{
    return (uint64_t)call << 32 | index;
}
/* Wants to run at this time at the latest. */
static inline void push_due(struct push *push, uint64_t at_ns)
{
    push->due_ns = SL_MIN(push->due_ns, at_ns);
}
static inline uint64_t push_now(const struct push *push)
{
    return push->self->env->now_ns;
}

static inline uint32_t push_ticket_index(const struct push *push, const struct push_ticket *ticket)
{
    return (uint32_t)(ticket - push->tickets);
}

static inline struct tr_range push_range(const struct sl_item_arrived *piece)
{
    return (struct tr_range){.offset_bytes = piece->part_offset_bytes,
                             .length_bytes = piece->length_bytes};
}

/* ---- answers.c ---- */
/* A peer that does not answer any more, and why that is thought. */
bool push_peer_gone(const struct push *push, const struct tr_peer *peer, struct sl_error *why);
/* Answers a request of this node with the code and, if it is none, the text. */
void push_reply(struct push *push, const struct sl_return *back, sl_err code, const char *text);
void push_peer_reply(struct push *push, struct tr_peer *peer, uint32_t type,
                     const struct sl_msg *msg, sl_err code, const char *text);

/* ---- open.c ---- */
/* The parts that PUSH_OPEN asks for; gives the arrays, which are the caller's to free. Errors:
 * SL_ERR_INVALID, SL_ERR_LIMIT (too many tickets, parts or places), SL_ERR_NO_MEMORY,
 * SL_ERR_NOT_FOUND, SL_ERR_UNSUPPORTED. */
sl_err push_open_parts(struct push *push, const struct sl_body_push_open *body,
                       struct push_ticket *out, struct sl_error *why);

/* ---- grants.c ---- */
/* All of them end; push_ticket_look when nothing lands any more. */
void push_grants_end(struct push *push, struct push_ticket *ticket);
/* PEER_TICKET: answers it, or makes what is missing of the page that is asked for and answers when all
 * of it may be used. */
void push_page_answer(struct push *push, struct push_ticket *ticket, sl_err code, const char *text);
void push_page_go(struct push *push, struct push_ticket *ticket);
/* Of a batch that was acknowledged: grants of parts that it made whole end. */
void push_parts_taken(struct push *push, struct push_ticket *ticket,
                      const struct sl_item_arrived *pieces, uint32_t count);
/* Nobody writes any more to these. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err push_pieces_shut(struct push *push, struct push_ticket *ticket,
                        const struct sl_item_arrived *pieces, uint64_t count, struct sl_error *why);
/* Whether something that began before may still land there. */
bool push_pieces_land(struct push *push, const struct push_ticket *ticket,
                      const struct sl_item_arrived *pieces, uint32_t count);

/* ---- tickets.c ---- */
void push_open(struct push *push, const struct sl_msg *msg);
void push_close(struct push *push, const struct sl_msg *msg);
/* The ticket that is meant, whatever state it is in; NULL: why says that it is not here, or not of
 * this node or life. */
struct push_ticket *push_ticket_find(struct push *push, const struct sl_bytes *bytes,
                                     struct sl_error *why);
struct push_ticket *push_ticket_named(struct push *push, const struct sl_ticket *shown,
                                      struct sl_error *why);
/* Whoever comes first has it. peer NULL: this node itself. Errors: SL_ERR_PERMISSION, SL_ERR_BUSY,
 * or what it ended with. */
sl_err push_ticket_take(struct push *push, struct push_ticket *ticket, const struct tr_peer *peer,
                        struct sl_error *why);
/* Whether these pieces are within their parts. */
sl_err push_pieces_check(const struct push_ticket *ticket, const struct sl_item_arrived *pieces,
                         uint64_t count, struct sl_error *why);
/* It ends, once: the first reason counts. */
void push_ticket_end(struct push *push, struct push_ticket *ticket, sl_err code, const char *text);
/* Nothing lands any more, perhaps: says so to whoever waits for it. */
void push_ticket_look(struct push *push, struct push_ticket *ticket);
/* All is there: nothing more is taken. */
void push_ticket_complete(struct push *push, struct push_ticket *ticket);
void push_ticket_told(struct push *push, uint32_t index);
void push_ticket_shown(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
void push_ticket_given_up(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
void push_tickets_step(struct push *push, uint64_t now_ns);
void push_tickets_fini(struct push *push);

/* ---- arrive.c ---- */
void push_notice(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
/* Copies and checks a batch of this node. Errors: those that its PUSH_SEND is answered with. */
sl_err push_arrive_local(struct push *push, struct push_ticket *ticket, struct push_send *send,
                         struct sl_error *why);
void push_arrival_answered(struct push *push, uint32_t index, const struct sl_msg *reply);
/* Of a ticket that ends: whoever waits for them hears code and text. quietly: nobody waits. */
void push_arrivals_drop(struct push *push, const struct push_ticket *ticket, sl_err code,
                        const char *text);
void push_arrivals_forget(struct push *push, const struct push_ticket *ticket);
void push_arrivals_step(struct push *push);
void push_arrivals_fini(struct push *push);

/* ---- check.c ---- */
/* The piece is where all owners of its part have it, and its digest was right. */
sl_err push_piece_arrived(struct push *push, const struct push_arrival *arrival, uint32_t index,
                          struct sl_error *why);
/* Asks a swapper for digests of the pieces in device memory that nobody has checked yet, those of a rank
 * at a time. Gives whether any was left. Errors: SL_ERR_BUSY (ask again later), SL_ERR_INVALID (a piece
 * is not whole layers), those of tr_spot_layers and of sl_calls_send. */
sl_err push_check_ask(struct push *push, struct push_arrival *arrival, bool *asked,
                      struct sl_error *why);
/* Its answer; NULL: none came in time. What is right counts as arrived. Errors: SL_ERR_BUSY (ask again
 * later), SL_ERR_CORRUPT, SL_ERR_TIMEOUT, SL_ERR_PROTOCOL, and what the swapper said. */
sl_err push_check_answered(struct push *push, struct push_arrival *arrival,
                           const struct sl_msg *reply, struct sl_error *why);

/* ---- target.c ---- */
/* The target of this ticket, made when it is new. */
sl_err push_target_get(struct push *push, const struct sl_ticket *ticket, struct push_target **out,
                       struct sl_error *why);
/* True: the parts of all pieces have keys. False: they are asked for. */
bool push_target_ready(struct push *push, struct push_target *target, const struct push_send *send);
/* Nothing more is sent under it; batches end with the code. tell: the other side hears it. */
void push_target_over(struct push *push, struct push_target *target, sl_err code, const char *text,
                      bool tell);
/* The keys are worth nothing any more; they are asked for again, after a pause. */
void push_target_renew(struct push *push, struct push_target *target);
void push_target_left(struct push *push, struct push_target *target); /* a batch is gone */
void push_target_keys(struct push *push, struct tr_peer *peer, const struct sl_msg *reply);
void push_target_end_answered(struct push *push, struct tr_peer *peer, const struct sl_msg *reply);
void push_abort(struct push *push, const struct sl_msg *msg);
void push_targets_step(struct push *push, uint64_t now_ns);
void push_targets_fini(struct push *push);

/* ---- send.c ---- */
void push_send(struct push *push, const struct sl_msg *msg);
/* Goes on as far as it can. */
void push_send_advance(struct push *push, struct push_send *send);
/* The batch's fate is known. */
void push_send_end(struct push *push, struct push_send *send, sl_err code, const char *text);
void push_send_done(struct push *push, const struct sl_fabric_done *done);
void push_send_acknowledged(struct push *push, struct tr_peer *peer, const struct sl_msg *reply);
/* Batches of this node's own tickets that wait for their turn. */
void push_sends_step(struct push *push, uint64_t now_ns);
/* Ends batches that the FENCE covers, or that read pools of the engine. Gives how many are still
 * read; fence: that waits for them. */
uint32_t push_sends_fence(struct push *push, const struct sl_msg *msg, uint32_t fence);
void push_sends_engine_ends(struct push *push, uint64_t engine_id);
void push_sends_fini(struct push *push);

#endif
