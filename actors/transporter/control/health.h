/* actors/transporter/control/health.h - whether a peer is worth asking, and what it was found not
 * to have.
 *
 * A peer is ALIVE while it answers greetings, AWAY when it does not, and BROKEN when it answers
 * them but what is asked of it fails again and again: then it is left alone for a pause that grows
 * and is jittered, and one request after each pause is the trial that ends it. All times are
 * monotonic. One thread. */
#ifndef SL_TRANSPORTER_CONTROL_HEALTH_H
#define SL_TRANSPORTER_CONTROL_HEALTH_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_error.h"

enum sl_peer_state { SL_PEER_AWAY, SL_PEER_ALIVE, SL_PEER_BROKEN };

struct sl_peer_health_limits {
    uint64_t silence_ns;   /* without an answer for so long: away */
    uint32_t failures_max; /* in a row: broken */
    uint64_t backoff_min_ns, backoff_max_ns;
};
struct sl_peer_health {
    struct sl_peer_health_limits limits;
    uint64_t heard_ns; /* last greeting that was answered; 0: never */
    uint32_t failures; /* in a row */
    bool on_trial;     /* one request is out to see whether it works again */
    uint64_t closed_until_ns;
    uint32_t pauses; /* in a row */
};
void sl_peer_health_init(struct sl_peer_health *health, const struct sl_peer_health_limits *limits);
/* A greeting was answered. */
void sl_peer_health_heard(struct sl_peer_health *health, uint64_t now_ns);
/* It has gone, or began a new life: what failed before says nothing of it. */
void sl_peer_health_renew(struct sl_peer_health *health);
/* A request or transfer ended well, or failed. random: any bits. */
void sl_peer_health_worked(struct sl_peer_health *health);
void sl_peer_health_failed(struct sl_peer_health *health, uint64_t now_ns, uint64_t random);
enum sl_peer_state sl_peer_health_state(const struct sl_peer_health *health, uint64_t now_ns);
/* Whether it may be asked now. */
bool sl_peer_health_usable(const struct sl_peer_health *health, uint64_t now_ns);
/* It is asked: a broken one is on trial until worked or failed. */
void sl_peer_health_asked(struct sl_peer_health *health);
/* What it was asked for is over, whatever came of it: without worked or failed, another trial may
 * follow. */
void sl_peer_health_over(struct sl_peer_health *health);

/* ---- keys that peers were found not to have: bounded, expiring, lossy ---- */
struct sl_missing; /* opaque */
/* count: 64..2^24 keys; ttl 0: nothing is remembered. */
sl_err sl_missing_create(uint32_t count, uint64_t ttl_ns, struct sl_missing **out,
                         struct sl_error *why);
void sl_missing_destroy(struct sl_missing **missing);
/* peers: a bit for each that does not have it. */
void sl_missing_note(struct sl_missing *missing, uint64_t key_hash, uint64_t peers,
                     uint64_t now_ns);
/* Somebody knows better. */
void sl_missing_forget_key(struct sl_missing *missing, uint64_t key_hash);
/* The peers that are known not to have it. */
uint64_t sl_missing_at(const struct sl_missing *missing, uint64_t key_hash, uint64_t now_ns);
/* A peer began a new life: what it did not have then says nothing. */
void sl_missing_forget_peer(struct sl_missing *missing, uint32_t peer);

#endif
