/* tests/support/fake_net.h - the control plane between nodes, played by a test: it keeps frames
 * that the transporter sends and gives it frames of peers. Check assertions inside. */
#ifndef FAKE_NET_H
#define FAKE_NET_H

#include "actors/transporter/control/control.h"
#include "ipc/msg/sl_msg.h"

#define FAKE_LETTERS_MAX 4096u

struct fake_letter {
    char peer[32];
    bool answer;
    unsigned char *bytes;
    size_t length_bytes;
};
struct fake_net {
    struct sl_control base; /* first */
    struct fake_letter in;  /* bytes NULL: none */
    struct fake_letter out[FAKE_LETTERS_MAX];
    uint32_t out_count;
    bool cut;                   /* sends fail */
    bool other;                 /* requests arrive on a connection other than the peer's */
    uint32_t refused_count;     /* letters of `out` that are refusals */
    sl_err add_fails;           /* SL_OK; else adding a peer fails with this */
    char added[64], where[160]; /* the peer added last */
    uint32_t add_count;
    uint64_t seq;
    struct sl_codec *codec, *take_codec;
};

void fake_net_open(struct fake_net *net);
void fake_net_close(struct fake_net *net);
/* Makes these bytes the next frame; the previous one must have been taken. */
void fake_net_give(struct fake_net *net, const char *peer, const void *bytes, size_t length_bytes,
                   bool answer);
/* Makes a message of `peer`, under its own name, the next frame. answer: sent on our connection to
 * it. Returns its number. The actor must be ticked to take it. */
uint64_t fake_net_deliver(struct fake_net *net, const char *peer, struct sl_msg msg, bool answer);
/* The newest letter of this type to the peer, borrowed until the next call; false: none. */
bool fake_net_last(struct fake_net *net, const char *peer, uint32_t type, struct sl_msg *out);
uint32_t fake_net_count(struct fake_net *net, const char *peer, uint32_t type);

#endif
