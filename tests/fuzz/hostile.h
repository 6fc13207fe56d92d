/* tests/fuzz/hostile.h - one actor in a hostile node: bytes become messages of the table in any
 * order from any sender, deaths, time, answers true and false, restarts.
 *
 * An input is a list of operations. The first byte of each chooses what happens, the bytes behind
 * it fill the fields. Numbers are drawn from the limits of the table and from what the actor itself
 * has said (claims, generations, places, ops), so that inputs get past the first check. Messages
 * travel through encoder and decoder. After every operation:
 * - the actor has answered each request once at most, in frames that decode;
 * - it has sent and ticked a bounded number of times;
 * - it goes on (nothing that a peer can say ends an actor);
 * - the target's own check holds. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "tests/support/fake_env.h"

#define HOSTILE_SLOTS     16u /* of what is remembered of each field */
#define HOSTILE_ASKED_MAX 64u
#define HOSTILE_GIVEN_MAX 512u

struct hostile_input {
    const uint8_t *at, *end;
};
uint64_t hostile_byte(struct hostile_input *input); /* 0 at the end */
uint64_t hostile_number(struct hostile_input *input, uint64_t low, uint64_t high);

struct hostile;
struct hostile_target {
    const struct sl_actor *actor;
    const char *const *settings; /* name, text, ..., NULL */
    const uint32_t *requests;    /* that the actor serves; others are sent now and then */
    uint32_t request_count;
    bool restarts; /* the actor keeps its state elsewhere: it may be killed and started again */
    /* All may be NULL. prepare: before the first start; world: operations of the target's own. */
    void (*prepare)(struct hostile *hostile);
    void (*world)(struct hostile *hostile);
    /* The bytes behind an answer of the table's: what the other side would have done. */
    void (*answered)(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply);
    void (*replied)(struct hostile *hostile, const char *to, const struct sl_msg *reply);
    /* Between operations, and at the end when everybody has died and all time has passed. */
    void (*check)(struct hostile *hostile, bool end);
    void (*finish)(struct hostile *hostile); /* undoes prepare; the actor is gone */
};

struct hostile_asked { /* a request of the actor's that somebody may answer */
    char to[32];
    void *frame;
    size_t length_bytes;
};
struct hostile_given { /* a request that the actor was given */
    char sender[32];
    uint64_t seq;
    uint32_t given, answered;
};

struct hostile {
    struct fake_env fake; /* first */
    const struct hostile_target *target;
    struct hostile_input input;
    struct sl_env_ops ops; /* the fake's, with what the target replaces */
    sl_err (*fake_watch)(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie);
    struct hostile_asked asked[HOSTILE_ASKED_MAX];
    uint32_t asked_count;
    struct hostile_given given[HOSTILE_GIVEN_MAX];
    uint32_t given_count;
    uint64_t next_slot, steps, frames;
    uint32_t last_sender;
    bool lossy; /* some peer was not reachable for a while */
    void *own;  /* the target's */
};

/* Runs one input from start to end. */
void hostile_run(const struct hostile_target *target, const uint8_t *bytes, size_t length_bytes);
/* Remembers a number under the name of a field, and a text as a key. */
void hostile_remember(struct hostile *hostile, const char *field, uint64_t value);
/* Gives the actor a message; sender and seq are filled when they are empty. */
void hostile_give(struct hostile *hostile, const char *sender, struct sl_msg *msg);
/* Takes what the actor has sent since; done after every operation anyway. */
void hostile_collect(struct hostile *hostile);
/* The actor ends, and a successor starts where it was. */
void hostile_restart(struct hostile *hostile);
/* Answers all that the actor asks for and good peers know how to answer; false: there was nothing.
 */
bool hostile_answer_all(struct hostile *hostile);
/* Makes an answer to a request out of the input's next bytes (good ones where there are none left),
 * lends it to send, and forgets it. Nothing else of `hostile` is used: for targets without an
 * actor. */
void hostile_reply(struct hostile *hostile, const struct sl_msg *request,
                   void (*send)(void *context, const struct sl_msg *reply), void *context);
/* Makes a message of this type out of the input's next bytes and lends it to send. */
void hostile_make(struct hostile *hostile, uint32_t type,
                  void (*send)(void *context, struct sl_msg *msg), void *context);
/* HELLO of one of the usual processes, as it should be. */
#define HOSTILE_SENDERS 8u
extern const char *const hostile_senders[HOSTILE_SENDERS];
struct sl_proc_id hostile_proc(uint32_t sender);
uint32_t hostile_sender_of(const char *name); /* HOSTILE_SENDERS: none of them */

/* Removes a directory of this target's with its files, which are links or files alone. */
void hostile_directory_remove(const char *path);

#define HOSTILE_MUST(condition)                                                  \
    do {                                                                         \
        if (!(condition)) {                                                      \
            dprintf(2, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                             \
        }                                                                        \
    } while (0)

#endif
