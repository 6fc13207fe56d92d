/* client/gate/relay_memory.h - memory that a client of another user lends to the node by its stand-in. Actors
 * open it as /proc/STAND-IN/fd/NUMBER. So these descriptors have numbers that nothing else in the process ever
 * has: a number that a registration names must not come to mean the node's own memory. */
#ifndef SL_CLIENT_GATE_RELAY_MEMORY_H
#define SL_CLIENT_GATE_RELAY_MEMORY_H

#include "client/gate/shares.h"
#include "ipc/gate_relay.h"

enum relay_memory_state { RELAY_MEMORY_NONE, RELAY_MEMORY_LENT, RELAY_MEMORY_REFUSED };
struct relay_memory {
    enum relay_memory_state state;
    bool forgotten; /* by the client; an engine has it yet */
    uint64_t length_bytes;
    struct sl_error why; /* refused */
};
struct relay_memories {
    struct shares shares;
    uint64_t bytes_max; /* of a user */
    struct relay_memory all[SL_GATE_RELAY_MEMORIES_MAX];
};

/* Takes the numbers of descriptors. Errors: SL_ERR_LIMIT (this process may not have as many, or has
 * one of them open). */
sl_err relay_memories_open(struct relay_memories *self, struct sl_error *why);
/* Which descriptor here is the memory. */
int relay_memory_fd(uint32_t number);
/* The client lends: takes the descriptor. What is no memory that it may write, may be cut short, has holes, or is too much is
 * remembered as refused, with the reason. False: no number, or one that is lent. */
bool relay_memory_lend(struct relay_memories *self, uint32_t number, int fd);
/* It is over when no engine of those has it. in_use: bits. */
void relay_memory_forget(struct relay_memories *self, uint32_t number, uint64_t in_use);
/* Those that the client has forgotten are over when no engine has them any more. */
void relay_memories_let(struct relay_memories *self, uint64_t in_use);

#endif
