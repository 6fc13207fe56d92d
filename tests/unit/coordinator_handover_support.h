/* tests/unit/coordinator_handover_support.h - both sides of a hand-over at one coordinator, as the
 * test plays them. Check assertions inside. */
#ifndef COORDINATOR_HANDOVER_SUPPORT_H
#define COORDINATOR_HANDOVER_SUPPORT_H

#include "ipc/msg/sl_ticket.h"
#include "tests/unit/coordinator_support.h"

#define ID   UINT64_C(0x5115)
#define SEND UINT64_C(1)
#define RECV UINT64_C(2)

static const char *const named[] = {"node_name", "d", NULL};

struct side {
    uint64_t op_id, id;
    uint32_t blocks, tokens; /* tokens 0: whole blocks */
    const struct sl_item_receipt *receipt;
    const struct sl_item_ticket *ticket;
    bool direct;        /* prefill: takes what was offered; decode: makes a ticket */
    const char *from;   /* decode: prefill's node; NULL: nobody is asked */
    const char *keyed;  /* 32 bytes a block: the engine's own keys instead of tokens; NULL: none */
    uint64_t budget_ns; /* 0: 2 s */
};

/* Sends the STORE or LOAD of one side. Gives its sequence. */
uint64_t side_send(struct bed *bed, uint32_t type, struct side side);
/* The keyer's answer with a key for an incomplete last block: block i has key "bI". */
void keys_known(struct bed *bed, uint32_t blocks);
/* The same, up to where the keys are known. first: the engine is asked for. */
uint64_t side_begin(struct bed *bed, uint32_t type, struct side side, bool first);
bool answered(struct bed *bed, uint64_t seq, struct sl_msg *out);
/* Prefill's side up to its answer, and the blocks in the index as the registrar would have them. */
struct sl_msg commit(struct bed *bed, uint64_t seq, uint32_t blocks);
void load_copied(struct bed *bed);
/* Whether the registrar is told that the hold ends. */
bool hold_ended(struct bed *bed);
uint64_t metric(struct bed *bed, const char *name);
/* ARRIVED, and the code of receipt `which`. */
sl_err arrived(struct bed *bed, const struct sl_item_receipt *receipts, uint32_t count,
               uint32_t which);
sl_err given_back(struct bed *bed, uint64_t id); /* HANDOVER_END */
/* What prefill on another node would have said. */
struct sl_item_receipt receipt_of(const char *last_key, uint32_t block_end);
struct sl_item_receipt receipt_of_node(const char *node, const char *last_key, uint32_t block_end);
/* Whether prefill's node is told that this hand-over is done with. */
bool release_told(struct bed *bed, const struct sl_item_receipt *receipt);
sl_err peer_releases(struct bed *bed, const struct sl_item_receipt *receipt);

/* ---- direct ---- */

extern uint64_t ticket_number, ticket_length; /* of the last BRING */
extern unsigned char ticket_bytes[SL_TICKET_BYTES_MAX];

struct sl_msg bring_asked(struct bed *bed); /* BRING, with a ticket */
void bring_accepted(struct bed *bed);       /* and LANDED says that the ticket may be given out */
void bring_answer(struct bed *bed, sl_err code); /* of that one */
/* Decode's side of two blocks up to where prefill is waited for. */
uint64_t direct_begin(struct bed *bed);
sl_err landed(struct bed *bed, uint64_t state); /* LANDED */
/* The FENCE of the op, which is not answered yet; and is. */
struct sl_msg transporter_fence(struct bed *bed, uint64_t op_id);
void transporter_fenced(struct bed *bed, uint64_t op_id);
struct sl_item_ticket ticket_of(const char *last_key, uint32_t block_end);
/* Prefill's side up to where its swappers have looked. first: the engine is asked for. */
uint64_t lend_begin(struct bed *bed, const struct sl_item_ticket *ticket, bool first);

#endif
