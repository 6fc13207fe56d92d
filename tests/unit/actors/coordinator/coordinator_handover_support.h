/* tests/unit/actors/coordinator/coordinator_handover_support.h - both sides of a hand-over at one
 * coordinator, played by the test. Check assertions inside. */
#ifndef COORDINATOR_HANDOVER_SUPPORT_H
#define COORDINATOR_HANDOVER_SUPPORT_H

#include "ipc/msg/sl_ticket.h"
#include "tests/unit/actors/coordinator/coordinator_support.h"

#define ID   UINT64_C(0x5115)
#define SEND UINT64_C(1)
#define RECV UINT64_C(2)

static const char *const named[] = {"node_name", "d", NULL};

struct side {
    uint64_t op_id, id;
    uint32_t blocks, tokens; /* tokens 0: whole blocks */
    const struct sl_item_receipt *receipt;
    const struct sl_item_ticket *ticket;
    bool direct;        /* prefill: takes the offered ticket; decode: makes one */
    const char *from;   /* decode: prefill's node; NULL: no node is asked */
    const char *keyed;  /* 32 bytes a block: the engine's own keys instead of tokens; NULL: none */
    uint64_t budget_ns; /* 0: 2 s */
};

/* Sends the STORE or LOAD of one side. Returns its sequence. */
uint64_t side_send(struct bed *bed, uint32_t type, struct side side);
/* Sends the keyer's answer with a key for an incomplete last block: block i has key "bI". */
void keys_known(struct bed *bed, uint32_t blocks);
/* The same, until the keys are known. first: the coordinator asks for the engine. */
uint64_t side_begin(struct bed *bed, uint32_t type, struct side side, bool first);
bool answered(struct bed *bed, uint64_t seq, struct sl_msg *out);
/* Runs prefill's side up to its answer, and puts its blocks into the index. */
struct sl_msg commit(struct bed *bed, uint64_t seq, uint32_t blocks);
void load_copied(struct bed *bed);
/* Whether the coordinator has reported the end of the hold to the registrar. */
bool hold_ended(struct bed *bed);
uint64_t metric(struct bed *bed, const char *name);
/* Sends ARRIVED; returns the code of receipt `which`. */
sl_err arrived(struct bed *bed, const struct sl_item_receipt *receipts, uint32_t count,
               uint32_t which);
sl_err given_back(struct bed *bed, uint64_t id); /* HANDOVER_END */
/* The receipt that prefill on another node would send. */
struct sl_item_receipt receipt_of(const char *last_key, uint32_t block_end);
struct sl_item_receipt receipt_of_node(const char *node, const char *last_key, uint32_t block_end);
/* Whether prefill's node is notified that this hand-over has ended. */
bool release_sent(struct bed *bed, const struct sl_item_receipt *receipt);
sl_err peer_releases(struct bed *bed, const struct sl_item_receipt *receipt);

/* ---- direct ---- */

extern uint64_t ticket_number, ticket_length; /* of the last BRING */
extern unsigned char ticket_bytes[SL_TICKET_BYTES_MAX];

struct sl_msg bring_asked(struct bed *bed); /* BRING, with a ticket */
void bring_accepted(struct bed *bed);       /* and LANDED reports that the ticket may be used */
void bring_answer(struct bed *bed, sl_err code); /* to that BRING */
/* Runs decode's side of two blocks up to where it waits for prefill. */
uint64_t direct_begin(struct bed *bed);
sl_err landed(struct bed *bed, uint64_t state); /* LANDED */
/* The first takes the op's FENCE without an answer; the second also answers it. */
struct sl_msg transporter_fence(struct bed *bed, uint64_t op_id);
void transporter_fenced(struct bed *bed, uint64_t op_id);
struct sl_item_ticket ticket_of(const char *last_key, uint32_t block_end);
/* Runs prefill until its swappers have looked. first: the coordinator asks for the engine. */
uint64_t lend_begin(struct bed *bed, const struct sl_item_ticket *ticket, bool first);

#endif
