/* actors/transporter/peers/peers.h - the known nodes: their identity, health and access rights. */
#ifndef SL_TRANSPORTER_PEERS_PEERS_H
#define SL_TRANSPORTER_PEERS_PEERS_H

#include "actors/transporter/state/state.h"

/* ---- peers.c ---- */
sl_err tr_peers_init(struct transporter *self, struct sl_error *why);
void tr_peers_fini(struct transporter *self);
struct tr_peer *tr_peer_find(struct transporter *self, const char *name);
/* Finds the peer or creates it. NULL: too many peers. */
struct tr_peer *tr_peer_get(struct transporter *self, const char *name, struct sl_error *why);
static inline uint32_t tr_peer_number(const struct transporter *self, const struct tr_peer *peer)
{
    return (uint32_t)(peer - self->peers);
}
/* Cookie of the grant that lets this peer read what is pinned for it (holder.c). */
static inline uint64_t tr_peer_cookie(const struct transporter *self, const struct tr_peer *peer)
{
    return tr_peer_number(self, peer) + 1;
}
/* Steps members.c and file.c, and sends greetings that are due. Gives when to call again. */
uint64_t tr_peers_step(struct transporter *self, uint64_t now_ns);
void tr_peer_hello(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg,
                   const struct sl_control_frame *frame);
void tr_peer_hello_answered(struct transporter *self, struct tr_peer *peer,
                            const struct sl_msg *reply, const struct sl_control_frame *frame);
/* Sends a request and fills *seq. Errors: those of send of struct sl_control_ops. */
sl_err tr_peer_ask(struct transporter *self, struct tr_peer *peer, struct sl_msg *msg,
                   uint64_t *seq);
/* Answers request `seq` of this type. Errors: those of send of struct sl_control_ops; the peer
 * repeats its request. */
sl_err tr_peer_answer(struct transporter *self, struct tr_peer *peer, uint32_t type, uint64_t seq,
                      struct sl_msg *reply);
/* Replaces *to by a copy of blob. False: no memory, *to is unchanged. */
bool tr_blob_replace(void **to, uint32_t *to_bytes, const void *blob, uint32_t length_bytes);
void tr_peer_failed(struct transporter *self, struct tr_peer *peer);
/* Bit mask of the peers that may be asked now. */
uint64_t tr_peers_usable(const struct transporter *self);
/* Bit mask of the peers that may be asked now and are not known to lack the key with this hash. */
uint64_t tr_peers_with(struct transporter *self, uint64_t key_hash);
void tr_nodes(struct transporter *self, const struct sl_msg *msg);
void tr_fabric_address(void *context, uint32_t peer, const void *blob, uint32_t length_bytes);
void tr_peer_window_close(struct transporter *self, struct tr_peer *peer);
void tr_peers_link(struct transporter *self, uint32_t fabric_peer, enum sl_fabric_link link,
                   const struct sl_error *why);
/* Callback for a grant for our arena. */
void tr_peers_granted(struct transporter *self, uint32_t grant, const struct sl_bytes *key);
void tr_peers_grant_ended(struct transporter *self, uint32_t grant);

/* ---- twins.c: two nodes with one name ---- */
/* Checks the sender of a greeting or its answer. SL_ERR_EXISTS: it is another node with the peer's
 * name. SL_ERR_STALE: it may be such a node, or an earlier process of the peer. */
sl_err tr_twin_check(struct transporter *self, struct tr_peer *peer, uint64_t incarnation,
                     const struct sl_control_frame *frame, struct sl_error *why);
/* Whether another node with the peer's name sent a greeting recently. */
bool tr_twin_lives(const struct transporter *self, const struct tr_peer *peer);
/* A peer reports that another node has our name. */
void tr_name_reported(struct transporter *self, const struct tr_peer *peer, const char *text);
void tr_unknown_node(void *context, const char *ip,
                     const char *key); /* callback of struct sl_control_options */
/* Publishes problems with names, keys and directory as the process's health state. */
void tr_health_step(struct transporter *self);

/* ---- questions.c: requests to one or many peers, and their answers in time ---- */
/* Starts a question that ends after left_ns or the setting peer_timeout, whichever is earlier. */
void tr_question_begin(struct transporter *self, struct tr_question *question, uint64_t left_ns);
/* Sends the question to one more peer; all peers get messages of one type. Fills seq and budget_ns
 * of the message. Errors: those of tr_peer_ask; the peer is not waited for then. */
sl_err tr_question_ask(struct transporter *self, struct tr_question *question, uint32_t number,
                       struct sl_msg *msg);
/* Handles an answer. False: no question waits for it. */
bool tr_question_answered(struct transporter *self, struct tr_peer *peer,
                          const struct sl_msg *reply);
/* Cancels the question: later answers are ignored. */
void tr_question_end(struct transporter *self, struct tr_question *question);
/* Ends overdue questions; peers silent for peer_timeout have failed. Gives the next time. */
uint64_t tr_questions_step(struct transporter *self, uint64_t now_ns);

/* ---- members.c: members of the directory ---- */
/* Makes the directory's members peers when this is due. Gives the next time. */
uint64_t tr_members_step(struct transporter *self, uint64_t now_ns);
void tr_members_changed(void *context);
/* Makes a peer of the member or updates its address. NULL: not a valid peer (name, address, key,
 * table full), or the peer still answers at its known address. */
struct tr_peer *tr_member_take(struct transporter *self, const struct sl_directory_member *member);
/* Why the member is not a peer. */
const char *tr_member_state(const struct transporter *self,
                            const struct sl_directory_member *member);

/* ---- keys.c: peers whose key is removed ---- */
sl_err tr_keys_init(struct transporter *self, struct sl_error *why);
void tr_keys_fini(struct transporter *self);
/* Re-reads the keys after a change. Gives the next time. */
uint64_t tr_keys_step(struct transporter *self, uint64_t now_ns);
/* Whether a valid key of the node exists. Errors: SL_ERR_CONFIG (its key file, and why). */
sl_err tr_peer_has_key(const struct transporter *self, const char *name, struct sl_error *why);
/* Ends everything that the peer has here and that we have there, until its key exists again. */
void tr_peer_expel(struct transporter *self, struct tr_peer *peer, const char *reason);

/* ---- file.c: peers that are listed in a file ---- */
/* Reads the file when this is due. Gives the next time. */
uint64_t tr_peers_file_step(struct transporter *self, uint64_t now_ns);

#endif
