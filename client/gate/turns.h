/* client/gate/turns.h - which connection of another user is let in when: each costs a process, so one of each user
 * in TURN_NS, whatever others do. It keeps no descriptors but those that wait, and opens none. */
#ifndef SL_CLIENT_GATE_TURNS_H
#define SL_CLIENT_GATE_TURNS_H

#include "runtime/sl_clock.h"

#include <stdbool.h>

#define TURN_NS (10 * SL_NS_PER_MS)
/* Of all users; none of them takes all places. */
#define TURNS_MAX         256u
#define TURNS_OF_USER_MAX (TURNS_MAX / 2)
/* Who may not come in is one user with all others who may not: numbers of users are to be had. */
#define TURNS_REFUSED_MAX 32u
/* So many users had their turn in the last TURN_NS; others wait. */
#define TURN_USERS_MAX 64u

struct turn {
    int fd;
    uint32_t uid;
    uint32_t client; /* the caller's: what it may */
    bool refused;    /* it may nothing, and is told so */
};
struct turns {                      /* zeroed: none waits */
    struct turn waiting[TURNS_MAX]; /* the oldest first */
    uint32_t count;
    struct {
        uint32_t uid;      /* as turn_user has it */
        uint64_t again_ns; /* that user is not let in before; past: free */
    } users[TURN_USERS_MAX];
};

/* Takes the descriptor, unless false: its user has too many that wait, or there are too many. */
bool turns_add(struct turns *self, const struct turn *turn);
/* Gives the oldest one whose user may come in now, which is its user's turn. False: there is none. */
bool turns_take(struct turns *self, uint64_t now_ns, struct turn *out);
/* Of what turns_take gave, and is gone: it was nobody's turn. */
void turns_skip(struct turns *self, const struct turn *turn);
/* When one may come in. SL_NEVER_NS: none waits. */
uint64_t turns_next_ns(const struct turns *self, uint64_t now_ns);

#endif
