/* actors/transporter/peers/peers.h - the nodes we know: who they are, and whether they are worth
 * asking. */
#ifndef SL_TRANSPORTER_PEERS_PEERS_H
#define SL_TRANSPORTER_PEERS_PEERS_H

#include "actors/transporter/state/state.h"

/* ---- peers.c ---- */
sl_err tr_peers_init(struct transporter *self, struct sl_error *why);
void tr_peers_fini(struct transporter *self);
struct tr_peer *tr_peer_find(struct transporter *self, const char *name);
/* The same, made when it is not there. NULL: too many. */
struct tr_peer *tr_peer_get(struct transporter *self, const char *name, struct sl_error *why);
static inline uint32_t tr_peer_number(const struct transporter *self, const struct tr_peer *peer)
{
    return (uint32_t)(peer - self->peers);
}
/* Of the grant that lets this peer read what is pinned for it (holder.c). */
static inline uint64_t tr_peer_cookie(const struct transporter *self, const struct tr_peer *peer)
{
    return tr_peer_number(self, peer) + 1;
}
/* Greets those that are due; gives when the next one is. */
uint64_t tr_peers_step(struct transporter *self, uint64_t now_ns);
void tr_peer_hello(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg,
                   const struct sl_control_frame *frame);
void tr_peer_hello_answered(struct transporter *self, struct tr_peer *peer,
                            const struct sl_msg *reply, const struct sl_control_frame *frame);
/* Sends a request; fills *seq. Errors: those of send of struct sl_control_ops. */
sl_err tr_peer_ask(struct transporter *self, struct tr_peer *peer, struct sl_msg *msg,
                   uint64_t *seq);
/* Answers request `seq` of this type. Errors: those of send of struct sl_control_ops; the peer asks
 * again. */
sl_err tr_peer_answer(struct transporter *self, struct tr_peer *peer, uint32_t type, uint64_t seq,
                      struct sl_msg *reply);
/* A copy in place of what was there. False: no memory, it stays. */
bool tr_blob_keep(void **to, uint32_t *to_bytes, const void *blob, uint32_t length_bytes);
void tr_peer_failed(struct transporter *self, struct tr_peer *peer);
/* Which peers may be asked now: a bit each. */
uint64_t tr_peers_usable(const struct transporter *self);
/* Which peers may be asked now for what has this hash, and are not known to lack it: a bit each. */
uint64_t tr_peers_with(struct transporter *self, uint64_t key_hash);
void tr_nodes(struct transporter *self, const struct sl_msg *msg);
void tr_fabric_address(void *context, uint32_t peer, const void *blob, uint32_t length_bytes);
void tr_peer_window_close(struct transporter *self, struct tr_peer *peer);
void tr_peers_link(struct transporter *self, uint32_t fabric_peer, enum sl_fabric_link link,
                   const struct sl_error *why);
/* Of a grant for our arena. */
void tr_peers_granted(struct transporter *self, uint32_t grant, const struct sl_bytes *key);
void tr_peers_grant_ended(struct transporter *self, uint32_t grant);

/* ---- twins.c: two nodes with one name ---- */
/* Of a greeting or its answer: whether it is the peer's. SL_ERR_EXISTS: of another node that has
 * its name. SL_ERR_STALE: of that one, or of a life of the peer that has ended. */
sl_err tr_twin_check(struct transporter *self, struct tr_peer *peer, uint64_t incarnation,
                     const struct sl_control_frame *frame, struct sl_error *why);
/* Another node with the peer's name was heard of late. */
bool tr_twin_lives(const struct transporter *self, const struct tr_peer *peer);
/* The peer says that another node has our name. */
void tr_named_twice(struct transporter *self, const struct tr_peer *peer, const char *text);
void tr_stranger(void *context, const char *ip, const char *key); /* of struct sl_control_options */
/* Says on the node's page what is wrong: names, keys, the directory. */
void tr_health_step(struct transporter *self);

/* ---- questions.c: what is asked of one peer or many, and their answers in time ---- */
/* A question that is answered within left_ns and the setting peer_timeout. */
void tr_question_begin(struct transporter *self, struct tr_question *question, uint64_t left_ns);
/* Asks this peer, too; all get messages of one type. Fills seq and budget_ns of the message.
 * Errors: those of tr_peer_ask; the peer is not waited for then. */
sl_err tr_question_ask(struct transporter *self, struct tr_question *question, uint32_t number,
                       struct sl_msg *msg);
/* False: nobody waits for this answer. */
bool tr_question_answered(struct transporter *self, struct tr_peer *peer,
                          const struct sl_msg *reply);
/* Nobody wants the answers any more. */
void tr_question_end(struct transporter *self, struct tr_question *question);
/* Ends what waited long enough: the peer has failed. Gives when the next one does. */
uint64_t tr_questions_step(struct transporter *self, uint64_t now_ns);

/* ---- members.c: members of the directory ---- */
/* Makes peers of the directory's members when it is time; gives when the next time is. */
uint64_t tr_members_step(struct transporter *self, uint64_t now_ns);
void tr_members_changed(void *context);
/* Makes a peer of it, or tells it where that is now. NULL: it is none (no name, no address, no key,
 * too many), or answers elsewhere. */
struct tr_peer *tr_member_take(struct transporter *self, const struct sl_directory_member *member);
/* Why a member is no peer. */
const char *tr_member_state(const struct transporter *self,
                            const struct sl_directory_member *member);

/* ---- keys.c: peers whose key goes ---- */
sl_err tr_keys_init(struct transporter *self, struct sl_error *why);
void tr_keys_fini(struct transporter *self);
/* Looks at the keys when they changed; gives when it is to look again. */
uint64_t tr_keys_step(struct transporter *self, uint64_t now_ns);
/* Whether the node of this name may be spoken to. Errors: SL_ERR_CONFIG (its key file, and why). */
sl_err tr_peer_has_key(const struct transporter *self, const char *name, struct sl_error *why);
/* Ends all that the peer has here and all that we have there, until there is a key of it. */
void tr_peer_expel(struct transporter *self, struct tr_peer *peer, const char *reason);

/* ---- file.c: peers that a file names ---- */
/* Reads it again when it is time; gives when the next time is. */
uint64_t tr_peers_file_step(struct transporter *self, uint64_t now_ns);

#endif
