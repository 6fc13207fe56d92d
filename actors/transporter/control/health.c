/* actors/transporter/control/health.c - see health.h: circuit breaker of a peer, cache of missing
 * keys. */
#include "actors/transporter/control/health.h"

#include "runtime/base/sl_backoff.h"

#include <stdlib.h>

#define WAYS 4u

void sl_peer_health_init(struct sl_peer_health *health, const struct sl_peer_health_limits *limits)
{
    *health = (struct sl_peer_health){.limits = *limits};
}

void sl_peer_health_heard(struct sl_peer_health *health, uint64_t now_ns)
{
    health->heard_ns = SL_MAX(now_ns, UINT64_C(1));
}

void sl_peer_health_renew(struct sl_peer_health *health)
{
    sl_peer_health_worked(health);
}

void sl_peer_health_worked(struct sl_peer_health *health)
{
    health->failures = 0;
    health->on_trial = false;
    health->closed_until_ns = 0;
    health->pauses = 0;
}

void sl_peer_health_failed(struct sl_peer_health *health, uint64_t now_ns, uint64_t random)
{
    health->on_trial = false;
    if (health->failures < UINT32_MAX) {
        health->failures++;
    }
    if (health->failures < health->limits.failures_max || now_ns < health->closed_until_ns) {
        return; /* the request was sent before the pause began */
    }
    bool past = now_ns >= sl_deadline_ns(health->closed_until_ns, health->limits.backoff_max_ns);
    health->pauses =
        past ? 0 : health->pauses; /* no attempt since: that failure is too old to count */
    health->closed_until_ns = sl_deadline_ns(now_ns, sl_backoff_ns(health->limits.backoff_min_ns,
                                                                   health->limits.backoff_max_ns,
                                                                   health->pauses, random));
    health->pauses += health->pauses < UINT32_MAX;
}

static bool is_heard(const struct sl_peer_health *health, uint64_t now_ns)
{
    return health->heard_ns != 0 &&
           now_ns < sl_deadline_ns(health->heard_ns, health->limits.silence_ns);
}

enum sl_peer_state sl_peer_health_state(const struct sl_peer_health *health, uint64_t now_ns)
{
    if (!is_heard(health, now_ns)) {
        return SL_PEER_AWAY;
    }
    return health->failures >= health->limits.failures_max ? SL_PEER_BROKEN : SL_PEER_ALIVE;
}

bool sl_peer_health_usable(const struct sl_peer_health *health, uint64_t now_ns)
{
    switch (sl_peer_health_state(health, now_ns)) {
    case SL_PEER_ALIVE:
        return true;
    case SL_PEER_BROKEN:
        return now_ns >= health->closed_until_ns && !health->on_trial;
    case SL_PEER_AWAY:
        break;
    }
    return false;
}

void sl_peer_health_asked(struct sl_peer_health *health)
{
    health->on_trial = health->failures >= health->limits.failures_max;
}

void sl_peer_health_over(struct sl_peer_health *health)
{
    health->on_trial = false;
}

/* ---- missing keys: sets of four ways; the earliest to expire is replaced ---- */

struct missing_way {
    uint64_t hash, peers, until_ns;
};
struct sl_missing {
    uint64_t ttl_ns;
    uint32_t set_mask;
    struct missing_way ways[];
};

sl_err sl_missing_create(uint32_t count, uint64_t ttl_ns, struct sl_missing **out,
                         struct sl_error *why)
{
    uint32_t sets = 16;
    while (sets < count / WAYS) {
        sets *= 2;
    }
    struct sl_missing *missing =
        calloc(1, sizeof(*missing) + (size_t)sets * WAYS * sizeof(struct missing_way));
    if (missing == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to remember %u keys", count);
    }
    missing->ttl_ns = ttl_ns;
    missing->set_mask = sets - 1;
    *out = missing;
    return SL_OK;
}

void sl_missing_destroy(struct sl_missing **missing)
{
    free(*missing);
    *missing = NULL;
}

void sl_missing_note(struct sl_missing *missing, uint64_t key_hash, uint64_t peers, uint64_t now_ns)
{
    if (missing->ttl_ns == 0) {
        return;
    }
    struct missing_way *set = &missing->ways[((uint32_t)key_hash & missing->set_mask) * WAYS];
    struct missing_way *to = &set[0];
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].hash == key_hash && set[i].until_ns > now_ns) {
            /* A new report does not extend the lifetime of the old one. */
            set[i].peers |= peers;
            return;
        }
        to = set[i].until_ns < to->until_ns ? &set[i] : to;
    }
    *to = (struct missing_way){
        .hash = key_hash, .peers = peers, .until_ns = sl_deadline_ns(now_ns, missing->ttl_ns)};
}

uint64_t sl_missing_at(const struct sl_missing *missing, uint64_t key_hash, uint64_t now_ns)
{
    const struct missing_way *set = &missing->ways[((uint32_t)key_hash & missing->set_mask) * WAYS];
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].hash == key_hash && set[i].until_ns > now_ns) {
            return set[i].peers;
        }
    }
    return 0;
}

void sl_missing_forget_key(struct sl_missing *missing, uint64_t key_hash)
{
    struct missing_way *set = &missing->ways[((uint32_t)key_hash & missing->set_mask) * WAYS];
    for (uint32_t i = 0; i < WAYS; i++) {
        set[i].peers = set[i].hash == key_hash ? 0 : set[i].peers;
    }
}

void sl_missing_forget_peer(struct sl_missing *missing, uint32_t peer)
{
    for (uint64_t i = 0; i < ((uint64_t)missing->set_mask + 1) * WAYS; i++) {
        missing->ways[i].peers &= ~(UINT64_C(1) << peer);
    }
}
