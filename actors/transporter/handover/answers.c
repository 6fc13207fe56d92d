/* actors/transporter/handover/answers.c - shared by both sides: answers, ended hand-overs, lost
 * peers. */
#include "actors/transporter/handover/internal.h"

#include <inttypes.h>

bool ho_ticket_taken(struct transporter *self, const struct sl_msg *msg,
                     const struct sl_bytes *bytes, struct sl_ticket_fields *out)
{
    struct sl_error why = {0};
    bool able = self->handover != NULL && self->pools != NULL;
    sl_err err = able ? sl_ticket_read(bytes->at, bytes->length, out, &why)
                      : sl_fail(&why, SL_ERR_UNSUPPORTED, "no pools are registered");
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
    }
    return err == SL_OK;
}

bool ho_ticket_is(const struct sl_ticket_fields *ticket, const struct sl_ticket_fields *other)
{
    return ticket->number == other->number &&
           sl_same_bytes(ticket->secret, other->secret, sizeof(ticket->secret));
}

void ho_ended_note(struct ho_ring *ring, const struct sl_ticket_fields *ticket, sl_err code)
{
    ring->at[ring->next++ % HO_ENDED_MAX] = (struct ho_ended){.ticket = *ticket, .code = code};
}

const struct ho_ended *ho_ended_find(const struct ho_ring *ring,
                                     const struct sl_ticket_fields *ticket)
{
    for (uint32_t i = 0; i < SL_MIN(ring->next, HO_ENDED_MAX); i++) {
        if (ho_ticket_is(&ring->at[i].ticket, ticket)) {
            return &ring->at[i];
        }
    }
    return NULL;
}

void ho_reply(struct handover *ho, const struct sl_reply_route *back, const struct sl_msg *reply,
              sl_err code, const char *text)
{
    struct sl_msg out = *reply;
    out.code = code;
    if (code != SL_OK) {
        out.text = sl_text_of(text[0] != '\0' ? text : sl_err_text(code));
    }
    sl_reply_route_send(ho->self->env, back, &out);
}

bool ho_peer_gone(const struct handover *ho, const struct tr_peer *peer, struct sl_error *why)
{
    uint64_t now_ns = ho_now(ho);
    uint64_t silent_ns = now_ns - SL_MIN(peer->heard_ns, now_ns);
    bool asked = peer->address[0] != '\0'; /* else only it has sent greetings */
    uint64_t first_ns = asked ? peer->health.heard_ns : peer->heard_ns;
    bool gone = asked ? sl_peer_health_state(&peer->health, now_ns) == SL_PEER_AWAY
                      : silent_ns > peer->health.limits.silence_ns;
    if (!gone || (first_ns == 0 && now_ns < ho->grace_ns)) {
        return false;
    }
    if (first_ns == 0) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE, "node %s has never answered", peer->name);
    } else {
        (void)sl_fail(why, SL_ERR_PEER_DIED, "node %s was last seen %" PRIu64 " ms ago", peer->name,
                      silent_ns / SL_NS_PER_MS);
    }
    return true;
}
