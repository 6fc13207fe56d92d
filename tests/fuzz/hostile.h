/* tests/fuzz/hostile.h - one actor in a hostile node: input bytes become messages of the table in
 * any order from any sender, process deaths, time steps, right and wrong answers, and restarts.
 *
 * An input is a list of operations. The first byte of each chooses what happens, the next bytes
 * fill the fields. Numbers are drawn from the limits of the table and from values that the actor
 * itself has sent (claims, generations, places, ops), so that inputs get past the first check.
 * Messages travel through encoder and decoder. After every operation:
 * - the actor has answered each request at most once, in frames that decode;
 * - it has sent and ticked a bounded number of times;
 * - it still runs (no message of a peer may end an actor);
 * - the target's own check holds. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "tests/support/fake_env.h"

#define HOSTILE_SLOTS     16u /* values remembered of each field */
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
    bool restarts; /* the actor keeps its state elsewhere: it may be killed and restarted */
    /* All may be NULL. prepare: before the first start; world: the target's own operations. */
    void (*prepare)(struct hostile *hostile);
    void (*world)(struct hostile *hostile);
    /* Called after an answer from the table: does what the answering process would have done. */
    void (*answered)(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply);
    void (*replied)(struct hostile *hostile, const char *to, const struct sl_msg *reply);
    /* Called between operations, and at the end, after all deaths and timeouts. */
    void (*check)(struct hostile *hostile, bool end);
    void (*finish)(struct hostile *hostile); /* undoes prepare; the actor has ended */
};

struct hostile_request_out { /* a request of the actor's that the harness may answer */
    char to[32];
    void *frame;
    size_t length_bytes;
};
struct hostile_request_in { /* a request sent to the actor */
    char sender[32];
    uint64_t seq;
    uint32_t given, answered;
};

struct hostile {
    struct fake_env fake; /* first */
    const struct hostile_target *target;
    struct hostile_input input;
    struct sl_env_ops ops; /* the fake's, with the target's replacements */
    sl_err (*fake_watch)(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie);
    struct hostile_request_out asked[HOSTILE_ASKED_MAX];
    uint32_t asked_count;
    struct hostile_request_in given[HOSTILE_GIVEN_MAX];
    uint32_t given_count;
    uint64_t next_slot, steps, frames;
    uint32_t last_sender;
    bool lossy; /* some peer was unreachable for a while */
    void *own;  /* the target's */
};

/* Runs one input from start to end. */
void hostile_run(const struct hostile_target *target, const uint8_t *bytes, size_t length_bytes);
/* Remembers a number under the name of a field, and a text as a key. */
void hostile_remember(struct hostile *hostile, const char *field, uint64_t value);
/* Sends the actor a message; sender and seq are filled in if they are empty. */
void hostile_give(struct hostile *hostile, const char *sender, struct sl_msg *msg);
/* Takes the frames that the actor has sent since the last call. Runs after every operation. */
void hostile_collect(struct hostile *hostile);
/* Ends the actor and starts a successor on the state it left. */
void hostile_restart(struct hostile *hostile);
/* Answers all requests of the actor that well-behaved peers can answer; false: there were none. */
bool hostile_answer_all(struct hostile *hostile);
/* Makes an answer to a request from the input's next bytes (a valid one once the input is used up),
 * lends it to `send`, and frees it. Uses no other state of `hostile`: for targets without an
 * actor. */
void hostile_reply(struct hostile *hostile, const struct sl_msg *request,
                   void (*send)(void *context, const struct sl_msg *reply), void *context);
/* Makes a message of this type from the input's next bytes and lends it to send. */
void hostile_make(struct hostile *hostile, uint32_t type,
                  void (*send)(void *context, struct sl_msg *msg), void *context);
/* A valid HELLO of one of the usual processes. */
#define HOSTILE_SENDERS 8u
extern const char *const hostile_senders[HOSTILE_SENDERS];
struct sl_proc_id hostile_proc(uint32_t sender);
uint32_t hostile_sender_of(const char *name); /* HOSTILE_SENDERS: none of them */

/* Removes a directory of this target, which holds only files and links. */
void hostile_directory_remove(const char *path);

#define HOSTILE_MUST(condition)                                                  \
    do {                                                                         \
        if (!(condition)) {                                                      \
            dprintf(2, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                             \
        }                                                                        \
    } while (0)

#endif
