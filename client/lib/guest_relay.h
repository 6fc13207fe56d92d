/* client/lib/guest_relay.h - engines of a client at a node of another user: messages to actors go by a stand-in
 * that checks and relays them (ipc/gate_relay.h), instead of the client's mailbox. It comes with the first
 * engine. What is said under the client's lock stands with the function; the others take it. */
#ifndef SL_CLIENT_LIB_GUEST_RELAY_H
#define SL_CLIENT_LIB_GUEST_RELAY_H

#include "client/lib/internal.h"

/* Whether such a client may send this. Errors: SL_ERR_PERMISSION (another user's node takes it from nobody but
 * its own user). */
sl_err sl_guest_may_send(enum sl_msg_type type, struct sl_error *why);
/* A stand-in that relays lives, or one comes. Errors: those of sl_gate_relay_ask, SL_ERR_TIMEOUT,
 * SL_ERR_NO_MEMORY, SL_ERR_INVALID (a fork asks). */
sl_err sl_guest_relay_need(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why);
/* The number of the last one, from 1 on: with another one all is to be registered anew. */
uint32_t sl_guest_relay_life(struct sl_client *client);

/* Lends memory, and gives the number that registrations have instead of a descriptor's; it is the relay's of
 * this life alone. Seals the memory against being cut short, and takes all of its pages. Errors: SL_ERR_UNSUPPORTED
 * (it cannot be sealed), SL_ERR_LIMIT (too many), SL_ERR_NO_MEMORY, SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT. */
sl_err sl_guest_memory_lend(struct sl_client *client, int fd, uint32_t life, uint64_t deadline_ns,
                            uint32_t *number, struct sl_error *why);
void sl_guest_memory_take_back(struct sl_client *client, uint32_t life, uint32_t number);

/* ---- under the client's lock; as the functions of sl_mailbox.h ---- */
sl_err sl_guest_relay_send(struct sl_client *client, const char *to, const void *frame,
                           size_t length_bytes);
sl_err sl_guest_relay_receive(struct sl_client *client, const char **from, const void **frame,
                              size_t *length_bytes);
/* The same as long as the client is open; -1: there was none yet. */
int sl_guest_relay_poll_fd(const struct sl_client *client);
/* Changes with every frame that is sent: which actor took one is not known here. */
uint64_t sl_guest_relay_sent(const struct sl_client *client);
/* Whether the stand-in went since this was asked last: nothing that was sent is answered any more. */
bool sl_guest_relay_broke(struct sl_client *client);

/* ---- guest.c ---- */
struct guest_relay;
sl_err sl_guest_relay_init(struct sl_client *client, struct guest_relay **out,
                           struct sl_error *why);
void sl_guest_relay_fini(const struct sl_client *client, struct guest_relay **relay);

#endif
