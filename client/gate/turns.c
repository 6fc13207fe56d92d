/* client/gate/turns.c - see turns.h. Tables of a few hundred rows, walked once for each connection. */
#include "client/gate/turns.h"

#include <string.h>

/* All who are refused are one, of a number that no user has. */
static uint32_t turn_user(const struct turn *turn)
{
    return turn->refused ? UINT32_MAX : turn->uid;
}

bool turns_add(struct turns *self, const struct turn *turn)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        same += turn_user(&self->waiting[i]) == turn_user(turn);
    }
    if (self->count == TURNS_MAX ||
        same >= (turn->refused ? TURNS_REFUSED_MAX : TURNS_OF_USER_MAX)) {
        return false;
    }
    self->waiting[self->count++] = *turn;
    return true;
}

/* When this user, or where too many others just came in, one of them has waited. */
static uint64_t user_again_ns(const struct turns *self, uint32_t uid, uint32_t *place)
{
    uint64_t first_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < TURN_USERS_MAX; i++) {
        if (self->users[i].again_ns != 0 && self->users[i].uid == uid) {
            *place = i;
            return self->users[i].again_ns;
        }
        if (self->users[i].again_ns < first_ns) {
            first_ns = self->users[i].again_ns;
            *place = i;
        }
    }
    return first_ns;
}

bool turns_take(struct turns *self, uint64_t now_ns, struct turn *out)
{
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t place = 0;
        if (user_again_ns(self, turn_user(&self->waiting[i]), &place) > now_ns) {
            continue;
        }
        *out = self->waiting[i];
        self->users[place].uid = turn_user(out);
        self->users[place].again_ns = now_ns + TURN_NS;
        self->count--;
        memmove(&self->waiting[i], &self->waiting[i + 1],
                (self->count - i) * sizeof(self->waiting[0]));
        return true;
    }
    return false;
}

void turns_skip(struct turns *self, const struct turn *turn)
{
    uint32_t place = 0;
    (void)user_again_ns(self, turn_user(turn), &place);
    if (self->users[place].uid == turn_user(turn)) {
        self->users[place].again_ns = 0;
    }
}

uint64_t turns_next_ns(const struct turns *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t place = 0;
        next_ns = SL_MIN(next_ns, user_again_ns(self, turn_user(&self->waiting[i]), &place));
    }
    return SL_MAX(next_ns, now_ns);
}
