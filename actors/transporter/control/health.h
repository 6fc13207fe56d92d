/* actors/transporter/control/health.h - whether a peer should be asked, and which keys it lacks.
 *
 * A peer is ALIVE while it answers greetings and AWAY when it does not. It is BROKEN when it
 * answers greetings but other requests fail repeatedly. It then gets no requests for a back-off
 * time, which grows and is jittered; one trial request after each pause decides whether it
 * recovers. All times are monotonic. One thread. */
#ifndef SL_TRANSPORTER_CONTROL_HEALTH_H
#define SL_TRANSPORTER_CONTROL_HEALTH_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_error.h"

enum sl_peer_state { SL_PEER_AWAY, SL_PEER_ALIVE, SL_PEER_BROKEN };

struct sl_peer_health_limits {
    uint64_t silence_ns;   /* AWAY after this time without an answer */
    uint32_t failures_max; /* BROKEN after this many in a row */
    uint64_t backoff_min_ns, backoff_max_ns;
};
struct sl_peer_health {
    struct sl_peer_health_limits limits;
    uint64_t heard_ns; /* last answered greeting; 0: none yet */
    uint32_t failures; /* in a row */
    bool on_trial;     /* a trial request is outstanding */
    uint64_t closed_until_ns;
    uint32_t pauses; /* in a row */
};
void sl_peer_health_init(struct sl_peer_health *health, const struct sl_peer_health_limits *limits);
/* Call when a greeting was answered. */
void sl_peer_health_heard(struct sl_peer_health *health, uint64_t now_ns);
/* Call when the peer restarted: earlier failures no longer count. */
void sl_peer_health_renew(struct sl_peer_health *health);
/* A request or transfer succeeded, or failed. random: any bits, for the jitter. */
void sl_peer_health_worked(struct sl_peer_health *health);
void sl_peer_health_failed(struct sl_peer_health *health, uint64_t now_ns, uint64_t random);
enum sl_peer_state sl_peer_health_state(const struct sl_peer_health *health, uint64_t now_ns);
/* Whether the peer may be asked now. */
bool sl_peer_health_usable(const struct sl_peer_health *health, uint64_t now_ns);
/* Call when a request is sent: a BROKEN peer is on trial until `worked` or `failed`. */
void sl_peer_health_asked(struct sl_peer_health *health);
/* Call when the request has ended in any way: without `worked` or `failed`, another trial may
 * follow. */
void sl_peer_health_over(struct sl_peer_health *health);

/* ---- keys that peers lack: bounded, expiring, lossy ---- */
struct sl_missing; /* opaque */
/* count: 64..2^24 keys; ttl_ns 0: nothing is remembered. */
sl_err sl_missing_create(uint32_t count, uint64_t ttl_ns, struct sl_missing **out,
                         struct sl_error *why);
void sl_missing_destroy(struct sl_missing **missing);
/* peers: bit mask of peers that do not have the key. */
void sl_missing_note(struct sl_missing *missing, uint64_t key_hash, uint64_t peers,
                     uint64_t now_ns);
/* Drops what is remembered of a key, because newer information exists. */
void sl_missing_forget_key(struct sl_missing *missing, uint64_t key_hash);
/* Gives the bit mask of peers that are known to lack the key. */
uint64_t sl_missing_at(const struct sl_missing *missing, uint64_t key_hash, uint64_t now_ns);
/* Drops what is remembered of a peer that restarted. */
void sl_missing_forget_peer(struct sl_missing *missing, uint32_t peer);

#endif
