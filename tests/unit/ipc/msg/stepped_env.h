/* tests/unit/ipc/msg/stepped_env.h - an environment that a test steps by hand: time advances only
 * on request, and the actor's messages and wake-up requests are recorded. One actor an environment.
 */
#ifndef STEPPED_ENV_H
#define STEPPED_ENV_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_actor.h"

#define STEPPED_SENT_MAX    1024u
#define STEPPED_WATCHES_MAX 16u

struct stepped_frame {
    char to[32];
    bool reply;
    void *bytes; /* owned */
    size_t length_bytes;
};

struct stepped {
    struct sl_env env; /* first: the ops find the rest by it */
    const struct sl_actor *actor;
    void *state;
    struct sl_config *config;
    struct sl_paths paths;
    struct sl_codec *codec;
    struct stepped_frame sent[STEPPED_SENT_MAX];
    uint32_t sent_count, taken_count;
    uint64_t wake_ns; /* earliest time requested, SL_NEVER_NS */
    struct sl_proc_id watches[STEPPED_WATCHES_MAX];
    uint32_t watch_count;
    bool finished;
    bool unreachable; /* send fails */
};

/* Sets up and, with init true, runs the actor's init, which must succeed. settings: name, text,
 * name, text, NULL. */
void stepped_start(struct stepped *stepped, const struct sl_actor *actor, const char *shm_dir,
                   const char *const *settings, bool init);
void stepped_end(struct stepped *stepped);
/* Gives the actor a request of `sender` (zero seq and budget are filled in: next number, 2 s). */
sl_err stepped_give(struct stepped *stepped, const char *sender, struct sl_msg *msg);
/* Takes the actor's next message, decoded; borrowed until the next call. False if there is none. */
bool stepped_take(struct stepped *stepped, struct sl_msg *out, char to[32]);
/* Ticks as long as the actor asks to be woken at once; at most `limit` times. Returns the number of
 * ticks. */
uint32_t stepped_run(struct stepped *stepped, uint32_t limit);
/* Advances time; ticks the actor when it asked for that. */
void stepped_advance(struct stepped *stepped, uint64_t ns);
void stepped_died(struct stepped *stepped, struct sl_proc_id proc);

#endif
